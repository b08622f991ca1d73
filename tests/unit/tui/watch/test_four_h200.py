"""What is said of four H200s whose load is known: a recording of `benchmarks/screens_on_gpus.py`.

GPU 0 trains and has all it needs, on GPU 1 a process holds 20 GiB and does nothing, two users share
GPU 2, and the network on GPU 3 waits for its two loader workers most of the time.
"""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from gpuadvisor.collectors.telemetry.recording import read_recording
from gpuadvisor.domain.telemetry import Sample
from gpuadvisor.reports.jobs_document import main_cause
from gpuadvisor.rules.jobs.ledger import ledger
from gpuadvisor.rules.jobs.use import JobFold
from gpuadvisor.tui.watch.state import WatchState
from gpuadvisor.tui.watch.why import WORKS

RECORDING = Path(__file__).parents[4] / "examples" / "four_h200.gpr"
FRAMES = list(read_recording(RECORDING).frames())
BEGIN_S = FRAMES[0].time_s
GPUS = next(frame.gpus for frame in FRAMES if frame.gpus)
BOTH = "where its process and those that this started keep 2.0 CPU cores busy"
ENDED_S = 77.0
"""Seconds after the recording's begin at which every job still ran."""


def state_after(frames):
    state = WatchState(RECORDING.name, is_past=True, clock=lambda: 0.0)
    for frame in frames:
        state.update(frame)
    return state


def said(state):
    return [state.why(gpu).sentence for gpu in state.gpus]


def until(at_s):
    return [frame for frame in FRAMES if frame.time_s - BEGIN_S <= at_s]


def test_what_is_said_of_each_while_the_jobs_run():
    state = state_after(until(ENDED_S))
    healthy, idle, shared, loader = said(state)
    assert (healthy, shared) == ("power cap, at full clock", "ok")
    assert idle == "idle for at least 1 min while python3 (2328) holds 21 GiB"
    assert loader.startswith("hardly any kernel ran since ")
    assert loader.endswith(
        f": it waits for data or its host, {BOTH}, which costs up to nearly all of its speed"
    )
    assert [state.why(gpu).rank < WORKS for gpu in GPUS] == [False, True, False, True]


def test_in_no_second_is_a_gpu_said_to_wait_that_only_started():
    state = state_after([])
    for frame in FRAMES:
        state.update(frame)
        if not frame.full:
            continue
        texts = said(state)
        assert "it waits for data" not in texts[0] + texts[1] + texts[2]
        if 17 <= frame.time_s - BEGIN_S <= ENDED_S:
            assert "kernel ran" in texts[3]
    assert texts[:3] == ["free"] * 3  # every process has ended, the last 4 s ago


def first_poll(frame, processes):
    """A frame as the first that somebody reads: with what is read every minute, as limits."""
    rare = FRAMES[0].samples
    samples = {
        name: Sample({**rare[name].values, **each.values}, each.unavailable)
        for name, each in frame.samples.items()
    }
    return replace(frame, samples=samples, gpus=GPUS, processes=processes)


def test_of_two_polls_no_more_is_said_than_they_tell():
    """As `watch --once` without a daemon sees them: CPU time comes with the second."""
    late = [frame for frame in FRAMES if frame.full and frame.time_s - BEGIN_S > 40]
    listed = [each.processes for each in late if each.processes is not None]
    unknown = tuple(replace(p, cpu_pct=None, children_cpu_pct=None) for p in listed[0])
    for first, second in list(pairwise(late))[:30]:
        polls = [first_poll(first, unknown), replace(second, processes=None)]
        healthy, idle, shared, loader = said(state_after(polls))
        assert healthy.startswith("power cap")
        assert (idle, shared) == (
            "no kernel ran for 1 s, too short to tell whether it is idle or waits", "ok"
        )  # fmt: skip
        assert loader in (
            "hardly any kernel ran in the last 1 s, too short to tell whether it waits",
            "no kernel ran 98 % of the last 1 s, too short to tell whether it waits",
        )
        polls[1] = replace(second, processes=listed[0])
        _, idle, _, loader = said(state_after(polls))
        assert idle == "idle"
        assert loader.endswith(f", {BOTH}, too short to tell whether it waits")


def causes():
    fold = JobFold()
    uses = [use for frame in FRAMES for minute in fold.add(frame) for use in minute.uses]
    uses += [use for minute in fold.finish() for use in minute.uses]
    return uses


def test_what_jobs_says_of_them():
    named = {}
    for use in causes():
        assert sum(loss.seconds for loss in use.causes.values()) == pytest.approx(
            use.amounts.seconds if use.process else 0
        )
        for name, loss in use.causes.items():
            index = next(gpu.index for gpu in GPUS if gpu.uuid == use.gpu)
            found = named.setdefault(index, {})
            found[name] = found.get(name, 0.0) + loss.seconds
    expected = ["healthy", "idle", "shared_gpu", "waiting_for_input"]
    for index, name in enumerate(expected):
        assert set(named[index]) == {name, "untold"}
        assert named[index][name] >= 0.8 * sum(named[index].values())
    jobs = ledger(causes(), 0, 0).jobs
    assert [main_cause(job).rpartition(" ")[0].rpartition(" ")[0] for job in jobs] == [
        "uses its GPU", "idle", "waiting for input", "shared gpu"
    ]  # fmt: skip
