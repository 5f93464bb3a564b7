# SPDX-License-Identifier: LGPL-2.1-or-later
"""Work through the mount while the power may fail: random operations, editors, SQLite, git, rsync.

Each works in a directory of its own, in a thread of its own, until it is stopped.
"""
import os
import random
import shutil
import sqlite3
import subprocess
import threading

from facts import BLOCK, REFUSED, Track, read_past
from mounts import moment, run


def sync_path(path):
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_tree(root):
    """Every file and directory below, the names last."""
    for folder, _, names in os.walk(root, topdown=False):
        for name in names:
            sync_path(os.path.join(folder, name))
        sync_path(folder)


class Workload(threading.Thread):
    def __init__(self, mount, name, seed):
        super().__init__(name=name, daemon=True)
        self.mount = mount
        self.top = name
        self.random = random.Random(f"{seed}{name}")
        self.stopping = threading.Event()
        self.error = None
        self.by_close = "history=close" in mount.options
        self.prepare()
        sync_tree(self.mount.path / self.top)
        sync_path(self.mount.path)

    def path(self, *parts):
        return self.mount.path.joinpath(self.top, *parts)

    def prepare(self):
        self.path().mkdir()

    def run(self):
        try:
            while not self.stopping.is_set():
                self.step()
        except BaseException as error:  # pylint: disable=broad-except
            self.error = error

    def end(self):
        self.stopping.set()
        self.join(300)
        assert not self.is_alive(), f"{self.name} does not end"
        if self.error:
            raise self.error


class Files(Workload):
    """Tracks of single files."""

    count = 6
    alone = False
    suffix = ""

    def prepare(self):
        super().prepare()
        self.tracks = []
        for i in range(self.count):
            folder = f"{self.top}/d{i}" if self.alone else self.top
            (self.mount.path / folder).mkdir(exist_ok=True)
            self.tracks.append(Track(f"{folder}/f{i}{self.suffix}", alone=self.alone))

    def check(self, cut, mount, outcome):
        for track in self.tracks:
            track.check(cut, mount, outcome)

    def bytes(self, blocks):
        return self.random.randbytes(blocks * BLOCK)


class Random(Files):
    """Every kind of change, some of them synced."""

    def step(self):
        track = self.random.choice(self.tracks)
        path = self.mount.path / track.path
        if track.content is None:
            act = "create"
        else:
            act = self.random.choices(
                ("write", "append", "truncate", "rewrite", "remove", "replace", "sync", "rest"),
                (10, 4, 2, 3, 1, 2, 5, 2))[0]
        getattr(self, "act_" + act)(track, path)

    def put(self, track, path, flags, offset, data, content):
        track.begin()
        fd = os.open(path, os.O_WRONLY | flags, 0o644)
        if data:
            os.pwrite(fd, data, offset)
        os.close(fd)
        track.done(content)

    def act_create(self, track, path):
        data = self.bytes(self.random.randrange(1, 40))
        self.put(track, path, os.O_CREAT | os.O_EXCL, 0, data, data)

    def act_write(self, track, path):
        blocks = len(track.content) // BLOCK
        if blocks == 0:
            return
        at = self.random.randrange(blocks)
        data = self.bytes(min(self.random.choice((1, 2, 8)), blocks - at))
        at *= BLOCK
        self.put(track, path, 0, at, data, track.content[:at] + data + track.content[at + len(data):])

    def act_append(self, track, path):
        if len(track.content) > 200 * BLOCK:
            return self.act_truncate(track, path)
        data = self.bytes(self.random.choice((1, 3, 16)))
        return self.put(track, path, os.O_APPEND, len(track.content), data, track.content + data)

    def act_truncate(self, track, path):
        size = self.random.randrange(len(track.content) // BLOCK + 1) * BLOCK
        track.begin()
        os.truncate(path, size)
        track.done(track.content[:size])

    def act_rewrite(self, track, path):
        data = self.bytes(self.random.randrange(1, 40))
        self.put(track, path, os.O_TRUNC, 0, data, data)

    def act_remove(self, track, path):
        track.begin()
        os.unlink(path)
        track.done(None)

    def act_replace(self, track, path):
        data = self.bytes(self.random.randrange(1, 40))
        other = path.with_name(path.name + ".tmp")
        other.write_bytes(data)
        track.begin()
        os.rename(other, path)
        track.done(data, anew=True)

    def act_sync(self, track, path):
        """The file, and its name."""
        sync_path(path)
        sync_path(path.parent)
        track.sync()

    def act_rest(self, _track, _path):
        self.stopping.wait(self.random.random() * 0.2)


class LeftOut(Random):
    """With `history = none` for *.tmp: refused, or exact."""

    suffix = ".tmp"


class ByClose(Random):
    """With `history = close` for *.db."""

    suffix = ".db"


class Quiet(Files):
    """Files that are changed, synced, and left alone: none of them may be refused."""

    alone = True
    turn = 0

    def step(self):
        track = self.tracks[self.turn % self.count]
        self.turn += 1
        path = self.mount.path / track.path
        track.begin()
        fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
        content = track.content or b""
        at = self.random.randrange(len(content) // BLOCK + 1) * BLOCK
        data = self.bytes(4)
        os.pwrite(fd, data, at)
        content = content[:at] + data + content[at + len(data):]
        if not self.by_close:
            track.done(content)
        os.fsync(fd)
        if self.by_close:  # until now the past shows the state before it was opened
            track.done(content)
        os.close(fd)
        sync_path(path.parent)
        track.sync()
        self.stopping.wait(self.random.random() * 0.3)


class Editor(Files):
    """Saves as editors make them: written beside and renamed over, or written over, with a backup or without."""

    def step(self):
        track = self.random.choice(self.tracks)
        path = self.mount.path / track.path
        data = self.bytes(self.random.randrange(1, 30))
        synced = self.random.random() < 0.7
        other = path.with_name("." + path.name + ".swp")
        with open(other, "wb") as stream:
            stream.write(data)
            stream.flush()
            if synced:
                os.fsync(stream.fileno())
        if track.content is not None and self.random.random() < 0.3:
            path.with_name(path.name + "~").unlink(missing_ok=True)
            os.link(path, path.with_name(path.name + "~"))
        track.begin()
        os.rename(other, path)
        track.done(data, anew=True)
        if synced:
            sync_path(path.parent)
            track.sync()
        self.stopping.wait(self.random.random() * 0.1)


class Acknowledged(Workload):
    """Something with a number that only grows: after each acknowledged step, its number."""

    def prepare(self):
        super().prepare()
        self.numbers = []  # when, number
        self.number = 0

    def acknowledge(self):
        self.numbers.append((moment(), self.number))

    def check(self, cut, mount, outcome):
        before = [(when, number) for when, number in self.numbers if when < cut.begin]
        if not before:
            return
        least = before[-1][1]
        found = self.read(mount.path / self.top, cut)
        outcome.checked += 1
        outcome.promised += 1
        if not isinstance(found, int) or found < least:
            outcome.failures.append(f"{self.top}: now {found}, {least} was acknowledged")
        for when, number in {before[-1], random.Random(cut.seed).choice(before)}:
            found = self.read(mount.at(when, self.top), cut)
            outcome.checked += 1
            if found is REFUSED:
                outcome.refused += 1
            elif found != number:
                outcome.failures.append(f"{self.top} at {when}: {found} instead of {number}")


class Sqlite(Acknowledged):
    mode = "DELETE"

    def prepare(self):
        super().prepare()
        with sqlite3.connect(self.path("db")) as db:
            db.execute(f"PRAGMA journal_mode={self.mode}")
            db.execute("CREATE TABLE pages(id INTEGER PRIMARY KEY, number INTEGER, rest BLOB)")
            db.executemany("INSERT INTO pages VALUES(?, 0, ?)", [(i, bytes(600)) for i in range(60)])
        db.close()
        self.db = None

    def run(self):
        super().run()
        if self.db:
            self.db.close()

    def step(self):
        if self.db is None:
            self.db = sqlite3.connect(self.path("db"), isolation_level=None)
            self.db.execute("PRAGMA synchronous=EXTRA")
        self.number += 1
        self.db.execute("BEGIN")
        for i in self.random.sample(range(1, 60), 8):
            self.db.execute("UPDATE pages SET number=?, rest=? WHERE id=?",
                            (self.number, self.random.randbytes(600), i))
        self.db.execute("UPDATE pages SET number=? WHERE id=0", (self.number,))
        self.db.execute("COMMIT")
        self.acknowledge()
        self.stopping.wait(self.random.random() * 0.05)

    def read(self, top, cut):
        copy = cut.scratch / self.top
        shutil.rmtree(copy, ignore_errors=True)
        copy.mkdir()
        for name in ("db", "db-wal", "db-journal"):
            data = read_past(top / name)
            if data is REFUSED:
                return REFUSED
            if data is not None:
                (copy / name).write_bytes(data)
        try:
            db = sqlite3.connect(copy / "db")
            try:
                sound = db.execute("PRAGMA integrity_check").fetchone()[0]
                number, most = db.execute("SELECT (SELECT number FROM pages WHERE id=0), max(number) FROM pages").fetchone()
                return number if sound == "ok" and number == most else f"{sound}, {number}, {most}"
            finally:
                db.close()
        except sqlite3.Error as error:
            return repr(error)


class SqliteWal(Sqlite):
    mode = "WAL"


class Git(Acknowledged):
    def git(self, *arguments, top=None):
        return run("git", "-c", "safe.directory=*", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "gc.auto=0",
                   "-c", "core.fsync=all", "-C", top or self.path(), *arguments, check=top is None)

    def prepare(self):
        super().prepare()
        self.git("init", "-q")

    def step(self):
        self.number += 1
        self.path(f"file{self.number % 5}").write_bytes(self.random.randbytes(2000))
        self.git("add", ".")
        self.git("commit", "-q", "-m", f"number {self.number}")
        for folder, _, _ in os.walk(self.path(".git")):
            sync_path(folder)  # git syncs files, not their names
        self.acknowledge()
        self.stopping.wait(self.random.random() * 0.2)

    def read(self, top, cut):
        copy = cut.scratch / self.top
        shutil.rmtree(copy, ignore_errors=True)
        result = subprocess.run(["cp", "-r", str(top / ".git"), str(copy)], check=False, capture_output=True, text=True)
        if result.returncode != 0:
            return REFUSED if "Input/output error" in result.stderr else result.stderr
        found = self.git("fsck", "--no-dangling", "--full", top=copy)
        if found.returncode != 0:
            return found.stdout
        subject = self.git("log", "-1", "--format=%s", top=copy).stdout.split()
        return int(subject[-1]) if subject[:1] == ["number"] else str(subject)


class Rsync(Acknowledged):
    """A tree of files that all contain its number, brought up to date again and again."""

    def prepare(self):
        super().prepare()
        self.path("tree").mkdir()

    def step(self):
        self.number += 1
        source = self.mount.path.with_name("rsync-source")
        shutil.rmtree(source, ignore_errors=True)
        source.mkdir()
        for i in range(self.random.randrange(3, 9)):
            (source / f"file{i}").write_text(f"{self.number}\n" * self.random.randrange(1, 2000), encoding="ascii")
        run("rsync", "-aI", "--delete", "--fsync", f"{source}/", self.path("tree"))
        sync_path(self.path("tree"))
        self.acknowledge()
        self.stopping.wait(self.random.random() * 0.2)

    def check(self, cut, mount, outcome):
        """The present may be between two numbers: rsync changes file by file."""
        before = [(when, number) for when, number in self.numbers if when < cut.begin]
        for when, number in set(before[-1:]) | set(random.Random(cut.seed).sample(before, min(1, len(before)))):
            found = self.read(mount.at(when, self.top), cut)
            outcome.checked += 1
            if found is REFUSED:
                outcome.refused += 1
            elif found != {number}:
                outcome.failures.append(f"{self.top} at {when}: {found} instead of {number}")

    def read(self, top, _cut):
        numbers = set()
        try:
            for name in os.listdir(top / "tree"):
                numbers |= {int(word) for word in (top / "tree" / name).read_text(encoding="ascii").split()}
        except OSError:
            return REFUSED
        return numbers


ALL = {"random": Random, "quiet": Quiet, "editor": Editor, "sqlite": Sqlite, "sqlite-wal": SqliteWal, "git": Git,
       "rsync": Rsync}
# These need rules in wayback.conf.
ALL_WITH_RULES = {"left-out": LeftOut, "by-close": ByClose}
