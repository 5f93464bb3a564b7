# SPDX-License-Identifier: LGPL-2.1-or-later
"""vstore move of a tree that is in use."""
import errno
import json
import os
import random
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from mounts import LIMIT, NOBODY, QUICK, SECOND, Mount, as_user, epoch, moment, run
from test_move import Story
from treestate import differences, state_of

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "crash"))
# pylint: disable-next=wrong-import-position
import crash


class Life(Story):
    """A tree that is mounted all the time."""

    # pylint: disable-next=super-init-not-called
    def __init__(self, maker, *options, **how):
        self.mount = maker.mount("allow_other", *options, **how)
        self.seen = []
        self.note_state()

    def move(self, to, *options, status=0, tree=None):
        return self.mount.tool("vstore", "move", *options, tree or self.mount.path, to, status=status)

    def look(self):
        for when, state in self.seen:
            assert differences(state, state_of(self.mount.at(when)), ("nlink",)) == []

    def leaves(self, place):
        """Whether the daemon closes everything there in time: a thread may just be reading a directory of it."""
        deadline = time.monotonic() + LIMIT
        while self.descriptors(place):
            assert time.monotonic() < deadline, self.descriptors(place)
            time.sleep(0.01)
        return True

    def descriptors(self, place):
        """The descriptors that the daemon has open there."""
        folder = Path(f"/proc/{self.mount.process.pid}/fd")
        found = []
        for entry in folder.iterdir():
            try:
                target = os.readlink(entry)
            except FileNotFoundError:
                continue
            if target.startswith(f"{place}/") and not target.endswith((".data", ".dir")):  # deleted files follow later
                found.append(target)
        return found


class Writers:
    """Write until stopped; every version of every file is known."""

    def __init__(self, top, count=3):
        self.top, self.count, self.ends = top, count, False
        self.known, self.failed, self.longest = [[] for _ in range(count)], [], 0.0
        self.threads = [threading.Thread(target=self.write, args=(i,)) for i in range(count)]

    def write(self, number):
        path = self.top / f"writer{number}"
        try:
            turn = 0
            while not self.ends:
                content = b"%d.%d " % (number, turn) * (1 + turn % 50)
                begun = time.monotonic()
                if turn % 7 == 6:
                    os.rename(path, f"{path}.old")
                    os.unlink(f"{path}.old")
                path.write_bytes(content)
                self.longest = max(self.longest, time.monotonic() - begun)
                self.known[number].append((moment(), content))
                turn += 1
                time.sleep(0.001)  # enough to meet every step of a move, and a history that is still quick to move
        except OSError as error:
            self.failed.append(error)

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.ends = True
        for thread in self.threads:
            thread.join()

    def check(self, mount):
        assert not self.failed
        for number, known in enumerate(self.known):
            assert len(known) > 10
            step = max(1, len(known) // 40)
            for when, content in known[::step]:
                assert mount.at(when, f"writer{number}").read_bytes() == content, (number, when)


@pytest.mark.parametrize("kind", ["xfs"] if QUICK else ["xfs", "ext4", "btrfs"])
def test_nobody_notices(maker, kind):
    life = Life(maker)
    top, source = life.mount.path, life.mount.source
    home, away = source / ".wayback", maker.tree(kind) / "history"
    places = [home]
    (top / "kept").write_bytes(b"x" * 100_000)
    for to, tree in ((away, None), (maker.tree("tmpfs") / "again", source), (home, None)):
        when = moment()
        before = (top / "kept").read_bytes()
        with open(top / "kept", "r+b") as living, open(life.mount.at(when, "kept"), "rb") as past, \
                open(top / "deleted", "w+b") as gone, Writers(top) as writers:
            gone.write(b"not gone yet")
            gone.flush()
            os.unlink(top / "deleted")
            os.lockf(living.fileno(), os.F_LOCK, 0)
            folder = os.open(top / "moved", os.O_RDONLY)
            assert past.read(10) == before[:10]
            time.sleep(0.1)
            reported = json.loads(life.move(to, "--json", tree=tree).stdout)
            assert reported["moved"] and life.where()["store"] == str(to)
            time.sleep(0.1)
            # Open files are as they were, and records are written to the new place.
            living.write(b"changed by who had it open")
            living.flush()
            past.seek(0)
            assert past.read() == before
            gone.seek(0)
            assert gone.read() == b"not gone yet"
            assert "f" in os.listdir(folder)
            os.close(folder)
        for place in places:
            assert place == to or life.leaves(place)
            assert place == to or not (place / "header").exists()
        places.append(to)
        life.see()
        life.look()
        writers.check(life.mount)
        assert life.mount.at(when, "kept").read_bytes() == before
        for number in range(writers.count):
            (top / f"writer{number}").unlink(missing_ok=True)
    assert not (home / "moved").exists()
    life.mount.stop()
    life.check()


def test_the_rest_in_the_old_place(maker):
    """It is not read any more, and is removed when the same is asked for again."""
    life = Life(maker)
    path, away = life.mount.path / "kept", maker.tree("xfs") / "history"
    content = random.Random(1).randbytes(2 << 20)
    path.write_bytes(content)
    when = moment()
    with open(path, "r+b") as stream:
        stream.write(b"two")
    log = max(life.mount.source.glob(".wayback/objects/*/*.undo"), key=lambda log: log.stat().st_mtime_ns)
    life.mount.expect("cannot be removed")
    with open(life.mount.at(when, "kept"), "rb", buffering=0) as past:
        assert past.read(3) == content[:3]
        run("chattr", "+i", log.parent)
        try:
            assert "cannot be removed" in life.move(away, status=1).stdout
        finally:
            run("chattr", "-i", log.parent)
        assert log.exists() and life.where()["remains"] == str(log.parents[2])
        with open(path, "r+b") as stream:
            stream.seek(1 << 20)
            stream.write(b"three" * 600)
        past.seek(1 << 20)  # known from the new log only
        assert past.read(3000) == content[1 << 20:(1 << 20) + 3000]
        assert life.mount.at(when, "kept").read_bytes() == content
    assert "is now in" in life.move(away).stdout
    assert not log.exists() and life.where() == {"store": str(away), "in_tree": False}
    life.look()
    life.mount.stop()
    life.check()


@pytest.mark.parametrize("how", ["beside", "over", "unmounted"])
def test_deleted_files_that_cannot_follow(maker, how):
    """The same is refused again until they can, and then they do, without another mount; back in the tree, too."""
    source = maker.tree()
    below = os.open(source, os.O_RDONLY)  # also if the mount is over it
    life = Life(maker, source=source, **{"path": source} if how == "over" else {})
    mount, top = life.mount, life.mount.path
    mount.expect("deleted files cannot be moved")
    graves = [f"/proc/{os.getpid()}/fd/{below}/.wayback", maker.tree() / "history", maker.tree() / "another", top / ".wayback"]
    for number, (grave, place) in enumerate(zip(graves, graves[1:])):
        name, content = f"deleted{number}", b"%d" % number * 5000
        (top / name).write_bytes(content)
        inode, when = (top / name).stat().st_ino, moment()
        (top / name).unlink()
        [body] = Path(grave).glob(f"objects/*/{inode:016x}-*.data")
        if how == "unmounted":
            mount.stop()
            place = source / ".wayback" if number == 2 else place
        tree = source if how == "unmounted" else top
        run("chattr", "+i", body)
        try:
            for _ in range(2):
                assert "deleted files cannot be moved" in life.move(place, status=1, tree=tree).stdout
        finally:
            run("chattr", "-i", body)
        life.move(place, tree=tree)
        if how == "unmounted":
            mount.start()
        assert not body.exists() and life.where()["in_tree"] == (number == 2)
        assert mount.at(when, name).read_bytes() == content
    life.look()
    mount.stop()
    os.close(below)
    life.check()


def test_by_close_and_mounted_over_its_own_source(maker):
    source = maker.tree()
    life = Life(maker, "history=close", source=source, path=source)
    top, away = life.mount.path, maker.tree("xfs") / "history"
    # In a process of its own: a parent that starts another one closes the inherited descriptors.
    program = "import os, sys\nfd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)\n" \
        "for line in sys.stdin.buffer:\n os.write(fd, line)\n print(flush=True)"
    with subprocess.Popen([sys.executable, "-c", program, top / "open"], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, cwd="/", bufsize=0) as writer:
        for to in (away, top / ".wayback", away, None):
            writer.stdin.write(b"a line\n")
            writer.stdout.readline()
            inside = moment()
            if to:
                assert json.loads(life.move(to, "--json").stdout)["moved"]
        writer.stdin.close()
    lines = [line for line in life.mount.tool("vstat", "--operations", top / "open").stdout.splitlines() if " write" in line]
    assert len(lines) == 1  # one version, written through three moves
    assert life.mount.at(inside, "open").read_bytes() == b""
    life.see()
    life.look()
    life.mount.stop()
    assert life.where()["store"] == str(away)
    assert os.listdir(source / ".wayback") == ["moved", "objects"] or (source / ".wayback" / "moved").exists()
    life.mount.options = ["allow_other", "history=close"]
    life.check()


def test_refusals_while_it_is_used(maker):
    life = Life(maker)
    top, source, away = life.mount.path, life.mount.source, maker.tree("xfs")
    other = maker.mount("allow_other")
    (away / "full").mkdir()
    (away / "full" / "mine").write_bytes(b"x")
    small = maker.file_systems.make("tmpfs", f"small-{os.getpid()}-{away.name}", 1)
    (top / "large").write_bytes(b"1" * (20 << 20))
    (top / "large").write_bytes(b"2")
    life.see()
    try:
        for to, word in ((away / "full", "mine"), (source / "moved", "inside"), (top / "moved" / "x", "mount"),
                         (other.path / "x", "mount"), (small, "room"), (away / "no" / "such", "No such file")):
            assert word in life.move(to, status=1).stdout
        # Nor is anything copied there first, which would be a change of the tree.
        for to in (top / "x", other.path / "x"):
            for option in ("-n", "--ahead", "--json"):
                reported = life.mount.tool("vstore", "move", option, top, to, status=1).stdout
                assert "is in a Wayback mount" in reported and not to.exists()
    finally:
        maker.file_systems.unmake(small)
    other.stop()
    # A mount that shows it elsewhere would see it disappear.
    for option in ("ro", f"at={epoch(life.seen[0][0])}"):
        reader = maker.mount(option, source=source)
        for tree in (top, source):
            assert "another mount" in life.move(away / "new", status=1, tree=tree).stdout
        reader.stop()
    assert not (away / "new").exists()
    # Only root and the mounting user may ask.
    reported = life.mount.tool("vstore", "move", top, away / "new", status=1, user=NOBODY).stdout
    assert "only root" in reported and not (away / "new").exists()
    assert life.where()["in_tree"]
    life.look()
    life.move(away / "new")
    life.look()
    life.mount.stop()
    reader = maker.mount("ro", source=source)
    assert "another mount" in life.move(away / "newer", status=1, tree=source).stdout
    reader.stop()
    life.check()


def test_a_mount_of_an_ordinary_user(maker):
    mount = maker.mount(user=NOBODY)
    away = maker.tree("xfs", owner=NOBODY)
    as_user(lambda: (mount.path / "file").write_bytes(b"one"), *NOBODY)
    when = moment()
    as_user(lambda: (mount.path / "file").write_bytes(b"two"), *NOBODY)
    reported = mount.tool("vstore", "move", mount.path, away / "history", user=SECOND, status=1).stdout
    assert "history" not in os.listdir(away) and reported
    mount.tool("vstore", "move", mount.path, away / "history")
    assert (away / "history" / "header").stat().st_uid == NOBODY[0]
    assert stat.S_IMODE((away / "history").stat().st_mode) == 0o700
    assert as_user(lambda: mount.at(when, "file").read_bytes(), *NOBODY) == b"one"
    as_user(lambda: (mount.path / "file").unlink(), *NOBODY)
    mount.stop()
    mount.start()
    assert as_user(lambda: mount.at(when, "file").read_bytes(), *NOBODY) == b"one"


class Moving(crash.Traced):
    """The daemon under the tracer; its changes in the target of the move count as well."""

    away = None

    def store(self):
        return self.away.parent if self.away else Mount.store(self)


class Trials:
    """Moves back and forth, disturbed at one of the changes that the daemon makes."""

    def __init__(self, maker, to):
        Moving.away = maker.tree(to) / "history"
        self.life = Life(maker, made=Moving)
        if not self.life.mount.tracer:
            pytest.skip("the tracer knows x86_64 only")
        self.mount, self.away, self.home = self.life.mount, Moving.away, self.life.mount.source / ".wayback"
        self.known = []

    def disturb(self, action, target, *error):
        """How many changes it made."""
        control = self.mount.control
        with Writers(self.mount.path, 1) as writer:
            time.sleep(0.02)
            control.arm(crash.CHANGES, action, target, *error)
            move = self.mount.run_tool("vstore", "move", self.mount.path, self.away)
            count = control.disarm()
        if action == crash.KILL and self.mount.is_dead():
            self.mount.kill(check=False)  # now that no process writes: the rest below the mount would take it
        self.known.append(writer.known[0])
        return count, move

    def look(self):
        """All that was acknowledged is there."""
        self.life.look()
        for known in self.known:
            for when, content in known[:-1:max(1, len(known) // 8)] + known[-1:]:
                assert self.mount.at(when, "writer0").read_bytes() == content
        self.known = self.known[-2:]

    def back(self):
        self.mount.tool("vstore", "move", self.mount.path, self.mount.source / ".wayback")
        assert self.life.where()["in_tree"]


@pytest.mark.parametrize("to", ["xfs"] if QUICK else ["xfs", "ext4"])
def test_killed_at_any_change(maker, to):
    trials = Trials(maker, to)
    mount, rng = trials.mount, random.Random(3)
    before, after = 0, trials.disturb(crash.NOTHING, 0)[0]
    assert after > 20
    # Towards the change that makes the other place the store, and then anywhere.
    for turn in range(4 if QUICK else 16):
        trials.back()
        target = (before + after) // 2 if after - before > 4 else rng.randrange(1, after + 30)
        trials.disturb(crash.KILL, target)
        if mount.process:
            continue
        there = trials.life.where()["store"]
        assert there in (str(trials.home), str(trials.away))
        if after - before > 4:
            before, after = (before, target) if there == str(trials.away) else (target, after)
        mount.start()
        trials.look()
        # And the move continues.
        mount.tool("vstore", "move", mount.path, trials.away)
        assert trials.life.where() == {"store": str(trials.away), "in_tree": False}
        if turn % 4 == 0:
            trials.look()
    trials.look()
    mount.stop()
    trials.life.mount.traced = False
    trials.life.check()


def test_a_change_that_fails(maker):
    """It is in its old place, or has moved; and the mount continues."""
    trials = Trials(maker, "xfs")
    mount, rng = trials.mount, random.Random(5)
    mount.expect(".")
    count = trials.disturb(crash.NOTHING, 0)[0]
    for turn in range(2 if QUICK else 10):
        trials.back()
        _, move = trials.disturb(crash.FAIL, rng.randrange(1, count), (errno.ENOSPC, errno.EIO)[turn % 2], turn % 3 * 3)
        there = trials.life.where()["store"]
        assert there == str(trials.away) or (move.returncode == 1 and there == str(trials.home)), move.stdout
        if "its deleted files cannot be moved" in move.stdout:
            mount.remount()  # which moves them
        (mount.path / "still").write_bytes(b"%d" % turn)
        trials.look()
        mount.tool("vstore", "move", mount.path, trials.away)
    mount.remount()
    trials.look()
