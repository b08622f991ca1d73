"""How claims become findings: worth, severity, causes that hide symptoms, and the sum."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuadvisor.domain.finding import (
    Category,
    Figure,
    NotMeasured,
    Scope,
    ScopeKind,
    Span,
)
from gpuadvisor.domain.severity import Severity
from gpuadvisor.rules.engine import diagnose
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.facts.summary import Facts
from gpuadvisor.rules.requirements import MEMORY
from gpuadvisor.rules.rule import Estimate, Loaded, Rule, RuleResult
from tests.profiles import Made
from tests.rules.building import counters, timeline

RUN_NS = 1_000_000


def evidence():
    """A run of a millisecond."""
    made = Made()
    made.launched("kernel", call=(0, 1), runs=(0, RUN_NS / 1000))
    return timeline(made)


def result(low=0.0, high=0.0, part=None, **more):
    parts = {} if part is None else {part: more.pop("time", RUN_NS)}
    saving = Estimate(low * RUN_NS, high * RUN_NS, parts)
    return RuleResult(
        "It is so", (Figure("time", 1.0, "ms"),), "Do this.", saving, "In words", **more
    )


def rule(name, *results, hides=(), needs=(), category=Category.COMPUTE):
    return Loaded(name, name, Rule(category, needs, hides=hides), lambda _: results, str)


def found(*rules):
    return diagnose(evidence(), rules)


def test_worth_is_the_runs():
    (finding,) = found(rule("one", result(0.1, 0.3))).findings
    assert finding.improvement_pct == Span(10.0, 30.0)
    assert finding.saving_ms == pytest.approx(0.2)
    assert finding.severity is Severity.WARNING


@pytest.mark.parametrize(
    ("share", "severity"),
    [
        (0.5, Severity.CRITICAL),
        (0.1, Severity.WARNING),
        (0.03, Severity.NOTICE),
        (0.001, Severity.INFO),
    ],
)
def test_severity_follows_worth(share, severity):
    (finding,) = found(rule("one", result(share, share))).findings
    assert finding.severity is severity


@pytest.mark.parametrize(
    ("most", "severity"), [(0.0, Severity.INFO), (0.002, Severity.INFO), (0.05, Severity.WARNING)]
)
def test_what_is_worth_as_good_as_nothing_is_nothing_to_fix_whatever_its_rule_states(
    most, severity
):
    (finding,) = found(rule("one", result(0.0, most, severity=Severity.WARNING))).findings
    assert finding.severity is severity


@pytest.mark.parametrize(
    ("beside_ms", "severity"),
    [
        (None, Severity.CRITICAL),
        (1.0, Severity.CRITICAL),
        (4.0, Severity.WARNING),
        (20.0, Severity.NOTICE),
        (60.0, Severity.INFO),
        (1000.0, Severity.INFO),
    ],
)
def test_a_kernel_counted_alone_matters_by_its_share_of_all_that_was_counted(beside_ms, severity):
    counted = counters({}, beside_ms=beside_ms)
    gain = RuleResult(
        "It is so", (Figure("time", 1.0, "ms"),), "Do this.",
        Estimate.of_kernel("kernel", 1e6, 0.5, 0.7), "In words",
        Scope(ScopeKind.KERNEL, "kernel"),
    )  # fmt: skip
    (finding,) = diagnose(counted, [rule("one", gain)]).findings
    assert finding.improvement_pct.middle == pytest.approx(60.0)
    assert finding.captured_pct.high == pytest.approx(70 / (1 + (beside_ms or 0)))
    assert finding.severity is severity
    # What a rule holds to be a notice does not matter more than its kernel does.
    said = replace(gain, severity=Severity.NOTICE)
    (finding,) = diagnose(counted, [rule("one", said)]).findings
    assert finding.severity is min(severity, Severity.NOTICE, key=lambda each: each.rank)


def test_within_a_kernel_of_little_time_a_cause_still_hides_its_symptom():
    one = Scope(ScopeKind.KERNEL, "kernel")
    gain = replace(result(scope=one), saving=Estimate.of_kernel("kernel", 1e6, 0.5, 0.7))
    cause, symptom = rule("cause", gain, hides=("symptom",)), rule("symptom", gain)
    shown = diagnose(counters({}, beside_ms=1000.0), [symptom, cause]).shown
    assert [(each.rule, each.severity) for each in shown] == [("cause", Severity.INFO)]


def test_a_worth_beyond_the_run_is_all_of_it():
    (finding,) = found(rule("one", result(-0.5, 7.0))).findings
    assert finding.improvement_pct == Span(0.0, 100.0)


def test_the_most_expensive_is_first():
    diagnosis = found(rule("a", result(0.1, 0.1)), rule("b", result(0.4, 0.4)))
    assert [finding.rule for finding in diagnosis.findings] == ["b", "a"]


def test_a_cause_hides_its_symptom_which_matters_less_then():
    cause = rule("cause", result(0.2, 0.2), hides=("symptom",))
    first, second = found(rule("symptom", result(0.9, 0.9)), cause).findings
    assert (first.rule, first.hidden_by) == ("cause", None)
    assert (second.rule, second.hidden_by) == ("symptom", "cause")
    assert second.severity is Severity.NOTICE


def test_a_cause_hides_by_category():
    cause = rule("cause", result(0.2, 0.2), hides=("latency",))
    symptom = rule("symptom", result(0.9, 0.9), category=Category.LATENCY)
    assert found(symptom, cause).shown[0].rule == "cause"


def test_what_costs_nothing_hides_nothing():
    cause = rule("cause", result(0.001, 0.001), hides=("symptom",))
    assert len(found(rule("symptom", result(0.9, 0.9)), cause).shown) == 2


def test_what_costs_little_does_not_explain_what_costs_half_of_the_run():
    cause = rule("cause", result(0.03, 0.03), hides=("symptom",))
    assert len(found(rule("symptom", result(0.5, 0.5)), cause).shown) == 2
    assert len(found(rule("symptom", result(0.1, 0.1)), cause).shown) == 1


def test_a_symptom_names_the_root_of_a_chain():
    rules = (
        rule("root", result(0.2, 0.2), hides=("cause", "symptom")),
        rule("cause", result(0.5, 0.5), hides=("symptom",)),
        rule("symptom", result(0.9, 0.9)),
    )
    hidden = {finding.rule: finding.hidden_by for finding in found(*rules).findings}
    assert hidden == {"root": None, "cause": "root", "symptom": "root"}


def test_of_two_that_hide_each_other_the_one_worth_more_stays():
    rules = (
        rule("small", result(0.1, 0.1), hides=("large",)),
        rule("large", result(0.6, 0.6), hides=("small",)),
    )
    hidden = {finding.rule: finding.hidden_by for finding in found(*rules).findings}
    assert hidden == {"large": None, "small": "large"}


def test_another_kernels_cause_hides_nothing():
    one, other = (Scope(ScopeKind.KERNEL, name) for name in ("one", "other"))
    cause = rule("cause", result(0.2, 0.2, scope=one), hides=("symptom",))
    symptom = rule("symptom", result(0.1, 0.1, scope=other), result(0.1, 0.1, scope=one))
    hidden = {str(each.scope): each.hidden_by for each in found(cause, symptom).findings[1:]}
    assert hidden == {"other": None, "one": "cause"}


def test_what_is_missing_is_said_with_the_way_to_measure_it():
    diagnosis = found(rule("one", result(0.5, 0.5), needs=(MEMORY,)))
    assert diagnosis.findings == ()
    (unknown,) = diagnosis.not_measured
    assert unknown == NotMeasured("one", "the profile has no memory", "gpuadvisor profile SCRIPT")


def test_without_a_profile_that_is_missing():
    (unknown,) = diagnose(Evidence(), [rule("one", needs=(MEMORY,))]).not_measured
    assert unknown.why == "there is no profile"


def test_a_rule_that_fails_spoils_no_other():
    def fails(_):
        raise ZeroDivisionError("of zero")

    broken = replace(rule("broken"), check=fails)
    diagnosis = found(broken, rule("one", result(0.5, 0.5)))
    assert [finding.rule for finding in diagnosis.findings] == ["one"]
    assert diagnosis.failed == (("broken", "ZeroDivisionError: of zero"),)


def test_the_same_time_is_saved_once():
    diagnosis = found(
        rule("a", result(0.5, 0.5, part="kernel")), rule("b", result(0.5, 0.5, part="kernel"))
    )
    assert diagnosis.together_pct == Span(75.0, 75.0)


def test_other_times_add_up():
    diagnosis = found(
        rule("a", result(0.5, 0.5, part="kernel", time=RUN_NS / 2)),
        rule("b", result(0.25, 0.25, part="idle", time=RUN_NS / 2)),
    )
    assert diagnosis.together_pct == Span(75.0, 75.0)


def test_together_is_no_less_than_one_of_them_that_is_worth_more_than_its_parts():
    """Of the run without the profiler the same time is a larger share."""
    alone = rule("a", result(0.1, 0.22, part="kernel", time=RUN_NS / 5))
    other = rule("b", result(0.0, 0.02, part="kernel", time=RUN_NS / 5))
    (first,) = found(alone).findings
    assert found(alone).together_pct == first.improvement_pct == Span(10.0, pytest.approx(22.0))
    assert found(alone, other).together_pct == Span(10.0, pytest.approx(22.0))


def test_what_is_hidden_is_not_counted():
    cause = rule("cause", result(0.2, 0.2), hides=("symptom",))
    assert found(rule("symptom", result(0.7, 0.7)), cause).together_pct == Span(20.0, 20.0)


shares = st.floats(0, 1)
parts = st.sampled_from([None, "idle", "kernel", "copy"])


@given(st.lists(st.tuples(shares, shares, parts), max_size=8))
def test_together_is_never_more_than_all_of_the_run(made):
    rules = [
        rule(f"rule {number}", result(min(low, high), max(low, high), part))
        for number, (low, high, part) in enumerate(made)
    ]
    diagnosis = found(*rules)
    together = diagnosis.together_pct
    told = [each for each in diagnosis.findings if each.severity is not Severity.INFO]
    if not told:
        assert together is None
    else:
        assert 0 <= together.low <= together.high <= 100
        worths = [finding.improvement_pct.high for finding in told]
        assert together.high >= max(worths) - 1e-9 or together.high == 100


def test_of_a_range_too_wide_no_more_counts_than_a_range_may_be_wide():
    wide, narrow = rule("wide", result(0.0, 0.46)), rule("narrow", result(0.05, 0.34))
    assert [each.rule for each in found(wide, narrow).findings] == ["narrow", "wide"]
    sure = rule("sure", result(0.4, 0.8))
    assert [each.rule for each in found(rule("all", result(0.5, 0.55)), sure).findings] == [
        "sure", "all",
    ]  # fmt: skip


def test_what_another_cure_saves_does_not_count_in_the_order():
    saving = Estimate(0.1 * RUN_NS, 0.5 * RUN_NS, counts_ns=0.1 * RUN_NS)
    larger = replace(result(), saving=saving)
    told = found(rule("larger", larger), rule("sure", result(0.11, 0.15))).findings
    assert [each.rule for each in told] == ["sure", "larger"]
    assert told[1].improvement_pct == Span(10.0, 50.0)
    assert told[1].severity is Severity.WARNING


def in_words_of(source, kernel):
    made = Made()
    made.launched(kernel, call=(0, 1), runs=(0, RUN_NS / 500))
    run = Evidence(facts=Facts(made.profile(source=source)))
    told = Loaded(
        "one", "one", Rule(Category.COMPUTE, (), knobs=("pin_memory",)),
        lambda _: [result(0.1, 0.3, program_advice="Call cudaMallocHost.")], str,
    )  # fmt: skip
    (finding,) = diagnose(run, [told]).findings
    return finding.advice, finding.knobs


@pytest.mark.parametrize(
    ("source", "kernel"),
    [("kineto", "my_kernel"), ("nsys", "void at::native::copy<4>(int)"), ("nsys", "triton_red_1")],
)
def test_a_program_of_pytorch_is_told_in_its_words(source, kernel):
    assert in_words_of(source, kernel) == ("Do this.", ("pin_memory",))


def test_another_program_is_told_in_its_own_and_has_no_knobs():
    assert in_words_of("nsys", "my_kernel") == ("Call cudaMallocHost.", ())
