# SPDX-License-Identifier: LGPL-2.1-or-later
"""The same random operations on the bare file system and through the mount give equal trees."""
import os
import shutil

import pytest

from mounts import QUICK
from operations import KEEP_SIZE, PUNCH, ZERO, Operator, fallocate
from treestate import differences, state_of

STEPS = 500 if QUICK else 1200


class Sorted(Operator):
    """Chooses from sorted lists: directories are listed in another order in another place."""

    def _walk(self):
        dirs, others = super()._walk()
        return dirs[:1] + sorted(dirs[1:]), sorted(others)

    def do_allocate(self):
        """Without collapse and insert, which the kernel refuses on any FUSE mount."""
        path = self._file()
        mode = self.random.choice([0, KEEP_SIZE, PUNCH | KEEP_SIZE, ZERO, ZERO | KEEP_SIZE])
        with open(path, "r+b", buffering=0) as stream:
            offset, length = self._range(os.fstat(stream.fileno()).st_size)
            fallocate(stream.fileno(), mode, offset, length)
        return f"{path} mode {mode} {offset}+{length}"


def relative(line, root):
    """The result, without paths; XFS answers EEXIST for a full directory, and POSIX allows both."""
    return line.replace(str(root), "").replace("[Errno 39] Directory not empty",
                                               "[Errno 17] File exists")


@pytest.mark.parametrize("seed", [11] if QUICK else [11, 12])
def test_the_mount_behaves_like_the_bare_file_system(any_mount, maker, kind, seed):
    bare = maker.tree(kind)
    here, there = Sorted(str(bare), seed), Sorted(str(any_mount.path), seed)
    lines = []
    for step in range(STEPS):
        a, b = relative(here.step(), bare), relative(there.step(), any_mount.path)
        lines.append(a)
        assert a == b, f"step {step}, after:\n" + "\n".join(lines[-10:])
        if step % 50 == 49 or step == STEPS - 1:
            found = differences(state_of(bare), state_of(any_mount.path), ignore=("mtime",))
            assert found == [], f"step {step}, after:\n" + "\n".join(lines[-50:])
    here.close()
    there.close()
    any_mount.stop()
    # Without its store the tree below equals the bare one, link counts included.
    shutil.rmtree(any_mount.source / ".wayback")
    assert differences(state_of(bare), state_of(any_mount.source), ignore=("mtime",)) == []


def test_a_user_mount_behaves_like_the_bare_file_system(user_mount, maker):
    from mounts import NOBODY, as_user  # pylint: disable=import-outside-toplevel
    bare = maker.tree(owner=NOBODY)

    def work(root):
        operator = Sorted(str(root), 13, as_root=False)
        lines = [relative(operator.step(), root) for _ in range(STEPS // 2)]
        operator.close()
        return lines, state_of(root)

    a = as_user(lambda: work(bare), *NOBODY)
    b = as_user(lambda: work(user_mount.path), *NOBODY)
    assert a[0] == b[0]
    assert differences(a[1], b[1], ignore=("mtime",)) == []
    assert os.path.exists(user_mount.source / ".wayback")
