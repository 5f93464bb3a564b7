# SPDX-License-Identifier: LGPL-2.1-or-later
"""Compaction: fewer bytes, the same past."""
import json
import os
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from mounts import LIMIT, NOBODY, epoch, moment
from preload import preloaded
from test_bundles import NAMES, RELEASES, bundles, releases
from test_bundles import check as check_releases
from test_forget import found_in_store

ROUNDS = 12 if os.environ.get("WAYBACK_QUICK") else 40
WORDS = "undo log catalog version text of a file rewritten again and again with a few changes".split()


def some_text(rng):
    return [" ".join(rng.choices(WORDS, k=8)) for _ in range(1500)]


def rewrite(mount, rng, lines, rounds=ROUNDS):
    """A text that shifts; its states and their moments."""
    path = mount.path / "dir" / "text"
    path.parent.mkdir(exist_ok=True)
    was = []
    for _ in range(rounds):
        lines[rng.randrange(len(lines))] = " ".join(rng.choices(WORDS, k=rng.randrange(1, 12)))
        path.write_text("\n".join(lines), encoding="ascii")
        was.append((moment(), "\n".join(lines)))
    return was


def check(mount, was, step=1):
    for when, text in was[::step]:
        path = mount.path / "dir" / f"text@{epoch(when)}"
        assert path.read_text(encoding="ascii") == text


def store_size(mount):
    return sum(path.stat().st_size for path in mount.store().glob("objects/*/*.undo"))


def lists_of(mount):
    """The lists of changes, which hold places in logs."""
    path = mount.path / "dir" / "text"
    return (mount.tool("vstat", "--json", path).stdout, mount.tool("vlog", "--json", mount.path).stdout)


def test_nothing_changes_but_the_size(any_mount):
    mount = any_mount
    rng = random.Random(1)
    lines = some_text(rng)
    was = rewrite(mount, rng, lines)
    before, lists = store_size(mount), lists_of(mount)
    assert "would be" in mount.tool("vcompact", "-n", mount.path).stdout
    assert store_size(mount) == before
    with open(mount.path / "dir" / f"text@{epoch(was[0][0])}", "rb", buffering=0) as opened:
        assert opened.read(100) == was[0][1][:100].encode()
        answer = json.loads(mount.tool("vcompact", "--json", mount.path).stdout)
        assert answer["changed"] >= 1 and answer["bytes_after"] < answer["bytes_before"]
        assert store_size(mount) < before / 3
        assert lists_of(mount) == lists
        was += rewrite(mount, rng, lines, 3)
        opened.seek(0)
        assert opened.read() == was[0][1].encode()
    check(mount, was)
    mount.remount()
    check(mount, was, 5)
    mount.check_store()
    stats = json.loads(mount.tool("vcompact", "--json", "--stats", mount.path).stdout)
    assert stats["packed"] >= 1 and stats["bytes_unpacked"] > stats["bytes_after"]
    mount.tool("vcompact", "--undo", mount.path / "dir")
    assert store_size(mount) >= before
    check(mount, was, 3)
    mount.tool("vcompact", mount.path / "dir" / "text")
    assert store_size(mount) < before / 3
    check(mount, was, 3)
    mount.check_store()


def test_idle_history_is_packed_as_wayback_conf_says(mount):
    rng = random.Random(2)
    was = rewrite(mount, rng, some_text(rng))
    before = store_size(mount)
    lost = releases(mount)
    never, others = mount.path / "src" / "never", set(mount.store().glob("objects/*/*.undo"))
    for _ in range(3):
        never.write_bytes(rng.randbytes(20) * 5000)
    whole, = set(mount.store().glob("objects/*/*.undo")) - others
    size = whole.stat().st_size
    with open(mount.store() / "wayback.conf", "w", encoding="ascii") as stream:
        stream.write("[history]\ncompact-after = 1s\n[path \"/src/file0\" \"never\"]\ncompact = none\n"
                     "[path \"file1\"]\ncompact = zstd\n")
    packed = (len(NAMES) - 1) * (RELEASES - 1)
    limit = time.monotonic() + LIMIT
    while store_size(mount) - size > before / 2 or len(bundles(mount)) < packed:
        assert time.monotonic() < limit, "nothing was packed"
        time.sleep(0.5)
    check(mount, was, 4)
    check_releases(mount, lost)
    assert whole.stat().st_size == size and len(bundles(mount)) == packed
    mount.remount()
    check(mount, was, 4)
    check_releases(mount, lost)
    mount.check_store()


def test_erased_content_is_gone_from_packed_history(mount):
    rng = random.Random(3)
    secret = b"the-string-nobody-must-find-again"
    rewrite(mount, rng, some_text(rng))
    path = mount.path / "dir" / "text"
    path.write_bytes(secret)
    path.write_bytes(b"harmless")
    mount.tool("vcompact", mount.path)
    mount.tool("vcompact", "--undo", path)
    assert found_in_store(mount, secret)
    mount.tool("vcompact", mount.path)
    mount.tool("vrm", "-y", path)
    mount.tool("vcompact", "--undo", mount.path)
    assert found_in_store(mount, secret) == []
    mount.check_store()


def test_permissions(mount):
    rng = random.Random(4)
    rewrite(mount, rng, some_text(rng), 3)
    os.chmod(mount.path / "dir", 0o755)
    result = mount.run_tool("vcompact", mount.path / "dir" / "text", user=NOBODY)
    assert result.returncode == 1 and "not permitted" in result.stdout
    result = mount.run_tool("vcompact", mount.path, user=NOBODY)
    assert result.returncode == 1 and "not permitted" in result.stdout
    assert mount.run_tool("vcompact", "--undo", "--stats", mount.path).returncode == 2


def test_an_erasure_goes_first_and_the_rest_is_packed(mount):
    rng = random.Random(5)
    was = []
    for number in range(100):
        for turn in range(4):
            content = rng.randbytes(10_000) * 2
            with open(mount.path / f"f{number}", "r+b" if turn else "wb") as stream:
                stream.write(content)
            if turn == 1:
                was.append((moment(), content))
    secrets = [mount.path / f"secret{number}" for number in range(60)]
    for secret in secrets:
        secret.write_text("one")
        secret.write_text("two")
    over = threading.Event()

    def erase():
        while secrets and not over.is_set():
            mount.tool("vrm", "-y", secrets.pop())

    with ThreadPoolExecutor() as pool:
        erasing = pool.submit(erase)
        for arguments in ((), ("--undo",), ()):
            mount.tool("vcompact", *arguments, mount.path)
        over.set()
        erasing.result()
    mount.tool("vcompact", mount.path)
    stats = json.loads(mount.tool("vcompact", "--json", "--stats", mount.path).stdout)
    assert stats["packed"] >= 100 and stats["bytes_after"] < stats["bytes_unpacked"] * 2 / 3
    for number, (when, content) in enumerate(was):
        assert (mount.path / f"f{number}@{epoch(when)}").read_bytes() == content
    mount.check_store()


KILL = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
int fdatasync(int fd)
{
    int (*real)(int) = dlsym(RTLD_NEXT, "fdatasync");
    char link[64], path[4096] = "";
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    if (access(getenv("KILL_FILE"), F_OK) == 0 && readlink(link, path, sizeof(path) - 1) > 0 &&
        strstr(path, "pack.new")) {
        unlink(getenv("KILL_FILE"));
        raise(SIGKILL);
    }
    return real(fd);
}
"""


def test_files_left_by_a_kill_are_removed_at_the_next_mount(maker, tmp_path):
    kill = tmp_path / "kill"
    with preloaded(tmp_path, KILL, KILL_FILE=kill):
        mount = maker.mount("allow_other")
    was = rewrite(mount, random.Random(4), some_text(random.Random(3)), 12)
    kill.touch()
    mount.run_tool("vcompact", mount.path)
    assert not kill.exists()
    mount.kill(check=False)
    assert len(list(mount.store().rglob("*pack.new"))) == 1
    (mount.store() / "bundle.new").write_bytes(b"part of another")
    mount.start()
    assert not list(mount.store().rglob("*pack.new")) + list(mount.store().rglob("bundle*.new"))
    check(mount, was)
    mount.tool("vcompact", mount.path)
    check(mount, was)
