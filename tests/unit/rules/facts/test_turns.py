"""Turns of programs that share a GPU: work begins late by alike times, whatever work it is."""

import pytest

from gpuadvisor.rules.facts.summary import Facts
from gpuadvisor.rules.facts.turns import Turns, turns
from tests.profiles import Made


def late_by(*late_us, kernels=("gemm", "add", "mul")):
    """Kernels that are launched at once, each of which begins so much later."""
    made, at = Made(), 0.0
    for number, late in enumerate(late_us):
        name = kernels[number % len(kernels)]
        made.launched(name, call=(at, 5), runs=(at + 8 + late, 100))
        at += 8 + late + 110
    facts = Facts(made.profile())
    return turns(facts.work, facts.launched, facts.threads, facts.window.begin_ns)


SHARED = (2200, 0, 2350, 0, 0, 2300, 2450, 0, 2280, 2400)


def test_work_that_begins_late_by_alike_times_waits_for_turns():
    found = late_by(0, *SHARED)
    assert isinstance(found, Turns) and found.count == 6
    assert 2.1e6 < found.shortest_ns < 2.3e6 and 2.3e6 < found.longest_ns < 2.5e6


@pytest.mark.parametrize(
    "late",
    [
        (2200, 0, 2300, 2250, 0),
        (900, 2200, 5000, 1400, 8000, 600, 3000),
        (100, 110, 105, 100, 110, 120, 100),
    ],
    ids=["too few", "as long as what it waits for", "too short"],
)
def test_other_late_work_does_not(late):
    assert late_by(0, *late) is None


def test_one_kernel_that_is_always_late_has_a_reason_of_its_own():
    assert late_by(0, *SHARED, kernels=("gemm",)) is None
