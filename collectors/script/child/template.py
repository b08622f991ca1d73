"""A process that has imported what the script imports, and becomes a run of it when asked.

It is started as the script is, and waits where the harness begins in any process: before the
script. Each run is a fork of it that goes on from there, so that the interpreter itself sets up
`__main__`, `sys.argv` and `sys.path` as it always does. Whether the script depends on that is for
gpuadvisor to find out, by comparing a run with one in a fresh process.
"""

# ruff: noqa: PTH100, PTH109, PTH115, PTH117, PTH118, PTH208
# Paths are texts here, as the import system's are.
from __future__ import annotations

import gc
import json
import os
import random
import sys
import threading
import time
import warnings
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from types import FunctionType
from typing import Any

from gpuadvisor.collectors.script.child.channel import leave
from gpuadvisor.collectors.script.child.imported import (
    changed_since,
    conditions,
    is_installed,
    library_origin,
)
from gpuadvisor.collectors.script.child.shortening.loop_imports import main_script, run_instead

THREADS_END_S = 0.5
"""How long threads that a fork has ended may take to be gone from the kernel's list."""
SPARE_THREADS = frozenset(("jemalloc_bg_thd",))
"""Names of threads without which a fork works as before: jemalloc's gives unused memory back to the
kernel, and in a fork whoever frees memory does (`background_thread_postfork_child` of jemalloc's
`src/background_thread.c`). PyArrow starts one as it is imported, and pandas imports PyArrow."""
ADOPTION_S = 5.0
"""How long the kernel may take to make gpuadvisor the parent of a run."""

Reference = tuple[dict[str, Any], str, Any, dict[str, Any], str]
"""A module's names, the name of a function of torch in it, that function, and where torch itself
has it: names and name."""


class UnfitError(Exception):
    """Why a process cannot be a template: a clause without a full stop."""


class Template:
    """Imports, waits, and forks."""

    def __init__(self, told: Mapping[str, Any], parent: int) -> None:
        self._parent = parent
        self._orders = open(told["orders"], encoding="utf-8")  # noqa: PTH123, SIM115
        self._answers: int = told["answers"]
        self._references: list[Reference] = []
        with open(told["imports"], encoding="utf-8") as file:  # noqa: PTH123
            self._phases: list[dict[str, Any]] = json.load(file)

    def wait(self) -> None:
        """Return in each run, with its environment and output; never in the template itself."""
        open_before = _descriptors()
        self._printed = os.memfd_create("gpuadvisor-imports")
        began = time.monotonic()
        try:
            with _output_to(self._printed):
                self._import_all()
            open_before.add("/memfd:gpuadvisor-imports (deleted)")
            _check_alone(open_before)
        except Exception as error:
            why = (
                str(error) if isinstance(error, UnfitError) else f"{type(error).__name__}: {error}"
            )
            self._answer(problem=why[:500])
            leave(1)
        self._answer(seconds=time.monotonic() - began)
        for line in iter(self._orders.readline, ""):
            if self._forked():
                self._become_run(json.loads(line))
                return
        leave(0)  # gpuadvisor has ended, or needs no more runs

    def hooked(self) -> None:
        """Give modules that were imported ahead what the harness put in torch meanwhile.

        They would have found it there, had they been imported by the script.
        """
        for names, name, function, home, own_name in self._references:
            if names.get(name) is function and home.get(own_name, function) is not function:
                names[name] = home[own_name]

    def _import_all(self) -> None:
        began = conditions()
        for number, phase in enumerate(self._phases):
            before = _state_of_torch() if number else None
            with _as_in(phase):
                known = set(sys.modules)
                _import(phase["modules"], phase.get("never", ()))
            # What a library changes itself when it is imported, it has changed here, too; one that
            # imports torch itself is imported whole here, and may have changed its last by now.
            now, then = changed_since(began), phase["changed"]
            last = phase.get("changed_later") or self._phases[-1]["changed"]
            differ = [k for k in now.keys() | then.keys() if now.get(k) != then.get(k)]
            if others := [k for k in differ if k in then or k not in last or now[k] != last[k]]:
                when = "its model is called" if number else "it imports torch"
                raise UnfitError(f"it changes {min(others)} before {when}")
            if before is not None and before != _state_of_torch():
                raise UnfitError("what it imports after torch changes torch's own state")
            if number:
                self._references = list(_references(sys.modules.keys() - known))

    def _forked(self) -> bool:
        """Fork twice, so that a run's parent is gpuadvisor itself; return True in the run."""
        between = _fork()
        if between:
            os.waitpid(between, 0)
            return False
        if os.fork():
            leave(0)
        return True

    def _become_run(self, order: Mapping[str, Any]) -> None:
        """Become what a process is that gpuadvisor has started for the script."""
        try:
            os.setsid()
            output = os.open(order["output"], os.O_WRONLY)
            os.dup2(output, 1)
            os.dup2(output, 2)
            if output > 2:
                os.close(output)
            if "folder" in order:
                _move(order)
            os.environ.update(order["environment"])
            deadline = time.monotonic() + ADOPTION_S
            while os.getppid() != self._parent:
                if time.monotonic() > deadline:
                    raise UnfitError("the kernel did not make gpuadvisor the parent of a run")
                time.sleep(0.001)
            self._answer(pid=os.getpid())
            _replay(self._printed)
        except Exception as error:
            self._answer(problem=f"{type(error).__name__}: {error}"[:500])
            leave(1)
        self._orders.close()
        os.close(self._answers)

    def _answer(self, **fields: Any) -> None:
        try:
            os.write(self._answers, (json.dumps(fields) + "\n").encode())
        except OSError:  # gpuadvisor has ended
            leave(1)


def _move(order: Mapping[str, Any]) -> None:
    """Take another folder, script, arguments and $PYTHONPATH than this process was started with.

    The interpreter has read its arguments, and a part of `sys.path`; the rest it does by itself.
    """
    started = main_script()
    before = _python_path(os.environ)
    os.chdir(order["folder"])
    after = _python_path(order["environment"])
    library, *entries = sys.path  # the harness's own, until it has begun
    rest = [entry for entry in entries if entry not in before]
    sys.path[:] = [library, *after, *rest]
    arguments = order["line"][1:]
    sys.orig_argv[1:] = arguments
    if arguments[0] == "-m":
        sys.argv[1:] = arguments[2:]
        return
    sys.argv[:] = arguments
    if started is not None:
        run_instead(started, os.path.join(os.getcwd(), arguments[0]))  # as the interpreter


def _python_path(environment: Mapping[str, str]) -> list[str]:
    """Return what a $PYTHONPATH adds to `sys.path`, without the harness, which comes first."""
    entries = environment["PYTHONPATH"].split(os.pathsep)[1:]
    return [os.path.abspath(entry) for entry in dict.fromkeys(entries)]


def _import(modules: list[tuple[str, str]], never: Collection[str]) -> None:
    """Import modules in this order, and check that they are the ones that the script imports."""
    before = set(sys.modules)
    path = list(sys.path)
    for name, _ in modules:
        try:
            import_module(name)
        except Exception as error:
            raise UnfitError(f"{name} cannot be imported ahead ({error})") from error
    if sys.path != path:
        raise UnfitError("what it imports changes sys.path")
    expected = dict(modules)
    for name in [name for name in sys.modules if name not in before]:
        module = sys.modules[name]
        file = getattr(module, "__file__", None)
        if module is sys.modules["__main__"]:  # multiprocessing gives it a second name
            continue
        if isinstance(file, str) and os.path.isabs(file) and not is_installed(file):
            raise UnfitError(f"what it imports loads {name}, which is the script's own")
        if name in never:
            raise UnfitError(f"what it imports loads {name}, of which versions have their own")
        if name in expected and library_origin(name, module) != expected[name]:
            raise UnfitError(f"{name} comes from another place than in the script")


@contextmanager
def _as_in(phase: Mapping[str, Any]) -> Iterator[None]:
    """Let modules find what they found in the script: its `sys.path`, and the name of its file."""
    path, main = list(sys.path), sys.modules["__main__"]
    sys.path[:] = phase["path"]
    if phase["main"] is not None:
        main.__file__ = phase["main"]
    try:
        yield
    finally:
        sys.path[:] = path
        if phase["main"] is not None:
            del main.__file__


@contextmanager
def _output_to(file: int) -> Iterator[None]:
    """Keep what is printed meanwhile: each run prints it anew."""
    kept = [os.dup(1), os.dup(2)]
    os.dup2(file, 1)
    os.dup2(file, 2)
    try:
        yield
    finally:
        for stream, number, saved in zip((sys.stdout, sys.stderr), (1, 2), kept, strict=True):
            if stream is not None:
                stream.flush()
            os.dup2(saved, number)
            os.close(saved)


def _replay(file: int) -> None:
    os.lseek(file, 0, os.SEEK_SET)
    while chunk := os.read(file, 1 << 16):
        os.write(1, chunk)
    os.close(file)


def _check_alone(open_before: set[str]) -> None:
    """Raise UnfitError if something was begun that a fork would lose or share."""
    opened = _descriptors() - open_before - {"/dev/null", "/dev/urandom"}
    if any(name.startswith("/dev/nvidia") for name in opened):
        raise UnfitError("what it imports uses the GPU at once")
    if opened:
        raise UnfitError(f"what it imports leaves {min(opened)} open")
    threads = [thread.name for thread in threading.enumerate()[1:]]
    if threads:
        raise UnfitError(f"what it imports starts a thread ({threads[0]})")
    # Libraries that know of forks end their threads before one, and begin them anew after it.
    probe = _fork()
    if not probe:
        cuda = getattr(sys.modules.get("torch"), "cuda", None)
        leave(int(cuda is not None and cuda._is_in_bad_fork()))
    if os.waitpid(probe, 0)[1]:
        raise UnfitError("what it imports uses the GPU at once")
    deadline = time.monotonic() + THREADS_END_S
    while lost := set(_other_tasks().values()) - SPARE_THREADS:
        if time.monotonic() > deadline:
            raise UnfitError(f"what it imports starts a thread of native code ({min(lost)})")
        time.sleep(0.01)
    for task in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{task}/children") as file:  # noqa: PTH123
            if file.read().strip():
                raise UnfitError("what it imports starts a process")


def _fork() -> int:
    """Fork, without Python's warning where nothing but spare threads is lost: a warning that is
    caught makes others, of the script's, be told again."""
    if not _other_tasks():
        return os.fork()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _other_tasks() -> dict[str, str]:
    """Return the threads of this process but the first, and their names."""
    found = {}
    for task in os.listdir("/proc/self/task"):
        if task != str(os.getpid()):
            with suppress(OSError), open(f"/proc/self/task/{task}/comm") as file:  # noqa: PTH123
                found[task] = file.read().strip()
    return found


def _descriptors() -> set[str]:
    """Return what this process has open."""
    found = set()
    for number in os.listdir("/proc/self/fd"):
        try:
            found.add(os.readlink(f"/proc/self/fd/{number}"))
        except OSError:  # the list's own
            continue
    return found


def _state_of_torch() -> tuple[Any, ...]:
    """Return what a setting or the harness may change in torch, as far as that is known."""
    torch: Any = sys.modules["torch"]
    backends = torch.backends
    return (
        torch.get_float32_matmul_precision(),
        torch.get_default_dtype(),
        torch.are_deterministic_algorithms_enabled(),
        torch.is_grad_enabled(),
        backends.cuda.matmul.allow_tf32,
        backends.cuda.matmul.allow_fp16_reduced_precision_reduction,
        backends.cuda.flash_sdp_enabled(),
        backends.cuda.mem_efficient_sdp_enabled(),
        backends.cuda.math_sdp_enabled(),
        backends.cudnn.enabled,
        backends.cudnn.benchmark,
        backends.cudnn.deterministic,
        backends.cudnn.allow_tf32,
        torch.get_rng_state().tolist(),
        random.getstate(),
        gc.isenabled(),
        torch.compile,
        torch.jit.script,
        torch.autograd.backward,
        torch.Tensor.backward,
        torch.nn.Module.__call__,
        torch.nn.Module.compile,
        torch.optim.Optimizer.__init__,
        torch.utils.data.DataLoader.__init__,
        torch.amp.GradScaler.step,
    )


def _references(modules: set[str]) -> Iterator[Reference]:
    """Yield where these modules have functions of torch under names of their own."""
    for module in modules:
        names = getattr(sys.modules.get(module), "__dict__", {})
        for name, value in list(names.items()):
            if not isinstance(value, FunctionType):
                continue
            home = getattr(sys.modules.get(value.__module__ or ""), "__dict__", None)
            if home is None or home is names or home.get(value.__name__) is not value:
                continue
            if value.__module__.partition(".")[0] == "torch":
                yield names, name, value, home, value.__name__
