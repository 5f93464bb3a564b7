# SPDX-License-Identifier: LGPL-2.1-or-later
"""Many users on one mount: the past shows users only files that they could read then and may read now."""
import errno
import itertools
import os
import random
import re
import stat

import pytest

from accounts import ACCOUNTS, ACL, TEAM, Tree, acl, attempt, look, read_file, run_as
from by_hand import control
from mounts import QUICK, as_user, epoch, moment, run

SEEDS = 2 if QUICK else 4
CHANGES = 10 if QUICK else 16
WORD = re.compile(r"(?:dir|nam|txt|lnk|xat)[0-9]{3}(?:dir|nam|txt|lnk|xat)")


# ---- permissions: found out on the bare file system ---------------------------------------------------

class Step:
    """The tree at one moment, and the access each account had to it on the bare file system."""

    def __init__(self, tree, source):
        self.when = moment()
        self.things = tree.kinds(source)
        self.may = {name: self.trial(name, source) for name in ACCOUNTS}
        self.path_of = {inode: path for path, (inode, _) in self.things.items()}

    def trial(self, account, source):
        things = sorted(self.things.items())
        return run_as(account, lambda: {path: look(os.path.join(source, path), kind)
                                        for path, (_, kind) in things})


def buried_path(source, inode):
    for path in (source / ".wayback/objects").glob("*/*"):
        if path.suffix in (".data", ".dir") and path.lstat().st_ino == inode:
            return path
    raise AssertionError(f"{inode} is nowhere")


def access_to_unlinked(source, account, inode, kind, may_pass):
    """An account's access to an object without a name: its own mode decides, and the directory that lost it."""
    fd = os.open(buried_path(source, inode), os.O_PATH | os.O_NOFOLLOW)
    try:
        if os.fstat(fd).st_uid != ACCOUNTS[account][0] and not may_pass:
            return {}
        if kind == stat.S_IFLNK:
            return {"stat": kind, "content": True}
        return run_as(account, lambda: look(f"/proc/thread-self/fd/{fd}" + ("/." if kind == stat.S_IFDIR else ""), kind))
    finally:
        os.close(fd)


class Now:
    """The current access of each account to an object, wherever it is."""

    def __init__(self, steps, source):
        self.steps, self.step, self.source = steps, steps[-1], source
        self.unlinked = {}

    def may_pass(self, account, inode, found_in):
        """Whether the directory that lost it can be searched now and, if it is another one than it was found in, could
        be then, with all above it. Directories are never removed here."""
        last = next(step for step in reversed(self.steps) if inode in step.path_of)
        directory = os.path.dirname(last.path_of[inode])
        if last.things[directory][0] != found_in and "search" not in last.may[account][directory]:
            return False
        return "search" in self.step.may[account][self.step.path_of[last.things[directory][0]]]

    def may(self, account, inode, kind, found_in=None):
        path = self.step.path_of.get(inode)
        if path is not None:
            return self.step.may[account][path]
        key = account, inode, found_in
        if key not in self.unlinked:
            passes = self.may_pass(account, inode, found_in)
            self.unlinked[key] = access_to_unlinked(self.source, account, inode, kind, passes)
        return self.unlinked[key]


def expected(step, now, account, path):
    """{aspect: value} that the past may show of `path` as it was at that step."""
    inode, kind = step.things[path]
    then = step.may[account][path]
    at = os.path.dirname(path) if path else None
    while at is not None:
        if "search" not in now.may(account, step.things[at][0], stat.S_IFDIR):
            return {}
        at = os.path.dirname(at) if at else None
    today = now.may(account, inode, kind, step.things[os.path.dirname(path)][0] if path else None)
    found = {what: value for what, value in then.items() if what in today}
    # Names and the results of stat(2) belong to the directory; the target of a link is content.
    if "stat" in then and (kind != stat.S_IFLNK or "stat" in today):
        found["stat"] = kind
    return found


def check(step, now, place, paths, account):
    """The past at `place` shows these paths to that account exactly as far as it may."""
    things = [(path, below, step.things[path][1]) for path, below in paths]
    shown = run_as(account, lambda: {path: look(os.path.join(place, below), kind) for path, below, kind in things})
    for path, _, _ in things:
        wanted = expected(step, now, account, path)
        for found in (shown[path], wanted):
            found.pop("search", None)  # shows nothing by itself
        assert shown[path] == wanted, f"{account}: {place} {path or '.'}: {shown[path]}, not {wanted}"


def below(step, top):
    """[(path, the same below top)] of everything that was in a directory."""
    return [(path, os.path.relpath(path, top or ".")) for path in sorted(step.things)
            if path != top and (not top or path.startswith(top + "/"))]


@pytest.fixture(name="lived", params=range(SEEDS))
def fixture_lived(request, maker):
    mount = maker.mount("allow_other")
    tree = Tree(mount.path, random.Random(f"users {request.param}"))
    steps = [Step(tree, mount.source)]
    for _ in range(CHANGES):
        tree.change()
        steps.append(Step(tree, mount.source))
    return mount, steps


def test_the_past_shows_what_was_readable_then_and_is_now(lived):
    mount, steps = lived
    now = Now(steps, mount.source)
    refused = 0
    for step, account in itertools.product(steps[:-1:3], ACCOUNTS):
        check(step, now, mount.path / f"@{epoch(step.when)}", below(step, ""), account)
        for path, (inode, kind) in sorted(step.things.items()):
            refused += len(step.may[account][path]) - len(expected(step, now, account, path))
            today = steps[-1].path_of.get(inode)
            if kind != stat.S_IFDIR or not path or today is None:
                continue
            # Entered half way down: the directory is that of now, its content is of then.
            if "search" in steps[-1].may[account][today]:
                inside = below(step, path)
                check(step, now, mount.path / today / f"@{epoch(step.when)}", inside, account)
                check(step, now, mount.path / today / ".snapshot" / epoch(step.when), inside, account)
    assert refused > 0  # or nothing was put to the test


def output_of(mount, account, *command):
    uid, gid, groups = ACCOUNTS[account]
    words = ["setpriv", f"--reuid={uid}", f"--regid={gid}"]
    words += [f"--groups={','.join(map(str, groups))}"] if groups else ["--clear-groups"]
    result = run(*words, *command, check=False, cwd="/", env=mount.programs.environment(), timeout=300)
    return set(WORD.findall(result.stdout))


def words_of(found):
    return set(WORD.findall(repr(sorted(map(repr, found)))))


def test_no_tool_prints_a_word_that_the_account_could_not_read(lived):
    mount, steps = lived
    now = Now(steps, mount.source)
    spoken = 0
    for account in ACCOUNTS:
        may = set()
        for step in steps:
            shown = [value for path in step.things for what, value in expected(step, now, account, path).items()]
            may |= words_of(shown)
            # Changes of names are shown to users who could list a directory, and may now.
            may |= words_of(value for path, value in step.may[account].items() if step.things[path][1] == stat.S_IFDIR)
        when = epoch(steps[0].when)
        target = mount.path.with_name(f"{mount.path.name}-{account}")
        os.mkdir(target, 0o777)
        os.chmod(target, 0o777)
        commands = [("vlog", mount.path), ("vlog", "--json", mount.path), ("vstat", "--json", mount.path),
                    ("vfind", mount.path), ("vfind", "--json", mount.path), ("vdiff", mount.path, when),
                    ("vsnap", "diff", when, mount.path), ("vrevert", "-n", "--time", when, mount.path),
                    ("vextract", "--time", when, "-o", target / "all", mount.path)]
        for path, (_, kind) in steps[-1].things.items():
            if kind == stat.S_IFREG:
                commands.append(("vstat", "--json", mount.path / path))
        for command in commands:
            said = output_of(mount, account, *command)
            given = set(WORD.findall(str(command[-1])))
            if command[0] == "vrevert":
                # The current place of an object is shown to users who may reach it, though they may not list the way.
                said = {word for word in said if word[:3] not in ("dir", "nam")}
            assert said <= may | given, f"{account}: {command}: {sorted(said - may - given)}"
            spoken += len(said)
        kept = run("grep", "-rahoE", WORD.pattern, target, check=False).stdout + run("find", target, "-printf", "%P %l\n").stdout
        assert set(WORD.findall(kept)) <= may
        run("rm", "-rf", target)
    assert spoken > 0


# ---- one by one -----------------------------------------------------------------------------------

def closed(function, *arguments):
    with pytest.raises(PermissionError):
        function(*arguments)


def test_attributes_and_links_are_closed_with_their_files(mount):
    (mount.path / "f").write_bytes(b"text")
    os.setxattr(mount.path / "f", "user.token", b"secret")
    os.symlink("secret", mount.path / "l")
    then = epoch(moment())
    past = mount.path / f"@{then}"
    assert run_as("eve", lambda: os.getxattr(past / "f", "user.token")) == b"secret"
    assert run_as("eve", lambda: os.readlink(past / "l")) == "secret"
    os.chmod(mount.path / "f", 0o600)
    (mount.path / "closed").mkdir(0o700)
    os.rename(mount.path / "l", mount.path / "closed/l")
    assert os.readlink(past / "l") == "secret"  # root has read it: the kernel knows it now
    closed(run_as, "eve", lambda: os.getxattr(past / "f", "user.token"))
    closed(run_as, "eve", lambda: os.readlink(past / "l"))
    closed(run_as, "eve", lambda: os.readlink(mount.path / f"l@{then}"))
    os.chmod(mount.path / "closed", 0o711)
    assert run_as("eve", lambda: os.readlink(past / "l")) == "secret"


def test_permission_is_checked_again_after_an_open(mount):
    (mount.path / "d").mkdir()
    (mount.path / "d/f").write_bytes(b"text")
    past = mount.path / f"d@{epoch(moment())}"

    def work():
        file, directory = os.open(past / "f", os.O_PATH), os.open(past, os.O_PATH)
        assert read_file(f"/proc/thread-self/fd/{file}") == b"text"
        os.chmod(mount.path / "d/f", 0o060)
        closed(read_file, f"/proc/thread-self/fd/{file}")
        os.chmod(mount.path / "d", 0o300)
        closed(os.listdir, f"/proc/thread-self/fd/{directory}")
        os.chmod(mount.path / "d", 0)
        closed(os.stat, f"/proc/thread-self/fd/{directory}/f")

    os.chown(mount.path / "d", 4001, 4001)
    os.chown(mount.path / "d/f", 4001, 4001)
    past = mount.path / f"d@{epoch(moment())}"
    run_as("anna", work)


def test_leaving_a_group_closes_its_files(mount):
    (mount.path / "f").write_bytes(b"text")
    os.chown(mount.path / "f", 0, TEAM)
    os.chmod(mount.path / "f", 0o640)
    past = mount.path / f"f@{epoch(moment())}"
    assert run_as("anna", lambda: read_file(past)) == b"text"
    uid, gid, _ = ACCOUNTS["anna"]
    closed(as_user, lambda: read_file(past), uid, gid)
    os.setxattr(mount.path / "f", ACL, acl(6, 4, 0, users={4001: 0}))
    closed(run_as, "anna", lambda: read_file(past))
    assert run_as("ben", lambda: read_file(past)) == b"text"


# ---- changes -----------------------------------------------------------------------------------------

IDENTIFY, RESTORE, ERASE, COMPACT = 3, 4, 5, 20


def refused(error, function, *arguments):
    with pytest.raises(OSError) as caught:
        function(*arguments)
    assert caught.value.errno == error, caught.value


def test_no_name_is_made_for_a_file_moved_to_a_private_place(mount):
    """RESTORE binds a name to the object as it is now, not as it was."""
    (mount.path / "mine").mkdir()
    os.chown(mount.path / "mine", 4003, 4003)
    (mount.path / "closed").mkdir(0o700)
    for name, uid in (("f", 0), ("g", 4003)):
        (mount.path / name).write_bytes(b"open")
        os.chown(mount.path / name, uid, uid)
    then = epoch(moment())
    for name in "fg":
        os.rename(mount.path / name, mount.path / "closed" / name)
        (mount.path / "closed" / name).write_bytes(b"secret")
    for name, error in (("f", errno.EXDEV), ("g", errno.EACCES)):
        refused(error, run_as, "eve", lambda: control(mount.path, RESTORE, "mine/x", f"{name}@{then}"))  # pylint: disable=W0640
    assert os.listdir(mount.path / "mine") == []
    os.chmod(mount.path / "closed", 0o711)
    run_as("eve", lambda: control(mount.path, RESTORE, "mine/x", f"g@{then}"))
    assert read_file(mount.path / "mine/x") == b"secret"


def test_later_private_content_of_a_file_is_not_restored_with_it(mount):
    (mount.path / "d").mkdir()
    (mount.path / "d/f").write_bytes(b"open")
    os.chmod(mount.path / "d", 0o777)
    then = epoch(moment())
    os.chmod(mount.path / "d", 0o700)
    (mount.path / "d/f").write_bytes(b"secret")
    (mount.path / "d/f").unlink()
    os.chmod(mount.path / "d", 0o777)
    refused(errno.EXDEV, run_as, "eve", lambda: control(mount.path, RESTORE, "d/f", f"d/f@{then}"))
    assert not output_of(mount, "eve", "vrevert", "--time", then, mount.path / "d/f")
    status = (mount.path / "d/f").stat()
    assert read_file(mount.path / "d/f") == b"open" and status.st_uid == 4003
    # Root has the object itself back.
    (mount.path / "d/f").unlink()
    mount.tool("vrevert", "--time", then, mount.path / "d/f")
    assert (mount.path / "d/f").stat().st_uid == 0


@pytest.mark.parametrize("path", [".wayback/x", "./.wayback/x", "d/../../x", "../x", "d/../.wayback/x", "//.wayback",
                                  "/.wayback/objects", ".wayback", "d/.snapshot/../../.wayback/x"])
def test_requests_lead_nowhere_else(mount, path):
    (mount.path / "d").mkdir()
    (mount.path / "f").write_bytes(b"text")
    os.chmod(mount.path, 0o777)
    then = epoch(moment())
    (mount.path / "f").unlink()
    outside = sorted(os.listdir(mount.source.parent))
    inside = sorted(os.listdir(mount.source / ".wayback"))
    for account in ACCOUNTS:
        for command, source, flags in ((RESTORE, f"f@{then}", 0), (ERASE, "", 3), (IDENTIFY, "", 0)):
            with pytest.raises(OSError):
                run_as(account, lambda: control(mount.path, command, path, source, flags))  # pylint: disable=W0640
        for command in (RESTORE, IDENTIFY):
            with pytest.raises(OSError):
                run_as(account, lambda: control(mount.path, command, "x", path))  # pylint: disable=W0640
    for command, source, flags in ((RESTORE, f"f@{then}", 0), (ERASE, "", 3)):
        with pytest.raises(OSError):
            control(mount.path, command, path, source, flags)
    assert sorted(os.listdir(mount.source.parent)) == outside
    assert sorted(os.listdir(mount.source / ".wayback")) == inside
    assert sorted(os.listdir(mount.path)) == ["d"]


def test_only_a_keeper_packs_everything(mount):
    refused(errno.EPERM, run_as, "eve", lambda: control(mount.path, COMPACT, "", flags=1))


# The effect of a revert, and the plain call with the same effect: (before, after, plain call).
def write(path, data):
    fd = os.open(path, os.O_WRONLY | os.O_TRUNC)
    os.write(fd, data)
    os.close(fd)


REVERTS = {
    "content": (lambda d: write(d / "f", b"new"), lambda d: write(d / "f", b"old")),
    "mode": (lambda d: os.chmod(d / "f", 0o666), lambda d: os.chmod(d / "f", 0o664)),
    "owner": (lambda d: os.chown(d / "f", 4002, TEAM), lambda d: os.chown(d / "f", 4001, TEAM)),
    "deleted": (lambda d: (d / "f").unlink(), lambda d: (d / "f").touch()),
    "made": (lambda d: (d / "new").touch(), lambda d: (d / "new").unlink()),
    "moved": (lambda d: os.rename(d / "f", d / "g"), lambda d: os.rename(d / "g", d / "f")),
}
DIRECTORIES = {"team": 0o775, "sticky": 0o1777, "closed": 0o755}


def shape(directory):
    return {name: ((directory / name).read_bytes(), oct((directory / name).stat().st_mode), (directory / name).stat().st_uid)
            for name in sorted(os.listdir(directory))}


@pytest.mark.parametrize("what", REVERTS)
def test_a_revert_needs_the_rights_of_the_same_change(mount, maker, what):
    """Tried by each account on the bare file system and with vrevert: either both change something or neither does."""
    change, plain = REVERTS[what]
    bare = maker.tree()
    done = set()
    for account, (place, mode) in itertools.product(ACCOUNTS, DIRECTORIES.items()):
        outcome = []
        for root in (bare, mount.path):
            directory = root / f"{account}-{place}"
            directory.mkdir()
            os.chown(directory, 0, TEAM)
            os.chmod(directory, mode)
            (directory / "f").write_bytes(b"old")
            os.chown(directory / "f", 4001, TEAM)
            os.chmod(directory / "f", 0o664)
            then = epoch(moment())
            change(directory)
            before = shape(directory)
            if root == bare:
                attempt(run_as, account, lambda: plain(directory))  # pylint: disable=W0640
            else:
                output_of(mount, account, "vrevert", "--time", then, directory)
            outcome.append(shape(directory) != before)
            # A plain call makes an empty file.
            after = shape(directory)
            if outcome[-1] and what in ("content", "moved", "made"):
                assert after["f"][0] == b"old" and set(after) == {"f"}
        assert outcome[0] == outcome[1], f"{account} in {place}: {outcome}"
        done.add(outcome[0])
    assert done == ({False} if what == "owner" else {False, True})


def test_forgetting_needs_the_rights_to_remove_and_to_own(mount):
    """vrm erases for good: only an owner with the right to remove may, and root."""
    may = {}
    for account, (place, mode) in itertools.product(ACCOUNTS, DIRECTORIES.items()):
        for owner in (4001, 4003):
            directory = mount.path / f"{account}-{place}-{owner}"
            directory.mkdir()
            os.chown(directory, 0, TEAM)
            os.chmod(directory, mode)
            (directory / "f").write_bytes(b"old")
            os.chown(directory / "f", owner, owner)
            write(directory / "f", b"new")
            output_of(mount, account, "vrm", "-y", directory / "f")
            may[account, place, owner] = not (directory / "f").exists()
    assert {key for key, done in may.items() if done} == {
        ("anna", "team", 4001), ("anna", "sticky", 4001), ("eve", "sticky", 4003)}
    for account, uid in (("anna", 4001), ("eve", 4003)):
        for place in DIRECTORIES:
            directory = mount.path / f"own-{account}-{place}"
            directory.mkdir()
            os.chown(directory, 0, TEAM)
            os.chmod(directory, 0o777)
            run_as(account, lambda: (directory / "f").write_bytes(b"old"))  # pylint: disable=W0640
            os.chmod(directory, DIRECTORIES[place])
            for other in set(ACCOUNTS) - {account}:
                output_of(mount, other, "vrm", "-y", directory / "f")
                assert (directory / "f").exists(), other
            output_of(mount, account, "vrm", "-y", directory / "f")
            could = place == "sticky" or (place == "team" and uid == 4001)
            assert (directory / "f").exists() != could, (account, place)
