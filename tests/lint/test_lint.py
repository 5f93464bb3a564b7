# SPDX-License-Identifier: LGPL-2.1-or-later
"""Rules of the house that a compiler does not check."""
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("WAYBACK_BUILD") or ROOT / "build").resolve()

FLOORS = ["base", "time", "control", "format", "store", "capture", "history", "policy", "maintain",
          "check", "transfer", "daemon"]
TOOLS = ["vstat", "vdiff", "vextract", "vrevert", "vrm", "vsnap", "vfind", "vlog", "vdump", "vfsck", "vcompact",
         "vdf", "vprune", "vstore", "vsend", "vreceive", "vstatus", "venable", "vdisable", "vconfig",
         "vundo", "vbrowse", "vweb"]
FUNCTION_LINES = 80
# The licence, and words that are addresses by nature: the schema of a URI, not a place to download from.
HOSTS = re.compile(r"https?://|git@|ftp://|\b[\w-]+(?:\.[\w-]+)*\.(?:com|org|net|io|dev)/")
PATHS = re.compile(r"/home/\w+/|/work/(?:main|shared)|/root/\w+|\bC:\\")


def tracked():
    listing = subprocess.run(["git", "-c", "safe.directory=*", "ls-files", "-z"], cwd=ROOT,
                             stdout=subprocess.PIPE, check=False)
    if listing.returncode == 0:
        paths = [ROOT / name for name in listing.stdout.decode().split("\0") if name]
    else:  # an unpacked release has no git
        paths = [p for p in ROOT.rglob("*") if not re.search(r"/(build|subprojects/|\.git/)", str(p))]
    return [p for p in paths if p.is_file()]


def text(path):
    return path.read_text(encoding="utf-8", errors="replace")


def c_files(*directories):
    return [p for p in tracked() if p.suffix in (".c", ".h")
            and p.relative_to(ROOT).parts[0] in (directories or ("src", "include", "utils", "tests", "bench"))]


def none(wrong):
    assert not wrong, "\n" + "\n".join(map(str, wrong))


def includes(path):
    return re.findall(r'^\s*#\s*include\s+["<]([^">]+)[">]', text(path), re.M)


def test_there_is_something_to_check():
    assert c_files("src") and c_files("utils") and c_files("include")


def test_only_the_daemon_knows_fuse():
    wrong = [f"{p.relative_to(ROOT)}: {name}" for p in c_files() for name in includes(p)
             if re.match(r"(fuse3?/)?(fuse|cuse)\w*\.h$", name) and "src/daemon" not in str(p)]
    none(wrong)


def test_tools_include_public_headers_and_their_common_part_only():
    wrong = []
    for path in c_files("utils"):
        for name in includes(path):
            if name.split("/")[0] in FLOORS or name.startswith(".."):
                wrong.append(f"{path.relative_to(ROOT)}: {name}")
    none(wrong)


def test_public_headers_stand_alone():
    """Each compiles on its own, with nothing but the C library's headers and its siblings."""
    for path in c_files("include"):
        for name in includes(path):
            assert name.startswith("wayback/") or re.fullmatch(r"(sys/)?\w+\.h", name), (path, name)
        result = subprocess.run(["cc", "-std=c11", "-Wall", "-Werror", "-fsyntax-only", "-x", "c",
                                 "-I", ROOT / "include", path], stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True, check=False)
        assert result.returncode == 0, result.stdout


def test_every_source_names_its_licence_in_its_first_lines():
    kinds = {".c", ".h", ".py", ".sh"}
    wrong = []
    for path in tracked():
        script = path.suffix == "" and text(path).startswith("#!")
        if path.suffix in kinds or script:
            if "SPDX-License-Identifier: LGPL-2.1-or-later" not in "\n".join(text(path).splitlines()[:3]):
                wrong.append(str(path.relative_to(ROOT)))
    none(wrong)


def functions(path):
    """(name, body) of each function of a file in our style: braces of a body in column 0."""
    lines = text(path).splitlines()
    start = None
    for number, line in enumerate(lines):
        if line == "{":
            start = number
        elif line == "}" and start is not None:
            head = " ".join(lines[max(0, start - 4):start])
            name = re.findall(r"(\w+)\s*\(", head)
            yield (name[-1] if name else "?"), lines[start:number + 1]
            start = None


def test_no_function_is_too_long():
    none([f"{path.relative_to(ROOT)}: {name}: {len(body)}" for path in c_files()
          for name, body in functions(path) if len(body) > FUNCTION_LINES])


def test_a_descriptor_that_a_scope_closes_is_not_closed_by_hand():
    """Its number would be closed a second time, when it may belong to another thread. wb_close_fd() clears the
    variable."""
    wrong = []
    for path in c_files():
        for name, body in functions(path):
            declared = " ".join(re.sub(r"\(.*\)", "", line) for line in body if "_cleanup_close" in line)
            owned = set(re.findall(r"(\w+)(?: = |[,;])", declared))
            for number, line in enumerate(body):
                closed = re.search(r"(?<!\w)close(?:dir)?\((\w+)\);", line)
                after = body[number + 1].strip() if closed else ""
                if closed and closed[1] in owned and not after.startswith(f"{closed[1]} = "):
                    wrong.append(f"{path.relative_to(ROOT)}: {name}: {line.strip()}")
    none(wrong)


def test_the_repository_names_no_download_host_and_no_machine():
    wrong = []
    for path in tracked():
        if path.name == "LICENSE" or path == Path(__file__).resolve():
            continue
        for number, line in enumerate(text(path).splitlines(), 1):
            # Addresses of this machine, and those that are put together.
            line = re.sub(r"https?://(?:127\.0\.0\.1|localhost|evil\.example|[{%\"]|www\.w3\.org/2000/svg)", "", line)
            if HOSTS.search(line) or PATHS.search(line):
                wrong.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}")
    none(wrong)


def test_no_test_syncs_other_file_systems():
    """It would bring content of other tests to the disk, beside those that cut the power: mounts.sync_tree."""
    found = [str(path.relative_to(ROOT)) for path in tracked() if path.suffix == ".py" and "tests" in path.parts and
             path != Path(__file__).resolve() and re.search(r"\bos\.sync\(\)", text(path))]
    none(found)


def test_directories_are_read_in_one_place():
    """The NULL of readdir(3) means two things, which is easily forgotten."""
    none([path for path in c_files("src") if re.search(r"(?<!->)\breaddir\(", text(path)) and path != ROOT / "src/base/dir.c"])


def test_the_manual_has_every_key_of_the_configuration_and_no_other():
    """The keys and all that people read of them stand in one table, from which this part of the page is written."""
    page = ROOT / "docs/man/wayback.conf.5"
    result = subprocess.run([BUILD / "docs/man/config_page", page], check=False, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout == text(page), "run: ninja -C BUILD update-manual"
    assert len(re.findall(r"^\\fB[a-z\\-]+ = ", result.stdout, re.M)) > 10


def test_the_table_of_requests_has_every_number_once():
    """Their numbers are public, the rest is not: a number without a line would be refused as unknown."""
    public = re.search(r"enum wb_control_command \{(.*?)\n\};", text(ROOT / "include/wayback/control.h"), re.S)[1]
    numbers = re.findall(r"^    WB_CONTROL_(\w+) = \d+,", public, re.M)
    table = re.findall(r"^    X\((\w+), (\w+),", text(ROOT / "src/control/requests.h"), re.M)
    assert len(numbers) > 20 and sorted(numbers) == sorted(name for name, _ in table)
    assert all(name.lower() == function for name, function in table)


def test_pages_list_the_operations_of_the_table():
    table = re.findall(r'^    X\(\w+, (\d+), "(\w+)",', text(ROOT / "src/format/op.h"), re.M)
    listed = re.search(r"^Operations \(`op`\): ([^.]*)\.", text(ROOT / "docs/format.md"), re.M)[1]
    assert len(table) > 25 and [tuple(entry.split()) for entry in listed.split(",")] == table
    words = re.search(r"one of (create,[^)]*)\)", text(ROOT / "docs/man/vstat.1"))[1]
    assert re.split(r",\s+", words) == [word for _, word in table[1:]]


def test_c_sources_keep_the_style():
    wrong = []
    for path in c_files("src", "include", "utils"):
        for number, line in enumerate(text(path).splitlines(), 1):
            code = re.sub(r'"(?:[^"\\]|\\.)*"', '""', line)
            if re.search(r"(^|[^:])//", code) and not re.match(r"\s*(/?\*|\*)", code) and "/*" not in code:
                wrong.append(f"{path.relative_to(ROOT)}:{number}: a // comment")
            if "\t" in line or line != line.rstrip():
                wrong.append(f"{path.relative_to(ROOT)}:{number}: tab or trailing blank")
            if len(line) > 120:
                wrong.append(f"{path.relative_to(ROOT)}:{number}: {len(line)} columns")
            if re.search(r"\b(TODO|FIXME|XXX)\b", line):
                wrong.append(f"{path.relative_to(ROOT)}:{number}: unfinished")
    none(wrong)


def program(name):
    path = BUILD / ("src/daemon" if name == "wayback" else f"utils/{name}") / name
    assert path.exists(), f"{path}: not built"
    return path



@pytest.mark.parametrize("name", ["wayback"] + TOOLS)
def test_every_program_has_help_version_and_a_page(name):
    for option in ("--help", "--version"):
        result = subprocess.run([program(name), option], stdout=subprocess.PIPE, check=False,
                                stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL)
        assert (result.returncode, result.stderr) == (0, ""), option
        assert name in result.stdout
        if option == "--help" and name in TOOLS:
            assert "example" in result.stdout.lower()
    pages = list((ROOT / "docs/man").glob(f"{name}.[18]"))
    assert len(pages) == 1
    if shutil.which("groff"):
        # man-db's macro names; -ww would warn of fonts a text terminal does not have
        result = subprocess.run(["groff", "-man", "-Tutf8", "-z", "-wmac", "-wsyntax", pages[0]],
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        assert (result.returncode, result.stdout) == (0, "")


def help_of(name):
    """That of each verb included."""
    verbs = [[]]
    if name == "vsnap":
        verbs += [[verb] for verb in ("create", "list", "show", "diff", "view", "rename", "delete")]
    return "\n".join(subprocess.run([program(name), *verb, "--help"], stdout=subprocess.PIPE, text=True,
                                    check=True).stdout for verb in verbs)


def options_of_help(name):
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", help_of(name)))


def test_texts_call_the_tools_by_their_verbs():
    """The tools cannot include the table of the program `wayback`; theirs says the same."""
    verbs = set(re.findall(r'\{"(\w+)", "(v\w+)", (?:NULL|"--(?:redo)")', text(ROOT / "src/daemon/main/verbs.c")))
    calls = re.findall(r'\{"(v\w+)(?: --\w+)?", "wayback (\w+)"\}', text(ROOT / "utils/common/cli.c"))
    assert {(verb, tool) for tool, verb in calls} == verbs and {tool for _, tool in verbs} == set(TOOLS)


def test_a_letter_is_the_same_option_in_all_tools():
    """And an option has the same letter in all: the options of one tool are those of the others."""
    long_of, letter_of = {}, {}
    for name in TOOLS:
        for letter, word in re.findall(r"^  -(\w), --([\w-]+)", help_of(name), re.M):
            long_of.setdefault(letter, set()).add(word)
            letter_of.setdefault(word, set()).add(letter)
        for word in re.findall(r"^  --([\w-]+)", help_of(name), re.M):
            letter_of.setdefault(word, set()).add("")
    # As in mount(8), and as in most programs.
    assert {letter: words for letter, words in long_of.items() if len(words) > 1} == {"o": {"options", "output"}}
    assert {word: letters for word, letters in letter_of.items() if len(letters) > 1} == {}


@pytest.mark.parametrize("name", ["wayback"] + TOOLS)
def test_pages_and_help_name_the_same_options(name):
    listed = options_of_help(name)
    page = text(list((ROOT / "docs/man").glob(f"{name}.[18]"))[0]).replace("\\-", "-")
    assert [word for word in sorted(listed) if word not in page] == []
    # The line after .TP is the subject of an entry.
    entries = "\n".join(re.findall(r"^\.TP.*\n(.*)$", page, re.M))
    assert sorted(set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", entries)) - listed) == []


@pytest.mark.parametrize("name", ["wayback"] + TOOLS)
def test_a_wrong_option_is_refused_in_one_way(name):
    result = subprocess.run([program(name), "--no-such-option"], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL, check=False)
    assert result.returncode == (16 if name == "vfsck" else 2)  # as fsck(8) has it
    assert result.stdout == "" and name in result.stderr
