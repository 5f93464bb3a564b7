# SPDX-License-Identifier: LGPL-2.1-or-later
"""A daemon with 1,024 descriptors and 1 GiB of memory: many new files, dbench, and the sources of a kernel, unpacked.

With WAYBACK_LONG these are 100,000 files, an archive of 80,000 in 5,000 directories and ten minutes, on each file system.
"""
import os
import random
import re
import resource
import shutil
import subprocess
import tarfile
from io import BytesIO
from pathlib import Path

import pytest

from mounts import QUICK, epoch, moment

LONG = bool(os.environ.get("WAYBACK_LONG"))
DESCRIPTORS, MEMORY = 1024, 1 << 30
FILES = 100_000 if LONG else 5_000 if QUICK else 30_000
DIRECTORIES = 5_000 if LONG else 300 if QUICK else 1_500
PER_DIRECTORY = 16
SECONDS = 600 if LONG else 3 if QUICK else 15
KINDS = ["ext4", "xfs", "btrfs", "tmpfs"] if LONG else ["ext4"]
# Peak of resident memory: each file that the kernel still knows costs a node.
RESIDENT = (32 << 20) + 512 * FILES


class Cage:
    """A control group with so much memory, page cache and all, if the machine lets us make one (v2, else v1)."""

    ROOTS = (("/sys/fs/cgroup", "memory.max"), ("/sys/fs/cgroup/unified", "memory.max"),
             ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"))

    def __init__(self, name):
        self.path = None
        for root, limit in self.ROOTS:
            path = Path(root) / f"wayback-{os.getpid()}-{name}"
            # If v1 is mounted below, the first is no control group but a plain directory.
            if not (Path(root) / "cgroup.procs").exists() or not os.access(root, os.W_OK):
                continue
            path.mkdir()
            self.path = path
            if (path / limit).exists():
                (path / limit).write_text(f"{MEMORY}\n", encoding="ascii")
                return
            self.remove()

    def enter(self):
        """Called in the daemon before exec."""
        resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
        if self.path:
            (self.path / "cgroup.procs").write_text(f"{os.getpid()}\n", encoding="ascii")

    def remove(self):
        self.path.rmdir()
        self.path = None


@pytest.fixture(name="small", params=KINDS)
def fixture_small(maker, request):
    cage = Cage(request.param)
    mount = maker.mount("allow_other", kind=request.param, start=False)
    mount.limits = cage.enter
    try:
        yield mount.start()
    finally:
        mount.stop()
        if cage.path:
            cage.remove()


def check_bounds(mount):
    """The daemon's peaks were within bounds, and it is the daemon of the beginning."""
    assert mount.process.poll() is None
    assert len(os.listdir(f"/proc/{mount.process.pid}/fd")) < DESCRIPTORS
    status = Path(f"/proc/{mount.process.pid}/status").read_text(encoding="ascii")
    peak = int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) << 10
    if not mount.programs.sanitized:
        assert peak < RESIDENT, f"{peak >> 20} MiB were resident, of {RESIDENT >> 20}"


def content_of(number):
    """As sizes are in sources: most are small."""
    rng = random.Random(number)
    return rng.randbytes(32) * rng.choice([1, 10, 60, 120, 300, 600])


def test_many_files_are_created(small):
    for number in range(FILES):
        if number % 1000 == 0:
            directory = small.path / f"d{number // 1000}"
            directory.mkdir()
        fd = os.open(directory / f"f{number}", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        os.write(fd, b"%d" % number)
        os.close(fd)
    made = moment()
    for number in range(0, FILES, 7):
        with open(small.path / f"d{number // 1000}/f{number}", "r+b", buffering=0) as stream:
            stream.write(b"overwritten")
    assert sum(len(files) for _, _, files in os.walk(small.path)) == FILES
    for number in random.Random(1).sample(range(0, FILES, 7), 500):
        assert (small.at(made) / f"d{number // 1000}/f{number}").read_bytes() == b"%d" % number
    check_bounds(small)


def test_sources_of_a_kernel_are_unpacked(small):
    """As many files in as many directories, from an archive that is made here; then looked at, removed, and found
    again."""
    archive = small.programs.directory / "sources.tar"
    with tarfile.open(archive, "w", format=tarfile.GNU_FORMAT) as tar:
        for directory in range(DIRECTORIES):
            # Several levels, as there.
            path = f"sources/{directory % 25}/{directory % 500}/{directory}"
            for number in range(PER_DIRECTORY):
                data = content_of(directory * PER_DIRECTORY + number)
                info = tarfile.TarInfo(f"{path}/file{number}.c")
                info.size, info.mtime = len(data), 1_700_000_000 + number
                tar.addfile(info, BytesIO(data))
    unpacked = small.tool("tar", "-C", small.path, "-xf", archive, merge=False)
    assert unpacked.stderr == ""
    compared = small.tool("tar", "-C", small.path, "--no-same-owner", "-df", archive, merge=False)
    assert compared.stdout == "" and compared.stderr == ""
    there = moment()
    shutil.rmtree(small.path / "sources")
    assert sum(len(files) for _, _, files in os.walk(small.at(there))) == DIRECTORIES * PER_DIRECTORY
    for number in random.Random(2).sample(range(DIRECTORIES * PER_DIRECTORY), 500):
        directory = number // PER_DIRECTORY
        path = f"sources/{directory % 25}/{directory % 500}/{directory}/file{number % PER_DIRECTORY}.c"
        assert (small.path / f"@{epoch(there)}" / path).read_bytes() == content_of(number)
    check_bounds(small)
    archive.unlink()


@pytest.mark.skipif(not shutil.which("dbench"), reason="dbench is not installed (scripts/install-deps --tests)")
def test_dbench_passes(small):
    result = subprocess.run(["dbench", "-D", small.path, "-t", str(SECONDS), "8"], check=False, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True, timeout=SECONDS * 3 + 120)
    assert result.returncode == 0 and "Throughput" in result.stdout, result.stdout[-3000:]
    complaints = [line for line in result.stdout.splitlines() if re.match(r"\[\d+\]|.* failed for handle|ERROR", line)]
    assert complaints == []
    check_bounds(small)
    shutil.rmtree(small.path / "clients")
