# SPDX-License-Identifier: LGPL-2.1-or-later
"""vrevert visits the entries that the list of changes names, or that were changed behind the mount, and no others."""
import os
import time

import pytest

from mounts import LIMIT, epoch, moment, run
from stepping import run_to_call
from test_unseen import next_span, next_tick
from treestate import differences, state_of


def grow(top, directories):
    for number in range(directories):
        (top / f"d{number}/sub").mkdir(parents=True)
        for name in ("a", "b", "c", "d"):
            (top / f"d{number}/sub" / name).write_text(f"{number} {name}")


def calls_of(mount, when):
    """System calls of a dry run."""
    status, calls = run_to_call([mount.programs.directory / "vrevert", "-n", "--time", epoch(when), mount.path], None,
                                stdout=-3, stderr=-3, env=mount.programs.environment())
    assert status == 0
    return calls


def test_an_entry_that_was_not_changed_is_only_looked_at(maker):
    """To compare one takes some forty calls, six of them requests to the daemon."""
    calls = []
    for directories in (4, 40):
        source = maker.tree()
        grow(source, directories)
        mount = maker.mount(source=source)
        when = moment()
        (mount.path / "d1/sub/b").write_text("changed")
        # Everything is compared until the daemon has looked at the whole tree, after it mounted.
        deadline = time.monotonic() + LIMIT
        calls.append(calls_of(mount, when))
        while calls[-1] - calls[0] >= 36 * 6 * 8 and time.monotonic() < deadline:
            calls[-1] = calls_of(mount, when)
    # 36 directories more, each with one directory and four files
    assert calls[1] - calls[0] < 36 * 6 * 8


@pytest.mark.parametrize("change", ["write", "add", "remove", "attributes"])
def test_changes_behind_the_mount_are_not_passed_over(maker, change):
    source = maker.tree()
    grow(source, 3)
    mount = maker.mount(source=source)
    mount.expect("changed while Wayback did not record|without the mount|behind")
    when, was = moment(), state_of(mount.path)
    (mount.path / "d0/sub/a").write_text("by the mount")
    os.stat(mount.path / "d2/sub/c")
    next_span()
    next_tick()
    if change == "write":
        (source / "d2/sub/c").write_text("behind it")
    elif change == "add":
        (source / "d2/sub/new").write_text("behind it")
    elif change == "remove":
        (source / "d2/sub/c").unlink()
    else:
        (source / "d2/sub/c").chmod(0o600)
    next_tick()
    result = mount.run_tool("vrevert", "--time", epoch(when), mount.path)
    # Refused, and the message names it; or it is as it was.
    now = state_of(mount.path)
    assert (mount.path / "d0/sub/a").read_text() == "0 a"
    assert (result.returncode == 1 and "d2/sub" in result.stdout) or differences(was, now) == [], result.stdout


def test_another_mount_below_is_named(maker):
    source = maker.tree()
    grow(source, 3)
    mount = maker.mount(source=source)
    when = moment()
    (mount.path / "d0/sub/a").write_text("changed")
    run("mount", "-t", "tmpfs", "tmpfs", mount.path / "d2")
    try:
        result = mount.run_tool("vrevert", "--time", epoch(when), mount.path)
    finally:
        run("umount", mount.path / "d2")
    assert result.returncode == 1 and "d2" in result.stdout
    assert (mount.path / "d0/sub/a").read_text() == "0 a"


def test_directories_get_their_times_back(maker):
    mount = maker.mount()
    grow(mount.path, 2)
    when, was = moment(), state_of(mount.path)
    (mount.path / "d0/sub/new").write_text("new")
    (mount.path / "d1/sub/a").rename(mount.path / "d1/a")
    (mount.path / "d1/sub/b").unlink()
    mount.tool("vrevert", "--time", epoch(when), mount.path)
    assert differences(was, state_of(mount.path)) == []
