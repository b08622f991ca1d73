"""Compile the script's modules and replay them as CUDA graphs.

It pays where launching kernels costs more than running them: small batches, small layers. A
graph has fixed shapes and its own memory, which the next replay overwrites.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from gpuadvisor.domain.device import Device
from gpuadvisor.domain.knobs import Effect, Level, ScriptFacts, Value
from gpuadvisor.domain.target import Target
from gpuadvisor.tuners.knobs._compile import CompileKnob, Replays
from gpuadvisor.tuners.knobs._script import not_on_gpu


class CompileCudagraphs(CompileKnob):
    """Compiles the script's modules, with CUDA graphs."""

    name = "compile_cudagraphs"
    title = "torch.compile, CUDA graphs"
    level = Level.BALANCED
    effect = Effect.NONE
    order = 140
    plausible = ("reduce-overhead", "cudagraphs")
    excludes = frozenset({"compile", "compile_max_autotune"})
    extra_startup_s = 600.0
    first_start_s = 40.0
    options: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "reduce-overhead": {"mode": "reduce-overhead"},
        "cudagraphs": {"backend": "cudagraphs"},
    }

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


KNOB = CompileCudagraphs()
