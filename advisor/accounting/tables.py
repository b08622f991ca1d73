"""Jobs as a pandas table: `gpuadvisor.jobs(since="7d")`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gpuadvisor.accounting.gathering import gather
from gpuadvisor.daemon.history import Moment
from gpuadvisor.reports.jobs_document import jobs_json, main_cause, said

if TYPE_CHECKING:
    import pandas as pd

LISTS = ("causes", "advice", "pids", "gpus", "profile")
"""Fields of the JSON that no column can hold."""
FIGURES = (
    "gpu_hours", "held_hours", "shared_hours", "energy_kwh", "memory_mean_bytes", "utilization_pct",
    "sm_active_pct", "tensor_active_pct", "dram_active_pct", "cpu_cores", "children_cpu_cores",
    "wasted_gpu_hours",
)  # fmt: skip
"""Columns that may be NA, also all of them."""


def jobs(
    since: Moment = "7d", until: Moment | None = None, *, folder: Path | None = None
) -> pd.DataFrame:
    """Return the jobs that used GPUs, those that waste most first; see `telemetry` for times.

    Columns: `job`, `script`, `command`, `user`, `container`, `gpus` (numbers, with commas),
    `start`, `end` (UTC), `is_running`, `by_gpuadvisor`, `memory_max_bytes`, `gpu_hours` (its part
    where jobs shared a GPU), `held_hours` (undivided), `shared_hours`, `energy_kwh`,
    `memory_mean_bytes`, `utilization_pct`, `sm_active_pct`, `tensor_active_pct`, `dram_active_pct`,
    `cpu_cores`, `children_cpu_cores`, `wasted_gpu_hours` (at most), `cause` (of most of its time),
    `advice`, `profile` (the name of the one that the daemon had made of it) and `findings` (what
    that says, or why there is none). What was not measured, or not made, is NA.

    UsageError where there is no store yet, or an argument is wrong.
    """
    import pandas as pd

    found = gather(since, until, folder=folder)
    every = [(each.job, each.gpus, each.advice) for each in found.jobs]
    rows = []
    for told, (job, gpus, advice) in zip(
        jobs_json(found.ledger, every, 0.0)["jobs"], every, strict=True
    ):
        row = {name: value for name, value in told.items() if name not in LISTS}
        row["gpus"] = ",".join(str(gpu.index) for gpu in gpus)
        row["cause"], row["advice"] = main_cause(job), "; ".join(map(said, advice))
        made = job.profile
        row["profile"] = made.name if made else None
        row["findings"] = (made.problem or "; ".join(made.findings)) if made else None
        rows.append(row)
    table = pd.DataFrame(rows)
    for name in FIGURES if rows else ():
        table[name] = table[name].astype("float64")
    for name in ("is_running", "by_gpuadvisor") if rows else ():
        table[name] = table[name].astype("boolean")
    for name in ("profile", "findings") if rows else ():
        table[name] = table[name].astype("string")
    for name in ("start", "end") if rows else ():
        table.insert(
            table.columns.get_loc(f"{name}_s"),  # type: ignore[arg-type]
            name,
            pd.to_datetime(table.pop(f"{name}_s"), unit="s", utc=True),
        )
    return table.drop(columns=["gpu_indices"], errors="ignore")
