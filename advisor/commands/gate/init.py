"""Write a configuration and a workflow that gate a script, after measuring the script once.

The script runs in a new work tree, as in a gate; nothing of yours is overwritten.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from gpuadvisor.commands._arguments import add_script_arguments, add_timeout, command_of
from gpuadvisor.commands.gate._arguments import add_limits, add_links, options_of
from gpuadvisor.commands.gate._outputs import at_work
from gpuadvisor.errors import UsageError

if TYPE_CHECKING:
    from gpuadvisor.collectors.script.request import Command
    from gpuadvisor.domain.gate import Benchmark
    from gpuadvisor.tuning.gate.trying import Tried

EPILOG = """examples:
  gpuadvisor gate init train.py -- --epochs 1
  gpuadvisor gate init --print --ci gitlab train.py
  gpuadvisor gate init --env OMP_NUM_THREADS=4 --env PYTHONPATH=src train.py

The script becomes a benchmark in pyproject.toml, or in gpuadvisor.toml where there is none. The
workflow is .github/workflows/gpuadvisor-gate.yml, or .gitlab/gpuadvisor-gate.yml, which
.gitlab-ci.yml has to include. It installs gpuadvisor from where this one came from: a URL, the
remote of its clone, or the package index. $PYTHONPATH is written into it as far as it names folders
of the repository, other variables with --env; what stays out is said. Read it before you commit it:
which runner has a GPU, and what the script needs, is yours to say.
"""
FILES = {
    "github": Path(".github/workflows/gpuadvisor-gate.yml"),
    "gitlab": Path(".gitlab/gpuadvisor-gate.yml"),
}
_VARIABLE = re.compile(r"[A-Za-z_]\w*")
_SECRET = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|(^|_)KEY(_|$)", re.IGNORECASE)
"""Names of variables whose values belong into no file of a repository."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_script_arguments(parser)
    parser.add_argument(
        "--ci", choices=sorted(FILES), help="whose workflow (default: what the repository shows)"
    )
    parser.add_argument(
        "--print",
        dest="only_print",
        action="store_true",
        help="print the files on stdout instead of writing them",
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="replace what is there: the workflow, and the table of gates in the configuration",
    )
    add_links(parser)
    parser.add_argument(
        "--env",
        metavar="NAME[=VALUE]",
        action="append",
        default=[],
        help="variable that the script needs, here and in the workflow; without =VALUE as it is "
        "set here; may be repeated",
    )
    add_limits(parser)
    add_timeout(parser, "longest wait for the script's first step (default: 600)", 600.0)


def run(args: argparse.Namespace) -> int:
    from gpuadvisor.collectors.worktrees import Repository
    from gpuadvisor.commands._output import make_folder, note, write
    from gpuadvisor.reports.gate import workflows
    from gpuadvisor.tuning.gate import ci_job
    from gpuadvisor.tuning.gate.configuration import FILES as TABLES
    from gpuadvisor.tuning.gate.options import Own
    from gpuadvisor.tuning.gate.trying import try_script
    from gpuadvisor.tuning.preparation import check_script

    command = command_of(args)
    check_script(command)
    environment = _environment(args.env)
    own = Own(environment=environment)
    options = options_of(args, command, own=(own, own))
    repository = Repository.around(Path.cwd())
    ci = args.ci or ci_job.ci_of(repository)
    path = repository.root / FILES[ci]
    name, has_gates = _configuration()
    if not (args.force or args.only_print):
        there = [f"[{TABLES[name]}] in {name}"] * has_gates + [str(path)] * path.exists()
        if there:
            raise UsageError(
                f"{' and '.join(there)} {'are' if there[1:] else 'is'} there already: --print "
                "shows what to add by hand, --force replaces it"
            )
    benchmark = _benchmark(args, command)
    folder = "" if repository.inside == Path() else repository.inside.as_posix()
    if not folder.isprintable():
        raise UsageError(f"{folder!r} cannot be written into the files: rename the folder")
    added = workflows.configuration(benchmark, TABLES[name])
    toml = workflows.with_configuration(ci_job.text_of(Path(name)), added, TABLES[name])
    with at_work() as (progress, cancelled):
        tried = try_script(options, progress, cancelled)
    note(_told(benchmark.script, tried))
    needs = ci_job.needs_of(repository.root, environment)
    job = workflows.Job(
        folder,
        needs.gpuadvisor,
        needs.requirements,
        tried.device.is_gpu,
        tried.most_s,
        needs.assumed,
        needs.python_path,
        needs.environment,
    )
    text = (workflows.github if ci == "github" else workflows.gitlab)(benchmark, job)
    if args.only_print:
        sys.stdout.write(f"# {name}\n{added}\n# {FILES[ci].as_posix()}\n{text}")
    else:
        make_folder(path)
        write(path, text, said_on=sys.stdout)
        write(Path(name), toml, said_on=sys.stdout)
    for sentence in (*_to_do(repository.root, ci, tried), *needs.told()):
        note(sentence)
    return 0


def _benchmark(args: argparse.Namespace, command: Command) -> Benchmark:
    """Return what is to be gated, from the user's folder; UsageError if no file can say it."""
    from gpuadvisor.domain.gate import Benchmark
    from gpuadvisor.tuners.gate.decision import LIMIT, TOLERANCE

    script, name = command.script, command.script.rpartition(".")[2]
    if not command.is_module:
        # Without its ending, with which a name would be taken for a script.
        script, name = os.path.relpath(script), Path(script).stem
    for word in (script, *command.args, *args.link):
        if not word.isprintable():
            raise UsageError(f"{word!r} cannot be written into the files: put it into a script")
    values = {
        **({"link": args.link} if args.link else {}),
        "tolerance": args.tolerance or 100 * TOLERANCE,
        "limit": args.limit or 100 * LIMIT,
    }
    return Benchmark(name, script, command.is_module, command.args, values)


def _configuration() -> tuple[str, bool]:
    """Return the file in which the benchmarks of this folder stand, and whether it has any."""
    from gpuadvisor.tuning.gate.configuration import FILES as TABLES
    from gpuadvisor.tuning.gate.configuration import table_of

    there = [name for name in TABLES if Path(name).is_file()]
    for name in there:
        if table_of(Path(name), TABLES[name]) is not None:
            return name, True
    return (there or list(TABLES))[0], False


def _environment(given: list[str]) -> dict[str, str]:
    """Return the variables of `--env` with their values; UsageError for what cannot be written."""
    found = {}
    for words in given:
        name, is_set, text = words.partition("=")
        if not _VARIABLE.fullmatch(name):
            raise UsageError(f"--env {words}: give NAME or NAME=VALUE")
        if _SECRET.search(name):
            raise UsageError(
                f"--env {name}: its value would stand in the repository: give it to the job as a "
                "secret of your CI"
            )
        if not is_set and name not in os.environ:
            raise UsageError(f"--env {name}: that is not set here: give --env {name}=VALUE")
        text = text if is_set else os.environ[name]
        if not text.isprintable() or "${{" in text:
            raise UsageError(
                f"--env {name}: its value cannot be written into a workflow: set it in CI"
            )
        found[name] = text
    return found


def _told(script: str, tried: Tried) -> str:
    """Return what the script took, and what a gate of it will."""
    from gpuadvisor.reports import figures
    from gpuadvisor.tuning.gate.trying import FEWEST_RUNS, MOST_RUNS

    measured = tried.measurement
    return (
        f"{script} takes {figures.milliseconds(measured.mean_step_ms)} a step on "
        f"{tried.device.name}, {figures.memory(measured.peak_memory_bytes)}, and "
        f"{figures.duration(measured.startup_s)} to start: a gate of it takes {FEWEST_RUNS} starts "
        f"and about {figures.duration(tried.fewest_s)} where nothing got worse, and {MOST_RUNS} "
        f"starts and {figures.duration(tried.most_s)} at most"
    )


def _to_do(root: Path, ci: str, tried: Tried) -> Iterator[str]:
    """Yield what is left to the user."""
    from gpuadvisor.tuning.gate.ci_job import GITLAB, text_of

    if ci == "gitlab" and FILES["gitlab"].as_posix() not in text_of(root / GITLAB):
        yield f"add to {GITLAB}: include: [{{ local: {FILES['gitlab'].as_posix()} }}]"
    if tried.device.is_gpu:
        yield "it asks for a runner of your own with the label gpu: name yours in the file"
    else:
        yield (
            "this machine has no GPU that the script can use, so the workflow asks for none: on "
            'shared runners compare counts alone, `only = ["operators", "allocated_bytes"]` in the '
            "configuration, or raise tolerance and limit, such as to 10 and 25"
        )
