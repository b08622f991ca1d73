"""What a host called of the operating system while it neither launched nor waited for a device.

Nsight Systems sees such calls (`--trace=osrt`) where they take longer than its threshold, 1 us as
it comes. They explain idle time that else has no cause in the recording: a thread that waits in
`poll` for another process does not compute.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpuadvisor.domain.profile import SYSTEM_CALLS, Profile, Range
from gpuadvisor.rules.facts.intervals import Intervals, covered_ns, ends
from gpuadvisor.rules.facts.launches import Calls, LaunchingCalls


@dataclass(frozen=True)
class SystemCalls:
    """The calls of the thread that launches into the operating system, within some time."""

    share: float
    """Share of the time (0 to 1) that all of them take."""
    named: Sequence[tuple[str, float]]
    """Their names with the share of each, the largest first."""


def system_calls(
    profile: Profile, host: Calls, launched: LaunchingCalls, times: Intervals
) -> SystemCalls | None:
    """Return what the thread that launches called of the operating system in some time.

    None where such calls were not recorded, and where several threads launch: which of them was
    waited for is not known then.
    """
    if SYSTEM_CALLS not in profile.header.facts:
        return None
    if len(np.unique(launched.thread_key[launched.known])) != 1 or not times.total_ns:
        return None
    call = launched.call[launched.known][0]
    columns = profile.columns("ranges")
    rows = (columns["kind"] == Range.SYSTEM) & (columns["process"] == host.process[call])
    rows &= columns["thread"] == host.thread[call]
    name = columns["name"][rows]
    spent = covered_ns(times, *ends(columns["begin_ns"][rows], columns["duration_ns"][rows]))
    by_name = np.bincount(name, spent, 1) / times.total_ns
    order = np.argsort(-by_name, kind="stable")
    named = [(profile.header.texts[each], float(by_name[each])) for each in order.tolist()]
    return SystemCalls(min(float(by_name.sum()), 1.0), [each for each in named if each[1] > 0])
