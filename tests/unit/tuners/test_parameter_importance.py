"""Which parameters matter, on spaces whose answer is known."""

import pytest

from gpuadvisor.domain.kernel_records import Evaluation
from gpuadvisor.domain.study import TrialState
from gpuadvisor.tuners.kernels.parameter_importance import importances, unexplained

XS, YS = (1, 2, 4, 8), (0, 1)


def space(time):
    return [
        Evaluation(
            {"x": x, "y": y, "z": 5}, TrialState.COMPLETE, times_ms=(time(x, y),), default_ms=(1.0,)
        )
        for x in XS
        for y in YS
    ]


def told(evaluations, **parameters):
    parameters = parameters or {"x": XS, "y": YS}
    return {each.parameter: each for each in importances(parameters, evaluations)}


def test_a_parameter_that_decides_alone_has_all_of_it():
    found = told(space(lambda x, y: float(x)))
    assert found["x"].share == pytest.approx(1, abs=0.01)
    assert found["y"].share == pytest.approx(0, abs=0.01)
    assert [(each.value, each.cost) for each in found["x"].values] == [
        (1, 1.0), (2, 2.0), (4, 4.0), (8, 8.0),
    ]  # fmt: skip
    assert found["y"].cost == 1.0


def test_factors_share_the_variance_of_the_logarithm():
    """log2(x) is 0 to 3 (variance 1.25), and y adds 0 or 1 (variance 0.25), of 1.5 in all."""
    found = told(space(lambda x, y: x * 2.0**y))
    assert list(found) == ["x", "y"]
    assert found["x"].share == pytest.approx(1.25 / 1.5, abs=0.01)
    assert found["y"].share == pytest.approx(0.25 / 1.5, abs=0.01)


def test_what_parameters_do_only_together_is_nobodys_own():
    found = told(space(lambda x, y: 2.0 if (x > 2) == bool(y) else 1.0))
    assert [each.share for each in found.values()] == pytest.approx([0, 0])
    assert unexplained(list(found.values())) == pytest.approx(1)


def test_a_search_that_tried_good_values_together_misleads_little():
    """y does nothing, and was 0 wherever x was good: alone it would seem to explain half."""
    points = [(x, y) for x in XS for y in YS if (x > 2) == bool(y)] * 4 + [(1, 1), (8, 0)]
    chosen = [
        Evaluation({"x": x, "y": y}, TrialState.COMPLETE, times_ms=(x,), default_ms=(1.0,))
        for x, y in points
    ]
    found = told(chosen)
    assert found["x"].share > 0.95
    assert found["y"].share < 0.02


def test_failures_and_parameters_of_one_value_do_not_count():
    failed = Evaluation({"x": 1, "y": 1, "z": 5}, TrialState.CRASHED)
    found = told([*space(lambda x, y: float(x)), failed], x=XS, y=YS, z=(5,))
    assert sorted(found) == ["x", "y"]
    assert sum(each.points for each in found["x"].values) == 8


def test_of_few_points_no_share_is_told():
    found = told(space(lambda x, y: float(x))[:4])
    assert [each.share for each in found.values()] == [None, None]
    assert unexplained(list(found.values())) is None
    assert importances({"x": XS}, []) == ()


def test_times_are_relative_to_the_default_in_the_same_rounds():
    """The clock halves midway, and with it the default's speed: that is no parameter's doing."""
    drifting = [
        Evaluation({"x": x, "y": y}, TrialState.COMPLETE, times_ms=(f * x,), default_ms=(f,))
        for x in XS
        for y, f in ((0, 1.0), (1, 2.0))
    ]
    assert told(drifting)["y"].share == pytest.approx(0, abs=1e-9)
    assert told(drifting)["x"].cost == pytest.approx(8)
