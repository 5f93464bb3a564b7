# SPDX-License-Identifier: LGPL-2.1-or-later
"""vsend and vreceive: a copy elsewhere has every moment that was sent, follows, and never has one that was not."""
import itertools
import json
import os
import random

import pytest
from copies import Copy, Victim, follower
from mounts import NOBODY, epoch
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


def test_every_moment_comes_along(copy):
    """The whole after some steps, then what each step changed; and each moment is what it is in the source."""
    assert copy.status() == "0"
    story = steps(copy.source)
    for number, _ in enumerate(itertools.islice(story, 7)):
        copy.tell()
        if number >= 2:
            copy.follow()
    copy.check()
    # What is erased for good cannot be taken away from a copy.
    last = copy.status()
    assert next(story, "end") is None
    result = copy.tool("vsend", "--since", last, copy.source.path)
    assert result.returncode == 1 and b"vrm" in result.stderr and copy.receive(result.stdout).returncode == 1
    copy.check()
    # A new one knows nothing of it.
    copy.told = [(when, state_of(copy.source.at(when))) for when, _state in copy.told]
    whole = Copy(copy.maker, copy.source)
    whole.told = copy.told
    whole.tell()
    whole.follow()
    whole.check()


class Work:
    """Random changes, and what the tree was now and then."""

    def __init__(self, copy, seed):
        self.copy = copy
        self.operator = Operator(str(copy.source.path), seed)

    def go(self, steps_count):
        for number in range(steps_count):
            self.operator.step()
            if number % 12 == 11:
                self.copy.tell()
        self.copy.tell()


SEEDS = [int(s) for s in os.environ.get("WAYBACK_MODEL_SEED", "1,2").split(",")]


@pytest.mark.parametrize("seed", SEEDS)
def test_random_histories(maker, seed):
    """Sent in several streams, while the source goes on; what each brings is exactly what was."""
    copy = Copy(maker, maker.mount("allow_other"))
    work = Work(copy, seed)
    try:
        for _ in range(2 if QUICK else 4):
            work.go(60)
            copy.follow()
            copy.check(copy.told[-2:])
        copy.check()
    finally:
        work.operator.close()


def packed(tree):
    return {path.name for path in tree.glob(".wayback/objects/*/*.bundle")}


def test_what_is_packed_forgotten_or_moved(maker):
    """Bundles and packed logs on either side, what was packed in the copy and comes back, vprune, vstore."""
    copy = Copy(maker, maker.mount("allow_other"))
    mount, rng, texts = copy.source, random.Random(3), {}
    top = mount.path / "src"
    was = []

    def release():
        release_of(mount, rng, len(was), texts)
        copy.tell()
        was.append(copy.told[-1][0])

    for _ in range(3):
        release()
    kept = open(top / "file1", "r+b")  # pylint: disable=consider-using-with
    (top / "file1").unlink()
    mount.tool("vcompact", mount.path)
    assert packed(mount.source)
    copy.tell()
    copy.follow()
    with copy.used() as copied:
        copied.tool("vcompact", copied.path)
    here = packed(copy.path)
    assert len(here) > len(packed(mount.source))
    # What comes back, and what is written to it, has been unpacked before.
    release()
    mount.tool("vcompact", mount.path)
    (top / "file2").unlink()
    mount.tool("vrevert", top / "file2", "--time", epoch(was[1]))
    with kept:
        kept.seek(10)
        kept.write(b"through a descriptor")
    mount.tool("vrevert", top / "file1", "--time", epoch(was[2]))
    copy.tell()
    (top / "file2").write_bytes(b"changed since")
    copy.tell()
    copy.follow()
    copy.check()
    assert here - packed(copy.path)
    # What the source forgets stays in the copy; and it goes on.
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
    # A copy may forget by age, too. Whoever erases in it by name changes it.
    with copy.used() as copied:
        copied.tool("vprune", "-y", "--before", epoch(was[-2]), copied.path)
    copy.told = [(when, state) for when, state in copy.told if when >= was[-2]]
    release()
    copy.follow()
    copy.check()
    (top / "file3").write_bytes(b"once more")
    with copy.used() as copied:
        copied.tool("vrm", "-y", copied.path / "src/file3")
    copy.refuses(copy.stream(), "erased for good in the copy")


def test_what_was_there_before_the_history_and_deleted_in_it(copy):
    """Also a copy that is made afterwards has it."""
    copy.tell()
    (copy.source.path / "untouched").unlink()
    (copy.source.path / "old/b").write_bytes(b"replaced")
    copy.tell()
    copy.follow()
    copy.check()


def test_what_comes_after_packing_was_changed_before(copy):
    """An INDEX that packing makes in the copy is later than the changes that are still to come."""
    path, rng = copy.source.path / "much", random.Random(7)
    for _ in range(2):
        path.write_bytes(rng.randbytes(100000))
    copy.tell()
    copy.follow()
    with open(path, "r+b") as stream:
        stream.write(b"before the copy was packed")
    copy.tell()
    with copy.used() as copied:
        copied.tool("vcompact", copied.path)
        assert any("INDEX" in copied.tool("vdump", log).stdout for log in copied.logs())
    copy.follow()
    copy.check()


def flipped(stream, bit):
    changed = bytearray(stream)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def test_what_is_cut_or_altered_is_refused(copy):
    """Nothing is lost, and the whole is taken afterwards. (At any byte: see the unit test `transfer`.)"""
    rng = random.Random(5)
    for number, _ in enumerate(itertools.islice(steps(copy.source), 6)):
        copy.tell()
        if number in (2, 5):
            stream = copy.stream()
            told, copy.told = copy.told, copy.told[:3 if number > 2 else 0]
            for cut in (0, len(stream) - 1, rng.randrange(len(stream))):
                copy.refuses(stream[:cut], "cut off or altered" if cut else "nothing came")
            for bit in (8 * len(stream) - 1, rng.randrange(8 * len(stream))):
                copy.refuses(flipped(stream, bit), "")
            if number > 2:
                copy.check()
            else:
                assert copy.maker.mount(source=copy.path, start=False).refused()[0] == 1
            copy.told = told
            assert copy.receive(stream).returncode == 0
            copy.refuses(stream, "--since")
    copy.check()


def test_what_was_cut_off_goes_on(copy):
    """What came is not sent once more, while the source is changed; and what cannot be gone on with is sent as a whole."""
    rng = random.Random(9)
    for number, _ in enumerate(itertools.islice(steps(copy.source), 4)):
        if number == 0:
            continue
        copy.tell()
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
    other.tell()
    assert not again.endswith(other.stream())
    other.follow()
    other.check()


def test_a_receiver_that_is_killed(copy):
    """Before any of its system calls: mounted at once, the copy is what it was before, or what it is to become."""
    whole = Copy(copy.maker, copy.source)
    victim = Victim(whole, random.Random(SEEDS[0]))
    had = 0
    for number, _ in enumerate(itertools.islice(steps(copy.source), 7)):
        copy.tell()
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
            copy.check(copy.told[:had if copy.has() == before else None])
            if copy.has() != before:
                break
        else:
            copy.follow()
            copy.check()
        had = len(copy.told)
    assert victim.killed > 0


def test_a_copy_that_went_its_own_way(copy):
    """What was changed here, is mounted, or is of another tree, is not overwritten."""
    for _ in itertools.islice(steps(copy.source), 2):
        copy.tell()
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
    copy.refuses(stream, "changed here")
    assert not kept
    (copy.path / ".wayback/snapshots").unlink()
    with copy.used() as mount:
        (mount.path / "own").write_bytes(b"a change")
    copy.refuses(stream, "changed here")
    filled = copy.maker.tree()
    (filled / "file").write_bytes(b"mine")
    result = copy.tool("vreceive", filled, input=foreign)
    assert result.returncode == 1 and b"neither empty nor a copy" in result.stderr
    assert os.listdir(filled) == ["file"]


def test_a_copy_that_follows(copy):
    """While it is changed, what is there is shipped; and the copy is always whole."""
    story = steps(copy.source)
    next(story)
    copy.follow()
    _sender, _receiver, come_to, end = follower(copy)
    copy.tell()
    for number, _ in enumerate(itertools.islice(story, 3)):
        copy.tell()
        # Where nothing is changed later than that, nothing says so.
        if number % 2:
            copy.source.tool("vsnap", "create", f"named{number}", copy.source.path)
        else:
            (copy.source.path / "later").write_bytes(b"%d" % number)
        come_to(copy.told[-1][0])
    end()
    copy.tell()
    copy.follow()
    copy.check()
    # Who follows notices that nobody reads any more, also where there is nothing to tell.
    sender, receiver, come_to, _end = follower(copy)
    come_to(copy.told[-1][0])
    receiver.kill()
    receiver.wait()
    assert sender.wait(timeout=60) == 1


def test_received_by_an_ordinary_user(copy):
    """He may change what of his own is read-only, and it is so afterwards."""
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
    told = json.loads(result.stderr)
    assert told["since"] == 0 and told["until"] > 0 and told["bytes"] == len(result.stdout)
    received = json.loads(copy.tool("vreceive", "--json", copy.path, input=result.stdout).stdout)
    assert received["until"] == told["until"] and received["bytes"] == told["bytes"]
    assert json.loads(copy.tool("vreceive", "--json", "--status", copy.path).stdout)["until"] == told["until"]
    assert copy.tool("vsend").returncode == 2
    assert copy.tool("vsend", "--since", "nonsense", copy.source.path).returncode == 2
    assert copy.tool("vsend", copy.path / "none").returncode == 1
