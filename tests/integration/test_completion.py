# SPDX-License-Identifier: LGPL-2.1-or-later
"""Completion in bash, zsh and fish: verbs, options, snapshots and versions."""
import re
import subprocess

import pytest
from mounts import BUILD, LIMIT, TOOLS

BASH = """
compopt() { :; }
source "$1"; replaced=$2; shift 2
COMP_LINE=$1; COMP_POINT=${#COMP_LINE}; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_wayback "${COMP_WORDS[0]}" "$replaced"
printf '%s\\n' "${COMPREPLY[@]}"
"""

# In place of zsh's own functions, which show the candidates.
ZSH = """
mark=$'\\1'
_describe() { local line; for line in $described; do line=${line//\\\\:/$mark}; print -r -- "${${line%%:*}//$mark/:}"; done }
_files() { print -r -- ":files" }
words=("${(@)argv[2,-1]}"); CURRENT=$#words; PREFIX=$words[-1]
source "$1"
"""


def lines(mount, *command, cwd=None):
    result = subprocess.run(command, check=False, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            stdin=subprocess.DEVNULL, timeout=LIMIT, env=mount.programs.environment(), cwd=cwd or mount.path)
    assert result.returncode == 0, result.stdout
    return result.stdout.splitlines()


def bash_words(line):
    """As bash cuts them (COMP_WORDBREAKS)."""
    words = re.findall(r"[=@:]+|(?:\\.|[^\s=@:])+", line)
    return words + [""] if line[-1] in " =:" else words


def in_bash(mount, line):
    """The words that the current one may become. bash replaces the part after the last of those signs, an @ with it."""
    current = re.search(r"(?:\\.|\S)*$", line)[0].replace("\\", "")
    replaced = re.search(r"@?[^=@:]*$", current)[0]
    script = BUILD / "scripts/completion/wayback.bash"
    found = lines(mount, "bash", "-c", BASH, "bash", script, replaced, line, *bash_words(line))
    return [current[:len(current) - len(replaced)] + word for word in found if word]


def in_zsh(mount, line):
    return lines(mount, "zsh", "-f", "-c", ZSH, "zsh", BUILD / "scripts/completion/_wayback", *re.split(" +", line))


def in_fish(mount, line):
    script = BUILD / "scripts/completion/wayback.fish"
    found = lines(mount, "fish", "--no-config", "-c", f"source {script}; complete --do-complete $argv[1]", line)
    return [each.split("\t")[0] for each in found]


SHELLS = pytest.mark.parametrize("shell", [in_bash, in_zsh, in_fish])


def verbs_of(mount):
    screen = lines(mount, mount.programs.directory / "wayback", "help")
    return [line.split()[0] for line in screen if re.match(r"  [a-z]+  ", line)]


@SHELLS
def test_verbs(mount, shell):
    verbs = verbs_of(mount)
    assert "restore" in verbs
    found = shell(mount, f"{mount.programs.directory}/wayback ")
    assert [word for word in found if word in verbs] == verbs
    if shell is not in_zsh:  # it narrows the list itself
        assert "restore" in shell(mount, f"{mount.programs.directory}/wayback rest")
        assert "log" not in shell(mount, f"{mount.programs.directory}/wayback rest")


@SHELLS
def test_options(mount, shell):
    assert {"--since", "--json"} <= set(shell(mount, f"{mount.programs.directory}/wayback log --"))
    assert {"--since", "--json"} <= set(shell(mount, f"{mount.programs.directory}/vlog --"))
    assert {"--list", "--op"} <= set(shell(mount, f"{mount.programs.directory}/wayback redo --"))
    assert {"--message"} <= set(shell(mount, f"{mount.programs.directory}/wayback snap create --"))
    assert {"auto", "always", "never"} == set(shell(mount, f"{mount.programs.directory}/vlog --color "))


@pytest.mark.parametrize("name", TOOLS)
def test_every_option_of_every_tool(mount, name):
    listed = set(re.findall(r"^  (?:-\w, )?(--[\w-]+)", "\n".join(lines(mount, mount.programs.directory / name, "--help")), re.M))
    found = set(in_bash(mount, f"{mount.programs.directory}/{name} --"))
    assert "--help" in listed and listed <= found


@SHELLS
def test_versions_and_snapshots(mount, shell):
    """A version that is offered can be read at that time."""
    file = mount.path / "file"
    for text in ("one", "two", "six"):
        file.write_text(text, encoding="utf-8")
    mount.tool("vsnap", "create", "before", mount.path)
    found = shell(mount, f"{mount.programs.directory}/vstat file@")
    names = [word.rpartition("@")[2] for word in found if word.rpartition("@")[2][:2] in ("20", "be")]
    assert "before" in names
    texts = {(mount.path / f"file@{name}").read_text(encoding="utf-8") for name in names if name.startswith("20")}
    assert {"one", "two", "six"} <= texts
    times = shell(mount, f"{mount.programs.directory}/wayback restore file --time ")
    assert {"before", "yesterday"} <= set(times) and set(names) <= set(times)
    assert "before" in shell(mount, f"{mount.programs.directory}/wayback snap delete ")


def test_names_with_blanks_and_words_with_signs(mount):
    (mount.path / "a file").write_text("x", encoding="utf-8")
    (mount.path / "directory").mkdir()
    assert "a file" in in_bash(mount, f"{mount.programs.directory}/vstat ")
    found = in_bash(mount, f"{mount.programs.directory}/vlog --color=al")
    assert found == ["--color=always"]
    assert in_bash(mount, f"{mount.programs.directory}/wayback direc") == ["directory"]
    assert "a file@begin" in in_bash(mount, f"{mount.programs.directory}/vstat a\\ file@be")
