"""Which processes are one job, and what it is called.

The rule: processes are one job if one has started the other; or if the same process started both,
within a minute, of the same user, in the same container, with the same command line but for the
rank (as torchrun's workers, of which the launcher itself holds no GPU). The same number with
another start is another process.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from pathlib import PurePosixPath
from typing import TypeVar

from gpuadvisor.domain.telemetry import GpuProcess

T = TypeVar("T")
SAME_START_S = 2.0
"""Seconds by which two readings of one process's start may differ: NTP moves the machine's start,
from which the kernel counts."""
TOGETHER_S = 60.0
"""Seconds between the starts of processes that one launcher started together: on a loaded machine
eight interpreters take some. [own]"""
_RANKS = re.compile(r"--(local[-_]rank|rank|node[-_]rank|process[-_]index)[= ]\d+")
LAUNCHERS = frozenset({"accelerate", "deepspeed", "torchrun", "horovodrun", "mpirun", "srun"})
LAUNCHER_MODULES = frozenset(
    {"torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch"}
)
_WITH_VALUE = frozenset({"-W", "-X", "--check-hash-based-pycs"})
"""Options of Python that take the next word."""


def launches(processes: Sequence[T], of: Callable[[T], GpuProcess]) -> list[list[T]]:
    """Return the processes in groups, each a job; `of` returns the process of one of them."""
    leader = list(range(len(processes)))

    def root(place: int) -> int:
        while leader[place] != place:
            leader[place] = place = leader[leader[place]]
        return place

    known = [of(each) for each in processes]
    by_pid: dict[tuple[int, bool], list[int]] = {}
    siblings: dict[tuple[object, ...], list[int]] = {}
    for place, each in enumerate(known):
        by_pid.setdefault((each.pid, each.is_host_pid), []).append(place)
        if each.parent_pid is not None and each.parent_pid > 1 and each.started_s is not None:
            siblings.setdefault(_launch(each), []).append(place)
    for same in by_pid.values():
        same.sort(key=lambda place: known[place].started_s or 0.0)
        for one, other in pairwise(same):
            if is_same_process(known[one], known[other]):
                leader[root(other)] = root(one)
    for place, each in enumerate(known):
        for parent in by_pid.get((each.parent_pid or 0, each.is_host_pid), ()):
            if _started(known[parent], each):
                leader[root(place)] = root(parent)
    for together in siblings.values():
        together.sort(key=lambda place: known[place].started_s or 0.0)
        for one, other in pairwise(together):
            if (known[other].started_s or 0.0) - (known[one].started_s or 0.0) <= TOGETHER_S:
                leader[root(other)] = root(one)
    groups: dict[int, list[T]] = {}
    for place, member in enumerate(processes):
        groups.setdefault(root(place), []).append(member)
    return list(groups.values())


def is_same_process(one: GpuProcess, other: GpuProcess) -> bool:
    """Return whether both are of one process, by its number and its start."""
    if (one.pid, one.is_host_pid) != (other.pid, other.is_host_pid):
        return False
    if one.started_s is None or other.started_s is None:
        return one.started_s is other.started_s
    return abs(one.started_s - other.started_s) <= SAME_START_S


def _started(parent: GpuProcess, child: GpuProcess) -> bool:
    """Return whether one process is the other's parent, and not a later one of its number."""
    if parent.started_s is None or child.started_s is None:
        return False
    ours = (parent.user, parent.container) == (child.user, child.container)
    return ours and parent.started_s <= child.started_s + SAME_START_S


def _launch(process: GpuProcess) -> tuple[object, ...]:
    """Return what is the same for all processes of one launch."""
    words = process.name if process.command is None else _RANKS.sub("", process.command)
    return (process.parent_pid, process.user, process.container, process.is_host_pid, words)


def script_of(processes: Iterable[GpuProcess]) -> str:
    """Return what a job is called: its script's file name, `-m module`, or its program."""
    for each in processes:
        if each.command:
            path = script_path(each.command)
            return path if path.startswith(("-m ", "sha256:")) else PurePosixPath(path).name
    return next((each.name for each in processes if each.name), "?")


def script_path(command: str) -> str:
    """Return the script as a command line names it, or `-m module`, or the program.

    Arguments were joined by spaces: of a path that has any, the first part is returned.
    """
    words = command.split()
    program = PurePosixPath(words[0]).name if words else command
    if not program.startswith(("python", "pypy")):
        scripts = (word for word in words[1:] if word.endswith(".py"))
        return next(scripts, words[0]) if program in LAUNCHERS else words[0] if words else command
    rest = iter(words[1:])
    for word in rest:
        if word == "-m":
            module = next(rest, "")
            if module not in LAUNCHER_MODULES:
                return f"-m {module}"
            return next((each for each in rest if each.endswith(".py")), f"-m {module}")
        if word == "-c":
            return f"{program} -c"
        if word in _WITH_VALUE:
            next(rest, None)
        elif not word.startswith("-"):
            return word
    return program
