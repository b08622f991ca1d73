"""Turns of several programs on one GPU: work that was launched begins late, each time by as much.

Without MPS a GPU belongs to one program at a time. Where several have work for it each gets it for
a slice of time in turn, and what the other one launched meanwhile begins when that slice is over,
whatever kernel it is. So does no wait of the program's own, which lasts as long as what it waits
for.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpuadvisor.rules.facts.device_work import DeviceWork
from gpuadvisor.rules.facts.idle import split_gaps
from gpuadvisor.rules.facts.idle_causes import Cause, Threads
from gpuadvisor.rules.facts.launches import LaunchingCalls
from gpuadvisor.rules.facts.time_breakdown import IDLE

SHORTEST_NS = 500_000
"""Least time that work begins late by: slices of an A100 were 2.2 to 2.5 ms, and what a GPU needs
to begin stays below 0.2 ms. [own]"""
DIFFERS = 0.15
"""Largest difference of a turn from their median, of that: of thirteen on that A100 it was 0.07.
[own]"""
FEWEST = 5
"""Turns that tell a slice from chance. [own]"""
MOSTLY = 0.8
"""Least share of the time that work began late which is in turns. [own]"""


@dataclass(frozen=True)
class Turns:
    """Gaps in which another program may have had the device."""

    count: int
    shortest_ns: int
    longest_ns: int


def turns(
    work: DeviceWork, launched: LaunchingCalls, threads: Threads, begin_ns: int
) -> Turns | None:
    """Return the turns that are most of the time in which launched work did not begin, on the
    device with most of it; None where that is no turns."""
    number = IDLE.index(Cause.DEVICE)
    late, after = max(
        (
            (found.causes_ns[:, number], work.name[found.after])
            for _, found in split_gaps(work, launched, threads, begin_ns)
            if len(found.times)
        ),
        key=lambda each: int(each[0].sum()),
        default=(np.empty(0, np.int64), np.empty(0, np.int64)),
    )
    long = late[late >= SHORTEST_NS]
    if len(long) < FEWEST:
        return None
    usual = float(np.median(long))
    alike = np.abs(late - usual) <= DIFFERS * usual
    several = len(np.unique(after[alike])) > 1
    if alike.sum() < FEWEST or not several or late[alike].sum() < MOSTLY * late.sum():
        return None
    return Turns(int(alike.sum()), int(late[alike].min()), int(late[alike].max()))
