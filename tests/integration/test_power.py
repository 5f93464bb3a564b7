# SPDX-License-Identifier: LGPL-2.1-or-later
"""Nobody gets power from a mount of root's: programs with set-id bits or capabilities, and devices.

The tests execute and open as an ordinary user. They do not look at modes: the kernel decides by what it has cached.
"""
import contextlib
import ctypes
import errno
import mmap
import os
import shutil
import stat
import struct
import subprocess
import sys

import pytest

from copies import Copy
from mounts import LIMIT, QUICK, Branch, as_user, epoch, moment, run

TEAM = 7000
MEMBER = (4001, 4001)
CAPABILITY = "security.capability"
# Version 2, effective, CAP_DAC_OVERRIDE.
MAY_READ_ALL = struct.pack("<IIIII", 0x02000001, 1 << 1, 0, 0, 0)
TAIL = 64 << 10
PUNCH_HOLE, KEEP_SIZE = 0x02, 0x01


def program(path, name="id", mode=0o4755, group=0):
    """A copy of a program with zeros behind its end, which belongs to root and has the given mode."""
    shutil.copyfile(shutil.which(name), path)
    with open(path, "ab") as stream:
        stream.write(bytes(TAIL))
    os.chown(path, 0, group)
    path.chmod(mode)
    return path


def output_of(*command, user=MEMBER, groups=(TEAM,)):
    """The output of the command if this user executes it."""
    return as_user(lambda: subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                          check=False, cwd="/").stdout.decode().strip(), *user, groups=groups)


def refused(number, function, *arguments, **options):
    with pytest.raises(OSError) as caught:
        function(*arguments, **options)
    assert caught.value.errno == number, caught.value


# ---- a user's write ---------------------------------------------------------------------------


def change(how, path):
    size = os.stat(path).st_size
    if how == "truncate-path":
        os.truncate(path, size + 1)
        return
    flags = os.O_RDWR | (os.O_APPEND if how == "append" else 0)
    fd = os.open(path, flags)
    try:
        if how == "write":
            os.pwrite(fd, b"\x7f", 0)
        elif how == "append":
            os.write(fd, b"x")
        elif how == "truncate":
            os.ftruncate(fd, size + 1)
        elif how == "allocate":
            os.posix_fallocate(fd, size, 4096)
        elif how == "punch":
            libc = ctypes.CDLL(None)
            assert libc.fallocate(fd, PUNCH_HOLE | KEEP_SIZE, ctypes.c_long(size - 8192), ctypes.c_long(4096)) == 0
        elif how == "copy":
            assert os.copy_file_range(fd, fd, 4096, size - 8192, size - 4096) == 4096
    finally:
        os.close(fd)


CHANGES = ["write", "append", "truncate", "truncate-path", "allocate", "punch", "copy"]


@pytest.mark.parametrize("history", ["write", "close", "none"])
@pytest.mark.parametrize("bits", [0o4000, 0o2000])
def test_a_program_that_a_user_changed_has_no_power_any_more(maker, history, bits):
    """root:TEAM; the member of the team who may write to it gets nothing by executing the result."""
    mount = maker.mount("allow_other", f"history={history}")
    ask = ["-u"] if bits == 0o4000 else ["-g"]
    found = []
    for root in (maker.tree(), mount.path):
        results = {}
        for how in CHANGES:
            path = program(root / how, mode=bits | 0o777, group=TEAM if bits == 0o4000 else 0)
            before = output_of(path, *ask)
            as_user(lambda: change(how, path), *MEMBER, groups=[TEAM])  # pylint: disable=W0640
            results[how] = (before, output_of(path, *ask), oct(path.stat().st_mode))
        found.append(results)
    assert found[0] == found[1]
    assert all((before, after) == ("0", str(MEMBER[0])) for before, after, _ in found[1].values())


def test_a_changed_program_loses_its_capabilities(maker):
    mount = maker.mount("allow_other")
    found = []
    for root in (maker.tree(), mount.path):
        secret = maker.scratch / "secret"
        secret.write_text("secret", encoding="ascii")
        secret.chmod(0o600)
        results = {}
        for how in CHANGES:
            path = program(root / how, "cat", 0o777)
            os.setxattr(path, CAPABILITY, MAY_READ_ALL)
            before = output_of(path, secret) == "secret"
            as_user(lambda: change(how, path), *MEMBER)  # pylint: disable=W0640
            results[how] = (before, output_of(path, secret) == "secret", CAPABILITY in os.listxattr(path))
        found.append(results)
    assert found[0] == found[1]
    assert set(found[1].values()) == {(True, False, False)}


def test_if_the_bits_cannot_be_cleared_nothing_is_changed(mount):
    """The kernel clears them in an append-only file as well; a daemon cannot, so this user appends nothing."""
    path = program(mount.path / "f", mode=0o4777)
    size = path.stat().st_size
    run("chattr", "+a", path)
    try:
        refused(errno.EPERM, as_user, lambda: change("append", path), *MEMBER)
        assert path.stat().st_size == size
    finally:
        run("chattr", "-a", path)
    as_user(lambda: change("append", path), *MEMBER)
    assert (path.stat().st_size, output_of(path, "-u")) == (size + 1, str(MEMBER[0]))


# ---- the past ---------------------------------------------------------------------------------


def name_moment(mount):
    """Now; the snapshot "then" names it as well."""
    mount.tool("vsnap", "create", "then", mount.path)
    return moment()


def ways_to(mount, when, name):
    """Paths that lead to the name as it was."""
    return [mount.path / f"{name}@{epoch(when)}", mount.path / f"@{epoch(when)}" / name, mount.path / f"{name}@then",
            mount.path / ".snapshot" / "then" / name]


def execute_descriptor(path):
    fd = os.open(path, os.O_PATH)
    try:
        subprocess.run([f"/proc/self/fd/{fd}"], check=False, pass_fds=[fd], cwd="/")
    finally:
        os.close(fd)


@pytest.mark.parametrize("how", ["disarmed", "removed", "replaced"])
@pytest.mark.parametrize("kind", ["suid", "sgid", "capability"])
def test_a_program_of_the_past_runs_for_nobody_with_its_power(maker, kind, how):
    mount = maker.mount("allow_other")
    mode = {"suid": 0o4755, "sgid": 0o2755, "capability": 0o755}[kind]
    path = program(mount.path / "program", mode=mode)
    if kind == "capability":
        os.setxattr(path, CAPABILITY, MAY_READ_ALL)
    harmless = program(mount.path / "harmless", mode=0o755)
    assert "uid=4001" in output_of(path)
    when = name_moment(mount)
    if how == "disarmed":
        path.chmod(0o755)
        if kind == "capability":
            os.removexattr(path, CAPABILITY)
    elif how == "removed":
        path.unlink()
    else:
        os.rename(program(mount.path / "new", mode=0o755), path)
    harmless.unlink()
    late = maker.mount("allow_other", f"at={epoch(when)}", source=mount.source)
    asked = maker.mount("allow_other", f"at={epoch(when)}", "suid", source=mount.source)
    places = ways_to(mount, when, "program") + [late.path / "program", asked.path / "program"]
    for place in places:
        assert "uid=0" in run(place).stdout  # root, who has all of that anyway
        assert stat.S_IMODE(as_user(place.stat, *MEMBER).st_mode) == mode
        refused(errno.EPERM, output_of, place)
        refused(errno.EPERM, as_user, lambda: execute_descriptor(place), *MEMBER)  # pylint: disable=W0640
        as_user(place.read_bytes, *MEMBER)
        assert "uid=4001" in output_of(place.with_name(place.name.replace("program", "harmless")))


def memory_of(path):
    """The beginning of a program in the memory of a process that executes it."""
    with subprocess.Popen([path, "1000"], cwd="/") as process:
        try:
            begins = []
            while not begins:  # it is mapped a moment after execve(2) can no longer fail
                with open(f"/proc/{process.pid}/maps", encoding="ascii") as maps:
                    begins = [int(line.split("-")[0], 16) for line in maps if path.name.split("@")[0] in line]
            with open(f"/proc/{process.pid}/mem", "rb") as memory:
                memory.seek(begins[0])
                return memory.read(4)
        finally:
            process.kill()


@pytest.mark.parametrize("now", [0o755, 0o711])
@pytest.mark.parametrize("then", [0o755, 0o711])
def test_a_program_that_may_not_be_read_cannot_be_read_while_it_runs(maker, then, now):
    """For the kernel, the mode of the past decides which users may look into the memory of the process."""
    mount = maker.mount("allow_other")
    path = program(mount.path / "program", "sleep", mode=then)
    found = []
    for mode, place in ((then, maker.tree() / "program"), (now, maker.tree() / "program")):
        program(place, "sleep", mode=mode)
        try:
            found.append(as_user(lambda: memory_of(place), *MEMBER))  # pylint: disable=W0640
        except PermissionError:
            found.append(None)
    when = name_moment(mount)
    path.chmod(now)
    expected = b"\x7fELF" if all(found) else None
    assert (expected is not None) == (then == now == 0o755)
    for place in ways_to(mount, when, "program"):
        if expected:
            assert as_user(lambda: memory_of(place), *MEMBER) == expected  # pylint: disable=W0640
        else:
            refused(errno.EACCES, as_user, lambda: memory_of(place), *MEMBER)  # pylint: disable=W0640


@pytest.mark.parametrize("how", ["closed", "removed"])
def test_a_device_of_the_past_opens_for_nobody_else(maker, how):
    mount = maker.mount("allow_other")
    path = mount.path / "null"
    os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    path.chmod(0o666)
    assert as_user(path.read_bytes, *MEMBER) == b""
    when = name_moment(mount)
    if how == "closed":
        path.chmod(0o600)
    else:
        path.unlink()
    late = maker.mount("allow_other", f"at={epoch(when)}", "dev", source=mount.source)
    for place in ways_to(mount, when, "null") + [late.path / "null"]:
        assert place.read_bytes() == b""
        assert place.stat().st_rdev == os.makedev(1, 3)
        refused(errno.EACCES, as_user, lambda: os.open(place, os.O_RDWR), *MEMBER)  # pylint: disable=W0640
        refused(errno.EACCES, as_user, place.stat, *MEMBER)
    assert "null" in as_user(lambda: os.listdir(mount.path / f"@{epoch(when)}"), *MEMBER)


# ---- mounts -----------------------------------------------------------------------------------


def flags_of(path):
    return [name for name, bit in (("nosuid", os.ST_NOSUID), ("nodev", os.ST_NODEV), ("noexec", os.ST_NOEXEC))
            if os.statvfs(path).f_flag & bit]


def powers_of(root):
    """Uses that work there for an ordinary user: programs with set-id bits, devices, programs."""
    result = set()
    try:
        if output_of(root / "program", "-u") == "0":
            result.add("suid")
        result.add("exec")
    except PermissionError:
        pass
    try:
        as_user((root / "null").read_bytes, *MEMBER)
        result.add("dev")
    except PermissionError:
        pass
    return result


def tree_with_power(maker, owner=None):
    source = maker.tree()
    program(source / "program")
    os.mknod(source / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    (source / "null").chmod(0o666)
    if owner:
        os.chown(source, *owner)
    return source


@pytest.fixture(name="bound")
def fixture_bound(maker):
    """bound(source, flags): another path to the tree, through a bind mount with these flags."""
    made = []

    def bind(source, flags):
        path = maker.point()
        run("mount", "--bind", source, path)
        made.append(path)
        run("mount", "-o", f"remount,bind,{flags}", path)
        return path

    yield bind
    maker.close()
    for path in made:
        run("umount", path)


ALL = {"suid", "dev", "exec"}
OF_FLAG = {"nosuid": "suid", "nodev": "dev", "noexec": "exec"}


@pytest.mark.parametrize("flag", ["nosuid", "nodev", "noexec"])
def test_limits_of_the_mount_below_hold(maker, bound, flag):
    source = bound(tree_with_power(maker), flag)
    expected = ALL - {OF_FLAG[flag]} - ({"suid"} if flag == "noexec" else set())
    assert powers_of(source) == expected
    assert powers_of(maker.mount("allow_other", source=source).path) == expected
    maker.mounts[-1].stop()
    assert powers_of(maker.mount("allow_other", OF_FLAG[flag], source=source).path) == ALL


def test_limits_of_the_mount_of_the_store_hold(maker, bound):
    store = bound(maker.tree(), "nosuid,nodev") / "store"
    mount = maker.mount("allow_other", f"store={store}", source=tree_with_power(maker))
    assert powers_of(mount.path) == {"exec"}


def test_a_tree_of_a_user_gives_nobody_power(maker):
    mount = maker.mount("allow_other", source=tree_with_power(maker, MEMBER))
    assert powers_of(mount.path) == {"exec"}
    assert powers_of(mount.remount("suid", "dev").path) == ALL


def test_a_store_of_a_user_gives_nobody_power(maker):
    """Root only reads such a store: it refuses to record in it."""
    mount = maker.mount("allow_other", source=tree_with_power(maker))
    assert powers_of(mount.path) == ALL
    mount.stop()
    run("chown", "-R", f"{MEMBER[0]}:{MEMBER[1]}", mount.source / ".wayback")
    assert powers_of(mount.start("ro").path) == {"exec"}
    assert powers_of(mount.remount("ro", "suid", "dev").path) == ALL


def test_moments_and_branches_give_nobody_power(maker):
    """The branch: files changed in it are of the present, and so are files copied from the moment."""
    mount = maker.mount("allow_other", source=tree_with_power(maker))
    assert powers_of(mount.path) == ALL
    when = moment()
    late = maker.mount("allow_other", f"at={epoch(when)}", source=mount.source)
    assert flags_of(late.path) == ["nosuid", "nodev"]
    for options, expected in (((), {"exec"}), (("suid", "dev"), ALL), (("noexec",), set())):
        branch = maker.mount("allow_other", f"at={epoch(when)}", f"branch={maker.tree()}", *options,
                             source=mount.source, made=Branch)
        assert powers_of(branch.path) == expected


def test_mount_8_inherits_limits(maker, bound, programs):
    """fstab's `defaults` asks for nothing by name."""
    source = bound(tree_with_power(maker), "nosuid")
    point = maker.point()
    for options, expected in (("allow_other", ["nosuid"]), ("allow_other,nodev", ["nosuid", "nodev"]),
                              ("allow_other,suid", [])):
        run(programs.directory / "mount.wayback", source, point, "-o", f"rw,{options}",
            env=programs.environment(), timeout=LIMIT)
        assert flags_of(point) == expected
        run("umount", point)
        run("flock", "-w", LIMIT, source / ".wayback/lock", "true")


# ---- restoring --------------------------------------------------------------------------------

ROUNDS = 20 if QUICK else 100
SWAPPER = """
import ctypes, os, sys, time
place, bait = sys.argv[1:3]
rename = ctypes.CDLL(None).renameat2
os.chdir(place)
if bait.startswith("/"):
    os.symlink(bait, ".bait")
    bait = ".bait"
print("ready", flush=True)
while True:
    for name in os.listdir("."):
        if name != bait:
            for _ in range(2):
                rename(-100, os.fsencode(bait), -100, os.fsencode(name), 2)
                time.sleep(0.0002)  # else the history in which a tool looks outgrows it on a busy machine
"""


@contextlib.contextmanager
def swapping(place, bait):
    """A user exchanges every name in a directory of theirs with `bait`, a name in it or a link to a path, without
    end."""
    process = subprocess.Popen(["setpriv", f"--reuid={MEMBER[0]}", f"--regid={MEMBER[1]}", "--clear-groups", sys.executable,
                                "-c", SWAPPER, place, bait], stdout=subprocess.PIPE, cwd="/")
    try:
        assert process.stdout.readline() == b"ready\n"
        yield
        assert process.poll() is None
    finally:
        process.kill()
        process.communicate()


def everything_of(path):
    status = path.lstat()
    return (path.read_bytes(), status.st_mode, status.st_uid, status.st_gid, status.st_mtime_ns, status.st_nlink,
            sorted(os.listxattr(path)))


@pytest.mark.parametrize("tool", ["vrevert", "vextract", "vrevert-all", "vextract-all"])
@pytest.mark.parametrize("type_of_victim", ["file", "program", "directory"])
def test_restoring_follows_no_link(mount, maker, tool, type_of_victim):
    """root restores in a directory of a user, who makes every name there lead to something of root's."""
    victim = maker.tree() / "victim"
    if type_of_victim == "directory":
        victim.mkdir(mode=0o700)
    else:
        victim.write_bytes(b"victim")
        victim.chmod(0o755 if type_of_victim == "program" else 0o600)
    look = everything_of if victim.is_file() else (lambda path: (path.lstat().st_mode, path.lstat().st_uid,
                                                                 os.listdir(path)))
    place = mount.path / "u"
    place.mkdir()
    file = place / "big"
    file.write_bytes(os.urandom(1 << 20))
    os.setxattr(file, "user.then", b"then")
    file.chmod(0o4777)
    (place / "sub").mkdir(mode=0o777)
    (place / "sub/inner").write_bytes(b"inner")
    when = moment()
    file.write_bytes(b"changed")
    file.chmod(0o600)
    os.chown(file, *MEMBER)
    os.chown(place, *MEMBER)
    os.rename(place / "sub", mount.path / "away")
    before = look(victim)
    with open(file, "rb") as held, swapping(place, victim):
        for rounds in range(1, ROUNDS + 1):
            name = "." if tool.endswith("-all") else ("big", "sub", "sub/inner")[rounds % 3]
            if tool.startswith("vrevert"):
                mount.run_tool("vrevert", "--time", epoch(when), place / name)
            else:
                mount.run_tool("vextract", "--time", epoch(when), "--force", "-o", place / "out", place / name)
            assert look(victim) == before, rounds
            os.fchmod(held.fileno(), 0o600)


def identity(fd):
    status = os.fstat(fd)
    # A directory with the name of the restored one that is not the same is removed with all below it.
    content = None if stat.S_ISDIR(status.st_mode) else os.pread(fd, 1 << 16, 0)
    return status.st_mode, status.st_uid, status.st_gid, content


@contextlib.contextmanager
def watched(*paths):
    """Descriptors of objects, which keep owner, mode and the content of files whatever their names are."""
    fds = [os.open(path, os.O_RDONLY) for path in paths]
    before = [identity(fd) for fd in fds]
    yield lambda: [identity(fd) for fd in fds] == before
    for fd in fds:
        os.close(fd)


def test_files_of_root_in_a_directory_of_a_user_are_unchanged(mount):
    """A directory of root's gets the name of the one that root restores."""
    place = mount.path / "u"
    for name in ("sub", "roots"):
        (place / name).mkdir(parents=True)
        (place / name / "inner").write_bytes(name.encode())
    (place / "roots").chmod(0o700)
    (place / "sub").chmod(0o777)
    os.chown(place / "sub", *MEMBER)
    (place / "sub/deep").mkdir()
    os.chown(place, *MEMBER)
    when = moment()
    (place / "roots/later").write_bytes(b"later")
    with watched(place / "roots", place / "roots/inner", place / "roots/later") as unchanged, swapping(place, "roots"):
        for rounds in range(1, ROUNDS + 1):
            mount.run_tool("vrevert", "--time", epoch(when), place / "sub")
            assert unchanged(), rounds


def test_receiving_changes_received_files_only(maker):
    copy = Copy(maker, maker.mount("allow_other"))
    for name in ("file", "roots"):
        (copy.source.path / "u" / name).parent.mkdir(exist_ok=True)
        (copy.source.path / "u" / name).write_bytes(name.encode())
        (copy.source.path / "u" / name).chmod(0o600)
    (copy.source.path / "u/sub").mkdir()
    os.chown(copy.source.path / "u/file", *MEMBER)
    os.chown(copy.source.path / "u", *MEMBER)
    copy.path.chmod(0o755)
    copy.follow()
    with watched(copy.path / "u/roots") as unchanged:
        for rounds in range(1, ROUNDS // 4 + 1):
            (copy.source.path / "u/file").write_bytes(str(rounds).encode())
            (copy.source.path / "u/file").chmod(0o600 + rounds % 64)
            (copy.source.path / "u/sub" / str(rounds)).touch()
            stream = copy.stream()
            with swapping(copy.path / "u", "roots"):
                copy.receive(stream)
            assert unchanged(), rounds
            assert copy.receive(stream).returncode in (0, 1)
            assert unchanged(), rounds


def opened(path):
    """Descriptor and mapping of a file for writing, as its owner has them (after which permissions are not checked
    again)."""
    fd = os.open(path, os.O_RDWR)
    return fd, mmap.mmap(fd, 4, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)


@pytest.mark.parametrize("kind", ["sgid", "capability", "none"])
def test_owners_get_no_power_back_that_they_could_not_give(mount, kind):
    """The owner restores a program to which root gave power, and which the owner removed."""
    place = mount.path / "u"
    place.mkdir()
    os.chown(place, *MEMBER)
    path = program(place / "program", mode=0o755)
    os.chown(path, MEMBER[0], TEAM if kind == "sgid" else MEMBER[1])
    if kind == "sgid":
        path.chmod(0o2755)
    elif kind == "capability":
        os.setxattr(path, CAPABILITY, MAY_READ_ALL)
    content, number = path.read_bytes(), path.stat().st_ino
    assert output_of(path, "-g", groups=()) == str(TEAM if kind == "sgid" else MEMBER[1])
    when = moment()
    path.unlink()
    # The group or the capabilities are missing, and it says so.
    mount.tool("vrevert", "--time", epoch(when), path, user=MEMBER, status=0 if kind == "none" else 1)
    assert path.read_bytes() == content and path.stat().st_uid == MEMBER[0]
    assert CAPABILITY not in os.listxattr(path) and not path.stat().st_mode & stat.S_ISGID
    as_user(lambda: path.chmod(path.stat().st_mode | 0o111), *MEMBER)  # a copy without its group may have less
    assert output_of(path, "-g", groups=()) == str(MEMBER[1])
    assert (path.stat().st_ino == number) == (kind == "none")  # else a copy


@pytest.mark.parametrize("kind", ["suid", "capability"])
@pytest.mark.parametrize("tool", ["vrevert", "vreceive"])
def test_power_comes_with_a_new_file(maker, kind, tool):
    """A user has the file mapped that was a program with power and becomes one again."""
    copy = Copy(maker, maker.mount("allow_other"))
    path = program(copy.source.path / "program", mode=0o755)
    content = path.read_bytes()
    os.link(path, copy.source.path / "other")

    def arm():
        os.chown(path, 0, 0)
        path.chmod(0o4755 if kind == "suid" else 0o755)
        if kind == "capability":
            os.setxattr(path, CAPABILITY, MAY_READ_ALL)

    arm()
    when = moment()
    os.chown(path, *MEMBER)
    path.chmod(0o755)
    place = copy.source.path
    if tool == "vreceive":
        place = copy.path
        place.chmod(0o755)
        copy.follow()
        arm()
    fd, mapping = opened(place / "program")
    before = os.fstat(fd)
    if tool == "vrevert":
        copy.source.run_tool("vrevert", "--time", epoch(when), place)
    else:
        copy.follow()
    for name in ("program", "other"):
        status = (place / name).stat()
        assert (status.st_uid, stat.S_IMODE(status.st_mode)) == (0, 0o4755 if kind == "suid" else 0o755)
        assert (CAPABILITY in os.listxattr(place / name)) == (kind == "capability")
        assert status.st_ino != before.st_ino and status.st_nlink == 2
    assert (os.fstat(fd).st_nlink, os.fstat(fd).st_mode & 0o6000) == (0, 0)
    mapping[:4] = b"evil"
    mapping.close()
    os.close(fd)
    assert (place / "program").read_bytes() == (place / "other").read_bytes() == content
    if tool == "vreceive":
        copy.note_state()
        copy.follow()
        copy.check()
    else:
        copy.source.run_tool("vrevert", "--time", epoch(when), place)
        assert (place / "program").stat().st_ino == status.st_ino


def test_a_link_of_another_user_leads_no_tool(mount, maker):
    outside = maker.tree()
    for top in (outside, mount.path):
        (top / "real").mkdir()
        os.symlink("real", top / "foreign")
        os.chown(top / "foreign", *MEMBER, follow_symlinks=False)
        os.symlink("real", top / "own")
    file = mount.path / "real/file"
    file.write_bytes(b"then")
    when = moment()
    file.write_bytes(b"now")
    result = mount.run_tool("vextract", "--time", epoch(when), "-o", outside / "foreign/out", file)
    assert result.returncode == 1 and "link of another user" in result.stdout, result
    assert os.listdir(outside / "real") == []
    assert mount.run_tool("vextract", "--time", epoch(when), "-o", outside / "own/out", file).returncode == 0
    assert (outside / "real/out").read_bytes() == b"then"
    result = mount.run_tool("vrevert", "--time", epoch(when), mount.path / "foreign/file")
    assert result.returncode == 1 and "link of another user" in result.stdout, result
    assert file.read_bytes() == b"now"
    assert mount.run_tool("vrevert", "--time", epoch(when), mount.path / "own/file").returncode == 0
    assert file.read_bytes() == b"then"
