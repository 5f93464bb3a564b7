# SPDX-License-Identifier: LGPL-2.1-or-later
"""history=close: files open in every way a program may have them open, many at a time, and daemons that die meanwhile.

Each seed of WAYBACK_MODEL_SEED is another run, of WAYBACK_MODEL_STEPS steps.
"""
import ctypes
import errno
import fcntl
import mmap
import os
import subprocess

import pytest

from operations import EXCHANGE, renameat2
from test_close import STEPS, Sittings, look

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.mmap.restype = ctypes.c_void_p
LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
SEEDS = [int(s) for s in os.environ.get("WAYBACK_MODEL_SEED", "31").split(",")]
READ_WRITE = mmap.PROT_READ | mmap.PROT_WRITE


class Sessions(Sittings):
    """Descriptors for reading, writing or both; past the page cache; mappings that outlive their descriptor."""

    WAYS = (os.O_RDWR, os.O_RDWR, os.O_WRONLY, os.O_WRONLY | os.O_TRUNC, os.O_WRONLY | os.O_APPEND, os.O_RDWR | os.O_SYNC,
            os.O_WRONLY | os.O_DSYNC, os.O_RDWR | os.O_TRUNC)

    def __init__(self, mount, seed, kills=True):
        super().__init__(mount, seed, kills)
        self.readers = []
        self.chosen = (None, None)

    def do_open(self):
        name = self.random.choice(self.NAMES)
        way = self.random.choice(self.WAYS)
        inode = self.inode(name)
        if inode and way & os.O_TRUNC:
            self.before_change(inode)
        fd = os.open(self.path(name), way | os.O_CREAT, 0o644)
        self.open.append((fd, os.fstat(fd).st_ino))
        return f"{name} {way:o}"

    def descriptor(self, mapped=False):
        """One that can be written to; or, if `mapped`, read as well."""
        found = [(fd, inode) for fd, inode in self.open if not mapped or self.is_both(fd)]
        self.chosen = self.random.choice(found) if found else (None, None)
        return self.chosen

    def over_if_synced(self):
        fd, inode = self.chosen
        if fd is not None and fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_DSYNC:
            self.over(inode)

    @staticmethod
    def is_both(fd):
        return fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDWR

    def do_write(self):
        """With O_SYNC each is synced, and so a version."""
        line = super().do_write()
        if not line.endswith("+0"):
            self.over_if_synced()
        return line

    do_write_again = do_write_more = do_write

    def to_map(self):
        return self.descriptor(mapped=True)

    def do_map_beyond_close(self):
        """Bytes stored after the last close(2) belong to the next close or sync."""
        name = self.random.choice(self.NAMES)
        inode = self.inode(name)
        if not inode or os.path.getsize(self.path(name)) == 0:
            return "nothing"
        fd = os.open(self.path(name), os.O_RDWR)
        length = os.fstat(fd).st_size
        address = LIBC.mmap(None, length, READ_WRITE, mmap.MAP_SHARED, fd, 0)
        os.close(fd)
        self.over(inode)
        self.before_change(inode)
        ctypes.memset(address + self.random.randrange(length), 0x4d, 1)
        LIBC.munmap(address, length)
        fd = os.open(self.path(name), os.O_WRONLY)
        os.close(fd)
        self.over(inode)
        return name

    def do_open_to_read(self):
        """It ends no stage, neither when it is opened nor when it is closed."""
        name = self.random.choice(self.NAMES)
        if not self.inode(name):
            return "nothing"
        self.readers.append(os.open(self.path(name), os.O_RDONLY))
        return name

    def do_read(self):
        if not self.readers:
            return "nothing"
        fd = self.readers.pop(self.random.randrange(len(self.readers)))
        name = self.name_of(os.fstat(fd).st_ino)
        if name:
            assert os.pread(fd, 1 << 20, 0) == self.below(name)[0]
        os.close(fd)
        return name

    def do_past_the_cache(self):
        name = self.random.choice(self.NAMES)
        if not self.inode(name):
            return "nothing"
        with mmap.mmap(-1, 8192) as aligned:
            aligned.write(self.random.randbytes(8192))
            way = os.O_WRONLY | os.O_DIRECT | self.random.choice((0, os.O_SYNC))
            fd = os.open(self.path(name), way)
            inode = os.fstat(fd).st_ino
            self.before_change(inode)
            os.pwritev(fd, [aligned], 4096 * self.random.randrange(5))
            if fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_DSYNC:
                self.over(inode)
            closed = self.random.randrange(2)
            if closed:
                os.close(fd)
                self.over(inode)
            else:
                self.open.append((fd, inode))
        return f"{name} {way:o} {closed}"

    def do_copy_range(self):
        source = self.random.choice(self.NAMES)
        fd, inode = self.descriptor()
        if fd is None or not self.inode(source):
            return "nothing"
        self.before_change(inode)
        with open(self.path(source), "rb") as stream:
            try:
                os.copy_file_range(stream.fileno(), fd, self.random.randrange(1, 50000), self.random.randrange(9000),
                                   self.random.choice((0, 4096, self.random.randrange(20000))))
            except OSError as error:
                assert error.errno in (errno.EBADF, errno.EINVAL), error  # O_APPEND; the same file, overlapping
        return f"{source} {self.name_of(inode)}"

    def do_set_attribute(self):
        name = self.random.choice(self.NAMES)
        if self.inode(name):
            self.over(self.inode(name))
            os.setxattr(self.path(name), "user.x", self.random.randbytes(9))
        return name

    def do_set_times(self):
        fd, inode = self.descriptor()
        if fd is None:
            return "nothing"
        self.over(inode)
        os.utime(fd, ns=(0, self.random.randrange(10**18)))
        return self.name_of(inode)

    def do_exchange(self):
        old, new = self.random.sample(self.NAMES, 2)
        if self.inode(old) and self.inode(new) and self.inode(old) != self.inode(new):
            self.over(self.inode(old))
            self.over(self.inode(new))
            renameat2(self.path(old), self.path(new), EXCHANGE)
        return f"{old} {new}"

    def do_write_as_a_child(self):
        """It closes its copy of each descriptor, while this process continues."""
        fd, inode = self.descriptor()
        if fd is None:
            return "nothing"
        self.before_change(inode)
        subprocess.run(["echo", "child"], stdout=fd, check=True)
        for _, other in self.open:
            self.over(other)
        return self.name_of(inode)

    def record(self, line):
        """The mount shows SRC and nothing else."""
        super().record(line)
        for name in self.NAMES:
            assert look(self.path(name)) == self.below(name), f"{name}\n" + "\n".join(self.lines[-12:])

    def below(self, name):
        found = look(os.path.join(self.mount.source, name))
        # A name that the store has as well is counted once only.
        here = look(self.path(name))
        return found and here and found[:4] + here[4:]

    def close(self):
        super().close()
        while self.readers:
            os.close(self.readers.pop())

    def kill(self):
        while self.readers:
            os.close(self.readers.pop())
        super().kill()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "tmpfs"])
def test_files_open_in_every_way(maker, kind, seed):
    mount = maker.mount("allow_other,history=close", kind=kind)
    sessions = Sessions(mount, seed)
    sessions.record("-- empty")
    try:
        sessions.work(STEPS * 2 // 3)
    finally:
        sessions.close()
    for which in sessions.moments:
        sessions.check(which)
    mount.check_store()
