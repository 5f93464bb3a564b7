# SPDX-License-Identifier: LGPL-2.1-or-later
"""Set-user-ID, set-group-ID, capabilities and inherited ACLs as on the bare file system; and the privileges that root's
daemon keeps."""
import errno
import itertools
import os
import random
import signal
import stat
import struct
import time

import pytest

from accounts import ACCOUNTS, ACL, CLUB, TEAM, acl, run_as
from mounts import LANDLOCK, LIMIT, NOBODY, QUICK, epoch, has_landlock, moment, mounted_at, run
from preload import preloaded

DEFAULT = "system.posix_acl_default"
CAPABILITY = "security.capability"
NET_RAW = struct.pack("<IIIII", 0x02000001, 1 << 13, 0, 0, 0)
WHO = ("root",) + tuple(ACCOUNTS)
CASES = 150 if QUICK else 400


def act(who, function, umask=0o022):
    if who != "root":
        return run_as(who, function, umask)
    before = os.umask(umask)
    try:
        return function()
    finally:
        os.umask(before)


def opened(path, flags, function):
    fd = os.open(path, flags)
    try:
        return function(fd)
    finally:
        os.close(fd)


def fallocate(mode):
    import ctypes  # pylint: disable=C0415
    libc = ctypes.CDLL(None, use_errno=True)

    def call(path):
        def allocate(fd):
            if libc.fallocate(fd, mode, ctypes.c_long(4096), ctypes.c_long(4096)):
                raise OSError(ctypes.get_errno(), "fallocate")
        opened(path, os.O_RDWR, allocate)
    return call


def copy_range(path):
    with open(path.parent / "from", "rb") as source:
        opened(path, os.O_RDWR, lambda fd: os.copy_file_range(source.fileno(), fd, 100))


CHANGES = {
    "write": lambda p: opened(p, os.O_WRONLY, lambda fd: os.pwrite(fd, b"x", 5)),
    "append": lambda p: opened(p, os.O_WRONLY | os.O_APPEND, lambda fd: os.write(fd, b"x")),
    "nothing written": lambda p: opened(p, os.O_WRONLY, lambda fd: os.write(fd, b"")),
    "open with O_TRUNC": lambda p: opened(p, os.O_WRONLY | os.O_TRUNC, lambda fd: None),
    "truncate": lambda p: os.truncate(p, 3),
    "truncate to the same size": lambda p: os.truncate(p, 10000),
    "ftruncate": lambda p: opened(p, os.O_RDWR, lambda fd: os.ftruncate(fd, 20000)),
    "fallocate": fallocate(0), "punch": fallocate(3), "zero": fallocate(16),
    "copy_file_range": copy_range,
    "chown to the same": lambda p: os.chown(p, -1, -1),
    "chown to another group": lambda p: os.chown(p, -1, CLUB),
    "chown to the own group": lambda p: os.chown(p, -1, os.getegid()),
    "chmod": lambda p: os.chmod(p, 0o6775),
    "an acl": lambda p: os.setxattr(p, ACL, acl(7, 5, 5, users={4001: 7})),
    "utime": lambda p: os.utime(p, (5, 5)),
    "remove the capability": lambda p: os.removexattr(p, CAPABILITY),
    "set a capability": lambda p: os.setxattr(p, CAPABILITY, NET_RAW),
    "link": lambda p: os.link(p, p.with_name("linked")),
    "rename": lambda p: os.rename(p, p.with_name("renamed")),
}
# mode, owner, group, with a capability
PROGRAMS = [(0o6777, 4001, TEAM, False), (0o4755, 4001, 4001, False), (0o2775, 4001, CLUB, False), (0o2766, 4002, 4003, False),
            (0o6766, 4002, TEAM, False), (0o666, 4003, 4003, True), (0o777, 0, 0, True), (0o2777, 0, TEAM, False)]


def shown(directory):
    found = {}
    for path in sorted(directory.rglob("*")):
        status = path.lstat()
        found[str(path.relative_to(directory))] = (
            oct(status.st_mode), status.st_uid, status.st_gid, status.st_size if stat.S_ISREG(status.st_mode) else 0,
            status.st_rdev, {n: attempt_xattr(path, n) for n in (CAPABILITY, ACL, DEFAULT)})
    return found


def attempt_xattr(path, name):
    try:
        return os.getxattr(path, name, follow_symlinks=False)
    except OSError:
        return None


def compare(roots, cases, prepare, perform):
    """prepare(directory, case) and perform(directory, case), by case[0], in both trees; the results must be equal.

    All of one account at once, because a process for each would cost more than all the rest.
    """
    def place(root, case):
        return root / "-".join(f"{part:o}" if isinstance(part, int) else part for part in case)

    def work(root, who):
        errors = []
        for case in cases:
            if case[0] == who:
                try:
                    perform(place(root, case), case)
                    errors.append((case, 0))
                except OSError as error:
                    errors.append((case, error.errno))
        return errors

    cases = random.Random(len(cases)).sample(cases, CASES)
    for root in roots:
        for case in cases:
            place(root, case).mkdir()
            prepare(place(root, case), case)
    for who in WHO:
        results = [act(who, lambda: work(root, who)) for root in roots]  # pylint: disable=W0640
        assert results[0] == results[1]
    found = shown(roots[1])
    for path, wanted in shown(roots[0]).items():
        assert found[path] == wanted, path


def test_privileges_of_files_as_on_the_bare_file_system(mount, maker):
    past = {}

    def prepare(directory, case):
        mode, uid, gid, capable = PROGRAMS[case[2]]
        directory.chmod(0o777)
        (directory / "from").write_bytes(bytes(range(100)))
        path = directory / "f"
        path.write_bytes(b"program..." * 1000)
        os.chown(path, uid, gid)
        path.chmod(mode)
        if capable:
            os.setxattr(path, CAPABILITY, NET_RAW)
        past[path] = (moment(), os.lstat(path).st_mode)

    def perform(directory, case):
        try:
            CHANGES[case[1]](directory / "f")
        except OSError:
            # No request reaches the daemon for it, so that it cannot report a refusal.
            if case[1] != "chown to the same":
                raise

    cases = list(itertools.product(WHO, CHANGES, range(len(PROGRAMS))))
    compare((maker.tree(), mount.path), cases, prepare, perform)
    for path, (when, mode) in past.items():
        if str(path).startswith(str(mount.path)):
            assert os.lstat(f"{path}@{epoch(when)}").st_mode == mode


def make_tmpfile(directory, mode, exclusive=False):
    fd = os.open(directory, os.O_TMPFILE | os.O_RDWR | (os.O_EXCL if exclusive else 0), mode)
    try:
        os.write(fd, b"x")
        os.link(f"/proc/thread-self/fd/{fd}", directory / "tmpfile", follow_symlinks=True)
    finally:
        os.close(fd)


BIRTHS = {
    "file": lambda d, mode: os.close(os.open(d / "file", os.O_CREAT | os.O_RDWR, mode)),
    "mkdir": lambda d, mode: os.mkdir(d / "dir", mode),
    "deep": lambda d, mode: (os.mkdir(d / "dir", mode | 0o700), os.mkdir(d / "dir/dir", mode)),
    "symlink": lambda d, mode: os.symlink("x", d / "link"),
    "fifo": lambda d, mode: os.mkfifo(d / "fifo", mode),
    "mknod": lambda d, mode: os.mknod(d / "node", stat.S_IFREG | mode),
    "device": lambda d, mode: os.mknod(d / "null", stat.S_IFCHR | mode, os.makedev(1, 3)),
    "tmpfile": make_tmpfile,
    "tmpfile that stays nameless": lambda d, mode: make_tmpfile(d, mode, True),
}
# mode, group, default ACL
PLACES = [(0o777, 0, None), (0o2777, TEAM, None), (0o2777, 4003, None), (0o777, 0, acl(7, 5, 0, users={4003: 7}, mask=7)),
          (0o2777, CLUB, acl(7, 7, 5)), (0o3777, TEAM, acl(6, 4, 0, users={4001: 6}, groups={CLUB: 7}, mask=5))]


def test_new_files_inherit_as_on_the_bare_file_system(mount, maker):
    def prepare(directory, case):
        mode, gid, default = PLACES[case[2]]
        os.chown(directory, 0, gid)
        directory.chmod(mode)
        if default:
            os.setxattr(directory, DEFAULT, default)

    def perform(directory, case):
        os.umask(case[4])
        BIRTHS[case[1]](directory, case[3])

    cases = list(itertools.product(WHO, BIRTHS, range(len(PLACES)), (0o666, 0o2777, 0o6771), (0o022, 0o077)))
    before = os.umask(0o022)
    try:
        compare((maker.tree(), mount.path), cases, prepare, perform)
    finally:
        os.umask(before)


# ---- privileges of the daemon ------------------------------------------------------------------------

KEPT = {0, 1, 3, 4, 6, 7, 9, 27, 31}
# CHOWN DAC_OVERRIDE FOWNER FSETID SETGID SETUID LINUX_IMMUTABLE MKNOD SETFCAP
KEPT_BY_HELPER = {2, 21}
# DAC_READ_SEARCH SYS_ADMIN


def status(pid):
    """{field: value} of every thread."""
    threads = []
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/status", encoding="ascii", errors="replace") as stream:
            threads.append(dict(line.rstrip("\n").split(":\t", 1) for line in stream if ":\t" in line))
    return threads


def capabilities(thread, which):
    bits = int(thread["Cap" + which], 16)
    return {i for i in range(64) if bits >> i & 1}


def check_kept(pid):
    hidden = {19} if "hidepid=" in open("/proc/self/mounts", encoding="utf-8", errors="replace").read() else set()
    threads = status(pid)
    for thread in threads:
        for which in ("Prm", "Bnd"):
            assert capabilities(thread, which) <= KEPT | hidden, which
        # While it creates something for a caller, a thread has less.
        assert capabilities(thread, "Eff") <= capabilities(thread, "Prm")
        assert capabilities(thread, "Inh") == capabilities(thread, "Amb") == set()
        assert (thread["NoNewPrivs"], thread["Seccomp"]) == ("1", "2")
    return threads


def helper_of(pid):
    """The process that keeps CAP_SYS_ADMIN for a daemon."""
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as stream:
        children = stream.read().split()
    assert len(children) == 1
    return int(children[0])


def files_of(pid):
    files = set()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            files.add(os.readlink(f"/proc/{pid}/fd/{fd}").split(":")[0])
        except FileNotFoundError:
            continue
    return files


def wait_until(condition):
    deadline = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def check_helper(pid):
    [thread] = status(pid)
    assert thread["Name"] == "wayback-helper"
    for which in ("Prm", "Eff", "Bnd"):
        assert capabilities(thread, which) <= KEPT_BY_HELPER, which
    assert (thread["NoNewPrivs"], thread["Seccomp"]) == ("1", "2")
    # What a request came with is closed after the reply.
    wait_until(lambda: files_of(pid) == {"/dev/null", "socket"})
    assert os.readlink(f"/proc/{pid}/cwd") == "/"
    with open(f"/proc/{pid}/maps", encoding="utf-8") as maps:
        assert "inflight" not in maps.read()


def use_everything(root):
    """Everything that only a daemon can do that has kept the privileges it needs."""
    (root / "d").mkdir()
    os.chmod(root / "d", 0o777)
    run_as("anna", lambda: (root / "d/f").write_bytes(b"one"))
    assert (root / "d/f").stat().st_uid == 4001
    os.chmod(root / "d", 0o700)
    os.chown(root / "d/f", 4002, CLUB)
    os.chmod(root / "d/f", 0o2070)
    os.utime(root / "d/f", (5, 5))
    (root / "d/f").write_bytes(b"two")
    os.setxattr(root / "d/f", CAPABILITY, NET_RAW)
    os.setxattr(root / "d/f", "trusted.x", b"x")
    os.setxattr(root / "d/f", "security.x", b"x")
    os.mknod(root / "d/null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    os.link(root / "d/f", root / "d/g")
    (root / "d/f").unlink()
    (root / "d/g").unlink()


def test_a_daemon_of_root_keeps_only_the_needed_privileges(mount):
    check_kept(mount.process.pid)
    use_everything(mount.path)
    when = moment()
    (mount.path / "d" / "h").write_bytes(b"later")
    threads = check_kept(mount.process.pid)
    check_helper(helper_of(mount.process.pid))
    assert len(threads) > 1
    assert any(capabilities(thread, "Eff") == KEPT for thread in threads)
    mount.tool("vrevert", "--time", epoch(when), mount.path / "d")
    mount.tool("vsnap", "create", "one", mount.path)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_can_still_unmount(mount, number):
    (mount.path / "f").write_bytes(b"x")
    process, mount.process = mount.process, None
    process.send_signal(number)
    assert process.wait(timeout=LIMIT) == 0 and mounted_at(mount.path) is None
    mount.start()


def test_moments_and_branches_keep_no_more(mount, maker):
    (mount.path / "f").write_bytes(b"x")
    shown_at = maker.mount("allow_other", f"at={epoch(moment())}", *mount.store_options(), source=mount.source)
    check_kept(shown_at.process.pid)
    assert run_as("anna", lambda: (shown_at.path / "f").read_bytes()) == b"x"


def test_a_daemon_of_an_ordinary_user_can_still_run_fusermount(maker):
    mount = maker.mount(user=NOBODY)
    for thread in status(mount.process.pid):
        assert capabilities(thread, "Prm") == capabilities(thread, "Eff") == set()
        assert (thread["NoNewPrivs"], thread["Seccomp"]) == ("0", "0")
    process, mount.process = mount.process, None
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=LIMIT) == 0 and mounted_at(mount.path) is None


# A daemon that an attacker has taken over: with each new directory it opens a socket to the world, which fails.
TAKEN_OVER = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <sys/socket.h>
#include <sys/stat.h>

int mkdirat(int fd, const char *name, mode_t mode)
{
    int (*real)(int, const char *, mode_t) = (int (*)(int, const char *, mode_t))dlsym(RTLD_NEXT, "mkdirat");

    if (name[0] == 'x' && (socket(AF_INET, SOCK_STREAM, 0) >= 0 || errno != ENOSYS)) {
        errno = EBADE;
        return -1;
    }
    return real(fd, name, mode);
}
"""


def test_a_system_call_that_is_not_needed_is_refused_and_reported(maker, tmp_path):
    with preloaded(tmp_path, TAKEN_OVER):
        mount = maker.mount()
    mount.expect("the daemon made system call")
    for number in range(3):
        (mount.path / f"x{number}").mkdir()
    deadline = time.monotonic() + LIMIT
    while "system call" not in mount.log():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert (mount.path / "x2").is_dir()
    process, mount.process = mount.process, None
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=LIMIT) == 0 and mounted_at(mount.path) is None
    assert mount.log().count("system call") == 1


def test_without_its_helper_it_continues_to_serve(mount):
    """Requests that only the helper can do fail."""
    (mount.path / "f").write_bytes(b"x")
    mount.expect("the mount helper has ended")
    os.kill(helper_of(mount.process.pid), signal.SIGKILL)
    for call in (lambda: os.setxattr(mount.path / "f", "trusted.x", b"x"), lambda: os.listxattr(mount.path / "f")):
        with pytest.raises(OSError) as failed:
            call()
        assert failed.value.errno == errno.EIO
    os.setxattr(mount.path / "f", "user.x", b"x")
    assert os.getxattr(mount.path / "f", "user.x") == b"x"
    run("umount", mount.path)
    process, mount.process = mount.process, None
    assert process.wait(timeout=LIMIT) == 0
    assert mount.log().count("helper") == 1


# Taken over, it opens files outside of the tree, by their names and from a directory of the tree, with each new
# directory.
STRAYS = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

int mkdirat(int fd, const char *name, mode_t mode)
{
    int (*real)(int, const char *, mode_t) = (int (*)(int, const char *, mode_t))dlsym(RTLD_NEXT, "mkdirat");

    if (name[0] == 'x' && (openat(AT_FDCWD, getenv("VICTIM"), O_RDONLY) >= 0 || errno != EACCES ||
                           openat(AT_FDCWD, getenv("VICTIM"), O_WRONLY) >= 0 || errno != EACCES ||
                           openat(AT_FDCWD, "/proc/sys/kernel/core_pattern", O_WRONLY) >= 0 || errno != EACCES ||
                           openat(fd, "../../../../../../../etc/passwd", O_RDONLY) >= 0 || errno != EACCES ||
                           unlinkat(AT_FDCWD, getenv("VICTIM"), 0) == 0 || errno != EACCES)) {
        errno = EBADE;
        return -1;
    }
    return real(fd, name, mode);
}
"""


@pytest.mark.skipif(not has_landlock(), reason="this kernel has no Landlock")
@pytest.mark.parametrize("elsewhere", [False, True], ids=["in the tree", "elsewhere"])
def test_with_landlock_it_is_confined_to_the_tree_and_the_store(maker, tmp_path, elsewhere):
    victim = maker.tree() / "victim"
    victim.write_bytes(b"as it was")
    options = ["allow_other", *([f"store={maker.tree()}"] if elsewhere else [])]
    with preloaded(tmp_path, STRAYS, VICTIM=victim):
        if not LANDLOCK:
            strays = maker.mount(*options[:1])
            with pytest.raises(OSError) as came:
                (strays.path / "x").mkdir()
            assert came.value.errno == errno.EBADE
        mount = maker.mount("landlock", *options)
    (mount.path / "x").mkdir()
    assert victim.read_bytes() == b"as it was"
    check_kept(mount.process.pid)
    use_everything(mount.path)
    when = moment()
    (mount.path / "d/h").write_bytes(b"later")
    os.rename(mount.path / "d/h", mount.path / "x/h")
    mount.tool("vrevert", "--time", epoch(when), mount.path / "d")
    mount.tool("vsnap", "create", "one", mount.path)
    refused = mount.tool("vstore", "move", mount.path, maker.tree(), status=1)
    assert "landlock" in refused.stdout
    process, mount.process = mount.process, None
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=LIMIT) == 0 and mounted_at(mount.path) is None


def test_landlock_is_for_mounts_of_root(maker):
    status_of_mount, output = maker.mount(user=NOBODY, start=False).refused("landlock")
    assert status_of_mount == 1 and "landlock is for mounts of root" in output


def test_the_filter_can_be_left_out(maker, tmp_path):
    with preloaded(tmp_path, TAKEN_OVER):
        mount = maker.mount("noseccomp")
    with pytest.raises(OSError) as refused:
        (mount.path / "x").mkdir()
    assert refused.value.errno == errno.EBADE
    assert {thread["Seccomp"] for thread in status(mount.process.pid)} == {"0"}
