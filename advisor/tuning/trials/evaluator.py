"""Measures points of a study's search on a script: one trial each, on whichever GPU is free."""

from __future__ import annotations

import math
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from queue import SimpleQueue

from gpuadvisor.collectors.script.request import RunOutcome
from gpuadvisor.collectors.script.scratch import unavailable
from gpuadvisor.collectors.script.specification import Schedule
from gpuadvisor.domain.device import Device
from gpuadvisor.domain.knobs import Settings
from gpuadvisor.domain.study import InTurns, Objective, Trial, TrialState
from gpuadvisor.tuners.base import Knob
from gpuadvisor.tuners.search import Best
from gpuadvisor.tuners.statistics import LOOKS, least_shown, pairs_needed, spread_of
from gpuadvisor.tuners.turn_order import Delay
from gpuadvisor.tuners.turns import ratio_of_blocks
from gpuadvisor.tuning.budgeting.budget import USUAL_GAIN, Budget
from gpuadvisor.tuning.options import TuneOptions
from gpuadvisor.tuning.trials.in_turns import (
    READS_AHEAD,
    ApartError,
    have_workers,
    lacks_room,
    run_in_turns,
)
from gpuadvisor.tuning.trials.trial_runner import Progress, Recording, Side, runner_for
from gpuadvisor.tuning.turning import Turning, turning_of, unable_to_turn

CHEAP = 1 / 8
"""Part of a run that timing both sides in its process may add where runs do not seem to differ, as
two of them may agree by chance: where starts of 50 s differ by 1 %, three pairs showed a gain of
4 % in 35 of 40 simulated studies in place of 16, and none showed one that was not there (the script
of tests/unit/tuning/test_slow_starts.py)."""
CLEARLY = 1.5
"""Times what a proof's first look shows half of the time that a gain has to be, as a logarithm, to
be shown without turns. [own]"""
STALE_AFTER = 8
"""Runs of the search on a GPU after which its reference is measured anew: at 12 % of the search's
time, a machine that gets slower by 5 % over 40 runs misleads it by no more than 1 %, which is what
a setting must be better by."""


class ScriptEvaluator:
    """`tuners.space.Evaluator` that runs a script on real devices."""

    def __init__(
        self,
        options: TuneOptions,
        devices: Sequence[Device],
        knobs: Mapping[str, Knob],
        budget: Budget,
        progress: Progress,
        store: Callable[[Trial], None],
        cancelled: Callable[[], bool],
        schedule: Schedule,
    ) -> None:
        self._command = options.command
        self._objective = options.objective
        self._knobs = knobs
        self._devices = list(devices)
        self._budget = budget
        self._progress = progress
        self._store = store
        self._lock = threading.Lock()
        self._since: Counter[int] = Counter()
        """Runs on each GPU since its reference was measured."""
        self._known: dict[frozenset[tuple[str, object]], Trial] = {}
        """Runs that a search need not repeat, by their settings: its own so far, those of this
        study's searches before, and of an earlier session."""
        self._told: set[int] = set()
        """Numbers of those that count in this session."""
        self.trials: list[Trial] = []
        self.runner = runner_for(options, knobs, budget, cancelled, schedule)
        self.runner.record, self.runner.progress = self._record, progress
        self.runner.delay_s = self._delay_s
        self.validator = self.runner.validator
        self._delay = Delay(str(options.seed))
        self.spread = 0.0
        """Relative standard deviation of runs of the same settings."""
        self.distance = math.log(USUAL_GAIN)
        """What the early looks of a proof are to tell apart, as a difference of logarithms."""
        self.promised = Best({}, 1.0)
        """Settings that are proven without a trial, and what they gained in one running script."""
        self._in_proof: tuple[Settings, Settings] | None = None
        """Base and head of the proof that is under way."""
        self._turning: Turning | None = None
        """What is turned in each process of it; None where nothing is."""
        self._turning_s = 0.0
        """Time that this takes in a process, on average."""
        self._pairs_turn = False
        """Whether both processes of each of its pairs are alive and take turns."""
        self._proof_from: int | None = None
        """Trials before it; None where it is known whether they do."""
        self._proof_began = 0
        """Trials before it."""
        budget.durations.saved_s = self.saved_s

    # -- what the search asks ----------------------------------------------------------------

    @property
    def parallel(self) -> int:
        return len(self._devices)

    def affordable(self, batch: Sequence[Settings]) -> bool:
        new = [point for point in batch if self._known_trial(point, self._budget.phase) is None]
        return not new or self._budget.affordable(new, self.parallel)

    def measure(
        self,
        points: Sequence[Settings],
        phase: str,
        slower_than: float | None = None,
        turned: tuple[Settings, Settings] | None = None,
    ) -> list[Trial]:
        """Run the points, one a GPU at a time; Interrupted if the user ended the study."""
        devices = self._devices[: len(points)]
        self._refresh_references(devices, phase, points)
        if turned != self._in_proof:
            self._prepare_to_turn(turned)
        if phase == "proof":
            self.runner.proofs_fork = self._forks_pair()
        if len(devices) < 2:
            return [self._trial(point, phase, devices[0], slower_than) for point in points]
        free: SimpleQueue[Device] = SimpleQueue()  # one for each thread

        def work(point: Settings) -> Trial:
            device = free.get()
            try:
                return self._trial(point, phase, device, slower_than)
            finally:
                free.put(device)

        for device in devices:
            free.put(device)
        with ThreadPoolExecutor(len(devices)) as pool:
            return list(pool.map(work, points))

    def turns(self, head: Settings, base: Settings | None = None) -> bool:
        """Say whether the processes of the proof of these settings, beside a base that is the
        unchanged script if not given, time both sides in turns, or take turns."""
        sides = base or {}, head
        if sides != self._in_proof:
            self._prepare_to_turn(sides)
        return self._turning is not None or self._pairs_turn

    def measure_both(
        self, pair: Sequence[Settings], head: Settings, base: Settings | None = None
    ) -> list[Trial] | None:
        """Run both sides of a proof at the same time, in turns; None where they do not take them.

        Interrupted if the user ended the study.
        """
        base = base or {}
        self.runner.proofs_fork = False
        if not self.turns(head, base) and self._is_seen_to_differ(base, head):
            self._prepare_to_turn((base, head))
        if not self._pairs_turn:
            return None
        device = self._devices[0]
        self._refresh_references([device], "proof", pair)
        known = "script with what is proven" if base else "unchanged script"
        names = (("script with the settings" if each == head else known) for each in pair)
        sides = dict(zip(names, (self.side(each, device) for each in pair), strict=True))
        seed = f"{self.runner.seed} {len(self.trials)}"
        try:
            ended, blocks_ms = run_in_turns(self.runner, sides, seed, private=True)
        except ApartError as error:
            self._number_on()  # what became no pair is no trial
            self._turn_nothing(f"{error}, when both were alive and took turns")
            return None
        of = dict(zip((each == head for each in pair), blocks_ms, strict=True))
        base_ms = math.exp(math.fsum(map(math.log, of[False])) / len(of[False]))
        in_turns = InTurns(base_ms, base_ms * ratio_of_blocks(of[False], of[True]))
        found = [replace(trial, in_turns=in_turns) for trial, _ in ended]
        for trial in found:
            self._record(trial)
        return found

    def measure_baseline(
        self,
        device: Device | None = None,
        seed: int | None = None,
        reads_since: float | None = None,
        recording: Recording | None = None,
    ) -> RunOutcome:
        """Run the unchanged script; its cost becomes part of the reference of its GPU.

        `seed` and `reads_since` are those of `TrialRunner.run`. With a `recording`, that is
        made of its later steps, if it can be.
        """
        device = device or self._devices[0]
        self._since[device.index] = 0
        side, runner = self.side({}, device), self.runner
        if recording is not None:
            runner.beside = (recording.application,)
            runner.shared = (str(recording.file.parent),)
        try:
            _, outcome = runner.run(side, "baseline", seed=seed, reads_since=reads_since)
        finally:
            runner.beside, runner.shared = (), ()
        return outcome

    def leave_out(self, run: RunOutcome, why: str, kept: RunOutcome) -> str:
        """Take a run of the unchanged script out of all that rests on such runs; `kept` is the
        first of the others. `why` is kept with the trial, and returned as a sentence to be told."""
        number = next(n for n, t in enumerate(self.trials) if t.measurement is run.measurement)
        left = replace(
            self.trials[number], state=TrialState.PRUNED, reason=why, measurement=None, gain=None
        )
        with self._lock:
            self.trials[number] = left
            if run.measurement is not None:
                self.validator.forget(run.measurement)
            self.validator.baseline = kept.measurement
        return f"run {left.number}, of the unchanged script, is left out: {why}"

    def begin_proof_with_last(self) -> Trial:
        """Make the last run, one of the unchanged script, the first one of the proof that is about
        to begin, and return it."""
        self.trials[-1] = replace(self.trials[-1], phase="proof")
        self._proof_began = len(self.trials) - 1
        return self.trials[-1]

    def expect_spread(self, spread: float) -> None:
        """Learn how much runs of the same settings differ, for what the proof will take."""
        self.spread = spread
        self._budget.expect_spread(spread)
        if self._is_worth_turning and self._objective is Objective.THROUGHPUT:
            self._budget.durations.turning_s = self._turning_of({}, {}).expected_s

    def remember(self, trials: Sequence[Trial]) -> None:
        """Take over the trials of an earlier, interrupted session of this study."""
        self._know(trials)
        self.trials.extend(trials)
        self._number_on()

    def _know(self, trials: Sequence[Trial]) -> None:
        for trial in trials:
            if trial.phase == "search" and trial.state is not TrialState.PRUNED:
                self._known[frozenset(trial.settings.items())] = trial

    def _known_trial(self, point: Settings, phase: str) -> Trial | None:
        return self._known.get(frozenset(point.items())) if phase == "search" else None

    def share_of_cores(self, device: Device) -> tuple[int, ...]:
        """Return this GPU's share of the cores, so that parallel trials do not disturb others.

        Empty where one GPU has all.
        """
        if len(self._devices) == 1 or not hasattr(os, "sched_getaffinity"):  # not Linux
            return ()
        cores = sorted(os.sched_getaffinity(0))
        share = max(1, len(cores) // len(self._devices))
        start = self._devices.index(device) * share
        return tuple(cores[start : start + share])

    # -- how it is done ----------------------------------------------------------------------

    def side(self, point: Settings, device: Device) -> Side:
        return Side(self._command, device, point, cores=self.share_of_cores(device))

    def _trial(
        self, point: Settings, phase: str, device: Device, slower_than: float | None
    ) -> Trial:
        known = self._known_trial(point, phase)
        if known is not None:
            self._tell(known)
            return known
        self._since[device.index] += 1
        side = self.side(point, device)
        turning = self._turning if phase == "proof" else None
        trial, _ = self.runner.run(side, phase, slower_than, turning=turning)
        forks = self.runner.forks(side) and (phase != "proof" or self.runner.proofs_fork)
        if forks and not trial.is_forked:  # it has ended, as when memory ran out
            self.runner.template = None
        if turning is not None and trial.measurement is not None and trial.in_turns is None:
            self._turn_nothing("a process ended, or failed, before both were timed")
        if phase == "search" and self._is_exception(trial) and self._is_worth_again(trial):
            trial, _ = self.runner.run(side, phase, slower_than)
        return trial

    def _is_worth_again(self, trial: Trial) -> bool:
        """Say whether there is time to run settings again that something disturbed, and to decide
        on them then."""
        if self._budget.left_s is None:  # the user's number of trials is kept
            return False
        has_room = self._budget.has_room_for_more(trial.settings)
        return has_room and self._budget.affordable([trial.settings], self.parallel)

    def _prepare_to_turn(self, sides: tuple[Settings, Settings] | None) -> None:
        """Decide whether the processes of a proof time both sides in turns; None where it ended."""
        if sides != self._in_proof:
            self._proof_began = len(self.trials)
        self._in_proof, self._turning, self._turning_s = sides, None, 0.0
        self._pairs_turn, self._proof_from = False, len(self.trials)
        self._expect_delay()
        differ = self._is_worth_turning
        if sides is None or not (differ or self._turns_cheaply(*sides)):
            return
        base, head = sides
        why = unable_to_turn(head, self._knobs, self._objective, base)
        if why is not None:
            apart = next(self._reasons_apart(head), None)
            self._pairs_turn = apart is None
            if self._pairs_turn:
                self._progress.on_message(
                    "runs differ from start to start: both processes of a pair of the proof are "
                    "alive and work in turns, each in a private view of the file system"
                )
            else:
                told = apart and f", and both sides cannot run at the same time: {apart}"
                self._turn_nothing(f"{why}{told}")
            return
        turning = self._turning_of(base, head)
        turning = turning if differ else turning.shortest()
        self._turning_s = self._added_s(turning)
        self._expect_delay()
        if not self._budget.has_room_for_more(head, 0):
            turning = turning.shortest()  # what exceeds the budget lasts no longer than it has to
            self._turning_s = self._added_s(turning)
            self._expect_delay()
        is_needed = bool(base) or not self._is_clear(head)
        if not (is_needed or self._budget.has_room_for_more(head, 0)):
            self._turn_nothing("what is gained is clear without, and a rehearsal has room so")
            return
        if not self._budget.has_room_for_proof(head):
            self._turn_nothing("the budget has no room for that")
            return
        self._turning = turning
        why = "runs differ from start to start" if differ else "that takes little beside a start"
        self._progress.on_message(
            f"{why}: each process of the proof is measured as it has started, and then times both "
            "sides in turns"
        )

    def _is_clear(self, head: Settings) -> bool:
        """Say whether the first look will show by runs of one side each what a run has gained, or
        was promised to."""
        gains = [trial.gain for trial in self.trials if trial.settings == head and trial.gain]
        gains += [self.promised.gain] * (self.promised.settings == head)
        least = least_shown(LOOKS[0], self.spread)
        return bool(gains) and math.log(max(min(gains), 1.0)) >= CLEARLY * math.log(least)

    def _added_s(self, turning: Turning) -> float:
        """Return how much longer a process takes, on average, that times both sides in turns."""
        # What a start of the tuned side takes longer is compiled in the other's processes, too.
        expected_s = self._budget.expected_s
        slower_s = expected_s(turning.head) - expected_s(turning.base)
        return turning.expected_s + max(0.0, slower_s) / 2

    def _turns_cheaply(self, base: Settings, head: Settings) -> bool:
        """Say whether all can be turned in a process, which takes little longer by that."""
        if unable_to_turn(head, self._knobs, self._objective, base) is not None:
            return False
        added_s = self._added_s(self._turning_of(base, head).shortest())
        return added_s <= CHEAP * self._budget.expected_s({})

    def _number_on(self) -> None:
        """Give the next run the number after those of the trials that are kept."""
        self.runner.start_numbers_at(max((each.number for each in self.trials), default=-1) + 1)

    def forks(self, sides: Sequence[Settings]) -> bool:
        """Say whether the runs of a proof of these sides are forked after its first pair.

        On a CPU they are not: what memory a side takes would not be known of a forked process.
        """
        on_gpu = all(device.is_gpu for device in self._devices)
        return on_gpu and all(map(self.saved_s, sides))

    def saved_s(self, point: Settings) -> float:
        """Return the time by which runs of a point begin sooner as they are forked; 0 where they
        are not: arguments and variables are there before anything is imported."""
        is_forked = self.runner.forks(self.side(point, self._devices[0]))
        return self.runner.start_saved_s if is_forked else 0.0

    def _forks_pair(self) -> bool:
        """Say whether the next run of a proof is forked where it can be, as the other one of its
        pair is: once there is an undisturbed pair of fresh processes."""
        runs = [trial for trial in self.trials[self._proof_began :] if trial.phase == "proof"]
        if len(runs) % 2:
            return self.runner.proofs_fork
        sides = self._in_proof or ()
        whole = [each for each in runs if each.state is TrialState.COMPLETE]
        fresh = [t.settings for t in whole if not (t.is_forked or t.disturbance)]
        return self.forks(sides) and all(each in fresh for each in sides)

    def _is_seen_to_differ(self, base: Settings, head: Settings) -> bool:
        """Say after the pairs of a proof's second look whether these differ too much to tell.

        What is known before is two baselines, which may agree by chance.
        """
        runs = [trial for trial in self.trials[self._proof_from :] if trial.phase == "proof"]
        is_look = (len(runs) + 1) // 2 == LOOKS[1]  # the first run of all may be a baseline
        can_turn = unable_to_turn(head, self._knobs, self._objective, base) is None
        if self._proof_from is None or not is_look or can_turn:
            return False
        sides = (
            [
                cost
                for t in runs
                if t.measurement
                and (t.settings == head) is tuned
                and (cost := self._objective.cost(t.measurement))
            ]
            for tuned in (False, True)
        )
        self.spread = spread_of(*sides)
        return self._is_worth_turning

    def _reasons_apart(self, head: Settings) -> Iterator[str]:
        """Yield why the processes of a pair cannot be alive at the same time, each a clause; empty
        where there is nothing to say."""
        device, baseline = self._devices[0], self.validator.baseline
        if device.is_gpu or self.parallel > 1 or self._objective is not Objective.THROUGHPUT:
            # Beside the other side's blocks a GPU's clocks are not those of a side by itself.
            yield ""
        if problem := unavailable():
            yield f"in one folder each process would find what the other one writes: {problem}"
        known = [trial.measurement for trial in self.trials if trial.settings == head]
        runs = [baseline, next(filter(None, reversed(known)), baseline)]
        if head.get("dataloader_workers") or have_workers(filter(None, runs)):
            yield READS_AHEAD
        if problem := lacks_room(filter(None, runs), device):
            yield problem

    @property
    def _is_worth_turning(self) -> bool:
        """Whether runs differ so much that the first looks at pairs of them would tell nothing."""
        pairs = pairs_needed(self.distance, self.spread)
        return pairs is None or pairs > LOOKS[1]

    def _turning_of(self, base: Settings, head: Settings) -> Turning:
        baseline = self.validator.baseline
        assert baseline is not None  # it comes first
        run_s, step_s = self._budget.expected_s({}), baseline.mean_step_ms / 1e3
        measure_s = self.runner.schedule.measure_s
        return turning_of(head, self._knobs, measure_s, step_s, run_s, base)

    def _turn_nothing(self, why: str) -> None:
        """Prove by what fresh processes take alone."""
        self._turning, self._turning_s = None, 0.0
        self._pairs_turn, self._proof_from = False, None
        self._expect_delay()
        self._progress.on_message(f"each process of the proof measures one side only: {why}")

    def _expect_delay(self) -> None:
        delay_s = self._delay.mean_s(self.trials)
        self._budget.durations.delay_s = delay_s + self._turning_s

    def _tell(self, known: Trial) -> None:
        """Count and show a run of an earlier session where this one needs it first."""
        with self._lock:
            is_told = known.number in self._told
            self._told.add(known.number)
            if not is_told:
                self._budget.record(known)
        if not is_told:
            self._progress.on_trial_end(known)

    def _is_exception(self, trial: Trial) -> bool:
        """Say whether something disturbed a run, as it does not disturb most of them."""
        with self._lock:
            disturbed = sum(bool(each.disturbance) for each in self.trials)
            return bool(trial.disturbance) and 2 * disturbed < len(self.trials)

    def _delay_s(self) -> float:
        with self._lock:  # with a process that takes turns nothing can be in step
            return 0.0 if self._pairs_turn else self._delay.next_s(self.trials)

    def _record(self, trial: Trial) -> None:
        """Keep a trial, count its cost, store it and show it."""
        with self._lock:
            self.trials.append(trial)
            self._know([trial])
            self._told.add(trial.number)
            self._budget.record(trial)
            self._expect_delay()
            self._store(trial)
        self._progress.on_trial_end(trial)
        self._progress.on_time_left(self._budget.left_s)

    def _refresh_references(
        self, devices: Sequence[Device], phase: str, points: Sequence[Settings]
    ) -> None:
        """Measure the unchanged script where it was not yet, or too long ago for the search.

        Several GPUs do that side by side, as they do with what is compared with it. A budget that
        has room for these points, but not for this run, too, is left to them.
        """
        references: list[Settings] = [{} for _ in devices]
        if all(self._known_trial(point, phase) for point in points):
            return
        fresh = phase != "search" or not self.affordable([*references, *points])
        stale = [
            device
            for device in devices
            if not self.validator.has_reference(device)
            or (not fresh and self._since[device.index] >= STALE_AFTER)
        ]
        if len(stale) < 2:
            for device in stale:
                self.measure_baseline(device)
            return
        with ThreadPoolExecutor(len(stale)) as pool:
            list(pool.map(self.measure_baseline, stale))
