# SPDX-License-Identifier: LGPL-2.1-or-later
"""/proc with hidepid=2: the daemon may not see which groups a caller is in. What it answers then is right, or a refusal:
a group can also have less than all others."""
import ctypes
import itertools
import os

import pytest

from mounts import NOBODY, as_user, epoch, has_landlock, in_process, moment, run

GROUP = 4777
MODES = (0o640, 0o604, 0o600, 0o644, 0o060, 0o006)
ACLS = ("g:4777:---,o::r--", "g:4777:r--,o::---", "g:4777:r--,m::---,o::r--", "g:4777:---,g:4778:r--,o::r--",
        "u:{user}:r--,g:4777:---,o::---", "u:{user}:---,g:4777:r--,o::r--")
NEWNS = 0x20000


def hide_processes(how):
    """A mount namespace whose /proc does not show the processes of others."""
    if ctypes.CDLL(None, use_errno=True).unshare(NEWNS) < 0:
        raise OSError(ctypes.get_errno(), "unshare")
    run("mount", "--make-rprivate", "/")
    run("mount", "-t", "proc", "-o", how, "proc", "/proc")


def readable(path):
    try:
        path.read_bytes()
    except PermissionError:
        return False
    return True


def answers(paths):
    """Who can read which of these files: {(groups, name): bool}."""
    found = {}
    for groups in ((), (GROUP,), (GROUP + 1, GROUP + 2), (GROUP, GROUP + 1)):
        came = as_user(lambda: {name: readable(path) for name, path in paths.items()}, *NOBODY, groups=groups)
        found.update({(groups, name): value for name, value in came.items()})
    return found


RULES = (*MODES, *ACLS)


def fill(top):
    """A file, and a directory with one, for each rule; their names."""
    names = []
    for number, _ in enumerate(RULES):
        names += [f"f{number}", f"d{number}/file"]
        (top / f"d{number}").mkdir()
        for name in names[-2:]:
            (top / name).write_bytes(b"content")
            (top / name).chmod(0o644)
        for name in (f"f{number}", f"d{number}"):
            os.chown(top / name, 0, GROUP)
            (top / name).chmod(0o644 if name[0] == "f" else 0o755)
    return names


def close_some(top):
    for number, rule in enumerate(RULES):
        for directory, path in enumerate((top / f"f{number}", top / f"d{number}")):
            if isinstance(rule, int):
                # To search a directory is to execute it.
                path.chmod(0o700 | (rule & 0o077) >> 2 if directory else rule)
            else:
                rule = rule.format(user=NOBODY[0])
                path.chmod(0o700 if directory else 0o600)
                run("setfacl", "-m", rule.replace("r--", "--x") if directory else rule, path)


# Without gid=, group 0 sees all processes if it is not `ptraceable`, and so does the daemon.
@pytest.mark.parametrize("how", ["hidepid=2", "hidepid=2,gid=4999", "hidepid=ptraceable"])
@pytest.mark.parametrize("option", ["", pytest.param("landlock", marks=pytest.mark.skipif(
    not has_landlock(), reason="this kernel has no Landlock"))])
def test_the_past_is_refused_rather_than_opened_by_a_guess(maker, option, how):
    mount = maker.mount("allow_other", *filter(None, [option]), start=False)

    def work():
        hide_processes(how)
        mount.start()
        names = fill(mount.path)
        opened = epoch(moment())
        close_some(mount.path)
        for name in names:
            (mount.path / name).write_bytes(b"changed")
        closed = epoch(moment())
        (mount.path / "f0").write_bytes(b"changed again")
        now = answers({name: mount.path / name for name in names})
        then = [answers({name: mount.path / f"@{when}" / name for name in names}) for when in (opened, closed)]
        hidden = not as_user(lambda: os.path.exists("/proc/1"), *NOBODY)
        mount.stop()
        return now, then, hidden
    now, then, hidden = in_process(work)
    assert hidden and set(now.values()) == {True, False}
    for came in then:
        assert {what for what in now if came[what] and not now[what]} == set()
        refused = {what for what in now if now[what] and not came[what]}
        # Others see it as well, or the user is named: no group is asked for.
        assert not {name for _, name in refused} & {"f3", "d3/file", "f10", "d10/file"}
        assert not refused or option and how != "hidepid=2"
