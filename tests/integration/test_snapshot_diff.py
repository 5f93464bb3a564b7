# SPDX-License-Identifier: LGPL-2.1-or-later
"""vsnap diff: the differences between two moments of a tree."""
import json
import os
import random

import pytest

from mounts import QUICK, SECOND, epoch, moment, nanoseconds
from test_snapshots import create, fails, vsnap


def diff(mount, *arguments, **options):
    return vsnap(mount, "diff", *arguments, **options).stdout.splitlines()


def fill(mount, *paths):
    for path in paths:
        (mount.path / path).parent.mkdir(parents=True, exist_ok=True)
        (mount.path / path).write_text(path)


def test_each_kind_of_change(any_mount):
    mount = any_mount
    fill(mount, "same", "gone", "sub/gone", "content", "size", "touched", "mode", "type", "renamed", "dir/a", "dir/b",
         "old/f")
    os.symlink("a", mount.path / "link")
    create(mount, "one")
    assert diff(mount, "one") == []
    os.unlink(mount.path / "gone")
    os.unlink(mount.path / "sub/gone")
    (mount.path / "content").write_text("CONTENT")
    (mount.path / "size").write_text("longer than it was")
    (mount.path / "touched").write_text("touched")
    os.chmod(mount.path / "mode", 0o600)
    os.unlink(mount.path / "type")
    (mount.path / "type").mkdir()
    os.rename(mount.path / "renamed", mount.path / "sub/moved")
    os.rename(mount.path / "dir", mount.path / "dir2")
    (mount.path / "dir2/b").write_text("B")
    (mount.path / "dir2/c").write_text("c")
    os.unlink(mount.path / "old/f")
    os.rmdir(mount.path / "old")
    fill(mount, "new/x")
    os.unlink(mount.path / "link")
    os.symlink("b", mount.path / "link")
    wanted = ["M content", "R dir/ -> dir2/", "M dir2/b", "A dir2/c", "D gone", "M link", "P mode", "A new/",
              "A new/x", "D old/", "D old/f", "M size", "D sub/gone", "R renamed -> sub/moved", "T type/"]
    assert diff(mount, "one") == wanted
    create(mount, "two")
    fill(mount, "later")
    assert diff(mount, "one", "two") == wanted
    assert diff(mount, "two") == ["A later"]
    back = diff(mount, "two", "one")
    assert "R dir2/ -> dir/" in back and "A gone" in back and "D dir2/c" in back and len(back) == len(wanted)
    assert diff(mount, "one", "./sub") == ["D ./sub/gone", "A ./sub/moved"]
    assert diff(mount, "one", "two", "sub") == ["D sub/gone", "A sub/moved"]
    assert diff(mount, "one", "./content") == ["M ./content"]
    assert diff(mount, "one", "./old") == ["D ./old/", "D ./old/f"]
    assert diff(mount, "one", "new") == ["A new/", "A new/x"]
    mount.stop()
    found = vsnap(mount, "diff", "one", "two", mount.source, cwd="/").stdout.splitlines()
    assert found == [line.replace(" ", f" {mount.source}/", 1).replace("-> ", f"-> {mount.source}/") for line in wanted]


def test_exchanged_replaced_and_linked(mount):
    fill(mount, "a", "b", "over", "by", "f", "edited", "d/x")
    create(mount, "one")
    os.rename(mount.path / "a", mount.path / "t")
    os.rename(mount.path / "b", mount.path / "a")
    os.rename(mount.path / "t", mount.path / "b")
    os.rename(mount.path / "by", mount.path / "over")
    os.link(mount.path / "f", mount.path / "g")
    # As editors do it: nothing but the content of the name has changed; here not even that.
    (mount.path / "edited.new").write_text("edited")
    os.rename(mount.path / "edited.new", mount.path / "edited")
    os.unlink(mount.path / "d/x")
    os.rmdir(mount.path / "d")
    fill(mount, "d/x", "d/y")
    assert diff(mount, "one") == ["R b -> a", "R a -> b", "A d/y", "A g", "R by -> over"]


def test_json(mount):
    fill(mount, "f", "dir/g")
    _, when = create(mount, "one")
    (mount.path / "f").write_text("longer")
    os.chmod(mount.path / "f", 0o600)
    os.rename(mount.path / "dir", mount.path / "moved")
    found = json.loads(vsnap(mount, "diff", "--json", "one").stdout)
    assert (nanoseconds(found["from"]), found["present"], found["complete"]) == (when, True, True)
    change, other = found["changes"]
    assert (change["change"], change["path"]) == ("content", "f")
    assert (change["before"]["size"], change["after"]["size"]) == (1, 6)
    assert (change["before"]["mode"], change["after"]["mode"]) == ("0644", "0600")
    assert (other["change"], other["from"], other["path"]) == ("renamed", "dir", "moved")


def test_changes_within_one_tick_of_the_clock(mount):
    """Times alone would call these equal."""
    for number in range(30):
        path = mount.path / f"f{number}"
        with open(path, "wb", buffering=0) as stream:
            stream.write(b"one")
            when = moment()
            stream.seek(0)
            stream.write(b"two")
        then = moment()
        assert diff(mount, epoch(when), epoch(then), f"./f{number}") == [f"M ./f{number}"]


def test_files_older_than_the_history(maker):
    mount = maker.mount("allow_other", start=False)
    (mount.source / "quiet/below").mkdir(parents=True)
    (mount.source / "quiet/below/f").write_text("x")
    (mount.source / "loud/below").mkdir(parents=True)
    (mount.source / "loud/below/f").write_text("x")
    mount.start()
    create(mount, "one")
    (mount.path / "loud/below/f").write_text("y")
    assert diff(mount, "one") == ["M loud/below/f"]
    os.chmod(mount.path / "quiet/below", 0o700)
    assert diff(mount, "one") == ["M loud/below/f", "P quiet/below/"]
    with open(mount.path / "quiet/below/f", "r+", encoding="utf-8") as stream:
        stream.write("z")
    assert diff(mount, "one") == ["M loud/below/f", "P quiet/below/", "M quiet/below/f"]


def test_a_directory_of_many(mount):
    (mount.path / "d").mkdir()
    for number in range(3000):
        (mount.path / f"d/{number}").touch()
    create(mount, "one")
    for number in range(0, 3000, 500):
        os.unlink(mount.path / f"d/{number}")
    (mount.path / "d/new").touch()
    wanted = sorted([f"D d/{n}" for n in range(0, 3000, 500)] + ["A d/new"], key=lambda line: line[2:])
    assert diff(mount, "one") == wanted


def snapshot_of(tree):
    """Path -> the fields that diff compares, with the inode in the place of the object."""
    state = {}
    for base, directories, files in os.walk(tree):
        for name in directories + files:
            path = os.path.join(base, name)
            st = os.lstat(path)
            content = None
            if not os.path.isdir(path):
                with open(path, "rb") as stream:
                    content = stream.read()
            state[os.path.relpath(path, tree)] = (st.st_ino, st.st_mode, content)
    return state


@pytest.mark.parametrize("seed", range(2 if QUICK else 5))
def test_random_changes(mount, seed):
    """Against two looks at the present: which is the same file, and its content."""
    chance = random.Random(seed)
    tree = mount.path
    for number in range(30):
        fill(mount, f"d{chance.randrange(4)}/e{chance.randrange(3)}/f{number}")
    create(mount, "one")
    before = snapshot_of(tree)
    for _ in range(60):
        files = [os.path.join(b, f) for b, _, fs in os.walk(tree) for f in fs]
        directories = [b for b, _, _ in os.walk(tree) if b != str(tree)]
        where = chance.choice(directories)
        match chance.randrange(6):
            case 0:
                os.unlink(chance.choice(files))
            case 1:
                with open(chance.choice(files), "r+b", buffering=0) as stream:
                    stream.write(b"%d" % chance.randrange(10))
            case 2:
                os.rename(chance.choice(files), os.path.join(where, f"r{chance.randrange(9)}"))
            case 3:
                with open(os.path.join(where, f"n{chance.randrange(9)}"), "w", encoding="utf-8") as stream:
                    stream.write("new")
            case 4:
                target = os.path.join(chance.choice(directories), f"m{chance.randrange(99)}")
                if not target.startswith(where + "/") and not os.path.exists(target):
                    os.rename(where, target)
            case 5:
                os.chmod(chance.choice(files), chance.choice((0o600, 0o644)))
    after = snapshot_of(tree)
    found = json.loads(vsnap(mount, "diff", "--json", "one").stdout)
    # The findings, applied to the names before, give those after.
    listed = {"added": set(), "removed": set(), "renamed": set(), "content": set(), "attributes": set()}
    for change in found["changes"]:
        listed[change["change"]].add(change["path"])
    old = {ino: path for path, (ino, _, _) in before.items()}
    for path, (ino, mode, content) in after.items():
        if ino in old:  # the same object, perhaps renamed
            was = before[old[ino]]
            assert path not in listed["added"]
            assert (path in listed["content"]) == (was[2] != content), path
            assert (path in listed["attributes"]) == (was[2] == content and was[1] != mode), path
            moved = os.path.dirname(path), os.path.dirname(old[ino])
            along = after.get(moved[0], (0,))[0] == before.get(moved[1], (0,))[0] and \
                os.path.basename(path) == os.path.basename(old[ino])
            assert (path in listed["renamed"]) == (path != old[ino] and not along), path
        elif path in before:
            assert (path in listed["content"]) == (before[path][2] != content), path
        else:
            assert path in listed["added"], path
    gone = {p for p, (ino, _, _) in before.items() if p not in after and ino not in {a[0] for a in after.values()}}
    assert listed["removed"] == gone


def test_bad_input(mount):
    fill(mount, "f")
    create(mount, "one")
    fails(mount, "diff", status=2)
    fails(mount, "diff", "none", status=2, words=["neither a time nor a snapshot"])
    fails(mount, "diff", "on", status=2, words=["did you mean one?"])
    fails(mount, "diff", "one", "none", status=2, words=["none", "neither"])
    fails(mount, "diff", "1d", status=1, words=["begins at"])
    fails(mount, "diff", "~1", status=2, words=["counts versions"])
    fails(mount, "diff", "2200-01-01", status=2, words=["future"])
    fails(mount, "diff", "one", "./none", words=["did not exist then, nor"])
    fails(mount, "diff", "one", "one", ".", "x", status=2)


def test_others_see_only_permitted_names(mount):
    fill(mount, "open/f", "closed/f")
    os.chmod(mount.path / "closed", 0o700)
    create(mount, "one")
    (mount.path / "open/f").write_text("x")
    (mount.path / "closed/f").write_text("x")
    result = vsnap(mount, "diff", "one", user=SECOND, status=1)
    assert result.stdout.splitlines() == ["M open/f"]
    assert "closed" in result.stderr and "permission denied" in result.stderr
    assert vsnap(mount, "diff", "one", "./open", user=SECOND).stdout.splitlines() == ["M ./open/f"]
