"""Let each DataLoader worker prepare more batches in advance.

It evens out batches that take unequally long to load, at the cost of their memory. torch
prepares 2 batches a worker.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpuadvisor.domain.device import Device
from gpuadvisor.domain.knobs import Effect, Level, ScriptFacts, Settings, Value
from gpuadvisor.domain.measurement import Measurement
from gpuadvisor.domain.target import Target
from gpuadvisor.tuners.base import Knob
from gpuadvisor.tuners.knobs._script import NO_LOADER, main_loader, not_waiting, workers_missing


class PrefetchFactor(Knob):
    """Sets `prefetch_factor` of every DataLoader with workers."""

    name = "prefetch_factor"
    title = "Batches prefetched by each worker"
    level = Level.CONSERVATIVE
    effect = Effect.NONE
    order = 40
    plausible = range(1, 257)

    def choices(self, device: Device, facts: ScriptFacts) -> Sequence[Value]:
        loader = main_loader(facts)
        own = loader.prefetch_factor if loader is not None else None
        return [value for value in (4, 8) if value != own]

    def unavailable(self, device: Device, facts: ScriptFacts) -> str | None:
        return None if facts.loaders else NO_LOADER

    def missing(self, settings: Settings, facts: ScriptFacts) -> str | None:
        return workers_missing(settings, facts)

    def pointless(self, best: Measurement) -> str | None:
        return not_waiting(best)

    def apply(self, value: Value, target: Target) -> None:
        def adjust(arguments: dict[str, Any]) -> None:
            if arguments["num_workers"] and arguments["prefetch_factor"] != value:
                arguments["prefetch_factor"] = value
                target.effective()

        target.on_loader(adjust)

    def snippet(self, value: Value) -> str:
        return f"loader = DataLoader(dataset, ..., num_workers=..., prefetch_factor={value})"


KNOB = PrefetchFactor()
