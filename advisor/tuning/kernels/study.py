"""A kernel file's study: each kernel and problem searched, the best re-measured and proven."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from statistics import median
from typing import Any

from gpuadvisor.collectors.kernels.runner import ANSWER_S, Answer, KernelProcess
from gpuadvisor.domain.kernel_records import Evaluation, KernelResult, Record
from gpuadvisor.domain.knobs import Value
from gpuadvisor.domain.study import Speedup, TrialState, Verdict
from gpuadvisor.errors import AdvisorError, UsageError
from gpuadvisor.storage import kernel_caches
from gpuadvisor.storage.home import home
from gpuadvisor.tuners.point_search import PointSearch
from gpuadvisor.tuners.points import Points
from gpuadvisor.tuners.space import Parameter, Point
from gpuadvisor.tuners.statistics import paired_ratio
from gpuadvisor.tuning.budget import BudgetLimit
from gpuadvisor.tuning.kernels.evaluator import PointEvaluator, trial_of

FINALISTS = 5
"""Points that are timed again in turns: the best of single measurements is 0.4 to 0.7 % too good
on noisy published spaces, and in 5 % of draws up to 6.7 % slower than another."""
FINAL_ROUNDS = 60
"""Rounds of the finalists, of which the fastest is then proven."""
BLOCKS, BLOCK_ROUNDS = 12, 20
"""Blocks of the proof, whose mean times are its pairs, and rounds in each."""
WORTH = 0.01
"""Gain below which no point is called better: it costs a change of the code."""


@dataclass(frozen=True)
class KernelOptions:
    """What to tune, and for how long."""

    file: Path
    python: str
    gpu: int = 0
    """torch's number of the GPU."""
    budget: BudgetLimit = field(default_factory=lambda: BudgetLimit.parse("5m"))
    """For each kernel and problem."""
    only: frozenset[str] = frozenset()
    """Names of the kernels to tune; empty for all."""
    strategy: str | None = None
    seed: int = 0
    resume: bool = False
    timeout_s: float = ANSWER_S
    """Longest wait for compiling, checking and timing one point."""


class Progress:
    """Is told what happens; does nothing by itself."""

    def begin(self, kernel: str, problem: Mapping[str, Value], points: int) -> None:
        """A kernel's search begins."""

    def evaluated(self, evaluation: Evaluation) -> None:
        """A point was evaluated."""

    def proving(self, points: int) -> None:
        """The best points are timed again in turns."""


def tune_kernels(
    options: KernelOptions,
    progress: Progress,
    cancelled: Callable[[], bool] = lambda: False,
) -> list[KernelResult]:
    """Tune each kernel of the file for each of its problems, on a GPU of this machine.

    UsageError where the file cannot be tuned at all; what fails at single points is a result.
    """
    file = options.file.absolute()
    if not file.is_file():
        raise UsageError(f"there is no file {options.file}")
    results = []
    with KernelProcess(options.python, file, options.gpu, options.timeout_s) as process:
        described = process.describe()
        _check_names(options.only, [each["name"] for each in described])
        for number, kernel in enumerate(described):
            for place in range(len(kernel["problems"])):
                if (not options.only or kernel["name"] in options.only) and not cancelled():
                    tuning = _Tuning(options, process, progress, cancelled, kernel, number, place)
                    results.append(tuning.run())
    return results


class _Tuning:
    """One kernel for one problem."""

    def __init__(
        self,
        options: KernelOptions,
        process: KernelProcess,
        progress: Progress,
        cancelled: Callable[[], bool],
        kernel: Mapping[str, Any],
        number: int,
        place: int,
    ) -> None:
        self._options = options
        self._process = process
        self._progress = progress
        self._cancelled = cancelled
        self._kernel = kernel
        self._number = number
        self._place = place
        self._sizes: dict[str, Value] = kernel["problems"][place]["sizes"]
        self._default: dict[str, Value] = kernel["default"]
        self._parameters = {n: tuple(values) for n, values in kernel["parameters"].items()}
        parameters = [
            Parameter(name, values, self._default[name])
            for name, values in self._parameters.items()
        ]
        self._points = Points(parameters, kernel["problems"][place]["points"])

    def run(self) -> KernelResult:
        """Search, prove, and return what came of it."""
        began_s = time.monotonic()
        self._progress.begin(self._kernel["name"], self._sizes, len(self._points))
        restarts = self._process.restarts
        opened = self._process.open(self._number, self._place, self._options.seed)
        cache = self._cache(opened["device"])
        earlier = cache.earlier

        def keep(evaluation: Evaluation) -> None:
            cache.add(evaluation)
            self._progress.evaluated(evaluation)

        evaluator = PointEvaluator(
            self._measured, self._options.budget, self._cancelled, keep, spent=len(earlier)
        )
        searching_s = time.monotonic()
        self._search(evaluator, earlier)
        choosing_s = time.monotonic() - searching_s - evaluator.measuring_s
        evaluations = (*earlier, *evaluator.evaluations)
        proof = None if self._cancelled() else self._prove(evaluations)
        cache.finish()
        return self._result(
            opened,
            evaluations,
            proof,
            record=str(cache.path),
            wall_s=time.monotonic() - began_s,
            search_s=choosing_s,
            restarts=self._process.restarts - restarts,
            interrupted="interrupted" if self._cancelled() else "",
        )

    def _search(self, evaluator: PointEvaluator, earlier: Sequence[Evaluation]) -> None:
        known = [
            (row, trial_of(each, -number))
            for number, each in enumerate(earlier, 1)
            if (row := self._points.find(each.point)) is not None
        ]
        start = self._points.find(self._default)
        search = PointSearch(evaluator, self._points, self._options.seed, self._options.strategy)
        search.run([] if start is None else [start], known)

    def _measured(self, point: Point, give_up_at: float | None) -> Evaluation:
        answer = self._process.measure(point, give_up_at)
        return evaluation_of(point, answer)

    def _prove(self, evaluations: Sequence[Evaluation]) -> _Proof | None:
        """Time the best again in turns with the default, then the fastest of them in a fresh
        process, which alone gives the interval: whoever picks the fastest picks luck, too.
        """
        ranked = sorted(
            (each for each in evaluations if each.state is TrialState.COMPLETE and each.gain),
            key=lambda each: -(each.gain or 0.0),
        )
        finalists = [dict(e.point) for e in ranked if dict(e.point) != self._default][:FINALISTS]
        if not finalists:
            return None
        self._progress.proving(len(finalists))
        rounds = self._process.prove(finalists, FINAL_ROUNDS)
        medians = [median(times) for times in rounds]
        best = finalists[min(range(len(finalists)), key=lambda n: medians[n + 1])]
        self._process.close()
        base, head = self._process.prove([best], BLOCKS * BLOCK_ROUNDS)
        pairs = list(zip(_blocks(base), _blocks(head), strict=True))
        return _Proof(best, paired_ratio(pairs), median(base), median(head))

    def _result(
        self, opened: Answer, evaluations: tuple[Evaluation, ...], proof: _Proof | None, **rest: Any
    ) -> KernelResult:
        verdict = Verdict.NOT_TRIED
        if proof is not None:
            verdict = proof.verdict
        is_best = proof is not None and verdict is Verdict.FASTER
        return KernelResult(
            self._kernel["name"],
            self._sizes,
            opened["device"],
            len(self._points),
            self._default,
            verdict,
            best=proof.point if proof is not None and is_best else None,
            speedup=None if proof is None else proof.speedup,
            default_ms=None if proof is None else proof.default_ms,
            best_ms=proof.best_ms if proof is not None else None,
            evaluations=evaluations,
            useful_bytes=opened["bytes"],
            useful_flops=opened["flops"],
            has_reference=self._kernel["has_reference"],
            repeats=opened["repeats"],
            **rest,
        )

    def _cache(self, device: str) -> kernel_caches.Cache:
        name = self._kernel["name"]
        record = Record(name, device, self._sizes, self._parameters)
        path = cache_path(self._options.file, name, self._sizes, device)
        if not self._options.resume:
            path.unlink(missing_ok=True)
        return kernel_caches.Cache(path, record)


@dataclass(frozen=True)
class _Proof:
    """The fastest point timed again beside the default."""

    point: Mapping[str, Value]
    speedup: Speedup
    default_ms: float
    best_ms: float

    @property
    def verdict(self) -> Verdict:
        if self.speedup.ci99_low > 1 + WORTH:
            return Verdict.FASTER
        return Verdict.NO_GAIN if self.speedup.ci99_high < 1 + WORTH else Verdict.INCONCLUSIVE


def cache_path(file: Path, kernel: str, sizes: Mapping[str, Value], device: str) -> Path:
    """Return where the store keeps the evaluations of a kernel, problem and device."""
    where = sha256(str(file.absolute()).encode()).hexdigest()[:8]
    words = [kernel, *(f"{name}{value}" for name, value in sizes.items()), device]
    name = "-".join("".join(c if c.isalnum() else "_" for c in str(word)) for word in words)
    return home() / "kernels" / f"{file.stem}-{where}" / f"{name[:200]}.json"


def evaluation_of(point: Point, answer: Answer) -> Evaluation:
    """Return what the measuring process said of a point."""
    return Evaluation(
        dict(point),
        TrialState(answer["state"]),
        answer["reason"],
        times_ms=tuple(answer.get("times_ms", ())),
        default_ms=tuple(answer.get("default_ms", ())),
        compile_ms=answer.get("compile_ms", 0.0),
        check_ms=answer.get("check_ms", 0.0),
        timing_ms=answer.get("timing_ms", 0.0),
        resources=answer.get("resources", {}),
    )


def _blocks(times: Sequence[float]) -> list[float]:
    """Return the mean time of each block of rounds."""
    size = len(times) // BLOCKS
    return [sum(times[n * size : (n + 1) * size]) / size for n in range(BLOCKS)]


def _check_names(wanted: frozenset[str], there: Sequence[str]) -> None:
    for name in sorted(wanted - set(there)):
        raise UsageError(f"--kernel {name}: the file has no such kernel; it has {', '.join(there)}")


def check_evaluated(results: Sequence[KernelResult]) -> None:
    """Raise AdvisorError where nothing at all could be evaluated."""
    if results and not any(result.evaluations for result in results):
        raise AdvisorError("no point was evaluated: give a larger --budget")
