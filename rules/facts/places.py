"""Where in the program something comes from: line, module, range, operator and shapes.

    facts.places.of_work(rows)            rows of `facts.work`
    facts.places.of_calls(rows)           rows of `facts.host`
    facts.places.of_parts(parts)          parts of the run, as estimates name them
    facts.places.of_memory()              what the program allocates
    facts.places.of_run()

Each returns the line with most of it, and what else is known, or None for each: the profile has no
stacks, no shapes, or nothing in them that is the user's own. Work of a device is placed where the
host launched it, idle time where the thread was that ended it. What the backward pass does is at
the line and in the module of the forward operator that it belongs to (`facts.backward`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from gpuadvisor.domain.finding import Place
from gpuadvisor.domain.profile import NO_TEXT, UNKNOWN, Range
from gpuadvisor.rules.facts.device_work import Work
from gpuadvisor.rules.facts.idle import split_gaps
from gpuadvisor.rules.facts.idle_causes import Cause, Gaps
from gpuadvisor.rules.facts.intervals import FloatArray, IntArray, ends, grouped, union
from gpuadvisor.rules.facts.joins import Ran, enclosing, thread_keys
from gpuadvisor.rules.facts.recurring import MOST
from gpuadvisor.rules.facts.time_breakdown import IDLE

if TYPE_CHECKING:
    from gpuadvisor.rules.facts.backward import Moments
    from gpuadvisor.rules.facts.summary import Facts

MOMENTS = 1000
"""In so many moments of idle time, or of a run, is looked what the host did, and so many rows stand
for more where there are no stacks: what has a tenth of it is then known to within 2 points (95 %).
"""


ALLOCATING = frozenset(
    f"aten::{name}"
    for name in (
        "empty",
        "empty_like",
        "empty_strided",
        "new_empty",
        "new_empty_strided",
        "resize_",
    )
)
"""Operators that allocate for the one that calls them."""

Columns: TypeAlias = npt.NDArray[np.int64]
"""Line, module, range and row of the backward pass, a row each."""
Found: TypeAlias = tuple[str | None, Place | None]
"""A source line, and what else is known."""
NOWHERE: Found = (None, None)
OF_KERNEL = "kernel/"
"""What the name of a part begins with that is kernels of one name."""


@dataclass(frozen=True, eq=False)
class _Moments:
    """What a thread was doing at some times, by numbers; UNKNOWN where nothing tells."""

    weight: FloatArray
    """Time, or bytes, that each moment stands for."""
    line: IntArray
    module: IntArray
    region: IntArray
    later: IntArray
    """Row of the backward pass (`facts.backward`) in which it was."""
    operator: IntArray
    """Row of the operators."""


def _moments(weight: FloatArray | IntArray, of_calls: Columns, operator: IntArray) -> _Moments:
    line, module, region, later = of_calls
    return _Moments(weight.astype(np.float64), line, module, region, later, operator)


class Places:
    """The places of a profile's facts."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts

    def of_work(self, rows: IntArray) -> Found:
        """Return where most of the time of some rows of the device's work was launched."""
        return self._most(self._launching(rows))

    def of_calls(self, rows: IntArray) -> Found:
        """Return where those of some calls into CUDA were made that took most of their time."""
        host = self._facts.host
        return self._most(self._calling(rows, host.end_ns[rows] - host.begin_ns[rows]))

    def of_parts(self, parts: Mapping[str, float]) -> Found:
        """Return where parts of the run come from, such as `idle/launching`, of which each counts
        for the time that stands beside it."""
        kernels = {
            name.removeprefix(OF_KERNEL): time_ns
            for name, time_ns in parts.items()
            if name.startswith(OF_KERNEL)
        }
        found = [self._of_kernels(kernels)] if kernels else []
        for name, time_ns in parts.items():
            if not name.startswith(OF_KERNEL):
                moments = list(self._part(*name.split("/", 1)))
                whole = sum(float(each.weight.sum()) for each in moments)
                found += [replace(m, weight=m.weight * (time_ns / whole)) for m in moments if whole]
        return self._most(_joined(found)) if found else NOWHERE

    def of_memory(self) -> Found:
        """Return where most of what is allocated at the peak came from; where addresses do not tell
        which allocations that were, where most was allocated."""
        uses = self._facts.memory
        living = self._facts.living_at_peak.values()
        time = np.concatenate([np.empty(0, np.int64), *(each.begin_ns for each in living)])
        size = np.concatenate([np.empty(0, np.int64), *(each.bytes for each in living)])
        peak = sum(each.peak_allocated_bytes for each in uses) if len(time) else 0.0
        if not len(time):
            columns = self._facts.profile.columns("memory", ("time_ns", "bytes", "device"))
            rows = np.flatnonzero((columns["bytes"] > 0) & (columns["device"] != UNKNOWN))
            time, size = columns["time_ns"][rows], columns["bytes"][rows]
        weight = size.astype(np.float64)
        if len(time) > MOMENTS:
            chosen, _ = _spread(size)
            time, weight = time[chosen], np.full(MOMENTS, weight.sum() / MOMENTS)
        return self._most(_Moments(weight, *self.at_allocations(time)), peak)

    def at_allocations(self, time_ns: IntArray) -> tuple[IntArray, ...]:
        """Return line, module, range, row of the backward pass and operator at times of which no
        thread is known: of the main thread if an operator ran on it, else of the thread whose
        operator began last, as in a backward pass. Operators that do nothing but allocate stand for
        those that call them."""
        ran, names = self._facts.launching, ("process", "thread", "name")
        columns = self._facts.profile.columns("operators", names)
        process, thread = (np.full(len(time_ns), each) for each in self._main)
        texts = self._facts.profile.header.texts
        # Few operators hold any of the times: the rest need not be sorted.
        sought = np.sort(time_ns)
        first = np.searchsorted(sought, ran.begin_ns)
        holds = first < len(sought)
        holds[holds] = sought[first[holds]] <= ran.end_ns[holds]
        rows = np.flatnonzero(holds)
        used = np.unique(columns["name"][rows]).tolist()
        allocate = [number for number in used if texts[number] in ALLOCATING]
        rows = rows[~np.isin(columns["name"][rows], allocate)]
        of = {name: columns[name][rows] for name in ("process", "thread")}
        own, asked = thread_keys(of["process"], of["thread"], process, thread)
        times = ran.begin_ns[rows], ran.end_ns[rows]
        place = enclosing(*times, own, time_ns, asked)
        lost = np.flatnonzero(place == UNKNOWN)
        one, none = np.zeros(len(own), np.int64), np.zeros(len(lost), np.int64)
        place[lost] = enclosing(*times, one, time_ns[lost], none)
        if not len(rows):
            return (*self.at(time_ns, process, thread), place)
        known = place != UNKNOWN
        process, thread = (
            np.where(known, of[name][place], each)
            for name, each in (("process", process), ("thread", thread))
        )
        return (*self.at(time_ns, process, thread), np.where(known, rows[place], UNKNOWN))

    def of_run(self) -> Found:
        """Return where most of the run comes from: of the device's work, else of the host's."""
        facts = self._facts
        whole = self._launching(np.arange(facts.work.kernels)) if facts.work.kernels else None
        if whole is None or not (whole.line.max() >= 0 or whole.operator.max() >= 0):
            whole = self._on_host()
        return self._most(whole)

    def work_by_module(self) -> tuple[FloatArray, FloatArray]:
        """Return the time of the devices' kernels and copies that each module launched itself: in
        the forward pass, and in the backward pass for it."""
        found = self._launching(np.arange(len(self._facts.work)))
        later = found.later != UNKNOWN
        parts = (replace(found, weight=found.weight * chosen) for chosen in (~later, later))
        forward, backward = (self._by_module([each]) for each in parts)
        return forward, backward

    def idle_by_module(self) -> FloatArray:
        """Return how long devices were idle while each module ran, or the backward pass for it, and
        none of those within it, on the thread that ended that."""
        causes = (each for each in IDLE if each not in (Cause.FINISHED, Cause.STARTING))
        return self._by_module([found for cause in causes for found in self._idle(cause)])

    def _by_module(self, found: Sequence[_Moments]) -> FloatArray:
        own = np.zeros(len(self._facts.modules.names))
        for each in found:
            known = each.module != UNKNOWN
            own += np.bincount(each.module[known], each.weight[known], len(own))
        return own

    @property
    def are_none(self) -> bool:
        """Whether no stack, module or range tells what the host did at a time."""
        return not self._has_stacks and not len(self._regions.rows)

    @cached_property
    def _regions(self) -> _Regions:
        return _Regions(self._facts)

    @cached_property
    def _has_stacks(self) -> bool:
        return len(self._facts.sources.begin_ns) > 0 or len(self._facts.modules.begin_ns) > 0

    @cached_property
    def _of_all_calls(self) -> Columns:
        host = self._facts.host
        return np.stack(self.at(host.begin_ns, host.process, host.thread))

    def _of_calls(self, rows: IntArray) -> Columns:
        """Return line, module and range of some calls."""
        if self._has_stacks:
            found: Columns = self._of_all_calls[:, rows]
            return found
        host = self._facts.host
        return np.stack(self.at(host.begin_ns[rows], host.process[rows], host.thread[rows]))

    @cached_property
    def _gaps(self) -> Sequence[tuple[int, Gaps]]:
        facts = self._facts
        return list(split_gaps(facts.work, facts.launched, facts.threads, facts.window.begin_ns))

    @cached_property
    def _main(self) -> tuple[int, int]:
        """Process and thread on which most Python functions, else most operators ran."""
        facts = self._facts
        process, thread = facts.sources.process, facts.sources.thread
        if not len(process):
            columns = facts.profile.columns("operators", ("process", "thread"))
            process, thread = columns["process"], columns["thread"]
        if not len(process):
            return UNKNOWN, UNKNOWN
        number, _ = thread_keys(process, thread, process[:0], thread[:0])
        row = int(np.flatnonzero(number == np.bincount(number).argmax())[0])
        return int(process[row]), int(thread[row])

    def at(
        self, time_ns: IntArray, process: IntArray, thread: IntArray
    ) -> tuple[IntArray, IntArray, IntArray, IntArray]:
        facts, where = self._facts, (time_ns, process, thread)
        # A range is around what ran in it, which the backward pass of that did not.
        region = self._regions.at(*where)
        if not self._has_stacks:
            unknown = np.full(len(time_ns), UNKNOWN, np.int64)
            return unknown, unknown, region, unknown
        later = facts.backward.row_at(*where)
        held = np.flatnonzero(later != UNKNOWN)
        moved = facts.backward.moved(*(each[held] for each in where))
        line, module = (
            self._found(told, where, moved, held, later[held])
            for told in (facts.sources, facts.modules)
        )
        return line, module, region, later

    def _found(
        self,
        told: Ran,
        where: Moments,
        moved: Moments,
        held: IntArray,
        later: IntArray,
    ) -> IntArray:
        """Return which line or module ran at each moment: for those that are held by a row of the
        backward pass what ran where they are moved to, unless one began within that row. It is a
        backward pass of the user's own, or what a checkpoint computes again."""
        count = len(where[0])
        # Once for all of them, as that sorts what ran.
        pairs = zip(where, moved, strict=True)
        both = told.row_at(*(np.concatenate(each) for each in pairs))
        row = both[:count]
        if len(held) and len(told.begin_ns):
            begins = self._facts.backward.begin_ns[later]
            before = (row[held] == UNKNOWN) | (told.begin_ns[row[held]] < begins)
            row[held[before]] = both[count:][before]
        return told.of_rows(row)

    def _at(
        self, time_ns: IntArray, process: IntArray, thread: IntArray
    ) -> tuple[IntArray, IntArray, IntArray, IntArray, IntArray]:
        operator = np.full(len(time_ns), UNKNOWN, np.int64)
        if self._has_stacks:  # else what an operator takes of idle time tells little
            ran = self._facts.launching
            columns = self._facts.profile.columns("operators", ("process", "thread"))
            own, asked = thread_keys(columns["process"], columns["thread"], process, thread)
            operator = enclosing(ran.begin_ns, ran.end_ns, own, time_ns, asked)
        return (*self.at(time_ns, process, thread), operator)

    def _calling(self, rows: IntArray, weight: IntArray) -> _Moments:
        rows, times = self._some(rows, weight.astype(np.float64))
        operator = self._facts.launching.of_call[rows]
        return _moments(times, self._of_calls(rows), operator)

    def _of_kernels(self, times_ns: Mapping[str, float]) -> _Moments:
        """Return where kernels were launched, those of a name for so long as is said."""
        work = self._facts.work
        of_name = np.array([times_ns.get(text, 0.0) for text in work.texts])
        rows = np.flatnonzero(work.is_kernel)
        rows = rows[of_name[work.name[rows]] > 0]
        name, took = work.name[rows], work.duration_ns[rows].astype(np.float64)
        whole = np.bincount(name, took, len(of_name))[name]
        return self._launching(rows, took * of_name[name] / np.maximum(whole, 1.0))

    def _launching(self, rows: IntArray, weight: FloatArray | None = None) -> _Moments:
        facts = self._facts
        rows = np.asarray(rows, np.int64)
        if weight is None:
            weight = facts.work.duration_ns[rows].astype(np.float64)
        rows, weight = self._some(rows, weight)
        call = facts.launched.call[rows]
        known = call != UNKNOWN
        made = np.full((4, len(rows)), UNKNOWN, np.int64)
        made[:, known] = self._of_calls(call[known])
        operator = facts.launching.of_like_work[rows]
        return _moments(weight, made, operator)

    def _some(self, rows: IntArray, weight: FloatArray) -> tuple[IntArray, FloatArray]:
        """Return rows with their weights: of very many, of which no stack tells anything, some that
        stand for all, so that this takes little of a diagnosis."""
        if self._has_stacks or len(rows) <= MOMENTS or not weight.sum():
            return rows, weight
        chosen, _ = _spread(weight)
        return rows[chosen], np.full(MOMENTS, weight.sum() / MOMENTS)

    def _part(self, kind: str, name: str = "") -> Iterator[_Moments]:
        work = self._facts.work
        if kind == "copy":
            yield self._launching(np.arange(work.kernels, len(work)))
        elif kind == "communication":
            yield self._launching(np.flatnonzero(work.kind == Work.COMMUNICATION))
        elif name == Cause.WAITING_FOR_DATA:
            yield from self._loading()
        elif kind == "idle" and not self.are_none:
            yield from self._idle(Cause(name))

    def _loading(self) -> Iterator[_Moments]:
        for (process, thread), waits in self._facts.loader_waits.items():
            lasted = waits.end_ns - waits.begin_ns
            if not waits.total_ns:
                continue
            wait, part = _spread(lasted)
            time = (waits.begin_ns[wait] + part * lasted[wait]).astype(np.int64)
            weight = np.full(MOMENTS, waits.total_ns / MOMENTS)
            here = np.full(MOMENTS, process), np.full(MOMENTS, thread)
            yield _Moments(weight, *self._at(time, *here))

    def _idle(self, cause: Cause) -> Iterator[_Moments]:
        """Yield what the threads did that ended the gaps of a cause."""
        host, launched = self._facts.host, self._facts.launched
        for _, found in self._gaps:
            lost = found.causes_ns[:, IDLE.index(cause)]
            at = np.flatnonzero(lost > 0)
            known = launched.known[found.after[at]]
            if len(moved := at[~known & self._facts.work.is_migration[found.after[at]]]):
                fault = found.causes_ns[moved, IDLE.index(Cause.MIGRATING)]
                begin, end = found.times.begin_ns[moved], found.times.end_ns[moved]
                touched = end - fault
                if cause is Cause.MIGRATING:
                    yield self._on_main(touched, end, lost[moved])
                else:
                    yield self._on_main(begin, touched, lost[moved])
            at = at[known]
            if not len(at):
                continue
            begin, call = found.times.begin_ns[at], launched.call[found.after[at]]
            until = np.clip(host.begin_ns[call], begin, found.times.end_ns[at])
            gap, part = _spread(lost[at])
            if cause is Cause.SYNCHRONIZING:
                part = np.zeros_like(part)  # the wait in which it began
            time = (begin[gap] + part * (until - begin)[gap]).astype(np.int64)
            weight = np.full(len(gap), float(lost[at].sum()) / len(gap))
            yield _Moments(weight, *self._at(time, host.process[call][gap], host.thread[call][gap]))

    def _on_main(self, begin: IntArray, end: IntArray, lost: IntArray) -> _Moments:
        """Return what the main thread did in gaps that were ended by nothing that was launched."""
        gap, part = _spread(lost)
        time = (begin[gap] + part * (end - begin)[gap]).astype(np.int64)
        process, thread = self._main
        here = np.full(len(gap), process), np.full(len(gap), thread)
        return _Moments(np.full(len(gap), float(lost.sum()) / len(gap)), *self._at(time, *here))

    def _on_host(self) -> _Moments:
        """Return what the main thread did in the run."""
        facts, (process, thread) = self._facts, self._main
        ran, columns = facts.launching, facts.profile.columns("operators", ("process", "thread"))
        mine = np.flatnonzero((columns["process"] == process) & (columns["thread"] == thread))
        begin, end = facts.window.begin_ns, facts.window.end_ns
        if len(mine) and end <= begin:
            begin, end = union(ran.begin_ns[mine], ran.end_ns[mine]).span
        if end <= begin:
            begin, end = 0, facts.profile.header.duration_ns
        time = np.linspace(begin, end, MOMENTS).astype(np.int64)
        here = np.full(MOMENTS, process), np.full(MOMENTS, thread)
        return _Moments(np.ones(MOMENTS), *self._at(time, *here))

    def _most(self, found: _Moments, of: float = 0.0) -> Found:
        """Return where most of it is; shares are of the whole, which may be more."""
        total = max(float(found.weight.sum()), of)
        if not len(found.weight) or total <= 0:
            return NOWHERE
        facts, texts = self._facts, self._facts.profile.header.texts
        line, share = _largest(found.line, found.weight, total)
        source, function = facts.sources.lines[line] if line != UNKNOWN else (None, "")
        module, module_share = self._module(found, total)
        region, region_share = _largest(found.region, found.weight, total)
        if region_share < MOST:
            region = UNKNOWN
        known = found.operator != UNKNOWN
        columns = facts.profile.columns("operators", ("name", "shapes"))
        kinds = np.full(len(known), UNKNOWN, np.int64)
        kinds[known] = grouped(*(column[found.operator[known]] for column in columns.values()))
        kind, operator_share = _largest(kinds, found.weight, total)
        operator = shapes = ""
        if kind != UNKNOWN:
            row = int(found.operator[np.flatnonzero(kinds == kind)[0]])
            operator, shapes = (_text(texts, int(columns[n][row])) for n in ("name", "shapes"))
        later = float(found.weight[found.later != UNKNOWN].sum()) / total
        place = Place(
            share,
            function,
            self._facts.modules.path(module),
            module_share,
            _text(texts, region),
            operator,
            shapes,
            operator_share,
            later,
        )
        return source, None if source is None and place == Place() else place

    def _module(self, found: _Moments, total: float) -> tuple[int, float]:
        """Return the innermost module that has most of the weight, and its share."""
        known = found.module != UNKNOWN
        if not known.any():
            return UNKNOWN, 0.0
        own = np.bincount(found.module[known], found.weight[known], len(self._facts.modules.names))
        held = self._facts.modules.with_held(own.astype(np.float64))
        much = np.flatnonzero(held >= MOST * total)
        if not len(much):
            return UNKNOWN, 0.0
        inner = int(much[-1])  # what holds a module comes before it
        return inner, float(held[inner]) / total


class _Regions:
    """Ranges that the program marked."""

    def __init__(self, facts: Facts) -> None:
        columns = facts.profile.columns("ranges")
        self.rows = np.flatnonzero((columns["kind"] == Range.USER) & (columns["name"] > NO_TEXT))
        self._columns = {name: column[self.rows] for name, column in columns.items()}

    def at(self, time_ns: IntArray, process: IntArray, thread: IntArray) -> IntArray:
        """Return the text of the innermost range at each time on its thread."""
        mine = self._columns
        if not len(self.rows) or not len(time_ns):
            return np.full(len(time_ns), UNKNOWN, np.int64)
        keys = thread_keys(mine["process"], mine["thread"], process, thread)
        times = ends(mine["begin_ns"], mine["duration_ns"])
        row = enclosing(*times, keys[0], time_ns, keys[1])
        found: IntArray = np.where(row == UNKNOWN, UNKNOWN, mine["name"][np.maximum(row, 0)])
        return found


def _spread(lengths: IntArray | FloatArray) -> tuple[IntArray, FloatArray]:
    """Return `MOMENTS` that are spread evenly over intervals of some lengths, as if one followed
    the other: the number of its interval, and how far in it each is (0 to 1)."""
    until = np.cumsum(lengths)
    moments = (np.arange(MOMENTS) + 0.5) / MOMENTS * until[-1]
    place = np.minimum(np.searchsorted(until, moments, "right"), len(lengths) - 1)
    part = (moments - (until - lengths)[place]) / lengths[place]
    return place, np.clip(part, 0.0, 1.0)


def _largest(numbers: IntArray, weight: FloatArray, total: float) -> tuple[int, float]:
    """Return the number with most of a weight, and its share of the total."""
    known = numbers != UNKNOWN
    if not known.any():
        return UNKNOWN, 0.0
    summed = np.bincount(numbers[known], weight[known])
    return int(summed.argmax()), float(summed.max()) / total


def _joined(found: Sequence[_Moments]) -> _Moments:
    names = ("weight", "line", "module", "region", "later", "operator")
    return _Moments(*(np.concatenate([getattr(e, n) for e in found]) for n in names))


def _text(texts: Sequence[str], number: int) -> str:
    return texts[number] if 0 <= number < len(texts) else ""
