# SPDX-License-Identifier: LGPL-2.1-or-later
"""Times, durations and sizes as people write them: in names, in all tools and in wayback.conf."""
import datetime

from mounts import SECOND, epoch, moment


def test_ages_and_hours_in_names(mount):
    """f@10min: after times and snapshots, and never in the way of a file that is to have that name."""
    file = mount.path / "f"
    file.write_bytes(b"one")
    for time in ("0min", "0 seconds ago", "0hours"):
        assert (mount.path / f"f@{time}").read_bytes() == b"one"
    for time in ("1hour", "3 days", "2x", "0.0min", "0MIN"):
        assert not (mount.path / f"f@{time}").exists(), time
    mount.tool("vsnap", "create", "0min", mount.path)
    file.write_bytes(b"two")
    assert (mount.path / "f@0min").read_bytes() == b"one"
    assert (mount.path / "f@0mins").read_bytes() == b"two"
    assert (mount.path / ".snapshot/0mins/f").read_bytes() == b"two"
    assert "two" in mount.tool("vextract", "-o", "-", "f@0hours", cwd=mount.path).stdout
    (mount.path / "d").mkdir()
    (mount.path / "d/g").write_bytes(b"g")
    assert mount.tool("vfind", "g", "d@0mins", cwd=mount.path).stdout.rstrip().endswith("  d/g")
    mount.path.chmod(0o777)
    for name in ("f@0hours", "f@2pm", "f@10min", "f@yesterday 14:03"):
        mount.tool("sh", "-c", 'printf new > "$0"', name, cwd=mount.path, user=SECOND)
        assert (mount.path / name).read_bytes() == b"new"


def test_begin_and_today(maker):
    """A history that began a moment ago."""
    source = maker.tree()
    (source / "old").write_bytes(b"old")
    mount = maker.mount(source=source)
    (mount.path / "old").write_bytes(b"changed")
    (mount.path / "new").write_bytes(b"new")
    for time in ("begin", "first", "First", "@begin", "today", "TODAY", "@today"):
        assert "new" in mount.tool("vdiff", "--stat", mount.path, time).stdout, time
        assert "old" in mount.tool("vextract", "-o", "-", mount.path / "old", "-t", time).stdout, time
        assert "old" in mount.tool("vrevert", "-n", mount.path, "-t", time).stdout, time
    assert "new" in mount.tool("vlog", "--since", "begin", mount.path).stdout
    # It begins at 6:00; before that, it is still to come.
    early = datetime.datetime.now().hour < 6
    mount.tool("vlog", "--since", "this morning", mount.path, status=2 if early else 0)
    # A snapshot of such a name is meant first; a time before the history is still refused.
    mount.tool("vsnap", "create", "first", mount.path)
    assert "new" not in mount.tool("vdiff", "--stat", mount.path, "first").stdout
    mount.tool("vrevert", mount.path / "old", "-t", "today")
    assert (mount.path / "old").read_bytes() == b"old"
    assert "before the history begins" in mount.tool("vdiff", mount.path, "yesterday", status=1).stdout


def test_what_is_not_understood(mount):
    """Three forms that would be, each of which is."""
    (mount.path / "f").write_bytes(b"x")
    forms = '14:03, "5 minutes ago" or 2026-11-20T09:30'
    for tool, *arguments in (("vdiff", "f"), ("vextract", "f", "-t"), ("vrevert", "f", "-t"), ("vlog", "f", "--since")):
        for time in ("half past", "2340", "no-such-snapshot"):
            assert forms in mount.tool(tool, *arguments, time, status=2, cwd=mount.path).stdout, (tool, time)
    for time in ("14:03", "5 minutes ago", "2026-11-20T09:30"):
        assert forms not in mount.run_tool("vlog", "--since", time, "f", cwd=mount.path).stdout


def test_durations_and_sizes(maker):
    mount = maker.mount()
    (mount.path / "f").write_bytes(b"x")
    (mount.path / "f").write_bytes(b"y")
    for keep in ("30 days", "1month", "1.5 hours", "1h30m"):
        mount.tool("vprune", "-n", "--keep", keep, mount.path)
    mount.tool("vprune", "-n", "--thin", "1hour:1month 1day:1year", mount.path)
    assert "keep = 5M" in mount.tool("vprune", "-n", "--keep", "5M", mount.path, status=2).stdout
    when = epoch(moment())
    assert "f" in mount.tool("vdiff", "--stat", mount.path, "begin", when).stdout
