# SPDX-License-Identifier: LGPL-2.1-or-later
"""vdiff: the differences since then; and its output is a patch."""
import json
import os
import random
import re
import shutil
import stat

import pytest

from mounts import SECOND, epoch, moment, run


def entries(mount, *arguments, **options):
    result = mount.tool("vdiff", "--json", *arguments, merge=False, cwd=options.pop("cwd", mount.path), **options)
    return {entry["path"]: entry for entry in json.loads(result.stdout)["entries"]}


def changes(mount, *arguments, **options):
    return {path: entry["changes"] for path, entry in entries(mount, *arguments, **options).items()}


def patched(patch, directory, *options):
    run("patch", "--no-backup-if-mismatch", "-s", "-p1", "-d", directory, *options, "-i", patch)


def contents(top):
    return {str(p.relative_to(top)): p.read_bytes() for p in sorted(top.rglob("*")) if p.is_file() and not p.is_symlink()}


@pytest.fixture(name="tree")
def fixture_tree(mount):
    """A directory at mount.mark, and many changes of it since."""
    top = mount.path / "d"
    (top / "sub" / "deep").mkdir(parents=True)
    (top / "text").write_text("one\ntwo\nthree\n")
    (top / "same").write_text("same\n")
    (top / "touched").write_text("touched\n")
    (top / "no newline").write_text("a\nb")
    (top / "gone").write_text("gone\nfor good\n")
    (top / "sub" / "deep" / "f").write_text("deep\n")
    (top / "binary").write_bytes(bytes(range(256)) * 40)
    os.symlink("text", top / "link")
    os.mkfifo(top / "pipe")
    (top / "becomes").write_text("a file\n")
    mount.mark = moment()
    (top / "text").write_text("one\n2\nthree\nfour\n")
    os.utime(top / "touched", (1, 1))
    (top / "no newline").write_text("a\nc")
    (top / "gone").unlink()
    shutil.rmtree(top / "sub")
    with open(top / "binary", "r+b") as stream:
        stream.seek(1000)
        stream.write(b"XY")
        stream.seek(5000)
        stream.write(b"Z")
        stream.truncate(9000)
    (top / "link").unlink()
    os.symlink("same", top / "link")
    (top / "pipe").chmod(0o600)
    (top / "becomes").unlink()
    (top / "becomes").mkdir()
    (top / "becomes" / "inside").write_text("new\n")
    (top / "same").chmod(0o600)
    os.chown(top / "same", *SECOND)
    (top / "new name").write_text("new\n")
    return mount


EXPECTED = {
    "text": ["content"], "no newline": ["content"], "gone": ["removed"], "sub": ["removed"], "sub/deep": ["removed"],
    "sub/deep/f": ["removed"], "binary": ["content"], "link": ["target"], "pipe": ["mode"], "becomes": ["type"],
    "becomes/inside": ["added"], "same": ["mode", "owner"], "new name": ["added"]}


def test_a_tree(tree):
    then = epoch(tree.mark)
    found = entries(tree, "d", then)
    assert {path: entry["changes"] for path, entry in found.items()} == EXPECTED
    assert (found["link"]["old"]["target"], found["link"]["new"]["target"]) == ("text", "same")
    assert (found["same"]["old"]["mode"], found["same"]["new"]["mode"]) == ("0644", "0600")
    assert found["gone"]["new"] is None and found["gone"]["old"]["size"] == 14
    # The reverse, and nothing from then to then.
    later = epoch(moment())
    swap = {"added": "removed", "removed": "added"}
    assert changes(tree, "d", later, then) == {p: [swap.get(c, c) for c in w] for p, w in EXPECTED.items()}
    assert changes(tree, "d", then, then) == {}
    assert changes(tree, "d", later) == {}


def test_output_for_people(tree):
    then = epoch(tree.mark)
    text = tree.tool("vdiff", "d", then, cwd=tree.path).stdout
    lines = text.splitlines()
    assert "changed  d/text" in lines and "removed  d/sub/" in lines and "mode     d/same 0644 -> 0600" in lines
    assert "target   d/link 'text' -> 'same'" in lines and "type     d/becomes file -> directory" in lines
    assert "added    d/new name (4 B)" in lines
    assert any(l.startswith("Binary files a/d/binary and b/d/binary differ: 10 KiB -> 8.8 KiB, 3 bytes differ in 2 "
                            "ranges, the first at 1000") for l in lines), text
    assert "d/touched" not in text and "\033" not in text
    assert "-two" in lines and "+four" in lines
    brief = tree.tool("vdiff", "--brief", "d", then, cwd=tree.path).stdout
    assert "changed  d/text" in brief and "@@" not in brief
    stat_text = tree.tool("vdiff", "--stat", "d", then, cwd=tree.path).stdout.splitlines()
    assert "d/text | +2 -1" in stat_text and "d/gone | +0 -2" in stat_text and "d/new name | +1 -0" in stat_text
    names = tree.tool("vdiff", "--name-only", "d", then, cwd=tree.path).stdout.splitlines()
    assert names == sorted(f"d/{path}" for path in EXPECTED)
    colored = tree.tool("vdiff", "--color=always", "d", then, cwd=tree.path).stdout
    assert "\033[31m-two\033[m" in colored


def test_the_output_is_a_patch(tree, maker):
    """Applied in reverse to the current text, it gives the former one."""
    then = epoch(tree.mark)
    patch, copy = maker.scratch / "patch", maker.scratch / "copy"
    text = tree.tool("vdiff", "d", then, cwd=tree.path, merge=False).stdout
    patch.write_text("".join(part for part in re.split("(?m)^(?=vdiff )", text) if "a/d/becomes" not in part))
    old, new = contents(tree.at(tree.mark, "d")), contents(tree.path / "d")
    for state in (old, new):
        state.pop("binary")
        state.pop("becomes/inside", None)
        state.pop("becomes", None)
    for directory, options, wanted in ((tree.path, ("-R",), old), (tree.at(tree.mark), (), new)):
        shutil.copytree(directory / "d", copy / "d", symlinks=True,
                        ignore=lambda _, names: {"binary", "pipe", "becomes"} & set(names))
        patched(patch, copy, *options)
        assert contents(copy / "d") == wanted
        shutil.rmtree(copy)


def test_random_texts_are_patched(mount, maker):
    rng = random.Random(7)
    path = mount.path / "it's a 'text'"
    patch, copy = maker.scratch / "patch", maker.scratch / "copy"
    marks, states = [], []
    for _ in range(12):
        lines = [rng.choice(["a", "b", "", "c d", "--- x", "+++ y", "@@ -1 +1 @@", "ü", "\tt\r"])
                 for _ in range(rng.randrange(30))]
        path.write_text("\n".join(lines) + rng.choice(["", "\n"]))
        marks.append(moment())
        states.append(path.read_bytes())
    for _ in range(25):
        first, second = rng.randrange(12), rng.randrange(12)
        mount.tool("sh", "-c", f'vdiff "$1" "$2" "$3" > {patch}', "sh", path.name, epoch(marks[first]),
                   epoch(marks[second]), cwd=mount.path)
        assert bool(patch.stat().st_size) == (states[first] != states[second])
        copy.mkdir()
        (copy / path.name).write_bytes(states[first])
        if patch.stat().st_size:
            patched(patch, copy, "--binary")
        after = (copy / path.name).read_bytes() if (copy / path.name).exists() else b""
        assert after == states[second]
        shutil.rmtree(copy)


def test_single_paths(tree):
    then = epoch(tree.mark)
    text = tree.tool("vdiff", "d/text", then, cwd=tree.path).stdout
    assert text.splitlines()[1].startswith("--- a/d/text\t2") and "changed" not in text
    assert "@" + then[:2] not in text.splitlines()[0] and "vdiff a/d/text@20" in text
    assert tree.tool("vdiff", tree.path / "d/text", then).stdout.splitlines()[1].startswith(
        f"--- a{tree.path}/d/text\t")
    gone = tree.tool("vdiff", "d/gone", then, cwd=tree.path).stdout
    assert "+++ /dev/null" in gone and "-for good" in gone
    assert "+++ /dev/null" in tree.tool("vdiff", "d/sub", then, cwd=tree.path).stdout
    assert "'text' -> 'same'" in tree.tool("vdiff", "d/link", then, cwd=tree.path).stdout
    assert "0644 -> 0600" in tree.tool("vdiff", "d/pipe", then, cwd=tree.path).stdout
    assert tree.tool("vdiff", "d/touched", then, cwd=tree.path).stdout == ""
    assert "-three" not in tree.tool("vdiff", "d/text", "~1", cwd=tree.path).stdout


def test_replaced_by_a_rename(mount):
    path = mount.path / "f"
    path.write_text("old\n")
    then = epoch(moment())
    path.with_name("f.tmp").write_text("new\n")
    os.rename(path.with_name("f.tmp"), path)
    text = mount.tool("vdiff", "f", then, cwd=mount.path).stdout
    assert "-old\n+new\n" in text
    assert changes(mount, ".", then) == {"f": ["content"]}


def test_names_of_all_kinds(mount, maker):
    names = ["new\nline", "tab\there", 'quo"te', "back\\slash", "-x", "ü"]
    for name in names:
        (mount.path / name).write_text("old\n")
    then = epoch(moment())
    for name in names:
        (mount.path / name).write_text("new\n")
    patch, copy = maker.scratch / "patch", maker.scratch / "copy"
    patch.write_text(mount.tool("vdiff", ".", then, cwd=mount.path, merge=False).stdout)
    assert set(changes(mount, ".", then)) == set(names)
    copy.mkdir()
    for name in names:
        (copy / name).write_text("new\n")
    run("patch", "-s", "-R", "-p1", "-d", copy, "-i", patch)
    assert contents(copy) == {name: b"old\n" for name in names}


def test_exit_codes(tree):
    then, now = epoch(tree.mark), epoch(moment())
    tree.tool("vdiff", "d", then, cwd=tree.path)
    tree.tool("vdiff", "-e", "d", then, cwd=tree.path, status=3)
    assert tree.tool("vdiff", "-q", "d", then, cwd=tree.path, status=3).stdout == ""
    tree.tool("vdiff", "-q", "d", now, cwd=tree.path)
    tree.tool("vdiff", "-q", "d/pipe", then, cwd=tree.path, status=3)
    tree.tool("vdiff", "-e", "--stat", "d", now, cwd=tree.path)


def test_errors(tree):
    then = epoch(tree.mark)
    for arguments, words in ((("d", "10d"), ("d", "history begins")), (("d/new name", then), ("since 20",)),
                             (("never", then), ("never",))):
        result = tree.tool("vdiff", *arguments, status=1, merge=False, cwd=tree.path)
        assert result.stdout == "" and len(result.stderr.splitlines()) == 1
        assert all(word in result.stderr for word in words), result.stderr
    for arguments in ((), ("d",), ("d", "blah"), ("d", then, then, then), ("d", then, "--color=x"),
                      ("d", then, "--stat", "--brief"), ("d", epoch(moment() + 10**13)), (f"d@{then}", "1s")):
        result = tree.tool("vdiff", *arguments, status=2, merge=False, cwd=tree.path)
        assert result.stderr.startswith("vdiff: ") and result.stdout == "", arguments


def test_unmounted_and_as_the_mounting_user(either_mount):
    mount = either_mount
    mount.tool("sh", "-c", f"cd {mount.path}; mkdir d; echo old > d/f")
    then = epoch(moment())
    mount.tool("sh", "-c", f"cd {mount.path}; echo new > d/f")
    text = mount.tool("vdiff", mount.path / "d", then).stdout
    assert "-old\n+new" in text
    mount.stop()
    assert "-old\n+new" in mount.tool("vdiff", mount.source / "d", then).stdout


def test_permissions(mount):
    top = mount.path / "d"
    top.mkdir()
    (top / "closed").write_text("secret\n")
    (top / "open").write_text("old\n")
    (top / "was closed").write_text("secret\n")
    (top / "closed dir").mkdir()
    (top / "closed dir" / "f").write_text("secret\n")
    (top / "was closed").chmod(0o600)
    then = epoch(moment())
    (top / "closed").write_text("hidden\n")
    (top / "closed").chmod(0o600)
    (top / "open").write_text("new\n")
    (top / "was closed").chmod(0o644)
    (top / "was closed").write_text("public\n")
    (top / "closed dir").chmod(0o700)
    result = mount.run_tool("vdiff", "d", then, user=SECOND, merge=False, cwd=mount.path)
    assert result.returncode == 1 and "+new" in result.stdout
    assert "secret" not in result.stdout and "hidden" not in result.stdout
    assert "d/closed dir/f" not in result.stdout
    for name in ("d/closed", "d/was closed", "d/closed dir"):
        assert f"vdiff: {name}: permission denied" in result.stderr.splitlines(), result.stderr


def test_random_trees(mount):
    """The differences of two moments are those of their listings."""
    rng = random.Random(11)
    top = mount.path / "t"
    top.mkdir()

    def state(directory):
        found = {}
        for path in directory.rglob("*"):
            info = path.lstat()
            found[str(path.relative_to(directory))] = (
                stat.S_IFMT(info.st_mode), info.st_mode, path.read_bytes() if stat.S_ISREG(info.st_mode) else b"")
        return found

    marks, states = [], []
    for _ in range(60):
        dirs = [top] + [p for p in top.rglob("*") if p.is_dir()]
        everything = list(top.rglob("*"))
        for _ in range(3):
            path = rng.choice(dirs) / rng.choice("abc")
            action = rng.random()
            if action < 0.3 and path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            elif action < 0.3 and path.exists():
                path.unlink()
            elif action < 0.5 and not path.exists() and path.parent.is_dir():
                path.mkdir()
            elif action < 0.8 and not path.is_dir() and path.parent.is_dir():
                path.write_bytes(rng.choice([b"", b"x\n", b"y\n", b"\0\1"]))
            elif path.exists():
                path.chmod(rng.choice([0o700, 0o755]))
        assert everything is not None
        marks.append(moment())
        states.append(state(top))
    for _ in range(20):
        first, second = rng.randrange(60), rng.randrange(60)
        old, new = states[first], states[second]
        wanted = set()
        for path in set(old) | set(new):
            if old.get(path) != new.get(path):
                wanted.add(path)
        found = set(changes(mount, "t", epoch(marks[first]), epoch(marks[second])))
        assert found == wanted, (first, second)
