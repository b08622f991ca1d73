"""What the search needs from whoever runs trials; the search itself starts no process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from gpuadvisor.domain.knobs import Settings
from gpuadvisor.domain.study import Trial


class Bench(Protocol):
    """Runs the script under settings and compares each run with the baseline on the same GPU."""

    @property
    def parallel(self) -> int:
        """Trials that can run side by side, one a GPU."""
        ...

    def measure(
        self, settings: Sequence[Settings], phase: str, slower_than: float | None = None
    ) -> list[Trial]:
        """Run one trial for each settings, side by side where there are GPUs for it.

        A trial whose gain falls clearly below `slower_than` may be ended early as pruned.
        """
        ...

    def affordable(self, batch: Sequence[Settings]) -> bool:
        """Say whether the budget has room for one more trial of each of these settings."""
        ...
