"""What rules about kernels estimate, and what the cure was measured to save.

    python benchmarks/estimates_kernels.py

Prints a table: the estimate, the measured saving, both in percent of the kernel's time, whether
the one lies within the other, and how far the estimate's middle is off. The kernels are those of
`tests/data/estimates`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, median

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.rules.measured_kernels import Estimate, estimates


def main() -> None:
    """Print the table and what follows from it."""
    found = tuple(estimates())
    print("| kernel | rule | estimate | measured | inside | off by |")
    print("| --- | --- | --- | --- | --- | --- |")
    for each in found:
        low, high = each.estimate.low, each.estimate.high
        print(
            f"| {each.case} | {each.rule} | {low:.0f}-{high:.0f} % | {each.measured:.1f} %"
            f" | {'yes' if each.inside else 'no'} | {each.error:.1f} |"
        )
    print()
    print(summary("all", found))
    print(summary("limited by memory", [each for each in found if each.memory_bound]))


def summary(what: str, found: Sequence[Estimate]) -> str:
    """Return how good estimates are, in a sentence."""
    inside = sum(each.inside for each in found)
    return (
        f"{what}: {inside} of {len(found)} inside, median width"
        f" {median(each.estimate.width for each in found):.0f} points, mean error"
        f" {mean(each.error for each in found):.1f} points"
    )


if __name__ == "__main__":
    main()
