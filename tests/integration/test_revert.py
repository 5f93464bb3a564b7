# SPDX-License-Identifier: LGPL-2.1-or-later
"""vrevert: back to any moment, recorded itself, repeatable, by the same objects."""
import json
import os
import random
import signal
import subprocess
import time

from mounts import NOBODY, SECOND, as_user, epoch, moment, nanoseconds, run
from operations import Operator
from treestate import differences, state_of


def test_a_file_is_restored_with_everything(any_mount):
    path = any_mount.path / "f"
    path.write_bytes(os.urandom(70_000))
    path.chmod(0o641)
    os.chown(path, 8, 9)
    os.setxattr(path, "user.a", b"1")
    os.utime(path, ns=(10**18, 10**18 + 3))
    when, before = moment(), state_of(any_mount.path)
    path.write_bytes(b"short")
    path.chmod(0o600)
    os.chown(path, 1, 1)
    os.removexattr(path, "user.a")
    os.setxattr(path, "user.b", b"2")
    inode = path.stat().st_ino
    any_mount.tool("vrevert", path, "--time", epoch(when))
    found = differences(before, state_of(any_mount.path))
    assert [line for line in found if not line.startswith(".: mtime")] == []
    assert path.stat().st_ino == inode
    again = moment()
    any_mount.tool("vrevert", path, "--time", epoch(when))
    assert path.stat().st_mtime_ns == 10**18 + 3 and again


def test_deleted_files_are_restored_as_the_same_objects(any_mount):
    root = any_mount.path
    (root / "d" / "e").mkdir(parents=True)
    (root / "d" / "f").write_bytes(os.urandom(300_000))
    os.link(root / "d" / "f", root / "d" / "e" / "same")
    (root / "d" / "l").symlink_to("f")
    os.mkfifo(root / "d" / "p")
    inodes = {n: (root / "d" / n).lstat().st_ino for n in ("f", "e", "e/same", "l", "p")}
    when, before = moment(), state_of(root)
    any_mount.tool("rm", "-r", root / "d")
    (root / "later").write_bytes(b"came later")
    any_mount.tool("vrevert", root, "--time", epoch(when))
    assert differences(before, state_of(root)) == []
    assert inodes == {n: (root / "d" / n).lstat().st_ino for n in inodes}


def test_a_revert_can_be_undone(any_mount):
    root = any_mount.path
    Operator(str(root), 5).step()
    operator = Operator(str(root), 6)
    for _ in range(60):
        operator.step()
    operator.close()
    then, first = moment(), state_of(root)
    operator = Operator(str(root), 7)
    for _ in range(60):
        operator.step()
    operator.close()
    now, second = moment(), state_of(root)
    any_mount.tool("vrevert", root, "--time", epoch(then))
    assert differences(first, state_of(root)) == []
    any_mount.tool("vrevert", root, "--time", epoch(now))
    assert differences(second, state_of(root)) == []
    any_mount.tool("vrevert", root, "--time", epoch(then))
    assert differences(first, state_of(root)) == []


def test_all_names_of_a_program_get_the_same_copy(mount):
    """Of a file with power that is gone, a name that something else has now gets a copy: so do its other names."""
    root = mount.path
    (root / "b").write_bytes(b"program")
    (root / "b").chmod(0o4755)
    for name in "yz":
        os.link(root / "b", root / name)
    when, before = moment(), state_of(root)
    for name in "yz":
        (root / name).unlink()
    (root / "new").write_bytes(b"later")
    (root / "new").rename(root / "b")
    mount.tool("vrevert", root, "--time", epoch(when), "--json")
    assert differences(before, state_of(root)) == []


def test_a_change_count_is_before_that_change(mount):
    path = mount.path / "f"
    for text in (b"one", b"two", b"six"):
        fd = os.open(path, os.O_CREAT | os.O_RDWR)
        os.pwrite(fd, text, 0)
        os.close(fd)
    mount.tool("vrevert", path, "--change", "1")
    assert path.read_bytes() == b"two"
    path.unlink()
    mount.tool("vrevert", path, "--change", "1")
    assert path.read_bytes() == b"two"


def test_a_dry_run_changes_nothing(mount):
    root = mount.path
    (root / "stays").write_bytes(b"x")
    (root / "goes").write_bytes(b"x")
    when = moment()
    (root / "goes").unlink()
    (root / "comes").write_bytes(b"x")
    now, state = moment(), state_of(root)
    text = mount.tool("vrevert", root, "--time", epoch(when), "-n").stdout
    assert "goes" in text and "comes" in text and "stays" not in text
    assert differences(state, state_of(root)) == []
    newest = json.loads(mount.tool("vstat", "--json", root, "-l", "1").stdout)
    newest = newest[0] if isinstance(newest, list) else newest
    assert nanoseconds(newest["versions"][0]) < now
    json.loads(mount.tool("vrevert", root, "--time", epoch(when), "-n", "--json").stdout)


def test_nothing_to_do_is_no_change(mount):
    (mount.path / "f").write_bytes(b"x")
    when = moment()
    mount.tool("vrevert", mount.path, "--time", epoch(when))
    assert (mount.path / "f@now").read_bytes() == b"x"
    found = json.loads(mount.tool("vstat", "--json", mount.path / "f").stdout)
    found = found[0] if isinstance(found, list) else found
    assert all(nanoseconds(v) < when for v in found["versions"])


def test_an_interrupted_revert_can_be_run_again(mount):
    root = mount.path
    rng = random.Random(8)
    for i in range(300):
        (root / f"d{i % 7}").mkdir(exist_ok=True)
        (root / f"d{i % 7}" / f"f{i}").write_bytes(rng.randbytes(20_000))
    when, state = moment(), state_of(root)
    for i in range(300):
        path = root / f"d{i % 7}" / f"f{i}"
        if i % 3:
            path.write_bytes(rng.randbytes(15_000))
        else:
            path.unlink()
    os.rename(root / "d3", root / "moved")
    for delay in (0.01, 0.03, 0.06):
        tool = subprocess.Popen(["vrevert", root, "--time", epoch(when)], cwd="/",
                                env=mount.programs.environment(), stdout=subprocess.DEVNULL,
                                stderr=subprocess.DEVNULL)
        time.sleep(delay)
        tool.send_signal(signal.SIGKILL)
        tool.wait()
    mount.tool("vrevert", root, "--time", epoch(when))
    assert differences(state, state_of(root)) == []


def test_only_users_who_may_write_may_revert(any_mount):
    any_mount.path.chmod(0o755)
    path = any_mount.path / "f"
    path.write_bytes(b"one")
    when = moment()
    path.write_bytes(b"two")
    result = any_mount.tool("vrevert", path, "--time", epoch(when), status=1, user=SECOND)
    assert "ermi" in result.stdout and path.read_bytes() == b"two"


def test_an_ordinary_user_reverts_their_own(user_mount):
    path = user_mount.path / "f"

    def work():
        path.write_bytes(b"one")
        path.chmod(0o600)
        when = moment()
        path.unlink()
        return when

    when = as_user(work, *NOBODY)
    user_mount.tool("vrevert", path, "--time", epoch(when))
    assert as_user(path.read_bytes, *NOBODY) == b"one"


def test_several_paths(mount):
    """All are reverted to the same moment; a failure does not stop the others, and each is reported."""
    for name in ("a", "b", "c"):
        (mount.path / name).write_bytes(b"old")
    when = moment()
    for name in ("a", "b"):
        (mount.path / name).write_bytes(b"new")
    (mount.path / "c").unlink()
    paths = [mount.path / name for name in ("a", "b", "c")]
    dry = mount.tool("vrevert", "-n", *paths, "--time", epoch(when)).stdout
    assert dry.count("would revert") == 3 and (mount.path / "a").read_bytes() == b"new"
    text = mount.tool("vrevert", paths[0], mount.path / "never", paths[1], "--time", epoch(when), status=1).stdout
    assert "never" in text and text.count("undo: vrevert") == 2
    assert [(mount.path / name).read_bytes() for name in ("a", "b")] == [b"old", b"old"]
    result = mount.tool("vrevert", "--json", *paths, "--time", epoch(when), merge=False)
    answer = [json.loads(line) for line in result.stdout.splitlines()]
    assert [part["path"] for part in answer] == [str(path) for path in paths]
    assert {nanoseconds(part) for part in answer} == {when} and answer[2]["counts"]["restore"] == 1
    assert (mount.path / "c").read_bytes() == b"old"
    result = mount.tool("vrevert", "--json", mount.path / "never", paths[0], "--time", epoch(when), status=1,
                        merge=False)
    failed, done = map(json.loads, result.stdout.splitlines())
    assert failed["error"]["path"] == str(mount.path / "never") and done["path"] == str(paths[0])
    # An age is one instant for all of them.
    result = mount.tool("vrevert", "-n", "--json", *paths, "--time", "0s", merge=False)
    answer = [json.loads(line) for line in result.stdout.splitlines()]
    assert len({nanoseconds(part) for part in answer}) == 1


def test_usage_errors(mount):
    path = mount.path / "f"
    path.write_bytes(b"x")
    for arguments in ((path,), (), (path, "--time", "never ever"), (path, "--change", "0"),
                      (path, "--time", "1m", "--change", "2"), (path, "--time", "in the future")):
        mount.tool("vrevert", *arguments, status=2)
    late = str(int(time.time()) + 3600)
    assert "future" in mount.tool("vrevert", path, "--time", late, status=2).stdout
    mount.tool("vrevert", mount.path / "never", "--time", "1s", status=1)
    mount.tool("vrevert", "/usr/bin", "--time", "1s", status=1)
    mount.tool("vrevert", mount.path / "f@1s", "--time", "1s", status=1)
    assert path.read_bytes() == b"x"


def test_a_file_in_the_way_of_a_directory_and_the_other_way_round(any_mount):
    root = any_mount.path
    (root / "x").mkdir()
    (root / "x" / "f").write_bytes(b"f")
    (root / "y").write_bytes(b"y")
    when, state = moment(), state_of(root)
    os.rename(root / "y", root / "z")
    os.rename(root / "x", root / "y")
    os.rename(root / "z", root / "x")
    any_mount.tool("vrevert", root, "--time", epoch(when))
    assert differences(state, state_of(root)) == []


def test_content_that_only_looks_untouched_is_restored(mount):
    """As long and as old as it was, but overwritten meanwhile: times can be set, history cannot."""
    path = mount.path / "big"
    data = os.urandom(3 << 20)
    path.write_bytes(data)
    times = path.stat().st_atime_ns, path.stat().st_mtime_ns
    when = moment()
    with open(path, "r+b") as stream:
        stream.seek(1 << 20)
        stream.write(b"overwritten")
    os.utime(path, ns=times)
    os.rename(path, mount.path / "elsewhere")
    (mount.path / "elsewhere").unlink()
    mount.tool("vrevert", path, "--time", epoch(when))
    assert path.read_bytes() == data
    os.utime(path, ns=times)
    again = moment()
    with open(path, "r+b") as stream:
        stream.write(b"overwritten")
    os.utime(path, ns=times)
    path.chmod(0o600)
    mount.tool("vrevert", path, "--time", epoch(again))
    assert path.read_bytes() == data


def test_what_another_mount_shows_is_left_alone(mount):
    """Not even with names that the history knows: nothing would record what happens to it."""
    root = mount.path
    (root / "kept").mkdir()
    (root / "kept" / "f").write_bytes(b"old")
    when = moment()
    (root / "kept" / "f").write_bytes(b"new")
    (root / "build" / "deep").mkdir(parents=True)
    for place in (root / "build", root / "kept", root / "build" / "deep"):
        run("mount", "-t", "tmpfs", "tmpfs", place)
        try:
            (place / "f").write_bytes(b"present")
            (place / "sub").mkdir()
            for words in (["-n"], []):
                said = mount.tool("vrevert", root, "--time", epoch(when), *words, status=1).stdout
                assert f"{place}: another file system is mounted here; unmount it, then run this again" in said
                assert (place / "f").read_bytes() == b"present" and (place / "sub").is_dir()
        finally:
            run("umount", place)
    mount.tool("vrevert", root, "--time", epoch(when))
    assert (root / "kept" / "f").read_bytes() == b"old" and not (root / "build").exists()
