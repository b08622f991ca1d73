"""Times a script's loader alone before a study's search, to begin with the workers that pay.

What it finds is never told as a gain: it orders the trials.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from gpuadvisor.collectors.script.live import run_supply
from gpuadvisor.collectors.script.request import Limits, RunRequest
from gpuadvisor.collectors.script.scratch import unavailable
from gpuadvisor.collectors.script.specification import Schedule, Specification
from gpuadvisor.domain.knobs import Contribution, Origin, Settings
from gpuadvisor.domain.loader_supply import LoaderSupply, Supplied
from gpuadvisor.domain.measurement import Measurement
from gpuadvisor.domain.study import Trial
from gpuadvisor.errors import Interrupted, ScriptError
from gpuadvisor.tuners.knob_space import LOADER_DECIDES
from gpuadvisor.tuners.knobs._script import WORKERS
from gpuadvisor.tuners.loader.supply_timing import batches_a_step, time_supply
from gpuadvisor.tuners.space import Space
from gpuadvisor.tuning.budgeting.budget import Budget
from gpuadvisor.tuning.live.value_finding import InOneScript

LEAST_WAITING = 0.1
"""Share of the time spent waiting for batches from which the loader is timed alone: that takes as
long as a trial or two, and with less to gain one trial of workers tells as much."""
LEAST_S = 5.0
"""Time for four numbers of workers that supply a batch in some 10 ms, beside the script's start."""
SHOWN = 1.1
"""Times by which a step has to be faster than the script's own workers for it to be shown that more
of them bring something: runs of one script differ by 5 to 10 % where its loader is uneven."""
MOST_S = 60.0
"""Most that it takes: six numbers of workers, of which each batch takes seconds."""


class SupplyTimer(InOneScript):
    """Times the loader of one study's script, on its first device."""

    has_told = False
    """Whether it was told why the loader was not timed, which is told once."""

    def supply(
        self,
        space: Space,
        budget: Budget,
        enter: Callable[[str, str], None],
        beside: tuple[float, float] | None = None,
    ) -> LoaderSupply | None:
        """Return what the loader supplies, or None where that was not timed.

        `enter` begins a phase, of which it gets the name and a few words. `beside` are the share of
        the time that the script would wait, and what its computing would take in milliseconds,
        where that was made faster; None for the script as it is. Raises Interrupted where the study
        was cancelled.
        """
        waits, computing_ms = beside or (self.baseline.starved_share, None)
        if WORKERS not in space or waits < LEAST_WAITING:
            return None
        decides = waits >= LOADER_DECIDES
        allowed_s = min(MOST_S, budget.loader_s(decides))
        why = self.unable(self.baseline.startup_s + LEAST_S, allowed_s)
        if self.baseline.facts.loaders[0].iterable:
            why = "it streams an IterableDataset, which more workers would repeat"
        if why is None:
            enter("loader", "how fast it supplies batches with more and more workers")
            try:
                return self._timed(space, allowed_s, decides, computing_ms)
            except ScriptError as error:
                why = str(error)
        if not self.has_told:
            self.progress.on_message(f"the loader was not timed alone: {why}")
        self.has_told = True
        return None

    def _timed(
        self, space: Space, allowed_s: float, decides: bool, computing_ms: float | None
    ) -> LoaderSupply:
        end_s = time.monotonic() + allowed_s
        others: list[Settings] = []
        # Where the workers decide, their proof comes next: what else the loader has can wait.
        for name in () if decides else ("prefetch_factor", "pin_memory"):
            if name in space:
                others += [{name: value} for value in space[name].values]
        timing = time_supply(
            self.baseline,
            [int(value) for value in space[WORKERS].values],
            others,
            lambda: end_s - time.monotonic(),
            self.progress.on_supplied,
            len(self.cores) or self.device.cores,
            computing_ms,
        )
        try:
            return run_supply(self._request(end_s), self.baseline.facts.loaders[0], timing)
        except Interrupted:
            if self.cancelled():
                raise
            raise ScriptError(f"it took longer than {allowed_s:.0f} s") from None

    def _request(self, end_s: float) -> RunRequest:
        never = Schedule(warmup_s=MOST_S, min_steps=1 << 30)
        limits = Limits(startup_s=MOST_S, total_s=MOST_S)
        # Its writing stays in a private view, as it begins an epoch that will never be.
        return replace(
            self.request(Specification(schedule=never), limits),
            scratch=self.options.scratch or unavailable() is None,
            cancelled=lambda: self.cancelled() or time.monotonic() > end_s + LEAST_S,
        )


def narrowed(space: Space, supply: LoaderSupply | None) -> Space:
    """Return a space whose workers are those worth a trial, in their order, and prefetching that
    is faster alone before what is slower.
    """
    if supply is None or not supply.workers:
        return space
    known = {
        value: each.batch_ms
        for each in supply.values
        for name, value in each.settings.items()
        if name == "prefetch_factor" and each.batch_ms is not None
    }
    parameters = []
    for each in space.parameters:
        values = each.values
        if each.name == WORKERS:
            values = supply.workers
        elif each.name == "prefetch_factor":
            values = tuple(sorted(values, key=lambda value: known.get(value, 0.0)))
        parameters.append(replace(each, values=values))
    return replace(space, parameters=tuple(parameters))


def not_promising(supply: LoaderSupply | None, trials: Sequence[Trial]) -> dict[str, str]:
    """Return the numbers of workers that were not tried for what the loader supplies, and why."""
    if supply is None or not supply.workers:
        return {}
    first = supply.workers[0]
    unchanged = (t.measurement for t in trials if t.measurement and not t.settings)
    own = {loader.num_workers for each in unchanged for loader in each.facts.loaders[:1]}
    tried = {trial.settings.get(WORKERS) for trial in trials} | {*supply.workers} | own
    alone = {
        each.settings[WORKERS]: each for each in supply.values if list(each.settings) == [WORKERS]
    }
    return {
        f"{WORKERS}={count}": f"{_promise(each)}, and {alone[first].step_ms:.3g} ms with {first}"
        for count, each in alone.items()
        if count not in tried
    }


def shown_by(supply: LoaderSupply, baseline: Measurement, trial: Measurement) -> list[Contribution]:
    """Return what a trial with the supply's workers showed of them; nothing where it did not.

    The script's own workers by themselves are at least as fast as beside the script's work: where
    a step took clearly less than their batches did, it is because of the new ones.
    """
    own = baseline.facts.loaders[0].num_workers
    if own:
        alone = next((each for each in supply.values if each.settings == {WORKERS: own}), None)
        own_ms = (alone.low_ms or 0.0) * batches_a_step(baseline) if alone else 0.0
    else:  # the script loads between its steps, and waits for all of it
        own_ms = baseline.mean_step_ms * baseline.data_wait_share
    # By itself it may look slower than it is: what the unchanged script took, it supplied.
    own_ms = min(own_ms, baseline.mean_step_ms)
    if not supply.settings or own_ms < SHOWN * trial.mean_step_ms:
        return []
    return [Contribution(n, v, math.nan, origin=Origin.LOADER) for n, v in supply.settings.items()]


def _promise(supplied: Supplied) -> str:
    if supplied.step_ms is None:
        return f"the loader alone failed ({supplied.failed.rstrip('.')})"
    return f"the loader alone suggests a step of {supplied.step_ms:.3g} ms"
