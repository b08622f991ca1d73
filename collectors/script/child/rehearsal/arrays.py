"""Digests of the arrays in a data set: of all their bytes where that is quick, else of a sample."""

from __future__ import annotations

import hashlib
import sys
from typing import Any, Protocol

from gpuadvisor.collectors.script.child.rehearsal.inspection import (
    attributes_of,
    bytes_of,
    is_a,
)

HASHED = 1 << 20
"""Bytes up to which an array is hashed."""
SUMMED = 1 << 28
"""Bytes up to which the larger arrays of one state are summed up, at 20 GB/s: 13 ms."""
SAMPLES = 4096
"""Values of each larger array that are hashed."""
_MAP_COPY = "c"
"""Mode of a `numpy.memmap` whose changes stay in the process."""


class Budget(Protocol):
    """What one state may still cost."""

    array_bytes: int


def is_array(value: Any) -> bool:
    """Say whether a value is an array of numpy's or a tensor."""
    return (
        is_a(value, "numpy.ndarray") or is_a(value, "torch.Tensor") or is_a(value, "numpy.generic")
    )


def is_shared(array: Any) -> bool:
    """Say whether workers would see the same memory, or cannot change it: then it is no state.

    Of tensors those on a GPU too, which workers cannot copy.
    """
    if is_a(array, "torch.Tensor"):
        return array.device.type != "cpu" or (
            array.layout is sys.modules["torch"].strided and array.is_shared()
        )
    if is_a(array, "numpy.memmap"):
        return attributes_of(array).get("mode") != _MAP_COPY
    base: Any = array.base if is_a(array, "numpy.ndarray") else None
    while is_a(base, "numpy.ndarray"):
        if is_a(base, "numpy.memmap"):
            return attributes_of(base).get("mode") != _MAP_COPY
        base = base.base
    if type(base) is memoryview:
        base = base.obj
    return is_a(base, "mmap.mmap") or "_wrapper" in attributes_of(base)


def array_digest(array: Any, budget: Budget) -> tuple[str, int, bool]:
    """Return a digest, a witness of what it leaves out, and whether all of it was looked at."""
    if is_a(array, "torch.Tensor") and (
        array.is_nested or array.layout is not sys.modules["torch"].strided
    ):
        return f"{array.layout}", 0, False
    if is_a(array, "torch.Tensor"):
        return _tensor_digest(array, budget)
    return _digest_of(array, f"{array.dtype}{tuple(array.shape)}", budget)


def _tensor_digest(array: Any, budget: Budget) -> tuple[str, int, bool]:
    torch = sys.modules["torch"]
    with torch.no_grad(), torch._C.DisableTorchFunction():
        return _digest_of(array, f"{array.dtype}{tuple(array.shape)}", budget)


def _digest_of(array: Any, head: str, budget: Budget) -> tuple[str, int, bool]:
    total = hashlib.blake2b(head.encode(), digest_size=8)
    size = int(array.nbytes)
    if size <= HASHED:
        content, _kept = bytes_of(array)
        total.update(content)
        return total.hexdigest(), 0, True
    numpy: Any = sys.modules.get("numpy")
    is_whole = budget.array_bytes + size <= SUMMED and numpy is not None
    witness = 0
    flat = _flat(array)
    step = max(1, len(flat) // SAMPLES) | 1
    sample, _kept = bytes_of(flat[::step])
    total.update(sample)
    if is_whole:
        budget.array_bytes += size
        content, _kept = bytes_of(array)
        words = numpy.frombuffer(content[: size // 8 * 8], numpy.uint64)
        total.update(int(words.sum(dtype=numpy.uint64)).to_bytes(8, "little"))
        total.update(content[size // 8 * 8 :])
    else:
        witness = _address(array)
    return total.hexdigest(), witness, is_whole


def _flat(array: Any) -> Any:
    """Return an array as a row of values, without a copy where its order allows."""
    if is_a(array, "torch.Tensor"):
        return array.detach().reshape(-1)
    return sys.modules["numpy"].asarray(array).reshape(-1)


def _address(array: Any) -> int:
    return int(array.data_ptr() if is_a(array, "torch.Tensor") else array.ctypes.data)
