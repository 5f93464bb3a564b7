# SPDX-License-Identifier: LGPL-2.1-or-later
"""A user whom nobody gave anything asks for everything: each request to the daemon with each kind of path, the past by
each way, and names of attributes that only the daemon could set."""
import contextlib
import errno
import fcntl
import os
import struct

import pytest

from accounts import read_file, run_as
from mounts import epoch, moment
from preload import preloaded
from treestate import state_of

HEAD = struct.Struct("=4IQqq4096s")
DATA_MAX = 8192
REQUEST = 3 << 30 | (HEAD.size + DATA_MAX) << 16 | ord("W") << 8 | 0x42
VERSION = 1
COMMANDS = range(1, 29)  # more than there are
FLAGS = "system.wayback.flags"


@pytest.fixture(name="private")
def fixture_private(maker):
    """Words that begin with "hush" are in private directories and files only; some were removed or replaced."""
    mount = maker.mount("allow_other")
    root = mount.path
    (root / "open").mkdir()
    (root / "open" / "f").write_text("open")
    (root / "priv").mkdir(0o700)
    (root / "priv" / "hushname").write_text("hushtext")
    (root / "priv" / "hushdir").mkdir()
    (root / "priv" / "hushdir" / "hushdeep").write_text("hushtext")
    (root / "closed").write_text("hushtext")
    (root / "closed").chmod(0o600)
    os.setxattr(root / "closed", "user.token", b"hushvalue")
    os.symlink("hushtarget", root / "priv" / "link")
    mount.tool("vsnap", "create", "hushsnap", root / "priv")
    mount.tool("vsnap", "create", "known", root)
    (root / "priv" / "hushname").write_text("hushother")
    (root / "priv" / "hushdir" / "hushdeep").unlink()
    (root / "priv" / "hushdir").rmdir()
    os.rename(root / "priv" / "hushname", root / "priv" / "hushmoved")
    (root / "closed").write_text("hushlater")
    return mount


def request(directory, command, path, data=b"", flags=0):
    """Its number of items and data; None if it is refused."""
    buffer = bytearray(HEAD.pack(VERSION, command, flags, 0, 0, 0, 0, path.encode()) + data.ljust(DATA_MAX, b"\0"))
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.ioctl(fd, REQUEST, buffer)
        return bytes(buffer[HEAD.size:])
    except OSError as error:
        assert error.errno not in (errno.ENOTTY, errno.EFAULT), (command, path)
        return None
    finally:
        os.close(fd)


def test_no_request_of_a_stranger_tells_or_changes_anything(private):
    root = private.path
    then = epoch(moment())
    before = state_of(root), private.tool("vsnap", "list", "--json", root).stdout
    paths = ["", "priv", "closed", "priv/hushname", "priv/hushdir/hushdeep", "priv/link", f"priv@{then}",
             f"@{then}/priv/hushdir", f"closed@{then}", "open/../priv/hushmoved", ".snapshot/known/priv/hushname",
             ".snapshot/hushsnap", "open/f", ".wayback/header"]
    sources = [b"", b"hushsnap", b"known", f"closed@{then}".encode(), f"priv/hushname@{then}".encode(), b"\xff" * DATA_MAX]
    answers = 0

    def ask():
        found = []
        for command in COMMANDS:
            for path in paths:
                for flags in (0, 1, 0xffffffff):
                    for source in sources:
                        found.append((command, path, request(root, command, path, source, flags)))
            found.append((command, "of a past directory", request(root / f"@{then}", command, "priv", sources[3])))
            found.append((command, "of .snapshot", request(root / ".snapshot", command, "known/priv", sources[1])))
        return found

    for command, path, answer in run_as("eve", ask):
        if answer is not None:
            answers += 1
            asked = [source for source in sources if source and answer.startswith(source)]  # comes back as it was sent
            assert asked or b"hush" not in answer, (command, path, answer[max(0, answer.find(b"hush") - 40):answer.find(b"hush") + 30])
    assert answers > 100
    after = state_of(root), private.tool("vsnap", "list", "--json", root).stdout
    assert after == before
    assert (root / f"priv@{then}" / "hushmoved").read_text() == "hushother"


def test_nothing_of_the_past_is_reached_by_what_another_user_has_looked_up(private):
    """Names, attributes and content that root looked up are in the kernel's cache, and are asked for again."""
    root = private.path
    private.tool("vsnap", "create", "last", root)
    for path in (root / "priv", root / "closed"):
        path.chmod(0o755)
    when = epoch(moment())
    for path in (root / "priv", root / "closed"):
        path.chmod(0o700)
    tries = [base / name for base in (root / f"@{when}", root / ".snapshot" / "last", root / "open" / f"..@{when}")
             for name in ("priv/hushmoved", "priv/link", "closed", "priv")]
    tries += [root / f"priv@{when}" / "hushmoved", root / f"closed@{when}", root / f"priv@{when}"]
    with contextlib.ExitStack() as held:
        fds = []
        for path in tries:
            with contextlib.suppress(OSError):
                fds.append(os.open(path, os.O_PATH | os.O_NOFOLLOW))
                held.callback(os.close, fds[-1])
                os.lstat(path)
                read_file(path)
        assert len(fds) > 8
        for path in tries:
            reach(root, path)
        # Descriptors that a process of root's passed on, opened again: as on any disk, the mode of the file counts.
        for fd in fds:
            if os.fstat(fd).st_mode & 0o004:
                continue
            assert run_as("eve", lambda: attempt_more(read_file, f"/proc/{os.getpid()}/fd/{fd}")) is None  # pylint: disable=W0640


def reach(root, path):
    for look in (read_file, os.readlink, os.listdir, lambda p: os.getxattr(p, "user.token"),
                 lambda p: os.open(p, os.O_RDONLY | os.O_DIRECT), lambda p: os.truncate(p, 0),
                 lambda p: os.link(p, root / "open" / "got"), os.unlink):
        assert run_as("eve", lambda: attempt_more(look, path)) is None, path  # pylint: disable=W0640
    if path.name in ("hushmoved", "link"):
        assert run_as("eve", lambda: attempt_more(os.lstat, path)) is None, path


def attempt_more(function, *arguments):
    try:
        return function(*arguments)
    except OSError as error:
        assert error.errno in (errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENODATA, errno.EINVAL, errno.EROFS,
                               errno.ENOTDIR, errno.EISDIR, errno.EOPNOTSUPP), error
        return None


IN_NAMESPACES = """
for way in "$1" "$1/.." "$1/open/.."; do ls -d "$way/.wayback" && echo STORE; done
umount "$1" && echo UNMOUNTED
umount -l "$1" && echo UNMOUNTED
mkdir -p "$1/open/here"
mount --bind "$1" "$1/open/here" && ls -a "$1/open/here"
umount "$1/open/here"
mount --bind "$(dirname "$1")" "$1/open/here" && echo BELOW
mount -t overlay -o "lowerdir=$1" none "$1/open/here" && echo OVERLAY
cat "$1/closed" && echo READ
rmdir "$1/open/here"
true
"""


def test_no_way_leads_below_a_mount_in_place(maker):
    """Nor through the daemon's process, nor for root in namespaces of the user's own."""
    source = maker.tree()
    mount = maker.mount("allow_other", source=source, path=source)
    (source / "open").mkdir()
    (source / "open").chmod(0o777)
    (source / "closed").write_text("hush")
    (source / "closed").chmod(0o600)
    process = f"/proc/{mount.process.pid}"

    def look():
        for way in ("fd", "root", "cwd", "task", "map_files", "ns"):
            for path in (f"{process}/{way}", f"{process}/task/{mount.process.pid}/{way}"):
                if way != "task":
                    assert attempt_more(os.listdir, path) is None, path
        for way in ("mem", "maps", "environ", "auxv", "stack"):
            assert attempt_more(read_file, f"{process}/{way}") is None, way
        for path in (source / ".wayback", source / "open" / ".." / ".wayback"):
            assert attempt_more(os.lstat, path) is None
            assert attempt_more(os.mkdir, path) is None
        assert {"closed", "open"} <= set(os.listdir(source)) and ".wayback" not in os.listdir(source)

    run_as("eve", look)
    result = mount.run_tool("unshare", "-U", "-r", "-m", "sh", "-c", IN_NAMESPACES, "sh", source, user=(4003, 4003))
    if "unshare failed" in result.stdout or "Operation not permitted" in result.stdout.split("\n", maxsplit=1)[0]:
        pytest.skip("no namespaces for ordinary users")
    assert result.returncode == 0, result.stdout
    for word in ("STORE", "UNMOUNTED", "BELOW", "OVERLAY", "READ", "hush"):
        assert word not in result.stdout.split(), result.stdout
    assert (source / "closed").read_text() == "hush" and ".wayback" not in os.listdir(source)


# A file system with an attribute of system. that it lets every process of root change, as those of others are.
WITH_SYSTEM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static int is_it(const char *name)
{
    return strcmp(name, "system.nfs4_acl") == 0;
}

static int note(void)
{
    int fd = open(getenv("SYSTEM_SET"), O_WRONLY | O_APPEND);

    (void)!write(fd, "x", 1);
    close(fd);
    return 0;
}

#define SETTER(NAME, TYPE) int NAME(TYPE where, const char *name, const void *value, size_t size, int flags) {     static int (*real)(TYPE, const char *, const void *, size_t, int);     if (!real)         *(void **)&real = dlsym(RTLD_NEXT, #NAME);     return is_it(name) ? note() : real(where, name, value, size, flags); }
#define REMOVER(NAME, TYPE) int NAME(TYPE where, const char *name) {     static int (*real)(TYPE, const char *);     if (!real)         *(void **)&real = dlsym(RTLD_NEXT, #NAME);     return is_it(name) ? note() : real(where, name); }
SETTER(setxattr, const char *)
SETTER(lsetxattr, const char *)
SETTER(fsetxattr, int)
REMOVER(removexattr, const char *)
REMOVER(lremovexattr, const char *)
REMOVER(fremovexattr, int)
"""


def test_attributes_of_the_file_system_below_are_changed_by_owners_only(maker, tmp_path):
    """The kernel asks nobody for rights to system.*, it leaves that to the file system, which sees the daemon only."""
    noted = maker.scratch / "noted"
    noted.touch()
    with preloaded(tmp_path, WITH_SYSTEM, SYSTEM_SET=noted):
        mount = maker.mount("allow_other")
    for name, owner in (("root", 0), ("eves", 4003)):
        (mount.path / name).write_text("x")
        os.chown(mount.path / name, owner, owner)
        (mount.path / name).chmod(0o666)

    def try_all(path):
        changed = []
        for change in (lambda: os.setxattr(path, "system.nfs4_acl", b"all may"),
                       lambda: os.removexattr(path, "system.nfs4_acl")):
            size = noted.stat().st_size
            with contextlib.suppress(OSError):
                change()
            changed.append(noted.stat().st_size > size)
        return changed

    versions = mount.tool("vstat", "--json", mount.path / "root").stdout
    assert run_as("eve", lambda: try_all(mount.path / "root")) == [False, False]
    assert mount.tool("vstat", "--json", mount.path / "root").stdout == versions
    assert run_as("eve", lambda: try_all(mount.path / "eves")) == [True, True]
    assert try_all(mount.path / "root") == [True, True]
    # The name by which the history keeps flags is no attribute.
    for name in ("root", "eves"):
        for call in (lambda p: os.setxattr(p, FLAGS, bytes(16)), lambda p: os.removexattr(p, FLAGS),
                     lambda p: os.getxattr(p, FLAGS)):
            with pytest.raises(OSError) as caught:
                call(mount.path / name)
            assert caught.value.errno in (errno.EOPNOTSUPP, errno.ENODATA)
