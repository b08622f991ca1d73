"""Arguments that several of the gate's commands share, and what they mean."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuadvisor.commands._arguments import Arguments, add_timeout, check_positive, command_of
from gpuadvisor.errors import AdvisorError, InconclusiveError, RegressionError, UsageError

if TYPE_CHECKING:
    from gpuadvisor.domain.gate import GateResult
    from gpuadvisor.tuning.gate.options import GateOptions
    from gpuadvisor.tuning.gate.stored import Baseline


def add_folders(arguments: Arguments) -> None:
    """Declare what the folder of a version gets: `--link` and `--setup-cmd`."""
    arguments.add_argument(
        "--link",
        metavar="PATH",
        action="append",
        default=[],
        help="file or folder that git ignores, such as data, for both versions; may be repeated",
    )
    arguments.add_argument(
        "--setup-cmd",
        metavar="COMMAND",
        help="shell command for each version's folder before its first run, such as 'pip install "
        "--no-build-isolation -e .'; what it installs is gone afterwards",
    )


def add_bounds(parser: argparse.ArgumentParser) -> None:
    """Declare `--tolerance`, `--limit` and `--metric`."""
    group = parser.add_argument_group("how closely")
    group.add_argument(
        "--tolerance",
        metavar="PERCENT",
        type=float,
        help="worse by so much is no regression (default: 1)",
    )
    group.add_argument(
        "--limit",
        metavar="PERCENT",
        type=float,
        help="worse by so much must be ruled out to pass (default: 3)",
    )
    group.add_argument(
        "--metric",
        metavar="NAME",
        action="append",
        default=[],
        dest="metrics",
        help="let the verdict rest on this, too: startup, losses, p95, ... "
        "(docs/gate.md); may be repeated",
    )


def add_measuring(parser: argparse.ArgumentParser) -> Arguments:
    """Declare how runs are measured: `--measure`, `--seed`, `--samples-per-step`, `--timeout`."""
    group = parser.add_argument_group("how to measure")
    group.add_argument(
        "--measure",
        metavar="SECONDS",
        type=float,
        help="time for which each run is measured (default: 4)",
    )
    group.add_argument(
        "--seed", type=int, default=0, help="for random, numpy, torch and the order of runs"
    )
    group.add_argument(
        "--samples-per-step", metavar="N", type=float, help="where the script does not show it"
    )
    add_timeout(group, "longest wait for the base's first step (default: 600)")
    return group


def measuring_options(args: argparse.Namespace, **more: Any) -> GateOptions:
    """Return options of a script that is measured; `more` are further ones, as of `bounds_of`."""
    from gpuadvisor.tuning.gate.options import GateOptions

    check_positive(args, "--measure", "--timeout", "--samples-per-step")
    given = {
        "samples_per_step": args.samples_per_step,
        "timeout_s": args.timeout,
        "measure_s": args.measure,
        **more,
    }
    given = {name: value for name, value in given.items() if value is not None}
    return GateOptions(command_of(args), seed=args.seed, **given)


def bounds_of(args: argparse.Namespace) -> dict[str, Any]:
    """Return what `add_bounds` declared, as options of a gate."""
    check_positive(args, "--tolerance", "--limit")
    return {
        "tolerance": None if args.tolerance is None else args.tolerance / 100,
        "limit": None if args.limit is None else args.limit / 100,
        "metrics": tuple(dict.fromkeys(args.metrics)),
    }


def add_baseline(arguments: Arguments, *, required: bool = True) -> None:
    """Declare `--name`, the baseline, and `--store`, the file of recordings."""
    help_ = "the baseline: a script with its arguments, on any machine"
    arguments.add_argument("--name", metavar="NAME", required=required, help=help_)
    arguments.add_argument(
        "--store",
        metavar="FILE",
        type=Path,
        help="file of recordings, one a line, to commit or to cache (default: gate.jsonl in "
        "gpuadvisor's folder)",
    )


def baseline_of(args: argparse.Namespace) -> Baseline:
    """Return the baseline that is named; UsageError for an empty name."""
    from gpuadvisor.storage.gate import baselines_file
    from gpuadvisor.tuning.gate.stored import Baseline

    if not args.name.strip():
        raise UsageError("--name: give the baseline a name, such as that of the script")
    return Baseline(args.name.strip(), baselines_file(args.store))


def failure_of(found: GateResult) -> AdvisorError | None:
    """Return what tells the verdict by the exit status; None for a pass."""
    from gpuadvisor.domain.gate import GateVerdict
    from gpuadvisor.reports.gate.document import why

    if found.verdict is GateVerdict.FAIL:
        return RegressionError(f"regression: {why(found)}")
    if found.verdict is GateVerdict.INCONCLUSIVE:
        return InconclusiveError(f"inconclusive: {why(found)}")
    return None
