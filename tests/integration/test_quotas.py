# SPDX-License-Identifier: LGPL-2.1-or-later
"""Quotas of the file system that count directories, for the store: ext4's of projects and btrfs's of subvolumes. At the
limit, a change fails with EDQUOT and nothing is lost, or it is made and leaves a gap (onfull=continue)."""
import ctypes
import errno
import os
import random
import subprocess
import time

import pytest

from mounts import epoch, moment, run
from test_onfull import error_of, versions
from treestate import differences, state_of

SIZE = 256 << 10
PROJECT, SET_QUOTA, OF_PROJECTS, BLOCK_LIMITS = 77, 0x800008, 2, 1


class Limits(ctypes.Structure):
    """struct if_dqblk: in blocks of 1 KiB."""

    _fields_ = [(name, ctypes.c_uint64) for name in ("block_hard", "block_soft", "space", "inode_hard", "inode_soft",
                                                     "inodes", "block_time", "inode_time")] + [("valid", ctypes.c_uint32)]


class Ext4:
    make = ("mkfs.ext4", "-q", "-F", "-I", "256", "-m", "0", "-O", "quota,project", "-E", "quotatype=prjquota")
    options = "loop,prjquota"

    def __init__(self, device, root):
        self.device = device
        self.store = root / "store"
        self.store.mkdir(mode=0o700)
        run("chattr", "-p", str(PROJECT), "+P", self.store)

    def limit(self, size):
        limits = Limits(block_hard=size >> 10, valid=BLOCK_LIMITS)
        library = ctypes.CDLL(None, use_errno=True)
        if library.quotactl(SET_QUOTA << 8 | OF_PROJECTS, str(self.device).encode(), PROJECT, ctypes.byref(limits)) < 0:
            raise OSError(ctypes.get_errno(), "quotactl")


class Btrfs:
    make = ("mkfs.btrfs", "-q", "-f")
    options = "loop"

    def __init__(self, _device, root):
        self.store = root / "store"
        run("btrfs", "quota", "enable", root)
        run("btrfs", "subvolume", "create", self.store)
        self.store.chmod(0o700)

    def limit(self, size):
        run("btrfs", "qgroup", "limit", str(size) if size else "none", self.store)


@pytest.fixture(name="quota", params=[Ext4, Btrfs])
def fixture_quota(maker, base, request):
    kind, root = request.param, base / f"quota-{time.time_ns()}"
    image = root.with_suffix(".img")
    root.mkdir()
    with open(image, "wb") as stream:
        stream.truncate(192 << 20)
    run(*kind.make, image)
    if run("mount", "-o", kind.options, image, root, check=False).returncode != 0:
        image.unlink()
        pytest.skip("this kernel has no quotas on ext4")
    root.chmod(0o755)
    device = subprocess.run(["findmnt", "-n", "-o", "SOURCE", root], check=True, capture_output=True, text=True).stdout
    yield kind(device.strip(), root)
    maker.close()
    maker.mounts.clear()
    run("umount", root)
    image.unlink()


def content(seed):
    return random.Random(seed).randbytes(SIZE)


def overwrite(path, seed):
    with open(path, "r+b", buffering=0) as stream:
        assert stream.write(content(seed)) == SIZE


def mounted(maker, quota, *options):
    """A mount whose store has reached its limit; the states of f before: [(moment, seed)]."""
    mount = maker.mount("allow_other", f"store={quota.store}", *options)
    mount.expect(".")
    (mount.path / "f").write_bytes(content(0))
    (mount.path / "g").write_bytes(content("g"))
    states = [(moment(), 0)]
    for seed in range(1, 9):
        overwrite(mount.path / "f", seed)
        states.append((moment(), seed))
    run("sync", "-f", quota.store)
    quota.limit(SIZE * 12)
    return mount, states


def check(mount, states):
    for when, seed in states:
        assert (mount.path / f"f@{epoch(when)}").read_bytes() == content(seed), seed


def test_at_the_limit_a_change_is_refused_and_nothing_is_lost(maker, quota):
    mount, states = mounted(maker, quota)
    seed = states[-1][1]
    while True:
        error = error_of(lambda: overwrite(mount.path / "f", seed + 1))
        if error:
            break
        seed += 1
        states.append((moment(), seed))
        run("sync", "-f", quota.store)  # btrfs counts what is on the disk
        assert seed < 100
    assert error == errno.EDQUOT
    # A write of several blocks may have been made in part; such a part is a change like any other.
    now = state_of(mount.path)
    when = moment()
    check(mount, states)
    assert error_of(lambda: overwrite(mount.path / "g", "h")) == errno.EDQUOT
    assert (mount.path / "g").read_bytes() == content("g")
    assert differences(now, state_of(mount.at(when))) == []
    quota.limit(0)
    mount.remount()
    check(mount, states)
    for name in ("f", "g"):  # what is left of a record that did not fit is cut off by the next one
        overwrite(mount.path / name, name)
    assert differences(now, state_of(mount.at(when))) == []
    check(mount, states)
    mount.stop()
    mount.tool("vfsck", f"--store={quota.store}", mount.source)


def test_at_the_limit_onfull_continue_leaves_a_gap(maker, quota):
    mount, states = mounted(maker, quota, "onfull=continue")
    last = states[-1][1]
    for seed in range(100, 130):
        error = error_of(lambda seed=seed: overwrite(mount.path / "f", seed))
        # btrfs writes everything to a new place, so that not even a gap can be noted.
        assert error == 0 or (isinstance(quota, Btrfs) and error == errno.EDQUOT)
        last = last if error else seed
        run("sync", "-f", quota.store)
    now = (mount.path / "f").read_bytes()
    if isinstance(quota, Ext4):
        assert now == content(last) == content(129)
        assert any(version["op"] == "gap" for version in versions(mount, mount.path / "f"))
    # No state is invented: what the gap hides is refused.
    for when, seed in states:
        try:
            assert (mount.path / f"f@{epoch(when)}").read_bytes() == content(seed), seed
        except OSError as error:
            assert error.errno == errno.EIO
    quota.limit(0)
    mount.remount()
    assert (mount.path / "f").read_bytes() == now
    overwrite(mount.path / "f", 1000)
    when = moment()
    overwrite(mount.path / "f", 1001)
    assert (mount.path / f"f@{epoch(when)}").read_bytes() == content(1000)
