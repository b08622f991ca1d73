"""Profiles for tests of the store: rows of every table, and a header that says everything."""

from __future__ import annotations

import numpy as np

from gpuadvisor.domain.profile import TABLES, DeviceLimits, Header, Range

H100 = DeviceLimits(
    0,
    "NVIDIA H100 80GB HBM3",
    compute_capability=(9, 0),
    sm_count=132,
    memory_bytes=85_520_809_984,
    memory_bandwidth_bytes_per_s=3.35e12,
    uuid="GPU-0",
)


def batch(table, count, seed=0):
    """Return rows of a table: rising times, texts from the first four, small other numbers."""
    random = np.random.default_rng(seed)
    columns = {
        name: random.integers(-1, 4, count).astype(kind) for name, kind in TABLES[table].items()
    }
    for name in columns.keys() & {"name", "shapes", "types", "inputs", "stack", "type", "group"}:
        columns[name] = random.integers(0, 4, count).astype(np.int32)
    if "begin_ns" in columns:
        columns["begin_ns"] = np.cumsum(random.integers(0, 5000, count))
    if "duration_ns" in columns:
        columns["duration_ns"] = random.integers(0, 5000, count)
    return columns


def header(**changed):
    """Return a header with something in every field."""
    fields = {
        "source": "kineto",
        "tool": "torch 2.8.0",
        "begin_unix_ns": 1_760_000_000_000_000_000,
        "duration_ns": 123_456_789,
        "devices": (H100, DeviceLimits(1, "AMD Instinct MI300X")),
        "processes": {77: "python", 0: "GPU 0"},
        "rank": 3,
        "world_size": 8,
        "facts": {"cuda_driver_version": "12080"},
        "not_measured": {"operators.shapes": "the trace was recorded without shapes"},
        "warnings": ("2 events have no time.",),
        "texts": ("", "gemm", "relu\udcff", "ProfilerStep#1"),
    }
    return Header(**fields | changed)


def fill(sink, rows=1000, seed=0):
    """Give a sink some rows of every table; three ranges are steps."""
    for table in TABLES:
        columns = batch(table, rows, seed)
        if table == "ranges":
            columns["kind"] = np.where(np.arange(rows) < 3, Range.STEP, Range.USER).astype(np.int8)
        sink.add(table, columns)
