"""Recordings of a script in words, as a plot on the terminal, and as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from gpuadvisor.domain.baseline import Acceptance, Change, Recording
from gpuadvisor.printable import printable
from gpuadvisor.reports import figures
from gpuadvisor.reports.document import Column, Paragraph, Section, Table
from gpuadvisor.reports.render_text import print_sections
from gpuadvisor.reports.strict_json import strict
from gpuadvisor.tuners.gate.stored import LEAST, days_of, figures_of, gap_among, level_of

if TYPE_CHECKING:
    from rich.console import Console

    from gpuadvisor.storage.gate import Baselines

VERSION = 1
"""Version of the JSON."""
PLOT = 25
"""Characters of the plot's scale."""
LEAST_SPAN = 0.02
"""Relative difference that the whole scale stands for at least: noise alone looks like noise."""
MARK, UNCOUNTED, LINE = "●", "○", "│"
"""A day that counts, another recording, and the level of the days that count."""


@dataclass(frozen=True)
class History:
    """The recordings of a baseline on one kind of machine, with what happened to their level."""

    name: str
    recordings: tuple[Recording, ...]
    """In order of time."""
    acceptances: tuple[Acceptance, ...]
    changes: tuple[Change, ...]
    """Since the newest acceptance."""
    counted: tuple[Recording, ...]
    """The days with which a new one would be compared."""


def histories(known: Baselines, name: str) -> list[History]:
    """Return the histories of a baseline, one a machine."""
    by_key: dict[tuple[tuple[str, str], ...], list[Recording]] = {}
    for each in known.recordings_of(name):
        by_key.setdefault(tuple(each.key.items()), []).append(each)
    accepted = known.accepted(name)
    acceptances = tuple(each for each in known.acceptances if each.name == name)
    found = []
    for recordings in by_key.values():
        days, changes = level_of(days_of(recordings, accepted.at if accepted else None))
        found.append(History(name, tuple(recordings), acceptances, tuple(changes), tuple(days)))
    return found


def print_recorded(recording: Recording, days: int, file: Path, console: Console) -> None:
    """Print what was recorded, and what is still needed."""
    name = printable(recording.name)
    needed = f"; a check needs {LEAST}, 20 hours apart or more" if days < LEAST else ""
    of_level = f"{figures.count(days, 'day')} of this level{needed}"
    (times,) = figures_of([recording], "step_time")
    console.print(
        f"recorded {name} in {file}: {figures.milliseconds(median(times))} a step in "
        f"{len(recording.runs)} runs, {of_level}",
        markup=False,
        soft_wrap=True,
    )


def print_histories(found: Sequence[History], file: Path, console: Console) -> None:
    """Print histories, each with a plot of its step times."""
    if not found:
        none = f"There are no recordings in {file}: `gpuadvisor gate record` makes them."
        console.print(none, markup=False, soft_wrap=True)
    for each in found:
        print_sections(console, _sections(each))


def history_json(found: Sequence[History]) -> dict[str, Any]:
    """Return histories as values that are valid JSON."""
    document: dict[str, Any] = strict({
        "schema_version": VERSION,
        "baselines": [
            {
                "name": each.name,
                "key": [
                    {"what": what, "value": value}
                    for what, value in each.recordings[-1].key.items()
                ],
                "recordings": [
                    _recording(each, *of)
                    for of in zip(each.recordings, *_medians(each), strict=True)
                ],
                "changes": [
                    {"metric": c.metric, "at": c.at.isoformat(), "ratio": c.ratio}
                    for c in each.changes
                ],
                "acceptances": [
                    {"at": a.at.isoformat(), "by": a.by, "why": a.why} for a in each.acceptances
                ],
                "days": len(each.counted),
                "days_needed": LEAST,
            }
            for each in found
        ],
    })  # fmt: skip
    return document


def _recording(
    history: History, recording: Recording, time_ms: float, memory_bytes: float
) -> dict[str, Any]:
    return {
        "at": recording.at.isoformat(),
        "commit": recording.commit,
        "has_changes": recording.has_changes,
        "counts": recording in history.counted,
        "runs": len(recording.runs),
        "step_time_ms": time_ms,
        "peak_memory_bytes": memory_bytes or None,
    }


@dataclass(frozen=True)
class _Row:
    """A line of a history: a recording, or what happened to its level."""

    at: str
    time: str = ""
    plot: str = ""
    memory: str = ""
    what: str = ""


def _sections(history: History) -> Iterator[Section]:
    machine = ", ".join(f"{what} {value}" for what, value in history.recordings[-1].key.items())
    columns = [
        Column("Recorded (UTC)", "at"),
        Column("Step time", "time"),
        Column("", "plot", left=True),
        Column("Peak memory", "memory"),
        Column("", "what", left=True),
    ]
    yield Section(history.name, [Paragraph(machine, "muted"), Table(_rows(history), columns)])
    count = len(history.counted)
    more = "" if count >= LEAST else f"; {LEAST - count} more are needed for a check"
    level = f"{figures.count(count, 'day')} ({MARK}) {'counts' if count == 1 else 'count'}{more}."
    yield Section("", [Paragraph(level)])
    if gap := gap_among(history.counted, datetime.now(UTC)):
        yield Section("", [Paragraph(f"{gap[0].upper()}{gap[1:]}.")])


def _rows(history: History) -> list[_Row]:
    times, memories = _medians(history)
    middle = math.sqrt(min(times) * max(times))
    span = max(LEAST_SPAN, math.log(max(times) / min(times)))

    def place_of(time: float) -> int:
        return round((math.log(time / middle) / span + 0.5) * (PLOT - 1))

    both = zip(history.recordings, times, strict=True)
    counted = [time for each, time in both if each in history.counted]
    level = place_of(median(counted or times))
    rows = []
    for recording, time, memory in zip(history.recordings, times, memories, strict=True):
        counts = recording in history.counted
        plot = [LINE if place == level else " " for place in range(PLOT)]
        plot[place_of(time)] = MARK if counts else UNCOUNTED
        commit = (recording.commit or "")[:8] + ("+" if recording.has_changes else "")
        row = _Row(
            f"{recording.at:%Y-%m-%d %H:%M}",
            figures.milliseconds(time),
            "".join(plot),
            figures.memory(memory or None),
            commit,
        )
        rows.append((recording.at, 1, row))
    for change in history.changes:
        words = f"{change.metric.lower()} changed by {change.ratio - 1:+.1%}"
        rows.append((change.at, 0, _Row(f"{change.at:%Y-%m-%d}", plot=words)))
    for each in history.acceptances:
        words = f"accepted by {each.by}: {each.why}"
        rows.append((each.at, 0, _Row(f"{each.at:%Y-%m-%d %H:%M}", plot=printable(words))))
    return [row for _, _, row in sorted(rows, key=lambda each: each[:2])]


def _medians(history: History) -> tuple[list[float], list[float]]:
    """Return the step time in ms and the peak memory in bytes of each recording."""
    times, memories = (
        [median(each) for each in figures_of(history.recordings, metric)]
        for metric in ("step_time", "peak_memory")
    )
    return times, memories
