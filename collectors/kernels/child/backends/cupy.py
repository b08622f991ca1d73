"""CuPy: a `RawKernel`, which is compiled anew for each point with its names as macros."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from gpuadvisor.collectors.kernels.child.backends import (
    CannotBuild,
    Launchable,
    Target,
    TorchStream,
    is_from,
    threads,
)
from gpuadvisor.collectors.kernels.child.backends.cuda_cpp import check_text
from gpuadvisor.domain.kernel_rules import Names
from gpuadvisor.domain.kernels import Kernel


def takes(source: Any) -> bool:
    """Say whether this is an object of CuPy."""
    return is_from(source, "cupy")


def check(kernel: Kernel, source: Any, names: Names) -> None:
    """UsageError for a kernel without a block, and for a text that does not fit its parameters."""
    threads(kernel, names)
    check_text(kernel, source.code)


def build(kernel: Kernel, source: Any, names: Names, target: Target) -> Launchable:
    """Compile through CuPy for the current GPU."""
    import cupy

    block, grid = threads(kernel, names), kernel.sides("grid", kernel.grid, names)
    compiled = _compiled(kernel, source, names)
    shared = int(kernel.value("shared_bytes", kernel.shared_bytes, names))
    if shared > compiled.max_dynamic_shared_size_bytes:
        try:
            compiled.max_dynamic_shared_size_bytes = shared
        except Exception:
            raise CannotBuild(f"a block cannot have {shared:,} bytes of shared memory") from None

    def launch(arguments: Sequence[Any]) -> object:
        values = [_argument(cupy, each) for each in arguments]
        with stream_of(cupy, TorchStream()):
            return compiled(grid, block, tuple(values), shared_mem=shared)

    return Launchable(launch, lambda: _resources(compiled))


def prepare(kernel: Kernel, source: Any, names: Names, target: Target) -> Mapping[str, int]:
    """Compile into the folder in which CuPy keeps binaries, and return what a block takes."""
    block = threads(kernel, names)
    target.select()
    taken = _resources(_compiled(kernel, source, names))
    taken["shared_bytes"] += int(kernel.value("shared_bytes", kernel.shared_bytes, names))
    return {"threads": math.prod(block), **taken}


def _compiled(kernel: Kernel, source: Any, names: Names) -> Any:
    import cupy

    text = kernel.with_macros(source.code, names)
    compiled = cupy.RawKernel(text, source.name, (*source.options, *kernel.options))
    try:
        compiled.compile()
    except Exception as error:
        raise CannotBuild(f"it does not compile: {' '.join(str(error).split())[:400]}") from None
    return compiled


def stream_of(cupy: Any, stream: TorchStream) -> Any:
    """Return a stream as CuPy has one, which is a context."""
    from_external = getattr(cupy.cuda.Stream, "from_external", None)
    if from_external is not None:  # from CuPy 14 on, which warns of the other
        return from_external(stream)
    return cupy.cuda.ExternalStream(stream.handle)


def _argument(cupy: Any, value: Any) -> Any:
    """Return an argument as CuPy takes it: numbers are C's `int` and `float` where they fit."""
    if hasattr(value, "data_ptr"):
        return cupy.asarray(value.detach())
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 31:
        return cupy.int32(value)
    return cupy.float32(value) if isinstance(value, float) else value


def _resources(compiled: Any) -> dict[str, int]:
    return {
        "registers": compiled.num_regs,
        "shared_bytes": compiled.shared_size_bytes,
        "local_bytes": compiled.local_size_bytes,
    }
