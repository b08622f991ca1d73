"""Outputs of CUDA graphs: each replay overwrites what the last one returned."""

from __future__ import annotations

from typing import Any

from gpuadvisor.domain.target import Call, Target
from gpuadvisor.tuners.knobs._tensors import map_tensors

CALLS_BEFORE_BACKWARD = 8
"""Calls with gradients on and no backward pass ever, after which none is waited for. A GAN's
first step makes three."""


class Replays:
    """Keeps outputs of replayed graphs usable as long as the script may want them."""

    def __init__(self, target: Target) -> None:
        self._trains = False
        self._calls = 0
        target.around_root(self._around)
        target.around_backward(self._backward)

    def _around(
        self, module: Any, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        import torch

        if not torch.is_grad_enabled():
            return map_tensors(call(*args, **kwargs), _copy)
        if not self._trains:
            self._calls += 1
        if self._trains or self._calls <= CALLS_BEFORE_BACKWARD:
            # The graphs wait for the backward pass before they reuse memory. Only losses, which
            # scripts like to collect, are copied: the logits of a language model are too large.
            return map_tensors(call(*args, **kwargs), _copy_scalar)
        # Inference that forgot `no_grad`: each call would wait for a backward pass that never
        # comes, and record a graph of its own behind the last one.
        torch.compiler.cudagraph_mark_step_begin()
        return map_tensors(call(*args, **kwargs), _copy)

    def _backward(self, tensor: Any, call: Call) -> None:
        self._trains = True
        call(tensor)


def _copy(tensor: Any) -> Any:
    return tensor.clone() if tensor.is_cuda else tensor


def _copy_scalar(tensor: Any) -> Any:
    return _copy(tensor) if tensor.numel() == 1 else tensor
