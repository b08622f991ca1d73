"""What faster computing can still bring where a script's loader is about as slow as its steps.

Workers load while the script computes, so a step takes as long as whichever takes longer. Where the
computing is no longer what does, further knobs of it bring what is left of a step beside the supply
of its batches, and no more, if the loader supplies no faster there than by itself. That is a
condition and not shown: what follows from it is an order, and words that name it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from gpuadvisor.domain.loader_supply import LoaderSupply, Supplied
from gpuadvisor.domain.measurement import Measurement
from gpuadvisor.tuners.base import Knob
from gpuadvisor.tuners.knobs._script import WORKERS
from gpuadvisor.tuners.loader.supply_timing import batches_a_step
from gpuadvisor.tuners.space import Space
from gpuadvisor.tuners.statistics import mean_with_interval, spread_of

LITTLE, WIDE = 1.2, 1.4
"""Ratio below which what computing can still bring is left for last, and that which it may be at
most: to find it out takes the time of a rehearsal where it has to be compiled, a minute to begin
with and a quarter more in each run after that. Two thirds of 1.1 are there where the computing
takes nine tenths of what the loader does, and go when it is faster. [own]"""
FASTER = 0.95
"""Part of what its batches take alone that a step takes at least, if they are its limit: one that
takes less shows that they were timed slower than they are. [own]"""
WAITS = 0.05
"""Share of a run's time spent waiting for batches from which its loader can be what it waits for.
Where batches come unevenly, a script whose loader is a fifth faster waits in 3 % of it. [own]"""
LAST = "it came after all else, as the loader looked like the limit"
"""Why a knob of the computing was left, where nothing more is known."""


@dataclass(frozen=True)
class LoaderLimit:
    """A step that is nearly as short as its loader's supply lets it be."""

    supplied: Supplied
    """The loader alone, with the workers that the step has or would have."""
    batches: float
    """Batches that a step reads."""
    step_ms: float
    """The step, in milliseconds."""
    high_ms: float
    """Upper end of its 99 % interval, where that is known; else the step."""

    @property
    def likely(self) -> float:
        """How many times as fast a step would be that takes no longer than its batches do alone;
        below 1 where it is faster than these."""
        return self.step_ms / ((self.supplied.batch_ms or 0.0) * self.batches)

    @property
    def most(self) -> float:
        """How many times as fast a step would be at most that takes no longer than its batches do
        alone: by the upper end of the step's interval and the lower end of the batches'."""
        return self.high_ms / ((self.supplied.low_ms or 0.0) * self.batches)

    @property
    def supply(self) -> str:
        """What the loader supplies, in words."""
        batch_ms, low_ms = self.supplied.batch_ms or 0.0, self.supplied.low_ms or 0.0
        workers = self.supplied.settings[WORKERS]
        return f"{batch_ms:.3g} ms a batch with {workers} workers ({low_ms:.3g} ms at least)"


def limit_of_computing(
    supply: LoaderSupply, computing_ms: float, batches: float
) -> LoaderLimit | None:
    """Return how the loader limits steps whose computing takes so long at most, with the workers
    that supply fastest alone; None where more than `LITTLE` may be gained.
    """
    timed = [each for each in supply.values if _is_of_workers(each)]
    fastest = min(timed, key=lambda each: each.batch_ms or 0.0, default=None)
    if fastest is None or fastest.batch_ms is None:
        return None
    return _limit(fastest, batches, max(computing_ms, fastest.batch_ms * batches))


def limit_of_run(supply: LoaderSupply, run: Measurement) -> LoaderLimit | None:
    """Return how its loader limits a run's steps; None where it is not known to.

    It has to compute on a GPU, as the workers need the cores of a CPU, to wait for them, to have as
    many as were timed alone, and not to be faster than these.
    """
    loaders = run.facts.loaders
    if not loaders or run.facts.device != "cuda" or run.starved_share < WAITS:
        return None
    settings = {WORKERS: loaders[0].num_workers}
    timed = next((v for v in supply.values if v.settings == settings and _is_of_workers(v)), None)
    return _limit(timed, batches_a_step(run), run.mean_step_ms) if timed else None


def computing_worth(
    supply: LoaderSupply, runs: Sequence[Measurement], unchanged: Sequence[Measurement]
) -> str:
    """Return what computing that takes no time could bring to settings that had these runs, as a
    clause; empty where their loader is not known to limit them.

    How much fresh runs differ is known from all of them and those of the unchanged script.
    """
    limits = [limit_of_run(supply, run) for run in runs]
    known = [each for each in limits if each is not None]
    freedom = len(runs) + max(1, len(unchanged)) - 2
    if not runs or len(known) <= len(runs) / 2 or freedom < 1:
        return ""
    steps_ms = [run.mean_step_ms for run in runs]
    spread = spread_of(steps_ms, [run.mean_step_ms for run in unchanged])
    mean_ms, _, high_ms = mean_with_interval(steps_ms, spread, freedom)
    limit = replace(known[0], step_ms=mean_ms, high_ms=high_ms)
    return (
        f"the loader is the limit: alone it supplies {limit.supply}, and a step takes "
        f"{mean_ms:.3g} ms ({high_ms:.3g} ms at most), so faster computing could bring "
        f"{max(1.0, limit.likely):.2f}x, {limit.most:.2f}x at most, if the loader is no faster "
        "beside the script than alone"
    )


def computing_last(space: Space, supply: LoaderSupply | None, knobs: Mapping[str, Knob]) -> Space:
    """Return a space in which each knob of the computing comes last where the loader is the limit,
    by what its supply says."""
    if supply is None:
        return space
    why = partial(_why_last, supply)
    parameters = (
        each if knobs[each.name].concerns_loading else replace(each, limited=why)
        for each in space.parameters
    )
    return replace(space, parameters=tuple(parameters))


def _why_last(supply: LoaderSupply, best: Measurement) -> str | None:
    return LAST if limit_of_run(supply, best) else None


def _is_of_workers(supplied: Supplied) -> bool:
    """Say whether some workers were timed, and nothing else of the loader was changed."""
    return list(supplied.settings) == [WORKERS] and bool(
        supplied.settings[WORKERS] and supplied.batch_ms and supplied.low_ms
    )


def _limit(supplied: Supplied, batches: float, step_ms: float) -> LoaderLimit | None:
    limit = LoaderLimit(supplied, batches, step_ms, step_ms)
    known = 1.0 <= limit.most < WIDE
    return limit if known and FASTER <= limit.likely < LITTLE else None
