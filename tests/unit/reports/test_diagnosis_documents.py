"""A diagnosis as JSON, Markdown, SARIF and on a profile's page: valid, complete, documented."""

import json
import re
from dataclasses import replace

import pytest

from gpuadvisor.domain.finding import Place, Scope, ScopeKind
from gpuadvisor.domain.severity import Severity
from gpuadvisor.reports import strict_json
from gpuadvisor.reports.diagnosis import finding as finding_wording
from gpuadvisor.reports.diagnosis.document import diagnosis_markdown
from gpuadvisor.reports.diagnosis.sarif import diagnosis_sarif, place_of
from gpuadvisor.reports.json_documents import DIAGNOSIS_VERSION, diagnosis_json, profile_json
from gpuadvisor.reports.profile.document import profile_html, profile_markdown
from tests.diagnoses import (
    DIAGNOSIS,
    INPUT,
    KERNEL,
    NOTHING,
    diagnosis_report,
    of_telemetry,
)
from tests.json_page import documented, leaves
from tests.pages import Page
from tests.profile_reports import HOSTILE, PROFILES, report, whole
from tests.rules.cases.straggler_rank import always, ranks

FIELDS = documented("A diagnosis as JSON")
ROW_OF_ITS_OWN = re.compile(r"findings\[\]\.(evidence\[\]|\w+_pct|place)\."
                            r"|not_measured\[\]\.|failed\[\]\.|together_pct\."
                            r"|account\[\]\.|cpu_samples\.")  # fmt: skip
"""Fields of objects that are explained in the row of their object."""


def of(diagnosis=DIAGNOSIS, **more):
    return diagnosis_report(report(whole()), diagnosis, **more)


def of_ranks(**more):
    """A diagnosis of a run of which all ranks are known."""
    together = ranks(always).together
    return diagnosis_report(replace(report(whole()), ranks=together), DIAGNOSIS, **more)


def hostile():
    odd = replace(
        KERNEL, rule=HOSTILE, scope=Scope(ScopeKind.KERNEL, HOSTILE), summary=HOSTILE,
        advice=HOSTILE, method=HOSTILE, source=f"{HOSTILE}:7", knobs=(HOSTILE,),
    )  # fmt: skip
    hidden = replace(odd, hidden_by=HOSTILE)
    return replace(DIAGNOSIS, findings=(odd, hidden), failed=((HOSTILE, HOSTILE),))


def sarif(diagnosed):
    return json.loads(diagnosis_sarif(diagnosed), parse_constant=pytest.fail)


# -- JSON --------------------------------------------------------------------------------------


def test_the_page_documents_every_field_and_no_other():
    counted = diagnosis_report(report(PROFILES["counted"]()), NOTHING)
    documents = of_ranks(notes=("x",), script=("train.py",)), counted
    found = {path for each in documents for path, _ in leaves(diagnosis_json(each))}
    assert {path for path in found if not ROW_OF_ITS_OWN.match(path)} == FIELDS.keys()


def test_every_field_has_type_meaning_and_null():
    assert [field for field, cells in FIELDS.items() if not all(cells) or len(cells) != 3] == []


@pytest.mark.parametrize(
    "diagnosed", [of(), of_ranks(), of(NOTHING), of(hostile()), of_telemetry()]
)
def test_only_what_the_page_says_is_null(diagnosed):
    document = json.loads(strict_json.text(diagnosis_json(diagnosed)), parse_constant=pytest.fail)
    never = {field for field, cells in FIELDS.items() if cells[2] == "never"}
    assert {path for path, each in leaves(document) if each is None} & never == set()


def test_all_ranks_stand_on_the_page_and_in_markdown():
    diagnosed = of_ranks()
    for shown in (diagnosis_markdown(diagnosed), profile_markdown(diagnosed.profile)):
        assert "4 ranks, which meet in 20 collectives. Rank 2 comes last to 20 of 20" in shown
        assert re.search(r"rank 2 .* 20 of 20 .* 250 µs", shown)


def test_the_figures():
    document = diagnosis_json(of())
    assert (document["version"], document["source"], document["run_ms"]) == (
        DIAGNOSIS_VERSION,
        "kineto",
        4.0,
    )
    assert document["together_pct"] == {"low": 37.0, "high": 65.0}
    first, *_, last = document["findings"]
    assert (first["rule"], first["severity"], first["hidden_by"]) == (
        "input_bound", "critical", None,
    )  # fmt: skip
    assert first["improvement_pct"] == {"low": 32.0, "high": 61.2}
    assert first["evidence"][0] == {
        "metric": "gpu_idle_waiting_for_data", "value": 61.2, "unit": "%", "threshold": 2.0,
    }  # fmt: skip
    assert last["hidden_by"] == "input_bound"
    assert document["not_measured"][0]["how"] == "gpuadvisor profile --ncu SCRIPT"


def test_the_same_stands_in_the_profiles_own():
    same = ("run_ms", "together_pct", "findings", "not_measured", "failed")
    document = diagnosis_json(of())
    assert profile_json(report(whole()))["diagnosis"] == {name: document[name] for name in same}


# -- Markdown ----------------------------------------------------------------------------------


def test_markdown_begins_with_what_costs_most():
    text = diagnosis_markdown(of())
    lines = text.splitlines()
    assert lines[:3] == [
        "### `train`", "", "4 steps in 4.00 ms on NVIDIA H100 80GB HBM3, recorded with torch 2.8.",
    ]  # fmt: skip
    assert "#### 1. The GPU is idle for 61% of the run" in text
    assert (
        "| Try it | `gpuadvisor tune SCRIPT --only dataloader_workers` (then pin\\_memory" in text
    )
    assert "<summary>Symptoms of other findings: 1</summary>" in text
    assert "| no hardware counters of kernels | `tail_effect, divergence` | `gpuadvisor" in text


def test_a_profiles_markdown_and_page_have_it_at_the_top():
    text = profile_markdown(report(whole()))
    assert text.index("#### What to fix first") < text.index("#### Kernels")
    said = Page(profile_html(report(whole()))).text
    assert said.index("What to fix first") < said.index("Where the time goes")
    assert "critical The GPU is idle for 61% of the run" in said


def test_without_a_diagnosis_there_is_no_such_section():
    alone = replace(report(whole()), diagnosis=None)
    assert "What to fix first" not in profile_markdown(alone)
    assert "What to fix first" not in Page(profile_html(alone)).text
    assert profile_json(alone)["diagnosis"] is None


def test_no_name_gets_out_of_its_place():
    odd = replace(report(whole()), diagnosis=hostile())
    read = Page(profile_html(odd))
    assert "script" not in read.tags
    for text in (diagnosis_markdown(of(hostile())), profile_markdown(odd)):
        assert "<script>" not in re.sub(r"`+[^`]*`+", "", text)
        assert "\x1b" not in text


# -- SARIF -------------------------------------------------------------------------------------
# Required properties, from https://json.schemastore.org/sarif-2.1.0.json: sarifLog version, runs;
# run tool; tool driver; toolComponent name; reportingDescriptor id; result message; message text
# (or id); artifactLocation's uri is a uri-reference; region.startLine is at least 1.


@pytest.mark.parametrize("diagnosis", [DIAGNOSIS, NOTHING, hostile()], ids=["one", "none", "odd"])
def test_sarif_has_what_its_schema_requires(diagnosis):
    document = sarif(of(diagnosis))
    assert document["version"] == "2.1.0"
    (run,) = document["runs"]
    driver = run["tool"]["driver"]
    assert driver["name"] == "gpuadvisor"
    assert all(each["id"] and each["help"]["text"] for each in driver["rules"])
    for result in run["results"]:
        assert result["message"]["text"]
        assert result["level"] in {"none", "note", "warning", "error"}
        assert driver["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
        (location,) = (each["physicalLocation"] for each in result["locations"])
        assert re.fullmatch(r"[A-Za-z0-9%/._~:@!$&'()*+,;=?#-]+",
                            location["artifactLocation"]["uri"])  # fmt: skip
        assert location["region"]["startLine"] >= 1


def test_only_what_has_a_source_line_and_is_no_symptom_is_in_it():
    (run,) = sarif(of())["runs"]
    (result,) = run["results"]
    assert result["ruleId"] == "input_bound"
    assert result["level"] == "error"
    assert result["locations"][0]["physicalLocation"] == {
        "artifactLocation": {"uri": "train.py"}, "region": {"startLine": 42},
    }  # fmt: skip
    assert "Worth 32 to at most 61 % of the run" in result["message"]["text"]
    (rule,) = run["tool"]["driver"]["rules"]
    assert rule["help"]["markdown"].startswith("# input_bound: the GPU waits")


@pytest.mark.parametrize("severity", sorted(set(Severity) - {Severity.ERROR}))
def test_every_severity_has_a_level(severity):
    found = replace(DIAGNOSIS, findings=(replace(INPUT, severity=severity),))
    assert len(sarif(of(found))["runs"][0]["results"]) == 1


def test_files_are_named_from_the_top_of_the_repository_with_function_and_module():
    place = Place(function="forward", module="Net_0.Linear_1")
    found = replace(DIAGNOSIS, findings=(replace(INPUT, source="net.py:7", place=place),))
    document = json.loads(diagnosis_sarif(of(found), {"net.py": "src/net.py"}.get))
    (location,) = document["runs"][0]["results"][0]["locations"]
    assert location["physicalLocation"] == {
        "artifactLocation": {"uri": "src/net.py"}, "region": {"startLine": 7},
    }  # fmt: skip
    assert location["logicalLocations"] == [
        {"fullyQualifiedName": "forward", "kind": "function"},
        {"fullyQualifiedName": "Net_0.Linear_1", "kind": "module"},
    ]


def test_where_says_how_much_of_it():
    place = Place(0.4, "forward", "Net_0", 0.75, "head", "aten::mm", "[[2, 3], [3, 4], []]", 0.3)
    found = replace(INPUT, source="net.py:7", place=place)
    assert finding_wording.where(found) == "the run, net.py:7 in forward (40.0 % of it)"
    assert finding_wording.comes_from(found) == (
        "module Net_0 (75.0 % of it); range head; aten::mm of 2x3, 3x4 (30.0 % of it)"
    )
    small = replace(place, operator_share=0.04, module="", region="")
    assert finding_wording.comes_from(replace(found, place=small)) == ""


@pytest.mark.parametrize(
    ("source", "place", "uri"),
    [
        ("train.py:12", ("train.py", 12), "train.py"),
        ("/home/me/my code/train.py:3", ("/home/me/my code/train.py", 3),
         "file:///home/me/my%20code/train.py"),
        ("a b/c#d.py:1", ("a b/c#d.py", 1), "a%20b/c%23d.py"),
        ("train.py:0", ("train.py", 1), "train.py"),
        ("train.py", None, None),
        (None, None, None),
    ],
)  # fmt: skip
def test_places(source, place, uri):
    found = replace(INPUT, source=source)
    assert place_of(found) == place
    results = sarif(of(replace(DIAGNOSIS, findings=(found,))))["runs"][0]["results"]
    locations = [each["locations"][0]["physicalLocation"] for each in results]
    assert [each["artifactLocation"]["uri"] for each in locations] == ([uri] if uri else [])
