"""Keep the DataLoader's workers alive between epochs.

Without it each epoch starts its workers anew, which weighs when epochs are short. Workers that
live on are not seeded again and see no later change of the data set's attributes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpuadvisor.domain.device import Device
from gpuadvisor.domain.knobs import Effect, Level, ScriptFacts, Value
from gpuadvisor.domain.target import Target
from gpuadvisor.tuners.knobs._script import LoaderKnob


class PersistentWorkers(LoaderKnob):
    """Sets `persistent_workers` of every DataLoader with workers."""

    name = "persistent_workers"
    title = "Workers kept between epochs"
    level = Level.CONSERVATIVE
    effect = Effect.RANDOM_STREAM  # from the second epoch on: no new seeds are drawn
    order = 30
    lines = "loader = DataLoader(dataset, ..., num_workers=..., persistent_workers=True)"

    def choices(self, device: Device, facts: ScriptFacts) -> Sequence[Value]:
        return [] if any(loader.persistent_workers for loader in facts.loaders[:1]) else [True]

    def adjust(self, value: Value, target: Target, arguments: dict[str, Any]) -> None:
        if arguments["num_workers"] and not arguments["persistent_workers"]:
            arguments["persistent_workers"] = True
            target.effective()


KNOB = PersistentWorkers()
