"""Open files, streams and iterators: what workers must not share, or what can be read once."""

from __future__ import annotations

import gc
import mmap
import operator
import sys
import types
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from gpuadvisor.collectors.script.child.rehearsal.inspection import (
    attributes_of,
    defines,
    is_a,
    module_dict,
    module_of,
)

HANDLES = (
    "zipfile.ZipFile",
    "tarfile.TarFile",
    "multiprocessing.connection.Connection",
    "sqlite3.Connection",
    "sqlite3.Cursor",
    "h5py.File",
    "h5py.Dataset",
    "h5py.Group",
    "lmdb.Environment",
    "lmdb.Transaction",
    "lmdb.Cursor",
    "netCDF4.Dataset",
    "netCDF4.Variable",
    "tables.File",
    "rasterio.io.DatasetReader",
    "cv2.VideoCapture",
    "decord.VideoReader",
    "av.container.InputContainer",
    "soundfile.SoundFile",
    "openslide.OpenSlide",
    "leveldb.LevelDB",
    "rocksdb.DB",
)
"""Types of objects with an open file or database behind them."""
BUILT_IN_ITERATORS = tuple(
    map(type, (iter([]), iter(()), iter(""), iter({}), iter({}.values()), iter({}.items())))
) + tuple(map(type, (iter(range(0)), iter(range(1 << 70)), iter(set()), reversed([]), iter(b""))))
"""Iterators over what is in memory, which know how much is left of it."""
READERS = ("read", "readline", "readinto", "recv")
STANDARD = ("stdin", "stdout", "stderr", "__stdin__", "__stdout__", "__stderr__")
DEPTH = 4


def may_be_handle(kind: type, value: Any) -> bool:
    """Say whether values of a type can have an open file behind them, or a stream; not all do."""
    if is_a(value, "_io._IOBase") or is_a(value, "mmap.mmap") or is_a(value, "PIL.Image.Image"):
        return True
    if any(is_a(value, name) for name in HANDLES):
        return True
    # By what it can do, for libraries that are not named above.
    return defines(kind, "fileno") and not is_a(value, "socket.socket")


def is_standard_stream(value: Any) -> bool:
    """Say whether a file is the process's own input, output or error output."""
    if any(value is getattr(sys, f"{name}") for name in STANDARD):
        return True
    with suppress(Exception):
        return _is_builtin_stream(value) and value.fileno() in (0, 1, 2)
    return False


def is_handle(value: Any) -> bool:
    """Say whether a value that may be a handle has an open file of the operating system's."""
    if is_a(value, "_io._IOBase"):
        return not is_in_memory(value) and not is_a(value, "_io.BufferedRWPair")
    if is_a(value, "mmap.mmap"):
        return not _is_read_only(value)
    if is_a(value, "PIL.Image.Image"):
        return attributes_of(value).get("fp") is not None
    return True


def is_in_memory(value: Any) -> bool:
    """Say whether a stream lives in memory alone."""
    if is_a(value, "_io.BytesIO") or is_a(value, "_io.StringIO"):
        return True
    inner = _inner_stream(value)
    return inner is not None and is_in_memory(inner)


def is_iterator(value: Any) -> bool:
    """Say whether a value can be read once: an iterator, a generator function's, a stream."""
    cls = type(value)
    if is_a(value, "socket.socket") or (is_a(value, "_io._IOBase") and is_in_memory(value)):
        return True
    if defines(cls, "__next__"):
        return True
    # A stream of an extension module; of others it is seen what they read from.
    is_stream = defines(cls, "close") and any(defines(cls, name) for name in READERS)
    return is_stream and not is_a(value, "PIL.Image.Image") and not attributes_of(value)


def handle_state(value: Any) -> str:
    """Return where a handle stands: its offset, or that it was closed; empty if it cannot tell."""
    parts = []
    with suppress(Exception):
        if _is_builtin_stream(value):
            parts.append(_stream_state(value))
        elif is_a(value, "mmap.mmap"):
            parts.append(str(mmap.mmap.tell(value)))
        elif type(value) is module_dict(sys.modules.get("sqlite3")).get("Connection"):
            parts.append(f"{value.total_changes} {value.in_transaction}")
    own = attributes_of(value)
    for name in ("mode", "_mode", "_size", "fp", "fileobj", "file", "_file", "fh", "_fh", "offset"):
        inner = own.get(name)
        if type(inner) in (bool, int, str, tuple):
            parts.append(f"{name} {inner!r}")
        elif inner is not None and _is_builtin_stream(inner):
            parts.append(handle_state(inner))
    return "; ".join(parts)


def _is_builtin_stream(value: Any) -> bool:
    """Say whether a stream is one of Python's own, not of a class that someone derived."""
    return module_of(type(value)) == "_io"


def _stream_state(value: Any) -> str:
    if is_a(value, "_io.TextIOWrapper"):
        # Its own `tell` fails while lines are read, and writes what is in its buffer.
        inner = value.buffer
        return _stream_state(inner) if _is_builtin_stream(inner) else ""
    raw = _inner_stream(value)
    if raw is not None and not _is_builtin_stream(raw):
        return ""
    if value.closed:
        return "closed"
    with suppress(OSError, ValueError):  # a pipe has no offset
        return str(value.tell())
    return ""


def _inner_stream(value: Any) -> Any:
    """Return the stream under a buffer of Python's own, None where there is none."""
    with suppress(Exception):
        if _is_builtin_stream(value) and is_a(value, "_io.TextIOWrapper"):
            return value.buffer
        if _is_builtin_stream(value) and is_a(value, "_io._BufferedIOBase"):
            return value.raw
    return None


def iterator_state(value: Any, depth: int = 0) -> str:
    """Return how far an iterator has come, as far as it can be seen without reading from it."""
    if depth > DEPTH:
        return ""
    cls = type(value)
    with suppress(Exception):
        if cls in (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType):
            return _frame_state(value)
        if cls in BUILT_IN_ITERATORS:
            return str(operator.length_hint(value))
        if _is_builtin_stream(value):
            return _stream_state(value)
        if module_of(cls) in ("builtins", "itertools", "_csv"):
            inner = (iterator_state(item, depth + 1) for item in _referents(value))
            own = str(getattr(value, "line_num", ""))
            return f"{own}({','.join(part for part in inner if part)})"
        if type(value) is int:
            return str(value)
    return ""


def _referents(value: Any) -> Iterator[Any]:
    """Yield the iterators and files that one of Python's own iterators reads from."""
    referents = gc.get_referents(value)
    inner = [item for group in referents if type(group) is tuple for item in group]
    for item in (*referents, *inner):
        if type(item) is int or (not issubclass(type(item), type) and is_iterator(item)):
            yield item


def _frame_state(value: Any) -> str:
    """Return where a generator function's iterator stands, with its simple local variables."""
    frame = value.gi_frame if type(value) is types.GeneratorType else None
    if frame is None:
        return "ended"
    local = frame.f_locals
    simple = [f"{k}={v!r}" for k, v in local.items() if type(v) in (int, float, bool, str)]
    inner = [
        iterator_state(v, DEPTH)
        for k, v in local.items()
        if type(v) in BUILT_IN_ITERATORS or is_a(v, "_io._IOBase")
    ]
    return f"{frame.f_lasti} {frame.f_lineno} {simple} {inner}"


def _is_read_only(value: Any) -> bool:
    try:
        with memoryview(value) as view:
            return view.readonly
    except Exception:  # it is closed
        return True
