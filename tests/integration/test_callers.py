# SPDX-License-Identifier: LGPL-2.1-or-later
"""Requests from another user or mount namespace than the daemon's: uid 0 in a container is not root here."""
import errno
import os
import pathlib
import re
import signal
import subprocess
import sys

import pytest

from by_hand import control
from mounts import NOBODY, SECOND, epoch, moment, mounted_at

HELLO, ERASE, COMPACT, PRUNE, BUDGET = 1, 5, 20, 21, 25
# A root of its own, with the mount in it, as a container has it.
CONTAINER = ("unshare", "-m", "sh", "-c",
             'mkdir -p "$0" && mount --rbind / "$0" && cd "$0" && exec chroot "$0" "$@"')
WAYS = {
    "another mount namespace": lambda top: ("unshare", "-m"),
    "another user namespace": lambda top: ("unshare", "-U", "-r"),
    "another user namespace without a map": lambda top: ("unshare", "-U"),
    "both": lambda top: ("unshare", "-U", "-r", "-m"),
    "both, with processes of its own": lambda top: ("unshare", "-U", "-r", "-m", "-p", "-f", "--mount-proc"),
    "a container": lambda top: (*CONTAINER, str(top)),
}
AT_HOME = {
    "home": lambda top: (),
    "processes of its own": lambda top: ("unshare", "-p", "-f"),
    "a network of its own": lambda top: ("unshare", "-n", "-u", "-i"),
}


@pytest.fixture(name="way", params=sorted(WAYS))
def fixture_way(request, tmp_path):
    return WAYS[request.param](tmp_path / "root")


@pytest.fixture(name="shared")
def fixture_shared(maker):
    mount = maker.mount("allow_other")
    (mount.path / "d").mkdir()
    (mount.path / "d/f").write_bytes(b"one")
    moment()
    (mount.path / "d/f").write_bytes(b"two")
    moment()
    mount.tool("vsnap", "create", "known", mount.path)
    return mount


def state(mount):
    """The state that a request may change: the versions of a file, the snapshots, the place of the store."""
    return (mount.tool("vstat", "--json", mount.path / "d/f").stdout, mount.tool("vsnap", "list", "--json", mount.path).stdout,
            (mount.source / ".wayback/header").read_bytes()[:64], (mount.path / "d/f").read_bytes())


def changes(mount, to):
    yield "vprune", "-y", "--before", "0s", mount.path
    yield "vprune", "-n", "--before", "0s", mount.path
    yield "vprune", "-y", "--keep-versions", "1", mount.path
    yield "vstore", "move", mount.path, to
    yield "vrm", "-y", "--history", mount.path / "d/f"
    yield "vrm", "-n", mount.path / "d/f"
    yield "vsnap", "create", "mine", mount.path / "d"
    yield "vsnap", "rename", "known", "other", mount.path
    yield "vsnap", "delete", "known", mount.path
    yield "vcompact", mount.path / "d/f"
    yield "vcompact", mount.path


def test_changes_of_the_store_are_refused(shared, way, maker):
    to = maker.tree() / "elsewhere"
    before = state(shared)
    for command in changes(shared, to):
        result = shared.run_tool(way[0], *way[1:], *map(str, command))
        assert result.returncode not in (0, 2), (command, result.stdout)
        words = ("namespace", "nsenter -t PID")
        assert all(word in result.stdout for word in words), (command, result.stdout)
        assert any(name in result.stdout for name in (str(shared.path), "mine", "known")), (command, result.stdout)
        assert state(shared) == before, command
    assert not to.exists()


def ask_from(shared, way, command, path="", flags=0):
    """The number of the error that a request made by hand returns, 0 for none, and its reply."""
    code = "import sys; sys.path.insert(0, sys.argv[1])\nfrom by_hand import control\n" \
           "try:\n    sys.stdout.buffer.write(b'0 ' + control(sys.argv[2], *map(int, sys.argv[3:4]), sys.argv[4], " \
           "flags=int(sys.argv[5])))\nexcept OSError as error:\n    print(error.errno, '')"
    answer = subprocess.run([*way, sys.executable, "-IS", "-c", code, os.path.dirname(__file__), str(shared.path), str(command), path,
                             str(flags)], check=True, stdout=subprocess.PIPE).stdout
    number, data = answer.split(b" ", 1)
    return int(number), data


def test_every_request_that_changes_something_is_refused(shared, way):
    top = pathlib.Path(__file__).parents[2]
    numbers = dict(re.findall(r"^    WB_CONTROL_(\w+) = (\d+),", (top / "include/wayback/control.h").read_text(encoding="ascii"), re.M))
    table = dict(re.findall(r"^    X\((\w+), \w+, ([^,]+),", (top / "src/control/requests.h").read_text(encoding="ascii"), re.M))
    changing = {name: errno.EREMOTE for name, flags in table.items() if "_CHANGES" in flags or "_HOME" in flags or name == "BUDGET"}
    changing["RESTORE"] = errno.EXDEV  # vrevert copies then
    assert len(changing) == 14 and len(table) == 24  # one more: does it belong here?
    before = state(shared)
    assert {name: ask_from(shared, way, numbers[name], "d/f")[0] for name in changing} == changing
    for name in sorted(set(table) - set(changing)):
        ask_from(shared, way, numbers[name], "d/f")
    assert state(shared) == before


def test_facts_for_root_alone_are_hidden(shared, way):
    number, data = ask_from(shared, way, HELLO)
    assert number == 0 and not any(data[:4096]) and os.fsencode(shared.source) not in data
    subprocess.run(["setpriv", f"--reuid={NOBODY[0]}", "--clear-groups", "sh", "-c", f'cat "{shared.path}/d/f" ; : s3cret'],
                   check=True, stdout=subprocess.DEVNULL)
    os.chmod(shared.path / "d", 0o777)
    subprocess.run(["setpriv", f"--reuid={NOBODY[0]}", "--clear-groups", "sh", "-c", f'echo x > "{shared.path}/d/new" ; : s3cret'],
                   check=True)
    for tool, path in (("vstat", "d/new"), ("vlog", "d")):
        assert "s3cret" in shared.tool(tool, "-v", shared.path / path).stdout
        result = shared.run_tool(way[0], *way[1:], tool, "-v", shared.path / path)
        assert result.returncode == 0 and "s3cret" not in result.stdout, result.stdout


def test_reads_and_changes_that_can_be_undone_are_allowed(shared, way):
    """vrevert copies, as it does for a user who is not the owner."""
    then = epoch(moment())
    (shared.path / "d/f").unlink()
    for tool, *rest in (("vstat", "d/f"), ("vlog", "d"), ("vfind", "--deleted", "d"), ("vdf", "d")):
        arguments = [*rest[:-1], str(shared.path / rest[-1])]
        result = shared.run_tool(way[0], *way[1:], tool, *arguments)
        assert result.returncode == 0, (tool, result.stdout)
    result = shared.run_tool(way[0], *way[1:], "vrevert", "--time", then, str(shared.path / "d/f"))
    if "without a map" not in str(way) and result.returncode == 0:
        assert (shared.path / "d/f").read_bytes() == b"two"
    else:
        assert "-U" in way, result.stdout  # no power over files there


def test_snapshots_of_other_directories_are_not_shown(shared, way):
    (shared.path / "private").mkdir()
    shared.tool("vsnap", "create", "secret", shared.path / "private")
    shared.tool("vsnap", "create", "open", shared.path / "d")
    assert "secret" in shared.tool("vsnap", "list", shared.path).stdout
    script = "import sys; sys.path.insert(0, sys.argv[1]); from by_hand import control; " \
             "sys.stdout.buffer.write(control(sys.argv[2], 7, ''))"
    answer = subprocess.run([*way, sys.executable, "-IS", "-c", script, os.path.dirname(__file__), str(shared.path / "d")], check=True,
                            stdout=subprocess.PIPE).stdout
    assert b"open" in answer and b"known" in answer and b"secret" not in answer


@pytest.mark.parametrize("way", sorted(AT_HOME))
def test_a_caller_in_both_namespaces_is_allowed(shared, way, tmp_path):
    way = AT_HOME[way](tmp_path)
    for command in (("vsnap", "create", "mine", shared.path / "d"), ("vcompact", shared.path / "d/f"),
                    ("vrm", "-y", shared.path / "d/f"), ("vprune", "-y", "--before", "0s", shared.path)):
        result = subprocess.run([*way, *map(str, command)], env=shared.programs.environment(), text=True, check=False,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        if command[0] != "vprune":
            assert result.returncode == 0, result.stdout
        else:
            assert result.returncode == 0 or "snapshot" in result.stdout, result.stdout


def test_a_change_of_root_alone_is_not_a_container(shared, tmp_path):
    """chroot(2) leaves both namespaces as they are; a process that may call it can also leave it."""
    top = tmp_path / "top"
    top.mkdir()
    try:
        subprocess.run(["mount", "--rbind", "/", top], check=True)
        subprocess.run(["chroot", top, "vsnap", "create", "mine", shared.path / "d"], check=True,
                       env=shared.programs.environment())
    finally:
        subprocess.run(["umount", "-R", "-l", top], check=True)
    assert "mine" in shared.tool("vsnap", "list", shared.path / "d").stdout


def test_other_users_in_a_container_are_restricted_as_well(shared, way):
    """A container's rights are not those of its user numbers outside."""
    os.chown(shared.path / "d", *SECOND)
    os.chown(shared.path / "d/f", *SECOND)
    before = state(shared)
    if way[:1] == ("unshare",) and "-U" not in way:
        way = (*way, "setpriv", f"--reuid={SECOND[0]}", f"--regid={SECOND[1]}", "--clear-groups")
        user = None
    else:
        user = SECOND
    result = shared.run_tool(way[0], *way[1:], "vrm", "-y", "--history", str(shared.path / "d/f"), user=user)
    assert result.returncode not in (0, 2) and "nsenter" in result.stdout, result.stdout
    assert state(shared) == before
    shared.tool("vrm", "-y", "--history", shared.path / "d/f", user=SECOND)


def test_a_caller_that_the_daemon_cannot_see(maker):
    """The daemon has processes of its own, and the caller is none of them."""
    mount = maker.mount("allow_other", start=False)
    command = mount.command()
    with open(mount.log_path, "ab") as log:
        child = subprocess.Popen(["unshare", "-p", "-f", "--kill-child", *command],  # pylint: disable=R1732
                                 stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=mount.programs.environment())
    try:
        while not (mounted_at(mount.path) or "").startswith("fuse"):
            assert child.poll() is None, mount.log()
        (mount.path / "f").write_bytes(b"one")
        for request in (PRUNE, ERASE, BUDGET):
            with pytest.raises(OSError) as caught:
                control(mount.path, request, "f")
            assert caught.value.errno == errno.EREMOTE
        assert not any(control(mount.path, HELLO, "")[:4096])
    finally:
        subprocess.run(["umount", mount.path], check=True)
        child.send_signal(signal.SIGTERM)
        child.wait()
