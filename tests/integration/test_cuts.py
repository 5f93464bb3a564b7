# SPDX-License-Identifier: LGPL-2.1-or-later
"""The power fails while programs work through the mount: a sample. tests/soak/cuts does it some hundred times."""
import sys
from pathlib import Path

import pytest

from mounts import QUICK

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "cuts"))

# pylint: disable=wrong-import-position
import cuts
from nosync import without_sync


@pytest.fixture(name="bench_of")
def fixture_bench_of(maker):
    benches = []

    def make(kind, programs=None, workloads=("quiet", "editor", "sqlite", "sqlite-wal")):
        bench = cuts.Bench(maker.scratch / f"bench{len(benches)}", programs or maker.programs, kind, workloads=workloads)
        benches.append(bench)
        return bench

    yield make
    for bench in benches:
        bench.close()


@pytest.mark.parametrize("kind", ("ext4", "xfs"))
def test_what_was_synced_is_there_and_no_version_is_wrong(bench_of, kind):
    bench = bench_of(kind)
    bench.round(seed=1, count=2 if QUICK else 5, seconds=2)
    for seed in range(2, 20):  # on a busy machine nothing may have been synced yet
        if bench.outcome.promised > 0:
            break
        bench.round(seed, count=2, seconds=2)
    assert bench.outcome.failures == []
    assert bench.outcome.promised > 0


def test_a_daemon_that_does_not_sync_is_found_out(bench_of, maker):
    bench = bench_of("ext4", without_sync(maker.programs, maker.scratch), ("quiet", "sqlite"))
    for seed in range(30):
        if bench.round(seed, count=2, seconds=1).failures:
            return
    assert False, "nothing was missing after sixty cuts without a single fsync"
