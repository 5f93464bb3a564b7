# SPDX-License-Identifier: LGPL-2.1-or-later
"""Attributes that a request read just before a change, and whose reply arrives after it, are not kept by the kernel."""
import ctypes
import mmap
import os
import time

import pytest
from mounts import LIMIT, TRANSPORT, begin_child, end_of_child
from preload import preloaded

pytestmark = pytest.mark.skipif(TRANSPORT == "io_uring", reason="replies are held in writev(2)")

# The next reply with attributes, and no more than these, waits while the file HOLD exists.
HOLDING = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

/* Of struct fuse_out_header and struct fuse_attr_out. */
#define REPLY_SIZE (16 + 104)

ssize_t writev(int fd, const struct iovec *parts, int count)
{
    static ssize_t (*real)(int, const struct iovec *, int);
    const char *hold = getenv("HOLD");
    size_t size = 0;
    char held[4096];
    int out;

    if (!real)
        real = (ssize_t (*)(int, const struct iovec *, int))dlsym(RTLD_NEXT, "writev");
    for (int i = 0; i < count; i++)
        size += parts[i].iov_len;
    snprintf(held, sizeof(held), "%s.held", hold);
    if (size == REPLY_SIZE && access(hold, F_OK) == 0 && (out = open(held, O_CREAT | O_EXCL, 0600)) >= 0) {
        close(out);
        while (access(hold, F_OK) == 0)
            usleep(1000);
    }
    return real(fd, parts, count);
}
"""
AT_STATX_FORCE_SYNC = 0x2000
STATX_BASIC_STATS = 0x7ff
EXCHANGE = 2  # of renameat2(2)
KEEP_SIZE, PUNCH_HOLE = 1, 2
LIBC = ctypes.CDLL(None, use_errno=True)


def checked(result):
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


class Late:
    """A mount, a file and a directory in it, and a change of them while somebody waits for attributes."""

    def __init__(self, mount, hold):
        self.mount, self.hold, self.held = mount, hold, hold.with_name(hold.name + ".held")
        self.name = "file"
        path = mount.path / self.name
        (mount.path / "dir").mkdir()
        (mount.path / "dir/victim").write_bytes(b"victim")
        (mount.path / "other").write_bytes(b"other")
        path.write_bytes(bytes(20000))
        self.fd = os.open(path, os.O_RDWR)
        self.dir_fd = os.open(mount.path / "dir", os.O_PATH)
        self.dir = f"/proc/self/fd/{self.dir_fd}"  # asks for no attributes of the way there
        self.mapping = mmap.mmap(self.fd, 0)
        assert self.mapping[0] == 0

    def allocate(self, mode):
        checked(LIBC.fallocate(self.fd, mode, ctypes.c_long(0), ctypes.c_long(4096)))

    def exchange(self):
        paths = [os.fsencode(self.mount.path / name) for name in (self.name, "other")]
        checked(LIBC.renameat2(-100, paths[0], -100, paths[1], EXCHANGE))
        self.name = "other"

    def rename(self):
        os.rename(self.mount.path / self.name, self.mount.path / "renamed")
        self.name = "renamed"

    def map(self):
        self.mapping[0:1] = b"x"
        self.mapping.flush()

    def changes(self):
        """By name: of what, and the change."""
        return {
            "create": ("dir", lambda: os.close(os.open(f"{self.dir}/new", os.O_CREAT | os.O_WRONLY, 0o600))),
            "mkdir": ("dir", lambda: os.mkdir(f"{self.dir}/new")),
            "mknod": ("dir", lambda: os.mkfifo(f"{self.dir}/new")),
            "symlink": ("dir", lambda: os.symlink("target", f"{self.dir}/new")),
            "link": ("dir", lambda: os.link(self.mount.path / self.name, f"{self.dir}/new")),
            "unlink": ("dir", lambda: os.unlink(f"{self.dir}/victim")),
            "rename": ("dir", lambda: os.rename(f"{self.dir}/victim", f"{self.dir}/new")),
            "rename from": ("dir", lambda: os.rename(f"{self.dir}/victim", self.mount.path / "new")),
            "rename to": ("dir", lambda: os.rename(self.mount.path / "other", f"{self.dir}/new")),
            "chmod": ("dir", lambda: os.chmod(self.dir, 0o700)),
            "xattr of a directory": ("dir", lambda: os.setxattr(self.mount.path / "dir", "user.a", b"value")),
            "write": ("file", lambda: os.pwrite(self.fd, b"x", 0)),
            "append": ("file", lambda: os.pwrite(self.fd, b"x", 20000)),
            "truncate": ("file", lambda: os.ftruncate(self.fd, 10)),
            "allocate": ("file", lambda: self.allocate(KEEP_SIZE)),
            "punch": ("file", lambda: self.allocate(KEEP_SIZE | PUNCH_HOLE)),
            "xattr": ("file", lambda: os.setxattr(self.mount.path / self.name, "user.a", b"value")),
            "further link": ("file", lambda: os.link(self.mount.path / self.name, self.mount.path / "link")),
            "renamed": ("file", self.rename),
            "exchanged": ("file", self.exchange),
            "mapping": ("file", self.map),
        }

    def wait_until_held(self):
        deadline = time.monotonic() + LIMIT
        while not self.held.exists():
            assert time.monotonic() < deadline, "nobody asked for attributes"
            time.sleep(0.001)

    def stat(self, path):
        """Asks the daemon, whatever the kernel knows."""
        checked(LIBC.statx(-100, os.fsencode(path), AT_STATX_FORCE_SYNC, STATX_BASIC_STATS, ctypes.create_string_buffer(256)))
        return 0

    def make(self, what):
        """Where it was changed."""
        kind, change = self.changes()[what]
        path = self.mount.path / (kind if kind == "dir" else self.name)
        os.stat(path)
        self.hold.touch()
        child = begin_child(lambda: self.stat(path))
        try:
            self.wait_until_held()
            change()
        finally:
            self.hold.unlink()
            end_of_child(child)
        return "dir" if kind == "dir" else self.name

    def close(self):
        self.mapping.close()
        os.close(self.fd)
        os.close(self.dir_fd)


def attributes(path):
    status = os.stat(path)
    return status.st_mode, status.st_nlink, status.st_size, status.st_mtime_ns, status.st_ctime_ns


WHAT = ("create", "mkdir", "mknod", "symlink", "link", "unlink", "rename", "rename from", "rename to", "chmod",
        "xattr of a directory", "write", "append", "truncate", "allocate", "punch", "xattr", "further link", "renamed",
        "exchanged", "mapping")


@pytest.mark.parametrize("what", WHAT)
def test_a_late_reply_is_not_kept(maker, what):
    with preloaded(maker.scratch, HOLDING, HOLD=maker.scratch / "hold"):
        mount = maker.mount("allow_other")
    late = Late(mount, maker.scratch / "hold")
    try:
        name = late.make(what)
        # Of a mapping, the kernel hears just after the reply.
        deadline = time.monotonic() + (LIMIT if what == "mapping" else 0)
        while attributes(mount.path / name) != attributes(mount.source / name) and time.monotonic() < deadline:
            time.sleep(0.001)
        assert attributes(mount.path / name) == attributes(mount.source / name)
    finally:
        late.close()
