# SPDX-License-Identifier: LGPL-2.1-or-later
"""vrm: gone for good, in every place, and nothing else with it."""
import contextlib
import errno
import json
import os
import re
import subprocess

import pytest

from mounts import LIMIT, NOBODY, SECOND, as_user, epoch, moment
from treestate import differences, state_of

SECRET = b"the-string-nobody-must-find-again"


def found_in_store(mount, *needles):
    """Files below the store (and names) that hold any of the bytes, the deleted files among them."""
    found = []
    searches = [re.compile(re.escape(needle)).search for needle in needles]  # `in` takes ten times as long in a hole
    for directory, names, files in os.walk(os.fsencode(mount.store())):
        found += [name for name in names + files if any(search(name) for search in searches)]
        for name in files:
            path = os.path.join(directory, name)
            # Files that disappear meanwhile are not found.
            with contextlib.suppress(FileNotFoundError):
                if os.path.isfile(path):
                    with open(path, "rb") as stream:
                        data = stream.read()
                    if any(search(data) for search in searches):
                        found.append(path)
    return found


def make_secrets(root, name="secret"):
    """A file whose every kind of version holds the string."""
    path = root / name
    path.write_bytes(SECRET + b" first")
    when = moment()
    path.write_bytes(b"overwritten")
    path.write_bytes(SECRET * 3000)
    os.setxattr(path, "user.note", SECRET)
    os.setxattr(path, "user.note", b"clean")
    os.truncate(path, 100)
    path.with_name("tmp").write_bytes(SECRET + b" by another object")
    os.rename(path.with_name("tmp"), path)
    path.write_bytes(b"harmless now")
    return path, when


def test_vrm_leaves_no_byte(any_mount):
    path, when = make_secrets(any_mount.path)
    (any_mount.path / "other").write_bytes(b"stays")
    os.truncate(any_mount.path / "other", 2)
    assert found_in_store(any_mount, SECRET)
    any_mount.tool("vrm", "-y", path)
    assert found_in_store(any_mount, SECRET) == []
    assert os.listdir(any_mount.path) == ["other"]
    with pytest.raises(OSError) as caught:
        (any_mount.path / f"secret@{epoch(when)}").read_bytes()
    assert caught.value.errno == errno.ENOENT
    assert os.listdir(any_mount.at(when)) == []
    any_mount.tool("vstat", path, status=1)
    assert (any_mount.path / "other@~1").read_bytes() == b"stays"
    any_mount.remount()
    any_mount.check_store()
    assert found_in_store(any_mount, SECRET) == []


def test_vrm_of_a_file_that_was_deleted_already(mount):
    path, _ = make_secrets(mount.path)
    path.unlink()
    mount.tool("vrm", "-y", path)
    assert found_in_store(mount, SECRET) == []


def test_vrm_of_a_tree(any_mount):
    root = any_mount.path
    (root / "d" / "e").mkdir(parents=True)
    make_secrets(root / "d")
    make_secrets(root / "d" / "e", "deeper")
    (root / "d" / "gone").write_bytes(SECRET)
    (root / "d" / "gone").unlink()
    (root / "keep").write_bytes(b"one")
    when = moment()
    (root / "keep").write_bytes(b"two")
    assert any_mount.tool("vrm", "-y", root / "d", status=1) and (root / "d" / "e").is_dir()
    any_mount.tool("vrm", "-r", "-y", root / "d")
    assert found_in_store(any_mount, SECRET) == []
    assert os.listdir(root) == ["keep"]
    assert (any_mount.at(when) / "keep").read_bytes() == b"one"
    any_mount.remount()
    assert (any_mount.at(when) / "keep").read_bytes() == b"one"
    any_mount.check_store()


def test_history_alone_can_be_forgotten(any_mount):
    path, when = make_secrets(any_mount.path)
    state = state_of(any_mount.path)
    any_mount.tool("vrm", "--history", "-y", path)
    assert differences(state, state_of(any_mount.path)) == []
    assert found_in_store(any_mount, SECRET) == []
    with pytest.raises(OSError):
        (any_mount.path / f"secret@{epoch(when)}").read_bytes()
    later = moment()
    path.write_bytes(b"and on it goes")
    assert (any_mount.path / f"secret@{epoch(later)}").read_bytes() == b"harmless now"
    any_mount.check_store()


def test_another_name_of_the_file_keeps_its_present_and_no_past(mount):
    """Everything the file ever contained is gone for good, under any name it was seen by."""
    root = mount.path
    (root / "a").write_bytes(SECRET)
    os.link(root / "a", root / "b")
    when = moment()
    (root / "b").write_bytes(b"two")
    mount.tool("vrm", "-y", root / "a")
    assert (root / "b").read_bytes() == b"two"
    assert (root / "b").stat().st_nlink == 1
    assert found_in_store(mount, SECRET) == []
    mount.expect("erased")
    with pytest.raises(OSError):
        (root / f"b@{epoch(when)}").read_bytes()
    later = moment()
    (root / "b").write_bytes(b"three")
    assert (root / f"b@{epoch(later)}").read_bytes() == b"two"


def test_it_asks_unless_yes_is_given(mount):
    path = mount.path / "f"
    path.write_bytes(b"x")
    import pty  # pylint: disable=import-outside-toplevel
    for answer, stays in ((b"n\n", True), (b"y\n", False)):
        ours, theirs = pty.openpty()
        tool = subprocess.Popen(["vrm", path], stdin=theirs, stdout=theirs, stderr=theirs, cwd="/",
                                env=mount.programs.environment())
        os.close(theirs)
        os.read(ours, 1000)
        os.write(ours, answer)
        tool.wait(timeout=LIMIT)
        os.close(ours)
        assert path.exists() == stays


def test_only_the_owner_or_root_may(any_mount):
    any_mount.path.chmod(0o777)
    path = any_mount.path / "f"
    path.write_bytes(b"x")
    path.chmod(0o666)
    when = moment()
    path.write_bytes(b"y")
    for arguments in (("-y", path), ("-y", "--history", path)):
        result = any_mount.tool("vrm", *arguments, status=1, user=SECOND)
        assert "ermi" in result.stdout
    assert path.read_bytes() == b"y"
    assert (any_mount.path / f"f@{epoch(when)}").read_bytes() == b"x"
    os.chown(path, *SECOND)
    any_mount.tool("vrm", "-y", path, user=SECOND)
    assert not path.exists()


def test_history_of_a_former_owner_is_theirs(mount):
    """Having the name now, or the directory, gives no power over another user's history."""
    root = mount.path
    root.chmod(0o777)

    def write(user, *names):
        def go():
            for name in names:
                (root / name).write_bytes(b"one")
                (root / name).write_bytes(b"two")
        as_user(go, *user)

    as_user(lambda: (root / "d").mkdir(), *SECOND)
    (root / "d").chmod(0o777)
    write(NOBODY, "x", "y", "z", "d/x")
    when = moment()
    (root / "x").unlink()
    os.rename(root / "y", root / "y2")
    write(SECOND, "x", "y", "z2")
    os.rename(root / "z2", root / "z")
    (root / "d" / "x").unlink()
    for name in ("x", "y", "z", "d"):
        for arguments in (("-y", "-r"), ("-y", "-r", "--history")):
            result = mount.tool("vrm", *arguments, root / name, status=1, user=SECOND)
            assert "ermi" in result.stdout
            assert (root / name).exists()
    for name in ("x", "y", "z", "d/x"):
        assert mount.at(when, name).read_bytes() == b"two"
    (root / "d").rmdir()
    mount.tool("vrm", "-y", "-r", root / "d", status=1, user=SECOND)
    assert mount.at(when, "d/x").read_bytes() == b"two"
    mount.tool("vrm", "-y", root / "x")


def test_usage_errors(mount):
    (mount.path / "f").write_bytes(b"x")
    mount.tool("vrm", status=2)
    mount.tool("vrm", "--nonsense", status=2)
    mount.tool("vrm", "-y", mount.path / "never", status=1)
    mount.tool("vrm", "-y", "/usr/bin/env", status=1)
    mount.tool("vrm", "-r", "-y", mount.path, status=1)
    assert os.path.exists("/usr/bin/env") and os.listdir(mount.path) == ["f"]
    json.loads(mount.tool("vrm", "-y", "--json", mount.path / "f").stdout)
