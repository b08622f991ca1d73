"""What a script is told of its waiting for batches that was only timed, without a profile."""

import pytest

from gpuadvisor.domain.knobs import LoaderFacts, ScriptFacts
from gpuadvisor.domain.measurement import StepWindow
from gpuadvisor.rules.catalogue import input_bound
from gpuadvisor.rules.evidence import Evidence
from tests.simulation import measurement


def worth(waits, *, workers=0, iterable=False, idle=1.0, device="cuda"):
    """What waiting for that share of the time is said to be worth, in percent."""
    loader = LoaderFacts(32, workers, False, False, None, iterable)
    facts = ScriptFacts(loaders=(loader,), idle_while_waiting=idle, device=device)
    windows = (StepWindow(100, 1.0, data_wait_s=waits),)
    evidence = Evidence(measured=measurement([10.0] * 8, windows=windows, facts=facts))
    (found,) = input_bound.check(evidence)
    shares = (
        100 * each / found.saving.of_ns for each in (found.saving.low_ns, found.saving.high_ns)
    )
    return tuple(shares), found.method


def test_a_script_that_loads_itself_saves_what_four_workers_do_beside_a_slower_rest():
    """DLRM on an H200 waits for 98 % of its time: 91.3 % were saved with 15 workers."""
    (low, high), method = worth(0.98)
    assert (low, high) == pytest.approx((73.1, 98.0))
    assert "the share of each of 4 workers" in method


def test_little_waiting_is_within_what_workers_slow_down():
    assert worth(0.1)[0] == pytest.approx((0.0, 10.0))


@pytest.mark.parametrize(
    "otherwise",
    [{"workers": 4}, {"iterable": True}, {"idle": None}, {"device": "cpu"}],
    ids=lambda each: next(iter(each)),
)
def test_nothing_is_sure_of_other_loaders(otherwise):
    (low, high), _ = worth(0.98, **otherwise)
    assert (low, high) == pytest.approx((0.0, 98.0))
