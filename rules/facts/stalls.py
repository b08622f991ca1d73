"""Where in kernels warps wait, and for what: samples of Nsight Compute (section `SourceCounters`).

A sample says at which instruction a warp was and why it issued nothing then. Instructions have a
line where the kernel was compiled with `-lineinfo`; else the instruction itself is the place. The
samples of all launches of a name that were captured count together. A report may have the samples
of some reasons only: shares are of all that were taken, and where nothing tells how many these are,
there is none.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gpuadvisor.domain.profile import Profile
from gpuadvisor.rules.facts.unit_levels import WAITS

ISSUED = "selected"
"""What is sampled of a warp that issued its instruction then: it waited for nothing."""
MOST_SITES = 5
"""Places of a kernel that are named. [own]"""
LEAST_SHARE = 0.05
"""Share of the samples of a kernel, or of the CPU in some time, from which on a place is named: the
low end of what is known of it. [own]"""
TAKEN = "smsp__pcsamp_sample_count"
"""Metric of a launch: how many samples were taken, whatever of them was kept."""
_KEPT = "smsp__pcsamp_warps_issue_stalled_"
"""How the metrics of a launch begin that count the samples of one reason."""
_NORMAL = 1.96
"""Standard deviations of a normal distribution within which 95 % of it lie."""


@dataclass(frozen=True)
class StallSite:
    """A line of a kernel, or an instruction, at which warps wait for one reason."""

    line: str
    """`file:line`; empty where the kernel was compiled without lines."""
    instruction: str
    """Its place in the kernel and what it does, `+0x120 FADD R9, R8, R9`; empty with a line."""
    reason: str
    """In the words of Nsight Compute: `long_scoreboard`."""
    samples: int
    share: float
    """Share of these samples in all of the kernel, 0 to 1."""
    low: float
    high: float
    """Ends of the share's 95 % interval (Wilson's), as if each sample was drawn by itself."""

    @property
    def waits(self) -> str:
        """What it waits for, as people say it; in Nsight Compute's words where nobody does."""
        singular = self.reason.removesuffix("s")
        return WAITS.get(self.reason) or WAITS.get(singular) or f"({self.reason})"


@dataclass(frozen=True)
class KernelStalls:
    """Where the warps of all captured launches of a kernel wait."""

    kernel: str
    samples: int
    """All of them, also of warps that issued an instruction."""
    sites: tuple[StallSite, ...]
    """The places with most samples."""


def kernel_stalls(profile: Profile) -> Mapping[str, KernelStalls]:
    """Return where kernels wait, by their names; nothing where that was not sampled."""
    columns = profile.columns("stalls")
    names, texts = profile.columns("kernels", ("name",))["name"], profile.header.texts
    found: dict[str, dict[tuple[str, str, str], int]] = defaultdict(lambda: defaultdict(int))
    for kernel, line, instruction, reason, samples in zip(
        *(
            columns[each].tolist()
            for each in ("kernel", "line", "instruction", "reason", "samples")
        ),
        strict=True,
    ):
        if 0 <= kernel < len(names) and samples > 0:
            place = texts[line], "" if texts[line] else texts[instruction], texts[reason]
            found[texts[names[kernel]]][place] += samples
    taken = _taken(profile)
    return {
        name: _of_kernel(name, places, total)
        for name, places in found.items()
        if (total := taken.get(name, sum(places.values()))) is not None
    }


def _taken(profile: Profile) -> Mapping[str, int | None]:
    """Return how many samples were taken of kernels whose report has those of some reasons only, by
    their names; None where nothing tells it."""
    texts = profile.header.texts
    reasons = {number for number, text in enumerate(texts) if text.startswith(_KEPT)}
    issued = next((each for each in reasons if texts[each] == _KEPT + ISSUED), None)
    if not reasons or issued is not None:
        return {}
    columns = profile.columns("metrics", ("kernel", "metric", "value"))
    names = profile.columns("kernels", ("name",))["name"]
    counts = columns["metric"] == (texts.index(TAKEN) if TAKEN in texts else -1)
    found: dict[str, int | None] = {}
    for kernel in np.unique(columns["kernel"][np.isin(columns["metric"], list(reasons))]).tolist():
        values = columns["value"][counts & (columns["kernel"] == kernel)]
        name = texts[names[kernel]]
        before = found.get(name, 0)
        known = len(values) and before is not None
        found[name] = int(values[0]) + (before or 0) if known else None
    return found


def _of_kernel(name: str, places: Mapping[tuple[str, str, str], int], total: int) -> KernelStalls:
    total = max(total, sum(places.values()))
    sites = [
        StallSite(
            line, instruction, reason, samples, samples / total, *share_interval(samples, total)
        )
        for (line, instruction, reason), samples in places.items()
        if reason != ISSUED
    ]
    sites = [each for each in sites if each.low >= LEAST_SHARE]
    sites.sort(key=lambda each: (-each.samples, each.line, each.instruction, each.reason))
    return KernelStalls(name, total, tuple(sites[:MOST_SITES]))


def share_interval(some: int, of_all: int) -> tuple[float, float]:
    """Return the 95 % interval of a share, 0 to 1, that was counted (E. B. Wilson, 1927)."""
    share, spread = some / of_all, _NORMAL**2 / of_all
    middle = (share + spread / 2) / (1 + spread)
    half = math.sqrt(spread * (share * (1 - share) + spread / 4)) / (1 + spread)
    return middle - half, middle + half
