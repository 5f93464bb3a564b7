# SPDX-License-Identifier: LGPL-2.1-or-later
"""wayback.conf, which says what may be forgotten: patterns are those of git, and the output matches what is done."""
import json
import os
import pathlib
import re
import subprocess

import pytest

hypothesis = pytest.importorskip("hypothesis", reason="not installed: hypothesis (scripts/install-deps --tests)")
st = hypothesis.strategies

EXAMPLES = hypothesis.settings(max_examples=30 if os.environ.get("WAYBACK_QUICK") else 80, deadline=None, database=None,
                               derandomize=True, suppress_health_check=list(hypothesis.HealthCheck))
NAMES = ["a", "b", "ab", "a.o", ".h", "b c", "[x]", "\u00e9", "*", "a?"]
GLOBS = ["a", "b", "ab", "*", "**", "***", "a*", "*b", "?", "[ab]", "[!a]", "[^b]*", "*.o", "**a", "\\a", "\\*", "[[]x]",
         "\u00e9", "??", "b c", "[a-c]b", "[]x]", "*a*b*", "a\\?", ".*", "[[:alpha:]]", "[\\]a]", "[", "a\\", ".", "", "[x"]


def call(programs, *arguments):
    return subprocess.run([programs.directory / "wayback", *arguments], text=True, check=False, env=programs.environment(),
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@pytest.fixture(scope="module", name="tree")
def fixture_tree(tmp_path_factory):
    """A repository with files and directories of strange names, three deep; and all their paths."""
    top = tmp_path_factory.mktemp("tree")
    subprocess.run(["git", "init", "-q", top], check=True)
    paths = []
    for first in NAMES:
        for second in NAMES[:4]:
            (top / first / second).mkdir(parents=True)
            for third in NAMES[:4]:
                (top / first / second / third).write_bytes(b"")
                paths.append(f"{first}/{second}/{third}")
            paths.append(f"{first}/{second}/")
        paths.append(f"{first}/")
        for name in ("top.o", "b.o", "\u00e9.x"):
            (top / name).write_bytes(b"")
        (top / first / "x").write_bytes(b"")
        paths.append(f"{first}/x")
    return top, paths + ["top.o", "b.o", "\u00e9.x"]


def ignored(top, paths, patterns):
    """Git's answer about them. It finds out by itself which are directories."""
    (top / ".git/rules").write_text("\n".join(patterns) + "\n", encoding="utf-8")
    result = subprocess.run(["git", "-c", "safe.directory=*", "-c", f"core.excludesFile={top}/.git/rules", "check-ignore",
                             "--no-index", "--stdin", "-z"], input="\0".join(path.rstrip("/") for path in paths).encode(), cwd=top,
                            stdout=subprocess.PIPE, check=False)
    assert result.returncode in (0, 1)
    return set(result.stdout.decode().split("\0")) - {""}


def write(conf, patterns):
    conf.write_text("[path " + " ".join(f'"{one}"' for one in patterns) + "]\nkeep = 1d\n", encoding="utf-8")


def is_one(programs, conf, one, known={}):  # pylint: disable=dangerous-default-value
    if one not in known:
        write(conf, [one])
        known[one] = call(programs, "--check-config", conf).returncode == 0
    return known[one]


@st.composite
def pattern(draw):
    names = draw(st.lists(st.sampled_from(GLOBS), min_size=1, max_size=4))
    return (draw(st.sampled_from(["", "", "", "!"])) + draw(st.sampled_from(["", "/"])) + "/".join(names) +
            draw(st.sampled_from(["", "", "/"])))


@EXAMPLES
@hypothesis.given(st.lists(pattern(), min_size=1, max_size=6))
def test_patterns_are_those_of_git(programs, tree, tmp_path_factory, patterns):
    top, paths = tree
    conf = tmp_path_factory.getbasetemp() / "patterns.conf"
    wanted = [one for one in patterns if is_one(programs, conf, one)]
    # git would have obeyed nothing of a line refused as a mistake, but for a slash after a \\ or within [].
    for one in set(patterns) - set(wanted):
        assert re.search(r"\[.*/.*\]|\\/", one) or not ignored(top, paths, [one]), one
    if not wanted:
        return
    write(conf, wanted)
    result = call(programs, "--check-config", "--json", conf, *paths)
    found = {entry["path"].rstrip("/") for entry in json.loads(result.stdout)["paths"] if entry["section"] != "history"}
    assert not found ^ ignored(top, paths, wanted), wanted


def test_each_key_is_listed_with_its_value_its_default_and_its_meaning(programs, tmp_path):
    conf = tmp_path / "wayback.conf"
    conf.write_text("[snapshots]\nevery = 10m:36\n[history]\ncompact = zstd\nthin = 1h:2d 1d:30d\n"
                    '[path "*.o"]\nkeep = 1d\nhistory = close\n[path "b"]\nkeep = 2d\n', encoding="utf-8")
    text = call(programs, "--check-config", conf).stdout.partition("\nKEY ")[2]
    listed, section = {}, None
    for line in text.splitlines()[1:]:
        if line.startswith("["):
            section = line[1:-1]
            continue
        name, value, default, meaning = re.split("  +", line, maxsplit=3)
        assert meaning.endswith(".") and "*" not in meaning
        listed[section, name] = tuple(None if word == "-" else word for word in (value, default))
    assert listed == {(key["section"], key["key"]): (key["value"], key["default"])
                      for key in json.loads(call(programs, "--check-config", "--json", conf).stdout)["keys"]}
    page = (pathlib.Path(__file__).parents[2] / "docs/man/wayback.conf.5").read_text(encoding="utf-8")
    assert {name for _, name in listed} == set(" ".join(re.findall(r'^\.\\" keys: (.*)', page, re.M)).split())
    assert listed["snapshots", "every"] == ("10m:36", None) and listed["snapshots", "at"] == ("00:00", "00:00")
    assert listed["history", "compact"] == ("zstd", "delta+zstd") and listed["history", "compact-after"] == ("5m", "5m")
    assert listed["history", "thin"] == ("1h:2d 1d:30d", None) and listed["history", "keep"] == (None, None)
    assert {key: value for key, value in listed.items() if key[0].startswith("path")} == {
        ('path "*.o"', "keep"): ("1d", None), ('path "*.o"', "history"): ("close", None), ('path "b"', "keep"): ("2d", None)}


CONF = """[history]
keep = 1d
thin = 1h:2d 1d:30d 1w:1y
keep-versions = 5..100
max-size = 20G
reserve = 10%
[path "*.o" "!keep.o"]
keep = 1h30m
[path "/doc/**/*.tex"]
keep = forever
"""


def test_the_check_prints_the_settings(programs, tmp_path):
    conf = tmp_path / "x.conf"
    conf.write_text(CONF, encoding="utf-8")
    result = call(programs, "--check-config", conf)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.partition("\nKEY ")[0].splitlines()[3:] == [
        "versions: keep 1d, one per 1h for 2d, one per 1d for 30d, one per 7d for 1y, at least the newest 5, at most 100",
        'versions: keep 1h30m ([path "*.o" "!keep.o"], line 7)',
        'versions: keep forever ([path "/doc/**/*.tex"], line 9)',
        "space: older versions are deleted where the history uses more than 20G",
        "space: at least 10% of the device are kept free",
        "space: history that is kept forever is never deleted for these limits",
        "space: when it runs low, versions that no rule keeps are deleted first, then the oldest ones"]
    result = call(programs, "--check-config", conf, "x/y.o", "keep.o", "doc/a/b.tex", "./doc/z.tex", "/")
    assert [line.split(" (")[0].split(",")[0] for line in result.stdout.splitlines()] == [
        "x/y.o: keep 1h30m", "keep.o: keep 1d", "doc/a/b.tex: keep forever", "./doc/z.tex: keep forever", "/: keep 1d"]
    assert result.stderr == ""
    settings = json.loads(call(programs, "--check-config", "--json", conf, "q\"\n.o").stdout)
    assert settings["mistakes"] == []
    assert settings["forgetting"]["rules"][0] == {
        "section": "history", "keep": 86400, "thin": [{"step": 3600, "span": 172800}, {"step": 86400, "span": 2592000},
                                                      {"step": 604800, "span": 31536000}],
        "min_versions": 5, "max_versions": 100}
    assert settings["forgetting"]["max_size_bytes"] == 20 << 30 and settings["forgetting"]["reserve_percent"] == 10
    assert settings["paths"] == [{"path": "q\"\n.o", "section": 'path "*.o" "!keep.o"', "line": 7, "keep": 5400,
                                 "compact": "delta+zstd"}]
    assert settings["forgetting"]["reach"] == "forever"
    for text, reach in [("keep = 1h30m\n[path \"a\"]\nkeep = 5d\nthin = 1d:2y\n", "730d"), ("keep = 90s", "1m30s"),
                        ("keep = 1d\nkeep-versions = 2..", None), ("keep = 1d\n[path \"a\"]\nkeep-versions = ..9", None)]:
        conf.write_text("[history]\n" + text, encoding="utf-8")
        lines = call(programs, "--check-config", conf).stdout.splitlines()
        wanted = (f"versions: those replaced more than {reach} ago are deleted, except for snapshots and everything "
                  "since the oldest of these")
        assert (wanted in lines) == bool(reach)
        assert bool(reach) == any("ago are deleted" in line for line in lines)
        assert not any(line.startswith("space") for line in lines)
    for text, lines in [("", ["versions: no age is set; when space runs low, the oldest are deleted, at any age"]),
                        ("keep-versions = ..9\n", ["versions: at most 9",
                                                   "versions: no age is set; when space runs low, the oldest are deleted, at any age"])]:
        conf.write_text(f"[history]\nreserve = 10%\n{text}", encoding="utf-8")
        said = call(programs, "--check-config", conf).stdout.splitlines()
        assert [line for line in said if line.startswith("versions: ")][:2] == lines
    conf.write_text("[path x]\n", encoding="utf-8")
    result = call(programs, "--check-config", "--json", conf)
    assert result.returncode == 1
    assert [mistake.split(": ")[0] for mistake in json.loads(result.stdout)["mistakes"]] == [f"{conf}:1:7"]
    assert call(programs, "--json", conf).returncode == 2
