"""What fresh processes said of what was screened, and how often they contradicted."""

import random
from dataclasses import replace

import pytest

from gpuadvisor.domain.knobs import Contribution
from gpuadvisor.domain.screening import Ratio, Screened, ScreenedAs
from gpuadvisor.domain.study import Speedup, Trial, TrialState
from gpuadvisor.tuning.outcome.hindsight import in_hindsight
from tests import studies
from tests.benchmark_files import loaded

BOTH = {"tf32": True, "compile": True}


@pytest.fixture(scope="module")
def table():
    return loaded("screening_refuted")


def screened(knob="tf32", state=ScreenedAs.KEPT):
    return Screened(knob, True, state, Ratio(1.1, 1.08, 1.12, 6))


def study(*values, settings=BOTH, trials=(), contributions=(), speedup=None):
    return replace(
        studies.study(),
        screened=values or (screened(),),
        settings=settings,
        trials=trials,
        contributions=contributions,
        speedup=speedup,
    )


def later(*values, **changes):
    return [each.later and str(each.later) for each in in_hindsight(study(*values, **changes))]


def runs(phase, *sides):
    """Return runs of these settings in turn, each with its gain, that differ by 0.2 %."""
    draw = random.Random(1)
    found = []
    for number in range(4 * len(sides)):
        settings, gain = sides[number % len(sides)]
        gain *= draw.gauss(1, 0.002)
        found.append(Trial(number, settings, phase, TrialState.COMPLETE, gain=gain))
    return tuple(found)


@pytest.mark.parametrize(
    ("low", "high", "of_gain", "of_worthless"),
    [
        (1.02, 1.1, "confirmed", "refuted"),
        (1.005, 1.03, "confirmed", None),
        (0.99, 1.03, None, None),
        (0.97, 1.005, "refuted", "confirmed"),
    ],
)
def test_an_interval_confirms_refutes_or_says_neither(low, high, of_gain, of_worthless):
    known = (Contribution("tf32", True, 1.01, low, high),)
    assert later(contributions=known) == [of_gain]
    assert later(screened(state=ScreenedAs.GAINS), contributions=known) == [of_gain]
    computing = replace(screened(), of_computing=True)  # a step that waits gains less
    assert later(computing, contributions=known) == [of_gain if of_gain != "refuted" else None]
    assert later(screened(state=ScreenedAs.WORTHLESS), contributions=known) == [of_worthless]
    assert later(screened(state=ScreenedAs.UNRESOLVED), contributions=known) == [None]


def test_what_an_ablation_took_out_is_refuted_by_its_runs():
    values = (screened("tf32"), screened("compile"))
    alone = {"compile": True}
    trials = runs("ablation", (BOTH, 1.5), (alone, 1.5), ({"tf32": True}, 1.0))
    assert later(*values, settings=alone, trials=trials) == ["refuted", "confirmed"]


def test_a_proof_of_one_knob_says_what_it_brings():
    trials = runs("proof", ({}, 1.0), ({"tf32": True}, 1.1))
    assert later(settings={"tf32": True}, trials=trials) == ["confirmed"]
    assert later(settings={"tf32": True}, trials=trials[:4]) == [None], "of two pairs"
    assert later(settings={"tf32": True}, trials=runs("search", ({}, 1), (BOTH, 1))) == [None]


def test_a_combination_that_brings_nothing_refutes_all_of_it():
    values = (screened("tf32"), screened("compile"), screened("other"))
    none = Speedup(0.99, 0.98, 1.005, 8)
    assert later(*values, speedup=none) == ["refuted", "refuted", None]


def test_shares_are_of_what_was_tested(table):
    values = (screened(), screened("compile"), screened("other", ScreenedAs.WORTHLESS))
    known = (
        Contribution("tf32", True, 1.1, 1.05, 1.2),
        Contribution("compile", True, 1.0, 0.99, 1.005),
    )
    result = study(*values, contributions=known)
    count = table.counted([replace(result, screened=in_hindsight(result))])
    assert table.share_refuted(count) == 0.5
    assert table.share_refuted(count, "worthless") is None
    assert table.row("train", count) == "| train | 1 | 1 | 0 | 0 | 0 | 1 |"
