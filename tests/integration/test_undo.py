# SPDX-License-Identifier: LGPL-2.1-or-later
"""vundo: back through restores, forward again, and never over later changes."""
import json
import os
import pty
import random
import signal
import struct
import subprocess

import pytest

from by_hand import call_for_all
from enabling import all_of_terminal
from mounts import LIMIT, NOBODY, QUICK, SECOND, epoch, moment
from operations import Operator
from preload import preloaded
from test_stopping import IDENTIFY, INTERRUPT, STOPPED
from treestate import differences, state_of

CHANGES, BY_COMMAND = 10, 16


def vundo(mount, *arguments, status=0, **options):
    return mount.tool("vundo", *arguments, status=status, cwd=options.pop("cwd", mount.path), **options).stdout


def listed(mount, *arguments, **options):
    """The restores, newest first."""
    return [json.loads(line) for line in vundo(mount, "--list", "--json", *arguments, **options).splitlines()]


def states(mount, *arguments):
    return [entry["state"] for entry in listed(mount, *arguments)]


def revert(mount, when, *paths):
    return mount.tool("vrevert", *paths, "--time", epoch(when), cwd=mount.path).stdout


@pytest.fixture(name="steps")
def fixture_steps(mount):
    """d/f has been 0, 1, 2 and 3; a restore to 2, one to 1, and one to 0 followed."""
    (mount.path / "d").mkdir()
    times = []
    for number in range(4):
        (mount.path / "d" / "f").write_bytes(b"%d" % number)
        times.append(moment())
    for number in (2, 1, 0):
        revert(mount, times[number], "d")
    return mount


def content(mount):
    return (mount.path / "d" / "f").read_bytes()


def test_back_and_forward(steps):
    """Each undo goes back by one restore, each redo forward by one, to both ends."""
    assert content(steps) == b"0" and states(steps, "d") == ["restore"] * 3
    for expected in (b"1", b"2", b"3"):
        text = vundo(steps, "d")
        assert content(steps) == expected and "redo: vundo --redo d\n" in text
    assert "nothing to undo" in vundo(steps, "d", status=1) and content(steps) == b"3"
    assert states(steps) == ["undo"] * 3 + ["undone"] * 3
    for expected in (b"2", b"1", b"0"):
        assert "undo: vundo d\n" in vundo(steps, "--redo", "d")
        assert content(steps) == expected
    assert "nothing to redo" in vundo(steps, "--redo", "d", status=1) and content(steps) == b"0"
    assert sorted(states(steps)) == ["redo"] * 3 + ["restore"] * 3 + ["undone"] * 3
    for expected in (b"1", b"2"):
        vundo(steps, "d/")
        assert content(steps) == expected
    vundo(steps, "--redo")
    assert content(steps) == b"1"
    vundo(steps)
    vundo(steps)
    assert content(steps) == b"3"


def test_a_redo_ends_with_the_next_undo(steps):
    """It has no effect any more, and is not offered again."""
    vundo(steps)
    vundo(steps, "--redo")
    redone = listed(steps)[0]["op"]
    vundo(steps)
    assert states(steps) == ["undo", "undone", "undone", "undone", "restore", "restore"]
    assert "was undone at" in vundo(steps, "--op", redone, status=1) and content(steps) == b"1"
    vundo(steps)
    vundo(steps)
    assert "nothing to undo: the history shows no restore" in vundo(steps, status=1) and content(steps) == b"3"
    vundo(steps, "--redo")
    assert content(steps) == b"2"


def test_a_name_like_an_option(mount):
    (mount.path / "-n").write_bytes(b"1")
    then = moment()
    (mount.path / "-n").write_bytes(b"2")
    text = mount.tool("vrevert", "--time", epoch(then), "--", "-n", cwd=mount.path).stdout
    assert "undo: vrevert ./-n --time " in text and "or:   vundo ./-n\n" in text
    assert "redo: vundo --redo ./-n\n" in vundo(mount, "./-n")
    assert (mount.path / "-n").read_bytes() == b"2"


def test_a_change_while_it_asks(mount):
    """A file that is edited before the answer is not removed."""
    (mount.path / "f").write_bytes(b"1")
    then = moment()
    (mount.path / "f").unlink()
    revert(mount, then, "f")
    mine, theirs = pty.openpty()
    process = subprocess.Popen([mount.programs.directory / "vundo"], cwd=mount.path, env=mount.programs.environment(),
                               stdin=theirs, stderr=theirs, stdout=subprocess.PIPE)
    asked = b""
    while b"Remove?" not in asked:
        asked += os.read(mine, 1000)
    (mount.path / "f").write_bytes(b"edited")
    os.write(mine, b"y\n")
    process.communicate(timeout=LIMIT)
    said = all_of_terminal(mine, theirs)
    assert process.returncode == 1 and "f: changed since (" in said and "nothing was changed" in said
    assert (mount.path / "f").read_bytes() == b"edited"


def test_a_restore_ends_redoing(steps):
    times = moment()
    vundo(steps, "d")
    (steps.path / "e").write_bytes(b"new")
    revert(steps, times, "e")
    assert not (steps.path / "e").exists()
    assert "after the last undo" in vundo(steps, "--redo", status=1) and content(steps) == b"1"
    # That one is no concern of d.
    vundo(steps, "--redo", "d")
    assert content(steps) == b"0"


def test_it_is_exact(any_mount):
    """Random changes, a restore of a part of the past, its undo and redo: the very same trees, by the same objects."""
    root = any_mount.path
    (root / "d").mkdir()
    operator = Operator(str(root / "d"), 3)
    for _ in range(60):
        operator.step()
    operator.close()
    then = moment()
    operator = Operator(str(root / "d"), 4)
    for _ in range(60):
        operator.step()
    operator.close()
    before = state_of(root / "d")
    any_mount.tool("vrevert", root / "d", "--time", epoch(then))
    restored = state_of(root / "d")
    any_mount.tool("vundo", root / "d")
    assert differences(before, state_of(root / "d")) == []
    any_mount.tool("vundo", "--redo", root / "d")
    assert differences(restored, state_of(root / "d")) == []


@pytest.mark.parametrize("seed", range(11, 16 if QUICK else 31))
def test_random_restores(mount, seed):
    """Changes and restores of the whole and of parts in turn; all undone, all redone, and undone again."""
    root, chance = mount.path / "d", random.Random(seed)
    root.mkdir()
    times, seen = [], []
    for step in range(4):
        operator = Operator(str(root), seed * 10 + step)
        for _ in range(25):
            operator.step()
        operator.close()
        times.append(moment())
    for when in chance.choices(times, k=4):
        before, count = state_of(root), len(listed(mount))
        names = [path for path in root.iterdir() if path.is_dir()]
        path = chance.choice([root, *names])
        mount.tool("vrevert", path, "--time", epoch(when))
        if len(listed(mount)) > count:
            seen.append(before)
    seen.append(state_of(root))
    for options, turn in (((), seen[-2::-1]), (("--redo",), seen[1:]), ((), seen[-2::-1])):
        for expected in turn:
            vundo(mount, *options)
            # That of the directory of a PATH is not changed back, as vrevert does not.
            assert [line for line in differences(expected, state_of(root)) if not line.startswith(".: mtime")] == []


@pytest.fixture(name="busy")
def fixture_busy(mount):
    """d with names of all kinds, changed, and restored to the time before."""
    root = mount.path
    (root / "d" / "sub").mkdir(parents=True)
    for name in ("a", "moved", "sub/x", "same"):
        (root / "d" / name).write_bytes(name.encode())
    os.link(root / "d" / "same", root / "d" / "hard")
    then = moment()
    (root / "d" / "a").write_bytes(b"changed")
    (root / "d" / "moved").rename(root / "d" / "sub" / "there")
    (root / "d" / "sub" / "x").unlink()
    (root / "d" / "hard").unlink()
    (root / "d" / "new").mkdir()
    (root / "d" / "new" / "n").write_bytes(b"n")
    (root / "d" / "other").write_bytes(b"other")
    mount.before = state_of(root / "d")
    revert(mount, then, "d")
    return mount


def test_other_files_are_left_alone(busy):
    """Changes by others of other files of the same directories stay, and no time of them changes."""
    root = busy.path
    (root / "d" / "later").write_bytes(b"later")
    (root / "d" / "sub" / "later").write_bytes(b"later")
    later = {name: (root / "d" / name).stat() for name in ("later", "sub/later")}
    text = vundo(busy, "-n", "d")
    assert "remove   d/sub/x" not in text or "later" not in text
    vundo(busy, "d")
    for name, stat in later.items():
        now = (root / "d" / name).stat()
        assert (now.st_ino, now.st_mtime_ns, now.st_ctime_ns) == (stat.st_ino, stat.st_mtime_ns, stat.st_ctime_ns)
        (root / "d" / name).unlink()
    found = differences(busy.before, state_of(root / "d"))
    assert [line for line in found if "mtime" not in line] == []


LATER = {
    "content": (lambda d: (d / "a").write_bytes(b"mine"), "d/a"),
    "attributes": (lambda d: (d / "a").chmod(0o600), "d/a"),
    "removal": (lambda d: (d / "sub" / "x").unlink(), "d/sub/x"),
    "rename of it": (lambda d: (d / "moved").rename(d / "elsewhere"), "d/moved"),
    "rename above it": (lambda d: (d / "sub").rename(d / "elsewhere"), "d/sub"),
    "rename over it": (lambda d: (d / "same").rename(d / "moved"), "d/same"),
    "a name that comes back": (lambda d: (d / "new").write_bytes(b"mine"), "d/new"),
    "below a name that comes back": (lambda d: ((d / "new").mkdir(), (d / "new" / "n").write_bytes(b"m")), "d/new"),
    "by another name": (lambda d: (d / "hard").write_bytes(b"mine"), "d/hard"),
}


@pytest.mark.parametrize("change, path", LATER.values(), ids=LATER)
def test_later_changes_are_not_overwritten(busy, change, path):
    change(busy.path / "d")
    state = state_of(busy.path)
    for options in ((), ("-n",)):
        text = vundo(busy, *options, "d", status=1)
        assert f"vundo: {path}: changed since (20" in text and "--force" in text and "nothing was changed" in text
        assert differences(state, state_of(busy.path)) == []
    assert "changed since" not in vundo(busy, "--force", "d")
    found = differences(busy.before, state_of(busy.path / "d"))
    assert [line for line in found if "mtime" not in line and not line.startswith(("elsewhere", "same: ", ".: nlink"))] == []
    # That is a restore like any other one.
    vundo(busy, "--redo", "d")
    assert differences(state, state_of(busy.path)) == []


def test_later_restores_count_unless_they_are_undone(steps):
    """The oldest restore cannot be undone below newer ones of the same file; it can when these are undone."""
    oldest = listed(steps)[-1]["op"]
    assert "d/f: changed since" in vundo(steps, "--op", oldest, status=1)
    vundo(steps)
    vundo(steps)
    vundo(steps, "--op", oldest)
    assert content(steps) == b"3"


def test_one_by_its_id(mount):
    """Restores of different files can be undone in any order."""
    root, times = mount.path, {}
    for name in "abc":
        (root / name).write_bytes(b"old")
        times[name] = moment()
        (root / name).write_bytes(b"new")
    for name in "abc":
        revert(mount, times[name], name)
    middle = listed(mount)[1]
    assert middle["path"] == "b" and middle["changed"] == 1 and middle["added"] == 0 and middle["uid"] == 0
    # A beginning of the ID will do, if it is of one only.
    assert "several IDs" in vundo(mount, "--op", middle["op"][:9], status=1)
    text = vundo(mount, "--op", middle["op"][:-1])
    assert "redo: vundo --redo .\n" in text
    assert [(root / name).read_bytes() for name in "abc"] == [b"old", b"new", b"old"]
    assert "was undone at" in vundo(mount, "--op", middle["op"], status=1)
    assert "no restore has the ID" in vundo(mount, "--op", "0", status=1)
    assert "is not an ID" in vundo(mount, "--op", "x", status=2)
    # Its undo has an ID, too.
    undone = listed(mount, "b")
    assert [entry["state"] for entry in undone] == ["undo", "undone"] and undone[0]["inverts"] == middle["op"]
    vundo(mount, "--op", undone[0]["op"])
    assert (root / "b").read_bytes() == b"old"
    # The redone restore is the newest again.
    vundo(mount)
    assert [(root / name).read_bytes() for name in "abc"] == [b"old", b"new", b"old"]


def test_where(steps):
    """Only restores in PATH or below it; one above is named."""
    (steps.path / "e").mkdir()
    text = vundo(steps, "e", status=1)
    assert "e: nothing to undo" in text and "d/f: name that, or use --op" in text
    assert vundo(steps, "--list", "e") == "e: no restore by vrevert is recorded here\n"
    assert "d/f" in vundo(steps, "d/f") and content(steps) == b"1"
    vundo(steps, ".", cwd=steps.path / "d")
    assert content(steps) == b"2"
    vundo(steps, cwd=steps.path / "d")
    assert content(steps) == b"3"


def test_dry_run_and_json(busy):
    state, count = state_of(busy.path), len(listed(busy))
    text = vundo(busy, "-n", "d")
    assert text.startswith("would take back the restore of 20") and "rewrite  d/a" in text and "redo:" not in text
    result = json.loads(vundo(busy, "-n", "--json", "d"))
    assert result["op"] == listed(busy)[0]["op"] and result["dry_run"] and result["path"] == "d" and result["undo"] is None
    assert differences(state, state_of(busy.path)) == [] and len(listed(busy)) == count
    result = json.loads(vundo(busy, "--json", "d"))
    assert result["counts"]["rewrite"] == 1 and result["failed"] == 0 and result["undo"] == "vundo --redo d"
    assert {"action": "rewrite", "path": "d/a", "bytes": 7} in result["actions"]


def test_list_fits_a_terminal(busy):
    text = vundo(busy, "--list")
    assert max(map(len, text.splitlines())) <= 80
    assert text.split()[:7] == ["ID", "TIME", "AGE", "USER", "STATE", "NAMES", "PATH"]
    row = text.splitlines()[1].split()
    assert "restore" in row and row[-1] == "d" and "+3" in row and "-4" in row
    assert "vrevert d --time" in vundo(busy, "--list", "-v")


def test_by_the_verbs(steps):
    def call(verb, *arguments):
        return steps.tool("wayback", verb, *arguments, cwd=steps.path).stdout

    assert "redo: wayback redo d\n" in call("undo", "d") and content(steps) == b"1"
    assert "undo: wayback undo d\n" in call("redo", "d") and content(steps) == b"0"
    call("undo")
    call("undo")
    assert content(steps) == b"2"
    then = moment()
    (steps.path / "d" / "g").touch()
    text = call("restore", "d", "--time", epoch(then))
    assert text.splitlines()[-1] == "or:   wayback undo d"
    call("undo", "d")
    assert (steps.path / "d" / "g").exists()


def test_what_vrevert_prints(mount):
    """The second way to undo is there where it is the same: for one path that changed."""
    (mount.path / "a b").write_bytes(b"1")
    then = moment()
    (mount.path / "a b").write_bytes(b"2")
    (mount.path / "c").write_bytes(b"2")
    assert revert(mount, then, "a b").splitlines()[-1] == "or:   vundo 'a b'"
    assert "or: " not in revert(mount, then, "a b", "c")
    assert "or: " not in revert(mount, then, "a b")
    # Several paths of one command are one restore.
    assert not (mount.path / "c").exists()
    vundo(mount, "c")
    assert (mount.path / "c").exists() and (mount.path / "a b").read_bytes() == b"1"
    vundo(mount)
    assert (mount.path / "a b").read_bytes() == b"2"


def test_several_paths(mount):
    for name in ("x/a", "y/b"):
        (mount.path / name).parent.mkdir()
        (mount.path / name).write_bytes(b"1")
    then = moment()
    for name in ("x/a", "y/b"):
        (mount.path / name).write_bytes(b"2")
    revert(mount, then, "x/a", "y/b")
    assert "nothing to undo only here; the newest is of" in vundo(mount, "x", status=1)
    vundo(mount)
    assert [(mount.path / name).read_bytes() for name in ("x/a", "y/b")] == [b"2", b"2"]


def test_restores_of_other_users(maker):
    mount = maker.mount("allow_other")
    mount.path.chmod(0o777)
    (mount.path / "f").write_bytes(b"1")
    os.chown(mount.path / "f", *SECOND)
    then = moment()
    (mount.path / "f").write_bytes(b"2")
    mount.tool("vrevert", "f", "--time", epoch(then), cwd=mount.path, user=SECOND)
    assert (mount.path / "f").read_bytes() == b"1"
    text = vundo(mount, status=1)
    assert f"nothing of yours to undo here; the newest is by {SECOND[0]}: --op" in text
    assert "nothing of yours" in vundo(mount, status=1, user=NOBODY)
    vundo(mount, user=SECOND)
    assert (mount.path / "f").read_bytes() == b"2"
    vundo(mount, "--redo", user=SECOND)
    vundo(mount, "--op", [entry for entry in listed(mount) if entry["state"] == "restore"][0]["op"])
    assert (mount.path / "f").read_bytes() == b"2"


def test_a_tree_that_is_not_mounted(maker):
    mount = maker.mount()
    (mount.path / "f").write_bytes(b"1")
    then = moment()
    (mount.path / "f").write_bytes(b"2")
    mount.stop()
    mount.tool("vrevert", mount.source / "f", "--time", epoch(then))
    assert (mount.source / "f").read_bytes() == b"1"
    mount.tool("vundo", mount.source)
    assert (mount.source / "f").read_bytes() == b"2"
    mount.tool("vundo", "--redo", mount.source)
    assert (mount.source / "f").read_bytes() == b"1"


@pytest.fixture(name="trees")
def fixture_trees(mount):
    """t0 to t9, changed and restored."""
    for number in range(10):
        (mount.path / f"t{number}").write_bytes(b"old" * 1000)
    then = moment()
    for number in range(10):
        (mount.path / f"t{number}").write_bytes(b"new" * 2000)
    revert(mount, then, ".")
    return mount


def contents(mount):
    return [(mount.path / f"t{number}").read_bytes() for number in range(10)]


def stopped(mount, directory, at, *arguments):
    with preloaded(directory, INTERRUPT, STOP_COMMAND=IDENTIFY, STOP_AT=at):
        return vundo(mount, *arguments, status=STOPPED, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))


def test_interrupted(trees, tmp_path):
    """The next undo finishes the one that was interrupted, and is one with it."""
    text = stopped(trees, tmp_path, 6)
    assert "stopped; run the same command again to finish" in text
    done = contents(trees).count(b"new" * 2000)
    assert 0 < done < 10 and set(contents(trees)) == {b"new" * 2000, b"old" * 1000}
    vundo(trees)
    assert contents(trees) == [b"new" * 2000] * 10 and states(trees) == ["undo", "undone"]
    assert "nothing to undo" in vundo(trees, status=1)
    vundo(trees, "--redo")
    assert contents(trees) == [b"old" * 1000] * 10


def test_interrupted_and_changed_meanwhile(trees, tmp_path):
    """It is not finished yet: the changes are named, and nothing is overwritten without --force."""
    stopped(trees, tmp_path, 6)
    (trees.path / "t0").write_bytes(b"mine")
    (trees.path / "t9").write_bytes(b"mine")
    before = contents(trees)
    for arguments in ((), ("--op", listed(trees)[-1]["op"])):
        text = vundo(trees, *arguments, status=1)
        assert "t0: changed since" in text and "t9: changed since" in text and "nothing was changed" in text
        assert contents(trees) == before
    vundo(trees, "--force")
    assert contents(trees) == [b"new" * 2000] * 10
    # An undo that has ended, and changes after it, are no reason to do it again.
    (trees.path / "t5").write_bytes(b"mine")
    (trees.path / "t6").rename(trees.path / "t7")
    (trees.path / "t6").write_bytes(b"mine")
    (trees.path / "t8").unlink()
    assert "nothing to undo" in vundo(trees, status=1)


@pytest.mark.parametrize("user", [None, NOBODY], ids=["root", "user"])
def test_interrupted_with_attributes_left(maker, user):
    """They are a part of the undo, too, where the caller can set them."""
    mount = maker.mount("allow_other")
    (mount.path / "d").mkdir()
    files = [mount.path / "d" / f"f{number}" for number in range(10)]
    for path in (mount.path / "d", *files):
        path.exists() or path.write_bytes(b"x")
        os.chown(path, *(user or (0, 0)))
    then = moment()
    for path in files:
        path.chmod(0o600)
    mount.tool("vrevert", "d", "--time", epoch(then), cwd=mount.path, user=user)
    with preloaded(maker.scratch, INTERRUPT, STOP_COMMAND=IDENTIFY, STOP_AT=6):
        vundo(mount, status=STOPPED, user=user, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    assert 0 < sum(path.stat().st_mode & 0o777 == 0o600 for path in files) < 10
    vundo(mount, user=user)
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
    assert "nothing to undo" in vundo(mount, status=1, user=user)


def test_a_restore_within_an_interrupted_undo(trees, tmp_path):
    """It is no part of the undo, although that is finished after it."""
    (trees.path / "t9").write_bytes(b"mine")
    then = moment()
    (trees.path / "t9").write_bytes(b"old" * 1000)
    (trees.path / "t9").chmod(0o600)
    now = moment()
    revert(trees, then, ".")
    stopped(trees, tmp_path, 1, "-n")
    vundo(trees)
    revert(trees, now, "t9")
    oldest = listed(trees)[-1]["op"]
    stopped(trees, tmp_path, 6, "--op", oldest, "--force")
    revert(trees, then, "t9")
    assert "t9: changed since" in vundo(trees, "--op", oldest, status=1)
    vundo(trees, "--op", oldest, "--force")
    assert contents(trees) == [b"new" * 2000] * 10
    assert "t9: changed since" in vundo(trees, "--op", [e["op"] for e in listed(trees) if e.get("inverts") == oldest][0],
                                        status=1)


def test_interrupted_and_turned_round(trees, tmp_path):
    stopped(trees, tmp_path, 6)
    vundo(trees, "--redo")
    assert contents(trees) == [b"old" * 1000] * 10
    stopped(trees, tmp_path, 6)
    vundo(trees, "--op", listed(trees)[-1]["op"])
    assert contents(trees) == [b"new" * 2000] * 10
    text = stopped(trees, tmp_path, 1, "--redo", "-n")
    assert "nothing was changed" in text and contents(trees) == [b"new" * 2000] * 10


def test_a_shell_that_becomes_vrevert(steps):
    """Its changes are not those of the shell, which had the same process number a moment ago."""
    then = moment()
    for name in "abc":
        (steps.path / "d" / name).touch()
    for _ in range(5):
        state = state_of(steps.path / "d")
        steps.tool("bash", "-c", f"echo 1 > x; echo 2 > x; exec vrevert d --time {epoch(then)}", cwd=steps.path)
        assert os.listdir(steps.path / "d") == ["f"]
        vundo(steps, "d")
        assert differences(state, state_of(steps.path / "d")) == []


@pytest.mark.parametrize("options", [("allow_other",), ("allow_other", "history=close")], ids=["write", "close"])
@pytest.mark.parametrize("user", [None, NOBODY], ids=["root", "user"])
def test_by_users_and_with_closed_files_only(maker, options, user):
    mount = maker.mount(*(options if user is None else options[1:]), user=user)

    def shell(script):
        return mount.tool("sh", "-c", f"cd {mount.path}; {script}").stdout

    read = "cat d/f; ls d"
    then = shell("mkdir d; echo 1 > d/f; echo 1 > d/g; sleep 0.01; date +%s.%N; sleep 0.01; "
                 "echo two > d/f; rm d/g; echo new > d/new").strip()
    shell(f"vrevert d --time {then}")
    assert shell(read).split() == ["1", "f", "g"]
    shell("vundo")
    assert shell(read).split() == ["two", "f", "new"]
    shell("vundo --redo d")
    assert shell(read).split() == ["1", "f", "g"]
    found = [json.loads(line) for line in shell("vundo --list --json").splitlines()]
    assert [entry["state"] for entry in found] == ["redo", "undone", "restore"]


def test_names_of_commands_only(maker):
    """Where the arguments are not recorded, undo does not guess."""
    mount = maker.mount("allow_other")
    config = mount.source / ".wayback" / "wayback.conf"
    config.write_text(config.read_text().replace("[history]", "[history]\ncommands = name", 1))
    mount.remount()
    (mount.path / "f").write_bytes(b"1")
    then = moment()
    (mount.path / "f").write_bytes(b"2")
    revert(mount, then, "f")
    vundo(mount)
    assert (mount.path / "f").read_bytes() == b"2"
    for options in ((), ("--redo",)):
        assert "does not show which restore" in vundo(mount, *options, status=1)
    assert states(mount) == ["undo?", "restore"]
    vundo(mount, "--op", listed(mount)[0]["op"])
    assert (mount.path / "f").read_bytes() == b"1"


def test_the_daemon_filters(steps):
    """Asked for commands, it leaves out all other changes, so that a long history takes few requests."""
    def count(texts):
        data = struct.pack("=2I", BY_COMMAND, 0) + b"".join(text + b"\0" for text in texts)
        reply = call_for_all(steps.path, CHANGES, "", os.fsdecode(data))
        return reply.count(b"vrevert d --time"), reply.count(b"write\0")

    assert count([b"vrevert"]) == count([b"nothing", b"vrevert", b"wayback"]) == (3, 3)
    assert count([b"nothing"]) == count([]) == (0, 0)
    with pytest.raises(OSError, match="Invalid argument"):
        count([b"x" * 511])


def test_wrong_usage(mount):
    for arguments in (("--list", "--op", "1"), ("--list", "-n"), ("a", "b"), ("--op", "")):
        vundo(mount, *arguments, status=2)
    assert "nothing to undo: the history shows no restore by vrevert here" in vundo(mount, status=1)
    assert vundo(mount, "--list", "--json") == ""
