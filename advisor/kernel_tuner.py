"""Kernel Tuner's `tune_kernel` for scripts that call it: one import is changed, the call stays.

    from gpuadvisor.kernel_tuner import tune_kernel   # was: from kernel_tuner import tune_kernel

    results, env = tune_kernel("vector_add", source, n, [c, a, b, np.int32(n)], tune_params,
                               answer=[a + b, None, None, None])

The kernel is compiled ahead, checked, timed in turns and proven as `gpuadvisor tune-kernel` does.
CUDA C++ alone is taken, and the arguments of `tune_kernel` below; any other is refused by its name.
What a point must compute is `answer`, within `atol` as in `numpy.allclose`; without one, what the
first point that can be run computes.
"""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuadvisor.domain.kernel_records import Evaluation, KernelResult
from gpuadvisor.domain.knobs import Value
from gpuadvisor.domain.study import TrialState
from gpuadvisor.errors import UsageError

if TYPE_CHECKING:
    from gpuadvisor.tuning.kernels.options import KernelOptions

Point = dict[str, Value]

BLOCK_SIZE_NAMES = ("block_size_x", "block_size_y", "block_size_z")
USUAL_BLOCK = (256, 1, 1)
"""Threads of a side that no parameter names."""
RELATIVE_TOLERANCE = 1e-5
"""`numpy.allclose`'s own, which Kernel Tuner leaves as it is."""
STRATEGIES = {"brute_force": "all", "random_sample": "random"}
"""Strategies that are the same here; every other one of Kernel Tuner becomes our model's search."""
THEIRS = frozenset(
    (
        "adaptive_tabu_greywolf", "basinhopping", "bayes_opt", "diff_evo", "dual_annealing",
        "firefly_algorithm", "genetic_algorithm", "greedy_ils", "greedy_mls", "hybrid_vndx",
        "minimize", "mls", "ordered_greedy_mls", "pso", "pyatf_strategies", "simulated_annealing",
        "skopt", "bayes_opt_alt_acq", "bayes_opt_GPyTorch", "bayes_opt_GPyTorch_lean",
    )
)  # fmt: skip
LANGUAGES = frozenset(("CUDA", "CUPY", "NVCUDA"))
FIRST_TRIED = 8
"""Points that are tried as the one that others are compared with, until one can be run."""
READ_BY_KERNELS = ("cmem_args", "texmem_args")
"""What Kernel Tuner copies into memory that a kernel reads: without it, results are others."""


def tune_kernel(
    kernel_name: str,
    kernel_source: str | Path,
    problem_size: Any,
    arguments: Sequence[Any],
    tune_params: Mapping[str, Sequence[Value]],
    grid_div_x: Any = None,
    grid_div_y: Any = None,
    grid_div_z: Any = None,
    restrictions: Any = None,
    answer: Sequence[Any] | None = None,
    atol: float = 1e-6,
    verbose: bool = False,
    lang: str | None = None,
    device: int = 0,
    smem_args: Mapping[str, Any] | None = None,
    compiler_options: Sequence[str] | None = None,
    block_size_names: Sequence[str] | None = None,
    quiet: bool = False,
    strategy: str | None = None,
    strategy_options: Mapping[str, Any] | None = None,
    cache: str | Path | None = None,
    metrics: Mapping[str, Any] | None = None,
    objective: str | None = None,
    iterations: int = 7,
    seed: int = 0,
    **others: Any,
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Tune a kernel as Kernel Tuner's function of that name does, and return its two results.

    Those are a dictionary for each evaluation (the parameters, `time` and `times` in milliseconds,
    or `__error__`), and one of what they were made with, in it `best_config` and, as `gpuadvisor`,
    the `KernelResult` with verdict and interval. `strategy_options` may hold `max_fevals` and
    `time_limit` in seconds; without them every point is evaluated, unless a strategy is named: then
    the search has five minutes. How often a point is timed follows from what it takes, whatever
    `iterations` says, and `verbose` changes nothing. UsageError names what cannot be
    taken over.
    """
    from gpuadvisor.profiling.kernel_diagnosis import diagnosis_of
    from gpuadvisor.tuning.budget import BudgetLimit
    from gpuadvisor.tuning.kernels.options import KernelOptions

    _refuse(others, lang, objective, strategy, strategy_options)
    names = list(block_size_names or ()) or list(BLOCK_SIZE_NAMES)
    call = Call(
        kernel_name,
        _source(kernel_source),
        {name: [_plain(v) for v in values] for name, values in tune_params.items()},
        list(arguments),
        problem_size,
        (grid_div_x, grid_div_y, grid_div_z),
        [*names, *BLOCK_SIZE_NAMES[len(names) :]],
        (smem_args or {}).get("size", 0),
        _several(restrictions),
        answer,
        atol,
        list(compiler_options or ()),
    )
    asked = strategy_options or {}
    limit = None
    if "max_fevals" in asked:
        limit = BudgetLimit(trials=int(asked["max_fevals"]))
    elif "time_limit" in asked:
        limit = BudgetLimit(seconds=float(asked["time_limit"]))
    options = KernelOptions(
        Path(),
        sys.executable,
        (device,),
        limit,
        strategy=STRATEGIES.get(strategy or "brute_force", "model"),
        seed=seed,
        known_as=Path.cwd() / f"{kernel_name}.tune_kernel",
        diagnosis=diagnosis_of,
        record=None if cache is None else _cache_file(cache),
    )
    result = _tuned(call, options, quiet)
    rows = [_row(each, metrics) for each in result.evaluations]
    return rows, _environment(result, rows)


@dataclass(frozen=True)
class Call:
    """What is asked of a kernel, in Kernel Tuner's terms."""

    name: str
    source: str
    parameters: dict[str, list[Value]]
    arguments: list[Any]
    problem_size: Any
    grid_divisors: tuple[Any, Any, Any]
    block_size_names: list[str]
    shared_bytes: Any
    restrictions: list[Any]
    answer: Sequence[Any] | None = None
    atol: float = 1e-6
    options: list[str] = field(default_factory=list)

    @property
    def compared(self) -> list[int]:
        """Places of the arguments that are compared; UsageError for too few or many answers."""
        if self.answer is None:
            return [place for place, each in enumerate(self.arguments) if not _is_scalar(each)]
        if len(self.answer) != len(self.arguments):
            raise UsageError(
                f"tune_kernel: answer has {len(self.answer)} entries and the kernel "
                f"{len(self.arguments)} arguments: give one for each, None for those that are not "
                "compared"
            )
        return [place for place, each in enumerate(self.answer) if each is not None]

    def points(self) -> list[tuple[Value, ...]]:
        """Return the points that meet the restrictions; UsageError where there is none."""
        from gpuadvisor.domain.kernels import Kernel, declared

        kernel = Kernel(
            self.source, name=self.name, parameters=self.parameters, grid=1, arguments=[],
            restrictions=[_restriction(each, self.parameters) for each in self.restrictions],
            file=self.name,
        )  # fmt: skip
        declared()
        found = list(kernel.points({}))
        if not found:
            raise UsageError(f"tune_kernel of {self.name}: its restrictions leave no point")
        return found

    def launch(self, point: Point) -> dict[str, Any]:
        """Return grid, block and dynamic shared memory of a point."""
        size = self._problem(point)
        defaults = self.block_size_names
        divisors = [
            self._divisor(divisor, name, point)
            for divisor, name in zip(self.grid_divisors, defaults, strict=False)
        ]
        block = [
            int(point.get(name, usual))
            for name, usual in zip(defaults[:3], USUAL_BLOCK, strict=True)
        ]
        return {
            "grid": [math.ceil(side / by) for side, by in zip(size, divisors, strict=True)],
            "block": block,
            "shared_bytes": int(self._value(self.shared_bytes, point)),
        }

    @property
    def sizes(self) -> dict[str, Value]:
        """The problem's sizes by name, where they are plain numbers; else none."""
        given = self.problem_size
        several = list(given) if isinstance(given, list | tuple) else [given]
        plain = [_plain(each) for each in several]
        if not all(isinstance(each, int | float) for each in plain):
            return {}
        return {f"problem_size_{axis}": size for axis, size in zip("xyz", plain, strict=False)}

    def default(self, points: Sequence[tuple[Value, ...]]) -> list[Point]:
        """Return the points that may be what others are compared with, the most usual first: a
        block of some 256 threads, and the first value of everything else.
        """
        named = [dict(zip(self.parameters, each, strict=True)) for each in points]

        def unusual(point: Point) -> tuple[float, list[int]]:
            threads = math.prod(self.launch(point)["block"])
            places = [self.parameters[n].index(v) for n, v in point.items()
                      if n not in self.block_size_names]  # fmt: skip
            return abs(math.log2(threads / USUAL_BLOCK[0])), places

        return sorted(named, key=unusual)[:FIRST_TRIED]

    def _problem(self, point: Point) -> list[float]:
        size = self._value(self.problem_size, point)
        sides = list(size) if isinstance(size, list | tuple) else [size]
        return [float(self._value(side, point)) for side in [*sides, 1, 1][:3]]

    def _divisor(self, divisors: Any, name: str, point: Point) -> float:
        if divisors is None:
            return float(point.get(name, 1))
        found = divisors(point) if callable(divisors) else divisors
        several = found if isinstance(found, list | tuple) else [found]
        return math.prod(float(self._value(each, point)) for each in several)

    def _value(self, rule: Any, point: Point) -> Any:
        """Return a number, or what an expression or a function of all parameters comes to."""
        from gpuadvisor.domain.kernel_rules import FUNCTIONS

        if callable(rule):
            return rule(point)
        if not isinstance(rule, str):
            return _plain(rule)
        try:
            return eval(rule, {"__builtins__": {}, **FUNCTIONS, **point})
        except Exception as error:
            raise UsageError(
                f"tune_kernel of {self.name}: {rule!r} fails: {type(error).__name__}: {error}"
            ) from None


def _refuse(
    others: Mapping[str, Any],
    lang: str | None,
    objective: str | None,
    strategy: Any,
    strategy_options: Mapping[str, Any] | None,
) -> None:
    """Raise UsageError for what is not taken over."""
    for name, value in others.items():
        if value is not None and value is not False and (name, value) != ("platform", 0):
            without = "" if name in READ_BY_KERNELS else "leave it out, or "
            raise UsageError(
                f"tune_kernel: {name}= is not taken over by gpuadvisor: {without}keep Kernel Tuner "
                "for this kernel"
            )
    if lang is not None and lang.upper() not in LANGUAGES:
        raise UsageError(f"tune_kernel: lang={lang!r} is not taken over: gpuadvisor takes CUDA C++")
    if objective not in (None, "time"):
        raise UsageError(f"tune_kernel: objective={objective!r} is not taken over: time is")
    if strategy is not None and strategy not in STRATEGIES and strategy not in THEIRS:
        raise UsageError(f"tune_kernel: the strategy {strategy!r} is none of Kernel Tuner's")
    for name in strategy_options or {}:
        if name not in ("max_fevals", "time_limit") and strategy in (None, *STRATEGIES):
            raise UsageError(f"tune_kernel: strategy_options has {name}, which is not taken over")


def _source(source: Any) -> str:
    if callable(source) or isinstance(source, list | tuple):
        raise UsageError("tune_kernel: kernel_source must be CUDA C++ as text, or one file")
    text = str(source)
    if "\n" not in text and "__global__" not in text:
        try:
            text = Path(text).read_text("utf-8")
        except OSError as error:
            raise UsageError(f"tune_kernel: {source} cannot be read: {error.strerror}") from None
    if "__global__" not in text:
        raise UsageError(
            "tune_kernel: the source has no __global__ function: only CUDA C++ is taken"
        )
    for name in ("grid_size_x", "grid_size_y", "grid_size_z", "loop_unroll_factor"):
        if name in text:
            raise UsageError(f"tune_kernel: {name}, which the source uses, is not taken over")
    return f"#define kernel_tuner 1\n#line 1\n{text}"


def _several(restrictions: Any) -> list[Any]:
    if restrictions is None:
        return []
    return list(restrictions) if isinstance(restrictions, list | tuple) else [restrictions]


def _restriction(rule: Any, parameters: Mapping[str, Any]) -> Any:
    """Return a restriction as a rule of ours: an expression, or a function of names."""
    if isinstance(rule, str):
        return rule
    if not inspect.isroutine(rule):
        raise UsageError(
            f"tune_kernel: a restriction is a {type(rule).__name__}: give expressions or functions"
        )
    wanted = list(inspect.signature(rule).parameters)
    if len(wanted) == 1 and wanted[0] not in parameters:
        return lambda p: rule(dict(p))
    return rule


def _tuned(call: Call, options: KernelOptions, quiet: bool) -> KernelResult:
    """Tune a call, compared with the first point that can be run."""
    from gpuadvisor.collectors.script.run_folder import run_folder
    from gpuadvisor.commands._output import messages
    from gpuadvisor.domain.kernels import DefaultFailsError
    from gpuadvisor.interruption import stoppable
    from gpuadvisor.tui.kernel_progress import KernelProgress
    from gpuadvisor.tuning.kernels.options import Progress
    from gpuadvisor.tuning.kernels.study import tune_kernels

    points = call.points()
    failure: DefaultFailsError | None = None
    with run_folder() as folder:
        for default in call.default(points):
            file = written(folder, call, points, default)
            progress = Progress() if quiet else KernelProgress(messages())
            with stoppable() as stop:
                tuned = tune_kernels(replace(options, file=file), progress, stop.requested)
            if stop.requested():  # the script's own end: what was evaluated is on disk
                raise KeyboardInterrupt
            for result in tuned.results:
                return result
            (failure,) = tuned.failures
    assert failure is not None
    raise failure


def written(folder: Path, call: Call, points: Sequence[tuple[Value, ...]], default: Point) -> Path:
    """Write the call where the process that runs the kernel reads it; return the kernel file."""
    import json

    import numpy

    from gpuadvisor.collectors.kernels.child.taken_over import CALL

    names, compared = list(call.parameters), call.compared
    document = {
        "name": call.name,
        "source": call.source,
        "parameters": call.parameters,
        "default": default,
        "points": points,
        "problem": call.sizes,
        "launches": [call.launch(dict(zip(names, each, strict=True))) for each in points],
        "arguments": len(call.arguments),
        "scalars": [place for place, each in enumerate(call.arguments) if _is_scalar(each)],
        "compared": compared,
        "has_answer": call.answer is not None,
        "tolerance": RELATIVE_TOLERANCE if call.answer is not None else None,
        "absolute_tolerance": call.atol if call.answer is not None else None,
        "options": call.options,
    }
    arrays = {f"argument{n}": _array(each) for n, each in enumerate(call.arguments)}
    if call.answer is not None:
        arrays |= {f"answer{place}": _array(call.answer[place]) for place in compared}
    (folder / CALL).write_text(json.dumps(document), "utf-8")
    numpy.savez(folder / "arrays.npz", **arrays)
    file = folder / f"{''.join(c if c.isalnum() else '_' for c in call.name)}.py"
    file.write_text(
        "from gpuadvisor.collectors.kernels.child.taken_over import declare\n\ndeclare(__file__)\n",
        "utf-8",
    )
    return file


def _row(evaluation: Evaluation, metrics: Mapping[str, Any] | None) -> dict[str, Any]:
    row: dict[str, Any] = {
        **evaluation.point,
        "compile_time": evaluation.compile_ms,
        "verification_time": evaluation.check_ms,
        "benchmark_time": evaluation.timing_ms,
        "strategy_time": 0.0,
        "framework_time": 0.0,
    }
    if evaluation.time_ms is None:
        compiled = evaluation.state is not TrialState.UNSUPPORTED
        failed = "RuntimeFailedConfig" if compiled else "CompilationFailedConfig"
        return {**row, "__error__": failed, "reason": evaluation.reason}
    row |= {"time": evaluation.time_ms, "times": list(evaluation.times_ms)}
    for name, metric in (metrics or {}).items():
        row[name] = metric(row) if callable(metric) else eval(metric, {"__builtins__": {}, **row})
    return row


def _environment(result: KernelResult, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    timed = [row for row in rows if "time" in row]
    best = min(timed, key=lambda row: float(row["time"]), default=None)
    if result.best is not None:  # proven, which the least of single measurements is not
        best = next((r for r in timed if result.best.items() <= r.items()), best)
    return {
        "device_name": result.device,
        "best_config": best,
        "record": result.record,
        "gpuadvisor": result,
    }


def _cache_file(cache: str | Path) -> Path:
    path = Path(cache)
    return path if path.suffix == ".json" else path.with_name(f"{path.name}.json")


def _is_scalar(value: Any) -> bool:
    return not getattr(value, "shape", ())


def _array(value: Any) -> Any:
    """Return an argument of numpy, CuPy or torch as an array of numpy."""
    import numpy

    take: Callable[[], Any] | None = getattr(value, "get", None)
    if take is not None and type(value).__module__.split(".")[0] == "cupy":
        value = take()
    elif hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    found = numpy.asarray(value)
    if found.dtype.kind not in "biufc":
        raise UsageError(f"tune_kernel: an argument has the dtype {found.dtype}: give numbers")
    return found


def _plain(value: Any) -> Any:
    """Return a number of numpy as Python's own."""
    return value.item() if hasattr(value, "item") else value
