"""What the workers of a DataLoader begin with: their generators of random numbers.

A worker gets a copy of the data set. Where that holds a generator, each worker's copy gives the
same numbers, and in each epoch the same ones again, unless the script seeds them by worker.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from gpuadvisor.collectors.script.child.channel import guarded
from gpuadvisor.collectors.script.child.rehearsal.dataset_state import State, state_of
from gpuadvisor.domain.rehearsal import StateKind, WorkerStart

FETCHES = (1, 2, 4, 8)
"""Batches of a pass after which a worker looks which generators were drawn from; it reports again
when there are more: an augmentation may be left out for many samples."""

Report = Callable[[WorkerStart], None]
"""Takes what a worker began with; must be picklable, as workers may be started by `spawn`."""


class WorkerWatch:
    """Stands in for a loader's `worker_init_fn`: runs it, then watches the worker it runs in."""

    def __init__(
        self, init: Callable[[int], Any] | None, loader: int, epoch: int, report: Report
    ) -> None:
        self._init = init
        self._loader = loader
        self._epoch = epoch
        self._report = report

    def __call__(self, worker: int) -> None:
        if self._init is not None:
            self._init(worker)
        with guarded(None, "watch a loader's worker"):
            _Watcher(self._init, self._loader, self._epoch, worker, self._report).install()


class _Watcher:
    """Watches the fetchers of a worker: torch makes one for each pass."""

    def __init__(self, init: Any, loader: int, epoch: int, worker: int, report: Report) -> None:
        self._init = init
        self._loader = loader
        self._epoch = epoch - 1
        self._worker = worker
        self._report = report
        self._start: dict[str, str] = {}
        self._advanced: dict[str, None] = {}
        self._fetches = 0

    def install(self) -> None:
        """Patch torch's fetchers, in this process alone."""
        fetch: Any = sys.modules["torch.utils.data._utils.fetch"]
        base = fetch._BaseDatasetFetcher
        make = base.__init__

        @functools.wraps(make)
        def init(fetcher: Any, dataset: Any, auto: Any, collate_fn: Any, *rest: Any) -> None:
            make(fetcher, dataset, auto, collate_fn, *rest)
            with guarded(None, "look at a worker's generators"):
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
                with guarded(None, "look at a worker's generators"):
                    self._fetched(fetcher)

        cls.fetch = fetch

    def _begin(self, fetcher: Any) -> None:
        self._epoch += 1
        self._fetches = 0
        self._advanced = {}
        self._start = self._generators(fetcher)

    def _fetched(self, fetcher: Any) -> None:
        self._fetches += 1
        if self._fetches not in FETCHES:
            return
        known = len(self._advanced)
        for path, digest in self._generators(fetcher).items():
            if path not in self._start:  # made for the first sample: what it is after that counts
                self._start[path] = f"made {digest}"
                self._advanced[path] = None
            elif digest != self._start[path] and not self._start[path].startswith("made"):
                self._advanced[path] = None
        if self._fetches == 1 or len(self._advanced) > known:
            self._report(
                WorkerStart(
                    self._loader,
                    self._epoch,
                    self._worker,
                    dict(self._start),
                    tuple(self._advanced),
                )
            )

    def _generators(self, fetcher: Any) -> dict[str, str]:
        roots = {"dataset": fetcher.dataset, "collate_fn": fetcher.collate_fn}
        if self._init is not None:
            roots["worker_init_fn"] = self._init
        return generators_in(state_of(roots))


def generators_in(state: State) -> dict[str, str]:
    """Return the digest of each generator of random numbers in a state, by its path."""
    return {
        path: part.digest for path, part in state.parts.items() if part.kind is StateKind.GENERATOR
    }


def watch_workers(torch: Any, numbers: Callable[[Any], tuple[int, int]], report: Report) -> None:
    """Have the workers of every DataLoader report what they begin each pass with.

    `numbers` returns a loader's number and that of the pass which its new workers begin with.
    """
    dataloader: Any = sys.modules["torch.utils.data.dataloader"]
    cls = dataloader._MultiProcessingDataLoaderIter
    original = cls.__init__

    @functools.wraps(original)
    def init(self: Any, loader: Any, *args: Any, **kwargs: Any) -> None:
        own = vars(loader)
        before = own.get("worker_init_fn")
        with suppress(Exception):
            own["worker_init_fn"] = WorkerWatch(before, *numbers(loader), report)
        try:
            original(self, loader, *args, **kwargs)
        finally:
            own["worker_init_fn"] = before

    cls.__init__ = init
