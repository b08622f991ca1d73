"""Many small values are copied to the GPU one by one."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gpuadvisor.domain.finding import Category, Figure
from gpuadvisor.domain.profile import UNKNOWN
from gpuadvisor.rules.estimates import idle_parts
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.facts.copies import Transfers, small_to_device
from gpuadvisor.rules.facts.idle import AGAIN
from gpuadvisor.rules.facts.intervals import IntArray, Intervals, uncovered_ns, union
from gpuadvisor.rules.facts.summary import Facts
from gpuadvisor.rules.paces import paces, span_ns
from gpuadvisor.rules.requirements import COPIES, COPY_SIZES, IDLE, KERNELS
from gpuadvisor.rules.rule import LEAST_REACHED, NOTICEABLE, Estimate, Rule, RuleResult, percent

FEWEST = 50
"""Copies in the run: fewer are batches and their labels. [own]"""

RULE = Rule(Category.COPY, needs=(KERNELS, IDLE, COPIES, COPY_SIZES))


def check(evidence: Evidence) -> Iterator[RuleResult]:
    """Find small copies to the GPU whose calls leave it idle."""
    facts = evidence.known_facts
    copies, run = small_to_device(facts.work, facts.timeline), evidence.run_ns
    if not run or copies.count < FEWEST:
        return
    times = _times(facts, copies)
    others = facts.work.intervals(np.setdiff1d(np.arange(len(facts.work)), copies.rows))
    idle = float(uncovered_ns(times, others))
    if idle < NOTICEABLE * span_ns(facts):
        return
    exposed = float(copies.exposed_ns)
    shortened = {"copy/exposed": exposed, **idle_parts(facts, max(idle - exposed, 0.0))}
    yield RuleResult(
        f"{copies.count:,} copies of {copies.bytes / copies.count:,.0f} bytes each to the GPU cost"
        f" {evidence.share(idle):.0%} of the run",
        (
            percent("idle_in_small_copies", evidence.share(idle), NOTICEABLE),
            Figure("copies", copies.count, "", FEWEST),
        ),
        "Make tensors on the GPU (device='cuda'), or gather small values into one tensor and copy"
        " that once.",
        Estimate(*_saved_ns(facts, times, idle), shortened),
        "At most all of the time in which these copies or the calls that make them ran and nothing"
        " else did on the GPU; at least half of what the run played again without them saves, the"
        " host at the pace that it may have without the profiler.",
        program_advice="Make the data on the GPU, or gather small values into one buffer and copy"
        " that once.",
        work=copies.rows,
    )


def _saved_ns(facts: Facts, times: Intervals, idle: float) -> tuple[float, float]:
    """Return the least and the most of the idle time that is saved without these times: a host
    that is faster without the profiler hides some of it."""
    player = facts.faster_kernels
    if player is None:
        return 0.0, idle
    least = min(player.saved_without(times, pace) for pace in paces(facts)) * facts.window.run_ns
    return LEAST_REACHED * min(least, idle), idle


def _times(facts: Facts, copies: Transfers) -> Intervals:
    """Return when such a copy, its call or its operator ran, or the host went from one of them to
    the next."""
    work, launched, ran = facts.work, facts.launched, facts.launching
    rows = copies.rows[launched.known[copies.rows]]
    owner = ran.of_work[rows]
    owner = owner[owner != UNKNOWN]
    begin, stop = work.begin_ns[copies.rows], work.end_ns[copies.rows]
    between = _follows(facts, copies)
    return union(
        np.concatenate((begin, launched.begin_ns[rows], ran.begin_ns[owner], between[0])),
        np.concatenate((stop, launched.end_ns[rows], ran.end_ns[owner], between[1])),
    )


def _follows(facts: Facts, copies: Transfers) -> tuple[IntArray, IntArray]:
    """Return begins and ends of the time between two such copies with nothing else between.

    By how much a pause is longer than the third longest (`AGAIN`), that is something else which
    came once or twice: the program's own computing between two rounds of copies, and not them.
    """
    line, work = facts.timeline, facts.work
    if line is None:
        return copies.rows[:0], copies.rows[:0]
    small = np.isin(line.rows, copies.rows)
    second = np.flatnonzero(small[1:] & small[:-1]) + 1
    begin, end = work.end_ns[line.rows[second - 1]], work.begin_ns[line.rows[second]]
    usual = np.sort(end - begin)[-AGAIN:][:1]
    return begin, np.minimum(end, begin + usual) if len(usual) else end
