# SPDX-License-Identifier: LGPL-2.1-or-later
"""SIGINT stops a tool between two paths: nothing is half done, and the last line reports the completed part."""
import os
import re
import signal

import pytest

from mounts import epoch, moment
from preload import preloaded
from treestate import differences, state_of

# Raises SIGINT at the STOP_AT-th request of the kind STOP_COMMAND, and passes that on.
INTERRUPT = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/ioctl.h>

int ioctl(int fd, unsigned long request, ...)
{
    static int calls;
    int (*next)(int, unsigned long, void *) = (int (*)(int, unsigned long, void *))dlsym(RTLD_NEXT, "ioctl");
    const char *command = getenv("STOP_COMMAND"), *at = getenv("STOP_AT");
    va_list arguments;
    void *argument;

    va_start(arguments, request);
    argument = va_arg(arguments, void *);
    va_end(arguments);
    if (command && _IOC_TYPE(request) == 'W' && ((const uint32_t *)argument)[1] == (uint32_t)atoi(command) &&
        ++calls == atoi(at))
        raise(SIGINT);
    return next(fd, request, argument);
}
"""
VERSIONS, IDENTIFY, ERASE, SNAPSHOT_DELETE, USAGE, COMPACT, ERASE_BEFORE = 2, 3, 5, 9, 18, 20, 23
STOPPED = 128 + signal.SIGINT


def stopped(mount, directory, command, at, *arguments):
    """The output of a tool that SIGINT meets at its at-th request of that kind; its last line."""
    with preloaded(directory, INTERRUPT, STOP_COMMAND=command, STOP_AT=at):
        # A test run in the background has it ignored, and so would the tool.
        result = mount.tool(*arguments, status=STOPPED, cwd=mount.path,
                            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    lines = result.stdout.splitlines()
    assert lines[-1].startswith(f"{arguments[0]}: stopped; "), result.stdout
    return lines[:-1], lines[-1].split("; ", 1)[1]


@pytest.fixture(name="trees")
def fixture_trees(mount):
    """t0 to t9, each with three changed files, and the moment before."""
    for i in range(10):
        (mount.path / f"t{i}").mkdir()
        for name in "abc":
            (mount.path / f"t{i}" / name).write_bytes(b"old" * 1000)
    mount.when = moment()
    for i in range(10):
        for name in "abc":
            (mount.path / f"t{i}" / name).write_bytes(b"new" * 2000)
    return mount


TREES = [f"t{i}" for i in range(10)]


def test_vrm(trees, tmp_path):
    lines, last = stopped(trees, tmp_path, ERASE, 3, "vrm", "-r", "-y", *TREES)
    assert last == "3 of 10 paths removed" and len(lines) == 3
    assert sorted(os.listdir(trees.path)) == TREES[3:]
    assert all((trees.path / t / name).read_bytes() == b"new" * 2000 for t in TREES[3:] for name in "abc")


def test_vrm_before(trees, tmp_path):
    lines, last = stopped(trees, tmp_path, ERASE_BEFORE, 2, "vrm", "-r", "-y", "--before", epoch(moment()), *TREES)
    assert last == "2 of 10 paths forgotten" and len(lines) == 2


def test_dry_runs(trees, tmp_path):
    before = state_of(trees.path)
    lines, last = stopped(trees, tmp_path, VERSIONS, 3, "vrm", "-n", "-r", *TREES)
    assert last == "nothing was changed" and 0 < len(lines) < 10 and all(line.startswith("would remove") for line in lines)
    lines, last = stopped(trees, tmp_path, IDENTIFY, 4, "vrevert", "-n", "t0", "--time", epoch(trees.when))
    assert last == "nothing was changed" and not any("would revert" in line or "undo" in line for line in lines)
    assert differences(before, state_of(trees.path)) == []


def test_vrevert(trees, tmp_path):
    # Two requests to find each path; t0 has four objects, each looked at in two passes at most.
    lines, last = stopped(trees, tmp_path, IDENTIFY, 10 + 8, "vrevert", *TREES, "--time", epoch(trees.when))
    done = int(re.fullmatch(r"(\d+) of 10 paths reverted; run the same command again to finish", last).group(1))
    assert done < 10 and sum(line.startswith("undo: ") for line in lines) in (done, done + 1)
    for t in TREES:
        contents = {(trees.path / t / name).read_bytes() for name in "abc"}
        assert contents <= {b"old" * 1000, b"new" * 2000}
        assert TREES.index(t) >= done or contents == {b"old" * 1000}
    trees.tool("vrevert", *TREES, "--time", epoch(trees.when), cwd=trees.path)
    assert all((trees.path / t / name).read_bytes() == b"old" * 1000 for t in TREES for name in "abc")


def test_vextract(trees, tmp_path):
    before = os.listdir(tmp_path)
    lines, last = stopped(trees, tmp_path, IDENTIFY, 1, "vextract", ".", "--time", epoch(trees.when), "-o", tmp_path / "out")
    assert last == "nothing was extracted" and lines == []
    assert set(os.listdir(tmp_path)) - set(before) == {"preload.c", "preload.so"}


def test_tools_that_only_read(trees, tmp_path):
    for command, at, arguments in ((IDENTIFY, 1, ("vdiff", ".", epoch(trees.when))), (USAGE, 1, ("vdf", "t0", "t1")),
                                   (VERSIONS, 2, ("vstat", *TREES))):
        assert stopped(trees, tmp_path, command, at, *arguments)[1] == "the output is incomplete"


def test_snapshots(trees, tmp_path):
    names = [f"s{i}" for i in range(5)]
    for name in names:
        trees.tool("vsnap", "create", name, trees.path)
    lines, last = stopped(trees, tmp_path, SNAPSHOT_DELETE, 2, "vsnap", "delete", *names)
    assert last == "2 of 5 snapshots deleted" and len(lines) == 2
    assert [line.split()[0] for line in trees.tool("vsnap", "list", trees.path).stdout.splitlines()[1:]] == names[2:]


def test_vcompact(trees, tmp_path):
    assert stopped(trees, tmp_path, COMPACT, 2, "vcompact", "-n", *TREES)[1] == "nothing was changed"
    assert stopped(trees, tmp_path, COMPACT, 2, "vcompact", *TREES)[1] == "run the same command again to finish"
