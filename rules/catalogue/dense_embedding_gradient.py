"""A table of embeddings gets a gradient for all of its rows although few were looked up."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from gpuadvisor.domain.finding import Category, Figure
from gpuadvisor.rules.device import rate
from gpuadvisor.rules.estimates import PLAYED, RowGain, row_saving
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.facts.intervals import IntArray, Intervals, union
from gpuadvisor.rules.facts.roofline import listed
from gpuadvisor.rules.facts.summary import Facts
from gpuadvisor.rules.facts.unfused import FILLS
from gpuadvisor.rules.requirements import LAUNCHES, OPERATORS, SHAPES
from gpuadvisor.rules.rule import NOTICEABLE, Rule, RuleResult, percent
from gpuadvisor.rules.tensor_cores import WORST_OF_MEMORY

MOST_TOUCHED = 0.25
"""Largest share of a table's rows that are looked up at once, at most: with 42 % of them a sparse
gradient saved nothing on an H200, with 11 % 5 to 15 %. [own]"""
LEAST_PASSES, MOST_PASSES = 3, 7
"""How often an update reads or writes a table's size: gradient, weights read and written, and of
Adam two moments, read and written."""
BACKWARDS = ("aten::embedding_dense_backward", "aten::_embedding_bag_dense_backward")
"""Operators that make such a gradient: of `Embedding` and of `EmbeddingBag`."""
LOOKUPS = ("aten::embedding", "aten::_embedding_bag")

HALVES = ("Half", "BFloat16")
"""How the names of types end whose elements have two bytes."""
_Key: TypeAlias = tuple[int, tuple[int, ...]]

RULE = Rule(Category.OPTIMIZER, needs=(LAUNCHES, OPERATORS, SHAPES))


@dataclass(frozen=True, eq=False)
class _Table:
    rows: int
    """Embeddings of the largest table with this width and as many look-ups."""
    width: int
    touched: float
    """Largest share of the rows (0 to 1) that a step looks up."""
    bytes: int
    """Bytes of the weights of a table with this width and as many look-ups, in the mean."""
    operators: IntArray
    """Rows of the operators that made its gradient."""


def check(evidence: Evidence) -> Iterator[RuleResult]:
    """Find gradients of tables of which a step reads few rows; a table that is multiplied as well,
    as a language model's output layer, has a dense gradient anyway."""
    facts = evidence.known_facts
    found = [each for each in _tables(facts) if each.touched <= MOST_TOUCHED]
    found = [each for each in found if not _multiplied(facts, each)]
    if not found or not facts.kernel_uses.time_ns:
        return
    gains = [gain for each in found for gain in _gains(facts, each)]
    gains += _update(evidence, found)
    share = sum(each.high * each.time_ns for each in gains) / facts.kernel_uses.time_ns
    if share < NOTICEABLE:
        return
    largest = max(found, key=lambda each: each.rows * each.width)
    yield RuleResult(
        f"A table of {largest.rows:,} embeddings gets a gradient for all of them, of which a step"
        f" looks up {largest.touched:.0%} at most",
        (
            percent("rows_looked_up", largest.touched, MOST_TOUCHED),
            Figure("tables", len(found), ""),
        ),
        "Construct the table with `sparse=True` (`nn.Embedding`, `nn.EmbeddingBag`), and update it"
        " with an optimizer of its own that takes sparse gradients (SGD, SparseAdam, Adagrad).",
        row_saving(facts, gains, _launching(facts, found), (0.0, 1.0)),
        "At least the zeros of the rows that are not looked up and three passes over them in the"
        " update; at most all of the gradient's kernels, with the CPU's time for them, and seven"
        f" passes, and no more than the optimizer takes; {PLAYED}.",
        knobs=(),
    )


def _tables(facts: Facts) -> Iterator[_Table]:
    """Yield the tables whose look-up and gradient are both there: these have the width and the
    indices' shape in common."""
    looked_up: dict[_Key, list[int]] = {}
    sizes: dict[_Key, int] = {}
    for _, shapes, types in _operators(facts, LOOKUPS):
        if len(shapes) > 1 and len(shapes[0]) == 2 and shapes[0][0]:
            looked_up.setdefault(_key(shapes), []).append(shapes[0][0])
            sizes[_key(shapes)] = 2 if types and str(types[0]).endswith(HALVES) else 4
    gradients: dict[_Key, list[int]] = {}
    for row, shapes, _ in _operators(facts, BACKWARDS):
        if len(shapes) > 1 and shapes[0]:
            gradients.setdefault(_key(shapes), []).append(row)
    for key in gradients.keys() & looked_up.keys():
        # Nothing tells which of several tables a gradient is of: their mean size counts.
        counts, (width, indices) = looked_up[key], key
        touched = min(math.prod(indices) / min(counts), 1.0)
        mean_bytes = round(sum(counts) / len(counts) * width * sizes[key])
        rows = np.array(gradients[key], np.int64)
        yield _Table(max(counts), width, touched, mean_bytes, rows)


def _key(shapes: Sequence[Sequence[int]]) -> _Key:
    return shapes[0][-1], tuple(shapes[1])


def _operators(facts: Facts, names: Collection[str]) -> Iterator[tuple[int, list[Any], list[Any]]]:
    """Yield the rows of operators of these names, with their shapes and types."""
    columns, texts = facts.profile.columns("operators"), facts.profile.header.texts
    numbers = [each for each in np.unique(columns["name"]).tolist() if texts[each] in names]
    for row in np.flatnonzero(np.isin(columns["name"], numbers)).tolist():
        shapes, types = (listed(texts[columns[each][row]]) for each in ("shapes", "types"))
        yield row, shapes, types


def _multiplied(facts: Facts, table: _Table) -> bool:
    """Return whether a product has the table's shape, as it stands or transposed."""
    sizes = ([table.rows, table.width], [table.width, table.rows])
    return any(
        shape in sizes for use in facts.kernel_uses.of("gemm") for shape in listed(use.shapes)
    )


def _gains(facts: Facts, table: _Table) -> Iterator[RowGain]:
    """Yield what a sparse gradient spares of making it: zeros, and adding up what was looked up."""
    work = facts.work
    rows = facts.launching.work_within(table.operators)
    fills = np.array([bool(FILLS.search(work.describe(each))) for each in rows.tolist()], np.bool_)
    low = 1 - table.touched
    for some, least in ((rows[fills], low), (rows[~fills], 0.0)):
        if len(some):
            yield RowGain(some, int(work.duration_ns[some].sum()), least, 1.0)


def _launching(facts: Facts, tables: Sequence[_Table]) -> Intervals:
    """Return when the host was at gradients: to sort what was looked up takes 20 launches a bag."""
    operators, ran = np.concatenate([each.operators for each in tables]), facts.launching
    return union(ran.begin_ns[operators], ran.end_ns[operators])


def _update(evidence: Evidence, tables: Sequence[_Table]) -> Iterator[RowGain]:
    """Yield what is spared of the optimizer's kernels, of which nothing tells the table."""
    facts, memory = evidence.known_facts, rate(evidence, "dram")
    rows = facts.optimizer_steps.rows
    time_ns = int(facts.work.duration_ns[rows].sum())
    if memory is None or not time_ns:
        return
    bytes_moved = sum((1 - each.touched) * each.bytes * len(each.operators) for each in tables)
    pass_ns = 1e9 * bytes_moved / memory.value
    low, high = (
        min(each / time_ns, 1.0)
        for each in (LEAST_PASSES * pass_ns, MOST_PASSES * pass_ns / WORST_OF_MEMORY)
    )
    yield RowGain(rows, time_ns, low, high)
