"""Reads what is in the files that a script wrote, as numbers that can be compared.

Arrays of NumPy, tensors of PyTorch and safetensors, pickles, JSON and text are read. Nothing of a
file is executed: pickles are walked with classes that do nothing. What has another format, or does
not keep to its own, has a digest only.
"""

from __future__ import annotations

import collections
import contextlib
import hashlib
import io
import json
import math
import pickle
import struct
import zipfile
import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuadvisor.domain.printed import (
    moments_in,
    numbers_in,
    tells_memory,
    tells_time,
    without_numbers,
)
from gpuadvisor.domain.rehearsal import Numbers, WrittenFile

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.generic]

MOST_BYTES = 256 * 2**20
"""Largest file whose content is read, at some 0.5 s for each of three lives."""
MOST_READ = 2**30
"""Bytes of one life's files that are read."""
MOST_TEXT = 16 * 2**20
"""Largest text that is read, in bytes: its numbers take some 2 s."""
MOST_VALUES = 1 << 16
"""Values that are kept of each array. One changed row of a thousand is seen in 65."""
MANY = 64
"""Entries of a mapping, or numbers of a line, from which on they are taken as one list: names of
samples, columns of outputs."""
_LONGEST_NAME = 80

Part = tuple[str, Any, bool]
"""The name of a number or an array, itself, and whether its name or its line speaks of time."""

_STORAGES = {
    "DoubleStorage": "<f8",
    "FloatStorage": "<f4",
    "HalfStorage": "<f2",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "<i8",
    "IntStorage": "<i4",
    "ShortStorage": "<i2",
    "CharStorage": "<i1",
    "ByteStorage": "<u1",
    "BoolStorage": "?",
    "ComplexFloatStorage": "<c8",
    "ComplexDoubleStorage": "<c16",
}
"""Types of `torch.save`'s storages: the classes of torch/storage.py."""
_SAFETENSORS = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "BF16": "bfloat16",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "<i1",
    "U8": "<u1",
    "BOOL": "?",
}
"""Types of tensors: huggingface.co/docs/safetensors."""


class _Text(float):
    """Stands for a text, by its CRC-32."""

    def __new__(cls, text: str | bytes) -> _Text:
        return super().__new__(cls, zlib.crc32(text.encode() if isinstance(text, str) else text))


class ContentReader:
    """Reads files of one life, until they are too many bytes."""

    def __init__(self) -> None:
        self._left = MOST_READ

    def read(self, path: Path, name: str, size: int) -> WrittenFile:
        """Return what is in a file of that name; its size alone where it cannot be read."""
        if size > min(MOST_BYTES, self._left) or not path.is_file() or path.is_symlink():
            return WrittenFile(size)
        self._left -= size
        try:
            content = path.read_bytes()
        except OSError:  # the script took its own rights away
            return WrittenFile(size)
        digest = hashlib.blake2b(content, digest_size=16).hexdigest()
        try:
            numbers, is_text = _numbers(content, Path(name).suffix.lower())
        except Exception:  # a hostile or damaged file may raise anything
            return WrittenFile(size, digest)
        return WrittenFile(size, digest, numbers, is_text)


class _UnknownFormatError(ValueError):
    """The content is not one of those that can be read."""


def _numbers(content: bytes, suffix: str) -> tuple[dict[str, Numbers], bool]:
    """Return the numbers in a file by names, and whether it is a text."""
    if content.startswith(b"\x93NUMPY"):
        return _collected([("", _npy(content), False)]), False
    if content.startswith(b"PK\x03\x04"):
        return _collected(_archive(content)), False
    if suffix == ".safetensors":
        return _collected(_safetensors(content)), False
    if content.startswith(b"\x80") and content[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        return _collected(_walk(_Opener(io.BytesIO(content)).load())), False
    if len(content) > MOST_TEXT or b"\0" in content:
        raise _UnknownFormatError
    text = content.decode("utf-8")
    if suffix in (".json", ".jsonl", ".ndjson"):
        with contextlib.suppress(ValueError):
            return _collected(_json(text, suffix)), True
    return _collected(_lines(text)), True


def _collected(found: Iterable[Part]) -> dict[str, Numbers]:
    """Put single numbers of the same name together, and make arrays shorter."""
    single: dict[tuple[str, bool, bool], array[float]] = {}
    numbers: dict[str, Numbers] = {}
    for name, value, is_time in found:
        if isinstance(value, float):
            kind = name, is_time, isinstance(value, _Text)
            single.setdefault(kind, array("d")).append(value)
            continue
        for column, values in _columns(name, value):
            numbers[_new(column, numbers)] = _shortened(values, is_time)
    for (name, *kinds), together in single.items():
        step = math.ceil(len(together) / MOST_VALUES)
        numbers[_new(name, numbers)] = Numbers(len(together), together[::step], *kinds)
    return numbers


def _new(name: str, numbers: Mapping[str, Numbers]) -> str:
    """Return the name, or the first one with a count that is not there yet."""
    more, new = 1, name
    while new in numbers:
        more += 1
        new = f"{name} ({more})".lstrip()
    return new


def _columns(name: str, values: Array) -> Iterator[tuple[str, Array]]:
    """Yield the columns of a table, of which one may be large numbers of rows; else all at once."""
    if values.ndim == 2 and 1 < values.shape[1] < MANY < values.shape[0]:
        for column in range(values.shape[1]):
            yield f"{name} column {column + 1}".lstrip(), values[:, column]
    else:
        yield name, values


def _shortened(values: Array, is_time: bool) -> Numbers:
    import numpy as np

    flat = np.ascontiguousarray(values).reshape(-1)
    if flat.dtype.kind == "c":
        flat = flat.view(flat.real.dtype)
    are_texts = flat.dtype.kind in "US"
    if are_texts:
        flat = np.array([_Text(text) for text in flat.tolist()], dtype=float)
    if flat.dtype.kind not in "biuf":
        raise _UnknownFormatError
    step = max(1, math.ceil(flat.size / MOST_VALUES))
    while any(math.gcd(step, length) > 1 for length in values.shape[1:]):  # else some columns never
        step += 1
    kept = np.ascontiguousarray(flat[::step], dtype=np.float64)
    return Numbers(int(flat.size), array("d", kept.tobytes()), is_time, are_texts)


def _npy(content: bytes) -> Array:
    import numpy as np

    return np.asarray(np.load(io.BytesIO(content), allow_pickle=False))


def _typed(content: bytes, kind: str) -> Array:
    import numpy as np

    if kind != "bfloat16":
        return np.frombuffer(content, dtype=np.dtype(kind))
    upper = np.frombuffer(content, dtype="<u2").astype(np.uint32)
    return (upper << 16).view(np.float32)


def _archive(content: bytes) -> Iterator[Part]:
    """Read an archive of NumPy's arrays, or what `torch.save` writes."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        names = archive.namelist()
        if sum(info.file_size for info in archive.infolist()) > MOST_BYTES:
            raise _UnknownFormatError
        index = next((name for name in names if name.endswith("/data.pkl")), None)
        if index is not None and not any(n.endswith("/constants.pkl") for n in names):
            folder = index.removesuffix("data.pkl")
            opener = _Opener(
                io.BytesIO(archive.read(index)), lambda key: archive.read(f"{folder}data/{key}")
            )
            yield from _walk(opener.load())
        elif names and all(name.endswith(".npy") for name in names):
            for name in names:
                yield name.removesuffix(".npy"), _npy(archive.read(name)), False
        else:
            raise _UnknownFormatError


def _safetensors(content: bytes) -> Iterator[Part]:
    (length,) = struct.unpack_from("<Q", content)
    header = json.loads(content[8 : 8 + length])
    for name, tensor in header.items():
        if name != "__metadata__":
            start, end = tensor["data_offsets"]
            data = content[8 + length + start : 8 + length + end]
            yield name, _typed(data, _SAFETENSORS[tensor["dtype"]]), False


# -- pickles -------------------------------------------------------------------------------------


class _Object:
    """Stands for an object of a class that is not looked at; what it was made of is kept."""

    content: list[Any]

    def __new__(cls, *arguments: Any, **options: Any) -> _Object:
        made = super().__new__(cls)
        made.content = [*arguments, options]
        return made

    def __init__(self, *arguments: Any, **options: Any) -> None:
        """Take what the class took: unpickling may or may not come here."""

    def __setstate__(self, state: Any) -> None:
        self.content.append(state)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.content.append((key, value))

    def append(self, value: Any) -> None:
        self.content.append(value)

    def extend(self, values: Iterable[Any]) -> None:
        self.content.extend(values)


class _Opener(pickle.Unpickler):
    """Opens a pickle without running anything that it names."""

    def __init__(self, file: io.BytesIO, storage: Callable[[str], bytes] | None = None) -> None:
        super().__init__(file, encoding="latin1")
        self._storage = storage

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in (("collections", "OrderedDict"), ("collections", "defaultdict")):
            return collections.OrderedDict
        if module == "torch._utils" and name in ("_rebuild_tensor_v2", "_rebuild_tensor"):
            return _tensor
        if module == "torch._utils" and name == "_rebuild_parameter":
            return _first
        if module.startswith("numpy") and name in _numpy_makers():
            return _numpy_makers()[name]
        if module == "torch" and name.endswith("Storage"):
            return name
        return type(name, (_Object,), {})

    def persistent_load(self, pid: Any) -> Array:
        if self._storage is None or pid[0] != "storage":
            raise _UnknownFormatError
        return _typed(self._storage(pid[2]), _STORAGES[pid[1]])


def _first(value: Any, *_: Any) -> Any:
    return value


def _tensor(storage: Array, offset: int, size: tuple[int, ...], stride: Any, *_: Any) -> Array:
    """Return a tensor's values in the order of its indices."""
    import numpy as np

    last = offset + sum((n - 1) * s for n, s in zip(size, stride, strict=True))
    if math.prod(size) == 0:
        return storage[:0]
    if min((offset, *stride, *size)) < 0 or last >= storage.size:
        raise _UnknownFormatError
    steps = [s * storage.itemsize for s in stride]
    return np.lib.stride_tricks.as_strided(storage[offset:], size, steps, writeable=False)


def _numpy_makers() -> Mapping[str, Any]:
    """Return what pickled arrays and numbers of NumPy are made with, which runs no other code."""
    import numpy as np

    array_maker, number_maker = np.empty(1).__reduce__()[0], np.float64(1).__reduce__()[0]
    return {
        "_reconstruct": array_maker,
        "scalar": number_maker,
        "ndarray": np.ndarray,
        "dtype": np.dtype,
        "_frombuffer": lambda data, kind, shape, order: np.frombuffer(data, kind).reshape(
            shape, order=order
        ),
    }


def _walk(value: Any, name: str = "", depth: int = 0, is_time: bool = False) -> Iterator[Part]:
    """Yield the arrays and numbers of nested containers, by the names on the way to them."""
    import numpy as np

    if depth > 50:
        raise _UnknownFormatError
    if isinstance(value, (bool, int, float, np.bool_, np.integer, np.floating)):
        yield name, _float(value), is_time
    elif isinstance(value, (str, bytes)):
        yield name, _Text(value), is_time
    elif isinstance(value, np.ndarray):
        if value.dtype.kind == "O":
            yield from _walk(value.tolist(), name, depth + 1, is_time)
        else:
            yield name, value, is_time
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            is_figure = isinstance(inner, (bool, int, float))
            below = _below(name, "*" if is_figure and len(value) >= MANY else key, len(value))
            yield from _walk(inner, below, depth + 1, is_time or tells_time(str(key)))
    elif isinstance(value, (list, tuple, set, frozenset)):
        for inner in value:
            yield from _walk(inner, name, depth + 1, is_time)
    elif isinstance(value, _Object):
        below = _below(name, type(value).__name__, 1)
        yield from _walk(value.content, below, depth + 1, is_time)


def _below(name: str, key: object, siblings: int) -> str:
    """Return the name of what stands under a key: that of all of them where they are many."""
    own = "*" if siblings >= MANY and not isinstance(key, str) else str(key)
    return f"{name}.{own}" if name else own


def _float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:  # an integer that is longer than a float can be
        return math.copysign(math.inf, value)


# -- texts ---------------------------------------------------------------------------------------


def _json(text: str, suffix: str) -> Iterator[Part]:
    """Yield the values of a JSON text, or of one in each line."""
    texts = [text] if suffix == ".json" else [line for line in text.splitlines() if line.strip()]
    for one in texts:
        yield from _walk(_merged(json.loads(one)))


def _merged(value: Any) -> Any:
    """Return a JSON value in which mappings of many keys, such as samples' names, are lists."""
    if isinstance(value, dict):
        inner = {key: _merged(each) for key, each in value.items()}
        return [[key, each] for key, each in inner.items()] if len(inner) >= MANY else inner
    if isinstance(value, list):
        return [_merged(each) for each in value]
    return "null" if value is None else value


def _lines(text: str) -> Iterator[Part]:
    """Yield the numbers in lines, those of like lines together, and the words of each line.

    How many lines speak of time may depend on it, so that their words are not among those. The
    first line of a table says which of its columns do, and which are of memory.
    """
    heads, separator = _heads(text.partition("\n")[0])
    timed = [tells_time(head) for head in heads]
    sizes = [head if tells_memory(head) else "" for head in heads]
    for line in text.splitlines():
        is_time = tells_time(line)
        words = without_numbers(line)
        if not is_time:
            yield "words", _Text(words), False
        if moments := moments_in(line):
            yield f"{words[:_LONGEST_NAME]} (moments)", _Text(" ".join(moments)), True
        fields = line.split(separator) if timed else [line]
        in_table = len(fields) == len(timed)
        found = [
            (number, is_time or (in_table and timed[at]), sizes[at] if in_table else "")
            for at, field in enumerate(fields)
            for number in numbers_in(field)
        ]
        kind = words[:_LONGEST_NAME]
        for place, (number, is_of_time, head) in enumerate(found, start=1):
            column = "all" if len(found) >= MANY else f"{place} {head}".rstrip()
            yield f"{kind} ({column})", number, is_of_time


def _heads(line: str) -> tuple[list[str], str]:
    """Return the names of a table's columns, and what separates them, by its first line.

    None where it is no table, or no column is of time or memory.
    """
    for separator in "\t;,":
        names = [name.strip() for name in line.split(separator)]
        if len(names) > 1 and not numbers_in(line):
            is_needed = any(tells_time(name) or tells_memory(name) for name in names)
            return (names if is_needed else []), separator
    return [], ","
