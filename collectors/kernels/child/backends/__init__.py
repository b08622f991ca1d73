"""Languages of kernels, a file each: from a source and a point to something that can be launched.

A backend has `takes(source) -> bool` and `build(kernel, source, names, target) -> Launchable`. It
raises `CannotBuild` with the compiler's words for what no GPU of this kind could run. Whatever it
needs is imported when it builds. One whose compiler works without the process that launches has
`prepare`, too, which leaves the binary where `build` finds it, and one that can tell without a
compiler that a kernel file is wrong has `check(kernel, source, names)`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Protocol, cast

from gpuadvisor.collectors.kernels.child.arguments import check_outputs
from gpuadvisor.domain.kernel_rules import Names
from gpuadvisor.domain.kernels import Kernel
from gpuadvisor.errors import UsageError

TARGET_MODULES = ("*",)

BACKENDS = ("cuda_cpp", "triton", "cupy", "numba")


class CannotBuild(Exception):  # noqa: N818 - a result of a trial, in words
    """The point does not compile, or takes more than the GPU has."""


@dataclass(frozen=True)
class Launchable:
    """A compiled kernel with its launch configuration."""

    launch: Callable[[Sequence[Any]], object]
    """Puts it into torch's current stream; its arguments are torch tensors and numbers."""
    resources: Callable[[], Mapping[str, int]] = field(default=lambda: {})
    """`registers`, `shared_bytes`, `local_bytes` of what was compiled, once it was launched; what
    is not known is missing."""


@dataclass(frozen=True)
class Target:
    """What is compiled for."""

    capability: str
    """Compute capability without its dot: `90`."""
    gpu: int = 0
    """torch's number of the GPU."""
    folder: str = ""
    """Where binaries are kept for other processes; empty for nowhere."""

    def select(self) -> None:
        """Make the GPU the current one, for compilers that ask which it is."""
        import torch

        torch.cuda.set_device(self.gpu)


class TorchStream:
    """torch's current stream, as other libraries take one (`__cuda_stream__`, CUDA's protocol)."""

    def __init__(self) -> None:
        import torch

        self.handle = int(torch.cuda.current_stream().cuda_stream)

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle


class Backend(Protocol):
    """A module of this folder."""

    def takes(self, source: Any) -> bool: ...

    def build(self, kernel: Kernel, source: Any, names: Names, target: Target) -> Launchable: ...


def build(kernel: Kernel, names: Names, target: Target) -> Launchable:
    """Compile a kernel for the names of a problem and a point."""
    kernel, source, backend = _chosen(kernel, names)
    return backend.build(kernel, source, names, target)


def prepare(kernel: Kernel, names: Names, target: Target) -> Mapping[str, int] | None:
    """Compile a kernel, so that `build` finds the binary, and return what a block of it takes.

    That is `threads`, `registers` and `local_bytes` a thread, and `shared_bytes`, dynamic ones too;
    what is not known is missing. None for a language that compiles only where it launches.
    """
    kernel, source, backend = _chosen(kernel, names)
    ahead = getattr(backend, "prepare", None)
    if ahead is None:
        return None
    return cast("Mapping[str, int] | None", ahead(kernel, source, names, target))


def check(kernel: Kernel, names: Names) -> None:
    """UsageError for what can be told to be wrong without a compiler or a GPU."""
    kernel.check_call(names)
    check_outputs(kernel)
    if not inspect.isfunction(kernel.source):
        kernel, source, backend = _chosen(kernel, names)
        look = getattr(backend, "check", None)
        if look is not None:
            look(kernel, source, names)


def _chosen(kernel: Kernel, names: Names) -> tuple[Kernel, Any, Backend]:
    """Return the kernel with its source for these names, that source, and who compiles it."""
    source = kernel.source
    if inspect.isfunction(source):  # it makes the kernel for a point, as closures do
        source = kernel.value("the function that makes the kernel", source, names)
        if isinstance(source, str):
            kernel = copy(kernel)
            object.__setattr__(kernel, "source", source)  # a copy declares no other kernel
    for name in BACKENDS:
        backend = cast(Backend, import_module(f"{__name__}.{name}"))
        if backend.takes(source):
            return kernel, source, backend
    raise UsageError(
        f"kernel {kernel.name}: its source is a {type(source).__name__}: it must be CUDA C++ as "
        "text or a .cu file, or a kernel of triton.jit, numba.cuda.jit or cupy.RawKernel"
    )


def is_from(source: Any, library: str) -> bool:
    """Say whether an object's class comes from a library, without importing that."""
    return any(each.__module__.split(".")[0] == library for each in type(source).__mro__)


def threads(kernel: Kernel, names: Names) -> tuple[int, ...]:
    """Return the block; UsageError where the kernel names none."""
    if kernel.block is None:
        raise UsageError(f"kernel {kernel.name} needs block=: threads in x, y and z")
    why = kernel.unlaunchable(names)
    if why is not None:
        raise CannotBuild(why)
    return kernel.sides("block", kernel.block, names)
