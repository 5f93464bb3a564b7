# SPDX-License-Identifier: LGPL-2.1-or-later
"""Random operations on a tree: everything Wayback records, in every order.

`Operator(root, seed).step()` makes one change (or one that fails, as programs also do) and returns a line that
describes it, so that a failing run can be read and repeated.
"""
import ctypes
import errno
import mmap
import os
import random
import stat

_libc = ctypes.CDLL(None, use_errno=True)
NOREPLACE, EXCHANGE = 1, 2
KEEP_SIZE, PUNCH, COLLAPSE, ZERO, INSERT = 1, 2, 8, 16, 32


def renameat2(source, target, flags):
    if _libc.renameat2(-100, os.fsencode(source), -100, os.fsencode(target), flags) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), source)


def fallocate(fd, mode, offset, length):
    if _libc.fallocate(fd, mode, ctypes.c_long(offset), ctypes.c_long(length)) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


class Operator:
    """Holds the root, the random source, and files kept open across operations."""

    NAMES = [f"n{i}" for i in range(9)]
    # The errors that a file system, or a user without the right, may answer to a well-formed request.
    EXPECTED = {errno.ENOENT, errno.EEXIST, errno.ENOTEMPTY, errno.EINVAL, errno.ENOTDIR,
                errno.EISDIR, errno.EPERM, errno.EOPNOTSUPP, errno.ENODATA, errno.EMLINK,
                errno.ELOOP, errno.EACCES, errno.EXDEV, errno.ENXIO, errno.EBUSY}
    opener = None  # of files that open(2) cannot name

    def __init__(self, root, seed, as_root=None):
        self.root = root
        self.random = random.Random(seed)
        self.as_root = os.geteuid() == 0 if as_root is None else as_root
        self.open_files = []
        self.operations = [name for name in dir(self) if name.startswith("do_")]

    # -- choosing --------------------------------------------------------------------------------

    def _walk(self):
        dirs, others = [self.root], []
        for path, names, files in os.walk(self.root):
            dirs += [os.path.join(path, n) for n in names
                     if not os.path.islink(os.path.join(path, n))]
            others += [os.path.join(path, n) for n in files]
            others += [os.path.join(path, n) for n in names
                       if os.path.islink(os.path.join(path, n))]
        # The order of a directory differs from one file system to the next, and a seed must mean the same on all.
        return sorted(dirs), sorted(others)

    def _dir(self):
        dirs = [d for d in self._walk()[0] if d[len(self.root):].count("/") < 4]
        return self.random.choice(dirs)

    def _new(self):
        return os.path.join(self._dir(), self.random.choice(self.NAMES))

    def _any(self):
        dirs, others = self._walk()
        return self.random.choice(others * 2 + dirs[1:] or [self._new()])

    def _file(self):
        files = [p for p in self._walk()[1] if stat.S_ISREG(os.lstat(p).st_mode)]
        if files:
            return self.random.choice(files)
        path = self._new()
        # Not a fifo: opening one waits for a process at the other end.
        return path + "x" if os.path.lexists(path) else path

    def _bytes(self):
        size = self.random.choice([0, 1, 7, 100, 511, 4096, 5000, 70000])
        kind = self.random.randrange(4)
        if kind == 0:
            return bytes(size)
        if kind == 1:
            return bytes([self.random.randrange(256)]) * size
        return self.random.randbytes(size)

    def _range(self, size):
        return self.random.randrange(size + 5000), self.random.choice([1, 100, 4096, 9000, 66000])

    # -- operations ------------------------------------------------------------------------------

    def step(self):
        name = self.random.choice(self.operations)
        try:
            return f"{name[3:]} {getattr(self, name)()}"
        except OSError as error:
            if error.errno not in self.EXPECTED:
                raise
            return f"{name[3:]} failed: {error}"

    def do_create(self):
        path = self._new()
        with open(path, "xb", opener=self.opener) as stream:
            stream.write(self._bytes())
        return path

    do_create_again = do_create

    def do_overwrite(self):
        path = self._file()
        with open(path, "r+b", buffering=0, opener=self.opener) as stream:
            offset, _ = self._range(os.fstat(stream.fileno()).st_size)
            data = self._bytes()
            os.pwrite(stream.fileno(), data, offset)
        return f"{path} {offset}+{len(data)}"

    do_overwrite_again = do_overwrite

    def do_append(self):
        path = self._file()
        with open(path, "ab", buffering=0, opener=self.opener) as stream:
            stream.write(self._bytes())
            stream.write(self._bytes())
        return path

    def do_rewrite(self):
        path = self._file()
        with open(path, "wb", opener=self.opener) as stream:
            stream.write(self._bytes())
        return path

    def do_truncate(self):
        path = self._file()
        length = self.random.randrange(os.lstat(path).st_size + 3000)
        os.truncate(path, length)
        return f"{path} {length}"

    def do_save(self):
        path = self._file()
        temporary = path + ".tmp"
        with open(temporary, "wb", opener=self.opener) as stream:
            stream.write(self._bytes())
            stream.flush()
            os.fsync(stream.fileno())
        os.rename(temporary, path)
        return path

    def do_allocate(self):
        path = self._file()
        mode = self.random.choice([0, KEEP_SIZE, PUNCH | KEEP_SIZE, ZERO, ZERO | KEEP_SIZE,
                                   COLLAPSE, INSERT])
        with open(path, "r+b", buffering=0, opener=self.opener) as stream:
            offset, length = self._range(os.fstat(stream.fileno()).st_size)
            if mode in (COLLAPSE, INSERT):
                offset, length = offset // 4096 * 4096, 4096
            fallocate(stream.fileno(), mode, offset, length)
        return f"{path} mode {mode} {offset}+{length}"

    def do_copy_range(self):
        source, target = self._file(), self._file()
        with open(source, "rb", opener=self.opener) as a, open(target, "r+b", buffering=0, opener=self.opener) as b:
            size = os.fstat(a.fileno()).st_size
            offset, length = self._range(os.fstat(b.fileno()).st_size)
            os.copy_file_range(a.fileno(), b.fileno(), min(length, size), 0, offset)
        return f"{source} to {target} at {offset}"

    def do_mmap(self):
        path = self._file()
        with open(path, "r+b", buffering=0, opener=self.opener) as stream:
            size = os.fstat(stream.fileno()).st_size
            if size == 0:
                return f"{path} is empty"
            with mmap.mmap(stream.fileno(), size) as area:
                offset = self.random.randrange(size)
                data = self._bytes()[:size - offset]
                area[offset:offset + len(data)] = data
                area.flush()
        return f"{path} {offset}+{len(data)}"

    def do_mkdir(self):
        path = self._new()
        os.mkdir(path, self.random.choice([0o755, 0o700, 0o2775]))
        return path

    def do_fifo(self):
        path = self._new()
        os.mkfifo(path)
        return path

    def do_symlink(self):
        path = self._new()
        os.symlink(self.random.choice(["n1", "../n2", "/nowhere", "x" * 200]), path)
        return path

    def do_link(self):
        source, target = self._file(), self._new()
        os.link(source, target)
        return f"{source} to {target}"

    def do_unlink(self):
        path = self._any()
        os.unlink(path)
        return path

    def do_rmdir(self):
        path = self._dir()
        if path == self.root:
            return "the root is spared"
        os.rmdir(path)
        return path

    def do_remove_tree(self):
        path = self._dir()
        if path == self.root or self.random.randrange(3):
            return "spared"
        for parent, names, files in os.walk(path, topdown=False):
            for name in files:
                os.unlink(os.path.join(parent, name))
            for name in names:
                child = os.path.join(parent, name)
                (os.unlink if os.path.islink(child) else os.rmdir)(child)
        os.rmdir(path)
        return path

    def do_rename(self):
        source = self._any()
        target = self._any() if self.random.randrange(2) else self._new()
        flags = self.random.choice([0, 0, 0, NOREPLACE, EXCHANGE])
        renameat2(source, target, flags)
        return f"{source} to {target} flags {flags}"

    do_rename_again = do_rename

    def do_chmod(self):
        path = self._any()
        if os.path.islink(path):
            return "a link has no mode"
        mode = self.random.choice([0o644, 0o600, 0o755, 0o4755, 0o2770, 0o640])
        os.chmod(path, mode | (0o700 if os.path.isdir(path) else 0o600))
        return f"{path} {mode:o}"

    def do_chown(self):
        if not self.as_root:
            return "only root can"
        path = self._any()
        os.chown(path, self.random.choice([0, 1, 1000]), self.random.choice([0, 5, 100]),
                 follow_symlinks=False)
        return path

    def do_utimes(self):
        path = self._any()
        os.utime(path, ns=(self.random.randrange(1 << 60), self.random.randrange(1 << 60)),
                 follow_symlinks=False)
        return path

    def do_setxattr(self):
        path = self._any()
        name = self.random.choice(["user.a", "user.b"])
        os.setxattr(path, name, self.random.randbytes(self.random.choice([0, 3, 200, 1500])),
                    follow_symlinks=False)
        return f"{path} {name}"

    def do_removexattr(self):
        path = self._any()
        os.removexattr(path, "user.a", follow_symlinks=False)
        return path

    def do_open_and_unlink(self):
        path = self._file()
        fd = os.open(path, os.O_RDWR)
        os.unlink(path)
        os.pwrite(fd, b"written after its name was gone", 0)
        self.open_files.append(fd)
        if len(self.open_files) > 4:
            os.close(self.open_files.pop(0))
        return path

    def do_write_open(self):
        if not self.open_files:
            return "nothing open"
        os.pwrite(self.random.choice(self.open_files), self._bytes(), self.random.randrange(9000))
        return "a nameless file"

    def do_tmpfile(self):
        path = self._new()
        fd = os.open(os.path.dirname(path), os.O_TMPFILE | os.O_RDWR, 0o640)
        try:
            os.write(fd, self._bytes())
            # linkat with AT_SYMLINK_FOLLOW, which os.link does not reach without dir_fd.
            if _libc.linkat(-100, b"/proc/thread-self/fd/%d" % fd, -100, os.fsencode(path), 0x400) != 0:
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), path)
        finally:
            os.close(fd)
        return path

    def close(self):
        for fd in self.open_files:
            os.close(fd)
        self.open_files.clear()
