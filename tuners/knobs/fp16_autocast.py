"""Compute in float16 under autocast, with the loss scaled so that small gradients survive.

For GPUs before Ampere, which have no bfloat16: elsewhere it is as fast as bfloat16 (median ratio
1.00 over timm's published benchmarks) and less safe, hence the last level.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpuadvisor.domain.device import Device
from gpuadvisor.domain.knobs import Effect, Level, ScriptFacts, Value
from gpuadvisor.domain.target import Target
from gpuadvisor.tuners.base import Knob
from gpuadvisor.tuners.knobs._autocast import RootAutocast, autocast_unavailable
from gpuadvisor.tuners.knobs._loss_scaling import LossScaling
from gpuadvisor.tuners.knobs._script import not_on_gpu


class Fp16Autocast(Knob):
    """Runs the script's modules under float16 autocast and scales its loss."""

    name = "fp16_autocast"
    title = "float16 autocast, scaled loss"
    level = Level.AGGRESSIVE
    effect = Effect.NUMERICS
    order = 80
    plausible = (True,)
    excludes = frozenset({"bf16_autocast"})

    def choices(self, device: Device, facts: ScriptFacts) -> Sequence[Value]:
        return [True]

    def unavailable(self, device: Device, facts: ScriptFacts) -> str | None:
        if reason := not_on_gpu(device, facts):
            return reason
        if facts.scales_itself:
            return "the script scales its loss itself"
        if "LBFGS" in facts.optimizers:
            return "LBFGS needs the loss itself, and float16 needs it scaled"
        return autocast_unavailable(facts)

    def apply(self, value: Value, target: Target) -> None:
        LossScaling(RootAutocast("float16", target), target)

    def snippet(self, value: Value) -> str:
        return (
            'scaler = torch.amp.GradScaler("cuda")\n'
            'with torch.autocast("cuda", dtype=torch.float16):\n'
            "    output = model(batch)\n"
            "loss = criterion(output.float(), labels)\n"
            "scaler.scale(loss).backward()\n"
            "scaler.unscale_(optimizer)  # only before clipping gradients\n"
            "scaler.step(optimizer)\n"
            "scaler.update()"
        )


KNOB = Fp16Autocast()
