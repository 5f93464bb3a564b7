# SPDX-License-Identifier: LGPL-2.1-or-later
"""Accounts (numbers, no names needed), the access each of them has to a tree, and random work on it.

The readable part is found out by trying, as that account: nothing here knows the rules of modes and ACLs.
"""
import errno
import os
import stat
import struct

from mounts import as_user

TEAM, CLUB = 7000, 7001
# uid, gid, other groups
ACCOUNTS = {"anna": (4001, 4001, (TEAM,)), "ben": (4002, 4002, (TEAM, CLUB)), "eve": (4003, 4003, ())}
ACL = "system.posix_acl_access"


def run_as(account, function, umask=0o022):
    uid, gid, groups = ACCOUNTS[account]
    return as_user(function, uid, gid, groups=groups, umask=umask)


def acl(user, group, other, users=(), groups=(), mask=None):
    """The bytes of a POSIX ACL; `users`, `groups`: {number: permissions}."""
    entries = [(0x01, user, 0xffffffff)]
    entries += [(0x02, permissions, number) for number, permissions in sorted(dict(users).items())]
    entries += [(0x04, group, 0xffffffff)]
    entries += [(0x08, permissions, number) for number, permissions in sorted(dict(groups).items())]
    if users or groups:
        entries += [(0x10, 7 if mask is None else mask, 0xffffffff)]
    entries += [(0x20, other, 0xffffffff)]
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


def attempt(function, *arguments):
    """The result of the call, or None if it is not permitted (or the path does not exist)."""
    try:
        return function(*arguments)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENODATA):
            return None
        raise


def read_file(path):
    with open(path, "rb") as stream:
        return stream.read()


def look(path, kind):
    """{aspect: value} of all that the caller may know about one path."""
    found = {"stat": attempt(lambda: stat.S_IFMT(os.lstat(path).st_mode))}
    if kind == stat.S_IFLNK:
        found["content"] = attempt(os.readlink, path)
    elif kind == stat.S_IFDIR:
        found["content"] = attempt(lambda: tuple(sorted(set(os.listdir(path)) - {".wayback"})))
        found["search"] = attempt(lambda: os.lstat(os.path.join(path, ".")) and True)
    else:
        found["content"] = attempt(read_file, path)
    if kind != stat.S_IFLNK:
        found["xattr"] = attempt(os.getxattr, path, "user.token")
    return {what: value for what, value in found.items() if value is not None}


class Tree:
    """A random tree that root changes through `path`; names, contents and attributes hold words that occur nowhere
    else, so that any output with such a word has disclosed it."""

    def __init__(self, path, rng):
        self.path, self.rng = path, rng
        self.words = 0
        os.chmod(path, 0o755)
        for _ in range(4):
            self.make_directory()
        for _ in range(8):
            self.make_file()

    def word(self, kind):
        self.words += 1
        return f"{kind}{self.words:03d}{kind}"

    def all(self, kind=None):
        found = []
        for place, directories, files in os.walk(self.path):
            for name in directories + files:
                path = os.path.join(place, name)
                if kind is None or stat.S_IFMT(os.lstat(path).st_mode) == kind:
                    found.append(path)
        return sorted(found)

    def directory(self):
        return self.rng.choice([str(self.path)] + self.all(stat.S_IFDIR))

    def any_mode(self, path):
        """Owners may always read: they can give themselves whatever their modes deny them."""
        directory = stat.S_ISDIR(os.lstat(path).st_mode)
        uid, gid = self.rng.choice([0, 4001, 4002]), self.rng.choice([0, TEAM, CLUB, 4003])
        os.chown(path, uid, gid)
        if self.rng.random() < 0.3:
            low = (0, 1, 4, 5) if directory else (0, 4)
            pick = lambda: self.rng.choice(low)  # pylint: disable=C3001
            os.setxattr(path, ACL, acl(7 if directory else 6, pick(), pick(), users={4003: pick(), 4001: pick()},
                                       groups={CLUB: pick()}, mask=self.rng.choice(low)))
        else:
            attempt(os.removexattr, path, ACL)
            os.chmod(path, self.rng.choice([0o700, 0o750, 0o711, 0o755, 0o755, 0o705, 0o740] if directory
                                           else [0o600, 0o640, 0o644, 0o644, 0o604]))

    def make_directory(self):
        path = os.path.join(self.directory(), self.word("dir"))
        os.mkdir(path, 0o700)
        os.setxattr(path, "user.token", self.word("xat").encode())
        self.any_mode(path)

    def make_file(self):
        path = os.path.join(self.directory(), self.word("nam"))
        if self.rng.random() < 0.25:
            os.symlink(self.word("lnk"), path)
            return
        fd = os.open(path, os.O_CREAT | os.O_WRONLY, 0o600)
        os.write(fd, self.word("txt").encode())
        os.close(fd)
        os.setxattr(path, "user.token", self.word("xat").encode())
        self.any_mode(path)

    def change(self):
        """Make one change; False if there was nothing to make it with."""
        what = self.rng.choice(["mode", "mode", "mode", "dirmode", "dirmode", "write", "make", "move", "move", "remove"])
        paths = self.all(stat.S_IFDIR if what == "dirmode" else stat.S_IFREG if what == "write" else None)
        if what == "make":
            self.make_file()
            return
        path = self.rng.choice(paths)
        if what in ("mode", "dirmode") and not os.path.islink(path):
            self.any_mode(path)
        elif what == "write":
            fd = os.open(path, os.O_WRONLY | os.O_TRUNC)
            os.write(fd, self.word("txt").encode())
            os.close(fd)
        elif what == "move":
            target = self.directory()
            if not (target + "/").startswith(path + "/"):
                os.rename(path, os.path.join(target, os.path.basename(path)))
        elif what == "remove" and (not os.path.isdir(path) or os.path.islink(path)):
            os.unlink(path)

    def kinds(self, root):
        """{path below: (inode, kind)} as root finds it at `root`."""
        found = {"": (os.lstat(root).st_ino, stat.S_IFDIR)}
        for place, directories, files in os.walk(root):
            if ".wayback" in directories:
                directories.remove(".wayback")
            for name in directories + files:
                path = os.path.join(place, name)
                status = os.lstat(path)
                found[os.path.relpath(path, root)] = (status.st_ino, stat.S_IFMT(status.st_mode))
        return found
