"""What a run computed, in few enough numbers to compare it with another run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpuadvisor.collectors.script.child.channel import Report, guarded

DEPTH = 3
"""Levels of nesting that are looked into."""
OWN_COUNTS = ("num_graphs", "batch_size")
"""Attributes in which a batch says it itself: PyTorch Geometric's, and those of its loaders that
sample neighbours."""
LOSSES = 10
"""First losses kept. Later ones drift apart in any two runs that round differently."""
LATE_EVERY = 10
"""One loss in so many is kept after that, to see NaN and infinity; a copy costs some 10 us."""
OUTPUT_CALLS = 3
OUTPUT_TENSORS = 4
KEEP_LOSSES = "keep the script's losses, so nothing is compared by them"
KEEP_OUTPUTS = "keep the script's outputs, so nothing is compared by them"
OUTPUT_VALUES = 512
"""Values kept of an output's first row, evenly spaced. One row, because the same row is there at
any batch size."""


def samples_in(batch: Any, batch_size: int | None) -> int:
    """Return the samples in a batch; `batch_size` is the loader's, if it has one.

    A length in the batch that equals it is right: a list of 4 images, each of 3 channels, holds 4
    samples. Else the first length is taken: that of a smaller last batch.
    """
    kind = type(batch)
    if batch_size and (kind is list or kind is tuple or kind is dict):  # usual cases, quickly
        first = (batch[0] if kind is not dict else next(iter(batch.values()))) if batch else None
        shape = getattr(first, "shape", None)
        if shape and shape[0] == batch_size:
            return batch_size
    for name in OWN_COUNTS:
        count = getattr(batch, name, None)
        if isinstance(count, int):
            return count
    smaller = None
    for length in _lengths(batch, DEPTH):
        if length == batch_size or batch_size is None:
            return length
        if smaller is None and length < batch_size:
            smaller = length
    return smaller or batch_size or 1


def _lengths(value: Any, depth: int) -> Iterator[int]:
    """Yield what may be the length of a batch: of tensors first, of lists after what they hold."""
    shape = getattr(value, "shape", None)
    if shape is not None:
        if len(shape):
            yield int(shape[0])
        return
    if depth == 0 or isinstance(value, (str, bytes)):
        return
    if isinstance(value, Mapping):
        for part in value.values():
            yield from _lengths(part, depth - 1)
    elif isinstance(value, Sequence):
        for part in value:
            yield from _lengths(part, depth - 1)
        yield len(value)


class TraceRecorder:
    """Copies losses and outputs on the device; nothing waits for them until the end."""

    def __init__(self, torch: Any, recording: bool = True, report: Report | None = None) -> None:
        """`report` is told of what cannot be kept: then nothing of its kind is, as a part of it
        would be compared as if it were all."""
        self._torch = torch
        self.report = report
        self._recording = recording
        self._losses: list[Any] = []
        self._passes = 1
        """Backward passes up to the next whose loss is kept."""
        self._late: Any = None
        self._outputs: list[tuple[list[int], Any]] = []
        self._output_calls = 0

    def stop(self) -> None:
        """Keep no more: copies would be counted among the operators of the steps from here on."""
        self._recording = False

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
        with guarded(self.report, KEEP_LOSSES):
            value = getattr(tensor, "_gpuadvisor_unscaled", tensor).detach()
            value = value.float().mean() if value.numel() != 1 else value.reshape(()).clone()
            if kept < LOSSES:
                self._losses.append(value)
            else:
                self._late = value
            return
        self._keep_no_losses()

    def loss_in(self, result: Any) -> None:
        """Keep the loss that a compiled step returned, if a single number is among its results."""
        with guarded(self.report, KEEP_LOSSES):
            for tensor in tensors_in(self._torch, result, depth=1):
                if tensor.numel() == 1:
                    self.loss(tensor)
                    return
            return
        self._keep_no_losses()

    def _keep_no_losses(self) -> None:
        self._losses, self._late, self._recording = [], None, False

    def output(self, result: Any) -> None:
        """Keep a few numbers of what a root returned, in the first calls."""
        if self._output_calls >= OUTPUT_CALLS or not self._recording:
            return
        self._output_calls += 1
        with guarded(self.report, KEEP_OUTPUTS):
            self._keep_output(result)
            return
        self._outputs, self._output_calls = [], OUTPUT_CALLS

    def _keep_output(self, result: Any) -> None:
        tensors = [t for t in tensors_in(self._torch, result) if t.numel()]
        for tensor in tensors[:OUTPUT_TENSORS]:
            row = tensor.detach()
            row = (row[0] if row.dim() > 1 else row).reshape(-1)
            kept = min(OUTPUT_VALUES, row.numel())
            # In whole numbers: float32 has not every place of a row of 16.8 million.
            places = self._torch.arange(kept, device=row.device)
            index = places * (row.numel() - 1) // max(kept - 1, 1)
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
    """Return the samples in a call's input, as the first tensor in it tells; 0 if there is none, or
    it does not let itself be looked into."""
    try:
        if args and isinstance(args[0], torch.Tensor):
            tensor = args[0]
        else:
            tensor = next(tensors_in(torch, (args, kwargs)), None)
        shape = () if tensor is None else tensor.shape
        return shape[0] if shape else 0
    except Exception:  # objects of the script's, whose attributes may do anything
        return 0


def new_rows_in(torch: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Return the samples that come into the model with a call; 0 where the call goes on with those
    of a call before it, as it has the state of a recurrent cell beside its first tensor."""
    try:
        for each in (*args[1:], *kwargs.values()):
            states = each if type(each) is tuple else (each,)
            if any(isinstance(one, torch.Tensor) and one.grad_fn is not None for one in states):
                first = args[0] if args else None
                if isinstance(first, torch.Tensor) and first.grad_fn is None:
                    return 0
    except Exception:  # objects of the script's, whose attributes may do anything
        return 0
    return rows_in(torch, args, kwargs)


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
