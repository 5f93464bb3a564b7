# SPDX-License-Identifier: LGPL-2.1-or-later
"""-o at-sign=CHAR: NAME%TIME instead of NAME@TIME, in every path that the daemon and the tools read or write."""
import json
import os
import signal

import pytest

from mounts import LIMIT, SECOND, epoch, moment, mounted_at, run
from test_auto_remount import answers, fixture_kept, processes, wait_until  # pylint: disable=unused-import
from test_mounting import fixture_helper, wait_for_exit  # pylint: disable=unused-import

VALID = "!#$%&()*;<=>?[]^`{|}"
# Parts of times and of automatic snapshot names; characters that end or escape an option; no character of ASCII.
INVALID = ["", "a", "Z", "7", "/", "-", "+", ":", ".", "~", "_", " ", "\t", "\\\\", "\\,", "'", '"', "%%", "%1", "\x7f", "\x01", "ä"]


@pytest.fixture(name="mount")
def fixture_mount(maker):
    return maker.mount("allow_other", "at-sign=%")


def overwrite(path, content):
    """In one change."""
    fd = os.open(path, os.O_WRONLY)
    os.pwrite(fd, content, 0)
    os.close(fd)


def two_states(mount, name="f"):
    """Of a file and a directory: when they were 'one' (and the content of the directory)."""
    directory = mount.path / "dir"
    directory.mkdir(exist_ok=True)
    for path in (mount.path / name, directory / name):
        path.write_text("one")
    when = moment()
    for path in (mount.path / name, directory / name):
        overwrite(path, b"two")
    return when


def test_one_character_that_no_time_has_is_accepted(maker):
    mount = maker.mount(start=False)
    for mark in VALID + "@":
        mount.start(f"at-sign={mark}")
        (mount.path / "f").write_text("one")
        when = moment()
        (mount.path / "f").write_text("two")
        assert (mount.path / f"f{mark}{epoch(when)}").read_text() == "one", mark
        assert (mount.path / f"{mark}{epoch(when)}" / "f").read_text() == "one", mark
        mount.stop()


def test_other_characters_are_refused(maker):
    mount = maker.mount(start=False)
    for mark in INVALID:
        status, output = mount.refused(f"at-sign={mark}")
        assert status == 2 and "not allowed between NAME and TIME; use one of @!#" in output, (mark, output)


def test_paths(mount):
    when = two_states(mount)
    text = epoch(when)
    mount.tool("vsnap", "create", "before", mount.path)
    (mount.path / "f").unlink()
    for path, content in ((f"f%{text}", "one"), (f"%{text}/f", "one"), (f"dir%{text}/f", "one"), ("f%before", "two"),
                          (".snapshot/before/f", "two"), (f".snapshot/{text}/f", "one"), ("dir/.snapshot/before/f", "two"),
                          (f"%before/dir/f%{text}", "one"), ("dir/f%~1", "one")):
        assert (mount.path / path).read_text() == content, path
    for name in (f"f@{text}", "@now", "f@before", "dir@before"):
        assert not (mount.path / name).exists(), name
    # The other mark is a character like any other; this one has the role of '@': real entries win.
    mount.path.chmod(0o777)
    for name in ("@now", "@v", "dir@before", "dir%before"):
        mount.tool("mkdir", mount.path / name, user=SECOND)
        (mount.path / name / "own").write_text(name)
    assert sorted(os.listdir(mount.path / "dir%before")) == ["own"]
    with pytest.raises(OSError, match="Read-only"):
        (mount.path / "dir%now" / "new").write_text("x")
    (mount.path / "dir%before" / "own").unlink()
    (mount.path / "dir%before").rmdir()
    assert (mount.path / "dir%before" / "f").read_text() == "two"
    os.symlink("dir%before", mount.path / "link")
    assert os.readlink(mount.path / "link") == "dir%before" and (mount.path / "link" / "f").read_text() == "two"


def test_a_snapshot_may_have_the_mark_in_its_name(maker):
    """Made while the mark was '@', which no snapshot's name may have."""
    mount = maker.mount()
    (mount.path / "50%").write_text("one")
    for name in ("50%", "%a%b"):
        mount.tool("vsnap", "create", name, mount.path)
    (mount.path / "50%").write_text("two")
    mount.remount("at-sign=%")
    for name in ("50%", "%a%b"):
        assert (mount.path / f"50%%{name}").read_text() == "one", name
        assert (mount.path / f"%{name}" / "50%").read_text() == "one", name
        assert (mount.path / ".snapshot" / name / "50%").read_text() == "one", name
        assert json.loads(mount.tool("vstat", "--json", mount.path / ".snapshot" / name / "50%").stdout)["versions"], name
    # The shortest TIME counts.
    assert not (mount.path / "50%%b").exists()
    mount.tool("vsnap", "create", "b", mount.path)
    (mount.path / "50%").write_text("three")
    assert (mount.path / "50%%b").read_text() == "two" and not (mount.path / "50%%%a%b").exists()


def test_names_of_samba_are_unchanged(maker):
    mount = maker.mount("at-sign=#", "snapnames=gmt", "snapdir=visible")
    (mount.path / "f").write_text("one")
    mount.tool("vsnap", "create", "s", mount.path)
    (mount.path / "f").write_text("two")
    [name] = os.listdir(mount.path / ".snapshot")
    assert name.startswith("@GMT-")
    for path in (f".snapshot/{name}/f", f"f#{name}", f"#{name}/f", f"f#{name[1:]}"):
        assert (mount.path / path).read_text() == "one", path


def test_the_directory_of_snapshots_has_no_mark_in_its_name(maker):
    mount = maker.mount(start=False)
    for options in (("snapdir=old%", "at-sign=%"), ("at-sign=%", "snapdir=old%"), ("snapdir=old@",)):
        status, output = mount.refused(*options)
        assert status == 2 and "something at a time" in output
    mount.start("snapdir=old@", "at-sign=%")
    (mount.path / "f").write_text("one")
    mount.tool("vsnap", "create", "s", mount.path)
    assert (mount.path / "old@" / "s" / "f").read_text() == "one"


def test_tools(mount, maker):
    out = maker.tree()
    when = two_states(mount)
    text = epoch(when)
    mount.tool("vsnap", "create", "before", mount.path)
    inside = f"{mount.path}/dir%{text}/f"
    assert json.loads(mount.tool("vstat", "--json", inside).stdout)["versions"]
    mount.tool("vextract", f"{mount.path}/f%{text}", "-o", f"{out}/x")
    assert (out / "x").read_text() == "one"
    # Its own name for the result: with the mark outside, with a dot in the mount.
    mount.tool("vextract", "--time", text, mount.path / "f", cwd=out)
    mount.tool("vextract", "--time", "before", mount.path / "dir", cwd=out)
    mount.tool("vextract", "--change", "1", mount.path / "f", cwd=out)
    assert (out / f"f%{text}").read_text() == "one" and (out / "dir%before/f").read_text() == "two"
    assert (out / "f%~1").read_text() == "one"
    mount.tool("vextract", "--time", text, mount.path / "f", cwd=mount.path)
    assert (mount.path / f"f.{text}").read_text() == "one"
    # As '@' may begin a TIME on a command line, the mark may.
    for mark in "@%":
        mount.tool("vextract", "--time", f"{mark}{text}", mount.path / "f", "-o", f"{out}/{mark}")
        assert (out / mark).read_text() == "one"
        mount.tool("vextract", "--time", f"{mark}before", mount.path / "f", "-o", f"{out}/b{mark}")
        assert (out / f"b{mark}").read_text() == "two"
    mount.tool("vextract", "--time", "%1400", mount.path / "f", "-o", f"{out}/no", status=2)
    head = mount.tool("vdiff", mount.path / "f", text, "before").stdout.splitlines()[0]
    assert head.count("%") == 2 and "@" not in head, head
    assert mount.tool("vdiff", mount.path / "f", text).stdout.splitlines()[0].count("%") == 1
    (mount.path / "dir/f").unlink()
    found = mount.tool("vfind", f"{mount.path}/dir%{text}").stdout
    assert "f" in found and f"%{text}" not in found.split("vrevert")[-1]
    mount.tool("vrevert", "--time", f"%{text}", mount.path / "dir")
    assert (mount.path / "dir/f").read_text() == "one"
    mount.tool("vrevert", "--time", text, mount.path / "f")
    assert (mount.path / "f").read_text() == "one"
    assert "%TIME" in mount.tool("vrm", "--history", "--yes", inside, status=1).stdout
    for tool in (("vlog", inside), ("vdf", f"{mount.path}/dir%{text}"), ("vcompact", f"{mount.path}/dir%{text}"),
                 ("vsnap", "diff", "before", mount.path)):
        mount.tool(*tool)


def test_tools_in_directories_that_are_gone(mount):
    """They make the paths of these themselves."""
    (mount.path / "a" / "b").mkdir(parents=True)
    long = "n" * 250  # no room behind it for a mark and a time
    for name in ("f", long):
        (mount.path / "a/b" / name).write_text("one")
    when = moment()
    mount.tool("rm", "-r", mount.path / "a")
    listed = mount.tool("vfind", "*", mount.path).stdout
    assert "f" in listed and long in listed
    for name in ("f", long):
        mount.tool("vrevert", "--time", epoch(when), mount.path / "a/b" / name)
        assert (mount.path / "a/b" / name).read_text() == "one"
    mount.tool("vrm", "--recursive", "--yes", mount.path / "a")


def test_vsnap_warns_of_names_behind_an_at_only_if_that_is_the_mark(mount, maker):
    for tree, warned in ((mount, False), (maker.mount(), True)):
        assert ("after an '@'" in tree.tool("vsnap", "create", "v1.2.3", tree.path).stdout) == warned
        assert ("after an '@'" in tree.tool("vsnap", "rename", "v1.2.3", "v1.2.4", tree.path).stdout) == warned


def test_a_snapshot_of_one_directory(mount):
    (mount.path / "a").mkdir()
    two_states(mount)
    mount.tool("vsnap", "create", "of-a", mount.path / "a")
    mount.tool("vextract", "--time", "of-a", mount.path / "dir/f", "-o", "-", status=2)
    assert not (mount.path / "dir%of-a").exists() and (mount.path / "a%of-a").is_dir()


def test_moments_and_branches(mount, maker):
    when = two_states(mount)
    point = maker.point()
    mount.tool("vsnap", "view", epoch(when), point, mount.path)
    try:
        assert (point / "f").read_text() == "one" and (point / "dir%now/f").read_text() == "two"
        source = run("findmnt", "-n", "-o", "SOURCE", point).stdout
        assert source.startswith(f"{mount.source}%") and "@" not in source
    finally:
        run("umount", point)
    branch, home = maker.point(), maker.tree()
    run(mount.programs.directory / "wayback", "-o", f"at-sign=%,at={epoch(when)},branch={home},allow_other", mount.source,
        branch, env=mount.programs.environment(), timeout=LIMIT)
    try:
        assert (branch / "f").read_text() == "one"
        assert run("findmnt", "-n", "-o", "SOURCE", branch).stdout.startswith(f"{mount.source}%")
    finally:
        run("umount", branch)
        wait_for_exit(home / ".wayback")


def test_an_ordinary_user(mount):
    mount.path.chmod(0o777)
    script = "mkdir d; echo one > d/f; sleep 0; mkdir 'd%now' && rmdir 'd%now' && cat 'd%0s/f'"
    assert mount.tool("env", "-C", mount.path, "sh", "-ec", script, user=SECOND).stdout == "one\n"


def test_the_next_daemon_has_the_mark_of_the_last(maker, programs):
    source, point = maker.tree(), maker.point()
    run(programs.directory / "wayback", "-o", "auto_remount,at-sign=%", source, point, env=programs.environment(),
        timeout=LIMIT)
    try:
        (point / "f").write_text("one")
        os.kill(processes(point)[-1], signal.SIGKILL)
        wait_until(lambda: answers(point))
        assert (point / "f%now").read_text() == "one" and not (point / "f@now").exists()
    finally:
        run("umount", point)
        wait_until(lambda: not processes(point))


def test_mount_8(maker, programs, helper):
    source, point, table = maker.tree(), maker.point(), maker.scratch / "fstab"
    table.write_text(f"{source} {point} wayback noauto,allow_other,at-sign=% 0 0\n", encoding="utf-8")

    def mount(*words, check=True):
        return run("mount", "-T", table, *words, point, env=programs.environment(), timeout=LIMIT, check=check)

    mount()
    (point / "f").write_text("one")
    # The line's own mark is no change; another one is.
    for words in (("-o", "remount,ro"), ("-o", "remount,rw,noatime")):
        mount(*words)
        assert (point / "f%now").read_text() == "one"
    for mark in "#@":
        result = mount("-o", f"remount,ro,at-sign={mark}", check=False)
        assert result.returncode != 0 and "at-sign" in result.stdout and "unmount" in result.stdout, result.stdout
    assert "rw" in run("findmnt", "-n", "-o", "OPTIONS", point).stdout.split(",")
    (point / "f").write_text("two")
    assert mounted_at(point) == "fuse.wayback"
    run("umount", point)
    wait_for_exit(source / ".wayback")
