# SPDX-License-Identifier: LGPL-2.1-or-later
"""`wayback VERB`: one command for all tools, and vstatus."""
import json
import os
import subprocess

from mounts import BUILD, LIMIT, NOBODY, TOOLS, epoch, moment, mounted_at, run

VERBS = {"browse": "vbrowse", "web": "vweb", "log": "vlog", "list": "vstat", "diff": "vdiff", "find": "vfind", "extract": "vextract", "restore": "vrevert",
         "snap": "vsnap", "usage": "vdf", "forget": "vprune", "rm": "vrm", "check": "vfsck", "send": "vsend", "status": "vstatus",
         "enable": "venable", "disable": "vdisable", "config": "vconfig", "undo": "vundo", "redo": "vundo",
         "show": "vextract",
         "receive": "vreceive", "store": "vstore", "pack": "vcompact", "dump": "vdump"}


def call(mount, *arguments, status=0, program=None, **options):
    result = subprocess.run([program or mount.programs.directory / "wayback", *arguments], check=False, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, timeout=LIMIT,
                            env=mount.programs.environment(), **options)
    assert result.returncode == status, result.stdout
    return result.stdout


def test_verbs_are_the_tools(mount):
    """A file is written, lost, listed and brought back with nothing but `wayback`."""
    file = mount.path / "f"
    file.write_bytes(b"first")
    when = moment()
    file.unlink()
    assert "create" in call(mount, "log", mount.path)
    assert "unlink" in call(mount, "list", file)
    assert "D" in call(mount, "find", "f", mount.path)
    assert "f" in call(mount, "diff", mount.path, epoch(when))
    call(mount, "restore", "--time", epoch(when), file)
    assert file.read_bytes() == b"first"
    call(mount, "snap", "create", "here", mount.path)
    assert "here" in call(mount, "snap", "list", mount.path)
    call(mount, "rm", "-y", file)
    assert not file.exists()


def test_help_and_names(mount):
    """The first screen fits a small terminal; a verb's own help and errors have the name by which it was called."""
    screen = call(mount, "help").splitlines()
    assert len(screen) <= 24 and max(map(len, screen)) <= 80
    for verb, tool in VERBS.items():
        text = call(mount, verb, "--help")
        assert f"wayback {verb}" in text.splitlines()[1] and f"man {tool}" in text
        assert text == call(mount, "help", verb)
    assert call(mount, "help", "mount") == call(mount, "--help")
    assert call(mount, "log", "--bogus", status=2).startswith("wayback log: ")
    assert "Try 'wayback snap create --help'" in call(mount, "snap", "create", "--bogus", status=2)
    assert call(mount, "list", "/nowhere/at/all", status=1).startswith("wayback list: ")
    tool = mount.run_tool("vlog", "--bogus")
    assert tool.stdout.startswith("vlog: ") and "wayback log" not in tool.stdout


def test_words_that_are_no_verbs(mount, maker):
    place = maker.tree()
    assert "is 'wayback log' meant?" in call(mount, "lgo", status=1, cwd=place)
    assert "is 'wayback status' meant?" in call(mount, "stauts", mount.path, status=1, cwd=place)
    assert "meant" not in call(mount, "elsewhere", status=1, cwd=place)
    assert "is 'restore' meant?" in call(mount, "help", "resotre", status=2)
    assert "topics" in call(mount, "help", "nothing", status=2)
    # A directory of that name is mounted by a path, or by the verb for it.
    (place / "log").mkdir()
    call(mount, "mount", "log", cwd=place)
    assert mounted_at(place / "log")
    call(mount, "unmount", place / "log")
    assert not mounted_at(place / "log")
    call(mount, "unmount", status=2)


def test_tools_are_found_in_the_path(mount, maker):
    """Where the file of the program is, there need be no tool: a build has each in a directory of its own."""
    alone = maker.tree("tmpfs") / "wayback"
    alone.symlink_to((BUILD / "bin/wayback").resolve())
    environment = dict(mount.programs.environment(), PATH=f"{BUILD / 'bin'}:{os.environ['PATH']}")
    def version():
        return subprocess.run([alone, "log", "--version"], check=False, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, env=environment, timeout=LIMIT)

    assert version().stdout.startswith("vlog ")
    environment["PATH"] = "/nowhere"
    result = version()
    assert result.returncode == 1 and result.stdout.startswith("wayback: vlog: No such file or directory")


def status(mount, *paths, result=0, **options):
    text = call(mount, "status", "--json", *paths, status=result, **options)
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def test_status(mount, maker):
    (mount.path / "d").mkdir()
    one, other = status(mount, mount.path, mount.path / "d/missing")
    assert one["recorded"] and other["recorded"] and one["mount"] == str(mount.path) == other["mount"]
    assert one["tree"] == str(mount.source) and one["pid"] == mount.process.pid
    assert one["store"] == str(mount.source / ".wayback")
    text = call(mount, "status", mount.path)
    assert text.startswith(f"{mount.path} is recorded\n") and f"by process {mount.process.pid}" in text
    # Behind the mount, and where nothing is recorded.
    [behind] = status(mount, mount.source / "d", result=1)
    assert not behind["recorded"] and behind["mount"] == str(mount.path)
    bare = maker.tree()
    [nothing] = status(mount, bare, result=1)
    assert not nothing["recorded"] and "mount" not in nothing
    assert f"wayback mount {bare}" in call(mount, "status", bare, status=1)
    assert [entry for entry in status(mount, "--all") if entry["mount"] == str(mount.path)] == [one]
    call(mount, "status", "--all", bare, status=2)
    point = mount.path
    mount.stop()
    [stopped] = status(mount, mount.source, result=1)
    assert stopped["tree"] == str(mount.source) and "has a history" in stopped["status"]
    [empty] = status(mount, point, result=1)
    assert not empty["recorded"]


def test_what_could_be_recorded(mount, maker):
    """A file, and what does not exist, are in the directory above them, which can be mounted."""
    place = maker.tree()
    (place / "file").write_bytes(b"")
    for name in ("file", "missing/below", "file/below"):
        assert call(mount, "status", place / name, status=1).endswith(f"wayback mount {place}\n")
    assert "wayback mount" not in call(mount, "status", "/missing", status=1)


def test_status_of_covered_mounts(mount, maker):
    """A mount that another one covers is not the one that a path leads to."""
    other = maker.tree()
    call(mount, "-o", "nonempty", other, mount.path)
    try:
        assert status(mount, mount.path)[0]["tree"] == str(other)
        [behind] = status(mount, mount.source, result=1)
        assert "mount" not in behind
        text = call(mount, "mounts")
        assert text.count(f"{mount.path} is recorded") == 1 and "covered by another one" in text
    finally:
        run("umount", mount.path)
    assert status(mount, mount.path)[0]["tree"] == str(mount.source)


def test_status_below_a_mount_above(maker):
    """The mount is in a directory over which something else is mounted, or in nothing."""
    above = maker.tree()
    (above / "point").mkdir()
    mount = maker.mount(path=above / "point")
    run("mount", "-t", "tmpfs", "none", above)
    try:
        [seen] = status(mount, above / "point", result=1)
        assert not seen["recorded"] and "mount" not in seen
    finally:
        run("umount", above)
    assert status(mount, above / "point")[0]["recorded"]


def test_status_of_a_view_and_of_others(maker):
    """The past is not recorded; and another user does not learn where the tree and the daemon are."""
    mount = maker.mount("allow_other")
    (mount.path / "f").write_bytes(b"x")
    view = maker.mount("allow_other", f"at={epoch(moment())}", source=mount.source)
    [past] = status(view, view.path, result=1)
    assert past["status"] == "is a view of the past" and "at" in past
    command = ["setpriv", f"--reuid={NOBODY[0]}", f"--regid={NOBODY[1]}", "--clear-groups",
               mount.programs.directory / "vstatus", "--json", mount.path]
    seen = json.loads(run(*command, env=mount.programs.environment()).stdout)
    assert seen["recorded"] and "pid" not in seen and "store" not in seen


def test_a_shell_below_its_mount(maker):
    """It stood in the directory before Wayback was mounted over it."""
    source, programs = maker.tree(), maker.programs
    shell = subprocess.Popen(["sh"], cwd=source, env=programs.environment(), stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, text=True)
    maker.mount(source=source, path=source)
    other = os.path.relpath(maker.mount().path, source)
    ask = f"{programs.directory / 'wayback'} status --json"
    output, _ = shell.communicate(f"{ask}; {ask} {source}; {ask} {other}; {ask} new; cd .; {ask}\n", timeout=LIMIT)
    before, absolute, elsewhere, new, after = (json.loads(line) for line in output.splitlines())
    assert elsewhere["recorded"] and not elsewhere["below_mount"]
    assert new["below_mount"] and not new["recorded"]
    assert absolute["recorded"] and not absolute["below_mount"]
    assert before["below_mount"] and not before["recorded"]
    assert after["recorded"] and not after["below_mount"]


def test_commands_in_texts(mount, maker):
    """A command that a verb prints is one of `wayback`, and one that a tool prints is a tool."""
    (mount.path / "f").write_bytes(b"x")
    then = moment()
    (mount.path / "f").write_bytes(b"longer")
    gone = mount.path / "gone"
    gone.write_bytes(b"x")
    gone.unlink()
    assert "wayback restore --time" in call(mount, "find", "gone", mount.path)
    assert "vrevert --time" in mount.tool("vfind", "gone", mount.path).stdout
    text = call(mount, "restore", mount.path / "f", "--time", epoch(then))
    assert "undo: wayback restore " in text and "or:   wayback undo " in text and "vrevert" not in text
    assert "'wayback list' lists" in call(mount, "restore", mount.path / "f", status=2)
    assert "'vstat' lists" in mount.tool("vrevert", mount.path / "f", status=2).stdout
    for verb in VERBS:
        lines = call(mount, verb, "--help").splitlines()
        assert [line for line in lines if line.split()[:1] and line.split()[0] in TOOLS] == []
