"""A metrics report of GitLab in OpenMetrics text, which merge requests compare with their target.

GitLab splits a line like a shell and cuts it at `#`: values of labels hold neither quotes nor
spaces here.
Format: OpenMetrics 1.0; GitLab, Metrics reports.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from gpuadvisor.domain.gate import Difference
from gpuadvisor.reports.gate.outcome import Outcome
from gpuadvisor.reports.gate.quantities import UNITS, values

FILE = "gpuadvisor-gate.metrics.txt"
_SIDES = ("base", "head")


def render(outcomes: Sequence[Outcome]) -> str:
    """Return the medians of both versions; where nothing was compared, only the end of the file."""
    named = _named(outcomes)
    known = {label: _differences(each) for label, each in named.items()}
    metrics = {each.metric: each for found in known.values() for each in found.values()}
    lines = [line for metric in metrics.values() for line in _family(metric, known)]
    return "\n".join([*lines, "# EOF"]) + "\n"


def _differences(outcome: Outcome) -> dict[str, Difference]:
    return {each.metric: each for each in outcome.found.differences} if outcome.found else {}


def _family(
    metric: Difference, benchmarks: Mapping[str, Mapping[str, Difference]]
) -> Iterator[str]:
    """Yield what is known of one metric, of all benchmarks."""
    unit = UNITS[metric.unit].name
    name = "_".join(filter(None, ("gpuadvisor_gate", metric.metric, unit)))
    samples = [
        f'{name}{{benchmark="{label}",side="{side}"}} {median(known):.10g}'
        for label, found in benchmarks.items()
        for side in _SIDES
        if metric.metric in found and (known := values(found[metric.metric], side))
    ]
    if samples:
        yield f"# TYPE {name} gauge"
        if unit:
            yield f"# UNIT {name} {unit}"
        yield f"# HELP {name} {metric.title}, median of the runs that were compared"
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
