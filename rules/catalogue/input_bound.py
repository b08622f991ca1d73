"""The GPU waits for the input pipeline."""

from __future__ import annotations

from collections.abc import Iterator

from gpuadvisor.analysis.idle import Cause
from gpuadvisor.domain.finding import Category, Figure
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.needs import IDLE, RANGES, SCRIPT, either
from gpuadvisor.rules.rule import Claim, Rule, Saving

LEAST_SHARE = 0.02
"""Of the run: below, nothing that one does to the loader can be told from noise. [own]"""
SHARE_LEFT = 0.5
"""Of the waiting that may stay, as the loader becomes only as fast as its cores let it: of
ResNet-50 on a V100 with 4 workers instead of none, 41 % stayed. [own]"""

ADVICE = "Load batches in more worker processes, or make loading a sample cheaper."

RULE = Rule(
    Category.INPUT_BOUND,
    needs=(either((IDLE, RANGES), (SCRIPT,)),),
    knobs=("dataloader_workers", "pin_memory", "prefetch_factor", "persistent_workers"),
    hides=("launch_bound", "sync", "batch_size"),
)


def check(evidence: Evidence) -> Iterator[Claim]:
    """Find idle time in which the launching thread was in a DataLoader's `__next__`."""
    profiled = not any(need.missing(evidence) for need in (IDLE, RANGES))
    yield from _in_profile(evidence) if profiled else _in_script(evidence)


def _in_profile(evidence: Evidence) -> Iterator[Claim]:
    facts = evidence.facts
    assert facts is not None  # IDLE
    waiting = max((each.causes_ns[Cause.WAITING_FOR_DATA] for each in facts.idle_in_run), default=0)
    share = waiting / evidence.run_ns if evidence.run_ns else 0.0
    if share < LEAST_SHARE:
        return
    yield Claim(
        f"The GPU is idle for {share:.0%} of the run because the script waits for its next batch",
        (Figure("gpu_idle_waiting_for_data", round(100 * share, 1), "%", 100 * LEAST_SHARE),),
        ADVICE,
        Saving.of_part("idle/waiting_for_data", waiting, SHARE_LEFT, 1.0),
        "At most all of the time in which the GPU was idle while the script waited for a batch;"
        " at least half of it, as workers need cores.",
    )


def _in_script(evidence: Evidence) -> Iterator[Claim]:
    """The harness knows how long the script waited, but not what the GPU did meanwhile."""
    measured = evidence.measured
    assert measured is not None  # SCRIPT
    share = measured.data_wait_share
    if not measured.facts.loaders or share < LEAST_SHARE:
        return
    workers = measured.facts.loaders[0].num_workers
    yield Claim(
        f"{share:.0%} of the time goes into waiting for batches"
        f" from a DataLoader with {workers} worker{'' if workers == 1 else 's'}",
        (Figure("data_wait", round(100 * share, 1), "%", 100 * LEAST_SHARE),),
        ADVICE,
        Saving(0.0, share * 1e9 * measured.seconds, {}, 1e9 * measured.seconds),
        "At most all of the waiting; nothing where the GPU works meanwhile.",
    )
