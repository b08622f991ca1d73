"""The part of a large recording that is judged: which it is, exactly what it holds, and that it
tells of a program what the whole recording tells."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuadvisor.domain.profile import Range
from gpuadvisor.profiling.reading import read_profile
from gpuadvisor.rules.engine import diagnose
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.facts import excerpt as choosing
from gpuadvisor.rules.facts.excerpt import Choice, choose, events, excerpt, judged_recordings
from gpuadvisor.rules.facts.fitness import judged
from gpuadvisor.rules.facts.parts import Part
from gpuadvisor.rules.registry import load_rules
from tests.profile_reports import H100, steps
from tests.profiles import Made
from tests.unit.rules.facts.test_account import DATA, closes

TABLES = ("kernels", "copies", "calls", "operators", "synchronizations", "ranges")
ELEMENTWISE = "void at::native::vectorized_elementwise_kernel<4>()"


def in_part(profile, most):
    """The facts of a part of about so many events, as those of a large recording are."""
    part, fitness = excerpt(profile, choose(profile, most))
    return judged(part, fitness=fitness)


def said(facts):
    """What the rules find, by rule."""
    return {each.rule: each for each in diagnose(Evidence(facts), load_rules()).findings}


def silent(facts):
    """Which rules could not look."""
    return {each.rule for each in diagnose(Evidence(facts), load_rules()).not_measured}


def is_borderline(finding, percent):
    """Whether a share is so near to the threshold of its rule."""
    shares = [each for each in finding.evidence if each.unit == "%" and each.threshold is not None]
    return any(abs(each.value - each.threshold) <= percent for each in shares)


@pytest.fixture
def small(monkeypatch):
    """All events are looked at to learn where they are, as there are few of them."""
    monkeypatch.setattr(choosing, "SAMPLED", 1)


# -- which part --------------------------------------------------------------------------------


def of_steps(lengths_us, kernels=40, marked=True):
    """A step of each length with some kernels at its begin."""
    made, at = Made(), 0.0
    for number, length in enumerate(lengths_us):
        for kernel in range(kernels):
            begin = at + 10 * kernel
            made.launched("gemm", call=(begin, 4), runs=(begin + 6, 8))
        if marked:
            made.range(f"ProfilerStep#{number}", (at, length), Range.STEP)
        at += length
    return made.profile(duration_ns=round(1000 * at))


@pytest.mark.parametrize(
    ("lengths", "share", "chosen"),
    [
        ([1000.0] * 40, 0.25, (16, 25)),  # all alike: those in the middle
        ([90_000.0, *[1000.0] * 39], 0.25, (16, 25)),  # a start
        ([1000.0] * 20 + [50_000.0] + [1000.0] * 19, 0.25, (11, 20)),  # an evaluation in the middle
        ([5000.0] * 8 + [1000.0] * 32, 0.25, (16, 25)),  # most steps are short
        ([1000.0] * 40, 0.026, (20, 20)),
    ],
)
def test_whole_steps_of_the_usual_length_are_looked_at_in_the_middle_if_possible(
    lengths, share, chosen, small
):
    profile = of_steps(lengths)
    facts = in_part(profile, int(share * events(profile)))
    part = facts.fitness.excerpt
    assert (part.first_step, part.last_step, part.of_steps) == (*chosen, 40)
    assert len(facts.steps.steps) == chosen[1] - chosen[0] + 1
    assert facts.steps.steps[0].name == f"ProfilerStep#{chosen[0] - 1}"
    assert facts.work.kernels == 40 * len(facts.steps.steps)
    assert part.events == events(facts.profile) and part.of_events == events(profile)
    closes(facts)


def test_the_sentence_has_the_numbers_of_both(small):
    profile = of_steps([90_000.0, *[1000.0] * 39])
    note = in_part(profile, events(profile) // 4).fitness.note
    assert note.startswith(
        "Steps 16 to 25 are looked at, of 40 (0.00081 of 0.00324 million events): they take 1 ms,"
        ' all 1 ms (medians; the longest, step 1, 90 ms). Below, "the run" is this part. The rest'
        " may hold what it does not show:"
    )
    assert note.endswith("look at all with `--whole`")


@pytest.mark.parametrize(("profile", "begin_ms"), [
    (of_steps([1000.0] * 40, marked=False), 15),
    (of_steps([40_000.0], kernels=1600), 6),  # one step alone is too large, and idle at its end
])  # fmt: skip
def test_without_steps_that_fit_it_is_the_time_in_the_middle(profile, begin_ms, small):
    facts = in_part(profile, events(profile) // 4)
    part = facts.fitness.excerpt
    assert part.first_step is None
    assert part.events == pytest.approx(events(profile) / 4, rel=0.2)
    assert part.begin_ns == pytest.approx(1e6 * begin_ms, rel=0.1)
    assert facts.fitness.note.startswith("The time from 0.0")
    closes(facts)


def test_what_only_the_rest_has_is_not_called_absent():
    made = Made()
    made.copied((0, 5), (6, 100))
    for number in range(40):
        made.launched("gemm", call=(1000.0 * number + 200, 4), runs=(1000.0 * number + 210, 500))
        made.range(f"ProfilerStep#{number}", (1000.0 * number, 1000), Range.STEP)
    facts = in_part(made.profile(), 30)
    assert facts.profile.rows("copies") == 0
    assert facts.not_measured["copies"] == "the part that is looked at has none of its 1 copies"
    assert "memory" in facts.not_measured  # which the recording lacks
    assert "none of its" not in facts.not_measured["memory"]


def test_a_recording_of_few_events_is_judged_whole(monkeypatch):
    profile = of_steps([1000.0] * 40)
    assert next(judged_recordings([profile])).fitness.excerpt is None
    monkeypatch.setattr(choosing, "MOST_EVENTS", events(profile))
    assert next(judged_recordings([profile])).fitness.excerpt is None
    monkeypatch.setattr(choosing, "MOST_EVENTS", events(profile) - 1)
    assert next(judged_recordings([profile])).fitness.excerpt is not None


def test_without_a_timeline_nothing_is_left_out(monkeypatch):
    profile = of_steps([1000.0] * 40)
    one_by_one = {"kernels.begin_ns": "kernels ran one by one"}
    profile.finish(replace(profile.header, not_measured=one_by_one))
    monkeypatch.setattr(choosing, "MOST_EVENTS", 100)
    assert next(judged_recordings([profile])).fitness.excerpt is None


# -- what it holds -----------------------------------------------------------------------------


@cache
def real(name):
    return read_profile(DATA / f"{name}.json.gz")


REAL = ("h100_bert_small", "h100_small_cnn_train", "mi300_bert_small", "workloads/input_bound")


@settings(max_examples=12)
@given(st.sampled_from(REAL), st.floats(0, 0.95), st.floats(0.01, 0.6))
def test_it_holds_what_was_launched_in_it_whoever_computes_that(name, begin, length):
    """Read piece by piece, it is what is computed from all columns at once."""
    whole = real(name)
    lasted = whole.header.duration_ns
    span = round(begin * lasted), round(min(begin + length, 1) * lasted)
    part = Part(whole, *span)
    found, fitness = excerpt(whole, Choice(*span))
    assert fitness.not_before_ns == part.not_before_ns
    for table in TABLES:
        assert found.rows(table) == part.rows(table)
        columns = found.columns(table)
        for column, values in part.columns(table).items():
            np.testing.assert_array_equal(columns[column], values)
            assert columns[column] is found.columns(table, (column,))[column]
    at = whole.columns("memory")["time_ns"]
    assert found.rows("memory") == int(((at >= span[0]) & (at < span[1])).sum())


@settings(max_examples=8)
@given(st.sampled_from(REAL), st.floats(0, 0.9), st.floats(0.05, 0.6))
def test_its_account_closes(name, begin, length):
    whole = real(name)
    lasted = whole.header.duration_ns
    span = round(begin * lasted), round(min(begin + length, 1) * lasted)
    part, fitness = excerpt(whole, Choice(*span))
    closes(judged(part, fitness=fitness))


# -- what it tells -----------------------------------------------------------------------------


@st.composite
def programs(draw):
    """Sixty equal steps of a program: kernels, copies and waits that are drawn once for all."""
    kernels = draw(st.integers(2, 25))
    took, pause = draw(st.sampled_from((3, 30, 300))), draw(st.sampled_from((2, 40, 700)))
    data_us = draw(st.sampled_from((0, 0, 4000)))
    waits = draw(st.booleans())
    name = draw(st.sampled_from(("gemm", ELEMENTWISE)))
    step = data_us + kernels * (pause + took + 12) + 300.0
    made = Made()
    for number in range(60):
        at = step * number
        made.range(f"ProfilerStep#{number}", (at, step), Range.STEP)
        if data_us:
            made.range("enumerate(DataLoader)#_Single.__next__", (at, data_us), Range.LOADER)
        at += data_us
        made.copied((at, 5), (at + 7, 40), bytes=1 << 20)
        for _ in range(kernels):
            at += pause
            made.operator("aten::mm", (at - 1, 8))
            made.launched(name, call=(at, 5), runs=(at + 7, took))
            if waits:
                at += took + 10
    return made.profile(devices=(H100,), duration_ns=round(60_000 * step))


@settings(max_examples=25)
@given(programs(), st.sampled_from((0.2, 0.4)))
def test_a_part_of_equal_steps_tells_what_the_whole_tells(profile, share):
    whole = judged(profile)
    facts = in_part(profile, int(share * events(profile)))
    count = len(facts.steps.steps)
    assert count == pytest.approx(60 * share, abs=8)
    edges = 100 / count + 0.5  # percent: what comes once, where the recording begins and ends
    found, of_whole = said(facts), said(whole)
    for rule in found.keys() | of_whole.keys():
        one, other = found.get(rule), of_whole.get(rule)
        if one is None or other is None:
            assert is_borderline(one or other, edges), rule
        elif one.improvement_pct is not None:
            assert one.improvement_pct.low == pytest.approx(other.improvement_pct.low, abs=edges)
            assert one.improvement_pct.high == pytest.approx(other.improvement_pct.high, abs=edges)
    assert silent(facts) == silent(whole)
    assert facts.window.busy_share == pytest.approx(whole.window.busy_share, abs=0.03)
    assert facts.window.run_ns == pytest.approx(whole.window.run_ns * count / 60, rel=0.06)
    for entry in facts.account.entries:
        same = [each for each in whole.account.entries if each.part == entry.part]
        assert sum(map(whole.account.share, same)) == pytest.approx(
            sum(facts.account.share(e) for e in facts.account.entries if e.part == entry.part),
            abs=1 / count + 0.01,  # what is once, at the end of both
        )
    closes(facts)


# -- ranks -------------------------------------------------------------------------------------


def test_of_all_ranks_the_same_steps_are_looked_at(monkeypatch):
    ranks = [steps(Made(), number=count).profile(devices=(H100,)) for count in (60, 50)]
    monkeypatch.setattr(choosing, "MOST_EVENTS", events(ranks[1]) - 1)
    first, second = judged_recordings(ranks)
    names = [[each.name for each in facts.steps.steps] for facts in (first, second)]
    assert names[0] == names[1] and 10 < len(names[0]) <= 30
    assert second.fitness.excerpt.of_steps == 50
    assert events(first.profile) + events(second.profile) <= events(ranks[1])


def test_ranks_without_steps_are_looked_at_at_the_same_time_of_day(monkeypatch):
    early = of_steps([1000.0] * 40, marked=False)
    late = Made()
    for number in range(30):
        at = 1000.0 * number
        for kernel in range(40):
            late.launched("gemm", call=(at + 10 * kernel, 4), runs=(at + 10 * kernel + 6, 8))
    begun = 1_700_000_000 * 10**9
    early.finish(replace(early.header, begin_unix_ns=begun))
    ranks = early, late.profile(begin_unix_ns=begun + 10_000_000)
    monkeypatch.setattr(choosing, "MOST_EVENTS", 1600)
    first, second = (each.fitness.excerpt for each in judged_recordings(ranks))
    assert second.begin_ns == first.begin_ns - 10_000_000
    assert second.end_ns == first.end_ns - 10_000_000
