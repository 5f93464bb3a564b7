# SPDX-License-Identifier: LGPL-2.1-or-later
"""Plain English: the words of a dialect that newcomers do not share become fewer, and pages name files that exist."""
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src"
PAGES = sorted((ROOT / "docs").glob("*.md"))

# A wrong actor ("for who reads", "whoever waits") and a missing one ("what rests is packed"). A clause after a noun
# ("a user who reads") or a verb ("says what it does") is right, and is not matched.
WORST = {
    "told, tells": re.compile(r"\b(?:told|tells)\b", re.I),
    "who": re.compile(r"(?:^|[.;:,(]\s+|\b(?:for|of|to|by|from|with|and|or|that|as|than)\s+)who\s+\w+|\bwhoever\b",
                      re.I | re.M),
    "what": re.compile(r"(?:^|[.;:(]\s+|\b(?:and|but|of|that|where|if|so|by|for|all)\s+)what\s+"
                       r"(?:is|was|are|were|has|had|can|cannot|may|must|comes|came|goes|went|rests|stays|lies|they|"
                       r"nobody|no|somebody|others|it)\b", re.I | re.M),
}
# How often each is there today. A number here may be lowered, and never raised: write the sentence with its actor, as
# "the caller", "the daemon", "the process that holds the lock", or with a noun in the place of "what".
TODAY = {
    ("docs", "told, tells"): 1,
    ("docs", "who"): 4,
    ("docs", "what"): 8,
    ("comments", "told, tells"): 0,
    ("comments", "who"): 84,
    ("comments", "what"): 208,
    ("names", "told, tells"): 2,
    ("messages", "told, tells"): 1,
    ("messages", "who"): 4,
    ("messages", "what"): 2,
}
# Lines of tables and code may be longer.
COLUMNS = 100


def tracked():
    listing = subprocess.run(["git", "-c", "safe.directory=*", "ls-files", "-z"], cwd=ROOT, stdout=subprocess.PIPE,
                             check=False)
    if listing.returncode == 0:
        return [ROOT / name for name in listing.stdout.decode().split("\0") if name and (ROOT / name).is_file()]
    return [path for path in ROOT.rglob("*") if path.is_file() and
            not re.search(r"/(build|subprojects/|\.git/)", str(path))]


def read(path):
    return path.read_text(encoding="utf-8", errors="replace")


def c_comments(text):
    text = re.sub(r'"(?:[^"\\\n]|\\.)*"', '""', text)
    return "\n\n".join(re.sub(r"\n\s*\*", "\n", comment) for comment in re.findall(r"/\*(.*?)\*/", text, re.S))


def c_strings(text):
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    text = re.sub(r'^\s*#\s*include.*$', "", text, flags=re.M)
    return "\n\n".join(re.findall(r'"((?:[^"\\\n]|\\.)*)"', re.sub(r'"\s*\n\s*"', "", text)))


def c_names(text):
    text = re.sub(r'/\*.*?\*/|"(?:[^"\\\n]|\\.)*"', "", text, flags=re.S)
    return set(re.findall(r"\b[A-Za-z_]\w+", text))


def script_comments(text):
    return "\n\n".join(re.findall(r"(?:^|\s)#\s(.*)$", text, re.M) + re.findall(r'"""(.*?)"""', text, re.S))


def parts():
    """(kind of text, path, the text) of all that people read."""
    for path in tracked():
        name = str(path.relative_to(ROOT))
        if path == Path(__file__).resolve():
            continue
        if path.suffix == ".md" or name.startswith("docs/man/") and path.suffix in (".1", ".5", ".8"):
            yield "docs", name, read(path)
        elif path.suffix in (".c", ".h"):
            yield "comments", name, c_comments(read(path))
            if name.startswith(("src/", "utils/", "include/")):
                yield "messages", name, c_strings(read(path))
        elif path.suffix in (".py", ".sh") or path.suffix == "" and read(path).startswith("#!"):
            yield "comments", name, script_comments(read(path))


def counted():
    """{(kind of text, words): {path, or name in C: how often}}"""
    found = {(kind, words): {} for kind in ("docs", "comments", "messages") for words in WORST}
    for kind, name, text in parts():
        for words, pattern in WORST.items():
            count = len(pattern.findall(text))
            if count:
                found[kind, words][name] = count
    # A name counts once, wherever it is used, so that files can be divided and merged.
    names = set().union(*(c_names(read(path)) for path in tracked() if path.suffix in (".c", ".h")))
    found["names", "told, tells"] = {name: 1 for name in names if WORST["told, tells"].search(name.replace("_", " "))}
    return found


def added():
    """Lines that this tree has and the main branch does not, for the message of a failure."""
    changes = subprocess.run(["git", "-c", "safe.directory=*", "diff", "-U0", "origin/main"], cwd=ROOT, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, errors="replace", check=False).stdout
    lines = [line[1:].strip() for line in changes.splitlines() if re.match(r"\+(?!\+\+)", line)]
    return [line for line in lines if any(pattern.search(line) for pattern in WORST.values())]


def test_the_worst_words_do_not_become_more():
    found = counted()
    assert set(found) >= set(TODAY)
    more = {key: (sum(found[key].values()), most) for key, most in TODAY.items() if sum(found[key].values()) > most}
    assert not more, f"(kind, words): (now, at most): {more}; of the lines added: {added()[:20]}"


@pytest.mark.parametrize("text, count", [
    ("it is told to the caller, and he tells others", {"told, tells": 2}),
    ("the telling thread foretold it", {}),
    ("Who reads the store takes no lock.", {"who": 1}),
    ("a lock for who writes; whoever waits is woken", {"who": 2}),
    ("a user who reads it, and the process that writes it", {}),
    ("What rests is packed.", {"what": 1}),
    ("It is kept, and what is older goes.", {"what": 1}),
    ("The header says what it does.", {}),
])
def test_what_is_counted(text, count):
    assert {words: len(pattern.findall(text)) for words, pattern in WORST.items() if pattern.search(text)} == count


def test_each_kind_of_text_is_found():
    source = 'int told_it; /* a comment\n * goes on */\nf("a message " /* x */\n  "in two");'
    assert "a comment\n goes on" in c_comments(source)
    assert "a message in two" in c_strings(source) and "comment" not in c_strings(source)
    assert "told_it" in c_names(source) and "message" not in c_names(source)
    assert "a reason" in script_comments("x = 1  # a reason\n") and "doc" in script_comments('"""doc"""')


def paragraphs(text):
    """Lines of a page outside of tables and code, with their numbers."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("```"):
            fenced = not fenced
        elif not fenced and not line.startswith(("|", "    ")):
            yield number, line


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_begins_with_whom_it_is_for_and_wraps(page):
    assert re.match(r"# .+\n\nFor ", read(page)), "the first sentence begins with For and names the readers"
    check_columns(page)


def check_columns(page):
    text = read(page)
    assert [number for number, line in paragraphs(text) if len(line) > COLUMNS and " " in line.strip()] == []


def test_readme_wraps():
    check_columns(ROOT / "README.md")


def is_there(word):
    """Whether a path that a page names is one of the tree; below src/ it may come without that, and without .c or .h."""
    if "*" in word:
        return any(ROOT.glob(word)) or any(SRC.glob(word))
    return any((root / (word + suffix)).exists() for root in (ROOT, SRC) for suffix in ("", ".c", ".h"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_name_files_that_exist(page):
    folders = {path.name for path in SRC.iterdir() if path.is_dir()} | {"src", "include", "utils", "docs", "tests"}
    words = {word for word in re.findall(r"`([\w.*-]+(?:/[\w.*-]+)+)`", read(page))
             if word.split("/")[0] in folders and "NAME" not in word and "FOLDER" not in word}
    assert sorted(word for word in words if not is_there(word)) == []


def headings(path):
    """The names that links use for the headings of a page."""
    lines = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", read(path), flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", line.lower()).replace(" ", "-") for line in lines}


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md"], ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    wrong = []
    for link in re.findall(r"\]\(([^)\s]+)\)", read(page)):
        target, _, heading = link.partition("#")
        path = page.parent / target if target else page
        if not path.exists() or heading and heading not in headings(path):
            wrong.append(link)
    assert wrong == []


def test_pages_name_tests_that_exist():
    known = {path.stem for path in (ROOT / "tests").rglob("test_*")}
    known |= {name for path in (ROOT / "tests").rglob("test_*.py") for name in re.findall(r"def (test_\w+)", read(path))}
    wrong = {(page.name, word) for page in PAGES for word in re.findall(r"`(?:unit/)?(test_\w+)(?:\.py)?`", read(page))
             if word not in known and word != "test_NAME"}
    assert not wrong


def sentences(text):
    """Of paragraphs and lists, without tables, headings and code."""
    text = re.sub(r"(?m)^    .*$", "", re.sub(r"```.*?```", "", text, flags=re.S))
    for paragraph in re.split(r"\n\s*\n", text):
        if paragraph.lstrip().startswith(("|", "#", "!", "<!--")):
            continue
        for item in re.split(r"(?m)^(?:- |\d+\. )", paragraph):
            yield from re.split(r"(?<=[.:;!?])\s+", re.sub(r"\]\([^)]*\)", "]", re.sub(r"\s+", " ", item)))


@pytest.mark.parametrize("page", ["README.md", "docs/tour.md", "docs/lost.md"])
def test_new_users_read_short_sentences(page):
    long = [sentence for sentence in sentences((ROOT / page).read_text(encoding="utf-8"))
            if len([word for word in sentence.split() if re.search(r"\w", word)]) > 25]
    assert not long, "\n".join(long)
