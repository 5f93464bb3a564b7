# SPDX-License-Identifier: LGPL-2.1-or-later
"""Times before the history, and numbers that are not times: refused by every tool, and nothing is changed."""
import pytest

from mounts import epoch, moment
from treestate import differences, state_of


@pytest.fixture(name="young")
def fixture_young(maker):
    """A tree that existed before the mount: a/old, a/changed; and later files."""
    source = maker.tree()
    (source / "a").mkdir()
    (source / "a" / "old").write_bytes(b"old")
    (source / "a" / "changed").write_bytes(b"one")
    before = moment()
    mount = maker.mount(source=source)
    (mount.path / "a" / "changed").write_bytes(b"two")
    (mount.path / "b").write_bytes(b"new")
    return mount, before


COMMANDS = [("vrevert", "a", "-t"), ("vrevert", "-n", "a", "-t"), ("vrevert", "b", "-t"), ("vrevert", "a/old", "a/changed", "-t"),
            ("vextract", "-o", "/dev/null/x", "a/old", "-t"), ("vdiff", "a"), ("vrm", "-y", "-r", "a", "--before"),
            ("vrm", "-n", "a/changed", "--before"), ("vfind", "./", "--until")]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_before_the_history(young, command):
    mount, before = young
    state = state_of(mount.path)
    for text in (epoch(before), "2d"):
        result = mount.tool(*command, text, status=1, cwd=mount.path)
        assert f"{text} (" in result.stdout and "is before the history begins; it begins at 20" in result.stdout
        assert differences(state, state_of(mount.path)) == []
    # The moment in the message is one that can be reverted to.
    known = result.stdout.rsplit("give ", 1)[1].split(" ")[0]
    if command[:2] == ("vrevert", "a"):
        mount.tool("vrevert", "a", "-t", known, cwd=mount.path)
        assert (mount.path / "a" / "old").read_bytes() == b"old" and (mount.path / "a" / "changed").read_bytes() == b"one"


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_short_number_is_not_a_time(young, command):
    mount, _ = young
    state = state_of(mount.path)
    for text, words in (("2340", "did you mean 23:40?"), ("20261125", "did you mean 2026-11-25?"), ("@2340", "did you mean 23:40?"),
                        ("0", ""), ("99999999", ""), ("2360", ""), ("20261325", "")):
        result = mount.tool(*command, text, status=2, cwd=mount.path)
        assert f"'{text}' is not a time" in result.stdout and words in result.stdout and "14:03" in result.stdout
        assert bool(words) == ("did you mean" in result.stdout)
    assert differences(state, state_of(mount.path)) == []


def test_a_path_with_a_short_number_does_not_exist(young):
    mount, _ = young
    for name in ("b@2340", "b@20261125", "a@0"):
        assert not (mount.path / name).exists()
