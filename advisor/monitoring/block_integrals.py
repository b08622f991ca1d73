"""Means and sums over a block, from readings folded as they come."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from gpuadvisor.domain.latest import MISSED_READINGS
from gpuadvisor.domain.metrics import Pace
from gpuadvisor.domain.telemetry import Number

GAP_S = MISSED_READINGS * Pace.NORMAL.period_s
"""Between two readings that are further apart, nothing is known."""
MEAN_SHARE = 0.5
"""A mean must rest on readings over this share of the block,"""
ENERGY_SHARE = 0.9
"""and the energy, which is a sum over all of it, on readings over this one."""
COUNTER_SHARE = 0.8
"""The energy counter is used where its readings span this share of the block."""
COUNTER_MIN_S = 2.0
"""The counter is not fed at every instant: smaller differences mean little."""


@dataclass
class Level:
    """A metric over time: straight lines between its readings."""

    sum: float = 0.0
    """The integral over the time that is covered: for watts, joules."""
    covered_s: float = 0.0
    most: Number | None = None
    last: tuple[float, Number] | None = None

    def take(self, time_s: float, value: Number, began_s: float) -> None:
        """Take in a reading within the block; the first holds from the beginning on."""
        since_s, before = self.last or (began_s, value)
        self._cover(time_s - since_s, (before + value) / 2)
        self.most = value if self.most is None else max(self.most, value)
        self.last = (time_s, value)

    def end(self, ended_s: float) -> None:
        """Let the last reading hold until the end."""
        if self.last is not None:
            self._cover(ended_s - self.last[0], self.last[1])

    def mean(self, seconds: float, share: float = MEAN_SHARE) -> float | None:
        """Return the mean over the time covered, None where that is too little of the block."""
        enough = self.covered_s > 0 and self.covered_s >= share * seconds
        return self.sum / self.covered_s if enough else None

    def _cover(self, seconds: float, value: Number) -> None:
        if 0 <= seconds <= GAP_S:
            self.sum += value * seconds
            self.covered_s += seconds


@dataclass
class Average(Level):
    """A metric whose readings are averages over the time since the one before.

    It takes readings from before and after the block too, and counts what overlaps.
    """

    ended_s: float = inf

    def take(self, time_s: float, value: Number, began_s: float) -> None:
        since_s = self.last[0] if self.last else -inf
        if time_s - since_s > GAP_S:
            since_s = time_s - Pace.NORMAL.period_s
        self._cover(min(time_s, self.ended_s) - max(since_s, began_s), value)
        self.last = (time_s, value)


@dataclass(frozen=True)
class Count:
    """A reading of the energy counter, and what the power came to by then."""

    time_s: float
    energy_j: float
    power_j: float
    """Integrated since the block began; negative before."""
    covered_s: float


@dataclass
class Counter:
    """The energy counter's reading next to the block's beginning, and its last one."""

    first: Count | None = None
    last: Count | None = None
    is_broken: bool = False
    """It went back, as it does when the driver is loaded anew."""

    def take(self, now: Count, began_s: float) -> None:
        """Take in a reading; they come in order of time, and until the end of the block."""
        if self.last is not None and now.energy_j < self.last.energy_j:
            self.is_broken = True
        old = self.first
        if old is None or abs(now.time_s - began_s) < abs(old.time_s - began_s):
            self.first = now
        self.last = now

    def used_j(self, power: Level, began_s: float, ended_s: float) -> float | None:
        """Return its difference, with `power` before its first and after its last reading.

        None where the two do not span enough of the block, or the power around is not known.
        """
        first, last = self.first, self.last
        if first is None or last is None or self.is_broken:
            return None
        seconds, span_s = ended_s - began_s, last.time_s - first.time_s
        around_s = abs(first.time_s - began_s) + ended_s - last.time_s
        if span_s < COUNTER_MIN_S or around_s > (1 - COUNTER_SHARE) * seconds:
            return None
        unread_s = seconds - span_s - (power.covered_s - (last.covered_s - first.covered_s))
        if unread_s > (1 - ENERGY_SHARE) * seconds:
            return None
        counted_j = last.energy_j - first.energy_j
        around_j = power.sum - (last.power_j - first.power_j)
        return counted_j + around_j + max(unread_s, 0.0) * counted_j / span_s
