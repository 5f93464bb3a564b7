# SPDX-License-Identifier: LGPL-2.1-or-later
"""Lists of changes disclose nothing that was closed to the user when it was made."""
import fcntl
import json
import os
import random
import struct

import pytest

from mounts import SECOND, as_user, epoch, moment, nanoseconds


def versions(mount, path, user=SECOND):
    result = mount.run_tool("vstat", "--json", "--operations", path, user=user, merge=False)
    assert result.returncode == 0, result.stderr
    return result.stdout, json.loads(result.stdout)["versions"]


def changes(mount, path, user=SECOND):
    result = mount.run_tool("vlog", "--json", path, user=user, merge=False)
    assert result.returncode == 0, result.stderr
    return result.stdout, [json.loads(line) for line in result.stdout.splitlines()]


def both(mount, path, user=SECOND):
    return versions(mount, path, user)[0] + changes(mount, path, user)[0]


def test_names_of_a_directory_while_it_was_closed(maker):
    mount = maker.mount("allow_other")
    top = mount.path / "d"
    top.mkdir()
    (top / "shown").write_bytes(b"x")
    os.chmod(top, 0o700)
    (top / "secret-plan").write_bytes(b"secret")
    (top / "secret-plan").unlink()
    (top / "secret-old").write_bytes(b"secret")
    os.rename(top / "secret-old", top / "secret-new")
    (top / "secret-new").unlink()
    os.chmod(top, 0o755)
    (top / "again").write_bytes(b"x")
    everything = versions(mount, top, None)[1]
    visible = versions(mount, top)[1]
    assert "secret-plan" in both(mount, top, None)
    assert "secret" not in both(mount, top) + both(mount, mount.path)
    assert [(v["change"], v["operation"], nanoseconds(v)) for v in visible] == \
        [(v["change"], v["operation"], nanoseconds(v)) for v in everything]
    names = [(v.get("name"), v["op"]) for v in everything]
    for version, name in zip(visible, names):
        assert version["withheld"] == (name[0] or "").startswith("secret")
        assert version["withheld"] or (version.get("name"), version["op"]) == name
        assert not version["withheld"] or set(version) == {"change", "operation", "time", "epoch", "withheld"}
    assert {"shown", "again"} <= {v.get("name") for v in visible}
    assert {"d/shown", "d/again", "d"} <= {row["path"] for row in changes(mount, mount.path)[1]}
    text = mount.run_tool("vstat", top, user=SECOND, merge=False).stdout
    assert text.count("(withheld)") == 5 and "secret" not in text
    # Changes in between cannot be visited by their numbers.
    closed = next(v["change"] for v in visible if v["withheld"])
    with pytest.raises(PermissionError):
        as_user(lambda: os.listdir(f"{top}@~{closed}"), *SECOND)
    mount.remount()
    assert versions(mount, top)[1] == visible


def test_a_directory_closed_by_a_parent(maker):
    mount = maker.mount("allow_other")
    (mount.path / "above/d").mkdir(parents=True)
    os.chmod(mount.path / "above", 0o700)
    (mount.path / "above/d/secret").write_bytes(b"")
    (mount.path / "above/d/secret").unlink()
    os.rename(mount.path / "above/d", mount.path / "d")
    (mount.path / "d/shown").write_bytes(b"")
    assert "secret" in both(mount, mount.path / "d", None)
    visible = both(mount, mount.path / "d") + changes(mount, mount.path)[0]
    assert "secret" not in visible and "shown" in visible and '"above/' not in visible


def test_a_file_while_it_could_not_be_read(maker):
    mount = maker.mount("allow_other")
    path = mount.path / "f"
    path.write_bytes(b"one")
    os.chmod(path, 0o600)
    path.write_bytes(b"hidden hidden")
    os.setxattr(path, "user.secret", b"x")
    os.chmod(path, 0o644)
    path.write_bytes(b"three")
    os.setxattr(path, "user.shown", b"x")
    everything = versions(mount, path, None)[1]
    text, visible = versions(mount, path)
    assert "user.shown" in text and "user.secret" not in both(mount, path)
    assert "user.secret" in both(mount, path, None)
    chmods = [nanoseconds(v) for v in everything if v["op"] == "chmod"]
    assert [v["withheld"] for v in visible] == [chmods[1] < nanoseconds(v) < chmods[0] for v in everything]
    assert any(v["withheld"] for v in visible)
    assert not any(chmods[1] < nanoseconds(row) < chmods[0] for row in changes(mount, path)[1])
    assert len(changes(mount, path)[1]) == len([v for v in visible if not v["withheld"]])


def test_names_of_a_file_in_private_directories(maker):
    mount = maker.mount("allow_other")
    (mount.path / "closed").mkdir(mode=0o700)
    (mount.path / "closed/secret-name").write_bytes(b"text")
    os.rename(mount.path / "closed/secret-name", mount.path / "f")
    (mount.path / "f").write_bytes(b"more")
    (mount.path / "g").write_bytes(b"text")
    os.rename(mount.path / "g", mount.path / "closed/secret-goal")
    for path in ("f", "g", ""):
        assert "secret-" in both(mount, mount.path / path, None)
        result = mount.run_tool("vstat", "--json", mount.path / path, user=SECOND, merge=False)
        assert "secret-" not in result.stdout, path
        result = mount.run_tool("vlog", "--json", mount.path / path, user=SECOND, merge=False)
        assert "secret-" not in result.stdout, path
    assert '"write"' in versions(mount, mount.path / "f")[0]


def test_the_owner_and_pages(maker):
    mount = maker.mount("allow_other")
    os.chmod(mount.path, 0o777)

    def work():
        os.mkdir(mount.path / "mine")
        os.chmod(mount.path / "mine", 0o700)
        for i in range(40):
            (mount.path / "mine" / f"f{i}").write_bytes(b"x")

    as_user(work, *SECOND)
    assert versions(mount, mount.path / "mine") == versions(mount, mount.path / "mine", None)
    assert changes(mount, mount.path / "mine") == changes(mount, mount.path / "mine", None)
    os.chmod(mount.path / "mine", 0o755)
    result = versions(mount, mount.path / "mine", (77, 77))[1]
    numbers = [v["operation"] for v in result]
    assert numbers == list(range(1, len(numbers) + 1)) and sum(v["withheld"] for v in result) == 40


def identify(directory, path):
    """IDENTIFY as include/wayback/control.h has it: (state, unchanged, path now)."""
    head = struct.Struct("=4IQ2q")
    size = head.size + 4096 + 8192
    request = bytearray(head.pack(1, 3, 0, 0, 0, 0, 0) + os.fsencode(path).ljust(4096, b"\0") + bytes(8192))
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.ioctl(fd, 3 << 30 | size << 16 | ord("W") << 8 | 0x42, request)
    finally:
        os.close(fd)
    reply = bytes(request[head.size + 4096:])
    state, unchanged = struct.unpack_from("=QqqIII", reply)[4:6]
    return state, unchanged, reply[48:48 + 4096].split(b"\0")[0].decode()


def test_the_current_place_of_a_file_in_a_closed_directory(maker):
    alive, gone = 1, 3
    mount = maker.mount("allow_other")
    (mount.path / "goal").write_bytes(b"text")
    then = moment()
    (mount.path / "closed").mkdir(0o700)
    os.rename(mount.path / "goal", mount.path / "closed/secret-goal")
    name = f"goal@{epoch(then)}"
    assert identify(mount.path, name) == (alive, 1, "closed/secret-goal")
    assert as_user(lambda: identify(mount.path, name), *SECOND) == (gone, 0, "")
    os.chmod(mount.path / "closed", 0o711)
    assert as_user(lambda: identify(mount.path, name), *SECOND) == (alive, 1, "closed/secret-goal")
    os.chmod(mount.path / "closed/secret-goal", 0o600)
    assert as_user(lambda: identify(mount.path, name), *SECOND) == (alive, 0, "closed/secret-goal")


@pytest.mark.parametrize("seed", range(4))
def test_what_is_known_of_rights_keeps_up_with_changes(maker, seed):
    """Each list is made by a process of its own, for which only the records since the list before are read."""
    mount = maker.mount("allow_other")
    rng = random.Random(seed)
    directory, path = mount.path / "d", mount.path / "d/f"
    directory.mkdir()
    path.write_bytes(b"first")
    written = 0

    def write(how):
        nonlocal written
        written += 1
        with open(path, how) as stream:
            stream.write(b"%d" % written)

    steps = [
        lambda: write("r+b"), lambda: write("ab"), lambda: write("wb"),
        lambda: path.chmod(rng.choice((0o600, 0o644))), lambda: directory.chmod(rng.choice((0o700, 0o755))),
        lambda: os.rename(path, path.with_name("g")) or os.rename(path.with_name("g"), path),
        lambda: os.setxattr(path, "user.x", b"%d" % written),
        lambda: os.rename(directory, mount.path / "e") or os.rename(mount.path / "e", directory),
    ]
    for _ in range(15):
        for _ in range(rng.randrange(1, 5)):
            rng.choice(steps)()
        path.chmod(0o644)
        directory.chmod(0o755)
        versions(mount, path)
    known = versions(mount, path)[1], versions(mount, directory)[1]
    assert any(version["withheld"] for version in known[0]) and any(not version["withheld"] for version in known[0])
    mount.remount()
    assert (versions(mount, path)[1], versions(mount, directory)[1]) == known
