# SPDX-License-Identifier: LGPL-2.1-or-later
"""Files and directories that were renamed many times: every state is found, and none is refused."""
import ctypes
import errno
import json
import os
import subprocess
import time

import pytest

from mounts import LIMIT, QUICK, epoch, moment, read_by
from operations import Operator
from test_unseen import next_tick
from treestate import differences, state_of

TIMES = 10_000  # more than twice the former limit of a look-up


def rename_back_and_forth(top, times, where):
    """The last name."""
    name = top / where[0] / "file0"
    for number in range(1, times + 1):
        to = top / where[number % len(where)] / f"file{number if number % 3 else 0}"
        os.rename(name, to)
        name = to
    return name


@pytest.mark.parametrize("where", [("d",), ("d", "e"), tuple("abcdefghijkl")], ids=["one", "two", "many"])
def test_a_file_that_was_renamed_often(mount, where):
    for name in where:
        (mount.path / name).mkdir()
    file = mount.path / where[0] / "file0"
    file.write_bytes(b"first, and what stays")
    first = moment()
    name = rename_back_and_forth(mount.path, TIMES // 2, where)
    middle, at = moment(), name.relative_to(mount.path)
    with open(name, "r+b") as stream:
        stream.write(b"other")
    rest = os.path.join(where[0], "file0")
    os.rename(name, mount.path / rest)
    last = rename_back_and_forth(mount.path, TIMES // 2, where)
    mount.remount()  # its place is known from the records alone
    assert mount.at(first, where[0] + "/file0").read_bytes() == b"first, and what stays"
    assert mount.at(middle, str(at)).read_bytes() == b"first, and what stays"
    assert last.read_bytes() == b"other, and what stays"
    last.unlink()
    assert mount.at(first, where[0] + "/file0").read_bytes() == b"first, and what stays"
    mount.tool("vrevert", "--time", epoch(middle), mount.path / at)
    assert (mount.path / at).read_bytes() == b"first, and what stays"
    mount.remount()
    assert mount.at(first, where[0] + "/file0").read_bytes() == b"first, and what stays"


class Mover(Operator):
    """Of ten operations one renames a directory, into another one or beside."""

    EXPECTED = Operator.EXPECTED | {errno.ESTALE, errno.EIO, errno.ENOTCONN}

    def __init__(self, root, seed):
        super().__init__(root, seed)
        self.operations.remove("do_mmap")  # a fault in a mapping whose daemon was killed would end this process

    def step(self):
        if self.random.random() >= 0.1:
            return super().step()
        dirs = [path for path in self._walk()[0] if path != self.root]
        if not dirs:
            return super().step()
        source, into = self.random.choice(dirs), self.random.choice(dirs + [self.root])
        try:
            os.rename(source, os.path.join(into, f"moved{self.random.randrange(6)}"))
        except OSError as error:
            if error.errno not in self.EXPECTED | {errno.EINVAL, errno.ENOTEMPTY, errno.ENOTDIR, errno.EEXIST}:
                raise
        return None


KILLS = 6 if QUICK else 25
SEEDS = (1,) if QUICK else (1, 2)


@pytest.mark.parametrize("seed", SEEDS)
def test_directories_renamed_over_kills(mount, seed):
    """Every state that was seen is there after each kill, and none is refused."""
    known = []
    for kill in range(KILLS):
        operator = Mover(str(mount.path), seed * 1000 + kill)
        for number in range(60):
            operator.step()
            if number % 6 == 5:
                known.append((moment(), state_of(mount.path)))
        operator.close()
        mount.kill()
        mount.start()
    mount.remount()
    for when, state in known:
        assert differences(state, state_of(mount.at(when))) == []
    mount.check_store()


# ---- paths that led elsewhere often ------------------------------------------------------------------

EXCHANGES = 400 if QUICK else 1500

def exchange(one, other, times):
    rename = ctypes.CDLL(None, use_errno=True).renameat2
    for _ in range(times):
        assert rename(-100, os.fsencode(one), -100, os.fsencode(other), 2) == 0, ctypes.get_errno()


def settle():
    """Past the time in which a recorded change may still be one under way: moments in it are looked up singly."""
    begun = time.time_ns()
    while time.time_ns() < begun + 150_000_000:
        time.sleep(0.005)


def size_of_catalogs(mount):
    return sum(path.stat().st_size for path in (mount.source / ".wayback/objects").rglob("*.cat"))


def test_a_path_that_led_elsewhere_often(mount):
    """What was below it is looked for with each directory that had the path, and each catalog is read once for that."""
    (mount.path / "u").mkdir()
    (mount.path / "elsewhere").mkdir()
    (mount.path / "u/sub").mkdir()
    (mount.path / "u/sub/inner").write_bytes(b"first")
    (mount.path / "u/other").mkdir()
    exchange(mount.path / "u/sub", mount.path / "u/other", EXCHANGES)
    (mount.path / "u/link").symlink_to("../elsewhere")
    exchange(mount.path / "u/sub", mount.path / "u/link", EXCHANGES)
    assert (mount.path / "u/sub/inner").read_bytes() == b"first"
    settle()
    before = read_by(mount.process.pid)
    mount.tool("vstat", mount.path / "u/sub/never", status=1)
    assert read_by(mount.process.pid) - before < 30 * size_of_catalogs(mount)
    listed = json.loads(mount.tool("vstat", "--json", "--operations", mount.path / "u/sub/inner").stdout)
    assert [change["op"] for change in listed["versions"]] == ["write", "create"]


def test_an_abandoned_look_back_ends(mount):
    """A process that is killed does not wait for its answer. Behind a gap each moment is looked up by itself."""
    (mount.path / "u").mkdir()
    (mount.path / "u/sub").mkdir()
    (mount.path / "u/other").symlink_to("sub")
    exchange(mount.path / "u/sub", mount.path / "u/other", EXCHANGES)
    mount.stop()
    next_tick()
    (mount.source / "u/unseen").touch()
    mount.expect("changed while Wayback did not record")
    mount.start()
    os.listdir(mount.path / "u")
    before = read_by(mount.process.pid)
    process = subprocess.Popen([mount.programs.directory / "vstat", mount.path / "u/sub/never"], cwd="/",
                               env=mount.programs.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while read_by(mount.process.pid) - before < 8 * size_of_catalogs(mount):
        assert process.poll() is None
        time.sleep(0.001)
    process.kill()
    process.wait(timeout=LIMIT)
    assert read_by(mount.process.pid) - before < EXCHANGES * size_of_catalogs(mount) / 4
