"""Load batches in parallel processes.

Decides when a script waits for its data: ResNet-50 on an H100 with 16 cores went from 211.5 to
150.2 ms a step with 15 pinned workers instead of 4. It costs memory and start-up, and too many
workers slowed another script down from 25.7 to 33.7 ms, so the number is searched.

Where a loader had none they are forked, also with Python 3.14 and newer, whose default imports the
script anew in each of them, and ends one without `if __name__ == "__main__":`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpuadvisor.domain.device import Device
from gpuadvisor.domain.knobs import Effect, Level, ScriptFacts, Value
from gpuadvisor.domain.target import Target, context_of_workers
from gpuadvisor.tuners.knobs._script import LoaderKnob, is_iterable, is_on_gpu

MOST_WORKERS = 32
"""Most workers that are tried: each is a process with its own copy of the data set's state and two
batches in flight."""

MOST_CHOICES = 4


class DataLoaderWorkers(LoaderKnob):
    """Sets `num_workers` of every DataLoader with a map-style data set."""

    name = "dataloader_workers"
    title = "DataLoader workers"
    level = Level.CONSERVATIVE
    effect = Effect.RANDOM_STREAM  # augmentation draws from the workers' generators
    order = 10
    plausible = range(257)
    extra_startup_s = 30.0  # each worker of a spawn context imports the script again
    first_start_s = 4.0
    needs_workers = False
    lines = "loader = DataLoader(dataset, ..., num_workers={value})"

    def choices(self, device: Device, facts: ScriptFacts) -> Sequence[Value]:
        cores = device.cores
        ideas = [min(cores - 1, MOST_WORKERS), min(cores // 2, MOST_WORKERS // 2), 8, 4, 2, 1]
        own = {loader.num_workers for loader in facts.loaders[:1]}
        useful = [idea for idea in ideas if 0 < idea <= cores and idea not in own]
        fitting = list(dict.fromkeys(useful))[: MOST_CHOICES - 1 if own != {0} else MOST_CHOICES]
        if own - {0}:
            fitting.append(0)  # a tiny batch is built faster than it is sent between processes
        return fitting

    def unavailable(self, device: Device, facts: ScriptFacts) -> str | None:
        if facts.loaders and all(loader.iterable for loader in facts.loaders):
            return "the script streams an IterableDataset, and more workers would repeat samples"
        return super().unavailable(device, facts)

    def snippet(self, value: Value) -> str:
        method = context_of_workers() if value else None
        if method is None:
            return super().snippet(value)
        chosen = (
            f'loader = DataLoader(..., num_workers={value}, multiprocessing_context="{method}")'
        )
        return f"{chosen}  # {method} where it had no workers"

    def adjust(self, value: Value, target: Target, arguments: dict[str, Any]) -> None:
        if is_iterable(arguments) or arguments["num_workers"] == value:
            return
        if is_on_gpu(arguments):
            target.refuse("the data set is on the GPU already, where workers cannot read it")
            return
        if not arguments["num_workers"]:
            arguments["multiprocessing_context"] = context_of_workers()
        arguments["num_workers"] = value
        if not value:  # the constructor refuses what only workers can do
            arguments.update(
                persistent_workers=False,
                prefetch_factor=None,
                multiprocessing_context=None,
                timeout=0,
            )
        target.effective()


KNOB = DataLoaderWorkers()
