# SPDX-License-Identifier: LGPL-2.1-or-later
"""vfind lists unknown times beside names, and vdf counts files with such times."""
import json

from mounts import epoch, moment, nanoseconds
from test_left_out import in_force, rules, write_rules


def rows(mount, path, *options):
    result = mount.run_tool("vfind", "--json", *options, path, merge=False)
    return [json.loads(line) for line in result.stdout.splitlines()]


def gaps(mount, path, *options):
    return [row for row in rows(mount, path, *options) if row.get("status") == "gap"]


def counted(mount, path):
    answer = json.loads(mount.tool("vdf", "--json", path).stdout)
    return answer["gaps"], answer["gaps_since"], answer["gaps_until"]


def test_a_directory_that_is_left_out(maker):
    mount = rules(maker, ('"cache/"', "none"))
    mount.expect(".")
    (mount.path / "cache").mkdir()
    (mount.path / "kept").mkdir()
    (mount.path / "kept/f").write_bytes(b"one")
    assert gaps(mount, mount.path / "kept/") == [] and counted(mount, mount.path / "kept")[0] == 0
    before = moment()
    (mount.path / "cache" / "f").write_bytes(b"one")
    after = moment()
    found = gaps(mount, f"{mount.path}/")
    assert [(gap["path"].rstrip("/").rsplit("/")[-1], gap["detail"]) for gap in found] == [
        ("cache", "not recorded by wayback.conf")]
    assert before < nanoseconds(found[0]["first"]) < after and found[0]["last"] is None
    text = mount.run_tool("vfind", f"{mount.path}/").stdout
    assert "cache/: no history of that time (not recorded by wayback.conf)" in text and " now " in text
    assert b"no history" not in mount.run_tool("vfind", "-0", f"{mount.path}/").stdout.encode()
    number, since, until = counted(mount, mount.path)
    changes = [json.loads(line) for line in mount.tool("vlog", "--json", mount.path, merge=False).stdout.splitlines()]
    assert number == len({change["object"] for change in changes if change["op"] == "gap"}) >= 1
    assert before < nanoseconds(since) <= nanoseconds(until) < after
    assert f"Gaps: {number} files and directories have gaps" in mount.tool("vdf", mount.path).stdout
    write_rules(mount)
    in_force(mount, mount.path / "cache/f", True)
    ended = gaps(mount, f"{mount.path}/")
    assert len(ended) == 1 and nanoseconds(ended[0]["last"]) > after
    assert gaps(mount, f"{mount.path}/", "--until", epoch(before)) == []
    assert [gap["first"] for gap in gaps(mount, f"{mount.path}/", "--since", epoch(before))] == [found[0]["first"]]
    assert counted(mount, mount.path)[0] == number


def test_a_store_without_gaps_has_none(maker):
    mount = maker.mount("allow_other")
    (mount.path / "f").write_bytes(b"one")
    (mount.path / "f").write_bytes(b"two!")
    (mount.path / "f").unlink()
    assert gaps(mount, f"{mount.path}/") == [] and counted(mount, mount.path) == (0, None, None)
    assert "Gaps" not in mount.tool("vdf", mount.path).stdout
