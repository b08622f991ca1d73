"""How near operators come to what their device can do, and what matrix products take at least.

Against the ceilings that are passed in (measured ones are better than theoretical ones): achieved
operations a second over the ceiling of their precision, achieved bytes a second over that of the
memory. The larger share names the bound; below `LATENCY_BOUND` of both it is latency, as in Nsight
Compute's own rule. Bytes are those that Nsight Compute measured, or of matrix products the least
that they need, so that their intensity is an upper limit. The operations and bytes of matrix
products follow from the shapes and types that a trace tells.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import prod
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from gpuadvisor.domain.profile import UNKNOWN, Profile
from gpuadvisor.rules.facts.communication import type_bytes
from gpuadvisor.rules.facts.device_work import DeviceWork
from gpuadvisor.rules.facts.intervals import IntArray
from gpuadvisor.rules.facts.operators import Operators

FACTORS = {
    "aten::mm": 0,
    "aten::bmm": 0,
    "aten::addmm": 1,
    "aten::baddbmm": 1,
    "aten::_scaled_mm": 0,
}
"""Operators to where among their inputs the two factors begin."""
PRECISIONS = {
    "float": "fp32", "double": "fp64", "half": "fp16", "bfloat16": "bf16", "char": "int8",
    "float8_e4m3fn": "fp8", "float8_e5m2": "fp8",
}  # fmt: skip
"""PyTorch's names of types, as `type_bytes` takes them, to those of `Ceilings`."""
MOST_DIMENSIONS = 3
"""Most dimensions of a factor: batch, rows, columns."""


@dataclass(frozen=True)
class Product:
    """One matrix product, or a batch of them."""

    flops: float
    """A multiplication and an addition count as two."""
    bytes: float | None
    """The factors read once and the result written once, the least that it takes; None if the
    type of the elements is not known."""


def product(operator: str, shapes: str, types: str) -> Product | None:
    """Return what an operator computes; None where it is no matrix product or not told."""
    multiplied = sizes(operator, shapes)
    if multiplied is None:
        return None
    batch, rows, inner, columns = multiplied
    size = type_bytes(element_type(types, FACTORS[operator]))
    elements = batch * (rows * inner + inner * columns + rows * columns)
    return Product(2.0 * prod(multiplied), None if size is None else float(elements * size))


def sizes(operator: str, shapes: str) -> tuple[int, int, int, int] | None:
    """Return batch, rows of the left, inner size and columns of the right factor."""
    place = FACTORS.get(operator)
    dimensions = listed(shapes)
    if place is None or len(dimensions) < place + 2:
        return None
    left, right = dimensions[place : place + 2]
    if not (_is_shape(left) and _is_shape(right)) or len(left) != len(right):
        return None
    if left[:-2] != right[:-2] or left[-1] != right[-2]:
        return None
    return prod(left[:-2]), left[-2], left[-1], right[-1]


def _is_shape(value: Any) -> bool:
    return (
        isinstance(value, list)
        and 2 <= len(value) <= MOST_DIMENSIONS
        and all(type(each) is int and 0 < each < 2**40 for each in value)
    )


def element_type(types: str, place: int = 0) -> str:
    """Return the type of an input in PyTorch's words; empty where it is not told."""
    told = listed(types)
    kind = told[place] if place < len(told) else ""
    return kind.lower().removeprefix("c10::") if isinstance(kind, str) else ""


def listed(text: str) -> list[Any]:
    """Return what a list in a trace holds; nothing where it is none."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return []
    return value if isinstance(value, list) else []


CeilingValues: TypeAlias = Mapping[str, float]
"""Operations a second by precision and bytes a second by memory, in the words of `Ceilings`."""
MEMORY = "dram"
LATENCY_BOUND = 0.6
"""Share of both ceilings below which Nsight Compute calls a kernel latency-bound."""
ON_TENSOR_CORES = ("tf32", "tensorop", "xmma_gemm_f32tf32", "s1688")
"""Parts of the names of kernels that multiply 32-bit floats on tensor cores: then TF32 is their
ceiling."""

TENSOR = "_tensor"
"""Ends the ceiling of matrix products where it is another one: doubles on some GPUs."""


class Bound(StrEnum):
    """What limits."""

    MEMORY = "memory"
    COMPUTE = "compute"
    LATENCY = "latency"
    UNKNOWN = "unknown"
    """There are no ceilings, or too little is known of what was done."""


@dataclass(frozen=True)
class Position:
    """Where something stands on a roofline."""

    flops_per_s: float | None
    bytes_per_s: float | None
    intensity_flops_per_byte: float | None
    compute_share: float | None
    """Share of the compute ceiling."""
    memory_share: float | None
    bound: Bound


@dataclass(frozen=True)
class OperatorPosition:
    """All operators of one name, shapes and types."""

    operator: str
    shapes: str
    types: str
    precision: str
    """Precision of the ceiling, in the words of `Ceilings`; empty where it is not known."""
    count: int
    device_ns: int
    """Time on the device with what the operators called."""
    flops: float
    bytes: float | None
    position: Position


def position(
    seconds: float,
    flops: float | None,
    moved_bytes: float | None,
    precision: str,
    ceilings: CeilingValues,
) -> Position:
    """Return where something stands that took so long."""
    flops_per_s = flops / seconds if flops is not None and seconds > 0 else None
    bytes_per_s = moved_bytes / seconds if moved_bytes is not None and seconds > 0 else None
    compute = _share(flops_per_s, precision, ceilings)
    memory = _share(bytes_per_s, MEMORY, ceilings)
    known = flops is not None and moved_bytes is not None and moved_bytes > 0
    return Position(
        flops_per_s,
        bytes_per_s,
        flops / moved_bytes if known and flops is not None and moved_bytes else None,
        compute,
        memory,
        bound(compute, memory),
    )


def _share(achieved: float | None, quantity: str, ceilings: CeilingValues) -> float | None:
    ceiling = ceilings.get(quantity, 0.0)
    return achieved / ceiling if achieved is not None and ceiling > 0 else None


def bound(compute_share: float | None, memory_share: float | None) -> Bound:
    """Return what limits; one share alone tells it only where it is high."""
    shares = [share for share in (compute_share, memory_share) if share is not None]
    if not shares or (len(shares) == 1 and shares[0] < LATENCY_BOUND):
        return Bound.UNKNOWN
    if max(shares) < LATENCY_BOUND:
        return Bound.LATENCY
    return Bound.COMPUTE if compute_share == max(shares) else Bound.MEMORY


def operator_positions(
    profile: Profile, work: DeviceWork, launching: Operators, ceilings: CeilingValues
) -> tuple[OperatorPosition, ...]:
    """Return where operators stand whose operations are known, those with most time first.

    The profiler's own count is taken where there is one, which can be for operators that call
    others too (a convolution): an operator's time is that with what it called.
    """
    columns = profile.columns("operators", ("name", "shapes", "types", "flops"))
    texts = profile.header.texts
    total = launching.call_tree.sums(launching.own_device_ns(work))
    products = [number for number, text in enumerate(texts) if text in FACTORS]
    told = (columns["flops"] > 0) | np.isin(columns["name"], products)
    ran = np.flatnonzero((total > 0) & told)
    names = _kernel_names(work, launching)
    groups: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    keys = zip(*(columns[key][ran].tolist() for key in ("name", "shapes", "types")), strict=True)
    for key, row in zip(keys, ran.tolist(), strict=True):
        groups[key].append(row)
    found = []
    for (name, shapes, types), rows in groups.items():
        at = np.array(rows, np.int64)
        words = texts[name], texts[shapes], texts[types]
        kernel = texts[names[rows[0]]] if names[rows[0]] != UNKNOWN else ""
        each = _placed(words, columns["flops"][at], int(total[at].sum()), kernel, ceilings)
        if each is not None:
            found.append(each)
    return tuple(sorted(found, key=lambda each: -each.device_ns))


def _kernel_names(work: DeviceWork, launching: Operators) -> IntArray:
    """Return the name of a kernel that each operator launched itself; UNKNOWN without one."""
    names = np.full(len(launching), UNKNOWN, np.int64)
    rows = np.flatnonzero((launching.of_work != UNKNOWN) & work.is_kernel)
    rows = rows[np.argsort(work.duration_ns[rows], kind="stable")]
    names[launching.of_work[rows]] = work.name[rows]
    return names


def _placed(
    words: tuple[str, str, str],
    told_flops: npt.NDArray[np.float64],
    device_ns: int,
    kernel: str,
    ceilings: CeilingValues,
) -> OperatorPosition | None:
    operator, shapes, types = words
    multiplied = product(operator, shapes, types)
    count = len(told_flops)
    told = told_flops[np.isfinite(told_flops) & (told_flops > 0)]
    if len(told) == count:
        flops = float(told.sum())
    elif multiplied is not None:
        flops = multiplied.flops * count
    else:
        return None
    moved = None
    if multiplied is not None and multiplied.bytes is not None:
        moved = multiplied.bytes * count
    precision = _precision(types, kernel)
    if multiplied is not None and f"{precision}{TENSOR}" in ceilings:
        precision += TENSOR
    placed = position(device_ns / 1e9, flops, moved, precision, ceilings)
    return OperatorPosition(
        operator, shapes, types, precision, count, device_ns, flops, moved, placed
    )


def _precision(types: str, kernel: str) -> str:
    precision = PRECISIONS.get(element_type(types), "")
    name = kernel.lower()
    if precision == "fp32" and any(each in name for each in ON_TENSOR_CORES):
        return "tf32"
    return precision
