# SPDX-License-Identifier: LGPL-2.1-or-later
"""Whole stores and streams that an attacker made up, with checksums that are right: a few of tests/soak/hostile's
cases."""
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mounts import BUILD, LIMIT, QUICK

HOSTILE = Path(__file__).resolve().parents[1] / "soak/hostile"
CASES = 4 if QUICK else 12


def hostile(build, first, cases, place):
    return subprocess.run([sys.executable, HOSTILE, "--first", str(first), "--seeds", str(cases), "--jobs", "1"], text=True, check=False,
                          stdout=subprocess.PIPE, env=dict(os.environ, WAYBACK_BUILD=str(build), WAYBACK_TEST_DIR=str(place)),
                          timeout=cases * LIMIT)


@pytest.mark.parametrize("first", [1, 1001])
def test_a_hostile_store_or_stream_gives_right_bytes_or_an_error(maker, first):
    result = hostile(BUILD, first, CASES // 2, maker.tree("tmpfs"))
    assert result.returncode == 0 and re.search(rf"^{CASES // 2} cases, 0 failures", result.stdout, re.M), result.stdout


# A list of changes that was never built (11304), a time that no sum holds (12146), an object that is a file by one record
# and a directory by another (12334).
@pytest.mark.parametrize("seed", [11304, 12146, 12334])
def test_cases_that_once_failed(maker, seed):
    result = hostile(BUILD, seed, 1, maker.tree("tmpfs"))
    assert result.returncode == 0 and re.search(r"^1 cases, 0 failures", result.stdout, re.M), result.stdout


def test_a_daemon_that_dies_is_noticed(maker):
    """Only the daemon is replaced: by one that ends by a signal instead of mounting."""
    build = maker.tree("tmpfs") / "build"
    shutil.copytree(BUILD / "bin", build / "bin", symlinks=True)
    (build / "tests/fuzz").mkdir(parents=True)
    shutil.copy(BUILD / "tests/fuzz/hostile", build / "tests/fuzz/hostile")
    (build / "bin/wayback").unlink()
    (build / "bin/wayback").write_text("#!/bin/sh\nkill -SEGV $$\n", encoding="ascii")
    (build / "bin/wayback").chmod(0o755)
    result = hostile(build, 1, 1, maker.tree("tmpfs"))
    assert result.returncode == 1 and "1 cases, 1 failures" in result.stdout and "status -11" in result.stdout
