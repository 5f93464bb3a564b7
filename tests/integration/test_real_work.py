# SPDX-License-Identifier: LGPL-2.1-or-later
"""The main job on real input: a source tree built, a git repository, a database, an editor.

A tar of the whole tree is kept at several moments on the way. Afterwards every one of those moments must equal its tar,
read through @TIME and restored by vrevert.
"""
import hashlib
import os
import shutil
import sqlite3
import subprocess
import tarfile
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run(*command, cwd=None, **options):
    result = subprocess.run([str(c) for c in command], cwd=cwd, text=True, errors="replace",
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, **options)
    assert result.returncode == 0, f"{command}: {result.stdout[-3000:]}"
    return result.stdout


def index(archive):
    """The fields of every member of a tar, times to the nanosecond, contents by digest."""
    members = {}
    with tarfile.open(archive) as tar:
        for member in tar:
            digest = ""
            if member.isreg():
                digest = hashlib.file_digest(tar.extractfile(member), "blake2b").hexdigest()
            members[member.name] = (member.type, member.mode, member.uid, member.gid, member.size,
                                    member.pax_headers.get("mtime", str(member.mtime)),
                                    member.linkname, digest)
    return members


def tar_of(tree, archive):
    run("tar", "--format=posix", "--pax-option=delete=atime,delete=ctime", "--sort=name",
        "--numeric-owner", "-cf", archive, "-C", tree, ".")
    return index(archive)


def unequal(expected, found):
    return [f"{name}: was {expected.get(name)}, is {found.get(name)}"
            for name in sorted(expected.keys() | found.keys())
            if expected.get(name) != found.get(name)]


def libfuse_source():
    found = sorted((ROOT / "subprojects").glob("fuse3*/lib/fuse_lowlevel.c"))
    if not found:
        pytest.skip("libfuse's source is not unpacked: the distribution's own is new enough")
    return found[0].parents[1]


def build_c_project(tree):
    """Without the output of doxygen, nine tenths of its bytes, without optimization and examples: gcc is not under
    test."""
    project = tree / "project"
    shutil.copytree(libfuse_source(), project, ignore=shutil.ignore_patterns("build*", "html"))
    run("meson", "setup", "build", "-Doptimization=0", "-Ddebug=false", "-Dutils=false", "-Dexamples=false",
        "-Dtests=false", "-Dudevrulesdir=/nonexistent", "-Duseroot=false", cwd=project)
    run("ninja", "-C", "build", cwd=project)


def rebuild_after_edit(tree):
    with open(tree / "project/lib/fuse_opt.c", "a", encoding="utf-8") as source:
        source.write("\n/* edited */\n")
    run("ninja", "-C", "build", cwd=tree / "project")
    run("ninja", "-C", "build", "clean", cwd=tree / "project")


def git(tree, *arguments):
    return run("git", "-c", "user.name=t", "-c", "user.email=t@example.org", "-c",
               "commit.gpgsign=false", "-c", "safe.directory=*", *arguments, cwd=tree / "repo")


def start_repository(tree):
    shutil.copytree(libfuse_source() / "lib", tree / "repo")
    git(tree, "init", "-q")
    git(tree, "add", "-A")
    git(tree, "commit", "-qm", "first")


def commit_and_collect(tree):
    for number in range(6):
        with open(tree / "repo/fuse.c", "a", encoding="utf-8") as source:
            source.write(f"/* {number} */\n")
        git(tree, "commit", "-qam", f"change {number}")
    git(tree, "branch", "side", "HEAD~3")
    git(tree, "gc", "-q", "--prune=now")
    git(tree, "checkout", "-q", "side")


def database_work(tree, start, count):
    connection = sqlite3.connect(tree / "data.db")
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("CREATE TABLE IF NOT EXISTS t (id INTEGER PRIMARY KEY, body BLOB)")
    for number in range(start, start + count):
        connection.execute("INSERT OR REPLACE INTO t VALUES (?, ?)",
                           (number % 150, os.urandom(900)))
        if number % 10 == 0:
            connection.commit()
        if number % 70 == 0:
            connection.execute("DELETE FROM t WHERE id % 7 = 3")
    connection.commit()
    connection.close()


def edit_with_vim(tree):
    notes = tree / "notes.txt"
    notes.write_text("first line\nsecond line\n", encoding="utf-8")
    vim = shutil.which("vim") or shutil.which("vim.tiny") or shutil.which("vi")
    assert vim, "no vim: scripts/install-deps installs one"
    for word in ("alpha", "beta", "gamma"):
        run(vim, "-u", "NONE", "-N", "-es", "-c", f"%s/^/{word} /", "-c", "wq", notes)


STEPS = [
    build_c_project, start_repository, lambda tree: database_work(tree, 0, 200), edit_with_vim,
    rebuild_after_edit, commit_and_collect, lambda tree: database_work(tree, 200, 300),
    lambda tree: shutil.rmtree(tree / "project"), lambda tree: os.unlink(tree / "data.db"),
]


def check_database(path, copy):
    """integrity_check needs a place to write its -shm: a copy of database and WAL."""
    for suffix in ("", "-wal"):
        if os.path.exists(f"{path}{suffix}"):
            shutil.copyfile(f"{path}{suffix}", f"{copy}{suffix}")
    connection = sqlite3.connect(copy)
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()


@pytest.fixture(name="worked")
def fixture_worked(ext4_mount, tmp_path):
    """A mount with all the work done in it, and the moments: (epoch, index of the tar)."""
    mount = ext4_mount
    moments = []
    for number, step in enumerate(STEPS):
        step(mount.path)
        archive = tmp_path / "moment.tar"
        moments.append((time.time_ns(), tar_of(mount.path, archive), number))
        time.sleep(0.01)
    return mount, moments


def test_every_moment_of_real_work_is_restored(worked, tmp_path):
    mount, moments = worked
    for when, expected, number in moments:
        past = mount.path / f"@{when // 10**9}.{when % 10**9:09d}"
        assert unequal(expected, tar_of(past, tmp_path / "past.tar")) == [], f"step {number}"
        if (past / "repo/.git").exists():
            copy = tmp_path / f"repo{number}"
            run("cp", "-a", past / "repo", copy)
            run("git", "-c", "safe.directory=*", "fsck", "--full", cwd=copy)
            shutil.rmtree(copy)
        if (past / "data.db").exists():
            check_database(past / "data.db", str(tmp_path / f"copy{number}.db"))

    for when, expected, number in moments[::-1] + moments[3:6]:
        mount.tool("vrevert", mount.path, "--time", f"{when // 10**9}.{when % 10**9:09d}")
        assert unequal(expected, tar_of(mount.path, tmp_path / "now.tar")) == [], f"step {number}"
        if (mount.path / "repo/.git").exists():
            git(mount.path, "fsck", "--full")
    mount.check_store()
