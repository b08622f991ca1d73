"""What a script's steps took just before a profiler was switched on, and whether they keep to it.

What the recorded steps would have taken without the profiler is no more than a prediction: it lies
between what as many steps in a row took before, and further away where steps get longer or shorter
by themselves.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from gpuadvisor.domain.profile import Header

UNPROFILED_STEP = "gpuadvisor_unprofiled_step_ns"
"""The fact of a profile that tells the mean time of these steps, in nanoseconds; absent where none
were timed."""
UNPROFILED_STEADINESS = "gpuadvisor_unprofiled_steadiness"
"""The fact of a profile that tells how these steps differed, as `Steadiness.told` writes it; absent
where nobody looked."""
LEFT_OUT = 0.1
"""Share of the means at either end that are not usual: what is left holds four in five of the next,
and not what one long step in many makes of them."""
ENOUGH_ROWS = 9
"""Rows of steps without a common one from which on so many are left out: of fewer, one in five and
more lie beyond all that were seen (`2 / (rows + 1)`)."""
FEWEST_ROWS = 4
"""Rows without a common step that are there at least, or rows are shorter: two in five lie beyond
all of four."""
GROUPS = 19
"""Groups of steps that a trend is looked for in; of as many, one at either end is left out."""
_TOLD = re.compile(r"(\S+) to (\S+) ns, drift (\S+) \+- (\S+) of (\d+) groups")


@dataclass(frozen=True)
class Drift:
    """How far a series of values, such as the times of steps, tends up or down: the slope of a
    straight line through them, as a share of their mean over a given number of places."""

    share: float
    error: float
    """The standard error of that."""
    values: int
    """How many the line was laid through: two fewer are its degrees of freedom."""

    @classmethod
    def of(cls, values: Sequence[float], distance: float) -> Drift | None:
        """Return how far values drift from their middle to so many places further; None for fewer
        than three, or where they are 0."""
        count, mean = len(values), sum(values) / max(len(values), 1)
        if count < 3 or mean <= 0:
            return None
        places = [place - (count - 1) / 2 for place in range(count)]
        spread = sum(place * place for place in places)
        slope = sum(place * value for place, value in zip(places, values, strict=True)) / spread
        rest = sum(
            (value - mean - slope * place) ** 2 for place, value in zip(places, values, strict=True)
        )
        error = math.sqrt(rest / (count - 2) / spread)
        return cls(distance * slope / mean, distance * error / mean, count)


@dataclass(frozen=True)
class Steadiness:
    """How much steps in a row differ from others, and where they tend to."""

    low_ns: float
    """The mean of as many steps in a row as were recorded then, at least and at most."""
    high_ns: float
    drift: Drift
    """From the middle of these steps to that of the recorded ones."""

    @classmethod
    def of(cls, steps_ns: Sequence[float], recorded: int) -> Steadiness | None:
        """Return how steps went, in their order, of which as many follow as are recorded; None of
        fewer than three."""
        count = len(steps_ns)
        row = min(max(count // FEWEST_ROWS, 1), recorded)
        low_ns, high_ns = _usual(_means(steps_ns, row, 1), row)
        group = min(max(count // GROUPS, 1), recorded)
        groups = _means(steps_ns[count % group :], group, group)
        least, most = _usual(groups, 1)
        # From the middle of one to that of the other, with the step in which the profiler starts.
        further = ((count - count % group + recorded) / 2 + 1) / group
        drift = Drift.of([min(max(each, least), most) for each in groups], further)
        return None if drift is None else cls(low_ns, high_ns, drift)

    def told(self) -> str:
        """Return it as a fact of a profile."""
        drift = self.drift
        return (
            f"{self.low_ns:.0f} to {self.high_ns:.0f} ns, drift {drift.share:.5f} +-"
            f" {drift.error:.5f} of {drift.values} groups"
        )

    @classmethod
    def read(cls, told: str) -> Steadiness | None:
        """Return what such a fact tells; None where it is none."""
        found = _TOLD.fullmatch(told)
        try:
            low, high, share, error = map(float, found.groups()[:4] if found else ())
        except ValueError:
            return None
        if not (0 <= low <= high < math.inf and math.isfinite(share) and 0 <= error < math.inf):
            return None
        assert found is not None
        values = int(found[5])
        return cls(low, high, Drift(share, error, values)) if values > 2 else None


@dataclass(frozen=True)
class UnprofiledSteps:
    """Steps that were timed without the profiler."""

    mean_ns: float
    steadiness: Steadiness | None = None
    """None where nobody looked, as in profiles of earlier versions, and of fewer than three."""

    def facts(self) -> Mapping[str, str]:
        """Return it as facts of a profile."""
        found = {UNPROFILED_STEP: f"{self.mean_ns:.0f}"}
        if self.steadiness is not None:
            found[UNPROFILED_STEADINESS] = self.steadiness.told()
        return found


def unprofiled_steps(facts: Mapping[str, str]) -> UnprofiledSteps | None:
    """Return what steps took without the profiler by a profile's facts; None where it is not told,
    or is no time."""
    try:
        mean_ns = float(facts.get(UNPROFILED_STEP, ""))
    except ValueError:
        return None
    if not 0 < mean_ns < math.inf:
        return None
    return UnprofiledSteps(mean_ns, Steadiness.read(facts.get(UNPROFILED_STEADINESS, "")))


def with_unprofiled_steps(header: Header, steps: UnprofiledSteps) -> Header:
    """Return a header that tells what steps took without the profiler, as it is if it does so."""
    if UNPROFILED_STEP in header.facts:
        return header
    return replace(header, facts={**steps.facts(), **header.facts})


def _means(values: Sequence[float], row: int, apart: int) -> list[float]:
    """Return the means of rows of values, of which each begins so many after the one before."""
    sums = list(accumulate(values, initial=0.0))
    return [
        (sums[first + row] - sums[first]) / row for first in range(0, len(values) - row + 1, apart)
    ]


def _usual(means: Sequence[float], shared: int) -> tuple[float, float]:
    """Return the least and the most of means that are usual; `shared` of them have values in
    common."""
    ordered = sorted(means)
    rows = (len(ordered) + shared - 1) // shared
    skipped = int(LEFT_OUT * len(ordered)) if rows >= ENOUGH_ROWS else 0
    return ordered[skipped], ordered[-1 - skipped]
