# SPDX-License-Identifier: LGPL-2.1-or-later
"""Stores that released versions wrote are read exactly, and written on."""
import errno
import os
import struct

import pytest
from copies import Copy
from mounts import epoch
from samples import NAMES, forgotten, states, stream, unpacked
from treestate import differences, state_of


@pytest.fixture(name="sample", params=NAMES)
def fixture_sample(request, maker):
    """The name of a sample, and its tree."""
    with unpacked(request.param, maker) as source:
        yield request.param, source


def version(source):
    return struct.unpack_from("<I", (source / ".wayback/header").read_bytes(), 8)[0]


def test_there_is_one_of_each_released_version():
    assert {f"version-{number}" for number in range(1, 13)} <= set(NAMES)


def check_forgotten(mount, name):
    for when in forgotten(name):
        with pytest.raises(OSError) as caught:
            os.listdir(mount.at(when))
        assert caught.value.errno == errno.EIO


def test_a_store_of_a_released_version(sample, maker):
    name, source = sample
    known = list(states(name))
    number = int(name.rsplit("-", maxsplit=1)[1])
    assert version(source) == number

    # read only: nothing is raised
    mount = maker.mount(f"at={epoch(known[1][0])}", source=source)
    assert differences(known[1][1], state_of(mount.path)) == []
    mount.tool("vfsck", source)
    mount.stop()
    mount.tool("vfsck", source)
    assert version(source) == number

    mount = maker.mount(source=source)
    for when, state in known:
        assert differences(state, state_of(mount.at(when))) == []
    mount.expect("was forgotten")
    # A sample is as old as it is: from a quarter of `keep` on, the clock is doubted.
    mount.expect("the clock is .* ahead of the last record")
    check_forgotten(mount, name)
    assert differences(known[-1][1], state_of(mount.path)) == []
    (mount.path / "up/script").write_text("changed", encoding="ascii")
    (mount.path / "dir/file2").unlink()
    (mount.path / "up").rename(mount.path / "dir/down")
    (mount.path / "more").write_text("new", encoding="ascii")
    mount.remount()
    for when, state in known:
        assert differences(state, state_of(mount.at(when))) == []
    check_forgotten(mount, name)
    mount.tool("vfsck", source)
    mount.stop()
    mount.tool("vfsck", source)
    assert version(source) >= number


def test_changes_behind_the_mount_long_after_the_records(sample, maker):
    """Of the same size: only the times show it."""
    _name, source = sample
    mount = maker.mount(source=source, start=False)
    assert "external" not in mount.tool("vfsck", "--verbose", source).stdout
    with open(source / "dir/file2", "r+b") as stream:
        stream.write(b"SAVED")
    result = mount.tool("vfsck", "--verbose", source).stdout
    assert [line.split(": ")[:3] for line in result.splitlines() if "external" in line] == \
        [["note", "external-content", "dir/file2"]]


def test_a_stream_of_a_released_version(maker):
    """Of version 1; the current one is in test_send. The copy has every moment of the sample's history, and
    continues."""
    text, store, last = stream("version-1")
    assert struct.unpack_from("<I", text, 32)[0] == 1
    copy = Copy(maker, maker.mount("allow_other"))
    result = copy.receive(text)
    assert result.returncode == 0 and not result.stderr, result.stderr
    copy.expected = [*states(store), last]
    copy.check()
    with copy.used() as mount:
        other = Copy(maker, mount)
        other.expected = copy.expected
        other.note_state()
        other.follow()
    other.check()
