"""A run that is played again takes as long as it did, and what is changed saves what it must."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuadvisor.columns import MemoryProfile
from gpuadvisor.domain.profile import CallKind
from gpuadvisor.rules.facts.host_waits import Host
from gpuadvisor.rules.facts.idle_causes import Cause
from gpuadvisor.rules.facts.summary import Facts
from gpuadvisor.rules.facts.what_if import Scenario
from tests.profiles import Made
from tests.rules.programs import Program
from tests.stored_profiles import fill, header

US = 1000


def line(made):
    return Facts(made.profile()).timeline


def takes(program, **change):
    return line(program.made).takes_ns(Scenario(**change)) / US


def recorded(program):
    """The run's own time: from the device's first work on."""
    return Facts(program.made.profile()).window.run_ns / US


def steps(step, count=6):
    program = Program()
    for _ in range(count):
        step(program)
    program.launches("last", runs=10)
    return program


def synchronous(program):
    program.works(300)
    program.launches("kernel", runs=100, times=10, op=40)
    program.waits()


def test_as_it_was_it_takes_as_long():
    program = steps(synchronous)
    assert takes(program) == pytest.approx(recorded(program), rel=0.01)


def test_without_waits_it_takes_as_long_as_the_slower_of_host_and_device():
    program = steps(synchronous)
    assert takes(program, host={Host.SYNCHRONIZING: 0.0}) == pytest.approx(6 * 1000, rel=0.1)


def test_waits_cost_nothing_where_the_host_is_the_slower_one():
    def step(program):
        program.works(5000)
        program.launches("kernel", runs=100)
        program.waits()

    program = steps(step)
    without = takes(program, host={Host.SYNCHRONIZING: 0.0})
    assert without == pytest.approx(recorded(program), rel=0.03)


def test_a_host_that_needs_no_time_leaves_what_the_device_needs():
    program = Program()
    program.launches("kernel", runs=10, times=100, op=50)
    assert takes(program, host={Host.WORKING: 0.0}) == pytest.approx(1000, rel=0.02)


def test_half_the_waiting_for_batches():
    def step(program):
        program.loads(1000)
        program.launches("kernel", runs=10)

    program = steps(step)
    saved = takes(program) - takes(program, host={Host.LOADING: 0.5})
    assert saved == pytest.approx(3000, rel=0.01)


def test_faster_copies_that_the_host_does_not_wait_for():
    def step(program):
        program.copies(10_000_000, 5)
        program.launches("kernel", runs=500, op=20)

    program = steps(step)
    faster = takes(program, host={Host.COPYING: 0.0}, pageable=0.1)
    assert faster == pytest.approx(6 * (200 + 500), rel=0.02)


def test_frees_wait_for_the_device():
    def step(program):
        program.launches("kernel", runs=100, times=10, op=40)
        program.allocates(200, free=True)

    program = steps(step)
    assert takes(program) == pytest.approx(recorded(program), rel=0.01)
    assert takes(program, host={Host.ALLOCATING: 0.0}) == pytest.approx(6 * 1000, rel=0.02)


def test_a_gap_that_is_not_the_hosts_stays():
    made = Made()
    for number in range(10):
        made.launched("kernel", call=(number * 10, 5), runs=(500 + number * 200, 50))
    free = line(made).takes_ns(Scenario({Host.WORKING: 0.0})) / US
    assert free == pytest.approx(9 * 200 + 50, rel=0.01)


def test_streams_that_overlap_keep_their_overlap():
    made = Made()
    made.launched("long", call=(0, 5), runs=(10, 1000), stream=7)
    made.launched("short", call=(6, 5), runs=(20, 100), stream=8)
    made.call("cudaStreamSynchronize", (12, 109), CallKind.SYNCHRONIZE)
    made.launched("next", call=(130, 5), runs=(1010, 10), stream=7)
    assert line(made).takes_ns() / US == pytest.approx(1020, rel=0.01)


def test_without_calls_there_is_nothing_to_play():
    made = Made()
    made.kernel("kernel", (0, 10))
    assert line(made) is None


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(0, 40), st.floats(0, 3), st.sampled_from(list(Host)))
def test_whatever_a_file_says_it_is_a_time(seed, rows, factor, kind):
    profile = MemoryProfile()
    fill(profile, rows, seed)
    profile.finish(header())
    found = Facts(profile).timeline
    if found is not None:
        took = found.takes_ns(Scenario({kind: factor}, pageable=factor))
        assert math.isfinite(took)
        assert took >= 0
        assert np.isfinite(found.takes_ns())


def test_a_host_that_runs_ahead_hides_that_a_gpu_is_slow_to_begin():
    """Each kernel begins 60 us after its launch, as on an idle GPU under events that are timed."""
    made = Made()
    for number in range(20):
        at = 200.0 * number
        made.launched("kernel", (at, 5), (at + 65, 100))
        made.call("cudaEventSynchronize", (at + 10, 160), CallKind.SYNCHRONIZE)
    facts = Facts(made.profile())
    idle = facts.idle[0].causes_ns
    line = facts.timeline
    before = line.takes_ns()
    saved = before - line.takes_ns(Scenario({Host.SYNCHRONIZING: 0.0}))
    assert idle[Cause.SYNCHRONIZING] > 0.4 * facts.window.run_ns
    assert saved == pytest.approx(idle[Cause.SYNCHRONIZING], rel=0.15)


@pytest.mark.parametrize(("late", "saved"), [(20, 0.5), (3000, 0.0)])
def test_a_host_that_goes_on_when_the_device_is_done_waited_for_it(late, saved):
    """No call of six steps waits, whose kernels take from 5 to 10 ms: the host launches the next so
    many microseconds after the end."""
    made, at = Made(), 0
    for number in range(6):
        runs = 5000 + 1000 * number
        made.launched("kernel", (at, 5), (at + 7, runs))
        at += runs + late
    played = Facts(made.profile()).faster_kernels
    assert played.saved_share([(range(6), 0.5)], 1.0) == pytest.approx(saved, abs=0.1)


def test_of_several_devices_that_is_played_which_kernels_are_said_to_be_of():
    made = Made()
    for device, lasts in ((0, 5000), (1, 6000)):
        for number in range(4):
            call = (10 + 100 * number + 50 * device, 4)
            runs = (1000 + lasts * number, lasts)
            made.launched("solve", call, runs, stream=7, device=device)
    facts = Facts(made.profile())
    (use,) = facts.kernel_uses.uses
    assert facts.kernel_uses.device == facts.timeline.device == 1
    assert facts.faster_kernels.saved_share([(use.rows, 0.5)], 1.0) > 0.4
