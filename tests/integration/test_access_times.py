# SPDX-License-Identifier: LGPL-2.1-or-later
"""Access times: noatime, nodiratime, strictatime, relatime and O_NOATIME move them as on a disk.

A read that the page cache serves moves none, as docs/posix.md says: so each is the first of its mount.
"""
import os

import pytest

from mounts import NOBODY, as_user

OLD = 1_000_000_000


def prepare(mount):
    (mount.path / "d").mkdir()
    (mount.path / "d" / "f").write_bytes(b"content")
    for path in (mount.path / "d" / "f", mount.path / "d"):
        os.utime(path, (OLD, OLD + 1))
        path.chmod(0o755)
    mount.remount()


def read(path, flags=0):
    fd = os.open(path, os.O_RDONLY | flags)
    try:
        return os.listdir(fd) if os.path.isdir(path) else os.read(fd, 10)
    finally:
        os.close(fd)


def moved(path):
    return os.stat(path).st_atime != OLD


@pytest.mark.parametrize("options,file_moves,directory_moves", [
    ("rw", True, True), ("relatime", True, True), ("strictatime", True, True), ("nodiratime", True, False),
    ("noatime", False, False), ("ro", False, False), ("noatime,nodiratime", False, False)])
def test_mount_options_about_access_times(maker, options, file_moves, directory_moves):
    mount = maker.mount("allow_other", kind="ext4")
    prepare(mount)
    mount.stop()
    mount = maker.mount("allow_other", *options.split(","), source=mount.source)
    assert read(mount.path / "d" / "f") == b"content" and read(mount.path / "d") == ["f"]
    for root in (mount.path, mount.source):
        assert moved(root / "d" / "f") == file_moves, root
        assert moved(root / "d") == directory_moves, root


def test_an_open_without_access_time(maker):
    mount = maker.mount("allow_other", kind="ext4")
    prepare(mount)
    for path in (mount.path / "d" / "f", mount.path / "d"):
        assert read(path, os.O_NOATIME)
        assert not moved(path)
    with pytest.raises(PermissionError):
        as_user(lambda: read(mount.path / "d" / "f", os.O_NOATIME), *NOBODY)
    assert not moved(mount.path / "d" / "f")
