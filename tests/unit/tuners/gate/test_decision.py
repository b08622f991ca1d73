"""What a gate decides from pairs of runs, and how often it is wrong."""

import math
import random
import sys
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuadvisor.domain.gate import GateVerdict
from gpuadvisor.domain.study import InTurns
from gpuadvisor.tuners.gate.decision import LOOKS, Run, RunPair, clock_share, compare
from tests.benchmark_files import loaded

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
