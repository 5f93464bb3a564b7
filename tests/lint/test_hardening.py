# SPDX-License-Identifier: LGPL-2.1-or-later
"""The programs are built with the protections against exploits that the compiler and the linker offer."""
import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("WAYBACK_BUILD") or ROOT / "build")
PROGRAMS = sorted(path for path in (BUILD / "bin").glob("*") if path.read_bytes()[:4] == b"\x7fELF")
OPTIONS = (BUILD / "options").read_text(encoding="utf-8") if (BUILD / "options").exists() else ""

pytestmark = pytest.mark.skipif("b_sanitize" in OPTIONS, reason="sanitizers check in their own ways")


def readelf(path, *options):
    return subprocess.run(["readelf", "-W", *options, path], check=True, text=True, stdout=subprocess.PIPE).stdout


@pytest.fixture(name="program", params=PROGRAMS + sorted((BUILD / "src").glob("libwayback.so.?.?.?")), ids=lambda path: path.name)
def fixture_program(request):
    return request.param.resolve()


def test_there_are_programs():
    assert any(path.name == "wayback" for path in PROGRAMS), BUILD


def test_it_is_loaded_at_any_address(program):
    assert "DYN (" in readelf(program, "-h")


def test_resolved_symbols_are_read_only(program):
    headers, dynamic = readelf(program, "-l"), readelf(program, "-d")
    assert "GNU_RELRO" in headers
    assert re.search(r"\bBIND_NOW\b|FLAGS_1\).*\bNOW\b", dynamic)


def test_no_segment_can_be_written_and_executed(program):
    flags = re.findall(r"^  (?:LOAD|GNU_STACK) .* ([R ][W ][E ]) 0x", readelf(program, "-l"), re.M)
    assert len(flags) > 2 and "RWE" not in flags


def test_its_stack_is_guarded_and_its_copies_are_checked():
    symbols = readelf((BUILD / "bin/wayback").resolve(), "--dyn-syms")
    assert "__stack_chk_fail" in symbols
    assert re.search(r"__(memcpy|snprintf|pread64|vsnprintf|read)_chk", symbols)
