"""Let cuDNN time its convolution algorithms on the shapes at hand, and keep the fastest.

Each new shape is timed anew, so it only pays where shapes stay the same. It is not turned in a
running script: torch keeps a plan for each shape, found with or without it, and looks there first
(`run_single_conv` in Conv_v8.cpp), so a warm script shows 1.00x, and what was found stays.
"""

from __future__ import annotations

from typing import Any

from gpuadvisor.domain.device import Device
from gpuadvisor.domain.knobs import Effect, Level, ScriptFacts, Value
from gpuadvisor.domain.target import Target
from gpuadvisor.tuners.base import Knob
from gpuadvisor.tuners.knobs._script import no_convolution, not_on_gpu


def _varying_shapes(device: Device, facts: ScriptFacts) -> str | None:
    if not facts.varying_shapes:
        return None
    return "the input's shape changes, and each new shape would be timed anew"


class CudnnBenchmark(Knob):
    """Turns `torch.backends.cudnn.benchmark` on."""

    name = "cudnn_benchmark"
    title = "cuDNN algorithm search"
    level = Level.CONSERVATIVE
    effect = Effect.NONE
    order = 100
    saves_gpu_time_only = True
    extra_startup_s = 30.0
    first_start_s = 8.0
    obstacles = (not_on_gpu, no_convolution, _varying_shapes)
    lines = "torch.backends.cudnn.benchmark = True"

    def apply(self, value: Value, target: Target) -> None:
        import torch

        cudnn = torch.backends.cudnn

        def prepare(module: Any) -> None:
            if cudnn.deterministic or torch.are_deterministic_algorithms_enabled():
                target.refuse("the script asks for deterministic algorithms")
            elif not cudnn.benchmark:
                cudnn.benchmark = True
                target.effective()

        target.on_root(prepare)


KNOB = CudnnBenchmark()
