# SPDX-License-Identifier: LGPL-2.1-or-later
"""-o auto_remount: a daemon that dies is replaced by another one; one that was stopped is not."""
import errno
import os
import shutil
import signal
import threading
import time

import pytest

from mounts import LIMIT, NOBODY, QUICK, as_user, epoch, moment, mounted_at, run
from preload import preloaded


def wait_until(condition):
    deadline = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def processes(point):
    """Ours that were started for that mount point: [supervisor, daemon] as long as both exist."""
    parents = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/cmdline", "rb") as stream:
                words = stream.read().split(b"\0")
            with open(f"/proc/{entry}/stat", encoding="ascii", errors="replace") as stream:
                parent = stream.read().rsplit(") ", 1)[1].split()[1]
        except OSError:
            continue  # it has just ended
        if words[0].endswith(b"/wayback") and os.fsencode(point) in words:
            parents[int(entry)] = int(parent)
    return sorted(parents, key=lambda pid: parents[pid] in parents)


def answers(path):
    try:
        os.statvfs(path)
        os.stat(path / "f")
        return True
    except OSError as error:
        # EIO: of a request that the daemon was about to read when it died.
        assert error.errno in (errno.ENOTCONN, errno.ECONNABORTED, errno.EIO, errno.ENOENT), error
        return False


@pytest.fixture(name="kept")
def fixture_kept(maker, programs):
    """(source, point) of a mount that is kept."""
    source, point = maker.tree(), maker.point()
    run(programs.directory / "wayback", "-o", "auto_remount,allow_other", source, point,
        env=programs.environment(), timeout=LIMIT)
    yield source, point
    for pid in processes(point):
        os.kill(pid, signal.SIGKILL)
    while mounted_at(point):
        run("umount", "-l", point)


def test_a_daemon_that_dies_is_followed_by_another(kept):
    source, point = kept
    (point / "f").write_bytes(b"one")
    when = moment()
    for number in (signal.SIGKILL, signal.SIGABRT):
        supervisor, daemon = processes(point)
        with open(point / "f", "rb") as stream:
            os.kill(daemon, number)
            wait_until(lambda old=daemon: old not in processes(point) and len(processes(point)) == 2)
            wait_until(lambda: answers(point))
            # Open files belong to the mount that is gone.
            with pytest.raises(OSError):
                os.fsync(stream.fileno())
        assert processes(point)[0] == supervisor
        (point / "f").write_bytes(b"after " + str(number).encode())
    assert (point / f"f@{epoch(when)}").read_bytes() == b"one"
    run("umount", point)
    wait_until(lambda: not processes(point))
    assert mounted_at(point) is None and sorted(os.listdir(source)) == [".wayback", "f"]


def test_an_unmounted_mount_is_not_mounted_again(kept):
    _, point = kept
    supervisor, _ = processes(point)
    os.kill(supervisor, signal.SIGTERM)
    wait_until(lambda: not processes(point))
    assert mounted_at(point) is None


def test_a_dead_mount_removed_by_hand_is_not_mounted_again(kept):
    _, point = kept
    (point / "f").write_bytes(b"there as long as the mount lives")
    supervisor, daemon = processes(point)
    os.kill(supervisor, signal.SIGSTOP)
    os.kill(daemon, signal.SIGKILL)
    wait_until(lambda: not answers(point))
    run("umount", "-l", point)
    os.kill(supervisor, signal.SIGCONT)
    wait_until(lambda: not processes(point))
    assert mounted_at(point) is None


def test_it_is_not_for_branches(maker, programs):
    result = run(programs.directory / "wayback", "-o", f"auto_remount,at=now,branch={maker.scratch}/b", maker.tree(),
                 maker.point(), check=False, env=programs.environment(), timeout=LIMIT)
    assert result.returncode == 2 and "auto_remount" in result.stdout


# ---- in place: no path leads to the bare SRC ----------------------------------------------------------


class Writer(threading.Thread):
    """Creates files and overwrites one while the daemon is killed; notes which states it has seen, and on which
    device."""

    def __init__(self, path, number):
        super().__init__(daemon=True)
        self.path, self.name = path, f"w{number}"
        self.stopping = threading.Event()
        self.states = []   # (moment, content) of the file that is overwritten
        self.created = []  # (a moment before, name)
        self.devices = set()

    def run(self):
        turn = 0
        while not self.stopping.is_set():
            turn += 1
            time.sleep(0.001)  # so that the disk has enough space
            content = b"%s %d" % (self.name.encode(), turn)
            try:
                before = moment()
                with open(self.path / f"{self.name}-{turn}", "xb", buffering=0) as stream:
                    self.devices.add(os.fstat(stream.fileno()).st_dev)
                    stream.write(content)
                self.created.append((before, f"{self.name}-{turn}"))
                with open(self.path / self.name, "wb", buffering=0) as stream:
                    stream.write(content)
                self.states.append((moment(), content))
            except OSError as error:
                assert error.errno in (errno.ENOTCONN, errno.ECONNABORTED, errno.EIO), error


def mount_in_place(programs, path, *options):
    run(programs.directory / "wayback", "-o", ",".join(["auto_remount", "allow_other", *options]), path,
        env=programs.environment(), timeout=LIMIT)


def is_served(path, old):
    try:
        return old not in processes(path) and len(processes(path)) == 2 and os.statvfs(path) is not None
    except OSError:
        return False


def is_served_to_its_user(path, old):
    """Others, who may not use it, do not see that a mount is dead."""
    try:
        as_user(lambda: os.statvfs(path), *NOBODY)
    except OSError:
        return False
    return old not in processes(path) and len(processes(path)) == 2 and mounted_at(path) == "fuse.wayback"


def let_write(writers):
    counts = [len(writer.states) + 10 for writer in writers]
    wait_until(lambda: all(len(writer.states) > count for writer, count in zip(writers, counts)))


def kill_three_times(programs, path, options, writers):
    """Twice the supervisor mounts again; then it dies as well, and the dead mount is mounted over by hand."""
    for _ in range(2):
        let_write(writers)
        daemon = processes(path)[1]
        os.kill(daemon, signal.SIGKILL)
        wait_until(lambda old=daemon: is_served(path, old))
    let_write(writers)
    for pid in processes(path):
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not processes(path))
    mount_in_place(programs, path, *options)


def check_states(path, writers):
    for writer in writers:
        assert len(writer.states) > 50 and len(writer.created) > 50
        for when, content in writer.states:
            try:
                assert (path / f"{writer.name}@{epoch(when)}").read_bytes() == content
            except OSError as error:
                assert error.errno == errno.EIO, (error, when)
        for before, name in writer.created:
            with pytest.raises(OSError) as refused:
                os.stat(path / f"{name}@{epoch(before)}")
            assert refused.value.errno in (errno.ENOENT, errno.EIO), (name, before)


@pytest.fixture(name="place", params=["a directory", "a file system of its own", "a store elsewhere"])
def fixture_place(request, maker, file_systems):
    """(SRC, options)."""
    root = None
    if request.param == "a file system of its own":
        root = path = file_systems.make("ext4", maker.scratch.name + "-own", 512)
    else:
        path = maker.tree()
    options = [f"store={path}.history"] if request.param == "a store elsewhere" else []
    yield path, options
    for pid in processes(path):
        os.kill(pid, signal.SIGKILL)
    while (mounted_at(path) or "").startswith("fuse"):
        run("umount", "-l", path)
    shutil.rmtree(f"{path}.history", ignore_errors=True)
    if root:
        wait_until(lambda: run("umount", root, check=False).returncode == 0)
        root.with_name(root.name + ".img").unlink()


def check_that_no_path_leads_to_the_bare_tree(path, options, programs, rounds):
    bare = os.stat(path).st_dev
    mount_in_place(programs, path, *options)
    writers = [Writer(path, number) for number in range(2)]
    for writer in writers:
        writer.start()
    for _ in range(rounds):
        kill_three_times(programs, path, options, writers)
    let_write(writers)
    for writer in writers:
        writer.stopping.set()
        writer.join()
    assert not any(bare in writer.devices for writer in writers)
    check_states(path, writers)
    # Nothing is left below: one mount, and no dead one.
    run("umount", path)
    wait_until(lambda: not processes(path))
    assert os.stat(path).st_dev == bare
    result = run(programs.directory / "vfsck", *([f"--store={options[0][6:]}"] if options else []), path, check=False,
                 env=programs.environment())
    assert result.returncode == 0, result.stdout


def test_no_path_leads_to_the_bare_tree_while_it_is_mounted_again(place, programs):
    check_that_no_path_leads_to_the_bare_tree(*place, programs, 3 if QUICK else 7)


# As kernels before 6.5, which do not have MOVE_MOUNT_BENEATH; each refusal is counted.
OLD_KERNEL = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

long syscall(long number, ...)
{
    static long (*real)(long, ...);
    long a[6];
    va_list list;

    va_start(list, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(list, long);
    va_end(list);
    if (!real)
        real = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
    if (number == 429 && a[4] & 0x200) {
        int fd = open(getenv("REFUSALS"), O_WRONLY | O_APPEND);

        if (fd < 0 || write(fd, "x", 1) != 1)
            abort();
        close(fd);
        errno = EINVAL;
        return -1;
    }
    return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
"""


def test_no_path_leads_to_the_bare_tree_on_kernels_that_only_mount_on_top(place, maker, programs):
    refusals = maker.scratch / "refusals"
    refusals.touch()
    with preloaded(maker.scratch, OLD_KERNEL, REFUSALS=refusals):
        check_that_no_path_leads_to_the_bare_tree(*place, programs, 2)
    assert refusals.stat().st_size == 6


def test_an_ordinary_user_mounts_in_place_again(maker, programs):
    path = maker.tree(owner=NOBODY)
    user = ["setpriv", f"--reuid={NOBODY[0]}", f"--regid={NOBODY[1]}", "--clear-groups"]
    command = [*user, programs.directory / "wayback", "-o", "auto_remount", path]

    def write(text):
        as_user(lambda: (path / "f").write_bytes(text), *NOBODY)

    def read(when):
        return as_user(lambda: (path / f"f@{epoch(when)}").read_bytes(), *NOBODY)

    run(*command, env=programs.environment(), timeout=LIMIT)
    try:
        write(b"one")
        when = moment()
        write(b"two")
        daemon = processes(path)[1]
        os.kill(daemon, signal.SIGKILL)
        wait_until(lambda: is_served_to_its_user(path, daemon))
        write(b"three")
        assert read(when) == b"one"
        for pid in processes(path):
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not processes(path))
        run(*command, env=programs.environment(), timeout=LIMIT)
        assert read(when) == b"one"
    finally:
        run(*user, "fusermount3", "-u", path)
    wait_until(lambda: not processes(path))


# At the point at which libfuse makes the socket for fusermount3, another process writes to the file, if it can be
# reached: SRC is bare then.
WRITES_MEANWHILE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

int socketpair(int domain, int type, int protocol, int fds[2])
{
    int (*real)(int, int, int, int *) = (int (*)(int, int, int, int *))dlsym(RTLD_NEXT, "socketpair");
    int fd = open(getenv("FILE_IN_SRC"), O_WRONLY | O_CLOEXEC);

    if (fd >= 0 && write(fd, "bare!", 5) != 5)
        abort();
    if (fd >= 0)
        close(fd);
    return real(domain, type, protocol, fds);
}
"""


def test_writes_of_an_ordinary_user_while_src_is_bare_are_a_gap(maker, programs):
    """fusermount3 refuses a dead mount as the mount point, so it is detached before."""
    path = maker.tree(owner=NOBODY)
    user = ["setpriv", f"--reuid={NOBODY[0]}", f"--regid={NOBODY[1]}", "--clear-groups"]

    def write(text):
        as_user(lambda: (path / "f").write_bytes(text), *NOBODY)
        return moment()

    def read(when):
        return as_user(lambda: (path / f"f@{epoch(when)}").read_bytes(), *NOBODY)

    with preloaded(maker.scratch, WRITES_MEANWHILE, FILE_IN_SRC=path / "f"):
        run(*user, programs.directory / "wayback", "-o", "auto_remount", path, env=programs.environment(), timeout=LIMIT)
    try:
        first = write(b"first")
        whole = write(b"whole")
        daemon = processes(path)[1]
        os.kill(daemon, signal.SIGKILL)
        wait_until(lambda: is_served_to_its_user(path, daemon))
        assert as_user((path / "f").read_bytes, *NOBODY) == b"bare!"
        last = write(b"last!")
        assert read(first) == b"first" and read(last) == b"last!"
        with pytest.raises(OSError) as refused:
            read(whole)
        assert refused.value.errno == errno.EIO
    finally:
        run(*user, "fusermount3", "-u", path)
    wait_until(lambda: not processes(path))
