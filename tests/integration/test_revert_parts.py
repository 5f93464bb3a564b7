# SPDX-License-Identifier: LGPL-2.1-or-later
"""vrevert of single files and directories of a tree with a random history.

The named path becomes what it was, nothing else changes, -n reports the changes beforehand, a second run finds nothing
to do, and the undo that is offered undoes it.
"""
import json
import os
import random
import shlex
import signal
import subprocess
import time

import pytest

from mounts import QUICK, SECOND, epoch, moment
from operations import Operator
from treestate import differences, state_of


SEEDS = [int(s) for s in os.environ.get("WAYBACK_REVERT_SEEDS", "1" if QUICK else "1,2,3").split(",")]


class Past:
    """A mount with a random history and moments in it."""

    def __init__(self, mount, seed):
        self.mount = mount
        self.random = random.Random(seed)
        self.moments = []
        for _ in range(12):
            operator = Operator(str(mount.path), self.random.randrange(1 << 30))
            for _ in range(25):
                operator.step()
            operator.close()
            self.moments.append(moment())

    def then(self, when, path):
        """The state of DIR/NAME@T, or if DIR does not know one, of the file that had the longer path. None: nothing was
        there."""
        parts = path.split("/") if path else []
        for i in range(max(len(parts) - 1, 0), -1, -1):
            place = os.path.join(self.mount.path, *parts[:i], "@" + epoch(when), *parts[i:])
            linked = any(os.path.islink(os.path.join(self.mount.path, *parts[:i], "@" + epoch(when),
                                                     *parts[i:j])) for j in range(i + 1, len(parts)))
            if not linked and os.path.lexists(place):
                return state_of(place)
        return None

    def now(self, path):
        place = self.mount.path / path
        return state_of(place) if os.path.lexists(place) else None

    def paths(self):
        """Paths that exist now, or existed at a moment."""
        found = set(self.now(""))
        for when in self.random.sample(self.moments, 3):
            found |= set(self.then(when, ""))
        return sorted(found - {""})

    def revert(self, path, when, *arguments):
        text = self.mount.tool("vrevert", self.mount.path / path, "--time", epoch(when), "--json",
                               *arguments, merge=False).stdout
        return json.loads(text)


def same(a, b):
    """Whether two states of one path are equal; links to elsewhere are not its own."""
    if a is None or b is None:
        return a is b
    return differences(a, b, ignore=("nlink",)) == []


def shared_inodes(mount, path):
    """Inodes with a name at `path` or below and another elsewhere: changed in place."""
    inside, outside = set(), set()
    for directory, names, files in os.walk(mount.path):
        for name in names + files:
            place = os.path.join(directory, name)
            relative = os.path.relpath(place, mount.path)
            below = relative == path or relative.startswith(path + "/")
            (inside if below else outside).add(os.lstat(place).st_ino)
    return inside & outside


def parents(path):
    return [path[:i] for i, c in enumerate(path) if c == "/"]


def elsewhere(mount, path):
    """Everything but `path`, with inodes; the directory that holds it may change its times."""
    state = state_of(mount.path)
    above = {"", *parents(path)}
    return {name: (entry._replace(nlink=0, group="", mtime=0 if name in above else entry.mtime),
                   os.lstat(mount.path / name).st_ino)
            for name, entry in state.items()
            if name != path and not name.startswith(path + "/")}


def brought(document, before):
    """Names that had nothing and get something. (-n can predict how names in use are freed only as long as one step
    does not open another way for the next.)"""
    top = document["path"]
    had = {os.path.join(top, name) if name else top for name in before or {}}
    return {a["path"] for a in document["actions"] if a["action"] in ("restore", "rename", "link", "copy")
            and a["path"] not in had and a["path"].startswith(top)}


@pytest.mark.parametrize("seed", SEEDS)
def test_any_part_can_be_reverted_alone(mount, seed):
    past = Past(mount, seed)
    paths = past.paths()
    for path in past.random.sample(paths, min(14, len(paths))):
        when = past.random.choice(past.moments)
        expected = past.then(when, path)
        if any((mount.path / parent).is_symlink() for parent in parents(path)):
            continue  # that is another path
        before, around = past.now(path), elsewhere(mount, path)
        if expected is None and before is None:
            continue
        if any(not (mount.path / parent).is_dir() for parent in parents(path)
               if os.path.lexists(mount.path / parent)):
            mount.tool("vrevert", mount.path / path, "--time", epoch(when), status=1)
            continue
        linked = shared_inodes(mount, path)
        planned = past.revert(path, when, "-n")
        assert same(before, past.now(path)), f"-n changed {path}"
        done = past.revert(path, when)
        what = f"seed {seed}: {path} back to {epoch(when)}: {json.dumps(done, indent=1)}"
        assert same(expected, past.now(path)), \
            what + "\n".join(differences(expected or {}, past.now(path) or {}, ignore=("nlink",)))
        linked |= shared_inodes(mount, path)
        after = elsewhere(mount, path)
        changed = {n for n in around.keys() | after.keys()
                   if around.get(n) != after.get(n) and not path.startswith(n + "/")
                   and around.get(n, after.get(n))[1] not in linked}
        assert not changed, f"{what}\nchanged too: {[(n, around.get(n), after.get(n)) for n in changed]}"
        assert brought(planned, before) == brought(done, before), what
        assert bool(planned["actions"]) == bool(done["actions"]), what
        assert past.revert(path, when)["actions"] == [], what
        if done["undo"]:
            mount.tool(*shlex.split(done["undo"]))
            assert same(before, past.now(path)), what + "\nand undone"


def test_killed_at_any_moment_it_can_be_finished(mount):
    past = Past(mount, 9)
    states = {when: past.then(when, "") for when in past.moments}
    for when in past.random.sample(past.moments, 8):
        for _ in range(4):
            tool = subprocess.Popen(["vrevert", mount.path, "--time", epoch(when), "--no-sync"],
                                    cwd="/", env=mount.programs.environment(),
                                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(past.random.random() * 0.15)
            tool.send_signal(signal.SIGKILL)
            tool.wait()
        mount.tool("vrevert", mount.path, "--time", epoch(when))
        assert differences(states[when], past.now("")) == []


def test_a_directory_that_moved_into_its_child(mount):
    """At T: a/b. Since then b was moved out, a into it, and b was named a."""
    root = mount.path
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "b" / "f").write_bytes(b"f")
    when, state = moment(), state_of(root / "a")
    inodes = [(root / n).stat().st_ino for n in ("a", "a/b", "a/b/f")]
    os.rename(root / "a" / "b", root / "x")
    os.rename(root / "a", root / "x" / "c")
    os.rename(root / "x", root / "a")
    mount.tool("vrevert", root / "a", "--time", epoch(when))
    assert differences(state, state_of(root / "a")) == []
    assert os.listdir(root) == ["a"]
    assert inodes == [(root / n).stat().st_ino for n in ("a", "a/b", "a/b/f")]


def test_a_file_that_moved_with_its_directory_is_unchanged(mount):
    root = mount.path
    (root / "d").mkdir()
    (root / "f").write_bytes(b"then")
    os.rename(root / "f", root / "d" / "f")
    when = moment()
    (root / "e").mkdir()
    os.rename(root / "d", root / "e" / "d")
    (root / "e" / "d" / "f").write_bytes(b"changed since")
    mount.tool("vrevert", root / "d", "--time", epoch(when))
    assert (root / "d" / "f").read_bytes() == b"then"
    assert (root / "e" / "d" / "f").read_bytes() == b"changed since"


def test_a_failure_is_not_called_the_state_of_then(mount):
    root = mount.path
    (root / "f").write_bytes(b"one")
    (root / "f").chmod(0o600)
    when = moment()
    (root / "f").unlink()
    result = mount.tool("vrevert", root / "f", "--time", epoch(when), status=1, user=SECOND)
    assert "has not changed since then" not in result.stdout


def test_a_file_below_deleted_directories(mount):
    root = mount.path
    (root / "d" / "e").mkdir(parents=True)
    (root / "d" / "e" / "f").write_bytes(b"f")
    (root / "d" / "other").write_bytes(b"other")
    (root / "d").chmod(0o750)
    when = moment()
    mount.tool("rm", "-r", root / "d")
    mount.tool("vrevert", root / "d" / "e" / "f", "--time", epoch(when))
    assert (root / "d" / "e" / "f").read_bytes() == b"f"
    assert os.listdir(root / "d") == ["e"] and (root / "d").stat().st_mode & 0o777 == 0o750


def test_a_path_that_did_not_exist_is_removed(mount):
    root = mount.path
    (root / "d").mkdir()
    when = moment()
    (root / "d" / "new").mkdir()
    (root / "d" / "new" / "f").write_bytes(b"f")
    text = mount.tool("vrevert", root / "d" / "new", "--time", epoch(when)).stdout
    assert "did not exist" in text and os.listdir(root / "d") == []
    undo = [line for line in text.splitlines() if line.startswith("undo: ")][0]
    mount.tool(*shlex.split(undo[len("undo: "):]))
    assert (root / "d" / "new" / "f").read_bytes() == b"f"


def test_links_within_a_directory_that_is_elsewhere_now(mount):
    """The directory is copied, because it is outside now; its links are still links of one object."""
    root = mount.path
    (root / "d").mkdir()
    (root / "d" / "a").write_bytes(b"one")
    os.link(root / "d" / "a", root / "d" / "b")
    (root / "d" / "alive").write_bytes(b"two")
    os.link(root / "d" / "alive", root / "d" / "alive2")
    when, state = moment(), state_of(root / "d")
    mount.tool("rm", root / "d" / "a", root / "d" / "b")
    os.rename(root / "d", root / "elsewhere")
    mount.tool("vrevert", root / "d", "--time", epoch(when))
    assert differences(state, state_of(root / "d")) == []
    assert sorted(os.listdir(root / "elsewhere")) == ["alive", "alive2"]
