# SPDX-License-Identifier: LGPL-2.1-or-later
"""vrm --before: the states of a path before a moment are gone in every place; its later states are as they were."""
import errno
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "crash"))

# pylint: disable=wrong-import-position
from history_model import History
from mounts import NOBODY, QUICK, SECOND, as_user, epoch, moment, nanoseconds, sync_tree
from operations import Operator
from test_close import Syncing
from test_forget import SECRET, found_in_store, make_secrets
from treestate import differences, state_of

STEPS = 60 if QUICK else 130
NAME = "the-name-nobody-must-find-again"


def found_anywhere(mount, *needles):
    """In the files of the store as they are, and when its logs are unpacked."""
    found = found_in_store(mount, *needles)
    mount.tool("vcompact", "--undo", mount.path)
    return found + found_in_store(mount, *needles)


def refused(path):
    with pytest.raises(OSError) as caught:
        Path(path).read_bytes()
    return caught.value.errno


def clean(mount):
    mount.stop()
    assert "clean" in mount.tool("vfsck", mount.source).stdout
    mount.start()


def test_a_file_keeps_its_later_states(any_mount):
    mount = any_mount
    path, when = make_secrets(mount.path)
    (mount.path / "other").write_bytes(b"one")
    (mount.path / "large").write_bytes(SECRET * 100_000)
    (mount.path / "large").write_bytes(b"L" * 3_300_000)
    sync_tree(mount.source)
    known, was = moment(), state_of(mount.path)
    moment()
    path.write_bytes(b"since")
    (mount.path / "other").write_bytes(b"two")
    with open(mount.path / "large", "r+b") as stream:
        stream.seek(1_000_001)
        stream.write(b"since" * 100_000)
    mount.tool("vcompact", mount.path)
    mount.expect("erased")
    would = json.loads(mount.tool("vrm", "-n", "--json", "--before", epoch(known), path).stdout)
    assert would["versions"] == 6 and would["dry_run"]
    for name in ("secret", "large"):
        did = json.loads(mount.tool("vrm", "-y", "--json", "--before", epoch(known), mount.path / name).stdout)
        assert nanoseconds(did["before"]) == known and did["objects"] >= 1
    assert found_anywhere(mount, SECRET) == []
    assert differences(was, state_of(mount.at(known))) == []
    assert path.read_bytes() == b"since"
    assert refused(mount.at(when, "secret")) in (errno.EIO, errno.ENOENT)
    assert refused(mount.path / f"large@{epoch(when)}") in (errno.EIO, errno.ENOENT)
    assert mount.tool("vstat", path).stdout.count("\n") >= 2
    mount.remount()
    assert differences(was, state_of(mount.at(known))) == []
    path.write_bytes(b"and on it goes")
    assert (mount.path / "secret@~1").read_bytes() == b"since"
    clean(mount)
    assert differences(was, state_of(mount.at(known))) == []


def test_older_states_are_refused_with_a_reason(mount):
    path = mount.path / "file"
    path.write_bytes(b"one")
    when = moment()
    path.write_bytes(b"two")
    (mount.path / "beside").write_bytes(b"stays")
    known = moment()
    moment()
    path.write_bytes(b"three")
    mount.expect("was erased")
    old = open(mount.path / f"file@{epoch(when)}", "rb", buffering=0)  # pylint: disable=consider-using-with
    mount.tool("vrm", "-y", "--before", epoch(known), path)
    assert refused(mount.path / f"file@{epoch(when)}") == errno.EIO
    with old, pytest.raises(OSError):
        old.read(3)
    assert (mount.path / f"file@{epoch(known)}").read_bytes() == b"two"
    assert (mount.path / f"beside@{epoch(known)}").read_bytes() == b"stays"
    # again, at an earlier and at a later moment
    mount.tool("vrm", "-y", "--before", epoch(when), path)
    assert (mount.path / f"file@{epoch(known)}").read_bytes() == b"two"
    mount.tool("vrm", "-y", "--before", "0s", path)
    assert refused(mount.path / f"file@{epoch(known)}") == errno.EIO
    assert path.read_bytes() == b"three"
    clean(mount)


def make_tree(top):
    """Below `top`: secrets in content, names, extended attributes and link targets, of existing and of deleted
    files."""
    (top / "sub").mkdir(parents=True)
    make_secrets(top)
    make_secrets(top / "sub", "deeper")
    (top / "gone").write_bytes(SECRET)
    (top / "gone").unlink()
    (top / NAME).mkdir()
    (top / NAME / "file").write_bytes(SECRET * 10)
    (top / NAME / "file").unlink()
    (top / NAME).rmdir()
    (top / f"{NAME}2").mkdir()
    (top / f"{NAME}2" / "kept").write_bytes(b"kept")
    os.setxattr(top / "sub", "user.note", SECRET)
    os.removexattr(top / "sub", "user.note")
    os.symlink(SECRET, top / "link")
    (top / "link").unlink()
    os.rename(top / f"{NAME}2", top / "renamed")
    (top / "renamed/kept").write_bytes(b"kept, too")


@pytest.mark.parametrize("kind, packed", [("ext4", True), ("xfs", False)])
def test_a_directory_with_all_below_it(maker, kind, packed):
    mount = maker.mount("allow_other", kind=kind)
    make_tree(mount.path / "dir")
    (mount.path / "beside").write_bytes(b"one")
    subprocess.run(["/bin/sh", "-c", ": " + SECRET.decode() + "; echo x > dir/by", "sh", SECRET.decode()],
                   cwd=mount.path, check=True)
    when = moment()
    (mount.path / "dir/late").write_bytes(b"late")
    known, was = moment(), state_of(mount.path)
    moment()
    (mount.path / "dir/late").unlink()
    (mount.path / "dir/secret").write_bytes(b"since")
    (mount.path / "dir/renamed/kept").unlink()
    (mount.path / "dir/renamed").rmdir()
    os.rename(mount.path / "dir/sub", mount.path / "dir/elsewhere")
    later = moment(), state_of(mount.path)
    moment()
    (mount.path / "beside").write_bytes(b"two")
    if packed:
        mount.tool("vcompact", mount.path)
    needles = SECRET, NAME.encode()
    assert found_in_store(mount, SECRET)
    assert "use -r" in mount.tool("vrm", "-y", "--before", epoch(known), mount.path / "dir", status=1).stdout
    mount.expect("erased")
    mount.tool("vrm", "-y", "-r", "--before", epoch(known), mount.path / "dir")
    assert found_anywhere(mount, *needles) == []
    for _ in range(2):
        assert differences(was, state_of(mount.at(known))) == []
        assert differences(later[1], state_of(mount.at(later[0]))) == []
        assert refused(mount.at(when, "dir/by")) == errno.EIO
        assert mount.at(when, "beside").read_bytes() == b"one"
        mount.remount()
    clean(mount)
    assert not [body for body in mount.store().glob("objects/*/*.data") if SECRET in body.read_bytes()]


def readable(mount, known):
    """{path: content} of the files of that moment that are shown."""
    shown = {}
    for path, entry in known.state.items():
        if entry.kind == "f":
            try:
                shown[path] = mount.at(known.when, path).read_bytes()
            except OSError as error:
                assert error.errno in (errno.EIO, errno.ENOENT, errno.ENOTDIR), error
    return shown


@pytest.mark.parametrize("seed", range(2 if QUICK else 4))
def test_later_states_are_exact_in_any_history(maker, seed):
    closing = seed % 2
    mount = maker.mount("allow_other", *(["history=close"] if closing else []), kind="xfs" if seed % 4 > 1 else "ext4")
    history = History(mount, seed, operator=Syncing if closing else Operator)
    history.work(STEPS, kill=False, snapshots=False)
    mount.expect(".")
    for turn in range(3):
        known = history.random.choice(history.moments[len(history.moments) // 3:])
        paths = [path for path, entry in history.moments[-1].state.items() if path and entry.kind in "fd"]
        if turn == 1:
            mount.tool("vcompact", mount.path)
        for path in history.random.sample(paths, min(len(paths), 3)):
            before = {one.when: readable(mount, one) for one in history.sample(6)}
            history.lines.append(f"-- vrm --before {epoch(known.when)} {path}")
            mount.tool("vrm", "-y", "-r", "--before", epoch(known.when), mount.path / path)
            for one in history.sample(6):
                now = readable(mount, one)
                if one.when in before:
                    assert all(before[one.when].get(name) == data for name, data in now.items())
        for one in history.moments:
            if one.when >= known.when:
                history.explain(one, state_of(mount.at(one.when)), "after vrm --before")
        history.moments = [one for one in history.moments if one.when >= known.when]
        history.work(STEPS // 4, kill=False, snapshots=False)
    clean(mount)


def test_versions_expired_by_age_are_not_missed(mount):
    """Files that replaced each other, of which the oldest expired: no log is begun for a file that is nowhere any
    more."""
    path, whens = mount.path / "file", []
    for number in range(7):
        (mount.path / "new").write_bytes(b"%d" % number)
        os.rename(mount.path / "new", path)
        whens.append(moment())
        moment()
    mount.tool("vprune", "-y", "--before", epoch(whens[2]), mount.path)
    mount.tool("vrm", "-y", "--before", epoch(whens[4]), path)
    for number, when in enumerate(whens[5:], 5):
        assert (mount.path / f"file@{epoch(when)}").read_bytes() == b"%d" % number
    mount.check_store()
    mount.stop()
    assert "clean" in mount.tool("vfsck", mount.source).stdout


def test_only_the_owner_or_root_may(mount):
    mount.path.chmod(0o777)
    path = mount.path / "f"
    as_user(lambda: path.write_bytes(b"one"), *SECOND)
    when = moment()
    as_user(lambda: path.write_bytes(b"two"), *SECOND)
    result = mount.run_tool("vrm", "-y", "--before", "0s", path, user=NOBODY)
    assert result.returncode == 1 and "not permitted" in result.stdout
    assert mount.at(when, "f").read_bytes() == b"one"
    mount.expect("erased")
    mount.tool("vrm", "-y", "--before", "0s", path, user=SECOND)
    assert refused(mount.at(when, "f")) == errno.EIO
    for arguments, status, text in ((("--before", "~1"), 2, "counts versions"), (("--before", "2099-01-01"), 2, "future"),
                                    (("-y", "--before", "0s"), 1, "vprune --before")):
        assert text in mount.tool("vrm", *arguments, mount.path, status=status).stdout
    mount.tool("vrm", "-y", "--before", "0s", mount.path / "never", status=1)


def test_with_a_damaged_catalog_nothing_is_removed_that_may_be_needed(mount):
    (mount.path / "dir").mkdir()
    (mount.path / "dir/file").write_bytes(b"here")
    (mount.path / "gone").write_bytes(b"was here" * 1000)
    (mount.path / "gone").unlink()
    mount.stop()
    for path in mount.store().glob("objects/*/*.cat"):
        data = bytearray(path.read_bytes())
        if b"file" in data:
            data[200] ^= 0xff
            path.write_bytes(data)
    mount.expect(".")
    mount.start()
    assert "catalog" in mount.tool("vrm", "-y", "--before", "0s", mount.path / "gone", status=1).stdout
    assert list(mount.store().glob("objects/*/*.data"))


def test_killed_at_any_call(maker):
    if os.uname().machine != "x86_64":
        pytest.skip("the tracer knows no other registers")
    import crash  # pylint: disable=import-outside-toplevel
    mount = maker.mount("allow_other", made=crash.Traced)
    mount.expect(".")
    rng = random.Random(11)
    calls = 0
    for turn in range(5 if QUICK else 10):
        top = mount.path / f"dir{turn}"
        make_tree(top)
        known, was = moment(), state_of(mount.path)
        moment()
        (top / "secret").write_bytes(b"since")
        (top / "renamed/kept").unlink()
        if turn % 2:
            mount.tool("vcompact", mount.path)
        target = rng.randrange(1, calls + 1) if turn else crash.FOREVER
        mount.control.arm(crash.CHANGES, crash.KILL, target)
        mount.run_tool("vrm", "-y", "-r", "--before", epoch(known), top)
        met = mount.control.disarm()
        calls = calls if turn else met
        if mount.is_dead():
            mount.kill(check=False)
            mount.start()
        assert differences(was, state_of(mount.at(known))) == [], target
        mount.tool("vrm", "-y", "-r", "--before", epoch(known), top)
        assert found_anywhere(mount, SECRET, NAME.encode()) == [], target
        assert differences(was, state_of(mount.at(known))) == [], target
    clean(mount)


@pytest.mark.parametrize("back", range(1, 13, 6 if QUICK else 3))
def test_killed_at_the_last_calls_nothing_is_left_of_a_deleted_file(maker, back):
    """Neither its log nor another that begins anew, although the catalog that names it continues."""
    if os.uname().machine != "x86_64":
        pytest.skip("the tracer knows no other registers")
    import crash  # pylint: disable=import-outside-toplevel
    mount = maker.mount("allow_other", made=crash.Traced)
    mount.expect(".")
    calls = crash.FOREVER
    # The very first erasure of a store makes files that the others find: it is the second that is counted. Work in the
    # background meanwhile counts as well, so that another may have fewer: then it is the next one's turn.
    for turn in range(20):
        path, _ = make_secrets(mount.path, f"erased{turn}")
        path.chmod(0o600)
        path.unlink()
        moment()
        mount.control.arm(crash.CHANGES, crash.KILL, calls - back if turn > 1 else crash.FOREVER)
        mount.run_tool("vrm", "-y", "--before", "0s", path)
        calls = mount.control.disarm()
        if mount.is_dead():
            break
    assert mount.is_dead()
    mount.kill(check=False)
    mount.start()
    mount.run_tool("vrm", "-y", "--before", "0s", path)
    assert found_anywhere(mount, SECRET) == []
    clean(mount)


def test_a_note_about_a_restored_file_is_withdrawn(maker):
    """vrm was killed after it had noted which file it was going to erase; then that file was restored."""
    mount = maker.mount("allow_other")
    path = mount.path / "f"
    path.write_bytes(b"one")
    path.write_bytes(b"two")
    when = moment()
    path.unlink()
    grave, = mount.source.glob(".wayback/objects/*/*.data")
    grave.with_suffix(".gone").touch(mode=0o600)
    mount.tool("vrevert", "--time", epoch(when), path)
    assert path.read_bytes() == b"two" and not grave.exists()
    os.rename(path, mount.path / "h")
    (mount.path / "h").write_bytes(b"three")
    third = moment()
    (mount.path / "h").write_bytes(b"four!")
    mount.tool("vrm", "-y", path)
    mount.expect("was erased")
    with pytest.raises(OSError):
        (mount.path / f"h@{epoch(third)}").read_bytes()
    mount.check_store()
