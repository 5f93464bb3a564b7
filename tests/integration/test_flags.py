# SPDX-License-Identifier: LGPL-2.1-or-later
"""Flags of an inode (chattr, lsattr, project ids): passed to SRC, obeyed, recorded, restored."""
import errno
import fcntl
import mmap
import os
import struct

import pytest

from mounts import NOBODY, SECOND, as_user, epoch, moment, run
from test_left_out import REFUSED, in_force, write_rules

GETFLAGS, SETFLAGS = 0x80086601, 0x40086602
FSGETXATTR, FSSETXATTR = 0x801C581F, 0x401C5820
SYNC, IMMUTABLE, APPEND, NODUMP, NOATIME = 0x08, 0x10, 0x20, 0x40, 0x80
MASK = SYNC | IMMUTABLE | APPEND | NODUMP | NOATIME


def ioctl(path, request, data):
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        return fcntl.ioctl(fd, request, data)
    finally:
        os.close(fd)


def flags_of(path):
    return struct.unpack("i", ioctl(path, GETFLAGS, bytes(4)))[0]


def user_flags(path):
    return flags_of(path) & MASK


def set_flags(path, flags):
    ioctl(path, SETFLAGS, struct.pack("i", (flags_of(path) & ~MASK) | flags))


def refused(number, function, *arguments):
    with pytest.raises(OSError) as caught:
        function(*arguments)
    assert caught.value.errno == number, caught.value


@pytest.fixture(name="unlocked")
def fixture_unlocked(any_mount):
    """The mount; files left immutable in its tree are unlocked again, so that it can be removed."""
    yield any_mount
    any_mount.expect("changed while Wayback did not record")  # the look at the tree may not have ended yet
    for directory, names, files in os.walk(any_mount.source):
        if ".wayback" in names:
            names.remove(".wayback")
        for name in names + files:
            path = os.path.join(directory, name)
            if not os.path.islink(path) and user_flags(path) & (IMMUTABLE | APPEND):
                set_flags(path, 0)


def test_flags_pass_to_the_tree_and_are_of_their_time(unlocked):
    mount = unlocked
    (mount.path / "d").mkdir()
    path, below = mount.path / "d" / "f", mount.source / "d" / "f"
    path.write_bytes(b"one")
    assert flags_of(path) == flags_of(below)
    seen = [(moment(), 0)]
    for flags in (NODUMP, NODUMP | NOATIME, 0, NOATIME | IMMUTABLE, NOATIME):
        set_flags(path, flags)
        assert user_flags(path) == user_flags(below) == flags and flags_of(path) == flags_of(below)
        seen.append((moment(), flags))
    for remount in (False, True):
        if remount:
            mount.remount()
        for when, flags in seen:
            assert user_flags(mount.at(when, "d/f")) == flags, when
            assert os.listxattr(mount.at(when, "d/f")) == os.listxattr(path)
            refused(errno.ENODATA, os.getxattr, mount.at(when, "d/f"), "system.wayback.flags")
    # chattr and lsattr themselves, and a directory
    run("chattr", "+d", mount.path / "d")
    assert run("lsattr", "-d", mount.path / "d").stdout.split()[0].count("d") == 1
    assert user_flags(mount.at(seen[-1][0], "d")) == 0 and user_flags(mount.path / "d") == NODUMP
    refused(errno.EROFS, set_flags, mount.at(seen[0][0], "d/f"), 0)
    listed = mount.tool("vstat", "--operations", path)
    assert "setxattr system.wayback.flags" in listed.stdout
    mount.check_store()


def test_fsxattr_is_recorded_with_its_project(maker):
    mount = maker.mount("allow_other", kind="xfs")
    path = mount.path / "f"
    path.touch()  # an extent size can be set while there are none
    before = ioctl(path, FSGETXATTR, bytes(28))
    then = moment()
    fields = list(struct.unpack("5I8x", before))
    fields[0], fields[1], fields[3] = fields[0] | 0x80 | 0x800, 65536, 4711
    ioctl(path, FSSETXATTR, struct.pack("5I8x", *fields))
    now = struct.unpack("5I8x", ioctl(path, FSGETXATTR, bytes(28)))
    assert now[1] == 65536 and now[3] == 4711
    assert ioctl(path, FSGETXATTR, bytes(28)) == ioctl(mount.source / "f", FSGETXATTR, bytes(28))
    past = struct.unpack("5I8x", ioctl(mount.at(then, "f"), FSGETXATTR, bytes(28)))
    assert (past[1], past[3], past[0] & 0x880) == (0, 0, 0)
    later = moment()
    mount.tool("vrevert", path, "-t", epoch(then))
    back = struct.unpack("5I8x", ioctl(path, FSGETXATTR, bytes(28)))
    assert (back[1], back[3], back[0] & 0x880) == (0, 0, 0)
    assert struct.unpack("5I8x", ioctl(mount.at(later, "f"), FSGETXATTR, bytes(28)))[3] == 4711


def test_an_immutable_file_is_not_changed_and_history_agrees(unlocked):
    mount = unlocked
    path, other = mount.path / "f", mount.path / "other"
    path.write_bytes(b"one" * 5000)
    other.write_bytes(b"other")
    set_flags(path, IMMUTABLE)
    when = moment()
    content = path.read_bytes()
    refused(errno.EPERM, path.write_bytes, b"two")
    refused(errno.EPERM, os.truncate, path, 3)
    refused(errno.EPERM, path.unlink)
    refused(errno.EPERM, path.rename, mount.path / "g")
    refused(errno.EPERM, other.rename, path)
    refused(errno.EPERM, os.link, path, mount.path / "g")
    refused(errno.EPERM, path.chmod, 0o600)
    refused(errno.EPERM, os.setxattr, path, "user.a", b"b")
    for place in (path, mount.at(moment(), "f"), mount.at(when, "f")):
        assert place.read_bytes() == content and user_flags(place) == IMMUTABLE
    assert sorted(os.listdir(mount.path)) == ["f", "other"]
    mount.kill()
    mount.start()
    assert path.read_bytes() == content and mount.at(when, "f").read_bytes() == content
    mount.check_store()
    set_flags(path, 0)
    path.write_bytes(b"two")
    assert mount.at(when, "f").read_bytes() == content


def test_an_append_only_file_grows(unlocked):
    mount = unlocked
    path = mount.path / "log"
    path.write_bytes(b"one\n")
    set_flags(path, APPEND)
    states = [(moment(), b"one\n")]
    for line in (b"two\n", b"three\n"):
        with open(path, "ab") as stream:
            stream.write(line)
        states.append((moment(), states[-1][1] + line))
    refused(errno.EPERM, path.write_bytes, b"x")
    refused(errno.EPERM, os.open, path, os.O_WRONLY)
    refused(errno.EPERM, os.open, path, os.O_WRONLY | os.O_APPEND | os.O_TRUNC)
    refused(errno.EPERM, path.unlink)
    assert path.read_bytes() == states[-1][1] == (mount.source / "log").read_bytes()
    for when, content in states:
        assert mount.at(when, "log").read_bytes() == content
    mount.check_store()


def test_a_revert_restores_flags_and_is_not_stopped_by_them(unlocked):
    mount = unlocked
    path = mount.path / "f"
    path.write_bytes(b"one")
    set_flags(path, NODUMP)
    first = moment()
    path.write_bytes(b"two")
    set_flags(path, IMMUTABLE)
    second = moment()
    mount.tool("vrevert", path, "-t", epoch(first))
    assert (path.read_bytes(), user_flags(path)) == (b"one", NODUMP)
    mount.tool("vrevert", path, "-t", epoch(second))
    assert (path.read_bytes(), user_flags(path)) == (b"two", IMMUTABLE)
    mount.tool("vrevert", path, "-t", epoch(first))
    assert (path.read_bytes(), user_flags(path)) == (b"one", NODUMP)
    path.unlink()
    assert user_flags(mount.at(second, "f")) == IMMUTABLE and user_flags(mount.at(first, "f")) == NODUMP
    mount.tool("vrevert", path, "-t", epoch(first))
    assert (path.read_bytes(), user_flags(path)) == (b"one", NODUMP)
    mount.check_store()


def test_flags_belong_to_their_owner(maker):
    mount = maker.mount("allow_other", kind="ext4")
    mount.path.chmod(0o777)
    path = mount.path / "f"
    as_user(lambda: path.write_bytes(b"x"), *NOBODY)
    as_user(lambda: set_flags(path, NODUMP), *NOBODY)
    assert user_flags(path) == NODUMP
    refused(errno.EPERM, as_user, lambda: set_flags(path, 0), *SECOND)
    refused(errno.EPERM, as_user, lambda: set_flags(path, IMMUTABLE), *NOBODY)
    assert user_flags(path) == NODUMP


def test_mapped_bytes_are_not_lost_to_an_immutable_file(maker):
    """The kernel writes them back later; until the last writer has closed it, the flag is refused."""
    mount = maker.mount("allow_other", kind="ext4")
    path = mount.path / "f"
    path.write_bytes(bytes(4096))
    with open(path, "r+b") as stream, mmap.mmap(stream.fileno(), 4096) as mapping:
        mapping[0] = 1
        refused(errno.EBUSY, set_flags, path, IMMUTABLE)
    set_flags(path, IMMUTABLE)
    mount.remount()
    assert path.read_bytes()[0] == 1
    set_flags(path, 0)


def test_a_file_that_the_store_keeps_too_is_not_made_immutable(maker):
    """A deleted file that could not be removed any more would hold its space for ever."""
    mount = maker.mount("allow_other", kind="ext4")
    path = mount.path / "f"
    path.write_bytes(b"x")
    with open(path, "rb") as stream:
        path.unlink()
        with pytest.raises(OSError) as caught:
            fcntl.ioctl(stream, SETFLAGS, struct.pack("i", IMMUTABLE))
        assert caught.value.errno == errno.EOPNOTSUPP
        fcntl.ioctl(stream, SETFLAGS, struct.pack("i", flags_of(mount.path) & ~MASK | NODUMP))


def test_flags_from_before_a_path_was_left_out(maker):
    """The state recorded before has them; states of the time between are refused."""
    mount = maker.mount("allow_other", kind="ext4")
    mount.expect(REFUSED)
    build = mount.path / "build"
    build.mkdir()
    for name, flags in (("f", NODUMP), ("g", 0)):
        (build / name).write_bytes(b"x")
        set_flags(build / name, flags)
    when = moment()
    mount.stop()
    write_rules(mount, ('"build/"', "none"))
    mount.start()
    in_force(mount, build / "probe", False)
    for name in ("f", "g"):
        set_flags(build / name, NOATIME)
    between = moment()
    for name in ("f", "g"):
        set_flags(build / name, NOATIME | NODUMP)
        refused(errno.EIO, lambda path: os.stat(path) and user_flags(path), mount.at(between, f"build/{name}"))
    assert [user_flags(mount.at(when, f"build/{name}")) for name in ("f", "g")] == [NODUMP, 0]
    assert os.listxattr(mount.at(when, "build/f")) == []


def test_a_link_that_a_revert_breaks_gets_its_flags(unlocked):
    mount = unlocked
    (mount.path / "d").mkdir()
    path, other = mount.path / "d" / "f", mount.path / "other"
    path.write_bytes(b"one")
    os.link(path, other)
    set_flags(path, IMMUTABLE)
    when = moment()
    set_flags(path, 0)
    path.write_bytes(b"two")
    mount.tool("vrevert", path, "-t", epoch(when))
    assert (path.read_bytes(), user_flags(path)) == (b"one", IMMUTABLE)
    assert (other.read_bytes(), user_flags(other)) == (b"two", 0)
    assert sorted(os.listdir(mount.path / "d")) == ["f"]
