# SPDX-License-Identifier: LGPL-2.1-or-later
"""The ioctl of a mount (include/wayback/control.h), for tests that ask often: no program is started."""
import fcntl
import os
import struct

PATH_MAX, DATA_MAX = 4096, 8192
HEAD = struct.Struct("=IIIIQqq")  # version, command, flags, count, cursor, since, until
SIZE = HEAD.size + PATH_MAX + DATA_MAX
IOCTL = (3 << 30) | (SIZE << 16) | (ord("W") << 8) | 0x42
CREATE, RENAME, DELETE = 6, 8, 9
SNAPSHOT = struct.Struct("=IIqQqIHH")  # size, flags, when, scope_ino, scope_birth, uid, text, path


def request(directory, command, path=b"", data=b""):
    """The data of the reply; OSError as the daemon says."""
    buffer = bytearray(HEAD.pack(1, command, 0, 0, 0, 0, 0) + path.ljust(PATH_MAX, b"\0") + data.ljust(DATA_MAX, b"\0"))
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.ioctl(fd, IOCTL, buffer)
    finally:
        os.close(fd)
    return bytes(buffer[HEAD.size + PATH_MAX:])


def snapshot(directory, name):
    """A snapshot of that directory; its moment."""
    reply = request(directory, CREATE, data=os.fsencode(name).ljust(256, b"\0"))
    return SNAPSHOT.unpack_from(reply)[2]


def rename_snapshot(directory, name, new_name):
    request(directory, RENAME, data=os.fsencode(name).ljust(256, b"\0") + os.fsencode(new_name))


def delete_snapshot(directory, name):
    request(directory, DELETE, data=os.fsencode(name))
