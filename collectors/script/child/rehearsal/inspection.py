"""Looks into other people's objects without running any of their code.

No attribute is asked for where a property, `__getattr__` or `__class__` of the script's could
answer: types, instance dictionaries and slots are read as the interpreter keeps them.
"""

from __future__ import annotations

import ctypes
import sys
import types
from contextlib import suppress
from typing import Any

_MRO = type.__dict__["__mro__"]
_CLASS_DICT = type.__dict__["__dict__"]
_NAME = type.__dict__["__qualname__"]
_MODULE = type.__dict__["__module__"]
_MODULE_DICT: Any = vars(types.ModuleType)["__dict__"]


def mro_of(cls: type) -> tuple[type, ...]:
    """Return a class and its bases in the order in which attributes are looked for."""
    return _MRO.__get__(cls) or ()


def class_dict(cls: type) -> dict[str, Any]:
    """Return what a class itself defines (a copy)."""
    return dict(_CLASS_DICT.__get__(cls))


def module_of(cls: type) -> str:
    """Return the name of the module that defined a class, empty if it does not say."""
    with suppress(Exception):
        name = _MODULE.__get__(cls)
        if type(name) is str:
            return name
    return ""


def type_name(cls: type) -> str:
    """Return a class's name as its users know it: `numpy.random.Generator`, `list`, `Digits`."""
    known = _known_names.get(id(cls))
    if known is None:
        known = _known_names[id(cls)] = (cls, _type_name(cls))
    return known[1]


_known_names: dict[int, tuple[type, str]] = {}
"""Address of a class to the class and its name for users. Classes are found by address, as a
metaclass may define `__hash__`; each is kept, so that no other gets its address."""


def _type_name(cls: type) -> str:
    module, name = module_of(cls), str(_NAME.__get__(cls))
    if module in ("builtins", "__main__", "__mp_main__", ""):
        return name
    parts = module.split(".")
    for end in range(1, len(parts)):
        prefix = ".".join(parts[:end])
        if module_dict(sys.modules.get(prefix)).get(name) is cls:
            return f"{prefix}.{name}"
    public = [part for part in parts if not part.startswith("_")] or [parts[0].lstrip("_")]
    return ".".join((*public, name))


def module_dict(module: Any) -> dict[str, Any]:
    """Return a module's names; none for what only stands in for a module."""
    if module is None or not issubclass(type(module), types.ModuleType):
        return {}
    found: dict[str, Any] = _MODULE_DICT.__get__(module)
    return found


def is_a(value: Any, name: str) -> bool:
    """Say whether a value's class or one of its bases is the one of that name.

    Nothing is imported for it: a class of a module that nobody loaded has no instances. The name
    is where users find it (`torch.Tensor`).
    """
    module, _, attribute = name.rpartition(".")
    wanted = module_dict(sys.modules.get(module)).get(attribute)
    return wanted is not None and any(base is wanted for base in mro_of(type(value)))


def is_of(value: Any, *packages: str) -> bool:
    """Say whether a value's class or one of its bases was defined in one of these packages."""
    return any(
        module == package or module.startswith(package + ".")
        for module in map(module_of, mro_of(type(value)))
        for package in packages
    )


def defines(cls: type, name: str) -> bool:
    """Say whether a class or one of its bases has an attribute of this name."""
    return any(name in _CLASS_DICT.__get__(base) for base in mro_of(cls))


def attributes_of(value: Any) -> dict[str, Any]:
    """Return an object's own attributes, of its dictionary and its slots; not its class's."""
    found: dict[str, Any] = {}
    for name, member in _members(type(value)):
        if type(member) is types.GetSetDescriptorType:
            with suppress(Exception):
                own = member.__get__(value)
                found.update((key, own[key]) for key in list(own) if type(key) is str)
        else:
            with suppress(Exception):  # a slot that was never set
                found[name] = member.__get__(value)
    return found


_known_members: dict[int, tuple[type, list[tuple[str, Any]]]] = {}


def _members(cls: type) -> list[tuple[str, Any]]:
    """Return what gives access to the dictionary and the slots of a class's instances."""
    known = _known_members.get(id(cls))
    if known is None:
        found = [
            (name, member)
            for base in reversed(mro_of(cls))
            for name, member in class_dict(base).items()
            if (name == "__dict__" and type(member) is types.GetSetDescriptorType)
            or (type(member) is types.MemberDescriptorType and name in _slots(base))
        ]
        known = _known_members[id(cls)] = (cls, found)
    return known[1]


def _slots(cls: type) -> tuple[str, ...]:
    """Return the names in `__slots__`, as they are kept in the class."""
    slots = _CLASS_DICT.__get__(cls).get("__slots__", ())
    if type(slots) is str:
        slots = (slots,)
    if type(slots) not in (tuple, list, dict):
        return ()
    prefix = "_" + str(_NAME.__get__(cls)).rpartition(".")[2].lstrip("_")
    names = [name for name in slots if type(name) is str]
    return tuple(prefix + n if n.startswith("__") and not n.endswith("__") else n for n in names)


def bytes_of(array: Any) -> tuple[memoryview, Any]:
    """Return the content of a dense array in the CPU's memory, and what keeps that memory alive.

    What lies in memory in another order, as `channels_last`, is copied; all else is not.
    """
    if is_a(array, "torch.Tensor"):
        kept = array.detach()
        if kept.is_quantized:
            kept = kept.int_repr()
        if kept.is_mkldnn:
            kept = kept.to_dense()
        if kept.device.type == "meta" or not kept.numel():
            return memoryview(b""), kept
        kept = kept.resolve_conj().resolve_neg().contiguous()
        size = kept.numel() * kept.element_size()
        content = (ctypes.c_ubyte * size).from_address(kept.data_ptr())
        return memoryview(content).cast("B"), kept
    numpy: Any = sys.modules["numpy"]
    kept = numpy.ascontiguousarray(array).reshape(-1)
    if not kept.nbytes:
        return memoryview(b""), kept
    return memoryview(kept.view(numpy.uint8)).cast("B"), kept
