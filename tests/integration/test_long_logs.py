# SPDX-License-Identifier: LGPL-2.1-or-later
"""Files with long undo logs, which carry an index: every state is exact, over kills and remounts, damage and
erasing."""
import json
import os
import random
import threading

import pytest

from mounts import QUICK, moment

BLOCK = 4096
BLOCKS = 512
ROUNDS = 6 if QUICK else 7
CHANGES = 700  # in each round; some 1000 make the log pass the place of the next index


class Model:
    """A file that is overwritten at random, and its states."""

    def __init__(self, mount, name, seed=1):
        self.mount = mount
        self.name = name
        self.random = random.Random(seed)
        self.content = bytearray(self.random.randbytes(BLOCKS * BLOCK))
        self.states = []
        (mount.path / name).write_bytes(self.content)

    def change(self, fd, content):
        at = self.random.randrange(BLOCKS * BLOCK - BLOCK)
        data = self.random.randbytes(self.random.choice([1, 100, BLOCK, BLOCK, BLOCK]))
        os.pwrite(fd, data, at)
        content[at:at + len(data)] = data

    def work(self, changes):
        fd = os.open(self.mount.path / self.name, os.O_RDWR)
        for number in range(changes):
            self.change(fd, self.content)
            if number % 97 == 0:
                self.remember()
            if number % 211 == 0:
                os.setxattr(self.mount.path / self.name, "user.number", str(len(self.states)).encode())
                self.remember()
            if number % 301 == 0:
                os.chmod(self.mount.path / self.name, self.random.choice([0o600, 0o644, 0o755]))
                self.remember()
        os.close(fd)

    def remember(self):
        path = self.mount.path / self.name
        xattrs = {name: os.getxattr(path, name) for name in os.listxattr(path)}
        stat = os.stat(path)
        self.states.append((moment(), bytes(self.content), stat.st_mode, stat.st_size, stat.st_mtime_ns, xattrs))

    def check(self, states=None):
        for when, content, mode, size, mtime, xattrs in self.states if states is None else states:
            path = self.mount.at(when, self.name)
            stat = os.stat(path)
            assert (stat.st_mode, stat.st_size, stat.st_mtime_ns) == (mode, size, mtime)
            assert path.read_bytes() == content
            assert {name: os.getxattr(path, name) for name in os.listxattr(path)} == xattrs


def records(mount, kind):
    """Of all undo logs: the records of that type that vdump lists, in the order of the log."""
    found = []
    for log in mount.logs():
        if log.suffix == ".undo":
            lines = mount.tool("vdump", "--json", log).stdout.splitlines()
            found += [(log, record) for record in map(json.loads, lines) if record.get("type") == kind]
    return found


def test_states_are_exact_over_kills_and_remounts(mount):
    model = Model(mount, "file")
    for number in range(ROUNDS):
        model.work(CHANGES)
        if number % 3 == 0:
            mount.kill()
            mount.start()
        elif number % 3 == 1:
            mount.remount()
    model.check()
    assert len(records(mount, "INDEX")) >= 2
    mount.check_store()


def test_a_kill_in_the_middle_of_writing_loses_nothing(mount):
    model = Model(mount, "file")
    for number in range(ROUNDS):
        model.work(CHANGES)
        # One process continues to write while the daemon dies; its last writes are unknown.
        fd = os.open(mount.path / "file", os.O_RDWR)

        def write(fd=fd, seed=number):
            rng = random.Random(seed)
            try:
                while True:
                    os.pwrite(fd, rng.randbytes(BLOCK), rng.randrange(BLOCKS - 1) * BLOCK)
            except OSError:
                os.close(fd)

        thread = threading.Thread(target=write)
        thread.start()
        thread.join(0.02 + number * 0.013)
        mount.kill()
        thread.join()
        mount.start()
        model.content[:] = (mount.path / "file").read_bytes()
        model.check(model.states[-8:])
    model.check()
    assert len(records(mount, "INDEX")) >= 2
    mount.check_store()


@pytest.mark.parametrize("what", ["head", "payload"])
def test_a_damaged_index_costs_nothing(mount, what):
    model = Model(mount, "file")
    for _ in range(ROUNDS):
        model.work(CHANGES)
    mount.stop()
    indexes = records(mount, "INDEX")
    assert len(indexes) >= 2
    # A head costs nothing if the next index covers it.
    for log, record in indexes if what == "payload" else indexes[-2:-1]:
        with open(log, "r+b") as file:
            file.seek(record["at"] + (9 if what == "head" else 1000))
            byte = file.read(1)
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte[0] ^ 0x55]))
    mount.start()
    model.check()


def test_records_in_an_index_can_be_erased(mount):
    model = Model(mount, "file")
    other = Model(mount, "other", 2)
    model.work(3 * CHANGES)
    other.work(3 * CHANGES)
    assert len(records(mount, "INDEX")) >= 2
    before = {log for log, _ in records(mount, "INDEX")}
    mount.tool("vrm", "--yes", mount.path / "file")
    left = {log for log, _ in records(mount, "INDEX")}
    assert left < before and len(left) == 1
    other.check()
    mount.check_store()
