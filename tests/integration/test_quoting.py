# SPDX-License-Identifier: LGPL-2.1-or-later
"""Names with bytes that control a terminal, start lines of their own or reverse text: nothing prints them raw."""
import json
import os
import re
import subprocess

import pytest

from mounts import moment

FORGED = "wayback: the history is damaged"
NAMES = {"escape": b"a\x1b[2Jb", "newline": b"a\n" + FORGED.encode() + b"; x", "c1": "a\x9b2Jb".encode(),
         "bidi": "a\u202etxt.exe".encode(), "invalid": b"a\xff\xfe'\\", "delete": b"\x7f \t\r"}
BAD = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


@pytest.fixture(name="name", params=sorted(NAMES))
def fixture_name(request):
    return NAMES[request.param]


def output(mount, *command, status=0):
    """Of standard output and error, as text; nothing in it is invisible, and each line is the program's own."""
    result = subprocess.run(command, env=mount.programs.environment(), stdin=subprocess.DEVNULL, cwd="/",
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, timeout=300)
    text = result.stdout.decode("utf-8")
    assert result.returncode == status, text
    assert not BAD.search(text), ascii(text)
    assert not any(line.startswith(FORGED) for line in text.splitlines()), text
    return text


def shell(mount, line):
    result = subprocess.run(["bash", "-c", line], env=mount.programs.environment(), cwd="/", stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, timeout=300)
    assert result.returncode == 0, (line, result.stdout)


def test_the_hint_of_vfind_shows_and_restores_any_name(mount, name):
    path = os.path.join(os.fsencode(mount.path), name)
    with open(path, "wb") as stream:
        stream.write(b"text")
    os.unlink(path)
    text = output(mount, "vfind", "--deleted", "-v", mount.path)
    [hint] = [line for line in text.splitlines() if line.strip().startswith("vrevert ")]
    shell(mount, hint)
    with open(path, "rb") as stream:
        assert stream.read() == b"text"
    row = json.loads(output(mount, "vfind", "--json", mount.path).splitlines()[0])
    try:
        assert row["path"].endswith(name.decode())
    except UnicodeDecodeError:
        assert "\ufffd" in row["path"]


def test_the_undo_of_vrevert_and_lists_of_changes(mount, name):
    path = os.path.join(os.fsencode(mount.path), name)
    with open(path, "wb") as stream:
        stream.write(b"one")
    then = moment()
    with open(path, "wb") as stream:
        stream.write(b"two")
    text = output(mount, "vrevert", "--time", f"{then / 10**9:.9f}", path)
    [undo] = [line for line in text.splitlines() if line.startswith("undo: ")]
    with open(path, "rb") as stream:
        assert stream.read() == b"one"
    shell(mount, undo.removeprefix("undo: "))
    with open(path, "rb") as stream:
        assert stream.read() == b"two"
    for command in (("vstat", path), ("vstat", "--json", path), ("vlog", mount.path), ("vlog", "--json", mount.path),
                    ("vdf", mount.path)):
        output(mount, *command)


def test_arguments_that_are_echoed(mount, name):
    for tool in ("vstat", "vdiff", "vextract", "vrevert", "vlog", "vdf"):
        output(mount, tool, b"--no-such-option-" + name, mount.path, status=2)
    output(mount, "vstat", os.path.join(os.fsencode(mount.path), b"nothing-" + name), status=1)
    output(mount, "vlog", "--since", name, mount.path, status=2)


def test_messages_of_the_daemon(mount, name):
    path = os.path.join(os.fsencode(mount.path), name)
    with open(path, "wb") as stream:
        stream.write(b"text")
    then = moment()
    os.unlink(path)
    [body] = (mount.source / ".wayback/objects").glob("*/*.data")
    body.unlink()
    mount.expect("^wayback: ")
    with pytest.raises(OSError):
        with open(os.path.join(os.fsencode(mount.at(then)), name), "rb") as stream:
            stream.read()
    text = mount.log()
    assert "was removed, and is not in the store" in text
    assert not BAD.search(text), ascii(text)
    assert not any(line.startswith(FORGED) for line in text.splitlines()), text
