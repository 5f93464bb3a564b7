# SPDX-License-Identifier: LGPL-2.1-or-later
"""vdf: the files and programs with the most history, and the command beside each row, which frees what the row says."""
import json
import os
import random
import shlex

from mounts import NOBODY, SECOND, as_user

BLOCK = 4096


def usage(mount, path, *options, user=None):
    return json.loads(mount.tool("vdf", "--json", *options, path, user=user).stdout)


def by_path(rows):
    return {row["path"]: row for row in rows}


def save(path, size, times, rng=random.Random(1)):
    for _ in range(times):
        path.write_bytes(rng.randbytes(size))


def replace(path, size, times, rng=random.Random(2)):
    """As editors save: another file takes the name."""
    for _ in range(times):
        aside = path.with_name("." + path.name)
        aside.write_bytes(rng.randbytes(size))
        os.rename(aside, path)


def scene(mount):
    top = mount.path
    (top / "a/b").mkdir(parents=True)
    (top / "with space").mkdir()
    save(top / "a/rewritten", 500_000, 3)
    replace(top / "a/b/it's", 200_000, 4)
    save(top / "a/gone", 300_000, 2)
    (top / "a/gone").unlink()
    save(top / "with space/f", 50_000, 2)
    return top


def carry_out(mount, command):
    """The command of a row, without its question; the bytes that it says it freed."""
    tool, *arguments = shlex.split(command)
    answer = mount.tool(tool, "--json", "-y", *arguments).stdout
    return json.loads(answer)["bytes"]


def test_files_are_listed_by_name_with_all_objects_that_had_it(mount):
    top = scene(mount)
    answer = usage(mount, top)
    files = by_path(answer["files"])
    assert list(files) == ["a/rewritten", "a/gone", "a/b/it's", "with space/f"]
    for path, lost in {"a/rewritten": 1_000_000, "a/gone": 600_000, "a/b/it's": 600_000, "with space/f": 50_000}.items():
        assert lost <= files[path]["bytes"] <= files[path]["disk"] < lost + 12 * BLOCK, path
    assert files["a/b/it's"]["files"] == 3
    assert list(by_path(usage(mount, top, "-l", "2")["files"])) == ["a/rewritten", "a/gone"]
    for options in (("-l", "0"), ("-s",)):
        nothing = usage(mount, top, *options)
        assert nothing["files"] == nothing["programs"] == []
    assert list(by_path(usage(mount, top / "a/b")["files"])) == ["it's"]


def test_the_command_beside_a_file_frees_what_the_row_says(mount):
    top = scene(mount)
    for path, row in by_path(usage(mount, top)["files"]).items():
        assert abs(carry_out(mount, row["free"]) - row["disk"]) <= 2 * BLOCK, path
        assert (top / path).exists() == (path != "a/gone")
        left = by_path(usage(mount, top)["files"]).get(path, {"disk": 0})
        assert left["disk"] <= BLOCK, path  # a mark that it was erased


def test_the_command_beside_a_directory_frees_what_the_row_says(mount):
    top = scene(mount)
    rows = by_path(usage(mount, top, "-d", "2")["directories"])
    assert rows["a/b"]["free"].startswith("vrm -r --history ")
    for path in ("with space", "a/b", "a"):
        row = by_path(usage(mount, top, "-d", "2")["directories"])[path]
        before = {name.name for name in (top / path).iterdir()}
        assert abs(carry_out(mount, row["free"]) - row["disk"]) <= 3 * BLOCK, path
        assert {name.name for name in (top / path).iterdir()} == before


def test_a_removed_directory_has_a_command_too(mount):
    top = scene(mount)
    for name in ("a/rewritten", "a/b/it's"):
        (top / name).unlink()
    (top / "a/b").rmdir()
    (top / "a").rmdir()
    row = by_path(usage(mount, top)["directories"])["a"]
    assert row["free"] == f"vrm -r {top}/a"
    assert abs(carry_out(mount, row["free"]) - row["disk"]) <= 4 * BLOCK
    assert "a" not in by_path(usage(mount, top)["directories"])


def test_the_command_beside_an_age_frees_that_and_older(mount):
    top = scene(mount)
    for path, tool in ((top / "with space", "vrm"), (top, "vprune")):
        answer = usage(mount, path)
        assert {age for age, command in answer["ages_free"].items() if command} == {"hour"}
        command = answer["ages_free"]["hour"]
        assert command.startswith(f"{tool} ") and "--before now" in command
        # beside the content there are catalogs, which remain, and blocks that are not full
        assert abs(carry_out(mount, command) - answer["ages"]["hour"]) <= 12 * BLOCK
    assert usage(mount, top)["ages"]["hour"] < 60_000
    text = mount.tool("vdf", top).stdout
    assert "FREED BY" in text and "AND OLDER" in text


def test_one_file_has_the_command_of_its_age(mount):
    top = scene(mount)
    answer = usage(mount, top / "a/rewritten")
    assert answer["ages_free"]["hour"] == f"vrm --before now {top}/a/rewritten"
    assert answer["directories"][0]["free"] == f"vrm --history {top}/a/rewritten"


def programs_of(answer):
    return {(row["program"], row["uid"]): row["bytes"] for row in answer["programs"] if not row["others"]}


def test_programs_are_listed_with_the_history_of_their_changes(mount):
    top = mount.path
    (top / "d").mkdir(mode=0o777)
    (top / "d").chmod(0o777)
    save(top / "d/f", 100_000, 2)
    for _ in range(2):
        as_user(lambda: os.system(f"cp /bin/true '{top}/d/secret-name'; cp /etc/passwd '{top}/d/secret-name'"), *SECOND)
    answer = usage(mount, top)
    programs = programs_of(answer)
    lost = os.stat("/bin/true").st_size + os.stat("/etc/passwd").st_size
    assert lost <= programs["cp", SECOND[0]] < 3 * lost
    assert any(uid == 0 and size >= 100_000 for (_, uid), size in programs.items())
    counted = sum(row["bytes"] for row in answer["programs"])
    assert counted == by_path(answer["directories"])["."]["bytes"]
    row = next(row for row in answer["programs"] if row.get("program") == "cp")
    tool, *arguments = shlex.split(row["list"])
    changes = [json.loads(line) for line in mount.tool(tool, "--json", *arguments).stdout.splitlines()]
    assert changes and {change["path"] for change in changes} == {"d/secret-name"}
    assert {change["uid"] for change in changes} == {SECOND[0]}


def test_a_deleted_file_counts_for_who_deleted_it(mount):
    top = mount.path
    top.chmod(0o777)
    save(top / "f", 400_000, 1)
    as_user(lambda: os.system(f"rm -f '{top}/f'"), *SECOND)
    programs = programs_of(usage(mount, top))
    assert programs["rm", SECOND[0]] >= 400_000


def test_few_programs_and_the_sum_of_the_others(mount):
    top = mount.path
    for tool in ("touch", "truncate -s 5", "chmod 640", "rm"):
        os.system(f"{tool} '{top}/f'")
    answer = usage(mount, top, "-l", "2")
    assert [row["others"] for row in answer["programs"]] == [False, False, True]
    assert sum(row["bytes"] for row in answer["programs"]) == answer["total"]["bytes"] - sum(
        answer["kinds"][kind]["bytes"] for kind in ("timeline", "snapshots", "other"))
    assert "all others" in mount.tool("vdf", "-l", "2", top).stdout


def test_others_see_no_files_that_were_closed_to_them_and_no_programs_of_others(mount):
    top = mount.path
    (top / "d").mkdir()
    (top / "d").chmod(0o777)
    (top / "closed").mkdir()
    for name in ("d/open", "d/closed", "d/was-closed", "closed/f", "d/deleted", "d/deleted-closed"):
        save(top / name, 100_000, 1)
        os.chmod(top / name, 0o600 if "closed" in name else 0o644)
        save(top / name, 100_000, 1)
    os.chmod(top / "d/was-closed", 0o644)
    os.chmod(top / "closed", 0o700)
    for name in ("d/deleted", "d/deleted-closed"):
        (top / name).unlink()
    as_user(lambda: save(top / "d/own", 100_000, 2), *NOBODY)
    os.system(f"cp /bin/true '{top}/d/secret-program'")
    everything = usage(mount, top, "-l", "20")
    assert {"d/open", "d/closed", "d/was-closed", "closed/f", "d/deleted", "d/deleted-closed", "d/own"} <= set(
        by_path(everything["files"]))
    visible = usage(mount, top, "-l", "20", user=NOBODY)
    assert set(by_path(visible["files"])) == {"d/open", "d/deleted", "d/own"}
    assert {row["uid"] for row in visible["programs"] if not row["others"]} == {NOBODY[0]}
    assert sum(row["bytes"] for row in visible["programs"]) == by_path(visible["directories"])["."]["bytes"]
    # nobody may erase all of it: no commands that would fail
    assert {row["free"] for row in visible["files"] + visible["directories"]} == {None}
    assert set(visible["ages_free"].values()) == {None}
    text = mount.tool("vdf", "-l", "20", top, user=NOBODY).stdout
    assert "FREED BY" not in text and "closed" not in text and "cp" not in text.split()


def test_wrong_numbers_of_files(mount):
    for number in ("-1", "1001", "x"):
        result = mount.run_tool("vdf", "-l", number, mount.path)
        assert result.returncode == 2, number
