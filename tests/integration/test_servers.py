# SPDX-License-Identifier: LGPL-2.1-or-later
"""The server of a mount is a program of the user who mounted it. It says where its tree, its store and its process are;
nobody else's tools, and not root's, follow that to a directory of another user."""
import contextlib
import os
import subprocess
import sys

import pytest

from forged import OPENED, forged_mount
from mounts import LIMIT, NOBODY, SECOND, epoch, moment, run

NOT_BELIEVED = "names a process or a directory that is not of the user who mounted it"


@pytest.fixture(name="victim")
def fixture_victim(maker):
    """A tree of root's that others cannot enter, not mounted, with a history and a secret in it."""
    mount = maker.mount()
    for text in ("the secret of yesterday\n", "the secret of today\n"):
        (mount.path / "f").write_text(text)
    mount.stop()
    mount.source.chmod(0o700)
    return mount


@contextlib.contextmanager
def holder_of(path, user):
    """A process of that user, which has the directory open as OPENED."""
    code = f"import os, time\nos.dup2(os.open({str(path)!r}, os.O_PATH), {OPENED})\nprint(flush=True)\ntime.sleep({LIMIT})"
    more = {} if user is None else {"user": user[0], "group": user[1], "extra_groups": []}
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, **more) as process:
        process.stdout.readline()
        try:
            yield process.pid
        finally:
            process.kill()


def snapshot(tree):
    found = {}
    for place, directories, files in os.walk(tree):
        for name in directories + files:
            path = os.path.join(place, name)
            status = os.lstat(path)
            found[path] = (status.st_mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    return found


COMMANDS = {
    "vfsck": ["vfsck", "MNT"],
    "vfsck -y": ["vfsck", "-y", "MNT"],
    "vfsck --rebind": ["vfsck", "--rebind", "-y", "MNT"],
    "vsend": ["vsend", "MNT"],
    "vsend --follow": ["vsend", "--follow", "MNT"],
    "vsend --to": ["vsend", "--to", "ELSEWHERE", "MNT"],
    "vstore status": ["vstore", "status", "MNT"],
    "vstore move": ["vstore", "move", "MNT", "ELSEWHERE"],
    "vstore move --ahead": ["vstore", "move", "--ahead", "MNT", "ELSEWHERE"],
    "vconfig": ["vconfig", "MNT"],
    "vconfig set": ["vconfig", "MNT", "set", "keep", "1s"],
    "at": ["wayback", "-o", "allow_other,at=NOW", "MNT", "OTHER"],
    "check-config": ["wayback", "--check-config", "MNT"],
}


@pytest.mark.parametrize("held_by", ["server", "root", "another user", "path"])
@pytest.mark.parametrize("command", COMMANDS)
def test_root_follows_no_server_to_what_is_not_of_its_user(maker, victim, command, held_by):
    """The server itself has the directory open as well: for that, a user needs no right to read it."""
    tree, elsewhere, other = victim.source, maker.scratch / "elsewhere", maker.point()
    before = snapshot(tree)
    with contextlib.ExitStack() as stack:
        more = {"opened": [tree]}
        if held_by == "path":
            more = {"source_fd": -1}
        elif held_by != "server":
            more = {"pid": stack.enter_context(holder_of(tree, None if held_by == "root" else SECOND))}
        point = stack.enter_context(forged_mount(maker, tree, **more))
        words = {"MNT": str(point), "ELSEWHERE": str(elsewhere), "OTHER": str(other)}
        arguments = [words.get(word, word.replace("NOW", epoch(moment()))) for word in COMMANDS[command]]
        said = victim.run_tool(*arguments, timeout=LIMIT)
        assert said.returncode != 0 and "secret" not in said.stdout and NOT_BELIEVED in said.stdout, said
    assert snapshot(tree) == before and not elsewhere.exists()


@pytest.mark.parametrize("command", ["vfsck", "vsend", "vconfig"])
def test_root_follows_a_server_to_the_tree_of_its_user(maker, command):
    mount = maker.mount(user=NOBODY)
    mount.tool("sh", "-c", f"echo one >{mount.path}/f; echo two >{mount.path}/f")
    mount.stop()
    with forged_mount(maker, mount.source, opened=[mount.source]) as point:
        said = run(*[word.replace("MNT", str(point)) for word in [str(mount.programs.directory / COMMANDS[command][0]),
                                                                   *COMMANDS[command][1:]]],
                   check=False, env=mount.programs.environment())
        assert said.returncode == 0, said.stdout


@pytest.mark.parametrize("of", ["tree", "above"])
@pytest.mark.parametrize("command", ["vstat", "vextract", "vrevert", "vconfig", "vstatus", "vstore"])
def test_no_server_stands_for_a_tree_of_somebody_else(maker, victim, command, of):
    """It is listed as the mount of that tree; the tools are given the path of the tree."""
    source = victim.source if of == "tree" else victim.source.parent
    when = epoch(moment())
    arguments = {"vstat": [victim.source / "f"], "vextract": ["-o", "-", victim.source / "f"],
                 "vrevert": ["-t", when, victim.source / "f"], "vconfig": [victim.source, "get", "keep"],
                 "vstatus": [victim.source], "vstore": ["move", victim.source, maker.scratch / "elsewhere"]}[command]
    alone = victim.run_tool(command, *arguments)
    if command == "vstore":
        victim.tool(command, "move", victim.source, victim.source / ".wayback")
    with forged_mount(maker, victim.source, source=source, listed=str(source), opened=[victim.source]):
        said = victim.run_tool(command, *arguments)
    assert (said.returncode, said.stdout) == (alone.returncode, alone.stdout)


SWAP = """
import ctypes, sys
libc = ctypes.CDLL(None)
one, other = (name.encode() for name in sys.argv[1:])
print(flush=True)
while True:
    libc.syscall(316, -100, one, -100, other, 2)  # renameat2(RENAME_EXCHANGE)
"""


def test_root_writes_no_settings_by_a_link_of_the_owner_of_the_tree(maker):
    """Not mounted: the owner exchanges the store for a link while root changes the settings."""
    mount, victim = maker.mount(source=maker.tree(owner=NOBODY)), maker.tree()
    (mount.path / "f").write_text("one")
    mount.stop()
    store, link = mount.source / ".wayback", mount.source / "link"
    link.symlink_to(victim)
    os.lchown(link, *NOBODY)
    with subprocess.Popen([sys.executable, "-c", SWAP, store, link], stdout=subprocess.PIPE, text=True, user=NOBODY[0],
                          group=NOBODY[1], extra_groups=[]) as swapping:
        try:
            swapping.stdout.readline()
            for days in range(1, 40):
                run(mount.programs.directory / "vconfig", mount.source, "set", "keep", f"{days}d", check=False,
                    env=mount.programs.environment())
                assert os.listdir(victim) == []
        finally:
            swapping.kill()


def test_the_private_mount_of_root_is_in_no_directory_of_another_user(maker, victim, monkeypatch):
    """`su` keeps XDG_RUNTIME_DIR: its owner could put a link to /etc in the place of the mount point."""
    theirs, ours = maker.point(NOBODY), maker.point()
    daemon, noted = maker.scratch / "daemon", maker.scratch / "noted"
    daemon.write_text(f'#!/bin/sh\necho "$@" >{noted}\nexec {victim.programs.directory}/wayback "$@"\n')
    daemon.chmod(0o755)
    monkeypatch.setenv("WAYBACK_DAEMON", str(daemon))
    for directory, is_used in ((theirs, False), (ours, True)):
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(directory))
        victim.tool("vstat", victim.source / "f")
        assert (str(directory) in noted.read_text()) == is_used
    ours.chmod(0o777)
    victim.tool("vstat", victim.source / "f")
    assert str(ours) not in noted.read_text()
