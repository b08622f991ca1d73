"""The formats in which other programs get a gate's outcome: of any text, each is well formed."""

import json
import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from gpuadvisor.domain.explanation import Cause, CauseKind, Explanation
from gpuadvisor.domain.finding import Category, Finding, Scope
from gpuadvisor.domain.gate import (
    Difference,
    GateResult,
    GateRun,
    GateSide,
    GateVerdict,
    MetricRole,
)
from gpuadvisor.domain.severity import Severity
from gpuadvisor.domain.study import Trial, TrialState
from gpuadvisor.errors import RefusedError, ScriptError
from gpuadvisor.reports.gate.document import sentence
from gpuadvisor.reports.gate.formats import format_names, load_format
from gpuadvisor.reports.gate.outcome import outcome_of, outcome_of_error
from tests.json_page import documented, leaves
from tests.simulation import measurement

EXAMPLES = 25
"""A compromise with the time that the suite may take."""
SIDE = GateSide("main", "ab" * 20, ("python", "train.py"), "/repo")


def run(number, side, step_ms, reason=""):
    measured = measurement([step_ms] * 8, peak_memory_bytes=2**30)
    trial = Trial(number, {}, "proof", TrialState.COMPLETE, reason, measured)
    return GateRun(side, trial, 1755.0, f"pair {number}")


def difference(metric, verdict, title, unit, base, head):
    ratio = head[0] / base[0]
    ends = ratio, ratio - 0.01, ratio + 0.01, ratio
    return Difference(
        metric, verdict, *ends, 0.01, 0.03, title=title, unit=unit, base=base, head=head
    )


def result(verdict="fail", **more):
    shown = GateVerdict(verdict)
    found = GateResult(
        shown,
        "",
        SIDE,
        replace(SIDE, name="the work tree"),
        (
            difference("step_time", shown, "Step time", "ms", (100.0, 101.0), (105.0, 106.0)),
            difference(
                "peak_memory", GateVerdict.PASS, "Peak memory", "bytes", (2.0**30,), (2.0**30,)
            ),
        ),
        2,
        (run(1, "base", 100.0), run(1, "head", 105.0), run(2, "base", 101), run(2, "head", 106)),
        wall_s=12.0,
    )
    return replace(found, **more)


def written(format_, *outcomes):
    return load_format(format_).render(outcomes)


def explained(function="nms", source="pkg/bbox.py:535", call="aten::index", summary="It waits"):
    inside = Cause(CauseKind.CALL, call, 0.0, 3.0, 0.0, 4.0)
    cause = Cause(CauseKind.FUNCTION, function, 10.0, 14.0, 1.0, 1.0, source, (inside,))
    finding = Finding(
        "host_sync", Category.SYNC, Severity.WARNING, Scope(), summary, (), None, None, "",
        "Do not.", source=source,
    )  # fmt: skip
    return Explanation(5.0, 20.0, 24.0, (cause,), 4.0, 5.0, (finding,), 5, summary)


FAILED = outcome_of("train.py", result(), "examples/train.py")
OPEN = outcome_of("infer.py", result("inconclusive"))
PASSED = outcome_of("eval.py", result("pass"))
BROKEN = outcome_of("b", result(reason="it is broken", broken="head", differences=(), output="E"))
REFUSED = outcome_of_error("train.py", RefusedError("another process used the GPU (4711)"))
ERROR = outcome_of_error("train.py", ScriptError("it fails in both versions", "Traceback ..."))


def test_junit_has_a_suite_a_benchmark_and_a_case_a_metric():
    root = ElementTree.fromstring(written("junit", FAILED, OPEN, PASSED, BROKEN, REFUSED, ERROR))
    counts = {key: root.get(key) for key in ("tests", "failures", "errors")}
    assert counts == {"tests": "9", "failures": "2", "errors": "2"}
    kinds = [[child.tag for case in suite for child in case] for suite in root]
    assert kinds == [["failure"], ["skipped"], [], ["failure"], ["error"], ["error"]]
    assert [case.get("name") for case in root[0]] == ["Step time", "Peak memory"]
    assert "step time is +5.0%" in root[0][0][0].get("message")
    assert root[4][0][0].get("message") == "another process used the GPU (4711)"
    assert "Traceback ..." in root[5][0][0].text


@pytest.mark.parametrize(
    ("metric", "base", "head", "detail", "words"),
    [
        (
            "losses", (0.0, 0.0), (0.06302,), "more than 0.001 of their size",
            "losses of head and base differ by 0.06302 (more than 0.001 of their size), those of "
            "runs of the base alone by 0",
        ),
        (
            "losses", (1e-6,), (2e-6,), "",
            "losses of head and base differ by 2e-06 of their size, those of runs of the base "
            "alone by 1e-06",
        ),
        ("operators", (25.0,), (31.0,), "+6 aten::add", "ops: 31 instead of 25 (+6 aten::add)"),
        ("operators", (25.0,), (25.0,), "", "ops: 25, as in the base"),
    ],
)  # fmt: skip
def test_plain_numbers_say_whose_each_is(metric, base, head, detail, words):
    open_, nan = GateVerdict.INCONCLUSIVE, float("nan")
    found = Difference(
        metric, open_, nan, nan, nan, nan, 0, 0, title="Ops", base=base, head=head, detail=detail
    )
    assert sentence(found) == words


def in_turns(found):
    runs = [replace(run, blocks_ms=(1.0, 1.0)) for run in found.runs]
    return replace(found, runs=tuple(runs))


@pytest.mark.parametrize(
    ("metric", "of", "what"),
    [
        ("step_time", in_turns, "blocks in which both versions ran right after each other"),
        ("step_time", lambda found: found, "both runs of each pair"),
        ("energy", in_turns, "both runs of each pair"),
    ],
)
def test_where_medians_are_apart_by_another_share_both_are_explained(metric, of, what):
    """A figure that a reader works out of the table is another than the one beside it."""
    of_pairs = difference(metric, GateVerdict.FAIL, "Cost", "ms", (4.0, 5.0, 9.0), (9.0, 10.5, 11))
    found = of(result(differences=(replace(of_pairs, ratio=1.88),)))
    text = written("markdown", outcome_of("t", found))
    assert (
        f"The change of cost, +88%, is that of {what}; the medians of all runs, which the table "
        "has beside it, differ by +110%." in text
    )
    for same in (replace(of_pairs, ratio=2.11), replace(of_pairs, ratio=1.88, in_turns=True)):
        text = written("markdown", outcome_of("t", of(result(differences=(same,)))))
        assert "the medians of all runs" not in text


def test_what_is_worse_beside_the_verdict_is_said_with_it():
    passed = result("pass")
    mean = difference("mean_step_time", GateVerdict.FAIL, "Mean step time", "ms", (9.0,), (12.0,))
    both = (*passed.differences, replace(mean, role=MetricRole.REPORTED))
    text = written("markdown", outcome_of("t", replace(passed, differences=both)))
    assert ". No part of the verdict: mean step time is +33%" in text
    assert "No part of the verdict" not in written("markdown", outcome_of("t", passed))


def test_an_interval_of_two_pairs_is_no_figure():
    found = result()
    wide = replace(found.differences[0], low=1e-13, high=1e13)
    text = written("markdown", outcome_of("train.py", replace(found, differences=(wide,))))
    assert "step time is +5.0% (too few runs for an interval)" in text
    assert "00000" not in text


def test_github_annotates_what_did_not_pass():
    lines = written("github", FAILED, OPEN, PASSED, REFUSED, ERROR).splitlines()
    levels = [re.match("::([a-z]+) ", line)[1] for line in lines]
    assert levels == ["error", "warning", "notice", "warning", "error"]
    assert lines[0].startswith(
        "::error title=gpuadvisor gate%2C train.py%3A Fail::step time is +5.0%25"
    )


def test_github_names_the_cause_of_a_time_at_its_place():
    whole = result(explanation=explained())
    (line,) = written("github", outcome_of("train.py", whole)).splitlines()
    assert line.startswith("::error file=pkg/bbox.py,line=535,title=gpuadvisor gate%2C train.py")
    assert "Why: pkg/bbox.py:535 in nms: +4.00 ms a step (80%25 of the slow-down)" in line
    for source in ("/usr/lib/x.py:5", None):
        elsewhere = replace(whole, explanation=explained(source=source))
        (line,) = written("github", outcome_of("train.py", elsewhere)).splitlines()
        assert line.startswith("::error title=") and "Why: " in line
    memory = replace(whole.differences[0], metric="peak_memory")
    (line,) = written("github", outcome_of("a", replace(whole, differences=(memory,)))).splitlines()
    assert "Why: " not in line


def test_long_names_are_below_the_table():
    found = result()
    side = replace(found.head, name="/home/somebody/projects/model/after, new/bin/python")
    text = written("markdown", outcome_of("train.py", replace(found, head=side)))
    assert "| Base | Head |" in text
    assert "head is /home/somebody/projects/model/after, new/bin/python" in text
    assert "| Base |" not in written("markdown", outcome_of("train.py", found))


def test_gitlab_can_read_its_metrics():
    text = written("gitlab", FAILED, outcome_of("train py", result()), REFUSED)
    families = {each.name: each for each in text_string_to_metric_families(text)}
    assert set(families) == {
        "gpuadvisor_gate_step_time_seconds",
        "gpuadvisor_gate_peak_memory_bytes",
    }
    samples = families["gpuadvisor_gate_step_time_seconds"].samples
    figures = {tuple(each.labels.values()): each.value for each in samples}
    assert figures == {
        ("train.py", "base"): pytest.approx(0.1005),
        ("train.py", "head"): pytest.approx(0.1055),
        ("train_py", "base"): pytest.approx(0.1005),
        ("train_py", "head"): pytest.approx(0.1055),
    }


def test_bencher_has_the_heads_median_and_its_ends():
    found = json.loads(written("bencher", FAILED, REFUSED))
    assert set(found) == {"train.py"}
    latency = {"value": 105.5e6, "lower_value": 105e6, "upper_value": 106e6}
    assert found["train.py"]["latency"] == pytest.approx(latency)
    assert found["train.py"]["peak-memory"]["value"] == 2**30


def test_sarif_points_at_the_script():
    (ran,) = json.loads(written("sarif", FAILED, OPEN, PASSED))["runs"]
    assert [each["level"] for each in ran["results"]] == ["error", "warning"]
    place = ran["results"][0]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "examples/train.py"
    assert [each["id"] for each in ran["tool"]["driver"]["rules"]] == ["gate_step_time"]
    (stopped,) = json.loads(written("sarif", REFUSED))["runs"]
    assert stopped["invocations"][0]["executionSuccessful"] is False
    assert stopped["results"] == []


def test_an_explanation_stands_in_every_format_for_people():
    told = outcome_of("train.py", result(explanation=explained()), "train.py")
    failure = ElementTree.fromstring(written("junit", told))[0][0][0].text
    said = "pkg/bbox.py:535 in nms: +4.00 ms a step (80% of the slow-down); of this aten::index "
    assert said in failure
    assert "New in the head: It waits (pkg/bbox.py:535)." in failure
    assert "| `pkg/bbox.py:535 in nms` | 10.0 ms | 14.0 ms |" in written("markdown", told)
    found = json.loads(written("json", told))["explanation"]
    fields = {field for field, _ in leaves({"explanation": found})}
    rows = documented("A gate as JSON")
    assert fields == {field for field in rows if field.startswith("explanation.")} | {"explanation"}
    assert (found["unexplained_ms"], found["causes"][0]["more_ms"]) == (1.0, 4.0)


def test_sarif_has_causes_and_new_findings_at_their_places():
    told = outcome_of("train.py", result(explanation=explained()), "train.py")
    (ran,) = json.loads(written("sarif", FAILED, told))["runs"]
    rules = [each["id"] for each in ran["tool"]["driver"]["rules"]]
    assert rules == ["gate_step_time", "gate_cause", "host_sync"]
    assert [rules[each["ruleIndex"]] for each in ran["results"]] == [
        each["ruleId"] for each in ran["results"]
    ]
    cause = ran["results"][2]
    place = cause["locations"][0]["physicalLocation"]
    assert place == {
        "artifactLocation": {"uri": "pkg/bbox.py"},
        "region": {"startLine": 535},
    }
    everywhere = explained(source="train.py")  # it ran all the time, so no line is known
    told = outcome_of("train.py", result(explanation=everywhere))
    (ran,) = json.loads(written("sarif", told))["runs"]
    place = ran["results"][1]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "train.py"


def test_markdown_is_found_again_by_its_first_line_whatever_came_out():
    first = {written("markdown", each).splitlines()[0] for each in (FAILED, REFUSED, ERROR)}
    assert first == {"<!-- gpuadvisor-gate -->"}
    text = written("markdown", FAILED)
    assert "**Fail:** compared with main, step time is +5.0%" in text
    assert "<summary>All runs</summary>" in text


def test_a_comment_is_never_too_long():
    many = [outcome_of("x", result(runs=result().runs * 500)) for _ in range(3)]
    text = written("markdown", *many)
    assert len(text) < 65_536
    assert "All runs" not in text


def test_json_of_what_was_refused_has_the_same_fields():
    found, refused = (json.loads(written("json", each)) for each in (FAILED, REFUSED))
    assert found.keys() == refused.keys()
    assert (refused["verdict"], refused["base"]) == ("refused", None)
    assert json.loads(written("json", FAILED, REFUSED))["verdict"] == "fail"


MARKUP = ["]]>", "|", "::", "::error::", "%0A", "`", "``", "<!--", "-->", "<b>", "&", "#", '"', "'"]
ODD = ["\\", ",", "a", "é", "\ud800", "\uffff", "\x00", "\x1b[2J"]
SPACES = [" ", "\n", "\r", "\x85", "\u2028"]
NASTY = st.lists(st.sampled_from([*MARKUP, *ODD, *SPACES]) | st.characters(), max_size=12).map(
    "".join
)


@st.composite
def outcomes(draw):
    texts = [draw(NASTY) for _ in range(8)]
    name, reason, output, branch, note, disturbance, function, source = texts
    if draw(st.booleans()):
        kind = draw(
            st.sampled_from([RefusedError, ValueError, lambda why: ScriptError(why, output)])
        )
        return outcome_of_error(name, kind(reason), name)
    verdict = draw(st.sampled_from(["pass", "fail", "inconclusive"]))
    broken = (
        {"reason": reason or "x", "broken": "head", "differences": ()}
        if draw(st.booleans())
        else {}
    )
    found = result(verdict, base=replace(SIDE, name=branch), notes=(note or "x",), **broken)
    explanation = explained(function, source, branch, note)
    found = replace(found, explanation=draw(st.sampled_from([None, explanation])))
    odd = run(3, "head", 1.0, reason=disturbance)
    return outcome_of(name, replace(found, output=output, runs=(*found.runs, odd)), name)


@settings(max_examples=EXAMPLES)
@given(st.lists(outcomes(), min_size=1, max_size=3))
def test_any_text_is_well_formed_in_every_format(told):
    texts = {name: load_format(name).render(told) for name in format_names()}
    for name, text in texts.items():
        assert text.encode("utf-8"), name
        assert text.endswith("\n"), name
    suites = ElementTree.fromstring(texts["junit"].encode("utf-8"))
    assert len(suites) == len(told)
    for name in ("json", "sarif", "bencher"):
        json.loads(texts[name], parse_constant=pytest.fail)
    lines = texts["github"].split("\n")[:-1]
    assert lines == texts["github"].splitlines()
    assert all(re.match(r"::(error|warning|notice) title=[^:,]+::", line) for line in lines)
    list(text_string_to_metric_families(texts["gitlab"]))
    assert_tables_are_whole(texts["markdown"])


def assert_tables_are_whole(text):
    """Each row has as many cells as its table's head, and HTML is only what the format writes."""
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    widths, cells = [], 0
    for token in tokens:
        if token.type == "table_open":
            widths = []
        elif token.type == "tr_open":
            cells = 0
        elif token.type in ("th_open", "td_open"):
            cells += 1
        elif token.type == "tr_close":
            widths.append(cells)
        elif token.type == "table_close":
            assert len(set(widths)) == 1
    blocks = [each.content.strip() for each in tokens if each.type == "html_block"]
    inline = [c for t in tokens for c in t.children or () if c.type == "html_inline"]
    assert not inline
    assert blocks[0] == "<!-- gpuadvisor-gate -->"
    assert set(blocks[1:]) <= {"<details>\n<summary>All runs</summary>", "</details>"}
