# SPDX-License-Identifier: LGPL-2.1-or-later
"""Changes of SRC by a program that does not use the mount: a shell whose working directory is below it.

The kernel keeps the size of a file and writes appended bytes to where it believes the end to be. Bytes that the shell
appended below the mount must not be overwritten by that.
"""
import errno
import os

import pytest

from mounts import epoch, file_with_number, moment

RWF_NOAPPEND = 0x20  # Linux 6.9
MIB = 1 << 20


def append(path, data):
    with open(path, "ab", buffering=0) as stream:
        assert stream.write(data) == len(data)


def edited_below(mount):
    """On a busy machine an edit comes late enough after a recorded change to be noticed."""
    mount.expect("changed while Wayback did not record")
    return mount


def check(mount, name, expected):
    """The tree, the mount and a new look at the size agree."""
    assert (mount.source / name).read_bytes() == expected
    assert os.stat(mount.path / name).st_size == len(expected)
    assert (mount.path / name).read_bytes() == expected


@pytest.mark.parametrize("options", [(), ("history=close",), ("history=none",)], ids=["write", "close", "none"])
def test_opened_after_an_append_below(maker, options):
    mount = edited_below(maker.mount("allow_other", *options))
    path = mount.path / "log"
    path.write_bytes(b"one\n")
    assert path.read_bytes() == b"one\n"
    append(mount.source / "log", b"two\n")
    append(path, b"three\n")
    check(mount, "log", b"one\ntwo\nthree\n")
    append(mount.source / "log", b"four\n")
    append(path, b"five\n")
    append(path, b"six\n")
    check(mount, "log", b"one\ntwo\nthree\nfour\nfive\nsix\n")


def test_open_while_it_grows_below(maker):
    """A program that logs through the mount, and a shell that appends below it."""
    mount = edited_below(maker.mount("allow_other"))
    path, expected = mount.path / "log", b""
    with open(path, "ab", buffering=0) as stream:
        for number in range(20):
            text = b"mount %d\n" % number
            stream.write(text)
            expected += text
            if number % 3 == 0:
                text = b"below %d\n" % number * (1 + number * 100)
                append(mount.source / "log", text)
                expected += text
            assert (mount.source / "log").read_bytes() == expected
    check(mount, "log", expected)


def test_a_large_append_after_one_below(maker):
    """The kernel sends it in several requests."""
    mount = edited_below(maker.mount("allow_other"))
    data = os.urandom(3 * MIB + 12345)
    (mount.path / "f").write_bytes(b"one")
    append(mount.source / "f", b"two")
    append(mount.path / "f", data)
    check(mount, "f", b"onetwo" + data)


def test_cut_off_below(maker):
    mount = edited_below(maker.mount("allow_other"))
    (mount.path / "f").write_bytes(b"x" * 10000)
    assert (mount.path / "f").read_bytes() == b"x" * 10000
    os.truncate(mount.source / "f", 5)
    append(mount.path / "f", b"end")
    check(mount, "f", b"xxxxxend")


def test_read_after_an_append_below(maker):
    """The page with the former end is not shown with zeros behind it."""
    mount = edited_below(maker.mount("allow_other"))
    path = mount.path / "f"
    path.write_bytes(b"one\n")
    assert path.read_bytes() == b"one\n"
    append(mount.source / "f", b"two\n")
    with open(path, "rb") as stream:
        assert stream.read() == b"one\ntwo\n"
        assert stream.seek(0, os.SEEK_END) == 8


def test_a_write_elsewhere_than_at_the_end_keeps_its_offset(maker):
    """O_APPEND with RWF_NOAPPEND: the offset is the caller's, not the kernel's idea of the end."""
    mount = edited_below(maker.mount("allow_other"))
    path = mount.path / "f"
    path.write_bytes(b"0123456789")
    fd = os.open(path, os.O_WRONLY | os.O_APPEND)
    try:
        os.pwritev(fd, [b"ab"], 2, RWF_NOAPPEND)
        os.write(fd, b"end")
        os.pwritev(fd, [b"cd"], 4, RWF_NOAPPEND)
    except OSError as error:
        pytest.skip(f"needs Linux 6.9: {error}")
    finally:
        os.close(fd)
    check(mount, "f", b"01abcd6789end")


def test_another_file_with_the_same_inode_number(maker):
    """The name and the number of a removed file lead to the new one, whose changes are recorded as its own."""
    mount = edited_below(maker.mount("allow_other"))
    path = mount.path / "f"
    path.write_bytes(b"one")
    number = os.stat(mount.source / "f").st_ino
    os.unlink(mount.source / "f")
    other = file_with_number(mount.source, number)
    if not other:
        pytest.skip("the file system does not use the number again")
    os.rename(other, mount.source / "f")
    then = moment()
    with open(path, "r+b") as stream:
        stream.write(b"new")
    assert (mount.source / "f").read_bytes() == b"newanother program"
    # Its past may not be known, as others made it; but it is never another content.
    try:
        assert (mount.path / f"f@{epoch(then)}").read_bytes() == b"of another program"
    except OSError as error:
        assert error.errno == errno.EIO
