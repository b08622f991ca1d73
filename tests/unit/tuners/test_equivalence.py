"""Whether two runs computed the same, by traces that were made up."""

import math

import pytest

from gpuadvisor.domain.knobs import Level
from gpuadvisor.domain.measurement import OutputSample, Trace
from gpuadvisor.tuners.equivalence import TOLERANCES, Comparison, difference

LOSSES = (2.0, 1.8, 1.6, 1.4)
NAN = float("nan")


def losses(*values, last=None):
    return Trace(losses=values, last_loss=last)


def scaled(factor, values=LOSSES):
    return losses(*(factor * value for value in values))


def outputs(*samples):
    return Trace(outputs=tuple(OutputSample((len(values),), values) for values in samples))


def comparison(*baselines, level=Level.BALANCED, tolerance=None, seed=None):
    made = Comparison(level, tolerance)
    made.calibrate(baselines or [losses(*LOSSES)] * 2, seed)
    return made


@pytest.mark.parametrize("level", Level)
def test_a_level_allows_its_own_difference(level):
    limit = TOLERANCES[level]
    made = comparison(level=level)
    assert made.check(scaled(1 + 0.9 * limit)).status == "equivalent"
    assert made.check(scaled(1 + 1.1 * limit)).status == "wrong"


def test_the_users_tolerance_replaces_it():
    made = comparison(tolerance=0.1)
    assert made.check(scaled(1.09)).status == "equivalent"
    assert made.check(scaled(1.11)).status == "wrong"


def test_the_limit_is_never_below_the_scripts_own_spread():
    made = comparison(losses(*LOSSES), scaled(1.02))
    assert made.check(scaled(1.05)).status == "equivalent"
    assert made.check(scaled(1.07)).status == "wrong"


def test_a_script_that_differs_from_itself_is_not_checked():
    found = comparison(losses(*LOSSES), scaled(1.6)).check(losses(*LOSSES))
    assert found.status == "not_checked"
    assert "differ by 60%" in found.reason


@pytest.mark.parametrize("bad", [NAN, math.inf])
def test_nan_or_infinity_is_wrong(bad):
    found = comparison().check(losses(2.0, 1.8, bad, 1.4))
    assert found.status == "wrong"
    assert found.metric.startswith("NaN or infinity")
    assert comparison().check(losses(*LOSSES, last=bad)).status == "wrong"


@pytest.mark.parametrize("runs", [1, 2])
def test_a_script_that_computes_nan_itself_is_not_checked(runs):
    broken = losses(2.0, NAN, NAN, NAN)
    found = comparison(*[broken] * runs).check(broken)
    assert found.status == "not_checked"
    assert "itself" in found.reason
    assert found.value is None


def test_other_random_numbers_prove_nothing_between_the_limit_and_another_seed():
    made = comparison(seed=scaled(1.04))
    other = {"other_random_numbers": True}
    assert made.check(scaled(1.001), **other).status == "equivalent"
    assert made.check(scaled(1.19), **other).status == "not_checked"
    assert made.check(scaled(1.21), **other).status == "wrong"
    assert made.check(scaled(1.07)).status == "wrong"


def test_losses_of_runs_of_different_length_are_compared_as_far_as_both_go():
    value, metric = difference(losses(*LOSSES), losses(*LOSSES[:3]))
    assert value == 0
    assert "first 3 losses" in metric


def test_what_differs_in_one_pass_is_not_outvoted_by_the_passes_before():
    same = [1.0] * 48
    late = [*same[:38], *[1.3] * 10]
    value, metric = difference(losses(*same), losses(*late))
    assert value == pytest.approx(0.3)
    assert "losses 39 to 48" in metric
    spikes = [9.0 if n % 3 == 0 else 1.0 for n in range(48)]
    assert difference(losses(*same), losses(*spikes))[0] == 0


def test_zero_losses():
    assert difference(losses(0, 0, 0), losses(0, 0, 0))[0] == 0
    assert difference(losses(0, 0, 0), losses(0, 0, 1))[0] == math.inf


def test_outputs_are_compared_where_there_are_no_losses():
    made = comparison(outputs((3.0, 4.0)), outputs((3.0, 4.0)))
    assert made.check(outputs((3.0, 4.04))).status == "equivalent"
    assert made.check(outputs((3.0, 4.06))).status == "wrong"
    assert made.check(outputs((3.0, NAN))).status == "wrong"


def test_a_larger_batch_is_compared_by_its_first_output_only():
    made = comparison(outputs((1.0,), (2.0,)))
    larger = outputs((1.0,), (9.0,))
    assert made.check(larger, first_call_only=True).status == "equivalent"
    assert made.check(larger).status == "wrong"


@pytest.mark.parametrize("trace", [Trace(), losses(1.0, 2.0), outputs((1.0, 2.0, 3.0))])
def test_what_cannot_be_compared_is_not_checked(trace):
    found = comparison(outputs((1.0, 2.0))).check(trace)
    assert found.status == "not_checked"
    assert found.reason


def test_without_a_baseline_nothing_is_checked():
    assert Comparison(Level.BALANCED).check(losses(*LOSSES)).status == "not_checked"


def test_values_that_are_not_finite_in_both_are_left_out():
    made = comparison(outputs((1.0, -math.inf)), outputs((1.0, -math.inf)))
    assert made.check(outputs((1.0, -math.inf))).status == "equivalent"
