"""A tuning study of what a process runs: its script, folder, interpreter and environment."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from gpuadvisor.collectors.script.request import Command
from gpuadvisor.collectors.script.specification import VARIABLE
from gpuadvisor.errors import StoreError, UsageError
from gpuadvisor.printable import file_name, printable
from gpuadvisor.storage.home import HOME_VARIABLE, PRIVATE_FILE, home
from gpuadvisor.tuning.preparation import check_script

PYTHON = re.compile(r"(python|pypy)[\d.]*t?")
"""The file name of an interpreter."""
AS_VARIABLES = {
    "u": "PYTHONUNBUFFERED",
    "B": "PYTHONDONTWRITEBYTECODE",
    "s": "PYTHONNOUSERSITE",
    "P": "PYTHONSAFEPATH",
}
"""Python's options that are as good as a variable of the environment, as `python --help-env` has
them; -O and -W as well."""
LAUNCHERS = {
    "torchrun", "torch.distributed.run", "torch.distributed.launch", "accelerate",
    "accelerate.commands.launch", "deepspeed", "horovodrun",
}  # fmt: skip
"""Programs and modules that start one process a GPU."""
NOTEBOOKS = {"ipykernel_launcher", "ipykernel", "jupyter", "jupyter-lab", "jupyter-notebook"}
OURS = "GPUADVISOR_"
"""How variables begin that are this program's own."""
MATTERING = re.compile(
    r"CUDA_|CUBLAS_|CUDNN_|NCCL_|TORCH|PYTORCH_|TRITON_|OMP_|MKL_|PYTHON|"
    r"(LD_LIBRARY_PATH|LD_PRELOAD|VIRTUAL_ENV|CONDA_DEFAULT_ENV|NVIDIA_TF32_OVERRIDE)$"
)
"""Variables that decide which code runs, and how fast."""


@dataclass(frozen=True)
class Process:
    """How a process was started, as the system tells it."""

    words: tuple[str, ...]
    """Its command line."""
    folder: str
    """Its working directory now."""
    executable: str
    """What it runs, links followed; empty where that is not known."""
    environment: Mapping[str, str]
    """As it was at its start."""


@dataclass(frozen=True)
class Proposal:
    """A study that can be started."""

    command: Command
    environment: Mapping[str, str]
    dropped: tuple[str, ...] = ()
    """Options of the process's Python that its runs in a study will not have."""

    def words(self, *, scratch: bool) -> list[str]:
        """Return what comes after `gpuadvisor`."""
        command = self.command
        words = ["tune", "--python", command.python, *(["--scratch"] if scratch else [])]
        words += ["-m"] if command.is_module else []
        return [*words, command.script, *(["--", *command.args] if command.args else [])]

    def line(self, *, scratch: bool) -> str:
        """Return the command as one would type it."""
        return printable(shlex.join(["gpuadvisor", *self.words(scratch=scratch)]))

    def mattering(self) -> dict[str, str]:
        """Return the variables of the environment that decide what runs and how fast."""
        found = sorted(self.environment.items())
        return {name: printable(text) for name, text in found if MATTERING.match(name)}

    def on(self, gpu: str) -> Proposal:
        """Return the same on one GPU, given by its UUID: numbers mean another order to CUDA."""
        return replace(self, environment={**self.environment, "CUDA_VISIBLE_DEVICES": gpu})


@dataclass(frozen=True)
class Started:
    """A study in a process of its own."""

    process: subprocess.Popen[bytes]
    log: Path

    def ended(self) -> str | None:
        """Wait for its end; return what it said last where it failed, in words, else None."""
        status = self.process.wait()
        if status == 0:
            return None
        with suppress(OSError):
            lines = self.log.read_text("utf-8", "replace").splitlines()
            if said := [line for line in lines if line.startswith("gpuadvisor: ")]:
                return printable(said[-1].removeprefix("gpuadvisor: "))
        return f"it ended with status {status}"


def proposal(pid: int) -> Proposal:
    """Return the study of what a process runs; UsageError, in a sentence, where there is none."""
    import psutil

    try:
        process = psutil.Process(pid)
        user = process.username()
        if process.uids().real != os.getuid():
            raise UsageError(
                f"process {pid} is {user}'s, and a study runs a script as its own user: ask {user}"
            )
        _check_namespace(pid)
        found = Process(
            tuple(process.cmdline()), process.cwd(), process.exe(), process.environ()
        )  # fmt: skip
    except psutil.NoSuchProcess:
        raise UsageError(f"process {pid} has ended") from None
    except (psutil.Error, OSError):
        raise UsageError(
            f"the system does not let this user read how process {pid} was started: start a study "
            "in its folder with `gpuadvisor tune`"
        ) from None
    try:
        return of(found)
    except UsageError as error:
        raise UsageError(f"process {pid}: {error}") from None


def _check_namespace(pid: int) -> None:
    """UsageError where a process sees other files than this one, as in a container."""
    if Path(f"/proc/{pid}/ns/mnt").readlink() != Path("/proc/self/ns/mnt").readlink():
        raise UsageError(
            f"process {pid} is in a container with files of its own: run `gpuadvisor tune` in there"
        )


def of(process: Process) -> Proposal:
    """Return the study of what a process runs.

    UsageError where it runs no Python script of one process that is still there.
    """
    program = Path(process.executable or (process.words or ("",))[0]).name
    if not process.words or not PYTHON.fullmatch(program):
        raise UsageError(f"it runs {printable(program) or 'nothing'}, and no Python script")
    if VARIABLE in process.environment:
        raise UsageError("gpuadvisor started it, with a plan or for a study that runs already")
    options = _options(process.words)
    _refuse_special(options, process.environment)
    folder = _folder(process, None if options.is_module else options.target)
    python = _interpreter(process)
    command = Command(python, options.target, options.args, options.is_module, str(folder))
    check_script(command)
    kept = {k: text for k, text in process.environment.items() if not k.startswith(OURS)}
    return Proposal(command, {**kept, **options.variables(kept)}, tuple(options.dropped))


class _Options:
    """A command line of Python: its options, what it runs, and that one's arguments."""

    def __init__(self) -> None:
        self.target = ""
        self.args: tuple[str, ...] = ()
        self.is_module = False
        self.set: dict[str, str] = {}
        self.optimize = 0
        self.warnings: list[str] = []
        self.dropped: list[str] = []

    def variables(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Return the options as variables of the environment."""
        found = dict(self.set)
        if self.optimize:
            found["PYTHONOPTIMIZE"] = str(self.optimize)
        if self.warnings:
            before = [environment["PYTHONWARNINGS"]] if environment.get("PYTHONWARNINGS") else []
            found["PYTHONWARNINGS"] = ",".join([*before, *self.warnings])
        return found


def _options(words: Sequence[str]) -> _Options:
    """Take a command line of Python apart as Python does."""
    found = _Options()
    rest = list(words[1:])
    while rest and rest[0].startswith("-") and rest[0] != "-":
        word = rest.pop(0)
        if word == "--":
            break
        if word.startswith("--"):
            if word == "--check-hash-based-pycs" and rest:
                word = f"{word} {rest.pop(0)}"
            found.dropped.append(word)
            continue
        if _take_letters(found, word[1:], rest):
            return found
    if not rest or rest[0] == "-":
        raise UsageError("it runs no script: Python reads its standard input")
    found.target, found.args = rest[0], tuple(rest[1:])
    return found


def _take_letters(found: _Options, letters: str, rest: list[str]) -> bool:
    """Take options that stand together, as `-uO`; return whether -m ended them."""
    for place, letter in enumerate(letters):
        if letter == "c":
            raise UsageError("it runs no script, but what stands after -c")
        if letter in "mWX":
            value = letters[place + 1 :] or (rest.pop(0) if rest else "")
            if letter == "m":
                found.target, found.args, found.is_module = value, tuple(rest), True
                return True
            if letter == "W":
                found.warnings.append(value)
            else:
                found.dropped.append(f"-X {value}")
            return False
        if letter == "O":
            found.optimize += 1
        elif letter in AS_VARIABLES:
            found.set[AS_VARIABLES[letter]] = "1"
        else:
            found.dropped.append(f"-{letter}")
    return False


def _refuse_special(options: _Options, environment: Mapping[str, str]) -> None:
    """UsageError for what looks like a script, and is none of the user's or not all of it."""
    name = options.target if options.is_module else Path(options.target).name
    if name.removesuffix(".py") in NOTEBOOKS:
        raise UsageError("it is a notebook's: put what is slow into a script, and tune that")
    ranks = environment.get("WORLD_SIZE", "1")
    is_rank = "TORCHELASTIC_RUN_ID" in environment or (ranks.isdigit() and int(ranks) > 1)
    if name in LAUNCHERS or is_rank:
        raise UsageError(
            "it is part of a run of several processes (torchrun or the like), and a study measures "
            "scripts of one: tune it as `gpuadvisor tune script.py` with one process"
        )
    if name == "gpuadvisor":
        raise UsageError("it is gpuadvisor itself")


def _folder(process: Process, script: str | None) -> Path:
    """Return where the process was started: where it is now, unless its script is not there.

    The shell leaves in PWD where that was; a program that starts others may leave another's.
    """
    folder = Path(process.folder)
    if script is not None and not Path(script).is_absolute():
        before = Path(process.environment.get("PWD") or folder)
        if not (folder / script).is_file() and (before / script).is_file():
            return before
    if not folder.is_dir():
        raise UsageError(f"its folder {printable(str(folder))} is gone")
    return folder


def _interpreter(process: Process) -> str:
    """Return the Python as it was called: a virtual environment is known by its link."""
    word, environment = process.words[0], process.environment
    wanted: list[Path] = []
    if "/" in word:
        wanted += [Path(each, word) for each in (process.folder, environment.get("PWD")) if each]
    elif (found := shutil.which(word, path=environment.get("PATH"))) is not None:
        wanted.append(Path(found))
    if environment.get("VIRTUAL_ENV"):
        wanted.append(Path(environment["VIRTUAL_ENV"], "bin", "python"))
    for each in wanted:
        with suppress(OSError):
            if not process.executable or each.samefile(process.executable):
                return str(each)
    if not os.access(process.executable, os.X_OK):
        raise UsageError(f"its Python {printable(process.executable)} is gone")
    return process.executable


def start(wanted: Proposal, *, scratch: bool) -> Started:
    """Start the study in a session of its own, so that it outlives this process and its terminal.

    What it says goes to a file in the store's folder. StoreError where none can be made there;
    UsageError where the process cannot be started.
    """
    folder, stem = home(), wanted.command.stem
    log = folder / file_name(f"tune-{stem}-{datetime.now():%Y%m%d-%H%M%S}", "tune", ".log")
    try:
        output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
    except OSError as error:
        raise StoreError(f"{log} cannot be written: {error.strerror}") from error
    with os.fdopen(output, "ab") as file:
        try:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "gpuadvisor", *wanted.words(scratch=scratch)],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                cwd=wanted.command.folder,
                env={**wanted.environment, HOME_VARIABLE: str(folder)},
                start_new_session=True,
            )
        except OSError as error:
            raise UsageError(f"the study cannot be started: {error}") from error
    return Started(process, log)
