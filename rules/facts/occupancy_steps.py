"""What would let an SM hold more of a kernel: the nearest change of each kind, and curves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from gpuadvisor.rules.facts.architectures import (
    KIB,
    MAX_REGISTERS_PER_THREAD,
    MAX_THREADS_PER_BLOCK,
    WARP_THREADS,
    Architecture,
)
from gpuadvisor.rules.facts.occupancy import Launch, Occupancy, fit

AXES = ("threads_per_block", "registers_per_thread", "shared_bytes_per_block")
"""What a curve can be drawn over: fields of `Launch`."""


@dataclass(frozen=True)
class Step:
    """A change of the launch that raises its occupancy."""

    changes: Mapping[str, int]
    """Fields of `Launch` and their new values; more than one where only all together help."""
    result: Occupancy


def next_steps(now: Occupancy) -> tuple[Step, ...]:
    """Return the nearest change of each kind that raises the occupancy, all else unchanged.

    Fewer registers, less shared memory, a smaller and a larger block, a larger carve-out, fewer
    barriers; where registers and shared memory limit alike, both together. Empty at the top, or
    where nothing helps. A block of another size is taken to have the same shared memory.
    """
    launch, sm = now.launch, now.architecture
    registers = _registers_below(sm, launch)
    shared = _shared_below(now)
    block = launch.threads_per_block
    candidates: tuple[Iterable[dict[str, int]], ...] = (
        ({"registers_per_thread": value} for value in registers),
        ({"shared_bytes_per_block": value} for value in shared),
        ({"threads_per_block": value} for value in _warps_down(block - 1)),
        ({"threads_per_block": value} for value in _warps_up(block + WARP_THREADS)),
        ({"carveout_bytes": value} for value in _carveouts_above(sm, launch)),
        ({"barriers": value} for value in range(launch.barriers - 1, -1, -1)),
    )
    steps = [step for each in candidates if (step := _first(now, each)) is not None]
    if {"registers", "shared_memory"} <= set(now.limiters):
        step = _together(now, registers, shared)
        steps += [step] if step is not None else []
    return tuple(steps)


def curve(now: Occupancy, over: str) -> tuple[tuple[int, float], ...]:
    """Return (value, occupancy as a fraction) over one of `AXES`, all else unchanged.

    Blocks in warps; registers in the steps in which they are allocated; shared memory in KiB.
    """
    sm = now.architecture
    values = {
        "threads_per_block": _warps_up(WARP_THREADS),
        "registers_per_thread": [*range(8, MAX_REGISTERS_PER_THREAD, 8), MAX_REGISTERS_PER_THREAD],
        "shared_bytes_per_block": range(0, sm.shared_bytes_per_block + 1, KIB),
    }[over]
    return tuple((value, _changed(now, {over: value}).fraction) for value in values)


def _first(now: Occupancy, candidates: Iterable[dict[str, int]]) -> Step | None:
    for changes in candidates:
        result = _changed(now, changes)
        if result.warps > now.warps:
            return Step(changes, result)
    return None


def _changed(now: Occupancy, changes: Mapping[str, Any]) -> Occupancy:
    return fit(now.architecture, replace(now.launch, **changes))


def _together(now: Occupancy, registers: Iterable[int], shared: Iterable[int]) -> Step | None:
    """Return the fewest registers and bytes to give up so that one more block fits."""
    one_more = now.blocks + 1

    def first(what: str, limiter: str, values: Iterable[int]) -> int | None:
        for value in values:
            limit = _changed(now, {what: value}).limits[limiter]
            if limit is None or limit >= one_more:
                return value
        return None

    fewer = first("registers_per_thread", "registers", registers)
    less = first("shared_bytes_per_block", "shared_memory", shared)
    if fewer is None or less is None:
        return None
    return _first(now, [{"registers_per_thread": fewer, "shared_bytes_per_block": less}])


def _registers_below(sm: Architecture, launch: Launch) -> list[int]:
    """Return register counts in falling order: the most that each allocation allows."""
    step = sm.register_granule // WARP_THREADS
    given = launch.registers_per_thread
    most = [MAX_REGISTERS_PER_THREAD] if given > MAX_REGISTERS_PER_THREAD else []
    below = min(given - 1, MAX_REGISTERS_PER_THREAD) // step * step
    return [*most, *range(below, 0, -step)]


def _shared_below(now: Occupancy) -> list[int]:
    """Return sizes in falling order: for each number of blocks the largest that allows it."""
    sm, launch = now.architecture, now.launch
    totals = (sm.shared_bytes,) if launch.carveout_bytes is None else sm.carveouts_bytes
    granule, reserved = sm.shared_granule_bytes, sm.shared_reserved_bytes
    sizes = {
        total // blocks // granule * granule - reserved
        for total in totals
        for blocks in range(now.blocks + 1, sm.max_blocks + 1)
    }
    sizes = {min(size, sm.shared_bytes_per_block) for size in sizes}
    return sorted((s for s in sizes if 0 <= s < launch.shared_bytes_per_block), reverse=True)


def _carveouts_above(sm: Architecture, launch: Launch) -> list[int]:
    now = launch.carveout_bytes
    return [] if now is None else [size for size in sm.carveouts_bytes if size > now]


def _warps_down(begin: int) -> range:
    """Return block sizes of whole warps from `begin`, rounded down, to one warp."""
    first = min(begin, MAX_THREADS_PER_BLOCK) // WARP_THREADS * WARP_THREADS
    return range(first, 0, -WARP_THREADS)


def _warps_up(begin: int) -> range:
    """Return block sizes of whole warps from `begin`, rounded down, to the largest."""
    return range(begin // WARP_THREADS * WARP_THREADS, MAX_THREADS_PER_BLOCK + 1, WARP_THREADS)
