"""What findings promise of a script before anything is tuned, and what of that was measured."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from statistics import fmean

from gpuadvisor.collectors.script.request import Command
from gpuadvisor.domain.device import Device
from gpuadvisor.domain.finding import Diagnosis
from gpuadvisor.domain.knobs import Origin, Settings
from gpuadvisor.domain.loader_supply import SLOWER_BESIDE_WORKERS, LoaderSupply
from gpuadvisor.domain.measurement import Measurement
from gpuadvisor.domain.severity import Severity
from gpuadvisor.domain.study import Expectation, Objective, StudyResult
from gpuadvisor.errors import ScriptError
from gpuadvisor.rules.engine import diagnose
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.paces import MARGIN
from gpuadvisor.tuners.knob_space import LOADER_DECIDES
from gpuadvisor.tuners.knobs._script import WORKERS
from gpuadvisor.tuners.loader.supply_timing import batches_a_step
from gpuadvisor.tuners.screening.knowledge import TOO_LITTLE
from gpuadvisor.tuning.budgeting.budget import Budget
from gpuadvisor.tuning.trials.trial_runner import Recording

ProfileBaseline = Callable[[Command, Measurement, Device, tuple[int, ...], Path | None], Diagnosis]
"""Diagnoses the unchanged script on a GPU and these CPU cores, none for all, from a trace of its
steps, or by a run that records them where there is none. ScriptError where it cannot be
profiled."""

TRACE = "trace.json"
"""Name of the trace of the unchanged script's steps."""
SHOWN_SEVERITIES = (str(Severity.WARNING), str(Severity.CRITICAL))
"""Severities of the findings that are shown before the search; the others stand in the report."""
FASTER_BESIDE, SLOWER_BESIDE, CROWDED = 0.8, 1.3, 2.0
"""Times what it takes alone that a batch may take beside the script's own work; the last where the
workers and the script have to share cores, as they were no fewer than those. One loader on an H200
took 65.7 ms alone, and 53.7 to 67.3 beside it."""
FASTER_REST, SLOWER_REST = 0.95, SLOWER_BESIDE_WORKERS
"""Times its time in the unchanged script that the part of a step that is no waiting for a batch may
take beside more workers; without waiting clocks are higher.

With half or twice as much room, here and above, studies end with the same verdict and settings
(`tests/unit/tuning/test_ten_minutes.py`): only what is foretold is narrower or wider."""
TIME_OBJECTIVES = (Objective.THROUGHPUT, Objective.LATENCY)
"""Objectives whose gains can be compared with what findings promise, which is time."""


@dataclass
class Expectations:
    """What is expected of one study's script, in the order in which it is found out."""

    command: Command
    device: Device
    cores: tuple[int, ...]
    """CPU cores that the script keeps to; empty for all."""
    profile: ProfileBaseline | None
    budget: Budget
    enter: Callable[[str, str], None]
    """Begins a phase, of which it gets the name and a few words."""
    note: Callable[[str], None]
    """Keeps a sentence for the study's result."""
    folder: Path
    """Where a trace may lie for as long as the study lasts."""
    found: tuple[Expectation, ...] = ()
    promised_ms: tuple[float, float] | None = None
    """The least and the most that a step may take with the workers that the loader alone promises
    most of, in milliseconds; None where it promises nothing."""
    gpu_share: float | None = None
    """Share of the unchanged script's steps, without waiting for loaders, in which the GPU works;
    None where that is not known."""

    def recording(self, first: Measurement) -> Recording | None:
        """Return what to record of the unchanged script's steps after its first run; None for
        nothing, as where it is known already that it waits for its workers."""
        steps = self.budget.traced_steps(first.mean_step_ms)
        if first.starved_share >= LOADER_DECIDES:
            return None
        return Recording(self.folder / TRACE, steps) if steps and self._can_profile(first) else None

    def diagnose(self, baseline: Measurement) -> None:
        """Find out where the unchanged script's time goes."""
        timed = expected(diagnose(Evidence(measured=baseline)))
        diagnosis = self._diagnosis(baseline)
        self.found = combined(expected(diagnosis), timed)
        rest_ms = baseline.mean_step_ms * (1 - baseline.starved_share)
        if diagnosis.busy_ms is not None and rest_ms:
            self.gpu_share = min(1.0, diagnosis.busy_ms / rest_ms)

    def tell(self) -> None:
        """Say what is expected, as far as it is worth a sentence before the search."""
        for each in self.found:
            if each.severity in SHOWN_SEVERITIES:
                self.note(format_expectation(each))

    def narrow(
        self,
        supply: LoaderSupply | None,
        baseline: Measurement,
        runs: Sequence[Measurement] = (),
    ) -> None:
        """Expect of more workers what the loader alone promises, if that was timed, to each of the
        unchanged script's `runs`: where they differ, so does what it saves."""
        cores = len(self.cores) or self.device.cores
        self.promised_ms = steps_ms = promised_ms(supply, baseline, cores)
        if steps_ms is not None:
            self.found = tuple(
                foretold(each, steps_ms, runs or (baseline,)) if WORKERS in each.knobs else each
                for each in self.found
            )

    def _can_profile(self, baseline: Measurement) -> bool:
        on_gpu = self.device.is_gpu and baseline.facts.device == "cuda"
        return self.profile is not None and on_gpu

    def _diagnosis(self, baseline: Measurement) -> Diagnosis:
        file = self.folder / TRACE
        trace = file if file.is_file() else None
        if self.profile is not None and self._can_profile(baseline):
            if trace is None and baseline.starved_share >= LOADER_DECIDES:
                pass  # what the loader costs is known without
            elif trace is not None or self.budget.has_room_for_profile():
                self.enter("profile", "where the unchanged script's time goes")
                try:
                    told = self.profile(self.command, baseline, self.device, self.cores, trace)
                except ScriptError as error:
                    self.note(f"the search goes on without a profile: {error}")
                else:
                    if told.profile:
                        self.note(
                            f"the unchanged script's profile is stored: `gpuadvisor diagnose"
                            f" {shlex.quote(told.profile)}` says more of it"
                        )
                    return told
            else:
                self.note("the budget left no room for a profile: a larger one may find more")
        return diagnose(Evidence(measured=baseline))


def promised_ms(
    supply: LoaderSupply | None, baseline: Measurement, cores: int
) -> tuple[float, float] | None:
    """Return the least and the most that the step of the supply's workers takes beside the script's
    work, in milliseconds; None where nothing promises a gain. The script may use so many `cores`.
    """
    if supply is None or not supply.settings:
        return None
    chosen = next((each for each in supply.values if each.settings == supply.settings), None)
    if chosen is None or chosen.batch_ms is None:
        return None
    batches_ms = chosen.batch_ms * batches_a_step(baseline)
    crowded = int(supply.settings[WORKERS]) >= cores
    least_ms = max(FASTER_REST * supply.rest_ms, FASTER_BESIDE * batches_ms)
    slower = CROWDED if crowded else SLOWER_BESIDE
    return least_ms, max(SLOWER_REST * supply.rest_ms, slower * batches_ms)


def foretold(
    each: Expectation, steps_ms: tuple[float, float], unchanged: Sequence[Measurement]
) -> Expectation:
    """Return an expectation of what waiting costs, with what its cure saves where a step then takes
    so long, of whichever run of the unchanged script: what was measured of the loader alone says
    more than the waiting."""
    least_ms, most_ms = steps_ms
    shortest_ms, *_, longest_ms = sorted(run.mean_step_ms for run in (unchanged[0], *unchanged))
    high, low = 100 * (1 - least_ms / longest_ms), 100 * (1 - most_ms / shortest_ms)
    most = 100.0 if each.high_pct is None else each.high_pct
    return replace(each, low_pct=min(max(low, 0.0), most), high_pct=min(max(high, 0.0), most))


def expected(diagnosis: Diagnosis) -> tuple[Expectation, ...]:
    """Return what a diagnosis promises and is worth a word, the most expensive first."""
    return tuple(
        Expectation(
            finding.rule,
            str(finding.severity),
            finding.summary,
            finding.improvement_pct.low if finding.improvement_pct else None,
            finding.improvement_pct.high if finding.improvement_pct else None,
            finding.knobs,
        )
        for finding in diagnosis.shown
        if finding.severity.rank >= Severity.NOTICE.rank
    )


def combined(
    profiled: Iterable[Expectation], timed: Iterable[Expectation]
) -> tuple[Expectation, ...]:
    """Return what a profile of a script promises together with what whole runs of it promise.

    A profile is short: a loader that keeps up while it records need not in a whole run. Where the
    run saw more of the same, its words count, and the estimate spans both. Where it saw less than
    the most that the profile takes for possible, not knowing how long steps take without it, but
    more than the least, it is the most. What came from the run is put before what promises less.
    """
    every = list(profiled)
    for each in timed:
        known = next((other for other in every if other.rule == each.rule), None)
        if known is not None:
            seen_pct = MARGIN * (each.high_pct or 0.0)
            if (each.high_pct or 0.0) <= (known.high_pct or 0.0):
                if (known.low_pct or 0.0) <= seen_pct < (known.high_pct or 0.0):
                    every[every.index(known)] = replace(known, high_pct=seen_pct)
                continue
            each = replace(each, low_pct=known.low_pct)
            every.remove(known)
        place = (n for n, other in enumerate(every) if _middle_pct(other) < _middle_pct(each))
        every.insert(next(place, len(every)), each)
    return tuple(every)


def _middle_pct(each: Expectation) -> float:
    return ((each.low_pct or 0.0) + (each.high_pct or 0.0)) / 2


def format_expectation(expectation: Expectation) -> str:
    """Return an expectation as a sentence, before the search."""
    worth = ""
    if expectation.low_pct is not None and expectation.high_pct is not None:
        low, high = round(expectation.low_pct), round(expectation.high_pct)
        worth = f", worth {low if low == high else f'{low} to {high}'} % of the time"
    return f"{expectation.summary}{worth} ({expectation.rule})"


def with_measured(
    found: Sequence[Expectation], result: StudyResult, earlier: StudyResult | None = None
) -> tuple[Expectation, ...]:
    """Return expectations with what their knobs were proven to be worth, in the end or `earlier`,
    where they were proven by themselves.

    That is what the best settings lose without one of them (ablation), or what the proof found
    where all that it compared is of an expectation. Single runs of the search are no proof: one
    said 72 % where the proof found 0.65x. What cures several findings is compared with all of them.
    """
    every = {name for each in found for name in each.knobs}
    measured = (_with_measured(each, result, earlier, every) for each in found)
    return tuple(_together(each, found) for each in measured)


def _together(each: Expectation, found: Sequence[Expectation]) -> Expectation:
    """Return an expectation with what the others promise that its settings cure, too.

    Findings may be of the same time, or each of its own: all save at least what one of them does,
    and at most their sum. Compiling nanoGPT on an H200 saved 20.6 % where converted types were to
    cost 5 to 11 and unfused kernels 0 to 14.
    """
    cured = [one for one in found if not each.settings.keys().isdisjoint(one.knobs)]
    if len(cured) < 2:
        return each
    lows = [one.low_pct for one in cured if one.low_pct is not None]
    highs = [one.high_pct for one in cured if one.high_pct is not None]
    is_whole = len(lows) == len(highs) == len(cured)
    whole = (max(lows), min(sum(highs), 100.0)) if is_whole else None
    others = tuple(one.rule for one in cured if one.rule != each.rule)
    return replace(each, cured_too=others, together_pct=whole)


def _with_measured(
    each: Expectation, result: StudyResult, earlier: StudyResult | None, every: Set[str]
) -> Expectation:
    """Return an expectation with what was measured; `every` is the knobs of all of them."""
    if not each.knobs:
        return replace(each, why="no knob can try it")
    if result.objective not in TIME_OBJECTIVES:
        return replace(each, why=f"the objective was {result.objective}, not time")
    speedup = result.speedup
    proofs = [one for one in (result, earlier) if one is not None]
    if (proven := _proven(each, proofs, set(each.knobs))) is not None:
        return proven
    known = [
        one
        for one in result.contributions
        if one.knob in each.knobs and one.origin.is_shown and one.low and one.high
    ]
    if speedup is not None and known:
        best = max(known, key=lambda one: one.ratio)
        value, low, high = (end or 0.0 for end in (best.ratio, best.low, best.high))
        # Of the unchanged script's time, as the estimate is. What is not sure of the whole gain is
        # taken in the direction that makes the interval wider.
        least, most = sorted((speedup.ci99_low, speedup.ci99_high))
        shares = [
            100 * (value - 1) / speedup.ratio,
            100 * (low - 1) / (most if low > 1 else least),
            100 * (high - 1) / (least if high > 1 else most),
        ]
        return _measured(each, shares, {best.knob: best.value})
    if (proven := _proven(each, proofs, every)) is not None:
        return proven
    return _screened(replace(each, why=_why_not_measured(each, result)), result)


def _proven(
    each: Expectation, proofs: Sequence[StudyResult], knobs: Set[str]
) -> Expectation | None:
    """Return an expectation with what settings of these `knobs`, some of which are its own, were
    proven to save; None where none were."""
    for proof in proofs:
        whole, settings = proof.speedup, proof.settings
        own = not settings.keys().isdisjoint(each.knobs)
        if whole is not None and own and settings.keys() <= knobs:
            ends = (whole.ratio, whole.ci99_low, whole.ci99_high)
            of_foretold_pct = _saved_of_baselines(proofs[0], settings)
            each = replace(each, of_foretold_pct=of_foretold_pct)
            return _measured(each, [100 * (1 - 1 / end) for end in ends], settings)
    return None


def _screened(each: Expectation, result: StudyResult) -> Expectation:
    """Return an expectation with what the screening saw the best of its knobs save, if anything.

    What was compared beside other settings is of the time that these had left. What was compared
    on a batch that is there already is of less than the rest of a step: nothing is loaded
    meanwhile, nor copied. The unchanged script's step counts, as with what was promised.
    """
    compared = {(one.knob, one.value): one.ratio for one in result.screened if one.ratio}
    known = [one for one in result.screened if one.ratio and one.knob in each.knobs]
    best = max(known, key=lambda one: one.ratio.ratio if one.ratio else 0.0, default=None)
    if best is None or best.ratio is None or not best.beside.items() <= compared.keys():
        return each
    left = _computing_share(result) if best.of_computing else 1.0
    for setting in best.beside.items():
        left /= compared[setting].ratio
    ends = (best.ratio.ratio, best.ratio.low, best.ratio.high)
    value, low, high = (100 * left * (1 - 1 / end) for end in ends)
    return replace(
        each,
        screened_pct=(value, low, high),
        screened_of_computing=best.of_computing,
        settings={best.knob: best.value},
    )


def _computing_share(result: StudyResult) -> float:
    """Return the part of the unchanged script's step, 0 to 1, that it computes on a batch that is
    there already."""
    run = result.baseline
    not_waiting = 1.0 - run.starved_share
    if result.computing_ms is None:
        return not_waiting
    return min(result.computing_ms / run.mean_step_ms, not_waiting)


def _saved_of_baselines(result: StudyResult, settings: Settings) -> float | None:
    """Return the percentage that settings save in their proof of what the unchanged script cost
    before anything was foretold."""
    first = takewhile(lambda trial: trial.phase == "baseline", result.trials)
    proven = (t for t in result.trials if (t.phase, t.settings) == ("proof", settings))
    before, after = (
        [cost for t in trials if t.measurement and (cost := result.objective.cost(t.measurement))]
        for trials in (first, proven)
    )
    return 100 * (1 - fmean(after) / fmean(before)) if before and after else None


def _measured(each: Expectation, shares: Sequence[float], settings: Settings) -> Expectation:
    """Return an expectation with an estimate and the ends of its interval, all in percent."""
    value, low, high = shares
    return replace(
        each,
        measured_pct=value,
        measured_low_pct=low,
        measured_high_pct=high,
        settings=settings,
    )


def _why_not_measured(each: Expectation, result: StudyResult) -> str:
    kept = [name for name in each.knobs if name in result.settings]
    live = [one.knob for one in result.contributions if one.origin is Origin.LIVE]
    if kept and set(kept) <= set(live):
        return f"{', '.join(kept)}: compared in one running process only, which is no proof"
    if kept:
        return f"{', '.join(kept)} had too few runs for an interval"
    ran = {name for trial in result.trials for name in trial.settings}
    tried = [name for name in each.knobs if name in ran]
    if tried:
        return f"{', '.join(tried)}: tried once or twice and not kept, which is no proof"
    # A knob that might have worked says more than those that could not.
    for reasons in (result.untried, result.no_effect):
        found = [name for name in each.knobs if name in reasons]
        if found:
            return f"{found[0]}: {reasons[found[0]]}"
    spared = [name for name in each.knobs if name in result.spared]
    if spared:
        return f"{spared[0]}: {TOO_LITTLE}"
    return "none of its knobs was tried to its end"
