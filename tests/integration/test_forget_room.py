# SPDX-License-Identifier: LGPL-2.1-or-later
"""The space that vrm frees: vrm -n and vdf say the same, vrm -y reports it, and the disk has it back."""
import json
import os
import random
import time

import pytest

from mounts import LIMIT, SECOND, run

SLACK = 160 << 10  # catalogs of other directories, the file system's own tables
MIB = 1 << 20


def content(seed, size=MIB):
    return random.Random(seed).randbytes(size)


def text(seed, lines=20_000):
    rng = random.Random(seed)
    return "".join(f"{rng.randrange(100)} of the many lines there are\n" for _ in range(lines))


def overwrite(path, data):
    with open(path, "r+b") as stream:
        stream.write(data)


def a_file(top):
    (top / "it").write_bytes(content(1))
    for seed in range(2, 5):
        overwrite(top / "it", content(seed))
        run("sync", "-f", top)


def a_tree(top):
    (top / "it/deep").mkdir(parents=True)
    for number in range(4):
        (top / f"it/deep/{number}").write_bytes(content(number))
        overwrite(top / f"it/deep/{number}", content(number + 10, MIB // 2))
    (top / "it/deep/1").unlink()
    (top / "it/gone").mkdir()
    (top / "it/gone/file").write_bytes(content(20))
    (top / "it/gone/file").unlink()
    (top / "it/gone").rmdir()


def a_linked_file(top):
    (top / "it").write_bytes(content(1))
    os.link(top / "it", top / "other")
    overwrite(top / "it", content(2))


def linked_within(top):
    (top / "it").mkdir()
    (top / "it/a").write_bytes(content(1))
    os.link(top / "it/a", top / "it/b")
    overwrite(top / "it/b", content(2))


def a_deleted_file(top):
    a_file(top)
    (top / "it").unlink()


def replaced_and_packed(top):
    (top / "it").mkdir()
    for seed in range(6):
        for name in ("a", "b"):
            (top / "it/new").write_bytes(content(seed * 2 + len(name) + ord(name), 200_000) + content(7, 300_000))
            os.rename(top / "it/new", top / "it" / name)


def compressed(top):
    (top / "it").write_text(text(0), encoding="ascii")
    for seed in range(1, 8):
        (top / "it").write_text(text(seed), encoding="ascii")


PACKED = (replaced_and_packed, compressed)
CASES = (a_file, a_tree, a_linked_file, linked_within, a_deleted_file, *PACKED)


def prepared(maker, kind, case):
    mount = maker.mount("allow_other", kind=kind)
    case(mount.path)
    (mount.path / "beside").write_bytes(content(99))
    overwrite(mount.path / "beside", content(98))
    if case in PACKED:
        mount.tool("vcompact", mount.path)
    settle(mount)
    return mount


def settle(mount):
    """Everything has its blocks, and removed files have given theirs back."""
    run("sync", "-f", mount.source)
    if run("stat", "-f", "-c", "%T", mount.source).stdout.strip() == "btrfs":
        run("btrfs", "filesystem", "sync", mount.source)


def free(mount):
    settle(mount)
    st = os.statvfs(mount.source)
    return st.f_bfree * st.f_frsize


def answer(mount, tool, *arguments, user=None):
    result = mount.run_tool(tool, "--json", *arguments, user=user, merge=False)
    assert (result.returncode, result.stderr) == (0, ""), result.stderr
    return json.loads(result.stdout)


def space_is_freed(mount, before, estimate):
    """A file system may give blocks back a little later."""
    end = time.monotonic() + LIMIT
    while free(mount) - before < estimate - SLACK and time.monotonic() < end:
        time.sleep(0.1)
    return free(mount) - before


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("options", [("-r",), ("-r", "--history")], ids=["all", "history"])
def test_space_is_estimated_and_freed(maker, kind, case, options):
    mount = prepared(maker, kind, case)
    path = mount.path / "it"
    freed = answer(mount, "vdf", path)["freed"]
    would = answer(mount, "vrm", "-n", *options, path)
    key = "history" if "--history" in options else "all"
    assert (would["bytes"], would["shared"]) == (freed[key], freed["shared"])
    before = free(mount)
    did = answer(mount, "vrm", "-y", *options, path)
    assert did["bytes"] == would["bytes"]
    back = space_is_freed(mount, before, did["bytes"])
    assert did["bytes"] - SLACK <= back <= did["bytes"] + did.get("shared", freed["shared"]) + SLACK
    after = answer(mount, "vdf", mount.path)
    assert after["total"]["bytes"] > 0  # that of `beside`
    if case is not a_linked_file and key == "all":
        assert back > 400_000


def test_with_and_without_a_mount(maker):
    mount = prepared(maker, "ext4", a_tree)
    here = answer(mount, "vdf", mount.path / "it")["freed"]
    mount.stop()
    assert answer(mount, "vdf", mount.source / "it")["freed"] == here
    assert answer(mount, "vrm", "-n", "-r", mount.source / "it")["bytes"] == here["all"]


def test_the_size_is_hidden_from_users_who_may_not_erase_it(maker):
    mount = prepared(maker, "ext4", a_file)
    assert answer(mount, "vdf", mount.path / "it", user=SECOND)["freed"] is None
    assert answer(mount, "vdf", mount.path)["freed"] is None  # vrm takes no root of a mount
    result = mount.run_tool("vrm", "-n", mount.path / "it", user=SECOND)
    assert result.returncode == 1 and "not permitted" in result.stdout


def test_wording(maker):
    mount = prepared(maker, "ext4", a_file)
    reported = mount.tool("vdf", "-b", mount.path / "it").stdout
    freed = answer(mount, "vdf", mount.path / "it")["freed"]
    assert f"vrm would free {freed['all']}, and vrm --history {freed['history']}" in reported
    assert "; frees 4.0 MiB)" in mount.tool("vrm", "-n", mount.path / "it").stdout
    assert "; frees 3.0 MiB)" in mount.tool("vrm", "-n", "--history", mount.path / "it").stdout
