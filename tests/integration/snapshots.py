# SPDX-License-Identifier: LGPL-2.1-or-later
"""Snapshots as records, written by the tests themselves.

A second opinion on the encoder, and the way to snapshots of chosen moments; the daemon reads the log again when it has
grown. docs/format.md describes the bytes.
"""
import ctypes
import os
import struct

from mounts import moment

_XXHASH = ctypes.CDLL("libxxhash.so.0")
_XXHASH.XXH3_64bits.restype = ctypes.c_uint64
_XXHASH.XXH3_64bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]


def _record(when, body):
    head = struct.pack("<4sBBHqIIIIQ", b"WBK1", 9, 0, 0, when, 0, len(body), 0, 0, 0)
    record = head + struct.pack("<Q", _XXHASH.XXH3_64bits(head + body, len(head) + len(body))) + body
    length = (len(record) + 8 + 7) // 8 * 8
    return record.ljust(length - 8, b"\0") + struct.pack("<I4s", length, b"EWBK")


def _append(mount, name, when, scope, present, path=""):
    store = mount.store()
    if scope is None:
        scope = (store / "header").read_bytes()[32:48]
    name = os.fsencode(name)
    body = struct.pack("<q16sIBBBBHHI", when, scope, 0, present, 0, len(name), 0, 0, len(path), 0) + name
    body += os.fsencode(path)
    with open(store / "snapshots", "ab", buffering=0) as log:
        log.write(_record(moment(), body))


def add(mount, name, when=None, scope=None, path=""):
    """Names a moment, now by default; `scope`: an object's 16 bytes."""
    when = when or moment()
    _append(mount, name, when, scope, 1, path)
    moment()  # the next record is later
    return when


def rename(mount, when, name):
    _append(mount, name, when, None, 1)


def delete(mount, name, when):
    _append(mount, name, when, None, 0)


def object_of(mount, path):
    """The 16 bytes that identify a directory: inode number and birth."""
    status = mount.tool("stat", "-c", "%i", mount.source / path).stdout.strip()
    birth = mount.tool("stat", "-c", "%.9W", mount.source / path).stdout.strip()
    return struct.pack("<Qq", int(status), int(birth.replace(".", "")))
