"""Studies, lists of them and verifications for machines.

Every field is explained in docs/json.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuadvisor.domain.study import Equivalence
from gpuadvisor.reports import figures
from gpuadvisor.reports.json_fields import Json, device_fields, document, fields, rows
from gpuadvisor.reports.study.wording import verdict
from gpuadvisor.tuners.rehearsal.comparison import missing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuadvisor.domain.measurement import Measurement
    from gpuadvisor.domain.study import Expectation, Problem, Rehearsal, StudyResult, Trial
    from gpuadvisor.domain.verification import Verification
    from gpuadvisor.reports.study.comparison import Difference, StudiesComparison
    from gpuadvisor.storage.database import StudyRecord

STUDY_VERSION = 4
STUDIES_VERSION = VERIFICATION_VERSION = 1
"""Versions of the JSON of a study, of a list of studies or of studies side by side, and of a
verification: one grows when a field goes or changes its meaning, not when one is added."""
SPEEDUP = "ratio ci99_low ci99_high pairs in_turns"
"""Fields of a gain with what it rests on."""


def study_json(result: StudyResult) -> Json:
    """Return the study as values that are valid JSON."""
    best, speedup = result.best, result.speedup
    device = result.environment.device
    return document({
        "schema_version": STUDY_VERSION,
        **fields(result, "study script args started? wall_s interrupted?"),
        "level": str(result.level),
        "objective": result.objective,
        "verdict": verdict(result),
        **fields(result, "needed_s"),
        "speedup": speedup and fields(speedup, SPEEDUP),
        "device": device_fields(device, "kind name index uuid memory_bytes compute_capability"),
        "environment": fields(
            result.environment,
            "python torch cuda cudnn driver platform cpu_cores=device.cores sm_clock_mhz"
            " sm_clock_max_mhz power_limit_w git_commit git_dirty gpuadvisor",
        ),
        "baseline": _run(result.baseline),
        "best": best and {**_run(best), "knobs": result.settings},
        "contributions": rows(
            result.contributions, "knob value ratio ci99_low=low ci99_high=high origin"
        ),
        "equivalence": _equivalence(result.equivalence),
        "rehearsal": result.rehearsal and _rehearsal(result.rehearsal),
        "dropped": [
            {**fields(each, "knob value"), **_problem(each.problem)} for each in result.dropped
        ],
        "expectations": [_expectation(each) for each in result.expectations],
        **fields(result, "no_effect untried left notes plan"),
        "screened": [
            {**fields(each, "knob value state"),
             "ratio": each.ratio and fields(each.ratio, "ratio ci99_low=low ci99_high=high pairs"),
             **fields(each, "beside seconds why? later? of_computing")}
            for each in result.screened
        ],
        **fields(result, "computing_ms?"),
        "supply": result.supply and {
            **fields(result.supply, "step_ms rest_ms best_rest_ms? workers settings why?"),
            "values": rows(
                result.supply.values,
                "settings batch_ms low_ms high_ms batches step_ms seconds failed?",
            ),
        },
        "trials": [_trial(trial) for trial in result.trials],
        "forking": result.forking and fields(result.forking, "runs saved_s why?"),
    })  # fmt: skip


def verification_json(found: Verification) -> Json:
    """Return what became of a plan, with the study that measured it."""
    return document({
        "schema_version": VERIFICATION_VERSION,
        **fields(found, "outcome reason plan"),
        "promised": found.promised and fields(found.promised, SPEEDUP),
        **fields(found, "least_ratio"),
        "is_rehearsed": missing(found.result.rehearsal) is None,
        **fields(found, "rehearsed_by"),
        "study": study_json(found.result),
    })  # fmt: skip


def studies_json(records: Sequence[StudyRecord]) -> Json:
    """Return a list of studies, without their trials."""
    names = "study=name started? ended wall_s interrupted? script args is_module folder? verifies"
    return document({
        "schema_version": STUDIES_VERSION,
        "studies": [
            {
                **fields(each, names),
                "level": str(each.level),
                **fields(each, "objective verdict knobs=settings plan"),
                "speedup": each.speedup and fields(each.speedup, SPEEDUP),
                "device": device_fields(each.environment.device, "kind name uuid"),
            }
            for each in records
        ],
    })  # fmt: skip


def studies_comparison_json(comparison: StudiesComparison) -> Json:
    """Return studies side by side, each whole but for its trials."""

    def differences(every: Sequence[Difference]) -> Json:
        return {each.name: each.values for each in every}

    whole = [(each, study_json(each.result)) for each in comparison.studies]
    left_out = ("schema_version", "trials")
    return document({
        "schema_version": STUDIES_VERSION,
        "studies": [
            {**{name: value for name, value in document.items() if name not in left_out},
             "folder": each.folder or None}
            for each, document in whole
        ],
        "settings": differences(comparison.settings),
        "environment": differences(comparison.environment),
        "not_comparable": rows(comparison.obstacles, "figures why"),
        "remarks": comparison.remarks,
    })  # fmt: skip


def _run(measurement: Measurement) -> Json:
    measured = figures.quantities(measurement)
    return {
        "step_ms": fields(measured, "p50=p50_ms p95=p95_ms mean=mean_ms"),
        **fields(measured, "throughput throughput_unit=unit samples_per_step"),
        **fields(measured, "peak_memory_bytes energy_j_per_step"),
        "steps": measurement.steps,
    }


def _equivalence(found: Equivalence | None) -> Json:
    nothing = Equivalence("not_checked", "", reason="there is nothing to compare")
    return fields(found or nothing, "status metric? value limit reason?")


def _rehearsal(rehearsal: Rehearsal) -> Json:
    return {
        "knobs": rehearsal.settings,
        **fields(rehearsal, "agrees covered not_covered"),
        "problems": [{**_problem(each), **fields(each, "suspects")} for each in rehearsal.problems],
        **fields(rehearsal, "epochs lived_epochs samples changes_results"),
        "equivalence": _equivalence(rehearsal.equivalence),
        "forecast": rehearsal.forecast
        and fields(
            rehearsal.forecast,
            "saved_s whole_s epochs steps later_ratio extra_start_s break_even_steps",
        ),
        **fields(rehearsal, "doubt? wall_s"),
    }


def _problem(problem: Problem) -> Json:
    return fields(problem, "aspect sentence")


def _expectation(expectation: Expectation) -> Json:
    low, high = expectation.low_pct, expectation.high_pct
    estimated = low is not None and high is not None
    ends = expectation.measured_low_pct, expectation.measured_high_pct
    measured = expectation.measured_pct is not None and None not in ends
    return {
        **fields(expectation, "rule severity summary"),
        "predicted_pct": {"low": low, "high": high} if estimated else None,
        "measured_pct": fields(
            expectation, "value=measured_pct low=measured_low_pct high=measured_high_pct"
        )
        if measured
        else None,
        **fields(expectation, "of_foretold_pct cured_too"),
        "together_pct": _ends(expectation.together_pct),
        "screened_pct": _screened_pct(expectation),
        **fields(expectation, "is_met knobs measured_with=settings"),
        **fields(expectation, "why_not_measured=why?"),
    }


def _ends(range_pct: tuple[float, float] | None) -> Json | None:
    return {"low": range_pct[0], "high": range_pct[1]} if range_pct else None


def _screened_pct(expectation: Expectation) -> Json | None:
    if expectation.screened_pct is None:
        return None
    value, low, high = expectation.screened_pct
    of_computing = expectation.screened_of_computing
    return {"value": value, "low": low, "high": high, "of_computing": of_computing}


def _trial(trial: Trial) -> Json:
    return {
        **fields(trial, "number phase knobs=settings state reason?"),
        **fields(figures.quantities(trial.measurement), "step_ms=mean_ms throughput"),
        **fields(trial, "gain gpu wall_s disturbance? start_saved_s"),
        "in_turns": trial.in_turns and fields(trial.in_turns, "base_ms head_ms"),
    }
