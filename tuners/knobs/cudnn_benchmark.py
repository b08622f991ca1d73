"""Let cuDNN time its convolution algorithms on the shapes at hand, and keep the fastest.

Each new shape is timed anew, so it only pays where shapes stay the same.
"""

from __future__ import annotations

from typing import Any

from gpuadvisor.domain.device import Device
from gpuadvisor.domain.knobs import Effect, Level, ScriptFacts, Value
from gpuadvisor.domain.target import Target
from gpuadvisor.tuners.base import Knob
from gpuadvisor.tuners.knobs._script import not_on_gpu


class CudnnBenchmark(Knob):
    """Turns `torch.backends.cudnn.benchmark` on."""

    name = "cudnn_benchmark"
    title = "cuDNN algorithm search"
    level = Level.CONSERVATIVE
    effect = Effect.NONE
    order = 100
    plausible = (True,)
    extra_startup_s = 30.0
    first_start_s = 8.0

    def unavailable(self, device: Device, facts: ScriptFacts) -> str | None:
        if reason := not_on_gpu(device, facts):
            return reason
        if not facts.has_convolution:
            return "the script's model has no convolution"
        if facts.varying_shapes:
            return "the input's shape changes, and each new shape would be timed anew"
        return None

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

    def snippet(self, value: Value) -> str:
        return "torch.backends.cudnn.benchmark = True"


KNOB = CudnnBenchmark()
