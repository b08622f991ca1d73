"""Hands a running script the batch that it already has, so that it need not wait for another.

It is no knob: it shows how fast a step is without any waiting for data, and with that what all
knobs of the loaders together can bring at most, and what other knobs bring to the computing. The
loaders stand still meanwhile, and go on with the batch that comes next. A script that goes on like
this for minutes gets another batch from time to time, so that it does not learn one by heart. It
may get it several times over in one, which shows what larger batches would bring to the computing.
"""

from __future__ import annotations

import time
import weakref
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from gpuadvisor.collectors.script.child.counters import ready_batches
from gpuadvisor.collectors.script.child.repeated_batch import Memory, of_parts, repeated
from gpuadvisor.collectors.script.child.trace import samples_in
from gpuadvisor.domain.knobs import Value
from gpuadvisor.domain.target import Target, Turn

LOOKED_AT = 64
"""Elements of a tensor that are compared with what it held: numpy's writes leave no other trace."""
LOOKS = 3
"""Times that a batch is given again until it is known whether the script writes to it in this way:
the steps before the first timed one. To look takes 0.3 ms, a tenth of a small step."""
FILLING_S = 5.0
"""Longest wait for workers that are still busy with batches to come: they would take the cores
from the steps that are timed."""
POLL_S = 0.01
RENEWED = 10.0
"""Times as long as it took to come that a batch is given again, at least, before the next one: so
the loader takes a tenth of the time at most."""


class _Held:
    """A batch that is handed again and again, and what it held at first."""

    due_s = 0.0
    """When the next one may take its place, by `time.perf_counter`."""

    def __init__(self, batch: Any) -> None:
        """Remember a batch that was not handed yet. RuntimeError where it is of unknown kinds, or
        does not fit into memory once more.
        """
        tensors = list(_tensors(batch))
        self.size = sum(tensor.numel() for tensor in tensors)
        """Elements of all its tensors."""
        self._batch = _rebuilt(batch)
        self._tensors = list(_tensors(self._batch))
        with _plainly():
            self._first = [tensor.clone() for tensor in self._tensors]
        self._out = [(tensor, _version(tensor)) for tensor in tensors]
        """The tensors that were given last, and their versions then."""
        self._given = 0
        self._is_written = False
        """Whether the script writes to it by other ways than torch's."""

    def again(self) -> Any:
        """Return the batch as it was at first, though the script may have written to it."""
        changed = [_version(tensor) != before for tensor, before in self._out]
        if self._given < LOOKS:
            self._given += 1
            both = zip(changed, self._tensors, self._first, strict=True)
            self._is_written |= any(not c and not _looks_like(t, first) for c, t, first in both)
        with _plainly():
            for is_other, tensor, first in zip(changed, self._tensors, self._first, strict=True):
                if is_other or self._is_written:
                    tensor.copy_(first)
            again = _rebuilt(self._batch)
        self._out = [(tensor, _version(tensor)) for tensor in _tensors(again)]
        return again


class _Turn:
    """Turns the waiting for batches off and on again (`gpuadvisor.domain.target.Turn`)."""

    def __init__(self, original: Any) -> None:
        self._original = original
        """The `__next__` of loaders' iterators."""
        self._is_on = False
        self._times = 1
        """How often a batch is in the one that is given."""
        self._memory = Memory()
        self._repeated = 0
        """Batches that were given again since the block began."""
        self._refused = ""
        """Why a batch could not be given again, as a clause."""
        self._asked: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        """Batches that each iterator was asked for since the last step."""
        self._counts: Counter[int] = Counter()
        """How often so many were asked of one iterator from step to step."""
        self.spent_s = 0.0
        """Time that giving batches again has taken: no loader's knob would save it."""
        self._held: weakref.WeakKeyDictionary[Any, _Held] = weakref.WeakKeyDictionary()
        self._sizes: dict[tuple[int, int | None], int] = {}
        """Elements of the largest batch that a data set gave to loaders of one batch size, by its
        identity and that: an evaluation may read the data of the training in larger ones."""
        self._backlog: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        """Batches of each iterator that were ready when it was waited for again."""

    def __call__(self, value: Value | None) -> None:
        """Turn it on, with a batch so many times over in one, or off.

        RuntimeError where that would not fit into memory.
        """
        times = None if value is None else int(value)
        if times == (self._times if self._is_on else None):
            return
        if self._is_on:
            self._memory.end()
        self._is_on, self._refused = False, ""
        for iterator in self._held:
            self._backlog[iterator] = ready_batches(iterator) or 0
        self._held.clear()
        if times is not None:
            self._memory.begin(times)
            self._is_on, self._times = True, times

    def begin_block(self) -> None:
        """Let the batch that comes next take the place of one that was given for long enough."""
        self._repeated = 0
        now_s = time.perf_counter()
        for iterator in [each for each, held in self._held.items() if now_s >= held.due_s]:
            del self._held[iterator]

    def end_step(self) -> None:
        """Count what was asked of the iterators for one step."""
        if self._asked:
            self._counts[max(self._asked.values())] += 1
            self._asked.clear()

    def failure(self) -> str:
        """Return why the block that ends was none without waiting; empty if it was, or is off."""
        if not self._is_on or (self._repeated and not self._refused):
            return ""
        return self._refused or "no loader gave a batch while none was waited for"

    def is_settling(self) -> bool:
        """Say whether the script still lives on batches that were made while it did not wait."""
        return any(left > 0 for left in self._backlog.values())

    def following(self, iterator: Any) -> Any:
        """Return an iterator's next batch, or the one that it gave before."""
        began_s = time.perf_counter()
        kept = self._held.get(iterator)
        asked = self._asked[iterator] = self._asked.get(iterator, 0) + 1
        if kept is not None and asked <= self._usual():
            try:
                batch = kept.again()
            except Exception as error:  # the script goes on with the batch that comes next
                self._refused = _told(error)
            else:
                self._repeated += 1
                self.spent_s += time.perf_counter() - began_s
                return batch
        batch = self._original(iterator)
        if self._backlog.get(iterator):
            self._backlog[iterator] -= 1
        if self._is_on and kept is None:  # the script's own next one: none is lost or out of turn
            self._hold(iterator, batch, began_s)
        return batch

    def _hold(self, iterator: Any, batch: Any, began_s: float) -> None:
        loaded = getattr(getattr(iterator, "_index_sampler", None), "batch_size", None)
        try:
            held = _Held(repeated(batch, samples_in(batch, loaded), self._times))
        except Exception as error:
            self._refused = _told(error)
            return
        data = id(getattr(iterator, "_dataset", iterator)), loaded
        size = held.size // self._times
        if size < self._sizes.get(data, 0):  # the last of an epoch
            return
        self._held[iterator], self._sizes[data] = held, size
        _let_workers_finish(iterator)
        now_s = time.perf_counter()
        held.due_s = now_s + RENEWED * (now_s - began_s)

    def _usual(self) -> float:
        """Return how many batches one iterator gives for a step, as often as not.

        One that is asked for more is read to its end without a step, as in an evaluation: that
        would never come. Without any step so far, it is not known.
        """
        return self._counts.most_common(1)[0][0] if self._counts else float("inf")


class CachedBatch:
    """What is turned like a knob (`gpuadvisor.tuners.base.Knob.live`), and is none."""

    def live(self, target: Target) -> Turn:
        """Stand in every loader's iterator, and return what turns the waiting off and on."""
        from torch.utils.data import dataloader

        base: Any = dataloader._BaseDataLoaderIter
        turn = _Turn(base.__next__)

        def following(this: Any) -> Any:
            return turn.following(this)

        base.__next__ = following
        return turn


def _told(error: Exception) -> str:
    return str(error) or type(error).__name__


def _tensors(value: Any) -> Iterator[Any]:
    """Yield the tensors of a batch; RuntimeError where it holds what cannot be looked into."""
    import torch

    if isinstance(value, torch.Tensor):
        if type(value) is not torch.Tensor or value.layout is not torch.strided:
            raise RuntimeError(f"its batches hold a {type(value).__name__}")
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _tensors(each)
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _tensors(each)
    elif not isinstance(value, (str, bytes, int, float, complex, type(None))):
        raise RuntimeError(f"its batches hold a {type(value).__name__}")


def _rebuilt(value: Any) -> Any:
    """Return a batch with containers of its own, and an alias of each tensor."""
    return _alias(value) if hasattr(value, "untyped_storage") else of_parts(value, _rebuilt)


def _alias(tensor: Any) -> Any:
    """Return another tensor of the same memory.

    What a script changes about one, such as its shape (`unsqueeze_`) or what its gradient follows
    from, stays with that: in the next step the batch is as the loader made it. A tensor that was
    detached would not let its shape be changed.
    """
    import torch

    with _plainly():
        made = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        made.set_(tensor.untyped_storage(), tensor.storage_offset(), tensor.size(), tensor.stride())
    return made.requires_grad_(tensor.requires_grad)


@contextmanager
def _plainly() -> Iterator[None]:
    """Make tensors that know their versions, though the script may infer, and no graph."""
    import torch

    with torch.inference_mode(False), torch.no_grad():
        yield


def _version(tensor: Any) -> int:
    """Return a number that torch's writing to a tensor changes; inference tensors have none."""
    return -1 if tensor.is_inference() else int(tensor._version)


def _looks_like(tensor: Any, first: Any) -> bool:
    """Say whether a tensor of the host holds what it held, from some of its elements.

    One of a GPU is written to by torch alone, which counts that; of one that is not contiguous,
    nothing is looked at, as that would copy it.
    """
    if tensor.device.type != "cpu" or not tensor.numel() or not tensor.is_contiguous():
        return True
    stride = max(1, tensor.numel() // LOOKED_AT)
    now, then = (each.view(-1)[::stride] for each in (tensor.detach(), first))
    return bool(((now == then) | ((now != now) & (then != then))).all())


def _let_workers_finish(iterator: Any) -> None:
    """Wait until workers have made all that they were asked for, so that they rest."""
    end_s = time.monotonic() + FILLING_S
    wanted = len(getattr(iterator, "_task_info", ()))  # what was asked for, and not given yet
    while (ready_batches(iterator) or 0) < wanted and time.monotonic() < end_s:
        time.sleep(POLL_S)


CACHED = CachedBatch()
"""Hand a running script the batch that it already has."""
