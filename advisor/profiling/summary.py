"""Summaries of stored profiles, in a few lines or as JSON, and a first look at their times."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from gpuadvisor.domain.profile import ON_DEVICE, TOLD_BY, Header, Range
from gpuadvisor.printable import printable

if TYPE_CHECKING:  # a list of profiles needs neither numpy nor facts
    from gpuadvisor.rules.facts.summary import Facts
    from gpuadvisor.storage.models import ProfileRecord
    from gpuadvisor.storage.profiles.stored import StoredProfile

COUNTED = ("kernels", "copies", "operators")
WIDTH = 14
"""Characters before what is said."""
SHOWN = 5
"""Kernels or operators that a first look names."""
NAME_WIDTH = 60
"""Characters of such a name that are printed."""


def steps(profile: StoredProfile) -> int:
    """Return how many steps of the profiler's schedule a profile has."""
    kinds = profile.columns("ranges", ["kind"])["kind"]
    return int((kinds == Range.STEP).sum())


def as_json(profile: StoredProfile, *, is_new: bool) -> dict[str, Any]:
    """Return all that is said of a profile without its events."""
    header = profile.header
    return {
        **record_as_json(profile.record),
        "is_new": is_new,
        "steps": steps(profile),
        "devices": [device.name for device in header.devices],
        "facts": dict(header.facts),
        "not_measured": dict(header.not_measured),
        "warnings": list(header.warnings),
    }


def record_as_json(record: ProfileRecord) -> dict[str, Any]:
    """Return what a list says of a profile."""
    return {
        "id": record.id,
        "name": record.name,
        "source": record.source,
        "tool": record.tool,
        "path": record.path or None,
        "size_bytes": record.size_bytes,
        "sha256": record.digest,
        "imported": record.imported,
        "begin_unix_ns": record.begin_unix_ns,
        "duration_ns": record.duration_ns,
        "rank": record.rank,
        "world_size": record.world_size,
        "ranks_of": record.ranks_of or None,
        "rows": dict(record.table_rows),
    }


def lines(profile: StoredProfile, *, is_new: bool) -> list[str]:
    """Return what is printed of a profile that was imported."""
    header, record = profile.header, profile.record
    state = "" if is_new else "  (the same file is stored already: nothing was added)"
    devices = [device.name for device in header.devices]
    if not devices and not any(map(profile.rows, ON_DEVICE)):
        devices = ["no GPU"]
    counts = [f"{profile.rows(table):,} {table}" for table in COUNTED]
    if marked := steps(profile):  # a diagnosis may know others, by an optimizer or ranges
        counts.append("1 step" if marked == 1 else f"{marked:,} steps")
    rank = "" if record.rank is None else f"{record.rank}"
    if rank and record.world_size:
        rank += f" of {record.world_size}"
    facts = [
        ("source", ", ".join(filter(None, (header.source, header.tool)))),
        ("device", ", ".join(f"{devices.count(each)} x {each}" if devices.count(each) > 1 else each
                             for each in dict.fromkeys(devices))),
        ("rank", rank),
        ("duration", duration(record.duration_ns) if record.duration_ns else ""),
        ("events", ", ".join(counts)),
        ("not measured", _not_measured(header)),
        *(("warning", warning) for warning in header.warnings),
    ]  # fmt: skip
    shown = (f"  {name:<{WIDTH}}{text}" for name, text in facts if text)
    return [printable(line) for line in (f"{record.name}{state}", *shown)]


def table(records: list[ProfileRecord]) -> list[str]:
    """Return the list of stored profiles, a line each under a line of titles."""
    cells: list[tuple[str, ...]] = [
        ("NAME", "SOURCE", "IMPORTED", "DURATION", "KERNELS", "OPERATORS", "FILE")
    ]
    for each in records:
        rows = [f"{each.table_rows.get(name, 0):,}" for name in ("kernels", "operators")]
        moment = each.imported.replace("T", " ")[:16]
        cells.append(
            (each.name, each.source, moment, duration(each.duration_ns), *rows, each.path or "-")
        )
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [printable("  ".join(map(str.ljust, row, widths)).rstrip()) for row in cells]


def _not_measured(header: Header) -> str:
    """Return the names only: why, and what to do about it, is in the report and in JSON."""
    empty = header.not_measured
    tables = [name for name in empty if "." not in name and TOLD_BY.get(name) not in empty]
    parts = [n for n in header.not_measured if "." in n and n.partition(".")[0] not in tables]
    return ", ".join([*tables, *parts])


def duration(nanoseconds: int) -> str:
    """Return a duration in the unit that suits it."""
    for scale, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "us")):
        if nanoseconds >= scale:
            return f"{nanoseconds / scale:.4g} {unit}"
    return f"{nanoseconds} ns"


def where_time_went(facts: Facts) -> dict[str, Any]:
    """Return a first look at a profile, as plain values. What is not known is not there."""
    from gpuadvisor.rules.facts.time_breakdown import IDLE

    profile = facts.profile
    look: dict[str, Any] = {}
    times: dict[str, int]
    if facts.steps is not None:
        look["steps"] = {
            "count": len(facts.steps.steps),
            "median_ms": facts.steps.median_ns / 1e6,
            "data_wait_share": facts.steps.data_wait_share,
        }
    if profile.rows("kernels"):
        look["devices"] = [
            {
                "device": device,
                "busy_share": each.busy_share,
                "idle_ms": {str(part): each.parts_ns[part] / 1e6 for part in IDLE},
            }
            for device, each in facts.time_breakdowns.items()
        ]
        times = {}
        for kernel in facts.kernels:
            times[kernel.name] = times.get(kernel.name, 0) + kernel.time_ns
        look["kernels"] = _largest(times, sum(times.values()))
    elif profile.rows("operators"):
        # With the operators that they call, so their shares do not add up to one.
        times = {operator.name: operator.host_ns for operator in facts.operators.by_name}
        look["operators"] = _largest(times, profile.header.duration_ns)
    return look


def _largest(times_ns: dict[str, int], total_ns: int) -> list[dict[str, Any]]:
    ordered = sorted(times_ns.items(), key=lambda each: -each[1])[:SHOWN]
    return [
        {"name": name, "time_ms": time_ns / 1e6, "share": time_ns / max(total_ns, 1)}
        for name, time_ns in ordered
        if time_ns
    ]


def look_lines(look: dict[str, Any]) -> Iterator[str]:
    """Yield a first look as lines of text."""
    if steps := look.get("steps"):
        median = duration(round(1e6 * steps["median_ms"]))
        is_one = steps["count"] == 1
        yield f"1 step of {median}" if is_one else f"{steps['count']} steps, {median} each (median)"
    for device in look.get("devices", ()):
        idle = {cause: ms for cause, ms in device["idle_ms"].items() if ms}
        total = sum(idle.values()) or 1.0
        by_size = sorted(idle.items(), key=lambda each: -each[1])
        parts = [f"{c.replace('_', ' ')} {ms / total:.0%}" for c, ms in by_size]
        because = f"; idle because of: {', '.join(parts)}" if parts else ""
        yield f"GPU {device['device']} busy {device['busy_share']:.0%} of the run{because}"
    titles = {
        "kernels": "kernels that take most of the GPU's time:",
        "operators": "operators that take most of the host's time, with what they call:",
    }
    for what, title in titles.items():
        if look.get(what):
            yield title
        for each in look.get(what, ()):
            share, name = each["share"], each["name"][:NAME_WIDTH]
            yield f"  {share:>6.1%}  {each['time_ms']:>10,.3f} ms  {name}"
