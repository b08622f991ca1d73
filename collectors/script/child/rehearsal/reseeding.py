"""Whether reading seeds the process's own generators alike, as `random.seed(7)` for each sample.

Then all that the script draws from them follows on that, too, for as long as its process reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gpuadvisor.collectors.script.child.rehearsal.dataset_state import State
from gpuadvisor.collectors.script.child.rehearsal.generators import GLOBAL
from gpuadvisor.domain.rehearsal import Reseeding

_MOMENTS = 4
"""Before the first batch, after it, as the next one is wanted, and after that."""


class ReseedingWatch:
    """Compares the generators after the first two batches of each loader that has no workers."""

    def __init__(self) -> None:
        self._digests: dict[int, list[dict[str, str]]] = {}
        """Places of loaders to digests of the generators, at each moment."""

    def begin(self, place: int, state: State, loader: Any) -> None:
        """Take the state before a pass; only that of the first one counts."""
        if place not in self._digests and not loader.num_workers:
            self._digests[place] = []
            self.look(place, state)

    def look(self, place: int, state: State) -> None:
        """Take the state after a batch, or before the next."""
        known = self._digests.get(place)
        if known is not None and len(known) < _MOMENTS:
            generators = state.generators.items()
            known.append({path: each.digest for path, each in generators if path in GLOBAL})

    def found(self, place: int) -> Iterator[Reseeding]:
        """Yield what two batches have left in the same state, though it moved in between."""
        known = self._digests.get(place, [])
        if len(known) == _MOMENTS:
            before, first, wanted, second = known
            for path, digest in second.items():
                is_drawn = wanted.get(path) != digest
                if first.get(path) == digest and (is_drawn or before.get(path) != digest):
                    yield Reseeding(place, path, digest, is_drawn)
