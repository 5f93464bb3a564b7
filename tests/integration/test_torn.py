# SPDX-License-Identifier: LGPL-2.1-or-later
"""A kill inside one write(2) of the daemon leaves a part of a request that was never acknowledged."""
import contextlib
import os

import pytest

from mounts import epoch, moment
from preload import preloaded

TORN = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

static int meant(int fd)
{
    char link[64], path[4096] = "";
    const char *name;

    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    if (access(getenv("TORN_FILE"), F_OK) != 0 || readlink(link, path, sizeof(path) - 1) <= 0)
        return 0;
    name = strrchr(path, '/');
    return name && strcmp(name, "/torn") == 0;
}

ssize_t pwrite64(int fd, const void *data, size_t length, off64_t offset)
{
    ssize_t (*real)(int, const void *, size_t, off64_t) = dlsym(RTLD_NEXT, "pwrite64");

    if (!meant(fd))
        return real(fd, data, length, offset);
    real(fd, data, length - length / 50, offset);
    unlink(getenv("TORN_FILE"));
    raise(SIGKILL);
    return -1;
}
"""

OLD, NEW = b"old" * 20_000, b"new" * 20_000


@pytest.mark.parametrize("history", ["write", "close"])
def test_earlier_states_are_exact(maker, tmp_path, history):
    trigger = tmp_path / "trigger"
    with preloaded(tmp_path, TORN, TORN_FILE=trigger):
        mount = maker.mount("allow_other", f"history={history}")
    path = mount.path / "torn"
    path.write_bytes(OLD)
    before = moment()
    fd = os.open(path, os.O_RDWR)
    trigger.touch()
    with pytest.raises(OSError):
        os.pwrite(fd, NEW + NEW, 0)  # past the end, too
    mount.kill(check=False)
    with contextlib.suppress(OSError):
        os.close(fd)
    assert not trigger.exists()
    mount.start()
    torn = path.read_bytes()
    assert len(OLD) < len(torn) < len(NEW + NEW) and torn == (NEW + NEW)[:len(torn)]
    assert (mount.path / f"torn@{epoch(before)}").read_bytes() == OLD
    mount.tool("vrevert", "--change", "1", path)
    assert path.read_bytes() == OLD
    assert (mount.path / f"torn@{epoch(before)}").read_bytes() == OLD
    mount.check_store()
