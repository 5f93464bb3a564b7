# SPDX-License-Identifier: LGPL-2.1-or-later
"""wayback -o at=TIME,branch=DIR: a moment that can be changed, and has a history of its own."""
import ctypes
import errno
import mmap
import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import threading
import time
from pathlib import Path

import pytest

from mounts import LIMIT, NOBODY, SECOND, Branch, as_user, caches_kept, drop_caches, epoch, moment, mounted_at, run
from operations import Operator
from preload import preloaded
from test_differential import Sorted, relative
from test_moments import at, everything
from thinning import write_versions
from treestate import differences, state_of

STEPS = 400


def branch_of(maker, mount, when, directory, *options, start=True, **named):
    """That moment of the mount's source, writable, with its changes in `directory`."""
    moments = [] if when is None else [at(when)]
    return maker.mount(*moments, f"branch={directory}", "allow_other", *mount.store_options(), *options,
                       source=mount.source, made=Branch, start=start, **named)


class OneName(Sorted):
    """Without hard links: their behaviour in an overlay on FUSE has a test of its own."""

    do_link = Sorted.do_mkdir


def wait_for(condition):
    deadline = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def gone(pids):
    """Waits until these processes have ended."""
    wait_for(lambda: not [pid for pid in pids if os.path.exists(f"/proc/{pid}")])


@pytest.fixture(name="tree")
def fixture_tree(mount):
    """A mount, and a past moment of it; its state then."""
    root = mount.path
    os.makedirs(root / "d/deep/er")
    (root / "d/f").write_bytes(b"one")
    os.link(root / "d/f", root / "d/link")
    (root / "d/deep/er/x").write_bytes(b"x" * 10000)
    (root / "gone").write_bytes(b"gone")
    os.symlink("d/f", root / "s")
    os.mkfifo(root / "p")
    os.setxattr(root / "d/f", "user.k", b"v")
    os.chmod(root / "d", 0o2775)
    when, state = moment(), state_of(root)
    shutil.rmtree(root / "d")
    (root / "gone").unlink()
    (root / "young").write_bytes(b"")
    return mount, when, state


# ---- view and contents ---------------------------------------------------------------------------

def test_changes_are_kept_and_the_origin_is_not_touched(tree, maker):
    mount, when, state = tree
    mount.stop()
    before = everything(mount.source)
    home = maker.scratch / "branch"
    branch = branch_of(maker, mount, when, home)
    assert differences(state, state_of(branch.path), ignore=("nlink",)) == []
    root = branch.path
    (root / "d/f").write_bytes(b"two")
    (root / "d").rename(root / "e")
    (root / "gone").unlink()
    (root / "new").write_bytes(b"new")
    os.setxattr(root / "e/deep", "user.a", b"b")
    os.chmod(root / "e/deep/er/x", 0o600)
    left = state_of(root)
    daemons = branch.daemons()
    assert len(daemons) == 2
    branch.stop()
    gone(daemons)
    assert everything(mount.source) == before
    # The moment is remembered, or is the same.
    for again in (None, when):
        branch = branch_of(maker, mount, again, home)
        assert differences(left, state_of(branch.path), ignore=("nlink",)) == []
        branch.stop()
    assert everything(mount.source) == before
    assert left["e/f"].size == 3 and "gone" not in left
    assert (home / "upper/e/f").read_bytes() == b"two"


def test_kinds_of_file_systems_can_hold_a_branch(any_mount, maker, kind):
    (any_mount.path / "f").write_bytes(b"one")
    os.mkdir(any_mount.path / "d")
    when = moment()
    home = maker.tree(kind)
    branch = branch_of(maker, any_mount, when, home)
    (branch.path / "f").write_bytes(b"two")
    (branch.path / "d").rename(branch.path / "e")
    (branch.path / "e/g").write_bytes(b"g")
    branch.remount()
    assert (branch.path / "f").read_bytes() == b"two"
    assert sorted(os.listdir(branch.path)) == ["e", "f"]
    assert sorted(os.listdir(any_mount.path)) == ["d", "f"]
    assert (any_mount.path / "f").read_bytes() == b"one"


def test_the_origin_continues(tree, maker):
    """The branch is unchanged while a mount of the present changes the same tree."""
    mount, when, state = tree
    branch = branch_of(maker, mount, when, maker.scratch / "branch")
    over = threading.Event()

    def keep_changing():
        operator = Operator(str(mount.path), 3)
        while not over.is_set():
            operator.step()
        operator.close()

    worker = threading.Thread(target=keep_changing)
    worker.start()
    try:
        for _ in range(3):
            assert differences(state, state_of(branch.path), ignore=("nlink",)) == []
            branch.remount()
    finally:
        over.set()
        worker.join()


def test_a_branch_behaves_like_a_file_system(mount, maker):
    """The same operations in a plain directory, and in a branch of a moment like it."""
    for name in ("n0", "n1/n2", "n1/n3"):
        os.makedirs(mount.path / name)
    for name in ("n4", "n1/n5", "n1/n2/n6"):
        (mount.path / name).write_bytes(os.urandom(50000))
    when = moment()
    bare = maker.tree() / "bare"
    run("cp", "-a", mount.path, bare)
    shutil.rmtree(mount.path / "n1")
    branch = branch_of(maker, mount, when, maker.tree())
    here, there = OneName(str(bare), 5), OneName(str(branch.path), 5)
    lines = []
    for step in range(STEPS):
        a, b = relative(here.step(), bare), relative(there.step(), branch.path)
        lines.append(a)
        assert a == b, f"step {step}, after:\n" + "\n".join(lines[-10:])
    here.close()
    there.close()
    ignore = ("mtime", "nlink")
    assert differences(state_of(bare), state_of(branch.path), ignore) == []
    branch.remount()
    assert differences(state_of(bare), state_of(branch.path), ignore) == []


# ---- its own history ----------------------------------------------------------------------------

def test_the_past_of_a_branch_can_be_mounted(tree, maker):
    mount, when, state = tree
    home = maker.scratch / "branch"
    branch = branch_of(maker, mount, when, home)
    moments = []
    root = branch.path
    for change in (lambda: (root / "d/f").write_bytes(b"two"), lambda: (root / "d").rename(root / "e"),
                   lambda: (root / "gone").unlink(), lambda: shutil.rmtree(root / "e/deep"),
                   lambda: (root / "gone").mkdir(), lambda: (root / "gone/again").write_bytes(b"")):
        moments.append((moment(), state_of(root)))
        change()
    for then, expected in moments:
        past = maker.mount(at(then), "allow_other", source=home, made=Branch)
        assert differences(expected, state_of(past.path), ignore=("nlink",)) == []
        with pytest.raises(OSError) as caught:
            (past.path / "x").write_bytes(b"")
        assert caught.value.errno == errno.EROFS
        past.stop()
    assert differences(state, moments[0][1], ignore=("nlink",)) == []
    # Without mounting the branch, too.
    branch.stop()
    then, expected = moments[2]
    past = maker.mount(at(then), "allow_other", source=home, made=Branch)
    assert differences(expected, state_of(past.path), ignore=("nlink",)) == []


def test_before_it_was_made_a_branch_has_no_past(tree, maker):
    mount, when, _ = tree
    home = maker.scratch / "branch"
    branch_of(maker, mount, when, home)
    code, said = maker.mount(at(when), "allow_other", source=home, made=Branch, start=False).refused()
    assert code == 1 and "begins later" in said


def test_tools_see_the_changes_in_its_directory(tree, maker):
    mount, when, _ = tree
    home = maker.scratch / "branch"
    branch = branch_of(maker, mount, when, home)
    (branch.path / "d/f").write_bytes(b"two")
    then = moment()
    (branch.path / "d/f").write_bytes(b"three")
    # The record of a file that was closed just now may follow.
    wait_for(lambda: branch.tool("vstat", "--operations", home / "upper/d/f").stdout.count(" write ") == 2)
    out = maker.scratch / "out"
    branch.tool("vextract", home / "upper/d/f", "--time", epoch(then), "-o", out)
    assert out.read_bytes() == b"two"


# Layers stay mounted at their own place for as long as the file HOLD exists.
DETACHING = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int umount2(const char *target, int flags)
{
    static int (*real)(const char *, int);

    if (!real)
        real = (int (*)(const char *, int))dlsym(RTLD_NEXT, "umount2");
    while (strstr(target, "wayback-layers-") && access(getenv("HOLD"), F_OK) == 0)
        usleep(1000);
    return real(target, flags);
}
"""


def test_tools_do_not_use_the_mount_of_a_layer(tree, maker):
    """It is listed until the overlay is mounted and the layer is detached; no name means the past in it."""
    mount, when, _ = tree
    home, hold = maker.scratch / "branch", maker.scratch / "hold"
    hold.touch()
    with preloaded(maker.scratch, DETACHING, HOLD=hold):
        branch = branch_of(maker, mount, when, home)
    try:
        (branch.path / "d/f").write_bytes(b"two")
        then = moment()
        (branch.path / "d/f").write_bytes(b"three")
        assert "wayback-layers-" in Path("/proc/mounts").read_text(encoding="utf-8")
        out = maker.scratch / "out"
        branch.tool("vextract", home / "upper/d/f", "--time", epoch(then), "-o", out)
        assert out.read_bytes() == b"two"
    finally:
        hold.unlink()
    branch.stop()


def test_names_of_moments_mean_nothing_inside(tree, maker):
    """An overlay would mix the past of one layer with another time of the other."""
    mount, when, _ = tree
    branch = branch_of(maker, mount, when, maker.scratch / "branch")
    (branch.path / "d/f").write_bytes(b"two")
    for name in ("d/f@1s", "d/f@now", "@now", f"d@{epoch(when)}", "f@~1", ".snapshot"):
        assert not os.path.lexists(branch.path / name), name
    (branch.path / "d/f@now").write_bytes(b"a name as any")
    assert sorted(os.listdir(branch.path / "d")) == ["deep", "f", "f@now", "link"]


# ---- programs ---------------------------------------------------------------------------------------

@pytest.fixture(name="project")
def fixture_project(mount, maker):
    """A branch of a small project under git, of which the present has nothing left."""
    root = mount.path / "project"
    root.mkdir()
    for number in range(20):
        (root / f"m{number}.c").write_text(f"int f{number}(void) {{ return {number}; }}\n", encoding="ascii")
    (root / "main.c").write_text("int f7(void);\nint main(void) { return f7() - 7; }\n", encoding="ascii")
    (root / "Makefile").write_text("prog: $(patsubst %.c,%.o,$(wildcard *.c))\n\tcc -o $@ $^\n", encoding="ascii")
    git(root, "init", "-q")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "first")
    when = moment()
    shutil.rmtree(root)
    branch = branch_of(maker, mount, when, maker.tree())
    return branch, branch.path / "project"


def git(tree, *arguments):
    return run("git", "-C", tree, "-c", "user.name=t", "-c", "user.email=t@t", "-c", "safe.directory=*",
               *arguments).stdout


def test_git_and_a_compile(project):
    branch, root = project
    assert git(root, "status", "--porcelain") == ""
    run("make", "-s", "-j2", "-C", root)
    run(root / "prog")
    (root / "m7.c").write_text("int f7(void) { return 8; }\n", encoding="ascii")
    run("make", "-s", "-C", root)
    assert run(root / "prog", check=False).returncode == 1
    git(root, "checkout", "-qb", "side")
    git(root, "commit", "-qam", "second")
    git(root, "mv", "m1.c", "renamed.c")
    git(root, "commit", "-qam", "third")
    git(root, "gc", "-q")
    git(root, "fsck", "--strict")
    branch.remount()
    git(root, "fsck", "--strict")
    assert git(root, "status", "--porcelain", "-uno") == ""
    git(root, "checkout", "-q", "master" if "master" in git(root, "branch") else "main")
    assert run("make", "-s", "-C", root, "clean", check=False) is not None
    assert (root / "m1.c").exists()


@caches_kept()  # names of one file that are looked up at different times may have different numbers on an overlay
def test_rsync_and_tar(project, maker):
    branch, root = project
    os.link(root / "m1.c", root / "hard")  # a new link of a file of the moment
    os.setxattr(root / "m2.c", "user.k", b"v")
    run("setfacl", "-m", "u:1234:r", root / "m3.c")
    for name, command in (("rsync", ["rsync", "-aHAX"]), ("cp", ["cp", "-a"])):
        out = maker.tree() / name
        run(*command, f"{root}/", out)
        # rsync takes times of the same second for equal for files that it has just made.
        ignore = ("nlink", "mtime") if name == "rsync" else ("nlink",)  # links of directories
        assert differences(state_of(root), state_of(out), ignore) == [], name
        run("rsync", "-aHAX", "--delete", f"{out}/", f"{branch.path}/back-{name}")
        assert differences(state_of(out), state_of(branch.path / f"back-{name}"), ("nlink", "mtime")) == []
    archive = maker.scratch / "t.tar"
    run("tar", "-C", root, "--xattrs", "--acls", "-cf", archive, ".")
    os.mkdir(branch.path / "unpacked")
    run("tar", "-C", branch.path / "unpacked", "--xattrs", "--acls", "-xpf", archive)
    assert differences(state_of(root), state_of(branch.path / "unpacked"), ("mtime", "nlink")) == []


def test_a_database_and_shared_mappings(tree, maker):
    mount, when, _ = tree
    branch = branch_of(maker, mount, when, maker.tree())
    base = sqlite3.connect(branch.path / "db")
    assert base.execute("pragma journal_mode=wal").fetchone() == ("wal",)
    base.execute("create table t(a)")
    for number in range(50):
        base.execute("insert into t values(?)", (number,))
        base.commit()
    base.close()
    with open(branch.path / "d/deep/er/x", "r+b") as stream, mmap.mmap(stream.fileno(), 0) as area:
        area[5000:5003] = b"abc"
    branch.remount()
    base = sqlite3.connect(branch.path / "db")
    assert base.execute("select count(*), sum(a) from t").fetchone() == (50, 1225)
    assert base.execute("pragma integrity_check").fetchone() == ("ok",)
    base.close()
    assert (branch.path / "d/deep/er/x").read_bytes() == b"x" * 5000 + b"abc" + b"x" * 4997


def test_renames_whiteouts_and_exchange(tree, maker):
    mount, when, _ = tree
    branch = branch_of(maker, mount, when, maker.tree())
    root, libc = branch.path, ctypes.CDLL(None, use_errno=True)
    (root / "d/deep").rename(root / "deep")
    (root / "d").rename(root / "deep/er/d")
    (root / "d").mkdir()
    assert os.listdir(root / "d") == []
    assert libc.renameat2(-100, os.fsencode(root / "d"), -100, os.fsencode(root / "deep"), 2) == 0
    assert (root / "d/er/d/f").read_bytes() == b"one"
    shutil.rmtree(root / "d/er/d")
    (root / "d/er/d").mkdir()
    os.unlink(root / "gone")
    with open(root / "gone", "xb") as stream:
        stream.write(b"other")
    left = state_of(root)
    branch.remount()
    assert differences(left, state_of(root)) == []


def test_a_hard_link_of_the_moment_becomes_a_file_of_its_own(tree, maker):
    """A limit of overlayfs, which the manual states: only hard links made in the branch are kept."""
    mount, when, _ = tree
    branch = branch_of(maker, mount, when, maker.tree())
    (branch.path / "d/f").write_bytes(b"two")
    assert (branch.path / "d/link").read_bytes() == b"one"
    os.link(branch.path / "d/f", branch.path / "d/new")
    (branch.path / "d/new").write_bytes(b"three")
    branch.remount()
    assert (branch.path / "d/f").read_bytes() == b"three"
    assert os.lstat(branch.path / "d/f").st_ino == os.lstat(branch.path / "d/new").st_ino


def test_a_file_that_lost_one_of_several_names_is_found_again(tree, maker):
    """Overlayfs looks it up by the name it met first. Until that is forgotten, it may answer ESTALE."""
    mount, when, _ = tree
    branch = branch_of(maker, mount, when, maker.tree())
    one, two, three = (branch.path / name for name in ("one", "two", "three"))
    one.write_bytes(b"content")
    os.link(one, two)
    os.link(one, three)
    for path in (two, one):
        assert path.read_bytes() == b"content"
    one.unlink()
    try:
        assert two.read_bytes() == b"content"
    except OSError as error:
        assert error.errno == errno.ESTALE
    drop_caches(2)
    assert two.read_bytes() == b"content"
    assert os.stat(three).st_ino == os.stat(two).st_ino
    branch.remount()
    assert (two.read_bytes(), os.stat(two).st_nlink) == (b"content", 2)


def test_files_can_be_opened_when_the_kernel_has_forgotten_them(tree, maker):
    mount, when, _ = tree
    branch = branch_of(maker, mount, when, maker.tree())
    with open(branch.path / "d/deep/er/x", "r+b") as stream:
        stream.write(b"y")
    os.chmod(branch.path / "gone", 0o600)
    for _ in range(2):
        drop_caches(3)
        assert (branch.path / "d/deep/er/x").read_bytes()[:2] == b"yx"
        assert (branch.path / "gone").read_bytes() == b"gone"
        assert (branch.path / "d/link").read_bytes() == b"one"


# ---- permissions -----------------------------------------------------------------------------------

def test_users_work_in_a_branch(tree, maker):
    mount, when, _ = tree
    branch = branch_of(maker, mount, when, maker.tree())
    os.chmod(branch.path, 0o1777)

    def work():
        (branch.path / "mine").mkdir()
        (branch.path / "mine/f").write_bytes(b"f")
        (branch.path / "mine/f").rename(branch.path / "mine/g")
        os.symlink("g", branch.path / "mine/s")
        (branch.path / "mine/s").read_bytes()
        (branch.path / "mine/t").write_bytes(b"")
        (branch.path / "mine/t").unlink()
        with pytest.raises(PermissionError):
            (branch.path / "d/f").write_bytes(b"x")
        with pytest.raises(PermissionError):
            (branch.path / "gone").unlink()

    as_user(work, *SECOND)
    status = os.lstat(branch.path / "mine/g")
    assert (status.st_uid, status.st_gid) == SECOND


def test_an_ordinary_user_is_refused_with_a_reason(user_mount, maker):
    branch = branch_of(maker, user_mount, moment(), maker.scratch / "branch", user=NOBODY, start=False)
    code, said = branch.refused()
    assert code == 1 and "only root may mount one" in said and len(said.splitlines()) == 1


def test_an_overlay_lets_others_in_so_the_option_is_required(tree, maker):
    mount, when, _ = tree
    options = [at(when), f"branch={maker.scratch}/branch"]
    code, said = maker.mount(*options, source=mount.source, made=Branch, start=False).refused()
    assert code == 1 and "use allow_other" in said
    assert not (maker.scratch / "branch").exists()
    closed = maker.scratch / "closed"
    (closed / "mnt").mkdir(parents=True)
    closed.chmod(0o700)
    branch = maker.mount(*options, source=mount.source, path=closed / "mnt", made=Branch)
    assert (branch.path / "d/f").read_bytes() == b"one"


# ---- limits ------------------------------------------------------------------------------------------

def test_a_version_thinned_out_meanwhile_is_not_shown(mount, maker):
    """In place of a removed version an older one shows: a branch that relies on it is refused, and no other."""
    homes = iter(maker.scratch / f"branch{number}" for number in range(9))
    (mount.path / "other").write_bytes(b"other")
    seen = write_versions(mount.path / "file", 9, 100)
    mount.tool("vsnap", "create", "here", mount.path)
    whens = [when for when, _ in seen]
    homes_of = {when: next(homes) for when in (whens[3], whens[8], "here")}
    for when, home in homes_of.items():
        branch_of(maker, mount, None, home, f"at={when}" if when == "here" else at(when)).stop()

    def mounts(when, content):
        branch = branch_of(maker, mount, None, homes_of[when])
        assert (branch.path / "file").read_bytes() == content
        branch.stop()

    def refused(when, name):
        home = homes_of[when]
        for mounted in (branch_of(maker, mount, None, home, start=False),
                        maker.mount("at=now", "allow_other", source=home, made=Branch, start=False)):
            code, said = mounted.refused()
            assert code == 1 and "thinned out" in said and name in said and str(home / "upper") in said, said

    # A mounted branch keeps its version, and remembers that.
    branch = branch_of(maker, mount, None, homes_of[whens[3]])
    mount.tool("vprune", "-y", "--keep-versions", "..4", mount.path)
    assert (branch.path / "file").read_bytes() == seen[3][1]
    branch.stop()
    mounts(whens[3], seen[3][1])
    # A branch of a moment that already shows something older continues to show that, and nothing older still.
    for number, shown in ((2, 0), (5, 3)):
        homes_of[whens[number]] = next(homes)
        branch = branch_of(maker, mount, whens[number], homes_of[whens[number]])
        assert (branch.path / "file").read_bytes() == seen[shown][1]
        branch.stop()
    mount.tool("vprune", "-y", "--keep-versions", "..3", mount.path)
    mount.tool("vrm", "-y", mount.path / "other")
    refused(whens[3], "'file'")
    refused(whens[5], "")
    mounts(whens[2], seen[0][1])
    mounts(whens[8], seen[8][1])
    mount.tool("vrm", "-y", "--change", 1, mount.path / "file")
    refused(whens[8], "'file'")
    mounts("here", seen[-1][1])


# ---- bad input ----------------------------------------------------------------------------------

def test_error_messages(tree, maker):
    mount, when, _ = tree
    full = maker.scratch / "full"
    full.mkdir()
    (full / "file").write_bytes(b"")
    other = maker.mount()
    here = maker.scratch / "here"
    branch_of(maker, mount, when, here).stop()
    for source, options, words in (
            (mount, [at(when), f"branch={full}"], "neither a branch nor empty"),
            (mount, [at(when), f"branch={full}/file"], "must be a directory|Not a directory"),
            (mount, [at(when), f"branch={full}/no/such"], "cannot be created"),
            (mount, [at(when), f"branch={mount.source}/b"], "inside each other"),
            (mount, [at(when), f"branch={mount.path}/b"], "in a Wayback mount"),
            (mount, [f"branch={maker.scratch}/none"], "give its time"),
            (mount, ["at=nonsense", f"branch={maker.scratch}/none"], "no such time"),
            (mount, ["at=100000000", f"branch={maker.scratch}/none"], "begins later"),
            (mount, ["at=now", f"branch={here}"], "already a branch as of"),
            (other, ["at=now", f"branch={here}"], "another directory"),
            (other, [f"branch={here}"], "begins later|another directory")):
        code, said = maker.mount(*options, "allow_other", source=source.source, made=Branch,
                                 start=False).refused()
        assert code == 1 and any(word in said for word in words.split("|")), said
        assert len(said.splitlines()) == 1, said
        assert not (maker.scratch / "none").exists()
    assert sorted(os.listdir(full)) == ["file"]
    assert not (mount.source / "b").exists()
    for option in ("branch=", "branch=/x,history=none"):
        code, _ = maker.mount(option, source=mount.source, made=Branch, start=False).refused()
        assert code == 2


def layers():
    """The directories in which daemons of branches assemble their mounts, while they do."""
    return {name for name in os.listdir("/run") if name.startswith("wayback-layers-")}


def test_a_branch_is_mounted_once(tree, maker):
    mount, when, _ = tree
    home = maker.scratch / "branch"
    branch = branch_of(maker, mount, when, home)
    code, said = branch_of(maker, mount, None, home, start=False).refused()
    assert code == 1 and "in use by process" in said
    assert (branch.path / "d/f").read_bytes() == b"one"
    # Directories of others that are about to mount disappear soon; one that was left behind does not.
    left, until = layers(), time.monotonic() + LIMIT
    while left and time.monotonic() < until:
        time.sleep(0.1)
        left &= layers()
    assert not left


# ---- ends ---------------------------------------------------------------------------------------

@pytest.mark.parametrize("layer", [0, 1])
def test_a_daemon_is_killed(tree, maker, layer):
    """Whichever it is, everything written is there when the branch is mounted again."""
    mount, when, _ = tree
    branch = branch_of(maker, mount, when, maker.tree())
    for number in range(20):
        (branch.path / f"f{number}").write_bytes(bytes([number]) * 5000)
    (branch.path / "d").rename(branch.path / "e")
    left = state_of(branch.path)
    daemons = branch.daemons()
    with subprocess.Popen(["sh", "-c", f"cd {branch.path}; mkdir w; while echo x >w/$((i=i+1)); do :; done"],
                          stderr=subprocess.DEVNULL) as writer:
        # While names are made beside it, an overlay was once seen to answer a lookup with ECHILD.
        wait_for(lambda: os.path.exists(branch.path / "w" / "3"))
        os.kill(daemons[layer], signal.SIGKILL)
        time.sleep(0.1)
        writer.kill()
    process, branch.process = branch.process, None
    Branch.running.discard(branch)
    run("umount", "-l", branch.path)
    assert process.wait(timeout=LIMIT) == 1
    gone(daemons)
    branch.expect("died")
    branch.start()
    shutil.rmtree(branch.path / "w")
    found = state_of(branch.path)
    assert differences(left, found, ignore=("mtime",)) == []
    branch.check_branch()


def test_a_branch_left_dead_is_mounted_over(tree, maker):
    mount, when, _ = tree
    branch = branch_of(maker, mount, when, maker.tree())
    (branch.path / "n").write_bytes(b"n")
    daemons = branch.daemons()
    for pid in daemons:
        os.kill(pid, signal.SIGKILL)
    process, branch.process = branch.process, None
    Branch.running.discard(branch)
    assert process.wait(timeout=LIMIT) == 1
    branch.expect("died")
    assert mounted_at(branch.path) == "overlay"
    run(*[word for word in branch.command() if word != "-f"], env=branch.programs.environment(), timeout=LIMIT)
    assert (branch.path / "n").read_bytes() == b"n"
    run("umount", branch.path)
    assert mounted_at(branch.path) is None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_unmounts(tree, maker, number):
    mount, when, _ = tree
    branch = branch_of(maker, mount, when, maker.tree())
    (branch.path / "n").write_bytes(b"n")
    process, branch.process = branch.process, None
    Branch.running.discard(branch)
    process.send_signal(number)
    assert process.wait(timeout=LIMIT) == 0
    assert mounted_at(branch.path) is None
    branch.start()
    assert (branch.path / "n").read_bytes() == b"n"


def test_a_daemon_that_ends_by_a_signal_ends_the_branch(tree, maker):
    mount, when, _ = tree
    branch = branch_of(maker, mount, when, maker.tree())
    (branch.path / "n").write_bytes(b"n")
    process, branch.process = branch.process, None
    Branch.running.discard(branch)
    os.kill(Branch.daemons(type("P", (), {"process": process})())[1], signal.SIGTERM)
    assert process.wait(timeout=LIMIT) == 0
    assert mounted_at(branch.path) is None


def test_in_the_background_and_with_a_mode(tree, maker, programs):
    mount, when, _ = tree
    point, home = maker.point(), maker.scratch / "branch"
    run(programs.directory / "wayback", "-o", f"{at(when)},branch={home},allow_other,nodev,noexec", mount.source, point,
        env=programs.environment(), timeout=LIMIT)
    assert mounted_at(point) == "overlay"
    line = run("findmnt", "-n", "-o", "OPTIONS,SOURCE", point).stdout
    assert "nodev" in line and "noexec" in line and f"{mount.source}@" in line
    (point / "n").write_bytes(b"")
    run("umount", point)
    assert stat.S_IMODE(os.stat(home).st_mode) == 0o700
    wait_for(lambda: run("flock", "-n", home / ".wayback/lock", "true", check=False).returncode == 0)
