# SPDX-License-Identifier: LGPL-2.1-or-later
"""Large files rewritten on file systems that share blocks: blocks cloned ahead are referred to only if nothing touched
them since, and nothing is left behind."""
import ctypes
import errno
import hashlib
import mmap
import os
import random
import signal
import time

import pytest

from mounts import LIMIT, QUICK, begin_child, end_of_child, moment

SIZE = (2 << 20) + 1234
STEPS = 40 if QUICK else 60
PUNCH = 3  # FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE
LIBC = ctypes.CDLL(None, use_errno=True)


@pytest.fixture(params=["xfs", "btrfs"], name="sharing")
def fixture_sharing(request, maker):
    return maker.mount("allow_other", kind=request.param)


class Rewriter:
    """Changes one file sequentially and everywhere else, and knows its content."""

    def __init__(self, path, seed):
        self.path = path
        self.random = random.Random(seed)
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT)
        self.content = bytearray(os.pread(self.fd, 64 << 20, 0))

    def write(self, offset, data):
        # The kernel may send one write in parts: if the daemon dies in it, the first part may be reported as done.
        if os.pwrite(self.fd, data, offset) != len(data):
            raise OSError(errno.EIO, "a part of a write")
        if len(self.content) < offset:
            self.content.extend(bytes(offset - len(self.content)))
        self.content[offset:offset + len(data)] = data

    def stream(self):
        """One write after the other: each is a step."""
        size = self.random.choice((64, 128, 128, 256)) << 10
        at = self.random.choice((0, 0, 4096, 100))
        for at in range(at, len(self.content), size):
            self.write(at, self.random.randbytes(min(size, max(1, len(self.content) - at))))
            yield
            if not self.random.randrange(4):
                getattr(self, self.random.choice(("small", "small", "punch", "mapped", "zeros")))()
                yield
            if not self.random.randrange(25):
                return

    def place(self, most):
        length = self.random.randint(1, most)
        return self.random.randrange(max(1, len(self.content) - length)), length

    def small(self):
        offset, length = self.place(self.random.choice((100, 4096, 20000)))
        if self.random.randrange(2):  # whole blocks
            offset, length = offset & ~4095, (length + 4095) & ~4095
        self.write(offset, self.random.randbytes(length))

    def zeros(self):
        offset, length = self.place(200000)
        self.write(offset, bytes(length))

    def punch(self):
        offset, length = self.place(200000)
        if LIBC.fallocate(self.fd, PUNCH, ctypes.c_long(offset), ctypes.c_long(length)) != 0:
            raise OSError(ctypes.get_errno(), "fallocate")
        length = max(0, min(length, len(self.content) - offset))
        self.content[offset:offset + length] = bytes(length)

    def mapped(self):
        if not self.content:
            return
        offset = self.random.randrange(len(self.content))
        with mmap.mmap(self.fd, len(self.content)) as mapping:
            mapping[offset] = self.content[offset] = self.random.randrange(256)
            mapping.flush()

    def cut(self):
        size = self.random.randrange(len(self.content) + 1)
        os.ftruncate(self.fd, size)
        del self.content[size:]
        self.write(SIZE - 77, bytes(77))

    def reopen(self):
        os.close(self.fd)
        self.fd = os.open(self.path, os.O_RDWR)

    def steps(self):
        while True:
            yield from self.stream()
            getattr(self, self.random.choice(("cut", "reopen", "small")))()
            yield


def digest(data):
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def work(path, seed, steps, output, endless):
    """Reports when each state existed, until it is done; `endless`: continues without a report until the daemon
    dies."""
    try:
        rewriter = Rewriter(path, seed)
        for number, _ in enumerate(rewriter.steps()):
            if number < steps:
                os.write(output, f"{moment()} {digest(rewriter.content)}\n".encode())
            elif not endless:
                break
            else:
                time.sleep(0.01)
        os.close(rewriter.fd)
    except OSError:
        return 1
    return 0


def run_child(path, seed, steps, kill=None):
    """The states that a separate process reported, and how it ended; `kill` is called once it is at work."""
    reading, writing = os.pipe()
    child = begin_child(lambda: os.close(reading) or work(path, seed, steps, writing, kill is not None))
    os.close(writing)
    with open(reading, encoding="ascii") as stream:
        lines = []
        for line in stream:
            lines.append(line)
            if kill and len(lines) == steps // 2:
                kill()
    status = end_of_child(child)
    # The last may be of a file with half of a change.
    return [line.split() for line in lines if line.endswith("\n")], status


def check(mount, states):
    for when, expected in states:
        assert digest(mount.at(int(when), "file").read_bytes()) == expected, when


def test_every_state_of_a_rewritten_file(sharing):
    (sharing.path / "file").write_bytes(random.Random(1).randbytes(SIZE))
    states, status = run_child(sharing.path / "file", 5, STEPS)
    assert (status, len(states)) == (0, STEPS)
    check(sharing, states)
    sharing.remount()
    check(sharing, states)
    sharing.check_store()


def test_kills_in_the_middle_of_rewriting(sharing):
    file = sharing.path / "file"
    file.write_bytes(random.Random(2).randbytes(SIZE))
    states = []
    for seed in range(2 if QUICK else 3):
        reported, status = run_child(file, seed, STEPS, sharing.kill)
        assert status in (1, -signal.SIGBUS) and reported
        states += reported
        sharing.start()
        check(sharing, reported)
    reported, status = run_child(file, 9, STEPS // 2)
    assert status == 0
    check(sharing, states + reported)
    sharing.check_store()


def shared(mount):
    """Bytes that the images of the store hold."""
    return sum(path.stat().st_blocks * 512 for path in (mount.source / ".wayback").rglob("*.image"))


def test_unreferenced_blocks_are_given_back(sharing):
    file, piece, used = sharing.path / "file", 128 << 10, 1 << 20
    file.write_bytes(bytes(range(256)) * (8 << 12))
    with open(file, "r+b", buffering=0) as stream:
        most = 0
        for i in range(used // piece):
            stream.write(bytes([i + 1]) * piece)
            most = max(most, shared(sharing))
        assert most > used + piece, "nothing was cloned ahead: this test proves nothing"
    deadline = time.monotonic() + LIMIT
    while shared(sharing) > used:  # the release comes after close(2) has returned
        assert time.monotonic() < deadline, shared(sharing)
        time.sleep(0.02)
    assert shared(sharing) == used
