"""Studies of nothing find nothing, and real gains are found: `benchmarks/false_claims.py`."""

import random
from functools import partial
from itertools import cycle

import pytest

from gpuadvisor.tuners import proof, turn_order
from tests import simulation
from tests.benchmark_files import loaded
from tests.simulation import recorded_runs

STUDIES = 150
MOST = 4
"""Most claims in 150 studies at 1 in 200 that all but one of 1,000 tests would see by chance."""


@pytest.fixture(scope="module")
def rates():
    return loaded("false_claims")


NOISES = (
    "recorded runs",
    pytest.param("gaussian, 0.5 % between runs", marks=pytest.mark.slow),
    "drift, 5 % over 40 runs",
    "bimodal, 30 % of runs 5 % slower",
    pytest.param("throttling, 5 % for some runs", marks=pytest.mark.slow),
    "heavy tails (t, 2 degrees)",
)


def test_the_recording_is_of_many_runs():
    assert len(recorded_runs()) >= 40


@pytest.mark.parametrize("noise", NOISES)
def test_a_proof_of_nothing_claims_nothing(rates, noise):
    found = rates.proofs(rates.NOISES[noise], 0.0, STUDIES, pairs=16)
    assert found.faster <= MOST


@pytest.mark.parametrize(
    "noise",
    ["recorded runs", pytest.param("gaussian, 0.5 % between runs", marks=pytest.mark.slow)],
)
def test_a_study_of_placebos_claims_nothing(rates, noise):
    assert rates.placebos(rates.NOISES[noise], 30).faster <= 2


@pytest.mark.parametrize("recognised", [0.0, pytest.param(0.8, marks=pytest.mark.slow)])
def test_beside_a_job_that_comes_and_goes_nothing_is_claimed(rates, recognised):
    """Periods from 4 s to 5 min, in continuous time, with another start on each side."""

    def any_period(generator):
        period_s = generator.choice(rates.PERIODS_S)
        return rates.neighbour(generator, period_s, recognised)

    assert rates.proofs(any_period, 0.0, 150, pairs=24).faster <= 4


def of_four_runs(generator):
    """A job that slows down two of our runs by a fifth and rests for two: ABBA falls into step."""
    phase = generator.randrange(4)
    for place, windows in enumerate(simulation.gaussian(generator)):
        slower = 1.2 if (place + phase) % 4 < 2 else 1.0
        yield [slower * window for window in windows]


def test_random_order_keeps_a_job_in_step_with_the_pairs_from_a_claim(rates, monkeypatch):
    sound = rates.proofs(of_four_runs, 0.0, STUDIES, pairs=16)
    assert sound.faster <= MOST
    monkeypatch.setattr(proof, "orders", lambda seed: cycle([True, False]))
    assert rates.proofs(of_four_runs, 0.0, 100, pairs=16).faster >= 10


@pytest.mark.slow
def test_without_delays_a_longer_start_beside_a_short_period_passes_for_a_gain(rates, monkeypatch):
    beside = partial(rates.neighbour, period_s=6)
    monkeypatch.setattr(turn_order.Delay, "next_s", lambda self, trials: 0.0)
    assert rates.proofs(beside, 0.0, 150).faster >= 2


def test_five_percent_are_proven_at_a_spread_of_two_within_sixteen_pairs(rates):
    noise = partial(simulation.gaussian, between=0.02)
    assert rates.proofs(noise, 0.05, 50, pairs=16).claims >= 0.9


def test_a_huge_gain_on_a_quiet_machine_takes_four_pairs(rates):
    found = rates.proofs(simulation.gaussian, 2.0, 50, pairs=16)
    assert found.claims == 1
    assert found.pairs < 4.2


def test_where_there_is_none_that_is_shown(rates):
    found = rates.proofs(simulation.gaussian, 0.0, 50, pairs=16)
    assert found.no_gain >= 49


def test_a_true_gain_of_three_percent_is_proven(rates):
    quiet = rates.NOISES["gaussian, 0.5 % between runs"]
    assert rates.proofs(quiet, 0.03, 50, pairs=16).claims >= 0.98


def test_drift_costs_no_power(rates):
    drift = rates.NOISES["drift, 5 % over 40 runs"]
    assert rates.proofs(drift, 0.03, 50, pairs=16).claims >= 0.98


def test_a_neighbour_is_simulated_in_continuous_time():
    made = simulation.Neighbour(random.Random(1), 10.0, 2.0, 0.5, 0.0, 5.0, between=0.0)
    made.pause(-made._now_s + 2.5)
    factors = made.run({})
    assert factors == pytest.approx([2.0] * 4 + [1.0] * 4)
