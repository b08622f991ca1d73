"""Gives two lives of a script the same weights: what one keeps now and then, another takes.

That happens as a pass over a loader begins or ends, after some of the first steps, and as a model
is switched to evaluation after further ones. Where
training makes of any rounding weights of their own, only what is computed on equal weights can be
compared: the next step with its loss, an evaluation, files.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

EQUAL_AFTER = (1, 4)
"""Steps after which weights are kept or taken, beside passes: so that several of a script's first
losses are of equal weights. The second step shows what is left of the first one, such as inputs of
a graph that is replayed, and the fifth what is recorded or compiled in the third or fourth."""
MOST_SWITCHES = 16
"""Switches to evaluation, between which there were steps, with which weights are kept or taken: a
script that switches with each step, as in reinforcement learning, has no end of them."""
NUMBERS = 64
"""Numbers that are looked at of each weight and its gradient, evenly spread: how far those of two
lives are apart is known to a tenth of that by so many (normal errors: one in the square root of
twice as many), and a model of 1,000 tensors leaves 2 MB a step."""
MOST_KEPT = 3 << 30
"""Bytes that a life keeps at most: eight times the weights of a ResNet-50 with Adam's moments are
2.5 GB, those of six passes and two steps."""
FREE_SHARE = 0.5
"""Part of the free space on the disk, which may be the memory, that they may take."""


class EqualWeights:
    """Keeps weights and what optimizers know, or takes those that another life kept."""

    def __init__(self, torch: Any, folder: str, takes: bool) -> None:
        self._torch = torch
        self._folder = Path(folder)
        self._takes = takes
        self._kept = 0
        self._process = ""

    def forked(self) -> None:
        """Tell the moments of a child from those of its parent."""
        self._process += "child "

    def exchange(self, moment: str, modules: Iterable[Any], optimizers: Iterable[Any]) -> bool:
        """Keep the state of all, or take that of the same moment, each of which comes once; say
        whether that was done, and wholly."""
        tensors = list(_state(self._torch, modules, optimizers))
        file = self._folder / f"{self._process}{moment}.pt"
        return self._take(tensors, file) if self._takes else self._keep(tensors, file)

    def _keep(self, tensors: list[Any], file: Path) -> bool:
        size = sum(each.numel() * each.element_size() for each in tensors)
        self._kept += size
        if self._kept > min(MOST_KEPT, FREE_SHARE * shutil.disk_usage(self._folder).free):
            return False
        draft = file.with_suffix(f".{os.getpid()}")
        self._torch.save([each.detach().cpu() for each in tensors], draft)
        draft.rename(file)
        return True

    def _take(self, tensors: list[Any], file: Path) -> bool:
        if not file.exists():
            return False
        known = self._torch.load(file, map_location="cpu", weights_only=True)
        if [each.shape for each in known] != [each.shape for each in tensors]:
            return False
        for mine, other in zip(tensors, known, strict=True):
            mine.copy_(other)
        return True


def _state(torch: Any, modules: Iterable[Any], optimizers: Iterable[Any]) -> Iterator[Any]:
    """Yield the tensors of modules and optimizers, each once, in an order that lives share."""
    seen = set()

    def found(value: Any) -> bool:
        known = id(value) in seen
        seen.add(id(value))
        return isinstance(value, torch.Tensor) and not known

    for module in modules:
        yield from filter(found, module.parameters())
        yield from filter(found, module.buffers())
    for optimizer in optimizers:
        for parameter in parameters_of(optimizer):
            yield from filter(found, (parameter, *optimizer.state.get(parameter, {}).values()))


def parameters_of(optimizer: Any) -> list[Any]:
    """Return what an optimizer steps."""
    return [each for group in optimizer.param_groups for each in group["params"]]


def kept_of(weight: Any) -> int:
    """Return how many numbers `numbers_of` returns of a dense weight."""
    return int(min(NUMBERS, weight.numel() * (1 + weight.is_complex())))


def numbers_of(torch: Any, tensors: Iterable[Any]) -> Any:
    """Return a few numbers of each tensor, evenly spread, whatever its layout."""
    picked = [torch.zeros(0, dtype=torch.float64)]
    for tensor in tensors:
        plain = tensor.detach()
        plain = plain.coalesce().values() if plain.is_sparse else plain  # of an embedding
        plain = torch.view_as_real(plain) if plain.is_complex() else plain
        count = plain.numel()
        places = torch.linspace(0, count - 1, min(NUMBERS, count), dtype=torch.float64).long()
        some = plain.reshape(-1)[places.to(plain.device)]
        picked.append(some.to("cpu", torch.float64))
    return torch.cat(picked)
