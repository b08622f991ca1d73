"""One rank comes late to the collectives, and all others wait for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gpuadvisor.domain.finding import Category, Figure, Scope, ScopeKind
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.facts.account import EntryKind
from gpuadvisor.rules.facts.ranks import LEAST_PART, LEAST_SURPLUS, MATCHED, Ranks, Straggler
from gpuadvisor.rules.requirements import COMMUNICATION, KERNELS, RANKS, Requirement
from gpuadvisor.rules.rule import Estimate, Rule, RuleResult, percent

RULE = Rule(
    Category.COMMUNICATION,
    needs=(KERNELS, COMMUNICATION, RANKS, Requirement(*MATCHED)),
)


def check(evidence: Evidence) -> Iterator[RuleResult]:
    """Find the rank that comes last to the collectives."""
    ranks = evidence.together
    found = None if ranks is None else ranks.straggler
    if ranks is None or found is None or evidence.run_ns <= 0:
        return
    late, name = found.late, ranks.ranks[found.late.place].name
    is_idle = 2 * found.idle_ns >= found.surplus_ns
    yield RuleResult(
        f"{name[:1].upper()}{name[1:]} comes last to {late.last:,} of"
        f" {late.collectives:,} collectives, up to {late.longest_ns / 1e6:,.4g} ms after the first:"
        f" for {found.share:.0%} of the time from the first wait to the last collective's end it is"
        " at its own work longer than any other rank,"
        f" {'most of that with its GPU idle' if is_idle else 'computing'}",
        (
            percent("own_work_beyond_the_next", found.share, LEAST_SURPLUS),
            percent("more_idle_than_the_next", found.idle_ns / found.group.span_ns),
            percent("part_of_all_waiting", late.waited_ns / ranks.waited_ns, LEAST_PART),
            Figure("collectives_last", late.last),
            Figure("latest", round(late.longest_ns / 1e6, 3), "ms"),
        ),
        f"{_advice(name, is_idle)} Compare its profile with another rank's (`gpuadvisor compare`).",
        _saving(found, ranks, evidence),
        "Its own work beyond that of the next rank, spread over all of them; at most what each of"
        " the others only communicates, if its surplus vanished and all that is sent were hidden.",
        Scope(ScopeKind.RANK, name),
    )


def _advice(name: str, is_idle: bool) -> str:
    if is_idle:
        return (
            f"See what the CPU of {name} does before its collectives: a slower loader, logs or"
            " checkpoints that it alone writes, waits for its GPU (`.item()`), fewer cores."
        )
    return (
        f"See why the GPU of {name} computes longer: more work (uneven batches or layers), or"
        " clocks held back by heat, power or another process."
    )


def _saving(found: Straggler, ranks: Ranks, evidence: Evidence) -> Estimate:
    members = len(found.group.places)
    scale = evidence.run_ns / found.group.span_ns
    low = found.surplus_ns * (members - 1) / members
    return Estimate(scale * low, scale * found.most_ns, _parts(found, ranks, evidence))


def _parts(found: Straggler, ranks: Ranks, evidence: Evidence) -> Mapping[str, float]:
    """Return what gets shorter in the profile that the diagnosis is of: the late rank's own work,
    and of another one the time in which it only communicates."""
    rank = ranks.ranks[found.late.place]
    facts = evidence.known_facts
    if not evidence.ranks or evidence.ranks[rank.place] is not facts:
        longest_ns = max(each.exposed_ns for each in ranks.ranks)
        return {"communication/exposed": float(max(longest_ns, found.surplus_ns))}
    kinds = (EntryKind.IDLE, EntryKind.UNEXPLAINED)
    own = {f"idle/{each.part}": float(each.time_ns) for each in facts.account.entries
           if each.kind in kinds}  # fmt: skip
    own.update((f"kernel/{name}", float(ns)) for name, ns in facts.account.kernels_ns.items())
    return own
