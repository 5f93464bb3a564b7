# SPDX-License-Identifier: LGPL-2.1-or-later
"""A tree with entries of every kind, and later changes of it: for tests that look at it in the past."""
import difflib
import itertools
import os
import random
import shutil
import socket
import stat
import subprocess

from mounts import as_user, epoch, moment
from treestate import state_of

ODD_NAMES = ["a b", "new\nline", "quote'\"", "-dash", "back\\slash", "$(x)", "name@host", "tab\t",
             "\udcff\udcfe", "ünïcode", "*", "x" * 255]
MANY = 120  # files in one directory: more than readdir(2) gets at a time
DEPTH = 12  # in one chain of directories: permission to enter is checked for each of them


def make_links(root):
    (root / "one").write_bytes(b"shared\n" * 400)
    os.link(root / "one", root / "two")
    (root / "sub").mkdir()
    os.link(root / "one", root / "sub/three")
    os.symlink("one", root / "to one")
    os.symlink("/nonexistent/place", root / "dangling")
    os.symlink("sub", root / "to sub")


def make_special(root, privileged):
    os.mkfifo(root / "fifo")
    endpoint = socket.socket(socket.AF_UNIX)
    previous = os.open(".", os.O_RDONLY)
    os.chdir(root)  # a socket's name is short
    endpoint.bind("socket")
    os.fchdir(previous)
    os.close(previous)
    endpoint.close()
    if privileged:
        os.mknod(root / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
        os.mknod(root / "block", stat.S_IFBLK | 0o600, os.makedev(7, 200))


def make_attributes(root, privileged):
    for name, mode in (("plain", 0o644), ("secret", 0o600), ("run", 0o755), ("suid", 0o4755)):
        (root / name).write_text(f"#!/bin/sh\necho {name}\n")
        (root / name).chmod(mode)
    os.setxattr(root / "plain", "user.color", b"green\0blue")
    os.setxattr(root, "user.of the directory", b"x" * 300)
    subprocess.run(["setfacl", "-m", "u:1234:r,g:77:rw", root / "plain"], check=True)
    subprocess.run(["setfacl", "-d", "-m", "u:1234:rwx", root / "sub"], check=True)
    if privileged:
        os.chown(root / "secret", 12, 34)
        os.lchown(root / "to one", 56, 78)
        os.setxattr(root / "run", "trusted.t", b"1")


def make_sparse(path):
    with open(path, "wb") as stream:
        stream.write(b"head" * 1024)
        stream.seek(1 << 20)
        stream.write(b"middle" * 1000)
        stream.truncate(5 << 20)


def make_files(root, depth):
    (root / "many").mkdir()
    for number in range(MANY):
        (root / "many" / f"file{number:03}").write_text(f"number {number}\n" * (number % 40))
    (root / "empty").write_bytes(b"")
    (root / "empty dir").mkdir()
    (root / "big").write_bytes(random.Random(7).randbytes(3_000_001))
    make_sparse(root / "sparse")
    (root / "odd").mkdir()
    for number, name in enumerate(ODD_NAMES):
        (root / "odd" / name).write_text(str(number))
    deep = root / "deep"
    for level in range(depth):
        deep = deep / f"level{level}"
    deep.mkdir(parents=True)
    (deep / "bottom").write_bytes(b"here")


def make_tree(root, privileged, depth=DEPTH):
    root.mkdir()
    make_links(root)
    make_special(root, privileged)
    make_attributes(root, privileged)
    make_files(root, depth)
    # rsync takes times of the same second for equal for files that it has just made.
    for number, (place, directories, files) in enumerate(os.walk(root, topdown=False)):
        for name in directories + files:
            os.utime(os.path.join(place, name), ns=(10**18, 10**18 + number * 10**9 + len(name)),
                     follow_symlinks=False)
    # Blocks are counted once the file system has given them out.
    subprocess.run(["sync", "-f", root], check=True)


def ruin_tree(root):
    """Everything is overwritten, replaced, moved or removed, one way or another."""
    with open(root / "one", "r+b") as stream:
        stream.write(b"SHARED")
    with open(root / "sparse", "r+b") as stream:
        stream.seek(100_000)
        stream.write(b"no hole" * 3000)
        stream.truncate(2 << 20)
    os.truncate(root / "big", 1000)
    (root / "plain").write_bytes(b"other")
    os.removexattr(root / "plain", "user.color")
    subprocess.run(["setfacl", "-b", root / "plain"], check=True)
    os.setxattr(root, "user.of the directory", b"y")
    (root / "run").chmod(0o700)
    for name in ("fifo", "socket", "dangling", "two", "empty"):
        (root / name).unlink()
    os.symlink("elsewhere", root / "dangling")
    (root / "fifo").mkdir()
    os.rename(root / "sub", root / "many" / "moved sub")
    os.rename(root / "deep/level0", root / "shallow")
    for number in range(0, MANY, 3):
        (root / "many" / f"file{number:03}").unlink()
    for number in range(1, MANY, 3):
        (root / "many" / f"file{number:03}").write_bytes(b"replaced")
    shutil.rmtree(root / "odd")
    os.rename(root / "secret", root / "empty dir" / "hidden")
    (root / "new").write_bytes(b"new")


def act_of(mount):
    """A function that calls another as the mounting user."""
    return (lambda function: function()) if mount.user is None \
        else lambda function: as_user(function, *mount.user)


class Then:
    """A tree as it was: `past`, in the mount; `present`, the tree after its changes."""

    def __init__(self, mount, populate=None, ruin=ruin_tree):
        self.mount = mount
        self.present = mount.path / "tree"
        self.privileged = mount.user is None
        self.act = act_of(mount)
        if populate:
            self.act(lambda: populate(self.present))
        else:
            self.act(lambda: make_tree(self.present, self.privileged))
        self.state = self.act(lambda: state_of(self.present))
        self.output = {}
        self.when = None
        self.ruin = ruin
        self.past = None

    def see(self, *commands):
        """The output of shell commands in the tree while it is the present."""
        for command in commands:
            self.output[command] = self.shell(command, self.present)

    def leave(self):
        """The present becomes the past."""
        self.when = moment()
        self.past = self.mount.path / f"tree@{epoch(self.when)}"
        self.act(lambda: self.ruin(self.present))
        return self

    def shell(self, command, directory, **options):
        """Its output there; the shell changes its directory itself, as nobody else may enter some mounts."""
        return self.mount.tool("sh", "-c", f'cd "$0" && {{ {command}\n}}', directory, merge=False,
                               **options).stdout

    def check(self):
        """The same commands in the past print the same."""
        different = []
        for command, expected in self.output.items():
            found = self.shell(command, self.past)
            lines = difflib.unified_diff(expected.splitlines(), found.splitlines(), "then", "past",
                                         n=0, lineterm="")
            if found != expected:
                different += [command, *itertools.islice(lines, 12)]
        assert not different, "\n".join(different)
