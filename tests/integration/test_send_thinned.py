# SPDX-License-Identifier: LGPL-2.1-or-later
"""vsend and vreceive while versions are thinned out: a copy keeps its states, and new states are those of the
source."""
import os
import random
import signal
import time

import pytest
from copies import Copy, Victim, follower
from mounts import LIMIT, QUICK
from thinning import write_versions, writing
from treestate import state_of


class Thinned(Copy):
    """It keeps its states. For each new moment it must show what the source showed when it was sent; or, if that equals
    the source's state at the last moment the copy has, its own state of that moment."""

    def __init__(self, maker, kind="ext4", history="write"):
        super().__init__(maker, maker.mount("allow_other", f"history={history}", kind=kind))
        self.path = maker.tree(kind)
        self.new = []

    def note_state(self):
        super().note_state()
        self.new.append(self.expected.pop()[0])

    def thin(self, most):
        self.source.tool("vprune", "-y", "--keep-versions", f"..{most}", self.source.path)

    def sent(self):
        last, had = self.expected[-1] if self.expected else (None, {})
        now = state_of(self.source.at(last)) if last else {}
        for when in self.new:
            state = state_of(self.source.at(when))
            self.expected.append((when, {name: had[name] if entry == now.get(name) else entry
                                         for name, entry in state.items()}))
        self.new = []

    def follow(self):
        self.sent()
        super().follow()


class Changes:
    """Files of which parts change, in their place, at their end and by being cut."""

    def __init__(self, copy, seed, size):
        self.rng, self.size = random.Random(seed), size
        self.paths = [copy.source.path / name for name in "abc"]
        for path in self.paths:
            path.write_bytes(self.rng.randbytes(size))

    def step(self):
        path, rng = self.rng.choice(self.paths), self.rng
        with open(path, "r+b", buffering=0) as stream:
            begin, length = rng.randrange(self.size), rng.randrange(1, self.size)
            kind = rng.randrange(5)
            if kind == 0:
                stream.truncate(begin)
            elif kind == 1:
                path.chmod(rng.choice([0o600, 0o644, 0o640]))
            else:
                stream.seek(begin)
                stream.write(rng.randbytes(length) if kind < 4 else bytes(length))


@pytest.mark.parametrize("kind, size, history", [("ext4", 20000, "write"), ("xfs", 3 << 20, "write"),
                                                 ("ext4", 20000, "close"), ("xfs", 1 << 20, "close")])
def test_a_copy_continues_while_versions_are_thinned_out(maker, kind, size, history):
    """Also if versions the copy has and new ones count together at the source, and with clones."""
    copy = Thinned(maker, kind, history)
    changes = Changes(copy, 4, size)
    for turn in range(4 if QUICK else 9):
        for _ in range(8):
            changes.step()
            copy.note_state()
        if turn:
            copy.thin(changes.rng.choice((1, 2, 4)))
        copy.follow()
        if turn == 2:
            copy.source.tool("vcompact", copy.source.path)
            with copy.used() as mount:
                mount.tool("vcompact", mount.path)
    copy.check()
    # One that is made of the copy equals it.
    whole = Copy(maker, copy.mounted())
    whole.expected = copy.expected
    whole.follow()
    whole.source.stop()
    whole.check()


def test_a_file_being_written_while_it_follows(maker):
    """It is one with the version the copy has, though it ended later than that; earlier losses are new all the same."""
    copy = Thinned(maker, history="close")
    path = copy.source.path / "file"
    for turn in range(3):
        for number in range(3):
            path.write_bytes(b"%d and %d, " % (turn, number) * 300)
            copy.note_state()
        with writing(path):
            copy.follow()
        copy.note_state()
        with open(path, "r+b", buffering=0) as stream:
            stream.seek(2000)
            stream.write(b"elsewhere")
        copy.note_state()
        copy.thin(1)
        copy.follow()
    copy.check()


@pytest.mark.parametrize("history", ("write", "close"))
def test_a_copy_may_be_thinned_out_itself(maker, history):
    copy = Thinned(maker, history=history)
    changes = Changes(copy, 5, 9000)
    for _ in range(2):
        for _ in range(8):
            changes.step()
            copy.note_state()
        copy.follow()
        with copy.used() as mount:
            mount.tool("vprune", "-y", "--keep-versions", "..2", mount.path)
            copy.expected = [(when, state_of(mount.at(when))) for when, _ in copy.expected]
    copy.check()


@pytest.mark.parametrize("history", ("write", "close"))
def test_a_receiver_is_killed_over_thinned_history(maker, history):
    copy = Thinned(maker, history=history)
    changes = Changes(copy, 6, 9000)
    victim = Victim(copy, random.Random(6))
    for turn in range(4 if QUICK else 6):
        for _ in range(6):
            changes.step()
            copy.note_state()
        copy.thin(1)
        copy.sent()
        had, stream = copy.has(), copy.stream()
        # The number of its calls is known from the last one; the changes of the copy come at the end.
        while copy.has() == had:
            victim.run(stream=stream, last=victim.calls - victim.rng.randrange(120) if turn > 1 else None)
            stream = copy.stream()
    assert victim.killed > 0
    copy.check()


def stop_between_streams(copy, sender):
    """While vsend reads the store, no version of it is pruned."""
    deadline = time.monotonic() + LIMIT
    sender.send_signal(signal.SIGSTOP)
    while copy.source.run_tool("vprune", "-n", "--keep-versions", "..1000", copy.source.path).returncode != 0:
        assert time.monotonic() < deadline
        sender.send_signal(signal.SIGCONT)
        time.sleep(0.01)
        sender.send_signal(signal.SIGSTOP)


def test_versions_are_thinned_out_while_it_follows(maker):
    """Between two streams of vsend --follow: new versions count together with those the copy has."""
    copy = Thinned(maker)
    changes = Changes(copy, 7, 9000)
    copy.note_state()
    copy.follow()
    sender, _receiver, wait_until_at, end = follower(copy)
    for turn in range(2 if QUICK else 4):
        stop_between_streams(copy, sender)
        for _ in range(6):
            changes.step()
            copy.note_state()
        copy.thin(1)
        copy.sent()
        # If nothing is changed later than that, nothing is printed.
        (copy.source.path / f"later{turn}").touch()
        sender.send_signal(signal.SIGCONT)
        wait_until_at(copy.expected[-1][0])
    end()
    copy.note_state()
    copy.follow()
    copy.check()


def test_unknown_values_are_refused(maker):
    """A value of an attribute that only the copy's past still had; and vrm, whatever was thinned out since."""
    copy = Thinned(maker)
    path = copy.source.path / "file"
    seen = write_versions(path, 3, 100)
    os.setxattr(path, "user.a", b"one")
    path.chmod(0o600)
    os.setxattr(path, "user.a", b"two")
    copy.new = [when for when, _ in seen]
    copy.note_state()
    copy.follow()
    last = copy.status()
    os.setxattr(path, "user.a", b"new")
    path.chmod(0o640)
    path.write_bytes(b"new")
    copy.thin(1)
    result = copy.tool("vsend", "--since", last, copy.source.path)
    assert result.returncode == 1 and b"extended attribute" in result.stderr, result.stderr
    (copy.source.path / "gone").write_bytes(b"")
    copy.source.tool("vrm", "-y", copy.source.path / "gone")
    copy.thin(1)
    result = copy.tool("vsend", "--since", last, copy.source.path)
    assert result.returncode == 1 and b"vrm" in result.stderr, result.stderr
    copy.check()
