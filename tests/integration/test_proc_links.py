# SPDX-License-Identifier: LGPL-2.1-or-later
"""Links in /proc to the directory of a process lead to that directory, whatever their text. In another mount namespace
the same text names another directory: no tool may take that one."""
import os
import subprocess

import pytest

from mounts import LIMIT, NOBODY, as_user, epoch, moment, run

ELSEWHERE = "has another path here"


@pytest.fixture(name="places")
def fixture_places(maker):
    """A mounted tree `here`, a tree `there` with a history, and a process to which `there` is at the path of `here`."""
    here, there = maker.mount("allow_other"), maker.mount()
    for mount in (here, there):
        for text in ("one", "two"):
            (mount.path / "f").write_text(f"{text} {'here' if mount is here else 'there'}\n")
    there.stop()
    script = f"mount --bind {there.source} {here.source} && mount --bind {there.source} {here.path} && cd {here.source}"
    with subprocess.Popen(["unshare", "-m", "sh", "-c", f"{script} && echo ready && exec sleep {LIMIT}"],
                          stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        there.link = f"/proc/{process.pid}/cwd"
        assert os.readlink(there.link) == str(here.source) and os.path.samefile(there.link, there.source)
        yield here, there
        process.kill()


def state(mount):
    """The tree with the logs and the settings: the daemon writes other files of the store whenever it likes."""
    files = {path: path.read_bytes() for path in sorted(mount.source.rglob("*")) if path.is_file() and
             (".wayback" not in path.parts or "objects" in path.parts or path.name in ("header", "wayback.conf"))}
    return files, mount.source.stat().st_mtime_ns


TOOLS = {
    "vstat": ["vstat", "DIR/f"],
    "vextract": ["vextract", "-o", "-", "DIR/f"],
    "vdiff": ["vdiff", "DIR/f", "NOW"],
    "vfind": ["vfind", "DIR/."],
    "vlog": ["vlog", "DIR/."],
    "vdf": ["vdf", "DIR/."],
    "vrevert": ["vrevert", "-t", "NOW", "DIR/f"],
    "vundo": ["vundo", "DIR/."],
    "vrm": ["vrm", "-y", "DIR/f"],
    "vsnap": ["vsnap", "create", "a-name", "DIR/."],
    "vprune": ["vprune", "-y", "--before", "NOW", "DIR/."],
    "vcompact": ["vcompact", "DIR/f"],
    "vstatus": ["vstatus", "DIR/."],
    "vconfig": ["vconfig", "DIR/.", "set", "keep", "1s"],
    "venable": ["venable", "DIR"],
    "vdisable": ["vdisable", "-y", "--forget-history", "DIR"],
}


@pytest.mark.parametrize("through", ["a link", "/proc"])
@pytest.mark.parametrize("tool", TOOLS)
def test_no_tool_takes_the_directory_that_the_text_names(maker, places, tool, through):
    here, there = places
    directory = there.link
    if through == "a link":
        directory = maker.scratch / "link"
        directory.symlink_to(there.link)
    when = epoch(moment())
    before = state(here), state(there)
    words = [word.replace("DIR", str(directory)).replace("NOW", when) for word in TOOLS[tool]]
    said = here.run_tool(*words)
    assert said.returncode != 0 and ELSEWHERE in said.stdout and " here\n" not in said.stdout, said
    assert (state(here), state(there)) == before
    assert "a-name" not in here.tool("vsnap", "list", here.path).stdout


@pytest.mark.parametrize("through", ["a link", "/proc"])
def test_tools_of_whole_trees_take_the_directory_of_the_process(maker, places, through):
    here, there = places
    directory, elsewhere = there.link, maker.scratch / "elsewhere"
    if through == "a link":
        directory = maker.scratch / "link"
        directory.symlink_to(there.link)
    before = state(here)
    for source in (directory, there.source):
        assert here.tool("vfsck", source).stdout.startswith("6 records")
        sent = run("sh", "-c", f"{here.programs.directory}/vsend {source} | strings", env=here.programs.environment())
        assert "one there" in sent.stdout and "one here" not in sent.stdout
    here.tool("vstore", "move", directory, elsewhere)
    assert str(elsewhere) in here.tool("vstore", "status", there.source).stdout
    assert state(here) == before
    here.tool("vextract", "-o", f"{directory}/copy", f"{here.path}/f@{epoch(moment())}")
    assert (there.source / "copy").read_text() == "two here\n" and not (here.source / "copy").exists()


def test_a_stream_is_not_received_where_the_text_leads(maker, places):
    here, there = places
    stream, before = maker.scratch / "stream", state(here)
    run("sh", "-c", f"{here.programs.directory}/vsend {there.source} >{stream}", env=here.programs.environment())
    with open(stream, "rb") as data:
        here.run_tool("vreceive", f"{there.link}/copy", stdin=data)
    assert state(here) == before and not (here.source / "copy").exists()


def test_links_of_others_are_not_followed_to_a_tree(maker, places):
    """Their owner could change them between two looks."""
    here, there = places
    directory = maker.point(NOBODY)
    as_user(lambda: os.symlink(there.source, directory / "link"), *NOBODY)
    for words in (["vfsck", "-y"], ["vsend"], ["vstore", "status"], ["venable", "-n"], ["vdisable", "-n"]):
        said = here.run_tool(*words, directory / "link")
        assert said.returncode != 0 and "symbolic link of another user" in said.stdout, said
