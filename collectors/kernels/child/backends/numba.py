"""Numba: a kernel of `numba.cuda.jit`, or a function that makes one for a point."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from types import TracebackType
from typing import Any

from gpuadvisor.collectors.kernels.child.backends import (
    CannotBuild,
    Launchable,
    Target,
    TorchStream,
    threads,
)
from gpuadvisor.domain.kernel_rules import Names
from gpuadvisor.domain.kernels import Kernel


def takes(source: Any) -> bool:
    """Say whether this is an object of Numba."""
    return any(each.__module__.startswith("numba") for each in type(source).__mro__)


def build(kernel: Kernel, source: Any, names: Names, target: Target) -> Launchable:
    """Return a launch; Numba compiles with the first one."""
    from numba import cuda

    block, grid = threads(kernel, names), kernel.sides("grid", kernel.grid, names)
    shared = int(kernel.value("shared_bytes", kernel.shared_bytes, names))
    stream = cuda.external_stream(TorchStream().handle)
    configured = source[grid, block, stream, shared]

    def launch(arguments: Sequence[Any]) -> object:
        values = [
            cuda.as_cuda_array(each.detach(), sync=False) if hasattr(each, "data_ptr") else each
            for each in arguments
        ]
        try:
            return configured(*values)
        except Exception as error:
            if type(error).__module__.startswith("numba") and "Typing" in type(error).__name__:
                raise CannotBuild(" ".join(str(error).split())[:400]) from None
            if is_of_numba(error):
                raise CannotBuild(
                    f"{_versions()} do not work together ({type(error).__name__}: {error}): give a"
                    " Python in which they do with --python (numba-cuda 0.30.4 and older want"
                    " numpy<2.5), or tune the file's other kernels with --kernel"
                ) from None
            raise

    return Launchable(launch, lambda: _resources(source))


def _versions() -> str:
    """Return the packages that a kernel of Numba needs, as they are installed."""
    found = []
    for name in ("numba", "numba-cuda", "numpy"):
        with suppress(PackageNotFoundError):  # Numba had its own backend for CUDA
            found.append(f"{name} {version(name)}")
    return f"{', '.join(found[:-1])} and {found[-1]}"


def is_of_numba(error: Exception) -> bool:
    """Say whether Numba itself misses something of a library that it needs, whatever the kernel is.

    So fails a Numba that is older than its NumPy, where that lacks what it had: it loads, and its
    first compilation asks `numpy.row_stack`. A kernel's own code never runs as Python, so that what
    it lacks is a typing error.
    """
    misses = isinstance(error, AttributeError | ImportError)
    return misses and any(name == "numba" for name in _packages(error.__traceback__))


def _packages(trace: TracebackType | None) -> Iterator[str]:
    while trace is not None:
        yield str(trace.tb_frame.f_globals.get("__name__", "")).split(".")[0]
        trace = trace.tb_next


def _resources(source: Any) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, call in (
        ("registers", "get_regs_per_thread"),
        ("shared_bytes", "get_shared_mem_per_block"),
        ("local_bytes", "get_local_mem_per_thread"),
    ):
        values = getattr(source, call)()
        if isinstance(values, dict):
            values = max(values.values(), default=0)
        found[name] = int(values)
    return found
