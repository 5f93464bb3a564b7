# SPDX-License-Identifier: LGPL-2.1-or-later
"""-o no_open: the kernel opens files and directories without asking the daemon.

What a handle does elsewhere hangs on the node here: docs/architecture.md has a table of it, and each row has a test. Tests
of other files run over such mounts as well (test_no_open_too.py).
"""
import contextlib
import ctypes
import errno
import fcntl
import json
import mmap
import os
import re
import resource
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mounts import LIMIT, NOBODY, as_user, epoch, moment
from preload import preloaded

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "cuts"))

# pylint: disable=wrong-import-position
import cuts
from facts import REFUSED, read_past
from workloads import sync_path

LIBC = ctypes.CDLL(None, use_errno=True)
DESCRIPTORS = 1024  # of the daemon
SET_FLAGS, IMMUTABLE = 0x40086602, 0x10
MANY = 1100  # more than it can have open
KINDS = ("ext4", "xfs", "btrfs", "tmpfs")


@pytest.fixture(autouse=True)
def fixture_closing(maker):  # pylint: disable=unused-argument
    """What a test that failed has left open is closed before the mount ends."""
    before = open_now()
    yield
    for fd in open_now() - before:
        os.close(fd)


def open_now():
    found = set()
    for fd in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError):  # the listing's own
            os.fstat(fd)
            found.add(fd)
    return found


@pytest.fixture(name="few", params=[(), ("history=none",)], ids=["write", "none"])
def fixture_few(maker, request):
    """A daemon with few descriptors."""
    yield from few_of(maker.mount("no_open", *request.param, start=False))


@pytest.fixture(name="few_user")
def fixture_few_user(maker):
    yield from few_of(maker.mount("no_open", user=NOBODY, start=False))


def limit():
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))


def few_of(mount, limits=limit):
    mount.limits = limits
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield mount.start()
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def descriptors(mount):
    """Without the rings of threads, of which there may be more at any time."""
    directory, count = Path(f"/proc/{mount.process.pid}/fd"), 0
    for fd in os.listdir(directory):
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            count += "io_uring" not in os.readlink(directory / fd)
    return count


def crowd_out(mount, user=None):
    """Other files take the cached descriptors of the daemon."""
    def work():
        (mount.path / "crowd").mkdir(exist_ok=True)
        for i in range(MANY):
            with open(mount.path / "crowd" / str(i), "ab") as stream:
                stream.write(b"x")
    if user:
        as_user(work, *user)
    else:
        work()
    assert descriptors(mount) < DESCRIPTORS


def requests(mount, work):
    """How many requests of each kind work() leads to. The mount is one with -d."""
    seen = os.path.getsize(mount.log_path)
    work()
    with open(mount.log_path, encoding="utf-8", errors="replace") as log:
        log.seek(seen)
        kinds = re.findall(r"opcode: (\w+)", log.read())
    return {kind: kinds.count(kind) for kind in kinds}


# ---- the option ----------------------------------------------------------------------------------


@pytest.mark.parametrize("other", ["allow_other", "allow_root", "history=close"])
def test_options_that_exclude_it(maker, other):
    status, output = maker.mount("no_open", other, start=False).refused()
    assert status == 2 and "no_open and" in output and "exclude each other" in output, output


@pytest.mark.parametrize("other", ["at=now", "branch=/tmp/none,at=now"])
def test_views_and_branches_exclude_it(maker, other):
    status, output = maker.mount("no_open", other, start=False).refused()
    assert status == 2 and "no_open and" in output, output


def test_a_rule_of_wayback_conf_that_needs_closes_is_reported(maker):
    mount = maker.mount("no_open")
    mount.expect("history=close has no effect with no_open")
    (mount.source / ".wayback/wayback.conf").write_text("[path \"*.log\"]\nhistory = close\n")
    mount.remount()
    path = mount.path / "a.log"
    with open(path, "wb", buffering=0) as stream:
        stream.write(b"one")
        then = moment()
        stream.write(b"two")
    assert Path(mount.at(then, "a.log")).read_bytes() == b"one"


def test_what_is_cached_costs_no_request(maker):
    """In place, where nobody reaches the bare SRC, nothing is asked for again."""
    tree = maker.tree("ext4")
    mount = maker.mount("no_open", "debug", source=tree, path=tree)
    mount.expect("")
    for i in range(20):
        (tree / f"d{i}").mkdir()
        for name in range(10):
            (tree / f"d{i}" / str(name)).write_bytes(b"x" * 5000)

    def read_all():
        for path, _, names in os.walk(tree):
            for name in names:
                fd = os.open(os.path.join(path, name), os.O_RDONLY)
                assert os.read(fd, 10000) == b"x" * 5000
                os.close(fd)
    # Another test may have the kernel drop what it has cached.
    for _ in range(50):
        counted = requests(mount, read_all)
        if sum(counted.values()) <= 10:
            break
    assert sum(counted.values()) <= 10, counted
    assert not set(counted) & {"OPEN", "OPENDIR", "RELEASE", "RELEASEDIR", "FLUSH", "READ", "READDIR", "READDIRPLUS"}


# ---- what a handle does elsewhere ----------------------------------------------------------------


def test_unlinked_while_it_is_open(few):
    files = []
    for i in range(100):
        fd = os.open(few.path / f"f{i}", os.O_RDWR | os.O_CREAT)
        os.write(fd, b"before %d" % i)
        files.append(fd)
    for i in range(100):
        os.unlink(few.path / f"f{i}")
    crowd_out(few)
    for i, fd in enumerate(files):
        os.pwrite(fd, b"behind %d" % i, 0)
        os.fsync(fd)
        assert os.pread(fd, 100, 0) == b"behind %d" % i
        assert os.fstat(fd).st_nlink == 0
        os.close(fd)


def test_a_removed_file_that_is_written_later_can_be_synced(few):
    """The descriptor that leads to it is closed before the one it is written through."""
    fds = []
    for i in range(20):
        fds.append(os.open(few.path / f"f{i}", os.O_RDWR | os.O_CREAT))
        os.unlink(few.path / f"f{i}")
        os.write(fds[-1], b"later")
    crowd_out(few)
    for fd in fds:
        os.fsync(fd)
        os.close(fd)


def test_replaced_while_it_is_open(few):
    (few.path / "f").write_bytes(b"old")
    fd = os.open(few.path / "f", os.O_RDWR)
    (few.path / "g").write_bytes(b"new")
    os.rename(few.path / "g", few.path / "f")
    crowd_out(few)
    os.pwrite(fd, b"OLD", 0)
    assert os.pread(fd, 10, 0) == b"OLD"
    os.close(fd)
    assert (few.path / "f").read_bytes() == b"new"


def test_the_name_is_removed_that_it_was_opened_by(few):
    """It has another one, which the daemon has not met."""
    fds = []
    if "history=none" not in few.options:
        few.expect("changed while Wayback did not record")
    for i in range(50):
        (few.source / f"a{i}").write_bytes(b"%d" % i)
        os.link(few.source / f"a{i}", few.source / f"b{i}")
        fds.append(os.open(few.path / f"a{i}", os.O_RDWR))
        os.unlink(few.path / f"a{i}")
    crowd_out(few)
    for i, fd in enumerate(fds):
        assert os.pread(fd, 10, 0) == b"%d" % i
        os.pwrite(fd, b"+", 0)
        os.close(fd)
        assert (few.path / f"b{i}").read_bytes()[:1] == b"+"


def test_many_names_that_were_renamed_of_files_that_have_others(few):
    """The name that stays is remembered when another one is renamed."""
    fds = []
    for i in range(MANY):
        fds.append(os.open(few.path / f"a{i}", os.O_RDWR | os.O_CREAT))
        os.write(fds[-1], b"%d" % i)
        os.link(few.path / f"a{i}", few.path / f"b{i}")
        os.rename(few.path / f"b{i}", few.path / f"c{i}")
        os.unlink(few.path / f"c{i}")
    for i, fd in enumerate(fds):
        assert os.pread(fd, 10, 0) == b"%d" % i
        os.pwrite(fd, b"+", 0)
        os.close(fd)


def test_many_names_of_files_that_have_others(few):
    """A descriptor for each of them would be too many, and none is needed to remove them."""
    for i in range(MANY):
        (few.path / f"a{i}").write_bytes(b"%d" % i)
        os.link(few.path / f"a{i}", few.path / f"b{i}")
    for i in range(MANY):
        os.unlink(few.path / f"b{i}")
    assert descriptors(few) < DESCRIPTORS
    assert all((few.path / f"a{i}").read_bytes() == b"%d" % i for i in range(MANY))


def test_more_removed_files_are_open_than_it_can_have_descriptors(few):
    """The graveyard leads to them. Without one, no more can be removed, and none is lost."""
    keeps, fds, error = "history=none" not in few.options, [], None
    for i in range(MANY):
        try:
            fds.append(os.open(few.path / f"f{i}", os.O_RDWR | os.O_CREAT))
            os.write(fds[-1], b"%d" % i)
            os.unlink(few.path / f"f{i}")
        except OSError as caught:
            error = caught.errno
            break
    assert error == (None if keeps else errno.EMFILE) and len(fds) > 300
    for i, fd in enumerate(fds):
        assert os.pread(fd, 10, 0) == b"%d" % i
        os.close(fd)
    for path in few.path.glob("f*"):
        assert path == few.path / f"f{len(fds) - 1}"
        until(lambda path=path: not path.exists() or not unlink_fails(path))
    assert not list(few.path.glob("f*"))


def unlink_fails(path):
    try:
        os.unlink(path)
    except OSError as caught:
        assert caught.errno == errno.EMFILE
        return True
    return False


def test_replaced_where_it_can_have_no_descriptor(maker):
    mount = maker.mount("no_open", "history=none", start=False)
    for few in few_of(mount):
        fds = [os.open(few.path, os.O_RDWR | os.O_TMPFILE, 0o600) for _ in range(400)]
        with pytest.raises(OSError) as caught:
            while True:
                fds.append(os.open(few.path, os.O_RDWR | os.O_TMPFILE, 0o600))
        assert caught.value.errno == errno.EMFILE
        (few.source / "old").write_bytes(b"old")
        (few.source / "new").write_bytes(b"new")
        with pytest.raises(OSError) as caught:
            os.rename(few.path / "new", few.path / "old")
        assert caught.value.errno == errno.EMFILE and (few.source / "old").read_bytes() == b"old"
        for fd in fds:
            os.close(fd)
        until(lambda: not (few.path / "new").exists() or not rename_fails(few.path / "new", few.path / "old"))
        assert (few.path / "old").read_bytes() == b"new"


def rename_fails(old, new):
    try:
        os.rename(old, new)
    except OSError as caught:
        assert caught.errno == errno.EMFILE
        return True
    return False


def test_its_history_is_removed_while_it_is_open(maker):
    for few in few_of(maker.mount("no_open", start=False)):
        fds = [os.open(few.path / f"f{i}", os.O_RDWR | os.O_CREAT) for i in range(20)]
        for i, fd in enumerate(fds):
            os.write(fd, b"%d" % i)
            os.unlink(few.path / f"f{i}")
        crowd_out(few)
        few.tool("vrm", "-y", *(few.path / f"f{i}" for i in range(20)))
        for i, fd in enumerate(fds):
            assert os.pread(fd, 10, 0) == b"%d" % i
            os.pwrite(fd, b"+", 0)
            assert os.pread(fd, 1, 0) == b"+"
            os.close(fd)


def test_replaced_by_a_restored_file_while_it_is_open(maker):
    """vrevert brings back a deleted file in its place, and the history of both is removed."""
    for few in few_of(maker.mount("no_open", start=False)):
        (few.path / "f").write_bytes(b"old")
        then = moment()
        (few.path / "g").write_bytes(b"new")
        os.rename(few.path / "g", few.path / "f")
        fd = os.open(few.path / "f", os.O_RDWR)
        crowd_out(few)
        few.tool("vrevert", few.path / "f", "--time", epoch(then))
        assert (few.path / "f").read_bytes() == b"old"
        few.tool("vrm", "-y", few.path / "f")
        assert os.pread(fd, 10, 0) == b"new"
        os.close(fd)


@pytest.mark.parametrize("kind", ("ext4", "xfs"))
def test_no_byte_is_on_the_disk_before_its_record_if_a_descriptor_is_closed(maker, kind):
    bench = cuts.Bench(maker.scratch / "bench", maker.programs, kind, ["no_open"])
    try:
        disk = cuts.Disk.make(bench.holder, kind, "disk", bench.base / "disk").mount()
        mount = bench.mount(disk, "before")
        (mount.path / "f").write_bytes(b"o" * 65536)
        (mount.path / "crowd").mkdir()
        for i in range(MANY):
            (mount.path / "crowd" / str(i)).write_bytes(b"x")
        sync_path(mount.path / "f")
        sync_path(mount.path)
        mount.stop()
        for few in few_of(mount):
            when = moment()
            with open(few.path / "f", "r+b", buffering=0) as stream:
                stream.write(b"n" * 65536)
            for i in range(MANY):
                (few.path / "crowd" / str(i)).read_bytes()
            cut = disk.cut("cut", bench.base / "cut")
        mount.stop()
        disk.remove()
        cut.mount()
        after = bench.mount(cut, "after")
        after.expect("")
        found = read_past(after.at(when, "f"))
        after.stop()
        cut.remove()
    finally:
        bench.close()
    assert found in (REFUSED, b"o" * 65536)


def test_without_a_name_from_the_beginning(few):
    fds = [os.open(few.path, os.O_RDWR | os.O_TMPFILE, 0o600) for _ in range(50)]
    for i, fd in enumerate(fds):
        os.write(fd, b"%d" % i)
    crowd_out(few)
    for i, fd in enumerate(fds):
        assert os.pread(fd, 10, 0) == b"%d" % i
        os.pwrite(fd, b"+%d" % i, 0)
    assert LIBC.linkat(-100, b"/proc/self/fd/%d" % fds[7], -100, os.fsencode(few.path / "seven"), 0x400) == 0
    crowd_out(few)
    os.pwrite(fds[7], b"-", 0)
    for fd in fds:
        os.close(fd)
    assert (few.path / "seven").read_bytes() == b"-7"
    few.remount()
    assert (few.path / "seven").read_bytes() == b"-7"


def test_created_with_a_mode_that_forbids_to_open_it(few_user):
    """A descriptor for writing of a file with mode 0444, as git(1) makes them."""
    mount, found = few_user, []

    def work():
        fds = [os.open(mount.path / f"f{i}", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o444) for i in range(100)]
        crowd_out(mount)
        for i, fd in enumerate(fds):
            os.write(fd, b"%d" % i)
            os.fsync(fd)
            found.append(os.pread(fd, 10, 0))
            os.close(fd)
    as_user(work, *NOBODY)
    assert found == [b"%d" % i for i in range(100)]


def test_many_files_that_cannot_be_opened_again(few_user):
    """Closed long ago, or not: nobody says so. There is always room for others."""
    mount = few_user

    def work():
        for i in range(MANY):
            with open(os.open(mount.path / f"f{i}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o444), "wb") as stream:
                stream.write(b"%d" % i)
        assert all((mount.path / f"f{i}").read_bytes() == b"%d" % i for i in range(MANY))
    as_user(work, *NOBODY)
    assert descriptors(mount) < DESCRIPTORS


def test_the_mode_changes_while_it_is_open(few_user):
    mount, found = few_user, []

    def work():
        (mount.path / "w").write_bytes(b"one")
        (mount.path / "r").write_bytes(b"one")
        crowd_out(mount)
        writing, reading = os.open(mount.path / "w", os.O_WRONLY), os.open(mount.path / "r", os.O_RDONLY)
        os.chmod(mount.path / "w", 0o400)
        os.chmod(mount.path / "r", 0)
        crowd_out(mount)
        os.write(writing, b"two")
        found.append(os.pread(reading, 10, 0))
        os.chmod(mount.path / "r", 0o400)
        found.append((mount.path / "w").read_bytes())
    as_user(work, *NOBODY)
    assert found == [b"one", b"two"]


def test_an_acl_takes_the_rights_while_it_is_open(few_user):
    mount, found = few_user, []

    def work():
        (mount.path / "f").write_bytes(b"one")
        crowd_out(mount)
        fd = os.open(mount.path / "f", os.O_RDWR)
        subprocess.run(["setfacl", "-m", "u::---", mount.path / "f"], check=True)
        crowd_out(mount)
        os.pwrite(fd, b"two", 0)
        found.append(os.pread(fd, 10, 0))
        os.close(fd)
    as_user(work, *NOBODY)
    assert found == [b"two"]


def test_appends(few):
    """Each goes to the end, beside those of other descriptors."""
    fds = [os.open(few.path / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND) for _ in range(3)]
    for turn in range(30):
        os.write(fds[turn % 3], b"%02d\n" % turn)
        if turn == 15:
            crowd_out(few)
    assert (few.source / "log").read_bytes() == b"".join(b"%02d\n" % turn for turn in range(30))


def test_append_only_files(maker):
    mount = maker.mount("no_open")
    path = mount.path / "log"
    path.write_bytes(b"one\n")
    subprocess.run(["chattr", "+a", path], check=True)
    try:
        with open(path, "ab", buffering=0) as stream:
            stream.write(b"two\n")
        fd = os.open(path, os.O_WRONLY)
        with pytest.raises(OSError) as caught:
            os.pwrite(fd, b"x", 0)
        assert caught.value.errno == errno.EPERM
        with pytest.raises(OSError):
            os.pwrite(fd, b"x", 8)
        os.close(fd)
        with pytest.raises(OSError):
            os.truncate(path, 0)
    finally:
        subprocess.run(["chattr", "-a", path], check=True)
    assert path.read_bytes() == b"one\ntwo\n"


def test_immutable_files_lose_no_mapped_bytes(maker):
    mount = maker.mount("no_open")
    path = mount.path / "f"
    path.write_bytes(b"x" * 8192)
    fd = os.open(path, os.O_RDWR)
    mapped = mmap.mmap(fd, 8192)
    mapped[5000:5003] = b"new"
    # Not by chattr(1), whose close(2) writes the pages back.
    fcntl.ioctl(fd, SET_FLAGS, struct.pack("l", IMMUTABLE))
    try:
        assert (mount.source / "f").read_bytes()[5000:5003] == b"new"
        with pytest.raises(OSError) as caught:
            os.pwrite(fd, b"x", 0)
        assert caught.value.errno == errno.EPERM
    finally:
        subprocess.run(["chattr", "-i", path], check=True)
    mapped.close()
    os.close(fd)


def test_mapped_writes_reach_a_removed_file(few):
    fd = os.open(few.path / "f", os.O_RDWR | os.O_CREAT)
    os.write(fd, b"." * 8192)
    mapped = mmap.mmap(fd, 8192)
    os.close(fd)
    os.unlink(few.path / "f")
    crowd_out(few)
    mapped[4096:4100] = b"late"
    mapped.flush()
    assert mapped[4096:4100] == b"late"
    mapped.close()


def test_direct_io(maker):
    mount = maker.mount("no_open")
    page = mmap.mmap(-1, 4096)
    page.write(b"d" * 4096)
    fd = os.open(mount.path / "f", os.O_RDWR | os.O_CREAT | os.O_DIRECT)
    assert os.writev(fd, [page]) == 4096
    again = mmap.mmap(-1, 4096)
    assert os.preadv(fd, [again], 0) == 4096 and again[:] == b"d" * 4096
    os.close(fd)
    assert (mount.source / "f").read_bytes() == b"d" * 4096


def test_running_programs_cannot_be_written(maker):
    mount = maker.mount("no_open")
    path = mount.path / "sleep"
    path.write_bytes(Path("/bin/sleep").read_bytes())
    path.chmod(0o755)
    with subprocess.Popen([path, str(LIMIT)]) as process:
        for flags in (os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_TRUNC):
            with pytest.raises(OSError) as caught:
                os.open(path, flags)
            assert caught.value.errno == errno.ETXTBSY
        process.kill()
    assert path.read_bytes() == Path("/bin/sleep").read_bytes()
    with open(path, "wb"):
        pass
    assert path.stat().st_size == 0


@pytest.mark.parametrize("history", [(), ("history=none",)], ids=["write", "none"])
def test_programs_just_written_run_in_bare_src(maker, history):
    """The daemon does not keep what it wrote through open for long."""
    mount = maker.mount("no_open", *history)
    path = mount.path / "true"
    path.write_bytes(Path("/bin/true").read_bytes())
    path.chmod(0o755)

    def runs():
        try:
            return subprocess.run([mount.source / "true"], check=True).returncode == 0
        except OSError as caught:
            assert caught.errno == errno.ETXTBSY
            return False
    until(runs)


def test_locks_and_leases(maker):
    mount = maker.mount("no_open")
    path = mount.path / "f"
    path.touch()
    one, other = os.open(path, os.O_RDWR), os.open(path, os.O_RDWR)
    fcntl.flock(one, fcntl.LOCK_EX)
    with pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(one)
    fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    fcntl.lockf(other, fcntl.LOCK_EX)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            with open(path, "r+b") as stream:
                fcntl.lockf(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    os.close(other)
    fd = os.open(path, os.O_RDONLY)
    try:
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except OSError as error:
        assert error.errno in (errno.EINVAL, errno.EAGAIN)  # as on the mount with opens
    os.close(fd)


def test_set_id_bits_go_with_a_truncation_at_open(maker):
    mount = maker.mount("no_open", user=NOBODY)

    def work():
        path = mount.path / "f"
        path.write_bytes(b"program")
        path.chmod(0o6755)
        with open(path, "wb"):
            pass
        cut = path.stat().st_mode & 0o7777
        path.chmod(0o6755)
        with open(path, "ab") as stream:
            stream.write(b"x")
        return cut, path.stat().st_mode & 0o7777
    assert as_user(work, *NOBODY) == (0o755, 0o755)


def test_a_truncation_at_open_is_a_version(maker):
    mount = maker.mount("no_open")
    path = mount.path / "f"
    path.write_bytes(b"content")
    then = moment()
    before = path.stat().st_mtime_ns
    with open(path, "wb"):
        pass
    assert path.read_bytes() == b"" and Path(mount.at(then, "f")).read_bytes() == b"content"
    emptied = path.stat().st_mtime_ns
    assert emptied > before
    with open(path, "wb"):
        pass
    assert path.stat().st_mtime_ns > emptied


def test_versions_of_two_opens(maker):
    """One process: they are one version, of which each state is found by its time. A truncation begins another one."""
    mount, times = maker.mount("no_open"), []
    path = mount.path / "f"
    path.write_bytes(b"0")
    for i in range(1, 4):
        times.append(moment())
        with open(path, "ab") as stream:
            stream.write(b"%d" % i)
    for i, when in enumerate(times):
        assert Path(mount.at(when, "f")).read_bytes() == b"0123"[:i + 1]
    assert len(json.loads(mount.tool("vstat", "--json", path).stdout)["versions"]) == 1
    with open(path, "wb") as stream:
        stream.write(b"new")
    listed = json.loads(mount.tool("vstat", "--json", path).stdout)["versions"]
    assert len(listed) == 2 and Path(f"{path}@~1").read_bytes() == b"0123"


def test_a_file_of_the_past_that_is_opened_for_writing(maker):
    mount = maker.mount("no_open")
    path = mount.path / "f"
    path.write_bytes(b"old")
    past = mount.at(moment(), "f")
    path.write_bytes(b"new")
    fd = os.open(past, os.O_RDWR)
    with pytest.raises(OSError) as caught:
        os.pwrite(fd, b"x", 0)
    assert caught.value.errno == errno.EROFS
    assert os.pread(fd, 10, 0) == b"old"
    os.close(fd)
    with pytest.raises(OSError) as caught:
        os.open(past, os.O_WRONLY | os.O_TRUNC)
    assert caught.value.errno == errno.EROFS


FAILING = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>
#include <stdio.h>
#include <sys/syscall.h>

/* Write-back of files called fails* fails once. */
int sync_file_range(int fd, off64_t offset, off64_t length, unsigned flags)
{
    char link[64], path[4096];
    ssize_t n;

    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    n = readlink(link, path, sizeof(path) - 1);
    path[n > 0 ? n : 0] = 0;
    if (strstr(path, "/fails")) {
        errno = EIO;
        return -1;
    }
    return syscall(SYS_sync_file_range, fd, offset, length, flags);
}
"""


def test_errors_of_write_back_reach_the_next_fsync(maker, tmp_path):
    mount = maker.mount("no_open", start=False)
    mount.limits = limit
    with preloaded(tmp_path, FAILING):
        mount.start()
    fd = os.open(mount.path / "fails", os.O_RDWR | os.O_CREAT)
    os.write(fd, b"lost")
    crowd_out(mount)
    with pytest.raises(OSError) as caught:
        os.fsync(fd)
    assert caught.value.errno == errno.EIO
    os.fsync(fd)
    os.close(fd)


# ---- descriptors of the daemon -------------------------------------------------------------------


def test_many_files_open_at_once(few):
    fds = [os.open(few.path / str(i), os.O_RDWR | os.O_CREAT) for i in range(MANY)]
    for turn in range(2):
        for i, fd in enumerate(fds):
            os.pwrite(fd, b"%d of %d" % (turn, i), 0)
        assert descriptors(few) < DESCRIPTORS
    for i, fd in enumerate(fds):
        assert os.pread(fd, 50, 0) == b"1 of %d" % i
        os.fsync(fd) if i % 50 == 0 else None
        os.close(fd)
    few.remount()
    for i in range(MANY):
        assert (few.path / str(i)).read_bytes() == b"1 of %d" % i


def test_the_past_of_many_files_open_at_once(few):
    if "history=none" in few.options:
        pytest.skip("there is no past")
    for i in range(300):
        (few.path / str(i)).write_bytes(b"then %d" % i)
    then = moment()
    for i in range(300):
        (few.path / str(i)).write_bytes(b"now")
    fds = [os.open(few.path / f"{i}@{epoch(then)}", os.O_RDONLY) for i in range(300)]
    for i, fd in enumerate(fds):
        assert os.pread(fd, 50, 0) == b"then %d" % i
        assert os.lseek(fd, 0, os.SEEK_DATA) == 0
    assert descriptors(few) < DESCRIPTORS
    for fd in fds:
        os.close(fd)
    # No way to change it.
    fd = os.open(few.path / f"1@{epoch(then)}", os.O_RDWR)
    with pytest.raises(OSError) as caught:
        os.write(fd, b"x")
    assert caught.value.errno == errno.EROFS
    os.close(fd)


def test_when_nothing_can_be_closed_nothing_is_created(few):
    """Files without a name take all descriptors: the next open fails, and has made nothing."""
    fds = []
    with pytest.raises(OSError) as caught:
        for _ in range(DESCRIPTORS):
            fds.append(os.open(few.path, os.O_RDWR | os.O_TMPFILE, 0o600))
    assert caught.value.errno == errno.EMFILE and len(fds) > 300
    with pytest.raises(OSError) as caught:
        os.open(few.path / "f", os.O_WRONLY | os.O_CREAT)
    assert caught.value.errno == errno.EMFILE
    assert not (few.source / "f").exists()
    for fd in fds:
        os.close(fd)
    (few.path / "f").write_bytes(b"x")
    assert (few.path / "f").read_bytes() == b"x"


def test_files_are_read_as_long_as_one_descriptor_can_be_closed(maker):
    """However many there are that must stay open."""
    def few_thousand():
        resource.setrlimit(resource.RLIMIT_NOFILE, (4 * DESCRIPTORS, 4 * DESCRIPTORS))

    mount = maker.mount("no_open", "history=none", start=False)
    for few in few_of(mount, few_thousand):
        for i in range(100):
            (few.path / str(i)).write_bytes(b"%d" % i)
        fds = []
        with pytest.raises(OSError) as caught:
            while True:
                fds.append(os.open(few.path, os.O_RDWR | os.O_TMPFILE, 0o600))
        assert caught.value.errno == errno.EMFILE and len(fds) > 1000
        before = descriptors(few)
        for fd in fds[-18:]:
            os.close(fd)
        del fds[-18:]
        until(lambda: descriptors(few) <= before - 18)
        for i in range(100):
            assert read_directly(few.path / str(i)) == b"%d" % i
        for fd in fds:
            os.close(fd)


def read_directly(path):
    page = mmap.mmap(-1, 4096)
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    try:
        return page[:os.preadv(fd, [page], 0)]
    finally:
        os.close(fd)


# ---- directories ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_directories_are_listed_exactly(maker, kind):
    mount = maker.mount("no_open", kind=kind)
    directory = mount.path / "d"
    directory.mkdir()
    names = {f"name {i:05}" for i in range(3000)}
    for name in names:
        (directory / name).touch()
    assert set(os.listdir(directory)) == names
    # Removed while it is listed: nothing that stays is missing, nothing comes twice.
    seen = []
    with os.scandir(directory) as entries:
        for entry in entries:
            seen.append(entry.name)
            if len(seen) % 2:
                os.unlink(directory / entry.name)
    assert sorted(seen) == sorted(names)
    assert set(os.listdir(directory)) == set(seen[1::2])
    assert set(os.listdir(mount.source / "d")) == set(seen[1::2])
    # Two readers side by side.
    with os.scandir(directory) as one, os.scandir(directory) as other:
        pairs = list(zip(one, other))
    assert {a.name for a, _ in pairs} == {b.name for _, b in pairs} == set(seen[1::2])


def test_listings_follow_changes_of_the_daemon(maker):
    """Names that the daemon itself makes and removes, for a tool."""
    tree = maker.tree("ext4")
    mount = maker.mount("no_open", source=tree, path=tree)
    directory = tree / "d"
    directory.mkdir()
    (directory / "stays").write_bytes(b"x")
    (directory / "f").write_bytes(b"x")
    then = moment()
    (directory / "f").unlink()
    assert os.listdir(directory) == ["stays"]
    assert os.listdir(directory) == ["stays"]
    mount.tool("vrevert", directory / "f", "--time", epoch(then))
    assert sorted(os.listdir(directory)) == ["f", "stays"]
    assert sorted(os.listdir(directory)) == ["f", "stays"]
    mount.tool("vrm", "-y", directory / "f")
    assert os.listdir(directory) == ["stays"]


def test_the_directory_of_snapshots_is_current(maker):
    tree = maker.tree("ext4")
    mount = maker.mount("no_open", source=tree, path=tree)
    (tree / "f").write_bytes(b"x")
    for name in ("one", "two", "three"):
        assert name not in os.listdir(tree / ".snapshot")
        mount.tool("vsnap", "create", name, tree)
        assert name in os.listdir(tree / ".snapshot")
    mount.tool("vsnap", "delete", "one", cwd=tree)
    assert sorted(os.listdir(tree / ".snapshot")) == ["three", "two"]


# ---- past the mount ------------------------------------------------------------------------------


def until(true):
    deadline = time.monotonic() + LIMIT
    while not true() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert true()


def test_edits_of_bare_src_are_seen(maker):
    mount = maker.mount("no_open")
    mount.expect("changed while Wayback did not record")
    path, bare = mount.path / "f", mount.source / "f"
    path.write_bytes(b"one")
    assert path.read_bytes() == b"one"
    bare.write_bytes(b"two")  # the same size
    until(lambda: path.read_bytes() == b"two")
    bare.write_bytes(b"another size")
    until(lambda: path.read_bytes() == b"another size")
    (mount.source / "other").write_bytes(b"replaced")
    os.rename(mount.source / "other", bare)
    until(lambda: path.read_bytes() == b"replaced")
    assert os.listdir(mount.path) == ["f"]
    (mount.source / "g").touch()
    until(lambda: sorted(os.listdir(mount.path)) == ["f", "g"])
    os.unlink(bare)
    until(lambda: os.listdir(mount.path) == ["g"])
    until(lambda: not path.exists())


def test_what_took_the_place_of_an_open_file_is_not_written(few):
    """Removed past the mount, and another file has its name, and maybe its number."""
    few.expect("changed while Wayback did not record")
    fds = []
    for i in range(50):
        fds.append(os.open(few.path / f"f{i}", os.O_RDWR | os.O_CREAT))
        os.write(fds[-1], b"mine")
    crowd_out(few)
    for i in range(50):
        os.unlink(few.source / f"f{i}")
        (few.source / f"f{i}").write_bytes(b"another program's")
    for fd in fds:
        with pytest.raises(OSError) as caught:
            os.pwrite(fd, b"XXXX", 0)
        assert caught.value.errno == errno.ESTALE
        os.close(fd)
    for i in range(50):
        assert (few.source / f"f{i}").read_bytes() == b"another program's"
