# SPDX-License-Identifier: LGPL-2.1-or-later
"""Messages that people meet: each names the thing, and what to do."""
import pytest
from mounts import run


@pytest.mark.parametrize("tool, arguments, said", [
    ("vextract", ("f", "--change", "~1"), "--change takes a number: 1"), ("vrevert", ("-c", "~12", "f"), "--change takes a number: 12"),
    ("vextract", ("f", "--change=~3"), "--change takes a number: 3"), ("vextract", ("f", "-cx"), "--change takes a number, such as 1; 'x' is none"),
    ("vextract", ("--change", "1x", "f"), "--change takes a number, such as 1; '1x' is none"),
    ("vsend", ("--since", "", "f"), "--since is empty: did `vreceive --status` fail?")])
def test_wrong_usage(mount, tool, arguments, said):
    assert mount.tool(tool, *arguments, status=2).stdout.splitlines() == [f"{tool}: {said}", f"Try '{tool} --help'."]


def test_a_number_that_is_one(mount):
    """Numbers below zero and the words after -- are none of its business."""
    assert "is not the number of a version" in mount.tool("vextract", "f", "--change", "-1", status=2).stdout
    assert "takes a number" not in mount.tool("vextract", "--change", "1", "--", mount.path / "--change", status=1).stdout


def test_a_part_of_a_tree_is_not_pruned(mount):
    (mount.path / "a b").mkdir()
    said = mount.tool("vprune", "-y", "--before", "1m", mount.path / "a b", status=1).stdout
    assert said == f"vprune: {mount.path}/a b: --before works on whole trees (root: {mount.path}). " \
                   f"For one path: wayback rm --before 1m '{mount.path}/a b'\n"
    (mount.path / "a b/f").write_bytes(b"x")
    # The command that is named works.
    assert mount.run_tool("wayback", "rm", "-y", "-r", "--before", "0s", mount.path / "a b").returncode == 0


def test_no_changes(mount):
    (mount.path / "f").write_bytes(b"x")
    assert mount.tool("vlog", "--command", "cleanup.sh", mount.path).stdout == \
        f"No changes of {mount.path} by a command containing 'cleanup.sh'.\n"
    assert mount.tool("vlog", "--until", "now", "--command", "no", mount.path / "f").stdout == \
        f"No changes of {mount.path}/f by a command containing 'no' in that time.\n"


@pytest.mark.parametrize("command", [("vsend",), ("vfsck", "-n"), ("vstore", "status"), ("vstore", "move", "-n")], ids=" ".join)
def test_a_part_of_a_tree_is_refused(mount, maker, command):
    """What works on whole trees does not take the name of a part for one: private siblings would be sent as well."""
    (mount.path / "d e").mkdir()
    tool, *options = command
    more = [maker.tree("tmpfs") / "new"] if "move" in options else []
    name = " ".join(command[:1])
    said = mount.tool(tool, *options, mount.path / "d e", *more, status=8 if tool == "vfsck" else 1).stdout
    assert said == f"{name}: {mount.path}/d e: is a part of a tree; {name} works on whole trees: name its root, {mount.path}\n"
    said = mount.tool(tool, *options, "d e", *more, status=8 if tool == "vfsck" else 1, cwd=mount.path).stdout
    assert f"name its root, {mount.path}" in said
    # Through another mount of that directory, it is still a part.
    bound = maker.tree("tmpfs")
    run("mount", "--bind", mount.path / "d e", bound)
    try:
        assert "is a part of a tree" in mount.tool(tool, *options, bound, *more, status=8 if tool == "vfsck" else 1).stdout
    finally:
        run("umount", bound)
    if tool != "vsend":
        mount.tool(tool, *options, mount.path, *more)
        mount.tool(tool, *options, mount.source, *more)
