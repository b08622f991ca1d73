"""What the rules find in a run."""

import pytest

from gpuadvisor.domain.knobs import LoaderFacts, ScriptFacts
from gpuadvisor.domain.measurement import Window
from gpuadvisor.rules import diagnose
from gpuadvisor.rules.input_bound import LOADER_KNOBS
from gpuadvisor.tuners.knobs import load_knobs
from tests.simulation import measurement


def run(share, workers=2, loaders=1):
    loader = LoaderFacts(32, workers, False, False, None)
    return measurement(
        [10.0] * 8,
        windows=(Window(100, 1.0, data_wait_s=share),),
        facts=ScriptFacts(loaders=(loader,) * loaders),
    )


@pytest.mark.parametrize(("share", "found"), [(0.0, 0), (0.09, 0), (0.1, 1), (0.8, 1)])
def test_waiting_for_batches(share, found):
    assert len(diagnose(run(share))) == found


def test_the_finding_says_how_much_and_what_to_try():
    (finding,) = diagnose(run(0.25, workers=1))
    assert finding.share == 0.25
    assert finding.sentence == (
        "25% of the time goes into waiting for batches from a DataLoader with 1 worker"
    )
    assert finding.knobs == LOADER_KNOBS


def test_without_a_loader_nothing_is_found():
    assert diagnose(run(0.5, loaders=0)) == ()


def test_rules_name_knobs_that_exist():
    assert set(LOADER_KNOBS) <= load_knobs().keys()
