# SPDX-License-Identifier: LGPL-2.1-or-later
"""Many clients at once, clients that wait for each other, and one that keeps the daemon waiting."""
import os
import random
import signal
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import crowd
import pytest

from mounts import LIMIT, QUICK, moment, mounted_at, run

CLIENTS = 16 if QUICK else 64
STEPS = 12 if QUICK else 40


def work(path, number):
    """One client changes files of its own; returns their final contents."""
    rng = random.Random(number)
    directory = path / f"client{number}"
    directory.mkdir()
    files = {}
    for step in range(STEPS):
        name = f"f{rng.randrange(4)}"
        data = rng.randbytes(rng.randrange(1, 20000))
        file = directory / name
        fd = os.open(file, os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if rng.random() < 0.5 else 0))
        try:
            old = files.get(name, b"")[:os.fstat(fd).st_size]
            assert os.pwrite(fd, data, 0) == len(data)
            if step % 10 == 0:
                os.fsync(fd)
        finally:
            os.close(fd)
        files[name] = data + old[len(data):]
        assert file.read_bytes() == files[name]
        if rng.random() < 0.3:
            file.rename(directory / f"g{step}")
            files[f"g{step}"] = files.pop(name)
    return files


def contents(path):
    return {file.name: file.read_bytes() for file in path.iterdir()}


def test_many_clients_at_once(maker):
    mount = maker.mount()
    with ThreadPoolExecutor(CLIENTS) as clients:
        expected = list(clients.map(lambda n: work(mount.path, n), range(CLIENTS)))
    then = moment()
    for number, files in enumerate(expected):
        assert contents(mount.path / f"client{number}") == files
        assert contents(mount.source / f"client{number}") == files
    run("rm", "-r", *(mount.path / f"client{number}" for number in range(CLIENTS)))
    for number in (0, CLIENTS - 1):
        assert contents(mount.at(then, f"client{number}")) == expected[number]
    mount.stop()
    mount.check_store()


def test_a_crowd_on_shared_files_is_in_order(maker):
    """See crowd.py; for longer: tests/soak/many."""
    mount = maker.mount()
    root, results = crowd.crowd(mount, 4 if QUICK else 8, seconds=20, steps=25 if QUICK else 60)
    assert crowd.check(mount, root, results, most=15) >= 100
    mount.stop()
    mount.check_store()


# ---- one that takes long -------------------------------------------------------------------------

@pytest.fixture(name="freezable")
def fixture_freezable(file_systems):
    """A file system of its own: while it is frozen, every change of it waits in the middle."""
    root = file_systems.make("ext4", "freezable-clients", 64)
    run("mount", "-o", "remount,noatime", root)
    yield root
    file_systems.unmake(root)


def test_others_continue_while_some_are_stuck(freezable, maker):
    source = freezable / "tree"
    source.mkdir()
    for number in range(60):
        (source / f"other{number}").write_bytes(b"%d" % number * 5000)
    store = maker.tree("xfs") / "store"
    mount = maker.mount(f"store={store}", source=source)
    stuck = [mount.path / f"stuck{number}" for number in range(6)]
    for file in stuck:
        file.write_bytes(b"old" * 1000)
    assert not list(store.rglob("*.undo"))
    run("fsfreeze", "--freeze", freezable)
    # Whatever fails here, no process is left hanging.
    guard = subprocess.Popen(["sh", "-c", "sleep 600; exec fsfreeze --unfreeze \"$0\"", str(freezable)],
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)

    def overwrite(file):
        fd = os.open(file, os.O_WRONLY)
        os.pwrite(fd, b"new" * 1000, 0)
        os.close(fd)

    threads = [threading.Thread(target=overwrite, args=(file,)) for file in stuck]
    try:
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + LIMIT
        while len([log for log in store.rglob("*.undo") if log.stat().st_size]) < len(stuck):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        for number in range(60):
            assert (mount.path / f"other{number}").read_bytes() == b"%d" % number * 5000
        assert all(thread.is_alive() for thread in threads)
    finally:
        os.killpg(guard.pid, signal.SIGKILL)
        guard.wait()
        run("fsfreeze", "--unfreeze", freezable, check=False)
        for thread in threads:
            thread.join()
    assert [file.read_bytes() for file in stuck] == [b"new" * 1000] * len(stuck)


def test_a_program_that_ended_just_now_can_be_replaced(maker):
    """O_RDONLY | O_TRUNC waits for the release of the program, which is another request."""
    mount = maker.mount()
    program = mount.path / "program"
    for _ in range(20):
        program.unlink(missing_ok=True)
        with open("/bin/true", "rb") as stream:
            program.write_bytes(stream.read())
        program.chmod(0o755)
        run(program)
        os.close(os.open(program, os.O_RDONLY | os.O_TRUNC))
        assert program.stat().st_size == 0


# ---- the end -------------------------------------------------------------------------------------

def test_it_ends_although_a_file_is_still_open(maker):
    """The kernel keeps the connection for a process that has a file open: the worker that reads requests is woken."""
    mount = maker.mount()
    mount.expect("not mounted|failed to unmount")  # libfuse's umount, after ours; which one depends on /etc/mtab
    with open(mount.path / "f", "wb") as stream:
        stream.write(b"x" * 10000)
        stream.flush()
        mount.process.send_signal(signal.SIGTERM)
        assert mount.process.wait(timeout=LIMIT) == 0
    mount.kill()
    assert mounted_at(mount.path) is None
    assert (mount.source / "f").read_bytes() == b"x" * 10000
