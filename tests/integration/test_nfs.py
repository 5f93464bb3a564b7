# SPDX-License-Identifier: LGPL-2.1-or-later
"""The mount exported by a server of NFS in user space: it works as docs/sharing.md says, and other uses fail."""
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

import snapshots
from mounts import LIMIT, SECOND, caches_kept, drop_caches, epoch, moment, run
from samba import DOCS, free_port

MISSING = [name for name in ("ganesha.nfsd", "nfs-ls", "nfs-cat", "nfs-cp")
           if not shutil.which(name, path="/usr/sbin:/usr/bin")]
MISSING += [] if list(Path("/usr/lib").glob("*/ganesha/libfsalvfs.so")) else ["FSAL_VFS of ganesha"]

pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)} "
                                "(scripts/install-deps --tests)")

CORE = """NFS_CORE_PARAM {{ Protocols = 4; NFS_Port = {port}; Bind_addr = 127.0.0.1; Enable_NLM = false;
    Enable_RQUOTA = false; Enable_UDP = false; }}
NFSv4 {{ Graceless = true; RecoveryRoot = {dir}/recovery; RecoveryBackend = fs; }}
"""


def export_of_the_manual(path):
    export = re.search(r"```\n(EXPORT .*?)```", DOCS.read_text(encoding="utf-8"), re.S).group(1)
    assert export.count("/srv/tree") == 1
    return export.replace("/srv/tree", str(path))


class Ganesha:
    def __init__(self, directory, path):
        self.directory, self.port = directory, free_port()
        (directory / "recovery").mkdir(parents=True)
        config = directory / "ganesha.conf"
        config.write_text(CORE.format(port=self.port, dir=directory) + export_of_the_manual(path),
                          encoding="utf-8")
        with open(directory / "output", "wb") as output:
            self.process = subprocess.Popen(
                ["ganesha.nfsd", "-F", "-f", config, "-L", directory / "log", "-p", directory / "pid"],
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True)
        deadline = time.monotonic() + LIMIT
        while self.call("nfs-ls", "").returncode != 0:
            assert self.process.poll() is None and time.monotonic() < deadline, (directory / "log").read_text()
            time.sleep(0.2)

    def url(self, path, uid):
        return f"nfs://127.0.0.1/tree/{path}?version=4&nfsport={self.port}&uid={uid}&gid={uid}"

    def call(self, program, path, *more, uid=0):
        return run(program, *more, self.url(path, uid), check=False, timeout=LIMIT)

    def names(self, path):
        result = self.call("nfs-ls", path)
        assert result.returncode == 0, result.stdout
        return sorted(line.split()[-1] for line in result.stdout.splitlines())

    def stop(self):
        os.killpg(self.process.pid, signal.SIGTERM)
        try:
            self.process.wait(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


@pytest.fixture(name="export")
def fixture_export(maker):
    mount = maker.mount("allow_other")
    server = Ganesha(maker.scratch / "nfs", mount.path)
    yield mount, server
    server.stop()


@caches_kept()  # else the server may get ESTALE for its handles
def look_and_write(mount, server, source):
    """{path: content} that the client saw."""
    root = mount.path
    (root / "d").mkdir()
    for i in range(50):
        (root / "d" / str(i)).write_text(f"{i} then\n")
    when = snapshots.add(mount, "first")
    for i in range(50):
        (root / "d" / str(i)).write_text(f"{i} now\n")
    assert server.names("") == ["d"] and len(server.names("d")) == 50
    assert server.names("d/.snapshot") == ["first"]
    assert len(server.names("d/.snapshot/first")) == 50
    places = {"d/7": "7 now\n", "d/.snapshot/first/7": "7 then\n", f"d/7@{epoch(when)}": "7 then\n",
              ".snapshot/first/d/8": "8 then\n"}
    for path, content in places.items():
        assert server.call("nfs-cat", path).stdout == content
    # Writes of a client are recorded, and writes to the past are refused.
    source.write_text("from afar\n")
    before = moment()
    assert server.call("nfs-cp", "d/new", source).returncode == 0
    assert (root / "d" / "new").read_text() == "from afar\n" and not (mount.at(before) / "d" / "new").exists()
    assert "create" in mount.tool("vstat", root / "d" / "new").stdout
    refused = server.call("nfs-cp", "d/.snapshot/first/new", source)
    assert refused.returncode != 0 and "ROFS" in refused.stdout
    return {**places, "d/new": "from afar\n"}


def test_an_export_shows_present_and_past_and_is_never_wrong(export, maker):
    mount, server = export
    root = mount.path
    places = look_and_write(mount, server, maker.scratch / "new")
    # The kernel forgets; other files get the numbers of the nodes.
    for turn in range(3):
        drop_caches(3)
        for i in range(20 * turn, 50):
            os.stat(root / "d" / str(i))
            os.stat(root / ".snapshot" / "first" / "d" / str(i))
        for path, content in places.items():
            result = server.call("nfs-cat", path)
            if result.returncode == 0:
                assert result.stdout == content, path
            else:
                assert "NFS4ERR_STALE" in result.stdout or "NFS4ERR_NOENT" in result.stdout


@caches_kept()
def test_a_second_user_sees_what_the_modes_permit(export):
    """In the past by the modes of then: the server works as root and compares the modes that it is shown."""
    mount, server = export
    root = mount.path
    for name in ("open", "closed"):
        (root / name).write_text("then\n")
    for name in ("closed-then", "closed-now"):
        (root / name).mkdir()
        (root / name / "f").write_text("then\n")
    (root / "closed-then").chmod(0o700)
    (root / "private").write_text("then\n")
    (root / "private").chmod(0o600)
    when = snapshots.add(mount, "s")
    at = f"@{epoch(when)}"
    (root / "open").write_text("now\n")
    (root / "private").chmod(0o644)
    (root / "closed").chmod(0o600)
    (root / "closed-then").chmod(0o755)
    (root / "closed-now").chmod(0o700)
    places = {"open": "now\n", f"open{at}": "then\n", f"{at}/open": "then\n", ".snapshot/s/open": "then\n"}
    for path, content in places.items():
        assert server.call("nfs-cat", path, uid=SECOND[0]).stdout == content, path
    hidden = ["closed", "closed-now/f", f"closed-now/f{at}", f"private{at}", f"{at}/private", ".snapshot/s/private",
              f"closed-then{at}/f", f"{at}/closed-then/f", ".snapshot/s/closed-then/f"]
    for path in hidden:
        result = server.call("nfs-cat", path, uid=SECOND[0])
        assert result.returncode != 0 and "NFS4ERR_ACCES" in result.stdout, (path, result.stdout)
        assert server.call("nfs-cat", path).stdout == "then\n", path


@caches_kept()
def test_a_second_user_reaches_neither_the_store_nor_what_is_closed(export, maker):
    """By names that a client may send, whatever it has looked up before; writes as well. (What the server has read before
    is shown for as long as it keeps modes, on any file system.)"""
    mount, server = export
    root = mount.path
    for name in ("d", "shared"):
        (root / name).mkdir()
    (root / "shared").chmod(0o777)
    (root / "d" / "f").write_text("then")
    (root / "d" / "secret").write_text("then")
    (root / "d" / "secret").chmod(0o600)
    at = f"@{epoch(moment())}"
    (root / "d" / "f").write_text("now")
    assert server.call("nfs-cat", "d/f", uid=SECOND[0]).stdout == "now"
    assert server.call("nfs-cat", f"d{at}/f", uid=SECOND[0]).stdout == "then"
    (root / "d").chmod(0o700)
    source = maker.scratch / "new"
    source.write_text("new")
    for path in (".wayback/header", "shared/../.wayback/header", f"{at}/.wayback/header", f"d{at}/secret",
                 f"{at}/d/secret", f"d/secret{at}", f"shared{at}/../d/secret"):
        result = server.call("nfs-cat", path, uid=SECOND[0])
        assert result.returncode != 0 and "then" not in result.stdout, (path, result.stdout)
    for path in (".wayback", f"{at}/.wayback", "shared/../.wayback"):
        assert server.call("nfs-ls", path, uid=SECOND[0]).returncode != 0, path
    for path in ("d/new", f"shared{at}/new", f"{at}/shared/new", ".wayback", ".wayback/new"):
        assert server.call("nfs-cp", path, source, uid=SECOND[0]).returncode != 0, path
    assert sorted(os.listdir(root)) == ["d", "shared"] and os.listdir(root / "shared") == []
