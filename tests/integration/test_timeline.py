# SPDX-License-Identifier: LGPL-2.1-or-later
"""vlog: every change below a path, once, in order, under the names of then."""
import json
import os
import shutil
import signal
import subprocess
import time

import pytest

from mounts import LIMIT, NOBODY, SECOND, as_user, epoch, moment, nanoseconds


def log(mount, *arguments, path=None, **options):
    result = mount.tool("vlog", "--json", *arguments, path or mount.path, merge=False, **options)
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    whens = [nanoseconds(row) for row in rows]
    assert whens == sorted(set(whens), reverse=True), "once, and newest first"
    return rows


def changes(rows):
    """Oldest first: operation, path, and the other path."""
    return [(row["op"], row["path"], row.get("other")) for row in reversed(rows)]


def test_changes_in_directories_whose_names_never_changed(maker):
    """In a tree that existed before: the record of the place of such a directory is made with the first record in
    it."""
    mount = maker.mount("allow_other", start=False)
    for name in ("write", "chmod", "xattr", "cut", "linked"):
        below = mount.source / name / "deep"
        below.mkdir(parents=True)
        (below / "file").write_bytes(b"old content")
    os.link(mount.source / "linked/deep/file", mount.source / "linked/deep/other")
    mount.start()
    top = mount.path
    with open(top / "write/deep/file", "r+b") as file:
        file.write(b"new")
    os.chmod(top / "chmod/deep/file", 0o600)
    os.setxattr(top / "xattr/deep/file", "user.note", b"x")
    os.truncate(top / "cut/deep/file", 3)
    os.chmod(top / "linked/deep/file", 0o600)
    wanted = [("write", "write/deep/file", None), ("chmod", "chmod/deep/file", None),
              ("setxattr", "xattr/deep/file", None), ("truncate", "cut/deep/file", None),
              ("chmod", "linked/deep/file", None)]
    assert changes(log(mount)) == wanted
    assert changes(log(mount, path=top / "write")) == [("write", "deep/file", None)]


def test_every_kind_of_change_once_and_in_order(mount):
    top = mount.path
    os.mkdir(top / "d")
    with open(top / "d/f", "xb", buffering=0) as file:
        file.write(b"first")
        file.write(b"second")
        os.pwrite(file.fileno(), b"FIRST", 0)
        os.ftruncate(file.fileno(), 3)
    os.chmod(top / "d/f", 0o600)
    os.chown(top / "d/f", 1, 1)
    os.utime(top / "d/f", (1, 1))
    os.setxattr(top / "d/f", "user.note", b"x")
    os.removexattr(top / "d/f", "user.note")
    os.symlink("f", top / "d/s")
    os.mkfifo(top / "d/p")
    os.link(top / "d/f", top / "d/l")
    os.rename(top / "d/f", top / "g")
    os.unlink(top / "d/l")
    os.rename(top / "g", top / "d/g")
    os.chmod(top / "d", 0o700)
    os.mkdir(top / "e")
    os.rmdir(top / "e")
    os.rename(top / "d", top / "moved")
    os.unlink(top / "moved/p")
    wanted = [
        ("mkdir", "d", None), ("create", "d/f", None), ("write", "d/f", None), ("write", "d/f", None),
        ("write", "d/f", None), ("truncate", "d/f", None), ("chmod", "d/f", None), ("chown", "d/f", None),
        ("utimens", "d/f", None), ("setxattr", "d/f", None), ("removexattr", "d/f", None), ("symlink", "d/s", None),
        ("mknod", "d/p", None), ("link", "d/l", "d/f"), ("rename", "d/f", "g"), ("unlink", "d/l", None),
        ("rename", "g", "d/g"), ("chmod", "d", None), ("mkdir", "e", None), ("rmdir", "e", None),
        ("rename", "d", "moved"), ("unlink", "moved/p", None)]
    assert changes(log(mount)) == wanted
    assert changes(log(mount, "-l", "3")) == wanted[-3:]
    # The directory of now, and a deleted file that had a path.
    inside = [(op, path.removeprefix("d/"), other and other.removeprefix("d/")) for op, path, other in wanted[1:14]]
    assert changes(log(mount, path=top / "moved"))[:14] == inside + [("rename", "f", "/g")]
    assert ("rename", "/g", "g") in changes(log(mount, path=top / "moved"))
    assert ("unlink", "p", None) in changes(log(mount, path=top / "moved"))
    assert ("rename", ".", "/moved") in changes(log(mount, path=top / "d"))
    file = changes(log(mount, path=top / "moved/g"))
    assert [op for op, _, _ in file] == ["write", "write", "write", "truncate", "chmod", "chown", "utimens", "setxattr",
                                         "removexattr", "rename", "unlink", "rename"]
    mount.remount()
    assert changes(log(mount)) == wanted


def test_a_file_asked_for_is_called_by_the_name_it_was_asked_by(mount):
    (mount.path / "f").write_bytes(b"one")
    os.chmod(mount.path / "f", 0o600)
    text = mount.tool("vlog", "--operations", "f", cwd=mount.path).stdout
    assert "chmod            f\n" in text and "create           f\n" in text and " .\n" not in text


def test_times_users_and_commands(maker):
    mount = maker.mount("allow_other")
    os.chmod(mount.path, 0o777)
    between = moment()
    mount.tool("touch", mount.path / "ours")
    after = moment()
    as_user(lambda: (mount.path / "theirs").write_bytes(b"text"), *SECOND)
    assert {row["path"] for row in log(mount, "--since", epoch(after))} == {"theirs"}
    assert {row["path"] for row in log(mount, "--since", epoch(between), "--until", epoch(after))} == {"ours"}
    assert {row["path"] for row in log(mount, "--who", str(SECOND[0]))} == {"theirs"}
    assert {row["uid"] for row in log(mount, "--who", str(SECOND[0]))} == {SECOND[0]}
    assert {row["path"] for row in log(mount, "--command", "touch")} == {"ours"}
    assert log(mount, "--who", "77") == []
    text = mount.tool("vlog", mount.path).stdout
    assert "touch " in text and "create           ours" in text


def test_others_see_changes_in_directories_they_may_list(maker):
    mount = maker.mount("allow_other")
    top = mount.path
    for name, mode in (("open", 0o755), ("closed", 0o700)):
        (top / name / "below").mkdir(parents=True)
        (top / name / "below" / "f").write_bytes(b"text")
        os.chmod(top / name, mode)
    os.rename(top / "closed/below/f", top / "open/g")
    result = mount.run_tool("vlog", "--json", top, user=SECOND, merge=False)
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    paths = {row["path"] for row in rows} | {row.get("other") for row in rows}
    assert {"open", "closed", "open/below/f", "open/g", "?"} <= paths
    assert not any(path and path.startswith("closed/") for path in paths)
    assert len(log(mount)) > len(rows)
    result = mount.run_tool("vlog", top / "closed", user=NOBODY, merge=False)
    assert result.returncode == 1 and "ermission" in result.stderr


@pytest.mark.parametrize("mounted", [True, False])
def test_nothing_is_missing_after_a_crash(maker, mounted):
    mount = maker.mount()
    for i in range(300):
        (mount.path / f"f{i % 7}").write_bytes(b"x" * i)
        if i == 150:
            before = len(log(mount))
    mount.kill()
    if mounted:
        mount.start()
        rows = log(mount)
    else:
        rows = log(mount, path=mount.source)
    # Each write_bytes is a creation or a truncation, and a write unless it is empty.
    assert len(rows) >= 600 - 7 and len(rows) > before
    assert [row["path"] for row in reversed(rows)][-2:] == [f"f{299 % 7}"] * 2
    if mounted:
        mount.stop()
        shutil.rmtree(mount.source / ".wayback/timeline")
        mount.start()
        assert log(mount) == rows


def test_erased_changes_are_gone(mount):
    (mount.path / "secret").write_bytes(b"text")
    (mount.path / "other").write_bytes(b"text")
    mount.tool("vrm", "-y", mount.path / "secret")
    assert {row["path"] for row in log(mount)} == {"other"}
    mount.remount()
    assert {row["path"] for row in log(mount)} == {"other"}


def test_directories_have_the_paths_of_then(mount):
    top = mount.path
    (top / "a/b").mkdir(parents=True)
    (top / "a/b/f").write_bytes(b"1")
    os.rename(top / "a", top / "x")
    (top / "x/b/f").write_bytes(b"2")
    os.rename(top / "x/b", top / "y")
    (top / "y/f").write_bytes(b"3")
    paths = [path for _, path, _ in changes(log(mount))]
    assert paths == ["a", "a/b", "a/b/f", "a/b/f", "a", "x/b/f", "x/b/f", "x/b", "y/f", "y/f"]
    assert {path for _, path, _ in changes(log(mount, path=top / "y"))} >= {"f"}
    # Files below x then, though they have left it.
    assert ("write", "b/f", None) in changes(log(mount, path=top / "x"))


def test_following_shows_later_changes(mount):
    (mount.path / "before").write_bytes(b"1")
    with subprocess.Popen([mount.programs.directory / "vlog", "-f", "--json", mount.path], text=True,
                          stdout=subprocess.PIPE, env=mount.programs.environment(),
                          # A process in the background may have it ignored.
                          preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)) as tool:
        rows = [json.loads(tool.stdout.readline()) for _ in range(2)]
        (mount.path / "after").write_bytes(b"2")
        rows += [json.loads(tool.stdout.readline()) for _ in range(2)]
        tool.send_signal(signal.SIGINT)
        assert tool.wait(LIMIT) == 130
    assert [(row["op"], row["path"]) for row in rows] == [("create", "before"), ("write", "before"),
                                                          ("create", "after"), ("write", "after")]


def test_a_store_made_without_a_timeline(mount):
    for i in range(50):
        (mount.path / f"f{i}").write_bytes(b"text")
    rows = log(mount)
    mount.stop()
    shutil.rmtree(mount.source / ".wayback/timeline")
    # Without the lock nothing is written, and everything is listed.
    assert log(mount, path=mount.source) == rows
    assert not (mount.source / ".wayback/timeline").exists()
    mount.start()
    assert log(mount) == rows
    deadline = time.monotonic() + LIMIT
    while not (mount.source / ".wayback/timeline/pending").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    mount.stop()
    assert len(rows) == 100


def test_bad_usage(mount):
    for arguments in (["--who", "no such user"], ["--limit", "0"], ["--since", "nonsense time"], ["-f", "--until", "now"],
                      ["a", "b"]):
        result = mount.tool("vlog", *arguments, status=2, merge=False, cwd=mount.path)
        assert result.stderr.startswith("vlog: ") and result.stdout == ""
    result = mount.tool("vlog", mount.path / "never", status=1, merge=False)
    assert "now or at any time recorded" in result.stderr


def test_a_list_that_cannot_be_built(mount):
    """That is said, and not waited for; and the list is there once it can be built."""
    (mount.path / "f").write_bytes(b"x")
    mount.stop()
    timeline = mount.source / ".wayback/timeline"
    (timeline / "times").unlink()
    (timeline / "times.new").mkdir()
    mount.expect("the list of changes cannot be built: ")
    mount.start()
    mount.tool("vlog", mount.path, status=1)
    (timeline / "times.new").rmdir()
    while mount.run_tool("vlog", mount.path).returncode != 0:
        time.sleep(0.1)
