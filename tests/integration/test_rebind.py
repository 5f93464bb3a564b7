# SPDX-License-Identifier: LGPL-2.1-or-later
"""A tree that was moved or copied with its store: every moment is as it was, and nothing gets another's history."""
import contextlib
import errno
import json
import os
import shutil
import stat
import threading
import time

import pytest
import snapshots
from history_model import History
from mounts import LIMIT, QUICK, epoch, moment, run
from operations import EXCHANGE, Operator, renameat2
from test_close import Syncing
from test_unseen import next_tick
from treestate import differences, state_of


class Story:
    """Changes of every kind, and the states of the tree at several moments."""

    def __init__(self, mount, steps):
        self.expected = []
        for _ in steps(mount):
            state = state_of(mount.path)
            self.expected.append((moment(), state))

    def check(self, mount):
        self.check_past(mount)
        assert differences(self.expected[-1][1], state_of(mount.path)) == []

    def check_past(self, mount):
        for number, (when, state) in enumerate(self.expected):
            assert differences(state, state_of(mount.at(when))) == [], number


def begin(source):
    """Files that existed before there was a history."""
    (source / "old/deep/deeper").mkdir(parents=True)
    for name in ("old/a", "old/b", "old/deep/c", "old/deep/deeper/d", "untouched", "twin"):
        (source / name).write_bytes(name.encode() * 1000)
    os.link(source / "twin", source / "old/twin")
    os.symlink("untouched", source / "old/symlink")
    (source / "old/text").write_bytes(b"".join(b"line %d\n" % number for number in range(3000)))


def steps(mount):  # pylint: disable=too-many-statements
    top = mount.path
    yield
    (top / "dir/below").mkdir(parents=True)
    for number in range(6):
        (top / f"dir/file{number}").write_bytes(bytes([number]) * 5000)
    yield
    for name in ("old/a", "old/deep/c", "dir/file0", "dir/file1"):
        with open(top / name, "r+b") as stream:
            stream.seek(100)
            stream.write(b"in the middle")
    os.chmod(top / "dir/file2", 0o600)
    os.setxattr(top / "old/b", "user.name", b"value")
    yield
    (top / "dir/file0").rename(top / "old/deep/moved")
    os.link(top / "old/deep/moved", top / "dir/below/link")
    os.link(top / "untouched", top / "dir/also untouched")
    (top / "dir/file1").unlink()
    (top / "new").write_bytes(b"saved as editors do")
    (top / "new").rename(top / "old/a")
    (top / "gone").mkdir()
    (top / "gone/inside").write_bytes(b"for a while")
    yield
    shutil.rmtree(top / "gone")
    (top / "old/deep").rename(top / "dir/deep")
    with open(top / "dir/deep/deeper/d", "ab") as stream:
        stream.write(b"appended")
    os.unlink(top / "twin")
    yield
    mount.tool("vsnap", "create", "named", top / "dir")
    for number in range(8):
        with open(top / "old/text", "r+b") as stream:
            stream.write(b"%d" % number * 20000)
    mount.tool("vcompact", top)
    (top / "gone").mkdir()
    (top / "gone/inside").write_bytes(b"another of this name")
    with open(top / "old/twin", "r+b") as stream:
        stream.truncate(10)
    yield
    run("mv", "--exchange", top / "dir/file3", top / "dir/file4", check=False)
    (top / "dir/below").rename(top / "under")
    (top / "dir/deep/moved").unlink()
    os.utime(top / "dir/file5", ns=(10**18, 3 * 10**18))
    mount.tool("vrevert", "--change", "1", top / "old/a")
    yield
    mount.tool("vrm", "-y", top / "dir/file2")
    for number in range(20):
        (top / "under" / f"n{number}").write_bytes(b"%d" % number)
    yield


def cp(source, target):
    run("cp", "-a", f"{source}/.", target)


def rsync(source, target):
    # Without the window, a directory that changed in this very second keeps the time at which it was copied.
    run("rsync", "-aHAX", "--modify-window=-1", f"{source}/", target)


def tar(source, target):
    run("sh", "-c", f"tar -C '{source}' --xattrs --xattrs-include='*' -cf - . | tar -C '{target}' --xattrs "
        "--xattrs-include='*' -xpf -")


def copied(maker, mount, how, kind="ext4"):
    """Another tree, not mounted yet."""
    target = maker.tree(kind)
    how(mount.source, target)
    shutil.copystat(mount.source, target)
    return maker.mount("allow_other", source=target, start=False)


def rebind(mount, *options, status=1):
    """Findings: {code: finding}."""
    result = mount.run_tool("vfsck", "--json", "--rebind", *options, mount.source, merge=False)
    assert result.returncode == status, result.stdout + result.stderr
    return {finding["code"]: finding for finding in json.loads(result.stdout)["findings"]}


def story_with_a_check(maker, *options):
    source = maker.tree()
    begin(source)
    mount = maker.mount("allow_other", *options, source=source)
    story = Story(mount, steps)
    # Erased history is not shown any more.
    story.expected = [(when, state_of(mount.at(when))) for when, _state in story.expected]
    story.mount = mount
    mount.stop()
    return story


def change_more(mount, story):
    """Later changes are history like any other."""
    for name in ("old/b", "untouched", "dir/file3"):
        (mount.path / name).write_bytes(b"from now on")
    (mount.path / "dir/deep").rename(mount.path / "deep once more")
    (mount.path / "under/n3").unlink()
    mount.tool("vrevert", "--time", epoch(story.expected[1][0]), mount.path / "dir/file5")
    assert (mount.path / "dir/file5").read_bytes() == b"\5" * 5000
    for when, state in story.expected:
        assert differences(state, state_of(mount.at(when))) == []
    mount.check_store()


def test_every_moment_is_as_it_was(maker):
    story = story_with_a_check(maker)
    assert any(path.read_bytes()[:8] == b"WBPACK1\n" for path in story.mount.store().rglob("*.undo"))
    for how in [cp, tar] + [rsync] * bool(shutil.which("rsync")):
        copy = copied(maker, story.mount, how)
        status, output = copy.refused()
        assert status == 1 and "vfsck --rebind" in output
        assert list(rebind(copy, "-n", status=4)) == ["other-tree"]
        assert not (copy.store() / "identities").exists()
        assert list(rebind(copy)) == ["other-tree"]
        assert rebind(copy, status=0)["same-tree"]["state"] == "note"
        assert copy.tool("vfsck", copy.source).stdout.endswith("clean\n")
        copy.start()
        story.check(copy)
        copy.stop()
    # The original has its own history from now on; and so has the copy, also after a kill, and copied once more.
    copy.start()
    for mount in (story.mount.start(), copy):
        change_more(mount, story)
    copy.kill()
    copy.start()
    story.expected.append((moment(), state_of(copy.path)))
    copy.stop()
    again = copied(maker, copy, cp)
    assert again.refused()[0] == 1
    assert list(rebind(again)) == ["other-tree"]
    again.start()
    story.check(again)
    assert again.tool("vfsck", again.source).stdout.endswith("clean\n")


SEEDS = [int(s) for s in os.environ.get("WAYBACK_MODEL_SEED", "2,19,23").split(",")]
COPIES = [cp, tar] + [rsync] * bool(shutil.which("rsync"))


class Sitting(Syncing):
    """Most files are changed several times between open and close, as programs do."""

    def do_sit(self):
        path = self._file()
        with open(path, "r+b", buffering=0) as stream:
            for _ in range(self.random.randrange(2, 6)):
                size = os.fstat(stream.fileno()).st_size
                if self.random.randrange(4) == 0:
                    stream.truncate(self.random.randrange(size + 3000))
                else:
                    os.pwrite(stream.fileno(), self._bytes(), self.random.randrange(size + 5000))
        return path

    do_sit_again = do_sit_long = do_sit

    def do_grow(self):
        with open(self._new(), "xb", buffering=0) as stream:
            for _ in range(self.random.randrange(2, 6)):
                stream.write(self._bytes())


class Compacted(History):
    """The logs are packed now and then."""

    def change_snapshots(self):
        if self.random.randrange(30) == 0:
            self.mount.tool("vcompact", self.mount.path)


def snapshots_below(top):
    """Of each directory: the names in its `.snapshot`, and the names of any snapshot that are found there."""
    listed = {os.path.relpath(path, top): sorted(os.listdir(os.path.join(path, ".snapshot"))) for path, _, _ in os.walk(top)}
    names = sorted(set().union(*listed.values()))
    return {path: (found, [name for name in names if os.path.exists(os.path.join(top, path, ".snapshot", name))])
            for path, found in listed.items()}


@pytest.mark.parametrize("mode", ["write", "close"])
@pytest.mark.parametrize("seed", SEEDS)
def test_random_histories(maker, seed, mode):
    """A good copy is accepted without a question, and all of it is found, whatever was killed on the way."""
    source = maker.tree()
    operator = Operator(str(source), seed + 1000)
    for _ in range(60):
        operator.step()
    operator.close()
    next_tick()
    mount = maker.mount("allow_other", f"history={mode}", source=source)
    past = Compacted(mount, seed, operator=Sitting)
    past.record("-- as it was")
    past.work(int(os.environ.get("WAYBACK_MODEL_STEPS", "120" if QUICK else "200")))
    snapshots = snapshots_below(past.mount.path)
    mount.stop()
    copy = copied(maker, mount, COPIES[seed % len(COPIES)])
    assert list(rebind(copy)) == ["other-tree"]
    past.mount = copy.start()
    assert snapshots_below(copy.path) == snapshots
    past.check_by_path()


def test_a_snapshot_of_a_directory_that_nothing_else_is_recorded_of(maker):
    """Only the snapshot leads to it: in the copy, too, it is of that directory, wherever that was renamed to."""
    source = maker.tree()
    begin(source)
    mount = maker.mount("allow_other", source=source)
    for name, path in (("of c", "old/deep"), ("of d", "old/deep/deeper")):
        mount.tool("vsnap", "create", name, mount.path / path)
    (mount.path / "old").rename(mount.path / "renamed")
    mount.stop()
    copy = copied(maker, mount, cp)
    assert list(rebind(copy)) == ["other-tree"]
    for each in (mount.start(), copy.start()):
        for path, name in (("renamed/deep/{}c", "of c"), ("renamed/deep/deeper/{}d", "of d")):
            file = each.path / path.format(f".snapshot/{name}/")
            assert file.read_bytes() == path.format("").replace("renamed", "old").encode() * 1000
        assert os.listdir(each.path / "renamed/deep/.snapshot") == ["of c"]
        assert sorted(os.listdir(each.path / "renamed/deep/deeper/.snapshot")) == ["of c", "of d"]
        assert not (each.path / "renamed@of c").exists() and not (each.path / "renamed/deep@of d").exists()


def test_names_of_a_directory_that_others_changed(maker):
    """Names in its older records may be outdated; places of directories, and names that were met later, are valid."""
    mount = maker.mount("allow_other")
    mount.expect("changed while Wayback did not record")
    (mount.path / "made").mkdir()
    (mount.path / "made/file").write_bytes(b"one")
    (mount.path / "made").rename(mount.path / "renamed")
    os.mkfifo(mount.path / "fifo")
    (mount.path / "fifo").chmod(0o640)
    early = moment()
    mount.stop()
    next_tick()
    (mount.source / "fifo").chmod(0o600)
    (mount.source / "new").write_bytes(b"new")
    mount.start()
    deadline = time.monotonic() + LIMIT
    while "3 objects were changed while Wayback did not record" not in mount.log():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    when = moment()
    (mount.path / "renamed/file").unlink()
    (mount.path / "renamed").chmod(0o700)
    (mount.path / "fifo").chmod(0o644)
    mount.stop()
    copy = copied(maker, mount, cp)
    found = rebind(copy, "-y", status=1)
    assert "lost-track" not in found
    for each in (mount.start(), copy.start()):
        each.expect("changed while Wayback did not record")
        assert (each.at(when, "renamed") / "file").read_bytes() == b"one"
        assert stat.S_IMODE(os.stat(each.at(when, "renamed")).st_mode) == 0o755
        assert stat.S_IMODE(os.stat(each.at(when, "fifo")).st_mode) == 0o600
        with pytest.raises(OSError) as refused:
            os.stat(each.at(early, "fifo"))
        assert refused.value.errno == errno.EIO


def test_a_snapshot_of_a_directory_that_is_moved_meanwhile(maker):
    """Its place is recorded as of that moment, between two renames of the directory above it."""
    source = maker.tree()
    begin(source)
    mount = maker.mount("allow_other", source=source)
    over = threading.Event()

    def rename():
        while not over.is_set():
            for name in ("renamed", "old"):
                os.rename(mount.path / ("old" if name == "renamed" else "renamed"), mount.path / name)

    renaming = threading.Thread(target=rename)
    renaming.start()
    made = []
    try:
        while len(made) < 20:
            result = mount.run_tool("vsnap", "create", f"s{len(made)}", mount.path / "old/deep")
            # It may have the other name when it is looked for.
            assert result.returncode == 0 or "no such" in result.stdout or "is a past state" in result.stdout, result.stdout
            made += [f"s{len(made)}"] * (result.returncode == 0)
    finally:
        over.set()
        renaming.join()
    mount.stop()
    assert mount.tool("vfsck", mount.source).stdout.endswith("clean\n")
    copy = copied(maker, mount, cp)
    assert list(rebind(copy)) == ["other-tree"]
    copy.start()
    for name in made:
        assert (copy.path / "old/deep/.snapshot" / name / "c").read_bytes() == b"old/deep/c" * 1000


@pytest.mark.parametrize("what", ["nothing", "beside", "renamed", "exchanged"])
def test_an_old_snapshot_without_a_place(maker, what):
    """Of a store from before snapshots recorded the place of their directory: its path counts if no name on it was
    changed since."""
    source = maker.tree()
    begin(source)
    (source / "old/twin of deep").mkdir()
    mount = maker.mount("allow_other", source=source)
    snapshots.add(mount, "of c", scope=snapshots.object_of(mount, "old/deep"), path="old/deep")
    if what == "beside":
        (mount.path / "old/a").rename(mount.path / "old/b")
        (mount.path / "old/deep2").mkdir()
    elif what == "renamed":
        (mount.path / "old").rename(mount.path / "older")
        (mount.path / "older").rename(mount.path / "old")
    elif what == "exchanged":
        run("mv", "--exchange", mount.path / "old/deep", mount.path / "old/twin of deep", check=False)
    mount.stop()
    copy = copied(maker, mount, cp)
    assert list(rebind(copy)) == ["other-tree"]
    copy.start()
    shown = [str(path.relative_to(copy.path)) for path in copy.path.rglob("*")
             if path.is_dir() and os.path.exists(path / ".snapshot/of c")]
    # After a rename on the way the path proves nothing; never is it of another directory.
    [deep] = [str(path.parent.relative_to(copy.path)) for path in copy.path.rglob("c")]
    assert sorted(shown) == ([] if what == "renamed" else [deep, f"{deep}/deeper"])


def test_a_write_session_that_a_kill_left_open(maker):
    """Its growth has no record yet: the copy is a good one all the same, and the daemon of the copy ends the
    session."""
    source = maker.tree()
    (source / "file").write_bytes(b"before " * 100)
    mount = maker.mount("allow_other", "history=close", source=source)
    before, state = moment(), state_of(mount.path)
    fd = os.open(mount.path / "file", os.O_RDWR)
    os.pwrite(fd, b"changed in the middle of the session", 0)
    os.pwrite(fd, b"and longer than it ever was", 5000)
    mount.kill()
    with contextlib.suppress(OSError):
        os.close(fd)
    copy = copied(maker, mount, cp)
    assert list(rebind(copy)) == ["other-tree"]
    copy.start()
    assert (copy.path / "file").read_bytes() == (source / "file").read_bytes()
    assert differences(state, state_of(copy.at(before))) == []
    copy.check_store()


def test_the_store_is_elsewhere(maker):
    """Deleted files are in the tree then; the store is left in its place, and belongs to the copy alone."""
    story = story_with_a_check(maker, f"store={maker.tree('tmpfs')}")
    target = maker.tree("xfs")
    cp(story.mount.source, target)
    copy = maker.mount("allow_other", *story.mount.store_options(), source=target, start=False)
    assert list(rebind(copy, "--store", copy.store())) == ["other-tree"]
    copy.start()
    story.check(copy)
    copy.stop()
    assert "vfsck --rebind" in story.mount.refused()[1]


def test_back_to_the_first_tree(maker):
    """Bound to a copy, the store can be bound to the tree that it was made for, whose inodes are the ids themselves."""
    story = story_with_a_check(maker, f"store={maker.tree('tmpfs')}")
    first, target = story.mount, maker.tree("xfs")
    cp(first.source, target)
    copy = maker.mount("allow_other", *first.store_options(), source=target, start=False)
    for turn in range(2):
        assert "vfsck --rebind" in copy.refused()[1]
        assert list(rebind(copy, "--store", copy.store())) == ["other-tree"]
        assert "vfsck --rebind" in first.refused()[1]
        if turn == 0:
            assert list(rebind(first, "--store", copy.store())) == ["other-tree"]
            assert rebind(first, "--store", copy.store(), status=0)["same-tree"]["state"] == "note"
            first.start()
            story.check(first)
            first.check_store()
            first.stop()
    change_more(copy.start(), story)
    story.expected.append((moment(), state_of(copy.path)))
    copy.stop()


def test_copied_back_over_the_first_tree(maker):
    """With its store, after a while elsewhere: only the root has the same inode. Any file with an old inode is the one
    its name identifies."""
    story = story_with_a_check(maker)
    first, copy = story.mount, copied(maker, story.mount, cp)
    assert list(rebind(copy)) == ["other-tree"]
    change_more(copy.start(), story)
    (copy.path / "untouched").rename(copy.path / "renamed elsewhere")
    (copy.path / "untouched").write_bytes(b"another")
    story.expected.append((moment(), state_of(copy.path)))
    copy.stop()
    if shutil.which("rsync"):
        run("rsync", "-aHAXc", "--delete", "--modify-window=-1", f"{copy.source}/", first.source)
    else:
        for path in first.source.iterdir():
            run("rm", "-rf", path)
        cp(copy.source, first.source)
    shutil.copystat(copy.source, first.source)
    assert "vfsck --rebind" in first.refused()[1]
    assert list(rebind(first)) == ["other-tree"]
    first.start()
    story.check(first)
    (first.path / "renamed elsewhere").write_bytes(b"and so it goes on")
    story.check_past(first)
    first.check_store()


def test_a_copy_without_its_store(maker):
    """A store that was moved out of the tree is found by a signpost, and a copy of the tree has that, too. It gets
    neither the history nor the store of the first tree, unless the user names the store."""
    first, before = small(maker, look=True)
    store = maker.tree("tmpfs") / "store"
    first.tool("vstore", "move", first.source, store)
    identities = store / "identities"
    copy = copied(maker, first, cp)
    status, output = copy.refused()
    assert status == 1 and "copied or restored without its store" in output and f"{copy.store()}/moved" in output
    for options in ([], ["-y"], ["-n"]):
        result = copy.run_tool("vfsck", "--rebind", *options, copy.source)
        assert result.returncode == 8 and "copied or restored without its store" in result.stdout, result.stdout
    assert "without its store" in copy.run_tool("vlog", copy.source / "kept").stdout
    assert not identities.exists()
    first.start()
    assert differences(before, state_of(first.at(first.before))) == []
    first.stop()
    # Another history.
    other = copied(maker, first, cp)
    run("rm", "-r", other.store())
    other.start()
    (other.path / "kept").write_bytes(b"in another history")
    other.stop()
    # Or that of the first tree, which is gone.
    assert list(rebind(copy, "--store", store)) == ["other-tree"]
    copy.start()
    assert differences(before, state_of(copy.at(first.before))) == []
    copy.stop()
    assert "vfsck --rebind" in first.refused()[1]


def content_of(path):
    """None where there is nothing, errno.EIO where that is refused."""
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        assert error.errno == errno.EIO, error
        return error.errno


class Watched:
    """A mount and the contents of some of its paths at several moments."""

    def __init__(self, mount, *paths):
        self.mount, self.paths, self.expected = mount, paths, []
        mount.expect("changed while Wayback did not record")

    def note(self):
        contents = {path: content_of(self.mount.path / path) for path in self.paths}
        self.expected.append((moment(), contents))

    def check(self, copy):
        """Each is as it was, or refused; returns how many of them are refused."""
        copy.expect(r"(is|are) not known|lost to damage|did not record|is missing")
        refusals = 0
        copy.start()
        for when, contents in self.expected:
            for path, content in contents.items():
                found = content_of(copy.at(when, path))
                assert found in (content, errno.EIO), (path, when, content)
                refusals += found == errno.EIO
        copy.stop()
        return refusals


@pytest.mark.parametrize("looked", [False, True], ids=["not looked", "looked"])
def test_a_directory_that_others_renamed(maker, looked):
    """The mount that met it recorded where it is, so it is matched, with its files."""
    mount = maker.mount("allow_other")
    watched = Watched(mount, "old/file", "new/file")
    (mount.path / "old").mkdir()
    (mount.path / "old/file").write_bytes(b"one")
    watched.note()
    mount.stop()
    time.sleep(0.02)  # another tick of the clock that ctime comes from
    (mount.source / "old").rename(mount.source / "new")
    if looked:
        mark_what_others_changed(mount, 2)
    mount.start()
    for content in (b"two", b"another", b"last"):
        (mount.path / "new/file").write_bytes(content)
        watched.note()
    os.utime(mount.path / "new/file", ns=(10**18, 10**18))
    mount.stop()
    copy = copied(maker, mount, cp)
    assert "of 3 inodes, 3 have records" in rebind(copy, "-y", status=1)["other-tree"]["remedy"]
    watched.check(copy)


def look_at_all(mount):
    """A mount looks at the whole tree, and ends. Returns what it reported."""
    seen, begun, deadline = len(mount.log()), time.time_ns(), time.monotonic() + LIMIT
    mount.start()
    while floor_of(mount) < begun:
        assert time.monotonic() < deadline, mount.log()[seen:]
        time.sleep(0.01)
    mount.stop()
    return mount.log()[seen:]


def floor_of(mount):
    spans = mount.store() / "spans"
    return int.from_bytes(spans.read_bytes()[8:16], "little") if spans.exists() else 0


def mark_what_others_changed(mount, count):
    said = f"{count} object{'s were' if count > 1 else ' was'} changed while Wayback did not record"
    log = look_at_all(mount)
    assert said in log, log


def can_exchange(source):
    for name in ("one", "two"):
        (source / name).touch()
    try:
        renameat2(source / "one", source / "two", EXCHANGE)
    except OSError:
        return False
    finally:
        for name in ("one", "two"):
            (source / name).unlink()
    return True


def replaced_by_others(maker):
    """A file with its old time of modification, in a directory of which nothing else is recorded."""
    source = maker.tree()
    (source / "sub/below").mkdir(parents=True)
    for name in ("sub/f", "sub/below/f", "other"):
        (source / name).write_bytes(b"the first")
    mount = maker.mount("allow_other", source=source)
    watched = Watched(mount, "sub/f", "sub/below/f", "other")
    watched.note()
    mount.stop()
    for name in ("sub/f", "sub/below/f"):
        restored = maker.scratch / "restored"
        restored.write_bytes(b"restored!")
        shutil.copystat(source / name, restored)
        run("cp", "-p", restored, source / name)
    mark_what_others_changed(mount, 2)
    return watched


def test_a_file_that_others_replaced_in_a_directory_without_records(maker):
    """Its directory gets a catalog, so that the copy is bound without a question."""
    watched = replaced_by_others(maker)
    copy = copied(maker, watched.mount, cp)
    assert list(rebind(copy)) == ["other-tree"]
    assert watched.check(copy) == 2


def test_a_mark_of_an_older_version_in_a_directory_without_records(maker):
    """Which had only the log of the file: it may be any file of the copy."""
    watched = replaced_by_others(maker)
    mount = watched.mount
    for path in ("sub", "sub/below"):
        for catalog in mount.store().glob(f"objects/*/{(mount.source / path).stat().st_ino:016x}-*.cat"):
            catalog.unlink()
    shutil.rmtree(mount.store() / "manifest")
    mount.run_tool("vfsck", "-y", mount.source)
    assert len(list(mount.store().glob("objects/*/*.cat"))) == 1
    copy = copied(maker, mount, cp)
    found = rebind(copy, "-n", status=4)
    assert "lost-track" in found, found
    rebind(copy, "-y", status=4)
    assert watched.check(copy) >= 2


@pytest.mark.parametrize("looked", [True, False], ids=["looked", "not looked"])
@pytest.mark.parametrize("beside", ["nothing", "file", "directory"])
def test_a_directory_that_others_removed(maker, beside, looked):
    """It is gone if a mount has looked at all of the tree. Else another directory without records may be that one, and a
    file its files."""
    source = maker.tree()
    if beside == "file":
        (source / "beside").write_bytes(b"without records")
    elif beside == "directory":
        (source / "beside").mkdir()
    mount = maker.mount("allow_other", source=source)
    watched = Watched(mount, "dir/file", "kept")
    (mount.path / "dir").mkdir()
    for name in ("dir/file", "kept"):
        (mount.path / name).write_bytes(b"one")
        (mount.path / name).write_bytes(b"two")
    watched.note()
    mount.stop()
    next_tick()
    shutil.rmtree(mount.source / "dir")
    mark_what_others_changed(mount, 1)
    (mount.start().path / "kept").write_bytes(b"three")
    watched.note()
    mount.stop()
    copy = copied(maker, mount, cp)
    if not looked:
        (copy.store() / "spans").unlink()
    found = rebind(copy, "-n", status=4)
    marked = beside != "nothing" and not looked
    assert ("lost-track" in found) == ("external-content" in found) == marked, found
    assert found.get("external-content", {"path": "beside"})["path"] == "beside"
    rebind(copy, *["-y"] * marked, status=4)
    copy.expect("none of the places")
    assert watched.check(copy) <= 2


def test_a_directory_and_a_file_that_others_exchanged(maker, kind):
    """Where that leaves their times of change as they were, no mark shows that the directory is still there."""
    source = maker.tree(kind)
    if not can_exchange(source):
        pytest.skip(f"{kind} cannot exchange files")
    mount = maker.mount("allow_other", source=source)
    watched = Watched(mount, "dir/file", "beside/file")
    (mount.path / "dir").mkdir()
    (mount.path / "beside").write_bytes(b"beside")
    for content in (b"first", b"second"):
        (mount.path / "dir/file").write_bytes(content)
        watched.note()
    mount.stop()
    next_tick()
    renameat2(source / "dir", source / "beside", EXCHANGE)
    mark_what_others_changed(mount, 1 if kind == "xfs" else 3)
    copy = copied(maker, mount, cp)
    found = rebind(copy, "-n", status=4)
    assert "lost-track" in found and "missing" not in found, found
    rebind(copy, "-y", status=4)
    watched.check(copy)
    assert (copy.start().path / "beside/file").read_bytes() == b"second"


def shown_by_tools(mount, path, when):
    """What the tools take for the content of then: that of vextract, and that of vrevert, which is undone; None where
    there was nothing, EIO where they refuse."""
    answers = []
    file, target = mount.path / path, mount.path.with_name("extracted")
    target.unlink(missing_ok=True)
    result = mount.run_tool("vextract", "--time", epoch(when), "-o", target, file)
    answers.append(target.read_bytes() if target.exists() else None if "did not exist" in result.stdout else errno.EIO)
    now = content_of(file)
    result = mount.run_tool("vrevert", "--time", epoch(when), file)
    answers.append(content_of(file) if result.returncode == 0 else errno.EIO)
    if content_of(file) != now:
        file.write_bytes(now)
    result = mount.run_tool("vdiff", "--time", epoch(when), file)
    if "not known" in result.stdout or result.returncode > 1:
        answers.append(errno.EIO)
    return answers


@pytest.mark.parametrize("below", ["", "up/"], ids=["root", "below"])
def test_sibling_directories_that_others_exchanged(maker, kind, below):
    """On XFS they keep their times of change: neither may get the history of the other in a copy."""
    source = maker.tree(kind)
    if not can_exchange(source):
        pytest.skip(f"{kind} cannot exchange files")
    mount = maker.mount("allow_other", source=source)
    twins = (f"{below}a/f", f"{below}b/f")
    watched = Watched(mount, *twins, f"{below}a/only")
    for path in twins:
        (mount.path / path).parent.mkdir(parents=True)
    (mount.path / below / "a/only").write_bytes(b"only")
    for content in (b"1", b"2", b"3"):
        for path in twins:
            (mount.path / path).write_bytes(path.encode() + content)
            watched.note()
    mount.stop()
    next_tick()
    renameat2(source / below / "a", source / below / "b", EXCHANGE)
    mark_what_others_changed(mount, 1 if kind == "xfs" else 3)
    watched.check(mount)
    # In the first tree each file keeps its own past, or that is refused.
    mount.start()
    mount.expect(r"(is|are) not known")
    for when, contents in watched.expected:
        for path, other in (twins, twins[::-1]):
            answers = [content_of(mount.path / f"{path}@{epoch(when)}"), *shown_by_tools(mount, path, when)]
            assert set(answers) <= {contents[other], errno.EIO}, (path, when, answers)
    mount.stop()
    copy = copied(maker, mount, cp)
    found = rebind(copy, "-n", status=4)
    assert "lost-track" in found and "missing" not in found, found
    rebind(copy, "-y", status=4)
    watched.check(copy)
    copy.start()
    for when, contents in watched.expected:
        for path in twins:
            answers = [content_of(copy.path / f"{path}@{epoch(when)}"), *shown_by_tools(copy, path, when)]
            assert set(answers) == {errno.EIO}, (path, when, answers)
    copy.stop()
    copy.run_tool("vfsck", "-y", copy.source)  # histories without a file
    assert "clean" in copy.tool("vfsck", copy.source).stdout


def test_a_table_of_recorded_times_that_was_lost(maker):
    """Directories that others renamed before that may have no mark, whichever mount looked at the tree later."""
    mount = maker.mount("allow_other")
    watched = Watched(mount, "dir/file", "elsewhere/file")
    mount.expect("table of recorded times was missing or damaged")
    (mount.path / "dir").mkdir()
    for content in (b"one", b"two"):
        (mount.path / "dir/file").write_bytes(content)
        watched.note()
    mount.stop()
    next_tick()
    (mount.source / "other").write_bytes(b"something")
    mark_what_others_changed(mount, 2)
    next_tick()
    (mount.source / "dir").rename(mount.source / "elsewhere")
    (mount.store() / "spans").unlink()
    look_at_all(mount)
    copy = copied(maker, mount, cp)
    found = rebind(copy, "-n", status=4)
    assert "lost-track" in found and "missing" not in found, found
    rebind(copy, "-y", status=4)
    watched.check(copy)


@pytest.mark.parametrize("suffix", ("undo", "cat"))
def test_a_log_that_is_missing(maker, suffix):
    """Its object cannot be found any more: that may be any file or directory without records."""
    source = maker.tree()
    (source / "dir").mkdir()
    for name in ("dir/file", "quiet"):
        (source / name).write_bytes(b"before there was a history")
    mount = maker.mount("allow_other", source=source)
    watched = Watched(mount, "dir/file", "dir/later", "quiet")
    watched.note()
    for number, name in enumerate(("file", "later", "file", "later")):
        with open(mount.path / "dir" / name, "wb") as stream:
            stream.write(b"%d" % number)
        os.utime(stream.name, ns=(10**18, 10**18))
        watched.note()
    lost = (mount.path / "dir" / ("" if suffix == "cat" else "file")).stat().st_ino
    mount.stop()
    copy = copied(maker, mount, cp)
    [log] = (copy.source / ".wayback/objects").glob(f"*/{lost:016x}-*.{suffix}")
    log.unlink()
    assert "lost-track" in rebind(copy, "-y", status=4)
    assert watched.check(copy) > 0


def bad_list(store, what, shard):
    """Damages the list of the logs of that shard, or the list of such lists."""
    path = store / "manifest" / ("shards" if what == "shards" else shard)
    data = path.read_bytes()
    if what == "missing":
        path.unlink()
    elif what == "shards":
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    else:
        # All buckets, and the head is sound.
        path.write_bytes(data[:512] + bytes(byte ^ 1 for byte in data[512:]))


@pytest.mark.parametrize("what", ["missing", "buckets", "shards"])
@pytest.mark.parametrize("where", ["same", "another"])
def test_a_catalog_is_missing_and_a_list_of_logs_is_damaged(maker, what, where):
    """The names in a directory are known for certain only if its catalog is whole; no file gets another's history."""
    mount = maker.mount("allow_other")
    top = mount.path
    for number in range(40):
        (top / f"made{number}").mkdir()
    # The last of all shards that have a directory, and another, which is read before it.
    moved = max(top.iterdir(), key=lambda path: path.stat().st_ino & 0xff).stat()
    [old] = [path for path in top.iterdir() if path.stat().st_ino == moved.st_ino]
    old.rename(top / "dir")
    watched = Watched(mount, "first", "dir/one", "dir/two")
    (top / "first").write_bytes(b"the one")
    watched.note()
    (top / "first").write_bytes(b"THE ONE")
    watched.note()
    (top / "first").rename(top / "dir/one")
    watched.note()
    (top / "dir/one").rename(top / "dir/two")
    (top / "dir/one").write_bytes(b"another")
    watched.note()
    mount.stop()
    first = min(path.name for path in (mount.store() / "manifest").iterdir())
    copy = copied(maker, mount, cp)
    shard = f"{moved.st_ino & 0xff:02x}"
    assert first < shard
    [catalog] = (copy.store() / "objects" / shard).glob(f"{moved.st_ino:016x}-*.cat")
    catalog.unlink()
    bad_list(copy.store(), what, shard if where == "same" else first)
    assert {"damaged-manifest", "lost-track"} <= set(rebind(copy, "-n", status=4))
    rebind(copy, "-y", status=4)
    copy.expect("damaged|none of the places")
    watched.check(copy)
    # The catalog continues behind a gap, so that the directory leads to its files again.
    copy.run_tool("vfsck", "-y", copy.source)
    watched.check(copy)


def small(maker, look=False):
    """A tree with some history, the moment before its last change, and its state then. A look at the whole tree makes a
    file known by all of its names."""
    source = maker.tree()
    for name in ("kept", "changed", "lost", "twin", "quiet"):
        (source / name).write_bytes(name.encode() * 100)
        os.utime(source / name, ns=(10**18, 10**18))
    os.link(source / "twin", source / "other twin")
    mount = maker.mount("allow_other", source=source)
    for name in ("kept", "changed", "lost", "twin"):
        (mount.path / name).write_bytes(b"second")
    mount.before, before = moment(), state_of(mount.path) if look else None
    for name in ("kept", "changed", "lost", "twin"):
        (mount.path / name).write_bytes(b"third")
    mount.stop()
    return mount, before


def refused(path):
    with pytest.raises(OSError) as error:
        path.read_bytes()
    assert error.value.errno == errno.EIO


def test_no_file_gets_the_history_of_another(maker):
    """Changed, removed, new and of another kind since it was copied."""
    mount, _before = small(maker)
    copy = copied(maker, mount, cp)
    copy.expect("(is|are) not known")
    (copy.source / "changed").write_bytes(b"changed behind the mount")
    (copy.source / "lost").unlink()
    (copy.source / "new").write_bytes(b"made behind the mount")
    (copy.source / "twin").unlink()
    (copy.source / "other twin").unlink()
    (copy.source / "twin").mkdir()
    found = rebind(copy, status=4)
    assert sorted(found) == ["external-content", "missing", "other-tree", "wrong-kind"]
    assert found["missing"]["path"] in ("lost", "twin") and "-y" in found["other-tree"]["remedy"]
    assert copy.refused()[0] == 1
    found = rebind(copy, "-y", status=4)
    assert {f["state"] for f in found.values()} == {"repaired", "lost"}
    copy.expect("none of the places")
    copy.start()
    assert copy.at(mount.before, "kept").read_bytes() == b"second"
    assert copy.at(mount.before, "quiet").read_bytes() == b"quiet" * 100
    for name in ("changed", "new"):
        refused(copy.at(mount.before, name))
    with pytest.raises(OSError) as error:
        os.listdir(copy.at(mount.before, "twin"))
    assert error.value.errno == errno.EIO
    assert (copy.path / "new").read_bytes() == b"made behind the mount"


def test_hard_links_that_were_not_kept(maker):
    """Both files could have the history of one: neither gets it by guessing."""
    mount, _before = small(maker)
    copy = copied(maker, mount, lambda source, target: run("cp", "-a", "--no-preserve=links", f"{source}/.", target))
    # No record names "other twin", but one shows that "twin" had two names.
    found = rebind(copy, "-n", status=4)
    assert sorted(found) == ["external-content", "other-tree"] and found["external-content"]["path"] == "other twin"
    assert sorted(rebind(copy, "-y")) == ["external-content", "other-tree"]
    copy.expect("(is|are) not known")
    copy.start()
    assert copy.at(mount.before, "twin").read_bytes() == b"second"
    refused(copy.at(mount.before, "other twin"))
    copy.stop()
    (mount.start().path / "other twin").write_bytes(b"met by this name, too")
    mount.stop()
    copy = copied(maker, mount, lambda source, target: run("cp", "-a", "--no-preserve=links", f"{source}/.", target))
    assert "split-links" in rebind(copy, "-y", status=4)
    assert copy.refused()[0] == 1


def test_damaged_identities(maker):
    """Refused, named, and made anew."""
    mount, before = small(maker, look=True)
    copy = copied(maker, mount, cp)
    rebind(copy)
    path = copy.store() / "identities"
    data = path.read_bytes()
    taken = [at for at in range(64, len(data), 40) if any(data[at:at + 40])]
    places = (data[:at + 20] + b"X" + data[at + 21:] for at in taken[:3])
    for damage in (data[:3] + b"X" + data[4:], data[:-1], b"", *places):
        path.write_bytes(damage)
        result = copy.run_tool("vfsck", "--json", copy.source, merge=False)
        assert "damaged-identities" in [f["code"] for f in json.loads(result.stdout)["findings"]]
    assert list(rebind(copy)) == ["other-tree"]
    copy.start()
    assert differences(before, state_of(copy.at(mount.before))) == []


def linked(mount, what):
    """A file with the names f and g, and perhaps h; returns the names."""
    top = mount.path
    if what != "before":
        (top / "f").write_bytes(b"one")
        os.link(top / "f", top / "g")
    names = ["f", "g"]
    if what == "moved":
        (top / "sub").mkdir()
        (top / "g").rename(top / "sub/g2")
        (top / "sub").rename(top / "elsewhere")
        names[1] = "elsewhere/g2"
    if what == "three":
        os.link(top / "g", top / "h")
        names.append("h")
    if what != "unchanged":
        (top / "f").write_bytes(b"second")
        for name in names[1:]:
            (top / name).write_bytes(b"third by " + name.encode())
    return names


@pytest.mark.parametrize("forget", [(), ("--history",), ("--before", "now")], ids=["all", "history", "before"])
@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("what", ["before", "unchanged", "moved", "three", "edited"])
def test_one_of_two_names_was_forgotten(maker, what, number, forget):
    """No record takes the file's place with it: the new log has that, so a copy is bound without a question."""
    source = maker.tree()
    (source / "f").write_bytes(b"x" * 100)
    os.link(source / "f", source / "g")
    if what != "before":
        (source / "f").unlink()
        (source / "g").unlink()
    mount = maker.mount("allow_other", source=source)
    names = linked(mount, what)
    then = moment()
    if forget[:1] == ("--before",):
        forget = ("--before", epoch(moment()))
        (mount.path / names[0]).write_bytes(b"since then")
    mount.tool("vrm", "-y", *forget, mount.path / names[number])
    kept = names if forget else [name for name in names if name != names[number]]
    was, when = (mount.path / kept[0]).read_bytes(), moment()
    mount.stop()
    copy = copied(maker, mount, cp)
    assert sorted(rebind(copy, "-y")) == ["other-tree"]
    for one in (mount, copy):
        one.expect("is not known|was erased|vrm")
        one.start()
        with pytest.raises(OSError):
            (one.path / f"{kept[0]}@{epoch(then)}").read_bytes()
        for name in kept:
            (one.path / name).write_bytes(b"later")
        assert (one.path / f"{kept[0]}@{epoch(when)}").read_bytes() == was
        one.check_store()
        one.stop()
