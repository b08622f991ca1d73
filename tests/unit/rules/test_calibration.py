"""Ranges that are fitted to measured cures, and what stays as it is where none were measured."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuadvisor.domain.finding import Category, Figure, Scope, ScopeKind, Span
from gpuadvisor.domain.severity import Severity
from gpuadvisor.profiling.diagnosing import diagnose_target
from gpuadvisor.reports.json_documents import finding_json
from gpuadvisor.rules.calibration import Calibration, Fit, calibration, missed_by, read
from gpuadvisor.rules.engine import diagnose
from gpuadvisor.rules.registry import load_rules
from gpuadvisor.rules.rule import Estimate, Loaded, Rule, RuleResult
from tests.profiles import Made
from tests.rules.building import counters, timeline

PROFILES = Path(__file__).parents[2] / "data" / "profiles"
RUN_NS = 1_000_000
FITTED = Calibration("NVIDIA H200", "2026-12-01", 0.9, {"slow": Fit(4.0, 31)})


def said(low=0.1, high=0.5, method="In words."):
    saving = Estimate(low * RUN_NS, high * RUN_NS, {"kernel/kernel": RUN_NS})
    return RuleResult("It is so", (Figure("time", 1.0, "ms"),), "Do this.", saving, method)


def findings(*results, fitted=FITTED, name="slow"):
    made = Made()
    made.launched("kernel", call=(0, 1), runs=(0, RUN_NS / 1000))
    rule = Loaded(name, name, Rule(Category.COMPUTE, ()), lambda _: results, str)
    return diagnose(timeline(made), [rule], fitted)


def only(diagnosis):
    (finding,) = diagnosis.findings
    return finding


def test_a_fitted_range_is_the_rules_own_and_wider():
    finding = only(findings(said()))
    assert finding.improvement_pct == Span(pytest.approx(6), pytest.approx(54))
    assert finding.uncalibrated_pct == Span(10.0, 50.0)
    assert finding.saving_ms == pytest.approx(0.3)
    assert finding.method == (
        "Of 31 cures of generated programs, measured on NVIDIA H200 (2026-12-01), at least 90%"
        " saved what lies in this range, which is wider by 4.0 points on either side for it. Before"
        " that: In words."
    )


def test_a_range_that_held_as_it_was_says_so():
    fitted = replace(FITTED, fits={"slow": Fit(0.0, 31)})
    finding = only(findings(said(), fitted=fitted))
    assert finding.improvement_pct == Span(pytest.approx(10), pytest.approx(50))
    assert "lies in this range. Before that" in finding.method


def test_cures_that_were_measured_of_another_estimate_say_nothing_of_this_range():
    finding = only(findings(replace(said(), as_measured=False)))
    assert finding.uncalibrated_pct is None
    assert finding.method == "In words. Not calibrated: too few cures of this were measured."


def test_the_sum_follows_the_fitted_range_and_severity_what_the_rule_says():
    fitted = replace(FITTED, fits={"slow": Fit(30.0, 31)})
    found = findings(said(), fitted=fitted)
    unmoved = only(findings(said(), fitted=replace(FITTED, fits={})))
    assert unmoved.severity is only(found).severity is Severity.CRITICAL
    assert found.together_pct.high == pytest.approx(80)
    assert only(found).improvement_pct.low == 0.0


def test_what_ends_at_nothing_is_worth_no_more_for_being_widened():
    nothing = replace(said(), saving=Estimate(0.0, 1_000))
    finding = only(findings(nothing, fitted=replace(FITTED, fits={"slow": Fit(9.0, 31)})))
    assert finding.improvement_pct.high == pytest.approx(9.1)
    assert finding.severity is Severity.INFO


def test_a_rule_without_a_fit_keeps_its_range_and_says_that_it_is_not_calibrated():
    finding = only(findings(said(), name="other"))
    assert finding.improvement_pct == Span(10.0, 50.0)
    assert finding.uncalibrated_pct is None
    assert finding.method == "In words. Not calibrated: too few cures of this were measured."


def test_without_any_fit_nothing_changes_and_nothing_is_said():
    finding = only(findings(said(), fitted=replace(FITTED, fits={})))
    assert finding.method == "In words."
    assert "uncalibrated_pct" not in finding_json(finding)


def test_the_json_has_both_ranges():
    told = finding_json(only(findings(said())))
    assert told["uncalibrated_pct"] == {"low": 10.0, "high": 50.0}
    assert told["improvement_pct"]["high"] == pytest.approx(54)


def test_a_fitted_range_stays_within_the_run():
    fitted = replace(FITTED, fits={"slow": Fit(99.0, 31)})
    assert only(findings(said(), fitted=fitted)).improvement_pct == Span(0.0, 100.0)


def test_a_kernels_own_time_is_not_what_was_fitted():
    gain = RuleResult(
        "It is so", (Figure("time", 1.0, "ms"),), "Do this.",
        Estimate.of_kernel("kernel", 1e6, 0.5, 0.7), "In words",
        Scope(ScopeKind.KERNEL, "kernel"),
    )  # fmt: skip
    rule = Loaded("slow", "slow", Rule(Category.COMPUTE, ()), lambda _: [gain], str)
    finding = only(diagnose(counters({}), [rule], FITTED))
    assert (finding.improvement_pct, finding.method) == (Span(50.0, 70.0), "In words")


@given(st.floats(0, 100), st.floats(0, 100), st.floats(0, 100), st.floats(0, 100))
def test_a_range_that_is_wider_by_what_a_gain_misses_holds_it(one, other, gain, more):
    own = Span(min(one, other), max(one, other))
    missed = missed_by(own, gain)
    assert (missed == 0) == (own.low <= gain <= own.high)
    wider = Fit(missed + more, 1).span(own)
    assert wider.low <= gain + 1e-9
    assert gain - 1e-9 <= wider.high
    assert wider.low <= own.low <= own.high <= wider.high


def test_the_packages_own_fits_are_of_rules_that_there_are():
    own = calibration()
    assert set(own.fits) <= {rule.name for rule in load_rules()}
    assert all(0 <= each.points < 50 for each in (*own.fits.values(), *own.timed.values()))
    assert not own.fits or (own.gpu and own.date)


def test_a_table_is_read():
    text = json.dumps({
        "gpu": "NVIDIA H200", "date": "2026-12-01", "source": "", "coverage": 0.9,
        "rules": {"slow": {"points": 4.0, "pairs": 31, "held_out": {}}},
        "timed": {"slow": {"points": 1.0, "pairs": 20, "held_out": {}}},
    })  # fmt: skip
    assert read(text) == replace(FITTED, timed={"slow": Fit(1.0, 20)})


def test_profiles_whose_steps_were_timed_have_fits_of_their_own():
    fitted = replace(FITTED, timed={"other": Fit(5.0, 20)})
    told = fitted.applied("slow", said(), RUN_NS, timed=True)
    assert told.saving == said().saving
    assert told.method.endswith("Not calibrated: too few cures of this were measured.")
    assert fitted.applied("other", said(), RUN_NS, timed=True).saving.low_ns == pytest.approx(
        0.05 * RUN_NS
    )


@pytest.fixture
def table(monkeypatch, tmp_path):
    """The path of the package's table, another one for the time of a test."""
    monkeypatch.setattr("gpuadvisor.rules.calibration.TABLE", tmp_path / "calibration.json")
    yield tmp_path / "calibration.json"
    calibration.cache_clear()


def test_diagnose_uses_the_table_of_the_package(table):
    trace = str(PROFILES / "h100_small_cnn_train.json.gz")
    told = {"gpu": "NVIDIA H100", "date": "2026-12-01", "coverage": 0.9, "rules": {}}
    table.write_text(json.dumps(told))
    calibration.cache_clear()
    before = diagnose_target(trace, ()).diagnosis.findings[0]
    fits = {before.rule: {"points": 1.5, "pairs": 31}}
    table.write_text(json.dumps({**told, "rules": fits}))
    calibration.cache_clear()
    fitted = {each.rule: each for each in diagnose_target(trace, ()).diagnosis.findings}
    wider, own = fitted[before.rule], before.uncalibrated_pct or before.improvement_pct
    assert wider.uncalibrated_pct == own
    assert wider.improvement_pct.low == pytest.approx(max(own.low - 1.5, 0.0))
    assert wider.improvement_pct.high >= own.high
    assert "31 cures" in wider.method
