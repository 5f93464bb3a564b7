# SPDX-License-Identifier: LGPL-2.1-or-later
"""The systems that do the work: the file system itself, and daemons over it."""
import contextlib
import os
import resource
import subprocess
import time

from benchlib.places import unmount

# What --modes may name: how people call it, and the daemon's options (None: no daemon of ours).
# hp: libfuse's example with its reads and writes coming to the daemon, as ours do; hp-pass: as it
# starts by default, where the kernel reads and writes the lower file by itself (passthrough I/O).
MODES = {"hp": None, "hp-pass": None, "none": "history=none", "write": "history=write",
         "close": "history=close"}

OURS = [mode for mode, options in MODES.items() if options]


class System:
    def __init__(self, mode, uring=False):
        self.mode = mode
        self.uring = uring
        self.name = mode + ("+uring" if uring else "")

    def command(self, programs, lower, mnt):
        if self.mode == "hp":
            return [programs.passthrough, "--foreground", "--nopassthrough", lower, mnt]
        if self.mode == "hp-pass":
            return [programs.passthrough, "--foreground", lower, mnt]
        options = MODES[self.mode] + (",io_uring" if self.uring else ",no_io_uring")
        return [programs.wayback, "-f", "-o", options, lower, mnt]

    @contextlib.contextmanager
    def mounted(self, programs, lower, places):
        """The directory to work in, and the daemon's resource usage at the end (None: bare)."""
        if self.mode == "bare":
            yield lower, None
            return
        mnt = places.directory("mnt")
        with subprocess.Popen([str(w) for w in self.command(programs, lower, mnt)],
                              stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as daemon:
            wait_for(mnt, daemon)
            try:
                yield mnt, Usage(daemon.pid)
            finally:
                unmount(mnt)
                daemon.wait(60)
                mnt.rmdir()


class Usage:
    """Resources that a daemon has used so far."""

    def __init__(self, pid):
        self.pid = pid

    def cpu(self):
        with open(f"/proc/{self.pid}/stat", encoding="ascii") as stream:
            fields = stream.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self):
        with open(f"/proc/{self.pid}/status", encoding="ascii") as stream:
            return next(int(line.split()[1]) << 10 for line in stream if line.startswith("VmRSS"))

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))


def client_cpu():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def wait_for(mnt, daemon):
    before = os.stat(mnt.parent).st_dev
    for _ in range(1000):
        if daemon.poll() is not None:
            raise SystemExit(f"{daemon.args[0]} ended with {daemon.returncode}")
        try:
            if os.stat(mnt).st_dev != before:
                return
        except OSError:
            pass
        time.sleep(0.01)
    raise SystemExit(f"{mnt} was never mounted")


def systems_for(modes, uring):
    systems = [System("bare")] + [System(mode) for mode in MODES if mode in modes]
    if uring:
        # The example has no such option.
        systems += [System(mode, True) for mode in MODES if mode in modes and mode in OURS]
    return systems
