"""Generators of random numbers that give the same numbers more than once in a life's workers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gpuadvisor.domain.rehearsal import WorkerStart

SEEDED = "seeded "
"""How the state of a generator begins that was seeded while its first samples were read: what it
was like after them is compared, and between workers only."""


@dataclass(frozen=True)
class Repetition:
    """One generator that began twice in the same state, and was drawn from both times."""

    loader: int
    path: str
    """Attribute path of the generator: `dataset.rng`, `numpy.random`."""
    first: tuple[int, int]
    """Epoch and worker that had the state first."""
    second: tuple[int, int]
    """Epoch and worker that had it again."""

    @property
    def is_between_workers(self) -> bool:
        """Whether two workers of one epoch gave the same numbers, not two epochs."""
        return self.first[0] == self.second[0]


def repeated(starts: Iterable[WorkerStart]) -> list[Repetition]:
    """Return which generators repeat themselves: once each between workers and between epochs.

    Each worker is given once a pass. What nobody drew from is no repetition.
    """
    first_seen: dict[tuple[int, str, str], tuple[int, int]] = {}
    found: dict[tuple[int, str, bool], Repetition] = {}
    for start in sorted(starts, key=lambda each: (each.loader, each.epoch, each.worker)):
        loader, epoch, worker = start.loader, start.epoch, start.worker
        for path in sorted(start.advanced):
            digest = start.generators.get(path, "")
            if digest.startswith(SEEDED):  # by a sample's number, perhaps: meant to be the same
                digest += f" in epoch {epoch}"
            first = first_seen.setdefault((loader, path, digest), (epoch, worker))
            if first != (epoch, worker):
                repetition = Repetition(loader, path, first, (epoch, worker))
                found.setdefault((loader, path, repetition.is_between_workers), repetition)
    return list(found.values())
