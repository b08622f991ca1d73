"""Change the tensors inside whatever a module takes or returns."""

from __future__ import annotations

import copy
import dataclasses
import operator
from collections.abc import Callable, Iterable
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
        return _map_members(value, value.items(), change, operator.setitem)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        members = [(name, getattr(value, name, None)) for name in names]
        return _map_members(value, members, change, object.__setattr__)  # of a frozen one too
    return value


def _map_sequence(value: Any, change: Change) -> Any:
    items = [map_tensors(item, change) for item in value]
    if all(new is old for new, old in zip(items, value, strict=True)):
        return value
    if hasattr(value, "_make"):  # a named tuple takes its fields one by one
        return value._make(items)
    return type(value)(items)


def _map_members(
    value: Any,
    members: Iterable[tuple[str, Any]],
    change: Change,
    put: Callable[[Any, str, Any], None],
) -> Any:
    """Return a copy of `value` in which `put` has set those members that changed, if any has."""
    mapped = [(name, old, map_tensors(old, change)) for name, old in members]
    changed = [(name, new) for name, old, new in mapped if new is not old]
    if not changed:
        return value
    result = copy.copy(value)
    for name, new in changed:
        put(result, name, new)
    return result
