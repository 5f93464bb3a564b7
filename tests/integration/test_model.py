# SPDX-License-Identifier: LGPL-2.1-or-later
"""Long random histories: every state that was seen as the present is the expected past.

After every operation the live tree is recorded with the time. At the end every recorded state is looked up through
@TIME, some are extracted and some reverted to, with daemon kills and remounts on the way; snapshots are looked up by
name and through .snapshot, and mounted. WAYBACK_MODEL_STEPS and WAYBACK_MODEL_SEED make longer and other runs.
"""
import os
import shutil

import pytest

from history_model import History
from mounts import QUICK
from operations import Operator
from test_unseen import next_tick

# The states are looked up after each half, all of them: twice the steps take four times as long.
STEPS = int(os.environ.get("WAYBACK_MODEL_STEPS", "150" if QUICK else "240"))
SEEDS = [int(s) for s in os.environ.get("WAYBACK_MODEL_SEED", "1" if QUICK else "1,2").split(",")]


@pytest.mark.parametrize("seed", SEEDS)
def test_every_state_is_found_again(any_mount, maker, seed, tmp_path):
    history = History(any_mount, seed, maker)
    history.record("-- empty")
    history.work(STEPS)
    history.check_by_path()
    history.check_by_extract(6, tmp_path)
    history.check_snapshots()
    history.check_by_revert(8)
    history.work(STEPS // 4)
    history.check_by_revert(3)
    history.check_by_path()
    history.check_snapshots()
    any_mount.check_store()
    assert history.looked["view"] and history.looked["@"] and history.looked[".snapshot"], history.looked


def test_a_tree_that_was_there_before_is_its_own_oldest_version(any_mount, tmp_path):
    """No import, no scan: files that were in SRC before the first mount are found like all others."""
    any_mount.stop()
    shutil.rmtree(os.path.join(any_mount.source, ".wayback"))
    before = Operator(str(any_mount.source), 99)
    for _ in range(150):
        before.step()
    before.close()
    next_tick()
    any_mount.start()
    history = History(any_mount, 3)
    history.record("-- as it was")
    history.work(STEPS // 3)
    history.check_by_path()
    history.check_by_revert(4)
