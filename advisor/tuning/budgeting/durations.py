"""How long the runs of a study, its proof and its rehearsal last, learned from its runs so far."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gpuadvisor.domain.knobs import Effect, Settings
from gpuadvisor.domain.study import Aspect, Objective, Trial, TrialState
from gpuadvisor.tuners.base import COMPILING_S, Knob
from gpuadvisor.tuners.statistics import LOOKS
from gpuadvisor.tuning.arguments import in_more_digits
from gpuadvisor.tuning.turning import unable_to_turn

LIFE_TRIALS = 1.75
"""Trials that a life lasts at most, as far as is expected: beside the start and some steps it has a
second epoch's start, an evaluation and checkpoints. ResNet-50 of pytorch/examples: 30 s beside 17 s
on an H200. Epochs after the second are lived only where the time that is allowed has room for them.
"""
LIFE_RUNS, LIFE_STEPS = 1.2, 96
"""Trials that a life lasts beside its steps, and how many of these it has with all its epochs, of
16 batches each. Lives of scripts with short steps took 1.0 to 1.25 trials in ten rehearsals of four
public scripts on H200s and CPUs."""
SHORTEST_LIFE = 1.0
"""Trials that a life takes at least, about."""
ROUNDED_LIVES = 2
"""Further lives of a rehearsal whose knobs have a value that computes in more digits: on a GPU two
that go on side by side (with weights changed as much as by rounding, and on equal ones), and then
the unchanged script's in these digits."""
LIFE_ERROR = 0.08
"""Part by which lives differ from that: those of ResNet-50 took 1.69 to 1.91 trials on H200s."""
COMPILED_ANEW = (Effect.NUMERICS, Effect.TRAINING)
"""Effects of knobs with which something else is compiled."""
WARM = 1 / 2
"""Part of what a knob's first start takes longer that its later ones take, about: compilers find on
disk what they compiled before, and tune anew what they do not keep."""
UNKNOWN_S = 30.0
"""Time of a run before any was made."""

_Key = frozenset[tuple[str, object]]


class Durations:
    """What was learned of how long runs last, and what follows for those to come, in seconds."""

    def __init__(self, knobs: Mapping[str, Knob]) -> None:
        self._knobs = knobs
        self.delay_s = 0.0
        """Time that runs of a proof wait on average before they are measured."""
        self.turning_s = 0.0
        """Time that a run of a proof takes longer where it times both sides in turns; 0 for none.
        """
        self.saved_s: Callable[[Settings], float] = lambda settings: 0.0
        """Returns by how much runs of some settings begin sooner as they are forked; 0 where they
        are not."""
        self.proofs_fork = False
        """Whether runs of a proof are forked, too, after its first pair."""
        self._walls_s: dict[_Key, float] = {}
        """Time of the last run of some settings."""
        self._starts_s: dict[_Key, float] = {}
        """Time of the last run with those settings that decide how long a start takes."""
        self._compiled_s: dict[_Key, float] = {}
        """Time that settings add to a start which were compiled in a running script before."""
        self._slowest_s: dict[_Key, float] = {}
        """Most that a run took with settings that make a start longer, whatever stood beside."""
        self._least_s: dict[_Key, float] = {}
        """Least time of a run of some settings in a proof, as long as a fresh one takes."""
        self._step_s: float | None = None
        """Time of the unchanged script's steps, of its last run that was measured."""
        self._slower = 1.0
        """Times what compilers usually take that they were seen to take here."""
        self._life_trials: float | None = None
        """Trials that a life of the last rehearsal took; None before there was one."""
        self._lived: set[_Key] = set()
        """Settings that had a rehearsal."""

    def record(self, trial: Trial) -> None:
        """Learn what a trial took. One that did not reach its end says little of those that do."""
        slow = self._slow(trial.settings)
        wall_s = trial.wall_s + (trial.start_saved_s or 0.0)  # what is to come may be fresh
        if trial.phase == "proof" and trial.state is TrialState.COMPLETE:
            key = frozenset(trial.settings.items())
            self._least_s[key] = min(wall_s, self._least_s.get(key, wall_s))
        if trial.measurement is not None and not trial.settings:
            self._step_s = trial.measurement.mean_step_ms / 1e3
        # Runs of a proof wait by chance before they are measured, which `delay_s` stands for.
        if wall_s > 0 and trial.state is TrialState.COMPLETE and trial.phase != "proof":
            self._walls_s[frozenset(trial.settings.items())] = wall_s
            self._starts_s[slow] = wall_s
            if usual_s := sum(filter(_compiles, self._first_starts_s(trial.settings))):
                longer_s = wall_s - self._walls_s.get(frozenset(), wall_s)
                self._slower = max(self._slower, longer_s / usual_s)
        elif slow and trial.state is not TrialState.PRUNED:
            self._starts_s[slow] = max(self.run_s(trial.settings), wall_s)
        if slow and slow in self._starts_s:
            own = self._starting(trial.settings)
            self._slowest_s[own] = max(self._slowest_s.get(own, 0.0), self._starts_s[slow])

    def record_compiled(self, settings: Settings, seconds: float) -> None:
        """Learn how long settings took to compile in a running script: processes find on disk what
        it compiled."""
        own = self._slow(settings)
        self._compiled_s[own] = max(self._compiled_s.get(own, 0.0), WARM * seconds)

    def record_rehearsal(self, settings: Settings, wall_s: float) -> None:
        """Learn what all lives of a rehearsal took, those of the unchanged script included."""
        trials_s = 2 * self._lived_s({}) + self._lives(settings) * self._lived_s(settings)
        if wall_s > 0:
            self._life_trials = wall_s / trials_s
        self._lived.add(frozenset(settings.items()))

    @property
    def has_lived(self) -> bool:
        """Whether there was a rehearsal, so that the unchanged script's lives are known."""
        return bool(self._lived)

    def has_run(self, settings: Settings) -> bool:
        """Say whether a run of these settings came to its end outside of a proof."""
        return frozenset(settings.items()) in self._walls_s

    def trial_s(self, settings: Settings) -> float:
        """Return how long a run of a search will probably take, forked where it can be."""
        return self.run_s(settings) - self.saved_s(settings)

    def run_s(self, settings: Settings) -> float:
        """Return how long a fresh process of these settings will probably take."""
        known, slow = frozenset(settings.items()), self._slow(settings)
        if known in self._walls_s:
            return self._walls_s[known]
        if slow in self._starts_s:
            return self._starts_s[slow]
        plain_s = self._walls_s.get(frozenset(), UNKNOWN_S)
        # What was slow to start beside other settings is so beside these.
        seen_s = self._slowest_s.get(self._starting(settings), 0.0)
        return max(plain_s + self._more_s(settings), seen_s)

    def _more_s(self, settings: Settings) -> float:
        """Return what settings add to a start, of which some may have been compiled in a running
        script before: where nothing stood beside them that has something else compiled."""
        starting, slow = self._starting(settings), self._slow(settings)
        known = [each for each in self._compiled_s if slow - starting <= each <= slow]
        compiled = max(known, key=len, default=frozenset())
        starts_s = [self._knobs[name].first_start_s for name, _ in starting - compiled]
        rest_s = (each * self._slower if _compiles(each) else each for each in starts_s)
        return self._compiled_s.get(compiled, 0.0) + sum(rest_s)

    def again_s(self, settings: Settings) -> float:
        """Return how long a run of these settings will take when they have run already."""
        run_s, first_s = self.run_s(settings), self._first_start_s(settings)
        slower_s = run_s - self._walls_s.get(frozenset(), UNKNOWN_S)
        # What starts faster than that has found on disk what it compiled.
        return run_s - (1 - WARM) * slower_s if first_s and slower_s >= first_s else run_s

    def _first_start_s(self, settings: Settings) -> float:
        return sum(self._first_starts_s(settings))

    def _first_starts_s(self, settings: Settings) -> list[float]:
        return [self._knobs[name].first_start_s for name, _ in self._starting(settings)]

    def _starting(self, settings: Settings) -> _Key:
        """Return the settings that make a start longer by themselves."""
        known = [(name, value) for name, value in settings.items() if name in self._knobs]
        return frozenset((n, value) for n, value in known if self._knobs[n].first_start_s)

    def _slow(self, settings: Settings) -> _Key:
        """Return the settings that decide how long a start takes: those that make it longer, and
        beside one that compiles those that have something else compiled.
        """
        slow = self._starting(settings)
        if not any(map(_compiles, self._first_starts_s(settings))):
            return slow
        known = ((name, value) for name, value in settings.items() if name in self._knobs)
        return slow | {(n, value) for n, value in known if self._knobs[n].effect in COMPILED_ANEW}

    def pair_s(self, settings: Settings) -> float:
        """Return how long a pair of a proof takes: a run of these settings, and one without; both
        forked if they can be."""
        fresh_s = self.again_s(settings) + self.run_s({}) + 2 * self.delay_s
        return fresh_s - self._saved_of_pair_s(settings)

    def first_look_s(self, settings: Settings) -> float:
        """Return how long it takes to the first look of a proof, whose first pair is fresh."""
        return LOOKS[0] * self.pair_s(settings) + self._saved_of_pair_s(settings)

    def _saved_of_pair_s(self, settings: Settings) -> float:
        return 2 * self.saved_s(settings) if self.proofs_fork else 0.0

    def turned_look_s(self, settings: Settings) -> float:
        """Return how long that takes where both sides are timed in turns; 0 where they are not."""
        if not self.turning_s:
            return 0.0
        return self.first_look_s(settings) + 2 * LOOKS[0] * self.turning_s

    def can_turn(self, settings: Settings) -> bool:
        """Say whether both sides of a proof of these settings can be timed in turns."""
        return unable_to_turn(settings, self._knobs, Objective.THROUGHPUT) is None

    def ablation_s(self, settings: Settings) -> float:
        """Return how long an ablation takes; one setting alone needs none."""
        run_s = self.again_s(settings) - self.saved_s(settings)
        return (2 + len(settings)) * run_s if len(settings) > 1 else 0.0

    def lives_s(
        self,
        settings: Settings,
        least: bool = False,
        is_rounded: bool = False,
        longest: bool = False,
    ) -> float:
        """Return how long the lives of a rehearsal take; 0 where these settings had theirs.

        The unchanged script lives twice for all rehearsals of a study together. With `least`, that
        is without the life that only scripts want whose samples are drawn at random; where it
        `is_rounded`, with those that show which side is nearer to what more digits give. Each is as
        likely to take longer as not so long, or hardly ever takes longer where it is the `longest`.
        """
        if frozenset(settings.items()) in self._lived:
            return 0.0
        unchanged_s = 0.0 if self.has_lived else 2 * self.life_s({}, longest)
        lives = 1 if least else self._lives(settings)
        if is_rounded and in_more_digits(settings, self._knobs):
            lives += ROUNDED_LIVES
        return unchanged_s + lives * self.life_s(settings, longest)

    def shortest_lives_s(self, settings: Settings) -> float:
        """Return how long the least lives of a rehearsal take if nothing lasts longer than it has
        to; 0 where these settings had theirs."""
        if self.has_lived or self._step_s is None:
            return (1 - LIFE_ERROR) * self.lives_s(settings, least=True)
        return SHORTEST_LIFE * (2 * self._lived_s({}) + self._lived_s(settings))

    def life_s(self, settings: Settings, longest: bool = False) -> float:
        """Return how long one more life of these settings takes, or of the unchanged script; at
        most where it is the `longest`."""
        run_s = self._lived_s(settings)
        if self._life_trials is not None:
            return self._life_trials * run_s
        if self._step_s is None or longest:
            return LIFE_TRIALS * run_s
        return min(LIFE_TRIALS * run_s, LIFE_RUNS * run_s + LIFE_STEPS * self._step_s)

    def _lived_s(self, settings: Settings) -> float:
        """Return how long a fresh run of settings takes, as far as proofs tell that, too: their
        runs wait by chance, so that none takes less."""
        again_s = self.again_s(settings)
        return min(again_s, self._least_s.get(frozenset(settings.items()), again_s))

    def _lives(self, settings: Settings) -> int:
        """Return how often settings live: where only some of them reach the data, the others may
        live alone, too.
        """
        known = [self._knobs[name] for name in settings if name in self._knobs]
        reach = sum(Aspect.BATCHES in knob.reaches for knob in known)
        return 2 if 0 < reach < len(settings) else 1


def _compiles(first_start_s: float) -> bool:
    """Say whether what makes a start so much longer is a compiler."""
    return first_start_s >= COMPILING_S
