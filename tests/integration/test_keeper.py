# SPDX-License-Identifier: LGPL-2.1-or-later
"""The keeper: history that wayback.conf releases is forgotten automatically, and nothing else is."""
import errno
import json
import os
import random
import shutil
import signal
import time

import pytest

from mounts import LIMIT, QUICK, moment, sync_tree
from preload import preloaded
from test_bundles import bundles, releases
from test_clock import Shifted
from test_forget import SECRET, found_in_store, make_secrets
from test_onfull import Device
from test_prune import Aging, aging
from thinning import at, write_versions
from treestate import differences, state_of

HOUR = 3600
KILLS = 4 if QUICK else 12


def write_config(mount, *lines):
    """As an editor does: no look at it finds half of it."""
    path = mount.store() / "wayback.conf"
    new = path.with_name("wayback.conf~")
    new.write_text("\n".join(("[history]",) + lines) + "\n", encoding="utf-8")
    os.replace(new, path)


def configure(mount, *lines):
    """In force soon; the daemon may read it twice, since it looks at the file at times and is then asked to."""
    write_config(mount, *lines)
    look(mount)


def configure_once(mount, *lines):
    """It is read once, at the beginning of another mount; so each report of it appears once."""
    mount.stop()
    write_config(mount, *lines)
    mount.start()


def look(mount):
    """A clock that was set forward wakes no thread."""
    mount.process.send_signal(signal.SIGHUP)


def wait_for(what, why, mount):
    deadline = time.monotonic() + LIMIT
    while not what():
        assert time.monotonic() < deadline, f"{why}: {mount.log()}"
        time.sleep(0.05)


def horizon(mount):
    """The horizon in the header: 0, or the moment before which everything was forgotten."""
    header = (mount.store() / "header").read_bytes()
    return int.from_bytes(header[48:56], "little") if header[12] & 1 else 0


def is_gone(mount, when):
    try:
        os.listdir(mount.at(when))
    except OSError as error:
        assert error.errno == errno.EIO
        return True
    return False


def test_expired_history_is_removed_automatically(maker):
    mount = aging(maker)
    _, when = make_secrets(mount.path)
    (mount.path / "deleted").write_bytes(SECRET * 100_000)
    (mount.path / "deleted").unlink()
    sync_tree(mount.source)
    configure(mount, "keep = 1h")
    mount.programs.set(HOUR // 2)
    (mount.path / "young").write_bytes(b"one")
    known, was = time.time_ns() + HOUR // 2 * 10**9, state_of(mount.path)
    moment()
    (mount.path / "young").write_bytes(b"two")
    look(mount)
    time.sleep(0.5)
    assert found_in_store(mount, SECRET) and not is_gone(mount, when) and horizon(mount) == 0
    mount.programs.set(HOUR + 600)
    look(mount)
    wait_for(lambda: not found_in_store(mount, SECRET), "versions older than an hour are removed", mount)
    assert is_gone(mount, when)
    assert differences(was, state_of(mount.at(known))) == []
    mount.check_store()
    mount.remount()
    assert differences(was, state_of(mount.at(known))) == []
    mount.stop()
    assert "clean" in mount.tool("vfsck", mount.source).stdout


def test_a_snapshot_is_kept_and_the_log_says_so(maker):
    mount = aging(maker)
    mount.expect("is kept for the snapshot")
    _, when = make_secrets(mount.path)
    mount.tool("vsnap", "create", "mine", mount.path)
    was = state_of(mount.path / "@mine")
    (mount.path / "secret").write_bytes(b"later")
    mount.programs.set(2 * HOUR)
    configure(mount, "keep = 1h")
    wait_for(lambda: "for the snapshot mine" in mount.log(), "the snapshot protects the history", mount)
    assert differences(was, state_of(mount.path / "@mine")) == []
    assert mount.log().count("for the snapshot mine") == 1
    mount.tool("vsnap", "delete", "mine", cwd=mount.path)
    look(mount)
    wait_for(lambda: is_gone(mount, when), "nothing protects it any more", mount)
    wait_for(lambda: not found_in_store(mount, SECRET), "nothing protects it any more", mount)


def test_without_an_age_nothing_is_removed(maker):
    mount = aging(maker)
    _, when = make_secrets(mount.path)
    mount.programs.set(1000 * HOUR)
    for lines in (["compact = none"], ["keep = forever"], ["keep = 1h", "keep-versions = 3.."]):
        configure(mount, *lines)
        time.sleep(0.2)
        assert horizon(mount) == 0 and not is_gone(mount, when)


def test_a_mistake_forgets_nothing(maker):
    mount = aging(maker)
    mount.expect("wayback.conf")
    _, when = make_secrets(mount.path)
    mount.programs.set(1000 * HOUR)
    configure(mount, "keep = 1h", "keep = 1h")
    wait_for(lambda: "not used" in mount.log(), "the mistake is reported", mount)
    time.sleep(0.2)
    assert horizon(mount) == 0 and not is_gone(mount, when)


def test_a_clock_that_is_set_ahead_makes_nothing_old(maker):
    """A new mount does not trust it either, though records have its time by then; the clock that is set back is
    trusted."""
    mount = aging(maker)
    mount.expect("the clock is .* ahead of")
    _, when = make_secrets(mount.path)
    was = state_of(mount.at(when))
    configure(mount, "keep = 2h")
    mount.programs.set(HOUR)
    mount.programs.set_wall(1000 * HOUR)
    (mount.path / "later").write_bytes(b"one")
    look(mount)
    wait_for(lambda: "the clock is 41d" in mount.log(), "it is reported", mount)
    for count in (2, 3):
        assert (mount.store() / "clock").exists()
        mount.remount()
        (mount.path / "later").write_bytes(b"two")
        wait_for(lambda times=count: mount.log().count("the clock is") == times, "it is reported again", mount)
        assert horizon(mount) == 0 and differences(was, state_of(mount.at(when))) == []
    assert "clean" in mount.tool("vfsck", mount.path).stdout
    ahead = moment() + 1000 * HOUR * 10**9
    (mount.path / "later").write_bytes(b"three")
    mount.programs.set_wall(HOUR + 60)
    look(mount)
    wait_for(lambda: not (mount.store() / "clock").exists(), "the clock is trusted again", mount)
    assert horizon(mount) == 0
    mount.programs.set(3 * HOUR)
    look(mount)
    wait_for(lambda: is_gone(mount, when), "expired versions are removed", mount)
    # A record with a time in the future has no age.
    assert (mount.at(ahead) / "later").read_bytes() == b"two" and horizon(mount) < ahead - 900 * HOUR * 10**9
    mount.check_store()


def test_a_clock_that_is_ahead_for_long_is_trusted_in_the_end(maker):
    mount = aging(maker)
    mount.expect("the clock is .* ahead of")
    _, when = make_secrets(mount.path)
    mount.stop()
    mount.programs.set_wall(1000 * HOUR)  # a machine that was off for long is no different
    (mount.store() / "wayback.conf").write_text("[history]\nkeep = 3h\n", encoding="ascii")
    mount.start()
    wait_for(lambda: "or for 3h, no additional history expires" in mount.log(), "it is reported", mount)
    assert horizon(mount) == 0 and not is_gone(mount, when)
    mount.programs.boot += 4 * HOUR
    mount.programs.set_wall(1004 * HOUR)
    look(mount)
    wait_for(lambda: is_gone(mount, when), "expired versions are removed", mount)
    assert not (mount.store() / "clock").exists()


def check_unless_forgotten(history, one):
    """As it was; or refused, if the keeper continued meanwhile: it refuses first, and writes so to the header then."""
    try:
        found = state_of(history.at(one))
    except OSError as error:
        assert error.errno == errno.EIO, one
        wait_for(lambda: horizon(history.mount) > one.when, f"{one.when} is refused and not forgotten", history.mount)
        return
    history.explain(one, found, "killed while it forgets")


@pytest.mark.parametrize("seed", [1])
def test_killed_while_it_forgets(maker, seed):
    """A state older than the horizon is refused, a later one is as it was, whenever the daemon dies."""
    mount = aging(maker)
    mount.expect("some expired history could not be deleted")
    history, rng = Aging(mount, seed), random.Random(seed)
    configure(mount, "keep = 10m")
    history.record("-- empty")
    for _ in range(KILLS):
        history.work(12, kill=False, snapshots=False)
        history.age()
        history.age()
        history.record("-- aged")
        look(mount)
        time.sleep(rng.random() ** 2 * 0.3)
        mount.kill()
        mount.start()
        since = horizon(mount)
        assert since == 0 or since <= time.time_ns() + (history.shift - 600) * 10**9
        for one in history.moments:
            if one.when >= since:
                check_unless_forgotten(history, one)
            else:
                assert is_gone(mount, one.when)
    history.age()
    history.age()
    history.age()
    look(mount)
    wait_for(lambda: horizon(mount) > history.moments[-3].when - 1, "the keeper continues", mount)
    mount.check_store()
    mount.stop()
    assert "clean" in mount.tool("vfsck", mount.source).stdout


def test_it_may_be_unmounted_while_it_forgets(maker):
    mount = maker.mount("allow_other", start=False)
    mount.programs = Shifted(mount.programs, maker.tree())
    mount.expect("was forgotten|the clock is .* ahead of")  # mounted again after three hours without a change
    mount.start()
    for number in range(200):
        (mount.path / f"f{number}").write_bytes(b"x" * 20_000)
        (mount.path / f"f{number}").write_bytes(b"y" * 20_000)
    when = moment()
    configure(mount, "keep = 1h")
    mount.programs.set(3 * HOUR)
    look(mount)
    wait_for(lambda: horizon(mount) > 0, "it begins", mount)
    mount.remount()
    assert is_gone(mount, when)
    listed = json.loads(mount.tool("vstat", "--json", mount.path / "f0").stdout)
    assert (listed[0] if isinstance(listed, list) else listed)["versions"] == []


# ---- space --------------------------------------------------------------------------------------

MIB = 1 << 20


def taken(mount):
    """Bytes of the blocks that the store takes."""
    total = 0
    for directory, _, names in os.walk(mount.store()):
        for name in names + ["."]:
            try:
                stat = os.lstat(os.path.join(directory, name))
            except FileNotFoundError:
                continue
            # Bundles have a name for each deleted file in them.
            shares = stat.st_nlink if ".bundle" in name else 1
            total += stat.st_blocks * 512 // shares if stat.st_nlink == 1 or shares > 1 or name == "." else 0
    return total


def work_on(mount, rng, size, step):
    """Overwrites, deletes, and creates files."""
    with open(mount.path / "file", "r+b", buffering=0) as stream:
        stream.write(rng.randbytes(size))
    (mount.path / f"f{step}").write_bytes(rng.randbytes(size // 4))
    if step > 2:
        (mount.path / f"f{step - 2}").unlink()


@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_a_history_that_grows_without_end_is_kept_within_its_size(maker, kind):
    mount, rng, limit = maker.mount("allow_other", kind=kind), random.Random(2), 12 * MIB
    mount.expect("was forgotten|more than 90 %")
    (mount.path / "file").write_bytes(rng.randbytes(MIB))
    configure(mount, f"max-size = {limit}")
    begin = moment()
    for step in range(40 if QUICK else 80):
        work_on(mount, rng, MIB, step)
        sync_tree(mount.source)
        wait_for(lambda: taken(mount) < 2 * limit, "the keeper keeps up", mount)
    wait_for(lambda: taken(mount) <= limit * 1.05, "within the size", mount)
    assert is_gone(mount, begin)
    assert mount.log().count("more than 90 %") == 1
    # No more than necessary was removed.
    assert taken(mount) > limit // 3 and horizon(mount) < time.time_ns()
    known, was = moment(), state_of(mount.path)
    (mount.path / "file").write_bytes(b"short")
    assert differences(was, state_of(mount.at(known))) == []
    mount.check_store()


def test_a_writer_faster_than_the_keeper_is_throttled(mount):
    """No process syncs or waits here."""
    mount.expect("was forgotten|more than 90 %")
    rng, limit, size, most = random.Random(6), 24 * MIB, 8192, 0
    content = rng.randbytes(2 * MIB)
    files = [os.open(mount.path / f"file{number}", os.O_RDWR | os.O_CREAT) for number in range(12)]
    for fd in files:
        os.write(fd, content[:MIB])
    configure(mount, "compact = none", f"max-size = {limit}")
    wait_for(lambda: f'"max_size":{limit}' in mount.tool("vdf", "--json", mount.path).stdout.replace(" ", ""),
             "the limit is in force", mount)
    begin = moment()
    for step in range(2 * limit // size):
        os.pwrite(rng.choice(files), content[step % MIB:][:size], rng.randrange(MIB - size))
        if step % 64 == 0:
            most = max(most, taken(mount))
    for fd in files:
        os.close(fd)
    # One or two seconds behind: without it, all that is written in that time, which is most of it.
    assert most < limit * 1.25
    assert is_gone(mount, begin)
    known, was = moment(), state_of(mount.path)
    (mount.path / "file0").write_bytes(b"short")
    assert differences(was, state_of(mount.at(known))) == []
    mount.check_store()


def test_bundles_count_and_are_removed(mount):
    mount.expect("was forgotten|more than 90 %")
    was = releases(mount)
    mount.tool("vcompact", mount.path)
    packed = sum(stat.st_blocks * 512 // stat.st_nlink for stat in map(os.stat, bundles(mount)))
    limit = taken(mount) - packed // 2
    assert packed > 30_000
    configure(mount, "compact = none", f"max-size = {limit}")
    # Except for the directory of the store itself, and the daemon's notes meanwhile.
    wait_for(lambda: taken(mount) <= limit + 12288, "within the size", mount)
    wait_for(lambda: is_gone(mount, was[0][1]), "the oldest versions are removed", mount)
    mount.check_store()


def test_history_protected_by_keep_is_kept_whatever_its_size(mount):
    mount.expect("all remaining history is protected|more than 90 %")
    rng = random.Random(3)
    (mount.path / "file").write_bytes(rng.randbytes(MIB))
    configure_once(mount, "keep = 1d", "max-size = 2M")
    when, was = moment(), state_of(mount.path)
    for step in range(4):
        work_on(mount, rng, MIB, step)
    wait_for(lambda: "all remaining history is protected" in mount.log(), "it is reported", mount)
    assert horizon(mount) == 0 and differences(was, state_of(mount.at(when))) == []
    assert mount.log().count("all remaining history is protected") == 1


@pytest.mark.parametrize("rules", [["keep = 1d"], ["keep = 1d", "keep-versions = 50..", '[path "*.txt"]', "keep = forever"]])
def test_a_hard_limit_takes_protected_history_as_well(mount, rules):
    mount.expect("was forgotten|protect are deleted, the oldest first|more than 90 %")
    rng, limit = random.Random(3), 6 * MIB
    (mount.path / "file").write_bytes(rng.randbytes(MIB))
    configure_once(mount, f"max-size = {limit} hard", *rules)
    begin, states = moment(), []
    for step in range(24):
        work_on(mount, rng, MIB, step)
        states.append((moment(), state_of(mount.path)))
        # All history of one instant would go together: the estimates do not distinguish it.
        wait_for(lambda: taken(mount) < 2 * limit, "the keeper keeps up", mount)
    wait_for(lambda: taken(mount) <= limit * 1.05, "within the size", mount)
    assert is_gone(mount, begin)
    # The oldest went, and no more than necessary.
    assert taken(mount) > limit // 3
    left = [(when, was) for when, was in states if when > horizon(mount)]
    assert 1 < len(left) < len(states)
    assert all(differences(was, state_of(mount.at(when))) == [] for when, was in left)
    assert mount.log().count("protect are deleted, the oldest first") == 1
    mount.check_store()


def test_a_hard_limit_does_not_take_a_snapshot_of_root(mount):
    mount.expect("was forgotten|protect are deleted, the oldest first|more than 90 %|protected by a snapshot")
    rng = random.Random(3)
    (mount.path / "file").write_bytes(rng.randbytes(MIB))
    was = state_of(mount.path)
    mount.tool("vsnap", "create", "mine", mount.path)
    configure_once(mount, "keep = 1d", "max-size = 2M hard")
    for step in range(6):
        work_on(mount, rng, MIB, step)
    wait_for(lambda: "all remaining history is protected by a snapshot" in mount.log(), "it is reported", mount)
    assert differences(was, state_of(mount.path / "@mine")) == []


def test_expired_history_is_kept_while_there_is_space(maker):
    mount = aging(maker)
    path, _ = make_secrets(mount.path)
    when, was = moment(), state_of(mount.path)
    configure(mount, "keep = 1h", "max-size = 1G")
    mount.programs.set(3 * HOUR)
    path.write_bytes(b"changed")
    look(mount)
    time.sleep(0.6)
    assert horizon(mount) == 0 and differences(was, state_of(mount.at(when))) == []


def ahead(seen, seconds):
    """As the clock of the mount showed it."""
    return [(when + seconds * 10**9, content) for when, content in seen]


def shows(mount, name, seen):
    return [at(mount, when, name) == content for when, content in seen]


def test_single_versions_are_removed_before_the_oldest_history(maker):
    """Versions that no rule protects and that are younger than some that a rule protects; older ones are kept if that
    suffices."""
    mount = aging(maker)
    mount.expect("more than 90 %|the clock is")
    old = write_versions(mount.path / "old.txt", 4)
    mount.programs.set(30 * HOUR)
    made = ahead(write_versions(mount.path / "made.o", 19, MIB // 4), 30 * HOUR)
    text = ahead(write_versions(mount.path / "text", 5), 30 * HOUR)
    configure(mount, "compact = none", "keep = 1d", "max-size = 1G", '[path "*.o"]', "keep = 1h")
    mount.programs.set(32 * HOUR)
    look(mount)
    time.sleep(0.6)
    assert all(shows(mount, "made.o", made) + shows(mount, "text", text))
    (mount.path / "text").write_bytes(b"now")
    configure(mount, "compact = none", "keep = 1d", "max-size = 2M", '[path "*.o"]', "keep = 1h")
    wait_for(lambda: taken(mount) <= 2 * MIB, "within the size", mount)
    assert horizon(mount) == 0
    # The former state before the first version is shown in the place of those that were removed.
    assert shows(mount, "made.o", made) == [True] + 18 * [False] + [True]
    assert all(shows(mount, "text", text) + shows(mount, "old.txt", old))
    assert "all remaining history is protected" not in mount.log()
    mount.check_store()
    # If that does not suffice, the oldest versions are removed as well, and no more than permitted.
    write_versions(mount.path / "text", 12, MIB // 4)
    wait_for(lambda: is_gone(mount, old[0][0]), "the oldest versions are removed", mount)
    assert all(shows(mount, "text", text))
    mount.expect("all remaining history is protected")
    wait_for(lambda: "all remaining history is protected" in mount.log(), "it is reported", mount)
    mount.check_store()


def test_without_removable_history_it_does_not_search_repeatedly(mount):
    mount.expect("was forgotten|more than 90 %|all remaining history is protected")
    (mount.path / "file").write_bytes(b"one")
    (mount.path / "file").write_bytes(b"two")
    configure_once(mount, "compact = none", "max-size = 16K")
    wait_for(lambda: "all remaining history is protected" in mount.log(), "it is reported", mount)
    was = horizon(mount)
    time.sleep(1.5)
    assert horizon(mount) == was and mount.log().count("all remaining history is protected") == 1


def test_the_reserve_is_made_free(maker):
    """On a small device that would be full many times over; space that can be given back counts as free."""
    device, rng = Device(maker, size=64), random.Random(4)
    try:
        mount = maker.mount("allow_other", source=device.store)
        mount.expect("was forgotten")
        (mount.path / "file").write_bytes(rng.randbytes(2 * MIB))
        configure(mount, "reserve = 20M")
        begin = moment()
        for step in range(40):
            work_on(mount, rng, 2 * MIB, step)
            sync_tree(mount.source)
            wait_for(lambda: shutil.disk_usage(device.root).free > 16 * MIB, "the keeper keeps up", mount)
        wait_for(lambda: shutil.disk_usage(device.root).free >= 20 * MIB, "the reserve is free", mount)
        assert is_gone(mount, begin)
        look(mount)
        wait_for(lambda: shutil.disk_usage(mount.path).free > shutil.disk_usage(device.root).free + 2 * MIB,
                 "space that can be given back counts as free", mount)
        configure(mount, "keep = 1d", "reserve = 20M")
        wait_for(lambda: shutil.disk_usage(mount.path).free == shutil.disk_usage(device.root).free,
                 "protected space does not", mount)
        mount.check_store()
        mount.stop()
    finally:
        maker.close()
        maker.mounts.clear()
        device.file_systems.unmake(device.root)


def test_the_configuration_file_of_a_new_store(maker):
    """A week is kept, and older history while a twentieth of the disk is free."""
    device, days = Device(maker, size=64), 8 * 24 * HOUR
    try:
        mount = maker.mount("allow_other", source=device.store, start=False)
        mount.programs = Shifted(mount.programs, maker.tree())
        mount.expect("less than reserve|was forgotten")
        mount.start()
        old = write_versions(mount.path / "old", 3)
        mount.programs.set(days)
        young = ahead(write_versions(mount.path / "young", 3), days)
        look(mount)
        time.sleep(0.6)
        assert all(shows(mount, "old", old) + shows(mount, "young", young))
        with open(device.root / "filler", "wb") as stream:
            os.posix_fallocate(stream.fileno(), 0, shutil.disk_usage(device.root).free - MIB)
        wait_for(lambda: is_gone(mount, old[0][0]), "the oldest versions are removed", mount)
        wait_for(lambda: "less than reserve = " in mount.log(), "it is reported", mount)
        assert all(shows(mount, "young", young)) and (mount.path / "old").read_bytes() == old[-1][1]
        mount.check_store()
        mount.stop()
    finally:
        maker.close()
        maker.mounts.clear()
        device.file_systems.unmake(device.root)


# To measure the store takes a while, as that of a large one does.
SLOW = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static int slowly(const char *symbol, int dir_fd, const char *name, int flags, mode_t mode)
{
    if (strcmp(name, "slow") == 0)
        usleep(200000);
    return ((int (*)(int, const char *, int, ...))dlsym(RTLD_NEXT, symbol))(dir_fd, name, flags, mode);
}

int openat(int dir_fd, const char *name, int flags, ...)
{
    return slowly("openat", dir_fd, name, flags, 0600);
}

int openat64(int dir_fd, const char *name, int flags, ...)
{
    return slowly("openat64", dir_fd, name, flags, 0600);
}
"""


def test_a_deleted_file_of_few_blocks_causes_no_removal(maker, tmp_path):
    """It has a hole of a terabyte, or another name."""
    with preloaded(tmp_path, SLOW):
        mount = maker.mount("allow_other")
    (mount.store() / "slow").mkdir()
    for number in range(8):
        (mount.path / "file").write_bytes(bytes([number]) * MIB)
    begin = moment()
    (mount.path / "file").write_bytes(b"last")
    for number in range(6):
        with open(mount.path / f"sparse{number}", "wb") as stream:
            stream.truncate(1 << 40)
    configure(mount, "compact = none", f"max-size = {100 * MIB}")
    for number in range(6):
        time.sleep(0.3)  # the keeper looks four times a second
        (mount.path / f"sparse{number}").unlink()
    time.sleep(0.6)
    assert horizon(mount) == 0 and not is_gone(mount, begin)
    mount.check_store()


def test_in_a_hurry_bundles_are_removed_as_well(mount):
    """It cannot become a hole; and that much younger history would be removed in its place."""
    mount.expect("was forgotten|more than 90 %")
    rng, path = random.Random(7), mount.path / "file"

    def overwrite(count):
        for _ in range(count):
            with open(path, "r+b", buffering=0) as stream:
                stream.write((rng.randbytes(96) + bytes(32)) * (MIB // 128))

    path.write_bytes(bytes(MIB))
    overwrite(4)
    mount.tool("vcompact", mount.path)
    overwrite(24)
    log = max(mount.store().rglob("*.undo"), key=lambda path: path.stat().st_size)
    limit = taken(mount) - 5 * MIB
    configure(mount, "compact = none", f"max-size = {limit}")
    wait_for(lambda: taken(mount) <= limit, "the store is too large", mount)
    first = mount.tool("vdump", "--json", log).stdout.splitlines()[0]
    assert '"type":"FILLER"' in first
    mount.check_store()
