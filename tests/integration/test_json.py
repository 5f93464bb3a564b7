# SPDX-License-Identifier: LGPL-2.1-or-later
"""Everything that --json prints is what docs/json.md says: its tables are read from the page.

Each tool runs in success and in failure. Standard output is parsed strictly: one JSON object per line in UTF-8, no
member twice, no number that a reader with doubles would change.
"""
import base64
import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from enabling import Machine
from mounts import TOOLS, epoch, moment
from web import Web

PAGE = Path(__file__).resolve().parents[2] / "docs/json.md"
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}[+-]\d\d:\d\d")
EPOCH = re.compile(r"\d+\.\d{9}")
EXACT = 1 << 53  # larger integers are changed by readers that use doubles
WITHOUT = {"vbrowse"}  # on a terminal only
ELSEWHERE = {"vsend", "vreceive", "venable", "vdisable", "vweb"}  # what these do has tests of its own below
ERRORS = {"error", "errors", "errors_left_out"}


# ---- the page ----------------------------------------------------------------------------------


def tables():
    """{heading: {member: (type, present)}}"""
    found = {}
    for part in PAGE.read_text(encoding="utf-8").split("\n### ")[1:]:
        part = part.split("\n## ")[0]
        rows = re.findall(r"^\| `([^`]+)` \| ([^|]+) \| ([^|]+) \|", part, re.M)
        assert rows, part
        found[part.split("\n")[0]] = {member: (kind.strip(), present.strip()) for member, kind, present in rows}
    return found


TABLES = tables()
ERROR = {member.removeprefix("error."): (kind.strip(), present.strip()) for member, kind, present in re.findall(
    r"^\| `(error\.\w+)` \| ([^|]+) \| ([^|]+) \|", PAGE.read_text(encoding="utf-8"), re.M)}


def is_instant(value):
    return isinstance(value, dict) and set(value) == {"time", "epoch"} and TIME.fullmatch(value["time"]) and \
        EPOCH.fullmatch(value["epoch"])


TYPES = {
    "text": lambda value: isinstance(value, str),
    "word": lambda value: isinstance(value, str),
    "mode": lambda value: isinstance(value, str) and re.fullmatch("[0-7]{4}", value),
    "time": lambda value: isinstance(value, str) and TIME.fullmatch(value),
    "epoch": lambda value: isinstance(value, str) and EPOCH.fullmatch(value),
    "instant": is_instant,
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool) and abs(value) < EXACT,
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "any": lambda value: True,
}


def row_of(table, path):
    """The type and presence of a member; `path` has [] for each element of an array."""
    if path in table:
        return table[path]
    for name, row in table.items():
        pattern = re.escape(name).replace(r"\*", r"\w+")
        if "*" in name and re.fullmatch(pattern + (r"([.\[].*)?" if row[0] == "any" else ""), path):
            return row
    return None


def check_bytes(path, value, plain):
    """NAME_bytes is there only for a text that is not UTF-8, whose readable part is the text."""
    for one, shown in zip(value, plain) if isinstance(value, list) else [(value, plain)]:
        if one is not None:
            data = base64.b64decode(one, validate=True)
            with pytest.raises(UnicodeDecodeError):
                data.decode()
            assert "\ufffd" in shown, path


def check_value(table, path, value):
    row = row_of(table, path)
    assert row, f"{path} is not in the table"
    assert any(TYPES[kind](value) for kind in row[0].split(" or ")), f"{path}: {value!r} is no {row[0]}"
    if is_instant(value) or row[0] == "any":
        return
    if isinstance(value, dict):
        check_object(table, path + ".", value)
    for one in value if isinstance(value, list) else []:
        if isinstance(one, dict):
            check_object(table, path + "[].", one)
        else:
            check_value(table, path + "[]", one)


def check_object(table, prefix, value):
    for name, one in value.items():
        plain = name.removesuffix("_bytes")
        if plain != name and not row_of(table, prefix + name):
            assert row_of(table, prefix + plain)[0].startswith(("text", "array")), prefix + name
            check_bytes(prefix + name, one, value[plain])
        else:
            check_value(table, prefix + name, one)
    for member, (_, present) in table.items():
        parent, _, name = member.rpartition(".")
        if present == "always" and name and name != "*" and not name.endswith("]") and \
                re.fullmatch(re.escape(parent).replace(r"\*", r"\w+"), prefix.rstrip(".")):
            assert name in value, f"{prefix}{name} is missing in {value}"


def check_error(error):
    check_object({f"error.{name}": row for name, row in ERROR.items()}, "error.", error)
    assert error["kind"] in ("usage", "failed", "stopped")
    assert error["message"].startswith(error["problem"])
    assert all(part in error["message"] for part in (error.get("reason", ""), error.get("remedy", "")))


def check_document(heading, document):
    assert list(document)[0] == "schema" and document["schema"] == 1
    rest = {name: value for name, value in document.items() if name != "schema" and name not in ERRORS}
    if "error" in document:
        for error in document.get("errors", [document["error"]]):
            check_error(error)
        assert document.get("errors", [document["error"]])[0] == document["error"]
    if rest or "error" not in document:
        check_object(TABLES[heading], "", rest)


# ---- parsing -----------------------------------------------------------------------------------


def unique(pairs):
    assert len(dict(pairs)) == len(pairs), pairs
    return dict(pairs)


def refuse(text):
    raise ValueError(text)


def check_numbers(value):
    if isinstance(value, dict):
        value = list(value.values())
    for one in value if isinstance(value, list) else []:
        check_numbers(one)
    assert isinstance(value, (str, bool, list, type(None))) or TYPES["integer"](value), value


def parsed(output):
    """The documents of standard output, which is bytes."""
    text = output.decode("utf-8")
    assert not text or text.endswith("\n")
    found = []
    for line in text.split("\n")[:-1]:
        assert re.search(r"[\x00-\x1f\x7f]", line) is None
        document = json.loads(line, object_pairs_hook=unique, parse_constant=refuse)
        assert isinstance(document, dict)
        check_numbers(document)
        found.append(document)
    return found


def call(mount, name, *arguments, cwd=None, **options):
    """Runs it; `arguments` may be bytes. The result has bytes, too."""
    options.setdefault("stdin", subprocess.DEVNULL)
    if "input" in options:
        options.pop("stdin")
    command = [mount.programs.directory / name, *(one if isinstance(one, bytes) else str(one) for one in arguments)]
    return subprocess.run(command, stdout=options.pop("stdout", subprocess.PIPE), stderr=subprocess.PIPE, check=False,
                          cwd=cwd or mount.path, env=mount.programs.environment(), timeout=600, **options)


def documents(mount, *command, status=0, **options):
    name, verb = command[0].split(" ") if " " in command[0] else (command[0], None)
    result = call(mount, name, *([verb] if verb else []), "--json", *command[1:], **options)
    assert result.returncode == status, (command, result)
    return parsed(result.stdout)


# ---- the scene ---------------------------------------------------------------------------------


class Scene:
    """A tree with a history of every kind, and one moment in it."""

    def __init__(self, mount, scratch):
        self.mount, self.scratch = mount, scratch
        self.top = top = mount.path
        for directory in ("d", "e", "kept"):
            (top / directory).mkdir()
        (top / "d/f").write_text("one\n", encoding="utf-8")
        (top / "d/f").chmod(0o644)
        (top / "d/link").symlink_to("f")
        self.when = moment()
        (top / "d/f").write_text("two\n", encoding="utf-8")
        (top / "d/gone").write_text("gone", encoding="utf-8")
        self.later = moment()
        (top / "d/gone").unlink()
        os.rename(top / "d/f", top / "d/h")
        (top / "d/link").unlink()
        (top / "d/link").symlink_to("h")
        os.setxattr(top / "d/h", "user.note", b"1")
        (top / "d/h").chmod(0o600)
        for text in ("1", "22", "333", "4444", "55555"):
            (top / "v").write_text(text, encoding="utf-8")
        (top / "w").write_text("w", encoding="utf-8")
        self.time = epoch(self.when)

    def new(self, name):
        (self.scratch / name).mkdir()
        return self.scratch / name


@pytest.fixture
def scene(maker, tmp_path):
    return Scene(maker.mount("allow_other"), tmp_path)


def successes(scene):
    """(heading, tool with its verb, arguments), in an order that works."""
    top, time, source = scene.top, scene.time, scene.mount.source
    return [
        ("vsnap create", "vsnap create", "one", top),
        ("vsnap create", "vsnap create", "two", "-m", "a 'text'", top),
        ("vstat", "vstat", "d"), ("vstat", "vstat", "d/h", "v", "d/gone"), ("vstat", "vstat", "--limit", 1, "v"),
        ("vstat", "vstat", "--operations", "d/h", "v", "d"),
        ("vlog", "vlog"), ("vlog", "vlog", "d"), ("vlog --graph-time", "vlog", "--graph-time"),
        ("vfind", "vfind"), ("vfind", "vfind", "--all", "*"), ("vfind", "vfind", "no such name"),
        ("vfind --content", "vfind", "--content", "o"), ("vfind --content", "vfind", "--all", "--content", "o"),
        ("vstat", "vstat", "--containing", "o", "v"),
        ("vdiff", "vdiff", "d", time), ("vdiff", "vdiff", "d", time, epoch(scene.later)),
        ("vsnap list", "vsnap list"), ("vsnap list", "vsnap list", "-v"), ("vsnap list", "vsnap show", "one", "two"),
        ("vsnap diff", "vsnap diff", time), ("vsnap diff", "vsnap diff", time, "one"),
        ("vsnap rename", "vsnap rename", "two", "three"),
        ("vsnap delete", "vsnap delete", "-n", "three"), ("vsnap delete", "vsnap delete", "three"),
        ("vdf", "vdf"), ("vdf", "vdf", "-d", 2, "d", "v"),
        ("vstatus", "vstatus"), ("vstatus", "vstatus", top, "d"), ("vstatus", "vstatus", "--all"),
        ("vcompact", "vcompact", "--stats", top), ("vcompact", "vcompact", "-n", "d", "v"), ("vcompact", "vcompact", top),
        ("vextract", "vextract", "d", "-t", time, "-o", scene.scratch / "out"), ("vextract", "vextract", "-n", "v", "-c", 1),
        ("vrevert", "vrevert", "-n", "d", "v", "-t", time), ("vrevert", "vrevert", "d", "-t", time),
        ("vundo --list", "vundo", "--list"), ("vrevert", "vundo", "-n"), ("vrevert", "vundo"),
        ("vrevert", "vundo", "--redo"), ("vundo --list", "vundo", "--list"),
        ("vrm -n", "vrm", "-n", "v"), ("vrm -n", "vrm", "-n", "-r", "--before", time, "d"),
        ("vrm --change", "vrm", "-n", "--change", "2..3", "v"), ("vrm --change", "vrm", "-y", "--change", "2..3", "v"),
        ("vrm", "vrm", "-y", "--history", "v"), ("vrm", "vrm", "-y", "v", "w"),
        ("vrm", "vrm", "-y", "-r", "--before", time, "d"), ("vrm", "vrm", "-y", "-r", "e"),
        ("vprune --keep", "vprune", "-n", "--keep", "1d", top), ("vprune --keep", "vprune", "-y", "--keep", "1d", "d"),
        ("vprune --before", "vprune", "-n", "--before", time, top),
        ("vprune --before", "vprune", "-y", "--before", time, top),
        ("vconfig", "vconfig", source), ("vconfig", "vconfig", source, "check"), ("vconfig get", "vconfig", source, "get", "keep"),
        ("vconfig get", "vconfig", source, "get", "max-size"), ("vconfig set", "vconfig", "-n", source, "set", "keep", "3d"),
        ("vconfig set", "vconfig", source, "set", "keep", "2d"), ("vconfig set", "vconfig", source, "set", "keep", "2d"),
        ("vconfig set", "vconfig", source, "unset", "keep"),
        ("vconfig", "wayback", "--check-config", source), ("vconfig", "wayback", "--check-config", source, "d/h"),
        ("vdump", "vdump", scene.mount.store() / "actors"),
        ("vdump", "vdump", *sorted(scene.mount.store().glob("objects/*/*.cat"))),
        ("vfsck", "vfsck", source), ("vstore status", "vstore status", source),
        ("vstore move", "vstore move", "-n", source, scene.scratch / "store"),
        ("vreceive --status", "vreceive", "--status", scene.scratch / "copy"),
        ("vstat", "wayback list", "d"), ("vlog", "wayback log"), ("vrm -n", "wayback rm", "-n", "d/h"),
        ("vundo --list", "wayback undo", "--list"), ("vstatus", "wayback mounts"),
    ]


SILENT = {("vfind", "no such name")}  # nothing to list


def failures(scene):
    """(heading, tool with its verb, arguments): something that does not exist, or the like."""
    top, time, source = scene.top, scene.time, scene.mount.source
    (scene.scratch / "file").write_text("[history]\nkeep = never so long\n", encoding="utf-8")
    return [
        ("vstat", "vstat", "no"), ("vlog", "vlog", "no"), ("vfind", "vfind", "*", "no"), ("vdiff", "vdiff", "no", time),
        ("vextract", "vextract", "no", "-t", time), ("vrevert", "vrevert", "no", "-t", time), ("vrevert", "vundo", "no"),
        ("vrm", "vrm", "-y", "no"), ("vrm", "vrm", "-y", "d"), ("vrm --change", "vrm", "-y", "--change", "99", "d/h"),
        ("vprune --before", "vprune", "-y", "--before", time, "no"), ("vprune --before", "vprune", "-y", "--before", time, "d"),
        ("vprune --keep", "vprune", "-y", "--keep", "1d", "no"),
        ("vprune --keep", "vprune", "--keep", "1d", top),  # a question without a terminal
        ("vcompact", "vcompact", "no"), ("vdf", "vdf", "no"), ("vweb", "vweb", scene.scratch),
        ("vsnap create", "vsnap create", "x", "./no"), ("vsnap list", "vsnap list", scene.scratch), ("vsnap list", "vsnap show", "no"),
        ("vsnap diff", "vsnap diff", time, "./no"), ("vsnap view", "vsnap view", "no", scene.new("view"), top),
        ("vsnap view", "vsnap view", "no", scene.scratch / "missing", top), ("vsnap rename", "vsnap rename", "no", "other"),
        ("vsnap delete", "vsnap delete", "no"),
        ("vstatus", "vstatus", "--all", "d"), ("vconfig", "vconfig", scene.scratch), ("vconfig get", "vconfig", source, "get", "no"),
        ("vconfig set", "vconfig", source, "set", "keep", "never so long"),
        ("vconfig", "wayback", "--check-config", scene.scratch / "file"),
        ("vconfig", "wayback", "--check-config", scene.scratch / "missing"),
        ("vdump", "vdump", "no"), ("vfsck", "vfsck", source / "no"), ("vfsck", "vfsck", source / "d"), ("vfsck", "vfsck", top / "d"),
        ("vstore status", "vstore status", scene.scratch), ("vstore move", "vstore move", source, top / "inside"),
        ("vreceive", "vreceive", scene.scratch / "copy"), ("vreceive --status", "vreceive", "--status", source),
        ("venable", "venable", "no"), ("vdisable", "vdisable", "no"), ("venable", "venable", "--keep", "never so long", scene.new("place")),
        ("vstat", "wayback list", "no"), ("vfsck", "wayback check", source / "d"), ("vrevert", "wayback restore", "no", "-t", time),
    ]


def run_both(mount, command, *extra):
    """With and without --json: statuses and messages."""
    name, verb = command[0].split(" ") if " " in command[0] else (command[0], None)
    words = [name, *([verb] if verb else [])]
    return [call(mount, *words, *option, *extra, *command[1:]) for option in ((), ("--json",))]


def test_each_tool_that_works(scene):
    seen = set()
    for heading, *command in successes(scene):
        found = documents(scene.mount, *command)
        assert found or tuple(command) in SILENT, command
        for document in found:
            assert "error" not in document, command
            check_document(heading, document)
        seen.add(command[0].split(" ")[0])
    assert seen >= set(TOOLS) - ELSEWHERE - WITHOUT


def test_several_paths_are_as_many_lines(scene):
    for command in (("vstat",), ("vdf",), ("vcompact", "-n"), ("vstatus",), ("vrevert", "-n", "-t", scene.time)):
        found = documents(scene.mount, *command, "d", "v")
        assert [document["path"].rpartition("/")[2] for document in found] == ["d", "v"], command


def test_each_tool_that_fails(scene):
    seen = set()
    for heading, *command in failures(scene):
        plain, result = run_both(scene.mount, command)
        assert result.returncode == plain.returncode != 0, (command, plain, result)
        found = parsed(result.stdout)
        assert [document for document in found if "error" in document], (command, result)
        for document in found:
            check_document(heading, document)
        error = [document["error"] for document in found if "error" in document][0]
        assert error["message"].encode() in result.stderr or command[:2] == ["wayback", "--check-config"], (command, result)
        if command[:2] != ["wayback", "--check-config"]:
            assert error["message"].split("'")[0].encode() in plain.stderr, (command, plain)
        seen.add(command[0].split(" ")[0])
    assert seen >= set(TOOLS) - {"vsend"} - WITHOUT


@pytest.mark.parametrize("tool", sorted(set(TOOLS) - {"vsend"} - WITHOUT))
def test_wrong_arguments(mount, tool):
    """vsnap and vstore have verbs; a wrong option is found before those."""
    for arguments in (["--no-such-option"], ["--json", "--no-such-option"]):
        result = call(mount, tool, *arguments)
        assert result.returncode == (16 if tool == "vfsck" else 2)
    (document,) = parsed(result.stdout)
    check_document("vstat", document)
    assert set(document) == {"schema", "error"} and document["error"]["kind"] == "usage"
    assert document["error"]["message"].encode() in result.stderr


@pytest.mark.parametrize("arguments", [("--check-config",), ("--check-config", "--no-such-option", "/"), ("/missing",)])
def test_wrong_arguments_of_the_daemon(mount, arguments):
    result = call(mount, "wayback", "--json", *arguments)
    assert result.returncode == 2
    (document,) = parsed(result.stdout)
    check_document("vconfig", document)
    assert document["error"]["kind"] == "usage" and document["error"]["message"].encode() in result.stderr


def test_a_time_that_is_none(scene):
    """Found out before, or only when a PATH was looked at: both are wrong usage."""
    for text in ("no snapshot", "~1x"):
        for command in (("vstat", "--since", text, "d"), ("vlog", "--since", text), ("vdiff", "d", text),
                        ("vrevert", "d", "-t", text), ("vextract", "d", "-t", text), ("vcompact", "--before", text, "d"),
                        ("vprune", "-y", "--before", text, scene.top), ("vrm", "-y", "--before", text, "d"),
                        ("vsnap diff", text)):
            plain, result = run_both(scene.mount, command)
            assert result.returncode == plain.returncode == 2, (command, result)
            assert [document["error"]["kind"] for document in parsed(result.stdout)] == ["usage"], (command, result)


def test_some_paths_fail(scene):
    """Each error is in the document of its own PATH, or alone."""
    for command in (("vstat",), ("vdf",), ("vcompact", "-n"), ("vrm", "-n"), ("vrevert", "-n", "-t", scene.time)):
        found = documents(scene.mount, *command, "no", "v", "never", status=1)
        assert len(found) == 3, found
        assert [Path(one["error"]["path"]).name for one in found if "error" in one] == ["no", "never"]
        assert [document["path"] for document in found if "error" not in document] == ["v"]
    found = documents(scene.mount, "vsnap show", "no", "never", status=1)
    assert [error["path"] for error in found[0]["errors"]] == ["no", "never"] and found[0]["snapshots"] == []


def test_a_message_has_its_parts(scene):
    (document,) = documents(scene.mount, "vsnap view", "one", scene.top, status=1)
    assert document["error"]["problem"] == "not empty" and document["error"]["remedy"] == "name an empty directory"
    assert document["error"]["reason"] == "the mount would cover its entries"


def test_streams(scene, tmp_path):
    """vsend writes JSON on standard error, vreceive on standard output."""
    mount, stream = scene.mount, tmp_path / "stream"
    with open(stream, "wb") as out:
        result = call(mount, "vsend", "--json", mount.source, stdout=out)
    (sent,) = parsed(result.stderr)
    check_document("vsend", sent)
    with open(stream, "rb") as data:
        (received,) = parsed(call(mount, "vreceive", "--json", tmp_path / "copy", stdin=data).stdout)
    check_document("vreceive", received)
    assert received["until"] == sent["until"] and sent["since"] is None
    (state,) = documents(mount, "vreceive", "--status", tmp_path / "copy")
    check_document("vreceive --status", state)
    assert state["until"] == sent["until"]
    for arguments in ((tmp_path / "missing",), ("--no-such-option",)):
        with open(stream, "wb") as out:
            result = call(mount, "vsend", "--json", *arguments, stdout=out)
        lines = [line for line in result.stderr.splitlines(True) if line.startswith(b"{")]
        (document,) = parsed(b"".join(lines))
        check_document("vsend", document)
        assert stream.read_bytes() == b"" and "error" in document


def test_a_view(scene):
    place = scene.new("then")
    (document,) = documents(scene.mount, "vsnap view", scene.time, place, scene.mount.source)
    try:
        check_document("vsnap view", document)
        assert document["epoch"] == scene.time
        (status,) = documents(scene.mount, "vstatus", place, status=1)
        check_document("vstatus", status)
        assert status["at"]["epoch"] == scene.time and not status["recorded"]
    finally:
        subprocess.run(["umount", place], check=True)


def test_editing(scene, tmp_path):
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\nprintf '[history]\\nkeep = 9d\\n' > \"$1\"\n", encoding="utf-8")
    editor.chmod(0o755)
    environment = dict(scene.mount.programs.environment(), EDITOR=str(editor), VISUAL=str(editor))
    for changed in (True, False):
        result = subprocess.run([scene.mount.programs.directory / "vconfig", "--json", scene.mount.source, "edit"],
                                env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=True)
        (document,) = parsed(result.stdout)
        check_document("vconfig edit", document)
        assert document["changed"] is changed


def test_enabling(maker):
    one = Machine(maker, systemd=False)
    try:
        for words, steps in (("enable -n", ["add-line", "mount"]), ("enable --keep 30d", ["add-line", "mount", "set"]),
                             ("enable", []), ("disable -n", ["unmount", "remove"]), ("disable", ["unmount", "remove"]),
                             ("disable", []), ("disable -y --forget-history", ["remove"])):
            verb, *options = words.split()
            (document,) = parsed(one.call(f"v{verb}", "--json", *options, one.directory).encode())
            check_document(f"v{verb}", document)
            assert [one_step["step"] for one_step in document["steps"]] == steps, words
            assert document.get("tested", False) == (verb == "enable" and "-n" not in options), words
    finally:
        one.close()


def test_a_follower_prints_a_line_for_each_change(scene):
    command = [scene.mount.programs.directory / "vlog", "--follow", "--json", scene.top]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          env=scene.mount.programs.environment()) as process:
        begin = {}
        while (begin.get("path"), begin.get("op")) != ("w", "write"):
            begin = json.loads(process.stdout.readline())
        (scene.top / "news").write_text("x", encoding="utf-8")
        lines = [process.stdout.readline()]
        while json.loads(lines[-1]).get("op") != "write":
            lines.append(process.stdout.readline())
        process.send_signal(signal.SIGTERM)
        lines += process.stdout.readlines()
        assert process.wait() == 128 + signal.SIGTERM
    found = parsed(b"".join(lines))
    for document in found:
        check_document("vlog", document)
    assert [document.get("path") for document in found[:2]] == ["news", "news"]
    assert found[-1]["error"]["kind"] == "stopped"


def test_a_page(scene):
    with Web(scene.mount) as web:
        check_document("vweb", web.document)


# ---- times -------------------------------------------------------------------------------------


def instants(value):
    """All pairs of time and epoch in a document."""
    if isinstance(value, dict) and isinstance(value.get("time"), str):
        yield value["time"], value["epoch"]
    for one in value.values() if isinstance(value, dict) else value if isinstance(value, list) else []:
        yield from instants(one)


def test_times_are_taken_by_each_tool(scene):
    """Both forms of each time that any tool prints mean the same instant to each tool."""
    mount, top = scene.mount, scene.top
    documents(mount, "vsnap create", "one", top)
    found = set()
    for command in (("vstat", "d", "v"), ("vlog",), ("vfind",), ("vdiff", "d", scene.time), ("vsnap list",), ("vdf",),
                    ("vstatus",), ("vdump", mount.store() / "actors"), ("vrm", "-n", "--change", "1..2", "v")):
        for document in documents(mount, *command):
            found |= set(instants(document))
    (status,) = documents(mount, "vstatus")
    known = sorted(pair for pair in found if pair[1] > status["since"]["epoch"])
    assert len(known) > 20
    for time, seconds in known:
        for text in (time, seconds):
            (document,) = documents(mount, "vdiff", ".", text)
            assert (document["old_time"]["time"], document["old_time"]["epoch"]) == (time, seconds)
    time, seconds = min(pair for pair in known if pair[1] > scene.time)
    for text in (time, seconds):
        for name, *command in (("time", "vextract", "-n", "d", "-t", text), ("time", "vrevert", "-n", "d", "-t", text),
                               ("before", "vrm", "-n", "-r", "--before", text, "d"), ("from", "vsnap diff", text),
                               ("time", "vprune", "-n", "--before", text, top), ("new_time", "vdiff", ".", scene.time, text)):
            (document,) = documents(mount, *command)
            got = document if name == "time" else document[name]
            assert (got["time"], got["epoch"]) == (time, seconds), command
        assert documents(mount, "vcompact", "-n", "--before", text, "d")
        assert (top / f"d@{text}").is_dir()
        for option, keeps in (("--since", lambda one: one >= seconds), ("--until", lambda one: one <= seconds)):
            (some,) = documents(mount, "vstat", option, text, "d")
            (everything,) = documents(mount, "vstat", "d")
            assert some["versions"] == [one for one in everything["versions"] if keeps(one["epoch"])]
            assert [one["epoch"] for one in documents(mount, "vlog", option, text)] == \
                [one["epoch"] for one in documents(mount, "vlog") if keeps(one["epoch"])]


# ---- names -------------------------------------------------------------------------------------

NAMES = [b"new\nline", b"quo\"te's", b"back\\slash", b"tab\tbell\x07", "stra\u00dfe \u202e".encode(), b"caf\xe9.txt",
         b"\xff\xfe", b"half\xe2\x82", b"a; b (c)"]


def bytes_of(value, name):
    """The exact bytes of a text."""
    return base64.b64decode(value[name + "_bytes"]) if name + "_bytes" in value else value[name].encode()


@pytest.mark.parametrize("name", NAMES)
def test_names(scene, name):
    mount, top = scene.mount, os.fsencode(scene.top)
    os.mkdir(os.path.join(top, name))
    inner = os.path.join(top, name, name)
    for text in (b"1", b"22"):
        with open(inner, "wb") as stream:
            stream.write(text)
    when = epoch(moment())
    os.rename(inner, inner + b"2")
    path = os.path.join(name, name)
    found = documents(mount, "vstat", name, path)
    assert [bytes_of(one, "path") for one in found] == [name, path]
    assert {(bytes_of(one, "name"), bytes_of(one, "other")) for one in found[0]["versions"] if one["op"] == "rename"} == \
        {(name, name + b"2")}
    log = [one for one in documents(mount, "vlog", name) if one["op"] == "rename"]
    assert [(bytes_of(one, "path"), bytes_of(one, "other")) for one in log] == [(name, name + b"2")]
    listed = documents(mount, "vfind", "--moved", "*", name)
    assert [(bytes_of(one, "path"), bytes_of(one, "to")) for one in listed] == [(path, path + b"2")]
    (diff,) = documents(mount, "vdiff", name, when)
    assert {bytes_of(one, "path") for one in diff["entries"]} == {name, name + b"2"}
    (snapshot,) = documents(mount, "vsnap create", "here", b"./" + name)
    assert bytes_of(snapshot, "path") == name
    (reverted,) = documents(mount, "vrevert", "-n", name, "-t", when)
    assert bytes_of(reverted["actions"][0], "from") == path + b"2"
    (usage,) = documents(mount, "vdf", path + b"2")
    (extent,) = documents(mount, "vrm", "-n", path + b"2")
    assert bytes_of(usage, "path") == bytes_of(extent, "path") == path + b"2"
    (extracted,) = documents(mount, "vextract", path + b"2", "-c", 1, "-o", os.path.join(os.fsencode(scene.scratch), name))
    assert bytes_of(extracted, "out").endswith(b"/" + name)
    with open(inner + b"2", "wb"):
        (shown,) = documents(mount, "vsnap create", "open", ".") and documents(mount, "vsnap show", "open")
    opened, = shown["snapshots"][0]["open"]
    assert (base64.b64decode(shown["snapshots"][0]["open_bytes"][0]) if "open_bytes" in shown["snapshots"][0]
            else opened.encode()).endswith(path + b"2")
    for heading, some in (("vstat", found), ("vlog", log), ("vfind", listed), ("vdiff", [diff]), ("vsnap create", [snapshot]),
                          ("vrevert", [reverted]), ("vdf", [usage]), ("vrm -n", [extent]), ("vextract", [extracted]),
                          ("vsnap list", [shown])):
        for document in some:
            check_document(heading, document)
    (failed,) = documents(mount, "vdf", b"no " + name, status=1)
    check_document("vdf", failed)
    assert bytes_of(failed["error"], "path") == b"no " + name and "_bytes" not in failed["error"]["message"]


# ---- the rest of the page ----------------------------------------------------------------------


@pytest.mark.parametrize("tool", sorted(set(TOOLS) - WITHOUT))
def test_each_tool_has_it(mount, tool):
    verbs = {"vsnap": ("create", "list", "show", "diff", "view", "rename", "delete")}.get(tool, (None,))
    for verb in verbs:
        text = call(mount, tool, *([verb] if verb else []), "--help").stdout
        assert b"--json" in text
        assert verb in (None, "show") or f"{tool} {verb}" in TABLES


def test_manual_pages_point_here():
    for tool in sorted(set(TOOLS) - WITHOUT):
        assert "docs/json.md" in (PAGE.parent / f"man/{tool}.1").read_text(encoding="utf-8"), tool
