"""The part of a large recording that is judged instead of all of it.

Facts are computed on whole columns, so that memory grows with the events. A loop repeats itself:
of a recording with more than `MOST_EVENTS` some whole steps in a row are judged, those whose time
is nearest to what steps of the recording usually take; where no steps are marked, the time in the
middle of the events. Only their rows are read. Which they are is a sentence of the facts
(`Facts.fitness`), and a table that has rows, but none of them there, is named as not measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from gpuadvisor.columns import Array, empty, wanted
from gpuadvisor.domain.profile import (
    ON_DEVICE,
    ON_HOST,
    TABLES,
    TIMES,
    UNKNOWN,
    Columns,
    Header,
    Profile,
    Range,
    Recording,
)
from gpuadvisor.rules.facts.device_work import device_work
from gpuadvisor.rules.facts.fitness import judged
from gpuadvisor.rules.facts.intervals import BoolArray, FloatArray, IntArray, distinct, ends
from gpuadvisor.rules.facts.parts import Part
from gpuadvisor.rules.facts.steps import MARKED, OPTIMIZER, Step, find_steps
from gpuadvisor.rules.facts.summary import Facts
from gpuadvisor.rules.facts.window import Fitness, Stretch

MOST_EVENTS = 1 << 21
"""Events (rows of all tables with times) up to which a recording is judged as a whole, and about
how many are judged of a larger one; of all ranks together. Each takes some 170 bytes at the peak of
a page: 1.5 million 327 MiB, 15 million 2.4 GiB, and two million of these 432 MiB
(`benchmarks/README.md`)."""
SAMPLED = 64
"""Every so many-th event is looked at to estimate how many events lie in a span of time."""

ALIKE = 0.01
"""Steps whose time differs by less, as a share, are as good as each other: recordings of one
program vary as much (`facts.comparison`)."""
OTHERS = (
    'Below, "the run" is this part. The rest may hold what it does not show:'
    " `gpuadvisor diagnose`, `report` and `compare` look at all with `--whole`"
)
"""What is to be known of a part of a recording."""

POINTS = ("memory", "counters", "samples")
JOINED = ("collectives", "links")
"""Tables whose rows belong to kernels, by correlation."""
SPAN = ("begin_ns", "duration_ns")
TIME_OF = {table: name for table, columns in TABLES.items() for name in TIMES if name in columns}
"""Tables of events, and the column that tells when each began."""


class Excerpt:
    """A `Profile` with only some rows of another one, which are read when they are asked for."""

    def __init__(self, whole: Recording, kept: Mapping[str, BoolArray]) -> None:
        """Keep of each table that is named the rows that are marked, of others all."""
        self._whole = whole
        self._kept = kept
        self._columns: dict[tuple[str, str], Array] = {}

    @cached_property
    def header(self) -> Header:
        """What is known of the recording; what none of these rows tells is not measured."""
        header = self._whole.header
        lost = {
            table: f"the part that is looked at has none of its {count:,} {table}"
            for table, kept in self._kept.items()
            if (count := len(kept)) and not kept.any()
        }
        return replace(header, not_measured={**header.not_measured, **lost}) if lost else header

    def rows(self, table: str) -> int:
        """Return how many rows of a table there are."""
        if table in self._kept:
            return int(self._kept[table].sum())
        return self._whole.rows(table)

    def columns(self, table: str, names: Iterable[str] | None = None) -> Columns:
        """Return columns, read-only and the same each time."""
        asked = wanted(table, names)
        if missing := [name for name in asked if (table, name) not in self._columns]:
            for name, column in self._read(table, missing).items():
                column.flags.writeable = False
                self._columns[table, name] = column
        return {name: self._columns[table, name] for name in asked}

    def narrowed(self, part: Part) -> Excerpt:
        """Return those of its rows that belong to a part of it."""
        kept = {}
        for table, mask in self._kept.items():
            kept[table] = mask.copy()
            if (within := part.kept(table)) is not None:
                kept[table][mask] = within
        return Excerpt(self._whole, kept)

    def _read(self, table: str, names: Sequence[str]) -> Mapping[str, Array]:
        found = {name: empty(table, name, self.rows(table)) for name in names}
        at = 0
        for batch in self._whole.batches(table, names, self._kept.get(table)):
            stop = at + len(batch[names[0]])
            for name, column in found.items():
                column[at:stop] = batch[name]
            at = stop
        return found


@dataclass(frozen=True)
class Choice:
    """A time of a recording, and which of its steps lie in it."""

    begin_ns: int
    end_ns: int
    steps: Sequence[Step] = ()
    """All steps of the recording; none where they are not marked."""
    first: int = 0
    """Place of the first step that is chosen."""
    count: int = 0


def judged_recordings(
    recordings: Sequence[Recording], ceilings: Mapping[str, float] | None = None
) -> Iterator[Facts]:
    """Yield the facts of the part of each rank's recording that can be judged.

    Where one of them is too large, the same part of all is judged: ranks wait for each other.
    """
    largest = max(recordings, key=events)
    chosen = None
    if events(largest) > MOST_EVENTS and _has_timeline(largest):
        chosen = choose(largest, MOST_EVENTS // len(recordings))
    for each in recordings:
        if chosen is None:
            yield judged(each, ceilings)
        else:
            mine = chosen if each is largest else _same(chosen, largest, each)
            part, fitness = excerpt(each, mine)
            yield judged(part, ceilings, fitness)


def events(recording: Profile) -> int:
    """Return how many events a recording has: rows of the tables with times."""
    return sum(map(recording.rows, TIME_OF))


def _has_timeline(recording: Profile) -> bool:
    return not recording.rows("metrics") and (
        "kernels.begin_ns" not in recording.header.not_measured
    )


def choose(recording: Recording, most: int) -> Choice:
    """Return a part of a recording with at most about so many events."""
    sample = _sample(recording)
    return _usual_steps(recording, sample, most) or _middle(sample, most / events(recording))


def _sample(recording: Recording) -> IntArray:
    """Return when one of `SAMPLED` events began, in their order."""
    begun = []
    for table, name in TIME_OF.items():
        begun += [each[name][::SAMPLED].copy() for each in recording.batches(table, (name,))]
    return np.sort(np.concatenate(begun))


def _usual_steps(recording: Recording, sample: IntArray, most: int) -> Choice | None:
    """Return the whole steps in a row whose time is the usual one, of several those nearest to the
    middle; None without steps, or where a single one has too many events."""
    steps = marked_steps(recording)
    if not steps:
        return None
    edges = _edges(steps)
    held = np.diff(np.searchsorted(sample, edges)) * (events(recording) / len(sample))
    count = min(max(int(most / max(held.mean(), 1.0)), 1), len(steps))
    fits = _sums(held, count) <= most
    if not fits.any():
        return None
    usual = count * float(np.median(np.diff(edges)))
    apart = np.abs(edges[count:] - edges[:-count] - usual)
    alike = fits & (apart <= apart[fits].min() + ALIKE * usual)
    middle = np.abs(np.arange(len(apart)) - (len(apart) - 1) / 2)
    first = int(np.where(alike, middle, np.inf).argmin())
    return Choice(int(edges[first]), int(edges[first + count]), steps, first, count)


def _sums(values: FloatArray, count: int) -> FloatArray:
    """Return the sums of so many values in a row."""
    before = np.concatenate(([0.0], np.cumsum(values)))
    sums: FloatArray = before[count:] - before[:-count]
    return sums


def _edges(steps: Sequence[Step]) -> IntArray:
    """Return when each step begins, and when the last one ends."""
    end = steps[-1].begin_ns + steps[-1].duration_ns
    return np.array([*(each.begin_ns for each in steps), end], np.int64)


def marked_steps(recording: Recording) -> Sequence[Step]:
    """Return the steps of a recording, without what ran in them; none where none are certain."""
    texts = recording.header.texts
    known: dict[int, bool] = {}

    def is_step(name: int) -> bool:
        if name not in known:
            text = texts[name]
            known[name] = bool(MARKED.fullmatch(text.strip())) or text.startswith(OPTIMIZER)
        return known[name]

    masks = [np.empty(0, np.bool_)]
    for batch in recording.batches("ranges", ("kind", "name")):
        mask = batch["kind"] == Range.STEP
        user = np.flatnonzero(batch["kind"] == Range.USER)
        mask[user] = [is_step(name) for name in batch["name"][user].tolist()]
        masks.append(mask)
    nothing = {table: np.zeros(recording.rows(table), np.bool_) for table in ON_DEVICE}
    marks = Excerpt(recording, {"ranges": np.concatenate(masks), **nothing})
    found = find_steps(marks, device_work(marks), {})
    return found.steps if found is not None else ()


def _middle(sample: IntArray, share: float) -> Choice:
    """Return the time of such a share of the events, in the middle of all."""
    first = int(len(sample) * (1 - share) / 2)
    last = min(first + int(len(sample) * share), len(sample) - 1)
    begin = int(sample[first])
    return Choice(begin, max(int(sample[last]), begin + 1))


def _same(chosen: Choice, of: Recording, other: Recording) -> Choice:
    """Return the part of another rank's recording that is the same: steps of the same names, or
    the same time of the day where that is told, else since the recording began."""
    if chosen.count:
        names = [each.name for each in chosen.steps[chosen.first :][: chosen.count]]
        steps = marked_steps(other)
        found = [place for place, each in enumerate(steps) if each.name == names[0]]
        if found and [each.name for each in steps[found[0] :][: chosen.count]] == names:
            edges, stop = _edges(steps), found[0] + chosen.count
            return replace(
                chosen, begin_ns=int(edges[found[0]]), end_ns=int(edges[stop]),
                steps=steps, first=found[0],
            )  # fmt: skip
    begun, begun_there = of.header.begin_unix_ns, other.header.begin_unix_ns
    later = begun - begun_there if begun is not None and begun_there is not None else 0
    return Choice(chosen.begin_ns + later, chosen.end_ns + later)


def excerpt(recording: Recording, chosen: Choice) -> tuple[Excerpt, Fitness]:
    """Return what was launched in a time, and what the host did then; and which part that is."""
    loose = Excerpt(recording, _around(recording, chosen.begin_ns, chosen.end_ns))
    part = Part(loose, chosen.begin_ns, chosen.end_ns)
    found = loose.narrowed(part)
    counts = events(found), events(recording)
    steps = (chosen.first + 1, chosen.first + chosen.count, len(chosen.steps))
    stretch = Stretch(chosen.begin_ns, chosen.end_ns, *counts, *(steps if chosen.count else ()))
    words = f"{_which(recording, chosen, stretch)}. {OTHERS}"
    return found, Fitness(words, None, part.not_before_ns, excerpt=stretch)


def _which(recording: Recording, chosen: Choice, stretch: Stretch) -> str:
    """Return which part of a recording is looked at, in a sentence without a full stop."""
    amount = f"{stretch.events / 1e6:,.3g} of {stretch.of_events / 1e6:,.3g} million events"
    if not chosen.count:
        lasted = recording.header.duration_ns / 1e9
        return (
            f"The time from {chosen.begin_ns / 1e9:,.4g} to {chosen.end_ns / 1e9:,.4g} s of"
            f" {lasted:,.4g} s is looked at ({amount})"
        )
    first, last = chosen.first, chosen.first + chosen.count
    took: FloatArray = np.array([each.duration_ns for each in chosen.steps]) / 1e6
    longest = int(took.argmax())
    here = f"step {last:,} is" if chosen.count == 1 else f"steps {first + 1:,} to {last:,} are"
    return (
        f"{here.capitalize()} looked at, of {len(took):,} ({amount}): they take"
        f" {np.median(took[first:last]):,.4g} ms, all {np.median(took):,.4g} ms (medians; the"
        f" longest, step {longest + 1:,}, {took[longest]:,.4g} ms)"
    )


def _around(recording: Recording, begin_ns: int, end_ns: int) -> Mapping[str, BoolArray]:
    """Return which rows tell what belongs to a time: those that lie in it, and calls and what they
    launched if one of both does."""

    def within(columns: Columns) -> BoolArray:
        begin, end = ends(columns["begin_ns"], columns["duration_ns"])
        return (begin < end_ns) & (end >= begin_ns)

    def at(columns: Columns) -> BoolArray:
        time = columns["time_ns"]
        inside: BoolArray = (time >= begin_ns) & (time < end_ns)
        return inside

    kept = {table: _marked(recording, table, SPAN, within) for table in ON_HOST}
    kept |= {table: _marked(recording, table, ("time_ns",), at) for table in POINTS}
    called = _Keys(recording, {"calls": kept["calls"]})
    for table in ON_DEVICE:
        kept[table] = _marked(
            recording, table, (*SPAN, "correlation"), lambda each: within(each) | called.hold(each)
        )
    ran = _Keys(recording, {table: kept[table] for table in ON_DEVICE})
    for table in ("calls", *JOINED):
        held = _marked(recording, table, ("correlation",), ran.hold)
        kept[table] = kept[table] | held if table in kept else held
    return kept


def _marked(
    recording: Recording,
    table: str,
    names: Sequence[str],
    is_kept: Callable[[Columns], BoolArray],
) -> BoolArray:
    """Return which rows of a table are kept, asked piece by piece."""
    masks = [np.empty(0, np.bool_)]
    masks += [is_kept(batch) for batch in recording.batches(table, names)]
    return np.concatenate(masks)


class _Keys:
    """The correlations of some rows."""

    def __init__(self, recording: Recording, kept: Mapping[str, BoolArray]) -> None:
        found = [np.empty(0, np.int64)]
        for table, mask in kept.items():
            found += [
                batch["correlation"] for batch in recording.batches(table, ("correlation",), mask)
            ]
        keys = distinct(np.concatenate(found))
        self._keys = keys[keys != UNKNOWN]

    def hold(self, columns: Columns) -> BoolArray:
        """Say which rows have one of them."""
        asked: IntArray = columns["correlation"]
        found = np.zeros(len(asked), np.bool_)
        if len(self._keys):
            # Correlations rise with time: most pieces have none within these bounds.
            near = np.flatnonzero((asked >= self._keys[0]) & (asked <= self._keys[-1]))
            place = np.searchsorted(self._keys, asked[near])
            found[near] = self._keys[place] == asked[near]
        return found
