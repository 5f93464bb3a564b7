# SPDX-License-Identifier: LGPL-2.1-or-later
"""user-max-size: the history of a user's changes counts for that user, and is removed without anything of others."""
import errno
import json
import mmap
import os
import random
import time

import pytest

from mounts import LIMIT, NOBODY, SECOND, as_user, moment
from test_forget import found_in_store
from test_keeper import MIB, configure, wait_for
from treestate import differences, state_of

SENTINEL = b"a-deleted-file-that-nobody-else-may-make-go"
STUCK = f"user {NOBODY[0]} uses"


@pytest.fixture(name="mount", params=["refuse", "continue", "prune"])
def fixture_mount(maker, request):
    return ready(maker.mount("allow_other", f"onfull={request.param}"))


@pytest.fixture(name="plain")
def fixture_plain(maker):
    return ready(maker.mount("allow_other"))


def ready(mount):
    for name, user in (("theirs", NOBODY), ("others", SECOND), ("shared", (0, 0))):
        (mount.path / name).mkdir()
        os.chown(mount.path / name, *user)
    (mount.path / "shared").chmod(0o777)
    mount.path.chmod(0o755)
    return mount


def write_as(mount, user, path, data):
    as_user(lambda: (mount.path / path).write_bytes(data), *user)


def overwrite(path, data):
    with open(path, "r+b", buffering=0) as stream:
        rest = memoryview(data)
        while rest:
            rest = rest[stream.write(rest):]


def overwrite_as(mount, user, path, data):
    as_user(lambda: overwrite(mount.path / path, data), *user)


def shares(mount, user=None):
    answer = json.loads(mount.tool("vdf", "--json", mount.path, user=user).stdout)
    return answer["user_max_size"], {entry["uid"]: (entry["disk"], entry["stuck"]) for entry in answer["users"]}


def share(mount, user):
    return shares(mount)[1].get(user[0], (0, False))[0]


def limit_to(mount, limit, *lines):
    configure(mount, "compact = none", *lines, f"user-max-size = {limit}")
    wait_for(lambda: shares(mount)[0] == limit, "the limit holds", mount)
    # Users are counted after the first measurement.
    write_as(mount, SECOND, "others/counted", b"one")
    overwrite_as(mount, SECOND, "others/counted", b"two")
    wait_for(lambda: share(mount, SECOND) > 0, "users are counted", mount)


def patiently(mount, function):
    """At the limit a change waits ten seconds for history to be removed, which is too short on a busy machine; a later
    one succeeds."""
    deadline = time.monotonic() + LIMIT
    while True:
        try:
            return function()
        except OSError as error:
            assert error.errno == errno.EDQUOT and STUCK not in mount.log() and time.monotonic() < deadline


def until_refused(function, most=64):
    """How often it succeeded."""
    for count in range(most):
        try:
            function(count)
        except OSError as error:
            assert error.errno == errno.EDQUOT
            return count
    raise AssertionError("it was never refused")


# ---- at the limit ------------------------------------------------------------------------------------

def test_at_the_limit_their_changes_are_refused_and_no_others(mount):
    """Whatever onfull says: with onfull=continue a user could choose not to be recorded."""
    mount.expect("and the rest is protected")
    rng, limit = random.Random(1), 4 * MIB
    versions = [rng.randbytes(MIB) for _ in range(64)]
    whens = []
    write_as(mount, NOBODY, "theirs/f", versions[0])
    limit_to(mount, limit, "keep = 7d")

    def change(count):
        whens.append(moment())
        overwrite_as(mount, NOBODY, "theirs/f", versions[count + 1])

    count = until_refused(change)
    assert 2 <= count <= 5
    assert (mount.path / "theirs/f").read_bytes() == versions[count]
    for name, function in (
            ("create", lambda: (mount.path / "theirs/new").write_bytes(b"")),
            ("chmod", lambda: (mount.path / "theirs/f").chmod(0o600)),
            ("rename", lambda: (mount.path / "theirs/f").rename(mount.path / "theirs/g")),
            ("mkdir", lambda: (mount.path / "theirs/d").mkdir()),
            ("unlink", lambda: (mount.path / "theirs/f").unlink()),
            ("setxattr", lambda: os.setxattr(mount.path / "theirs/f", "user.a", b"b")),
            ("truncate", lambda: os.truncate(mount.path / "theirs/f", 0)),
            ("open", lambda: os.close(os.open(mount.path / "theirs/f", os.O_WRONLY | os.O_TRUNC)))):
        with pytest.raises(OSError) as caught:
            as_user(function, *NOBODY)
        assert caught.value.errno == errno.EDQUOT, name
    assert as_user((mount.path / "theirs/f").read_bytes, *NOBODY) == versions[count]
    for when, version in zip(whens, versions):
        assert (mount.at(when) / "theirs/f").read_bytes() == version
    # Others, and root, continue.
    overwrite_as(mount, SECOND, "others/counted", b"SIX")
    (mount.path / "theirs/f").write_bytes(b"root")
    wait_for(lambda: STUCK in mount.log(), "it is reported", mount)
    assert mount.log().count(STUCK) == 1
    mount.check_store()


def test_space_that_a_user_erases_is_given_back(plain):
    plain.expect("and the rest is protected")
    rng, limit = random.Random(2), 4 * MIB
    write_as(plain, NOBODY, "theirs/f", rng.randbytes(MIB))
    limit_to(plain, limit, "keep = 7d")
    until_refused(lambda _: overwrite_as(plain, NOBODY, "theirs/f", rng.randbytes(MIB)))
    plain.tool("vrm", "--history", "-y", plain.path / "theirs/f", user=NOBODY)
    wait_for(lambda: share(plain, NOBODY) < MIB, "it is measured again", plain)
    overwrite_as(plain, NOBODY, "theirs/f", rng.randbytes(MIB))


def test_root_has_no_limit(plain):
    rng, limit = random.Random(3), 2 * MIB
    limit_to(plain, limit, "keep = 7d")
    (plain.path / "f").write_bytes(rng.randbytes(MIB))
    for _ in range(6):
        overwrite(plain.path / "f", rng.randbytes(MIB))
    assert 0 not in shares(plain)[1]


# ---- removal -----------------------------------------------------------------------------------------

def test_their_oldest_is_removed_and_nothing_of_others(mount):
    mount.expect("was forgotten|and is not in the store")
    rng, limit = random.Random(4), 8 * MIB
    for user, path in ((NOBODY, "theirs"), (SECOND, "others")):
        for name in ("f", "gone"):
            write_as(mount, user, f"{path}/{name}", rng.randbytes(MIB // 2))
    first = moment()
    was = state_of(mount.path / "others")
    overwrite_as(mount, SECOND, "others/f", rng.randbytes(MIB // 2))
    write_as(mount, SECOND, "others/deleted", SENTINEL * 1000)
    as_user(lambda: ((mount.path / "others/deleted").unlink(), (mount.path / "others/gone").unlink()), *SECOND)
    overwrite_as(mount, NOBODY, "theirs/f", rng.randbytes(MIB // 2))
    as_user((mount.path / "theirs/gone").unlink, *NOBODY)
    limit_to(mount, limit)
    for _ in range(40):
        patiently(mount, lambda: overwrite_as(mount, NOBODY, "theirs/f", rng.randbytes(MIB)))
    last, content = moment(), (mount.path / "theirs/f").read_bytes()
    patiently(mount, lambda: overwrite_as(mount, NOBODY, "theirs/f", b"the last one"))
    wait_for(lambda: share(mount, NOBODY) <= limit, "within the limit", mount)
    for name in ("f", "gone"):
        with pytest.raises(OSError) as caught:
            (mount.at(first) / "theirs" / name).read_bytes()
        assert caught.value.errno == errno.EIO
    assert (mount.at(last) / "theirs/f").read_bytes() == content
    assert differences(was, state_of(mount.at(first) / "others")) == []
    assert found_in_store(mount, SENTINEL)
    # Names are kept, also those of removed history.
    assert sorted(os.listdir(mount.at(first) / "theirs")) == ["f", "gone"]
    mount.check_store()
    mount.remount()
    assert differences(was, state_of(mount.at(first) / "others")) == []
    assert (mount.at(last) / "theirs/f").read_bytes() == content


def test_deleted_files_are_theirs_as_well(plain):
    rng, limit = random.Random(5), 8 * MIB
    limit_to(plain, limit)
    for count in range(30):
        def churn(name=f"theirs/{count}"):
            (plain.path / name).write_bytes(rng.randbytes(MIB))
            (plain.path / name).unlink()
        patiently(plain, lambda: as_user(churn, *NOBODY))  # pylint: disable=W0640
    wait_for(lambda: share(plain, NOBODY) <= limit, "within the limit", plain)
    plain.check_store()


@pytest.mark.parametrize("lines", [["keep = 7d"], []], ids=["keep", "snapshot"])
def test_protected_history_is_not_removed(plain, lines):
    plain.expect("and the rest is protected")
    rng, limit = random.Random(6), 4 * MIB
    first = rng.randbytes(MIB)
    write_as(plain, NOBODY, "theirs/f", first)
    when = moment()
    if not lines:
        plain.tool("vsnap", "create", "mine", plain.path)
    limit_to(plain, limit, *lines)
    until_refused(lambda _: overwrite_as(plain, NOBODY, "theirs/f", rng.randbytes(MIB)))
    assert (plain.at(when) / "theirs/f").read_bytes() == first


# ---- attribution -------------------------------------------------------------------------------------

def test_changes_of_others_files_count_for_the_writer_and_their_history_is_kept(plain):
    """Neither is the owner's share filled, nor does the owner lose a version by it, though no age protects any."""
    plain.expect("and the rest is protected")
    rng, limit = random.Random(7), 4 * MIB
    first = rng.randbytes(MIB)
    write_as(plain, SECOND, "shared/f", first)
    (plain.path / "shared/f").chmod(0o666)
    write_as(plain, SECOND, "shared/deleted", SENTINEL * 1000)
    limit_to(plain, limit)
    when = moment()
    as_user((plain.path / "shared/deleted").unlink, *NOBODY)
    until_refused(lambda _: overwrite_as(plain, NOBODY, "shared/f", rng.randbytes(MIB)))
    assert share(plain, NOBODY) > limit * 3 // 4 and share(plain, SECOND) < MIB
    overwrite_as(plain, SECOND, "shared/f", b"still")
    assert (plain.at(when) / "shared/f").read_bytes() == first
    assert found_in_store(plain, SENTINEL)


def test_a_change_by_others_in_between_ends_the_removable_part(plain):
    """The history of a file is deleted up to a moment, so it ends before the first change by another user."""
    plain.expect("and the rest is protected")
    rng, limit = random.Random(8), 6 * MIB
    write_as(plain, NOBODY, "theirs/f", b"old" * 1000)
    limit_to(plain, limit)
    overwrite_as(plain, NOBODY, "theirs/f", rng.randbytes(MIB))
    content = (plain.path / "theirs/f").read_bytes()
    when = moment()
    (plain.path / "theirs/f").write_bytes(b"root was here")
    until_refused(lambda _: write_as(plain, NOBODY, "theirs/f", rng.randbytes(MIB)))
    assert (plain.at(when) / "theirs/f").read_bytes() == content


def test_a_mapping_counts_for_the_owner(plain):
    """It is unknown which user stored the bytes."""
    plain.expect("and the rest is protected")
    rng, limit = random.Random(9), 4 * MIB
    write_as(plain, NOBODY, "theirs/f", rng.randbytes(MIB))
    limit_to(plain, limit, "keep = 7d")

    def store(_):
        def work():
            with open(plain.path / "theirs/f", "r+b") as stream, mmap.mmap(stream.fileno(), MIB) as mapping:
                mapping[:] = rng.randbytes(MIB)
                mapping.flush()
        as_user(work, *NOBODY)

    until_refused(store)
    assert share(plain, NOBODY) > limit * 3 // 4


# ---- output ------------------------------------------------------------------------------------------

def test_shares_are_found_again_at_the_next_mount(plain):
    rng, limit = random.Random(10), 64 * MIB
    write_as(plain, NOBODY, "theirs/f", rng.randbytes(MIB))
    write_as(plain, NOBODY, "theirs/g", rng.randbytes(MIB))
    for _ in range(3):
        overwrite_as(plain, NOBODY, "theirs/f", rng.randbytes(MIB))
    as_user((plain.path / "theirs/g").unlink, *NOBODY)
    limit_to(plain, limit)
    for _ in range(2):
        assert 4 * MIB <= share(plain, NOBODY) <= 5 * MIB
        plain.remount()
        wait_for(lambda: share(plain, NOBODY) > 0, "it is measured", plain)
    assert shares(plain, user=NOBODY) == (limit, {NOBODY[0]: (share(plain, NOBODY), False)})
    text = plain.tool("vdf", plain.path).stdout
    assert "Users: at most 64 MiB of history for the changes of each (user-max-size)" in text.replace("64.0", "64")
    assert "user-max-size" in plain.tool("vdf", plain.path, user=NOBODY).stdout


def test_without_a_limit_nobody_is_counted(plain):
    write_as(plain, NOBODY, "theirs/f", b"one")
    assert shares(plain) == (0, {})
    assert "user-max-size" not in plain.tool("vdf", plain.path).stdout


def test_the_configuration_is_checked(plain):
    def check(*lines, code=0):
        path = plain.store() / "wayback.conf"
        path.write_text("\n".join(("[history]",) + lines) + "\n", encoding="ascii")
        return plain.tool("wayback", "--check-config", plain.source, status=code)

    assert "the history of the changes of each user except root uses at most 5" in check("user-max-size = 5G").stdout
    assert "user-max-size = none" in check("user-max-size = none", code=1).stdout
    assert "1 % of the device" in check("user-max-size = 1%").stdout.replace("1%", "1 %")
