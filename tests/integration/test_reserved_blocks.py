# SPDX-License-Identifier: LGPL-2.1-or-later
"""ext4 keeps a part of its blocks for root: a user gets none of them through the mount, nor by history."""
import errno
import mmap
import os
import time

import pytest

from mounts import NOBODY, as_user, run

SIZE = 48 << 20
RESERVED = 8 << 20
# Space for the daemon's own files: those of the store and their directories.
SLACK = 768 << 10


class Device:
    def __init__(self, base):
        self.root = base / f"reserved-{time.time_ns()}"
        self.image = self.root.with_suffix(".img")
        self.root.mkdir()
        with open(self.image, "wb") as stream:
            stream.truncate(SIZE)
        run("mkfs.ext4", "-q", "-F", "-I", "256", "-b", "4096", "-N", "2048", "-m", str(100 * RESERVED // SIZE + 1),
            self.image)
        run("mount", "-o", "loop", self.image, self.root)
        self.reserved = self.kept()
        assert self.reserved >= RESERVED

    def kept(self):
        device = os.statvfs(self.root)
        return (device.f_bfree - device.f_bavail) * device.f_frsize

    def free(self):
        run("sync", "-f", self.root)
        device = os.statvfs(self.root)
        return device.f_bfree * device.f_frsize, device.f_bavail * device.f_frsize


@pytest.fixture(name="device")
def fixture_device(base):
    device = Device(base)
    yield device
    run("umount", "-l", device.root)
    device.image.unlink()


@pytest.fixture(name="mount", params=["history", "none"])
def fixture_mount(maker, device, request):
    source = device.root / "tree"
    source.mkdir()
    mount = maker.mount("allow_other", *(["history=none"] if request.param == "none" else []), source=source)
    mount.expect("No space|all remaining history is protected|full|no room")
    mount.path.chmod(0o777)
    yield mount
    maker.close()
    maker.mounts.clear()


def until_full(work):
    """Calls work(n) until there is no space; how often."""
    for number in range(1_000_000):
        try:
            work(number)
        except OSError as error:
            assert error.errno == errno.ENOSPC, error
            return number
    raise AssertionError("it is never full")


def appended(path, size):
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    block = os.urandom(size)

    def work(_):
        os.write(fd, block)
    try:
        return until_full(work)
    finally:
        os.close(fd)


def check(device, mount):
    free, available = device.free()
    assert available == 0 or available < SLACK, available
    assert free > device.reserved - SLACK, (free, device.reserved)
    # Root has it.
    (mount.path / "roots").write_bytes(os.urandom(device.reserved // 2))
    run("sync", "-f", device.root)
    assert device.free()[0] < device.reserved - device.reserved // 3


def test_by_writing(device, mount):
    for size in (1 << 20, 4096):
        as_user(lambda: appended(mount.path / "f", size), *NOBODY)  # pylint: disable=W0640
    check(device, mount)


def test_by_allocating(device, mount):
    def work():
        fd = os.open(mount.path / "f", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            return [until_full(lambda n: os.posix_fallocate(fd, 0, (n + 1) * step))  # pylint: disable=W0640
                    for step in (1 << 20, 4096)]
        finally:
            os.close(fd)
    as_user(work, *NOBODY)
    check(device, mount)


def test_by_copying(device, mount):
    (mount.path / "from").write_bytes(os.urandom(1 << 20))

    def work():
        source = os.open(mount.path / "from", os.O_RDONLY)
        to = os.open(mount.path / "f", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            for size in (1 << 20, 4096):
                offset = os.fstat(to).st_size
                until_full(lambda n: os.copy_file_range(source, to, size, 0, offset + n * size))  # pylint: disable=W0640
        finally:
            os.close(source)
            os.close(to)
    as_user(work, *NOBODY)
    check(device, mount)


def test_by_making_directories_and_attributes(device, mount):
    def work():
        os.mkdir(mount.path / "d")

        def make(number):
            path = mount.path / "d" / f"{number}-{'x' * 200}"
            if number < 600:
                path.write_bytes(b"")
                os.setxattr(path, "user.x", os.urandom(3000))
            else:
                raise OSError(errno.ENOSPC, "enough")
        appended(mount.path / "f", 1 << 20)
        appended(mount.path / "f", 4096)
        until_full(make)
        with pytest.raises(OSError) as caught:
            os.setxattr(mount.path / "f", "user.x", b"x" * 3000)
        assert caught.value.errno == errno.ENOSPC
    as_user(work, *NOBODY)
    check(device, mount)


def test_by_history_alone(device, maker):
    """The file keeps its size; its former content fills the disk."""
    source = device.root / "tree"
    source.mkdir()
    mount = maker.mount("allow_other", source=source)
    mount.expect("No space|all remaining history is protected|full|no room")
    mount.path.chmod(0o777)

    def work():
        fd = os.open(mount.path / "f", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            for size in (1 << 20, 4096):
                os.pwrite(fd, os.urandom(1 << 20), 0)
                until_full(lambda n: os.pwrite(fd, os.urandom(size), 0))  # pylint: disable=W0640
        except OSError as error:
            assert error.errno == errno.ENOSPC
        finally:
            os.close(fd)
    as_user(work, *NOBODY)
    try:
        check(device, mount)
        # Nothing was lost: the file can be read, and is removed to free space.
        assert len((mount.path / "f").read_bytes()) == 1 << 20
    finally:
        maker.close()
        maker.mounts.clear()


def test_through_a_mapping(device, mount):
    """Bytes that were stored in a hole of a mapped file."""
    length = 24 << 20

    def work():
        fd = os.open(mount.path / "mapped", os.O_RDWR | os.O_CREAT, 0o644)
        os.ftruncate(fd, length)
        appended(mount.path / "f", 1 << 20)
        appended(mount.path / "f", 4096)
        mapping = mmap.mmap(fd, length)
        for offset in range(0, length, 4096):
            mapping[offset] = 1
        with pytest.raises(OSError):
            mapping.flush()
            os.fsync(fd)
        os.close(fd)
    as_user(work, *NOBODY)
    check(device, mount)


def test_old_history_is_removed_before_a_user_is_refused(device, maker):
    """onfull=prune: blocks kept for root do not count as free for the user who waits."""
    source = device.root / "tree"
    (source / ".wayback").mkdir(parents=True, mode=0o700)
    (source / ".wayback" / "wayback.conf").write_text("# nothing\n", encoding="ascii")
    mount = maker.mount("allow_other", "onfull=prune", source=source)
    mount.expect(".")
    mount.path.chmod(0o777)

    def work():
        fd = os.open(mount.path / "f", os.O_RDWR | os.O_CREAT, 0o644)
        for _ in range(2 * SIZE // (1 << 20)):
            assert os.pwrite(fd, os.urandom(1 << 20), 0) == 1 << 20
        os.close(fd)
    try:
        as_user(work, *NOBODY)
        assert device.free()[0] > device.reserved - SLACK - SIZE // 16  # the daemon has some for this purpose
    finally:
        maker.close()
        maker.mounts.clear()
