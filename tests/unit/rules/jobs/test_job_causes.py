"""What a slice of a job may be said to suffer from: cases in which it is said, and must not be."""

from dataclasses import replace

import pytest

from gpuadvisor.domain.jobs import UNTOLD, Slice
from gpuadvisor.rules.jobs.cause import load_causes, name_cause

HEALTHY = Slice(
    20, True, utilization_pct=97, sm_active_pct=85, own_sm_pct=90, power_w=600, power_limit_w=700,
    sm_clock_mhz=1975, sm_clock_max_mhz=1980, cpu_pct=100, children_cpu_pct=0, machine_cpu_pct=10,
    io_stall_pct=0,
)  # fmt: skip
IDLE = replace(HEALTHY, utilization_pct=0, sm_active_pct=0, own_sm_pct=0, power_w=70, cpu_pct=1)
LOADER = replace(HEALTHY, utilization_pct=54, sm_active_pct=45, children_cpu_pct=380, cpu_pct=30)
OWN_LOADER = replace(HEALTHY, utilization_pct=20, sm_active_pct=17, cpu_pct=100)
LAUNCHES = replace(HEALTHY, utilization_pct=92, sm_active_pct=12, power_w=150)
CAPPED = replace(HEALTHY, sm_clock_mhz=1600, held_down={"sw_power_cap": 0.98})


@pytest.mark.parametrize(
    ("seen", "cause", "lost"),
    [
        (HEALTHY, "healthy", 0.0),
        (replace(HEALTHY, sm_active_pct=None), "healthy", 0.0),  # an older GPU, by its power
        (IDLE, "idle", 1.0),
        (replace(IDLE, cpu_pct=None, children_cpu_pct=None), "idle", 1.0),
        (replace(IDLE, cpu_pct=100), "on_the_cpu", 1.0),
        (replace(IDLE, children_cpu_pct=700), "on_the_cpu", 1.0),
        (LOADER, "waiting_for_input", 0.46),
        # As read on an H200, whose utilization does not see kernels that run 3 % of the time.
        (replace(LOADER, utilization_pct=0, sm_active_pct=0.61), "waiting_for_input", 0.9),
        (OWN_LOADER, "waiting_for_input", 0.8),
        (replace(LOADER, children_cpu_pct=0, io_stall_pct=60), "waiting_for_input", 0.46),
        (LAUNCHES, "launch_bound", 0.88),
        # As read on an H200 of a network of 200 tiny layers, whose kernels take a microsecond.
        (replace(LAUNCHES, utilization_pct=8.73, sm_active_pct=0.14), "waits_for_host", 0.9127),
        (replace(OWN_LOADER, sm_active_pct=4), "waits_for_host", 0.8),
        (replace(OWN_LOADER, sm_active_pct=None), "waits_for_host", 0.8),
        # It pauses again and again: a thread that spins beside a full GPU is as busy.
        (replace(OWN_LOADER, at_work_pct=99), "waits_for_host", 0.8),
        (CAPPED, "clocks_held", 1 - 1600 / 1980),
        (replace(HEALTHY, alone=False), "shared_gpu", 0.0),
        # Another's work on the same GPU is not this job's.
        (replace(HEALTHY, alone=False, own_sm_pct=0, cpu_pct=1), "idle", 1.0),
    ],
)
def test_what_is_said(seen, cause, lost):
    assert name_cause(seen) == (cause, pytest.approx(lost))


@pytest.mark.parametrize(
    ("seen", "not_said"),
    [
        # Some kernel always runs, on few SMs: it may be anything, and is not idle.
        (replace(HEALTHY, utilization_pct=98, sm_active_pct=5, cpu_pct=10), "idle"),
        (replace(IDLE, sm_active_pct=30), "idle"),  # broken counters, one way or the other
        (replace(IDLE, utilization_pct=None), "idle"),
        # Without counters: workers of a loader, or a program that prepares its data.
        (replace(IDLE, sm_active_pct=None, children_cpu_pct=700), "on_the_cpu"),
        (replace(IDLE, alone=False, utilization_pct=60, own_sm_pct=None), "idle"),
        # CPU unknown is not input-bound, nor one thread that launches.
        (replace(LOADER, cpu_pct=None, children_cpu_pct=None), "waiting_for_input"),
        (replace(OWN_LOADER, cpu_pct=None), "waiting_for_input"),
        (replace(LAUNCHES, cpu_pct=None), "launch_bound"),
        # Its own thread is busy, and how full the SMs are is not known: batches, or launches.
        (replace(OWN_LOADER, sm_active_pct=None), "waiting_for_input"),
        (replace(OWN_LOADER, sm_active_pct=4), "waiting_for_input"),
        (replace(LOADER, utilization_pct=97, sm_active_pct=30), "waiting_for_input"),
        # The machine reads something, and this job computes.
        (replace(HEALTHY, io_stall_pct=60), "waiting_for_input"),
        (replace(OWN_LOADER, at_work_pct=99), "waiting_for_input"),
        (replace(LAUNCHES, cpu_pct=900), "launch_bound"),
        (replace(OWN_LOADER, sm_active_pct=4, cpu_pct=60), "waits_for_host"),
        (replace(OWN_LOADER, sm_active_pct=4, cpu_pct=400), "waits_for_host"),
        (replace(OWN_LOADER, sm_active_pct=4, cpu_pct=None), "waits_for_host"),
        (replace(LOADER, cpu_pct=100), "waits_for_host"),
        (replace(HEALTHY, utilization_pct=88), "waits_for_host"),
        (replace(IDLE, cpu_pct=100), "waits_for_host"),
        (replace(LAUNCHES, children_cpu_pct=200), "launch_bound"),
        (replace(LAUNCHES, sm_active_pct=None), "launch_bound"),
        (replace(CAPPED, held_down={}), "clocks_held"),
        (replace(CAPPED, held_down={"sw_power_cap": 0.1}), "clocks_held"),
        (replace(CAPPED, sm_clock_mhz=1975), "clocks_held"),
        (replace(CAPPED, utilization_pct=30, sm_active_pct=28), "clocks_held"),
        (replace(HEALTHY, sm_active_pct=None, power_w=None), "healthy"),
        (replace(HEALTHY, sm_active_pct=20, cpu_pct=10), "healthy"),
    ],
)
def test_what_must_not_be_said(seen, not_said):
    assert name_cause(seen)[0] != not_said


def test_nothing_is_said_of_some_seconds():
    assert name_cause(replace(IDLE, held_s=4)) == (UNTOLD, 0.0)


def test_input_gains_no_more_than_free_cores_can_make():
    """Three quarters of the machine's cores are in use: input gets a third faster at most."""
    seen = replace(OWN_LOADER, machine_cpu_pct=75)
    assert name_cause(seen) == ("waiting_for_input", pytest.approx(0.25))


@pytest.mark.parametrize("name", load_causes())
def test_a_gain_comes_with_its_method_and_one_by_tune_with_the_command(name):
    cause = load_causes()[name]
    assert cause.is_waste == bool(cause.method)
    assert cause.is_tunable == ("gpuadvisor tune" in cause.advice)


def test_each_cause_has_a_rank_of_its_own():
    ranks = [cause.rank for cause in load_causes().values()]
    assert ranks == sorted(set(ranks))
