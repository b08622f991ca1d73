"""Fingerprints of batches: equal content has equal ones, whatever object it is in.

On the CPU content is hashed with SHA-1, which processors compute at 1.8 GB/s, more than twice as
fast as BLAKE2. On a GPU it is summed up there with weights that depend on the position, and eight
bytes a sample are copied; a fingerprint of the one kind never equals one of the other.
"""

from __future__ import annotations

import ctypes
import hashlib
import math
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

from gpuadvisor.collectors.script.child.rehearsal import inspection
from gpuadvisor.collectors.script.child.trace import samples_in

DEPTH = 12
"""Levels of nesting that are looked into; what lies deeper counts by its type only."""
MOMENT_VALUES = 4096
"""Values of a sample that its mean and deviation are of, evenly spaced: enough for the mean of
unit noise to be known to 1.6 %, less than samples differ by."""
DEVICE_WORDS = 1 << 22
"""Words that are hashed at once on a GPU: 32 MiB, so that a full GPU has room for them."""
THREADED_BYTES = 8 << 20
"""Bytes of an array from which on threads hash it: one needs 5 ms for them, to start some 0.3."""
THREADS = 8
"""Threads that hash a batch. One alone takes 86 ms for 256 pictures (154 MB), which is as long as a
step on a GPU."""
DIGEST_BYTES = 8
MASK = (1 << 64) - 1
_WIDTHS = (1, 2, 4, 8)
"""Bytes of the numbers of which repetition is looked for at the ends of samples."""
_GOLDEN = 0x9E3779B97F4A7C15
"""2^64 divided by the golden ratio: the increment of SplitMix64 (Steele, Lea, Flood 2014)."""
_MIX = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
"""Multipliers of SplitMix64's finalizer."""


def samples_of(batch: Any, size_hint: int | None) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Return a 64-bit fingerprint of each sample, in order, and moments of their values.

    `size_hint` is the loader's batch size. Where nothing in the batch has as many rows as it has
    samples there is one fingerprint, of the whole. Parts without a row for each sample, as a
    common mask, go into every sample's. The moments are the mean and the standard deviation of the
    finite values of each sample's first floating-point array (else its first array of bytes, as
    of an undecoded picture), in turn; empty without such arrays.
    """
    with _quietly():
        work = _Work(_count(batch, size_hint))
        work.prepare(batch)
        rows = work.rows(batch, 0)
        if rows is None:
            rows = [work.whole(batch, 0)]
        return tuple(int.from_bytes(row, "little") for row in rows), _moments(batch, work.count)


def fingerprint(value: Any) -> int:
    """Return a 64-bit fingerprint of a nested value, as of a module's arguments."""
    with _quietly():
        work = _Work(None)
        work.prepare(value)
        return int.from_bytes(work.whole(value, 0), "little")


@contextmanager
def _quietly() -> Iterator[None]:
    """Keep autograd, tensor subclasses and function modes out of what is computed inside."""
    torch: Any = sys.modules.get("torch")
    with ExitStack() as stack:
        if torch is not None:
            stack.enter_context(torch.no_grad())
            stack.enter_context(torch._C.DisableTorchFunction())
            if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
                raise RuntimeError("a CUDA graph is being recorded: its data cannot be read")
        yield


def _count(batch: Any, size_hint: int | None) -> int | None:
    try:
        return samples_in(batch, size_hint)
    except Exception:  # a nested tensor has no shape
        return size_hint


class _Work:
    """One batch's fingerprints. Keeps what a GPU computed, so that it is waited for once."""

    def __init__(self, count: int | None) -> None:
        self.count = count
        self._on_device: dict[int, list[bytes]] = {}

    def prepare(self, value: Any) -> None:
        """Hash all that is on GPUs, and copy the results: once a GPU."""
        tensors: dict[Any, list[Any]] = {}
        for tensor in filter(_is_on_device, _leaves(value)):
            tensors.setdefault(tensor.device, []).append(tensor)
        for found in tensors.values():
            torch = sys.modules["torch"]
            hashed = [_device_rows(torch, t, self._rows_of(t)) for t in found]
            values = torch.cat(hashed).tolist()
            for tensor, part in zip(found, hashed, strict=True):
                own, values = values[: len(part)], values[len(part) :]
                self._on_device[id(tensor)] = [(v & MASK).to_bytes(8, "little") for v in own]

    def _rows_of(self, tensor: Any) -> int:
        """Return the rows in which an array is hashed: one a sample, or one."""
        shape = tuple(tensor.shape)
        return shape[0] if shape and shape[0] == self.count and math.prod(shape) else 1

    def rows(self, value: Any, depth: int) -> list[bytes] | None:
        """Return a digest of each sample's part of a value, None if it cannot be divided."""
        count = self.count
        if not count or depth > DEPTH:
            return None
        if _is_array(value):
            if (parts := _parts(value)) is not None:  # a sparse or nested one
                return self._elements(parts, depth) if parts[0] in ("nested", "objects") else None
            has_rows = tuple(value.shape)[:1] == (count,) and self._rows_of(value) == count
            return self._array(value, by_row=True) if has_rows else None
        parts = _parts(value)
        if parts is None:
            return None
        tag, children = parts
        divided = [self.rows(child, depth + 1) for _, child in children]
        found = sum(rows is not None for rows in divided)
        if tag in SEQUENCES and len(children) == count and 2 * found <= count:
            return self._elements(parts, depth)
        if not found:
            return None
        common = hashlib.sha1(tag.encode(), usedforsecurity=False)
        for (key, child), rows in zip(children, divided, strict=True):
            common.update(self.whole(key, depth + 1))
            if rows is None:
                common.update(self.whole(child, depth + 1))
        fields = [rows for rows in divided if rows is not None]
        return [_digest(common.digest(), *(rows[i] for rows in fields)) for i in range(count)]

    def _elements(self, parts: Parts, depth: int) -> list[bytes] | None:
        children = parts[1]
        if len(children) != self.count:
            return None
        return [self.whole(child, depth + 1) for _, child in children]

    def _array(self, value: Any, by_row: bool = False) -> list[bytes]:
        """Return a digest of each row of an array, of all of it if it has not a row a sample."""
        count = self._rows_of(value)
        shape = tuple(value.shape)
        tag = _tag(value.dtype, shape[1:] if by_row or count > 1 else shape)
        if id(value) in self._on_device:
            return [_digest(b"device", tag, row) for row in self._on_device[id(value)]]
        view, keep = inspection.bytes_of(value)
        step = len(view) // count
        rows = _digests(tag, [view[i * step : (i + 1) * step] for i in range(count)])
        del keep
        return rows

    def whole(self, value: Any, depth: int) -> bytes:
        """Return a digest of a value as a whole."""
        parts = _parts(value) if depth <= DEPTH else None
        if parts is not None:
            tag, children = parts
            pieces = [tag.encode(), str(len(children)).encode()]
            for key, child in children:
                pieces += self.whole(key, depth + 1), self.whole(child, depth + 1)
            if tag in UNORDERED:
                pieces[2:] = sorted(pieces[2:])
            return _digest(*pieces)
        if _is_array(value):
            return _digest(*self._array(value))
        return _digest(*_leaf(value))


Parts = tuple[str, "list[tuple[Any, Any]]"]
"""What sort of value it is, such as `dict` or `list`, and its parts with their keys."""
SEQUENCES = ("list", "tuple", "deque", "objects")
UNORDERED = ("set", "frozenset")


def _parts(value: Any) -> Parts | None:
    """Return the parts of what holds others, None for a single value or a dense array."""
    kind = type(value)
    if kind in ATOMS:
        return None
    if issubclass(kind, dict):
        return "dict", list(dict.items(value))
    for sequence in (list, tuple):
        if issubclass(kind, sequence):
            return sequence.__name__, [(None, item) for item in sequence.__iter__(value)]
    if issubclass(kind, (set, frozenset)) or inspection.is_a(value, "collections.deque"):
        return kind.__name__, [(None, item) for item in value]
    if _is_array(value):
        return _array_parts(value)
    if inspection.is_a(value, "collections.UserDict"):
        return "dict", list(dict.items(value.data))
    if inspection.is_a(value, "PIL.Image.Image"):
        return None
    attributes = inspection.attributes_of(value)
    return (inspection.type_name(kind), list(attributes.items())) if attributes else None


ATOMS = (type(None), bool, int, float, complex, str, bytes, bytearray)


def _array_parts(value: Any) -> Parts | None:
    if inspection.is_a(value, "numpy.ndarray"):
        if value.dtype.hasobject:
            return "objects", [(None, item) for item in value.tolist()] if value.shape else []
        mask = inspection.attributes_of(value).get("_mask")
        return None if mask is None else ("masked", [(0, value.data), (1, mask)])
    torch = sys.modules["torch"]
    if value.is_nested:
        return "nested", [(None, part) for part in value.unbind()]
    if value.layout is torch.sparse_coo:
        coalesced = value if value.is_coalesced() else value.detach().clone().coalesce()
        shape = tuple(value.shape)
        return "coo", [(0, shape), (1, coalesced.indices()), (2, coalesced.values())]
    if value.layout in (torch.sparse_csr, torch.sparse_bsr):
        indices = (value.crow_indices(), value.col_indices())
    elif value.layout in (torch.sparse_csc, torch.sparse_bsc):
        indices = (value.ccol_indices(), value.row_indices())
    elif hasattr(type(value), "__tensor_flatten__"):
        names, _ = value.__tensor_flatten__()
        return inspection.type_name(type(value)), [(name, getattr(value, name)) for name in names]
    else:
        return None
    shape = tuple(value.shape)
    return str(value.layout), [(0, shape), (1, indices[0]), (2, indices[1]), (3, value.values())]


def is_dense(value: Any) -> bool:
    """Say whether a value is an array of plain numbers, each in its place."""
    return _is_array(value) and _array_parts(value) is None


def row_fingerprint(dtype: Any, shape: tuple[int, ...], content: bytes) -> int:
    """Return the fingerprint that `samples_of` gives of an array's row with this content."""
    return int.from_bytes(_digest(_tag(dtype, shape), content), "little")


def _tag(dtype: Any, shape: tuple[int, ...]) -> bytes:
    return f"{dtype}{shape}".encode()


def _is_array(value: Any) -> bool:
    return inspection.is_a(value, "torch.Tensor") or inspection.is_a(value, "numpy.ndarray")


def _leaf(value: Any) -> list[bytes]:
    """Return what a single value is hashed as."""
    kind = type(value)
    tag = inspection.type_name(kind).encode()
    if issubclass(kind, str):
        return [tag, str.encode(value, "utf-8", "surrogatepass")]
    if issubclass(kind, (bytes, bytearray)):
        return [tag, bytes(value)]
    if issubclass(kind, (bool, int, float, complex, type(None))):
        return [tag, _number(value)]
    if inspection.is_a(value, "numpy.generic"):
        return [tag, value.tobytes()]
    if inspection.is_a(value, "PIL.Image.Image"):
        loaded = not getattr(value, "tile", None)  # else it would be decoded, which changes it
        name = str(getattr(value, "filename", ""))
        content = value.tobytes() if loaded else name.encode("utf-8", "surrogatepass")
        return [tag, f"{value.mode}{value.size}{loaded}".encode(), content]
    if issubclass(kind, type) or inspection.is_a(value, "types.FunctionType"):
        return [tag, str(getattr(value, "__qualname__", "")).encode()]
    if kind.__module__ == "torch":  # a dtype, a device
        return [tag, str(value).encode()]
    return [tag]


def _number(value: Any) -> bytes:
    """Return a number's text: exact, as Python's is."""
    for kind in (int, float, complex):
        if issubclass(type(value), kind):
            return kind.__repr__(value).encode()
    return b"None"


def _digest(*pieces: bytes | memoryview) -> bytes:
    """Return a digest of pieces, in which it matters where one ends and the next begins."""
    total = hashlib.sha1(usedforsecurity=False)
    for piece in pieces:
        total.update(len(piece).to_bytes(8, "little"))
        total.update(piece)
    return total.digest()[:DIGEST_BYTES]


def _digests(tag: bytes, rows: list[memoryview]) -> list[bytes]:
    """Return a digest of each row; of a large array by several threads, which hashing lets run."""
    if sum(map(len, rows)) < THREADED_BYTES or len(rows) < THREADS:
        return [_digest(tag, row) for row in rows]
    with ThreadPoolExecutor(THREADS) as pool:  # of its own: a forked process has no threads
        return list(pool.map(lambda row: _digest(tag, row), rows))


def _leaves(value: Any, depth: int = 0) -> Iterator[Any]:
    """Yield what a value consists of in the end: single values and dense arrays."""
    parts = _parts(value) if depth <= DEPTH else ("", [])
    if parts is None:
        yield value
    else:
        for _, child in parts[1]:
            yield from _leaves(child, depth + 1)


def _is_on_device(value: Any) -> bool:
    return inspection.is_a(value, "torch.Tensor") and value.device.type not in ("cpu", "meta")


def _device_rows(torch: Any, tensor: Any, count: int) -> Any:
    """Return a 64-bit integer for each row of a tensor, on its device."""
    words = _words(torch, tensor.detach(), count)
    total = torch.zeros(count, dtype=torch.int64, device=tensor.device)
    width = max(1, DEVICE_WORDS // count)
    for start in range(0, words.shape[1], width):
        block = words[:, start : start + width].to(torch.int64)
        place = torch.arange(start + 1, start + 1 + block.shape[1], device=tensor.device)
        weight = _mixed(place * _signed(_GOLDEN))
        total += (_mixed(block + weight) * (weight | 1)).sum(1)
    return total


def _words(torch: Any, tensor: Any, count: int) -> Any:
    """Return a tensor's bytes as a matrix of integers as wide as its rows allow."""
    plain = tensor.resolve_conj().resolve_neg().contiguous()
    if not plain.numel():
        return torch.zeros((count, 0), dtype=torch.int64, device=tensor.device)
    plain = plain.reshape(-1)
    if plain.dtype is torch.bool or plain.storage_offset() * plain.element_size() % 8:
        plain = plain.clone()
    content = plain.view(torch.uint8).reshape(count, -1)
    for kind, width in ((torch.int64, 8), (torch.int32, 4), (torch.int16, 2)):
        if content.shape[1] % width == 0:
            return content.view(kind)
    return content


def _mixed(words: Any) -> Any:
    """Apply SplitMix64's finalizer: each bit of a word then depends on all of its bits."""
    for shift, factor in ((30, _MIX[0]), (27, _MIX[1])):
        words = (words ^ ((words >> shift) & (MASK >> shift))) * _signed(factor)
    return words ^ ((words >> 31) & (MASK >> 31))


def _signed(value: int) -> int:
    return ctypes.c_int64(value).value


def _moments(batch: Any, count: int | None) -> tuple[float, ...]:
    """Return mean and deviation of each sample's first array of numbers; empty without any.

    Floating-point numbers come before bytes, and those before other whole numbers.
    """
    if not count or "torch" not in sys.modules:
        return ()
    for wanted in (_is_floating, _is_bytes, _is_whole):
        for value in _arrays(batch):
            if wanted(value) and value.shape[0] == count:
                return _moments_of(value, count)
        parts = _parts(batch)
        if parts is not None and parts[0] in SEQUENCES and len(parts[1]) == count:
            firsts = [next(filter(wanted, _arrays(item)), None) for _, item in parts[1]]
            if all(first is not None for first in firsts):
                return tuple(moment for first in firsts for moment in _moments_of(first, 1))
    return ()


def _is_floating(value: Any) -> bool:
    if inspection.is_a(value, "numpy.ndarray"):
        return bool(value.dtype.kind == "f")
    return bool(value.is_floating_point())


def _is_bytes(value: Any) -> bool:
    return str(value.dtype).rpartition(".")[2] == "uint8" and len(value.shape) > 1


def _is_whole(value: Any) -> bool:
    """Say whether an array holds whole numbers: tokens, labels."""
    name = str(value.dtype).rpartition(".")[2]
    return name.lstrip("u").startswith("int") and not name.startswith("uint8")


def _arrays(value: Any) -> Iterator[Any]:
    """Yield the dense arrays in a value that have rows with something in them."""
    for leaf in filter(_is_array, _leaves(value)):
        is_meta = inspection.is_a(leaf, "torch.Tensor") and leaf.device.type == "meta"
        if len(leaf.shape) and math.prod(leaf.shape) and not is_meta:
            yield leaf


def _moments_of(value: Any, count: int) -> tuple[float, ...]:
    torch = sys.modules["torch"]
    if inspection.is_a(value, "numpy.ndarray"):
        rows = value.reshape(count, -1)
        step = _stride(rows.shape[1])
        rows = torch.from_numpy(rows[:, ::step].astype("float64"))
    else:
        rows = value.detach().reshape(count, -1)
        rows = rows[:, :: _stride(rows.shape[1])].to(torch.float64)
    deviation, mean = torch.std_mean(rows, 1, correction=0)
    moments = torch.stack((mean, deviation), 1)
    if not torch.isfinite(moments).all():
        moments = _finite_moments(torch, rows)
    return tuple(moments.reshape(-1).tolist())


def _finite_moments(torch: Any, rows: Any) -> Any:
    """Return mean and deviation of each row's finite values, zeros where there are none."""
    finite = torch.isfinite(rows)
    known = finite.sum(1).clamp(min=1)
    mean = torch.where(finite, rows, 0.0).sum(1) / known
    squares = torch.where(finite, rows - mean[:, None], 0.0).square()
    return torch.stack((mean, (squares.sum(1) / known).sqrt()), 1)


def _stride(values: int) -> int:
    """Return the distance of values that are looked at: odd, to meet all rows and channels."""
    return 1 if values <= MOMENT_VALUES else math.ceil(values / MOMENT_VALUES) | 1


def unpadded(value: Any, count: int) -> list[tuple[int, int]]:
    """Return, for each row of an array of `count` samples, a fingerprint of it without what repeats
    at its ends, and the bits of the number that repeats: a batch is padded to its longest sample.

    In each dimension all that follows the last other number is left out, so that of a padded row
    what was there before remains. It is the fingerprint that `samples_of` gives of an array that
    holds just that. Empty where no row ends in repetition, or the value is no array of samples in
    the CPU's memory.
    """
    numpy: Any = sys.modules.get("numpy")
    if numpy is None or not is_dense(value) or value.ndim < 2 or value.shape[0] != count:
        return []
    if str(getattr(value, "device", "cpu")) != "cpu" or 0 in value.shape:
        return []
    content, kept = inspection.bytes_of(value)
    shape = tuple(value.shape)
    width = len(content) // numpy.prod(shape)
    if width not in _WIDTHS:
        return []
    rows = numpy.frombuffer(content, f"u{width}").reshape(shape)
    last = rows.reshape(count, -1)[:, -1].reshape(count, *[1] * (len(shape) - 1))
    axes = range(1, len(shape))
    others = {axis: tuple(each for each in axes if each != axis) for axis in axes}
    if not any((rows.take([-1], axis) == last).all((axis, *others[axis])).any() for axis in axes):
        return []  # as of pictures: their edges are not of one colour
    used = rows != last
    boxes = numpy.stack([_lengths(numpy, used.any(others[axis])) for axis in axes], 1).tolist()
    found = []
    for row, box, end in zip(rows, boxes, last.reshape(-1).tolist(), strict=True):
        part = row[tuple(slice(0, length) for length in box)]
        found.append((row_fingerprint(value.dtype, tuple(box), part.tobytes()), end))
    del kept
    return found


def _lengths(numpy: Any, used: Any) -> Any:
    """Return for each row of truth values how many there are up to the last true one."""
    return numpy.where(used.any(1), used.shape[1] - numpy.argmax(used[:, ::-1], 1), 0)
