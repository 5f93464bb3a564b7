# SPDX-License-Identifier: LGPL-2.1-or-later
"""Copies of trees that are changed behind the mount, without any record of it: they show the same states as the
source."""
import os
import random
import shutil
from collections import Counter

import pytest
from copies import Copy, Victim
from mounts import moment
from operations import Operator
from treestate import differences, state_of

QUICK = bool(os.environ.get("WAYBACK_QUICK"))


UNSEEN = "changed while Wayback did not record"


def shown(root):
    """The visible state, and the paths that are refused."""
    refused = set()
    return state_of(root, refused), refused


def compare(copy, moments):
    """If the source shows something, the copy shows the same; and it is as sound."""
    mount = copy.source
    mount.expect(UNSEEN)
    mount.stop()
    sound = copy.tool("vfsck", mount.source).returncode == 0
    mount.start()
    with copy.used() as copied:
        copied.allowed += mount.allowed
        for when in [*moments, None]:
            (expected, refused), (found, _) = (shown(m.at(when) if when else m.path) for m in (mount, copied))
            for path in refused:
                found = {name: entry for name, entry in found.items() if name != path and not name.startswith(f"{path}/")}
            ignored = ("nlink", "group") if refused else ()
            assert differences(expected, found, ignored) == [], (when, refused)
    result = copy.tool("vfsck", copy.path)
    assert not sound or result.returncode == 0 and result.stdout.endswith(b"clean\n"), result.stdout


def begin(top):
    """Files for each way, below a directory of its own."""
    (top / "directory/below").mkdir(parents=True)
    (top / "other").mkdir()
    for path in ("file", "second", "directory/file", "directory/below/file", "other/file"):
        (top / path).write_bytes(path.encode() * 1000)
    os.link(top / "file", top / "linked")
    (top / "symlink").symlink_to("file")


def made(top, _outside):
    (top / "new").write_text("new")
    (top / "directory/new/deep").mkdir(parents=True)
    (top / "directory/new/deep/file").write_text("deep")
    (top / "directory/new/symlink").symlink_to("nowhere")
    os.mkfifo(top / "directory/new/fifo")


def changed(top, _outside):
    (top / "second").write_bytes(b"changed")
    with open(top / "directory/below/file", "r+b") as stream:
        stream.seek(1000)
        stream.write(b"in the middle")
    os.chmod(top / "other/file", 0o4711)
    os.chmod(top / "other", 0o711)
    os.setxattr(top / "directory/file", "user.behind", b"value")


def renamed(top, _outside):
    (top / "second").rename(top / "third")
    (top / "file").rename(top / "other/moved")
    (top / "directory/below").rename(top / "below")
    (top / "other").rename(top / "directory/other")
    (top / "symlink").rename(top / "directory/symlink")


def replaced(top, _outside):
    for path in ("file", "directory/file"):
        (top / "temporary").write_text("replaced")
        (top / "temporary").rename(top / path)
    (top / "second").unlink()
    (top / "second").mkdir()
    shutil.rmtree(top / "other")
    (top / "other").symlink_to("directory")


def linked(top, _outside):
    os.link(top / "second", top / "other/second")
    os.link(top / "directory/below/file", top / "second link")


def removed(top, _outside):
    (top / "second").unlink()
    (top / "linked").unlink()
    (top / "symlink").unlink()
    (top / "other/file").unlink()
    shutil.rmtree(top / "directory")


def brought_in(top, outside):
    """From elsewhere in the file system: older than the copy, all but the name."""
    begin(outside)
    (outside / "directory").rename(top / "other/directory")
    (outside / "second").rename(top / "second")


WAYS = [made, changed, renamed, replaced, linked, removed, brought_in]


class Ways:
    """Each way in a directory in which nothing else is changed (quiet), and in one in which something is (busy)."""

    def __init__(self, copy):
        self.copy, self.tree, self.moments = copy, copy.source.source, []
        self.outside = copy.maker.tree()

    def each(self, kinds=("quiet", "busy")):
        return [(way, kind, f"{kind}/{way.__name__}") for way in WAYS for kind in kinds]

    def begin(self, root):
        for _way, _kind, path in self.each():
            begin(root / path)

    def go(self):
        for way, _kind, path in self.each():
            (self.outside / path).mkdir(parents=True)
            way(self.tree / path, self.outside / path)

    def work(self):
        """Through the mount."""
        for _way, _kind, path in self.each(["busy"]):
            for below in ("made here", "directory/made here", "other/made here"):
                if (self.copy.source.path / path / below).parent.is_dir():
                    (self.copy.source.path / path / below).write_text(below)
        self.note_state()

    def note_state(self):
        self.moments.append(moment())

    def follow(self):
        self.copy.follow()
        compare(self.copy, self.moments)


def test_files_without_any_record(maker):
    """They existed before the history began; their changes behind the mount reach the copy when it is brought up to
    date."""
    ways = Ways(Copy(maker, maker.mount("allow_other", start=False)))
    ways.begin(ways.tree)
    ways.copy.source.start()
    ways.work()
    ways.follow()
    ways.copy.source.stop()
    ways.go()
    ways.copy.source.start()
    ways.work()
    ways.follow()


def test_before_the_first_stream_and_beside_a_daemon(maker):
    ways = Ways(Copy(maker, maker.mount("allow_other", "history=close")))
    mount = ways.copy.source
    mount.expect(UNSEEN)
    ways.begin(mount.path)
    ways.note_state()
    mount.stop()
    ways.go()
    mount.start()
    ways.work()
    ways.follow()
    for _way, _kind, path in ways.each():
        shutil.rmtree(mount.path / path)
    ways.begin(mount.path)
    shutil.rmtree(ways.outside)
    ways.outside.mkdir()
    ways.note_state()
    ways.follow()
    ways.go()
    mount.remount()
    ways.work()
    ways.follow()


class Behind(Operator):
    """Random changes of a tree that is not mounted just now. Files with a name in the graveyard as well are spared: if
    one is changed and loses its last name in the tree before it is sent, nothing is left to show that."""

    def _walk(self):
        dirs, others = super()._walk()
        store = os.path.join(self.root, ".wayback")
        others = {path: os.lstat(path) for path in others if not path.startswith(store)}
        names = Counter(status.st_ino for status in others.values())
        return ([path for path in dirs if not path.startswith(store)],
                [path for path, status in others.items() if names[status.st_ino] == status.st_nlink])


SEEDS = [int(seed) for seed in os.environ.get("WAYBACK_MODEL_SEED", "1").split(",")]


@pytest.mark.parametrize("seed", SEEDS)
def test_random_changes_on_either_side(maker, seed):
    """Through the mount, behind it, and streams in between, some of which are cut by a killed receiver."""
    rng = random.Random(seed)
    copy = Copy(maker, maker.mount("allow_other", f"history={rng.choice(['write', 'close'])}", start=False))
    mount, moments = copy.source, []
    mount.expect(f"at none of the places in its records|no record (has|describes)|{UNSEEN}")
    behind, through = Behind(str(mount.source), seed), Operator(str(mount.path), seed)
    behind.open_files = through.open_files
    mine = Victim(copy, rng)
    for _ in range(3 if QUICK else 6):
        for _ in range(rng.randrange(12)):
            behind.step()
        through.close()
        mount.start()
        for _ in range(rng.randrange(25)):
            through.step()
            if rng.randrange(8) == 0:
                moments.append(moment())
        through.close()
        if rng.randrange(3):
            moments.append(moment())
            stream = copy.stream()
            if mine.calls and rng.randrange(3) == 0:
                mine.receive(stream)
            if mine.calls == 0:
                assert mine.run(stream=stream)
            else:
                copy.follow()
            compare(copy, moments)
        mount.stop()
