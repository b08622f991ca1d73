"""What a gate is asked, and how its two sides may differ besides their code."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from gpuadvisor.collectors.interpreter import locate
from gpuadvisor.collectors.script.request import Command
from gpuadvisor.errors import UsageError
from gpuadvisor.tuners.gate.decision import LIMIT, TOLERANCE

MEASURE_S = 4.0
"""Time for which a run is measured: 80 steps of 50 ms. Runs differ by more than steps do, so longer
ones tell little more."""
TIMEOUT_S = 600.0
PYTHON = re.compile(r"python[\d.]*t?(\.exe)?")
SWITCHES = {
    "-u": ("PYTHONUNBUFFERED", "1"),
    "-O": ("PYTHONOPTIMIZE", "1"),
    "-OO": ("PYTHONOPTIMIZE", "2"),
    "-B": ("PYTHONDONTWRITEBYTECODE", "1"),
}
"""Options of Python, by the variables that do the same: the harness is put between the interpreter
and the script by variables alone."""
LAUNCHERS = (
    *("torchrun", "accelerate", "deepspeed", "mpirun", "mpiexec", "srun", "horovodrun"),
    *("torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch"),
)
"""What starts several processes, by program or module."""
OPERATORS = re.compile(r"[|&;<>]+|\d?>+.*|<.*")
"""Words that mean something to a shell only."""


@dataclass(frozen=True)
class Own:
    """What one side is given of its own; in all else it is as the other."""

    name: str = ""
    """What tells it from the other side, as the user gave it: an interpreter, a plan, a command
    line; empty where nothing does."""
    command: Command | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    plan: Path | None = None


@dataclass(frozen=True)
class GateOptions:
    """What to compare, and how closely; UsageError where the tolerance is not below the limit."""

    command: Command
    """As in the user's folder; its script and folder are looked for in both versions."""
    base: str | None = None
    """A commit; None where folders are compared, or what both sides have of their own."""
    head: str | None = None
    """A commit; None for the work tree as it is."""
    folders: tuple[Path, Path] | None = None
    """Folders of the base and of the head, instead of commits."""
    links: tuple[str, ...] = ()
    """Files and folders that git does not hold, relative to the user's folder, which both versions
    get as symbolic links."""
    tolerance: float = TOLERANCE
    limit: float = LIMIT
    seed: int = 0
    samples_per_step: float | None = None
    timeout_s: float = TIMEOUT_S
    """Longest wait for the first step of the base."""
    measure_s: float = MEASURE_S
    in_turns: bool = True
    """Whether both versions may live at the same time and take turns, where that tells more."""
    setup: str | None = None
    """A shell command that is run in each version's folder before its first run."""
    error_share: float = 1.0
    """Part of the error of one gate that this one may make, where several make it together."""
    own: tuple[Own, Own] = (Own(), Own())
    """What the base and the head have of their own."""
    metrics: tuple[str, ...] = ()
    """Names of metrics that the verdict rests on, besides those that it rests on anyway."""
    only: tuple[str, ...] = ()
    """Names of metrics besides which, and those in `metrics`, none is compared; empty for the usual
    ones."""

    def __post_init__(self) -> None:
        if self.tolerance >= self.limit:
            raise UsageError(
                f"--tolerance ({100 * self.tolerance:g}) has to be smaller than --limit "
                f"({100 * self.limit:g})"
            )

    def commands(self) -> tuple[Command, Command]:
        """Return the command of the base and that of the head."""
        base, head = (own.command or self.command for own in self.own)
        return base, head


def owned(
    command: Command,
    pythons: tuple[str | None, str | None] = (None, None),
    plans: tuple[Path | None, Path | None] = (None, None),
    lines: tuple[str | None, str | None] = (None, None),
) -> tuple[Own, Own]:
    """Return what base and head have of their own: interpreters, plans, and command lines.

    What only one side is given is compared with `command` as it is. UsageError for what cannot be
    measured.
    """
    sides: list[Own] = []
    for side, python, plan, line in zip(("base", "head"), pythons, plans, lines, strict=True):
        given = command
        environment: dict[str, str] = {}
        if line is not None:
            if python is not None:
                raise UsageError(f"name the interpreter in --{side}-cmd, not with --{side}-python")
            given, environment = parse_line(f"--{side}-cmd", line)
        if python is not None:
            given = replace(given, python=locate(python))
        sides.append(Own("", None if given is command else given, environment, plan))
    usual = (shlex.join(command.line()[1:]), command.python, "the unchanged script")
    differ = [  # what both have in common is no name of one of them
        [str(each or other) for each in two]
        for two, other in zip((lines, pythons, plans), usual, strict=True)
        if two[0] != two[1]
    ]
    base, head = (
        replace(own, name=", ".join(two[side] for two in differ)) for side, own in enumerate(sides)
    )
    return base, head


def parse_line(option: str, text: str) -> tuple[Command, dict[str, str]]:
    """Return the command and the variables of `A=1 python train.py --flag`.

    UsageError, which names the option, for what is no Python script or module on one device.
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"{option} {text!r}: {str(error).lower()}") from None
    if shell := next(filter(OPERATORS.fullmatch, words), None):
        raise UsageError(
            f"{option}: no shell runs it, so {shell!r} means nothing: give one command"
        )
    environment: dict[str, str] = {}
    while words and re.match(r"[A-Za-z_]\w*=", words[0]):
        name, _, environment[name] = words.pop(0).partition("=")
    if "CUDA_VISIBLE_DEVICES" in environment:
        raise UsageError(
            f"{option}: both sides run on one device: set CUDA_VISIBLE_DEVICES for gpuadvisor"
        )
    python, *words = words or [""]
    _check_program(option, python)
    while words and words[0] in SWITCHES:
        name, value = SWITCHES[words.pop(0)]
        environment.setdefault(name, value)
    is_module = words[:1] == ["-m"]
    script, *args = words[is_module:] or [""]
    if not script or script.startswith("-"):
        what = f"Python's option {script}" if script else "Python without a script"
        raise UsageError(
            f"{option}: {what} cannot be measured: give `python script.py` or `python -m module`, "
            "and options of Python by their environment variables"
        )
    if is_module:
        _check_program(option, script, is_module)
    found = shutil.which(python, path=environment.get("PATH"))
    return Command(locate(found or python), script, tuple(args), is_module), environment


def _check_program(option: str, program: str, is_module: bool = False) -> None:
    """Raise UsageError for what is no Python, or starts several of them."""
    name = Path(program).name
    if name in LAUNCHERS:
        raise UsageError(
            f"{option}: {name} starts several processes, and a gate measures one on one device: "
            "give the script itself, as `python train.py`"
        )
    if not is_module and not PYTHON.fullmatch(name):
        meant = f", such as `python {program}`" if name.endswith(".py") else ""
        raise UsageError(
            f"{option}: {name or 'nothing'} is not Python, and only `python script.py` or `python "
            f"-m module` can be measured, with variables as A=1 before it{meant}"
        )
