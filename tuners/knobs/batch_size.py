"""Make batches larger, by a factor on the script's own size, until throughput stops growing.

In training it changes what is learned (fewer, larger steps), so it comes last and at the last
level there; in inference only the throughput and the latency change.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpuadvisor.domain.device import Device
from gpuadvisor.domain.knobs import Effect, Level, ScriptFacts, Value
from gpuadvisor.domain.target import Target
from gpuadvisor.tuners.knobs._script import LoaderKnob

FACTORS = (2, 4, 8, 16, 32, 64)


class BatchSize(LoaderKnob):
    """Multiplies the batch size of every DataLoader that has one."""

    name = "batch_size"
    title = "Batch size, times the script's own"
    level = Level.BALANCED
    effect = Effect.TRAINING
    order = 160
    plausible = range(2, 1025)
    progressive = True
    needs_workers = cures_waiting = False
    lines = "loader = DataLoader(dataset, batch_size={value} * batch_size, ...)"

    def choices(self, device: Device, facts: ScriptFacts) -> Sequence[Value]:
        return FACTORS

    def unavailable(self, device: Device, facts: ScriptFacts) -> str | None:
        if any(loader.batch_size for loader in facts.loaders):
            return None
        return (
            "the script has no DataLoader with a batch size; "
            "if an argument sets it, search that one with --arg batch-size=..."
        )

    def level_for(self, facts: ScriptFacts) -> Level:
        return Level.AGGRESSIVE if facts.training else Level.BALANCED

    def effect_for(self, facts: ScriptFacts) -> Effect:
        return Effect.TRAINING if facts.training else Effect.NONE

    def adjust(self, value: Value, target: Target, arguments: dict[str, Any]) -> None:
        own = arguments["batch_size"]
        if not own or arguments["batch_sampler"] is not None:
            return
        larger = own * int(value)
        if larger > _samples(arguments["dataset"]):  # it would make one batch, or none
            return
        arguments["batch_size"] = larger
        target.effective(f"{own} to {larger}")


def _samples(dataset: Any) -> float:
    """Return the length of a data set; infinity for a stream, which has none."""
    try:
        return len(dataset)
    except (TypeError, NotImplementedError):
        return float("inf")


KNOB = BatchSize()
