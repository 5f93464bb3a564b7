# SPDX-License-Identifier: LGPL-2.1-or-later
"""How it is started and stopped: options, background, over itself, by mount(8) and fstab."""
import ctypes
import errno
import fcntl
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from mounts import LIMIT, NOBODY, SECOND, Mount, as_user, epoch, moment, mounted_at, read_by, run


def gone(path):
    """Waits until nothing is mounted there and the daemon has released the store."""
    deadline = time.monotonic() + LIMIT
    while mounted_at(path) is not None:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def wait_for_exit(store):
    deadline = time.monotonic() + LIMIT
    while subprocess.run(["flock", "-n", store / "lock", "true"], check=False).returncode:
        assert time.monotonic() < deadline, "the daemon did not end"
        time.sleep(0.02)


def test_it_goes_to_the_background_once_it_answers(maker, programs):
    source, point = maker.tree(), maker.point()
    result = run(programs.directory / "wayback", source, point, env=programs.environment(), timeout=LIMIT)
    assert result.stdout == (f"wayback: {source}: created a new history; versions are kept for at least 7d (change this in "
                             f"{source}/.wayback/wayback.conf)\n")
    (point / "f").write_bytes(b"x")
    when = moment()
    (point / "f").write_bytes(b"y")
    assert (point / f"f@{epoch(when)}").read_bytes() == b"x"
    run("umount", point)
    wait_for_exit(source / ".wayback")
    assert (source / "f").read_bytes() == b"y"
    assert run(programs.directory / "wayback", source, point, env=programs.environment(), timeout=LIMIT).stdout == ""
    run("umount", point)
    wait_for_exit(source / ".wayback")


@pytest.mark.parametrize("said, kept", [("", " forever"), ("keep = 30d", " for 30d"), ("keep = 30d\nthin = 1d:1y", " for 30d, some for 1y"),
                                        ("keep = 30d\n[path \"x\"]\nkeep = 1h", " for 1h, some for 30d"), ("[path \"x\"]\nkeep = 1h", " for 1h, some forever"),
                                        ("max-size = 1G", " while space permits"),
                                        ("keep = 1y\nreserve = 1%", " for at least 1y")])
def test_the_first_mount_prints_the_retention(maker, said, kept):
    store = maker.tree()
    store.chmod(0o700)
    (store / "wayback.conf").write_text(f"[history]\n{said}\n", encoding="ascii")
    mount = maker.mount(f"store={store}", start=False)
    mount.start()
    assert f"versions are kept{kept} (change" in mount.log()


def test_an_error_before_the_background_is_reported(maker, programs):
    result = run(programs.directory / "wayback", maker.scratch / "none", maker.point(), check=False,
                 env=programs.environment(), timeout=LIMIT)
    assert result.returncode == 1 and "none" in result.stdout and result.stdout.count("\n") == 1


@pytest.mark.parametrize("arguments", [lambda s: [s], lambda s: [s, s]])
def test_over_the_tree_itself(maker, programs, arguments):
    source = maker.tree()
    (source / "d").mkdir()
    (source / "d" / "f").write_bytes(b"one")
    when = moment()
    run(programs.directory / "wayback", *arguments(source), env=programs.environment(), timeout=LIMIT)
    try:
        (source / "d" / "f").write_bytes(b"two")
        assert (source / f"d@{epoch(when)}" / "f").read_bytes() == b"one"
        assert os.listdir(source) == ["d"]
        tool = run("vstat", source / "d" / "f", env=programs.environment(), cwd="/")
        assert "write" in tool.stdout
    finally:
        run("umount", source)
    wait_for_exit(source / ".wayback")
    assert sorted(os.listdir(source)) == [".wayback", "d"]


def test_a_shell_below_the_mount_is_warned(maker, programs):
    """`cd work && wayback .`: relative paths of the shell bypass the mount until it changes to the directory again."""
    source = maker.tree()
    (source / "f").write_bytes(b"one")
    environment = programs.environment() | {"PATH": f"{programs.directory}:{os.environ['PATH']}"}
    for script, warnings in (('cd "$1" && wayback . && vstat f && cd . && vstat f', 2), ('wayback "$1" && cd "$1" && vstat f', 0)):
        try:
            result = run("sh", "-c", script, "sh", source, check=False, cwd="/", timeout=LIMIT, env=environment)
            assert (result.returncode, result.stdout.count("run `cd .`")) == (0, warnings), result.stdout
        finally:
            run("umount", source)
        wait_for_exit(source / ".wayback")


def test_a_mount_point_inside_the_source_is_refused(maker):
    """The tree would show itself, without end."""
    source = maker.tree()
    (source / "mnt").mkdir()
    mount = maker.mount(source=source, path=source / "mnt", start=False)
    status, output = mount.refused()
    assert status == 1 and "inside" in output and output.count("\n") == 1
    assert os.listdir(source) == ["mnt"]


def test_history_none_is_plain_pass_through(maker):
    mount = maker.mount("history=none")
    path = mount.path / "f"
    path.write_bytes(b"one")
    when = moment()
    path.write_bytes(b"two")
    path.unlink()
    assert os.listdir(mount.path) == []
    with pytest.raises(OSError) as caught:
        (mount.path / f"f@{epoch(when)}").read_bytes()
    assert caught.value.errno == errno.ENOENT
    objects = mount.source / ".wayback" / "objects"
    assert not objects.exists() or not any(p.is_file() for p in objects.rglob("*"))


def test_read_only(maker):
    source = maker.tree()
    first = maker.mount(source=source)
    (first.path / "f").write_bytes(b"one")
    when = moment()
    (first.path / "f").write_bytes(b"two")
    first.stop()
    before = run("find", source, "-printf", "%p %T@ %C@ %s\\n").stdout
    mount = maker.mount("ro", source=source)
    assert (mount.path / "f").read_bytes() == b"two"
    assert (mount.path / f"f@{epoch(when)}").read_bytes() == b"one"
    for function in (lambda: (mount.path / "f").write_bytes(b"x"), lambda: (mount.path / "g").touch(),
                     lambda: (mount.path / "f").unlink(), lambda: (mount.path / "f").chmod(0o600)):
        with pytest.raises(OSError) as caught:
            function()
        assert caught.value.errno == errno.EROFS
    mount.stop()
    assert run("find", source, "-printf", "%p %T@ %C@ %s\\n").stdout == before


@pytest.mark.parametrize("what", ["ro", "at"])
def test_a_mount_that_does_not_record_follows_the_rights_that_another_one_changes(maker, what):
    """It takes no lock, so the kernel must not keep names, modes and content for it. A second user reads."""
    live = maker.mount("allow_other")
    (live.path / "f").write_text("open")
    (live.path / "d").mkdir()
    (live.path / "d" / "x").write_text("then")
    beside = maker.mount("allow_other", "ro" if what == "ro" else f"at={epoch(moment())}", source=live.source)
    paths = [beside.path / "f", beside.path / "d" / "x"]
    for path in paths:
        assert as_user(path.read_text, *SECOND) in ("open", "then")
    assert as_user(lambda: os.listdir(beside.path / "d"), *SECOND) == ["x"]
    if what == "ro":
        # The same size: content that was read before is read anew.
        (live.path / "f").write_text("late")
        assert paths[0].read_text() == "late" and not (beside.path / "new").exists()
        (live.path / "new").write_text("new")
        assert (beside.path / "new").read_text() == "new"
    (live.path / "f").chmod(0o600)
    (live.path / "d").chmod(0o700)
    for path in paths:
        (live.path / path.relative_to(beside.path)).write_text("secret")
    for look in (paths[0].read_text, paths[1].read_text, lambda: os.stat(paths[1]), lambda: os.listdir(beside.path / "d")):
        with pytest.raises(PermissionError):
            as_user(look, *SECOND)


def test_read_only_without_a_store(maker):
    source = maker.tree()
    (source / "f").write_bytes(b"x")
    mount = maker.mount("ro", source=source)
    assert (mount.path / "f").read_bytes() == b"x"
    mount.stop()
    assert os.listdir(source) == ["f"]


@pytest.mark.parametrize("where", ["same device", "other device"])
def test_a_store_elsewhere(maker, where):
    source = maker.tree()
    store = maker.tree("ext4" if where == "same device" else "xfs")
    mount = maker.mount(f"store={store}", "allow_other", source=source)
    path = mount.path / "f"
    data = os.urandom(200_000)
    path.write_bytes(data)
    (mount.path / "d").mkdir()
    when = moment()
    path.unlink()
    (mount.path / "d").rmdir()
    path.write_bytes(b"new")
    assert (mount.path / f"f@{epoch(when)}").read_bytes() == data
    assert os.listdir(mount.path) == ["f"]
    assert (source / ".wayback" / "moved").exists() and not (source / ".wayback" / "header").exists()
    assert (store / "header").exists()
    mount.remount()
    assert (mount.path / f"f@{epoch(when)}").read_bytes() == data
    mount.tool("vrevert", mount.path, "--time", epoch(when))
    assert path.read_bytes() == data and (mount.path / "d").is_dir()


def test_unknown_options_are_refused(maker):
    for option in ("history=maybe", "nonsense=1"):
        mount = maker.mount(start=False)
        status, output = mount.refused(option)
        assert status == 2 and option.split("=", maxsplit=1)[0] in output, output


@pytest.mark.parametrize("options", ["noatime", "nodev,nosuid", "noexec", "rw,relatime",
                                     "strictatime,nodiratime", "sync,dirsync", "acl,user_xattr",
                                     "noacl", "lazytime"])
def test_common_options_work(maker, options):
    mount = maker.mount(*options.split(","))
    (mount.path / "f").write_bytes(b"x")
    assert (mount.path / "f").read_bytes() == b"x"


def test_without_allow_other_only_the_mounting_user_has_access(maker):
    mount = maker.mount()
    with pytest.raises(PermissionError):
        as_user(lambda: os.listdir(mount.path), *SECOND)


def test_the_table_of_mounts_shows_its_type(mount):
    assert mounted_at(mount.path) == "fuse.wayback"
    assert str(mount.source) in run("findmnt", "-n", "-o", "SOURCE", mount.path).stdout


@pytest.fixture(name="helper")
def fixture_helper(programs):
    """mount.wayback in the place in which mount(8) finds it, and its other name, for one test run at a time."""
    path, other = "/sbin/mount.wayback", "/sbin/mount.fuse.wayback"
    with open("/tmp/wayback-test.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.path.lexists(path) or os.path.lexists(other):
            pytest.skip(f"{path} is installed: it would be tested instead of ours")
        with open(path, "w", encoding="utf-8") as stream:
            stream.write(f"#!/bin/sh\nexport PATH={programs.directory}:$PATH LD_LIBRARY_PATH="
                         f"{programs.directory}\nexec {programs.directory}/mount.wayback \"$@\"\n")
        os.chmod(path, 0o755)
        os.symlink("mount.wayback", other)
        yield
        os.unlink(path)
        os.unlink(other)


def test_mount_8_mounts(maker, programs, helper):
    source, point = maker.tree(), maker.point()
    run("mount", "-t", "wayback", "-o", "allow_other,noatime,nofail,x-systemd.automount", source,
        point, env=programs.environment(), timeout=LIMIT)
    (point / "f").write_bytes(b"x")
    run("umount", point)
    assert (source / "f").read_bytes() == b"x"
    wait_for_exit(source / ".wayback")


def test_mount_8_mounts_a_moment(maker, programs, helper):
    source, point = maker.tree(), maker.point()
    mount = maker.mount(source=source)
    (mount.path / "f").write_bytes(b"old")
    when = moment()
    (mount.path / "f").write_bytes(b"new")
    table = maker.scratch / "fstab"
    table.write_text(f"{source} {point} wayback rw,noauto,nofail,x-y,at={epoch(when)} 0 0\n", encoding="utf-8")
    run("mount", "-T", table, point, env=programs.environment(), timeout=LIMIT)
    assert (point / "f").read_bytes() == b"old"
    assert run("findmnt", "-n", "-o", "OPTIONS", point).stdout.startswith("ro")
    run("umount", point)


def test_mount_8_mounts_a_branch(maker, programs, helper):
    source, point, home = maker.tree(), maker.point(), maker.tree()
    mount = maker.mount(source=source)
    (mount.path / "f").write_bytes(b"old")
    when = moment()
    (mount.path / "f").write_bytes(b"new")
    table = maker.scratch / "fstab"
    for options in (f"noauto,allow_other,at={epoch(when)},branch={home}", f"rw,noauto,nofail,allow_other,branch={home}"):
        table.write_text(f"{source} {point} wayback {options} 0 0\n", encoding="utf-8")
        run("mount", "-T", table, point, env=programs.environment(), timeout=LIMIT)
        assert mounted_at(point) == "overlay"
        (point / "f").write_bytes((point / "f").read_bytes() + b"er")
        run("umount", point)
        wait_for_exit(home / ".wayback")
    assert (home / "upper/f").read_bytes() == b"olderer"
    assert (mount.path / "f").read_bytes() == b"new"


def test_a_comma_in_an_option_is_escaped_by_a_backslash(maker):
    tree = maker.tree()
    store = maker.scratch / "a,b"
    mount = maker.mount(f"store={store}".replace(",", "\\,"), source=tree)
    (mount.path / "f").write_bytes(b"x")
    mount.stop()
    assert (store / "header").exists()


def test_an_fstab_line_mounts(maker, programs, helper):
    source, point = maker.tree(), maker.point()
    table = maker.scratch / "fstab"
    table.write_text(f"{source} {point} wayback defaults,noauto,allow_other 0 0\n", encoding="utf-8")
    run("mount", "-T", table, point, env=programs.environment(), timeout=LIMIT)
    assert mounted_at(point) == "fuse.wayback"
    assert "nosuid" not in run("findmnt", "-n", "-o", "OPTIONS", point).stdout
    run("umount", point)
    wait_for_exit(source / ".wayback")


def test_mount_8_remounts(maker, programs, helper):
    source, point = maker.tree(), maker.point()
    run("mount", "-t", "wayback", "-o", "allow_other", source, point, env=programs.environment(), timeout=LIMIT)
    (point / "f").write_bytes(b"one")
    when = moment()
    run("mount", "-t", "wayback", "-o", "remount,ro", source, point, env=programs.environment(), timeout=LIMIT)
    with pytest.raises(OSError) as refused:
        (point / "f").write_bytes(b"lost")
    assert refused.value.errno == errno.EROFS and (point / "f").read_bytes() == b"one"
    run("mount", "-t", "wayback", "-o", "remount,rw,noatime", source, point, env=programs.environment(), timeout=LIMIT)
    (point / "f").write_bytes(b"two")
    assert (point / f"f@{epoch(when)}").read_bytes() == b"one"
    words = run("findmnt", "-n", "-o", "OPTIONS", point).stdout.split(",")
    assert "rw" in words and "noatime" in words
    run("umount", point)
    wait_for_exit(source / ".wayback")


def test_mount_8_remounts_by_the_mount_point_alone(maker, programs, helper):
    """mount(8) then knows only the options in the mount table."""
    source, point = maker.tree(), maker.point()
    run("mount", "-t", "wayback", "-o", "allow_other", source, point, env=programs.environment(), timeout=LIMIT)
    (point / "f").write_bytes(b"one")
    when = moment()
    for options, words in (("ro", {"ro"}), ("rw,noatime", {"rw", "noatime"})):
        run("mount", "-o", f"remount,{options}", point, env=programs.environment(), timeout=LIMIT)
        assert words <= set(run("findmnt", "-n", "-o", "OPTIONS", point).stdout.strip().split(","))
    (point / "f").write_bytes(b"two")
    assert (point / f"f@{epoch(when)}").read_bytes() == b"one"
    run("umount", point)
    wait_for_exit(source / ".wayback")


def test_mount_8_mounts_a_table_once(maker, programs, helper):
    """`mount -a` again mounts nothing twice, also after a remount."""
    source, point, table = maker.tree(), maker.point(), maker.scratch / "fstab"
    table.write_text(f"{source} {point} wayback allow_other,nofail 0 0\n", encoding="utf-8")
    for _ in range(3):
        run("mount", "--fstab", table, "-a", env=programs.environment(), timeout=LIMIT)
        assert run("findmnt", "-n", "-o", "TARGET", "--mountpoint", point).stdout.count(str(point)) == 1
        run("mount", "--fstab", table, "-o", "remount,noatime", point, env=programs.environment(), timeout=LIMIT)
    run("umount", point)
    wait_for_exit(source / ".wayback")


def test_a_mount_that_does_not_record_is_still_read_only_after_a_remount(maker):
    mount = maker.mount("allow_other")
    (mount.path / "f").write_bytes(b"one")
    mount.remount("ro")
    run("mount", "-i", "-o", "remount,rw", mount.path)
    for change in (lambda: (mount.path / "f").write_bytes(b"unrecorded"), lambda: (mount.path / "new").touch(),
                   (mount.path / "f").unlink, lambda: os.truncate(mount.path / "f", 0)):
        with pytest.raises(OSError) as refused:
            change()
        assert refused.value.errno == errno.EROFS
    assert (mount.source / "f").read_bytes() == b"one" and not (mount.source / "new").exists()


def test_a_user_unmounts_with_fusermount(user_mount):
    as_user((user_mount.path / "f").touch, *NOBODY)
    user_mount.stop()
    assert (user_mount.source / "f").exists() and gone(user_mount.path)


def test_many_mounts_and_unmounts(maker):
    mount = maker.mount()
    for i in range(15):
        (mount.path / f"f{i}").write_bytes(b"x")
        mount.remount()
    assert len(os.listdir(mount.path)) == 15


def lock_is_opened_by_others(source, pid):
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            opened = [os.readlink(f"/proc/{entry}/fd/{fd}") for fd in os.listdir(f"/proc/{entry}/fd")]
        except OSError:
            continue  # it has just ended
        if int(entry) != pid and f"{source}/.wayback/lock" in opened:
            return True
    return False


def test_a_mount_waits_until_the_one_before_has_ended(maker):
    """As of any file system: umount, and mount again at once."""
    mount = maker.mount()
    (mount.path / "f").write_bytes(b"one")
    when = moment()
    (mount.path / "f").write_bytes(b"two")
    pid = mount.process.pid
    mount.process.send_signal(signal.SIGSTOP)
    try:
        # umount(8) would first ask the daemon for the state of the file system.
        assert ctypes.CDLL(None).umount2(os.fsencode(mount.path), 0) == 0
        other = maker.mount(source=mount.source, start=False)
        starting = threading.Thread(target=other.start)
        starting.start()
        deadline = time.monotonic() + LIMIT
        while not lock_is_opened_by_others(mount.source, pid) and starting.is_alive():
            assert time.monotonic() < deadline
            time.sleep(0.005)
        assert starting.is_alive()
    finally:
        mount.process.send_signal(signal.SIGCONT)
    starting.join()
    assert (other.path / "f").read_bytes() == b"two" and (other.path / f"f@{epoch(when)}").read_bytes() == b"one"
    assert mount.process.wait(timeout=LIMIT) == 0
    mount.kill()
    # A store that is mounted is not waited for.
    status, output = maker.mount(source=mount.source, start=False).refused()
    assert status == 1 and f"is mounted at {other.path} (pid {other.process.pid}). To unmount: umount {other.path}" in output


def test_the_lock_names_the_process_and_its_mount(maker):
    mount = maker.mount()
    with open(mount.path / "f", "wb") as stream:
        words = (mount.source / ".wayback/lock").read_text(encoding="ascii").split()
        device = os.fstat(stream.fileno()).st_dev
        assert words == [str(mount.process.pid), f"{os.major(device)}:{os.minor(device)}"]


def test_mounting_does_not_look_at_the_files(maker):
    """O(1): a tree of many files mounts as quickly as an empty one."""
    source = maker.tree()
    for i in range(20):
        (source / f"d{i}").mkdir()
        for j in range(250):
            (source / f"d{i}" / f"f{j}").touch()
    listed = [(source / f"d{i}").stat().st_atime_ns for i in range(20)]
    mount = maker.mount(source=source).remount()
    # The first listing of a directory moves its access time.
    assert listed == [(source / f"d{i}").stat().st_atime_ns for i in range(20)]
    os.listdir(source / "d0")
    assert (source / "d0").stat().st_atime_ns > listed[0], "this proves nothing here"
    assert read_by(mount.process.pid) < 16 << 20
    assert not list((source / ".wayback").rglob("*.cat"))


SWAP = """
import ctypes, sys, time
libc = ctypes.CDLL(None)
one, other = (name.encode() for name in sys.argv[1:])
print(flush=True)
while True:
    libc.syscall(316, -100, one, -100, other, 2)  # renameat2(RENAME_EXCHANGE)
"""


@pytest.mark.parametrize("what", ["in place", "SRC", "MNT"])
def test_root_follows_no_link_of_another_user_to_src_and_mnt(maker, what):
    """Its owner exchanges a directory for a link while root mounts it: the tree would be mounted over the target."""
    home, victim, other = maker.tree(owner=NOBODY), maker.tree(), maker.point()
    for directory, text in ((home / "docs", "evil"), (victim, "good")):
        directory.mkdir(exist_ok=True)
        (directory / "passwd").write_text(text)
        (directory / "passwd").chmod(0o644)
    (home / "link").symlink_to(victim)
    for path in (home / "docs", home / "link"):
        os.lchown(path, *NOBODY)
    docs = home / "docs"
    source, point = {"in place": (docs, docs), "SRC": (docs, other), "MNT": (other, docs)}[what]
    environment = maker.programs.environment()
    with subprocess.Popen([sys.executable, "-c", SWAP, docs, home / "link"], stdout=subprocess.PIPE, text=True,
                          user=NOBODY[0], group=NOBODY[1], extra_groups=[]) as swapping:
        try:
            swapping.stdout.readline()
            for _ in range(40):
                run(maker.programs.directory / "wayback", "-o", "allow_other", source, point, check=False,
                    env=environment)
                assert (victim / "passwd").read_text() == "good" and not mounted_at(victim)
                assert not (other / "passwd").exists() or (other / "passwd").read_text() == "evil"
                assert not (victim / ".wayback").exists()
                while mounts_below(home, other):
                    for path in mounts_below(home, other):
                        run("umount", "-l", path, check=False)
        finally:
            swapping.kill()


def test_the_daemon_unmounts_nothing_but_its_own_mount(maker):
    """A directory above the mount is renamed by its owner, and a link to one with another mount of that name is there."""
    home, other = maker.tree(owner=NOBODY), maker.scratch / "other"
    (home / "x/docs").mkdir(parents=True)
    (other / "docs").mkdir(parents=True)
    os.chown(home / "x", *NOBODY)
    mount = maker.mount("allow_other", source=home / "x/docs", path=home / "x/docs")
    run("mount", "-t", "tmpfs", "victim", other / "docs")
    try:
        as_user(lambda: (os.rename(home / "x", home / "y"), os.symlink(other, home / "x")), *NOBODY)
        mount.process.terminate()
        mount.process.wait(timeout=LIMIT)
        assert mounted_at(other / "docs") == "tmpfs"
        mount.process = None
        Mount.running.discard(mount)
    finally:
        run("umount", other / "docs")
        run("umount", "-l", home / "y/docs", check=False)


def mounts_below(*places):
    with open("/proc/self/mounts", encoding="utf-8", errors="replace") as table:
        points = [line.split(" ")[1] for line in table if " fuse.wayback " in line]
    return [point for point in points if any(point.startswith(str(place)) for place in places)]
