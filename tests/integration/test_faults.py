# SPDX-License-Identifier: LGPL-2.1-or-later
"""Faults: one clear line, the right status, and nothing lost."""
import contextlib
import errno
import os
import pty
import random
import shutil
import signal
import struct
import time

import pytest

from mounts import LIMIT, QUICK, begin_child, end_of_child, epoch, moment, mounted_at, nanoseconds, run
from operations import Operator
from preload import preloaded
from treestate import differences, state_of


def one_line(output, *words):
    lines = [line for line in output.splitlines() if line.strip()]
    assert len(lines) == 1, output
    for word in words:
        assert str(word).lower() in lines[0].lower(), (word, lines[0])


def logs(mount, suffix):
    return [path for path in mount.logs() if path.suffix == suffix]


# -- refused mounts -------------------------------------------------------------------------------


def test_a_second_daemon_is_refused(mount, maker):
    other = maker.mount(source=mount.source, start=False)
    status, output = other.refused()
    assert status == 1
    one_line(output, mount.source)
    (mount.path / "f").write_bytes(b"the first one goes on")


def test_a_second_daemon_may_read(mount, maker):
    (mount.path / "f").write_bytes(b"one")
    when = moment()
    (mount.path / "f").write_bytes(b"two")
    reader = maker.mount("ro", source=mount.source)
    assert (reader.path / f"f@{epoch(when)}").read_bytes() == b"one"
    with pytest.raises(OSError) as caught:
        (reader.path / "g").touch()
    assert caught.value.errno == errno.EROFS


@pytest.mark.parametrize("make", ["missing", "file", "unreadable"])
def test_a_source_that_is_none(maker, make):
    source = maker.scratch / "source"
    user = None
    if make == "file":
        source.write_bytes(b"x")
    elif make == "unreadable":
        source.mkdir(mode=0o700)
        user = (65534, 65534)
    mount = maker.mount(source=source, start=False, user=user, path=maker.point((65534, 65534)))
    status, output = mount.refused()
    assert status == 1
    one_line(output, source)


def test_a_mount_point_that_is_none(maker):
    mount = maker.mount(path=maker.scratch / "nowhere", start=False)
    status, output = mount.refused()
    assert status == 1
    one_line(output, "nowhere")


def test_a_source_inside_the_mount_point_is_refused(maker):
    point = maker.point()
    (point / "below").mkdir()
    mount = maker.mount(source=point / "below", path=point, start=False)
    status, output = mount.refused()
    assert status == 1
    one_line(output, point)


def test_a_newer_format_is_left_alone(mount):
    (mount.path / "f").write_bytes(b"x")
    mount.stop()
    header = mount.store() / "header"
    data = bytearray(header.read_bytes())
    struct.pack_into("<I", data, 8, 999)
    import ctypes  # pylint: disable=import-outside-toplevel
    xxhash = ctypes.CDLL("libxxhash.so.0")
    xxhash.XXH3_64bits.restype = ctypes.c_uint64
    body = bytes(data[:-8])
    data[-8:] = struct.pack("<Q", xxhash.XXH3_64bits(body, ctypes.c_size_t(len(body))))
    original = header.read_bytes()
    header.write_bytes(data)
    status, output = mount.refused()
    assert status == 1
    one_line(output, "999", mount.source)
    mount.tool("vstat", mount.source / "f", status=1)
    header.write_bytes(original)
    mount.start()
    assert (mount.path / "f").read_bytes() == b"x"


def test_a_damaged_header_is_reported(mount):
    mount.stop()
    header = mount.store() / "header"
    header.write_bytes(b"\0" * 64)
    status, output = mount.refused()
    assert status == 1
    one_line(output, "header")


def test_a_store_of_another_tree_is_refused(mount, maker):
    (mount.path / "f").write_bytes(b"x")
    mount.stop()
    copy = maker.tree()
    run("cp", "-a", f"{mount.source}/.", copy)
    other = maker.mount(source=copy, start=False)
    status, output = other.refused()
    assert status == 1
    one_line(output, copy)
    assert (copy / "f").read_bytes() == b"x"


# -- damage --------------------------------------------------------------------------------------


def flip(path, needle):
    data = bytearray(path.read_bytes())
    at = data.rfind(needle)  # a record names its file before it has its bytes
    assert at >= 0
    data[at] ^= 0xff
    path.write_bytes(data)


def test_a_damaged_payload_is_an_error_and_the_others_are_fine(mount):
    for name in ("bad", "good"):
        (mount.path / name).write_bytes(name.encode() * 200_000)
    when = moment()
    for name in ("bad", "good"):
        with open(mount.path / name, "r+b") as stream:
            stream.write(b"X" * 2000)
    mount.stop()
    flip([p for p in logs(mount, ".undo") if b"badbad" in p.read_bytes()][0], b"badbad")
    mount.expect("damaged|checksum")
    mount.start()
    with pytest.raises(OSError) as caught:
        (mount.path / f"bad@{epoch(when)}").read_bytes()
    assert caught.value.errno == errno.EIO
    assert (mount.path / f"good@{epoch(when)}").read_bytes() == b"good" * 200_000
    assert (mount.path / "bad").read_bytes() == b"X" * 2000 + (b"bad" * 200_000)[2000:]
    assert "good" not in mount.log()
    # Bytes that were not lost by that change are still known.
    with open(mount.path / f"bad@{epoch(when)}", "rb", buffering=0) as stream:
        assert os.pread(stream.fileno(), 3000, 450_000) == b"bad" * 1000
    result = mount.tool("vextract", mount.path / "bad", "--time", epoch(when), "-o", "-", status=1,
                        merge=False)
    assert result.stderr.count("\n") == 1
    mount.tool("vrevert", mount.path / "bad", "--time", epoch(when), status=1)
    assert (mount.path / "bad").read_bytes()[:4] == b"XXXX"
    bad = [p for p in logs(mount, ".undo") if mount.run_tool("vdump", "--verify", p).returncode]
    assert len(bad) == 1


@pytest.mark.parametrize("seed", range(2 if QUICK else 4))
def test_random_damage_is_never_wrong_bytes(mount, seed):
    """Any byte of any log: a past state is exact or an error, the present and the daemon live."""
    rng = random.Random(seed)
    operator = Operator(str(mount.path), seed + 50)
    seen = []
    for _ in range(80):
        operator.step()
        files = {}
        for directory, _, names in os.walk(mount.path):
            for name in names:
                path = os.path.join(directory, name)
                if os.path.isfile(path) and not os.path.islink(path):
                    with open(path, "rb") as stream:
                        files[os.path.relpath(path, mount.path)] = stream.read()
        seen.append((moment(), files))
    operator.close()
    now = state_of(mount.path)
    mount.stop()
    # Damage to the root's own catalog may cost everything; half of the runs spare it.
    spared = f"{os.stat(mount.source).st_ino:016x}-" if seed % 2 else "none"
    for path in logs(mount, ".undo") + logs(mount, ".cat"):
        data = bytearray(path.read_bytes())
        if path.name.startswith(spared):
            continue
        for _ in range(rng.randrange(3)):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
    mount.expect(".")
    mount.start()
    assert differences(now, state_of(mount.path)) == []
    exact = wrong = 0
    for when, files in seen:
        for name, content in files.items():
            try:
                with open(mount.at(when) / name, "rb") as stream:
                    wrong += stream.read() != content
                exact += 1
            except OSError as error:
                assert error.errno in (errno.EIO, errno.ENOENT, errno.ENOTDIR), error
    assert wrong == 0 and (exact > 0 or spared == "none")
    assert mount.process.poll() is None


def test_a_torn_tail_is_cut(mount):
    path = mount.path / "f"
    path.write_bytes(b"one")
    when = moment()
    with open(path, "r+b") as stream:
        stream.write(b"two")
    mount.kill()
    for log in mount.logs():
        with open(log, "r+b") as stream:
            data = stream.read()
            stream.write(data[:30])
    mount.start()
    assert path.read_bytes() == b"two"
    assert (mount.path / f"f@{epoch(when)}").read_bytes() == b"one"
    path.write_bytes(b"three")
    assert (mount.path / f"f@{epoch(when)}").read_bytes() == b"one"
    mount.remount()
    assert (mount.path / f"f@{epoch(when)}").read_bytes() == b"one"
    mount.check_store()


# -- a full disk ---------------------------------------------------------------------------------


@pytest.mark.parametrize("small_kind", ["ext4", "xfs"])
def test_a_full_disk_loses_nothing(maker, small_kind):
    size = 48 if small_kind == "ext4" else 320
    root = maker.file_systems.make(small_kind, f"full-{small_kind}-{time.time_ns()}", size)
    try:
        source = root / "tree"
        source.mkdir()
        mount = maker.mount("allow_other", source=source, kind=small_kind)
        (mount.path / "d").mkdir()
        for i in range(20):
            (mount.path / "d" / f"f{i}").write_bytes(os.urandom(100_000))
        when, before = moment(), state_of(mount.path)
        mount.expect("space|ENOSPC")
        refused = 0
        for i in range(20_000):
            try:
                with open(mount.path / "d" / f"f{i % 20}", "r+b", buffering=0) as stream:
                    os.pwrite(stream.fileno(), os.urandom(100_000), 0)
            except OSError as error:
                assert error.errno == errno.ENOSPC, error
                refused += 1
                if refused > 30:
                    break
        assert refused > 30
        with pytest.raises(OSError) as caught:
            for i in range(100_000):
                (mount.path / f"new{i}").write_bytes(b"x" * 4096)
        assert caught.value.errno == errno.ENOSPC
        now = state_of(mount.path)
        assert differences(before, state_of(mount.at(when))) == []
        mount.stop()
        mount.start()
        assert differences(now, state_of(mount.path)) == []
        assert differences(before, state_of(mount.at(when))) == []
        mount.stop()
    finally:
        maker.close()
        maker.mounts.clear()
        maker.file_systems.unmake(root)


# -- death ---------------------------------------------------------------------------------------


def test_a_killed_daemon_loses_nothing(any_mount):
    root = any_mount.path
    seen = []
    operator = Operator(str(root), 21)
    for step in range(120):
        operator.step()
        if step % 10 == 9:
            seen.append((moment(), state_of(root)))
        if step % 40 == 39:
            operator.close()
            now = state_of(root)
            any_mount.kill()
            any_mount.start()
            assert differences(now, state_of(root)) == []
    operator.close()
    for when, state in seen:
        assert differences(state, state_of(any_mount.at(when))) == []
    any_mount.check_store()


def churn(root, seed):
    """Until something fails."""
    operator = Operator(str(root), seed)
    with contextlib.suppress(OSError, AssertionError, ValueError):
        while True:
            operator.step()
    return 1


def test_a_daemon_killed_in_the_middle_of_work(any_mount):
    """Nobody knows which change was under way; every state seen before it is exact all the same."""
    root = any_mount.path
    rng = random.Random(31)
    for round_number in range(6):
        fresh = root / f"round{round_number}"
        fresh.mkdir()
        for i in range(8):
            (fresh / f"f{i}").write_bytes(rng.randbytes(30_000))
        when, before = moment(), state_of(root)
        worker = begin_child(lambda seed=40 + round_number: churn(root, seed))
        time.sleep(rng.uniform(0.02, 0.3))
        any_mount.process.kill()
        os.kill(worker, signal.SIGKILL)  # before the unmount: it would continue below the mount
        assert end_of_child(worker) in (1, -signal.SIGKILL, -signal.SIGBUS)
        any_mount.kill()
        any_mount.start()
        now = state_of(root)
        assert differences(before, state_of(any_mount.at(when))) == []
        assert differences(now, state_of(any_mount.at(moment()))) == []
    any_mount.check_store()


def test_changes_under_way_are_completed_at_the_next_start(mount):
    """A slot that remains taken is lost for good; with 63 of them nothing can be changed any more."""
    head, size, count = 64, 64, 63
    (mount.path / "f").write_bytes(b"x")
    mount.kill()
    inflight = mount.store() / "inflight"
    data = bytearray(inflight.read_bytes())
    for slot in range(count):
        struct.pack_into("<QQIIIIQQQQ", data, head + slot * size, slot + 1, time.time_ns(), 1, 0,
                         0, 1, 99, 99, 99, 99)
    inflight.write_bytes(data)
    mount.start()
    data = inflight.read_bytes()
    assert [s for s in range(count) if any(data[head + s * size:head + s * size + 8])] == []
    (mount.path / "f").write_bytes(b"y")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly(mount, number):
    path = mount.path / "f"
    path.write_bytes(b"one")
    when = moment()
    path.write_bytes(b"two")
    process = mount.process
    process.send_signal(number)
    assert process.wait(timeout=LIMIT) == 0
    mount.kill()
    mount.start()
    assert path.read_bytes() == b"two"
    assert (mount.path / f"f@{epoch(when)}").read_bytes() == b"one"


ABORTED = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <unistd.h>
ssize_t read(int fd, void *buffer, size_t size)
{
    ssize_t (*real)(int, void *, size_t) = dlsym(RTLD_NEXT, "read");
    ssize_t r = real(fd, buffer, size);
    if (r < 0 && errno == ENODEV)
        errno = ECONNABORTED;
    return r;
}
"""


def test_an_unmount_while_a_request_is_taken(maker, tmp_path):
    """A read of the device fails with ECONNABORTED, not ENODEV, if the unmount comes between two steps of it."""
    mount = maker.mount(start=False)
    with preloaded(tmp_path, ABORTED):
        mount.start()
    mount.path.joinpath("f").write_bytes(b"one")
    process = mount.process
    mount.unmount()
    assert process.wait(timeout=LIMIT) == 0
    assert "reading device" in mount.log()
    mount.kill()
    mount.start()
    assert (mount.path / "f").read_bytes() == b"one"


def test_a_hangup_does_not_end_it_without_a_terminal(mount):
    mount.process.send_signal(signal.SIGHUP)
    (mount.path / "f").write_bytes(b"one")
    assert mount.process.poll() is None


def test_a_terminal_that_hangs_up_ends_it(mount):
    mount.stop()
    child, terminal = pty.fork()
    if child == 0:
        os.execve(mount.programs.directory / "wayback", mount.command(), mount.programs.environment())
    deadline = time.monotonic() + LIMIT
    while not mounted_at(mount.path):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert not mounted_at(mount.path)
    mount.start()


def test_the_clock_continues_from_the_time_in_the_store(mount):
    """A clock set back must not make later changes look earlier: the store remembers its last."""
    path = mount.path / "f"
    whens = []
    for i in range(3):
        path.write_bytes(b"%d" % i)
        mount.kill() if i == 1 else mount.stop()
        mount.start()
    import json  # pylint: disable=import-outside-toplevel
    document = json.loads(mount.tool("vstat", "--operations", "--json", path).stdout)
    document = document[0] if isinstance(document, list) else document
    whens = [nanoseconds(v) for v in document["versions"]]
    assert whens == sorted(set(whens), reverse=True) and len(whens) >= 4


def test_a_tree_without_its_store_is_the_users_files(mount):
    operator = Operator(str(mount.path), 77)
    for _ in range(100):
        operator.step()
    operator.close()
    now = state_of(mount.path)
    mount.stop()
    shutil.rmtree(mount.source / ".wayback")
    found = differences(now, state_of(mount.source))
    assert [line for line in found if not line.startswith(".: ")] == []
