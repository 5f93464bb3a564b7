# SPDX-License-Identifier: LGPL-2.1-or-later
"""Holes among unwritten extents, limits of extended attributes, one tree at two places: as the bare file system."""
import errno
import mmap
import os

import pytest

from mounts import drop_caches, run

PAGE = 4096


def map_of(fd):
    """[(offset, next data, next hole)] at every page of the file."""
    def seek(offset, whence):
        try:
            return os.lseek(fd, offset, whence)
        except OSError as error:
            return -error.errno
    size = os.fstat(fd).st_size
    return [(at, seek(at, os.SEEK_DATA), seek(at, os.SEEK_HOLE)) for at in range(0, size + PAGE, PAGE)]


def check_data(fd, pages):
    """Written bytes are data; holes read as zeros."""
    for at, data, hole in map_of(fd):
        page = at // PAGE
        if at < os.fstat(fd).st_size:
            is_data = data == at
            assert is_data == (hole != at)
            assert is_data or page not in pages
            assert os.pread(fd, PAGE, at) == (b"a" if page in pages else b"\0") * PAGE


def map_of_path(path):
    fd = os.open(path, os.O_RDONLY)
    try:
        return map_of(fd)
    finally:
        os.close(fd)


def unwritten(path, size, pages, mapped):
    """A preallocated file with data in some pages, written or stored through a mapping."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        os.posix_fallocate(fd, 0, size)
        if mapped:
            with mmap.mmap(fd, size) as mapping:
                for page in pages:
                    mapping[page * PAGE:(page + 1) * PAGE] = b"a" * PAGE
                mapping.flush()
        for page in () if mapped else pages:
            os.pwrite(fd, b"a" * PAGE, page * PAGE)
        check_data(fd, pages)
        os.fsync(fd)
        check_data(fd, pages)
    finally:
        os.close(fd)


@pytest.mark.parametrize("mapped", [False, True])
def test_holes_among_unwritten_extents(maker, kind, mapped):
    bare, mount = maker.tree(kind), maker.mount("allow_other", kind=kind)
    cases = ([], [0], [15], range(0, 64, 4), [*range(14), 40], [63])
    for number, pages in enumerate(cases):
        name = f"f{number}"
        unwritten(mount.path / name, 64 * PAGE, pages, mapped)
        unwritten(bare / name, 64 * PAGE, pages, mapped)
    drop_caches(1)
    # A store through a mapping dirties a page, or the large folio that the kernel had memory for: so not of another
    # file then.
    other = mount.source if mapped else bare
    for number, pages in enumerate(cases):
        name = f"f{number}"
        assert map_of_path(mount.path / name) == map_of_path(other / name), pages


def limits(path, disk):
    """Of a file on, or over, the file system of `disk`. How many attributes, and how long a value, it takes: [count, errno], [length, errno]."""
    path.touch()
    answers = []
    for names in (False, True):
        amount, error, full = 0, 0, False
        while amount < (1000 if names else 65536) and not error:
            try:
                if names:
                    os.setxattr(path, f"user.attribute_{amount}", b"value_%d" % amount)
                    amount += 1
                else:
                    os.setxattr(path, "user.long", b"x" * (amount + 512))
                    amount += 512
                full = False
            except OSError as failure:
                # btrfs may have to write down what else is under way before it has room.
                if failure.errno == errno.ENOSPC and not full:
                    full = True
                    run("sync", "-f", disk)
                else:
                    error = failure.errno
        answers.append((amount, error, len(os.listxattr(path))))
        for name in os.listxattr(path):
            if name.startswith("user."):
                os.removexattr(path, name)
    for act in (lambda: os.setxattr(path, "user." + "X" * 300, b"fish"), lambda: os.getxattr(path, "user.none"),
                lambda: os.removexattr(path, "user.none")):
        with pytest.raises(OSError) as caught:
            act()
        answers.append(caught.value.errno)
    return answers


def test_limits_of_extended_attributes(maker, kind):
    bare, mount = maker.tree(kind), maker.mount("allow_other", kind=kind)
    assert limits(mount.path / "f", bare) == limits(bare / "f", bare)


def test_one_mount_at_two_places_and_no_second_daemon(maker):
    mount = maker.mount("allow_other", kind="ext4")
    other = maker.point()
    run("mount", "--bind", mount.path, other)
    try:
        (mount.path / "A").mkdir()
        (mount.path / "B").mkdir()
        (mount.path / "A" / "f").write_bytes(b"x")
        (mount.path / "A" / "f").rename(mount.path / "B" / "f")
        assert (other / "B" / "f").read_bytes() == b"x"
        (other / "B" / "f").rename(other / "A" / "f")
        assert (mount.path / "A" / "f").read_bytes() == b"x"
        (mount.path / "A" / "f").rename(mount.path / "B" / "f")
        with pytest.raises(OSError) as caught:
            (mount.path / "A" / "f").rename(other / "B" / "f")
        assert caught.value.errno == errno.EXDEV  # as between all bind mounts
    finally:
        run("umount", other)
    second = maker.mount(source=mount.source, start=False)
    status, output = second.refused()
    assert status != 0 and str(mount.source) in output, output
