"""Whether a script trains: not each that computes gradients does, as those of its inputs may be
what it wants. Nor does each that has an optimizer, which may change one batch of inputs."""

from __future__ import annotations

import weakref
from typing import Any

from gpuadvisor.collectors.script.child.rehearsal.equal_weights import numbers_of, parameters_of


class Learning:
    """Compares the weights of modules with those that they had at first, and watches optimizers."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._begun: dict[int, Any] = {}
        self._weights: set[int] = set()
        """Identities of the weights of modules that were found."""
        self._batches: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        """Optimizers to the batches that there were before their first steps."""
        self.is_seen = False
        """Whether any weight has changed, or an optimizer made steps of weights or for several
        batches."""

    def stepped(self, optimizer: Any, batches: int) -> None:
        """Note a step of an optimizer after so many batches; 0 where no loader gives any."""
        if not self.is_seen:
            is_same = batches and self._batches.setdefault(optimizer, batches) == batches
            steps = set(map(id, parameters_of(optimizer)))
            self.is_seen = not is_same or not steps.isdisjoint(self._weights)

    def found(self, module: Any) -> None:
        """Note the weights of a module before its first call."""
        self._weights.update(map(id, module.parameters()))
        self._begun[id(module)] = numbers_of(self._torch, module.parameters())

    def look(self, module: Any) -> None:
        """Look whether a module still has the weights of its first call."""
        begun = self._begun.get(id(module))
        if begun is not None and not self.is_seen:
            now = numbers_of(self._torch, module.parameters())
            self.is_seen = not self._torch.equal(begun, now)
