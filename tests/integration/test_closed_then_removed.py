# SPDX-License-Identifier: LGPL-2.1-or-later
"""A file that a private directory protected is still protected when it is removed there, or has lost its other
names."""
import os
import random
import shutil

import pytest

from mounts import NOBODY, SECOND, as_user, moment
from preload import COUNTING, preloaded

READABLE = b"what everybody could read"


def read(path, user=SECOND):
    def work():
        with open(path, "rb") as stream:
            return stream.read()
    return as_user(work, *user)


def refused(path, user=SECOND):
    with pytest.raises(PermissionError):
        read(path, user)


@pytest.fixture(name="tree")
def fixture_tree(mount):
    """An open directory with a file, and a private one."""
    for name, mode in (("open", 0o755), ("private", 0o700), ("other", 0o755)):
        (mount.path / name).mkdir()
        os.chmod(mount.path / name, mode)
    (mount.path / "open/f").write_bytes(READABLE)
    mount.when = moment()
    return mount


def past(mount, path):
    return mount.at(mount.when, path)


def test_removed_in_place(tree):
    (tree.path / "open/f").unlink()
    assert read(past(tree, "open/f")) == READABLE
    tree.remount()
    assert read(past(tree, "open/f")) == READABLE


def test_moved_to_a_private_directory_and_removed_there(tree):
    os.rename(tree.path / "open/f", tree.path / "private/f")
    refused(past(tree, "open/f"))
    (tree.path / "private/f").unlink()
    refused(past(tree, "open/f"))
    assert read(past(tree, "open/f"), (0, 0)) == READABLE
    tree.remount()
    refused(past(tree, "open/f"))
    # The later mode of that directory counts as well, and its former one does not change.
    os.chmod(tree.path / "private", 0o755)
    refused(past(tree, "open/f"))


def test_replaced_in_a_private_directory(tree):
    os.rename(tree.path / "open/f", tree.path / "private/f")
    (tree.path / "private/new").write_bytes(b"new")
    os.rename(tree.path / "private/new", tree.path / "private/f")
    refused(past(tree, "open/f"))


def test_the_directory_that_lost_it_was_closed_since(tree):
    os.rename(tree.path / "open/f", tree.path / "other/f")
    (tree.path / "other/f").unlink()
    assert read(past(tree, "open/f")) == READABLE
    os.chmod(tree.path / "other", 0o700)
    refused(past(tree, "open/f"))
    os.chmod(tree.path / "other", 0o755)
    assert read(past(tree, "open/f")) == READABLE
    os.rename(tree.path / "other", tree.path / "private/other")
    refused(past(tree, "open/f"))


def test_a_parent_of_the_directory_that_lost_it_was_closed(tree):
    (tree.path / "private/deep/deeper").mkdir(parents=True)
    os.rename(tree.path / "open/f", tree.path / "private/deep/deeper/f")
    (tree.path / "private/deep/deeper/f").unlink()
    refused(past(tree, "open/f"))
    # Opened since, and removed as well: its mode when it lost the file counts.
    os.chmod(tree.path / "private", 0o755)
    shutil.rmtree(tree.path / "private")
    refused(past(tree, "open/f"))


def test_a_whole_tree_removed_in_a_private_directory(tree):
    (tree.path / "open/sub/subsub").mkdir(parents=True)
    (tree.path / "open/sub/subsub/g").write_bytes(READABLE)
    when = moment()
    os.rename(tree.path / "open", tree.path / "private/open")
    shutil.rmtree(tree.path / "private/open")
    for path in ("open/f", "open/sub/subsub/g"):
        refused(tree.at(when, path))
        assert read(tree.at(when, path), (0, 0)) == READABLE
    with pytest.raises(PermissionError):
        as_user(lambda: os.listdir(tree.at(when, "open/sub")), *SECOND)


def test_removed_with_its_directory_in_sight_of_another_user(tree):
    """An answer for a user who looks from behind the private directory does not count for the others."""
    os.chown(tree.path / "private", *NOBODY)
    os.rename(tree.path / "open", tree.path / "private/open")
    behind = moment()
    shutil.rmtree(tree.path / "private/open")
    os.chmod(tree.path / "private", 0o755)
    assert read(tree.at(behind, "private/open/f"), NOBODY) == READABLE
    refused(past(tree, "open/f"))


def test_a_whole_tree_removed_in_the_open(maker):
    """Made before there was any history of it."""
    source = maker.tree()
    (source / "a/b/c").mkdir(parents=True)
    (source / "a/b/c/f").write_bytes(READABLE)
    mount = maker.mount("allow_other", source=source)
    when = moment()
    (mount.path / "a/b/c/f").unlink()
    assert read(mount.at(when, "a/b/c/f")) == READABLE
    shutil.rmtree(mount.path / "a")
    for _ in range(2):
        assert read(mount.at(when, "a/b/c/f")) == READABLE
        assert as_user(lambda: os.listdir(mount.at(when, "a/b")), *SECOND) == ["c"]
        mount.remount()


def test_restored_and_removed_again_elsewhere(tree):
    """The result of the look at the first removal does not hold for the second."""
    (tree.path / "open/f").unlink()
    assert read(past(tree, "open/f")) == READABLE
    tree.tool("vrevert", "--change", "1", tree.path / "open/f")
    os.rename(tree.path / "open/f", tree.path / "private/f")
    (tree.path / "private/f").unlink()
    refused(past(tree, "open/f"))


def test_private_by_another_name_and_removed_by_the_open_one(tree):
    os.link(tree.path / "open/f", tree.path / "private/l")
    assert read(past(tree, "open/f")) == READABLE
    (tree.path / "open/f").unlink()
    refused(past(tree, "open/f"))
    tree.remount()
    refused(past(tree, "open/f"))
    assert read(past(tree, "open/f"), (0, 0)) == READABLE
    (tree.path / "private/l").unlink()
    refused(past(tree, "open/f"))


def test_another_name_that_still_exists_in_the_open(tree):
    os.link(tree.path / "open/f", tree.path / "other/l")
    (tree.path / "open/f").unlink()
    assert read(tree.path / "other/l") == READABLE
    assert read(past(tree, "open/f")) == READABLE
    os.chmod(tree.path / "other", 0o700)
    refused(past(tree, "open/f"))


def test_the_owner_reads_a_removed_file(tree):
    """As an owner could have given themselves any right."""
    os.chown(tree.path / "open/f", *SECOND)
    when = moment()
    os.link(tree.path / "open/f", tree.path / "private/l")
    (tree.path / "open/f").unlink()
    assert read(tree.at(when, "open/f")) == READABLE
    refused(tree.at(when, "open/f"), NOBODY)
    (tree.path / "private/l").unlink()
    assert read(tree.at(when, "open/f")) == READABLE


def test_lists_of_changes_hide_it_as_well(tree):
    (tree.path / "open/f").write_bytes(READABLE * 2)
    os.rename(tree.path / "open/f", tree.path / "private/f")
    (tree.path / "private/f").unlink()
    assert tree.run_tool("vstat", past(tree, "open/f"), user=SECOND).returncode != 0
    assert tree.run_tool("vextract", "-o", "/dev/null", past(tree, "open/f"), user=SECOND).returncode != 0


# ---- cost --------------------------------------------------------------------------------------------

NAMES = 1500


@pytest.fixture(name="counting")
def fixture_counting(maker, tmp_path):
    """A mount with two directories, files in one of them, the moment they are there, and the reads of all logs."""
    log, reads = tmp_path / "log", tmp_path / "reads"
    with preloaded(tmp_path, COUNTING, COUNT_OF=log, COUNT_IN=reads):
        mount = maker.mount("allow_other")
    for name in ("d", "e"):
        (mount.path / name).mkdir()
    for i in range(NAMES):
        (mount.path / f"d/{i}").touch()
    reads.touch()
    log.symlink_to(mount.source / ".wayback/objects")
    yield mount, moment(), reads
    log.unlink()


def all_catalogs(mount):
    """How many reads it takes to read each once, at most."""
    return sum(path.stat().st_size // 65536 + 8 for path in (mount.source / ".wayback/objects").glob("*/*.cat"))


def look_at_all(mount, when, user=SECOND):
    """Lists the former entries of `d`, looks at each file and opens it."""
    def work():
        for name in os.listdir(mount.at(when, "d")):
            os.lstat(f"{mount.at(when, 'd')}/{name}")
            os.close(os.open(f"{mount.at(when, 'd')}/{name}", os.O_RDONLY))
    as_user(work, *user)


def test_a_list_of_removed_files_reads_the_catalog_a_few_times(counting):
    """Whether others may have each is found out in the same pass."""
    mount, when, reads = counting
    for i in range(NAMES):
        (mount.path / f"d/{i}").unlink()
    before = reads.stat().st_size
    look_at_all(mount, when)
    assert reads.stat().st_size - before <= 8 * all_catalogs(mount)
    look_at_all(mount, when)
    assert reads.stat().st_size - before <= 16 * all_catalogs(mount)


@pytest.mark.parametrize("order", ("rising", "falling", "mixed"))
def test_a_list_of_files_removed_elsewhere_reads_the_catalogs_a_few_times(counting, order):
    """The same if each was moved before, in any order."""
    mount, when, reads = counting
    names = sorted(str(i) for i in range(NAMES))
    if order == "falling":
        names.reverse()
    elif order == "mixed":
        random.Random(1).shuffle(names)
    for name in names:
        os.rename(mount.path / "d" / name, mount.path / "e" / name)
    for name in names:
        (mount.path / "e" / name).unlink()
    before = reads.stat().st_size
    look_at_all(mount, when)
    assert reads.stat().st_size - before <= 16 * all_catalogs(mount)
    look_at_all(mount, when)
    assert reads.stat().st_size - before <= 32 * all_catalogs(mount)
    before = reads.stat().st_size
    look_at_all(mount, when, (0, 0))
    assert reads.stat().st_size - before <= 16 * all_catalogs(mount)
