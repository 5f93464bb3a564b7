# SPDX-License-Identifier: LGPL-2.1-or-later
"""Bounds: descriptors and memory do not grow with the tree, removal does not with the size."""
import os
import resource

from mounts import QUICK, drop_caches, epoch, moment, read_by

FILES = 20_000 if QUICK else 40_000
PER_DIRECTORY = 500


def resident(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as stream:
        return next(int(line.split()[1]) for line in stream if line.startswith("VmRSS"))


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def populate(root, count):
    for number in range(count // PER_DIRECTORY):
        directory = root / f"d{number:04}"
        directory.mkdir()
        for i in range(PER_DIRECTORY):
            os.close(os.open(directory / f"f{i}", os.O_CREAT | os.O_WRONLY))


def walk(root):
    count = 0
    for directory, _, files in os.walk(root):
        for name in files:
            os.stat(os.path.join(directory, name))
            count += 1
    return count


def test_walking_many_files_needs_neither_descriptors_nor_memory(maker):
    source = maker.tree("xfs")
    populate(source, FILES)
    mount = maker.mount(source=source, kind="xfs", start=False)
    mount.limits = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
    mount.start()
    pid = mount.process.pid
    sizes, most = [], 0
    for _ in range(4):
        assert walk(mount.path) == FILES
        sizes.append(resident(pid))
        most = max(most, descriptors(pid))
    assert most < 1000
    # Each file the kernel remembers costs a node; walking again costs nothing more. A test that drops the kernel's
    # caches meanwhile makes it forget: one walk may so find less than the next, but a leak grows with each.
    if not mount.programs.sanitized:
        assert min(after - before for before, after in zip(sizes, sizes[1:])) < max(1024, FILES * 20 // 1024), sizes
        assert sizes[-1] < 40 * 1024 + FILES * 0.4, f"{sizes[-1]} KiB for {FILES} files"
    with open(mount.path / "d0000" / "f0", "wb") as stream:
        stream.write(b"it still works")
    drop_caches(2)
    assert descriptors(pid) < 1000


def test_many_open_files_are_many_open_files(maker):
    """A program may have as many open as its limit; the daemon answers EMFILE rather than die."""
    mount = maker.mount(start=False)
    mount.limits = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
    mount.start()
    fds = []
    try:
        for i in range(600):
            fds.append(os.open(mount.path / f"f{i}", os.O_CREAT | os.O_RDWR))
            os.write(fds[-1], b"%d" % i)
        assert all(os.pread(fd, 10, 0) == b"%d" % i for i, fd in enumerate(fds))
    finally:
        for fd in fds:
            os.close(fd)
    assert walk(mount.path) == 600


def test_open_logs_are_bounded(maker):
    """A log of its own for each of more files than may be open: a fourth of the limit above 1024, and 128."""
    files, limit = 700, 2048
    mount = maker.mount(start=False)
    mount.limits = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    mount.start()
    pid = mount.process.pid
    paths = [mount.path / f"f{i}" for i in range(files)]
    for path in paths:
        path.write_bytes(b"old " + path.name.encode())
    few = descriptors(pid)
    when = moment()
    for text in (b"new ", b"also"):
        for path in paths:
            with open(path, "r+b") as stream:
                stream.write(text)
    # Beside them some are open for a moment: those of closed files, and of logs that are synced.
    assert descriptors(pid) <= few + 128 + (limit - 1024) // 4 + 150
    for path in paths[::50]:
        assert path.read_bytes() == b"also" + path.name.encode()
        assert (mount.path / f"{path.name}@~1").read_bytes() == b"new " + path.name.encode()
        assert (mount.path / f"{path.name}@{epoch(when)}").read_bytes() == b"old " + path.name.encode()


def test_a_long_history_of_one_file_needs_no_memory(mount):
    path = mount.path / "f"
    fd = os.open(path, os.O_CREAT | os.O_RDWR)
    pid = mount.process.pid
    count = 3000 if QUICK else 20_000
    half = 0
    for i in range(count):
        # Half of them through a descriptor of its own, so that there are many versions, and many changes of one handle.
        own = os.open(path, os.O_RDWR) if i % 2 else -1
        os.pwrite(own if i % 2 else fd, b"%08d" % i, (i % 50) * 8)
        if i % 2:
            os.close(own)
        if i == count // 2:
            when, half = moment(), resident(pid)
    os.close(fd)
    if not mount.programs.sanitized:
        assert resident(pid) - half < 4 * 1024
    old = (mount.path / f"f@{epoch(when)}").read_bytes()
    assert max(old[i:i + 8] for i in range(0, 400, 8)) == b"%08d" % (count // 2)
    before = {i % 50: b"%08d" % i for i in range(count - 1)}
    assert (mount.path / "f@~1").read_bytes() == b"".join(before[i] for i in range(50)) != path.read_bytes()
    for options in ((), ("--operations",)):
        rows = mount.tool("vstat", path, "-l", "5", *options).stdout.splitlines()[1:6]
        assert len(rows) == 5 and all("  write  " in row for row in rows)


def test_removal_and_return_of_a_big_file_do_not_copy(any_mount):
    path = any_mount.path / "big"
    fd = os.open(path, os.O_CREAT | os.O_RDWR)
    size = (256 << 20) if QUICK else (1 << 30)
    for offset in range(0, size, 64 << 20):
        os.pwrite(fd, os.urandom(65536), offset)
    os.ftruncate(fd, size)
    os.fsync(fd)
    data = os.pread(fd, 1000, 64 << 20)
    os.close(fd)
    inode = path.stat().st_ino
    used = os.statvfs(any_mount.source).f_bavail
    was_read, when = read_by(any_mount.process.pid), moment()
    os.unlink(path)
    any_mount.tool("vrevert", path, "--time", epoch(when))
    assert read_by(any_mount.process.pid) - was_read < 4 << 20
    block = os.statvfs(any_mount.source).f_frsize
    assert (used - os.statvfs(any_mount.source).f_bavail) * block < 4 << 20
    assert path.stat().st_ino == inode and path.stat().st_size == size
    with open(path, "rb") as stream:
        assert os.pread(stream.fileno(), 1000, 64 << 20) == data
