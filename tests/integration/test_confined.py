# SPDX-License-Identifier: LGPL-2.1-or-later
"""What programs can reach while they read untrusted input: vreceive only its copy, diff(1) for vdiff only two files."""
import errno
import glob
import os
import signal
import subprocess
import time

import pytest

from copies import Copy
from mounts import LIMIT, NOBODY, cut_of, epoch, has_landlock, inflight_head, moment, run
from preload import preloaded

# CHOWN DAC_OVERRIDE FOWNER FSETID LINUX_IMMUTABLE SYS_ADMIN SYS_RESOURCE MKNOD SETFCAP
KEPT = {0, 1, 3, 4, 9, 21, 24, 27, 31}

# Taken over when the stream is whole, it tries every dangerous call, and prints the error of each.
TAKEN_OVER = r"""
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
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define TRY(name, call) dprintf(2, "%s %d\n", name, (call) < 0 ? errno : 0)

int fsync(int fd)
{
    static int tried;
    const char *victim = getenv("VICTIM");
    char *nothing[] = {NULL};
    struct f_owner_ex owner = {F_OWNER_PID, getppid()};
    char above[256];

    if (!tried++ && strstr(program_invocation_name, "vreceive")) {
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
    return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(fd);
}
"""

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


def refused_calls(copy):
    """The sanitizers look for leaks by ptrace(2)."""
    return [name for name in REFUSED_CALLS if name != "ptrace" or not copy.source.programs.sanitized]


def tried(copy, victim):
    stream = copy.stream()
    victim.parent.chmod(0o777)
    with preloaded(victim.parent, TAKEN_OVER, VICTIM=victim):
        result = copy.receive(stream)
    assert result.returncode == 0, result.stderr
    lines = [line.split() for line in result.stderr.decode().splitlines()]
    lines = [words for words in lines if words[:1] != ["ptrace"] or not copy.source.programs.sanitized]
    return {words[0]: os.strerror(int(words[1])) if words[1] != "0" else "done" for words in lines if len(words) == 2}


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
    assert {came.pop(name) for name in refused_calls(copy)} == {"Function not implemented"}
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
    assert {came.pop(name) for name in refused_calls(copy)} == {"Function not implemented"}
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
             lambda: fcntl.fcntl(1, 10, signal.SIGURG), lambda: fcntl.fcntl(0, fcntl.F_SETFL, os.O_ASYNC)):
    try:
        call()
        print("done")
    except OSError as error:
        print("refused" if error.errno == errno.ENOSYS else error)
raise SystemExit(1)
"""


def test_the_comparison_of_text_cannot_type_or_signal(maker):
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
    assert result.stdout.splitlines()[1:] == ["refused"] * 4
