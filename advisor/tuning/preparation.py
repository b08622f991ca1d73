"""Checks before a study: a script, an interpreter, a place for the plan, and a free device."""

from __future__ import annotations

import errno
import os
import re
import shlex
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from gpuadvisor.collectors.devices import cpu_device, list_gpus
from gpuadvisor.collectors.energy import other_processes
from gpuadvisor.collectors.interpreter import Inspection, TargetPython, able, describe_python
from gpuadvisor.collectors.script.request import Command
from gpuadvisor.collectors.script.scratch import unavailable
from gpuadvisor.domain.device import Device
from gpuadvisor.domain.study import Objective
from gpuadvisor.errors import RefusedError, StoreError, UsageError
from gpuadvisor.interruption import at_once
from gpuadvisor.storage.home import home
from gpuadvisor.storage.locks import PREFIX, Held, device_locked
from gpuadvisor.toml_file import MAX_BYTES

T = TypeVar("T")


def check_script(command: Command) -> None:
    """Raise UsageError if there is no such script."""
    if command.is_module:
        return
    path = Path(command.folder or ".") / command.script
    try:
        path.stat()
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise UsageError(f"{path.name[:40]}...: this name is too long for a file") from None
    if re.fullmatch(r"python[\d.]*", path.name) and not path.suffix == ".py" and not path.is_file():
        raise UsageError(
            f"{command.script} is no script: leave it out and name the script itself, and with "
            "--python the interpreter if need be"
        )
    if path.is_dir():
        raise UsageError(
            f"{command.script} is a folder: name the script in it, or use -m for a package"
        )
    if path.suffix == ".ipynb" and path.is_file():
        raise UsageError(
            f"{command.script} is a notebook: make a script of it, as with `jupyter nbconvert --to "
            f"script {shlex.quote(command.script)}`"
        )
    if not path.is_file():
        raise UsageError(
            f"there is no script {command.script} in {Path(command.folder or '.').resolve()}"
        )


def check_scratch(wanted: bool) -> None:
    """Raise UsageError if runs are to have private views of the file system and cannot."""
    problem = unavailable() if wanted else None
    if problem is not None:
        raise UsageError(f"--scratch: {problem}")


def ask_python(command: Command) -> Inspection:
    """Ask a command's interpreter what it has; UsageError where there is none."""
    return Inspection(command.python, _known_pythons())


def target_python(command: Command, asked: Inspection | None = None) -> TargetPython:
    """Return what a command's interpreter has, which may have been `asked` before.

    UsageError if it cannot run a PyTorch script.
    """
    with at_once():
        if asked is None:
            python = describe_python(command.python, kept=_known_pythons())
        else:
            python = able(asked.answer())
    if python.torch is None:
        why = python.torch_problem or "it has no torch"
        raise UsageError(
            f"{python.executable} cannot run a PyTorch script: {why}. Name the interpreter that "
            "runs your script with --python, or install torch there"
        )
    return python


def _known_pythons() -> Path | None:
    """Return the folder where interpreters' answers are kept; None where nothing can be."""
    try:
        return home() / "pythons"
    except StoreError:  # whoever stores something says so
        return None


def devices_for(python: TargetPython, jobs: int) -> list[Device]:
    """Return the GPUs to use, or the CPU where an interpreter's torch can use no GPU.

    Each has its share of the cores, as trials that run side by side keep to theirs.
    """
    gpus = list(list_gpus()) if python.gpus else []
    if jobs > max(1, len(gpus)):
        are = {0: "is no GPU", 1: "is one GPU"}.get(len(gpus), f"are {len(gpus)} GPUs")
        raise UsageError(
            f"--jobs {jobs}: there {are} that torch can use; `gpuadvisor doctor` says what is there"
        )
    chosen = [replace(gpu, cores=max(1, gpu.cores // jobs)) for gpu in gpus[:jobs]]
    return chosen or [cpu_device()]


def likely_device(asked: Inspection) -> Device:
    """Return the device that a study will probably choose, before an interpreter has answered."""
    gpus = list_gpus() if asked.used_gpus is not False else ()
    return gpus[0] if gpus else cpu_device()


def check_objective(objective: Objective, device: Device) -> None:
    """Raise UsageError if the device cannot show what is to be improved."""
    if objective is Objective.ENERGY and not device.is_gpu:
        raise UsageError(
            "--objective energy needs a GPU, and here is none that torch can use: the energy of "
            "a CPU is not measured"
        )


def plan_path(command: Command, wanted: Path | None = None) -> Path:
    """Return where the plan of a script goes: where it is `wanted`, or beside the user.

    UsageError if it could not be written there in the end.
    """
    path = wanted or Path(f"{command.stem or 'script'}.plan.toml")
    problem = _unwritable(path) or _reason_to_keep(path, Path(command.script))
    if problem is not None:
        raise UsageError(
            f"the plan could not be written to {path}: {problem}; choose another place with --plan"
        )
    return path


def _reason_to_keep(path: Path, script: Path) -> str | None:
    """Return why a file that is there is not to be replaced by a plan, or None."""
    if not path.exists():
        return None
    if script.exists() and path.samefile(script):
        return "it is the script itself"
    if not path.is_file():
        return "it is no ordinary file"
    if path.suffix == ".toml":
        return None
    with path.open("rb") as file:
        return None if b"[plan]" in file.read(MAX_BYTES) else "a file that is no plan is there"


def _unwritable(path: Path) -> str | None:
    if path.is_dir():
        return "it is a folder"
    folder = path.absolute().parent
    if not folder.is_dir():
        return f"there is no folder {folder}"
    return None if os.access(folder, os.W_OK | os.X_OK) else f"the folder {folder} is read-only"


def lock_name(device: Device) -> str:
    """Return by what name a device is locked."""
    return device.uuid or device.kind


@contextmanager
def reserved(
    devices: Sequence[Device], checked: AbstractContextManager[T], ours: Collection[Device] = ()
) -> Iterator[T]:
    """Yield what was `checked`, and keep others of gpuadvisor away from the devices meanwhile.

    Two that measure would both be wrong. `checked` is entered before the devices are asked for, and
    raises UsageError for all that the user has to mend: waiting for the other one would not help
    against that. RefusedError, which names the other, where one runs there: of any user and any
    home, as `device_locked` says. Devices that are `ours` are locked already.
    """
    with ExitStack() as stack:
        found = stack.enter_context(checked)
        for device in devices:
            if device in ours:
                continue
            name = lock_name(device)
            try:
                stack.enter_context(device_locked(name))
            except Held as other:
                raise RefusedError(_occupied(device, name, other)) from None
        yield found


def _occupied(device: Device, name: str, other: Held) -> str:
    """Return who uses a device, and what to do."""
    where = device.name if device.is_gpu else "the CPU"
    who = f"process {other.process}" if other.process else "its process is not known"
    who += f" of user {other.user}" if other.user else ""
    stop = "ask its user to stop it" if other.user else "stop it"
    if not other.process:
        stop = f"see with `ss -xap | grep {PREFIX}{name}` whose it is"
    elsewhere = ", or choose another GPU with CUDA_VISIBLE_DEVICES" if device.is_gpu else ""
    return (
        f"another gpuadvisor measures on {where} ({who}), and two would measure each other: "
        f"wait for it or {stop}{elsewhere}"
    )


def gpu_contention(device: Device) -> str | None:
    """Return a warning if others compute on the GPU now, else None."""
    others = other_processes(device) if device.is_gpu else None
    if not others:
        return None
    names = ", ".join(f"{process.name or 'process'} ({process.pid})" for process in others[:3])
    return f"others use {device.name} at the same time: {names}; every figure may be off"


def refuse_contention(device: Device) -> None:
    """Raise RefusedError, which names them, if others compute on the GPU now."""
    if warning := gpu_contention(device):
        raise RefusedError(f"{warning}; wait until it is free, or choose another GPU")
