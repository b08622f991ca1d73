"""A launch of a Triton kernel repeated on copies of its arguments, checked and timed.

Copies are of whole blocks of memory, with the launch's tensors as views of them: two tensors that
share memory still do, and strides mean what they meant. Around each copy lie guards.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from statistics import median
from typing import Any

from gpuadvisor.domain.inquiry import Clock, Inquiry
from gpuadvisor.tuners.knobs._triton.launched import Launched
from gpuadvisor.tuners.knobs._triton.launches import Kernel, NotTunable

GUARD = 1024
"""Elements before and after a copy that must keep their value. A multiple of 16 bytes, of which
Triton compiles kernels for pointers that are such multiples, too."""
COPIES = 3
"""Copies of all arguments at a time: as they were, at work, and what is expected."""
CHUNK = 1 << 24
"""Elements that are compared at a time, in float64: 1 GiB with all that is made of them."""
CHUNK_BYTES = 1 << 30
ROOM = 0.8
"""Part of the GPU's free memory that copies may take: what is free is in pieces."""
NOISE = 4.0
"""Times the largest difference of two launches of the script's own configuration by which another
one may differ, where those differ (atomics): a maximum of few launches is low."""
ADDRESSES = 1 << 40
"""Numbers of 64 bits that are all larger are taken for addresses."""


class _Memory:
    """A block of memory that tensors of a launch are views of, and copies of it."""

    def __init__(self, tensor: Any) -> None:
        import torch

        self.dtype = tensor.dtype
        size = tensor.untyped_storage().nbytes() // tensor.element_size()
        self.real = torch.empty(0, dtype=self.dtype, device=tensor.device).set_(
            tensor.untyped_storage(), 0, (size,), (1,)
        )
        self.elements = size
        self.is_poisoned = False
        """Whether its copy holds NaN, or zeros, before each check: the launch writes it without
        reading it."""
        self.is_written = False
        self.noise = 0.0
        self.expected: Any = None

    @property
    def bytes(self) -> int:
        return int(self.elements * self.real.element_size())

    def copy(self, place: int) -> None:
        """Copy it, as the one of this place among all of a launch."""
        import torch

        self.before = self.real.clone()
        self.whole = torch.empty(
            self.elements + 2 * GUARD, dtype=self.dtype, device=self.real.device
        )
        self.work = self.whole[GUARD : GUARD + self.elements]
        self._guard = self._pattern(place)

    def _pattern(self, place: int) -> Any:
        """Return what a guard holds: no launch writes it there by copying another one's."""
        import torch

        count = torch.arange(GUARD, device=self.real.device)
        if not self.dtype.is_floating_point:
            return ((count + place) % 2).to(self.dtype)  # indices that harm nobody
        return (((7 * count + 13 * place) % 61 + 1) / 8).to(self.dtype)

    def view(self, tensor: Any) -> Any:
        """Return the copy's tensor in the place of one of the script's."""
        import torch

        place = GUARD + tensor.storage_offset()
        return torch.as_strided(self.whole, tensor.size(), tensor.stride(), place)

    def refresh(self, poisoned: bool = False) -> None:
        """Make the copy what the memory was before the launch, or poison; and its guards whole, as
        what one configuration wrote there says nothing of the next."""
        self.whole[:GUARD] = self.whole[-GUARD:] = self._guard
        if poisoned:
            self._fill(self.work)
        else:
            self.work.copy_(self.before)

    def _fill(self, tensor: Any) -> None:
        # Zero is an index, a length and a lock that harms nobody; a large number is not.
        tensor.fill_(math.nan if self.dtype.is_floating_point else 0)

    def overrun(self) -> bool:
        return not all(_same(end, self._guard) for end in (self.whole[:GUARD], self.whole[-GUARD:]))


class Copies:
    """Copies of a launch's arguments, with what the script's own configuration makes of them."""

    def __init__(self, inquiry: Inquiry, clock: Clock, kernel: Kernel, launched: Launched) -> None:
        """Copy, and learn what is written. NotTunable, in words, where that cannot be done."""
        self._inquiry = inquiry
        self._clock = clock
        self._kernel = kernel
        self._checks = 0
        tensors = dict(_tensors(kernel, launched))
        self._memory: dict[int, _Memory] = {}
        for tensor in tensors.values():
            self._add(tensor)
        self.bytes = sum(each.bytes for each in self._memory.values())
        self._check_room()
        for place, memory in enumerate(self._memory.values()):
            memory.copy(place)
        self._copy = self._launch_of_copies(launched)
        self._terms = _most_terms(list(tensors.values()))
        self._learn()

    @property
    def is_inexact(self) -> bool:
        """Whether the script's own configuration gives other results from launch to launch."""
        return any(memory.noise for memory in self._memory.values())

    def measure(self, values: Mapping[str, int], give_up_at: float | None) -> dict[str, Any]:
        """Check and time a configuration; return `state`, `reason` and median times."""
        self._checks += 1

        def changed() -> Any:
            return self._copy.changed(self._kernel, values)

        self._launch(changed, self._poisoned)
        wrong = self._wrong()
        if wrong is not None:
            return {"state": "wrong", "reason": wrong[:300]}
        kept = [m for m in self._memory.values() if m.is_written and not m.is_poisoned]

        def prepare() -> None:
            for memory in kept:
                memory.refresh()

        default_ms, own_ms, given_up = self._clock.against(
            self._copy.plain, changed, give_up_at, self._checks, prepare if kept else None
        )
        return {
            "state": "pruned" if given_up else "complete",
            "reason": "clearly slower than the best so far" if given_up else "",
            "times_ms": [median(own_ms)],
            "default_ms": [median(default_ms)],
        }

    # -- copying -----------------------------------------------------------------------------------

    def _add(self, tensor: Any) -> None:
        if tensor.dtype.is_complex:
            raise NotTunable("it takes complex numbers")
        place = tensor.untyped_storage().data_ptr()
        known = self._memory.get(place)
        if known is None:
            known = self._memory[place] = _Memory(tensor)
        if known.dtype is not tensor.dtype:
            raise NotTunable("two of its arguments of different types share memory")

    def _check_room(self) -> None:
        import torch

        if not torch.cuda.is_initialized():
            return
        written = max(memory.elements for memory in self._memory.values())
        needed = COPIES * self.bytes + (CHUNK_BYTES * min(written, CHUNK)) // CHUNK
        unused = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
        free = int(ROOM * (torch.cuda.mem_get_info()[0] + unused))
        if needed > free:
            raise NotTunable(
                f"copies of its arguments take {needed / 2**30:.1f} GiB, and there is room for "
                f"{free / 2**30:.1f} GiB beside the script"
            )

    def _launch_of_copies(self, launched: Launched) -> Launched:
        def copied(value: Any) -> Any:
            import torch

            if not isinstance(value, torch.Tensor) or not value.numel():
                return value
            return self._memory[value.untyped_storage().data_ptr()].view(value)

        args = tuple(map(copied, launched.args))
        kwargs = {name: copied(value) for name, value in launched.kwargs.items()}
        return Launched(launched.kernel, launched.grid, args, kwargs, launched.run)

    # -- what the script's own configuration does --------------------------------------------------

    @property
    def _poisoned(self) -> list[_Memory]:
        return [memory for memory in self._memory.values() if memory.is_poisoned]

    def _launch(self, launch: Callable[[], object], poisoned: list[_Memory]) -> None:
        for memory in self._memory.values():
            memory.refresh(memory in poisoned)
        launch()
        self._clock.synchronize()

    def _learn(self) -> None:
        """Find out what is written, what of it is read before, and how much two launches differ."""
        every = list(self._memory.values())
        self._launch(self._copy.plain, [])
        if any(memory.overrun() for memory in every):
            raise NotTunable("it writes outside of its arguments as it is")
        for memory in every:
            memory.expected = memory.work.clone()
            memory.is_written = not _same(memory.expected, memory.before)
        self._launch(self._copy.plain, [])
        for memory in every:
            if not _same(memory.work, memory.expected):
                memory.noise = self._noise(memory)
        for memory in every:
            if memory.dtype.is_floating_point or memory.is_written:
                self._launch(self._copy.plain, [memory])
                memory.is_poisoned = self._was_overwritten(memory)
                memory.is_written |= memory.is_poisoned
        if not any(memory.is_written for memory in every):
            raise NotTunable("nothing was seen that it writes")
        self._launch(self._copy.plain, self._poisoned)
        for memory in every:
            memory.expected = memory.work.clone() if memory.is_written else None

    def _noise(self, memory: _Memory) -> float:
        """Return how much two launches differ, as `difference` understands it."""
        if not memory.dtype.is_floating_point:
            raise NotTunable("it gives other whole numbers from launch to launch")
        most = 0.0
        for found, wanted in _chunks(memory.work, memory.expected):
            scale = wanted.double().nan_to_num(0.0, 0.0, 0.0).square().mean().sqrt()
            apart = (found.double() - wanted.double()).nan_to_num(0.0, 0.0, 0.0).abs()
            most = max(most, float((apart / scale.clamp_min(1e-30)).max()))
        return most

    def _was_overwritten(self, poisoned: _Memory) -> bool:
        """Say whether the launch, in which one memory was poisoned, came to the same by writing it.

        What it left poisoned there, it does not write at all.
        """
        for memory in self._memory.values():
            found, wanted = memory.work, memory.expected
            if memory is poisoned:
                written = ~_is_poison(found)
                if not bool(written.any()):
                    return False
                found, wanted = found[written], wanted[written]
            if self._differs(memory, found, wanted) is not None:
                return False
        return True

    def _wrong(self) -> str | None:
        """Say what the last launch did that the script's own configuration does not; else None."""
        every = self._memory.values()
        if any(memory.overrun() for memory in every):
            return "it writes outside of its arguments"
        for memory in every:
            if not memory.is_written:
                if not _same(memory.work, memory.before):
                    return "it writes what the script's own configuration does not"
                continue
            said = self._differs(memory, memory.work, memory.expected)
            if said is not None:
                return said
        return None

    def _differs(self, memory: _Memory, found: Any, wanted: Any) -> str | None:
        if _same(found, wanted):
            return None
        limit = self._inquiry.rounding(memory.dtype, self._terms)
        limit = max(limit, NOISE * memory.noise)
        for one, other in _chunks(found, wanted):
            said = self._inquiry.difference([one], [other], limit)
            if said is not None:
                return said
        return None


def _tensors(kernel: Kernel, launched: Launched) -> Iterator[tuple[str, Any]]:
    """Yield the tensors among a launch's arguments; NotTunable for pointers of other kinds."""
    import torch

    for name, value in kernel.named(launched.args, launched.kwargs).items():
        if isinstance(value, tuple | list) and any(hasattr(each, "data_ptr") for each in value):
            raise NotTunable(f"its argument {name} is a list of tensors")
        if not isinstance(value, torch.Tensor):
            if hasattr(value, "data_ptr") or hasattr(value, "tma_desc_cpu_ptr"):
                raise NotTunable(f"its argument {name} is a pointer that cannot be copied")
            continue
        if not value.numel():
            continue
        if value.dtype in (torch.int64, getattr(torch, "uint64", torch.int64)):
            whole = value.view(torch.int64) if value.dtype is not torch.int64 else value
            if int(whole.min()) > ADDRESSES:
                raise NotTunable(f"its argument {name} holds addresses, which copies do not follow")
        yield name, value


def _most_terms(tensors: list[Any]) -> int:
    """Return a bound of the terms of one sum: a side of an argument, or all that one element of the
    smallest can have of the largest."""
    sizes = [tensor.numel() for tensor in tensors]
    sides = [max(tensor.shape, default=1) for tensor in tensors]
    return max([*sides, max(sizes) // min(sizes)]) if sizes else 1


def _chunks(one: Any, other: Any) -> Iterator[tuple[Any, Any]]:
    yield from zip(one.split(CHUNK), other.split(CHUNK), strict=True)


def _is_poison(tensor: Any) -> Any:
    return tensor.isnan() if tensor.dtype.is_floating_point else tensor == 0


def _same(one: Any, other: Any) -> bool:
    """Say whether two tensors hold the same bits, NaN included."""
    import torch

    bits = (each.contiguous().view(torch.uint8) for each in (one, other))
    return bool(torch.equal(*bits))
