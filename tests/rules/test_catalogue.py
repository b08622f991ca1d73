"""What every rule must have: a page, cases in which it speaks and is silent, and known knobs."""

from importlib import import_module
from pathlib import Path

import pytest

from gpuadvisor.domain.finding import Category
from gpuadvisor.rules.engine import diagnose
from gpuadvisor.rules.registry import load_rules
from gpuadvisor.tuners.knobs import load_knobs
from tests.rules.building import timeline
from tests.rules.programs import Program

RULES = {rule.name: rule for rule in load_rules()}
CASES = Path(__file__).parent / "cases"
HEADINGS = ("## What is seen", "## What it costs", "## What to do", "## Sources")


def cases(name):
    return import_module(f"tests.rules.cases.{name}")


def test_every_rule_has_a_page():
    pages = {name: rule.page for name, rule in RULES.items()}
    assert [name for name, page in pages.items() if not page.startswith(f"# {name}: ")] == []
    missing = [
        (name, each) for name, page in pages.items() for each in HEADINGS if each not in page
    ]
    assert missing == []


def test_every_rule_has_cases_of_both_kinds_in_a_file_of_its_name():
    assert {path.stem for path in CASES.glob("*.py")} == set(RULES)
    assert [name for name in RULES if not (cases(name).FIRES and cases(name).SILENT)] == []


def test_rules_name_knobs_rules_and_categories_that_exist():
    rules = {name: each.rule for name, each in RULES.items()}
    hideable = set(RULES) | {str(category) for category in Category}
    assert {knob for rule in rules.values() for knob in rule.knobs} <= load_knobs().keys()
    assert {each for rule in rules.values() for each in rule.hides} <= hideable
    assert [name for name, rule in rules.items() if name in rule.hides] == []


@pytest.mark.parametrize("name", RULES)
def test_a_rule_speaks(name):
    for case, evidence in cases(name).FIRES.items():
        diagnosis = diagnose(evidence(), [RULES[name]])
        assert diagnosis.failed == (), case
        assert [each.why for each in diagnosis.not_measured] == [], case
        assert diagnosis.findings, case
        for finding in diagnosis.findings:
            assert finding.summary[-1] not in ".!", case
            assert finding.advice[-1] == ".", case
            assert finding.evidence, case
            assert finding.method or finding.improvement_pct is None, case
            # What is called an upper bound is one of all that is advised.
            assert not (finding.method.startswith("At most") and "save more" in finding.method), (
                case
            )
            assert set(finding.knobs) <= load_knobs().keys(), case


@pytest.mark.parametrize("name", RULES)
def test_a_rule_is_silent(name):
    found = {case: diagnose(each(), [RULES[name]]) for case, each in cases(name).SILENT.items()}
    assert [each.failed for each in found.values() if each.failed] == []
    assert {case: each.findings for case, each in found.items() if each.findings} == {}


def test_time_in_waits_and_idle_time_after_them_are_two_figures_and_either_may_be_larger():
    """A kernel of 100 us after 20 of launching leaves much of the host's time for waiting."""
    told = {}
    for case, launches in (("long", 20), ("short", 1)):
        evidence = cases("sync_in_loop").steps(Program.waits, launches=launches)
        (found,) = diagnose(evidence, [RULES["sync_in_loop"]]).findings
        figures = {each.metric: each.value for each in found.evidence}
        told[case] = (figures["host_in_these_waits"], figures["gpu_idle_after_waits"])
    assert told["long"][0] > told["long"][1] > 0
    assert 0 < told["short"][0] < told["short"][1]


def test_what_takes_little_of_the_time_before_copies_is_named_and_no_advice_rests_on_it():
    """500 us of 5,000, for the first 900 of which the GPU still runs kernels."""
    program = Program()
    for number in range(5):
        began = program.now
        program.works(4500)
        program.computes("MPI_Recv", 500)
        program.copies(4 << 20, 12)
        program.launches("kernel", runs=100, times=10, op=5)
        program.step(number, began)
    (found,) = diagnose(timeline(program.made), [RULES["input_bound"]]).findings
    assert "its own work (MPI_Recv for 12% of it) before it copies" in found.summary
    assert "MPI_Recv" not in found.advice
