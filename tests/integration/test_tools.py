# SPDX-License-Identifier: LGPL-2.1-or-later
"""vstat and vextract: their output, their files, their refusals."""
import json
import os
import time

import pytest

from mounts import NOBODY, SECOND, epoch, moment, nanoseconds, run
from treestate import differences, state_of

KEYS = {"change", "time", "epoch", "op", "offset", "length", "size_before", "size_after", "uid",
        "gid", "pid", "command"}


def versions(mount, path, *arguments, **options):
    answer = json.loads(mount.tool("vstat", "--json", path, *arguments, merge=False, **options).stdout)
    document = answer[0] if isinstance(answer, list) else answer
    assert document["path"] == str(path)
    return document["versions"]


def one_line(result, *words):
    """An error: one clear line that names its subject."""
    text = result.stderr if result.stderr is not None else result.stdout
    lines = [line for line in text.splitlines() if line.strip()]
    assert len(lines) == 1, text
    for word in words:
        assert str(word) in lines[0], (word, lines[0])


# -- vstat ---------------------------------------------------------------------------------------


def test_vstat_lists_every_change_newest_first(either_mount):
    mount = either_mount
    path = mount.path / "f"
    begin = time.time_ns()
    mount.tool("sh", "-c", f"printf 0123456789 > {path}; printf ab | dd of={path} bs=1 seek=3 "
               f"conv=notrunc status=none; chmod 600 {path}; truncate -s 4 {path}")
    saves = versions(mount, path)
    assert [(v["change"], v["op"], v["size_after"]) for v in saves] == \
        [(1, "truncate", 4), (2, "write", 10), (3, "create", 10)]
    found = versions(mount, path, "--operations")
    assert [v["change"] for v in found] == [1, None, 2, 2, 3, 3]
    whens = [nanoseconds(v) for v in found]
    assert whens == sorted(whens, reverse=True) and len(set(whens)) == len(whens)
    assert begin < whens[-1] and whens[0] < time.time_ns()
    for version in found:
        assert KEYS <= set(version), KEYS - set(version)
        assert (version["uid"], version["gid"]) == (mount.user or (0, 0))
        assert version["pid"] > 1
        assert isinstance(nanoseconds(version), int)
    assert [v["op"] for v in found][:2] == ["truncate", "chmod"]
    assert found[-1]["op"] == "create"
    assert (found[0]["size_before"], found[0]["size_after"]) == (10, 4)
    writes = [v for v in found if v["op"] == "write"]
    assert {(w["offset"], w["length"]) for w in writes} >= {(3, 1), (4, 1)}
    assert any("dd" in w["command"] and "seek=3" in w["command"] for w in writes)


def test_vstat_limits(mount):
    path = mount.path / "f"
    fd = os.open(path, os.O_CREAT | os.O_RDWR)
    marks = []
    for i in range(6):
        marks.append(moment())
        os.pwrite(fd, b"%d" % i, 0)
    os.close(fd)
    def each(*arguments):
        return versions(mount, path, "--operations", *arguments)

    everything = each()
    assert len(everything) == 7
    assert each("-l", "3") == everything[:3]
    assert each("--since", epoch(marks[3])) == everything[:3]
    assert each("--until", epoch(marks[2])) == everything[4:]
    assert each("--since", epoch(marks[1]), "--until", epoch(marks[3])) == everything[3:5]
    assert each("--until", "begin") == [] == versions(mount, path, "--until", "begin")
    one, = versions(mount, path)
    assert (one["operations"], nanoseconds(one)) == (7, nanoseconds(everything[0]))
    # Of a version that is partly in that time, this part.
    assert [v["operations"] for v in versions(mount, path, "--since", epoch(marks[3]))] == [3]


def test_vstat_follows_the_name_through_saves(mount):
    path = mount.path / "text"
    for version in (b"one", b"two, longer", b"three"):
        path.with_name("text.tmp").write_bytes(version)
        os.rename(path.with_name("text.tmp"), path)
    found = versions(mount, path)
    assert [v["op"] for v in found] == ["rename", "rename", "create"]
    assert [v["size_after"] for v in found] == [5, 11, 3]
    found = versions(mount, path, "--operations")
    assert sum(v["op"] == "rename" for v in found) == 3
    assert any(v["op"] == "write" for v in found)


def test_vstat_of_a_directory_lists_its_entries(mount):
    root = mount.path / "d"
    root.mkdir()
    (root / "a").write_bytes(b"x")
    os.rename(root / "a", root / "b")
    (root / "b").unlink()
    (root / "sub").mkdir()
    ops = [v["op"] for v in versions(mount, root)]
    assert ops[0] == "mkdir" and ops[1] == "unlink" and ops[2] == "rename" and "create" in ops
    text = mount.tool("vstat", root).stdout
    assert "sub" in text and "unlink" in text


def test_vstat_of_a_deleted_file(mount):
    (mount.path / "d").mkdir()
    (mount.path / "d" / "f").write_bytes(b"x")
    mount.tool("rm", "-r", mount.path / "d")
    assert versions(mount, mount.path / "d" / "f")[0]["op"] == "unlink"
    assert versions(mount, mount.path / "d")[0]["op"] in ("rmdir", "unlink")


def test_vstat_of_a_directory_deleted_with_the_one_above(mount):
    (mount.path / "d" / "sub").mkdir(parents=True)
    (mount.path / "d" / "sub" / "f").write_bytes(b"x")
    mount.tool("rm", "-r", mount.path / "d")
    lines = mount.tool("vstat", mount.path / "d" / "sub").stdout.splitlines()
    assert "NAME" in lines[0].split() and any(line.split()[4] == "f" for line in lines[1:]), lines
    assert "NAME" not in mount.tool("vstat", mount.path / "d" / "sub" / "f").stdout.splitlines()[0].split()


def test_vstat_of_an_unchanged_file(maker):
    source = maker.tree()
    (source / "f").write_bytes(b"x")
    mount = maker.mount(source=source)
    assert versions(mount, mount.path / "f") == []
    mount.tool("vstat", mount.path / "f")


def test_vstat_text_is_for_people(mount):
    path = mount.path / "f"
    path.write_bytes(b"0123456789")
    path.chmod(0o600)
    text = mount.tool("vstat", path).stdout
    assert "create" in text and "LINES" in text
    text = mount.tool("vstat", "--operations", path).stdout
    assert "chmod" in text and "create" in text and time.strftime("%Y-") in text
    several = mount.tool("vstat", path, mount.path).stdout
    assert str(path) in several


def test_vstat_refuses_wrong_usage(mount):
    (mount.path / "f").write_bytes(b"x")
    one_line(mount.tool("vstat", mount.path / "never", status=1, merge=False), mount.path / "never")
    one_line(mount.tool("vstat", "/usr", status=1, merge=False), "/usr")
    for arguments in ((), ("--since", "blah", mount.path / "f"), ("-l", "x", mount.path / "f"),
                      ("-l", "-1", mount.path / "f"), ("--nonsense",)):
        result = mount.tool("vstat", *arguments, status=2, merge=False)
        assert result.stderr.startswith("vstat: ") and result.stdout == ""
    # One bad path does not stop the others from being listed.
    result = mount.tool("vstat", mount.path / "never", mount.path / "f", status=1, merge=False)
    assert "create" in result.stdout
    one_line(result, "never")


def test_json_is_valid_whatever_the_names(mount):
    for name in ('quote"', "back\\slash", "new\nline", "tab\t"):
        path = mount.path / name
        path.write_bytes(b"x")
        assert versions(mount, path)[-1]["op"] == "create"
    odd = os.fsencode(mount.path) + b"/\xff\xfe"
    with open(odd, "wb") as stream:
        stream.write(b"x")
    result = mount.tool("vstat", "--json", os.fsdecode(odd))
    json.loads(result.stdout)


# -- vextract ------------------------------------------------------------------------------------


@pytest.fixture(name="history")
def fixture_history(mount):
    """A directory of a few files, seen, then destroyed."""
    root = mount.path / "d"
    (root / "e").mkdir(parents=True)
    (root / "f").write_bytes(os.urandom(100_000))
    (root / "e" / "g").write_bytes(b"deeper")
    os.link(root / "f", root / "e" / "same")
    (root / "l").symlink_to("e/g")
    os.chown(root / "e" / "g", 3, 4)
    (root / "e").chmod(0o2711)
    os.utime(root / "f", ns=(10**18 + 5, 10**18 + 7))
    os.utime(root / "e", ns=(10**18 + 5, 10**18 + 8))
    when, state = moment(), state_of(root)
    mount.tool("rm", "-r", root / "e")
    (root / "f").write_bytes(b"new")
    return mount, root, when, state


def test_vextract_copies_a_directory_out(history, maker):
    mount, root, when, state = history
    out = maker.scratch / "out"
    mount.tool("vextract", root, "--time", epoch(when), "-o", out)
    assert differences(state, state_of(out)) == []
    assert (root / "f").read_bytes() == b"new"


def test_vextract_of_a_file(history, maker):
    mount, root, when, _ = history
    (maker.scratch / "here").mkdir()
    mount.tool("vextract", root / "e" / "g", "--time", epoch(when), cwd=maker.scratch / "here")
    made = os.listdir(maker.scratch / "here")
    assert len(made) == 1 and made[0].startswith("g@")
    status = (maker.scratch / "here" / made[0]).stat()
    assert (status.st_uid, status.st_gid) == (3, 4)
    assert mount.tool("vextract", root / "e" / "g", "--time", epoch(when), "-o", "-").stdout == "deeper"
    changed = mount.tool("vextract", root / "f", "--change", "1", "-o", "-", merge=False)
    assert changed.stdout == mount.tool("vextract", root / "f", "--time", epoch(when), "-o", "-", merge=False).stdout


def test_vextract_names_the_result_inside_the_mount(history):
    """NAME@TIME is the past there, and no name for a new file."""
    mount, root, when, _ = history
    (root / "here").mkdir()
    for option, directory in (([], root / "here"), (["-o", f"{root}/"], root)):
        mount.tool("vextract", root / "f", "--time", epoch(when), *option, cwd=root / "here")
        assert (directory / f"f.{epoch(when)}").read_bytes() == mount.at(when, "d/f").read_bytes()


def test_vextract_never_overwrites_without_force(history, maker):
    mount, root, when, _ = history
    out = maker.scratch / "out"
    out.write_bytes(b"precious")
    arguments = ("vextract", root / "e" / "g", "--time", epoch(when), "-o", out)
    one_line(mount.tool(*arguments, status=1, merge=False), out)
    assert out.read_bytes() == b"precious"
    mount.tool(*arguments, "--force")
    assert out.read_bytes() == b"deeper"
    assert [n for n in os.listdir(maker.scratch) if n.startswith(".")] == []


def test_vextract_replaces_no_directory_with_a_mount_in_it(history, maker):
    mount, root, when, _ = history
    out = maker.scratch / "out"
    (out / "sub/place").mkdir(parents=True)
    (out / "own").write_bytes(b"own")
    arguments = ("vextract", root / "e", "--time", epoch(when), "-o", out, "--force")
    run("mount", "-t", "tmpfs", "tmpfs", out / "sub/place")
    try:
        (out / "sub/place/f").write_bytes(b"present")
        one_line(mount.tool(*arguments, status=1, merge=False), out, "unmount it")
        assert (out / "sub/place/f").read_bytes() == b"present" and (out / "own").read_bytes() == b"own"
    finally:
        run("umount", out / "sub/place")
    mount.tool(*arguments)
    assert (out / "g").read_bytes() == b"deeper" and not (out / "own").exists()
    assert [n for n in os.listdir(maker.scratch) if n.startswith(".")] == []


def test_vextract_refuses_wrong_usage(history, maker):
    mount, root, when, _ = history
    for arguments in ((root / "f",), ("--time", epoch(when)), (root / "f", "--time", "blah"),
                      (root / "f", "--change", "0"), (root / "f", "--change", "x"),
                      (root / "f", "--time", "1m", "--change", "1")):
        result = mount.tool("vextract", *arguments, status=2, merge=False, cwd=maker.scratch)
        assert result.stderr.startswith("vextract: ")
        assert "0" not in arguments or "0 is not the number of a version" in result.stderr
    one_line(mount.tool("vextract", root / "f", "--change", "99", status=1, merge=False,
                        cwd=maker.scratch), root / "f")
    one_line(mount.tool("vextract", root / "f", "--time", "2001-01-01", status=1, merge=False,
                        cwd=maker.scratch), root / "f")
    one_line(mount.tool("vextract", root, "--time", epoch(when), "-o", "-", status=1, merge=False,
                        cwd=maker.scratch), root)
    one_line(mount.tool("vextract", root / "f", "--time", epoch(when), "-o",
                        maker.scratch / "no" / "such", status=1, merge=False), "no/such")
    assert [n for n in os.listdir(maker.scratch) if not n.startswith("mnt-")] == []


def test_vextract_to_a_full_disk_says_so(history, maker):
    mount, root, when, _ = history
    small = maker.file_systems.make("tmpfs", f"small-{os.getpid()}-{time.time_ns()}", 1)
    try:
        run("dd", "if=/dev/zero", f"of={small}/fill", "bs=4k", "count=250", check=False)
        one_line(mount.tool("vextract", root / "f", "--time", epoch(when), "-o", small / "f",
                            status=1, merge=False), "space")
        assert os.listdir(small) == ["fill"]
    finally:
        maker.file_systems.unmake(small)


def test_extraction_respects_permissions(any_mount, maker):
    any_mount.path.chmod(0o777)
    path = any_mount.path / "f"
    path.write_bytes(b"secret")
    path.chmod(0o600)
    when = moment()
    path.write_bytes(b"other")
    scratch = maker.scratch / "theirs"
    scratch.mkdir()
    os.chown(scratch, *SECOND)
    result = any_mount.tool("vextract", path, "--time", epoch(when), "-o", scratch / "x", status=1,
                            user=SECOND, merge=False)
    assert "ermission denied" in result.stderr and os.listdir(scratch) == []


def test_a_file_moved_into_a_private_directory_is_closed_in_the_past_too(mount):
    root = mount.path
    for name in ("open", "open/d", "closed"):
        (root / name).mkdir()
    for name in ("open/f", "open/d/g", "open/h"):
        (root / name).write_bytes(b"then")
    when = moment()
    for name in ("f", "d"):
        os.rename(root / "open" / name, root / "closed" / name)
    os.rename(root / "open", root / "opened")
    for name in ("open/f", "open/d/g", "open/h"):
        mount.tool("cat", mount.at(when, name), user=SECOND)
    (root / "closed").chmod(0o700)
    for name in ("open/f", "open/d/g"):
        mount.tool("cat", mount.at(when, name), user=SECOND, status=1)
        mount.tool("cat", mount.at(when, name))
    mount.tool("cat", mount.at(when, "open/h"), user=SECOND)


def test_an_ordinary_users_history_is_theirs(user_mount, maker):
    path = user_mount.path / "f"
    user_mount.tool("sh", "-c", f"echo one > {path}; echo two > {path}; rm {path}")
    scratch = maker.scratch / "mine"
    scratch.mkdir()
    os.chown(scratch, *NOBODY)
    user_mount.tool("vextract", path, "--change", "1", "-o", scratch / "f")
    assert (scratch / "f").read_text(encoding="utf-8") == "two\n"


# -- with the file system unmounted --------------------------------------------------------------


def test_tools_work_on_an_unmounted_tree(history, maker):
    mount, _, when, state = history
    mount.stop()
    root = mount.source / "d"
    before = run("find", mount.source / ".wayback", "-type", "f", "-newermt", "@9999999999").stdout
    assert versions(mount, root / "f")[0]["op"] in ("write", "truncate")
    out = maker.scratch / "out"
    mount.tool("vextract", root, "--time", epoch(when), "-o", out)
    assert differences(state, state_of(out)) == []
    assert before == run("find", mount.source / ".wayback", "-newermt", "@9999999999").stdout
    mount.tool("vrevert", root, "--time", epoch(when))
    assert differences(state, state_of(root), ignore=("nlink",)) == []
    mount.tool("vrm", "-r", "-y", root)
    assert not root.exists()
    mount.start()
    assert os.listdir(mount.path) == []


def test_two_mounts_of_one_tool_call(maker):
    one, two = maker.mount("allow_other"), maker.mount("allow_other")
    for mount in (one, two):
        (mount.path / "f").write_bytes(b"x")
    text = one.tool("vstat", one.path / "f", two.path / "f").stdout
    assert text.count("create") == 2


# -- vdump ---------------------------------------------------------------------------------------


def test_vdump_shows_every_record(history):
    mount, _, _, _ = history
    kinds = set()
    for log in mount.logs():
        text = mount.tool("vdump", log).stdout
        assert text.strip()
        kinds.add(log.suffix or log.name)
        for line in mount.tool("vdump", "--json", log).stdout.splitlines():
            json.loads(line)
    assert kinds == {".cat", ".undo", "actors"}


def test_vdump_refuses_files_that_are_not_logs(mount, maker):
    (maker.scratch / "text").write_text("nothing of the kind", encoding="utf-8")
    mount.tool("vdump", maker.scratch / "text", status=1, merge=False)
    one_line(mount.tool("vdump", maker.scratch / "none", status=1, merge=False), "none")
    mount.tool("vdump", status=2)


# -- a history elsewhere -------------------------------------------------------------------------


def test_unmounted_trees_with_a_store_elsewhere(maker):
    source, store = maker.tree(), maker.tree() / "the, store"
    store.mkdir(mode=0o700)
    mount = maker.mount("allow_other", "store=" + str(store).replace(",", "\\,"), source=source)
    (mount.path / "d").mkdir()
    (mount.path / "d" / "f").write_bytes(b"old")
    when = moment()
    (mount.path / "d" / "f").write_bytes(b"new")
    mount.stop()
    path = source / "d" / "f"
    # The tree has the path of its store.
    assert versions(mount, path) == versions(mount, path, "--store", store)
    assert versions(mount, path, "--store", store)[-1]["op"] == "create"
    mount.tool("vrevert", "--store", os.path.relpath(store, "/tmp"), path, "--time", epoch(when), cwd="/tmp")
    assert path.read_bytes() == b"old"
    run("rm", "-r", source / "d")
    assert "vextract" not in mount.tool("vfind", "--store", store, "f", source).stdout
    for wrong, word in ((source, "not a store"), (store / "nowhere", "not a store")):
        one_line(mount.tool("vstat", path, "--store", wrong, status=1, merge=False), path, word)
    one_line(mount.tool("vstat", "/usr", "--store", store, status=1, merge=False), "/usr", "--store")
