# SPDX-License-Identifier: LGPL-2.1-or-later
"""vfind --content and vstat --containing: the versions of files that have a text."""
import json
import os
import random
import shlex
import shutil
import signal
import subprocess

import pytest
from mounts import NOBODY, QUICK, moment, nanoseconds
from preload import COUNTING, preloaded

TEXT = "a needle"


def rows_of(text):
    """Of the documents of vfind, those that are no errors; their times in ns."""
    rows = [row for row in map(json.loads, text.splitlines()) if "path" in row]
    for row in rows:
        row.update({name: nanoseconds(row[name]) for name in ("first", "last") if name in row})
    return rows


def found(mount, *arguments, text=TEXT, status=0, **options):
    """path below the mount -> its row, of vfind."""
    result = mount.tool("vfind", "--json", "--content", text, *arguments, merge=False, status=status, cwd=mount.path,
                        **options)
    rows = rows_of(result.stdout)
    assert len({row["path"] for row in rows}) == len(rows)
    return {row["path"]: row for row in rows}


def listed(mount, path, *arguments, text=TEXT, status=0):
    """What vstat says of the file."""
    result = mount.tool("vstat", "--json", "--containing", text, *arguments, mount.path / path, merge=False,
                        status=status)
    return json.loads(result.stdout)


def changes(mount, path):
    """number -> change"""
    result = mount.tool("vstat", "--json", mount.path / path, merge=False)
    return {version["change"]: version for version in json.loads(result.stdout)["versions"]}


def write(path, *states):
    for state in states:
        path.write_bytes(state if isinstance(state, bytes) else state.encode())


def check(mount, row, first, last, now=False):
    """The states from the first to the last are named, by time and number, and can be shown."""
    numbered = changes(mount, row["path"])
    for name, expected in (("first", first), ("last", last)):
        assert row[name] == nanoseconds(numbered[row[name + "_change"]]), row
        assert mount.at(row[name], row["path"]).read_bytes() == expected.encode()
    assert row["contains"] == now and ("show" in row) == (not now)
    if not now:
        assert mount.tool(*shlex.split(row["show"]), cwd=mount.path).stdout == last


def test_a_file_that_has_it_now(mount):
    write(mount.path / "now", "none", "has a needle", "a needle, too")
    write(mount.path / "never", "none", "a needl", "e")
    rows = found(mount)
    assert set(rows) == {"now"} and rows["now"]["status"] == "present" and rows["now"]["size"] == 13
    check(mount, rows["now"], "has a needle", "a needle, too", now=True)
    assert not found(mount, text="A NEEDLE") and not found(mount, text="a n.edle")


def test_a_text_that_was_overwritten(mount):
    path = mount.path / "over"
    write(path, "none", "1 a needle", "nothing", "2 a needle")
    os.chmod(path, 0o600)
    write(path, "end")
    row = found(mount)["over"]
    assert row["status"] == "present"
    check(mount, row, "1 a needle", "2 a needle")
    # The change of the mode is no version.
    assert changes(mount, "over")[row["last_change"]]["op"] == "write"
    mount.tool(*shlex.split(row["restore"]), cwd=mount.path)
    assert path.read_bytes() == b"2 a needle"
    write(path, "end")
    lines = mount.tool("vfind", "--all", "--content", TEXT, cwd=mount.path).stdout.splitlines()
    assert [line[:2] for line in lines[1:] if not line.startswith("    ")] == ["O ", "o ", "o "], lines


def test_deleted_and_moved_files(mount):
    top = mount.path
    (top / "dir").mkdir()
    write(top / "dir/gone", "a needle", "x a needle")
    os.unlink(top / "dir/gone")
    write(top / "dir/below", "a needle")
    mount.tool("rm", "-r", top / "dir")
    (top / "dir").mkdir()
    write(top / "dir/below", "new")
    write(top / "old", "a needle")
    os.rename(top / "old", top / "new")
    write(top / "saved", "a needle")
    write(top / ".tmp", "better")
    os.rename(top / ".tmp", top / "saved")
    rows = found(mount)
    assert {path: row["status"] for path, row in rows.items()} == {
        "dir/gone": "deleted", "dir/below": "present", "old": "moved", "new": "present", "saved": "present"}
    check(mount, rows["dir/gone"], "a needle", "x a needle")
    check(mount, rows["new"], "a needle", "a needle", now=True)
    check(mount, rows["old"], "a needle", "a needle")
    check(mount, rows["saved"], "a needle", "a needle")
    for row in rows.values():
        assert ("restore" in row) == (not row["contains"] and row["status"] != "moved")
    shown = mount.tool(*shlex.split(rows["dir/below"]["show"]), cwd=top).stdout
    assert shown == "a needle"
    mount.tool(*shlex.split(rows["dir/gone"]["restore"]), cwd=top)
    assert (top / "dir/gone").read_bytes() == b"x a needle"


def test_a_file_in_a_removed_directory(mount):
    top = mount.path
    for number in range(3):
        (top / "dir").mkdir()
        write(top / "dir/each", f"{number} a needle")
        write(top / f"dir/only{number}", "a needle")
        mount.tool("rm", "-r", top / "dir")
    rows = found(mount)
    assert set(rows) == {"dir/each", "dir/only0", "dir/only1", "dir/only2"}
    for path, row in rows.items():
        assert row["status"] == "deleted"
        assert mount.tool(*shlex.split(row["show"]), cwd=top).stdout == ("2 a needle" if path == "dir/each" else TEXT)
    assert rows["dir/each"]["first"] < rows["dir/only1"]["first"] < rows["dir/each"]["last"]


def test_before_the_history(maker):
    source = maker.tree()
    write(source / "unchanged", "a needle")
    write(source / "changed", "a needle")
    mount = maker.mount("allow_other", source=source)
    write(mount.path / "changed", "none")
    rows = found(mount)
    assert set(rows) == {"changed", "unchanged"}
    assert all(row["before_history"] and row["first"] == 0 and row["last_change"] is None for row in rows.values())
    assert rows["unchanged"]["contains"] and not rows["changed"]["contains"]
    assert mount.tool(*shlex.split(rows["changed"]["show"]), cwd=mount.path).stdout == "a needle"
    assert listed(mount, "changed") == {"path": str(mount.path / "changed"), "versions": [], "before": True,
                                        "unknown": 0, "first_change": None, "last_change": None, "schema": 1}
    assert listed(mount, "unchanged")["before"] is True


@pytest.mark.parametrize("block", [4096, 64 << 10, 128 << 10, 256 << 10])
def test_a_text_across_a_boundary(mount, block):
    path = mount.path / "large"
    for shift in range(len(TEXT) + 1):
        write(path, b"a" * (block - shift) + TEXT.encode() + b"a" * 300000)
        write(path, b"a" * 500000)
    versions = listed(mount, "large")["versions"]
    assert len(versions) == len(TEXT) + 1
    assert "large" in found(mount)
    with open(path, "wb") as stream:
        stream.seek(block + 1000000)
        stream.write(TEXT.encode())
        stream.truncate(block + 2000000)
    assert found(mount)["large"]["contains"]


def test_a_hole_is_not_left_out(mount):
    """Bytes before and behind it are not one text."""
    with open(mount.path / "sparse", "wb") as stream:
        stream.write(b"x" * (131072 - 5) + b"a nee")
        stream.seek(1 << 20)
        stream.write(b"dle")
    assert not found(mount)
    assert "sparse" in found(mount, text="xa nee") and "sparse" in found(mount, text="dle")


def test_bytes_that_are_not_text(mount):
    needle = b"\xff\x80\xe4needle\n\x01"
    write(mount.path / "binary", b"\0\0\xff" + needle + b"\0", b"\0")
    write(mount.path / "text", "ÿneedle")
    for locale in ("C", "C.UTF-8"):
        result = subprocess.run(["vfind", "-0", b"--content=" + needle, "./"], cwd=mount.path, check=True,
                                env=dict(mount.programs.environment(), LC_ALL=locale), stdout=subprocess.PIPE)
        assert result.stdout == b"binary\0"
        result = subprocess.run(["vstat", "--json", "--containing", needle, "binary"], cwd=mount.path, check=True,
                                env=dict(mount.programs.environment(), LC_ALL=locale), stdout=subprocess.PIPE)
        assert json.loads(result.stdout)["first_change"] == 2


def test_the_other_filters(mount):
    top = mount.path
    (top / "sub").mkdir()
    write(top / "sub/one.c", "a needle", "none")
    write(top / "two.c", "a needle")
    write(top / "three.h", "a needle")
    os.unlink(top / "three.h")
    os.symlink(TEXT, top / "link")
    (top / TEXT).mkdir()
    assert set(found(mount, "*.c", ".")) == {"sub/one.c", "two.c"}
    assert set(found(mount, "sub/*", ".")) == {"sub/one.c"}
    assert set(found(mount, "sub")) == {"sub/one.c"}
    assert set(found(mount, "--depth", "1")) == {"two.c", "three.h"}
    assert set(found(mount, "--deleted")) == {"three.h"}
    assert set(found(mount, "--present")) == {"sub/one.c", "two.c"}
    assert set(found(mount, "--type", "f,l")) == {"sub/one.c", "two.c", "three.h"}
    rows = found(mount, ".")
    after = nanoseconds(changes(mount, "sub/one.c")[1])
    assert "sub/one.c" not in found(mount, "--since", f"{after // 10**9}.{after % 10**9:09}")
    before = rows["two.c"]["first"] - 1
    assert set(found(mount, "--until", f"{before // 10**9}.{before % 10**9:09}")) == {"sub/one.c"}
    past = found(mount, f"./@{before // 10**9}.{before % 10**9:09}/")
    assert set(past) == {"sub/one.c"} and not past["sub/one.c"]["contains"]
    middle = rows["sub/one.c"]["last"]
    past = found(mount, f"./@{middle // 10**9}.{middle % 10**9:09}/")
    assert set(past) == {"sub/one.c"} and past["sub/one.c"]["contains"] and past["sub/one.c"]["last"] == middle
    result = mount.tool("vfind", "-0", "--content", TEXT, cwd=top, merge=False)
    assert result.stdout == "sub/one.c\0three.h\0two.c\0"
    for wrong in (["--content", ""], ["--content", TEXT, "--type", "d"], ["--content"]):
        assert mount.tool("vfind", *wrong, status=2, cwd=top, merge=False).stdout == ""
    assert mount.tool("vfind", "--content", "nowhere", cwd=top).stdout == ""
    assert not found(mount, text="nowhere")


def damage(mount, payload):
    """The record of this lost content no longer fits its checksum."""
    mount.stop()
    logs = [p for p in mount.logs() if p.suffix == ".undo" and payload in p.read_bytes()]
    assert len(logs) == 1
    data = logs[0].read_bytes()
    with open(logs[0], "r+b") as stream:
        stream.write(data.replace(payload, payload.swapcase()))
    mount.expect("damaged|checksum|rebuilt")
    mount.start()


def test_a_refused_version_is_not_known(mount):
    top = mount.path
    for name in ("only", "both"):
        write(top / name, "first", f"then a needle {name}", "none at all")
        os.unlink(top / name)
    write(top / "both", "here is a needle")
    assert set(found(mount)) == {"only", "both"}
    damage(mount, b"then a needle only")
    rows = found(mount, "only", ".", status=1)
    assert rows["only"]["status"] == "unknown" and rows["only"]["versions"] > 0
    result = mount.tool("vfind", "--content", TEXT, "only", ".", status=1, merge=False, cwd=top)
    assert result.stdout == "" and "vfind: only: the content of " in result.stderr and "not known" in result.stderr
    damage(mount, b"then a needle both")
    rows = found(mount, "both", ".", status=1, text="no such")
    assert rows["both"]["status"] == "unknown"
    # The last one is known, and the first one may be another.
    result = mount.tool("vfind", "--json", "--content", TEXT, "both", ".", status=1, merge=False, cwd=top)
    row, unknown = rows_of(result.stdout)
    assert row["contains"] and unknown["status"] == "unknown"
    answer = listed(mount, "both", status=1)
    assert answer["unknown"] > 0 and answer["last_change"] == 1
    contains = [version["contains"] for version in answer["versions"]]
    assert contains[0] is True and None in contains and False not in contains
    result = mount.tool("vstat", "--containing", TEXT, top / "both", status=1, merge=False)
    assert "the content is not known in version " in result.stderr


def test_a_file_that_the_caller_may_not_read(mount):
    path = mount.path / "secret"
    write(path, "a needle")
    os.chmod(path, 0o600)
    os.chmod(mount.path, 0o755)
    rows = found(mount, user=NOBODY, status=1)
    assert rows["secret"]["status"] == "unknown"
    assert found(mount)["secret"]["contains"]


def test_equal_content_is_read_once(mount, tmp_path):
    """Each file is small enough to be read by one call."""
    write(mount.path / "file", "none")
    for mode in range(0o600, 0o620):
        os.chmod(mount.path / "file", mode)
    write(mount.path / "tmp", "neither")
    os.rename(mount.path / "tmp", mount.path / "tmp-saved")
    write(mount.path / "found", "a needle", *(f"{number} a needle" for number in range(20)))
    count = tmp_path / "count"
    for name, expected in (("file", 1), ("tmp", 1), ("found", 2)):
        os.symlink(mount.path / name, tmp_path / name)
        count.write_bytes(b"")
        with preloaded(tmp_path, COUNTING, COUNT_OF=tmp_path / name, COUNT_IN=count):
            mount.tool("vfind", "--content", TEXT, "./", cwd=mount.path)
        assert count.stat().st_size == expected, name


def test_vstat_follows_the_file(mount):
    top = mount.path
    (top / "dir").mkdir()
    write(top / "dir/name", "a needle", "none", "2 a needle")
    os.rename(top / "dir/name", top / "name")
    write(top / "name", "end", "3 a needle")
    answer = listed(mount, "name")
    every = changes(mount, "name")
    sizes = [version["size_after"] for version in answer["versions"]]
    assert sizes == [10, 10, 8] and answer["unknown"] == 0
    assert [version["op"] for version in answer["versions"]] == ["write", "write", "create"]
    assert (answer["last_change"], answer["first_change"]) == (1, answer["versions"][-1]["change"])
    for version in answer["versions"]:
        assert version.pop("contains") is True and version == every[version["change"]]
    assert len(listed(mount, "name", "--limit", "2")["versions"]) == 2
    text = mount.tool("vstat", "--containing", TEXT, top / "name").stdout
    assert f"name: first: version {answer['first_change']}, " in text and "; last: version 1, " in text
    assert "no version contains the text" in mount.tool("vstat", "--containing", "nowhere", top / "name").stdout
    assert listed(mount, "dir", status=1)["error"]
    assert mount.tool("vstat", "--containing", "", top / "name", status=2, merge=False).stdout == ""


def test_an_interruption_ends_the_search(mount):
    for number in range(300):
        write(mount.path / f"f{number}", "none", "nothing")
    tool = subprocess.Popen(["vfind", "--content", "none", "--json", "./"], cwd=mount.path,
                            env=mount.programs.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert tool.stdout.read(1) == b"{"
    tool.send_signal(signal.SIGINT)
    _out, errors = tool.communicate()
    assert tool.returncode in (0, 130)
    assert (b"stopped; " in errors) == (tool.returncode == 130)


class Random:
    """Random changes of a few names, each followed by a moment at which everything is looked up later."""

    def __init__(self, top, seed):
        self.top = top
        self.random = random.Random(seed)
        self.names = [f"{part}{name}" for part in ("", "d/", "e/") for name in "abc"]

    def content(self):
        """Often with the text, sometimes across the end of a part that is changed alone."""
        return self.random.choice([b"", b"x", b"a nee", b"dle", b"a needle", b"12345 a needle 6789", b"a needl",
                                   b"-" * 5000 + b"a needle" + b"-" * 5000])

    def step(self):
        name, other = (self.top / self.random.choice(self.names) for _ in range(2))
        change = self.random.choice(["write", "write", "append", "over", "truncate", "chmod", "rename", "rename", "link",
                                     "unlink", "exchange", "remove"])
        if change == "remove":
            shutil.rmtree(name.parent if name.parent != self.top else name, ignore_errors=True)
            return
        name.parent.mkdir(exist_ok=True)
        other.parent.mkdir(exist_ok=True)
        if change == "write" or not name.exists():
            name.write_bytes(self.content())
        elif change in ("append", "over"):
            with open(name, "ab" if change == "append" else "r+b") as stream:
                stream.write(self.content())
        elif change == "truncate":
            os.truncate(name, self.random.randrange(10))
        elif change == "chmod":
            os.chmod(name, self.random.choice([0o600, 0o644]))
        elif change == "unlink":
            os.unlink(name)
        elif change == "link" and not other.exists():
            os.link(name, other)
        elif change == "rename" or (change == "exchange" and other.exists()):
            os.rename(name, other)


@pytest.mark.parametrize("history", ["write", "close"])
@pytest.mark.parametrize("seed", range(4 if QUICK else 12))
def test_it_finds_what_was_there(maker, seed, history):
    """The same as a look at each moment."""
    mount = maker.mount("allow_other", f"history={history}")
    work = Random(mount.path, seed)
    moments = [moment()]
    for _step in range(60):
        work.step()
        moments.append(moment())
    rows = found(mount)
    refused = total = 0
    for name in work.names:
        seen = []
        for when in moments:
            try:
                seen.append(b"a needle" in mount.at(when, name).read_bytes())
            except (FileNotFoundError, NotADirectoryError):
                seen.append(False)
        if name not in rows:
            assert True not in seen, name
            continue
        row = rows[name]
        assert mount.tool(*(shlex.split(row["show"]) if "show" in row else ["cat", name]), cwd=mount.path).stdout.count(
            TEXT) > 0
        assert b"a needle" in mount.at(row["first"], name).read_bytes()
        assert row["contains"] == seen[-1], (name, row)
        if True in seen:
            first, last = seen.index(True), len(seen) - 1 - seen[::-1].index(True)
            assert row["first"] <= moments[first], (name, row)
            # A later state has it only if it was there between two moments.
            assert row["contains"] or last + 1 == len(moments) or row["last"] <= moments[last + 1], (name, row)
            assert row["last"] >= moments[last] or mount.at(row["last"], name).read_bytes() == \
                mount.at(moments[last], name).read_bytes(), (name, row)
            # No state before the first one has it, between moments neither.
            assert row["first"] > (moments[first - 1] if first > 0 else 0) or True not in seen[:first]
        answer = mount.run_tool("vstat", "--json", "--containing", TEXT, mount.path / name, merge=False)
        answer = json.loads(answer.stdout)
        for version in answer["versions"]:
            assert not version["contains"] or version["size_after"] >= len(TEXT), (name, version)
        # Where directories, names and objects mix, not each state can be found, but most can.
        refused += answer["unknown"]
        total += len(changes(mount, name))
    assert refused * 5 <= total, (refused, total)
