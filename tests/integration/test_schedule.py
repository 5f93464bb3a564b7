# SPDX-License-Identifier: LGPL-2.1-or-later
"""wayback.conf and automatic snapshots: made, counted, left out, and never an obstacle."""
import json
import os
import re
import signal
import stat
import time

import pytest

from mounts import LIMIT, nanoseconds
from treestate import differences, state_of


def snapshots(mount):
    """{name: moment} of the existing ones, from the log: the newest record of a moment counts."""
    lines = mount.tool("vdump", "--json", mount.store() / "snapshots").stdout.splitlines()
    found = {}
    for record in map(json.loads, lines):
        assert record["type"] == "SNAPSHOT", record
        found[nanoseconds(record["moment"])] = record
    return {record["name"]: when for when, record in found.items() if record["present"]}


def configure(mount, *lines):
    """Write the file as an editor does: a new one replaces it."""
    path = mount.store() / "wayback.conf"
    new = path.with_name("wayback.conf~")
    new.write_text("\n".join(lines) + "\n", encoding="utf-8")
    os.replace(new, path)


def wait_for(condition, what):
    deadline = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {LIMIT} s"
        time.sleep(0.05)


def change(mount, text):
    (mount.path / "f").write_text(text, encoding="utf-8")


PACKED = "history: packed when idle for 300 s\n"


def meaning(result):
    """What --check-config says before its list of keys."""
    return result.stdout.partition("\nKEY ")[0]


def made(mount):
    return sorted(name for name in snapshots(mount) if name.startswith("every-"))


def test_a_new_store_gets_a_file_and_an_old_one_does_not(mount):
    path = mount.store() / "wayback.conf"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    result = mount.tool("wayback", "--check-config", mount.source)
    assert meaning(result) == (f"{path}: no mistake\nsnapshots: none automatically\n{PACKED}versions: keep 7d\n"
                               "versions: those replaced more than 7d ago are deleted when space runs low, except for "
                               "snapshots and everything since the oldest of these\nspace: at least 5% of the device are kept free\n"
                               "space: versions replaced less than 7d ago are never deleted for these limits\n")
    path.unlink()
    mount.remount()
    change(mount, "something")
    mount.remount()
    assert not path.exists()


def test_a_file_that_is_there_before_the_store_is_used_and_kept(maker):
    mount = maker.mount("allow_other", start=False)
    mount.store().mkdir(mode=0o700)
    configure(mount, "[snapshots]", "hourly = 3")
    mount.start()
    wait_for((mount.store() / "snapshots").exists, "the first snapshot")
    assert "hourly = 3" in (mount.store() / "wayback.conf").read_text()


def test_the_newest_are_kept_and_those_of_users_are_not_deleted(mount):
    configure(mount, "[snapshots]", "every = 1s:3")
    seen, round_ = set(), 0
    while len(seen) < 6:
        change(mount, str(round_))
        round_ += 1
        time.sleep(0.2)
        names = made(mount) if (mount.store() / "snapshots").exists() else []
        # One more than are kept exists while the oldest is deleted.
        assert len(names) <= 4
        seen.update(names)
        assert round_ < 300, f"only {seen} were made"
    # Of the last change, there may be another one meanwhile.
    left = []
    wait_for(lambda: left.append(made(mount)) or len(left[-1]) == 3, "the oldest are deleted")
    moments = snapshots(mount)
    assert left[-1] == sorted(seen | set(left[-1]))[-3:]
    assert sorted(moments, key=moments.get) == sorted(moments)


def test_a_named_state_is_as_it_was(mount):
    """A snapshot of a schedule shows the tree as it was, while many change it."""
    configure(mount, "[snapshots]", "every = 1s:100")
    states, number = [], 0
    deadline = time.monotonic() + LIMIT
    while len(states) < 2 or len(made(mount)) < 3:
        assert time.monotonic() < deadline
        number += 1
        (mount.path / f"f{number % 7}").write_text(str(number), encoding="utf-8")
        states.append((time.time_ns(), state_of(mount.path)))
        if not (mount.store() / "snapshots").exists():
            states = states[-1:]
    for name, when in snapshots(mount).items():
        # Between two observations only one file was written, so it is one of the two, or that file half written.
        before = [state for then, state in states if then <= when][-1:]
        if not before:
            continue
        found = state_of(mount.path / f"@{name}")
        changed = {line.split(":")[0] for line in differences(before[0], found)} - {"."}
        assert len(changed) <= 1, (name, changed)


def test_without_a_change_nothing_is_made(mount):
    change(mount, "one")
    configure(mount, "[snapshots]", "every = 1s:10")
    wait_for(lambda: (mount.store() / "snapshots").exists() and made(mount), "the first")
    first = made(mount)
    assert len(first) == 1
    (mount.path / "f").read_text(encoding="utf-8")
    time.sleep(2.5)
    assert made(mount) == first
    # Nor after another mount, nor after one that was killed.
    mount.remount()
    time.sleep(1.5)
    mount.kill()
    mount.start()
    time.sleep(1.5)
    assert made(mount) == first
    change(mount, "two")
    wait_for(lambda: len(made(mount)) == 2, "one for the change")


@pytest.mark.parametrize("leave", ["stop", "kill"])
def test_missed_snapshots_are_made_once_at_the_next_mount(mount, leave):
    configure(mount, "[snapshots]", "monthly = 5", "daily = 5")
    wait_for(lambda: (mount.store() / "snapshots").exists() and len(snapshots(mount)) == 2, "the first")
    first = snapshots(mount)
    for name in first:
        assert re.fullmatch(r"(daily|monthly)-\d{4}-\d\d-\d\d_\d{4}", name)
    change(mount, "after them")
    getattr(mount, leave)()
    # As if they had been made long ago: deleted, and so their day and their month have none.
    (mount.store() / "snapshots").unlink()
    for _ in range(2):
        mount.start()
        wait_for(lambda: (mount.store() / "snapshots").exists() and len(snapshots(mount)) == 2, "the missed snapshots")
        change(mount, "later")
        mount.stop()
    assert len(snapshots(mount)) == 2


def test_a_bad_file_is_reported_and_the_former_settings_apply(mount):
    mount.expect(r"wayback\.conf:\d+:\d+: ")
    mount.expect(r"wayback\.conf: not used; the former settings remain until it is corrected")
    configure(mount, "[snapshots]", "every = 1s:5")
    change(mount, "one")
    wait_for(lambda: (mount.store() / "snapshots").exists() and made(mount), "the first")
    configure(mount, "[snapshots]", "every = 0s:5", "hourlly = 3")
    mount.process.send_signal(signal.SIGHUP)
    wait_for(lambda: "not used" in mount.log(), "the complaint")
    assert "wayback.conf:2:9: every = 0s:5: invalid; use an interval from 1s to 24h" in mount.log()
    assert "wayback.conf:3:1: hourlly: no such key in [snapshots]; did you mean hourly?" in mount.log()
    before = len(made(mount))
    change(mount, "two")
    wait_for(lambda: len(made(mount)) > before, "another one by the old settings")


def test_a_bad_file_does_not_prevent_a_mount(mount):
    change(mount, "text")
    mount.stop()
    mount.expect(r"wayback\.conf:1:1: |wayback\.conf: not used; nothing is set until it is corrected")
    configure(mount, "hourly = 1")
    mount.start()
    assert (mount.path / "f").read_text(encoding="utf-8") == "text"
    wait_for(lambda: "nothing is set until it is corrected" in mount.log(), "the complaint")
    assert not (mount.store() / "snapshots").exists()
    # Noticed without a signal.
    configure(mount, "[snapshots]", "hourly = 1")
    wait_for((mount.store() / "snapshots").exists, "a look at the file")


def test_other_file_types_of_that_name_are_reported(mount):
    path = mount.store() / "wayback.conf"
    mount.expect(r"wayback\.conf: (not a regular file|longer than 1 MiB|not used)")
    path.unlink()
    os.mkfifo(path)
    mount.process.send_signal(signal.SIGHUP)
    wait_for(lambda: "not a regular file" in mount.log(), "the complaint")
    path.unlink()
    path.write_bytes(b"# x\n" * 300000)
    mount.process.send_signal(signal.SIGHUP)
    wait_for(lambda: "longer than 1 MiB" in mount.log(), "the complaint")


def test_read_only_mounts_make_none(mount, maker):
    change(mount, "text")
    mount.stop()
    configure(mount, "[snapshots]", "every = 1s:5")
    mount.start("ro")
    time.sleep(2.5)
    mount.stop()
    assert not (mount.store() / "snapshots").exists()
    past = maker.mount("at=0s", source=mount.source)
    time.sleep(1.5)
    past.stop()
    assert not (mount.store() / "snapshots").exists()


def test_the_check_lists_all_mistakes_and_the_settings_of_a_good_file(mount, tmp_path):
    path = tmp_path / "x.conf"
    path.write_text("[snapshots]\nhourly = 24\nat = 25:00\nfortnightly = 2\n", encoding="utf-8")
    result = mount.tool("wayback", "--check-config", path, status=1)
    assert result.stdout == (
        f"{path}:3:6: at = 25:00: invalid; use a time of day from 00:00 to 23:59, e.g. at = 03:30\n"
        f"{path}:4:1: fortnightly: no such key in [snapshots]; use one of hourly, daily, weekly, monthly, "
        "at, every, user-snapshots\n")
    path.write_text("[snapshots]\nhourly = 24\ndaily = 7\nat = 03:30\nevery = 10m:36\n", encoding="utf-8")
    result = mount.tool("wayback", "--check-config", path)
    assert meaning(result) == (f"{path}: no mistake\nsnapshots: hourly, the newest 24\n"
                               "snapshots: daily at 03:30, the newest 7\nsnapshots: every 600 s, the newest 36\n" + PACKED)
    assert "no such file" in mount.tool("wayback", "--check-config", tmp_path / "none", status=1).stdout
    assert mount.run_tool("wayback", "--check-config").returncode == 2
    assert mount.run_tool("wayback", "--config-path", path, path).returncode == 2


def test_the_file_is_found_below_a_mount_over_its_own_tree(maker):
    tree = maker.tree()
    mount = maker.mount("allow_other", source=tree, path=tree)
    assert not (tree / ".wayback").exists()
    path = mount.tool("wayback", "--config-path", tree).stdout.strip()
    with open(path, "w", encoding="utf-8") as stream:
        stream.write("[snapshots]\nmonthly = 3\n")
    result = mount.tool("wayback", "--check-config", tree)
    assert meaning(result) == f"{path}: no mistake\nsnapshots: monthly at 00:00, the newest 3\n{PACKED}"


def test_a_store_elsewhere_has_its_file_there(maker):
    elsewhere = maker.tree("xfs")
    mount = maker.mount("allow_other", f"store={elsewhere}/store")
    path = elsewhere / "store" / "wayback.conf"
    assert path.exists()
    for arguments in [("-o", f"store={elsewhere}/store", mount.source), (path,)]:
        assert str(path) in mount.tool("wayback", "--check-config", *arguments).stdout
    found = mount.tool("wayback", "--config-path", mount.path).stdout.strip()
    assert os.path.samefile(found, path)


def test_an_ordinary_user_has_snapshots_of_their_own_mount(user_mount):
    configure(user_mount, "[snapshots]", "every = 1s:2")
    os.chown(user_mount.store() / "wayback.conf", *user_mount.user)
    wait_for(lambda: (user_mount.store() / "snapshots").exists() and made(user_mount), "the first")
