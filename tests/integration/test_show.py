# SPDX-License-Identifier: LGPL-2.1-or-later
"""`wayback show`: a state on standard output, and a copy beside the present one."""
import os
import re
import subprocess
import time

import pytest

from mounts import epoch, moment


@pytest.fixture(name="past")
def fixture_past(mount):
    """d with a file, a link, a fifo and a directory; all but the file are gone."""
    root = mount.path
    (root / "d" / "sub").mkdir(parents=True)
    (root / "d" / "f").write_bytes(b"one\0\xff\n" * 30_000)
    (root / "d" / "f").chmod(0o640)
    (root / "d" / "l").symlink_to("f with\nnewline")
    os.mkfifo(root / "d" / "p")
    mount.when = moment()
    mount.iso = time.strftime("%Y-%m-%dT%H.%M.%S", time.localtime(mount.when // 10**9)) + f".{mount.when % 10**9:09d}"
    (root / "d" / "f").write_bytes(b"two")
    (root / "d" / "l").unlink()
    (root / "d" / "p").unlink()
    (root / "d" / "sub").rmdir()
    return mount


def show(mount, *arguments, status=0, verb="show"):
    return mount.tool("wayback", verb, *arguments, status=status, cwd=mount.path).stdout


def content(mount, *arguments):
    return subprocess.run(["vextract", "--show", *arguments], stdout=subprocess.PIPE, check=True, cwd=mount.path,
                          env=mount.programs.environment()).stdout


def test_content(past):
    at = epoch(past.when)
    assert content(past, f"d/f@{at}") == content(past, "d/f", "-t", at) == content(past, "-c", "1", "d/f") == \
        b"one\0\xff\n" * 30_000
    assert content(past, "d/f") == b"two"
    assert show(past, f"d/l@{at}") == show(past, "d/l", "-t", at) == show(past, "d/l", "--change", "1") == "f with\nnewline\n"
    assert sorted(os.listdir(past.path / "d")) == ["f"]


def test_a_directory(past):
    for arguments in ((f"d@{epoch(past.when)}",), ("d", "--time", epoch(past.when))):
        lines = show(past, *arguments).splitlines()
        assert re.match(r"d\S* as of 20", lines[0]) and lines[1].split() == ["MODE", "OWNER", "SIZE", "MODIFIED", "NAME"]
        assert [(line.split()[0], line.split()[2]) for line in lines[2:]] == \
            [("-rw-r-----", "180000"), ("lrwxrwxrwx", "-"), ("prw-r--r--", "-"), ("drwxr-xr-x", "-")]
        assert lines[3].endswith("l -> f with\\nnewline") and lines[5].endswith("sub/")
        assert max(map(len, lines)) <= 80
    assert [line.split()[-1] for line in show(past, "d").splitlines()] == ["NAME", "f"]


def test_times_that_only_tools_know(past):
    assert show(past, "@begin").splitlines()[0].endswith(": empty")
    assert "did not exist at" in show(past, "d/f@begin", status=1)
    (past.path / "d" / "l").touch()
    assert content(past, "d/f@0.01s") and show(past, "d/l@~~2") == "f with\nnewline\n"
    (past.path / "a@b").write_bytes(b"real")
    assert show(past, "a@b") == "real"


@pytest.mark.parametrize("path, status, words", [
    ("nothing", 1, "now or at any time recorded"), ("d/l", 1, "--change 1 for the state before"),
    ("d/f@2020-01-01", 1, "is before the history begins"), ("d/f@2340", 2, "did you mean 23:40?"),
    ("d/f@2090-01-01", 2, "is in the future"), ("nothing@1x", 1, "no such file"), ("d/f@no-such", 2, "neither a time nor"),
    ("--json d", 2, "--show excludes"), ("-o x d", 2, "--output excludes"), ("--copy --force d@now", 2, "never overwrites")])
def test_mistakes(past, path, status, words):
    assert words in show(past, *path.split(), status=status)


def test_what_has_no_content(past):
    assert "a fifo has no content" in show(past, f"d/p@{epoch(past.when)}", status=1)


def test_copies(past):
    """To the minute, to the second, exactly; and then it is refused. Never over anything else."""
    at, root = epoch(past.when), past.path / "d"
    exact = f"f.{past.iso}"
    names = [exact[:len("f.2026-11-25T03.37")], exact[:len("f.2026-11-25T03.37.12")], exact]
    (root / names[1]).symlink_to("nowhere")
    for arguments, name in (((f"d/f@{at}",), names[0]), (("d/f", "--time", at), names[2])):
        assert f"-> d/{name} (" in show(past, "--copy", *arguments)
        assert (root / name).read_bytes() == b"one\0\xff\n" * 30_000 and (root / name).stat().st_mode & 0o777 == 0o640
    assert f"{names[2]}: exists, and has the name for this very state" in show(past, "--copy", f"d/f@{at}", status=1)
    assert sorted(os.listdir(root)) == sorted(["f", *names]) and os.readlink(root / names[1]) == "nowhere"
    assert (root / "f").read_bytes() == b"two"
    show(past, "--copy", f"d@{at}")
    assert sorted(os.listdir(past.path / f"d.{past.iso[:16]}")) == ["f", "l", "p", "sub"]
    show(past, "--copy", "-n", "d/l", "-t", at)
    assert not os.path.lexists(root / f"l.{past.iso[:16]}")
    show(past, "--copy", "d/l", "-t", at)
    assert os.readlink(root / f"l.{past.iso[:16]}") == "f with\nnewline"


def test_copies_that_have_no_place(past):
    at = epoch(past.when)
    assert "lies in a directory of the past" in show(past, "--copy", f"d@{at}/f", status=1)
    assert "choose one with vextract -o" in show(past, "--copy", ".", "-t", at, status=1)
    assert "the state is missing" in show(past, "--copy", "d/f", status=2)


def test_a_tree_that_is_not_mounted(past):
    at, source = epoch(past.when), past.source
    past.stop()
    assert show(past, f"{source}/d/l@{at}") == "f with\nnewline\n"
    assert f"-> {source}/d/f." in show(past, "--copy", f"{source}/d/f@{at}")
    assert (source / "d" / f"f.{past.iso[:16]}").read_bytes() == b"one\0\xff\n" * 30_000
