# SPDX-License-Identifier: LGPL-2.1-or-later
"""`wayback config`: the settings of a tree, shown, edited, checked, applied; the file has its path in SRC everywhere."""
import json
import os
import pty
import re
import subprocess
import time

import pytest

from enabling import all_of_terminal
from mounts import LIMIT, NOBODY, mounted_at, run
from preload import preloaded


@pytest.fixture(name="place")
def fixture_place(maker):
    """A tree that is mounted over itself: its store is hidden."""
    tree = maker.tree()
    mount = maker.mount(source=tree, path=tree)
    mount.config = tree / ".wayback/wayback.conf"
    mount.expect("wayback.conf")
    return mount


def config(mount, *arguments, status=0, **more):
    result = mount.run_tool("vconfig", *arguments, env=dict(mount.programs.environment(), **more))
    assert result.returncode == status, result.stdout
    return result.stdout


def editor(maker, body):
    """A program that changes the file it is called with; its calls are noted."""
    path = maker.scratch / "my editor"
    path.write_text(f'#!/bin/sh\necho "$*" >>"{maker.scratch}/edited"\n{body}\n', encoding="ascii")
    path.chmod(0o755)
    return f"'{path}' --wait"


@pytest.fixture(name="copies", autouse=True)
def fixture_copies(maker, monkeypatch):
    """The directory for the copies that are edited."""
    place = maker.scratch / "copies"
    place.mkdir()
    monkeypatch.setenv("TMPDIR", str(place))
    return place


def test_show_and_get(place):
    said = config(place, place.path)
    assert said.startswith(f"{place.config}\n") and "  history.keep = 7d\n" in said and "/proc" not in said
    assert "  history.compact-after = 5m (default)\n" in said and "  history.max-size = not set\n" in said
    assert config(place, place.path, "get", "keep") == "7d\n" == config(place, place.path, "get", "history.keep")
    assert config(place, place.path, "get", "max-size") == "\n"
    assert json.loads(config(place, "--json", place.path, "get", "keep")) == \
        {"schema": 1, "section": "history", "key": "keep", "value": "7d", "default": None, "set": True}
    assert json.loads(config(place, "--json", place.path, "get", "compact-after")) == \
        {"schema": 1, "section": "history", "key": "compact-after", "value": "5m", "default": "5m", "set": False}
    shown = json.loads(config(place, "--json", place.path))
    assert shown["file"] == str(place.config) and shown["mistakes"] == [] and len(shown["keys"]) > 10
    said = config(place, place.path, "get", "kep", status=2)
    assert "kep: no such key; the keys are: hourly, " in said


def test_set_and_unset(place):
    """Lines go behind their example; comments stay; the daemon has the new value at once."""
    assert not place.config.exists()  # behind the mount
    assert config(place, place.path, "set", "keep", "30d") == "history.keep = 30d (was: 7d)\n"
    assert config(place, place.path, "set", "max-size", "20G") == "history.max-size = 20G (was: not set)\n"
    assert config(place, place.path, "set", "daily", "7") == "snapshots.daily = 7 (was: not set)\n"
    assert config(place, place.path, "set", "keep", "30d") == "history.keep: nothing to change\n"
    # The daemon has read it.
    deadline = time.monotonic() + LIMIT
    while "daily" not in place.tool("vsnap", "list", place.path).stdout:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    place.stop()
    text = place.config.read_text(encoding="utf-8")
    assert "\n#max-size = 200G\nmax-size = 20G\n" in text and "\n#daily = 7\ndaily = 7\n" in text
    assert "\nkeep = 30d\n" in text and text.count("keep = 7d") == 0
    assert config(place, place.path, "unset", "max-size") == "history.max-size = not set (was: 20G)\n"
    assert place.config.read_text(encoding="utf-8") == text.replace("\nmax-size = 20G\n", "\n")
    assert [name for name in os.listdir(place.source / ".wayback") if "new" in name] == []
    place.start()


def test_set_and_unset_as_json(place):
    def changed(*arguments):
        return json.loads(config(place, "--json", *arguments))

    keep = {"schema": 1, "section": "history", "key": "keep"}
    assert changed(place.path, "-n", "set", "keep", "9d") == \
        dict(keep, value="9d", was="7d", changed=True, dry_run=True)
    assert changed(place.path, "set", "keep", "9d") == dict(keep, value="9d", was="7d", changed=True, dry_run=False)
    assert changed(place.path, "set", "keep", "9d") == dict(keep, value="9d", was="9d", changed=False, dry_run=False)
    assert changed(place.path, "unset", "keep") == dict(keep, value=None, was="9d", changed=True, dry_run=False)


def test_changes_at_the_same_time(place):
    """None overwrites another one: it is made, or refused with an error."""
    values = dict(keep="3d", reserve="7%", hourly="5", daily="6", weekly="4", monthly="2")
    for _ in range(3):
        started = {key: subprocess.Popen([place.programs.directory / "vconfig", place.path, "set", key, value],
                                         stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                         env=place.programs.environment()) for key, value in values.items()}
        for key, process in started.items():
            said = process.communicate(timeout=LIMIT)[1]
            assert process.returncode == 0 or "it was changed meanwhile by another program; nothing was changed" in said
            process.made = process.returncode == 0
        for key, process in started.items():
            assert (config(place, place.path, "get", key) == values[key] + "\n") == process.made
        for key in values:
            config(place, place.path, "unset", key)


def test_a_wrong_value_changes_nothing(place):
    said = config(place, place.path, "set", "keep", "3x", status=1)
    assert re.match(rf"vconfig: {re.escape(str(place.config))}:\d+:8: keep = 3x: invalid; use an age", said)
    assert said.endswith("vconfig: nothing was changed\n") and config(place, place.path, "get", "keep") == "7d\n"
    assert config(place, "-n", place.path, "set", "keep", "9d") == "would set history.keep = 9d (was: 7d)\n"
    assert config(place, place.path, "get", "keep") == "7d\n"


@pytest.mark.parametrize("arguments, word", [
    (("get",), "get needs a KEY"), (("set", "keep"), "set needs a KEY and a VALUE"), (("edit", "x"), "no further word"),
    (("set", "keep", "3d\nmax-size = 1G"), "a VALUE of one line"), (("nonsense",), "no such action"), (("set", "nothing", "1"), "no such key")])
def test_wrong_usage(place, arguments, word):
    assert word in config(place, place.path, *arguments, status=2)


def test_an_edit_is_applied(place, maker, copies):
    """$VISUAL before $EDITOR, with its options; a copy, in a directory of ours, that is gone then."""
    command = editor(maker, 'sed -i "s/^keep = .*/keep = 12d/" "$2"; touch "$2~"')
    assert config(place, place.path, "edit", VISUAL=command, EDITOR="false") == f"{place.config}: applied\n"
    assert config(place, place.path, "get", "keep") == "12d\n"
    assert re.fullmatch(rf"--wait {copies}/wayback-config-\w+/wayback\.conf\n", (maker.scratch / "edited").read_text())
    assert config(place, place.path, "edit", VISUAL="", EDITOR=command) == f"{place.config}: nothing to change\n"
    assert "failed with status 1; nothing was applied" in config(place, place.path, "edit", VISUAL="false", status=1)
    command = editor(maker, 'echo "[snapshots]" >"$2"')
    assert "would be applied" in config(place, "-n", place.path, "edit", VISUAL=command)
    assert config(place, place.path, "get", "keep") == "12d\n" and os.listdir(copies) == []


def test_a_mistake_is_shown_and_nothing_applied(place, maker, copies):
    """Without a terminal it ends; the text is not lost."""
    command = editor(maker, 'echo "keep = forever and a day" >"$2"')
    said = config(place, place.path, "edit", VISUAL=command, status=1)
    assert f"{place.config}:1:1: " in said and "/proc/" not in said and "nothing was applied, because of " in said
    [copy] = copies.iterdir()
    assert f"your text remains in {copy}/wayback.conf" in said
    assert (copy / "wayback.conf").read_text() == "keep = forever and a day\n"
    assert config(place, place.path, "get", "keep") == "7d\n"


def test_on_a_terminal_it_offers_to_edit_again(place, maker):
    command = editor(maker, f'if [ -e {maker.scratch}/twice ]; then sed -i "s/^keep = .*/keep = 5d/" "$2"; '
                            f'else touch {maker.scratch}/twice; sed -i "s/^keep = .*/keep = 5 of them/" "$2"; fi')
    mine, theirs = pty.openpty()
    os.write(mine, b"\n")
    result = subprocess.run([place.programs.directory / "vconfig", place.path, "edit"], stdin=theirs, stderr=theirs,
                            stdout=subprocess.PIPE, check=False, timeout=LIMIT, cwd="/",
                            env=dict(place.programs.environment(), VISUAL=command))
    said = all_of_terminal(mine, theirs)
    assert result.returncode == 0 and "edit it again? [Y/n]" in said and "keep = 5 of them: invalid" in said
    assert config(place, place.path, "get", "keep") == "5d\n"


def test_a_change_by_another_program_is_not_lost(place, maker):
    command = editor(maker, f'vconfig {place.path} set keep 8d; sed -i "s/^keep = .*/keep = 9d/" "$2"')
    assert "it was changed meanwhile by another program" in config(place, place.path, "edit", VISUAL=command, status=1)
    assert config(place, place.path, "get", "keep") == "8d\n"


def test_a_file_with_mistakes(place):
    place.stop()
    place.config.write_text("[history]\nkeep = 7d\nkep = 1\n[path \"*.o\" \"x y/\"]\nkeep = 1h\n", encoding="ascii")
    said = config(place, place.path, "check", status=1)
    assert said.startswith(f"vconfig: {place.config}:3:1: ")
    answer = json.loads(config(place, "--json", place.path, "check", status=1).splitlines()[-1])
    assert answer["file"] == str(place.config) and answer["mistakes"][0].startswith(f"{place.config}:3:1: ")
    assert "correct them with: edit" in config(place, place.path, "set", "keep", "1d", status=1)
    place.config.write_text(place.config.read_text(encoding="ascii").replace("kep = 1\n", ""), encoding="ascii")
    assert config(place, place.path, "check") == f"{place.config}: no mistake\n"
    # Keys of a section with patterns have its name before them.
    name = 'path "*.o" "x y/".keep'
    assert config(place, place.path, "get", name) == "1h\n" and config(place, place.path, "get", "keep") == "7d\n"
    config(place, place.path, "set", name, "2h")
    assert place.config.read_text(encoding="ascii") == "[history]\nkeep = 7d\n[path \"*.o\" \"x y/\"]\nkeep = 2h\n"
    # A section that is not there is made.
    config(place, place.path, "set", "daily", "3")
    assert place.config.read_text(encoding="ascii").endswith("keep = 2h\n\n[snapshots]\ndaily = 3\n")
    place.config.unlink()
    config(place, place.path, "set", "keep", "3d")
    assert place.config.read_text(encoding="ascii") == "[history]\nkeep = 3d\n"
    place.start()


def test_a_store_elsewhere_and_other_paths(maker):
    """The tree, its mount, and a directory in either; the path of the file is that in the store."""
    store = maker.tree("xfs")
    mount = maker.mount(f"store={store}", "allow_other")
    (mount.path / "d").mkdir()
    for path in (mount.path, mount.path / "d", mount.source):
        assert config(mount, path).splitlines()[0] == f"{store}/wayback.conf"
    config(mount, mount.path / "d", "set", "keep", "4d")
    assert "\nkeep = 4d\n" in (store / "wayback.conf").read_text(encoding="utf-8")
    mode = (store / "wayback.conf").stat().st_mode
    mount.stop()
    assert config(mount, mount.source).splitlines()[0] == f"{store}/wayback.conf"
    config(mount, mount.source, "set", "keep", "5d")
    assert (store / "wayback.conf").stat().st_mode == mode
    assert "no history was found here" in config(mount, maker.tree(), status=1)


def test_other_users(place, maker):
    """Neither the values nor the file are theirs."""
    mount = maker.mount("allow_other")
    result = mount.run_tool("vconfig", mount.path, user=NOBODY)
    assert result.returncode == 1 and "its settings are for root and the user who mounted it" in result.stdout
    assert run("wayback", "config", place.path, "get", "keep", env=place.programs.environment(), cwd="/").stdout == "7d\n"


def test_a_daemon_on_a_terminal_stays(maker):
    """There, SIGHUP would mean the end of the terminal; it reads the file by itself."""
    tree = maker.tree()
    mount = maker.mount(source=tree, path=tree, start=False)
    mine, theirs = pty.openpty()
    daemon = subprocess.Popen([mount.programs.directory / "wayback", "-f", tree], stdin=theirs, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, env=mount.programs.environment(), cwd="/")
    try:
        deadline = time.monotonic() + LIMIT
        while mounted_at(tree) is None:
            assert time.monotonic() < deadline and daemon.poll() is None
            time.sleep(0.02)
        config(mount, tree, "set", "daily", "3")
        while "daily" not in mount.tool("vsnap", "list", tree).stdout:
            assert time.monotonic() < deadline and daemon.poll() is None
            time.sleep(0.02)
    finally:
        run("umount", tree, check=False)
        daemon.communicate(timeout=LIMIT)
        os.close(theirs)
        os.close(mine)
    assert daemon.returncode == 0


OTHER_PROCESS = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static const char *named(void)
{
    return getenv("NAMED") && getenv("WHILE") && access(getenv("WHILE"), F_OK) == 0 ? getenv("NAMED") : NULL;
}

/* The daemon names another process as itself, while that file is there. */
pid_t getpid(void)
{
    return named() ? (pid_t)atoi(named()) : (pid_t)syscall(SYS_getpid);
}

ssize_t readlink(const char *path, char *text, size_t size)
{
    if (named() && strcmp(path, "/proc/self") == 0)
        return snprintf(text, size, "%s", named());
    return ((ssize_t (*)(const char *, char *, size_t))dlsym(RTLD_NEXT, "readlink"))(path, text, size);
}
"""


def test_root_believes_no_server_that_names_a_process_of_another_user(maker):
    """It would write into a directory that such a process has open, and send it a signal."""
    victim = maker.scratch / "victim"
    victim.mkdir()
    victim.chmod(0o755)
    holder = subprocess.Popen(["python3", "-c", f"""
import os, time
fd = os.open({str(victim)!r}, os.O_RDONLY)
for number in range(3, 64):
    number != fd and os.dup2(fd, number, inheritable=True)
print("ready", flush=True)
time.sleep(1000)
"""], stdout=subprocess.PIPE, text=True, user=NOBODY[0], group=NOBODY[1], extra_groups=[])
    try:
        assert holder.stdout.readline() == "ready\n"
        with preloaded(maker.scratch, OTHER_PROCESS, NAMED=holder.pid, WHILE=maker.scratch / "while"):
            mount = maker.mount()
        (victim / ".wayback").mkdir()
        (maker.scratch / "while").touch()
        said = config(mount, mount.path, "set", "keep", "3d", status=1)
        (maker.scratch / "while").unlink()
        assert "not of the user who mounted it" in said
        assert list(victim.rglob("*.conf*")) == [] and holder.poll() is None
    finally:
        holder.kill()
        holder.wait()
