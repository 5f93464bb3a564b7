# SPDX-License-Identifier: LGPL-2.1-or-later
"""vrevert of files with several names: names that were not given keep their file."""
import json
import os
import re
import stat

import pytest

from mounts import NOBODY, epoch, moment
from treestate import differences, state_of


def undo_of(result):
    """The arguments of the command that a revert printed to undo it."""
    return re.search(r"^undo: vrevert (.*)$", result.stdout, re.M).group(1).split()


def same_file(*paths):
    return len({(p.stat().st_dev, p.stat().st_ino) for p in paths}) == 1


@pytest.fixture(name="pair")
def fixture_pair(any_mount):
    """a and b: two names of one file that was changed; the moment before."""
    a, b = any_mount.path / "a", any_mount.path / "b"
    a.write_bytes(b"one" * 5000)
    a.chmod(0o640)
    os.chown(a, 8, 9)
    os.setxattr(a, "user.k", b"v")
    os.utime(a, ns=(10**18, 10**18 + 7))
    os.link(a, b)
    when = moment()
    b.write_bytes(b"two")
    b.chmod(0o600)
    os.setxattr(b, "user.k", b"w")
    return any_mount, a, b, when


def test_one_name_is_reverted_and_the_other_is_unchanged(pair):
    mount, a, b, when = pair
    living = state_of(mount.path)["b"]
    result = mount.tool("vrevert", a, "--time", epoch(when))
    assert f"{a}: link broken; {b} keeps its content" in result.stdout
    assert (a.read_bytes(), b.read_bytes()) == (b"one" * 5000, b"two")
    found = a.stat()
    assert (stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid, found.st_mtime_ns, found.st_nlink) == \
        (0o640, 8, 9, 10**18 + 7, 1)
    assert os.getxattr(a, "user.k") == b"v"
    assert living._replace(nlink=1, group=()) == state_of(mount.path)["b"]._replace(nlink=1, group=())
    # Once more: there is nothing to do, and nothing is changed.
    inode = a.stat().st_ino
    assert "nothing to do" in mount.tool("vrevert", a, "--time", epoch(when)).stdout
    assert a.stat().st_ino == inode


def test_the_undo_makes_the_link_again(pair):
    mount, a, b, when = pair
    before = state_of(mount.path)
    mount.tool("vrevert", *undo_of(mount.tool("vrevert", a, "--time", epoch(when))))
    assert same_file(a, b)
    assert [d for d in differences(before, state_of(mount.path)) if not d.startswith(".: mtime")] == []


def test_all_links_changes_every_name(pair):
    mount, a, b, when = pair
    dry = mount.tool("vrevert", a, "--time", epoch(when), "--all-links", "-n").stdout
    assert f"{a}: its other names would change with it (--all-links)" in dry
    before = state_of(mount.path)
    result = mount.tool("vrevert", a, "--time", epoch(when), "--all-links")
    assert same_file(a, b) and b.read_bytes() == b"one" * 5000
    assert "link broken" not in result.stdout
    assert "--all-links" in undo_of(result)
    mount.tool("vrevert", *undo_of(result))
    assert [d for d in differences(before, state_of(mount.path)) if not d.startswith(".: mtime")] == []


def test_a_dry_run_reports_the_link(pair):
    mount, a, b, when = pair
    before = state_of(mount.path)
    dry = mount.tool("vrevert", a, "--time", epoch(when), "-n").stdout
    assert re.search(f"^{a}: link would be broken; ", dry, re.M)
    assert differences(before, state_of(mount.path)) == []
    document = json.loads(mount.tool("vrevert", b, "--time", epoch(when), "--json").stdout)
    assert [(d["action"], d["path"], d["from"]) for d in document["actions"]] == [("break", str(b), str(a))]


def test_an_unchanged_file_keeps_its_links(mount):
    a, b = mount.path / "a", mount.path / "b"
    a.write_bytes(b"same")
    os.link(a, b)
    when = moment()
    (mount.path / "c").write_bytes(b"")
    assert "nothing to do" in mount.tool("vrevert", a, "--time", epoch(when)).stdout
    a.unlink()
    mount.tool("vrevert", a, "--time", epoch(when))
    assert same_file(a, b)


def test_a_deleted_name_is_restored_beside_the_changed_one(pair):
    mount, a, b, when = pair
    a.unlink()
    before = state_of(mount.path)
    result = mount.tool("vrevert", a, "--time", epoch(when))
    assert (a.read_bytes(), b.read_bytes()) == (b"one" * 5000, b"two")
    mount.tool("vrevert", *undo_of(result))
    assert [d for d in differences(before, state_of(mount.path)) if not d.startswith(".: mtime")] == []


def test_names_given_together_are_still_linked(pair):
    mount, a, b, when = pair
    inode = a.stat().st_ino
    mount.tool("vrevert", a, b, a, "--time", epoch(when))
    assert same_file(a, b) and a.stat().st_ino == inode and b.read_bytes() == b"one" * 5000


def tree(mount):
    """d/x, d/e/y and out: one file; d/p, d/q: another; d/later was linked to it afterwards."""
    root = mount.path
    (root / "d" / "e").mkdir(parents=True)
    (root / "d" / "x").write_bytes(b"old" * 4000)
    os.link(root / "d" / "x", root / "d" / "e" / "y")
    os.link(root / "d" / "x", root / "out")
    (root / "d" / "p").write_bytes(b"pair")
    os.link(root / "d" / "p", root / "d" / "q")
    when = moment()
    (root / "out").write_bytes(b"new")
    (root / "d" / "q").write_bytes(b"pair changed")
    os.link(root / "d" / "p", root / "d" / "later")
    return root, when


def test_a_directory_breaks_links_to_names_outside(any_mount):
    root, when = tree(any_mount)
    d, before, pair_inode = root / "d", state_of(root), (root / "d" / "p").stat().st_ino
    dry = any_mount.tool("vrevert", d, "--time", epoch(when), "-n").stdout
    assert "link would be broken" in dry and differences(before, state_of(root)) == []
    result = any_mount.tool("vrevert", d, "--time", epoch(when))
    assert (root / "out").read_bytes() == b"new" and (root / "out").stat().st_nlink == 1
    assert same_file(d / "x", d / "e" / "y") and (d / "x").read_bytes() == b"old" * 4000
    assert (d / "x").stat().st_nlink == 2
    # All names of the other are inside: it is still the same file.
    assert same_file(d / "p", d / "q") and (d / "p").read_bytes() == b"pair" and not (d / "later").exists()
    assert (d / "p").stat().st_ino == pair_inode
    again = state_of(root)
    assert "nothing to do" in any_mount.tool("vrevert", d, "--time", epoch(when)).stdout
    assert differences(again, state_of(root)) == []
    any_mount.tool("vrevert", *undo_of(result))
    assert [line for line in differences(before, state_of(root)) if not line.startswith(".: mtime")] == []
    assert same_file(d / "x", d / "e" / "y", root / "out")


def test_a_directory_that_was_replaced(mount):
    """The current names are moved aside with the directory, and count as inside."""
    root, when = tree(mount)
    os.rename(root / "d", root / "was")
    (root / "d").mkdir()
    for name in ("x", "p"):
        os.rename(root / "was" / name, root / "d" / name)
    mount.tool("rm", "-r", root / "was")
    before, pair_inode = state_of(root), (root / "d" / "p").stat().st_ino
    result = mount.tool("vrevert", root / "d", "--time", epoch(when))
    assert (root / "out").read_bytes() == b"new"
    assert same_file(root / "d" / "x", root / "d" / "e" / "y") and (root / "d" / "x").read_bytes() == b"old" * 4000
    assert same_file(root / "d" / "p", root / "d" / "q") and (root / "d" / "p").stat().st_ino == pair_inode
    assert (root / "d" / "p").read_bytes() == b"pair"
    mount.tool("vrevert", *undo_of(result))
    assert [line for line in differences(before, state_of(root)) if not line.startswith(".: mtime")] == []


def test_a_user_who_may_not_set_the_owner_changes_nothing(mount):
    """A file of another owner would not be as it was: that is refused."""
    directory = mount.path / "d"
    directory.mkdir(mode=0o777)
    directory.chmod(0o777)
    a, b = directory / "a", directory / "b"
    a.write_bytes(b"one")
    a.chmod(0o666)
    os.link(a, b)
    when = moment()
    b.write_bytes(b"two")
    before = state_of(mount.path)
    result = mount.tool("vrevert", a, "--time", epoch(when), status=1, user=NOBODY)
    assert f"{a}: the owner: " in result.stdout
    assert [line for line in differences(before, state_of(mount.path)) if not line.startswith("d: mtime")] == []
