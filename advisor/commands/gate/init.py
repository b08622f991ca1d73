"""Write a configuration and a workflow that gate a script, after measuring the script once.

The script runs in a new work tree, as in a gate; nothing of yours is overwritten.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gpuadvisor.commands._arguments import add_script_arguments, add_timeout, command_of
from gpuadvisor.commands.gate._arguments import add_limits, add_links, options_of
from gpuadvisor.commands.gate._outputs import at_work
from gpuadvisor.errors import UsageError

if TYPE_CHECKING:
    from gpuadvisor.collectors.script.request import Command
    from gpuadvisor.collectors.worktrees import Repository
    from gpuadvisor.domain.gate import Benchmark
    from gpuadvisor.reports.gate.workflows import Job
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
GITLAB = Path(".gitlab-ci.yml")
_HOST = re.compile(r"(?:://(?:[^/@]*@)?|^[^/@]*@)([^/:]+)")
"""The host in the URL of a remote, `https://host/a/b` or `git@host:a/b`."""
_SSH = re.compile(r"(?:ssh://)?(?:[^/@:]+@)(?P<host>[^/:]+)(?::\d+)?[:/]/?(?P<path>.+)")
"""The URL of a remote over SSH."""
_TORCH = re.compile(r"\s*torch\b(?!-)")
"""A requirement that is torch itself."""
_VARIABLE = re.compile(r"[A-Za-z_]\w*")
_SECRET = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|(^|_)KEY(_|$)", re.IGNORECASE)
"""Names of variables whose values belong into no file of a repository."""
UNTOLD = {
    *("VIRTUAL_ENV", "CONDA_DEFAULT_ENV", "CUDA_VISIBLE_DEVICES"),
    *("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED"),
    "PYTHONPATH",
}
"""Variables that a machine has of its own or that change no step, and the one told apart."""


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
    ci = args.ci or _ci(repository)
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
    toml = workflows.with_configuration(_text(Path(name)), added, TABLES[name])
    with at_work() as (progress, cancelled):
        tried = try_script(options, progress, cancelled)
    note(_told(benchmark.script, tried))
    needs = _requirements(repository.root)
    origin, paths = _origin(repository.root), _python_path(repository.root, environment)
    job = workflows.Job(
        folder,
        origin.requirement,
        needs,
        tried.device.is_gpu,
        tried.most_s,
        origin.assumed,
        paths.inside,
        {name: text for name, text in environment.items() if name != "PYTHONPATH"},
    )
    text = (workflows.github if ci == "github" else workflows.gitlab)(benchmark, job)
    if args.only_print:
        sys.stdout.write(f"# {name}\n{added}\n# {FILES[ci].as_posix()}\n{text}")
    else:
        make_folder(path)
        write(path, text, said_on=sys.stdout)
        write(Path(name), toml, said_on=sys.stdout)
    for sentence in (*_to_do(repository.root, ci, tried), origin.assumed, *_left_out(job, paths)):
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


def _ci(repository: Repository) -> str:
    """Return whose CI the repository uses, by its files, else by where it is pushed."""
    if (repository.root / GITLAB).exists():
        return "gitlab"
    if (repository.root / ".github").exists():
        return "github"
    hosts = (_HOST.search(url) for url in repository.remotes())
    return "gitlab" if any(host and "gitlab" in host[1] for host in hosts) else "github"


@dataclass(frozen=True)
class _Origin:
    """Where a job gets gpuadvisor."""

    requirement: str
    """What pip installs."""
    assumed: str
    """A sentence: what has to hold for that."""


def _origin(root: Path) -> _Origin:
    """Return where this gpuadvisor came from, as far as its installation tells and CI can have it.

    `root` is the repository that is gated. Format: PEP 610, `direct_url.json`.
    """
    from importlib.metadata import PackageNotFoundError, distribution
    from urllib.parse import unquote, urlsplit

    from gpuadvisor.version import __version__

    try:
        told = json.loads(distribution("gpuadvisor").read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        told = {}
    url, vcs = str(told.get("url", "")), told.get("vcs_info")
    below = f"#subdirectory={told['subdirectory']}" if told.get("subdirectory") else ""
    if not url:
        return _Origin(
            f"gpuadvisor=={__version__}",
            f"the job installs gpuadvisor {__version__} from a package index, as this one tells no "
            "other origin: set PIP_INDEX_URL there if yours is not pip's own",
        )
    if url.startswith("file:"):
        return _of_path(Path(unquote(urlsplit(url).path)), root, below)
    there = f"{vcs['vcs']}+{url}@{vcs['commit_id']}" if vcs else url
    return _Origin(
        f"gpuadvisor @ {there}{below}",
        f"the job installs gpuadvisor from {url}, as here: it has to reach that",
    )


def _of_path(path: Path, root: Path, below: str) -> _Origin:
    """Return how a job gets a gpuadvisor that was installed from a file or a folder here."""
    from gpuadvisor.collectors.worktrees import Repository

    if path.is_relative_to(root):
        inside = path.relative_to(root).as_posix()
        return _Origin(f"./{inside}", f"the job installs gpuadvisor from {inside}: commit that")
    try:
        clone = Repository.around(path if path.is_dir() else path.parent)
        commit = clone.version("HEAD").commit
        has_changes = clone.has_changes
    except UsageError:
        clone = None
    if path.is_dir() and clone is not None:
        url, is_there = clone.origin_of(commit)
        if url := _over_https(url):
            lacks = "" if is_there else f"; push commit {commit[:12]} first, no remote has it here"
            lacks += f"; what is not committed in {path} is not in it" if has_changes else ""
            return _Origin(
                f"gpuadvisor @ git+{url}@{commit}{below}",
                f"the job installs gpuadvisor from {url}, which {path} is a clone of: it has to "
                f"reach that{lacks}",
            )
    return _Origin(
        f"gpuadvisor @ {path.as_uri()}{below}",
        f"the job installs gpuadvisor from {path}, as here, which only a runner on this machine "
        "has: elsewhere write a URL of it to GPUADVISOR in the workflow",
    )


def _over_https(url: str) -> str:
    """Return where anybody clones a remote from, without a user's name; empty for a local one."""
    from urllib.parse import urlsplit

    if ssh := _SSH.fullmatch(url):
        return f"https://{ssh['host']}/{ssh['path']}"
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https"):
        return ""
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


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


@dataclass(frozen=True)
class _Paths:
    """The folders of $PYTHONPATH."""

    inside: tuple[str, ...] = ()
    """Folders of the repository, as paths from its root."""
    outside: tuple[str, ...] = ()


def _python_path(root: Path, environment: Mapping[str, str]) -> _Paths:
    """Return the folders that the script was measured with, by where they are."""
    inside, outside = [], []
    given = environment.get("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    for entry in filter(None, given.split(os.pathsep)):
        path = Path(entry).resolve()
        if path.is_relative_to(root.resolve()):
            inside.append(path.relative_to(root.resolve()).as_posix())
        else:
            outside.append(entry)
    return _Paths(tuple(inside), tuple(outside))


def _left_out(job: Job, paths: _Paths) -> Iterator[str]:
    """Yield what the script was measured with here and is not in the workflow."""
    from gpuadvisor.tuning.of_process import MATTERING

    if paths.outside:
        yield (
            f"not in the workflow: {os.pathsep.join(paths.outside)} of PYTHONPATH, which the "
            "repository does not hold: have the job install what lies there"
        )
    rest = [
        name
        for name in sorted(os.environ)
        if MATTERING.match(name) and name not in {*job.environment, *UNTOLD}
    ]
    if rest:
        names = ", ".join(rest)
        yield (
            f"set here and not in the workflow, as they may be this machine's own: {names}: "
            "--env NAME writes one there"
        )


def _requirements(root: Path) -> str:
    """Return pip's arguments for what the script needs, as far as the repository says it.

    Torch is needed in any case, and not every library that is used with it depends on it.
    """
    import tomllib

    listed = _text(root / "requirements.txt")
    try:
        parsed = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))
    except (OSError, ValueError):
        parsed = {}
    project = parsed.get("project", {})
    needs = project.get("dependencies", []) if isinstance(project, dict) else []
    has_torch = any(_TORCH.match(each) for each in (*listed.splitlines(), *map(str, needs)))
    found = ["-r requirements.txt"] if listed else []
    # Editable: else both versions would import the one that is installed.
    if "project" in parsed or (root / "setup.py").is_file():
        found.append("-e .")
    return " ".join([*found, *([] if has_torch else ["torch"])])


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
    if ci == "gitlab" and FILES["gitlab"].as_posix() not in _text(root / GITLAB):
        yield f"add to {GITLAB}: include: [{{ local: {FILES['gitlab'].as_posix()} }}]"
    if tried.device.is_gpu:
        yield "it asks for a runner of your own with the label gpu: name yours in the file"
    else:
        yield (
            "this machine has no GPU that the script can use, so the workflow asks for none: on "
            'shared runners compare counts alone, `only = ["operators", "allocated_bytes"]` in the '
            "configuration, or raise tolerance and limit, such as to 10 and 25"
        )


def _text(path: Path) -> str:
    return path.read_text("utf-8", "replace") if path.is_file() else ""
