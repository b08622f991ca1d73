"""Goes through objects breadth first and digests each part, within bounds."""

from __future__ import annotations

import hashlib
import marshal
import types
from array import array
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any

from gpuadvisor.collectors.script.child.rehearsal import code_references, handles
from gpuadvisor.collectors.script.child.rehearsal.arrays import array_digest, is_array, is_shared
from gpuadvisor.collectors.script.child.rehearsal.generators import generator_digest, is_generator
from gpuadvisor.collectors.script.child.rehearsal.inspection import (
    attributes_of,
    class_dict,
    is_a,
    is_of,
    mro_of,
    type_name,
)
from gpuadvisor.domain.rehearsal import StateKind

PARTS = 20_000
"""Parts looked at in one state: some 40 ms of work."""
ELEMENTS = 4096
"""Elements of a container that are looked at one by one; of a longer one a sample is."""
SAMPLE = 512
"""Elements of a longer one that are."""
OBJECTS = 256
"""Objects in one container whose own attributes are looked at."""
WHOLE = 200_000
"""Elements, nested ones counted, up to which a container of plain values is digested as a whole:
30 ms of work."""
DEPTH = 16
"""Levels of containers in containers."""
LONG = 1 << 20
"""Bytes of a text above which only its ends are looked at."""

PLAIN = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis), type(NotImplemented))
CONTAINERS = (list, tuple, dict, set, frozenset, deque, bytearray)
LEFT_ALONE = (
    "asyncio", "concurrent", "logging", "multiprocessing", "threading", "tqdm", "weakref",
    "_thread", "_weakref", "torch.multiprocessing", "torch.utils.tensorboard",
)  # fmt: skip
"""Packages whose objects hold nothing that reading samples depends on, or truly share it between
processes."""
CONSTANT = (
    "datetime", "decimal", "fractions", "pathlib", "pyarrow.lib", "re", "uuid", "zoneinfo",
    "ipaddress", "_decimal",
)  # fmt: skip
"""Packages whose objects never change; by its type alone one of them is known well enough."""
CONSTANT_TYPES = (
    types.ModuleType, types.BuiltinFunctionType, types.MethodDescriptorType, types.CodeType,
    types.WrapperDescriptorType, types.MethodWrapperType, types.GetSetDescriptorType,
    types.MemberDescriptorType, types.ClassMethodDescriptorType, types.MappingProxyType,
    range, slice, property, object,
)  # fmt: skip


@dataclass(frozen=True)
class Part:
    """One part of a state."""

    kind: StateKind
    digest: str
    """Of its content; the same in every process."""
    type_name: str
    witness: int = 0
    """Of what a digest left out, such as the middle of a long list; by addresses, so it means
    something in this process only. 0 where nothing was left out."""

    def differs(self, other: Part, same_process: bool) -> bool:
        mine, others = (
            (self.kind, self.digest, self.type_name),
            (
                other.kind,
                other.digest,
                other.type_name,
            ),
        )
        return mine != others or (same_process and self.witness != other.witness)


class Walk:
    """One walk through a loader's objects."""

    def __init__(self) -> None:
        self.parts: dict[str, Part] = {}
        self.unseen: list[str] = []
        self._queue: deque[tuple[str, Any]] = deque()
        self._seen: dict[int, Any] = {}
        """What was looked at, kept alive so that no address is used twice."""
        self.array_bytes = 0
        """Bytes of arrays that were read whole."""

    def run(self, roots: Mapping[str, Any]) -> None:
        self._queue.extend(roots.items())
        while self._queue:
            path, value = self._queue.popleft()
            if len(self.parts) >= PARTS:
                self.unseen.append(path)
                continue
            try:
                self._look(path, value)
            except Exception:
                self.unseen.append(path)

    def _look(self, path: str, value: Any) -> None:
        kind = type(value)
        if kind in PLAIN:
            self._note(path, StateKind.VALUE, value, *_plain(value))
            return
        if id(value) in self._seen:
            return
        self._seen[id(value)] = value
        if is_generator(value):
            self._note(path, StateKind.GENERATOR, value, generator_digest(value))
        elif handles.is_standard_stream(value) or is_of(value, *LEFT_ALONE):
            return
        elif kind is not type and not issubclass(kind, type) and handles.is_handle(value):
            self._note(path, StateKind.HANDLE, value, handles.handle_state(value))
        elif is_array(value):
            self._array(path, value)
        elif any(issubclass(kind, container) for container in CONTAINERS):
            self._container(path, value)
        elif issubclass(kind, type):
            self._class(path, value)
        elif kind is types.FunctionType:
            self._function(path, value)
        else:
            self._other(path, value)

    def _other(self, path: str, value: Any) -> None:
        kind = type(value)
        if kind is types.MethodType:
            self._queue.append((path, value.__func__))
            self._queue.append((f"{path}.__self__", value.__self__))
        elif is_a(value, "functools.partial"):
            inner = {".func": value.func, ".args": value.args, ".keywords": value.keywords}
            self._queue.extend((path + name, item) for name, item in inner.items())
        elif is_a(value, "functools._lru_cache_wrapper"):
            counts = value.cache_info()
            self._note(path, StateKind.CONTAINER, value, str(counts))
            self._queue.extend((f"{path}.{n}", v) for n, v in attributes_of(value).items())
        elif kind in (staticmethod, classmethod):
            self._queue.append((path, value.__func__))
        elif kind is types.CellType:
            with suppress(ValueError):  # it is empty
                self._queue.append((path, value.cell_contents))
        elif any(issubclass(kind, constant) for constant in PLAIN[1:7]):  # a subclass's
            bases: tuple[Any, ...] = (str, bytes, int, float, complex)
            plain = next(base for base in bases if issubclass(kind, base))
            self._note(path, StateKind.VALUE, value, *_plain(plain.__getnewargs__(value)[0]))
        elif kind in CONSTANT_TYPES or is_of(value, *CONSTANT):
            self._note(path, StateKind.VALUE, value, _constant(value))
        else:
            self._object(path, value)

    def _object(self, path: str, value: Any) -> None:
        """Look at an object's attributes, those of its class and what its methods refer to."""
        kind = type(value)
        is_iterator = handles.is_iterator(value)
        own = attributes_of(value)
        if is_iterator:
            state = handles.iterator_state(value)
            self._note(path, StateKind.ITERATOR, value, state)
        else:
            self._note(path, StateKind.VALUE, value, _constant(value))
        if not own and not is_iterator and not _is_python_class(kind) and not _constant(value):
            self.unseen.append(path)
        self._queue.extend((f"{path}.{name}", item) for name, item in own.items())
        for base in mro_of(kind):
            if code_references.is_own(base):
                names = class_dict(base)
                self._queue.extend(
                    (f"{path}.{name}", item)
                    for name, item in names.items()
                    if name not in own and _is_state(name, item)
                )
        for method in code_references.methods_of(kind):
            self._function_state(path, method)
            self._queue.extend(code_references.references(method, kind).items())

    def _class(self, path: str, value: type) -> None:
        self._note(path, StateKind.VALUE, value, _constant(value))
        if code_references.is_own(value):
            items = class_dict(value).items()
            self._queue.extend((f"{path}.{n}", item) for n, item in items if _is_state(n, item))

    def _function(self, path: str, value: types.FunctionType) -> None:
        self._note(path, StateKind.VALUE, value, _constant(value))
        self._function_state(path, value)
        if code_references.is_own(value):
            self._queue.extend(code_references.references(value).items())

    def _function_state(self, path: str, value: types.FunctionType) -> None:
        """Look at what a function closes over, its defaults and its attributes."""
        names = value.__code__.co_freevars
        for name, cell in zip(names, value.__closure__ or (), strict=False):
            self._queue.append((f"{path}.{name}", cell))
        defaults: list[tuple[str, Any]] = [
            (".__defaults__", value.__defaults__),
            (".__kwdefaults__", value.__kwdefaults__),
        ]
        defaults += [(f".{name}", item) for name, item in value.__dict__.items()]
        self._queue.extend((path + name, item) for name, item in defaults if item)

    def _array(self, path: str, value: Any) -> None:
        if is_shared(value):
            return
        if is_a(value, "numpy.ndarray") and value.dtype.hasobject:
            self._container(path, value.ravel().tolist(), value)
            return
        digest, witness, is_whole = array_digest(value, self)
        self._note(path, StateKind.VALUE, value, digest, witness)
        if not is_whole:
            self.unseen.append(path)

    def _container(self, path: str, value: Any, shown: Any = None) -> None:
        total = hashlib.blake2b(digest_size=8)
        content = _Content(self, path, total)
        content.add(value, 0)
        shown = value if shown is None else shown
        self._note(path, StateKind.CONTAINER, shown, total.hexdigest(), content.witness)
        own = attributes_of(shown)  # of a subclass
        self._queue.extend((f"{path}.{name}", item) for name, item in own.items())

    def inside(self, path: str, value: Any) -> None:
        """Look at an object in a container as a part of its own."""
        self._queue.append((path, value))

    def _note(self, path: str, kind: StateKind, value: Any, digest: str, witness: int = 0) -> None:
        self.parts.setdefault(path, Part(kind, digest, type_name(type(value)), witness))


class _Content:
    """The digest of one container with all plain values and containers in it."""

    def __init__(self, walk: Walk, path: str, total: Any) -> None:
        self._walk = walk
        self._path = path
        self._total = total
        self._objects = 0
        self._left = ELEMENTS
        self._open: set[int] = set()
        self.witness = 0
        self._keys: list[str] = []

    def add(self, value: Any, depth: int) -> None:
        kind = type(value)
        if kind in PLAIN:
            digest, witness = _plain(value)
            self._total.update(f"{kind.__name__}:{digest};".encode())
            self.witness ^= witness
            return
        container = next((c for c in CONTAINERS if issubclass(kind, c)), None)
        if container is None:
            self._object(value)
        elif id(value) in self._open or depth > DEPTH:
            self._total.update(b"again;")
            if depth > DEPTH:
                self._cut()
        else:
            self._open.add(id(value))
            self._walk._seen.setdefault(id(value), value)
            self._members(value, kind, container, depth)
            self._open.discard(id(value))

    def _members(self, value: Any, kind: type, container: Any, depth: int) -> None:
        length = container.__len__(value)
        self._total.update(f"{type_name(kind)} {length}(".encode())
        if kind in (list, tuple, dict) and _size_of(value) <= WHOLE:
            with suppress(ValueError):  # there is something else in it
                self._total.update(hashlib.blake2b(marshal.dumps(value, 2)).digest())
                return
        if container is bytearray:
            self._total.update(_plain(bytes(value))[0].encode())
        elif container in (set, frozenset):
            self._set(value, container, depth)
        else:
            self._sequence(value, container, length, depth)
        self._total.update(b")")

    def _sequence(self, value: Any, container: Any, length: int, depth: int) -> None:
        if length <= self._left:
            self._left -= length
            chosen = list(_items(value, container))
        else:
            chosen = list(_sampled(value, container, length))
            self._long(value, container)
        for key, item in chosen:
            if container is dict:
                self.add(key, depth + 1)
            shown = repr(key) if type(key) in (int, str) else type(key).__name__
            self._keys.append(f"[{shown}]")
            self.add(item, depth + 1)
            self._keys.pop()

    def _long(self, value: Any, container: Any) -> None:
        """Digest all of a long container at C speed: by value where that is safe, else identity."""
        items = list(dict.values(value)) if container is dict else list(container.__iter__(value))
        kinds = set(map(type, items))
        if kinds <= {int, bool, float, type(None), str, bytes}:
            with suppress(TypeError, OverflowError, ValueError):
                if kinds == {int}:
                    self._total.update(hashlib.blake2b(array("q", items).tobytes()).digest())
                    return
                if kinds == {float}:
                    self._total.update(hashlib.blake2b(array("d", items).tobytes()).digest())
                    return
            self.witness ^= hash(tuple(items))
            return
        self.witness ^= hash(tuple(map(id, items)))
        if tuple in kinds:  # as pairs of a file and its class
            inner = chain.from_iterable(item for item in items if type(item) is tuple)
            kinds = (kinds - {tuple}) | set(map(type, inner))
        if not kinds <= set(PLAIN):  # what changed inside of an element would not be seen
            self._cut()

    def _set(self, value: Any, container: Any, depth: int) -> None:
        length = container.__len__(value)
        if length > self._left:
            self._cut()
            self.witness ^= hash(frozenset(map(id, container.__iter__(value))))
            return
        self._left -= length
        digests = []
        for item in container.__iter__(value):
            outer, self._total = self._total, hashlib.blake2b(digest_size=8)
            self.add(item, depth + 1)
            digests.append(self._total.digest())
            self._total = outer
        for digest in sorted(digests):
            self._total.update(digest)

    def _object(self, value: Any) -> None:
        self._total.update(f"{type_name(type(value))};".encode())
        self._objects += 1
        if self._objects <= OBJECTS:
            self._walk.inside(self._path + "".join(self._keys), value)
        else:
            self._cut()
            self.witness ^= hash((self._objects, id(value)))

    def _cut(self) -> None:
        self._walk.unseen.append(self._path)


def _items(value: Any, container: Any) -> Iterator[tuple[Any, Any]]:
    if container is dict:
        yield from list(dict.items(value))
    else:
        yield from enumerate(list(container.__iter__(value)))


def _sampled(value: Any, container: Any, length: int) -> Iterator[tuple[Any, Any]]:
    """Yield some of a long container's items: the first, the last and some between."""
    step = max(1, length // SAMPLE)
    chosen = sorted({*range(0, length, step), *range(max(0, length - 8), length)})
    if container is dict:
        items = list(dict.items(value))
        yield from (items[i] for i in chosen)
    else:
        yield from ((i, container.__getitem__(value, i)) for i in chosen)


def _size_of(value: Any) -> int:
    """Return about how many values a nested container has, from a few of its elements."""
    size = type(value).__len__(value)
    if size == 0 or size > WHOLE:
        return int(size)
    if type(value) is dict:
        some = [item for _, item in zip(range(16), dict.values(value), strict=False)]
    else:
        some = [value[i * (size - 1) // 15] for i in range(16)]
    inner = [1 + _size_of(item) for item in some if type(item) in (list, tuple, dict)]
    return int(size + size * sum(inner) / len(some))


def _plain(value: Any) -> tuple[str, int]:
    """Return a plain value's digest, and a witness of what it leaves out."""
    if type(value) is str:
        if len(value) <= 64:
            return value, 0
        if len(value) > LONG:
            ends = f"{len(value)} {value[:4096]}{value[-4096:]}"
            return _digest(ends.encode("utf-8", "surrogatepass")), hash(value)
        return _digest(value.encode("utf-8", "surrogatepass")), 0
    if type(value) is bytes:
        return _digest(value), 0
    return _digest(repr(value).encode()), 0


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=8).hexdigest()


def _constant(value: Any) -> str:
    """Return what is known of a value without looking into it; empty if nothing is."""
    kind = type(value)
    if kind in (range, slice):
        return repr(value) if kind is range else ""
    if kind is types.FunctionType or issubclass(kind, type):
        return type_name(value) if kind is not types.FunctionType else str(value.__qualname__)
    if is_of(value, *CONSTANT) or (is_of(value, "torch") and not attributes_of(value)):
        with suppress(Exception):
            return str(value)
    return ""


def _is_python_class(kind: type) -> bool:
    """Say whether all that instances of a class hold can be seen: it was defined in Python."""
    return all(
        base is object
        or "__dict__" in class_dict(base)
        or "__slots__" in class_dict(base)
        or base.__flags__ & (1 << 9)
        for base in mro_of(kind)
    )


def _is_state(name: str, value: Any) -> bool:
    """Say whether a class attribute may be state, not part of how Python makes classes."""
    if name.startswith("__") and name.endswith("__"):
        return False
    if type(value) in (types.FunctionType, staticmethod, classmethod, type):
        return False
    return type(value) not in CONSTANT_TYPES
