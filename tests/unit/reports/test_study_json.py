"""The JSON of a study is valid, complete and documented."""

import json
import math
from dataclasses import replace

import pytest

from gpuadvisor.domain.knobs import Contribution
from gpuadvisor.domain.study import Aspect, Speedup, Trial, TrialState, Verdict
from gpuadvisor.reports import strict_json
from gpuadvisor.reports.json_studies import STUDY_VERSION, study_json
from tests.json_page import PAGE, documented, leaves
from tests.studies import (
    CPU,
    FROZEN,
    STUDIES,
    environment,
    measurement,
    rehearsal,
    study,
    study_without_gain,
    untried_study,
)

FIELDS = documented("A study as JSON")


def test_the_page_documents_every_field_and_no_other():
    screened = replace(study().expectations[1], screened_pct=(3.0, 2.5, 3.5))
    several = replace(study().expectations[0], cured_too=("a",), together_pct=(8.4, 20.0))
    expected = (*study().expectations, screened, several)
    failed = study(rehearsal=rehearsal(problems=(FROZEN,)), expectations=expected)
    assert dict(leaves(study_json(failed))).keys() == FIELDS.keys()


@pytest.mark.parametrize("verdict", Verdict)
def test_the_page_explains_every_verdict(verdict):
    assert f"\n| {verdict} | " in PAGE.read_text("utf-8")
    assert f"`{verdict}`" in FIELDS["verdict"][0]


@pytest.mark.parametrize("aspect", Aspect)
def test_the_page_names_every_aspect(aspect):
    assert f"`{aspect}`" in FIELDS["rehearsal.covered"][1]


def test_every_documented_field_has_type_meaning_and_null():
    assert [field for field, cells in FIELDS.items() if not all(cells)] == []
    assert {len(cells) for cells in FIELDS.values()} == {3}


def test_only_what_the_page_says_is_null():
    never = {field for field, cells in FIELDS.items() if cells[2] == "never"}
    for result in (*(make() for make in STUDIES.values()), bare()):
        nulls = {path for path, each in leaves(study_json(result)) if each is None}
        assert nulls & never == set()


def bare():
    """A study on a CPU that measured as little as possible."""
    machine = environment(
        replace(CPU, memory_bytes=None),
        torch=None,
        cuda=None,
        cudnn=None,
        driver=None,
        sm_clock_mhz=None,
        sm_clock_max_mhz=None,
        power_limit_w=None,
        git_commit=None,
        git_dirty=None,
    )
    empty = replace(measurement(), step_ms=(), windows=(), peak_memory_bytes=0)
    return study(
        environment=machine,
        baseline=empty,
        best=empty,
        started="",
        equivalence=None,
        trials=(Trial(0, {}, "baseline", TrialState.CRASHED, measurement=empty),),
    )


def strictly(text):
    def refuse(constant):
        raise AssertionError(constant)

    return json.loads(text, parse_constant=refuse)


def test_the_figures():
    document = strictly(strict_json.text(study_json(study())))
    assert document["schema_version"] == STUDY_VERSION == 4
    assert document["verdict"] == "faster"
    assert document["level"] == "balanced"
    assert document["speedup"] == {
        "ratio": 1.42,
        "ci99_low": 1.39,
        "ci99_high": 1.45,
        "pairs": 8,
        "in_turns": False,
    }
    assert document["best"]["knobs"]["num_workers"] == 8
    assert document["best"]["step_ms"]["p50"] == pytest.approx(55.4, rel=0.01)
    assert document["device"]["compute_capability"] == "9.0"
    assert document["equivalence"]["status"] == "equivalent"
    assert document["plan"] == "train.plan.toml"


def test_a_trial_has_its_mean_step_time_or_none():
    trials = study_json(study())["trials"]
    first = study().trials[0]
    assert trials[0]["step_ms"] == pytest.approx(first.measurement.mean_step_ms)
    failed = next(trial for trial in trials if trial["state"] == "out_of_memory")
    assert failed["step_ms"] is None
    assert failed["throughput"] is None
    assert failed["reason"].startswith("tried to allocate")


def test_a_study_without_gain():
    document = study_json(study_without_gain())
    assert document["speedup"]["ci99_high"] == 1.003
    assert document["plan"] is None
    assert document["rehearsal"] is None
    assert document["equivalence"]["status"] == "not_checked"


@pytest.mark.parametrize("found", STUDIES, ids=str)
def test_the_verdict_has_its_own_value(found):
    assert strictly(strict_json.text(study_json(STUDIES[found]())))["verdict"] == found.value


def test_an_interrupted_study_is_no_verdict_against_the_script():
    cut = study_without_gain(interrupted="Ctrl-C")
    assert study_json(cut)["verdict"] == "inconclusive"


def test_what_was_not_tried_has_its_reason():
    document = study_json(untried_study())
    assert document["untried"]["compile"] == "the budget had no room for it"
    assert document["needed_s"] == 420.0


def test_what_was_rehearsed():
    document = strictly(strict_json.text(study_json(study())))["rehearsal"]
    assert document["agrees"] is True
    assert document["not_covered"] == {
        "files": "what is in best.pt depends on random numbers: only sizes were compared"
    }
    assert document["forecast"]["saved_s"] == 11400.0
    failed = study_json(study(rehearsal=rehearsal(problems=(FROZEN,))))["rehearsal"]
    assert failed["agrees"] is False
    assert failed["problems"][0]["suspects"] == ["persistent_workers"]


def test_what_a_single_run_showed_is_not_measured():
    one = replace(study().expectations[0], measured_low_pct=None)
    (document,) = study_json(study(expectations=(one,)))["expectations"]
    assert document["measured_pct"] is None


def test_what_is_not_finite_is_null():
    result = study(
        speedup=Speedup(math.nan, -math.inf, math.inf, 1),
        contributions=(Contribution("tf32", math.nan, math.inf),),
        wall_s=math.nan,
    )
    document = strictly(strict_json.text(study_json(result)))
    assert document["speedup"] == {
        "ratio": None,
        "ci99_low": None,
        "ci99_high": None,
        "pairs": 1,
        "in_turns": False,
    }
    assert document["contributions"][0]["ratio"] is None
    assert document["wall_s"] is None


def test_what_was_not_measured_is_null():
    document = strictly(strict_json.text(study_json(bare())))
    assert document["baseline"]["peak_memory_bytes"] is None
    assert document["baseline"]["step_ms"] == {"p50": None, "p95": None, "mean": None}
    assert document["baseline"]["throughput"] is None
    assert document["baseline"]["energy_j_per_step"] is None


def test_names_that_are_no_text_are_still_valid():
    document = strictly(strict_json.text(study_json(study(script="caf\udce9.py"))))
    assert document["script"] == "caf\\udce9.py"
