"""How fast a script's loader supplies batches by itself, and what that lets a step become.

It decides with which settings of the loader fresh processes begin. It is never a gain by itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gpuadvisor.domain.knobs import Settings

SLOWER_BESIDE_WORKERS = 1.2
"""Times its time in the unchanged script that the part of a step that is no waiting for a batch may
take beside more workers, which use caches and memory. On H200s it took 1.08 to 1.20 times as long
in five runs of a VAE with 8 workers, and 1.06 to 1.17 in five of a classifier of pictures with 15
(`docs/recordings/study.json`)."""


@dataclass(frozen=True)
class Supplied:
    """How fast the loader was under some settings, while nothing trained beside it."""

    settings: Settings
    """Knobs of the loader; those that are not named are as the script has them."""
    batch_ms: float | None = None
    """Mean time between two batches, in milliseconds; None where it failed."""
    low_ms: float | None = None
    high_ms: float | None = None
    """Ends of the 99 % interval of `batch_ms`."""
    batches: int = 0
    """Batches that were timed."""
    step_ms: float | None = None
    """The least that a step of the script takes with such a loader, in milliseconds: the rest of a
    step, or the supply of its batches, whichever takes longer. Without workers it is their sum, and
    on a CPU the rest of a step takes longer by what its cores load meanwhile."""
    seconds: float = 0.0
    """Time that it took; for the first one, the script's start included."""
    failed: str = ""
    """Why it failed, as a clause; empty if it did not."""


@dataclass(frozen=True)
class LoaderSupply:
    """What a script's loader can supply, against what the rest of its step takes."""

    step_ms: float
    """Mean step of the unchanged script, in milliseconds."""
    rest_ms: float
    """Its part in which the script did not wait for its loaders, or only while the GPU had work."""
    values: tuple[Supplied, ...] = ()
    """In the order in which they were timed."""
    workers: tuple[int, ...] = ()
    """Numbers of workers that are worth a trial, the first of them first; empty if none was timed.
    """
    why: str = ""
    """Why no more numbers of workers were timed, as a clause; empty where all were."""
    settings: Settings = field(default_factory=dict)
    """What the search's first trial has of it; empty where no number of workers promises a gain."""
    best_rest_ms: float | None = None
    """What the rest of a step takes with what was screened best for its computing: the numbers of
    workers were chosen for that. None where they were chosen for `rest_ms`."""
    cores: int = 0
    """CPU cores that the script may use; 0 where that is not known."""
