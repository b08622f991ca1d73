"""Arguments that several of the gate's commands share, and what they mean."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuadvisor.commands._arguments import Arguments, add_timeout, check_positive
from gpuadvisor.errors import UsageError

if TYPE_CHECKING:
    from gpuadvisor.collectors.script.request import Command
    from gpuadvisor.tuning.gate.options import GateOptions
    from gpuadvisor.tuning.gate.stored import Baseline

NUMBERS = {
    "tolerance": ("tolerance", 100),
    "limit": ("limit", 100),
    "measure": ("measure_s", 1),
    "timeout": ("timeout_s", 1),
    "samples-per-step": ("samples_per_step", 1),
}
"""Options that are numbers: the field of `GateOptions` that each sets, and how many of the option's
units make one of the field's (percent, seconds, samples)."""


def add_links(arguments: Arguments) -> None:
    """Declare `--link`."""
    arguments.add_argument(
        "--link",
        metavar="PATH",
        action="append",
        default=[],
        help="file or folder that git ignores, such as data, for both versions; may be repeated",
    )


def add_folders(arguments: Arguments) -> None:
    """Declare what the folder of a version gets: `--link` and `--setup-cmd`."""
    add_links(arguments)
    arguments.add_argument(
        "--setup-cmd",
        metavar="COMMAND",
        help="shell command for each version's folder before its first run, such as 'pip install "
        "--no-build-isolation -e .'; what it installs is gone afterwards",
    )


def add_limits(arguments: Arguments) -> None:
    """Declare `--tolerance` and `--limit`, in percent."""
    for name, words in (
        ("tolerance", "worse by so much is no regression (default: 1)"),
        ("limit", "worse by so much must be ruled out to pass (default: 3)"),
    ):
        arguments.add_argument(f"--{name}", metavar="PERCENT", type=float, help=words)


def add_bounds(parser: argparse.ArgumentParser) -> Arguments:
    """Declare `--tolerance`, `--limit` and `--metric`; return their group."""
    group = parser.add_argument_group("how closely")
    add_limits(group)
    help_ = "let the verdict rest on this, too: startup, losses, p95, ... (docs/gate.md)"
    group.add_argument(
        "--metric",
        metavar="NAME",
        action="append",
        default=[],
        dest="metrics",
        help=f"{help_}; may be repeated",
    )
    return group


def add_only(arguments: Arguments) -> None:
    """Declare `--only`."""
    arguments.add_argument(
        "--only",
        metavar="NAMES",
        action="append",
        default=[],
        help="compare nothing but these, as operators,graph_breaks: counts alone take four starts "
        "and no quiet machine",
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


def options_of(
    args: argparse.Namespace,
    command: Command,
    values: Mapping[str, Any] | None = None,
    **others: Any,
) -> GateOptions:
    """Return what is asked: on the command line, else in a benchmark's values, else as usual.

    Options that the command does not have are as usual; `others` are further fields.
    """
    from gpuadvisor.tuning.gate.options import GateOptions

    values = values or {}
    given = {name: getattr(args, name.replace("-", "_"), None) for name in NUMBERS}
    check_positive(args, *(f"--{name}" for name, value in given.items() if value is not None))
    for name, (field, units) in NUMBERS.items():
        value = values.get(name) if given[name] is None else given[name]
        if value is not None:
            others[field] = value / units
    metrics = (*values.get("metrics", ()), *getattr(args, "metrics", ()))
    given_only = [name for each in getattr(args, "only", ()) for name in each.split(",") if name]
    return GateOptions(
        command,
        links=(*values.get("link", ()), *getattr(args, "link", ())),
        seed=getattr(args, "seed", 0),
        metrics=tuple(dict.fromkeys(metrics)),
        only=tuple(dict.fromkeys(name.strip() for name in given_only or values.get("only", ()))),
        **others,
    )


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
