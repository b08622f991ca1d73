"""Intervals of ratios: exact where they can be, and covering as often as they say."""

import math
import random

import pytest

from gpuadvisor.domain.study import Trial, TrialState
from gpuadvisor.tuners.statistics import LEAST_UNCERTAINTY, LOOKS, paired_ratio, uncertainty
from tests.simulation import measurement


def test_the_ratio_is_the_geometric_mean():
    assert paired_ratio([(2.0, 1.0), (8.0, 1.0)]).ratio == pytest.approx(4.0)


def test_equal_pairs_have_no_interval():
    found = paired_ratio([(3.0, 2.0)] * 4)
    assert (found.ci99_low, found.ratio, found.ci99_high) == pytest.approx((1.5, 1.5, 1.5))
    assert found.pairs == 4


def test_students_interval_at_one_look():
    logs = [0.01, 0.02, 0.03, 0.04]
    found = paired_ratio([(math.exp(x), 1.0) for x in logs], looks=1)
    half = 5.8409 * 0.0129099 / 2  # t(0.995, 3) from a table, the standard deviation of the logs
    assert math.log(found.ci99_high) - 0.025 == pytest.approx(half, rel=1e-3)


def test_exchanging_the_sides_inverts_the_interval():
    costs = [(1.0, 1.1), (1.05, 1.0), (1.2, 1.1), (1.0, 1.0)]
    one, other = paired_ratio(costs), paired_ratio([(b, a) for a, b in costs])
    assert one.ci99_low == pytest.approx(1 / other.ci99_high)


def test_more_looks_widen_it():
    costs = [(1.0, 1.1), (1.05, 1.0), (1.2, 1.1), (1.0, 1.0)]
    assert paired_ratio(costs, looks=4).ci99_high > paired_ratio(costs, looks=1).ci99_high


def test_one_pair_is_no_interval():
    with pytest.raises(ValueError, match="two pairs"):
        paired_ratio([(1.0, 2.0)])


def test_it_covers_the_true_ratio_over_all_looks_in_99_of_100_cases():
    generator = random.Random(1)
    missed = 0
    for _ in range(2000):
        costs = [(1.1 * math.exp(generator.gauss(0, 0.02)), 1.0) for _ in range(LOOKS[-1])]
        seen = [paired_ratio(costs[:count]) for count in LOOKS]
        missed += any(not look.ci99_low <= 1.1 <= look.ci99_high for look in seen)
    assert missed <= 30  # 20 expected; 30 or more by chance in 2 of 100 tests


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
