"""The two versions that a gate compares, each ready to be run in a folder of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from gpuadvisor.collectors.interpreter import TargetPython
from gpuadvisor.collectors.script.request import Command
from gpuadvisor.collectors.worktrees import Repository, Version
from gpuadvisor.domain.gate import GateSide
from gpuadvisor.errors import UsageError
from gpuadvisor.tuning.gate.options import GateOptions
from gpuadvisor.tuning.preparation import check_script


@dataclass(frozen=True)
class ReadySide:
    """One side, ready to be run."""

    side: GateSide
    command: Command
    environment: dict[str, str]


@contextmanager
def both_sides(
    options: GateOptions, python: TargetPython
) -> Iterator[tuple[ReadySide, ReadySide, tuple[str, ...]]]:
    """Yield both versions and what the user should know of them; work trees go with the block."""
    if options.folders is not None:
        base, head = (_in_folder(options.command, folder) for folder in options.folders)
        yield base, head, ()
        return
    assert options.base is not None  # the command asked for one of both
    repository = Repository.around(Path.cwd())
    command = _relative(options.command, repository)
    named = repository.version(options.base)
    head_version = (
        repository.work_tree() if options.head is None else repository.version(options.head)
    )
    base_version = repository.base_of(named, head_version)
    notes = []
    if base_version.commit != named.commit:
        notes.append(
            f"{named.name} went on since: compared is {base_version.commit[:12]}, where "
            f"{head_version.name} left it"
        )
    if base_version.commit == head_version.commit:
        notes.append(f"both are commit {base_version.commit[:12]}: what differs is noise")
    _check_versions(repository, command, base_version, head_version)
    with repository.checked_out(base=base_version, head=head_version) as folders:
        sides = []
        for version, root in zip((base_version, head_version), folders.values(), strict=True):
            folder = root / repository.inside
            folder.mkdir(parents=True, exist_ok=True)
            for link in options.links:
                _link(repository.root / repository.inside / link, folder / link)
            placed = replace(command, folder=str(folder))
            variables = _python_path(repository.root, root, python)
            commit = version.commit if version.is_committed else None
            side = GateSide(version.name, commit, tuple(placed.line()), str(folder))
            sides.append(ReadySide(side, placed, variables))
        yield sides[0], sides[1], tuple(notes)


def _in_folder(command: Command, folder: Path) -> ReadySide:
    """Return the script of a folder that the user names."""
    if Path(command.script).is_absolute() and not command.is_module:
        raise UsageError(f"{command.script}: give its path relative to the two folders")
    placed = replace(command, folder=str(folder.resolve()))
    check_script(placed)
    side = GateSide(str(folder), None, tuple(placed.line()), str(folder.resolve()))
    return ReadySide(side, placed, {})


def _relative(command: Command, repository: Repository) -> Command:
    """Return the command with a script that is found in any work tree; UsageError if it cannot."""
    check_script(command)
    script = Path(command.script)
    if command.is_module:
        return command
    top = repository.root.resolve()
    if not (Path.cwd() / script).resolve().is_relative_to(top):
        raise UsageError(f"{script} is not in the repository {top}, so it has no versions there")
    return replace(command, script=os.path.relpath(script.absolute(), Path.cwd()))


def _check_versions(repository: Repository, command: Command, base: Version, head: Version) -> None:
    """Raise UsageError where a version lacks the script or needs more than a work tree holds."""
    for version in (base, head):
        if repository.submodules(version):
            raise UsageError(
                f"{version.name} has submodules, which a new work tree lacks: clone both versions "
                "with `git clone --recurse-submodules` and give --base-folder and --head-folder"
            )
    if command.is_module:
        return
    path = Path(os.path.normpath(repository.inside / command.script))
    have = {version.name: repository.holds(version, path) for version in (base, head)}
    if all(have.values()):
        return
    lacking = base if not have[base.name] else head
    if have[base.name] != have[head.name]:
        other = head if lacking is base else base
        raise UsageError(
            f"{path} is in {other.name}, but not in {lacking.name} ({lacking.commit[:12]}): there "
            "is nothing to compare it with; name a script that both have, or another --base"
        )
    raise UsageError(f"{path} is in neither version: git does not hold it; `git add` it first")


def _link(source: Path, link: Path) -> None:
    """Give a version what git does not hold, unless it holds it all the same."""
    if not source.exists():
        raise UsageError(f"--link {source.name}: there is no {source}")
    if not link.exists() and not link.is_symlink():
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(source.resolve())


def _python_path(top: Path, root: Path, python: TargetPython) -> dict[str, str]:
    """Return where Python looks for packages whose source is in the repository.

    A package that is installed from the user's folder (`pip install -e .`) would else be the same
    in both versions, and so would what $PYTHONPATH names there.
    """
    here = top.resolve()
    entries = []
    for folder in python.editable:
        path = Path(folder).resolve()
        if path.is_relative_to(here):
            mapped = root / path.relative_to(here)
            # Only where its packages are: a folder `datasets` beside them is no package of theirs.
            entries.append(str(mapped / "src" if (mapped / "src").is_dir() else mapped))
    for entry in filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)):
        path = Path(entry).resolve()
        inside = path.is_relative_to(here)
        entries.append(str(root / path.relative_to(here)) if inside else entry)
    return {"PYTHONPATH": os.pathsep.join(entries)} if entries else {}
