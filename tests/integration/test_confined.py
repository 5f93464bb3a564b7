# SPDX-License-Identifier: LGPL-2.1-or-later
"""What programs can reach while they read untrusted input: vreceive only its copy, vfsck, vsend and vdump only the store
(and its tree), diff(1) for vdiff only two files."""
import errno
import glob
import os
import signal
import subprocess
import time

import pytest

from copies import Copy
from mounts import LIMIT, NOBODY, as_user, cut_of, epoch, has_landlock, inflight_head, moment, run
from preload import preloaded

# CHOWN DAC_OVERRIDE FOWNER FSETID LINUX_IMMUTABLE SYS_ADMIN SYS_RESOURCE MKNOD SETFCAP
KEPT = {0, 1, 3, 4, 9, 21, 24, 27, 31}

# Taken over, it tries every dangerous call, and prints the error of each.
TRIES = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define TRY(name, call) dprintf(2, "%s %d\n", name, (call) < 0 ? errno : 0)

static void try_all(int fd)
{
    const char *victim = getenv("VICTIM");
    char *nothing[] = {NULL};
    struct f_owner_ex owner = {F_OWNER_PID, getppid()};
    char above[256];

    snprintf(above, sizeof(above), "/proc/%d/root%s", (int)getppid(), victim);
    TRY("read", open(victim, O_RDONLY));
    TRY("write", open(victim, O_WRONLY));
    TRY("above", openat(fd, "../../../../../../etc/passwd", O_RDONLY));
    TRY("parent", open(above, O_RDONLY));
    TRY("chmod", chmod(victim, 04777));
    TRY("chown", chown(victim, 0, 0));
    TRY("unlink", unlink(victim));
    TRY("execve", execve("/bin/true", nothing, nothing));
    TRY("socket", socket(AF_UNIX, SOCK_STREAM, 0));
    TRY("inet", socket(AF_INET, SOCK_STREAM, 0));
    TRY("unshare", unshare(CLONE_NEWNS));
    TRY("mount", mount("x", "/proc", "tmpfs", 0, NULL));
    TRY("chroot", chroot("."));
    TRY("ptrace", ptrace(PTRACE_ATTACH, getppid(), NULL, NULL));
    TRY("kill", kill(getppid(), 0));
    TRY("setuid", setresuid(4001, 4001, 4001));
    TRY("type", ioctl(2, TIOCSTI, "x"));
    TRY("console", ioctl(2, TIOCLINUX, "x"));
    TRY("thaw", ioctl(fd, FITHAW, 0));
    TRY("owner", fcntl(2, F_SETOWN, getppid()));
    TRY("owner_ex", fcntl(2, F_SETOWN_EX, &owner));
    TRY("signal", fcntl(2, F_SETSIG, SIGURG));
    TRY("async", fcntl(fd, F_SETFL, O_ASYNC));
}
"""

# When the stream is whole.
TAKEN_OVER = TRIES + r"""
int fsync(int fd)
{
    static int tried;

    if (!tried++ && strstr(program_invocation_name, "vreceive"))
        try_all(fd);
    return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(fd);
}
"""

# When it opens a file and is confined.
OPENING = r"""
#include <stdarg.h>
#include <sys/types.h>

static int opened(int dir_fd, const char *path, int flags, mode_t mode)
{
    static int seen;

    if (!seen && strstr(program_invocation_name, getenv("TAKEN")) && prctl(PR_GET_SECCOMP) == 2) {
        seen = 1;
        taken(dir_fd);
    }
    return ((int (*)(int, const char *, int, ...))dlsym(RTLD_NEXT, "openat"))(dir_fd, path, flags, mode);
}

#define MODE(flags, mode) \
    va_list arguments; \
    mode_t mode; \
    va_start(arguments, flags); \
    mode = flags & O_CREAT ? va_arg(arguments, mode_t) : 0; \
    va_end(arguments)

int openat(int dir_fd, const char *path, int flags, ...)
{
    MODE(flags, mode);
    return opened(dir_fd, path, flags, mode);
}

int open(const char *path, int flags, ...)
{
    MODE(flags, mode);
    return opened(AT_FDCWD, path, flags, mode);
}

int openat64(int dir_fd, const char *path, int flags, ...) __attribute__((alias("openat")));
int open64(const char *path, int flags, ...) __attribute__((alias("open")));
"""
TAKEN_OVER_READING = TRIES + r"""
#define taken try_all
""" + OPENING

# It prints /proc/self/status.
ITS_STATUS = TRIES + r"""
static void taken(int dir_fd)
{
    char text[8192];
    int fd = open("/proc/self/status", O_RDONLY);
    ssize_t length = read(fd, text, sizeof(text));

    (void)dir_fd;
    (void)try_all;
    (void)!write(2, text, (size_t)length);
    close(fd);
}
""" + OPENING

# Killed when it has marked the store as open.
KILLED_WITH_THE_STORE_OPEN = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int fsync(int fd)
{
    char link[32], path[4096] = "";
    int r = ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(fd);

    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    if (readlink(link, path, sizeof(path) - 1) > 0 && strstr(path, "/.wayback/inflight"))
        kill(getpid(), SIGKILL);
    return r;
}
"""
REFUSED_CALLS = ("execve", "socket", "inet", "unshare", "mount", "chroot", "ptrace", "kill", "setuid", "type",
                 "console", "thaw", "owner", "owner_ex", "signal", "async")


def refused_calls(programs):
    """The sanitizers look for leaks by ptrace(2)."""
    return [name for name in REFUSED_CALLS if name != "ptrace" or not programs.sanitized]


def results(programs, errors):
    lines = [line.split() for line in errors.splitlines()]
    lines = [words for words in lines if words[:1] != ["ptrace"] or not programs.sanitized]
    return {words[0]: os.strerror(int(words[1])) if words[1] != "0" else "done" for words in lines
            if len(words) == 2 and words[1].isdigit()}


def tried(copy, victim):
    stream = copy.stream()
    victim.parent.chmod(0o777)
    with preloaded(victim.parent, TAKEN_OVER, VICTIM=victim):
        result = copy.receive(stream)
    assert result.returncode == 0, result.stderr
    return results(copy.source.programs, result.stderr.decode())


@pytest.fixture(name="copy")
def fixture_copy(maker):
    copy = Copy(maker, maker.mount("allow_other"))
    (copy.source.path / "d").mkdir()
    (copy.source.path / "d/file").write_bytes(b"content")
    return copy


def test_taken_over_it_reaches_nothing_but_the_copy(copy, maker):
    victim = maker.tree() / "victim"
    victim.write_bytes(b"as it was")
    before = victim.stat()
    came = tried(copy, victim)
    assert {came.pop(name) for name in refused_calls(copy.source.programs)} == {"Function not implemented"}
    for name in ("read", "write", "above", "chmod", "chown", "unlink"):
        assert came.pop(name) == "No such file or directory", name
    assert came == {"parent": "Permission denied"}
    after = victim.stat()
    assert victim.read_bytes() == b"as it was" and (after.st_mode, after.st_ctime) == (before.st_mode, before.st_ctime)
    assert (copy.path / "d/file").read_bytes() == b"content"


@pytest.mark.skipif(not has_landlock(), reason="this kernel has no Landlock")
def test_taken_over_it_reaches_nothing_else_of_an_ordinary_user(copy, maker):
    """Landlock does not consider modes and owners: an ordinary user's files are the ones it could change."""
    victim = maker.tree() / "victim"
    victim.write_bytes(b"as it was")
    os.chown(victim, *NOBODY)
    copy.received_by(*NOBODY)
    came = tried(copy, victim)
    assert {came.pop(name) for name in refused_calls(copy.source.programs)} == {"Function not implemented"}
    for name in ("read", "write", "above", "parent", "unlink"):
        assert came.pop(name) == "Permission denied", name
    assert victim.read_bytes() == b"as it was"
    assert (copy.path / "d/file").read_bytes() == b"content"


def status_of(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as stream:
        return dict(line.rstrip("\n").split(":\t", 1) for line in stream if ":\t" in line)


def bits(text):
    return {i for i in range(64) if int(text, 16) >> i & 1}


@pytest.mark.parametrize("who", ["root", "an ordinary user"])
def test_capabilities_that_it_keeps(copy, who):
    if who != "root":
        copy.received_by(*NOBODY)
    with subprocess.Popen([copy.source.programs.directory / "vreceive", copy.path], stdin=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, env=copy.source.programs.environment(), **copy.receiver) as receiver:
        deadline = time.monotonic() + LIMIT
        while status_of(receiver.pid)["Seccomp"] != "2":
            assert time.monotonic() < deadline
            time.sleep(0.01)
        status = status_of(receiver.pid)
        assert status["NoNewPrivs"] == "1"
        for which in ("CapPrm", "CapEff"):
            assert bits(status[which]) <= (KEPT if who == "root" else set()), which
        assert bits(status["CapInh"]) == bits(status["CapAmb"]) == set()
        if who == "root":
            assert bits(status["CapBnd"]) <= KEPT
            root = f"/proc/{receiver.pid}/root"
            assert sorted(os.listdir(root)) == ["copy", "proc"]
            with pytest.raises(OSError) as refused:
                os.mkdir(os.path.join(root, "x"))
            assert refused.value.errno == errno.EROFS
        receiver.stdin.close()
    assert receiver.returncode == 1


@pytest.mark.parametrize("stream", [b"", b"x" * 100])
def test_a_directory_made_in_vain_is_removed(copy, stream):
    path = copy.path / "new"
    result = copy.tool("vreceive", path, input=stream)
    assert result.returncode == 1 and not path.exists()


def test_a_directory_is_removed_after_a_kill(copy):
    path = copy.path / "new"
    with subprocess.Popen([copy.source.programs.directory / "vreceive", path], stdin=subprocess.PIPE,
                          env=copy.source.programs.environment()) as receiver:
        deadline = time.monotonic() + LIMIT
        while status_of(receiver.pid)["Seccomp"] != "2":
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert path.is_dir()
        receiver.kill()
        receiver.wait()
    while path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_kill_of_the_daemon_of_a_copy_is_no_power_cut(copy):
    """The receiver is in a mount namespace of its own, and its own mount of the copy ends with it."""
    copy.follow()
    mount = copy.mounted()
    mount.kill()
    head = inflight_head(mount.store())
    assert head["mark"] > head["last"]
    copy.follow()
    assert cut_of(mount.store()) == 0


def test_neither_is_a_kill_of_the_receiver(copy):
    copy.follow()
    (copy.source.path / "d/file").write_bytes(b"changed")
    stream, store = copy.stream(), copy.path / ".wayback"
    with preloaded(copy.maker.tree(), KILLED_WITH_THE_STORE_OPEN):
        assert copy.receive(stream).returncode == -signal.SIGKILL
    head = inflight_head(store)
    assert head["mark"] > head["last"]
    with copy.used():
        assert cut_of(store) == 0


@pytest.mark.skipif(not glob.glob("/usr/share/i18n/charmaps/ISO-8859-1.*"), reason="no locales can be compiled here")
@pytest.mark.parametrize("who", ["root", "an ordinary user"])
def test_errors_are_readable_in_a_locale_with_another_character_set(copy, who):
    """The converters of the C library are files, which are out of reach by then."""
    locales = copy.maker.tree()
    run("localedef", "-i", "de_DE", "-f", "ISO-8859-1", locales / "de_DE.ISO-8859-1")
    if who != "root":
        copy.received_by(*NOBODY)
    locales.chmod(0o755)
    (copy.path / ".wayback").symlink_to("elsewhere")
    environment = dict(copy.source.programs.environment(), LOCPATH=str(locales), LC_ALL="de_DE.ISO-8859-1")
    result = subprocess.run([copy.source.programs.directory / "vreceive", copy.path], input=b"", check=False, stderr=subprocess.PIPE,
                            stdout=subprocess.PIPE, env=environment, **copy.receiver)
    assert result.returncode == 1 and b"Not a directory" in result.stderr and result.stdout == b"", result


def kept_store(maker, user=None, place=None):
    """A tree with history, not mounted any more."""
    owner = user and (*user,)
    mount = maker.mount(*(["allow_other"] if not user else []), *([f"store={place}"] if place else []), user=owner)

    def fill():
        (mount.path / "other").write_bytes(b"deleted")
        if not user:
            os.chown(mount.path / "other", *NOBODY)
        (mount.path / "other").unlink()
        (mount.path / "d").mkdir()
        for content in (b"one", b"two", b"three"):
            (mount.path / "d/file").write_bytes(content)
            moment()
    as_user(fill, *user) if user else fill()
    mount.stop()
    return mount


READERS = {
    "vfsck": lambda mount: ("vfsck", mount.source),
    "vfsck -y": lambda mount: ("vfsck", "-y", mount.source),
    "vsend": lambda mount: ("vsend", mount.source),
    "vdump": lambda mount: ("vdump", *mount.logs()),
}


def taken_over(mount, victim, reader, store=None):
    """What a tool could do that was taken over when it read the store; it does its work all the same."""
    name, *arguments = READERS[reader](mount)
    if store:
        arguments += [f"--store={store}"]
    victim.parent.chmod(0o777)
    with preloaded(victim.parent, TAKEN_OVER_READING, VICTIM=victim, TAKEN=name):
        result = mount.run_tool(name, *arguments, merge=False)
    assert result.returncode == 0, result.stderr
    assert len(result.stdout) > 10
    came = results(mount.programs, result.stderr)
    assert {came.pop(name) for name in refused_calls(mount.programs)} == {"Function not implemented"}
    return came


@pytest.mark.skipif(not has_landlock(), reason="this kernel has no Landlock")
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("who", ["root", "an ordinary user"])
def test_taken_over_a_reader_of_a_store_opens_nothing_else(maker, reader, who):
    user = None if who == "root" else NOBODY
    mount = kept_store(maker, user)
    victim = maker.tree() / "victim"
    victim.write_bytes(b"as it was")
    if user:
        os.chown(victim, *user)
    before = victim.stat()
    came = taken_over(mount, victim, reader)
    for name in ("read", "write", "above", "parent"):
        assert came.pop(name) == "Permission denied", name
    changes = {name: came.pop(name) for name in ("chmod", "chown", "unlink")}
    assert came == {} and victim.read_bytes() == b"as it was"
    if reader == "vfsck -y":
        # Landlock does not consider modes and owners: those of the caller's files are what it could change.
        assert changes["unlink"] == "Permission denied"
        return
    assert set(changes.values()) == {"Function not implemented"}
    after = victim.stat()
    assert (after.st_mode, after.st_ctime) == (before.st_mode, before.st_ctime)


@pytest.mark.skipif(not has_landlock(), reason="this kernel has no Landlock")
@pytest.mark.parametrize("reader", ["vfsck", "vfsck -y", "vsend"])
@pytest.mark.parametrize("named", [True, False], ids=["named", "by its signpost"])
def test_a_store_elsewhere_is_the_only_other_place(maker, reader, named):
    place = maker.tree("xfs") / "store"
    mount = kept_store(maker, place=place)
    victim = maker.tree() / "victim"
    victim.write_bytes(b"as it was")
    came = taken_over(mount, victim, reader, place if named else None)
    for name in ("read", "write", "above"):
        assert came[name] == "Permission denied", name
    assert victim.read_bytes() == b"as it was"


@pytest.mark.skipif(not has_landlock(), reason="this kernel has no Landlock")
def test_a_signpost_to_what_is_not_the_store_gives_nothing(maker):
    """The signpost is the author's: the directory that it names must hold that store. The message is the same."""
    place = maker.tree("xfs") / "store"
    mount = kept_store(maker, place=place)
    victim, header = place / "victim", place / "header"
    victim.write_bytes(b"as it was")
    code = maker.tree()

    def came():
        with preloaded(code, TAKEN_OVER_READING, VICTIM=victim, TAKEN="vfsck"):
            result = mount.run_tool("vfsck", mount.source, merge=False)
        return result.returncode, results(mount.programs, result.stderr)["read"], result.stderr
    assert came()[:2] == (0, "done")
    header.rename(place / "away")
    for another in (None, kept_store(maker).store() / "header"):
        if another:
            header.write_bytes(another.read_bytes())
        status, read, message = came()
        assert (status, read) == (8, "Permission denied")
        assert f"the store is in another place, {place}, and not found there (no header of that store is there)" in message
    header.write_bytes(b"a header of something else")
    (place / "objects").rename(place / "no objects")
    assert came()[:2] == (8, "Permission denied")


# DAC_READ_SEARCH FOWNER; with SYS_ADMIN for trusted.* attributes; the last as KEPT.
@pytest.mark.parametrize("reader, kept", [("vfsck", {2, 3}), ("vsend", {2, 3, 21}), ("vdump", {2, 3}), ("vfsck -y", KEPT)])
def test_capabilities_of_a_reader(maker, reader, kept):
    mount = kept_store(maker)
    name, *arguments = READERS[reader](mount)
    with preloaded(maker.tree(), ITS_STATUS, TAKEN=name):
        result = mount.run_tool(name, *arguments, merge=False)
    assert result.returncode == 0, result.stderr
    status = dict(line.split(":\t", 1) for line in result.stderr.splitlines() if ":\t" in line)
    assert status["NoNewPrivs"] == "1" and status["Seccomp"] == "2"
    for which in ("CapPrm", "CapEff", "CapBnd"):
        assert bits(status[which]) <= kept, which
    assert bits(status["CapInh"]) == bits(status["CapAmb"]) == set()


@pytest.mark.parametrize("who", ["root", "an ordinary user"])
def test_a_tree_that_its_mount_covers_is_read(maker, who):
    """By a descriptor of the daemon, which a confined process cannot reach."""
    user = None if who == "root" else NOBODY
    tree = maker.tree(owner=user)
    mount = maker.mount(*(["allow_other"] if not user else []), source=tree, path=tree, user=user)

    def fill():
        for content in (b"one", b"two"):
            (tree / "file").write_bytes(content)
    as_user(fill, *user) if user else fill()
    result = mount.run_tool("vfsck", tree, merge=False)
    assert (result.returncode, result.stderr) == (0, "") and result.stdout.endswith("clean\n")
    copy = maker.tree(owner=user)
    stream = mount.tool("bash", "-c", f"vsend {tree} | vreceive {copy}; exit ${{PIPESTATUS[0]}}").stdout
    assert stream == "" and (copy / "file").read_bytes() == b"two"


@pytest.mark.parametrize("reader", ["vfsck", "vfsck -y"])
def test_a_killed_daemon_is_no_power_cut_for_vfsck(maker, reader):
    mount = kept_store(maker)
    mount.start()
    (mount.path / "d/file").write_bytes(b"four")
    mount.kill()
    name, *arguments = READERS[reader](mount)
    mount.tool(name, *arguments)
    assert cut_of(mount.store()) == 0


def test_neither_is_a_kill_of_vfsck(maker):
    mount = kept_store(maker)
    with preloaded(maker.tree(), KILLED_WITH_THE_STORE_OPEN):
        assert mount.run_tool("vfsck", "-y", mount.source).returncode == -signal.SIGKILL
    head = inflight_head(mount.store())
    assert head["mark"] > head["last"]
    mount.start()
    assert cut_of(mount.store()) == 0


def test_a_pipe_is_named_as_such(maker):
    """Landlock knows no place for it."""
    mount, fifo = kept_store(maker), maker.tree() / "fifo"
    log = mount.store() / "actors"
    os.mkfifo(fifo)
    for command in (f"vdump {fifo}", f"vdump <(cat {log})", f"cat {log} | vdump /dev/stdin"):
        assert "not a file" in mount.tool("bash", "-c", command, status=1).stdout
    assert mount.tool("bash", "-c", f"vdump /dev/stdin <{log}").stdout == mount.tool("vdump", log).stdout


def test_logs_through_another_process(maker):
    """As of a tree that its mount covers: they are reached by descriptors of the daemon only."""
    mount = maker.mount()
    (mount.path / "f").write_text("one")
    mount.stop()
    with subprocess.Popen(["sleep", "infinity"], cwd=mount.store()) as process:
        try:
            through = mount.tool("vdump", f"/proc/{process.pid}/cwd/actors").stdout
        finally:
            process.kill()
    assert through == mount.tool("vdump", mount.store() / "actors").stdout
    assert "actor" in through


DIFF = """#!/bin/sh
cat "$VICTIM" && echo read
echo changed >"$VICTIM" && echo wrote
cat "$8" "$9" || echo cannot
exit 1
"""


@pytest.mark.skipif(not has_landlock(), reason="this kernel has no Landlock")
@pytest.mark.parametrize("who", ["root", "an ordinary user"])
def test_the_comparison_of_text_reads_two_files(maker, who):
    mount = maker.mount("allow_other")
    victim, place = maker.tree() / "victim", maker.tree()
    victim.write_bytes(b"as it was\n")
    victim.chmod(0o666)
    path = mount.path / "f"
    path.write_text("first\n")
    path.chmod(0o600 if who == "root" else 0o644)
    when = epoch(moment())
    path.write_text("second\n")
    (place / "diff").write_text(DIFF)
    (place / "diff").chmod(0o755)
    for directory in (place, victim.parent):
        directory.chmod(0o755)
    environment = mount.programs.environment()
    environment.update(VICTIM=str(victim), PATH=f"{place}:{environment['PATH']}")
    result = mount.run_tool("vdiff", path, when, user=None if who == "root" else NOBODY, env=environment)
    assert "first\nsecond\n" in result.stdout, result.stdout
    assert "as it was" not in result.stdout and "wrote" not in result.stdout and victim.read_bytes() == b"as it was\n"


CALLS = """#!/usr/bin/python3 -SI
import errno, fcntl, os, signal, termios
for call in (lambda: fcntl.ioctl(1, termios.TIOCSTI, b"x"), lambda: fcntl.fcntl(1, fcntl.F_SETOWN, os.getppid()),
             lambda: fcntl.fcntl(1, 10, signal.SIGURG), lambda: fcntl.fcntl(0, fcntl.F_SETFL, os.O_ASYNC),
             lambda: os.chmod("/", 0o755)):
    try:
        call()
        print("done")
    except OSError as error:
        print("refused" if error.errno == errno.ENOSYS else error)
raise SystemExit(1)
"""


def test_the_comparison_of_text_cannot_type_or_signal_or_change_modes(maker):
    mount, place = maker.mount("allow_other"), maker.tree()
    path = mount.path / "f"
    path.write_text("first\n")
    when = epoch(moment())
    path.write_text("second\n")
    (place / "diff").write_text(CALLS)
    (place / "diff").chmod(0o755)
    environment = mount.programs.environment()
    environment["PATH"] = f"{place}:{environment['PATH']}"
    result = mount.run_tool("vdiff", path, when, env=environment)
    assert result.stdout.splitlines()[1:] == ["refused"] * 5
