"""Which of several changes made it worse."""

import pytest

from gpuadvisor.domain.gate import GateVerdict
from gpuadvisor.tuning.gate.bisection import first_bad, steps


def found(count, bad_from, untold=()):
    """Bisect; return the places that are left, and how many comparisons it took."""
    asked = []

    def judge(place):
        asked.append(place)
        if place in untold:
            return GateVerdict.INCONCLUSIVE
        return GateVerdict.FAIL if place >= bad_from else GateVerdict.PASS

    places = first_bad(count, judge)
    assert len(set(asked)) == len(asked)
    return list(places), len(asked)


@pytest.mark.parametrize("count", [1, 2, 3, 8, 9, 100])
def test_it_finds_each_in_as_many_steps_as_it_says(count):
    for bad_from in range(count):
        places, asked = found(count, bad_from)
        assert places == [bad_from]
        assert asked <= steps(count)


@pytest.mark.parametrize(
    ("bad_from", "untold", "left"),
    [
        (8, {4, 5}, [8]),  # a neighbour tells
        (5, {4}, [4, 5]),
        (2, {4, 5, 6}, [2]),
        (5, {3, 4, 5, 6}, [3, 4, 5, 6, 7]),
        (9, set(range(9)), list(range(10))),
    ],
)
def test_where_some_do_not_tell_neighbours_do_and_else_all_between_are_named(
    bad_from, untold, left
):
    assert found(10, bad_from, untold)[0] == left
