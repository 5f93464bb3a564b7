# SPDX-License-Identifier: LGPL-2.1-or-later
"""FUSE over io_uring (src/daemon/transport): the same mounts, with requests that come through rings."""
import contextlib
import errno
import json
import mmap
import os
import random
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from mounts import (BUILD, IO_URING, LIMIT, NOBODY, TRANSPORT, as_user, become, begin_child, end_of_child, epoch,
                    io_uring_switched, mounted_at, moment, run)
from preload import preloaded

HAS_RINGS = b"io_uring_setup" in (BUILD / "src/daemon/wayback").read_bytes() if BUILD.exists() else False
pytestmark = pytest.mark.skipif(not IO_URING.exists() or not HAS_RINGS,
                                reason="this kernel has no FUSE over io_uring, or this build no liburing")
WORKERS = 8  # WB_WORKERS of src/daemon/session/mount.c
IDLE = 24    # IDLE_MAX of src/daemon/transport/ring.c
REFUSED = Path("/proc/sys/kernel/io_uring_disabled")

# While the file HOLD exists: threads that look back do not begin (LOOKS), and fsync(2) does not return (SYNCS).
HOLDING = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

static void hold(const char *what)
{
    char path[4096];

    snprintf(path, sizeof(path), "%s.%s", getenv("HOLD"), what);
    while (access(path, F_OK) == 0)
        usleep(1000);
}

int setpriority(__priority_which_t which, id_t who, int value)
{
    int (*real)(__priority_which_t, id_t, int) = (int (*)(__priority_which_t, id_t, int))dlsym(RTLD_NEXT, "setpriority");

    hold("looks");
    return real(which, who, value);
}

int fsync(int fd)
{
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");

    hold("syncs");
    return real(fd);
}
"""


@pytest.fixture(autouse=True)
def fixture_io_uring(request):
    """The kernel offers it, unless the test says otherwise."""
    if request.function in (test_without_the_kernels_offer, test_a_process_that_may_have_no_ring):
        yield
        return
    with io_uring_switched("Y"):
        yield


@pytest.fixture(name="mount")
def fixture_mount(maker):
    return maker.mount("allow_other", "io_uring")


class Hold:
    """What the daemon is held at, while it is."""

    def __init__(self, directory):
        self.prefix = directory / "hold"

    @contextlib.contextmanager
    def __call__(self, what):
        path = self.prefix.with_name(f"hold.{what}")
        path.touch()
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


@pytest.fixture(name="hold")
def fixture_hold(tmp_path):
    hold = Hold(tmp_path)
    with preloaded(tmp_path, HOLDING, HOLD=str(hold.prefix)):
        yield hold


def transport(mount):
    return json.loads(mount.run_tool("vstatus", "--json", mount.path).stdout)["transport"]


def names_of_threads(mount):
    tasks = Path(f"/proc/{mount.process.pid}/task")
    return [(task / "comm").read_text(encoding="ascii").strip() for task in tasks.iterdir()]


def count_rings(mount):
    """Each has a thread of its own. Threads of lanes inherit their names from these."""
    count = 0
    for link in Path(f"/proc/{mount.process.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            count += "io_uring" in os.readlink(link)
    return count


def wait_until(condition):
    deadline = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.002)


def waits_for_daemon(child):
    """Whether it has sent a request whose reply it waits for."""
    return "request_wait_answer" in Path(f"/proc/{child}/stack").read_text(encoding="ascii")


def on_processor(number, work):
    """In a child process, which then sends its requests through the queue of that CPU; work() returns its status."""
    def pinned():
        os.sched_setaffinity(0, {number})
        return work()
    return begin_child(pinned)


def processor():
    return min(os.sched_getaffinity(0))


def looking_back(path, when, ready=None):
    """In a child process of another user than root, whose look-backs wait for each other; its status is the errno. It
    begins when there is a byte in the pipe `ready`."""
    def look():
        if ready is not None:
            os.read(ready, 1)
        become(*NOBODY, [], 0o022)
        return error_of(lambda: os.stat(f"{path}@{epoch(when)}"))
    return on_processor(processor(), look)


def error_of(work):
    """The errno, as an exit status, by which it fails; 0."""
    try:
        work()
    except OSError as error:
        return error.errno
    return 0


def test_requests_come_through_rings(mount):
    path = mount.path / "d/f"
    path.parent.mkdir()
    path.write_bytes(b"old")
    when = moment()
    path.write_bytes(b"new")
    assert path.with_name(f"f@{epoch(when)}").read_bytes() == b"old"
    assert transport(mount) == "io_uring"
    assert "FUSE over io_uring" in mount.tool("vstatus", mount.path).stdout
    assert names_of_threads(mount).count("fuse_dispatcher") == 1 and "fuse_ring" in names_of_threads(mount)
    mount.remount()
    assert os.listdir(path.parent) == ["f"] and path.read_bytes() == b"new"
    mount.check_store()


def test_it_is_used_only_if_asked_for(maker):
    mount = maker.mount("allow_other", "no_io_uring")
    assert transport(mount) == "/dev/fuse" and "fuse_ring" not in names_of_threads(mount)
    mount.stop()
    mount.command = lambda *extra: [str(mount.programs.directory / "wayback"), "-f", str(mount.source), str(mount.path)]
    mount.start()
    assert transport(mount) == "/dev/fuse"


@pytest.mark.skipif(TRANSPORT == "io_uring", reason="all mounts of this run need the kernel's offer")
def test_without_the_kernels_offer(maker):
    with io_uring_switched("N"):
        status, output = maker.mount("io_uring", start=False).refused()
        assert status == 1 and str(IO_URING) in output and "echo Y" in output
        mount = maker.mount("allow_other", start=False)
        mount.command = lambda *extra: [str(mount.programs.directory / "wayback"), "-f", str(mount.source),
                                        str(mount.path)]
        mount.start()
        assert transport(mount) == "/dev/fuse"
        mount.stop()


@pytest.mark.skipif(TRANSPORT == "io_uring", reason="all mounts of this run need rings")
def test_a_process_that_may_have_no_ring(maker):
    """As in many containers."""
    with io_uring_switched("N"):
        IO_URING.write_text("Y", encoding="ascii")  # of this test alone
        before = REFUSED.read_text(encoding="ascii")
        REFUSED.write_text("2", encoding="ascii")
        try:
            status, output = maker.mount("io_uring", start=False).refused()
            assert status == 1 and "io_uring_setup" in output and "kernel.io_uring_disabled" in output
            mount = maker.mount(start=False)
            mount.command = lambda *extra: [str(mount.programs.directory / "wayback"), "-f", str(mount.source),
                                            str(mount.path)]
            mount.start()
            assert transport(mount) == "/dev/fuse"
            mount.stop()
        finally:
            REFUSED.write_text(before, encoding="ascii")


def test_the_number_of_buffers_is_no_option(maker):
    status, output = maker.mount("io_uring,io_uring_q_depth=4", start=False).refused()
    assert status == 2 and "io_uring_q_depth=4" in output


@pytest.mark.parametrize("options", [(), ("no_open",), ("history=close",), ("history=none",), ("ro",), ("onfull=prune",)])
def test_with_other_options(maker, options):
    mount = maker.mount("io_uring", *[option for option in options if option != "ro"])
    data = os.urandom(300000)
    (mount.path / "f").write_bytes(data)
    when = moment()
    (mount.path / "f").write_bytes(data[::-1])
    if "ro" in options:
        mount.remount("ro")
    assert (mount.path / "f").read_bytes() == data[::-1]
    if "history=none" not in options:
        assert (mount.path / f"f@{epoch(when)}").read_bytes() == data
        assert "f" in os.listdir(mount.at(when))
    assert transport(mount) == "io_uring"


def test_in_place(maker):
    source = maker.tree()
    (source / "f").write_bytes(b"there before")
    mount = maker.mount("io_uring", source=source, path=source)
    assert (source / "f").read_bytes() == b"there before"
    (source / "g").write_bytes(b"new")
    assert transport(mount) == "io_uring"
    mount.remount()
    assert (source / "g").read_bytes() == b"new"


def test_of_an_ordinary_user(maker):
    mount = maker.mount("io_uring", user=NOBODY)

    def work():
        (mount.path / "f").write_bytes(b"x" * 100000)
        return (mount.path / "f").read_bytes()

    assert as_user(work, *NOBODY) == b"x" * 100000
    assert transport(mount) == "io_uring"
    assert "fuse_ring" in names_of_threads(mount)


def test_a_view_of_the_past_and_a_branch(maker, mount, base):
    (mount.path / "f").write_bytes(b"then")
    when = moment()
    (mount.path / "f").write_bytes(b"now")
    view = maker.mount("allow_other", "io_uring", f"at={epoch(when)}", source=mount.path)
    assert (view.path / "f").read_bytes() == b"then" and transport(view) == "io_uring"


# ---- large and many ---------------------------------------------------------------------------------------


def test_random_reads_and_writes(mount):
    """Of up to 1 MiB, the most that one request has, by read(2), write(2) and mappings, and past the page cache."""
    chance = random.Random(7)
    limit = 6 << 20
    content = bytearray()
    path = mount.path / "f"
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    direct = os.open(path, os.O_RDWR | os.O_DIRECT)
    buffer = mmap.mmap(-1, 1 << 20)
    for _ in range(250):
        offset, size = chance.randrange(limit), chance.choice((1, 4096, 100001, 1 << 20))
        size = min(size, limit - offset)
        data = chance.randbytes(size)
        action = chance.choice(("write", "read", "map", "direct", "cut"))
        if action == "write":
            assert os.pwrite(fd, data, offset) == size
            content += bytes(max(0, offset - len(content)))
            content[offset:offset + size] = data
        elif action == "read":
            assert os.pread(fd, size, offset) == content[offset:offset + size]
        elif action == "map" and content:
            with mmap.mmap(fd, len(content)) as mapping:
                part = data[:max(0, len(content) - offset)]
                assert mapping[offset:offset + len(part)] == content[offset:offset + len(part)]
                mapping[offset:offset + len(part)] = part
                mapping.flush()
            content[offset:offset + len(part)] = part
        elif action == "direct":
            place = offset & ~4095 if offset + (1 << 20) <= limit else 0
            buffer[:] = chance.randbytes(1 << 20)
            assert os.pwrite(direct, buffer, place) == 1 << 20
            content += bytes(max(0, place - len(content)))
            content[place:place + (1 << 20)] = buffer[:]
            assert os.preadv(direct, [buffer], place) == 1 << 20 and buffer[:] == content[place:place + (1 << 20)]
        elif action == "cut":
            length = chance.randrange(len(content) + 1)
            os.ftruncate(fd, length)
            del content[length:]
    os.close(fd)
    os.close(direct)
    mount.remount()
    assert path.read_bytes() == content and (mount.source / "f").read_bytes() == content


def test_the_largest_of_everything(mount):
    """A request or reply that fills its buffer, or has the most parts."""
    name, target = "n" * 255, "t" * 4095
    os.symlink(target, mount.path / name)
    assert os.readlink(mount.path / name) == target
    other = mount.path / ("m" * 255)
    os.rename(mount.path / name, other)
    path = mount.path / "f"
    path.write_bytes(bytes(1 << 20))
    with contextlib.suppress(OSError):  # more than ext4 has room for
        os.setxattr(path, "user.large", b"v" * 60000)
    os.setxattr(path, "user.small", b"v" * 2000)
    assert os.getxattr(path, "user.small") == b"v" * 2000
    many = mount.path / "many"
    many.mkdir()
    mount.expect("changed while Wayback did not record")  # past the mount, which is faster
    names = {f"{i:04}" + "x" * 200 for i in range(3000)}
    for each in names:
        (mount.source / "many" / each).touch()
    assert set(os.listdir(many)) == names and len(list(os.scandir(many))) == 3000


def test_many_processes_at_once(mount):
    def work(number):
        place = mount.path / f"p{number}"
        place.mkdir()
        for i in range(40):
            path = place / f"f{i}"
            path.write_bytes(b"%d" % i * 500)
            if i % 3 == 0:
                os.rename(path, place / f"g{i}")
            elif i % 3 == 1:
                path.unlink()
            else:
                assert path.read_bytes() == b"%d" % i * 500
        return 0

    children = [begin_child(lambda number=number: work(number)) for number in range(32)]
    assert {end_of_child(child) for child in children} == {0}
    for number in range(32):
        assert sorted(os.listdir(mount.path / f"p{number}")) == sorted(
            [f"g{i}" for i in range(0, 40, 3)] + [f"f{i}" for i in range(2, 40, 3)])
    # Neither many requests nor the order in which the kernel takes buffers makes ever more threads.
    assert count_rings(mount) <= 1 + (WORKERS + IDLE) * os.cpu_count()


# ---- replies that come later ---------------------------------------------------------------------------------


def test_more_look_backs_than_threads(maker, hold):
    """All of one CPU's queue; the present goes on meanwhile."""
    mount = maker.mount("allow_other", "io_uring")
    path = mount.path / "f"
    # The kernel keeps a directory locked while a name in it is looked up, so that nothing can be created there.
    other = mount.path / "d/g"
    other.parent.mkdir()
    path.write_bytes(b"old")
    when = moment()
    path.write_bytes(b"new")
    with hold("looks"):
        ready, go = os.pipe()
        children = [looking_back(path, when + i, ready) for i in range(20 * WORKERS)]
        os.write(go, bytes(len(children)))
        wait_until(lambda: all(waits_for_daemon(child) for child in children))
        assert count_rings(mount) <= 1 + (WORKERS + IDLE) * os.cpu_count()
        assert end_of_child(on_processor(processor(), lambda: error_of(lambda: other.write_bytes(b"x")))) == 0
    assert {end_of_child(child) for child in children} == {0}
    assert path.read_bytes() == b"new"
    # And once more, with the buffers that there are now.
    for i in range(100):
        assert path.with_name(f"f@{epoch(when - 1 - i)}").read_bytes() == b"old"


def test_requests_that_block_their_thread(maker, hold):
    """Others of the same CPU are served by another thread."""
    mount = maker.mount("allow_other", "io_uring")

    def sync(name):
        with open(mount.path / name, "wb", buffering=0) as stream:
            stream.write(b"x")
            os.fsync(stream)
        return 0

    with hold("syncs"):
        children = [on_processor(processor(), lambda i=i: sync(f"s{i}")) for i in range(WORKERS - 2)]
        wait_until(lambda: all(waits_for_daemon(child) for child in children))
        for i in range(20):
            child = on_processor(processor(), lambda i=i: error_of(lambda: (mount.path / f"f{i}").write_bytes(b"x")))
            assert end_of_child(child) == 0
    assert {end_of_child(child) for child in children} == {0}


def test_look_backs_beside_blocked_threads(maker, hold):
    """With as many requests in work as may be; then a look-back leaves nobody behind that waits for requests."""
    mount = maker.mount("allow_other", "io_uring")
    path, other = mount.path / "f", mount.path / "d/g"
    other.parent.mkdir()
    path.write_bytes(b"old")
    when = moment()
    path.write_bytes(b"new")

    def sync(number):
        with open(mount.path / f"d/s{number}", "wb", buffering=0) as stream:
            os.fsync(stream)
        return 0

    with hold("syncs"), hold("looks"):
        children = [on_processor(processor(), lambda i=i: sync(i)) for i in range(WORKERS - 1)]
        wait_until(lambda: all(waits_for_daemon(child) for child in children))
        for i in range(3 * WORKERS):
            children.append(looking_back(path, when + i))
            wait_until(lambda: waits_for_daemon(children[-1]))
            child = on_processor(processor(), lambda i=i: error_of(lambda: other.write_bytes(b"%d" % i)))
            assert end_of_child(child) == 0
    assert {end_of_child(child) for child in children} == {0}


def test_many_that_follow(mount):
    """vlog --follow in larger number than there are threads; each prints the change."""
    (mount.path / "f").write_bytes(b"x")
    environment = mount.programs.environment()
    followers = [subprocess.Popen(["vlog", "--follow", mount.path], env=environment, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, cwd="/") for _ in range(2 * WORKERS)]
    try:
        for follower in followers:
            while "create" not in (line := follower.stdout.readline()):
                assert line, "it has ended"
        (mount.path / "later").write_bytes(b"y")
        for follower in followers:
            while "later" not in (line := follower.stdout.readline()):
                assert line, "it has ended"
    finally:
        for follower in followers:
            follower.kill()
            follower.wait()
            follower.stdout.close()


def test_a_waiting_look_back_is_interrupted(maker, hold):
    mount = maker.mount("allow_other", "io_uring")
    path = mount.path / "f"
    path.write_bytes(b"old")
    when = moment()
    path.write_bytes(b"new")
    with hold("looks"):
        children = [looking_back(mount.path / "f", when + i) for i in range(2 * WORKERS)]
        wait_until(lambda: all(waits_for_daemon(child) for child in children))
        for child in children[::2]:
            os.kill(child, signal.SIGINT if child % 3 else signal.SIGKILL)
        assert path.read_bytes() == b"new"
    ends = [end_of_child(child) for child in children]
    assert set(ends[1::2]) == {0} and all(end in (0, 1, 2, errno.EINTR, -signal.SIGINT, -signal.SIGKILL)
                                          for end in ends[::2])
    assert path.with_name(f"f@{epoch(when - 1)}").read_bytes() == b"old"


# ---- the end ------------------------------------------------------------------------------------------------


GONE = {errno.ENOTCONN, errno.ECONNABORTED, errno.ENODEV, errno.ECANCELED}  # ECANCELED: on its way to the daemon


def test_a_killed_daemon(maker, hold):
    """Those who wait for it are not left waiting."""
    mount = maker.mount("allow_other", "io_uring")
    path = mount.path / "f"
    path.write_bytes(b"old")
    when = moment()
    path.write_bytes(b"new")
    with hold("looks"), hold("syncs"):
        children = [looking_back(mount.path / "f", when + i) for i in range(2 * WORKERS)]
        children += [begin_child(lambda: error_of(lambda: os.fsync(os.open(path, os.O_RDWR))))]
        wait_until(lambda: all(waits_for_daemon(child) for child in children))
        mount.process.kill()
        mount.process.wait()
        assert {end_of_child(child) for child in children} <= GONE
        assert error_of(lambda: os.stat(path)) in GONE
    mount.kill()
    mount.start()
    assert path.read_bytes() == b"new" and (mount.path / f"f@{epoch(when)}").read_bytes() == b"old"


def test_unmounted_while_in_use(maker, hold):
    """Lazily: those who have it open work on, and then the daemon ends by itself."""
    mount = maker.mount("allow_other", "io_uring")
    (mount.path / "f").write_bytes(b"old")
    when = moment()
    (mount.path / "f").write_bytes(b"new")
    stream = open(mount.path / "f", "r+b", buffering=0)
    with hold("looks"):
        children = [looking_back(mount.path / "f", when + i) for i in range(WORKERS)]
        wait_until(lambda: all(waits_for_daemon(child) for child in children))
        run("umount", "-l", mount.path)
        stream.write(b"NEW")
        assert mount.process.poll() is None
    assert {end_of_child(child) for child in children} == {0}
    stream.close()
    process, mount.process = mount.process, None
    assert process.wait(timeout=LIMIT) == 0
    mount.start()
    assert (mount.path / "f").read_bytes() == b"NEW"


def test_the_connection_is_aborted(maker, hold):
    """With look-backs that reply after its end."""
    mount = maker.mount("allow_other", "io_uring")
    mount.expect("Software caused connection abort")
    (mount.path / "f").write_bytes(b"old")
    when = moment()
    device = os.stat(mount.path).st_dev
    control = Path("/sys/fs/fuse/connections")
    if not any(control.iterdir()):
        run("mount", "-t", "fusectl", "fusectl", control)
    with hold("looks"):
        children = [looking_back(mount.path / "f", when + i) for i in range(2 * WORKERS)]
        wait_until(lambda: all(waits_for_daemon(child) for child in children))
        (control / str(os.minor(device)) / "abort").write_text("1", encoding="ascii")
        assert {end_of_child(child) for child in children} <= GONE
    process, mount.process = mount.process, None
    assert process.wait(timeout=LIMIT) == 0
    run("umount", "-l", mount.path)
    mount.start()
    assert (mount.path / "f").read_bytes() == b"old"


def test_a_signal_ends_it(mount):
    """While another process works on; one that has a file open does not prevent it."""
    def work():
        for i in range(10**9):
            error = error_of(lambda i=i: (mount.path / f"f{i % 20}").write_bytes(b"x" * 5000))
            if error:
                return 0 if error in GONE or mounted_at(mount.path) is None else error
        return 1

    children = [begin_child(work) for _ in range(4)]
    wait_until(lambda: (mount.path / "f5").exists())
    # From now on the files are created in the bare directory below.
    process, mount.process = mount.process, None
    process.terminate()
    assert process.wait(timeout=LIMIT) == 0
    for child in children:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        end_of_child(child)
    assert mounted_at(mount.path) is None
    run("sh", "-c", f"rm -f {mount.path}/f*")
    mount.start()
    assert transport(mount) == "io_uring"


def test_what_was_carried_out_is_answered_at_the_end(maker, hold):
    """Also by a server whose operation takes longer than the daemon waits for others."""
    mount = maker.mount("allow_other", "io_uring")

    def sync():
        with open(mount.path / "f", "wb", buffering=0) as stream:
            stream.write(b"x")
            os.fsync(stream)

    with hold("syncs"):
        child = begin_child(lambda: error_of(sync))
        wait_until(lambda: waits_for_daemon(child))
        process, mount.process = mount.process, None
        process.terminate()
        tasks = Path(f"/proc/{process.pid}/task")
        wait_until(lambda: not any(names_in(tasks, "fuse_dispatcher")))
    assert end_of_child(child) == 0
    assert process.wait(timeout=LIMIT) == 0
    mount.start()
    assert (mount.path / "f").read_bytes() == b"x"


def names_in(tasks, name):
    """The tasks of that name; one that has ended has none."""
    for task in tasks.iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if (task / "comm").read_text(encoding="ascii").strip() == name:
                yield task


def test_no_descriptor_is_left(mount):
    """Each CPU has a server from the beginning."""
    pid = mount.process.pid
    count = len(os.listdir(f"/proc/{pid}/fd"))
    run("prlimit", "--pid", pid, f"--nofile={count}:")
    for number in sorted(os.sched_getaffinity(0)):
        child = on_processor(number, lambda i=number: error_of(lambda: os.stat(mount.path / f"absent{i}")))
        assert end_of_child(child) == errno.ENOENT
    run("prlimit", "--pid", pid, "--nofile=1024:")
    (mount.path / "f").write_bytes(b"x")


def test_mounted_again_and_again(mount):
    for i in range(10):
        (mount.path / f"f{i}").write_bytes(b"x" * i)
        mount.remount()
    assert sorted(os.listdir(mount.path)) == [f"f{i}" for i in range(10)]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda i: (mount.path / f"f{i}").stat().st_size, range(10))) == list(range(10))


def test_rings_do_not_become_more(mount):
    """However often it is used."""
    (mount.path / "f").write_bytes(b"old")
    when = moment()

    def look(begin):
        for i in range(200):
            (mount.path / f"f@{epoch(when + begin + i)}").stat()
            (mount.path / "f").write_bytes(b"%d" % i)

    look(0)
    before = count_rings(mount)
    look(1000)
    assert count_rings(mount) <= before + 2
