# SPDX-License-Identifier: LGPL-2.1-or-later
"""Sparse files: tools neither read nor write holes, present and past."""
import ctypes
import os
import subprocess

import pytest

from mounts import epoch, moment, sync_tree

HUGE = 64 << 30
FEW = 8 << 20  # bytes that a tool may read and write for some blocks of data
PUNCH, KEEP_SIZE = 2, 1
_libc = ctypes.CDLL(None, use_errno=True)


def punch(path, offset, length):
    fd = os.open(path, os.O_RDWR)
    assert _libc.fallocate(fd, PUNCH | KEEP_SIZE, ctypes.c_long(offset), ctypes.c_long(length)) == 0
    os.close(fd)


def moved_by(mount, name, *arguments, status=0):
    """The output of a tool, and the bytes that it read and wrote."""
    with subprocess.Popen([name, *map(str, arguments)], cwd="/", env=mount.programs.environment(), stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as tool:
        said = tool.stdout.read()
        os.waitid(os.P_PID, tool.pid, os.WEXITED | os.WNOWAIT)
        with open(f"/proc/{tool.pid}/io", encoding="ascii") as stream:
            counts = dict(line.split(": ") for line in stream.read().splitlines())
        assert tool.wait() == status, said
    return said, int(counts["rchar"]) + int(counts["wchar"])


def at(path, *offsets):
    fd = os.open(path, os.O_RDONLY)
    found = [os.pread(fd, 4, offset) for offset in offsets]
    os.close(fd)
    return found


@pytest.fixture(name="sparse")
def fixture_sparse(maker, kind):
    """A file of 64 GiB: data at 0, 20 and 40 GiB; then the second became a hole and a hole became data."""
    mount = maker.mount(kind=kind)
    path = mount.path / "sparse"
    fd = os.open(path, os.O_CREAT | os.O_RDWR)
    os.ftruncate(fd, HUGE)
    for offset in (0, 20 << 30, 40 << 30):
        os.pwrite(fd, b"data" * 16384, offset)
    os.close(fd)
    mount.when = moment()
    punch(path, 20 << 30, 65536)
    fd = os.open(path, os.O_RDWR)
    os.pwrite(fd, b"more" * 16384, 30 << 30)
    os.close(fd)
    return mount, path


PLACES = (0, 20 << 30, 30 << 30, 40 << 30, HUGE - 4)
THEN = [b"data", b"data", bytes(4), b"data", bytes(4)]
NOW = [b"data", bytes(4), b"more", b"data", bytes(4)]


def test_vrevert(sparse):
    mount, path = sparse
    now = moment()
    said, count = moved_by(mount, "vrevert", path, "--time", epoch(mount.when), "-n")
    assert count < FEW and "rewrite" in said and at(path, *PLACES) == NOW
    _, count = moved_by(mount, "vrevert", path, "--time", epoch(mount.when))
    assert count < FEW and at(path, *PLACES) == THEN
    assert path.stat().st_size == HUGE and path.stat().st_blocks * 512 <= FEW
    _, count = moved_by(mount, "vrevert", path, "--time", epoch(now))
    assert count < FEW and at(path, *PLACES) == NOW and path.stat().st_blocks * 512 <= FEW


def test_vrevert_of_a_file_that_grew(mount):
    small = mount.path / "small"
    small.write_bytes(b"x")
    when = moment()
    os.truncate(small, HUGE)
    _, count = moved_by(mount, "vrevert", small, "--time", epoch(when))
    assert count < FEW and small.read_bytes() == b"x"


def test_vrevert_breaks_a_link(sparse):
    mount, path = sparse
    os.link(path, mount.path / "other")
    _, count = moved_by(mount, "vrevert", path, "--time", epoch(mount.when))
    assert count < FEW and at(path, *PLACES) == THEN and at(mount.path / "other", *PLACES) == NOW
    assert path.stat().st_blocks * 512 <= FEW


def test_vextract(sparse):
    mount, path = sparse
    out = mount.path / "out"
    _, count = moved_by(mount, "vextract", path, "--time", epoch(mount.when), "-o", out)
    assert count < FEW and at(out, *PLACES) == THEN and out.stat().st_size == HUGE and out.stat().st_blocks * 512 <= FEW


def test_vdiff(sparse):
    mount, path = sparse
    said, count = moved_by(mount, "vdiff", path, epoch(mount.when))
    assert count < FEW and "differ" in said


@pytest.fixture(name="cut")
def fixture_cut(maker, kind):
    """64 GiB with data at 0, 20 and 40 GiB, cut off behind the first MiB."""
    mount = maker.mount(kind=kind)
    path = mount.path / "sparse"
    with open(path, "wb") as stream:
        stream.truncate(HUGE)
        for offset in (0, 20 << 30, 40 << 30):
            os.pwrite(stream.fileno(), b"data" * 16384, offset)
    sync_tree(mount.source)
    mount.when = moment()
    os.truncate(path, 1 << 20)
    return mount, path


def segments(path):
    """Ranges of data as SEEK_DATA and SEEK_HOLE have them, in MiB, rounded outwards."""
    fd, at, found = os.open(path, os.O_RDONLY), 0, []
    while True:
        try:
            at = os.lseek(fd, at, os.SEEK_DATA)
        except OSError:
            os.close(fd)
            return found
        end = os.lseek(fd, at, os.SEEK_HOLE)
        found.append((at >> 20, (end + (1 << 20) - 1) >> 20))
        at = end


def test_holes_of_a_part_that_was_cut_off(cut):
    mount, path = cut
    then = mount.path / f"sparse@{epoch(mount.when)}"
    assert segments(then) == [(0, 1), (20 << 10, (20 << 10) + 1), (40 << 10, (40 << 10) + 1)]
    said, count = moved_by(mount, "vdiff", path, epoch(mount.when))
    assert count < FEW and "differ" in said
    out = mount.path / "out"
    _, count = moved_by(mount, "vextract", path, "--time", epoch(mount.when), "-o", out)
    assert count < FEW and at(out, *PLACES) == THEN and out.stat().st_blocks * 512 <= FEW
    _, count = moved_by(mount, "vrevert", path, "--time", epoch(mount.when))
    assert count < FEW and at(path, *PLACES) == THEN
    assert path.stat().st_size == HUGE and path.stat().st_blocks * 512 <= FEW


class Sent:
    """A copy that follows; each step returns how many bytes the tools moved, and the size of the stream."""

    def __init__(self, maker, mount, kind):
        self.mount, self.path, self.kind, self.moved = mount, maker.tree(kind) / "copy", kind, 0
        self.path.mkdir()
        self.stream = self.path.parent / "stream"
        self.maker = maker

    def follow(self, most=FEW):
        since = self.mount.tool("vreceive", "--status", self.path).stdout.strip()
        sync_tree(self.mount.source)
        with open(self.stream, "wb") as stream:
            out, moved = moved_to(self.mount, stream, "vsend", "--since", since, self.mount.source)
        assert (out, moved < most, self.stream.stat().st_size < FEW) == (0, True, True), moved
        with open(self.stream, "rb") as stream:
            out, moved = moved_to(self.mount, subprocess.DEVNULL, "vreceive", self.path, stdin=stream)
        assert (out, moved < 8 * FEW) == (0, True), moved  # it reads the stream several times

    def check(self, path, then):
        """Now as in the source, and then."""
        mine, its = self.path / path, self.mount.path / path
        assert mine.stat().st_size == its.stat().st_size and mine.stat().st_blocks * 512 <= FEW
        assert at(mine, *PLACES) == at(its, *PLACES)
        copy = self.maker.mount("ro", source=self.path)
        for when, places in then:
            assert at(copy.path / f"{path}@{epoch(when)}", *PLACES) == places
        copy.stop()
        images = list(self.path.glob(".wayback/objects/*/*.image"))
        assert all(image.stat().st_blocks * 512 <= FEW for image in images)


def moved_to(mount, stdout, name, *arguments, stdin=subprocess.DEVNULL):
    with subprocess.Popen([name, *map(str, arguments)], cwd="/", env=mount.programs.environment(), stdin=stdin,
                          stdout=stdout) as tool:
        os.waitid(os.P_PID, tool.pid, os.WEXITED | os.WNOWAIT)
        with open(f"/proc/{tool.pid}/io", encoding="ascii") as stream:
            counts = dict(line.split(": ") for line in stream.read().splitlines())
    return tool.returncode, int(counts["rchar"]) + int(counts["wchar"])


def test_vsend_and_vreceive(maker, kind, sparse):
    mount, path = sparse
    sent = Sent(maker, mount, kind)
    sent.follow()
    then = [(mount.when, THEN), (moment(), NOW)]
    sent.check("sparse", then)
    os.truncate(path, 1 << 20)  # from now on its image or its log has the part that was cut off
    short = moment()
    os.truncate(path, HUGE)
    with open(path, "r+b") as stream:
        os.pwrite(stream.fileno(), b"late" * 16384, 20 << 30)
    then += [(short, [b"data"] + [b""] * 4), (moment(), [b"data", b"late", bytes(4), bytes(4), bytes(4)])]
    sent.follow()
    sent.check("sparse", then)
    os.rename(path, mount.path / "renamed")
    os.link(mount.path / "renamed", mount.path / "linked")
    punch(mount.path / "linked", 0, 40 << 30)
    sent.follow()
    sent.check("renamed", [(moment(), [bytes(4)] * 5)])
    sent.check("linked", [])
    (mount.path / "renamed").unlink()
    (mount.path / "linked").unlink()
    mount.gone = moment()
    sent.follow()
    copy = maker.mount("ro", source=sent.path)
    assert at(copy.path / f"sparse@{epoch(mount.when)}", *PLACES) == THEN
    assert not os.path.exists(copy.path / f"linked@{epoch(mount.gone)}")


def test_zeros_in_place_of_data_are_zeros_in_the_copy(maker, kind):
    """Bytes that were data when they were sent, and are zeros now, are zeros in the copy."""
    mount = maker.mount(kind=kind)
    path, most = mount.path / "f", 4 * FEW  # it is not sparse, and a record that is new is read again on a busy machine
    path.write_bytes(b"full" * (3 << 18))
    full = moment()
    sent = Sent(maker, mount, kind)
    sent.follow(most)
    punch(path, 4096, 2 << 20)
    with open(path, "r+b") as stream:
        os.pwrite(stream.fileno(), bytes(4000), (2 << 20) + 5000)
    sent.follow(most)
    assert (sent.path / "f").read_bytes() == path.read_bytes()
    copy = maker.mount("ro", source=sent.path)
    assert (copy.path / f"f@{epoch(full)}").read_bytes() == b"full" * (3 << 18)


def test_pages_that_are_not_written_back_are_data(mount):
    """The kernel's cache has them, and the file system asked for holes may not know them yet."""
    path = mount.path / "f"
    with open(path, "wb") as stream:
        stream.truncate(64 << 20)
    when = moment()
    fd = os.open(path, os.O_RDWR)
    for offset in range(0, 64 << 20, 4 << 20):
        os.pwrite(fd, b"dirty", offset)
    mount.tool("vrevert", path, "--time", epoch(when), "--no-sync")
    os.close(fd)
    assert path.read_bytes() == bytes(64 << 20)
