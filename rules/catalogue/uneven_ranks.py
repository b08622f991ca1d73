"""The ranks come to their collectives at different times, now one last and now another."""

from __future__ import annotations

from collections.abc import Iterator

from gpuadvisor.domain.finding import Category
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.facts.ranks import MATCHED
from gpuadvisor.rules.paces import LEAST_IDLE
from gpuadvisor.rules.requirements import COMMUNICATION, KERNELS, RANKS, Requirement
from gpuadvisor.rules.rule import MOST, Estimate, Rule, RuleResult, percent

ADVICE = (
    "Give all ranks alike work: batches of equal length (sort or pack sequences), tables and"
    " layers of equal cost; or synchronize less often by accumulating gradients (`no_sync`),"
    " over which differences even out."
)
IDLE_ADVICE = (
    "It is mostly idle time of their GPUs that sets the late ranks apart: see what holds up the CPU"
    " of those that come last, such as more to launch, fewer or shared cores, a slower loader, or"
    " logs and checkpoints that they alone write."
)

RULE = Rule(
    Category.COMMUNICATION,
    needs=(KERNELS, COMMUNICATION, RANKS, Requirement(*MATCHED)),
    knobs=("batch_size",),
)


def check(evidence: Evidence) -> Iterator[RuleResult]:
    """Find that the ranks wait for each other, whoever comes last."""
    ranks = evidence.together
    if ranks is None or not ranks.late or not ranks.own_work:
        return
    alone = ranks.straggler
    if alone is not None and alone.surplus_ns >= MOST * alone.group.beyond_mean_ns:
        return  # `straggler_rank` says for whom they wait
    told = [each for each in ranks.ranks if each.waiting_ns is not None]
    waiting = [each.share(each.waiting_ns or 0) for each in told]
    mean = sum(waiting) / len(waiting) if waiting else 0.0
    if mean < LEAST_IDLE:
        return
    transfer = sum(each.share(each.transferring_ns or 0) for each in told) / len(told)
    group = ranks.own_work[0]
    scale = evidence.run_ns / group.span_ns
    low, high = sorted((scale * group.beyond_mean_ns, scale * group.beyond_next_ns))
    late = ranks.late[0]
    name = ranks.ranks[late.place].name
    is_idle = group.idle_beyond_mean_ns >= MOST * group.beyond_mean_ns
    yield RuleResult(
        f"The ranks wait for each other for {mean:.0%} of the run ({min(waiting):.0%} to"
        f" {max(waiting):.0%}), in {ranks.collectives:,} collectives to which they come at"
        f" different times ({name} last to {late.last:,} of {late.collectives:,}, up to"
        f" {late.longest_ns / 1e6:.3g} ms after the first); what is sent takes {transfer:.0%}",
        (
            percent("waiting_for_the_last", mean, LEAST_IDLE),
            percent("transfer", transfer),
            percent("most_work_beyond_the_mean", group.beyond_mean_ns / group.span_ns),
        ),
        f"{IDLE_ADVICE if is_idle else ADVICE} Faster links and fewer bytes change nothing here.",
        Estimate(low, high, {"communication/exposed": high}),
        "Between two collectives, the own work of the rank that has most of it beyond the mean of"
        " the ranks (saved if work were spread evenly), and beyond the next one (if nobody had a"
        " surplus alone); no more than the exposed communication.",
        knobs=() if is_idle else None,
    )
