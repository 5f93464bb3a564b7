# SPDX-License-Identifier: LGPL-2.1-or-later
"""The directory of snapshots: its list, the meaning of its names, and that no program stumbles over it."""
import datetime
import errno
import os
import random
import shutil
import stat
import time

import pytest

import snapshots
from mounts import NOBODY, SECOND, as_user, drop_caches, epoch, moment, run
from treestate import differences, state_of

SNAPDIR = ".snapshot"


def refused(error, function, *arguments, **options):
    with pytest.raises(OSError) as caught:
        function(*arguments, **options)
    assert caught.value.errno == error, caught.value


def make_tree(root):
    (root / "d" / "e").mkdir(parents=True)
    (root / "d" / "e" / "f").write_bytes(b"one")
    (root / "d" / "g").write_bytes(b"g" * 5000)
    os.link(root / "d" / "g", root / "d" / "h")
    (root / "d" / "l").symlink_to("g")
    (root / "top").write_bytes(b"top")


def gmt(when):
    return datetime.datetime.fromtimestamp(when // 10**9, datetime.timezone.utc).strftime(
        "@GMT-%Y.%m.%d-%H.%M.%S")


# ---- entries --------------------------------------------------------------------------------------

def test_it_lists_the_snapshots_and_holds_the_directory_as_it_was(any_mount):
    root = any_mount.path
    make_tree(root)
    assert os.listdir(root / SNAPDIR) == []
    then, states = {}, {}
    for name in ("first", "before upgrade", "Häuser"):
        states[name] = {path: state_of(root / path) for path in ("", "d", "d/e")}
        then[name] = snapshots.add(any_mount, name)
        (root / "d" / "e" / "f").write_bytes(name.encode())
        (root / "d" / f"new {name}").mkdir()
        (root / "d" / "h").unlink(missing_ok=True)
    for path in ("", "d", "d/e"):
        assert sorted(os.listdir(root / path / SNAPDIR)) == sorted(then)
        for name, when in then.items():
            place = root / path / SNAPDIR / name
            assert differences(states[name][path], state_of(place)) == []
            assert differences(state_of(any_mount.at(when) / path), state_of(place)) == []
    assert os.listdir(root / "d" / "new first" / SNAPDIR) == ["before upgrade", "Häuser"]
    refused(errno.ENOENT, os.stat, root / "d" / "new first" / SNAPDIR / "first")
    refused(errno.ENOENT, os.stat, root / SNAPDIR / "nobody made it")


def test_any_time_is_a_name_there_but_not_listed(any_mount):
    root = any_mount.path
    make_tree(root)
    when = moment()
    (root / "d" / "e" / "f").write_bytes(b"two")
    (root / "d" / "x").write_bytes(b"")
    local = datetime.datetime.fromtimestamp(when // 10**9 + 1)
    for name in (epoch(when), "1h", "~1", "yesterday", "now", local.isoformat()):
        twin = root / f"d@{name}"
        place = root / "d" / SNAPDIR / name
        if twin.exists():
            assert differences(state_of(twin), state_of(place)) == []
        else:
            refused(errno.ENOENT, os.stat, place)
    assert (root / "d" / SNAPDIR / epoch(when) / "e" / "f").read_bytes() == b"one"
    assert not (root / "d" / SNAPDIR / "~1" / "x").exists()
    assert (root / "d" / SNAPDIR / "now" / "e" / "f").read_bytes() == b"two"
    assert os.listdir(root / "d" / SNAPDIR) == []
    for name in ("5x", "x@1s", "@1s", "~0", "2026-13-01", ".", "..."):
        assert name == "." or not (root / "d" / SNAPDIR / name).exists()


def test_a_relative_time_is_one_moment_for_one_process(mount):
    (mount.path / "f").write_bytes(b"one")
    time.sleep(1.1)
    script = ("cd .snapshot/1s && a=$(cat f 2>&1); for i in 1 2 3; do echo more > ../../f; sleep 0.5; done; "
              "b=$(cat f 2>&1); echo \"$a-$b\"")
    assert mount.tool("sh", "-c", script, cwd=mount.path).stdout == "one-one\n"


def test_a_snapshot_of_a_directory_is_listed_below_it_only(any_mount):
    root = any_mount.path
    make_tree(root)
    (root / "other").mkdir()
    snapshots.add(any_mount, "all")
    snapshots.add(any_mount, "of d", scope=snapshots.object_of(any_mount, "d"))
    assert os.listdir(root / "d" / SNAPDIR) == ["all", "of d"]
    assert os.listdir(root / "d" / "e" / SNAPDIR) == ["all", "of d"]
    assert os.listdir(root / SNAPDIR) == os.listdir(root / "other" / SNAPDIR) == ["all"]
    refused(errno.ENOENT, os.stat, root / "other" / SNAPDIR / "of d")
    refused(errno.ENOENT, os.stat, root / SNAPDIR / "of d")
    # The tree that it covered counts, not the current places.
    os.rename(root / "d" / "e", root / "e")
    os.rename(root / "other", root / "d" / "other")
    assert os.listdir(root / "e" / SNAPDIR) == ["all", "of d"]
    assert os.listdir(root / "d" / "other" / SNAPDIR) == ["all"]
    assert (root / "e" / SNAPDIR / "of d" / "f").read_bytes() == b"one"


def test_new_renamed_and_deleted_ones_show_at_once(mount):
    root = mount.path
    stream = os.open(root / SNAPDIR, os.O_RDONLY)
    try:
        for name in ("a", "b"):
            refused(errno.ENOENT, os.stat, root / SNAPDIR / name)
            when = snapshots.add(mount, name)
            assert (root / SNAPDIR / name).is_dir()
            assert name in os.listdir(root / SNAPDIR) and name in os.listdir(stream)
            assert (root / SNAPDIR).stat().st_mtime_ns == when
        inside = os.open(root / SNAPDIR / "b", os.O_RDONLY)
        snapshots.rename(mount, when, "c")
        assert os.listdir(root / SNAPDIR) == os.listdir(stream) == ["a", "c"]
        refused(errno.ENOENT, os.stat, root / SNAPDIR / "b")
        assert (root / SNAPDIR / "c").is_dir()
        snapshots.delete(mount, "c", when)
        assert os.listdir(root / SNAPDIR) == os.listdir(stream) == ["a"]
        refused(errno.ENOENT, os.stat, root / SNAPDIR / "c")
        assert os.listdir(inside) == []
        os.close(inside)
    finally:
        os.close(stream)


def test_snapshots_of_vsnap_are_there(mount):
    make_tree(mount.path)
    mount.tool("vsnap", "create", "all", mount.path)
    mount.tool("vsnap", "create", "of d", mount.path / "d")
    (mount.path / "d" / "e" / "f").write_bytes(b"two")
    assert os.listdir(mount.path / SNAPDIR) == ["all"]
    assert os.listdir(mount.path / "d" / SNAPDIR) == ["all", "of d"]
    assert (mount.path / "d" / SNAPDIR / "of d" / "e" / "f").read_bytes() == b"one"
    mount.tool("vsnap", "rename", "all", "everything", cwd=mount.path)
    mount.tool("vsnap", "delete", "of d", cwd=mount.path)
    assert os.listdir(mount.path / "d" / SNAPDIR) == ["everything"]
    # A working directory in it, or beside it, is one in the mount.
    assert "everything" in mount.tool("vsnap", "list", cwd=mount.path / "d" / SNAPDIR).stdout
    assert "everything" in mount.tool("vsnap", "list", cwd=mount.path / "d" / SNAPDIR / "everything").stdout


def test_its_attributes_and_inode_numbers(any_mount):
    root = any_mount.path
    make_tree(root)
    os.chown(root / "d", 7, 8)
    (root / "d").chmod(0o750)
    when = snapshots.add(any_mount, "s")
    status = (root / "d" / SNAPDIR).stat()
    assert (stat.filemode(status.st_mode), status.st_uid, status.st_gid, status.st_nlink,
            status.st_mtime_ns) == ("dr-xr-xr-x", 7, 8, 2, when)
    os.chown(root / "d", 9, 10)
    assert (root / "d" / SNAPDIR).stat().st_uid == 9
    numbers = {path: (root / path).stat().st_ino for path in (
        "", "d", "d/e", SNAPDIR, f"d/{SNAPDIR}", f"d/e/{SNAPDIR}", f"{SNAPDIR}/s", f"{SNAPDIR}/s/d",
        f"{SNAPDIR}/s/d/e")}
    assert len(set(numbers.values())) == len(numbers)
    assert all((number >> 63) == (SNAPDIR in path) for path, number in numbers.items())
    # The listings say the same numbers and types as stat, dots included.
    listed = any_mount.tool("ls", "-1aif", root / "d" / SNAPDIR).stdout.split()
    assert dict(zip(listed[1::2], map(int, listed[::2]))) == {
        ".": numbers[f"d/{SNAPDIR}"], "..": numbers["d"], "s": numbers[f"{SNAPDIR}/s/d"]}
    assert all(entry.is_dir() for entry in os.scandir(root / "d" / SNAPDIR))
    any_mount.remount()
    assert {path: (root / path).stat().st_ino for path in numbers} == numbers


def test_programs_find_their_way_in_it(any_mount):
    root = any_mount.path
    make_tree(root)
    snapshots.add(any_mount, "s")
    script = f"""set -e
        cd d/{SNAPDIR}/s/e && pwd -P && cd ../.. && pwd -P && cd .. && pwd -P
        ls -la {SNAPDIR} >/dev/null; stat {SNAPDIR}/s/e/f >/dev/null; df {SNAPDIR} >/dev/null
        df {SNAPDIR}/s >/dev/null
        cd {SNAPDIR} && find . | sort && du -s . >/dev/null && getfattr -d . && getfacl -p . >/dev/null
        tar c s | tar t | wc -l; rsync -aHAX --checksum s/ {any_mount.path.parent}/copy/ && diff -r s ../"""
    output = any_mount.tool("sh", "-c", script, cwd=root).stdout.split("\n")
    assert output[:3] == [f"{root}/d/{SNAPDIR}/s/e", f"{root}/d/{SNAPDIR}", f"{root}/d"]
    assert output[3:-1] == [".", "./s", "./s/e", "./s/e/f", "./s/g", "./s/h", "./s/l", "6"]
    # (rsync takes two times within a second for one.)
    assert differences(state_of(root / "d"), state_of(any_mount.path.parent / "copy"),
                       ignore=("mtime", "nlink")) == []


# ---- programs that meet it ----------------------------------------------------------------------------

def outputs(mount, place, target):
    """The output of programs that walk a tree."""
    target.mkdir()
    result = []
    for number, command in enumerate([
            "find . | sort", "find . -printf '%y %i %n %p\\n' | sort -k4", "du -ab . | sort -k2",
            "ls -lAR --time-style=full-iso .", "tar c . | tar t | sort", "grep -r one . | sort",
            "rsync -aHAX . {} && find {} | sort", "cp -a . {} && find {} | sort",
            "rsync -an --delete . {} | sort", "tar c . | tar x -C {} && diff -r . {}"]):
        to = target / str(number)
        to.mkdir()
        output = mount.tool("sh", "-c", "set -e; " + command.replace("{}", str(to)), cwd=place).stdout
        result.append(output.replace(str(to), "TO"))
    return result


def test_hidden_no_program_meets_it(any_mount, maker):
    root = any_mount.path
    make_tree(root)
    snapshots.add(any_mount, "s")
    (root / "d" / "e" / "f").write_bytes(b"one more")
    for path in ("", "d", "d/e"):
        assert os.listdir(root / path / SNAPDIR) == ["s"]
    hidden = outputs(any_mount, root, maker.scratch / "hidden")
    assert not any(SNAPDIR in output for output in hidden)
    any_mount.remount("snapdir=off")
    refused(errno.ENOENT, os.stat, root / SNAPDIR)
    assert outputs(any_mount, root, maker.scratch / "off") == hidden
    any_mount.remount("snapdir=hidden")
    assert os.listdir(root / "d" / SNAPDIR) == ["s"]
    any_mount.tool("rm", "-r", root / "d")
    assert os.listdir(root) == ["top"]
    assert (root / SNAPDIR / "s" / "d" / "e" / "f").read_bytes() == b"one"


def test_visible_it_is_in_every_live_directory_once(any_mount):
    root = any_mount.path
    any_mount.remount("snapdir=visible")
    make_tree(root)
    many = {f"{'x' * (i % 200)}{i}" for i in range(1500)}
    (root / "many").mkdir()
    for name in many:
        (root / "many" / name).touch()
    snapshots.add(any_mount, "s")
    for path in ("", "d", "d/e", "many"):
        names = os.listdir(root / path)
        assert len(names) == len(set(names)) and names.count(SNAPDIR) == 1, path
        with os.scandir(root / path) as entries:
            found = {entry.name: (entry.inode(), entry.is_dir()) for entry in entries}
        assert found[SNAPDIR] == ((root / path / SNAPDIR).stat().st_ino, True)
    assert set(os.listdir(root / "many")) == many | {SNAPDIR}
    # Past trees are as they were.
    assert sorted(os.listdir(root / SNAPDIR / "s" / "d")) == ["e", "g", "h", "l"]
    # Reading continues at its position, and starts anew.
    output = any_mount.tool("find", root, "-mindepth", "1", "-maxdepth", "1", "-printf", "%y %f\n").stdout
    assert sorted(output.split("\n")) == ["", f"d {SNAPDIR}", "d d", "d many", "f top"]


def test_a_past_tree_has_one_only_if_it_had_a_real_one(any_mount):
    root = any_mount.path
    make_tree(root)
    when = snapshots.add(any_mount, "s")
    for place in (any_mount.at(when), any_mount.at(when, "d"), root / SNAPDIR / "s", root / SNAPDIR / "s" / "d"):
        refused(errno.ENOENT, os.stat, place / SNAPDIR)
        assert SNAPDIR not in os.listdir(place)


def test_it_can_have_another_name(maker):
    mount = maker.mount("allow_other", "snapdir=.zfs", "snapdir=visible")
    snapshots.add(mount, "s")
    assert os.listdir(mount.path) == [".zfs"] and os.listdir(mount.path / ".zfs") == ["s"]
    refused(errno.ENOENT, os.stat, mount.path / SNAPDIR)
    (mount.path / SNAPDIR).mkdir()
    refused(errno.EEXIST, os.mkdir, mount.path / ".zfs")
    mount.options = ["allow_other"]
    mount.remount("snapdir=visible", "snapdir=hidden", "snapdir=a name with blanks")
    assert os.listdir(mount.path / "a name with blanks") == ["s"]
    assert sorted(os.listdir(mount.path)) == [SNAPDIR]


@pytest.mark.parametrize("option", ["snapdir=", "snapdir=.", "snapdir=..", "snapdir=a/b", "snapdir=5m",
                                    "snapdir=now", "snapdir=2026-01-01", "snapdir=~1", "snapdir=x@y",
                                    "snapdir=.wayback", "snapdir=.wayback-staging", "snapdir=" + "n" * 256,
                                    "snapdir", "snapnames=", "snapnames=x", "snapnames"])
def test_names_it_cannot_have(maker, option):
    mount = maker.mount("allow_other", start=False)
    status, output = mount.refused(option)
    assert status == 2 and option in output and output.count("\n") == 1


def test_without_a_history_there_is_none(maker):
    mount = maker.mount("allow_other", "history=none", "snapdir=visible")
    refused(errno.ENOENT, os.stat, mount.path / SNAPDIR)
    assert os.listdir(mount.path) == []
    (mount.path / SNAPDIR).mkdir()


def test_read_only_it_is_there(maker):
    mount = maker.mount("allow_other")
    make_tree(mount.path)
    snapshots.add(mount, "s")
    mount.remount("ro", "snapdir=visible")
    assert (mount.path / "d" / SNAPDIR / "s" / "e" / "f").read_bytes() == b"one"
    assert SNAPDIR in os.listdir(mount.path / "d")


# ---- real entries, and impossible changes -------------------------------------------------------------

def test_a_real_entry_of_its_name_wins(any_mount):
    root = any_mount.path
    any_mount.stop()
    (any_mount.source / "d" / SNAPDIR / "s").mkdir(parents=True)
    (any_mount.source / "d" / SNAPDIR / "s" / "f").write_bytes(b"real")
    (any_mount.source / "e").mkdir()
    (any_mount.source / "e" / SNAPDIR).write_bytes(b"a file")
    any_mount.expect("changed while Wayback did not record")
    any_mount.start("snapdir=visible")
    when = snapshots.add(any_mount, "s")
    assert (root / "d" / SNAPDIR / "s" / "f").read_bytes() == b"real"
    assert (root / "e" / SNAPDIR).read_bytes() == b"a file"
    assert os.listdir(root / "d") == os.listdir(root / "e") == [SNAPDIR]
    (root / "d" / SNAPDIR / "s" / "f").write_bytes(b"it can be changed")
    (root / "d" / SNAPDIR / "new").touch()
    # In the past it is an entry like any other.
    assert (any_mount.at(when) / "d" / SNAPDIR / "s" / "f").read_bytes() == b"real"
    assert (root / SNAPDIR / "s" / "e" / SNAPDIR).read_bytes() == b"a file"
    # Removed or moved away, it frees the name.
    os.rename(root / "d" / SNAPDIR, root / "d" / "moved")
    (root / "e" / SNAPDIR).unlink()
    assert os.listdir(root / "d" / SNAPDIR) == os.listdir(root / "e" / SNAPDIR) == ["s"]
    assert (root / "d" / SNAPDIR / "s" / SNAPDIR / "s" / "f").read_bytes() == b"real"
    refused(errno.EROFS, os.rename, root / "d" / "moved", root / "d" / SNAPDIR)
    any_mount.remount()
    any_mount.tool("rm", "-r", root / "d" / "moved")


def test_nothing_can_be_changed_there(any_mount):
    root = any_mount.path
    make_tree(root)
    snapshots.add(any_mount, "s")
    before = state_of(root)
    place = root / "d" / SNAPDIR
    refused(errno.EEXIST, os.mkdir, place)
    refused(errno.EROFS, os.rmdir, place)
    refused(errno.EROFS, os.chmod, place, 0o777)
    refused(errno.EROFS, os.chown, place, 1, 1)
    refused(errno.EROFS, os.utime, place)
    refused(errno.EROFS, os.setxattr, place, "user.x", b"1")
    refused(errno.EROFS, os.rename, place, root / "taken")
    refused(errno.EROFS, os.rename, root / "d" / "e", root / SNAPDIR)
    refused(errno.EISDIR, os.rename, root / "top", root / SNAPDIR)
    refused(errno.EEXIST, os.link, root / "top", root / SNAPDIR)
    refused(errno.EEXIST, os.symlink, "x", root / SNAPDIR)
    refused(errno.EISDIR, os.open, place, os.O_WRONLY | os.O_CREAT)
    for name in ("new", "s", epoch(moment())):
        inner = place / name
        for change in (os.mkdir, os.rmdir):
            with pytest.raises(OSError) as caught:
                change(inner)
            assert caught.value.errno in (errno.EROFS, errno.EEXIST, errno.ENOENT), (name, change)
        with pytest.raises(OSError):
            os.close(os.open(inner, os.O_WRONLY | os.O_CREAT))
    refused(errno.EROFS, os.mkdir, place / "new")
    refused(errno.EROFS, os.rmdir, place / "s")
    refused(errno.EROFS, os.open, place / "new", os.O_WRONLY | os.O_CREAT)
    refused(errno.EROFS, os.symlink, "x", place / "new")
    refused(errno.EROFS, os.link, root / "top", place / "new")
    refused(errno.EROFS, os.mkfifo, place / "new")
    refused(errno.EROFS, os.rename, root / "top", place / "top")
    refused(errno.EROFS, os.rename, place / "s", root / "s")
    refused(errno.EROFS, os.rename, place / "s", place / "t")
    refused(errno.EROFS, os.open, place, os.O_TMPFILE | os.O_RDWR)
    assert differences(before, state_of(root)) == []
    assert os.listdir(place) == ["s"]


def test_unpacking_a_tree_that_has_a_real_one(any_mount, maker):
    """If the name is taken, entries that would be put into it are refused, by name; all else arrives. With the name out
    of the way it arrives whole, and is real from then on."""
    tree = maker.scratch / "tree"
    (tree / "d" / SNAPDIR).mkdir(parents=True)
    (tree / "d" / SNAPDIR / "f").write_bytes(b"real")
    (tree / "d" / "g").write_bytes(b"g")
    archive = maker.scratch / "tree.tar"
    run("tar", "cf", archive, "-C", tree, ".")
    target = any_mount.path / "t"
    target.mkdir()
    result = any_mount.run_tool("tar", "xf", archive, "-C", target)
    assert result.returncode == 2 and f"{SNAPDIR}/f: Cannot open: Read-only file system" in result.stdout
    result = any_mount.run_tool("rsync", "-a", f"{tree}/", target)
    assert result.returncode == 23 and SNAPDIR in result.stdout and "Read-only" in result.stdout
    assert (target / "d" / "g").read_bytes() == b"g" and os.listdir(target / "d") == ["g"]
    any_mount.remount("snapdir=off")
    any_mount.tool("tar", "xf", archive, "-C", target)
    any_mount.remount()
    assert differences(state_of(tree), state_of(target), ignore=("mtime", "nlink")) == []
    any_mount.tool("rsync", "-a", "--delete", f"{tree}/", target)
    any_mount.tool("rm", "-r", target / "d" / SNAPDIR)


# ---- users, and directories that move -----------------------------------------------------------------

def test_without_permission_for_the_directory_there_is_none_here(any_mount):
    root = any_mount.path
    make_tree(root)
    os.chmod(root / "d", 0o755)
    os.chmod(root / "d" / "e", 0o700)
    snapshots.add(any_mount, "s")

    def attempt(path, action=os.listdir):
        try:
            return action(path)
        except OSError as error:
            return error.errno

    def look(path, action=os.listdir):
        return as_user(lambda: attempt(path, action), *SECOND)

    assert look(root / "d" / SNAPDIR) == ["s"]
    assert look(root / "d" / SNAPDIR / "s" / "g", os.stat).st_size == 5000
    assert look(root / "d" / "e" / SNAPDIR) == errno.EACCES
    assert look(root / "d" / SNAPDIR / "s" / "e" / "f", os.stat) == errno.EACCES
    # A file open then and closed now is closed.
    held = os.open(root / "d" / SNAPDIR, os.O_PATH)
    os.chmod(root / "d", 0o711)
    assert look(root / "d" / SNAPDIR) == errno.EACCES
    assert look(root / "d" / SNAPDIR / "s" / "g", os.stat).st_size == 5000
    os.chmod(root / "d", 0o700)
    for path in (root / "d" / SNAPDIR, f"/proc/thread-self/fd/{held}"):
        assert look(path) == errno.EACCES
        assert look(f"{path}/s", os.stat) == errno.EACCES
        assert look(f"{path}/1s", os.stat) == errno.EACCES
    os.close(held)
    # A file closed then and open now is closed as well.
    os.chmod(root / "d", 0o755)
    os.chmod(root / "d" / "e", 0o755)
    assert look(root / "d" / "e" / SNAPDIR) == ["s"]
    assert look(root / "d" / "e" / SNAPDIR / "s") == errno.EACCES
    assert look(root / "d" / "e" / SNAPDIR / "s" / "f", os.stat) == errno.EACCES


def test_an_ordinary_user_has_it_too(user_mount):
    def work():
        make_tree(user_mount.path)
        when = time.time_ns()
        time.sleep(0.01)
        (user_mount.path / "d" / "e" / "f").write_bytes(b"two")
        return (user_mount.path / "d" / SNAPDIR / epoch(when) / "e" / "f").read_bytes()

    assert as_user(work, *NOBODY) == b"one"
    snapshots.add(user_mount, "s")
    assert as_user(lambda: os.listdir(user_mount.path / "d" / SNAPDIR), *NOBODY) == ["s"]
    assert as_user(lambda: (user_mount.path / "d" / SNAPDIR / "s" / "e" / "f").read_bytes(), *NOBODY) == b"two"


def test_the_directory_is_removed_or_moved_while_in_use(any_mount):
    root = any_mount.path
    make_tree(root)
    snapshots.add(any_mount, "s")
    inside = os.open(root / "d" / "e" / SNAPDIR, os.O_RDONLY)
    deeper = os.open(root / "d" / "e" / SNAPDIR / "s", os.O_RDONLY)
    os.rename(root / "d", root / "moved")
    assert os.listdir(inside) == ["s"] and os.listdir(deeper) == ["f"]
    assert (root / "moved" / "e" / SNAPDIR / "s" / "f").read_bytes() == b"one"
    assert os.readlink(f"/proc/thread-self/fd/{deeper}") == f"{root}/moved/e/{SNAPDIR}/s"
    any_mount.tool("rm", "-r", root / "moved")
    drop_caches(2)
    with os.fdopen(os.open("f", os.O_RDONLY, dir_fd=deeper), "rb") as stream:
        assert stream.read() == b"one"
    assert os.listdir(deeper) == ["f"]
    os.fstat(inside)
    os.listdir(inside)
    os.close(inside)
    os.close(deeper)
    assert os.listdir(root / SNAPDIR / "s") and not (root / "moved").exists()
    (root / "d").mkdir()
    assert os.listdir(root / "d" / SNAPDIR) == []


def test_many_are_looked_up_and_forgotten(any_mount):
    root, rng = any_mount.path, random.Random(5)
    for i in range(150):
        (root / str(i) / "x").mkdir(parents=True)
        (root / str(i) / "x" / "f").write_bytes(b"%d" % i)
    snapshots.add(any_mount, "s")
    held = []
    for turn in range(600):
        i = rng.randrange(150)
        place = root / str(i) / rng.choice(["", "x"]) / SNAPDIR
        if not (root / str(i)).exists():
            refused(errno.ENOENT, os.stat, place)
            continue
        assert os.listdir(place) == ["s"]
        path = root / str(i) / SNAPDIR / rng.choice(["s", "now", "0s"]) / "x" / "f"
        assert path.read_bytes() == b"%d" % i
        if turn % 7 == 0:
            held.append(os.open(rng.choice([place, path]), os.O_RDONLY))
        if turn % 11 == 0 and held:
            os.close(held.pop(rng.randrange(len(held))))
        if turn % 13 == 0:
            shutil.rmtree(root / str(i))
        if turn % 97 == 0:
            drop_caches(2)
    for fd in held:
        os.close(fd)


def test_erasing_while_it_is_a_working_directory(mount):
    root = mount.path
    make_tree(root)
    snapshots.add(mount, "s")
    inside = os.open(root / "d" / SNAPDIR, os.O_RDONLY)
    assert (root / "d" / SNAPDIR / "s" / "e" / "f").read_bytes() == b"one"
    mount.tool("vrm", "-y", root / "d" / "e" / "f")
    refused(errno.ENOENT, os.stat, root / "d" / SNAPDIR / "s" / "e" / "f")
    assert os.listdir(inside) == ["s"] and os.listdir(root / "d" / SNAPDIR / "s" / "e") == []
    os.close(inside)


# ---- tools ----------------------------------------------------------------------------------------

def test_tools_take_paths_through_it(mount):
    root = mount.path
    make_tree(root)
    snapshots.add(mount, "s")
    (root / "d" / "e" / "f").write_bytes(b"two")
    for path in (f"d/{SNAPDIR}/s/e/f", f"{SNAPDIR}/s/d/e/f", f"d/e/{SNAPDIR}/{epoch(moment())}/f"):
        assert "create" in mount.tool("vstat", root / path).stdout
        assert mount.tool("vstat", root / path).stdout == mount.tool("vstat", root / "d" / "e" / "f").stdout


def test_reverting_a_directory_leaves_a_visible_one_alone(mount):
    root = mount.path
    mount.remount("snapdir=visible")
    make_tree(root)
    before = {p: (root / p).read_bytes() for p in ("d/e/f", "d/g")}
    when = snapshots.add(mount, "s")
    (root / "d" / "e" / "f").write_bytes(b"two")
    (root / "d" / "new").mkdir()
    mount.tool("rm", root / "d" / "g")
    output = mount.tool("vrevert", root / "d", "--time", epoch(when)).stdout
    assert SNAPDIR not in output
    assert {p: (root / p).read_bytes() for p in before} == before
    assert sorted(os.listdir(root / "d")) == sorted([SNAPDIR, "e", "g", "h", "l"])
