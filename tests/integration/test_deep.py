# SPDX-License-Identifier: LGPL-2.1-or-later
"""Directories nested in one another, as any user can make them: the tools' work grows with their number, and not with
its square."""
import contextlib
import os
import time

import pytest

from mounts import LIMIT, epoch, moment
from preload import preloaded

DEPTH = 150

# A byte is written for each file that is opened.
OPENS = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static void count(void)
{
    static int out = -1;
    int (*real)(int, const char *, int, ...);

    *(void **)&real = dlsym(RTLD_NEXT, "openat");
    if (out < 0)
        out = real(AT_FDCWD, getenv("OPENS"), O_WRONLY | O_APPEND | O_CLOEXEC);
    (void)!write(out, "x", 1);
}

static int note(const char *name, int dir, const char *path, int flags, mode_t mode)
{
    int (*real)(int, const char *, int, ...);

    *(void **)&real = dlsym(RTLD_NEXT, name);
    count();
    return real(dir, path, flags, mode);
}

long syscall(long number, ...)
{
    long (*real)(long, ...), a[6];
    va_list rest;

    *(void **)&real = dlsym(RTLD_NEXT, "syscall");
    va_start(rest, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(rest, long);
    va_end(rest);
    if (number == SYS_openat2)
        count();
    return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

#define OPENER(NAME) \
int NAME(int dir, const char *path, int flags, ...) \
{ \
    va_list rest; \
    mode_t mode; \
    va_start(rest, flags); \
    mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0; \
    va_end(rest); \
    return note(#NAME, dir, path, flags, mode); \
}
OPENER(openat)
OPENER(openat64)
"""


def lose():
    """A file is removed from the working directory."""
    with open("f", "w", encoding="ascii") as stream:
        stream.write("compressible " * 500)
    os.unlink("f")


@contextlib.contextmanager
def inside(path):
    """A working directory for paths that are too long to be given."""
    back = os.open(".", os.O_RDONLY)
    os.chdir(path)
    try:
        yield
    finally:
        os.fchdir(back)
        os.close(back)


def nest(root, depth, name="d", more=lambda i: None):
    """Directories d/d/d..., and in each of them a file that was removed."""
    with inside(root):
        for i in range(depth):
            os.mkdir(name)
            os.chdir(name)
            lose()
            more(i)


@pytest.fixture(name="counted")
def fixture_counted(maker):
    opens = maker.scratch / "opens"
    opens.touch()
    with preloaded(maker.scratch, OPENS, OPENS=opens):
        mount = maker.mount()
    return mount, lambda: opens.stat().st_size


@pytest.fixture(name="nested")
def fixture_nested(counted):
    mount, opened = counted
    for name in ("a", "b"):
        (mount.path / name).mkdir()
    nest(mount.path / "a", DEPTH)
    nest(mount.path / "b", 2 * DEPTH)
    return mount, opened


@pytest.mark.parametrize("tool", ["vfind", "vlog", "vcompact"])
def test_the_work_of_a_tool_grows_with_the_number(nested, tool):
    mount, opened = nested
    found = []
    for name, depth in (("a", DEPTH), ("b", 2 * DEPTH)):
        before = opened()
        output = mount.tool(tool, mount.path / name).stdout
        found.append(opened() - before)
        if tool == "vfind":
            assert output.count("vrevert") == depth
        elif tool == "vlog":
            assert output.count(" unlink ") == depth
    # About ten for each directory; for each name of each path, they would be a hundred thousand. vlog reads all changes.
    assert 0 < min(found) <= max(found) < 30 * 3 * DEPTH, found


def lose_in_new(path):
    os.mkdir(path)
    with inside(path):
        lose()


def moved_to(path, place):
    """Made and used in another place."""
    lose_in_new(path)
    os.rename(path, place)


def move_into_each_other(root):
    with inside(root):
        for _ in range(2 * DEPTH):
            moved_to(root / "new", "d")
            os.chdir("d")


def move_in_the_deepest(root):
    nest(root, DEPTH, more=lambda i: i == DEPTH - 1 and [moved_to("new", f"wide{j}") for j in range(DEPTH)])


def remove_in_each(root):
    nest(root, DEPTH, more=lambda i: (lose_in_new("gone"), os.rmdir("gone")))


WAYS = {"nested": lambda root: nest(root, 2 * DEPTH),
        "long names": lambda root: nest(root, 2 * DEPTH, name="n" * 250),
        "moved into each other": move_into_each_other,
        "moved in the deepest": move_in_the_deepest,
        "removed": remove_in_each}


@pytest.mark.parametrize("way", WAYS)
def test_the_work_of_packing_the_whole_history_grows_with_the_number(counted, way):
    """By directories in the order of their numbers, which has nothing to do with where they are."""
    mount, opened = counted
    WAYS[way](mount.path)
    before = opened()
    output = mount.tool("vcompact", mount.path).stdout
    assert f"{2 * DEPTH} of {2 * DEPTH} deleted files packed" in output, output
    # About ten for each directory, twenty for one that moved; by reading the catalogs of all above it, hundreds. Each of
    # the tool's requests lasts a second and begins with an empty table of places, and a slow machine needs several.
    assert 0 < opened() - before < 80 * 2 * DEPTH


def test_the_work_of_packing_in_the_background_grows_with_the_number(counted):
    """Also where wayback.conf has rules for paths, for which the path of each directory is looked for."""
    mount, opened = counted
    nest(mount.path, 2 * DEPTH)
    before = opened()
    (mount.store() / "wayback.conf").write_text(
        '[history]\ncompact-after = 1s\n[path "/d/d/d/f"]\ncompact = none\n', encoding="ascii")
    limit = time.monotonic() + LIMIT
    while len(list((mount.store() / "objects").glob("*/*.bundle"))) < 2 * DEPTH - 1:
        assert time.monotonic() < limit, "not packed"
        time.sleep(0.1)
    assert 0 < opened() - before < 80 * 2 * DEPTH


def test_a_deep_path_means_the_same_as_a_short_one(mount):
    """Present and past, with a link, and with a directory that is gone."""
    nest(mount.path, 40)
    deep = "/".join(["d"] * 40)
    (mount.path / deep / "f").write_text("one")
    when = epoch(moment())
    (mount.path / deep / "f").write_text("two")
    (mount.path / deep / "gone").mkdir()
    (mount.path / deep / "gone" / "g").write_text("x")
    os.symlink("d", mount.path / deep / "link")
    (mount.path / deep / "gone" / "g").unlink()
    (mount.path / deep / "gone").rmdir()
    assert "write" in mount.tool("vstat", mount.path / deep / "f").stdout
    assert "unlink" in mount.tool("vstat", mount.path / deep / "gone" / "g").stdout
    assert mount.tool("vfind", "g", mount.path / deep).stdout.count("gone/g") >= 1
    assert mount.tool("vextract", "--show", "--time", when, mount.path / deep / "f").stdout == "one"
    then = mount.path / f"@{when}" / deep
    assert "two" not in mount.tool("vstat", then / "f").stdout
    assert mount.tool("vfind", then).stdout.count("gone") == 0
    mount.tool("vcompact", mount.path / deep / "f", then / "f")
    mount.tool("vstat", mount.path / deep / "missing", status=1)
