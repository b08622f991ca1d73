"""Compile the script's modules with Inductor.

Over 163 models training became 43 % faster in the mean on an A100 (pytorch.org, "PyTorch 2.0");
timm's inference 1.6 times as fast in the median. It can also lose: a graph network with inputs
of varying size went from 7.5 to 11.8 ms a step.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpuadvisor.domain.device import Device
from gpuadvisor.domain.knobs import Effect, Level, ScriptFacts, Value
from gpuadvisor.tuners.knobs._compile import CompileKnob


class Compile(CompileKnob):
    """Compiles the script's modules, without CUDA graphs."""

    name = "compile"
    title = "torch.compile"
    level = Level.CONSERVATIVE
    effect = Effect.NONE
    order = 130
    plausible = ("default", "dynamic")
    excludes = frozenset({"compile_cudagraphs", "compile_max_autotune"})
    extra_startup_s = 300.0
    first_start_s = 40.0

    def choices(self, device: Device, facts: ScriptFacts) -> Sequence[Value]:
        return self.plausible if facts.varying_shapes else ["default"]


KNOB = Compile()
