"""What a gate decides from pairs of runs, and how often it is wrong."""

import math
import random
import re
import sys
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuadvisor.domain.gate import GateRun, GateVerdict
from gpuadvisor.domain.knobs import AppliedKnob
from gpuadvisor.domain.measurement import StepWindow, Trace
from gpuadvisor.domain.study import InTurns, Trial, TrialState
from gpuadvisor.errors import UsageError
from gpuadvisor.tuners.gate import comparing
from gpuadvisor.tuners.gate.comparing import KNOWN as KNOWN_RUNS
from gpuadvisor.tuners.gate.comparing import MAX_FAILURES, Comparing
from gpuadvisor.tuners.gate.decision import LOOKS, Run, RunPair, clock_share, compare
from gpuadvisor.tuners.gate.metric import Evidence
from gpuadvisor.tuners.gate.metrics import load_metrics
from gpuadvisor.tuners.gate.metrics.step_time import time_of
from gpuadvisor.tuners.proof import MAX_REPEATED
from tests.benchmark_files import loaded
from tests.simulation import measurement

KNOWN = [Run(1.0), Run(1.001)]
FIRST = (True, False, False, True)


@pytest.fixture(scope="module")
def rates():
    yield loaded("gate_decision")
    del sys.modules["gate_decision"]


def pairs(count, slower=0.0, noise=(0.001, -0.002, 0.0, 0.002, -0.001)):
    """So many pairs of runs that hardly differ but for the head's being slower."""
    return [
        RunPair(Run(1 + noise[n % 5]), Run((1 + slower) * (1 + noise[(n + 2) % 5])), FIRST[n % 4])
        for n in range(count)
    ]


def clocked(count, share, shift=0.0, slower=0.0):
    """Pairs at clocks that move by 10 %, and times that follow them by a share."""
    found = []
    for n in range(count):
        base, head = 1500 + 37 * (n * 7 % 5), (1500 + 37 * (n * 3 % 5)) * (1 - shift)
        runs = (Run(2.0 * (1500 / c) ** share * (1 + s), c) for c, s in ((base, 0), (head, slower)))
        found.append(RunPair(*runs, FIRST[n % 4]))
    return found


class TestOneLook:
    @pytest.mark.parametrize(
        ("count", "slower", "verdict"),
        [
            (4, 0.0, GateVerdict.PASS),
            (4, -0.3, GateVerdict.PASS),
            (4, 1.0, GateVerdict.FAIL),
            (4, 0.05, GateVerdict.FAIL),
            (8, 0.03, GateVerdict.FAIL),
            (8, 0.0, GateVerdict.PASS),
        ],
    )
    def test_a_quiet_machine(self, count, slower, verdict):
        found = compare("step_time", pairs(count, slower), KNOWN)
        assert found.verdict is verdict
        assert found.low <= found.ratio <= found.high
        assert found.ratio == pytest.approx(1 + slower, rel=0.002)

    def test_without_earlier_runs_four_pairs_show_no_regression(self):
        """A neighbour that works beside one side in all of four pairs has a chance of 1 in 16."""
        assert compare("step_time", pairs(4, 1.0)).verdict is GateVerdict.INCONCLUSIVE

    def test_runs_that_differ_much_show_nothing(self):
        found = compare("step_time", pairs(4, 0.02, (0.1, -0.2, 0.0, 0.2, -0.1)), KNOWN)
        assert found.verdict is GateVerdict.INCONCLUSIVE

    @pytest.mark.parametrize(
        ("count", "slower", "verdict"),
        [
            # Above the tolerance at the look's own error of 0.018, but hardly slower for sure.
            (15, 0.14, GateVerdict.INCONCLUSIVE),
            (15, 0.22, GateVerdict.FAIL),
            # Below the limit at the look's error of 0.2, but 10 % slower as likely as not.
            (24, -0.03, GateVerdict.INCONCLUSIVE),
            (24, -0.15, GateVerdict.PASS),
        ],
    )
    def test_where_runs_differ_by_a_tenth_it_has_to_be_sure(self, count, slower, verdict):
        found = compare("step_time", pairs(count, slower, (0.1, -0.15, 0.02, 0.12, -0.09)))
        assert found.verdict is verdict

    @settings(max_examples=40, deadline=None)
    @given(
        st.lists(st.floats(0.9, 1.1), min_size=24, max_size=24),
        st.sampled_from(LOOKS),
        st.floats(1e-3, 1e3),
    )
    def test_the_unit_of_costs_is_no_matter(self, costs, count, unit):
        def of(factor):
            two = zip(costs[::2] * 2, costs[1::2] * 2, strict=True)
            made = [
                RunPair(Run(b * factor), Run(h * factor), n % 3 < 2) for n, (b, h) in enumerate(two)
            ]
            return compare("step_time", made[:count])

        one, other = of(1.0), of(unit)
        assert one.verdict is other.verdict
        assert (one.low, one.high) == pytest.approx((other.low, other.high), rel=1e-6)

    @settings(max_examples=40, deadline=None)
    @given(st.lists(st.floats(0.95, 1.05), min_size=16, max_size=16), st.floats(0.0, 0.5))
    def test_what_got_slower_is_judged_no_better(self, costs, more):
        made = [
            RunPair(Run(b), Run(h), n % 2 == 0)
            for n, (b, h) in enumerate(zip(costs[::2], costs[1::2], strict=True))
        ]
        slower = [replace(p, head=Run(p.head.cost * (1 + more))) for p in made]
        ranks = [GateVerdict.PASS, GateVerdict.INCONCLUSIVE, GateVerdict.FAIL]
        before, after = (compare("step_time", each).verdict for each in (made, slower))
        assert ranks.index(after) >= ranks.index(before)


class TestClocks:
    @pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
    def test_how_times_follow_them_is_found(self, share):
        assert clock_share(clocked(8, share)) == pytest.approx(share, abs=1e-6)

    def test_what_they_cost_is_taken_out(self):
        plain = [replace(p, base=Run(p.base.cost), head=Run(p.head.cost)) for p in clocked(8, 1.0)]
        found = compare("step_time", clocked(8, 1.0, slower=0.02))
        assert found.ratio == pytest.approx(1.02)
        assert found.verdict is GateVerdict.FAIL
        assert compare("step_time", plain).verdict is GateVerdict.INCONCLUSIVE

    def test_a_version_that_makes_the_clock_lower_pays_for_it(self):
        made = clocked(12, 1.0, shift=0.15)
        assert clock_share(made) == 0.0
        found = compare("step_time", made)
        assert found.verdict is GateVerdict.FAIL
        assert found.ratio == found.unadjusted

    def test_one_run_without_a_clock_leaves_them_out(self):
        made = clocked(8, 1.0)
        assert clock_share([*made[:-1], replace(made[-1], head=Run(2.0))]) == 0.0

    def test_locked_ones_are_no_matter(self):
        made = [
            replace(p, base=Run(p.base.cost, 1500), head=Run(p.head.cost, 1500)) for p in pairs(8)
        ]
        assert compare("step_time", made) == compare("step_time", pairs(8))


class TestPlans:
    """Both sides timed within each process, of which every one is as fast as it happens to be."""

    @staticmethod
    def made(slower=0.0, bias=0.0, count=4):
        """Pairs whose head is slower, and whose processes of the head change as they are turned."""
        chance, found = random.Random(2), []
        for number in range(count):
            base, head = (math.exp(chance.gauss(0, 0.1)) for _ in range(2))
            costs, noise = [], [math.exp(chance.gauss(0, 0.0005)) for _ in range(4)]
            for level, of in ((base, 1.0), (head, (1 + slower) * (1 + bias))):
                costs.append(Run(level * of * noise.pop()))
            within = tuple(
                InTurns(level, level * (1 + slower) * noise.pop()) for level in (base, head)
            )
            found.append(RunPair(*costs, number % 2 == 0, within=within))
        return found

    @pytest.mark.parametrize(
        ("slower", "verdict"),
        [(0.0, GateVerdict.PASS), (0.01, GateVerdict.PASS), (0.03, GateVerdict.FAIL)],
    )
    def test_their_ratio_there_decides_what_starts_do_not(self, slower, verdict):
        found = compare("step_time", self.made(slower))
        assert (found.verdict, found.in_turns) == (verdict, True)
        assert found.low < 1 + slower < found.high < 1.01 * found.low
        apart = compare("step_time", [replace(each, within=None) for each in self.made(slower)])
        assert (apart.verdict, apart.in_turns) == (GateVerdict.INCONCLUSIVE, False)
        assert found.unadjusted == apart.ratio

    def test_one_process_without_leaves_them_out(self):
        made = self.made(0.03)
        assert not compare("step_time", [*made[:-1], replace(made[-1], within=None)]).in_turns

    def test_what_turning_changes_is_seen_within_the_processes(self):
        found = compare("step_time", self.made(0.0, bias=0.03))
        assert (found.verdict, found.in_turns) == (GateVerdict.INCONCLUSIVE, False)


@pytest.mark.parametrize("count", LOOKS)
def test_what_passes_shows_an_upper_end_below_the_limit(count):
    noisy = pairs(count, slower=-0.5, noise=(0.05, -0.08, 0.0, 0.06, -0.03))
    found = compare("step_time", noisy, KNOWN)
    assert found.verdict is GateVerdict.PASS
    assert found.low < found.ratio < found.high < 1.03


@pytest.mark.parametrize(
    ("count", "first", "verdict"),
    [
        (3, 1.06, GateVerdict.FAIL),
        (3, 1.0, GateVerdict.INCONCLUSIVE),
        (3, 1.01, GateVerdict.INCONCLUSIVE),  # above the base, and nearer to it
        (6, 1.01, GateVerdict.INCONCLUSIVE),
        (8, 1.01, GateVerdict.FAIL),
    ],
)
def test_few_pairs_show_nothing_that_the_heads_first_run_contradicts(count, first, verdict):
    found = compare("step_time", pairs(count, slower=0.06), KNOWN, first_head=Run(first))
    assert found.verdict is verdict
    assert found.ratio == pytest.approx(1.06, abs=0.001)


def made_run(side, **changes):
    measured = measurement(changes.pop("ms", [50.0] * 8), **changes)
    return GateRun(side, Trial(0, {}, "proof", TrialState.COMPLETE, measurement=measured))


def judged(name, base, head):
    """What runs with these figures say of a metric; the first two of the base are in no pair."""
    known, old = [[made_run("base", **each) for each in part] for part in (base[:2], base[2:])]
    pairs = zip(old, [made_run("head", **each) for each in head], FIRST * 6, strict=False)
    return load_metrics()[name].compare(Evidence(known, list(pairs)), 0.1)


@pytest.mark.parametrize(
    ("base_gib", "more_mib", "verdict"),
    [
        (0.1, 40, GateVerdict.PASS),
        (0.1, 200, GateVerdict.FAIL),
        (40, 100, GateVerdict.PASS),
        (40, 1000, GateVerdict.FAIL),
    ],
)
def test_memory(base_gib, more_mib, verdict):
    base = base_gib * 2**30
    found = judged(
        "peak_memory",
        [{"peak_memory_bytes": base}] * 6,
        [{"peak_memory_bytes": base + more_mib * 2**20}] * 4,
    )
    assert found.verdict is verdict


def test_a_stall_moves_no_time_but_waiting_for_data_does():
    stalled = measurement([50.0] * 7 + [500.0])
    assert time_of(stalled, by_mean=False, by_step=True) == 50.0
    assert time_of(stalled, by_mean=True, by_step=True) == pytest.approx(850 / 8)


@pytest.mark.parametrize(
    ("name", "base", "head", "verdict"),
    [
        ("graph_breaks", [{"a": 1}] * 6, [{"a": 1}] * 4, "pass"),
        ("graph_breaks", [{"a": 1}] * 6, [{"a": 1, "print": 1}] * 4, "fail"),
        ("graph_breaks", [{}] * 6, [{"print": 1}] * 4, "fail"),
        ("graph_breaks", [{"a": 2}] * 6, [{"a": 1}] * 4, "pass"),
        # Runs of the base do not count the same, so that four pairs say nothing.
        ("recompilations", [{"f": n % 2} for n in range(6)], [{"f": 3}] * 4, "inconclusive"),
        ("recompilations", [{"f": n % 2} for n in range(8)], [{"f": 3}] * 6, "fail"),
        ("recompilations", [{"f": n % 2} for n in range(8)], [{"f": 1}] * 6, "pass"),
    ],
)
def test_what_is_counted(name, base, head, verdict):
    sides = [
        [{"counts": {name: {k: (n,) for k, n in each.items()}}, "compiles": 2} for each in side]
        for side in (base, head)
    ]
    found = judged(name, *sides)
    assert found.verdict == verdict
    assert ("+1 print" in found.detail) is ("print" in head[0])
    assert load_metrics()[name].lacks(
        Evidence([made_run("base"), made_run("base", compiles=1)], [])
    )


STEPS = 5
"""Steps of a run that are counted."""


def counted(kind, base, head, same_steps=False):
    """What runs before the pairs say that counted so many in each of their steps, by name."""
    runs = [
        [made_run(side, counts={kind: each}) for each in runs]
        for side, runs in (("base", base), ("head", head))
    ]
    metric = load_metrics()[kind]
    evidence = Evidence(runs[0][1:], [], first=[runs[0][0], *runs[1]], same_steps=same_steps)
    assert not metric.lacks(evidence)
    return metric.compare(evidence, 0.1)


def windows(pattern, starts):
    """Runs of a script whose steps repeat a pattern of counts, looked at from these steps on."""
    return [
        {"f": tuple(pattern[(start + n) % len(pattern)] for n in range(STEPS))} for start in starts
    ]


PATTERN = st.lists(st.integers(1, 10_000), min_size=1, max_size=STEPS)
STARTS = st.lists(st.integers(0, 1000), min_size=3, max_size=3)


@pytest.mark.parametrize("kind", ["kernels", "copies", "operators"])
@settings(max_examples=100, deadline=None)
@given(PATTERN, STARTS, st.integers(0, 1000))
def test_what_repeats_within_some_steps_never_fails(kind, pattern, starts, start):
    found = counted(kind, windows(pattern, starts), windows(pattern, [start]))
    assert (found.verdict, found.exact) == (GateVerdict.PASS, True)


@settings(max_examples=100, deadline=None)
@given(PATTERN, st.integers(0, STEPS - 1), st.integers(1, 3), st.integers(0, 1000))
def test_in_the_same_steps_one_more_in_any_of_them_fails(pattern, odd, more, start):
    """It may be as many as a step of the base that prints the loss has."""
    (base,) = windows([each + more * (n == 0) for n, each in enumerate(pattern)], [start])
    head = {**base, "relu": tuple(more * (n == odd) for n in range(STEPS))}
    found = counted("operators", [base] * 4, [head] * 3, same_steps=True)
    assert found.verdict is GateVerdict.FAIL
    assert found.detail == f"+{more / STEPS:g} relu"
    assert counted("operators", [base] * 3, [base], same_steps=True).verdict is GateVerdict.PASS


@pytest.mark.parametrize("heads", [1, 2, 3])
@pytest.mark.parametrize("bases", [3, 4])
def test_a_count_that_looks_worse_fails_only_if_it_is_counted_again(bases, heads):
    base, head = ({"f": (n,) * STEPS} for n in (7, 8))
    found = counted("kernels", [base] * bases, [head] * heads)
    fails = (bases, heads) == (4, 3)
    assert found.verdict is (GateVerdict.FAIL if fails else GateVerdict.INCONCLUSIVE)
    assert found.exact


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 3), st.sets(st.integers(0, 4), max_size=1), STARTS)
def test_one_more_in_each_step_always_fails(usual, more, odd, starts):
    """Also where a step now and then does more, such as one that prints the loss."""
    steps = [usual + 7 * (n in odd) for n in range(STEPS)]
    base = windows(steps, starts)
    head = {"f": base[0]["f"], "relu": (more,) * STEPS}
    found = counted("kernels", [*base, base[0]], [head] * 3)
    assert (found.verdict, found.detail) == (GateVerdict.FAIL, f"+{more} relu")
    better = counted("kernels", [head] * 3, [base[0]])
    assert (better.verdict, better.detail) == (GateVerdict.PASS, "")


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.lists(st.integers(1, 1000), min_size=STEPS, max_size=STEPS), min_size=4, max_size=16
    )
)
def test_counts_without_a_pattern_fail_only_beyond_the_tolerance(runs):
    runs = [{"f": tuple(each)} for each in runs]
    base, head = runs[:-1], runs[-1:] * 3
    found = counted("kernels", base, head)
    if not found.exact or len(base) == 3:
        assert found.verdict is not GateVerdict.FAIL  # one run of the head says too little
    elif found.verdict is GateVerdict.FAIL:
        assert not set(head[0]["f"]) & {n for each in base for n in each["f"]}


def test_steps_that_could_not_be_counted():
    refused = AppliedKnob("profile", "refused", "the script uses torch.profiler itself")
    runs = [made_run("base", counts={"kernels": {"f": (1,)}})] * 3
    for metric in (load_metrics()[name] for name in ("kernels", "operators")):
        other = made_run("head", applied=(refused,))
        assert metric.lacks(Evidence(runs[1:], [], first=[runs[0], other])) == refused.detail
    none = load_metrics()["copies"].lacks(Evidence(runs[1:], [], first=[runs[0]]))
    assert none == "torch's profiler saw no copy of a GPU"


@pytest.mark.parametrize(("mib", "verdict"), [(100, "pass"), (101, "pass"), (102, "fail")])
def test_a_percent_more_memory_of_a_step_is_none(mib, verdict):
    base, head = ({"host": (size << 20,) * STEPS} for size in (100, mib))
    found = counted("allocated_bytes", [base] * 4, [head] * 3)
    assert (found.verdict, found.detail) == (verdict, "")


@pytest.mark.parametrize(
    ("head", "verdict"), [(1.0, "pass"), (1.0005, "pass"), (1.5, "fail"), (float("nan"), "fail")]
)
def test_losses(head, verdict):
    base = {"trace": Trace((3.0, 2.0, 1.0), last_loss=1.0)}
    new = {"trace": Trace((3.0 * head, 2.0 * head, head), last_loss=head)}
    assert judged("losses", [base] * 6, [new] * 4).verdict == verdict
    assert load_metrics()["losses"].lacks(Evidence([made_run("base")] * 2, []))


@pytest.mark.parametrize(("factor", "verdict"), [(1.0, "pass"), (1.2, "fail")])
def test_figures_of_runs(factor, verdict):
    steps, windows = (50.0,) * 200, (StepWindow(10, 0.5, energy_j=30.0),)
    base = {"step_ms": steps, "windows": windows, "startup_s": 20.0}
    head = {
        "step_ms": tuple(ms * factor for ms in steps),
        "windows": (StepWindow(10, 0.5, energy_j=30.0 * factor),),
        "startup_s": 20.0 * factor,
    }
    for name in ("p95", "energy", "startup"):
        assert judged(name, [base] * 6, [head] * 4).verdict == verdict


def test_rare_stalls_move_the_mean_alone():
    usual = (StepWindow(10, 0.5),) * 8
    base, head = {"windows": usual}, {"windows": (*usual[1:], StepWindow(10, 2.5))}
    assert judged("step_time", [base] * 8, [head] * 6).verdict == "pass"
    found = judged("mean_step_time", [base] * 8, [head] * 6)
    assert (found.verdict, found.role) == ("fail", "reported")
    assert found.ratio == pytest.approx(1.5)


class Runs:
    """`run` of a comparison: head's runs take longer by a factor, and runs fail as told."""

    def __init__(self, slower=0.0, failing=(), disturbed=(), spread=0.001, **changes):
        self.slower, self.failing, self.disturbed = slower, failing, disturbed
        self.spread, self.changes = spread, changes
        self.made = []

    def __call__(self, side, place):
        number = len(self.made)
        ok = number not in self.failing
        cost_ms = 50 * (1 + self.spread * (number % 3)) * (1 + self.slower * (side == "head"))
        trial = Trial(
            number,
            {},
            "proof",
            TrialState.COMPLETE if ok else TrialState.CRASHED,
            measurement=measurement([cost_ms] * 8, **self.changes) if ok else None,
            disturbance="others" if number in self.disturbed else "",
        )
        self.made.append(GateRun(side, trial, None, place))
        return self.made[-1]


class Counts(Runs):
    """Runs that count: `of_base` and `of_head` are asked for each, and a step takes 50 ms."""

    def __init__(self, of_base, of_head, **options):
        super().__init__(**options)
        self.of = {"base": of_base, "head": of_head}

    def __call__(self, side, place):
        self.changes = {"counts": {"kernels": {"f": self.of[side]()}}}
        return super().__call__(side, place)


def always(*counts):
    return lambda: counts


class Scattered(Runs):
    """Runs of one version that differ by a standard deviation, by chance."""

    def __init__(self, spread, slower=0.0, **changes):
        super().__init__(slower, **changes)
        self.random, self.deviation = random.Random(3), spread

    def __call__(self, side, place):
        run = super().__call__(side, place)
        by, old = math.exp(self.random.gauss(0, self.deviation)), run.trial.measurement
        windows = tuple(
            replace(w, seconds=w.seconds * by, data_wait_s=w.data_wait_s * by) for w in old.windows
        )
        return replace(run, trial=replace(run.trial, measurement=replace(old, windows=windows)))


def compared(runs, **options):
    return Comparing(runs, **options).go()


def with_first(runs, **options):
    return compared(runs, first=[runs(side, "first") for side in ("base", "head")], **options)


class TestLoop:
    @pytest.mark.parametrize(
        ("slower", "verdict"), [(0.0, GateVerdict.PASS), (1.0, GateVerdict.FAIL)]
    )
    def test_it_ends_when_it_is_clear(self, slower, verdict):
        runs = Runs(slower)
        found = compared(runs)
        assert found.verdict is verdict
        assert (found.pairs, len(runs.made)) == (3, KNOWN_RUNS + 6)
        assert [d.metric for d in found.differences][:2] == ["step_time", "peak_memory"]

    def test_a_gross_regression_takes_six_runs(self):
        runs = Runs(1.2)
        first = [runs(side, "first") for side in ("base", "head")]
        found = compared(runs, first=first)
        assert (found.verdict, len(runs.made)) == (GateVerdict.FAIL, 6)
        assert sorted(run.side for run in runs.made[2::2]) == ["base", "head"]
        assert found.differences[0].low > 2

    def test_beside_another_job_it_takes_more(self):
        runs = Runs(1.2, disturbed=[3])
        first = [runs(side, "first") for side in ("base", "head")]
        assert compared(runs, first=first).verdict is GateVerdict.FAIL
        assert len(runs.made) > 6

    def test_obvious_is_only_what_is_so_on_a_quiet_machine(self):
        runs = Runs(1.2, disturbed=[2])
        first = [runs(side, "first") for side in ("base", "head")]
        compared(runs, first=first)
        assert [run.place for run in runs.made[2:4]] == ["pair 1, short"] * 2
        assert not any("short" in run.place for run in runs.made[4:])

    def test_a_slow_first_run_is_no_regression(self):
        first = [Runs(n)(side, "first") for n, side in ((0, "base"), (5.0, "head"))]
        runs = Runs()
        found = compared(runs, first=first)
        assert (found.verdict, found.pairs) == (GateVerdict.PASS, 3)
        assert [run.place for run in runs.made].count("known") == KNOWN_RUNS

    def test_what_more_pairs_would_hardly_tell_ends_early(self):
        found = compared(Runs(0.02), limit=0.0001, tolerance=0.5)
        assert (found.verdict, found.pairs) == (GateVerdict.INCONCLUSIVE, comparing.FUTILE_FROM)
        assert found.hopeless

    @pytest.mark.parametrize(
        ("changes", "helps"),
        [
            ({}, "give it cores of its own"),
            ({"windows": (StepWindow(10, 0.4), StepWindow(10, 0.8)) * 4}, "measure longer (--mea"),
            ({"windows": (StepWindow(10, 0.5, data_wait_s=0.4),) * 8}, "for its data for 80% of"),
        ],
    )
    def test_what_will_keep_it_from_being_decided_is_said_early(self, changes, helps):
        told = []
        found = compared(Scattered(0.25, **changes), on_obstacle=told.append)
        assert found.verdict is GateVerdict.INCONCLUSIVE
        assert len(told) == 1
        assert "runs of one version differ by 2" in told[0]
        assert helps in told[0]
        assert re.search(r"--tolerance \d --limit [12]\d$", found.obstacle)

    @pytest.mark.parametrize(("spread", "slower"), [(0.02, 0.0), (0.25, 4.0)])
    def test_nothing_is_said_where_it_will_be_decided(self, spread, slower):
        told = []
        found = compared(Scattered(spread, slower), on_obstacle=told.append)
        assert found.verdict is not GateVerdict.INCONCLUSIVE
        assert (told, found.obstacle) == ([], "")

    def test_what_is_asked_for_and_cannot_be_measured(self):
        with pytest.raises(UsageError, match="--metric p95 cannot be measured: it takes 200 st"):
            compared(Runs(), asked=["p95"])
        with pytest.raises(UsageError, match="there is no metric 'speed': choose from alloc"):
            compared(Runs(), asked=["speed"])

    @pytest.mark.parametrize("only", [(), ("kernels",)])
    def test_a_count_that_fails_ends_it_before_any_pair(self, only):
        runs = Counts(always(7, 7, 9), always(8, 8, 8))
        found = with_first(runs, only=only)
        assert (found.verdict, found.pairs) == (GateVerdict.FAIL, 0)
        assert [run.place for run in runs.made[4:]] == ["counted"] * 3
        assert [each.metric for each in found.differences] == ["kernels"]
        left = dict(found.unmeasured)
        assert left.get("step_time") == (None if only else comparing.NOT_NEEDED)

    def test_who_asks_for_times_has_them_too(self):
        runs = Counts(always(7), always(8))
        found = with_first(runs, asked=["step_time"])
        assert (found.verdict, found.pairs) == (GateVerdict.FAIL, 3)
        assert {"step_time", "kernels"} <= {each.metric for each in found.differences}

    def test_counts_alone_take_four_runs(self):
        runs = Counts(always(7), always(7))
        found = with_first(runs, only=["kernels"])
        assert (found.verdict, found.pairs, len(runs.made)) == (GateVerdict.PASS, 0, 4)
        assert with_first(Counts(always(7), always(7))).pairs == 3

    @pytest.mark.parametrize(
        ("first", "others", "verdict"),
        [(108, 108, "pass"), (125, 125, "fail"), (108, 125, "inconclusive")],
    )
    def test_counts_that_differ_from_run_to_run_are_counted_more(self, first, others, verdict):
        of_base, of_head = iter(range(100, 120)), iter([first] + [others] * 20)
        runs = Counts(lambda: (next(of_base),), lambda: (next(of_head),))
        found = with_first(runs, only=["kernels"])
        heads = [run.side for run in runs.made].count("head")
        assert (found.verdict, heads) == (verdict, 6)

    @pytest.mark.parametrize(
        ("gates", "least", "most"),
        [(500, 1, 10), pytest.param(3000, 10, 38, marks=pytest.mark.slow)],
    )
    def test_an_autotuner_hardly_ever_fails_a_version(self, gates, least, most):
        """Chances of 0.84 % at most: more than `most` would be three deviations above."""
        chance = random.Random(5)

        def pick():
            return (8,) if chance.random() < 3 / 7 else (7,)

        fails = [
            with_first(Counts(pick, pick), only=["kernels"]).verdict is GateVerdict.FAIL
            for _ in range(gates)
        ]
        assert least <= sum(fails) <= most

    def test_a_version_that_fails_as_it_is_counted_again(self):
        runs = Counts(always(7), always(8), failing=range(4, 9))
        assert with_first(runs, only=["kernels"]).failed is runs.made[5]
        runs = Counts(always(7), always(8), failing=[4])
        assert with_first(runs).verdict is GateVerdict.FAIL

    def test_what_is_only_reported_decides_where_it_is_asked_for(self):
        plain, asked = (compared(Runs(), asked=names) for names in ([], ["startup"]))
        roles = [
            next(d.role for d in found.differences if d.metric == "startup")
            for found in (plain, asked)
        ]
        assert roles == ["reported", "decides"]
        assert dict(plain.unmeasured).keys() >= {"energy", "p95", "graph_breaks"}

    def test_both_orders_come_by_chance(self, monkeypatch):
        monkeypatch.setattr(comparing, "FUTILE", 0.0)
        runs = Runs(0.02)
        compared(runs, limit=0.0001, tolerance=0.5)  # neither can be shown
        first = [run.side for run in runs.made[KNOWN_RUNS::2]]
        assert len(first) == LOOKS[-1]
        assert 4 <= first.count("base") <= 20
        assert first[:8] != ["base", "head", "head", "base"] * 2

    def test_a_disturbed_pair_is_run_again_but_not_for_ever(self):
        told = []
        runs = Runs(disturbed=range(KNOWN_RUNS, 100))
        found = compared(runs, on_disturbed=lambda *each: told.append(each))
        assert found.verdict is GateVerdict.PASS
        assert len(runs.made) == KNOWN_RUNS + 2 * (3 + MAX_REPEATED)
        assert [again for _, again in told] == [True] * MAX_REPEATED + [False] * 3

    def test_one_accident_is_run_again(self):
        found = compared(Runs(failing=[KNOWN_RUNS + 3]))
        assert found.verdict is GateVerdict.PASS
        assert found.failed is None

    def test_a_second_one_is_none(self):
        runs = Runs(failing=range(KNOWN_RUNS + 2, 100))
        found = compared(runs)
        assert found.failed is runs.made[KNOWN_RUNS + 2 * MAX_FAILURES + 2]
        assert found.verdict is GateVerdict.INCONCLUSIVE


@pytest.mark.parametrize("noise", ["typical", "hard"])
@pytest.mark.parametrize(("gates", "most"), [(60, 2), pytest.param(120, 3, marks=pytest.mark.slow)])
def test_an_unchanged_version_hardly_ever_fails(rates, noise, gates, most):
    """At 1 in 250, all but one of 500 tests would see no more."""
    found = rates.gated(partial(rates.session, noise, 0.0, True), gates)
    assert len(found.failed_after) <= most
    assert found.inconclusive < 0.15


def test_a_slower_version_is_found(rates):
    found = rates.gated(partial(rates.session, "typical", 0.03, True), 60)
    assert found.failed(12) > 0.75
    assert found.passed <= 6
