"""How the processes of a proof are: fresh or forked, and whether they time both sides in turns."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from gpuadvisor.collectors.script.scratch import unavailable
from gpuadvisor.domain.device import Device
from gpuadvisor.domain.knobs import Settings
from gpuadvisor.domain.study import Objective, Trial, TrialState
from gpuadvisor.tuners.base import Knob
from gpuadvisor.tuners.search import Best
from gpuadvisor.tuners.statistics import LOOKS, least_shown, pairs_needed, spread_of
from gpuadvisor.tuners.turn_order import Delay
from gpuadvisor.tuning.budgeting.budget import USUAL_GAIN, Budget
from gpuadvisor.tuning.options import TuneOptions
from gpuadvisor.tuning.trials.in_turns import READS_AHEAD, have_workers, lacks_room
from gpuadvisor.tuning.trials.trial_runner import Progress, Side, TrialRunner
from gpuadvisor.tuning.turning import Turning, turning_of, unable_to_turn

CHEAP = 1 / 8
"""Part of a run that timing both sides in its process may add where runs do not seem to differ, as
two of them may agree by chance: where starts of 50 s differ by 1 %, three pairs showed a gain of
4 % in 35 of 40 simulated studies in place of 16, and none showed one that was not there (the script
of tests/unit/tuning/test_slow_starts.py)."""
CLEARLY = 1.5
"""Times what a proof's first look shows half of the time that a gain has to be, as a logarithm, to
be shown without turns. [own]"""


class ProofProcesses:
    """The processes of the proof that is under way, or comes next, of one script."""

    def __init__(
        self,
        options: TuneOptions,
        devices: Sequence[Device],
        knobs: Mapping[str, Knob],
        budget: Budget,
        progress: Progress,
        runner: TrialRunner,
        side: Callable[[Settings, Device], Side],
        trials: Sequence[Trial],
    ) -> None:
        """Decide by the `trials` so far, which grow; `side` is a device's side under settings."""
        self._objective = options.objective
        self._devices = devices
        self._knobs = knobs
        self._budget = budget
        self._progress = progress
        self._runner = runner
        self._side = side
        self._trials = trials
        self._delay = Delay(str(options.seed))
        self.spread = 0.0
        """Relative standard deviation of runs of the same settings."""
        self.distance = math.log(USUAL_GAIN)
        """What the early looks of a proof are to tell apart, as a difference of logarithms."""
        self.promised = Best({}, 1.0)
        """Settings that are proven without a trial, and what they gained in one running script."""
        self.is_early = False
        """Whether more is screened after the first look of the proof that comes next."""
        self._sides: tuple[Settings, Settings] | None = None
        """Base and head of the proof that is under way."""
        self.turning: Turning | None = None
        """What is turned in each process of it; None where nothing is."""
        self._turning_s = 0.0
        """Time that this takes in a process, on average."""
        self.pairs_turn = False
        """Whether both processes of each of its pairs are alive and take turns."""
        self._from: int | None = None
        """Trials before those that tell whether they have to; None where that is known."""
        self.began = 0
        """Trials before the proof."""

    def expect_spread(self, spread: float) -> None:
        """Learn how much runs of the same settings differ, for what the proof will take."""
        self.spread = spread
        self._budget.expect_spread(spread)
        if self._is_worth_turning and self._objective is Objective.THROUGHPUT:
            self._budget.durations.turning_s = self._turning_of({}, {}).expected_s

    def turns(self, head: Settings, base: Settings | None = None) -> bool:
        """Say whether the processes of the proof of these settings, beside a base that is the
        unchanged script if not given, time both sides in turns, or take turns."""
        self.prepare_for((base or {}, head))
        return self.turning is not None or self.pairs_turn

    def in_pairs(self, base: Settings, head: Settings) -> bool:
        """Say whether both processes of the next pair are alive and take turns, also where the
        pairs so far have shown that they have to."""
        if not self.turns(head, base) and self._is_seen_to_differ(base, head):
            self._prepare((base, head))
        return self.pairs_turn

    def prepare_for(self, sides: tuple[Settings, Settings] | None) -> None:
        """Decide how the processes of a proof are, unless that is decided; None where it ended."""
        if sides != self._sides:
            self.began = len(self._trials)
            self._prepare(sides)

    def _prepare(self, sides: tuple[Settings, Settings] | None) -> None:
        """Decide whether the processes of a proof time both sides in turns; None where it ended."""
        self._sides, self.turning, self._turning_s = sides, None, 0.0
        self.pairs_turn, self._from = False, len(self._trials)
        self.expect_delay()
        differ = self._is_worth_turning
        if sides is None or not (differ or self._turns_cheaply(*sides)):
            return
        base, head = sides
        why = unable_to_turn(head, self._knobs, self._objective, base)
        if why is not None:
            apart = next(self._reasons_apart(head), None)
            self.pairs_turn = apart is None
            if self.pairs_turn:
                self._progress.on_message(
                    "runs differ from start to start: both processes of a pair of the proof are "
                    "alive and work in turns, each in a private view of the file system"
                )
            else:
                told = apart and f", and both sides cannot run at the same time: {apart}"
                self.turn_nothing(f"{why}{told}")
            return
        turning = self._turning_of(base, head)
        turning = turning if differ else turning.shortest()
        self._turning_s = self._added_s(turning)
        self.expect_delay()
        if not self._budget.has_room_for_more(head, 0):
            turning = turning.shortest()  # what exceeds the budget lasts no longer than it has to
            self._turning_s = self._added_s(turning)
            self.expect_delay()
        is_needed = bool(base) or not self._gains_clearly(head)
        if not is_needed and (self.is_early or not self._budget.has_room_for_more(head, 0)):
            sooner = "it is shown sooner so" if self.is_early else "a rehearsal has room so"
            self.turn_nothing(f"what is gained is clear without, and {sooner}")
            return
        if not self._budget.has_room_for_proof(head):
            self.turn_nothing("the budget has no room for that")
            return
        self.turning = turning
        why = "runs differ from start to start" if differ else "that takes little beside a start"
        self._progress.on_message(
            f"{why}: each process of the proof is measured as it has started, and then times both "
            "sides in turns"
        )

    def is_clear(self, gain: float) -> bool:
        """Say whether the first look of a proof will show a gain by runs of one side each."""
        least = least_shown(LOOKS[0], self.spread)
        return math.log(max(gain, 1.0)) >= CLEARLY * math.log(least)

    def _gains_clearly(self, head: Settings) -> bool:
        """Say whether the first look will show by runs of one side each what a run has gained, or
        was promised to."""
        gains = [trial.gain for trial in self._trials if trial.settings == head and trial.gain]
        gains += [self.promised.gain] * (self.promised.settings == head)
        return bool(gains) and self.is_clear(min(gains))

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

    def _is_seen_to_differ(self, base: Settings, head: Settings) -> bool:
        """Say after the pairs of a proof's second look whether these differ too much to tell.

        What is known before is two baselines, which may agree by chance.
        """
        runs = [trial for trial in self._trials[self._from :] if trial.phase == "proof"]
        is_look = (len(runs) + 1) // 2 == LOOKS[1]  # the first run of all may be a baseline
        can_turn = unable_to_turn(head, self._knobs, self._objective, base) is None
        if self._from is None or not is_look or can_turn:
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
        device, baseline = self._devices[0], self._runner.validator.baseline
        if device.is_gpu or len(self._devices) > 1 or self._objective is not Objective.THROUGHPUT:
            # Beside the other side's blocks a GPU's clocks are not those of a side by itself.
            yield ""
        if problem := unavailable():
            yield f"in one folder each process would find what the other one writes: {problem}"
        known = [trial.measurement for trial in self._trials if trial.settings == head]
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
        baseline = self._runner.validator.baseline
        assert baseline is not None  # it comes first
        run_s, step_s = self._budget.expected_s({}), baseline.mean_step_ms / 1e3
        measure_s = self._runner.schedule.measure_s
        return turning_of(head, self._knobs, measure_s, step_s, run_s, base)

    def turn_nothing(self, why: str) -> None:
        """Prove by what fresh processes take alone."""
        self.turning, self._turning_s = None, 0.0
        self.pairs_turn, self._from = False, None
        self.expect_delay()
        self._progress.on_message(f"each process of the proof measures one side only: {why}")

    # -- forking -----------------------------------------------------------------------------

    def forks(self, sides: Sequence[Settings]) -> bool:
        """Say whether the runs of a proof of these sides are forked after its first pair.

        On a CPU they are not: what memory a side takes would not be known of a forked process.
        """
        on_gpu = all(device.is_gpu for device in self._devices)
        return on_gpu and all(map(self.saved_s, sides))

    def saved_s(self, point: Settings) -> float:
        """Return the time by which runs of a point begin sooner as they are forked; 0 where they
        are not: arguments and variables are there before anything is imported."""
        is_forked = self._runner.forks(self._side(point, self._devices[0]))
        return self._runner.start_saved_s if is_forked else 0.0

    def next_forks(self) -> bool:
        """Say whether the next run of a proof is forked where it can be, as the other one of its
        pair is: once there is an undisturbed pair of fresh processes."""
        runs = [trial for trial in self._trials[self.began :] if trial.phase == "proof"]
        if len(runs) % 2:
            return self._runner.proofs_fork
        sides = self._sides or ()
        whole = [each for each in runs if each.state is TrialState.COMPLETE]
        fresh = [t.settings for t in whole if not (t.is_forked or t.disturbance)]
        return self.forks(sides) and all(each in fresh for each in sides)

    # -- delays ------------------------------------------------------------------------------

    def delay_s(self) -> float:
        """Return by how much the measurement of the next run is delayed, in seconds."""
        # With a process that takes turns nothing can be in step.
        return 0.0 if self.pairs_turn else self._delay.next_s(self._trials)

    def expect_delay(self) -> None:
        """Count on how much later each run of a proof ends than one of the search."""
        delay_s = self._delay.mean_s(self._trials)
        self._budget.durations.delay_s = delay_s + self._turning_s
