# SPDX-License-Identifier: LGPL-2.1-or-later
"""A program that is killed before one of its system calls: the same one every time, however fast the machine is."""
import ctypes
import os
import signal
import subprocess

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_libc.ptrace.restype = ctypes.c_long
TRACEME, SYSCALL, SETOPTIONS = 0, 24, 0x4200
SYSGOOD, EXITKILL = 1, 1 << 20


def _ptrace(request, pid, data=None):
    if _libc.ptrace(request, pid, None, data) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def run_to_call(command, last, **options):
    """Runs it until it is about to make its call number `last`, and kills it there; None: to its end. Returns (exit
    status as of subprocess, how many calls it made)."""
    # The leak check at the end does not work in a traced process.
    options["env"] = dict(options["env"], ASAN_OPTIONS=options["env"].get("ASAN_OPTIONS", "") + ":detect_leaks=0")
    with subprocess.Popen(command, preexec_fn=lambda: _ptrace(TRACEME, 0), **options) as process:
        calls, inside, status = 0, False, os.waitpid(process.pid, 0)[1]
        _ptrace(SETOPTIONS, process.pid, SYSGOOD | EXITKILL)
        while os.WIFSTOPPED(status):
            number = os.WSTOPSIG(status)
            if number == signal.SIGTRAP | 0x80:
                inside = not inside
                calls += inside
            if inside and calls == last:
                os.kill(process.pid, signal.SIGKILL)
            else:
                _ptrace(SYSCALL, process.pid, number if number not in (signal.SIGTRAP, signal.SIGTRAP | 0x80) else None)
            status = os.waitpid(process.pid, 0)[1]
        process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, calls
