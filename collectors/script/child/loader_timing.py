"""Times a script's DataLoader alone, under settings that gpuadvisor orders, before its first batch.

It runs in a process of the script that is there for nothing else: the script stands still where it
would begin to read, and never goes on. The loader's workers are forked from there in each block, as
the script's own would be.
"""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable, Iterator, Mapping
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from gpuadvisor.collectors.script.child.channel import leave
from gpuadvisor.collectors.script.child.rehearsal.dataset_state import (
    MAIN_PROCESS,
    changes,
    loader_roots,
    state_of,
)
from gpuadvisor.domain.target import Target, context_of_workers

KNOBS = {
    "dataloader_workers": "num_workers",
    "prefetch_factor": "prefetch_factor",
    "pin_memory": "pin_memory",
}
"""Knobs that it can time, to the attribute of a DataLoader that each sets."""
TIMEOUT_S = 30.0
"""Longest wait for a batch of workers: a lock that was held when they were forked stays so."""
PREFETCHED = 2
"""Batches a worker that torch prepares where the script does not say how many."""


class _Supply:
    """The loader that is waited for, and the blocks in which it is read."""

    def __init__(self, target: Target, options: Mapping[str, Any], iterate: Any) -> None:
        self._target = target
        self._orders = Path(options["orders"])
        self._place: int = options["place"]
        self._batch_size: int | None = options["batch_size"]
        self._iterate: Callable[[Any], Iterator[Any]] = iterate
        """The DataLoader's own `__iter__`."""
        self._datasets: list[Any] = []
        """Data sets in the order in which the script began to read them."""
        self._settings: Mapping[str, Any] | None = None
        """Settings of the block before, whose workers go on; None where no workers do."""
        self._made: Any = None
        self._pass: Any = None
        """The DataLoader of the block before, and its pass as far as it was read."""

    def begin(self, loader: Any) -> Iterator[Any]:
        """Stand in for `DataLoader.__iter__`; does not return for the loader that is wanted."""
        if self._is_wanted(loader):
            self._follow_orders(loader)
        return self._iterate(loader)

    def _is_wanted(self, loader: Any) -> bool:
        from torch.utils.data import get_worker_info

        if get_worker_info() is not None:  # a loader within a worker of another
            return False
        if not any(each is loader.dataset for each in self._datasets):
            self._datasets.append(loader.dataset)
        if len(self._datasets) <= self._place:
            return False
        size = getattr(loader._index_sampler, "batch_size", None)
        size = size if isinstance(size, int) else None
        return self._datasets[self._place] is loader.dataset and size == self._batch_size

    def _follow_orders(self, loader: Any) -> None:
        before = state_of(loader_roots(loader))
        with self._orders.open(encoding="utf-8") as orders:
            self._tell(ready=sorted(KNOBS))
            while line := orders.readline():
                order = json.loads(line)
                if order.get("end"):
                    self._stop()
                    leave(0)
                ordered_s = time.perf_counter()
                try:
                    began_s, lasted_s, batches = self._block(loader, order)
                except Exception as error:
                    self._stop()
                    self._tell(failed=_sentence(error))
                else:
                    self._tell(
                        step_ms=1e3 * lasted_s / batches, steps=batches, cost_s=began_s - ordered_s
                    )
                after = state_of(loader_roots(loader))
                if any(_is_of_samples(path) for path, _, _ in changes(before, after)):
                    leave(0)  # another block would not begin where this one did
        leave(1)  # gpuadvisor is gone

    def _block(self, loader: Any, order: Mapping[str, Any]) -> tuple[float, float, int]:
        """Return when timing began, how long it lasted in seconds, and the batches in it.

        A block of the same settings as the one before goes on with its workers. Where a pass ends
        before, whole passes are timed, workers' starts included.
        """
        seconds = order["seconds"]
        try:
            if order["settings"] != self._settings:
                self._start(loader, order["settings"])
            began_s = time.perf_counter()
            lasted_s, taken = 0.0, 0
            while lasted_s < seconds:  # in rounds, of which each worker gives one batch
                for _ in range(max(self._made.num_workers, 1)):
                    next(self._pass)
                    taken += 1
                lasted_s = time.perf_counter() - began_s
            return began_s, lasted_s, taken
        except StopIteration:
            made = self._made
            self._stop()
        began_s = time.perf_counter()
        lasted_s, taken = 0.0, 0
        try:
            while lasted_s < seconds:
                before = taken
                for _ in self._batches(made):
                    taken += 1
                if taken == before:
                    raise RuntimeError("it gives no batches")
                lasted_s = time.perf_counter() - began_s
        finally:
            _end_workers(made._iterator)
        return began_s, lasted_s, taken

    def _start(self, loader: Any, settings: Mapping[str, Any]) -> None:
        """Begin a pass under other settings; StopIteration where it is too short."""
        from torch.utils.data import IterableDataset

        self._stop()
        made = self._made = _with(loader, settings)
        if isinstance(loader.dataset, IterableDataset) and made.num_workers != loader.num_workers:
            raise RuntimeError("it streams an IterableDataset, which more workers would repeat")
        self._pass = self._batches(made)
        # What workers prepare while others are still being started is no supply that lasts.
        for _ in range(made.num_workers * (made.prefetch_factor or 0) or 1):
            next(self._pass)
        self._settings = settings

    def _stop(self) -> None:
        """End the pass that is being read, and its workers."""
        if self._pass is not None:
            self._pass.close()
            _end_workers(self._made._iterator)
        self._settings = self._made = self._pass = None

    def _batches(self, made: Any) -> Any:
        """Yield the batches of one pass; of its own workers, none is left when it is closed."""
        iterator: Any = self._iterate(made)
        try:
            while True:
                try:
                    batch = next(iterator)
                except StopIteration:
                    return
                yield batch
        finally:
            if iterator is not made._iterator:
                _end_workers(iterator)

    def _tell(self, **fields: Any) -> None:
        self._target.tell(json.dumps(fields))


def _with(loader: Any, settings: Mapping[str, Any]) -> Any:
    """Return a copy of a DataLoader with other settings, which the script's own code made."""
    made = copy.copy(loader)
    own = vars(made)
    own.update({KNOBS[name]: value for name, value in settings.items()}, _iterator=None)
    context = "_DataLoader__multiprocessing_context"
    if own["num_workers"]:
        if not loader.num_workers and (method := context_of_workers()):
            own[context] = get_context(method)
        own["prefetch_factor"] = own["prefetch_factor"] or PREFETCHED
        own["timeout"] = own["timeout"] or TIMEOUT_S
    else:
        own.update(prefetch_factor=None, timeout=0, persistent_workers=False)
        own[context] = None
    return made


def _end_workers(iterator: Any) -> None:
    if iterator is not None and iterator._num_workers:
        iterator._shutdown_workers()


def _is_of_samples(path: str) -> bool:
    """Say whether a path is of what samples are made of, and not of what orders them."""
    root = path.split(".", 1)[0].split("[", 1)[0]
    return root not in (*MAIN_PROCESS, "torch", "random", "numpy")


def _sentence(error: Exception) -> str:
    """Return what went wrong; of a worker's traceback, the last line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[-1] if lines else ""
    if "Traceback (most recent call last)" not in str(error):
        text = f"{type(error).__name__}: {lines[0] if lines else ''}".rstrip(": ")
    return text[:300]


class SupplyTimer:
    """Applier that the specification of a run names: it has the script's loader timed in blocks."""

    def apply(self, value: str, target: Target) -> None:
        """Apply the options, a JSON object of `orders`, the path of a named pipe; `place`, the
        number of the loader's data set among those that the script reads; and `batch_size`.
        """
        from torch.utils.data import DataLoader

        supply = _Supply(target, json.loads(value), DataLoader.__iter__)

        def begin(loader: Any) -> Iterator[Any]:
            return supply.begin(loader)

        DataLoader.__iter__ = begin


SUPPLY = SupplyTimer()
