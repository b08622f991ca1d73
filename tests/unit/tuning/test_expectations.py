"""What a short profile and whole runs of the script promise together."""

from gpuadvisor.domain.study import Expectation
from gpuadvisor.tuning.expectations import combined


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


def test_without_a_profile_both_say_the_same():
    assert combined([KEPT_UP, LAYOUT], [KEPT_UP, LAYOUT]) == (KEPT_UP, LAYOUT)


def test_what_has_no_estimate_comes_last():
    unknown = expectation("unknown", None, None)
    assert combined([LAYOUT], [unknown]) == (LAYOUT, unknown)
    assert combined([unknown], [LAYOUT]) == (LAYOUT, unknown)
