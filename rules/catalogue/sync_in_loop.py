"""The host waits for the GPU within the loop, and then the GPU for the host."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gpuadvisor.domain.finding import Category, Figure
from gpuadvisor.domain.profile import UNKNOWN
from gpuadvisor.rules.estimates import idle_ns, idle_parts, saved_shares, span_ns
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.facts.idle_causes import Cause
from gpuadvisor.rules.facts.intervals import IntArray
from gpuadvisor.rules.facts.summary import Facts
from gpuadvisor.rules.facts.what_if import Host, Scenario
from gpuadvisor.rules.requirements import KERNELS, LOOP
from gpuadvisor.rules.rule import Estimate, Rule, RuleResult, percent

LEAST_SHARE = 0.02
"""Least share of the run that goes with the waits. [own, as the catalogue's]"""
FEWEST = 2
"""Waits after which the host launched more: one may be the end of a warm-up. [own]"""
CERTAIN = 0.8
"""Share of what playing the run again saves: some waits are needed, such as one every so many
steps. [own]"""
PLAIN = {
    "aten::_local_scalar_dense": ".item()",
    "aten::item": ".item()",
    "aten::nonzero": "nonzero()",
    "aten::copy_": "a copy to the host",
    "aten::_to_copy": "a copy to the host",
}
"""What a user wrote to get an operator that waits."""

_WITHOUT = Scenario({Host.SYNCHRONIZING: 0.0})

RULE = Rule(Category.SYNC, needs=(KERNELS, LOOP))


@dataclass(frozen=True)
class _Waits:
    what: str
    """The call or operator in which most of their time went, for people."""
    calls: IntArray
    """Rows of its calls."""
    count: int
    """Number of all waits."""
    waited_ns: int


def check(evidence: Evidence) -> Iterator[RuleResult]:
    """Find waits that keep the host from launching ahead."""
    facts = evidence.known_facts
    waits = _waits(facts)
    if waits is None or not evidence.run_ns:
        return
    # What the host does for long after a wait is `host_bound`'s: it may need what it waited for.
    most = idle_ns(facts, Cause.SYNCHRONIZING, Cause.LAUNCHING) / evidence.run_ns
    low, high = (min(share, most) for share in saved_shares(facts, _WITHOUT))
    if (low + high) / 2 * evidence.run_ns < LEAST_SHARE * span_ns(facts):
        return
    yield RuleResult(
        f"The host waits for the GPU {waits.count:,} times in the run, mostly in {waits.what}, and"
        " cannot launch ahead",
        (
            Figure("waits_for_the_gpu", waits.count, "", FEWEST),
            Figure("mostly_in", waits.what),
            percent("host_waiting", evidence.share(waits.waited_ns)),
            Figure("run_saved_without_waits", round(50 * (low + high), 1), "%", 100 * LEAST_SHARE),
        ),
        "Fetch values from the GPU every so many steps only, or after the step's work is launched;"
        " leave out calls that only synchronise.",
        Estimate(
            CERTAIN * low * evidence.run_ns,
            high * evidence.run_ns,
            idle_parts(facts, high * evidence.run_ns),
        ),
        "At most what the run played again without these waits saves, the host at the pace that it"
        " may have without the profiler, and no more than the GPU's idle time that the waits"
        " began or in which the host launched; at least four fifths of that at the pace that saves"
        " less.",
        calls=waits.calls,
    )


def _waits(facts: Facts) -> _Waits | None:
    """Return the waits after which more was launched."""
    line = facts.timeline
    if line is None:
        return None
    later = np.flatnonzero(
        (line.wait_kind == Host.SYNCHRONIZING)
        & (np.arange(len(line.wait_kind)) < line.waits_before.max(initial=0))
    )
    if len(later) < FEWEST:
        return None
    calls = line.wait_call[later]
    names = [_named(facts, call) for call in calls.tolist()]
    host = facts.host
    lasted = host.end_ns[calls] - host.begin_ns[calls]
    waited: Counter[str] = Counter()
    for name, time_ns in zip(names, lasted.tolist(), strict=True):
        waited[name] += time_ns
    what = waited.most_common(1)[0][0]
    return _Waits(
        what,
        calls[[name == what for name in names]],
        len(calls),
        int(lasted.sum()),
    )


def _named(facts: Facts, call: int) -> str:
    """Return the operator that waited, in the user's words if possible, else the call."""
    texts = facts.profile.header.texts
    operator = int(facts.launching.of_call[call]) if len(facts.launching.of_call) else UNKNOWN
    if operator == UNKNOWN:
        return str(texts[facts.host.name[call]])
    name = str(texts[facts.launching.name[operator]])
    return f"{PLAIN[name]} ({name})" if name in PLAIN else name
