# SPDX-License-Identifier: LGPL-2.1-or-later
"""Content: every way to read and change it does what the bare file system does."""
import errno
import fcntl
import mmap
import os
import random
import subprocess
import time
from pathlib import Path

import pytest

from mounts import LIMIT, epoch, moment
from operations import COLLAPSE, INSERT, KEEP_SIZE, PUNCH, ZERO, fallocate


def opened(path, flags=os.O_RDWR | os.O_CREAT, mode=0o644):
    return os.open(path, flags, mode)


def supports(any_mount, operation):
    """Whether the file system below can do it, tried on a file outside of the mount's view."""
    path = any_mount.store() / "probe"
    fd = opened(path)
    try:
        os.write(fd, b"p" * 65536)
        operation(fd)
        return True
    except OSError as error:
        assert error.errno in (errno.EOPNOTSUPP, errno.EINVAL), error
        return False
    finally:
        os.close(fd)
        os.unlink(path)


def test_written_bytes_are_read_back(any_mount):
    path = any_mount.path / "f"
    data = random.Random(1).randbytes(3_000_000)
    path.write_bytes(data)
    assert path.read_bytes() == data
    with open(path, "r+b", buffering=0) as stream:
        for offset, length in ((0, 1), (4095, 2), (1_000_000, 300_000), (2_999_999, 10)):
            part = os.urandom(length)
            os.pwrite(stream.fileno(), part, offset)
            data = data[:offset] + part + data[offset + length:]
    assert path.read_bytes() == data
    any_mount.remount()
    assert path.read_bytes() == data
    assert (any_mount.source / "f").read_bytes() == data


def test_append_writes_at_the_current_end(any_mount):
    path = any_mount.path / "log"
    a, b = (opened(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT) for _ in range(2))
    for i in range(50):
        os.write(a, b"a%02d\n" % i)
        os.write(b, b"b%02d\n" % i)
    os.close(a)
    os.close(b)
    assert path.read_bytes() == b"".join(b"a%02d\nb%02d\n" % (i, i) for i in range(50))


def test_truncate_cuts_and_grows_with_zeros(any_mount):
    path = any_mount.path / "f"
    path.write_bytes(b"0123456789" * 1000)
    os.truncate(path, 15)
    os.truncate(path, 5000)
    assert path.read_bytes() == b"012345678901234" + bytes(4985)
    fd = opened(path, os.O_RDWR | os.O_TRUNC)
    assert os.fstat(fd).st_size == 0
    os.ftruncate(fd, 100)
    assert os.pread(fd, 200, 0) == bytes(100)
    os.close(fd)


def test_a_file_without_a_name_still_works(any_mount):
    path = any_mount.path / "f"
    path.write_bytes(b"before")
    fd = opened(path, os.O_RDWR)
    os.unlink(path)
    os.pwrite(fd, b"BE", 0)
    os.fchmod(fd, 0o600)
    os.ftruncate(fd, 5)
    status = os.fstat(fd)
    assert (os.pread(fd, 10, 0), status.st_nlink, status.st_mode & 0o777) == (b"BEfor", 0, 0o600)
    path.write_bytes(b"another")
    assert os.pread(fd, 10, 0) == b"BEfor"
    os.close(fd)
    assert path.read_bytes() == b"another"


def test_a_temporary_file_has_no_name_until_it_is_linked(any_mount):
    root = any_mount.path
    fd = os.open(root, os.O_TMPFILE | os.O_RDWR, 0o640)
    os.write(fd, b"made whole")
    assert os.listdir(root) == [] and os.fstat(fd).st_nlink == 0
    any_mount.tool("ln", "-L", f"/proc/{os.getpid()}/fd/{fd}", root / "f")
    os.close(fd)
    assert (root / "f").read_bytes() == b"made whole"
    assert (root / "f").stat().st_nlink == 1 and (root / "f").stat().st_mode & 0o777 == 0o640
    fd = os.open(root, os.O_TMPFILE | os.O_RDWR | os.O_EXCL, 0o600)
    os.write(fd, b"never seen")
    os.close(fd)
    assert os.listdir(root) == ["f"]


def test_direct_io(any_mount):
    path = any_mount.path / "f"
    try:
        fd = opened(path, os.O_RDWR | os.O_CREAT | os.O_DIRECT)
    except OSError as error:
        pytest.fail(f"O_DIRECT: {error}")
    with mmap.mmap(-1, 65536) as area:
        area[:] = os.urandom(65536)
        assert os.pwritev(fd, [area], 0) == 65536
        first = bytes(area)
        area[:4096] = b"d" * 4096
        os.pwritev(fd, [memoryview(area)[:4096]], 8192)
        os.preadv(fd, [area], 0)
        assert bytes(area) == first[:8192] + b"d" * 4096 + first[12288:]
    os.close(fd)
    assert path.read_bytes() == first[:8192] + b"d" * 4096 + first[12288:]


@pytest.mark.parametrize("flag", [os.O_SYNC, os.O_DSYNC])
def test_synchronous_writes(any_mount, flag):
    fd = opened(any_mount.path / "f", os.O_WRONLY | os.O_CREAT | flag)
    for i in range(10):
        os.pwrite(fd, b"%d" % i, i % 3)
    os.close(fd)
    assert (any_mount.path / "f").read_bytes() == b"978"


def test_fsync_of_files_and_directories(any_mount):
    root = any_mount.path
    (root / "d").mkdir()
    fd = opened(root / "d" / "f")
    os.write(fd, b"x")
    os.fsync(fd)
    os.fdatasync(fd)
    os.close(fd)
    for path in (root, root / "d"):
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        os.fsync(fd)
        os.close(fd)
    any_mount.tool("sync", "-f", root / "d" / "f")


MODES = {"keep size": (KEEP_SIZE, 60_000, 30_000), "grow": (0, 60_000, 30_000),
         "punch": (PUNCH | KEEP_SIZE, 5000, 20_000), "zero": (ZERO, 5000, 20_000),
         "zero and grow": (ZERO, 60_000, 30_000), "zero, keep size": (ZERO | KEEP_SIZE, 60_000, 9000),
         "collapse": (COLLAPSE, 8192, 16384), "insert": (INSERT, 8192, 16384)}


@pytest.mark.parametrize("name", MODES)
def test_fallocate_and_its_past(any_mount, maker, kind, name):
    mode, offset, length = MODES[name]
    data = random.Random(2).randbytes(65536)
    # The kernel passes collapse and insert to no FUSE file system.
    refused = mode in (COLLAPSE, INSERT)
    if refused or not supports(any_mount, lambda fd: fallocate(fd, mode, offset, length)):
        (any_mount.path / "f").write_bytes(data)
        fd = opened(any_mount.path / "f", os.O_RDWR)
        with pytest.raises(OSError) as caught:
            fallocate(fd, mode, offset, length)
        os.close(fd)
        assert caught.value.errno in (errno.EOPNOTSUPP, errno.EINVAL)
        assert (any_mount.path / "f").read_bytes() == data
        return
    bare = maker.tree(kind)
    for root in (bare, any_mount.path):
        (root / "f").write_bytes(data)
        before = moment()
        fd = opened(root / "f", os.O_RDWR)
        fallocate(fd, mode, offset, length)
        os.close(fd)
    assert (any_mount.path / "f").read_bytes() == (bare / "f").read_bytes()
    assert (any_mount.path / f"f@{epoch(before)}").read_bytes() == data


def test_seek_finds_data_and_holes(any_mount, maker, kind):
    bare = maker.tree(kind)
    answers = []
    for root in (bare, any_mount.path):
        fd = opened(root / "f")
        os.pwrite(fd, b"d" * 65536, 1 << 20)
        os.ftruncate(fd, 4 << 20)
        os.fsync(fd)
        data = os.lseek(fd, 0, os.SEEK_DATA)
        hole = os.lseek(fd, data, os.SEEK_HOLE)
        with pytest.raises(OSError) as caught:
            os.lseek(fd, 2 << 20, os.SEEK_DATA)
        answers.append((data, hole, os.lseek(fd, 0, os.SEEK_HOLE), caught.value.errno))
        os.close(fd)
    assert answers[0] == answers[1]
    assert answers[1][3] == errno.ENXIO


def test_a_sparse_file_remains_sparse(any_mount):
    path = any_mount.path / "f"
    fd = opened(path)
    os.pwrite(fd, b"end", 1 << 30)
    os.close(fd)
    status = (any_mount.source / "f").stat()
    assert status.st_size == (1 << 30) + 3 and status.st_blocks < 1000


def test_copy_file_range(any_mount):
    root = any_mount.path
    data = os.urandom(300_000)
    (root / "a").write_bytes(data)
    (root / "b").write_bytes(b"b" * 100_000)
    before = moment()
    with open(root / "a", "rb") as source, open(root / "b", "r+b", buffering=0) as target:
        copied = 0
        while copied < 200_000:
            copied += os.copy_file_range(source.fileno(), target.fileno(), 200_000 - copied,
                                         1000 + copied, 50_000 + copied)
    assert (root / "b").read_bytes() == b"b" * 50_000 + data[1000:201_000]
    assert (root / f"b@{epoch(before)}").read_bytes() == b"b" * 100_000


def test_a_shared_mapping_is_the_file_and_has_a_past(any_mount):
    path = any_mount.path / "f"
    data = os.urandom(40_000)
    path.write_bytes(data)
    before = moment()
    fd = opened(path, os.O_RDWR)
    with mmap.mmap(fd, 40_000) as area:
        area[10_000:10_004] = b"mmap"
        assert os.pread(fd, 4, 10_000) == b"mmap"
        os.pwrite(fd, b"file", 20_000)
        assert area[20_000:20_004] == b"file"
        area.flush()
    os.close(fd)
    now = data[:10_000] + b"mmap" + data[10_004:20_000] + b"file" + data[20_004:]
    assert path.read_bytes() == now and (any_mount.source / "f").read_bytes() == now
    assert (any_mount.path / f"f@{epoch(before)}").read_bytes() == data


def test_locks_exclude(any_mount):
    path = any_mount.path / "f"
    path.write_bytes(b"x")
    with open(path, "r+b") as a, open(path, "r+b") as b:
        fcntl.flock(a, fcntl.LOCK_EX)
        with pytest.raises(BlockingIOError):
            fcntl.flock(b, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.lockf(a, fcntl.LOCK_EX)
    child = any_mount.tool("flock", "-n", path, "true")
    assert child.returncode == 0


def test_execution_and_text_busy(any_mount):
    program = any_mount.path / "program"
    any_mount.tool("cp", "/bin/sleep", program)
    assert any_mount.tool(str(program), "0").returncode == 0
    before = program.read_bytes()
    with subprocess.Popen([program, "60"]) as process:
        wait_for_exec(process.pid, "program")
        for flags in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR):
            with pytest.raises(OSError) as caught:
                os.open(program, flags | os.O_TRUNC)
            assert caught.value.errno == errno.ETXTBSY
            assert program.read_bytes() == before and (any_mount.source / "program").read_bytes() == before
        process.kill()
    os.close(os.open(program, os.O_RDONLY | os.O_TRUNC))
    assert program.read_bytes() == b""


def wait_for_exec(pid, name):
    deadline = time.monotonic() + LIMIT
    while Path(f"/proc/{pid}/comm").read_text(encoding="ascii").strip() != name:
        assert time.monotonic() < deadline
        time.sleep(.001)


def test_statfs_reports_the_file_system_below(any_mount):
    above, below = os.statvfs(any_mount.path), os.statvfs(any_mount.source)
    assert (above.f_bsize, above.f_blocks, above.f_namemax) == \
        (below.f_bsize, below.f_blocks, below.f_namemax)


def test_many_writers_at_once_lose_nothing(any_mount):
    """Each process writes its own blocks of one file; all of them are there at the end."""
    path = any_mount.path / "f"
    path.write_bytes(bytes(8 * 64 * 512))
    children = []
    for worker in range(8):
        pid = os.fork()
        if pid == 0:
            try:
                fd = opened(path, os.O_RDWR)
                for block in range(64):
                    os.pwrite(fd, bytes([worker + 1]) * 512, (block * 8 + worker) * 512)
                os.close(fd)
            finally:
                os._exit(0)
        children.append(pid)
    for pid in children:
        os.waitpid(pid, 0)
    expected = b"".join(bytes([worker + 1]) * 512 for worker in range(8)) * 64
    assert path.read_bytes() == expected
