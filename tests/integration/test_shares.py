# SPDX-License-Identifier: LGPL-2.1-or-later
"""One user takes resources that the daemon has for all: descriptors, memory for listings, time. Others continue
undisturbed."""
import contextlib
import errno
import fcntl
import mmap
import os
import re
import resource
import struct
import threading
import time
from pathlib import Path

import pytest

from mounts import LIMIT, NOBODY, SECOND, as_user, epoch, is_sanitized, moment
from preload import COUNTING, preloaded

DESCRIPTORS = 1024  # of the daemon
OFTEN = 3000  # more than it could have open
NAMES = 5000


def open_all(paths, flags=os.O_RDONLY):
    """Opens one after the other: the descriptors, and the error that ended it or None."""
    opened = []
    for path in paths:
        try:
            opened.append(os.open(path, flags))
        except OSError as error:
            return opened, error.errno
    return opened, None


def held_by(user, paths, then, flags=os.O_RDONLY):
    """As `user`, opens `paths`; then() is called by the test while they are open. How many, the error, and then()'s
    result."""
    opened_all, over, found = threading.Event(), threading.Event(), []

    def work():
        opened, error = open_all(paths, flags)
        found.extend((len(opened), error))
        opened_all.set()
        over.wait()
        for fd in opened:
            os.close(fd)

    holder = threading.Thread(target=as_user, args=(work, *user))
    holder.start()
    opened_all.wait()
    try:
        return (*found, then())
    finally:
        over.set()
        holder.join()


def descriptors(mount):
    return len(os.listdir(f"/proc/{mount.process.pid}/fd"))


def resident(mount):
    status = Path(f"/proc/{mount.process.pid}/status").read_text(encoding="ascii")
    return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) << 10


@pytest.fixture(name="small", params=["ext4", "xfs", "btrfs", "tmpfs"])
def fixture_small(maker, request):
    mount = maker.mount("allow_other", kind=request.param, start=False)
    mount.limits = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
    mount.start()
    os.chmod(mount.path, 0o777)
    yield mount
    mount.stop()


def use(mount, name):
    """The work of any other user: opens, reads, writes, makes, lists, removes."""
    path = mount.path / name
    path.write_text("one")
    path.write_text("two")
    when = moment()
    path.write_text("three")
    assert path.read_text() == "three"
    assert Path(mount.at(when, name)).read_text() == "two"
    assert name in os.listdir(mount.path)
    path.unlink()


def test_one_file_opened_often(small):
    """Opens in one mode share a descriptor, for files, directories, and files and directories of the past."""
    file, directory = small.path / "file", small.path / "directory"
    file.write_text("before")
    directory.mkdir()
    (directory / "entry").write_text("")
    file.chmod(0o666)
    when = moment()
    file.write_text("after")
    (directory / "other").write_text("")
    before = descriptors(small)
    paths = {file: os.O_RDWR, directory: os.O_RDONLY, small.at(when, "file"): os.O_RDONLY,
             small.at(when, "directory"): os.O_RDONLY}
    for path, flags in paths.items():
        count, error, during = held_by(SECOND, [path] * OFTEN, lambda: descriptors(small), flags)
        assert (count, error) == (OFTEN, None), path
        assert during < before + 50, path
    use(small, "mine")


def test_many_files_opened(small):
    """A user has a share, beyond which opens fail with EMFILE; others have theirs, and root and the store continue."""
    (small.path / "many").mkdir()
    for i in range(DESCRIPTORS):
        (small.path / f"many/{i}").write_text("")
    paths = [small.path / f"many/{i}" for i in range(DESCRIPTORS)]

    def others():
        second = held_by(NOBODY, paths, lambda: use(small, "of-root"))
        as_user(lambda: use(small, "of-another"), 4321, 4321)
        return second

    count, error, (second, second_error, _) = held_by(SECOND, paths, others)
    assert (error, second_error) == (errno.EMFILE, errno.EMFILE)
    assert 150 < count < DESCRIPTORS / 2 and second > 50
    assert held_by(SECOND, paths, lambda: None)[0] >= count, "a released share is available again"


def test_past_of_many_files_opened(small):
    """The same for files of the past, and for the present at ever other moments of it."""
    files = [f"{i}" for i in range(DESCRIPTORS)]
    for name in files:
        (small.path / name).write_text("before")
    when = moment()
    for name in files:
        (small.path / name).write_text("after")
    paths = [small.at(when, name) for name in files]
    count, error, _ = held_by(SECOND, paths, lambda: use(small, "of-root"))
    assert error == errno.EMFILE and 50 < count < DESCRIPTORS / 4
    paths = [small.at(when - i, "0") for i in range(DESCRIPTORS)]
    count, error, _ = held_by(SECOND, paths, lambda: use(small, "of-root"))
    assert error == errno.EMFILE and 50 < count < DESCRIPTORS / 4


def test_creating_beyond_the_share(small):
    """If a user may open no more, nothing is made."""
    def work():
        opened = []
        with contextlib.ExitStack() as stack:
            with pytest.raises(OSError) as refused:
                while True:
                    name = small.path / f"new-{len(opened)}"
                    opened.append(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
                    stack.callback(os.close, opened[-1])
            assert refused.value.errno == errno.EMFILE
            assert not name.exists()
            return len(opened)

    assert 150 < as_user(work, *SECOND) < DESCRIPTORS / 2


def test_one_listing_for_all(maker):
    """A directory of the past that is opened often is listed once."""
    mount = maker.mount("allow_other")
    (mount.path / "d").mkdir()
    for i in range(NAMES):
        (mount.path / f"d/{i:0100}").write_text("")
    when = moment()
    (mount.path / "d/new").write_text("")
    path = mount.at(when, "d")
    assert len(os.listdir(path)) == NAMES
    before = resident(mount)

    def during():
        return resident(mount)

    count, error, after = held_by(SECOND, [path] * 300, during)
    assert (count, error) == (300, None)
    assert after - before < 30 << 20 or is_sanitized(mount.programs.directory / "wayback")
    # Other moments are other listings, and a user may have so much of them.
    paths = [mount.at(when - i, "d") for i in range(600)]
    count, error, after = held_by(SECOND, paths, during)
    assert error == errno.ENOMEM and 20 < count < 600
    assert after - before < 300 << 20 or is_sanitized(mount.programs.directory / "wayback")
    # A user without one gets one.
    assert len(as_user(lambda: os.listdir(path), *NOBODY)) == NAMES


# ---- limits of shared descriptors ---------------------------------------------------------------------

def test_directories_read_side_by_side(any_mount):
    """Each opendir(3) has its own position, whatever others do meanwhile; rewinddir(3) sees new entries."""
    directory = any_mount.path / "d"
    directory.mkdir()
    names = {f"{i:0200}" for i in range(1000)}
    for name in names:
        (directory / name).write_text("")
    scans = [os.scandir(directory) for _ in range(5)]
    seen = [[] for _ in scans]
    for turn in range(len(names)):
        for scan, found in zip(scans, seen):
            found.append(next(scan).name)
        if turn == 500:
            assert set(os.listdir(directory)) == names
    assert all(sorted(found) == sorted(names) for found in seen)
    (directory / "new").write_text("")
    assert set(os.listdir(directory)) == names | {"new"}
    for scan in scans:
        scan.close()


def test_modes_do_not_mix(any_mount):
    """Reading, writing and appending descriptors, and those of a file that lost its mode and its name meanwhile."""
    path = any_mount.path / "file"
    path.write_text("0123456789")
    reading = [os.open(path, os.O_RDONLY) for _ in range(3)]
    writing = [os.open(path, os.O_WRONLY) for _ in range(3)]
    appending = os.open(path, os.O_WRONLY | os.O_APPEND)
    direct = os.open(path, os.O_RDWR | os.O_SYNC)
    path.chmod(0)
    os.unlink(path)
    assert os.write(appending, b"a") == 1 and os.write(writing[0], b"w") == 1 and os.write(writing[1], b"W") == 1
    assert os.pwrite(direct, b"d", 5) == 1
    for fd in reading:
        with pytest.raises(OSError):
            os.write(fd, b"x")
    os.close(reading.pop())
    os.close(writing.pop())
    assert os.read(reading[0], 20) == os.read(reading[1], 20) == b"W1234d6789a"
    os.ftruncate(writing[0], 3)
    assert os.pread(reading[0], 20, 0) == b"W12"
    for fd in reading + writing + [appending, direct]:
        os.close(fd)


FAILING_ONCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

int fsync(int fd)
{
    static int (*real)(int);
    struct stat st;

    if (!real)
        real = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    if (fstat(fd, &st) == 0 && st.st_size == 4321 && unlink(getenv("FAIL_FSYNC_ONCE")) == 0) {
        errno = EIO;
        return -1;
    }
    return real(fd);
}
"""


def test_every_descriptor_gets_the_error_of_a_failed_sync(maker, tmp_path):
    """Write-back fails once: each descriptor that was open then gets the error, as on a file system itself."""
    flag = tmp_path / "fail"
    with preloaded(tmp_path, FAILING_ONCE, FAIL_FSYNC_ONCE=flag):
        mount = maker.mount()
    path = mount.path / "file"
    path.write_bytes(bytes(4321))
    first, second = (os.open(path, os.O_RDWR) for _ in range(2))
    flag.touch()
    for fd in (first, second):
        with pytest.raises(OSError) as failed:
            os.fsync(fd)
        assert failed.value.errno == errno.EIO
        os.fsync(fd)
    later = os.open(path, os.O_RDWR)
    os.fsync(later)
    for fd in (first, second, later):
        os.close(fd)


FAILING_SYNCS = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static int sync_or_fail(int fd, long call)
{
    struct stat st;

    if (fstat(fd, &st) == 0 && st.st_size == 8192 && access(getenv("FAIL_SYNCS"), F_OK) == 0) {
        errno = EIO;
        return -1;
    }
    return (int)syscall(call, fd);
}

int fsync(int fd)
{
    return sync_or_fail(fd, SYS_fsync);
}

int fdatasync(int fd)
{
    return sync_or_fail(fd, SYS_fdatasync);
}
"""
SYNCED = {"O_SYNC": (os.O_SYNC, 0, 0), "O_DSYNC": (os.O_DSYNC, 0, 0),
          "O_DIRECT and O_SYNC": (os.O_DIRECT | os.O_SYNC, 0, 0),
          "O_DIRECT and O_DSYNC": (os.O_DIRECT | os.O_DSYNC, 0, 0), "O_DIRECT later": (os.O_DSYNC, os.O_DIRECT, 0),
          "RWF_DSYNC": (0, 0, os.RWF_DSYNC), "RWF_SYNC": (0, 0, os.RWF_SYNC),
          "O_DIRECT and RWF_DSYNC": (os.O_DIRECT, 0, os.RWF_DSYNC),
          "O_DIRECT and RWF_SYNC": (os.O_DIRECT, 0, os.RWF_SYNC)}


@pytest.mark.parametrize("name", SYNCED)
def test_a_synchronous_write_is_synced_before_it_returns(maker, tmp_path, name):
    flags, later, of_write = SYNCED[name]
    fail = tmp_path / "fail"
    with preloaded(tmp_path, FAILING_SYNCS, FAIL_SYNCS=fail):
        mount = maker.mount()
    path = mount.path / "file"
    path.write_bytes(bytes(8192))
    fd = os.open(path, os.O_RDWR | flags)
    if later:
        fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | later)
    with mmap.mmap(-1, 4096) as area:
        area[:] = b"d" * 4096
        assert os.pwritev(fd, [area], 4096, of_write) == 4096
        fail.touch()
        try:
            with pytest.raises(OSError) as failed:
                os.pwritev(fd, [area], 0, of_write)
        finally:
            fail.unlink()
            os.close(fd)
    assert failed.value.errno == errno.EIO


@pytest.mark.parametrize("flags", [0, os.O_DIRECT])
def test_other_writes_are_not_synced(maker, tmp_path, flags):
    fail = tmp_path / "fail"
    with preloaded(tmp_path, FAILING_SYNCS, FAIL_SYNCS=fail):
        mount = maker.mount()
    path = mount.path / "file"
    path.write_bytes(bytes(8192))
    fd = os.open(path, os.O_RDWR | flags)
    with mmap.mmap(-1, 4096) as area:
        area[:] = b"d" * 4096
        fail.touch()
        try:
            assert os.pwritev(fd, [area], 0) == 4096
        finally:
            fail.unlink()
            os.close(fd)
    assert path.read_bytes() == b"d" * 4096 + bytes(4096)


# ---- look-backs that take long ----------------------------------------------------------------------

STANDING = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* A byte for each thread of these. */
static void note(void)
{
    int out = open(getenv("STAND_NOTED"), O_WRONLY | O_APPEND);

    if (out >= 0 && getpriority(PRIO_PROCESS, (id_t)gettid()) == atoi(getenv("STAND_NICE")))
        (void)!write(out, "x", 1);
    if (out >= 0)
        close(out);
}

static void stand(int fd)
{
    struct stat st, log;
    int noted = 0;

    if (stat(getenv("STAND_AT"), &log) == 0 && fstat(fd, &st) == 0)
        while (st.st_ino == log.st_ino && st.st_dev == log.st_dev && access(getenv("STAND_WHILE"), F_OK) == 0) {
            if (!noted++)
                note();
            usleep(1000);
        }
}

ssize_t pread(int fd, void *data, size_t size, off_t offset)
{
    static ssize_t (*real)(int, void *, size_t, off_t);

    if (!real)
        real = (ssize_t (*)(int, void *, size_t, off_t))dlsym(RTLD_NEXT, "pread");
    stand(fd);
    return real(fd, data, size, offset);
}

ssize_t pread64(int fd, void *data, size_t size, off_t offset)
{
    return pread(fd, data, size, offset);
}
"""
LOOPS = 24
NICE = 5  # of threads that look back


def wait_until(condition):
    deadline = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture(name="standing")
def fixture_standing(maker, tmp_path):
    """A mount that, while `flag` exists, does not finish reading the catalog of its directory d."""
    flag, log, noted = tmp_path / "stand", tmp_path / "log", tmp_path / "noted"
    noted.touch()
    with preloaded(tmp_path, STANDING, STAND_WHILE=flag, STAND_AT=log, STAND_NOTED=noted, STAND_NICE=NICE):
        mount = maker.mount("allow_other")
    mount.path.chmod(0o777)
    for name in ("d", "e"):
        (mount.path / name).mkdir()
        (mount.path / name).chmod(0o777)
        (mount.path / name / "f").write_text("before")
    when = moment()
    for name in ("d", "e"):
        (mount.path / name / "f").write_text("after")
        (mount.path / name / "g").write_text("")
    key = f"{(mount.path / 'd').stat().st_ino:016x}-"
    [catalog] = (mount.source / ".wayback/objects").glob(f"*/{key}*.cat")
    log.symlink_to(catalog)
    yield mount, flag, noted, when
    flag.unlink(missing_ok=True)


LOOKS = {
    "name": lambda mount, when: as_user(lambda: os.stat(mount.at(when, "d/f")), *SECOND),
    "list": lambda mount, when: as_user(lambda: os.listdir(mount.at(when, "d")), *SECOND),
    "versions": lambda mount, _: mount.run_tool("vstat", mount.path / "d/f", user=SECOND),
    "deleted": lambda mount, _: mount.run_tool("vfind", "--deleted", mount.path / "d", user=SECOND),
    "usage": lambda mount, _: mount.run_tool("vdf", mount.path / "d/f", user=SECOND),
}


@pytest.mark.parametrize("look", LOOKS)
def test_looking_back_blocks_nobody(standing, look):
    """A user's look-backs do not end: two are under way, no more, and others look at the present and back."""
    mount, flag, noted, when = standing
    flag.touch()
    looks = [threading.Thread(target=LOOKS[look], args=(mount, when - 1 - i)) for i in range(LOOPS)]
    for thread in looks:
        thread.start()
    try:
        most = max(2, os.cpu_count() // 2)
        wait_until(lambda: noted.stat().st_size >= most)
        answers = []

        def other():
            for _ in range(20):
                answers.append((mount.path / "e/f").read_text())
                answers.append(Path(mount.at(when, "e/f")).read_text())
            (mount.path / "e/mine").write_text("x")
            (mount.path / "e/mine").unlink()

        another = threading.Thread(target=as_user, args=(other, *NOBODY))
        another.start()
        another.join(LIMIT)
        assert not another.is_alive() and answers == ["after", "before"] * 20
        assert noted.stat().st_size == most
        assert all(thread.is_alive() for thread in looks)
    finally:
        flag.unlink()
        for thread in looks:
            thread.join()


# ---- far back in a long list ------------------------------------------------------------------------

VERSIONS, PATH_MAX, DATA_MAX, ITEM = 2, 4096, 8192, 1120  # wayback/control.h
MANY = 80_000  # 44 MiB of records


def page(mount, cursor=0, until=0):
    """Moments and numbers of a page of the versions of `f`, as another process of the second user has it."""
    def work():
        control = bytearray(struct.pack("<IIIIQqq", 1, VERSIONS, 0, 0, cursor, 0, until) + b"f".ljust(PATH_MAX, b"\0") +
                            bytes(DATA_MAX))
        fd = os.open(mount.path, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.ioctl(fd, 3 << 30 | len(control) << 16 | ord("W") << 8 | 0x42, control)
        os.close(fd)
        count, data = struct.unpack_from("<I", control, 12)[0], control[-DATA_MAX:]
        items = [data[i * ITEM:(i + 1) * ITEM] for i in range(count)]
        return [struct.unpack_from("<q32xI", item) for item in items]
    return as_user(work, *SECOND)


def test_the_far_end_of_a_list_is_not_walked_to_again(maker, tmp_path):
    """The versions before a late cursor, or later than `until`, are read once only; so are changes of rights."""
    log, reads = tmp_path / "log", tmp_path / "reads"
    with preloaded(tmp_path, COUNTING, COUNT_OF=log, COUNT_IN=reads):
        mount = maker.mount("allow_other")
    mount.path.chmod(0o777)

    def write(begin, end):
        fd = os.open(mount.path / "f", os.O_CREAT | os.O_RDWR, 0o644)
        for i in range(begin, end):
            os.pwrite(fd, i.to_bytes(4, "little") * 100, 0)
        os.close(fd)

    write(1, MANY)
    reads.touch()
    log.symlink_to(mount.source / ".wayback/objects")

    def counted(**arguments):
        before = reads.stat().st_size
        return page(mount, **arguments), reads.stat().st_size - before

    newest, walked = counted()
    again, few = counted()
    assert again == newest and few < walked / 2
    # A third to a half less; the daemon may read in the logs by itself meanwhile.
    late, walked = counted(cursor=MANY - 100)
    assert [number for _, number in late] == list(range(MANY - 99, MANY - 99 + len(late)))
    assert len(late) == DATA_MAX // ITEM
    again, leapt = counted(cursor=MANY - 100)
    assert again == late and leapt < walked * 5 / 6
    when = late[0][0]
    again, leapt = counted(until=when)
    assert again == late and leapt < walked * 5 / 6
    again, leapt = counted(cursor=2, until=when)
    assert again[:-2] == late[2:] and leapt < walked * 5 / 6
    # Later records only come before it.
    write(MANY, MANY + 1500)
    again, leapt = counted(cursor=MANY + 1400)
    assert again == [(then, number + 1500) for then, number in late] and leapt < walked * 5 / 6
    # Read as a whole, the list is the same.
    mount.remount()
    assert page(mount, cursor=MANY + 1400) == again
