"""Copies of pinned memory run while no kernel does."""

from __future__ import annotations

from collections.abc import Iterator

from gpuadvisor.domain.finding import Category, Figure
from gpuadvisor.rules.estimates import span_ns
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.facts.copies import pinned
from gpuadvisor.rules.requirements import COPIES, COPY_SIZES, KERNELS, LAUNCHES, RECURRING
from gpuadvisor.rules.rule import LEAST_REACHED, NOTICEABLE, Estimate, Rule, RuleResult, percent

RULE = Rule(Category.COPY, needs=(KERNELS, LAUNCHES, COPIES, RECURRING, COPY_SIZES))


def check(evidence: Evidence) -> Iterator[RuleResult]:
    """Find copies between the GPU and pinned memory that nothing hides."""
    facts = evidence.known_facts
    copies, run = pinned(facts.work, facts.timeline), evidence.run_ns
    computing = sum(each.compute_ns for each in facts.busy) / max(len(facts.busy), 1)
    exposed = float(copies.exposed_ns)
    if not run or exposed < NOTICEABLE * span_ns(facts):
        return
    hidden = min(exposed, computing)
    direction = "to the host" if copies.to_host else "from the host"
    yield RuleResult(
        f"For {evidence.share(exposed):.0%} of the run the GPU only copies {direction}",
        (
            percent("exposed_copies", evidence.share(exposed), NOTICEABLE),
            Figure("copies", copies.count),
            Figure("bandwidth", round(copies.bytes_per_s / 1e9, 2), "GB/s"),
        ),
        "Copy the results of one step on a stream of their own while the next one computes, or"
        " copy less: reduce on the GPU first."
        if copies.to_host
        else "Copy the next batch on a stream of its own while this one computes, or copy fewer"
        " bytes: send 8-bit data and convert on the GPU.",
        Estimate(LEAST_REACHED * hidden, hidden, {"copy/exposed": exposed}),
        "At most all of the time in which copies and no kernel ran, as far as there are kernels to"
        " hide it; at least half.",
        program_advice="Copy results on a stream of their own while the GPU computes what comes"
        " next, or copy less: reduce on the GPU first."
        if copies.to_host
        else "Copy what comes next on a stream of its own while the GPU computes, or copy fewer"
        " bytes: keep on the GPU what is used there again.",
        work=copies.rows,
    )
