# SPDX-License-Identifier: LGPL-2.1-or-later
"""Snapshots of ordinary users: they protect their directory only, are deleted when space is short, and take nobody's
name."""
import errno
import json
import os
import random
import re
import time

import pytest

from mounts import NOBODY, SECOND, as_user, moment, sync_tree
from test_forget import found_in_store
from test_keeper import HOUR, MIB, configure, horizon, is_gone, look, taken, wait_for
from test_prune import aging
from treestate import differences, state_of

SENTINEL = b"a-deleted-file-that-nobody-protects"


def shared(maker, *options, shifted=True):
    mount = aging(maker) if shifted else maker.mount("allow_other")
    for name, user in (("theirs", NOBODY), ("others", SECOND)):
        (mount.path / name).mkdir()
        os.chown(mount.path / name, *user)
    return mount


@pytest.fixture(name="mount")
def fixture_mount(maker):
    return shared(maker, shifted=False)


def write_as(mount, user, path, data):
    as_user(lambda: (mount.path / path).write_bytes(data), *user)


def snapshots(mount, user=None, path=None):
    text = mount.tool("vsnap", "list", "--json", path or mount.path, user=user).stdout
    return [(entry["name"], entry["uid"]) for entry in json.loads(text)["snapshots"]]


# ---- protection --------------------------------------------------------------------------------------

def churn(mount, rng, limit, path="work", steps=24):
    for step in range(steps):
        (mount.path / path).write_bytes(rng.randbytes(MIB))
        (mount.path / path).unlink()
        sync_tree(mount.source)
        wait_for(lambda: taken(mount) < 2 * limit, f"it keeps up, step {step}", mount)  # pylint: disable=W0640


def test_one_of_an_empty_directory_does_not_stop_forgetting(mount):
    mount.expect("was forgotten|more than 90 %")
    limit = 6 * MIB
    mount.tool("vsnap", "create", "mine", mount.path / "theirs", user=NOBODY)
    (mount.path / "gone").write_bytes(SENTINEL * 1000)
    (mount.path / "gone").unlink()
    configure(mount, "compact = none", f"max-size = {limit}")
    churn(mount, random.Random(1), limit)
    wait_for(lambda: taken(mount) <= limit * 1.05, "within the size", mount)
    wait_for(lambda: not found_in_store(mount, SENTINEL), "history that it does not cover is removed", mount)


def test_they_are_deleted_for_max_size_and_the_daemon_says_so(mount):
    """If the directory itself takes the space."""
    mount.expect("was forgotten|more than 90 %|low space: max-size|all remaining history is protected")
    limit, rng = 6 * MIB, random.Random(2)
    write_as(mount, NOBODY, "theirs/big", rng.randbytes(4 * MIB))
    write_as(mount, SECOND, "others/f", b"one")
    moment()
    mount.tool("vsnap", "create", "mine", mount.path / "theirs", user=NOBODY)
    mount.tool("vsnap", "create", "roots", mount.path / "others")
    was = state_of(mount.path / "others")
    write_as(mount, SECOND, "others/f", b"two")
    configure(mount, "compact = none", f"max-size = {limit}")
    for _ in range(5):
        write_as(mount, NOBODY, "theirs/big", rng.randbytes(4 * MIB))
        sync_tree(mount.source)
        look(mount)
    wait_for(lambda: "low space: max-size" in mount.log(), "the snapshot is deleted", mount)
    wait_for(lambda: taken(mount) <= limit * 1.1, "within the size", mount)
    assert f"theirs: deleting the snapshot mine of user {NOBODY[0]}, of " in mount.log()
    # That of root is not.
    assert snapshots(mount) == [("roots", 0)]
    assert differences(was, state_of(mount.path / "others@roots")) == []


def test_they_are_kept_while_other_history_can_be_removed(mount):
    mount.expect("was forgotten|more than 90 %")
    limit, rng = 8 * MIB, random.Random(3)
    write_as(mount, NOBODY, "theirs/f", rng.randbytes(MIB))
    was = state_of(mount.path / "theirs")
    mount.tool("vsnap", "create", "mine", mount.path / "theirs", user=NOBODY)
    write_as(mount, NOBODY, "theirs/f", rng.randbytes(MIB))
    configure(mount, "compact = none", f"max-size = {limit}")
    churn(mount, rng, limit, steps=16)
    wait_for(lambda: taken(mount) <= limit * 1.05, "within the size", mount)
    assert snapshots(mount) == [("mine", NOBODY[0])]
    assert differences(was, state_of(mount.path / "theirs@mine")) == []


def test_an_age_is_not_shortened_by_it(maker):
    """History protected by keep is kept, so there is no reason to delete a snapshot."""
    mount = shared(maker)
    mount.expect("all remaining history is protected|more than 90 %")
    rng = random.Random(4)
    write_as(mount, NOBODY, "theirs/f", b"one")
    mount.tool("vsnap", "create", "mine", mount.path / "theirs", user=NOBODY)
    configure(mount, "compact = none", "keep = 1h", f"max-size = {2 * MIB}")
    for _ in range(4):
        write_as(mount, NOBODY, "theirs/f", rng.randbytes(MIB))
    sync_tree(mount.source)
    look(mount)
    wait_for(lambda: "all remaining history is protected" in mount.log(), "it is reported", mount)
    assert snapshots(mount) == [("mine", NOBODY[0])]
    mount.expect("low space|was forgotten")
    mount.programs.set(3 * HOUR)
    look(mount)
    wait_for(lambda: snapshots(mount) == [], "it is past its age", mount)


def test_root_prunes_around_them(maker):
    mount = shared(maker)
    mount.expect("was forgotten|is no more, and no record|is at none of|is not in the store|the clock is")
    (mount.path / "f").write_bytes(b"one")
    write_as(mount, NOBODY, "theirs/f", b"one")
    mount.tool("vsnap", "create", "mine", mount.path / "theirs", user=NOBODY)
    was = state_of(mount.path / "theirs")
    (mount.path / "gone").write_bytes(SENTINEL * 1000)
    (mount.path / "gone").unlink()
    write_as(mount, NOBODY, "theirs/f", b"two")
    moment()
    known = state_of(mount.path)
    later = moment()
    (mount.path / "f").write_bytes(b"two")
    mount.programs.set(2 * HOUR)
    mount.tool("vprune", "-y", "--before", "1h", mount.path)
    assert not found_in_store(mount, SENTINEL)
    assert differences(was, state_of(mount.path / "theirs@mine")) == []
    assert (mount.path / "f").read_bytes() == b"two"
    with pytest.raises(OSError) as caught:
        (mount.at(later) / "f").read_bytes()
    assert caught.value.errno == errno.EIO
    assert known
    mount.check_store()
    # A snapshot of root's prevents the pruning.
    mount.tool("vsnap", "create", "roots", mount.path / "others")
    mount.programs.set(4 * HOUR)
    assert "not pruned: 1 snapshot" in mount.tool("vprune", "-y", "--before", "1h", mount.path, status=1).stdout
    mount.tool("vsnap", "delete", "roots", mount.path)
    mount.tool("vsnap", "delete", "mine", mount.path, user=NOBODY)
    mount.tool("vprune", "-y", "--before", "1h", mount.path)
    assert horizon(mount) > 0 and is_gone(mount, later)


def test_there_is_a_quota(mount):
    with open(mount.store() / "wayback.conf", "a", encoding="ascii") as stream:
        stream.write("\n[snapshots]\nuser-snapshots = 2\n")
    look(mount)

    def create(number, user):
        return mount.run_tool("vsnap", "create", f"n{number}", mount.path / ("theirs" if user == NOBODY else "others"), user=user)

    wait_for(lambda: create(len(snapshots(mount)), NOBODY).returncode, "the new quota", mount)
    while len(snapshots(mount)) > 2:
        mount.tool("vsnap", "delete", snapshots(mount)[-1][0], mount.path, user=NOBODY)
    assert "maximum number of snapshots of one user" in create(9, NOBODY).stdout
    assert create(0, SECOND).returncode == 0
    assert mount.tool("vsnap", "create", "roots", mount.path)
    mount.tool("vsnap", "delete", snapshots(mount, NOBODY)[0][0], mount.path, user=NOBODY)
    assert create(9, NOBODY).returncode == 0


def check_config(mount, *lines):
    (mount.store() / "wayback.conf").write_text("\n".join(lines) + "\n", encoding="ascii")
    return mount.run_tool("wayback", "--check-config", mount.source)


def test_the_quota_is_explained(mount):
    listed = check_config(mount, "[snapshots]", "user-snapshots = 7").stdout
    assert re.search(r"^user-snapshots +7 +1024 +The number of snapshots that each ordinary user may", listed, re.M)
    for value in ("x", "-1", "99999", ""):
        result = check_config(mount, "[snapshots]", f"user-snapshots = {value}")
        assert result.returncode != 0 and "user-snapshots" in result.stdout
    assert "did you mean user-snapshots" in check_config(mount, "[snapshots]", "user-snapshot = 7").stdout


# ---- names ------------------------------------------------------------------------------------------

def test_nobody_takes_a_name_from_another(mount):
    for path, text in (("theirs/f", b"one"), ("others/f", b"one")):
        (mount.path / path).write_bytes(text)
    mount.tool("vsnap", "create", "daily", mount.path / "theirs", user=NOBODY)
    moment()
    (mount.path / "others/f").write_bytes(b"two")
    mount.tool("vsnap", "create", "daily", mount.path / "others", user=SECOND)
    moment()
    (mount.path / "f").write_bytes(b"root")
    for path in ("theirs/f", "others/f"):
        (mount.path / path).write_bytes(b"three")
    assert snapshots(mount) == [("daily", NOBODY[0]), ("daily", SECOND[0])]
    for _ in range(2):
        assert (mount.path / "theirs/f@daily").read_bytes() == b"one"
        assert (mount.path / "theirs@daily/f").read_bytes() == b"one"
        assert (mount.path / "others/f@daily").read_bytes() == b"two"
        assert (mount.path / "others@daily/f").read_bytes() == b"two"
        assert (mount.path / "others/.snapshot/daily/f").read_bytes() == b"two"
        assert sorted(os.listdir(mount.path / "others/.snapshot")) == ["daily"]
        assert not (mount.path / "f@daily").exists()
        mount.remount()
    # Root's is meant from then on, in every place.
    mount.tool("vsnap", "create", "daily", mount.path)
    assert (mount.path / "theirs/f@daily").read_bytes() == b"three"
    assert (mount.path / "f@daily").read_bytes() == b"root"
    assert os.listdir(mount.path / "others/.snapshot") == ["daily"]
    assert (mount.path / "others/.snapshot/daily/f").read_bytes() == b"three"
    # And nobody can have that name now except its owner.
    assert "a snapshot of that name exists" in mount.run_tool("vsnap", "create", "daily", mount.path / "theirs",
                                                               user=NOBODY).stdout
    mount.tool("vsnap", "create", "mine", mount.path / "theirs", user=NOBODY)
    mount.tool("vsnap", "rename", "mine", "daily", mount.path, user=NOBODY, status=1)
    mount.tool("vsnap", "delete", "daily", mount.path)
    assert snapshots(mount)[:2] == [("daily", NOBODY[0]), ("daily", SECOND[0])]
    assert (mount.path / "theirs/f@daily").read_bytes() == b"one"
    mount.check_store()


def test_each_deletes_and_renames_their_own(mount):
    for path, user in (("theirs", NOBODY), ("others", SECOND)):
        mount.tool("vsnap", "create", "daily", mount.path / path, user=user)
    said = mount.tool("vsnap", "delete", "daily", mount.path, status=1).stdout
    assert "several users have a snapshot of that name" in said and "setpriv" in said
    assert len(snapshots(mount)) == 2
    mount.tool("vsnap", "rename", "daily", "older", mount.path, user=SECOND)
    mount.tool("vsnap", "create", "older", mount.path / "theirs", user=NOBODY)
    assert sorted(snapshots(mount)) == sorted([("daily", NOBODY[0]), ("older", SECOND[0]), ("older", NOBODY[0])])
    mount.tool("vsnap", "delete", "older", mount.path, user=SECOND)
    assert sorted(snapshots(mount)) == [("daily", NOBODY[0]), ("older", NOBODY[0])]
    mount.tool("vsnap", "delete", "daily", mount.path)
    assert snapshots(mount) == [("older", NOBODY[0])]


def test_the_tools_mean_the_same_as_the_path(mount):
    for path, user, text in (("theirs", NOBODY, b"one"), ("others", SECOND, b"two")):
        write_as(mount, user, f"{path}/f", text)
        mount.tool("vsnap", "create", "daily", mount.path / path, user=user)
        moment()
        write_as(mount, user, f"{path}/f", b"later")
    for path, user, text in (("theirs", NOBODY, b"one"), ("others", SECOND, b"two")):
        mount.tool("vrevert", "--time", "daily", mount.path / path / "f", user=user)
        assert (mount.path / path / "f").read_bytes() == text
        shown = mount.tool("vsnap", "show", "--json", "daily", mount.path / path, user=user).stdout
        assert json.loads(shown)["snapshots"][0]["uid"] == user[0]


def test_a_schedule_is_not_deprived_of_its_names(mount):
    """A user may make the next ones before the schedule does."""
    for second in range(60):
        name = time.strftime("every-%Y-%m-%d_%H%M%S", time.localtime(time.time() + second))
        mount.tool("vsnap", "create", name, mount.path / "theirs", user=NOBODY)
    with open(mount.store() / "wayback.conf", "a", encoding="ascii") as stream:
        stream.write("\n[snapshots]\nevery = 1s:3\n")
    look(mount)

    def automatic():
        (mount.path / "f").write_bytes(b"x")
        text = mount.tool("vsnap", "list", "--json", mount.path).stdout
        return [entry["name"] for entry in json.loads(text)["snapshots"] if entry["automatic"]]

    wait_for(automatic, "one is made", mount)
    assert not [name for name in automatic() if name.endswith("-2")]
