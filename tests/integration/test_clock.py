# SPDX-License-Identifier: LGPL-2.1-or-later
"""The wall clock is set back by an hour: the order of changes and the meaning of times are still right.

The machine's clock is not touched: daemon and tools run with one that a preloaded library shifts.
"""
import json
import os
import struct
import time
from pathlib import Path

import pytest

from mounts import LIMIT, epoch, nanoseconds, run

HOUR = 3600


class Shifted:
    """Programs whose wall clock is so many seconds ahead."""

    def __init__(self, programs, directory):
        self.programs = programs
        self.library, self.file = programs.directory / "shifted_clock.so", directory / "shift"
        if not self.library.exists():
            run("cc", "-shared", "-fPIC", "-O1", "-o", self.library, Path(__file__).with_name("shifted_clock.c"))
        self.boot = 0
        self.set(0)

    def __getattr__(self, name):
        return getattr(self.programs, name)

    def set(self, seconds):
        """Forward: so much time has passed, by every clock. Back: the wall clock was set back."""
        self.boot = max(self.boot, seconds)
        self.set_wall(seconds)

    def set_wall(self, seconds):
        """The wall clock alone is set."""
        with open(self.file, "r+b" if self.file.exists() else "wb", buffering=0) as stream:
            stream.write(struct.pack("qq", self.boot, seconds))

    def environment(self):
        environment = self.programs.environment()
        return dict(environment, LD_PRELOAD=str(self.library), SHIFTED_CLOCK=str(self.file))


@pytest.fixture(name="shifted")
def fixture_shifted(maker):
    mount = maker.mount("allow_other", start=False)
    mount.programs = Shifted(mount.programs, maker.tree())
    mount.programs.set(HOUR - 600)
    return mount.start()


def versions(mount, path):
    return json.loads(mount.tool("vstat", "--json", "--operations", path, merge=False).stdout)["versions"]


def changes(mount):
    return [json.loads(line) for line in mount.tool("vlog", "--json", mount.path, merge=False).stdout.splitlines()]


def write(path, text):
    fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    os.pwrite(fd, text, 0)
    os.close(fd)


TEXTS = [b"%d%d%d" % (i, i, i) for i in range(6)]


def live_through_it(mount):
    """f holds one text after the other; the clock is set back after the third. Later, it is mounted again."""
    write(mount.path / "f", TEXTS[0])
    mount.programs.set(HOUR)
    write(mount.path / "f", TEXTS[1])
    write(mount.path / "f", TEXTS[2])
    (mount.path / "old").mkdir()
    mount.programs.set(0)
    write(mount.path / "f", TEXTS[3])
    os.rename(mount.path / "old", mount.path / "new")
    write(mount.path / "f", TEXTS[4])
    mount.remount()
    write(mount.path / "f", TEXTS[5])


def check_order(mount):
    found = versions(mount, mount.path / "f")
    whens = [nanoseconds(v) for v in found]
    assert whens == sorted(whens, reverse=True) and len(set(whens)) == len(whens)
    rows = changes(mount)
    assert [nanoseconds(r) for r in rows] == sorted({nanoseconds(r) for r in rows}, reverse=True)
    writes = [v for v in found if v["op"] in ("write", "append", "extend")]
    assert len(writes) == len(TEXTS), found
    for version, text in zip(reversed(writes), TEXTS):
        assert (mount.path / f"f@{epoch(nanoseconds(version))}").read_bytes() == text
        if text != TEXTS[0]:
            before = TEXTS[TEXTS.index(text) - 1]
            assert (mount.path / f"f@{epoch(nanoseconds(version) - 1)}").read_bytes() == before
            assert (mount.path / f"f@~{version['change']}").read_bytes() == before
    return {text: nanoseconds(version) for version, text in zip(reversed(writes), TEXTS)}


def test_order_and_times_are_right(shifted):
    mount = shifted
    live_through_it(mount)
    when = check_order(mount)
    names = {r["op"]: nanoseconds(r) for r in changes(mount) if r["op"] in ("mkdir", "rename")}
    assert (mount.path / f"@{epoch(names['rename'] - 1)}/old").is_dir()
    assert (mount.path / f"@{epoch(names['rename'])}/new").is_dir()
    # An age counts from the newest change on, which the clock will reach in an hour.
    assert (mount.path / "f@5m").read_bytes() == TEXTS[0]
    assert (mount.path / "f@0s").read_bytes() == TEXTS[5]
    with pytest.raises(FileNotFoundError):
        (mount.path / "f@20m").stat()
    # A time after the last change is the future, before and after the clock reaches it.
    with pytest.raises(FileNotFoundError):
        (mount.path / f"f@{epoch(when[TEXTS[5]] + 10**12)}").stat()
    for text in (TEXTS[1], TEXTS[3], TEXTS[4]):
        said = mount.tool("vextract", "--time", epoch(when[text]), "-o", "-", mount.path / "f", merge=False).stdout
        assert said.encode() == text
    mount.programs.set(HOUR + 60)
    write(mount.path / "f", b"666")
    found = versions(mount, mount.path / "f")
    assert nanoseconds(found[0]) - when[TEXTS[5]] > 50 * 10**9
    assert (mount.path / "f@30s").read_bytes() == TEXTS[5]


def test_a_revert_to_a_time_and_back(shifted):
    mount = shifted
    live_through_it(mount)
    when = check_order(mount)
    said = json.loads(mount.tool("vrevert", "--json", "--time", epoch(when[TEXTS[3]]), mount.path / "f", merge=False).stdout)
    assert (mount.path / "f").read_bytes() == TEXTS[3]
    mount.tool("vrevert", "--time", epoch(when[TEXTS[5]]), mount.path / "f")
    assert (mount.path / "f").read_bytes() == TEXTS[5]
    mount.tool("vrevert", "--time", "5m", mount.path / "f")
    assert (mount.path / "f").read_bytes() == TEXTS[0]
    text = mount.tool("vrevert", "--time", epoch(when[TEXTS[2]]), mount.path / "f").stdout
    undo = next(line for line in text.splitlines() if "vrevert " in line and "--time" in line)
    mount.tool(*undo[undo.index("vrevert"):].split())
    assert (mount.path / "f").read_bytes() == TEXTS[0], (said, text)


def test_a_moment_before_the_clock_was_set_back_can_be_mounted(shifted, maker):
    mount = shifted
    live_through_it(mount)
    when = check_order(mount)
    for text in (TEXTS[2], TEXTS[4]):
        then = maker.mount("allow_other", f"at={epoch(when[text])}", source=mount.source, start=False)
        then.programs = mount.programs
        then.start()
        assert (then.path / "f").read_bytes() == text
        then.stop()


def test_snapshots_keep_their_order_and_their_number(shifted):
    mount = shifted
    conf = mount.store() / "wayback.conf"
    conf.write_text("[snapshots]\nhourly = 5\n", encoding="utf-8")
    live_through_it(mount)
    mount.tool("vsnap", "create", "mine", mount.path)
    write(mount.path / "f", b"777")
    listed = json.loads(mount.tool("vsnap", "list", "--json", mount.path, merge=False).stdout)["snapshots"]
    whens = {s["name"]: nanoseconds(s) for s in listed}
    assert whens["mine"] > check_order_of(mount)
    assert (mount.path / "f@mine").read_bytes() == TEXTS[5]
    # The schedule has two hours to look at, or three, however often it looks; and it looks every four seconds.
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        write(mount.path / "f", b"%03d" % (int(time.monotonic()) % 1000))
        time.sleep(0.3)
    text = mount.tool("vsnap", "list", "--json", mount.path, merge=False).stdout
    assert text.count('"hourly-') <= 3 * text.count('"mine"')


def check_order_of(mount):
    return max(nanoseconds(v) for v in versions(mount, mount.path / "f")[1:])


def test_background_work_continues(shifted):
    """A thread that waits for the wall clock to reach a time would sleep for an hour more."""
    mount = shifted
    timeline = mount.store() / "timeline"
    mount.programs.set(2 * HOUR)

    def size():
        return sum(p.stat().st_size for p in timeline.rglob("*") if p.is_file()) if timeline.exists() else 0

    for i in range(3):
        before = size()
        for k in range(50):
            write(mount.path / f"f{k}", b"%d" % i)
        deadline = time.monotonic() + LIMIT
        while size() <= before:
            assert time.monotonic() < deadline, "the timeline is no longer kept"
            time.sleep(0.1)
        time.sleep(0.5)
        mount.programs.set(2 * HOUR - 600 * i)
