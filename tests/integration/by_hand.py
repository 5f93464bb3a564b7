# SPDX-License-Identifier: LGPL-2.1-or-later
"""Requests to the daemon, made by hand. Programs that tests start import it: it imports nothing that takes long."""
import fcntl
import os
import struct


HEAD = struct.Struct("=4IQ2q")


def call(directory, command, path, source="", flags=0, since=0):
    """A request as include/wayback/control.h has it, made by hand; the flags and the data of the reply."""
    head = HEAD
    size = head.size + 4096 + 8192
    request = bytearray(head.pack(1, command, flags, 0, 0, since, 0) + os.fsencode(path).ljust(4096, b"\0") +
                        os.fsencode(source).ljust(8192, b"\0"))
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.ioctl(fd, 3 << 30 | size << 16 | ord("W") << 8 | 0x42, request)
    finally:
        os.close(fd)
    return head.unpack_from(request)[2], bytes(request[head.size + 4096:])


def call_for(directory, command, path, since, cursor):
    """One page of a list: flags, data, number of items, and the cursor of the next page."""
    size = HEAD.size + 4096 + 8192
    request = bytearray(HEAD.pack(1, command, 0, 0, cursor, since, 0) + os.fsencode(path).ljust(4096 + 8192, b"\0"))
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.ioctl(fd, 3 << 30 | size << 16 | ord("W") << 8 | 0x42, request)
    finally:
        os.close(fd)
    _, _, flags, count, cursor, _, _ = HEAD.unpack_from(request)
    return flags, bytes(request[HEAD.size + 4096:]), count, cursor


def call_for_all(directory, command, path, source=""):
    """The data of all pages of a list; a page ends when its time is over, too."""
    size, cursor, data = HEAD.size + 4096 + 8192, 0, b""
    while True:
        request = bytearray(HEAD.pack(1, command, 0, 0, cursor, 0, 0) + os.fsencode(path).ljust(4096, b"\0") +
                            os.fsencode(source).ljust(8192, b"\0"))
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(fd, 3 << 30 | size << 16 | ord("W") << 8 | 0x42, request)
        finally:
            os.close(fd)
        _, _, flags, _, cursor, _, _ = HEAD.unpack_from(request)
        data += bytes(request[HEAD.size + 4096:])
        if not flags & 2:
            return data


def control(directory, command, path, source="", flags=0):
    """The same; its data."""
    return call(directory, command, path, source, flags)[1]
