"""What disturbs a run: told from the run's own work, and only where it can be known."""

import os
import subprocess
import sys
import time

import pytest

from gpuadvisor.collectors import load
from gpuadvisor.collectors.load import (
    CpuTimes,
    LoadMeter,
    LoadReading,
    cpu_times,
    describe_cpu,
    describe_limit,
)
from gpuadvisor.domain.device import Device

CPU = Device("cpu", 0, "a CPU")


@pytest.mark.parametrize(
    ("before", "after", "passed_s", "said"),
    [
        (
            (100, 0),
            (200, 62),
            10.0,
            "was used up in 62 of 100 periods, for the rest of which its processes",
        ),
        ((100, 7), (200, 9), 10.0, ""),  # of which at most 2 % of the time
        ((100, 7), (104, 9), 0.4, ""),  # too short
        (None, (200, 62), 10.0, ""),
        ((100, 0), None, 10.0, ""),
    ],
)
def test_a_limit_that_was_used_up_is_told(before, after, passed_s, said):
    begin = LoadReading(100.0, None, None, periods=before)
    end = LoadReading(100.0 + passed_s, None, None, periods=after)
    assert (said in describe_limit(begin, end)) if said else not describe_limit(begin, end)


def told(busy_s, own_s, steal_s=0.0, cores=4, passed_s=10.0):
    begin = LoadReading(100.0, CpuTimes(cores, 500.0, 7.0), 50.0)
    own = None if own_s is None else 50.0 + own_s
    cpu = None if busy_s is None else CpuTimes(cores, 500.0 + busy_s, 7.0 + steal_s)
    return describe_cpu(begin, LoadReading(100.0 + passed_s, cpu, own))


@pytest.mark.parametrize(
    ("reading", "sentence"),
    [
        ({"busy_s": 40.0, "own_s": 40.0}, ""),
        ({"busy_s": 40.0, "own_s": 20.0}, "others used 2.0 of 4 CPU cores, and none was idle"),
        ({"busy_s": 30.0, "own_s": 10.0}, ""),  # a core was idle: nobody waited
        ({"busy_s": 40.0, "own_s": 39.0}, ""),  # a daemon
        ({"busy_s": 20.0, "own_s": 20.0, "steal_s": 4.0}, "a hypervisor took 10% of the cores'"),
        ({"busy_s": None, "own_s": 40.0}, ""),
        ({"busy_s": 40.0, "own_s": None}, ""),
        ({"busy_s": 1.6, "own_s": 0.0, "passed_s": 0.4}, ""),  # too short
    ],
)
def test_others_count_where_no_core_was_idle(reading, sentence):
    said = told(**reading)
    assert said.startswith(sentence) and bool(said) == bool(sentence)


def test_only_cores_that_this_process_may_use_are_counted(tmp_path, monkeypatch):
    stat = tmp_path / "stat"
    tick = os.sysconf("SC_CLK_TCK")
    line = f"{tick} 0 {tick} {9 * tick} 0 0 0 {tick} 0 0"
    rows = ["cpu  1 1 1 1 1 1 1 1", *(f"cpu{n} {line}" for n in range(4)), "intr 5"]
    stat.write_text("\n".join(rows))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 3})
    assert cpu_times(stat) == CpuTimes(2, 4.0, 2.0)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 9})  # not all are shown
    assert cpu_times(stat) is None
    assert cpu_times(tmp_path / "absent") is None


def test_a_run_that_was_never_warm_says_nothing():
    meter = LoadMeter(CPU)
    meter.end()
    assert meter.disturbance() == ""


BUSY = "import time; end = time.time() + 30\nwhile time.time() < end: pass"


def test_a_childs_work_is_ones_own():
    """The child of a child, too: workers of a loader."""
    before = load._own_s()
    nested = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {BUSY!r}]).wait()"
    child = subprocess.Popen([sys.executable, "-c", nested], start_new_session=True)
    try:
        deadline = time.monotonic() + 20
        while load._own_s() - before < 0.3 and time.monotonic() < deadline:
            time.sleep(0.1)
        assert load._own_s() - before >= 0.3
    finally:
        os.killpg(child.pid, 9)
        child.wait()
