# SPDX-License-Identifier: LGPL-2.1-or-later
"""Ordinary programs in directories of the past: their output there is the output of then."""
import os
import shutil
import subprocess

import pytest

from mounts import run
from pasttree import Then, make_tree
from treestate import differences, state_of

# The entries, but for numbers of inodes and times of access.
FIND = r"find . -printf '%p %y %Y %m %n %U %G %s %b %S %T@ %C@ %l\n' | LC_ALL=C sort"
LOOKING = [
    FIND,
    "find . -type f -links +1 | sort", "find . -type l | sort", "find . -type s -o -type p | sort",
    "find . -type d -empty | sort", "find . -newer plain | sort", "find . -samefile one | sort",
    "find . -size +1M | sort", "find . -perm -4000", "find . -inum $(stat -c %i sub/three) | sort",
    "ls -1", "ls -lAR --time-style=full-iso -n", "ls -sR", "ls -F many",
    "stat -c '%n %F %a %b %B %h %s %t %T %u %g %x %y %z' one sub fifo empty many sparse",
    "stat -c '%n %F %a %b %B %h %s %t %T %u %g %y %z' dangling",  # others read the link and move its atime
    "du -a -l -B1 . | sort -k2", "du -a -l -b . | sort -k2", "du -sb", "du -s", "du -s --inodes .", "du -ks sparse big many",
    "realpath --relative-to=. 'to sub/three' sub/../one", "readlink 'to one' dangling",
    "find . -print0 | sort -z | xargs -0 getfacl -P -n -p -- 2>&1",
    "find . -print0 | sort -z | xargs -0 getfattr -h -d -m - -- 2>&1",
    "cat sub/three many/file010", "wc -c sparse many/* | tail -5", "head -c 100000 sparse | md5sum",
    "tail -c 1000 big | md5sum", "grep -rl 'number 17' . -D skip | sort", "grep -c number -r many | sort",
    "sort many/file1* | md5sum", "sh plain", "./run", "cmp one two; cmp one plain; diff plain run; true",
    "(cd deep/level0/level1/level2 && cd ../../.. && pwd -P | sed 's/.*tree[^/]*//'; ls)",
    "find . -type f -print0 | sort -z | xargs -0 sha256sum",
]
ARCHIVES = [
    # In the order of names; numbers of inodes and times of access are no part of it.
    "tar -c --sort=name --format=posix --pax-option=delete=atime --acls --xattrs --xattrs-include='user.*' ."
    " 2>&1 | sha256sum",
    "find . | LC_ALL=C sort | cpio -o -H odc --renumber-inodes --ignore-devno --device-independent"
    " 2>&1 | tail -1",
    # Not into a pipe: there zip fails if an empty file comes first in the directory.
    "to=$(mktemp -d) && zip -q -r -y -X $to/zip . -x '*fifo*' -x '*null*' -x '*block*' 2>&1; wc -c <$to/zip.zip;"
    " rm -r $to",
]


@pytest.mark.parametrize("kind", ["ext4", "btrfs"])
def test_the_output_of_programs_is_that_of_then(maker, kind):
    then = Then(maker.mount("allow_other", kind=kind), lambda root: make_tree(root, True, depth=30))
    then.see(*LOOKING, *ARCHIVES)
    then.leave().check()


def test_the_same_for_an_ordinary_user(user_mount):
    then = Then(user_mount)
    then.see(*LOOKING, *ARCHIVES)
    then.leave().check()


@pytest.fixture(name="old")
def fixture_old(either_mount):
    return Then(either_mount).leave()


def copied(old, name, *command):
    """The state of a copy that a program makes: `command` gets the tree and the target."""
    target = old.mount.path / name
    old.mount.tool(*(part.format(old=old.past, target=target) for part in command))
    state = old.act(lambda: state_of(target))
    return target, state


@pytest.mark.parametrize("command", [
    ("rsync", "-aHAX", "--checksum", "{old}/", "{target}"),
    ("rsync", "-aHAXS", "{old}/", "{target}"),
    ("cp", "-a", "--sparse=auto", "{old}", "{target}"),
    ("cp", "-a", "--sparse=always", "{old}", "{target}"),
    ("cp", "-a", "--sparse=never", "--reflink=auto", "{old}", "{target}"),
    ("sh", "-c", "mkdir {target} && cd {old} && tar -c --acls --xattrs --xattrs-include='*' -S . 2>/dev/null |"
                 " tar -xp --acls --xattrs --xattrs-include='*' -C {target}"),
    ("sh", "-c", "mkdir {target} && cd {old} && find . -depth -print0 | cpio -0 -pdm --quiet {target}"),
], ids=["rsync", "rsync-sparse", "cp-auto", "cp-always", "cp-never", "tar", "cpio"])
def test_a_copy_is_equal(old, command):
    target, found = copied(old, "copy", *command)
    expected = dict(old.state)
    if command[-1].find(" tar ") > 0:  # sockets are in no archive
        del expected["socket"]
    ignore = ("xattrs", "mode", "mtime") if "cpio" in command[-1] else ()
    expected[""] = found[""]
    assert not differences(expected, found, ignore), "\n".join(differences(expected, found, ignore))
    blocks = old.act(lambda: os.stat(target / "sparse").st_blocks * 512)
    if "--sparse=never" in command:
        assert blocks >= 5 << 20
    elif "cpio" not in command[-1] and "--checksum" not in command:
        assert blocks < 1 << 20


def test_a_copy_made_twice_needs_no_second_one(old):
    """rsync finds nothing to do, and diff no difference."""
    copied(old, "copy", "rsync", "-aHAX", "{old}/", "{target}")
    said = old.mount.tool("rsync", "-aHAX", "--checksum", "-ii", "-n", f"{old.past}/",
                          old.mount.path / "copy").stdout
    # -ii names everything; an entry that will not be transferred or altered begins with a dot and a type
    assert [line for line in said.splitlines() if line[:1] in "<>c*"
            or (line[:1] in ".h" and line[2:11].strip())] == []
    old.mount.tool("diff", "-r", "--no-dereference", "-x", "fifo", "-x", "socket", "-x", "null",
                   "-x", "block", old.past, old.mount.path / "copy")


def test_sums_are_checked(old):
    sums = old.mount.path / "sums"
    old.shell(f"find . -type f -print0 | xargs -0 sha256sum > {sums}", old.past)
    assert old.shell(f"sha256sum --quiet -c {sums}", old.past) == ""


def test_a_zip_archive_unpacks_to_the_same(old):
    archive = old.mount.path / "archive.zip"
    old.shell(f"zip -q -r {archive} many plain big", old.past)
    old.mount.tool("python3", "-m", "zipfile", "-e", archive, old.mount.path / "unpacked")
    old.mount.tool("diff", "-r", old.past / "many", old.mount.path / "unpacked/many")
    old.mount.tool("cmp", old.past / "big", old.mount.path / "unpacked/big")


# ---- real work -----------------------------------------------------------------------------------

def make_project(root):
    (root / "src").mkdir(parents=True)
    (root / "src/one.c").write_text('#include "one.h"\nint one(void) { return ONE; }\n')
    (root / "src/one.h").write_text("#define ONE 41\nint one(void);\n")
    (root / "src/main.c").write_text(
        '#include <stdio.h>\n#include "one.h"\nint main(void) { printf("%d\\n", one() + 1); }\n')
    (root / "Makefile").write_text(
        "S := $(dir $(lastword $(MAKEFILE_LIST)))\nVPATH = $(S)src\n"
        "program: main.o one.o\n\tcc -o $@ $^\n%.o: %.c one.h\n\tcc -I$(S)src -c -o $@ $<\n")


def break_project(root):
    (root / "src/one.h").write_text("#error changed\n")
    (root / "src/one.c").unlink()
    os.rename(root / "src/main.c", root / "src/old.c")
    (root / "Makefile").write_text("program:\n\tfalse\n")


def test_a_project_of_the_past_builds(either_mount):
    old = Then(either_mount, make_project, break_project).leave()
    build = old.mount.path / "build"
    old.act(build.mkdir)
    assert "cc -o program" in old.shell("make -n", old.past)
    refused = old.shell("make 2>&1; echo $?", old.past)
    assert refused.endswith("\n2\n") and "Read-only file system" in refused
    old.shell(f"make -f {old.past}/Makefile", build)
    assert old.mount.tool(build / "program").stdout == "42\n"
    assert "up to date" in old.shell(f"make -f {old.past}/Makefile", build)


def make_repository(root):
    script = ("git init -q . && for i in 1 2 3; do echo $i > f$i; git add f$i; git commit -qm c$i; done"
              " && git branch side HEAD~1 && git tag t && git repack -qad && echo 4 > f1 && touch f2"
              " && echo x > untracked && mkdir d && echo d > d/e && git add d")
    root.mkdir()
    subprocess.run(["sh", "-ec", script], check=True, cwd=root, env=GIT)


def break_repository(root):
    shutil.rmtree(root / ".git/objects")
    (root / "f1").unlink()
    (root / ".git/index").write_bytes(b"nonsense")


GIT = dict(os.environ, HOME="/nonexistent", GIT_AUTHOR_NAME="t", GIT_COMMITTER_NAME="t",
           GIT_AUTHOR_EMAIL="t@example.org", GIT_COMMITTER_EMAIL="t@example.org",
           GIT_CONFIG_COUNT="1", GIT_CONFIG_KEY_0="safe.directory", GIT_CONFIG_VALUE_0="*")


@pytest.mark.parametrize("locks", ["0", "1"])
def test_a_repository_of_the_past_is_one(either_mount, locks):
    """Git would like to refresh its index: it must do without."""
    old = Then(either_mount, make_repository, break_repository)
    questions = ("status --porcelain", "status", "log --stat", "diff", "diff --cached", "branch -av",
                 "ls-files -s", "show HEAD:f2", "blame f3", "rev-parse HEAD", "fsck --full --strict",
                 "grep 4", "stash list", "describe --tags", "cat-file -p HEAD^{tree}", "archive HEAD | md5sum")
    script = "".join(f"git {question};" for question in questions)

    def ask(directory):
        environment = dict(GIT, GIT_OPTIONAL_LOCKS=locks)
        return old.shell(f"set -e; {script}", directory, env=environment)

    expected = ask(old.present)
    old.leave()
    assert ask(old.past) == expected


def make_database(root):
    root.mkdir()
    script = "CREATE TABLE t (a, b); WITH RECURSIVE n(i) AS (SELECT 1 UNION SELECT i+1 FROM n WHERE i<5000)" \
             " INSERT INTO t SELECT i, hex(i*i) FROM n; CREATE INDEX x ON t (b);"
    run("sqlite3", root / "data.db", script)


def break_database(root):
    run("sqlite3", root / "data.db", "DELETE FROM t WHERE a % 2; INSERT INTO t VALUES (1, 'new'); VACUUM;")
    os.truncate(root / "data.db", 5000)


@pytest.mark.parametrize("how", ["immutable=1", "mode=ro"])
def test_a_database_of_the_past_opens(either_mount, how):
    old = Then(either_mount, make_database, break_database).leave()
    question = "PRAGMA integrity_check; SELECT count(*), sum(a), max(b) FROM t;"
    said = old.mount.tool("sqlite3", f"file:{old.past}/data.db?{how}", question).stdout
    assert said.splitlines()[0] == "ok" and said.splitlines()[1].startswith("5000|12502500|")
    said = old.mount.run_tool("sqlite3", f"file:{old.past}/data.db?mode=rw", "DELETE FROM t;")
    assert said.returncode != 0 and "readonly" in said.stdout.replace("-", "")


def test_an_editor_shows_the_past_and_cannot_write_it(old):
    vim = shutil.which("vim") or shutil.which("vim.tiny") or shutil.which("vi")
    out = old.mount.path / "from vim"
    old.mount.tool(vim, "-u", "NONE", "-N", "-R", "-es", old.past / "many/file007",
                   "-c", f"w {str(out).replace(' ', chr(92) + ' ')}", "-c", "q!")
    old.mount.tool("cmp", old.past / "many/file007", out)
    old.mount.run_tool(vim, "-u", "NONE", "-N", "-es", old.past / "many/file007", "-c", "s/^/x/", "-c",
                       "w!", "-c", "q!")
    old.mount.tool("cmp", old.past / "many/file007", out)
