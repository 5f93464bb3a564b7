# SPDX-License-Identifier: LGPL-2.1-or-later
"""vrm --change: single versions of a file are gone in every place; all others are as they were."""
import json
import os
import random
import struct
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "crash"))

# pylint: disable=wrong-import-position
from mounts import NOBODY, QUICK, SECOND, as_user, epoch, moment, nanoseconds
from test_forget import SECRET
from test_forget_before import clean, found_anywhere
from treestate import differences, state_of

SIZE = 123_456_789


def write_at(path, data, offset=0):
    fd = os.open(path, os.O_RDWR)
    try:
        assert os.pwrite(fd, data, offset) == len(data)
    finally:
        os.close(fd)


def versions(mount, path):
    return json.loads(mount.tool("vstat", "--json", path, merge=False).stdout)["versions"]


def numbers(mount, path):
    """{when: number} of the versions that vstat lists; the time is that of their last change."""
    return {nanoseconds(one): one["change"] for one in versions(mount, path)}


def tree_at(mount, when):
    return state_of(mount.at(when))


class Story:
    """A file, its states at moments between its changes, and which version came after each."""

    def __init__(self, mount, name="f", size=20_000):
        self.mount = mount
        self.path = mount.path / name
        self.path.write_bytes(os.urandom(size))
        write_at(self.path, b"from here on it has a log of its own")
        self.seen = []  # (moment, state)
        self.see()

    def see(self):
        self.seen.append((moment(), state_of(self.mount.path)))
        moment()

    def do(self, function):
        function()
        self.see()

    def number_before(self, index):
        """Of the version that came after that moment."""
        when = self.seen[index][0]
        return min((w, n) for w, n in numbers(self.mount, self.path).items() if w > when)[1]

    def span(self, first, last):
        """(low, high, since, until, indices): the numbers of the versions that replaced the states from `first` to
        `last`; the times of the first change of the version before these, and of the last change of the newest; and all
        states of that period. Changes of attributes are no versions: the states after them are in it, too."""
        low, high = self.number_before(last), self.number_before(first)
        listed = {one["change"]: one for one in versions(self.mount, self.path)}
        since, until = nanoseconds(listed[high + 1]["began"]), nanoseconds(listed[low])
        indices = [index for index, (when, _) in enumerate(self.seen) if since <= when < until]
        assert indices[0] <= first and indices[-1] >= last
        return low, high, since, until, indices

    def erase(self, first, last):
        """Everything that was seen from index `first` to `last`, and in the rest of that period (span)."""
        low, high, since, until, indices = self.span(first, last)
        answer = json.loads(self.mount.tool("vrm", "-y", "--json", "--change", f"{low}..{high}", self.path).stdout)
        assert (nanoseconds(answer["since"]), nanoseconds(answer["until"])) == (since, until)
        assert answer["versions"] == high - low + 1
        for index in indices:
            self.seen[index] = self.seen[index][0], self.seen[indices[0] - 1][1]

    def check(self):
        for when, state in self.seen:
            assert differences(state, tree_at(self.mount, when)) == [], self.seen.index((when, state))


def test_one_version_is_erased_and_no_other(any_mount):
    mount = any_mount
    story = Story(mount)
    path = story.path
    story.do(lambda: write_at(path, SECRET * 20, 3000))
    os.setxattr(path, "user.secret", SECRET)
    os.removexattr(path, "user.secret")
    os.truncate(path, SIZE)
    os.truncate(path, 20_000)
    story.do(lambda: write_at(path, b"harmless" * 150, 2500))
    story.do(lambda: os.truncate(path, 9000))
    story.do(lambda: write_at(path, b"the present", 100))
    mount.tool("vcompact", mount.path)
    high = story.number_before(1)
    low = high - 2  # cut off twice and written; the attribute is no version
    would = json.loads(mount.tool("vrm", "-n", "--json", "--change", f"{low}..{high}", path).stdout)
    assert would["dry_run"] and would["versions"] == 3
    story.check()
    mount.tool("vrm", "-y", "-c", f"{low}..{high}", path)
    story.seen[1] = story.seen[1][0], story.seen[0][1]
    assert found_anywhere(mount, SECRET, b"user.secret", struct.pack("<Q", SIZE)) == []
    story.check()
    mount.remount()
    story.check()
    story.do(lambda: write_at(path, b"and on it goes", 7000))
    clean(mount)
    story.check()


def visible(mount, story, marker):
    """Whether a version that still exists, or the present, has it."""
    if marker in story.path.read_bytes():
        return True
    return any(marker in (mount.at(when) / story.path.name).read_bytes() for when, _ in story.seen)


@pytest.mark.parametrize("kind, seed", [("ext4", 1), ("xfs", 2)] if QUICK else
                         [(kind, seed) for kind in ("ext4", "xfs") for seed in (1, 2)])
def test_any_versions_are_erased_and_the_rest_is_exact(maker, kind, seed):
    mount = maker.mount("allow_other", kind=kind)
    rng = random.Random(seed)
    story = Story(mount, size=700_000 if kind == "xfs" else 60_000)
    path = story.path
    markers = []

    def change(kind_of):
        size = path.stat().st_size
        if kind_of == "truncate":
            os.truncate(path, rng.randrange(size // 3, size + 20_000))
        elif kind_of == "xattr":
            os.setxattr(path, f"user.{rng.randrange(2)}", rng.randbytes(30))
        elif kind_of == "mode":
            os.chmod(path, rng.choice((0o600, 0o644, 0o640)))
        else:
            markers.append(rng.randbytes(40))
            length = rng.choice((1, 3, 2000 if kind == "ext4" else 6000))
            offset = rng.randrange(size + 500)
            write_at(path, markers[-1] * length, offset & ~4095 if length > 3 else offset)

    kinds = ["write", "write", "write", "truncate", "xattr", "mode"]
    # There is a version before and after any that are erased.
    for kind_of in ["write", *(rng.choice(kinds) for _ in range(22 if QUICK else 38)), "write"]:
        story.do(lambda: change(kind_of))  # pylint: disable=cell-var-from-loop
    erased = 0
    for turn in range(4):
        first = rng.randrange(1, len(story.seen) - 6)
        last = first + rng.randrange(4)
        if turn == 1:
            mount.tool("vcompact", mount.path)
        # a removed change can no longer be named by its time
        indices = story.span(first, last)[-1]
        if any(story.seen[i][1] is story.seen[i - 1][1] for i in range(indices[0], indices[-1] + 2)):
            continue
        story.erase(first, last)
        erased += 1
        story.check()
        gone = [marker for marker in markers if not visible(mount, story, marker)]
        assert found_anywhere(mount, *gone) == []
    assert erased >= 2
    mount.remount()
    story.check()
    clean(mount)


def test_killed_at_any_call_the_rest_is_exact_and_the_next_time_nothing_is_left(maker):
    """Large and aligned, so that blocks are cloned: the image is removed after the log."""
    if os.uname().machine != "x86_64":
        pytest.skip("the tracer knows no other registers")
    import crash  # pylint: disable=import-outside-toplevel
    mount = maker.mount("allow_other", kind="xfs", made=crash.Traced)
    mount.expect(".")
    calls, rng = 0, random.Random(3)
    for turn in range(5 if QUICK else 9):
        story = Story(mount, f"f{turn}", size=500_000)
        secret = b"secret of turn %d " % turn * 4096
        story.do(lambda: write_at(story.path, secret, 65536))  # pylint: disable=cell-var-from-loop
        story.do(lambda: write_at(story.path, bytes(200_000), 60_000))  # pylint: disable=cell-var-from-loop
        number, count = story.number_before(1), len(numbers(mount, story.path))
        mount.control.arm(crash.CHANGES, crash.KILL, rng.randrange(1, calls + 1) if turn else crash.FOREVER)
        mount.run_tool("vrm", "-y", "--change", number, story.path)
        met = mount.control.disarm()
        calls = calls if turn else met
        if mount.is_dead():
            mount.kill(check=False)
            mount.start()
        if len(numbers(mount, story.path)) == count:
            story.check()
            mount.tool("vrm", "-y", "--change", number, story.path)
        else:
            mount.tool("vrm", "-y", "--before", epoch(story.seen[0][0]), story.path)
        story.seen[1] = story.seen[1][0], story.seen[0][1]
        story.check()
        assert found_anywhere(mount, secret[:40]) == [], turn
    clean(mount)


def test_impossible_requests_are_refused_with_a_reason(maker):
    mount = maker.mount("allow_other")
    path = mount.path / "f"
    path.write_bytes(b"first")
    path.write_bytes(b"second")
    write_at(path, b"third", 0)
    path.chmod(0o666)
    count = len(numbers(mount, path))
    known = moment(), state_of(mount.path)

    def refused(text, *arguments, status=1, **options):
        assert text in mount.tool("vrm", "-y", *arguments, status=status, **options).stdout

    refused("oldest version", "--change", count, path)
    refused("its directory recorded", "--change", count - 1, path)
    refused(f"no version with number {count + 1}", "--change", count + 1, path)
    refused("not permitted", "--change", 1, path, user=NOBODY)
    for wrong in ("0", "3..2", "x", "1..", "-1", "1..2..3"):
        refused("--change", "--change", wrong, path, status=2)
    refused("--change", "--change", "1", "-r", path, status=2)
    mount.tool("vsnap", "create", "kept", mount.path)
    write_at(path, b"4th")
    refused("a snapshot", "--change", 1, path)
    assert differences(known[1], tree_at(mount, known[0])) == []
    mount.tool("vsnap", "delete", "kept", cwd=mount.path)
    mount.tool("vrm", "-y", "--change", 1, path)


def test_nobody_forgets_versions_of_another_owner(mount):
    mount.path.chmod(0o777)
    path = mount.path / "f"
    as_user(lambda: path.write_bytes(b"a" * 100), *SECOND)
    for text in (b"b", b"c", b"d"):
        as_user(lambda: write_at(path, text), *SECOND)  # pylint: disable=cell-var-from-loop
    os.chown(path, *NOBODY)
    as_user(lambda: write_at(path, b"e"), *NOBODY)
    as_user(lambda: write_at(path, b"f"), *NOBODY)
    assert "not permitted" in mount.tool("vrm", "-y", "--change", 3, path, status=1, user=NOBODY).stdout
    mount.tool("vrm", "-y", "--change", 1, path, user=NOBODY)
    assert (mount.path / "f@~2").read_bytes()[:1] == b"c"


def test_recorded_by_close_it_is_refused(maker):
    mount = maker.mount("allow_other", "history=close")
    path = mount.path / "f"
    for text in (b"one", b"two", b"three", b"four"):
        path.write_bytes(text)
    assert "--before" in mount.tool("vrm", "-y", "--change", 2, path, status=1).stdout
    assert (mount.path / "f@~2").read_bytes() == b"two"
