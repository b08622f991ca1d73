"""What two runs that took turns say of their ratio.

Both processes live at the same time and work in turns, in blocks of about a tenth of a second, so
that a block of one version has a block of the other beside it: whatever else the machine does, it
does to both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

TRIMMED = 0.1
"""Part of a pair's blocks that is left out at each end of their ratios. A block beside which
something began or ended, or in which the script stood still, says nothing of the versions; what
recurs in a script's steps, such as a line of its log, falls into more blocks than that and counts.
By `benchmarks/gate_decision.py --tables turns`, whose neighbours come and go every 4 s to 5 min."""
LEAST_BLOCKS = 4
"""Blocks of each version below which one of them is all that a pair says."""


def ratio_of_blocks(base: Sequence[float], head: Sequence[float]) -> float:
    """Return the ratio of head over base from the step times of blocks beside each other.

    It is the trimmed mean of the ratios' logarithms. ValueError without a block.
    """
    logs = sorted(math.log(two / one) for one, two in zip(base, head, strict=True))
    left_out = int(TRIMMED * len(logs))
    kept = logs[left_out : len(logs) - left_out]
    if not kept:
        raise ValueError("a ratio needs a block of each version")
    return math.exp(math.fsum(kept) / len(kept))
