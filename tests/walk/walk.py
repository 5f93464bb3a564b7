# SPDX-License-Identifier: LGPL-2.1-or-later
"""A walk over everything that can happen to a tree, and every state of it asked for afterwards.

A walk is a sequence of episodes on one tree: work through a mount (history=write, close or none; beside SRC or over it;
the store inside SRC or on another disk), ended by an unmount, a kill in the middle of an operation, or a power cut; and
what Wayback does not see: work on bare SRC, with and without a mount above it, a restored backup, a store that is not
there, a damaged store, a tree copied elsewhere with its store.

After each operation through a mount the walk notes the whole tree. At the end it asks for every state again. Each look at one
path at one moment has one of three outcomes: *right*; *refused* (EIO); or *wrong*, which must never happen. A refusal is
*excused* only if something that no mount recorded (a disturbance) touched that object, or a directory it was in, after that moment. So
the same walk finds wrong versions and sound history that is refused.
"""
import errno
import fcntl
import os
import random
import shutil
import stat
import struct
import sys
import time
from pathlib import Path
from typing import NamedTuple

from mounts import LIMIT, Mount, begin_child, end_of_child, epoch, mounted_at, run
from operations import Operator
from treestate import Entry, content_of, xattrs_of

HIDDEN = {".wayback", ".wayback-staging"}
CLOCK_REALTIME_COARSE = 5  # ctime is taken from it
SHUTDOWN = 0x8004587D  # EXT4_IOC_SHUTDOWN and XFS_IOC_GOINGDOWN are one number
NO_LOG_FLUSH = 2
CUTTABLE = ("ext4", "xfs")
OF_A_MOUNT = ("write", "write", "close")
EVERYTHING = object()  # a disturbance that may have touched anything


class BareOperator(Operator):
    """Works on SRC itself, and leaves the store alone."""

    def _walk(self):
        dirs, others = super()._walk()
        keep = [path for path in dirs if not self._is_hidden(path)]
        return keep, [path for path in others if not self._is_hidden(path)]

    def _is_hidden(self, path):
        return path[len(self.root):].lstrip("/").split("/")[0] in HIDDEN


class UnmappedOperator(Operator):
    """For a daemon that is killed meanwhile: a fault in a mapping would end the whole process."""

    EXPECTED = Operator.EXPECTED | {errno.ESTALE, errno.EIO}

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.operations.remove("do_mmap")


class Seen(NamedTuple):
    """One path as it was."""
    entry: Entry
    inodes: tuple  # its own and those of all directories above it


class Moment(NamedTuple):
    when: int
    tree: dict      # path: Seen
    recorded: bool  # through a mount that records; else any refusal is right
    line: int
    ignore: frozenset  # fields of Entry that are not compared: bare SRC counts links of the store


class Disturbance(NamedTuple):
    when: int
    touched: object  # a set of inodes, or EVERYTHING


class Outcome:
    def __init__(self):
        self.right = self.refused = self.excused = 0
        self.wrong = []    # lines
        self.unexcused = []

    @property
    def looks(self):
        return self.right + self.refused + len(self.wrong)

    def add(self, other):
        self.right += other.right
        self.refused += other.refused
        self.excused += other.excused
        self.wrong += other.wrong
        self.unexcused += other.unexcused


def tree_of(root):
    """{path: Seen} of a live tree."""
    tree, groups = {}, {}

    def visit(relative, above):
        path = os.path.join(root, relative) if relative else str(root)
        status = os.lstat(path)
        is_dir = stat.S_ISDIR(status.st_mode)
        inodes = (status.st_ino, *above)
        group = groups.setdefault((status.st_dev, status.st_ino), relative)
        tree[relative] = Seen(entry_of(path, status, content_of(path, status), xattrs_of(path), group), inodes)
        if is_dir:
            for name in sorted(os.listdir(path)):
                if relative or name not in HIDDEN:
                    visit(f"{relative}/{name}" if relative else name, inodes)

    visit("", ())
    return tree


def entry_of(path, status, content, xattrs, group):
    return Entry(stat.filemode(status.st_mode)[0], stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid,
                 status.st_nlink, 0 if stat.S_ISDIR(status.st_mode) else status.st_size, status.st_mtime_ns,
                 status.st_rdev, content, xattrs, group)


def asked(function, *arguments):
    """(its result, None), or (None, errno)."""
    try:
        return function(*arguments), None
    except OSError as error:
        return None, error.errno


class Spoiler:
    """Changes the last character of the n-th content that is read: shows that a changed byte is found."""

    def __init__(self, number=20):
        self.left = number

    def __call__(self, content):
        self.left -= bool(content)
        if self.left or not content:
            return content
        self.left = -1
        return content[:-1] + chr(ord(content[-1]) ^ 1)


class Look:
    """Compares one moment of the past with its known state."""

    def __init__(self, root, moment, excuse, outcome, spoil=None):
        self.root, self.moment, self.outcome = str(root), moment, outcome
        self.excuse = excuse
        self.spoil = spoil  # called on each content that is read
        self.groups = {}

    def refuse(self, path, what, seen):
        self.outcome.refused += 1
        if not self.moment.recorded or self.excuse(self.moment, seen):
            self.outcome.excused += 1
        else:
            self.outcome.unexcused.append(f"{path or '.'} at {epoch(self.moment.when)} (line {self.moment.line}): {what}")

    def wrong(self, path, text):
        self.outcome.wrong.append(f"{path or '.'} at {epoch(self.moment.when)} (line {self.moment.line}): {text}")

    def compare(self):
        self.visit("")

    def children(self, relative):
        start = f"{relative}/" if relative else ""
        return {path[len(start):] for path in self.moment.tree
                if path and path.startswith(start) and "/" not in path[len(start):]}

    def visit(self, relative):
        path = os.path.join(self.root, relative) if relative else self.root
        seen = self.moment.tree.get(relative)
        status, error = asked(os.lstat, path)
        if error == errno.EIO:
            if seen:
                self.refuse(relative, "refused", seen)
                for name in sorted(self.children(relative)):
                    self.visit(f"{relative}/{name}" if relative else name)
            return
        if error in (errno.ENOENT, errno.ENOTDIR):
            if seen:
                self.wrong(relative, "missing")
            return
        assert error is None, (path, os.strerror(error))
        if seen is None:
            self.wrong(relative, "should not be there")
            return
        self.compare_entry(relative, path, status, seen)
        if stat.S_ISDIR(status.st_mode):
            self.visit_names(relative, path, seen)

    def compare_entry(self, relative, path, status, seen):
        ignore = set(self.moment.ignore)
        content, error = asked(content_of, path, status)
        if error is None and self.spoil:
            content = self.spoil(content)
        xattrs, error_x = asked(xattrs_of, path)
        for code, field in ((error, "content"), (error_x, "xattrs")):
            if code is not None:
                assert code == errno.EIO, (path, os.strerror(code))
                ignore.add(field)
        group = self.groups.setdefault((status.st_dev, status.st_ino), relative)
        found = entry_of(path, status, content, xattrs, group)
        # Which name comes first depends on the other refusals.
        if group != seen.entry.group and self.moment.tree.get(group, seen).entry.group == seen.entry.group:
            ignore.add("group")
        fields = [f"{field} is {getattr(found, field)!r}, was {getattr(seen.entry, field)!r}" for field in Entry._fields
                  if field not in ignore and getattr(found, field) != getattr(seen.entry, field)]
        if fields:
            self.wrong(relative, "; ".join(fields))
        elif error or error_x:
            self.refuse(relative, "content refused" if error else "xattrs refused", seen)
        else:
            self.outcome.right += 1

    def visit_names(self, relative, path, seen):
        names, error = asked(os.listdir, path)
        expected = self.children(relative)
        if error is not None:
            assert error == errno.EIO, (path, os.strerror(error))
            self.refuse(relative, "listing refused", seen)
            names = []
        else:
            for name in sorted(expected - set(names)):
                self.wrong(f"{relative}/{name}", "not listed")
        for name in sorted(expected | set(names)):
            self.visit(f"{relative}/{name}" if relative else name)


class Place:
    """Two disks: one for SRC, one for a store apart."""

    def __init__(self, maker, kind, number):
        self.maker, self.kind, self.number = maker, kind, number
        self.made = []

    def disk(self, name, size=640):
        root = self.maker.file_systems.make(self.kind, f"walk-{self.number}-{name}", size, fails=True)
        self.made.append(root)
        return root

    def cut(self, root):
        """The power fails: content that is not on the disk is lost."""
        fd = os.open(root, os.O_RDONLY)
        fcntl.ioctl(fd, SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
        os.close(fd)

    def back(self, root):
        """And power returns."""
        run("umount", root)
        image = root.with_name(root.name + ".img")
        run("mount", "-o", "loop,nouuid" if self.kind == "xfs" else "loop", image, root)

    def close(self):
        for root in self.made:
            run("umount", "-l", root, check=False)
            root.with_name(root.name + ".img").unlink(missing_ok=True)
            root.rmdir()


class Walk:
    """kind: the file system; sound: without disturbances, so that nothing at all may be refused."""

    def __init__(self, maker, kind, seed, sound=False):
        self.maker, self.kind, self.seed, self.sound = maker, kind, seed, sound
        self.random = random.Random(f"{seed}{kind}{sound}")
        self.place = Place(maker, kind, f"{kind}-{seed}-{int(sound)}")
        self.disk = self.place.disk("src")
        self.source = self.disk / "src"
        self.source.mkdir()
        self.source.chmod(0o755)
        self.apart = self.random.randrange(3) == 0
        self.store_disk = self.place.disk("store") if self.apart else self.disk
        self.point = maker.point()
        self.mount = None
        self.backup = None
        self.moments, self.lines, self.disturbances = [], [], []
        self.copies = 0
        self.tokens = {}  # inode of this tree: its object, over copies
        self.bound = {}  # inode of a copy, when it was bound: the objects it was then
        self.mounted_once = False
        self.clean = True
        self.unsettled = False  # work was under way when the daemon was killed, and none has begun since

    # ---- notes -----------------------------------------------------------------------------------

    def token(self, inode):
        """Of which copy, and its inode there: a later tree has other objects with the numbers of an earlier one."""
        return self.tokens.setdefault(inode, (self.copies, inode))

    def tokens_of_id(self, text):
        """Of the objects that a store may have named by that id, a number and a birth in hexadecimal."""
        inode, birth = (int(part, 16) for part in text.split("-"))
        # A file without records gets its id when its tree is bound: the number that it has in the copy, and no birth.
        if birth < 1 << 32:
            return self.bound.get(inode, set())
        return {(copy, inode) for copy in range(self.copies + 1)}

    def note(self, root, line, recorded):
        self.lines.append(line)
        tree = {path: seen._replace(inodes=tuple(map(self.token, seen.inodes))) for path, seen in tree_of(root).items()}
        ignore = frozenset() if recorded else frozenset({"nlink"})
        self.moments.append(Moment(time.time_ns(), tree, recorded, len(self.lines), ignore))
        while time.time_ns() == self.moments[-1].when:
            pass

    def disturb(self, touched, line):
        self.lines.append(f"== {line}")
        self.disturbances.append(Disturbance(time.time_ns(), touched))

    def excuse(self, moment, seen):
        return any(one.when > moment.when and (one.touched is EVERYTHING or not one.touched.isdisjoint(seen.inodes))
                   for one in self.disturbances)

    def bare(self):
        """{token: ctime} of everything in SRC, as long as nothing is mounted over it."""
        found = {}
        for path, folders, names in os.walk(self.source):
            if path == str(self.source):
                folders[:] = [name for name in folders if name not in HIDDEN]
                names = [name for name in names if name not in HIDDEN]
            for name in (".", *folders, *names):
                status = os.lstat(os.path.join(path, name))
                found[self.token(status.st_ino)] = status.st_ctime_ns
        return found

    # ---- episodes --------------------------------------------------------------------------------

    def options(self, history):
        options = ["allow_other"]
        if self.apart:
            options.append(f"store={self.store_disk / 'store'}")
        if history != "write":
            options.append(f"history={history}")
        return options

    def begin(self, history):
        over = self.random.randrange(4) == 0
        path = self.source if over else self.point
        options = self.options(history)
        self.mount = Mount(self.maker.programs, self.source, path, options)
        self.mount.log_path = self.maker.scratch / f"walk-{self.seed}.log"
        self.mount.seen = len(self.mount.log())
        self.mount.expect("")
        self.mount.start()
        self.mounted_once = True
        self.unsettled = self.unsettled and history == "none"
        self.lines.append(f"-- mounted {'over SRC' if over else 'beside'} {','.join(options)}")

    def end(self, how):
        mount, self.mount = self.mount, None
        self.lines.append(f"-- {how}")
        self.clean = how == "unmounted"
        if how == "unmounted":
            mount.stop()
        else:
            mount.kill()

    def work(self, steps, recorded, operator=Operator):
        worker = operator(str(self.mount.path), self.random.randrange(1 << 30))
        try:
            for _ in range(steps):
                line = worker.step()
                # A moment at which a process has the file open shows the state before (history=close).
                if "history=close" in self.mount.options:
                    worker.close()
                self.note(self.mount.path, line, recorded)
        finally:
            worker.close()

    def kill_in_the_middle(self):
        root, seed = str(self.mount.path), self.random.randrange(1 << 30)

        def hammer():
            worker = UnmappedOperator(root, seed)
            for _ in range(400):
                try:
                    worker.step()
                except OSError:
                    break
            return 0

        child = begin_child(hammer)
        time.sleep(self.random.random() * 0.05)
        # Unmounted only when the work has met the end of its daemon: over SRC, it would continue in bare SRC.
        self.mount.process.kill()
        end_of_child(child)
        self.end("killed in the middle of work")
        self.unsettled = True

    def recorded(self):
        history = self.random.choice(OF_A_MOUNT)
        self.begin(history)
        self.note(self.mount.path, "-- as it is found", True)
        self.work(self.random.randrange(4, 14), True)
        ending = self.random.randrange(4)
        if ending == 0:
            self.kill_in_the_middle()
        elif ending == 1:
            self.end("killed")
        else:
            self.end("unmounted")

    def unrecorded(self):
        self.settle()
        before = self.bare()
        self.begin("none")
        self.work(self.random.randrange(1, 8), False)
        self.end(self.random.choice(("unmounted", "killed")))
        self.compare_bare(before, "a mount with history=none")

    @staticmethod
    def next_tick():
        """ctime has the grain of a clock: past the last recorded change, and the few ms after a kill that count to
        it."""
        begun = time.time_ns()
        while time.clock_gettime_ns(CLOCK_REALTIME_COARSE) < begun + 12_000_000:
            time.sleep(0.001)

    @staticmethod
    def next_span():
        """While a mount is in use, recorded changes less than 50 ms apart are one span, and changes past it are not
        seen."""
        begun = time.time_ns()
        while time.time_ns() < begun + 65_000_000:
            pass

    def settle(self):
        """A change that was under way at a kill may have been made for some time after it, as far as can be known
        then."""
        if self.unsettled:
            self.begin("write")
            self.end("unmounted")
        self.next_tick()

    def compare_bare(self, before, line):
        run("sync", "-f", self.source)  # others sync their own writes
        after = self.bare()
        touched = {token for token in before.keys() | after.keys() if before.get(token) != after.get(token)}
        self.disturb(touched, f"{line}: {len(touched)} objects touched")

    def outside(self):
        self.settle()
        before = self.bare()
        worker = BareOperator(str(self.source), self.random.randrange(1 << 30))
        for _ in range(self.random.randrange(1, 8)):
            self.note(self.source, worker.step(), False)
        worker.close()
        self.compare_bare(before, "work on bare SRC")

    def stealthy(self):
        """The same size, and the time of modification set back."""
        self.settle()
        before = self.bare()
        files = [path for path, seen in tree_of(self.source).items() if seen.entry.kind == "-" and seen.entry.size]
        for relative in self.random.sample(files, min(2, len(files))):
            path = self.source / relative
            status = path.stat()
            with open(path, "r+b") as stream:
                stream.seek(self.random.randrange(status.st_size))
                stream.write(b"!")
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        self.compare_bare(before, "bytes changed in bare SRC, size and mtime kept")

    def behind(self):
        """SRC is changed while a mount of it records; then it changes through the mount as well."""
        before = self.bare()
        self.mount = None
        self.begin(self.random.choice(OF_A_MOUNT))
        if self.mount.path == self.source:
            self.work(3, True)
            self.end("unmounted")
            return
        self.work(3, True)
        middle = self.bare()
        self.next_span()
        worker = BareOperator(str(self.source), self.random.randrange(1 << 30))
        lines = [worker.step() for _ in range(self.random.randrange(1, 5))]
        worker.close()
        self.next_span()
        self.compare_bare(middle, f"behind the mount: {'; '.join(lines)}")
        worker = UnmappedOperator(str(self.mount.path), self.random.randrange(1 << 30))
        for _ in range(self.random.randrange(4)):
            self.lines.append(f"(not noted) {worker.step()}")
        worker.close()
        self.end(self.random.choice(("unmounted", "killed")))
        del before

    def restored_backup(self):
        if self.backup is None:
            self.backup = self.disk / "backup"
            run("rsync", "-aHAX", "--exclude=/.wayback", "--exclude=/.wayback-staging", f"{self.source}/", self.backup)
            self.lines.append("-- a backup is made")
            return
        self.settle()
        before = self.bare()
        run("rsync", "-aHAX", "--delete", "--checksum", "--exclude=/.wayback", "--exclude=/.wayback-staging",
            f"{self.backup}/", self.source)
        self.compare_bare(before, "the backup is restored")

    def store_away(self):
        """The disk of the store is not there: no mount, and no second history."""
        if not self.apart or not self.mounted_once:
            return
        store = self.store_disk / "store"
        away = self.store_disk / "away"
        store.rename(away)
        try:
            mount = Mount(self.maker.programs, self.source, self.point, ["allow_other"])
            mount.log_path = self.maker.scratch / f"walk-{self.seed}.log"
            status, text = mount.refused()
            assert status != 0 and "store" in text, text
            assert not mounted_at(self.point)
        finally:
            shutil.rmtree(store, ignore_errors=True)
            away.rename(store)
        self.lines.append("-- the store was away: refused")

    def damaged(self):
        """After a clean end: the effects of a kill or a power cut are not all listed yet."""
        if not self.clean:
            self.begin("write")
            self.end("unmounted")
        store = self.store_disk / "store" if self.apart else self.source / ".wayback"
        graves = [path for path in (store / "objects", self.source / ".wayback-staging/objects",
                                    self.source / ".wayback/objects") if path.is_dir()]
        files = sorted({path for place in graves for path in place.rglob("*")
                        if path.suffix in (".undo", ".cat", ".data", ".image") and not path.is_symlink()
                        and path.is_file() and path.stat().st_size})
        if not files:
            return
        path = self.random.choice(files)
        touched = self.tokens_of_id(path.name.split(".")[0])
        size = path.stat().st_size
        how = self.random.choice(("deleted", "cut", "zeroed", "flipped"))
        if how == "deleted":
            path.unlink()
        elif how == "cut":
            os.truncate(path, self.random.randrange(size))
        else:
            with open(path, "r+b") as stream:
                at = self.random.randrange(size)
                if how == "flipped":
                    stream.seek(at)
                    byte = stream.read(1)[0]
                    stream.seek(at)
                    stream.write(bytes([byte ^ (1 << self.random.randrange(8))]))
                else:
                    stream.seek(at // 512 * 512)
                    stream.write(bytes(min(512, size - at // 512 * 512)))
        # A catalog also holds attributes, places and renames of its former entries: any of those may be refused now.
        # The GAP is made when the object is next written to, so that later moments may be refused as well.
        self.disturb(EVERYTHING if path.suffix == ".cat" else touched, f"{path.parent.parent.parent.name}/{path.name} {how}")
        self.disturbances[-1] = self.disturbances[-1]._replace(when=sys.maxsize)

    def sync(self):
        """fsync(2) of all files that can be opened; the others reach the disk with the journal."""
        for path, folders, names in os.walk(self.mount.path, topdown=False):
            for name in (*names, *folders, "."):
                if stat.S_IFMT(os.lstat(os.path.join(path, name)).st_mode) in (stat.S_IFREG, stat.S_IFDIR):
                    fd = os.open(os.path.join(path, name), os.O_RDONLY)
                    os.fsync(fd)
                    os.close(fd)

    def power_cut(self):
        if self.kind not in CUTTABLE:
            return
        self.begin(self.random.choice(OF_A_MOUNT))
        self.work(self.random.randrange(3, 9), True)
        self.sync()
        worker = UnmappedOperator(str(self.mount.path), self.random.randrange(1 << 30))
        for _ in range(self.random.randrange(8)):
            self.lines.append(f"(not noted) {worker.step()}")
        worker.close()
        roots = {self.disk, self.store_disk}
        for root in roots:
            self.place.cut(root)
        self.end("the power fails")
        for root in roots:
            self.place.back(root)
        self.wait_for_the_clock()
        self.disturb(EVERYTHING, "power cut")
        self.unsettled = True  # without a reboot anything may be a lost change until the store is opened

    def wait_for_the_clock(self):
        """The store's clock continues at its durable mark: records made before the wall clock reaches it have a later
        time."""
        store = self.store_disk / "store" if self.apart else self.source / ".wayback"
        with open(store / "inflight", "rb") as stream:
            mark = int.from_bytes(stream.read(40)[32:], "little")
        assert mark < time.time_ns() + 10 * 10**9
        while time.time_ns() <= mark:
            pass

    def survey(self):
        """Files that others changed are marked: a copy has other times of change, which do not show that."""
        begun, deadline = time.time_ns(), time.monotonic() + LIMIT
        store = os.open(self.source / ".wayback", os.O_RDONLY | os.O_DIRECTORY)

        def floor():
            with open("spans", "rb", opener=lambda name, flags: os.open(name, flags, dir_fd=store)) as stream:
                return int.from_bytes(stream.read(16)[8:], "little")

        self.begin("write")
        while floor() < begun:
            assert time.monotonic() < deadline, "the tree was not looked at as a whole"
            time.sleep(0.005)
        self.end("unmounted")
        os.close(store)

    def copied(self):
        """The tree is moved elsewhere with its store, and the history follows."""
        if not self.mounted_once or self.apart:
            return
        if not self.sound:
            self.survey()
        new = self.disk / f"src-{len(self.lines)}"
        run("cp", "-a", self.source, new)
        bound = self.maker.programs
        result = run(bound.directory / "vfsck", "--rebind", "-y", new, check=False, env=bound.environment())
        if "in progress when the store was copied" in result.stdout:
            # Killed in the middle of a change. Only a mount of the first tree can show whether it was made.
            shutil.rmtree(new)
            self.begin("write")
            self.end("unmounted")
            run("cp", "-a", self.source, new)
            result = run(bound.directory / "vfsck", "--rebind", "-y", new, check=False, env=bound.environment())
        assert result.returncode in (0, 1) or (result.returncode == 4 and not self.sound), result.stdout
        if "external-" in result.stdout and not self.sound:
            self.disturb(EVERYTHING, "some files cannot be identified, so the copy cannot be compared")
        if "refused" in result.stdout:
            assert not self.sound, result.stdout
            shutil.rmtree(new)
            self.lines.append("-- a copy was refused")
            return
        old_tree, new_tree = tree_of(self.source), tree_of(new)
        self.tokens = {new_tree[path].inodes[0]: self.token(seen.inodes[0]) for path, seen in old_tree.items()}
        for inode, token in self.tokens.items():
            self.bound.setdefault(inode, set()).add(token)
        self.copies += 1
        shutil.rmtree(self.source)
        self.source = new
        self.lines.append("-- copied elsewhere and bound")

    SOUND = ("recorded",) * 6 + ("copied", "store_away")
    WILD = ("recorded",) * 8 + ("unrecorded", "outside", "stealthy", "behind", "restored_backup", "store_away", "damaged",
                                "power_cut", "copied")

    def step(self):
        name = self.random.choice(self.SOUND if self.sound else self.WILD) if self.mounted_once else "recorded"
        getattr(self, name)()

    # ---- questions -------------------------------------------------------------------------------

    def check(self, moments=None, spoil=None):
        """Asks for every state again; the tree is mounted for that as it is used."""
        outcome = Outcome()
        self.begin("write")
        try:
            for moment in self.moments if moments is None else moments:
                Look(self.mount.at(moment.when), moment, self.excuse, outcome, spoil).compare()
            # The present shows the newest state.
            self.note(self.mount.path, "-- as it is in the end", True)
        finally:
            self.end("unmounted")
        return outcome

    def run(self, episodes, spoil=None):
        outcome = Outcome()
        for _ in range(episodes):
            self.step()
            if self.random.randrange(5) == 0 and self.moments:
                outcome.add(self.check(self.random.sample(self.moments, min(3, len(self.moments)))))
        outcome.add(self.check(spoil=spoil))
        return outcome

    def explain(self, lines):
        """The first of the lines, with the operations around its moment."""
        line = lines[0]
        number = int(line.split("(line ")[1].split(")")[0])
        after = [text for text in self.lines[number:] if text.startswith(("==", "--"))]
        return "\n".join([f"seed {self.seed} on {self.kind}{', sound' if self.sound else ''}"
                          f"{', store apart' if self.apart else ''}:", *lines[:8],
                          "-- operations before it:", *self.lines[max(0, number - 10):number + 4],
                          "-- what else happened after it:", *after[:20]])

    def close(self):
        if self.mount:
            self.mount.kill(check=False)
        self.place.close()
