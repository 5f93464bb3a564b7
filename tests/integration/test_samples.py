# SPDX-License-Identifier: LGPL-2.1-or-later
"""Stores as released versions wrote them are read exactly, and written on."""
import json
import lzma
import struct
from pathlib import Path

import pytest
from mounts import epoch, run
from treestate import Entry, differences, state_of

ASSETS = Path(__file__).resolve().parents[1] / "assets/stores"
SAMPLES = sorted(path.stem for path in ASSETS.glob("*.json"))


def states(name):
    """(moment, what the tree was) of each."""
    for one in json.loads((ASSETS / f"{name}.json").read_text(encoding="utf-8")):
        yield one["when"], {
            path: Entry(*fields[:9], tuple((key, bytes.fromhex(value)) for key, value in fields[9]), *fields[10:])
            for path, fields in one["state"].items()}


@pytest.fixture(name="sample", params=SAMPLES)
def fixture_sample(request, maker):
    """The name of a sample, and its tree in a file system of its own, so that inodes are those it was made with."""
    image, root = maker.scratch / "image", maker.scratch / "root"
    image.write_bytes(lzma.decompress((ASSETS / f"{request.param}.img.xz").read_bytes()))
    root.mkdir()
    run("mount", "-o", "loop", image, root)
    yield request.param, root / "src"
    run("umount", "-l", root)


def version(source):
    return struct.unpack_from("<I", (source / ".wayback/header").read_bytes(), 8)[0]


def test_there_is_one_of_each_released_version():
    assert {f"version-{number}" for number in (1, 2)} <= set(SAMPLES)


def test_a_store_of_a_released_version(sample, maker):
    name, source = sample
    told = list(states(name))
    number = int(name.rsplit("-", maxsplit=1)[1])
    assert version(source) == number

    # read only: nothing is raised
    mount = maker.mount(f"at={epoch(told[1][0])}", source=source)
    assert differences(told[1][1], state_of(mount.path)) == []
    mount.tool("vfsck", source)
    mount.stop()
    mount.tool("vfsck", source)
    assert version(source) == number

    mount = maker.mount(source=source)
    for when, state in told:
        assert differences(state, state_of(mount.at(when))) == []
    assert differences(told[-1][1], state_of(mount.path)) == []
    (mount.path / "up/script").write_text("changed", encoding="ascii")
    (mount.path / "dir/file2").unlink()
    (mount.path / "up").rename(mount.path / "dir/down")
    (mount.path / "more").write_text("new", encoding="ascii")
    mount.remount()
    for when, state in told:
        assert differences(state, state_of(mount.at(when))) == []
    mount.tool("vfsck", source)
    mount.stop()
    mount.tool("vfsck", source)
    assert version(source) >= number


def test_what_changed_behind_the_mount_long_after_its_records(sample, maker):
    """Of the same size: only the times tell."""
    _name, source = sample
    mount = maker.mount(source=source, start=False)
    assert "external" not in mount.tool("vfsck", "--verbose", source).stdout
    with open(source / "dir/file2", "r+b") as stream:
        stream.write(b"SAVED")
    result = mount.tool("vfsck", "--verbose", source).stdout
    assert [line.split(": ")[:3] for line in result.splitlines() if "external" in line] == \
        [["note", "external-content", "dir/file2"]]
