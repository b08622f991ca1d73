"""What a run computed, in few enough numbers to compare it with another run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

LOSSES = 10
"""First losses kept. Later ones drift apart in any two runs that round differently."""
LATE_EVERY = 10
"""One loss in so many is kept after that, to see NaN and infinity; a copy costs some 10 us."""
OUTPUT_CALLS = 3
OUTPUT_TENSORS = 4
OUTPUT_VALUES = 512
"""Values kept of an output's first row, evenly spaced. One row, because the same row is there at
any batch size."""


class TraceRecorder:
    """Copies losses and outputs on the device; nothing waits for them until the end."""

    def __init__(self, torch: Any, recording: bool = True) -> None:
        self._torch = torch
        self._recording = recording
        self._losses: list[Any] = []
        self._passes = 1
        """Backward passes up to the next whose loss is kept."""
        self._late: Any = None
        self._outputs: list[tuple[list[int], Any]] = []
        self._output_calls = 0

    def loss(self, tensor: Any, passes: int = 1) -> int:
        """Keep the loss of a backward pass, if it is one of those that are kept.

        It is `passes` after the one before. Return how many later the next one is kept.
        """
        self._passes -= passes
        if self._passes <= 0:
            self._keep(tensor)
        return self._passes

    def _keep(self, tensor: Any) -> None:
        kept = len(self._losses)
        self._passes = 1 if self._recording and kept + 1 < LOSSES else LATE_EVERY
        if not self._recording:
            return
        value = getattr(tensor, "_gpuadvisor_unscaled", tensor).detach()
        value = value.float().mean() if value.numel() != 1 else value.reshape(()).clone()
        if kept < LOSSES:
            self._losses.append(value)
        else:
            self._late = value

    def loss_in(self, result: Any) -> None:
        """Keep the loss that a compiled step returned, if a single number is among its results."""
        for tensor in tensors_in(self._torch, result, depth=1):
            if tensor.numel() == 1:
                self.loss(tensor)
                return

    def output(self, result: Any) -> None:
        """Keep a few numbers of what a root returned, in the first calls."""
        if self._output_calls >= OUTPUT_CALLS or not self._recording:
            return
        self._output_calls += 1
        tensors = [t for t in tensors_in(self._torch, result) if t.numel()]
        for tensor in tensors[:OUTPUT_TENSORS]:
            row = tensor.detach()
            row = (row[0] if row.dim() > 1 else row).reshape(-1)
            kept = min(OUTPUT_VALUES, row.numel())
            index = self._torch.linspace(0, row.numel() - 1, kept, device=row.device).long()
            self._outputs.append((list(tensor.shape), row[index].to("cpu", self._torch.float64)))

    def losses(self) -> list[float]:
        return [float(value) for value in self._losses]

    def last_loss(self) -> float | None:
        last = self._late if self._late is not None else (self._losses or [None])[-1]
        return None if last is None else float(last)

    def outputs(self) -> Iterator[tuple[list[int], list[float]]]:
        for shape, values in self._outputs:
            yield shape, values.tolist()


def rows_in(torch: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Return the samples in a call's input, as the first tensor in it tells; 0 if there is none."""
    tensor = first_tensor(torch, args, kwargs)
    shape = () if tensor is None else tensor.shape
    return shape[0] if shape else 0


def first_tensor(torch: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the first tensor among a call's arguments, or None."""
    if args and isinstance(args[0], torch.Tensor):
        return args[0]
    return next(tensors_in(torch, (args, kwargs)), None)


def tensors_in(torch: Any, value: Any, depth: int = 3) -> Iterator[Any]:
    """Yield the tensors in nested tuples, lists, dictionaries and plain objects."""
    if isinstance(value, torch.Tensor):
        yield value
    elif depth:
        if isinstance(value, dict):
            parts = list(value.values())
        elif isinstance(value, (list, tuple)):
            parts = list(value)
        else:
            parts = list(getattr(value, "__dict__", {}).values())
        for part in parts:
            yield from tensors_in(torch, part, depth - 1)
