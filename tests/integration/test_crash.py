# SPDX-License-Identifier: LGPL-2.1-or-later
"""The daemon is killed in the middle of a change, or its system calls fail: a sample.

tests/soak/crash does the same at every call of every operation, and for pairs of them.
"""
import errno
import os
import random
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "crash"))

# pylint: disable=wrong-import-position
from mounts import QUICK

if os.uname().machine != "x86_64":
    pytest.skip("the tracer knows no other registers", allow_module_level=True)

import crash
from scene import ACTS

SEED = int(os.environ.get("WAYBACK_CRASH_SEED", "1"))


@pytest.fixture(name="bench")
def fixture_bench(maker):
    bench = crash.Bench(maker.mount("allow_other", made=crash.Traced))
    yield bench
    bench.finish()
    assert bench.failures == []


def sample(seed, count):
    """Picks so many of what there is."""
    def only(targets):
        targets = list(targets)
        return random.Random(seed).sample(targets, min(count, len(targets)))
    return only


def some_acts(seed, count):
    names = sorted(set(ACTS) - {"vrevert", "vrm"})
    return random.Random(seed).sample(names, 3 if QUICK else count)


def test_killed_at_any_system_call_it_loses_nothing(bench):
    for number, name in enumerate(some_acts(SEED, 8)):
        bench.kill_everywhere(ACTS[name], only=sample(SEED + number, 2))
    assert bench.cases >= 6


def test_killed_again_while_it_recovers(bench):
    bench.kill_everywhere(ACTS["rename_over_directory"], only=sample(SEED, 1), again=True)
    assert bench.cases >= 2


def test_a_call_that_fails_is_an_error_and_no_more(bench):
    for number, name in enumerate(some_acts(SEED + 1, 5)):
        bench.fail_everywhere(ACTS[name], crash.CHANGES, crash.CHANGE_FAULTS, only=sample(SEED + number, 3))
        bench.fail_everywhere(ACTS[name], crash.READS, crash.READ_FAULTS, only=sample(SEED + number, 2))
    assert bench.cases >= 10


def test_where_nothing_can_be_written_nothing_was_changed(bench):
    """Neither the records nor the aborts of those that were written: they are made up for."""
    bench.fail_everywhere(ACTS["link"], crash.CHANGES, [(crash.FAIL, errno.ENOSPC, crash.FOREVER)])
    assert bench.cases >= 4
