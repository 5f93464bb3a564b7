# SPDX-License-Identifier: LGPL-2.1-or-later
"""On a terminal, vrevert and vundo list the files that they would remove, and ask."""
import os
import pty
import subprocess

import pytest

from enabling import all_of_terminal
from mounts import LIMIT, epoch, moment
from treestate import differences, state_of


def on_terminal(mount, answer, *command, status=0):
    """Standard input and error are a terminal; the output of both, as it looks."""
    mine, theirs = pty.openpty()
    os.write(mine, answer)
    try:
        result = subprocess.run([str(part) for part in command], stdin=theirs, stdout=theirs, stderr=theirs, check=False, timeout=LIMIT,
                                cwd=mount.path, env=mount.programs.environment())
    finally:
        text = all_of_terminal(mine, theirs).replace("\r\n", "\n")
    assert result.returncode == status, text
    return text


@pytest.fixture(name="made")
def fixture_made(mount):
    """d/kept was changed, and 12 files were made, since mount.when."""
    (mount.path / "d").mkdir()
    (mount.path / "d" / "kept").write_bytes(b"1")
    mount.when = moment()
    (mount.path / "d" / "kept").write_bytes(b"2")
    for number in range(12):
        (mount.path / "d" / f"made{number:02}").touch()
    return mount


@pytest.mark.parametrize("answer", [b"n\n", b"\n", b"\x04", b"maybe\n"])
def test_no(made, answer):
    state = state_of(made.path)
    text = on_terminal(made, answer, "vrevert", "d", "-t", epoch(made.when), status=1)
    assert "vrevert: this overwrites 1 file and removes 12 names that did not exist then\n    d/made00\n" in text
    assert "    d/made09\n    and 2 more\nThe history keeps them. Remove? [y/N] " in text and "d/made10" not in text
    assert max(map(len, text.split(" Remove?")[0].splitlines())) <= 80
    assert "d: nothing was changed; --remove does it without a question\n" in text
    assert differences(state, state_of(made.path)) == []


def test_yes(made):
    text = on_terminal(made, b"y\n", "vrevert", "d", "-t", epoch(made.when))
    assert "Remove? [y/N] " in text and "12 removed" in text
    assert os.listdir(made.path / "d") == ["kept"] and (made.path / "d" / "kept").read_bytes() == b"1"
    # Nothing is removed by taking that back, but by doing it again.
    assert "Remove?" not in on_terminal(made, b"", "vundo")
    text = on_terminal(made, b"n\n", "vundo", "--redo", status=1)
    assert "vundo: this overwrites 1 file and removes 12 names" in text and len(os.listdir(made.path / "d")) == 13
    assert "Remove?" not in on_terminal(made, b"", "vundo", "--redo", "--remove")
    assert os.listdir(made.path / "d") == ["kept"]


@pytest.mark.parametrize("options", [("--remove",), ("-n",), ("--json",)])
def test_without_a_question(made, options):
    text = on_terminal(made, b"", "vrevert", "d", "-t", epoch(made.when), *options)
    assert "Remove?" not in text and (len(os.listdir(made.path / "d")) == 13) == (options == ("-n",))


def test_only_a_removal_is_asked_for(made):
    assert "Remove?" not in on_terminal(made, b"", "vrevert", "d/kept", "-t", epoch(made.when))
    assert "Remove?" in on_terminal(made, b"y\n", "vrevert", "d/made03", "-t", epoch(made.when))
    assert not (made.path / "d" / "made03").exists()


def test_scripts_are_not_asked(made):
    made.tool("vrevert", "d", "-t", epoch(made.when), cwd=made.path)
    assert os.listdir(made.path / "d") == ["kept"]
