# SPDX-License-Identifier: LGPL-2.1-or-later
"""Attributes, owners and permissions: those of the calling user, as on the bare file system."""
import errno
import os
import stat

import pytest

from mounts import NOBODY, SECOND, as_user, epoch, moment, run


def mode(path):
    return stat.S_IMODE(os.lstat(path).st_mode)


def refused(error, function, *arguments, **options):
    with pytest.raises(OSError) as caught:
        function(*arguments, **options)
    assert caught.value.errno == error


def make_all(root):
    """One of each; returns them."""
    os.close(os.open(root / "file", os.O_CREAT | os.O_RDWR, 0o666))
    os.mkdir(root / "dir", 0o777)
    os.symlink("x", root / "link")
    os.mkfifo(root / "fifo", 0o666)
    return [root / name for name in ("file", "dir", "link", "fifo")]


@pytest.fixture(name="open_tree")
def fixture_open_tree(any_mount):
    any_mount.path.chmod(0o777)
    return any_mount.path


def test_new_files_are_owned_by_their_creator(open_tree):
    made = as_user(lambda: make_all(open_tree), *SECOND, umask=0o027)
    for path in made:
        status = path.lstat()
        assert (status.st_uid, status.st_gid) == SECOND, path
    assert [mode(p) for p in made if not p.is_symlink()] == [0o640, 0o750, 0o640]


def test_a_setgid_directory_gives_its_group(open_tree):
    os.mkdir(open_tree / "team")
    os.chown(open_tree / "team", 0, 777)
    os.chmod(open_tree / "team", 0o2777)
    made = as_user(lambda: make_all(open_tree / "team"), *SECOND)
    assert {p.lstat().st_gid for p in made} == {777}
    assert mode(open_tree / "team" / "dir") & stat.S_ISGID
    assert not mode(open_tree / "team" / "file") & stat.S_ISGID


def test_supplementary_groups_count(open_tree):
    (open_tree / "f").write_bytes(b"secret")
    os.chown(open_tree / "f", 0, 555)
    os.chmod(open_tree / "f", 0o640)
    assert as_user((open_tree / "f").read_bytes, *SECOND, groups=[555]) == b"secret"
    refused(errno.EACCES, as_user, (open_tree / "f").read_bytes, *SECOND)


def test_permissions_are_checked(open_tree):
    root = open_tree
    (root / "mine").write_bytes(b"x")
    (root / "mine").chmod(0o600)
    (root / "closed").mkdir(mode=0o700)
    (root / "closed" / "f").write_bytes(b"x")
    (root / "fixed").mkdir(mode=0o755)
    (root / "fixed" / "f").write_bytes(b"x")
    for function in (lambda: (root / "mine").read_bytes(), lambda: (root / "closed" / "f").stat(),
                     lambda: os.listdir(root / "closed"), lambda: (root / "fixed" / "new").touch(),
                     lambda: (root / "fixed" / "f").unlink(),
                     lambda: os.rename(root / "fixed" / "f", root / "stolen"),
                     lambda: os.truncate(root / "fixed" / "f", 0)):
        refused(errno.EACCES, as_user, function, *SECOND)
    for function in (lambda: (root / "mine").chmod(0o666), lambda: os.chown(root / "mine", *SECOND),
                     lambda: os.utime(root / "mine", (1, 1)),
                     lambda: os.setxattr(root / "mine", "trusted.x", b"")):
        refused(errno.EPERM, as_user, function, *SECOND)


def test_a_sticky_directory_protects_its_files(open_tree):
    open_tree.chmod(0o1777)
    (open_tree / "f").write_bytes(b"x")
    (open_tree / "f").chmod(0o666)
    refused(errno.EPERM, as_user, (open_tree / "f").unlink, *SECOND)
    as_user((open_tree / "mine").touch, *SECOND)
    as_user((open_tree / "mine").unlink, *SECOND)


def change_content(kind, path):
    fd = os.open(path, os.O_RDWR)
    try:
        if kind == "write":
            os.pwrite(fd, b"y", 0)
        elif kind == "truncate":
            os.ftruncate(fd, 3)
        elif kind == "fallocate":
            os.posix_fallocate(fd, 0, 100)
    finally:
        os.close(fd)


@pytest.mark.parametrize("how", ["write", "truncate", "fallocate", "chown"])
def test_suid_and_sgid_are_lost_as_on_the_bare_file_system(any_mount, maker, kind, how):
    bare = maker.tree(kind)
    found = []
    for root in (bare, any_mount.path):
        root.chmod(0o777)
        path = root / "f"
        path.write_bytes(b"program")
        os.chown(path, *SECOND)
        path.chmod(0o6777)
        before = moment()
        if how == "chown":
            os.chown(path, SECOND[0], 0)
        else:
            as_user(lambda: change_content(how, path), *NOBODY)  # pylint: disable=W0640
        found.append(oct(mode(path)))
    assert found[0] == found[1]
    assert mode(any_mount.path / f"f@{epoch(before)}") == 0o6777


def test_root_may_write_a_suid_file(any_mount, maker, kind):
    bare = maker.tree(kind)
    found = []
    for root in (bare, any_mount.path):
        (root / "f").write_bytes(b"program")
        (root / "f").chmod(0o6755)
        change_content("write", root / "f")
        found.append(oct(mode(root / "f")))
    assert found[0] == found[1]


def test_acls(any_mount, maker, kind):
    bare = maker.tree(kind)
    (bare / "probe").touch()
    if run("setfacl", "-m", "u:1234:r", bare / "probe", check=False).returncode:
        pytest.skip("no ACLs here")
    results = []
    for root in (bare, any_mount.path):
        root.chmod(0o777)
        (root / "d").mkdir()
        any_mount.tool("setfacl", "-d", "-m", f"u:{SECOND[0]}:rwx,g::r,o::-,m::rwx", root / "d")
        (root / "d").chmod(0o777)
        as_user(lambda: make_all(root / "d"), *NOBODY, umask=0o022)  # pylint: disable=W0640
        (root / "f").write_bytes(b"for the second only")
        (root / "f").chmod(0o600)
        any_mount.tool("setfacl", "-m", f"u:{SECOND[0]}:r", root / "f")
        assert as_user((root / "f").read_bytes, *SECOND) == b"for the second only"
        refused(errno.EACCES, as_user, (root / "f").read_bytes, *NOBODY)
        listing = any_mount.tool("getfacl", "-n", "-p", root / "d" / "file", root / "d" / "dir",
                                 root / "f").stdout
        results.append(listing.replace(str(root), ""))
    assert results[0] == results[1]


def test_times_have_nanoseconds(any_mount):
    path = any_mount.path / "f"
    path.write_bytes(b"x")
    os.utime(path, ns=(1_234_567_890_123_456_789, 1_000_000_000_987_654_321))
    status = path.stat()
    assert (status.st_atime_ns, status.st_mtime_ns) == \
        (1_234_567_890_123_456_789, 1_000_000_000_987_654_321)
    any_mount.remount()
    assert path.stat().st_mtime_ns == 1_000_000_000_987_654_321


def test_changes_move_the_times(any_mount):
    root = any_mount.path
    (root / "f").write_bytes(b"x")
    for action, changed in ((lambda: (root / "f").write_bytes(b"y"), "f"),
                            (lambda: (root / "g").touch(), "."),
                            (lambda: os.rename(root / "g", root / "h"), "."),
                            (lambda: (root / "h").unlink(), ".")):
        os.utime(root / changed, ns=(1, 1))
        action()
        assert (root / changed).stat().st_mtime_ns > 10**18, changed
    before = (root / "f").stat().st_ctime_ns
    (root / "f").chmod(0o600)
    assert (root / "f").stat().st_ctime_ns > before


def test_chown_and_chmod_of_links_and_files(any_mount):
    root = any_mount.path
    (root / "f").write_bytes(b"x")
    (root / "l").symlink_to("f")
    os.chown(root / "l", 5, 6, follow_symlinks=False)
    os.chown(root / "f", 7, -1)
    assert ((root / "l").lstat().st_uid, (root / "l").lstat().st_gid) == (5, 6)
    assert ((root / "f").stat().st_uid, (root / "f").stat().st_gid) == (7, 0)
    os.chmod(root / "f", 0o1705)
    assert mode(root / "f") == 0o1705


def test_extended_attributes(any_mount):
    path = any_mount.path / "f"
    path.write_bytes(b"x")
    os.setxattr(path, "user.a", b"1")
    os.setxattr(path, "user.b", b"\0" * 1000)
    os.setxattr(path, "trusted.c", b"root only")
    assert sorted(os.listxattr(path)) == ["trusted.c", "user.a", "user.b"]
    refused(errno.EEXIST, os.setxattr, path, "user.a", b"2", os.XATTR_CREATE)
    refused(errno.ENODATA, os.setxattr, path, "user.z", b"2", os.XATTR_REPLACE)
    refused(errno.ENODATA, os.getxattr, path, "user.z")
    os.setxattr(path, "user.a", b"2", os.XATTR_REPLACE)
    before = moment()
    os.removexattr(path, "user.b")
    assert os.getxattr(path, "user.a") == b"2"
    assert sorted(os.listxattr(path)) == ["trusted.c", "user.a"]
    old = any_mount.path / f"f@{epoch(before)}"
    assert os.getxattr(old, "user.b") == b"\0" * 1000
    assert sorted(os.listxattr(old)) == ["trusted.c", "user.a", "user.b"]
    assert "trusted.c" not in as_user(lambda: os.listxattr(path), *SECOND)


# -- mounted by an ordinary user -----------------------------------------------------------------


def test_an_ordinary_user_mounts_and_works(user_mount):
    root = user_mount.path

    def work():
        made = make_all(root)
        (root / "file").write_bytes(b"one")
        then = moment()
        (root / "file").write_bytes(b"two")
        (root / "dir").chmod(0o700)
        os.rename(root / "file", root / "dir" / "moved")
        old = (root / f"file@{epoch(then)}").read_bytes()
        return made, old, (root / "dir" / "moved").read_bytes(), (root / "fifo").stat().st_uid

    _, old, new, owner = as_user(work, *NOBODY)
    assert (old, new, owner) == (b"one", b"two", NOBODY[0])


def test_others_do_not_see_the_mount_of_a_user(user_mount):
    refused(errno.EACCES, as_user, lambda: os.listdir(user_mount.path), *SECOND)


def test_a_user_cannot_give_files_away(user_mount):
    def work():
        (user_mount.path / "f").touch()
        os.chown(user_mount.path / "f", *SECOND)

    refused(errno.EPERM, as_user, work, *NOBODY)


# -- the past opens no door ----------------------------------------------------------------------


def test_a_file_closed_then_is_closed_in_the_past(open_tree):
    path = open_tree / "f"
    path.write_bytes(b"secret")
    path.chmod(0o600)
    secret = moment()
    path.write_bytes(b"harmless")
    path.chmod(0o644)
    assert as_user(path.read_bytes, *SECOND) == b"harmless"
    refused(errno.EACCES, as_user, (open_tree / f"f@{epoch(secret)}").read_bytes, *SECOND)


def test_a_file_closed_now_is_closed_in_the_past(open_tree):
    path = open_tree / "f"
    path.write_bytes(b"was public")
    public = moment()
    path.chmod(0o600)
    refused(errno.EACCES, as_user, (open_tree / f"f@{epoch(public)}").read_bytes, *SECOND)
    assert (open_tree / f"f@{epoch(public)}").read_bytes() == b"was public"


def test_a_directory_closed_now_is_closed_in_the_past(open_tree):
    (open_tree / "d").mkdir(mode=0o755)
    (open_tree / "d" / "f").write_bytes(b"was public")
    public = moment()
    (open_tree / "d").chmod(0o700)
    for path in (open_tree / f"d@{epoch(public)}" / "f", open_tree / f"@{epoch(public)}" / "d" / "f"):
        refused(errno.EACCES, as_user, path.read_bytes, *SECOND)


def test_a_file_system_without_acls(maker):
    """A file of another owner can be used by anyone with the permission: there is no ACL, rather than no answer."""
    image, below = maker.scratch / "image", maker.scratch / "below"
    below.mkdir()
    with open(image, "wb") as stream:
        stream.truncate(256 << 20)
    run("mkfs.btrfs", "-q", image)
    run("mount", "-o", "loop,noacl", image, below)
    try:
        below.chmod(0o755)
        bare = below / "bare"
        bare.write_bytes(b"x")
        refused(errno.EOPNOTSUPP, os.getxattr, bare, "system.posix_acl_access")
        mount = maker.mount("allow_other", source=below)
        path = mount.path / "f"
        path.write_bytes(b"one")
        path.chmod(0o644)
        when = moment()
        path.write_bytes(b"two")
        for place, content in ((path, b"two"), (mount.at(when, "f"), b"one")):
            assert as_user(place.read_bytes, *NOBODY) == content
            for name in ("system.posix_acl_access", "system.posix_acl_default"):
                refused(errno.ENODATA, os.getxattr, place, name)
        refused(errno.EACCES, as_user, lambda: path.write_bytes(b"three"), *NOBODY)
        mount.path.chmod(0o777)
        as_user(lambda: (mount.path / "new").write_bytes(b"new"), *NOBODY)
        assert (mount.path / "new").stat().st_uid == NOBODY[0]
        mount.stop()
    finally:
        run("umount", "-l", below)
