"""The GPU, or its kernels, wait for pages of managed memory."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import numpy as np

from gpuadvisor.domain.finding import Category, Figure
from gpuadvisor.domain.severity import Severity
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.facts.ceilings import LEAST_OF_LINK, pinned_bandwidth
from gpuadvisor.rules.facts.failures import all_launches_failed
from gpuadvisor.rules.facts.kernels import limits_of
from gpuadvisor.rules.facts.migrations import WHOLE_BYTES, Migrations, migrations
from gpuadvisor.rules.facts.summary import Facts
from gpuadvisor.rules.requirements import COPIES, COPY_SIZES
from gpuadvisor.rules.rule import NOTICEABLE, SERIOUS, Estimate, Rule, RuleResult, percent

CRITICAL = 0.25
"""Share of the run, in the middle of the estimate, from which on a finding is critical; as in the
engine."""

_PREFETCHES = re.compile("MemPrefetch")

RULE = Rule(Category.COPY, needs=(COPIES, COPY_SIZES))


def check(evidence: Evidence) -> Iterator[RuleResult]:
    """Find runs that wait for managed memory, on the device that waits longest."""
    facts, run = evidence.known_facts, evidence.run_ns
    if not facts.has_timeline or all_launches_failed(facts):
        return  # pages that move for kernels that never ran say nothing of those that will
    found = migrations(facts.work, facts.idle)
    most = max(found, key=lambda each: each.exposed_ns + each.inside_ns, default=None)
    if most is None or not run or most.exposed_ns + most.inside_ns < NOTICEABLE * run:
        return
    exposed, inside = evidence.share(most.exposed_ns), evidence.share(most.inside_ns)
    back_rate = _prefetched_back(facts, most)
    alone = f"for {exposed:.0%} of the run the GPU only waits for pages of managed memory"
    if back_rate is not None and 2 * most.back_ns > most.exposed_ns:
        alone = (
            f"for {exposed:.0%} of the run pages of managed memory move, or are about to, and no"
            " kernel runs; most go to the host, which the program prefetches, at"
            f" {back_rate / 1e9:.1f} GB/s"
        )
    within = f"for {inside:.0%} kernels run while pages of managed memory move"
    told = [words for words, share in ((alone, exposed), (within, inside)) if share >= NOTICEABLE]
    summary = ", and ".join(told or [alone])
    others = []
    if (host := evidence.share(most.host_ns)) >= NOTICEABLE:
        others.append(f"for {host:.0%} more the host does something else between two pages")
    if (kernels := evidence.share(most.kernels_ns)) < NOTICEABLE:
        others.append(f"all kernels together take {most.kernels_ns / 1e6:.3g} ms, {kernels:.1%}")
    low, high = _saved(facts, most)
    # Where a fault ends and the host's own work begins is not told, so that much may be the latter.
    counted = (low + high) / 2 / run
    sure = low >= NOTICEABLE * run or counted < CRITICAL
    unseen = float(most.unseen_ns) if most.unseen_ns >= NOTICEABLE * run else 0.0
    severity = None if sure else Severity.WARNING
    if unseen and counted < SERIOUS:  # what may be in it is no reason to call it more than that
        severity = Severity.INFO if counted < NOTICEABLE else Severity.NOTICE
    yield RuleResult(
        "; ".join([f"{summary[:1].upper()}{summary[1:]} ({len(most.rows):,} migrations)", *others]),
        (
            percent("waiting_for_pages", exposed, NOTICEABLE),
            percent("pages_move_in_kernels", inside, NOTICEABLE),
            percent("host_between_pages", host),
            percent("kernels", kernels),
            Figure("bytes_to_the_gpu", most.bytes_to_gpu, "bytes"),
            Figure("bytes_to_the_gpu_in_kernels", most.bytes_asked_in_kernels, "bytes"),
            Figure("bytes_back", most.bytes_back, "bytes"),
        ),
        _advice(most, back_rate is not None),
        Estimate(low, high + unseen, _parts(most)),
        "At most the time in which pages move or the GPU waits for them, 50 us a gap, and that of"
        " kernels while pages move or move again within 50 us, less what the same bytes take from"
        " pinned memory"
        + (
            ", and all the rest of the time of kernels in which they move: faults that move"
            " nothing, as where nobody touched a page before, are in no recording"
            if unseen
            else ""
        )
        + ". At least the time in which pages moved, less these bytes at half that rate.",
        severity=severity,
    )


def _prefetched_back(facts: Facts, moved: Migrations) -> float | None:
    """Return at which rate pages move to the host, in bytes a second, where the program prefetches
    and they come in pieces so large as only a prefetch moves; None else."""
    host = facts.host
    names = (facts.profile.header.texts[name] for name in np.unique(host.name).tolist())
    if not moved.back_ns or not any(_PREFETCHES.search(name) for name in names):
        return None
    if moved.bytes_back < WHOLE_BYTES * len(moved.rows):
        return None
    return 1e9 * moved.bytes_back / moved.back_ns


def _advice(moved: Migrations, prefetched_back: bool) -> str:
    """Return what to move beforehand: what already is, is no longer advised."""
    asked, back = moved.bytes_asked_in_kernels, moved.bytes_back
    steps = []
    if prefetched_back:
        back = 0
    if asked:
        steps.append("cudaMemPrefetchAsync to the GPU after the host last wrote them")
    if back:
        steps.append("cudaMemPrefetchAsync to the host (cudaCpuDeviceId) before it reads them")
    if not steps and prefetched_back:
        return (
            "They are prefetched already: bring back less, or in a stream of its own while other"
            " kernels run, each part as soon as it is done; keep on the GPU what is used there"
            " again."
        )
    if not steps:
        return (
            "Pages are moved to the GPU before kernels touch them: prefetch them in a stream of its"
            " own while other kernels run, or keep on the GPU what is used again."
        )
    before = "" if asked else "To the GPU they are moved before kernels touch them already. "
    return (
        f"{before}Move whole arrays before they are needed: {', and '.join(steps)}; or allocate"
        " with cudaMalloc and copy. Touching a page moves it, so what both use in turn moves each"
        " time."
    )


def _saved(facts: Facts, moved: Migrations) -> tuple[float, float]:
    """Return the least and the most time that is saved if whole arrays move beforehand."""
    most = float(moved.exposed_ns + moved.inside_ns)
    rate = pinned_bandwidth(facts.work, limits_of(facts.profile, moved.device))
    if rate is None:
        return 0.0, most
    copied_ns = 1e9 * moved.bytes / rate
    high = max(most - copied_ns, 0.0)
    return min(max(moved.moving_ns - copied_ns / LEAST_OF_LINK, 0.0), high), high


def _parts(moved: Migrations) -> Mapping[str, float]:
    """Return the parts of the run that it shortens."""
    parts = {"idle/migrating": moved.waiting_ns, "copy/exposed": moved.alone_ns}
    parts |= {f"kernel/{name}": time_ns for name, time_ns in moved.in_kernels_ns.items()}
    return {name: float(time_ns) for name, time_ns in parts.items() if time_ns}
