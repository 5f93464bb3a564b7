# SPDX-License-Identifier: LGPL-2.1-or-later
"""The acts during which the daemon is killed, or its system calls fail: one system call of a program, or one tool, on a
small tree with entries of every kind.

An Act changes the tree it is given. `steps`: it is made of several changes, and may be left half done. `forgets`: names
whose past it removes; done again, nothing of it must be left. `undone`: it takes several system calls, which are undone
if one fails; if nothing works any more, that does not either. `after`: the act that has to be done before.
"""
import ctypes
import errno
import mmap
import os
import random
import stat
from typing import Callable, NamedTuple

from mounts import LIMIT, epoch
from operations import EXCHANGE, KEEP_SIZE, PUNCH, ZERO, fallocate, renameat2

WHITEOUT = 4
BIG = 2_500_000
SHORT = errno.EINTR  # no call on a file system returns it of itself
_libc = ctypes.CDLL(None, use_errno=True)


class Act(NamedTuple):
    name: str
    run: Callable      # (directory, mount, the time when the scene was ready)
    prepare: Callable  # (directory): changes made before that
    steps: bool
    forgets: tuple
    undone: bool
    after: str


ACTS = {}


def act(prepare=None, steps=False, forgets=(), undone=False, after=None):
    def add(function):
        ACTS[function.__name__] = Act(function.__name__, function, prepare, steps, forgets, undone, after)
        return function
    return add


def make_scene(d):
    """d: an empty directory."""
    content = random.Random(5).randbytes(20_000)
    for name, data in (("f", content), ("g", b"small\n"), ("h", content[:6000])):
        with open(f"{d}/{name}", "wb", buffering=0) as stream:
            stream.write(data)
    os.setxattr(f"{d}/f", "user.a", b"one")
    os.link(f"{d}/h", f"{d}/h2")
    for name in ("e", "e2", "s"):
        os.mkdir(f"{d}/{name}")
    os.setxattr(f"{d}/s", "user.d", b"of a directory")
    with open(f"{d}/s/x", "wb") as stream:
        stream.write(b"below")
    os.symlink("f", f"{d}/l")


def make_big(d):
    """Written in parts, so that cutting it off takes several records."""
    with open(f"{d}/big", "wb") as stream:
        stream.write(random.Random(6).randbytes(BIG))


def lose(d):
    os.unlink(f"{d}/g")
    with open(f"{d}/f", "r+b", buffering=0) as stream:
        stream.write(b"X" * 9000)


def on_file(path, flags, function):
    fd = os.open(path, flags)
    try:
        return function(fd)
    finally:
        os.close(fd)


def all_of(written, data):
    """A call that writes less than requested is as good as one that fails: it has ended."""
    if written < len(data):
        raise OSError(SHORT, "written in part")


def write_at(path, data, offset):
    all_of(on_file(path, os.O_WRONLY, lambda fd: os.pwrite(fd, data, offset)), data)


def allocate(path, mode, offset, length):
    on_file(path, os.O_RDWR, lambda fd: fallocate(fd, mode, offset, length))


# -- names ---------------------------------------------------------------------------------------


@act()
def create(d, *_):
    os.close(os.open(f"{d}/n", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o640))


@act()
def mkdir(d, *_):
    os.mkdir(f"{d}/n")


@act()
def mknod(d, *_):
    os.mknod(f"{d}/n", stat.S_IFCHR | 0o640, os.makedev(1, 3))


@act()
def symlink(d, *_):
    os.symlink("somewhere", f"{d}/n")


@act()
def link(d, *_):
    os.link(f"{d}/f", f"{d}/s/n")


@act()
def link_again(d, *_):
    os.link(f"{d}/h", f"{d}/n")


@act()
def tmpfile(d, *_):
    def name(fd):
        if _libc.linkat(-100, b"/proc/self/fd/%d" % fd, -100, os.fsencode(f"{d}/n"), 0x400) != 0:
            raise OSError(ctypes.get_errno(), "linkat")
    on_file(d, os.O_TMPFILE | os.O_RDWR, name)


@act()
def unlink(d, *_):
    os.unlink(f"{d}/f")


@act()
def unlink_link(d, *_):
    os.unlink(f"{d}/h2")


@act()
def unlink_symlink(d, *_):
    os.unlink(f"{d}/l")


@act()
def rmdir(d, *_):
    os.rmdir(f"{d}/e")


@act()
def rename(d, *_):
    os.rename(f"{d}/g", f"{d}/n")


@act()
def rename_across(d, *_):
    os.rename(f"{d}/g", f"{d}/s/g")


@act()
def rename_over(d, *_):
    os.rename(f"{d}/g", f"{d}/f")


@act()
def rename_over_link(d, *_):
    os.rename(f"{d}/g", f"{d}/h")


@act()
def rename_directory(d, *_):
    os.rename(f"{d}/s", f"{d}/e/n")


@act(undone=True)
def rename_over_directory(d, *_):
    os.rename(f"{d}/s", f"{d}/e2")


@act()
def exchange(d, *_):
    renameat2(f"{d}/f", f"{d}/s/x", EXCHANGE)


@act()
def exchange_directory(d, *_):
    renameat2(f"{d}/g", f"{d}/s", EXCHANGE)


@act()
def whiteout(d, *_):
    renameat2(f"{d}/g", f"{d}/n", WHITEOUT)


@act()
def whiteout_over(d, *_):
    renameat2(f"{d}/g", f"{d}/f", WHITEOUT)


# -- content -------------------------------------------------------------------------------------


@act()
def write_over(d, *_):
    write_at(f"{d}/f", b"new bytes " * 300, 4000)


@act()
def write_linked(d, *_):
    write_at(f"{d}/h", b"new bytes " * 300, 4000)


@act()
def append(d, *_):
    data = b"appended" * 20
    all_of(on_file(f"{d}/f", os.O_WRONLY | os.O_APPEND, lambda fd: os.write(fd, data)), data)


@act()
def extend(d, *_):
    write_at(f"{d}/f", b"far away", 60_000)


@act()
def write_equal(d, *_):
    write_at(f"{d}/g", b"small\n", 0)


@act()
def truncate_down(d, *_):
    os.truncate(f"{d}/f", 7000)


@act()
def truncate_up(d, *_):
    os.truncate(f"{d}/f", 70_000)


@act()
def open_truncated(d, *_):
    os.close(os.open(f"{d}/f", os.O_WRONLY | os.O_TRUNC))


@act(prepare=make_big)
def truncate_big(d, *_):
    os.truncate(f"{d}/big", 1000)


@act()
def allocate_more(d, *_):
    allocate(f"{d}/f", 0, 10_000, 30_000)


@act()
def allocate_behind(d, *_):
    allocate(f"{d}/f", KEEP_SIZE, 10_000, 30_000)


@act()
def punch(d, *_):
    allocate(f"{d}/f", PUNCH | KEEP_SIZE, 3000, 9000)


@act()
def zero(d, *_):
    allocate(f"{d}/f", ZERO, 3000, 9000)


@act()
def copy_range(d, *_):
    def copy(source):
        copied = on_file(f"{d}/g", os.O_RDWR, lambda target: os.copy_file_range(source, target, 9000, 100, 2))
        all_of(copied, bytes(9000))
    on_file(f"{d}/f", os.O_RDONLY, copy)


@act()
def mapped(d, *_):
    """In a child: a process that touches a mapping of a file system that died may get SIGBUS."""
    def store(fd):
        with mmap.mmap(fd, 0) as view:
            view[5000:5010] = b"0123456789"
            view.flush()
    child = os.fork()
    if child == 0:
        status = 0
        try:
            on_file(f"{d}/f", os.O_RDWR, store)
        except OSError as error:
            status = error.errno
        finally:
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status:
        raise OSError(max(status, 1), "a mapping")


# -- attributes ----------------------------------------------------------------------------------


@act()
def chmod(d, *_):
    os.chmod(f"{d}/f", 0o4711)


@act()
def chmod_linked(d, *_):
    os.chmod(f"{d}/h", 0o600)


@act()
def chmod_directory(d, *_):
    os.chmod(f"{d}/s", 0o700)


@act()
def chown(d, *_):
    os.chown(f"{d}/f", 12, 34)


@act()
def utimens(d, *_):
    os.utime(f"{d}/f", ns=(10**18, 10**18 + 1))


@act()
def utimens_symlink(d, *_):
    os.utime(f"{d}/l", ns=(10**18, 10**18 + 1), follow_symlinks=False)


@act()
def setxattr(d, *_):
    os.setxattr(f"{d}/f", "user.b", b"two" * 100)


@act()
def setxattr_again(d, *_):
    os.setxattr(f"{d}/f", "user.a", b"another")


@act()
def setxattr_directory(d, *_):
    os.setxattr(f"{d}/s", "user.d", b"another")


@act()
def removexattr(d, *_):
    os.removexattr(f"{d}/f", "user.a")


# -- tools ---------------------------------------------------------------------------------------


def run_tool(mount, *command):
    result = mount.run_tool(*command, timeout=LIMIT)
    if result.returncode:
        raise OSError(max(result.returncode, 1), result.stdout)


@act(prepare=lose, steps=True)
def vrevert(d, mount, when):
    """Back to the state before `prepare`: content, and a name that is lost."""
    run_tool(mount, "vrevert", d, "--time", epoch(when))


@act(steps=True, forgets=("g",))
def vrm(d, mount, _when):
    run_tool(mount, "vrm", "-y", f"{d}/g")


def secret_of(d):
    return b"nobody may know %s\n" % os.fsencode(os.path.basename(d))


def replace(d):
    """Versions of two files, each by a rename as editors do it, and two files that are deleted; one holds a secret."""
    for number in range(3):
        for name in ("f", "n"):
            with open(f"{d}/tmp", "wb", buffering=0) as stream:
                stream.write(random.Random(7).randbytes(7000) + b"%d of %s" % (number, name.encode()))
            os.rename(f"{d}/tmp", f"{d}/{name}")
    for name, line in (("lost", b"not secret\n"), ("secret", secret_of(d))):
        with open(f"{d}/{name}", "wb", buffering=0) as stream:
            stream.write(line * 400)
            stream.seek(30)
            stream.write(b"once more")
        os.unlink(f"{d}/{name}")


@act(prepare=replace, steps=True)
def pack(d, mount, _when):
    run_tool(mount, "vcompact", d)


@act(prepare=replace, steps=True, after="pack")
def unpack(d, mount, _when):
    run_tool(mount, "vcompact", "--undo", d)


@act(prepare=replace, steps=True, after="pack", forgets=("secret",))
def vrm_packed(d, mount, _when):
    run_tool(mount, "vrm", "-y", f"{d}/secret")


@act(steps=True)
def snapshot(d, mount, _when):
    run_tool(mount, "vsnap", "create", os.path.basename(d), d)
