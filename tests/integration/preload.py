# SPDX-License-Identifier: LGPL-2.1-or-later
"""A library in C that is loaded before others, into every program started meanwhile."""
import contextlib
import os
import subprocess

# How much is read of some files.
COUNTING = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Whether it is the file at COUNT_OF, or below that directory. */
static int is_counted(int fd)
{
    char link[32], of[PATH_MAX], is[PATH_MAX];
    ssize_t length, n;

    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    length = readlink(getenv("COUNT_OF"), of, sizeof(of));
    n = length > 0 ? readlink(link, is, sizeof(is)) : -1;
    return n >= length && length > 0 && memcmp(is, of, (size_t)length) == 0;
}

/* A byte is written for each 64 KiB that are read of it. */
ssize_t pread(int fd, void *data, size_t size, off_t offset)
{
    static ssize_t (*real)(int, void *, size_t, off_t);
    int out;

    if (!real)
        real = (ssize_t (*)(int, void *, size_t, off_t))dlsym(RTLD_NEXT, "pread");
    if (is_counted(fd) && (out = open(getenv("COUNT_IN"), O_WRONLY | O_APPEND)) >= 0) {
        for (size_t i = 0; i < size; i += 65536)
            (void)!write(out, "x", 1);
        close(out);
    }
    return real(fd, data, size, offset);
}

ssize_t pread64(int fd, void *data, size_t size, off_t offset)
{
    return pread(fd, data, size, offset);
}
"""


@contextlib.contextmanager
def preloaded(directory, code, **environment):
    """`code` learns from environment variables of its own which files to handle."""
    (directory / "preload.c").write_text(code)
    library = directory / "preload.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, directory / "preload.c", "-ldl"], check=True)
    environment = {"LD_PRELOAD": str(library), **{name: str(value) for name, value in environment.items()}}
    os.environ.update(environment)
    try:
        yield
    finally:
        for name in environment:
            del os.environ[name]
