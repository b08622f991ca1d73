"""Makes one batch of several, all of which are the same, where there is memory for it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from gpuadvisor.collectors.script.child.rehearsal.memory import available_bytes

MARGIN = 0.9
"""Part of the memory that a step may be expected to need: what an allocator cannot use of its
blocks, and what a fresh process needs besides, has to fit into the rest."""


def repeated(batch: Any, rows: int, times: int) -> Any:
    """Return a batch that holds each of its `rows` samples `times` over.

    RuntimeError where something in it is neither of one length with the batch nor of none.
    """
    if times == 1:
        return batch
    return _Repeating(rows, times).of(batch)


def of_parts(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return a part of a batch with containers of its own, and what is in them changed."""
    if isinstance(value, Mapping):
        made = copy.copy(value)  # a class of its own may be built from something else
        for key, each in value.items():
            made[key] = change(each)  # type: ignore[index]
        return made
    if isinstance(value, (list, tuple)):
        parts = [change(each) for each in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value


class _Repeating:
    def __init__(self, rows: int, times: int) -> None:
        self._rows = rows
        self._times = times

    def of(self, value: Any) -> Any:
        import torch

        if isinstance(value, torch.Tensor):
            if value.dim() == 0:
                return value
            if value.shape[0] != self._rows:
                raise RuntimeError(
                    f"its batches of {self._rows} samples hold a tensor of {value.shape[0]}"
                )
            return torch.cat([value] * self._times)
        if isinstance(value, (list, tuple)) and self._is_of_samples(value):
            return type(value)(list(value) * self._times)
        return of_parts(value, self.of)

    def _is_of_samples(self, value: list[Any] | tuple[Any, ...]) -> bool:
        """Say whether a list has an item for each sample, and not one for each kind of input."""
        import torch

        if len(value) != self._rows or hasattr(value, "_fields"):
            return False
        tensors = [each for each in value if isinstance(each, torch.Tensor)]
        return not tensors or any(t.dim() == 0 or t.shape[0] != self._rows for t in tensors)


class Memory:
    """Learns what steps need with batches of different sizes, and says what the next one will."""

    def __init__(self) -> None:
        self._peaks: dict[int, int] = {}
        """Most memory in use at once, in bytes, by how many batches were one."""
        self._times: int | None = None

    def begin(self, times: int) -> None:
        """Begin to watch steps whose batches hold so many of the script's own.

        RuntimeError where there will not be enough memory, by what fewer needed.
        """
        if times > 1 and times not in self._peaks:
            needed, limit = self._expected(times), _limit_bytes()
            if needed is None or limit is None:
                raise RuntimeError("nothing says how much memory larger batches need")
            if needed > MARGIN * limit:
                raise RuntimeError(
                    f"it would need {needed / 1e9:.1f} GB of the {limit / 1e9:.1f} GB that are free"
                )
        with suppress(OSError):  # without the right to it, no larger batch is tried
            _forget_peak()
            self._times = times

    def end(self) -> None:
        """Learn what those steps needed."""
        if self._times is not None:
            known = self._peaks.get(self._times, 0)
            self._peaks[self._times] = max(known, _peak_bytes())
            self._times = None

    def _expected(self, times: int) -> int | None:
        """Return what so many batches in one need, at most: in proportion to the largest known, or
        by the growth from one to the next."""
        known = sorted(each for each in self._peaks if each < times)
        if not known:
            return None
        most = self._peaks[known[-1]]
        if len(known) == 1:
            return most * times // known[-1]
        fewer, more = known[-2:]
        growth = max(0, self._peaks[more] - self._peaks[fewer]) / (more - fewer)
        return round(most + growth * (times - more))


def _is_on_gpu() -> bool:
    import torch

    return bool(torch.cuda.is_initialized() and torch.cuda.memory_allocated() > 0)


def _limit_bytes() -> int | None:
    """Return the memory that the script has, with what it may still get."""
    if not _is_on_gpu():
        free = available_bytes()
        return None if free is None else free + _resident_bytes("VmRSS")
    import torch

    torch.cuda.empty_cache()
    return int(torch.cuda.mem_get_info()[0]) + int(torch.cuda.memory_reserved())


def _forget_peak() -> None:
    if _is_on_gpu():
        import torch

        torch.cuda.reset_peak_memory_stats()
    else:
        Path("/proc/self/clear_refs").write_text("5", "ascii")  # proc_pid_clear_refs(5)


def _peak_bytes() -> int:
    if not _is_on_gpu():
        return _resident_bytes("VmHWM")
    import torch

    return int(torch.cuda.max_memory_allocated())


def _resident_bytes(name: str) -> int:
    for line in Path("/proc/self/status").read_text("ascii", "replace").splitlines():
        if line.startswith(f"{name}:"):
            return 1024 * int(line.split()[1])
    return 0
