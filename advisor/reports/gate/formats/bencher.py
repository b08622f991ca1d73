"""Bencher Metric Format: the head's median with its lowest and highest run, for a history.

Step time is Bencher's own measure `latency`, in nanoseconds; others are called as in `--json`.
Format: Bencher, Bencher Metric Format (BMF), for `bencher run --adapter json`.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from gpuadvisor.reports import strict_json
from gpuadvisor.reports.gate.outcome import Outcome, plain
from gpuadvisor.reports.gate.quantities import values

FILE = "gpuadvisor-gate.bencher.json"
NS_PER_S = 1e9
MOST_LETTERS = 1000
"""Letters of a benchmark's name that are kept; Bencher takes 1,024 bytes."""


def render(outcomes: Sequence[Outcome]) -> str:
    """Return the document; without benchmarks where nothing was compared."""
    measured = {
        plain(each.name)[:MOST_LETTERS] or "gate": found
        for each in outcomes
        if (found := _measures(each))
    }
    return strict_json.text(measured) + "\n"


def _measures(outcome: Outcome) -> dict[str, dict[str, float]]:
    found = {}
    for each in outcome.found.differences if outcome.found else ():
        if not (known := values(each, "head")):
            continue
        is_time = each.metric == "step_time"
        key, factor = ("latency", NS_PER_S) if is_time else (each.metric.replace("_", "-"), 1.0)
        ends = {"value": median(known), "lower_value": min(known), "upper_value": max(known)}
        found[key] = {name: value * factor for name, value in ends.items()}
    return found
