"""Compile the script's modules and replay them as CUDA graphs.

It pays where launching kernels costs more than running them: small batches, small layers. A
graph has fixed shapes and its own memory, which the next replay overwrites.
"""

from __future__ import annotations

from gpuadvisor.domain.device import Device
from gpuadvisor.domain.knobs import Effect, Level, ScriptFacts, Value
from gpuadvisor.tuners.knobs._compile import CompileKnob
from gpuadvisor.tuners.knobs._script import not_on_gpu


def _varying_shapes(device: Device, facts: ScriptFacts) -> str | None:
    if not facts.varying_shapes:
        return None
    return "a CUDA graph has fixed shapes, and the script's inputs change theirs"


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
    obstacles = (not_on_gpu, _varying_shapes, *CompileKnob.obstacles)

    def snippet(self, value: Value) -> str:
        return (
            f"{super().snippet(value)}\n"
            "output = model(batch).clone()  # only to keep it beyond the next call"
        )


KNOB = CompileCudagraphs()
