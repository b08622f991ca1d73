"""Passes over DataLoaders: shortened, timed, and written down with what they gave."""

from __future__ import annotations

import functools
import gc
import inspect
import math
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from gpuadvisor.collectors.script.child.channel import guarded
from gpuadvisor.collectors.script.child.counters import nothing
from gpuadvisor.collectors.script.child.rehearsal.dataset_state import (
    State,
    StateWatch,
    fed_back,
    loader_roots,
    state_of,
)
from gpuadvisor.collectors.script.child.rehearsal.fewer_samples import keep_fewer
from gpuadvisor.collectors.script.child.rehearsal.generators import (
    GLOBAL,
    global_digests,
)
from gpuadvisor.collectors.script.child.rehearsal.record import Record
from gpuadvisor.collectors.script.child.rehearsal.reseeding import ReseedingWatch
from gpuadvisor.collectors.script.child.rehearsal.short_sampler import (
    ShortSampler,
    short_batches,
    whole_batches,
)
from gpuadvisor.collectors.script.child.rehearsal.worker_evidence import watch_workers
from gpuadvisor.collectors.script.child.shortening.progress import Progress
from gpuadvisor.domain.rehearsal import Moment, StateChange, StateKind

OWN_BATCH = "_gpuadvisor_own_batch"
"""Attribute of a DataLoader: the batch size with which the script itself built it."""
LOOKED_S = 0.5
"""Seconds of a life for looking at data sets between batches: some of large ones, all of others."""
WATCHED = 4
"""Batches of a pass at which one looks whether reading draws random numbers."""
WEIGHTS = frozenset({"sampler.weights", "batch_sampler.sampler.weights"})
"""Paths of what torch's `WeightedRandomSampler` draws a whole pass by as it begins."""
WHOLE = "_gpuadvisor_whole_batches"
"""Attribute of a DataLoader whose data set was made smaller: batches that a pass had before."""
SHORT = "_gpuadvisor_short"
"""Attribute of a DataLoader: what stands for its index sampler."""


class Part(NamedTuple):
    """What is kept of a part of a batch, such as its images or its labels."""

    samples: list[int]
    """A fingerprint of each sample."""
    moments: Sequence[float] = ()
    """Mean and standard deviation of each sample's values, in turn."""
    unpadded: Sequence[tuple[int, int]] = ()
    """Each sample's fingerprint without padding, and the bits of the number that pads it."""


class Passes:
    """Stands in DataLoader's construction, iteration and end."""

    def __init__(
        self,
        torch: Any,
        record: Record,
        batches: int,
        read: Callable[[Any], list[Part]],
        steps: Callable[[], int],
        between: Callable[[], None],
        progress: Progress,
        fewer_samples: bool = False,
    ) -> None:
        """Prepare to shorten passes to so many batches of the script's own size.

        `read` returns what is kept of each part of a batch; `steps` counts optimizer steps;
        `between` is called before and after each pass; `progress` is told of all. With
        `fewer_samples` it is the data sets that are shortened where they can be.
        """
        self._torch = torch
        self._record = record
        self._batches = batches
        self._read = read
        self._steps = steps
        self._between = between
        self._progress = progress
        self._fewer_samples = fewer_samples
        self._whole: list[tuple[Callable[[], Any], int]] = []
        """The data sets that were made smaller, and how many samples each had."""
        self._datasets: list[Callable[[], Any]] = []
        """The data sets of the loaders that gave batches; each gives None once it is gone."""
        self._kinds: list[tuple[type, int | None]] = []
        self._counts: list[int] = []
        """Passes over each of them."""
        self._states = States(torch, record)
        self._open: dict[int, Pass] = {}
        """The newest pass over each data set, until it is written down."""

    def install(self) -> None:
        """Patch DataLoader; call it after knobs have, so that the script's own arguments show."""
        loader: Any = self._torch.utils.data.DataLoader
        self._patch_constructor(loader)
        self._patch_sampler(loader)
        self._patch_iteration(loader)
        watch_workers(self._newest, self._record)

    def _newest(self, loader: Any) -> tuple[int, int]:
        """Return the number of a loader and that of the pass that is about to begin."""
        place = self._place(loader.dataset)
        return place, max(0, self._counts[place] - 1)

    def restart(self) -> None:
        """Forget the passes in progress, as a forked process does about its parent's."""
        self._open.clear()

    def add_own_time(self, seconds: float) -> None:
        """Take time that the harness spent out of those of the passes that go on."""
        for pass_ in self._open.values():
            pass_.own_s += seconds

    def finish(self) -> None:
        """Write down the passes that the script did not read to their end."""
        for pass_ in list(self._open.values()):
            self._end(pass_, finished=False)

    def _patch_constructor(self, loader: Any) -> None:
        original = loader.__init__
        signature = inspect.signature(original)

        @functools.wraps(original)
        def init(this: Any, *args: Any, **kwargs: Any) -> None:
            if OWN_BATCH not in vars(this):
                try:
                    size = signature.bind(this, *args, **kwargs).arguments.get("batch_size", 1)
                except TypeError:
                    size = None
                object.__setattr__(this, OWN_BATCH, size if isinstance(size, int) else None)
                if self._fewer_samples and isinstance(size, int) and size > 0:
                    given = signature.bind(this, *args, **kwargs).arguments
                    self._keep_fewer(this, given["dataset"], size, bool(given.get("drop_last")))
            original(this, *args, **kwargs)

        loader.__init__ = init

    def _keep_fewer(self, loader: Any, dataset: Any, size: int, drops_last: bool) -> None:
        """Make the data set smaller that a loader is given, and note how long its passes were."""
        known = next((count for find, count in self._whole if find() is dataset), None)
        if known is None and (known := keep_fewer(dataset, self._batches, size)) is not None:
            self._whole.append((_finder(dataset), known))
        if known is not None:
            batches = known // size if drops_last else math.ceil(known / size)
            object.__setattr__(loader, WHOLE, batches)

    def _patch_sampler(self, loader: Any) -> None:
        original = loader._index_sampler.fget
        torch, batches = self._torch, self._batches

        def index_sampler(this: Any) -> Any:
            sampler = original(this)
            short = vars(this).get(SHORT)
            if short is None or short._sampler is not sampler:
                own = vars(this).get(OWN_BATCH)
                short = ShortSampler(torch, sampler, batches, own)
                object.__setattr__(this, SHORT, short)
            return short

        loader._index_sampler = property(index_sampler)

    def _patch_iteration(self, loader: Any) -> None:
        from torch.utils.data import dataloader

        base: Any = dataloader._BaseDataLoaderIter
        iterate, following = loader.__iter__, base.__next__

        @functools.wraps(iterate)
        def begin(this: Any) -> Iterator[Any]:
            pass_ = self._begin(this)
            iterator = iterate(this)
            pass_.made_s = time.perf_counter() - pass_.began_s
            object.__setattr__(iterator, "_gpuadvisor_pass", pass_)
            return iterator  # type: ignore[no-any-return]

        @functools.wraps(following)
        def follow(this: Any) -> Any:
            pass_ = getattr(this, "_gpuadvisor_pass", None)
            if pass_ is None:
                return following(this)
            if pass_.batches:
                with pass_:
                    self._states.next_wanted(pass_)
            # The first batch of a pass draws the order of all.
            watched = not this._num_workers and 0 < len(pass_.batches) <= WATCHED
            before = global_digests() if watched else None
            try:
                batch = following(this)
            except StopIteration:
                self._end(pass_, finished=True)
                raise
            with pass_:
                if before is not None:
                    self._states.drawn(pass_.place, pass_.number, before)
                pass_.take(self._read(batch))
                self._states.batch_given(pass_)
                self._progress.batch_given(pass_.serial)
            return batch

        loader.__iter__, base.__next__ = begin, follow

    def _begin(self, loader: Any) -> Pass:
        place = self._place(loader.dataset)
        if place in self._open:
            self._end(self._open[place], finished=False)
        number = self._counts[place]
        self._counts[place] += 1
        began_s = time.perf_counter()
        self._states.begin(loader, place)
        self._between()
        self.add_own_time(time.perf_counter() - began_s)  # of passes around this one
        whole = vars(loader).get(WHOLE) or whole_batches(loader._index_sampler)
        pass_ = self._open[place] = Pass(loader, place, number, whole, self._steps())
        pass_.serial = self._progress.pass_began(
            pass_.whole_batches, short_batches(loader._index_sampler)
        )
        return pass_

    def _place(self, dataset: Any) -> int:
        """Return the number of a data set, in the order in which they were first read.

        A new one of the type and length of one that is gone, as scripts make them in each epoch,
        takes its place.
        """
        known = [find() for find in self._datasets]
        place = next((n for n, each in enumerate(known) if each is dataset), None)
        if place is None:
            kind = _kind(dataset)
            if kind in self._kinds:
                del known
                gc.collect()  # a loader and its workers' iterator keep each other alive
                known = [find() for find in self._datasets]
            gone = (n for n, each in enumerate(known) if each is None and self._kinds[n] == kind)
            place = next(gone, None)
        if place is None:
            place = len(known)
            self._datasets.append(nothing)
            self._kinds.append(_kind(dataset))
            self._counts.append(0)
        self._datasets[place] = _finder(dataset)
        return place

    def _end(self, pass_: Pass, finished: bool) -> None:
        if pass_.over:
            return
        pass_.over = True
        if self._open.get(pass_.place) is pass_:
            del self._open[pass_.place]
        (self._progress.pass_ended if finished else self._progress.pass_left)(pass_.serial)
        ended_s = time.perf_counter()
        self._states.end(pass_.loader, pass_.place)
        self._record.send(
            "epoch",
            loader=pass_.place,
            number=pass_.number,
            batches=pass_.batches,
            rows=pass_.rows,
            whole_batches=pass_.whole_batches,
            made_s=pass_.made_s,
            start_s=pass_.first_s - pass_.began_s if pass_.batches else 0.0,
            seconds=ended_s - pass_.first_s - pass_.own_s if pass_.batches else 0.0,
            steps=self._steps() - pass_.steps,
            finished=finished,
            workers=int(pass_.loader.num_workers),
            open_files=max(0, pass_.files[-1] - pass_.files[0]) if pass_.files else 0,
        )
        pass_.loader = None
        self._between()
        self.add_own_time(time.perf_counter() - ended_s)


class States:
    """Writes down what changes in the data sets as they are read, and between passes."""

    def __init__(self, torch: Any, record: Record) -> None:
        self._torch = torch
        self._record = record
        self._watches: dict[int, StateWatch] = {}
        self._known: set[tuple[Any, ...]] = set()
        self._given: tuple[Pass | None, State | None] = (None, None)
        """The pass of the newest batch, and its loader's state when that was given."""
        self._looked_s = 0.0
        """What looking between batches has taken."""
        self._reseeding = ReseedingWatch()

    def begin(self, loader: Any, place: int) -> None:
        """Look at a loader before the first batch of a pass."""
        with guarded(self._record, "look at a data set"):
            watch = self._watches.setdefault(place, StateWatch(place))
            state = state_of(loader_roots(loader))
            self._reseeding.begin(place, state, loader)
            self._write(watch.pass_begins(loader, state))
            for path, code in state.possible.items():
                self._once("possible", loader=place, path=path, code=code)
            for path in watch.unseen:
                self._once("unseen", path=path)

    def end(self, loader: Any, place: int) -> None:
        """Look at a loader after a pass."""
        watch = self._watches.get(place)
        if watch is not None:
            with guarded(self._record, "look at a data set"):
                self._write(watch.pass_ends(state_of(loader_roots(loader))))

    def batch_given(self, pass_: Pass) -> None:
        """Look at a loader as the script gets a batch, while that has cost little."""
        if self._looked_s < LOOKED_S:
            with guarded(self._record, "look at a data set"):
                self._given = pass_, self._look(pass_)
                for reseeding in self._reseeding.found(pass_.place):
                    self._once("reseeded", **asdict(reseeding))

    def next_wanted(self, pass_: Pass) -> None:
        """Look once more, as it wants the next: what changed, the script did with the batch."""
        of, before = self._given
        if before is not None and of is pass_:
            with guarded(self._record, "look at a data set"):
                has_workers = bool(pass_.loader.num_workers)
                kind = self._torch.utils.data.WeightedRandomSampler
                drawn = WEIGHTS if type(pass_.loader.sampler) is kind else frozenset()
                found = fed_back(before, self._look(pass_), has_workers, drawn)
                self._write([StateChange(pass_.place, pass_.number, path, kind,
                                         Moment.BETWEEN_BATCHES, detail)
                             for path, kind, detail in found])  # fmt: skip
        self._given = None, None

    def _look(self, pass_: Pass) -> State:
        began_s = time.perf_counter()
        state = state_of(loader_roots(pass_.loader))
        self._reseeding.look(pass_.place, state)
        self._looked_s += time.perf_counter() - began_s
        return state

    def drawn(self, place: int, number: int, before: dict[str, str]) -> None:
        """Note which of them the last batch drew from."""
        for path, digest in global_digests().items():
            if digest != before.get(path):
                change = StateChange(place, number, path, StateKind.GENERATOR, Moment.READING)
                self._write([change], of_process=True)

    def _write(self, changes: list[StateChange], of_process: bool = False) -> None:
        for change in changes:
            # In a whole pass the model draws from the process's own generators, too.
            if change.path in GLOBAL and not of_process:
                continue
            self._once("change", **asdict(change))

    def _once(self, record: str, **fields: Any) -> None:
        key = (record, *fields.values())
        if key not in self._known:
            self._known.add(key)
            self._record.send(record, **fields)


class Pass:
    """One pass in progress. As a context, it does not count its time as the script's."""

    def __init__(
        self, loader: Any, place: int, number: int, whole_batches: int | None, steps: int
    ) -> None:
        self.loader = loader
        self.place = place
        self.number = number
        self.whole_batches = whole_batches
        self.steps = steps
        self.serial = 0
        """Number of the pass among those of all loaders."""
        self.batches: list[dict[str, Any]] = []
        self.rows = 0
        self.files: list[int] = []
        """Open files of the process at each batch."""
        self.over = False
        self.own_s = self.made_s = 0.0
        self.began_s = self.first_s = time.perf_counter()

    def take(self, parts: list[Part]) -> None:
        """Keep what a batch consists of."""
        self.batches.append(
            {
                "parts": [part.samples for part in parts],
                "moments": [part.moments for part in parts],
                "unpadded": [part.unpadded for part in parts],
            }
        )
        self.rows += max((len(part.samples) for part in parts), default=0)
        with suppress(OSError):  # not Linux
            self.files.append(sum(1 for _ in Path("/proc/self/fd").iterdir()))

    def __enter__(self) -> None:
        self._entered_s = time.perf_counter()
        if not self.batches:
            self.first_s = self._entered_s

    def __exit__(self, *_: object) -> None:
        self.own_s += time.perf_counter() - self._entered_s


def _finder(thing: Any) -> Callable[[], Any]:
    """Return a weak reference to a thing, or a strong one where it allows no other."""
    try:
        return weakref.ref(thing)
    except TypeError:
        return lambda: thing


def _kind(dataset: Any) -> tuple[type, int | None]:
    """Return what two data sets share of which one follows the other: their type and length."""
    try:
        return type(dataset), len(dataset)
    except Exception:  # an IterableDataset, or one of the script's own making
        return type(dataset), None
