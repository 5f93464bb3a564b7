# SPDX-License-Identifier: LGPL-2.1-or-later
"""Disks that lose power: a file system in an image, and clones of the image while it is written.

The image is on a file system that shares blocks (xfs with reflink). FICLONE of it is atomic beside the writes of the
loop device, so a clone holds what was written to the disk at that instant, and nothing that only the page cache of the
file system in it held.
"""
import fcntl
import os

from mounts import mounted_at, run

FICLONE = 0x40049409
SIZE = {"ext4": 256, "xfs": 320}  # MiB; mkfs.xfs makes none smaller than 300
MAKE = {"ext4": ("mkfs.ext4", "-q", "-F", "-m", "0"), "xfs": ("mkfs.xfs", "-q", "-f", "-m", "reflink=1")}


class Holder:
    """The directory of the images."""

    def __init__(self, base, size=6144):
        self.path = base / "holder"
        self.image = base / "holder.img"
        self.path.mkdir()
        with open(self.image, "wb") as stream:
            stream.truncate(size << 20)
        run("mkfs.xfs", "-q", "-m", "reflink=1", self.image)
        run("mount", "-o", "loop", self.image, self.path)

    def close(self):
        run("umount", "-l", self.path, check=False)
        self.image.unlink(missing_ok=True)


class Disk:
    """One image, mounted or not."""

    def __init__(self, image, kind, root):
        self.image = image
        self.kind = kind
        self.root = root
        self.root.mkdir(exist_ok=True)

    @classmethod
    def make(cls, holder, kind, name, root):
        image = holder.path / f"{name}.img"
        with open(image, "wb") as stream:
            stream.truncate(SIZE[kind] << 20)
        run(*MAKE[kind], image)
        return cls(image, kind, root)

    def mount(self):
        # Two file systems with one uuid: the clone and its origin.
        options = "loop,nouuid" if self.kind == "xfs" else "loop"
        run("mount", "-o", options, self.image, self.root)
        return self

    def unmount(self):
        if mounted_at(self.root):
            run("umount", self.root)

    def cut(self, name, root):
        """The disk as it would be found if the power failed now."""
        image = self.image.with_name(f"{name}.img")
        with open(self.image, "rb") as source, open(image, "wb") as target:
            fcntl.ioctl(target, FICLONE, source.fileno())
        return Disk(image, self.kind, root)

    def remove(self):
        if mounted_at(self.root):
            run("umount", "-l", self.root)
        self.image.unlink(missing_ok=True)
        if not os.listdir(self.root):
            self.root.rmdir()
