"""What a model makes in its calls and keeps for later ones, such as a mean that it follows slowly.

So do hooks on its layers, for the script, and objects of the script's own. In 16 bits a small
change of a large number is rounded away. Whether such a tensor grows or follows by little is seen
where nothing is rounded so: in the unchanged script's life.
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from gpuadvisor.collectors.script.child.rehearsal.code_references import (
    LEVELS,
    is_own,
    method_named,
)
from gpuadvisor.collectors.script.child.rehearsal.equal_weights import numbers_of
from gpuadvisor.collectors.script.child.rehearsal.inspection import attributes_of

MOST_TENSORS = 64
"""Tensors of a root that are looked at."""
MOST_CALLS = 64
"""Calls of a root after which they are looked at: four passes of 16 batches."""
LOOKS = (1, 2, 4, 8, 16, 32)
"""Calls after which a root is looked at of which nothing is known yet: to look through a thousand
modules takes some 10 ms."""
LEAST_CALLS = 8
"""Calls after which it can be told whether a tensor follows what came before."""
LAG = 8
"""Calls between which a tensor that follows has moved by far more than from one to the next."""
FOLLOWS = 2 / 3
"""Part of the change over `LAG` calls, or half of all, that comes with one call at most: of what is
made anew in each call it is all of it, of a sum of random terms half of it after four calls, and
less the longer it follows one direction."""


@dataclass
class _Series:
    """Some numbers of one tensor after each call."""

    bits: int
    size: int
    numbers: list[Any] = field(default_factory=list)


class KeptTensors:
    """Watches the tensors of roots that were not there before their first calls."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._of_torch = frozenset(vars(torch.nn.Module())) | {"_flat_weights"}
        """Attributes of modules that hold layers, parameters and hooks."""
        self._before: dict[int, list[weakref.ref[Any]]] = {}
        self._calls: dict[int, int] = {}
        self._series: dict[tuple[int, str], _Series] = {}

    def found(self, root: Any) -> None:
        """Note what a root has before its first call."""
        self._before[id(root)] = [weakref.ref(tensor) for _, tensor in self._of(root)]

    def called(self, root: Any, place: int) -> None:
        """Look at what a root has after a call. `place` is the root's among all."""
        calls = self._calls[place] = self._calls.get(place, 0) + 1
        if id(root) not in self._before or calls > MOST_CALLS:
            return
        if calls not in LOOKS and all(of != place for of, _ in self._series):
            return
        before = {id(tensor) for each in self._before[id(root)] if (tensor := each()) is not None}
        made = [(path, each) for path, each in self._of(root) if id(each) not in before]
        for path, tensor in made[:MOST_TENSORS]:
            bits, size = 8 * tensor.element_size(), tensor.numel()
            known = self._series.get((place, path))
            if known is None or (known.bits, known.size) != (bits, size):
                known = self._series[place, path] = _Series(bits, size)
            known.numbers.append(numbers_of(self._torch, [tensor]))

    def report(self) -> Iterator[dict[str, Any]]:
        """Yield the fields of a `KeptTensor` for each."""
        for (root, path), series in self._series.items():
            follows = _follows(self._torch, series.numbers)
            yield {"root": root, "path": path, "bits": series.bits, "follows": follows}

    def _of(self, root: Any) -> Iterator[tuple[str, Any]]:
        """Yield the dense floating-point tensors of a module, its members and their hooks, but for
        parameters and what belongs to a graph of gradients, with their attribute paths."""
        for name, member in root.named_modules():
            own = (*vars(member).items(), *member._buffers.items())
            held = [
                (f"{name}.{key}" if name else key, value)
                for key, value in own
                if key not in self._of_torch
            ]
            if is_own(type(member)) and (forward := method_named(type(member), "forward")):
                held += _of_hook(forward)
            for hook in tuple(member._forward_hooks.values()):
                held += _of_hook(hook)
            for path, value in held:
                for key, tensor in self._inside(value):
                    yield path + key, tensor

    def _inside(self, value: Any, levels: int = LEVELS) -> Iterator[tuple[str, Any]]:
        """Yield a watched tensor by an empty key, or those in a plain dictionary or list, and in an
        object of the script's own class, by their keys."""
        if isinstance(value, self._torch.Tensor):
            if self._is_watched(value):
                yield "", value
        elif levels and not isinstance(value, self._torch.nn.Module):
            for key, member in _members(value):
                for rest, tensor in self._inside(member, levels - 1):
                    yield key + rest, tensor

    def _is_watched(self, tensor: Any) -> bool:
        is_dense = tensor.layout == self._torch.strided and not tensor.is_nested
        return bool(
            is_dense
            and tensor.is_floating_point()
            and not tensor.requires_grad
            and tensor.numel()
            and tensor.device.type != "meta"
        )


def _of_hook(hook: Any) -> list[tuple[str, Any]]:
    """Return what a hook can keep, by the names of its code: global and enclosing variables, and
    attributes of the object that it is, or of which it is a method."""
    if type(hook) is types.MethodType:
        return list(attributes_of(hook.__self__).items())
    if type(hook) is not types.FunctionType:
        return list(attributes_of(hook).items())
    code, known = hook.__code__, hook.__globals__
    held = [(name, known[name]) for name in code.co_names if name in known]
    for name, cell in zip(code.co_freevars, hook.__closure__ or (), strict=False):
        with suppress(ValueError):  # it has no value yet
            held.append((name, cell.cell_contents))
    return held


def _members(value: Any) -> list[tuple[str, Any]]:
    """Return the members of a dictionary or list, or an object's attributes, by their keys."""
    if type(value) is dict:
        items = islice(value.items(), MOST_TENSORS)
        return [(f"[{key!r}]", each) for key, each in items if type(key) in (int, str)]
    if type(value) is list:
        return [(f"[{place}]", each) for place, each in enumerate(value[:MOST_TENSORS])]
    if is_own(type(value)):
        return [(f".{name}", each) for name, each in attributes_of(value).items()]
    return []


def _follows(torch: Any, numbers: list[Any]) -> bool:
    """Say whether numbers change by little from call to call, and by more over several."""
    if len(numbers) < LEAST_CALLS:
        return False
    near, far = (_moved(torch, numbers, lag) for lag in (1, min(LAG, len(numbers) // 2)))
    return 0 < near < FOLLOWS * far


def _moved(torch: Any, numbers: list[Any], lag: int) -> float:
    """Return the median change of those numbers that are others so many calls later; 0 if none."""
    every = torch.stack(numbers)
    change = (every[lag:] - every[:-lag]).abs()
    change = change[torch.isfinite(change) & (change > 0)]
    return float(change.median()) if len(change) else 0.0
