"""The two sides that a gate compares, each made ready to be run.

A side is a folder, a command with its interpreter and variables, and a plan. Commits, folders,
interpreters, plans and command lines are ways to have two that differ.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

from gpuadvisor.collectors.interpreter import TargetPython
from gpuadvisor.collectors.script.request import Command
from gpuadvisor.collectors.worktrees import Repository, Version
from gpuadvisor.domain.gate import GateSide
from gpuadvisor.domain.knobs import Settings
from gpuadvisor.errors import UsageError
from gpuadvisor.tuners.knobs import load_knobs
from gpuadvisor.tuning.arguments import with_arguments
from gpuadvisor.tuning.gate.options import GateOptions, Own
from gpuadvisor.tuning.plans.application import check_settings
from gpuadvisor.tuning.plans.file import read_plan
from gpuadvisor.tuning.preparation import check_script

MOST_FILES = 20_000
"""Files of a side that are looked at: half a second on a local disk."""

PACKAGES = ("requirements*.txt", "*.lock", "pylock*.toml", "environment.yml", "environment.yaml")
"""Files that name a project's packages, of pip, of uv, Poetry and Pipenv, and of conda."""


@dataclass(frozen=True)
class Place:
    """Where a side runs."""

    folder: Path
    """Its working directory."""
    name: str = ""
    """A commit or a folder as the user named it; empty for the user's own folder."""
    commit: str | None = None
    root: Path | None = None
    """Top of the work tree that was made for it; None where none was."""
    top: Path | None = None
    """Top of the user's own work tree, for which `root` stands."""
    renames: Mapping[Path, Path] = field(default_factory=dict)
    """Files that the other version calls otherwise, by its names, both from the top."""


@dataclass(frozen=True)
class ReadySide:
    """One side, ready to be run."""

    side: GateSide
    command: Command
    python: TargetPython
    environment: dict[str, str]
    settings: Settings = field(default_factory=dict)
    """What its plan sets; empty without a plan."""
    lacks: str = ""
    """The script, where the side has none of that name; else empty."""
    asked: str = ""
    """The script's name that was asked for, where this side has it under another; else empty."""


def files_in(folder: Path) -> frozenset[str]:
    """Return the files of a folder, from there, with links to folders; without what git keeps.

    Links that lead nowhere are none. At most `MOST_FILES`, in no order.
    """
    found: set[str] = set()
    for above, folders, files in os.walk(folder):
        folders[:] = [each for each in folders if each != ".git"]
        links = [each for each in folders if Path(above, each).is_symlink()]
        for name in (*files, *links):
            path = Path(above, name)
            if path.exists():
                found.add(path.relative_to(folder).as_posix())
            if len(found) >= MOST_FILES:
                return frozenset(found)
    return frozenset(found)


def settings_of(own: Own) -> Settings:
    """Return what a side's plan sets; UsageError where that cannot be applied."""
    if own.plan is None:
        return {}
    knobs = load_knobs()
    settings = read_plan(own.plan, knobs).settings
    check_settings(own.plan, settings, knobs)
    return settings


@contextmanager
def both_places(*benchmarks: GateOptions) -> Iterator[tuple[Place, Place, tuple[str, ...]]]:
    """Yield where base and head of all benchmarks run, and what the user should know of it.

    Work trees go with the block. UsageError where a version is not there, or a script that only one
    side is given, or one that neither side has.
    """
    if benchmarks[0].base is None:
        yield *_folders(benchmarks), ()
    else:
        with _work_trees(benchmarks) as (places, notes):
            yield *places, notes


def _folders(benchmarks: Sequence[GateOptions]) -> tuple[Place, Place]:
    """Return the user's two folders, or twice the folder where the user is."""
    options = benchmarks[0]
    here = Path(options.command.folder or ".")
    folders = options.folders or (here, here)
    for each in benchmarks:
        _check_folders(each.commands(), folders, bool(options.folders))
    base, head = (
        Place(folder.resolve(), str(folder) if options.folders else "") for folder in folders
    )
    return base, head


@contextmanager
def _work_trees(
    benchmarks: Sequence[GateOptions],
) -> Iterator[tuple[tuple[Place, Place], tuple[str, ...]]]:
    """Yield a work tree of each version until the block ends, and what the user should know."""
    options, commands = benchmarks[0], [each.commands() for each in benchmarks]
    here = Path(options.command.folder or ".")
    try:
        repository = Repository.around(here)
    except UsageError:
        for two in commands:
            check_script(two[1])  # a name that is wrong anywhere is what the user has to mend first
        raise
    versions, notes = _versions(options, repository)
    links = dict.fromkeys(link for each in benchmarks for link in each.links)
    given = {_real(here / link) for link in links}
    lacking = []
    for two in commands:
        scripts = [_script_in(repository, command, here) for command in two]
        if not given.issuperset(_real(here / command.script) for command in two):
            lacking += _lacking(repository, scripts, *versions, two[1])
    renamed = repository.renamed(*versions) if lacking else {}
    renames = ({new: old for old, new in renamed.items()}, renamed)
    all_scripts = {_real(here / each.script) for two in commands for each in two}
    with repository.checked_out(base=versions[0], head=versions[1]) as roots:
        base, head = (
            _place(repository, version, root, links, all_scripts, names)
            for version, root, names in zip(versions, roots.values(), renames, strict=True)
        )
        yield (base, head), (*notes, *_told(repository.lfs_pointers(roots["head"])))


def _place(
    repository: Repository,
    version: Version,
    root: Path,
    links: Iterable[str],
    scripts: Collection[Path],
    renames: Mapping[Path, Path],
) -> Place:
    """Return where a version runs in its work tree, with what git does not hold."""
    folder = root / repository.inside
    folder.mkdir(parents=True, exist_ok=True)
    for link in links:
        _link(repository.root / repository.inside / link, folder / link, scripts)
    commit = version.commit if version.is_committed else None
    return Place(folder, version.name, commit, root, repository.root, renames)


def ready(
    place: Place, command: Command, own: Own, python: TargetPython, settings: Settings
) -> ReadySide:
    """Return a side that can be run: what it has of its own, in its place."""
    script, asked, there = command.script, "", True
    if not command.is_module:
        script, asked = _script_at(place, command.script)
        there = os.path.lexists(place.folder / script)
    command = replace(command, python=python.executable, script=script, folder=str(place.folder))
    line = replace(command, args=with_arguments(command.args, settings)).line()
    name = ", ".join(filter(None, (place.name, own.name))) or command.script
    plan = None if own.plan is None else str(own.plan)
    folder = str(place.folder)
    side = GateSide(name, place.commit, tuple(line), folder, own.environment, plan)
    environment = {**own.environment, **_python_path(place, python, own.environment)}
    return ReadySide(side, command, python, environment, settings, "" if there else script, asked)


def _script_at(place: Place, script: str) -> tuple[str, str]:
    """Return a script's path from the folder where a side runs, and what it was asked for as.

    The latter is empty, unless the side has it under another name.
    """
    if place.root is None or place.top is None:
        return script, ""
    top = place.top.resolve()
    here = top / place.folder.relative_to(place.root)
    path = _real(here / script)
    found = os.path.relpath(path, here)
    other = place.renames.get(path.relative_to(top)) if path.is_relative_to(top) else None
    if other is None or os.path.lexists(place.folder / found):
        return found, ""
    return os.path.relpath(top / other, here), found


def differences(base: ReadySide, head: ReadySide) -> tuple[str, ...]:
    """Return what the user should know of how both sides differ."""
    told = [
        f"git takes {side.command.script} in {side.side.name} for {side.asked}: these two are "
        "compared"
        for side in (base, head)
        if side.asked
    ]
    if same_file := _same_file(base.command, head.command):
        told.append(
            f"{head.command.script} leads to {same_file} in both versions, outside of them: that "
            "file is the same for both, whatever the commits have"
        )
    if base.side.command[0] != head.side.command[0] or _software(base.python) != _software(
        head.python
    ):
        software = [f"{side.side.name} is {_software(side.python)}" for side in (base, head)]
        return (*told, *software)
    same = (base.command, base.environment, base.settings)
    if same == (head.command, head.environment, head.settings):
        return ("both sides are the same: what differs is noise",)
    return tuple(told)


def _same_file(base: Command, head: Command) -> str:
    """Return the script, where a link has two folders run the same one; else empty."""
    if base.is_module or head.is_module or base.folder == head.folder:
        return ""
    one, other = (os.path.realpath(Path(each.folder or ".", each.script)) for each in (base, head))
    return one if one == other else ""


def _software(python: TargetPython) -> str:
    cuda = f" for CUDA {python.cuda}" if python.cuda else ""
    return f"Python {python.version} with torch {python.torch}{cuda}"


def _versions(
    options: GateOptions, repository: Repository
) -> tuple[tuple[Version, Version], tuple[str, ...]]:
    """Return the commits of base and head, and what the user should know of them."""
    named = repository.version(options.base or "")
    head = repository.work_tree() if options.head is None else repository.version(options.head)
    base = repository.base_of(named, head)
    notes = []
    if base.commit != named.commit:
        notes.append(
            f"compared is {base.commit[:12]}, where {head.name} left {named.name}, which went on "
            "since"
        )
    if base.commit == head.commit and options.own[0].name == options.own[1].name:
        older = (
            f"; to compare {head.name} with {named.name}, which came after it, check both out and "
            "give --base-folder and --head-folder"
        )
        noise = f"both are commit {base.commit[:12]}: what differs is noise"
        notes.append(noise + older * (base.commit != named.commit))
    if options.setup is None and len({each.python for each in options.commands()}) == 1:
        wanted = (each for each in repository.changed(base, head) if _names_packages(each))
        notes += (
            f"both versions run with the same packages, though {path} is not the same in them: "
            "--setup-cmd installs those of each"
            for path in islice(wanted, 1)
        )
    return (base, head), tuple(notes)


def _names_packages(path: Path) -> bool:
    """Say whether a file does nothing but name packages that are to be installed."""
    return any(path.match(pattern) for pattern in PACKAGES)


def _script_in(repository: Repository, command: Command, here: Path) -> Path | None:
    """Return a command's script relative to the top of the repository; None for a module.

    UsageError where it is somewhere else.
    """
    if command.is_module:
        return None
    path, top = _real(here / command.script), repository.root.resolve()
    if not path.is_relative_to(top):
        raise UsageError(
            f"{command.script} is not in the repository {top}, so it has no versions there: run "
            "the gate in its own, or compare two folders with --base-folder and --head-folder"
        )
    return path.relative_to(top)


def _real(path: Path) -> Path:
    """Return a path without links, but for the file itself."""
    return path.parent.resolve() / path.name


def _check_folders(two: Sequence[Command], folders: Sequence[Path], are_given: bool) -> None:
    """Raise UsageError where a folder is not there, neither has the script, or one lacks its own.

    A script that only one of them has is lost in the head, or new in it.
    """
    missing = []
    for command, folder in zip(two, folders, strict=True):
        if not folder.is_dir():
            raise UsageError(f"there is no folder {folder}")
        if are_given and Path(command.script).is_absolute() and not command.is_module:
            raise UsageError(f"{command.script}: give its path relative to the two folders")
        try:
            check_script(replace(command, folder=str(folder.resolve())))
        except UsageError as error:
            missing.append(error)
    names = {os.path.normpath(command.script) for command in two}
    if len(missing) == 2 or (missing and len(names) == 2):
        raise missing[-1]


def _lacking(
    repository: Repository,
    scripts: Sequence[Path | None],
    base: Version,
    head: Version,
    command: Command,
) -> list[tuple[Version, Path]]:
    """Return which version lacks the script: it is new in the head, or lost there.

    UsageError where neither has it, or one lacks what it alone was given; `command` is the head's.
    """
    lacking = [
        (version, path)
        for version, path in zip((base, head), scripts, strict=True)
        if path is not None and not repository.holds(version, path)
    ]
    if scripts[0] != scripts[1]:
        for version, path in lacking:
            raise UsageError(
                f"{path} is not in {version.name} ({version.commit[:12]}): name what that version "
                "has, or another one"
            )
    elif len(lacking) == 2:
        check_script(command)
        way = f"leave out --head, or give it to both with --link {command.script}"
        if not head.is_committed:
            way = f"git ignores it, which `git add --force {scripts[0]}` ends, or so does --link"
        raise UsageError(f"{scripts[0]} is neither in {base.name} nor in {head.name}: {way}")
    return lacking


def _told(pointers: Sequence[str]) -> tuple[str, ...]:
    """Return a sentence on files that are Git LFS pointers in a work tree."""
    if not pointers:
        return ()
    more = f" and {len(pointers) - 1} more" if len(pointers) > 1 else ""
    return (
        f"of {pointers[0]}{more} there is only the pointer of Git LFS, not the content, as git-lfs "
        "is not installed or set to skip it: `git lfs install` and `git lfs pull` get it",
    )


def _link(source: Path, link: Path, scripts: Collection[Path]) -> None:
    """Give a version what git does not hold, unless it holds it all the same.

    A script is copied: of a link Python would look for modules where it leads, in the user's own
    folder.
    """
    if not source.exists():
        raise UsageError(f"--link {source.name}: there is no {source}")
    if link.exists() or link.is_symlink():
        return
    link.parent.mkdir(parents=True, exist_ok=True)
    if _real(source) in scripts:
        shutil.copy2(source, link)
    else:
        link.symlink_to(source.resolve())


def _python_path(
    place: Place, python: TargetPython, environment: Mapping[str, str]
) -> dict[str, str]:
    """Return where Python looks for packages whose source is in the repository.

    A package that is installed from the user's folder (`pip install -e .`) would else be the same
    in both versions, and so would what $PYTHONPATH names there.
    """
    if place.root is None or place.top is None:
        return {}
    here = place.top.resolve()
    entries = []
    for folder in python.editable:
        path = Path(folder).resolve()
        if path.is_relative_to(here):
            mapped = place.root / path.relative_to(here)
            # Only where its packages are: a folder `datasets` beside them is no package of theirs.
            entries.append(str(mapped / "src" if (mapped / "src").is_dir() else mapped))
    given = environment.get("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    for entry in filter(None, given.split(os.pathsep)):
        path = Path(entry).resolve()
        inside = path.is_relative_to(here)
        entries.append(str(place.root / path.relative_to(here)) if inside else entry)
    return {"PYTHONPATH": os.pathsep.join(entries)} if entries else {}
