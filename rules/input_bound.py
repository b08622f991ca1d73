"""The script waits for its input pipeline."""

from __future__ import annotations

from gpuadvisor.domain.finding import Finding
from gpuadvisor.domain.measurement import Measurement

WAITING_SHARE = 0.1
"""Share of the time spent in the loaders' `__next__` above which they are worth tuning first. A
loader that keeps up answers from its queue in well under 1 % of a step."""

LOADER_KNOBS = ("dataloader_workers", "pin_memory", "prefetch_factor", "persistent_workers")


def check(measurement: Measurement) -> Finding | None:
    """Find time that the script itself spends waiting for batches."""
    share = measurement.data_wait_share
    if not measurement.facts.loaders or share < WAITING_SHARE:
        return None
    workers = measurement.facts.loaders[0].num_workers
    return Finding(
        rule="input_bound",
        share=share,
        sentence=f"{share:.0%} of the time goes into waiting for batches "
        f"from a DataLoader with {workers} worker{'' if workers == 1 else 's'}",
        knobs=LOADER_KNOBS,
    )
