# SPDX-License-Identifier: LGPL-2.1-or-later
"""Lists show when nothing was recorded: a list without such a line would mean that nothing happened."""
import json
import os

from mounts import moment, nanoseconds
from test_left_out import in_force, rules, write_rules


def changes(mount, path, *options):
    lines = mount.tool("vlog", "--json", *options, path, merge=False).stdout.splitlines()
    return [json.loads(line) for line in lines]


def gaps(mount, path):
    return [change for change in changes(mount, path) if change["op"] == "gap"]


def test_paths_that_are_left_out(maker):
    mount = rules(maker, ('"*.tmp" "cache/"', "none"))
    mount.expect(".")
    top = mount.path
    (top / "cache").mkdir()
    (top / "kept").write_bytes(b"kept")
    before = moment()
    (top / "x.tmp").write_bytes(b"one")
    (top / "cache" / "f").write_bytes(b"one")
    after = moment()
    for _ in range(2):
        found = gaps(mount, top)
        assert {"x.tmp", "cache"} <= {gap["path"] for gap in found}
        for gap in found:
            assert gap["open"] and gap["detail"] == "not recorded by wayback.conf"
            assert before < nanoseconds(gap["since"]) < nanoseconds(gap) < after
        assert gaps(mount, top / "x.tmp")[0]["path"] == "." and gaps(mount, top / "kept") == []
        text = mount.tool("vlog", top).stdout
        assert text.count("nothing was recorded\n") == 1
        assert text.count(", up to now (not recorded by wayback.conf)") == len(found)
        mount.remount()
    write_rules(mount)
    in_force(mount, top / "x.tmp", True)
    ended = gaps(mount, top / "x.tmp")
    assert len(ended) == 1 and not ended[0]["open"] and \
        before < nanoseconds(ended[0]["since"]) < after < nanoseconds(ended[0])
    assert "gap since" in mount.tool("vstat", top / "x.tmp").stdout


def test_a_lost_log(maker):
    mount = maker.mount("allow_other")
    mount.expect(".")
    path = mount.path / "file"
    path.write_bytes(b"one")
    path.write_bytes(b"two!")
    last = nanoseconds(changes(mount, path)[0])
    mount.stop()
    next(mount.store().glob("objects/*/*.undo")).unlink()
    mount.start()
    path.write_bytes(b"three")
    found = gaps(mount, path)
    assert len(found) == 1 and found[0]["detail"] == "records missing or damaged" and nanoseconds(found[0]) > last
    assert "(records missing or damaged)" in mount.tool("vlog", path).stdout
    listed = json.loads(mount.tool("vstat", "--json", path, merge=False).stdout)["versions"]
    assert [(v["since"], v["detail"]) for v in listed if v["op"] == "gap"] == [(None, "records missing or damaged")]
    assert "gap since the beginning (records missing or damaged)" in mount.tool("vstat", path).stdout


def test_a_timeline_without_gaps_is_made_anew(maker):
    """As one of an older version is."""
    mount = rules(maker, ('"*.tmp"', "none"))
    (mount.path / "x.tmp").write_bytes(b"one")
    assert len(gaps(mount, mount.path)) == 1
    mount.stop()
    times = mount.store() / "timeline" / "times"
    with open(times, "r+b") as stream:
        stream.write(b"WBTIMES\n")
    mount.start()
    assert len(gaps(mount, mount.path)) == 1
    assert os.path.getsize(times) > 40


def test_changes_behind_the_mount(maker):
    mount = maker.mount("allow_other")
    mount.expect(".")
    path = mount.path / "file"
    path.write_bytes(b"one")
    path.write_bytes(b"two!")
    mount.stop()
    (mount.source / "file").write_bytes(b"from outside")
    mount.run_tool("vfsck", "-p", "--external", mount.source)
    mount.start()
    assert [gap["detail"] for gap in gaps(mount, path)] == ["changed behind the mount"]
    assert "(changed behind the mount)" in mount.tool("vstat", path).stdout
