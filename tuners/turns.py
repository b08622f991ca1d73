"""What two runs that took turns say of their ratio.

Both processes live at the same time and work in turns, in blocks of about a tenth of a second, so
that a block of one version has a block of the other beside it: whatever else the machine does, it
does to both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import stdev

TRIMMED = 0.1
"""Part of a pair's blocks that is left out at each end of their ratios. A block beside which
something began or ended, or in which the script stood still, says nothing of the versions; what
recurs in a script's steps, such as a line of its log, falls into more blocks than that and counts.
By `benchmarks/gate_decision.py --tables turns`, whose neighbours come and go every 4 s to 5 min."""
PRECISE = 0.01
"""Relative standard error of a pair's ratio, from how its blocks differ, above which more blocks
tell more than another pair does, whose processes have to start first: processes of one version
differ by 0.2 to 2 %."""


def ratio_of_blocks(base: Sequence[float], head: Sequence[float]) -> float:
    """Return the ratio of head over base from the step times of blocks beside each other.

    It is the trimmed mean of the ratios' logarithms. ValueError without a block.
    """
    kept, _ = _kept(base, head)
    if not kept:
        raise ValueError("a ratio needs a block of each version")
    return math.exp(math.fsum(kept) / len(kept))


def is_precise(base: Sequence[float], head: Sequence[float]) -> bool:
    """Say whether blocks agree well enough for more of them to tell little.

    It is asked of how they differ and never of their ratio, which it therefore does not choose. The
    error of a trimmed mean is that of what is kept, with what is left out counted as the outermost
    of that (Tukey and McLaughlin, 1963).
    """
    kept, left_out = _kept(base, head)
    count = len(kept) + 2 * left_out
    if len(kept) < 2:
        return False
    whole = [kept[0]] * left_out + kept + [kept[-1]] * left_out
    return stdev(whole) * count / len(kept) / math.sqrt(count) <= PRECISE


def _kept(base: Sequence[float], head: Sequence[float]) -> tuple[list[float], int]:
    """Return the logarithms of the ratios that count, and how many are left out at each end."""
    logs = sorted(math.log(two / one) for one, two in zip(base, head, strict=True))
    left_out = int(TRIMMED * len(logs))
    return logs[left_out : len(logs) - left_out], left_out
