# SPDX-License-Identifier: LGPL-2.1-or-later
"""vsnap view: a snapshot, or any moment, mounted at an empty directory."""
import json
import os
import time

import pytest

from mounts import LIMIT, epoch, moment, mounted_at, nanoseconds, run


def view(mount, *arguments, **options):
    return mount.tool("vsnap", "view", *arguments, **options)


def inside(mount, *command):
    """Runs it in the mount, which only the mounting user may enter."""
    return mount.tool("sh", "-c", 'cd "$0" && exec "$@"', mount.path, *command)


def unmount(mount, path):
    if mount.user:
        mount.tool("fusermount3", "-u", path)
    else:
        run("umount", path)


@pytest.fixture(name="named")
def fixture_named(either_mount):
    """A mount with a snapshot of all, and one of a directory."""
    def work(*command):
        inside(either_mount, *command)

    work("mkdir", "-p", "d/e")
    work("sh", "-c", "echo old >d/f; echo top >t")
    work("vsnap", "create", "all")
    work("vsnap", "create", "part", "d/")
    work("sh", "-c", "echo new >d/f; mv d moved; rm t")
    return either_mount


def test_a_snapshot_is_mounted(named, maker):
    point = maker.point(named.user)
    said = inside(named, "vsnap", "view", "all", point).stdout
    assert f"{named.source} as of " in said and f" {point}" in said.splitlines()[1]
    assert named.tool("cat", point / "d/f").stdout == "old\n"
    assert named.tool("ls", point).stdout == "d\nt\n"
    assert "Read-only" in named.tool("touch", point / "x", status=1).stdout
    unmount(named, point)


def test_a_snapshot_of_a_directory_shows_that_directory(named, maker):
    point = maker.point(named.user)
    for path in (named.path, named.path / "moved"):
        view(named, "part", point, path)
        assert named.tool("ls", point).stdout == "e\nf\n"
        assert named.tool("cat", point / "f").stdout == "old\n"
        unmount(named, point)


def test_any_time_and_a_tree_that_is_not_mounted(mount, maker):
    (mount.path / "f").write_bytes(b"old")
    when = moment()
    (mount.path / "f").write_bytes(b"new")
    mount.stop()
    point = maker.point()
    said = json.loads(view(mount, "--json", epoch(when), point, mount.source).stdout)
    assert (nanoseconds(said), said["directory"], said["source"]) == (when, str(point), str(mount.source))
    assert (point / "f").read_bytes() == b"old"
    run("umount", point)


def test_fit_directories_only(named, maker):
    full, point = maker.point(named.user), maker.point(named.user)
    (full / "x").write_bytes(b"")
    for name, path, words in (
            ("all", full, "not empty"), ("all", full / "x", "not a directory"), ("all", full / "none", "mkdir"),
            ("al", point, "no such snapshot; did you mean all"), ("nonsense", point, "no such time"),
            ("1970-01-02", point, "begins later"), ("9000000000", point, "future"),
            ("all", named.path / "moved/e", "inside of a mount"), ("all", named.source / "moved/e", "inside of")):
        said = view(named, name, path, named.path, status=1).stdout
        assert words in said and said.startswith("vsnap: ") and len(said.splitlines()) == 1, said
        assert mounted_at(path) is None
    assert os.listdir(full) == ["x"]
    assert "no store" in view(named, "all", point, full, status=1).stdout
    view(named, "all", status=2)


def test_a_daemon_serves_it_and_ends(mount, maker):
    point = maker.point()
    view(mount, "now", point, mount.path)
    pid = int(run("sh", "-c", f"pgrep -f -- '[w]ayback -o at=now -- {mount.path} {point}'").stdout)
    run("umount", point)
    deadline = time.monotonic() + LIMIT
    while os.path.exists(f"/proc/{pid}"):
        assert time.monotonic() < deadline
        time.sleep(0.01)
