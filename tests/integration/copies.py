# SPDX-License-Identifier: LGPL-2.1-or-later
"""A copy that vreceive made of a mount, and the states that it must show."""
import contextlib
import json
import os
import select
import signal
import subprocess
import tempfile

from mounts import LIMIT, moment, nanoseconds
from stepping import run_to_call
from treestate import differences, state_of


class Copy:
    """A directory that follows a mount, and the states that it must show."""

    def __init__(self, maker, mount):
        self.maker, self.source = maker, mount
        self.path = maker.tree()
        self.expected = []  # (moment, state)
        self.receiver = {}  # the user, if not root

    def tool(self, name, *arguments, **options):
        return subprocess.run([self.source.programs.directory / name, *map(str, arguments)], check=False, stdout=subprocess.PIPE, cwd="/",
                              stderr=subprocess.PIPE, env=self.source.programs.environment(), timeout=300, **options)

    def note_state(self):
        """The current state of the source is one that the copy must have."""
        state = state_of(self.source.path)
        self.expected.append((moment(), state))

    def status(self):
        result = self.tool("vreceive", "--status", self.path, **self.receiver)
        assert result.returncode == 0, result.stderr
        return result.stdout.decode().strip()

    def has(self):
        """The time up to which it has everything."""
        return self.status().split("+")[0]

    def stream(self, *options):
        result = self.tool("vsend", *options, "--since", self.status(), self.source.path)
        assert result.returncode == 0, result.stderr
        return result.stdout

    def receive(self, stream):
        return self.tool("vreceive", self.path, input=stream, **self.receiver)

    def follow(self):
        result = self.receive(self.stream())
        assert result.returncode == 0 and not result.stderr, result.stderr

    def received_by(self, uid, gid):
        """Not root: DIR belongs to the user, who gets no other groups."""
        os.chown(self.path, uid, gid)
        self.receiver = {"user": uid, "group": gid, "extra_groups": []}

    def mounted(self):
        return self.maker.mount("allow_other", source=self.path)

    @contextlib.contextmanager
    def used(self):
        """A mount of the copy, for a while."""
        mount = self.mounted()
        yield mount
        mount.stop()

    def in_source(self, when, state):
        """For the message of a failure: a difference that the source shows as well is none of the copy's."""
        if not self.source.process or self.source.process.poll() is not None:
            return "the source is not mounted"
        return "in the source", differences(state, state_of(self.source.at(when)))

    def check(self, expected=None):
        """Mounted, it shows every moment, and it is as sound as any store."""
        expected = self.expected if expected is None else expected
        mount = self.mounted()
        for number, (when, state) in enumerate(expected):
            found = differences(state, state_of(mount.at(when)))
            assert found == [], (number, found, self.in_source(when, state))
        assert differences(expected[-1][1], state_of(mount.path)) == []
        mount.stop()
        found = self.tool("vfsck", self.path)
        assert found.returncode == 0 and found.stdout.endswith(b"clean\n"), found.stdout

    def refuses(self, stream, words):
        """Nothing of the stream is used, and the copy is as it was before."""
        before = self.has()
        result = self.receive(stream)
        assert result.returncode == 1 and words in result.stderr.decode(), (result.returncode, result.stderr)
        assert self.has() == before


class Victim:
    """Receives, and is killed before one of its system calls."""

    def __init__(self, copy, rng):
        self.copy, self.rng, self.calls, self.killed = copy, rng, 0, 0

    def run(self, *arguments, stream=b"", last=None):
        """True if it ran to its end."""
        with tempfile.TemporaryFile() as spool:
            spool.write(stream)
            spool.seek(0)
            status, calls = run_to_call([self.copy.source.programs.directory / "vreceive", *arguments, self.copy.path], last,
                                        stdin=spool, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                        env=self.copy.source.programs.environment())
        if status == 0:
            self.calls = calls
        else:
            assert status == -signal.SIGKILL, status
            self.killed += 1
        return status == 0

    def receive(self, stream):
        """From time to time the receiver that is to finish it is killed, too."""
        if self.run(stream=stream, last=self.rng.randrange(1, self.calls)):
            return True
        while self.rng.randrange(2) and not self.run("--status", last=self.rng.randrange(1, self.calls // 2)):
            pass
        return False


def follower(copy):
    """Sender, receiver, how to wait until they have reached a moment, and how to end them."""
    environment = copy.source.programs.environment()
    sender = subprocess.Popen([copy.source.programs.directory / "vsend", "--follow", "--since", copy.status(), copy.source.path],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment)
    receiver = subprocess.Popen([copy.source.programs.directory / "vreceive", "--json", copy.path], stdin=sender.stdout,
                                stdout=subprocess.PIPE, bufsize=0, env=environment)
    sender.stdout.close()

    def wait_until_at(when):
        until = 0
        while until < when:
            assert select.select([receiver.stdout], [], [], LIMIT)[0], "the copy does not follow"
            until = nanoseconds(json.loads(receiver.stdout.readline())["until"])

    def end():
        """It stops when requested, and the copy has every state up to then."""
        sender.send_signal(signal.SIGTERM)
        assert sender.wait(timeout=LIMIT) == 128 + signal.SIGTERM
        receiver.stdout.read()
        assert receiver.wait(timeout=LIMIT) == 0

    return sender, receiver, wait_until_at, end
