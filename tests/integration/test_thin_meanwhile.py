# SPDX-License-Identifier: LGPL-2.1-or-later
"""Readers elsewhere, or meanwhile, while single versions are removed; and the effect of a clock that is set ahead."""
import errno
import json
import os
import random
import threading
import time

import pytest

from mounts import epoch, moment, nanoseconds, run
from test_keeper import HOUR, configure, look, wait_for
from test_prune import aging
from thinning import at, check_newest, filled, readers, thin, write_versions

SIZE = 700_000  # more than is read ahead


def change_before(mount, when, name="file"):
    found = json.loads(mount.tool("vstat", "--json", mount.path / name, merge=False).stdout)["versions"]
    return min((nanoseconds(one), one["change"]) for one in found if nanoseconds(one) > when)[1]


def begin_of(path):
    fd = os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    try:
        return set(os.pread(fd, 4096, 0))
    finally:
        os.close(fd)


@pytest.mark.parametrize("option", ("at", "ro"))
def test_erased_elsewhere_mounted(maker, option):
    mount = maker.mount("allow_other")
    mount.expect(".")
    whens = filled(mount.path / "file", 6, SIZE)
    elsewhere = maker.mount(f"at={epoch(whens[3])}" if option == "at" else "ro", source=mount.source)
    elsewhere.expect(".")
    name = elsewhere.path / ("file" if option == "at" else f"file@{epoch(whens[3])}")
    assert begin_of(name) == {51}
    mount.run_tool("vrm", "-y", "--change", change_before(mount, whens[3]), mount.path / "file")
    assert len(set(name.read_bytes())) == 1
    assert begin_of(name) == {51}


def test_erased_while_read(maker):
    mount = maker.mount("allow_other")
    mount.expect(".")
    whens = filled(mount.path / "file", 50, SIZE)

    def look(_, stream):
        whole = stream.read(SIZE // 2) + stream.read(SIZE)
        return None if whole and whole == whole[:1] * len(whole) else set(whole)  # one byte all through

    near = [48]
    with readers(4, whens, mount.path / "file", look, near):
        for number in range(47, 1, -1):
            near.append(number + 1)  # versions about to be removed, and their neighbours
            mount.tool("vrm", "-y", "--change", change_before(mount, whens[number]), mount.path / "file")


def test_another_moment_in_a_mount_of_a_moment(maker):
    mount = maker.mount("allow_other")
    whens = filled(mount.path / "file", 6, SIZE)
    elsewhere = maker.mount(f"at={epoch(whens[4])}", source=mount.source)
    elsewhere.expect("not kept any more")
    name = elsewhere.path / f"file@{epoch(whens[2])}"
    assert begin_of(name) == {50}
    thin(mount, "--keep-versions", "..1")
    assert set(at(mount, whens[2])) == {48}
    assert len(set(name.read_bytes())) == 1
    assert (elsewhere.path / "file").read_bytes() == at(mount, whens[4]) == b"4" * SIZE


def test_all_names_count_also_those_without_a_record(maker):
    mount = maker.mount("allow_other")
    seen = write_versions(mount.path / "a.o", 5)
    os.link(mount.path / "a.o", mount.path / "kept")
    for number in range(4):
        with open(mount.path / "a.o", "r+b", buffering=0) as stream:
            stream.write(random.Random(number).randbytes(5000))
        seen.append((moment(), (mount.path / "a.o").read_bytes()))
        moment()
    thin(mount, "--keep-versions", "..1", "--pattern", "*.o")
    for when, content in seen:
        assert at(mount, when, "a.o") == content


def test_names_from_before_the_history(maker):
    mount = maker.mount("allow_other", start=False)
    (mount.source / "a.o").write_bytes(b"0" * 5000)
    os.link(mount.source / "a.o", mount.source / "kept")
    mount.start()
    seen = []
    for number in range(5):
        with open(mount.path / "a.o", "r+b", buffering=0) as stream:
            stream.write(b"%d" % number * 5000)
        seen.append((moment(), (mount.path / "a.o").read_bytes()))
        moment()
    thin(mount, "--keep-versions", "..1", "--pattern", "*.o")
    for when, content in seen:
        assert at(mount, when, "a.o") == content


def test_a_clock_set_ahead_just_before_the_end(maker):
    """Nobody looked at the clock while it was ahead; the records of that time vouch for it."""
    mount = aging(maker)
    mount.expect("the clock is .* ahead of")
    seen = write_versions(mount.path / "file", 5)
    configure(mount, "[path \"file\"]", "keep = 2h")
    mount.programs.set(HOUR)
    look(mount)
    time.sleep(1.5)
    mount.programs.set_wall(1000 * HOUR)
    with open(mount.path / "file", "r+b", buffering=0) as stream:
        stream.write(b"later")
    mount.remount()
    look(mount)
    time.sleep(2)
    check_newest(mount, seen, 9)


def test_a_doubt_ends_although_no_mount_lasts_that_long(maker):
    mount = aging(maker)
    mount.expect("the clock is .* ahead of")
    write_versions(mount.path / "file", 5)
    configure(mount, "keep = 30d")
    mount.stop()
    hours, warnings = 20 * 24, 0
    clock = mount.store() / "clock"
    mount.programs.set_wall(hours * HOUR)
    mount.start()
    wait_for(lambda: mount.log().count("the clock is") == 1, "it is reported", mount)
    for day in range(6):
        # A daemon that has not read the policy yet doubts nothing.
        wait_for(lambda: mount.log().count("the clock is") > warnings or not clock.exists(), "it is judged", mount)
        warnings = mount.log().count("the clock is")
        mount.programs.boot += 8 * HOUR   # used for eight hours
        mount.programs.set_wall((hours + 24 * day + 8) * HOUR)
        look(mount)
        (mount.path / "work").write_bytes(b"%d" % day)
        mount.stop()
        mount.programs.set_wall((hours + 24 * day + 24) * HOUR)   # and off for sixteen
        mount.start()
    wait_for(lambda: not clock.exists(), "the clock is trusted", mount)


SLOW = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>
#include <unistd.h>
int renameat(int a, const char *from, int b, const char *to)
{
    int (*real)(int, const char *, int, const char *) = dlsym(RTLD_NEXT, "renameat");
    int r = real(a, from, b, to);
    const char *dot = strrchr(to, '.');
    if (dot && strcmp(dot, ".undo") == 0)
        usleep(500000);
    return r;
}
"""


class Slow:
    """A daemon that is stopped for a moment when the new log has the name."""

    def __init__(self, programs, directory):
        self.programs = programs
        (directory / "slow.c").write_text(SLOW)
        self.library = directory / "slow.so"
        run("cc", "-shared", "-fPIC", "-O1", "-o", self.library, directory / "slow.c")

    def __getattr__(self, name):
        return getattr(self.programs, name)

    def environment(self):
        environment = self.programs.environment()
        return dict(environment, LD_PRELOAD=str(self.library))


def test_erased_while_read_slowly(maker):
    mount = maker.mount("allow_other", start=False)
    mount.programs = Slow(mount.programs, maker.tree())
    mount.expect(".")
    mount.start()
    whens = filled(mount.path / "file", 6, SIZE)
    name = mount.path / f"file@{epoch(whens[3])}"
    assert begin_of(name) == {51}
    number = change_before(mount, whens[3])
    seen, over = [], threading.Event()

    def touch():
        """A reader that keeps the page of the beginning in the kernel's cache."""
        while not over.is_set():
            try:
                begin_of(name)
            except OSError as error:
                assert error.errno == errno.EIO

    def later():
        time.sleep(0.3)
        for _ in range(20):
            try:
                seen.append(tuple(sorted(set(name.read_bytes()))))
            except OSError as error:
                assert error.errno == errno.EIO
            time.sleep(0.02)

    reader, other = threading.Thread(target=touch), threading.Thread(target=later)
    reader.start()
    other.start()
    mount.tool("vrm", "-y", "--change", number, mount.path / "file")
    other.join()
    over.set()
    reader.join()
    assert set(seen) <= {(51,), (50,)}, set(seen)
