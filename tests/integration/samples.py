# SPDX-License-Identifier: LGPL-2.1-or-later
"""The small stores in tests/assets/stores: file systems with a tree and its history, and its known states; and
streams."""
import contextlib
import json
import lzma
from pathlib import Path

from mounts import run
from treestate import Entry

ASSETS = Path(__file__).resolve().parents[1] / "assets/stores"
STREAMS = ASSETS.with_name("streams")
NAMES = sorted(path.stem for path in ASSETS.glob("version-*.json"))
KILLED = sorted(path.name.removesuffix(".json.xz") for path in ASSETS.glob("killed-*.json.xz"))


def moments(name):
    return json.loads((ASSETS / f"{name}.json").read_text(encoding="utf-8"))


def forgotten(name):
    """Moments of which the store has no history any more."""
    return [one["when"] for one in moments(name) if one["state"] is None]


def as_json(state):
    return {path: [*entry._replace(xattrs=[[name, value.hex()] for name, value in entry.xattrs])]
            for path, entry in state.items()}


def from_json(state):
    return {path: Entry(*fields[:9], tuple((key, bytes.fromhex(value)) for key, value in fields[9]), *fields[10:])
            for path, fields in state.items()}


def states(name):
    """(moment, state of the tree) of each that the store has a history of."""
    for one in moments(name):
        if one["state"] is None:
            continue
        yield one["when"], from_json(one["state"])


def stream(name):
    """Streams one after the other, the sample of a store they are of, and the tree's state after one more change."""
    facts = json.loads((STREAMS / f"{name}.json").read_text(encoding="utf-8"))
    return lzma.decompress((STREAMS / f"{name}.xz").read_bytes()), facts["store"], (facts["when"], from_json(facts["state"]))


def killed_trees(name):
    """The facts about each tree of such a sample: with `states`, (moment, state) of each."""
    trees = json.loads(lzma.decompress((ASSETS / f"{name}.json.xz").read_bytes()))
    return {tree: dict(facts, states=[(one["when"], from_json(one["state"])) for one in facts["states"]])
            for tree, facts in trees.items()}


@contextlib.contextmanager
def image_of(name, maker):
    """A file system of its own, so that inodes are those it was made with; in memory, for speed."""
    image, root = maker.tree("tmpfs") / "image", maker.scratch / "root"
    image.write_bytes(lzma.decompress((ASSETS / f"{name}.img.xz").read_bytes()))
    root.mkdir(exist_ok=True)
    run("mount", "-o", "loop", image, root)
    try:
        yield root
    finally:
        run("umount", "-l", root)


@contextlib.contextmanager
def unpacked(name, maker):
    """The tree of a sample."""
    with image_of(name, maker) as root:
        yield root / "src"
