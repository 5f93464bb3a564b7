# SPDX-License-Identifier: LGPL-2.1-or-later
"""tests/soak/run knows every long test, and notices failures."""
import importlib.machinery
import importlib.util
import re
from pathlib import Path

import pytest

SOAK = Path(__file__).resolve().parents[1] / "soak"


@pytest.fixture(name="run", scope="module")
def fixture_run():
    loader = importlib.machinery.SourceFileLoader("soak_run", str(SOAK / "run"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("soak_run", loader))
    loader.exec_module(module)
    return module


def test_every_long_test_is_run(run):
    assert {path.name for path in SOAK.iterdir() if path.is_file()} - {"run"} == {soak.program for soak in run.SOAKS}
    names = [soak.name for soak in run.SOAKS]
    assert len(set(names)) == len(names)


def test_the_list_shows_how_long_it_takes(run, capsys):
    assert run.main(["--list", "--hours", "2"]) == 0
    assert "together: 2.0 hours" in capsys.readouterr().out
    for soak in run.SOAKS:
        assert soak.scaled(run.QUICK)


@pytest.mark.parametrize("output, status, found_out, cases, failures", [
    ("a: 3 cases, 0 failures\nsingles on ext4: 3 cases, 0 failures, 1 s", 0, False, 3, 0),
    ("a: 3 cases, 2 failures\nsingles on ext4: 3 cases, 2 failures, 1 s", 1, False, 3, 2),
    ("singles on ext4: 3 cases, 0 failures, 1 s", 1, False, 3, 1),
    ("a: 3 cases, 0 failures", 1, False, 0, 1),
    ("", 0, False, 0, 1),
    ("singles on ext4: 3 cases, 2 failures, 1 s", 1, True, 3, 0),
    ("singles on ext4: 3 cases, 0 failures, 1 s", 0, True, 3, 1),
])
def test_failures_are_noticed(run, tmp_path, monkeypatch, capsys, output, status, found_out, cases, failures):
    (tmp_path / "it").write_text(f"#!/bin/sh\ncat <<'END'\n{output}\nEND\nexit {status}\n", encoding="ascii")
    (tmp_path / "it").chmod(0o755)
    monkeypatch.setattr(run, "HERE", tmp_path)
    monkeypatch.setattr(run, "SOAKS", [run.crash("singles", 1)._replace(program="it", found_out=found_out)])
    assert run.main(["--logs", str(tmp_path / "logs")]) == (1 if failures else 0)
    last = capsys.readouterr().out.split("together")[1].split()
    assert last[:2] == [str(cases), str(failures)]


def test_each_prints_a_summary_that_is_understood(run):
    said = {"crash pairs": "pairs on ext4: 12 cases, 0 failures, 3 s",
            "cuts": "xfs: 12 cuts, 3 states looked at, 2 of them promised, 1 refused (0 for changes beside them), 0 failures, 9 s",
            "walk": "xfs: 12 looks, 9 right, 3 refused (3 excused), 0 failures, 1 walks, 9 s",
            "many crowd": "crowd, 8 processes: 12 operations in order, 9 s",
            "many models": "models, 64 processes: 12 of 40 states found again, 9 s",
            "systemd": "12 cases, 0 failures; away for 300 ms in the middle, 320 ms at most",
            "hostile": "12 cases, 0 failures; 4 refused altogether, 60 s",
            "memory": "round 12: 5 KiB, 7 descriptors\n12 rounds, +3 KiB from the second quarter of them to the last",
            "fuzz": "stat::number_of_executed_units: 12\nstat::average_exec_per_sec: 3"}
    for soak in run.SOAKS:
        if soak.name in said:
            assert run.judge(soak, 0, said[soak.name], 1)[1:3] == (12, 0), soak.name


def test_each_target_for_hostile_bytes_has_a_corpus_and_is_fuzzed():
    fuzz = SOAK.parent / "fuzz"
    targets = set(re.findall(r"^  '(\w+)': \[files", (fuzz / "meson.build").read_text(encoding="utf-8"), re.M))
    assert {"store", "log", "stream", "control", "config", "when"} <= targets
    assert {path.name for path in (fuzz / "corpus").iterdir() if any(path.iterdir())} == targets
    assert set(re.search(r"\|\| set -- (.*)", (SOAK / "fuzz").read_text(encoding="utf-8"))[1].split()) == targets
