"""A kernel that takes much time lets few warps run at once."""

from __future__ import annotations

from collections.abc import Iterator

from gpuadvisor.domain.finding import Category, Scope, ScopeKind
from gpuadvisor.errors import UsageError
from gpuadvisor.rules.device import device, sm_count
from gpuadvisor.rules.estimates import LEAST_OF_ONE, PLAYED, RowGain, row_saving, short
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.facts.kernels import KernelTime
from gpuadvisor.rules.facts.occupancy import occupancy
from gpuadvisor.rules.requirements import DEVICE, LAUNCH_SHAPES, LAUNCHES
from gpuadvisor.rules.rule import Rule, RuleResult, percent

LOW_OCCUPANCY = 0.4
"""Share of the warps that a multiprocessor holds. Nsight Compute's rule speaks below 0.8, without
knowing whether the kernel waits; without counters we speak only where it is likely. [own]"""
MOST_SAVED = 0.15
"""Largest share of the kernel's time that is saved. More warps bring more to a kernel that waits,
and nothing to one that keeps its data in registers: without counters nothing tells which it is.
[own]"""
WORDS = {
    "registers": ("registers", "Lower the registers of a thread (`maxnreg`, `__launch_bounds__`)."),
    "shared_memory": (
        "shared memory",
        "Let a block take less shared memory: smaller tiles or fewer stages.",
    ),
    "warps": ("the size of a block", "Try other block sizes."),
    "blocks": (
        "the number of blocks",
        "Make blocks larger: small ones use up the places for blocks.",
    ),
}

RULE = Rule(Category.OCCUPANCY, needs=(LAUNCHES, DEVICE, LAUNCH_SHAPES))


def check(evidence: Evidence) -> Iterator[RuleResult]:
    """Find long kernels of low theoretical occupancy that are no library's."""
    facts = evidence.known_facts
    found = facts.kernel_shapes
    total = sum(each.time_ns for each in found)
    for whole in found:
        if whole.is_library or whole.time_ns < LEAST_OF_ONE * total:
            continue
        each = whole.of(lambda launch: (_occupancy(evidence, launch)[0] or 1.0) < LOW_OCCUPANCY)
        share = each.time_ns / total if each is not None and total else 0.0
        if each is None or share < LEAST_OF_ONE:
            continue
        fraction, limiter = _occupancy(evidence, each.launches[0])
        assert fraction is not None  # as it was chosen for it
        words, advice = WORDS.get(limiter, ("its launch", "Try other block sizes."))
        rows = each.rows(facts.profile, facts.kernel_uses.rows_of(each.name))
        yield RuleResult(
            f"{short(each.name)} takes {share:.0%} of the GPU's kernel time{each.words(whole)} at a"
            f" theoretical occupancy of {fraction:.0%}, limited by {words}",
            (
                percent("theoretical_occupancy", fraction, LOW_OCCUPANCY),
                percent("kernel_time", share, LEAST_OF_ONE),
            ),
            advice,
            row_saving(facts, [RowGain(rows, each.time_ns, 0.0, min(MOST_SAVED, 1 - fraction))]),
            f"At most 15 % of the kernel, and nothing where it does not wait; {PLAYED}.",
            scope=Scope(ScopeKind.KERNEL, each.name),
        )


def _occupancy(evidence: Evidence, shape: KernelTime) -> tuple[float | None, str]:
    """Return the occupancy and what limits it; None where it is not known, or there are too few
    blocks for it to matter."""

    limits = device(evidence)
    if (
        limits is None
        or limits.compute_capability is None
        or min(shape.registers, shape.shared_bytes) < 0
    ):
        return None, ""
    try:
        found = occupancy(
            limits.compute_capability,
            shape.threads,
            shape.registers,
            shape.shared_bytes,
            limits=limits,
        )
    except UsageError:
        return None, ""
    if not found.blocks or shape.blocks < found.blocks * sm_count(evidence):
        return None, ""
    return found.fraction, found.limiters[0] if found.limiters else ""
