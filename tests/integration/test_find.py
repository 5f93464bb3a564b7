# SPDX-License-Identifier: LGPL-2.1-or-later
"""vfind: every name that ever existed, and how to restore it."""
import json
import os
import random
import shlex
import shutil
import time

import pytest

from mounts import NOBODY, SECOND, epoch, moment, nanoseconds, run
from stepping import run_to_call


def found(mount, *arguments, path=None, status=0, **options):
    """path below the mount -> its row."""
    result = mount.tool("vfind", "--json", *arguments, *([path] if path else []), merge=False, status=status,
                        cwd=options.pop("cwd", mount.path), **options)
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    if "--all" not in arguments:
        assert len({row["path"] for row in rows}) == len(rows)
    return {row["path"]: row for row in rows}


def paths(*arguments, **options):
    return sorted(found(*arguments, **options))


@pytest.fixture(name="tree")
def fixture_tree(maker):
    """Files that existed before, and files that were made, deleted, moved and restored."""
    source = maker.tree()
    (source / "before").write_bytes(b"old")
    mount = maker.mount("allow_other", source=source)
    top = mount.path
    (top / "src" / "lib").mkdir(parents=True)
    (top / "src" / "main.c").write_bytes(b"main")
    (top / "src" / "lib" / "util.c").write_bytes(b"util")
    os.symlink("main.c", top / "src" / "link")
    mount.marks = [moment()]
    mount.tool("rm", "-r", top / "src")
    mount.marks.append(moment())
    (top / "src").mkdir()
    (top / "src" / "main.c").write_bytes(b"again")
    (top / "src" / "draft.c").write_bytes(b"draft")
    os.rename(top / "src" / "draft.c", top / "src" / "final.c")
    (top / "other").mkdir()
    os.rename(top / "src" / "final.c", top / "other" / "moved.c")
    return mount


def test_everything_that_ever_was(tree):
    rows = found(tree)
    assert {p: r["status"] for p, r in rows.items()} == {
        "before": "present", "src": "present", "src/main.c": "present", "src/lib": "deleted",
        "src/lib/util.c": "deleted", "src/link": "deleted", "src/draft.c": "moved", "src/final.c": "moved",
        "other": "present", "other/moved.c": "present"}
    assert rows["before"]["before_history"] and rows["before"]["first"] is None
    assert (rows["src"]["spans"], rows["src/main.c"]["spans"]) == (2, 2)
    assert rows["src/draft.c"]["to"] == "src/final.c"
    assert rows["src/final.c"]["to"] == str(tree.path / "other/moved.c")
    assert (rows["src/link"]["type"], rows["src/lib"]["type"], rows["before"]["type"]) == ("link", "directory", "file")
    assert rows["src/main.c"]["size"] == 5 and rows["src/lib/util.c"]["size"] == 4
    for row in rows.values():
        assert ("restore" in row) == (row["status"] == "deleted"), row
        assert (row["last"] is not None) == (row["status"] != "present"), row
    gone = rows["src/lib/util.c"]
    assert nanoseconds(gone["first"]) < tree.marks[0] < nanoseconds(gone["last"]) < tree.marks[1]
    assert gone["command"].startswith("rm -r")


def test_the_printed_command_restores_it(tree):
    rows = found(tree, "--deleted")
    assert set(rows) == {"src/lib", "src/lib/util.c", "src/link"}
    tree.tool(*shlex.split(rows["src/lib"]["restore"]), cwd=tree.path)
    # The directory is restored with its content, although that had been removed before it.
    assert (tree.path / "src/lib/util.c").read_bytes() == b"util"
    tree.tool(*shlex.split(rows["src/link"]["restore"]), cwd=tree.path)
    assert os.readlink(tree.path / "src/link") == "main.c"
    assert not found(tree, "--deleted")
    assert (tree.path / "src/main.c").read_bytes() == b"again"


def test_the_command_of_a_file_whose_directory_is_gone(mount):
    top = mount.path
    (top / "a b" / "it's").mkdir(parents=True)
    (top / "a b" / "it's" / "-f 'x'").write_bytes(b"text")
    mount.tool("rm", "-r", top / "a b")
    rows = found(mount, "*x*")
    mount.tool(*shlex.split(rows["a b/it's/-f 'x'"]["restore"]), cwd=top)
    assert (top / "a b/it's/-f 'x'").read_bytes() == b"text"


def test_all_lists_earlier_times(tree):
    result = tree.tool("vfind", "--all", "main.c", merge=False, cwd=tree.path)
    lines = [line for line in result.stdout.splitlines() if "main.c" in line]
    assert [line[0] for line in lines] == [" ", "d", " "] and "vextract" in lines[2]
    tree.tool(*shlex.split(lines[2]), "-o", tree.source.parent / "copy", cwd=tree.path)
    assert (tree.source.parent / "copy").read_bytes() == b"main"
    (tree.source.parent / "copy").unlink()


def test_patterns(tree):
    assert paths(tree, "main.c") == ["src/main.c"]
    assert paths(tree, "*.c") == ["other/moved.c", "src/draft.c", "src/final.c", "src/lib/util.c", "src/main.c"]
    assert paths(tree, "*.C") == [] and len(paths(tree, "-i", "*.C")) == 5
    assert paths(tree, "src/*.c") == ["src/draft.c", "src/final.c", "src/main.c"]
    assert paths(tree, "--regex", "^(main|ut)") == ["src/lib/util.c", "src/main.c"]
    assert paths(tree, "--regex", "lib/.*c$") == ["src/lib/util.c"]
    assert paths(tree, "*", path="src") == ["src/draft.c", "src/final.c", "src/lib", "src/lib/util.c", "src/link",
                                            "src/main.c"]
    assert paths(tree, "src/") == paths(tree, "*", path="src")
    assert paths(tree, "lib/*", path="src") == ["src/lib/util.c"]
    assert paths(tree, "-d", "1") == ["before", "other", "src"]
    assert paths(tree, "--type", "d") == ["other", "src", "src/lib"]
    assert paths(tree, "--type", "l,d", "--deleted") == ["src/lib", "src/link"]
    assert "vfind src/" in tree.tool("vfind", "other*c", cwd=tree.path).stdout + \
        tree.tool("vfind", "src", "--moved", cwd=tree.path).stdout


def test_names_that_existed_at_a_time(tree):
    first, second = map(epoch, tree.marks)
    assert paths(tree, "--since", first, "--until", first) == ["before", "src", "src/lib", "src/lib/util.c",
                                                               "src/link", "src/main.c"]
    assert paths(tree, "--since", second, "--until", second) == ["before"]
    assert "src/lib" not in paths(tree, "--since", second) and "src/final.c" in paths(tree, "--since", second)
    result = tree.tool("vfind", "./", "--until", epoch(tree.marks[0] - 10**13), status=1, cwd=tree.path)
    assert "is before the history begins" in result.stdout


def test_paths_that_are_gone_or_of_the_past(tree):
    tree.tool("rm", "-r", tree.path / "src", tree.path / "other")
    assert paths(tree, "*", path="src/lib") == ["src/lib/util.c"]
    assert paths(tree, "m*", path="src") == ["src/main.c"]
    then = found(tree, "*", path=f"src@{epoch(tree.marks[0])}")
    assert {p: r["status"] for p, r in then.items()} == {
        p: "present" for p in ("src/lib", "src/lib/util.c", "src/link", "src/main.c")}
    result = tree.tool("vfind", "*", "never", status=1, merge=False, cwd=tree.path)
    assert "never" in result.stderr and result.stdout == ""
    result = tree.tool("vfind", "*", "before", status=1, merge=False, cwd=tree.path)
    assert "before" in result.stderr


def test_below_a_name_that_reads_as_a_time(mount):
    """A real name wins over the past: the command restores the file where it was."""
    for name in ("d@2pm", "d@10m"):
        inside = mount.path / name / "x"
        inside.parent.mkdir()
        inside.write_bytes(name.encode())
        inside.unlink()
        [row] = found(mount, "x", path=name).values()
        assert row["path"] == f"{name}/x"
        text = mount.tool("vfind", "x", name, cwd=mount.path).stdout
        command, *arguments = shlex.split(text.splitlines()[-1])
        mount.tool(command, *arguments, cwd=mount.path)
        assert inside.read_bytes() == name.encode()


def test_null_and_names_of_all_kinds(mount):
    names = [b"plain", b"new\nline", b"\xff\xfe", "ümlaut".encode(), b"-0", b"a@5m", b"x" * 255]
    for name in names:
        path = os.path.join(os.fsencode(mount.path), name)
        with open(path, "wb"):
            pass
        os.unlink(path)
    result = mount.tool("vfind", "-0", "*", "./", cwd=mount.path, encoding="latin-1")
    assert sorted(result.stdout.encode("latin-1").split(b"\0")[:-1]) == sorted(names)
    text = mount.tool("vfind", cwd=mount.path).stdout
    assert "new\\nline" in text and "\\xff" in text


def test_unmounted_and_as_the_mounting_user(either_mount):
    mount = either_mount
    mount.tool("sh", "-c", f"cd {mount.path}; mkdir d; echo x > d/f; rm -r d; echo y > here")
    before = {os.path.relpath(p, mount.path): r for p, r in found(mount, "*", str(mount.path), cwd="/").items()}
    assert {p: r["status"] for p, r in before.items()} == {"d": "deleted", "d/f": "deleted", "here": "present"}
    mount.stop()
    after = found(mount, "*", str(mount.source), cwd="/")
    assert {os.path.relpath(p, mount.source): r["status"] for p, r in after.items()} == \
        {p: r["status"] for p, r in before.items()}


def test_hidden_names_are_not_listed(mount):
    top = mount.path
    (top / "open").mkdir()
    (top / "open" / "shown").write_bytes(b"")
    (top / "open" / "shown").unlink()
    (top / "open").chmod(0o700)
    (top / "open" / "secret").write_bytes(b"")
    (top / "open" / "stays").write_bytes(b"")
    (top / "open" / "secret").unlink()
    (top / "open").chmod(0o755)
    (top / "closed").mkdir(mode=0o700)
    (top / "closed" / "inner").mkdir()
    (top / "closed" / "f").write_bytes(b"")
    os.rename(top / "open" / "stays", top / "closed" / "kept")
    (top / "was").mkdir(mode=0o700)
    (top / "was" / "hidden").write_bytes(b"")
    shutil.rmtree(top / "was")
    (top / "list").mkdir()
    (top / "list").chmod(0o744)
    everything = found(mount)
    assert {"open/secret", "open/shown", "open/stays", "closed/f", "was/hidden"} <= set(everything)
    result = mount.run_tool("vfind", "--json", user=SECOND, merge=False, cwd=top)
    rows = {row["path"]: row for row in map(json.loads, result.stdout.splitlines()) if "error" not in row}
    assert set(rows) == {"open", "open/shown", "open/stays", "closed", "was", "list"}
    assert result.returncode == 1
    assert sorted(line.split(":")[1].strip() for line in result.stderr.splitlines()) == ["./closed", "./list", "./was"]
    # It was there while the directory was open again, but its later place is hidden from them.
    assert rows["open/stays"]["status"] == "moved" and "to" not in rows["open/stays"]
    assert everything["open/stays"]["to"] == str(top / "closed/kept")
    for path in ("closed", "closed/inner", "was"):
        result = mount.run_tool("vfind", "*", path, user=SECOND, merge=False, cwd=top)
        assert (result.returncode, result.stdout) == (1, ""), path


def test_random_trees_agree_with_the_states_seen(mount):
    """Names are made, removed and moved at random; the list has all names that were seen."""
    rng = random.Random(5)
    top = mount.path
    seen = set()
    for _ in range(250):
        dirs = [top] + [p for p in top.rglob("*") if p.is_dir()]
        everything = [p for p in top.rglob("*")]
        action = rng.random()
        if action < 0.5 or not everything:
            path = rng.choice(dirs) / rng.choice("abcd")
            if not path.exists():
                if rng.random() < 0.4:
                    path.mkdir()
                else:
                    path.write_bytes(b"x" * rng.randrange(9))
        elif action < 0.8:
            path = rng.choice(everything)
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
        else:
            path, to = rng.choice(everything), rng.choice(dirs) / rng.choice("abcd")
            if not to.exists() and path not in to.parents:
                # Entries of a directory that moved are listed under its new name.
                below = f"{path.relative_to(top)}/"
                seen = {p for p in seen if not p.startswith(below)}
                path.rename(to)
        seen |= {str(p.relative_to(top)) for p in top.rglob("*")}
    rows = found(mount)
    present = {str(p.relative_to(top)) for p in top.rglob("*")}
    assert {p for p, row in rows.items() if row["status"] == "present"} == present
    assert seen - set(rows) == set() and len(seen) > len(present)


def test_output_for_people(tree):
    text = tree.tool("vfind", cwd=tree.path).stdout
    lines = text.splitlines()
    assert lines[0].split() == ["FROM", "TO", "SIZE", "NAME"]
    assert any(line.startswith("D  ") and line.endswith("src/link") for line in lines)
    assert any(line.startswith("M  ") and "src/draft.c -> final.c" in line for line in lines)
    assert "before the history" in text and time.strftime("%Y-") in text
    assert "\033" not in text
    assert "\033[31m" in tree.tool("vfind", "--color=always", cwd=tree.path).stdout
    assert "rm -r" in tree.tool("vfind", "-v", "util.c", cwd=tree.path).stdout


def test_usage_errors(mount):
    for arguments in (("--regex", "("), ("--type", "x"), ("--since", "blah"), ("--depth", "0"), ("--color=red",),
                      ("--json", "-0"), ("--since", "1h", "--until", "2h"), ("a", "b", "c")):
        result = mount.tool("vfind", *arguments, status=2, merge=False, cwd=mount.path)
        assert result.stderr.startswith("vfind: ") and (result.stdout == "") == ("--json" not in arguments)
    result = mount.tool("vfind", "*", "/usr", status=1, merge=False)
    assert "/usr" in result.stderr


def test_damage_is_reported(tree):
    tree.stop()
    catalogs = [p for p in tree.logs() if p.suffix == ".cat"]
    largest = max(catalogs, key=lambda p: p.stat().st_size)
    data = bytearray(largest.read_bytes())
    data[len(data) // 2 + 20] ^= 0xff
    largest.write_bytes(data)
    tree.expect("damaged|checksum|rebuilt")
    tree.start()
    result = tree.tool("vfind", status=1, merge=False, cwd=tree.path)
    assert "damaged" in result.stderr and "other/" in result.stdout


def test_a_name_that_is_not_shown_costs_no_call(maker):
    """The list of a directory has the names and whether they are present; only shown ones need their present size."""
    calls = []
    for files in (10, 200):
        source = maker.tree()
        (source / "d").mkdir()
        for number in range(files):
            (source / f"d/f{number}").write_text("x")
        mount = maker.mount(source=source)
        (mount.path / "d/f3").unlink()
        status, count = run_to_call([mount.programs.directory / "vfind", "--deleted", mount.path], None, stdout=-3,
                                    stderr=-3, env=mount.programs.environment())
        assert status == 0
        calls.append(count)
    assert calls[1] - calls[0] < 50
