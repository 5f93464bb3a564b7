# SPDX-License-Identifier: LGPL-2.1-or-later
"""Requests to the daemon, made by hand. Programs that tests start import it: it imports nothing that takes long."""
import fcntl
import os
import struct


HEAD = struct.Struct("=4IQ2q")
MORE = 2  # the flag of a page that is not the last one


def exchange(directory, command, path, source="", flags=0, since=0, cursor=0):
    """A request as include/wayback/control.h has it, made by hand; the fields of the reply's head, and its data."""
    size = HEAD.size + 4096 + 8192
    request = bytearray(HEAD.pack(1, command, flags, 0, cursor, since, 0) + os.fsencode(path).ljust(4096, b"\0") +
                        os.fsencode(source).ljust(8192, b"\0"))
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.ioctl(fd, 3 << 30 | size << 16 | ord("W") << 8 | 0x42, request)
    finally:
        os.close(fd)
    return HEAD.unpack_from(request), bytes(request[HEAD.size + 4096:])


def call(directory, command, path, source="", flags=0, since=0):
    """The flags and the data of the reply."""
    head, data = exchange(directory, command, path, source, flags, since)
    return head[2], data


def call_for(directory, command, path, since, cursor):
    """One page of a list: flags, data, number of items, and the cursor of the next page."""
    (_, _, flags, count, following, _, _), data = exchange(directory, command, path, since=since, cursor=cursor)
    return flags, data, count, following


def call_for_all(directory, command, path, source=""):
    """The data of all pages of a list; a page ends when its time is over, too."""
    cursor, data = 0, b""
    while True:
        (_, _, flags, _, cursor, _, _), page = exchange(directory, command, path, source, cursor=cursor)
        data += page
        if not flags & MORE:
            return data


def control(directory, command, path, source="", flags=0):
    """The same; its data."""
    return call(directory, command, path, source, flags)[1]
