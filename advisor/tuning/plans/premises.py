"""What a rehearsal rests on, and what of it has changed since: code, arguments, packages, device.

A rehearsal holds for the files that it ran. Which of them a script loads is not known before it
runs, so all are looked at that it may: source and configuration files in the work tree of its
repository, else in its folder and below, in the folders of PYTHONPATH, and of packages that are
installed from their source. Data and other environment variables are not compared.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from gpuadvisor.collectors.script.request import Command
from gpuadvisor.domain.device import Environment
from gpuadvisor.domain.study import Plan, Premises, Rehearsal
from gpuadvisor.errors import UsageError
from gpuadvisor.storage.database import Store
from gpuadvisor.tuners.rehearsal.comparison import missing
from gpuadvisor.tuning.plans.file import FIRST_LINE
from gpuadvisor.tuning.trials.leftovers import ENVIRONMENT_FILES, NOT_LOOKED_INTO

CODE = frozenset((".py", ".pyx", ".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp"))
"""Ends of the names of source files: Python's, and those of extensions that torch compiles."""
CONFIGURATION = frozenset((".json", ".yaml", ".yml", ".toml", ".ini", ".cfg"))
"""Ends of the names of files by which scripts are configured."""
NO_CODE = NOT_LOOKED_INTO | {"wandb", "mlruns", "lightning_logs", "torch_compile_debug"}
"""Folders of tools and trackers, where copies of code and configurations come with every run."""
MOST_CONFIGURATIONS = 200
"""Most configuration files of one folder: a folder that has more of them holds data."""
MOST_FILES = 5_000
"""Most files that are read. transformers has 4,000 of Python; more is not one project's."""
LONGEST_S = 5.0
"""Longest time for looking: a local disk gives 5,000 source files in 0.5 s, and the names of a
million files of data that lie between them in 2 s."""
DIGEST_BYTES = 1 << 20
"""Bytes of a file that are compared, beside its size. Source files are smaller."""
PLAN = "plan"
"""Stands for the digest of a plan, which studies write and scripts do not read."""


def premises(
    command: Command,
    environment: Environment,
    tolerance: float,
    seed: int,
    packages: Iterable[str] = (),
    editable: Iterable[str] = (),
) -> Premises:
    """Return what a rehearsal of a script would rest on now; it never raises.

    `tolerance` is the relative difference of results that it allows, `packages` are those of the
    script's Python, and `editable` the folders of those of them that are installed from source.
    """
    folders = [*_search_path(), *map(Path, editable)]
    try:
        return _premises(command, environment, tolerance, seed, tuple(packages), folders)
    except OSError as error:  # a folder above is not for us to read
        return Premises({}, {}, {}, incomplete=str(error))


def _premises(
    command: Command,
    environment: Environment,
    tolerance: float,
    seed: int,
    packages: tuple[str, ...],
    folders: Iterable[Path],
) -> Premises:
    working = Path(command.folder or ".").resolve()
    root = _root(working, command)
    files, incomplete = _files([root, *((working / each).resolve() for each in folders)])
    if command.is_module and not _is_in(working, command.script):
        incomplete = f"the module {command.script} does not lie in {working}"
    named = list(_named_in(command.args, working))
    facts = _facts(command, environment, tolerance, seed, working, root)
    code, configuration = (
        {
            _name(path, root): digest
            for path in (*files, *named)
            if path.suffix in kind and (digest := _digest(path)) != PLAN
        }
        for kind in (CODE, CONFIGURATION)
    )
    return Premises(facts, code, configuration, packages, incomplete)


def without(found: Premises, command: Command, left: Iterable[str]) -> Premises:
    """Return premises without files that runs of the script left behind, which each run rewrites.

    `left` are their names as a study's result has them, from the working directory.
    """
    if found.incomplete:
        return found
    working = Path(command.folder or ".").resolve()
    root = _root(working, command)
    names = {_name(working / each, root) for each in left}
    return replace(
        found,
        code={name: digest for name, digest in found.code.items() if name not in names},
        configuration={n: digest for n, digest in found.configuration.items() if n not in names},
    )


def earlier_rehearsal(
    store: Store, plan: Plan, path: str, now: Premises
) -> tuple[Rehearsal | None, str]:
    """Return a plan's rehearsal that still holds, and a clause that says so or why there is none.

    It is the newest that rests on what a rehearsal would rest on `now`, of the study that made the
    plan or of one that verified the plan at `path`. One that found a problem, or did not cover
    enough, is worth another try.
    """
    names = [each.name for each in store.study_records() if each.verifies == path]
    why = ""
    for name in filter(None, (*names, plan.study)):
        rehearsal = _stored(store, name)
        if rehearsal is None or rehearsal.premises is None or rehearsal.settings != plan.settings:
            continue
        then = rehearsal.premises
        which = f"the rehearsal of study {then.study} from {then.made[:10]}"
        changed = difference(then, now)
        if changed is None:
            if rehearsal.problems:
                return None, f"{which} found a problem: {rehearsal.problems[0].sentence}"
            if (lacks := missing(rehearsal)) is not None:
                return None, f"{which} did not cover enough: {lacks}"
            same = "the same script, arguments, packages and device"
            return rehearsal, f"{which} still holds: {same}"
        why = why or f"{which} does not hold any more: {changed}"
    return None, why or "no earlier rehearsal of this plan is stored here"


def _stored(store: Store, study: str) -> Rehearsal | None:
    """Return the rehearsal of a study; None where there is no such study, or it has none."""
    try:
        return store.load_study(study).rehearsal
    except UsageError:
        return None


def difference(then: Premises, now: Premises) -> str | None:
    """Return what is not as it was, as a clause without a full stop; None where nothing is.

    New configuration files do not matter: the code, which is the same, was rehearsed without them.
    """
    for which in (now, then):
        if which.incomplete:
            return f"whether its files are the same cannot be told: {which.incomplete}"
    for name in dict.fromkeys((*then.facts, *now.facts)):
        was, is_ = then.facts.get(name, "not known"), now.facts.get(name, "not known")
        if was != is_:
            return f"{name}: {is_ or 'none'} now, {was or 'none'} then"
    if then.packages != now.packages:
        sets = set(now.packages), set(then.packages)
        here, there = (sorted(one - other) for one, other in (sets, sets[::-1]))
        return f"packages: {_some(here)} now, {_some(there)} then"
    changed = [*_changes(then.code, now.code), *_changes(then.configuration, now.configuration)]
    added = [name for name in now.code if name not in then.code and _may_be_loaded(name, then.code)]
    if changed or added:
        name = (changed or added)[0]
        gone = name not in now.code and name not in now.configuration
        verb = "is gone" if gone else "has changed" if changed else "is new"
        more = len(changed) + len(added) - 1
        return f"{name} {verb}" + (f", and {more} more files are not the same" if more else "")
    return None


def _may_be_loaded(name: str, code: Mapping[str, str]) -> bool:
    """Say whether code that is the same can load a new file: in a folder of it, or one below.

    Not what is further away, as in a folder of compiled kernels, or of a tracker's copies.
    """
    folders = {os.path.dirname(each) for each in code} | {""}  # noqa: PTH120 - texts here
    own = os.path.dirname(name)  # noqa: PTH120
    return own in folders or os.path.dirname(own) in folders  # noqa: PTH120


def _some(names: list[str], most: int = 3) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return (", ".join(names[:most]) or "none") + more


def _changes(then: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    """Yield the files that were there and are different now, or gone."""
    return (name for name, digest in then.items() if now.get(name) != digest)


def _facts(
    command: Command,
    environment: Environment,
    tolerance: float,
    seed: int,
    working: Path,
    root: Path,
) -> dict[str, str]:
    script = command.script if command.is_module else _name(working / command.script, root)
    known = {
        "script": f"-m {script}" if command.is_module else script,
        "arguments": shlex.join(command.args),
        "working directory": _name(working, root),
        "tolerance": repr(tolerance),
        "seed": repr(seed),
        "gpuadvisor": environment.gpuadvisor,
        "Python": environment.python,
        "torch": environment.torch,
        "CUDA": environment.cuda,
        "cuDNN": environment.cudnn,
        "device": f"{environment.device.kind}, {environment.device.name}",
    }
    return {name: value for name, value in known.items() if value is not None}


def _root(working: Path, command: Command) -> Path:
    """Return the folder below which the script's own files lie.

    Modules beside a script's folder, as in `scripts/` and `src/`, are in its repository.
    """
    own = working if command.is_module else (working / command.script).resolve().parent
    for folder in (own, *own.parents):
        if (folder / ".git").exists():
            return folder
    return own


def _search_path() -> list[Path]:
    """Return the folders of PYTHONPATH."""
    named = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    return [Path(each) for each in named]


def _is_in(working: Path, module: str) -> bool:
    first = module.partition(".")[0]
    return (working / first).is_dir() or (working / f"{first}.py").is_file()


def _files(roots: Iterable[Path]) -> tuple[list[Path], str]:
    """Return source and configuration files in folders and below, and why they are not all."""
    found: list[Path] = []
    waiting, end_s = deque(roots), time.monotonic() + LONGEST_S
    # Where gpuadvisor's own modules lie, too, and what torch compiles.
    caches = os.environ.get("XDG_CACHE_HOME")
    seen = {os.path.realpath(caches)} if caches else set()
    while waiting:
        folder = waiting.popleft()
        if (real := os.path.realpath(folder)) in seen:
            continue
        seen.add(real)
        code, configuration, inner = _content(folder, end_s)
        if folder.is_symlink() and not code:
            continue  # the way to data, which may be the largest of all
        found += code
        if len(configuration) <= MOST_CONFIGURATIONS:
            found += configuration
        waiting.extend(inner)
        if len(found) > MOST_FILES:
            return [], f"there are more than {MOST_FILES} source files"
        if time.monotonic() > end_s:
            return [], f"looking for source files took more than {LONGEST_S:g} s"
    return found, ""


def _content(folder: Path, end_s: float) -> tuple[list[Path], list[Path], list[Path]]:
    """Return a folder's source files, configuration files, and folders worth a look; sorted."""
    code: list[Path] = []
    configuration: list[Path] = []
    inner: list[Path] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                suffix = os.path.splitext(entry.name)[1]  # noqa: PTH122 - a million names
                if entry.name in ENVIRONMENT_FILES:
                    return [], [], []
                if suffix in CODE:
                    code.append(Path(entry.path))
                elif suffix in CONFIGURATION:
                    configuration.append(Path(entry.path))
                elif entry.name not in NO_CODE and entry.is_dir():
                    inner.append(Path(entry.path))
                if time.monotonic() > end_s:
                    break
    except OSError:  # not for us to read, or gone meanwhile
        return [], [], []
    return sorted(code), sorted(configuration), sorted(inner)


def _named_in(args: Iterable[str], working: Path) -> Iterator[Path]:
    """Yield the files that a script's arguments name, such as `--config=a.yaml`."""
    for arg in args:
        for text in {arg, arg.partition("=")[2]}:
            try:
                if text and (working / text).is_file():
                    yield working / text
            except (OSError, ValueError):  # no name of a file
                continue


def _name(path: Path, root: Path) -> str:
    """Return a path from the root where it is below it, so that a copy elsewhere has the same."""
    path = path.resolve()
    return str(path.relative_to(root) if path.is_relative_to(root) else path)


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(DIGEST_BYTES)
            size = os.fstat(file.fileno()).st_size
    except OSError:
        return "unreadable"
    if content.startswith(FIRST_LINE.encode()):
        return PLAN
    return hashlib.sha256(content + str(size).encode()).hexdigest()[:32]
