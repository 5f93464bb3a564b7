# SPDX-License-Identifier: LGPL-2.1-or-later
"""Settings of the kernel for a run, which are restored after it."""
import contextlib
import mmap

IO_URING = "/sys/module/fuse/parameters/enable_uring"
REPORTING = "/sys/module/page_reporting/parameters/page_reporting_order"
NO_ORDER = "11"  # higher than any block of free pages is
MADV_POPULATE_WRITE = 23


@contextlib.contextmanager
def parameter(path, value):
    with open(path, "r+", encoding="ascii") as stream:
        before = stream.read().strip()
        stream.seek(0)
        stream.write(value)
    try:
        yield
    finally:
        with open(path, "w", encoding="ascii") as stream:
            stream.write(before)


@contextlib.contextmanager
def io_uring_enabled(wanted):
    with contextlib.ExitStack() as stack:
        try:
            if wanted:
                stack.enter_context(parameter(IO_URING, "Y"))
        except OSError as error:
            raise SystemExit(f"{IO_URING}: {error.strerror}: this kernel has no FUSE over io_uring") from error
        yield


@contextlib.contextmanager
def memory_kept():
    """A virtual machine may give free pages back to its host, and has to ask for them again when a page cache grows: that
    took five times as long as filling them, and hit whatever system happened to be the next. So none are given back meanwhile,
    and all are had before the first system begins."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(parameter(REPORTING, NO_ORDER))
        except OSError:
            yield
            return
        with mmap.mmap(-1, available() * 3 // 4, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
            memory.madvise(MADV_POPULATE_WRITE)
        yield


def available():
    with open("/proc/meminfo", encoding="ascii") as stream:
        for line in stream:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    raise SystemExit("/proc/meminfo: no MemAvailable")
