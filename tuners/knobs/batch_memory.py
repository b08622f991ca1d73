"""Have DataLoader workers build their batches in shared memory that they have used before.

torch asks the system for new shared memory for each batch. Its pages are made, filled with zeros,
mapped by two processes and given back: more than half a millisecond for each MiB, in the worker and
in the script's process. There the thread that pins a batch gives it back while it holds Python's
lock, so that for 20 to 50 ms (256 pictures of 224 x 224) no kernel is launched. Memory that is used
again needs none of that (`benchmarks/loader_memory.py`).

It is for batches that torch's own collate function builds, of 1 MiB or more. A batch's memory is
used again when nothing in either process refers to it: no tensor, no view, no array. What is still
referred to is left alone, and so is what was sent to another process; the worker takes new memory.

It is tried only where it is named (`--only dataloader_workers,batch_memory`), because references
that nobody counts cannot be ruled out: through a weak reference to a batch's memory, an address
that C code kept, or a fork that C code made, a later batch is seen in the place of an earlier one.
Without the knob that memory would have been given back by then.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.reduction import ForkingPickler
from typing import Any

from gpuadvisor.domain.knobs import Effect, Level, Value
from gpuadvisor.domain.target import Target
from gpuadvisor.tuners.knobs._script import LoaderKnob, no_loader, not_linux

LEAST_BYTES = 1 << 20
"""Least size of a tensor whose memory is reused: new memory for a smaller one takes under 1 ms."""
MOST_SEGMENTS = 4
"""Most segments that one worker keeps: two batches wait by default, and one is built."""
PATIENCE = 16
"""Requests in vain after which the oldest segment is replaced: it may never be given back."""
LARGEST = 2
"""Size of a segment over that of the tensor in it, at most, where sizes vary."""
TAIL_BYTES = 64
"""Room at the end of a segment for the number of the last batch that the script is done with."""


class BatchMemory(LoaderKnob):
    """Initializes every DataLoader's workers with `reuse`, after the script's own function."""

    name = "batch_memory"
    title = "Batch memory is reused"
    level = Level.CONSERVATIVE
    effect = Effect.NONE
    order = 50
    plausible = ("reuse",)
    risk = "what refers to a batch's memory without being counted would see a later batch in it"
    obstacles = (not_linux("elsewhere than on Linux batches are shared in another way"), no_loader)
    cures_waiting = False
    lines = (
        f"from {__name__} import reuse\n"
        "loader = DataLoader(dataset, ..., num_workers=..., worker_init_fn=reuse)"
    )

    def apply(self, value: Value, target: Target) -> None:
        on_reuse(target.effective)
        super().apply(value, target)

    def adjust(self, value: Value, target: Target, arguments: dict[str, Any]) -> None:
        reason = unable()
        if reason is not None:
            target.refuse(reason)
            return
        own = arguments["worker_init_fn"]
        if not isinstance(own, Initialization):  # of a loader that is built like another one
            arguments["worker_init_fn"] = Initialization(own)


@dataclass(frozen=True)
class Initialization:
    """The `worker_init_fn` of a script, if it has one, followed by `reuse`."""

    own: Callable[[int], object] | None

    def __call__(self, worker_id: int) -> None:
        if self.own is not None:
            self.own(worker_id)
        reuse(worker_id)


@dataclass(eq=False)
class _Segment:
    """Memory that a worker and the script's process share, as one of them sees it.

    The worker numbers what it sends in a segment of shared memory. The script's process keeps the
    segment mapped, and when nothing there refers to it any more writes that number at its end; from
    then on the worker may use it again, if nothing in the worker refers to it either. Whatever else
    becomes of a segment, it is never used again: where it is sent twice before it was given back,
    or in a way that is not counted here, where the script's process sends it on, or forks while it
    refers to it.
    """

    storage: Any
    """A `torch.UntypedStorage`, with `TAIL_BYTES` at its end."""
    number: int = 0
    """Number of the last batch that was sent in it, counted by the worker."""
    process: int = 0
    """Process id of the worker."""
    is_done: bool = False
    """Whether the script's process has given it back."""
    is_lent: bool = False
    """Whether another process may read it, so that it cannot be given back."""

    @property
    def done(self) -> ctypes.c_int64:
        """Number of the last batch that the script's process is done with."""
        address = self.storage.data_ptr() + self.storage.nbytes() - TAIL_BYTES
        return ctypes.c_int64.from_address(address)

    @property
    def is_alone(self) -> bool:
        """Whether nothing else in this process refers to it: no tensor, no view, no array."""
        import torch

        # In torch 2.4 a tensor shows in the second count only, a storage in the first.
        only_here = sys.getrefcount(self.storage) <= 2  # the attribute and the argument
        return only_here and torch._C._storage_Use_Count(self.storage._cdata) == 1

    def is_alone_beside(self, refer: Callable[[Any], Any]) -> bool:
        """Say whether it is alone while something refers to it, which would be wrong."""
        referring = refer(self.storage)
        return self.is_alone and referring is not None


def unable() -> str | None:
    """Return why this Python or torch cannot tell that nothing refers to memory, or None if it can.

    What counts references is private to torch, so it is tried out.
    """
    import torch

    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        return "without Python's global lock references to a batch cannot be counted"
    try:
        from torch.utils.data._utils.collate import default_collate_fn_map

        assert callable(default_collate_fn_map[torch.Tensor])
        assert callable(torch.UntypedStorage._new_shared)
        segment = _Segment(torch.UntypedStorage(TAIL_BYTES, device="cpu"))
        right = segment.is_alone and not any(map(segment.is_alone_beside, _REFERENCES))
        right = right and segment.is_alone  # again
    except Exception as error:  # whatever a later torch has made of its private parts
        return f"this torch builds or counts memory in another way: {str(error) or error!r:.200}"
    return None if right else "this torch counts references to memory in another way"


def _tensor(storage: Any) -> Any:
    import torch

    return torch.empty(0, dtype=torch.uint8, device="cpu").set_(storage)


def _saved(storage: Any) -> Any:
    """Return what refers to a tensor from C++ only: the graph of its square."""
    import torch

    with torch.inference_mode(False), torch.enable_grad():
        return _tensor(storage).view(torch.float32).requires_grad_().square().sum()


_REFERENCES: tuple[Callable[[Any], Any], ...] = (
    lambda storage: storage,
    _tensor,
    lambda storage: _tensor(storage)[1:2],
    _saved,
)
"""Ways to refer to a storage that have to be counted."""


# -- in a worker -----------------------------------------------------------------------------------


class _WorkerSegment(_Segment):
    """A segment as its worker sees it; `number` is 0 until it sends a batch."""

    is_taken = True
    """Whether a batch was built in it that was not sent yet."""

    @property
    def is_free(self) -> bool:
        # In this order: a batch that is being sent is counted before it is let go.
        return self.is_alone and not self.is_taken and self.number == self.done.value


class _Pool:
    """The segments of one worker."""

    def __init__(self, new: Callable[[int], Any]) -> None:
        self._new = new
        self._kept: list[_WorkerSegment] = []
        self._in_vain = 0
        self._lock = threading.Lock()  # one thread builds batches, another one sends them

    def take(self, size: int) -> Any:
        """Return a storage of at least so many bytes."""
        with self._lock:
            # What is alone without having been counted may have been sent by other means.
            self._kept = [each for each in self._kept if not (each.is_alone and each.is_taken)]
            free = [segment for segment in self._kept if segment.is_free]
            fitting = [each for each in free if self._fits(each.storage.nbytes(), size)]
            if fitting:
                best = min(fitting, key=lambda segment: segment.storage.nbytes())
                best.is_taken = True
                return best.storage
            if len(self._kept) == MOST_SEGMENTS:
                if not free:
                    self._in_vain += 1
                    if self._in_vain % PATIENCE == 0:
                        del self._kept[0]
                    return self._new(size)
                self._kept.remove(free[0])
            storage = self._new(size + TAIL_BYTES + -size % TAIL_BYTES)
            self._kept.append(_WorkerSegment(storage))
            return storage

    def send(self, storage: Any) -> int | None:
        """Return the number of a batch that is sent in a segment, or None if it is in none."""
        with self._lock:
            own = next((s for s in self._kept if s.storage._cdata == storage._cdata), None)
            if own is None:
                return None
            if not own.is_taken:
                self._kept.remove(own)
                return None
            own.is_taken = False
            own.number += 1
            return own.number

    @staticmethod
    def _fits(nbytes: int, size: int) -> bool:
        return size + TAIL_BYTES <= nbytes <= LARGEST * size + 2 * TAIL_BYTES


_REUSING: list[int] = []
"""Processes in which `reuse` was called: this one, and those that it was forked from."""


def reuse(worker_id: int = 0) -> None:
    """Reuse memory in this worker process; to be a DataLoader's `worker_init_fn`."""
    import torch
    from torch.multiprocessing import get_sharing_strategy, reductions

    if get_sharing_strategy() != "file_descriptor" or unable() is not None:
        return
    if os.getpid() in _REUSING:
        return
    from torch.utils.data._utils.collate import default_collate_fn_map

    _REUSING.append(os.getpid())
    new, collate = torch.UntypedStorage._new_shared, default_collate_fn_map[torch.Tensor]
    segments, here = _Pool(new), threading.local()

    def collate_tensor(*args: Any, **kwargs: Any) -> Any:
        """Fill all of the memory, so that it need not be new; others may rely on zeros."""
        here.fills = True
        try:
            return collate(*args, **kwargs)
        finally:
            here.fills = False

    def new_shared(cls: Any, size: int, *, device: Any = "cpu") -> Any:
        is_host = torch.device(device).type == "cpu"
        if size < LEAST_BYTES or not is_host or not getattr(here, "fills", False):
            return new(size, device=device)
        return segments.take(size)

    def reduce_storage(storage: Any) -> Any:
        _lend(storage)  # if it has come from another worker
        number = segments.send(storage)
        usually = reductions.reduce_storage(storage)
        if number is None or usually[0] is not reductions.rebuild_storage_fd:
            return usually  # never given back, and so never used again
        return rebuild, (*usually[1], number, os.getpid())

    default_collate_fn_map[torch.Tensor] = collate_tensor
    torch.UntypedStorage._new_shared = classmethod(new_shared)
    ForkingPickler.register(torch.UntypedStorage, reduce_storage)


# -- in the script's process -----------------------------------------------------------------------


class _ThreadSegments:
    """The segments in which batches have arrived in one thread, which may be the one that pins."""

    def __init__(self) -> None:
        self.segments: dict[int, _Segment] = {}
        _ALL.add(self)


class _Arrivals(threading.local):
    """The segments that have arrived in the current thread; they end with it."""

    def __init__(self) -> None:
        self.mine = _ThreadSegments()


_LOCK = threading.RLock()
"""Guards the arrivals below. It is taken before a fork, so that a child finds it free."""
_ALL: weakref.WeakSet[_ThreadSegments] = weakref.WeakSet()
_ARRIVALS = _Arrivals()
_ON_REUSE: list[Callable[[], None]] = []
_WATCHED: list[int] = []
"""Processes in which it is noticed when segments reach other processes."""


def rebuild(cls: Any, descriptor: Any, size: int, number: int, process: int) -> Any:
    """Take a segment that a worker has sent, and give back those that nobody refers to any more.

    The worker's pickle names this function.
    """
    from torch.multiprocessing import reductions

    with _LOCK:
        _watch()
        segments = _ARRIVALS.mine.segments
        for segment in segments.values():
            if not segment.is_done and not segment.is_lent and segment.is_alone:
                segment.done.value = segment.number
                segment.is_done = True
    storage = reductions.rebuild_storage_fd(cls, descriptor, size)  # as it was mapped before
    with _LOCK:
        known = segments.pop(storage._cdata, None)
        if known is None:
            _forget(segments, process)
        is_lent = known is not None and known.is_lent
        segments[storage._cdata] = _Segment(storage, number, process, is_lent=is_lent)
    if known is not None:
        for callback in _ON_REUSE:
            callback()
    return storage


def on_reuse(callback: Callable[[], None]) -> None:
    """Have a function called when a batch arrives in memory in which one has arrived before."""
    _ON_REUSE.append(callback)


def _forget(segments: dict[int, _Segment], process: int) -> None:
    """Let go what a worker no longer uses because it has taken other memory."""
    _forget_ended(segments)
    done = [key for key, segment in segments.items() if segment.process == process]
    done = [key for key in done if segments[key].is_done]
    for key in done[: max(0, len(done) + 1 - MOST_SEGMENTS)]:  # the oldest
        del segments[key]


def _forget_ended(segments: dict[int, _Segment]) -> None:
    for key in [key for key, segment in segments.items() if not _lives(segment.process)]:
        del segments[key]


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except OSError:  # no such process, or another user's with the same number
        return False
    return True


def _watch() -> None:
    """Notice when segments reach other processes: by a pickle, or by a fork."""
    import torch

    if not _WATCHED:  # which a child has from its parent, and so has the hooks
        os.register_at_fork(
            before=_before_fork, after_in_parent=_LOCK.release, after_in_child=_in_child
        )
    if os.getpid() not in _WATCHED and os.getpid() not in _REUSING:
        usual = ForkingPickler._extra_reducers[torch.UntypedStorage]  # type: ignore[attr-defined]

        def send_on(storage: Any) -> Any:
            _lend(storage)
            return usual(storage)

        ForkingPickler.register(torch.UntypedStorage, send_on)
    if os.getpid() not in _WATCHED:
        _WATCHED.append(os.getpid())


def _lend(storage: Any) -> None:
    with _LOCK:
        for each in _ALL:
            if storage._cdata in each.segments:
                each.segments[storage._cdata].is_lent = True


def _before_fork() -> None:
    _LOCK.acquire()
    for each in _ALL:
        _forget_ended(each.segments)
        for segment in each.segments.values():
            segment.is_lent = segment.is_lent or not (segment.is_done or segment.is_alone)


def _in_child() -> None:
    for each in _ALL:
        each.segments.clear()
    _LOCK.release()


KNOB = BatchMemory()
