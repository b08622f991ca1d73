"""Names of a module that functions refer to: state that a data set has outside of itself."""

from __future__ import annotations

import dis
import sys
import types
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from gpuadvisor.collectors.script.child.imports import is_library
from gpuadvisor.collectors.script.child.rehearsal.inspection import (
    attributes_of,
    class_dict,
    module_dict,
    module_of,
    mro_of,
)

ENTRY_METHODS = (
    "__getitem__", "__getitems__", "__len__", "__iter__", "__next__", "__call__", "forward",
)  # fmt: skip
"""Methods through which samples are read and transformed."""
LEVELS = 3
"""Calls from one function of the script's to the next that are followed."""
_GLOBAL = ("LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL")


@lru_cache(maxsize=4096)
def _names(code: types.CodeType) -> tuple[frozenset[str], frozenset[str]]:
    """Return the global names that code uses, and those of attributes; of inner functions too."""
    found, attributes = set(), set(code.co_names)
    for instruction in dis.get_instructions(code):
        if instruction.opname in _GLOBAL:
            found.add(str(instruction.argval))
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            inner, inner_attributes = _names(constant)
            found |= inner
            attributes |= inner_attributes
    return frozenset(found), frozenset(attributes)


def is_own(value: Any) -> bool:
    """Say whether a function or class is the script's own, not a package's."""
    if type(value) is types.FunctionType:
        return not is_library(value.__code__.co_filename)
    if issubclass(type(value), type):
        module = module_of(value)
        if module in ("builtins", ""):
            return False
        names = module_dict(sys.modules.get(module))
        file = names.get("__file__")
        return not is_library(file) if type(file) is str else module in ("__main__", "__mp_main__")
    return False


def methods_of(cls: type) -> Iterator[tuple[str, types.FunctionType]]:
    """Yield the script's own methods of a class through which samples are read.

    Those that these call are among them.
    """
    waiting = [(name, LEVELS) for name in ENTRY_METHODS]
    seen = set(ENTRY_METHODS)
    for name, levels in waiting:
        method = method_named(cls, name)
        if method is None or not is_own(method):
            continue
        yield name, method
        if levels:
            called = sorted(_names(method.__code__)[1] - seen)
            seen.update(called)
            waiting.extend((name, levels - 1) for name in called)


def method_named(cls: type, name: str) -> types.FunctionType | None:
    """Return the Python function that a class, or a base of it, has by a name; None if none."""
    for base in mro_of(cls):
        found: Any = class_dict(base).get(name)
        if type(found) in (staticmethod, classmethod):
            found = found.__func__
        elif type(found) is property:
            found = found.fget
        if found is not None:
            return found if type(found) is types.FunctionType else None
    return None


def references(function: types.FunctionType, cls: type | None = None) -> dict[str, Any]:
    """Return what a function, and those it calls, use of their modules: `global NAME` to a value.

    Of a module or a class of the script's there are the attributes that the code names. `cls` is
    the class of a method, whose other methods it may call.
    """
    found: dict[str, Any] = {}
    _collect(function, cls, LEVELS, found, set())
    return found


def _collect(
    function: types.FunctionType,
    cls: type | None,
    levels: int,
    found: dict[str, Any],
    seen: set[int],
) -> None:
    if levels == 0 or id(function.__code__) in seen:
        return
    seen.add(id(function.__code__))
    names, attributes = _names(function.__code__)
    namespace = function.__globals__
    for name in sorted(names):
        if name in namespace:
            _note(f"global {name}", namespace[name], attributes, levels, found, seen)
    for name in sorted(attributes) if cls is not None else ():
        method = method_named(cls, name)  # type: ignore[arg-type]
        if method is not None and is_own(method):
            _collect(method, cls, levels - 1, found, seen)


def _note(
    path: str,
    value: Any,
    attributes: frozenset[str],
    levels: int,
    found: dict[str, Any],
    seen: set[int],
) -> None:
    kind = type(value)
    if kind is types.FunctionType:
        if is_own(value):
            found[path] = value
            _collect(value, None, levels - 1, found, seen)
    elif issubclass(kind, types.ModuleType):
        names = module_dict(value)
        if type(names.get("__file__")) is str and not is_library(names["__file__"]):
            for name in sorted(attributes & names.keys()):
                _note(f"{path}.{name}", names[name], attributes, levels - 1, found, seen)
    elif issubclass(kind, type):
        if is_own(value):
            for name, item in class_dict(value).items():
                if name in attributes and type(item) is not types.FunctionType:
                    found.setdefault(f"{path}.{name}", item)
    else:
        _note_object(path, value, attributes, found)


def _note_object(path: str, value: Any, attributes: frozenset[str], found: dict[str, Any]) -> None:
    """Note an object, or those attributes alone that are used of settings such as `args`."""
    own = attributes_of(value)
    used = sorted(attributes & own.keys())
    if used and not any(method_named(type(value), name) for name in attributes):
        for name in used:
            found.setdefault(f"{path}.{name}", own[name])
    else:
        found.setdefault(path, value)
