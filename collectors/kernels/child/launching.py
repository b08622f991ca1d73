"""A kernel of a kernel file as something to call: for a benchmark, a gate, or a first try."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from gpuadvisor.best_points import best
from gpuadvisor.collectors.kernels.child.__main__ import Session
from gpuadvisor.collectors.kernels.child.arguments import Arguments, difference
from gpuadvisor.collectors.kernels.child.backends import CannotBuild, Target, build
from gpuadvisor.domain.kernels import Kernel
from gpuadvisor.errors import AdvisorError, MissingError, UsageError

DEFAULT = "default"
"""The point that the kernel file gives as its default."""


def kernel_launch(
    file: str | os.PathLike[str],
    kernel: str | None = None,
    /,
    *,
    point: Mapping[str, Any] | str | None = None,
    best_file: str | os.PathLike[str] | None = None,
    seed: int = 0,
    **sizes: Any,
) -> Callable[[], object]:
    """Return a function that launches a kernel of a kernel file once, on random arguments.

    `kernel` may be left out where the file has one, `sizes` for the first problem. `point` gives
    the parameters; `"default"` is the kernel's own default, None what `gpuadvisor.best` says, of
    `best_file` where that is named. The kernel is compiled and launched once, and its outputs are
    compared with the reference, if there is one, before this returns.

    It launches into torch's current stream, which is a new one from here on where it was the
    default stream. UsageError where the file, the kernel or a size is not there, or torch has no
    GPU; AdvisorError where the point does not compile, or computes something else.

    >>> launch = gpuadvisor.kernel_launch("transpose.py", rows=8192, columns=8192)  # doctest: +SKIP
    >>> launch()                                                                    # doctest: +SKIP
    """
    found = kernel_of(Path(file), kernel)
    problem = _problem(found, sizes)
    chosen = point_of(found, point, best_file, problem)
    names = {**problem, **chosen}
    broken = found.violated(names)
    if broken is not None:
        raise UsageError(f"kernel {found.name}: {names} violates the restriction {broken}")
    torch = _torch()
    if torch.cuda.current_stream() == torch.cuda.default_stream():
        torch.cuda.set_stream(torch.cuda.Stream())
    arguments = Arguments(found, names, seed)
    try:
        launchable = build(found, names, _target(torch))
    except CannotBuild as error:
        raise AdvisorError(f"kernel {found.name} with {chosen}: {error}") from None
    expected = arguments.expected() if found.reference is not None else None
    arguments.poison()
    launchable.launch(arguments.values)
    torch.cuda.synchronize()
    wrong = arguments.overrun()
    if wrong is None and expected is not None:
        wrong = difference(arguments.written(), expected, found.tolerance, found.absolute_tolerance)
    if wrong is not None:
        raise AdvisorError(f"kernel {found.name} with {chosen} is wrong: {wrong}")
    return lambda: launchable.launch(arguments.values)


def kernel_of(file: Path, name: str | None) -> Kernel:
    """Return a kernel of a kernel file, the only one without a name; UsageError if it has none."""
    if not file.is_file():
        raise UsageError(f"there is no file {file}")
    declared = _declared(str(file.absolute()))
    if name is None and len(declared) == 1:
        return next(iter(declared.values()))
    if name is None:
        raise UsageError(f"{file} has several kernels: name one of {', '.join(declared)}")
    if name not in declared:
        raise UsageError(f"{file} has no kernel {name}; it has {', '.join(declared)}")
    return declared[name]


@cache
def _declared(file: str) -> dict[str, Kernel]:
    """Return the kernels of a file by name, once a process: a module that it imports to declare
    some does so once.
    """
    kernels = Session(file, "").kernels
    # What others declared in this process before is none of this file's.
    own = [each for each in kernels if each.file == file] or kernels
    return {each.name: each for each in own}


def _problem(kernel: Kernel, sizes: Mapping[str, Any]) -> dict[str, Any]:
    first = kernel.problems[0]
    if not sizes:
        return dict(first)
    for name in (*sizes, *first):
        if name not in sizes or name not in first:
            wrong = "is missing" if name in first else "is no size of it"
            there = f"its sizes are {', '.join(first)}" if first else "it has none"
            raise UsageError(f"kernel {kernel.name}: {name} {wrong}: {there}")
    return dict(sizes)


def point_of(
    kernel: Kernel,
    point: Mapping[str, Any] | str | None,
    best_file: str | os.PathLike[str] | None,
    problem: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the parameters that are meant; UsageError where they are none of the kernel's."""
    if point == DEFAULT:
        return kernel.start
    if point is None:
        # Without a file of its own, a kernel that was never tuned is launched with its default.
        default = kernel.start if best_file is None else None
        point = best(kernel.name, default=default, file=best_file, **problem)
    if isinstance(point, str) or point.keys() != kernel.parameters.keys():
        raise UsageError(
            f"kernel {kernel.name}: a point gives a value to {', '.join(kernel.parameters)}, "
            f"not {point!r}"
        )
    return dict(point)


def _target(torch: Any) -> Target:
    capability = "".join(map(str, torch.cuda.get_device_capability()))
    return Target(capability, torch.cuda.current_device())


def _torch() -> Any:
    try:
        import torch
    except ImportError as error:
        raise UsageError(f"kernels are launched with torch, which is missing ({error})") from None
    if not torch.cuda.is_available():
        raise MissingError(f"torch {torch.__version__} finds no GPU to launch the kernel on")
    return torch
