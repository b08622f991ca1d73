"""Load batches into page-locked memory, and copy them to the GPU without waiting.

Pinning alone only makes the copy itself faster. What overlaps the copy with the computation is
`non_blocking=True`, so the knob turns that on too for tensors that are pinned and fresh.
"""

from __future__ import annotations

import functools
from typing import Any

from gpuadvisor.domain.knobs import Effect, Level, Value
from gpuadvisor.domain.target import Target
from gpuadvisor.tuners.knobs._script import LoaderKnob, is_on_gpu, no_loader, not_on_gpu


class PinMemory(LoaderKnob):
    """Pins every DataLoader's batches and makes their copies asynchronous."""

    name = "pin_memory"
    title = "Pinned memory, asynchronous copies"
    level = Level.CONSERVATIVE
    effect = Effect.NONE
    order = 20
    obstacles = (not_on_gpu, no_loader)
    needs_workers = cures_waiting = False
    lines = (
        "loader = DataLoader(dataset, ..., pin_memory=True)\n"
        'batch = batch.to("cuda", non_blocking=True)  # each tensor of the batch'
    )

    def apply(self, value: Value, target: Target) -> None:
        super().apply(value, target)
        copy_without_waiting(target)

    def adjust(self, value: Value, target: Target, arguments: dict[str, Any]) -> None:
        if not arguments["pin_memory"] and not is_on_gpu(arguments):
            arguments["pin_memory"] = True
            target.effective()


def copy_without_waiting(target: Target) -> None:
    """Make copies from fresh pinned memory to the GPU asynchronous, where the script says nothing.

    The copy is ordered with the kernels after it, and torch keeps the memory until it is done.
    """
    import torch

    to, cuda = torch.Tensor.to, torch.Tensor.cuda

    @functools.wraps(to, assigned=("__name__", "__doc__"))
    def patched_to(self: Any, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_dynamo_compiling():
            return self.to(*args, **kwargs)  # which Dynamo takes for the built-in method
        if _goes_to_gpu(args, kwargs) and _is_fresh(self):
            target.effective()
            kwargs["non_blocking"] = True
        return to(self, *args, **kwargs)

    @functools.wraps(cuda, assigned=("__name__", "__doc__"))
    def patched_cuda(self: Any, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_dynamo_compiling():
            return self.cuda(*args, **kwargs)
        if len(args) < 2 and "non_blocking" not in kwargs and _is_fresh(self):
            target.effective()
            kwargs["non_blocking"] = True
        return cuda(self, *args, **kwargs)

    torch.Tensor.to, torch.Tensor.cuda = patched_to, patched_cuda


def _goes_to_gpu(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Say whether `tensor.to(*args, **kwargs)` copies to a GPU and leaves open how."""
    if "non_blocking" in kwargs or any(isinstance(arg, bool) for arg in args):
        return False
    place = args[0] if args else kwargs.get("device", kwargs.get("other"))
    if isinstance(place, int):
        return True
    if isinstance(place, str):
        return place.startswith("cuda")
    kind = getattr(place, "device", place)  # of another tensor
    return getattr(kind, "type", None) == "cuda"


def _is_fresh(tensor: Any) -> bool:
    """Say whether a tensor is pinned and was never written to since.

    A buffer that the script fills again and again must be copied before it is filled anew, so
    it needs the wait. Its version shows the filling; a batch of the loader has version 0. The
    version of inference tensors is not known.
    """
    import torch

    return (
        type(tensor) is torch.Tensor
        and tensor.device.type == "cpu"
        and not tensor.is_inference()
        and tensor._version == 0
        and tensor.is_pinned()
    )


KNOB = PinMemory()
