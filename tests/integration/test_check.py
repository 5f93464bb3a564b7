# SPDX-License-Identifier: LGPL-2.1-or-later
"""vfsck: a sound store has no findings, and each damage is found, named, and repaired as it says."""
import ctypes
import errno
import json
import os
import struct
import subprocess
import time

import pytest
from mounts import moment, run
from test_unseen import next_tick


XXHASH = ctypes.CDLL("libxxhash.so.0")
XXHASH.XXH3_64bits.restype = ctypes.c_uint64
XXHASH.XXH3_64bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]


def checksum(data):
    return XXHASH.XXH3_64bits(data, len(data))


def history(mount):
    """Entries of every kind; the moment before its last part."""
    top = mount.path
    (top / "dir/below").mkdir(parents=True)
    for number in range(4):
        (top / f"dir/file{number}").write_bytes(bytes([number]) * 5000)
        (top / f"dir/file{number}").write_bytes(b"second")
    (top / "dir/file0").rename(top / "moved")
    os.link(top / "moved", top / "dir/below/link")
    (top / "dir/file1").unlink()
    (top / "new").write_bytes(b"saved as editors do")
    (top / "new").rename(top / "dir/file2")
    (top / "gone").mkdir()
    (top / "gone").rmdir()
    os.symlink("moved", top / "symlink")
    os.chmod(top / "moved", 0o600)
    os.setxattr(top / "moved", "user.a", b"value")
    (top / "dir").rename(top / "renamed")
    with open(top / "moved", "r+b") as stream:
        stream.write(b"third")
        stream.truncate(2)
    mount.tool("vsnap", "create", "named", top)


def check(mount, *options, status=0, tree=None):
    """Findings of vfsck: {code: finding}, notes left out."""
    result = mount.run_tool("vfsck", "--json", *options, tree or mount.source, merge=False)
    assert result.returncode == status, result.stdout + result.stderr
    found = json.loads(result.stdout)["findings"]
    return {finding["code"]: finding for finding in found if finding["state"] != "note"}


def test_a_sound_store_has_no_findings(any_mount):
    mount = any_mount
    history(mount)
    assert check(mount) == {}
    assert check(mount, tree=mount.path) == {}
    mount.stop()
    assert check(mount) == {}
    assert check(mount, "-n") == {}
    assert check(mount, "-p") == {}
    assert check(mount, "-y") == {}
    assert not (mount.store() / "lost").exists()


def test_rare_files_of_the_store_are_known(mount):
    """Files that only some stores have are no strangers there."""
    history(mount)
    mount.tool("vcompact", mount.path)
    mount.tool("vrm", "-y", mount.path / "renamed/file3")
    mount.tool("vprune", "-y", "--keep-versions", "..2", mount.path)
    mount.stop()
    assert (mount.store() / "erased").exists()
    (mount.store() / "stranger").write_text("not the store's")
    findings = mount.tool("vfsck", "--verbose", mount.source).stdout
    assert [line for line in findings.splitlines() if "unknown-file" in line] == \
        ["note: unknown-file: stranger: this file does not belong to the store"]


def test_beside_a_working_daemon(mount):
    """No false alarm while names and contents change all the time."""
    with subprocess.Popen(["sh", "-c", "while :; do mkdir a; for i in 1 2 3; do echo $i >a/f; date >>a/f; mv a/f g; done; "
                           "mv a b; rm -r b g; done"], cwd=mount.path, stderr=subprocess.DEVNULL) as work:
        try:
            for _ in range(10):
                assert check(mount) == {}
        finally:
            work.kill()


def test_a_mounted_tree_is_not_repaired(mount):
    (mount.path / "file").write_bytes(b"text")
    result = mount.tool("vfsck", "-p", mount.source, status=8, merge=False)
    assert "the tree is mounted at " in result.stderr


def test_no_store_and_wrong_usage(maker, mount):
    assert mount.tool("vfsck", maker.scratch, status=8, merge=False).stdout == ""
    assert json.loads(mount.tool("vfsck", "--json", maker.scratch, status=8, merge=False).stdout)["findings"] == []
    mount.tool("vfsck", status=16)
    mount.tool("vfsck", "-p", "-y", mount.source, status=16)
    mount.tool("vfsck", "-n", "-p", mount.source, status=16)


# -- damage ----------------------------------------------------------------------------------------

def records(mount, path):
    """(its offset, its length, its payload's length) of each record of a log."""
    found = []
    for line in mount.tool("vdump", "--json", path).stdout.splitlines():
        record = json.loads(line)
        if "total" in record:
            found.append((record["at"], record["total"], record.get("payload", 0)))
    return found


def poke(path, offset, data):
    with open(path, "r+b") as stream:
        stream.seek(offset)
        stream.write(data)


def log_with_payload(mount):
    for path in sorted(mount.store().rglob("*.undo")):
        for at, total, payload in records(mount, path):
            if payload > 8:
                return path, at, total, payload
    raise AssertionError("no payload was kept")


def header_field(offset, data):
    return lambda mount: poke(mount.store() / "header", offset, data)


def torn_tail(mount):
    path = log_with_payload(mount)[0]
    with open(path, "ab") as stream:
        stream.write(path.read_bytes()[:60])


def trailer(mount):
    path, at, total, _payload = log_with_payload(mount)
    poke(path, at + total - 8, b"\x01\x02\x03\x04")


def head(mount):
    path, at, _total, _payload = log_with_payload(mount)
    # Of its time, in which any byte may be.
    poke(path, at + 9, bytes([path.read_bytes()[at + 9] ^ 0xff]))


def payload_of(mount):
    path, at, total, payload = log_with_payload(mount)
    poke(path, at + total - 8 - (payload + 7) // 8 * 8, b"\xff\xfe\xfd")


def inflight_slot(mount):
    slot = struct.pack("<QqIIIIQqQq", 7, 5, 1, 0, 9, 9, 1, 1, 0, 0)
    poke(mount.store() / "inflight", 64 + 3 * 64, slot)


def timeline(mount):
    poke(mount.store() / "timeline/times", 40 + 4, b"\xff\xff")


def directory(mount):
    for path in sorted((mount.store() / "objects").iterdir()):
        if not any(path.iterdir()):
            path.rmdir()
            return


def stale(mount):
    (mount.store() / "objects/00/00000000000a1b2c-18a3f0c2d4e5f600.cat.new").write_bytes(b"half")
    (mount.store() / "actors.new").write_bytes(b"half")


def shared(mount):
    next_tick()  # else it may be of the moment at which the mount stopped recording
    os.link(log_with_payload(mount)[0], mount.source / "elsewhere")


def gaps_file(head, place):
    data = b"WBGAPS\n".ljust(28, b"\0")
    data += struct.pack("<I", checksum(data) & 0xffffffff)
    data = (head or data) + place
    return lambda mount: (mount.store() / "gaps").write_bytes(data.ljust(512 * 32, b"\0"))


def orphan(mount):
    (mount.store() / "objects/2c/00000000000a1b2c-18a3f0c2d4e5f607.image").write_bytes(b"data")


def opened(mount):
    mount.store().chmod(0o755)


# the damage, the finding, and the option that repairs it (None: nothing can)
DAMAGES = {
    "header-magic": (header_field(0, b"X"), "damaged-header", "-p"),
    "header-version": (header_field(8, b"\x63"), "damaged-header", "-p"),
    "header-root": (header_field(32, b"\x01\x02\x03"), "damaged-header", "-p"),
    "header-checksum": (header_field(56, b"\x01\x02\x03"), "damaged-header", "-y"),
    "header-created": (header_field(48, b"\x01\x02\x03"), "damaged-header", "-y"),
    "header-short": (lambda mount: os.truncate(mount.store() / "header", 40), "damaged-header", "-y"),
    "inflight-magic": (lambda mount: poke(mount.store() / "inflight", 0, b"X"), "damaged-inflight", "-p"),
    "inflight-slot": (inflight_slot, "damaged-inflight", "-p"),
    "torn-tail": (torn_tail, "torn-tail", "-p"),
    "trailer": (trailer, "damaged-trailer", "-p"),
    "head": (head, "damaged-record", None),
    "payload": (payload_of, "damaged-payload", None),
    "actor": (lambda mount: poke(mount.store() / "actors", 50, b"\xff"), "damaged-record", None),
    "snapshot": (lambda mount: poke(mount.store() / "snapshots", 50, b"\xff"), "damaged-record", None),
    "timeline": (timeline, "damaged-timeline", "-p"),
    "directory": (directory, "missing-directory", "-p"),
    "stale": (stale, "stale", "-p"),
    "shared": (shared, "shared-file", "-p"),
    "orphan": (orphan, "orphan", "-y"),
    "open": (opened, "open-store", "-p"),
    "gaps-head": (gaps_file(b"WBGAPS\n".ljust(32, b"\1"), b""), "damaged-gaps", "-p"),
    "gaps-place": (gaps_file(None, b"\0" * 32 + b"\1" * 32), "damaged-gaps", "-y"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_named_and_repaired(mount, name):
    damage, code, option = DAMAGES[name]
    history(mount)
    # It is made in the background, and a mount that ends makes none.
    while name == "timeline" and not (mount.store() / "timeline/times").exists():
        time.sleep(0.05)
    mount.stop()
    damage(mount)
    found = check(mount, status=4)
    assert list(found) == [code]
    if option is None:
        assert found[code]["state"] == "lost"
        assert list(check(mount, "-y", status=4)) == [code]
        return
    assert (found[code]["state"], found[code]["remedy"] != "") == ("wrong", True)
    if option == "-y":
        assert list(check(mount, "-p", status=4)) == [code]
    assert check(mount, option, status=1)[code]["state"] == "repaired"
    assert check(mount) == {}
    if damage is shared:
        # SRC, and the file under the name that it got, unless vfsck changed that last, with a change that it recorded
        mount.expect("(1 object was|2 objects were) changed while Wayback did not record")
    mount.start()
    assert (mount.path / "moved").read_bytes() == b"th"
    assert check(mount) == {}


@pytest.mark.parametrize("kind", ["file", "directory"])
def test_the_history_of_what_others_removed(mount, kind):
    """Its former name leads to it as long as a record says so: the records of its attributes and names stay."""
    top, files = mount.path, ["", "/inner"] if kind == "directory" else [""]
    mount.expect("changed while Wayback did not record|none of the places|cannot be found")
    if kind == "directory":
        (top / "old").mkdir()
    for name in ("old" + files[-1], "beside"):
        (top / name).write_bytes(b"first")
        (top / name).chmod(0o640)
    then, when = {name: os.lstat(f"{top}/old{name}") for name in files}, moment()
    (top / ("old" + files[-1])).write_bytes(b"and then another")
    (top / ("old" + files[-1])).chmod(0o600)
    (top / "old").chmod(0o711)
    if kind == "directory":
        (top / "old/inner").rename(top / "old/other")
    (top / "old").rename(top / "new")
    mount.stop()
    run("rm", "-r", mount.source / "new")
    mount.start()
    for _ in range(2):
        for name, status in then.items():
            try:
                found = os.lstat(f"{mount.at(when)}/old{name}")
            except OSError as error:
                assert error.errno == errno.EIO
            else:
                assert (found.st_mode, found.st_mtime_ns, found.st_size) == (status.st_mode, status.st_mtime_ns, status.st_size)
        mount.stop()
        mount.run_tool("vfsck", "-y", mount.source)
        mount.start()


def test_a_damaged_gap_may_be_anybodys(maker, mount):
    """Everything but the present is refused, with and without the lock, until vfsck -y repairs it."""
    (mount.path / "file").write_bytes(b"first")
    before = moment()
    (mount.path / "file").write_bytes(b"second")
    mount.stop()
    gaps_file(None, b"\1" * 32)(mount)
    mount.expect("the file `gaps` of the store is damaged")

    def refused(path):
        for function in (lambda: (path / "file").read_bytes(), lambda: os.listdir(path)):
            with pytest.raises(OSError) as error:
                function()
            assert error.value.errno == errno.EIO

    mount.start("onfull=continue")
    refused(mount.at(before))
    assert (mount.path / "file").read_bytes() == b"second"
    (mount.path / "file").write_bytes(b"third")
    reader = maker.mount("ro", source=mount.source)
    reader.expect("the file `gaps` of the store is damaged")
    refused(reader.at(before))
    reader.stop()
    mount.remount()
    refused(mount.at(before))
    mount.stop()
    assert list(check(mount, "-p", status=4)) == ["damaged-gaps"]
    assert check(mount, "-y", status=1)["damaged-gaps"]["state"] == "repaired"
    mount.start()
    assert mount.at(before, "file").read_bytes() == b"first"


def packed_log(mount):
    """A log of which the beginning is packed, and a moment with versions before and after it."""
    path = mount.path / "file"
    for number in range(30):
        path.write_bytes(b"".join(b"%d %d\n" % (line, number) for line in range(2000)))
    before = moment()
    path.write_bytes(b"the last before it is packed")
    mount.tool("vcompact", mount.path)
    after = moment()
    path.write_bytes(b"and what comes later")
    mount.stop()
    found = [p for p in mount.store().rglob("*.undo") if p.read_bytes()[:8] == b"WBPACK1\n"]
    assert len(found) == 1
    return found[0], before, after


@pytest.mark.parametrize("where", [0, 24, 56, "all", "end", "both"])
def test_a_pack_has_two_heads(mount, where):
    """Records of one head are read by way of the other, and it is made anew; without both they are refused."""
    log, before, after = packed_log(mount)
    data = log.read_bytes()
    end = struct.unpack_from("<Q", data, 24)[0] - 72
    if where in ("all", "both"):
        poke(log, 0, b"\0" * 64)
    if where in ("end", "both"):
        poke(log, end + 24, b"\xff")
    if isinstance(where, int):
        poke(log, where, bytes([data[where] ^ 0x5a]))
    found = check(mount, status=4)
    if where == "both":
        assert list(found) == ["damaged-record"]
        mount.expect(".")
        mount.start()
        with pytest.raises(OSError) as error:
            mount.at(before, "file").read_bytes()
        assert error.value.errno == errno.EIO
    else:
        assert list(found) == ["damaged-pack"]
        mount.start()
        (mount.path / "file").write_bytes(b"newest")
        assert mount.at(before, "file").read_bytes().endswith(b"\n1999 29\n")
        assert mount.at(after, "file").read_bytes() == b"the last before it is packed"
    mount.stop()
    if where != "both":
        assert check(mount, "-p", status=1)["damaged-pack"]["state"] == "repaired"
        assert log.read_bytes()[:len(data)] == data
        assert check(mount) == {}


def test_a_store_with_links_to_it_gets_files_of_its_own(maker, mount):
    """cp -al makes every file of the store a file of another tree as well: nothing is written before the links are
    separated."""
    history(mount)
    before = moment()
    (mount.path / "moved").write_bytes(b"third")
    mount.stop()
    copy = mount.source.with_name(mount.source.name + ".copy")
    maker.trees.append(copy)
    mount.tool("cp", "-al", mount.source, copy)
    stored = {path.relative_to(copy): path.read_bytes() for path in (copy / ".wayback").rglob("*.[uc]*")}
    result = mount.run_tool("wayback", mount.source, mount.path)
    assert result.returncode == 1 and "vfsck" in result.stdout
    assert list(check(mount, status=4)) == ["shared-file"]
    assert check(mount, "-p", status=1)["shared-file"]["state"] == "repaired"
    assert check(mount) == {}
    mount.expect("changed while Wayback did not record")  # the files, which got another link
    mount.start()
    (mount.path / "moved").write_bytes(b"fourth")
    assert mount.at(before, "moved").read_bytes() == b"th"
    assert stored and all((copy / path).read_bytes() == data for path, data in stored.items())


def test_cut_off_records_are_kept(mount):
    history(mount)
    mount.stop()
    path = log_with_payload(mount)[0]
    before = path.read_bytes()
    torn_tail(mount)
    torn = path.read_bytes()
    check(mount, "-p", status=1)
    assert path.read_bytes() == before
    assert [p.read_bytes() for p in (mount.store() / "lost").iterdir()] == [torn[len(before):]]


def test_a_change_behind_the_mount_is_noted(mount):
    history(mount)
    mount.stop()
    (mount.source / "moved").unlink()
    result = mount.tool("vfsck", "--verbose", mount.source)
    assert "external-name: moved" in result.stdout
    assert "external-name" not in mount.tool("vfsck", mount.source).stdout


def test_content_that_changed_behind_the_mount(mount):
    """Noted; with --external its older versions are refused, and nothing else is."""
    (mount.path / "file").write_bytes(b"first")
    (mount.path / "other").write_bytes(b"other")
    before = moment()
    (mount.path / "file").write_bytes(b"the second")
    mount.stop()
    assert check(mount) == {}
    (mount.source / "file").write_bytes(b"behind the mount")
    result = mount.tool("vfsck", "-v", mount.source)
    assert "note: external-content: file: changed outside the mount: it is longer" in result.stdout
    mount.tool("vfsck", "--external", mount.source, status=16)
    assert "external" not in mount.tool("vfsck", "-p", mount.source).stdout
    assert list(check(mount, "-p", "--external", status=1)) == ["external-content"]
    marked = moment()
    assert "external" not in mount.tool("vfsck", "-v", mount.source).stdout

    mount.expect("changes that came after it are not known")
    mount.start()
    (mount.path / "file").write_bytes(b"third")
    with pytest.raises(OSError) as error:
        mount.at(before, "file").read_bytes()
    assert error.value.errno == errno.EIO
    assert mount.at(before, "other").read_bytes() == b"other"
    assert mount.at(marked, "file").read_bytes() == b"behind the mount"


def append_unknown(log, when):
    """A record of a type to come."""
    head = struct.pack("<4sBBHqIIIIQ", b"WBK1", 99, 0, 0, when, 0, 8, 0, 0, 0)
    body = b"whatever"
    record = head + struct.pack("<Q", checksum(head + body)) + body
    with open(log, "ab") as stream:
        stream.write(record + struct.pack("<I4s", len(record) + 8, b"EWBK"))


@pytest.mark.parametrize("suffix", [".undo", ".cat"])
def test_a_record_of_a_later_version_may_stand_for_a_change(mount, suffix):
    """A change of its own object, and of nothing else."""
    for name in ("one/file", "two/file"):
        path = mount.path / name
        path.parent.mkdir()
        path.write_bytes(b"first")
        path.write_bytes(b"2nd")
    mount.stop()
    for name in ("one/file", "two/file"):
        (mount.source / name).write_bytes(b"behind the mount")
    subject = mount.source / ("one/file" if suffix == ".undo" else "one")
    number = f"{subject.stat().st_ino:016x}"
    append_unknown(next(mount.store().rglob(f"{number}-*{suffix}")), moment())
    text = mount.tool("vfsck", "-v", mount.source).stdout
    assert "external-content: two/file" in text and "external-content: one/file" not in text


def test_the_help_names_its_argument(mount):
    text = mount.tool("vfsck", "--help").stdout
    assert "TREE" in text and "TIME" not in text and "PATH" not in text
    assert "TREE is missing" in mount.tool("vfsck", status=16).stdout
    assert "TIME, everywhere" in mount.tool("vstat", "--help").stdout
