"""GPU memory is allocated and freed again and again instead of kept."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gpuadvisor.domain.finding import Category, Figure
from gpuadvisor.rules.estimates import LEAST_SAVED, saved_shares
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.facts.host_waits import Host
from gpuadvisor.rules.facts.idle import AGAIN
from gpuadvisor.rules.facts.intervals import IntArray
from gpuadvisor.rules.facts.launches import ALLOCATING
from gpuadvisor.rules.facts.summary import Facts
from gpuadvisor.rules.facts.what_if import Scenario
from gpuadvisor.rules.paces import MARGIN, loader_sets_pace, paces, span_ns
from gpuadvisor.rules.requirements import KERNELS, LOOP
from gpuadvisor.rules.rule import NOTICEABLE, Estimate, Rule, RuleResult

VARIES = 1.5
"""How much longer the driver takes for these calls in another run of the same program, at most:
calls that took 8.4 ms of a recorded step cost 13.1 ms of one that was timed, on an H200 where other
processes had memory, too. [own]"""

_PINNED = "pinned memory of the CPU"
_KEEP = (
    "Keep memory: leave out torch.cuda.empty_cache(), allocate buffers once, and let segments grow"
    " (expandable_segments) where sizes change."
)
_HARDLY_KEPT = (
    "There are more of these calls than kernels: hardly any memory is kept. PyTorch's allocator"
    " keeps it unless PYTORCH_NO_CUDA_MEMORY_CACHING is set; else a library allocates by itself."
)
"""The variable stands in PyTorch's notes, "CUDA environment variables"."""
_KEEP_IN_PROGRAM = (
    "Keep memory: allocate buffers once and use them again, or take those of the GPU with"
    " cudaMallocAsync from a pool that keeps it (cudaMemPoolAttrReleaseThreshold)."
)
_KEEP_PINNED = "Keep memory: pin buffers once, and use them again."
_WITHOUT = Scenario({Host.ALLOCATING: 0.0})

RULE = Rule(Category.ALLOCATOR, needs=(KERNELS, LOOP), knobs=("allocator",))


def check(evidence: Evidence) -> Iterator[RuleResult]:
    """Find calls that allocate or free in the steady part of the run and hold it up."""
    facts = evidence.known_facts
    calls, late = _calls(facts)
    if not evidence.run_ns or late < AGAIN:
        return
    once = _once_ns(facts, calls) / evidence.run_ns
    low, high = (max(each - once, 0.0) for each in saved_shares(facts, _WITHOUT))
    if (low + high) / 2 * evidence.run_ns < NOTICEABLE * span_ns(facts):
        return
    most = max(_at_most(facts) - VARIES * once, high)
    whose = _whose(facts, calls)
    took = int((facts.host.end_ns[calls] - facts.host.begin_ns[calls]).sum())
    yield RuleResult(
        f"The run allocates or frees {whose} {len(calls):,} times, {late:,} of them"
        f" in its second half, and would be {(low + high) / 2:.0%} shorter without these calls",
        (
            Figure("allocations_and_frees_in_second_half", late, "", AGAIN),
            Figure("time_in_these_calls", round(took / 1e6, 3), "ms"),
            Figure("run_saved_without_them", round(50 * (low + high), 1), "%", 100 * NOTICEABLE),
        ),
        _advice(facts, whose, len(calls)),
        Estimate(
            LEAST_SAVED * low * evidence.run_ns,
            most * evidence.run_ns,
            dict.fromkeys(("idle/allocating", "idle/launching"), most * evidence.run_ns),
        ),
        "The run played again without these calls, and without the host waiting in those that free;"
        " at most what that saves of a run in which the driver takes half as long again for them,"
        f" at least {LEAST_SAVED:.0%} of the lower figure.",
        knobs=() if whose == _PINNED else None,
        program_advice=_KEEP_PINNED if whose == _PINNED else _KEEP_IN_PROGRAM,
        calls=calls,
    )


def _advice(facts: Facts, whose: str, calls: int) -> str:
    """Return what to do in a program of PyTorch, whose allocator asks the driver for more only
    until it has enough."""
    if whose == _PINNED:
        return _KEEP_PINNED
    return f"{_HARDLY_KEPT} {_KEEP}" if calls > facts.work.kernels else _KEEP


def _at_most(facts: Facts) -> float:
    """Return the share of the run that is saved where these calls take longer than here."""
    line = facts.timeline
    if line is None or loader_sets_pace(facts):
        return 0.0
    pace = {Host.WORKING: paces(facts)[1]}
    before = line.takes_ns(Scenario({**pace, Host.ALLOCATING: VARIES}))
    after = line.takes_ns(Scenario({**pace, **_WITHOUT.host}))
    return min(MARGIN * max(1.0 - after / before, 0.0), 1.0) if before > 0 else 0.0


def _once_ns(facts: Facts, calls: IntArray) -> int:
    """Return by how much a few calls are longer than any that comes `AGAIN` times: setting up or
    releasing between two phases, which a longer run has no more of."""
    took = np.sort(facts.host.end_ns[calls] - facts.host.begin_ns[calls])[::-1][:AGAIN]
    return int((took - took[-1]).sum())


def _whose(facts: Facts, calls: IntArray) -> str:
    """Return whose memory the calls handle, by their names: `cudaHostAlloc`, `cuMemFreeHost`."""
    names = (facts.profile.header.texts[each] for each in np.unique(facts.host.name[calls]))
    of_host = {"Host" in each for each in names}
    if len(of_host) > 1:
        return f"memory of the GPU and {_PINNED}"
    return _PINNED if True in of_host else "GPU memory"


def _calls(facts: Facts) -> tuple[IntArray, int]:
    """Return the calls in the run, and how many of them are in its second half."""
    host = facts.host
    chosen = host.of_kinds(ALLOCATING) & (host.begin_ns >= facts.window.begin_ns)
    rows = np.flatnonzero(chosen & (host.begin_ns < facts.window.end_ns))
    middle = (facts.window.begin_ns + facts.window.end_ns) // 2
    return rows, int((host.begin_ns[rows] >= middle).sum())
