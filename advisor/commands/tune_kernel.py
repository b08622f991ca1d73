"""Find the block sizes, tiles and options with which a kernel is fastest, and prove it.

The file declares kernels with `gpuadvisor.Kernel`: CUDA C++, Triton, CuPy or Numba. Each point is
compiled ahead, checked against the reference, and timed in turns with the default, in a process of
its own that a crash or a hang may take down. With --replay a space that was measured is searched.
Exit status: 0; 1 where there is no GPU, or nothing could be evaluated; 2 for a file that cannot be
tuned, a Python without torch, or when the default of one of its kernels fails: the others are tuned
all the same; 5 when the store cannot be used; 129, 130, 131 or 143 when interrupted.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from gpuadvisor.commands._arguments import add_json, add_python, check_positive
from gpuadvisor.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuadvisor.domain.kernel_records import KernelResult
    from gpuadvisor.tuning.kernels.options import Progress

EPILOG = """examples:
  gpuadvisor tune-kernel examples/kernels/transpose.py
  gpuadvisor tune-kernel softmax.py --kernel softmax --budget 200 --json
  gpuadvisor tune-kernel stencil.py --effort quick --gpus 0,1
  gpuadvisor tune-kernel --replay gemm_RTX_3090.json.gz --seeds 21
"""
SEARCH_TRIALS = 200
"""Evaluations of a replayed search, unless --budget says otherwise."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", nargs="?", type=Path, help="the Python file that declares kernels")
    parser.add_argument(
        "--replay",
        metavar="FILE",
        type=Path,
        help="search a brute-forced space instead, without a GPU: a cache file of Kernel Tuner or a"
        " T4 file, may be compressed",
    )
    parser.add_argument(
        "--budget",
        metavar="TIME|N",
        help="most that the search of one kernel and problem may take: a time such as 5m, or"
        f" evaluations (default: what the effort says; of a replay {SEARCH_TRIALS})",
    )
    parser.add_argument(
        "--effort",
        choices=("quick", "full"),
        default="full",
        help="quick: 1m, and no more than 30 evaluations in a row without progress; full (default):"
        " 5m and 100",
    )
    parser.add_argument(
        "--stop-at",
        metavar="PERCENT|RATE",
        help="end the search once a point reaches this percentage of the roofline by the GPU's data"
        " sheet, or a rate, as 2.5TB/s or 40TFLOP/s; needs the kernel's bytes= or flops=",
    )
    parser.add_argument(
        "--kernel",
        metavar="NAME,...",
        default="",
        help="only these kernels of the file",
    )
    parser.add_argument(
        "--strategy",
        choices=("model", "optuna", "random", "all"),
        help="how points are chosen (default: all of up to 300, else a model; a replay: model and"
        " random); optuna is its TPE; all goes on without a budget until every point is evaluated",
    )
    parser.add_argument("--seed", metavar="N", type=int, default=0, help="seed (default: 0)")
    parser.add_argument(
        "--seeds", metavar="N", type=int, default=5, help="searches of a replay (default: 5)"
    )
    parser.add_argument(
        "--gpus",
        "--gpu",
        metavar="N,...",
        default="0",
        help="torch's numbers of the GPUs, which measure side by side (default: 0)",
    )
    parser.add_argument(
        "--jobs",
        metavar="N",
        type=int,
        help="processes that compile ahead (default: half of the cores, at most 4); 0 for none",
    )
    parser.add_argument(
        "--l2",
        choices=("cold", "warm"),
        default="cold",
        help="overwrite the L2 cache before each timed launch (default: cold), or leave it",
    )
    parser.add_argument(
        "--objective",
        choices=("time", "energy"),
        default="time",
        help="what to make small of a launch (default: time); energy takes 4 s more a point",
    )
    add_python(parser, "a Python that has torch and what the kernels need")
    parser.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=float,
        default=60.0,
        help="longest wait for one point, after which it counts as hung (default: 60)",
    )
    parser.add_argument(
        "--resume", action="store_true", help="go on with what was evaluated before"
    )
    parser.add_argument(
        "--t4",
        metavar="FOLDER",
        type=Path,
        help="also write the evaluations, or the replayed space, into this folder in the T4 format",
    )
    add_json(parser, "print the result as JSON on stdout")


def run(args: argparse.Namespace) -> int:
    check_positive(args, "--seeds", "--timeout")
    if args.jobs is not None and args.jobs < 0:
        raise UsageError(f"--jobs {args.jobs}: give 0 for none, or a number of processes")
    if (args.file is None) == (args.replay is None):
        raise UsageError("name one file: a kernel file, or a recorded space with --replay")
    if args.replay is not None and args.stop_at is not None:
        raise UsageError("--stop-at needs bytes= or flops= of a kernel file: a replay has neither")
    # Before numpy is loaded: its threads take longer to meet than the model's small matrices.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    return _replay(args) if args.replay is not None else _tune(args)


def _tune(args: argparse.Namespace) -> int:
    from gpuadvisor.domain.kernel_records import Record
    from gpuadvisor.interruption import stoppable
    from gpuadvisor.profiling.kernels import diagnosis_of, outcomes
    from gpuadvisor.reports import strict_json
    from gpuadvisor.reports.kernel import document as kernels_document
    from gpuadvisor.reports.kernel import outcome as kernel_outcome
    from gpuadvisor.storage.kernel_caches import write_t4
    from gpuadvisor.tuning.budgeting.budget_limit import BudgetLimit
    from gpuadvisor.tuning.kernels.options import OBJECTIVES, Goal, KernelOptions
    from gpuadvisor.tuning.kernels.study import tune_kernels

    options = KernelOptions(
        args.file,
        args.python,
        _gpus(args.gpus),
        None if args.budget is None else BudgetLimit.parse(args.budget),
        effort=args.effort,
        only=frozenset(name for name in args.kernel.split(",") if name),
        strategy=args.strategy,
        seed=args.seed,
        resume=args.resume,
        timeout_s=args.timeout,
        jobs=args.jobs,
        l2=args.l2,
        objective=OBJECTIVES[args.objective],
        stop_at=None if args.stop_at is None else Goal.parse(args.stop_at),
        diagnosis=diagnosis_of,
    )
    with stoppable() as stop:
        tuned = tune_kernels(options, _progress(), stop.requested)
    if args.t4 is not None:
        for each in tuned.results:
            write_t4(Record(each.kernel, each.device, each.problem, {}, each.evaluations), args.t4)
    found = outcomes(tuned.results)
    if args.json and (found or not tuned.failures):
        print(strict_json.text(kernel_outcome.document(found)))
    elif not args.json:
        for told in found:
            print("\n".join(kernels_document.lines(told.result)))
            print("\n".join(kernel_outcome.lines(told)))
        _say_how_to_use(tuned.results)
    if stop.requested():
        return stop.exit_status
    tuned.check()
    return 0


def _say_how_to_use(results: Sequence[KernelResult]) -> None:
    """Name what programs and people do with what was kept."""
    for name in dict.fromkeys(each.kernel for each in results if each.best is not None):
        sizes = next(each.problem for each in results if each.kernel == name)
        asked = "".join(f", {size}={value!r}" for size, value in sizes.items())
        print(f"in a program: gpuadvisor.best({name!r}{asked}); a page: gpuadvisor report {name}")


def _replay(args: argparse.Namespace) -> int:
    from gpuadvisor.commands._output import messages
    from gpuadvisor.interruption import stoppable
    from gpuadvisor.reports import strict_json
    from gpuadvisor.reports.kernel import document as kernels_document
    from gpuadvisor.storage.kernel_caches import read, write_t4
    from gpuadvisor.tuning.budgeting.budget_limit import BudgetLimit
    from gpuadvisor.tuning.kernels.replaying import replay

    limit = BudgetLimit.parse(args.budget or f"{SEARCH_TRIALS} trials")
    if limit.trials is None:
        raise UsageError("--budget of a replay is a number of evaluations: --budget 200")
    strategies = [args.strategy] if args.strategy else ["model", "random"]
    record = read(args.replay)
    if args.t4 is not None:
        write_t4(record, args.t4)
    seeds = range(args.seed, args.seed + args.seeds)
    with stoppable() as stop, messages().status("Searching ...") as status:

        def show(strategy: str, seed: int) -> None:
            status.update(f"Searching: {strategy}, seed {seed}")

        found = replay(record, strategies, seeds, limit.trials, stop.requested, show)
    if args.json:
        print(strict_json.text(kernels_document.replay_document(found)))
    else:
        print("\n".join(kernels_document.replay_lines(found)))
    return stop.exit_status if stop.requested() else 0


def _gpus(text: str) -> tuple[int, ...]:
    """Return the numbers of `0,1`; UsageError where they are none, or one comes twice."""
    numbers = text.split(",")
    if not all(number.strip().isdigit() for number in numbers):
        raise UsageError(f"--gpus {text}: give numbers as torch has them, such as 0,1")
    found = tuple(int(number) for number in numbers)
    if len(set(found)) < len(found):
        raise UsageError(f"--gpus {text}: a GPU is named twice")
    return found


def _progress() -> Progress:
    """Return what shows a line for each better point, on the standard error."""
    from gpuadvisor.commands._output import messages
    from gpuadvisor.tui.kernel_progress import KernelProgress

    return KernelProgress(messages())
