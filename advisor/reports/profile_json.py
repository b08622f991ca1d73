"""A profile for machines. Every field is explained in docs/json.md."""

from __future__ import annotations

from typing import Any

from gpuadvisor.domain.profile import UNKNOWN, DeviceLimits
from gpuadvisor.reports import diagnosis_json, figures, strict_json
from gpuadvisor.reports.profile_report import KernelRow, ProfileReport
from gpuadvisor.rules.facts.kernels import KernelTime
from gpuadvisor.rules.facts.time_breakdown import TimeBreakdown

SCHEMA_VERSION = 1
"""Version of the JSON: grows when a field goes or changes its meaning, not when one is added."""
MOST_ROWS = 1000
"""Kernels and operators listed, those with most time: a hostile trace may have millions."""

Json = dict[str, Any]


def profile_json_text(report: ProfileReport) -> str:
    """Return the profile as indented JSON."""
    return strict_json.text(profile_json(report))


def profile_json(report: ProfileReport) -> Json:
    """Return the profile's facts."""
    facts = report.facts
    header = facts.profile.header
    return {
        "schema_version": SCHEMA_VERSION,
        "kind": "profile",
        "profile": report.name,
        "file": report.file or None,
        "source": header.source,
        "tool": header.tool or None,
        "begin_unix_ns": header.begin_unix_ns,
        "duration_ns": header.duration_ns,
        "rank": header.rank,
        "world_size": header.world_size,
        "devices": [_device(each) for each in header.devices],
        "ceilings": _ceilings(report),
        "time": [_account(device, each) for device, each in report.facts.time_breakdowns.items()],
        "steps": _steps(report),
        "kernels_total": len(report.kernels),
        "kernels": [_kernel(row) for row in report.kernels[:MOST_ROWS]],
        "operators": _operators(report),
        "rooflines": _rooflines(report),
        "copies": _copies(report),
        "communication": _communication(report),
        "launching": _launching(report),
        "memory": _memory(report),
        "gaps": _gaps(report),
        "diagnosis": None if report.diagnosis is None else diagnosis_json.said(report.diagnosis),
        "not_measured": dict(facts.not_measured),
        "warnings": [*report.problems, *header.warnings],
    }


def _device(device: DeviceLimits) -> Json:
    return {
        "index": device.index,
        "name": device.name,
        "compute_capability": figures.capability(device.compute_capability),
        "multiprocessors": device.sm_count,
        "memory_bytes": device.memory_bytes,
    }


def _ceilings(report: ProfileReport) -> list[Json]:
    ceilings = report.ceilings.by_quantity if report.ceilings else {}
    return [
        {"quantity": name, "value": peak.value, "unit": peak.unit, "source": peak.source,
         "measured": peak.measured}
        for name, peak in ceilings.items()
    ]  # fmt: skip


def _account(device: int, account: TimeBreakdown) -> Json:
    return {
        "device": device,
        "span_ns": account.span_ns,
        "busy_ns": account.busy_ns,
        "busy_share": account.busy_share,
        "parts_ns": {str(part): ns for part, ns in account.parts_ns.items()},
    }


def _steps(report: ProfileReport) -> Json | None:
    found = report.facts.steps
    if found is None:
        return None
    return {
        "source": str(found.source),
        "count": len(found.steps),
        "median_ns": found.median_ns,
        "data_wait_share": found.data_wait_share,
        "each": [
            {"name": each.name, "begin_ns": each.begin_ns, "duration_ns": each.duration_ns,
             "device_busy_ns": each.device_busy_ns, "data_wait_ns": each.data_wait_ns}
            for each in found.steps[:MOST_ROWS]
        ],
    }  # fmt: skip


def _kernel(row: KernelRow) -> Json:
    kernel: KernelTime = row.kernel
    return {
        "name": kernel.name,
        "share": row.share,
        "count": kernel.count,
        "time_ns": kernel.time_ns,
        "p50_ns": kernel.p50_ns,
        "p95_ns": kernel.p95_ns,
        "grid": _sizes(kernel.grid),
        "block": _sizes(kernel.block),
        "registers": _known(kernel.registers),
        "shared_bytes": _known(kernel.shared_bytes),
        "device": kernel.device,
        "stream": kernel.stream,
        "occupancy": row.occupancy,
        "limiters": list(row.limiters),
        "kineto_occupancy_is_wrong": row.kineto_says_zero,
    }


def _known(value: int) -> int | None:
    return None if value == UNKNOWN else value


def _sizes(sizes: tuple[int, int, int]) -> list[int] | None:
    return None if min(sizes) < 0 else list(sizes)


def _operators(report: ProfileReport) -> list[Json]:
    return [
        {"name": each.name, "count": each.count, "self_device_ns": each.self_device_ns,
         "total_device_ns": each.total_device_ns, "host_ns": each.host_ns}
        for each in report.facts.operators.by_name[:MOST_ROWS]
    ]  # fmt: skip


def _rooflines(report: ProfileReport) -> list[Json]:
    found: list[Json] = [
        {"name": each.operator, "shapes": each.shapes or None, "types": each.types or None,
         "precision": each.precision or None, "count": each.count, "time_ns": each.device_ns,
         "flops_per_s": each.position.flops_per_s, "bytes_per_s": each.position.bytes_per_s,
         "intensity_flops_per_byte": each.position.intensity_flops_per_byte,
         "compute_share": each.position.compute_share, "memory_share": each.position.memory_share,
         "bound": str(each.position.bound)}
        for each in report.facts.rooflines[:MOST_ROWS]
    ]  # fmt: skip
    counted = report.facts.ncu_kernels[:MOST_ROWS]
    return found + [
        {"name": each.name, "shapes": None, "types": None, "precision": None, "count": 1,
         "time_ns": None if each.seconds is None else each.seconds * 1e9,
         "flops_per_s": each.flops_per_s, "bytes_per_s": each.bandwidth_bytes_per_s,
         "intensity_flops_per_byte": each.intensity_flops_per_byte,
         "compute_share": each.compute_share, "memory_share": each.memory_share,
         "bound": str(each.bound)}
        for each in counted
    ]  # fmt: skip


def _copies(report: ProfileReport) -> list[Json]:
    return [
        {"device": each.device, "direction": each.direction.name.lower(),
         "source": each.source.name.lower(), "destination": each.destination.name.lower(),
         "count": each.count, "bytes": each.bytes, "time_ns": each.time_ns,
         "exposed_ns": each.exposed_ns, "bandwidth_bytes_per_s": each.bandwidth_bytes_per_s}
        for each in report.facts.copies
    ]  # fmt: skip


def _communication(report: ProfileReport) -> list[Json]:
    return [
        {
            "device": one.device,
            "time_ns": one.time_ns,
            "exposed_ns": one.exposed_ns,
            "collectives": [
                {"name": each.name or None, "group": each.group or None,
                 "group_size": each.group_size, "count": each.count, "time_ns": each.time_ns,
                 "exposed_ns": each.exposed_ns, "bytes": each.bytes,
                 "bus_bandwidth_bytes_per_s": each.bus_bandwidth_bytes_per_s,
                 "best_bus_bandwidth_bytes_per_s": each.best_bus_bandwidth_bytes_per_s}
                for each in one.collectives[:MOST_ROWS]
            ],
        }
        for one in report.facts.communication
    ]  # fmt: skip


def _launching(report: ProfileReport) -> list[Json]:
    if "queues" in report.facts.not_measured:
        return []
    return [
        {"device": each.device, "kernels": each.kernels, "short_kernels": each.short_kernels,
         "launched": each.launched, "starved": each.starved, "call_p50_ns": each.call_p50_ns,
         "latency_p50_ns": each.latency_p50_ns, "latency_p95_ns": each.latency_p95_ns,
         "depth_p50": each.depth_p50, "depth_max": each.depth_max}
        for each in report.facts.queues
    ]  # fmt: skip


def _memory(report: ProfileReport) -> list[Json]:
    return [
        {"device": _known(use.device), "peak_allocated_bytes": use.peak_allocated_bytes,
         "peak_reserved_bytes": use.peak_reserved_bytes, "peak_ns": use.peak_ns,
         "older_bytes": use.older_bytes, "curve": [list(point) for point in use.curve],
         "alive_at_peak": [
             {"bytes": each.bytes, "time_ns": each.time_ns, "operator": each.operator or None}
             for each in use.alive_at_peak
         ]}
        for use in report.facts.memory
    ]  # fmt: skip


def _gaps(report: ProfileReport) -> list[Json]:
    if not report.facts.time_breakdowns:
        return []
    return [
        {"device": idle.device, "begin_ns": gap.begin_ns, "duration_ns": gap.duration_ns,
         "cause": str(gap.cause), "cause_ns": gap.cause_ns, "before": gap.before,
         "after": gap.after, "launched_by": gap.launched_by or None}
        for idle in report.facts.idle
        for gap in idle.longest
    ]  # fmt: skip
