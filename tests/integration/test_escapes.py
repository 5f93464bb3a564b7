# SPDX-License-Identifier: LGPL-2.1-or-later
"""No link, "..", "@", handle or race leads out of SRC or into the store."""
import ctypes
import os
import random
import subprocess
import sys

import pytest

from accounts import ACCOUNTS, attempt, read_file, run_as
from mounts import QUICK, epoch, moment, run

LIBC = ctypes.CDLL(None, use_errno=True)
ROUNDS = 60 if QUICK else 250


def spellings(mount, then, descriptors):
    root = mount.path
    yield from (f"{root}/{way}.wayback" for way in (
        "", "./", "d/../", "d/./../", f"@{then}/", f"d@{then}/../", f"@{then}/d/../", f"@{then}/../", ".snapshot/../",
        f".snapshot/@{then}/", f"d/.snapshot/../../", f"d/.snapshot/@{then}/../../../", "l/../"))
    yield from (f"{root}/.wayback@{then}", f"{root}/.wayback@0s", f"{root}/.wayback@~1", f"{root}/.wayback/.snapshot",
                f"{root}/@{then}/.wayback@{then}", f"{root}/to store", f"{root}/@{then}/to store")
    for number in descriptors:
        yield f"/proc/thread-self/fd/{number}/.wayback"
        yield f"/proc/thread-self/fd/{number}/d/../.wayback"
    yield f"{root}/.wayback-staging"
    yield f"{root}/@{then}/.wayback-staging"


def test_the_store_has_no_name(mount):
    (mount.path / "d").mkdir()
    os.symlink("d", mount.path / "l")
    os.symlink(".wayback", mount.path / "to store")
    (mount.path / "f").write_bytes(b"text")
    then = epoch(moment())
    os.chmod(mount.path, 0o777)
    (mount.path / "f").unlink()
    before = sorted(os.listdir(mount.source / ".wayback"))

    def look():
        descriptors = [os.open(path, os.O_PATH | os.O_DIRECTORY) for path in (mount.path, mount.path / f"@{then}")]
        try:
            look_through(descriptors)
        finally:
            for fd in descriptors:
                os.close(fd)

    def look_through(descriptors):
        for path in spellings(mount, then, descriptors):
            for below in ("", "/header", "/objects"):
                for function in (os.stat, os.listdir, read_file):
                    with pytest.raises(OSError):
                        function(path + below)
            for function in (os.mkdir, os.rmdir, os.unlink, lambda p: os.symlink("x", p), lambda p: os.rename(p, p + "x"),
                             lambda p: os.rename(mount.path / "d", p), lambda p: os.link(mount.path / "l", p)):
                if "to store" not in path and "@" not in os.path.basename(path):
                    with pytest.raises(OSError):
                        function(path)

    look()
    for account in ACCOUNTS:
        run_as(account, look)
    assert sorted(os.listdir(mount.source / ".wayback")) == before


def test_a_store_is_for_root_alone(maker):
    apart = maker.point().parent / "history of others"
    for mount in (maker.mount("allow_other"), maker.mount("allow_other", f"store={apart}")):
        mount.path.joinpath("f").write_bytes(b"secret")
        mount.path.joinpath("f").unlink()
        graves = mount.source / ".wayback"
        for place in (mount.store(), graves):
            if place.exists():
                assert place.stat().st_mode & 0o7777 == 0o700 and place.stat().st_uid == 0
                with pytest.raises(PermissionError):
                    run_as("eve", lambda: os.listdir(place))  # pylint: disable=W0640
        place = mount.store()
        mount.stop()  # files made in the background come and go
        for path in place.rglob("*"):
            assert not path.lstat().st_mode & 0o077 or path.suffix in (".data", ".dir"), path


CASEFOLD = "this kernel or mkfs.ext4 knows no names without case"


@pytest.fixture(name="folding")
def fixture_folding(base):
    """A directory in which names differ by more than case."""
    root, image = base / "folding", base / "folding.img"
    root.mkdir()
    with open(image, "wb") as stream:
        stream.truncate(64 << 20)
    if run("mkfs.ext4", "-q", "-F", "-I", "256", "-O", "casefold", image, check=False).returncode or \
            run("mount", "-o", "loop", image, root, check=False).returncode:
        image.unlink()
        root.rmdir()
        pytest.skip(CASEFOLD)
    (root / "tree").mkdir()
    try:
        if run("chattr", "+F", root / "tree", check=False).returncode:
            pytest.skip(CASEFOLD)
        yield root / "tree"
    finally:
        run("umount", root)
        image.unlink()
        root.rmdir()


def test_the_store_has_no_other_case(folding, maker):
    mount = maker.mount("allow_other", source=folding)
    (mount.path / "d").mkdir()
    os.chmod(mount.path, 0o777)

    def look():
        for name in (".Wayback", ".WAYBACK", ".wAYBACK-sTAGING", ".wayback\u00ad"):
            for function in (os.stat, os.listdir, os.rmdir, lambda p: os.rename(p, mount.path / "stolen"),
                             lambda p: os.rename(mount.path / "d", p)):
                with pytest.raises(OSError):
                    function(mount.path / name)

    look()
    run_as("eve", look)
    assert (mount.path / "D").is_dir() and (mount.source / ".wayback/header").exists()


# ---- races ----------------------------------------------------------------------------------------

SWAPPER = """
import ctypes, os, sys, time
libc = ctypes.CDLL(None)
one, other = (os.fsencode(p) for p in sys.argv[1:])
while os.getppid() == int(os.environ["PARENT"]):
    libc.renameat2(-100, one, -100, other, 2)
    time.sleep(0.0002)  # less than anything takes, and the history in which the other looks does not outgrow it
"""


def swapping(one, other, account):
    """A process of that account that gives two things each other's names for ever."""
    uid, gid, _ = ACCOUNTS[account]
    return subprocess.Popen(["setpriv", f"--reuid={uid}", f"--regid={gid}", "--clear-groups", sys.executable, "-c",
                             SWAPPER, str(one), str(other)], env=dict(os.environ, PARENT=str(os.getpid())))


@pytest.mark.parametrize("behind", [False, True], ids=["through the mount", "behind it"])
def test_a_directory_that_becomes_a_link_leads_nowhere(mount, behind):
    """The owner of a directory replaces it by a link to one that only root may enter, again and again."""
    outside = mount.source.parent / f"outside-{mount.source.name}"
    outside.mkdir(mode=0o700)
    (outside / "f").write_bytes(b"secret")
    (outside / "sub").mkdir()
    mine = mount.path / "mine"
    (mine / "d/sub").mkdir(parents=True)
    (mine / "d/f").write_bytes(b"text")
    os.symlink(outside, mine / "link")
    for path in (mine, mine / "d", mine / "d/sub", mine / "d/f"):
        os.chown(path, 4003, 4003)
    then = epoch(moment())
    before = sorted(os.listdir(outside))
    mount.expect(".*")  # the daemon reports changes behind a mount at length
    place = mount.source / "mine" if behind else mine
    swapper = swapping(place / "d", place / "link", "eve")

    def work():
        rng = random.Random(behind)
        done = 0
        for i in range(ROUNDS):
            for path in (mine / "d/f", mine / "d/sub/../f", mine / f"d/f@{then}", mount.path / f"@{then}/mine/d/f"):
                try:
                    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # it may be a pipe by now
                    content = os.read(fd, 100)
                    os.close(fd)
                    assert b"secret" not in content
                    done += 1
                except OSError:
                    pass
            make = rng.choice([lambda p: os.close(os.open(p, os.O_CREAT | os.O_EXCL | os.O_WRONLY)), os.mkdir, os.mkfifo,
                               lambda p: os.symlink("x", p), lambda p: os.link(mine / "d/f", p)])
            for function in (make, os.unlink, os.rmdir, lambda p: os.rename(mine / "d/f", p), lambda p: os.rename(p, mine / "d/f"),
                             lambda p: os.chmod(p, 0o777), lambda p: os.truncate(p, 4)):
                try:
                    function(mine / f"d/x{i % 3}")
                except OSError:
                    pass
        return done

    try:
        done = run_as("eve", work)
    finally:
        swapper.kill()
        swapper.wait()
    assert done > 0
    assert sorted(os.listdir(outside)) == before and read_file(outside / "f") == b"secret"
    assert os.listdir(outside / "sub") == [] and outside.stat().st_mode & 0o777 == 0o700
    run("rm", "-rf", outside)


def test_a_directory_moved_under_a_recursive_vrm_keeps_its_history(mount):
    """eve forgets her own tree, and moves in, once that has begun, a directory of ben's that she may move and not
    empty."""
    (mount.path / "shared").mkdir()
    os.chmod(mount.path / "shared", 0o777)
    names = [f"d{i:02d}" for i in range(60)]
    moved = 0
    for i in range(200):
        if i >= (4 if QUICK else 12) and (moved > 0 or QUICK):
            break
        mine, his = mount.path / f"shared/mine{i}", mount.path / f"shared/his{i}"

        def make():
            for name in names:
                (mine / name / "inner").mkdir(parents=True)  # pylint: disable=W0640

        def make_his():
            (his / "deep").mkdir(parents=True)  # pylint: disable=W0640
            (his / "deep/f").write_bytes(b"his")  # pylint: disable=W0640
            os.chmod(his, 0o777)  # pylint: disable=W0640

        run_as("eve", make)
        run_as("ben", make_his)
        tool = subprocess.Popen(["setpriv", "--reuid=4003", "--regid=4003", "--clear-groups", "vrm", "-ry", str(mine)],
                                env=mount.programs.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while tool.poll() is None and (attempt(os.listdir, mine) or ())[len(names) - 1:]:
            pass
        at = his
        for name in names:
            if LIBC.renameat2(-100, os.fsencode(his), -100, os.fsencode(mine / name / "his"), 0) == 0:
                at = mine / name / "his"
                moved += 1
                break
        tool.wait()
        assert read_file(at / "deep/f") == b"his"
    assert moved > 0 or QUICK
