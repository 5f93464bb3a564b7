# SPDX-License-Identifier: LGPL-2.1-or-later
"""A tree that was moved or copied with its store: every moment is what it was, and nothing gets another's history."""
import errno
import json
import os
import shutil
import time

import pytest
from history_model import History
from mounts import epoch, moment, run
from operations import Operator
from treestate import differences, state_of


class Story:
    """Changes of every kind, and what the tree was at several moments."""

    def __init__(self, mount, steps):
        self.told = []
        for _ in steps(mount):
            state = state_of(mount.path)
            self.told.append((moment(), state))

    def check(self, mount):
        for number, (when, state) in enumerate(self.told):
            assert differences(state, state_of(mount.at(when))) == [], number
        assert differences(self.told[-1][1], state_of(mount.path)) == []


def begin(source):
    """What was there before there was a history."""
    (source / "old/deep/deeper").mkdir(parents=True)
    for name in ("old/a", "old/b", "old/deep/c", "old/deep/deeper/d", "untouched", "twin"):
        (source / name).write_bytes(name.encode() * 1000)
    os.link(source / "twin", source / "old/twin")
    os.symlink("untouched", source / "old/symlink")
    (source / "old/text").write_bytes(b"".join(b"line %d\n" % number for number in range(3000)))


def steps(mount):  # pylint: disable=too-many-statements
    top = mount.path
    yield
    (top / "dir/below").mkdir(parents=True)
    for number in range(6):
        (top / f"dir/file{number}").write_bytes(bytes([number]) * 5000)
    yield
    for name in ("old/a", "old/deep/c", "dir/file0", "dir/file1"):
        with open(top / name, "r+b") as stream:
            stream.seek(100)
            stream.write(b"in the middle")
    os.chmod(top / "dir/file2", 0o600)
    os.setxattr(top / "old/b", "user.name", b"value")
    yield
    (top / "dir/file0").rename(top / "old/deep/moved")
    os.link(top / "old/deep/moved", top / "dir/below/link")
    os.link(top / "untouched", top / "dir/also untouched")
    (top / "dir/file1").unlink()
    (top / "new").write_bytes(b"saved as editors do")
    (top / "new").rename(top / "old/a")
    (top / "gone").mkdir()
    (top / "gone/inside").write_bytes(b"for a while")
    yield
    shutil.rmtree(top / "gone")
    (top / "old/deep").rename(top / "dir/deep")
    with open(top / "dir/deep/deeper/d", "ab") as stream:
        stream.write(b"appended")
    os.unlink(top / "twin")
    yield
    mount.tool("vsnap", "create", "named", top / "dir")
    for number in range(8):
        with open(top / "old/text", "r+b") as stream:
            stream.write(b"%d" % number * 20000)
    mount.tool("vcompact", top)
    (top / "gone").mkdir()
    (top / "gone/inside").write_bytes(b"another of this name")
    with open(top / "old/twin", "r+b") as stream:
        stream.truncate(10)
    yield
    run("mv", "--exchange", top / "dir/file3", top / "dir/file4", check=False)
    (top / "dir/below").rename(top / "under")
    (top / "dir/deep/moved").unlink()
    os.utime(top / "dir/file5", ns=(10**18, 3 * 10**18))
    mount.tool("vrevert", "--change", "1", top / "old/a")
    yield
    mount.tool("vrm", "-y", top / "dir/file2")
    for number in range(20):
        (top / "under" / f"n{number}").write_bytes(b"%d" % number)
    yield


def cp(source, target):
    run("cp", "-a", f"{source}/.", target)


def rsync(source, target):
    # Without the window, a directory that changed in this very second keeps the time at which it was copied.
    run("rsync", "-aHAX", "--modify-window=-1", f"{source}/", target)


def tar(source, target):
    run("sh", "-c", f"tar -C '{source}' --xattrs --xattrs-include='*' -cf - . | tar -C '{target}' --xattrs "
        "--xattrs-include='*' -xpf -")


def copied(maker, mount, how, kind="ext4"):
    """Another tree, not mounted yet."""
    target = maker.tree(kind)
    how(mount.source, target)
    shutil.copystat(mount.source, target)
    return maker.mount("allow_other", source=target, start=False)


def rebind(mount, *options, status=1):
    """What is found: {code: finding}."""
    result = mount.run_tool("vfsck", "--json", "--rebind", *options, mount.source, merge=False)
    assert result.returncode == status, result.stdout + result.stderr
    return {finding["code"]: finding for finding in json.loads(result.stdout)["findings"]}


def told_story(maker, *options):
    source = maker.tree()
    begin(source)
    mount = maker.mount("allow_other", *options, source=source)
    story = Story(mount, steps)
    # What was erased is seen no more.
    story.told = [(when, state_of(mount.at(when))) for when, _state in story.told]
    story.mount = mount
    mount.stop()
    return story


def go_on(mount, story):
    """What comes now is history like any other."""
    for name in ("old/b", "untouched", "dir/file3"):
        (mount.path / name).write_bytes(b"from now on")
    (mount.path / "dir/deep").rename(mount.path / "deep once more")
    (mount.path / "under/n3").unlink()
    mount.tool("vrevert", "--time", epoch(story.told[1][0]), mount.path / "dir/file5")
    assert (mount.path / "dir/file5").read_bytes() == b"\5" * 5000
    for when, state in story.told:
        assert differences(state, state_of(mount.at(when))) == []
    mount.check_store()


def test_every_moment_is_what_it_was(maker):
    story = told_story(maker)
    assert any(path.read_bytes()[:8] == b"WBPACK1\n" for path in story.mount.store().rglob("*.undo"))
    for how in [cp, tar] + [rsync] * bool(shutil.which("rsync")):
        copy = copied(maker, story.mount, how)
        status, output = copy.refused()
        assert status == 1 and "vfsck --rebind" in output
        assert list(rebind(copy, "-n", status=4)) == ["other-tree"]
        assert not (copy.store() / "identities").exists()
        assert list(rebind(copy)) == ["other-tree"]
        assert rebind(copy, status=0)["same-tree"]["state"] == "note"
        assert copy.tool("vfsck", copy.source).stdout.endswith("clean\n")
        copy.start()
        story.check(copy)
        copy.stop()
    # The original has its own history from now on; and so has the copy, also after a kill, and copied once more.
    copy.start()
    for mount in (story.mount.start(), copy):
        go_on(mount, story)
    copy.kill()
    copy.start()
    story.told.append((moment(), state_of(copy.path)))
    copy.stop()
    again = copied(maker, copy, cp)
    assert again.refused()[0] == 1
    assert list(rebind(again)) == ["other-tree"]
    again.start()
    story.check(again)
    assert again.tool("vfsck", again.source).stdout.endswith("clean\n")


@pytest.mark.parametrize("seed", [int(s) for s in os.environ.get("WAYBACK_MODEL_SEED", "2").split(",")])
def test_random_histories(maker, seed):
    """Nothing is in doubt where nobody changed anything behind the mount, and all of it is found."""
    source = maker.tree()
    operator = Operator(str(source), seed + 1000)
    for _ in range(60):
        operator.step()
    operator.close()
    time.sleep(0.02)
    mount = maker.mount("allow_other", source=source)
    history = History(mount, seed)
    history.record("-- as it was")
    history.work(int(os.environ.get("WAYBACK_MODEL_STEPS", "200")), snapshots=False)
    mount.stop()
    copy = copied(maker, mount, cp)
    assert list(rebind(copy)) == ["other-tree"]
    history.mount = copy.start()
    history.check_by_path()


def test_the_store_is_elsewhere(maker):
    """Deleted files are in the tree then; the store stays where it is, and is that of the copy alone."""
    story = told_story(maker, f"store={maker.tree('tmpfs')}")
    target = maker.tree("xfs")
    cp(story.mount.source, target)
    copy = maker.mount("allow_other", *story.mount.store_options(), source=target, start=False)
    assert list(rebind(copy, "--store", copy.store())) == ["other-tree"]
    copy.start()
    story.check(copy)
    copy.stop()
    assert "vfsck --rebind" in story.mount.refused()[1]


def small(maker, look=False):
    """A tree with some history, the moment before its last change, and what it was then. Who looks at the whole tree
    makes a file known by all of its names."""
    source = maker.tree()
    for name in ("kept", "changed", "lost", "twin", "quiet"):
        (source / name).write_bytes(name.encode() * 100)
        os.utime(source / name, ns=(10**18, 10**18))
    os.link(source / "twin", source / "other twin")
    mount = maker.mount("allow_other", source=source)
    for name in ("kept", "changed", "lost", "twin"):
        (mount.path / name).write_bytes(b"second")
    mount.before, before = moment(), state_of(mount.path) if look else None
    for name in ("kept", "changed", "lost", "twin"):
        (mount.path / name).write_bytes(b"third")
    mount.stop()
    return mount, before


def refused(path):
    with pytest.raises(OSError) as error:
        path.read_bytes()
    assert error.value.errno == errno.EIO


def test_nothing_gets_the_history_of_something_else(maker):
    """Changed, removed, new and of another kind since it was copied."""
    mount, _before = small(maker)
    copy = copied(maker, mount, cp)
    copy.expect("is not known")
    (copy.source / "changed").write_bytes(b"changed behind the mount")
    (copy.source / "lost").unlink()
    (copy.source / "new").write_bytes(b"made behind the mount")
    found = rebind(copy, status=4)
    assert sorted(found) == ["external-content", "missing", "other-tree"]
    assert found["missing"]["path"] == "lost" and "-y" in found["other-tree"]["remedy"]
    assert copy.refused()[0] == 1
    found = rebind(copy, "-y", status=4)
    assert {f["state"] for f in found.values()} == {"repaired", "lost"}
    copy.start()
    assert copy.at(mount.before, "kept").read_bytes() == b"second"
    assert copy.at(mount.before, "quiet").read_bytes() == b"quiet" * 100
    for name in ("changed", "new"):
        refused(copy.at(mount.before, name))
    assert (copy.path / "new").read_bytes() == b"made behind the mount"


def test_hard_links_that_were_not_kept(maker):
    """Both files have the history of one: neither gets it by guessing."""
    mount, _before = small(maker)
    copy = copied(maker, mount, lambda source, target: run("cp", "-a", "--no-preserve=links", f"{source}/.", target))
    # Of "other twin" no record tells, but that "twin" had two names.
    found = rebind(copy, "-n", status=4)
    assert sorted(found) == ["external-content", "other-tree"] and found["external-content"]["path"] == "other twin"
    assert sorted(rebind(copy, "-y")) == ["external-content", "other-tree"]
    copy.expect("is not known")
    copy.start()
    assert copy.at(mount.before, "twin").read_bytes() == b"second"
    refused(copy.at(mount.before, "other twin"))
    copy.stop()
    (mount.start().path / "other twin").write_bytes(b"met by this name, too")
    mount.stop()
    copy = copied(maker, mount, lambda source, target: run("cp", "-a", "--no-preserve=links", f"{source}/.", target))
    assert "split-links" in rebind(copy, "-y", status=4)
    assert copy.refused()[0] == 1


def test_damaged_identities(maker):
    """Refused, named, and made anew."""
    mount, before = small(maker, look=True)
    copy = copied(maker, mount, cp)
    rebind(copy)
    path = copy.store() / "identities"
    data = path.read_bytes()
    taken = [at for at in range(64, len(data), 40) if any(data[at:at + 40])]
    places = (data[:at + 20] + b"X" + data[at + 21:] for at in taken[:3])
    for damage in (data[:3] + b"X" + data[4:], data[:-1], b"", *places):
        path.write_bytes(damage)
        result = copy.run_tool("vfsck", "--json", copy.source, merge=False)
        assert "damaged-identities" in [f["code"] for f in json.loads(result.stdout)["findings"]]
    assert list(rebind(copy)) == ["other-tree"]
    copy.start()
    assert differences(before, state_of(copy.at(mount.before))) == []
