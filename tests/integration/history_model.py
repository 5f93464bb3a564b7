# SPDX-License-Identifier: LGPL-2.1-or-later
"""A random history and the check of it: every state that was seen as the present must be found again.

History(mount, seed).work(steps) changes the tree and takes note of it after every step; among the changes, snapshots of
the tree and of directories in it are made, renamed and deleted, and moments mounted (-o at=), which remain mounted
while the tree goes on changing. The check_ methods look the past up in each of the ways in which it can be reached.
"""
import os
import random
import shutil
import time
from typing import NamedTuple

import pytest

from mounts import epoch
from operations import Operator
from treestate import differences, state_of

VIEWS = 3  # moments mounted at the same time


def directories(root):
    """{inode number: path}: identifies a directory by inode number, whatever its path at another time."""
    return {os.lstat(path).st_ino: os.path.relpath(path, root) if path != str(root) else ""
            for path, _, _ in os.walk(root)}


def substate(state, path):
    """The state of a directory in a tree whose state is known."""
    if not path:
        return state
    inside = {p[len(path) + 1:]: entry for p, entry in state.items()
              if p == path or p.startswith(path + "/")}
    groups = {}
    # A group has the first name that is met, and the order of a walk is that of the state.
    return {p: entry._replace(group=groups.setdefault(entry.group, p)) for p, entry in inside.items()}


class Moment(NamedTuple):
    when: int
    state: dict
    line: int


class Named(NamedTuple):
    moment: Moment
    scope: str   # the path of the directory it is of, "" for the whole tree
    paths: dict  # directories() of then


class History:
    """The moments that were seen, and a line for each operation before them."""

    def __init__(self, mount, seed, maker=None, operator=Operator):
        self.mount = mount
        self.seed = seed
        self.maker = maker  # without one, no moment is mounted
        self.operator = operator
        self.lines = []
        self.moments = []
        self.named = {}
        self.views = []  # (mount of a moment, that moment, the directory of then that is shown)
        self.looked = {"view": 0, "@": 0, ".snapshot": 0, "absent": 0}  # how often, by kind of look-up
        self.random = random.Random(seed * 7919)

    # -- making history --------------------------------------------------------------------------

    def record(self, line):
        self.lines.append(line)
        self.moments.append(Moment(time.time_ns(), state_of(self.mount.path), len(self.lines)))
        while time.time_ns() == self.moments[-1].when:
            pass

    def work(self, steps, kill=True, snapshots=True):
        operator = self.operator(str(self.mount.path), self.random.randrange(1 << 30))
        try:
            for _ in range(steps):
                self.record(operator.step())
                if snapshots:
                    self.change_snapshots()
                    self.change_views()
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
        finally:
            operator.close()

    def change_snapshots(self):
        kind = self.random.randrange(40)
        if kind < 3:
            self.create_snapshot()
        elif kind == 3 and self.named:
            old, new = self.random.choice(sorted(self.named)), f"renamed {len(self.lines)}"
            self.mount.tool("vsnap", "rename", old, new, cwd=self.mount.path)
            self.named[new] = self.named.pop(old)
            self.lines.append(f"-- snapshot {old} is now {new}")
        elif kind == 4 and len(self.named) > 4:
            name = self.random.choice(sorted(self.named))
            self.mount.tool("vsnap", "delete", name, cwd=self.mount.path)
            del self.named[name]
            self.lines.append(f"-- snapshot {name} deleted")
        elif kind == 5 and self.named:
            self.check_name(self.random.choice(sorted(self.named)))

    def create_snapshot(self):
        """Of everything or of a directory; nothing changes between it and the state that is seen."""
        paths = directories(self.mount.path)
        scope = self.random.choice([""] + sorted(paths.values()))
        name = f"snap {len(self.lines)}"
        made = self.mount.tool("vsnap", "create", name, self.mount.path / scope).stdout.rstrip("\n").split("\t")
        assert made[0] == name
        when = int(made[1].replace(".", ""))
        self.lines.append(f"-- snapshot {name} of {scope or '.'}: {epoch(when)}")
        moment = Moment(when, state_of(self.mount.path), len(self.lines))
        self.named[name] = Named(moment, scope, paths)
        self.moments.append(moment)

    def change_views(self):
        """Mount a moment, look at it again, or unmount it."""
        if not self.maker or self.random.randrange(25):
            return
        if len(self.views) < VIEWS and self.random.randrange(2):
            self.open_view()
        elif self.views:
            self.check_view(self.views[0])
            self.views.pop(0)[0].stop()

    def whole(self):
        """The moments that are still as they were."""
        return self.moments

    def open_view(self):
        """By the name of a snapshot, which shows the directory it is of, or by time."""
        if self.named and self.random.randrange(2):
            at = self.random.choice(sorted(self.named))
            moment, scope, _ = self.named[at]
        else:
            moment, scope = self.random.choice(self.whole()), ""
            at = epoch(moment.when)
        view = self.maker.mount(f"at={at}", *self.mount.store_options(), source=self.mount.source)
        self.views.append((view, moment, scope))
        self.check_view(self.views[-1])

    # -- looking back ----------------------------------------------------------------------------

    def explain(self, moment, found, what, expected=None):
        lines = differences(moment.state if expected is None else expected, found)
        if lines:
            story = "\n".join(self.lines[max(0, moment.line - 12):moment.line + 12])
            pytest.fail(f"seed {self.seed}: {what} {epoch(moment.when)} (after line {moment.line}: "
                        f"{self.lines[moment.line - 1]}):\n" + "\n".join(lines[:20]) +
                        f"\n-- the operations around it:\n{story}")

    def sample(self, count):
        return self.random.sample(self.moments, min(count, len(self.moments)))

    def check_by_path(self):
        for moment in self.moments:
            found = state_of(os.path.join(self.mount.path, "@" + epoch(moment.when)))
            self.explain(moment, found, "seen through @")

    def check_by_extract(self, count, scratch):
        for moment in self.sample(count):
            target = os.path.join(scratch, "out")
            self.mount.tool("vextract", self.mount.path, "--time", epoch(moment.when), "-o", target)
            # A copy is on another file system, which counts directories' links its own way.
            found = {path: entry._replace(nlink=moment.state[path].nlink)
                     if entry.kind == "d" and path in moment.state else entry
                     for path, entry in state_of(target).items()}
            self.explain(moment, found, "extracted at")
            shutil.rmtree(target)

    def check_by_revert(self, count):
        for moment in self.sample(count):
            self.mount.tool("vrevert", self.mount.path, "--time", epoch(moment.when))
            self.explain(moment, state_of(self.mount.path), "reverted to")
            self.record(f"-- reverted to {epoch(moment.when)}")

    def check_view(self, view):
        mount, moment, scope = view
        self.explain(moment, state_of(mount.path), f"{scope or 'all'} mounted with at=",
                     substate(moment.state, scope))
        self.looked["view"] += 1

    def check_views(self):
        for view in self.views:
            self.check_view(view)
            view[0].stop()
        self.views.clear()

    @staticmethod
    def is_covered(path, scope):
        return path is not None and (not scope or path == scope or path.startswith(scope + "/"))

    def check_name(self, name):
        """As @NAME from the root, and in .snapshot of each current directory that existed then."""
        moment, scope, paths = self.named[name]
        if not scope:
            self.explain(moment, state_of(self.mount.path / f"@{name}"), f"seen as @{name}")
            self.looked["@"] += 1
        for ino, path in sorted(directories(self.mount.path).items()):
            place = self.mount.path / path / ".snapshot" / name
            then = paths.get(ino)
            listed = self.is_covered(then, scope)
            # If asked for by name, a directory that was made since, or was not in what the snapshot covers, shows its
            # predecessor at that path.
            if not listed and path in paths.values():
                then = path
            covered = self.is_covered(then, scope)
            assert place.exists() == covered, f"seed {self.seed}: {place} ({then} of {scope or '.'})"
            assert (name in os.listdir(place.parent)) == listed, place
            self.looked[".snapshot" if covered else "absent"] += 1
            if covered:
                self.explain(moment, state_of(place), f"seen through {place}", substate(moment.state, then))

    def check_snapdir_times(self, count):
        """.snapshot of the root takes any time."""
        for moment in self.sample(count):
            found = state_of(self.mount.path / ".snapshot" / epoch(moment.when))
            self.explain(moment, found, "seen through .snapshot")

    def check_snapshots(self):
        for name in sorted(self.named):
            self.check_name(name)
        self.check_snapdir_times(10)
        self.check_views()
