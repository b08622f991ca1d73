"""Let each DataLoader worker prepare more batches in advance.

It evens out batches that take unequally long to load, at the cost of their memory. torch
prepares 2 batches a worker.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpuadvisor.domain.device import Device
from gpuadvisor.domain.knobs import Effect, Level, ScriptFacts, Value
from gpuadvisor.domain.target import Target
from gpuadvisor.tuners.knobs._script import LoaderKnob


class PrefetchFactor(LoaderKnob):
    """Sets `prefetch_factor` of every DataLoader with workers."""

    name = "prefetch_factor"
    title = "Batches prefetched by each worker"
    level = Level.CONSERVATIVE
    effect = Effect.NONE
    order = 40
    plausible = range(1, 257)
    lines = "loader = DataLoader(dataset, ..., num_workers=..., prefetch_factor={value})"

    def choices(self, device: Device, facts: ScriptFacts) -> Sequence[Value]:
        own = {loader.prefetch_factor for loader in facts.loaders[:1]}
        return [value for value in (4, 8) if value not in own]

    def adjust(self, value: Value, target: Target, arguments: dict[str, Any]) -> None:
        if arguments["num_workers"] and arguments["prefetch_factor"] != value:
            arguments["prefetch_factor"] = value
            target.effective()


KNOB = PrefetchFactor()
