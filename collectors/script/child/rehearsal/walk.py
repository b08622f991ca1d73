"""Goes through objects breadth first and digests each part, within bounds."""

from __future__ import annotations

import types
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any

from gpuadvisor.collectors.script.child.rehearsal import (
    code_references,
    handles,
    possible_changes,
)
from gpuadvisor.collectors.script.child.rehearsal.arrays import (
    array_digest,
    buffer_digest,
    is_array,
    is_buffer,
    is_on_host,
    is_shared,
)
from gpuadvisor.collectors.script.child.rehearsal.content import (
    CONTAINERS,
    PLAIN,
    Content,
    Elements,
    digest_of,
    plain_digest,
    same_elements,
)
from gpuadvisor.collectors.script.child.rehearsal.generators import (
    GeneratorState,
    generator_state,
    is_generator,
)
from gpuadvisor.collectors.script.child.rehearsal.inspection import (
    attributes_of,
    class_dict,
    defines,
    is_a,
    is_of,
    module_of,
    mro_of,
    type_name,
)
from gpuadvisor.domain.rehearsal import StateKind

PARTS = 6000
"""Parts of one state that are looked at: some 100 ms of work."""
NAMED = 32
"""Paths beyond that are named as not looked at."""
ALIKE = 8
"""Objects of one class whose code is read, as the settings of each decide what it does."""
OTHERS_CODE = ("sampler", "batch_sampler", "worker_init_fn", "global ")
"""Where paths begin of functions that no samples are read with, or that what calls them shows."""
LEFT_ALONE = (
    "asyncio", "concurrent", "logging", "multiprocessing", "threading", "tqdm", "weakref",
    "_abc", "_thread", "_weakref", "torch.multiprocessing", "torch.utils.tensorboard",
)  # fmt: skip
"""Packages whose objects hold nothing that reading samples depends on, or truly share it between
processes."""
MANAGED = ("ArrayProxy", "DictProxy", "ListProxy", "NamespaceProxy", "ValueProxy")
"""What stands for the parts of a `multiprocessing.Manager` that hold no code of the script's."""
CONSTANT: dict[str, Callable[[Any], str]] = {
    "datetime": repr, "decimal": repr, "_decimal": repr, "fractions": repr, "ipaddress": repr,
    "pathlib": str, "pathlib._local": str, "uuid": str, "zoneinfo": str, "_zoneinfo": str,
    "re": lambda pattern: repr((pattern.pattern, pattern.flags)),
    "numpy.dtypes": str, "numpy.ufunc": str,
}  # fmt: skip
"""Modules whose objects never change, and what tells them apart."""
UNCHANGING = ("pyarrow", "tokenizers", "sentencepiece", "tiktoken", "_tiktoken", "regex", "_struct")
"""Packages whose objects are made once, by extension modules that Python cannot look into."""
CONSTANT_TYPES = (
    types.ModuleType, types.BuiltinFunctionType, types.MethodDescriptorType, types.CodeType,
    types.WrapperDescriptorType, types.MethodWrapperType, types.GetSetDescriptorType,
    types.MemberDescriptorType, types.ClassMethodDescriptorType, types.MappingProxyType,
    range, slice, property, object, types.GenericAlias, types.UnionType,
)  # fmt: skip
TORCH_CONSTANTS = ("torch.dtype", "torch.device", "torch.layout", "torch.memory_format")
_PLAIN_BASES: tuple[Any, ...] = (str, bytes, int, float, complex)

Look = Callable[[str, Any], None]


@dataclass(frozen=True)
class Part:
    """One part of a state."""

    kind: StateKind
    digest: str
    """Digest of the part's content, which is the same in every process."""
    type_name: str
    elements: Elements = ()
    """What the digest left out, such as the middle of a long list: the objects themselves, or an
    address. It means something in this process only."""

    def differs(self, other: Part, same_process: bool) -> bool:
        """Say whether this part is another one, or has changed."""
        if (self.kind, self.digest, self.type_name) != (other.kind, other.digest, other.type_name):
            return True
        return same_process and not same_elements(self.elements, other.elements)


class Walk:
    """One walk through a loader's objects."""

    def __init__(self) -> None:
        self.parts: dict[str, Part] = {}
        self.generators: dict[str, GeneratorState] = {}
        self.shared: dict[str, str] = {}
        """Attribute path to the digest of memory that processes share, which is no state."""
        self.unseen: list[str] = []
        self.is_cut = False
        """Whether there were more parts than are looked at."""
        self.possible: dict[str, str] = {}
        """Attribute paths that code may change which samples are read with, to where it does."""
        self._alike: dict[int, int] = {}
        """Objects of a class that were looked at, by its address."""
        self.array_bytes = 0
        """Bytes of arrays that were read whole."""
        self.mappings: list[tuple[int, int]] | None = None
        """Memory that processes share, once it was asked for."""
        self._queue: deque[tuple[str, Any]] = deque()
        self._seen: dict[int, Any] = {}
        """What was looked at, kept alive so that no address is used twice."""
        self._looks: dict[int, tuple[type, Look]] = {}
        """How to look at a value of a type; by address, as a type's `__hash__` may be anyone's."""

    def run(self, roots: Mapping[str, Any]) -> None:
        """Look at some objects and all that can be reached from them and was not seen yet."""
        self._queue.extend(roots.items())
        while self._queue:
            path, value = self._queue.popleft()
            if len(self.parts) >= PARTS:
                self.is_cut = True
                self.unseen += [path, *(path for path, _ in islice(self._queue, NAMED - 1))]
                return
            try:
                self._look(path, value)
            except Exception:
                self.unseen.append(path)

    def _look(self, path: str, value: Any) -> None:
        kind = type(value)
        if kind in PLAIN:
            self._note(path, StateKind.VALUE, value, plain_digest(value))
        elif id(value) not in self._seen:
            self._seen[id(value)] = value
            known = self._looks.get(id(kind))
            if known is None:
                known = self._looks[id(kind)] = (kind, self._look_for(kind, value))
            known[1](path, value)

    def _look_for(self, kind: type, value: Any) -> Look:
        """Return how values of a type are looked at; the value is one of that type."""
        if issubclass(kind, type):
            return self._class
        if kind is types.FunctionType:
            return self._function
        if is_generator(value):
            return self._generator
        if is_of(value, *LEFT_ALONE) and not handles.may_be_handle(kind, value):
            return self._left_alone
        if is_array(value):
            return self._array
        if issubclass(kind, CONTAINERS):
            return self._container
        if is_buffer(value):
            return self._buffer
        if handles.may_be_handle(kind, value):
            return self._handle
        if kind in CONSTANT_TYPES or module_of(kind) in CONSTANT or is_constant(value):
            return self._constant
        return self._look_for_object(kind, value)

    def _look_for_object(self, kind: type, value: Any) -> Look:
        if kind is types.MethodType:
            return self._method
        if is_a(value, "functools.partial"):
            return self._partial
        if is_a(value, "functools._lru_cache_wrapper"):
            return self._cached
        if kind in (staticmethod, classmethod):
            return lambda path, value: self._queue.append((path, value.__func__))
        if kind is types.CellType:
            return self._cell
        if issubclass(kind, _PLAIN_BASES):  # an enumeration's member, for one
            return self._plain_subclass
        if handles.is_iterator(value):
            return self._iterator
        return self._object

    def _nothing(self, path: str, value: Any) -> None:
        pass

    def _left_alone(self, path: str, value: Any) -> None:
        is_managed = any(is_a(value, f"multiprocessing.managers.{name}") for name in MANAGED)
        if is_managed and (not defines(type(value), "__len__") or len(value) <= PARTS):
            self.shared[path] = digest_of(str(value).encode())  # its manager says what is in it
        elif is_managed:
            self.unseen.append(path)
        number = attributes_of(value).get("_obj")  # of multiprocessing's Value and Array
        if is_of(value, "multiprocessing") and is_buffer(number):
            self._buffer(path, number)

    def _generator(self, path: str, value: Any) -> None:
        state = generator_state(value)
        self.generators[path] = state
        self._note(path, StateKind.GENERATOR, value, state.digest)
        self._attributes(path, value)

    def _handle(self, path: str, value: Any) -> None:
        if handles.is_standard_stream(value):
            return
        if handles.is_handle(value):
            self._note(path, StateKind.HANDLE, value, handles.handle_state(value))
        elif handles.is_iterator(value):
            self._iterator(path, value)
            return
        else:
            self._note(path, StateKind.VALUE, value, handles.handle_state(value))
        if is_a(value, "PIL.Image.Image"):
            return
        if is_a(value, "_io._IOBase") and module_of(type(value)) != "_io":
            self._attributes(path, value)

    def _iterator(self, path: str, value: Any) -> None:
        self._note(path, StateKind.ITERATOR, value, handles.iterator_state(value))
        self._inside(path, value)

    def _method(self, path: str, value: Any) -> None:
        self._queue.append((path, value.__func__))
        self._queue.append((f"{path}.__self__", value.__self__))

    def _partial(self, path: str, value: Any) -> None:
        members = class_dict(next(c for c in mro_of(type(value)) if module_of(c) == "functools"))
        for name in ("func", "args", "keywords"):
            self._queue.append((f"{path}.{name}", members[name].__get__(value)))
        self._attributes(path, value)

    def _cached(self, path: str, value: Any) -> None:
        cache_info: Any = class_dict(type(value))["cache_info"]
        self._note(path, StateKind.CONTAINER, value, digest_of(repr(cache_info(value)).encode()))
        self._attributes(path, value)

    def _cell(self, path: str, value: Any) -> None:
        with suppress(ValueError):  # it is empty
            self._queue.append((path, value.cell_contents))

    def _plain_subclass(self, path: str, value: Any) -> None:
        base = next(base for base in _PLAIN_BASES if issubclass(type(value), base))
        plain = base.__getnewargs__(value) if base is not complex else complex.__repr__(value)
        self._note(path, StateKind.VALUE, value, digest_of(repr(plain).encode()))
        self._attributes(path, value)

    def _constant(self, path: str, value: Any) -> None:
        show = CONSTANT.get(module_of(type(value)))
        text = show(value) if show is not None else constant_text(value)
        self._note(path, StateKind.VALUE, value, digest_of(text.encode("utf-8", "replace")))

    def _object(self, path: str, value: Any) -> None:
        """Look at an object's attributes, those of its class and what its methods refer to."""
        self._note(path, StateKind.VALUE, value, "")
        if not self._inside(path, value) and hides_content(type(value)):
            self.unseen.append(path)

    def _inside(self, path: str, value: Any) -> dict[str, Any]:
        kind = type(value)
        own = self._attributes(path, value)
        for base in mro_of(kind):
            if id(base) not in self._seen and code_references.is_own(base):
                self._seen[id(base)] = base
                self._class_attributes(path, base)
        for name, method in code_references.methods_of(kind):
            if id(method) not in self._seen:
                self._seen[id(method)] = method
                self._function_state(f"{path}.{name}", method)
                self._queue.extend(code_references.references(method, kind).items())
        self._alike[id(kind)] = count = self._alike.get(id(kind), 0) + 1
        if count <= ALIKE and not path.startswith(OTHERS_CODE[:3]):
            self.possible.update(possible_changes.of_object(path, kind, own))
        return own

    def _attributes(self, path: str, value: Any) -> dict[str, Any]:
        own = attributes_of(value)
        self._queue.extend((f"{path}.{name}", item) for name, item in own.items())
        return own

    def _class(self, path: str, value: type) -> None:
        self._note(path, StateKind.VALUE, value, digest_of(type_name(value).encode()))
        if code_references.is_own(value):
            self._class_attributes(path, value)

    def _class_attributes(self, path: str, value: type) -> None:
        items = class_dict(value).items()
        self._queue.extend((f"{path}.{n}", item) for n, item in items if _is_state(n, item))

    def _function(self, path: str, value: types.FunctionType) -> None:
        self._note(path, StateKind.VALUE, value, digest_of(str(value.__qualname__).encode()))
        self._function_state(path, value)
        if code_references.is_own(value):
            self._queue.extend(code_references.references(value).items())
            if not path.startswith(OTHERS_CODE):
                self.possible.update(possible_changes.of_function(path, value))

    def _function_state(self, path: str, value: types.FunctionType) -> None:
        """Look at what a function closes over, its defaults and its attributes."""
        names = value.__code__.co_freevars
        for name, cell in zip(names, value.__closure__ or (), strict=False):
            if name != "__class__":
                self._queue.append((f"{path}.{name}", cell))
        for name in ("__defaults__", "__kwdefaults__"):
            if defaults := getattr(value, name):
                self._queue.append((f"{path}.{name}", defaults))
        self._queue.extend((f"{path}.{n}", item) for n, item in value.__dict__.items())

    def _array(self, path: str, value: Any) -> None:
        if is_shared(value, self):
            if is_on_host(value):
                self.shared[path] = array_digest(value, self)[0]
            return
        if is_a(value, "numpy.ndarray") and value.dtype.hasobject:
            self._container(path, value, value.ravel().tolist())
            return
        digest, address, is_whole = array_digest(value, self)
        self._note(path, StateKind.VALUE, value, digest, () if is_whole else (address,))
        if not is_whole:
            self.unseen.append(path)

    def _buffer(self, path: str, value: Any) -> None:
        if is_shared(value, self):
            self.shared[path] = buffer_digest(value)
        else:
            self._note(path, StateKind.VALUE, value, buffer_digest(value))

    def _container(self, path: str, value: Any, items: Any = None) -> None:
        content = Content(path, lambda place, inner: self._queue.append((place, inner)))
        digest = content.digest(value if items is None else items)
        self._note(path, StateKind.CONTAINER, value, digest, content.elements)
        self._seen.update((id(inner), inner) for inner in content.nested)
        if content.is_cut:
            self.unseen.append(path)
        if type(value) not in CONTAINERS:
            self._attributes(path, value)

    def _note(
        self, path: str, kind: StateKind, value: Any, digest: str, elements: Elements = ()
    ) -> None:
        self.parts.setdefault(path, Part(kind, digest, type_name(type(value)), elements))


def is_constant(value: Any) -> bool:
    """Say whether a value of an extension module never changes once it was made."""
    if is_of(value, *UNCHANGING) and not attributes_of(value):
        return True
    return any(is_a(value, name) for name in (*TORCH_CONSTANTS, "numpy.dtype", "numpy.ufunc"))


def constant_text(value: Any) -> str:
    """Return what tells one value that never changes from another, as far as that is known."""
    if type(value) is range or any(is_a(value, n) for n in (*TORCH_CONSTANTS, "numpy.dtype")):
        return repr(value)
    if type(value) is types.BuiltinFunctionType:
        return str(value.__qualname__)
    return type_name(type(value))


def hides_content(kind: type) -> bool:
    """Say whether instances hold what Python cannot see: of an extension module, not of slots."""
    for base in mro_of(kind):
        if base is object:
            continue
        parent_size = base.__base__.__basicsize__ if base.__base__ is not None else 0
        names = class_dict(base)
        if base.__basicsize__ > parent_size and not names.keys() & {
            "__dict__",
            "__weakref__",
            "__slots__",
        }:
            return True
    return False


def _is_state(name: str, value: Any) -> bool:
    """Say whether a class attribute may be state, not part of how Python makes classes."""
    if name.startswith("__") and name.endswith("__"):
        return False
    if type(value) in (types.FunctionType, staticmethod, classmethod, type):
        return False
    return type(value) not in CONSTANT_TYPES
