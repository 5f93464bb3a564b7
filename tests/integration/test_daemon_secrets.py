# SPDX-License-Identifier: LGPL-2.1-or-later
"""What the mount discloses to ordinary users about the daemon itself: no address of its memory, no path and no
descriptor."""
import ctypes
import os
import struct

import pytest

from by_hand import control
from mounts import NOBODY, SECOND, as_user, moment

HELLO = 1
LIBC = ctypes.CDLL(None, use_errno=True)


def node_number(path):
    """The number by which the kernel knows it; every user who may look it up may ask for that."""
    handle = ctypes.create_string_buffer(8 + 128)
    mount_id = ctypes.c_int()
    struct.pack_into("=Ii", handle, 0, 128, 0)
    if LIBC.name_to_handle_at(-100, os.fsencode(path), handle, ctypes.byref(mount_id), 0) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    high, low = struct.unpack_from("=II", handle, 8)
    return high << 32 | low


def mappings(pid):
    with open(f"/proc/{pid}/maps", encoding="ascii") as stream:
        return [tuple(int(end, 16) for end in line.split(" ")[0].split("-")) for line in stream]


def test_numbers_of_nodes_are_no_addresses(mount):
    names = [f"f{i}" for i in range(200)]
    for name in names:
        (mount.path / name).write_bytes(b"x")
    (mount.path / "d").mkdir()
    when = moment()
    paths = [mount.path / name for name in names] + [mount.path / "d", mount.at(when), mount.at(when, "f1"),
                                                     mount.path / "d/.snapshot"]
    numbers = as_user(lambda: [node_number(path) for path in paths], *SECOND)
    assert len(set(numbers)) == len(numbers) and not {0, 1} & set(numbers)
    memory = mappings(mount.process.pid)
    assert not [number for number in numbers if any(begin <= number < end for begin, end in memory)]
    # Neighbours in memory do not show as neighbours.
    assert min(abs(a - b) for a, b in zip(numbers, numbers[1:])) > 1 << 32
    assert [(mount.path / name).read_bytes() for name in names] == [b"x"] * len(names)


def test_numbers_of_nodes_are_new_for_each_mount(mount):
    (mount.path / "f").write_bytes(b"x")
    before = node_number(mount.path / "f")
    mount.remount()
    assert node_number(mount.path / "f") != before


def hello(mount):
    data = control(mount.path, HELLO, "")
    source = data[:4096].split(b"\0")[0]
    pid, source_fd, store_fd = struct.unpack_from("=Iii", data, 4096 + 16 + 8 + 8)
    return source, pid, source_fd, store_fd


def test_paths_and_descriptors_are_for_root_and_the_mounting_user(mount, maker, user_mount):
    elsewhere = maker.mount("allow_other", f"store={maker.tree()}/store")
    for asked in (mount, elsewhere):
        assert as_user(lambda: hello(asked), *SECOND) == (b"", 0, -1, -1)  # pylint: disable=W0640
        source, pid, source_fd, store_fd = hello(asked)
        assert (source, pid) == (os.fsencode(asked.source), asked.process.pid)
        assert os.path.samefile(f"/proc/{pid}/fd/{source_fd}", asked.source)
        assert (store_fd >= 0) == (asked is elsewhere)
    assert as_user(lambda: hello(user_mount), *NOBODY)[:2] == (os.fsencode(user_mount.source), user_mount.process.pid)


@pytest.mark.parametrize("behind", [False, True])
def test_the_tools_of_other_users_do_not_need_them(mount, behind):
    (mount.path / "f").write_bytes(b"one")
    (mount.path / "f").write_bytes(b"two")
    path = (mount.source if behind else mount.path) / "f"
    assert "write" in mount.tool("vstat", path, user=SECOND).stdout
    assert "f" in mount.tool("vlog", path.parent, user=SECOND).stdout
