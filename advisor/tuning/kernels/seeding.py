"""The points that a search tries first, because a profile of the kernel says what limits it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest

from gpuadvisor.domain.kernel_records import KernelDiagnosis
from gpuadvisor.tuners.kernels.points import Points
from gpuadvisor.tuners.space import Point

SEEDED = 4
"""Points at most: they are among the ten that a model begins with, and the others of those still
look at all of the space. [own]"""
LEAST_STEP = 1.5
"""Factor by which a point must change what is asked for: by less, the next limit is the same. [own]
"""

Launch = tuple[int, int]
"""Blocks of the grid, and threads of a block; zeros where they are not known."""


def _padding(launch: Launch, point: Point) -> float:
    padded = [n for n in point if any(word in n.lower() for word in ("pad", "swizzl"))]
    return sum(float(point[name]) for name in padded if isinstance(point[name], int | float))


RELIEF: Mapping[str, Callable[[Launch, Point], float]] = {
    "small_grid": lambda launch, point: launch[0],
    "tail_effect": lambda launch, point: launch[0],
    "imbalance": lambda launch, point: launch[0],
    "occupancy_block_count": lambda launch, point: launch[1],
    "occupancy_block_size": lambda launch, point: 1 / launch[1],
    # Of smaller tiles, of which there are more, each takes less shared memory.
    "occupancy_shared_memory": lambda launch, point: launch[0],
    # Threads that have less to do, of which there are more, hold less at a time.
    "occupancy_registers": lambda launch, point: launch[0] * launch[1],
    "local_memory": lambda launch, point: launch[0] * launch[1],
    # Threads that have more to do, of which there are fewer, can have more loads on their way.
    "dependent_loads": lambda launch, point: 1 / (launch[0] * launch[1]),
    "bank_conflicts": _padding,
}
"""Rules of the catalogue to what is larger at points at which less of that is to be expected."""


def seeds(
    points: Points, start: int, launches: Sequence[Launch], rules: Sequence[str]
) -> list[int]:
    """Return the rows that the rules propose, in turns: those that change the fewest parameters of
    the row `start` first, of each set of parameters the smallest step. `launches` are all rows'.
    """
    if not all(launches[start]):
        return []
    known = [rule for rule in rules if rule in RELIEF]
    proposed = [_relieving(points, start, launches, RELIEF[rule]) for rule in known]
    turns = [row for turn in zip_longest(*proposed) for row in turn if row is not None]
    return list(dict.fromkeys(turns))[:SEEDED]


def _relieving(
    points: Points,
    start: int,
    launches: Sequence[Launch],
    relief: Callable[[Launch, Point], float],
) -> list[int]:
    amounts = [
        relief(launch, points.point(row)) if all(launch) else 0.0
        for row, launch in enumerate(launches)
    ]
    changed = points.rows != points.rows[start]
    nearest: dict[bytes, int] = {}
    enough = [row for row, amount in enumerate(amounts)
              if amount > 0 and amount >= LEAST_STEP * amounts[start]]  # fmt: skip
    for row in sorted(enough, key=amounts.__getitem__):
        nearest.setdefault(changed[row].tobytes(), row)
    return sorted(nearest.values(), key=lambda row: (int(changed[row].sum()), amounts[row]))


def said(diagnosis: KernelDiagnosis, threads: int, rows: int) -> str:
    """Return a sentence: what a profile says of the kernel, and what the search took of it.

    `threads` are those of a block of the default, `rows` the number of points proposed.
    """
    profile = f"the profile {diagnosis.profile}"
    if threads not in diagnosis.threads:
        blocks = " and ".join(f"{each:,}" for each in sorted(diagnosis.threads)) or "unknown"
        return (
            f"{profile} is of blocks of {blocks} threads, the default's have {threads:,}: what it "
            "says was left aside"
        )
    if not diagnosis.rules:
        return f"{profile} finds nothing that limits this kernel"
    found = ", ".join(diagnosis.rules)
    if not rows:
        return f"{profile} finds {found}: no point here is known to relieve that"
    points = f"{rows} points that are" if rows > 1 else "1 point that is"
    return f"{profile} finds {found}: the search began with {points} expected to relieve that"
