# SPDX-License-Identifier: LGPL-2.1-or-later
"""The folders of src/: each includes and calls only those before it in ORDER, and holds few files; no cycles of files."""
import os
import re
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src"
BUILD = Path(os.environ.get("WAYBACK_BUILD") or ROOT / "build").resolve()

# From the lowest to the highest, a line for each floor. A floor's own folder has what its other folders share.
ORDER = [
    "base", "base/sandbox",
    "time",
    "control",
    "client", "client/copy", "client/revert", "client/api",
    "format",
    "store/log", "store", "store/identity", "store/directory", "store/inflight", "store/tables", "store/timeline",
    "store/cache", "store/graveyard", "store/object", "store/open", "store/dump",
    "capture", "capture/recovery",
    "history", "history/resolve", "history/state", "history/content", "history/versions",
    "policy",
    "maintain/usage", "maintain/rewrite", "maintain/bundle", "maintain/prune", "maintain/erase", "maintain/thin",
    "maintain/relocate",
    "check", "check/rebind", "check/store",
    "transfer/wire", "transfer/send", "transfer/receive",
    "daemon/options", "daemon/system", "daemon/core", "daemon/transport", "daemon/caller", "daemon/past",
    "daemon/lookback", "daemon/keeper", "daemon/live", "daemon/jobs", "daemon/control", "daemon/session", "daemon/branch", "daemon/main",
]
# The floor client is for programs outside: none of src/ uses it.
FORBIDDEN = {floor.split("/")[0]: {"client"} for floor in ORDER if floor.split("/")[0] != "client"}
FORBIDDEN["capture"].add("history")
FORBIDDEN["history"].add("capture")
FILES = 25


def folder(name):
    return os.path.dirname(name)


def sources():
    """Paths below src/ of all sources and headers."""
    return sorted(str(path.relative_to(SRC)) for path in SRC.rglob("*.[ch]"))


def included():
    """(user, used) for each file of src/ that another one includes."""
    names = set(sources())
    for name in names:
        for used in re.findall(r'^\s*#\s*include\s+"([^"]+)"', (SRC / name).read_text(encoding="utf-8"), re.M):
            if used in names:
                yield name, used


def test_includes_name_the_folder():
    wrong = [(name, used) for name in sources()
             for used in re.findall(r'^\s*#\s*include\s+"([^"]+)"', (SRC / name).read_text(encoding="utf-8"), re.M)
             if folder(used) not in [*ORDER, "wayback"]]
    assert wrong == []


def members(archive, base):
    """(source below src/, its symbols as {name: letter}) of a static library, the paths in which begin at `base`."""
    known = {(name[len(base):-len(".c")]).replace("/", "_"): name
             for name in sources() if name.startswith(base) and name.endswith(".c")}
    lines = subprocess.run(["nm", "-A", "-P", archive], check=True, text=True, stdout=subprocess.PIPE,
                           stderr=subprocess.DEVNULL).stdout.splitlines()
    found = defaultdict(dict)
    for line in lines:
        match = re.match(r".*?(?:\[|/)(\w+)\.c\.o\]?: (\S+) ([A-Za-z])\b", line)
        if match and match[1] in known:
            found[known[match[1]]][match[2]] = match[3]
    return found


def called():
    """(user, used) for each source that uses a function or an object of another one."""
    found = members(BUILD / "src/libwayback-core.a", "")
    found.update(members(BUILD / "src/daemon/libwayback-daemon.a", "daemon/"))
    assert len(found) > 200
    defined = {name: source for source, symbols in found.items() for name, letter in symbols.items()
               if letter in "TDBRVWG"}
    for source, symbols in found.items():
        for name, letter in symbols.items():
            if letter == "U" and defined.get(name, source) != source:
                yield source, defined[name]


def against(edges):
    """{(folder, the folder it uses): files} of edges that go up, or to a folder that must not be known there."""
    rank = {name: number for number, name in enumerate(ORDER)}
    found = defaultdict(set)
    for user, used in edges:
        upper, lower = folder(user), folder(used)
        if upper != lower and (rank[lower] > rank[upper] or lower.split("/")[0] in FORBIDDEN.get(upper.split("/")[0], ())):
            found[upper, lower].add(user)
    return found


def test_every_folder_has_a_place_and_few_files():
    count = defaultdict(int)
    for name in sources():
        count[folder(name)] += 1
    assert set(count) == set(ORDER)
    assert {name: number for name, number in count.items() if number > FILES} == {}


@pytest.mark.parametrize("edges", [included, called])
def test_a_folder_uses_only_those_before_it(edges):
    assert {edge: sorted(files) for edge, files in against(edges()).items()} == {}


def cycles(edges):
    """Groups of files of one floor that use each other in a circle: the strongly connected components (Tarjan)."""
    graph = defaultdict(set)
    for user, used in edges:
        if user != used and user.split("/")[0] == used.split("/")[0]:
            graph[user].add(used)
    number, low, open_files, groups = {}, {}, [], []

    def visit(name):
        number[name] = low[name] = len(number)
        open_files.append(name)
        for used in sorted(graph.get(name, ())):
            if used not in number:
                visit(used)
                low[name] = min(low[name], low[used])
            elif used in open_files:
                low[name] = min(low[name], number[used])
        if low[name] == number[name]:
            group = open_files[open_files.index(name):]
            del open_files[-len(group):]
            if len(group) > 1:
                groups.append(sorted(group))

    for name in sorted(graph):
        if name not in number:
            visit(name)
    return sorted(groups)


def test_cycles_are_found():
    edges = [("a/1", "a/2"), ("a/2", "a/3"), ("a/3", "a/1"), ("a/3", "a/4"), ("a/5", "b/1"), ("b/1", "a/5"), ("a/6", "a/6")]
    assert cycles(edges) == [["a/1", "a/2", "a/3"]]


@pytest.mark.parametrize("edges", [included, called])
def test_files_of_a_floor_use_each_other_in_no_circle(edges):
    assert cycles(edges()) == []
