"""Keep the DataLoader's workers alive between epochs.

Without it each epoch starts its workers anew, which weighs when epochs are short. Workers that
live on are not seeded again and see no later change of the data set's attributes.
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


class PersistentWorkers(Knob):
    """Sets `persistent_workers` of every DataLoader with workers."""

    name = "persistent_workers"
    title = "Workers kept between epochs"
    level = Level.CONSERVATIVE
    effect = Effect.RANDOM_STREAM  # from the second epoch on: no new seeds are drawn
    order = 30
    plausible = (True,)

    def choices(self, device: Device, facts: ScriptFacts) -> Sequence[Value]:
        loader = main_loader(facts)
        return [] if loader is not None and loader.persistent_workers else [True]

    def unavailable(self, device: Device, facts: ScriptFacts) -> str | None:
        return None if facts.loaders else NO_LOADER

    def missing(self, settings: Settings, facts: ScriptFacts) -> str | None:
        return workers_missing(settings, facts)

    def pointless(self, best: Measurement) -> str | None:
        return not_waiting(best)

    def apply(self, value: Value, target: Target) -> None:
        def adjust(arguments: dict[str, Any]) -> None:
            if arguments["num_workers"] and not arguments["persistent_workers"]:
                arguments["persistent_workers"] = True
                target.effective()

        target.on_loader(adjust)

    def snippet(self, value: Value) -> str:
        return "loader = DataLoader(dataset, ..., num_workers=..., persistent_workers=True)"


KNOB = PersistentWorkers()
