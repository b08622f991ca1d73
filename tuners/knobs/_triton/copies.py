"""A launch of a Triton kernel repeated on copies of its arguments, checked and timed.

Copies are of whole blocks of memory, with the launch's tensors as views of them: two tensors that
share memory still do, and strides mean what they meant. Around each copy lie guards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from statistics import median
from typing import Any

from gpuadvisor.domain.inquiry import Clock, Inquiry
from gpuadvisor.tuners.knobs._triton.compiling import compile_all
from gpuadvisor.tuners.knobs._triton.launched import Launched, fixed, tunable
from gpuadvisor.tuners.knobs._triton.launches import Kernel, NotTunable
from gpuadvisor.tuners.knobs._triton.memory import (
    CHUNK,
    CHUNK_BYTES,
    Memory,
    chunks,
    is_poison,
    is_unlike,
    same,
)
from gpuadvisor.tuners.knobs._triton.precise import ROUNDED, Precise

COPIES, WIDE_COPIES = 3, 2
"""Copies of all arguments at a time: as they were, at work, and what is expected; and of those in
float32 the last two."""
ROOM = 0.8
"""Part of the GPU's free memory that copies may take: what is free is in pieces."""
NOISE = 4.0
"""Times the largest difference of two launches of the script's own configuration by which another
one may differ, where those differ (atomics): a maximum of few launches is low."""
ADDRESSES = 1 << 40
"""Numbers of 64 bits that are all larger are taken for addresses."""


class Copies:
    """Copies of a launch's arguments, with what the script's own configuration makes of them."""

    def __init__(self, inquiry: Inquiry, clock: Clock, kernel: Kernel, launched: Launched) -> None:
        """Copy, and learn what is written. NotTunable, in words, where that cannot be done."""
        self._inquiry = inquiry
        self._clock = clock
        self._kernel = kernel
        self._checks = 0
        tensors = dict(_tensors(kernel, launched))
        self._memory: dict[int, Memory] = {}
        for tensor in tensors.values():
            self._add(tensor)
        self.bytes = sum(each.bytes for each in self._memory.values())
        self._check_room(COPIES * self.bytes)
        for place, memory in enumerate(self._memory.values()):
            memory.copy(place)
        self._launched = launched
        self._copy = self._launch_of_copies(self._memory)
        self._precise: Precise | str | None = None
        """The launch in float32; why there is none; or None as long as nobody needed it."""
        self._terms = _most_terms(list(tensors.values()))
        self._learn()
        self._own = {**tunable(kernel, launched), **fixed(kernel, launched)}
        """The script's own configuration; an autotuner has chosen by now."""

    @property
    def is_inexact(self) -> bool:
        """Whether the script's own configuration gives other results from launch to launch."""
        return any(memory.noise for memory in self._memory.values())

    def compile(self, points: Iterable[Mapping[str, int]]) -> None:
        """Compile configurations side by side; their measurements then need not."""
        compile_all(self._kernel, self._copy, points)

    def measure(
        self, values: Mapping[str, int], give_up_at: float | None, judge: bool = True
    ) -> dict[str, Any]:
        """Check and time a configuration; return `state`, `reason` and median times.

        Results that may differ by rounding to 16 bits alone are judged in float32, for which it is
        compiled again; without `judge` that is left to a later measurement.
        """
        self._checks += 1

        def changed() -> Any:
            return self._copy.changed(self._kernel, values)

        self._relaunch(changed, self._memory.values())
        if any(memory.overrun() for memory in self._memory.values()):
            return _wrong("it writes outside of its arguments")
        unlike = dict(self._unlike(NOISE))
        if not all(map(self._may_be_rounding, unlike)):
            return _wrong(next(iter(unlike.values())))
        is_doubtful = any(self._may_be_rounding(memory) for memory, _ in self._unlike(0.0))
        told = self._timed(changed, give_up_at)
        if not is_doubtful or told["state"] != "complete" or values == self._own or not judge:
            return told
        if told["times_ms"] >= told["default_ms"]:
            return {**told, "state": "pruned", "reason": "no faster, and so not judged"}
        said = self._less_good(values, changed, unlike)
        if said is not None:
            return _wrong(said)
        return {**told, "reason": ROUNDED} if unlike else told

    def _timed(self, changed: Callable[[], object], give_up_at: float | None) -> dict[str, Any]:
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
            known = self._memory[place] = Memory(tensor)
        if known.dtype is not tensor.dtype:
            raise NotTunable("two of its arguments of different types share memory")

    def _check_room(self, needed: int) -> None:
        import torch

        if not torch.cuda.is_initialized():
            return
        written = max(memory.elements for memory in self._memory.values())
        needed += (CHUNK_BYTES * min(written, CHUNK)) // CHUNK
        unused = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
        free = int(ROOM * (torch.cuda.mem_get_info()[0] + unused))
        if needed > free:
            raise NotTunable(
                f"copies of its arguments take {needed / 2**30:.1f} GiB, and there is room for "
                f"{free / 2**30:.1f} GiB beside the script"
            )

    def _launch_of_copies(self, memories: Mapping[int, Memory]) -> Launched:
        def copied(value: Any) -> Any:
            import torch

            if not isinstance(value, torch.Tensor) or not value.numel():
                return value
            return memories[value.untyped_storage().data_ptr()].view(value)

        launched = self._launched
        args = tuple(map(copied, launched.args))
        kwargs = {name: copied(value) for name, value in launched.kwargs.items()}
        return Launched(launched.kernel, launched.grid, args, kwargs, launched.run)

    # -- what the script's own configuration does --------------------------------------------------

    def _relaunch(self, launch: Callable[[], object], memories: Iterable[Memory]) -> None:
        """Launch on copies that are what the memory was, or poisoned where that is written."""
        for memory in memories:
            memory.refresh(memory.is_poisoned)
        launch()
        self._clock.synchronize()

    def _learn(self) -> None:
        """Find out what is written, what of it is read before, and how much two launches differ."""
        every = list(self._memory.values())
        self._relaunch(self._copy.plain, every)
        if any(memory.overrun() for memory in every):
            raise NotTunable("it writes outside of its arguments as it is")
        for memory in every:
            memory.expected = memory.work.clone()
            memory.is_written = not same(memory.expected, memory.before)
        self._relaunch(self._copy.plain, every)
        for memory in every:
            if not same(memory.work, memory.expected):
                memory.noise = self._noise(memory)
        poisoned = []
        for memory in every:
            if memory.dtype.is_floating_point or memory.is_written:
                memory.is_poisoned = True
                self._relaunch(self._copy.plain, every)
                memory.is_poisoned = False
                if self._was_overwritten(memory):
                    poisoned.append(memory)
        for memory in poisoned:
            memory.is_poisoned = memory.is_written = True
        if not any(memory.is_written for memory in every):
            raise NotTunable("nothing was seen that it writes")
        self._relaunch(self._copy.plain, every)
        for memory in every:
            memory.expected = memory.work.clone() if memory.is_written else None

    def _noise(self, memory: Memory) -> float:
        """Return how much two launches differ, as `difference` understands it."""
        if not memory.dtype.is_floating_point:
            raise NotTunable("it gives other whole numbers from launch to launch")
        most = 0.0
        for found, wanted in chunks(memory.work, memory.expected):
            scale = wanted.double().nan_to_num(0.0, 0.0, 0.0).square().mean().sqrt()
            apart = (found.double() - wanted.double()).nan_to_num(0.0, 0.0, 0.0).abs()
            most = max(most, float((apart / scale.clamp_min(1e-30)).max()))
        return most

    def _was_overwritten(self, poisoned: Memory) -> bool:
        """Say whether the launch, in which one memory was poisoned, came to the same by writing it.

        What it left poisoned there, it does not write at all.
        """
        for memory in self._memory.values():
            found, wanted = memory.work, memory.expected
            if memory is poisoned:
                written = ~is_poison(found)
                if not bool(written.any()):
                    return False
                found, wanted = found[written], wanted[written]
            if self._differs(memory, found, wanted) is not None:
                return False
        return True

    def _unlike(self, noise: float) -> Iterator[tuple[Memory, str]]:
        """Yield the copies in which the last launch left something else than the script's own
        configuration leaves there, and how so: by more than rounding in the order of terms, and
        than `noise` times what that differs by from launch to launch."""
        for memory in self._memory.values():
            if memory.is_written:
                said = self._differs(memory, memory.work, memory.expected, noise)
            elif same(memory.work, memory.before):
                said = None
            else:
                said = "it writes what the script's own configuration does not"
            if said is not None:
                yield memory, said

    def _differs(self, memory: Memory, found: Any, wanted: Any, noise: float = NOISE) -> str | None:
        if same(found, wanted):
            return None
        limit = self._inquiry.rounding(memory.dtype, self._terms, self._kernel.constants.multiplies)
        limit = max(limit, noise * memory.noise)
        for one, other in chunks(found, wanted):
            said = self._inquiry.difference([one], [other], limit)
            if said is not None:
                return said
        return None

    # -- what rounding does ------------------------------------------------------------------------

    def _may_be_rounding(self, unlike: Memory) -> bool:
        """Say whether it may be rounding to 16 bits alone that makes results of the last launch
        differ so much."""
        wanted = unlike.expected if unlike.is_written else unlike.before
        has_types = self._kernel.constants.tells_types
        return unlike.is_narrow and not has_types and not is_unlike(unlike.work, wanted)

    def _less_good(
        self,
        values: Mapping[str, int],
        changed: Callable[[], object],
        unlike: Mapping[Memory, str],
    ) -> str | None:
        """Say why results are not as good as those of the script's own configuration: those that
        differ too much, or, where none does, what is computed in float32; None where they are."""
        if self._precise is None:
            self._precise = self._in_float32()
        try:
            if not isinstance(self._precise, str):
                return self._precise.wrong(self._ruled(values), changed, list(unlike))
            why = self._precise
        except Exception as error:
            self._clock.synchronize()  # which fails where the GPU takes no more work
            why = f"in float32: {type(error).__name__}: {error}"
        return next((f"{said}; {why}" for said in unlike.values()), None)

    def _in_float32(self) -> Precise | str:
        """Return the launch in float32 with what the script's own configuration gives there, or why
        that is no reference."""
        try:
            self._check_room(WIDE_COPIES * sum(m.wide_bytes for m in self._memory.values()))
            wide = {key: m.widened(place) for place, (key, m) in enumerate(self._memory.items())}
            found = Precise(
                self._kernel,
                [(memory, wide[key]) for key, memory in self._memory.items()],
                self._launch_of_copies(wide),
                self._relaunch,
                self._differs,
                self._inquiry.rounding,
            )
            found.learn(self._ruled(self._own), self._copy.plain, self._terms)
        except Exception as error:
            self._clock.synchronize()
            return str(error) if isinstance(error, NotTunable) else f"in float32: {error}"
        return found

    def _ruled(self, values: Mapping[str, int]) -> dict[str, Any]:
        """Return values with what rules make of them on arguments of the script's own types: one
        may ask for these."""
        given = {**self._kernel.named(self._copy.args, self._copy.kwargs), **values}
        found: dict[str, Any] = dict(values)
        for each in self._kernel.heuristics:
            given = self._kernel.ruled(each, (), given)
            found |= {name: given[name] for name in each.values}
        return found


def _wrong(reason: str) -> dict[str, Any]:
    return {"state": "wrong", "reason": reason[:300]}


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
