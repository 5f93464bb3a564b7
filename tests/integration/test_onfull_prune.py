# SPDX-License-Identifier: LGPL-2.1-or-later
"""onfull=prune: writers that wait for space, readers meanwhile, and history that is not removed for it."""
import errno
import json
import os
import random
import threading
import time

import pytest

from mounts import LIMIT, epoch, moment, run
from preload import preloaded
from test_onfull import SIZE, Device, horizon, make, mounted, overwrite, protect_nothing
from treestate import differences, state_of


@pytest.mark.parametrize("kind", ["btrfs", "xfs", "ext4"])
def test_not_all_history_is_removed(maker, kind):
    """Space of forgotten history is not free at once everywhere: the rest of the history is not removed for that."""
    device = Device(maker, kind, 400)
    mount = mounted(maker, device, "onfull=prune")
    make(mount)
    rng, moments, since = random.Random(5), [], 0
    for number in range(20):
        (mount.path / f"big{number}").write_bytes(rng.randbytes(1 << 20))
    for step in range(900):
        moments.append(moment())
        with open(mount.path / f"big{step % 20}", "r+b", buffering=0) as stream:
            stream.write(rng.randbytes(1 << 20))
        since = horizon(mount)
        if since:
            break
    kept = sum(when >= since for when in moments)
    assert since and kept > len(moments) / 2, (kept, len(moments))


def test_readers_of_the_past_while_all_wait(maker):
    device = Device(maker, "ext4", 64)
    mount = mounted(maker, device, "onfull=prune")
    make(mount)
    for number in range(24):
        (mount.path / f"t{number}").write_bytes(random.Random(number).randbytes(SIZE))
    (mount.path / "past").write_bytes(random.Random(1).randbytes(4 << 20))
    moment()
    (mount.path / "past").write_bytes(b"now")
    ends, failed = threading.Event(), []

    def read():
        while not ends.is_set():
            try:
                with open(f"{mount.path}/past@{epoch(moment() - 1000000)}", "rb", buffering=0) as stream:
                    for _ in range(200):
                        os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                        os.pread(stream.fileno(), 1 << 17, random.randrange(32) << 17)
                        if ends.wait(0.005):  # they must exist, not have the processors
                            break
            except OSError:
                pass

    def write(index):
        try:
            for step in range(60):
                overwrite(mount.path / f"t{index}", index * 1000 + step)
        except OSError as error:
            failed.append(error)

    (mount.path / "past").write_bytes(random.Random(2).randbytes(4 << 20))
    readers = [threading.Thread(target=read) for n in range(8)]
    writers = [threading.Thread(target=write, args=(n,)) for n in range(24)]
    for thread in readers + writers:
        thread.start()
    for thread in writers:
        thread.join()
    ends.set()
    for thread in readers:
        thread.join()
    assert not failed


QUOTA = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>
int renameat2(int a, const char *b, int c, const char *d, unsigned flags)
{
    int (*real)(int, const char *, int, const char *, unsigned) = dlsym(RTLD_NEXT, "renameat2");
    if (access(getenv("QUOTA_FILE"), F_OK) == 0) {
        errno = EDQUOT;
        return -1;
    }
    return real(a, b, c, d, flags);
}
"""


def test_a_quota_in_the_tree_takes_no_history(maker, tmp_path):
    """rename(2) fails with EDQUOT if the owner of a directory, which has to grow, has no quota left."""
    device = Device(maker, "ext4", 64)
    quota = tmp_path / "quota"
    with preloaded(tmp_path, QUOTA, QUOTA_FILE=quota):
        mount = mounted(maker, device, "onfull=prune")
    make(mount)
    for step in range(100):
        overwrite(mount.path / "f", step)
    time.sleep(1)
    quota.touch()
    with pytest.raises(OSError) as caught:
        os.rename(mount.path / "g", mount.path / "h")
    assert caught.value.errno == errno.EDQUOT
    quota.unlink()
    assert horizon(mount) == 0


def test_the_oldest_part_of_a_large_log_is_removed(maker):
    """Of one file that has nearly all of the history: as much as is needed, and the rest is exact."""
    device = Device(maker, "ext4", 96)
    mount = mounted(maker, device, "onfull=prune")
    rng, model, log = random.Random(7), bytearray(8 << 20), []
    (mount.path / "f").write_bytes(model)
    while not horizon(mount) and len(log) < 2000:
        log.append((moment(), hash(bytes(model))))
        length = rng.choice((5000, 100_000, 1 << 20))
        offset = rng.randrange(len(model) - length)
        data = rng.randbytes(length)
        model[offset : offset + length] = data
        with open(mount.path / "f", "r+b", buffering=0) as stream:
            assert os.pwrite(stream.fileno(), data, offset) == length
    since = horizon(mount)
    kept = [(when, seen) for when, seen in log if when >= since]
    assert since and len(kept) > len(log) / 2, (len(kept), len(log))
    for when, seen in kept[:: max(1, len(kept) // 20)]:
        assert hash((mount.path / f"f@{epoch(when)}").read_bytes()) == seen
    with pytest.raises(OSError):
        (mount.path / f"f@{epoch(log[0][0])}").read_bytes()
    for step in range(60):  # and so on: there is space for later changes
        with open(mount.path / "f", "r+b", buffering=0) as stream:
            assert stream.write(rng.randbytes(1 << 20)) == 1 << 20
    mount.check_store()


def test_versions_are_removed_behind_a_hole(maker):
    """An index of the log still refers to the part before: it leads into the middle of the hole, and that is no
    damage."""
    device = Device(maker, "ext4", 128)
    with open(device.root / "spare", "wb") as stream:
        os.posix_fallocate(stream.fileno(), 0, 64 << 20)
    mount = mounted(maker, device, "onfull=prune")
    rng, path = random.Random(3), mount.path / "f"
    path.write_bytes(rng.randbytes(4 << 20))
    for step in range(200):
        with open(path, rng.choice(("wb", "r+b", "ab"))) as stream:
            stream.seek(rng.randrange(16) << 16)
            stream.write(rng.randbytes(3 << 20))
        os.truncate(path, 4 << 20)
        if step % 10 == 9 and "damaged-index" in mount.run_tool("vfsck", "-v", "--store", device.store, mount.source).stdout:
            break
    else:
        pytest.fail("no index of what has become a hole")
    (device.root / "spare").unlink()
    run("sync", "-f", device.root)
    when, was = moment(), state_of(mount.path)
    assert json.loads(mount.tool("vdf", "--json", mount.path).stdout)["damaged"] == 0
    assert " 0 versions" not in mount.tool("vprune", "-y", "--keep-versions", "..9", mount.path).stdout
    assert differences(was, state_of(mount.at(when))) == []
    mount.check_store()


def test_requests_wait_for_space_as_changes_do(maker):
    """Requests by ioctl(2): a restore by vrevert without copying, and a snapshot."""
    device = Device(maker, "ext4", 64)
    mount = mounted(maker, device, "onfull=prune")
    make(mount)
    content = (mount.path / "f").read_bytes()
    for step in range(150):
        overwrite(mount.path / "g", step)
    was = moment()
    for _ in range(20):  # space that the daemon freed by itself after the filling can serve one request, not all
        (mount.path / "f").unlink()
        device.fill()
        mount.tool("vrevert", "--time", epoch(was), mount.path / "f")  # its own log is new: it needs a block
        since = horizon(mount)
        if since:
            break
    assert (mount.path / "f").read_bytes() == content and 0 < since <= was
    assert (mount.path / f"f@{epoch(was)}").read_bytes() == content
    for step in range(150):
        overwrite(mount.path / "g", step)
    for number in range(20):
        device.fill()
        mount.tool("vsnap", "create", f"mine{number}", mount.path)  # and so is the log of snapshots
        if horizon(mount) > since:
            break
    assert horizon(mount) > since
    mount.check_store()


def test_a_version_being_restored_is_not_removed_for_its_own_space(maker):
    """It is refused, since nothing older is there; and a later change gets its space all the same."""
    device = Device(maker, "ext4", 64)
    mount = mounted(maker, device, "onfull=prune")
    make(mount)
    was, before = moment(), state_of(mount.path)
    mount.tool("vprune", "-y", "--before", epoch(was), mount.path)
    (mount.path / "f").unlink()
    for step in range(200):
        overwrite(mount.path / "g", step)
    device.fill()
    when, now = moment(), state_of(mount.path)
    assert "no space left" in mount.tool("vrevert", "--time", epoch(was), mount.path / "f", status=1).stdout
    assert horizon(mount) == was and differences(now, state_of(mount.path)) == []
    assert differences(before, state_of(mount.at(was))) == [] == differences(now, state_of(mount.at(when)))
    for step in range(80):
        overwrite(mount.path / "g", step)
    assert horizon(mount) > was
    mount.check_store()


def test_space_to_unpack_is_waited_for_unless_it_is_too_much(maker):
    device = Device(maker, "ext4", 64)
    (device.root / "tree").mkdir()
    protect_nothing(device.root / "tree" / ".wayback")
    mount = maker.mount("allow_other", "onfull=prune", source=device.root / "tree")
    mount.expect(".")
    make(mount)
    texts = {name: b"".join(b"%s %d\n" % (name.encode(), n) for n in range(lines))
             for name, lines in (("small", 4000), ("large", 400_000))}
    for name, text in texts.items():
        (mount.path / name).write_bytes(text)
    for step in range(150):
        overwrite(mount.path / "g", step)
    was = moment()
    for name in texts:
        (mount.path / name).unlink()
    mount.tool("vcompact", mount.path)
    assert len(list(mount.store().glob("objects/*/*.bundle"))) == 2
    device.fill()
    assert "no space left" in mount.tool("vrevert", "--time", epoch(was), mount.path / "large", status=1).stdout
    assert horizon(mount) == 0
    mount.tool("vrevert", "--time", epoch(was), mount.path / "small")
    assert (mount.path / "small").read_bytes() == texts["small"] and 0 < horizon(mount) <= was
    assert (mount.path / f"large@{epoch(was)}").read_bytes() == texts["large"]
    mount.check_store()


NO_ROOM = r"""
#define _GNU_SOURCE
#define _FILE_OFFSET_BITS 64
#include <string.h>
#include <sys/statvfs.h>
int fstatvfs(int fd, struct statvfs *ret)
{
    memset(ret, 0, sizeof(*ret));
    ret->f_bsize = ret->f_frsize = 4096;
    ret->f_blocks = 1000;
    return 0;
}
"""


def test_images_are_removed_with_history_forgotten_in_place(maker, tmp_path):
    """Also of the newest removed record, which is kept as the end of all walks: nothing needs its image."""
    with preloaded(tmp_path, NO_ROOM):
        mount = maker.mount("allow_other", kind="xfs")
    mount.expect(".")
    size, seen = 3 << 20, []
    for seed in range(6):
        with open(mount.path / "f", "wb" if seed == 0 else "r+b", buffering=0) as stream:
            stream.write(random.Random(seed).randbytes(size))
        seen.append(moment())
    [image] = mount.store().rglob("*.image")
    before = image.stat().st_blocks * 512
    mount.tool("vprune", "-y", "--before", epoch(seen[3]), mount.path)
    assert image.stat().st_blocks * 512 <= before - 3 * size
    for seed in (3, 4, 5):
        assert (mount.path / f"f@{epoch(seen[seed])}").read_bytes() == random.Random(seed).randbytes(size)
    [log] = mount.store().rglob("*.undo")
    records = [line.split() for line in mount.tool("vdump", log).stdout.splitlines()]
    assert any("DATA" in record and int(record[1].replace(".", "")) <= seen[3] for record in records), records
    mount.stop()
    assert "clean" in mount.tool("vfsck", mount.source).stdout


KILLED = NO_ROOM + r"""
#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>
int fallocate(int fd, int mode, off_t offset, off_t length)
{
    int r = (int)syscall(SYS_fallocate, fd, mode, offset, length);
    if (mode & FALLOC_FL_PUNCH_HOLE && length > 65536) {
        syncfs(fd);
        kill(getpid(), SIGKILL);
    }
    return r;
}
"""


def test_a_hole_that_is_all_that_got_to_the_disk(maker, tmp_path):
    """The file system commits, and the power fails, before the time of the log is restored."""
    root = maker.file_systems.make("ext4", f"cut-{time.time_ns()}", 64)
    (root / "tree").mkdir()
    with preloaded(tmp_path, KILLED):
        mount = maker.mount("allow_other", source=root / "tree")
    seen = []
    for seed in range(8):
        with open(mount.path / "f", "wb" if seed == 0 else "r+b", buffering=0) as stream:
            stream.write(random.Random(seed).randbytes(SIZE))
            os.fsync(stream.fileno())
        seen.append(moment())
    mount.expect(".")
    mount.tool("vprune", "-y", "--before", epoch(seen[6]), mount.path, status=1)
    mount.kill()
    deadline = time.monotonic() + LIMIT
    while run("umount", root, check=False).returncode != 0:
        assert time.monotonic() < deadline  # a process that was killed may take a while to disappear
        time.sleep(0.01)
    run("mount", "-o", "loop", root.with_name(root.name + ".img"), root)
    mount.start()
    for seed in (6, 7):
        assert (mount.path / f"f@{epoch(seen[seed])}").read_bytes() == random.Random(seed).randbytes(SIZE)
    with pytest.raises(OSError):
        (mount.path / f"f@{epoch(seen[0])}").read_bytes()
    mount.stop()
    assert "clean" in mount.tool("vfsck", mount.source).stdout
