"""The GPU communicates and computes nothing meanwhile."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from gpuadvisor.domain.finding import Category, Figure
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.facts.backward import is_backward
from gpuadvisor.rules.facts.communication import collective_calls
from gpuadvisor.rules.facts.summary import Facts
from gpuadvisor.rules.paces import LEAST_IDLE
from gpuadvisor.rules.requirements import COMMUNICATION, KERNELS
from gpuadvisor.rules.rule import Estimate, Rule, RuleResult, percent

_SENDS = re.compile("send|recv|alltoall")
"""Kinds of collectives in which no gradients of data-parallel training travel."""

RULE = Rule(Category.COMMUNICATION, needs=(KERNELS, COMMUNICATION), knobs=("batch_size",))


def check(evidence: Evidence) -> Iterator[RuleResult]:
    """Find communication beside which no compute kernel ran, on the device that has most of it."""
    facts = evidence.known_facts
    most = max(facts.communication, key=lambda each: each.exposed_ns, default=None)
    if most is None:
        return
    waiting_ns = _waiting_ns(evidence, most.device)
    exposed_ns = most.exposed_ns - (waiting_ns or 0)
    share = evidence.share(exposed_ns)
    if share < LEAST_IDLE:
        return
    compute_ns = next(each.compute_ns for each in facts.busy if each.device == most.device)
    alone_ns = max(compute_ns - (most.time_ns - most.exposed_ns), 0)
    calls = sum(each.count for each in most.collectives)
    mean_ns = sum(each.time_ns for each in most.collectives) / max(calls, 1)
    hidden_ns = min(exposed_ns, alone_ns)
    besides = "" if waiting_ns is None else ", without what it waits for ranks that come later"
    reduces = _reduces(facts, most.device)
    names = ", ".join(sorted({each.name for each in most.collectives if each.name})[:3])
    what = "collectives" if reduces else "exchanges between GPUs"
    yield RuleResult(
        f"For {share:.0%} of the run the GPU communicates and computes nothing{besides}:"
        f" {calls:,} {what}{f' ({names})' if names else ''} are not hidden behind compute",
        (
            percent("exposed_communication", share, LEAST_IDLE),
            Figure("communication", round(most.time_ns / 1e6, 3), "ms"),
            Figure("mean_collective", round(mean_ns / 1e3, 1), "us"),
            Figure("compute_that_could_hide_it", round(alone_ns / 1e6, 3), "ms"),
        ),
        _advice(reduces),
        Estimate(
            0.0,
            (exposed_ns + hidden_ns) / 2,
            {"communication/exposed": most.exposed_ns},
        ),
        "The communication that there is compute to hide behind, and half of the rest, if its bytes"
        " are halved; nothing where it is waiting for a rank that comes late. Less often"
        " synchronizing can save more.",
        knobs=None if reduces else (),
    )


def _waiting_ns(evidence: Evidence, device: int) -> int | None:
    """Return how long the device waited for ranks that came later, of its exposed communication;
    None where it is not known, or another rank may have come later still."""
    together = evidence.together
    if together is None or together.unmatched is not None:
        return None
    place = next((at for at, each in enumerate(evidence.ranks) if each is evidence.facts), 0)
    own = (each for each in together.ranks if (each.place, each.device) == (place, device))
    return next((each.waiting_ns for each in own), None)


def _reduces(facts: Facts, device: int) -> bool:
    """Tell whether what takes most of the time of communication may be gradients or parameters that
    data-parallel training reduces or gathers: not in a recording of operators without a backward
    pass, and not what ranks send to each other."""
    if facts.profile.rows("operators") and not is_backward(facts.profile).any():
        return False
    calls = collective_calls(facts.profile, facts.work, device)
    lasted = facts.work.duration_ns[calls.rows]
    sends = np.array([bool(_SENDS.search(kind)) for kind in calls.kinds], np.bool_)
    return 2 * int(lasted[sends].sum()) < int(lasted.sum())


def _advice(reduces: bool) -> str:
    if not reduces:
        return (
            "Start them as soon as their data are there, on a stream of their own, and compute"
            " meanwhile what does not need them (the next chunk, or another half of the batch);"
            " send less: values of 16 bits, or a split of the work over the GPUs that exchanges"
            " less. Combine small ones into few large ones."
        )
    return (
        "Start them while the backward pass goes on (DDP and FSDP do so; FSDP also prefetches);"
        " combine small ones into few large ones (DDP's `bucket_cap_mb`, flattened tensors);"
        " synchronize less often by accumulating gradients (`no_sync`), or with a larger batch"
        " on each GPU; halve the bytes with a bf16 communication hook. That holds for gradients;"
        " what a split model exchanges overlaps with what does not need it."
    )
