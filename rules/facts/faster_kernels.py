"""Which part of a run is saved if some of its kernels take less time, or are not launched.

A faster kernel saves nothing while the device waits for the host anyway, and all of its time where
the host waits for the device: the run is played again (`playback`) to tell which it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from gpuadvisor.rules.facts.calls import Calls, Launches
from gpuadvisor.rules.facts.intervals import Intervals, Whole, both, covered_ns, without
from gpuadvisor.rules.facts.what_if import Change, Host, Real, Timeline

Spared = Sequence[tuple[Whole | Sequence[int], float]]
"""Rows of the device's work, each at most once, and the share of their time that is saved."""


@dataclass(frozen=True, eq=False)
class FasterKernels:
    """Of one device."""

    _timeline: Timeline
    _place: Whole
    """Of each row of the device's work in the timeline; beyond its end where it is not in it."""
    _launched: Launches
    _host: Calls
    _before_ns: dict[float, float] = field(default_factory=dict)

    def saved_share(
        self, spared: Spared, pace: float, times: Intervals | None = None, host_share: float = 0.0
    ) -> float:
        """Return which share of the run is saved (0 to 1).

        `pace` is a factor on the host's recorded time, before and after; of some `times` of it a
        share is saved as well.
        """
        given, change = self._timeline, Change({Host.WORKING: pace})
        if pace not in self._before_ns:
            self._before_ns[pace] = given.takes_ns(change)
        before = self._before_ns[pace]
        faster = replace(given, work_ns=given.work_ns - self._less(spared))
        if times is not None and len(times):
            faster = self._without(faster, times, host_share)
        return max(1.0 - faster.takes_ns(change) / before, 0.0) if before > 0 else 0.0

    def saved_without(self, times: Intervals, pace: float) -> float:
        """Return which share of the run is saved without some times of the host, besides what goes
        with the waits for the device."""
        waiting = Change({Host.WORKING: pace})
        ahead = Change({Host.WORKING: pace, Host.SYNCHRONIZING: 0.0})
        given, after = self._timeline, self._without(self._timeline, times, 1.0)
        saved_ns = min(
            given.takes_ns(waiting) - after.takes_ns(waiting),
            given.takes_ns(ahead) - after.takes_ns(ahead),
        )
        return max(saved_ns / given.takes_ns(waiting), 0.0) if len(given.rows) else 0.0

    def _without(self, given: Timeline, times: Intervals, share: float) -> Timeline:
        """Return the timeline with so much less of these times, but for the host's waits."""
        times = without(times, given.not_working)
        away = both(times, given.away)
        launch, wait = given.launch_ns.copy(), given.wait_ns.copy()
        for host, until_ns in (
            (launch, self._launched.begin_ns[given.rows]),
            (wait, self._host.begin_ns[given.wait_call]),
        ):
            of_away = share * _within(away, until_ns)
            host[Host.AWAY] -= of_away
            host[Host.WORKING] -= share * _within(times, until_ns) - of_away
        return replace(given, launch_ns=launch, wait_ns=wait)

    def _less(self, spared: Spared) -> Real:
        less = np.zeros(len(self._timeline.rows) + 1)
        if spared:
            rows = np.concatenate([np.asarray(rows, np.int64) for rows, _ in spared])
            less[self._place[rows]] = np.repeat(
                [share for _, share in spared], [len(rows) for rows, _ in spared]
            )
        return less[:-1] * self._timeline.work_ns


def faster_kernels(
    timeline: Timeline | None, launched: Launches, host: Calls, rows: int
) -> FasterKernels | None:
    """Return what plays a run with faster kernels, of so many rows of device work."""
    if timeline is None:
        return None
    place = np.full(rows, len(timeline.rows), np.int64)
    place[timeline.rows] = np.arange(len(timeline.rows))
    return FasterKernels(timeline, place, launched, host)


def _within(times: Intervals, until_ns: Whole) -> Whole:
    """Return how much of some times lies before others."""
    return covered_ns(times, np.full(len(until_ns), -(2**60), np.int64), until_ns)
