"""Compile the script's modules and let Inductor time many versions of their matrix products.

It takes minutes (300 s for ResNet-50 and 270 s for a small VAE on an H200 with 16 cores, where
plain compiling took 30 s and 10 s) and seldom pays: 2 % less time a step in one training benchmark
(modded-nanogpt #80), 5 to 9 % in diffusion and segmentation (pytorch#125687), slower than plain
compiling in others (pytorch#161764). So it comes last, when the budget has room for it and plain
compiling does no harm.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpuadvisor.domain.device import Device
from gpuadvisor.domain.knobs import Effect, Level, ScriptFacts, Value
from gpuadvisor.tuners.knobs._compile import CompileKnob
from gpuadvisor.tuners.knobs._script import not_on_gpu


class CompileMaxAutotune(CompileKnob):
    """Compiles the script's modules with `max-autotune`, with or without CUDA graphs."""

    name = "compile_max_autotune"
    title = "torch.compile, max-autotune"
    level = Level.BALANCED
    effect = Effect.NUMERICS
    order = 190
    plausible = ("max-autotune-no-cudagraphs", "max-autotune")
    excludes = frozenset({"compile", "compile_cudagraphs"})
    extra_startup_s = 900.0
    first_start_s = 300.0
    refines = "compile"
    obstacles = (not_on_gpu, *CompileKnob.obstacles)

    def choices(self, device: Device, facts: ScriptFacts) -> Sequence[Value]:
        return self.plausible[:1] if facts.varying_shapes else self.plausible


KNOB = CompileMaxAutotune()
