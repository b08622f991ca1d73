"""Activations are computed again for the backward pass although they would fit into memory."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gpuadvisor.domain.finding import Category
from gpuadvisor.domain.profile import UNKNOWN
from gpuadvisor.rules.device import GIB, NEARLY_FULL, peak_of
from gpuadvisor.rules.estimates import LEAST_SAVED, PLAYED, RowGain, row_saving
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.facts.backward import MARK
from gpuadvisor.rules.facts.intervals import IntArray, Intervals, union
from gpuadvisor.rules.facts.joins import enclosing
from gpuadvisor.rules.facts.summary import Facts
from gpuadvisor.rules.requirements import DEVICE, LAUNCHES, MEMORY, OPERATORS, table
from gpuadvisor.rules.rule import NOTICEABLE, Rule, RuleResult, percent

FORWARD = re.compile(
    r"aten::(linear|conv[123]d|convolution|(native_)?(layer|batch|group)_norm|scaled_dot_product_attention"
    r"|_scaled_dot_product_\w*attention|lstm|gru|_cudnn_rnn|gelu|relu|silu|softmax|embedding|addmm)"
)
"""Operators of a forward pass that no backward pass of PyTorch's calls: `addmm` is in none of its
formulas, and the others have operators of their own for it."""

RULE = Rule(
    Category.MEMORY_CAPACITY,
    needs=(LAUNCHES, OPERATORS, MEMORY, DEVICE, table("memory.reserved_bytes")),
)


@dataclass(frozen=True, eq=False)
class _Again:
    times: Intervals
    """When the host did a part of the forward pass again within the backward pass."""
    rows: IntArray
    """Rows of the device's work that it launched then."""


def check(evidence: Evidence) -> Iterator[RuleResult]:
    """Find operators of a forward pass within the nodes of a backward pass."""
    facts, peak = evidence.known_facts, peak_of(evidence)
    again = _again(facts)
    if again is None or peak is None or not facts.kernel_uses.time_ns:
        return
    time_ns = int(facts.work.duration_ns[again.rows].sum())
    share = time_ns / facts.kernel_uses.time_ns
    kept = _kept_bytes(facts, again.times)
    if share < NOTICEABLE or not kept or peak.reserved + kept > NEARLY_FULL * peak.total:
        return
    yield RuleResult(
        f"{share:.0%} of the GPU's kernel time computes activations again for the backward pass,"
        f" and the {kept / GIB:.1f} GiB that keeping them takes are free",
        (
            percent("recomputed", share, NOTICEABLE),
            percent("memory_with_them_kept", (peak.reserved + kept) / peak.total, NEARLY_FULL),
        ),
        "Take away the checkpoints (`torch.utils.checkpoint`, `gradient_checkpointing`), or keep"
        " them for as many blocks as memory needs.",
        row_saving(
            facts, [RowGain(again.rows, time_ns, LEAST_SAVED, 1.0)], again.times, (LEAST_SAVED, 1.0)
        ),
        f"At least {LEAST_SAVED:.0%} of the kernels that are computed again and of the host's time"
        f" for them; {PLAYED}.",
        work=again.rows,
    )


def _again(facts: Facts) -> _Again | None:
    """Return what was done again; None where nothing was."""
    ran, texts = facts.launching, facts.profile.header.texts
    used = np.unique(ran.name).tolist()
    marks = np.flatnonzero(np.isin(ran.name, [each for each in used if _marks(texts[each])]))
    names = [each for each in used if each >= 0 and FORWARD.fullmatch(texts[each])]
    forward = np.flatnonzero(np.isin(ran.name, names))
    if not len(marks) or not len(forward):
        return None
    begin, end, key = ran.begin_ns, ran.end_ns, ran.thread_key
    node = enclosing(begin[marks], end[marks], key[marks], begin[forward], key[forward])
    forward, node = forward[node != UNKNOWN], node[node != UNKNOWN]
    if not len(forward):
        return None
    nodes, place = np.unique(node, return_inverse=True)
    # A node asks for what it needs before it computes.
    first, last = begin[marks[nodes]], np.zeros(len(nodes), np.int64)
    np.maximum.at(last, place, end[forward])
    launched = facts.launched
    owner = enclosing(first, last, key[marks[nodes]], launched.begin_ns, launched.thread_key)
    rows = np.flatnonzero((owner != UNKNOWN) & launched.known)
    return _Again(union(first, last), rows) if len(rows) else None


def _marks(text: str) -> bool:
    return text.startswith(MARK)


def _kept_bytes(facts: Facts, times: Intervals) -> float:
    """Return how much more memory was allocated at the end of these times than at their begin, in
    all of a step: what has to be kept in their place; 0 where that is not known."""
    device, steps = facts.kernel_uses.device, facts.steps
    columns = facts.profile.columns("memory", ("time_ns", "device", "allocated_bytes"))
    rows = np.flatnonzero((columns["device"] == device) & (columns["allocated_bytes"] >= 0))
    if not len(rows) or steps is None or not steps.steps:
        return 0.0
    rows = rows[np.argsort(columns["time_ns"][rows], kind="stable")]
    time, allocated = columns["time_ns"][rows], columns["allocated_bytes"][rows].astype(np.int64)
    before, after = (
        np.maximum(np.searchsorted(time, each, "right") - 1, 0)
        for each in (times.begin_ns, times.end_ns)
    )
    grown = np.maximum(allocated[after] - allocated[before], 0)
    return float(grown.sum()) / len(steps.steps)
