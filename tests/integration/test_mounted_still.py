# SPDX-License-Identifier: LGPL-2.1-or-later
"""A daemon that is killed and one that finds the store by another mount: no power was lost, if the file system was
mounted all the time."""
import os
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "crash"))

# pylint: disable=wrong-import-position
from mounts import LIMIT, QUICK, cut_of, run

if os.uname().machine != "x86_64":
    pytest.skip("the tracer knows no other registers", allow_module_level=True)

import crash
from scene import ACTS

# The newest kernel that cannot list its mounts.
if tuple(map(int, os.uname().release.split("-")[0].split(".")[:2])) < (6, 8):
    pytest.skip("needs listmount(2)", allow_module_level=True)


class Wandering(crash.Traced):
    """Mounts again by the next of its paths each time it was killed."""

    paths = ()

    def kill(self, *arguments, **options):
        super().kill(*arguments, **options)
        if self.paths:
            self.paths.append(self.paths.pop(0))
            self.source = self.paths[0]


@pytest.fixture(name="disk")
def fixture_disk(maker):
    """A file system of its own, and a place to bind it a second time."""
    root = maker.file_systems.make("ext4", f"wandering-{time.time_ns()}", 24)
    other = root.with_name(root.name + ".other")
    other.mkdir()
    (root / "tree").mkdir()
    yield root, other
    for mount in maker.mounts:
        mount.kill(check=False)
    run("umount", "-l", other, check=False)
    run("umount", "-l", root)
    root.with_name(root.name + ".img").unlink()


def test_killed_and_found_by_a_bind_mount_it_recovers(maker, disk):
    """A change that had not happened leaves no version."""
    root, other = disk
    run("mount", "--bind", root, other)
    mount = maker.mount("allow_other", source=root / "tree", made=Wandering)
    mount.paths = [root / "tree", other / "tree"]
    bench = crash.Bench(mount)
    for name in ("write_over",) if QUICK else ("write_over", "unlink"):
        bench.kill_everywhere(ACTS[name])
    bench.finish()
    assert bench.failures == [] and bench.cases >= 4 and cut_of(mount.store()) == 0


@pytest.mark.parametrize("bound", (False, True))
def test_a_file_system_unmounted_between_has_lost_power(maker, disk, bound):
    """Also if it is on the same device again, and is bound a second time."""
    root, other = disk

    mount = maker.mount("allow_other", source=root / "tree")
    (mount.path / "f").write_bytes(b"one")
    assert cut_of(mount.store()) == 0
    mount.kill()
    deadline = time.monotonic() + LIMIT
    while run("umount", root, check=False).returncode != 0:
        assert time.monotonic() < deadline  # a process that was killed may take a while to disappear
        time.sleep(0.01)
    run("mount", "-o", "loop", root.with_name(root.name + ".img"), root)
    if bound:
        run("mount", "--bind", root, other)
    mount.start()
    assert cut_of(mount.store()) > 0
    assert (mount.path / "f").read_bytes() == b"one"
    mount.stop()
