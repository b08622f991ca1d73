"""What a user asks of a kernel file's study, and who is told how it goes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from gpuadvisor.collectors.devices import cores
from gpuadvisor.collectors.kernels.runner import ANSWER_S
from gpuadvisor.domain.kernel_records import Evaluation, KernelDiagnosis
from gpuadvisor.domain.knobs import Value
from gpuadvisor.domain.profile import DeviceLimits
from gpuadvisor.domain.study import Objective
from gpuadvisor.errors import UsageError
from gpuadvisor.rules.facts.ceilings import DRAM, OF_DTYPE, theoretical
from gpuadvisor.tuning.budgeting.budget_limit import BudgetLimit


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
class Work:
    """What one launch of a kernel has to do, as its file declares it."""

    kernel: str
    useful_bytes: float | None
    useful_flops: float | None
    dtype: str
    """Type of the first array, as torch names it; empty where it is not known."""


@dataclass(frozen=True)
class Goal:
    """What is good enough to end a search: a share of the roofline, or a rate."""

    amount: float
    """Percent, bytes a second, or floating-point operations a second."""
    unit: str = "%"
    """`%`, `B/s` or `FLOP/s`."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the goal of `90`, `90%`, `2.5TB/s` or `40TFLOP/s`; UsageError for others."""
        wanted = r"(\d+(?:\.\d+)?)\s*(%|([kMGTP]?)(B/s|FLOP/s))?"
        found = re.fullmatch(wanted, text.strip(), re.IGNORECASE)
        if found is None or not float(found[1]):
            raise UsageError(
                f"--stop-at {text}: give a percentage of the roofline or a rate above zero, as 90, "
                "2.5TB/s or 40TFLOP/s"
            )
        scale = 1000 ** " kmgtp".index((found[3] or " ").lower())
        unit = {"b/s": "B/s", "flop/s": "FLOP/s"}.get((found[4] or "").lower(), "%")
        return cls(float(found[1]) * scale, unit)

    def limit_ms(self, work: Work, device: DeviceLimits) -> float:
        """Return the time of a launch that reaches the goal on a GPU; UsageError where nothing says
        how long that is.

        The roofline's time is the larger of what bytes and operations take at the rates of the
        GPU's data sheet, the operations at that of `work.dtype` (float32 without tensor cores).
        Where one of the rates is not known, the other's time stands for it: no search ends too
        early for that.
        """
        declared = {"B/s": work.useful_bytes, "FLOP/s": work.useful_flops}
        if self.unit in declared:
            amount = declared[self.unit]
            if amount is None:
                missing = "bytes=" if self.unit == "B/s" else "flops="
                raise UsageError(f"--stop-at: kernel {work.kernel} has no {missing}")
            return 1e3 * amount / self.amount
        if work.useful_bytes is None and work.useful_flops is None:
            raise UsageError(f"--stop-at: kernel {work.kernel} has neither bytes= nor flops=")
        can, kind = theoretical(device), OF_DTYPE.get(work.dtype, "")
        least_s = [
            amount / peak.value
            for amount, peak in (
                (work.useful_bytes, can.get(DRAM)),
                (work.useful_flops, can.get(kind)),
            )
            if amount is not None and peak is not None
        ]
        if not least_s:
            of = f"the arithmetic rate of {work.dtype or 'its arguments'}"
            what = "the memory bandwidth" if work.useful_flops is None else of
            raise UsageError(
                f"--stop-at: {what} of {device.name} is not known: give a rate, as 2TB/s or "
                "40TFLOP/s"
            )
        return 1e3 * max(least_s) / (self.amount / 100)


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
    stop_at: Goal | None = None
    """What a point has to reach to end the search; None for nothing."""
    known_as: Path | None = None
    """File by which the store knows the kernels, where the kernel file is a passing one."""
    diagnosis: Callable[[str, str], KernelDiagnosis | None] = lambda kernel, device: None
    """Returns what a profile says of the kernel of a name on a GPU of a name, if there is one."""
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
