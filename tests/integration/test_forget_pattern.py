# SPDX-License-Identifier: LGPL-2.1-or-later
"""vrm --pattern: all that matches, present or deleted, is erased as vrm would each of it, and nothing else."""
import errno
import json
import os

from mounts import NOBODY, as_user, epoch, moment
from test_forget import SECRET, found_in_store, make_secrets
from treestate import differences, state_of


def names(result):
    return sorted(json.loads(line)["path"] for line in result.stdout.splitlines())


def make_keys(top):
    """Keys that exist, that are deleted, in deleted directories, twice under one name; and files that are kept."""
    (top / "sub/deep").mkdir(parents=True)
    make_secrets(top, "a.key")
    make_secrets(top / "sub/deep", "b.key")
    (top / "sub/c.key").write_bytes(SECRET)
    (top / "sub/c.key").unlink()
    for _ in range(2):
        (top / "gone").mkdir()
        make_secrets(top / "gone", "d.key")
        (top / "gone/stays.txt").write_bytes(b"stays")
        (top / "gone/d.key").unlink()
        (top / "gone/stays.txt").unlink()
        (top / "gone").rmdir()
        moment()
    (top / "keys.key").mkdir()
    make_secrets(top / "keys.key", "inside")
    for text in (b"one", b"two"):
        (top / "sub/stays.txt").write_bytes(text)
    (top / "e.key").write_bytes(SECRET)
    os.rename(top / "e.key", top / "plain")


def test_matches_are_gone_and_the_rest_is_kept(any_mount):
    mount = any_mount
    top = mount.path / "top"
    top.mkdir()
    make_keys(top)
    (mount.path / "beside.key").write_bytes(b"beside")
    when = moment()
    (mount.path / "beside.key").unlink()
    assert found_in_store(mount, SECRET)
    state = state_of(mount.path)
    reported = mount.tool("vrm", "-n", "-r", "--json", "--pattern", "*.key", top)
    shown = [str(top / name) for name in ("a.key", "e.key", "gone/d.key", "gone/d.key", "keys.key", "sub/c.key",
                                          "sub/deep/b.key")]
    assert names(reported) == shown
    assert differences(state, state_of(mount.path)) == [] and found_in_store(mount, SECRET)
    did = mount.tool("vrm", "-y", "-r", "--json", "--pattern", "*.key", top)
    assert names(did) == shown
    assert found_in_store(mount, SECRET) == []
    assert sorted(os.listdir(top)) == ["plain", "sub"] and (top / "plain").read_bytes() == SECRET
    assert (top / "sub/stays.txt").read_bytes() == b"two" and (top / "sub/stays.txt@~1").read_bytes() == b"one"
    gone = mount.tool("vfind", "--deleted", "--null", "*", top).stdout
    assert "stays.txt" in gone and ".key" not in gone
    assert (mount.at(when) / "beside.key").read_bytes() == b"beside"
    assert "nothing below it matches" in mount.tool("vrm", "-y", "-r", "--pattern", "*.key", top, status=1).stdout
    mount.check_store()
    mount.stop()
    assert "clean" in mount.tool("vfsck", mount.source).stdout
    mount.start()


def test_patterns_are_those_of_git(mount):
    for path in ("a.log", "dir/a.log", "dir/build/x", "build", "dir/keep.log"):
        (mount.path / path).parent.mkdir(parents=True, exist_ok=True)
        (mount.path / path).write_bytes(b"x")

    def found(*patterns):
        options = [option for one in patterns for option in ("--pattern", one)]
        result = mount.run_tool("vrm", "-n", "-r", "--json", *options, ".", cwd=mount.path)
        return [name.removeprefix("./") for name in names(result)] if result.returncode == 0 else result.returncode

    assert found("*.log") == ["a.log", "dir/a.log", "dir/keep.log"]
    assert found("*.log", "!keep.log") == ["a.log", "dir/a.log"]
    assert found("/*.log") == ["a.log"]
    assert found("build/") == ["dir/build"]
    assert found("dir/**") == ["dir/a.log", "dir/build", "dir/keep.log"]
    assert found("nothing") == 1 and found("[") == 2


def test_with_a_moment_and_with_the_history_alone(mount):
    (mount.path / "dir").mkdir()
    path, when = make_secrets(mount.path / "dir", "a.key")
    known = moment()
    moment()
    path.write_bytes(b"since")
    mount.expect("erased")
    mount.tool("vrm", "-y", "--before", epoch(known), "--pattern", "*.key", mount.path)
    assert found_in_store(mount, SECRET) == []
    assert mount.at(known, "dir/a.key").read_bytes() == b"harmless now" and path.read_bytes() == b"since"
    mount.tool("vrm", "-y", "--history", "--pattern", "*.key", mount.path)
    assert path.read_bytes() == b"since"
    for moment_of in (when, known):
        try:
            mount.at(moment_of, "dir/a.key").read_bytes()
            assert False, "still shown"
        except OSError as error:
            assert error.errno in (errno.EIO, errno.ENOENT)


def test_others_keep_their_files(mount):
    mount.path.chmod(0o777)
    (mount.path / "root.key").write_bytes(b"root's")
    as_user(lambda: (mount.path / "own.key").write_bytes(SECRET), *NOBODY)
    result = mount.run_tool("vrm", "-y", "--pattern", "*.key", mount.path, user=NOBODY)
    assert result.returncode == 1 and "root.key: not permitted" in result.stdout
    assert os.listdir(mount.path) == ["root.key"] and found_in_store(mount, SECRET) == []
    assert "use -y" in mount.tool("vrm", "--pattern", "*.key", mount.path, status=1).stdout
    # A moment in a path is not taken from other users.
    (mount.path / "dir").mkdir()
    (mount.path / "dir/file").write_bytes(b"x")
    mount.tool("vrm", "-y", mount.path / f"dir@{epoch(moment())}/file", status=1)
    assert (mount.path / "dir/file").exists()


def make_many(top, count):
    """A key in each of many directories, some of them deleted, with other files beside it that are kept."""
    for i in range(count):
        folder = top / f"dir{i}"
        folder.mkdir()
        make_secrets(folder, "a.key")
        for text in (b"one", b"two"):
            (folder / "stays").write_bytes(text)
        if i % 5 == 4:
            (folder / "a.key").unlink()
        if i % 10 == 9:
            (folder / "stays").unlink()
            folder.rmdir()


def test_more_names_than_a_request_takes(mount):
    """Of long paths; a directory with its own hit below it, and a file that was moved from one hit to another."""
    top = mount.path / ("long" * 60) / ("path" * 60)
    top.mkdir(parents=True)
    make_many(top, 24)
    (top / "keys.key").mkdir()
    make_secrets(top / "keys.key", "b.key")
    make_secrets(top / "dir0", "c.key")
    os.rename(top / "dir0/c.key", top / "dir1/c.key")
    when = moment()
    names_of = [top / f"dir{i}/a.key" for i in range(24)] + [top / "dir0/c.key", top / "dir1/c.key", top / "keys.key"]
    did = mount.tool("vrm", "-y", "-r", "--json", "--pattern", "*.key", top)
    reported = [json.loads(line) for line in did.stdout.splitlines()]
    assert sorted(one["path"] for one in reported) == sorted(map(str, names_of))
    members = {"schema", "path", "dry_run", "history_only", "before", "objects", "bytes"}
    assert all(set(one) == members and one["objects"] > 0 for one in reported)
    assert found_in_store(mount, SECRET) == []
    for i in range(24):
        assert not os.path.lexists(mount.at(when) / top.relative_to(mount.path) / f"dir{i}/a.key")
        if i % 10 != 9:
            assert (top / f"dir{i}/stays").read_bytes() == b"two" and (top / f"dir{i}/stays@~1").read_bytes() == b"one"
    mount.check_store()


def test_paths_that_are_named_together(mount):
    """One that never existed, one twice, one below another: each is reported, and none stops the others."""
    make_secrets(mount.path, "a")
    (mount.path / "dir").mkdir()
    make_secrets(mount.path / "dir", "b")
    make_secrets(mount.path, "c")
    paths = [mount.path / name for name in ("a", "never", "dir/b", "a", "dir", "c")]
    result = mount.run_tool("vrm", "-y", *paths)
    assert result.returncode == 1
    for line in ("a: removed with its history", "never: no such file", "dir/b: removed with its history", "dir: is a directory",
                 "c: removed with its history", "a: no such file"):
        assert result.stdout.count(f"{mount.path}/{line}") == 1, (line, result.stdout)
    assert os.listdir(mount.path) == ["dir"] and found_in_store(mount, SECRET) == []
    make_secrets(mount.path / "dir", "d")
    assert mount.tool("vrm", "-y", "-r", mount.path / "dir", mount.path / "dir/d").stdout.count("removed with") == 2
    assert os.listdir(mount.path) == [] and found_in_store(mount, SECRET) == []


def test_one_of_another_owner_among_many(mount):
    for i in range(6):
        (mount.path / f"dir{i}").mkdir()
        (mount.path / f"dir{i}").chmod(0o777)
        as_user(lambda folder=mount.path / f"dir{i}": (folder / "a.key").write_bytes(SECRET), *NOBODY)
    # Another's now; and one of which another had the name before.
    os.chown(mount.path / "dir2/a.key", 0, 0)
    (mount.path / "dir4/a.key").rename(mount.path / "dir4/plain")
    (mount.path / "dir4/a.key").write_bytes(b"root's")
    (mount.path / "dir4/a.key").unlink()
    as_user(lambda: (mount.path / "dir4/a.key").write_bytes(SECRET), *NOBODY)
    when = moment()
    result = mount.run_tool("vrm", "-y", "--pattern", "*.key", mount.path, user=NOBODY)
    assert result.returncode == 1
    for i in range(6):
        other = i in (2, 4)
        message = "not permitted" if other else "removed with its history"
        assert f"dir{i}/a.key: {message}" in result.stdout
        assert (mount.path / f"dir{i}/a.key").exists() == os.path.lexists(mount.at(when) / f"dir{i}/a.key") == other
    mount.check_store()
