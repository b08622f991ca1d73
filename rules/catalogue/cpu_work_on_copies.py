"""The CPU computes with what it copies from the GPU tensor by tensor."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gpuadvisor.domain.finding import Category, Figure
from gpuadvisor.rules.estimates import LEAST_SAVED, idle_parts
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.facts.copied_out import CopiedOut
from gpuadvisor.rules.facts.copies import exposed_ns
from gpuadvisor.rules.facts.idle import AGAIN
from gpuadvisor.rules.facts.intervals import IntArray, both, covered_ns, without
from gpuadvisor.rules.facts.summary import Facts
from gpuadvisor.rules.paces import LEAST_IDLE, MARGIN, paces, span_ns
from gpuadvisor.rules.requirements import COPY_SIZES, LOOP, OPERATORS
from gpuadvisor.rules.rule import Estimate, Rule, RuleResult, percent

LEAST_COMPUTING = 0.2
"""Least share in operators of the CPU, of what the copies of such a round and the host itself take:
else it only copies (`pageable_copies`), or writes files or runs Python (`host_bound`). [own]"""
NAMED = 2
"""Operators that are named, those that take longest. [own]"""

RULE = Rule(Category.COPY, needs=(LOOP, COPY_SIZES, OPERATORS))


def check(evidence: Evidence) -> Iterator[RuleResult]:
    """Find rounds of copies to the host that come again, with operators of the CPU between."""
    facts, player = evidence.known_facts, evidence.known_facts.faster_kernels
    found, run = facts.copied_out, evidence.run_ns
    steps = facts.step_count
    if player is None or facts.timeline is None or not run or not len(found.rows):
        return
    spent = _within(facts, found)
    host = without(found.times, facts.timeline.not_working)
    own = covered_ns(host, found.times.begin_ns, found.times.end_ns)
    own += found.sums(facts.work.duration_ns[found.rows])
    found = found.chosen(spent >= LEAST_COMPUTING * own)
    rounds = len(found.times)
    if rounds < (min(steps, AGAIN) if steps > 1 else AGAIN):
        return
    shares = [player.saved_without_copies(found.rows, found.times, pace) for pace in paces(facts)]
    high = min(MARGIN * max(shares), 1.0)
    if high * run < LEAST_IDLE * span_ns(facts):
        return
    computed_ns = float(_within(facts, found).sum())
    waited_ns = both(found.times, facts.timeline.not_working).total_ns
    exposed = float(exposed_ns(facts.work, found.rows))
    number = facts.work.copies["bytes"][found.rows - facts.work.kernels]
    yield RuleResult(
        f"{len(found.rows) / rounds:,.0f} tensors are copied to the host one by one and computed"
        f" with on the CPU ({_names(facts, found)}), {rounds:,} times in the run: the"
        f" host waits {waited_ns / rounds / 1e6:,.3g} ms for copies and computes for"
        f" {computed_ns / rounds / 1e6:,.3g} ms each time",
        (
            percent("host_in_these_rounds", evidence.share(found.times.total_ns)),
            Figure("copies", len(found.rows)),
            Figure("rounds", rounds),
            Figure("bytes_a_round", round(float(np.maximum(number, 0).sum()) / rounds), "bytes"),
            Figure("waiting_a_round", round(waited_ns / rounds / 1e6, 3), "ms"),
            Figure("computing_a_round", round(computed_ns / rounds / 1e6, 3), "ms"),
        ),
        "Keep on the GPU what is computed with these tensors (averages of weights, say), with"
        " torch._foreach_ operators for all of them at once, and copy it when it is needed; or do"
        " this every so many steps.",
        Estimate(
            LEAST_SAVED * min(shares) * run,
            high * run,
            {"copy/exposed": exposed, **idle_parts(facts, max(high * run - exposed, 0.0))},
        ),
        "At most what the run played again without these copies, the waits for them and what the"
        " host does until it next launches something saves, at the pace of the host without the"
        f" profiler; at least {LEAST_SAVED:.0%} of that at the pace that saves less.",
        work=found.rows,
    )


def _within(facts: Facts, found: CopiedOut) -> IntArray:
    """Return how long operators computed on the CPU in each of the rounds."""
    ran, computing = facts.launching, facts.computing
    begin, end = ran.begin_ns[computing], ran.end_ns[computing]
    place = np.searchsorted(found.times.begin_ns, begin, "right") - 1
    mine = (place >= 0) & (begin < found.times.end_ns[np.maximum(place, 0)])
    spent: IntArray = np.bincount(
        place[mine], (end - begin)[mine], minlength=len(found.times)
    ).astype(np.int64)
    return spent


def _names(facts: Facts, found: CopiedOut) -> str:
    """Return the operators that compute longest, with the time of each in a round."""
    ran, computing = facts.launching, facts.computing
    mine = computing[covered_ns(found.times, ran.begin_ns[computing], ran.end_ns[computing]) > 0]
    spent = np.bincount(ran.name[mine], ran.end_ns[mine] - ran.begin_ns[mine])
    longest = np.argsort(-spent, kind="stable")[:NAMED]
    texts, rounds = facts.profile.header.texts, len(found.times)
    return ", ".join(
        f"{texts[name]} {spent[name] / rounds / 1e6:,.3g} ms"
        for name in longest.tolist()
        if spent[name]
    )
