"""Hands a running script the batch that it already has, so that it need not wait for another.

It is no knob: it shows how fast a step is without any waiting for data, and with that what all
knobs of the loaders together can bring at most. The loaders stand still meanwhile, and go on with
the batch that comes next.
"""

from __future__ import annotations

import copy
import time
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

from gpuadvisor.collectors.script.child.counters import ready_batches
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


class _Held:
    """A batch that is handed again and again, and what it held at first."""

    def __init__(self, batch: Any) -> None:
        """Remember a batch that was not handed yet. RuntimeError where it is of unknown kinds."""
        self._batch = _rebuilt(batch)
        self._tensors = [(t, t.detach().clone(), t._version) for t in _tensors(batch)]
        self._given = 0
        self._is_written = False
        """Whether the script writes to it by other ways than torch's."""

    def again(self) -> Any:
        """Return the batch as it was at first, though the script may have written to it."""
        import torch

        if self._given < LOOKS:
            self._given += 1
            same = all(t._version != v or _looks_like(t, first) for t, first, v in self._tensors)
            self._is_written |= not same
        for place, (tensor, first, version) in enumerate(self._tensors):
            if self._is_written or tensor._version != version:
                with torch.no_grad():
                    tensor.copy_(first)
                self._tensors[place] = (tensor, first, tensor._version)
        return _rebuilt(self._batch)


class _Turn:
    """Turns the waiting for batches off and on again (`gpuadvisor.domain.target.Turn`)."""

    def __init__(self, original: Any) -> None:
        self._original = original
        """The `__next__` of loaders' iterators."""
        self._is_on = False
        self._repeated = 0
        """Batches that were given again since it was turned on."""
        self.spent_s = 0.0
        """Time that giving batches again has taken: no loader's knob would save it."""
        self._held: weakref.WeakKeyDictionary[Any, _Held] = weakref.WeakKeyDictionary()
        self._backlog: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        """Batches of each iterator that were ready when it was waited for again."""

    def __call__(self, value: Value | None) -> None:
        was_on, self._is_on = self._is_on, value is not None
        if was_on == self._is_on:
            return
        repeated, self._repeated = self._repeated, 0
        for iterator in self._held:
            self._backlog[iterator] = ready_batches(iterator) or 0
        self._held.clear()
        if was_on and not repeated:
            raise RuntimeError("no loader gave a batch while none was waited for")

    def is_settling(self) -> bool:
        """Say whether the script still lives on batches that were made while it did not wait."""
        return any(left > 0 for left in self._backlog.values())

    def following(self, iterator: Any) -> Any:
        """Return an iterator's next batch, or the one that it gave last."""
        kept = self._held.get(iterator)
        if kept is not None:
            self._repeated += 1
            began_s = time.perf_counter()
            try:
                return kept.again()
            finally:
                self.spent_s += time.perf_counter() - began_s
        batch = self._original(iterator)
        if self._backlog.get(iterator):
            self._backlog[iterator] -= 1
        if self._is_on:  # the script's own next one: none is lost, and none is out of turn
            self._held[iterator] = _Held(batch)
            _let_workers_finish(iterator)
        return batch


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
    """Return a batch with containers of its own, and the same tensors."""
    if isinstance(value, Mapping):
        made = copy.copy(value)
        for key, each in value.items():
            made[key] = _rebuilt(each)  # type: ignore[index]
        return made
    if isinstance(value, list):
        return [_rebuilt(each) for each in value]
    if isinstance(value, tuple):
        parts = [_rebuilt(each) for each in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value


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
    """Wait until workers have made all that they may in advance, so that they rest."""
    end_s = time.monotonic() + FILLING_S
    wanted = iterator._num_workers * (getattr(iterator, "_prefetch_factor", None) or 0)
    while (ready_batches(iterator) or 0) < wanted and time.monotonic() < end_s:
        time.sleep(POLL_S)


CACHED = CachedBatch()
"""Hand a running script the batch that it already has."""
