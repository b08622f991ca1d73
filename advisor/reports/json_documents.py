"""Studies, profiles, diagnoses and comparisons for machines.

Every field is explained in docs/json.md.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any

from gpuadvisor.domain.profile import UNKNOWN
from gpuadvisor.domain.study import Equivalence
from gpuadvisor.reports import figures
from gpuadvisor.reports.ranks_document import ranks_json
from gpuadvisor.reports.strict_json import strict
from gpuadvisor.reports.study_wording import verdict
from gpuadvisor.tuners.rehearsal.comparison import missing

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gpuadvisor.domain.device import Device
    from gpuadvisor.domain.finding import Diagnosis, Finding, Place
    from gpuadvisor.domain.measurement import Measurement
    from gpuadvisor.domain.profile import DeviceLimits
    from gpuadvisor.domain.study import Expectation, Problem, Rehearsal, StudyResult, Trial
    from gpuadvisor.domain.verification import Verification
    from gpuadvisor.reports.diagnosis_report import DiagnosisReport
    from gpuadvisor.reports.profile_report import KernelRow, ProfileReport
    from gpuadvisor.reports.studies_comparison import Difference, StudiesComparison
    from gpuadvisor.rules.facts.account import Account
    from gpuadvisor.rules.facts.comparison import Change, ComparedProfile, ProfileComparison
    from gpuadvisor.rules.facts.steps import Steps
    from gpuadvisor.rules.facts.summary import Facts
    from gpuadvisor.storage.database import StudyRecord

STUDY_VERSION = 4
PROFILE_VERSION = DIAGNOSIS_VERSION = COMPARISON_VERSION = 1
"""Versions of the JSON: one grows when a field goes or changes its meaning, not when one is
added."""
STUDIES_VERSION = VERIFICATION_VERSION = 1
"""Versions of a list of studies or of studies side by side, and of a verification."""
MOST_ROWS = 1000
"""Kernels and operators of a profile, those with most time: a hostile trace may have millions."""
MOST_CHANGES = 2000
"""Kernels and operators of a comparison, those that changed most."""

SPEEDUP = "ratio ci99_low ci99_high pairs in_turns"
"""Fields of a gain with what it rests on."""
Json = dict[str, Any]


def _fields(thing: object, names: str) -> Json:
    """Return attributes of an object by name, in this order.

    `names` are separated by spaces. `name=attribute` gives one another name (dots allowed), and a
    question mark behind it makes null of what is empty.
    """
    found = {}
    for each in names.split():
        name, _, attribute = each.rstrip("?").partition("=")
        value = attrgetter(attribute or name)(thing)
        found[name] = (value or None) if each.endswith("?") else value
    return found


def _rows(things: Iterable[object], names: str) -> list[Json]:
    return [_fields(each, names) for each in things]


def _document(values: Json) -> Json:
    """Return values that are strictly valid JSON: NaN and infinity become None."""
    document: Json = strict(values)
    return document


def _device(device: Device | DeviceLimits, names: str) -> Json:
    """Return fields of a device, its compute capability among them as `9.0`."""
    fields = _fields(device, names)
    return fields | {"compute_capability": figures.capability(device.compute_capability)}


# -- studies -------------------------------------------------------------------------------------


def study_json(result: StudyResult) -> Json:
    """Return the study as values that are valid JSON."""
    best, speedup = result.best, result.speedup
    device = result.environment.device
    return _document({
        "schema_version": STUDY_VERSION,
        **_fields(result, "study script args started? wall_s interrupted?"),
        "level": str(result.level),
        "objective": result.objective,
        "verdict": verdict(result),
        **_fields(result, "needed_s"),
        "speedup": speedup and _fields(speedup, SPEEDUP),
        "device": _device(device, "kind name index uuid memory_bytes compute_capability"),
        "environment": _fields(
            result.environment,
            "python torch cuda cudnn driver platform cpu_cores=device.cores sm_clock_mhz"
            " sm_clock_max_mhz power_limit_w git_commit git_dirty gpuadvisor",
        ),
        "baseline": _run(result.baseline),
        "best": best and {**_run(best), "knobs": result.settings},
        "contributions": _rows(
            result.contributions, "knob value ratio ci99_low=low ci99_high=high origin"
        ),
        "equivalence": _equivalence(result.equivalence),
        "rehearsal": result.rehearsal and _rehearsal(result.rehearsal),
        "dropped": [
            {**_fields(each, "knob value"), **_problem(each.problem)} for each in result.dropped
        ],
        "expectations": [_expectation(each) for each in result.expectations],
        **_fields(result, "no_effect untried left notes plan"),
        "screened": [
            {**_fields(each, "knob value state"),
             "ratio": each.ratio and _fields(each.ratio, "ratio ci99_low=low ci99_high=high pairs"),
             **_fields(each, "beside seconds why? later? of_computing")}
            for each in result.screened
        ],
        "supply": result.supply and {
            **_fields(result.supply, "step_ms rest_ms best_rest_ms? workers settings why?"),
            "values": _rows(
                result.supply.values,
                "settings batch_ms low_ms high_ms batches step_ms seconds failed?",
            ),
        },
        "trials": [_trial(trial) for trial in result.trials],
        "forking": result.forking and _fields(result.forking, "runs saved_s why?"),
    })  # fmt: skip


def verification_json(found: Verification) -> Json:
    """Return what became of a plan, with the study that measured it."""
    return _document({
        "schema_version": VERIFICATION_VERSION,
        **_fields(found, "outcome reason plan"),
        "promised": found.promised and _fields(found.promised, SPEEDUP),
        **_fields(found, "least_ratio"),
        "is_rehearsed": missing(found.result.rehearsal) is None,
        **_fields(found, "rehearsed_by"),
        "study": study_json(found.result),
    })  # fmt: skip


def studies_json(records: Sequence[StudyRecord]) -> Json:
    """Return a list of studies, without their trials."""
    names = "study=name started? ended wall_s interrupted? script args is_module folder? verifies"
    return _document({
        "schema_version": STUDIES_VERSION,
        "studies": [
            {
                **_fields(each, names),
                "level": str(each.level),
                **_fields(each, "objective verdict knobs=settings plan"),
                "speedup": each.speedup and _fields(each.speedup, SPEEDUP),
                "device": _device(each.environment.device, "kind name uuid"),
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
    return _document({
        "schema_version": STUDIES_VERSION,
        "studies": [
            {**{name: value for name, value in document.items() if name not in left_out},
             "folder": each.folder or None}
            for each, document in whole
        ],
        "settings": differences(comparison.settings),
        "environment": differences(comparison.environment),
        "not_comparable": _rows(comparison.obstacles, "figures why"),
        "remarks": comparison.remarks,
    })  # fmt: skip


def _run(measurement: Measurement) -> Json:
    measured = figures.quantities(measurement)
    return {
        "step_ms": _fields(measured, "p50=p50_ms p95=p95_ms mean=mean_ms"),
        **_fields(measured, "throughput throughput_unit=unit samples_per_step"),
        **_fields(measured, "peak_memory_bytes energy_j_per_step"),
        "steps": measurement.steps,
    }


def _equivalence(found: Equivalence | None) -> Json:
    nothing = Equivalence("not_checked", "", reason="there is nothing to compare")
    return _fields(found or nothing, "status metric? value limit reason?")


def _rehearsal(rehearsal: Rehearsal) -> Json:
    return {
        "knobs": rehearsal.settings,
        **_fields(rehearsal, "agrees covered not_covered"),
        "problems": [
            {**_problem(each), **_fields(each, "suspects")} for each in rehearsal.problems
        ],
        **_fields(rehearsal, "epochs lived_epochs samples changes_results"),
        "equivalence": _equivalence(rehearsal.equivalence),
        "forecast": rehearsal.forecast
        and _fields(
            rehearsal.forecast,
            "saved_s whole_s epochs later_ratio extra_start_s break_even_steps",
        ),
        **_fields(rehearsal, "doubt? wall_s"),
    }


def _problem(problem: Problem) -> Json:
    return _fields(problem, "aspect sentence")


def _expectation(expectation: Expectation) -> Json:
    low, high = expectation.low_pct, expectation.high_pct
    estimated = low is not None and high is not None
    ends = expectation.measured_low_pct, expectation.measured_high_pct
    measured = expectation.measured_pct is not None and None not in ends
    return {
        **_fields(expectation, "rule severity summary"),
        "predicted_pct": {"low": low, "high": high} if estimated else None,
        "measured_pct": _fields(
            expectation, "value=measured_pct low=measured_low_pct high=measured_high_pct"
        )
        if measured
        else None,
        **_fields(expectation, "is_met knobs measured_with=settings"),
        **_fields(expectation, "why_not_measured=why?"),
    }


def _trial(trial: Trial) -> Json:
    return {
        **_fields(trial, "number phase knobs=settings state reason?"),
        **_fields(figures.quantities(trial.measurement), "step_ms=mean_ms throughput"),
        **_fields(trial, "gain gpu wall_s disturbance? start_saved_s"),
        "in_turns": trial.in_turns and _fields(trial.in_turns, "base_ms head_ms"),
    }


# -- profiles ------------------------------------------------------------------------------------


def profile_json(report: ProfileReport) -> Json:
    """Return the profile's facts as values that are valid JSON."""
    facts, header = report.facts, report.facts.profile.header
    peaks = report.ceilings.by_quantity if report.ceilings else {}
    queues = () if "queues" in facts.not_measured else facts.queues
    return _document({
        "schema_version": PROFILE_VERSION,
        "kind": "profile",
        **_fields(report, "profile=name file?"),
        **_fields(header, "source tool? begin_unix_ns duration_ns rank world_size"),
        "devices": [
            _device(each, "index name compute_capability multiprocessors=sm_count memory_bytes")
            for each in header.devices
        ],
        "ceilings": [
            {"quantity": name, **_fields(peak, "value unit source measured")}
            for name, peak in peaks.items()
        ],
        "time": [
            {"device": device, **_fields(each, "span_ns busy_ns busy_share parts_ns")}
            for device, each in facts.time_breakdowns.items()
        ],
        "looked_at": _looked_at(facts),
        "excerpt": _excerpt(facts),
        "account": _account(facts.account, report.diagnosis),
        "steps": facts.steps and _steps(facts.steps),
        "kernels_total": len(report.kernels),
        "kernels": [_kernel(row) for row in report.kernels[:MOST_ROWS]],
        "operators": _rows(
            facts.operators.by_name[:MOST_ROWS],
            "name count self_device_ns total_device_ns host_ns",
        ),
        "rooflines": _rooflines(facts),
        "copies": [
            {
                "device": each.device,
                "direction": each.direction.name.lower(),
                "source": each.source.name.lower(),
                "destination": each.destination.name.lower(),
                **_fields(each, "count bytes time_ns exposed_ns bandwidth_bytes_per_s"),
            }
            for each in facts.copies
        ],
        "communication": [
            {
                **_fields(each, "device time_ns exposed_ns"),
                "collectives": _rows(
                    each.collectives[:MOST_ROWS],
                    "name? group? group_size count time_ns exposed_ns bytes"
                    " bus_bandwidth_bytes_per_s best_bus_bandwidth_bytes_per_s",
                ),
            }
            for each in facts.communication
        ],
        "launching": _rows(
            queues,
            "device kernels short_kernels launched starved call_p50_ns latency_p50_ns"
            " latency_p95_ns depth_p50 depth_max",
        ),
        "memory": [
            {
                "device": _known(use.device),
                **_fields(use, "peak_allocated_bytes peak_reserved_bytes peak_ns older_bytes"),
                "curve": use.curve,
                "alive_at_peak": _rows(use.alive_at_peak, "bytes time_ns operator?"),
                "held_by": _held_by(facts, use.device),
            }
            for use in facts.memory
        ],
        "gaps": [
            {
                "device": idle.device,
                **_fields(gap, "begin_ns duration_ns cause cause_ns before after launched_by?"),
            }
            for idle in (facts.idle if facts.time_breakdowns else ())
            for gap in idle.longest
        ],
        "diagnosis": report.diagnosis and findings_json(report.diagnosis),
        "not_measured": facts.not_measured,
        "warnings": [*report.problems, *header.warnings],
    })  # fmt: skip


def _held_by(facts: Facts, device: int) -> Json | None:
    """Return what holds a device's memory at its peak."""
    found = next((each for each in facts.held_memory if each.device == device), None)
    if found is None:
        return None
    return {
        name: _rows(getattr(found, name), "name bytes count")
        for name in ("categories", "lines", "modules", "operators")
    }


def _looked_at(facts: Facts) -> str | None:
    return ". ".join(facts.looked_at) or None


def _excerpt(facts: Facts) -> Json | None:
    """Return which part of a large recording is looked at."""
    part = facts.fitness.excerpt
    names = "begin_ns end_ns events of_events first_step last_step of_steps"
    return None if part is None else _fields(part, names)


def _account(account: Account, diagnosis: Diagnosis | None) -> list[Json]:
    """Return where the time of each device went, to the nanosecond."""
    from gpuadvisor.reports.account_wording import claims

    claimed = claims(diagnosis)
    return [
        {
            **_fields(device, "device begin_ns end_ns"),
            "entries": [
                {
                    **_fields(each, "kind part family? time_ns"),
                    "finding": claimed.get(each.part),
                }
                for each in device.entries
            ],
            "longest": _rows(
                device.longest, "part=cause begin_ns duration_ns time_ns=cause_ns before after"
            ),
        }
        for device in account.devices
    ]


def _steps(steps: Steps) -> Json:
    return {
        "source": steps.source,
        "count": len(steps.steps),
        **_fields(steps, "median_ns data_wait_share"),
        "each": _rows(
            steps.steps[:MOST_ROWS], "name begin_ns duration_ns device_busy_ns data_wait_ns"
        ),
    }


def _kernel(row: KernelRow) -> Json:
    kernel = row.kernel
    return {
        **_fields(row, "name=kernel.name share count=kernel.count time_ns=kernel.time_ns"),
        **_fields(kernel, "p50_ns p95_ns"),
        "grid": None if min(kernel.grid) < 0 else kernel.grid,
        "block": None if min(kernel.block) < 0 else kernel.block,
        "registers": _known(kernel.registers),
        "shared_bytes": _known(kernel.shared_bytes),
        **_fields(kernel, "device stream"),
        **_fields(row, "occupancy limiters kineto_occupancy_is_wrong=kineto_says_zero"),
    }


def _known(value: int) -> int | None:
    return None if value == UNKNOWN else value


def _rooflines(facts: Facts) -> list[Json]:
    position = "intensity_flops_per_byte compute_share memory_share bound"
    operators = [
        {
            **_fields(each, "name=operator shapes? types? precision? count time_ns=device_ns"),
            "at_most": each.at_most,
            **_fields(each.position, f"flops_per_s bytes_per_s {position}"),
        }
        for each in facts.rooflines[:MOST_ROWS]
    ]
    return operators + [
        {
            **{"name": each.name, "shapes": None, "types": None, "precision": None, "count": 1},
            "at_most": False,
            "time_ns": None if each.seconds is None else each.seconds * 1e9,
            **_fields(each, f"flops_per_s bytes_per_s=bandwidth_bytes_per_s {position}"),
        }
        for each in facts.ncu_kernels[:MOST_ROWS]
    ]


# -- diagnoses -----------------------------------------------------------------------------------


def diagnosis_json(report: DiagnosisReport) -> Json:
    """Return what the rules say of a run, and which run that was, as values that are valid JSON."""
    return _document({
        "version": DIAGNOSIS_VERSION,
        "kind": "diagnosis",
        **_fields(report, "profile=stored file? script? source"),
        **findings_json(report.diagnosis),
        "looked_at": report.profile and _looked_at(report.profile.facts),
        "excerpt": report.profile and _excerpt(report.profile.facts),
        "account": report.profile and _account(report.profile.facts.account, report.diagnosis),
        "counted": _counted(report),
        "stalls": _stalls(report),
        "ranks": report.profile and report.profile.ranks and ranks_json(report.profile.ranks),
        "notes": report.notes,
    })  # fmt: skip


def _counted(report: DiagnosisReport) -> list[Json]:
    """Return the kernels with hardware counters that findings explain too little of."""
    from gpuadvisor.reports.counted_wording import unexplained

    return [
        {
            "kernel": each.kernel.name,
            "captured_share": each.share,
            "units": {name.removeprefix("the "): level for name, level in each.kernel.units},
            "occupancy": each.kernel.metrics.achieved_occupancy,
            "waves": each.kernel.metrics.waves,
            "waits": each.kernel.waits and each.kernel.waits[0],
            "waits_share": each.kernel.waits and each.kernel.waits[1],
            "missing": each.kernel.missing,
        }
        for each in unexplained(report)
    ]


def _stalls(report: DiagnosisReport) -> list[Json]:
    """Return where the warps of kernels wait."""
    from gpuadvisor.reports.counted_wording import sampled

    return [
        {
            **_fields(each, "kernel samples"),
            "sites": _rows(each.sites, "line? instruction? reason samples share"),
        }
        for each in sampled(report)
    ]


def findings_json(diagnosis: Diagnosis) -> Json:
    """Return what the rules say."""
    together = diagnosis.together_pct
    return {
        "run_ms": diagnosis.run_ms,
        "together_pct": together and _fields(together, "low high"),
        "findings": [finding_json(each) for each in diagnosis.findings],
        "not_measured": _rows(diagnosis.not_measured, "rule why how"),
        "failed": [{"rule": rule, "error": words} for rule, words in diagnosis.failed],
    }


def finding_json(found: Finding) -> Json:
    """Return one finding."""
    improvement, captured = found.improvement_pct, found.captured_pct
    given = found.uncalibrated_pct
    return {
        **_fields(found, "rule category severity"),
        "scope": str(found.scope),
        **_fields(found, "scope_kind=scope.kind summary"),
        "evidence": _rows(found.evidence, "metric value unit threshold"),
        "improvement_pct": improvement and _fields(improvement, "low high"),
        **_fields(found, "saving_ms method advice knobs source hidden_by"),
        "captured_pct": captured and _fields(captured, "low high"),
        **({"uncalibrated_pct": _fields(given, "low high")} if given else {}),
        "place": found.place and _place(found.place),
    }


def _place(place: Place) -> Json:
    """Return a place; what is not known of it is null."""
    names = ("source", "module", "operator", "backward")
    shares = {f"{name}_pct": round(100 * getattr(place, f"{name}_share"), 1) for name in names}
    return {**_fields(place, "function? module? region? operator? shapes?"), **shares}


# -- comparisons ---------------------------------------------------------------------------------


def comparison_json(comparison: ProfileComparison) -> Json:
    """Return the comparison as values that are valid JSON."""
    operators = comparison.operators
    return _document({
        "schema_version": COMPARISON_VERSION,
        "kind": "comparison",
        "before": _side(comparison.before),
        "after": _side(comparison.after),
        "per_step": comparison.per_step,
        "parts": _changes(comparison.parts),
        "kernels": _changes(comparison.kernels),
        "operators": None if operators is None else _changes(operators),
        "copies": _changes(comparison.copies),
        "remarks": comparison.remarks,
    })  # fmt: skip


def _side(side: ComparedProfile) -> Json:
    return _fields(
        side,
        "profile=name devices source steps step_median_ns step_mean_ns data_wait_share time_ns"
        " busy_share",
    )


def _changes(changes: Sequence[Change]) -> list[Json]:
    return [
        {
            **_fields(each, "name verdict worth_ns"),
            "before": each.before and _fields(each.before, "time_ns count bytes"),
            "after": each.after and _fields(each.after, "time_ns count bytes"),
        }
        for each in changes[:MOST_CHANGES]
    ]
