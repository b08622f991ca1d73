"""Find the block sizes, tiles and options with which a kernel is fastest, and prove it.

The file declares kernels with `gpuadvisor.Kernel`: CUDA C++, Triton, CuPy or Numba. Each point is
compiled, checked against the reference, and timed in turns with the default, in a process of its
own that a crash or a hang may take down. With --replay a space that was measured is searched.
Exit status: 0; 1 where nothing could be evaluated; 2 for a file that cannot be tuned; 5 when the
store cannot be used; 129, 130, 131 or 143 when interrupted.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from gpuadvisor.commands._arguments import add_json, add_python, check_positive
from gpuadvisor.errors import UsageError

if TYPE_CHECKING:
    from gpuadvisor.tuning.kernels.study import Progress

EPILOG = """examples:
  gpuadvisor tune-kernel examples/kernels/transpose.py
  gpuadvisor tune-kernel softmax.py --kernel softmax --budget 200 --json
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
        help="most that the search of one kernel and problem may take: 5m (default), or evaluations"
        f" (default of a replay: {SEARCH_TRIALS})",
    )
    parser.add_argument(
        "--kernel",
        metavar="NAME,...",
        default="",
        help="only these kernels of the file",
    )
    parser.add_argument(
        "--strategy",
        choices=("model", "random"),
        help="how points are chosen (default: all of up to 300, else a model; a replay: both)",
    )
    parser.add_argument("--seed", metavar="N", type=int, default=0, help="seed (default: 0)")
    parser.add_argument(
        "--seeds", metavar="N", type=int, default=5, help="searches of a replay (default: 5)"
    )
    parser.add_argument(
        "--gpu", metavar="N", type=int, default=0, help="torch's number of the GPU (default: 0)"
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
    add_json(parser, "print the result as JSON on stdout")


def run(args: argparse.Namespace) -> int:
    check_positive(args, "--seeds", "--timeout")
    if (args.file is None) == (args.replay is None):
        raise UsageError("name one file: a kernel file, or a recorded space with --replay")
    # Before numpy is loaded: its threads take longer to meet than the model's small matrices.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    return _replay(args) if args.replay is not None else _tune(args)


def _tune(args: argparse.Namespace) -> int:
    from gpuadvisor.interruption import stoppable
    from gpuadvisor.reports import kernels_document, strict_json
    from gpuadvisor.tuning.budget import BudgetLimit
    from gpuadvisor.tuning.kernels.study import KernelOptions, check_evaluated, tune_kernels

    options = KernelOptions(
        args.file,
        args.python,
        args.gpu,
        BudgetLimit.parse(args.budget or "5m"),
        frozenset(name for name in args.kernel.split(",") if name),
        args.strategy,
        args.seed,
        args.resume,
        args.timeout,
    )
    with stoppable() as stop:
        results = tune_kernels(options, _progress(), stop.requested)
    if args.json:
        print(strict_json.text(kernels_document.document(results)))
    else:
        for result in results:
            print("\n".join(kernels_document.lines(result)))
    if stop.requested():
        return stop.exit_status
    check_evaluated(results)
    return 0


def _replay(args: argparse.Namespace) -> int:
    from gpuadvisor.commands._output import messages
    from gpuadvisor.interruption import stoppable
    from gpuadvisor.reports import kernels_document, strict_json
    from gpuadvisor.storage.kernel_caches import read
    from gpuadvisor.tuning.budget import BudgetLimit
    from gpuadvisor.tuning.kernels.replaying import replay

    limit = BudgetLimit.parse(args.budget or f"{SEARCH_TRIALS} trials")
    if limit.trials is None:
        raise UsageError("--budget of a replay is a number of evaluations: --budget 200")
    strategies = [args.strategy] if args.strategy else ["model", "random"]
    record = read(args.replay)
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


def _progress() -> Progress:
    """Return what shows a line for each better point, on the standard error."""
    from gpuadvisor.commands._output import messages
    from gpuadvisor.tui.kernel_progress import KernelProgress

    return KernelProgress(messages())
