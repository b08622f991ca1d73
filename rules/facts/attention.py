"""Attention that is computed in steps: a batched product, softmax, and a batched product.

What lies between the two products on the stream (scale, mask, softmax, dropout) works on a matrix
of tokens by tokens, which fused attention never writes to memory. Backward it is the same around
the softmax's backward pass, with two products on each side. Log-softmax, as losses have, is none,
nor is softmax without a batched product on both sides.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpuadvisor.domain.profile import UNKNOWN, Profile
from gpuadvisor.rules.facts.device_work import DeviceWork
from gpuadvisor.rules.facts.intervals import Mask, Whole, by_key
from gpuadvisor.rules.facts.kernel_families import Family, kind_of
from gpuadvisor.rules.facts.operators import Operators

SOFTMAX = re.compile(r"aten::_(safe_)?softmax(_backward_data)?")
BACKWARD = re.compile(r".*_backward_data")
BATCHED = ("aten::bmm", "aten::baddbmm")
REACH = 8
"""Kernels between softmax and a product: scale, mask, dropout, conversions, copies. [own]"""


@dataclass(frozen=True, eq=False)
class Attention:
    """All of it."""

    times: int
    """How often: a softmax with its two products."""
    products: Whole
    """Rows of the device's work, each once."""
    between: Whole
    """The same of what passes over the matrix of tokens by tokens, softmax among it."""
    each: tuple[Whole, ...] = ()
    """The same of each softmax: its products and what lies between."""


def attention(
    profile: Profile, work: DeviceWork, launching: Operators, device: int | None
) -> Attention:
    """Return the attention of a device that is not fused."""
    texts = profile.header.texts
    names = profile.columns("operators", ("name",))["name"]
    known = (work.device == device) & work.is_kernel & (launching.of_like_work != UNKNOWN)
    rows = np.flatnonzero(known)
    operator = names[launching.of_like_work[rows]]
    is_softmax = np.isin(operator, _numbers(operator, texts, SOFTMAX.fullmatch))
    if not is_softmax.any():
        nothing = np.empty(0, np.int64)
        return Attention(0, nothing, nothing)
    is_batched = np.isin(operator, _numbers(operator, texts, lambda text: text in BATCHED))
    is_batched &= _are_products(work, rows)
    is_backward = np.isin(operator, _numbers(operator, texts, BACKWARD.fullmatch))
    products, between, each = set[int](), set[int](), list[Whole]()
    for _, at in by_key(work.stream[rows]):
        at = at[np.argsort(work.begin_ns[rows[at]], kind="stable")]
        for first, last in _of_stream(is_softmax[at], is_batched[at]):
            between |= {int(rows[place]) for place in at[first + 1 : last]}
            more = int(is_backward[at[first + 1 : last]].any())
            around = at[max(first - more, 0) : last + 1 + more]
            products |= {int(rows[place]) for place in around[is_batched[around]]}
            each.append(rows[around])
    return Attention(len(each), _sorted(products), _sorted(between - products), tuple(each))


def _of_stream(is_softmax: Mask, is_batched: Mask) -> list[tuple[int, int]]:
    """Return the places of the products around each softmax."""
    batched = np.flatnonzero(is_batched)
    softmax = np.flatnonzero(is_softmax)
    after = np.searchsorted(batched, softmax)
    inside = (after > 0) & (after < len(batched))
    softmax, after = softmax[inside], after[inside]
    first, last = batched[after - 1], batched[after]
    near = (softmax - first <= REACH) & (last - softmax <= REACH)
    return list(zip(first[near].tolist(), last[near].tolist(), strict=True))


def _are_products(work: DeviceWork, rows: Whole) -> Mask:
    used, place = np.unique(work.name[rows], return_inverse=True)
    products = [kind_of(work.texts[name]).family is Family.GEMM for name in used.tolist()]
    return np.array(products, np.bool_)[place]


def _numbers(
    operator: npt.NDArray[np.int32], texts: Sequence[str], wanted: Callable[[str], object]
) -> list[int]:
    return [name for name in np.unique(operator).tolist() if wanted(texts[name])]


def _sorted(rows: set[int]) -> Whole:
    return np.array(sorted(rows), np.int64)
