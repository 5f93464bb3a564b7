# SPDX-License-Identifier: LGPL-2.1-or-later
"""Rounds: a fresh disk, a mount on it, workloads, and at random moments clones of the disk; then each clone is mounted,
recovered and checked as a machine would find it whose power failed at that moment."""
import ctypes
import os
import random
import re
import shutil
import threading
import time
import traceback

from disk import Disk, Holder
from facts import Outcome
from mounts import Mount, moment
from workloads import ALL, ALL_WITH_RULES

# Expected findings of vfsck: records at the end of a log are torn, or lost, with those that name a deleted file; the
# timeline is derived. Nothing is packed here: a deleted file that is shorter than it was ("missing-bundle") was not on
# the disk yet.
TORN = "damaged-(record|trailer|payload|timeline)|torn-tail|orphan|missing-bundle"
SAID = "power cut|is shorter than it was|is damaged|leaves changes that came after it unrecorded"
LIBC = ctypes.CDLL(None, use_errno=True)
SYNC_WRITE = 1 | 2 | 4  # SYNC_FILE_RANGE_WAIT_BEFORE | WRITE | WAIT_AFTER


class Cut:
    def __init__(self, disk, begin, end, seed, scratch):
        self.disk = disk
        self.begin = begin
        self.end = end
        self.seed = seed
        self.scratch = scratch


class Writeback(threading.Thread):
    """The kernel may write any dirty page at any time. Here it does so often, and content of files rather than logs."""

    def __init__(self, root, seed):
        super().__init__(daemon=True)
        self.root = root
        self.random = random.Random(seed)
        self.stopping = threading.Event()

    def run(self):
        while not self.stopping.wait(self.random.random() * 0.1):
            files = [os.path.join(folder, name) for folder, folders, names in os.walk(self.root)
                     if not (folders.remove(".wayback") if ".wayback" in folders else None) for name in names]
            for path in self.random.sample(files, min(4, len(files))):
                try:
                    fd = os.open(path, os.O_RDONLY)
                except OSError:
                    continue
                LIBC.sync_file_range(fd, ctypes.c_long(0), ctypes.c_long(0), SYNC_WRITE)
                os.close(fd)

    def end(self):
        self.stopping.set()
        self.join()


class Bench:
    def __init__(self, base, programs, kind, options=(), writeback=False, workloads=tuple(ALL), rules=None):
        self.base = base
        self.base.mkdir(exist_ok=True)
        self.programs = programs
        self.kind = kind
        self.options = list(options)
        self.writeback = writeback
        self.workloads = workloads
        self.rules = rules  # of wayback.conf
        self.holder = Holder(base)
        self.mounts = []
        self.environment = {}
        self.cuts = 0
        self.rounds = 0
        self.outcome = Outcome()

    def mount(self, disk, name):
        tree, point = disk.root / "tree", self.base / name
        tree.mkdir(exist_ok=True)
        point.mkdir(exist_ok=True)
        point.with_name(name + ".log").unlink(missing_ok=True)
        others = [] if "no_open" in self.options else ["allow_other"]
        mount = Mount(self.programs, tree, point, [*others, *self.options])
        mount.start()
        self.mounts.append(mount)
        conf = mount.store() / "wayback.conf"
        if self.rules and (not conf.exists() or conf.read_text(encoding="utf-8") != self.rules):
            mount.stop()
            conf.write_text(self.rules, encoding="utf-8")
            mount.start()
        return mount

    def work(self, disk, mount, seed, count, seconds):
        """Workloads, and `count` cuts while they run."""
        random_ = random.Random(seed)
        works = [(ALL | ALL_WITH_RULES)[name](mount, name, seed) for name in self.workloads]
        writeback = Writeback(disk.root / "tree", seed) if self.writeback else None
        cuts = []
        for work in works + ([writeback] if writeback else []):
            work.start()
        try:
            for number in range(count):
                time.sleep(random_.random() * 2 * seconds / count)
                begin = moment()
                clone = disk.cut(f"cut-{number}", self.base / f"cut-{number}")
                cuts.append(Cut(clone, begin, moment(), f"{seed}.{number}", self.base / "scratch"))
        finally:
            for work in works + ([writeback] if writeback else []):
                work.end()
        return works, cuts

    def examine(self, cut, works):
        """As found after the cut: recovered by the file system, by the daemon, and checked."""
        outcome = Outcome()
        cut.disk.mount()
        cut.scratch.mkdir(exist_ok=True)
        mount = None
        try:
            mount = self.mount(cut.disk, "after")
            for work in works:
                work.check(cut, mount, outcome)
            surprises = [line for line in mount.surprises() if not re.search(SAID, line)]
            if surprises:
                outcome.failures.append(f"the daemon says: {surprises}")
            mount.expect("")
            mount.stop()
            self.check_store(mount, outcome)
        except (AssertionError, OSError) as error:
            outcome.failures.append("".join(traceback.format_exception(error)))
            if mount:
                mount.kill(check=False)
        finally:
            shutil.rmtree(cut.scratch)
            cut.disk.remove()
        outcome.failures = [f"{self.kind}, cut {cut.seed}: {text}" for text in outcome.failures]
        return outcome

    def check_store(self, mount, outcome):
        result = mount.run_tool("vfsck", mount.source)
        for line in result.stdout.splitlines():
            if re.match("(wrong|lost|unchecked)", line) and not re.search(TORN, line):
                outcome.failures.append(f"vfsck: {line}")

    def round(self, seed, count=8, seconds=5.0):
        disk = Disk.make(self.holder, self.kind, "disk", self.base / "disk").mount()
        mount = self.mount(disk, "before")
        cuts = []
        total = Outcome()
        try:
            works, cuts = self.work(disk, mount, seed, count, seconds)
            mount.stop()
            disk.remove()
            for cut in cuts:
                total.add(self.examine(cut, works))
        finally:
            mount.kill(check=False)
            for each in [disk] + [cut.disk for cut in cuts]:
                if each.image.exists():
                    each.remove()
        self.cuts += len(cuts)
        self.rounds += 1
        self.outcome.add(total)
        return total

    def close(self):
        for mount in self.mounts:
            mount.kill(check=False)
        self.holder.close()
