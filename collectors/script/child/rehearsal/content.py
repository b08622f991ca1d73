"""Digests of plain values, and of containers with all plain values and containers in them."""

from __future__ import annotations

import hashlib
import marshal
import operator
from array import array
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import chain, islice
from typing import Any

from gpuadvisor.collectors.script.child.rehearsal.inspection import type_name

ELEMENTS = 4096
"""Elements of a container, nested ones counted, that are looked at one by one."""
SAMPLE = 256
"""Elements of a longer one that are; the others are known by which objects they are."""
OBJECTS = 256
"""Objects in one container whose own attributes are looked at."""
WHOLE = 700_000
"""Elements, nested ones counted, of a container of plain values up to which all of it is digested:
60 ms of work."""
WHOLE_BYTES = 1 << 25
"""Bytes of the texts in it up to which it is: 50 ms of work."""
MOST = 10_000
"""Values in one container that are looked at in any case: 40 ms of work."""
DEPTH = 16
"""Levels of containers in containers."""
LONG = 1 << 20
"""Characters of a text above which only its ends are looked at."""

PLAIN = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis), type(NotImplemented))
CONTAINERS = (list, tuple, dict, set, frozenset, deque, bytearray)
_NESTED = (list, tuple, dict)
_NESTED_IDS, _TEXT_IDS = set(map(id, _NESTED)), {id(str), id(bytes)}
_PLAIN_IDS = _NESTED_IDS | set(map(id, PLAIN[:7]))
Elements = tuple[Any, ...]


def digest_of(content: bytes) -> str:
    """Return a digest of bytes, as text."""
    return hashlib.blake2b(content, digest_size=8).hexdigest()


def plain_digest(value: Any) -> str:
    """Return the digest of a value of one of the types in `PLAIN`."""
    kind = type(value)
    if kind is str:
        if len(value) > LONG:  # its hash is of all of it, but another in every process
            value = f"{len(value)} {value[:4096]}{value[-4096:]}"
        return digest_of(value.encode("utf-8", "surrogatepass"))
    if kind is bytes:
        return digest_of(value if len(value) <= LONG else value[:4096] + value[-4096:])
    if kind is int and value.bit_length() > 4096:  # decimal texts of those are slow or refused
        return digest_of(value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True))
    return digest_of(repr(value).encode())


def same_elements(mine: Elements, others: Elements) -> bool:
    """Say whether two containers have the same objects in them, or plain ones that are equal."""
    if len(mine) != len(others):
        return False
    if all(map(operator.is_, mine, others)):
        return True
    return all(
        a is b or (type(a) is type(b) and type(a) in PLAIN and (a == b or a != a))
        for a, b in zip(mine, others, strict=True)
    )


class Content:
    """The digest of one container. An object in it counts by its type, and is handed on."""

    def __init__(self, path: str, inside: Callable[[str, Any], None]) -> None:
        self.elements: Elements = ()
        """Elements of which not all was looked at."""
        self.is_cut = False
        """Whether something in it could change without being seen."""
        self.nested: list[Any] = []
        """Containers in it that were looked at one by one."""
        self._path = path
        self._inside = inside
        self._total = hashlib.blake2b(digest_size=8)
        self._left = ELEMENTS
        self._objects = 0
        self._work = 0
        self._whole = WHOLE
        self._whole_bytes = WHOLE_BYTES
        self._open: set[int] = set()
        self._keys: list[str] = []

    def digest(self, value: Any) -> str:
        self._add(value)
        return self._total.hexdigest()

    def _add(self, value: Any) -> None:
        kind = type(value)
        self._work += 1
        if self._work > MOST:
            self.is_cut = True
        elif kind in PLAIN:
            self._total.update(f"{kind.__name__}:{plain_digest(value)};".encode())
        elif not issubclass(kind, CONTAINERS):
            self._object(value)
        elif id(value) in self._open:
            self._total.update(b"again;")
        elif len(self._open) >= DEPTH:
            self.is_cut = True
        else:
            self._open.add(id(value))
            self.nested.append(value)
            self._members(value, kind, next(c for c in CONTAINERS if issubclass(kind, c)))
            self._open.discard(id(value))

    def _members(self, value: Any, kind: type, container: Any) -> None:
        length = container.__len__(value)
        self._total.update(f"{type_name(kind)} {length}(".encode())
        if not (kind in (list, tuple, dict) and self._as_a_whole(value)):
            if container is bytearray:
                self._total.update(hashlib.blake2b(value).digest())
            elif container in (set, frozenset):
                self._set(value, container, length)
            else:
                self._sequence(value, container, length)
        self._total.update(b")")

    def _as_a_whole(self, value: Any) -> bool:
        """Digest a container of plain values alone at C speed, if it is one."""
        if not self._is_plain(value):
            return False
        with suppress(ValueError):  # there is something else in it
            # Version 2, as later ones note how often an object is used.
            self._total.update(hashlib.blake2b(marshal.dumps(value, 2)).digest())
            return True
        return False

    def _is_plain(self, value: Any) -> bool:
        """Say whether there are only plain values, not too many, in nested lists, tuples and dicts.

        Level by level, so that what contains itself ends; `marshal` would go on for ever.
        """
        level = [value]
        for _ in range(DEPTH):
            self._whole -= sum(map(len, level))
            if self._whole < 0:
                return False
            items = list(chain.from_iterable(c.values() if type(c) is dict else c for c in level))
            kinds = set(map(id, map(type, items)))  # a type's own `__hash__` may be anyone's
            if not kinds <= _PLAIN_IDS:
                return False
            if kinds & _TEXT_IDS:
                self._whole_bytes -= sum(
                    len(item) for item in items if type(item) is str or type(item) is bytes
                )
                if self._whole_bytes < 0:
                    return False
            if not kinds & _NESTED_IDS:
                return True
            level = [item for item in items if type(item) in _NESTED]
        return False

    def _sequence(self, value: Any, container: Any, length: int) -> None:
        if length <= self._left:
            self._left -= length
            chosen = list(_items(value, container))
        elif self._numbers(value, container):
            return
        else:
            chosen = list(_sampled(value, container, length))
            self._rest(value, container, chosen)
        for key, item in chosen:
            if container is dict:
                self._add(key)
            shown = repr(key) if type(key) in (int, str) else type(key).__name__
            self._keys.append(f"[{shown}]")
            self._add(item)
            self._keys.pop()

    def _numbers(self, value: Any, container: Any) -> bool:
        """Digest all of a long list of whole numbers or of fractions, if it is one."""
        if container not in (list, tuple) or type(container.__getitem__(value, 0)) not in (
            int,
            float,
        ):
            return False
        items = list(container.__iter__(value))
        kinds = set(map(id, map(type, items)))
        with suppress(OverflowError):
            if kinds in ({id(int)}, {id(float)}):
                code = "q" if kinds == {id(int)} else "d"
                self._total.update(hashlib.blake2b(array(code, items).tobytes()).digest())
                return True
        return False

    def _rest(self, value: Any, container: Any, chosen: list[tuple[Any, Any]]) -> None:
        """Note the elements that are not looked at; it is cut where these could change inside."""
        elements = tuple(container.__iter__(value))
        if container is dict:
            elements += tuple(dict.values(value))
        self.elements += elements
        self.is_cut |= not all(_is_constant(item) for _, item in chosen)

    def _set(self, value: Any, container: Any, length: int) -> None:
        if length > self._left:
            self.elements += tuple(container.__iter__(value))
            return
        self._left -= length
        digests = []
        for item in list(container.__iter__(value)):
            outer, self._total = self._total, hashlib.blake2b(digest_size=8)
            self._add(item)
            digests.append(self._total.digest())
            self._total = outer
        self._total.update(b"".join(sorted(digests)))

    def _object(self, value: Any) -> None:
        self._total.update(f"{type_name(type(value))};".encode())
        self._objects += 1
        if self._objects <= OBJECTS:
            self._inside(self._path + "".join(self._keys), value)
        else:
            self.elements += (value,)
            self.is_cut = True


def _is_constant(value: Any, depth: int = 0) -> bool:
    if type(value) in (tuple, frozenset) and depth < DEPTH:
        return all(_is_constant(item, depth + 1) for item in islice(value, SAMPLE))
    return type(value) in PLAIN


def _items(value: Any, container: Any) -> Iterator[tuple[Any, Any]]:
    if container is dict:
        yield from list(dict.items(value))
    else:
        yield from enumerate(list(container.__iter__(value)))


def _sampled(value: Any, container: Any, length: int) -> Iterator[tuple[Any, Any]]:
    """Yield some of a long container's items: the first, the last and some between."""
    step = max(1, length // SAMPLE)
    if container in (list, tuple):
        places = {*range(0, length, step), *range(max(0, length - 8), length)}
        yield from ((i, container.__getitem__(value, i)) for i in sorted(places))
    else:
        items = dict.items(value) if container is dict else enumerate(container.__iter__(value))
        yield from islice(items, 0, None, step)
