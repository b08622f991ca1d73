"""The unchanged script's runs before anything is tuned: what they must show, what they warn of."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

from gpuadvisor.collectors.devices import inventory
from gpuadvisor.collectors.script.request import Command, RunOutcome
from gpuadvisor.domain.device import Device
from gpuadvisor.domain.measurement import Measurement
from gpuadvisor.domain.study import Trial, TrialState
from gpuadvisor.errors import ScriptError, UsageError
from gpuadvisor.storage.home import home
from gpuadvisor.tuners.statistics import spread_of
from gpuadvisor.tuning.budgeting.budget import LEAST_RUNS, OVERDRAFT, USUAL_RUNS
from gpuadvisor.tuning.budgeting.budget_limit import BudgetLimit
from gpuadvisor.tuning.options import TuneOptions
from gpuadvisor.tuning.trials.evaluator import ScriptEvaluator
from gpuadvisor.tuning.trials.leftovers import written_since
from gpuadvisor.tuning.trials.trial_runner import Recording

RESTLESS = 0.2
"""Relative difference between runs of the unchanged script above which intervals get so wide that
only large gains can be proven. Two runs on a quiet GPU differ by less than 1 %."""

STRAY = 3.0
"""Ratio of the costs of two equal runs from which a third one says whether the dearer was held up.
Unchanged runs of public scripts that wait for their loaders took up to 2.3 times each other's time
(the vae of benchmarks/README.md: 6.4 to 14.9 ms). Where threads that wait for each other had no
core, one took 44 times as long as those after it."""
THIRD_SHARE = 1 / 50
"""Most of a time budget that a run may take for a third baseline, with another seed, to be made. It
widens a proof's interval by 3 % at its first look to have two earlier runs of the script in place
of three; and of the pairs that are kept back by how much baselines differ, such a budget has no
room for more than six. Losses of other random numbers are compared in the rehearsal then."""
NAMED = 3
"""Files that an error names."""
CLOCK_TICK_S = 0.02
"""How far the time of a file may lie behind the clock: two ticks of a kernel at 100 Hz."""


@dataclass(frozen=True)
class Baselines:
    """What the unchanged script's runs showed."""

    first: RunOutcome
    """How its first run ended."""
    again: RunOutcome
    """How its second run ended, which began alike."""
    runs: tuple[Measurement, ...]
    """Two equally seeded runs, and one with another seed where that was needed and had room."""
    resumed_from: tuple[str, ...] = ()
    """Files that its first run wrote and its second one read while it started."""
    left_out: str = ""
    """That one more run was made and is not among them, as a sentence without a full stop."""


def measure_baselines(
    evaluator: ScriptEvaluator,
    options: TuneOptions,
    first: RunOutcome | None = None,
    recording: Callable[[Measurement], Recording | None] = lambda first: None,
    began: float | None = None,
    beside_second: Callable[[], None] = lambda: None,
) -> Baselines:
    """Run the unchanged script until its cost and how far two runs differ are known.

    `first` is its first run where it was made already, by `measure_first`. What `recording`
    then asks for, if anything, is made at the end of its second run, and `beside_second` is called
    as that starts. `began` is when the first run began, in seconds since the epoch, if it has.

    Raises:
        ScriptError: if it cannot be measured, or works only once.
        UsageError: if it does not show what is to be improved, or two runs of it exceed the budget
            by far.
    """
    # Looking at what is opened costs some calls of a function each step: the same in each run.
    if began is None:
        began = time.time() - (first.wall_s if first is not None else 0.0)
    began -= CLOCK_TICK_S
    first = first or measure_first(evaluator, options, began)
    baseline = measured_baseline(first, options.command)
    _check_room_for_second(first, options)
    to_record = recording(baseline)
    beside_second()
    again = _measure_again(evaluator, options, began, to_record)
    first, again, left_out = _without_stray(evaluator, options, began, first, again)
    baseline, second = (measured_baseline(run, options.command) for run in (first, again))
    other = None
    wants_other = needs_other_seed(baseline)
    has_room = _has_room_for_third(evaluator.trials, options.budget)
    if wants_other and has_room:
        other = evaluator.measure_baseline(seed=options.seed + 1, reads_since=began).measurement
    evaluator.validator.comparison.calibrate(
        [baseline.trace, second.trace], other.trace if other else None, has_room or not wants_other
    )
    runs = (baseline, second, other) if other else (baseline, second)
    costs = (options.objective.cost(run) for run in runs)
    evaluator.proof.expect_spread(spread_of(list(filter(None, costs))))
    return Baselines(first, again, runs, again.read, left_out)


def _without_stray(
    evaluator: ScriptEvaluator,
    options: TuneOptions,
    began: float,
    first: RunOutcome,
    again: RunOutcome,
) -> tuple[RunOutcome, RunOutcome, str]:
    """Return two runs of the unchanged script, and what was left out, as a sentence.

    Where two are far apart, all that follows would be judged by that. So a third is made: if it is
    like the cheaper one, something held the dearer one up. If not, it is the third that is left
    out, as the script's runs are what they are.
    """
    cheap, dear = sorted((first, again), key=lambda run: _cost(run, options) or math.inf)
    least, most = _cost(cheap, options), _cost(dear, options)
    has_room = LEAST_RUNS * again.wall_s <= (options.budget.seconds or math.inf)
    if not least or not most or most < STRAY * least or not has_room:
        return first, again, ""
    third = evaluator.measure_baseline(reads_since=began)
    cost = _cost(third, options)
    if not cost:
        return first, again, ""
    if max(cost, least) >= STRAY * min(cost, least):
        why = "two runs before it are as far apart"
        return first, again, evaluator.leave_out(third, why, first)
    why = f"it cost {most / cost:.0f} times as much as two others"
    if seen := dear.disturbance or dear.limit:
        why += f", while {seen}"
    one, other = (again, third) if dear is first else (first, third)
    return one, other, evaluator.leave_out(dear, why, one)


def _cost(run: RunOutcome, options: TuneOptions) -> float | None:
    return options.objective.cost(run.measurement) if run.measurement is not None else None


def measure_first(
    evaluator: ScriptEvaluator, options: TuneOptions, began: float | None = None
) -> RunOutcome:
    """Run the unchanged script once; errors as of `measure_baselines`.

    Files that it reads while it starts are named if they were changed since `began`, in seconds
    since the epoch.
    """
    first = evaluator.measure_baseline(reads_since=began)
    baseline = measured_baseline(first, options.command)
    own = baseline.facts.own_gpus
    if own is not None and options.jobs > 1:
        raise UsageError(
            f"--jobs {options.jobs}: the script sets CUDA_VISIBLE_DEVICES={own} itself, so runs "
            "side by side would share a GPU: leave that to who starts it, or leave out --jobs"
        )
    if not options.objective.cost(baseline):
        raise UsageError(
            f"--objective {options.objective}: this GPU does not show it for this "
            "script; choose another objective"
        )
    return first


def _check_room_for_second(first: RunOutcome, options: TuneOptions) -> None:
    """Raise UsageError where two runs like the first take much longer than the budget."""
    budget, run_s = options.budget, first.wall_s
    if budget.seconds is None or 2 * run_s <= (1 + OVERDRAFT) * budget.seconds:
        return
    least, full = (
        BudgetLimit(seconds=60.0 * math.ceil(runs * run_s / 60))
        for runs in (LEAST_RUNS, USUAL_RUNS)
    )
    raise UsageError(
        f"one run of {options.command.script} takes {run_s:.0f} s, so --budget {budget} has no "
        f"room for anything to compare it with: --budget {least} has room for one setting and its "
        f"proof, {full} for all of them"
    )


def needs_other_seed(baseline: Measurement) -> bool:
    """Say whether a run with other random numbers is needed: a setting may draw others."""
    facts = baseline.facts
    return facts.training and bool(facts.loaders or facts.draws_random)


def baselines_of(trials: Sequence[Trial]) -> tuple[tuple[Measurement, ...], Measurement | None]:
    """Return an earlier study's runs of the unchanged script.

    Two equally seeded ones, and that with another seed, where there are any. A forked run comes
    after them, and later ones stand between runs of the search.
    """
    first = takewhile(lambda t: t.phase == "baseline" and not t.is_forked, trials)
    runs = [trial.measurement for trial in first if trial.measurement is not None]
    other = runs[2] if len(runs) > 2 and needs_other_seed(runs[0]) else None
    return tuple(runs[:2]), other


def _has_room_for_third(trials: Sequence[Trial], budget: BudgetLimit) -> bool:
    """Say whether to run the unchanged script once more, after these runs of it.

    Of one that something disturbed a proof knows little, and it needs two. Where something disturbs
    them all, a third is no better.
    """
    runs = [trial for trial in trials if trial.phase == "baseline"]
    disturbed = sum(bool(trial.disturbance) for trial in runs)
    if budget.seconds is None or 0 < disturbed < len(runs):
        return True
    return min(trial.wall_s for trial in runs) <= THIRD_SHARE * budget.seconds


def _measure_again(
    evaluator: ScriptEvaluator, options: TuneOptions, began: float, recording: Recording | None
) -> RunOutcome:
    """Run the unchanged script once more; ScriptError where it works only once."""
    again = evaluator.measure_baseline(reads_since=began, recording=recording)
    if again.measurement is None:
        again = evaluator.measure_baseline(reads_since=began)  # once is no rule
    try:
        measured_baseline(again, options.command)
    except ScriptError as error:
        raise ScriptError(
            "it ran the first time, but not again, and tuning runs it many times:"
            f" {error}{_in_the_way(options, began)}",
            error.output,
        ) from None
    return again


def _in_the_way(options: TuneOptions, began: float) -> str:
    """Return what a first run left that may stop later ones, with the way out, or nothing."""
    left = () if options.scratch else written_since(began, options.command, (home(),))
    if not left:
        return ""
    named = ", ".join(left[:NAMED]) + (f" and {len(left) - NAMED} more" if left[NAMED:] else "")
    return (
        f"; or what a run left is in the way of the next ({named}): remove that, and use --scratch,"
        " with which nothing remains"
    )


def measured_baseline(outcome: RunOutcome, command: Command) -> Measurement:
    """Return the baseline's measurement; ScriptError with what to do about its absence."""
    if outcome.measurement is not None:
        return outcome.measurement
    where = f" at {outcome.place}" if outcome.place else ""
    raise ScriptError(
        f"{command.script} cannot be measured: {outcome.reason}{where}; {_advice_for(outcome)}",
        outcome.output,
    )


def _advice_for(outcome: RunOutcome) -> str:
    if outcome.own:
        return (
            "most likely that is a fault of gpuadvisor, so please report it with the lines above; "
            "CUDA tells some errors late, so it may also be one of the script's: it is if the "
            "script fails by itself, with CUDA_LAUNCH_BLOCKING=1"
        )
    match outcome.state:
        case TrialState.HUNG if outcome.steps == 0:
            return (
                "if it trains elsewhere, name that script; raise --timeout if it needs longer to "
                "start"
            )
        case TrialState.PRUNED:
            return (
                "if it trains elsewhere, name that script; if it needs longer, "
                f"--budget {_longer(outcome)} has room for runs of twice that time"
            )
        case TrialState.HUNG:
            return "give it less to do between two steps"
        case TrialState.UNSUPPORTED if outcome.steps:
            return "give it more steps"
        case TrialState.UNSUPPORTED:
            return "if it trains elsewhere, name that script"
        case TrialState.OUT_OF_MEMORY:
            return "it has to run by itself before it can be tuned: make its batch smaller"
        case _:
            return "it has to run by itself before it can be tuned; its own arguments go after --"


def _longer(outcome: RunOutcome) -> BudgetLimit:
    """Return the least budget for runs that last twice as long as one that had to be ended."""
    return BudgetLimit(seconds=60.0 * math.ceil(LEAST_RUNS * 2 * outcome.wall_s / 60))


def baseline_warnings(baselines: Baselines, devices: Sequence[Device]) -> Iterator[str]:
    """Yield a sentence for everything that makes the study's figures less than they could be."""
    first, runs, device = baselines.first, baselines.runs, devices[0]
    baseline = runs[0]
    if baselines.left_out:
        yield baselines.left_out
    steps_ms = [run.mean_step_ms for run in runs]
    apart = max(steps_ms) / min(steps_ms) - 1
    if apart > RESTLESS:
        has_loader = baseline.samples_source == "dataloader" or baseline.data_wait_share > 0
        itself = "its loader is uneven" if has_loader else "it is uneven itself"
        both = first, baselines.again
        seen = next(filter(None, (run.disturbance or run.limit for run in both)), "")
        yield (
            f"runs of the unchanged script differ by {apart:.0%}, so only large gains can be "
            f"proven: {seen or f'{itself}, or others use this machine'}"
        )
    elif limit := first.limit or baselines.again.limit:
        yield (
            f"while the unchanged script was measured, {limit}: more CPU time may make it faster, "
            "or fewer threads"
        )
    elif first.disturbance and baselines.again.disturbance:
        yield (
            f"while the unchanged script was measured, {baselines.again.disturbance}: what needs"
            " more of the machine, such as workers, may be worth more where nothing else uses it"
        )
    if device.is_gpu and baseline.facts.device != "cuda":
        yield (
            f"the script computes on the CPU, though torch can use {device.name}: see whether one "
            "of its arguments chooses the device"
        )
    yield from filter(None, [_other_gpu(baseline.facts.own_gpus, device)])
    yield from baseline.facts.unseen
    if baselines.resumed_from:
        more = len(baselines.resumed_from) - 1
        name = baselines.resumed_from[0] + (f" and {more} more" if more else "")
        yield (
            f"the unchanged script read {name}, which its earlier run wrote: if that is a "
            "checkpoint, trials do not start alike; --scratch lets each start as the first did"
        )
    if first.short:
        yield (
            f"the script ends after {first.steps} steps, so the figures rest on {baseline.steps} "
            "of them: give it more work for narrower intervals"
        )
    if len(devices) > 1:
        yield f"each of the parallel trials had {device.cores} CPU cores"


def _other_gpu(own: str | None, device: Device) -> str | None:
    """Return a sentence where the GPUs that a script chose itself do not begin with its device."""
    if own is None or not device.is_gpu:
        return None
    visible = inventory({**os.environ, "CUDA_VISIBLE_DEVICES": own}).gpus if own != "all" else ()
    if visible and visible[0].uuid == device.uuid:
        return None
    return (
        f"the script sets CUDA_VISIBLE_DEVICES={own} itself, and does not compute on the "
        f"{device.name} that it was given: energy, memory and other jobs are seen there"
    )
