# SPDX-License-Identifier: LGPL-2.1-or-later
"""Stores that released versions left when they were killed amid their work: open sessions, changes in flight, gaps."""
import errno
import struct

import pytest

from mounts import moment
from samples import KILLED, image_of, killed_trees
from treestate import differences, state_of

ANY = r"."  # what these mounts report is not the subject
DELETED = {"x", "d/h"}


def store_of(root, tree, facts):
    return root / facts.get("store", f"{tree}/.wayback")


def format_of(store):
    return struct.unpack_from("<I", (store / "header").read_bytes(), 8)[0]


def contents(top, paths):
    return {path: (top / path).read_bytes().decode("latin-1") if (top / path).exists() else None for path in paths}


def is_below(path, top):
    return not top or path == top or path.startswith(f"{top}/")


def check_known(mount, states, loose):
    """Each is as it was; or, if `loose`, may be refused as a whole or in part."""
    for when, state in states:
        refused = set()
        try:
            shown = state_of(mount.at(when), refused)
        except OSError as error:
            assert error.errno == errno.EIO
            refused, shown = {""}, {}
        # To the store, the image that is mounted again had a power cut: deleted files may have lost content.
        assert loose or refused <= DELETED, (when, refused, mount.source.name)
        gone = {f"{path or '.'}: missing" for path in state if any(is_below(path, one) for one in refused)}
        # The links of the root count the directory that names a store elsewhere, which older versions did not make.
        gone |= {line for line in differences(state, shown) if mount.options and line.startswith(".: nlink")}
        assert set(differences(state, shown)) <= gone, (when, mount.source.name)


def check_tree(maker, root, name, facts):
    options = [f"store={root / facts['store']}"] if "store" in facts else []
    mount = maker.mount(*options, source=root / name, start=False)
    mount.expect(ANY)
    mount.start()
    before, after = facts["pending"]
    assert contents(mount.path, before) in (before, after), name
    loose = "gap" in facts or "session" in facts
    states = facts["states"]
    check_known(mount, states, loose)
    states.append((moment(), state_of(mount.path)))
    (mount.path / "d/g").write_bytes(b"later")
    (mount.path / "later").write_bytes(b"new")
    (mount.path / "d").rename(mount.path / "e")
    states.append((moment(), state_of(mount.path)))
    with open(mount.path / "f", "r+b") as stream:
        stream.write(b"last")
    for _ in range(2):
        check_known(mount, states, loose)
        mount.check_store()
        mount.remount()
    mount.stop()
    assert "clean" in mount.tool("vfsck", *(["--store", root / facts["store"]] if options else []),
                                 mount.source).stdout, name


@pytest.mark.parametrize("name", KILLED)
def test_a_store_whose_daemon_was_killed(maker, name):
    number = int(name.rsplit("-", maxsplit=1)[1])
    with image_of(name, maker) as root:
        trees = killed_trees(name)
        assert {"write-2", "replace-2", "remove-2", "cut-2", "moved"} <= set(trees)
        assert ("session" in trees and "gap" in trees) == (number >= 3)
        for tree, facts in trees.items():
            assert format_of(store_of(root, tree, facts)) == number
            check_tree(maker, root, tree, facts)


def test_there_is_one_of_each_version_that_was_released_alone():
    """Versions 8 and 9 were steps of 10."""
    assert {f"killed-{number}" for number in (1, 2, 3, 4, 5, 6, 7, 10)} <= set(KILLED)
