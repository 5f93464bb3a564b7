# SPDX-License-Identifier: LGPL-2.1-or-later
"""Kills the daemon at each of its system calls, or lets each of them fail, and reports what is wrong then.

The check needs no model of a file system: the same act, undisturbed, shows its result and its changes. Disturbed, a
tree and its list of changes must be those of before or those of after, and agree; and every state that was seen before
is found exactly as it was.
"""
import errno
import json
import mmap
import os
import re
import signal
import struct
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

from mounts import LIMIT, Mount, epoch, moment, mounted_at, nanoseconds, run
from scene import SHORT, make_scene, secret_of
from treestate import differences, state_of

HERE = Path(__file__).resolve().parent
ALL, TREE, CHANGES, READS = range(4)
NOTHING, KILL, FAIL, SHORTEN, SHORTEN_THEN_FAIL = range(5)
FIELDS = ("armed", "what", "action", "target", "error", "more", "count", "done", "number", "tracer", "watching", "busy")
FOREVER = 1 << 20
MISSES = 3  # one after the other, and an act is over: the number of its calls is not the same each time
CHANGE_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.ENOMEM)
# The name vrevert gives a directory that replaces another: one of its own each time.
TEMPORARY = re.compile(r"(\.vrevert)-[0-9a-f]+-[0-9a-f]+")
# (action, error, how many calls after it fail as well)
CHANGE_FAULTS = [(FAIL, error, 0) for error in CHANGE_ERRORS] + \
    [(FAIL, error, FOREVER) for error in (errno.ENOSPC, errno.EIO)] + \
    [(SHORTEN, 0, 0), (SHORTEN_THEN_FAIL, errno.ENOSPC, 0), (SHORTEN_THEN_FAIL, errno.ENOSPC, FOREVER)]
READ_FAULTS = [(FAIL, error, 0) for error in (errno.EIO, errno.ENOMEM, errno.EMFILE)]


def build_tracer(directory):
    """The tracer, or None on a machine whose registers it does not know."""
    if os.uname().machine != "x86_64":
        return None
    path = Path(directory) / "tracer"
    if not path.exists():
        run("cc", "-std=gnu17", "-D_GNU_SOURCE", "-O1", "-Wall", "-Wextra", "-o", path,
            HERE / "tracer.c")
    return path


def wait_for(condition, problem):
    """A thread that waits for a busy disk stops only when that is done."""
    deadline = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < deadline, problem
        time.sleep(0.0002)


class Control:
    """The memory shared with the tracer."""

    def __init__(self, path):
        self.path = path
        with open(path, "wb") as stream:
            stream.truncate(4096)
        with open(path, "r+b") as stream:
            self.map = mmap.mmap(stream.fileno(), 4096)

    def __getitem__(self, name):
        return struct.unpack_from("<I", self.map, 4 * FIELDS.index(name))[0]

    def __setitem__(self, name, value):
        struct.pack_into("<I", self.map, 4 * FIELDS.index(name), value)

    def arm(self, what, action=NOTHING, target=0, error=0, more=0):
        for name, value in (("what", what), ("action", action), ("target", target), ("error", error),
                            ("more", more), ("count", 0), ("done", 0), ("watching", 0), ("armed", 1)):
            self[name] = value
        if not self["tracer"]:
            self["watching"] = 1  # the daemon is still to be started: from its first call on
            return
        os.kill(self["tracer"], signal.SIGUSR1)
        wait_for(lambda: self["watching"] or self.is_over(), "the tracer does not answer")
        assert self["watching"], "the daemon died before anything was done"

    def is_over(self):
        """Whether the tracer has ended, and the daemon before it."""
        try:
            return os.waitid(os.P_PID, self["tracer"], os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return True

    def disarm(self):
        """Nothing is done to the daemon from here on, and nothing is about to be."""
        self["armed"] = 0
        wait_for(lambda: not self["busy"] or self.is_over(), "the tracer makes no progress")
        return self["count"]

    def call(self):
        """The call that was met: its number and the path it was for."""
        path = self.map[4 * len(FIELDS):].split(b"\0")[0].decode(errors="replace")
        return f"system call {self['number']} on {path}"


class Traced(Mount):
    """A mount whose daemon runs under the tracer. Changes are announced by calls, so it is killed before and after;
    with `mapped` by stores, as they are without a tracer."""

    mapped = False

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.tracer = build_tracer(self.programs.directory)
        self.control = Control(self.path.with_name(self.path.name + ".control"))
        self.traced = True

    def command(self, *extra):
        command = super().command(*extra)
        if not self.traced:
            return command
        options = ["--mapped"] if self.mapped else []
        return [str(self.tracer), *options, str(self.control.path), str(self.source), str(self.store()), *command]

    def _started(self):
        # LeakSanitizer stops its own process with ptrace, and waits for ever if that is traced.
        environment = self.programs.environment()
        environment["ASAN_OPTIONS"] = environment["ASAN_OPTIONS"].replace("detect_leaks=1", "detect_leaks=0")
        return environment

    def start(self, *extra):
        normal, environment = self.programs.environment, self._started()
        self.control["tracer"] = self.control["busy"] = 0
        self.programs.environment = lambda: environment
        try:
            return super().start(*extra)
        finally:
            self.programs.environment = normal

    def is_dead(self):
        """Whether the daemon was killed; waits for that if it is about to happen."""
        if not self.control["done"]:
            return False
        self.process.wait(timeout=300)
        return True

    def start_dying(self, target):
        """Mounts and is killed at that call; False if it started with fewer calls."""
        self.control["tracer"] = 0
        self.control.arm(CHANGES, KILL, target)
        try:
            self.start()
        except AssertionError:
            if not self.control["done"]:
                raise
        self.control.disarm()
        if self.control["done"]:
            self.kill(check=False)
            return True
        return False


class TracedMapped(Traced):
    mapped = True


class Change(NamedTuple):
    """A line of vlog that does not depend on the time or the directory."""
    op: str
    path: str
    other: str
    detail: str
    offset: int
    length: int
    before: int
    after: int


def changes_since(mount, when, directory):
    """[(when, Change)], oldest first, of all changes below the directory."""
    result = mount.tool("vlog", "--json", "--since", epoch(when), mount.path, merge=False)
    found = []
    for line in result.stdout.splitlines():
        entry = json.loads(line)
        paths = [str(entry.get(key) or "") for key in ("path", "other")]
        if not any(p == directory or p.startswith((directory + "/", "/" + directory + "/")) for p in paths):
            continue
        paths = [TEMPORARY.sub(r"\1", p.lstrip("/").removeprefix(directory).lstrip("/")) for p in paths]
        found.append((nanoseconds(entry), Change(entry["op"], *paths, entry.get("detail") or "",
                                            entry["offset"], entry["length"], entry["size_before"],
                                            entry["size_after"])))
    return sorted(found)


def joined(changes):
    """The kernel hands on one write(2) in parts if the caller's memory was not resident when it was copied."""
    whole = []
    for when, change in changes:
        last = whole[-1][1] if whole else None
        if last and last.op == change.op == "write" and last.path == change.path and \
                last.offset + last.length == change.offset and last.after == change.before:
            whole[-1] = when, last._replace(length=last.length + change.length, after=change.after)
        else:
            whole.append((when, change))
    return whole


def vague(change):
    """history=close records no growth before the file is closed: recovery finds the place, not the caller."""
    return change._replace(op="", detail="", offset=0, length=0)


class Reference(NamedTuple):
    state: dict
    idle: bool  # it leaves the state as it was, as a second chmod(2) with the same mode does
    changes: list
    calls: int
    result: int


class Failure(AssertionError):
    pass


def needs(condition, *words):
    if not condition:
        raise Failure(" ".join(str(w) for w in words))


def same(expected, found, what, ignore=()):
    lines = differences(expected, found, ignore)
    needs(not lines, what, "\n  " + "\n  ".join(lines[:8]))


class Trial:
    """One act on one scene, disturbed or not."""

    def __init__(self, bench, act, first):
        self.bench = bench
        self.mount = bench.mount
        self.act = act
        self.first = first
        self.name = f"t{bench.next_number():05}"
        self.path = self.mount.path / self.name
        self.seen = []  # (when, state)
        self.begun = None  # when the first of its changes was made
        os.mkdir(self.path)
        make_scene(str(self.path))
        self.ready = moment()
        if act.prepare:
            act.prepare(str(self.path))
        self.see()
        if first:
            try:
                first.run(str(self.path), self.mount, self.ready)
            except OSError:
                pass
            self.see()
        self.since, self.before = self.seen[-1]

    def see(self):
        self.seen.append((moment(), state_of(self.path)))
        moment()

    def run(self):
        """Its errno; 0: it was done."""
        try:
            self.act.run(str(self.path), self.mount, self.ready)
        except OSError as error:
            return error.errno or errno.EIO
        return 0

    def changes(self):
        changes = changes_since(self.mount, self.since, self.name)
        self.begun = changes[0][0] if changes else None
        return joined(changes)

    def past(self, when):
        return state_of(self.mount.at(when) / self.name)

    def check_seen(self):
        """Each state that was seen is still there; except those that were to be forgotten."""
        forgets = self.act.forgets + (self.first.forgets if self.first else ())
        for when, state in self.seen:
            if not forgets:
                same(state, self.past(when), f"{self.name} at {epoch(when)} (of {self.seen.index((when, state))}):")
                continue
            try:
                found = self.past(when)
            except OSError as error:
                needs(error.errno in (errno.EIO, errno.ENOENT), "a half-forgotten state:", error)
                continue
            expected = {p: e for p, e in state.items() if p not in forgets}
            same(expected, {p: e for p, e in found.items() if p not in forgets}, "beside what was forgotten")

    def check_live(self, reference, phantom=False):
        """Live tree and list of changes agree. `phantom`: a change that failed may have left its record."""
        live = state_of(self.path)
        changes = self.changes()
        kinds = [change for _, change in changes]
        if self.bench.vague:
            kinds = [vague(change) for change in kinds]
            reference = reference._replace(changes=[vague(change) for change in reference.changes])
        if self.act.forgets:
            self.seen = self.seen[-1:]
            return
        needs(kinds == reference.changes[:len(kinds)] or phantom, "changes that never were:", kinds,
              "instead of", reference.changes)
        if not kinds:
            same(self.before, live, "without any change recorded the tree has changed:")
        elif not phantom and kinds == reference.changes:
            same(reference.state, live, "with all changes recorded the tree is not as they leave it:", ("mtime",))
            if len(kinds) == 1:
                needs(differences(self.before, live) or reference.idle,
                      "a version of a change that never happened:", kinds)
        elif not phantom:
            needs(self.act.steps or len(reference.changes) > 1, "half of the changes:", kinds, reference.changes)
        if len(kinds) == 1 and not self.act.steps:
            same(self.before, self.past(self.begun - 1), "just before the change:")
            same(live, self.past(changes[0][0]), "just after the change:")
        self.see()
        same(live, self.seen[-1][1], "looking has changed it:")

    def forget_again(self):
        """After a crash the same request is made again; if it was done, the tool reports that there is nothing."""
        self.run()
        self.mount.tool("vcompact", "--undo", self.path)
        for directory, _, files in os.walk(self.mount.store()):
            for name in files:
                needs(secret_of(str(self.path)) not in Path(directory, name).read_bytes(), "not forgotten:", name)

    def change_more(self):
        """The tree can still be changed, and that is recorded."""
        when = moment()
        path = self.path / "afterwards"
        path.write_bytes(b"one")
        self.see()
        with open(path, "r+b") as stream:
            stream.write(b"TWO")
        os.unlink(path)
        self.see()
        kinds = [change.op for _, change in changes_since(self.mount, when, self.name)]
        needs(kinds == ["create", "write", "write", "unlink"], "what came afterwards:", kinds)


def wait_for_survey(mount):
    """The first look at the whole tree has ended, which makes calls of its own: the floor rises, and entries below it
    are removed."""
    deadline = time.monotonic() + LIMIT
    while True:
        with open(mount.store() / "spans", "rb") as stream:
            data = stream.read(64)
        floor, end = (int.from_bytes(data[at:at + 8], "little") for at in (8, 40))
        if not 0 < end <= floor:
            return
        assert time.monotonic() < deadline, "the tree was not looked at"
        time.sleep(0.01)


class Bench:
    """A mount on which one trial comes after the other, and counts of the findings."""

    def __init__(self, mount, log=None):
        self.mount = mount
        self.log = log
        self.number = 0
        self.trials = []
        self.cases = 0
        self.failures = []
        self.vague = "history=close" in ",".join(mount.options)
        mount.expect(".")  # each failure below is reported
        wait_for_survey(mount)

    def next_number(self):
        self.number += 1
        return self.number

    def trial(self, act, first=None):
        trial = Trial(self, act, first)
        self.trials.append(trial)
        return trial

    def reference(self, act, first, what):
        trial = self.trial(act, first)
        self.mount.control.arm(what)
        result = trial.run()
        calls = self.mount.control.disarm()
        state = state_of(trial.path)
        changes = [change for _, change in trial.changes()]
        trial.seen = trial.seen[-1:] if act.forgets else trial.seen
        trial.see()
        return Reference(state, not differences(trial.before, state), changes, calls, result)

    def case(self, title, function, *arguments):
        """Counts a case; a failure is noted, and the next one begins with a daemon that runs."""
        self.cases += 1
        count = len(self.trials)
        try:
            return function(*arguments)
        except (Failure, OSError, AssertionError, subprocess.TimeoutExpired) as error:
            text = f"{title}: {type(error).__name__}: {error}"
            self.failures.append(text)
            if self.log:
                self.log(text)
            del self.trials[count:]
            self.mount.control.disarm()
            self.mount.kill(check=False)
            while mounted_at(self.mount.path):
                run("umount", "-l", self.mount.path)
            self.mount.start()
            return True

    # -- killing ---------------------------------------------------------------------------------

    def kill_at(self, act, first, reference, target, what, again=0):
        """False: the act was over before it came to that call."""
        trial = self.trial(act, first)
        self.mount.control.arm(what, KILL, target)
        trial.run()
        self.mount.control.disarm()
        if not self.mount.is_dead():
            trial.check_live(reference)
            return False
        self.mount.kill(check=False)
        more = again > 0 and self.mount.start_dying(again)
        if more or not again:
            self.mount.start()
        trial.check_live(reference)
        trial.check_seen()
        if act.forgets:
            trial.forget_again()
            trial.check_seen()
        trial.change_more()
        trial.check_seen()
        return more if again else True

    def kill_everywhere(self, act, first=None, what=CHANGES, only=None, again=False):
        """At each call of an act, or at those that `only` picks, given their number."""
        reference = self.reference(act, first, what)
        title = f"{first.name} then {act.name}" if first else act.name
        targets = range(1, reference.calls + 2)
        missed = 0
        for target in only(targets) if only else targets:
            if not again:
                more = self.case(f"{title}, killed at {target}", self.kill_at, act, first, reference, target, what)
                missed = 0 if more else missed + 1
                if missed == MISSES:
                    break
                continue
            attempt = 1
            while self.case(f"{title}, killed at {target} and at {attempt} of the recovery", self.kill_at, act,
                            first, reference, target, what, attempt) and attempt < 60:
                attempt += 1

    # -- failing ---------------------------------------------------------------------------------

    def fail_at(self, act, reference, target, what, action, error, more):
        trial = self.trial(act)
        control = self.mount.control
        control.arm(what, action, target, error, more)
        result = trial.run()
        control.disarm()
        needs(self.mount.process.poll() is None, "the daemon is dead:", self.mount.log()[-2000:])
        if not control["done"]:
            return False
        needs(act.steps or result in (0, error, errno.EIO, SHORT, reference.result),
              "the caller got", errno.errorcode.get(result, result), control.call())
        if more:
            (self.mount.path / "elsewhere").write_bytes(b"")  # also the aborts that could not be written
        # A device that failed may have changed something, so that such a record is kept. A stage whose end could not
        # be written ends later, perhaps with a version in which nothing differs.
        trial.check_live(reference, phantom=act.steps or errno.EIO in (error, result) or result == SHORT or
                         (self.vague and (more or action == SHORTEN_THEN_FAIL)))
        live = trial.seen[-1][1]
        # A look after a change, for the answer, may fail as well: then the change was made, and reported.
        done = what == READS and result and not differences(reference.state, live, ("mtime",))
        # A stage whose end could not be written: the close failed, not the change.
        done = done or self.vague
        if result not in (0, errno.EIO, SHORT) and error != errno.EIO and not act.steps and not done:
            same(trial.before, live, f"it failed with {errno.errorcode[result]}, and yet:")
        if result == 0 and not act.forgets:
            same(reference.state, live, "it was done, but", ("mtime",))
        trial.check_seen()
        trial.change_more()
        trial.check_seen()
        return True

    def fail_everywhere(self, act, what, kinds, only=None):
        """kinds: [(action, error, how many more)]."""
        if act.name == "mapped":
            return  # after a failed write-back the kernel still shows the page, which is nowhere else
        reference = self.reference(act, None, what)
        targets = [(t, k) for t in range(1, reference.calls + 1) for k in kinds if not (act.undone and k[2])]
        for target, (action, error, more) in only(targets) if only else targets:
            title = f"{act.name}, call {target} of {reference.calls} " \
                    f"{('', '', 'fails', 'is shortened', 'is shortened, the next fails')[action]} " \
                    f"{errno.errorcode.get(error, '')}{' and all after it' if more else ''}"
            self.case(title, self.fail_at, act, reference, target, what, action, error, more)

    # -- the end ---------------------------------------------------------------------------------

    def finish(self):
        """All states that were seen in all trials, once more and from another start."""
        def everything():
            self.mount.stop()
            self.mount.start()
            for trial in self.trials:
                trial.check_seen()
            self.check_store()
            self.mount.stop()
        self.case("at the end", everything)

    def check_store(self):
        """Every record can be verified. A log whose first record was never completed has none."""
        logs = self.mount.logs()
        if self.mount.run_tool("vdump", "--verify", *logs).returncode == 0:
            return
        for path in logs:
            result = self.mount.run_tool("vdump", "--verify", path)
            needs(result.returncode == 0 or "has no record" in result.stdout, path, result.stdout)


