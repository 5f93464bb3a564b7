# SPDX-License-Identifier: LGPL-2.1-or-later
"""A request that is refused is refused for its own reason."""
import errno
import os

import pytest

from mounts import moment
from preload import preloaded

FAILING = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
int statx(int fd, const char *path, int flags, unsigned mask, struct statx *st)
{
    static int (*next)(int, const char *, int, unsigned, struct statx *);
    const char *now = getenv("FAILS_NOW");
    if (now && access(now, F_OK) == 0) {
        errno = EIO;
        return -1;
    }
    if (!next)
        next = dlsym(RTLD_NEXT, "statx");
    return next(fd, path, flags, mask, st);
}
"""
OF_THE_DISK = "a state cannot be read (input/output error), and no reason is known"


def test_an_error_of_the_disk_is_not_given_the_reason_of_another(maker):
    """A damaged record is reported with its reason; a later failure of the disk, in the same thread, is not."""
    now = maker.scratch / "now"
    with preloaded(maker.scratch, FAILING, FAILS_NOW=now):
        mount = maker.mount("allow_other")
        mount.expect(".")
        (mount.path / "d").mkdir()
        (mount.path / "d/victim").write_bytes(b"one")
        (mount.path / "g").write_bytes(b"one")
        when = moment()
        (mount.path / "d/victim").rename(mount.path / "d/other")
        mount.stop()
        for log in mount.store().glob("objects/*/*.cat"):
            data = log.read_bytes()
            log.write_bytes(data.replace(b"victim", b"vIctim"))
        mount.start()
        for _ in range(64):
            with pytest.raises(OSError) as caught:
                os.stat(mount.at(when) / "d/victim")
            assert caught.value.errno == errno.EIO
        assert "damaged" in mount.log() and OF_THE_DISK not in mount.log()
        directory = os.open(mount.at(when), os.O_RDONLY)
        now.touch()
        with pytest.raises(OSError) as caught:
            os.stat("g", dir_fd=directory)
        now.unlink()
        os.close(directory)
        assert caught.value.errno == errno.EIO
        assert OF_THE_DISK in mount.log()
