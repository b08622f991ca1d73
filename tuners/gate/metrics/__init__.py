"""What a gate compares. A new metric is one of the `METRICS` of a file here, and nothing else."""

from __future__ import annotations

import pkgutil
from collections.abc import Collection, Iterable
from functools import cache
from importlib import import_module

from gpuadvisor.errors import UsageError
from gpuadvisor.tuners.gate.metric import Counted, Metric


@cache
def load_metrics() -> dict[str, Metric]:
    """Return every metric by its name: first what the verdict rests on, then the others."""
    found: list[Metric] = [
        metric
        for module in pkgutil.iter_modules(__path__)
        for metric in import_module(f"{__name__}.{module.name}").METRICS
    ]
    places = ["decides", "guards", "reported"]
    found.sort(key=lambda each: (not each.primary, places.index(each.role), each.name))
    return {metric.name: metric for metric in found}


def chosen(asked: Collection[str], only: Collection[str] = ()) -> list[Metric]:
    """Return the metrics that are measured where these are asked for, or `only` these."""
    return [
        metric
        for name, metric in load_metrics().items()
        if name in asked or name in only or not (only or metric.on_request)
    ]


def are_counts(metrics: Iterable[Metric]) -> bool:
    """Say whether all of these are counted, so that no run has to be timed."""
    return all(isinstance(metric, Counted) for metric in metrics)


def check_names(names: tuple[str, ...]) -> None:
    """Raise UsageError for a name that no metric has."""
    known = load_metrics()
    for name in names:
        if name not in known:
            raise UsageError(f"there is no metric {name!r}: choose from {', '.join(sorted(known))}")
