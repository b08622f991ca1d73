"""Where a gate's outcome goes: the terminal, files for CI, and what GitHub Actions shows."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gpuadvisor.commands._arguments import Arguments, add_json
from gpuadvisor.errors import (
    AdvisorError,
    InconclusiveError,
    Interrupted,
    RegressionError,
    UsageError,
)

if TYPE_CHECKING:
    from gpuadvisor.domain.gate import GateResult
    from gpuadvisor.reports.gate.outcome import Outcome
    from gpuadvisor.tui.progress import ConsoleGateProgress

STANDARD_OUTPUT = "-"


def add_outputs(arguments: Arguments) -> None:
    """Declare `--json`, `--output` and `--no-ci`."""
    from gpuadvisor.reports.gate.formats import format_names

    add_json(arguments, "print the result, with every run, as JSON on stdout")
    names = ", ".join(format_names())
    arguments.add_argument(
        "--output",
        metavar="FORMAT[=PATH]",
        action="append",
        default=[],
        help=f"also write the outcome, whatever it is, to a file or `-`; may be repeated: {names}",
    )
    arguments.add_argument(
        "--no-ci",
        action="store_true",
        help="leave out the summary and the annotations that GitHub Actions gets by itself",
    )


class Output(NamedTuple):
    """One text that is wanted."""

    format: str
    path: str
    """`-` for the standard output."""


class Outputs:
    """The outputs of one command, and the outcomes that they shall tell of."""

    def __init__(
        self, wanted: list[Output], summary: Path | None = None, is_annotated: bool = False
    ) -> None:
        """Begin without outcomes.

        `summary` is where GitHub Actions reads a job's summary, `is_annotated` whether it reads
        annotations.
        """
        self.wanted, self.summary, self.is_annotated = wanted, summary, is_annotated
        self.outcomes: list[Outcome] = []
        self.name = "gate"
        """What is being measured, for the outcome if it comes to nothing."""
        self.script = ""

    def begin(self, name: str, script: str = "") -> None:
        """Note which benchmark is measured from now on, and its path in the repository."""
        self.name, self.script = name, script

    def add(self, found: GateResult | AdvisorError) -> AdvisorError | None:
        """Note what the benchmark came to; return what tells it by the exit status, if no pass."""
        from gpuadvisor.domain.gate import GateVerdict
        from gpuadvisor.reports.gate.outcome import outcome_of

        if isinstance(found, AdvisorError):
            self.fail(found)
            return found
        outcome = outcome_of(self.name, found, self.script)
        self.outcomes.append(outcome)
        if found.verdict is GateVerdict.FAIL:
            kind = "failure" if found.broken else "regression"
            return RegressionError(f"{kind}: {outcome.why}")
        if found.verdict is GateVerdict.INCONCLUSIVE:
            return InconclusiveError(f"inconclusive: {outcome.why}")
        return None

    def fail(self, error: Exception) -> None:
        """Note that the benchmark came to nothing, and why."""
        from gpuadvisor.reports.gate.outcome import outcome_of_error

        self.outcomes.append(outcome_of_error(self.name, error, self.script))


@contextmanager
def at_work(
    first: str = "Checking out both versions ...",
) -> Iterator[tuple[ConsoleGateProgress, Callable[[], bool]]]:
    """Show the work on the terminal, at `first` these words; yield it, and what asks for its end.

    In the block Ctrl-C asks for the end, which comes when all is tidied up.
    """
    from gpuadvisor.commands._output import messages
    from gpuadvisor.interruption import stoppable
    from gpuadvisor.tui.progress import ConsoleGateProgress

    with stoppable() as stop, ConsoleGateProgress(messages(), first) as progress:
        yield progress, stop.requested


@contextmanager
def outputs(args: argparse.Namespace) -> Iterator[Outputs]:
    """Yield the outputs; at the end of the block each is written once, also where it raised.

    UsageError before the block where one cannot be written. An interrupted gate writes none, but
    what its benchmarks came to that had ended is printed.
    """
    from gpuadvisor.commands._output import note

    made = _outputs(args, os.environ)
    try:
        yield made
    except Interrupted as interruption:
        if made.outcomes:
            interruption.args = (f"{made.name}: {interruption}",)
            _print(made, are_all=False)
        raise
    except BrokenPipeError:
        raise
    except Exception as error:
        made.fail(error)
        for each in _write(made):
            note(str(each))
        raise
    _print(made)
    failed = _write(made)
    passed = all(each.ending == "pass" for each in made.outcomes)
    for each in failed[passed:]:
        note(str(each))
    if failed and passed:  # else the verdict tells the exit status
        raise failed[0]


def place_in_repository(script: str | None, is_module: bool) -> str:
    """Return a script's path from the root of its repository; empty for what is in none."""
    path = Path(script or "").absolute()
    root = next((each for each in path.parents if (each / ".git").exists()), None)
    return "" if root is None or is_module or not script else path.relative_to(root).as_posix()


def _outputs(args: argparse.Namespace, environment: Mapping[str, str]) -> Outputs:
    wanted = [_wanted(words) for words in args.output]
    if args.json:
        wanted.insert(0, Output("json", STANDARD_OUTPUT))
    taken: dict[str, Output] = {}
    for each in wanted:
        path = each.path if each.path == STANDARD_OUTPUT else str(Path(each.path).resolve())
        if path in taken:
            where = "the standard output" if path == STANDARD_OUTPUT else each.path
            raise UsageError(
                f"{taken[path].format} and {each.format} cannot both go to {where}: give one of "
                f"them another path, as in --output {each.format}=FILE"
            )
        taken[path] = each
        if path != STANDARD_OUTPUT:
            _check(each.path)
    if args.no_ci:
        return Outputs(wanted)
    summary = environment.get("GITHUB_STEP_SUMMARY")
    is_annotated = environment.get("GITHUB_ACTIONS") == "true"
    return Outputs(
        wanted,
        Path(summary) if summary and str(Path(summary).resolve()) not in taken else None,
        is_annotated and "github" not in {each.format for each in wanted},
    )


def _wanted(words: str) -> Output:
    from gpuadvisor.reports.gate.formats import format_names, load_format

    name, _, path = words.partition("=")
    if name not in format_names():
        raise UsageError(f"--output {words}: choose one of {', '.join(format_names())}")
    return Output(name, path or load_format(name).FILE)


def _check(path: str) -> None:
    """UsageError if a file cannot be written, or its folder not made; nothing is left there."""
    there = Path(path)
    try:
        if there.is_file():
            there.open("ab").close()
        elif there.parent.is_dir() and not there.exists():
            there.touch(exist_ok=False)
            there.unlink()
        elif there.is_dir():
            raise IsADirectoryError(None, "it is a folder")
        else:
            folder = next(each for each in there.absolute().parents if each.exists())
            if not folder.is_dir():
                raise NotADirectoryError(None, f"{folder} is no folder")
            if not os.access(folder, os.W_OK | os.X_OK):
                raise PermissionError(None, f"permission denied in {folder}")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"cannot write {path}: {reason}; choose another file") from None


def _print(made: Outputs, are_all: bool = True) -> None:
    """Print what was found, unless the standard output is taken.

    Each benchmark is named where there are several, also where others have no outcome (`are_all`).
    """
    from rich.text import Text

    from gpuadvisor.commands._output import output
    from gpuadvisor.printable import printable
    from gpuadvisor.reports.gate.document import print_gate

    if any(each.path == STANDARD_OUTPUT for each in made.wanted):
        return
    are_several = len(made.outcomes) > 1 or not are_all
    for outcome in made.outcomes:
        if are_several:
            output().print(Text(f"\n{outcome.name}", style="bold"))
        if outcome.found is not None:
            print_gate(outcome.found, output())
        elif are_several:
            headline = f"{outcome.ending.capitalize()}: {outcome.why}."
            output().print(Text(printable(headline)))


def _write(made: Outputs) -> list[UsageError]:
    """Write every output, and return why those are missing that could not be written."""
    from gpuadvisor.commands._output import make_folder, write_or_print
    from gpuadvisor.reports.gate.formats import load_format

    failed = []
    for each in made.wanted:
        text = load_format(each.format).render(made.outcomes)
        try:
            if each.path != STANDARD_OUTPUT:
                make_folder(Path(each.path))
            write_or_print(each.path, text, sys.stderr)
        except UsageError as error:
            failed.append(error)
    if made.is_annotated:
        sys.stderr.write(load_format("github").render(made.outcomes))
    if made.summary is not None:
        try:
            with made.summary.open("a", encoding="utf-8", errors="replace") as file:
                file.write(load_format("markdown").render(made.outcomes))
        except OSError as error:
            failed.append(UsageError(f"cannot write the summary: {error.strerror or error}"))
    return failed
