# SPDX-License-Identifier: LGPL-2.1-or-later
"""Names: every way to make, move and lose one does what the bare file system does."""
import errno
import os
import socket
import stat

import pytest

from operations import EXCHANGE, NOREPLACE, renameat2


def refused(error, function, *arguments, **options):
    with pytest.raises(OSError) as caught:
        function(*arguments, **options)
    assert caught.value.errno == error


def write(path, data=b"x"):
    path.write_bytes(data)
    return path


def test_every_kind_of_file_can_be_made_and_removed(any_mount):
    root = any_mount.path
    write(root / "file")
    (root / "dir").mkdir()
    (root / "link").symlink_to("target/that/is/not")
    os.mkfifo(root / "fifo", 0o640)
    os.mknod(root / "null", stat.S_IFCHR | 0o600, os.makedev(1, 3))
    os.mknod(root / "disk", stat.S_IFBLK | 0o600, os.makedev(7, 200))
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(root / "socket"))
    kinds = {name: stat.S_IFMT((root / name).lstat().st_mode) for name in os.listdir(root)}
    assert kinds == {"file": stat.S_IFREG, "dir": stat.S_IFDIR, "link": stat.S_IFLNK,
                     "fifo": stat.S_IFIFO, "null": stat.S_IFCHR, "disk": stat.S_IFBLK,
                     "socket": stat.S_IFSOCK}
    assert os.readlink(root / "link") == "target/that/is/not"
    assert (root / "null").lstat().st_rdev == os.makedev(1, 3)
    for name in kinds:
        (os.rmdir if name == "dir" else os.unlink)(root / name)
    assert os.listdir(root) == []
    assert os.listdir(any_mount.source) == [".wayback"]


def test_errors_are_those_of_the_bare_file_system(any_mount):
    root = any_mount.path
    write(root / "f")
    (root / "d" / "sub").mkdir(parents=True)
    refused(errno.EEXIST, os.open, root / "f", os.O_CREAT | os.O_EXCL)
    refused(errno.EEXIST, os.mkdir, root / "d")
    refused(errno.EEXIST, os.symlink, "x", root / "f")
    refused(errno.EEXIST, os.link, root / "f", root / "d")
    refused(errno.ENOENT, os.unlink, root / "none")
    refused(errno.ENOENT, os.rename, root / "none", root / "other")
    refused(errno.ENOTDIR, os.rmdir, root / "f")
    refused(errno.EISDIR, os.unlink, root / "d")
    refused(errno.ENOTEMPTY, os.rmdir, root / "d")
    refused(errno.EISDIR, os.rename, root / "f", root / "d")
    refused(errno.ENOTDIR, os.rename, root / "d", root / "f")
    refused(errno.EINVAL, os.rename, root / "d", root / "d" / "sub" / "below")
    refused(errno.ENOTEMPTY, os.rename, root / "d" / "sub", root / "d")
    refused(errno.ENOTDIR, os.listdir, root / "f")
    refused(errno.ENOTDIR, os.stat, root / "f" / "x")
    refused(errno.ENAMETOOLONG, os.mkdir, root / ("n" * 256))
    (root / ("n" * 255)).mkdir()
    refused(errno.EPERM, os.link, root / "d", root / "dir2")
    assert sorted(os.listdir(root)) == ["d", "f", "n" * 255]


def test_a_rename_may_refuse_to_replace(any_mount):
    root = any_mount.path
    write(root / "a", b"a")
    write(root / "b", b"b")
    refused(errno.EEXIST, renameat2, root / "a", root / "b", NOREPLACE)
    renameat2(root / "a", root / "c", NOREPLACE)
    assert sorted(os.listdir(root)) == ["b", "c"]
    assert (root / "c").read_bytes() == b"a" and (root / "b").read_bytes() == b"b"


def test_a_rename_may_exchange_a_file_and_a_directory(any_mount):
    root = any_mount.path
    write(root / "a", b"a")
    (root / "d" / "e").mkdir(parents=True)
    write(root / "d" / "inner", b"i")
    renameat2(root / "a", root / "d", EXCHANGE)
    assert (root / "d").read_bytes() == b"a"
    assert sorted(os.listdir(root / "a")) == ["e", "inner"]
    renameat2(root / "a" / "e", root / "d", EXCHANGE)
    assert (root / "d").is_dir() and (root / "a" / "e").read_bytes() == b"a"
    refused(errno.ENOENT, renameat2, root / "a", root / "none", EXCHANGE)


def test_a_rename_may_leave_a_whiteout(any_mount):
    root = any_mount.path
    write(root / "a", b"a")
    try:
        renameat2(any_mount.source / "none", any_mount.source / "none2", 4)
    except OSError as error:
        supported = error.errno == errno.ENOENT
    if not supported:
        refused(errno.EINVAL, renameat2, root / "a", root / "b", 4)
        return
    renameat2(root / "a", root / "b", 4)
    status = (root / "a").lstat()
    assert stat.S_ISCHR(status.st_mode) and status.st_rdev == 0
    assert (root / "b").read_bytes() == b"a"


def test_a_rename_replaces_files_and_empty_directories(any_mount):
    root = any_mount.path
    write(root / "old", b"old")
    write(root / "new", b"new")
    inode = (root / "new").stat().st_ino
    os.rename(root / "new", root / "old")
    assert (root / "old").read_bytes() == b"new" and (root / "old").stat().st_ino == inode
    (root / "d1").mkdir()
    (root / "d2").mkdir()
    write(root / "d1" / "f")
    os.rename(root / "d1", root / "d2")
    assert sorted(os.listdir(root)) == ["d2", "old"] and os.listdir(root / "d2") == ["f"]


def test_two_names_of_one_file_renamed_onto_each_other_remain(any_mount):
    """rename(2): if both are the same file, nothing happens."""
    root = any_mount.path
    write(root / "a")
    os.link(root / "a", root / "b")
    os.rename(root / "a", root / "b")
    assert sorted(os.listdir(root)) == ["a", "b"]


def test_hard_links_count_visible_names(any_mount):
    root = any_mount.path
    write(root / "a", b"one")
    (root / "d").mkdir()
    os.link(root / "a", root / "b")
    os.link(root / "b", root / "d" / "c")
    assert (root / "a").stat().st_nlink == 3
    assert {(root / n).stat().st_ino for n in ("a", "b", "d/c")} == {(root / "a").stat().st_ino}
    (root / "d" / "c").write_bytes(b"seen everywhere")
    assert (root / "a").read_bytes() == b"seen everywhere"
    os.unlink(root / "a")
    assert (root / "b").stat().st_nlink == 2
    write(root / "other")
    os.rename(root / "other", root / "b")
    assert (root / "d" / "c").stat().st_nlink == 1
    any_mount.remount()
    assert (root / "d" / "c").stat().st_nlink == 1
    assert (root / "d" / "c").read_bytes() == b"seen everywhere"


def test_a_symbolic_link_can_have_another_name(any_mount):
    root = any_mount.path
    (root / "s").symlink_to("nowhere")
    os.link(root / "s", root / "t", follow_symlinks=False)
    assert os.readlink(root / "t") == "nowhere" and (root / "t").lstat().st_nlink == 2


def test_directories_count_their_subdirectories(any_mount, maker, kind):
    bare = maker.tree(kind)
    for root in (bare, any_mount.path):
        (root / "d" / "e").mkdir(parents=True)
        (root / "d" / "f").mkdir()
        (root / "d" / "f").rmdir()
    assert (any_mount.path / "d").stat().st_nlink == (bare / "d").stat().st_nlink


def test_reading_a_directory_survives_its_changes(any_mount):
    """An entry that exists from beginning to end is seen exactly once, whatever else happens."""
    root = any_mount.path
    stay = {f"stay{i:04}" for i in range(800)}
    for name in sorted(stay):
        write(root / name, b"")
        write(root / f"go{name[4:]}", b"")
    seen = []
    with os.scandir(root) as entries:
        for number, entry in enumerate(entries):
            seen.append(entry.name)
            if number % 3 == 0:
                for prefix in ("go", "new"):
                    path = root / f"{prefix}{number % 800:04}"
                    if prefix == "new":
                        write(path, b"")
                    elif path.exists():
                        path.unlink()
    kept = [n for n in seen if n in stay]
    assert len(kept) == len(set(kept)) == len(stay)


def test_rm_of_a_deep_tree_leaves_nothing(any_mount):
    root = any_mount.path
    for i in range(6):
        deep = root / "t" / "/".join(f"level{j}" for j in range(i + 1))
        deep.mkdir(parents=True)
        for j in range(20):
            write(deep / f"file{j}")
    any_mount.tool("rm", "-rf", root / "t")
    assert os.listdir(root) == []


def test_the_store_is_invisible_and_untouchable(any_mount):
    root = any_mount.path
    write(root / "f")
    for name in (".wayback", ".wayback-staging"):
        assert name not in os.listdir(root)
        refused(errno.ENOENT, os.stat, root / name)
        refused(errno.ENOENT, os.listdir, root / name)
        refused(errno.ENOENT, os.rmdir, root / name)
        for make in (lambda p: os.mkdir(p), lambda p: os.rename(root / "f", p),
                     lambda p: os.symlink("x", p), lambda p: os.open(p, os.O_CREAT | os.O_RDWR)):
            with pytest.raises(OSError) as caught:
                make(root / name)
            assert caught.value.errno in (errno.EPERM, errno.EACCES, errno.EEXIST)
    # Only the root's entry is ours.
    (root / "d").mkdir()
    (root / "d" / ".wayback").mkdir()
    assert os.listdir(root / "d") == [".wayback"]
    assert (any_mount.source / ".wayback" / "header").exists()


def test_names_are_bytes(any_mount):
    root = os.fsencode(any_mount.path)
    names = [b"caf\xc3\xa9", b"\xff\xfe", b"a b\nc", b"-n", b"'\"\\", b"*?["]
    for name in names:
        with open(root + b"/" + name, "wb") as stream:
            stream.write(name)
    assert sorted(os.listdir(root)) == sorted(names)
    for name in names:
        with open(root + b"/" + name, "rb") as stream:
            assert stream.read() == name
