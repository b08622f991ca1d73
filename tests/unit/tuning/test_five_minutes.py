"""What five minutes are spent on where a run takes a quarter of a minute, on a clock of its own."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpuadvisor.domain.knobs import Origin
from gpuadvisor.domain.rehearsal import Batch, Epoch, Loop, LoopKind
from gpuadvisor.domain.study import Aspect, TrialState, Verdict
from gpuadvisor.errors import Interrupted
from gpuadvisor.tuners.statistics import LOOKS
from tests.benchmark_files import loaded
from tests.study_simulation import studies
from tests.unit.tuning.test_ten_minutes import Deceiving


@pytest.fixture
def simulated():
    return loaded("five_minutes")


@pytest.fixture
def tune(tmp_path):
    with studies(tmp_path) as tuned:
        yield tuned


@pytest.mark.parametrize("kind", ["MinGPT", "NanoGPT", "Pets"])
def test_what_is_proven_is_rehearsed_in_what_is_left(simulated, tune, kind):
    """Before, lives were expected to take 1.75 runs each: two of these kinds never had any."""
    machines = [getattr(simulated, kind)(f"{seed}") for seed in range(2)]
    results = [tune(machine, 300.0)[0] for machine in machines]
    verdicts = [result.verdict for result in results]
    assert set(verdicts) <= {Verdict.FASTER, Verdict.FASTER_UNVERIFIED}
    assert Verdict.FASTER in verdicts
    for machine, result in zip(machines, results, strict=True):
        assert machine.gain(result.settings) > 0.9 * simulated.best_gain(machine)
        assert machine.now_s <= 300


def test_with_time_for_one_trial_what_the_screening_found_is_proven_without(simulated, tune):
    """Its trial took 20 s, and a first gain came after 217 s in the median."""
    machine = simulated.MinGPT("4")
    result, _ = tune(machine, 300.0)
    assert result.trials[3].phase == "proof"
    assert result.verdict is Verdict.FASTER and machine.proven_s < 215
    assert {each.origin for each in result.contributions} == {Origin.LIVE}
    longer, _ = tune(simulated.MinGPT("4"), 900.0)
    assert "search" in [trial.phase for trial in longer.trials]


def test_what_only_the_running_script_shows_is_not_called_faster(tune):
    """It has a proof without a trial before, which shows no gain."""
    result, _ = tune(Deceiving(), 300.0)
    assert result.trials[2].phase == "proof"
    assert result.verdict in (Verdict.INCONCLUSIVE, Verdict.NO_GAIN) and result.plan is None


def test_a_gain_that_is_clear_without_is_not_timed_in_turns_where_lives_need_the_time(
    simulated, tune
):
    machine = simulated.MinGPT("1")
    result, said = tune(machine, 270.0)
    assert any("a rehearsal has room so" in each for each in said)
    assert result.verdict is Verdict.FASTER and not result.speedup.in_turns
    machine = simulated.MinGPT("1")
    result, said = tune(machine, 900.0)
    assert not any("a rehearsal has room so" in each for each in said)


@pytest.mark.parametrize("seconds", [300.0, 600.0])
def test_a_clear_gain_of_what_compiles_is_proven_before_the_rest_is_screened(
    simulated, tune, seconds
):
    """In five minutes nothing else is screened; in ten the rest is, on top of it."""
    machine, phases = simulated.MinGPT("3"), []
    enter = machine.enter
    machine.enter = lambda name: (phases.append(name), enter(name))
    result, said = tune(machine, seconds)
    assert any("it is shown sooner so" in each for each in said)
    assert machine.proven_s is not None and machine.proven_s < 190.0
    assert result.verdict is Verdict.FASTER and "compile_cudagraphs" in result.settings
    later = phases[phases.index("proof") :]
    assert ("screening" in later) == (seconds == 600.0)
    assert machine.now_s <= seconds


@pytest.mark.parametrize(("runs", "verdict"), [(1, Verdict.NOT_TRIED), (3, Verdict.INCONCLUSIVE)])
def test_what_an_early_proof_had_measured_when_it_was_stopped_is_said(
    simulated, tune, runs, verdict
):
    """Before, "the study ended early, before a setting was measured"."""

    class Stopped(simulated.MinGPT):
        begun = 0

        def run(self, *asked):
            self.begun += self.phase == "proof"
            if self.begun > runs:
                raise Interrupted("interrupted")
            return super().run(*asked)

    result, _ = tune(Stopped("3"), 600.0)
    assert (result.verdict, result.interrupted) == (verdict, "interrupted")
    begun = "its proof had begun, and shown nothing yet"
    said = f"{begun}: compile_cudagraphs=reduce-overhead" in result.notes
    assert said is bool(result.settings) is (verdict is Verdict.INCONCLUSIVE)


@pytest.mark.parametrize("seed", ["0", "1", "2"])
def test_what_looks_best_is_proven_while_there_is_time_though_it_may_not_be_decided(
    simulated, tune, seed
):
    """Runs differ by 13 %: what else the search found could not be proven any more."""
    machine = simulated.Detection(seed)
    result, _ = tune(machine, 300.0)
    phases = [trial.phase for trial in result.trials]
    assert phases.count("search") <= 5 and phases.count("proof") >= 2 * LOOKS[0]
    assert result.speedup is not None and machine.now_s <= 1.1 * 300


def unpromising(simulated):
    """Return a script that reads eight batches a step, for which the loader alone promises nothing:
    workers are not proven before all else."""
    loaders = (replace(simulated.Inference.facts.loaders[0], batch_size=32),)
    machine = simulated.Inference("1")
    machine.facts = replace(machine.facts, loaders=loaders)
    return machine


def test_what_waits_for_its_workers_is_proven_before_all_else(simulated, tune):
    machine = simulated.Inference("1")
    result, _ = tune(machine, 300.0)
    assert result.verdict is Verdict.FASTER and result.settings["dataloader_workers"] == 15
    assert machine.proven_s < 200.0


def test_workers_are_tried_alone_where_what_stood_beside_them_cannot_be(simulated, tune):
    """Before, five knobs without them came next, and 6x was not proven in five minutes."""
    result, _ = tune(unpromising(simulated), 300.0)
    first, second, *_ = [trial for trial in result.trials if trial.phase == "search"]
    assert first.settings == {"dataloader_workers": 15, "batch_size": 32}
    assert str(first.state) == "unsupported" and second.settings == {"dataloader_workers": 15}
    assert result.verdict in (Verdict.FASTER, Verdict.FASTER_UNVERIFIED)
    assert result.speedup.ci99_low > 3


def test_why_the_loader_was_not_timed_is_told_once(simulated, tune):
    class Slow(simulated.Detection):
        start_s = 28.0

    _, said = tune(Slow("0"), 300.0)
    assert sum("the loader was not timed alone" in each for each in said) <= 1


def test_which_budget_has_room_for_lives_that_had_none_is_told(simulated, tune):
    """dlrm's and SSD300's: it was told that nothing was rehearsed, and not why."""
    result, said = tune(unpromising(simulated), 300.0)
    assert result.verdict is Verdict.FASTER_UNVERIFIED and result.rehearsal is None
    (told,) = [each for each in said if each.startswith("a rehearsal takes about")]
    assert "for which the budget had no room: `--budget" in told and told in result.notes
    seconds = 60.0 * int(told.rpartition("m`")[0].rpartition(" ")[2])
    result, _ = tune(unpromising(simulated), seconds)
    assert result.verdict is Verdict.FASTER


def test_a_script_without_an_end_is_rehearsed_to_a_step(simulated, tune):
    """Before, two lives of 28 s each took what was left, and a third had no room: nothing was known
    of the batches, though the script goes through its data again and again."""

    class Endless(simulated.MinGPT):
        def life(self, request, shortening):
            known = super().life(request, replace(shortening, epochs=2, later=4))
            count = 6 if shortening.ends_after else 40
            wall_s = known.wall_s if shortening.ends_after else request.limits.total_s
            self.now_s += wall_s - known.wall_s
            batches = tuple(Batch(((n,) * 64,), ((0.0, 1.0),)) for n in range(16))
            epochs = tuple(
                Epoch(0, n, batches, 1024, 16, 0.0, 0.0, 0.4, 16, True) for n in range(count)
            )
            return replace(known, state=TrialState.HUNG, epochs=epochs, wall_s=wall_s)

    result, said = tune(Endless("1"), 300.0)
    assert result.verdict is Verdict.FASTER_UNVERIFIED
    assert {Aspect.BATCHES, Aspect.SECOND_EPOCH} <= set(result.rehearsal.covered)
    assert "in which it made 640 steps" in result.rehearsal.not_covered[Aspect.END]
    assert any(each.startswith("not rehearsed enough: ") for each in said)
    assert not any(each.startswith("a rehearsal takes about") for each in said)


def test_a_start_that_is_not_earned_back_is_no_lack_of_a_rehearsal(simulated, tune):
    class Short(simulated.MinGPT):
        def life(self, request, shortening):
            known = super().life(request, shortening)
            loops = (Loop("train.py, line 9", LoopKind.STEPS, 100, 100, False),)
            return replace(known, loops=loops, startup_s=20.0 if known.applied else 10.0)

    result, said = tune(Short("1"), 300.0)
    assert result.verdict is Verdict.FASTER_UNVERIFIED
    (told,) = [each for each in said if "the whole run takes" in each]
    assert told.startswith("rehearsed, and doubted: ")
