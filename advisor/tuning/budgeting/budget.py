"""The budget of a study: what it may use, what a trial will cost, and what later phases need."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from copy import copy

from gpuadvisor.collectors.script.child.torch_profiler import SETTLING_STEPS
from gpuadvisor.domain.knobs import Settings
from gpuadvisor.domain.study import Trial
from gpuadvisor.tuners.base import Knob
from gpuadvisor.tuners.statistics import LOOKS, least_shown, pairs_needed
from gpuadvisor.tuning.budgeting.budget_limit import LONGEST_S, BudgetLimit
from gpuadvisor.tuning.budgeting.durations import LIFE_ERROR
from gpuadvisor.tuning.budgeting.reserve import REHEARSAL_SHARE, Reserve, Reserving

USUAL_REHEARSAL_S = 200.0
"""Most that a rehearsal takes where the budget is in trials: a third of the default budget."""
PROFILE_RUNS = 2.0
"""Runs of the unchanged script that a profile costs: one more start, and reading the trace."""
TRACE_S, TRACED_LONGER = 6.0, 2.0
"""Seconds that a profile costs at the end of a run that is made anyway, for the profiler's start,
writing the trace and reading it, and times what they usually take that its steps may last. [own]"""
MOST_TRACED, LEAST_TRACED = 5, 2
"""Steps that are recorded there: as many as `gpuadvisor profile` records, and as few as it may."""
PROFILE_SHARE = 1 / 25
"""Most of a time budget that a profile may take. It orders the knobs, which a screening does too:
40 s of ten minutes were those that a rehearsal had no room for where runs took 18 s."""
LEAST_SCREENING = 3.0
"""Runs of the unchanged script that a screening lasts at least. Where that has no room beside a
rehearsal, or beside a proof's second look, it goes before: what is found may be told as unverified,
or shown at the first look, and without it nothing may be found that can be proven at all."""
WARM_RUNS, WARM_S = 1 + LOOKS[0] + 1, 10.0
"""Starts that follow a screening with what compiles, of a trial, a first look and a life, and the
seconds that each takes longer with what was compiled before: 6 to 12 of public scripts on H200s. In
`EARLY_S` and more, what else is kept back has room for that."""
SPARE_LIVES = 1
"""Lives of a rehearsal beyond its usual ones that a screening leaves room for: of the settings that
leave the data alone, or of the unchanged script with weights changed as much as by rounding."""
LOADER_SHARE, DECIDING_SHARE = 1 / 10, 1 / 6
"""Most of a time budget in which a script's loader may be timed alone; the larger one where that
decides how long a step takes, so that there is little else to look for. It takes as long as one or
two trials, and spares those of the numbers of workers that do not pay."""
FINDING_SHARE = 1 / 5
"""Most of a time budget in which a script may be asked for the value of a knob: two minutes of ten
have room for its start and some 100 configurations of Triton kernels, half a second each."""
ALONE_FINDING_SHARE = 2 / 5
"""Most of a time budget in which a script may be asked for the value of a knob where a study has no
other to try: the time that screening others would take is free. [own]"""
USUAL_FINDING_S = 120.0
"""Most seconds for finding a knob's value where the budget is a number of trials. [own]"""
SCREENING_SHARE = 1 / 5
"""Most of a time budget that a screening may take: 60 s of five minutes have room for a start and
six knobs of a 100 ms step. What it spares is a trial for each knob."""
COMPILING_SHARE = 1 / 3
"""Most of a time budget that a screening may take where something compiles: 25 to 75 s for compile
alone, and as much again without each layout or precision that may cost more under it than it
brings. In trials of their own each takes 15 to 20 s more, and shows a tenth of it."""

PROOF_RUNS = 32
"""Runs of a proof before its rehearsal, and after it, where the budget is in trials of the search:
16 pairs show a gain of 5 % where runs differ by 2 %."""

EARLY_S, EARLY_SHARE = 600.0, 0.3
"""Least budget, in seconds, in which a proof has its first look before all is screened, and the
part of it by whose end this look is over. In nine minutes of a script whose runs take 15 s, what
compiles had no time for a proof of its own in some of eight simulated studies each; in ten, a gain
of 4 % was not found where that look ended after 214 s."""
LATE_S, LATE_SHARE, SOON_S = 300.0, 0.4, 200.0
"""Least budget, in seconds, in which a proof of what compiles has its first look before the rest is
screened, the part of it by whose end this look is over, and the seconds in which it may be over
where that part ends before: a gain is wanted within 180 s, and looks take less than expected. First
gains of two simulated scripts came after 175 and 193 s of ten minutes, 367 and 387 without, and
what was proven in the end brought as much."""

OVERDRAFT = 1 / 3
"""Part of a budget for fewer than `LEAST_RUNS`, those of a proof with their delays, by which the
least proof of the first thing that looks better may exceed it. With 45 s and a script that takes 5
s there was else no room to try anything, and 30 s were left."""
JITTER = 0.05
"""Part of the budget by which all that precedes a proof may take longer than expected. The first
look of a proof may exceed the budget by twice that: without it the whole search was for nothing."""
USUAL_GAIN = 1.05
"""Gain for whose proof pairs are kept back, by how much the baselines differ."""
MOST_PAIRS = 16
"""Pairs that are kept back at most: enough for it where runs differ by 2 %."""

SLOW_RUN = 2.0
"""Usual durations that each run is granted, whatever is left of the budget."""
TRIED_AGAIN = 1.5
"""Times what the first values of all knobs take that a search takes: it tries other values, and
once more beside better settings what brought nothing. Without this, one of five simulated studies
with such a budget had no room for its last knob."""
LEAST_RUNS = 3 + 1 + 2 * LOOKS[0]
"""Runs that a study needs to prove anything: baselines, one setting, and its proof's first look."""
FEW_RUNS, USUAL_RUNS = 20, 35
"""Runs of the unchanged script below which a budget is too small, and with which the search tries
every knob: three baselines, some fifteen settings, their ablation, and eight for the proof."""


PROVING = ("ablation", "rehearsal", "proof")
"""Phases after a search."""


class Budget(Reserving):
    """A study's budget while it is spent: decides what there is still room for."""

    def __init__(self, limit: BudgetLimit, knobs: Mapping[str, Knob]) -> None:
        super().__init__(limit, knobs)
        self._began_s = time.monotonic()
        self._searched = 0
        self._is_untried = True
        """Whether nothing was tried yet, or nothing since a screening."""
        self._proving = 0
        self._phase = "baseline"
        self._phase_began_s = self._began_s
        self._proving_s = 0.0
        self._spread = 0.0
        """Relative standard deviation of runs of the same settings."""

    @property
    def phase(self) -> str:
        """What the study does now: what is affordable depends on what comes after it."""
        return self._phase

    @phase.setter
    def phase(self, name: str) -> None:
        now_s = time.monotonic()
        if self._phase in PROVING:
            self._proving_s += now_s - self._phase_began_s
        if name == "proof" != self._phase:
            self._proving = 0
        self._is_untried |= name == "screening"
        self._phase, self._phase_began_s = name, now_s

    def record(self, trial: Trial) -> None:
        """Learn what a trial took, and count it."""
        self.durations.record(trial)
        if trial.phase == "search":
            self._searched += 1
            self._is_untried = False
        if trial.phase == "proof":
            self._proving += 1

    def expect_spread(self, spread: float) -> None:
        """Learn how much runs of the same settings differ, as a relative standard deviation.

        Pairs are kept back for a proof of `USUAL_GAIN`, as many as that takes.
        """
        self._spread = spread
        pairs = pairs_needed(math.log(USUAL_GAIN), spread)
        self._proof_pairs = min(pairs or MOST_PAIRS, MOST_PAIRS)

    def expected_s(self, settings: Settings) -> float:
        """Return how long a trial of these settings will probably take."""
        return self.durations.trial_s(settings)

    @property
    def left_s(self) -> float | None:
        """Seconds left; None where the budget is in trials."""
        if self._limit.seconds is None:
            return None
        return max(0.0, self._limit.seconds - (time.monotonic() - self._began_s))

    def expected_runs(self, proofs_fork: bool) -> float:
        """Return about how many runs may be forked that the study will make, each like the
        unchanged script's; those of a proof after its first pair as well where `proofs_fork`.

        They have what a screening, a rehearsal and the fresh runs of a proof leave of the time.
        """
        if self._limit.trials is not None:
            return self._limit.trials + 2 * (LOOKS[0] - 1) * proofs_fork
        proof_s = self.durations.pair_s({}) if proofs_fork else self._proof_s({})
        left_s, run_s = self.left_s or 0.0, self.expected_s({})
        lives_s = self._rehearsal_reserve_s({})
        after_s = (
            self.durations.first_look_s({}) + run_s + lives_s + self.durations.life_s({}, True)
        )
        screening_s = min(COMPILING_SHARE * (self._limit.seconds or 0.0), left_s - after_s)
        return max(0.0, left_s - proof_s - lives_s - max(0.0, screening_s)) / run_s

    def affordable(self, batch: Sequence[Settings], parallel: int = 1) -> bool:
        """Say whether one more trial of each leaves enough for what must follow.

        `parallel` trials run side by side.
        """
        if self._limit.trials is not None:
            if self.phase == "proof":
                return self._proving + len(batch) <= PROOF_RUNS
            return self.phase != "search" or self._searched + len(batch) <= self._limit.trials
        delay_s = self.durations.delay_s if self.phase == "proof" else 0.0
        lasting_s = sorted((self.expected_s(each) + delay_s for each in batch), reverse=True)
        needed_s = sum(lasting_s[::parallel])  # of each group the first lasts longest
        reserve_s = max(map(self._reserve_s, batch), default=0.0)
        if self.phase == "search" and self._is_untried:
            # A study that tried nothing of it has kept its reserve for nothing.
            least_s = max(map(self.durations.first_look_s, batch), default=0.0)
            reserve_s = min(reserve_s, least_s - self._overdraft_s)
        return (self.left_s or 0.0) - needed_s >= reserve_s

    def has_room_for_proof(self, settings: Settings) -> bool:
        """Say whether a proof of these settings can have its first look."""
        if self._limit.seconds is None:
            return True
        if self.has_plan:
            return (self.left_s or 0.0) >= self.deciding_s(settings)
        # Lives last as long as is known before they begin: they are no reason to be late.
        jitter_s = 0.0 if self.durations.has_lived else JITTER * self._limit.seconds
        room_s = (self.left_s or 0.0) + self._overdraft_s + jitter_s
        return room_s >= self.durations.first_look_s(settings)

    def may_show(self, settings: Settings, gain: float) -> bool:
        """Say whether a proof may show what gained this in a run in the time that is left, as far
        as the baselines tell how much runs differ.

        Where both sides can be timed in turns, it may if that is more than two runs differ by.
        """
        if self.left_s is None or not self.has_room_for_proof(settings):
            return self.left_s is None
        durations = self.durations
        turned_s = durations.turned_look_s(settings) if durations.can_turn(settings) else 0.0
        if 0 < turned_s <= self.left_s + self._overdraft_s:
            return gain >= 1 + math.sqrt(2) * self._spread
        pairs = max(LOOKS[0], int(self.left_s / durations.pair_s(settings)))
        return gain >= least_shown(pairs, self._spread)

    def is_last_trial(self, settings: Settings) -> bool:
        """Say whether a trial of these settings leaves no time for another one."""
        self.phase = "search"
        trials_s = 2 * self.expected_s(settings)
        return self.left_s is not None and self.left_s - trials_s < self._reserve_s(settings)

    def has_room_for_more(self, settings: Settings, runs: int = 1) -> bool:
        """Say whether there is time for so many runs of these settings, and to decide on them: as
        on top of others that are proven."""
        needed_s = runs * self.expected_s(settings) + self.deciding_s(settings)
        return self.left_s is None or self.left_s >= needed_s

    def starts_slowly(self, settings: Settings) -> bool:
        """Say whether processes with settings start later than the unchanged script's, as where
        something is compiled."""
        return self.durations.run_s(settings) > self.durations.run_s({})

    def early_s(self, settings: Settings) -> float:
        """Return for how many seconds the first look of a proof of settings may be put off that is
        to come before all is screened; 0 where it would be too late, or take too much of the
        whole."""
        seconds, left_s = self._limit.seconds or 0.0, self.left_s or 0.0
        over_s = seconds - left_s + self.durations.first_look_s(settings)
        if self.starts_slowly(settings):
            least_s, end_s = LATE_S, max(SOON_S, LATE_SHARE * seconds)
        else:
            least_s, end_s = EARLY_S, EARLY_SHARE * seconds
        return max(0.0, end_s - over_s) if seconds >= least_s else 0.0

    def has_room_for_harm(self, settings: Settings) -> bool:
        """Say whether a proof of these settings can have its first look, and another one what a
        rehearsal then leaves of them, which it has to find out.
        """
        if self._limit.seconds is None:
            return True
        durations = self.durations
        lives_s = durations.lives_s(settings) + durations.life_s({}) + durations.life_s(settings)
        return (self.left_s or 0.0) >= 2 * durations.first_look_s(settings) + lives_s

    @property
    def _overdraft_s(self) -> float:
        """Seconds by which the first look of a proof may be expected to exceed the budget: no
        larger budget for a few runs ends sooner than a smaller one may."""
        budget_s = self._limit.seconds or 0.0
        least_s = LEAST_RUNS * self.expected_s({}) + 2 * LOOKS[0] * self.durations.delay_s
        over_s = min(OVERDRAFT * budget_s, (1 + OVERDRAFT) * least_s - budget_s)
        return max(over_s, JITTER * budget_s)

    def room_s(self, settings: Settings) -> float | None:
        """Return how long a trial may last without taking from what must follow.

        None where that is no matter: the budget is in trials, or the runs of a proof may take as
        long as they need, as nobody knows how long that is.
        """
        if self.left_s is None or (self.phase == "proof" and not self.durations.has_run(settings)):
            return None
        least_s = SLOW_RUN * (self.expected_s(settings) + self.durations.delay_s)
        if self.has_plan:  # what is proven needs no more, so nothing goes on beyond the budget
            least_s = min(least_s, self.left_s)
        return max(self.left_s - self._reserve_s(settings), least_s)

    def has_room_for_profile(self) -> bool:
        """Say whether profiling the unchanged script leaves nearly all of the budget."""
        budget_s = self._limit.seconds
        return budget_s is None or PROFILE_RUNS * self.expected_s({}) <= PROFILE_SHARE * budget_s

    def traced_steps(self, step_ms: float) -> int:
        """Return how many more steps of a run may be recorded, which leaves nearly all of the
        budget; 0 where there is no room for enough of them.
        """
        if self._limit.seconds is None:
            return MOST_TRACED
        room_s = PROFILE_SHARE * self._limit.seconds - TRACE_S
        steps = int(room_s / (TRACED_LONGER * step_ms / 1e3)) - SETTLING_STEPS
        return min(steps, MOST_TRACED) if steps >= LEAST_TRACED else 0

    def screening_s(self, compiles: bool = False, decides: bool = False) -> float:
        """Return how long a screening may take now, its start included; 0 if counted in trials.

        `compiles` where it compares what compiles, for whose longer starts more is kept back, and
        `decides` where that is what there is to gain: then no more is kept back than a rehearsal,
        and a proof's first look.
        """
        if self._limit.seconds is None:
            return 0.0
        share_s = (COMPILING_SHARE if compiles else SCREENING_SHARE) * self._limit.seconds
        run_s = self.expected_s({})
        # A trial of all that it finds, and the first look of its proof.
        left_s = (self.left_s or 0.0) - self.durations.first_look_s({}) - run_s
        more = LOOKS[1] - LOOKS[0] if self._proof_pairs > LOOKS[0] else 0
        more_s = more * self.durations.pair_s({})
        if compiles and self._limit.seconds < EARLY_S:
            more_s = max(more_s, WARM_RUNS * WARM_S)
        rehearsal_s = self._rehearsal_reserve_s({})
        spare_s = SPARE_LIVES * self.durations.life_s({}, True) if rehearsal_s else 0.0
        kept = (more_s + rehearsal_s + spare_s, rehearsal_s, 0.0 if decides else more_s, 0.0)
        rooms_s = [min(share_s, left_s - each) for each in kept]
        least_s = LEAST_SCREENING * run_s
        if compiles and not decides and rehearsal_s and rooms_s[0] < least_s:
            return self.screening_s()  # what is compiled would have no room for its lives
        return next((each for each in rooms_s if each >= least_s), max(0.0, rooms_s[-1]))

    def finding_s(self, alone: bool = False, least_s: float = 0.0) -> float:
        """Return how long a script may be asked for a knob's value now, its start included.

        A rehearsal is left its time where there are `least_s` besides. `alone` where there is
        nothing else to try: that may be proven without a trial before, and `least_s` be taken where
        that leaves time for a trial only.
        """
        if self._limit.seconds is None:
            return USUAL_FINDING_S
        share, trials = (ALONE_FINDING_SHARE, 0) if alone else (FINDING_SHARE, 1)
        found_s = 0.0
        for kept_s in (self._rehearsal_reserve_s({}), 0.0):
            found_s = self._aside_s(share, trials, kept_s)
            if found_s >= least_s:
                break
        has_least = alone and (self.left_s or 0.0) - self.expected_s({}) >= least_s
        return max(found_s, least_s) if has_least else found_s

    def loader_s(self, decides: bool = False) -> float:
        """Return how long a loader may be timed alone now, its start included; 0 if in trials.

        `decides` where it decides how long a step takes.
        """
        return self._aside_s(DECIDING_SHARE if decides else LOADER_SHARE)

    def _aside_s(self, share: float, trials: int = 1, kept_s: float = 0.0) -> float:
        """Return this share of a budget in time, or what trials, a proof and what is kept back
        besides leave of that."""
        later_s = self.durations.first_look_s({}) + trials * self.expected_s({}) + kept_s
        share_s = share * (self._limit.seconds or 0.0)
        return max(0.0, min(share_s, (self.left_s or 0.0) - later_s))

    def rehearsal_s(self, settings: Settings, is_proven: bool = False) -> float:
        """Return how long a rehearsal of these settings may take now; 0 where there is no room.

        What the first look of a proof needs is left out, and what a usual proof needs where there
        is time for both. `is_proven` where the proof was made before: then it may take all that is
        left, and is begun where its least lives may end in that, as far as lives usually differ.
        """
        if self._limit.seconds is None:
            return USUAL_REHEARSAL_S
        left_s, needed_s = self.left_s or 0.0, self.durations.lives_s(settings)
        if is_proven:
            return left_s if self.durations.shortest_lives_s(settings) <= left_s else 0.0
        most_s = left_s - self.durations.first_look_s(settings)
        usual_s = left_s - self._proof_s(settings)
        all_s = self.durations.lives_s(settings, is_rounded=True)
        longer_s = (1 + LIFE_ERROR) * all_s  # what takes so long is as expected, and may end
        return 0.0 if needed_s > most_s else max(min(longer_s, most_s), usual_s)

    def advice(self) -> str | None:
        """Return a sentence if the budget is too small for a study of this script, else None."""
        if self._limit.seconds is None or self._limit.seconds >= FEW_RUNS * self.expected_s({}):
            return None
        needed = BudgetLimit(seconds=60 * math.ceil(USUAL_RUNS * self.expected_s({}) / 60))
        return (
            f"one run of this script takes {self.expected_s({}):.0f} s, so there is time for a few "
            f"settings only in {self._limit}; --budget {needed} has room for all of them"
        )

    def enough_for(self, trials: Sequence[Settings]) -> BudgetLimit:
        """Return a budget that has room for these trials, too, at the end of the search.

        What proofs and rehearsals took so far is not counted: it comes after them then, and takes
        what a budget of that size keeps back.
        """
        if self._limit.seconds is None:
            return BudgetLimit(trials=self._searched + len(trials))
        proving_s = self._proving_s
        if self._phase in PROVING:
            proving_s += time.monotonic() - self._phase_began_s
        search_s = time.monotonic() - self._began_s - proving_s + sum(map(self.expected_s, trials))
        search_s *= TRIED_AGAIN
        return self._enough(
            lambda larger, s: search_s + max(map(larger._reserve_s, trials), default=0.0) <= s
        )

    def enough_to_find(self, seconds: float, alone: bool) -> BudgetLimit:
        """Return a budget in time that could ask for a value for so long by now, and prove it."""
        return self._enough(lambda larger, _: larger.finding_s(alone) >= seconds)

    def enough_to_rehearse(self, lives_s: float) -> BudgetLimit:
        """Return a budget in time that would have kept so long for lives, and had it by now."""
        least_s = max(time.monotonic() - self._began_s + lives_s, lives_s / REHEARSAL_SHARE)
        return BudgetLimit(seconds=60.0 * math.ceil(least_s / 60))

    def _enough(self, has_room: Callable[[Budget, float], bool]) -> BudgetLimit:
        """Return the least larger budget in whole minutes that, spent as this one, has room."""
        larger = copy(self)
        larger._phase, larger.reserve = "search", Reserve.USUAL
        for minutes in range(math.ceil(((self._limit.seconds or 0.0) + 1) / 60), LONGEST_S // 60):
            larger._limit = BudgetLimit(seconds=60.0 * minutes)
            if has_room(larger, 60.0 * minutes):
                break
        return larger._limit
