"""How near operators come to what their device can do, and what matrix products take at least.

Against the ceilings that are passed in (measured ones are better than theoretical ones): achieved
operations a second over the ceiling of their precision, achieved bytes a second over that of the
memory. The larger share names the bound; below `LATENCY_BOUND` of both it is latency, as in Nsight
Compute's own rule. Bytes are those that Nsight Compute measured, or of matrix products and
attention the least that they need, so that their intensity is an upper limit. Their operations and
bytes follow from the shapes and types that a trace tells; that attention is causal, which halves
its operations, from the values of its inputs.
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
ATTENTION_DIMENSIONS = 4
"""Dimensions of queries, keys and values: batch, heads, rows, width."""


@dataclass(frozen=True)
class FusedAttention:
    """Where an operator that computes attention in one kernel has its inputs, by their places in
    its schema (`native_functions.yaml`, flash-attn's `flash_attn_interface.py`)."""

    query: int
    """Keys and values follow."""
    causal: int
    """Whether it is causal, or the number of the mask."""
    heads_first: bool = True
    """Shapes are batch, heads, rows, width; else batch, rows, heads, width."""
    lengths: int | None = None
    """Lengths of sequences that are packed together: then shapes do not tell what is computed."""
    window: int | None = None
    """Rows to the left that a row attends to at most."""
    is_backward: bool = False


ATTENTION = {
    "aten::_scaled_dot_product_flash_attention": FusedAttention(0, 4),
    "aten::_scaled_dot_product_efficient_attention": FusedAttention(0, 6),
    "aten::_scaled_dot_product_cudnn_attention": FusedAttention(0, 6),
    "aten::_scaled_dot_product_flash_attention_backward": FusedAttention(1, 11, is_backward=True),
    "aten::_scaled_dot_product_efficient_attention_backward": FusedAttention(
        1, 11, is_backward=True
    ),
    "aten::_scaled_dot_product_cudnn_attention_backward": FusedAttention(1, 14, is_backward=True),
    "aten::_flash_attention_forward": FusedAttention(0, 8, False, 3, 11),
    "aten::_flash_attention_backward": FusedAttention(1, 11, False, 6, 15, True),
    "aten::_efficient_attention_forward": FusedAttention(0, 9, False, 4, 13),
    "aten::_efficient_attention_backward": FusedAttention(1, 14, False, 6, 18, True),
    "flash_attn::_flash_attn_forward": FusedAttention(0, 5, False, None, 6),
    "flash_attn::_flash_attn_backward": FusedAttention(1, 11, False, None, 12, True),
}
CAUSAL = {"True": True, "1": True, "2": True, "False": False, "0": False}
"""What the profiler writes of an input that says whether attention is causal; the numbers are the
memory-efficient kernel's masks."""
NO_WINDOW = ("", "-1")
BACKWARD_PRODUCTS = 2.5
"""Operations of the backward pass to those of the forward pass, which has two products where that
has five (FlashAttention-2, section 4.1)."""


@dataclass(frozen=True)
class Attended:
    """What attention in one kernel is computed of."""

    batch: int
    heads: int
    key_heads: int
    rows: int
    """Queries of a sequence."""
    columns: int
    """Keys of it."""
    width: int
    """Size of a query and of a key."""
    value_width: int
    is_causal: bool | None
    """None where the trace does not tell."""
    is_windowed: bool

    @property
    def halves(self) -> bool:
        """Whether about half of the pairs of query and key are left out."""
        return self.is_causal is True and self.rows == self.columns

    @property
    def at_most(self) -> bool:
        """Whether fewer pairs than are counted may have been computed."""
        return self.is_causal is None or self.is_windowed or (self.is_causal and not self.halves)


def attended(operator: str, shapes: str, inputs: str) -> Attended | None:
    """Return what an operator attends to; None where it is no such operator or not told."""
    schema, dimensions, told = ATTENTION.get(operator), listed(shapes), listed(inputs)
    if schema is None or len(dimensions) < schema.query + 3:
        return None
    if schema.lengths is not None and any(dimensions[schema.lengths : schema.lengths + 1]):
        return None
    factors = dimensions[schema.query : schema.query + 3]
    if not all(is_shape(each) and len(each) == ATTENTION_DIMENSIONS for each in factors):
        return None
    if not schema.heads_first:
        factors = [[batch, heads, rows, width] for batch, rows, heads, width in factors]
    (batch, heads, rows, width), key, value = factors
    if key[:3] != value[:3] or key[0] != batch or key[3] != width or heads % key[1]:
        return None
    window = "" if schema.window is None else _input(told, schema.window)
    causal = CAUSAL.get(_input(told, schema.causal))
    is_windowed = window not in NO_WINDOW
    return Attended(batch, heads, key[1], rows, key[2], width, value[3], causal, is_windowed)


def _input(told: list[Any], place: int) -> str:
    """Return the value of an input as the profiler writes it; empty where it does not."""
    return str(told[place]) if place < len(told) else ""


@dataclass(frozen=True)
class Product:
    """One matrix product, a batch of them, or the products of an attention."""

    flops: float
    """A multiplication and an addition count as two."""
    bytes: float | None
    """The factors read once and the result written once, the least that it takes; None if the
    type of the elements is not known."""
    at_most: bool = False
    """Whether it may have been fewer operations: of a mask that the trace does not tell."""


def product(operator: str, shapes: str, types: str, inputs: str = "") -> Product | None:
    """Return what an operator computes; None where it has no product in it or it is not told."""
    if (found := attended(operator, shapes, inputs)) is not None:
        return _of_attention(found, operator, types)
    multiplied = sizes(operator, shapes)
    if multiplied is None:
        return None
    batch, rows, inner, columns = multiplied
    size = type_bytes(element_type(types, FACTORS[operator]))
    elements = batch * (rows * inner + inner * columns + rows * columns)
    return Product(2.0 * prod(multiplied), None if size is None else float(elements * size))


def _of_attention(found: Attended, operator: str, types: str) -> Product:
    schema = ATTENTION[operator]
    of_batch = found.batch * found.rows * found.heads
    flops = 2.0 * of_batch * found.columns * (found.width + found.value_width)
    flops *= (0.5 if found.halves else 1.0) * (BACKWARD_PRODUCTS if schema.is_backward else 1.0)
    keys = found.batch * found.columns * found.key_heads
    read = of_batch * found.width + keys * (found.width + found.value_width)
    elements = read + of_batch * found.value_width
    size = type_bytes(element_type(types, schema.query))
    moved = None if size is None else float(elements * size)
    if moved is not None and schema.is_backward:  # each of them, and its gradient
        moved *= 2
    return Product(flops, moved, found.at_most)


def sizes(operator: str, shapes: str) -> tuple[int, int, int, int] | None:
    """Return batch, rows of the left, inner size and columns of the right factor."""
    place = FACTORS.get(operator)
    dimensions = listed(shapes)
    if place is None or len(dimensions) < place + 2:
        return None
    left, right = dimensions[place : place + 2]
    if not (is_shape(left) and is_shape(right)) or len(left) != len(right):
        return None
    if not 2 <= len(left) <= MOST_DIMENSIONS:
        return None
    if left[:-2] != right[:-2] or left[-1] != right[-2]:
        return None
    return prod(left[:-2]), left[-2], left[-1], right[-1]


def is_shape(value: Any) -> bool:
    """Tell whether a value of a trace is a tensor's shape, without an empty dimension."""
    return isinstance(value, list) and all(type(each) is int and 0 < each < 2**40 for each in value)


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
    """All operators of one name, shapes and types, and of attention inputs."""

    operator: str
    shapes: str
    types: str
    inputs: str
    """Values of inputs that are no tensors; of attention alone."""
    precision: str
    """Precision of the ceiling, in the words of `Ceilings`; empty where it is not known."""
    count: int
    device_ns: int
    """Time on the device with what the operators called."""
    flops: float
    at_most: bool
    """Whether it may have been fewer operations, so that rates and shares are upper limits."""
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


_KEY = ("name", "shapes", "types", "inputs")
"""Texts of operators that are alike; those of a column that an older profile lacks are empty."""


def rows_of(profile: Profile, found: OperatorPosition) -> IntArray:
    """Return the rows of the operators that a position is of."""
    columns, texts = profile.columns("operators", _KEY), profile.header.texts
    rows = np.arange(len(columns["name"]))
    for key, word in zip(
        _KEY, (found.operator, found.shapes, found.types, found.inputs), strict=True
    ):
        numbers = np.maximum(columns[key][rows], 0)
        alike = [number for number in np.unique(numbers).tolist() if texts[number] == word]
        rows = rows[np.isin(numbers, alike)]
    return rows


def operator_positions(
    profile: Profile, work: DeviceWork, launching: Operators, ceilings: CeilingValues
) -> tuple[OperatorPosition, ...]:
    """Return where operators stand whose operations are known, those with most time first.

    The profiler's own count is taken where there is one, which can be for operators that call
    others too (a convolution): an operator's time is that with what it called. Of attention that
    calls another one the outer one is taken.
    """
    columns = profile.columns("operators", (*_KEY, "flops"))
    texts = profile.header.texts
    total = launching.call_tree.sums(launching.own_device_ns(work))
    products = [number for number, text in enumerate(texts) if text in FACTORS]
    attention = [number for number, text in enumerate(texts) if text in ATTENTION]
    told = (columns["flops"] > 0) | np.isin(columns["name"], products)
    if attention:
        attends = np.isin(columns["name"], attention)
        told |= attends & launching.call_tree.outermost(attends)
    ran = np.flatnonzero((total > 0) & told)
    names = _kernel_names(work, launching)
    groups: dict[tuple[int, ...], list[int]] = defaultdict(list)
    keys = zip(*(np.maximum(columns[key][ran], 0).tolist() for key in _KEY), strict=True)
    for key, row in zip(keys, ran.tolist(), strict=True):
        groups[key].append(row)
    found = []
    for key, rows in groups.items():
        at = np.array(rows, np.int64)
        words = tuple(texts[number] for number in key)
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
    words: tuple[str, ...],
    told_flops: npt.NDArray[np.float64],
    device_ns: int,
    kernel: str,
    ceilings: CeilingValues,
) -> OperatorPosition | None:
    operator, shapes, types, inputs = words
    multiplied = product(operator, shapes, types, inputs)
    count = len(told_flops)
    told = told_flops[np.isfinite(told_flops) & (told_flops > 0)]
    at_most = multiplied is not None and multiplied.at_most
    if len(told) == count:
        flops, at_most = float(told.sum()), False
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
        operator, shapes, types, inputs, precision, count, device_ns, flops, at_most, moved, placed
    )


def _precision(types: str, kernel: str) -> str:
    precision = PRECISIONS.get(element_type(types), "")
    name = kernel.lower()
    if precision == "fp32" and any(each in name for each in ON_TENSOR_CORES):
        return "tf32"
    return precision
