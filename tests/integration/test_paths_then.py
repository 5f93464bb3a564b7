# SPDX-License-Identifier: LGPL-2.1-or-later
"""DIR/NAME@TIME if DIR is another directory by now: removed and made again, moved away, moved here."""
import errno
import json
import os

import pytest

from mounts import SECOND, as_user, epoch, moment, nanoseconds
from test_past import refused, then


def remade(mount):
    """d/f and d/sub/g in a directory that was removed and made again: the moment of each content."""
    top = mount.path / "d"
    times = {}
    (top / "sub").mkdir(parents=True)
    for text in (b"one", b"two"):
        (top / "f").write_bytes(text)
        (top / "sub" / "g").write_bytes(text + b" below")
        times[text] = moment()
    (top / "f").unlink()
    times["without"] = moment()
    (top / "sub" / "g").unlink()
    (top / "sub").rmdir()
    top.rmdir()
    times["gone"] = moment()
    (top / "sub").mkdir(parents=True)
    times["empty"] = moment()
    (top / "f").write_bytes(b"three")
    times[b"three"] = moment()
    return top, times


def check_remade(mount, top, times):
    for text in (b"one", b"two"):
        assert then(top / "f", times[text]).read_bytes() == text
        assert then(top / "sub" / "g", times[text]).read_bytes() == text + b" below"
        assert sorted(os.listdir(then(top / "sub", times[text]))) == ["g"]
        assert sorted(os.listdir(top / f"@{epoch(times[text])}")) == ["f", "sub"]
        assert (top / "sub" / f"@{epoch(times[text])}" / "g").read_bytes() == text + b" below"
    for name in ("without", "gone", "empty"):
        refused(errno.ENOENT, then(top / "f", times[name]).read_bytes)
    refused(errno.ENOENT, then(top / "sub", times["gone"]).stat)
    refused(errno.ENOENT, then(top / "sub" / "g", times["empty"]).read_bytes)
    assert then(top / "f", times[b"three"]).read_bytes() == b"three"


def test_a_directory_that_was_made_again(any_mount):
    top, times = remade(any_mount)
    check_remade(any_mount, top, times)
    any_mount.remount()
    check_remade(any_mount, top, times)


def test_a_directory_that_was_replaced_by_another(mount):
    """Entries of the directory itself come first; all others are looked for by the path."""
    old, new = mount.path / "old", mount.path / "d"
    new.mkdir()
    for name in ("both", "first"):
        (new / name).write_bytes(b"of the first")
    old.mkdir()
    for name in ("both", "second"):
        (old / name).write_bytes(b"of the second")
    before = moment()
    os.rename(new, mount.path / "away")
    between = moment()
    os.rename(old, new)
    assert then(new / "both", before).read_bytes() == b"of the second"
    assert then(new / "second", before).read_bytes() == b"of the second"
    assert then(new / "first", before).read_bytes() == b"of the first"
    assert then(mount.path / "d", before).joinpath("both").read_bytes() == b"of the first"
    refused(errno.ENOENT, then(new / "first", between).read_bytes)
    assert then(mount.path / "away" / "first", before).read_bytes() == b"of the first"
    refused(errno.ENOENT, then(mount.path / "away" / "second", before).read_bytes)


def test_a_path_that_led_through_a_file(mount):
    (mount.path / "d").write_bytes(b"a file")
    before = moment()
    (mount.path / "d").unlink()
    (mount.path / "d" / "sub").mkdir(parents=True)
    refused(errno.ENOENT, then(mount.path / "d" / "f", before).read_bytes)
    refused(errno.ENOENT, then(mount.path / "d" / "sub" / "f", before).read_bytes)


def test_a_snapshot_of_the_directory_that_was_there(mount):
    top = mount.path / "d"
    top.mkdir()
    (top / "f").write_bytes(b"one")
    mount.tool("vsnap", "create", "named", top)
    other = mount.path / "other"
    other.mkdir()
    (other / "f").write_bytes(b"of another")
    moment()
    (top / "f").unlink()
    top.rmdir()
    top.mkdir()
    assert (top / "f@named").read_bytes() == b"one"
    refused(errno.ENOENT, (other / "f@named").read_bytes)
    top.rmdir()
    os.rename(other, top)
    assert (top / "f@named").read_bytes() == b"one"


def test_nested_moments(mount):
    top, times = remade(mount)
    last = then(top, times["empty"])
    assert then(last / "f", times[b"two"]).read_bytes() == b"two"
    assert then(last / "f", times[b"three"]).read_bytes() == b"three"


def test_the_tools(mount, tmp_path):
    top, times = remade(mount)
    at = epoch(times[b"two"])
    assert mount.tool("vextract", top / "f", "--time", at, "-o", "-").stdout == "two"
    assert mount.tool("vextract", f"{top}/sub/g@{at}", "-o", "-").stdout == "two below"
    mount.tool("vextract", top / "sub", "--time", at, "-o", tmp_path / "out")
    assert (tmp_path / "out" / "g").read_bytes() == b"two below"
    assert "two below" in mount.tool("vdiff", top / "sub", at).stdout
    assert "-two" in mount.tool("vdiff", top / "f", at).stdout
    mount.tool("vrevert", top / "f", "--time", at)
    assert (top / "f").read_bytes() == b"two"
    mount.tool("vrevert", top / "sub", "--time", at)
    assert (top / "sub" / "g").read_bytes() == b"two below"
    mount.tool("vrevert", top / "f", "--time", epoch(times[b"one"]))
    assert (top / "f").read_bytes() == b"one"


def versions(mount, path, *arguments):
    return json.loads(mount.tool("vstat", "--json", *arguments, path, merge=False).stdout)["versions"]


def shown_by_count(path, count):
    """The versions of PATH~N, newest first; None: it did not exist."""
    shown = []
    for change in range(1, count + 1):
        try:
            shown.append(path.with_name(f"{path.name}@~{change}").read_bytes())
        except FileNotFoundError:
            shown.append(None)
    return shown


@pytest.mark.parametrize("remount", (False, True), ids=("at once", "later"))
def test_lists_follow_the_name(mount, remount):
    top, times = remade(mount)
    if remount:
        mount.remount()
    listed = versions(mount, top / "f", "--operations")
    assert [v["op"] for v in listed] == ["write", "create", "unlink", "write", "truncate", "write", "create"]
    whens = [nanoseconds(v) for v in listed]
    assert whens == sorted(whens, reverse=True) and len(set(whens)) == len(whens)
    assert whens[1] > times["gone"] > whens[2] > times[b"two"] > whens[3] > times[b"one"]
    assert shown_by_count(top / "f", 5) == [b"two", b"one", None, None, None]
    assert [v["op"] for v in versions(mount, top / "sub" / "g", "--operations")] == \
        ["unlink", "write", "truncate", "write", "create"]
    saves = versions(mount, top / "f")
    assert [v["op"] for v in saves] == ["write", "write", "create"]
    # The state before each version is the one the path showed just before it.
    for change, when in enumerate((nanoseconds(v["began"]) for v in saves), 1):
        try:
            expected = then(top / "f", when - 1).read_bytes()
        except FileNotFoundError:
            expected = None
        assert shown_by_count(top / "f", change)[-1] == expected


def test_lists_of_directories_follow_the_name(mount):
    top, _ = remade(mount)
    names = [(v["op"], v.get("name")) for v in versions(mount, top)]
    assert ("unlink", "f") in names and ("rmdir", "sub") in names
    assert names.count(("mkdir", "sub")) == 2


def test_lists_end_where_the_directory_left_the_path(mount):
    """Changes of a directory after it had moved away are not those of this name."""
    top, away = mount.path / "d", mount.path / "away"
    top.mkdir()
    (top / "f").write_bytes(b"here")
    os.rename(top, away)
    (away / "f").write_bytes(b"elsewhere")
    top.mkdir()
    (top / "f").write_bytes(b"again")
    moment()
    (away / "f").unlink()
    assert shown_by_count(top / "f", 3) == [None, None, None]
    assert [v["op"] for v in versions(mount, top / "f", "--operations")] == ["write", "create", "write", "create"]
    assert [v["op"] for v in versions(mount, top / "f")] == ["create", "create"]


def test_nobody_gains_access_by_it(maker):
    """Directories that are found by the path are open to the users to whom they were open, then and now."""
    mount = maker.mount("allow_other")
    base = mount.path / "base"
    base.mkdir()
    cases = {}
    for name, then_mode, now_mode in (("open", 0o755, 0o755), ("was-closed", 0o700, 0o755), ("is-closed", 0o755, 0o700)):
        top = base / name
        (top / "sub").mkdir(parents=True)
        top.chmod(then_mode)
        (top / "f").write_bytes(b"secret")
        (top / "sub" / "f").write_bytes(b"secret")
        when = moment()
        os.rename(top, mount.path / f"moved-{name}")
        (mount.path / f"moved-{name}").chmod(now_mode)
        (top / "sub").mkdir(parents=True)
        cases[name] = top, when
    mount.remount()
    for name, (top, when) in cases.items():
        for path in (then(top / "f", when), then(top / "sub" / "f", when), top / f"@{epoch(when)}" / "f"):
            assert path.read_bytes() == b"secret"
            if name == "open":
                assert as_user(path.read_bytes, *SECOND) == b"secret"
                as_user(path.stat, *SECOND)
                continue
            for access in (path.read_bytes, path.stat):
                with pytest.raises((PermissionError, FileNotFoundError)):
                    as_user(access, *SECOND)
            if path.name.startswith("f@"):
                with pytest.raises(FileNotFoundError):
                    as_user(path.stat, *SECOND)
        result = mount.run_tool("vextract", f"{top}/f@{epoch(when)}", "-o", "-", user=SECOND)
        assert ("secret" in result.stdout) == (name == "open")
        listed = mount.run_tool("vstat", "--json", top / "f", user=SECOND, merge=False)
        if name != "open":
            assert all(v.get("withheld") for v in json.loads(listed.stdout)["versions"] if nanoseconds(v) < when)
