# SPDX-License-Identifier: LGPL-2.1-or-later
"""File handles (name_to_handle_at), as servers of NFS use them: they open the file they were made of, or nothing."""
import ctypes
import errno
import os

import pytest

from mounts import drop_caches, epoch, moment

LIBC = ctypes.CDLL(None, use_errno=True)


class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint), ("type", ctypes.c_int), ("data", ctypes.c_ubyte * 128)]


def handle_of(path):
    handle, mount_id = Handle(bytes=128), ctypes.c_int()
    if LIBC.name_to_handle_at(-100, os.fsencode(path), ctypes.byref(handle), ctypes.byref(mount_id), 0) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return handle


def open_handle(root, handle):
    anchor = os.open(root, os.O_RDONLY)
    try:
        fd = LIBC.open_by_handle_at(anchor, ctypes.byref(handle), os.O_RDONLY)
        if fd < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return fd
    finally:
        os.close(anchor)


def read_handle(root, handle):
    """The content of the file of the handle, or None if it is stale."""
    try:
        fd = open_handle(root, handle)
    except OSError as error:
        assert error.errno == errno.ESTALE
        return None
    with os.fdopen(fd, "rb") as stream:
        return stream.read()


def forget():
    drop_caches(2)


def test_a_handle_opens_its_file_while_the_kernel_knows_it(any_mount):
    root = any_mount.path
    (root / "d").mkdir()
    (root / "d" / "f").write_bytes(b"one")
    when = moment()
    (root / "d" / "f").write_bytes(b"two")
    held = [os.open(path, os.O_RDONLY) for path in (root / "d" / "f", root / f"d@{epoch(when)}" / "f")]
    handles = [handle_of(path) for path in (root / "d" / "f", root / f"d@{epoch(when)}" / "f")]
    forget()
    os.rename(root / "d" / "f", root / "moved")
    assert [read_handle(root, handle) for handle in handles] == [b"two", b"one"]
    for fd in held:
        os.close(fd)


def test_a_handle_the_kernel_forgot_is_stale_and_never_something_else(any_mount):
    """The numbers of nodes are used again; handles of earlier ones must not lead to later ones."""
    root = any_mount.path
    when, handles = None, {}
    for turn in range(4):
        directory = root / str(turn)
        directory.mkdir()
        for i in range(200):
            (directory / str(i)).write_bytes(b"%d of %d" % (i, turn))
        for i in range(200):
            handles[directory / str(i)] = (b"%d of %d" % (i, turn), handle_of(directory / str(i)))
            if when:
                past = root / f"0@{epoch(when)}" / str(i)
                handles[past] = (b"%d of 0" % i, handle_of(past))
        when = when or moment()
        forget()
        for i in range(200):
            os.stat(root / ".snapshot" / epoch(when) / "0" / str(i))
        for path, (content, handle) in handles.items():
            found = read_handle(root, handle)
            assert found in (None, content), path
    # Nothing remembers them after a new mount.
    any_mount.remount()
    for path, (content, handle) in handles.items():
        if path.exists():
            assert read_handle(root, handle) in (None, content), path


def test_handles_of_directories(any_mount):
    root = any_mount.path
    handles = {}
    for i in range(100):
        (root / str(i)).mkdir()
        (root / str(i) / f"in {i}").touch()
    when = moment()
    for turn in range(3):
        for i in range(100):
            for path in (root / str(i), root / str(i) / ".snapshot", root / str(i) / ".snapshot" / epoch(when)):
                handles[path] = (sorted(os.listdir(path)), handle_of(path))
        for path, (names, handle) in handles.items():
            try:
                fd = open_handle(root, handle)
            except OSError as error:
                assert error.errno == errno.ESTALE
                continue
            assert sorted(os.listdir(fd)) == names, path
            os.close(fd)
        if turn < 2:
            forget()


@pytest.mark.parametrize("data", [b"\xff" * 16, b"\0" * 16, b"\x41" * 16])
def test_invented_handles_are_stale(mount, data):
    for kind in (1, 0x81, 0x82):
        handle = Handle(bytes=len(data), type=kind)
        ctypes.memmove(handle.data, data, len(data))
        with pytest.raises(OSError) as caught:
            open_handle(mount.path, handle)
        assert caught.value.errno == errno.ESTALE
