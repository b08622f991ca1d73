"""Two sides of a comparison whose processes live at the same time and work in turns.

What else uses the machine slows down both. A gate's versions are compared so, and the sides of a
proof where runs differ from start to start and nothing can be turned within a process.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from statistics import median

from gpuadvisor.collectors.devices import free_memory_bytes
from gpuadvisor.collectors.script.request import RunOutcome
from gpuadvisor.collectors.script.turns import BLOCK_S, BUSY, FEWEST_BLOCKS, Turns
from gpuadvisor.domain.device import Device
from gpuadvisor.domain.measurement import Measurement
from gpuadvisor.domain.study import Trial
from gpuadvisor.tuners.turns import is_precise
from gpuadvisor.tuning.trials.trial_runner import Side, TrialRunner

CONTEXT_BYTES = 1 << 30
"""Memory that CUDA and its libraries take of a GPU for each process, beside what torch allocates:
0.4 to 0.8 GiB on an H200."""
ROOM = 0.9
"""Part of the memory that both sides may take together."""
TAKEN = 0.5
"""Part of the free memory that two runs may take which start side by side: one that finds less
might choose other algorithms, or a smaller size of something, than it does alone."""
WENT_ON = 0.5
"""Share of a usual step's time below which one that follows a wait was made in part meanwhile: what
waits has cold caches, and takes longer if anything. Of a script that sleeps until a step has lasted
60 ms it is 0.01, and its regression of 100 % was told as 51 % (23 to 85). [own]"""
READS_AHEAD = "its loaders' workers would read ahead while it waits for its turn"
TOOK_TURNS = (
    "the runs of a pair took turns, in blocks of a tenth of a second, so that what else used the "
    "machine slowed down both"
)


class ApartError(Exception):
    """Why two sides cannot be measured in turns, as a clause."""

    failed: tuple[str, Trial, RunOutcome] | None = None
    """The side whose run failed, if that is why, with what came of it."""


def run_in_turns(
    runner: TrialRunner, sides: Mapping[str, Side], seed: str, private: bool = False
) -> tuple[list[tuple[Trial, RunOutcome]], tuple[tuple[float, ...], ...]]:
    """Run two sides at the same time; return their trials and the step times of their blocks, in
    milliseconds, those beside each other at the same place.

    They are measured as the runner's schedule says. With `private` each has a view of the file
    system of its own. ApartError where one of them ended too early, or works while it waits:
    whether that is its own doing, runs that are alone have to show.
    """
    schedule = runner.schedule
    longest_s = schedule.max_measure_s
    turns = Turns(schedule.measure_s, schedule.min_steps, longest_s, seed, is_precise)
    runner.schedule = replace(schedule, window_s=BLOCK_S)
    try:
        ended = runner.run_both(list(sides.values()), turns, private)
    finally:
        runner.schedule = schedule
    for name, seat, (trial, outcome) in zip(sides, turns.seats, ended, strict=True):
        if seat.broke and outcome.measurement is None:
            apart = ApartError(f"the {name} could not be measured ({outcome.reason})")
            apart.failed = name, trial, outcome
            raise apart
    is_lost = any(outcome.measurement is None for _, outcome in ended)
    if is_lost or len(turns.blocks_ms[0]) < FEWEST_BLOCKS:
        raise ApartError("they ended before each had had its turn a few times")
    for name, seat in zip(sides, turns.seats, strict=True):
        if seat.busy > BUSY:
            raise ApartError(f"the {name} keeps {seat.busy:.1f} CPU cores busy while it waits")
    for name, (_, outcome) in zip(sides, ended, strict=True):
        if outcome.measurement is not None and goes_on(outcome.measurement):
            raise ApartError(
                f"steps of the {name} that follow a wait are less than half as long as others, so"
                " that they may go on while it waits"
            )
    return ended, turns.blocks_ms


def goes_on(run: Measurement) -> bool:
    """Say whether steps that follow a wait are so short that part of them may have been made while
    the process waited: it reads ahead in a thread of its own, or goes by the clock on the wall. Or
    long and short steps alternate, and each block begins with a short one: turns tell as little.

    Windows are the blocks between two waits. Not known, and so False, where not each step was timed
    by itself, as where they are short.
    """
    firsts, others, at = list[float](), list[float](), 0
    if sum(window.steps for window in run.windows) != len(run.step_ms):
        return False
    for window in run.windows:
        steps_ms = run.step_ms[at : at + window.steps]
        at += window.steps
        if len(steps_ms) > 1:
            firsts.append(steps_ms[0])
            others += steps_ms[1:]
    return len(firsts) > 1 and median(firsts) < WENT_ON * median(others)


def have_workers(runs: Iterable[Measurement]) -> bool:
    """Say whether loaders had workers in any of these runs."""
    return any(loader.num_workers for run in runs for loader in run.facts.loaders)


class Room:
    """The memory of a GPU and of its host as two runs are about to start side by side."""

    def __init__(self, device: Device) -> None:
        places = (device, "the GPU"), (replace(device, kind="cpu"), "the machine")
        self._free = {
            name: (place, free_memory_bytes(place))
            for place, name in (places if device.is_gpu else places[1:])
        }

    def lacks(self) -> str:
        """Return why the two may not fit into it, as a clause; empty while they do.

        What is seen of both is not yet all that they will take.
        """
        for name, (device, before) in self._free.items():
            now = free_memory_bytes(device)
            if before is None or now is None:
                return f"what memory of {name} is free is not known"
            if now < (1 - TAKEN) * before:
                gib = (before - now) / 2**30, before / 2**30
                return f"they took {gib[0]:.1f} of the {gib[1]:.1f} GiB of memory free on {name}"
        return ""


def lacks_room(runs: Iterable[Measurement], device: Device) -> str:
    """Return why two sides of which these are runs do not fit into memory together, or nothing."""
    needed = sum(run.reserved_memory_bytes for run in runs)
    if device.is_gpu:
        room, needed = device.memory_bytes, needed + 2 * CONTEXT_BYTES
    else:
        import psutil

        room = psutil.virtual_memory().available
    if room is None or needed <= ROOM * room:
        return ""
    gib = needed / 2**30, room / 2**30
    return f"both together need {gib[0]:.1f} of {gib[1]:.1f} GiB of memory"
