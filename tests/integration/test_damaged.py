# SPDX-License-Identifier: LGPL-2.1-or-later
"""Stores with one field wrong: vfsck names it, and neither the daemon nor a tool crashes or shows anything false."""
import errno
import hashlib
import json
import os
import stat

import pytest
from mounts import QUICK, mounted_at
from samples import states, unpacked

# The newest whose logs are not packed: this test damages their records, not chunks.
SAMPLE = "version-4"

# The place of each field in a record, and the finding of vfsck if it is wrong.
HEAD = {"magic": 0, "type": 4, "flags": 5, "op": 6, "when": 9, "actor": 16, "body-length": 20, "payload-length": 25,
        "zero": 28, "payload-check": 33, "head-check": 41, "body": 60}


def records(mount, path):
    """(its offset, its length, its payload's length) of each."""
    lines = [json.loads(line) for line in mount.tool("vdump", "--json", path).stdout.splitlines()]
    return [(line["at"], line["total"], line.get("payload", 0)) for line in lines]


def find(mount, suffix, wanted):
    """A log, and a record of it that is not its last."""
    for path in sorted(mount.store().rglob("*" + suffix)):
        for record in records(mount, path)[:-1]:
            if wanted(record):
                return path, record
    raise AssertionError(f"no such {suffix}")


def flip(path, offset):
    data = bytearray(path.read_bytes())
    data[offset] ^= 0x5a
    with open(path, "r+b") as stream:  # the inode is the same
        stream.write(data)


def in_record(suffix, where):
    def damage(mount):
        path, (at, total, payload) = find(mount, suffix, lambda record: record[2] > 0 or (suffix == ".cat" and record[0] > 0))
        places = dict(HEAD, payload=total - 8 - (payload + 7) // 8 * 8)
        places.update({"trailer-length": total - 8, "trailer-magic": total - 4})
        flip(path, at + places[where])
    return damage


def in_file(name, offset):
    return lambda mount: flip(mount.store() / name, offset)


def in_timeline(name, offset):
    """Of this version: the sample's own timeline is made anew, whatever is in it."""
    def damage(mount):
        mount.start()
        mount.tool("vlog", mount.path)
        mount.stop()
        flip(mount.store() / "timeline" / name, offset)
    return damage


def taken_slot(mount):
    """As if a change had been under way, of a log that does not exist."""
    flip(mount.store() / "inflight", 64 + 5 * 64)
    flip(mount.store() / "inflight", 64 + 5 * 64 + 15)


def cut(mount):
    path, _record = find(mount, ".undo", lambda record: True)
    os.truncate(path, path.stat().st_size - 3)


DAMAGES = {f"undo-{field}": (in_record(".undo", field), "damaged-record") for field in HEAD}
DAMAGES.update({f"catalog-{field}": (in_record(".cat", field), "damaged-record") for field in HEAD})
DAMAGES.update({
    "undo-payload": (in_record(".undo", "payload"), "damaged-payload"),
    "undo-trailer-length": (in_record(".undo", "trailer-length"), "damaged-trailer"),
    "undo-trailer-magic": (in_record(".undo", "trailer-magic"), "damaged-trailer"),
    "catalog-trailer-magic": (in_record(".cat", "trailer-magic"), "damaged-trailer"),
    "undo-cut": (cut, "torn-tail"),
    "actor": (in_file("actors", 50), "damaged-record"),
    "actor-when": (in_file("actors", 10), "damaged-record"),
    "times-entry": (in_timeline("times", 45), "damaged-timeline"),
    "times-head": (in_timeline("times", 3), "damaged-timeline"),
    "moves-head": (in_timeline("moves", 3), "damaged-timeline"),
    "inflight-magic": (in_file("inflight", 3), "damaged-inflight"),
    "inflight-slots": (in_file("inflight", 8), "damaged-inflight"),
    "inflight-slot": (taken_slot, "damaged-inflight"),
    "header-magic": (in_file("header", 0), "damaged-header"),
    "header-uuid": (in_file("header", 20), "damaged-header"),
    "header-root": (in_file("header", 34), "damaged-header"),
    "header-birth": (in_file("header", 42), "damaged-header"),
    "header-check": (in_file("header", 60), "damaged-header"),
})
CHOSEN = sorted(DAMAGES)[::4 if QUICK else 1 if os.environ.get("WAYBACK_ALL") else 2]


def count_refused_and_check_the_rest(top, expected):
    """Every path is as it was, or is refused; returns how many are refused."""
    refused = 0
    for path, entry in expected.items():
        try:
            status = os.lstat(top / path)
            assert (stat.S_IMODE(status.st_mode), status.st_uid, status.st_mtime_ns) == \
                (entry.mode, entry.uid, entry.mtime), path
            if entry.kind == "-":
                content = hashlib.blake2b((top / path).read_bytes(), digest_size=16).hexdigest()
                assert (status.st_size, content) == (entry.size, entry.content), path
            elif entry.kind == "l":
                assert os.readlink(top / path) == entry.content
            elif entry.kind == "d":
                below = path + "/" if path else ""
                names = {other[len(below):] for other in expected if other.startswith(below) and other != path}
                assert {n for n in names if "/" not in n} == set(os.listdir(top / path)), path
        except OSError as error:
            assert error.errno == errno.EIO, (path, error)
            refused += 1
    return refused


def use(mount):
    """Reads everything and changes something; nothing crashes, and nothing is false."""
    known = list(states(SAMPLE))
    refused = sum(count_refused_and_check_the_rest(mount.at(when), state) for when, state in known)
    assert count_refused_and_check_the_rest(mount.path, known[-1][1]) == 0
    for tool in (("vstat", mount.path / "dir/file2"), ("vlog", mount.path), ("vfind", mount.path),
                 ("vfsck", mount.source), ("vdump", *mount.logs())):
        assert 0 <= mount.run_tool(*tool).returncode <= 8, tool
    (mount.path / "dir/file2").write_text("changed", encoding="ascii")
    (mount.path / "up/script").rename(mount.path / "dir/script")
    for when, state in known:
        count_refused_and_check_the_rest(mount.at(when), state)
    return refused


@pytest.mark.parametrize("name", CHOSEN)
def test_one_field(maker, name):
    damage, code = DAMAGES[name]
    with unpacked(SAMPLE, maker) as source:
        mount = maker.mount(source=source, start=False)
        mount.expect(".")
        damage(mount)
        result = mount.run_tool("vfsck", "--json", source, merge=False)
        found = [f for f in json.loads(result.stdout)["findings"] if f["state"] != "note"]
        assert (result.returncode, [f["code"] for f in found]) == (4, [code])

        if not name.startswith("header"):
            mount.start()
            refused = use(mount)
            if name.startswith("undo") and code in ("damaged-record", "damaged-payload"):
                assert refused > 0  # the damage was met, and reported
            mount.stop()
        else:
            assert mount.refused()[0] != 0
        result = mount.run_tool("vfsck", "-y", source)
        assert result.returncode in (0, 1, 4)
        mount.start()
        assert mounted_at(mount.path)
        if name.startswith("header"):
            use(mount)
        else:
            known = list(states(SAMPLE))
            for when, state in known:
                count_refused_and_check_the_rest(mount.at(when), state)
        mount.stop()
