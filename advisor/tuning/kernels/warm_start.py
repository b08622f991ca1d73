"""Where to begin: what was best for other sizes of the problem, or on other GPUs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from gpuadvisor.domain.kernel_records import Record
from gpuadvisor.domain.knobs import Value
from gpuadvisor.domain.study import TrialState
from gpuadvisor.errors import UsageError
from gpuadvisor.storage.kernel_caches import read
from gpuadvisor.tuners.points import Points

RECORDS, OF_EACH = 3, 2
"""Records that are looked at, the most alike first, and points taken of each: what is best for
another size costs a few evaluations if it is of no use here."""
OTHER_GPU = 4.0
"""How unlike another GPU is, in doublings of all sizes together. [own]"""


def similar_best(record: Record, points: Points, path: Path) -> dict[int, str]:
    """Return rows of points that were best in records beside `path` of the same kernel and
    parameters, the most promising first, with what each was best for: sizes and a GPU, in words.
    None where there are no such records.
    """
    found = []
    for other in sorted(path.parent.glob("*.json")):
        if other == path:
            continue
        try:
            known = read(other)
        except UsageError:  # somebody else's, or damaged: nothing is lost
            continue
        if known.kernel == record.kernel and known.parameters.keys() == record.parameters.keys():
            found.append((_unlikeness(record, known), str(other), known))
    rows: dict[int, str] = {}
    for _, _, known in sorted(found, key=lambda each: each[:2])[:RECORDS]:
        for row in _best(known, points):
            rows.setdefault(row, _origin(known, record))
    return rows


def _origin(known: Record, here: Record) -> str:
    sizes = ", ".join(f"{name}={size}" for name, size in _sizes(known.problem).items())
    there = "" if known.device == here.device else f"on {known.device}"
    return " ".join(filter(None, (sizes, there))) or "another file"


def _best(record: Record, points: Points) -> list[int]:
    complete = [e for e in record.evaluations if e.state is TrialState.COMPLETE and e.gain]
    complete.sort(key=lambda each: -(each.gain or 0.0))
    rows = (points.find(each.point) for each in complete)
    return [row for row in rows if row is not None][:OF_EACH]


def _unlikeness(one: Record, other: Record) -> float:
    sizes, others = _sizes(one.problem), _sizes(other.problem)
    if sizes.keys() != others.keys():
        return math.inf
    away = 0.0
    for name, size in sizes.items():
        if isinstance(size, int | float) and size > 0 and _is_positive(others[name]):
            away += abs(math.log2(size / float(others[name])))
        else:
            away += size != others[name]
    return away + OTHER_GPU * (one.device != other.device)


def _sizes(problem: Mapping[str, Value] | Sequence[int]) -> Mapping[str, Value]:
    if isinstance(problem, Mapping):
        return problem
    return {str(place): size for place, size in enumerate(problem)}


def _is_positive(value: Value) -> bool:
    return isinstance(value, int | float) and value > 0
