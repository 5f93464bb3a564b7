# SPDX-License-Identifier: LGPL-2.1-or-later
"""A real terminal for programs that need one: tmux, with keys sent to it and its screen read back."""
import shlex
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from mounts import LIMIT


class Terminal:
    """Runs a command in a window of tmux. At its end the screen shows "exit STATUS"."""

    def __init__(self, programs, command, cwd, size=(80, 24), variables=None, user=()):
        self.directory = Path(tempfile.mkdtemp(prefix="wb-"))
        self.raw = self.directory / "raw"  # every byte that was written to the terminal
        self.environment = dict(programs.environment(), **(variables or {}))
        script = f"{' '.join(shlex.quote(str(part)) for part in [*user, *command])}; echo exit $?; exec sleep 100000"
        # The output is recorded from the first byte on.
        self.tmux("-f", "/dev/null", "new-session", "-d", "-x", size[0], "-y", size[1], "-c", cwd,
                  f"read _; {script}")
        self.tmux("set-option", "-g", "escape-time", "0")
        self.tmux("pipe-pane", "-o", f"cat >>{self.raw}")
        self.keys("Enter")

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.tmux("kill-server", check=False)
        shutil.rmtree(self.directory, ignore_errors=True)

    def tmux(self, *arguments, check=True):
        command = ["tmux", "-u", "-S", self.directory / "socket", *arguments]
        result = subprocess.run([str(part) for part in command], env=self.environment, stdin=subprocess.DEVNULL, check=False,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LIMIT)
        assert not check or result.returncode == 0, (command, result.stdout)
        return result.stdout

    def keys(self, *names):
        """Keys as tmux calls them: Enter, Up, C-c, x."""
        self.tmux("send-keys", *names)

    def type(self, text, end="Enter"):
        """The characters of a text, and the key after it."""
        self.tmux("send-keys", "-l", text)
        self.keys(end)

    def resize(self, columns, lines):
        self.tmux("resize-window", "-x", columns, "-y", lines)

    def text(self, *options):
        """The screen. Lines that the terminal wrapped are one."""
        lines = self.tmux("capture-pane", "-p", "-J", *options).decode(errors="replace").splitlines()
        return "\n".join(line.rstrip() for line in lines)

    def wait(self, *parts, absent=()):
        """Until the screen has these texts, also divided into lines, and none of the absent ones; the screen."""
        deadline = time.monotonic() + LIMIT
        while True:
            screen = self.text()
            flat = " ".join(screen.split())
            if all(part in screen or part in flat for part in parts) and not any(part in screen for part in absent):
                return screen
            assert time.monotonic() < deadline, f"waited for {parts} without {absent}:\n{screen}"
            time.sleep(0.02)
