"""A matrix product is written out: an elementwise product, and a sum of what it wrote."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from gpuadvisor.domain.finding import Category, Figure
from gpuadvisor.domain.profile import UNKNOWN
from gpuadvisor.rules.estimates import PLAYED, RowGain, launching, row_saving
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.facts.communication import type_bytes
from gpuadvisor.rules.facts.idle import AGAIN
from gpuadvisor.rules.facts.idle_causes import Cause
from gpuadvisor.rules.facts.intervals import BoolArray, IntArray, by_key, grouped
from gpuadvisor.rules.facts.reduced import result_of
from gpuadvisor.rules.facts.roofline import PRECISIONS, element_type, is_shape, listed
from gpuadvisor.rules.facts.steps import NO_STEPS
from gpuadvisor.rules.facts.summary import Facts
from gpuadvisor.rules.paces import idle_ns
from gpuadvisor.rules.requirements import LAUNCHES, SHAPES
from gpuadvisor.rules.rule import NOTICEABLE, Rule, RuleResult, percent

PRODUCT, SUM = "aten::mul", "aten::sum"
REACHED = 0.5
"""Share of its arithmetic rate that a GPU reaches at least in the product that takes their place;
libraries reach 60 to 90 % at sizes that fill it (`product_below_roof`)."""

RULE = Rule(Category.COMPUTE, needs=(LAUNCHES, SHAPES), knobs=("compile",))


def check(evidence: Evidence) -> Iterator[RuleResult]:
    """Find products of tensors that are spread over each other, summed up right after."""
    facts = evidence.known_facts
    total, found = facts.kernel_uses.time_ns, _loops(facts)
    share = sum(each.time_ns for each in found) / total if total else 0.0
    if share < NOTICEABLE:
        return
    gains = [gain for each in found for gain in each.gains(facts)]
    largest = max(found, key=lambda each: each.time_ns)
    count = sum(len(each.products) for each in found)
    most = max(len(each.products) for each in found)
    saving = row_saving(facts, gains, launching(facts, [each.body for each in found]), (0.0, 1.0))
    gaps = idle_ns(facts, Cause.BETWEEN_KERNELS) * _share_of_kernels(facts, found)
    yield RuleResult(
        f"{share:.0%} of the GPU's kernel time goes into matrix products by hand: {count:,} times"
        f" {PRODUCT} of {largest.told} writes {largest.written_bytes / 1e6:,.3g} MB, which {SUM}"
        " reads again" + (f", up to {most:,} times in a row" if most > 1 else ""),
        (
            percent("products_by_hand", share, NOTICEABLE),
            Figure("in_a_row", most, "times"),
            Figure("written_each_time", largest.written_bytes, "bytes"),
        ),
        "Compute all of them as one matrix product (`@`, torch.matmul, torch.einsum) of the matrix"
        " and all the vectors, stacked: it reads the matrix once, and writes only the result."
        " Where a vector follows from the product before it, multiply each (`matrix @ vector`).",
        replace(saving, parts={**saving.parts, "idle/between_kernels": gaps}),
        "At least these kernels, less what a product in each one's place needs: to read its matrix"
        " as fast as the sum reads, or its operations at half of the GPU's rate; at most all of"
        f" them and what comes between two in a row, by GPU and host, but for one pass; {PLAYED}.",
    )


@dataclass(frozen=True, eq=False)
class _Loop:
    """Products of the same shapes that come one after the other on a stream."""

    products: IntArray
    """Rows of the device's work, each followed by the one in `sums`."""
    sums: IntArray
    body: IntArray
    """All rows from the first of them to the last one."""
    shapes: tuple[list[int], list[int]]
    kind: str
    """Type of an element, in PyTorch's words."""
    time_ns: int

    @property
    def told(self) -> str:
        return " by ".join("x".join(map(str, shape)) for shape in self.shapes)

    @property
    def written_bytes(self) -> int:
        return prod(result_of(self.shapes) or ()) * (type_bytes(self.kind) or 1)

    def gains(self, facts: Facts) -> Iterator[RowGain]:
        """Yield what a product in their place saves of the kernels, and of those between."""
        left = min(self._left_ns(facts) / self.time_ns, 1.0) if self.time_ns else 1.0
        yield RowGain(np.concatenate((self.products, self.sums)), self.time_ns, 1.0 - left, 1.0)
        again = self.body[np.isin(self.body, self.products).cumsum() > 1]  # one pass stays
        between = np.setdiff1d(again, np.concatenate((self.products, self.sums)))
        yield RowGain(between, int(facts.work.duration_ns[between].sum()), 0.0, 1.0)

    def _left_ns(self, facts: Facts) -> float:
        """Return how long a product in their place takes at most."""
        sums_ns = float(facts.work.duration_ns[self.sums].sum())
        rate = facts.ceilings.get(PRECISIONS.get(self.kind, ""))
        if rate is None:
            return sums_ns
        size = type_bytes(self.kind) or 1
        # Nothing tells whether a vector follows from the product before it, as in a power
        # iteration: the matrix is read anew for each of them then.
        reading = sums_ns * max(map(prod, self.shapes)) * size / self.written_bytes
        operations = 2.0 * len(self.products) * self.written_bytes / size
        return max(reading, operations / (REACHED * rate) * 1e9)


def _share_of_kernels(facts: Facts, found: list[_Loop]) -> float:
    """Return which share of all kernels lies between the first and the last one of a row."""
    return sum(len(each.body) for each in found) / max(facts.work.kernels, 1)


def _loops(facts: Facts) -> list[_Loop]:
    """Return the products by hand: of tensors of which each has a dimension that the other lacks,
    or of a matrix and one vector after the other."""
    work, ran, texts = facts.work, facts.launching, facts.profile.header.texts
    first, second = facts.reduced.elementwise, facts.reduced.reduction
    columns = facts.profile.columns("operators", ("name", "shapes", "types"))
    owner = ran.of_work[first]
    numbers = {text: number for number, text in enumerate(texts)}
    product, total = (numbers.get(each, UNKNOWN) for each in (PRODUCT, SUM))
    name = columns["name"]
    chosen = (name[owner] == product) & (name[ran.of_work[second]] == total)
    chosen &= ~_is_backward(facts, owner)
    first, second, owner = first[chosen], second[chosen], owner[chosen]
    order = np.lexsort((work.begin_ns, work.is_kernel, work.stream, work.device))
    place = np.empty(len(work), np.int64)
    place[order] = np.arange(len(work))
    found = []
    for _, at in by_key(grouped(columns["shapes"][owner], columns["types"][owner])):
        shapes = _factors(listed(texts[int(columns["shapes"][owner[at[0]]])]))
        if shapes is None:
            continue
        kind = element_type(texts[int(columns["types"][owner[at[0]]])])
        is_outer = prod(result_of(shapes) or ()) > max(map(prod, shapes))
        at = at[np.argsort(place[first[at]])]
        for some in np.split(at, _breaks(facts, order, place, first[at], second[at])):
            if is_outer or len(some) >= AGAIN:
                mine, sums = first[some], second[some]
                body = order[place[mine[0]] : place[sums[-1]] + 1]
                time_ns = int(work.duration_ns[np.concatenate((mine, sums))].sum())
                found.append(_Loop(mine, sums, body, shapes, kind, time_ns))
    return found


def _factors(shapes: list[Any]) -> tuple[list[int], list[int]] | None:
    """Return the shapes of two tensors of which one is spread over the other; None for others."""
    if len(shapes) != 2 or not all(is_shape(each) and prod(each) > 1 for each in shapes):
        return None
    result = result_of(shapes)
    return (shapes[0], shapes[1]) if result and prod(result) > min(map(prod, shapes)) else None


def _breaks(
    facts: Facts, order: IntArray, place: IntArray, first: IntArray, second: IntArray
) -> IntArray:
    """Return before which of these products another row of them begins: where a step, another
    stream, or more work than the products themselves lies between."""
    work = facts.work
    before = np.concatenate(([0], np.cumsum(work.duration_ns[order])))
    begin, end = place[first], place[second] + 1
    own = before[end] - before[begin]
    between = before[begin[1:]] - before[end[:-1]]
    step = np.searchsorted((facts.steps or NO_STEPS).begin_ns, work.begin_ns[first], "right")
    apart = (between > np.minimum(own[1:], own[:-1])) | (step[1:] != step[:-1])
    apart |= work.stream[first[1:]] != work.stream[first[:-1]]
    breaks: IntArray = np.flatnonzero(apart) + 1
    return breaks


def _is_backward(facts: Facts, operators: IntArray) -> BoolArray:
    """Return which operators are part of a backward pass: what a sum reads there is often read
    again."""
    tree, texts = facts.launching.call_tree, facts.profile.header.texts
    place = np.empty(len(tree.row), np.int64)
    place[tree.row] = np.arange(len(tree.row))
    at = place[operators]
    while (held := tree.parent[at] != UNKNOWN).any():
        at = np.where(held, tree.parent[at], at)
    names = facts.launching.name[tree.row[at]].tolist()
    return np.array(["Backward" in texts[number] for number in names], np.bool_)
