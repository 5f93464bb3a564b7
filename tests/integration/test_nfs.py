# SPDX-License-Identifier: LGPL-2.1-or-later
"""The mount exported by a server of NFS in user space: it works as docs/sharing.md says, and other uses fail."""
import ctypes
import ctypes.util
import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

import snapshots
from accounts import ACCOUNTS, TEAM, read_file, run_as
from mounts import LIMIT, NOBODY, SECOND, caches_kept, drop_caches, epoch, moment, run
from samba import DOCS, free_port
from treestate import state_of

MISSING = [name for name in ("ganesha.nfsd", "nfs-ls", "nfs-cat", "nfs-cp")
           if not shutil.which(name, path="/usr/sbin:/usr/bin")]
MISSING += [] if list(Path("/usr/lib").glob("*/ganesha/libfsalvfs.so")) else ["FSAL_VFS of ganesha"]

LIBRARY = ctypes.util.find_library("nfs")

pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)} "
                                "(scripts/install-deps --tests)")

CORE = """NFS_CORE_PARAM {{ Protocols = 4; NFS_Port = {port}; Bind_addr = 127.0.0.1; Enable_NLM = false;
    Enable_RQUOTA = false; Enable_UDP = false; }}
NFSv4 {{ Graceless = true; RecoveryRoot = {dir}/recovery; RecoveryBackend = fs; }}
"""


def export_of_the_manual(path, number=1, name="tree", squash="No_Root_Squash"):
    export = re.search(r"```\n(EXPORT .*?)```", DOCS.read_text(encoding="utf-8"), re.S).group(1)
    for old, new in (("/srv/tree", str(path)), ("No_Root_Squash", squash), ("Export_Id = 1;", f"Export_Id = {number};"),
                     ("Pseudo = /tree", f"Pseudo = /{name}"), ("Filesystem_Id = 1.1", f"Filesystem_Id = {number}.1")):
        assert export.count(old) == 1
        export = export.replace(old, new)
    return export


class Ganesha:
    def __init__(self, directory, *exports):
        self.directory, self.port = directory, free_port()
        (directory / "recovery").mkdir(parents=True)
        config = directory / "ganesha.conf"
        config.write_text(CORE.format(port=self.port, dir=directory) + "".join(exports), encoding="utf-8")
        with open(directory / "output", "wb") as output:
            self.process = subprocess.Popen(
                ["ganesha.nfsd", "-F", "-f", config, "-L", directory / "log", "-p", directory / "pid"],
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True)
        deadline = time.monotonic() + LIMIT
        while self.call("nfs-ls", "").returncode != 0:
            assert self.process.poll() is None and time.monotonic() < deadline, (directory / "log").read_text()
            time.sleep(0.2)

    def url(self, path, uid, gid, export):
        return f"nfs://127.0.0.1/{export}/{path}?version=4&nfsport={self.port}&uid={uid}&gid={uid if gid is None else gid}"

    def call(self, program, path, *more, uid=0, gid=None, export="tree"):  # pylint: disable=too-many-arguments
        return run(program, *more, self.url(path, uid, gid, export), check=False, timeout=LIMIT)

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
    server = Ganesha(maker.scratch / "nfs", export_of_the_manual(mount.path))
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


# ---- root squashed, and two users: the same on a mount and on the bare file system -----------------------------

ANNA, EVE = ACCOUNTS["anna"][0], ACCOUNTS["eve"][0]
USERS = {"root": (0, 0), "anna": (ANNA, ANNA), "eve": (EVE, EVE), "eve of the team": (EVE, TEAM)}


@pytest.fixture(name="squashed")
def fixture_squashed(maker):
    """A mount and a bare directory, both with root_squash."""
    mount = maker.mount("allow_other")
    bare = maker.tree()
    server = Ganesha(maker.scratch / "nfs", export_of_the_manual(mount.path, squash="Root_Squash"),
                     export_of_the_manual(bare, 2, "bare", "Root_Squash"))
    yield mount, bare, server
    server.stop()


def plant(root):
    for name, uid, gid, mode in (("root", 0, 0, 0o755), ("root closed", 0, 0, 0o700), ("anna", ANNA, ANNA, 0o755),
                                 ("anna closed", ANNA, ANNA, 0o700), ("team", ANNA, TEAM, 0o770), ("shared", 0, 0, 0o777)):
        (root / name).mkdir()
        for other, more in (("open", 0o644), ("private", 0o600), ("of the group", 0o640)):
            (root / name / other).write_text(f"then {name} {other}")
            os.chown(root / name / other, uid, gid)
            (root / name / other).chmod(more)
        os.chown(root / name, uid, gid)
        (root / name).chmod(mode)


def files(root):
    return sorted(str(path.relative_to(root)) for path in root.glob("*/*"))


def answer(server, path, user, export="tree"):
    """The content, or None."""
    uid, gid = USERS[user]
    result = server.call("nfs-cat", path, uid=uid, gid=gid, export=export)
    assert result.returncode == 0 or re.search(r"NFS4ERR_(ACCES|PERM|NOENT)", result.stdout), result.stdout
    return result.stdout if result.returncode == 0 else None


@caches_kept()
def test_each_user_reads_what_they_may_and_root_is_nobody(squashed):
    """What was private then is so in the past, by each way; also for root, whom the server takes for nobody."""
    mount, bare, server = squashed
    for root in (mount.path, bare):
        plant(root)
    when = snapshots.add(mount, "s")
    at = f"@{epoch(when)}"
    expected = {(path, user): answer(server, path, user, "bare") for path in files(bare) for user in USERS}
    for path in files(mount.path):
        (mount.path / path).write_text(f"now {path}")
    for (path, user), then in expected.items():
        place, name = path.split("/")
        found = answer(server, path, user)
        assert found == (then and f"now {path}"), (path, user, found)
        for way in (f"{path}{at}", f"{place}{at}/{name}", f"{at}/{path}", f".snapshot/s/{path}", f"{place}/.snapshot/s/{name}"):
            found = answer(server, way, user)
            assert found == then, (way, user, found, then)
    private = [path for path in files(bare) if path.endswith("private")]
    assert all(expected[path, "root"] is None and expected[path, "eve"] is None for path in private if "shared" not in path)
    assert expected["root/open", "root"] and expected["anna closed/private", "anna"] and expected["team/of the group", "eve of the team"]


class Client:
    """Requests that the programs of libnfs do not make, by its library: each returns 0 or -errno."""

    def __init__(self, url):
        self.lib = ctypes.CDLL(LIBRARY)
        for name in ("nfs_init_context", "nfs_parse_url_dir"):
            getattr(self.lib, name).restype = ctypes.c_void_p
        self.context = ctypes.c_void_p(self.lib.nfs_init_context())
        self.lib.nfs_set_timeout(self.context, LIMIT * 1000)
        self.lib.nfs4_set_client_name(self.context, url.encode())  # else the server takes two for one that began anew
        parsed = ctypes.cast(self.lib.nfs_parse_url_dir(self.context, url.encode()), ctypes.POINTER(ctypes.c_char_p))
        assert self.call("mount", parsed[0].decode(), parsed[1].decode()) == 0

    def call(self, name, *arguments):
        result = getattr(self.lib, f"nfs_{name}")(self.context, *[
            argument.encode() if isinstance(argument, str) else argument for argument in arguments])
        return min(result, 0)

    def write(self, path):
        handle = ctypes.c_void_p()
        result = self.call("open", path, os.O_WRONLY, ctypes.byref(handle))
        return result or self.call("close", handle) or self.call("truncate", path, ctypes.c_uint64(3))

    def close(self):
        self.lib.nfs_destroy_context(self.context)


CHANGES = {"write": lambda client, path, own: client.write(path),
           "chmod": lambda client, path, own: client.call("chmod", path, 0o666),
           "chown": lambda client, path, own: client.call("chown", path, own, own),
           "times": lambda client, path, own: client.call("utimes", path, (ctypes.c_long * 4)(1, 0, 1, 0)),
           "link": lambda client, path, own: client.call("link", path, f"/shared/link {own}"),
           "rename": lambda client, path, own: client.call("rename", path, f"{path}-2"),
           "rename away": lambda client, path, own: client.call("rename", path, f"/shared/got {own}"),
           "rename over it": lambda client, path, own: client.call("rename", "/shared/open", path),
           "make": lambda client, path, own: client.call("mkdir", f"{path}-{own}"),
           "symlink": lambda client, path, own: client.call("symlink", "target", f"{path}-link {own}"),
           "remove": lambda client, path, own: client.call("unlink", path),
           "remove the directory": lambda client, path, own: client.call("rmdir", os.path.dirname(path))}


def changed(root):
    """All that is there, without times."""
    found = {}
    for path in sorted(root.rglob("*")):
        st = path.lstat()
        found[str(path.relative_to(root))] = (st.st_mode, st.st_uid, st.st_gid, st.st_nlink if path.is_file() else 0,
                                              st.st_mtime == 1, path.read_bytes() if path.is_file() else None)
    return found


@pytest.mark.skipif(not LIBRARY, reason="not installed: the library of libnfs")
@caches_kept()
@pytest.mark.parametrize("user", ["root", "anna", "eve", "eve of the team"])
def test_each_user_changes_what_they_may_and_never_the_past(squashed, user):
    mount, bare, server = squashed
    for root in (mount.path, bare):
        plant(root)
    at = f"@{epoch(moment())}"
    then = state_of(mount.path / at)
    uid, gid = USERS[user]
    clients = [Client(server.url("", uid, gid, export)) for export in ("bare", "tree")]
    done = 0
    for name, change in CHANGES.items():
        for path in files(bare):
            results = [change(client, f"/{path}", uid) for client in clients]
            states = [changed(root) for root in (bare, mount.path)]
            assert results[0] == results[1] and states[0] == states[1], (name, path, results, [
                (key, state.get(key)) for key in {**states[0], **states[1]} for state in states
                if states[0].get(key) != states[1].get(key)])
            done += results[0] == 0
    for name, change in CHANGES.items():
        for path in files(mount.path / at):
            for way in (f"/{at}/{path}", f"/{os.path.dirname(path)}{at}/{os.path.basename(path)}"):
                assert change(clients[1], way, uid) < 0, (name, way)
                assert changed(mount.path) == states[1], (name, way)
    for client in clients:
        client.close()
    assert done > 0 and state_of(mount.path / at) == then
    # The server makes links, and changes attributes and sizes, as root, so that is what the history says of these.
    records = map(json.loads, mount.tool("vlog", "--json", mount.path).stdout.splitlines())
    for record in [record for record in records if "ganesha" in record["command"]]:
        is_roots = record["op"] in ("link", "chmod", "chown", "truncate", "utimens")
        assert record["uid"] in ((0,) if is_roots else (uid,) if uid else (NOBODY[0], 2**32 - 2)), record


@caches_kept()
def test_new_files_and_their_content_are_of_the_user_who_writes(squashed, maker):
    mount, bare, server = squashed
    for root in (mount.path, bare):
        plant(root)
    source = maker.scratch / "new"
    source.write_text("new")
    for user, (uid, gid) in USERS.items():
        for export, root in (("tree", mount.path), ("bare", bare)):
            name = f"shared/new of {user}"
            assert server.call("nfs-cp", name, source, uid=uid, gid=gid, export=export).returncode == 0
            for place in ("root", "root closed", "anna closed") if "eve" in user or user == "root" else ("root closed",):
                refused = server.call("nfs-cp", f"{place}/new", source, uid=uid, gid=gid, export=export)
                assert "NFS4ERR_ACCES" in refused.stdout, (user, place, refused.stdout)
            assert (root / name).stat().st_uid in ((uid,) if uid else (NOBODY[0], 2**32 - 2))
        found = json.loads(mount.tool("vstat", "--json", "--operations", mount.path / "shared" / f"new of {user}").stdout)
        who = {version["op"]: version["uid"] for version in found["versions"]}
        assert who["create"] == who["write"] == (mount.path / "shared" / f"new of {user}").stat().st_uid, who


@caches_kept()
def test_what_was_closed_since_is_open_to_those_who_could_read_it(squashed):
    """As docs/sharing.md warns: the server opens files as root, and compares the modes of then. A login on the server is
    refused, and so is the path in the present."""
    mount, _, server = squashed
    plant(mount.path)
    at = f"@{epoch(moment())}"
    (mount.path / "anna" / "open").chmod(0o600)
    (mount.path / "anna" / "open").write_text("now")
    for user in ("root", "eve"):
        assert answer(server, "anna/open", user) is None
        assert answer(server, f"{at}/anna/open", user) == "then anna open"
        assert answer(server, f"{at}/anna/private", user) is None
    with pytest.raises(PermissionError):
        run_as("eve", lambda: read_file(mount.path / at / "anna" / "open"))
