# SPDX-License-Identifier: LGPL-2.1-or-later
"""vprune: the time before a moment is refused for good, all later states are as they were, and the space is free."""
import errno
import json
import os
import random
import sys
import threading
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "crash"))

# pylint: disable=wrong-import-position
from history_model import History, Moment
from mounts import NOBODY, QUICK, epoch, moment, nanoseconds, sync_tree
from operations import Operator
from preload import preloaded
from test_clock import Shifted
from test_close import Syncing
from test_forget import SECRET, found_in_store, make_secrets
from test_onfull import Device
from test_rebind import copied, cp, rebind
from treestate import differences, state_of

STEPS = 60 if QUICK else 110
MINUTES = 300  # so many seconds pass at once: catalogs keep the last minute before the horizon


class Aging(History):
    """Its mount's clock can be set forward."""

    shift = 0

    def record(self, line):
        self.lines.append(line)
        self.moments.append(Moment(time.time_ns() + self.shift * 10**9, state_of(self.mount.path), len(self.lines)))
        moment()

    def age(self):
        self.shift += MINUTES
        self.mount.programs.set(self.shift)
        self.record("-- minutes pass")

    def at(self, known):
        return os.path.join(self.mount.path, "@" + epoch(known.when))

    def prune(self, known, *options, status=0):
        return self.mount.tool("vprune", "-y", *options, "--before", epoch(known.when), self.mount.path, status=status)

    def check_since(self, known):
        """Each state of then and later is as it was; each earlier one is refused."""
        self.mount.expect("was forgotten")
        for one in self.moments:
            if one.when >= known.when:
                self.explain(one, state_of(self.at(one)), "after pruning")
                continue
            with pytest.raises(OSError) as caught:
                os.listdir(self.at(one))
            assert caught.value.errno == errno.EIO, one
        changes = self.mount.tool("vlog", "--json", self.mount.path).stdout.splitlines()
        assert all(nanoseconds(json.loads(line)) > known.when for line in changes)


def aging(maker, kind="ext4", options=()):
    mount = maker.mount("allow_other", *options, kind=kind, start=False)
    mount.programs = Shifted(mount.programs, maker.tree())
    mount.expect("was forgotten")
    return mount.start()


@pytest.mark.parametrize("kind, options", [("ext4", ()), ("xfs", ()), ("ext4", ("history=close",))])
def test_the_rest_is_kept(maker, kind, options):
    mount = aging(maker, kind, options)
    history = Aging(mount, 4, operator=Syncing if options else Operator)
    history.record("-- empty")
    for turn in range(2):
        history.work(STEPS // 3, kill=False, snapshots=False)
        history.age()
        history.work(STEPS // 3, kill=False, snapshots=False)
        known = history.moments[-history.random.randrange(1, STEPS // 2)]
        if turn:
            mount.tool("vcompact", mount.path)
        history.prune(known)
        history.check_since(known)
    mount.check_store()
    mount.remount()
    history.work(STEPS // 4, kill=False, snapshots=False)
    history.check_since(known)
    mount.stop()
    assert "clean" in mount.tool("vfsck", mount.source).stdout
    mount.start()
    history.age()
    history.prune(history.moments[-1])
    history.check_since(history.moments[-1])


def test_nothing_is_left_of_forgotten_history(any_mount):
    mount = any_mount
    mount.expect("was forgotten")
    path, when = make_secrets(mount.path)
    (mount.path / "deleted").write_bytes(SECRET * 5000)
    (mount.path / "deleted").unlink()
    (mount.path / "large").write_bytes(SECRET * 100_000)
    (mount.path / "large").write_bytes(b"small")
    (mount.path / "dir/below").mkdir(parents=True)
    (mount.path / "dir/below").rmdir()
    sync_tree(mount.source)
    known, was = moment(), state_of(mount.path)
    moment()
    with open(path, "ab") as stream:
        stream.write(b", and later")
    assert found_in_store(mount, SECRET)
    old = open(mount.path / f"secret@{epoch(when)}", "rb", buffering=0)  # pylint: disable=consider-using-with
    would = json.loads(mount.tool("vprune", "-n", "--json", "--before", epoch(known), mount.path).stdout)
    assert old.read(7) == SECRET[:7]
    did = json.loads(mount.tool("vprune", "-y", "--json", "--before", epoch(known), mount.path).stdout)
    assert did["deleted"] == would["deleted"] == 3 and did["bytes"] > 100_000 and nanoseconds(did) == known
    with pytest.raises(OSError) as caught:
        old.seek(0)
        old.read(7)
    assert caught.value.errno == errno.EIO
    old.close()
    assert found_in_store(mount, SECRET) == []
    assert differences(was, state_of(mount.at(known))) == []
    mount.remount()
    assert differences(was, state_of(mount.at(known))) == []
    with pytest.raises(OSError):
        os.listdir(mount.at(when))
    status, output = mount.run_tool("vstat", path).returncode, mount.run_tool("vstat", path).stdout
    assert status == 0 and output.count("\n") == 2
    mount.stop()
    assert "clean" in mount.tool("vfsck", mount.source).stdout
    # of a tree that is not mounted, too
    mount.tool("vprune", "-y", "--before", "0s", mount.source)
    mount.start()
    with pytest.raises(OSError):
        os.listdir(mount.at(known))


def test_a_deleted_file_that_is_open_still_works(mount):
    path = mount.path / "open"
    path.write_bytes(b"before")
    with open(path, "r+b", buffering=0) as stream:
        path.unlink()
        known = moment()
        moment()
        mount.tool("vprune", "-y", "--before", epoch(known), mount.path)
        assert stream.read() == b"before"
        stream.write(b" and after")
        os.fchmod(stream.fileno(), 0o600)
        stream.seek(0)
        assert stream.read() == b"before and after"
        assert os.fstat(stream.fileno()).st_nlink == 0


def test_content_that_is_being_changed_is_kept_until_it_is_closed(maker):
    """history=close: content lost while a file is open counts from its close."""
    mount = maker.mount("allow_other", "history=close")
    path = mount.path / "file"
    path.write_bytes(b"as it was" * 1000)
    sync_tree(mount.source)
    with open(path, "r+b", buffering=0) as stream:
        stream.write(b"changing " * 500)
        known = moment()
        moment()
        mount.tool("vprune", "-y", "--before", epoch(known), mount.path)
        assert (mount.path / f"file@{epoch(known)}").read_bytes() == b"as it was" * 1000
        stream.write(b"changing " * 100)
        os.fsync(stream.fileno())
        assert (mount.path / f"file@{epoch(known)}").read_bytes() == b"as it was" * 1000
        mount.tool("vprune", "-y", "--before", epoch(known), mount.path)
    mount.tool("vcompact", "--undo", mount.path)
    assert (mount.path / f"file@{epoch(known)}").read_bytes() == b"as it was" * 1000
    mount.check_store()


@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_an_index_amid_an_open_stage(maker, kind):
    """It is removed, since it has copies of older records; earlier losses of the same stage can still be found."""
    mount = maker.mount("allow_other", "history=close", kind=kind)
    path, was = mount.path / "file", random.Random(1).randbytes(9 << 20)
    path.write_bytes(was)
    sync_tree(mount.source)
    with open(path, "r+b", buffering=0) as stream:
        for _ in range(48):
            stream.write(b"changing" * (1 << 14))
        known = moment()
        moment()
        mount.tool("vprune", "-y", "--before", epoch(known), mount.path)
        assert (mount.path / f"file@{epoch(known)}").read_bytes() == was
        stream.write(b"changing")
    assert (mount.path / f"file@{epoch(known)}").read_bytes() == was
    mount.check_store()


def test_a_time_before_the_history_is_refused(mount):
    (mount.path / "file").write_bytes(b"one")
    mount.stop()
    header = (mount.store() / "header").read_bytes()
    mount.start()
    did = json.loads(mount.tool("vprune", "-y", "--json", "--before", "2001-02-03", mount.path).stdout)
    assert did["bytes"] == 0 and nanoseconds(did) == int.from_bytes(header[48:56], "little")
    assert (mount.store() / "header").read_bytes() == header


def test_a_header_that_lost_its_flag_is_restored(mount):
    (mount.path / "file").write_bytes(b"one")
    mount.tool("vprune", "-y", "--before", "0s", mount.path)
    mount.stop()
    path = mount.store() / "header"
    was = path.read_bytes()
    assert was[12] & 1
    path.write_bytes(was[:12] + bytes([was[12] - 1]) + was[13:])
    mount.tool("vfsck", "-p", mount.source, status=1)
    assert path.read_bytes() == was
    mount.start()


def test_a_full_store_frees_deleted_files(maker):
    device = Device(maker)
    try:
        mount = maker.mount("allow_other", f"store={device.store}", start=False)
        mount.programs = Shifted(mount.programs, maker.tree())
        mount.expect(".")
        mount.start()
        for turn in range(20):
            for number in range(20):
                (mount.path / f"gone{number}").write_bytes(b"x" * 100_000)
                (mount.path / f"gone{number}").unlink()
            sync_tree(mount.source)
            mount.programs.set((turn + 1) * MINUTES)
            device.fill()
            result = mount.run_tool("vprune", "-y", "--before", "0s", mount.path)
            if result.returncode:
                break
            device.empty()  # the daemon has just returned a block of its own
        assert result.returncode == 1 and "no space" in result.stdout
        assert not list(mount.source.glob(".wayback/objects/*/*.data"))
        device.empty()
        mount.tool("vprune", "-y", "--before", "0s", mount.path)
    finally:
        maker.close()
        maker.mounts.clear()
        device.file_systems.unmake(device.root)


def test_a_copy_of_a_pruned_tree_can_be_bound(maker):
    mount = aging(maker)
    history, top = Aging(mount, 0), mount.path
    (top / "d/a").mkdir(parents=True)
    (top / "d/a/f").write_bytes(b"f" * 1000)
    for text in (b"x", b"y"):
        (top / "over").write_bytes(text * 1000)
    (top / "grown").write_bytes(b"x" * 100)
    (top / "d/a").rename(top / "d/b")
    (top / "d/a").mkdir()
    (top / "lost").write_bytes(b"lost")
    (top / "lost").unlink()
    (top / "lost").write_bytes(b"again")
    history.age()
    for data in (b"y" * 50, b"z" * 5000):
        with open(top / "grown", "r+b" if data[0] == 121 else "ab") as stream:
            stream.write(data)
    history.record("-- known")
    known = history.moments[-1]
    history.age()
    (top / "later").write_bytes(b"later")
    (top / "d/b").rename(top / "b")
    history.record("-- later")
    history.prune(known)
    mount.stop()
    copy = copied(maker, mount, cp)
    copy.programs = mount.programs
    assert list(rebind(copy)) == ["other-tree"]
    copy.start()
    history.mount = copy
    history.check_since(known)


def test_readers_meanwhile_get_the_old_content_or_an_error(mount):
    mount.expect("was forgotten")
    known = []
    for number in range(60):
        (mount.path / "file").write_bytes(b"%d" % number * (1 + number * 300))
        (mount.path / f"name{number % 7}").write_bytes(b"x")
        if number % 3 == 0:
            (mount.path / f"name{number % 7}").unlink()
        known.append((moment(), state_of(mount.path)))
        moment()
    over, wrong, refused = threading.Event(), [], []

    def read(seed):
        rng = random.Random(seed)
        while not over.is_set():
            when, state = rng.choice(known)
            try:
                lines = differences(state, state_of(mount.at(when)))
            except OSError as error:
                refused.append((when, error.errno))
                continue
            if lines:
                wrong.append((when, lines))

    readers = [threading.Thread(target=read, args=(seed,)) for seed in range(2)]
    for reader in readers:
        reader.start()
    try:
        for number in range(10, 60, 10):
            mount.tool("vprune", "-y", "--before", epoch(known[number][0]), mount.path)
            (mount.path / "file").write_bytes(b"meanwhile")
    finally:
        over.set()
        for reader in readers:
            reader.join()
    assert wrong == []
    assert {number for _, number in refused} <= {errno.EIO}
    assert max((when for when, _ in refused), default=0) < known[50][0]


def test_a_snapshot_prevents_it(mount):
    (mount.path / "file").write_bytes(b"one")
    mount.tool("vsnap", "create", "kept", mount.path)
    moment()
    (mount.path / "file").write_bytes(b"two")
    known = epoch(moment())
    for options in (["-n"], ["-y"]):
        output = mount.tool("vprune", *options, "--before", known, mount.path, status=1).stdout
        assert "1 snapshot is of earlier times" in output and "kept of" in output
    assert (mount.path / "@kept/file").read_bytes() == b"one"
    mount.tool("vsnap", "delete", "kept", cwd=mount.path)
    mount.tool("vprune", "-y", "--before", known, mount.path)


def test_permissions_and_scope(mount):
    (mount.path / "dir").mkdir(0o755)
    os.chmod(mount.path, 0o755)
    for arguments, status, text in (
            (["-y", "--before", "0s", mount.path / "dir"], 1, "works on whole trees (root: "),
            (["--before", "0s", mount.path], 1, "use -y"), (["-y", mount.path], 2, "--before"),
            (["-y", "--before", "~1", mount.path], 2, "")):
        assert text in mount.tool("vprune", *arguments, status=status).stdout
    result = mount.run_tool("vprune", "-y", "--before", "0s", mount.path, user=NOBODY)
    assert result.returncode == 1 and "not permitted" in result.stdout


def test_damaged_parts_are_not_changed(mount):
    (mount.path / "dir").mkdir()
    (mount.path / "dir/gone").write_bytes(b"was here" * 1000)
    (mount.path / "dir/gone").unlink()
    (mount.path / "file").write_bytes(b"one")
    (mount.path / "file").write_bytes(b"two")
    known, was = moment(), state_of(mount.path)
    moment()
    (mount.path / "file").write_bytes(b"three")
    mount.stop()
    damaged = {}
    for path in mount.store().glob("objects/*/*.cat"):
        data = bytearray(path.read_bytes())
        if b"gone" in data:
            data[200] ^= 0xff
            path.write_bytes(data)
            damaged[path] = bytes(data)
    assert damaged
    mount.expect(".")
    mount.start()
    assert "could not be pruned" in mount.tool("vprune", "-y", "--before", epoch(known), mount.path, status=1).stdout
    assert [path.read_bytes() for path in damaged] == list(damaged.values())
    assert list(mount.store().glob("objects/*/*.data")), "files that a damaged catalog may name are gone"
    assert (mount.at(known) / "file").read_bytes() == b"two"
    assert differences({"file": was["file"]}, {"file": state_of(mount.at(known, "."))["file"]}) == []


def test_killed_at_any_call(maker):
    if os.uname().machine != "x86_64":
        pytest.skip("the tracer knows no other registers")
    import crash  # pylint: disable=import-outside-toplevel
    mount = maker.mount("allow_other", made=crash.Traced)
    mount.expect(".")
    rng = random.Random(7)
    known = []

    def work():
        for number in range(6):
            (mount.path / "file").write_bytes(rng.randbytes(3000 + number))
            (mount.path / f"dir{number}").mkdir(exist_ok=True)
            (mount.path / f"dir{number}/name").write_bytes(b"x" * 5000)
            (mount.path / f"dir{number}/name").unlink()
            known.append((moment(), state_of(mount.path)))
            moment()

    def check(since):
        for when, state in known:
            try:
                assert differences(state, state_of(mount.at(when))) == [], when
            except OSError as error:
                assert error.errno == errno.EIO and when < since

    work()
    calls, target, since = 0, 0, 0
    for turn in range(5 if QUICK else 9):
        since = known[-2][0]
        target = rng.randrange(1, calls + 1) if turn else crash.FOREVER
        mount.control.arm(crash.CHANGES, crash.KILL, target)
        mount.run_tool("vprune", "-y", "--before", epoch(since), mount.path)
        made = mount.control.disarm()
        calls = calls or made
        if mount.is_dead():
            mount.kill(check=False)
            mount.start()
        check(since)
        work()
    mount.tool("vprune", "-y", "--before", epoch(since), mount.path)
    check(since)
    with pytest.raises(OSError):
        os.listdir(mount.at(known[0][0]))
    mount.stop()
    assert "clean" in mount.tool("vfsck", mount.source).stdout


def test_a_moment_mounted_elsewhere_is_refused_as_soon_as_it_is_forgotten(mount, maker):
    """Also content that its mount has read before, and the kernel caches."""
    for name in ("dir/content", "kept"):
        (mount.path / name).parent.mkdir(exist_ok=True)
        (mount.path / name).write_bytes(SECRET * 1000)
    was = state_of(mount.path)
    old = moment()
    (mount.path / "dir/content").write_bytes(b"new")
    known = moment()
    moment()
    (mount.path / "dir/content").write_bytes(b"newer")
    elsewhere = maker.mount(f"at={epoch(old)}", source=mount.source)
    elsewhere.expect("was forgotten")
    assert differences(was, state_of(elsewhere.path)) == []
    mount.tool("vprune", "-y", "--before", epoch(known), mount.path)
    for path in ("dir/content", "kept"):
        with pytest.raises(OSError) as caught:
            (elsewhere.path / path).read_bytes()
        assert caught.value.errno == errno.EIO, path
    for path in ("", "dir"):
        with pytest.raises(OSError) as caught:
            os.listdir(elsewhere.path / path)
        assert caught.value.errno == errno.EIO, path


def test_unknown_times_are_still_unknown(maker):
    """onfull=continue: a state without a record is refused after pruning as before, and the others are shown."""
    device = Device(maker)
    mount = aging(maker, options=(f"store={device.store}", "onfull=continue"))
    mount.expect(".")
    history = Aging(mount, 9)
    (mount.path / "d").mkdir()
    for number, name in enumerate(("f", "g", "d/x")):
        (mount.path / name).write_bytes(random.Random(number).randbytes(50_000))

    def overwrite(seed):
        with open(mount.path / "f", "r+b", buffering=0) as stream:
            stream.write(random.Random(seed).randbytes(50_000))
        (mount.path / f"d/n{seed}").touch()
        history.age()

    overwrite(11)
    device.fill()
    for seed in (12, 13):
        overwrite(seed)
    device.empty()
    mount.remount()
    for seed in (14, 15, 16):
        overwrite(seed)

    def visible(one, path):
        try:
            return state_of(os.path.join(history.at(one), path))
        except OSError as error:
            assert error.errno == errno.EIO
            return None

    def seen(moments):
        return [(one.when, path, visible(one, path)) for one in moments for path in ("f", "g", "d")]

    before = seen(history.moments)
    for one, (_, path, state) in zip((one for one in history.moments for _ in range(3)), before):
        was = [entry.content for name, entry in sorted(one.state.items()) if name == path or name.startswith(path + "/")]
        assert state is None or [entry.content for _, entry in sorted(state.items())] == was
    assert {state is None for *_, state in before} == {True, False}
    for one in history.moments[:-1]:
        history.prune(one)
        since = [known for known in history.moments if known.when >= one.when]
        assert seen(since) == [known for known in before if known[0] >= one.when]
    mount.stop()
    assert "clean" in mount.tool("vfsck", "--store", device.store, mount.source).stdout
    maker.close()
    maker.mounts.clear()
    device.file_systems.unmake(device.root)


QUOTA = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>
ssize_t pwritev64(int fd, const struct iovec *data, int count, off64_t offset)
{
    ssize_t (*real)(int, const struct iovec *, int, off64_t) = dlsym(RTLD_NEXT, "pwritev64");
    char link[64], path[4096] = "";
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    if (access(getenv("QUOTA_FILE"), F_OK) == 0 && readlink(link, path, sizeof(path) - 1) > 0 &&
        strstr(path, "/pack.new")) {
        errno = EDQUOT;
        return -1;
    }
    return real(fd, data, count, offset);
}
"""


def test_a_quota_without_space_for_a_second_log(maker, tmp_path):
    """Nobody is warned before: the oldest part of the log is removed in place then."""
    quota = tmp_path / "quota"
    with preloaded(tmp_path, QUOTA, QUOTA_FILE=quota):
        mount = maker.mount("allow_other", source=maker.file_systems.make("ext4", f"quota-{time.time_ns()}", 64))
    mount.expect("was forgotten")
    rng, seen = random.Random(9), []
    (mount.path / "f").write_bytes(rng.randbytes(1 << 20))
    for _ in range(12):
        seen.append((moment(), (mount.path / "f").read_bytes()))
        with open(mount.path / "f", "r+b", buffering=0) as stream:
            assert stream.write(rng.randbytes(1 << 20)) == 1 << 20
    log, = [path for path in mount.logs() if path.suffix == ".undo"]
    before = log.stat().st_blocks
    quota.touch()
    mount.tool("vprune", "-y", "--before", epoch(seen[8][0]), mount.path)
    quota.unlink()
    assert log.stat().st_blocks < before * 3 / 4  # to within 4 MiB
    assert [(mount.path / f"f@{epoch(when)}").read_bytes() == was for when, was in seen[8:]] == [True] * 4
    with pytest.raises(OSError):
        (mount.path / f"f@{epoch(seen[7][0])}").read_bytes()
    mount.check_store()
