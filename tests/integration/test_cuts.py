# SPDX-License-Identifier: LGPL-2.1-or-later
"""The power fails while programs work through the mount: a sample. tests/soak/cuts does it some hundred times."""
import ctypes
import errno
import os
import sys
import threading
import time
from pathlib import Path

import pytest

from mounts import LIMIT, QUICK, moment
from preload import preloaded

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "cuts"))

# pylint: disable=wrong-import-position
import cuts
from facts import REFUSED, read_past
from nosync import without_sync
from workloads import sync_path


@pytest.fixture(name="bench_of")
def fixture_bench_of(maker):
    benches = []

    def make(kind, programs=None, workloads=("quiet", "editor", "sqlite", "sqlite-wal"), **options):
        bench = cuts.Bench(maker.scratch / f"bench{len(benches)}", programs or maker.programs, kind, workloads=workloads,
                           **options)
        benches.append(bench)
        return bench

    yield make
    for bench in benches:
        bench.close()


@pytest.mark.parametrize("kind", ("ext4", "xfs"))
def test_synced_content_is_there_and_no_version_is_wrong(bench_of, kind):
    bench = bench_of(kind)
    bench.round(seed=1, count=2 if QUICK else 5, seconds=2)
    for seed in range(2, 20):  # on a busy machine nothing may have been synced yet
        if bench.outcome.promised > 0:
            break
        bench.round(seed, count=2, seconds=2)
    assert bench.outcome.failures == []
    assert bench.outcome.promised > 0


def test_a_daemon_that_does_not_sync_is_detected(bench_of, maker):
    bench = bench_of("ext4", without_sync(maker.programs, maker.scratch), ("quiet", "sqlite"))
    for seed in range(30):
        if bench.round(seed, count=2, seconds=1).failures:
            return
    assert False, "nothing was missing after sixty cuts without a single fsync"


RULES = '''[path "*.tmp" ".*.swp"]
history = none
[path "*.db"]
history = close
'''


@pytest.mark.parametrize("kind", ("ext4", "xfs"))
def test_paths_excluded_by_wayback_conf_are_never_wrong(bench_of, kind):
    """Files that are left out are refused or exact; so are those that are saved by way of such a file."""
    bench = bench_of(kind, workloads=("left-out", "by-close", "editor", "quiet"), rules=RULES)
    for seed in range(1, 20):
        bench.round(seed, count=2 if QUICK else 4, seconds=2)
        assert bench.outcome.failures == []
        if bench.outcome.promised > 0 and bench.outcome.refused > 0:
            break
    assert bench.outcome.promised > 0 and bench.outcome.refused > 0


# ---- history=close: a file that grows while the power fails ---------------------------------------


def grow_and_cut(maker, programs, kind, turn=0, synced=True):
    """Two files are open and grow. One is synced through the mount, if `synced`; then the file system writes the other
    by itself."""
    bench = cuts.Bench(maker.scratch / f"grown-{kind}{turn}", programs, kind, ["history=close"])
    try:
        disk = cuts.Disk.make(bench.holder, kind, "disk", bench.base / "disk").mount()
        mount = bench.mount(disk, "before")
        for name in ("grown", "other"):
            (mount.path / name).write_bytes(b"old" * 100)
            sync_path(mount.path / name)
        sync_path(mount.path)
        mount.remount()
        when = moment()
        with open(mount.path / "other", "ab") as other, open(mount.path / "grown", "ab") as grown:
            grown.write(b"new" * 100)
            grown.flush()
            other.write(b"new" * 100)
            other.flush()
            if synced:
                os.fsync(other.fileno())
            sync_path(mount.source / "grown")
            cut = disk.cut("cut", bench.base / "cut")
        mount.stop()
        disk.remove()
        cut.mount()
        after = bench.mount(cut, "after")
        after.expect("")
        found = [read_past(after.at(when, name)) for name in ("grown", "other")]
        present = read_past(after.path / "grown")
        after.stop()
        cut.remove()
    finally:
        bench.close()
    assert len(present) == 600, "nothing had grown on the disk: this shows nothing"
    return found


@pytest.mark.parametrize("kind", ("ext4", "xfs"))
def test_growth_is_not_on_the_disk_before_its_slot(maker, kind):
    assert grow_and_cut(maker, maker.programs, kind) == [b"old" * 100] * 2


@pytest.mark.parametrize("kind", ("ext4", "xfs"))
def test_if_the_slot_was_lost_the_state_before_is_refused(maker, kind):
    """The file system writes the growth before anybody has synced the table. Then the daemon may come first, at
    times."""
    refused = 0
    for turn in range(20):
        found = grow_and_cut(maker, maker.programs, kind, turn, synced=False)
        assert all(each in (REFUSED, b"old" * 100) for each in found), found
        refused += found[0] is REFUSED
        if refused > 0:
            return
    assert False, "no slot was lost in twenty cuts"


def test_a_table_of_stages_that_is_not_synced_is_detected(maker):
    programs = without_sync(maker.programs, maker.scratch, "/.wayback/stages")
    for turn in range(20):  # the daemon brings all of the store to the disk now and then
        if grow_and_cut(maker, programs, "ext4", turn)[0] != b"old" * 100:
            return
    assert False, "nothing was missing after twenty cuts without a sync of the table"


def outlive(maker, kind, change, turn, killed=False):
    """A change, then a stage, of which the slot alone reaches the disk. Returns the remains of the state before,
    which was synced.

    `killed`: the next daemon dies before it has come to the slots.
    """
    bench = cuts.Bench(maker.scratch / f"outlived{turn}", maker.programs, kind, ["history=close"])
    try:
        disk = cuts.Disk.make(bench.holder, kind, "disk", bench.base / "disk").mount()
        mount = bench.mount(disk, "before")
        path = mount.path / "file"
        for content in (b"first" * 1000, b"second" * 1000):
            path.write_bytes(content)
            sync_path(path)
        os.utime(path, (1, 1))
        sync_path(path)
        sync_path(mount.path)
        when, then = moment(), os.stat(path)
        with open(path, "r+b") as stream, open(mount.store() / "stages", "rb") as stages:
            if change == "times":
                os.utime(path, (2, 2))
            elif change == "mode":
                path.chmod(0o600)
            elif change == "shorter":
                os.truncate(path, 100)
            else:
                path.unlink()
            os.utime(stream.fileno(), (3, 3))
            stream.write(b"!")
            stream.flush()
            os.fdatasync(stages.fileno())
            cut = disk.cut("cut", bench.base / "cut")
        mount.stop()
        disk.remove()
        cut.mount()
        with open(cut.root / "tree/.wayback/stages", "rb") as stages:
            assert any(stages.read()[128:]), "no slot was on the disk: this shows nothing"
        if killed:
            slots = cut.root / "tree/.wayback/stages"
            slots.rename(cut.root / "slots")
            bench.mount(cut, "killed").kill()
            (cut.root / "slots").rename(slots)
        after = bench.mount(cut, "after")
        after.expect("")
        for _ in range(2):
            # Refused if the daemon wrote some of it to the disk meanwhile, or if the file may have grown.
            found = read_past(after.at(when, "file"))
            assert found in (REFUSED, b"second" * 1000)
            if found is not REFUSED:
                now = os.stat(after.at(when, "file"))
                assert (now.st_mode, now.st_mtime_ns, now.st_size) == (then.st_mode, then.st_mtime_ns, then.st_size)
            path = after.path / "file"
            path.with_name("new").write_bytes(b"new")
            path.with_name("new").rename(path)
        after.stop()
        cut.remove()
    finally:
        bench.close()
    return found


@pytest.mark.parametrize("kind", ("ext4", "xfs"))
@pytest.mark.parametrize("change", ("times", "mode", "shorter", "removed"))
@pytest.mark.parametrize("killed", (False, True))
def test_a_slot_outlives_an_earlier_change(maker, kind, change, killed):
    """Neither that change nor its record is on the disk: it was never made, then."""
    found = [outlive(maker, kind, change, 0, killed)]
    while found[-1] is REFUSED and change != "shorter" and len(found) < 20:
        found.append(outlive(maker, kind, change, len(found), killed))
    assert found[-1] is not REFUSED or change == "shorter"


# ---- the log of a file lost its end -----------------------------------------------------------------


def lose_the_end(bench):
    """A change whose record was lost; afterwards its result shows at any moment. Returns whether anything was lost."""
    disk = cuts.Disk.make(bench.holder, bench.kind, f"disk{bench.cuts}", bench.base / "disk").mount()
    mount = bench.mount(disk, "before")
    path = mount.path / "file"
    for content in (b"first", b"second"):
        path.write_bytes(content)
        sync_path(path)
    when = moment()
    os.utime(path, (1, 1))
    (disk.root / "other").write_bytes(b"metadata goes to the disk with it, in order")
    sync_path(disk.root / "other")
    cut = disk.cut("cut", bench.base / "cut")
    mount.stop()
    disk.remove()
    cut.mount()
    # The store's clock continues at its mark, and no lost record may be later than that.
    with open(cut.root / "tree/.wayback/inflight", "rb") as stream:
        mark = int.from_bytes(os.pread(stream.fileno(), 8, 32), "little")
    while moment() <= mark:
        time.sleep(0.05)
    after = bench.mount(cut, "after")
    after.expect("")
    moments = [moment()]
    after.remount()
    moments.append(moment())
    lost = read_past(after.at(when, "file")) is REFUSED
    for at in (b"third", b"fourth"):
        for then in moments:
            assert read_past(after.at(then, "file")) == b"second"
            assert os.stat(after.at(then, "file")).st_mtime == os.stat(after.at(moments[0], "file")).st_mtime
        assert not lost or read_past(after.at(when, "file")) is REFUSED
        (after.path / "file").write_bytes(at)
    after.stop()
    cut.remove()
    bench.cuts += 1
    return lost


@pytest.mark.parametrize("kind", ("ext4", "xfs"))
def test_content_found_after_a_power_cut_is_known_from_then_on(bench_of, kind):
    bench = bench_of(kind)
    for _ in range(20):  # the daemon may bring the record to the disk meanwhile
        if lose_the_end(bench):
            return
    assert False, "no record was lost in twenty cuts"


# ---- files that are deleted soon after they were written --------------------------------------------


def wait_for_content(mount, when):
    """All content that was written before is on the disk, as the daemon notes in the tail of `inflight`."""
    deadline = time.monotonic() + LIMIT
    with open(mount.store() / "inflight", "rb") as stream:
        while int.from_bytes(os.pread(stream.fileno(), 8, 4120), "little") <= when:
            assert time.monotonic() < deadline
            time.sleep(0.05)


@pytest.mark.parametrize("kind", ("ext4", "xfs"))
def test_a_file_deleted_before_it_was_on_the_disk(maker, kind):
    """Nobody can sync it any more: it is refused. A file that was on the disk for long is exact, though it was deleted
    then as well."""
    bench = cuts.Bench(maker.scratch / "deleted", maker.programs, kind)
    try:
        disk = cuts.Disk.make(bench.holder, kind, "disk", bench.base / "disk").mount()
        mount = bench.mount(disk, "before")
        for name in ("old", "rewritten", "moved"):
            (mount.path / name).write_bytes(name.encode() * 10000)
        (mount.path / "linked").write_bytes(b"linked")
        os.link(mount.path / "linked", mount.path / "stays")
        before = moment()
        wait_for_content(mount, before)
        (mount.path / "young").write_bytes(b"young" * 10000)
        os.utime(mount.path / "young", (1, 1))
        with open(mount.path / "rewritten", "r+b") as stream:
            stream.write(b"!" * 90000)
        os.utime(mount.path / "rewritten", (1, 1))
        (mount.path / "moved").rename(mount.path / "elsewhere")
        (mount.path / "linked").write_bytes(b"anew")
        sync_path(mount.path / "linked")
        when = moment()
        for name in ("old", "young", "rewritten", "elsewhere", "linked"):
            (mount.path / name).unlink()
        sync_path(mount.path)
        cut = disk.cut("cut", bench.base / "cut")
        mount.stop()
        disk.remove()
        cut.mount()
        after = bench.mount(cut, "after")
        after.expect("")
        for _ in range(2):
            for name in ("old", "elsewhere"):
                assert after.at(when, name).read_bytes() == name.replace("elsewhere", "moved").encode() * 10000
            assert after.at(before, "old").read_bytes() == b"old" * 10000
            for name in ("linked", "stays"):
                assert after.at(when, name).read_bytes() == b"anew"
            for name in ("young", "rewritten"):
                with pytest.raises(OSError) as refused:
                    after.at(when, name).read_bytes()
                assert refused.value.errno == errno.EIO
            after.remount()
        after.stop()
        cut.remove()
    finally:
        bench.close()


# ---- content that reaches the disk before its record ------------------------------------------------

HOLD_SYNCFS = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* While the file HOLD is there. */
int syncfs(int fd)
{
    while (access(getenv("HOLD"), F_OK) == 0) {
        unlink(getenv("FREE"));
        usleep(1000);
    }
    return ((int (*)(int))dlsym(RTLD_NEXT, "syncfs"))(fd);
}
"""


def overwrite_and_cut(maker, kind, killed=False, clean=False):
    """A file is overwritten while content is brought to the disk; that content gets there, and its record does not.

    `clean`: it was not changed since its last sync when that begins.
    """
    base = maker.scratch / f"settling-{kind}{int(killed)}"
    base.mkdir()
    hold, ready = base / "hold", base / "ready"
    ready.touch()
    bench = cuts.Bench(base / "bench", maker.programs, kind)
    try:
        disk = cuts.Disk.make(bench.holder, kind, "disk", bench.base / "disk").mount()
        with preloaded(base, HOLD_SYNCFS, HOLD=hold, FREE=ready):
            mount = bench.mount(disk, "before")
            path = mount.path / "file"
            path.write_bytes(b"o" * 65536)
            sync_path(path)
            when = moment()
            wait_for_content(mount, when)
            hold.touch()
            with open(path, "r+b", buffering=0) as stream:
                if clean:
                    (mount.path / "other").write_bytes(b"other")
                else:
                    stream.write(b"first")
                deadline = time.monotonic() + LIMIT
                while ready.exists():
                    assert time.monotonic() < deadline
                    time.sleep(0.01)
                os.pwrite(stream.fileno(), b"second", 32768)
                with open(mount.source / "file", "rb") as below:
                    assert cuts.LIBC.sync_file_range(below.fileno(), *map(ctypes.c_long, (0, 0)), cuts.SYNC_WRITE) == 0
                cut = disk.cut("cut", bench.base / "cut")
            hold.unlink()
            mount.stop()
        disk.remove()
        cut.mount()
        settling = cut.root / "tree/.wayback/settling"
        assert settling.stat().st_size > 64, "no list was on the disk: this shows nothing"
        assert (cut.root / "tree/file").read_bytes()[32768:32774] == b"second", "nothing had got there"
        if killed:
            settling.rename(cut.root / "settling")
            bench.mount(cut, "killed").kill()
            (cut.root / "settling").rename(settling)
        after = bench.mount(cut, "after")
        after.expect("")
        found = read_past(after.at(when, "file"))
        after.stop()
        cut.remove()
    finally:
        bench.close()
    return found


@pytest.mark.parametrize("kind", ("ext4", "xfs"))
@pytest.mark.parametrize("killed", (False, True))
def test_content_reaches_the_disk_before_its_record(maker, kind, killed):
    """`killed`: the next daemon dies before it has come to the list of such files."""
    assert overwrite_and_cut(maker, kind, killed) in (REFUSED, b"o" * 65536)


@pytest.mark.parametrize("kind", ("ext4", "xfs"))
def test_a_file_is_first_overwritten_while_content_reaches_the_disk(maker, kind):
    """syncfs(2) writes it as well, though it was clean when that began."""
    assert overwrite_and_cut(maker, kind, clean=True) in (REFUSED, b"o" * 65536)


# ---- the end of a stage ------------------------------------------------------------------------------

HOLD_SLOTS = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* After a sync of the slots, while the file HOLD is there. */
int fdatasync(int fd)
{
    int r = ((int (*)(int))dlsym(RTLD_NEXT, "fdatasync"))(fd);
    char link[32], path[4096] = "";

    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    (void)!readlink(link, path, sizeof(path) - 1);
    while (strstr(path, "/.wayback/stages") && access(getenv("HOLD"), F_OK) == 0) {
        unlink(getenv("FREE"));
        usleep(1000);
    }
    return r;
}
"""


def end_and_cut(maker, kind, turn):
    """A version ends; then its slot is free on the disk, and nothing else is there yet. What remains of the state
    before."""
    base = maker.scratch / f"ended-{kind}{turn}"
    base.mkdir()
    hold, ready = base / "hold", base / "ready"
    ready.touch()
    bench = cuts.Bench(base / "bench", maker.programs, kind, ["history=close"])
    try:
        disk = cuts.Disk.make(bench.holder, kind, "disk", bench.base / "disk").mount()
        with preloaded(base, HOLD_SLOTS, HOLD=hold, FREE=ready):
            mount = bench.mount(disk, "before")
            for name in ("grown", "other"):
                (mount.path / name).write_bytes(b"old" * 100)
                sync_path(mount.path / name)
            sync_path(mount.path)
            mount.remount()
        when = moment()
        with open(mount.path / "other", "ab", buffering=0) as other:
            with open(mount.path / "grown", "ab", buffering=0) as grown:
                grown.write(b"new" * 100)
                other.write(b"new" * 100)
                os.fsync(other.fileno())
                sync_path(mount.source / "grown")
            hold.touch()
            # The write may have to wait for its own slot.
            writer = threading.Thread(target=other.write, args=(b"new" * 100,))
            writer.start()
            deadline = time.monotonic() + LIMIT
            while ready.exists():
                assert time.monotonic() < deadline
                time.sleep(0.01)
            cut = disk.cut("cut", bench.base / "cut")
            hold.unlink()
            writer.join()
        mount.stop()
        disk.remove()
        cut.mount()
        assert (cut.root / "tree/grown").stat().st_size == 600, "nothing had grown on the disk: this shows nothing"
        after = bench.mount(cut, "after")
        after.expect("")
        found = read_past(after.at(when, "grown"))
        after.stop()
        cut.remove()
    finally:
        hold.unlink(missing_ok=True)
        bench.close()
    return found


@pytest.mark.parametrize("kind", ("ext4", "xfs"))
def test_a_slot_is_not_free_on_the_disk_before_the_end_of_its_stage(maker, kind):
    for turn in range(2 if QUICK else 5):
        assert end_and_cut(maker, kind, turn) in (REFUSED, b"old" * 100)
