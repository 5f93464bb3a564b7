# SPDX-License-Identifier: LGPL-2.1-or-later
"""vprune of single versions: kept versions are exact, and in place of a removed version the one before it shows."""
import errno
import os
import random
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "crash"))

# pylint: disable=wrong-import-position
from mounts import NOBODY, QUICK, epoch, moment, sync_tree
from operations import Operator
from test_close import Syncing
from test_keeper import HOUR, configure, look, wait_for
from test_prune import Aging, aging
from thinning import at, check_newest, filled, kills, readers, shows, thin, write_versions
from treestate import differences, state_of

SIZE = 300_000


@pytest.mark.parametrize("kind, size, history", [("ext4", 5000, "write"), ("xfs", 5000, "write"), ("xfs", 3 << 20, "write"),
                                                 ("ext4", 5000, "close"), ("xfs", 3 << 20, "close")])
def test_in_the_place_of_a_removed_one_the_one_before_shows(maker, kind, size, history):
    """Large ones are cloned on xfs: content kept for other versions is not punched."""
    mount = maker.mount("allow_other", f"history={history}", kind=kind)
    seen = write_versions(mount.path / "file", 9, size)
    sync_tree(mount.source)
    # changes of a write: the kernel hands on 1 MiB at a time
    pieces = (size + (1 << 20) - 1) >> 20 if history == "write" else 1
    most = f"..{3 * pieces + 1}"
    would = thin(mount, "-n", "--keep-versions", most)
    for when, content in seen:
        assert at(mount, when) == content
    did = thin(mount, "--keep-versions", most)
    assert did["versions"] == would["versions"] == 6 * pieces - 1 and did["changed"] == 1 and did["kept"] == 0
    assert did["bytes_images" if size > 1 << 20 else "bytes_logs"] > 3 * size
    check_newest(mount, seen, 4)
    assert "thinned out since" in mount.tool("vstat", mount.path / "file").stdout
    assert thin(mount, "--keep-versions", most)["versions"] == 0
    mount.check_store()
    mount.remount()
    check_newest(mount, seen, 4)
    mount.stop()
    assert "clean" in mount.tool("vfsck", mount.source).stdout
    thin(mount, "--keep-versions", f"..{pieces + 1}", path=mount.source)
    mount.start()
    check_newest(mount, seen, 2)


def check_named(history):
    for name in sorted(history.named):
        history.check_name(name)
    for view in history.views:
        history.check_view(view)


class Thinned(Aging):
    """Older versions than that may have been removed."""

    since = 0

    def whole(self):
        return [one for one in self.moments if one.when >= self.since]


@pytest.mark.parametrize("kind, options", [("ext4", ()), ("xfs", ()), ("ext4", ("history=close",))])
def test_kept_versions_are_as_they_were(maker, kind, options):
    """Whatever happened: all since an age, the states of snapshots and mounted moments; and all names."""
    mount = aging(maker, kind, options)
    history = Thinned(mount, 11, maker, Syncing if options else Operator)
    history.record("-- empty")
    for turn in range(2):
        history.work(20 if QUICK else 50, kill=False)
        history.age()
        known = history.moments[-1]
        history.work(15 if QUICK else 30, kill=False)
        if turn:
            mount.tool("vcompact", mount.path)
        thin(mount, "--keep", "290s")
        history.since = known.when
        for one in history.moments:
            found = state_of(history.at(one))
            if one.when >= known.when:
                history.explain(one, found, "after thinning")
            assert sorted(found) == sorted(one.state)
        check_named(history)
    mount.check_store()
    mount.remount()
    check_named(history)
    mount.stop()
    assert "clean" in mount.tool("vfsck", mount.source).stdout
    mount.start()


def test_only_the_requested_files(mount):
    """A file, a directory, a pattern: by all names that a file ever had."""
    (mount.path / "dir/below").mkdir(parents=True)
    names = ("dir/a.o", "dir/below/b.o", "dir/c.txt", "d.o", "dir/moved.o")
    seen = {name: write_versions(mount.path / name, 5) for name in names}
    (mount.path / "dir/moved.o").rename(mount.path / "dir/moved.txt")
    assert thin(mount, "-n", "--keep-versions", "..1")["changed"] == 5
    assert thin(mount, "-n", "--keep-versions", "..1", path="dir")["changed"] == 4
    assert thin(mount, "-n", "--keep-versions", "..1", path="dir/a.o")["changed"] == 1
    assert thin(mount, "-n", "--keep-versions", "..1", "--pattern", "*.o")["changed"] == 3
    assert thin(mount, "-n", "--keep-versions", "..1", "--pattern", "/dir/*.o")["changed"] == 1
    assert thin(mount, "--keep-versions", "..1", "--pattern", "/below/", path="dir")["changed"] == 1
    for name in names[:-1]:
        check_newest(mount, seen[name], 1 if name == "dir/below/b.o" else 9, name)
    (mount.store() / "wayback.conf").write_text('[path "d.o"]\nkeep-versions = ..2\n')
    mount.expect("wayback.conf")
    assert thin(mount, "--policy")["changed"] == 1
    check_newest(mount, seen["d.o"], 2, "d.o")


@pytest.mark.parametrize("path", ("", "dir", "dir/file"))
def test_deleted_files_are_thinned_as_well(mount, path):
    """Deleted, or replaced as editors do: the last state of the file is kept, though it is in the store only."""
    gone, names = {}, ("dir/file", "dir/other")
    (mount.path / "dir").mkdir()
    for name in names:
        gone[name] = write_versions(mount.path / name, 6)
    (mount.path / names[0]).unlink()
    (mount.path / "dir/new").write_bytes(b"from now on")
    (mount.path / "dir/new").rename(mount.path / names[1])
    moment()
    mount.tool("vcompact", mount.path)  # deleted files are packed
    would = thin(mount, "-n", "--keep-versions", "..1", path=path)
    did = thin(mount, "--keep-versions", "..1", path=path)
    assert would["versions"] == did["versions"] == (5 if path == "dir/file" else 10)
    assert did["bytes_logs"] > 0
    check_newest(mount, gone[names[0]], 1, names[0])
    check_newest(mount, gone[names[1]], 9 if path == "dir/file" else 1, names[1])
    mount.check_store()
    mount.remount()
    mount.tool("vrevert", mount.path / names[0], "--time", epoch(gone[names[0]][-1][0]))
    assert (mount.path / names[0]).read_bytes() == gone[names[0]][-1][1]
    assert at(mount, gone[names[0]][2][0], names[0]) == gone[names[0]][0][1]


@pytest.mark.parametrize("history", ("write", "close"))
def test_the_daemon_does_it_automatically(maker, history):
    """As wayback.conf says, and once more when there are more; versions that a snapshot shows are kept."""
    mount = maker.mount("allow_other", f"history={history}")
    seen = write_versions(mount.path / "file", 9)
    other = write_versions(mount.path / "other", 5)
    mount.tool("vsnap", "create", "kept", mount.path)
    configure(mount, '[path "file"]', "keep-versions = ..3")
    wait_for(lambda: shows(mount, seen[5][0], seen[0][1]), "versions that are not among the newest are removed", mount)
    check_newest(mount, seen, 3)
    check_newest(mount, other, 9, "other")
    assert (mount.path / "@kept/file").read_bytes() == seen[-1][1]
    mount.check_store()


def test_a_clock_that_is_set_ahead_makes_no_version_old(maker):
    mount = aging(maker)
    mount.expect("the clock is .* ahead of")
    seen = write_versions(mount.path / "file", 5)
    configure(mount, "[path \"file\"]", "keep = 2h")
    mount.programs.set(HOUR)
    mount.programs.set_wall(1000 * HOUR)
    with open(mount.path / "file", "r+b", buffering=0) as stream:
        stream.write(b"later")
    look(mount)
    wait_for(lambda: "the clock is" in mount.log(), "it is reported", mount)
    look(mount)
    time.sleep(0.3)
    check_newest(mount, seen, 9)
    mount.check_store()


def test_bad_input_does_nothing(mount):
    seen = write_versions(mount.path / "file", 5)
    (mount.store() / "wayback.conf").write_text("# nothing\n", encoding="ascii")
    for options, status, text in (
            (["--keep", "5x"], 2, "keep = 5x"), (["--thin", "2d:1h"], 2, "longer than the span"),
            (["--keep-versions", "0.."], 2, "MIN..MAX"), (["--pattern", "*.o"], 2, "requires --keep"),
            (["--keep", "1h", "--pattern", "a//b"], 2, "not a valid pattern"), (["--keep", "1h\nthin = 1h:2d"], 2, "more than one line"),
            (["--keep", "1h", "--before", "1h"], 2, "cannot be combined"), (["--policy", "--keep", "1h"], 2, "--policy"),
            (["--policy"], 1, "nothing is said")):
        assert text in mount.tool("vprune", "-y", *options, mount.path, status=status).stdout, options
    assert "use -y" in mount.tool("vprune", "--keep-versions", "..1", mount.path, status=1).stdout
    for yes in (["-y"], []):
        assert "no such file" in mount.tool("vprune", *yes, "--keep", "1h", mount.path / "none", status=1).stdout
    os.chmod(mount.path, 0o755)
    result = mount.run_tool("vprune", "-y", "--keep-versions", "..1", mount.path, user=NOBODY)
    assert result.returncode == 1 and "not permitted" in result.stdout
    check_newest(mount, seen, 9)


def test_versions_shown_elsewhere_are_kept(maker):
    """A moment that is mounted, and a snapshot; other readers of the store know any moment, and nothing is removed."""
    mount = maker.mount("allow_other")
    seen = write_versions(mount.path / "file", 9)
    reader = maker.mount("ro", source=mount.source)
    assert "-o ro" in mount.tool("vprune", "-y", "--keep-versions", "..1", mount.path, status=1).stdout
    reader.stop()
    elsewhere = maker.mount(f"at={epoch(seen[4][0])}", source=mount.source)
    assert (elsewhere.path / "file").read_bytes() == seen[4][1]
    thin(mount, "--keep-versions", "..1")
    assert (elsewhere.path / "file").read_bytes() == at(mount, seen[4][0]) == seen[4][1]
    assert at(mount, seen[3][0]) == seen[0][1] and at(mount, seen[6][0]) == seen[4][1]
    # In place of a removed version, the one before it shows.
    later = maker.mount(f"at={epoch(seen[6][0])}", source=mount.source)
    elsewhere.stop()
    thin(mount, "--keep-versions", "..1")
    assert (later.path / "file").read_bytes() == at(mount, seen[4][0]) == seen[4][1]
    later.stop()
    thin(mount, "--keep-versions", "..1")
    assert at(mount, seen[4][0]) == seen[0][1]


def test_readers_meanwhile(mount):
    """Bytes of one version, the removed one or the one shown now, or EIO; also through the page cache."""
    mount.expect("not kept any more")
    whens = filled(mount.path / "file", 40, SIZE)

    def look(number, stream):
        first = set(stream.read(SIZE // 2))
        with open(stream.name, "rb", buffering=0) as again:
            other = set(again.read(SIZE // 3))
        rest = stream.read(SIZE)
        # its own version; or an earlier one, and nothing of another
        sound = len(first | set(rest)) == 1 and len(other) == 1 and max(first | other) - 48 <= number
        return None if sound and len(rest) == SIZE - SIZE // 2 else (first, set(rest), len(rest))

    with readers(3, whens, mount.path / "file", look):
        for most in (30, 20, 10, 3):
            thin(mount, "--keep-versions", f"..{most}")
    for number, when in enumerate(whens):
        assert set(at(mount, when)) == {48 + (number if number >= 37 else 0)}, number


def test_an_open_version_is_refused_and_not_exchanged(mount):
    """A version that is removed while it is open, and the kernel's cache of it."""
    mount.expect("not kept any more")
    seen = write_versions(mount.path / "file", 5, SIZE)
    name = mount.path / f"file@{epoch(seen[2][0])}"
    with open(name, "rb", buffering=0) as stream:
        assert stream.read(1000) == seen[2][1][:1000]
        thin(mount, "--keep-versions", "..1")
        with pytest.raises(OSError) as caught:
            stream.seek(SIZE // 2)
            stream.read(1000)
        assert caught.value.errno == errno.EIO
        # the same inode, opened again without its name
        with open(f"/proc/thread-self/fd/{stream.fileno()}", "rb", buffering=0) as again:
            assert again.read(SIZE) == seen[0][1]
    assert name.read_bytes() == seen[0][1]


@pytest.mark.parametrize("history", ("write", "close"))
def test_killed_at_any_call(maker, history):
    if os.uname().machine != "x86_64":
        pytest.skip("the tracer knows no other registers")
    import crash  # pylint: disable=import-outside-toplevel
    mount = maker.mount("allow_other", f"history={history}", made=crash.Traced)
    mount.expect(".")
    for _ in kills(mount, 3 if QUICK else 5, lambda name, seed: write_versions(mount.path / name, 6, 9000, seed)):
        pass
