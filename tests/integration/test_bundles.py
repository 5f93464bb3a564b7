# SPDX-License-Identifier: LGPL-2.1-or-later
"""Deleted and replaced files, packed: fewer bytes, the same past, and nothing left of erased content."""
import errno
import json
import os
import random

from mounts import epoch, moment, sync_tree
from preload import preloaded
from test_forget import found_in_store

RELEASES = 4
NAMES = [f"file{i}" for i in range(8)]


def release(mount, rng, number, texts):
    """Every file is replaced, as an editor or rsync does."""
    folder = mount.path / "src"
    folder.mkdir(exist_ok=True)
    for name in NAMES:
        lines = texts.setdefault(name, [f"{name} {i} {rng.random()}" for i in range(rng.randrange(60, 900))])
        lines[rng.randrange(len(lines))] = f"release {number} of {name}"
        new = folder / "new.tmp"
        new.write_text("\n".join(lines), encoding="ascii")
        os.utime(new, ns=(10**18 + number, 10**18 + number * 7))
        os.chmod(new, 0o640)
        new.rename(folder / name)
    return {name: "\n".join(lines) for name, lines in texts.items()}


def releases(mount):
    rng, texts = random.Random(3), {}
    return [(release(mount, rng, number, texts), moment()) for number in range(RELEASES)]


def look(path):
    st = path.stat()
    return st.st_size, st.st_mtime_ns, st.st_ctime_ns, st.st_mode, st.st_nlink, st.st_blocks


def check(mount, was):
    for texts, when in was:
        for name, text in texts.items():
            assert (mount.path / "src" / f"{name}@{epoch(when)}").read_text(encoding="ascii") == text


def looks(mount, was):
    return [look(mount.path / "src" / f"{name}@{epoch(when)}") for texts, when in was for name in texts]


def bundles(mount):
    return list(mount.store().glob("objects/*/*.bundle"))


def test_releases_take_little_more_than_one(any_mount):
    mount = any_mount
    was = releases(mount)
    before, lists = looks(mount, was), mount.tool("vstat", "--json", mount.path / "src" / "file0").stdout
    with open(mount.path / "src" / f"file1@{epoch(was[0][1])}", "rb", buffering=0) as opened:
        assert opened.read(10)
        answer = json.loads(mount.tool("vcompact", "--json", mount.path).stdout)
        assert answer["files_changed"] == len(NAMES) * (RELEASES - 1) == answer["files_packed"]
        assert answer["files_bytes_after"] < answer["files_bytes_before"] / 4
        opened.seek(0)
        assert opened.read().decode() == was[0][0]["file1"]
    assert len(bundles(mount)) == len(NAMES) * (RELEASES - 1)
    check(mount, was)
    assert looks(mount, was) == before
    assert mount.tool("vstat", "--json", mount.path / "src" / "file0").stdout == lists
    mount.remount()
    check(mount, was)
    mount.check_store()
    assert "\"code\"" not in mount.tool("vfsck", "--json", mount.source, merge=False).stdout
    mount.tool("vcompact", "--undo", mount.path / "src")
    assert not bundles(mount) and not list(mount.store().glob("objects/*/*.bundle-old"))
    check(mount, was)
    mount.check_store()


def test_a_restored_file_is_the_same_file(mount):
    was = releases(mount)
    path = mount.path / "src" / "file2"
    ino = path.stat().st_ino
    mount.tool("vcompact", mount.path)
    path.unlink()
    mount.tool("vcompact", mount.path)
    mount.tool("vrevert", path, "--time", epoch(was[-1][1]))
    assert path.read_text(encoding="ascii") == was[-1][0]["file2"]
    st = path.stat()
    assert (st.st_mtime_ns, st.st_mode & 0o777, st.st_nlink) == (10**18 + (RELEASES - 1) * 7, 0o640, 1)
    assert st.st_ino == ino
    path.write_text("changed since", encoding="ascii")
    check(mount, was)
    mount.remount()
    check(mount, was)
    mount.check_store()


def test_nothing_is_left_of_erased_content(mount):
    was = releases(mount)
    secret = mount.path / "src" / "secret"
    for number in range(2):
        secret.write_text(f"nobody may know {number}\n" * 500, encoding="ascii")
        secret.unlink()
    mount.tool("vcompact", mount.path)
    before = {os.stat(path).st_ino for path in bundles(mount)}
    mount.tool("vrm", "-y", secret)
    assert not {os.stat(path).st_ino for path in bundles(mount)} & before
    assert not found_in_store(mount, b"nobody may know")
    check(mount, was)
    mount.remount()
    mount.tool("vcompact", "--undo", mount.path)
    assert not found_in_store(mount, b"nobody may know")
    mount.check_store()


def test_expired_versions_are_removed_from_bundles_as_well(mount):
    was = releases(mount)
    mount.tool("vcompact", mount.path)
    size = sum(st.st_size // st.st_nlink for st in map(os.stat, bundles(mount)))
    mount.tool("vprune", "-y", "--before", epoch(was[1][1]), mount.path)
    assert len(bundles(mount)) == len(NAMES) * (RELEASES - 2)
    assert sum(st.st_size // st.st_nlink for st in map(os.stat, bundles(mount))) < size
    check(mount, was[1:])
    mount.check_store()


def test_vfsck_finds_damage(mount):
    was = releases(mount)
    mount.tool("vcompact", mount.path)
    mount.stop()
    path = bundles(mount)[0]
    with open(path, "r+b") as file:
        file.seek(path.stat().st_size // 2)
        file.write(b"not what was there before")
    result = mount.run_tool("vfsck", "--json", mount.source, merge=False)
    assert result.returncode != 0 and "damaged-bundle" in result.stdout, result.stdout + result.stderr
    mount.start()
    mount.expect("was packed, and objects/.* is damaged")
    refused = 0
    for texts, when in was:
        for name, text in texts.items():
            try:
                assert (mount.path / "src" / f"{name}@{epoch(when)}").read_text(encoding="ascii") == text
            except OSError:
                refused += 1
    assert 0 < refused < RELEASES * len(NAMES)


def test_vfsck_reports_a_missing_bundle(mount):
    was = releases(mount)
    mount.tool("vcompact", mount.path)
    (mount.path / "src" / "empty").touch()
    (mount.path / "src" / "empty").unlink()
    mount.stop()
    for path in bundles(mount)[:2]:
        path.unlink()
    found = json.loads(mount.run_tool("vfsck", "--json", mount.source, merge=False).stdout)["findings"]
    assert [one["code"] for one in found if one["state"] != "note"] == ["missing-bundle"] * 2
    mount.start()
    mount.expect("is shorter than it was")
    refused = 0
    for texts, when in was:
        for name, text in texts.items():
            try:
                assert (mount.path / "src" / f"{name}@{epoch(when)}").read_text(encoding="ascii") == text
            except OSError as error:
                refused += error.errno == errno.EIO
    assert refused == 2


def test_an_erasure_does_not_treat_unreadable_data_as_absent(mount):
    """In a store that was copied without hard links, each file has a bundle of its own, with the others in it."""
    was = releases(mount)
    secret = mount.path / "src" / "secret"
    secret.write_text("nobody may know\n" * 500, encoding="ascii")
    secret.unlink()
    own, = (path.stem for path in mount.store().glob("objects/*/*.data") if b"nobody may know" in path.read_bytes())
    mount.tool("vcompact", mount.path)
    mount.stop()
    for path in bundles(mount):
        data = path.read_bytes()
        path.unlink()
        path.write_bytes(data)
    other = next(path for path in bundles(mount) if path.stem != own)
    whole = other.read_bytes()
    other.write_bytes(bytes(len(whole)))
    mount.start()
    mount.expect("secret")
    mount.tool("vrm", "-y", secret, status=1)
    other.write_bytes(whole)
    mount.tool("vrm", "-y", secret)
    mount.tool("vcompact", "--undo", mount.path)
    assert not found_in_store(mount, b"nobody may know")
    check(mount, was)


def test_history_on_another_device_takes_its_space_there(maker):
    mount = maker.mount("allow_other", f"store={maker.tree('xfs')}")
    was = releases(mount)
    (mount.path / "src" / "file3").unlink()
    staged = mount.source / ".wayback" / "objects"
    before, room = looks(mount, was), sum(body.stat().st_blocks for body in staged.glob("*/*.data"))
    mount.tool("vcompact", mount.path)
    assert room > 0 == sum(body.stat().st_blocks for body in staged.glob("*/*.data"))
    assert len(bundles(mount)) == len(NAMES) * (RELEASES - 1) + 1
    assert looks(mount, was) == before
    check(mount, was)
    mount.remount()
    check(mount, was)
    mount.tool("vrevert", "--time", epoch(was[-1][1]), mount.path / "src" / "file3")
    assert (mount.path / "src" / "file3").read_text(encoding="ascii") == was[-1][0]["file3"]
    mount.check_store()


def test_unchanged_content_shares_extents_with_the_present(maker):
    mount = maker.mount("allow_other", kind="xfs")
    path, new, size = mount.path / "picture", mount.path / "new", 3 << 20
    content = random.Random(1).randbytes(size)
    was = []
    for _ in range(4):
        new.write_bytes(content)
        new.rename(path)
        was.append((moment(), content))
    before = [look(mount.path / f"picture@{epoch(when)}") for when, _ in was]
    sync_tree(mount.source)
    room = os.statvfs(mount.source)
    mount.tool("vcompact", mount.path)
    sync_tree(mount.source)
    after = os.statvfs(mount.source)
    # All three; as a bundle, only one would be left.
    assert (after.f_bfree - room.f_bfree) * room.f_frsize > 2.9 * size
    assert [look(mount.path / f"picture@{epoch(when)}") for when, _ in was] == before
    with open(path, "r+b") as file:
        file.write(b"changed since")
    mount.remount()
    for when, data in was:
        assert (mount.path / f"picture@{epoch(when)}").read_bytes() == data
    assert path.read_bytes() == b"changed since" + content[13:]
    mount.check_store()


KILL = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static int is_deleted_file(int fd)
{
    char link[64], path[4096];
    ssize_t length;
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    length = readlink(link, path, sizeof(path));
    return length > 5 && memcmp(path + length - 5, ".data", 5) == 0;
}
int ftruncate64(int fd, off64_t length)
{
    int (*real)(int, off64_t) = dlsym(RTLD_NEXT, "ftruncate64");
    static int count;
    if (access(getenv("KILL_FILE"), F_OK) == 0 && is_deleted_file(fd) && ++count == 3)
        kill(getpid(), SIGKILL);
    return real(fd, length);
}
"""


def test_killed_before_all_files_are_empty_the_next_packing_empties_them(maker, tmp_path):
    file = tmp_path / "kill"
    with preloaded(tmp_path, KILL, KILL_FILE=file):
        mount = maker.mount("allow_other")
    was = releases(mount)
    file.touch()
    mount.tool("vcompact", mount.path, status=1)
    mount.kill(check=False)
    file.unlink()
    mount.start()
    bodies = list(mount.store().glob("objects/*/*.data"))
    left = sum(path.stat().st_size > 0 for path in bodies)
    assert 0 < left < len(bodies) == len(bundles(mount))
    check(mount, was)
    answer = json.loads(mount.tool("vcompact", "--json", mount.path).stdout)
    assert answer["files_changed"] == left and not any(path.stat().st_size for path in bodies)
    check(mount, was)
    assert json.loads(mount.tool("vcompact", "--json", mount.path).stdout)["files_changed"] == 0
    mount.check_store()
    mount.stop()
    assert "clean" in mount.tool("vfsck", mount.source).stdout
