# SPDX-License-Identifier: LGPL-2.1-or-later
"""Names with an '@' that mean the past: a user who creates one gets a real entry, and real entries win."""
import shutil
import sys
import threading

import pytest

import snapshots
from mounts import NOBODY, SECOND, moment

VERSIONS = ("v1.2.3", "v", "latest")
NAMES = [f"{base}@{version}" for base in ("sdk", "one", "") for version in (*VERSIONS, "now", "0s")] + [".snapshot"]
# In a program of its own: the kernel lets the daemon inspect a process that has not changed its user since execve(2).
PROGRAM = """
import errno, os, socket, sys
def opened(flags):
    return lambda: os.close(os.open(name, flags, 0o644))
def made(function):
    open("source", "x").close()
    function("source", name)
    if os.path.exists("source"):
        os.unlink("source")
ways = {
    "mkdir": lambda: os.mkdir(name),
    "symlink": lambda: os.symlink("x", name),
    "link": lambda: made(os.link),
    "rename": lambda: made(os.rename),
    "mkfifo": lambda: os.mkfifo(name),
    "bind": lambda: socket.socket(socket.AF_UNIX).bind(name),
    "excl": opened(os.O_CREAT | os.O_EXCL | os.O_RDWR),
    "trunc": opened(os.O_CREAT | os.O_TRUNC | os.O_RDWR),
    "touch": opened(os.O_CREAT | os.O_WRONLY),
    "open": opened(os.O_CREAT | os.O_RDWR),
    "write": opened(os.O_WRONLY | os.O_TRUNC),
    "unlink": lambda: os.unlink(name),
    "rmdir": lambda: os.rmdir(name),
}
for name in sys.argv[2:]:
    try:
        ways[sys.argv[1]]()
    except OSError as error:
        print(errno.errorcode[error.errno])
"""
CREATIONS = ("mkdir", "symlink", "link", "rename", "mkfifo", "bind", "excl", "trunc", "touch")


@pytest.fixture(params=[SECOND, NOBODY], ids=["daemon of root", "own daemon"], name="tree")
def fixture_tree(request, maker):
    """Everything that VERSIONS name existed at a snapshot of that name; used by an ordinary user."""
    own = request.param == NOBODY
    tree = maker.mount(user=NOBODY) if own else maker.mount("allow_other")
    tree.who = request.param
    if not own:
        tree.path.chmod(0o777)
    shell(tree, "mkdir sdk; printf then > sdk/f; printf one > one")
    for name in VERSIONS:
        snapshots.add(tree, name)
    shell(tree, "printf two > one")
    return tree


def shell(tree, script):
    return tree.tool("env", "-C", tree.path, "sh", "-ec", script, user=tree.who).stdout


def act(tree, way, *names):
    """The names of the errors, or nothing."""
    program = tree.tool("env", "-C", tree.path, sys.executable, "-IS", "-c", PROGRAM, way, *names, user=tree.who)
    return program.stdout.strip()


@pytest.mark.parametrize("way", CREATIONS)
def test_a_name_of_the_past_can_be_created(tree, way):
    """One of them in a program that creates nothing else, and all of them together."""
    status = f"stat -c %n:%F:%s {' '.join(NAMES)}"
    before = shell(tree, status)
    remove = "rmdir" if way == "mkdir" else "unlink"
    for names in ([NAMES[0]], [NAMES[-1]], NAMES):
        assert act(tree, way, *names) == "", names
        assert set(names) == set(shell(tree, "ls -A").split()) - {"sdk", "one"}
        # Removed, it means the past again.
        assert act(tree, remove, *names) == "", names
        assert shell(tree, status) == before
    assert shell(tree, "cat one@v sdk@v/f") == "onethen"


def test_the_past_is_still_read_only(tree):
    for name, way, error in (("sdk@v/new", "mkdir", "EROFS"), ("sdk@v/new", "touch", "EROFS"), ("@v/new", "rename", "EROFS"),
                             ("sdk@v/f", "mkdir", "EEXIST"), ("one@v", "unlink", "EROFS"), ("sdk@v", "rmdir", "EROFS"),
                             ("one@v", "write", "EROFS"),
                             # As sqlite3 opens a database, with reading as its fallback.
                             ("one@v", "open", "EROFS")):
        assert act(tree, way, name) == error, (name, way)
        shell(tree, "rm -f source")
    assert shell(tree, "cat one@v sdk@v/f; ls -A") == "onethenone\nsdk\n"


def test_an_entry_of_such_a_name_has_a_history_of_its_own(tree):
    for number in range(3):
        shell(tree, f"mkdir -p sdk@v1.2.3; printf {number} > sdk@v1.2.3/f")
        then = moment()
        shell(tree, "rm -r sdk@v1.2.3")
        assert shell(tree, f"cat sdk@v1.2.3/f @{then // 10**9}.{then % 10**9:09d}/sdk@v1.2.3/f") == f"then{number}"


def test_others_find_the_past_or_the_entry(tree):
    """While one program creates and removes it, no look-up by another fails."""
    over, missing = threading.Event(), []

    def look():
        while not over.is_set():
            missing.append(shell(tree, "for i in 1 2 3 4 5 6 7 8 9; do test -d sdk@v || echo $i; done"))
    looker = threading.Thread(target=look)
    looker.start()
    try:
        shell(tree, "i=0; while [ $i -lt 100 ]; do mkdir sdk@v; rmdir sdk@v; i=$((i+1)); done")
    finally:
        over.set()
        looker.join()
    assert not any(missing)


@pytest.mark.skipif(not shutil.which("git"), reason="needs git")
def test_a_checkout_of_names_that_look_like_versions(tree):
    """Fifty of them, each a snapshot's name behind a base that existed at that snapshot."""
    shell(tree, "mkdir tree; cd tree; for i in 1 2 3 4 5 6 7 8 9 10; do mkdir pkg$i; done")
    names = [f"rel{number}" for number in range(5)]
    for name in names:
        snapshots.add(tree, name)
    shell(tree, f"""cd tree; export HOME=$PWD; git init -q .; git config user.email a@b; git config user.name a
        for v in {' '.join(names)}; do for i in 1 2 3 4 5 6 7 8 9 10; do mkdir pkg$i@$v; echo $i > pkg$i@$v/f; done; done
        git add .; git commit -qm all; git clone -q . ../copy; git -C ../copy fsck; cd ../copy
        test $(ls -d pkg*@rel* | wc -l) = 50; test -z "$(git status --porcelain)" """)
