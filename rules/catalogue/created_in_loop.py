"""Streams, events or contexts are created and destroyed again and again instead of kept."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

import numpy as np

from gpuadvisor.domain.finding import Category, Figure
from gpuadvisor.rules.estimates import LEAST_SAVED
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.facts.idle import AGAIN
from gpuadvisor.rules.facts.intervals import IntArray, both, covered_ns, union
from gpuadvisor.rules.facts.summary import Facts
from gpuadvisor.rules.paces import LEAST_IDLE, paces
from gpuadvisor.rules.requirements import KERNELS, LOOP
from gpuadvisor.rules.rule import Estimate, Rule, RuleResult, percent

_MAKES = re.compile(r"(?:cuda|hip|cu)(Stream|Event|Ctx)(?:Create|Destroy)")
_WORDS = {"Stream": "streams", "Event": "events", "Ctx": "contexts"}

RULE = Rule(Category.LAUNCH_BOUND, needs=(KERNELS, LOOP))


def check(evidence: Evidence) -> Iterator[RuleResult]:
    """Find idle time in which the host created or destroyed what could be kept."""
    facts, found = evidence.known_facts, evidence.known_facts.host_idle
    calls, whose = _calls(facts)
    if not len(calls):
        return
    host, idle = facts.host, found.other_times
    times = both(idle, union(host.begin_ns[calls], host.end_ns[calls]))
    share = evidence.share(times.total_ns)
    rounds = int((covered_ns(times, idle.begin_ns, idle.end_ns) > 0).sum())
    if share < LEAST_IDLE or rounds < AGAIN:
        return
    player = facts.faster_kernels
    saved = [share] if player is None else [player.saved_without(times, p) for p in paces(facts)]
    most_ns = max(times.total_ns, max(saved) * evidence.run_ns)
    yield RuleResult(
        f"The GPU is idle for {share:.0%} of the run while the program creates or destroys"
        f" {whose}, {len(calls):,} times in the run",
        (
            percent("gpu_idle_creating", share, LEAST_IDLE),
            Figure("calls", len(calls)),
            Figure("idle_times_with_these_calls", rounds, "", AGAIN),
        ),
        f"Create {whose} once, before the loop, and use them again.",
        Estimate(
            LEAST_SAVED * min(saved) * evidence.run_ns,
            most_ns,
            dict.fromkeys(("idle/other_host", "idle/starting"), most_ns),
        ),
        "At most this idle time, or what the run played again without it saves at the pace of the"
        f" host without the profiler; at least {LEAST_SAVED:.0%} of what it saves at the slower"
        " pace.",
        calls=calls,
    )


def _calls(facts: Facts) -> tuple[IntArray, str]:
    """Return the rows of these calls in the run, and what those that take longest make."""
    host, texts = facts.host, facts.profile.header.texts
    kinds = {name: _MAKES.match(texts[name]) for name in np.unique(host.name).tolist()}
    of_kind = {name: kind[1] for name, kind in kinds.items() if kind}
    inside = (host.begin_ns >= facts.window.begin_ns) & (host.begin_ns < facts.window.end_ns)
    rows = np.flatnonzero(inside & np.isin(host.name, list(of_kind)))
    took: Counter[str] = Counter()
    for name, kind in of_kind.items():
        mine = rows[host.name[rows] == name]
        took[kind] += int((host.end_ns[mine] - host.begin_ns[mine]).sum())
    return rows, _WORDS[took.most_common(1)[0][0]] if took else ""
