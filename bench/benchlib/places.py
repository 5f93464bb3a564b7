# SPDX-License-Identifier: LGPL-2.1-or-later
"""Fresh file systems in images. In memory by default: a disk's noise is larger than the differences to be measured."""
import os
import subprocess
import tempfile
import time
from pathlib import Path

KINDS = {"ext4": ("mkfs.ext4", "-q", "-F", "-I", "256", "-m", "0", "-E", "lazy_itable_init=0,lazy_journal_init=0"),
         "xfs": ("mkfs.xfs", "-q", "-m", "reflink=1"),
         "btrfs": ("mkfs.btrfs", "-q")}
SIZE = 8 << 30


def run(*words):
    subprocess.run([str(w) for w in words], check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def unmount(path):
    for _ in range(100):
        if subprocess.run(["umount", str(path)], check=False, stderr=subprocess.DEVNULL).returncode == 0:
            return
        time.sleep(0.05)
    run("umount", "-l", path)


class Places:
    """A context: file systems, directories and mounts that are gone when it ends."""

    def __init__(self, disk=None):
        self.disk = disk
        self.mounted = []
        self.base = None

    def __enter__(self):
        self.base = Path(tempfile.mkdtemp(prefix="wayback-bench-", dir=self.disk))
        if not self.disk:
            run("mount", "-t", "tmpfs", "-o", f"size={SIZE + (1 << 30)}", "tmpfs", self.base)
            self.mounted.append(self.base)
        return self

    def __exit__(self, *_):
        for path in reversed(self.mounted):
            unmount(path)
        subprocess.run(["rm", "-rf", str(self.base)], check=False)

    def make(self, kind, name="lower", touched=0, many=False):
        """`many`: there are to be inodes for a million files, twice. `touched`: so many bytes of the image have their memory before the work begins. Giving it out while
        gigabytes are written is a good part of what the bare file system would be measured for."""
        image, root = self.base / f"{name}.img", self.base / name
        with open(image, "wb") as stream:
            stream.truncate(SIZE)
            if touched and not self.disk:
                os.posix_fallocate(stream.fileno(), 0, min(touched, SIZE))
        run(*KINDS[kind], *(("-i", "4096") if many and kind == "ext4" else ()), image)
        root.mkdir()
        run("mount", "-o", "loop", image, root)
        self.mounted.append(root)
        return root

    def directory(self, name):
        path = self.base / name
        path.mkdir()
        return path


def drop_caches():
    os.sync()
    with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as stream:
        stream.write("3\n")
