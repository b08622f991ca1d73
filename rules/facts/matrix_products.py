"""Operations and bytes of matrix products, from the shapes and types that a trace tells."""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import prod
from typing import Any

from gpuadvisor.rules.facts.communication import type_bytes

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
"""PyTorch's names of types, as `type_bytes` takes them, to those of `peaks`."""
MOST_DIMENSIONS = 3
"""Of a factor: batch, rows, columns."""


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
    kind = element_type(types, FACTORS[operator])
    return Product(2.0 * prod(multiplied), _bytes(*multiplied, kind))


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


def _bytes(batch: int, rows: int, inner: int, columns: int, kind: str) -> float | None:
    size = type_bytes(kind)
    if size is None:
        return None
    return float(batch * (rows * inner + inner * columns + rows * columns) * size)


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
