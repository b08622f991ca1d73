"""Theoretical occupancy: how many warps of a kernel an SM can hold, what limits and what raises it.

The algorithm is that of NVIDIA's `cuda_occupancy.h` (CUDA 13). It is exact for launches without
thread block clusters; how clusters fit depends on the GPU's layout, which only the driver knows
(`cudaOccupancyMaxActiveClusters`). `benchmarks/occupancy_oracle.py` compares the two.

Units: registers a thread, bytes a block (static and dynamic together), blocks and warps an SM.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from gpuadvisor.domain.profile import DeviceLimits
from gpuadvisor.errors import UsageError
from gpuadvisor.rules.facts.gpu_specs import (
    KIB,
    MAX_REGISTERS_PER_THREAD,
    MAX_THREADS_PER_BLOCK,
    WARP_THREADS,
    Architecture,
    CapabilityLike,
    architecture,
)


@dataclass(frozen=True)
class LaunchConfig:
    """What a kernel takes of an SM."""

    threads_per_block: int
    registers_per_thread: int = 0
    shared_bytes_per_block: int = 0
    """Static and dynamic together, without what the driver reserves."""
    carveout_bytes: int | None = None
    """Shared memory that the SM is set to; None for the largest."""
    barriers: int = 0
    """Barriers of a block; one, as `__syncthreads` takes, never limits."""
    virtual_resources: int = 0
    """Virtual resources of a block; only a compiler knows them, and only from 10.0 on."""


@dataclass(frozen=True)
class Occupancy:
    """How a launch fits on an SM."""

    architecture: Architecture
    """The SM."""
    launch: LaunchConfig
    blocks: int
    """Blocks resident on an SM; 0 where the launch is impossible."""
    warps_per_block: int
    limits: Mapping[str, int | None]
    """How many blocks each limiter alone would allow; None where it does not limit.

    `warps`, `registers`, `shared_memory`, `blocks`, `barriers`, `virtual_resources`.
    """
    registers_per_block: int
    """Registers that a block is given."""
    shared_bytes_per_block: int
    """Shared memory that a block is given, with what the driver reserves."""
    impossible: str | None = None
    """Why the kernel cannot be launched at all, in words; None where it can."""

    @property
    def max_warps(self) -> int:
        """Most warps that an SM can hold."""
        return self.architecture.max_warps

    @property
    def warps(self) -> int:
        """Warps resident on an SM."""
        return self.blocks * self.warps_per_block

    @property
    def fraction(self) -> float:
        """Share of the warps that an SM can hold, 0 to 1."""
        return self.warps / self.max_warps

    @property
    def limiters(self) -> tuple[str, ...]:
        """What keeps another block out; all of them would have to give way."""
        return tuple(name for name, blocks in self.limits.items() if blocks == self.blocks)


def occupancy(
    compute_capability: CapabilityLike,
    threads_per_block: int,
    registers_per_thread: int = 0,
    shared_bytes_per_block: int = 0,
    *,
    carveout_bytes: int | None = None,
    barriers: int = 0,
    virtual_resources: int = 0,
    limits: DeviceLimits | None = None,
) -> Occupancy:
    """Return the theoretical occupancy of a kernel's launch.

    `compute_capability` is (9, 0), "9.0" or 9.0, from 7.0 to 12.1. `registers_per_thread` is what
    the compiler or a profiler says (0: none), `shared_bytes_per_block` the static and dynamic
    shared memory of a block in bytes. `carveout_bytes` is the shared memory that an SM is set to
    (None: its largest), taken up to the next size that the hardware has, and up to what one block
    needs. `limits` are those of a device, where they differ from its compute capability's.

    A launch that no GPU of this kind can do has 0 blocks, and `impossible` says why. UsageError is
    raised for negative figures, a block without threads, and an unknown compute capability.

    The algorithm is that of NVIDIA's `cuda_occupancy.h`, CUDA 13; clusters are not considered.

    >>> occupancy("9.0", 384, 168, 100 * 1024).fraction
    0.1875
    """
    launch = LaunchConfig(
        threads_per_block,
        registers_per_thread,
        shared_bytes_per_block,
        carveout_bytes,
        barriers,
        virtual_resources,
    )
    return fit(architecture(compute_capability, limits), launch)


def fit(sm: Architecture, launch: LaunchConfig) -> Occupancy:
    """Return how a launch fits on an SM; UsageError for figures that no launch has."""
    _check(launch)
    warps = _ceil(launch.threads_per_block, WARP_THREADS)
    per_warp = _up(launch.registers_per_thread * WARP_THREADS, sm.register_granule)
    shared = shared_allocated(sm, launch.shared_bytes_per_block)
    limits = {
        "warps": 0 if launch.threads_per_block > MAX_THREADS_PER_BLOCK else sm.max_warps // warps,
        "registers": _by_registers(sm, launch, warps, per_warp),
        "shared_memory": _by_shared_memory(sm, launch, shared),
        "blocks": sm.max_blocks,
        "barriers": _share(sm.barriers, launch.barriers),
        "virtual_resources": _share(sm.virtual_resources, launch.virtual_resources),
    }
    blocks = min(limit for limit in limits.values() if limit is not None)
    return Occupancy(
        architecture=sm,
        launch=launch,
        blocks=blocks,
        warps_per_block=warps,
        limits=limits,
        registers_per_block=per_warp * warps,
        shared_bytes_per_block=shared,
        impossible=None if blocks else _why_impossible(sm, launch, limits),
    )


def shared_allocated(sm: Architecture, shared_bytes: int) -> int:
    """Return the bytes that a block really takes: with the reserved ones, in whole granules."""
    return _up(shared_bytes + sm.shared_reserved_bytes, sm.shared_granule_bytes)


def shared_of_multiprocessor(sm: Architecture, launch: LaunchConfig, allocated: int) -> int:
    """Return the shared memory that the SM is set to for a launch that fits, in bytes."""
    if launch.carveout_bytes is None:
        return sm.shared_bytes
    wanted = max(launch.carveout_bytes, allocated)
    return next((size for size in sm.carveouts_bytes if size >= wanted), sm.shared_bytes)


def _by_registers(sm: Architecture, launch: LaunchConfig, warps: int, per_warp: int) -> int | None:
    if launch.registers_per_thread > MAX_REGISTERS_PER_THREAD:
        return 0
    # The hardware's check takes it that a block's warps fill all sub-partitions alike.
    if per_warp * _up(warps, sm.sub_partitions) > sm.registers_per_block:
        return 0
    if per_warp == 0:
        return None
    per_partition = sm.registers // sm.sub_partitions // per_warp
    return per_partition * sm.sub_partitions // warps


def _by_shared_memory(sm: Architecture, launch: LaunchConfig, allocated: int) -> int | None:
    if allocated > sm.shared_bytes_per_block + sm.shared_reserved_bytes:
        return 0
    if allocated == 0:
        return None
    return shared_of_multiprocessor(sm, launch, allocated) // allocated


def _share(available: int | None, used: int) -> int | None:
    return available // used if available is not None and used else None


def _check(launch: LaunchConfig) -> None:
    if launch.threads_per_block < 1:
        raise UsageError(f"a block has at least 1 thread, not {launch.threads_per_block}")
    for what, value in (
        ("registers a thread", launch.registers_per_thread),
        ("bytes of shared memory", launch.shared_bytes_per_block),
        ("bytes of a carve-out", launch.carveout_bytes or 0),
        ("barriers", launch.barriers),
        ("virtual resources", launch.virtual_resources),
    ):
        if value < 0:
            raise UsageError(f"{what} cannot be negative, as {value} is")


def _why_impossible(
    sm: Architecture, launch: LaunchConfig, limits: Mapping[str, int | None]
) -> str:
    """Return the first reason, in the order in which one would mend them."""
    threads, registers = launch.threads_per_block, launch.registers_per_thread
    if limits["warps"] == 0:
        most = min(MAX_THREADS_PER_BLOCK, sm.max_warps * WARP_THREADS)
        return f"a block has {threads:,} threads, but at most {most:,} can be launched"
    if limits["registers"] == 0:
        if registers > MAX_REGISTERS_PER_THREAD:
            return f"a thread has {registers:,} registers, but at most {MAX_REGISTERS_PER_THREAD}"
        return (
            f"{threads:,} threads of {registers} registers need more than the "
            f"{sm.registers_per_block:,} registers that a block can have"
        )
    if limits["shared_memory"] == 0:
        return (
            f"a block has {launch.shared_bytes_per_block:,} bytes of shared memory, "
            f"but at most {sm.shared_bytes_per_block:,} can be launched"
        )
    short = next(name for name, blocks in limits.items() if blocks == 0)
    return f"a block has more {short.replace('_', ' ')} than an SM"


def _ceil(value: int, unit: int) -> int:
    return -(-value // unit)


def _up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


AXES = ("threads_per_block", "registers_per_thread", "shared_bytes_per_block")
"""What a curve can be drawn over: fields of `LaunchConfig`."""


@dataclass(frozen=True)
class OccupancyStep:
    """A change of the launch that raises its occupancy."""

    changes: Mapping[str, int]
    """Fields of `LaunchConfig` and their new values; more than one where only all together help."""
    result: Occupancy


def next_steps(now: Occupancy) -> tuple[OccupancyStep, ...]:
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


def _first(now: Occupancy, candidates: Iterable[dict[str, int]]) -> OccupancyStep | None:
    for changes in candidates:
        result = _changed(now, changes)
        if result.warps > now.warps:
            return OccupancyStep(changes, result)
    return None


def _changed(now: Occupancy, changes: Mapping[str, Any]) -> Occupancy:
    return fit(now.architecture, replace(now.launch, **changes))


def _together(
    now: Occupancy, registers: Iterable[int], shared: Iterable[int]
) -> OccupancyStep | None:
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


def _registers_below(sm: Architecture, launch: LaunchConfig) -> list[int]:
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


def _carveouts_above(sm: Architecture, launch: LaunchConfig) -> list[int]:
    now = launch.carveout_bytes
    return [] if now is None else [size for size in sm.carveouts_bytes if size > now]


def _warps_down(begin: int) -> range:
    """Return block sizes of whole warps from `begin`, rounded down, to one warp."""
    first = min(begin, MAX_THREADS_PER_BLOCK) // WARP_THREADS * WARP_THREADS
    return range(first, 0, -WARP_THREADS)


def _warps_up(begin: int) -> range:
    """Return block sizes of whole warps from `begin`, rounded down, to the largest."""
    return range(begin // WARP_THREADS * WARP_THREADS, MAX_THREADS_PER_BLOCK + 1, WARP_THREADS)
