"""How long whole studies take, on a script and a clock that are only simulated."""

from __future__ import annotations

import itertools
import os
import random
import re
from types import SimpleNamespace

import pytest

from gpuadvisor.collectors.interpreter import TargetPython
from gpuadvisor.collectors.script.request import Command, RunOutcome
from gpuadvisor.domain.device import Device
from gpuadvisor.domain.finding import Diagnosis
from gpuadvisor.domain.knobs import AppliedKnob, Level, LoaderFacts, ScriptFacts
from gpuadvisor.domain.measurement import Trace
from gpuadvisor.domain.rehearsal import Call, Life
from gpuadvisor.domain.study import TrialState, Verdict
from gpuadvisor.errors import Interrupted, UsageError
from gpuadvisor.reports.study import wording
from gpuadvisor.reports.study.wording import settings_tried
from gpuadvisor.tuners.statistics import LOOKS
from gpuadvisor.tuning import measuring, proving, rehearsal, study
from gpuadvisor.tuning.budgeting import budget
from gpuadvisor.tuning.budgeting.budget import OVERDRAFT
from gpuadvisor.tuning.budgeting.budget_limit import BudgetLimit, schedule_for
from gpuadvisor.tuning.budgeting.durations import LIFE_TRIALS
from gpuadvisor.tuning.options import TuneOptions
from gpuadvisor.tuning.trials import first_run, trial_runner
from gpuadvisor.tuning.trials.trial_runner import Silent
from tests.simulation import measurement

FACTS = ScriptFacts(
    device="cuda",
    training=True,
    roots=("Net",),
    has_convolution=True,
    optimizers=("SGD",),
    loaders=(LoaderFacts(64, 0, False, False, None),),
    draws_random=True,
)
COMPILES_S = 20.0


class Machine:
    """A clock, and a script whose runs, profiles and shortened lives let time pass on it."""

    def __init__(
        self,
        run_s,
        gains=None,
        spread=0.002,
        jitter=0.1,
        life_trials=LIFE_TRIALS,
        harmful=(),
        crashing=(),
        disturbed=0.0,
    ):
        self.now_s = self.warmup_s = 0.0
        self.run_s = run_s
        self.gains = gains or {}
        self.spread, self.jitter = spread, jitter
        """Relative deviation of what steps cost, and of how long runs take."""
        self.life_trials = life_trials
        self.harmful, self.crashing = set(harmful), set(crashing)
        self.disturbed = disturbed
        """Chance that something else is seen to use the machine in a run."""
        self.masked = {}
        """Knob to another beside which it brings nothing."""
        self.has_gains = True
        self.lives = []
        """Knobs of each life."""
        self.began = []
        """Phases in the order in which they began."""
        self.stalls_s = 0.0
        """Time that passes after each life."""
        self.planned_slower = 1.0
        """Times what the unchanged script's life takes that one under settings does."""
        self._random = random.Random(f"{run_s}")

    def monotonic(self):
        return self.now_s

    def profile(self, *_):
        self.now_s += 2 * self.run_s
        return Diagnosis(())

    def run(self, request, read_energy_j, load):
        names = [each.knob for each in request.specification.applications]
        wall_s = self._lasting_s(names)
        if set(names) & self.crashing:
            wall_s /= 4
        wall_s += max(0.0, request.specification.schedule.warmup_s - self.warmup_s)
        self.now_s += min(wall_s, request.limits.total_s)
        if set(names) & self.crashing:
            return RunOutcome(TrialState.CRASHED, "it failed", None, "", wall_s)
        cost = 100.0 * self._random.lognormvariate(0, self.spread)
        for name in names if self.has_gains else ():
            if self.masked.get(name) not in names:
                cost /= self.gains.get(name, 1.0)
        measured = measurement(
            [cost] * 8,
            facts=FACTS,
            trace=Trace((1.0, 0.9, 0.8)),
            applied=tuple(AppliedKnob(name, "effective") for name in names),
            startup_s=wall_s / 2,
            wall_s=wall_s,
        )
        disturbed = "others used the GPU" if self._random.random() < self.disturbed else ""
        return RunOutcome(TrialState.COMPLETE, "", measured, "", wall_s, disturbance=disturbed)

    def live(self, request, shortening):
        names = [each.knob for each in request.specification.applications]
        self.lives.append(names)
        wall_s = self._lasting_s(names) * self.life_trials
        wall_s *= self.planned_slower if names else 1.0
        limit_s = request.limits.total_s
        self.now_s += min(wall_s, limit_s) + self.stalls_s
        if wall_s > limit_s:
            return Life(TrialState.HUNG, wall_s=limit_s)
        losses = (1.5 if set(names) & self.harmful else 1.0,) * 8
        calls = tuple(Call(n, 64, 64, True, ((1.0,),)) for n in range(40))
        return Life(
            TrialState.COMPLETE,
            wall_s=wall_s,
            losses=losses,
            calls=calls,
            written={},
            applied=tuple(AppliedKnob(name, "effective") for name in names),
        )

    def _lasting_s(self, names):
        compiling_s = COMPILES_S * any(name.startswith("compile") for name in names)
        return self.run_s * self._random.uniform(1 - self.jitter, 1 + self.jitter) + compiling_s


@pytest.fixture
def tune(tmp_path, monkeypatch, in_memory):
    """Returns the result of a study with a budget on a machine, and the seconds it took."""

    def tuned(machine, limit, **changes):
        clock = SimpleNamespace(monotonic=machine.monotonic)
        machine.warmup_s = schedule_for(BudgetLimit.parse(limit)).warmup_s
        monkeypatch.setattr(budget, "time", clock)
        monkeypatch.setattr(measuring, "time", clock)
        monkeypatch.setattr(rehearsal, "time", clock)
        monkeypatch.setattr(trial_runner, "run_script", machine.run)
        monkeypatch.setattr(rehearsal, "run_life", machine.live)
        options = {"level": Level.BALANCED, "budget": BudgetLimit.parse(limit), **changes}
        command = Command("python", "train.py")
        telling = Silent()
        telling.on_phase = lambda name, detail="": machine.began.append(name)
        result = study.tune(
            TuneOptions(command, **options), telling, lambda: False, machine.profile
        )
        return result, machine.now_s

    (tmp_path / "train.py").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GPUADVISOR_HOME", str(tmp_path / "store"))
    monkeypatch.setattr(rehearsal, "unavailable", lambda: None)
    python = TargetPython("/usr/bin/python3", "3.12.3", torch="2.7.1")
    h100 = Device("cuda", 0, "H100", f"GPU-{os.getpid()}-0", 80 << 30, (9, 0), cores=16)
    monkeypatch.setattr(first_run, "target_python", lambda command: python)
    monkeypatch.setattr(first_run, "devices_for", lambda python, jobs: [h100])
    return tuned


GAINS = {"dataloader_workers": 1.6, "tf32": 1.3, "channels_last": 1.15, "compile": 1.2}


@pytest.mark.parametrize(
    ("limit", "run_s", "machine"),
    [
        ("2m", 5.0, {"gains": GAINS, "spread": 0.03, "disturbed": 0.3}),
        ("5m", 12.0, {"gains": GAINS, "harmful": {"tf32"}, "life_trials": 2.5, "spread": 0.03}),
        ("8m", 17.0, {"spread": 0.03, "disturbed": 0.3}),
        ("8m", 24.0, {"gains": GAINS, "spread": 0.03, "disturbed": 0.3}),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (
                ("2m", 5.0, {"gains": GAINS, "spread": 0.03}),
                ("5m", 12.0, {"gains": GAINS, "harmful": {"tf32"}}),
                ("8m", 17.0, {"gains": GAINS, "crashing": {"channels_last"}, "jitter": 0.2}),
                ("8m", 24.0, {"gains": GAINS, "disturbed": 0.3}),
                ("8m", 24.0, {"gains": GAINS, "spread": 0.03, "life_trials": 2.5}),
            )
        ),
    ],
)
def test_a_study_ends_within_its_budget(tune, limit, run_s, machine):
    result, took_s = tune(Machine(run_s, **machine), limit)
    assert took_s <= 1.1 * BudgetLimit.parse(limit).seconds
    assert settings_tried(result)
    assert result.speedup is not None or result.needed_s > 0


def test_what_is_shown_to_be_faster_is_rehearsed_before_more_is_asked_of_it(tune):
    machine = Machine(20.0, {"tf32": 1.5}, spread=0.05)
    result, took_s = tune(machine, "10m", only=frozenset({"tf32"}))
    assert result.verdict is Verdict.FASTER
    assert result.rehearsal.settings == {"tf32": True}
    assert machine.began[-3:] == ["proof", "rehearsal", "proof"]
    assert result.speedup.pairs > LOOKS[0]
    assert took_s <= 1.1 * 600


def test_where_one_look_has_room_it_ends_with_the_rehearsal(tune):
    machine = Machine(20.0, {"tf32": 1.5}, jitter=0.01)
    result, took_s = tune(machine, "290s", only=frozenset({"tf32"}))
    assert result.verdict is Verdict.FASTER
    assert machine.began[-1] == "rehearsal"
    assert took_s <= 290


@pytest.mark.parametrize(("life_trials", "slower"), [(1.5, 1.9), (1.6, 1.0), (1.9, 1.9), (4, 1)])
@pytest.mark.parametrize("limit_s", [290, 330, 370])
def test_no_rehearsal_goes_on_beyond_the_budget(tune, limit_s, life_trials, slower):
    """However long lives take beside what was expected of them, and what passes after each; what
    was proven before is kept, and nothing is held against the settings."""
    machine = Machine(20.0, {"tf32": 1.5}, jitter=0.01, life_trials=life_trials)
    machine.stalls_s, machine.planned_slower = 5.0, slower
    result, took_s = tune(machine, f"{limit_s}s", only=frozenset({"tf32"}))
    assert machine.began[-1] == "rehearsal"
    assert took_s <= limit_s
    assert (result.settings, result.dropped) == ({"tf32": True}, ())
    has_ended = result.verdict is Verdict.FASTER
    assert has_ended or (
        result.verdict is Verdict.FASTER_UNVERIFIED and result.rehearsal.wants_time
    )
    assert has_ended == (len(machine.lives) == 3 and result.rehearsal.wants_time is False)


def test_with_a_budget_for_few_runs_something_is_tried(tune):
    result, took_s = tune(Machine(5.0, {"tf32": 1.5}), "45s", only=frozenset({"tf32"}))
    assert result.verdict is Verdict.FASTER_UNVERIFIED
    assert took_s <= (1 + OVERDRAFT) * 45 + 5
    result, took_s = tune(Machine(5.0), "45s")
    assert settings_tried(result)
    assert took_s <= 45 + 5


def test_without_time_for_a_second_run_it_ends_at_once(tune):
    machine = Machine(40.0, {"tf32": 1.5})
    words = "takes 39 s, so --budget 45s has no room .* --budget 7m has room for one setting"
    with pytest.raises(UsageError, match=words):
        tune(machine, "45s")
    assert len(machine.began) == 1


def test_what_there_is_no_time_to_prove_is_not_claimed(tune):
    """A rehearsal that finds harm may leave no time to prove the rest."""
    machine = Machine(20.0, {"tf32": 1.5, "channels_last": 1.3}, harmful={"tf32"})
    result, took_s = tune(machine, "7m", only=frozenset({"tf32", "channels_last"}))
    assert result.verdict is Verdict.INCONCLUSIVE
    assert (result.settings, result.speedup, result.plan) == ({"channels_last": True}, None, None)
    assert result.needed_s == pytest.approx(6 * 20, rel=0.2)
    assert took_s <= 420
    assert "the budget left no room to prove channels_last=True" in result.notes
    assert wording.reason(result).endswith("in a single run, but was not proven in the budget")
    assert wording.advice(result).endswith("has room for the proof.")


def test_a_rehearsal_that_hangs_takes_no_proof_away(tune):
    machine = Machine(20.0, {"tf32": 1.5})
    machine.stalls_s = 80.0
    result, _ = tune(machine, "8m", only=frozenset({"tf32"}))
    assert result.speedup.ci99_low > 1


def phases(result):
    """The phases in which settings were run, each named once for a row of them."""
    tuned = (trial.phase for trial in result.trials if trial.settings)
    return [phase for phase, _ in itertools.groupby(tuned)]


def searched(result):
    return [trial.settings for trial in result.trials if trial.phase == "search"]


def test_without_what_does_harm_the_search_goes_on(tune):
    machine = Machine(5.0, {"tf32": 1.5, "channels_last": 1.3}, harmful={"tf32"})
    machine.masked = {"channels_last": "tf32"}
    result, _ = tune(machine, "15m", only=frozenset({"tf32", "channels_last"}))
    assert (result.verdict, result.settings) == (Verdict.FASTER, {"channels_last": True})
    assert [each.knob for each in result.dropped] == ["tf32"]
    # The third unchanged one is nudged: whether rounding alone moves results so far.
    assert machine.lives == [[], [], ["tf32"], [], ["channels_last"]]
    assert searched(result).count({"tf32": True}) == 1
    assert phases(result) == ["search", "proof"]


def test_what_is_left_is_tried_before_noise_is_proven(tune):
    result, took_s = tune(Machine(18.0), "8m")
    assert (result.verdict, phases(result)) == (Verdict.INCONCLUSIVE, ["search", "proof"])
    assert 0.8 * 480 < took_s <= 1.1 * 480
    names = [frozenset(settings.items()) for settings in searched(result)]
    assert len(names) == len(set(names))
    assert "knob was not tried" in wording.reason(result)
    assert result.speedup is not None


def test_what_is_found_when_no_proof_has_room_is_named_and_not_claimed(tune):
    result, took_s = tune(Machine(5.0, {"compile": 1.3}), "2m")
    assert phases(result) == ["search"]
    assert (result.verdict, result.speedup, result.plan) == (Verdict.INCONCLUSIVE, None, None)
    seen = "compile=default, looked 1.30x faster in a single run, but was not proven in the budget"
    assert wording.reason(result).endswith(seen)
    assert "has room for its proof alone" in wording.advice(result)
    assert took_s <= 1.1 * 120
    again, _ = tune(Machine(5.0, {"compile": 1.3}), named(wording.advice(result)), study="second")
    assert (again.verdict, again.settings) == (Verdict.FASTER, {"compile": "default"})


def named(text):
    """The budget that a sentence names."""
    return re.search(r"--budget (\w+)", text)[1]


@pytest.mark.parametrize(
    ("limit", "run_s", "machine"),
    [
        ("5m", 12.0, {"gains": GAINS}),
        pytest.param("8m", 18.0, {}, marks=pytest.mark.slow),
        ("10m", 20.0, {"gains": {"tf32": 1.3}, "spread": 0.03}),
        pytest.param("8m", 24.0, {"gains": GAINS, "spread": 0.05}, marks=pytest.mark.slow),
        pytest.param("2m", 5.0, {"gains": GAINS, "spread": 0.03}, marks=pytest.mark.slow),
    ],
)
def test_the_budget_that_is_said_to_have_room_for_what_was_left_out_has_it(
    tune, limit, run_s, machine
):
    short, _ = tune(Machine(run_s, **machine), limit)
    (why,) = {why for why in short.untried.values() if "no room" in why}
    assert BudgetLimit.parse(named(why)).seconds > BudgetLimit.parse(limit).seconds
    enough, _ = tune(Machine(run_s, **machine), named(why), study="second")
    assert not [why for why in enough.untried.values() if "no room" in why]
    assert enough.speedup is not None


LATER = frozenset({"tf32", "compile_max_autotune"})
ENOUGH = "1095s"
"""In this only the first of them has room beside all that a first proof may take."""


def test_what_had_no_room_is_tried_on_top_of_what_is_proven(tune):
    machine = Machine(5.0, {"tf32": 1.3, "compile_max_autotune": 1.2}, life_trials=1.0)
    result, took_s = tune(machine, ENOUGH, only=LATER)
    assert (result.verdict, set(result.settings), result.untried) == (Verdict.FASTER, LATER, {})
    assert result.speedup.ci99_low > 1.3
    assert result.rehearsal.settings == result.settings
    assert [set(names) for names in machine.lives] == [set(), set(), {"tf32"}, LATER]
    assert took_s <= 1200


@pytest.mark.parametrize(
    ("machine", "said"),
    [
        ({"gains": {"tf32": 1.3, "compile_max_autotune": 1.01}, "spread": 0.01}, "looked better"),
        ({"gains": GAINS, "crashing": {"compile_max_autotune"}}, ""),
        (
            {
                "gains": {"tf32": 1.3, "compile_max_autotune": 1.2},
                "harmful": {"compile_max_autotune"},
            },
            "compile_max_autotune is left out",
        ),
    ],
)
def test_what_is_proven_is_kept_where_nothing_better_is_shown(tune, machine, said):
    result, took_s = tune(Machine(4.0, life_trials=1.0, **machine), ENOUGH, only=LATER)
    assert (result.verdict, result.settings) == (Verdict.FASTER, {"tf32": True})
    assert result.rehearsal.settings == {"tf32": True}
    assert result.speedup.ci99_low < 1.3 < result.speedup.ci99_high
    assert "compile_max_autotune" in {n for t in result.trials for n in t.settings}
    assert any(said in note for note in result.notes)
    assert took_s <= 1200


def test_what_is_proven_is_kept_where_the_rest_is_interrupted(tune, monkeypatch):
    machine, plain = (
        Machine(5.0, {"tf32": 1.3, "compile_max_autotune": 1.2}, life_trials=1.0),
        Machine.run,
    )

    def run(self, request, read_energy_j, load):
        if request.specification.applications[-1:] and len(request.specification.applications) > 1:
            raise Interrupted("interrupted")
        return plain(self, request, read_energy_j, load)

    monkeypatch.setattr(Machine, "run", run)
    result, _ = tune(machine, ENOUGH, only=LATER)
    assert (result.verdict, result.settings) == (Verdict.FASTER, {"tf32": True})
    assert (result.interrupted, bool(result.plan)) == ("interrupted", True)
    assert result.untried == {"compile_max_autotune": "the study ended early"}


@pytest.mark.parametrize(("harmful", "verdict"), [
    (False, Verdict.FASTER_UNVERIFIED), (True, Verdict.INCONCLUSIVE),
])  # fmt: skip
def test_what_a_proof_has_shown_is_kept_where_its_rehearsal_is_interrupted(
    tune, monkeypatch, harmful, verdict
):
    """But not what a rehearsal has found a problem with, before it was known which knob has it."""
    gains = {"tf32": 1.3, "channels_last": 1.2}
    machine, lives = Machine(5.0, gains, harmful=set(gains) if harmful else set()), []
    plain = machine.live

    def live(*args, **options):
        lives.append(plain(*args, **options))
        if len(lives) == (5 if harmful else 2):
            raise Interrupted("interrupted")
        return lives[-1]

    monkeypatch.setattr(machine, "live", live)
    result, _ = tune(machine, "20m", only=frozenset(gains))
    assert result.interrupted == "interrupted"
    assert (result.verdict, bool(result.plan)) == (verdict, False)
    assert (result.speedup is None) == harmful and result.rehearsal is None


def test_where_all_was_tried_in_vain_the_rest_of_the_budget_is_kept(tune):
    result, took_s = tune(Machine(5.0), "15m", only=frozenset({"tf32", "channels_last"}))
    assert (result.verdict, result.untried) == (Verdict.NO_GAIN, {})
    assert phases(result) == ["search", "proof"]
    assert took_s < 0.3 * 900


def test_what_is_found_while_a_proof_has_room_is_proven(tune):
    """The last search keeps nothing back, but stops where it found something."""
    result, took_s = tune(Machine(24.0, {"tf32": 1.5}, spread=0.03), "8m")
    assert result.verdict in (Verdict.FASTER, Verdict.FASTER_UNVERIFIED)
    assert result.untried
    assert took_s <= 1.1 * 480


def test_each_further_proof_of_a_study_is_surer(tune, monkeypatch):
    """What the search takes for a gain of 3 % is none, twice."""
    asked = []
    plain = proving.prove_point

    def surely(evaluator, point, objective, seed, earlier, *more):
        asked.append((set(point), earlier))
        machine.has_gains = False
        proof = plain(evaluator, point, objective, seed, earlier, *more)
        machine.has_gains = True
        return proof

    monkeypatch.setattr(proving, "prove_point", surely)
    machine = Machine(5.0, {"tf32": 1.03, "channels_last": 1.03})
    machine.masked = {"channels_last": "tf32"}
    tune(machine, "15m", only=frozenset({"tf32", "channels_last"}))
    assert asked == [({"tf32"}, 0), ({"channels_last"}, 1)]
