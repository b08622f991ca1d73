"""Compare two versions of a script, and fail where the new one is slower or needs more memory.

Exit status: 0 when it got no worse, or is new; 4 when it did, or does not run any more; 6 when
neither was shown, or the old version does not run; 7 when the GPU is busy or held down; 2 for a
wrong command line or a missing commit; 3 when the script fails in both; 129, 130, 131 or 143 when
interrupted.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuadvisor.commands._arguments import add_script_arguments, command_of
from gpuadvisor.commands.gate._arguments import (
    add_bounds,
    add_folders,
    add_measuring,
    add_only,
    options_of,
)
from gpuadvisor.commands.gate._outputs import add_outputs, at_work, outputs, place_in_repository
from gpuadvisor.errors import AdvisorError, UsageError

if TYPE_CHECKING:
    from gpuadvisor.collectors.script.request import Command
    from gpuadvisor.domain.explanation import Explanation
    from gpuadvisor.domain.gate import Benchmark, GateResult
    from gpuadvisor.tuning.gate.configuration import Configuration
    from gpuadvisor.tuning.gate.options import GateOptions
    from gpuadvisor.tuning.gate.runs import GateProgress
    from gpuadvisor.tuning.trials.trial_runner import Side

SCRIPT = "the Python script, or a configured benchmark's name (default: all of these)"
WORST = (4, 3, 7, 6)
"""Exit statuses of several benchmarks: the first of these that one of them has is that of all."""
EPILOG = """examples:
  gpuadvisor gate --base origin/main train.py -- --epochs 1
  gpuadvisor gate --base v1.2 --head HEAD --json train.py > gate.json
  gpuadvisor gate --base main --only operators,graph_breaks train.py    # counts: no timing, no GPU
  gpuadvisor gate --base main --output junit --output markdown=gate.md train.py
  gpuadvisor gate --base main --setup-cmd "python setup.py build_ext --inplace" train.py
  gpuadvisor gate --base origin/main    # all benchmarks of [tool.gpuadvisor.gate] in pyproject.toml
  gpuadvisor gate --base-folder ../before --head-folder . train.py
  gpuadvisor gate --head-python new/bin/python train.py
  gpuadvisor gate --head-plan train.plan.toml train.py -- --epochs 1
  gpuadvisor gate --base-cmd "python train.py" --head-cmd "TF32=1 python train.py --compile"

Both versions run in pairs of fresh processes on the same device, from work trees of their own that
are removed afterwards. Where other work would blur the times, both processes of a pair live at the
same time and take turns. With --base, the commit where --head left it is compared,
so that what the base got since does not count. The head is the work tree as it is, new files too,
unless --head names a commit.

A metric fails when it is shown to be worse by more than --tolerance, and passes when being worse
by --limit is ruled out. Four pairs of runs tell that on a quiet machine; after 24 it is
inconclusive. Use a script of some hundred steps. What fails, and how sure that is: docs/gate.md.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_script_arguments(parser, SCRIPT, "SCRIPT")
    group = parser.add_argument_group("what to compare")
    group.add_argument("--base", metavar="REV", help="commit, branch or tag to compare with")
    group.add_argument(
        "--head", metavar="REV", help="the new one (default: the work tree as it is)"
    )
    group.add_argument(
        "--base-folder", metavar="DIR", type=Path, help="a folder instead, with or without git"
    )
    group.add_argument("--head-folder", metavar="DIR", type=Path, help="the folder of the new one")
    for side, of in (("base", "the old side's"), ("head", "the new side's")):
        group.add_argument(
            f"--{side}-python", metavar="PATH", help=f"{of} own interpreter, instead of --python"
        )
        group.add_argument(
            f"--{side}-plan", metavar="FILE", type=Path, help=f"{of} plan, as of `gpuadvisor tune`"
        )
        group.add_argument(
            f"--{side}-cmd",
            metavar="COMMAND",
            help=f"{of} command, as 'A=1 python train.py --flag', instead of the script",
        )
    add_folders(group)
    add_only(add_bounds(parser))
    how = add_measuring(parser)
    how.add_argument(
        "--no-turns",
        action="store_true",
        help="run the versions of a pair one after the other, never both at once or in one process",
    )
    how.add_argument(
        "--no-explain",
        action="store_true",
        help="do not profile both versions where a time failed, to say why",
    )
    add_outputs(parser.add_argument_group("what to write"))


def run(args: argparse.Namespace) -> int:
    from gpuadvisor.tuning.gate.comparison import gates

    failures: list[tuple[str, AdvisorError]] = []
    with outputs(args) as written:
        name = args.script or args.head_cmd or "gate"
        written.begin(name, place_in_repository(args.script, args.is_module))
        benchmarks = _benchmarks(args)
        with (
            at_work() as (progress, cancelled),
            closing(
                gates(
                    list(benchmarks.values()),
                    progress,
                    cancelled,
                    None if args.no_explain else partial(_explain, progress, cancelled),
                )
            ) as found,
        ):
            for name, options in benchmarks.items():
                command = options.command
                if name:
                    script = str(Path(command.folder or ".", command.script))
                    written.begin(name, place_in_repository(script, command.is_module))
                    progress.on_message(f"benchmark {name}")
                if (failure := written.add(next(found))) is not None:
                    failures.append((name, failure))
    if failures:
        raise _worst(failures)
    return 0


def _explain(
    progress: GateProgress,
    cancelled: Callable[[], bool],
    base: Side,
    head: Side,
    options: GateOptions,
    found: GateResult,
) -> Explanation:
    """Say why a head is slower; what only that needs is not loaded for a gate that passes."""
    from gpuadvisor.profiling.explaining import explain

    return explain(progress, cancelled, base, head, options, found)


def _worst(failures: Sequence[tuple[str, AdvisorError]]) -> AdvisorError:
    """Return what several benchmarks come to, with all of them that come to the same."""
    status = min((error.exit_code for _, error in failures), key=WORST.index)
    worst = [(name, error) for name, error in failures if error.exit_code == status]
    _, first = worst[0]
    first.args = ("; ".join(f"{name}: {error}" if name else str(error) for name, error in worst),)
    return first


def _benchmarks(args: argparse.Namespace) -> dict[str, GateOptions]:
    """Return what is asked, by the benchmarks' names; a script without a configuration has none."""
    from dataclasses import replace

    from gpuadvisor.tuning.gate.configuration import find_configuration
    from gpuadvisor.tuning.preparation import check_script

    name = args.script or ""
    lines = args.base_cmd or args.head_cmd
    if args.is_module or lines or name.endswith(".py") or Path(name or "/lost").is_file():
        return {"": _options(args, _command(args), {})}
    if args.rest:
        raise UsageError(
            "what follows -- are a script's arguments: name the script before them; those of a "
            "configured benchmark are its `args`"
        )
    configuration = find_configuration(Path.cwd())
    if configuration is None:
        if name:
            check_script(command_of(args))
        raise UsageError(
            "name a script, or describe benchmarks in [tool.gpuadvisor.gate] of pyproject.toml: "
            "`gpuadvisor gate init SCRIPT` does, and docs/gate.md says what they may say"
        )
    chosen = configuration.chosen(name)
    share = 1 / len(configuration.benchmarks)
    return {
        each.name: replace(
            _options(args, _command_of(args, each, configuration), each.values),
            error_share=share,
        )
        for each in chosen
    }


def _options(args: argparse.Namespace, command: Command, values: Mapping[str, Any]) -> GateOptions:
    """Return what is asked: on the command line, else in a benchmark's values, else as usual."""
    from gpuadvisor.tuning.gate.options import owned
    from gpuadvisor.tuning.preparation import check_script

    folders = (args.base_folder, args.head_folder)
    if any(folders) and (args.base or args.head or args.link or not all(folders)):
        raise UsageError(
            "give --base-folder and --head-folder together, and neither --base nor --head nor "
            "--link with them"
        )
    pythons = (args.base_python, args.head_python)
    plans = (args.base_plan, args.head_plan)
    lines = (args.base_cmd, args.head_cmd)
    if not any((args.base, *folders, *pythons, *plans, *lines)):
        check_script(command)  # a name that is wrong anywhere is what the user has to mend first
        raise UsageError(
            "say what to compare with: --base origin/main, or --base-folder, --base-python, "
            "--base-plan or --base-cmd"
        )
    if args.head and not args.base:
        raise UsageError("--head is compared with --base: give that, too")
    if args.link and not args.base:
        raise UsageError("--link is for work trees, which there are with --base only")
    if args.setup_cmd and not (args.base or any(folders)):
        raise UsageError(
            "--setup-cmd is run in a folder of each version: give --base, or two folders"
        )

    setup = values.get("setup-cmd") if args.setup_cmd is None else args.setup_cmd
    return options_of(
        args,
        command,
        values,
        base=args.base,
        head=args.head,
        folders=folders if all(folders) else None,
        setup=setup if args.base or any(folders) else None,
        own=owned(command, pythons, plans, lines),
        in_turns=not args.no_turns and values.get("turns", True),
    )


def _command(args: argparse.Namespace) -> Command:
    """Return the script as its user would start it, or what is given instead of it."""
    from gpuadvisor.tuning.gate.options import parse_line

    if args.script is not None:
        if args.base_cmd and args.head_cmd:
            raise UsageError("give the script or both --base-cmd and --head-cmd, not all of them")
        return command_of(args)
    if args.rest:
        raise UsageError("the arguments after -- need a script: name it before them")
    if not (args.base_cmd and args.head_cmd):
        raise UsageError("name the script, or both commands with --base-cmd and --head-cmd")
    return parse_line("--base-cmd", args.base_cmd)[0]


def _command_of(args: argparse.Namespace, benchmark: Benchmark, found: Configuration) -> Command:
    """Return a benchmark's script as its user would start it in the configuration's folder."""
    from gpuadvisor.collectors.interpreter import locate
    from gpuadvisor.collectors.script.request import Command

    folder = str(found.path.parent)
    return Command(
        locate(args.python), benchmark.script, benchmark.args, benchmark.is_module, folder
    )
