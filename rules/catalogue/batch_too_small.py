"""Kernels are too small to fill the GPU, and most of its memory is free."""

from __future__ import annotations

from collections.abc import Iterator

from gpuadvisor.domain.finding import Category
from gpuadvisor.rules.device import peak_of, sm_count
from gpuadvisor.rules.estimates import PERSISTENT, PLAYED, SATURATING, RowGain, row_saving
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.requirements import DEVICE, LAUNCH_SHAPES, LAUNCHES, MEMORY
from gpuadvisor.rules.rule import MOST, Rule, RuleResult, percent

RULE = Rule(
    Category.BATCH_SIZE,
    needs=(LAUNCHES, DEVICE, LAUNCH_SHAPES, MEMORY),
    knobs=("batch_size",),
    hides=("small_grid_in_trace",),
)


def check(evidence: Evidence) -> Iterator[RuleResult]:
    """Find profiles in which most kernel time is in small grids."""
    facts = evidence.known_facts
    uses, count, memory = facts.kernel_uses, sm_count(evidence), peak_of(evidence)
    found = [launch for each in facts.kernel_shapes for launch in each.launches]
    total = sum(each.time_ns for each in found)
    if not count or memory is None or memory.reserved_share > MOST or not total:
        return
    small = sum(each.time_ns for each in found if each.blocks < PERSISTENT * count)
    if small < MOST * total:
        return
    filled = sum(each.time_ns * min(each.blocks / count, 1.0) for each in found) / total
    high, low = 1 - filled, max(1 - SATURATING * filled, 0.0)
    yield RuleResult(
        f"{small / total:.0%} of the GPU's kernel time goes into kernels with too few blocks for"
        f" half of its {count} multiprocessors;"
        f" {1 - memory.reserved_share:.0%} of its memory is free",
        (
            percent("kernel_time_in_small_grids", small / total, MOST),
            percent("memory_reserved", memory.reserved_share, MOST),
        ),
        "Make the batch larger: it costs little more time until the GPU is full.",
        row_saving(facts, [RowGain(uses.rows, uses.time_ns, low, high)]),
        f"At most the part of the multiprocessors that had no block, for each sample; {PLAYED}.",
    )
