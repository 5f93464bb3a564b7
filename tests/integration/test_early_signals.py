# SPDX-License-Identifier: LGPL-2.1-or-later
"""A signal at the very moment the mount appears: the daemon ends in good order, and so does the mount."""
import os
import signal
import subprocess
import time

import pytest

from mounts import LIMIT, NOBODY, QUICK, mounted_at

TRIES = 3 if QUICK else 8


def signal_once_mounted(mount, number):
    """Starts the daemon and sends the signal as soon as anybody can see the mount: (process, whether it was seen)."""
    needle = f" {mount.path} ".encode()
    table = os.open("/proc/self/mountinfo", os.O_RDONLY)
    try:
        with open(mount.log_path, "ab") as log:
            process = subprocess.Popen(mount.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/",
                                       env=mount.programs.environment())
        deadline = time.monotonic() + LIMIT
        while needle not in os.pread(table, 1 << 20, 0):
            assert process.poll() is None and time.monotonic() < deadline, mount.log()
        process.send_signal(number)
    finally:
        os.close(table)
    return process


@pytest.mark.parametrize("user", [None, NOBODY], ids=["root", "user"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["TERM", "INT"])
def test_an_early_end_leaves_no_dead_mount(maker, user, number):
    mount = maker.mount(user=user, start=False)
    for _ in range(TRIES):
        status = signal_once_mounted(mount, number).wait(timeout=LIMIT)
        assert (status, mounted_at(mount.path)) == (0, None), mount.log()
    mount.start()
    mount.tool("touch", mount.path / "f")


@pytest.mark.parametrize("user", [None, NOBODY], ids=["root", "user"])
def test_an_early_hangup_does_not_end_it(maker, user):
    mount = maker.mount(user=user, start=False)
    for _ in range(TRIES):
        mount.process = signal_once_mounted(mount, signal.SIGHUP)
        mount.running.add(mount)
        mount.tool("stat", "-f", "-c", "%T", mount.path)
        mount.stop()
