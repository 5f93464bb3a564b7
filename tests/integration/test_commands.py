# SPDX-License-Identifier: LGPL-2.1-or-later
"""The command lines of other users: the name of the program, and no more; and which part of them is recorded."""
import json
import os
import subprocess
import time

import pytest

from mounts import LIMIT, NOBODY, SECOND

SECRET = "s3cret-password"
READERS = {"vstat": ("vstat", "--json"), "vlog": ("vlog", "--json"), "vfind": ("vfind", "--deleted", "--json")}


def change(mount, text, user=None, program="sh"):
    """A file is written and another removed by a command line that has a secret in it."""
    script = f'echo x > "{mount.path}/f"; echo x > "{mount.path}/gone"; rm -f "{mount.path}/gone" {text}'
    command = [] if user is None else ["setpriv", f"--reuid={user[0]}", f"--regid={user[1]}", "--clear-groups"]
    subprocess.run(command + [program, "-c", script], check=True)


def commands(mount, tool, user):
    """All command lines that a tool shows to a user: as JSON, and the whole text of both forms."""
    path = mount.path / "f" if tool == "vstat" else mount.path
    result = mount.run_tool(*READERS[tool], path, user=user, merge=False)
    assert result.returncode == 0, result.stderr
    values = [json.loads(line) for line in result.stdout.splitlines()] if tool != "vstat" else \
        json.loads(result.stdout)["versions"]
    values = [entry for value in values for entry in (value if isinstance(value, list) else [value])]
    text = mount.run_tool(READERS[tool][0], "-v", *READERS[tool][1:-1], path, user=user, merge=False)
    assert text.returncode == 0, text.stderr
    return {value["command"] for value in values if value.get("command")}, result.stdout + text.stdout


def configure(mount, value):
    with open(mount.source / ".wayback/wayback.conf", "a", encoding="ascii") as stream:
        stream.write(f"\n[history]\ncommands = {value}\n")


@pytest.fixture(name="shared")
def fixture_shared(maker):
    mount = maker.mount("allow_other")
    os.chmod(mount.path, 0o777)
    return mount


@pytest.mark.parametrize("tool", sorted(READERS))
def test_others_see_the_name_of_the_program_alone(shared, tool):
    change(shared, SECRET)
    assert SECRET in commands(shared, tool, None)[1]
    names, text = commands(shared, tool, SECOND)
    assert SECRET not in text and "echo" not in text
    assert names & {"sh", "rm"} and not any(set(name) & set("/ ") for name in names)


@pytest.mark.parametrize("tool", sorted(READERS))
def test_the_same_user_sees_whole_lines(shared, tool):
    change(shared, SECRET, user=SECOND)
    assert SECRET in commands(shared, tool, SECOND)[1]
    assert SECRET in commands(shared, tool, None)[1]
    assert SECRET not in commands(shared, tool, NOBODY)[1]


def test_a_search_for_words_of_a_line_finds_nothing_for_others(shared):
    change(shared, SECRET)
    assert "f" in shared.tool("vlog", "--command", SECRET, shared.path).stdout
    assert shared.run_tool("vlog", "--json", "--command", SECRET, shared.path, user=SECOND, merge=False).stdout == ""


def test_a_program_in_a_private_directory_shows_only_its_name(shared, maker):
    """With blanks in the path, a line alone does not show where the name of the program ends."""
    place = maker.scratch / "my private place" / "of secrets"
    place.mkdir(parents=True)
    program = place / "change it"
    program.write_text(f'#!/bin/sh\necho x > "{shared.path}/f"\n')
    program.chmod(0o755)
    os.symlink("/bin/sh", place / "shell")
    change(shared, SECRET, program=place / "shell")
    for tool in ("vstat", "vlog"):
        assert "my private place" in commands(shared, tool, None)[1]
        names, text = commands(shared, tool, SECOND)
        assert "private" not in text and "my" not in text and "place" not in text
        assert "[shell]" in names and SECRET not in text


@pytest.mark.parametrize("value, shown", [("name", {"sh", "rm"}), ("none", set()), ("full", None)])
def test_parts_of_a_command_that_are_recorded(maker, value, shown):
    mount = maker.mount("allow_other")
    mount.stop()
    (mount.source / ".wayback/wayback.conf").write_text("", encoding="ascii")
    configure(mount, value)
    mount.start()
    change(mount, SECRET)
    found = commands(mount, "vlog", None)[0]
    settings = json.loads(mount.tool("wayback", "--check-config", "--json", mount.source).stdout)
    assert settings["commands"] == value
    mount.stop()
    content = (mount.source / ".wayback/actors").read_bytes()
    assert (SECRET.encode() in content) == (value == "full")
    assert found == shown if shown is not None else any(SECRET in command for command in found)
    mount.start()


def test_recording_follows_the_file(shared):
    """Also for a process that was recorded before, whose index the daemon remembers."""
    with subprocess.Popen(["sh", "-c", f'while read -r name; do echo x > "{shared.path}/$name"; echo; done; : {SECRET}'],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as shell:
        def touch(name):
            shell.stdin.write(f"{name}\n")
            shell.stdin.flush()
            assert shell.stdout.readline() == "\n"

        def command_of(name):
            versions = json.loads(shared.tool("vstat", "--json", shared.path / name).stdout)["versions"]
            return versions[0].get("command")

        touch("first")
        assert SECRET in command_of("first")
        (shared.source / ".wayback/wayback.conf").write_text("[history]\ncommands = name\n", encoding="ascii")
        turn, deadline = 0, time.monotonic() + LIMIT
        while SECRET in command_of(f"turn{turn}" if turn else "first") and time.monotonic() < deadline:
            turn += 1
            touch(f"turn{turn}")
        assert command_of(f"turn{turn}") == "sh"
        shell.stdin.close()


def test_a_mistake_elsewhere_in_the_file_does_not_record_more(maker):
    mount = maker.mount("allow_other")
    mount.stop()
    (mount.source / ".wayback/wayback.conf").write_text("[history]\ncommands = none\nkep = 7d\n", encoding="ascii")
    mount.expect("wayback.conf")
    mount.start()
    change(mount, SECRET)
    mount.stop()
    assert SECRET.encode() not in (mount.source / ".wayback/actors").read_bytes()
    mount.start()
