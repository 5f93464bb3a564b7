# SPDX-License-Identifier: LGPL-2.1-or-later
"""Damage after a clean unmount: each state is exact or refused, vfsck names the damage, and its repair leaves gaps."""
import contextlib
import errno
import json
import os
import random

import pytest

from history_model import History
from mounts import QUICK, epoch, moment
from treestate import state_of

SECTOR = 512
STEPS = 40 if QUICK else 70
LOOKED_AT = 5 if QUICK else 8  # moments after each damage; those of the next one are others
SEEDS = (1,) if QUICK else (1, 2, 3)


class Seen(History):
    """A history that also takes note of the inode of each path."""

    def __init__(self, mount, seed):
        super().__init__(mount, seed)
        self.inodes = []

    def record(self, line):
        super().record(line)
        self.inodes.append({path: os.lstat(self.mount.path / path).st_ino for path in self.moments[-1].state})


def wrong(expected, found, refused):
    """Paths that are neither as they were nor refused."""
    lines = []
    for path, entry in found.items():
        then = expected.get(path)
        if then is None:
            lines.append(f"{path}: should not be there")
        elif entry._replace(group="") != then._replace(group=""):
            lines.append(f"{path}: {then} became {entry}")
    for path in expected.keys() - found.keys():
        above = path
        while above and above not in refused:
            above = os.path.dirname(above)
        if above not in refused:
            lines.append(f"{path}: missing")
    return lines


def look(history, mount, moments):
    """(faults, how many paths are refused, the inodes they were)."""
    lines, count, inodes = [], 0, set()
    for number in moments:
        refused = set()
        moment = history.moments[number]
        found = state_of(str(mount.at(moment.when)), refused)
        lines += [f"{moment.when}: {line}" for line in wrong(moment.state, found, refused)]
        count += len(refused)
        inodes |= {history.inodes[number].get(path) for path in refused}
    return lines, count, inodes


def aside_of(path):
    """The place to which a deleted file is moved, so that it can be restored in its inode."""
    return next(above for above in path.parents if above.name == ".wayback") / "aside"


def forget_times(mount):
    """A disk that damages a file does not move its ctime, as these tests do: remove the record that it is compared
    with."""
    (mount.store() / "spans").unlink()


@contextlib.contextmanager
def kept(path):
    """Any change of the file is undone, in the same inode if it still has one."""
    data, status, aside = path.read_bytes(), path.stat(), aside_of(path)
    try:
        yield data
    finally:
        if aside.exists():
            aside.rename(path)
        with open(path, "r+b" if path.exists() else "wb") as stream:
            stream.write(data)
            stream.truncate()
        os.chmod(path, status.st_mode & 0o7777)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def overwrite(path, offset, data):
    """As a disk does it: times do not change."""
    status = path.stat()
    with open(path, "r+b") as stream:
        stream.seek(offset)
        stream.write(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def cut(path, length):
    status = path.stat()
    os.truncate(path, length)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def boundaries(mount, path):
    lines = mount.run_tool("vdump", "--json", path).stdout.splitlines()
    return [json.loads(line)["at"] for line in lines][1:]


def damages(mount, path, data, rand):
    """(the name of the damage, the function that does it)."""
    yield "deleted", lambda: path.rename(aside_of(path))
    cuts = {0, len(data) - 1, rand.randrange(len(data))}
    if path.suffix in (".undo", ".cat"):
        begins = boundaries(mount, path)
        cuts |= {*begins[-1:], *rand.sample(begins, min(2, len(begins)))}
    for length in sorted(cuts):
        yield f"cut to {length} of {len(data)}", lambda length=length: cut(path, length)
    sectors = range(0, len(data), SECTOR)
    for offset in sorted({0, sectors[-1], *rand.sample(sectors, min(2, len(sectors)))}):
        zeros = bytes(min(SECTOR, len(data) - offset))
        if data[offset:offset + SECTOR] != zeros:
            yield f"zeros at {offset} of {len(data)}", lambda offset=offset, zeros=zeros: overwrite(path, offset, zeros)
    offset = rand.randrange(len(data))
    yield f"flipped at {offset}", lambda: overwrite(path, offset, bytes([data[offset] ^ 0x5a]))


def chosen(mount, rand):
    """Files of each kind."""
    store = mount.store()
    kinds = [store.glob("objects/*/*.undo"), store.glob("objects/*/*.cat"), store.glob("manifest/??"),
             store.glob("objects/*/*.data"), store.glob("manifest/shards"), store.glob("actors"), store.glob("inflight"), store.glob("timeline/*")]
    for kind in kinds:
        # A deleted file with another name is the present, too, and a change of that is another matter; a deleted
        # symbolic link has no bytes of its own to damage.
        files = sorted(path for path in kind if path.is_file() and not path.is_symlink() and path.stat().st_size > 0
                       and path.stat().st_nlink == 1)
        yield from rand.sample(files, min(len(files), 3 if QUICK else 6))


def made(maker, kind, seed):
    mount = maker.mount(source=maker.tree(kind))
    mount.expect(".")
    history = Seen(mount, seed)
    history.work(STEPS, kill=False, snapshots=False)
    mount.stop()
    forget_times(mount)
    return mount, history


def finds(mount, *options):
    result = mount.run_tool("vfsck", *options, "--json", mount.source, merge=False)
    return [finding for finding in json.loads(result.stdout)["findings"] if finding["state"] != "note"]


@pytest.mark.parametrize("seed", SEEDS)
def test_each_file_of_the_store_in_each_way(maker, seed):
    mount, history = made(maker, "tmpfs", seed)
    rand = random.Random(seed)
    assert finds(mount) == []
    count = unnoticed = 0
    for path in chosen(mount, rand):
        with kept(path) as data:
            ways = list(damages(mount, path, data, rand))
        for name, damage in ways:
            moments = rand.sample(range(len(history.moments)), LOOKED_AT)
            with kept(path):
                damage()
                reader = maker.mount("ro", source=mount.source)
                reader.expect(".")
                lines, refused, inodes = look(history, reader, moments)
                reader.stop()
                found = finds(mount)
            where = f"seed {seed}: {path.relative_to(mount.store())} {name}"
            assert lines == [], where
            count += 1
            # All states of other files are as they were.
            if path.suffix in (".undo", ".data"):
                assert inodes <= {int(path.name[:16], 16)}, where
            if path.parent.name in ("timeline", ".wayback") and path.name != "shards":
                assert refused == 0, where
            elif found == []:
                unnoticed += 1
                assert "flipped" in name or "zeros" in name, f"{where}: vfsck finds nothing"
    assert count > 40
    assert unnoticed < count / 4
    reader = maker.mount("ro", source=mount.source)
    assert look(history, reader, range(len(history.moments)))[:2] == ([], 0)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_repair_makes_gaps(maker, seed):
    """Several files are damaged; then vfsck, or the daemon by itself, continues behind gaps."""
    mount, history = made(maker, "ext4", seed)
    rand = random.Random(seed)
    paths = [path for path in chosen(mount, rand) if path.suffix in (".undo", ".cat")]
    for path in rand.sample(paths, 3):
        data = path.read_bytes()
        # Behind a damaged record at the end, nothing is known until another comes.
        rand.choice([damage for name, damage in damages(mount, path, data, rand)
                     if name.startswith(("deleted", "cut"))])()
        aside_of(path).unlink(missing_ok=True)
    if seed % 2:
        finds(mount, "-y")
        assert [finding for finding in finds(mount) if finding["code"] in ("short-log", "missing-log")
                and finding["file"].endswith(".undo")] == []
    mount.start()
    every = range(len(history.moments))
    assert look(history, mount, every)[0] == []
    # Later records are exact again, unless they are of a file that has no place any more.
    history.work(STEPS // 2, kill=True, snapshots=False)
    mount.remount()
    assert look(history, mount, range(len(history.moments)))[0] == []
    assert look(history, mount, [len(history.moments) - 1])[1] == 0


@pytest.mark.parametrize("size", [3, 600_000])
def test_a_damaged_deleted_file_is_refused_and_not_restored(mount, size):
    mount.expect(".")
    content = random.Random(size).randbytes(size)
    (mount.path / "file").write_bytes(content)
    mount.tool("vsnap", "create", "one", cwd=mount.path)
    (mount.path / "file").unlink()
    mount.remount()
    assert (mount.path / "file@one").read_bytes() == content
    mount.stop()
    body = next(mount.store().glob("objects/*/*.data"))
    with kept(body):
        overwrite(body, size // 2, bytes([content[size // 2] ^ 1]))
        assert {f["code"] for f in finds(mount)} == {"damaged-content"}
        forget_times(mount)
        mount.start()
        with pytest.raises(OSError) as caught:
            (mount.path / "file@one").read_bytes()
        assert caught.value.errno == errno.EIO
        assert mount.run_tool("vrevert", "-t", "one", mount.path / "file").returncode != 0
        assert not (mount.path / "file").exists()
        mount.stop()
    # Sound again, it is restored to its name, changes there, and is deleted once more.
    forget_times(mount)
    mount.start()
    mount.tool("vrevert", "-t", "one", mount.path / "file")
    assert (mount.path / "file").read_bytes() == content
    (mount.path / "file").write_bytes(b"another content")
    mount.tool("vsnap", "create", "two", cwd=mount.path)
    (mount.path / "file").unlink()
    mount.remount()
    assert (mount.path / "file@one").read_bytes() == content
    assert (mount.path / "file@two").read_bytes() == b"another content"
    mount.stop()
    assert finds(mount) == []


def test_a_deleted_open_file_may_change(mount):
    mount.expect(".")
    with open(mount.path / "file", "w+b", buffering=0) as stream:
        stream.write(b"before")
        mount.tool("vsnap", "create", "one", cwd=mount.path)
        (mount.path / "file").unlink()
        stream.seek(0)
        stream.write(b"AFTER!")
        assert (mount.path / "file@one").read_bytes() == b"before"
    mount.remount()
    assert (mount.path / "file@one").read_bytes() == b"before"
    mount.stop()
    assert finds(mount) == []


def test_a_file_that_lost_its_log_is_refused_and_continues(mount):
    mount.expect(".")
    file = mount.path / "file"
    file.write_bytes(b"one")
    mount.tool("vsnap", "create", "one", cwd=mount.path)
    file.write_bytes(b"two!")
    mount.stop()
    undo = next(mount.store().glob("objects/*/*.undo"))
    undo.unlink()
    assert {f["code"] for f in finds(mount)} == {"missing-log"}
    mount.start()
    with pytest.raises(OSError) as caught:
        (mount.path / "file@one").read_bytes()
    assert caught.value.errno == errno.EIO
    assert file.read_bytes() == b"two!"
    mount.tool("vsnap", "create", "two", cwd=mount.path)
    file.write_bytes(b"three")
    assert (mount.path / "file@two").read_bytes() == b"two!"
    mount.stop()
    assert [f["code"] for f in finds(mount)] == []


def test_a_directory_that_lost_its_catalog_is_refused_and_continues(mount):
    """The new catalog begins after everything that was in the old one: the directory of now is not that of then."""
    mount.expect(".")
    (mount.path / "d").mkdir()
    (mount.path / "d" / "old").write_bytes(b"old")
    mount.tool("vsnap", "create", "one", cwd=mount.path)
    (mount.path / "d" / "old").rename(mount.path / "d" / "new")
    mount.stop()
    inode = (mount.source / "d").stat().st_ino
    next(mount.store().glob(f"objects/*/{inode:016x}-*.cat")).unlink()
    mount.start()
    (mount.path / "d" / "later").write_bytes(b"later")
    for look in (lambda: os.listdir(mount.path / "d@one"), (mount.path / "d@one").stat, (mount.path / "d@one/new").stat):
        with pytest.raises(OSError) as caught:
            look()
        assert caught.value.errno == errno.EIO
    mount.tool("vsnap", "create", "two", cwd=mount.path)
    (mount.path / "d" / "later").unlink()
    assert sorted(os.listdir(mount.path / "d@two")) == ["later", "new"]
    mount.stop()
    assert [f["code"] for f in finds(mount)] == []


def test_a_crash_while_a_lost_catalog_is_made_anew(mount):
    """Its first record is there, the GAP behind it not yet, and the manifest still lists the old log."""
    mount.expect(".")
    (mount.path / "d").mkdir()
    (mount.path / "d" / "old").write_bytes(b"old")
    mount.tool("vsnap", "create", "one", cwd=mount.path)
    (mount.path / "d" / "old").rename(mount.path / "d" / "new")
    mount.stop()
    inode = (mount.source / "d").stat().st_ino
    catalog = next(mount.store().glob(f"objects/*/{inode:016x}-*.cat"))
    manifest = mount.store() / "manifest"
    before = {path: path.read_bytes() for path in manifest.iterdir() if path.is_file()}
    catalog.unlink()
    mount.start()
    (mount.path / "d" / "new").write_bytes(b"more")  # its place is found from that, and it is no change of d
    mount.stop()
    os.truncate(catalog, catalog.read_bytes().index(b"WBK1", 4))
    for path, content in before.items():
        path.write_bytes(content)
    mount.start()
    (mount.path / "d" / "later").write_bytes(b"later")
    for look in (lambda: os.listdir(mount.path / "d@one"), (mount.path / "d@one").stat, (mount.path / "d@one/new").stat):
        with pytest.raises(OSError) as caught:
            look()
        assert caught.value.errno == errno.EIO


@pytest.mark.parametrize("what", ["manifest/shards", "manifest", "table"])
def test_without_its_manifest_the_past_is_refused_until_vfsck_has_made_it_anew(mount, what):
    mount.expect(".")
    file = mount.path / "file"
    file.write_bytes(b"one")
    mount.tool("vsnap", "create", "one", cwd=mount.path)
    file.write_bytes(b"two!")
    mount.stop()
    undo = next(mount.store().glob("objects/*/*.undo"))
    if what == "manifest":
        for path in (mount.store() / what).iterdir():
            path.unlink()
        (mount.store() / what).rmdir()
    elif what == "table":
        (mount.store() / "manifest" / undo.parent.name).unlink()
    else:
        (mount.store() / what).unlink()
        assert {f["code"] for f in finds(mount)} == {"damaged-manifest"}
        mount.start()
        assert (mount.path / "file@one").read_bytes() == b"one"  # its table is there
        mount.stop()
    if what != "manifest/shards":
        mount.start()
        with pytest.raises(OSError) as caught:
            (mount.path / "file@one").read_bytes()
        assert caught.value.errno == errno.EIO
        file.write_bytes(b"the present goes on")
        mount.stop()
    finds(mount, "-y")
    assert finds(mount) == []
    mount.start()
    assert (mount.path / "file@one").read_bytes() == b"one"
    mount.stop()
    undo.unlink()
    assert {f["code"] for f in finds(mount)} == {"missing-log"}


@pytest.mark.parametrize("way", ["deleted", "cut"])
def test_a_store_with_a_lost_log_is_not_sent(mount, way):
    mount.expect(".")
    file = mount.path / "file"
    file.write_bytes(b"one")
    file.write_bytes(b"two!")
    file.write_bytes(b"three")
    mount.stop()
    undo = next(mount.store().glob("objects/*/*.undo"))
    if way == "deleted":
        undo.unlink()
    else:
        cut(undo, boundaries(mount, undo)[-1])
    sent = mount.run_tool("vsend", mount.source, merge=False)
    assert sent.returncode != 0 and undo.name in sent.stderr


def test_a_log_that_a_killed_daemon_wrote_last_is_listed_by_the_next(mount):
    """It had an entry by then, with an earlier size; the next daemon does not open the log."""
    path = mount.path / "file"
    states = []

    def overwrite_twice():
        for _ in range(2):
            path.write_bytes(b"%d" % len(states) * 5000)
            states.append((moment(), path.read_bytes()))

    overwrite_twice()
    mount.remount()
    overwrite_twice()
    mount.kill()
    mount.start()
    mount.stop()
    log = next(mount.store().glob("objects/*/*.undo"))
    size = log.stat().st_size
    os.truncate(log, size - 200)
    assert "short-log" in {finding["code"] for finding in finds(mount)}
    forget_times(mount)
    mount.start()
    mount.expect(".")
    for when, content in states:
        try:
            assert mount.at(when, "file").read_bytes() == content
        except OSError as error:
            assert error.errno == errno.EIO


@pytest.mark.parametrize("kind", ("xfs", "btrfs"))
@pytest.mark.parametrize("how", ("write", "truncate", "rewrite"))
def test_damage_to_cloned_content_is_refused(maker, kind, how):
    """What a write or a cut replaced shares blocks with the file; it is changed without its file."""
    mount = maker.mount(source=maker.tree(kind))
    path, text = mount.path / "f", os.urandom(3 << 20)
    step = len(text) if how == "write" else 1 << 17
    path.write_bytes(os.urandom(len(text)))
    when = moment()
    if how == "truncate":
        os.truncate(path, 5)
    else:
        with open(path, "r+b", buffering=0) as stream:
            for at in range(0, len(text), step):
                stream.write(text[at:at + step])
    later = moment()
    now = path.read_bytes()
    path.chmod(0o600)
    mount.stop()
    images = list(mount.store().glob("objects/*/*.image"))
    assert len(images) == 1
    at = images[0].stat().st_size // 2
    overwrite(images[0], at, bytes([images[0].read_bytes()[at] ^ 1]))
    assert {finding["code"] for finding in finds(mount)} == {"damaged-image"}
    mount.expect(".")
    mount.start()
    with pytest.raises(OSError) as caught:
        (mount.path / f"f@{epoch(when)}").read_bytes()
    assert caught.value.errno == errno.EIO
    assert (mount.path / f"f@{epoch(later)}").read_bytes() == now == path.read_bytes()
