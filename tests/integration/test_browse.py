# SPDX-License-Identifier: LGPL-2.1-or-later
"""wayback browse, driven in a real terminal of 80 columns and 24 lines."""
import json
import os
import signal
import subprocess

import pytest

from mounts import LIMIT, NOBODY, epoch, moment, run
from terminal import Terminal
from treestate import differences, state_of

CONFIRM = "Restore? [y/N]"
LEGEND = "+ new, ~ changed since"


def browse(mount, *arguments, cwd=None, **options):
    command = [mount.programs.directory / "wayback", "browse", *arguments]
    return Terminal(mount.programs, command, cwd or mount.path, **options)


def row(screen, name):
    """The line of an entry or a version."""
    found = [line for line in screen.splitlines() if name in line]
    assert found, f"{name}:\n{screen}"
    return found[0]


def settled(terminal):
    """The screen after all keys so far had their effect: a key after them shows the help, and another one ends that."""
    terminal.keys("?")
    terminal.wait("keys of wayback browse")
    terminal.keys("q")
    return terminal.wait("? help", absent=["keys of wayback browse", "Escape stops it"])


def go_to(terminal, name, kind="versions"):
    """Moves the cursor to an entry: the line between the panes names it."""
    if "Tab back" in settled(terminal):
        terminal.keys("Tab")
    terminal.keys("Home")
    for _ in range(20):
        screen = settled(terminal)
        if f" {kind} of {name} (" in screen:
            return terminal.wait(f" {kind} of {name} (", absent=["+)"])  # all of them are read
        terminal.keys("Down")
    raise AssertionError(terminal.text())


def restores(mount):
    """Of vundo --list: newest first."""
    lines = mount.tool("vundo", "--list", "--json", mount.path).stdout.splitlines()
    return [json.loads(line) for line in lines]


@pytest.fixture(name="made")
def fixture_made(mount):
    """A tree with a past: old.txt is older than mount.when, everything else was made after it."""
    top = mount.path
    (top / "old.txt").write_text("of old\n", encoding="ascii")
    (top / "deep/er").mkdir(parents=True)
    (top / "deep/er/leaf").write_text("leaf\n", encoding="ascii")
    mount.when = moment()
    with open(top / "paper", "w", encoding="ascii") as stream:
        stream.write("We claim nothing.\n")
    with open(top / "paper", "w", encoding="ascii") as stream:
        stream.write("We claim everything.\n")
    (top / "lost").write_text("found again\n", encoding="ascii")
    (top / "lost").unlink()
    (top / "gone/below").mkdir(parents=True)
    for name in ("one", "two", "below/three"):
        (top / "gone" / name).write_text(name + "\n", encoding="ascii")
    run("rm", "-r", top / "gone")
    run("cp", top / "paper", top / "copy")
    return mount


# ---- looking -----------------------------------------------------------------------------------


def test_moving(made):
    with browse(made) as terminal:
        screen = terminal.wait("copy", "paper", "lost", "gone/", "deep/", LEGEND)
        names = [line[3:].split()[0] for line in screen.splitlines()[1:] if line[3:4].strip() and line.endswith("s")]
        assert names[:6] == ["deep/", "gone/", "copy", "lost", "old.txt", "paper"]
        assert [row(screen, name)[1] for name in ("deep/", "gone/", "copy", "lost", "old.txt")] == ["+", "D", "+", "D", "+"]
        terminal.wait("changes of deep (")
        terminal.keys("Enter")
        terminal.wait("/deep", "er/")
        terminal.keys("Right")
        terminal.wait("/deep/er", "leaf", "versions of leaf (")
        terminal.keys("Left")
        terminal.wait("changes of er (")
        terminal.keys("BSpace")
        terminal.wait("changes of deep (")
        terminal.keys("End")
        terminal.wait("versions of paper (")
        terminal.keys("Up")
        terminal.wait("versions of old.txt (")
        terminal.keys("Home", "h")
        terminal.wait("this is the root of the mount")
        terminal.keys("q")
        terminal.wait("exit 0")


def test_begins_at_a_file_and_at_a_time(made):
    with browse(made, "lost") as terminal:
        terminal.wait("versions of lost (", "unlink")
    with browse(made, "-t", epoch(made.when)) as terminal:
        terminal.wait("as of ", "old.txt", absent=["paper"])
    with browse(made, "-t", "never") as terminal:
        terminal.wait("'never' is neither a time nor a snapshot", "exit 2")


def test_versions_content_and_differences(made):
    with browse(made) as terminal:
        go_to(terminal, "paper")
        terminal.keys("Enter")
        terminal.wait("Enter show")
        terminal.keys("Enter")
        terminal.wait("content", "We claim everything.", absent=["nothing"])
        terminal.keys("q")
        terminal.wait("versions of paper (")
        # The last but two: before the second text, and before the file was cut to nothing for it.
        terminal.keys("Down", "Down", "Enter")
        terminal.wait("content", "We claim nothing.", absent=["everything"])
        terminal.keys("d")
        screen = terminal.wait("diff to now", "-We claim nothing.", "+We claim everything.")
        assert "--- a/paper" in screen and "+++ b/paper" in screen
        terminal.keys("d")
        terminal.wait("diff to the version before", "+We claim nothing.", absent=["everything"])
        terminal.keys("d")
        terminal.wait("content", "We claim nothing.", absent=["+We"])


def test_content_that_is_no_text(mount):
    (mount.path / "bytes").write_bytes(b"\0\1\2ABC\x1b[31m")
    (mount.path / "text").write_bytes(b"a\tb\x1b[31mred\n\xff\n" + b"".join(b"line %d\n" % i for i in range(100)))
    with browse(mount) as terminal:
        terminal.wait("versions of bytes (")
        terminal.keys("Enter", "Enter")
        terminal.wait("00000000  00 01 02 41 42 43 1b 5b 33 31 6d", "...ABC.[31m")
        terminal.keys("q", "Left", "Down", "Enter", "Enter")
        terminal.wait("a       b\\x1b[31mred", "\\xff", "line 0", absent=["line 99"])
        terminal.keys("End")
        terminal.wait("line 99", absent=["line 0"])
        terminal.keys("Home", "/")
        terminal.wait("Find:")
        terminal.type("e 4")
        terminal.wait("line 4", absent=["line 3"])
        terminal.keys("n")
        terminal.wait("line 40", absent=["line 39"])
        assert b"\x1b[31mred" not in terminal.raw.read_bytes()


def test_time_travel(made):
    with browse(made) as terminal:
        terminal.wait("paper", LEGEND)
        terminal.keys("t")
        terminal.wait("Time (")
        terminal.type(epoch(made.when))
        screen = terminal.wait("as of ", "old.txt", absent=["paper", "lost", "gone"])
        assert row(screen, "deep/")[1] == " "
        terminal.keys("t")
        terminal.type("one fine day")
        terminal.wait("is neither a time nor a snapshot")
        terminal.keys("t")
        terminal.type("2099-01-01")
        terminal.wait("is in the future")
        terminal.keys("n")
        terminal.wait("paper", LEGEND, absent=["as of "])
        # To the time of a version of a directory, and of a file.
        go_to(terminal, "gone", "changes")
        terminal.keys("Tab", "End")
        terminal.wait("mkdir")
        terminal.keys("Enter")
        terminal.wait("/gone  as of", "(empty)")
        terminal.keys("Left")
        terminal.wait("changes of gone (", absent=["copy"])


# ---- restoring -----------------------------------------------------------------------------------


def test_deleted_file(made):
    with browse(made) as terminal:
        go_to(terminal, "lost")
        terminal.keys("r")
        terminal.wait("Restore lost as of", "restore  lost", CONFIRM)
        terminal.keys("n")
        terminal.wait("nothing was changed")
        assert not (made.path / "lost").exists()
        terminal.keys("r")
        terminal.wait(CONFIRM)
        terminal.keys("y")
        screen = terminal.wait("lost: 1 restored; u undoes it")
        assert row(screen, " lost ")[1] == "+"
        assert (made.path / "lost").read_bytes() == b"found again\n"
        (restore,) = restores(made)
        assert restore["command"].startswith("wayback restore --time ") and restore["path"].endswith("/lost")
        terminal.keys("u")
        terminal.wait("Undo the restore of 20", "this removes 1 name that did not exist then", "The history keeps them. Remove? [y/N]")
        terminal.keys("y")
        terminal.wait("undone; 'wayback redo' takes that back")
        assert not (made.path / "lost").exists() and restores(made)[-1]["undone_by"]
        assert row(settled(terminal), " lost ")[1] == "D"


def test_a_version_and_its_undo(made):
    with browse(made) as terminal:
        go_to(terminal, "paper")
        terminal.keys("r")
        terminal.wait("paper: choose a version (Tab) or a time (t) first")
        terminal.keys("Tab", "Down", "Down")
        terminal.keys("r")
        terminal.wait("Restore paper as of", "rewrite  paper", "this overwrites 1 file; the history keeps it", CONFIRM)
        terminal.keys("y")
        terminal.wait("paper: 1 file rewritten")
        assert (made.path / "paper").read_bytes() == b"We claim nothing.\n"
        terminal.keys("u")
        terminal.wait("Undo? [y/N]")
        terminal.keys("y")
        terminal.wait("undone")
        assert (made.path / "paper").read_bytes() == b"We claim everything.\n"
        # The cursor is still in the versions, on the newest one.
        terminal.keys("r")
        terminal.wait("nothing to do; it has not changed since then")
        # The same again from the pane that shows the version, without the one that is marked; and this one is undone by
        # the other tool.
        go_to(terminal, "lost")
        terminal.keys("Space")
        terminal.wait("1 marked")
        go_to(terminal, "paper")
        terminal.keys("Tab", *["Down"] * 8, "Enter")
        terminal.wait("content", "We claim nothing.")
        terminal.keys("r")
        terminal.wait(CONFIRM)
        terminal.keys("y")
        terminal.wait("paper: 1 file rewritten")
    made.tool("vundo", made.path)
    assert (made.path / "paper").read_bytes() == b"We claim everything.\n"


def test_several_in_a_deleted_directory(made):
    with browse(made) as terminal:
        go_to(terminal, "gone", "changes")
        terminal.keys("Enter")
        screen = terminal.wait("/gone  deleted; as of", "one", "two", "below/")
        # As it was before rm began.
        assert [row(screen, name)[1] for name in (" one ", " two ")] == [" ", " "]
        terminal.keys("Down")
        terminal.wait("versions of one (")
        terminal.keys("Space")
        terminal.wait("1 marked")
        terminal.keys("Space")
        terminal.wait("2 marked")
        terminal.keys("r")
        terminal.wait("Restore 2 names as of", "restore  gone/one", "restore  gone/two", CONFIRM)
        terminal.keys("y")
        terminal.wait("2 names restored; u undoes it", absent=["deleted; as of"])
        assert sorted(os.listdir(made.path / "gone")) == ["one", "two"]
        assert (made.path / "gone/two").read_bytes() == b"two\n"
        assert len(restores(made)) == 1
        terminal.keys("u")
        terminal.wait("this removes 3 names that did not exist then", "gone/one", "gone/two", "Remove? [y/N]")
        terminal.keys("y")
        terminal.wait("undone")
        assert not (made.path / "gone").exists()


def test_a_whole_deleted_directory(made):
    with browse(made) as terminal:
        go_to(terminal, "gone", "changes")
        # Just before its end it was empty: rm had removed everything in it, from the inside out.
        terminal.keys("r")
        terminal.wait("Restore gone as of", "restore  gone", "restore  gone/below/three", CONFIRM)
        terminal.keys("y")
        terminal.wait("gone: 5 restored")
    assert sorted(os.listdir(made.path / "gone")) == ["below", "one", "two"]
    assert (made.path / "gone/below/three").read_bytes() == b"below/three\n"


def test_a_version_of_a_deleted_directory(made):
    with browse(made) as terminal:
        go_to(terminal, "gone", "changes")
        # The oldest one, in which it was just made.
        terminal.keys("Tab", "End")
        terminal.wait("mkdir", "Enter show")
        terminal.keys("r")
        terminal.wait("Restore gone as of", "restore  gone", CONFIRM)
        terminal.keys("y")
        terminal.wait("gone: ", "restored")
    assert os.listdir(made.path / "gone") == []


def test_names_changed_at_different_times_are_several_restores(made):
    """Each is restored to the time before it was deleted, and one key undoes all."""
    (made.path / "early").write_text("early\n", encoding="ascii")
    (made.path / "early").unlink()
    (made.path / "late").write_text("late\n", encoding="ascii")
    (made.path / "late").unlink()
    with browse(made) as terminal:
        go_to(terminal, "early")
        terminal.keys("Space")
        terminal.wait("1 marked")
        terminal.keys("Space")
        terminal.wait("2 marked", "versions of lost (")
        terminal.keys("r")
        terminal.wait("Restore 2 names, each as it was before it was deleted:", "restore  early", "restore  late", CONFIRM)
        terminal.keys("y")
        terminal.wait("2 names restored")
        assert (made.path / "early").read_bytes() == b"early\n" and (made.path / "late").read_bytes() == b"late\n"
        terminal.keys("u")
        terminal.wait("Remove? [y/N]", "    late")
        terminal.keys("y")
        terminal.wait("Remove? [y/N]", "    early")
        terminal.keys("y")
        terminal.wait("undone")
        assert not (made.path / "early").exists() and not (made.path / "late").exists()


def test_names_deleted_together_are_one_restore(made):
    for name in ("first", "second"):
        (made.path / name).write_text(name, encoding="ascii")
    run("rm", made.path / "first", made.path / "second")
    with browse(made) as terminal:
        go_to(terminal, "first")
        terminal.keys("Space")
        terminal.wait("versions of lost (")
        terminal.keys("Down", "Down", "Down", "Space")
        terminal.wait("2 marked", "*D second")
        terminal.keys("Escape", "a")
        terminal.wait("4 marked", "*D second", "*D gone/", " + copy")
        terminal.keys("Escape", "/")
        terminal.type("s*d")
        terminal.wait("[name: s*d]")
        terminal.keys("a", "/", "C-u", "Enter")
        terminal.wait("1 marked", "*D second", "first")
        terminal.keys("Home", "Down", "Down", "Down")
        terminal.wait("versions of first (")
        terminal.keys("Space")
        terminal.wait("2 marked")
        terminal.keys("r")
        terminal.wait("Restore 2 names as of", "restore  first", "restore  second", CONFIRM)
        terminal.keys("y")
        terminal.wait("2 names restored")
    assert len(restores(made)) == 1
    assert [(made.path / name).read_text(encoding="ascii") for name in ("first", "second")] == ["first", "second"]


def test_a_directory_at_a_time(made):
    """What did not exist then is listed before it is removed, in the words of vrevert."""
    (made.path / "deep/new").write_text("new\n", encoding="ascii")
    (made.path / "deep/er/leaf").write_text("other\n", encoding="ascii")
    state = state_of(made.path)
    with browse(made) as terminal:
        terminal.wait("paper", LEGEND)
        terminal.keys("t")
        terminal.type(epoch(made.when))
        terminal.wait("as of ", "changes of deep (")
        terminal.keys("r")
        terminal.wait("Restore deep as of", "this overwrites 1 file and removes 1 name that did not exist then", "    deep/new",
                      "The history keeps them. Remove? [y/N]")
        terminal.keys("n")
        terminal.wait("nothing was changed")
        assert differences(state, state_of(made.path)) == []
        terminal.keys("r")
        terminal.wait("Remove? [y/N]")
        terminal.keys("y")
        terminal.wait("deep: 1 file rewritten")
    assert not (made.path / "deep/new").exists() and (made.path / "deep/er/leaf").read_bytes() == b"leaf\n"


def test_elsewhere(made, maker):
    target = maker.tree()
    with browse(made) as terminal:
        go_to(terminal, "lost")
        terminal.keys("R")
        terminal.wait("Restore to (a directory or a new name):")
        terminal.type(str(target))
        terminal.wait(f"lost: restored to {target}/lost")
        assert (target / "lost").read_bytes() == b"found again\n"
        terminal.keys("R")
        terminal.type(f"{target}/lost")
        terminal.wait("exists")
        terminal.keys("R")
        terminal.type("there", end="BSpace")
        terminal.keys("Escape")
        terminal.wait("versions of lost (", absent=["Restore to"])
        terminal.keys("Up", "Space", "Space", "R")
        terminal.wait("choose a version")
        terminal.keys("Escape")
        go_to(terminal, "gone", "changes")
        terminal.keys("Enter")
        terminal.wait("deleted; as of", "two")
        terminal.keys("Down", "Space", "Space", "R")
        terminal.wait("Restore to")
        terminal.type(str(target / "no"))
        terminal.wait("no: is no directory; several names need one")
        terminal.keys("R")
        terminal.type(str(target))
        terminal.wait(f"2 names restored to {target}")
    assert sorted(os.listdir(target)) == ["lost", "one", "two"] and not (made.path / "gone").exists()


def test_a_restore_that_fails_in_part(mount):
    """As another user: the messages are shown, and the rest is done."""
    top = mount.path / "d"
    top.mkdir()
    top.chmod(0o777)
    for name in ("mine", "theirs"):
        (top / name).write_bytes(b"1\n")
    os.chown(top / "mine", *NOBODY)
    then = moment()
    for name in ("mine", "theirs"):
        (top / name).write_bytes(b"other\n")
    user = ("setpriv", f"--reuid={NOBODY[0]}", f"--regid={NOBODY[1]}", "--clear-groups")
    with browse(mount, "-t", epoch(then), "d", user=user) as terminal:
        terminal.wait("as of ", "mine", "theirs", "versions of mine (")
        terminal.keys("Space", "Space", "r")
        terminal.wait("Restore 2 names as of", CONFIRM)
        terminal.keys("y")
        terminal.wait("wayback restore: not all of it was done", "d/theirs: ", "permi")
        terminal.keys("q")
        terminal.wait("wayback restore: not all of it was done", "versions of")
    assert ((top / "mine").read_bytes(), (top / "theirs").read_bytes()) == (b"1\n", b"other\n")


def test_nothing_to_undo(made):
    with browse(made) as terminal:
        terminal.wait(LEGEND)
        terminal.keys("u")
        terminal.wait("nothing to undo")


# ---- filters ---------------------------------------------------------------------------------------


def test_filter_by_name(made):
    with browse(made) as terminal:
        terminal.wait("paper", LEGEND)
        terminal.keys("/")
        terminal.wait("Names with:")
        terminal.type("O")
        screen = terminal.wait("[name: O]", "copy", "lost", "old.txt", absent=["paper"])
        assert "deep/" not in screen
        terminal.keys("/", "C-u")
        terminal.type("*.txt")
        terminal.wait("[name: *.txt]", "old.txt", absent=["copy"])
        terminal.keys("Escape")
        terminal.wait("paper", "copy", absent=["[name"])
        (made.path / "copy").rename(made.path / "moved")
        terminal.keys("C-l")
        terminal.wait("moved", "lost", absent=["copy"])
        terminal.keys("x")
        assert row(terminal.wait("[moved: shown]", "copy", "> moved away"), " copy ")[1] == ">"
        terminal.keys("x")
        terminal.wait("[deleted: hidden]", "paper", absent=["lost", "gone/", "copy"])
        terminal.keys("x")
        terminal.wait("lost", "gone/", absent=["copy"])


def test_filter_by_command(made):
    with browse(made) as terminal:
        terminal.wait("paper", LEGEND)
        terminal.keys("c")
        terminal.wait("Changed by commands with:")
        terminal.type("rm -r")
        screen = terminal.wait("[command: rm -r]", "gone/", "rmdir", LEGEND, absent=["paper"])
        assert "mkdir" not in screen
        terminal.keys("c", "C-u")
        terminal.type("cp ")
        terminal.wait("[command: cp ]", " copy ", absent=["gone/"])
        terminal.keys("Escape")
        terminal.wait("paper", absent=["[command"])


def test_search_content(made):
    with browse(made) as terminal:
        terminal.wait("paper", LEGEND)
        terminal.keys("s")
        terminal.wait("Files of which a version contains:")
        terminal.type("again")
        screen = terminal.wait("[containing: again]", "1 file found", "versions of lost (")
        assert row(screen, " lost ")[1] == "D"
        terminal.keys("r")
        terminal.wait("restore  lost", CONFIRM)
        terminal.keys("y")
        terminal.wait("1 restored", "paper")
        terminal.keys("s")
        terminal.type("We claim nothing")
        terminal.wait("1 file found", "versions of paper (")
        # Without a chosen version: the last one that has the text.
        terminal.keys("r")
        terminal.wait("rewrite  paper", CONFIRM)
        terminal.keys("y")
        terminal.wait("1 file rewritten")
        terminal.keys("s")
        terminal.type("nobody wrote this")
        terminal.wait("0 files found")
        terminal.keys("Escape")
        terminal.wait("old.txt")
    assert (made.path / "lost").exists() and (made.path / "paper").read_bytes() == b"We claim nothing.\n"


# ---- the terminal ------------------------------------------------------------------------------------


def test_sizes(made):
    with browse(made) as terminal:
        terminal.wait("paper", LEGEND)
        terminal.resize(60, 20)
        screen = terminal.wait("Enter open", "paper", "changes of deep (")
        assert max(map(len, screen.splitlines())) <= 60
        terminal.resize(130, 30)
        screen = terminal.wait("? help  q quit")
        line = row(terminal.wait("deep/"), "changes of deep (")
        assert line.index("changes of") > 50
        terminal.resize(35, 8)
        terminal.wait("35x8 is too small; 40x10 is needed")
        terminal.resize(80, 24)
        terminal.wait("paper", LEGEND)
        # Also with a question, and in a pane that shows content.
        go_to(terminal, "lost")
        terminal.keys("r")
        terminal.wait(CONFIRM)
        terminal.resize(60, 20)
        terminal.wait(CONFIRM, "Restore lost as of")
        terminal.keys("n")
        terminal.wait("nothing was changed")
        terminal.keys("?")
        terminal.wait("keys of wayback browse")
        terminal.resize(80, 24)
        terminal.wait("Ctrl-L, F5")
        terminal.keys("q", "q")
        terminal.wait("exit 0")


def test_hostile_names(mount):
    names = [b"esc\x1b]0;title\x07\x1b[31m", b"line\nfeed", b"bad\xff\xfe", "rtl\u202eexe".encode(), b"-rf", "漢字".encode()]
    top = os.fsencode(mount.path)
    for name in names:
        with open(os.path.join(top, name), "wb") as stream:
            stream.write(name)
    for name in names[:2]:
        os.unlink(os.path.join(top, name))
    with open(os.path.join(top, b"-rf"), "wb") as stream:
        stream.write(b"once more")
    with browse(mount) as terminal:
        screen = terminal.wait("esc\\x1b]0;title\\x07\\x1b[31m", "line\\nfeed", "bad\\xff\\xfe", "-rf", "漢字", LEGEND)
        assert "\u202e" not in screen
        for name in ("esc\\x1b]0;title\\x07\\x1b[31m", "line\\nfeed"):
            go_to(terminal, name)
            terminal.keys("r")
            terminal.wait(f"restore  {name}", CONFIRM)
            terminal.keys("y")
            terminal.wait("1 restored")
        go_to(terminal, "bad\\xff\\xfe")
        terminal.keys("Enter", "d")
        terminal.wait("bad\\xff\\xfe as of")
        terminal.keys("q", "Left")
        go_to(terminal, "-rf")
        terminal.keys("Enter", "Down", "r")
        terminal.wait("Restore -rf as of", CONFIRM)
        terminal.keys("y")
        terminal.wait("-rf: 1 file rewritten")
        raw = terminal.raw.read_bytes()
    assert b"\x1b]0;title" not in raw and b"\xe2\x80\xae" not in raw and b"\xff" not in raw
    for name in names[:4]:
        with open(os.path.join(top, name), "rb") as stream:
            assert stream.read() == name


def colors(terminal):
    return any(f"\x1b[{number}m" in terminal.text("-e") for number in range(31, 37))


def test_colours(made):
    with browse(made) as terminal:
        terminal.wait("paper", LEGEND)
        assert colors(terminal)
    for variables in ({"NO_COLOR": "1"}, {"TERM": "vt100"}):
        arguments = [f"{name}={value}" for name, value in variables.items()]
        with Terminal(made.programs, ["env", *arguments, "wayback", "browse"], made.path) as terminal:
            terminal.wait("paper", LEGEND)
            assert not colors(terminal)


def test_terminals_that_cannot_place_text(made):
    with Terminal(made.programs, ["env", "TERM=dumb", "wayback", "browse"], made.path) as terminal:
        terminal.wait("the terminal 'dumb' (TERM) cannot place text", "wayback list", "exit 2")
    with Terminal(made.programs, ["env", "TERM=nonsense", "wayback", "browse"], made.path) as terminal:
        terminal.wait("the terminal 'nonsense' (TERM) cannot place text", "exit 2")


def test_no_terminal(made):
    for tool, other in (("vbrowse", "'vstat'"), (("wayback", "browse"), "'wayback list'")):
        command = [tool] if isinstance(tool, str) else [*tool]
        result = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                cwd=made.path, env=made.programs.environment(), check=False, timeout=LIMIT)
        assert result.returncode == 2 and result.stdout == "" and "needs a terminal" in result.stderr and other in result.stderr


def test_not_a_mount(made, maker):
    with browse(made, maker.tree()) as terminal:
        terminal.wait("not in a Wayback mount", "exit 1")
    with browse(made, "never/was/here") as terminal:
        terminal.wait("no such file or directory", "exit 1")


def test_interrupts(made):
    """The terminal is as it was, whatever ends the program."""
    for keys, status in ((("C-c",), 130), (("r", "C-c"), 130), (("/", "C-c"), 130), (("?", "C-c"), 130)):
        with browse(made, "lost") as terminal:
            terminal.wait("versions of lost (", LEGEND)
            for key in keys:
                terminal.keys(key)
                if key != "C-c":
                    terminal.wait("" if key == "C-c" else {"r": CONFIRM, "/": "Names with", "?": "keys of"}[key])
            assert "versions of" not in terminal.wait(f"exit {status}")  # the screen before the program is back


def test_a_tool_can_be_stopped(made):
    """While the daemon does not answer, the screen shows that something is done, and Escape ends it."""
    with browse(made, "paper") as terminal:
        terminal.wait("versions of paper (", LEGEND)
        made.process.send_signal(signal.SIGSTOP)
        try:
            terminal.keys("d")
            terminal.wait("comparing", "Escape stops it")
            terminal.keys("Escape")
            terminal.wait("stopping")
        finally:
            made.process.send_signal(signal.SIGCONT)
        terminal.wait("wayback diff: stopped", "(stopped)")
        terminal.keys("q", "q")
        terminal.wait("exit 0")


def test_the_daemon_dies(made):
    with browse(made) as terminal:
        terminal.wait("paper", LEGEND)
        made.process.kill()
        made.process.wait()
        terminal.keys("C-l")
        terminal.wait("the daemon of the mount has ended; unmount it (fusermount3 -u) and mount it again")
        terminal.keys("q")
        terminal.wait("exit 0")
    made.kill()


def test_a_tree_that_is_not_mounted(made, maker):
    target = maker.tree()
    source = made.source
    made.stop()
    with browse(made, source, cwd="/") as terminal:
        go_to(terminal, "lost")
        terminal.keys("r")
        terminal.wait("the tree is not mounted; mount it with 'wayback SRC' first, or restore elsewhere (R)")
        terminal.keys("R")
        terminal.type(str(target))
        terminal.wait(f"lost: restored to {target}/lost")
        terminal.keys("q")
        terminal.wait("exit 0")
    assert (target / "lost").read_bytes() == b"found again\n" and not (source / "lost").exists()


def test_help_lists_the_keys(made):
    with browse(made) as terminal:
        terminal.wait(LEGEND)
        terminal.keys("?")
        screen = terminal.wait("keys of wayback browse", "restore what is marked", "Escape")
        assert max(map(len, screen.splitlines())) <= 80 and "…" not in screen


def test_marks(maker):
    """A file that is older than the history, and was changed, is not new, also if the editor saves by renaming."""
    mount = maker.mount("allow_other", start=False)
    for name in ("rewritten", "replaced", "same"):
        (mount.source / name).write_bytes(b"old\n")
    (mount.source / "sub").mkdir()
    mount.start()
    top = mount.path
    (top / "rewritten").write_bytes(b"new\n")
    (top / "temporary").write_bytes(b"new\n")
    (top / "temporary").rename(top / "replaced")
    (top / "sub/made").write_bytes(b"new\n")
    with browse(mount) as terminal:
        screen = terminal.wait("rewritten", LEGEND)
        assert [row(screen, name)[1] for name in ("rewritten", "replaced", "same", "sub/")] == ["~", "~", " ", "~"]


def test_the_end_of_a_long_list(mount):
    """Versions are read as the cursor needs them; End reads all, and the cursor is at the last one."""
    for number in range(300):
        (mount.path / "long").write_text(f"text {number}", encoding="ascii")
    with browse(mount) as terminal:
        terminal.wait("versions of long (64+)", LEGEND)
        terminal.keys("Tab", "End")
        screen = terminal.wait("versions of long (", "create", absent=["+)"])
        assert row(screen, "create").split()[0] == str(len(mount.tool("vstat", "long", cwd=mount.path).stdout.splitlines()) - 1)
        terminal.keys("Enter")
        terminal.wait("content", "text 0")


def test_many_names(mount):
    (mount.path / "many").mkdir()
    for number in range(1000):
        (mount.path / f"many/name{number:04}").touch()
    for number in range(0, 1000, 2):
        (mount.path / f"many/name{number:04}").unlink()
    with browse(mount, "many") as terminal:
        terminal.wait("name0000", LEGEND)
        terminal.keys("End")
        screen = terminal.wait("versions of name0999 (")
        assert [row(screen, f" name099{number} ")[1] for number in (8, 9)] == ["D", "+"]
        # All of them at one time, although each was deleted at another.
        terminal.keys("a", "r")
        terminal.wait("Restore 500 names as of", "    and 495 more", CONFIRM)
        terminal.keys("y")
        terminal.wait("500 names restored")
    assert len(os.listdir(mount.path / "many")) == 1000 and len(restores(mount)) == 1


def test_names_without_a_common_time(mount):
    for number in range(30):
        (mount.path / f"name{number}").touch()
        (mount.path / f"name{number}").unlink()
    with browse(mount) as terminal:
        terminal.wait("name0", LEGEND)
        terminal.keys("a", "r")
        terminal.wait("there is no one time for all of these; choose a time (t), or mark fewer")
