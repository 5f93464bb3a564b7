# SPDX-License-Identifier: LGPL-2.1-or-later
"""-o auto_remount: a daemon that dies is followed by another one; one that was told to go is not."""
import errno
import os
import signal
import time

import pytest

from mounts import LIMIT, epoch, moment, mounted_at, run


def wait_until(condition):
    deadline = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def processes(point):
    """Ours that were started for that mount point: [supervisor, daemon] as long as there are both."""
    parents = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/cmdline", "rb") as stream:
                words = stream.read().split(b"\0")
            with open(f"/proc/{entry}/stat", encoding="ascii", errors="replace") as stream:
                parent = stream.read().rsplit(") ", 1)[1].split()[1]
        except OSError:
            continue  # it has just ended
        if words[0].endswith(b"/wayback") and os.fsencode(point) in words:
            parents[int(entry)] = int(parent)
    return sorted(parents, key=lambda pid: parents[pid] in parents)


def answers(path):
    try:
        os.statvfs(path)
        os.stat(path / "f")
        return True
    except OSError as error:
        # EIO: of a request that the daemon was about to read when it died.
        assert error.errno in (errno.ENOTCONN, errno.ECONNABORTED, errno.EIO, errno.ENOENT), error
        return False


@pytest.fixture(name="kept")
def fixture_kept(maker, programs):
    """(source, point) of a mount that is kept."""
    source, point = maker.tree(), maker.point()
    run(programs.directory / "wayback", "-o", "auto_remount,allow_other", source, point,
        env=programs.environment(), timeout=LIMIT)
    yield source, point
    for pid in processes(point):
        os.kill(pid, signal.SIGKILL)
    while mounted_at(point):
        run("umount", "-l", point)


def test_a_daemon_that_dies_is_followed_by_another(kept):
    source, point = kept
    (point / "f").write_bytes(b"one")
    when = moment()
    for number in (signal.SIGKILL, signal.SIGABRT):
        supervisor, daemon = processes(point)
        with open(point / "f", "rb") as stream:
            os.kill(daemon, number)
            wait_until(lambda old=daemon: old not in processes(point) and len(processes(point)) == 2)
            wait_until(lambda: answers(point))
            # What was open belongs to the mount that is gone.
            with pytest.raises(OSError):
                os.fsync(stream.fileno())
        assert processes(point)[0] == supervisor
        (point / "f").write_bytes(b"after " + str(number).encode())
    assert (point / f"f@{epoch(when)}").read_bytes() == b"one"
    run("umount", point)
    wait_until(lambda: not processes(point))
    assert mounted_at(point) is None and sorted(os.listdir(source)) == [".wayback", "f"]


def test_what_was_unmounted_stays_so(kept):
    _, point = kept
    supervisor, _ = processes(point)
    os.kill(supervisor, signal.SIGTERM)
    wait_until(lambda: not processes(point))
    assert mounted_at(point) is None


def test_a_dead_mount_taken_away_by_hand_stays_so(kept):
    _, point = kept
    (point / "f").write_bytes(b"there as long as the mount lives")
    supervisor, daemon = processes(point)
    os.kill(supervisor, signal.SIGSTOP)
    os.kill(daemon, signal.SIGKILL)
    wait_until(lambda: not answers(point))
    run("umount", "-l", point)
    os.kill(supervisor, signal.SIGCONT)
    wait_until(lambda: not processes(point))
    assert mounted_at(point) is None


def test_it_is_not_for_branches(maker, programs):
    result = run(programs.directory / "wayback", "-o", f"auto_remount,at=now,branch={maker.scratch}/b", maker.tree(),
                 maker.point(), check=False, env=programs.environment(), timeout=LIMIT)
    assert result.returncode == 2 and "auto_remount" in result.stdout
