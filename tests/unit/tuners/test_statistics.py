"""Intervals of ratios: exact where they can be, and covering as often as they say."""

import math
import random

import pytest

from gpuadvisor.domain.study import Trial, TrialState
from gpuadvisor.tuners.statistics import (
    BY_ORDER_ALONE,
    ERROR,
    LATER_SHARE,
    LEAST_UNCERTAINTY,
    LOOK_ERRORS,
    LOOKS,
    Pair,
    error_of_last_look,
    error_of_look,
    paired_ratio,
    pairs_needed,
    proven_ratio,
    spread_of,
    uncertainty,
)
from tests.simulation import measurement


def test_the_ratio_is_the_geometric_mean():
    assert paired_ratio([(2.0, 1.0), (8.0, 1.0)]).ratio == pytest.approx(4.0)


def test_students_interval():
    logs = [0.01, 0.02, 0.03, 0.04]
    found = paired_ratio([(math.exp(x), 1.0) for x in logs])
    half = 5.8409 * 0.0129099 / 2  # t(0.995, 3) from a table, the standard deviation of the logs
    assert math.log(found.ci99_high) - 0.025 == pytest.approx(half, rel=1e-3)


@pytest.mark.parametrize("interval_of", [paired_ratio, lambda p: proven_ratio(paired(p))])
def test_one_pair_is_no_interval(interval_of):
    with pytest.raises(ValueError, match="two pairs"):
        interval_of([(1.0, 2.0)])


def paired(costs):
    """Pairs of these costs, every other one in the other order."""
    return [Pair(base, head, place % 2 == 0) for place, (base, head) in enumerate(costs)]


class TestProvenRatio:
    COSTS = ((1.0, 1.1), (1.05, 1.0), (1.2, 1.1), (1.0, 1.0))

    def test_equal_pairs_have_no_interval(self):
        found = proven_ratio(paired([(3.0, 2.0)] * 8))
        assert (found.ci99_low, found.ratio, found.ci99_high) == pytest.approx((1.5, 1.5, 1.5))
        assert found.pairs == 8

    def test_two_pairs_that_differ_much_have_an_interval_of_numbers(self):
        found = proven_ratio(paired([(1.0, 2.0), (2.0, 1.0)]), error=1e-6)
        assert 0 < found.ci99_low < 1e-100 < 1e100 < found.ci99_high < math.inf

    def test_exchanging_the_sides_inverts_the_interval(self):
        one = proven_ratio(paired(self.COSTS))
        other = proven_ratio(paired((b, a) for a, b in self.COSTS))
        assert one.ci99_low == pytest.approx(1 / other.ci99_high)

    def test_a_steady_threefold_gain_is_proven_by_four_pairs(self):
        """From the paired differences alone, 3 degrees of freedom, it was 0.65 to 14.83."""
        base = [300 * math.exp(x) for x in (0.2, -0.2, 0.1, -0.1)]
        head = [96.5 * math.exp(x) for x in (-0.1, 0.15, -0.15, 0.1)]
        pairs = paired(zip(base, head, strict=True))
        found = proven_ratio(pairs, known_base=[310, 290, 360])
        assert found.ratio == pytest.approx(3.11, rel=0.01)
        assert found.ci99_low > 1.2 and found.ci99_high < 8

    def test_it_needs_earlier_runs_for_that(self):
        """With four pairs a job in step with them has a chance of 1 in 16."""
        pairs = paired([(300.0, 100.0)] * 4)
        assert proven_ratio(pairs).ci99_low <= 1
        assert proven_ratio(pairs, known_base=[300.0]).ci99_low <= 1
        assert proven_ratio(pairs, known_base=[300.0, 301.0]).ci99_low > 2.5

    def test_earlier_runs_that_were_as_fast_forbid_it(self):
        pairs = paired([(300.0, 100.0)] * 4)
        assert proven_ratio(pairs, known_base=[300.0, 100.0, 300.0]).ci99_low <= 1

    def test_those_of_another_day_move_nothing_and_narrow_nothing(self):
        pairs = [Pair(100 + n, 66 + n, bool(n % 2)) for n in range(4)]
        alone = proven_ratio(pairs, known_base=[100.0, 103.0])
        for level in (0.8, 1.0, 1.3):
            found = proven_ratio(
                pairs, [level * 100, level * 101], [level * 66, level * 67], at_another_time=True
            )
            assert found.ratio == alone.ratio
            assert found.ci99_high - found.ci99_low >= alone.ci99_high - alone.ci99_low

    def test_those_of_a_restless_day_widen(self):
        pairs = [Pair(100 + n, 66 + n, bool(n % 2)) for n in range(4)]
        quiet = proven_ratio(pairs, [100.0, 101.0, 102.0], at_another_time=True)
        restless = proven_ratio(pairs, [80.0, 101.0, 130.0], at_another_time=True)
        assert restless.ci99_low < quiet.ci99_low

    def test_those_of_another_day_between_the_sides_forbid_a_claim(self):
        pairs = [Pair(100 + n, 66 + n, bool(n % 2)) for n in range(4)]
        assert proven_ratio(pairs, [66.0, 67.0, 66.5], at_another_time=True).ci99_low <= 1

    def test_eight_pairs_of_one_sign_need_none(self):
        assert proven_ratio(paired([(300.0, 100.0)] * BY_ORDER_ALONE)).ci99_low > 2.5

    def test_drift_cancels(self):
        drift = [1.1**place for place in range(8)]
        found = proven_ratio(paired((1.06 * each, each * 1.001**n) for n, each in enumerate(drift)))
        assert found.ci99_low > 1.03

    def test_a_gain_of_one_order_alone_is_none(self):
        """A job in step with the pairs, whose runs last longer on one side, can do that."""
        costs = [(1.2, 1.0) if place % 2 else (1.0, 1.0) for place in range(32)]
        assert proven_ratio(paired(costs)).ci99_low < 1
        one_order = [Pair(1.2, 1.0, base_first=True)] * 8
        assert proven_ratio(one_order).ci99_low <= 1

    @pytest.mark.parametrize("noisier_head", [1, 10])
    def test_it_covers_the_true_ratio_over_all_looks_in_99_of_100_cases(self, noisier_head):
        generator, studies, missed = random.Random(1), 700, 0
        for _ in range(studies):
            known = [1.1 * math.exp(generator.gauss(0, 0.01)) for _ in range(3)]
            pairs = [
                Pair(
                    1.1 * math.exp(generator.gauss(0, 0.01)),
                    math.exp(generator.gauss(0, 0.01 * noisier_head)),
                    generator.random() < 0.5,
                )
                for _ in range(LOOKS[-1])
            ]
            seen = [proven_ratio(pairs[:count], known) for count in LOOKS]
            missed += any(not look.ci99_low <= 1.1 <= look.ci99_high for look in seen)
        assert missed <= 14  # 7 expected at most; more by chance in 1 of 100 tests


def test_later_proofs_of_a_study_are_surer_and_all_together_sure_enough():
    pairs = paired(TestProvenRatio.COSTS * 2)
    wide = [proven_ratio(pairs, earlier=number) for number in range(4)]
    lows = [each.ci99_low for each in wide]
    assert lows == sorted(lows, reverse=True) and len(set(lows)) == 4
    assert len({each.ratio for each in wide}) == 1
    assert sum(LATER_SHARE**number * ERROR / 2 for number in range(100)) < 0.01


def test_all_looks_together_use_up_the_error():
    assert sum(LOOK_ERRORS.values()) == pytest.approx(ERROR)
    assert error_of_look(5) == LOOK_ERRORS[6]


@pytest.mark.parametrize("pairs", [3, 4, 5, 6, 12, 16, LOOKS[-1]])
def test_the_last_look_has_no_more_error_than_earlier_ones_have_left(pairs):
    earlier = sum(error for look, error in LOOK_ERRORS.items() if look < pairs)
    assert earlier + error_of_last_look(pairs) <= ERROR + 1e-12
    assert error_of_last_look(pairs) >= error_of_look(pairs)
    assert (error_of_last_look(pairs) > error_of_look(pairs)) == (pairs < 16)


def test_five_percent_at_a_spread_of_two_need_at_most_sixteen_pairs():
    assert 8 <= pairs_needed(math.log(1.05), 0.02) <= 16
    assert pairs_needed(math.log(3.0), 0.005) == LOOKS[0]
    assert pairs_needed(math.log(1.05), 0.3) > 1000
    assert pairs_needed(0.0, 0.02) is None


def test_the_spread_is_pooled_over_sides():
    assert spread_of([1.0, math.exp(0.2)], [5.0, 5.0 * math.exp(0.2)]) == pytest.approx(0.02**0.5)
    assert spread_of([1.0], [2.0]) == LEAST_UNCERTAINTY


def _trial(*windows_ms):
    run = measurement(windows_ms)
    return Trial(0, {}, "search", TrialState.COMPLETE, measurement=run)


def test_a_run_without_spread_is_still_uncertain():
    assert uncertainty(_trial(10, 10)) == LEAST_UNCERTAINTY
    assert uncertainty(None, None) == pytest.approx(LEAST_UNCERTAINTY * math.sqrt(2))


def test_the_uncertainties_of_two_runs_add_in_squares():
    steady, noisy = _trial(10, 10, 10, 10), _trial(9, 11, 9, 11)
    within = noisy.measurement.uncertainty
    assert within == pytest.approx(0.1 * math.sqrt(4 / 3) / 2)
    assert uncertainty(steady, noisy) == pytest.approx(math.hypot(LEAST_UNCERTAINTY, within))
