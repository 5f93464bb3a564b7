# SPDX-License-Identifier: LGPL-2.1-or-later
"""History protected by a snapshot of a directory, or by a section of wayback.conf, does not stop the forgetting of the
rest."""
import errno
import os
import random
import time

import pytest

from mounts import QUICK, moment, sync_tree
from operations import Operator
from test_close import Syncing
from test_forget import SECRET, found_in_store, make_secrets
from test_keeper import HOUR, MIB, configure, horizon, is_gone, look, taken, wait_for
from test_prune import Aging, aging
from test_rebind import copied, cp, rebind
from treestate import differences, state_of

SEEDS = 3 if QUICK else 10
SENTINEL = b"a-deleted-file-that-nothing-protects"


REFUSED = "was forgotten|the clock is|is no more, and no record describes it|is at none of the places|is not in the store"


def refused(function):
    with pytest.raises(OSError) as caught:
        function()
    assert caught.value.errno == errno.EIO


def leave_sentinel(mount, path):
    """A deleted file: those are removed last of all."""
    (mount.path / path).write_bytes(SENTINEL * 1000)
    (mount.path / path).unlink()
    sync_tree(mount.source)


def wait_for_the_end(mount):
    look(mount)
    wait_for(lambda: not found_in_store(mount, SENTINEL), "unprotected history is removed", mount)


def fill(mount, name):
    """A directory in which files are changed in place, replaced, moved out and deleted, also below it."""
    top, rng = mount.path / name, random.Random(name)
    (top / "sub" / "deep").mkdir(parents=True)
    for number in range(6):
        (top / f"f{number}").write_bytes(rng.randbytes(300_000))
        (top / "sub" / "deep" / f"g{number}").write_bytes(rng.randbytes(20_000))
    moment()
    return top


def spoil(mount, name, away):
    """Changes everything that fill() made."""
    top, rng = mount.path / name, random.Random(f"{name} later")
    for number in range(2):
        with open(top / f"f{number}", "r+b", buffering=0) as stream:
            stream.write(rng.randbytes(200_000))
    (top / "f2").unlink()
    os.rename(top / "f3", away / f"{name}-f3")
    (away / f"{name}-f3").write_bytes(b"changed elsewhere")
    os.rename(away / f"{name}-f3", mount.path / f"{name}-f3")
    (mount.path / f"{name}-f3").chmod(0o600)
    (top / "tmp").write_bytes(b"saved")
    os.rename(top / "tmp", top / "f4")
    os.rename(top / "sub", away / f"{name}-sub")
    (away / f"{name}-sub" / "deep" / "g0").unlink()
    (away / f"{name}-sub" / "deep" / "g1").write_bytes(b"changed below elsewhere")


@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_a_snapshot_of_a_directory_protects_its_history(maker, kind):
    mount = aging(maker, kind)
    mount.expect(f"is kept for the snapshot|{REFUSED}")
    away = mount.path / "away"
    away.mkdir()
    tops = {name: fill(mount, name) for name in ("a", "b")}
    mount.tool("vsnap", "create", "mine", tops["a"])
    known, was = time.time_ns(), state_of(tops["a"])
    whole = state_of(mount.path)
    moment()
    _, secret_then = make_secrets(mount.path)
    for name in tops:
        spoil(mount, name, away)
    leave_sentinel(mount, "b/sentinel")
    before = taken(mount)
    mount.programs.set(2 * HOUR)
    configure(mount, "keep = 1h", "compact = none")
    wait_for_the_end(mount)
    wait_for(lambda: not found_in_store(mount, SECRET), "history that it does not cover is removed", mount)
    assert taken(mount) < before - 1_000_000, (before, taken(mount))
    for _ in range(2):
        assert differences(was, state_of(mount.path / "a@mine")) == []
        assert differences(was, state_of(mount.at(known) / "a")) == []
        # The rest is as it was, or refused.
        lacking = set()
        shown = state_of(mount.at(known), lacking)
        assert {"b", "away"} <= lacking or {"b/f0", "b/f2"} & (set(whole) - set(shown))
        check_known(whole, shown)
        refused((mount.at(secret_then) / "secret").read_bytes)
        mount.check_store()
        for tool, path in (("vlog", mount.path), ("vstat", mount.path / "b" / "f0"), ("vstat", mount.path / "b")):
            mount.tool(tool, path)
        mount.remount()
    # Later changes are recorded and shown as usual.
    later, is_now = moment(), state_of(mount.path)
    spoil_again = mount.path / "b" / "f5"
    spoil_again.write_bytes(b"again")
    assert differences(is_now, state_of(mount.at(later))) == []
    assert mount.log().count("for the snapshot mine") >= 1
    mount.tool("vsnap", "delete", "mine", cwd=mount.path)
    mount.programs.set(4 * HOUR)
    look(mount)
    wait_for(lambda: is_gone(mount, known), "nothing protects it any more", mount)
    mount.stop()
    assert "clean" in mount.tool("vfsck", mount.source).stdout


def check_known(was, shown):
    """Every visible state is as it was, whatever is refused beside it."""
    for path, entry in shown.items():
        assert path in was, path
        assert entry._replace(group="") == was[path]._replace(group=""), path


def test_a_section_with_a_longer_age_keeps_its_own_history(maker):
    mount = aging(maker)
    mount.expect(REFUSED)
    (mount.path / "other").mkdir()
    tops = {name: fill(mount, name) for name in ("papers", "b")}
    known, was = moment(), state_of(mount.path)
    papers = state_of(tops["papers"])
    for name in tops:
        spoil(mount, name, mount.path / "other")
    leave_sentinel(mount, "b/sentinel")
    leave_sentinel(mount, "papers/kept")
    before = taken(mount)
    mount.programs.set(2 * HOUR)
    configure(mount, "keep = 1h", "compact = none", '[path "papers/"]', "keep = 1000h")
    wait_for(lambda: taken(mount) < before - 500_000, "history of the shorter age is removed", mount)
    refused((mount.at(known) / "b" / "f2").read_bytes)
    assert found_in_store(mount, SENTINEL)
    assert differences(papers, state_of(mount.at(known) / "papers")) == []
    check_known(was, state_of(mount.at(known), set()))
    mount.remount()
    assert differences(papers, state_of(mount.at(known) / "papers")) == []
    assert horizon(mount) == 0
    mount.programs.set(2000 * HOUR)
    look(mount)
    wait_for(lambda: is_gone(mount, known), "it is past every age", mount)


def test_a_section_with_a_shorter_age_releases_deleted_files(maker):
    mount = aging(maker)
    mount.expect(REFUSED)
    for name in ("build", "src"):
        fill(mount, name)
    known, was = moment(), state_of(mount.path)
    for name in ("build", "src"):
        (mount.path / name / "f1").unlink()
    leave_sentinel(mount, "build/sentinel")
    mount.programs.set(2 * HOUR)
    configure(mount, "keep = 1000h", "compact = none", '[path "build/"]', "keep = 1h")
    wait_for_the_end(mount)
    refused((mount.at(known) / "build" / "f1").read_bytes)
    assert differences({path: entry for path, entry in was.items() if path.startswith("src/")},
                       {f"src/{path}": entry._replace(group=f"src/{entry.group}") for path, entry
                        in state_of(mount.at(known) / "src").items() if path}) == []
    mount.check_store()


def test_a_snapshot_of_a_directory_protects_nothing_else_from_max_size(mount):
    """max-size: once the horizon is at the snapshot, history that it does not cover is removed."""
    mount.expect("was forgotten|more than 90 %|all remaining history is protected")
    rng, limit = random.Random(4), 8 * MIB
    top = fill(mount, "a")
    was = state_of(top)
    mount.tool("vsnap", "create", "mine", top)
    (mount.path / "b").mkdir()
    (top / "f1").unlink()
    configure(mount, "compact = none", f"max-size = {limit}")
    for step in range(30):
        (mount.path / "b" / "f").write_bytes(rng.randbytes(MIB))
        (mount.path / "b" / "f").unlink()
        sync_tree(mount.source)
        wait_for(lambda: taken(mount) < 2 * limit, f"the keeper keeps up, step {step}", mount)
    wait_for(lambda: taken(mount) <= limit * 1.05, "within the size", mount)
    assert differences(was, state_of(mount.path / "a@mine")) == []


def check_named(mount, named):
    """A snapshot's name leads to its own directory only; its moment is looked up by its path, whatever is there now."""
    for name, (top, when, was) in named.items():
        assert differences(was, state_of(mount.at(when) / top)) == [], (name, top)
        if (mount.path / top).parent.is_dir():
            assert differences(was, state_of(mount.path / f"{top}@{name}")) == [], (name, top)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_any_history_around_a_snapshot_of_a_directory(maker, seed):
    mount = aging(maker, ["ext4", "xfs", "btrfs"][seed % 3], ("history=close",) if seed % 2 else ())
    mount.expect(f"is kept for the snapshot|{REFUSED}")
    history = Aging(mount, seed, operator=Syncing if seed % 2 else Operator)
    rng = random.Random(seed)
    for top in ("n0/n1/n2", "n3/n4"):
        (mount.path / top).mkdir(parents=True)
    history.record("-- directories")
    history.work(60, kill=False, snapshots=False)
    named = {}
    for number in range(2):
        tops = sorted(path for path, entry in history.moments[-1].state.items() if entry.kind == "d" and path)
        if not tops:
            (mount.path / "a directory").mkdir()
        top = rng.choice(tops or ["a directory"])
        made = mount.tool("vsnap", "create", f"s{number}", mount.path / top).stdout.rstrip("\n").split("\t")
        named[f"s{number}"] = top, int(made[1].replace(".", "")), state_of(mount.path / top)
        history.record(f"-- snapshot of {top}")
        history.work(40, kill=False, snapshots=False)
    check_named(mount, named)
    leave_sentinel(mount, "sentinel")
    mount.programs.set(2 * HOUR)
    configure(mount, "keep = 1h", "compact = none")
    wait_for_the_end(mount)
    check_named(mount, named)
    for one in history.moments:
        lacking = set()
        try:
            shown = state_of(history.at(one), lacking)
        except OSError as error:
            assert error.errno == errno.EIO
            continue
        check_known(one.state, shown)
    mount.check_store()
    mount.stop()
    assert "clean" in mount.tool("vfsck", mount.source).stdout


def test_a_copy_knows_the_history_that_was_forgotten_in_this_way(maker):
    """The catalog of the root is kept for the snapshot, and the log with all that is known of the file is not."""
    mount = aging(maker)
    mount.expect(f"is kept for the snapshot|{REFUSED}")
    top = fill(mount, "a")
    mount.tool("vsnap", "create", "mine", top)
    was, known = state_of(top), moment()
    (mount.path / "b").mkdir()
    (mount.path / "b" / "draft").write_bytes(b"draft")
    (mount.path / "b" / "draft").write_bytes(b"first")
    os.rename(mount.path / "b" / "draft", mount.path / "file")
    then, whole = moment(), state_of(mount.path)
    (mount.path / "file").write_bytes(b"second")
    spoil(mount, "a", mount.path)
    leave_sentinel(mount, "sentinel")
    mount.programs.set(2 * HOUR)
    configure(mount, "keep = 1h", "compact = none")
    wait_for_the_end(mount)
    refused((mount.at(then) / "file").read_bytes)
    mount.stop()
    assert "clean" in mount.tool("vfsck", mount.source).stdout
    copy = copied(maker, mount, cp)
    copy.expect(f"{REFUSED}|not known")
    assert "lost-track" in rebind(copy, "-y", status=4)
    copy.start()
    refused((copy.at(then) / "file").read_bytes)
    check_known(whole, state_of(copy.at(then), set()))
    assert differences(was, state_of(copy.at(known) / "a")) == []
    assert (copy.path / "file").read_bytes() == b"second"
