# SPDX-License-Identifier: LGPL-2.1-or-later
"""A comparison of two moments that visits only what was changed finds all that a complete one finds."""
import json
import os
import time

import pytest

from by_hand import call
from mounts import QUICK, SECOND, epoch, moment, read_by
from operations import Operator
from test_left_out import rules, write_rules
from test_snapshots import vsnap
from test_unseen import next_span

CHANGES, WHOLE = 10, 8  # as in include/wayback/control.h


class Unlinked(Operator):
    """Without files of several names, which make the list of paths incomplete."""

    do_link = do_tmpfile = None

    def __init__(self, root, seed):
        super().__init__(root, seed)
        self.operations = [name for name in self.operations if getattr(self, name)]


def vdiff(mount, path, *arguments):
    result = mount.tool("vdiff", "--json", *arguments, cwd=mount.path / path, merge=False)
    return sorted(json.loads(result.stdout)["entries"], key=lambda entry: entry["path"])


def snapdiff(mount, *arguments):
    found = json.loads(vsnap(mount, "diff", "--json", *arguments).stdout)
    assert found["complete"]
    return found["changes"]


def both(mount, path, old, *new):
    """The differences, which are the same by either way."""
    found = vdiff(mount, path, ".", old, *new)
    assert found == vdiff(mount, path, "--all", ".", old, *new)
    return found


def count_of(mount, function):
    """What it costs: the bytes the daemon reads, requests above all."""
    before = read_by(mount.process.pid)
    result = function()
    return read_by(mount.process.pid) - before, result


def is_whole(mount):
    """Whether the list of changes has them all, as far as the daemon knows: if not, everything is compared."""
    return bool(call(mount.path, CHANGES, "", since=time.time_ns())[0] & WHOLE)


def surveyed(mount):
    """Waits until the daemon has met every object."""
    deadline = time.monotonic() + 300
    while not is_whole(mount):
        assert time.monotonic() < deadline, "the list of changes never gets complete"
        time.sleep(0.02)
    return mount


@pytest.mark.parametrize("seed", range(3 if QUICK else 10))
def test_random_changes(any_mount, seed):
    mount = surveyed(any_mount)
    top = mount.path / "top"
    top.mkdir()
    operator = (Operator if seed % 3 == 2 else Unlinked)(str(top), seed)
    moments = []
    for _ in range(6):
        moments.append(epoch(moment()))
        for _ in range(30):
            operator.step()
        operator.close()
    assert is_whole(mount)
    names = [name for name in os.listdir(top) if (top / name).is_dir() and not (top / name).is_symlink()]
    for i, old in enumerate(moments):
        found = both(mount, ".", old)
        assert found or i == len(moments) - 1
        for new in moments[i + 1:]:
            both(mount, ".", old, new)
        for name in names[:2]:
            result, complete = [mount.run_tool("vdiff", "--json", *arguments, name, old, cwd=top, merge=False)
                                for arguments in ([], ["--all"])]
            assert (result.returncode, result.stdout, result.stderr) == \
                (complete.returncode, complete.stdout, complete.stderr)
        assert snapdiff(mount, old) == snapdiff(mount, "--all", old)
        assert snapdiff(mount, moments[0], old) == snapdiff(mount, "--all", moments[0], old)


def test_what_was_not_changed_is_not_looked_at(maker):
    mount = maker.mount(start=False)
    for i in range(100):
        (mount.source / f"d{i}/sub").mkdir(parents=True)
        for j in range(20):
            (mount.source / f"d{i}/sub/f{j}").write_text(f"{i} {j}\n")
    surveyed(mount.start())
    then = epoch(moment())
    (mount.path / "d1/sub/f1").write_text("changed")
    os.unlink(mount.path / "d2/sub/f2")
    os.rename(mount.path / "d3/sub", mount.path / "d3/moved")
    os.chmod(mount.path / "d4", 0o700)
    cost, found = count_of(mount, lambda: vdiff(mount, ".", ".", then))
    cost_of_all, all_found = count_of(mount, lambda: vdiff(mount, ".", "--all", ".", then))
    assert found == all_found
    assert {"d1/sub/f1", "d2/sub/f2", "d3/sub", "d3/moved", "d4"} <= {entry["path"] for entry in found}
    assert cost < cost_of_all / 5
    cost, found = count_of(mount, lambda: snapdiff(mount, then))
    cost_of_all, all_found = count_of(mount, lambda: snapdiff(mount, "--all", then))
    assert found == all_found
    assert len(found) == 4
    assert cost < cost_of_all / 5
    # Below something that was moved, all of it.
    assert len([entry for entry in vdiff(mount, "d3", ".", then)]) == 42
    assert vdiff(mount, "d5", ".", then) == []


def test_another_name_of_a_changed_file(maker):
    mount = surveyed(maker.mount())
    for name in "abc":
        (mount.path / name).mkdir()
    (mount.path / "a/f").write_text("one")
    os.link(mount.path / "a/f", mount.path / "b/g")
    then = epoch(moment())
    (mount.path / "a/f").write_text("two")
    assert [entry["path"] for entry in both(mount, ".", then)] == ["a/f", "b/g"]
    os.unlink(mount.path / "a/f")
    assert [entry["path"] for entry in both(mount, ".", then)] == ["a/f", "b/g"]
    # A second name for a while, by which it is changed.
    then = epoch(moment())
    os.link(mount.path / "b/g", mount.path / "c/h")
    (mount.path / "c/h").write_text("three")
    os.unlink(mount.path / "c/h")
    assert [entry["path"] for entry in both(mount, ".", then)] == ["b/g"]


def test_a_directory_that_was_elsewhere_meanwhile(maker):
    mount = surveyed(maker.mount())
    (mount.path / "d/sub").mkdir(parents=True)
    (mount.path / "d/sub/f").write_text("one")
    then = epoch(moment())
    os.rename(mount.path / "d", mount.path / "e")
    (mount.path / "e/sub/f").write_text("two")
    os.rename(mount.path / "e", mount.path / "d")
    assert is_whole(mount)
    assert [entry["path"] for entry in both(mount, ".", then)] == ["d/sub/f"]
    assert [entry["path"] for entry in both(mount, "d/sub", then)] == ["f"]
    assert [change["path"] for change in snapdiff(mount, then)] == ["d/sub/f"]


def test_a_directory_of_the_past(maker):
    """The list has no such paths."""
    mount = surveyed(maker.mount())
    (mount.path / "d/sub").mkdir(parents=True)
    (mount.path / "d/sub/f").write_text("one")
    old = epoch(moment())
    (mount.path / "d/sub/f").write_text("two")
    new = epoch(moment())
    assert is_whole(mount)
    for path in (f"@{new}/d", f"d@{new}/sub"):
        assert [change["change"] for change in snapdiff(mount, old, new, path)] == ["content"]


def test_a_version_under_way(maker):
    mount = surveyed(maker.mount("history=close"))
    (mount.path / "f").write_text("one")
    then = epoch(moment())
    with open(mount.path / "f", "r+") as stream:
        stream.write("two")
        stream.flush()
        assert not is_whole(mount)
        assert [entry["path"] for entry in both(mount, ".", then)] == ["f"]
    assert [entry["path"] for entry in both(mount, ".", then)] == ["f"]


def test_what_is_left_out_is_not_passed_over(maker):
    """Nothing is known of it, which a comparison says."""
    mount = rules(maker, ('"*.o"', "none"))
    (mount.path / "x.o").write_text("one")
    then = epoch(moment())
    (mount.path / "x.o").write_text("two")
    assert not is_whole(mount)
    same_by_either_way(mount, then)


@pytest.mark.parametrize("again", ["remount", "touch"])
def test_what_was_left_out_in_an_earlier_mount(maker, again):
    """A rule that is gone: until something of such a file is recorded, its gap is open, from before the time asked for."""
    mount = rules(maker, ('"*.o"', "none"))
    (mount.path / "x.o").write_text("one")
    (mount.path / "x.o").write_text("two")
    then = epoch(moment())
    (mount.path / "x.o").write_text("three")
    mount.stop()
    write_rules(mount)
    surveyed(mount.start())
    if again == "touch":
        (mount.path / "x.o").write_text("four")
    now = epoch(moment())
    for old, new in [(then, []), (then, [now])]:
        same_by_either_way(mount, old, *new)
    (mount.path / "f").write_text("f")
    assert is_whole(mount)
    assert [entry["path"] for entry in vdiff(mount, ".", ".", now)] == ["f"]


@pytest.mark.parametrize("how", ["before", "change", "whole", "prune"])
def test_history_that_was_deleted(maker, how):
    """What is not known any more is not taken for unchanged."""
    mount = surveyed(maker.mount())
    mount.expect("was erased|was forgotten")
    for name in "fg":
        (mount.path / name).write_text("one")
    times = [epoch(moment())]
    (mount.path / "f").write_text("two")
    times.append(epoch(moment()))
    (mount.path / "f").write_text("three")
    times.append(epoch(moment()))
    same_by_either_way(mount, times[0])
    if how == "before":
        mount.tool("vrm", "-y", "--before", times[2], "f", cwd=mount.path)
    elif how == "change":
        mount.tool("vrm", "-y", "--change", "1", "f", cwd=mount.path)
    elif how == "whole":
        mount.tool("vrm", "-y", "f", cwd=mount.path)
    else:
        mount.tool("vprune", "-y", "--before", times[1], mount.path)
    for old, new in [(times[0], []), (times[1], []), (times[0], [times[1]]), (times[0], [times[2]])]:
        same_by_either_way(mount, old, *new)
    now = epoch(moment())
    (mount.path / "g").write_text("two")
    assert is_whole(mount)
    assert [entry["path"] for entry in vdiff(mount, ".", ".", now)] == ["g"]


def test_a_snapshot_holds_a_part_of_the_history(maker):
    """The horizon stays before it, and all else is forgotten up to later."""
    mount = surveyed(maker.mount("allow_other"))
    mount.expect("was forgotten")
    for name in ("kept", "other"):
        (mount.path / name).mkdir()
        (mount.path / name / "f").write_text("one")
    os.chown(mount.path / "kept", *SECOND)
    vsnap(mount, "create", "mine", "kept", user=SECOND)
    then = epoch(moment())
    for name in ("kept", "other"):
        (mount.path / name / "f").write_text("two")
    mount.tool("vprune", "-y", "--before", epoch(moment()), mount.path)
    assert "restored" in same_by_either_way(mount, then).stderr


def test_a_time_within_a_gap(maker):
    mount = maker.mount()
    mount.expect("changed while Wayback did not record")
    (mount.path / "f").write_text("one")
    before = epoch(moment())
    mount.stop()
    next_span()
    (mount.source / "f").write_text("two")
    within = epoch(moment())
    surveyed(mount.start())
    os.stat(mount.path / "f")
    for old, new in [(before, [within]), (before, []), (within, [])]:
        assert same_by_either_way(mount, old, *new).returncode == 1


def same_by_either_way(mount, old, *new):
    result, complete = [mount.run_tool("vdiff", "--json", *arguments, ".", old, *new, cwd=mount.path, merge=False)
                        for arguments in ([], ["--all"])]
    assert (result.returncode, result.stdout, result.stderr) == (complete.returncode, complete.stdout, complete.stderr)
    return result


def test_an_edit_past_the_mount(maker):
    """One that was met is in the list; one that nobody has met is found by looking at all."""
    mount = surveyed(maker.mount())
    mount.expect("changed while Wayback did not record")
    for name in "fg":
        (mount.path / name).write_text("one")
    then = epoch(moment())
    next_span()
    for name in "fg":
        (mount.source / name).write_text("two")
    os.stat(mount.path / "f")
    mount.run_tool("vdiff", "--all", ".", then, cwd=mount.path)
    assert same_by_either_way(mount, then).returncode == 1
