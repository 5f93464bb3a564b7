# SPDX-License-Identifier: LGPL-2.1-or-later
"""vrevert visits the entries that the list of changes names, or that were changed behind the mount, and no others."""
import errno
import os
import time

import pytest

from by_hand import call, call_for
from mounts import LIMIT, NOBODY, as_user, epoch, moment, run
from stepping import run_to_call
from test_unseen import next_span, next_tick
from treestate import differences, state_of


EDITED, EDITED_MORE = 29, 1  # as in include/wayback/control.h


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


def test_an_entry_that_was_not_changed_costs_no_call(maker):
    """The daemon looks at all entries in one request."""
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
        while calls[-1] - calls[0] >= 36 and time.monotonic() < deadline:
            calls[-1] = calls_of(mount, when)
    # 36 directories more, each with one directory and four files
    assert calls[1] - calls[0] < 36


def test_more_changed_entries_than_fit_into_a_reply(maker):
    source = maker.tree()
    (source / "d").mkdir()
    names = [f"{number:04}{'n' * 100}" for number in range(300)]
    for name in names:
        (source / "d" / name).write_text("one")
    mount = maker.mount(source=source)
    when = moment()
    next_span()
    next_tick()
    for name in names:
        (source / "d" / name).chmod(0o600)
    (source / ".wayback/wayback.conf").touch()
    found, cursor, flags = [], 0, EDITED_MORE
    while flags & EDITED_MORE:
        flags, data, count, cursor = call_for(mount.path, EDITED, "", when, cursor)
        found += data[8:].split(b"\0")[:count]
    assert sorted(found) == [f"d/{name}".encode() for name in names]
    mount.expect("changed while Wayback did not record|without the mount|behind")
    result = mount.run_tool("vrevert", "-n", "--time", epoch(when), mount.path)
    assert result.stdout.count("d/0") >= len(names), result.stdout[:2000]


def test_only_root_and_the_mounting_user_get_the_list(mount):
    with pytest.raises(PermissionError):
        as_user(lambda: call(mount.path, EDITED, "", since=1), *NOBODY)


@pytest.mark.parametrize("path", [".", "..", "/", "/etc", "d0/..", "d0/../..", "./d0", "d0//sub", ".wayback",
                                  ".wayback/objects"])
def test_only_paths_in_the_tree_are_looked_at(maker, path):
    source = maker.tree()
    grow(source, 1)
    mount = maker.mount(source=source)
    with pytest.raises(OSError) as error:
        call(mount.path, EDITED, path, since=1)
    assert error.value.errno == errno.EINVAL


def test_another_file_system_in_the_source_is_not_looked_at(maker):
    source = maker.tree()
    grow(source, 2)
    mount = maker.mount(source=source)
    run("mount", "-t", "tmpfs", "tmpfs", source / "d1/sub")
    try:
        for path in ("", "d1/sub"):
            with pytest.raises(OSError) as error:
                call(mount.path, EDITED, path, since=1)
            assert error.value.errno == errno.EXDEV
    finally:
        run("umount", source / "d1/sub")


@pytest.mark.parametrize("change", ["append", "rename", "remove"])
def test_changes_behind_the_mount_are_marked(maker, change):
    """The message says what happened, and from when on a state is known."""
    source = maker.tree()
    grow(source, 1)
    mount = maker.mount(source=source)
    state_of(mount.path)
    when = moment()
    next_span()
    next_tick()
    (mount.path / "d0/new").write_text("new")
    next_span()
    next_tick()
    if change == "append":
        (source / "d0/sub/b").write_text("others")
    elif change == "rename":
        (source / "d0/sub/b").rename(source / "d0/sub/e")
    else:
        (source / "d0/sub/b").unlink()
    result = mount.run_tool("vrevert", "-n", "--time", epoch(when), mount.path / "d0")
    assert "changed while nothing was recorded" in result.stdout
    mount.expect("changed while Wayback did not record")


def test_a_user_who_gets_no_list_looks_at_the_entries(maker):
    source = maker.tree()
    grow(source, 2)
    run("chown", "-R", ":".join(map(str, NOBODY)), source / "d0", source / "d1")
    mount = maker.mount("allow_other", source=source)
    when = moment()
    as_user(lambda: (mount.path / "d0/sub/a").write_text("changed"), *NOBODY)
    mount.tool("vrevert", "--time", epoch(when), mount.path / "d0", mount.path / "d1", user=NOBODY)
    assert (mount.path / "d0/sub/a").read_text() == "0 a"


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
