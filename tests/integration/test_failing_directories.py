# SPDX-License-Identifier: LGPL-2.1-or-later
"""A directory that cannot be listed because its disk fails is not taken for an empty one."""
import contextlib
import json
import os

import pytest

from copies import Copy
from mounts import run
from preload import preloaded
from test_check import history

# The directories that FAILING_FILE names, a line each, return an error instead of names. vreceive has another root
# directory by then.
FAILING = r"""
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int list = -1;

__attribute__((constructor)) static void open_list(void)
{
    list = open(getenv("FAILING_FILE"), O_RDONLY | O_CLOEXEC);
}

static int is_failing(DIR *dir)
{
    char text[1024], wanted[64];
    ssize_t length = pread(list, text + 1, sizeof(text) - 2, 0);
    struct stat st;

    if (length < 0 || fstat(dirfd(dir), &st) < 0)
        return 0;
    text[0] = '\n';
    text[1 + length] = '\0';
    snprintf(wanted, sizeof(wanted), "\n%ju %ju\n", (uintmax_t)st.st_dev, (uintmax_t)st.st_ino);
    return strstr(text, wanted) != NULL;
}

struct dirent64 *readdir64(DIR *dir)
{
    struct dirent64 *(*real)(DIR *) = dlsym(RTLD_NEXT, "readdir64");
    int error = errno, fails = is_failing(dir);

    errno = fails ? EIO : error;
    return fails ? NULL : real(dir);
}

struct dirent *readdir(DIR *dir)
{
    return (struct dirent *)readdir64(dir);
}
"""


@pytest.fixture(name="failing")
def fixture_failing(tmp_path):
    """A context: the directories it is given fail."""
    path = tmp_path / "failing"
    path.touch()

    @contextlib.contextmanager
    def failing(*directories):
        places = [os.stat(directory) for directory in directories]
        path.write_text("".join(f"{place.st_dev} {place.st_ino}\n" for place in places), encoding="utf-8")
        try:
            yield
        finally:
            path.write_text("")

    with preloaded(tmp_path, FAILING, FAILING_FILE=path):
        yield failing


def stopped(maker):
    """A mount with a history that ended."""
    mount = maker.mount()
    history(mount)
    mount.stop()
    return mount


def a_shard(mount):
    """One of the store's directories of objects, with something in it."""
    return next(path for path in sorted(mount.store().glob("objects/*")) if any(path.iterdir()))


@pytest.mark.parametrize("which", ["tree", "folder", "store"])
@pytest.mark.parametrize("option", [(), ("-y",)])
def test_vfsck_reports_that_it_could_not_look(maker, failing, which, option):
    mount = stopped(maker)
    place = {"tree": mount.source / "renamed", "folder": a_shard(mount), "store": mount.store()}[which]
    with failing(place):
        result = mount.tool("vfsck", *option, mount.source, status=8)
    assert "Input/output error" in result.stdout
    assert "clean" in mount.tool("vfsck", mount.source).stdout


@pytest.mark.parametrize("where", ["renamed", ".wayback/objects"])
def test_a_moved_tree_is_not_bound_to_half_of_it(maker, failing, where):
    mount = stopped(maker)
    moved = maker.tree()
    run("cp", "-a", f"{mount.source}/.", moved)
    mount = maker.mount(source=moved, start=False)
    place = moved / where if where == "renamed" else a_shard(mount)
    with failing(place):
        result = mount.tool("vfsck", "--rebind", moved, status=8)
    assert "Input/output error" in result.stdout
    mount.tool("vfsck", "--rebind", moved, status=1)
    assert "clean" in mount.tool("vfsck", moved).stdout
    assert len(mount.start().tool("vstat", "--json", mount.path / "moved").stdout) > 500


def test_a_store_is_not_made_among_files_that_were_not_seen(maker, failing):
    other = maker.tree()
    place = other / ".wayback"
    place.mkdir(parents=True)
    (place / "mine").write_bytes(b"mine")
    with failing(place):
        status, said = maker.mount(source=other, start=False).refused()
    assert status == 1 and "Input/output error" in said
    assert os.listdir(place) == ["mine"]


def test_a_store_is_not_moved_among_files_that_were_not_seen(maker, failing, tmp_path):
    mount = stopped(maker)
    there = tmp_path / "there"
    there.mkdir()
    (there / "mine").write_bytes(b"mine")
    with failing(there):
        assert "Input/output error" in mount.tool("vstore", "move", mount.source, there, status=1).stdout
    assert os.listdir(there) == ["mine"]


def test_usage_is_not_reported_without_the_unreadable_part(failing, any_mount):
    history(any_mount)
    with failing(a_shard(any_mount)):
        any_mount.tool("vdf", any_mount.path, status=1)
    assert json.loads(any_mount.tool("vdf", "--json", any_mount.path).stdout)


def test_a_copy_is_neither_begun_nor_continued_among_files_that_were_not_seen(maker, failing):
    copy = Copy(maker, maker.mount("allow_other"))
    history(copy.source)
    stream = copy.stream()
    (copy.path / "mine").write_bytes(b"mine")
    with failing(copy.path):
        assert copy.receive(stream).returncode == 1
    assert set(os.listdir(copy.path)) <= {"mine", "lost+found"}
    (copy.path / "mine").unlink()
    assert copy.receive(stream).returncode == 0
    (copy.source.path / "renamed/file3").unlink()
    copy.note_state()
    stream = copy.stream()
    with failing(copy.path / "renamed"):
        assert copy.receive(stream).returncode == 1
    assert copy.receive(stream).returncode == 0
    copy.check()
