"""What `gpuadvisor tune-kernel` shows while it works: a line for each better point."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console
from rich.text import Text

from gpuadvisor.domain.kernel_records import Evaluation
from gpuadvisor.domain.knobs import Value
from gpuadvisor.domain.study import TrialState
from gpuadvisor.reports import figures
from gpuadvisor.tuning.kernels.options import Progress


class KernelProgress(Progress):
    """Writes to one console."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._best = 0.0
        self._count = 0

    def begin(self, kernel: str, problem: Mapping[str, Value], points: int) -> None:
        self._best, self._count = 0.0, 0
        sizes = f" {figures.settings(problem)}" if problem else ""
        self._say(f"{kernel}{sizes}: {figures.count(points, 'point')}")

    def evaluated(self, evaluation: Evaluation) -> None:
        self._count += 1
        gain = evaluation.gain or 0.0
        if evaluation.state is TrialState.COMPLETE and gain > self._best:
            self._best = gain
            time = figures.milliseconds(evaluation.time_ms)
            point = figures.settings(evaluation.point)
            self._say(f"  {self._count:>4}  {time}  {figures.ratio(gain)}  {point}")

    def proving(self, points: int) -> None:
        best = "best is" if points == 1 else f"best {points} are"
        evaluations = figures.count(self._count, "evaluation")
        self._say(f"  after {evaluations} the {best} timed again in turns")

    def _say(self, line: str) -> None:
        self._console.print(Text(line), soft_wrap=True)
