"""Roll-ups: a minute of polls, and an hour of minutes, in one row for each GPU."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from math import ceil, fsum
from operator import or_
from typing import Any

from gpuadvisor.domain.accumulators import Accumulator
from gpuadvisor.domain.metrics import BY_NAME, Kind, Metric
from gpuadvisor.domain.telemetry import Frame, Number, Sample
from gpuadvisor.storage.telemetry.schema import MINUTE_S, fitting

Rolled = dict[str, Number | None]
"""A row's statistics by column."""


class _Polls:
    """The polls of one device, and the values that they read."""

    def __init__(self) -> None:
        self.count = 0
        self.values: defaultdict[str, list[Number]] = defaultdict(list)

    def add(self, frame: Frame, sample: Sample) -> None:
        self.add_values(sample.values.items())

    def add_values(self, values: Iterable[tuple[str, Number]]) -> None:
        """Take in one poll."""
        self.count += 1
        for name, value in values:
            self.values[name].append(value)


class Minute(Accumulator[_Polls]):
    """All polls of one minute, to be rolled up."""

    def __init__(self, begin_s: float) -> None:
        super().__init__(_Polls)
        self.begin_s = begin_s
        self.is_raw_complete = True
        """Whether all raw rows of the minute were stored, too."""

    def rows(self) -> dict[str, tuple[int, Rolled]]:
        """Return the number of polls and the statistics of every device."""
        return {
            device: (polls.count, _of_values(polls.values))
            for device, polls in self.devices.items()
        }


def minute_of(time_s: float) -> float:
    """Return when the minute of this Unix time began."""
    return time_s // MINUTE_S * MINUTE_S


def percentile_95(values: Sequence[Number]) -> Number:
    """Return the least of the values that 95 % of them do not exceed (nearest rank)."""
    return sorted(values)[ceil(0.95 * len(values)) - 1]


def _of_values(values: Mapping[str, Sequence[Number]]) -> Rolled:
    rolled: Rolled = {}
    for name, all_values in values.items():
        metric = BY_NAME.get(name)
        if metric is None:
            continue
        fit = [v for each in all_values if (v := fitting(metric, each)) is not None]
        if fit:
            rolled.update(_of_metric(metric, fit))
    return rolled


def _of_metric(metric: Metric, values: Sequence[Number]) -> Rolled:
    name = metric.name
    if metric.kind is Kind.COUNTER:
        return {name: values[-1], f"first_{name}": values[0]}
    if metric.kind is Kind.BITMASK:
        return {name: reduce(or_, map(int, values))}
    return {
        name: fsum(values) / len(values),
        f"min_{name}": min(values),
        f"max_{name}": max(values),
        f"p95_{name}": percentile_95(values),
    }


def hour(
    metrics: Iterable[Metric],
    minutes: Sequence[Mapping[str, Any]],
    seconds: Mapping[str, Sequence[Number]],
) -> tuple[int, Rolled]:
    """Return the polls and the statistics of an hour.

    `minutes` are the rows of one device in their order; means are weighted with their polls.
    `seconds` are the values of the full frames by metric, for the 95th percentile: it cannot be
    had from minutes, and where the raw rows are gone it stays unknown.
    """
    rolled: Rolled = {}
    for metric in metrics:
        known = [row for row in minutes if row[metric.name] is not None]
        if known:
            rolled.update(_of_minutes(metric, known))
            if metric.kind is Kind.GAUGE and seconds.get(metric.name):
                rolled[f"p95_{metric.name}"] = percentile_95(seconds[metric.name])
    return sum(row["polls"] for row in minutes), rolled


def _of_minutes(metric: Metric, rows: Sequence[Mapping[str, Any]]) -> Rolled:
    name = metric.name
    if metric.kind is Kind.COUNTER:
        return {name: rows[-1][name], f"first_{name}": rows[0][f"first_{name}"]}
    if metric.kind is Kind.BITMASK:
        return {name: reduce(or_, (row[name] for row in rows))}
    weight = sum(row["polls"] for row in rows)
    return {
        name: fsum(row[name] * row["polls"] for row in rows) / weight,
        f"min_{name}": min(row[f"min_{name}"] for row in rows),
        f"max_{name}": max(row[f"max_{name}"] for row in rows),
    }
