# SPDX-License-Identifier: LGPL-2.1-or-later
"""vdf: the space that history takes, against stat(2) and the expected losses of a session."""
import json
import os
import random
import time

import pytest

from mounts import LIMIT, NOBODY, SECOND, as_user, epoch, moment, nanoseconds, run

KINDS = {"undo": ".undo", "catalogs": ".cat", "images": ".image"}


def usage(mount, path, *options, user=None):
    result = mount.run_tool("vdf", "--json", *options, path, user=user, merge=False)
    assert (result.returncode, result.stderr) == (0, "")
    answer = json.loads(result.stdout)
    answer["by_path"] = {row["path"]: row for row in answer["directories"]}
    return answer


def fill(path, size, rng=random.Random(1)):
    with open(path, "wb") as stream:
        stream.write(rng.randbytes(size))


def overwrite(path, size):
    """In place: the old bytes are lost, the size does not change."""
    with open(path, "r+b") as stream:
        stream.write(random.Random(2).randbytes(size))


def session(mount):
    """The losses: a sum of bytes for each directory."""
    top = mount.path
    overwrite(top / "old/deep/data", 300_000)  # no name in old/deep ever changes
    for name in ("a", "b", "gone"):
        (top / name).mkdir()
        fill(top / name / "f", 40_000)
    (top / "a/f").unlink()
    (top / "gone/f").unlink()
    (top / "gone").rmdir()
    fill(top / "b/moved", 70_000)
    os.rename(top / "b/moved", top / "a/moved")
    (top / "a/moved").unlink()
    overwrite(top / "b/f", 40_000)
    os.rename(top / "b", top / "c")
    (top / "c/sub").mkdir()
    fill(top / "c/sub/f", 10_000)
    os.truncate(top / "c/sub/f", 0)
    return {"old": 300_000, "old/deep": 300_000, "a": 110_000, "gone": 40_000, "c": 50_000, "c/sub": 10_000,
            ".": 500_000}


def check_rows(answer, lost):
    assert set(answer["by_path"]) == set(lost)
    for path, size in lost.items():
        row = answer["by_path"][path]
        # beside the content there are records, each of some hundred bytes, and the blocks of removed directories
        assert size <= row["bytes"] < size + 30_000, path
        assert nanoseconds(row["oldest"]) <= nanoseconds(row["newest"])
    sizes = [row["disk"] for row in answer["directories"]]
    assert sizes == sorted(sizes, reverse=True)


def prepare(maker, kind, *options):
    source = maker.tree(kind)
    (source / "old/deep").mkdir(parents=True)
    fill(source / "old/deep/data", 300_000)
    run("sync", "-f", source)
    return maker.mount("allow_other", *options, source=source)


def stored(mount, suffix):
    files = list(mount.store().glob(f"objects/*/*{suffix}"))
    return len(files), sum(path.stat().st_blocks * 512 for path in files)


def test_numbers_are_those_of_the_store(maker, kind):
    mount = prepare(maker, kind)
    begin = moment()
    lost = session(mount)
    check_rows(usage(mount, mount.path, "--depth", "9"), lost)
    shallow = usage(mount, mount.path)
    assert set(shallow["by_path"]) == {path for path in lost if "/" not in path}
    assert usage(mount, mount.path, "-s")["directories"][0]["path"] == "."
    inner = usage(mount, mount.path / "c", "-d", "1")
    assert inner["by_path"]["."]["bytes"] == shallow["by_path"]["c"]["bytes"]
    assert inner["by_path"]["sub"]["bytes"] >= 10_000 and not inner["store"]
    assert inner["total"]["bytes"] == inner["by_path"]["."]["bytes"] == inner["ages"]["hour"]
    mount.stop()
    run("sync", "-f", mount.source)
    answer = usage(mount, mount.source, "--depth", "9")
    check_rows(answer, lost)
    for name, suffix in KINDS.items():
        files, disk = stored(mount, suffix)
        assert (answer["kinds"][name]["files"], answer["kinds"][name]["disk"]) == (files, disk), name
    bodies = [stored(mount, suffix) for suffix in (".data", ".dir")]
    assert answer["kinds"]["deleted"]["files"] == sum(files for files, _ in bodies)
    assert answer["kinds"]["deleted"]["disk"] == sum(disk for _, disk in bodies)
    du = run("du", "-s", "--block-size=1", mount.store()).stdout.split()[0]
    assert answer["total"]["disk"] == int(du)
    assert answer["store"] and answer["complete"] and answer["damaged"] == 0
    assert begin <= nanoseconds(answer["oldest"]) <= nanoseconds(answer["newest"]) <= moment()
    changes = sum(answer["kinds"][name]["bytes"] for name in ("undo", "catalogs", "images", "deleted"))
    assert sum(answer["ages"].values()) == changes == answer["bytes_last_week"] == answer["bytes_per_day"]
    assert 0 < answer["free"] <= answer["room"]


def test_the_same_with_and_without_a_mount(maker):
    mount = prepare(maker, "ext4", f"store={maker.tree('xfs') / 'store'}")
    session(mount)
    online = usage(mount, mount.path, "-d", "5")
    mount.stop()
    offline = usage(mount, mount.source, "-d", "5", "--store", mount.store())
    for row in online["directories"] + offline["directories"]:
        command = row.pop("free")
        assert command.endswith(row["path"].lstrip("."))
        assert (f"--store {mount.store()}" in command) == any(row is one for one in offline["directories"])
    for key in ("directories", "oldest", "newest", "began", "ages", "logs_packed", "logs_bytes", "complete", "store"):
        assert online[key] == offline[key], key
    for key in ("undo", "catalogs", "images", "deleted", "snapshots"):
        assert online["kinds"][key] == offline["kinds"][key], key
    assert offline["kinds"]["deleted"]["files"] == 4  # in SRC, beside the signpost


def test_a_file(mount):
    fill(mount.path / "f", 9000)
    overwrite(mount.path / "f", 9000)
    fill(mount.path / "other", 5000)
    (mount.path / "other").unlink()
    one = usage(mount, mount.path / "f")
    assert one["kinds"]["undo"]["files"] == 1 and 9000 < one["total"]["bytes"] < 10_000
    assert usage(mount, mount.path / "other")["kinds"]["deleted"]["bytes"] == 5000
    (mount.path / "f").unlink()
    gone = usage(mount, mount.path / "f")
    assert 18_000 < gone["total"]["bytes"] < 19_000 and gone["ages"]["hour"] == gone["total"]["bytes"]


def test_a_file_with_another_name_takes_nothing(mount):
    fill(mount.path / "f", 50_000)
    os.link(mount.path / "f", mount.path / "g")
    (mount.path / "f").unlink()
    answer = usage(mount, mount.path)
    assert (answer["kinds"]["deleted"]["files"], answer["kinds"]["deleted"]["bytes"]) == (1, 0)
    (mount.path / "g").unlink()
    assert usage(mount, mount.path)["kinds"]["deleted"]["bytes"] == 50_000


def test_restored_and_deleted_again_counts_once(mount):
    for name in ("a", "b"):
        (mount.path / name).mkdir()
    fill(mount.path / "a/f", 50_000)
    before = moment()
    (mount.path / "a/f").unlink()
    mount.tool("vrevert", "--time", epoch(before), mount.path / "a/f")
    assert usage(mount, mount.path)["kinds"]["deleted"]["bytes"] == 0
    os.rename(mount.path / "a/f", mount.path / "b/f")
    (mount.path / "b/f").unlink()
    answer = usage(mount, mount.path)
    assert answer["kinds"]["deleted"]["bytes"] == 50_000
    assert answer["by_path"]["a"]["bytes"] < 10_000 < 50_000 <= answer["by_path"]["b"]["bytes"]


def test_space_that_compaction_saves(mount):
    path = mount.path / "text"
    for number in range(30):
        path.write_text(f"{number} of many lines\n" * 2000, encoding="ascii")
    before = usage(mount, mount.path)
    assert before["logs_packed"] == 0 and before["logs_stored"] == before["logs_bytes"]
    mount.tool("vcompact", mount.path)
    after = usage(mount, mount.path)
    assert after["logs_packed"] >= 1 and after["logs_stored"] < after["logs_bytes"] / 3
    assert before["logs_bytes"] <= after["logs_bytes"] < before["logs_bytes"] * 1.1
    assert "which saves" in mount.tool("vdf", mount.path).stdout


def lose(path):
    fill(path / "f", 6000)
    (path / "f").unlink()


def test_others_get_figures_of_what_was_open_to_them(mount):
    top = mount.path
    for name in ("open", "closed", "was-closed", "mine", "gone", "closed/below"):
        (top / name).mkdir()
    os.chmod(top / "closed", 0o700)
    os.chmod(top / "was-closed", 0o700)
    os.chown(top / "mine", *SECOND)
    os.chmod(top / "mine", 0o700)
    for name in ("open", "closed", "was-closed", "mine", "gone", "closed/below"):
        lose(top / name)
    (top / "gone").rmdir()
    os.chmod(top / "was-closed", 0o755)
    everything = usage(mount, top, "-d", "3")
    assert set(everything["by_path"]) == {".", "open", "closed", "was-closed", "mine", "gone", "closed/below"}
    visible = usage(mount, top, "-d", "3", user=SECOND)
    assert set(visible["by_path"]) == {".", "open", "mine", "gone"}
    assert visible["by_path"]["open"] | {"free": None} == everything["by_path"]["open"] | {"free": None}
    assert not visible["complete"] and not visible["store"] and visible["kinds"]["other"]["files"] == 0
    assert 18_000 <= visible["kinds"]["deleted"]["bytes"] < 24_000  # three files, and a removed directory
    assert "left out" in mount.tool("vdf", top, user=SECOND).stdout
    for path in ("closed", "closed/below", "was-closed/f"):
        result = mount.run_tool("vdf", top / path, user=SECOND)
        assert result.returncode == 1 and "you may not read it" in result.stdout, path
    assert usage(mount, top / "was-closed", user=SECOND)["total"]["files"] == 0
    assert usage(mount, top / "mine", user=SECOND)["total"]["files"] == 2
    mount.remount()
    assert set(usage(mount, top, "-d", "3", user=SECOND)["by_path"]) == {".", "open", "mine", "gone"}


def test_names_of_directories_are_for_users_who_may_list_them(mount):
    top = mount.path
    for name in ("shown", "passage", "passage/secret-name"):
        (top / name).mkdir()
    os.chmod(top / "passage", 0o711)
    for name in ("shown", "passage/secret-name"):
        lose(top / name)
    visible = mount.tool("vdf", "--json", "-d", "5", top, user=SECOND).stdout
    assert "shown" in visible and "secret" not in visible and "passage" not in visible
    assert usage(mount, top / "passage/secret-name", user=SECOND)["kinds"]["deleted"]["bytes"] == 6000


def test_the_mounting_user_gets_all_figures(user_mount):
    as_user(lambda: lose(user_mount.path), *NOBODY)
    answer = usage(user_mount, user_mount.path)
    assert answer["store"] and answer["complete"] and answer["kinds"]["deleted"]["bytes"] == 6000


def test_text_and_numbers(mount):
    (mount.path / "new\nline").mkdir()
    lose(mount.path / "new\nline")
    text = mount.tool("vdf", mount.path).stdout
    for word in ("history uses", "reaches back to", "deleted files", "last hour", "new\\nline", "Rate:", "Free"):
        assert word in text, word
    assert "DIRECTORY" not in mount.tool("vdf", "-s", mount.path).stdout
    assert str(usage(mount, mount.path)["kinds"]["catalogs"]["bytes"]) in mount.tool("vdf", "-b", mount.path).stdout
    assert mount.tool("vdf", "-b", cwd=mount.path).stdout.startswith(".: history uses")
    both = mount.tool("vdf", "--json", mount.path, mount.path / "new\nline").stdout.splitlines()
    assert [json.loads(line)["store"] for line in both] == [True, False]
    assert set(json.loads(both[0])) == {
        "schema", "path", "complete", "store", "kinds", "total", "ages", "logs_packed", "logs_bytes", "logs_stored", "damaged",
        "gaps", "gaps_since", "gaps_until",
        "began", "oldest", "newest", "bytes_last_day", "bytes_last_week", "bytes_per_day", "room", "free", "days_left",
        "budget", "user_max_size", "users", "freed", "directories", "ages_free", "files", "programs"}


def test_an_empty_history(mount):
    answer = usage(mount, mount.path)
    assert answer["oldest"] is None and answer["bytes_per_day"] == 0 and answer["days_left"] is None
    assert "no changes recorded" in mount.tool("vdf", mount.path).stdout


@pytest.mark.parametrize("options", [("--depth", "-1"), ("--depth", "x"), ("--depth", "99999"), ("--color", "blue")])
def test_wrong_usage(mount, options):
    assert mount.run_tool("vdf", *options, mount.path).returncode == 2


def test_a_missing_path(mount):
    result = mount.run_tool("vdf", mount.path / "never", mount.path)
    assert result.returncode == 1 and "no such file" in result.stdout and "history uses" in result.stdout
    result = mount.run_tool("vdf", "/proc")
    assert result.returncode == 1 and "not in a Wayback mount" in result.stdout


def test_a_damaged_log_is_reported(mount):
    (mount.path / "d").mkdir()
    lose(mount.path / "d")
    mount.stop()
    log = max(mount.store().glob("objects/*/*.cat"), key=lambda path: path.stat().st_size)
    with open(log, "r+b") as stream:
        stream.seek(20)
        stream.write(b"\xff" * 8)
    answer = usage(mount, mount.source)
    assert answer["damaged"] >= 1 and answer["kinds"]["catalogs"]["files"] == 2
    assert "vfsck" in mount.tool("vdf", mount.source).stdout


def mounted_with(mount, config):
    """Mounted again with this wayback.conf, until the thread that follows it has it."""
    (mount.store() / "wayback.conf").write_text(config, encoding="ascii")
    mount.remount()
    deadline = time.monotonic() + LIMIT
    while usage(mount, mount.path)["budget"] is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_budget_is_reported(mount):
    mount.expect("more than 90 %|was forgotten|all remaining history is protected")
    fill(mount.path / "f", 200_000)
    overwrite(mount.path / "f", 200_000)
    mounted_with(mount, "# nothing\n")
    assert usage(mount, mount.path)["budget"] == {"max_size": 0, "reserve": 0, "keeps_all": True, "keep_seconds": 0,
                                                  "days_left": None, "held_by": None, "held_since": None}
    assert "All history is kept" in mount.tool("vdf", mount.path).stdout
    mounted_with(mount, "[history]\nkeep = 30d\nmax-size = 2M\nreserve = 1K\n")
    answer = usage(mount, mount.path)
    assert answer["budget"] == {"max_size": 2 << 20, "reserve": 1024, "keeps_all": False, "keep_seconds": 30 * 86400,
                                "days_left": ((2 << 20) - answer["total"]["disk"]) // answer["bytes_per_day"],
                                "held_by": None, "held_since": None}
    text = mount.tool("vdf", mount.path).stdout
    assert "2.0 MiB (max-size), " in text and "less than" in text and "when space runs low" in text
    assert usage(mount, mount.path / "f")["budget"] is None


def test_the_reasons_that_protect_history_are_reported(mount):
    mounted_with(mount, "[history]\nkeep = 30d\n")
    for name in ("elder", "younger"):
        mount.tool("vsnap", "create", name, mount.path)
    assert "The oldest snapshot, elder of 20" in mount.tool("vdf", mount.path).stdout
    listed = json.loads(mount.tool("vsnap", "list", "--json", mount.path).stdout)["snapshots"]
    elder, younger = (nanoseconds(snapshot) for snapshot in listed)
    budget = usage(mount, mount.path)["budget"]
    assert (budget["held_by"], nanoseconds(budget["held_since"])) == ("elder", elder)
    mount.tool("vsnap", "delete", "elder", cwd=mount.path)
    budget = usage(mount, mount.path)["budget"]
    assert (budget["held_by"], nanoseconds(budget["held_since"])) == ("younger", younger)
