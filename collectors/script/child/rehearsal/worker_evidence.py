"""What the workers of a DataLoader begin with: their generators of random numbers, and memory.

A worker gets a copy of the data set. Where that holds a generator, each worker's copy gives the
same numbers, and in each epoch the same ones again, unless the script seeds them by worker. Its
memory is the script's own until one of them writes, as each look at a Python object does.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from gpuadvisor.collectors.script.child.channel import guarded
from gpuadvisor.collectors.script.child.rehearsal.dataset_state import State, state_of
from gpuadvisor.collectors.script.child.rehearsal.generators import (
    GeneratorState,
    generator_state,
    library_generators,
)
from gpuadvisor.collectors.script.child.rehearsal.memory import shared_bytes
from gpuadvisor.collectors.script.child.rehearsal.record import Record
from gpuadvisor.domain.rehearsal import WorkerStart

FETCHES = (1, 2, 4, 8)
"""Batches of a pass after which a worker looks which generators were drawn from, as an augmentation
may be left out for many samples, and how much memory it has copied."""


class WorkerWatch:
    """Stands in for a loader's `worker_init_fn`: runs it, then watches the worker it runs in.

    It is pickled for workers that are spawned.
    """

    def __init__(
        self, init: Callable[[int], Any] | None, loader: int, epoch: int, record: Record
    ) -> None:
        self._init = init
        self._loader = loader
        self._epoch = epoch
        self._record = record

    def __call__(self, worker: int) -> None:
        if self._init is not None:
            self._init(worker)
        with guarded(self._record, "watch a loader's worker"):
            _Watcher(self._init, self._loader, self._epoch, worker, self._record).install()


class _Watcher:
    """Watches the fetchers of a worker: torch makes one for each pass."""

    def __init__(self, init: Any, loader: int, epoch: int, worker: int, record: Record) -> None:
        self._init = init
        self._loader = loader
        self._epoch = epoch - 1
        self._worker = worker
        self._record = record
        self._state: State
        self._start: dict[str, str] = {}
        self._advanced: dict[str, None] = {}
        self._fetches = 0
        self._shared_bytes: int | None = None

    def install(self) -> None:
        """Patch torch's fetchers, in this process alone."""
        fetch: Any = sys.modules["torch.utils.data._utils.fetch"]
        base = fetch._BaseDatasetFetcher
        make = base.__init__

        @functools.wraps(make)
        def init(fetcher: Any, dataset: Any, auto: Any, collate_fn: Any, *rest: Any) -> None:
            make(fetcher, dataset, auto, collate_fn, *rest)
            with guarded(self._record, "look at a worker's generators"):
                self._begin(fetcher)

        base.__init__ = init
        for cls in (fetch._MapDatasetFetcher, fetch._IterableDatasetFetcher):
            self._patch_fetch(cls)

    def _patch_fetch(self, cls: Any) -> None:
        original = cls.fetch

        @functools.wraps(original)
        def fetch(fetcher: Any, index: Any) -> Any:
            try:
                return original(fetcher, index)
            finally:
                with guarded(self._record, "look at a worker's generators"):
                    self._fetched(fetcher)

        cls.fetch = fetch

    def _begin(self, fetcher: Any) -> None:
        self._epoch += 1
        self._fetches = 0
        self._advanced = {}
        self._state = self._state_of(fetcher)
        self._start = {path: part.digest for path, part in self._state.generators.items()}

    def _fetched(self, fetcher: Any) -> None:
        self._fetches += 1
        if self._fetches not in FETCHES:
            return
        known = len(self._advanced)
        # It takes 10 ms, and later passes are timed.
        shared = shared_bytes() if self._epoch == 0 else None
        copied = None
        if self._fetches == 1:
            self._shared_bytes = shared
        elif self._shared_bytes is not None and shared is not None:
            copied = max(0, self._shared_bytes - shared) / (self._fetches - 1)
        state = self._state_of(fetcher)
        for path, now in state.generators.items():
            self._compare(path, now)
        if self._fetches == 1 or len(self._advanced) > known or copied is not None:
            start = WorkerStart(
                self._loader,
                self._epoch,
                self._worker,
                dict(self._start),
                tuple(self._advanced),
                self._shared_bytes,
                copied,
            )
            self._record.send("worker", **asdict(start))

    def _compare(self, path: str, now: GeneratorState) -> None:
        """Note whether numbers were drawn from a generator since the pass began.

        One that was made or seeded in it counts as it is after that: its seed is not seen.
        """
        before = self._state.generators.get(path)
        if path in self._advanced or (before is not None and before.digest == now.digest):
            return
        if before is None or not before.was_drawn_to(now):
            self._start[path] = f"seeded {now.digest}"
        self._advanced[path] = None

    def _state_of(self, fetcher: Any) -> State:
        roots = {"dataset": fetcher.dataset, "collate_fn": fetcher.collate_fn}
        if self._init is not None:
            roots["worker_init_fn"] = self._init
        state = state_of(roots)
        libraries = {path: generator_state(each) for path, each in library_generators().items()}
        return replace(state, generators={**libraries, **state.generators})


def watch_workers(numbers: Callable[[Any], tuple[int, int]], record: Record) -> None:
    """Have the workers of every DataLoader write down what they begin each pass with.

    `numbers` returns a loader's number and that of the pass which its new workers begin with.
    """
    dataloader: Any = sys.modules["torch.utils.data.dataloader"]
    cls = dataloader._MultiProcessingDataLoaderIter
    original = cls.__init__

    @functools.wraps(original)
    def init(self: Any, loader: Any, *args: Any, **kwargs: Any) -> None:
        own = vars(loader)
        before = own.get("worker_init_fn")
        with guarded(record, "watch a loader's workers"):
            library_generators()  # which forked workers then know already
            own["worker_init_fn"] = WorkerWatch(before, *numbers(loader), record)
        try:
            original(self, loader, *args, **kwargs)
        finally:
            own["worker_init_fn"] = before

    cls.__init__ = init
