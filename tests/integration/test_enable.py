# SPDX-License-Identifier: LGPL-2.1-or-later
"""`wayback enable` and `disable`: units, fstab, the mount, the policy, and checks before anything is made."""
import os
import pty
import pwd
import shutil
import signal
import subprocess
import time

import pytest

from enabling import Machine, all_of_terminal
from mounts import LIMIT, NOBODY, run

USER_UNIT = "config/systemd/user/wayback@{}.service"


@pytest.fixture(name="machine")
def fixture_machine(maker):
    """Builds machines, and unmounts what is left."""
    made = []

    def build(**options):
        made.append(Machine(maker, **options))
        return made[-1]

    yield build
    for machine in made:
        machine.close()


def instance(directory):
    return run("systemd-escape", "--path", directory).stdout.strip() if shutil.which("systemd-escape") else \
        str(directory).strip("/").replace("-", "\\x2d").replace("/", "-").replace(" ", "\\x20").replace("%", "\\x25")


def names(machine):
    """As the user sees them: root may not look into the mount of another user."""
    return run(*machine.command("ls", "-A", machine.directory)).stdout.split("\n")[:-1]


def no_trace(machine):
    assert names(machine) == []
    assert ".wayback-test" not in machine.tool("vfind", "*", machine.directory)
    assert ".wayback-test" not in machine.tool("vlog", machine.directory)


WAYS = {"user": dict(systemd=True, user=NOBODY), "system": dict(systemd=True), "fstab": dict(systemd=False)}


@pytest.mark.parametrize("way", WAYS)
def test_there_and_back(machine, way):
    """Enabled, recorded, tested without a trace; then a plain directory, with its history, and enabled again."""
    one = machine(**WAYS[way])
    before = one.files()
    name = instance(one.directory)
    said = one.enable("--keep", "30d", "--max", "20G")
    assert one.is_mounted()
    assert "set keep = 30d (was: 7d)\n" in said and "set max-size = 20G (was: not set)\n" in said
    assert "tested: " in said and f"{one.directory} is recorded\n" in said
    assert "every version for 30d, whatever size that takes; older ones until the history takes 20G" in said
    no_trace(one)
    written = {path: text for path, text in one.files().items() if path not in before}
    calls = one.calls()
    if way == "user":
        assert set(written) == {USER_UNIT.format(name),
                                f"config/systemd/user/default.target.wants/wayback@{name}.service"}
        assert calls == ["--user daemon-reload", f"--user enable wayback@{name}.service",
                         f"--user restart wayback@{name}.service"]
        assert "loginctl enable-linger" in said
    elif way == "system":
        assert written == {f"etc/wayback/{name}.env": "# Written by `wayback enable`; `wayback disable` removes it.\n"
                                                       'WAYBACK_OPTIONS="allow_other"\n',
                           f"etc/systemd/system/multi-user.target.wants/wayback@{name}.service":
                           f"{one.root}/usr/lib/systemd/system/wayback@.service"}
        assert calls == ["daemon-reload", f"enable wayback@{name}.service", f"restart wayback@{name}.service"]
    else:
        place = str(one.directory).replace(" ", "\\040")
        assert written == {"etc/fstab": f"{place}  {place}  wayback  allow_other,nofail  0  0\n"} and calls == []
    run(*one.command("touch", one.directory / "f"))
    said = one.disable()
    assert not one.is_mounted() and one.files() | {"etc/fstab": ""} == before | {"etc/fstab": ""}
    assert f"{one.directory} is a plain directory again\n" in said and "wayback enable " in said
    assert sorted(os.listdir(one.directory)) == [".wayback", "f"]
    assert "nothing to change" in one.disable()
    # Its policy is that of before, and its past is there.
    said = one.enable()
    assert "set " not in said and "every version for 30d" in said
    assert "create" in one.tool("vstat", one.directory / "f")
    one.disable()


@pytest.mark.parametrize("way", WAYS)
def test_a_second_call_changes_what_differs(machine, way):
    one = machine(**WAYS[way])
    one.enable("--keep", "30d")
    before = one.files()
    said = one.enable("--keep", "30d")
    assert said.startswith("nothing to change; tested: ") and one.files() == before
    said = one.enable("--keep", "40d")
    assert said.startswith("set keep = 40d (was: 30d)\ntested: ") and one.files() == before
    # Other options need another mount.
    pid = one.tool("vstatus", "--json", one.directory)
    said = one.enable("-o", "history=close")
    assert said.splitlines()[0].startswith("changed ") and said.splitlines()[1].startswith("mounted again, ")
    assert one.is_mounted() and one.tool("vstatus", "--json", one.directory) != pid
    changed = one.files()
    assert changed != before and "history=close" in "".join(changed.values())
    # Options that are not given stay as they are.
    assert one.enable().startswith("nothing to change; ") and one.files() == changed
    holder = subprocess.Popen(one.command("sh", "-c", 'cd "$1" && echo in && read wait', "sh", one.directory), text=True,
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout.readline() == "in\n"
    said = one.enable("-o", "history=write")
    holder.communicate("\n", timeout=LIMIT)
    assert f"the new options hold from the next mount on; it is in use by sh {holder.pid} (stands in " in said
    assert "history=write" in "".join(one.files().values())


def test_a_dry_run_only_shows(machine):
    for options in WAYS.values():
        one = machine(**options)
        before = one.files()
        said = one.enable("-n", "--keep", "30d", "--max", "1T")
        assert "would mount " in said and "would set keep = 30d, max-size = 1T\n" in said
        assert not one.is_mounted() and one.files() == before and os.listdir(one.directory) == [] and one.calls() == []
        one.enable()
        before, _ = one.files(), one.calls()
        assert one.enable("-n", "--keep", "30d") == "would set keep = 30d (was: 7d)\n"
        said = one.disable("-n", "--forget-history")
        assert "would unmount " in said and "would remove " in said and "is a plain" not in said
        assert one.is_mounted() and one.files() == before and one.calls() == []
        assert "every version for at least 7d" in one.enable()


@pytest.mark.parametrize("arguments, word", [
    (("--keep", "30q"), "--keep: keep = 30q: invalid; use an age"), (("--max", "many"), "--max: max-size = many: "),
    (("--keep", ""), "--keep: "), (("--user", "--fstab"), "exclude each other"), (("-o", ""), "-o: a list"),
    (("--bogus",), "--bogus")])
def test_wrong_usage(machine, arguments, word):
    one = machine(systemd=False)
    assert word in one.enable(*arguments, status=2)
    assert os.listdir(one.directory) == [] and not one.fstab.exists()


def test_refused_before_anything_is_made(machine, maker):
    one = machine(systemd=False)
    assert "no such file" in one.call("venable", one.directory / "none", status=1)
    assert "Refusing to mount over /etc. " in one.call("venable", "/etc", status=1)
    mount = maker.mount("allow_other")
    assert "is itself a Wayback mount (of " in one.call("venable", mount.path, status=1)
    mount.stop()
    (one.root / "sbin/mount.wayback").unlink()
    assert "mount.wayback is not installed in /sbin" in one.enable(status=1)
    assert not one.fstab.exists() and os.listdir(one.directory) == []
    one = machine(systemd=True)
    (one.root / "usr/lib/systemd/system/wayback@.service").unlink()
    assert "wayback@.service is not installed" in one.enable(status=1)
    assert one.files() == {} and one.calls() == []


def test_users(machine):
    """Without systemd there are two other ways; another user's directory, and root's ways, are for root."""
    one = machine(systemd=False, user=NOBODY)
    said = one.enable(status=1)
    for hint in ("systemd does not run here", "wayback enable --fstab '", "wayback mount '", "wayback -f '"):
        assert hint in said
    for option in ("--fstab",):
        assert "written by root; run this as root, or use --user" in one.enable(option, status=1)
    one = machine(systemd=True, user=NOBODY)
    assert "written by root" in one.enable("--system", status=1)
    os.chown(one.directory, 0, 0)
    assert "it belongs to root; that user or root can enable it" in one.enable(status=1)
    assert one.files() == {} and os.listdir(one.directory) == []


def test_a_start_that_fails_leaves_nothing(machine):
    one = machine(systemd=True)
    (one.root / "fails-restart").touch()
    before = one.files()
    said = one.enable(status=1)
    assert "systemctl restart failed: Job for the unit failed." in said and "nothing was enabled" in said
    assert one.files() == before and not one.is_mounted()


def test_systemd_that_is_not_reached(machine):
    """In a session without a bus, say: the directory is a plain one nevertheless, and no unit is left."""
    one = machine(systemd=True, user=NOBODY)
    one.enable()
    for verb in ("stop", "disable", "daemon-reload"):
        (one.root / f"fails-{verb}").touch()
    said = one.disable(status=1)
    assert said.count("systemctl --user disable failed") == 1 and "stop failed" not in said and not one.is_mounted()
    assert [name for name in one.files() if "wayback" in name] == []


def test_one_way_at_a_time(machine):
    one = machine(systemd=True)
    one.enable()
    assert "it is enabled by the system unit wayback@" in one.enable("--fstab", status=1)
    assert not one.fstab.exists()
    one.disable()
    one.enable("--fstab")
    assert one.fstab.exists() and one.disable()


def test_other_lines_of_fstab_stay(machine):
    one = machine(systemd=False)
    text = "# disks\nUUID=1  /  ext4  defaults  0 1\n\n/dev/x  /y\\040z  ext4  noauto  0 0  # last line, without an end"
    one.fstab.write_text(text, encoding="utf-8")
    one.fstab.chmod(0o640)
    one.enable()
    lines = one.fstab.read_text(encoding="utf-8").splitlines()
    assert lines[:-1] == text.splitlines() and " wayback  allow_other,nofail " in lines[-1]
    assert one.fstab.stat().st_mode & 0o777 == 0o640
    one.disable()
    assert one.fstab.read_text(encoding="utf-8") == text + "\n"
    if shutil.which("findmnt"):
        one.enable("-o", "history=close")
        assert run("findmnt", "-n", "-F", one.fstab, "-T", one.directory, "-o", "FSTYPE,OPTIONS").stdout.split() == \
            ["wayback", "allow_other,history=close,nofail"]


def test_a_busy_mount_stays(machine):
    """The processes are named, and nothing is changed."""
    one = machine(systemd=False)
    one.enable()
    before = one.files()
    shell = subprocess.Popen(["sh", "-c", "read wait"], cwd=one.directory, stdin=subprocess.PIPE)
    try:
        said = one.disable(status=1)
        assert f"it is in use by sh {shell.pid} (stands in {one.directory})" in said and "nothing was changed" in said
        assert f"in use by sh {shell.pid}" in one.disable("-n", status=1)
        assert one.is_mounted() and one.files() == before
    finally:
        shell.communicate(b"\n")
    with open(one.directory / "open file", "wb"):
        assert f"(has {one.directory}/open file open)" in one.disable(status=1)
    assert one.is_mounted()
    one.disable()


def test_forget_history(machine, maker):
    """With -y, or an answer on a terminal; the store elsewhere goes as well."""
    one, store = machine(systemd=False), maker.tree("xfs")
    one.enable("-o", f"store={store}")
    (one.directory / "f").write_bytes(b"x")
    assert "use -y" in one.disable("--forget-history", status=1)
    assert one.is_mounted() and (store / "header").exists()
    mine, theirs = pty.openpty()
    os.write(mine, b"n\n")
    result = subprocess.run(one.command(one.programs.directory / "vdisable", "--root", one.root, "--forget-history",
                                        one.directory), check=False, stdin=theirs, stderr=theirs, stdout=subprocess.PIPE,
                            env=one.environment(), timeout=LIMIT)
    asked = all_of_terminal(mine, theirs)
    assert result.returncode == 1 and "remove all past states of " in asked and str(store) in asked
    assert one.is_mounted()
    said = one.disable("--forget-history", "-y")
    assert f"removed {store}\n" in said and "history" not in said.splitlines()[-1]
    assert os.listdir(one.directory) == ["f"] and (not store.exists() or os.listdir(store) == [])
    # Later, in the tree.
    one.enable()
    one.disable()
    one.disable("--forget-history", "-y")
    assert os.listdir(one.directory) == ["f"]
    assert "nothing to change" in one.disable("--forget-history", "-y")


def test_a_history_in_use_is_not_removed(machine, maker):
    """The tree is mounted at another place; its daemon has the store."""
    one = machine(systemd=False)
    mount = maker.mount(source=one.directory)
    (mount.path / "f").write_bytes(b"x")
    for options in (("-y",), ("-n",)):
        assert f"is mounted at {mount.path} (pid " in one.disable("--forget-history", *options, status=1)
    assert (one.directory / ".wayback/header").exists() and "create" in mount.tool("vstat", mount.path / "f").stdout
    mount.stop()
    one.disable("--forget-history", "-y")
    assert os.listdir(one.directory) == ["f"]


def test_a_link_to_fstab_stays(machine):
    one = machine(systemd=False)
    real = one.root / "config/fstab"
    real.write_text("# mine\n", encoding="utf-8")
    one.fstab.symlink_to("../config/fstab")
    one.enable()
    assert one.fstab.is_symlink() and "wayback" in real.read_text(encoding="utf-8")
    one.disable()
    assert one.fstab.is_symlink() and real.read_text(encoding="utf-8") == "# mine\n"


def test_names_that_are_not_enabled(machine, maker):
    one = machine(systemd=False)
    one.enable()
    (one.directory / "sub").mkdir()
    assert f"it is a part of {one.directory}, which is recorded as a whole" in \
        one.call("vdisable", one.directory / "sub", status=1)
    mount = maker.mount("allow_other")
    assert "not in place; to end that mount: wayback unmount " in one.call("vdisable", mount.path, status=1)
    assert "nothing to change" in one.call("vdisable", maker.tree())


def test_a_mount_by_hand_is_taken_over(machine):
    """It stays, and the unit mounts it the next time; disable ends it in any case."""
    one = machine(systemd=True)
    run(one.programs.directory / "wayback", "-o", "allow_other", one.directory, env=one.environment(), cwd="/")
    said = one.enable("--keep", "3d")
    assert "is mounted already, by process " in said and "set keep = 3d (was: 7d)" in said
    assert [call.split()[0] for call in one.calls()] == ["daemon-reload", "enable"]
    one.disable()
    run(one.programs.directory / "wayback", "-o", "allow_other", one.directory, env=one.environment(), cwd="/")
    assert "unmounted" in one.disable() and not one.is_mounted()


@pytest.mark.parametrize("way", ["user", "fstab"])
def test_a_dead_mount(machine, way):
    """A daemon that was killed: enable mounts again, disable takes the dead mount away."""
    one = machine(**WAYS[way])
    for again in (True, False):
        one.enable()
        pid = int(run(*one.command(one.programs.directory / "vstatus", "--json", one.directory), env=one.environment(),
                      cwd="/").stdout.split('"pid":')[1].split(",")[0])
        os.kill(pid, 9)
        while "not connected" not in run(*one.command("ls", "-A", one.directory), check=False).stdout:
            time.sleep(0.02)
        if again:
            assert "tested: " in one.enable() and names(one) == []
    one.disable()
    assert not one.is_mounted() and os.listdir(one.directory) == [".wayback"]


def test_a_shell_in_the_directory(machine):
    one = machine(systemd=False)
    script = f"venable --root {one.root} . && pwd; cd . && vstatus"
    result = subprocess.run(["sh", "-c", script], cwd=one.directory, check=False, text=True, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, env=one.environment(), timeout=LIMIT, stdin=subprocess.DEVNULL)
    assert result.returncode == 0 and result.stdout.count("run `cd .` to enter the mount") == 1, result.stdout


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
def test_systemd_accepts_the_unit(machine):
    one = machine(systemd=True, user=NOBODY)
    one.enable("-o", "history=close,fsname=a$b%c")
    path = one.root / USER_UNIT.format(instance(one.directory))
    result = run("systemd-analyze", "verify", "--user", "--man=no", path, check=False,
                 env=dict(one.environment(), XDG_RUNTIME_DIR=str(one.root)))
    assert (result.returncode, result.stdout) == (0, "")


def test_the_verbs(machine):
    one = machine(systemd=False)
    wayback = one.programs.directory / "wayback"
    for verb in ("enable", "disable"):
        assert f"wayback {verb} [OPTION" in run(wayback, verb, "--help", env=one.environment()).stdout
    result = run(wayback, "enable", "--root", one.root, one.directory, env=one.environment(), cwd="/")
    assert "is recorded" in result.stdout
    result = run(wayback, "disable", "--root", one.root, one.directory, env=one.environment(), cwd="/")
    assert "is a plain directory again" in result.stdout and not one.is_mounted()


def test_forget_history_leaves_other_files(machine, maker):
    """Of a store elsewhere, only what is of a store goes: users put files beside it, later."""
    one, store = machine(systemd=False), maker.tree()
    one.enable("-o", f"store={store}")
    (one.directory / "f").write_bytes(b"x")
    (one.directory / "f").unlink()
    (store / "thesis").write_text("the only copy", encoding="utf-8")
    (store / "photos").mkdir()
    (store / "photos" / "a").write_bytes(b"a")
    (store / ".header.new").write_bytes(b"of a crash")
    said = one.disable("--forget-history", "-y")
    assert f"removed {store}\n" in said and f"vdisable: {store}: the history is removed, but not this directory: it has " \
        "2 entries that Wayback did not create (photos)" in said
    assert sorted(os.listdir(store)) == ["photos", "thesis"] and (store / "photos" / "a").exists()
    assert os.listdir(one.directory) == []


def test_forget_history_of_a_copy(machine, maker):
    """A copy of a tree leads to the store of the original, which stays."""
    one, store = machine(systemd=False), maker.tree()
    one.enable("-o", f"store={store}")
    (one.directory / "f").write_bytes(b"1")
    one.disable()
    copy, before = maker.tree() / "copy", sorted(os.listdir(store))
    shutil.copytree(one.directory, copy)
    for options in (("-y",), ("-n",)):
        said = one.call("vdisable", "--forget-history", *options, copy, status=1)
        assert f"the store {store} belongs to another tree ({copy} was copied, moved or restored); nothing was removed" in said
    assert sorted(os.listdir(store)) == before and sorted(os.listdir(copy)) == [".wayback", "f"]
    one.enable()
    assert "create" in one.tool("vstat", one.directory / "f")
    one.disable("--forget-history", "-y")
    assert not store.exists()


def test_a_store_that_cannot_be_read_is_not_removed(machine, maker):
    one, store = machine(systemd=False), maker.tree()
    one.enable("-o", f"store={store}")
    one.disable()
    (store / "header").write_bytes(b"x" * 64)
    before = sorted(os.listdir(store))
    said = one.disable("--forget-history", "-y", status=1)
    assert f"or remove that store and {one.directory}/.wayback by hand" in said and sorted(os.listdir(store)) == before


def test_an_interrupted_removal_is_continued(machine, maker):
    """The header goes last: the same command removes the rest."""
    one, store = machine(systemd=False), maker.tree()
    one.enable("-o", f"store={store}")
    one.disable()
    (store / "objects" / "00" / "x").mkdir()
    run("mount", "-t", "tmpfs", "none", store / "objects" / "00" / "x")
    try:
        assert "it cannot be removed completely" in one.disable("--forget-history", "-y", status=1)
    finally:
        run("umount", store / "objects" / "00" / "x")
    assert (store / "header").exists() and (one.directory / ".wayback").exists()
    one.disable("--forget-history", "-y")
    assert not store.exists() and os.listdir(one.directory) == []


@pytest.mark.parametrize("way", WAYS)
def test_options_that_fail_leave_it_as_it_was(machine, way):
    """Wrong ones are refused before anything ends; if only the mount fails, the former options are mounted again."""
    one = machine(**WAYS[way])
    one.enable("-o", "history=close")
    before = one.files()
    pid = one.tool("vstatus", "--json", one.directory)
    said = one.enable("-o", "bogus=1", status=1)
    assert f"venable: {one.directory}: -o bogus=1: no such option" in said
    assert one.files() == before and one.tool("vstatus", "--json", one.directory) == pid
    said = one.enable("-o", "store=/proc/none", status=1)
    assert "/proc/none" in said and "it is enabled as it was before" in said
    assert one.files() == before and one.is_mounted() and ".wayback" in one.tool("vstatus", one.directory)
    assert one.enable().startswith("nothing to change; ")


def test_another_store_is_not_left_to_the_next_boot(machine, maker):
    one = machine(systemd=False)
    one.enable()
    before = one.files()
    with open(one.directory / "f", "wb"):
        said = one.enable("-o", f"store={maker.tree()}", status=1)
    assert "another store needs a new mount, and the present one is in use by " in said and "as it was before" in said
    assert one.files() == before and one.is_mounted()


@pytest.mark.parametrize("verb", ["daemon-reload", "enable", "restart"])
def test_interrupted(machine, verb):
    """Ctrl-C ends systemctl as well: nothing is left, and one line says so."""
    one = machine(systemd=True)
    before = one.files()
    real = one.root / "bin/systemctl"
    real.rename(one.root / "bin/systemctl-real")
    one.script("bin/systemctl", f'#!/bin/sh\ncase $* in {verb}*) [ -e "$0.once" ] || {{ : >"$0.once"; kill -INT $PPID $$; }};; esac\n'
                                f'exec {one.root}/bin/systemctl-real "$@"\n')
    result = subprocess.run(one.command(one.programs.directory / "venable", "--root", one.root, one.directory),
                            check=False, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LIMIT,
                            env=one.environment(), cwd="/", stdin=subprocess.DEVNULL,
                            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    assert result.returncode == 130 and "nothing was enabled" in result.stdout
    assert result.stdout.count("stopped; run the same command again to complete it") == 1
    assert one.files() == before and not one.is_mounted()
    assert "tested: " in one.enable()


@pytest.mark.parametrize("fails", ["daemon-reload", "enable", "restart"])
@pytest.mark.parametrize("way", ["user", "system"])
def test_each_step_that_fails_is_taken_back(machine, way, fails):
    one = machine(**WAYS[way])
    name = instance(one.directory)
    if way == "system":
        (one.root / "etc/wayback").mkdir()
        (one.root / f"etc/wayback/{name}.env").write_text("# Written by `wayback enable`; `wayback disable` removes it.\n"
                                                          'WAYBACK_OPTIONS="ro"\n', encoding="utf-8")
    (one.root / f"fails-{fails}").touch()
    before = one.files()
    said = one.enable(status=1)
    assert f"systemctl{' --user' if way == 'user' else ''} {fails} failed" in said and "nothing was enabled" in said
    assert one.files() == before and not one.is_mounted()


BY_HAND = {"plain": "WAYBACK_OPTIONS=allow_other,store={}\n", "quoted": "# WAYBACK_OPTIONS=ro\nWAYBACK_OPTIONS='allow_other,store={}'\n"}


@pytest.mark.parametrize("text", BY_HAND.values(), ids=BY_HAND)
def test_a_system_unit_by_hand(machine, maker, text):
    """As wayback@.service describes it: its options hold, its file stays."""
    one, store = machine(systemd=True), maker.tree()
    name = instance(one.directory)
    (one.root / "etc/wayback").mkdir()
    file = one.root / f"etc/wayback/{name}.env"
    file.write_text(text.format(store), encoding="utf-8")
    run(one.root / "bin/systemctl", "enable", f"wayback@{name}.service")
    before = one.files()
    said = one.enable()
    assert f"in {store}" in said and one.files() == before and not (one.directory / ".wayback/header").exists()
    said = one.enable("-o", "history=close", status=1)
    assert f"{file}: it was not written by `wayback enable`, so it is not changed; set in it: WAYBACK_OPTIONS=" in said
    assert one.files() == before and one.is_mounted()
    said = one.disable()
    assert f"{file}: it was not written by `wayback enable`, so it remains" in said
    assert file.read_text(encoding="utf-8") == text.format(store)


def test_a_system_unit_of_another_tree(machine):
    one = machine(systemd=True)
    (one.root / "etc/wayback").mkdir()
    file = one.root / f"etc/wayback/{instance(one.directory)}.env"
    file.write_text("WAYBACK_SOURCE=/another\n", encoding="utf-8")
    before = one.files()
    assert "it has WAYBACK_SOURCE=/another, so the unit mounts another tree there" in one.enable(status=1)
    assert one.files() == before and not one.is_mounted()


def test_a_user_unit_by_hand(machine):
    """It is not ours to change or to remove."""
    one = machine(systemd=True, user=NOBODY)
    file = one.root / USER_UNIT.format(instance(one.directory))
    file.parent.mkdir(parents=True)
    file.write_text("[Unit]\nDescription=mine\n", encoding="utf-8")
    before = one.files()
    for call in (one.enable, one.disable):
        assert f"{file}: this unit was not written by `wayback enable`, so it is neither changed nor removed" in \
            call(status=1)
    assert one.files() == before and one.calls() == []


def test_a_line_of_fstab_by_hand(machine):
    """One for another tree is another's; of ours, all options stay, and the line if it has them."""
    one = machine(systemd=False)
    place = str(one.directory).replace(" ", "\\040")
    text = f"/data  {place}  wayback  defaults 0 0\n"
    one.fstab.write_text(text, encoding="utf-8")
    assert f"a line of {one.fstab} mounts another tree there, /data; remove that line first" in one.enable(status=1)
    assert "is not enabled; nothing to change" in one.disable()
    assert one.fstab.read_text(encoding="utf-8") == text and not one.is_mounted()
    # A backslash at the end of a field is none before three digits.
    text = f"LABEL=x\\ /y ext4 ro 0 0\n{place} {place}/ fuse.wayback allow_other,nofail,x-a 0 2 # mine\n"
    one.fstab.write_text(text, encoding="utf-8")
    said = one.enable()
    assert said.startswith("mounted ") and one.fstab.read_text(encoding="utf-8") == text
    one.enable("-o", "history=close")
    assert one.fstab.read_text(encoding="utf-8").splitlines()[1] == \
        f"{place}  {place}  wayback  allow_other,history=close,nofail  0  0"
    one.disable()
    assert one.fstab.read_text(encoding="utf-8") == text.splitlines()[0] + "\n"


def test_two_at_a_time(machine):
    """Each has its line of fstab in the end."""
    one = machine(systemd=False)
    directories = [one.directory / name for name in "abcdef"]
    for path in directories:
        path.mkdir()

    def all_of(tool):
        started = [subprocess.Popen(one.command(one.programs.directory / tool, "--root", one.root, path), cwd="/",
                                    env=one.environment(), stdout=subprocess.DEVNULL) for path in directories]
        return [process.wait(timeout=LIMIT) for process in started]

    for _ in range(3):
        assert all_of("venable") == [0] * 6 and one.fstab.read_text(encoding="utf-8").count(" wayback ") == 6
        assert all_of("vdisable") == [0] * 6 and one.fstab.read_text(encoding="utf-8") == ""


def test_a_name_that_is_too_long(machine):
    for options in (dict(systemd=True), dict(systemd=True, user=NOBODY)):
        one = machine(**options)
        path = one.directory / ("x-" * 90)
        path.mkdir()
        if "user" in options:
            os.chown(path, *NOBODY)
        for more in ((), ("-n",)):
            said = one.call("venable", *more, path, status=1)
            assert "its path is too long for the name of a systemd unit" in said and "--fstab" in said
        assert one.files() == {} and one.calls() == []


@pytest.mark.parametrize("arguments, word", [
    (("--keep", "30d\nmax-size = 1G"), "--keep: a value of one line"), (("-o", "ro\tx"), "-o: a list"),
    (("-o", "store=h"), "an absolute path is expected, such as store=/h")])
def test_values_that_would_mean_more(machine, arguments, word):
    one = machine(systemd=False)
    assert word in one.enable(*arguments, status=2) and one.files() == {}


def test_a_policy_that_cannot_be_set(machine):
    """The file has mistakes elsewhere: that shows before anything is enabled."""
    one = machine(systemd=False)
    one.enable()
    one.disable()
    (one.directory / ".wayback/wayback.conf").write_text("[history]\nbogus = 1\n", encoding="utf-8")
    said = one.enable("--keep", "3d", status=1)
    assert "wayback.conf:2:1: " in said and "nothing was changed; correct these mistakes first" in said
    assert one.fstab.read_text(encoding="utf-8") == "" and not one.is_mounted()


def test_a_directory_that_a_user_enabled(machine):
    """Root would unmount it until the next login only."""
    one = machine(systemd=True, user=NOBODY)
    one.enable()
    home = pwd.getpwuid(NOBODY[0]).pw_dir
    unit = one.root / home.lstrip("/") / f".config/systemd/user/wayback@{instance(one.directory)}.service"
    unit.parent.mkdir(parents=True)
    unit.touch()
    one.user = None
    said = one.disable(status=1, XDG_CONFIG_HOME="/root-config")
    assert "enabled it (" in said and "so that user has to disable it" in said and one.is_mounted()


@pytest.mark.parametrize("way", WAYS)
def test_a_directory_that_is_gone(machine, way):
    one = machine(**WAYS[way])
    before = one.files()
    one.enable()
    run(*one.command(*(["fusermount3", "-u"] if one.user else ["umount"]), one.directory))
    run("flock", one.directory / ".wayback/lock", "true")  # until the daemon has ended
    shutil.rmtree(one.directory)
    assert f"{one.directory} is not enabled any more; there is no such directory" in one.disable()
    assert one.files() | {"etc/fstab": ""} == before | {"etc/fstab": ""}
    assert "no such file or directory" in one.disable(status=1)
