"""A metrics report of GitLab in OpenMetrics text, which merge requests compare with their target.

GitLab splits a line like a shell and cuts it at `#`: values of labels hold neither quotes nor
spaces here.
Format: OpenMetrics 1.0; GitLab, Metrics reports.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from statistics import median

from gpuadvisor.domain.gate import Metric
from gpuadvisor.reports.gate.outcome import Outcome
from gpuadvisor.reports.gate.quantities import QUANTITIES, values

FILE = "gpuadvisor-gate.metrics.txt"
_SIDES = ("base", "head")


def render(outcomes: Sequence[Outcome]) -> str:
    """Return the medians of both versions; where nothing was compared, only the end of the file."""
    named = _named(outcomes)
    lines = [line for metric in QUANTITIES for line in _family(metric, named)]
    return "\n".join([*lines, "# EOF"]) + "\n"


def _family(metric: Metric, outcomes: dict[str, Outcome]) -> Iterator[str]:
    """Yield what is known of one metric, of all benchmarks."""
    quantity = QUANTITIES[metric]
    name = "_".join(filter(None, ("gpuadvisor_gate", str(metric), quantity.unit)))
    samples = [
        f'{name}{{benchmark="{benchmark}",side="{side}"}} {median(known):.10g}'
        for benchmark, outcome in outcomes.items()
        for side in _SIDES
        if outcome.found and (known := values(outcome.found, metric, side))
    ]
    if samples:
        yield f"# TYPE {name} gauge"
        if quantity.unit:
            yield f"# UNIT {name} {quantity.unit}"
        yield f"# HELP {name} {quantity.title}, median of the runs that were compared"
        yield from samples


def _named(outcomes: Sequence[Outcome]) -> dict[str, Outcome]:
    """Return the outcomes by the value of their label; no two have the same."""
    found: dict[str, Outcome] = {}
    for each in outcomes:
        name = label = re.sub(r"[^A-Za-z0-9_./:+-]+", "_", each.name)
        while label in found:
            label = f"{name}_{len(found) + 1}" if label == name else f"{label}_"
        found[label] = each
    return found
