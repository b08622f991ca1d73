"""Digests of the arrays in a data set: of all their bytes where that is quick, else of a sample."""

from __future__ import annotations

import hashlib
import sys
from contextlib import suppress
from pathlib import Path
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


class Walk(Protocol):
    """What one state may still cost, and what it found out."""

    array_bytes: int
    mappings: list[tuple[int, int]] | None


def is_array(value: Any) -> bool:
    """Say whether a value is an array of numpy's, one of its scalars, or a tensor."""
    return any(is_a(value, name) for name in ("numpy.ndarray", "torch.Tensor", "numpy.generic"))


def is_buffer(value: Any) -> bool:
    """Say whether a value is a piece of memory of Python's own kinds."""
    names = ("array.array", "builtins.memoryview", "_ctypes._SimpleCData", "_ctypes.Array")
    return any(is_a(value, name) for name in (*names, "_ctypes.Structure", "_ctypes.Union"))


def is_shared(array: Any, walk: Walk) -> bool:
    """Say whether workers would see the same memory, or cannot change it: then it is no state.

    Of tensors those on a GPU too, which workers cannot copy.
    """
    if is_a(array, "torch.Tensor"):
        if array.device.type != "cpu":
            return True
        if array.layout is not sys.modules["torch"].strided or array.is_nested:
            return False
        return array.is_shared() or _is_mapped(array.data_ptr(), walk)
    base: Any = array
    while base is not None:
        if is_a(base, "numpy.memmap"):
            return attributes_of(base).get("mode") != _MAP_COPY
        if is_a(base, "mmap.mmap") or "_wrapper" in attributes_of(base):  # of multiprocessing
            return True
        if type(base) is memoryview:
            base = base.obj
        else:
            base = base.base if is_a(base, "numpy.ndarray") else None
    return False


def is_on_host(array: Any) -> bool:
    """Say whether an array's numbers lie in the host's memory, where a digest finds them."""
    return not is_a(array, "torch.Tensor") or array.device.type == "cpu"


def _is_mapped(address: int, walk: Walk) -> bool:
    """Say whether an address lies in memory that is mapped to be shared by processes."""
    if walk.mappings is None:
        walk.mappings = []
        with suppress(OSError), Path("/proc/self/maps").open() as lines:
            for line in lines:
                place, rights, *_ = line.split(" ", 2)
                if rights.endswith("s"):
                    start, _, end = place.partition("-")
                    walk.mappings.append((int(start, 16), int(end, 16)))
    return any(start <= address < end for start, end in walk.mappings)


def buffer_digest(value: Any) -> str:
    """Return a digest of a piece of memory."""
    with memoryview(value) as view:
        head = f"{view.format}{view.shape}".encode()
        return hashlib.blake2b(head + view.tobytes(), digest_size=8).hexdigest()


def array_digest(array: Any, walk: Walk) -> tuple[str, int, bool]:
    """Return a digest, the address, and whether all of it was looked at."""
    if is_a(array, "torch.Tensor") and (
        array.is_nested or array.layout is not sys.modules["torch"].strided
    ):
        return f"{array.layout}", 0, False
    if is_a(array, "torch.Tensor"):
        return _tensor_digest(array, walk)
    return _digest_of(array, f"{array.dtype}{tuple(array.shape)}", walk)


def _tensor_digest(array: Any, walk: Walk) -> tuple[str, int, bool]:
    torch = sys.modules["torch"]
    with torch.no_grad(), torch._C.DisableTorchFunction():
        return _digest_of(array, f"{array.dtype}{tuple(array.shape)}", walk)


def _digest_of(array: Any, head: str, walk: Walk) -> tuple[str, int, bool]:
    total = hashlib.blake2b(head.encode(), digest_size=8)
    size = int(array.nbytes)
    if size <= HASHED:
        content, _kept = bytes_of(array)
        total.update(content)
        return total.hexdigest(), 0, True
    numpy: Any = sys.modules.get("numpy")
    is_whole = walk.array_bytes + size <= SUMMED and numpy is not None
    flat = _flat(array)
    step = max(1, len(flat) // SAMPLES) | 1
    sample, _kept = bytes_of(flat[::step])
    total.update(sample)
    if is_whole:
        walk.array_bytes += size
        content, _kept = bytes_of(array)
        words = numpy.frombuffer(content[: size // 8 * 8], numpy.uint64)
        total.update(int(words.sum(dtype=numpy.uint64)).to_bytes(8, "little"))
        total.update(content[size // 8 * 8 :])
    return total.hexdigest(), _address(array), is_whole


def _flat(array: Any) -> Any:
    """Return an array as a row of values, without a copy where its order allows."""
    if is_a(array, "torch.Tensor"):
        return array.detach().reshape(-1)
    return sys.modules["numpy"].asarray(array).reshape(-1)


def _address(array: Any) -> int:
    return int(array.data_ptr() if is_a(array, "torch.Tensor") else array.ctypes.data)
