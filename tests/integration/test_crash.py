# SPDX-License-Identifier: LGPL-2.1-or-later
"""The daemon is killed in the middle of a change, or its system calls fail: a sample.

tests/soak/crash does the same at every call of every operation, and for pairs of them.
"""
import errno
import json
import os
import random
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "crash"))

# pylint: disable=wrong-import-position
from mounts import LIMIT, QUICK, caches_kept, moment
from treestate import differences, state_of

if os.uname().machine != "x86_64":
    pytest.skip("the tracer knows no other registers", allow_module_level=True)

import crash
from scene import ACTS, write_at

SEED = int(os.environ.get("WAYBACK_CRASH_SEED", "1"))


@pytest.fixture(name="bench")
def fixture_bench(maker):
    # The set of calls depends on the caches of the kernel.
    with caches_kept():
        bench = crash.Bench(maker.mount("allow_other", made=crash.Traced))
        yield bench
        bench.finish()
    assert bench.failures == []


@pytest.fixture(name="closing")
def fixture_closing(maker):
    with caches_kept():
        bench = crash.Bench(maker.mount("allow_other,history=close", made=crash.Traced))
        yield bench
        bench.finish()
    assert bench.failures == []


def sample(seed, count):
    """Picks so many of the given ones."""
    def only(targets):
        targets = list(targets)
        return random.Random(seed).sample(targets, min(count, len(targets)))
    return only


def some_acts(seed, count):
    names = sorted(set(ACTS) - {"vrevert", "vrm", "pack", "unpack", "vrm_packed"})
    return random.Random(seed).sample(names, 3 if QUICK else count)


def test_killed_at_any_system_call_it_loses_nothing(bench):
    for number, name in enumerate(some_acts(SEED, 8)):
        bench.kill_everywhere(ACTS[name], only=sample(SEED + number, 2))
    assert bench.cases >= 6


def test_killed_at_calls_that_change_nothing(bench):
    """From the first one on; calls in which idle threads sleep are left out."""
    bench.kill_everywhere(ACTS["unlink"], what=crash.ALL, only=lambda targets: list(targets)[:2 if QUICK else 8])
    assert bench.cases >= 2


def test_killed_when_changes_are_announced_without_a_call(maker):
    """As they are if nobody traces; the moments between two stores are in tests/unit's test_inflight."""
    bench = crash.Bench(maker.mount("allow_other", made=crash.TracedMapped))
    for name in ("write_over", "rename_over"):
        bench.kill_everywhere(ACTS[name], only=sample(SEED, 3))
    bench.finish()
    assert bench.failures == [] and bench.cases >= 5


@pytest.mark.parametrize("shared", ["xfs", "btrfs"])
def test_killed_before_it_cuts_off_cloned_bytes(maker, shared):
    """Clones are not compared with the present; the size shows it."""
    bench = crash.Bench(maker.mount("allow_other", kind=shared, made=crash.Traced))
    bench.kill_everywhere(ACTS["truncate_big"])
    bench.finish()
    assert bench.failures == [] and bench.cases >= 4


def test_killed_in_a_stage_it_makes_a_version_of_the_change(closing):
    """And none if the stage had begun and the change had not."""
    for name in ("append",) if QUICK else ("append", "write_linked", "write_equal", "open_truncated"):
        closing.kill_everywhere(ACTS[name])
    assert closing.cases >= 6  # some runs have one call more


def test_killed_again_while_it_recovers(bench):
    bench.kill_everywhere(ACTS["rename_over_directory"], only=sample(SEED, 1), again=True)
    assert bench.cases >= 2


@pytest.mark.parametrize("name", ["pack", "unpack", "vrm_packed"])
def test_killed_while_content_is_packed_or_forgotten_in_place(bench, name):
    act = ACTS[name]
    bench.kill_everywhere(act, ACTS[act.after] if act.after else None, only=sample(SEED, 3 if QUICK else 8))
    assert bench.cases >= 3
    bench.mount.stop()
    found = bench.mount.run_tool("vfsck", "-p", "--json", bench.mount.source, merge=False).stdout
    assert {one["code"] for one in json.loads(found)["findings"] if one["state"] != "note"} <= {"stale"}
    assert "clean" in bench.mount.tool("vfsck", bench.mount.source).stdout
    bench.mount.start()


def test_a_call_that_fails_is_an_error_and_no_more(bench):
    for number, name in enumerate(some_acts(SEED + 1, 5)):
        bench.fail_everywhere(ACTS[name], crash.CHANGES, crash.CHANGE_FAULTS, only=sample(SEED + number, 3))
        bench.fail_everywhere(ACTS[name], crash.READS, crash.READ_FAULTS, only=sample(SEED + number, 2))
    assert bench.cases >= 10


def test_the_result_of_a_change_is_looked_at_again(bench):
    """One failed look is hidden from the caller."""
    bench.fail_everywhere(ACTS["tmpfile"], crash.READS, crash.READ_FAULTS[:1], only=lambda targets: list(targets)[-1:])
    assert [os.path.exists(trial.path / "n") for trial in bench.trials] == [True] * 2


def fail_last_read(bench, act):
    """A trial with the latest failing read that the caller notices."""
    target, result = bench.reference(act, None, crash.READS).calls + 1, 0
    while not result:
        target -= 1
        trial = bench.trial(act)
        bench.mount.control.arm(crash.READS, crash.FAIL, target, errno.EIO, 8)
        result = trial.run()
        bench.mount.control.disarm()
    assert result == errno.EIO
    return trial


@pytest.mark.parametrize("name, entry", [("mkdir", "n"), ("link", "s/n"), ("create", "n"), ("truncate_down", "f")])
def test_if_no_result_can_be_returned_the_kernel_forgets_its_caches(bench, name, entry):
    """The caller gets an error, and a later look finds the new entry: absent names and attributes are not cached."""
    act = ACTS[name]._replace(prepare=lambda d: os.path.exists(f"{d}/{entry}"))
    for _ in range(20):  # a thread that reads beside it may move the failure to a read before the change
        trial = fail_last_read(bench, act)
        below = bench.mount.source / trial.name
        if differences(trial.before, state_of(below)):
            break
    assert differences(trial.before, state_of(below)), "made"
    deadline = time.monotonic() + LIMIT  # a name is forgotten beside the answer
    while not os.path.exists(trial.path / entry):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert os.stat(trial.path / entry).st_size == os.stat(below / entry).st_size
    assert os.stat(trial.path).st_mtime_ns == os.stat(below).st_mtime_ns
    assert differences(state_of(below), state_of(trial.path)) == []
    trial.check_seen()


def test_a_call_that_fails_in_a_stage_leaves_no_version_of_the_failure(closing):
    """And if the end of the stage cannot be written, it is written later."""
    for name in ("write_over", "append"):
        kinds = [(crash.FAIL, errno.ENOSPC, 0)] if QUICK else \
            [(crash.FAIL, errno.ENOSPC, 0), (crash.FAIL, errno.ENOSPC, crash.FOREVER)]
        closing.fail_everywhere(ACTS[name], crash.CHANGES, kinds)
    assert closing.cases >= 12  # some runs have one call more for each


def test_a_rename_that_fails_leaves_the_count_of_links(bench):
    """The file it would have replaced is linked in the graveyard by then."""
    bench.fail_everywhere(ACTS["rename_over_link"], crash.CHANGES, [(crash.FAIL, errno.EDQUOT, 0)])
    assert bench.cases >= 5


def test_if_nothing_can_be_written_nothing_was_changed(bench):
    """Neither the records nor the aborts of those that were written: these are written later."""
    bench.fail_everywhere(ACTS["link"], crash.CHANGES, [(crash.FAIL, errno.ENOSPC, crash.FOREVER)])
    assert bench.cases >= 4


def is_as_it_was(path, before):
    """False if anything of it is refused."""
    whole = True
    for name in ("", *before):
        try:
            found = state_of(path / name)
        except OSError as error:
            assert error.errno == errno.EIO, error
            whole = False
            continue
        if not name:
            assert differences(before, found) == []
        else:
            assert differences({"": before[name]}, {"": found[""]}, ("group", "nlink")) == []
    return whole


def rewrite(d, *_):
    write_at(f"{d}/f", b"all new " * 2400, 0)


def crowd(d, *_):
    for number in range(30):
        os.close(os.open(f"{d}/a rather long name, so that catalogs fill up soon {number}", os.O_CREAT))


def test_killed_while_it_makes_changes_without_records(maker):
    """The store is full: an earlier state is exact or refused, never another."""
    root = maker.file_systems.make("ext4", f"full-{time.time_ns()}", 24)
    store = root / "store"
    store.mkdir(mode=0o700)
    mount = maker.mount("allow_other", "onfull=continue", f"store={store}", made=crash.Traced)
    bench = crash.Bench(mount)
    scenes = []
    for function in (rewrite, crowd):
        for number in range(2 if QUICK else 5):
            trial = bench.trial(ACTS["create"]._replace(run=function))
            scenes.append((trial, moment(), state_of(trial.path), 1 + number if function is rewrite else 40 * number))
    with open(root / "filler", "wb", buffering=0) as stream:
        for size in (1 << 20, 4096, 1):
            try:
                while True:
                    stream.write(b"x" * size)
            except OSError:
                pass
    refused = 0
    for trial, when, before, target in scenes:
        mount.control.arm(crash.CHANGES, crash.KILL, target)
        trial.run()
        mount.control.disarm()
        if mount.is_dead():
            mount.kill(check=False)
            mount.start()
        refused += not is_as_it_was(mount.at(when) / trial.name, before)
    assert refused
    (root / "filler").unlink()
    mount.remount()
    for trial, when, before, _ in scenes:
        is_as_it_was(mount.at(when) / trial.name, before)
    maker.close()
    maker.mounts.clear()
    maker.file_systems.unmake(root)
