# SPDX-License-Identifier: LGPL-2.1-or-later
"""wayback web without a browser: requests that are refused, and answers that are those of the other tools."""
import base64
import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import time
import urllib.parse
from pathlib import Path

import pytest

from mounts import LIMIT, NOBODY, SECOND, epoch, moment, nanoseconds, run
from web import Web, heed_signals

PIXEL = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")
ODD = (b"a\nb", b"caf\xe9", "<img src=x onerror=alert(1)>".encode(), "a\u202eb".encode(), b"%2e%2e", b"a b&c=d?e#f", b"\"'")


@pytest.fixture(name="made")
def fixture_made(mount):
    """A tree with a past: mount.when is between the two halves of it."""
    top = mount.path
    top.chmod(0o755)
    (top / "paper").mkdir()
    (top / "paper/draft").write_text("one\ntwo\nthree\n", encoding="ascii")
    (top / "paper/lost").write_text("found again\n", encoding="ascii")
    (top / "gone/below").mkdir(parents=True)
    (top / "gone/below/leaf").write_text("leaf\n", encoding="ascii")
    mount.when = moment()
    (top / "paper/draft").write_text("one\nzwei\nthree\nfour\n", encoding="ascii")
    (top / "paper/lost").unlink()
    run("rm", "-r", top / "gone")
    (top / "new").write_text("new\n", encoding="ascii")
    return mount


# ---- access -------------------------------------------------------------------------------


def test_only_with_the_token(made):
    with Web(made) as web:
        for token in (None, "", "0" * 64, web.token[:-1], web.token + "0", web.token.upper()):
            headers = {} if token is None else {"X-Wayback-Token": token}
            for function in ("session", "list?path=", "nothing"):
                status, _, content = web.raw("GET", f"/api/v1/{function}", headers)
                assert status == 401 and b"draft" not in content
            status, _, _ = web.raw("POST", "/api/v1/restore", web.headers(X_Wayback_Token=token), "{}")
            assert status == 401
        # Neither in the address, nor as a cookie: both could come from elsewhere.
        assert web.raw("GET", f"/api/v1/session?token={web.token}", {"Cookie": f"token={web.token}"})[0] == 401
        assert web.get("session")["path"] == str(made.path)
        assert len(web.token) * 4 >= 128
    with Web(made) as other:
        assert other.token != web.token


def test_only_under_its_own_name(made):
    """A page whose name was bound to 127.0.0.1 has that name in Host."""
    with Web(made) as web:
        for host in ("evil.example", f"evil.example:{web.port}", "", "localhost.evil.example", f"192.168.1.1:{web.port}"):
            for url in ("/", "/app.js", "/api/v1/session", "/download/x"):
                headers = {"Host": host, "X-Wayback-Token": web.token}
                assert web.raw("GET", url, headers)[0] in (421, 400)
        for host in (f"localhost:{web.port}", f"127.0.0.1:{web.port}", f"[::1]:{web.port}"):
            assert web.raw("GET", "/api/v1/session", {"Host": host, "X-Wayback-Token": web.token})[0] == 200
        assert web.raw("GET", "/", address="::1")[0] == 200


def test_a_change_needs_more(made):
    """Of another page, a form, or with a long body: refused, although the token is right."""
    with Web(made) as web:
        body = json.dumps({"path": "paper/lost", "epoch": epoch(made.when)})
        refused = [({"Origin": "http://evil.example"}, 403), ({"Origin": "null"}, 403), ({"Origin": None}, 403),
                   ({"Origin": f"http://127.0.0.1:{web.port + 1}"}, 403), ({"Origin": f"https://{web.host}"}, 403),
                   ({"Content_Type": "text/plain"}, 415), ({"Content_Type": "application/x-www-form-urlencoded"}, 415),
                   ({"Content_Type": None}, 415), ({"Sec_Fetch_Site": "cross-site"}, 403),
                   ({"Sec_Fetch_Site": "same-site"}, 403)]
        for changes, wanted in refused:
            assert web.raw("POST", "/api/v1/restore", web.headers(**changes), body)[0] == wanted, changes
        assert web.raw("POST", "/api/v1/restore", web.headers(), body + " " * 100000)[0] == 413
        assert web.raw("POST", "/api/v1/restore", web.headers(), "[1")[0] == 400
        assert web.raw("GET", "/api/v1/restore?path=paper/lost&epoch=1", web.headers())[0] == 405
        for method in ("PUT", "DELETE", "OPTIONS", "TRACE", "PATCH"):
            status, headers, _ = web.raw(method, "/api/v1/restore", web.headers(), body)
            assert status in (405, 501) and "Access-Control-Allow-Origin" not in headers
        assert not (made.path / "paper/lost").exists()
        web.post("restore", path="paper/lost", epoch=epoch(made.when))
        assert (made.path / "paper/lost").exists()


def test_headers(made):
    with Web(made) as web:
        for url in ("/", "/nothing", "/api/v1/session", "/api/v1/list?path=", "/download/x"):
            _, headers, _ = web.raw("GET", url, {"X-Wayback-Token": web.token})
            policy = headers["Content-Security-Policy"]
            assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy and "unsafe" not in policy
            assert headers["X-Content-Type-Options"] == "nosniff" and headers["Referrer-Policy"] == "no-referrer"
            assert headers["Cache-Control"] == "no-store" and headers["X-Frame-Options"] == "DENY"
            assert "Set-Cookie" not in headers and "Access-Control-Allow-Origin" not in headers


def listeners(port):
    """The local addresses that listen on it, in hexadecimal digits."""
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text(encoding="ascii").splitlines()[1:]:
            address, number = line.split()[1].split(":")
            if int(number, 16) == port and line.split()[3] == "0A":
                found.add(address)
    return found


def test_listens_on_loopback_only(made):
    with Web(made) as web:
        assert listeners(web.port) == {"0100007F", "00000000000000000000000001000000"}
        taken = made.run_tool("wayback", "web", "--port", web.port, made.path)
        assert taken.returncode == 1 and "cannot listen on 127.0.0.1" in taken.stdout
    with Web(made, "--address", "0.0.0.0", warning="not encrypted") as web:
        assert listeners(web.port) == {"00000000"}
        assert web.raw("GET", "/", {"Host": "192.168.1.1"})[0] == 200
        assert web.raw("GET", "/", {"Host": "evil.example"})[0] == 421


def test_usage_and_ends(made):
    for arguments in (["--port", "99999"], ["--port", "x"], ["--address", "localhost"], ["a", "b"], ["--bogus"]):
        assert made.run_tool("vweb", *arguments).returncode == 2
    assert made.run_tool("vweb", "/nowhere").returncode == 1
    assert "is 'wayback web' meant?" in made.run_tool("wayback", "wbe", cwd=made.source.parent).stdout
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        web = Web(made)
        assert web.end(number) == (128 + number, "")
    # For people, the address is a line of its own; the browser is not opened without a terminal.
    process = subprocess.Popen([made.programs.directory / "vweb", made.path], stdout=subprocess.PIPE, text=True,
                               stderr=subprocess.PIPE, env=made.programs.environment(), preexec_fn=heed_signals)
    assert process.stdout.readline() == f"{made.path}\n"
    url = urllib.parse.urlsplit(process.stdout.readline().strip())
    assert url.hostname == "127.0.0.1" and url.fragment.startswith("token=") and not url.query
    assert "You are root" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    assert process.wait() == 130


def test_many_and_half_connections(made):
    """More connections than it serves, some of which send nothing or half a request: it answers again once they end."""
    with Web(made) as web:
        sockets = [socket.create_connection(("127.0.0.1", web.port)) for _ in range(50)]
        for number, one in enumerate(sockets[:20]):
            one.sendall((b"GET / HTTP/1.1\r\nHost: ", b"\0\xff" * 100, b"GET " + b"a" * 200000)[number % 3])
        for one in sockets:
            one.close()
        deadline = time.monotonic() + LIMIT
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError, http.client.HTTPException):
                assert web.get("session")["schema"] == 1
                break
            time.sleep(0.05)
        else:
            raise AssertionError("it does not answer any more")


# ---- which paths -------------------------------------------------------------------------------


def test_paths_stay_below(made):
    secret = made.path / "secret"
    secret.mkdir()
    (secret / "file").write_text("secret words\n", encoding="ascii")
    top = made.path / "paper"
    (top / "up").symlink_to("../secret")
    (top / "absolute").symlink_to(secret)
    (top / "file").symlink_to("../secret/file")
    with Web(made, path=top) as web:
        assert sorted(web.entries()) == [b"absolute", b"draft", b"file", b"lost", b"up"]
        wrong = ["..", "../secret/file", "/etc/passwd", "draft/../../secret/file", ".", "./draft", "a//b", "draft/",
                 str(secret / "file"), "..%2fsecret"]
        for path in wrong + ["up/file", "absolute/file", "file/x"]:
            for function in ("content", "image", "list", "diff"):
                status, _, content = web.raw("GET", f"/api/v1/{function}?path={urllib.parse.quote(path)}",
                                             {"X-Wayback-Token": web.token})
                assert b"secret words" not in content and b'"file"' not in content
                assert status >= 400 or function == "diff" and json.loads(content)["kind"] == "same"
            for function in ("ticket", "plan", "restore"):
                assert web.raw("POST", f"/api/v1/{function}", web.headers(),
                               json.dumps({"path": path, "epoch": epoch(made.when)}))[0] >= 400 or path in wrong[-1:] or \
                    path.startswith(("up/", "absolute/", "file/"))
        assert web.raw("GET", "/api/v1/content?path=draft%00x", {"X-Wayback-Token": web.token})[0] == 400
        # A link is shown, and not followed.
        assert web.get("content", path="file")["text"] == "../secret/file"
        web.post("ticket", path="file", status=404)
    assert (secret / "file").read_text(encoding="ascii") == "secret words\n"


def test_odd_names(made):
    directory = os.fsencode(made.path / "odd")
    os.mkdir(directory)
    for name in ODD:
        with open(directory + b"/" + name, "wb") as stream:
            stream.write(name)
    with Web(made) as web:
        entries = web.entries("odd")
        assert set(entries) == set(ODD)
        for name in ODD:
            path = b"odd/" + name
            shown = entries[name].get("name_shown", entries[name]["name"])
            assert not any(ord(c) < 32 or c == "\u202e" for c in shown)
            assert web.versions(path)[-1]["number"] >= 1
            if name != ODD[1]:
                continue
            os.unlink(directory + b"/" + name)
            when = web.versions(path)[1]["epoch"]
            body = json.dumps({"path": "odd/x", "path_bytes": base64.b64encode(path).decode(), "epoch": when})
            assert web.raw("POST", "/api/v1/restore", web.headers(), body)[0] == 200
            with open(directory + b"/" + name, "rb") as stream:
                assert stream.read() == name
        assert web.get("content", path=b"odd/" + ODD[2])["text"] == ODD[2].decode()


# ---- rights ------------------------------------------------------------------------------------


def test_a_user_sees_what_their_rights_allow(made):
    """The page of another user has nothing that this user could not read, and restores nothing that they may not."""
    private = made.path / "private"
    private.mkdir(mode=0o700)
    (private / "hidden").write_text("hidden words\n", encoding="ascii")
    own = made.path / "own"
    own.mkdir()
    os.chown(own, *SECOND)
    (made.path / "closed").write_text("closed words\n", encoding="ascii")
    (made.path / "closed").chmod(0o600)
    made.tool("sh", "-c", f"echo mine > {own}/mine", user=SECOND)
    when = moment()
    made.tool("sh", "-c", f"echo changed > {own}/mine", user=SECOND)
    (made.path / "paper/draft").write_text("root again\n", encoding="ascii")
    with Web(made, user=SECOND) as web:
        session = web.get("session")
        assert session["uid"] == SECOND[0] and not session["is_root"]
        assert "hidden" not in json.dumps(web.get("log", path="", limit=1000))
        assert web.raw("GET", "/api/v1/list?path=private", {"X-Wayback-Token": web.token})[0] in (403, 404)
        web.get("content", path="closed", status=403)
        web.get("content", path="private/hidden", epoch=epoch(when), status=403)
        web.post("ticket", path="closed", status=403)
        refused = web.post("restore", path="paper/draft", epoch=epoch(made.when))
        assert refused["failed"] > 0 or "error" in refused
        assert (made.path / "paper/draft").read_text(encoding="ascii") == "root again\n"
        assert web.post("restore", path="own/mine", epoch=epoch(when))["failed"] == 0
        assert (own / "mine").read_text(encoding="ascii") == "mine\n"
    with Web(made) as web:
        assert web.get("session")["is_root"] and web.get("content", path="closed")["text"] == "closed words\n"


def test_read_only(made, maker):
    with Web(made, "--read-only") as web:
        assert web.get("session")["read_only"]
        assert web.post("plan", path="paper/lost", epoch=epoch(made.when))["counts"]["restore"] == 1
        assert "--read-only" in web.post("restore", 403, path="paper/lost", epoch=epoch(made.when))["error"]["message"]
    assert not (made.path / "paper/lost").exists()


def test_an_unmounted_tree(made):
    source = made.source
    made.stop()
    with Web(made, path=source) as web:
        session = web.get("session")
        assert session["path"] == str(source) and not session["mounted"] and session["read_only"]
        assert web.entries("paper")[b"lost"]["status"] == "deleted"
        web.post("restore", 403, path="paper/lost", epoch=epoch(made.when))
    made.start()


# ---- what is shown -----------------------------------------------------------------------------


def test_lists(made):
    with Web(made) as web:
        entries = web.entries()
        assert {name: entry["status"] for name, entry in entries.items()} == \
            {b"gone": "deleted", b"new": "new", b"paper": "new"}
        assert entries[b"new"]["size"] == 4 and entries[b"new"]["type"] == "file"
        then = web.get("list", path="", epoch=epoch(made.when))
        assert {entry["name"] for entry in then["entries"]} == {"gone", "paper"} and nanoseconds(then["at"]) == made.when
        assert web.entries("paper", epoch=epoch(made.when))[b"draft"]["size"] == 14
        # A directory that is gone is shown as it was before its removal began.
        gone = web.get("list", path="gone", gone=1)
        assert [entry["name"] for entry in gone["entries"]] == ["below"] and gone["gone"]
        below = web.get("list", path="gone/below", epoch=gone["at"]["epoch"])
        assert [entry["name"] for entry in below["entries"]] == ["leaf"]
        leaf = web.versions("gone/below/leaf", epoch=gone["at"]["epoch"], gone=1)
        assert web.get("content", path="gone/below/leaf", epoch=leaf[-1]["epoch"])["text"] == "leaf\n"
        web.get("list", path="never", status=404)
        web.get("list", path="", epoch="yesterday", status=400)
        web.get("list", path="", epoch="-1", status=400)


def test_select_and_times(made):
    with Web(made, path=made.path / "paper/lost") as web:
        session = web.get("session")
        assert session["path"] == str(made.path / "paper") and session["select"] == "lost"
        began = web.get("time", text="begin")
        assert nanoseconds(began) == nanoseconds(session["began"]) <= made.when < nanoseconds(session["now"])
        assert nanoseconds(web.get("time", text=epoch(made.when))) == made.when
        web.get("time", text="no such time", status=400)
        web.get("time", text="2h", status=400)  # before the history begins
        made.tool("vsnap", "create", "here", made.path, "-m", "so far")
        [snapshot] = web.get("snapshots")["snapshots"]
        assert (snapshot["name"], snapshot["text"]) == ("here", "so far")


def test_versions_are_those_of_vstat(made):
    with Web(made) as web:
        for path in ("paper/draft", "paper/lost", "new"):
            listed = json.loads(made.tool("vstat", "--json", made.path / path).stdout)["versions"]
            shown = web.versions(path)
            assert [(v["number"], v["epoch"]) for v in shown] == [(v["change"], v["epoch"]) for v in listed]
            for version in shown:
                assert version["user"] == "root" and version["command"]
        few = web.get("versions", path="paper/draft", limit=1)
        assert len(few["versions"]) == 1 and few["has_more"]


def lines_of_vdiff(made, path, *times):
    output = made.run_tool("vdiff", path, *times, merge=False).stdout
    lines = output[output.index("@@"):].splitlines()
    return [line for line in lines if not line.startswith("@@")]


def test_differences_are_those_of_vdiff(made):
    draft = made.path / "long"
    text = [f"line {i}" for i in range(200)]
    draft.write_text("\n".join(text), encoding="ascii")
    when = moment()
    text[20:22] = ["changed"]
    text.insert(100, "inserted")
    draft.write_text("\n".join(text) + "\n", encoding="ascii")
    with Web(made) as web:
        for path, since in (("paper/draft", made.when), ("long", when)):
            shown = web.get("diff", path=path, old_epoch=epoch(since))
            wanted = [line for line in lines_of_vdiff(made, made.path / path, epoch(since)) if line[0] != "\\"]
            assert shown["kind"] == "text" and shown["exact"]
            assert [line["kind"] + line["text"] for line in shown["lines"]] == wanted
            assert shown["added"] == sum(line[0] == "+" for line in wanted)
            assert shown["removed"] == sum(line[0] == "-" for line in wanted)
        assert sum("begins" in line for line in shown["lines"]) == 3
        assert web.get("diff", path="new", old_epoch=epoch(made.when))["old"]["kind"] == "none"
        assert web.get("diff", path="paper/draft", old_epoch=epoch(moment()))["kind"] == "same"
        assert web.get("diff", path="paper", old_epoch=epoch(made.when))["kind"] == "directory"
        removed = web.get("diff", path="paper/lost", old_epoch=epoch(made.when))
        assert (removed["added"], removed["removed"], removed["new"]["kind"]) == (0, 1, "none")


def test_images_and_what_pretends_to_be_one(made):
    """Only images without scripts are shown as such, and nothing of a user is ever a page."""
    (made.path / "a.png").write_bytes(PIXEL)
    when = moment()
    (made.path / "a.png").write_bytes(PIXEL + b"\0")
    (made.path / "b.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'><script>1</script></svg>", encoding="ascii")
    (made.path / "c.html").write_text("<script>alert(1)</script>", encoding="ascii")
    (made.path / "d.png").write_text("<html><script>alert(1)</script>", encoding="ascii")
    with Web(made) as web:
        assert web.get("content", path="a.png")["kind"] == "image"
        assert web.get("diff", path="a.png", old_epoch=epoch(when))["kind"] == "image"
        status, headers, content = web.raw("GET", f"/api/v1/image?path=a.png&epoch={epoch(when)}",
                                           {"X-Wayback-Token": web.token})
        assert (status, headers["Content-Type"], content) == (200, "image/png", PIXEL)
        assert "sandbox" in headers["Content-Security-Policy"]
        for name in ("b.svg", "c.html", "d.png"):
            web.get("image", path=name, status=415)
            assert web.get("content", path=name)["kind"] == "text"
            status, headers, content = web.raw("GET", web.post("ticket", path=name)["url"])
            assert status == 200 and headers["Content-Type"] == "application/octet-stream"
            assert headers["Content-Disposition"] == f"attachment; filename*=UTF-8''{name}"
            assert content == (made.path / name).read_bytes() and "sandbox" in headers["Content-Security-Policy"]


def test_downloads(made):
    """A ticket is good for one download, of the state that was asked for."""
    (made.path / "big").write_bytes(os.urandom(3 << 20))
    with Web(made) as web:
        url = web.post("ticket", path="paper/draft", epoch=epoch(made.when))["url"]
        assert web.token not in url
        assert web.raw("GET", url)[2] == b"one\ntwo\nthree\n"
        assert web.raw("GET", url)[0] == 404
        assert web.raw("GET", web.post("ticket", path="big")["url"])[2] == (made.path / "big").read_bytes()
        url = web.post("ticket", path="paper/draft")["url"]
        assert web.raw("GET", url, {"Sec-Fetch-Site": "cross-site"})[0] == 403
        assert web.raw("GET", url, {"Host": "evil.example"})[0] == 421
        for path in ("paper", "paper/lost", "never"):
            web.post("ticket", path=path, status=404)


# ---- plots -------------------------------------------------------------------------------------


def test_numbers_are_those_of_vlog(made):
    for number in range(7):
        run("sh", "-c", f"echo {number} > {made.path}/many; touch {made.path}/paper/t{number}")
    changes = [json.loads(line) for line in made.tool("vlog", "--json", made.path).stdout.splitlines()]
    with Web(made) as web:
        for path, wanted in (("", changes), ("paper", [c for c in changes if c["path"].startswith("paper/") or
                                                       c["path"] == "paper"])):
            for bucket in (1, 60, 3600, 86400):
                began = min(nanoseconds(change) for change in changes)
                shown = web.get("changes", path=path, since=epoch(began), until=epoch(moment()), bucket=bucket)
                assert shown["complete"] and shown["count"] == len(wanted)
                begin = nanoseconds(shown["begin"])
                hours, programs = {}, {}
                for change in wanted:
                    hours.setdefault((nanoseconds(change) - begin) // (bucket * 10**9), []).append(change)
                    name = os.path.basename(change["command"].split(" ")[0])
                    programs[name] = programs.get(name, 0) + 1
                rows = shown["programs"] + [shown["others"]]
                sums = [sum(row["buckets"][i] for row in rows) for i in range(len(rows[0]["buckets"]))]
                assert {i: count for i, count in enumerate(sums) if count} == {i: len(c) for i, c in hours.items()}
                assert {row["program"]: row["count"] for row in shown["programs"]} == programs
        web.get("changes", path="", since=epoch(began), bucket=0, status=400)
        web.get("changes", path="", since="1", until=epoch(began), bucket=1, status=400)
        log = web.get("log", path="", limit=1000)
        assert [change["epoch"] for change in log["changes"]] == [change["epoch"] for change in changes]
        assert {change["command"] for change in web.get("log", path="", program="rm")["changes"]} == \
            {f"rm -r {made.path}/gone"}


# ---- restoring ---------------------------------------------------------------------------------


def test_restore_and_undo(made):
    """A plan changes nothing and names what is lost; a restore is one that vundo knows, and its undo takes it back."""
    with Web(made) as web:
        plan = web.post("plan", path="", epoch=epoch(made.when))
        actions = {(action["action"], action["path"]) for action in plan["actions"]}
        assert plan["dry_run"] and ("remove", f"{made.path}/new") in actions and plan["undo"] is None
        assert ("restore", f"{made.path}/gone/below/leaf") in actions
        again = web.post("plan", path="paper/draft", epoch=epoch(made.when))["actions"]
        assert [action.get("replaces", True) for action in again] == [True]  # or rewritten
        assert [a["replaces"] for a in web.post("plan", path="paper/lost", epoch=epoch(made.when))["actions"]] == [False]
        assert (made.path / "new").exists() and not (made.path / "gone").exists()
        done = web.post("restore", path="", epoch=epoch(made.when))
        assert {(a["action"], a["path"]) for a in done["actions"]} == actions and not done["dry_run"]
        assert not (made.path / "new").exists() and (made.path / "gone/below/leaf").exists()
        assert (made.path / "paper/draft").read_text(encoding="ascii") == "one\ntwo\nthree\n"
        assert done["undo"] == f"wayback restore {made.path} --time {done['before']['epoch']}"
        second = web.post("restore", path="paper/draft", epoch=done["before"]["epoch"])
        assert second["failed"] == 0
        listed = [json.loads(line) for line in made.tool("vundo", "--list", "--json", made.path).stdout.splitlines()]
        assert [entry["state"] for entry in listed] == ["restore", "restore"]
        assert all(entry["command"].startswith("wayback web") for entry in listed)
        again = web.post("restore", path="", epoch=done["before"]["epoch"])
        assert again["failed"] == 0 and (made.path / "new").exists() and not (made.path / "gone").exists()
    made.tool("vundo", made.path)
    assert not (made.path / "new").exists() and (made.path / "gone/below/leaf").exists()


def test_restores_that_cannot_be_done(made):
    with Web(made) as web:
        for members in ({}, {"path": "new"}, {"path": "new", "epoch": "tomorrow"}, {"path": 3, "epoch": "1"},
                        {"path": "new", "epoch": epoch(moment() + 10**12)}):
            web.post("restore", 400, **members)
        early = web.post("restore", path="new", epoch="1000000000")
        assert "error" in early
        assert (made.path / "new").exists()


def test_of_nobody(made):
    """Without rights to the directory there is nothing to serve."""
    made.path.chmod(0o700)
    result = made.run_tool("vweb", made.path, user=NOBODY)
    assert result.returncode == 1 and "ermission" in result.stdout
