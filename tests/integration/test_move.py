# SPDX-License-Identifier: LGPL-2.1-or-later
"""vstore: a store that is moved, and kills during the move."""
import errno
import json
import os
import random
import sys
from pathlib import Path

import pytest

from mounts import QUICK, epoch, moment, run
from treestate import differences, state_of

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "crash"))
# pylint: disable-next=wrong-import-position
from crash import ALL, CHANGES, KILL, NOTHING, Control, build_tracer


class Story:
    """A tree with a past: files of every kind deleted, renamed, overwritten; and its states at three moments."""

    def __init__(self, maker, *options, source=None):
        self.mount = maker.mount("allow_other", *options, source=source)
        self.seen = []
        self.note_state()
        self.mount.stop()
        self.mount.options = ["allow_other"]

    def note_state(self):
        top, content = self.mount.path, random.Random(7).randbytes(300_000)
        (top / "d" / "e").mkdir(parents=True)
        (top / "d" / "f").write_bytes(content)
        os.setxattr(top / "d" / "f", "user.a", b"one")
        os.link(top / "d" / "f", top / "linked")
        (top / "gone").write_bytes(content[:5000])
        with open(top / "sparse", "wb") as stream:
            stream.truncate(50 << 20)
            stream.seek(30 << 20)
            stream.write(b"x")
        os.symlink("gone", top / "link")
        self.see()
        for name in ("gone", "link", "sparse"):
            (top / name).unlink()
        (top / "d" / "e").rmdir()
        with open(top / "d" / "f", "r+b") as stream:
            stream.write(b"other")
        os.removexattr(top / "d" / "f", "user.a")
        self.see()
        (top / "linked").unlink()
        os.rename(top / "d", top / "moved")
        self.mount.tool("vsnap", "create", "named", top)
        self.see()

    def see(self):
        self.seen.append((moment(), state_of(self.mount.path)))
        moment()

    def move(self, to, *options, status=0):
        return self.mount.tool("vstore", "move", *options, self.mount.source, to, status=status)

    def check(self):
        """Mounted without an option for the store, all is as it was; and it continues."""
        self.mount.start()
        for when, state in self.seen:
            assert differences(state, state_of(self.mount.at(when)), ("nlink",)) == []
        assert "named" in self.mount.tool("vsnap", "list", self.mount.path).stdout
        path = self.mount.path / "again"
        path.write_bytes(b"one")
        when = moment()
        path.unlink()
        self.mount.tool("vrevert", "--time", epoch(when), path)
        assert path.read_bytes() == b"one"
        path.unlink()
        self.see()
        self.mount.stop()
        # The tools find it, too.
        reported = self.mount.tool("vlog", *[f"--{option}" for option in self.mount.store_options()],
                                   self.mount.source / "again").stdout
        assert "unlink" in reported
        self.mount.tool("vfsck", *[f"--{option}" for option in self.mount.store_options()], self.mount.source)

    def where(self, *options):
        found = json.loads(self.mount.tool("vstore", "status", "--json", *options, self.mount.source).stdout)
        return {name: value for name, value in found.items() if name != "schema"}


@pytest.mark.parametrize("kind", ["ext4", "xfs"] if QUICK else ["ext4", "xfs", "btrfs", "tmpfs"])
def test_out_of_the_tree_and_back(maker, kind):
    story = Story(maker)
    inodes = {path.name: path.lstat().st_ino for path in story.mount.source.glob(".wayback/objects/*/*.data")}
    assert len(inodes) > 2
    home = story.mount.source / ".wayback"
    away = maker.tree(kind) / "history"
    for to, left in ((away, home), (maker.tree("xfs"), away), (home, None)):
        assert str(to) in story.move(to).stdout
        assert story.where() == {"store": str(to), "in_tree": to == home}
        assert (to / "header").exists()
        story.mount.tool("vfsck", story.mount.source)
        if left:
            assert not (left / "header").exists() and not list(left.rglob("*.undo"))
        bodies = list(story.mount.source.rglob("*.data"))
        if kind != "ext4":  # no deleted file was copied: each has the same inode
            assert {path.name: path.lstat().st_ino for path in bodies}.items() >= inodes.items()
        story.check()
    assert not (home / "moved").exists() and not (story.mount.source / ".wayback-staging").exists()


def test_a_store_outside_of_the_tree(maker):
    first, second = maker.tree("xfs"), maker.tree("btrfs")
    story = Story(maker, f"store={first}")
    assert ".wayback-staging" not in os.listdir(story.mount.source)
    nlink = story.mount.source.stat().st_nlink
    story.mount.tool("vstore", "move", "--store", first, story.mount.source, second)
    # The graveyard in SRC is in the directory that holds the path of the store.
    assert ".wayback-staging" not in os.listdir(story.mount.source)
    assert story.mount.source.stat().st_nlink == nlink
    story.check()
    # A command with the old place is led to the new one.
    story.mount.options.append(f"store={first}")
    story.check()
    story.mount.options.pop()
    assert story.where("--store", first)["store"] == str(second)
    # A third place, which was never one, does not begin another history.
    status, output = story.mount.refused(f"store={maker.tree()}")
    assert status != 0 and str(second) in output
    story.move(story.mount.source / ".wayback")
    story.check()


def test_refusals(maker):
    story = Story(maker)
    source, away = story.mount.source, maker.tree("xfs")
    before = sorted(str(path) for path in source.rglob("*"))
    (away / "mine").write_bytes(b"x")
    small = maker.file_systems.make("tmpfs", f"small-{os.getpid()}-{away.name}", 1)
    try:
        for to, word in ((away, "mine"), (source / "moved", "inside"), (source / ".wayback" / "x", "inside"),
                         (small, "room"), (away / "no" / "such", "No such file")):
            for options in ([], ["-n"]):
                assert word in story.move(to, *options, status=1).stdout
        assert os.listdir(small) == []
    finally:
        maker.file_systems.unmake(small)
    assert (away / "mine").read_bytes() == b"x" and os.listdir(away) == ["mine"]
    assert sorted(str(path) for path in source.rglob("*")) == before
    reported = json.loads(story.move(away / "new", "-n", "--json").stdout)
    assert reported["files"] > 3 and reported["room"] > reported["bytes"] > 0 and not reported["moved"]
    assert not (away / "new").exists()
    assert "already" in story.move(source / ".wayback", "-n").stdout
    story.mount.tool("vstore", "move", source, status=2)
    story.check()


def test_copied_ahead_while_it_is_mounted(maker):
    story = Story(maker)
    away = maker.tree("xfs") / "history"
    story.mount.start()
    assert "not moved yet" in story.mount.tool("vstore", "move", "--ahead", story.mount.path, away).stdout
    assert story.where()["in_tree"]
    (story.mount.path / "moved" / "f").write_bytes(b"changed since")
    story.see()
    story.mount.stop()
    reported = json.loads(story.move(away, "--json").stdout)
    assert reported["there"] > 0 and reported["moved"]
    story.check()


def test_a_place_that_is_not_there_begins_no_history(maker):
    story = Story(maker)
    device = maker.tree("xfs")
    away = device / "history"
    story.move(away)
    away.rename(device / "hidden")
    for make in (lambda: None, away.mkdir):  # a device that is not mounted, and its empty mount point
        make()
        status, output = story.mount.refused()
        assert status != 0 and str(away) in output, output
        status, output = story.mount.refused("ro")
        assert status != 0 and str(away) in output, output
        assert str(away) in story.mount.tool("vfsck", story.mount.source, status=8).stdout
    away.rmdir()
    story.mount.options.append(f"store={device / 'hidden'}")  # moved by hand: the option is set by hand
    story.check()


def test_a_file_with_several_names_is_copied_once(maker):
    story = Story(maker)
    lost, away = story.mount.source / ".wayback" / "lost", maker.tree("xfs") / "history"
    lost.mkdir(mode=0o700)
    (lost / "a").write_bytes(b"x" * 100_000)
    os.link(lost / "a", lost / "b")
    for attempt in range(2):  # also if it was copied before
        story.move(away, *([] if attempt else ["--ahead"]))
        copies = [(away / "lost" / name).stat() for name in "ab"]
        assert copies[0].st_ino == copies[1].st_ino and copies[0].st_nlink == 2
    assert (away / "lost" / "b").read_bytes() == b"x" * 100_000
    story.check()


class Killing:
    """vstore under the tracer."""

    def __init__(self, maker, story):
        self.story, self.tracer = story, build_tracer(maker.programs.directory)
        self.control = Control(maker.scratch / "control")

    def move(self, to, target=0):
        """Moves, and is killed at that change; False if it ended before."""
        self.control["tracer"] = 0
        self.control.arm(CHANGES, KILL if target else NOTHING, target)
        programs = self.story.mount.programs
        environment = programs.environment()
        if "ASAN_OPTIONS" in environment:  # which looks for leaks as a tracer does
            environment["ASAN_OPTIONS"] = environment["ASAN_OPTIONS"].replace("detect_leaks=1", "detect_leaks=0")
        run(self.tracer, self.control.path, self.story.mount.source, Path(to).parent, programs.directory / "vstore",
            "move", self.story.mount.source, to, check=False, env=environment)
        self.control.disarm()
        return bool(self.control["done"])


@pytest.mark.parametrize("to", ["same device"] if QUICK else ["same device", "other device"])
def test_killed_at_any_change(maker, to):
    story = Story(maker)
    killing = Killing(maker, story)
    if not killing.tracer:
        pytest.skip("the tracer knows x86_64 only")
    home, away = story.mount.source / ".wayback", maker.tree("xfs" if to == "other device" else "ext4") / "history"
    assert not killing.move(away)
    before, after = 0, killing.control["count"]
    assert after > 50
    # Closing in on the one change that makes the other place the store, from both sides.
    while after - before > 1:
        story.move(home)
        target = (before + after) // 2
        assert killing.move(away, target)
        there = story.where()["store"]
        assert there in (str(home), str(away))
        before, after = (before, target) if there == str(away) else (target, after)
        if after - before < (8 if QUICK else 100):
            story.check()  # in either place, it mounts and has everything
        story.move(away)  # and the move continues
        assert story.where() == {"store": str(away), "in_tree": False}
    # From there on the next caller completes it: deleted files follow, the rest of the old store is removed.
    for target in (after + 40,) if QUICK else range(after + 10, after + 210, 40):
        story.move(home)
        killing.move(away, target)
        story.check()
        story.move(away)
    story.check()
