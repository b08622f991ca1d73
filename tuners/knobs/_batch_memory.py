"""Shared memory that a DataLoader's worker uses for one batch after another.

The worker numbers what it sends in a segment. The script's process keeps the segment mapped, and
when nothing there refers to it any more writes that number at its end; from then on the worker may
use it again, if nothing in the worker refers to it either. A segment that the script's process
sends on to another one is left to that one.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.reduction import ForkingPickler
from typing import Any

LEAST_BYTES = 1 << 20
"""Of a tensor: new memory for a smaller one takes less than 1 ms."""
MOST_SEGMENTS = 8
"""Of one worker that are kept: two batches wait by default, and one is built."""
LARGEST = 2
"""Times the size of a tensor that its memory may have, where sizes vary."""
TAIL_BYTES = 64
"""At the end of a segment: the number of the last batch that the script is done with."""


@dataclass(eq=False)
class _Segment:
    """Memory that a worker and the script's process share, as one of them sees it."""

    storage: Any
    """A `torch.UntypedStorage`, with `TAIL_BYTES` at its end."""
    number: int = 0
    """Of the last batch that was sent in it, counted by the worker."""
    process: int = 0
    """The worker's."""
    is_done: bool = False
    """Whether the script's process is done with it, and has said so."""

    @property
    def done(self) -> ctypes.c_int64:
        """The number of the last batch that the script's process is done with."""
        address = self.storage.data_ptr() + self.storage.nbytes() - TAIL_BYTES
        return ctypes.c_int64.from_address(address)

    @property
    def is_alone(self) -> bool:
        """Whether nothing else in this process refers to it: no tensor, no view, no array."""
        import torch

        # Before torch 2.10 or so a tensor shows in the second count only, a storage in the first.
        only_here = sys.getrefcount(self.storage) <= 2  # the attribute and the argument
        return only_here and torch._C._storage_Use_Count(self.storage._cdata) == 1


# -- in a worker -----------------------------------------------------------------------------------


class _Sent(_Segment):
    """A worker's own; `number` is 0 until it sends a batch."""

    @property
    def is_free(self) -> bool:
        return self.number == self.done.value and self.is_alone


class _Segments:
    """The shared memory of one worker."""

    def __init__(self, new: Callable[[int], Any]) -> None:
        self._new = new
        self._kept: list[_Sent] = []
        self._lock = threading.Lock()  # one thread builds batches, another one sends them

    def take(self, size: int) -> Any:
        """Return a storage of at least so many bytes."""
        with self._lock:
            free = [segment for segment in self._kept if segment.is_free]
            fitting = [each for each in free if self._fits(each.storage.nbytes(), size)]
            if fitting:
                # From here on it is not alone, which is what the other thread asks.
                return min(fitting, key=lambda segment: segment.storage.nbytes()).storage
            if len(self._kept) == MOST_SEGMENTS:
                if not free:
                    return self._new(size)
                self._kept.remove(free[0])
            storage = self._new(size + TAIL_BYTES + -size % TAIL_BYTES)
            self._kept.append(_Sent(storage))
            return storage

    def of(self, storage: Any) -> _Sent | None:
        """Return the segment of a storage, or None if it is not one of these."""
        with self._lock:
            return next((s for s in self._kept if s.storage._cdata == storage._cdata), None)

    @staticmethod
    def _fits(nbytes: int, size: int) -> bool:
        return size + TAIL_BYTES <= nbytes <= LARGEST * size + 2 * TAIL_BYTES


def reuse(worker_id: int = 0) -> None:
    """Reuse memory in this worker process; to be a DataLoader's `worker_init_fn`."""
    import torch
    from torch.multiprocessing import get_sharing_strategy, reductions

    if get_sharing_strategy() != "file_descriptor" or not hasattr(torch._C, "_storage_Use_Count"):
        return
    usual = torch.UntypedStorage._new_shared
    segments = _Segments(usual)

    def new_shared(cls: Any, size: int, *, device: Any = "cpu") -> Any:
        if size < LEAST_BYTES or torch.device(device).type != "cpu":
            return usual(size, device=device)
        return segments.take(size)

    def reduce_storage(storage: Any) -> Any:
        """Send one of the segments, into which other memory is copied: torch does that as well."""
        if storage.device.type != "cpu" or storage.nbytes() < LEAST_BYTES:
            return reductions.reduce_storage(storage)
        if not storage.is_shared():
            storage = _copied(storage, segments.take(storage.nbytes()))
        segment = segments.of(storage)
        usually = reductions.reduce_storage(storage)
        if segment is None or usually[0] is not reductions.rebuild_storage_fd:
            return usually
        segment.number += 1
        return rebuild, (*usually[1], segment.number, os.getpid())

    torch.UntypedStorage._new_shared = classmethod(new_shared)
    ForkingPickler.register(torch.UntypedStorage, reduce_storage)


def _copied(storage: Any, shared: Any) -> Any:
    import torch

    def whole(memory: Any) -> torch.Tensor:
        return torch.empty(0, dtype=torch.uint8).set_(memory, 0, (storage.nbytes(),))

    whole(shared).copy_(whole(storage))
    return shared


# -- in the script's process -----------------------------------------------------------------------


class _Arrivals(threading.local):
    """What arrived in one thread: the one that pins, or the script's own.

    Its end is that of what it holds.
    """

    def __init__(self) -> None:
        self.segments: dict[int, _Segment] = {}


_ARRIVALS = _Arrivals()
_SENT_ON: set[int] = set()
_TOLD: list[Callable[[], None]] = []


def rebuild(cls: Any, descriptor: Any, size: int, number: int, process: int) -> Any:
    """Take a segment that a worker has sent, and give back those that nobody refers to any more.

    The worker's pickle names this function.
    """
    import torch
    from torch.multiprocessing import reductions

    if ForkingPickler._extra_reducers.get(torch.UntypedStorage) is not _send_on:  # type: ignore[attr-defined]
        ForkingPickler.register(torch.UntypedStorage, _send_on)
    segments = _ARRIVALS.segments
    for key, segment in segments.items():
        if not segment.is_done and segment.is_alone and key not in _SENT_ON:
            segment.done.value = segment.number
            segment.is_done = True
    storage = reductions.rebuild_storage_fd(cls, descriptor, size)  # as it was mapped before
    if segments.pop(storage._cdata, None) is None:
        _forget(segments, process)
    else:
        for effective in _TOLD:
            effective()
    segments[storage._cdata] = _Segment(storage, number, process)
    return storage


def _forget(segments: dict[int, _Segment], process: int) -> None:
    """Let go what no worker uses any more: those of workers that ended, or took other memory."""
    for key in [key for key, segment in segments.items() if not _lives(segment.process)]:
        del segments[key]
    done = [key for key, segment in segments.items() if segment.process == process]
    done = [key for key in done if segments[key].is_done]
    for key in done[: max(0, len(done) + 1 - MOST_SEGMENTS)]:  # the oldest
        del segments[key]


def _send_on(storage: Any) -> Any:
    """Send a storage from the script's process as torch does, and remember that."""
    from torch.multiprocessing import reductions

    _SENT_ON.add(storage._cdata)
    return reductions.reduce_storage(storage)


def tell(effective: Callable[[], None]) -> None:
    """Have a function called when a batch arrives in memory in which one has arrived before."""
    _TOLD.append(effective)


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True
