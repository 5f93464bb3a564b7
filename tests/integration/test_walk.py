# SPDX-License-Identifier: LGPL-2.1-or-later
"""A short walk over everything that can happen to a tree (tests/walk). tests/soak/walk continues for any length of
time."""
import os
import sys
from pathlib import Path

import pytest

from mounts import QUICK

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "walk"))

# pylint: disable=wrong-import-position
import walk

EPISODES = 6 if QUICK else 14


@pytest.fixture(name="walk_of")
def fixture_walk_of(maker):
    walks = []

    def make(kind, seed, **options):
        walks.append(walk.Walk(maker, kind, seed, **options))
        return walks[-1]

    yield make
    for each in walks:
        each.close()


@pytest.mark.parametrize("seed", (1,) if QUICK else (1, 2))
def test_no_state_is_wrong_whatever_happened(walk_of, kind, seed):
    walker = walk_of(kind, seed)
    outcome = walker.run(EPISODES)
    assert not outcome.wrong, walker.explain(outcome.wrong)
    assert not outcome.unexcused, walker.explain(outcome.unexcused)
    assert outcome.right > 0


@pytest.mark.parametrize("seed", (1,) if QUICK else (1, 2))
def test_nothing_is_refused_if_everything_was_recorded(walk_of, kind, seed):
    walker = walk_of(kind, seed, sound=True)
    outcome = walker.run(EPISODES)
    assert not outcome.wrong, walker.explain(outcome.wrong)
    assert not outcome.unexcused, walker.explain(outcome.unexcused)


def test_one_changed_byte_of_an_answer_is_found(walk_of):
    outcome = walk_of("ext4", 3, sound=True).run(4, walk.Spoiler())
    assert len(outcome.wrong) == 1 and "content is" in outcome.wrong[0]


@pytest.mark.parametrize("kind", walk.CUTTABLE)
def test_a_power_cut_leaves_the_disk_as_it_was(maker, kind):
    """A walk would take what the file system itself destroys for a wrong version."""
    place = walk.Place(maker, kind, f"cut-{kind}-{os.getpid()}")
    root = place.disk("src", 320)
    path, synced, lost = root / "file", os.urandom(70000), b"cut off"
    try:
        with open(path, "wb", buffering=0) as stream:
            stream.write(synced)
            os.fsync(stream.fileno())
        path.write_bytes(lost)
        place.cut(root)
        place.back(root)
        assert path.read_bytes() in (synced, lost)
    finally:
        place.close()
