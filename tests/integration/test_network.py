# SPDX-License-Identifier: LGPL-2.1-or-later
"""SRC or the store on a file system that is not of this machine. Stand-ins if the kernel has no client of any network
file system: sshfs, whose server is a process beside it, and bindfs."""
import errno
import os
import random
import shutil
import socket
import subprocess
import time
from pathlib import Path

import pytest

from mounts import LIMIT, epoch, moment, mounted_at, run
from treestate import differences, state_of

SFTP = Path("/usr/lib/openssh/sftp-server")
MISSING = [name for name in ("sshfs", "bindfs") if not shutil.which(name)] + [str(SFTP)] * (not SFTP.exists())

pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)} "
                                "(scripts/install-deps --tests)")


class Remote:
    """A directory, and the view that a client gives of it."""

    def __init__(self, maker, program):
        self.low, self.path = maker.tree(), maker.point()
        self.processes = []
        if program == "bindfs":
            run("bindfs", self.low, self.path)
            return
        ours, theirs = socket.socketpair()
        for stream, command in ((theirs, [SFTP]), (ours, ["sshfs", f":{self.low}", self.path, "-f", "-o", "passive"])):
            self.processes.append(subprocess.Popen(command, stdin=stream, stdout=stream))
            stream.close()
        deadline = time.monotonic() + LIMIT
        while not mounted_at(self.path):
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def close(self):
        run("umount", "-l", self.path, check=False)
        for process in reversed(self.processes):
            process.terminate()
            process.wait(timeout=LIMIT)


@pytest.fixture(name="remote", params=["sshfs", "bindfs"])
def fixture_remote(request, maker):
    remote = Remote(maker, request.param)
    yield remote
    maker.close()
    maker.mounts.clear()
    remote.close()


def content(seed):
    return random.Random(seed).randbytes(100_000)


def change(mount):
    """Entries of every kind; (moment, state) before and after."""
    (mount.path / "d").mkdir()
    for name in ("f", "g", "d/x"):
        (mount.path / name).write_bytes(content(name))
    os.setxattr(mount.path / "f", "user.a", b"one")
    seen = [(moment(), state_of(mount.path))]
    moment()
    with open(mount.path / "f", "r+b") as stream:
        stream.write(b"other")
    os.removexattr(mount.path / "f", "user.a")
    (mount.path / "g").unlink()
    os.rename(mount.path / "d", mount.path / "e")
    mount.tool("vsnap", "create", "named", mount.path)
    seen.append((moment(), state_of(mount.path)))
    moment()
    return seen


def check(mount, seen):
    for when, state in seen:
        assert differences(state, state_of(mount.at(when))) == []


def test_a_store_there(maker, remote):
    """Recorded, read, killed, packed and checked, as on a disk."""
    mount = maker.mount("allow_other", f"store={remote.path}/store")
    seen = change(mount)
    check(mount, seen)
    mount.kill()
    mount.start()
    check(mount, seen)
    mount.tool("vcompact", mount.path)
    check(mount, seen)
    mount.stop()
    mount.tool("vfsck", "--store", remote.path / "store", mount.source)
    # A second writer is refused there, too.
    mount.start()
    status, output = maker.mount("allow_other", f"store={remote.path}/store", source=mount.source, start=False).refused()
    assert status != 0 and "in use" in output


def test_a_store_that_is_moved_there_and_back(maker, remote):
    mount = maker.mount("allow_other")
    seen = change(mount)
    mount.stop()
    for to in (remote.path / "store", mount.source / ".wayback"):
        mount.tool("vstore", "move", mount.source, to)
        mount.tool("vfsck", mount.source)
        mount.start()
        check(mount, seen)
        mount.stop()


def test_a_store_whose_server_is_gone(maker, remote):
    mount = maker.mount("allow_other", f"store={remote.path}/store")
    mount.expect(".")
    (mount.path / "f").write_bytes(content("f"))
    when = moment()
    with open(mount.path / "f", "r+b") as stream:
        stream.write(b"other")
    now = (mount.path / "f").read_bytes()
    if not remote.processes:
        pytest.skip("bindfs has no server")
    mount.remount()
    remote.processes[0].kill()
    assert (mount.path / "f").read_bytes() == now
    with pytest.raises(OSError) as caught:
        with open(mount.path / "f", "r+b", buffering=0) as stream:
            stream.write(b"again")
    assert caught.value.errno in (errno.EIO, errno.ENOTCONN, errno.ECONNABORTED)
    with pytest.raises(OSError):
        (mount.path / f"f@{epoch(when)}").read_bytes()
    mount.kill(check=False)


def test_a_tree_there_is_refused_if_files_cannot_be_recognized(maker, remote):
    """Neither births nor handles that last: a file looked at again would be another, with the present for its past."""
    mount = maker.mount("allow_other", source=remote.path, start=False)
    for options in ((), (f"store={maker.tree()}",)):
        status, output = mount.refused(*options)
        assert status != 0 and "identified reliably" in output
    assert os.listdir(remote.low) == []
    mount.start("history=none")
    with open(mount.path / "f", "wb", buffering=0) as stream:
        stream.write(b"x")
        os.fsync(stream.fileno())  # sshfs writes later, and a file closed here is closed there later
    assert (remote.low / "f").read_bytes() == b"x"
