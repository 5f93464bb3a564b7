# SPDX-License-Identifier: LGPL-2.1-or-later
"""Thinning of files that editors replace: each save is a file of its own, and a version of the name."""
import json
import os
import random
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "crash"))

# pylint: disable=wrong-import-position
from copies import Copy
from mounts import QUICK, epoch, moment, nanoseconds
from test_keeper import configure, wait_for
from test_send_thinned import Thinned
from thinning import at, check_newest, kills, shows, thin
from treestate import differences, state_of


def save(path, content, aside=None):
    """As most editors do it."""
    aside = aside or path.with_name(f".{path.name}.tmp")
    aside.write_bytes(content)
    os.chmod(aside, 0o640)
    os.rename(aside, path)


def save_in_place(path, content):
    """As vim does it by default."""
    backup = path.with_name(path.name + "~")
    os.rename(path, backup)
    path.write_bytes(content)
    os.chmod(path, 0o640)
    backup.unlink()


def saves(path, count, size=5000, seed=1, more=False, as_is_done=save):
    """[(when, content)], as write_versions has it; the first is a file that was written, unless there are `more` of
    it."""
    rng, seen = random.Random(seed), []
    for number in range(count + (not more)):
        content = rng.randbytes(size)
        if number or more:
            as_is_done(path, content)
        else:
            path.write_bytes(content)
        seen.append((moment(), content))
        moment()
    return seen


def versions(mount, name):
    return json.loads(mount.tool("vstat", "--json", mount.path / name, merge=False).stdout)["versions"]


def bodies(mount):
    return sum(1 for _ in mount.store().glob("objects/??/*.data"))


def either(path, content):
    (save if path.stat().st_size and content[0] % 2 else save_in_place)(path, content)


@pytest.mark.parametrize("way", (save, save_in_place, either))
def test_saves_are_versions_of_the_name(mount, way):
    seen = saves(mount.path / "file", 9, as_is_done=way)
    attributes = [os.stat(mount.path / f"file@{epoch(when)}") for when, _ in seen]
    assert bodies(mount) == 9
    would = thin(mount, "-n", "--keep-versions", "..4")
    assert would["versions"] == 5 and bodies(mount) == 9
    did = thin(mount, "--keep-versions", "..4")
    assert did["versions"] == 5 and did["changed"] == 1 and did["kept"] == 0
    assert did["bytes_replaced"] >= 5 * 5000
    assert bodies(mount) == 4
    check_newest(mount, seen, 4)
    for number, (when, _) in enumerate(seen):
        now = os.stat(mount.path / f"file@{epoch(when)}")
        was = attributes[number if number >= 6 or number == 0 else 0]
        assert (now.st_mode, now.st_size, now.st_mtime_ns) == (was.st_mode, was.st_size, was.st_mtime_ns)
        assert os.listdir(mount.path / f"@{epoch(when)}") == ["file"]
    assert thin(mount, "--keep-versions", "..4")["versions"] == 0
    mount.check_store()
    mount.remount()
    check_newest(mount, seen, 4)
    mount.stop()
    assert "clean" in mount.tool("vfsck", mount.source).stdout
    mount.start()
    assert at(mount, seen[3][0]) == seen[0][1]


def test_lists_of_them(mount):
    """vstat reports removed versions, and neither it nor vlog lists removed names."""
    seen = saves(mount.path / "file", 5)
    assert mount.tool("vlog", mount.path).stdout.count("rename") == 5
    thin(mount, "--keep-versions", "..2")
    assert mount.tool("vstat", mount.path / "file").stdout.count("thinned out since") == 1
    listed = versions(mount, "file")
    one = next(version for version in listed if "thinned_since" in version)
    assert len(listed) == 3 and one["op"] == "rename"
    assert seen[0][0] < nanoseconds(one["thinned_since"]) < seen[1][0] and seen[3][0] < nanoseconds(one) < seen[4][0]
    for _ in range(2):
        assert [line.split()[0] for line in mount.tool("vlog", "--operations", mount.path).stdout.splitlines()[1:]] == \
            2 * ["rename", "chmod", "write", "create"] + ["write", "create"]
        mount.remount()
    assert len(versions(mount, ".file.tmp")) == 3


def test_protected_saves_are_kept(maker):
    """Snapshots, mounted moments, the least number, the last version before a deletion, restored files, files with
    another name, open files, and a file that was one by itself before."""
    mount = maker.mount("allow_other")
    path = mount.path / "file"
    seen = saves(path, 5)
    mount.tool("vsnap", "create", "kept", mount.path)
    seen += saves(path, 2, seed=7, more=True)
    shown = maker.mount(f"at={epoch(seen[2][0])}", source=mount.source)
    thin(mount, "--keep-versions", "2..2")
    for number, (when, _) in enumerate(seen):
        assert at(mount, when) == seen[max(other for other in (0, 2, 5, 6, 7) if other <= number)][1], number
    assert (shown.path / "file").read_bytes() == seen[2][1]
    shown.stop()
    path.unlink()
    again = saves(path, 3, seed=2)
    thin(mount, "--keep-versions", "1..1")
    assert at(mount, seen[-1][0]) == seen[-1][1] and at(mount, seen[5][0]) == seen[5][1]
    assert at(mount, again[-1][0]) == again[-1][1] and at(mount, again[1][0]) == at(mount, again[0][0]) == again[0][1]
    mount.check_store()


def test_saves_in_use_are_kept(mount):
    seen = saves(mount.path / "file", 4)
    os.link(mount.path / "file", mount.path / "link")
    linked = (moment(), (mount.path / "file").read_bytes())
    stream = open(mount.path / "file", "rb")  # pylint: disable=consider-using-with
    for number in range(3):
        save(mount.path / "file", b"%d" % number)
        moment()
    mount.tool("vrevert", "--time", epoch(seen[2][0]), mount.path / "file")
    back = moment()
    thin(mount, "--keep-versions", "1..1")
    assert at(mount, linked[0]) == linked[1] == at(mount, linked[0], "link") == stream.read()
    assert at(mount, back) == seen[2][1] == (mount.path / "file").read_bytes()
    stream.close()
    mount.check_store()
    mount.stop()
    assert "clean" in mount.tool("vfsck", mount.source).stdout


def test_a_backup_that_is_left_is_not_part_of_a_save(mount):
    """A user who moves a file away finds it there, and so does a snapshot, whatever happens to both later."""
    path, backup = mount.path / "file", mount.path / "file~"
    path.write_bytes(b"before")
    os.rename(path, backup)
    path.write_bytes(b"first")
    save(path, b"second")
    mount.tool("vsnap", "create", "kept", mount.path)
    kept = state_of(mount.path / "@kept")
    for last in (False, True):
        save(path, b"third")
        moment()
        thin(mount, "--keep-versions", "1..1")
        assert differences(kept, state_of(mount.path / "@kept")) == []
        if not last:
            backup.unlink()
    mount.check_store()


def test_thinned_out_twice(maker):
    """The second removal continues from the first: since then, for vstat and for a copy."""
    copy = Thinned(maker)
    mount, path = copy.source, copy.source.path / "file"
    seen = saves(path, 2)
    copy.note_state()
    copy.follow()
    for seed in (2, 3):
        saves(path, 2, seed=seed, more=True)
        copy.note_state()
        copy.thin(1)
    (one,) = [nanoseconds(version["thinned_since"]) for version in versions(mount, "file") if "thinned_since" in version]
    assert seen[0][0] < one < seen[1][0]
    copy.follow()
    copy.check()


def test_thinned_versions_are_erased_as_well(mount):
    """vrm erases the rest, and of another name the requested part."""
    for path in (mount.path / "file", mount.path / "other"):
        saves(path, 6, as_is_done=either)
    thin(mount, "--keep-versions", "..3")
    seen = [(moment(), (mount.path / "other").read_bytes())]
    mount.tool("vrm", "-y", mount.path / "file")
    assert mount.run_tool("vstat", mount.path / "file").returncode == 1
    assert mount.tool("vstat", mount.path / "other").stdout.count("thinned out since") == 1
    assert "file" not in os.listdir(mount.path / f"@{epoch(seen[0][0])}")
    assert at(mount, seen[0][0], "other") == seen[0][1]
    mount.check_store()
    mount.stop()
    assert "clean" in mount.tool("vfsck", mount.source).stdout


def test_versions_shown_elsewhere_are_kept(mount):
    """By another name for a while; by its name aside in a snapshot; and the version before, if it was changed since."""
    path, aside, link = mount.path / "file", mount.path / ".file.tmp", mount.path / "link"
    seen = saves(path, 2)
    os.link(path, link)
    linked = moment()
    link.unlink()
    seen += saves(path, 2, seed=2, more=True)
    aside.write_bytes(b"not yet")
    mount.tool("vsnap", "create", "amid", mount.path)
    os.rename(aside, path)
    seen += [(moment(), b"not yet"), *saves(path, 2, seed=3, more=True)]
    stream = open(path, "r+b", buffering=0)  # pylint: disable=consider-using-with
    seen += saves(path, 2, seed=4, more=True)
    stream.write(b"changed when it had no name any more")
    stream.close()
    seen += saves(path, 2, seed=5, more=True)
    thin(mount, "--keep-versions", "1..1")
    assert at(mount, linked, "link") == seen[2][1]
    assert (mount.path / "@amid/.file.tmp").read_bytes() == b"not yet"
    assert (mount.path / "@amid/file").read_bytes() == seen[4][1]
    for number, (when, _) in enumerate(seen):
        assert at(mount, when) in [content for _, content in seen[:number + 1]], number
    mount.check_store()


def test_programs_that_save(mount):
    """vim, sed -i and rsync; and mv, which looks the same for a file made just before."""
    path, seen = mount.path / "text", []
    vim = shutil.which("vim") or shutil.which("vim.tiny")
    path.write_text("0\n")
    for number in range(1, 9):
        if number % 4 == 0:
            subprocess.run([vim, "-Nu", "NONE", "-es", "-c", "set backupskip=", "-c", f"%s/.*/{number}/", "-c", "wq", path], check=True)
        elif number % 4 == 1:
            source = mount.source.parent / "from"
            source.write_text(f"{number}\n")
            subprocess.run(["rsync", "-t", "--checksum", source, path], check=True)
        elif number % 4 == 2:
            subprocess.run(["sed", "-i", f"s/.*/{number}/", path], check=True)
        else:
            (mount.path / "made").write_text(f"{number}\n")
            shutil.move(mount.path / "made", path)
        seen.append((moment(), f"{number}\n".encode()))
        moment()
    before = bodies(mount)
    thin(mount, "--keep-versions", "..3")
    assert bodies(mount) == before - 5
    for number, (when, content) in enumerate(seen):
        assert at(mount, when, "text") == (content if number > 4 else b"0\n"), number
    assert not [name for name in os.listdir(mount.path / f"@{epoch(seen[4][0])}") if name != "text"]
    mount.check_store()


@pytest.mark.parametrize("packed", (False, True))
def test_elsewhere_and_packed(maker, packed):
    """The store on another device; and removed versions packed with needed ones."""
    store = () if packed else (f"store={maker.tree('ext4')}",)
    mount = maker.mount("allow_other", *store, kind="ext4" if packed else "xfs")
    seen = saves(mount.path / "file", 6, 30000)
    other = saves(mount.path / "other", 3, 30000, seed=2)
    if packed:
        mount.tool("vcompact", mount.path)
    thin(mount, "--keep-versions", "..2", path="file")
    check_newest(mount, seen, 2)
    check_newest(mount, other, 9, "other")
    mount.check_store()
    mount.stop()
    assert "clean" in mount.tool("vfsck", *(("--store", mount.store()) if store else ()), mount.source).stdout


def test_automatically_and_by_name(mount):
    """As wayback.conf says of the name; its rule for the name aside does not count."""
    seen = {name: saves(mount.path / name, 5) for name in ("a.txt", "b.txt", "c.odt")}
    configure(mount, '[path "*.txt"]', "keep-versions = ..2", '[path "*.tmp"]', "keep = 30d")
    wait_for(lambda: shows(mount, seen["b.txt"][3][0], seen["b.txt"][0][1], "b.txt"), "it is thinned", mount)
    wait_for(lambda: shows(mount, seen["a.txt"][3][0], seen["a.txt"][0][1], "a.txt"), "it is thinned", mount)
    check_newest(mount, seen["a.txt"], 2, "a.txt")
    check_newest(mount, seen["c.odt"], 9, "c.odt")
    mount.check_store()


class Saving:
    """Files that are saved, written in their place, given other modes, deleted and made again."""

    def __init__(self, path, seed):
        self.path, self.rng = path, random.Random(seed)

    def step(self):
        name, kind = self.rng.choice("abc"), self.rng.randrange(9)
        path, content = self.path / name, self.rng.randbytes(self.rng.randrange(1, 9000))
        if kind < 3 and path.exists():
            save_in_place(path, content)
        elif kind < 5 or not path.exists():
            save(path, content, self.path / (f".{name}" if kind < 4 else f".{name}{self.rng.randrange(3)}"))
        elif kind == 5:
            path.unlink()
        elif kind == 6:
            path.chmod(self.rng.choice([0o600, 0o644]))
        else:
            with open(path, "r+b", buffering=0) as stream:
                stream.seek(self.rng.randrange(4000))
                stream.write(content[:500])


class Renaming(Saving):
    """And whatever else happens to names, also between the steps of a save. Impossible steps are left out."""

    def __init__(self, path, seed):
        super().__init__(path, seed)
        self.held = None

    def names(self):
        return [self.path / name for name in self.rng.choices(("a", "b", "a~", ".a", "c"), (6, 2, 4, 6, 2), k=2)]

    def steps(self):
        (path, other), rng = self.names(), self.rng
        yield from {
            0: lambda: [lambda: path.write_bytes(rng.randbytes(900))],
            1: lambda: [lambda: os.rename(path, other)],
            2: lambda: [path.unlink],
            3: lambda: [lambda: os.link(path, other)],
            4: lambda: [lambda: path.chmod(rng.choice((0o600, 0o644)))],
            5: lambda: [lambda: os.setxattr(path, "user.x", rng.randbytes(9))],
            6: lambda: [self.hold, lambda: os.rename(path, other), lambda: self.held.write(b"held")],
            7: lambda: [self.step],
        }.get(rng.randrange(20), self.save_by_steps)()

    def hold(self):
        self.drop()
        self.held = open(self.path / "a", "r+b", buffering=0)  # pylint: disable=consider-using-with

    def drop(self):
        if self.held:
            self.held.close()
        self.held = None

    def save_by_steps(self):
        path, aside, backup, content = self.path / "a", self.path / ".a", self.path / "a~", self.rng.randbytes(900)
        if self.rng.randrange(2):
            return [lambda: aside.write_bytes(content), lambda: os.rename(aside, path)]
        return [lambda: os.rename(path, backup), lambda: path.write_bytes(content), backup.unlink]


@pytest.mark.parametrize("seed", (1, 2) if QUICK else range(1, 7))
def test_snapshots_amid_anything(maker, seed):
    mount = maker.mount("allow_other", f"history={'write' if seed % 2 else 'close'}")
    names, pinned = Renaming(mount.path, seed), []
    for turn in range(3):
        for _ in range(30):
            for step in names.steps():
                with suppress(OSError, AttributeError):
                    step()
                if names.rng.random() < 0.05:
                    mount.tool("vsnap", "create", f"s{len(pinned)}", mount.path)
                    pinned.append(state_of(mount.path))
        names.drop()
        newest, when = state_of(mount.path), moment()
        if turn == 1:
            mount.tool("vcompact", mount.path)
        thin(mount, "--keep-versions", f"1..{names.rng.choice((1, 2))}")
        for number, state in enumerate(pinned):
            assert differences(state, state_of(mount.path / f"@s{number}")) == [], (turn, number)
        assert differences(newest, state_of(mount.at(when))) == []
        mount.check_store()
    mount.stop()
    assert "clean" in mount.tool("vfsck", mount.source).stdout


@pytest.mark.parametrize("history", ("write", "close"))
def test_whatever_happens(maker, history):
    """Snapshots are exact; and at any other moment each name is as it was then, or once before."""
    mount = maker.mount("allow_other", f"history={history}")
    saving, past, pinned = Saving(mount.path, 3), [], []
    for turn in range(3 if QUICK else 6):
        for number in range(25):
            saving.step()
            past.append((moment(), state_of(mount.path)))
            moment()
            if number == 9:
                mount.tool("vsnap", "create", f"kept{turn}", mount.path)
                pinned.append(past[-1])
        if turn % 2:
            mount.tool("vcompact", mount.path)
        newest = past[-1]
        assert thin(mount, "--keep-versions", f"1..{saving.rng.choice((1, 3))}")["versions"] > 0
        for when, state in [*pinned, newest]:
            assert differences(state, state_of(mount.at(when))) == []
        for number, (when, state) in enumerate(past):
            found = state_of(mount.at(when))
            assert sorted(found) == sorted(state)
            for name, entry in found.items():
                assert not name or entry in [earlier.get(name) for _, earlier in past[:number + 1]], (turn, number, name)
        mount.check_store()
    mount.stop()
    assert "clean" in mount.tool("vfsck", mount.source).stdout


def test_a_copy_continues(maker):
    """It keeps its states, though they are thinned out in the source."""
    copy = Thinned(maker)
    saving = Saving(copy.source.path, 4)
    for turn in range(4 if QUICK else 9):
        for _ in range(8):
            saving.step()
            copy.note_state()
        if turn:
            copy.thin(saving.rng.choice((1, 2, 4)))
        if turn % 3 != 1:
            copy.follow()
        if turn == 2:
            with copy.used() as mount:
                mount.tool("vcompact", mount.path)
    copy.follow()
    copy.check()
    whole = Copy(maker, copy.mounted())
    whole.expected = copy.expected
    whole.follow()
    whole.source.stop()
    whole.check()


def test_killed_at_any_call(maker):
    if os.uname().machine != "x86_64":
        pytest.skip("the tracer knows no other registers")
    import crash  # pylint: disable=import-outside-toplevel
    mount = maker.mount("allow_other", made=crash.Traced)
    mount.expect(".")
    for turn in kills(mount, 4 if QUICK else 12, lambda name, seed: saves(mount.path / name, 5, 900, seed)):
        assert bodies(mount) == 2 * 2 * (turn + 1)
        assert not list(mount.store().glob("objects/??/*.gone"))
