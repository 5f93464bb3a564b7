# SPDX-License-Identifier: LGPL-2.1-or-later
"""vrevert --command takes back what some commands did, and nothing of what anything else did."""
import re
import sys

import pytest

from mounts import run

# Changes before the commands, by the commands, and by something else; then the files after the restore.
CASES = {
    "file in a directory that they made": (
        "", "mkdir('d'); put('d/x', 'x')", "put('d/y', 'mine')", {"d/x": "x", "d/y": "mine"}),
    "directory in a directory that they made": (
        "", "mkdir('d')", "mkdir('d/e'); put('d/e/y', 'mine')", {"d/e/y": "mine"}),
    "moved into a directory that they made": (
        "put('a', 'a')", "mkdir('d')", "rename('a', 'd/a')", {"d/a": "a"}),
    "in a directory that they made anew": (
        "mkdir('d'); put('d/a', 'a')", "remove('d/a'); rmdir('d'); mkdir('d')", "put('d/y', 'mine')",
        {"d/y": "mine"}),
    "in a directory that they made of a file": (
        "put('f', 'a')", "remove('f'); mkdir('f'); put('f/x', 'x')", "put('f/y', 'mine')",
        {"f/x": "x", "f/y": "mine"}),
    "a file in place of a directory that they removed": (
        "mkdir('d'); put('d/a', 'a')", "remove('d/a'); rmdir('d')", "put('d', 'mine')", {"d": "mine"}),
    "another name of a file of which they removed one": (
        "put('a', 'a'); link('a', 'b')", "remove('a')", "put('b', 'mine')", {"b": "mine"}),
    "in a directory that they changed and renamed": (
        "mkdir('d'); put('d/a', 'a')", "put('d/a', 'x'); rename('d', 'e')", "put('e/y', 'mine')",
        {"e/a": "x", "e/y": "mine"}),
    "nothing": (
        "mkdir('d'); put('d/a', 'a')", "put('d/a', 'x'); mkdir('n'); put('n/x', 'x')", "put('y', 'mine')",
        {"d/a": "a", "y": "mine"}),
}


def change(mount, work, mark):
    code = "from os import *\nput = lambda path, text: __import__('pathlib').Path(path).write_text(text)\n" + work
    run(sys.executable, "-c", code, mark, cwd=mount.path)


def files(top):
    return {str(path.relative_to(top)): path.read_text() for path in top.rglob("*") if path.is_file()}


def revert(mount, path, *options):
    return mount.tool("vrevert", mount.path / path, "--command", "the-script", *options).stdout


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_what_others_changed_is_kept(mount, case):
    before, harm, later, expected = case
    change(mount, before, "before")
    change(mount, harm, "the-script")
    change(mount, later, "later")
    said = revert(mount, "", "-n")
    assert not [name for name in expected if re.search(f"^remove .*/{name}$", said, re.M)]
    revert(mount, "", "--remove")
    assert files(mount.path) == expected


@pytest.mark.parametrize("path", ["a", "d"])
def test_the_path_itself_is_kept(mount, path):
    change(mount, "put('a', 'a')", "before")
    change(mount, "put('a', 'x'); mkdir('d')", "the-script")
    change(mount, "put('a', 'mine'); put('d/y', 'mine')", "later")
    said = revert(mount, path, "--remove")
    assert f"/{path}: kept, because another command changed it" in said
    assert files(mount.path) == {"a": "mine", "d/y": "mine"}


def test_another_name_outside_is_no_reason_to_break_the_link(mount):
    change(mount, "mkdir('o'); put('a', 'a'); link('a', 'o/b')", "before")
    change(mount, "put('a', 'x')", "the-script")
    change(mount, "put('o/b', 'mine')", "later")
    revert(mount, "a")
    assert files(mount.path) == {"a": "mine", "o/b": "mine"}


def test_the_end_of_a_rename_outside_is_not_named(mount):
    change(mount, "mkdir('in'); mkdir('out'); put('out/a', 'a')", "before")
    change(mount, "rename('out/a', 'in/a')", "the-script")
    change(mount, "put('in/a', 'mine')", "later")
    said = revert(mount, "in")
    assert said.count("kept") == 1 and "/in/a: kept" in said
