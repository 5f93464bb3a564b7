# SPDX-License-Identifier: LGPL-2.1-or-later
"""The examples that --help and the manual show run as they are written, in a tree that has everything they name.

Each example gets a world of its own: a tree SRC with forty days of past, mounted at ~/work (and seen at /srv), in which
the example is run; or not mounted, if the example is about SRC. The clocks of daemon and tools are ahead, so that
yesterday is in the history. Parts that cannot be as written are replaced: the root directory, /mnt and /tmp, ids, and
dates.
"""
import contextlib
import json
import os
import pty
import re
import shlex
import shutil
import struct
import subprocess
import time
from pathlib import Path

import pytest

from mounts import BUILD, LIMIT, TOOLS, run
from test_clock import Shifted

ROOT = Path(__file__).resolve().parents[2]
DAY = 86400
VERBS = {"vsnap": ("create", "rename", "delete", "diff", "list", "show", "view")}
SNAPSHOTS = ("before-upgrade", "before", "after", "test-1", "test-2", "snap-2026-11-21_1403")


def help_of(tool, *verb):
    environment = dict(os.environ, LD_LIBRARY_PATH=str(BUILD / "src"), LC_ALL="C.UTF-8")
    result = subprocess.run([BUILD / "utils" / tool / tool, *verb, "--help"], check=True, stdout=subprocess.PIPE, text=True,
                            env=environment)
    return result.stdout


def examples_in(text):
    """Two blanks, the command, and after two more blanks its effect."""
    part = re.search(r"^Examples:\n((?:  .*\n)+)", text, re.MULTILINE)
    assert part, "no examples"
    lines = [re.match(r"  (\S.*?)(?:  +.*)?$", line) for line in part[1].splitlines()]
    return [line[1] for line in lines if line]


def examples_of_manual(tool):
    text = (ROOT / f"docs/man/{tool}.1").read_text(encoding="utf-8")
    part = re.search(r"^\.SH EXAMPLES\n(.*?)^\.SH", text, re.MULTILINE | re.DOTALL)
    commands = []
    for block in re.split(r"^\.TP\n", part[1], flags=re.MULTILINE):
        lines = block.splitlines()
        if ".nf" in lines:
            commands += [re.split("   *", line)[0] for line in lines[1:lines.index(".fi")]]
        elif lines:
            commands.append(lines[0].removeprefix(".B "))
    for escaped, character in (("\\-", "-"), ("\\(aq", "'"), ("\\(dq", '"')):
        commands = [command.replace(escaped, character) for command in commands]
    return commands


def all_examples():
    found = []
    for tool in sorted(TOOLS):
        found += examples_of_manual(tool)
        for verb in ((), *((verb,) for verb in VERBS.get(tool, ()))):
            found += examples_in(help_of(tool, *verb))
    return list(dict.fromkeys(found))


class World:
    """HOME, a tree with a past, and everything else that examples name."""

    def __init__(self, maker, command):
        self.root = Path(maker.tree())
        self.root.chmod(0o755)
        self.mount = maker.mount("allow_other", source=self.root / "SRC", path=self.root / "home/work", start=False)
        self.mount.expect(".")
        for name in ("SRC", "home/work", "home/then", "mnt", "tmp", "MNT", "bin"):
            (self.root / name).mkdir(parents=True)
        for name in ("disk", "srv"):
            if f"/mnt/{name}" in command:
                (self.root / "mnt" / name).mkdir()
        helper = self.root / "system/sbin/mount.wayback"
        for name in ("home/Documents", "system/etc", "system/sbin"):
            (self.root / name).mkdir(parents=True)
        shutil.copy("/bin/true", helper)
        ssh = self.root / "bin/ssh"
        ssh.write_text('#!/bin/sh\nshift\nexec sh -c "$*"\n', encoding="ascii")
        ssh.chmod(0o755)
        self.clock = Shifted(self.mount.programs, maker.tree())
        self.mount.programs = self.clock
        self.command = command
        self.make_past()

    def make_past(self):
        # Forty days later it is evening, so that all times of the day have passed.
        evening = (22 * 3600 - int(time.time())) % DAY
        top = self.mount.path
        self.mount.start()
        for name in ("src/lib", "build", "mail", "doc", "etc", "www", "notes"):
            (top / name).mkdir(parents=True)
        for name in ("report.txt", "report.odt", "notes.md", "a.log", "x.o", "main.c", "passwords.txt", "database", "deleted.txt",
                     "secret.key", "etc/fstab", "etc/removed", "src/main.c", "src/lib/list.c", "src/gone.c", "build/x.o", "mail/inbox", "doc/a"):
            (top / name).write_text("".join(f"{name + ' ' + str(line):23}\n" for line in range(40)), encoding="ascii")
        # Each on a line of its own, far enough from the others for patch(1).
        for number, (days, text) in enumerate(((1, "next day"), (39, "day before"), (40, "morning"), (40, "evening"))):
            early = 12 * 3600 if text == "morning" else 60
            self.clock.set(evening + days * DAY - early)
            for path in sorted(top.rglob("*")):
                if path.is_file():
                    with open(path, "r+b", buffering=0) as stream:
                        os.pwrite(stream.fileno(), f"{text:23}".encode(), number * 10 * 24)
            if text == "day before":
                (top / "deleted.txt").unlink()
                (top / "src/gone.c").unlink()
        made = re.findall(r"(?:create|rename \S+) ([\w-]+)", self.command)
        for name in SNAPSHOTS:
            if re.search(rf"(?<![\w-]){name}(?![\w-])", self.command) and name not in made:
                self.mount.tool("vsnap", "create", name, top)
            if name == "before":
                (top / "etc/removed").unlink()
        self.clock.set(evening + 40 * DAY)
        if "rm -rf" in self.command:
            subprocess.run(["rm", "-rf", top / "src/lib"], check=True)
        if self.command.startswith("vundo"):
            self.make_restores()
        if self.is_of_src():
            self.mount.stop()
            self.prepare_src()

    def make_restores(self):
        self.mount.tool("vrevert", "src", "--change", "1", cwd=self.mount.path)
        self.mount.tool("vrevert", "src", "--time", "10d", cwd=self.mount.path)
        if "--redo" in self.command:
            self.mount.tool("vundo", "src", cwd=self.mount.path)
        listed = self.mount.tool("vundo", "--list", "--json", cwd=self.mount.path).stdout.splitlines()
        self.command = re.sub(r"(?<=--op )\d+", json.loads(listed[0])["op"], self.command)

    def is_of_src(self):
        return re.search(r"\b(SRC|COPY)\b", self.command)

    def prepare_src(self):
        source = self.root / "SRC"
        if self.command.endswith("SRC SRC/.wayback"):
            self.mount.tool("vstore", "move", source, self.root / "mnt/history")
        if "--rebind" in self.command:
            source.rename(self.root / "first")
            run("cp", "-a", self.root / "first", source)
        if not self.command.startswith("vsend") and "COPY" in self.command:
            self.mount.tool("sh", "-c", f"vsend {source} | vreceive {self.root}/COPY")

    def written(self):
        """The command with names that cannot exist here replaced by names that do."""
        command = self.command
        yesterday = time.strftime("%Y-%m-%d", time.gmtime(time.time() + struct.unpack("qq", self.clock.file.read_bytes())[1] - DAY))
        command = re.sub(r"(?<=@)\d{4}-\d\d-\d\d", yesterday, command)
        command = re.sub(r"(?<= )/(?= |$)", str(self.mount.path), command)
        for undo in sorted((self.root / "SRC/.wayback/objects").glob("*/*.undo"))[:1]:
            command = re.sub(r"\b[0-9a-f]{16}-[0-9a-f]{16}\b", undo.stem, command)
            command = command.replace("objects/2c/", f"objects/{undo.parent.name}/")
        command = re.sub(r"(?<=[ =])/(mnt|tmp)\b", rf"{self.root}/\1", command)
        if command.startswith("vbrowse"):
            # It needs a terminal for its output, too. script(1) passes the keys on.
            command = f"TERM=xterm script -qec {shlex.quote(command)} /dev/null"
        if command.startswith("vdisable"):
            command = f"venable ~/Documents >/dev/null && {command}"
        return re.sub(r"\b(venable|vdisable)\b", rf"\1 --root {self.root}/system", command)

    def run(self):
        """(exit status, output), in a world in which /srv is ours; all questions are answered with yes."""
        away = not self.is_of_src()
        cwd = self.root / "home/work" if away else self.root
        passwd = self.root / "passwd"
        passwd.write_text(Path("/etc/passwd").read_text(encoding="utf-8") + "anna:x:4321:4321::/:/bin/sh\n", encoding="utf-8")
        command = self.written()
        # A command that follows is interrupted once it has printed something.
        follows = re.search(r"vlog -f|--follow|^vweb", command)
        if follows:
            command = re.sub(r"(vlog -f|vsend --follow|^vweb)", r"timeout -s INT 5 \1", command) + "; test $? = 130 -o $? = 124 -o $? = 0"
        bound = {Path("/etc/passwd"): passwd}
        if away:
            bound[Path("/srv")] = self.root / "home/work"
        script = f"cd {cwd}; set -o pipefail; {command}\n"
        mine, theirs = pty.openpty()
        os.write(mine, b"q" if self.command.startswith("vbrowse") else b"y\n")
        environment = self.clock.environment()
        environment.update(HOME=str(self.root / "home"), PATH=f"{self.root / 'bin'}:{environment['PATH']}", TZ="UTC",
                           WAYBACK_PAGER="cat", EDITOR="true")
        environment.pop("XDG_RUNTIME_DIR", None)
        if follows:
            # A signal in the middle of the leak check at the end of a program makes that hang.
            environment["ASAN_OPTIONS"] = environment.get("ASAN_OPTIONS", "") + ":detect_leaks=0"
        # The mount namespace is that of the tests already (conftest), and the daemon's, which some requests ask for.
        for target, origin in bound.items():
            run("mount", "--bind", origin, target)
        try:
            result = subprocess.run(["bash", "-c", script], stdin=theirs, stdout=subprocess.PIPE,
                                    stderr=theirs, check=False, text=True, env=environment, timeout=LIMIT)
            os.set_blocking(mine, False)
            with contextlib.suppress(BlockingIOError):
                return result.returncode, result.stdout + os.read(mine, 1 << 16).decode()
            return result.returncode, result.stdout
        finally:
            for target in bound:
                run("umount", "-l", target)
            for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines():
                target, kind = line.split()[1:3]
                if kind == "fuse.wayback" and target.startswith(f"{self.root}/") and target != str(self.mount.path):
                    run("umount", "-l", target)
            os.close(mine)
            os.close(theirs)


EXAMPLES = all_examples() if (BUILD / "utils").exists() else []


@pytest.mark.parametrize("command", EXAMPLES)
def test_example_runs(maker, command):
    if "jq" in command and not shutil.which("jq"):
        pytest.skip("jq is not installed")
    world = World(maker, command)
    status, output = world.run()
    # vfsck exits with 1 after a repair, as its help says, and so does diff if it finds something.
    assert status == (1 if "--rebind" in command or "| diff" in command else 0), f"{world.written()}\n{output}"
