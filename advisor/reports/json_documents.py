"""Profiles, diagnoses and comparisons for machines.

Every field is explained in docs/json.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuadvisor.domain.profile import UNKNOWN
from gpuadvisor.domain.unprofiled import unprofiled_steps
from gpuadvisor.reports.json_fields import Json, device_fields, document, fields, rows
from gpuadvisor.reports.profile.ranks import ranks_json
from gpuadvisor.rules.paces import why_not_timed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuadvisor.domain.finding import Diagnosis, Finding, Place
    from gpuadvisor.reports.diagnosis.report import DiagnosisReport
    from gpuadvisor.reports.profile.report import KernelRow, ProfileReport
    from gpuadvisor.rules.facts.account import Account
    from gpuadvisor.rules.facts.comparison import Change, ComparedProfile, ProfileComparison
    from gpuadvisor.rules.facts.steps import Steps
    from gpuadvisor.rules.facts.summary import Facts

PROFILE_VERSION = DIAGNOSIS_VERSION = COMPARISON_VERSION = 1
"""Versions of the JSON: one grows when a field goes or changes its meaning, not when one is
added."""
MOST_ROWS = 1000
"""Kernels and operators of a profile, those with most time: a hostile trace may have millions."""
LIMITS = "index name compute_capability multiprocessors=sm_count memory_bytes"
"""Fields of a GPU that a profile is of."""
MOST_CHANGES = 2000
"""Kernels and operators of a comparison, those that changed most."""


# -- profiles ------------------------------------------------------------------------------------


def profile_json(report: ProfileReport) -> Json:
    """Return the profile's facts as values that are valid JSON."""
    facts, header = report.facts, report.facts.profile.header
    peaks = report.ceilings.by_quantity if report.ceilings else {}
    queues = () if "queues" in facts.not_measured else facts.queues
    from gpuadvisor.reports.diagnosis.report import of_profile

    return document({
        "schema_version": PROFILE_VERSION,
        "kind": "profile",
        **fields(report, "profile=name file?"),
        **fields(header, "source tool? begin_unix_ns duration_ns rank world_size"),
        "devices": [
            device_fields(each, LIMITS)
            for each in header.devices
        ],
        "ceilings": [
            {"quantity": name, **fields(peak, "value unit source measured")}
            for name, peak in peaks.items()
        ],
        "time": [
            {"device": device, **fields(each, "span_ns busy_ns busy_share parts_ns")}
            for device, each in facts.time_breakdowns.items()
        ],
        "looked_at": _looked_at(facts),
        "excerpt": _excerpt(facts),
        "account": _account(facts.account, report.diagnosis),
        "cpu_samples": _cpu_samples(facts),
        "steps": facts.steps and _steps(facts.steps),
        "kernels_total": len(report.kernels),
        "kernels": [_kernel(row) for row in report.kernels[:MOST_ROWS]],
        "operators": rows(
            facts.operators.by_name[:MOST_ROWS],
            "name count self_device_ns total_device_ns host_ns",
        ),
        "rooflines": _rooflines(facts),
        "copies": _copies(facts),
        "communication": _communication(facts),
        "launching": rows(
            queues,
            "device kernels short_kernels launched starved call_p50_ns latency_p50_ns"
            " latency_p95_ns depth_p50 depth_max",
        ),
        "memory": _memory(facts),
        "gaps": [
            {
                "device": idle.device,
                **fields(gap, "begin_ns duration_ns cause cause_ns before after launched_by?"),
            }
            for idle in (facts.idle if facts.time_breakdowns else ())
            for gap in idle.longest
        ],
        "diagnosis": (diagnosed := of_profile(report)) and findings_json(diagnosed),
        "not_measured": facts.not_measured,
        "warnings": [*report.problems, *header.warnings],
    })  # fmt: skip


def _copies(facts: Facts) -> list[Json]:
    return [
        {
            "device": each.device,
            "direction": each.direction.name.lower(),
            "source": each.source.name.lower(),
            "destination": each.destination.name.lower(),
            **fields(each, "count bytes time_ns exposed_ns bandwidth_bytes_per_s"),
        }
        for each in facts.copies
    ]


def _communication(facts: Facts) -> list[Json]:
    return [
        {
            **fields(each, "device time_ns exposed_ns"),
            "collectives": rows(
                each.collectives[:MOST_ROWS],
                "name? group? group_size count time_ns exposed_ns bytes"
                " bus_bandwidth_bytes_per_s best_bus_bandwidth_bytes_per_s",
            ),
        }
        for each in facts.communication
    ]


def _memory(facts: Facts) -> list[Json]:
    return [
        {
            "device": _known(use.device),
            **fields(use, "peak_allocated_bytes peak_reserved_bytes peak_ns older_bytes"),
            "curve": use.curve,
            "alive_at_peak": rows(use.alive_at_peak, "bytes time_ns operator?"),
            "held_by": _held_by(facts, use.device),
        }
        for use in facts.memory
    ]


def _held_by(facts: Facts, device: int) -> Json | None:
    """Return what holds a device's memory at its peak."""
    found = next((each for each in facts.held_memory if each.device == device), None)
    if found is None:
        return None
    return {
        name: rows(getattr(found, name), "name bytes count")
        for name in ("categories", "lines", "modules", "operators")
    }


def _looked_at(facts: Facts) -> str | None:
    return ". ".join(facts.looked_at) or None


def _excerpt(facts: Facts) -> Json | None:
    """Return which part of a large recording is looked at."""
    part = facts.fitness.excerpt
    names = "begin_ns end_ns events of_events first_step last_step of_steps"
    return None if part is None else fields(part, names)


def _account(account: Account, diagnosis: Diagnosis | None) -> list[Json]:
    """Return where the time of each device went, to the nanosecond."""
    from gpuadvisor.reports.diagnosis.account import claims

    claimed = claims(diagnosis)
    return [
        {
            **fields(device, "device begin_ns end_ns"),
            "entries": [
                {
                    **fields(each, "kind part family? time_ns"),
                    "finding": claimed.get(each.part),
                }
                for each in device.entries
            ],
            "longest": rows(
                device.longest, "part=cause begin_ns duration_ns time_ns=cause_ns before after"
            ),
        }
        for device in account.devices
    ]


def _cpu_samples(facts: Facts) -> Json | None:
    """Return what the thread that launches executed in its own time, as far as it was sampled."""
    found = facts.cpu_samples if facts.has_timeline else None
    if found is None:
        return None
    return {
        "samples": found.samples,
        "modules": rows(found.modules, "module samples share low high"),
        "functions": rows(found.functions, "module? function samples share low high"),
    }


def _steps(steps: Steps) -> Json:
    return {
        "source": steps.source,
        "count": len(steps.steps),
        **fields(steps, "median_ns data_wait_share"),
        "each": rows(
            steps.steps[:MOST_ROWS], "name begin_ns duration_ns device_busy_ns data_wait_ns"
        ),
    }


def _kernel(row: KernelRow) -> Json:
    kernel = row.kernel
    return {
        **fields(row, "name=kernel.name share count=kernel.count time_ns=kernel.time_ns"),
        **fields(kernel, "p50_ns p95_ns"),
        "grid": None if min(kernel.grid) < 0 else kernel.grid,
        "block": None if min(kernel.block) < 0 else kernel.block,
        "registers": _known(kernel.registers),
        "shared_bytes": _known(kernel.shared_bytes),
        **fields(kernel, "device stream"),
        **fields(row, "occupancy limiters kineto_occupancy_is_wrong=kineto_says_zero"),
    }


def _known(value: int) -> int | None:
    return None if value == UNKNOWN else value


def _rooflines(facts: Facts) -> list[Json]:
    position = "intensity_flops_per_byte compute_share memory_share bound"
    operators = [
        {
            **fields(each, "name=operator shapes? types? precision? count time_ns=device_ns"),
            "at_most": each.at_most,
            **fields(each.position, f"flops_per_s bytes_per_s {position}"),
        }
        for each in facts.rooflines[:MOST_ROWS]
    ]
    return operators + [
        {
            **{"name": each.name, "shapes": None, "types": None, "precision": None, "count": 1},
            "at_most": False,
            "time_ns": None if each.seconds is None else each.seconds * 1e9,
            **fields(each, f"flops_per_s bytes_per_s=bandwidth_bytes_per_s {position}"),
        }
        for each in facts.ncu_kernels[:MOST_ROWS]
    ]


# -- diagnoses -----------------------------------------------------------------------------------


def diagnosis_json(report: DiagnosisReport) -> Json:
    """Return what the rules say of a run, and which run that was, as values that are valid JSON."""
    return document({
        "version": DIAGNOSIS_VERSION,
        "kind": "diagnosis",
        **fields(report, "profile=stored file? script? source"),
        "unprofiled_step_ms": report.profile and _unprofiled_step_ms(report.profile.facts),
        "unprofiled_not_used": report.profile and (why_not_timed(report.profile.facts) or None),
        **findings_json(report),
        "looked_at": report.profile and _looked_at(report.profile.facts),
        "excerpt": report.profile and _excerpt(report.profile.facts),
        "account": report.profile and _account(report.profile.facts.account, report.diagnosis),
        "cpu_samples": report.profile and _cpu_samples(report.profile.facts),
        "counted": _counted(report),
        "stalls": _stalls(report),
        "ranks": report.profile and report.profile.ranks and ranks_json(report.profile.ranks),
        "notes": report.notes,
    })  # fmt: skip


def _unprofiled_step_ms(facts: Facts) -> float | None:
    steps = unprofiled_steps(facts.profile.header.facts)
    return None if steps is None else steps.mean_ns / 1e6


def _counted(report: DiagnosisReport) -> list[Json]:
    """Return the kernels with hardware counters that findings explain too little of."""
    from gpuadvisor.reports.diagnosis.counted import unexplained

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
    from gpuadvisor.reports.diagnosis.counted import sampled

    return [
        {
            **fields(each, "kernel samples"),
            "sites": rows(each.sites, "line? instruction? reason samples share"),
        }
        for each in sampled(report)
    ]


def findings_json(report: DiagnosisReport) -> Json:
    """Return what the rules say."""
    diagnosis = report.diagnosis
    together = diagnosis.together_pct
    return {
        "run_ms": diagnosis.run_ms,
        "together_pct": together and fields(together, "low high"),
        "findings": [finding_json(each) for each in diagnosis.findings],
        "not_measured": rows(report.not_measured, "rule why how"),
        "failed": [{"rule": rule, "error": words} for rule, words in diagnosis.failed],
    }


def finding_json(found: Finding) -> Json:
    """Return one finding."""
    improvement, captured = found.improvement_pct, found.captured_pct
    given = found.uncalibrated_pct
    return {
        **fields(found, "rule category severity"),
        "scope": str(found.scope),
        **fields(found, "scope_kind=scope.kind summary"),
        "evidence": rows(found.evidence, "metric value unit threshold"),
        "improvement_pct": improvement and fields(improvement, "low high"),
        **fields(found, "saving_ms method advice knobs source hidden_by"),
        "captured_pct": captured and fields(captured, "low high"),
        **({"uncalibrated_pct": fields(given, "low high")} if given else {}),
        "place": found.place and _place(found.place),
    }


def _place(place: Place) -> Json:
    """Return a place; what is not known of it is null."""
    names = ("source", "module", "operator", "backward")
    shares = {f"{name}_pct": round(100 * getattr(place, f"{name}_share"), 1) for name in names}
    return {**fields(place, "function? module? region? operator? shapes?"), **shares}


# -- comparisons ---------------------------------------------------------------------------------


def comparison_json(comparison: ProfileComparison) -> Json:
    """Return the comparison as values that are valid JSON."""
    operators = comparison.operators
    return document({
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
    return fields(
        side,
        "profile=name devices source steps step_median_ns step_mean_ns data_wait_share time_ns"
        " busy_share",
    )


def _changes(changes: Sequence[Change]) -> list[Json]:
    return [
        {
            **fields(each, "name verdict worth_ns"),
            "before": each.before and fields(each.before, "time_ns count bytes"),
            "after": each.after and fields(each.after, "time_ns count bytes"),
        }
        for each in changes[:MOST_CHANGES]
    ]
