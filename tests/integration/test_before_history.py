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


@pytest.mark.parametrize("command", [("vlog", "--until"), ("vstat", "a/changed", "--until"), ("vsnap", "diff")], ids=" ".join)
def test_lists_before_the_history(young, command):
    """Nothing can be there: that is an error, and no empty list."""
    mount, before = young
    text = mount.tool(*command, epoch(before), status=1, cwd=mount.path).stdout
    assert "is before the history begins; it begins at 20" in text and "or a later time" in text


@pytest.mark.parametrize("command", [*COMMANDS[:-1], ("vfind", "./", "--since"), ("vlog", "--since"), ("vsnap", "diff"),
                                     ("vstat", "a/changed", "--since"), ("wayback", "show", "a/old", "-t")], ids=" ".join)
def test_in_the_future(young, command):
    mount, _ = young
    state = state_of(mount.path)
    text = mount.tool(*command, "2090-01-01", status=2, cwd=mount.path).stdout
    assert "'2090-01-01' is in the future (2090-01-01 00:00:00" in text and "the latest time to give is now" in text
    assert differences(state, state_of(mount.path)) == []


@pytest.fixture(name="holed")
def fixture_holed(mount):
    """d/f and d changed while nothing was recorded; moments before, amid and after."""
    root = mount.path
    (root / "d").mkdir()
    (root / "d" / "f").write_bytes(b"one")
    times = [moment()]
    (root / "d" / "f").write_bytes(b"two")
    mount.stop()
    (mount.source / "d" / "f").write_bytes(b"three")
    (mount.source / "d" / "new").write_bytes(b"new")
    times.append(moment())
    mount.expect("changed while Wayback did not record")
    mount.start()
    (root / "d" / "f").write_bytes(b"four")
    return mount, times


@pytest.mark.parametrize("command", [("vrevert", "d", "-t"), ("vrevert", "-n", "d/f", "-t"), ("vextract", "d", "-o", "/dev/null/x", "-t"),
                                     ("wayback", "show", "d/f", "-t"), ("vdiff", "d"), ("vdiff", "d/f"),
                                     ("vrevert", ".", "-t")], ids=" ".join)
def test_in_a_gap(holed, command):
    """The message has the nearest moment that can be used, which is the end of the gap; nothing is removed or changed."""
    mount, times = holed
    state = state_of(mount.path)
    for when in times:
        text = mount.tool(*command, epoch(when), status=1, cwd=mount.path).stdout
        assert "is not known: the history has a gap from 20" in text and "or a later time" in text
        assert [line for line in differences(state, state_of(mount.path)) if "time" not in line] == []
    known = text.rsplit("give ", 1)[1].split(" ")[0]
    mount.tool("vrevert", "d", "-t", known, cwd=mount.path)
    assert (mount.path / "d" / "f").read_bytes() == b"three" and (mount.path / "d" / "new").exists()


def test_a_path_with_a_time_in_a_gap(holed):
    mount, times = holed
    for when in times:
        text = mount.tool("wayback", "show", f"d/f@{epoch(when)}", status=1, cwd=mount.path).stdout
        assert "d/f: the state at" in text and "the history has a gap from 20" in text
        text = mount.tool("vsnap", "diff", epoch(when), "d", status=1, cwd=mount.path).stdout
        assert "d: the state at" in text and "the history has a gap from 20" in text
