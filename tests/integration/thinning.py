# SPDX-License-Identifier: LGPL-2.1-or-later
"""Files of many versions, the versions vprune leaves of them, and readers meanwhile."""
import errno
import json
import random
import subprocess
import sys
import threading
from contextlib import contextmanager

from mounts import epoch, moment
from treestate import differences, state_of


def write_versions(path, count, size=5000, seed=1):
    """[(when, content)] of a new file that is overwritten in place, one change a version."""
    rng, seen = random.Random(seed), []
    for number in range(count + 1):
        with open(path, "r+b" if number else "wb", buffering=0) as stream:
            stream.write(rng.randbytes(size))
        seen.append((moment(), path.read_bytes()))
        moment()
    return seen


def filled(path, count, size):
    """[when] of a file that is one byte all through, another one each time."""
    whens = []
    for number in range(count):
        with open(path, "r+b" if number else "wb", buffering=0) as stream:
            stream.write(b"%c" % (48 + number) * size)
        whens.append(moment())
        moment()
    return whens


def thin(mount, *options, path="", **named):
    report = mount.tool("vprune", "-y", "--json", *options, mount.path / path, **named).stdout
    return json.loads(report.splitlines()[-1])


def at(mount, when, name="file"):
    return (mount.path / f"{name}@{epoch(when)}").read_bytes()


def shows(mount, when, content, name="file"):
    """Whether that is the version by now. One that is removed while it is being read is refused."""
    mount.expect("that was being read is not kept any more")
    try:
        return at(mount, when, name) == content
    except OSError as error:
        assert error.errno == errno.EIO
        return False


def check_newest(mount, seen, most, name="file"):
    """The newest `most` (one of them is the present) are exact; at all earlier moments the first one shows."""
    for number, (when, content) in enumerate(seen):
        stays = number >= len(seen) - most or number == 0
        assert at(mount, when, name) == (content if stays else seen[0][1]), number


def kills(mount, turns, make):
    """Two files a turn, made by `make(name, seed)`; the daemon is killed at any call of thinning them, and it is done
    again: yields the turn then. `mount` is a crash.Traced."""
    import crash  # pylint: disable=import-outside-toplevel
    rng, calls = random.Random(5), 0
    for turn in range(turns):
        files = {f"file{turn}{number}": make(f"file{turn}{number}", turn * 9 + number) for number in range(2)}
        was = state_of(mount.path)
        mount.control.arm(crash.CHANGES, crash.KILL, rng.randrange(1, calls + 1) if turn else crash.FOREVER)
        mount.run_tool("vprune", "-y", "--keep-versions", "..2", mount.path)
        if not turn:
            calls = mount.control.disarm()
        elif mount.is_dead():
            mount.kill(check=False)
            assert "orphan" not in mount.run_tool("vfsck", mount.source).stdout
            mount.start()
        else:
            mount.control.disarm()
        assert differences(was, state_of(mount.path)) == []
        for name, seen in files.items():
            for number, (when, content) in enumerate(seen):
                stays = number >= len(seen) - 2 or number == 0
                assert at(mount, when, name) in ((content,) if stays else (content, seen[0][1])), (turn, number)
        thin(mount, "--keep-versions", "..2")
        for name, seen in files.items():
            check_newest(mount, seen, 2, name)
        yield turn
    assert calls > 5
    mount.stop()
    assert "clean" in mount.tool("vfsck", mount.source).stdout


@contextmanager
def writing(path):
    """A writer that still has it open: another process, since a descriptor that is closed with exec(2) ends it, too."""
    code = """import os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
os.pwrite(fd, b"under way", 100)
print(flush=True)
sys.stdin.readline()
os.pwrite(fd, b", and on", 109)
"""
    with subprocess.Popen([sys.executable, "-c", code, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
        assert writer.stdout.readline()
        yield
        writer.communicate(b"go on\n")
    assert writer.returncode == 0


@contextmanager
def readers(count, whens, path, look, near=None):
    """Meanwhile, `look` reports the fault of an open file of each of these moments, or None; EIO is not one. They look
    most often at moments near to the last of the list `near`."""
    over, wrong, errors = threading.Event(), [], set()

    def read(seed):
        rng = random.Random(seed)
        while not over.wait(0.02 if near else 0.005):
            number = rng.randrange(len(whens))
            if near and rng.random() < 0.8:
                number = near[-1] - rng.randrange(3)
            try:
                with open(f"{path}@{epoch(whens[number])}", "rb", buffering=0) as stream:
                    found = look(number, stream)
            except OSError as error:
                errors.add(error.errno)
                continue
            if found is not None:
                wrong.append((number, found))

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert wrong == [] and errors <= {errno.EIO}
