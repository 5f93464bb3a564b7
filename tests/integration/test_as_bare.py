# SPDX-License-Identifier: LGPL-2.1-or-later
"""Ordinary users try everything with files of others, and with programs that have power: on a bare file system and on a
mount. The mount refuses all that the bare one refuses; if both do it, owners, modes, attributes and content are equal
afterwards."""
import ctypes
import errno
import fcntl
import mmap
import os
import random
import shutil
import socket
import stat
import struct

import pytest

from accounts import ACCOUNTS, ACL, CLUB, TEAM, acl, run_as

LIBC = ctypes.CDLL(None, use_errno=True)
HERE = -100  # AT_FDCWD
NOREPLACE, EXCHANGE, WHITEOUT = 1, 2, 4
FOLLOW, EMPTY = 0x400, 0x1000
CAPABILITY = "security.capability"
POWER = struct.pack("<5I", 0x02000001, 1 << 7, 0, 0, 0)  # cap_setuid, effective
OWN_POWER = struct.pack("<6I", 0x03000001, 1 << 7, 0, 0, 0, 4003)  # of a user namespace of that user
KEEP_SIZE, PUNCH, COLLAPSE, ZERO, INSERT, UNSHARE = 1, 2, 8, 16, 32, 64
FICLONE, FICLONERANGE, FIDEDUPERANGE = 0x40049409, 0x4020940D, 0xC0189436
GETFLAGS, SETFLAGS, GETVERSION, SETVERSION = 0x80086601, 0x40086602, 0x80087601, 0x40087602
FSGETXATTR, FSSETXATTR = 0x801C581F, 0x401C5820
FIFREEZE, FITHAW, FITRIM = 0xC0045877, 0xC0045878, 0xC0185879
LABEL, SHUTDOWN, EXT_SHUTDOWN, MOVE, SWAP_BOOT = 0x41009432, 0x8004587D, 0x8004587D, 0xC028660F, 0x6611
IMMUTABLE, APPEND, NODUMP = 0x10, 0x20, 0x40
PAGE = 4096
SAMPLE = 120  # of all cases, for each kind and account
CONTENT = b"c" * (2 * PAGE)


def call(function, *arguments):
    result = function(*arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def rename2(old, new, flags):
    call(LIBC.renameat2, HERE, os.fsencode(old), HERE, os.fsencode(new), flags)


def with_file(path, flags, function, mode=0o644):
    fd = os.open(path, flags, mode)
    try:
        return function(fd)
    finally:
        os.close(fd)


def linkat(fd, path, new, flags):
    call(LIBC.linkat, fd, os.fsencode(path), HERE, os.fsencode(new), flags)


# ---- the tree ------------------------------------------------------------------------------------

def file(path, owner, group, mode, xattrs=()):
    with_file(path, os.O_CREAT | os.O_WRONLY, lambda fd: os.write(fd, CONTENT))
    os.chown(path, owner, group)
    for name, value in xattrs:
        os.setxattr(path, name, value)
    os.chmod(path, mode)


def directory(path, owner, group, mode):
    os.mkdir(path)
    os.chown(path, owner, group)
    os.chmod(path, mode)


def files(path, owner, group):
    """One of each kind that a user may or may not read, write, execute."""
    file(f"{path}/open", owner, group, 0o644)
    file(f"{path}/secret", owner, group, 0o600)
    file(f"{path}/writable", owner, group, 0o666)
    file(f"{path}/suid", owner, group, 0o4777)
    file(f"{path}/sgid", owner, TEAM, 0o2777)
    file(f"{path}/lock", owner, TEAM, 0o2767)  # set-group-ID without the group's x
    file(f"{path}/able", owner, group, 0o777, [(CAPABILITY, POWER)])
    file(f"{path}/write-only", owner, group, 0o622)
    file(f"{path}/listed", owner, group, 0o600, [(ACL, acl(6, 0, 0, users={4003: 4}, mask=4))])
    os.symlink("open", f"{path}/link")
    os.mkfifo(f"{path}/fifo", 0o644)


def build(root):
    anna, ben = ACCOUNTS["anna"][0], ACCOUNTS["ben"][0]
    directory(root, 0, 0, 0o755)
    directory(f"{root}/sticky", 0, 0, 0o1777)
    files(f"{root}/sticky", anna, anna)
    directory(f"{root}/shared", 0, 0, 0o777)
    files(f"{root}/shared", 0, 0)
    directory(f"{root}/shared/closed", 0, 0, 0o700)
    directory(f"{root}/team", 0, TEAM, 0o2770)
    files(f"{root}/team", ben, CLUB)
    directory(f"{root}/anna", anna, anna, 0o755)
    files(f"{root}/anna", anna, anna)
    directory(f"{root}/anna/private", anna, anna, 0o700)
    file(f"{root}/anna/private/open", anna, anna, 0o666)
    for name, (uid, gid, _) in ACCOUNTS.items():
        directory(f"{root}/home-{name}", uid, gid, 0o777)
        file(f"{root}/home-{name}/own", uid, gid, 0o644)
        file(f"{root}/home-{name}/program", uid, gid, 0o755)


def state(root):
    found = {}
    for place, directories, names in os.walk(root):
        for name in directories + names + ["."]:
            path = os.path.join(place, name)
            status = os.lstat(path)
            entry = [oct(status.st_mode), status.st_uid, status.st_gid, status.st_nlink, status.st_rdev]
            if stat.S_ISREG(status.st_mode):
                entry.append(status.st_size)
                with open(path, "rb") as stream:
                    entry.append(hash(stream.read()))
            if stat.S_ISLNK(status.st_mode):
                entry.append(os.readlink(path))
            else:
                entry += [(name, os.getxattr(path, name)) for name in sorted(os.listxattr(path))]
            found[os.path.relpath(path, root)] = entry
    return found


# ---- what is tried: {name: function(path of the tree, path of a file, own home)} ---------------------

def mapped(path, write=True):
    def work(fd):
        with mmap.mmap(fd, PAGE, prot=mmap.PROT_READ | (mmap.PROT_WRITE if write else 0)) as view:
            if write:
                view[0:3] = b"new"
            return bytes(view[:3])
    return with_file(path, os.O_RDWR if write else os.O_RDONLY, work)


def direct(path, writes):
    buffer = mmap.mmap(-1, PAGE)
    flags = os.O_DIRECT | (os.O_RDWR if writes else os.O_RDONLY)
    try:
        return with_file(path, flags, lambda fd: os.writev(fd, [buffer]) if writes else os.readv(fd, [buffer]))
    except OSError as error:
        return 0 if error.errno == errno.EINVAL else errno.errorcode[error.errno]  # not for all file systems


def spliced(path, own):
    def work(fd):
        reading, writing = os.pipe()
        os.write(writing, b"spliced")
        return os.splice(reading, fd, 7, offset_dst=0)
    del own
    return with_file(path, os.O_WRONLY, work)


def copied(source, target, count=PAGE):
    return with_file(source, os.O_RDONLY, lambda a: with_file(
        target, os.O_WRONLY, lambda b: os.copy_file_range(a, b, count)))


def cloned(source, target):
    return with_file(source, os.O_RDONLY, lambda a: with_file(
        target, os.O_WRONLY, lambda b: fcntl.ioctl(b, FICLONERANGE, struct.pack("<qQQQ", a, 0, PAGE, 0)) and 0))


def deduped(source, target):
    head = struct.pack("<QQHHI", 0, PAGE, 1, 0, 0)

    def work(a, b):
        answer = fcntl.ioctl(a, FIDEDUPERANGE, head + struct.pack("<qQQiI", b, 0, 0, 0, 0))
        return struct.unpack_from("<i", answer, 24 + 24)[0]
    return with_file(source, os.O_RDONLY, lambda a: with_file(target, os.O_RDONLY, lambda b: work(a, b)))


def control(path, command, argument, flags=os.O_RDONLY):
    answer = with_file(path, flags, lambda fd: fcntl.ioctl(fd, command, argument))
    del answer
    return 0


def add_flag(path, flag):
    def work(fd):
        flags = struct.unpack("<Q", fcntl.ioctl(fd, GETFLAGS, bytes(8)))[0]
        fcntl.ioctl(fd, SETFLAGS, struct.pack("<Q", flags | flag))
    return with_file(path, os.O_RDONLY, work)


def linked_as(fd, path, new, flags):
    linkat(fd, path, new, flags)
    return 0


def nameless(own, flags, linker):
    return with_file(own, os.O_TMPFILE | os.O_RDWR | flags, linker)


def bound(path):
    with socket.socket(socket.AF_UNIX) as stream:
        with_file(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY,
                  lambda fd: stream.bind(f"/proc/self/fd/{fd}/socket"))


def fsx(path, **changes):
    def work(fd):
        fields = list(struct.unpack("<5I8x", fcntl.ioctl(fd, FSGETXATTR, bytes(28))))
        for index, value in changes.items():
            fields[int(index[1:])] = value
        fcntl.ioctl(fd, FSSETXATTR, struct.pack("<5I8x", *fields))
    return with_file(path, os.O_RDONLY, work)


ON_FILES = {
    "read": lambda p, own: with_file(p, os.O_RDONLY, lambda fd: os.read(fd, 3)),
    "read directly": lambda p, own: direct(p, False),
    "write": lambda p, own: with_file(p, os.O_WRONLY, lambda fd: os.write(fd, b"new")),
    "write directly": lambda p, own: direct(p, True),
    "append": lambda p, own: with_file(p, os.O_WRONLY | os.O_APPEND, lambda fd: os.write(fd, b"new")),
    "truncate by opening": lambda p, own: with_file(p, os.O_RDONLY | os.O_TRUNC, lambda fd: 0),
    "truncate": lambda p, own: os.truncate(p, 7),
    "truncate to the same size": lambda p, own: os.truncate(p, len(CONTENT)),
    "map": lambda p, own: mapped(p, False),
    "map and write": lambda p, own: mapped(p),
    "splice": spliced,
    "send to it": lambda p, own: with_file(f"{own}/own", os.O_RDONLY, lambda a: with_file(
        p, os.O_WRONLY, lambda b: os.sendfile(b, a, 0, 9))),
    "send from it": lambda p, own: with_file(p, os.O_RDONLY, lambda a: with_file(
        f"{own}/own", os.O_WRONLY, lambda b: os.sendfile(b, a, 0, 9))),
    "copy to it": lambda p, own: copied(f"{own}/own", p),
    "copy from it": lambda p, own: copied(p, f"{own}/own"),
    "clone to it": lambda p, own: cloned(f"{own}/own", p),
    "clone from it": lambda p, own: cloned(p, f"{own}/own"),
    "share extents": lambda p, own: deduped(f"{own}/own", p),
    "open a path": lambda p, own: with_file(p, os.O_PATH, lambda fd: with_file(
        f"/proc/self/fd/{fd}", os.O_RDWR, lambda again: os.read(again, 1))),
    "write through a path": lambda p, own: with_file(p, os.O_PATH, lambda fd: os.write(fd, b"x")),
    "chmod": lambda p, own: os.chmod(p, 0o777),
    "chmod a path": lambda p, own: with_file(p, os.O_PATH, lambda fd: os.chmod(f"/proc/self/fd/{fd}", 0o4777)),
    "chown": lambda p, own: os.chown(p, os.getuid(), -1),
    "chgrp": lambda p, own: os.chown(p, -1, TEAM),
    "chgrp to nobody": lambda p, own: os.chown(p, -1, -1),
    "times": lambda p, own: os.utime(p, (1, 1)),
    "times now": lambda p, own: os.utime(p),
    "link": lambda p, own: os.link(p, f"{own}/linked"),
    "link through a descriptor": lambda p, own: with_file(p, os.O_PATH, lambda fd: linked_as(
        fd, "", f"{own}/linked", EMPTY)),
    "link through /proc": lambda p, own: with_file(p, os.O_PATH, lambda fd: linked_as(
        HERE, f"/proc/self/fd/{fd}", f"{own}/linked", FOLLOW)),
    "link in place": lambda p, own: os.link(p, p + "-2"),
    "unlink": lambda p, own: os.unlink(p),
    "rename": lambda p, own: os.rename(p, p + "-2"),
    "rename away": lambda p, own: os.rename(p, f"{own}/moved"),
    "rename over it": lambda p, own: os.rename(f"{own}/own", p),
    "rename over own": lambda p, own: os.rename(p, f"{own}/own"),
    "exchange": lambda p, own: rename2(f"{own}/own", p, EXCHANGE),
    "exchange in place": lambda p, own: rename2(p, os.path.dirname(p) + "/open", EXCHANGE),
    "leave a whiteout": lambda p, own: rename2(p, f"{own}/moved", WHITEOUT),
    "not replace": lambda p, own: rename2(f"{own}/own", p, NOREPLACE),
    "set user.": lambda p, own: os.setxattr(p, "user.x", b"1"),
    "read user.": lambda p, own: os.getxattr(p, "user.y"),
    "set capability": lambda p, own: os.setxattr(p, CAPABILITY, POWER),
    "set own capability": lambda p, own: os.setxattr(p, CAPABILITY, OWN_POWER),
    "remove capability": lambda p, own: os.removexattr(p, CAPABILITY),
    "set trusted.": lambda p, own: os.setxattr(p, "trusted.x", b"1"),
    "read trusted.": lambda p, own: os.getxattr(p, "trusted.x"),
    "set security.": lambda p, own: os.setxattr(p, "security.x", b"1"),
    "set system.": lambda p, own: os.setxattr(p, "system.x", b"1"),
    "set flags as an attribute": lambda p, own: os.setxattr(p, "system.wayback.flags", bytes(64)),
    "remove flags as an attribute": lambda p, own: os.removexattr(p, "system.wayback.flags"),
    "read flags as an attribute": lambda p, own: os.getxattr(p, "system.wayback.flags"),
    "set no prefix": lambda p, own: os.setxattr(p, "x", b"1"),
    "set ACL": lambda p, own: os.setxattr(p, ACL, acl(7, 7, 7, users={4003: 7}, mask=7)),
    "remove ACL": lambda p, own: os.removexattr(p, ACL),
    "set default ACL": lambda p, own: os.setxattr(p, "system.posix_acl_default", acl(7, 7, 7)),
    "set broken ACL": lambda p, own: os.setxattr(p, ACL, b"\2\0\0\0\1\0"),
    "set flags": lambda p, own: add_flag(p, NODUMP),
    "set append-only": lambda p, own: add_flag(p, APPEND),
    "set immutable": lambda p, own: add_flag(p, IMMUTABLE),
    "set project": lambda p, own: fsx(p, _3=77),
    "set extent size": lambda p, own: fsx(p, _0=0x800, _1=1 << 16),
    "set version": lambda p, own: control(p, SETVERSION, struct.pack("<Q", 7)),
    "move extents": lambda p, own: control(p, MOVE, bytes(40), os.O_RDWR),
    "swap with the boot loader": lambda p, own: control(p, SWAP_BOOT, 0, os.O_RDWR),
    "trim": lambda p, own: control(p, FITRIM, struct.pack("<QQQ", 0, 1 << 60, 0)),
    "freeze": lambda p, own: control(p, FIFREEZE, 0),
    "thaw": lambda p, own: control(p, FITHAW, 0),
    "label": lambda p, own: control(p, LABEL, bytes(256)),
    "shut down": lambda p, own: control(p, SHUTDOWN, struct.pack("<I", 0)),
    "allocate": lambda p, own: fallocate(p, 0),
    "allocate beyond": lambda p, own: fallocate(p, KEEP_SIZE, offset=4 * PAGE),
    "punch": lambda p, own: fallocate(p, PUNCH | KEEP_SIZE),
    "zero": lambda p, own: fallocate(p, ZERO),
    "collapse": lambda p, own: fallocate(p, COLLAPSE),
    "insert": lambda p, own: fallocate(p, INSERT),
    "allocate through a reader": lambda p, own: fallocate(p, 0, flags=os.O_RDONLY),
    "execute": lambda p, own: os.access(p, os.X_OK, effective_ids=True),
    "lock for writing": lambda p, own: with_file(p, os.O_RDONLY, lambda fd: fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)),
    "no atime": lambda p, own: with_file(p, os.O_RDONLY | os.O_NOATIME, lambda fd: 0),
    "lease": lambda p, own: with_file(p, os.O_RDONLY, lambda fd: fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK) and 0),
    "size of a handle": lambda p, own: 0 if handle_of(p) else 1,
}


def handle_of(path):
    buffer = ctypes.create_string_buffer(8 + 128)
    struct.pack_into("<I", buffer, 0, 128)
    mount = ctypes.c_int()
    call(LIBC.name_to_handle_at, HERE, os.fsencode(path), buffer, ctypes.byref(mount), 0)
    if LIBC.open_by_handle_at(HERE, buffer, os.O_RDONLY) >= 0:
        raise AssertionError("a handle opened a file")
    return True


def fallocate(path, mode, offset=0, flags=os.O_WRONLY):
    return with_file(path, flags, lambda fd: call(LIBC.fallocate, fd, mode, ctypes.c_long(offset),
                                                  ctypes.c_long(PAGE)))


def in_directory(flags, mode):
    return lambda d, own: with_file(f"{d}/new", os.O_CREAT | flags, lambda fd: oct(os.fstat(fd).st_mode), mode)


IN_DIRECTORIES = {
    "list": lambda d, own: sorted(os.listdir(d)),
    "create": in_directory(os.O_WRONLY, 0o666),
    "create set-user-ID": in_directory(os.O_WRONLY | os.O_EXCL, 0o4777),
    "create set-group-ID": in_directory(os.O_WRONLY | os.O_EXCL, 0o2777),
    "make a directory": lambda d, own: os.mkdir(f"{d}/new", 0o2777) or oct(os.stat(f"{d}/new").st_mode),
    "make a device": lambda d, own: os.mknod(f"{d}/new", stat.S_IFCHR | 0o666, os.makedev(1, 3)),
    "make a whiteout": lambda d, own: os.mknod(f"{d}/new", stat.S_IFCHR | 0o666, 0),
    "make a FIFO": lambda d, own: os.mknod(f"{d}/new", stat.S_IFIFO | 0o4777),
    "make a set-id file": lambda d, own: os.mknod(f"{d}/new", stat.S_IFREG | 0o6777),
    "make a socket": lambda d, own: bound(f"{d}/new"),
    "make a link": lambda d, own: os.symlink("/etc/passwd", f"{d}/new"),
    "without a name": lambda d, own: nameless(d, 0, lambda fd: oct(os.fstat(fd).st_mode)),
    "a name for it": lambda d, own: nameless(d, 0, lambda fd: linked_as(fd, "", f"{d}/new", EMPTY)),
    "a name for it through /proc": lambda d, own: nameless(d, 0, lambda fd: linked_as(
        HERE, f"/proc/self/fd/{fd}", f"{d}/new", FOLLOW)),
    "a name for it elsewhere": lambda d, own: nameless(own, 0, lambda fd: linked_as(
        HERE, f"/proc/self/fd/{fd}", f"{d}/new", FOLLOW)),
    "no name for it": lambda d, own: nameless(d, os.O_EXCL, lambda fd: linked_as(
        HERE, f"/proc/self/fd/{fd}", f"{d}/new", FOLLOW)),
    "a set-id file without a name": lambda d, own: nameless(d, 0, lambda fd: (
        os.fchmod(fd, 0o6777), linked_as(HERE, f"/proc/self/fd/{fd}", f"{d}/new", FOLLOW)) and 0),
    "move own there": lambda d, own: os.rename(f"{own}/own", f"{d}/new"),
    "move the directory": lambda d, own: os.rename(d, f"{own}/moved"),
    "move a closed one": lambda d, own: os.rename(f"{d}/closed", f"{own}/moved"),
    "move into a closed one": lambda d, own: os.rename(f"{own}/own", f"{d}/closed/new"),
    "exchange a closed one": lambda d, own: rename2(f"{own}/own", f"{d}/closed", EXCHANGE),
    "remove": lambda d, own: os.rmdir(f"{d}/closed"),
    "chmod it": lambda d, own: os.chmod(d, 0o777),
    "set default ACL": lambda d, own: os.setxattr(d, "system.posix_acl_default", acl(7, 7, 7)),
    "set user. of it": lambda d, own: os.setxattr(d, "user.x", b"1"),
    "set flags of it": lambda d, own: add_flag(d, NODUMP),
    "set project inheritance": lambda d, own: fsx(d, _0=0x200, _3=5),
    "trim": lambda d, own: control(d, FITRIM, struct.pack("<QQQ", 0, 1 << 60, 0)),
    "freeze": lambda d, own: control(d, FIFREEZE, 0),
    "shut down": lambda d, own: control(d, SHUTDOWN, struct.pack("<I", 0)),
}

FILES = ("open", "secret", "writable", "suid", "sgid", "lock", "able", "write-only", "listed", "link", "fifo")
PLACES = ("sticky", "shared", "team", "anna")


def attempt(function, *arguments):
    try:
        return function(*arguments)
    except OSError as error:
        return f"! {errno.errorcode[error.errno]}"
    except AttributeError:
        return "! missing"


def all_cases():
    cases = [(what, f"{{tree}}/{place}/{name}", function) for what, function in ON_FILES.items()
             for place in PLACES for name in FILES if name != "fifo" or "rename" in what or "link" in what]
    cases += [(what, "{tree}/anna/private/open", function) for what, function in ON_FILES.items()]
    cases += [(what, f"{{tree}}/{place}", function) for what, function in IN_DIRECTORIES.items() for place in PLACES]
    return cases


def try_all(root, account, cases):
    """{(what, where): (result, state afterwards)}."""
    found = {}

    def attempts(tree, what, path, function):
        own = f"{tree}/home-{account}"
        return run_as(account, lambda: attempt(function, path.format(tree=tree), own))

    number, before = 0, None
    for what, path, function in cases:
        tree = f"{root}/{number}"
        if before is None:
            build(tree)
            before = state(tree)
        result = attempts(tree, what, path, function)
        after = state(tree)
        found[what, path] = result, after
        if after != before:
            shutil.rmtree(tree)
            before = None
            number += 1
    return found


# The kernel's FUSE has neither clones, shared extents and leases nor these modes of fallocate.
NOT_THERE = {"clone to it", "clone from it", "share extents", "lease", "collapse", "insert"}


# Bytes that a mapping has changed are written back by the daemon; and a mode that the file system below does not have is
# known only when it is asked for. Both clear set-id bits and capabilities first, where a disk leaves them.
DISARMS = {"map and write", "zero", "punch", "allocate", "allocate beyond"}


def is_disarmed(state_after, other):
    """Whether it is as the other, but for set-id bits and capabilities that are gone."""
    for path, entry in state_after.items():
        lost = int(entry[0], 8) ^ int(other[path][0], 8)
        if lost & ~0o6000 or lost & int(entry[0], 8) or entry[1:7] != other[path][1:7] or \
                set(other[path][7:]) - set(entry[7:]) - {(CAPABILITY, POWER)}:
            return False
    return state_after.keys() == other.keys()


def compare(key, bare, mounted):
    """`bare`, `mounted`: (result, state afterwards)."""
    refused = [str(result).startswith("!") for result, _ in (bare, mounted)]
    if key[0] in NOT_THERE and refused[1]:
        return
    if key[0] == "chgrp to nobody":  # of a set-id file of another: the kernel sends nothing, and nothing changes
        refused[1] = refused[0]
    assert refused[0] == refused[1], (key, bare[0], mounted[0])
    assert refused[0] or mounted[0] == bare[0], (key, bare[0], mounted[0])
    assert mounted[1] == bare[1] or (key[0] in DISARMS and is_disarmed(mounted[1], bare[1])), key


@pytest.mark.parametrize("account", ["eve", "ben"])
def test_a_user_gets_no_more_than_on_the_bare_file_system(any_mount, maker, kind, account):
    rng = random.Random(f"{kind} {account}")
    cases = rng.sample(all_cases(), SAMPLE)
    found = [try_all(str(root), account, cases) for root in (maker.tree(kind), any_mount.path)]
    for key, result in found[0].items():
        compare(key, result, found[1][key])
    refused = [str(result).startswith("!") for result, _ in found[1].values()]
    assert 0 < sum(refused) < SAMPLE
