# SPDX-License-Identifier: LGPL-2.1-or-later
"""The model test must catch a broken replay, and trials a broken order of writes: it is broken on purpose here, and they
must fail.

Each mutant is one small change in a copy of the sources and of their build. A random history is recorded with it, and
the test must find a state that is not restored; or a trial (tests/unit/disk.h) is run with it.
"""
import copy
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from mounts import BUILD, QUICK, run
from history_model import History

ROOT = Path(__file__).resolve().parents[2]

# The change: file, its text (which occurs once), text of the mutant.
MUTANTS = {
    "newer content goes over older": (
        "src/history/content/extent_map.c",
        "return sweep->begins[a].number > sweep->begins[b].number;",
        "return sweep->begins[a].number < sweep->begins[b].number;"),
    "changes just after the moment are left out": (
        "src/history/log_scan.c",
        "if (source->head.when <= scan->when)",
        "if (source->head.when <= scan->when + 3000000)"),
    "a snapshot is a change too early": (
        "src/daemon/jobs/snapshot.c",
        "snapshot->when = wb_store_tick(session->store);",
        "snapshot->when = wb_store_last_change(session->store) - 1;"),
    "a snapshot's moment is another in .snapshot": (
        "src/daemon/lookback/past_lookup.c",
        "r = wb_revision_at(session->history, dir, base, &moment->time, moment->scope, &revision);",
        "r = wb_revision_at(session->history, dir, base, !wb_snapdir_of(question->parent) ? &moment->time : "
        "&(struct wb_time){.instant = moment->time.instant - 300000000}, moment->scope, &revision);"),
    "what is cut off is not kept": (
        "src/capture/undo.c",
        "*ret_from = overwrite->size_after;",
        "*ret_from = size;"),
}

# The same; the unit test that must fail, and its case.
TRIAL_MUTANTS = {
    "the slot of a stage is free before its end is recorded": (
        "src/capture/stage.c",
        "    r = wb_plan_write(&plan);\n    if (r < 0)\n        return r;\n    /* The change that it records",
        "    wb_stages_remove(store, stage->slot);\n    r = wb_plan_write(&plan);\n    if (r < 0)\n        return r;\n"
        "    /* The change that it records",
        "stage_ends", "grow"),
    "a table of stages that could not be read is emptied": (
        "src/store/inflight/stages.c",
        "if (stages->was_read && g_hash_table_size",
        "if (g_hash_table_size",
        "stage_ends", "recovery of nothing"),
    "slots of changes remain": (
        "src/store/inflight/inflight.c",
        "    if (write_free(store->inflight, slot) < 0)\n",
        "    if (slot > 63 && write_free(store->inflight, slot) < 0)\n",
        "inflight_ends", "inflight"),
    "a store is open before its table of spans has that": (
        "src/store/open/store.c",
        "        r = wb_spans_open(store);\n    }\n    if (r == 0)\n"
        "        r = wb_inflight_mark_open(store->inflight, store->dir_fd);\n",
        "        r = wb_inflight_mark_open(store->inflight, store->dir_fd);\n    }\n    if (r == 0)\n"
        "        r = wb_spans_open(store);\n",
        "inflight_ends", "spans after a cut"),
    "records are received after the note that they are": (
        "src/transfer/receive/apply.c",
        "        r = wb_apply_records(applying);\n        if (r == 0)\n"
        "            r = enter(applying, received, WB_RECEIVED_TREE);\n",
        "        r = enter(applying, received, WB_RECEIVED_TREE);\n        if (r == 0)\n"
        "            r = wb_apply_records(applying);\n",
        "transfer_ends", "receive changes"),
}


@pytest.fixture(name="sources", scope="module")
def fixture_sources(tmp_path_factory):
    """A copy of sources and build, so that a mutant costs one file and a link."""
    sources = tmp_path_factory.mktemp("mutants") / "sources"
    shutil.copytree(ROOT, sources, symlinks=True, ignore=lambda directory, names: [
        n for n in names if Path(directory) == ROOT and n.startswith(("build", ".git"))])
    shutil.copytree(BUILD, sources / BUILD.name, symlinks=True)
    yield sources
    shutil.rmtree(sources)


def build_mutant(sources, file, text, mutant, target):
    original = (sources / file).read_text(encoding="utf-8")
    assert original.count(text) == 1, f"{file} has changed: choose another mutant"
    (sources / file).write_text(original.replace(text, mutant), encoding="utf-8")
    try:
        run("ninja", "-C", sources / BUILD.name, target)
    finally:
        (sources / file).write_text(original, encoding="utf-8")


@pytest.mark.skipif(BUILD.parent != ROOT, reason="the build is not in the source tree")
@pytest.mark.parametrize("name", list(TRIAL_MUTANTS)[:1] if QUICK else list(TRIAL_MUTANTS))
def test_a_trial_catches(name, sources, maker):
    *mutant, test, case = TRIAL_MUTANTS[name]
    program = f"tests/unit/test_{test}"
    build_mutant(sources, *mutant, program)
    done = subprocess.run([sources / BUILD.name / program], capture_output=True, text=True, check=False,
                          env={**os.environ, "CK_RUN_CASE": case, "WAYBACK_TEST_DIR": maker.scratch,
                               "WAYBACK_QUICK": ""})
    assert done.returncode != 0 and f":F:{case}:" in done.stdout, done.stdout


@pytest.mark.skipif(BUILD.parent != ROOT, reason="the build is not in the source tree")
@pytest.mark.parametrize("name", list(MUTANTS)[:1] if QUICK else list(MUTANTS))
def test_the_model_test_catches(name, sources, maker, programs):
    build_mutant(sources, *MUTANTS[name], "src/daemon/wayback")
    broken = copy.copy(programs)
    broken.directory = maker.scratch / "bin"
    shutil.copytree(programs.directory, broken.directory, symlinks=True)
    shutil.copy(sources / BUILD.name / "src/daemon/wayback", broken.directory)

    maker.programs = broken
    mount = maker.mount("allow_other")
    mount.expect("")  # it may notice by itself that something is missing
    history = History(mount, 5)
    with pytest.raises((pytest.fail.Exception, AssertionError, OSError)):
        history.work(200, kill=False)
        history.check_by_path()
        history.check_snapshots()
