"""Change the tensors inside whatever a module takes or returns."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

Change = Callable[[Any], Any]


def map_tensors(value: Any, change: Change) -> Any:
    """Return `value` with every tensor in it replaced by `change(tensor)`.

    Looks into tuples, named tuples, lists, dicts and dataclasses, nested as they are, and keeps
    their types (a Hugging Face `ModelOutput` is both a dict and a dataclass). What holds nothing
    that changed is returned as it is, the same object; nothing is changed in place, because a
    module may keep what it returned.
    """
    import torch

    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, (tuple, list)):
        return _map_sequence(value, change)
    if isinstance(value, dict):
        return _map_dict(value, change)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _map_dataclass(value, change)
    return value


def _map_sequence(value: Any, change: Change) -> Any:
    items = [map_tensors(item, change) for item in value]
    if all(new is old for new, old in zip(items, value, strict=True)):
        return value
    if hasattr(value, "_make"):  # a named tuple takes its fields one by one
        return value._make(items)
    return type(value)(items)


def _map_dict(value: Any, change: Change) -> Any:
    changed = {}
    for key, old in value.items():
        new = map_tensors(old, change)
        if new is not old:
            changed[key] = new
    if not changed:
        return value
    result = copy.copy(value)
    for key, new in changed.items():
        result[key] = new
    return result


def _map_dataclass(value: Any, change: Change) -> Any:
    changed = {}
    for field in dataclasses.fields(value):
        old = getattr(value, field.name, None)
        new = map_tensors(old, change)
        if new is not old:
            changed[field.name] = new
    if not changed:
        return value
    result = copy.copy(value)
    for name, new in changed.items():
        object.__setattr__(result, name, new)  # frozen ones too
    return result
