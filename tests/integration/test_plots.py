# SPDX-License-Identifier: LGPL-2.1-or-later
"""Plots in text: vlog --graph-time and vdf --plot, and that their numbers are those of the lists."""
import json
import os
import re

import pytest

from mounts import epoch, moment, nanoseconds, run
from test_clock import Shifted

HOUR = 3600


@pytest.fixture(name="shifted")
def fixture_shifted(maker):
    mount = maker.mount("allow_other", start=False)
    mount.programs = Shifted(mount.programs, maker.tree())
    return mount.start()


def documents(mount, *arguments):
    return [json.loads(line) for line in mount.tool("vlog", "--json", *arguments, mount.path, merge=False).stdout.splitlines()]


def live(mount, hours):
    for hour in hours:
        mount.programs.set(hour * HOUR)
        for number in range(hour % 3 + 1):
            run("touch", mount.path / f"f{hour}-{number}")
        run("sh", "-c", f"echo {hour} > {mount.path}/f{hour}-0")


@pytest.mark.parametrize("hours,seconds", [((0,), 60), ((0, 1, 2, 9), HOUR), ((0, 5, 70, 200), 24 * HOUR),
                                           ((0, 100 * 24, 101 * 24), 7 * 24 * HOUR)])
def test_numbers_are_those_of_the_list(shifted, hours, seconds):
    """Each change is in one bar, of the period that it was made in; empty periods are left out."""
    live(shifted, hours)
    changes = documents(shifted)
    periods = documents(shifted, "--graph-time")
    assert sum(period["changes"] for period in periods) == len(changes)
    assert [nanoseconds(period) for period in periods] == sorted((nanoseconds(period) for period in periods), reverse=True)
    for period in periods:
        begin = nanoseconds(period)
        inside = [change for change in changes if 0 <= nanoseconds(change) - begin < seconds * 10**9]
        programs = {}
        for change in inside:
            name = os.path.basename(change["command"].split(" ")[0])
            programs[name] = programs.get(name, 0) + 1
        assert period["seconds"] == seconds and period["changes"] == len(inside)
        assert {row["program"]: row["changes"] for row in period["programs"]} == programs
    lines = shifted.tool("vlog", "--graph-time", shifted.path).stdout.splitlines()
    assert [int(line.split()[2 if seconds < 24 * HOUR else 1]) for line in lines[1:] if not line.startswith("...")] == \
        [period["changes"] for period in periods]
    assert max(line.count("█") for line in lines) == 30
    assert all(re.search("[▏▎▍▌▋▊▉█]", line) for line in lines[1:] if not line.startswith("..."))
    if hours == (0, 1, 2, 9):
        assert sum(line.startswith("...") for line in lines) == 1


def test_filters_and_usage(mount):
    run("touch", mount.path / "a")
    when = moment()
    run("cp", mount.path / "a", mount.path / "b")
    assert [row["program"] for period in documents(mount, "--graph-time", "--since", epoch(when)) for row in period["programs"]] == ["cp"]
    assert [row["program"] for period in documents(mount, "--graph-time", "--command", "touch") for row in period["programs"]] == ["touch"]
    assert "No changes" in mount.tool("vlog", "--graph-time", "--command", "nothing", mount.path).stdout
    for option in ("-f", "-v", "--operations", "--limit=3"):
        assert "--graph-time excludes" in mount.tool("vlog", "--graph-time", option, mount.path, status=2).stdout
    plain = mount.tool("vlog", "--graph-time", mount.path, env=dict(mount.programs.environment(), LC_ALL="C")).stdout
    assert "#" in plain and plain.isascii()


def test_bars_of_usage(mount):
    """The same rows as without bars, of which the largest has the longest bar."""
    (mount.path / "d").mkdir()
    for name in ("d/large", "small"):
        (mount.path / name).write_bytes(os.urandom(1 << 18 if name == "d/large" else 1 << 10))
        (mount.path / name).write_bytes(b"x")
    plain = mount.tool("vdf", mount.path).stdout.splitlines()
    plot = mount.tool("vdf", "--plot", mount.path).stdout.splitlines()
    # The numbers grow meanwhile, as the daemon writes its tables.
    assert [re.sub("[ ▏▎▍▌▋▊▉█]+", " ", re.sub(r"\d\S*( [KMG]iB| B)?", "", line)).strip() for line in plot] == \
        [re.sub(" +", " ", re.sub(r"\d\S*( [KMG]iB| B)?", "", line)).strip() for line in plain]
    [whole] = [line for line in plot if line.endswith("in all")]
    assert whole.count("█") == 24 and all(line.count("█") <= 24 for line in plot)
    mount.tool("vdf", "--plot", "--json", mount.path, status=2)
