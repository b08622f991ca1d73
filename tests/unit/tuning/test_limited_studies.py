"""Studies of scripts whose loader keeps up with no faster computing, on a clock of their own."""

from __future__ import annotations

import re

import pytest

from gpuadvisor.domain.study import Verdict
from tests.benchmark_files import loaded
from tests.study_simulation import studies


@pytest.fixture
def simulated():
    return loaded("loader_limits")


@pytest.fixture
def tune(tmp_path):
    with studies(tmp_path) as tuned:
        yield tuned


@pytest.mark.parametrize("seconds", [510.0, 600.0])
@pytest.mark.parametrize("seed", ["a", "b"])
def test_the_time_that_compiling_would_take_goes_into_the_rehearsal(simulated, tune, seconds, seed):
    machine = simulated.ImageNet(seed)
    result, said = tune(machine, seconds)
    assert result.verdict is Verdict.FASTER
    assert result.settings.keys() >= {"dataloader_workers", "channels_last", "bf16_autocast"}
    assert machine.compiled_s == 0
    assert machine.gain(result.settings) > 0.94 * simulated.best_gain(machine)
    phases = [trial.phase for trial in result.trials]
    assert phases[: phases.index("proof")].count("search") == 1  # which confirmed the limit
    (note,) = [each for each in result.notes if "is the limit now" in each]
    assert "compile" in note and note.endswith("are left for last")
    assert not [each for each in said if "compile=" in each and "want of budget" in each]
    assert re.search(r"[\d.]+x at most", result.untried["compile"])


def test_what_the_gpu_does_while_the_script_waits_decides_what_more_workers_promise(
    simulated, tune
):
    """That a step waits for 64 % of it says nothing of how long its computing takes."""
    shares = []
    for tells_idle in (False, True):
        machine = simulated.ImageNet("a")
        machine.tells_idle = tells_idle
        result, _ = tune(machine, 510.0)
        shares.append(machine.gain(result.settings) / simulated.best_gain(machine))
    assert shares[0] < 0.7 and shares[1] > 0.9


def test_a_loader_that_faster_computing_waits_for_is_timed_before_the_first_trial(simulated, tune):
    machine = simulated.Fed("a")
    result, _ = tune(machine, 900.0)
    first = next(trial for trial in result.trials if trial.phase == "search")
    assert first.settings.keys() >= {"dataloader_workers", "channels_last", "bf16_autocast"}
    assert result.verdict is Verdict.FASTER
    assert machine.gain(result.settings) > 0.94 * simulated.best_gain(machine)


def test_the_first_trial_has_the_workers_that_faster_computing_needs(simulated, tune):
    """However much blocks of the loader differ; with one trial and a proof, that decides it all."""
    firsts = []
    for seed in "abcde":
        result, _ = tune(simulated.Restless(seed), 420.0)
        firsts.append(next(trial.settings for trial in result.trials if trial.phase == "search"))
    assert [each["dataloader_workers"] for each in firsts].count(15) >= 4


def test_computing_is_not_asked_a_larger_budget_for_where_the_loader_is_the_limit(simulated, tune):
    result, said = tune(simulated.Inference("a"), 510.0)
    assert (result.verdict, result.settings) == (Verdict.FASTER, {"dataloader_workers": 15})
    (told,) = [each for each in said if each.startswith("not tried: ")]
    assert "compile" in told and "the loader is the limit" in told
    wanting = [each for each in said if "want of budget" in each]
    assert not any(name in each for each in wanting for name in ("compile", "bf16", "tf32"))


def test_where_the_first_trial_shows_no_limit_what_was_left_is_screened(simulated, tune):
    class Slowed(simulated.Crowded):
        """Computing takes 1.7 times as long beside busy workers, whose batches come evenly."""

        beside, uneven = 1.7, 0.02

    result, _ = tune(Slowed("a"), 900.0)
    assert any("is the limit now" in each for each in result.notes)
    assert result.verdict is Verdict.FASTER
    assert "compile" in result.settings


def test_what_is_said_to_be_the_most_holds_where_the_loader_is_as_fast_alone(simulated):
    """Machines by chance: how far their loaders keep up, how uneven they are, what runs differ by,
    and how much slower it computes beside them. Where it is slower alone, the words name that."""
    count = simulated.claims((0, 20))
    assert count["as fast alone", "claims"] + count["faster alone", "claims"] >= 3
    assert count["as fast alone", "false"] == count["faster alone", "false"] == 0
