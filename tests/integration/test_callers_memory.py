# SPDX-License-Identifier: LGPL-2.1-or-later
"""A process whose memory cannot be read blocks nobody: its user mapped a file of a file system that does not answer."""
import contextlib
import json
import os
import platform
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import snapshots
from mounts import NOBODY, run

READ, PREAD, MMAP = ("0", "17", "9") if platform.machine() == "x86_64" else ("63", "67", "222")
PROC = Path("/proc")
PROCESSES = 12  # more than the daemon has workers
ANSWERED = 30  # seconds in which any answer comes, unless the daemon waits for something that does not end

# The child reads the mapped page in the memory of its parent, and so keeps the parent's memory locked; a thread of the
# parent waits for the lock to write, and so every later reader of the memory waits behind it.
LOCKED = """
import ctypes, os, sys, threading
mapped, target, what = sys.argv[1:4]
def change(path):
    if what == "mkdir":
        os.mkdir(path)
    else:
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o666))
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
address = libc.mmap(None, ctypes.c_size_t(4096), 1, 1, os.open(mapped, os.O_RDONLY), ctypes.c_long(0))
try:
    change("/proc/none")
except OSError:
    pass
parent = os.getpid()
reading, writing = os.pipe()
child = os.fork()
if child == 0:
    os.read(reading, 1)
    os.pread(os.open(f"/proc/{parent}/mem", os.O_RDONLY), 1, address)
    os._exit(0)
begin = threading.Event()
def want_to_change():
    begin.wait()
    libc.mmap(None, ctypes.c_size_t(4096), 1, 0x22, -1, ctypes.c_long(0))
thread = threading.Thread(target=want_to_change)
thread.start()
print(child, thread.native_id, flush=True)
sys.stdin.readline()
os.write(writing, b"x")
sys.stdin.readline()
begin.set()
sys.stdin.readline()
change(target)
"""


def call_of(task):
    """The number of the system call it is in, as text; empty once it has ended."""
    with contextlib.suppress(OSError):
        return (task / "syscall").read_text(encoding="ascii").split()[0]
    return ""


def are_stopped(tasks):
    return all((task / "stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()[0] == "T" for task in tasks.iterdir())


def wait_for(condition):
    deadline = time.monotonic() + ANSWERED
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def trigger(process):
    process.stdin.write("\n")
    process.stdin.flush()


@contextlib.contextmanager
def locked_processes(maker, targets, what):
    """A process of a user for each target, on its way to change it. The daemon of the user's own mount is stopped."""
    own = maker.mount(user=NOBODY, start=False)
    (own.source / "f").write_bytes(bytes(4096))
    own.start()
    processes = []
    try:
        for target in targets:
            processes.append(subprocess.Popen(
                ["setpriv", f"--reuid={NOBODY[0]}", f"--regid={NOBODY[1]}", "--clear-groups", sys.executable, "-c", LOCKED,
                 own.path / "f", target, what], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/", text=True))
        parts = [process.stdout.readline().split() for process in processes]
        own.process.send_signal(signal.SIGSTOP)
        wait_for(lambda: are_stopped(PROC / str(own.process.pid) / "task"))
        for process, (child, thread) in zip(processes, parts):
            trigger(process)
            wait_for(lambda: call_of(PROC / child) == PREAD)  # pylint: disable=cell-var-from-loop
            trigger(process)
            wait_for(lambda: call_of(PROC / thread) == MMAP)  # pylint: disable=cell-var-from-loop
        for process in processes:
            trigger(process)
        yield processes
    finally:
        own.process.send_signal(signal.SIGCONT)
        for process in processes:
            process.kill()
            process.communicate()


@pytest.mark.parametrize("what", ["create", "mkdir"])
def test_memory_that_cannot_be_read_blocks_nobody(mount, maker, what):
    """For a change the daemon reads the command line of the process, and for a name that could mean the past the path
    that was passed."""
    root = mount.path
    root.chmod(0o777)
    (root / "d").mkdir()
    (root / "f").write_bytes(b"f")
    snapshots.add(mount, "then")
    (root / "d").rmdir()
    names = [f"new{i}" if what == "create" else "d@then" for i in range(PROCESSES)]
    with locked_processes(maker, [root / name for name in names], what) as processes:
        for process in processes:
            wait_for(lambda: call_of(PROC / str(process.pid)) != READ)  # pylint: disable=cell-var-from-loop
        run("sh", "-c", "ls && cat f && mkdir d && echo x >d/f && mv d/f d/g && rm -r d && cat f@then", cwd=root, timeout=ANSWERED)
        if what == "create":
            wait_for(lambda: all((mount.source / name).exists() for name in names))
            versions = json.loads(mount.tool("vstat", "--json", root / names[0]).stdout)["versions"]
            assert all(version["command"].startswith("[python") for version in versions)
    assert os.mkdir(root / "d") is None and (root / "d@then").is_dir()
