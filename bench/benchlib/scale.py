# SPDX-License-Identifier: LGPL-2.1-or-later
"""Many files: the memory of each, the number of open descriptors, and the time to mount a large store."""
import statistics
import subprocess
import time

from benchlib.places import unmount
from benchlib.systems import MODES

MOUNTS = 5
LEFT_OUT = ("hp", "hp-pass")  # a descriptor for each inode the kernel remembers: it ends at its limit of them


def files(quick):
    return 20000 if quick else 1000000


def samples(work, usage, root, quick):
    """Made and looked at, so that the kernel and the daemon know all of them; then removed: a store has an object of
    each."""
    begin = usage.memory() if usage else 0
    yield from work("scale-up", "-f", files(quick), root)
    if usage:
        yield {"phase": "memory per cached inode, bytes", "size": (usage.memory() - begin) / files(quick)}
        yield {"phase": "descriptors", "size": usage.descriptors()}
    yield from work("scale-down", "-f", files(quick), root)


def mounting(system, programs, lower, places):
    """Mounted again, with everything the work has left in the store: until the mount answers."""
    options = MODES.get(system.mode)
    if not options:
        return
    mnt = places.directory("again")
    times = []
    for _ in range(MOUNTS):
        begin = time.monotonic()
        # In the background: it returns once the mount answers.
        subprocess.run([str(programs.wayback), "-o", options, str(lower), str(mnt)], check=True,
                       stdin=subprocess.DEVNULL)
        times.append(time.monotonic() - begin)
        unmount(mnt)
    mnt.rmdir()
    yield {"phase": "mount", "seconds": statistics.median(times)}
