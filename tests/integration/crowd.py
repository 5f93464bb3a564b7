# SPDX-License-Identifier: LGPL-2.1-or-later
"""Many processes on the same files, and what the history must show of them.

Each writer has a slot in every shared file and writes (pid, counter) to it, appends such records to shared logs, and
replaces whole files; it notes when each operation began and ended, on the clock that all processes share. Afterwards
`when`, the order of the history, must agree with what was seen: an operation that had ended before another one began
comes before it. And every version must be a state that existed: of each slot, a counter that had begun by then, and
none older than the last that had ended.
"""
import errno
import json
import os
import random
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from mounts import epoch, in_process, moment, nanoseconds
from operations import Operator
from treestate import differences, state_of

SLOT = 32
TABLES, LOGS, REPLACED = 3, 2, 2


class Done(NamedTuple):
    """One operation of a writer: its path, its kind as vlog prints it, and its begin and end on the monotonic clock."""
    path: str
    kind: str
    counter: int
    begin: int
    end: int


class Seen(NamedTuple):
    """A moment at which a writer knew its own slots."""
    when: int
    counters: dict


def record(pid, counter):
    return b"%10d %20d\n" % (pid, counter)


def write_table(writer, name):
    fd = os.open(writer.root / name, os.O_WRONLY)
    begin = time.monotonic_ns()
    os.pwrite(fd, record(writer.pid, writer.counter), writer.slot * SLOT)
    writer.note(name, "write", begin)
    os.close(fd)
    writer.counters[name] = writer.counter


def append(writer, name):
    fd = os.open(writer.root / name, os.O_WRONLY | os.O_APPEND)
    begin = time.monotonic_ns()
    os.write(fd, record(writer.pid, writer.counter))
    writer.note(name, "write", begin)
    os.close(fd)


def replace(writer, name):
    temporary = writer.root / f".{name}.{writer.pid}"
    temporary.write_bytes(record(writer.pid, writer.counter) * 20)
    begin = time.monotonic_ns()
    temporary.rename(writer.root / name)
    writer.note(name, "rename", begin)


class Writer:
    """One process. `run` returns its operations and observations."""

    def __init__(self, root, slot, seed):
        self.root, self.slot = root, slot
        self.pid = os.getpid()
        self.random = random.Random(seed)
        self.counter = 0
        self.counters = {}
        self.done, self.seen = [], []

    def note(self, name, kind, begin):
        self.done.append(Done(name, kind, self.counter, begin, time.monotonic_ns()))

    def look_back(self):
        """Its own slots are exactly what they were, whatever the others did meanwhile."""
        seen = self.random.choice(self.seen)
        for name, counter in seen.counters.items():
            with open(self.root / f"{name}@{epoch(seen.when)}", "rb") as stream:
                found = os.pread(stream.fileno(), SLOT, self.slot * SLOT)
            assert found == record(self.pid, counter), (name, epoch(seen.when), found, counter)

    def run(self, seconds, steps):
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.counter < steps:
            self.counter += 1
            action = self.random.choice([write_table, write_table, append, replace])
            count = {write_table: TABLES, append: LOGS, replace: REPLACED}[action]
            action(self, f"{action.__name__}{self.random.randrange(count)}")
            if self.random.random() < 0.2:
                self.seen.append(Seen(moment(), dict(self.counters)))
            if self.seen and self.random.random() < 0.1:
                self.look_back()
        return self.pid, self.done, self.seen


def prepare(root, writers):
    for i in range(TABLES):
        (root / f"write_table{i}").write_bytes(record(0, 0) * writers)
    for i in range(LOGS):
        (root / f"append{i}").write_bytes(b"")
    for i in range(REPLACED):
        (root / f"replace{i}").write_bytes(record(0, 0) * 20)


def tools_at_work(mount, root, seconds, stop):
    """The work of people and schedules beside the writers."""
    number, end = 0, time.monotonic() + seconds
    while time.monotonic() < end and not stop:
        number += 1
        mount.tool("vsnap", "create", f"crowd-{number}", root)
        mount.tool("vstat", "-l", "20", root / "write_table0")
        mount.tool("vlog", "-l", "50", root)
        mount.run_tool("vcompact", root)  # a log may be growing too fast at that moment
        mount.tool("vfind", root)
        gone = root / f"gone-{number}"
        gone.write_bytes(b"to be forgotten" * number)
        mount.tool("vrm", "-y", gone)


def crowd(mount, writers, seconds, steps=1 << 60, seed=1, directory="crowd"):
    """Run so many processes for so long, or until each made so many steps. Returns their operations and observations,
    by slot."""
    root = mount.path / directory
    root.mkdir()
    prepare(root, writers)
    stop = []
    # Each thread waits for a process of its own.
    with ThreadPoolExecutor(writers + 1) as pool:
        tools = pool.submit(tools_at_work, mount, root, seconds, stop)
        tasks = [pool.submit(in_process, lambda i=i: Writer(root, i, seed * 1000 + i).run(seconds, steps))
                 for i in range(writers)]
        try:
            results = [task.result() for task in tasks]
        finally:
            stop.append(True)
        tools.result()
    return root, results


# ---- afterwards ------------------------------------------------------------------------------------

def changes_of(mount, root):
    """{(pid, path, kind): [when, ...]}, oldest first, as vlog prints it."""
    found = defaultdict(list)
    lines = mount.tool("vlog", "--json", root, merge=False).stdout.splitlines()
    for line in reversed(lines):
        change = json.loads(line)
        name = change.get("other") if change["op"] == "rename" else change["path"]
        found[change.get("pid"), name, change["op"]].append(nanoseconds(change))
    return found


def check_order(mount, root, results):
    """Every operation is in the history once, and `when` agrees with the order in which they were seen to happen."""
    found = changes_of(mount, root)
    ordered = []
    for pid, done, _ in results:
        expected = defaultdict(list)
        for one in done:
            expected[one.path, one.kind].append(one)
        for (path, kind), ones in expected.items():
            whens = found[pid, path, kind]
            assert len(whens) == len(ones), (pid, path, kind, len(whens), len(ones), [k for k in found if k[0] == pid])
            ordered += zip(whens, ones)
    ordered.sort(key=lambda pair: pair[0])
    latest = None
    for when, one in ordered:
        assert latest is None or one.end >= latest.begin, f"{one} at {epoch(when)} comes after {latest}"
        latest = one if latest is None or one.begin > latest.begin else latest
    return dict(((one.path, one.counter, one.kind), when) for when, one in ordered), ordered


def check_versions(mount, root, results, ordered, most):
    """Each version of a table is a state that existed: slot by slot, the last value written according to `when`."""
    pids = [pid for pid, _, _ in results]
    owner = {id(one): pid for pid, done, _ in results for one in done}
    for i in range(TABLES):
        name = f"write_table{i}"
        state = [record(0, 0)] * len(results)
        writes = [(when, one) for when, one in ordered if one.path == name]
        chosen = set(random.Random(7).sample(range(len(writes)), min(most, len(writes))))
        for number, (when, one) in enumerate(writes):
            pid = owner[id(one)]
            state[pids.index(pid)] = record(pid, one.counter)
            if number in chosen or number + 1 == len(writes):
                found = (root / f"{name}@{epoch(when)}").read_bytes()
                assert found == b"".join(state), f"{name} at {epoch(when)}"
        assert (root / name).read_bytes() == b"".join(state)
        listed = json.loads(mount.tool("vstat", "--json", root / name, merge=False).stdout)
        whens = [nanoseconds(version) for version in listed["versions"]]
        assert whens == sorted(whens, reverse=True)
        assert set(whens) >= {when for when, _ in writes}


def check(mount, root, results, most=200):
    """How many operations were found again."""
    _, ordered = check_order(mount, root, results)
    check_versions(mount, root, results, ordered, most)
    return len(ordered)


# ---- disjoint trees --------------------------------------------------------------------------------

def model(root, seed, steps, seconds):
    """One process: random operations on a tree of its own, and its state after each."""
    root.mkdir()
    operator = Operator(str(root), seed)
    end = time.monotonic() + seconds
    states = []
    try:
        while len(states) < steps and time.monotonic() < end:
            line = operator.step()
            states.append((moment(), state_of(root), line))
    finally:
        operator.close()
    return states


def models(mount, processes, steps, seconds, seed=1):
    """At the same time, each in its own directory: {directory: its states}."""
    names = [f"model{i}" for i in range(processes)]
    with ThreadPoolExecutor(processes) as pool:
        tasks = [pool.submit(in_process, lambda n=n, i=i: model(mount.path / n, seed * 100 + i, steps, seconds))
                 for i, n in enumerate(names)]
        return dict(zip(names, [task.result() for task in tasks]))


def check_models(mount, found, most):
    """How many states were found again, exactly."""
    count = 0
    for name, states in found.items():
        for when, state, line in random.Random(5).sample(states, min(most, len(states))):
            lines = differences(state, state_of(mount.at(when, name)))
            assert not lines, f"{name} at {epoch(when)} ({line}): " + "\n".join(lines[:10])
            count += 1
    return count


# ---- one tree for all, without a model -------------------------------------------------------------

class Stirrer(Operator):
    """A path that named a file may name a pipe when it is opened, which waits for a process at the other end,
    anywhere."""

    EXPECTED = Operator.EXPECTED | {errno.ESPIPE, errno.EAGAIN, errno.EPIPE}

    @staticmethod
    def opener(path, flags):
        return os.open(path, flags | os.O_NONBLOCK, 0o666)


def stir(root, seed, seconds, steps):
    """One process: random operations on a tree that others change as well. Returns their number."""
    operator = Stirrer(str(root), seed)
    # A process is killed by SIGBUS if it maps bytes that another cuts off.
    operator.operations = [name for name in operator.operations if name != "do_mmap"]
    end = time.monotonic() + seconds
    count = 0
    try:
        while time.monotonic() < end and count < steps:
            try:
                operator.step()
            except (FileNotFoundError, NotADirectoryError, FileExistsError, IsADirectoryError, ValueError, IndexError):
                pass  # another process was faster
            count += 1
    finally:
        operator.close()
    return count


def stir_together(mount, processes, seconds, steps=1 << 60, seed=1, directory="stirred"):
    """Returns the number of operations. The tree is the same behind the mount, and a past moment of it does not
    change."""
    root = mount.path / directory
    root.mkdir()
    with ThreadPoolExecutor(processes) as pool:
        tasks = [pool.submit(in_process, lambda i=i: stir(root, seed * 100 + i, seconds, steps))
                 for i in range(processes)]
        count = sum(task.result() for task in tasks)
    when, now = moment(), state_of(root)
    # A replaced file keeps a link in the graveyard, which exists behind the mount only.
    lines = differences(state_of(mount.source / directory), now, ignore=("nlink",))
    assert not lines, lines[:10]
    stir(root, seed, seconds / 10, steps)
    lines = differences(now, state_of(mount.at(when, directory)))
    assert not lines, lines[:10]
    return count
