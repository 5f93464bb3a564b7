# SPDX-License-Identifier: LGPL-2.1-or-later
"""`wayback web` as a process, and its interface without a browser."""
import base64
import contextlib
import http.client
import json
import os
import signal
import subprocess
import time
import urllib.parse

from mounts import LIMIT


def heed_signals():
    """In the child: signals that are ignored around the tests are ignored in it, too, otherwise."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


class Web:
    """A server that has printed its address."""

    def __init__(self, mount, *arguments, user=None, path=None, warning=""):
        self.warning = warning
        self.command = mount._as(user) + [str(mount.programs.directory / "wayback"), "web", "--json", *arguments,
                                          str(path or mount.path)]
        self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, cwd="/",
                                        stderr=subprocess.PIPE, env=mount.programs.environment(), preexec_fn=heed_signals)
        line = self.process.stdout.readline()
        assert line, self.process.stderr.read()
        self.document = json.loads(line)
        self.port, self.token = self.document["port"], self.document["token"]
        self.host = f"127.0.0.1:{self.port}"

    def raw(self, method, url, headers=(), body=None, address="127.0.0.1"):
        """(status, headers, bytes)"""
        connection = http.client.HTTPConnection(address, self.port, timeout=LIMIT)
        with contextlib.closing(connection):
            connection.request(method, url, body=body, headers=dict(headers))
            reply = connection.getresponse()
            return reply.status, reply.headers, reply.read()

    def get(self, function, status=200, **arguments):
        query = urllib.parse.urlencode({key: value.encode() if isinstance(value, str) else value
                                        for key, value in arguments.items()}, quote_via=urllib.parse.quote)
        deadline = time.monotonic() + LIMIT
        while True:
            found, _, content = self.raw("GET", f"/api/v1/{function}?{query}", {"X-Wayback-Token": self.token})
            if found != 503 or time.monotonic() > deadline:
                break
            time.sleep(0.05)
        assert found == status, content
        document = json.loads(content)
        assert document["schema"] == 1 and ("error" in document) == (status != 200)
        return document

    def headers(self, **changes):
        headers = {"X-Wayback-Token": self.token, "Origin": f"http://{self.host}", "Content-Type": "application/json"}
        headers.update({key.replace("_", "-"): value for key, value in changes.items()})
        return {key: value for key, value in headers.items() if value is not None}

    def post(self, function, status=200, headers=None, **members):
        found, _, content = self.raw("POST", f"/api/v1/{function}", self.headers() if headers is None else headers,
                                     json.dumps(members))
        assert found == status, content
        return json.loads(content)

    def entries(self, path="", **arguments):
        return {name_of(entry): entry for entry in self.get("list", path=path, **arguments)["entries"]}

    def versions(self, path, **arguments):
        return self.get("versions", path=path, **arguments)["versions"]

    def end(self, number=signal.SIGINT):
        """(exit status, standard error)"""
        if self.process.poll() is None:
            self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=LIMIT)
        return self.process.returncode, errors.decode()

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        status, errors = self.end()
        assert kind or status == 130 and (self.warning in errors if self.warning else errors == "")


def name_of(entry):
    return base64.b64decode(entry["name_bytes"]) if "name_bytes" in entry else os.fsencode(entry["name"])
