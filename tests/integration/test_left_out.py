# SPDX-License-Identifier: LGPL-2.1-or-later
"""history = write | close | none for single paths: a path that is left out is refused, and nothing else is."""
import errno
import json
import os
import random
import threading
import time

import pytest

from mounts import LIMIT, QUICK, epoch, moment, nanoseconds, sync_tree
from copies import Copy
from operations import Operator
from test_close import Syncing
from test_keeper_scopes import check_known, refused
from test_past import then
from treestate import differences, state_of

REFUSED = "unrecorded|came after it|it is not known|is no more, and no record|is at none of the places|is not in the store"
SEEDS = 4 if QUICK else 12


def write_rules(mount, *sections):
    """Writes wayback.conf; it is in force once the daemon has reported a file with another rule."""
    path = mount.store() / "wayback.conf"
    new = path.with_name("wayback.conf.another")
    new.write_text("".join(f"[path {patterns}]\nhistory = {value}\n" for patterns, value in sections), encoding="utf-8")
    os.rename(new, path)


def in_force(mount, probe, recorded):
    """Waits until changes of that file are recorded, or are not."""
    mount.process.send_signal(1)
    deadline = time.monotonic() + LIMIT
    while True:
        probe.write_bytes(b"before")
        when = moment()
        probe.write_bytes(b"after")
        try:
            now = then(probe, when).read_bytes() == b"before"
        except OSError as error:
            assert error.errno == errno.EIO
            now = False
        if now == recorded:
            return
        assert time.monotonic() < deadline, mount.log()


def rules(maker, *sections, kind="ext4", options=()):
    """A mount that begins with these."""
    mount = maker.mount("allow_other", *options, kind=kind)
    mount.expect(REFUSED)
    mount.stop()
    write_rules(mount, *sections)
    return mount.start()


def buried(mount):
    return [path.name for path in mount.store().rglob("*") if path.suffix in (".data", ".dir")]


def logs_of(mount):
    return len([path for path in mount.logs() if path.suffix in (".undo", ".cat")])


def check_left_out(mount, when, known):
    """build/ and x.tmp of then: names, and nothing else."""
    assert sorted(os.listdir(mount.at(when))) == sorted(known)
    assert (mount.at(when) / "kept").read_bytes() == b"kept"
    refused(lambda: os.listdir(mount.at(when) / "build"))
    refused((mount.at(when) / "build" / "sub" / "f").read_bytes)
    refused(then(mount.path / "build" / "g", when).read_bytes)
    refused((mount.at(when) / "x.tmp").read_bytes)


@pytest.mark.parametrize("options", [(), ("history=close",)], ids=["write", "close"])
def test_directories_and_patterns(maker, kind, options):
    mount = rules(maker, ('"build/" "*.tmp"', "none"), kind=kind, options=options)
    top = mount.path
    (top / "kept").write_bytes(b"kept")
    (top / "build" / "sub").mkdir(parents=True)
    (top / "x.tmp").write_bytes(b"one")
    (top / "build" / "sub" / "f").write_bytes(b"one")
    when = moment()
    before = logs_of(mount)
    for number in range(100):
        (top / "build" / "sub" / f"f{number}").write_bytes(b"x" * number)
        (top / "build" / "sub" / f"f{number}").write_bytes(b"y")
    for number in range(0, 100, 2):
        os.rename(top / "build" / "sub" / f"f{number}", top / "build" / f"f{number + 1}")
    for number in range(1, 100, 2):
        (top / "build" / "sub" / f"f{number}").unlink()
    (top / "build" / "g").write_bytes(b"g")
    for text in (b"two", b"three"):
        (top / "x.tmp").write_bytes(text)
        (top / "build" / "sub" / "f").write_bytes(text)
        (top / "kept").write_bytes(b"kept")
    assert logs_of(mount) <= before + 12 and not buried(mount)
    check_left_out(mount, when, ["build", "kept", "x.tmp"])
    assert (top / "x.tmp").read_bytes() == b"three" and (top / "build" / "sub" / "f").read_bytes() == b"three"
    again = moment()
    check_left_out(mount, again, ["build", "kept", "x.tmp"])
    mount.kill()
    mount.start()
    (top / "build" / "h").write_bytes(b"h")
    for one in (when, again):
        check_left_out(mount, one, ["build", "kept", "x.tmp"])
    for path in (top / "build" / "sub").iterdir():
        path.unlink()
    (top / "build" / "sub").rmdir()
    check_left_out(mount, when, ["build", "kept", "x.tmp"])
    mount.check_store()
    mount.stop()
    assert "clean" in mount.tool("vfsck", mount.source).stdout
    assert "history: changes are not recorded" in mount.tool("wayback", "--check-config", mount.source).stdout


def test_states_recorded_before_remain_exact(maker):
    mount = rules(maker)
    top = mount.path / "cache"
    top.mkdir()
    times = {}
    for text in (b"one", b"two"):
        (top / "f").write_bytes(text)
        times[text] = moment()
    (top / "gone").write_bytes(b"gone")
    times["gone"] = moment()
    (top / "gone").unlink()
    was = {text: state_of(mount.at(times[text]) / "cache") for text in times}
    write_rules(mount, ('"cache/"', "none"))
    in_force(mount, top / "probe", False)
    for text in (b"three", b"four"):
        (top / "f").write_bytes(text)
        (top / text.decode()).write_bytes(text)
        times[text] = moment()
    (top / "three").unlink()

    def check():
        for one, state in was.items():
            assert differences(state, state_of(mount.at(times[one]) / "cache")) == []
        for text in (b"three", b"four"):
            refused((mount.at(times[text]) / "cache" / "f").read_bytes)
            refused(lambda text=text: os.listdir(mount.at(times[text]) / "cache"))
    check()
    mount.remount()
    check()
    write_rules(mount)
    in_force(mount, top / "probe", True)
    for text in (b"five", b"six"):
        (top / "f").write_bytes(text)
        was[text], times[text] = state_of(top), moment()
    (top / "f").unlink()
    check()
    mount.kill()
    mount.start()
    check()
    listed = json.loads(mount.tool("vstat", "--json", top / "f", merge=False).stdout)["versions"]
    gaps = [v for v in listed if v["op"] == "gap"]
    assert len(gaps) == 1 and times[b"two"] < nanoseconds(gaps[0]["since"]) < times[b"three"]
    assert times[b"four"] < nanoseconds(gaps[0]) < times[b"five"]
    assert "not recorded by wayback.conf" in mount.tool("vstat", top / "f").stdout


def test_renamed_to_a_path_that_is_left_out_and_back(maker):
    mount = rules(maker, ('"cache/" "*.tmp"', "none"))
    top = mount.path
    (top / "cache").mkdir()
    for number, (name, away) in enumerate((("f", "f.tmp"), ("g", "cache/g"), ("never", "cache/never"))):
        (top / name).write_bytes(b"one")
        first, was = moment(), state_of(top)
        os.rename(top / name, top / away)
        inside = moment()
        if name != "never":
            (top / away).write_bytes(b"two, not recorded")
        between = moment()
        os.rename(top / away, top / name)
        (top / name).write_bytes(b"three")
        last = moment()
        (top / name).write_bytes(b"four")
        for _ in range(2):
            assert (mount.at(first) / name).read_bytes() == b"one"
            if number == 0:
                assert differences({p: e for p, e in was.items() if p}, {
                    p: e for p, e in state_of(mount.at(first)).items() if p}) == []
            refused((mount.at(between) / away).read_bytes)
            assert not (mount.at(inside) / name).exists() and not (mount.at(between) / name).exists()
            assert (mount.at(last) / name).read_bytes() == b"three"
            mount.remount()


def test_beside_changes_that_are_recorded(maker):
    """Whatever is being recorded of other files meanwhile, a file that is left out can be changed."""
    mount = rules(maker, ('"*.tmp"', "none"))
    stopping = threading.Event()
    errors = []

    def record(number):
        path = mount.path / f"recorded{number}"
        try:
            while not stopping.is_set():
                path.write_bytes(bytes(1 << 20))
                path.unlink()
        except OSError as error:
            errors.append(error)

    threads = [threading.Thread(target=record, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    try:
        for number in range(300 if QUICK else 1000):
            (mount.path / f"{number}.tmp").write_bytes(b"x")
    finally:
        stopping.set()
        for thread in threads:
            thread.join()
    assert not errors


def test_a_save_by_way_of_a_name_that_is_left_out(maker):
    """vim with backups, and programs that save by a temporary file."""
    mount = rules(maker, ('"*~" "*.tmp" ".*.swp"', "none"))
    path, times = mount.path / "text", {}
    path.write_bytes(b"0")
    for number in range(1, 8):
        times[b"%d" % (number - 1)] = moment()
        if number % 2:
            os.rename(path, mount.path / "text~")
            path.write_bytes(b"%d" % number)
            (mount.path / "text~").unlink()
        else:
            (mount.path / "text.tmp").write_bytes(b"%d" % number)
            os.rename(mount.path / "text.tmp", path)
    for _ in range(2):
        for text, when in times.items():
            assert then(path, when).read_bytes() == text
        mount.remount()
    mount.tool("vrevert", path, "--time", epoch(times[b"2"]))
    assert path.read_bytes() == b"2"


def test_files_with_several_names_are_recorded(maker):
    mount = rules(maker, ('"cache/"', "none"))
    top = mount.path
    (top / "cache").mkdir()
    (top / "cache" / "f").write_bytes(b"one")
    (top / "cache" / "f").write_bytes(b"two")
    os.link(top / "cache" / "f", top / "g")
    times = {}
    for text in (b"three", b"four"):
        (top / "cache" / "f").write_bytes(text)
        times[text] = moment()
    (top / "g").write_bytes(b"five")
    times["inside"] = moment()
    for text in (b"three", b"four"):
        assert then(top / "g", times[text]).read_bytes() == text
    (top / "g").unlink()
    (top / "cache" / "f").write_bytes(b"six")
    for text in (b"three", b"four"):
        assert (mount.at(times[text]) / "g").read_bytes() == text
    assert (mount.at(times["inside"]) / "g").read_bytes() == b"five"


def operations(mount, path):
    return json.loads(mount.tool("vstat", "--operations", "--json", path, merge=False).stdout)["versions"]


def test_a_database_is_recorded_by_close(maker):
    mount = rules(maker, ('"*.db"', "close"), ('"plain.db"', "write"))
    for name, count in (("a.db", 2), ("plain.db", 6), ("other", 6)):
        path = mount.path / name
        path.write_bytes(b"0" * 8192)
        begin = len(operations(mount, path))
        for _ in range(2):
            with open(path, "r+b", buffering=0) as stream:
                for number in range(3):
                    stream.write(os.urandom(100 + number))
        assert len(operations(mount, path)) - begin == count, name
    output = mount.tool("wayback", "--check-config", mount.source, "a.db", "plain.db", "x").stdout
    assert "a.db: history = close" in output and "plain.db: history = write" in output and "x: history" not in output


def test_a_mistake_is_reported(maker):
    mount = rules(maker)
    mount.expect("wayback.conf")  # the daemon may have read it as well by the end
    (mount.store() / "wayback.conf").write_text('[path "a"]\nhistory = never\n', encoding="utf-8")
    output = mount.tool("wayback", "--check-config", mount.source, status=1).stdout
    assert "wayback.conf:2:11: history = never: invalid; use write" in output


def check_all(mount, seen, first=0):
    """Every state is as it was or refused, and those before the turn `first`, without rules, are not refused."""
    exact = 0
    for when, state, turn in seen:
        lacking = set()
        try:
            shown = state_of(mount.at(when), lacking)
        except OSError as error:
            assert error.errno == errno.EIO and turn >= first
            continue
        assert turn >= first or differences(state, shown) == []
        check_known(state, shown)
        assert not set(state) - set(shown) or lacking
        exact += not lacking
    assert exact > 0


@pytest.mark.parametrize("seed", range(SEEDS))
def test_any_history_with_rules_that_change(maker, seed):
    """No state is ever wrong; and files without a rule are exact."""
    rng = random.Random(seed)
    closes = seed % 3 == 2
    kind = ["ext4", "xfs", "btrfs", "tmpfs"][seed % 4]
    mount = rules(maker, kind=kind, options=("history=close",) if closes else ())
    mount.expect(REFUSED)
    probe = mount.path / "probe-left-out"
    seen = []
    operation = Syncing if closes else Operator
    operator = operation(str(mount.path), seed)
    patterns = ['"n1"', '"n[2-4]"', '"n5/"', '"n?/n6"', '"n[0-3]/"', '"*.tmp"']
    for turn in range(5):
        chosen = rng.sample(patterns, 2)
        on = turn % 2 == 1
        write_rules(mount, ('"probe-left-out"', "none" if on else "write"),
                    *([(chosen[0], "none"), (chosen[1], "none")] if on else []))
        mount.tool("rm", "-rf", probe)
        in_force(mount, probe, not on)
        for _ in range(40):
            operator.step()
            seen.append((moment(), state_of(mount.path), turn))
            moment()
        if turn == seed % 5:
            operator.close()
            mount.kill()
            mount.start()
            operator = operation(str(mount.path), seed + 1000)
    operator.close()
    check_all(mount, seen, 1)
    mount.remount()
    check_all(mount, seen, 1)
    copy = Copy(maker, mount)
    copy.path = maker.tree(kind)
    # a mapping is written back, and ends a gap, at any time
    sync_tree(mount.path)
    sync_tree(mount.source)
    copy.follow()
    with copy.used() as tree:
        tree.expect(REFUSED)
        check_all(tree, seen)
        assert differences(state_of(mount.path), state_of(tree.path)) == []
    mount.check_store()
    mount.stop()
    assert "clean" in mount.tool("vfsck", mount.source).stdout


@pytest.mark.parametrize("options", [(), ("history=close",)], ids=["write", "close"])
def test_a_copy_has_the_present_and_refuses_the_same(maker, options):
    mount = rules(maker, ('"cache/" "*.tmp"', "none"), options=options)
    copy = Copy(maker, mount)
    top = mount.path
    (top / "kept").write_bytes(b"one")
    (top / "cache" / "sub").mkdir(parents=True)
    times = []
    for text in (b"first", b"second", b"third"):
        for name in ("x.tmp", "cache/f", "cache/sub/g", "kept"):
            (top / name).write_bytes(text)
        (top / "cache" / text.decode()).write_bytes(text)
        (top / "deleted.tmp").write_bytes(text)
        (top / "deleted.tmp").write_bytes(text * 2)
        (top / "deleted.tmp").unlink()
        times.append(moment())
        copy.follow()
        with copy.used() as tree:
            tree.expect(REFUSED)
            assert differences(state_of(top), state_of(tree.path)) == []
            for when in times[:-1]:
                refused((tree.at(when) / "x.tmp").read_bytes)
                refused(lambda at=tree.at(when): os.listdir(at / "cache"))
                assert sorted(os.listdir(tree.at(when))) == ["cache", "kept", "x.tmp"]
    assert (copy.path / "cache" / "sub" / "g").read_bytes() == b"third"
