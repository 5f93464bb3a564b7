# SPDX-License-Identifier: LGPL-2.1-or-later
"""vprune of single versions that were written with history=close: the changes from one opening to its close are
removed, or kept, as one; beside changes without a writer."""
import os

import pytest

from mounts import moment
from thinning import thin, writing
from treestate import differences, state_of


class Seen:
    """The states of the tree after each change."""

    def __init__(self, mount):
        self.mount, self.path, self.list = mount, mount.path / "file", []
        self.path.write_bytes(b"as it began " * 1000)
        self.look()

    def look(self):
        state = state_of(self.mount.path)
        self.list.append((moment(), state))
        moment()

    def check(self, kept):
        """`kept`: which of them are kept. In the place of another, the one before it shows."""
        wanted = None
        for number, (when, state) in enumerate(self.list):
            wanted = state if number in kept else wanted
            assert differences(wanted, state_of(self.mount.at(when))) == [], number

    def change(self):
        """Of several kinds, next to each other."""
        with open(self.path, "r+b", buffering=0) as stream:
            for number in range(3):
                stream.seek(700 * number)
                stream.write(b"%d" % number * 1000)
                os.fsync(stream.fileno())
                self.look()
            stream.write(b"before its mode changes")
            os.fchmod(stream.fileno(), 0o600)
            self.look()
            stream.truncate(3000)
        self.look()
        for change in (lambda: os.truncate(self.path, 2000), lambda: os.setxattr(self.path, "user.a", b"one"),
                       lambda: self.path.write_bytes(b"another" * 900), lambda: self.path.write_bytes(b"more" * 5000),
                       lambda: os.truncate(self.path, 300), lambda: os.setxattr(self.path, "user.a", b"two")):
            change()
            self.look()

    def crash(self):
        """It ends the stage under way."""
        fd = os.open(self.path, os.O_RDWR)
        os.write(fd, b"in the middle of it")
        self.mount.kill(check=False)
        with pytest.raises(OSError):
            os.close(fd)
        self.mount.start()
        self.look()


@pytest.mark.parametrize("kind, packed", [("ext4", False), ("xfs", True)])
def test_among_other_changes(maker, kind, packed):
    """In a row, next to changes by themselves, ended by a crash, and under way."""
    mount = maker.mount("allow_other", "history=close", kind=kind)
    seen = Seen(mount)
    seen.change()
    seen.crash()
    seen.change()
    seen.check(range(len(seen.list)))
    if packed:
        mount.tool("vcompact", mount.path)
    last = len(seen.list) - 1
    with writing(seen.path):
        # The version before it is the newest but one: that is kept until it has an end.
        would = thin(mount, "-n", "--keep-versions", "..1")
        did = thin(mount, "--keep-versions", "..1")
        assert would["versions"] == did["versions"] > 20 and did["bytes_logs"] > 0 and did["kept"] == 0
        seen.check((0, last))
        assert thin(mount, "--keep-versions", "..1")["versions"] == 0
    seen.look()
    seen.check((0, last, last + 1))
    assert thin(mount, "--keep-versions", "..1")["versions"] == 1
    seen.check((0, last + 1))
    assert "thinned out since" in mount.tool("vstat", seen.path).stdout
    seen.change()
    assert thin(mount, "--keep-versions", "..4")["versions"] > 0
    mount.check_store()
    mount.remount()
    newest = range(len(seen.list) - 4, len(seen.list))
    seen.check((0, *newest))
    mount.stop()
    assert "clean" in mount.tool("vfsck", mount.source).stdout
    mount.start()
