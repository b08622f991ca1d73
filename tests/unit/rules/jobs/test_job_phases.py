"""What is said of jobs whose seconds are not all alike: each second has the cause that it had."""

from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuadvisor.collectors.nvml.sampler import PROCESSES_S
from gpuadvisor.domain.telemetry import HOST, Frame, GpuProcess, Sample
from gpuadvisor.rules.jobs import phases as job_phases
from gpuadvisor.rules.jobs.phases import (
    LEAST_KNOWN_S,
    LEAST_PAUSE_S,
    REPEATED,
    Before,
    Phase,
    Poll,
    phases,
)
from gpuadvisor.rules.jobs.use import LISTING_HOLDS_S, JobFold
from tests.simulated_jobs import BEGIN_S
from tests.telemetry import h100

WORKED, PAUSED, UNTOLD = Phase.WORKED, Phase.PAUSED, Phase.UNTOLD
AT_WORK = Before(has_worked=True)
GPU = h100(0).uuid


def test_lists_of_processes_come_as_often_as_rules_on_them_say():
    assert (LEAST_KNOWN_S, LISTING_HOLDS_S) == (2 * PROCESSES_S, 3 * PROCESSES_S)


def polls(*utilization):
    return [
        Poll(BEGIN_S + second, 1.0, {"gpu_utilization_pct": used, "sm_active_pct": 0.8 * used})
        for second, used in enumerate(utilization)
    ]


@pytest.mark.parametrize(
    ("utilization", "before", "expected"),
    [
        ([100] * 20, AT_WORK, [WORKED] * 20),
        ([0] * 20, AT_WORK, [PAUSED] * 20),
        # Its start: how it works shows from the next slice on.
        ([0] * 4 + [2, 98] + [100] * 14, Before(), [UNTOLD] * 20),
        ([0] * 12 + [100] * 8, Before(), [PAUSED] * 12 + [UNTOLD] * 8),
        # A profile is written, or a pause of which nobody knows what the CPU did. A poll beside it
        # may have seen a part of it, whatever utilization it read.
        ([100] * 9 + [60] + [0] * 5 + [30] + [100] * 4, AT_WORK,
         [WORKED] * 9 + [UNTOLD] * 7 + [WORKED] * 4),
        ([100] * 5 + [0] * 15, AT_WORK, [WORKED] * 4 + [UNTOLD] + [PAUSED] * 15),
        # What was of a pause before the slice counts.
        ([0] * 4 + [100] * 16, Before(True, 8.0), [PAUSED] * 4 + [UNTOLD] + [WORKED] * 15),
        ([0] * 2 + [100] * 18, Before(True, 2.0), [UNTOLD] * 3 + [WORKED] * 17),
        # How long the last will last is not known yet.
        ([100] * 18 + [0] * 2, AT_WORK, [WORKED] * 17 + [UNTOLD] * 3),
        # One second in three is how it works; so are four in six.
        ([0, 80, 90] * 6 + [0, 80], AT_WORK, [WORKED] * 20),
        ([0, 0, 0, 0, 100, 100] * 3 + [0, 0], AT_WORK, [WORKED] * 20),
        ([0] * 4 + [100] * 8 + [0] * 4 + [100] * 4, Before(True, 0.0, 1), [WORKED] * 20),
        # A loop that waits is busy for half of every poll, and a pause takes nothing of it.
        ([50] * 20, AT_WORK, [WORKED] * 20),
    ],
)  # fmt: skip
def test_what_a_job_did(utilization, before, expected):
    assert phases(polls(*utilization), before)[0] == expected


def test_kernels_that_utilization_does_not_see_are_no_pause():
    few = [Poll(BEGIN_S, 1.0, {"gpu_utilization_pct": 0, "sm_active_pct": 0.71})] * 20
    assert set(phases(few, AT_WORK)[0]) == {WORKED}
    unknown = [Poll(BEGIN_S, 1.0, {"power_w": 70})] * 20
    assert set(phases(unknown, AT_WORK)[0]) == {WORKED}


@given(st.lists(st.lists(st.sampled_from([0, 0, 1, 50, 100]), max_size=20), max_size=6))
def test_every_poll_is_of_one_phase_and_work_is_never_a_pause(slices):
    before = Before()
    for utilization in slices:
        seen = polls(*utilization)
        was, (found, before) = before, phases(seen, before)
        assert len(found) == len(seen)
        for poll, phase in zip(seen, found, strict=True):
            assert phase is not PAUSED or poll.is_empty
        short = sum(
            each is UNTOLD and poll.is_empty for each, poll in zip(found, seen, strict=True)
        )
        assert short <= (REPEATED - 1) * LEAST_KNOWN_S + LEAST_PAUSE_S or not was.has_worked
        assert before.has_worked or not any(not poll.is_empty for poll in seen)


# -- jobs of whole lives ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Second:
    """What a job did in a second."""

    utilization_pct: float
    sm_active_pct: float
    cpu_pct: float
    children_pct: float = 0.0
    clock_mhz: float = 1980
    mask: int = 0
    io_stall_pct: float = 0.0


TRAINS = Second(100, 77, 100)
"""Its thread launches, and then spins until the GPU has done all."""
CAPPED = Second(100, 98, 100, clock_mhz=1440, mask=4)
LOADS = Second(0, 0, 100)
RESTS = Second(0, 0, 0)
EVALUATES = Second(0, 0, 100, 300)
STARTS = (*[LOADS] * 5, Second(2, 0.01, 100), *[LOADS] * 3, Second(18, 0.1, 100))


def named(seconds, begin_s=7):
    """The seconds of each cause, of a job that begins at no whole slice; it is listed every five
    seconds, with the CPU time of the five before."""
    process = GpuProcess(GPU, 71, "compute", 2**30, "python", "ann", "python train.py",
                         started_s=BEGIN_S + begin_s)  # fmt: skip
    fold, uses, total_s = JobFold(), [], 0.0
    for second, did in enumerate(seconds):
        listed = None
        if second % 5 == 0:
            last = seconds[max(second - 5, 0) : second] or seconds[:1]
            cpu, children = (
                sum(getattr(each, name) for each in last) / len(last)
                for name in ("cpu_pct", "children_pct")
            )
            listed = (GpuProcess(**{**vars(process), "cpu_pct": cpu, "children_cpu_pct": children,
                                    "sm_utilization_pct": did.sm_active_pct}),)  # fmt: skip
        values = {
            "gpu_utilization_pct": did.utilization_pct, "sm_active_pct": did.sm_active_pct,
            "sm_clock_mhz": did.clock_mhz, "sm_clock_max_mhz": 1980, "throttle_reasons": did.mask,
            "power_w": 500.0, "power_limit_w": 700.0,
        }  # fmt: skip
        host = Sample({"cpu_pct": 10.0, "io_stall_pct": did.io_stall_pct})
        frame = Frame(
            BEGIN_S + begin_s + second, {GPU: Sample(values), HOST: host}, processes=listed
        )
        uses += [use for minute in fold.add(frame) for use in minute.uses]
    uses += [use for minute in fold.finish() for use in minute.uses]
    found = {}
    for use in uses:
        total_s += use.amounts.seconds
        for name, loss in use.causes.items():
            found[name] = found.get(name, 0.0) + loss.seconds
            assert 0 <= loss.lost_s <= loss.seconds + 1e-9
    assert sum(found.values()) == pytest.approx(total_s) == pytest.approx(len(seconds) - 1)
    return {name: seconds for name, seconds in found.items() if seconds}


def test_a_job_that_starts_and_is_profiled_does_not_wait_for_input():
    """As on an H200: 58 s at its power limit, its first kernels late, a profile written within."""
    life = [*STARTS, *[CAPPED] * 20, *[LOADS] * 5, *[CAPPED] * 25]
    found = named(life)
    assert set(found) == {"clocks_held", "untold"}
    assert found["clocks_held"] >= 35


def test_a_training_that_evaluates_on_the_cpu_is_both():
    life = [*STARTS, *([TRAINS] * 60 + [EVALUATES] * 30) * 5]
    found = named(life)
    assert set(found) == {"healthy", "on_the_cpu", "untold"}
    assert found["healthy"] >= 240
    assert found["on_the_cpu"] >= 90


def test_a_pause_of_seconds_is_told_of_nobody():
    found = named([*STARTS, *([TRAINS] * 55 + [RESTS] * 5) * 5])
    assert set(found) == {"healthy", "untold"}
    assert found["untold"] <= 25 + 20 + 10


def test_a_process_that_ends_its_work_and_holds_its_memory_is_idle_then():
    """Its thread spun until a moment ago: that is not what it does now."""
    found = named([*STARTS, *[TRAINS] * 60, *[RESTS] * 120])
    assert set(found) == {"healthy", "idle", "untold"}
    assert found["idle"] >= 100


def test_a_server_that_answers_now_and_then_is_not_idle_while_it_answers():
    """A burst every 4 s: it waits for requests, and telemetry cannot tell for what."""
    bursts = [Second(0, 0, 10), Second(0, 0, 10), Second(70, 40, 60), Second(30, 10, 30)]
    found = named([*STARTS, *bursts * 60])
    assert found["untold"] == sum(found.values())


def test_a_loop_that_makes_each_batch_for_seconds_waits_for_its_host():
    found = named([*STARTS, *([LOADS] * 4 + [TRAINS] * 3) * 40])
    assert max(found, key=found.get) == "waits_for_host"
    assert found["waits_for_host"] >= 200
    assert "waiting_for_input" not in found


def test_a_loop_that_reads_from_a_slow_disk_for_seconds_waits_for_input():
    reads = Second(0, 0, 5, io_stall_pct=90)
    found = named([*STARTS, *([reads] * 4 + [Second(100, 80, 60)] * 3) * 40])
    assert max(found, key=found.get) == "waiting_for_input"


def test_short_launches_wait_for_the_host():
    """As read on an H200 of a network of 200 tiny layers."""
    found = named([*STARTS, *[Second(9, 0.14, 100)] * 48])
    assert set(found) == {"untold", "waits_for_host"}
    assert found["waits_for_host"] >= 35


@pytest.mark.parametrize("lasts_s", [3, 8, 15, 30, 55])
def test_of_a_job_that_ends_soon_nothing_false_is_said(lasts_s):
    assert set(named([*STARTS, *[TRAINS] * lasts_s, RESTS, RESTS])) <= {"healthy", "untold"}


LIVES = st.lists(
    st.tuples(st.sampled_from([TRAINS, CAPPED, LOADS, RESTS, EVALUATES]), st.integers(1, 90)),
    min_size=1, max_size=8,
)  # fmt: skip


@given(LIVES, st.integers(0, 59))
def test_whatever_follows_what_no_second_is_counted_twice_or_said_to_wait(parts, begin_s):
    """None of these ever waits for input: what is busy, is busy for whole polls."""
    life = [each for each, seconds in parts for _ in range(seconds)]
    rhythm = sum(a[0] != b[0] for a, b in pairwise(parts))
    found = named(life, begin_s)
    if rhythm < REPEATED:
        assert "waiting_for_input" not in found
        assert "launch_bound" not in found


READS = Second(0, 0, 100)
LIVES_AND_CAUSES = [
    ([TRAINS] * 60, "healthy"),
    ([CAPPED] * 60, "clocks_held"),
    ([Second(50, 40, 100)] * 60, "waiting_for_input"),
    ([Second(9, 0.14, 100)] * 60, "waits_for_host"),
    (([TRAINS] * 40 + [EVALUATES] * 8) * 5, "healthy"),
    (([TRAINS] * 60 + [READS] * 4) * 5, "healthy"),
    (([READS] * 4 + [Second(100, 80, 60)] * 3) * 40, "waits_for_host"),
    ([TRAINS] * 20 + [RESTS] * 60, "idle"),
]


@pytest.mark.parametrize("factor", [0.5, 2.0])
@pytest.mark.parametrize("name", ["NO_KERNELS_PCT", "LEAST_PAUSE_S", "REPEATED"])
def test_what_is_named_most_rests_on_no_constant_within_a_factor_of_two(name, factor, monkeypatch):
    monkeypatch.setattr(job_phases, name, factor * getattr(job_phases, name))
    for life, expected in LIVES_AND_CAUSES:
        found = named([*STARTS, *life])
        assert max(found, key=found.get) == expected
