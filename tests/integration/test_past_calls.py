# SPDX-License-Identifier: LGPL-2.1-or-later
"""System calls on files of the past: calls that read work as they did then, calls that write are refused."""
import ctypes
import errno
import fcntl
import mmap
import os
import random
import shutil
import stat
import struct
import threading

import pytest

from mounts import NOBODY, QUICK, SECOND, as_user, epoch, moment, mounted_at, run
from pasttree import Then
from treestate import differences, state_of

LIBC = ctypes.CDLL(None, use_errno=True)
SYS_OPENAT2 = 437
RESOLVE_BENEATH = 8
FS_IOC_SETFLAGS = 0x40086602
LOSSES = ("one", "sparse", "big", "plain")


def refused(error, function, *arguments, **options):
    with pytest.raises(OSError) as caught:
        function(*arguments, **options)
    assert caught.value.errno == error, function


@pytest.fixture(name="old")
def fixture_old(either_mount):
    return Then(either_mount).leave()


@pytest.fixture(name="root_old")
def fixture_root_old(mount):
    return Then(mount).leave()


def opened(path, flags=os.O_RDONLY):
    return os.fdopen(os.open(path, flags), "rb", buffering=0)


# ---- identities ---------------------------------------------------------------------------------

def kind_of(entry):
    if entry.is_symlink():
        return stat.S_IFLNK
    if entry.is_dir(follow_symlinks=False):
        return stat.S_IFDIR
    return stat.S_IFREG if entry.is_file(follow_symlinks=False) else 0


def entries(directory):
    """{name: (inode, type)} as readdir(3) returns them; no type for special files."""
    with os.scandir(directory) as stream:
        return {entry.name: (entry.inode(), kind_of(entry)) for entry in stream}


def check_numbers(old):
    live, numbers = set(), {}
    for place, directories, files in os.walk(old.present):
        for name in directories + files:
            live.add(os.lstat(os.path.join(place, name)).st_ino)
    for place, directories, files in os.walk(old.past):
        read = entries(place)
        assert sorted(read) == sorted(directories + files)
        for name, (inode, kind) in read.items():
            status = os.lstat(os.path.join(place, name))
            assert inode == status.st_ino and kind in (0, stat.S_IFMT(status.st_mode)), name
            numbers[os.path.relpath(os.path.join(place, name), old.past)] = inode
        above = os.path.relpath(os.path.join(place, ".."), old.past)
        assert os.stat(os.path.join(place, "..")).st_ino == (
            old.mount.path.stat().st_ino if place == str(old.past)
            else os.stat(os.path.dirname(place)).st_ino), above
        assert os.stat(place).st_ino == os.stat(os.path.join(place, ".")).st_ino
    assert not live & set(numbers.values())
    return numbers


def test_numbers_of_inodes_are_stable_and_their_own(old):
    numbers = old.act(lambda: check_numbers(old))
    groups = {}
    for name, number in numbers.items():
        groups.setdefault(number, set()).add(name)
    assert sorted(map(sorted, (g for g in groups.values() if len(g) > 1))) == [["one", "sub/three", "two"]]
    other = moment()
    later = old.act(lambda: os.lstat(old.mount.path / f"tree@{epoch(other)}" / "many/file002").st_ino)
    assert later != numbers["many/file002"]
    old.mount.remount()
    assert old.act(lambda: check_numbers(old)) == numbers


def dots(directory):
    """The inodes that readdir(3) returns for . and .. of a directory."""
    said = run("ls", "-fi1", directory).stdout.splitlines()
    found = dict(reversed(line.split(None, 1)) for line in said if line.endswith((" .", " ..")))
    return int(found["."]), int(found[".."])


def test_the_dots_have_the_right_inodes(root_old):
    for below in ("", "sub", "deep/level0/level1"):
        place = root_old.past / below
        assert dots(place)[0] == place.stat().st_ino
        assert dots(place)[1] == os.stat(place / "..").st_ino


def test_the_file_system_is_the_same_one(old):
    def look():
        live, past = os.statvfs(old.present), os.statvfs(old.past / "big")
        return (live.f_blocks, live.f_bsize, live.f_files, live.f_namemax) == \
            (past.f_blocks, past.f_bsize, past.f_files, past.f_namemax)
    assert old.act(look)
    said = old.mount.tool("df", "--output=target,size", old.present, old.past, old.past / "sub").stdout
    assert len(set(said.splitlines()[1:])) == 1


# ---- reading ------------------------------------------------------------------------------------

def big_bytes():
    return random.Random(7).randbytes(3_000_001)


def test_mappings(old):
    def look():
        with opened(old.past / "big") as stream:
            size = os.fstat(stream.fileno()).st_size
            for flags in (mmap.MAP_SHARED, mmap.MAP_PRIVATE):
                with mmap.mmap(stream.fileno(), size, flags, mmap.PROT_READ) as mapping:
                    assert mapping[:] == big_bytes()
            with mmap.mmap(stream.fileno(), size, mmap.MAP_PRIVATE,
                           mmap.PROT_READ | mmap.PROT_WRITE) as mapping:
                mapping[5:9] = b"mine"
                assert mapping[5:9] == b"mine"
            refused(errno.EACCES, mmap.mmap, stream.fileno(), size, mmap.MAP_SHARED,
                    mmap.PROT_READ | mmap.PROT_WRITE)
            assert stream.read() == big_bytes()
    old.act(look)


def test_programs_and_libraries_of_the_past_run(either_mount):
    library = next(m.split()[-1] for m in open("/proc/self/maps", encoding="utf-8") if "/libz" in m
                   or "/libm.so" in m or "/libexpat" in m or "libc.so" in m)
    programs = ("/bin/cat", library)

    def populate(root):
        root.mkdir()
        for path in programs:
            shutil.copy(path, root)

    def ruin(root):
        for path in programs:
            (root / os.path.basename(path)).write_bytes(b"no program")

    old = Then(either_mount, populate, ruin).leave()
    assert old.mount.tool(old.past / "cat", input="said").stdout == "said"
    assert old.mount.tool("/usr/bin/python3", "-c", "import ctypes, sys; ctypes.CDLL(sys.argv[1]); print(open("
                          "'/proc/self/maps').read().count(sys.argv[1]) > 0)",
                          old.past / os.path.basename(library)).stdout == "True\n"


def test_copies_inside_of_the_kernel(old):
    def look():
        target = old.mount.path / "copy"
        for call in (os.sendfile, os.copy_file_range):
            with opened(old.past / "big") as source, open(target, "wb", buffering=0) as sink:
                left = 3_000_001
                while left:
                    left -= (os.sendfile(sink.fileno(), source.fileno(), None, left)
                             if call is os.sendfile
                             else os.copy_file_range(source.fileno(), sink.fileno(), left))
            assert target.read_bytes() == big_bytes()
        with opened(old.past / "big") as source, open(target, "r+b", buffering=0) as sink:
            with pytest.raises(OSError) as caught:
                fcntl.ioctl(sink.fileno(), 0x40049409, source.fileno())  # FICLONE
            assert caught.value.errno in (errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL)
    old.act(look)


def test_direct_reads(old):
    def look():
        fd = os.open(old.past / "big", os.O_RDONLY | os.O_DIRECT)
        buffer = mmap.mmap(-1, 1 << 20)
        for offset in (0, 1 << 20, 4096, 2_998_272):
            n = os.preadv(fd, [buffer], offset)
            assert buffer[:n] == big_bytes()[offset:offset + (1 << 20)]
        os.close(fd)
    old.act(look)


def runs(path):
    """[(begin, end)] of the data in a file."""
    found, at = [], 0
    with opened(path) as stream:
        while True:
            try:
                begin = os.lseek(stream.fileno(), at, os.SEEK_DATA)
            except OSError as error:
                assert error.errno == errno.ENXIO
                return found
            at = os.lseek(stream.fileno(), begin, os.SEEK_HOLE)
            found.append((begin, at))


def test_holes_are_found_again(old):
    def look():
        found = runs(old.past / "sparse")
        data = (old.past / "sparse").read_bytes()
        assert sum(end - begin for begin, end in found) < 100_000
        for begin, end in zip([0] + [end for _, end in found], [b for b, _ in found] + [len(data)]):
            assert not any(data[begin:end]), (begin, end)
        assert data[:4096] == b"head" * 1024 and data[1 << 20:(1 << 20) + 6000] == b"middle" * 1000
        with opened(old.past / "sparse") as stream:
            fd = stream.fileno()
            assert os.lseek(fd, len(data) - 1, os.SEEK_HOLE) == len(data) - 1
            assert os.lseek(fd, 10, os.SEEK_DATA) == 10
            refused(errno.ENXIO, os.lseek, fd, len(data), os.SEEK_DATA)
            refused(errno.ENXIO, os.lseek, fd, len(data) - 1, os.SEEK_DATA)
            refused(errno.ENXIO, os.lseek, fd, 1 << 40, os.SEEK_HOLE)
    old.act(look)


def test_locks_for_reading(old):
    def look():
        with opened(old.past / "big") as one, opened(old.past / "big") as two:
            for fd in (one.fileno(), two.fileno()):
                fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
                fcntl.lockf(fd, fcntl.LOCK_SH | fcntl.LOCK_NB, 100, 5)
            refused(errno.EBADF, fcntl.lockf, one.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
            refused(errno.EWOULDBLOCK, fcntl.flock, one.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    old.act(look)


def test_watches(old):
    """inotify on the past: nothing ever happens there; opening and reading are reported as anywhere."""
    def look():
        fd = LIBC.inotify_init1(os.O_NONBLOCK)
        for path in (old.past, old.past / "big", old.present):
            assert LIBC.inotify_add_watch(fd, os.fsencode(path), 0x00000302) >= 0  # modify, create, delete
        (old.past / "big").read_bytes()
        refused(errno.EAGAIN, os.read, fd, 4096)
        (old.present / "another").write_bytes(b"x")
        assert b"another" in os.read(fd, 4096)
        refused(errno.EAGAIN, os.read, fd, 4096)
        os.close(fd)
    old.act(look)


def openat2(dir_fd, name, flags, resolve):
    """EAGAIN means that something was renamed or mounted meanwhile, anywhere on the machine, so that the kernel does
    not know whether ".." has led out (openat2(2))."""
    how = struct.pack("QQQ", flags, 0, resolve)
    for _ in range(10000):
        fd = LIBC.syscall(SYS_OPENAT2, dir_fd, os.fsencode(name), how, len(how))
        if fd >= 0:
            return fd
        if ctypes.get_errno() != errno.EAGAIN:
            break
    raise OSError(ctypes.get_errno(), name)


def test_ways_to_open(old):
    def look():
        dir_fd = os.open(old.past, os.O_PATH | os.O_DIRECTORY)
        fd = os.open("sub/three", os.O_PATH, dir_fd=dir_fd)
        assert os.fstat(fd).st_ino == os.stat("one", dir_fd=dir_fd).st_ino
        assert opened(f"/proc/thread-self/fd/{fd}").read() == b"shared\n" * 400
        refused(errno.ELOOP, os.open, "to one", os.O_RDONLY | os.O_NOFOLLOW, dir_fd=dir_fd)
        link = os.open("to one", os.O_PATH | os.O_NOFOLLOW, dir_fd=dir_fd)
        assert os.readlink("", dir_fd=link) == "one"
        below = openat2(dir_fd, "to sub/../sub/three", os.O_RDONLY, RESOLVE_BENEATH)
        assert os.read(below, 7) == b"shared\n"
        refused(errno.EXDEV, openat2, dir_fd, "sub/../../tree/new", os.O_RDONLY, RESOLVE_BENEATH)
        refused(errno.EXDEV, openat2, dir_fd, "dangling", os.O_RDONLY, RESOLVE_BENEATH)
        for number in (dir_fd, fd, link, below):
            os.close(number)
    old.act(look)


# ---- places of the past as places ----------------------------------------------------------------

def test_a_root_of_the_past(root_old):
    def look():
        os.chroot(root_old.past)
        os.chdir("/")
        assert opened("/sub/three").read(6) == b"shared"
        assert os.path.realpath("/to sub/../..") == "/"
        refused(errno.ENOENT, os.stat, "/new")
        refused(errno.EROFS, os.mkdir, "/x")
        return sorted(os.listdir("/"))
    assert as_user(look, 0, 0) == sorted(n for n in root_old.state if n and "/" not in n)


def test_a_bind_mount_of_the_past(root_old, maker):
    place = maker.point()
    run("mount", "--bind", root_old.past, place)
    try:
        assert differences(root_old.state, state_of(place)) == []
        refused(errno.EROFS, (place / "x").mkdir)
        (root_old.present / "many/file002").write_bytes(b"another")
        assert differences(root_old.state, state_of(place)) == []
    finally:
        run("umount", place)
    assert mounted_at(place) is None


def test_the_past_below_an_overlay(root_old, maker):
    """A writable copy of a moment at no cost: the kernel's own overlayfs."""
    place, upper, work = maker.point(), maker.tree() / "upper", maker.tree() / "work"
    upper.mkdir()
    work.mkdir()
    lower = str(root_old.past)
    run("mount", "-t", "overlay", "-o", f"lowerdir={lower},upperdir={upper},workdir={work}", "overlay", place)
    try:
        found = state_of(place)
        expected = {**root_old.state, "": found[""]}  # the directory itself is the upper one
        assert differences(expected, found, ("nlink", "group")) == []
        (place / "plain").write_bytes(b"over it")
        (place / "big").unlink()
        os.rename(place / "many/file001", place / "many/moved")
        assert (place / "plain").read_bytes() == b"over it"
        assert differences(root_old.state, state_of(root_old.past)) == []
    finally:
        run("umount", place)


# ---- writing ------------------------------------------------------------------------------------

def writings(tree):
    """Every call that would write."""
    dir_fd = os.open(tree, os.O_RDONLY)
    yield from (
        lambda: os.open(tree / "one", os.O_WRONLY), lambda: os.open(tree / "one", os.O_RDWR),
        lambda: os.open(tree / "one", os.O_RDONLY | os.O_TRUNC),
        lambda: os.open(tree / "one", os.O_WRONLY | os.O_APPEND | os.O_CREAT),
        lambda: os.open(tree / "new", os.O_WRONLY | os.O_CREAT),
        lambda: os.open(tree / "sub", os.O_RDWR | os.O_TMPFILE),
        lambda: os.truncate(tree / "one", 0), lambda: os.truncate(tree / "one", 1 << 20),
        lambda: os.chmod(tree / "one", 0o600), lambda: os.chmod(tree / "sub", 0o700),
        lambda: os.chown(tree / "one", os.getuid(), os.getgid()),
        lambda: os.lchown(tree / "to one", os.getuid(), os.getgid()),
        lambda: os.utime(tree / "one"), lambda: os.utime(tree / "one", (1, 1)),
        lambda: os.utime(tree / "to one", (1, 1), follow_symlinks=False),
        lambda: os.setxattr(tree / "one", "user.a", b"1"), lambda: os.setxattr(tree / "sub", "user.a", b"1"),
        lambda: os.removexattr(tree / "plain", "user.color"),
        lambda: os.link(tree / "one", tree / "four"), lambda: os.symlink("x", tree / "four"),
        lambda: os.unlink(tree / "one"), lambda: os.rmdir(tree / "empty dir"),
        lambda: os.mkdir(tree / "four"), lambda: os.mkfifo(tree / "four"),
        lambda: os.mknod(tree / "four", stat.S_IFREG | 0o600),
        lambda: os.rename(tree / "one", tree / "four"), lambda: os.rename(tree / "sub", tree / "many/sub"),
        lambda: os.unlink("one", dir_fd=dir_fd), lambda: os.mkdir("four", dir_fd=dir_fd),
        lambda: os.fchmod(dir_fd, 0o700), lambda: os.utime(dir_fd, (1, 1)),
    )
    os.close(dir_fd)


def through_readers(tree):
    """And through descriptors opened for reading: an error, whichever the kernel finds first."""
    with opened(tree / "one") as stream:
        fd = stream.fileno()
        for function, errors in (
                (lambda: os.write(fd, b"x"), (errno.EBADF,)), (lambda: os.ftruncate(fd, 0), (errno.EINVAL,)),
                (lambda: os.posix_fallocate(fd, 0, 10), (errno.EBADF,)),
                (lambda: os.fchmod(fd, 0o600), (errno.EROFS,)), (lambda: os.utime(fd), (errno.EROFS,)),
                (lambda: os.setxattr(fd, "user.a", b"1"), (errno.EROFS,)),
                # For the flag for appending only, the kernel first checks a user's privilege.
                (lambda: fcntl.ioctl(fd, FS_IOC_SETFLAGS, struct.pack("l", 0x20)),
                 (errno.EROFS, errno.ENOTTY, errno.EOPNOTSUPP, *((errno.EPERM,) if os.getuid() else ()))),
                (lambda: fcntl.ioctl(fd, FS_IOC_SETFLAGS, struct.pack("l", 0x40)),
                 (errno.EROFS, errno.ENOTTY, errno.EOPNOTSUPP))):
            with pytest.raises(OSError) as caught:
                function()
            assert caught.value.errno in errors


def sizes_of_logs(mount):
    return {path: path.stat().st_size for path in mount.logs()}


def test_nothing_writes(old):
    present, logs = old.act(lambda: state_of(old.present)), sizes_of_logs(old.mount)

    def work():
        for number, function in enumerate(writings(old.past)):
            with pytest.raises(OSError) as caught:
                function()
            assert caught.value.errno == errno.EROFS, (number, caught.value)
        through_readers(old.past)
        for function in (lambda: os.rename(old.past / "one", old.present / "x"),
                         lambda: os.rename(old.present / "new", old.past / "x"),
                         lambda: os.link(old.past / "one", old.present / "x"),
                         lambda: os.link(old.present / "new", old.past / "x")):
            with pytest.raises(OSError) as caught:
                function()
            assert caught.value.errno in (errno.EROFS, errno.EXDEV)
    old.act(work)
    assert old.act(lambda: state_of(old.present)) == present
    assert sizes_of_logs(old.mount) == logs
    assert differences(old.state, old.act(lambda: state_of(old.past))) == []


def test_names_of_restricted_attributes(root_old):
    path = root_old.past / "run"
    assert os.listxattr(path) == ["trusted.t"] and as_user(lambda: os.listxattr(path), *SECOND) == []


# ---- open files -----------------------------------------------------------------------------------

def change_at_random(path, rng, rounds):
    for _ in range(rounds):
        choice = rng.randrange(6)
        with open(path, "r+b" if path.exists() else "w+b", buffering=0) as stream:
            fd, at = stream.fileno(), rng.randrange(1 << 20)
            if choice < 3:
                os.pwrite(fd, rng.randbytes(rng.randrange(1, 100_000)), at)
            elif choice == 3:
                os.ftruncate(fd, at)
            elif choice == 4:
                LIBC.fallocate(fd, 3, ctypes.c_long(at), ctypes.c_long(50_000))  # a hole
            else:
                temporary = path.with_name(path.name + ".new")
                temporary.write_bytes(rng.randbytes(200_000))
                os.rename(temporary, path)
        if rng.random() < .1:
            path.unlink()
        elif rng.random() < .1:
            os.rename(path, path.with_name(path.name + ".old"))


def read_at_random(path, expected, rng, done, problems):
    with opened(path) as stream, mmap.mmap(stream.fileno(), len(expected), mmap.MAP_SHARED,
                                           mmap.PROT_READ) as mapping:
        while not done.is_set() or rng.random() < .5:
            begin = rng.randrange(len(expected))
            end = min(len(expected), begin + rng.randrange(1, 150_000))
            got = os.pread(stream.fileno(), end - begin, begin)
            if got != expected[begin:end] or mapping[begin:end] != expected[begin:end]:
                problems.append((begin, end))
                return


def read_in_order(path, expected, rng, done, problems):
    while not done.is_set() or rng.random() < .5:
        with opened(path, os.O_RDONLY | rng.choice((0, os.O_DIRECT))) as stream:
            at, buffer = 0, mmap.mmap(-1, 1 << 16)
            while n := os.preadv(stream.fileno(), [buffer], at):
                if buffer[:n] != expected[at:at + n]:
                    problems.append(("in order", at))
                    return
                at += n
            if at != len(expected):
                problems.append(("short", at))


@pytest.mark.parametrize("seed", range(1 if QUICK else 2))
def test_open_files_of_the_past_are_exact(any_mount, seed):
    path = any_mount.path / "f"
    expected = random.Random(seed).randbytes(1 << 20)
    path.write_bytes(expected)
    past = any_mount.path / f"f@{epoch(moment())}"
    done, problems = threading.Event(), []
    readers = [threading.Thread(target=read, args=(past, expected, random.Random(seed + n), done, problems))
               for n, read in enumerate((read_at_random, read_at_random, read_in_order))]
    for reader in readers:
        reader.start()
    try:
        change_at_random(path, random.Random(seed + 9), 150)
    finally:
        done.set()
        for reader in readers:
            reader.join()
    assert problems == []


def test_an_ordinary_user_looks_into_a_mount_of_root(root_old):
    """Files open to all then and now; NOBODY owns none of them."""
    def look():
        found = {name for _, names, files in os.walk(root_old.past) for name in names + files}
        assert (root_old.past / "big").read_bytes() == big_bytes()
        refused(errno.EACCES, (root_old.past / "secret").read_bytes)
        refused(errno.EACCES, os.open, root_old.past / "secret", os.O_RDONLY)
        return found
    found = as_user(look, *NOBODY)
    assert found == {os.path.basename(name) for name in root_old.state if name}
