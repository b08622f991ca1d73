"""What a user asks of a kernel file's study, and who is told how it goes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gpuadvisor.collectors.devices import cores
from gpuadvisor.collectors.kernels.runner import ANSWER_S
from gpuadvisor.domain.kernel_records import Evaluation
from gpuadvisor.domain.knobs import Value
from gpuadvisor.domain.study import Objective
from gpuadvisor.tuning.budget import BudgetLimit


@dataclass(frozen=True)
class Effort:
    """How long a search goes on, unless a budget says otherwise."""

    budget: BudgetLimit
    patience: int
    """Evaluations in a row without 1 % of progress after which a model's search ends. [own]"""


EFFORTS: Mapping[str, Effort] = {
    "quick": Effort(BudgetLimit.parse("1m"), 30),
    "full": Effort(BudgetLimit.parse("5m"), 100),
}
OBJECTIVES = {"time": Objective.LATENCY, "energy": Objective.ENERGY}
MOST_COMPILERS = 4
"""Processes that compile ahead, unless --jobs says otherwise: a point that takes 0.4 s to compile
is checked and timed in about 0.1 s. Each proposes before it knows what came of the ones before."""


@dataclass(frozen=True)
class KernelOptions:
    """What to tune, and for how long."""

    file: Path
    python: str
    gpus: tuple[int, ...] = (0,)
    """torch's numbers of the GPUs, alike, that measure side by side."""
    budget: BudgetLimit | None = None
    """For each kernel and problem; None for what the effort says."""
    effort: str = "full"
    only: frozenset[str] = frozenset()
    """Names of the kernels to tune; empty for all."""
    strategy: str | None = None
    seed: int = 0
    resume: bool = False
    timeout_s: float = ANSWER_S
    """Longest wait for compiling, checking and timing one point."""
    jobs: int | None = None
    """Processes that compile ahead; None for as many as the cores allow, 0 for none."""
    l2: str = "cold"
    """Whether the L2 cache is overwritten before each timed launch (`cold`) or left (`warm`)."""
    objective: Objective = Objective.LATENCY
    """`LATENCY` or `ENERGY` of a launch."""
    stop_at: float | None = None
    """Share of the memory bandwidth of the GPU's data sheet that ends the search; None for none."""
    known_as: Path | None = None
    """File by which the store knows the kernels, where the kernel file is a passing one."""
    record: Path | None = None
    """File for the evaluations, which is gone on with if it is there; None for the store's own."""

    @property
    def limit(self) -> BudgetLimit:
        """What the search of one kernel and problem may use."""
        if self.budget is None and self.strategy == "all":
            return BudgetLimit()
        return self.budget or EFFORTS[self.effort].budget

    @property
    def compilers(self) -> int:
        """Processes that compile ahead."""
        if self.jobs is not None:
            return self.jobs
        return max(1, min(MOST_COMPILERS, cores() // 2))


class Progress:
    """Is told what happens; does nothing by itself."""

    def begin(self, kernel: str, problem: Mapping[str, Value], points: int) -> None:
        """A kernel's search begins."""

    def evaluated(self, evaluation: Evaluation) -> None:
        """A point was evaluated."""

    def proving(self, points: int) -> None:
        """The best points are timed again in turns."""
