"""The theoretical occupancy of many launches at once: `occupancy.py` over columns of a profile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gpuadvisor.domain.profile import UNKNOWN, DeviceLimits
from gpuadvisor.rules.facts.gpu_specs import (
    MAX_REGISTERS_PER_THREAD,
    MAX_THREADS_PER_BLOCK,
    WARP_THREADS,
    Architecture,
    CapabilityLike,
    architecture,
)
from gpuadvisor.rules.facts.intervals import IntArray

NO_LIMIT = np.iinfo(np.int64).max
"""Blocks that a limiter allows which does not limit."""
_BEYOND = 1 << 30
"""A number above what any launch has of anything; larger figures of a hostile file would
overflow."""


@dataclass(frozen=True)
class Occupancies:
    """How each launch of a column fits on an SM; all arrays have one element a launch."""

    architecture: Architecture
    blocks: IntArray
    """Blocks resident on an SM; 0 for a launch that is impossible, UNKNOWN where a figure is not
    known."""
    warps: IntArray
    """Warps resident on an SM; UNKNOWN where a figure is not known."""
    fraction: npt.NDArray[np.float64]
    """Share of the warps that an SM can hold, 0 to 1; NaN where a figure is not known."""
    limits: Mapping[str, IntArray]
    """Blocks that each limiter alone allows; NO_LIMIT where it does not limit."""

    def limited_by(self, limiter: str) -> npt.NDArray[np.bool_]:
        """Say for each launch whether a limiter is (one of) those that keep another block out."""
        return np.asarray(self.limits[limiter] == self.blocks)


def occupancies(
    compute_capability: CapabilityLike,
    threads_per_block: Any,
    registers_per_thread: Any,
    shared_bytes_per_block: Any,
    *,
    carveout_bytes: Any = UNKNOWN,
    barriers: Any = 0,
    limits: DeviceLimits | None = None,
) -> Occupancies:
    """Return the theoretical occupancy of each launch; the figures are those of `occupancy`.

    Arguments are integer arrays of one length, or single values. A negative figure means that it
    is not known, and so a launch's occupancy; of the carve-out that it is the largest. Raises
    UsageError for a compute capability that is not known, such as an AMD GPU's.
    """
    sm = architecture(compute_capability, limits)
    given = (threads_per_block, registers_per_thread, shared_bytes_per_block, carveout_bytes)
    threads, registers, shared, carveout, bars = np.broadcast_arrays(
        *(np.atleast_1d(_bounded(values)) for values in (*given, barriers))
    )
    known = (threads > 0) & (registers >= 0) & (shared >= 0)
    warps = np.maximum(-(-threads // WARP_THREADS), 1)
    found = {
        "warps": np.where(threads > MAX_THREADS_PER_BLOCK, 0, sm.max_warps // warps),
        "registers": _by_registers(sm, registers, warps),
        "shared_memory": _by_shared_memory(sm, shared, carveout),
        "blocks": np.full(len(threads), sm.max_blocks),
    }
    if sm.barriers is not None and bars.any():
        found["barriers"] = np.where(bars > 0, sm.barriers // np.maximum(bars, 1), NO_LIMIT)
    blocks = np.where(known, np.minimum.reduce(list(found.values())), UNKNOWN)
    resident = np.where(known, blocks * warps, UNKNOWN)
    fraction = np.where(known, resident / sm.max_warps, np.nan)
    return Occupancies(sm, blocks, resident, fraction, found)


def _bounded(values: Any) -> IntArray:
    bounded: IntArray = np.clip(np.asarray(values), UNKNOWN, _BEYOND).astype(np.int64)
    return bounded


def _by_registers(sm: Architecture, registers: IntArray, warps: IntArray) -> IntArray:
    per_warp = -(-registers * WARP_THREADS // sm.register_granule) * sm.register_granule
    needed = per_warp * (-(-warps // sm.sub_partitions) * sm.sub_partitions)
    per_partition = sm.registers // sm.sub_partitions // np.maximum(per_warp, 1)
    blocks = np.where(per_warp > 0, per_partition * sm.sub_partitions // warps, NO_LIMIT)
    fits = (registers <= MAX_REGISTERS_PER_THREAD) & (needed <= sm.registers_per_block)
    return np.where(fits, blocks, 0)


def _by_shared_memory(sm: Architecture, shared: IntArray, carveout: IntArray) -> IntArray:
    granule = sm.shared_granule_bytes
    allocated = -(-(shared + sm.shared_reserved_bytes) // granule) * granule
    sizes = np.array(sm.carveouts_bytes)
    place = np.searchsorted(sizes, np.maximum(carveout, allocated))
    chosen = sizes[np.minimum(place, len(sizes) - 1)]
    total = np.where(carveout >= 0, chosen, sm.shared_bytes)
    blocks = np.where(allocated > 0, total // np.maximum(allocated, 1), NO_LIMIT)
    fits = allocated <= sm.shared_bytes_per_block + sm.shared_reserved_bytes
    return np.where(fits, blocks, 0)
