"""Compile the script's modules and replay them as CUDA graphs.

It pays where launching kernels costs more than running them: small batches, small layers. A
graph has fixed shapes and its own memory, which the next replay overwrites.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from gpuadvisor.domain.device import Device
from gpuadvisor.domain.knobs import Effect, Level, ScriptFacts, Value
from gpuadvisor.domain.target import Call, Target
from gpuadvisor.tuners.knobs._compile import CompileKnob
from gpuadvisor.tuners.knobs._script import not_on_gpu
from gpuadvisor.tuners.knobs._tensors import map_tensors

CALLS_BEFORE_BACKWARD = 8
"""Calls with gradients on and no backward pass ever, after which none is waited for. A GAN's
first step makes three."""


class CompileCudagraphs(CompileKnob):
    """Compiles with CUDA graphs."""

    name = "compile_cudagraphs"
    title = "torch.compile, CUDA graphs"
    level = Level.BALANCED
    effect = Effect.NONE
    order = 140
    plausible = ("reduce-overhead", "cudagraphs", "max-autotune")
    excludes = frozenset({"compile"})
    extra_startup_s = 600.0
    options: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "reduce-overhead": {"mode": "reduce-overhead"},
        "cudagraphs": {"backend": "cudagraphs"},
        "max-autotune": {"mode": "max-autotune"},
    }

    def choices(self, device: Device, facts: ScriptFacts) -> Sequence[Value]:
        return list(self.options)

    def unavailable(self, device: Device, facts: ScriptFacts) -> str | None:
        if reason := not_on_gpu(device, facts):
            return reason
        if facts.varying_shapes:
            return "a CUDA graph has fixed shapes, and the script's inputs change theirs"
        return super().unavailable(device, facts)

    def apply(self, value: Value, target: Target) -> None:
        super().apply(value, target)
        Replays(target)

    def snippet(self, value: Value) -> str:
        return (
            f"{super().snippet(value)}\n"
            "output = model(batch).clone()  # only to keep it beyond the next call"
        )


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


KNOB = CompileCudagraphs()
