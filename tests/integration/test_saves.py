# SPDX-License-Identifier: LGPL-2.1-or-later
"""A version is a save: all that one process did to a file from open to close, or without a pause of two seconds."""
import json
import os
import re
import subprocess
import time

import pytest

from mounts import SECOND, epoch, moment

TEXTS = ("one\n", "two\ntwo\n", "three\n" * 3)


def versions(mount, path, *arguments):
    result = mount.tool("vstat", "--json", *arguments, mount.path / path, merge=False)
    return json.loads(result.stdout)["versions"]


def before(mount, path, number):
    """What NAME@~N is; None: it did not exist."""
    try:
        return (mount.path / f"{path}@~{number}").read_text(encoding="ascii")
    except FileNotFoundError:
        return None


def in_place(path, text):
    """Open, cut off, write."""
    path.write_text(text, encoding="ascii")


def piece_by_piece(path, text):
    with open(path, "w", encoding="ascii", buffering=1) as stream:
        stream.writelines(text.splitlines(keepends=True))
        os.fchmod(stream.fileno(), 0o640)


def by_path(path, text):
    """Cut off by path, before it is opened."""
    if path.exists():
        os.truncate(path, 0)
    with open(path, "r+" if path.exists() else "w", encoding="ascii") as stream:
        stream.write(text)


def by_rename(path, text):
    """As most programs do: a new file, which takes the name."""
    new = path.with_name("." + path.name + ".tmp")
    new.write_text(text, encoding="ascii")
    new.chmod(0o600)
    new.rename(path)


def with_backup(path, text):
    """As vim and emacs do: the old file goes to another name."""
    backup = path.with_name(path.name + "~")
    if path.exists():
        path.rename(backup)
    path.write_text(text, encoding="ascii")
    backup.unlink(missing_ok=True)


def made_anew(path, text):
    path.unlink(missing_ok=True)
    path.write_text(text, encoding="ascii")


def in_another_process(path, text):
    """The shell opens the file, and the command writes it."""
    subprocess.run(["sh", "-c", 'printf %s "$2" >"$1"', "sh", path, text], check=True)


@pytest.mark.parametrize("save", [in_place, piece_by_piece, by_path, by_rename, with_backup, made_anew,
                                  in_another_process])
def test_each_save_is_one_version(mount, save):
    for text in TEXTS:
        save(mount.path / "f", text)
    found = versions(mount, "f")
    assert [version["change"] for version in found] == [1, 2, 3]
    assert [version["size_after"] for version in found] == [len(text) for text in reversed(TEXTS)]
    assert found[-1]["existed_before"] is False
    assert [before(mount, "f", number) for number in range(1, 5)] == [TEXTS[1], TEXTS[0], None, None]
    # The state before a version is the one at the time before its first change.
    for version, text in zip(found, (TEXTS[1], TEXTS[0])):
        seconds, fraction = version["began"]["epoch"].split(".")
        when = int(seconds) * 10 ** 9 + int(fraction) - 1
        assert (mount.path / f"f@{epoch(when)}").read_text(encoding="ascii") == text


def test_appends_by_one_process(mount):
    """Each opening is a version, however soon the next one follows."""
    for number in range(5):
        with open(mount.path / "log", "a", encoding="ascii") as stream:
            for _ in range(3):
                stream.write(f"{number}\n")
                stream.flush()
    found = versions(mount, "log")
    assert [(version["change"], version["op"]) for version in found] == \
        [(1, "write"), (2, "write"), (3, "write"), (4, "write"), (5, "create")]
    assert [version["operations"] for version in found] == [3, 3, 3, 3, 4]
    operations = versions(mount, "log", "--operations")
    assert [one["change"] for one in operations] == [1] * 3 + [2] * 3 + [3] * 3 + [4] * 3 + [5] * 4
    assert before(mount, "log", 1) == "".join(f"{number}\n" * 3 for number in range(4))


def test_two_writers_take_turns(mount):
    (mount.path / "f").touch()
    with open(mount.path / "f", "r+b", buffering=0) as one:
        one.write(b"one")
        subprocess.run(["sh", "-c", "printf other 1<>f"], cwd=mount.path, check=True)
        one.write(b"more")
    assert [(version["change"], version["command"].split()[0].rsplit("/", maxsplit=1)[-1][:6])
            for version in versions(mount, "f")] == [(1, "python"), (2, "sh"), (3, "python")]
    assert before(mount, "f", 1) == "other"
    assert before(mount, "f", 2) == "one"


def test_attributes_are_no_versions(mount):
    path = mount.path / "f"
    path.write_text("text", encoding="ascii")
    when = moment()
    path.chmod(0o600)
    os.utime(path, (1, 1))
    os.setxattr(path, "user.a", b"b")
    assert [version["op"] for version in versions(mount, "f")] == ["create"]
    assert [(one["op"], one["change"]) for one in versions(mount, "f", "--operations")] == \
        [("setxattr", None), ("utimens", None), ("chmod", None), ("write", 1), ("create", 1)]
    assert before(mount, "f", 1) is None
    text = mount.tool("vstat", "--since", epoch(when), path).stdout
    assert "only changes of attributes recorded (--operations shows them)" in text


def test_equal_states_are_shown_once(mount):
    path = mount.path / "f"
    for text in ("a\n", "b\n", "b\n", "b\n", "c\n"):
        path.write_text(text, encoding="ascii")
    rows = mount.tool("vstat", path).stdout.splitlines()
    assert [row.split()[0] for row in rows] == ["VERSION", "1", "4", "5", "2"]
    assert rows[-1] == "2 versions that changed no content: not shown (--operations shows all changes)"
    assert [before(mount, "f", number) for number in (1, 2, 3, 4)] == ["b\n", "b\n", "b\n", "a\n"]
    assert len(versions(mount, "f")) == 5


def test_lines_that_changed(mount):
    path = mount.path / "f"
    path.write_text("a\nb\nc\n", encoding="ascii")
    path.write_text("a\nB\nc\nd\n", encoding="ascii")
    by_rename(path, "d\n")
    path.write_bytes(b"\0" * 10)
    path.unlink()
    rows = mount.tool("vstat", path).stdout.splitlines()
    assert "LINES" in rows[0]
    assert [re.findall(r"  (\+\d+ -\d+|-)  ", row)[0] for row in rows[1:]] == \
        ["-", "-", "+0 -3", "+2 -1", "+3 -0"]


def test_lines_below_a_removed_directory(mount):
    (mount.path / "a" / "b").mkdir(parents=True)
    (mount.path / "a" / "b" / "f").write_text("1\n2\n", encoding="ascii")
    (mount.path / "a" / "b" / "f").write_text("1\n", encoding="ascii")
    subprocess.run(["rm", "-r", mount.path / "a"], check=True)
    rows = mount.tool("vstat", mount.path / "a" / "b" / "f").stdout.splitlines()
    assert [re.findall(r"  (\+\d+ -\d+|-)  ", row)[0] for row in rows[1:]] == ["+0 -1", "+0 -1", "+2 -0"]


def test_a_file_from_elsewhere_is_not_compared_with_another(mount):
    """Of the same base name: its content would be that of another file."""
    (mount.path / "sub").mkdir()
    (mount.path / "f").write_text("const\n", encoding="ascii")
    for number in range(3):
        (mount.path / "sub" / "f").write_text(f"lin {number}\n", encoding="ascii")
    subprocess.run(["mv", "sub/f", "f2"], cwd=mount.path, check=True)
    text = mount.tool("vstat", mount.path / "f2").stdout
    assert "not shown" not in text and [row.split()[0] for row in text.splitlines()[1:]] == ["1", "2", "3", "4"]
    assert re.findall(r"  (\+\d+ -\d+|-)  ", text) == ["-"] * 4
    # The same base name here and there.
    subprocess.run(["sh", "-c", "rm f; mv f2 sub/f; mv sub/f f"], cwd=mount.path, check=True)
    assert "not shown" not in mount.tool("vstat", mount.path / "f").stdout


def test_a_version_that_is_hidden_in_part(maker):
    mount = maker.mount("allow_other")
    path = mount.path / "f"
    with open(path, "w", encoding="ascii", buffering=1) as stream:
        os.fchmod(stream.fileno(), 0o600)
        stream.write("one\n")
        os.fchmod(stream.fileno(), 0o644)
        stream.write("two\n")
    version, = json.loads(mount.run_tool("vstat", "--json", path, user=SECOND, merge=False).stdout)["versions"]
    assert set(version) == {"change", "time", "epoch", "withheld"} and version["withheld"]


def test_a_pause_ends_a_version(mount):
    with open(mount.path / "f", "w", encoding="ascii") as stream:
        stream.write("one\n")
        stream.flush()
        # The time is tested: two seconds without a change.
        time.sleep(2.1)
        stream.write("two\n")
    assert [version["op"] for version in versions(mount, "f")] == ["write", "create"]
    assert before(mount, "f", 1) == "one\n"


def test_a_file_that_was_written_slowly(mount):
    """The state between making room and the first write is no version."""
    (mount.path / "f").write_text("old", encoding="ascii")
    with open(mount.path / "f", "w", encoding="ascii") as stream:
        time.sleep(2.1)
        stream.write("new")
    assert before(mount, "f", 1) == "old"
    assert before(mount, "f", 2) is None


def test_a_version_of_many_changes(mount):
    with open(mount.path / "f", "wb", buffering=0) as stream:
        for number in range(3000):
            stream.write(b"%d\n" % number)
    (mount.path / "f").write_text("newest\n", encoding="ascii")
    found = versions(mount, "f")
    assert [version["change"] for version in found] == [1, 2]
    assert found[-1]["operations"] >= 3001  # a write may come in two parts
    assert before(mount, "f", 1).endswith("2999\n")


def test_pages_of_a_long_list(mount):
    """Numbers are the same however the list is read, also from a place in it that an earlier reader came by."""
    count, far = 2500, 2400

    def overwrite(number):
        """By one change, in the log of the file itself."""
        with open(mount.path / "f", "r+b", buffering=0) as stream:
            stream.write(b"%04d" % number)

    (mount.path / "f").write_bytes(b"0000")
    for number in range(1, count):
        overwrite(number)
    found = versions(mount, "f")
    assert [version["change"] for version in found] == list(range(1, count + 1))
    until = found[far]["epoch"]
    for more in range(3):
        listed = versions(mount, "f", "--until", until)
        assert [version["change"] for version in listed] == list(range(far + 1 + more, count + 1 + more))
        overwrite(9000 + more)
    assert before(mount, "f", count + 3) is None
    assert before(mount, "f", count + 2) == "0000"


def test_history_close(maker):
    mount = maker.mount("history=close")
    for text in TEXTS:
        piece_by_piece(mount.path / "f", text)
    assert [version["change"] for version in versions(mount, "f")] == [1, 2, 3]
    assert [before(mount, "f", number) for number in range(1, 4)] == [TEXTS[1], TEXTS[0], None]
    lines = mount.tool("vlog", "--no-pager", mount.path).stdout.splitlines()
    assert [line.split()[0] for line in lines[1:] if line.split()[0] != "chmod"] == ["write", "write", "create"]


def test_log_counts_versions(mount):
    for text in TEXTS:
        with open(mount.path / "f", "w", encoding="ascii", buffering=1) as stream:
            stream.writelines(text.splitlines(keepends=True))
    (mount.path / "f").chmod(0o600)
    lines = mount.tool("vlog", "--no-pager", mount.path).stdout.splitlines()
    assert [line.split(",")[0].split() for line in lines[1:]] == \
        [["chmod", "f"], ["write", "f"], ["write", "f"], ["create", "f"]]
    limited = mount.tool("vlog", "--no-pager", "--limit", "2", mount.path).stdout.splitlines()
    assert limited == lines[:3]
    each = mount.tool("vlog", "--no-pager", "--operations", mount.path).stdout
    assert "truncate" in each and "write ×3" in each


def test_log_shows_attributes_that_are_set_later(mount):
    (mount.path / "f").write_text("text", encoding="ascii")
    (mount.path / "f").chmod(0o755)
    # The time is tested: two seconds after the file was made.
    time.sleep(2.1)
    (mount.path / "f").chmod(0o700)
    lines = mount.tool("vlog", "--no-pager", mount.path).stdout.splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["chmod", "create"]


def test_erase_a_version(mount):
    """And all that was visible of it while it was written."""
    for text in ("first\n", "a secret\nof two lines\n", "third\n", "fourth\n"):
        piece_by_piece(mount.path / "f", text)
    mount.tool("vrm", "-y", "--change", "2", mount.path / "f")
    assert [before(mount, "f", number) for number in (1, 2)] == ["third\n", "first\n"]
    assert "secret" not in mount.tool("vstat", "--containing", "secret", mount.path / "f").stdout.split("\n")[0]
    operations = versions(mount, "f", "--operations")
    for one in operations:
        seconds, fraction = one["epoch"].split(".")
        when = int(seconds) * 10 ** 9 + int(fraction)
        try:
            text = (mount.path / f"f@{epoch(when)}").read_text(encoding="ascii")
        except FileNotFoundError:
            continue
        assert "secret" not in text
