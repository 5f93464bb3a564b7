# SPDX-License-Identifier: LGPL-2.1-or-later
"""Branches of random moments: changes in one have the result that they have in a plain copy of the moment.

The tree they were branched from changes in between, and its past does not; a branch is mounted again on the way, and
its own past is found, too. WAYBACK_MODEL_STEPS and WAYBACK_MODEL_SEED as in test_model.
"""
import os

import pytest

from history_model import History
from mounts import QUICK, Branch, epoch, moment, run
from test_branch import OneName, branch_of
from test_differential import relative
from treestate import differences, state_of

STEPS = int(os.environ.get("WAYBACK_MODEL_STEPS", "350")) // 3
SEEDS = [int(s) for s in os.environ.get("WAYBACK_MODEL_SEED", "21" if QUICK else "21,22").split(",")]
# Links of directories are counted by the file system below, and the two trees are not changed at the same time.
IGNORE = ("nlink", "mtime")


class Twins:
    """A branch of a moment, and a plain copy of it."""

    def __init__(self, maker, history, seen, number):
        self.mount, self.seen = history.mount, seen
        self.home = maker.scratch / f"branch-{number}"
        self.bare = maker.tree() / "bare"
        run("cp", "-a", self.mount.at(seen.when), self.bare)
        self.branch = branch_of(maker, self.mount, seen.when, self.home)
        self.seed = number
        self.lines, self.moments = [], []
        history.explain(seen, {path: entry._replace(nlink=seen.state[path].nlink) if path in seen.state else entry
                               for path, entry in state_of(self.branch.path).items()}, "branched off")
        self.compare()

    def work(self, steps):
        self.seed += 100
        here, there = OneName(str(self.bare), self.seed), OneName(str(self.branch.path), self.seed)
        try:
            for _ in range(steps):
                a, b = relative(here.step(), self.bare), relative(there.step(), self.branch.path)
                self.lines.append(a)
                assert a == b, "\n".join(self.lines[-10:])
        finally:
            here.close()
            there.close()
        self.compare()
        self.moments.append((moment(), state_of(self.branch.path)))

    def compare(self):
        found = differences(state_of(self.bare), state_of(self.branch.path), IGNORE)
        assert found == [], f"branch of {epoch(self.seen.when)}:\n" + "\n".join(self.lines + found)

    def check_past(self, maker):
        """The branch as it was, mounted beside it."""
        for when, state in self.moments:
            past = maker.mount(f"at={epoch(when)}", "allow_other", source=self.home, made=Branch)
            assert differences(state, state_of(past.path), ignore=("nlink",)) == [], "\n".join(self.lines)
            past.stop()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_branch_is_a_copy_that_remembers(mount, maker, seed):
    history = History(mount, seed, operator=OneName)
    history.record("-- empty")
    history.work(STEPS, kill=False)
    twins = [Twins(maker, history, seen, number) for number, seen in enumerate(history.sample(2))]
    for _ in range(2):
        for twin in twins:
            twin.work(STEPS // 3)
        history.work(10, kill=False)
        for twin in twins:
            twin.branch.remount()
            twin.compare()
    for twin in twins:
        twin.check_past(maker)
    history.check_by_path()
