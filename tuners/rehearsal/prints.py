"""Numbers, dates and times of day that lives print, by the lines that they stand in."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from gpuadvisor.domain.printed import (
    moments_in,
    numbers_in,
    tells_time,
    without_numbers,
    without_warnings,
)
from gpuadvisor.domain.rehearsal import Life
from gpuadvisor.tuners.equivalence import SPREAD_FACTOR
from gpuadvisor.tuners.rehearsal.files import Limits, are_many, are_results, turn_at_random

Line = list[float]
"""The numbers of a printed line."""
Kind = tuple[str, bool]
"""The words of like lines, and whether they speak of time."""


def printed(output: str) -> dict[Kind, list[Line]]:
    """Return the numbers of the lines that a script printed, by the kinds of the lines."""
    lines: dict[Kind, list[Line]] = {}
    for line in _lines_of(output):
        kind = without_numbers(line), tells_time(line)
        lines.setdefault(kind, []).append(numbers_in(line))
    return lines


def alike(
    ours: Mapping[Kind, list[Line]], again: Mapping[Kind, list[Line]]
) -> dict[Kind, list[Line]]:
    """Return the lines that are as many in both unchanged lives; how often others are depends on
    the time."""
    return {
        kind: numbers for kind, numbers in ours.items() if len(again.get(kind, ())) == len(numbers)
    }


def told(
    ours: Sequence[Line], again: Sequence[Line], is_time: bool, is_resized: bool
) -> Sequence[int]:
    """Return the places in like lines whose numbers are neither times that were measured nor
    batches, of another size in the plan's life, that were counted beside a time."""
    places = range(len(ours[0]) if ours else 0)
    if not is_time:
        return places
    columns = [([line[at] for line in ours], [line[at] for line in again]) for at in places]
    return [
        at
        for at, (mine, others) in enumerate(columns)
        if are_results(mine, others)
        and (not is_resized or not all(map(float.is_integer, mine)) or turn_at_random(mine))
    ]


def otherwise(
    ours: Sequence[Line],
    again: Sequence[Line],
    theirs: Sequence[Line],
    nudged: Sequence[Sequence[Line]],
    limits: Limits,
    columns: Sequence[int],
) -> str | None:
    """Return which number of like lines is another one, of those that unchanged lives agree in."""
    for row, line in enumerate(ours):
        for place in columns:
            a, b, c = line[place], again[row][place], theirs[row][place]
            usual = max((abs(each[row][place] - a) for each in nudged), default=0.0)
            allowed = max(limits.relative * max(abs(a), abs(c)), SPREAD_FACTOR * usual)
            is_other = not abs(c - a) <= allowed or limits.is_another_share(a, c)
            if a == b and math.isfinite(a) and is_other:
                return f"{c:g} is printed and not {a:g}"
    return None


def moments_otherwise(lives: Sequence[Life]) -> str | None:
    """Return which date or time of day another life prints than the unchanged ones, which agree in
    so many that no clock told them; those of nudged lives, too. The plan's is the third."""
    ours, again, theirs, *nudged = map(_moments, lives)
    for words, known in ours.items():
        others = theirs.get(words, [])
        are_known = are_many(known) and all(each.get(words) == known for each in (again, *nudged))
        if are_known and len(others) == len(known) and others != known:
            return next(
                f"{b} is printed and not {a}" for a, b in zip(known, others, strict=True) if a != b
            )
    return None


def _moments(life: Life) -> dict[str, list[str]]:
    """Return the dates and times of day that a script printed, by the words of their lines."""
    moments: dict[str, list[str]] = {}
    for line in _lines_of(life.output):
        moments.setdefault(without_numbers(line), []).extend(moments_in(line))
    return moments


def _lines_of(output: str) -> list[str]:
    """Return the lines that a terminal shows, without libraries' warnings.

    Text that a model samples has other characters at which `str.splitlines` ends a line.
    """
    lines = re.split(r"\r\n?|\n", output)
    return without_warnings(lines if lines[-1] else lines[:-1])
