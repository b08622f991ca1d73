"""What happens beside the steps: batches, waiting for them, evaluations, compilations."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

from gpuadvisor.collectors.script.child.stock import ready_batches


class Tally(NamedTuple):
    """The counters at one moment; differences of two belong to the steps between."""

    loader_samples: float = 0.0
    root_samples: float = 0.0
    data_wait_s: float = 0.0
    interruptions: int = 0


class Counters:
    """Counted up by the patches, read by the clock."""

    def __init__(self) -> None:
        self.loader_samples = 0.0
        self.root_samples = 0.0
        self.data_wait_s = 0.0
        self.interruptions = 0
        """Calls of a root with gradients off, which in training is an evaluation, and whatever
        else tells that the time to the next step is not a step's."""
        self.stock = 0
        """Batches that the loaders' workers may have ready in advance."""
        self.workers = 0
        self._iterator: Callable[[], Any] = lambda: None

    def loaded_by(self, iterator: Any) -> None:
        """Remember the loader's iterator that gave the newest batch, without keeping it alive."""
        self._iterator = weakref.ref(iterator)

    def ready(self) -> int | None:
        """Return the batches ready in that loader; None where that cannot be seen."""
        iterator = self._iterator()
        return None if iterator is None else ready_batches(iterator)

    def tally(self) -> Tally:
        return Tally(self.loader_samples, self.root_samples, self.data_wait_s, self.interruptions)


def compilations() -> int:
    """Return how many frames Dynamo has compiled, or begun to; 0 if it was never used."""
    module = sys.modules.get("torch._dynamo.utils")
    counters = getattr(module, "counters", None)
    if counters is None:
        return 0
    return sum(
        counters[group].get(key, 0)
        for group, key in (("frames", "total"), ("stats", "unique_graphs"))
        if group in counters
    )
