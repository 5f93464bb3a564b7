# SPDX-License-Identifier: LGPL-2.1-or-later
"""Fixtures: file systems, trees and mounts. See mounts.py for the abilities of a mount.

Everything happens in a private mount namespace, so that nothing is left behind on the machine even if the run is
killed.
"""
import ast
import ctypes
import functools
import os
import re
import shutil
import signal
import stat
import sys
import tempfile
import threading
import zlib
from pathlib import Path

import pytest

sys.path.insert(0, os.path.dirname(__file__))

pytest.register_assert_rewrite("mounts", "operations", "treestate", "history_model")

# pylint: disable=wrong-import-position
from mounts import (BUILD, IO_URING, NOBODY, QUICK, TRANSPORT, Mount, Programs, io_uring_switched, is_sanitized,
                    mounted_at, run)

NO_MOUNT = bool(os.environ.get("WAYBACK_NO_MOUNT"))
DAEMON = BUILD / "src/daemon/wayback"
# Properties that must hold on each of them are tested without sanitizers, which check our own memory: only two kinds
# take different code paths of ours, with clones and without; is_chosen() has more.
SANITIZED = DAEMON.exists() and is_sanitized(DAEMON)
KINDS = ("ext4", "btrfs") if SANITIZED else ("ext4", "xfs", "btrfs", "tmpfs")
# Nor does a mount depend on its user; the code of ours that does is covered by the tests that use a user_mount.
MOUNTED_BY = ("root",) if SANITIZED else ("root", "user")
CLONE_NEWNS = 0x20000
TIMEOUT = 1200  # seconds one test may take, on a machine that has much else to do
MAKE = {"ext4": ("mkfs.ext4", "-q", "-F", "-I", "256", "-m", "0"),
        "ext4-seconds": ("mkfs.ext4", "-q", "-F", "-I", "128", "-m", "0"),
        "xfs": ("mkfs.xfs", "-q", "-m", "reflink=1"),
        "btrfs": ("mkfs.btrfs", "-q")}
# Nobody cuts the power of these disks (tests/cuts makes its own), and a flush of one waits for the disk of the machine.
WITHOUT_FLUSH = {"ext4": ",barrier=0", "btrfs": ",nobarrier"}
MEMORY = os.environ.get("WAYBACK_TEST_DIR")  # for the images; space of deleted files in one is given back
PROCESSORS = sorted(os.sched_getaffinity(0))
WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
AT_ONCE = re.compile(r"\b(threading|Popen|begin_child|crowd|thinning)\b")
TIMES = Path(__file__).with_name("times")  # lines of "SECONDS FILE::FUNCTION", by scripts/test-times
SHORT = 0.3  # seconds, in that file


def pytest_addoption(parser):
    parser.addoption("--short", action="store_true",
                     help="only the tests that take little time, and at least the shortest of each file")
    parser.addoption("--write-cases", metavar="FILE", help="write the names of the cases that would run to FILE")
    parser.addoption("--divide-with", metavar="FILE",
                     help="leave out those cases in FILE, written by the other build, that are the other's part")
    parser.addoption("--divide-by", metavar="SEED", default="", help="the seed that decides which part a case is in")


def pytest_configure(config):
    # The watchdog is a thread, and a forked child that runs this needs none of it.
    config.addinivalue_line("filterwarnings", "ignore:.*multi-threaded.*fork:DeprecationWarning")
    if NO_MOUNT or config.option.collectonly:
        return
    if os.geteuid() != 0 or not os.path.exists("/dev/fuse"):
        pytest.exit("these tests need root and /dev/fuse (./run-tests --no-mount runs the rest)", 2)
    if TRANSPORT == "io_uring":
        if not IO_URING.exists():
            pytest.exit("WAYBACK_TRANSPORT=io_uring: this kernel has no FUSE over io_uring", 2)
        switched = io_uring_switched("Y")
        switched.__enter__()  # pylint: disable=unnecessary-dunder-call
        config.add_cleanup(lambda: switched.__exit__(None, None, None))
    enter_namespace()
    # With several workers, their master does it: it begins first and ends last.
    if not hasattr(config, "workerinput") and mtab_for_fusermount():
        config.add_cleanup(lambda: os.unlink("/etc/mtab"))


def enter_namespace():
    """Make later mounts visible to this process and its children only."""
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNS) == 0:
        run("mount", "--make-rprivate", "/", check=False)  # a chroot has no mount there
        hide_other_mounts()


def hide_other_mounts():
    """The tools look at every mount of Wayback: those of the machine, one of which may be dead, are not for the tests."""
    lines = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
    for target, kind in reversed([line.split()[1:3] for line in lines]):
        if kind == "fuse.wayback":
            run("umount", "-l", re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), target), check=False)


def mtab_for_fusermount():
    """fusermount3 -u looks mounts up in /etc/mtab, which is missing in a chroot made by debootstrap. Made if it is
    missing; returns whether it was."""
    if os.path.lexists("/etc/mtab"):
        return False
    os.symlink("../proc/self/mounts", "/etc/mtab")
    return True


def device_for_everybody(base):
    """Ordinary users may open /dev/fuse on any distribution; if no udev set its mode, this does, in our own namespace
    only."""
    if os.stat("/dev/fuse").st_mode & 0o666 == 0o666:
        return
    place = base / "dev"
    place.mkdir()
    run("mount", "-t", "tmpfs", "-o", "size=64k,mode=755", "tmpfs", place)
    os.mknod(place / "fuse", stat.S_IFCHR | 0o666, os.stat("/dev/fuse").st_rdev)
    os.chmod(place / "fuse", 0o666)
    run("mount", "--bind", place / "fuse", "/dev/fuse")


@functools.cache
def is_concurrent(path):
    """Whether the test has threads, or programs that run beside it."""
    return AT_ONCE.search(path.read_text(encoding="utf-8")) is not None


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """If one process asks and then waits for the answer, the two take turns, and waking the other on another processor
    costs more than all else. So, if there is a worker for each processor, such tests are pinned to one."""
    mine = PROCESSORS
    if len(PROCESSORS) <= WORKERS and not is_concurrent(item.path):
        number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
        mine = [PROCESSORS[(number + QUICK) % len(PROCESSORS)]]  # a quick run beside it begins with another
    os.sched_setaffinity(0, mine)


def function_of(item):
    return f"{item.path.stem}::{item.originalname}"


def short_ones(items):
    """Tests whose time is not known are among them."""
    times = {}
    for line in TIMES.read_text(encoding="ascii").splitlines():
        seconds, function = line.split()
        times[function] = float(seconds)
    shortest = {}
    for item in items:
        function = function_of(item)
        shortest[item.path] = min(shortest.get(item.path, (1e9, "")), (times.get(function, 0), function))
    return [item for item in items
            if times.get(function_of(item), 0) < SHORT or shortest[item.path][1] == function_of(item)]


@functools.cache
def is_about_clones(path):
    return re.search(r"clone|reflink", path.read_text(encoding="utf-8"), re.IGNORECASE) is not None


def is_chosen(item):
    """With sanitizers, each test meets one kind of file system: which one, its name decides. A fault in the use of memory
    shows on either, unless it is in the code for clones. A test that lists its kinds itself meets all of those."""
    kind = item.callspec.params.get("kind") if hasattr(item, "callspec") else None
    if kind not in KINDS or is_about_clones(item.path) or \
            any("kind" in re.split(r"\W+", str(marker.args[0] if marker.args else marker.kwargs["argnames"]))
                for marker in item.iter_markers("parametrize")):
        return True
    name = function_of(item) + "".join(f" {other}={index}" for other, index in sorted(item.callspec.indices.items())
                                       if other != "kind")
    return KINDS[zlib.crc32(name.encode()) % len(KINDS)] == kind


def each_value_once(items):
    """So many cases of each test that each value of each of its parameters is in one of them. Another combination of
    values meets the same code of ours in another order; the plain pass runs them all. A hash of the names decides which
    combinations remain, so they differ from test to test."""
    cases = {}
    for item in items:
        cases.setdefault(function_of(item), []).append(item)
    chosen = set()
    for same in cases.values():
        met = set()
        for item in sorted(same, key=lambda item: zlib.crc32(item.name.encode())):
            values = {item}
            if hasattr(item, "callspec"):
                values = {(name, repr(value)) for name, value in item.callspec.params.items()}
            if not values <= met:
                met |= values
                chosen.add(item)
    return [item for item in items if item in chosen]


@functools.cache
def depends_on_the_build(path):
    """Whether a test of the file asserts less, or is skipped, with sanitizers."""
    return re.search(r"sanitized|libwayback\.so", path.read_text(encoding="utf-8")) is not None


def divided(items, others, seed):
    """Without the cases that the other build runs. A case that both builds have is run by one of them: a wrong result
    shows in either. Each build has some of the cases of each test. Both builds decide alike, since they see the same
    common cases; `seed` decides, so that another commit meets another division."""
    cases = {}
    for item in items:
        if item.nodeid in others and not depends_on_the_build(item.path):
            cases.setdefault(function_of(item), []).append(item)
    left_out = set()
    for function, same in cases.items():
        first = zlib.crc32(f"{seed} {function}".encode())
        same.sort(key=lambda item: (zlib.crc32(f"{seed} {item.nodeid}".encode()), item.nodeid))
        left_out.update(item for index, item in enumerate(same) if (first + index) % 2 != SANITIZED)
    return [item for item in items if item not in left_out]


def pytest_collection_modifyitems(config, items):
    if NO_MOUNT:
        for item in items:
            item.add_marker(pytest.mark.skip(reason="--no-mount"))
    chosen = [item for item in items if not SANITIZED or is_chosen(item)]
    if SANITIZED and QUICK and not config.option.keyword:
        chosen = each_value_once(chosen)
    if config.option.short:
        chosen = short_ones(chosen)
    if config.option.write_cases:
        lines = [ascii(item.nodeid) + "\n" for item in chosen]
        Path(config.option.write_cases).write_text("".join(lines), encoding="ascii")
    if config.option.divide_with:
        lines = Path(config.option.divide_with).read_text(encoding="ascii").splitlines()
        chosen = divided(chosen, {ast.literal_eval(line) for line in lines}, config.option.divide_by)
    left_out = set(items) - set(chosen)
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = chosen


class FileSystems:
    """One file system of each kind, made when a test first asks for it."""

    def __init__(self, base):
        self.base = base
        self.roots = {}

    def make(self, kind, name, size, fails=False):
        """fails: it will be shut down. ext4 then discards the blocks that changes had freed, though these changes are
        lost: synced content reads as zeros."""
        root = self.base / name
        root.mkdir()
        if kind == "tmpfs":
            run("mount", "-t", "tmpfs", "-o", f"size={size}m", "tmpfs", root)
        else:
            image = self.base / f"{name}.img"
            with open(image, "wb") as stream:
                stream.truncate(size << 20)
            run(*MAKE[kind], image)
            discard = ",discard" if MEMORY and not fails else ""
            run("mount", "-o", f"loop{WITHOUT_FLUSH.get(kind, '')}{discard}", image, root)
        root.chmod(0o755)
        return root

    def unmake(self, root):
        run("umount", root)
        image = root.with_name(root.name + ".img")
        if image.exists():
            image.unlink()

    def root(self, kind):
        if kind not in self.roots:
            self.roots[kind] = self.make(kind, kind, 3072)
        return self.roots[kind]

    def close(self):
        for root in self.roots.values():
            run("umount", "-l", root, check=False)


@pytest.fixture(scope="session", name="base")
def fixture_base():
    """A directory that every user can reach (pytest's own are for one user only)."""
    base = Path(tempfile.mkdtemp(prefix="wayback-test-", dir="/tmp"))
    base.chmod(0o755)
    device_for_everybody(base)
    yield base
    shutil.rmtree(base, ignore_errors=True)


@pytest.fixture(scope="session", name="programs")
def fixture_programs(base):
    return Programs(base / "bin")


@pytest.fixture(scope="session", name="file_systems")
def fixture_file_systems(base):
    place = Path(tempfile.mkdtemp(prefix="images-", dir=MEMORY or base))
    place.chmod(0o755)
    file_systems = FileSystems(place)
    yield file_systems
    file_systems.close()
    shutil.rmtree(place, ignore_errors=True)


@pytest.fixture(autouse=True)
def fixture_sanitizers(programs):
    """A report of a sanitizer fails the test that caused it."""
    yield
    reports = programs.take_reports()
    assert not reports, reports


@pytest.fixture(autouse=True)
def fixture_watchdog():
    """A test that hangs fails. A process that waits for a daemon that does not answer cannot be woken by a signal, so
    the daemons are killed first."""
    def bark():
        for mount in list(Mount.running):
            mount.process.kill()
        os.kill(os.getpid(), signal.SIGALRM)

    def alarm(_number, _frame):
        raise TimeoutError(f"still running after {TIMEOUT} s")

    signal.signal(signal.SIGALRM, alarm)
    timer = threading.Timer(TIMEOUT, bark)
    timer.daemon = True
    timer.start()
    yield
    timer.cancel()


class Maker:
    """Makes trees and mounts for one test, and removes them after it."""

    def __init__(self, base, programs, file_systems):
        self.programs = programs
        self.file_systems = file_systems
        self.scratch = Path(tempfile.mkdtemp(prefix="test-", dir=base))
        self.scratch.chmod(0o755)
        self.mounts = []
        self.trees = []

    def tree(self, kind="ext4", owner=None):
        """A fresh directory on a file system of that kind."""
        path = Path(tempfile.mkdtemp(prefix="tree-", dir=self.file_systems.root(kind)))
        path.chmod(0o755)
        if owner:
            os.chown(path, *owner)
        self.trees.append(path)
        return path

    def point(self, owner=None):
        path = Path(tempfile.mkdtemp(prefix="mnt-", dir=self.scratch))
        path.chmod(0o755)
        if owner:
            os.chown(path, *owner)
        return path

    def mount(self, *options, kind="ext4", source=None, path=None, user=None, start=True, made=Mount):
        mount = made(self.programs, source or self.tree(kind, user), path or self.point(user),
                      options, user)
        self.mounts.append(mount)
        return mount.start() if start else mount

    def close(self):
        problems = []
        for mount in reversed(self.mounts):
            try:
                mount.stop()
            except AssertionError as error:
                problems.append(error)
                mount.kill(check=False)
            while mounted_at(mount.path):
                run("umount", "-l", mount.path)
        for path in self.trees + [self.scratch]:
            shutil.rmtree(path, ignore_errors=True)
        if problems:
            raise problems[0]


@pytest.fixture(name="maker")
def fixture_maker(base, programs, file_systems):
    maker = Maker(base, programs, file_systems)
    yield maker
    maker.close()


@pytest.fixture(params=KINDS, name="kind")
def fixture_kind(request):
    return request.param


@pytest.fixture(name="any_mount")
def fixture_any_mount(maker, kind):
    """Mounted by root for everybody, over each kind of file system."""
    return maker.mount("allow_other", kind=kind)


@pytest.fixture(name="mount")
def fixture_mount(maker):
    """The same over ext4, for tests that do not depend on the file system below."""
    return maker.mount("allow_other")


@pytest.fixture(name="ext4_mount")
def fixture_ext4_mount(mount):
    return mount


@pytest.fixture(name="user_mount")
def fixture_user_mount(maker):
    """Mounted by an ordinary user through fusermount3."""
    return maker.mount(user=NOBODY)


@pytest.fixture(params=MOUNTED_BY, name="either_mount")
def fixture_either_mount(request, maker):
    """Once mounted by root, once by an ordinary user."""
    return maker.mount("allow_other") if request.param == "root" else maker.mount(user=NOBODY)
