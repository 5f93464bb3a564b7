# SPDX-License-Identifier: LGPL-2.1-or-later
"""An smbd of our own, with the share of docs/sharing.md: nothing of the system's is read or written."""
import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

from accounts import ACCOUNTS, CLUB, TEAM
from mounts import LIMIT, run

DOCS = Path(__file__).resolve().parents[2] / "docs" / "sharing.md"
MISSING = [name for name in ("smbd", "smbclient") if not shutil.which(name, path="/usr/sbin:/usr/bin")]
HOST = "127.0.0.1"

GLOBAL = """[global]
    server role = standalone server
    map to guest = Bad User
    guest account = nobody
    interfaces = {host}/8
    bind interfaces only = yes
    smb ports = {port}
    disable netbios = yes
    disable spoolss = yes
    load printers = no
    printing = bsd
    printcap name = /dev/null
    private dir = {dir}/private
    passdb backend = tdbsam:{dir}/private/passdb.tdb
    lock directory = {dir}/lock
    state directory = {dir}/state
    cache directory = {dir}/cache
    pid directory = {dir}
    ncalrpc dir = {dir}/ncalrpc
    log file = {dir}/log
"""


def free_port(host=HOST, port=0):
    """Some port, or that one; None if it is not free."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return None
        return probe.getsockname()[1]


def share_of_the_manual(path, more="    guest ok = yes\n"):
    """The share as docs/sharing.md has it, for another directory and, by default, for guests."""
    share = re.search(r"```ini\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.S).group(1)
    assert share.count("/srv/tree") == 1
    return share.replace("/srv/tree", str(path)) + more


@contextlib.contextmanager
def named_accounts(directory):
    """The accounts of accounts.py have names, for this process and its children: in its own mount namespace."""
    lines = {"passwd": [f"{name}:x:{uid}:{gid}::/:/bin/false" for name, (uid, gid, _) in ACCOUNTS.items()],
             "group": [f"{name}:x:{gid}:" for name, (_, gid, _) in ACCOUNTS.items()]}
    lines["group"] += [f"{name}:x:{number}:" + ",".join(user for user, (_, _, groups) in ACCOUNTS.items() if number in groups)
                       for name, number in (("team", TEAM), ("club", CLUB))]
    with contextlib.ExitStack() as mounted:
        for name, more in lines.items():
            place = Path("/etc") / name
            (directory / name).write_text("\n".join([place.read_text(encoding="utf-8").rstrip("\n"), *more, ""]),
                                          encoding="utf-8")
            run("mount", "--bind", directory / name, place)
            mounted.callback(run, "umount", "-l", place, check=False)
        yield


class Samba:
    """`shares`: the end of smb.conf; `users`: the names of accounts that get a password."""

    def __init__(self, directory, shares, users=(), host=HOST, port=0):  # pylint: disable=too-many-arguments
        self.directory, self.host, self.port = directory, host, free_port(host, port)
        for name in ("private", "lock", "state", "cache", "ncalrpc"):
            (directory / name).mkdir(parents=True)
        config = directory / "smb.conf"
        config.write_text(GLOBAL.format(host=host, port=self.port, dir=directory) + shares, encoding="utf-8")
        for user in users:
            run("pdbedit", f"--configfile={config}", "-a", "-u", user, "-t", stdin=None,
                input=f"{self.password(user)}\n{self.password(user)}\n")
        with open(directory / "output", "wb") as output:
            self.process = subprocess.Popen(
                ["smbd", "--foreground", "--no-process-group", "--configfile", config],
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True)
        deadline = time.monotonic() + LIMIT
        while not self.answers():
            assert self.process.poll() is None and time.monotonic() < deadline, \
                (directory / "output").read_text() + (directory / "log").read_text()
            time.sleep(0.1)

    def answers(self):
        with socket.socket() as probe:
            return probe.connect_ex((self.host, self.port)) == 0

    @staticmethod
    def password(user):
        return f"word of {user}"

    def set_acl(self, user, share, path, *entries):
        """Whether that user could replace the NT ACL. Its program knows no port but 445."""
        return run("smbcacls", "-U", f"{user}%{self.password(user)}", f"//{self.host}/{share}", path, "-S",
                   ",".join(entries), check=False, timeout=LIMIT).returncode == 0

    def client(self, commands, check=True):
        return run("smbclient", "-N", "-p", self.port, f"//{self.host}/tree", "-c", commands, check=check,
                   cwd=self.directory, timeout=LIMIT)

    def versions(self, path):
        output = self.client(f'allinfo "{path}"').stdout
        return re.findall(r"^(@GMT-\S+)", output, re.M)

    def fetch(self, version, path):
        """The bytes of a previous version, or the client's complaint."""
        target = self.directory / "fetched"
        target.unlink(missing_ok=True)
        result = self.client(f'get "{version}\\{path}" fetched', check=False)
        return target.read_bytes() if target.exists() and result.returncode == 0 else result.stdout

    def stop(self):
        os.killpg(self.process.pid, signal.SIGTERM)
        self.process.wait(timeout=LIMIT)


class Session:
    """A client of one user, which stays connected."""

    def __init__(self, samba, user, share="tree", more=()):
        self.directory = samba.directory / f"{user} at {share}"
        self.directory.mkdir(exist_ok=True)
        self.turn = 0
        self.process = subprocess.Popen(
            ["stdbuf", "-i0", "-o0", "smbclient", "-p", str(samba.port), "-U", f"{user}%{samba.password(user)}", *more,
             f"//{samba.host}/{share}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            cwd=self.directory)
        assert "NT_STATUS" not in self.do("volume")

    def do(self, command):
        """The output of one command. A command that does not exist marks its end."""
        self.turn += 1
        end = f"end{self.turn}"
        self.process.stdin.write(f"{command}\n{end}\n".encode(errors="surrogateescape"))
        self.process.stdin.flush()
        output = b""
        while f"{end}: command not found".encode() not in output:
            line = self.process.stdout.readline()
            assert line, output
            output += line
        return output.rpartition(f"{end}: command".encode())[0].decode(errors="surrogateescape")

    def status(self, command):
        """The NT status of a command that failed, or "OK"."""
        found = re.search(r"NT_STATUS_\w+", self.do(command))
        return found.group() if found else "OK"

    def get(self, path):
        """Content, or the status."""
        target = self.directory / "got"
        target.unlink(missing_ok=True)
        status = self.status(f'get "{path}" got')
        return target.read_bytes() if status == "OK" else status

    def names(self, path):
        """Sorted names, or the status."""
        output = self.do(f'ls "{path}"')
        found = re.search(r"NT_STATUS_\w+", output)
        return found.group() if found else sorted(
            re.findall(r"^  (.+?) +[A-Z]* +\d+  \w{3} \w{3} [ \d]\d \d\d:", output, re.M))

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(timeout=LIMIT)
