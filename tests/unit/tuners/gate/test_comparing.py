"""Which runs a gate asks for, one after the other, and when it ends."""

import math
import random
import re
from dataclasses import replace

import pytest

from gpuadvisor.domain.gate import GateRun, GateVerdict
from gpuadvisor.domain.measurement import StepWindow
from gpuadvisor.domain.study import Trial, TrialState
from gpuadvisor.errors import UsageError
from gpuadvisor.tuners.gate import comparing
from gpuadvisor.tuners.gate.comparing import KNOWN as KNOWN_RUNS
from gpuadvisor.tuners.gate.comparing import MAX_FAILURES, Comparing
from gpuadvisor.tuners.gate.decision import LOOKS
from gpuadvisor.tuners.proof import MAX_REPEATED
from tests.simulation import measurement


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

    @pytest.mark.parametrize("spread", [0.004, 0.008, 0.25])
    def test_limits_that_are_proposed_are_those_that_a_gate_takes(self, spread):
        limits = {"tolerance": 0.0001, "limit": 0.0002}
        found = compared(Scattered(spread), on_obstacle=lambda sentence: None, **limits)
        tolerance, limit = re.search(r"--tolerance (\S+) --limit (\S+)$", found.obstacle).groups()
        assert 0 < float(tolerance) < float(limit)
        assert "hardly rule out one of 0.02%. What" in found.obstacle

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
