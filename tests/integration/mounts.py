# SPDX-License-Identifier: LGPL-2.1-or-later
"""Real mounts for the tests: file systems in images, the daemon in the foreground, the tools.

Silence is no proof: the daemon runs with -f, its output is kept, and a line that no test announced with expect() fails
the test, as does an exit status other than 0 after an unmount.
"""
import contextlib
import ctypes
import faulthandler
import fcntl
import os
import pickle
import platform
import re
import shutil
import signal
import stat
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

QUICK = bool(os.environ.get("WAYBACK_QUICK"))
TRANSPORT = os.environ.get("WAYBACK_TRANSPORT", "")  # "io_uring": of all mounts that do not name one
LANDLOCK = bool(os.environ.get("WAYBACK_LANDLOCK"))  # mounts of root's with -o landlock
BUILD = Path(os.environ.get("WAYBACK_BUILD")
             or Path(__file__).resolve().parents[2] / "build").resolve()
TOOLS = ("vstat", "vdiff", "vextract", "vrevert", "vrm", "vsnap", "vfind", "vlog", "vdump", "vfsck",
         "vcompact", "vdf", "vprune", "vstore", "vsend", "vreceive", "vstatus", "venable", "vdisable",
         "vconfig", "vundo", "vbrowse", "vweb")
NOBODY = (65534, 65534)
LIMIT = 300  # seconds for work that takes a moment on an idle machine
AT_ONCE = 1000  # this many paths are one command line
SECOND = (1234, 1235)  # another user


def has_landlock():
    """Whether this kernel has it, with all the features that are used."""
    return ctypes.CDLL(None).syscall(444, None, 0, 1) >= 2


def inflight_head(store):
    """Fields of `inflight`. cut: when power was last lost, 0: never; mark > last: the store is open, or was not closed."""
    names = ("last", "boot", "mark", "changed", "stamped", "cut")
    return dict(zip(names, struct.unpack_from("<qQqqqq", (Path(store) / "inflight").read_bytes(), 16)))


def cut_of(store):
    return inflight_head(store)["cut"]


def run(*command, check=True, **options):
    options.setdefault("stdin", subprocess.DEVNULL)
    result = subprocess.run([str(c) for c in command], text=True, errors="replace",
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, **options)
    assert not check or result.returncode == 0, f"{command}: {result.stdout}"
    return result


def sync_tree(path):
    """Its file system alone: of others, content would reach the disk before its record, while test_cuts cuts the power
    (see docs/guarantees.md)."""
    run("sync", "-f", path)


_libc = ctypes.CDLL(None, use_errno=True)
CLONE_FS, CLONE_FILES = 0x200, 0x400
SET_DUMPABLE = 4
# setgroups, setresgid, setresuid: of the calling thread only, unlike the functions of the C library with these names.
SET_IDENTITY = (116, 119, 117) if platform.machine() == "x86_64" else (159, 149, 147)


def _call(function, *arguments):
    if function(*arguments) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def close_pipes(but=None):
    """Close those of other threads, which wait for the end of the output of their own children: this process must not
    hold them open."""
    for fd in map(int, os.listdir("/proc/thread-self/fd")):
        with contextlib.suppress(OSError):  # the listing's own
            if fd > 2 and fd != but and stat.S_ISFIFO(os.fstat(fd).st_mode):
                os.close(fd)


def in_process(function):
    """Calls function() in a child process, beside all others; its result, or its exception raised."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        answer = ("raised", RuntimeError("the child died"))
        try:
            close_pipes(but=writing)
            os.umask(0o022)
            answer = ("result", function())
        except BaseException as error:  # pylint: disable=broad-except
            answer = ("raised", error)
        finally:
            try:
                os.write(writing, pickle.dumps(answer))
            except Exception:  # pylint: disable=broad-except
                os.write(writing, pickle.dumps(("raised", RuntimeError(repr(answer)))))
            os._exit(0)
    os.close(writing)
    with open(reading, "rb") as stream:
        data = stream.read()
    os.waitpid(child, 0)
    kind, value = pickle.loads(data)
    if kind == "raised":
        raise value
    return value


def begin_child(work):
    """The number of a child process that ends with the result of work().

    For callers that may have a file of a mount mapped when its daemon is killed: SIGBUS then hits the whole process.
    """
    child = os.fork()
    if child == 0:
        status = 2
        try:
            faulthandler.disable()
            status = work()
        finally:
            os._exit(status)
    return child


def end_of_child(child):
    """Its exit status, or minus the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def become(uid, gid, groups, umask):
    """This thread is that user from now on, with descriptors, working directory and umask of its own."""
    _call(_libc.unshare, CLONE_FS | CLONE_FILES)
    close_pipes()
    numbers = (ctypes.c_uint * len(groups))(*groups)
    for call, arguments in zip(SET_IDENTITY, ((len(groups), numbers), (gid, gid, gid), (uid, uid, uid))):
        _call(_libc.syscall, call, *arguments)
    assert (os.getresuid(), os.getresgid(), sorted(os.getgroups())) == ((uid,) * 3, (gid,) * 3, sorted(groups))
    os.umask(umask)


def as_user(function, uid, gid, groups=(), umask=0o022):
    """Calls function() as that user; its result, or its exception raised.

    In a thread, which to the kernel is as good as a process and takes a fraction of the time of the copy of a large
    one. Descriptors that it opened and did not close are closed with it.
    """
    answer = []

    def work():
        try:
            become(uid, gid, list(groups), umask)
            answer.append((function(), None))
        except BaseException as error:  # pylint: disable=broad-except
            answer.append((None, error))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    _call(_libc.prctl, SET_DUMPABLE, 1, 0, 0, 0)  # which a change of identity sets for all threads
    [(result, error)] = answer
    if error is not None:
        raise error
    return result


def moment():
    """Now, as ns since the epoch, strictly between earlier and later changes."""
    now = time.time_ns()
    while time.time_ns() == now:
        pass
    return now


def epoch(when):
    """A moment in the form that @ and the tools take."""
    return f"{when // 10**9}.{when % 10**9:09d}"


def nanoseconds(time):
    """A time of what a tool prints with --json, or the time of an object of that: as ns since the epoch; 0 for none."""
    return int(time["epoch"].replace(".", "")) if time else 0


CACHES = "/proc/sys/vm/drop_caches"  # shared by all on the machine; and its own lock


def drop_caches(what):
    """The kernel drops all that is unused, except while a test is in caches_kept()."""
    with open(CACHES, "w", encoding="ascii") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        stream.write(str(what))
        stream.flush()


@contextlib.contextmanager
def caches_kept():
    """For tests that fail, or meet new inode numbers, if the kernel forgot."""
    with open(CACHES, "w", encoding="ascii") as stream:
        fcntl.flock(stream, fcntl.LOCK_SH)
        yield


IO_URING = Path("/sys/module/fuse/parameters/enable_uring")  # shared by all on the machine
IO_URING_LOCK = "/run/lock/wayback-test-io-uring"


def _switch_io_uring(lock, wanted):
    """With the lock held exclusively. The lock file has what was set before the first of several."""
    lock.seek(0)
    before = lock.read() or IO_URING.read_text(encoding="ascii").strip()
    lock.truncate(0)
    lock.write(before)
    lock.flush()
    IO_URING.write_text(wanted, encoding="ascii")


@contextlib.contextmanager
def io_uring_switched(wanted):
    """The kernel offers FUSE over io_uring ("Y", of any number at a time) or not ("N", one alone) meanwhile."""
    with open(IO_URING_LOCK, "a+", encoding="ascii") as lock:
        if wanted == "N":
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                pytest.skip("other tests on this machine need FUSE over io_uring now")
            _switch_io_uring(lock, "N")
        else:
            fcntl.flock(lock, fcntl.LOCK_SH)
            while not os.fstat(lock.fileno()).st_size or IO_URING.read_text(encoding="ascii").strip() != "Y":
                fcntl.flock(lock, fcntl.LOCK_EX)
                _switch_io_uring(lock, "Y")
                fcntl.flock(lock, fcntl.LOCK_SH)
        try:
            yield
        finally:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                pass  # another one needs it still
            else:
                lock.seek(0)
                IO_URING.write_text(lock.read(), encoding="ascii")
                lock.truncate(0)


def mounted_at(path):
    """The type of the topmost mount at path, or None."""
    found = None
    with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as table:
        for line in table:
            fields = line.split(" ")
            if fields[4].replace("\\040", " ") == str(path):
                found = fields[fields.index("-") + 1]
    return found


def file_with_number(directory, number):
    """A new file there with this inode number, or None."""
    deadline = time.monotonic() + 20
    for attempt in range(2000):
        path = directory / f"try{attempt}"
        path.write_bytes(b"of another program")
        if os.stat(path).st_ino == number:
            return path
        if attempt % 100 == 99:
            time.sleep(0.5)
        if time.monotonic() > deadline:
            break
    return None


def read_by(pid):
    """How many bytes it has read, from any file."""
    with open(f"/proc/{pid}/io", encoding="ascii") as stream:
        return next(int(line.split()[1]) for line in stream if line.startswith("rchar"))


def is_sanitized(program):
    """Whether the build checks for faults itself, which takes time."""
    content = program.read_bytes()
    return b"__asan_init" in content or b"__tsan_init" in content


class Programs:
    """Copies of the built programs in one directory that every user can reach."""

    def __init__(self, directory):
        self.directory = directory
        directory.mkdir()
        candidates = [BUILD / "src/daemon/wayback", BUILD / "scripts/mount.wayback"]
        candidates += [BUILD / "utils" / name / name for name in TOOLS]
        for path in candidates:
            assert path.exists(), f"{path} is missing: build first (scripts/build) or set WAYBACK_BUILD"
            shutil.copy(path, directory)
        for path in (BUILD / "src").glob("libwayback.so*"):
            if path.is_file():
                shutil.copy(path, directory, follow_symlinks=False)
        self.sanitized = is_sanitized(directory / "wayback")
        self.sanitizer_logs = directory / "sanitizer-logs"
        self.sanitizer_logs.mkdir()
        self.sanitizer_logs.chmod(0o1777)
        shutil.copy(Path(__file__).with_name("tsan.supp"), directory)

    def environment(self):
        log = f"log_path={self.sanitizer_logs}/report"
        # GLib's own allocator hands memory on in ways the thread sanitizer does not see.
        plain = {"G_SLICE": "always-malloc"} if self.sanitized else {}
        return dict(os.environ, **plain, PATH=f"{self.directory}:/usr/sbin:/usr/bin:/sbin:/bin",
                    LD_LIBRARY_PATH=str(self.directory), LC_ALL="C.UTF-8",
                    ASAN_OPTIONS=f"{log}:detect_leaks=1:detect_stack_use_after_return=0:verify_asan_link_order=0",
                    UBSAN_OPTIONS=f"{log}:print_stacktrace=1:halt_on_error=1",
                    TSAN_OPTIONS=f"{log}:suppressions={self.directory}/tsan.supp:history_size=4")

    def take_reports(self):
        """The reports of the sanitizers since the last call."""
        text = ""
        for path in sorted(self.sanitizer_logs.iterdir()):
            text += path.read_text(errors="replace") or f"{path.name} could not be written\n"
            path.unlink()
        # The search for leaks met a thread that was just ending: it says so, and finds nothing less.
        return re.sub(r"==\d+==Unable to get registers from thread \d+\.\n", "", text)


class Mount:
    """One SRC, one mount point, and the daemon between them while it runs."""

    running = set()
    type = "fuse"  # the prefix of the result of mounted_at

    def __init__(self, programs, source, path, options=(), user=None):
        self.programs = programs
        self.source = Path(source)
        self.path = Path(path)
        self.options = list(options)
        self.user = user
        self.process = None
        self.log_path = self.path.with_name(self.path.name + ".log")
        # libfuse prints this if the unmount comes while a worker takes a request: an end like any other. Disks of tests
        # are small, and often full; test_keeper covers the check of that and its messages.
        self.allowed = [re.compile("created a new history"), re.compile(", less than reserve = "),
                        re.compile("^fuse: reading device: Software caused connection abort$")]
        self.seen = 0
        self.limits = None  # called in the daemon before exec

    def _as(self, user):
        if user is None:
            return []
        return ["setpriv", f"--reuid={user[0]}", f"--regid={user[1]}", "--clear-groups"]

    def command(self, *extra):
        options = list(self.options) + list(extra) + (["landlock"] if LANDLOCK and not self.user else [])
        # By default it depends on the machine.
        if not any("io_uring" in option for option in options):
            options.append("io_uring" if TRANSPORT == "io_uring" else "no_io_uring")
        command = self._as(self.user) + [str(self.programs.directory / "wayback"), "-f"]
        if options:
            command += ["-o", ",".join(options)]
        return command + [str(self.source), str(self.path)]

    def start(self, *extra):
        """Mounts, with more -o options if given; returns once the mount answers."""
        assert self.process is None
        environment = self.programs.environment()
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                self.command(*extra), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                cwd="/", env=environment, preexec_fn=self.limits)
        Mount.running.add(self)
        deadline = time.monotonic() + LIMIT
        while not (mounted_at(self.path) or "").startswith(self.type):
            if self.process.poll() is not None or time.monotonic() > deadline:
                status = self.process.poll()
                self.kill(check=False)
                raise AssertionError(f"wayback did not mount (status {status}): {self.log()}")
            time.sleep(0.005)
        # Only the mounting user may look without allow_other; any answer means it answers.
        if self.user is not None:
            self.tool("stat", "-f", "-c", "%T", self.path)
            return self
        try:
            os.statvfs(self.path)
        except OSError as error:
            raise AssertionError(f"{error}: {self.log()}") from error
        return self

    def refused(self, *extra):
        """Tries to mount in a case that must fail: (exit status, output)."""
        result = run(*self.command(*extra), check=False, env=self.programs.environment(), timeout=LIMIT)
        assert mounted_at(self.path) is None or self.process is not None
        return result.returncode, result.stdout

    def log(self):
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def expect(self, pattern):
        """Lines of the daemon that match are expected."""
        self.allowed.append(re.compile(pattern))

    def surprises(self):
        lines = self.log()[self.seen:]
        self.seen += len(lines)
        return [line for line in lines.splitlines()
                if line.strip() and not any(p.search(line) for p in self.allowed)]

    def unmount(self):
        """The command alone, tried again while a finished program still closes its files."""
        deadline = time.monotonic() + LIMIT
        while True:
            if self.user is None:
                result = run("umount", self.path, check=False)
            else:
                result = run(*self._as(self.user), "fusermount3", "-u", self.path, check=False)
            if result.returncode == 0 or "busy" not in result.stdout or time.monotonic() > deadline:
                break
            time.sleep(0.1)
        assert result.returncode == 0, result.stdout

    def stop(self):
        if self.process is None:
            return
        self.unmount()
        process, self.process = self.process, None
        Mount.running.discard(self)
        try:
            status = process.wait(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            status = f"still running {LIMIT} s after the unmount"
        assert (status, self.surprises()) == (0, [])

    def kill(self, number=signal.SIGKILL, check=True):
        """The daemon dies; the dead mount is removed."""
        if self.process is None:
            return
        process, self.process = self.process, None
        Mount.running.discard(self)
        process.send_signal(number)
        process.wait(timeout=LIMIT)
        if mounted_at(self.path):
            run("umount", "-l", self.path)
        if check:
            assert self.surprises() == []

    def remount(self, *extra):
        self.stop()
        return self.start(*extra)

    def tool(self, name, *arguments, status=0, **options):
        """Runs a tool (or any program); fails unless it exits with `status`."""
        result = self.run_tool(name, *arguments, **options)
        assert result.returncode == status, \
            f"{name} {arguments}: exit status {result.returncode}, not {status}: " \
            f"{result.stdout}{result.stderr or ''}\n{self.log()}"
        return result

    def run_tool(self, name, *arguments, user=None, merge=True, **options):
        """Runs it as the mounting user; `merge`: one stream for output and errors."""
        options.setdefault("stdin", subprocess.DEVNULL)
        if options.get("input") is not None:
            options.pop("stdin")
        options.setdefault("env", self.programs.environment())
        options.setdefault("timeout", 600)
        options.setdefault("cwd", "/")
        command = self._as(user or self.user) + [name, *map(str, arguments)]
        return subprocess.run(command, text=True, errors="replace", check=False,
                              stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT if merge else subprocess.PIPE, **options)

    def at(self, when, path=""):
        """The path, in the mount, of something as it was at a time."""
        return self.path / f"@{epoch(when)}" / path

    def logs(self):
        """Every log of the store."""
        store = self.store()
        return [p for p in sorted(store.rglob("*"))
                if p.suffix in (".undo", ".cat") or p.name in ("actors", "snapshots")]

    def store(self):
        for option in self.options:
            if option.startswith("store="):
                return Path(option[len("store="):])
        return self.source / ".wayback"

    def store_options(self):
        """The options that another mount of the same source needs."""
        return [option for option in self.options if option.startswith("store=")]

    def check_store(self):
        """Every record of every log can be read and verified."""
        logs = self.logs()
        for begin in range(0, len(logs), AT_ONCE):
            some = logs[begin:begin + AT_ONCE]
            result = self.run_tool("vdump", "--verify", *some)
            # A log that the daemon has forgotten by itself since the listing no longer exists.
            if result.returncode != 0:
                self.tool("vdump", "--verify", *(log for log in some if log.exists()))


class Branch(Mount):
    """A writable moment: an overlay, two daemons that nobody sees, and a process that waits for them."""

    type = "overlay"

    def daemons(self):
        """Their process ids: of the moment, and of the changes."""
        pid = self.process.pid
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as stream:
            return [int(word) for word in stream.read().split()]

    def check_branch(self):
        """Every record of the branch's own history can be read and verified."""
        home = next(option[len("branch="):] for option in self.options if option.startswith("branch="))
        self.tool("vdump", "--verify", *[path for path in sorted((Path(home) / ".wayback").rglob("*"))
                                         if path.suffix in (".undo", ".cat") or path.name == "actors"])
