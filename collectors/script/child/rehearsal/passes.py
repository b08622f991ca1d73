"""Passes over DataLoaders: shortened, timed, and written down with what they gave."""

from __future__ import annotations

import functools
import inspect
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from gpuadvisor.collectors.script.child.counters import nothing
from gpuadvisor.collectors.script.child.rehearsal.record import Record
from gpuadvisor.collectors.script.child.rehearsal.samplers import ShortSampler, whole_batches

OWN_BATCH = "_gpuadvisor_own_batch"
"""Attribute of a DataLoader: the batch size with which the script itself built it."""
SHORT = "_gpuadvisor_short"
"""Attribute of a DataLoader: what stands for its index sampler."""


class Passes:
    """Stands in DataLoader's construction, iteration and end."""

    def __init__(
        self,
        torch: Any,
        record: Record,
        batches: int,
        read: Callable[[Any], list[tuple[list[int], list[float]]]],
        states: Callable[[Any, int, int, str], None],
        steps: Callable[[], int],
        ended: Callable[[], None],
    ) -> None:
        """Prepare to shorten passes to so many batches of the script's own size.

        `read` returns, for each part of a batch, fingerprints and moments of its samples; `states`
        is called with a loader, its place, the number of the pass and a moment (`begin`, `end`);
        `steps` counts optimizer steps; `ended` is called after each pass.
        """
        self._torch = torch
        self._record = record
        self._batches = batches
        self._read = read
        self._states = states
        self._steps = steps
        self._ended = ended
        self._datasets: list[Callable[[], Any]] = []
        """The data sets of the loaders that gave batches; each gives None once it is gone."""
        self._kinds: list[tuple[type, int | None]] = []
        self._counts: list[int] = []
        """Passes over each of them."""
        self._open: dict[int, Pass] = {}
        """The newest pass over each data set, until it is written down."""

    def install(self) -> None:
        """Patch DataLoader; call it after knobs have, so that the script's own arguments show."""
        loader: Any = self._torch.utils.data.DataLoader
        self._patch_constructor(loader)
        self._patch_sampler(loader)
        self._patch_iteration(loader)

    def restart(self) -> None:
        """Forget the passes in progress, as a forked process does about its parent's."""
        self._open.clear()

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
            original(this, *args, **kwargs)

        loader.__init__ = init

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
            try:
                batch = following(this)
            except StopIteration:
                self._end(pass_, finished=True)
                raise
            with pass_:
                pass_.take(self._read(batch))
            return batch

        loader.__iter__, base.__next__ = begin, follow

    def _begin(self, loader: Any) -> Pass:
        place = self._place(loader.dataset)
        if place in self._open:
            self._end(self._open[place], finished=False)
        number = self._counts[place]
        self._counts[place] += 1
        self._states(loader, place, number, "begin")
        pass_ = self._open[place] = Pass(
            loader, place, number, whole_batches(loader._index_sampler), self._steps()
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
        ended_s = time.perf_counter()
        self._states(pass_.loader, pass_.place, pass_.number, "end" if finished else "left")
        self._record.write(
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
        )
        pass_.loader = None
        self._ended()


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
        self.batches: list[dict[str, Any]] = []
        self.rows = 0
        self.over = False
        self.own_s = self.made_s = 0.0
        self.began_s = self.first_s = time.perf_counter()

    def take(self, parts: list[tuple[list[int], list[float]]]) -> None:
        """Keep what a batch consists of."""
        self.batches.append(
            {"parts": [samples for samples, _ in parts], "moments": [m for _, m in parts]}
        )
        self.rows += max((len(samples) for samples, _ in parts), default=0)

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
