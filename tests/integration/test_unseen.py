# SPDX-License-Identifier: LGPL-2.1-or-later
"""Changes that were not recorded: the state others gave a file is never shown as its past."""
import errno
import json
import os
import time
from pathlib import Path

import pytest

from mounts import LIMIT, epoch, moment

UNSEEN = "changed while Wayback did not record"

CLOCK_REALTIME_COARSE = 5


def next_tick():
    """Past the grain of the kernel's clock of ctime, in which two changes cannot be distinguished, however late its ticks
    are."""
    begun = time.time_ns()
    while time.clock_gettime_ns(CLOCK_REALTIME_COARSE) < begun + 25_000_000:
        time.sleep(0.001)


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
