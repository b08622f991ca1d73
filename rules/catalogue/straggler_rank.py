"""One rank comes late to the collectives, and all others wait for it."""

from __future__ import annotations

from collections.abc import Iterator

from gpuadvisor.domain.finding import Category, Figure, Scope, ScopeKind
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.facts.ranks import MATCHED, Lateness, Ranks
from gpuadvisor.rules.requirements import COMMUNICATION, KERNELS, RANKS, Requirement
from gpuadvisor.rules.rule import Estimate, Rule, RuleResult, percent

LEAST_SHARE = 0.02
"""Least share of the run, that all waited for this rank alone: below, steps differ by as much
anyway. [own]"""
LEAST_PART = 0.6
"""Least share of all the waiting that is for this one rank: gpuprof names a rank that is late in 60
% of steps. With less, the ranks take turns, which is the nature of the data."""
MOST_CHANCE = 0.05
"""Largest chance that some rank is last so often where none is slower than the others."""

RULE = Rule(
    Category.COMMUNICATION,
    needs=(KERNELS, COMMUNICATION, RANKS, Requirement(*MATCHED)),
)


def check(evidence: Evidence) -> Iterator[RuleResult]:
    """Find the rank that comes last to the collectives."""
    ranks = evidence.together
    late = None if ranks is None else straggler(ranks)
    if ranks is None or late is None or evidence.run_ns <= 0:
        return
    # Recordings of ranks begin at different times: the longest one shows most of the step.
    longest_ns = max(each.run_ns for each in ranks.ranks)
    share = late.behind_next_ns / longest_ns
    if share < LEAST_SHARE:
        return
    name = ranks.ranks[late.place].name
    yield RuleResult(
        f"{name[:1].upper()}{name[1:]} comes last to {late.last:,} of"
        f" {late.collectives:,} collectives, up to {late.longest_ns / 1e6:.3g} ms after the first:"
        f" all others wait for it for {share:.0%} of the run",
        (
            percent("behind_the_next", share, LEAST_SHARE),
            percent("part_of_all_waiting", late.waited_ns / ranks.waited_ns, LEAST_PART),
            Figure("collectives_last", late.last),
            Figure("latest", round(late.longest_ns / 1e6, 3), "ms"),
            Figure("behind_the_first", round(late.waited_ns / 1e6, 3), "ms"),
        ),
        f"See what {name} does before its collectives: compare its profile with another"
        " rank's (`gpuadvisor compare`); more work (uneven batches), a slower loader, or a GPU that"
        " is held back by heat, power or another process.",
        _saving(late, ranks, evidence.run_ns / longest_ns),
        "What it is later than the last but one, who then is the last; at least as far as no"
        " computing hides that and if its work goes to all ranks alike.",
        Scope(ScopeKind.RANK, name),
    )


def straggler(ranks: Ranks) -> Lateness | None:
    """Return the rank for which most of the waiting is; None where they may take turns."""
    for late in ranks.late[:1]:
        part = late.waited_ns / max(ranks.waited_ns, 1)
        return late if part >= LEAST_PART and late.chance <= MOST_CHANCE else None
    return None


def _saving(late: Lateness, ranks: Ranks, scale: float) -> Estimate:
    others = [each for place, each in enumerate(ranks.ranks) if place != late.place]
    hidden = sorted(each.exposed_ns / each.communicating_ns for each in others
                    if each.communicating_ns)  # fmt: skip
    exposed = hidden[len(hidden) // 2] if hidden else 1.0
    spread = (len(ranks.ranks) - 1) / len(ranks.ranks)
    high = late.behind_next_ns * scale
    part_ns = max([each.exposed_ns for each in ranks.ranks] + [high])
    return Estimate(high * exposed * spread, high, {"communication/exposed": float(part_ns)})
