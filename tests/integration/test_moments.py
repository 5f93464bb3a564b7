# SPDX-License-Identifier: LGPL-2.1-or-later
"""wayback -o at=TIME: a whole tree at a moment, mounted beside the present or without it."""
import errno
import os
import random
import re
import signal
import subprocess
import threading
import time

import pytest

from mounts import LIMIT, NOBODY, SECOND, as_user, drop_caches, epoch, moment, mounted_at, run
from operations import Operator
from treestate import differences, state_of


def at(when):
    return f"at={epoch(when)}"


def then(maker, mount, when, *options, **named):
    """That moment of the mount's source, mounted."""
    return maker.mount(at(when), *mount.store_options(), *options, source=mount.source, **named)


def busy_tree(root, seed, steps=60, moments=6):
    """Random changes; [(when, state)] of moments between them."""
    operator, found = Operator(str(root), seed), []
    for step in range(steps):
        operator.step()
        if step % (steps // moments) == 0:
            found.append((moment(), state_of(root)))
    operator.close()
    return found


def everything(*roots):
    """Every byte and every time that could change, of trees with their stores."""
    result = []
    for root in roots:
        for path, names, files in os.walk(root):
            names.sort()
            for name in ["."] + sorted(names) + sorted(files):
                whole = os.path.join(path, name)
                status = os.lstat(whole)
                entry = [whole, status.st_ino, status.st_mode, status.st_nlink, status.st_size,
                         status.st_mtime_ns, status.st_ctime_ns]
                if os.path.isfile(whole) and not os.path.islink(whole):
                    with open(whole, "rb") as stream:
                        entry.append(hash(stream.read()))
                result.append(tuple(entry))
    return result


# ---- the view ----------------------------------------------------------------------------------

def test_moments_are_mounted_as_they_were(any_mount, maker):
    expected = busy_tree(any_mount.path, 7)
    for when, state in expected:
        past = then(maker, any_mount, when)
        assert differences(state, state_of(past.path)) == []
        past.stop()
    any_mount.stop()
    for when, state in expected[::2]:
        past = then(maker, any_mount, when, "allow_other")
        assert differences(state, state_of(past.path)) == []


def test_a_moment_is_exact_while_the_present_changes(mount, maker):
    expected = busy_tree(mount.path, 11)
    when, state = expected[2]
    past = then(maker, mount, when)
    over = threading.Event()

    def keep_changing():
        operator = Operator(str(mount.path), 12)
        while not over.is_set():
            operator.step()
        operator.close()

    worker = threading.Thread(target=keep_changing)
    worker.start()
    try:
        for _ in range(3):
            assert differences(state, state_of(past.path)) == []
        # And with nothing remembered from before.
        again = then(maker, mount, when, "allow_other")
        assert differences(state, state_of(again.path)) == []
    finally:
        over.set()
        worker.join()


def test_now_does_not_change_while_others_write(mount, maker):
    """A change under way when it is mounted is in it or is not, for good."""
    for name in "abc":
        (mount.path / name).write_bytes(bytes(1 << 20))
    over = threading.Event()

    def write(name):
        generator = random.Random(name)
        with open(mount.path / name, "r+b", buffering=0) as stream:
            while not over.is_set():
                data = generator.randbytes(1 << 18)
                os.pwrite(stream.fileno(), data, generator.randrange(0, 3 << 18))

    workers = [threading.Thread(target=write, args=(name,)) for name in "abc"]
    for worker in workers:
        worker.start()
    try:
        pasts = []
        for _ in range(4):
            past = maker.mount("at=now", source=mount.source)
            pasts.append((past, state_of(past.path)))
    finally:
        over.set()
        for worker in workers:
            worker.join()
    for past, state in pasts:
        drop_caches(3)
        assert differences(state, state_of(past.path)) == []


def test_a_relative_time_is_fixed_when_it_is_mounted(mount, maker):
    (mount.path / "one").mkdir()
    (mount.path / "two").mkdir()
    past = maker.mount("at=~1", source=mount.source)
    now = maker.mount("at=0s", source=mount.source)
    (mount.path / "three").mkdir()
    assert os.listdir(past.path) == ["one"]
    assert sorted(os.listdir(now.path)) == ["one", "two"]


@pytest.mark.parametrize("write", [epoch, lambda when: time.strftime("%Y-%m-%dT%H:%M:%S",
                                                                     time.localtime(when // 10**9)),
                                   lambda when: time.strftime("%Y-%m-%d %H:%M:%S",
                                                              time.localtime(when // 10**9))])
def test_times_as_people_write_them(mount, maker, write):
    (mount.path / "f").write_bytes(b"old")
    time.sleep(1.1)
    when = time.time_ns()
    time.sleep(0.1)
    if write is not epoch:
        when -= when % 10**9
    while time.time_ns() < when:
        pass
    (mount.path / "f").write_bytes(b"new")
    past = maker.mount(f"at={write(when)}", source=mount.source)
    assert (past.path / "f").read_bytes() == b"old"


def test_other_times_can_be_named_inside(mount, maker):
    (mount.path / "f").write_bytes(b"first")
    first = moment()
    (mount.path / "f").write_bytes(b"second")
    second = moment()
    (mount.path / "f").write_bytes(b"third")
    past = then(maker, mount, second)
    assert (past.path / "f").read_bytes() == b"second"
    assert (past.path / f"f@{epoch(first)}").read_bytes() == b"first"
    assert (past.path / f"@{epoch(first)}" / "f").read_bytes() == b"first"
    assert not (past.path / "f@1").exists()
    later = moment()
    assert (past.path / f"f@{epoch(later)}").read_bytes() == b"third"


def test_programs_find_a_file_system(mount, maker):
    os.makedirs(mount.path / "d/e")
    (mount.path / "d/f").write_bytes(b"x" * 5000)
    os.link(mount.path / "d/f", mount.path / "d/e/g")
    when = moment()
    run("rm", "-r", mount.path / "d")
    past = then(maker, mount, when)
    line = run("findmnt", "-n", "-o", "SOURCE,OPTIONS,FSTYPE", past.path).stdout
    assert re.search(r"@\d{4}-\d\d-\d\dT\S+ ro,.* fuse.wayback$", line.strip()), line
    assert str(mount.source) in line
    names = run("find", past.path, "-inum", os.lstat(past.path / "d/f").st_ino).stdout.split()
    assert sorted(names) == [f"{past.path}/d/e/g", f"{past.path}/d/f"]
    assert os.lstat(past.path).st_ino == os.lstat(past.path / "d/..").st_ino
    assert os.statvfs(past.path).f_flag & os.ST_RDONLY
    assert os.statvfs(past.path).f_blocks == os.statvfs(mount.source).f_blocks
    for change in (lambda: os.mkdir(past.path / "x"), lambda: os.unlink(past.path / "d/f"),
                   lambda: os.chmod(past.path, 0o700), lambda: open(past.path / "d/f", "ab")):
        with pytest.raises(OSError) as caught:
            change()
        assert caught.value.errno == errno.EROFS


# ---- nothing is changed --------------------------------------------------------------------------

@pytest.mark.parametrize("apart", [False, True])
def test_no_byte_and_no_time_of_source_and_store_changes(maker, apart):
    store = [f"store={maker.tree()}/store"] if apart else []
    mount = maker.mount(*store)
    when, state = busy_tree(mount.path, 21)[3]
    mount.stop()
    roots = [mount.source] + [option[len("store="):] for option in store]
    before = everything(*roots)
    past = maker.mount(at(when), *store, source=mount.source)
    assert differences(state, state_of(past.path)) == []
    mount.tool("vstat", past.path)
    past.stop()
    past = maker.mount(at(when), "allow_other", *store, source=mount.source)
    past.kill()
    assert everything(*roots) == before


def test_a_source_that_is_mounted_read_only(maker):
    mount = maker.mount()
    when, state = busy_tree(mount.path, 22)[3]
    mount.stop()
    point = maker.point()
    run("mount", "--bind", mount.source, point)
    run("mount", "-o", "remount,bind,ro", point)
    try:
        past = maker.mount(at(when), source=point)
        assert differences(state, state_of(past.path)) == []
        past.stop()
    finally:
        run("umount", point)


def test_no_lock_is_taken(mount, maker):
    (mount.path / "f").write_bytes(b"x")
    when = moment()
    mount.stop()
    pasts = [then(maker, mount, when) for _ in range(2)]
    mount.start()
    (mount.path / "f").write_bytes(b"y")
    assert [(past.path / "f").read_bytes() for past in pasts] == [b"x", b"x"]


# ---- permissions ---------------------------------------------------------------------------------

def test_an_ordinary_user(user_mount, maker):
    def change():
        for name in ("old", "new"):
            (user_mount.path / "f").write_text(name, encoding="ascii")
            yield moment()

    when, _ = as_user(lambda: list(change()), *NOBODY)
    past = maker.mount(at(when), source=user_mount.source, user=NOBODY)
    assert as_user(lambda: (past.path / "f").read_text(encoding="ascii"), *NOBODY) == "old"
    with pytest.raises(PermissionError):
        os.listdir(past.path)


def test_a_source_and_a_store_that_are_readable_only(maker):
    store = maker.tree() / "store"
    mount = maker.mount(f"store={store}")
    (mount.path / "f").write_bytes(b"old")
    when = moment()
    (mount.path / "f").write_bytes(b"new")
    mount.stop()
    options = [at(when), f"store={store}"]
    status, said = maker.mount(*options, source=mount.source, user=NOBODY, start=False).refused()
    assert status == 1 and str(store) in said and "Permission denied" in said
    run("chmod", "-R", "a+rX", store)
    past = maker.mount(*options, source=mount.source, user=NOBODY)
    assert as_user(lambda: (past.path / "f").read_bytes(), *NOBODY) == b"old"


def test_a_file_closed_since_is_closed(mount, maker):
    secret = mount.path / "d/secret"
    secret.parent.mkdir()
    secret.write_bytes(b"secret")
    when = moment()
    past = then(maker, mount, when, "allow_other")

    def read(name="d/secret"):
        return as_user(lambda: (past.path / name).read_bytes(), *SECOND)

    assert read() == b"secret"
    os.chmod(secret.parent, 0o700)
    with pytest.raises(PermissionError):
        read()
    os.chmod(secret.parent, 0o755)
    assert read() == b"secret"
    os.chmod(secret, 0o600)
    with pytest.raises(PermissionError):
        read()


# ---- place of the tree ---------------------------------------------------------------------------

@pytest.mark.parametrize("user", [None, NOBODY])
@pytest.mark.parametrize("apart", [False, True])
def test_a_tree_that_its_mount_covers(maker, user, apart):
    source = maker.tree(owner=user)
    store = maker.tree(owner=user) / "store"
    options = [f"store={store}"] if apart else []
    mount = maker.mount(*options, source=source, path=source, user=user)

    def change():
        os.makedirs(source / "d/e")
        (source / "d/f").write_bytes(b"old")
        when = moment()
        (source / "d/f").write_bytes(b"new")
        (source / "d").rename(source / "moved")
        return when

    when = as_user(change, *(user or (0, 0)))
    past = maker.mount(at(when), source=source, user=user)
    below = maker.mount(at(when), source=source / "moved", user=user)
    found = as_user(lambda: (os.listdir(past.path), (past.path / "d/f").read_bytes(),
                             sorted(os.listdir(below.path)), os.listdir(below.path / "..")),
                    *(user or (0, 0)))
    assert found[:3] == (["d"], b"old", ["e", "f"])
    assert mount.process.poll() is None


def test_another_user_cannot_look_below_a_cover(maker):
    source = maker.tree()
    maker.mount("allow_other", source=source, path=source)
    status, said = maker.mount("at=now", source=source, user=NOBODY, start=False).refused()
    assert status == 1 and "covered by its mount" in said


def test_a_directory_of_a_tree(maker):
    mount = maker.mount()
    os.makedirs(mount.path / "a/b/c")
    when = moment()
    (mount.path / "a/b/d").mkdir()
    for source in (mount.path / "a/b", mount.source / "a/b"):
        past = maker.mount(at(when), source=source)
        assert os.listdir(past.path) == ["c"]
        assert f"{mount.source}/a/b@" in run("findmnt", "-n", "-o", "SOURCE", past.path).stdout
        past.stop()
    # By its path, if there was one; another directory may have it by now.
    (mount.path / "a/b").rename(mount.path / "a/old")
    (mount.path / "a/b").mkdir()
    past = maker.mount(at(when), source=mount.path / "a/b")
    assert os.listdir(past.path) == ["c"]


def test_tools_do_not_take_a_moment_for_the_tree(mount, maker):
    """A path in SRC leads to the mount of the present, not to one of the past."""
    (mount.path / "f").write_bytes(b"old")
    when = moment()
    (mount.path / "f").write_bytes(b"new")
    then(maker, mount, when, "fsname=anything")
    mount.tool("vrevert", mount.source / "f", "--time", epoch(when))
    assert (mount.path / "f").read_bytes() == b"old"


def test_tools_work_inside(mount, maker):
    (mount.path / "f").write_bytes(b"old")
    when = moment()
    (mount.path / "f").write_bytes(b"new")
    past = then(maker, mount, when)
    out = maker.scratch / "out"
    mount.tool("vextract", past.path / "f", "--time", epoch(when), "-o", out)
    assert out.read_bytes() == b"old"
    said = mount.tool("vrevert", past.path / "f", "--time", epoch(when), status=1).stdout
    assert "read-only" in said


# ---- bad input ----------------------------------------------------------------------------------

@pytest.mark.parametrize("options, status, words", [
    (["at=9000000000"], 1, "in the future"),
    (["at=1000000000"], 1, "begins later, at 20"),
    (["at=nonsense"], 1, "no such time"),
    (["at="], 2, "the time is missing"),
    (["at=now", "history=none"], 2, "exclude each other"),
])
def test_error_messages(mount, maker, options, status, words):
    (mount.path / "f").write_bytes(b"x")
    code, said = maker.mount(*options, source=mount.source, start=False).refused()
    assert (code, words in said) == (status, True), said
    assert len(said.splitlines()) == 1


def test_there_must_be_a_store(maker):
    tree = maker.tree()
    code, said = maker.mount("at=now", source=tree, start=False).refused()
    assert code == 1 and f"there is no store {tree}/.wayback" in said
    assert os.listdir(tree) == []
    plain = maker.mount("history=none", source=tree)
    code, said = maker.mount("at=now", source=plain.path, start=False).refused()
    assert code == 1 and "without a history" in said


def test_the_mount_point_is_elsewhere(mount, maker):
    inside = mount.path / "inside"
    inside.mkdir()
    for source, path, words in ((mount.source, mount.source / "inside", "inside of"),
                                (mount.source, mount.path / "inside", "inside of a mount"),
                                (mount.path, inside, "inside of a mount"),
                                (mount.source, mount.source, "MNT is missing")):
        past = maker.mount("at=now", source=source, path=path, start=False)
        code, said = past.refused()
        assert (code, words in said) == (2 if source == path else 1, True), said


def test_a_path_that_did_not_exist_then(mount, maker):
    when = moment()
    (mount.path / "young").mkdir()
    (mount.path / "was-file").write_bytes(b"")
    between = moment()
    os.unlink(mount.path / "was-file")
    (mount.path / "was-file").mkdir()
    code, said = maker.mount(at(when), source=mount.path / "young", start=False).refused()
    assert code == 1 and "at that time" in said
    code, said = maker.mount(at(between), source=mount.path / "was-file", start=False).refused()
    assert code == 1 and "not a directory then" in said


# ---- ends ---------------------------------------------------------------------------------------

def test_forgetting_while_it_is_viewed(any_mount, maker):
    """A view refuses states that vrm erases, and does not invent them; the rest is still shown."""
    for name in ("gone", "stays"):
        (any_mount.path / name).write_bytes(name.encode() * 1000)
    when = moment()
    for name in ("gone", "stays"):
        (any_mount.path / name).write_bytes(b"later")
    past = then(maker, any_mount, when, "allow_other")
    past.expect("erased|not known")
    held = open(past.path / "stays", "rb")  # pylint: disable=consider-using-with
    any_mount.tool("vrm", "-y", any_mount.path / "gone")
    with pytest.raises(OSError) as caught:
        (past.path / "gone").read_bytes()
    assert caught.value.errno in (errno.EIO, errno.ENOENT)
    assert (past.path / "stays").read_bytes() == b"stays" * 1000
    assert held.read() == b"stays" * 1000
    held.close()


def test_a_killed_daemon_of_the_past_takes_nothing_along(mount, maker):
    (mount.path / "f").write_bytes(b"old")
    when = moment()
    past = then(maker, mount, when)
    past.kill()
    (mount.path / "f").write_bytes(b"new")
    past.start()
    assert (past.path / "f").read_bytes() == b"old"


def test_a_daemon_killed_at_work_is_not_waited_for(maker):
    mount = maker.mount()
    expected = busy_tree(mount.path, 31)
    with subprocess.Popen(["sh", "-c", f"cd {mount.path}; while echo x >>f; do :; done"],
                          stderr=subprocess.DEVNULL) as writer:
        time.sleep(0.2)
        mount.kill()
        writer.wait()
    past = maker.mount("at=now", source=mount.source)
    state = state_of(past.path)
    mount.start()
    for when, before in expected:
        older = then(maker, mount, when)
        assert differences(before, state_of(older.path)) == []
        older.stop()
    drop_caches(3)
    assert differences(state, state_of(past.path)) == []


def test_the_moment_is_gone_when_it_is_unmounted(mount, maker):
    past = then(maker, mount, moment())
    process = past.process
    past.stop()
    assert process.returncode == 0
    assert mounted_at(past.path) is None


# ---- changes under way ---------------------------------------------------------------------------

@pytest.fixture(name="freezable", params=["at", "snapshot"])
def fixture_freezable(file_systems, request):
    """A file system of its own; while it is frozen, every change waits in the middle."""
    root = file_systems.make("ext4", f"freezable-{request.param}", 64)
    run("mount", "-o", "remount,noatime", root)
    yield root
    file_systems.unmake(root)


def begin_a_change(mount, root):
    """A thread that is in the middle of overwriting `f`: recorded, and not done before root is thawed."""
    (mount.path / "f").write_bytes(b"old" * 1000)
    assert not list(mount.store().rglob("*.undo"))
    run("fsfreeze", "--freeze", root)
    # Whatever fails here, no process is left hanging.
    guard = subprocess.Popen(["sh", "-c", "sleep 600; exec fsfreeze --unfreeze \"$0\"", str(root)],
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)

    def overwrite():
        fd = os.open(mount.path / "f", os.O_WRONLY)
        os.pwrite(fd, b"new" * 1000, 0)
        os.close(fd)

    worker = threading.Thread(target=overwrite)
    worker.start()
    deadline = time.monotonic() + LIMIT
    # A log is made before the record is: one with bytes has it.
    while not any(log.stat().st_size for log in mount.store().rglob("*.undo")):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    moment()
    return worker, guard


def test_a_change_under_way_is_awaited(freezable, maker, request):
    """It is in the moment, since its record came before; so a look waits until it is done."""
    source = freezable / "tree"
    source.mkdir()
    store = maker.tree("xfs") / "store"
    mount = maker.mount("allow_other", f"store={store}", source=source)
    worker, guard = begin_a_change(mount, freezable)
    seen = {}

    def look():
        if request.node.callspec.params["freezable"] == "at":
            seen["path"] = maker.mount("at=0s", f"store={store}", source=source).path
        else:
            mount.tool("vsnap", "create", "s", mount.path)
            seen["path"] = mount.path / ".snapshot" / "s"
        seen["f"] = (seen["path"] / "f").read_bytes()

    looker = threading.Thread(target=look)
    try:
        looker.start()
        time.sleep(1.5)
        early = dict(seen)
    finally:
        os.killpg(guard.pid, signal.SIGKILL)
        guard.wait()
        run("fsfreeze", "--unfreeze", freezable)
        looker.join()
        worker.join()
    assert early == {}
    assert seen["f"] == b"new" * 1000
    for other in mount.path, seen["path"]:
        assert (other / "f").read_bytes() == b"new" * 1000
