"""What a stored profile is, in a few lines or as JSON."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpuadvisor.domain.profile import Header, Range
from gpuadvisor.printable import printable
from gpuadvisor.storage.profiles.stored import ProfileRecord, StoredProfile

COUNTED = ("kernels", "copies", "operators")
WIDTH = 14
"""Characters before what is said."""


def steps(profile: StoredProfile) -> int:
    """Return how many steps of the profiler's schedule a profile has."""
    kinds = profile.columns("ranges", ["kind"])["kind"]
    return int(np.count_nonzero(kinds == Range.STEP))


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
    devices = [device.name for device in header.devices] or ["no GPU"]
    counts = [f"{profile.rows(table):,} {table}" for table in COUNTED]
    said = [
        ("source", ", ".join(filter(None, (header.source, header.tool)))),
        ("device", ", ".join(f"{devices.count(each)} x {each}" if devices.count(each) > 1 else each
                             for each in dict.fromkeys(devices))),
        ("rank", _rank(record)),
        ("duration", duration(record.duration_ns) if record.duration_ns else ""),
        ("events", ", ".join([*counts, f"{steps(profile):,} steps"])),
        ("not measured", _not_measured(header)),
        *(("warning", warning) for warning in header.warnings),
    ]  # fmt: skip
    told = (f"  {name:<{WIDTH}}{text}" for name, text in said if text)
    return [printable(line) for line in (f"{record.name}{state}", *told)]


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
    tables = [name for name in header.not_measured if "." not in name]
    parts = [n for n in header.not_measured if "." in n and n.partition(".")[0] not in tables]
    return ", ".join([*tables, *parts])


def duration(nanoseconds: int) -> str:
    """Return a duration in the unit that suits it."""
    for scale, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "us")):
        if nanoseconds >= scale:
            return f"{nanoseconds / scale:.4g} {unit}"
    return f"{nanoseconds} ns"


def _rank(record: ProfileRecord) -> str:
    if record.rank is None:
        return ""
    return f"{record.rank}" + (f" of {record.world_size}" if record.world_size else "")
