"""What the launching thread called of the operating system while the device was idle."""

import pytest

from gpuadvisor.domain.profile import SYSTEM_CALLS, Direction, Range
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


def executing(*places, other_launches=False, on_device=0):
    """Work for a tenth of each millisecond, and a sample in the rest: for each millisecond a
    function, its module and a thread; `None` stands for no sample."""
    made = Made()
    for number, place in enumerate(places):
        at = 1_000.0 * number
        made.launched("solve", (at, 5), (at + 8, 100))
        if other_launches:
            made.launched("other", (at + 20, 5), (at + 120, 20), thread=2, device=on_device)
        if place is not None:
            name, module, thread = place
            made.row("samples", time_ns=round(1000 * (at + 500)), process=1, thread=thread,
                     function=name, module=module)  # fmt: skip
    return Facts(made.profile(source="nsys", devices=(H100,))).cpu_samples


PARSING, UNNAMED = ("parse", "libparse.so", 1), ("", "libparse.so", 1)
WAITING = ("wait", "libother.so", 2)


def test_shares_of_samples_by_library_and_function_have_intervals():
    found = executing(*[PARSING] * 30, *[UNNAMED] * 10, ("main", "app", 1), *[WAITING] * 40, None)
    assert found.samples == 41
    (library,), (function,) = found.modules, found.functions  # one sample of 41 is too few
    assert (library.module, library.function, library.samples) == ("libparse.so", "", 40)
    assert (function.module, function.function, function.samples) == ("libparse.so", "parse", 30)
    # By hand: (30/41 + z^2/82 +- z sqrt(30*11/41^3 + (z/82)^2)) / (1 + z^2/41), z = 1.96
    assert function.share == pytest.approx(30 / 41)
    assert (function.low, function.high) == (
        pytest.approx(0.581, abs=1e-3),
        pytest.approx(0.843, abs=1e-3),
    )


def test_of_few_samples_no_place_is_told():
    assert executing(*[PARSING] * 20, None).modules
    few = executing(*[PARSING] * 19, None)
    assert (few.samples, few.modules, few.functions) == (19, (), ())


def test_without_samples_and_of_two_threads_that_launch_nothing_is_known():
    assert executing(None, None) is None
    assert executing(*[PARSING] * 40, other_launches=True) is None


def test_the_thread_that_launches_on_another_device_is_not_taken_for_this_ones():
    found = executing(*[PARSING] * 30, *[WAITING] * 40, other_launches=True, on_device=1)
    assert [each.function for each in found.functions] == ["parse"]


def test_samples_while_the_gpu_works_or_the_thread_launches_do_not_count():
    made = Made()
    for number in range(50):
        at = 1_000.0 * number
        made.launched("solve", (at, 5), (at + 8, 100))
        for us in (2, 50, 500):  # in the call, while the kernel runs, and after it
            made.row("samples", time_ns=round(1000 * (at + us)), process=1, thread=1,
                     function=f"at_{us}", module="app")  # fmt: skip
    found = Facts(made.profile(source="nsys", devices=(H100,))).cpu_samples
    assert [each.function for each in found.functions] == ["at_500"]


def test_waiting_between_pages_of_managed_memory_is_the_threads_own_time():
    made = Made()
    made.launched("solve", (0, 5), (8, 100))
    for number in range(1, 40):
        at = 1_000.0 * number
        made.copy((at, 20), direction=Direction.MIGRATION, bytes=1 << 16)
        made.range("pwrite64", (at + 30, 900), Range.SYSTEM, thread=1)
        made.row("samples", time_ns=round(1000 * (at + 500)), process=1, thread=1,
                 function="H5Dwrite", module="libhdf5.so")  # fmt: skip
    made.launched("solve", (40_000, 5), (40_008, 100))
    recorded = {SYSTEM_CALLS: "recorded"}
    facts = Facts(made.profile(source="nsys", devices=(H100,), facts=recorded))
    assert [(name, round(share, 1)) for name, share in facts.system_calls.named] == [
        ("pwrite64", 0.9)
    ]
    assert facts.cpu_samples.samples == 39


def test_they_are_no_ranges_that_the_program_marked():
    evidence = Evidence(Facts(waiting(("poll", 300, 1))))
    assert RANGES.missing(evidence) == "no ranges"
    assert not evidence.known_facts.host_recorded


@pytest.mark.parametrize(
    ("ranges", "named"),
    [
        ([("compile", 1_000, 5_000)], "compile"),
        ([("main", 0, 10_000)], None),
        ([("main", 0, 10_000), ("compile", 1_000, 5_000)], "compile"),
        ([("short", 1_000, 500)], "short"),
        ([("short", 1_000, 500), ("longer", 2_000, 900)], "longer"),
        ([("next to nothing", 1_000, 50)], None),
    ],
)
def test_a_range_that_comes_once_is_named_where_it_lies_in_the_idle_time(ranges, named):
    made = Made()
    for number, at in enumerate((0, 8_000)):
        made.launched(f"kernel {number}", (at + 10, 5), (at + 18, 100))
    for name, begin, length in ranges:
        made.range(name, (begin, length), Range.USER)
    facts = Facts(made.profile(source="nsys", devices=(H100,)))
    found = facts.doing_in(facts.host_idle.other_times)
    assert (found and found.name) == named
    if found is not None:  # of the time from the first kernel's end to the second one's call
        length = next(length for name, _, length in ranges if name == named)
        assert found.share == pytest.approx(length / 7_900, rel=0.02)


def test_ranges_of_processes_that_launch_on_other_devices_do_not_count():
    """Ranks in one recording: what the others wait for is not what this one's device waits for."""
    made = Made()
    for number in range(10):
        at = 1_000.0 * number
        made.launched("solve", (at, 5), (at + 8, 100))
        made.range("MPI_Recv", (at + 300, 200))
        for other in (2, 3):
            made.range("MPI_Recv", (at + 520, 450), process=other)
    facts = Facts(made.profile(source="nsys", devices=(H100,)))
    assert not facts.host_recorded
    assert facts.host_doing.name == "MPI_Recv"
    assert facts.host_doing.share == pytest.approx(200 / 895, rel=0.05)
