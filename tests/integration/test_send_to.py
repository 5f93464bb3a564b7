# SPDX-License-Identifier: LGPL-2.1-or-later
"""vsend --to: one command creates a copy and brings it up to date, here or on another machine."""
import json
import os
import signal
import subprocess

import pytest
from copies import Copy
from mounts import LIMIT
from test_rebind import begin
from treestate import state_of

SSH = """#!/bin/sh
# Called as ssh is: a machine and a command for its shell. While the file `down` is there, no machine is reached.
echo "$@" >> {base}/calls
[ -e {base}/down ] && exit 255
[ "$1" = bare ] && PATH=/usr/bin:/bin
shift
cd {base} || exit 1
exec 3<&0
sh -c "exec $*" <&3 3<&- &
exec <&- 3<&-
echo $! > {base}/child
wait $! 2>/dev/null
status=$?
[ -e {base}/down ] && exit 255
exit $status
"""


@pytest.fixture(name="source")
def fixture_source(maker):
    tree = maker.tree()
    begin(tree)
    return maker.mount("allow_other", source=tree)


@pytest.fixture(name="ssh")
def fixture_ssh(maker, source):
    script = maker.scratch / "ssh"
    script.write_text(SSH.format(base=maker.scratch))
    script.chmod(0o755)
    os.environ["PATH"], path = f"{source.programs.directory}:{os.environ['PATH']}", os.environ["PATH"]
    yield script
    os.environ["PATH"] = path


def send(source, target, *options, status=0, **more):
    result = source.run_tool("vsend", *options, "--to", target, source.source, merge=False, **more)
    assert result.returncode == status, (result.stdout, result.stderr)
    return result


def checked(maker, source, path):
    """The copy shows each state that was noted."""
    copy = Copy(maker, source)
    copy.path = path
    return copy


def test_one_command_creates_and_updates(maker, source):
    path = maker.scratch / "new copy"
    assert "is empty; the whole tree" in send(source, path, "-n").stdout
    assert not path.exists()
    copy = checked(maker, source, path)
    for number in range(3):
        (source.path / "file").write_text(f"state {number}")
        copy.note_state()
        result = send(source, path)
        assert "it has the history up to" in result.stdout and result.stderr == ""
    copy.check()
    assert "already up to date" in send(source, path).stdout
    (source.path / "file").write_text("later")
    before = state_of(path)
    assert "later changes would be sent" in send(source, path, "--dry-run").stdout
    assert state_of(path) == before
    sent = json.loads(send(source, path, "--json").stdout)
    assert sent["records"] > 0 and (path / "file").read_text() == "later"


def test_the_pipe_waits_for_its_own_question(source, maker):
    """vreceive does not take the copy before a stream comes: the shell starts both sides at once."""
    path = maker.scratch / "copy"
    programs = source.programs.directory
    line = f'{programs}/vsend --since "$({programs}/vreceive --status {path})" {source.source} | {programs}/vreceive {path}'
    for number in range(12):
        (source.path / "file").write_text(f"state {number}")
        result = subprocess.run(["bash", "-o", "pipefail", "-c", line], check=False, capture_output=True, text=True,
                                env=source.programs.environment())
        assert (result.returncode, result.stderr) == (0, "")
    assert (path / "file").read_text() == "state 11"


def test_another_machine(maker, source, ssh):
    (maker.scratch / "its dir").mkdir()
    name = "its dir/c'opy $HOME"
    for number in range(2):
        (source.path / "file").write_text(f"state {number}")
        assert "it has the history up to" in send(source, f"user@box:{name}", "--ssh", ssh).stdout
    assert (maker.scratch / name / "file").read_text() == "state 1"
    send(source, "[fe80::1]:other", "--ssh", f"{ssh}")
    assert (maker.scratch / "other/file").exists()
    assert [line.split()[0] for line in (maker.scratch / "calls").read_text().splitlines()] == \
        ["user@box"] * 4 + ["fe80::1"] * 2


def test_a_directory_that_exists_is_no_machine(maker, source):
    path = maker.scratch / "box:here"
    path.mkdir()
    send(source, "box:here", cwd=maker.scratch)
    assert (path / "untouched").exists()


def test_errors_name_the_remedy(maker, source, ssh):
    (maker.scratch / "down").touch()
    assert "box:copy: box cannot be reached" in send(source, "box:copy", "--ssh", ssh, status=1).stderr
    (maker.scratch / "down").unlink()
    assert "install Wayback there" in send(source, "bare:copy", "--ssh", ssh, status=1).stderr
    assert "vreceive failed there" in send(source, "box:none/copy", "--ssh", ssh, status=1).stderr
    full = maker.scratch / "full"
    full.mkdir()
    (full / "mine").write_text("mine")
    assert "neither empty nor a copy" in send(source, full, status=1).stderr
    assert (full / "mine").read_text() == "mine"
    missing = source.run_tool("vsend", "--to", maker.scratch / "x", maker.scratch / "none")
    assert missing.returncode == 1 and "vreceive" not in missing.stdout and not (maker.scratch / "x").exists()


@pytest.mark.parametrize("options", [["--to", "-oProxyCommand=x:c"], ["--to", "[-oProxyCommand=x]:c"], ["--to", "box:"], ["--to", ""],
                                     ["--to", "c", "--since", "0"], ["--ssh", "x"], ["-n"],
                                     ["--to", "box:c", "--ssh", "'"]])
def test_wrong_use(source, options):
    result = source.run_tool("vsend", *options, source.source)
    assert result.returncode == 2 and "--help" in result.stdout


def test_follow_connects_again(maker, source, ssh):
    copy, down = maker.scratch / "copy", maker.scratch / "down"
    with subprocess.Popen([source.programs.directory / "vsend", "--follow", "--ssh", ssh, "--to", "box:copy", source.source],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env=source.programs.environment()) as process:
        try:
            assert "it has the history up to" in process.stdout.readline()
            down.touch()
            os.kill(int((maker.scratch / "child").read_text()), signal.SIGKILL)
            assert any("trying again" in line for line in process.stderr)
            down.unlink()
            (source.path / "later").write_text("later")
            # The first copy after it connected may be of before.
            while "it has the history up to" in process.stdout.readline() and not (copy / "later").exists():
                pass
            assert (copy / "later").read_text() == "later"
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT) == 128 + signal.SIGTERM
