# SPDX-License-Identifier: LGPL-2.1-or-later
"""Users with accounts and passwords on a share of Samba: of the past they get what a login on the server gives them, and
in the present they can do what they can on a share of the bare file system."""
import itertools
import json
import os
import random
import shutil
import time

import pytest

import snapshots
from accounts import ACCOUNTS, ACL, TEAM, acl, read_file, run_as
from mounts import QUICK, epoch
from samba import MISSING, Samba, Session, free_port, named_accounts, share_of_the_manual
from test_as_bare import build, state

pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)} "
                                "(scripts/install-deps --tests)")

ANNA, BEN, EVE = (ACCOUNTS[name][0] for name in ("anna", "ben", "eve"))


class Shares:
    """A mount, a bare directory, an smbd for both, and a client for each user and share."""

    def __init__(self, maker, more="", modules="", **address):
        more = "    ea support = yes\n" + more
        self.mount = maker.mount("allow_other", "snapnames=gmt")
        self.bare = maker.tree()
        bare = share_of_the_manual(self.bare, more).replace("[tree]", "[bare]")
        shares = share_of_the_manual(self.mount.path, more) + bare
        self.samba = Samba(maker.scratch / "samba", shares.replace("shadow_copy2", f"shadow_copy2 {modules}"), ACCOUNTS,
                           **address)
        self.sessions = {}

    def session(self, user, share="tree"):
        if (user, share) not in self.sessions:
            self.sessions[user, share] = Session(self.samba, user, share)
        return self.sessions[user, share]

    def close(self):
        for session in self.sessions.values():
            session.close()
        self.samba.stop()


@pytest.fixture(name="shares")
def fixture_shares(maker):
    with named_accounts(maker.scratch):
        shares = Shares(maker)
        yield shares
        shares.close()


# ---- the past ------------------------------------------------------------------------------------

def write(path, text, mode=0o644, owner=ANNA):
    path.write_text(text)
    os.chown(path, owner, owner)
    path.chmod(mode)


def directory(path, mode, owner=ANNA):
    path.mkdir()
    os.chown(path, owner, owner)
    path.chmod(mode)


EVERYBODY = {"anna", "ben", "eve"}
# {a path then: those who could read it then and may now}
READERS = {"home/open": EVERYBODY, "home/private": {"anna"}, "home/by acl": {"anna", "ben"}, "home/team": {"anna", "ben"},
           "home/given away": {"ben"}, "home/moved": {"anna"}, "home/moved and gone": {"anna"}, "home/linked": {"anna"},
           "home/both": EVERYBODY, "home/gone": EVERYBODY, "home/private and gone": {"anna"}, "home/replaced": EVERYBODY,
           "home/closed now/f": {"anna"}, "home/closed then/f": {"anna"}, "home/closed/f": {"anna"},
           "home/closed now/deep/f": {"anna"}, "home/removed/f": EVERYBODY, "home/removed when closed/f": {"anna"}}
PLACES = sorted({os.path.dirname(path) for path in READERS})
LONG = "l" * 200 + "\u00e4" * 27  # 254 bytes
ODD = ["with  blanks ", "a@b", "f@14:03x", "\u00e4\u00df\u6f22", LONG, "~1", "semi;colon", "100%$HOME", "-f"]


def plant(root):
    home = root / "home"
    directory(home, 0o755)
    for name in ("closed", "closed then"):
        directory(home / name, 0o700)
    for name in ("closed now", "closed now/deep", "removed", "removed when closed"):
        directory(home / name, 0o755)
    for path in READERS:
        write(root / path, f"then {path}")
    os.chown(home / "team", ANNA, TEAM)
    (home / "team").chmod(0o640)
    for name in ("linked", "both"):
        os.link(home / name, home / "closed" / name)


def shut(root):
    """Everything becomes private in a way of its own, or goes."""
    home = root / "home"
    os.setxattr(home / "by acl", ACL, acl(6, 4, 4, users={EVE: 0}))
    os.chown(home / "given away", BEN, BEN)
    (home / "given away").chmod(0o600)
    for name in ("private", "private and gone"):
        (home / name).chmod(0o600)
    for name in ("moved", "moved and gone"):
        os.rename(home / name, home / "closed" / name)
    write(home / "new", "now")
    os.rename(home / "new", home / "replaced")
    (home / "removed when closed").chmod(0o700)
    for path in ("closed/moved and gone", "linked", "gone", "private and gone", "removed/f", "removed when closed/f"):
        (home / path).unlink()
    for name in ("removed", "removed when closed"):
        (home / name).rmdir()
    (home / "closed now").chmod(0o700)
    (home / "closed then").chmod(0o755)


def ways(path, when):
    """All names of a path as it was then, below the root of the mount: by a moment, and by a snapshot."""
    at, place, last = f"@{epoch(when)}", os.path.dirname(path) or ".", os.path.basename(path)
    return [f"{path}{at}", f"{place}{at}/{last}", f"{at}/{path}", f"{place}/{at}/{last}", f"{place}/.snapshot/named/{last}",
            f".snapshot/named/{path}", f".snapshot/{epoch(when)}/{path}", f"{at}/{place}/./{last}", f"{path}~~1", f"{path}@named"]


def previous(when):
    return time.strftime("@GMT-%Y.%m.%d-%H.%M.%S", time.gmtime(when // 10**9))


def logged_in(account, look, path):
    """What an account gets on the server itself; None: it is refused."""
    def attempt():
        try:
            return look(path)
        except OSError:
            return None
    return run_as(account, attempt)


def smb(path):
    return path.replace("/", "\\")


def test_accounts_read_of_the_past_what_a_login_reads(shares):
    """Also if their session read all of it before it was closed, and the kernel and smbd remember it."""
    root = shares.mount.path
    plant(root)
    when = snapshots.add(shares.mount, "named")
    before = previous(when)
    for account in ACCOUNTS:
        session = shares.session(account)
        for path in READERS:
            found = [session.get(smb(way)) for way in (path, f"@{epoch(when)}/{path}", f"{before}/{path}")]
            login = logged_in(account, read_file, root / path)
            assert found == [login] * 3 if login else all(isinstance(text, str) for text in found), (account, path, found)
    shut(root)
    for path, account in itertools.product(READERS, ACCOUNTS):
        session = shares.session(account)
        for way in ways(path, when):
            found, login = session.get(smb(way)), logged_in(account, read_file, root / way)
            assert found == login or login is None and found.startswith("NT_STATUS_"), (account, way, found, login)
            assert login is None or account in READERS[path], (account, way, login)
        found = [session.get(smb(f"{at}/{path}")) for at in (f"@{epoch(when)}", ".snapshot/named", before)]
        assert found[0] == found[1] == (f"then {path}".encode() if account in READERS[path] else "NT_STATUS_ACCESS_DENIED")
        # smbd looks for a directory in the present first.
        assert found[2] == found[1] or "removed" in path and found[2] == "NT_STATUS_OBJECT_PATH_NOT_FOUND", found


def test_accounts_list_of_the_past_what_a_login_lists(shares):
    root = shares.mount.path
    plant(root)
    when = snapshots.add(shares.mount, "named")
    shut(root)
    refused = 0
    for path, account in itertools.product(PLACES, ACCOUNTS):
        session = shares.session(account)
        for way in ways(path, when)[2:7]:
            found, login = session.names(f"{smb(way)}\\*"), logged_in(account, os.listdir, root / way)
            assert login is None and isinstance(found, str) or \
                sorted(set(found) - {".", ".."}) == sorted(login), (account, way, found, login)
            assert login is None or account == "anna" or path in ("home", "home/removed"), (account, way)
            refused += login is None
        # Nor does a file of a closed directory have versions, a size or times.
        for way in ways(f"{path}/f", when):
            login = logged_in(account, os.lstat, root / way)
            output = session.do(f'allinfo "{smb(way)}"')
            assert output.startswith("altname: ") if login is not None else "NT_STATUS_" in output, (account, way, output)
            assert login is not None or "@GMT" not in output, (account, way, output)
    assert refused > 0


def test_nobody_changes_the_past_or_restores_files_of_others(shares):
    root = shares.mount.path
    directory(root / "home", 0o755)
    directory(root / "shared", 0o777)
    for name in ("open", "private", "other"):
        write(root / "home" / name, "then")
    write(root / "shared" / "theirs", "then")
    when = snapshots.add(shares.mount, "named")
    before, at = previous(when), f"@{epoch(when)}"
    for path in ("home/open", "home/private", "home/other", "shared/theirs"):
        (root / path).write_text("now")
    (root / "home" / "private").chmod(0o600)
    kept = state(root)
    shown = state(root / at)
    for account in ("ben", "eve"):
        session = shares.session(account)
        (session.directory / "new").write_text("new")
        for way in (f"{before}\\home\\open", f"home\\open{at}", f"{at}\\home\\open", ".snapshot\\named\\home\\open",
                    f"{at}\\shared\\theirs", f"shared\\theirs{at}", f"shared\\{at}\\theirs", f"{before}\\shared\\theirs"):
            for command in ('put new "{}"', 'del "{}"', 'rename "{}" shared\\got', 'rename shared\\theirs "{}" -f',
                            'hardlink "{}" shared\\got', 'setmode "{}" +h', 'setea "{}" x y', 'put new "{}:stream"',
                            'mkdir "{}"', 'scopy shared\\theirs "{}"', 'utimes "{}" -1 -1 "2020:01:02-03:04:05" -1',
                            'put new "{}x"', 'mkdir "{}x\\y"'):
                if command == 'put new "{}x"' and way == f"shared\\theirs{at}":
                    continue  # what follows the @ is no time: a new name in a directory that is open to all
                session.do(command.format(way))
                assert state(root) == kept, (account, command, way)
        # A client restores a previous version by a copy on the server.
        for source in (f"{before}\\home", f"{at}\\home", f"home{at}", ".snapshot\\named\\home"):
            for name, target in (("private", "shared\\got"), ("open", "home\\open"), ("open", "home\\private"),
                                 ("private", "home\\private"), ("other", "home\\other"), ("open", "home\\got")):
                assert session.status(f'scopy "{source}\\{name}" {target}') != "OK"
                session.do(f'get "{source}\\{name}" got')
                session.do(f'put got {target}' if target.startswith("home") else "volume")
                (session.directory / "got").unlink(missing_ok=True)
                assert state(root) == kept, (account, source, name, target)
    assert state(root / at) == shown
    assert shares.session("eve").status(f'scopy "{before}\\home\\open" shared\\got') == "OK"
    assert (root / "shared" / "got").read_text() == "then" and (root / "shared" / "got").stat().st_uid == EVE
    for name in ("open", "private"):
        assert shares.session("anna").status(f'get "{before}\\home\\{name}" got') == "OK"
        assert shares.session("anna").status(f'put got home\\{name}') == "OK"
        assert (root / "home" / name).read_text() == "then"
    assert (root / "home" / "private").stat().st_mode & 0o777 == 0o600
    # Each change counts for the account that made it.
    newest = json.loads(shares.mount.tool("vstat", "--json", root / "home" / "open").stdout)["versions"][0]
    assert newest["op"] == "write" and newest["uid"] == ANNA and newest["command"].startswith("smbd ")


def test_names_of_every_kind_lead_nowhere_else(shares):
    """Long and odd ones, in the past as well; of the store and `.snapshot` in other cases, as SMB ignores these; and up."""
    root = shares.mount.path
    directory(root / "home", 0o755)
    directory(root / "home" / "closed", 0o700)
    for name in ODD:
        write(root / "home" / name, f"then {name}")
        write(root / "home" / "closed" / name, f"then {name}")
    when = snapshots.add(shares.mount, "named")
    for name in ODD:
        (root / "home" / name).chmod(0o600)
        (root / "home" / "closed" / name).chmod(0o600)
    (root / "home" / "closed").chmod(0o755)
    for account, name in itertools.product(ACCOUNTS, ODD):
        session = shares.session(account)
        for place in ("home", "home/closed"):
            for way in ways(f"{place}/{name}", when) + [f"{place}/{name}", f"{previous(when)}/{place}/{name}"]:
                found, login = session.get(smb(way)), logged_in(account, read_file, root / way)
                if ":" in name:  # the part after it is the name of a stream
                    login = None
                assert found == login or login is None and found.startswith("NT_STATUS_"), (account, way, found, login)
                assert login is None or account == "anna", (account, way)
    at = f"@{epoch(when)}"
    for account in ACCOUNTS:
        session = shares.session(account)
        (session.directory / "new").write_text("new")
        for path in (".wayback", ".WAYBACK", ".Wayback\\header", f"{at}\\.wayback", ".snapshot\\named\\.wayback\\header",
                     "home\\..\\.wayback", "..\\..\\etc\\passwd", f"home{at}\\..\\..\\etc\\passwd",
                     f"{at}\\..\\..\\etc\\passwd", ".wayback:stream", "home\\:.wayback:$DATA", f"{previous(when)}\\.wayback"):
            assert session.get(path).startswith("NT_STATUS_"), path
            assert session.status(f'put new "{path}"') != "OK", path
            assert session.status(f'ls "{path}\\*"') != "OK", path
            assert session.status(f'mkdir "{path}"') != "OK", path
        for path in (".SNAPSHOT", ".Snapshot\\named", "HOME\\.SNAPSHOT\\named\\closed", f"HOME{at}\\CLOSED\\{ODD[1]}"):
            login = logged_in(account, read_file, root / path.lower().replace("\\", "/"))
            found = session.get(path)
            assert found == login or found.startswith("NT_STATUS_"), path
    assert sorted(os.listdir(root)) == ["home"]


# ---- ACLs of Windows ------------------------------------------------------------------------------

ADDRESS = {"host": f"127.77.{os.getpid() % 251}.{os.getpid() // 251 % 251 + 1}", "port": 445}  # one for each worker


def full(uid):
    return f"ACL:S-1-22-1-{uid}:ALLOWED/0x0/FULL"


@pytest.fixture(name="acls", params=["posix", "nt alone"])
def fixture_acls(maker, request):
    """With ACLs kept in attributes; "nt alone": smbd makes files open to all, and compares these ACLs itself."""
    if not shutil.which("smbcacls") or not free_port(**ADDRESS):
        pytest.skip("no smbcacls, or port 445 is taken")
    alone = request.param == "nt alone"
    with named_accounts(maker.scratch):
        shares = Shares(maker, "    acl_xattr:ignore system acls = yes\n" if alone else "", "acl_xattr", **ADDRESS)
        yield shares, alone
        shares.close()


def test_files_that_an_acl_of_windows_closed(acls):
    """As docs/sharing.md says: with `ignore system acls`, smbd compares ACLs itself, of the past those of then."""
    shares, alone = acls
    for share, root in (("tree", shares.mount.path), ("bare", shares.bare)):
        directory(root / "d", 0o777)
        anna = shares.session("anna", share)
        (anna.directory / "new").write_text("then")
        for name in ("f", "closed then"):
            assert anna.status(f'put new "d\\{name}"') == "OK"
        assert shares.samba.set_acl("anna", share, "d\\closed then", full(ANNA))
    when = snapshots.add(shares.mount, "named")
    for share in ("tree", "bare"):
        assert not shares.samba.set_acl("eve", share, "d\\f", full(EVE))
        assert not shares.samba.set_acl("eve", share, "d\\closed then", full(EVE))
        assert shares.samba.set_acl("anna", share, "d\\f", full(ANNA))
        assert not shares.samba.set_acl("eve", share, "d\\f", full(EVE))
        for name in ("f", "closed then"):
            assert shares.session("eve", share).get(f"d\\{name}") == "NT_STATUS_ACCESS_DENIED"
            assert shares.session("anna", share).get(f"d\\{name}") == b"then"
    assert shape(shares.mount.path) == shape(shares.bare)
    for user, way in itertools.product(("anna", "eve"), ways("d/f", when)[:7] + [f"{previous(when)}/d/f"]):
        found = shares.session(user).get(smb(way))
        assert found == (b"then" if user == "anna" or alone else "NT_STATUS_ACCESS_DENIED"), (user, way)
        assert not shares.samba.set_acl(user, "tree", smb(way), full(EVE)), (user, way)
    for user, way in itertools.product(("anna", "eve"), ways("d/closed then", when)[:7] + [f"{previous(when)}/d/closed then"]):
        found = shares.session(user).get(smb(way))
        assert found == (b"then" if user == "anna" else "NT_STATUS_ACCESS_DENIED"), (user, way)
    assert shape(shares.mount.path) == shape(shares.bare)


# ---- the present ---------------------------------------------------------------------------------

ON_FILES = ['get "{p}" got', 'put new "{p}"', 'del "{p}"', 'rename "{p}" "{p}-2"', 'rename "{p}" "{own}\\moved"',
            'rename "{own}\\own" "{p}" -f', 'rename "{p}" "{own}\\own" -f', 'hardlink "{p}" "{own}\\linked"',
            'hardlink "{p}" "{p}-2"', 'setmode "{p}" +rsh', 'setmode "{p}" -a', 'setea "{p}" x y', 'geteas "{p}"',
            'utimes "{p}" -1 -1 "2020:01:02-03:04:05" -1', 'scopy "{own}\\own" "{p}"', 'scopy "{p}" "{own}\\copied"',
            'put new "{p}:stream"', 'get "{p}:stream" got', 'del "{p}:stream"', 'mkdir "{p}\\new"', 'rmdir "{p}"',
            'allinfo "{p}"', 'reput new "{p}"']
IN_DIRECTORIES = ['ls "{p}\\*"', 'put new "{p}\\new"', 'mkdir "{p}\\new"', 'rmdir "{p}\\closed"', 'deltree "{p}\\closed"',
                  'rename "{own}\\own" "{p}\\new"', 'rename "{p}" "{own}\\moved"', 'rename "{p}\\closed" "{own}\\moved"',
                  'setmode "{p}" +h', 'setea "{p}" x y', 'hardlink "{own}\\own" "{p}\\new"', 'deltree "{p}"',
                  'put new "{p}\\new:stream"', 'put new "{p}:stream"']
KINDS = ("open", "secret", "writable", "suid", "sgid", "lock", "able", "write-only", "listed", "link")
PARENTS = ("sticky", "shared", "team", "anna")
SAMPLE = 12 if QUICK else 40  # of files, and half as many of directories


def cases(account):
    rng = random.Random(f"samba {account}")
    files = [(command, f"{place}\\{name}") for command in ON_FILES for place in PARENTS for name in KINDS]
    places = [(command, place) for command in IN_DIRECTORIES for place in (*PARENTS, "anna\\private")]
    return rng.sample(files, SAMPLE) + rng.sample(places, SAMPLE // 2)


def shape(path):
    """What test_as_bare compares, without the values in which smbd keeps times."""
    return {name: [(value[0], b"") if isinstance(value, tuple) and value[0] in ("user.DOSATTRIB", "security.NTACL") else value
                   for value in entry] for name, entry in state(path).items()}


@pytest.mark.parametrize("account", sorted(ACCOUNTS))
def test_accounts_do_in_the_present_what_they_do_on_a_bare_share(shares, account):
    roots = {"tree": shares.mount.path, "bare": shares.bare}
    number, before, done = 0, None, 0
    for share in roots:
        (shares.session(account, share).directory / "new").write_bytes(b"new" * 5000)
    for command, path in cases(account):
        found = {}
        for share, root in roots.items():
            session = shares.session(account, share)
            if before is None:
                build(f"{root}/{number}")
            words = {"p": f"{number}\\{path}", "own": f"{number}\\home-{account}"}
            output = session.get(words["p"]) if command.startswith("get") and "stream" not in command else \
                session.status(command.format(**words))
            found[share] = output, shape(root / str(number))
        assert found["tree"] == found["bare"], (account, command, path, [found[share][0] for share in roots], [
            (name, found["tree"][1].get(name), found["bare"][1].get(name)) for name in set(found["tree"][1]) | set(found["bare"][1])
            if found["tree"][1].get(name) != found["bare"][1].get(name)])
        done += found["tree"][0] == "OK"
        if before is not None and found["tree"][1] == before:
            continue
        number, before = number + 1, None
    assert done > 0
