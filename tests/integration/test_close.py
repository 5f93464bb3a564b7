# SPDX-License-Identifier: LGPL-2.1-or-later
"""history=close: one version of a file's content for each time it was closed or synced.

While a process has a file open and writes to it, the past shows the content before its first write; when a descriptor
of it is closed, the content at that moment. Names and attributes are recorded as they change.
"""
import json
import mmap
import os
import random
import stat
import time

import pytest

from history_model import History
from mounts import NOBODY, as_user, epoch, moment
from operations import KEEP_SIZE, PUNCH, ZERO, Operator, fallocate

QUICK = bool(os.environ.get("WAYBACK_QUICK"))
STEPS = int(os.environ.get("WAYBACK_MODEL_STEPS", "60" if QUICK else "150"))


@pytest.fixture(name="closing")
def fixture_closing(maker, kind):
    return maker.mount("allow_other,history=close", kind=kind)


class Syncing(Operator):
    """Leaves nothing under way: open files are synced after each step."""

    def step(self):
        line = super().step()
        for fd in self.open_files:
            os.fsync(fd)
        return line


@pytest.mark.parametrize("seed", [5])
def test_every_state_between_two_closes_is_found_again(closing, maker, seed, tmp_path):
    history = History(closing, seed, maker, Syncing)
    history.record("-- empty")
    history.work(STEPS)
    history.check_by_path()
    history.check_by_extract(3, tmp_path)
    history.check_snapshots()
    history.check_by_revert(3)
    history.check_by_path()
    closing.check_store()


# -- the view while files are open ------------------------------------------------------------------


def look(path):
    """The comparable part of an entry, or None if there is none."""
    try:
        found = os.lstat(path)
        with open(path, "rb") as stream:
            return stream.read(), found.st_size, found.st_mtime_ns, stat.S_IMODE(found.st_mode), found.st_nlink
    except FileNotFoundError:
        return None


class Sittings:
    """Files that are open for writing while other things happen, and the states that the past must show of them."""

    NAMES = ("a", "b", "c", "d")

    def __init__(self, mount, seed, kills=True):
        self.mount = mount
        self.kills = kills
        self.random = random.Random(seed)
        self.open = []       # (descriptor, inode)
        self.under_way = {}  # inode: the state before
        self.moments = []
        self.lines = []

    def path(self, name):
        return os.path.join(self.mount.path, name)

    def inode(self, name):
        try:
            return os.lstat(self.path(name)).st_ino
        except FileNotFoundError:
            return None

    def name_of(self, inode):
        return next((n for n in self.NAMES if self.inode(n) == inode), None)

    def before_change(self, inode):
        """A process that has it open is about to change it."""
        name = self.name_of(inode)
        if inode not in self.under_way:
            self.under_way[inode] = look(self.path(name)) if name else None

    def over(self, inode):
        self.under_way.pop(inode, None)

    def record(self, line):
        seen = {}
        for name in self.NAMES:
            inode = self.inode(name)
            seen[name] = self.under_way[inode] if inode in self.under_way else look(self.path(name))
        self.lines.append(line)
        self.moments.append((moment(), seen, len(self.lines)))
        moment()

    def check(self, which):
        when, seen, line = which
        for name in self.NAMES:
            found = look(self.path(f"{name}@{epoch(when)}"))
            if found == seen[name]:
                continue
            around = "\n".join(self.lines[max(0, line - 15):line + 10])
            pytest.fail(f"{name} after line {line} ({self.lines[line - 1]}): {found and (found[1:], found[0][:20])} and not "
                        f"{seen[name] and (seen[name][1:], seen[name][0][:20])}\n{around}")

    # -- operations

    def do_open(self):
        name = self.random.choice(self.NAMES)
        flags = self.random.choice([0, 0, os.O_TRUNC, os.O_APPEND])
        inode = self.inode(name)
        if inode and flags == os.O_TRUNC:
            self.before_change(inode)
        fd = os.open(self.path(name), os.O_RDWR | os.O_CREAT | flags, 0o644)
        self.open.append((fd, os.fstat(fd).st_ino))
        return f"{name} {flags:o}"

    def descriptor(self):
        return self.random.choice(self.open) if self.open else (None, None)

    def do_write(self):
        fd, inode = self.descriptor()
        if fd is None:
            return self.do_open()
        self.before_change(inode)
        offset = self.random.choice([0, 0, 4096, self.random.randrange(20000)])
        data = self.random.choice([b"", b"x", self.random.randbytes(4096), bytes(5000), self.random.randbytes(90000)])
        os.pwrite(fd, data, offset)
        return f"{self.name_of(inode)} {offset}+{len(data)}"

    do_write_again = do_write_more = do_write

    def do_cut(self):
        fd, inode = self.descriptor()
        if fd is None:
            return "nothing"
        self.before_change(inode)
        length = self.random.randrange(25000)
        os.ftruncate(fd, length)
        return f"{self.name_of(inode)} {length}"

    def do_cut_by_name(self):
        name = self.random.choice(self.NAMES)
        inode = self.inode(name)
        if not inode:
            return "nothing"
        if any(inode == i for _, i in self.open):
            self.before_change(inode)
        os.truncate(self.path(name), self.random.randrange(25000))
        return name

    def do_allocate(self):
        fd, inode = self.descriptor()
        if fd is None:
            return "nothing"
        self.before_change(inode)
        mode = self.random.choice([0, KEEP_SIZE, PUNCH | KEEP_SIZE, ZERO])
        try:
            fallocate(fd, mode, self.random.randrange(20000), self.random.randrange(1, 9000))
        except OSError as error:
            return f"{error}"
        return f"{self.name_of(inode)} {mode}"

    def to_map(self):
        return self.descriptor()

    def do_map(self):
        fd, inode = self.to_map()
        if fd is None or os.fstat(fd).st_size == 0:
            return "nothing"
        self.before_change(inode)
        with mmap.mmap(fd, 0) as mapped:
            at = self.random.randrange(len(mapped))
            mapped[at:at + 1] = b"m"
        os.fsync(fd)  # else the kernel writes it at a time of its own
        self.over(inode)
        return self.name_of(inode)

    def do_sync(self):
        fd, inode = self.descriptor()
        if fd is None:
            return "nothing"
        os.fsync(fd)
        self.over(inode)
        return self.name_of(inode)

    def do_close(self):
        if not self.open:
            return "nothing"
        fd, inode = self.open.pop(self.random.randrange(len(self.open)))
        os.close(fd)
        self.over(inode)
        return self.name_of(inode)

    do_close_again = do_close

    def do_close_duplicate(self):
        fd, inode = self.descriptor()
        if fd is None:
            return "nothing"
        os.close(os.dup(fd))
        self.over(inode)
        return self.name_of(inode)

    def do_change_mode(self):
        name = self.random.choice(self.NAMES)
        if self.inode(name):
            self.over(self.inode(name))
            os.chmod(self.path(name), self.random.choice([0o600, 0o640, 0o644]))
        return name

    def do_rename(self):
        old, new = self.random.sample(self.NAMES, 2)
        if self.inode(old) and self.inode(old) != self.inode(new):  # otherwise the rename does nothing
            self.over(self.inode(old))
            self.over(self.inode(new))
            os.rename(self.path(old), self.path(new))
        return f"{old} {new}"

    def do_unlink(self):
        name = self.random.choice(self.NAMES)
        if self.random.randrange(3) == 0 and self.inode(name):
            self.over(self.inode(name))
            os.unlink(self.path(name))
        return name

    def do_link(self):
        old, new = self.random.sample(self.NAMES, 2)
        if self.inode(old) and not self.inode(new):
            self.over(self.inode(old))
            os.link(self.path(old), self.path(new))
        return f"{old} {new}"

    def close(self):
        while self.open:
            fd, inode = self.open.pop()
            os.close(fd)
            self.over(inode)

    def kill(self):
        """A stage under way ends when the store is next written to."""
        self.mount.kill()
        for fd, _ in self.open:
            try:
                os.close(fd)
            except OSError:
                pass  # ENOTCONN: there is nobody to flush to
        self.open.clear()
        self.mount.start()
        self.under_way.clear()

    def work(self, steps):
        operations = [name for name in dir(self) if name.startswith("do_")]
        for _ in range(steps):
            name = self.random.choice(operations)
            self.record(f"{name[3:]} {getattr(self, name)()}")
            if self.random.randrange(8) == 0:
                self.check(self.random.choice(self.moments))
            if self.kills and self.random.randrange(60) == 0:
                self.kill()
                self.record("-- killed")
        self.close()
        self.record("-- all closed")


def sit(mount, seed, steps):
    sittings = Sittings(mount, seed)
    sittings.record("-- empty")
    try:
        sittings.work(steps)
    finally:
        sittings.close()
    for which in sittings.moments:
        sittings.check(which)
    mount.check_store()


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs"])
def test_the_past_shows_the_state_before_it_was_opened(maker, kind):
    sit(maker.mount("allow_other,history=close", kind=kind), 11, 2 * STEPS)


def test_the_same_for_an_ordinary_user(maker):
    mount = maker.mount("history=close", user=NOBODY)

    def work():
        sittings = Sittings(mount, 12, kills=False)
        sittings.record("-- empty")
        sittings.work(STEPS)
        for which in sittings.moments:
            sittings.check(which)

    as_user(work, *NOBODY)


# -- some things by themselves -----------------------------------------------------------------------


def changes(mount, path):
    """The changes that vstat lists, the newest first."""
    listed = json.loads(mount.tool("vstat", "--json", "--operations", path).stdout)
    return [change["op"] for change in listed["versions"]]


def test_a_crash_in_the_middle_leaves_a_sound_store(maker):
    """Also before the next daemon has ended the stages under way."""
    mount = maker.mount("allow_other,history=close")
    path = mount.path / "log"
    path.write_bytes(b"before")
    before = moment()
    stream = open(path, "ab", buffering=0)  # pylint: disable=consider-using-with
    stream.write(b" and after")
    during = moment()
    mount.kill()
    try:
        stream.close()
    except OSError:
        pass
    for options in ([], ["--json"]):
        found = mount.tool("vfsck", *options, mount.source).stdout
        assert "external" not in found
    looking = maker.mount(f"at={epoch(during)}", source=mount.source)
    assert (looking.path / "log").read_bytes() == b"before"
    looking.stop()
    mount.start()
    after = moment()
    assert (mount.path / f"log@{epoch(before)}").read_bytes() == b"before"
    assert (mount.path / f"log@{epoch(during)}").read_bytes() == b"before"
    assert (mount.path / f"log@{epoch(after)}").read_bytes() == b"before and after"
    mount.tool("vfsck", mount.source)


def test_many_writes_are_one_version(maker):
    mount = maker.mount("allow_other,history=close")
    path = mount.path / "f"
    with open(path, "wb", buffering=0) as stream:
        for _ in range(50):
            stream.write(b"line\n")
    with open(path, "wb", buffering=0) as stream:
        for _ in range(50):
            stream.write(b"other\n")
        os.fsync(stream.fileno())
        stream.write(b"more")
    assert changes(mount, path) == ["write", "write", "write", "create"]


def test_a_file_forgotten_while_open_stays_forgotten(maker):
    """vrm --history of a file that a process continues to write to."""
    mount = maker.mount("allow_other,history=close")
    path = mount.path / "f"
    path.write_bytes(b"secret" * 100)
    before = moment()
    with open(path, "r+b", buffering=0) as stream:
        stream.write(b"public")
        mount.tool("vrm", "--history", "-y", path)
        kept = path.read_bytes()
        stream.write(b"again!")
        during = moment()
        assert (mount.path / f"f@{epoch(during)}").read_bytes() == kept
    after = moment()
    assert (mount.path / f"f@{epoch(during)}").read_bytes() == kept
    assert (mount.path / f"f@{epoch(after)}").read_bytes() == path.read_bytes()
    with pytest.raises(OSError):
        (mount.path / f"f@{epoch(before)}").read_bytes()
    mount.check_store()
