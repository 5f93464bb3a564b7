# SPDX-License-Identifier: LGPL-2.1-or-later
"""What people want from a history, each by the commands of `wayback` that a new user finds in its help, and no more of
them than is said here."""
import os
import re
import shlex
import subprocess

import pytest

from mounts import epoch, moment, run
from test_enable import fixture_machine  # noqa: F401 pylint: disable=unused-import
from treestate import differences, state_of


class Shell:
    """The directory of the mount, where the user may give so many commands."""

    def __init__(self, mount, most):
        self.mount, self.left = mount, most

    def wayback(self, line, status=0, answer=""):
        self.left -= 1
        assert self.left >= 0, f"one command too many: {line}"
        command = [self.mount.programs.directory / "wayback", *shlex.split(line)]
        result = subprocess.run([str(word) for word in command], cwd=self.mount.path, input=answer, text=True, check=False,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=self.mount.programs.environment())
        assert result.returncode == status, result.stdout
        return result.stdout


def tree(top):
    for name in ("proj/lib", "proj/doc"):
        (top / name).mkdir(parents=True)
        for number in range(5):
            (top / name / f"f{number}").write_text(f"alpha {number}\n")


def harm(mount):
    script = mount.source.parent / "harm.sh"
    script.write_text("rm -rf proj/doc\nsed -i s/alpha/omega/ proj/lib/*\n")
    run("sh", script, cwd=mount.path)


def test_undo_a_script_and_keep_later_edits(mount):
    tree(mount.path)
    was = state_of(mount.path / "proj/doc")
    harm(mount)
    run("sh", "-c", "echo mine >> proj/lib/f0; echo mine > proj/lib/new",
        cwd=mount.path)
    shell = Shell(mount, 2)
    said = shell.wayback("log proj")
    assert "rm -rf proj/doc" in said and "sed -i s/alpha/omega/" in said
    said = shell.wayback("restore proj --command 'rm -rf' --command 'sed -i'")
    for number in range(1, 5):
        assert (mount.path / f"proj/lib/f{number}").read_text() == f"alpha {number}\n"
        assert (mount.path / f"proj/doc/f{number}").read_text() == f"alpha {number}\n"
    assert (mount.path / "proj/lib/f0").read_text() == "omega 0\nmine\n"
    assert (mount.path / "proj/lib/new").read_text() == "mine\n"
    assert "proj/lib/f0: kept, because another command changed it, too" in said
    assert said.count("kept") == 1
    assert differences(was, state_of(mount.path / "proj/doc")) == []


def test_find_the_version_before_a_line_changed(mount):
    path = mount.path / "code.py"
    for number in range(50):
        path.write_text(f"limit = {10 if number < 23 else 20}\n# {number}\n")
    said = Shell(mount, 1).wayback("list --containing 'limit = 10' code.py")
    number = re.search(r"last: version (\d+)", said)[1]
    assert mount.tool("vextract", "--show", f"{path}@~{number}").stdout.startswith("limit = 10")
    shown = mount.tool("vextract", "--show", "--change", str(int(number) - 1), path).stdout
    assert shown.startswith("limit = 10") and "# 22" in shown


def test_see_what_changed_since_this_morning(mount):
    tree(mount.path)
    then = epoch(moment())
    harm(mount)
    shell = Shell(mount, 3)
    assert "rm -rf proj/doc" in shell.wayback("log --since 'this morning'")
    said = shell.wayback(f"diff --brief . {then}")
    assert "proj/doc" in said and "proj/lib/f3" in said
    said = shell.wayback(f"diff proj/lib/f3 {then}")
    assert "-alpha 3" in said and "+omega 3" in said


def test_thirty_days_and_twenty_gigabytes_at_each_boot(machine):
    one = machine(systemd=False)
    said = one.enable("--keep", "30d", "--max", "20G")  # wayback enable DIR --keep 30d --max 20G
    assert one.is_mounted()
    assert "set keep = 30d" in said and "set max-size = 20G" in said


def test_free_the_history_of_one_big_file(mount):
    tree(mount.path)
    for _ in range(3):
        (mount.path / "proj/disk.img").write_bytes(os.urandom(1 << 20))
    shell = Shell(mount, 2)
    line = next(line for line in shell.wayback("usage").splitlines() if line.endswith("proj/disk.img"))
    said, command = re.search(r"^ *(\S+ \S+) .*(wayback rm .*)$", line).groups()
    freed = shell.wayback(command.removeprefix("wayback ") + " -y")
    assert re.search(r"([\d.]+ \w+) freed", freed)[1] == said == "2.0 MiB"
    assert (mount.path / "proj/disk.img").stat().st_size == 1 << 20


def test_a_directory_that_the_user_made_again_is_kept(mount):
    tree(mount.path)
    harm(mount)
    run("sh", "-c", "mkdir proj/doc; echo mine > proj/doc/new", cwd=mount.path)
    result = mount.run_tool("vrevert", "proj", "--command", "rm -rf", cwd=mount.path)
    assert os.listdir(mount.path / "proj/doc") == ["new"]
    for name in ("proj/doc", *(f"proj/doc/f{number}" for number in range(5))):
        assert f"{name}: kept, because another command changed it, too" in result.stdout


def test_a_file_that_a_command_renamed_and_the_user_changed_is_kept(mount):
    tree(mount.path)
    run("mv", "proj/doc/f1", "proj/doc/renamed", cwd=mount.path)
    (mount.path / "proj/doc/renamed").write_text("mine")
    before = state_of(mount.path)
    result = mount.run_tool("vrevert", "proj", "--command", "mv proj", cwd=mount.path)
    assert "proj/doc/renamed: kept" in result.stdout and "proj/doc/f1: kept" in result.stdout
    assert differences(before, state_of(mount.path)) == []


@pytest.mark.parametrize("later", ["rename", "new in a renamed directory"])
def test_a_directory_that_was_renamed_by_one_and_used_by_another(mount, later):
    """Neither moves anything that the other one left there."""
    tree(mount.path)
    if later == "rename":
        run("sh", "-c", "rm proj/lib/f1", cwd=mount.path)
        run("mv", "proj/lib", "proj/moved", cwd=mount.path)
    else:
        run("mv", "proj/lib", "proj/moved", cwd=mount.path)
        run("sh", "-c", "echo mine > proj/moved/new", cwd=mount.path)
    before = state_of(mount.path)
    result = mount.run_tool("vrevert", "proj", "--command", "rm proj" if later == "rename" else "mv proj",
                            cwd=mount.path)
    assert result.returncode == 0 and "kept, because another command" in result.stdout
    assert differences(before, state_of(mount.path)) == []


def test_a_command_that_renamed_a_directory(mount):
    tree(mount.path)
    was = state_of(mount.path / "proj/lib")
    run("mv", "proj/lib", "proj/moved", cwd=mount.path)
    (mount.path / "own").write_text("mine")
    mount.tool("vrevert", "proj", "--command", "mv proj/lib", cwd=mount.path)
    assert sorted(os.listdir(mount.path / "proj")) == ["doc", "lib"] and (mount.path / "own").exists()
    assert differences(was, state_of(mount.path / "proj/lib")) == []


def test_commands_that_changed_nothing(mount):
    tree(mount.path)
    result = mount.run_tool("vrevert", "proj", "--command", "never run", cwd=mount.path)
    assert result.returncode == 1 and "no such command changed anything there" in result.stdout
    for wrong in (("-c", "1"), ("proj/lib",)):
        assert mount.run_tool("vrevert", "proj", "--command", "x", *wrong, cwd=mount.path).returncode == 2
