# SPDX-License-Identifier: LGPL-2.1-or-later
"""Real servers on the loopback interface, and the view their clients have of the past."""
import os
import re
import time

import pytest

import snapshots
from mounts import epoch, moment
from samba import MISSING, Samba, share_of_the_manual

pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)} "
                                "(scripts/install-deps --tests)")


@pytest.fixture(name="share")
def fixture_share(maker):
    mount = maker.mount("allow_other", "snapnames=gmt")
    samba = Samba(maker.scratch / "samba", share_of_the_manual(mount.path))
    yield mount, samba
    samba.stop()


def next_second():
    time.sleep(1 - time.time() % 1 + 0.01)


def gmt(when):
    return time.strftime("@GMT-%Y.%m.%d-%H.%M.%S", time.gmtime(when // 10**9))


def test_previous_versions_are_listed_and_fetched(share):
    mount, samba = share
    root = mount.path
    (root / "d" / "e").mkdir(parents=True)
    expected = {}
    for name in ("one", "before upgrade", "three"):
        (root / "d" / "e" / "f").write_text(name)
        (root / "d" / f"only {name}").write_text(name)
        expected[gmt(snapshots.add(mount, name))] = name
        (root / "d" / f"only {name}").unlink()
        next_second()
    (root / "d" / "e" / "f").write_text("now")
    newest_first = sorted(expected, reverse=True)
    for path in ("d\\e\\f", "d\\e", "d"):
        assert samba.versions(path) == newest_first
    for version, name in expected.items():
        assert samba.fetch(version, "d\\e\\f") == name.encode()
        # A deleted file is in the previous version of its directory.
        assert f"only {name} " in samba.client(f'ls "{version}\\d\\*"').stdout
        assert samba.fetch(version, f"d\\only {name}") == name.encode()
    assert "NOT_FOUND" in samba.fetch(newest_first[0], "d\\only one")
    assert "NOT_FOUND" in samba.fetch("@GMT-2001.01.01-00.00.00", "d\\e\\f")
    # A directory that moved takes them along; a deleted one is in that of its parent.
    os.rename(root / "d" / "e", root / "moved")
    assert samba.versions("moved\\f") == newest_first
    assert samba.fetch(newest_first[0], "moved\\f") == b"three"
    assert re.search(r"^  f +[AN]", samba.client(f'ls "{newest_first[0]}\\d\\e\\*"').stdout, re.M)
    # smbd finds deeper paths by the name of the snapshot.
    mount.tool("rm", "-r", root / "d")
    assert samba.fetch(".snapshot\\before upgrade", "d\\e\\f") == b"before upgrade"


def test_new_snapshots_are_listed_at_once_and_one_for_each_second(share):
    mount, samba = share
    path = mount.path / "f"
    path.write_text("first")
    next_second()
    first = snapshots.add(mount, "first")
    assert samba.versions("f") == [gmt(first)]
    path.write_text("second")
    second = snapshots.add(mount, "second")
    if gmt(first) == gmt(second):
        assert samba.versions("f") == [gmt(second)]
    assert samba.fetch(gmt(second), "f") == b"second"
    snapshots.delete(mount, "second", second)
    assert samba.fetch(gmt(first), "f") == b"first"
    assert (mount.path / ".snapshot" / gmt(first) / "f").read_text() == "first"
    assert (mount.path / f"f{gmt(first)}").read_text() == "first"


def test_nothing_can_be_changed_through_a_previous_version(share):
    mount, samba = share
    mount.path.chmod(0o777)
    (mount.path / "f").write_text("f")
    (mount.path / "f").chmod(0o666)
    version = gmt(snapshots.add(mount, "s"))
    (samba.directory / "new").write_text("new")
    for command in ("put new {}\\f", "put new {}\\new", "del {}\\f", "mkdir {}\\x", "rename {}\\f g"):
        output = samba.client(command.format(version), check=False).stdout
        assert "NT_STATUS_" in output, (command, output)
    assert os.listdir(mount.path) == ["f"] and (mount.path / "f").read_text() == "f"
    assert samba.fetch(version, "f") == b"f"
    # In the present, the same share can be written.
    samba.client("put new g")
    assert (mount.path / "g").read_text() == "new"
    assert ".snapshot" not in samba.client("ls").stdout


def test_users_without_permission_get_no_previous_version(share):
    mount, samba = share
    root = mount.path
    (root / "closed then").mkdir(mode=0o700)
    (root / "closed now").mkdir()
    for name in ("closed then", "closed now"):
        (root / name / "f").write_text("secret")
    (root / "private").write_text("secret")
    (root / "private").chmod(0o600)
    version = gmt(snapshots.add(mount, "s"))
    (root / "closed then").chmod(0o755)
    (root / "closed now").chmod(0o700)
    (root / "private").chmod(0o644)
    for path in ("closed then\\f", "closed now\\f", "private"):
        assert "ACCESS_DENIED" in samba.fetch(version, path), path


def test_names_with_a_time_show_no_more(share):
    """By names in the share, whatever happened to a file since: closed, removed, or moved to a private place and
    removed."""
    mount, samba = share
    root = mount.path
    (root / "own").mkdir(mode=0o700)
    for name in ("open", "closed", "gone", "buried"):
        (root / name).write_text("then")
    for name in ("closed then", "closed now"):
        (root / name).mkdir()
        (root / name / "f").write_text("then")
    (root / "closed then").chmod(0o700)
    at = f"@{epoch(moment())}"
    (root / "open").write_text("now")
    (root / "closed").chmod(0o600)
    (root / "gone").unlink()
    os.rename(root / "buried", root / "own" / "buried")
    (root / "own" / "buried").unlink()
    (root / "closed then").chmod(0o755)
    (root / "closed now").chmod(0o700)
    assert samba.fetch(".", "open") == b"now"
    for place, name in ((".", "open" + at), (at, "open"), (".", "gone" + at), (at, "gone")):
        assert samba.fetch(place, name) == b"then", (place, name)
    for place, name in ((".", "closed" + at), (at, "closed"), (".", "buried" + at), (at, "buried"), ("closed now", "f" + at),
                        ("closed now" + at, "f"), (at, "closed now\\f"), ("closed then" + at, "f"), (at, "closed then\\f")):
        assert "ACCESS_DENIED" in samba.fetch(place, name), (place, name)


def test_names_that_are_not_times_are_not_listed(maker):
    mount = maker.mount("allow_other")
    (mount.path / "f").write_text("f")
    when = snapshots.add(mount, "before upgrade")
    samba = Samba(maker.scratch / "samba", share_of_the_manual(mount.path))
    try:
        assert samba.versions("f") == []
        assert samba.fetch(gmt(when), "f") == b"f"
    finally:
        samba.stop()
