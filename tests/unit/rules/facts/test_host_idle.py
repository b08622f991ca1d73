"""What the launching thread called of the operating system while the device was idle."""

import pytest

from gpuadvisor.domain.profile import SYSTEM_CALLS, Range
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.facts.summary import Facts
from gpuadvisor.rules.requirements import RANGES
from tests.profiles import Made
from tests.rules.building import H100


def waiting(*calls, other_launches=False):
    """Launches every millisecond, of work for a tenth of that, with calls into the operating system
    of so many microseconds between them: `(name, us, thread)`."""
    made = Made()
    for number in range(10):
        at = 1_000.0 * number
        made.launched("solve", (at, 5), (at + 8, 100))
        for place, (name, us, thread) in enumerate(calls):
            began = at + 200 + 350 * place
            made.range(name, (began, us), Range.SYSTEM, thread=thread)
        if other_launches:
            made.launched("other", (at + 20, 5), (at + 120, 20), thread=2)
    return made.profile(source="nsys", devices=(H100,), facts={SYSTEM_CALLS: "recorded"})


def told(*calls, **more):
    return Facts(waiting(*calls, **more)).system_calls


def test_the_largest_comes_first_with_its_share_of_the_time_in_which_nothing_was_launched():
    found = told(("poll", 300, 1), ("write", 90, 1))
    assert [name for name, _ in found.named] == ["poll", "write"]
    shares = [share for _, share in found.named]
    assert shares == [pytest.approx(300 / 895, rel=0.05), pytest.approx(90 / 895, rel=0.05)]
    assert found.share == pytest.approx(sum(shares))


def test_what_another_thread_waits_in_is_not_the_launching_ones():
    found = told(("poll", 300, 2))
    assert (found.share, found.named) == (0, [])


def test_without_a_record_of_such_calls_nothing_is_known_of_them():
    made = Made()
    made.launched("solve", (0, 5), (8, 100))
    made.launched("solve", (1_000, 5), (1_008, 100))
    assert Facts(made.profile(source="nsys", devices=(H100,))).system_calls is None


def test_of_two_threads_that_launch_nothing_is_told():
    assert told(("poll", 300, 1), other_launches=True) is None


def test_they_are_no_ranges_that_the_program_marked():
    evidence = Evidence(Facts(waiting(("poll", 300, 1))))
    assert RANGES.missing(evidence) == "no ranges"
    assert not evidence.known_facts.host_recorded
