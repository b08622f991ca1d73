"""Proves settings of a study, and rehearses them as soon as they are shown to be faster."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from gpuadvisor.domain.knobs import Contribution, Settings, shown_settings
from gpuadvisor.domain.study import Dropped, Rehearsal, Speedup, StudyResult, Trial
from gpuadvisor.tuners.proof import Proof, Prospect, is_faster, prove_point
from gpuadvisor.tuners.rehearsal.comparison import as_trials_showed, missing
from gpuadvisor.tuners.search import Best
from gpuadvisor.tuners.statistics import LOOKS, pairs_needed
from gpuadvisor.tuning.budgeting.budget import Budget
from gpuadvisor.tuning.budgeting.reserve import Reserve
from gpuadvisor.tuning.options import TuneOptions
from gpuadvisor.tuning.outcome.results import on_top, proven, typical
from gpuadvisor.tuning.rehearsal import Rehearser
from gpuadvisor.tuning.trials.evaluator import ScriptEvaluator
from gpuadvisor.tuning.trials.in_turns import TOOK_TURNS
from gpuadvisor.tuning.trials.trial_runner import Progress

SURE = 4.0
"""Times what a first look would have to tell apart that a gain must be to be rehearsed before its
proof: two runs of the unchanged script show less than a quarter of what runs differ by in one of
five studies."""
CLEARLY = 1.1
"""Ratio that knobs have to bring together in a screening to be looked at in fresh processes before
the rest is screened. [own]"""


@dataclass
class Rehearsed:
    """What is left of settings after their rehearsal."""

    settings: Settings
    rehearsal: Rehearsal | None
    """The last one, of `settings` where they are not empty."""
    dropped: tuple[Dropped, ...] = ()
    """What was taken out, and the problem that each was suspected of."""


@dataclass
class Prover:
    """Makes the proofs and rehearsals of one study."""

    options: TuneOptions
    evaluator: ScriptEvaluator
    budget: Budget
    progress: Progress
    rehearser: Callable[[], Rehearser]
    """Returns what rehearses all that the study finds, once the unchanged script is measured."""
    enter: Callable[[str, str], None]
    """Begins a phase, of which it gets the name and a few words."""
    note: Callable[[str], None]
    """Keeps a sentence for the study's result."""
    undecided: Callable[[], StudyResult]
    """Returns the study's result without a gain."""
    without: Callable[[Settings, str], Settings]
    """Takes a knob out of settings, with those that need it."""
    rehearsed: Rehearsed = field(default_factory=lambda: Rehearsed({}, None))
    """What is left of the settings that were proven last, and all that was ever taken out."""
    leaves_it: Callable[[Settings], bool] = lambda settings: False
    """Says of settings whose gain is shown whether to leave it at that: there is more to try."""
    untried: Callable[[], Sequence[str] | None] = lambda: ()
    """Returns the knobs of which no value was tried so far; None before the search."""
    _looked: StudyResult | None = None
    """What a first look has shown by itself, before anything was rehearsed."""
    _fruitless: int = 0
    """Proofs that showed no gain: after each, the next has to be surer."""
    _shown: Settings = field(default_factory=dict)
    """Settings whose gain the proof under way, or the last one, has shown."""
    _asked: Settings = field(default_factory=dict)
    """Settings of the proof under way; empty where none is."""
    _so_far: StudyResult | None = None
    """What that has shown of them; None where a rehearsal found a problem."""
    _base: StudyResult | None = None
    """What is proven so far, which is the base of the next proof; None for the unchanged script."""
    _over_base: Speedup | None = None
    """What the last proof has shown beside its base."""
    _surer: Speedup | None = None
    """What was proven last, with an interval that leaves room for the error of another one."""
    _looked_surer: Speedup | None = None
    """What a first look has shown, with an interval that leaves room for another proof's error."""

    def prove(
        self, settings: Settings, contributions: tuple[Contribution, ...] = ()
    ) -> StudyResult:
        """Prove settings and rehearse them; then the rest of them where some do harm.

        They are rehearsed as soon as a gain is shown, or before where it is likely and the time
        would not suffice to prove what a rehearsal leaves of them, too.
        """
        self._over_base = None
        if self.rehearsed.settings != settings:
            self.rehearsed = Rehearsed(settings, None, self.rehearsed.dropped)
        if not settings:
            return self.undecided()
        if self._looked is not None and self._looked.settings == settings:
            known = contributions or self._looked.contributions
            return self._rehearsed_look(replace(self._looked, contributions=known))
        if not self.budget.has_room_for_proof(settings):
            self.note(f"the budget left no room to prove {shown_settings(settings)}")
            return replace(self.undecided(), settings=settings)
        if self._rehearses_first(settings) and not self._rehearse(settings):
            return self._prove_rest(contributions)
        proof = self._proof(settings)
        result = self._result(settings, contributions, proof)
        if proof.speedup and is_faster(proof.speedup) and self.rehearsed.rehearsal is None:
            self._note_shown(settings, proof.speedup)
            self._rehearse(settings)
        if self.rehearsed.settings != settings:
            return self._prove_rest(contributions)
        if is_faster(proof.speedup):
            self._surer = result.speedup if self._base is not None else proof.surer
        rehearsal = self.rehearsed.rehearsal
        if rehearsal is None:
            return result
        rehearsal = as_trials_showed(rehearsal, proof.head)
        return replace(result, rehearsal=rehearsal, equivalence=rehearsal.equivalence)

    def _proof(self, settings: Settings, settled: Callable[[Speedup], bool] | None = None) -> Proof:
        self._asked = settings
        base = self._base.settings if self._base is not None else {}
        beside = "what is proven" if base else "baseline"
        forked = ", after the first pair forked" * self.evaluator.proof.forks([base, settings])
        self.enter("proof", f"fresh processes{forked}, best and {beside} in turn")
        proof = prove_point(
            self.evaluator,
            settings,
            self.options.objective,
            str(self.options.seed),
            self._fruitless,
            lambda found: self._goes_on(settings, found),
            1.0,
            lambda pair: self.evaluator.measure_both(pair, settings, base),
            settled,
            base,
            self._is_worthwhile,
        )
        self._asked, self._over_base = {}, proof.speedup
        if not is_faster(proof.speedup):
            self._fruitless += 1
            self._so_far = None
        if proof.ratios:
            self.note(TOOK_TURNS)
        if proof.failed is not None:
            plain = f"script with {shown_settings(base)}" if base else "unchanged script"
            which = "best" if proof.failed in proof.head else plain
            self.note(
                f"the {which} failed in the proof, so nothing is claimed for "
                f"{shown_settings(settings)}: {proof.failed.state}: {proof.failed.reason}"
            )
        return proof

    def _is_worthwhile(self, prospect: Prospect) -> bool:
        """Say whether to go on with a proof that has shown nothing yet: where it would hardly show
        anything in the time that is left, other settings are worth more of that."""
        left_s, untried = self.budget.left_s, self.untried()
        is_last = self.budget.reserve is Reserve.NOTHING or (untried is not None and not untried)
        return left_s is None or is_last or prospect.may_show_within(left_s)

    def early_s(self, gain: float, settings: Settings) -> float:
        """Return for how many seconds the first look at settings that a screening found may be put
        off, if it is to come before more is screened: it will probably show what they bring, and
        leaves time for the rest. 0 where it is not to."""
        can_look = self.promises(gain, settings) and not self.options.resume
        return self.budget.early_s(settings) if can_look else 0.0

    def promises(self, gain: float, settings: Settings) -> bool:
        """Say whether the first look of a proof will probably show what settings bring.

        Of what compiles, after which little is left to be found, it is enough if it is clear.
        """
        is_clear = self.budget.starts_slowly(settings) and self.evaluator.proof.is_clear(gain)
        return gain >= CLEARLY and (is_clear or self._is_sure(gain))

    def look(
        self, settings: Settings, gain: float, contributions: tuple[Contribution, ...]
    ) -> StudyResult:
        """Return what the first look of a proof shows of settings, of which nothing is rehearsed.

        They promise such a `gain`. What it shows is kept: another proof has its whole error then,
        and where that shows nothing more, `better` returns to it.
        """
        processes = self.evaluator.proof
        processes.promised, processes.is_early = Best(settings, gain), True
        proof = self._proof(settings, lambda found: True)
        processes.is_early = False
        result = proven(self.undecided(), settings, contributions, proof)
        if proof.speedup is not None and proof.surer is not None:  # it is faster
            self._note_shown(settings, proof.speedup)
            self._looked, self._looked_surer = result, proof.surer
        return result

    def better(self, found: StudyResult) -> StudyResult:
        """Return a result, or what a first look had shown before where that is no gain or less."""
        looked = self._looked
        if looked is None or found.settings == looked.settings or looked.speedup is None:
            return found
        if looked.settings.keys() & {each.knob for each in self.rehearsed.dropped}:
            return found
        least = looked.speedup.ci99_low
        if found.speedup and is_faster(found.speedup) and found.speedup.ci99_high >= least:
            return found
        return self.prove(looked.settings, looked.contributions)

    def _rehearsed_look(self, looked: StudyResult) -> StudyResult:
        """Return what a first look showed, rehearsed if there is time, or the rest proven where
        some of it does harm."""
        settings = self._shown = looked.settings
        if self._allowed_s(settings):
            self._rehearse(settings)
        if self.rehearsed.settings != settings:
            return self._prove_rest(looked.contributions)
        self._surer = self._looked_surer
        if (rehearsal := self.rehearsed.rehearsal) is None:
            return looked
        return self._as_rehearsed(looked, rehearsal)

    def improve(
        self, known: StudyResult, settings: Settings, contributions: tuple[Contribution, ...]
    ) -> StudyResult:
        """Prove settings that look better than a result's, and return theirs if they are.

        They are if fresh processes of both, in turn, show it, and if no less of the script's life
        was rehearsed. Runs of the unchanged script, which may differ more, are not asked again:
        what is gained in all is the product of both ratios, and of the ends of their intervals.
        """
        self._base, surer = known, self._surer
        found = self.prove(settings, contributions)
        self._base, over = None, self._over_base
        is_verified = missing(found.rehearsal) is None or missing(known.rehearsal) is not None
        if found.speedup is not None and over is not None and is_faster(over) and is_verified:
            self.note(_in_two_proofs(known, found.settings, over))
            return found
        self._surer = surer
        self.note(
            f"{shown_settings(settings)} looked better than {shown_settings(known.settings)}, "
            "which was not shown"
        )
        return known

    def _prove_rest(self, contributions: tuple[Contribution, ...]) -> StudyResult:
        """Prove what a rehearsal left of settings, unless it was proven before."""
        rest = self.rehearsed.settings
        is_proven = self._base is not None and rest == self._base.settings
        return self.undecided() if is_proven else self.prove(rest, contributions)

    def _result(
        self, settings: Settings, contributions: tuple[Contribution, ...], proof: Proof
    ) -> StudyResult:
        """Return the study's result with what a proof says of settings: beside the unchanged
        script, whatever their base was."""
        found = proven(self.undecided(), settings, contributions, proof)
        if self._base is None:
            return found
        surer = proof.surer or proof.speedup
        return on_top(found, self._base, surer, self._surer or self._base.speedup)

    def _rehearses_first(self, settings: Settings) -> bool:
        """Say whether to rehearse settings before their proof.

        Where the first look will probably show the gain, that costs nothing, and where they do harm
        it saves their proof. Else they are proven first: what is no gain needs no rehearsal.
        """
        trial = self.typical(settings)
        known = self._base.speedup.ratio if self._base and self._base.speedup else 1.0
        gain = (trial.gain or 1.0) / known if trial else 1.0
        return (
            self._is_sure(gain)
            and len(settings) > 1
            and self.rehearsed.rehearsal is None
            and not self.budget.has_room_for_harm(settings)
            and self._allowed_s(settings) > 0
        )

    def _is_sure(self, gain: float) -> bool:
        """Say whether the first look of a proof will probably show a gain."""
        return pairs_needed(math.log(gain) / SURE, self.evaluator.proof.spread) == LOOKS[0]

    def _note_shown(self, settings: Settings, found: Speedup) -> None:
        """Remember that a proof has shown a gain, and tell of it before its rehearsal."""
        if self._shown != settings:
            beside = ""
            if self._base is None:
                proof = Proof(found, base=self._runs_of({}), head=self._runs_of(settings))
                self._so_far = proven(self.undecided(), settings, (), proof)
            else:
                beside = f", beside {shown_settings(self._base.settings)}"
            gain = _told(found, "x faster")
            self.progress.on_message(
                f"proven so far: {gain} with {shown_settings(settings)}{beside}"
            )
        self._shown = settings

    def _runs_of(self, settings: Settings) -> list[Trial]:
        """Return the study's runs of some settings in its proofs."""
        return [t for t in self.evaluator.trials if (t.phase, t.settings) == ("proof", settings)]

    @property
    def under_way(self) -> Settings:
        """Settings that the proof under way has measured; empty where none is, or it has not."""
        has_run = any(trial.measurement for trial in self._runs_of(self._asked))
        return self._asked if has_run else {}

    def so_far(self) -> StudyResult | None:
        """Return what a study that ends now has shown; None where that is nothing."""
        shown, rehearsed = self._so_far, self.rehearsed
        if shown is None or rehearsed.rehearsal is None or rehearsed.settings != shown.settings:
            return shown
        return self._as_rehearsed(shown, rehearsed.rehearsal)

    def _as_rehearsed(self, shown: StudyResult, rehearsal: Rehearsal) -> StudyResult:
        rehearsal = as_trials_showed(rehearsal, self._runs_of(shown.settings))
        return replace(shown, rehearsal=rehearsal, equivalence=rehearsal.equivalence)

    def _goes_on(self, settings: Settings, found: Speedup) -> bool:
        """Rehearse what a proof has shown to be faster, and say whether the proof goes on to know
        better how much.
        """
        self._note_shown(settings, found)
        if self.rehearsed.rehearsal is not None or not self._allowed_s(settings):
            return not self.leaves_it(settings)
        goes_on = self._rehearse(settings) and self.evaluator.affordable([{}, settings])
        goes_on = goes_on and not self.leaves_it(settings)
        if goes_on:
            self.enter("proof", "more pairs, to know better how much is gained")
        return goes_on

    def _rehearse(self, settings: Settings) -> bool:
        """Let the script live its whole life in short, and leave out what does harm there.

        Return whether nothing does; else what is left has to be proven by itself.
        """
        earlier = self.rehearsed.dropped
        self.enter("rehearsal", "a shortened life, to the script's end; nothing it writes remains")
        best = self.typical(settings)
        step_ms = best.measurement.mean_step_ms if best and best.measurement else None

        def rehearse(some: Settings) -> Rehearsal:
            left_s = self.budget.rehearsal_s(some, is_proven=True)
            rehearser = self.rehearser()
            rehearser.allowed_s = self._allowed_s(some) or left_s
            found = rehearser.rehearse(some, step_ms)
            if found.problems:
                self._so_far = None
            self.budget.durations.record_rehearsal(some, found.wall_s)
            return found

        self.rehearsed = _harmless_part(rehearse, settings, self.without, self._may_rehearse)
        for each in self.rehearsed.dropped:
            self.note(f"{each.knob} is left out: {each.problem.sentence}")
        self.rehearsed.dropped = earlier + self.rehearsed.dropped
        lacks = missing(self.rehearsed.rehearsal)
        if self.rehearsed.settings and lacks is not None:
            rehearsal = self.rehearsed.rehearsal
            is_doubted = rehearsal is not None and lacks == rehearsal.doubt
            what = "rehearsed, and doubted" if is_doubted else "not rehearsed enough"
            self.progress.on_message(f"{what}: {lacks}")
            self._note_time_for_lives(self.rehearsed)
        self.budget.phase = "proof"
        return self.rehearsed.settings == settings

    def _note_time_for_lives(self, rehearsed: Rehearsed) -> None:
        """Note how long lives take that had no room, where it is known, and a budget with room."""
        if rehearsed.rehearsal is None:
            lives_s = self.budget.durations.lives_s(rehearsed.settings)
        else:
            lives_s = self.rehearser().needed_s
        if lives_s and self.budget.left_s is not None:
            self.note(
                f"a rehearsal takes about {lives_s:.0f} s, for which the budget had no room:"
                f" `--budget {self.budget.enough_to_rehearse(lives_s)}` would have"
            )

    def _may_rehearse(self, settings: Settings, is_sought: bool) -> bool:
        """Say whether to rehearse what is left of settings, which leaves room for its proof.

        To know what did harm is worth more than that: without, nothing can be proven at all.
        """
        if self._allowed_s(settings) > 0:
            return True
        return is_sought and self.budget.rehearsal_s(settings, is_proven=True) > 0

    def typical(self, settings: Settings) -> Trial | None:
        """Return the run of median cost of some settings; None where there is none."""
        trials = [each for each in self.evaluator.trials if each.settings == settings]
        return typical(trials, self.options.objective)

    def _allowed_s(self, settings: Settings) -> float:
        """Return how long a rehearsal of settings may take now, before their proof or after."""
        return self.budget.rehearsal_s(settings, is_proven=settings == self._shown)


def _harmless_part(
    rehearse: Callable[[Settings], Rehearsal],
    settings: Settings,
    without: Callable[[Settings, str], Settings],
    affordable: Callable[[Settings, bool], bool],
) -> Rehearsed:
    """Rehearse settings and take out what does harm, until a rehearsal finds nothing any more.

    Where several knobs can have caused a problem, each is taken out alone, the likeliest
    first; where none of them alone did, all are. `without` takes a knob out of settings, with
    those that need it. A rest that could not be rehearsed for want of budget has no rehearsal:
    `affordable` says whether settings can be, and is told whether that has to show what did harm.
    """
    result, other = Rehearsed(settings, None), None
    while result.settings:
        if other is None or other.settings != result.settings:
            if not affordable(result.settings, False):
                return replace(result, rehearsal=None)
            other = rehearse(result.settings)
        found = other
        result.rehearsal = found
        if found.agrees:
            return result
        problem = found.problems[0]
        suspects = [n for n in problem.suspects if n in result.settings] or list(result.settings)
        kept = dict(result.settings)
        for name in suspects if len(suspects) > 1 else ():
            rest = without(result.settings, name)
            if not rest or not affordable(rest, True):
                continue
            other = rehearse(rest)
            if problem.aspect not in {each.aspect for each in other.problems}:
                kept = dict(rest)
                break
        else:
            for name in suspects:
                kept = dict(without(kept, name)) if name in kept else kept
        gone = [name for name in result.settings if name not in kept]
        result.dropped += tuple(Dropped(name, result.settings[name], problem) for name in gone)
        result.settings = kept
    return result


def _in_two_proofs(known: StudyResult, settings: Settings, over: Speedup) -> str:
    """Return how a gain was shown whose second part was proven on top of the first."""
    first = _told(known.speedup) if known.speedup else ""
    return (
        f"proven in two steps: {shown_settings(known.settings)} {first}, and "
        f"{shown_settings(settings)} beside that {_told(over)}"
    )


def _told(found: Speedup, unit: str = "x") -> str:
    ends = f"99 % interval {found.ci99_low:.2f}-{found.ci99_high:.2f}"
    return f"{found.ratio:.2f}{unit} ({ends}, {found.pairs} pairs)"
