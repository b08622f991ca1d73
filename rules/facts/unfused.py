"""Kernels that one fused kernel could do: attention in steps, and memory-bound chains.

Attention in steps is a batched product, softmax, and a batched product. What lies between the two
products on the stream (scale, mask, softmax, dropout) works on a matrix of tokens by tokens, which
fused attention never writes to memory. Backward it is the same around the softmax's backward pass,
with two products on each side. Log-softmax, as losses have, is none, nor is softmax without a
batched product on both sides. Neither is the softmax of a router, whose choice of experts is sorted
before their batched products: no other product, and nothing that sorts, lies within attention.

Memory-bound kernels (elementwise ones, normalizations, pooling) that follow each other on a stream
each read their input from memory and write their output there; fused, what passes between them
stays in registers. So does what a reduction reads that the elementwise kernel just before it wrote
(`facts.reduced`). Filling a tensor computes nothing of another one, and ends a chain as anything
else does that is not memory-bound. Nor does an operator in place read what the same one just wrote
to a tensor of another size: so a script updates its parameters in a loop, or clips their gradients.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import numpy.typing as npt

from gpuadvisor.domain.profile import UNKNOWN, Profile
from gpuadvisor.rules.facts.device_work import DeviceWork
from gpuadvisor.rules.facts.intervals import BoolArray, IntArray, Intervals, by_key, covered_ns
from gpuadvisor.rules.facts.kernel_families import Family, kind_of
from gpuadvisor.rules.facts.operators import Operators
from gpuadvisor.rules.facts.roofline import is_shape, listed

SOFTMAX = re.compile(r"aten::_(safe_)?softmax(_backward_data)?")
BACKWARD = re.compile(r".*_backward_data")
BATCHED = ("aten::bmm", "aten::baddbmm")
COPIES = ("aten::copy_", "aten::clone", "aten::contiguous")
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
    copies: IntArray = field(default_factory=lambda: np.empty(0, np.int64))
    """Rows of the device's work that only copy, just before the first product or just after the
    last one: batched products want their operands in one piece, fused attention takes them as they
    lie, and writes its result as the next layer reads it."""


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
    families = [kind_of(work.texts[name]).family for name in used.tolist()]
    is_product = np.array([each is Family.GEMM for each in families], np.bool_)[place]
    is_sort = np.array([each is Family.SORT for each in families], np.bool_)[place]
    is_batched &= is_product
    is_foreign = is_product & ~is_batched | is_sort
    is_backward = np.isin(operator, _numbers(operator, texts, BACKWARD.fullmatch))
    is_copy = np.isin(operator, _numbers(operator, texts, lambda text: text in COPIES))
    products, between, each, copies = set[int](), set[int](), list[IntArray](), set[int]()
    for _, at in by_key(work.stream[rows]):
        at = at[np.argsort(work.begin_ns[rows[at]], kind="stable")]
        for first, last in _around_softmax(is_softmax[at], is_batched[at], is_foreign[at]):
            between |= {int(rows[place]) for place in at[first + 1 : last]}
            more = int(is_backward[at[first + 1 : last]].any())
            around = at[max(first - more, 0) : last + 1 + more]
            products |= {int(rows[place]) for place in around[is_batched[around]]}
            begin, stop = max(first - more, 0), last + more
            beside = [*_run(is_copy[at], begin - 1, -1), *_run(is_copy[at], stop + 1, 1)]
            copies |= {int(rows[at[place]]) for place in beside}
            each.append(rows[around])
    copies -= products | between
    return Attention(
        len(each), _sorted(products), _sorted(between - products), tuple(each), _sorted(copies)
    )


def _run(chosen: BoolArray, place: int, step: int) -> list[int]:
    """Return the places from this one on, in this direction, until one is not chosen."""
    found = list[int]()
    while 0 <= place < len(chosen) and chosen[place] and len(found) < REACH:
        found.append(place)
        place += step
    return found


def _around_softmax(
    is_softmax: BoolArray, is_batched: BoolArray, is_foreign: BoolArray
) -> list[tuple[int, int]]:
    """Return the places of the products around each softmax, with nothing foreign within."""
    batched = np.flatnonzero(is_batched)
    softmax = np.flatnonzero(is_softmax)
    after = np.searchsorted(batched, softmax)
    inside = (after > 0) & (after < len(batched))
    softmax, after = softmax[inside], after[inside]
    first, last = batched[after - 1], batched[after]
    foreign = np.cumsum(is_foreign)
    near = (
        (softmax - first <= REACH) & (last - softmax <= REACH) & (foreign[first] == foreign[last])
    )
    return list(zip(first[near].tolist(), last[near].tolist(), strict=True))


def _numbers(
    operator: npt.NDArray[np.int32], texts: Sequence[str], wanted: Callable[[str], object]
) -> list[int]:
    return [name for name in np.unique(operator).tolist() if wanted(texts[name])]


def _sorted(rows: set[int]) -> IntArray:
    return np.array(sorted(rows), np.int64)


FEWEST = 3
"""Kernels of a chain: what two elementwise ones could save is not worth a compiler. [own]"""
FEWEST_WITH_NORMALIZATION = 2
"""Kernels of a chain with a normalization: a block of a network has one, and there are many. Or
with a reduction of what the kernel before it wrote, which need not have been written at all."""
FILLS = re.compile(r"FillFunctor")
TENSORS = re.compile(r"[aA]rray<char\s*\*, (\d+)")
"""How names of PyTorch's kernels tell the number of tensors that they read and write."""
USUAL_TENSORS = 3
"""Number of tensors where the name does not tell: two operands and a result."""
NORMALIZATIONS = (
    (re.compile(r"RowwiseMoments|batch_norm_collect_statistics|bn_fw_tr\w*_stat"), (1, 0)),
    (re.compile(r"GammaBeta|batch_norm_backward_reduce|Compute\w*(Gradients|FusedParams)"), (2, 0)),
    (re.compile(r"bn_bw|batch_norm_backward_kernel"), (4, 1)),
    (re.compile(r"backward|_bwd|_grad"), (2, 1)),
    (re.compile(r"bn_fw_tr|batch_norm_\w*(?<!input)_kernel"), (2, 1)),
)
"""Tensors that a normalization reads and writes; the first that fits. Statistics read a tensor that
is read again: cuDNN's and PyTorch's kernels that do both, and their backward passes, twice."""
PLAIN_NORMALIZATION = (1, 1)
"""Tensors that a normalization without statistics of its own reads and writes: a row of a layer
norm is read once, and so is the input by batch norm's second half."""
REDUCTIONS = (1, 0)
"""Tensors that a reduction reads and writes: its result is small."""
POOLS = (1, 1)
"""Tensors that pooling reads and writes; which of both is the smaller one is not told apart."""
MEMORY_BOUND = (Family.ELEMENTWISE, Family.NORMALIZATION, Family.POOLING)
"""Kernels that do little with each byte, and that a compiler fuses with those around them."""


@dataclass(frozen=True, eq=False)
class Chain:
    """Memory-bound kernels that follow each other on a stream: elementwise ones, normalizations,
    pooling, and reductions of what the kernel before wrote."""

    rows: IntArray
    """Rows of the device's work, in their order."""
    time_ns: int
    moved: int
    """Tensors that are read and written."""
    spared: int
    """Tensors among `moved` that fusing saves: each link of the chain has one that is written, and
    read again by the next kernel. Statistics write none, and what they have read is read again in
    any case."""
    in_optimizer: bool
    """Whether the chain was launched within an optimizer's step."""
    is_elementwise: bool = True
    """Whether all of its kernels are, besides reductions."""
    reduces: bool = False
    """Whether one of its kernels reduces what the one before it wrote."""

    @property
    def spared_share(self) -> float:
        """Share of what is moved that fusing saves."""
        return self.spared / self.moved

    @property
    def most_spared_share(self) -> float:
        """Share of what is moved that fusing saves where all kernels share their other operands
        too: one is read, one written, as of a formula of one variable. Normalizations read theirs
        as often as before."""
        return max(self.spared_share, 1 - 2 / self.moved if self.is_elementwise else 0.0)


def one_by_one(profile: Profile, work: DeviceWork, ran: Operators, device: int | None) -> IntArray:
    """Return the rows of a device's kernels of operators in place whose stream has a kernel of the
    same operator, on a tensor of another size, just before; none where no shapes were recorded."""
    rows = np.flatnonzero(work.device == device) if device is not None else np.empty(0, np.int64)
    columns, texts = profile.columns("operators", ("name", "shapes")), profile.header.texts
    found = [rows[:0]]
    for _, at in by_key(work.stream[rows]):
        stream = rows[at]
        stream = stream[np.lexsort((work.end_ns[stream], work.begin_ns[stream]))]
        before, after = ran.of_work[stream[:-1]], ran.of_work[stream[1:]]
        known = np.flatnonzero((before != UNKNOWN) & (after != UNKNOWN))
        name = columns["name"][after[known]]
        same = (columns["name"][before[known]] == name) & np.isin(name, _in_place(name, texts))
        known = known[same]
        shapes = (columns["shapes"][each[known]].tolist() for each in (before, after))
        differ = [_size(texts[one]) != _size(texts[two]) for one, two in zip(*shapes, strict=True)]
        found.append(stream[1:][known[np.array(differ, np.bool_)]])
    return np.concatenate(found)


def _in_place(operator: npt.NDArray[np.int32], texts: Sequence[str]) -> list[int]:
    return _numbers(operator, texts, lambda text: text.endswith("_") and text not in COPIES)


@cache
def _size(shapes: str) -> int | None:
    """Return the number of elements of the tensor that an operator in place changes, its first;
    None where it is not told."""
    told = listed(shapes)
    return math.prod(told[0]) if told and is_shape(told[0]) else None


def chains(
    work: DeviceWork,
    device: int | None,
    launched_ns: IntArray,
    optimizer: Intervals,
    step: IntArray,
    reductions: IntArray,
    apart: IntArray,
) -> tuple[Chain, ...]:
    """Return the chains of a device, which end where a step or the optimizer's step does, and where
    that begins; `launched_ns` says when each
    row's call began, `step` in which step that was, UNKNOWN where it is not told. `reductions` are
    rows that read what the kernel before them wrote, `apart` such as surely do not."""
    rows = np.flatnonzero(work.device == device) if device is not None else np.empty(0, np.int64)
    found = []
    reads, parts = np.zeros((2, len(work)), np.bool_)
    reads[reductions], parts[apart] = True, True
    for _, at in by_key(work.stream[rows]):
        stream = rows[at]
        stream = stream[np.lexsort((work.end_ns[stream], work.begin_ns[stream]))]
        marks = step[stream], reads[stream], parts[stream]
        found += _chains_of(work, stream, launched_ns, optimizer, *marks)
    return tuple(found)


def _chains_of(
    work: DeviceWork,
    rows: IntArray,
    launched_ns: IntArray,
    optimizer: Intervals,
    step: IntArray,
    reduces: BoolArray,
    apart: BoolArray,
) -> list[Chain]:
    used, place = np.unique(work.name[rows], return_inverse=True)
    tensors = [_tensors(work.texts[name]) if name >= 0 else (0, 0) for name in used.tolist()]
    normal = [name >= 0 and _is_normal(work.texts[name]) for name in used.tolist()]
    if not len(used):
        return []
    read, written = np.array(tensors, np.int64)[place].T
    read, written = (
        np.where(reduces, count, given)
        for count, given in zip(REDUCTIONS, (read, written), strict=True)
    )
    is_normal = np.array(normal, np.bool_)[place] & ~reduces
    inside = read + written > 0
    changes = np.diff(inside.astype(np.int8), prepend=-1) != 0
    changes[1:] |= (step[1:] != step[:-1]) & (step[1:] != UNKNOWN) & (step[:-1] != UNKNOWN)
    stepping = covered_ns(optimizer, launched_ns[rows], launched_ns[rows] + 1) > 0
    changes |= apart
    changes[1:] |= stepping[1:] != stepping[:-1]
    change = np.flatnonzero(changes)
    stops = np.append(change[1:], len(rows))
    duration = work.duration_ns[rows]
    # What one writes and the next reads: both are spared, unless the next reads it twice over.
    links = np.where(written[:-1] > 0, np.where(written[1:] > 0, 2, 1), 0)
    found = []
    for start, stop in zip(change.tolist(), stops.tolist(), strict=True):
        with_normal = bool(is_normal[start:stop].any())
        with_sum = bool(reduces[start:stop].any())
        least = FEWEST_WITH_NORMALIZATION if with_normal or with_sum else FEWEST
        if inside[start] and stop - start >= least:
            found.append(
                Chain(
                    rows[start:stop],
                    int(duration[start:stop].sum()),
                    int((read + written)[start:stop].sum()),
                    int(links[start : stop - 1].sum()),
                    bool(stepping[start]),
                    not with_normal,
                    with_sum,
                )
            )
    return found


def _is_normal(name: str) -> bool:
    return kind_of(name).family is not Family.ELEMENTWISE


def _tensors(name: str) -> tuple[int, int]:
    """Return how many tensors a kernel reads and writes; (0, 0) where it cannot be fused."""
    family = kind_of(name).family
    if family not in MEMORY_BOUND or FILLS.search(name):
        return 0, 0
    if family is Family.POOLING:
        return POOLS
    if family is Family.NORMALIZATION:
        found = (counts for pattern, counts in NORMALIZATIONS if pattern.search(name))
        return next(found, PLAIN_NORMALIZATION)
    told = TENSORS.search(name)
    return (max(int(told[1]), 2) if told else USUAL_TENSORS) - 1, 1
