"""Have DataLoader workers build their batches in shared memory that they have used before.

torch asks the system for new shared memory for each batch. Its pages are made, filled with zeros,
mapped by two processes and given back: more than half a millisecond for each MiB, in the worker and
in the script's process. There the thread that pins a batch gives it back while it holds Python's
lock, so that for 20 to 50 ms (256 pictures of 224 x 224) no kernel is launched. Memory that is used
again needs none of that (`benchmarks/loader_memory.py`).

It is for batches that torch's own collate function builds, of 1 MiB or more. A batch's memory is
used again when nothing in either process refers to it: no tensor, no view, no array. What is still
referred to is left alone, and so is what was sent to another process; the worker takes new memory.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gpuadvisor.domain.device import Device
from gpuadvisor.domain.knobs import Effect, Level, ScriptFacts, Settings, Value
from gpuadvisor.domain.target import Target
from gpuadvisor.tuners.base import Knob
from gpuadvisor.tuners.knobs._batch_memory import reuse, tell
from gpuadvisor.tuners.knobs._loaders import NO_LOADER, workers_missing


class BatchMemory(Knob):
    """Initializes every DataLoader's workers with `reuse`, after the script's own function."""

    name = "batch_memory"
    title = "Batch memory is reused"
    level = Level.CONSERVATIVE
    effect = Effect.NONE
    order = 50
    plausible = ("reuse",)

    def choices(self, device: Device, facts: ScriptFacts) -> Sequence[Value]:
        return ["reuse"]

    def unavailable(self, device: Device, facts: ScriptFacts) -> str | None:
        if not sys.platform.startswith("linux"):
            return "elsewhere than on Linux batches are shared in another way"
        return None if facts.loaders else NO_LOADER

    def missing(self, settings: Settings, facts: ScriptFacts) -> str | None:
        return workers_missing(settings, facts)

    def apply(self, value: Value, target: Target) -> None:
        def adjust(arguments: dict[str, Any]) -> None:
            own = arguments["worker_init_fn"]
            if not isinstance(own, Initialization):  # of a loader that is built like another one
                arguments["worker_init_fn"] = Initialization(own)

        tell(target.effective)
        target.on_loader(adjust)

    def snippet(self, value: Value) -> str:
        return (
            f"from {__name__} import reuse\n"
            "loader = DataLoader(dataset, ..., num_workers=..., worker_init_fn=reuse)"
        )


@dataclass(frozen=True)
class Initialization:
    """A worker's own `worker_init_fn`, followed by `reuse`."""

    own: Callable[[int], object] | None

    def __call__(self, worker_id: int) -> None:
        if self.own is not None:
            self.own(worker_id)
        reuse(worker_id)


KNOB = BatchMemory()
