# SPDX-License-Identifier: LGPL-2.1-or-later
"""Directories nested in one another, as any user can make them: the tools' work grows with their number, and not with
its square."""
import os

import pytest

from mounts import epoch, moment
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
#include <unistd.h>

static int note(const char *name, int dir, const char *path, int flags, mode_t mode)
{
    static int out = -1;
    int (*real)(int, const char *, int, ...);

    *(void **)&real = dlsym(RTLD_NEXT, name);
    if (out < 0)
        out = real(AT_FDCWD, getenv("OPENS"), O_WRONLY | O_APPEND | O_CLOEXEC);
    (void)!write(out, "x", 1);
    return real(dir, path, flags, mode);
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


def nest(root, depth):
    """Directories d/d/d..., and in each of them a file that was removed."""
    back = os.open(".", os.O_RDONLY)
    try:
        os.chdir(root)
        for _ in range(depth):
            os.mkdir("d")
            os.chdir("d")
            with open("f", "w", encoding="ascii") as stream:
                stream.write("x")
            os.unlink("f")
    finally:
        os.fchdir(back)
        os.close(back)


@pytest.fixture(name="counted")
def fixture_counted(maker):
    opens = maker.scratch / "opens"
    opens.touch()
    with preloaded(maker.scratch, OPENS, OPENS=opens):
        mount = maker.mount()
    for name in ("a", "b"):
        (mount.path / name).mkdir()
    nest(mount.path / "a", DEPTH)
    nest(mount.path / "b", 2 * DEPTH)
    return mount, lambda: opens.stat().st_size


@pytest.mark.parametrize("tool", ["vfind", "vlog", "vcompact"])
def test_the_work_of_a_tool_grows_with_the_number(counted, tool):
    mount, opened = counted
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
