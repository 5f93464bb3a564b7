# SPDX-License-Identifier: LGPL-2.1-or-later
"""vsnap: moments with names. Their guarantees, the permissions, and the places that take names."""
import json
import os
import re
import subprocess
import threading
import time

import pytest

from mounts import LIMIT, NOBODY, QUICK, SECOND, as_user, moment, nanoseconds, run
from treestate import differences, state_of


def vsnap(mount, *arguments, cwd=None, **options):
    """Runs vsnap inside the mount, which perhaps only the mounting user may enter."""
    return mount.tool("sh", "-c", 'cd "$0" && exec vsnap "$@"', cwd or mount.path, *arguments, merge=False,
                      **options)


def create(mount, *arguments, **options):
    """Makes one; (name, when in ns)."""
    name, when = vsnap(mount, "create", *arguments, **options).stdout.rstrip("\n").split("\t")
    seconds, decimals = when.split(".")
    assert len(decimals) == 9
    return name, int(seconds) * 10**9 + int(decimals)


def create_once_closed(mount, name, open_files):
    """Nothing but these is open for writing: releases of files that were closed arrive late."""
    deadline = time.monotonic() + LIMIT
    while True:
        create(mount, name)
        found = listed(mount, name, verb="show")[0]["open"]
        if found == open_files:
            return
        assert time.monotonic() < deadline, found
        vsnap(mount, "delete", name)


def listed(mount, *arguments, verb="list", **options):
    return json.loads(vsnap(mount, verb, "--json", *arguments, **options).stdout)["snapshots"]


def names(mount, *arguments, **options):
    return [s["name"] for s in listed(mount, *arguments, **options)]


def fails(mount, *arguments, status=1, words=(), **options):
    """It fails with one line that gives the reason (and one that points to the help for wrong usage)."""
    result = vsnap(mount, *arguments, status=status, **options)
    lines = result.stderr.splitlines()
    assert result.stdout == "", result.stdout
    assert len(lines) == (2 if status == 2 else 1), result.stderr
    assert lines[0].startswith("vsnap: ")
    for word in words:
        assert word in lines[0], (word, lines[0])


# -- the state of a snapshot ----------------------------------------------------------------------


def test_the_state_of_a_snapshot_is_that_of_its_moment(any_mount):
    mount = any_mount
    tree = mount.path / "tree"
    mount.tool("sh", "-c", f"mkdir -p {tree}/a/b; echo one > {tree}/a/f; ln {tree}/a/f {tree}/a/b/g;"
               f"ln -s a/f {tree}/l; chmod 600 {tree}/a/f; mkfifo {tree}/p")
    before = state_of(tree)
    began = time.time_ns()
    name, when = create(mount, "before-upgrade", "-m", "to 2.0")
    assert name == "before-upgrade" and began <= when <= time.time_ns()
    mount.tool("sh", "-c", f"echo two > {tree}/a/f; rm {tree}/l; mv {tree}/a {tree}/z; mkdir {tree}/a;"
               f"echo new > {tree}/a/f; rm {tree}/p")
    assert differences(before, state_of(mount.path / "tree@before-upgrade")) == []
    assert (mount.path / "@before-upgrade/tree/a/f").read_text() == "one\n"
    assert (tree / "a/f@before-upgrade").read_text() == "one\n"  # of the directory of then
    assert (tree / "z/f@before-upgrade").read_text() == "one\n"
    assert not (mount.path / "nothing@before-upgrade").exists()
    mount.remount()
    assert differences(before, state_of(mount.path / "tree@before-upgrade")) == []
    found, = listed(mount)
    assert (found["name"], nanoseconds(found), found["text"]) == ("before-upgrade", when, "to 2.0")
    mount.check_store()


def test_tools_take_names_for_times(either_mount):
    mount = either_mount
    path = mount.path / "f"
    mount.tool("sh", "-c", f"echo old > {path}")
    create(mount, "old-one")
    mount.tool("sh", "-c", f"echo new > {path}; echo newer >> {path}")
    assert mount.tool("vextract", "--time", "old-one", "-o", "-", path).stdout == "old\n"
    assert mount.tool("vextract", "-o", "-", f"{path}@old-one").stdout == "old\n"
    since = json.loads(mount.tool("vstat", "--json", "--since", "old-one", path).stdout)["versions"]
    until = json.loads(mount.tool("vstat", "--json", "--until", "old-one", path).stdout)["versions"]
    everything = json.loads(mount.tool("vstat", "--json", path).stdout)["versions"]
    assert [v["op"] for v in since] == ["write", "write"] and [v["op"] for v in until] == ["create"]
    assert len(since) + len(until) == len(everything)
    mount.tool("vrevert", "--time", "old-one", path)
    assert mount.tool("cat", path).stdout == "old\n"
    # Neither a time nor a name: both are reported, and similar names.
    for tool, option in (("vrevert", "--time"), ("vextract", "--time"), ("vstat", "--since")):
        result = mount.tool(tool, option, "old-on", path, status=2, merge=False)
        assert "old-on' is neither a time nor a snapshot" in result.stderr
        assert "did you mean old-one?" in result.stderr
        result = mount.tool(tool, option, "-x", path, status=2, merge=False)
        assert "neither a time" in result.stderr


@pytest.mark.parametrize("name", ["old-one", "monday"])
def test_a_name_is_a_time_to_forget_before(maker, name):
    """vcompact, vrm and vprune take it as well; if there is no such name, nothing is forgotten."""
    mount = maker.mount("allow_other")
    path, other, seen = mount.path / "f", mount.path / "g", []
    for text in ("first\n", "second\n", "third\n"):
        path.write_text(text)
        other.write_text(text)
        if text == "second\n":
            create(mount, name)
        seen.append(moment())
    for tool, options in (("vcompact", []), ("vrm", ["-y"]), ("vrm", ["-y", "--pattern", "*"]), ("vprune", ["-y"])):
        target = path if options == ["-y"] and tool == "vrm" else mount.path
        result = mount.tool(tool, *options, "--before", "old-on", target, status=2, merge=False)
        assert "old-on' is neither a time nor a snapshot" in result.stderr
        assert mount.at(seen[0], "f").read_text() == "first\n"
    assert mount.tool("vcompact", "--before", name, mount.path).stdout
    assert mount.at(seen[0], "f").read_text() == "first\n"
    mount.expect("was erased|was forgotten")
    mount.tool("vrm", "-y", "--before", name, path, other)
    for file in ("f", "g"):
        with pytest.raises(OSError):
            mount.at(seen[0], file).read_text()
        assert mount.at(seen[1], file).read_text() == "second\n"
    mount.tool("vprune", "-y", "--before", f"@{name}", mount.path)
    assert mount.at(seen[1], "f").read_text() == "second\n"


@pytest.mark.parametrize("name", ["monday", "10 min", "12am", "Nov 20", "1.5h"])
def test_a_name_has_priority_over_a_time_in_words(maker, name):
    """A tool would take it for a time if there was no such snapshot."""
    mount = maker.mount("allow_other")
    path = mount.path / "f"
    path.write_text("old\n")
    assert "before the history" in mount.tool("vextract", "--time", name, "-o", "-", path, status=1).stdout
    mount.tool("vsnap", "create", name, mount.path)
    moment()
    path.write_text("new\n")
    assert mount.tool("vextract", "--time", name, "-o", "-", path).stdout == "old\n"
    assert maker.mount(f"at={name}", source=mount.source).path.joinpath("f").read_text() == "old\n"
    (mount.path / "g").write_text("newer\n")
    mount.tool("vrevert", "--time", name, path, mount.path / "g")
    assert path.read_text() == "old\n" and not (mount.path / "g").exists()


def test_names_in_links_and_ordinary_names(mount):
    (mount.path / "bin").mkdir()
    (mount.path / "bin/tool").write_text("old")
    os.symlink("bin@before-upgrade", mount.path / "bin.old")
    assert not (mount.path / "bin.old/tool").exists()
    create(mount, "before-upgrade")
    (mount.path / "bin/tool").write_text("new")
    assert (mount.path / "bin.old/tool").read_text() == "old"
    assert os.listdir(mount.path / "bin.old") == ["tool"]
    # A real name wins; one that means nothing is free; one that means the past is not.
    (mount.path / "f@foo").write_text("mine")
    create(mount, "foo")
    assert (mount.path / "f@foo").read_text() == "mine"
    (mount.path / "g@foo").write_text("mine, too")
    with pytest.raises(OSError) as error:
        (mount.path / "bin@foo").write_text("no")
    assert error.value.errno in (30, 21)
    vsnap(mount, "delete", "before-upgrade")
    assert not (mount.path / "bin.old/tool").exists()
    create(mount, "before-upgrade")
    assert (mount.path / "bin.old/tool").read_text() == "new"


def test_a_snapshot_of_a_path_is_of_that_alone(mount):
    for directory in ("a/b", "c"):
        (mount.path / directory).mkdir(parents=True)
    for path in ("f", "a/f", "a/b/f", "c/f"):
        (mount.path / path).write_text(path)
    create(mount, "of-a", "./a")
    assert not (mount.path / "f@of-a").exists()
    assert not (mount.path / "c/f@of-a").exists()
    assert not (mount.path / "@of-a").exists()
    assert (mount.path / "a@of-a/b/f").read_text() == "a/b/f"
    assert (mount.path / "a/f@of-a").read_text() == "a/f"
    assert (mount.path / "a/@of-a/f").read_text() == "a/f"
    os.rename(mount.path / "a/b", mount.path / "c/b")
    (mount.path / "c/b/f").write_text("changed")
    assert (mount.path / "c/b/f@of-a").read_text() == "a/b/f"
    (mount.path / "a/f").write_text("changed")
    mount.tool("vrevert", "--time", "of-a", mount.path / "a")
    assert (mount.path / "a/f").read_text() == "a/f" and (mount.path / "a/b/f").read_text() == "a/b/f"
    result = mount.tool("vrevert", "--time", "of-a", mount.path / "f", status=2, merge=False)
    assert "covers a only" in result.stderr
    assert names(mount, mount.path / "a") == ["of-a"]
    assert names(mount, mount.path / "a/f") == ["of-a"]
    assert names(mount, mount.path) == ["of-a"]
    assert names(mount, mount.path / "c") == []


def test_the_moment_lies_between_changes(mount):
    """Writers append a line to one file, then the same line to another: at no snapshot the second file is ahead of the
    first. (Lines do not cross pages: the kernel passes those on in parts.)"""
    stop = threading.Event()

    def write(number):
        with open(mount.path / f"{number}.a", "ab", buffering=0) as first, \
                open(mount.path / f"{number}.b", "ab", buffering=0) as second:
            line = 0
            while not stop.is_set():
                text = b"%015d\n" % line
                first.write(text)
                second.write(text)
                line += 1

    threads = [threading.Thread(target=write, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    made = []
    for i in range(12):
        made.append(create(mount, f"s{i}")[0])
    stop.set()
    for thread in threads:
        thread.join()
    grown = 0
    for name in made:
        for number in range(4):
            first = mount.path / f"{number}.a@{name}"
            second = mount.path / f"{number}.b@{name}"
            if not first.exists():
                assert not second.exists()
                continue
            lines, others = first.read_bytes(), second.read_bytes() if second.exists() else b""
            assert len(lines) % 16 == 0 and len(others) % 16 == 0
            assert lines.startswith(others) and len(lines) - len(others) <= 16
            grown = max(grown, len(lines))
    assert grown > 16


def test_files_open_for_writing_are_noted(mount):
    (mount.path / "sub").mkdir()
    (mount.path / "read").write_text("x")
    with open(mount.path / "sub/log", "a", encoding="utf-8"), open(mount.path / "sub/log", "a", encoding="utf-8"), \
            open(mount.path / "data", "w", encoding="utf-8"), open(mount.path / "read", encoding="utf-8"), \
            open(mount.path / "gone", "w", encoding="utf-8"):
        os.rename(mount.path / "data", mount.path / "moved")
        os.unlink(mount.path / "gone")
        create_once_closed(mount, "all", ["moved", "sub/log"])
        create(mount, "of-sub", "./sub")
    open_files = {s["name"]: s["open"] for s in listed(mount, "-v")}
    assert open_files == {"all": ["moved", "sub/log"], "of-sub": ["sub/log"]}
    text = vsnap(mount, "list", "-v").stdout
    assert re.search(r"open +moved\n +sub/log\n", text)
    vsnap(mount, "rename", "all", "renamed")
    assert listed(mount, "renamed", verb="show")[0]["open"] == ["moved", "sub/log"]


def test_it_costs_the_same_for_a_large_tree(mount):
    def size():
        return sum(p.stat().st_size for p in mount.store().rglob("*") if p.is_file())

    def cost(name):
        before = size()
        create(mount, name)
        return size() - before

    # Background writes count as well, but not each time.
    create(mount, "aaaa")
    small = min(cost(f"b{number:03}") for number in range(3))
    for directory in range(20):
        (mount.path / f"d{directory}").mkdir()
        for number in range(100):
            (mount.path / f"d{directory}/{number}").write_text("x")
    assert any(cost(f"c{number:03}") <= small + 16 for number in range(20)) and small < 1024


# -- names ---------------------------------------------------------------------------------------


def test_generated_names_are_not_times(mount):
    made = [create(mount)[0] for _ in range(4)]
    assert len(set(made)) == 4 and names(mount) == made
    (mount.path / "f").write_text("x")
    for name in made:
        assert re.fullmatch(r"snap-\d{4}-\d\d-\d\d_\d{4}(\d\d)?(-\d+)?", name)
        assert not (mount.path / f"f@{name}").exists()
    name, when = create(mount)
    (mount.path / "f").write_text("y")
    assert (mount.path / f"f@{name}").read_text() == "x"
    assert (mount.path / f"f@{when // 10**9}.{when % 10**9:09d}").read_text() == "x"


@pytest.mark.parametrize("name, word", [
    ("14:03", "time"), ("yesterday", "time"), ("2026-11-20", "time"), ("1763696000", "time"), ("5m", "time"),
    ("5 minutes ago", "time"), ("a@b", "'@'"), ("", "empty"), (".x", "hidden"), ("~2", "count"), (" a", "blank"),
    ("a\nb", "control"), ("x" * 255, "254"), ("\udcff", "UTF-8")])
def test_forbidden_names(mount, name, word):
    create(mount, "good")
    if name:
        fails(mount, "create", name, ".", status=2, words=[word])
    fails(mount, "rename", "good", name, status=2, words=[word] if name else [])
    assert names(mount) == ["good"]


def test_names_with_a_slash_are_paths(mount):
    fails(mount, "create", "a/b", words=["no such directory"])
    fails(mount, "create", "a/b", ".", status=2, words=["'/'"])


def test_the_longest_names_and_texts(mount):
    name, text = "ü" * 127, "t" * 1024
    create(mount, name, "-m", text)
    found, = listed(mount)
    assert (found["name"], found["text"]) == (name, text)
    assert (mount.path / f"@{name}").is_dir()
    fails(mount, "create", "other", "-m", text + "t", status=2, words=["1024"])
    create(mount, "lines", "-m", "one\ntwo\x1b[31m")
    output = vsnap(mount, "list").stdout
    assert "one\\ntwo\\x1b[31m" in output


def test_renaming_and_deleting(mount):
    (mount.path / "f").write_text("old")
    _, when = create(mount, "one")
    create(mount, "two")
    (mount.path / "f").write_text("new")
    fails(mount, "rename", "one", "two", words=["two", "of that name"])
    fails(mount, "rename", "none", "three", words=["none", "no such snapshot"])
    fails(mount, "create", "two", words=["of that name"])
    vsnap(mount, "rename", "one", "three")
    assert names(mount) == ["three", "two"]
    assert (mount.path / "f@three").read_text() == "old" and not (mount.path / "f@one").exists()
    assert nanoseconds(listed(mount)[0]) == when
    output = vsnap(mount, "delete", "-n", "three", "two").stdout
    assert output.count("would be deleted") == 2 and names(mount) == ["three", "two"]
    result = vsnap(mount, "delete", "three", "thre", "two", status=1)
    assert "thre: no such snapshot" in result.stderr
    assert names(mount) == []
    assert (mount.path / f"f@{when // 10**9}.{when % 10**9:09d}").read_text() == "old"
    assert vsnap(mount, "list").stdout.startswith("no snapshots")
    mount.remount()
    assert names(mount) == []
    create(mount, "three")
    assert (mount.path / "f@three").read_text() == "new"


def test_a_file_that_is_open_in_a_deleted_snapshot_is_still_readable(mount):
    (mount.path / "f").write_text("old")
    create(mount, "one")
    (mount.path / "f").write_text("new")
    with open(mount.path / "f@one", encoding="utf-8") as stream:
        vsnap(mount, "delete", "one")
        (mount.path / "f").write_text("newer")
        assert stream.read() == "old"
    assert not (mount.path / "f@one").exists()


def test_many(mount):
    made = [f"s{i:03d}" for i in range(60 if QUICK else 300)]
    for name in made:
        create(mount, name, "-m", "a text that takes some room in a page " * (15 if QUICK else 3))
    assert names(mount) == made
    assert len(vsnap(mount, "list").stdout.splitlines()) == len(made) + 1


# -- wrong usage ---------------------------------------------------------------------------------


def test_bad_input(mount, maker):
    (mount.path / "f").write_text("x")
    when = moment()
    fails(mount, "create", "x", "./f", words=["directory"])
    fails(mount, "create", "x", "./none", words=["no such directory"])
    fails(mount, "create", "x", f"./@{when // 10**9}.{when % 10**9:09d}", words=["past"])
    fails(mount, "create", "x", ".", "y", status=2, words=["y"])
    fails(mount, "create", "--bogus", status=2)
    fails(mount, "list", "a", "b", status=2)
    fails(mount, "show", status=2)
    fails(mount, "delete", status=2)
    fails(mount, "rename", "a", status=2)
    fails(mount, "bogus", status=2, words=["bogus"])
    fails(mount, status=2)
    fails(mount, "show", "x", words=["no such snapshot"])
    fails(mount, "list", "/proc", words=["/proc"])
    fails(mount, "create", "x", cwd=maker.scratch)
    for verb in ("create", "list", "show", "rename", "delete"):
        assert "Examples" in vsnap(mount, verb, "--help").stdout
    assert names(mount) == []


def test_mounts_that_cannot(maker):
    mount = maker.mount("allow_other")
    (mount.path / "f").write_text("x")
    create(mount, "one")
    mount.remount("ro")
    assert names(mount) == ["one"]
    assert (mount.path / "f@one").read_text() == "x"
    for arguments in (("create", "two"), ("rename", "one", "two"), ("delete", "one")):
        fails(mount, *arguments, words=["read-only"])
    mount.remount("history=none")
    fails(mount, "create", "two", words=["history"])
    fails(mount, "list", words=["history"])


def test_without_a_mount(mount):
    (mount.path / "f").write_text("old")
    create(mount, "one")
    (mount.path / "f").write_text("new")
    mount.stop()
    assert names(mount, mount.source, cwd="/") == ["one"]
    create(mount, "two", mount.source, cwd="/")
    mount.tool("vsnap", "rename", "-C", mount.source, "two", "three", cwd="/")
    assert names(mount, mount.source, cwd="/") == ["one", "three"]
    assert mount.tool("vextract", "--time", "one", "-o", "-", mount.source / "f").stdout == "old"
    mount.tool("vrevert", "--time", "one", mount.source / "f")
    assert (mount.source / "f").read_text() == "old"
    mount.tool("vsnap", "delete", "-C", mount.source, "one", cwd="/")
    assert names(mount, mount.source, cwd="/") == ["three"]


def test_names_and_the_place_of_their_directories(mount):
    (mount.path / "d").mkdir()
    for name in ("one", "two", "three"):
        create(mount, name)
    shown = json.loads(mount.tool("vsnap", "show", "--json", "one", "two", mount.path / "d", cwd="/").stdout)
    assert [snapshot["name"] for snapshot in shown["snapshots"]] == ["one", "two"]
    mount.tool("vsnap", "rename", "one", "first", mount.path, cwd="/")
    mount.tool("vsnap", "delete", "two", "three", ".", cwd=mount.path / "d")
    assert names(mount, mount.path) == ["first"]
    fails(mount, "delete", mount.path, words=["no such snapshot"])
    fails(mount, "show", "first", "/", words=["not in a Wayback mount"])


# -- permissions -----------------------------------------------------------------------------------


def test_two_users(mount):
    for name, user in (("theirs", NOBODY), ("others", SECOND)):
        (mount.path / name).mkdir()
        os.chown(mount.path / name, *user)
    os.chmod(mount.path / "theirs", 0o700)
    (mount.path / "theirs/inner").mkdir()
    os.chown(mount.path / "theirs/inner", *NOBODY)
    create(mount, "roots")
    create(mount, "by-root", "./theirs")
    create(mount, "mine", "./theirs/inner", "-m", "secret", user=NOBODY)
    create(mount, "open", "./others", user=SECOND)
    # Only one's own directories.
    for path in (".", "./others"):
        fails(mount, "create", "x", path, user=NOBODY, words=["not permitted"])
    # A snapshot of a directory that nobody else can list or reach is hidden from others.
    assert names(mount) == ["roots", "by-root", "mine", "open"]
    assert names(mount, user=NOBODY) == ["roots", "by-root", "mine", "open"]
    assert names(mount, user=SECOND) == ["roots", "open"]
    fails(mount, "show", "mine", user=SECOND, words=["no such"])
    for name, word in (("mine", "no such"), ("roots", "not permitted"), ("by-root", "no such")):
        fails(mount, "delete", name, user=SECOND, words=[word])
    # Not those that root made of it, though it is one's own directory.
    fails(mount, "delete", "by-root", user=NOBODY, words=["not permitted"])
    fails(mount, "rename", "roots", "x", user=NOBODY, words=["not permitted"])
    fails(mount, "delete", "open", user=NOBODY, words=["not permitted"])
    deletable = {s["name"]: s["deletable"] for s in listed(mount, user=NOBODY)}
    assert deletable == {"roots": False, "by-root": False, "mine": True, "open": False}
    vsnap(mount, "rename", "mine", "still-mine", user=NOBODY)
    vsnap(mount, "delete", "still-mine", user=NOBODY)
    vsnap(mount, "delete", "open")
    assert names(mount) == ["roots", "by-root"]


def test_a_name_grants_no_access(mount):
    (mount.path / "private").mkdir(mode=0o700)
    (mount.path / "private/f").write_text("secret")
    (mount.path / "public").mkdir()
    (mount.path / "public/f").write_text("known")
    with open(mount.path / "private/log", "w", encoding="utf-8"), \
            open(mount.path / "public/log", "w", encoding="utf-8"):
        create_once_closed(mount, "s", ["private/log", "public/log"])
    found, = listed(mount, "s", verb="show", user=SECOND)
    assert (found["open"], found["open_unnamed"]) == (["public/log"], 1)
    os.chmod(mount.path / "private", 0o755)
    # It was closed then; it would be open now.
    found, = listed(mount, "s", verb="show", user=SECOND)
    assert (found["open"], found["open_unnamed"]) == (["public/log"], 1)

    def read():
        with open(mount.path / "private@s/f", encoding="utf-8") as stream:
            return stream.read()

    with pytest.raises(PermissionError):
        as_user(read, *SECOND)
    assert as_user(lambda: (mount.path / "public@s/f").read_text(), *SECOND) == "known"
    os.chmod(mount.path / "public", 0o700)
    with pytest.raises(PermissionError):
        as_user(lambda: (mount.path / "public@s/f").read_text(), *SECOND)
    found, = listed(mount, "s", verb="show", user=SECOND)
    assert (found["open"], found["open_unnamed"]) == ([], 2)


def test_the_mounting_user_has_all_permissions(user_mount):
    mount = user_mount
    mount.tool("sh", "-c", f"mkdir {mount.path}/d; echo x > {mount.path}/d/f")
    create(mount, "whole", ".", cwd=mount.source)
    create(mount, "part", mount.path / "d", cwd=mount.source)
    assert names(mount, mount.path, cwd="/") == ["whole", "part"]
    mount.tool("vsnap", "delete", "-C", mount.path, "whole", cwd="/")
    assert names(mount, mount.path, cwd="/") == ["part"]


# -- faults ----------------------------------------------------------------------------------------


def test_killed_right_after(mount):
    path = mount.path / "f"
    path.write_text("old")
    with open(path, "r+", encoding="utf-8") as stream:
        create(mount, "one")
        stream.write("new")
        stream.flush()
        mount.kill()
    mount.start()
    assert names(mount) == ["one"]
    assert (mount.path / "f@one").read_text() == "old"
    create(mount, "two")
    assert names(mount) == ["one", "two"]
    mount.check_store()


def test_creating_from_all_sides(mount):
    """Many at once, of the same name: one wins."""
    environment = mount.programs.environment()
    tries = [subprocess.Popen(["vsnap", "create", "same"], cwd=mount.path, env=environment, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(8)]
    made = [subprocess.Popen(["vsnap", "create"], cwd=mount.path, env=environment, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(8)]
    results = [p.communicate() + (p.returncode,) for p in tries]
    others = [p.communicate() + (p.returncode,) for p in made]
    assert sorted(r[2] for r in results) == [0] + [1] * 7
    assert [r[2] for r in others] == [0] * 8
    assert len(names(mount)) == 9
    whens = [nanoseconds(s) for s in listed(mount)]
    assert whens == sorted(set(whens))


def test_a_damaged_record_costs_that_name(mount):
    (mount.path / "f").write_text("x")
    create(mount, "one")
    position = (mount.store() / "snapshots").stat().st_size
    create(mount, "two")
    create(mount, "three")
    with open(mount.store() / "snapshots", "r+b") as stream:
        stream.seek(position + 60)
        stream.write(b"\xff")
    assert names(mount) == ["one", "three"]
    assert (mount.path / "f@three").read_text() == "x" and not (mount.path / "f@two").exists()
    mount.remount()
    create(mount, "two")
    assert names(mount) == ["one", "three", "two"]


def test_no_space_for_a_name(maker, file_systems):
    """The store is full: none is made, and the existing ones are kept."""
    root = file_systems.make("ext4", "small-for-snapshots", 16)
    try:
        store = root / "store"
        store.mkdir()
        store.chmod(0o700)
        mount = maker.mount("allow_other", f"store={store}")
        create(mount, "one")
        run("sh", "-c", f"head -c 64M /dev/zero > {root}/filler", check=False)
        made = 0
        for number in range(2000):
            result = mount.run_tool("vsnap", "create", f"s{number}", "-m", "t" * 1024, cwd=mount.path)
            if result.returncode != 0:
                assert "no room" in result.stdout or "o space" in result.stdout, result.stdout
                break
            made += 1
        assert result.returncode == 1
        assert len(names(mount)) == 1 + made
        (root / "filler").unlink()
        create(mount, "last")
        assert names(mount)[-1] == "last"
        mount.expect("could not be synced")
        mount.stop()
    finally:
        file_systems.unmake(root)
