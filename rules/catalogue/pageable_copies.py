"""Copies from or to pageable memory are slow, and the host waits for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from gpuadvisor.domain.finding import Category, Figure
from gpuadvisor.rules.estimates import how_often, idle_parts, saved_shares
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.facts.ceilings import LEAST_OF_LINK, pinned_bandwidth
from gpuadvisor.rules.facts.copies import Transfers, exposed_ns, large_pageable
from gpuadvisor.rules.facts.host_waits import Host
from gpuadvisor.rules.facts.summary import Facts
from gpuadvisor.rules.facts.what_if import Scenario
from gpuadvisor.rules.paces import span_ns
from gpuadvisor.rules.requirements import (
    COPIES,
    COPIES_ALONE,
    COPY_SIZES,
    LAUNCHES,
    RECURRING,
    either,
)
from gpuadvisor.rules.rule import MOST, NOTICEABLE, Estimate, Rule, RuleResult, percent

MOST_OF_LINK = 1.05
"""Largest share of the rate that pinned memory usually has. [own]"""
UNKNOWN_LINK_FACTOR = 2.0
"""Pinned over pageable where nothing tells the link: CPUs stage 3 to 12 GB/s, links have 12 to 54.
[own]"""

RULE = Rule(
    Category.COPY,
    needs=(either((LAUNCHES,), (COPIES_ALONE,)), COPIES, RECURRING, COPY_SIZES),
    knobs=("pin_memory",),
)


def check(evidence: Evidence) -> Iterator[RuleResult]:
    """Find exposed copies of pageable memory that are too large to be staged at once."""
    facts = evidence.known_facts
    copies, run = large_pageable(facts.work, facts.timeline), evidence.run_ns
    if not run or not copies.count or copies.exposed_ns < NOTICEABLE * span_ns(facts):
        return
    times, severity = how_often(facts, copies, evidence.share(copies.exposed_ns))
    way = "to and from" if copies.both_ways else "to" if copies.to_host else "from"
    mostly = ", mostly" if copies.mixed and not copies.both_ways else ""
    low, high = _saved(facts, copies)
    yield RuleResult(
        f"For {evidence.share(copies.exposed_ns):.0%} of the run the GPU only copies{mostly}"
        f" {way} pageable memory ({times}, at {copies.bytes_per_s / 1e9:.1f} GB/s)",
        (
            percent("exposed_pageable_copies", evidence.share(copies.exposed_ns), NOTICEABLE),
            Figure("bytes", copies.bytes, "bytes"),
            Figure("bandwidth", round(copies.bytes_per_s / 1e9, 2), "GB/s"),
        ),
        "Copy less: reduce on the GPU first, or copy into pinned memory with non_blocking=True and"
        " synchronise before reading."
        if copies.to_host
        else "Pin the memory (pin_memory=True) and copy with non_blocking=True, so that copies are"
        " faster and the next batch moves while the GPU computes.",
        Estimate(low * run, high * run, _parts(facts, copies, high * run)),
        (
            "At most the run played again without these copies, and without what the host does"
            " outside of operators, as it allocates and frees what it gets"
            if copies.to_host
            else "At most the run played again with these copies hidden behind kernels, as far as"
            " the link allows"
        )
        + "; at least what half the usual rate of pinned memory on such a GPU saves of the"
        " time in which they and no kernel ran.",
        severity=severity,
        knobs=() if copies.to_host else None,
        program_advice="Copy less: reduce on the GPU first, or copy into pinned memory"
        " (cudaMallocHost) with cudaMemcpyAsync and synchronise before reading."
        if copies.to_host
        else "Pin the memory (cudaMallocHost, or cudaHostRegister of what there is) and copy with"
        " cudaMemcpyAsync, so that copies are faster and move while the GPU computes; keep on the"
        " GPU what is used there again.",
        work=copies.rows,
    )


def _parts(facts: Facts, copies: Transfers, most_ns: float) -> Mapping[str, float]:
    """Return the parts of the run that pinned memory shortens: the copies that nothing hides, and
    the time in which the GPU is idle because the host waited in them, and so launches late."""
    return {
        "copy/exposed": float(copies.exposed_ns),
        **idle_parts(facts, max(most_ns - copies.exposed_ns, 0.0)),
    }


def _saved(facts: Facts, copies: Transfers) -> tuple[float, float]:
    """Return the least and the most of the run that pinned memory saves."""
    line, devices = facts.timeline, facts.profile.header.devices
    played = (each for each in devices if line is None or each.index == line.device)
    rate = pinned_bandwidth(facts.work, next(played, None))
    if rate is None:
        rate = UNKNOWN_LINK_FACTOR * copies.bytes_per_s / LEAST_OF_LINK
    slow, fast = (copies.bytes / (share * rate) * 1e9 for share in (LEAST_OF_LINK, MOST_OF_LINK))
    unwaited = {Host.COPYING: 0.0}
    factor = min(slow / copies.time_ns, 1.0)
    if not facts.work.kernels:  # nothing hides them, nor is anything played again
        factor = max(factor, 1 / UNKNOWN_LINK_FACTOR)
        least, most = (1 - factor) * copies.exposed_ns, max(copies.time_ns - fast, 0.0)
        return facts.window.share(least), facts.window.share(max(least, most))
    low, _ = saved_shares(facts, Scenario(unwaited, factor))
    # The host may have to make room for the batch in pinned memory itself.
    low = min(low, facts.window.share((1 - factor) * copies.exposed_ns))
    # What is not copied need not be allocated on the host, nor freed, which is no operator's time.
    # Where the host does more than that between them, it is slow for itself (`host_bound`,
    # `cpu_work_on_copies`).
    stalled = exposed_ns(facts.work, np.intersect1d(copies.rows, facts.stalls.rows))
    computed = facts.launching.end_ns[facts.computing] - facts.launching.begin_ns[facts.computing]
    alone = stalled <= MOST * copies.exposed_ns
    alone &= int(computed.sum()) <= MOST * copies.time_ns
    alone &= copies.to_host
    left_out = {**unwaited, Host.AWAY: 0.0} if alone else unwaited
    _, hidden = saved_shares(facts, Scenario(left_out, 0.0))
    # The link is a limit of its own, unless the copy to the host is left out.
    high = hidden if copies.to_host else min(hidden, 1 - facts.window.share(fast))
    return low, max(low, high)
