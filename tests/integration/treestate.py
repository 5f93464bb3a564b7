# SPDX-License-Identifier: LGPL-2.1-or-later
"""The state of a tree: everything by which a user could distinguish two trees.

A state is a dict from path (relative, "" is the root) to an Entry. It is taken from the live tree when it is the
present, and compared with what the past shows later; no model of file-system semantics is needed to know what to
expect.
"""
import errno
import hashlib
import os
import stat
from typing import NamedTuple


class Entry(NamedTuple):
    kind: str
    mode: int
    uid: int
    gid: int
    nlink: int
    size: int
    mtime: int
    rdev: int
    content: str  # digest of a file, target of a link
    xattrs: tuple
    group: str  # the first path (in order) of the hard-link group it belongs to


def xattrs_of(path):
    try:
        names = os.listxattr(path, follow_symlinks=False)
    except OSError as error:
        if error.errno in (errno.ENOTSUP, errno.EPERM):
            return ()
        raise
    return tuple(sorted((n, os.getxattr(path, n, follow_symlinks=False)) for n in names))


def content_of(path, status):
    if stat.S_ISLNK(status.st_mode):
        return os.readlink(path)
    if not stat.S_ISREG(status.st_mode):
        return ""
    digest = hashlib.blake2b(digest_size=16)
    with open(path, "rb", buffering=0) as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def state_of(root, refused=None):
    """The state of the tree below root; with `refused`, a set, paths that cannot be read (EIO) are added to it
    instead."""
    state, groups = {}, {}

    def visit(relative):
        try:
            look_at(relative)
        except OSError as error:
            if refused is None or error.errno != errno.EIO:
                raise
            refused.add(relative)
            state.pop(relative, None)

    def look_at(relative):
        path = os.path.join(root, relative) if relative else root
        status = os.lstat(path)
        is_dir = stat.S_ISDIR(status.st_mode)
        group = groups.setdefault((status.st_dev, status.st_ino), relative)
        state[relative] = Entry(
            stat.filemode(status.st_mode)[0], stat.S_IMODE(status.st_mode), status.st_uid,
            status.st_gid, status.st_nlink, 0 if is_dir else status.st_size,
            status.st_mtime_ns, status.st_rdev, content_of(path, status), xattrs_of(path), group)
        if is_dir:
            for name in sorted(os.listdir(path)):
                visit(f"{relative}/{name}" if relative else name)

    visit("")
    return state


def differences(expected, found, ignore=()):
    """Lines that describe the differences of two states; none if they are equal. `ignore`: Entry fields."""
    lines = []
    for path in sorted(expected.keys() | found.keys()):
        a, b = expected.get(path), found.get(path)
        if a is None or b is None:
            lines.append(f"{path or '.'}: {'missing' if b is None else 'should not be there'}")
            continue
        for field in Entry._fields:
            if field not in ignore and getattr(a, field) != getattr(b, field):
                lines.append(f"{path or '.'}: {field} is {getattr(b, field)!r}, was "
                             f"{getattr(a, field)!r}")
    return lines
