"""Copies of pinned memory run while no kernel does."""

from __future__ import annotations

from collections.abc import Iterator

from gpuadvisor.domain.finding import Category, Figure
from gpuadvisor.rules.estimates import how_often
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.facts.copies import pinned
from gpuadvisor.rules.paces import span_ns
from gpuadvisor.rules.requirements import COPIES, COPY_SIZES, KERNELS, LAUNCHES, RECURRING
from gpuadvisor.rules.rule import LEAST_REACHED, NOTICEABLE, Estimate, Rule, RuleResult, percent

RULE = Rule(Category.COPY, needs=(KERNELS, LAUNCHES, COPIES, RECURRING, COPY_SIZES))

_LESS = " or copy less: reduce on the GPU first."
_BOTH = "Copy in both directions at once, each on a stream of its own, while kernels run,"
_STAYS = f"{_BOTH} or copy fewer bytes: keep on the GPU what is used there again."
_FROM_GPU = {
    False: (
        "Copy the results of one step on a stream of their own while the next one computes,"
        f"{_LESS}",
        f"Copy results on a stream of their own while the GPU computes what comes next,{_LESS}",
    ),
    True: (_STAYS, _STAYS),
}
"""What to do about copies to the host that no kernel hides, in a program of PyTorch and in others,
by whether much is copied to the GPU as well."""
_TO_GPU = {
    False: (
        "Copy the next batch on a stream of its own while this one computes, or copy fewer bytes:"
        " send 8-bit data and convert on the GPU.",
        "Copy what comes next on a stream of its own while the GPU computes, or copy fewer bytes:"
        " keep on the GPU what is used there again.",
    ),
    True: (_STAYS, _STAYS),
}
"""What to do about copies to the GPU that no kernel hides, in a program of PyTorch and in others,
by whether much is copied to the host as well."""


def check(evidence: Evidence) -> Iterator[RuleResult]:
    """Find copies between the GPU and pinned memory that nothing hides."""
    facts = evidence.known_facts
    copies, run = pinned(facts.work, facts.timeline), evidence.run_ns
    exposed = float(copies.exposed_ns)
    if not run or exposed < NOTICEABLE * span_ns(facts):
        return
    saved = min(exposed, float(copies.hideable_ns))
    step, program = (_FROM_GPU if copies.to_host else _TO_GPU)[copies.both_ways]
    directions = "to the host", "from the host"
    first, second = directions if copies.to_host else directions[::-1]
    mostly = ", mostly" if copies.mixed and not copies.both_ways else ""
    times, severity = how_often(facts, copies, evidence.share(exposed))
    yield RuleResult(
        f"For {evidence.share(exposed):.0%} of the run the GPU only copies{mostly} {first}"
        + (f" and {second}" if copies.both_ways else "")
        + ("" if severity is None else f" ({times})"),
        (
            percent("exposed_copies", evidence.share(exposed), NOTICEABLE),
            Figure("copies", copies.count),
            Figure("bandwidth", round(copies.bytes_per_s / 1e9, 2), "GB/s"),
        ),
        step,
        Estimate(LEAST_REACHED * saved, saved, {"copy/exposed": exposed}),
        "At most all of the time in which copies and no kernel ran, as far as that may lie beside"
        " kernels, or copies in the other direction, that do not lie beside copies yet; at least"
        " half.",
        severity=severity,
        program_advice=program,
        work=copies.rows,
    )
