"""Recordings that are too short for anything in them to be called slow."""

import pytest

from gpuadvisor.domain.profile import Memory
from gpuadvisor.domain.severity import Severity
from gpuadvisor.rules.engine import diagnose
from gpuadvisor.rules.registry import load_rules
from tests.profiles import Made
from tests.rules.building import timeline

GRID = {
    "grid_x": 2, "grid_y": 1, "grid_z": 1, "block_x": 64, "block_y": 1, "block_z": 1,
    "registers": 32, "shared_bytes": 0,
}  # fmt: skip


def launches(count, lasts, every=0.0, kinds=1):
    made = Made()
    for number in range(count):
        at = number * max(every, lasts)
        made.launched(f"kernel_{number % kinds}", (max(at - 10, 0), 5), (at + 10, lasts), **GRID)
    return timeline(made)


TOO_SHORT = {
    "one launch without idle time": (1, 2.0),
    "one that is as long as a first one": (1, 900.0),
    "two that follow each other": (2, 60.0),
    "four with the host between them": (4, 20.0, 200.0),
    "six at the pace of a host, each of another kernel": (6, 20.0, 40.0, 6),
}
LONG_ENOUGH = {
    "one launch of more than a millisecond": (1, 5_000.0),
    "at the pace of a host": (40, 10.0, 20.0),
    "at the pace of a host, each of another kernel": (12, 10.0, 20.0, 12),
    "a few that are longer": (4, 20.0, 2_000.0),
}


@pytest.mark.parametrize("case", TOO_SHORT)
def test_too_little_is_remarks_only(case):
    evidence = launches(*TOO_SHORT[case])
    assert "All work in this recording" in evidence.facts.too_short
    found = diagnose(evidence, load_rules()).findings
    assert all(each.severity is Severity.INFO for each in found)
    assert all(each.improvement_pct is None for each in found)
    rules = {each.rule for each in found}
    assert ("small_grid_in_trace" in rules) is (TOO_SHORT[case][1] >= 20)


def one_each(lasts, kinds=4, copies=5, times=1):
    """Pageable copies and kernels of some kinds, which come a few times."""
    made = Made()
    for number in range(copies):
        at = 600.0 * number
        made.copied((at, 5), (at + 10, 500), bytes=4 << 20, source=Memory.PAGEABLE)
    for number in range(kinds * times):
        at = 600.0 * copies + max(lasts, 600.0) * number
        made.launched(f"kernel_{number % kinds}", (at, 5), (at + 10, lasts), **GRID)
    return timeline(made)


def test_a_few_single_launches_and_copies_are_too_short_and_have_remarks_only():
    evidence = one_each(500.0)
    assert "4 kernels, none of which comes 3 times" in evidence.facts.too_short
    found = diagnose(evidence, load_rules()).findings
    assert found and all(each.severity is Severity.INFO for each in found)


@pytest.mark.parametrize("more", [
    {"lasts": 2_000.0},  # one that lasts longer than a first launch may
    {"lasts": 500.0, "times": 3},  # they come again
    {"lasts": 500.0, "kinds": 12},  # no longer a few
    {"lasts": 500.0, "copies": 100},  # a run of 60 ms
])  # fmt: skip
def test_of_what_is_more_than_that_something_is_said(more):
    assert one_each(**more).facts.too_short is None


@pytest.mark.parametrize("case", LONG_ENOUGH)
def test_what_is_longer_or_comes_again_is_judged(case):
    assert launches(*LONG_ENOUGH[case]).facts.too_short is None


def test_one_long_launch_has_a_finding():
    (found,) = diagnose(launches(1, 5_000.0), load_rules()).findings
    assert found.rule == "small_grid_in_trace" and found.improvement_pct is not None
