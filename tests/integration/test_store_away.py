# SPDX-License-Identifier: LGPL-2.1-or-later
"""A store in another place that is forgotten, not mounted, or damaged: no second history begins by itself."""
import os
import shutil
import subprocess

import pytest

from mounts import LIMIT, epoch, moment, run


def fails(mount, *options, words=(), command=()):
    """A mount that is refused, with all of these words, and leaves SRC as it was."""
    before = sorted(os.listdir(mount.source))
    result = run(mount.programs.directory / "wayback", *command, "-f",
                 *(["-o", ",".join(("allow_other",) + options)]), mount.source, mount.path,
                 check=False, env=mount.programs.environment(), timeout=LIMIT)
    assert result.returncode == 1, result.stdout
    assert len(result.stdout.splitlines()) == 1, result.stdout
    for word in words:
        assert str(word) in result.stdout
    assert sorted(os.listdir(mount.source)) == before
    return result.stdout


@pytest.fixture(name="apart", params=["another disk", "the same disk"])
def fixture_apart(maker, request):
    """A stopped mount with its store elsewhere, f='THREE' since `when`; options empty: the store is forgotten."""
    place = maker.tree("xfs" if request.param == "another disk" else "ext4")
    mount = maker.mount("allow_other", f"store={place}/store")
    mount.where = place / "store"
    for content in ("one", "two", "THREE"):
        (mount.path / "f").write_text(content)
    mount.when = moment()
    (mount.path / "g").write_text("deleted")
    (mount.path / "g").unlink()
    mount.stop()
    mount.options = ["allow_other"]
    return mount


def check(mount):
    """All of it is there, and vfsck finds nothing."""
    assert (mount.path / f"f@{epoch(mount.when)}").read_text() == "THREE"
    mount.stop()
    mount.tool("vfsck", mount.source)


def test_without_its_option_the_store_is_found(apart):
    assert (apart.source / ".wayback" / "moved").exists()
    apart.start()
    (apart.path / "f").write_text("4")
    assert not (apart.source / ".wayback" / "header").exists()
    check(apart)
    apart.start("ro")
    check(apart)


@pytest.mark.parametrize("how", ["missing", "empty", "other"])
def test_a_store_that_is_not_there_is_not_replaced(apart, how, maker):
    away = apart.where.with_name("away")
    os.rename(apart.where, away)
    if how != "missing":
        apart.where.mkdir(mode=0o700)
    if how == "other":
        other = maker.mount("allow_other", f"store={apart.where}")
        (other.path / "f").write_text("other")
        other.stop()
    named = f"store={apart.where}"
    for options in ((), (named,), ("ro",), ("ro", named), ("history=close", named)):
        fails(apart, *options, words=[apart.where])
    if how != "other":
        for options in ((), (named,)):
            assert "--new-history" in fails(apart, *options)
        assert not apart.where.exists() or os.listdir(apart.where) == []
    fails(apart, f"store={maker.scratch}/third", words=[apart.where])
    for tool in ("vfsck", "vstore status"):
        result = apart.run_tool(*tool.split(), apart.source)
        assert result.returncode != 0 and str(apart.where) in result.stdout, result.stdout
    # Nothing is recorded: permitted, and reported.
    apart.expect("nothing is recorded")
    apart.start("history=none")
    apart.stop()
    if how != "missing":
        shutil.rmtree(apart.where)
    os.rename(away, apart.where)
    apart.start()
    check(apart)


def test_a_store_in_a_new_place_is_named_once(apart, maker):
    place = maker.tree("xfs") / "moved-by-hand"
    if list(apart.where.rglob("*.data")):  # deleted files are identified by their inodes
        place = apart.where.with_name("renamed")
        os.rename(apart.where, place)
    else:
        run("cp", "-a", apart.where, place)
        shutil.rmtree(apart.where)
    fails(apart, words=[apart.where])
    apart.start(f"store={place}")
    apart.stop()
    apart.options = ["allow_other"]
    apart.start()
    check(apart)


def test_another_history_begins_when_it_is_asked_for(apart, maker):
    second = maker.tree("btrfs") / "second"
    fails(apart, f"store={second}", words=[apart.where, "--new-history"])
    assert not second.exists()
    apart.start("new_history", f"store={second}")
    (apart.path / "f").write_text("of the second")
    when = moment()
    (apart.path / "f").unlink()
    apart.stop()
    apart.options = ["allow_other"]
    # The former one is not accepted for this tree, the new one is found by itself.
    fails(apart, f"store={apart.where}", words=[apart.where, second])
    fails(apart, f"store={apart.where}", "ro", words=[apart.where, second])
    fails(apart, f"store={second}", words=[second, "holds a history"], command=["--new-history"])
    apart.start()
    assert (apart.path / f"f@{epoch(when)}").read_text() == "of the second"
    apart.stop()
    apart.tool("vfsck", apart.source)


def test_another_history_in_the_tree(apart):
    apart.start("new_history")
    assert (apart.source / ".wayback" / "header").exists()
    assert not (apart.source / ".wayback" / "moved").exists()
    (apart.path / "new").write_text("new")
    when = moment()
    (apart.path / "new").unlink()
    apart.stop()
    apart.options = ["allow_other"]
    fails(apart, f"store={apart.where}", words=[apart.where])
    fails(apart, words=["--new-history", "move that directory out"], command=["--new-history"])
    apart.start()
    assert (apart.path / f"new@{epoch(when)}").read_text() == "new"
    apart.stop()
    apart.tool("vfsck", apart.source)


def test_a_copy_of_the_tree_does_not_take_the_store(apart, maker):
    copy = maker.tree("btrfs") / "copy"
    run("cp", "-a", apart.source, copy)
    mount = maker.mount("allow_other", source=copy, start=False)
    fails(mount, words=["copied"])
    away = apart.where.with_name("away")
    os.rename(apart.where, away)
    fails(mount, words=["copied", "--new-history"])
    os.rename(away, apart.where)
    mount.start("new_history")
    (mount.path / "f").write_text("of the copy")
    mount.stop()
    mount.tool("vfsck", copy)
    apart.start()
    check(apart)


def test_a_store_of_an_earlier_version_gets_its_signpost(apart):
    shutil.rmtree(apart.source / ".wayback")  # on another disk deleted files were in .wayback-staging
    apart.start(f"store={apart.where}")
    assert (apart.source / ".wayback" / "moved").exists()
    apart.stop()
    apart.options = ["allow_other"]
    apart.start()
    check_content = (apart.path / f"f@{epoch(apart.when)}").read_text()
    assert check_content == "THREE"


def test_deleted_files_in_the_tree_point_to_a_store(maker):
    mount = maker.mount("allow_other", start=False)
    (mount.source / ".wayback-staging" / "objects" / "07").mkdir(parents=True)
    (mount.source / ".wayback-staging" / "objects" / "07" / "7-7.data").write_text("deleted")
    fails(mount, words=[".wayback-staging", "--new-history"])
    fails(mount, f"store={maker.scratch}/new", words=[".wayback-staging"])
    assert not (maker.scratch / "new").exists()
    mount.start("new_history")
    (mount.path / "f").write_text("new")
    mount.stop()
    assert ".wayback-staging" not in os.listdir(mount.source)
    mount.tool("vfsck", mount.source)


@pytest.mark.parametrize("in_tree", [True, False])
def test_a_lost_header_is_damage(maker, in_tree):
    place = maker.tree("ext4") / "store"
    options = [] if in_tree else [f"store={place}"]
    mount = maker.mount("allow_other", *options)
    (mount.path / "d").mkdir()
    (mount.path / "d" / "f").write_text("one")
    when = moment()
    (mount.path / "d" / "f").write_text("two")
    mount.stop()
    header = mount.store() / "header"
    uuid = header.read_bytes()[16:32]
    header.unlink()
    for option in ((), ("ro",)):
        fails(mount, *option, *options, words=["header", "missing" if in_tree else "header"])
    assert not header.exists()
    mount.tool("vfsck", "-y", *[f"--{option}" for option in options], mount.source, status=1)
    assert in_tree or header.read_bytes()[16:32] == uuid
    mount.start(*options)
    assert (mount.path / "d" / f"f@{epoch(when)}").read_text() == "one"


def test_an_interrupted_creation_is_not_a_history(maker):
    mount = maker.mount("allow_other", start=False)
    (mount.source / ".wayback" / "objects" / "00").mkdir(parents=True)
    (mount.source / ".wayback").chmod(0o700)
    (mount.source / ".wayback" / ".header.new").write_bytes(b"half")
    mount.start("ro")
    mount.stop()
    mount.options = ["allow_other"]
    mount.start()
    (mount.path / "f").write_text("one")


def test_wrong_usage(maker, programs):
    for words in (["-o", "ro"], ["-o", "history=none"], ["-o", "at=now"]):
        result = subprocess.run([programs.directory / "wayback", "--new-history", *words, maker.tree(), maker.point()],
                                text=True, capture_output=True, check=False, env=programs.environment())
        assert result.returncode == 2 and "--new-history" in result.stderr
