# SPDX-License-Identifier: LGPL-2.1-or-later
"""Long random histories: whatever was seen when it was the present is the expected past.

After every operation the live tree is recorded with the time. At the end every recorded state
is looked up through @TIME, some are extracted and some reverted to, with daemon kills and
remounts on the way. WAYBACK_MODEL_STEPS and WAYBACK_MODEL_SEED make longer and other runs.
"""
import os
import random
import shutil
import time

import pytest

from operations import Operator
from treestate import differences, state_of

STEPS = int(os.environ.get("WAYBACK_MODEL_STEPS", "350"))
SEEDS = [int(s) for s in os.environ.get("WAYBACK_MODEL_SEED", "1,2").split(",")]


def epoch(when):
    return f"{when // 10**9}.{when % 10**9:09d}"


class History:
    """The moments that were seen, and the lines that led there."""

    def __init__(self, mount, seed):
        self.mount = mount
        self.seed = seed
        self.lines = []
        self.moments = []
        self.random = random.Random(seed * 7919)

    def record(self, line):
        self.lines.append(line)
        self.moments.append((time.time_ns(), state_of(self.mount.path), len(self.lines)))
        while time.time_ns() == self.moments[-1][0]:
            pass

    def work(self, steps, kill=True):
        operator = Operator(str(self.mount.path), self.random.randrange(1 << 30))
        for _ in range(steps):
            self.record(operator.step())
            if kill and self.random.randrange(120) == 0:
                operator.close()
                self.mount.kill()
                self.mount.start()
                self.record("-- killed and mounted again")
            elif self.random.randrange(200) == 0:
                operator.close()
                self.mount.stop()
                self.mount.start()
                self.record("-- unmounted and mounted again")
        operator.close()

    def explain(self, moment, found, what):
        when, expected, count = moment
        lines = differences(expected, found)
        if lines:
            story = "\n".join(self.lines[max(0, count - 12):count + 12])
            pytest.fail(f"seed {self.seed}: {what} {epoch(when)} (after line {count}: "
                        f"{self.lines[count - 1]}):\n" + "\n".join(lines[:20]) +
                        f"\n-- the operations around it:\n{story}")

    def check_by_path(self):
        for moment in self.moments:
            found = state_of(os.path.join(self.mount.path, "@" + epoch(moment[0])))
            self.explain(moment, found, "seen through @")

    def check_by_extract(self, count, scratch):
        for moment in self.random.sample(self.moments, min(count, len(self.moments))):
            target = os.path.join(scratch, "out")
            self.mount.tool("vextract", self.mount.path, "--time", epoch(moment[0]), "-o", target)
            # A copy is on another file system, which counts directories' links its own way.
            found = {path: entry._replace(nlink=moment[1][path].nlink)
                     if entry.kind == "d" and path in moment[1] else entry
                     for path, entry in state_of(target).items()}
            self.explain(moment, found, "extracted at")
            shutil.rmtree(target)

    def check_by_revert(self, count):
        for moment in self.random.sample(self.moments, min(count, len(self.moments))):
            self.mount.tool("vrevert", self.mount.path, "--time", epoch(moment[0]))
            self.explain(moment, state_of(self.mount.path), "reverted to")
            self.record(f"-- reverted to {epoch(moment[0])}")


@pytest.mark.parametrize("seed", SEEDS)
def test_every_state_is_found_again(any_mount, seed, tmp_path):
    history = History(any_mount, seed)
    history.record("-- empty")
    history.work(STEPS)
    history.check_by_path()
    history.check_by_extract(6, tmp_path)
    history.check_by_revert(8)
    history.work(STEPS // 4)
    history.check_by_revert(3)
    history.check_by_path()
    any_mount.check_store()


def test_a_tree_that_was_there_before_is_its_own_oldest_version(any_mount, tmp_path):
    """No import, no scan: what was in SRC before the first mount is found like anything else."""
    any_mount.stop()
    shutil.rmtree(os.path.join(any_mount.source, ".wayback"))
    before = Operator(str(any_mount.source), 99)
    for _ in range(150):
        before.step()
    before.close()
    time.sleep(0.02)
    any_mount.start()
    history = History(any_mount, 3)
    history.record("-- as it was")
    history.work(STEPS // 3)
    history.check_by_path()
    history.check_by_revert(4)
