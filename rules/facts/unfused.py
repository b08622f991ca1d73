"""Kernels that one fused kernel could do: attention computed in steps, and elementwise chains.

Attention in steps is a batched product, softmax, and a batched product. What lies between the two
products on the stream (scale, mask, softmax, dropout) works on a matrix of tokens by tokens, which
fused attention never writes to memory. Backward it is the same around the softmax's backward pass,
with two products on each side. Log-softmax, as losses have, is none, nor is softmax without a
batched product on both sides.

Elementwise kernels that follow each other on a stream each read their input from memory and write
their output there; fused, what passes between them stays in registers. Filling a tensor computes
nothing of another one, and ends a chain as anything else does that is not elementwise.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpuadvisor.domain.profile import UNKNOWN, Profile
from gpuadvisor.rules.facts.device_work import DeviceWork
from gpuadvisor.rules.facts.intervals import BoolArray, IntArray, Intervals, by_key, covered_ns
from gpuadvisor.rules.facts.kernel_families import Family, kind_of
from gpuadvisor.rules.facts.operators import Operators

SOFTMAX = re.compile(r"aten::_(safe_)?softmax(_backward_data)?")
BACKWARD = re.compile(r".*_backward_data")
BATCHED = ("aten::bmm", "aten::baddbmm")
REACH = 8
"""Kernels between softmax and a product: scale, mask, dropout, conversions, copies. [own]"""


@dataclass(frozen=True, eq=False)
class Attention:
    """The attention of a device that is computed in steps."""

    times: int
    """How often: a softmax with its two products."""
    products: IntArray
    """Rows of the device's work, each once."""
    between: IntArray
    """Rows of the device's work that pass over the matrix of tokens by tokens, softmax among it."""
    each: tuple[IntArray, ...] = ()
    """Rows of the device's work of each softmax: its products and what lies between."""


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
    used, place = np.unique(work.name[rows], return_inverse=True)
    products_by_name = [kind_of(work.texts[name]).family is Family.GEMM for name in used.tolist()]
    is_batched &= np.array(products_by_name, np.bool_)[place]
    is_backward = np.isin(operator, _numbers(operator, texts, BACKWARD.fullmatch))
    products, between, each = set[int](), set[int](), list[IntArray]()
    for _, at in by_key(work.stream[rows]):
        at = at[np.argsort(work.begin_ns[rows[at]], kind="stable")]
        for first, last in _around_softmax(is_softmax[at], is_batched[at]):
            between |= {int(rows[place]) for place in at[first + 1 : last]}
            more = int(is_backward[at[first + 1 : last]].any())
            around = at[max(first - more, 0) : last + 1 + more]
            products |= {int(rows[place]) for place in around[is_batched[around]]}
            each.append(rows[around])
    return Attention(len(each), _sorted(products), _sorted(between - products), tuple(each))


def _around_softmax(is_softmax: BoolArray, is_batched: BoolArray) -> list[tuple[int, int]]:
    """Return the places of the products around each softmax."""
    batched = np.flatnonzero(is_batched)
    softmax = np.flatnonzero(is_softmax)
    after = np.searchsorted(batched, softmax)
    inside = (after > 0) & (after < len(batched))
    softmax, after = softmax[inside], after[inside]
    first, last = batched[after - 1], batched[after]
    near = (softmax - first <= REACH) & (last - softmax <= REACH)
    return list(zip(first[near].tolist(), last[near].tolist(), strict=True))


def _numbers(
    operator: npt.NDArray[np.int32], texts: Sequence[str], wanted: Callable[[str], object]
) -> list[int]:
    return [name for name in np.unique(operator).tolist() if wanted(texts[name])]


def _sorted(rows: set[int]) -> IntArray:
    return np.array(sorted(rows), np.int64)


FEWEST = 3
"""Kernels of a chain: what two could save is not worth a compiler. [own]"""
FILLS = re.compile(r"FillFunctor")
TENSORS = re.compile(r"[aA]rray<char\s*\*, (\d+)")
"""How names of PyTorch's kernels tell the number of tensors that they read and write."""
USUAL_TENSORS = 3
"""Number of tensors where the name does not tell: two operands and a result."""


@dataclass(frozen=True, eq=False)
class Chain:
    """Elementwise kernels that follow each other on a stream."""

    rows: IntArray
    """Rows of the device's work, in their order."""
    time_ns: int
    moved: int
    """Tensors that are read and written."""
    in_optimizer: bool
    """Whether the chain was launched within an optimizer's step."""

    @property
    def spared_share(self) -> float:
        """Share of what is moved that fusing saves: each link has a tensor that is written and read
        again by the next kernel."""
        return 2 * (len(self.rows) - 1) / self.moved

    @property
    def most_spared_share(self) -> float:
        """Share of what is moved that fusing saves where all kernels share their other operands
        too: two are read, one written."""
        return max(self.spared_share, 1 - 3 / self.moved)


def chains(
    work: DeviceWork, device: int | None, launched_ns: IntArray, optimizer: Intervals
) -> tuple[Chain, ...]:
    """Return the chains of a device; `launched_ns` says when each row's call began."""
    rows = np.flatnonzero(work.device == device) if device is not None else np.empty(0, np.int64)
    found = []
    for _, at in by_key(work.stream[rows]):
        stream = rows[at]
        stream = stream[np.lexsort((work.end_ns[stream], work.begin_ns[stream]))]
        found += _chains_of(work, stream, launched_ns, optimizer)
    return tuple(found)


def _chains_of(
    work: DeviceWork, rows: IntArray, launched_ns: IntArray, optimizer: Intervals
) -> list[Chain]:
    used, place = np.unique(work.name[rows], return_inverse=True)
    tensors = np.array([_tensors(work.texts[name]) if name >= 0 else 0 for name in used.tolist()])
    moved = tensors[place] if len(used) else np.empty(0, np.int64)
    inside = moved > 0
    change = np.flatnonzero(np.diff(inside.astype(np.int8), prepend=-1))
    stops = np.append(change[1:], len(rows))
    stepping = covered_ns(optimizer, launched_ns[rows], launched_ns[rows] + 1) > 0
    duration = work.duration_ns[rows]
    return [
        Chain(
            rows[start:stop],
            int(duration[start:stop].sum()),
            int(moved[start:stop].sum()),
            bool(stepping[start]),
        )
        for start, stop in zip(change.tolist(), stops.tolist(), strict=True)
        if inside[start] and stop - start >= FEWEST
    ]


def _tensors(name: str) -> int:
    """Return how many tensors a kernel reads and writes; 0 where it cannot be fused."""
    if kind_of(name).family is not Family.ELEMENTWISE or FILLS.search(name):
        return 0
    told = TENSORS.search(name)
    return max(int(told[1]), 2) if told else USUAL_TENSORS
