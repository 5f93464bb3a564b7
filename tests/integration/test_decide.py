# SPDX-License-Identifier: LGPL-2.1-or-later
"""Which versions of one file are kept (src/policy/decide.h): against a model that computes it the long way, and the
properties of every decision, whatever the policy and the history."""
import subprocess
from dataclasses import dataclass, replace

import pytest

from mounts import BUILD, LIMIT

hypothesis = pytest.importorskip("hypothesis", reason="not installed: hypothesis (scripts/install-deps --tests)")
st = hypothesis.strategies

PRESENT = 2**63 - 1
EXAMPLES = hypothesis.settings(max_examples=300, deadline=None, database=None, derandomize=True,
                               suppress_health_check=list(hypothesis.HealthCheck))
DAY = 86400 * 10**9


@dataclass(frozen=True)
class Policy:
    keep: int = -1  # not set
    thin: tuple = ()
    least: int = 0
    most: int = 0

    def aged(self):
        return self.keep >= 0 or bool(self.thin)


class Probe:
    """The function itself, a question and an answer at a time."""

    def __init__(self):
        self.process = subprocess.Popen([BUILD / "tests/unit/decide_probe"], text=True, bufsize=1,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def kept(self, policy, shown, now, pins=()):
        """The versions, of (from, until), that are kept."""
        words = [now, policy.keep, policy.least, policy.most, len(policy.thin)]
        words += [f"{step}:{span}" for step, span in policy.thin]
        words += [len(shown)] + [f"{start}:{end}" for start, end in shown]
        words += [len(pins)] + sorted(pins)
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        line = self.process.stdout.readline()
        assert line, "the probe ended"
        return [shown[int(word)] for word in line.split()]

    def close(self):
        self.process.stdin.close()
        assert self.process.wait(LIMIT) == 0


@pytest.fixture(scope="module", name="probe")
def fixture_probe():
    probe = Probe()
    yield probe
    probe.close()


def shown_of(whens, now):
    """The versions that exist at a moment, given the times of all changes."""
    there = [when for when in whens if when <= now]
    return list(zip(there, there[1:] + [PRESENT]))


def held(policy, shown, now, pins):
    """Versions that are kept in any case. A version shows until the next one that exists."""
    nexts = [start for start, _ in shown[1:]] + [PRESENT]
    return [(start, end) for i, (start, end) in enumerate(shown)
            if len(shown) - i <= max(policy.least, 1) or any(start <= pin < nexts[i] for pin in pins)
            or any(start <= moment < end for moment in range(max(now - policy.keep, 0), now + 1) if policy.keep > 0)]


def model(policy, shown, now, pins):
    """The same decision, by looking at every instant."""
    kept = set(held(policy, shown, now, pins))
    others = []
    for start, end in set(shown) - kept:
        until = [PRESENT] if not policy.aged() else [
            moment + span for step, span in policy.thin for moment in range(start, end) if (moment + 1) % step == 0]
        if until and max(until) >= now:
            others.append((max(until), start, end))
    others.sort(reverse=True)
    if policy.most:
        others = others[:max(policy.most - max(policy.least, 1), 0)]
    return sorted(kept | {(start, end) for _, start, end in others})


whens_of_any = st.lists(st.integers(0, 150), min_size=1, max_size=40, unique=True).map(sorted)
pins_of_any = st.lists(st.integers(0, 150), max_size=4, unique=True)


@st.composite
def policies(draw, most=True):
    steps = sorted(draw(st.sets(st.integers(1, 40), max_size=3)))
    spans = sorted(draw(st.sets(st.integers(1, 200), min_size=len(steps), max_size=len(steps))))
    least = draw(st.integers(0, 6))
    return Policy(keep=draw(st.sampled_from([-1, 1, 5, 30, 200])), thin=tuple(zip(steps, spans)), least=least,
                  most=draw(st.sampled_from([0, max(least, 1), max(least, 1) + 3, 20])) if most else 0)


@EXAMPLES
@hypothesis.given(policies(), whens_of_any, st.integers(0, 400), pins_of_any, st.data())
def test_it_agrees_with_the_model(probe, policy, whens, later, pins, data):
    now = whens[-1] + later
    shown = shown_of(whens, now)
    # In a log that was thinned before, something is missing between the versions.
    gone = data.draw(st.sets(st.sampled_from(shown)))
    shown = [version for version in shown if version not in gone or version[1] == PRESENT]
    assert probe.kept(policy, shown, now, pins) == model(policy, shown, now, pins)


@EXAMPLES
@hypothesis.given(policies(), whens_of_any, st.integers(0, 400), pins_of_any)
def test_pins_ages_and_numbers_hold(probe, policy, whens, later, pins):
    now = whens[-1] + later
    shown = shown_of(whens, now)
    kept = probe.kept(policy, shown, now, pins)
    assert kept[-1] == shown[-1]
    assert set(shown[-policy.least:] if policy.least else []) <= set(kept)
    for start, end in shown:
        wanted = any(start <= pin < end for pin in pins) or start > now - policy.keep
        assert not wanted or (start, end) in kept
    if policy.most:
        beside = set(kept) - set(held(replace(policy, least=0), shown, now, pins)[:-1])
        assert len(beside) <= max(policy.most, policy.least, 1)


@EXAMPLES
@hypothesis.given(policies(), whens_of_any, st.lists(st.integers(0, 300), min_size=2, max_size=4).map(sorted), pins_of_any)
def test_the_result_does_not_depend_on_how_often_it_runs(probe, policy, whens, moments, pins):
    """And so a version that was dropped once is not needed later, and deciding again changes nothing."""
    left, known, last = [], [], moments[-1]
    for now in moments:
        new = [when for when in whens if when <= now and when not in known]
        known += new
        ends = dict(shown_of(whens, now))
        left = [(start, ends[start]) for start, _ in left] + [(start, ends[start]) for start in new]
        left = probe.kept(policy, left, now, pins)
        assert probe.kept(policy, left, now, pins) == left
    assert left == probe.kept(policy, shown_of(whens, last), last, pins)


@EXAMPLES
@hypothesis.given(policies(most=False), whens_of_any, st.integers(0, 400), pins_of_any, st.data())
def test_a_policy_of_more_keeps_more(probe, policy, whens, later, pins, data):
    now = whens[-1] + later
    shown = shown_of(whens, now)
    longer = replace(policy, keep=policy.keep + data.draw(st.integers(0, 20)) if policy.keep > 0 else policy.keep,
                     thin=tuple((step, span + data.draw(st.integers(0, 9)) * (i + 1))
                                for i, (step, span) in enumerate(policy.thin)) +
                     data.draw(st.sampled_from([(), ((50, 500),)])) * bool(policy.aged()),
                     least=policy.least + data.draw(st.integers(0, 3)))
    more_pins = sorted(set(pins) | set(data.draw(pins_of_any)))
    assert set(probe.kept(policy, shown, now, pins)) <= set(probe.kept(longer, shown, now, more_pins))
    fewer, less = replace(policy, most=policy.least + 5), replace(policy, most=policy.least + 2)
    assert set(probe.kept(less, shown, now, pins)) <= set(probe.kept(fewer, shown, now, pins))


def test_a_version_is_as_young_as_its_end(probe):
    """A text of last year, overwritten a minute ago, can be restored for as long as keep says."""
    now = 600 * DAY
    shown = shown_of([DAY, now - 60 * 10**9], now)
    assert probe.kept(Policy(keep=30 * DAY), shown, now) == shown
    assert probe.kept(Policy(keep=30 * DAY), shown, now + 30 * DAY) == shown[1:]


def test_landmarks_are_the_last_of_each_hour_and_day(probe):
    hour = DAY // 24
    now = 1000 * DAY
    whens = list(range(now - 100 * DAY, now, hour // 4))
    kept = probe.kept(Policy(thin=((hour, 2 * DAY), (DAY, 30 * DAY))), shown_of(whens, now), now)
    starts = [start for start, _ in kept]
    assert all((start + hour // 4) % hour == 0 for start in starts)
    assert sum(start >= now - 2 * DAY for start in starts) == 48
    assert sum(start >= now - 30 * DAY for start in starts) == 48 + 28
    assert len(starts) == 48 + 28


def test_an_empty_policy_keeps_all_and_a_clock_set_back_no_less(probe):
    whens = list(range(10, 20000, 7))
    assert probe.kept(Policy(), shown_of(whens, 10**6), 10**6) == shown_of(whens, 10**6)
    shown = shown_of(whens, 10**6)
    assert probe.kept(Policy(keep=70), shown, 0) == shown
    assert probe.kept(Policy(keep=70), shown, 1000) == [one for one in shown if one[1] > 1000 - 70]
    assert probe.kept(Policy(keep=PRESENT), shown, PRESENT - 1) == shown
    assert probe.kept(Policy(thin=((1, PRESENT),)), shown, PRESENT - 1) == shown
    assert probe.kept(Policy(most=5), shown, 10**6) == shown[-5:]
    assert probe.kept(Policy(least=3, most=5, keep=1), shown, 10**6) == shown[-3:]
