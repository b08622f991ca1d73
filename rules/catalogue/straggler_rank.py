"""One rank comes late to the collectives, and all others wait for it."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from gpuadvisor.domain.finding import Category, Figure, Scope, ScopeKind
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.facts.communication import RankSkew, collective_skew
from gpuadvisor.rules.facts.summary import Facts
from gpuadvisor.rules.requirements import COMMUNICATION, KERNELS, RANKS
from gpuadvisor.rules.rule import Estimate, Rule, RuleResult, percent

LEAST_SHARE = 0.02
"""Least share of the run, that all waited for this rank alone: below, steps differ by as much
anyway. [own]"""
LEAST_PART = 0.6
"""Least share of all the waiting that is for this one rank: gpuprof names a rank that is late in 60
% of steps. With less, the ranks take turns, which is the nature of the data."""
LEAST_COLLECTIVES = 10
"""Fewest collectives that are in all traces: a few say nothing about a habit. [own]"""

RULE = Rule(Category.COMMUNICATION, needs=(KERNELS, COMMUNICATION, RANKS))


def check(evidence: Evidence) -> Iterator[RuleResult]:
    """Find the rank with the shortest kernels of collectives: it came last, and waited for none."""
    ranks = evidence.ranks
    found = collective_skew([(facts.profile, facts.work) for facts in ranks])
    if found is None or found.collectives < LEAST_COLLECTIVES or evidence.run_ns <= 0:
        return
    late = found.ranks[0]
    share, part = evidence.share(late.behind_next_ns), late.waited_ns / max(found.waited_ns, 1)
    if share < LEAST_SHARE or part < LEAST_PART:
        return
    number = _number(ranks[late.place], late.place)
    yield RuleResult(
        f"Rank {number} comes last to {late.collectives:,} of {found.collectives:,} collectives:"
        f" all others wait for it for {share:.0%} of the run",
        (
            percent("behind_the_next", share, LEAST_SHARE),
            percent("part_of_all_waiting", part, LEAST_PART),
            Figure("collectives_last", late.collectives),
        ),
        f"See what rank {number} does before its collectives: compare its profile with another"
        " rank's (`gpuadvisor compare`); more work (uneven batches), a slower loader, or a GPU that"
        " is held back by heat, power or another process.",
        _saving(late, ranks),
        "At most what it is later than the typical rank; at least what it is later than the last"
        " but one, as far as no computing hides that and if its work goes to all ranks alike.",
        Scope(ScopeKind.RANK, f"rank {number}"),
    )


def _number(facts: Facts, place: int) -> int:
    rank = facts.profile.header.rank
    return place if rank is None else rank


def _saving(late: RankSkew, ranks: tuple[Facts, ...]) -> Estimate:
    told = [each for facts in ranks for each in facts.communication]
    exposed = median(each.exposed_ns / each.time_ns for each in told if each.time_ns > 0)
    spread = (len(ranks) - 1) / len(ranks)
    high = max(late.behind_typical_ns, late.behind_next_ns)
    part_ns = max([each.exposed_ns for each in told] + [high])
    return Estimate(
        late.behind_next_ns * exposed * spread, high, {"communication/exposed": float(part_ns)}
    )
