# SPDX-License-Identifier: LGPL-2.1-or-later
"""A store on another device: the cost of deleting there, and the state after one of the two devices fails."""
import errno
import fcntl
import os
import random
import shutil
import struct
import time

import pytest

from mounts import epoch, moment, read_by, run, sync_tree
from treestate import differences, state_of

EXT4_IOC_SHUTDOWN = 0x8004587D
NO_LOG_FLUSH = 2
SIZE = 100_000


def written_by(pid):
    with open(f"/proc/{pid}/io", encoding="ascii") as stream:
        return next(int(line.split()[1]) for line in stream if line.startswith("wchar"))


class Device:
    """A file system of its own that can fail: nothing more reaches it, or is read from it."""

    def __init__(self, maker):
        self.file_systems = maker.file_systems
        self.root = maker.file_systems.make("ext4", f"device-{time.time_ns()}", 48, fails=True)
        self.tree = self.root / "tree"
        self.tree.mkdir(mode=0o755)

    def fail(self):
        sync_tree(self.root)
        fd = os.open(self.root, os.O_RDONLY)
        fcntl.ioctl(fd, EXT4_IOC_SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
        os.close(fd)

    def recover(self):
        run("umount", self.root)
        run("mount", "-o", "loop", self.root.with_name(self.root.name + ".img"), self.root)


@pytest.fixture(name="device")
def fixture_device(maker):
    device = Device(maker)
    yield device
    maker.close()
    maker.mounts.clear()
    device.file_systems.unmake(device.root)


def content(seed):
    return random.Random(seed).randbytes(SIZE)


def make(mount):
    """Some files, each overwritten; the moment before that, and the tree then."""
    (mount.path / "d").mkdir()
    for name in ("f", "g", "d/x", "gone"):
        (mount.path / name).write_bytes(content(name))
    when, state = moment(), state_of(mount.path)
    for name in ("f", "d/x"):
        with open(mount.path / name, "r+b", buffering=0) as stream:
            stream.write(content(name + "again"))
    (mount.path / "gone").unlink()
    return when, state


def error_of(function):
    try:
        function()
    except OSError as error:
        return error.errno
    return 0


def overwrite(path):
    with open(path, "r+b", buffering=0) as stream:
        stream.write(b"x" * SIZE)


def test_deleting_and_renaming_move_no_bytes(maker):
    store = maker.tree("xfs")
    mount = maker.mount("allow_other", f"store={store}")
    size = 64 << 20
    for name in ("deleted", "replaced", "other"):
        fd = os.open(mount.path / name, os.O_RDWR | os.O_CREAT, 0o644)
        os.posix_fallocate(fd, 0, size)
        os.pwrite(fd, name.encode(), size // 2)
        os.close(fd)
    when, pid = moment(), mount.process.pid
    free = shutil.disk_usage(store).free
    for function in (lambda: (mount.path / "deleted").unlink(),
                     lambda: os.rename(mount.path / "other", mount.path / "replaced"),
                     lambda: os.rename(mount.path / "replaced", mount.path / "moved")):
        read, written = read_by(pid), written_by(pid)
        function()
        # What the daemon does in the background counts as well: some tables of the store.
        assert written_by(pid) - written < size // 64 and read_by(pid) - read < size // 64
    mount.remount()  # by then, anything that might be done later is done
    assert free - shutil.disk_usage(store).free < size // 4
    for name in ("deleted", "replaced", "other"):
        with open(mount.at(when, name), "rb") as stream:
            assert os.fstat(stream.fileno()).st_size == size
            stream.seek(size // 2)
            assert stream.read(len(name)) == name.encode()


def test_a_store_that_fails_leaves_the_present(maker, device):
    mount = maker.mount("allow_other", f"store={device.tree}")
    mount.expect(".")
    when, state = make(mount)
    now = state_of(mount.path)
    mount.tool("sync", mount.path / "f")
    mount.remount()  # nothing of it is in a cache
    device.fail()
    assert differences(now, state_of(mount.path)) == []
    for change in (lambda: overwrite(mount.path / "f"), (mount.path / "g").unlink, (mount.path / "new").touch,
                   lambda: os.chmod(mount.path / "g", 0o600), lambda: os.rename(mount.path / "g", mount.path / "h")):
        assert error_of(change) in (errno.EIO, errno.EROFS)
    assert differences(now, state_of(mount.path)) == []
    assert error_of(lambda: (mount.at(when) / "f").read_bytes()) == errno.EIO  # and never something else
    mount.kill(check=False)
    device.recover()
    mount.start()
    assert differences(now, state_of(mount.path)) == []
    assert differences(state, state_of(mount.at(when))) == []
    overwrite(mount.path / "f")


def test_a_store_that_fails_refuses_a_change_that_leaves_no_gap(maker, device):
    """onfull=continue needs the store to note that something is missing: if even that fails, the change is refused."""
    mount = maker.mount("allow_other", f"store={device.tree}", "onfull=continue")
    mount.expect(".")
    when, state = make(mount)
    mount.remount()
    now = state_of(mount.path)
    device.fail()
    assert differences(now, state_of(mount.path)) == []
    assert error_of(lambda: overwrite(mount.path / "f")) in (errno.EIO, errno.EROFS)
    mount.kill(check=False)
    device.recover()
    mount.start()
    assert differences(state, state_of(mount.at(when))) == []


def test_a_tree_that_fails_leaves_the_store(maker, device):
    store = maker.tree("xfs")
    mount = maker.mount("allow_other", f"store={store}", source=device.tree)
    mount.expect(".")
    when, state = make(mount)
    data = {name: content(name) for name in ("f", "d/x")}
    mount.remount()
    device.fail()
    # The store can be verified, every record and every byte.
    logs = mount.logs()
    assert len(logs) > 3
    mount.check_store()
    # A read through the mount is right, or an error: the old content is in the store, the current one is on SRC.
    for name, expected in data.items():
        try:
            assert mount.at(when, name).read_bytes() == expected
        except OSError as error:
            assert error.errno == errno.EIO
    assert error_of(lambda: (mount.path / "new").touch()) in (errno.EIO, errno.EROFS)
    mount.kill(check=False)
    device.recover()
    mount.start()
    assert differences(state, state_of(mount.at(when))) == []
