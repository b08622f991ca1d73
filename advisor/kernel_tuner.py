"""Kernel Tuner's `tune_kernel` for scripts that call it: one import is changed, the call stays.

    from gpuadvisor.kernel_tuner import tune_kernel   # was: from kernel_tuner import tune_kernel

    results, env = tune_kernel("vector_add", source, n, [c, a, b, np.int32(n)], tune_params,
                               answer=[a + b, None, None, None])

The kernel is compiled ahead, checked, timed in turns and proven as `gpuadvisor tune-kernel` does.
CUDA C++ alone is taken, as text, a file or a function that makes the text, and the arguments of
`tune_kernel` below; any other is refused by its name.
What a point must compute is `answer`, within `atol` as in `numpy.allclose`; without one, what the
first point that can be run computes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuadvisor.domain.kernel_records import Evaluation, KernelResult
from gpuadvisor.domain.knobs import Value
from gpuadvisor.domain.study import TrialState
from gpuadvisor.errors import UsageError
from gpuadvisor.tuning.kernels.kernel_tuner_call import BLOCK_SIZE_NAMES, Call, plain, written

if TYPE_CHECKING:
    from gpuadvisor.tuning.kernels.options import KernelOptions

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
NO_TEXTURES = (
    "texmem_args= is not taken over: texture references are gone since CUDA 12, and no compiler of "
    "today takes such a kernel; read a texture object, or an array through __ldg, instead"
)


def tune_kernel(
    kernel_name: str,
    kernel_source: str | Path | Sequence[str | Path] | Callable[[dict[str, Value]], str],
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
    cmem_args: Mapping[str, Any] | None = None,
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
    the `KernelResult` with verdict and interval. A function as `kernel_source` is called once with
    each point's parameters, and only its text leaves this process. `strategy_options` may hold
    `max_fevals` and `time_limit` in seconds; without them every point is evaluated, unless a
    strategy is named: then the search has five minutes. How often a point is timed follows from
    what it takes, whatever `iterations` says, and `verbose` changes nothing. UsageError names what
    cannot be taken over.
    """
    from gpuadvisor.profiling.kernels import diagnosis_of
    from gpuadvisor.tuning.budgeting.budget_limit import BudgetLimit
    from gpuadvisor.tuning.kernels.options import KernelOptions

    _refuse(others, lang, objective, strategy, strategy_options)
    names = _block_size_names(block_size_names, tune_params)
    source, folders = _source(kernel_source, lang)
    call = Call(
        kernel_name,
        source,
        {name: [plain(v) for v in values] for name, values in tune_params.items()},
        list(arguments),
        problem_size,
        (grid_div_x, grid_div_y, grid_div_z),
        names,
        (smem_args or {}).get("size", 0),
        _several(restrictions),
        answer,
        atol,
        [*(compiler_options or ()), *(f"-I{folder}" for folder in folders)],
        dict(cmem_args or {}),
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


def _refuse(
    others: Mapping[str, Any],
    lang: str | None,
    objective: str | None,
    strategy: Any,
    strategy_options: Mapping[str, Any] | None,
) -> None:
    """Raise UsageError for what is not taken over."""
    for name, value in others.items():
        is_nothing = (
            value is None or value is False or (hasattr(value, "__len__") and not len(value))
        )
        if not is_nothing and (name, value) != ("platform", 0):
            raise UsageError(
                f"tune_kernel: {NO_TEXTURES}"
                if name == "texmem_args"
                else f"tune_kernel: {name}= is not taken over by gpuadvisor: leave it out, or keep "
                "Kernel Tuner for this kernel"
            )
    if lang is not None and lang.upper() not in LANGUAGES:
        raise UsageError(f"tune_kernel: lang={lang!r} is not taken over: gpuadvisor takes CUDA C++")
    if objective not in (None, "time"):
        raise UsageError(f"tune_kernel: objective={objective!r} is not taken over: time is")
    if strategy and strategy not in STRATEGIES and strategy not in THEIRS:
        raise UsageError(f"tune_kernel: the strategy {strategy!r} is none of Kernel Tuner's")
    for name in strategy_options or {}:
        if name not in ("max_fevals", "time_limit") and strategy in (None, "", *STRATEGIES):
            raise UsageError(f"tune_kernel: strategy_options has {name}, which is not taken over")


def _source(
    source: Any, lang: str | None
) -> tuple[str | Callable[[dict[str, Value]], str], list[Path]]:
    """Return the text, or the function that makes it, and the folders of headers beside it."""
    if callable(source):
        if lang is None:
            raise UsageError(
                'tune_kernel: a function makes the source: say lang="CUDA", as Kernel Tuner asks'
            )
        return source, [Path.cwd()]
    several = list(source) if isinstance(source, list | tuple) else [source]
    text, folders = str(several[0]), [Path.cwd()]
    if "\n" not in text and "__global__" not in text:
        folders.insert(0, Path(text).absolute().parent)
        try:
            text = Path(text).read_text("utf-8")
        except OSError as error:
            raise UsageError(
                f"tune_kernel: {several[0]} cannot be read: {error.strerror}"
            ) from None
    if "__global__" not in text:
        host = "; of several files the first has the kernel" if len(several) > 1 else ""
        raise UsageError(
            f"tune_kernel: the source has no __global__ function: only CUDA C++ is taken{host}"
        )
    return text, folders if '#include "' in text else []


def _block_size_names(given: Sequence[str] | None, parameters: Mapping[str, Any]) -> list[str]:
    """Return the names of a block's sides: those given, else the usual, in whichever case the
    parameters have them.
    """
    names = list(given or ())
    spelt = {name.lower(): name for name in parameters}
    return [*names, *(spelt.get(name, name) for name in BLOCK_SIZE_NAMES[len(names) :])]


def _several(restrictions: Any) -> list[Any]:
    if restrictions is None:
        return []
    return list(restrictions) if isinstance(restrictions, list | tuple) else [restrictions]


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
