# SPDX-License-Identifier: LGPL-2.1-or-later
"""Changes that were not recorded: the state others gave a file is never shown as its past."""
import contextlib
import errno
import json
import os
import time
from pathlib import Path

import pytest

from mounts import LIMIT, epoch, moment, nanoseconds

UNSEEN = "changed while Wayback did not record"

CLOCK_REALTIME_COARSE = 5


def next_tick():
    """Past the grain of the kernel's clock of ctime, in which two changes cannot be distinguished, however late its ticks
    are."""
    begun = time.time_ns()
    while time.clock_gettime_ns(CLOCK_REALTIME_COARSE) < begun + 25_000_000:
        time.sleep(0.001)


def next_span():
    """Past the pause after which the next recorded change begins another span."""
    begun = time.time_ns()
    while time.time_ns() < begun + 80_000_000:
        time.sleep(0.005)


def overwrite(source):
    """The same size, and the time of modification set back."""
    path = source / "f"
    status = path.stat()
    with open(path, "r+b") as stream:
        stream.write(b"X")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def append(source):
    with open(source / "f", "ab") as stream:
        stream.write(b"more")


def replace(source):
    (source / "new").write_bytes(b"other")
    (source / "new").rename(source / "f")


def delete(source):
    (source / "f").unlink()


def chmod(source):
    (source / "f").chmod(0o600)


def set_xattr(source):
    os.setxattr(source / "f", "user.x", b"other")


def move_directory(source):
    (source / "d").rename(source / "e")


def exchange_links(source):
    """Through its other name."""
    with open(source / "d/link", "r+b") as stream:
        stream.write(b"Y")


CHANGES = (overwrite, append, replace, delete, chmod, set_xattr, move_directory, exchange_links)


def look(root):
    """The visible state: {path: (mode, content, xattr)}; a path that is refused has errno.EIO instead."""
    found = {}
    for path in ("f", "d", "d/link", "d/quiet", "quiet"):
        try:
            status = os.lstat(root / path)
            content = (root / path).read_bytes() if path != "d" else sorted(os.listdir(root / path))
            try:
                xattr = os.getxattr(root / path, "user.x")
            except OSError as error:
                if error.errno == errno.EIO:
                    raise
                xattr = None
            found[path] = (status.st_mode, content, xattr)
        except (FileNotFoundError, NotADirectoryError):
            found[path] = None
        except OSError as error:
            assert error.errno == errno.EIO, error
            found[path] = errno.EIO
    return found


def names(root):
    """{path: mode}, None where there is nothing, errno.EIO where that is refused."""
    found = {}
    for path in ("f", "d", "d/link", "d/quiet", "quiet", "d/moved", "moved"):
        try:
            found[path] = os.lstat(root / path).st_mode
        except (FileNotFoundError, NotADirectoryError):
            found[path] = None
        except OSError as error:
            assert error.errno == errno.EIO, error
            found[path] = errno.EIO
    return found


# On XFS RENAME_EXCHANGE leaves no trace in the ctime of a file, so any name of a directory may have been another's.
MOVES_NAMES = (replace, delete, move_directory)


def past(path, when):
    """The content that the file had then, or errno.EIO."""
    try:
        return Path(f"{path}@{epoch(when)}").read_bytes()
    except OSError as error:
        assert error.errno == errno.EIO, error
        return error.errno


@pytest.fixture(name="tree")
def fixture_tree(any_mount):
    root = any_mount.path
    (root / "f").write_bytes(b"first")
    (root / "d").mkdir()
    os.link(root / "f", root / "d/link")
    (root / "d/quiet").write_bytes(b"quiet")
    (root / "quiet").write_bytes(b"quiet")
    any_mount.expect(UNSEEN)
    next_tick()
    return any_mount


@pytest.mark.parametrize("ended", ("stop", "kill"))
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_changes_of_others_are_not_the_past(tree, kind, change, ended):
    seen = [(moment(), look(tree.path))]
    (tree.path / "f").write_bytes(b"second")
    seen.append((moment(), look(tree.path)))
    getattr(tree, ended)()
    next_tick()
    change(tree.source)
    tree.start()
    # Known from the mount on, whenever it is looked at, and by whichever reader first.
    mounted = moment()
    state = look(tree.path)
    after = [(mounted, state), (moment(), state)]
    (tree.path / "quiet").write_bytes(b"changed through the mount")
    after.append((moment(), look(tree.path)))
    refused = 0
    for when, state in seen:
        for path, then in look(tree.at(when)).items():
            assert then in (state[path], errno.EIO), (path, then, state[path])
            refused += then == errno.EIO
        # Nobody touched it; the earlier state of its directory may be unknown.
        assert past(tree.path / "quiet", when) == b"quiet" or (kind == "xfs" and change in MOVES_NAMES)
    assert refused > 0
    for when, state in after:
        assert look(tree.at(when)) == state


def rename_inside(source):
    (source / "d/quiet").rename(source / "d/moved")


def rename_over(source):
    (source / "quiet").rename(source / "f")


def rename_away(source):
    (source / "quiet").rename(source / "moved")


def touch_root(source):
    (source / "new").mkdir()


def touch_directory(source):
    (source / "d/new").write_bytes(b"new")


def touch_files(source):
    for path in source.rglob("*"):
        if path.is_file() and ".wayback" not in path.parts and path.name != "own":
            path.chmod(0o711)


FIRST = (overwrite, delete, set_xattr, rename_inside, rename_over, rename_away)


@pytest.mark.parametrize("second", (touch_root, touch_directory, touch_files), ids=lambda change: change.__name__)
@pytest.mark.parametrize("change", FIRST, ids=lambda change: change.__name__)
def test_a_second_edit_does_not_hide_when_the_first_one_was(tree, change, second):
    """The first one is made beside a mount that records, and nobody looks there until it has ended."""
    def state_of(root):
        return {**look(root), **{f"name {path}": mode for path, mode in names(root).items()}}

    seen = [(moment(), state_of(tree.path))]
    # What the files were before is recorded, whatever others make of them later.
    for path in ("f", "d", "d/quiet", "quiet"):
        (tree.path / path).chmod(0o755)
    (tree.path / "own").write_bytes(b"recorded")
    seen.append((moment(), state_of(tree.path)))
    with open(tree.path / "own", "r+b", buffering=0) as stream:
        next_span()
        change(tree.source)
        for _ in range(2):
            next_span()
            stream.write(b"R")
            os.fsync(stream)
    tree.stop()
    next_tick()
    second(tree.source)
    tree.start()
    found = (moment(), state_of(tree.path))
    for _ in range(2):
        for when, state in seen:
            for path, then in state_of(tree.at(when)).items():
                assert then in (state[path], errno.EIO), (path, then, state[path])
        tree.remount()
    assert state_of(tree.at(found[0])) == found[1]


def test_the_gap_begins_in_the_first_pause_since_the_last_look(tree):
    """Once in one GAP, and seldom in two, of which the second one begins where recording ended."""
    with open(tree.path / "quiet", "r+b", buffering=0) as stream:
        stream.write(b"Q")
        next_span()
        rename_inside(tree.source)
        first = moment()
        next_span()
        stream.write(b"R")
    tree.stop()
    next_tick()
    touch_directory(tree.source)
    for _ in range(3):
        tree.start()
        # Met by its name, and by the thread that looks at the tree.
        assert past(tree.path / "quiet", moment()) == b"QRiet" and sorted(os.listdir(tree.path / "d")) == ["link", "moved", "new"]
        tree.stop()
    tree.start()
    changes = list(map(json.loads, tree.tool("vlog", "--json", tree.path).stdout.splitlines()))
    gaps = [nanoseconds(change["since"]) for change in changes if change["op"] == "gap" and change["path"] == "d"]
    assert len(gaps) in (1, 2) and gaps[-1] < first - 60_000_000


@pytest.mark.parametrize("change", (touch_root, touch_directory), ids=lambda change: change.__name__)
def test_files_of_a_changed_directory_are_known_over_pauses(kind, tree, change):
    """Its own last record is old by then; its files were changed through the mount since."""
    seen = []
    for number in range(3):
        next_span()
        (tree.path / "quiet").write_bytes(b"%d" % number)
        (tree.path / "d/quiet").chmod(0o600 + number)
        seen.append((moment(), b"%d" % number, (tree.path / "d/quiet").stat().st_mode))
    next_span()
    (tree.path / "f").write_bytes(b"another span")
    tree.stop()
    next_tick()
    change(tree.source)
    tree.start()
    assert sorted(os.listdir(tree.path / "d")) == ["link", "new", "quiet"][:: 1 if change is touch_directory else 2]
    for when, content, mode in seen:
        # On XFS an exchange of two names would not show.
        assert past(tree.path / "quiet", when) == content or (kind == "xfs" and change is touch_root)
        assert past(tree.path / "f", when) == b"first" or (kind == "xfs" and change is touch_root)
        if kind != "xfs":
            assert os.lstat(f"{tree.path}/d/quiet@{epoch(when)}").st_mode == mode


def test_attributes_before_a_recorded_change_are_known(tree):
    """What others did came after all that is recorded, in whatever log."""
    seen = []
    for number in range(3):
        next_span()
        (tree.path / "quiet").chmod(0o640 + number)
        seen.append((moment(), (tree.path / "quiet").stat().st_mode))
    next_span()
    (tree.path / "f").write_bytes(b"another span")
    tree.stop()
    next_tick()
    (tree.source / "quiet").write_bytes(b"other")
    tree.start()
    (tree.path / "quiet").chmod(0o600)
    for when, mode in seen[:-1]:
        assert os.lstat(f"{tree.path}/quiet@{epoch(when)}").st_mode == mode
    with pytest.raises(OSError) as caught:
        os.lstat(f"{tree.path}/quiet@{epoch(seen[-1][0])}")
    assert caught.value.errno == errno.EIO


@pytest.mark.parametrize("looked_up", (False, True))
def test_a_file_that_moves_to_a_directory_that_others_moved(mount, looked_up):
    """Its states from before that, which are recorded, need the place of the directory."""
    mount.expect(UNSEEN)
    (mount.path / "a/d").mkdir(parents=True)
    (mount.path / "a/d/file").write_bytes(b"file")
    mount.stop()
    next_tick()
    (mount.source / "a/d").rename(mount.source / "a/moved")
    next_tick()
    begun = time.time_ns()
    mount.start()
    if not looked_up:
        wait_until_all_was_looked_at(mount, begun)
    (mount.path / "new").write_bytes(b"new")
    when = moment()
    (mount.path / "new").rename(mount.path / "a/moved/new")
    (mount.path / "a/moved/file").rename(mount.path / "file")
    for _ in range(2):
        assert past(mount.path / "new", when) == b"new"
        assert past(mount.path / "a/moved/file", when) == b"file"
        mount.stop()
        mount.start()


def test_without_history_nothing_is_recorded(maker, tree):
    before = (moment(), look(tree.path))
    tree.stop()
    next_tick()
    plain = maker.mount("allow_other", "history=none", source=tree.source)
    (plain.path / "f").write_bytes(b"not recorded")
    plain.stop()
    tree.start()
    found = look(tree.at(before[0]))
    assert found["f"] == found["d/link"] == errno.EIO and found["quiet"] == before[1]["quiet"]
    now = look(tree.path)
    assert look(tree.at(moment())) == now


def wait_until_all_was_looked_at(mount, begun):
    """The floor in the store's `spans` is then the time at which that began."""
    deadline = time.monotonic() + LIMIT
    while int.from_bytes((mount.source / ".wayback/spans").read_bytes()[8:16], "little") < begun:
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_an_edit_while_others_are_being_marked_is_seen(mount):
    """To mark an object is no recorded change: changes by others meanwhile are none either."""
    for name in "abf":
        (mount.path / name).write_bytes(b"first")
    when = moment()
    mount.stop()
    mount.expect(UNSEEN)
    begun = time.time_ns()
    mount.start()
    wait_until_all_was_looked_at(mount, begun)
    next_span()
    for name in "ab":
        (mount.source / name).write_bytes(b"other")
    os.lstat(mount.path / "a")
    overwrite(mount.source)
    os.lstat(mount.path / "b")
    mount.stop()
    mount.start()
    assert [past(mount.path / name, when) for name in "abf"] == 3 * [errno.EIO]


@pytest.mark.parametrize("ended", ("stop", "kill"))
@pytest.mark.parametrize("again", (False, True))
@pytest.mark.parametrize("append", (False, True))
@pytest.mark.parametrize("history", ("write", "close"))
def test_a_file_that_is_being_written(maker, history, append, again, ended):
    """Others change it in bare SRC between two writes to it through one descriptor."""
    mount = maker.mount("allow_other", f"history={history}")
    mount.expect(UNSEEN)
    path, source = mount.path / "f", mount.source / "f"
    path.write_bytes(b"0123456789")
    fd = os.open(path, os.O_WRONLY | (os.O_APPEND if append else 0))
    before, after = [], []

    def write(text, states, writes):
        for _ in range(writes):
            next_span()
            os.write(fd, text) if append else os.pwrite(fd, text, 3)
            if history == "write":
                states.append((moment(), source.read_bytes()))

    before.append((moment(), source.read_bytes()))
    write(b"A", before, 1)
    next_span()
    with open(source, "r+b") as stream:
        stream.seek(5)
        stream.write(b"X")
    next_span()
    write(b"B", after, 2 if again else 0)
    os.close(fd)
    getattr(mount, ended)()
    mount.start()
    after.append((moment(), source.read_bytes()))
    for when, content in before:
        assert past(path, when) in (content, errno.EIO)
    assert [past(path, when) for when, _content in after] == [content for _when, content in after]


@pytest.mark.parametrize("history", ("write", "close"))
@pytest.mark.parametrize("met", (False, True))
def test_an_edit_beside_a_version_that_is_open(maker, kind, met, history):
    mount = maker.mount("allow_other", f"history={history}", kind=kind)
    mount.expect(UNSEEN)
    path = mount.path / "f"
    path.write_bytes(b"0123456789")
    when = moment()
    with opened(f"{path}@{epoch(when)}", os.O_RDONLY) as reader:
        next_span()
        overwrite(mount.source)
        next_span()
        if met:
            assert "f" in os.listdir(mount.path)
        for _ in range(2):
            with pytest.raises(OSError) as caught:
                os.pread(reader, 100, 0)
            assert caught.value.errno == errno.EIO
            assert past(path, when) == errno.EIO
            (mount.path / "quiet").write_bytes(b"recorded in another span")


@contextlib.contextmanager
def opened(path, flags):
    """Closed in the end, though its daemon may be dead by then, or whoever uses it may have closed it."""
    fd = os.open(path, flags)
    try:
        yield fd
    finally:
        with contextlib.suppress(OSError):
            os.close(fd)


def contents(path, moments):
    return {past(path, when) for when in moments}


@pytest.mark.parametrize("ended", ("close", "write", "kill", "killed after the close"))
@pytest.mark.parametrize("met", (False, True))
@pytest.mark.parametrize("append", (False, True))
def test_an_edit_in_the_middle_of_a_session(maker, kind, append, met, ended):
    """With history=close, all of a session counts as made at its end: so does an edit by others meanwhile, whether
    the file was met then or not, and whatever was recorded of other files before the end."""
    mount = maker.mount("allow_other", "history=close", kind=kind)
    mount.expect(UNSEEN)
    path, source = mount.path / "f", mount.source / "f"
    path.write_bytes(b"0123456789")
    (mount.path / "quiet").write_bytes(b"quiet")
    session, known = [moment()], {b"0123456789", errno.EIO}
    with opened(path, os.O_WRONLY | (os.O_APPEND if append else 0)) as fd:
        os.write(fd, b"A")
        session.append(moment())
        with opened(f"{path}@{epoch(session[1])}", os.O_RDONLY) as reader:
            next_span()
            with open(source, "r+b") as stream:
                stream.seek(5)
                stream.write(b"X")
            next_span()
            (mount.path / "quiet").write_bytes(b"recorded in another span")
            session.append(moment())
            if met:
                assert "f" in os.listdir(mount.path)  # looks its names up
            session.append(moment())
            assert contents(path, session) <= known
            with pytest.raises(OSError):
                os.pread(reader, 100, 0)
        if ended == "write":
            next_span()
            os.write(fd, b"B")
        if ended == "kill":
            mount.kill()
    if ended == "killed after the close":
        mount.kill()
    if "kill" in ended:
        mount.start()
    after = [(moment(), source.read_bytes())]
    for _ in range(2):
        assert contents(path, session) <= known
        (mount.path / "quiet").write_bytes(b"recorded once more")
        assert "f" in os.listdir(mount.path)
        assert contents(path, session) <= known
        after.append((moment(), source.read_bytes()))
        for when, content in after:
            assert past(path, when) == content
        mount.remount()


def xattrs_of(file):
    """errno.EIO where it is refused."""
    try:
        return {name: os.getxattr(file, name) for name in os.listxattr(file)}
    except OSError as error:
        assert error.errno == errno.EIO, error
        return error.errno


@pytest.mark.parametrize("met", (False, True))
@pytest.mark.parametrize("ended", (False, True))
def test_an_extended_attribute_that_others_set_in_the_middle_of_a_session(maker, kind, met, ended):
    """A version in the session has those from its begin, or is refused."""
    mount = maker.mount("allow_other", "history=close", kind=kind)
    mount.expect(UNSEEN)
    path = mount.path / "f"
    path.write_bytes(b"0123456789")
    os.setxattr(path, "user.y", b"first")
    known, before = ({"user.y": b"first"}, errno.EIO), moment()
    with opened(path, os.O_WRONLY) as fd:
        os.write(fd, b"A")
        session = [moment()]
        with opened(f"{path}@{epoch(session[0])}", os.O_RDONLY) as early:
            next_span()
            set_xattr(mount.source)
            next_span()
            (mount.path / "quiet").write_bytes(b"recorded in another span")
            session.append(moment())
            if met:
                assert "f" in os.listdir(mount.path)  # looks its names up
            with contextlib.ExitStack() as stack:
                versions = [early]
                with contextlib.suppress(OSError):
                    versions.append(stack.enter_context(opened(f"{path}@{epoch(session[1])}", os.O_RDONLY)))
                if ended:
                    os.close(fd)
                for file in [*versions, *(f"{path}@{epoch(when)}" for when in [before, *session])]:
                    assert xattrs_of(file) in known, file
    assert xattrs_of(f"{path}@{epoch(moment())}") == {"user.x": b"other", "user.y": b"first"}


def test_the_gap_of_a_session_outlives_a_horizon_in_it(maker):
    """It is needed as long as the states of the session are."""
    mount = maker.mount("allow_other", "history=close")
    mount.expect(UNSEEN)
    path = mount.path / "f"
    path.write_bytes(b"0123456789")
    with opened(path, os.O_WRONLY | os.O_APPEND) as fd:
        os.write(fd, b"A")
        next_span()
        with open(mount.source / "f", "r+b") as stream:
            stream.write(b"X")
        next_span()
        (mount.path / "quiet").write_bytes(b"recorded in another span")
        assert "f" in os.listdir(mount.path)  # looks its names up
        session = [moment()]
        next_span()
        session.append(moment())
        os.write(fd, b"B")
    mount.tool("vprune", "-y", "--before", epoch(session[0]), mount.path)
    after = (moment(), b"X123456789AB")
    for _ in range(2):
        assert contents(path, session) == {errno.EIO}
        assert past(path, after[0]) == after[1]
        mount.remount()


def test_one_line_says_how_many(tree):
    tree.stop()
    next_tick()
    overwrite(tree.source)
    tree.start()
    deadline = time.monotonic() + LIMIT
    while UNSEEN not in tree.log():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert "1 object was changed" in tree.log()
    tree.remount()
    assert tree.log().count(UNSEEN) == 1


def test_a_read_only_mount_refuses_as_well(maker, tree):
    when = moment()
    tree.stop()
    next_tick()
    overwrite(tree.source)
    reader = maker.mount("ro", "allow_other", source=tree.source)
    reader.expect(UNSEEN)
    with pytest.raises(OSError) as caught:
        reader.at(when, "f").read_bytes()
    assert caught.value.errno == errno.EIO
    assert reader.at(when, "quiet").read_bytes() == b"quiet"


def test_the_gap_is_listed(tree):
    tree.stop()
    next_tick()
    overwrite(tree.source)
    tree.start()
    (tree.path / "f").write_bytes(b"third")
    assert "gap since" in tree.tool("vstat", tree.path / "f").stdout


def test_lists_name_the_file_of_a_gap(tree):
    """Also for a file without any other record."""
    tree.stop()
    next_tick()
    (tree.source / "quiet").write_bytes(b"other")
    (tree.source / "d/new").write_bytes(b"new")
    tree.start()
    deadline = time.monotonic() + LIMIT
    while UNSEEN not in tree.log():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    changes = map(json.loads, tree.tool("vlog", "--json", tree.path).stdout.splitlines())
    assert sorted(change["path"] for change in changes if change["op"] == "gap") == ["d", "d/new", "quiet"]


# ---- file systems that keep whole seconds ---------------------------------------------------------


def next_second():
    """Later changes have another ctime than all before, however late the ticks of its clock are."""
    begun = time.time_ns() // 1_000_000_000
    while time.clock_gettime_ns(CLOCK_REALTIME_COARSE) // 1_000_000_000 <= begun:
        time.sleep(0.005)


@pytest.mark.parametrize("history", ("write", "close"))
@pytest.mark.parametrize("ended", ("stop", "kill"))
def test_recorded_changes_are_known_though_times_are_whole_seconds(maker, ended, history):
    """A change may have a ctime before the begin of its span."""
    mount = maker.mount("allow_other", f"history={history}", kind="ext4-seconds")
    seen = []

    def change(number):
        (mount.path / "f").write_bytes(b"%d" % number)
        (mount.path / f"new{number}").write_bytes(b"new")
        (mount.path / "d").mkdir(exist_ok=True)
        (mount.path / "d").chmod(0o700 + number)
        seen.append((moment(), b"%d" % number, 0o700 + number, sorted(os.listdir(mount.path))))

    for number in range(4):
        change(number)
        next_span()
    assert (mount.source / "f").stat().st_ctime_ns % 1_000_000_000 == 0
    next_second()
    change(4)
    getattr(mount, ended)()
    mount.start()
    change(5)
    next_second()
    for _ in range(2):
        for when, content, mode, names in seen:
            assert past(mount.path / "f", when) == content
            assert os.lstat(f"{mount.path}/d@{epoch(when)}").st_mode & 0o777 == mode
            assert sorted(os.listdir(mount.at(when))) == names
        mount.remount()
    assert "gap" not in mount.tool("vlog", mount.path).stdout


@pytest.mark.parametrize("mounted", (False, True))
@pytest.mark.parametrize("change", (overwrite, append, replace, delete, set_xattr), ids=lambda change: change.__name__)
def test_an_edit_in_a_second_of_its_own_is_seen(maker, change, mounted):
    mount = maker.mount("allow_other", kind="ext4-seconds")
    mount.expect(UNSEEN)
    (mount.path / "f").write_bytes(b"first")
    (mount.path / "quiet").write_bytes(b"quiet")
    before = (moment(), b"first")
    if not mounted:
        mount.stop()
    next_second()
    change(mount.source)
    next_second()
    if not mounted:
        mount.start()
    (mount.path / "own").write_bytes(b"recorded")
    after = (moment(), (mount.source / "f").read_bytes() if change is not delete else None)
    for _ in range(2):
        assert past(mount.path / "f", before[0]) == errno.EIO
        # A file whose birth is not known has no name for certain in a directory that others changed.
        assert past(mount.path / "quiet", before[0]) == b"quiet" or change in MOVES_NAMES
        if change is not delete:
            assert past(mount.path / "f", after[0]) == after[1]
        mount.remount()
