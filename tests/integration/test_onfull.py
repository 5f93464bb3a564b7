# SPDX-License-Identifier: LGPL-2.1-or-later
"""A full store: a change that cannot be recorded is refused, or made and leaves a gap that nobody forgets."""
import errno
import json
import os
import random
import threading
import time

import pytest

from copies import Copy
from mounts import QUICK, epoch, moment, nanoseconds, run
from treestate import differences, state_of

SIZE = 100_000


class Device:
    """A small file system for the store, to be filled and emptied."""

    def __init__(self, maker, kind="ext4", size=24):
        self.file_systems = maker.file_systems
        self.root = maker.file_systems.make(kind, f"store-{time.time_ns()}", size)
        self.store = self.root / "store"
        self.store.mkdir(mode=0o700)

    def fill(self):
        with open(self.root / "filler", "ab", buffering=0) as stream:
            for _ in range(8):
                written = sum(self.fill_with(stream, b"x" * size) for size in (1 << 20, 4096, 1))
                if not written:
                    break
                os.fsync(stream.fileno())  # space that others freed just now is available after the commit

    @staticmethod
    def fill_with(stream, data):
        """How many bytes there was room for."""
        written = 0
        try:
            while True:
                written += stream.write(data)
        except OSError as error:
            assert error.errno == errno.ENOSPC
        return written

    def empty(self):
        (self.root / "filler").unlink()
        run("sync", "-f", self.root)  # freed space is available after the commit, and before it not always


@pytest.fixture(name="device")
def fixture_device(maker):
    device = Device(maker)
    yield device
    maker.close()
    maker.mounts.clear()
    device.file_systems.unmake(device.root)


def protect_nothing(store):
    """A wayback.conf that protects no young history: all of it may be removed for lack of space."""
    store.mkdir(mode=0o700, exist_ok=True)
    (store / "wayback.conf").write_text("# nothing\n", encoding="ascii")


def mounted(maker, device, *options):
    if "onfull=prune" in options:
        protect_nothing(device.store)
    mount = maker.mount("allow_other", f"store={device.store}", *options)
    mount.expect(".")
    return mount


def overwrite(path, seed):
    with open(path, "r+b", buffering=0) as stream:
        data = random.Random(seed).randbytes(SIZE)
        assert stream.write(data) == len(data)


def make(mount):
    (mount.path / "d").mkdir()
    for name in ("f", "g", "d/x"):
        (mount.path / name).write_bytes(random.Random(name).randbytes(SIZE))


def versions(mount, path, *options):
    document = json.loads(mount.tool("vstat", "--json", *options, path).stdout)
    document = document[0] if isinstance(document, list) else document
    return document["versions"]


def error_of(function):
    try:
        function()
    except OSError as error:
        return error.errno
    return 0


def test_a_full_store_refuses_and_forgets_nothing(maker, device):
    mount = mounted(maker, device)
    make(mount)
    when, before = moment(), state_of(mount.path)
    device.fill()
    assert error_of(lambda: overwrite(mount.path / "f", 1)) == errno.ENOSPC
    assert differences(before, state_of(mount.path)) == []
    assert differences(before, state_of(mount.at(when))) == []
    mount.remount()
    assert differences(before, state_of(mount.at(when))) == []
    device.empty()
    overwrite(mount.path / "f", 1)
    assert differences(before, state_of(mount.at(when))) == []
    assert versions(mount, mount.path / "f")[0]["op"] == "write"



def test_a_full_store_is_mounted_again(maker):
    device = Device(maker, "btrfs", 128)
    mount = mounted(maker, device)
    make(mount)
    overwrite(mount.path / "f", 1)
    mount.tool("vsnap", "create", "mine", mount.path)  # the overwritten content is noted meanwhile
    when, before = moment(), state_of(mount.path)
    device.fill()
    mount.remount()
    assert differences(before, state_of(mount.at(when))) == []


def test_a_full_source_with_space_in_the_store(maker, device):
    """The reverse: the change fails, and leaves neither a version nor anything else."""
    mount = maker.mount("allow_other", f"store={maker.tree()}", source=device.store)
    mount.expect(".")
    make(mount)
    device.fill()
    when, before = moment(), state_of(mount.path)
    assert error_of(lambda: (mount.path / "n").write_bytes(b"x" * (1 << 20))) == errno.ENOSPC
    os.unlink(mount.path / "n")
    assert error_of(lambda: overwrite(mount.path / "f", 1)) == 0  # in place: no space is needed
    assert differences(before, state_of(mount.at(when))) == []
    now = state_of(mount.path)
    mount.kill()
    mount.start()
    assert differences(now, state_of(mount.path)) == []
    assert differences(before, state_of(mount.at(when))) == []


def test_a_close_that_cannot_be_recorded_fails_and_is_recorded_later(maker, device):
    """The stage lasts until its end can be written: as soon as there is space again, without another change."""
    mount = mounted(maker, device, "history=close")
    log = mount.path / "log"
    log.write_bytes(b"one")

    def append():
        with open(log, "ab", buffering=0) as stream:
            stream.write(b"line\n")

    device.fill()
    for _ in range(200):  # until the last block of the log is full
        before, when = log.read_bytes(), moment()
        if error_of(append) == errno.ENOSPC:
            break
    else:
        pytest.fail("every close could be recorded")
    assert log.read_bytes() == before + b"line\n"
    device.empty()
    assert versions(mount, log)[0]["op"] == "write"
    after = moment()
    log.chmod(0o600)
    for expected, at in ((before, when), (before + b"line\n", after), (before + b"line\n", moment())):
        assert (mount.path / f"log@{epoch(at)}").read_bytes() == expected
    mount.remount()
    assert [change["op"] for change in versions(mount, log, "--operations")[:2]] == ["chmod", "write"]
    mount.check_store()


def test_a_change_without_a_record_leaves_a_gap(maker, device):
    mount = mounted(maker, device, "onfull=continue")
    make(mount)
    first, before = moment(), state_of(mount.path)
    overwrite(mount.path / "f", 1)
    overwrite(mount.path / "d/x", 1)
    device.fill()
    second = moment()
    overwrite(mount.path / "f", 2)
    (mount.path / "f").chmod(0o600)
    for number in range(100):  # until the last block of the catalog is full
        (mount.path / "d" / f"n{number}").touch()
    os.unlink(mount.path / "d" / "n7")
    os.rename(mount.path / "d" / "n8", mount.path / "d" / "n9")
    third, now = moment(), state_of(mount.path)

    def check():
        assert differences(now, state_of(mount.path)) == []
        for when in (first, second):
            for name in (f"f@{epoch(when)}", f"d@{epoch(when)}/x"):
                assert error_of((mount.path / name).read_bytes) == errno.EIO, name
            # Paths that need none of the missing records are as they were.
            assert (mount.path / f"g@{epoch(when)}").read_bytes() == random.Random("g").randbytes(SIZE)

    def everything():
        reader = maker.mount("ro", *mount.store_options(), source=mount.source)
        reader.expect(".")
        assert error_of((reader.path / f"f@{epoch(second)}").read_bytes) == errno.EIO
        reader.stop()
        check()

    everything()
    mount.kill()  # the gaps are not in any log yet
    mount.start()
    everything()
    mount.remount()
    check()
    assert "could not be recorded" in mount.log()
    device.empty()
    mount.remount()
    check()
    # A GAP is so small that it may fit when nothing else does: then there are several.
    gaps = [v for v in versions(mount, mount.path / "f") if v["op"] == "gap"]
    assert gaps and all(second < nanoseconds(gap["since"]) < nanoseconds(gap) for gap in gaps)
    assert nanoseconds(gaps[-1]["since"]) < third
    assert [v["op"] for v in versions(mount, mount.path / "d")][0] == "gap"
    assert "gap since" in mount.tool("vstat", mount.path / "f").stdout
    # From the end of the gap on, all is as usual.
    after = moment()
    overwrite(mount.path / "f", 3)
    os.unlink(mount.path / "d" / "n1")
    assert differences(now, state_of(mount.at(after))) == []
    assert before["g"] == state_of(mount.path)["g"]
    assert len(versions(mount, mount.path / "f")) >= 4
    mount.check_store()


def test_an_open_gap_is_sent_as_a_gap(maker, device):
    """A copy is useful when the store is full. It has the present, and refuses the same moments as the original; and it
    continues when the original has space again."""
    mount = mounted(maker, device, "onfull=continue")
    make(mount)
    (mount.path / "d" / "small").write_bytes(b"small")
    first = moment()
    overwrite(mount.path / "f", 1)
    overwrite(mount.path / "d/x", 1)
    copy = Copy(maker, mount)
    copy.follow()
    device.fill()
    overwrite(mount.path / "f", 2)
    (mount.path / "f").chmod(0o600)
    for number in range(100):  # until the last block of the catalog is full
        (mount.path / "d" / f"n{number}").touch()
    with open(mount.path / "d" / "small", "ab") as stream:
        stream.write(b" and grown")
    os.unlink(mount.path / "d" / "n7")
    os.rename(mount.path / "d" / "n8", mount.path / "d" / "n9")
    second = moment()
    overwrite(mount.path / "g", 2)  # later than that
    now = state_of(mount.path)
    assert any((device.store / "gaps").read_bytes()[32:])

    def check(state, *, refused, exact):
        with copy.used() as used:
            used.expect(".")
            assert differences(state, state_of(used.path)) == []
            for name, when in refused:
                assert error_of((used.path / f"{name}@{epoch(when)}").read_bytes) == errno.EIO, name
            for name, when in exact:
                assert (used.path / f"{name}@{epoch(when)}").read_bytes() == \
                    (mount.path / f"{name}@{epoch(when)}").read_bytes(), name

    fresh = Copy(maker, mount)
    fresh.follow()
    copy.follow()
    gaps = [("f", first), ("f", second), ("g", first), ("g", second)]
    for copy in (copy, fresh):
        check(now, refused=gaps, exact=[])
        with copy.used() as used:
            used.expect(".")
            assert error_of((used.path / f"d@{epoch(first)}" / "x").read_bytes) == errno.EIO
    device.empty()
    mount.remount()
    third = moment()
    overwrite(mount.path / "f", 3)
    (mount.path / "d" / "n10").unlink()
    now = state_of(mount.path)
    copy.follow()
    check(now, refused=gaps, exact=[("f", third), ("g", third)])
    assert copy.tool("vfsck", copy.path).returncode == 0


def test_what_changes_while_an_open_gap_is_sent(maker, device):
    """Its state at the end of the stream is unknown: nothing is sent, and the copy is as it was."""
    mount = mounted(maker, device, "onfull=continue")
    make(mount)
    overwrite(mount.path / "f", 1)
    copy = Copy(maker, mount)
    copy.follow()
    device.fill()
    overwrite(mount.path / "f", 2)
    stop, writer = threading.Event(), None

    def write():
        seed = 3
        while not stop.is_set():
            overwrite(mount.path / "f", seed := seed + 1)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        result = copy.tool("vsend", "--since", copy.status(), mount.path)
    finally:
        stop.set()
        writer.join()
    # If a GAP fits into the log meanwhile, the error names that first.
    assert result.returncode == 1, result.stderr
    assert any(words in result.stderr.decode() for words in ("was changed while it was sent", "could not be recorded"))
    copy.follow()
    with copy.used() as used:
        assert differences(state_of(mount.path), state_of(used.path)) == []


def test_a_directory_that_moves_is_refused_all_the_same(maker, device):
    """Without a record of its place, nothing below it would be found again."""
    mount = mounted(maker, device, "onfull=continue")
    make(mount)
    when, before = moment(), state_of(mount.path)
    device.fill()
    for number in range(100):
        (mount.path / f"n{number}").touch()
    assert error_of(lambda: os.rename(mount.path / "d", mount.path / "e")) == errno.ENOSPC
    assert (mount.path / "d" / "x").exists()
    device.empty()
    mount.remount()
    assert differences({p: e for p, e in before.items() if p.startswith("d")},
                       {f"d/{p}" if p else "d": e._replace(group=f"d/{p}" if p else "d")
                        for p, e in state_of(f"{mount.path}/d@{epoch(moment())}").items()}) == []
    assert error_of(lambda: os.listdir(mount.at(when))) == errno.EIO


def test_an_unknown_policy_is_refused(maker):
    mount = maker.mount(start=False)
    for options in (("onfull=forget",), ("onfull=continue", "history=close")):
        status, output = mount.refused(*options)
        assert status == 2 and "onfull" in output


# ---- onfull=prune ---------------------------------------------------------------------------------

def horizon(mount):
    """The horizon in the header: 0, or the moment before which everything was forgotten."""
    header = (mount.store() / "header").read_bytes()
    return int.from_bytes(header[48:56], "little") if header[12] & 1 else 0


def fill_by_work(mount, rng, moments, steps):
    """Overwrites and deletes, and remembers states now and then. The error that ended it, or 0."""
    for step in range(steps):
        if step % 10 == 0:
            moments.append((moment(), state_of(mount.path)))
        try:
            for name in ("f", "g"):
                overwrite(mount.path / name, rng.random())
            (mount.path / f"n{step}").write_bytes(rng.randbytes(100))
            if step > 2:
                (mount.path / f"n{step - 2}").unlink()
            (mount.path / "d" / "x").chmod(0o600 + step % 8)
            os.rename(mount.path / "d", mount.path / "e")
            os.rename(mount.path / "e", mount.path / "d")
        except OSError as error:
            return error.errno
    return 0


def check_moments(mount, moments):
    """All states since the horizon are as they were, and none before it is shown."""
    since = horizon(mount)
    for when, was in moments:
        if when >= since:
            assert differences(was, state_of(mount.at(when))) == []
        else:
            assert error_of(lambda at=when: os.listdir(mount.at(at))) == errno.EIO
    mount.check_store()
    return since


STEPS = 130 if QUICK else 400  # each 200 kB: the device is full after a hundred


@pytest.mark.parametrize("options", [(), ("history=close",)])
def test_removable_history_is_removed_for_a_change_without_space(maker, device, options):
    mount = mounted(maker, device, "onfull=prune", *options)
    make(mount)
    rng, moments = random.Random(5), []
    assert fill_by_work(mount, rng, moments, STEPS) == 0
    since = check_moments(mount, moments)
    assert moments[0][0] < since < moments[-1][0] and "the store is full; deleting the history before" in mount.log()
    mount.kill()
    mount.start()
    assert check_moments(mount, moments) == since
    assert fill_by_work(mount, rng, moments, STEPS // 4) == 0
    mount.stop()
    assert "clean" in mount.tool("vfsck", "--store", device.store, mount.source).stdout


@pytest.mark.parametrize("held", ["keep", "snapshot", "mistake"])
def test_protected_history_is_not_removed_for_it(maker, device, held):
    mount = mounted(maker, device, "onfull=prune")
    make(mount)
    rng, moments = random.Random(6), []
    if held == "snapshot":
        assert fill_by_work(mount, rng, moments, 9) == 0
        mount.tool("vsnap", "create", "mine", mount.path)
        pinned = len(moments)
    else:
        text = "keep = 1d" if held == "keep" else "keep = 1d\nkeep = 2d"
        (device.store / "wayback.conf").write_text(f"[history]\n{text}\n", encoding="ascii")
        mount.remount()
        pinned = 0
    assert fill_by_work(mount, rng, moments, 1000) == errno.ENOSPC
    since = check_moments(mount, moments)
    assert since <= moments[pinned][0] and (pinned or since == 0)
    assert mount.log().count("all remaining history is protected") == 1
    assert (mount.path / "f").read_bytes()


def test_many_wait_for_space_at_once(maker, device):
    """No thread waits for a lock that is needed to free space, nor twice for the same."""
    mount = mounted(maker, device, "onfull=prune")
    make(mount)
    failed = []
    for number in range(4):
        (mount.path / f"t{number}").write_bytes(b"x" * SIZE)

    def work(number):
        try:
            for step in range(STEPS // 2):
                overwrite(mount.path / f"t{number}", number * 1000 + step)
                os.rename(mount.path / f"t{number}", mount.path / f"u{number}")
                os.rename(mount.path / f"u{number}", mount.path / f"t{number}")
        except OSError as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == [] and horizon(mount) > 0
    when, was = moment(), state_of(mount.path)
    overwrite(mount.path / "f", 1)
    assert differences(was, state_of(mount.at(when))) == []
    mount.check_store()
