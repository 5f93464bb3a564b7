# SPDX-License-Identifier: LGPL-2.1-or-later
"""Flags of an inode (chattr) where a state is copied to: by vsend and vreceive, by vextract, into a branch."""
import errno
import json
import os
import random
import struct

import pytest
from copies import Copy, Victim
from mounts import NOBODY, as_user, epoch, moment
from test_branch import branch_of
from test_flags import (APPEND, FSGETXATTR, FSSETXATTR, IMMUTABLE, NOATIME, NODUMP, SYNC, ioctl, refused,
                        set_flags, user_flags)
from treestate import differences, state_of

LOCKS = IMMUTABLE | APPEND


@pytest.fixture(name="maker")
def fixture_maker(maker):
    """Files that a test leaves immutable are unlocked again, so that they can be removed."""
    yield maker
    for directory, names, files in os.walk(maker.scratch):
        for name in names + files:
            path = os.path.join(directory, name)
            try:
                if (os.path.isdir(path) or os.path.isfile(path)) and not os.path.islink(path) and user_flags(path) & LOCKS:
                    set_flags(path, 0)
            except OSError as error:
                assert error.errno in (errno.ENOTTY, errno.EOPNOTSUPP, errno.EROFS, errno.ENOTCONN), error


def flags_in(top):
    """Flags of everything below, but not of the store."""
    found = {".": user_flags(top)}
    for directory, names, files in os.walk(top):
        if ".wayback" in names:
            names.remove(".wayback")
        for name in names + files:
            path = os.path.join(directory, name)
            found[os.path.relpath(path, top)] = user_flags(path)
    return found


class Flagged(Copy):
    """Its flags are compared, too."""

    def __init__(self, maker, mount):
        super().__init__(maker, mount)
        self.flags = []

    def note_state(self):
        super().note_state()
        self.flags.append(flags_in(self.source.path))

    def check(self, expected=None):
        super().check(expected)
        assert flags_in(self.path) == self.flags[-1]
        with self.used() as copied:
            for (when, _state), flags in zip(self.expected, self.flags):
                assert flags_in(copied.at(when)) == flags
            assert flags_in(copied.path) == self.flags[-1]


def change_locked(path, function):
    """As an administrator does it: unlock, change, lock again."""
    flags = user_flags(path)
    set_flags(path, 0)
    function()
    set_flags(path, flags)


def test_a_copy_has_the_flags_of_every_moment(maker):
    copy = Flagged(maker, maker.mount("allow_other", kind="ext4"))
    root = copy.source.path
    (root / "d").mkdir()
    for name, flags in (("f", IMMUTABLE | NODUMP), ("log", APPEND), ("d/g", NODUMP), ("plain", 0)):
        (root / name).write_bytes(name.encode() * 3000)
        set_flags(root / name, flags)
    set_flags(root / "d", IMMUTABLE | NOATIME)
    copy.note_state()
    copy.follow()
    copy.check()
    # Locked files in the copy are changed there, moved, linked, and removed.
    change_locked(root / "f", lambda: (root / "f").write_bytes(b"two"))
    with open(root / "log", "ab") as stream:
        stream.write(b"more")
    copy.note_state()
    change_locked(root / "d", lambda: (root / "d/g").rename(root / "d/h"))
    set_flags(root / "d/h", IMMUTABLE)
    copy.note_state()
    copy.follow()
    copy.check()
    change_locked(root / "f", lambda: os.link(root / "f", root / "other"))
    set_flags(root / "d", 0)
    set_flags(root / "d/h", 0)
    (root / "d/h").rename(root / "h")
    set_flags(root / "h", IMMUTABLE)
    (root / "d").rename(root / "e")
    set_flags(root / "e", IMMUTABLE)
    copy.note_state()
    set_flags(root / "log", 0)
    (root / "log").unlink()
    copy.note_state()
    copy.follow()
    copy.check()
    set_flags(root / "e", 0)
    set_flags(root / "h", 0)
    (root / "h").unlink()
    (root / "e").rmdir()
    copy.note_state()
    copy.follow()
    copy.check()


def test_a_receiver_that_is_killed_leaves_no_lock_in_its_way(maker):
    """Killed before some system call, it is continued; in between, the past is as it was."""
    copy = Flagged(maker, maker.mount("allow_other", kind="ext4"))
    victim = Victim(copy, random.Random(5))
    root = copy.source.path
    for directory in ("d", "e"):
        (root / directory).mkdir()
        for name in ("f", "g"):
            (root / directory / name).write_bytes(name.encode() * 3000)
            set_flags(root / directory / name, IMMUTABLE if name == "f" else APPEND | NODUMP)
        set_flags(root / directory, IMMUTABLE)
    copy.note_state()
    assert victim.run(stream=copy.stream())
    for number in range(2 if os.environ.get("WAYBACK_QUICK") else 6):
        here, there = ("d", "e") if number % 2 == 0 else ("e", "d")
        for name in ("d", "e", "d/g", "e/g", f"{here}/f{number or ''}"):
            set_flags(root / name, 0)
        (root / here / f"f{number or ''}").rename(root / there / f"f{number + 1}")
        (root / "d/g").write_bytes(b"%d" % number)
        for name in ("d", "e", "d/g", f"{there}/f{number + 1}"):
            set_flags(root / name, IMMUTABLE | (NOATIME if number % 2 else 0))
        copy.note_state()
        before = copy.has()
        for _ in range(4):
            if copy.has() != before or victim.receive(copy.stream()):
                break
        else:
            copy.follow()
        copy.check(copy.expected[-2:])
    assert victim.killed > 0
    copy.check()


def test_a_file_locked_behind_the_mount_is_copied(maker):
    """No record shows that it was moved; its time of change does."""
    copy = Flagged(maker, maker.mount("allow_other", kind="ext4"))
    root, source = copy.source.path, copy.source.source
    for name in ("d", "e"):
        (root / name).mkdir()
    (root / "d/f").write_bytes(b"one")
    set_flags(root / "d/f", IMMUTABLE)
    set_flags(root / "d", IMMUTABLE)
    copy.note_state()
    copy.follow()
    copy.source.stop()
    for path in (source / "d", source / "d/f"):
        set_flags(path, 0)
    (source / "d/f").rename(source / "e/f")
    (source / "d").rename(source / "e/d")
    for path in (source / "e/d", source / "e/f"):
        set_flags(path, IMMUTABLE)
    copy.source.expect("changed while Wayback did not record")
    copy.source.start()
    (root / "e/plain").write_bytes(b"x")
    copy.note_state()
    copy.follow()
    assert flags_in(copy.path) == copy.flags[-1]
    assert (copy.path / "e/f").read_bytes() == b"one"


def test_flags_of_the_second_kind_are_sent(maker):
    """An extent size can be set only while a file is empty."""
    copy = Copy(maker, maker.mount("allow_other", kind="xfs"))
    copy.path = maker.tree("xfs")
    path = copy.source.path / "f"
    path.touch()
    fields = list(struct.unpack("5I8x", ioctl(path, FSGETXATTR, bytes(28))))
    fields[0], fields[1], fields[3] = fields[0] | 0x80 | 0x800, 65536, 4711
    ioctl(path, FSSETXATTR, struct.pack("5I8x", *fields))
    path.write_bytes(b"x" * 100000)
    copy.note_state()
    copy.follow()
    copy.check()
    there = struct.unpack("5I8x", ioctl(copy.path / "f", FSGETXATTR, bytes(28)))
    here = struct.unpack("5I8x", ioctl(path, FSGETXATTR, bytes(28)))
    assert (there[0] & 0x880, there[1], there[3]) == (here[0] & 0x880, here[1], here[3]) == (0x880, 65536, 4711)


def test_a_user_receives_without_locks(maker):
    """They are counted, as owners are; the rest is exact."""
    mount = maker.mount("allow_other", kind="ext4")
    mount.path.chmod(0o777)
    for name, flags in (("f", IMMUTABLE | NODUMP), ("g", NODUMP)):
        (mount.path / name).write_bytes(b"one")
        os.chown(mount.path / name, *NOBODY)
        set_flags(mount.path / name, flags)
    os.chown(mount.path, *NOBODY)
    copy = Copy(maker, mount)
    copy.received_by(*NOBODY)
    copy.note_state()
    result = copy.receive(copy.stream())
    assert result.returncode == 0 and b"1 attributes" in result.stderr, result.stderr
    assert [user_flags(copy.path / name) for name in ("f", "g")] == [NODUMP, NODUMP]


def flagged_tree(mount):
    """A tree with flags of all kinds in a directory that is locked itself; when it existed, and its flags."""
    top = mount.path / "top"
    (top / "d").mkdir(parents=True)
    for name, flags in (("f", IMMUTABLE | NODUMP), ("log", APPEND), ("d/g", NODUMP | NOATIME), ("d/plain", 0)):
        (top / name).write_bytes(name.encode() * 3000)
        set_flags(top / name, flags)
    os.link(top / "d/g", top / "other")
    set_flags(top / "d", IMMUTABLE | NOATIME)
    set_flags(top, IMMUTABLE | NODUMP)
    when = moment()
    return top, when, state_of(top), flags_in(top)


def test_vextract_restores_flags(maker):
    mount = maker.mount("allow_other", kind="ext4")
    top, when, state, flags = flagged_tree(mount)
    set_flags(top, 0)
    out = maker.tree("ext4") / "out"
    mount.tool("vextract", top, "-t", epoch(when), "-o", out)
    assert flags_in(out) == flags and differences(state, state_of(out)) == []
    refused(errno.EPERM, os.unlink, out / "f")
    # One file; over an older copy, and not over one that cannot be replaced.
    one = out.parent / "one"
    one.write_bytes(b"older")
    mount.tool("vextract", top / "f", "-t", epoch(when), "--force", "-o", one)
    assert user_flags(one) == IMMUTABLE | NODUMP and one.read_bytes() == (top / "f").read_bytes()
    failed = mount.run_tool("vextract", top / "f", "-t", epoch(when), "--force", "-o", one)
    assert failed.returncode == 1 and "not permitted" in failed.stdout, failed.stdout
    assert sorted(os.listdir(out.parent)) == ["one", "out"]
    # On a file system without such flags, the rest is copied.
    plain = maker.scratch / "plain"
    mount.tool("vextract", top, "-t", epoch(when), "-o", plain)
    assert differences(state, state_of(plain)) == []


def test_vextract_sets_an_extent_size_while_it_can(maker):
    mount = maker.mount("allow_other", kind="xfs")
    path = mount.path / "f"
    path.touch()
    fields = list(struct.unpack("5I8x", ioctl(path, FSGETXATTR, bytes(28))))
    fields[0], fields[1], fields[3] = fields[0] | 0x80 | 0x800, 65536, 4711
    ioctl(path, FSSETXATTR, struct.pack("5I8x", *fields))
    path.write_bytes(b"x" * 100000)
    when = moment()
    out = maker.tree("xfs") / "out"
    mount.tool("vextract", path, "-t", epoch(when), "-o", out)
    there = struct.unpack("5I8x", ioctl(out, FSGETXATTR, bytes(28)))
    assert (there[0] & 0x880, there[1], there[3]) == (0x880, 65536, 4711)


def test_vextract_of_a_user_leaves_out_locks(maker):
    mount = maker.mount("allow_other", kind="ext4")
    mount.path.chmod(0o755)
    _top, when, _state, flags = flagged_tree(mount)
    home = maker.tree("ext4")
    os.chown(home, *NOBODY)
    as_user(lambda: mount.tool("vextract", mount.path / "top", "-t", epoch(when), "-o", home / "out"), *NOBODY)
    assert flags_in(home / "out") == {name: value & ~LOCKS for name, value in flags.items()}


def test_vdiff_shows_that_flags_differ(maker):
    mount = maker.mount("allow_other", kind="ext4")
    top, when, _state, _flags = flagged_tree(mount)
    assert mount.tool("vdiff", top, epoch(when)).stdout == ""
    set_flags(top, NODUMP)
    set_flags(top / "f", 0)
    differing = mount.tool("vdiff", top, epoch(when)).stdout.splitlines()
    assert [line.split() for line in differing] == [["flags", str(top), "id", "->", "d"],
                                                    ["flags", str(top / "f"), "id", "->", "-"]]
    found = json.loads(mount.tool("vdiff", "--json", top, epoch(when)).stdout)["entries"]
    assert [(entry["path"], entry["changes"], entry["old"]["flags"], entry["new"]["flags"]) for entry in found] == \
        [("", ["flags"], "id", "d"), ("f", ["flags"], "id", "-")]
    assert mount.run_tool("vdiff", "--quiet", top / "f", epoch(when)).returncode == 3
    # Between two past moments; and a flag that was set and cleared again is no difference.
    later = moment()
    set_flags(top / "f", NODUMP | IMMUTABLE)
    assert mount.tool("vdiff", top / "f", epoch(when)).stdout == ""
    differing = mount.tool("vdiff", top / "f", epoch(when), epoch(later)).stdout.split()
    assert differing == ["flags", str(top / "f"), "id", "->", "-"]


def test_a_branch_keeps_the_flags_that_overlayfs_copies(maker):
    """All flags until a file is changed; then S, A, i and a. Its root has the flags that it had, but the locks."""
    mount = maker.mount("allow_other", kind="ext4")
    flags = {"f": NODUMP | SYNC, "g": NOATIME | NODUMP, "i": IMMUTABLE | NOATIME, "log": APPEND}
    for name, value in flags.items():
        (mount.path / name).write_bytes(b"one")
        set_flags(mount.path / name, value)
    set_flags(mount.path, NODUMP | IMMUTABLE)
    when = moment()
    branch = branch_of(maker, mount, when, maker.tree("ext4"))
    assert {name: user_flags(branch.path / name) for name in flags} == flags
    assert user_flags(branch.path) == NODUMP
    for name in flags:
        with open(branch.path / name, "r+b") as stream:
            stream.write(b"two")
    kept = SYNC | NOATIME | IMMUTABLE | APPEND
    for _ in range(2):
        assert {name: user_flags(branch.path / name) for name in flags} == \
            {name: value & kept for name, value in flags.items()}
        refused(errno.EPERM, os.unlink, branch.path / "i")
        refused(errno.EPERM, (branch.path / "i").write_bytes, b"three")
        branch.remount()
    assert {name: user_flags(mount.path / name) for name in flags} == flags
    assert (mount.path / "i").read_bytes() == b"one"
