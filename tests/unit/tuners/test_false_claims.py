"""Studies of nothing find nothing, and real gains are found: `benchmarks/false_claims.py`."""

import importlib.util
from pathlib import Path

import pytest

from tests.simulation import recorded_runs

FILE = Path(__file__).parents[3] / "benchmarks" / "false_claims.py"
STUDIES = 300
MOST = 6
"""Most claims in 300 studies at 1 in 200 that all but one of 1,000 tests would see by chance."""


@pytest.fixture(scope="module")
def rates():
    spec = importlib.util.spec_from_file_location("false_claims", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


NOISES = (
    "recorded runs",
    "gaussian, 0.5 % between runs",
    "drift, 5 % over 40 runs",
    "bimodal, 30 % of runs 5 % slower",
    "throttling, 5 % for some runs",
    "heavy tails (t, 2 degrees)",
)


def test_the_recording_is_of_many_runs():
    assert len(recorded_runs()) >= 40


@pytest.mark.parametrize("noise", NOISES)
def test_a_proof_of_nothing_claims_nothing(rates, noise):
    assert rates.proof_claims(rates.NOISES[noise], 0.0, STUDIES) <= MOST / STUDIES


@pytest.mark.parametrize(
    "noise",
    ["recorded runs", pytest.param("gaussian, 0.5 % between runs", marks=pytest.mark.slow)],
)
def test_a_study_of_placebos_claims_nothing(rates, noise):
    assert rates.search_claims(rates.NOISES[noise], STUDIES) <= MOST / STUDIES


def test_a_true_gain_of_three_percent_is_proven(rates):
    quiet = rates.NOISES["gaussian, 0.5 % between runs"]
    assert rates.proof_claims(quiet, 0.03, 100) >= 0.98


def test_drift_costs_no_power(rates):
    drift = rates.NOISES["drift, 5 % over 40 runs"]
    assert rates.proof_claims(drift, 0.03, 100) >= 0.98
