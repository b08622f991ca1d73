"""What a short profile and whole runs promise together, and which run of a proof is shown."""

import pytest

from gpuadvisor.domain.knobs import Contribution, Origin
from gpuadvisor.domain.study import Expectation, Objective, Speedup, Trial, TrialState
from gpuadvisor.tuning.expectations import combined, foretold
from gpuadvisor.tuning.outcome.results import on_top, typical
from tests.simulation import measurement
from tests.studies import study


def trial(number, step_ms, state=TrialState.COMPLETE):
    return Trial(number, {}, "proof", state, measurement=measurement([step_ms]))


def test_the_run_of_median_cost_is_shown():
    runs = [trial(n, ms) for n, ms in enumerate([12.0, 10.0, 50.0, 11.0, 11.5])]
    assert typical(runs, Objective.THROUGHPUT).number == 4
    assert typical(runs[:2], Objective.THROUGHPUT).number == 1


def test_runs_that_failed_are_not():
    runs = [trial(0, 1.0, TrialState.WRONG), trial(1, 2.0)]
    assert typical(runs, Objective.THROUGHPUT).number == 1
    assert typical(runs[:1], Objective.THROUGHPUT) is None
    assert typical(runs, Objective.ENERGY) is None


def expectation(rule, low, high, summary="in words"):
    return Expectation(rule, "warning", summary, low, high, ("a_knob",))


LAYOUT = expectation("layout", 6, 25)
PRECISION = expectation("precision", 4, 23)
KEPT_UP = expectation("input_bound", 7, 8, "7 %, says the profile")


def test_more_that_whole_runs_saw_widens_the_estimate_and_comes_first():
    timed = expectation("input_bound", 0, 54, "54 %, say the runs")
    assert combined([LAYOUT, PRECISION, KEPT_UP], [timed]) == (
        expectation("input_bound", 7, 54, "54 %, say the runs"),
        LAYOUT,
        PRECISION,
    )


def test_what_only_whole_runs_saw_is_put_before_what_promises_less():
    timed = expectation("input_bound", 0, 30)
    assert combined([LAYOUT, PRECISION], [timed]) == (LAYOUT, timed, PRECISION)


def test_a_profile_that_saw_more_is_believed():
    timed = expectation("input_bound", 0, 8)
    assert combined([LAYOUT, KEPT_UP], [timed]) == (LAYOUT, KEPT_UP)


def test_no_more_than_whole_runs_waited_goes_with_the_waiting():
    """SSD300 on an H200: 4 to 38 % by a profile of uneven steps, of which 28 % were waiting in its
    run; 22.4 % were saved."""
    profiled = expectation("input_bound", 4, 38)
    assert combined([profiled, LAYOUT], [expectation("input_bound", 0, 28)]) == (
        expectation("input_bound", 4, pytest.approx(28.84)),
        LAYOUT,
    )


def test_less_waiting_than_the_profile_is_sure_of_says_nothing_of_it():
    profiled = expectation("input_bound", 30, 60)
    assert combined([profiled], [expectation("input_bound", 0, 20)]) == (profiled,)


def test_without_a_profile_both_say_the_same():
    assert combined([KEPT_UP, LAYOUT], [KEPT_UP, LAYOUT]) == (KEPT_UP, LAYOUT)


def test_what_has_no_estimate_comes_last():
    unknown = expectation("unknown", None, None)
    assert combined([LAYOUT], [unknown]) == (LAYOUT, unknown)
    assert combined([unknown], [LAYOUT]) == (LAYOUT, unknown)


def test_what_waiting_costs_is_as_unsure_as_runs_differ():
    """The vae on an H200: 10.9 and 7.35 ms, and 52 % of the runs of the proof were saved."""
    promised = expectation("input_bound", 0, 72)
    one, other = measurement([10.9] * 8), measurement([7.35] * 8)
    sure, unsure = (foretold(promised, (2.9, 3.67), runs) for runs in ([one], [one, other]))
    assert (sure.low_pct, sure.high_pct) == pytest.approx((66.3, 72), abs=0.1)
    assert (unsure.low_pct, unsure.high_pct) == pytest.approx((50.1, 72), abs=0.1)


WORKERS = {"dataloader_workers": 4}
OVER, BASE = Speedup(1.2, 1.1, 1.3, 3), Speedup(2.0, 1.5, 2.7, 4)


@pytest.mark.parametrize(
    ("settings", "known", "shown"),
    [
        ({**WORKERS, "tf32": True}, WORKERS, {"tf32": (1.2, Origin.PROOF)}),
        ({"dataloader_workers": 8}, WORKERS, {"dataloader_workers": (2.4, Origin.PROOF)}),
        ({"dataloader_workers": 8, "tf32": True}, WORKERS, {}),
        ({"tf32": True}, {**WORKERS, "bf16_autocast": True}, {"tf32": (2.4, Origin.PROOF)}),
    ],
)
def test_what_is_proven_on_top_multiplies(settings, known, shown):
    own = Contribution("tf32", True, 1.05, origin=Origin.SEARCH)
    one = tuple(Contribution(n, v, 1.2, origin=Origin.PROOF) for n, v in settings.items())
    contributions = one if len(one) == 1 else (own,) * ("tf32" in settings)
    found, before = (
        study(settings=each, speedup=speedup, contributions=contributions)
        for each, speedup in ((settings, OVER), (known, BASE))
    )
    whole = on_top(found, before, Speedup(1.2, 1.0, 1.4, 3), Speedup(2.0, 1.2, 3.3, 4))
    low, high = whole.speedup.ci99_low, whole.speedup.ci99_high
    assert (whole.speedup.ratio, low, high) == pytest.approx((2.4, 1.5, 4.62))
    assert whole.speedup.pairs == 7
    found = {e.knob: (e.ratio, e.origin) for e in whole.contributions if e.origin.is_shown}
    assert found == {name: (pytest.approx(ratio), of) for name, (ratio, of) in shown.items()}


def test_of_what_is_not_faster_on_top_no_knob_brings_anything():
    """As where a proof compares the best with another value of its one knob."""
    level = Speedup(1.02, 0.9, 1.15, 3)
    before = study(settings=WORKERS, speedup=BASE)
    found = study(settings={"dataloader_workers": 8}, speedup=level, contributions=())
    whole = on_top(found, before, level, BASE)
    assert (whole.speedup.ratio, whole.contributions) == (pytest.approx(2.04), ())
