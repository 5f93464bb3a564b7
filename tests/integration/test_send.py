# SPDX-License-Identifier: LGPL-2.1-or-later
"""vsend and vreceive: a copy elsewhere has every moment that was sent, follows, and never has one that did not
exist."""
import itertools
import json
import os
import random

import pytest
from copies import Copy, Victim, follower
from mounts import LIMIT, NOBODY, epoch
from operations import Operator
from test_bundles import release as release_of
from test_rebind import begin, steps
from treestate import state_of

QUICK = bool(os.environ.get("WAYBACK_QUICK"))


@pytest.fixture(name="copy")
def fixture_copy(maker):
    source = maker.tree()
    begin(source)
    return Copy(maker, maker.mount("allow_other", source=source))


def test_every_moment_is_copied(copy):
    """The whole after some steps, then the changes of each step; and each moment is as it is in the source."""
    assert copy.status() == "0"
    story = steps(copy.source)
    for number, _ in enumerate(itertools.islice(story, 7)):
        copy.note_state()
        if number >= 2:
            copy.follow()
    copy.check()
    # History erased for good in the source cannot be removed from a copy.
    last = copy.status()
    assert next(story, "end") is None
    result = copy.tool("vsend", "--since", last, copy.source.path)
    assert result.returncode == 1 and b"vrm" in result.stderr and copy.receive(result.stdout).returncode == 1
    copy.check()
    # A new one has nothing of it.
    copy.expected = [(when, state_of(copy.source.at(when))) for when, _state in copy.expected]
    whole = Copy(copy.maker, copy.source)
    whole.expected = copy.expected
    whole.note_state()
    whole.follow()
    whole.check()


class Work:
    """Random changes, and states of the tree now and then."""

    def __init__(self, copy, seed):
        self.copy = copy
        self.operator = Operator(str(copy.source.path), seed)

    def go(self, steps_count):
        for number in range(steps_count):
            self.operator.step()
            if number % 12 == 11:
                self.copy.note_state()
        self.copy.note_state()


SEEDS = [int(s) for s in os.environ.get("WAYBACK_MODEL_SEED", "1,2").split(",")]


@pytest.mark.parametrize("seed", SEEDS)
def test_random_histories(maker, seed):
    """Sent in several streams, while the source changes; each brings exactly the states that existed."""
    copy = Copy(maker, maker.mount("allow_other"))
    work = Work(copy, seed)
    try:
        for _ in range(2 if QUICK else 4):
            work.go(60)
            copy.follow()
            copy.check(copy.expected[-2:])
        copy.check()
    finally:
        work.operator.close()


def packed(tree):
    return {path.name for path in tree.glob(".wayback/objects/*/*.bundle")}


def test_packed_forgotten_and_moved_history(maker):
    """Bundles and packed logs on either side, files packed in the copy and restored, vprune, vstore."""
    copy = Copy(maker, maker.mount("allow_other"))
    mount, rng, texts = copy.source, random.Random(3), {}
    top = mount.path / "src"
    was = []

    def release():
        release_of(mount, rng, len(was), texts)
        copy.note_state()
        was.append(copy.expected[-1][0])

    for _ in range(3):
        release()
    kept = open(top / "file1", "r+b")  # pylint: disable=consider-using-with
    (top / "file1").unlink()
    mount.tool("vcompact", mount.path)
    assert packed(mount.source)
    copy.note_state()
    copy.follow()
    with copy.used() as copied:
        copied.tool("vcompact", copied.path)
    here = packed(copy.path)
    assert len(here) > len(packed(mount.source))
    # A file that is restored, and one that is written to, has been unpacked before.
    release()
    mount.tool("vcompact", mount.path)
    (top / "file2").unlink()
    mount.tool("vrevert", top / "file2", "--time", epoch(was[1]))
    with kept:
        kept.seek(10)
        kept.write(b"through a descriptor")
    mount.tool("vrevert", top / "file1", "--time", epoch(was[2]))
    copy.note_state()
    (top / "file2").write_bytes(b"changed since")
    copy.note_state()
    copy.follow()
    copy.check()
    assert here - packed(copy.path)
    # History that the source forgets is kept in the copy; and it continues.
    release()
    mount.tool("vprune", "-y", "--before", epoch(was[2]), mount.path)
    release()
    copy.follow()
    # A store elsewhere is sent like any other. A copy's own is looked for within.
    mount.stop()
    mount.tool("vstore", "move", mount.source, maker.tree("xfs") / "history")
    mount.start()
    release()
    copy.follow()
    away = maker.tree("xfs") / "history"
    copy.tool("vstore", "move", copy.path, away)
    release()
    result = copy.tool("vreceive", copy.path, input=b"")
    assert result.returncode == 1 and str(away).encode() in result.stderr
    copy.tool("vstore", "move", copy.path, copy.path / ".wayback")
    copy.follow()
    copy.check()
    # A copy may forget by age, too. An erasure by name changes it.
    with copy.used() as copied:
        copied.tool("vprune", "-y", "--before", epoch(was[-2]), copied.path)
    copy.expected = [(when, state) for when, state in copy.expected if when >= was[-2]]
    release()
    copy.follow()
    copy.check()
    (top / "file3").write_bytes(b"once more")
    with copy.used() as copied:
        copied.tool("vrm", "-y", copied.path / "src/file3")
    copy.refuses(copy.stream(), "erased in the copy")


def test_a_file_older_than_the_history_and_deleted_in_it(copy):
    """Also a copy that is made afterwards has it."""
    copy.note_state()
    (copy.source.path / "untouched").unlink()
    (copy.source.path / "old/b").write_bytes(b"replaced")
    copy.note_state()
    copy.follow()
    copy.check()


def test_changes_from_before_packing_that_arrive_after_it(copy):
    """An INDEX that packing makes in the copy is later than the changes that are still to come."""
    path, rng = copy.source.path / "much", random.Random(7)
    for _ in range(2):
        path.write_bytes(rng.randbytes(100000))
    copy.note_state()
    copy.follow()
    with open(path, "r+b") as stream:
        stream.write(b"before the copy was packed")
    copy.note_state()
    with copy.used() as copied:
        copied.tool("vcompact", copied.path)
        assert any("INDEX" in copied.tool("vdump", log).stdout for log in copied.logs())
    copy.follow()
    copy.check()


def flipped(stream, bit):
    changed = bytearray(stream)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def test_a_cut_or_altered_stream_is_refused(copy):
    """Nothing is lost, and the whole is accepted afterwards. (At any byte: see the unit test `transfer`.)"""
    rng = random.Random(5)
    for number, _ in enumerate(itertools.islice(steps(copy.source), 6)):
        copy.note_state()
        if number in (2, 5):
            stream = copy.stream()
            everything, copy.expected = copy.expected, copy.expected[:3 if number > 2 else 0]
            for cut in (0, len(stream) - 1, rng.randrange(len(stream))):
                copy.refuses(stream[:cut], "cut off or altered" if cut else "standard input was empty")
            for bit in (8 * len(stream) - 1, rng.randrange(8 * len(stream))):
                copy.refuses(flipped(stream, bit), "")
            if number > 2:
                copy.check()
            else:
                assert copy.maker.mount(source=copy.path, start=False).refused()[0] == 1
            copy.expected = everything
            assert copy.receive(stream).returncode == 0
            copy.refuses(stream, "--since")
    copy.check()


def test_a_cut_off_stream_is_continued(copy):
    """Received parts are not sent once more, while the source is changed; and a stream that cannot be continued is sent
    as a whole."""
    rng = random.Random(9)
    for number, _ in enumerate(itertools.islice(steps(copy.source), 4)):
        if number == 0:
            continue
        copy.note_state()
        whole = left = copy.stream()
        for cuts in range(2 if QUICK else 4):
            result = copy.receive(left[:rng.randrange(200 if left is whole else 0, len(left))])
            assert result.returncode == 1 and b"cut off" in result.stderr
            (copy.source.path / "meanwhile").write_bytes(b"%d" % cuts)
            left = copy.stream()
            assert whole.endswith(left) and left != whole
        assert copy.receive(left).returncode == 0
        copy.check()
    (copy.source.path / "meanwhile").write_bytes(b"once more")
    other = Copy(copy.maker, copy.source)
    stream = other.stream()
    assert other.receive(stream[:-1]).returncode == 1 and other.has() == "0" != other.status()
    copy.source.tool("vrm", "-y", copy.source.path / "meanwhile")
    again = other.stream()
    assert not stream.endswith(again) and other.receive(again[:-1]).returncode == 1
    copy.source.tool("vprune", "-y", "--before", "now", copy.source.path)
    other.note_state()
    assert not again.endswith(other.stream())
    other.follow()
    other.check()


def test_a_receiver_that_is_killed(copy):
    """Before any of its system calls: mounted at once, the copy is as it was before, or as it is after the stream."""
    whole = Copy(copy.maker, copy.source)
    victim = Victim(whole, random.Random(SEEDS[0]))
    had = 0
    for number, _ in enumerate(itertools.islice(steps(copy.source), 7)):
        copy.note_state()
        if number not in (2, 3, 5):
            continue
        if number == 2:
            assert victim.run(stream=copy.stream())
            victim.copy = copy
        for _ in range(3 if QUICK else 8):
            before = copy.has()
            complete = victim.receive(copy.stream())
            assert not complete or copy.has() != before
            if had == 0 and copy.has() == "0":
                continue
            copy.check(copy.expected[:had if copy.has() == before else None])
            if copy.has() != before:
                break
        else:
            copy.follow()
            copy.check()
        had = len(copy.expected)
    assert victim.killed > 0


def test_a_copy_that_was_changed_itself(copy):
    """A directory that was changed here, is mounted, or is of another tree, is not overwritten."""
    for _ in itertools.islice(steps(copy.source), 2):
        copy.note_state()
    copy.follow()
    (copy.source.path / "new").write_bytes(b"new")
    stream = copy.stream()
    with copy.used():
        assert copy.receive(stream).returncode == 1
    other = copy.maker.mount("allow_other")
    (other.path / "file").write_bytes(b"of another tree")
    foreign = copy.tool("vsend", other.path).stdout
    copy.refuses(foreign, "another tree")
    (copy.path / "behind").write_bytes(b"not through a mount")
    copy.refuses(stream, "not received")
    (copy.path / "behind").unlink()
    kept = (copy.path / ".wayback/snapshots").exists()
    with copy.used() as mount:
        mount.expect("changed while Wayback did not record")
        mount.tool("vsnap", "create", "own", mount.path)
    copy.refuses(stream, "changed locally")
    assert not kept
    (copy.path / ".wayback/snapshots").unlink()
    with copy.used() as mount:
        (mount.path / "own").write_bytes(b"a change")
    copy.refuses(stream, "changed locally")
    filled = copy.maker.tree()
    (filled / "file").write_bytes(b"mine")
    result = copy.tool("vreceive", filled, input=foreign)
    assert result.returncode == 1 and b"neither empty nor a copy" in result.stderr
    assert os.listdir(filled) == ["file"]


def test_a_copy_that_follows(copy):
    """While it is changed, the current state is sent; and the copy is always whole."""
    story = steps(copy.source)
    next(story)
    copy.follow()
    _sender, _receiver, wait_until_at, end = follower(copy)
    copy.note_state()
    for number, _ in enumerate(itertools.islice(story, 3)):
        copy.note_state()
        # If nothing is changed later than that, nothing is printed.
        if number % 2:
            copy.source.tool("vsnap", "create", f"named{number}", copy.source.path)
        else:
            (copy.source.path / "later").write_bytes(b"%d" % number)
        wait_until_at(copy.expected[-1][0])
    end()
    copy.note_state()
    copy.follow()
    copy.check()
    # A sender that follows notices that nobody reads any more, also if there is nothing to send.
    sender, receiver, wait_until_at, _end = follower(copy)
    wait_until_at(copy.expected[-1][0])
    receiver.kill()
    receiver.wait()
    assert sender.wait(timeout=LIMIT) == 1


def test_received_by_an_ordinary_user(copy):
    """They may change their own read-only files, which are read-only again afterwards."""
    folder = copy.source.path / "folder"
    copy.received_by(*NOBODY)
    for text in (b"one", b"two and more"):
        (folder / "below").mkdir(parents=True, exist_ok=True)
        for name in ("file", f"below/{len(text)}"):
            (folder / name).write_bytes(text)
            os.chmod(folder / name, 0o444)
        os.chmod(folder / "below", 0o555)
        os.chmod(folder, 0o555)
        result = copy.receive(copy.stream())
        assert result.returncode == 0, result.stderr
        for here, there in ((folder, copy.path / "folder"), (folder / "below", copy.path / "folder/below")):
            assert sorted(os.listdir(here)) == sorted(os.listdir(there))
            assert here.stat().st_mode == there.stat().st_mode
        there = copy.path / "folder/file"
        assert there.read_bytes() == text and there.stat().st_mode & 0o777 == 0o444
        (folder / "below").rename(copy.source.path / "below")
        (copy.source.path / "below").rename(folder / "below")
    os.chmod(folder, 0)
    copy.refuses(copy.stream(), "only root")
    assert (copy.path / "folder/file").read_bytes() == text


def test_json_and_usage(copy):
    result = copy.tool("vsend", "--json", copy.source.path)
    reported = json.loads(result.stderr)
    assert reported["since"] is None and reported["until"] and reported["bytes"] == len(result.stdout)
    received = json.loads(copy.tool("vreceive", "--json", copy.path, input=result.stdout).stdout)
    assert received["until"] == reported["until"] and received["bytes"] == reported["bytes"]
    assert json.loads(copy.tool("vreceive", "--json", "--status", copy.path).stdout)["until"] == reported["until"]
    assert copy.tool("vsend").returncode == 2
    assert copy.tool("vsend", "--since", "nonsense", copy.source.path).returncode == 2
    assert copy.tool("vsend", copy.path / "none").returncode == 1
