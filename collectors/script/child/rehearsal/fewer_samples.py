"""Makes a data set smaller in place: as if the script had been given fewer samples.

Some scripts count on all samples being read, such as one that writes an output beside each of its
data set's file names. They bear no shorter passes, but a smaller data set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any

DEEPEST = 2
"""Objects within each other whose sequences are looked at: a data set, the one that it wraps or
what reads its files, and one more."""


def keep_fewer(dataset: Any, batches: int, size: int) -> int | None:
    """Keep evenly spread samples of a data set for so many batches; return how many it had.

    The last batch is as incomplete as that of the whole data set. All sequences with as many items
    as it has samples are shortened alike: paths, labels, indices. None where it is left as it was,
    as it does not have more, or its length does not follow them.
    """
    undo: list[Callable[[], None]] = []
    try:
        whole = len(dataset)
        wanted = (batches - 1) * size + (whole % size or size)
        if whole <= wanted:
            return None
        kept = [n * whole // wanted for n in range(wanted)]
        for change in list(_changes(dataset, whole, kept)):
            undo.append(change())
        if undo and len(dataset) == wanted:
            return int(whole)
    except Exception:  # a data set with ideas of its own
        pass
    for each in reversed(undo):
        each()
    return None


def _changes(
    owner: Any, whole: int, kept: Sequence[int], depth: int = 0, seen: set[int] | None = None
) -> Iterator[Callable[[], Callable[[], None]]]:
    """Yield what shortens each sequence; called, it returns what undoes that."""
    seen = set() if seen is None else seen
    if depth > DEEPEST or id(owner) in seen:
        return
    seen.add(id(owner))
    for name, value in list(getattr(owner, "__dict__", {}).items()):
        if id(value) in seen:
            continue
        if type(value) is list and len(value) == whole:
            seen.add(id(value))
            yield _in_place(value, [value[n] for n in kept])
        elif (short := _shorter(value, whole, kept)) is not None:
            yield _replaced(owner, name, value, short)
        elif not (isinstance(value, (ModuleType, type)) or callable(value)):
            yield from _changes(value, whole, kept, depth + 1, seen)


def _shorter(value: Any, whole: int, kept: Sequence[int]) -> Any:
    """Return a table, an array or a tuple with some of its items; None where it has not as many as
    the data set has samples, or is something else."""
    shape = getattr(value, "shape", None)
    if shape is not None:
        if not shape or shape[0] != whole:
            return None
        return value.iloc[list(kept)] if hasattr(value, "iloc") else value[list(kept)]
    if type(value) is range and len(value) == whole:
        return [value[n] for n in kept]
    if type(value) is tuple and len(value) == whole:
        return tuple(value[n] for n in kept)
    if type(value) is tuple and value:  # of tensors, say
        parts = [_shorter(part, whole, kept) for part in value if hasattr(part, "shape")]
        if len(parts) == len(value) and all(part is not None for part in parts):
            return tuple(parts)
    return None


def _in_place(items: list[Any], short: list[Any]) -> Callable[[], Callable[[], None]]:
    """A list may have other names, in the script as well."""

    def change() -> Callable[[], None]:
        before = list(items)
        items[:] = short
        return lambda: items.__setitem__(slice(None), before)

    return change


def _replaced(owner: Any, name: str, value: Any, short: Any) -> Callable[[], Callable[[], None]]:
    def change() -> Callable[[], None]:
        vars(owner)[name] = short
        return lambda: vars(owner).__setitem__(name, value)

    return change
