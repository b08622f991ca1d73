"""`gpuadvisor.suggest_block`: a block for a kernel on a GPU, without a search."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from operator import index
from typing import Any

from gpuadvisor.collectors.devices import inventory
from gpuadvisor.errors import MissingError, UsageError
from gpuadvisor.rules.facts.block_choice import BlockSuggestion, Problem, Resources, choose
from gpuadvisor.rules.facts.gpu_specs import (
    MAX_THREADS_PER_BLOCK,
    architecture,
    capability,
    sm_counts,
)

_FIELDS = tuple(Resources.__dataclass_fields__)


def suggest_block(
    kernel: Resources | Mapping[str, int] | Any,
    shape: int | Sequence[int],
    *,
    gpu: str | None = None,
    element_bytes: int = 4,
    sm_count: int | None = None,
) -> BlockSuggestion:
    """Return a block and grid for a kernel that computes one element a thread, with the reasons.

    `kernel` is a compiled kernel of CuPy, Numba or cuda-core, which tells its registers and shared
    memory; or these as `{"registers_per_thread": 40, "shared_bytes_per_block": 0,
    "shared_bytes_per_thread": 0, "most_threads": 1024}`, each of which may be left out, as None for
    all of them. `shape` is that of numpy: one to three sides, the contiguous one last, in threads;
    the result's block and grid are in CUDA's order, x first. `gpu` is a product (`H100 SXM`) or a
    compute capability (`9.0`), this machine's first one if None; `sm_count` its SMs, where its name
    does not tell them.

    It is a heuristic, from occupancy, coalescing, how blocks fall on SMs and the problem's shape;
    how far its choices were from the best is told in benchmarks/README.md. UsageError for an
    unknown GPU or kernel, and where no block can be launched.

    >>> suggest_block({"registers_per_thread": 40}, (4096, 4096), gpu="H100").block
    (32, 8, 1)
    """
    sides = _sides(shape)
    if sm_count is not None and sm_count < 1:
        raise UsageError(f"sm_count is a number of SMs from 1 on, not {sm_count}")
    found, name = named_gpu(gpu)
    counts = sm_counts(name) if sm_count is None else (sm_count,)
    resources = resources_of(kernel)
    return choose(Problem(architecture(found), counts, resources, sides[::-1], element_bytes))


def _sides(shape: Any) -> tuple[int, ...]:
    try:
        return (index(shape),)
    except TypeError:
        pass
    try:
        return tuple(map(index, shape))
    except TypeError:
        raise UsageError(
            f"a shape is one to three whole numbers, as 1000 or (1080, 1920), not {shape!r}"
        ) from None


def named_gpu(gpu: str | None) -> tuple[tuple[int, int] | str, str]:
    """Return the compute capability of a product, of a capability as `9.0`, or of this machine's
    first GPU, and a name that may tell its number of SMs; UsageError for others,
    MissingError where this machine has none.
    """
    if gpu is None:
        there = inventory()
        if not there.gpus or there.gpus[0].compute_capability is None:
            reason = there.reason or "the driver does not say its compute capability"
            raise MissingError(
                f"{reason}; or name one, as --gpu H100 or --gpu 9.0 (gpu= in Python)"
            )
        return there.gpus[0].compute_capability, there.gpus[0].name
    if re.fullmatch(r"\d{1,3}\.\d", gpu.strip()):
        return gpu.strip(), ""
    found = capability(gpu)
    if found is None:
        raise UsageError(
            f"the GPU {gpu!r} is not known by name: write it as H100 SXM or RTX 4090, or give its "
            "compute capability, as 9.0"
        )
    return found, gpu


def resources_of(kernel: Any) -> Resources:
    """Return what a compiled kernel, or a mapping, says that it takes; UsageError for others."""
    if isinstance(kernel, Resources):
        return kernel
    if kernel is None:
        return Resources()
    if isinstance(kernel, Mapping):
        return _of_mapping(kernel)
    attributes = getattr(kernel, "attributes", kernel)
    registers = _told(attributes, "num_regs")
    if registers is not None:  # CuPy, or cuda-core
        return Resources(
            registers,
            _told(attributes, "shared_size_bytes") or 0,
            most_threads=_told(attributes, "max_threads_per_block") or MAX_THREADS_PER_BLOCK,
        )
    if hasattr(kernel, "get_regs_per_thread"):  # Numba, of each signature that was compiled
        return Resources(
            _largest(kernel.get_regs_per_thread()), _largest(kernel.get_shared_mem_per_block())
        )
    raise UsageError(
        f"a {type(kernel).__name__} does not tell what it takes of an SM: give a compiled kernel "
        'of CuPy, Numba or cuda-core, or {"registers_per_thread": 40}. Triton launches blocks of '
        "num_warps x 32 threads, which `gpuadvisor tune-kernel` searches"
    )


def _of_mapping(given: Mapping[str, Any]) -> Resources:
    for name, value in given.items():
        if name not in _FIELDS:
            raise UsageError(f"a kernel has no {name}: it may have {', '.join(_FIELDS)}")
        if not isinstance(value, int) or value < 0:
            raise UsageError(f"{name} is a whole number from 0 on, not {value!r}")
    return Resources(**given)


def _told(of: Any, name: str) -> int | None:
    value = getattr(of, name, None)
    value = value() if callable(value) else value
    return None if value is None else int(value)


def _largest(of_signatures: Any) -> int:
    values = of_signatures.values() if isinstance(of_signatures, Mapping) else [of_signatures]
    return max(map(int, values), default=0)
