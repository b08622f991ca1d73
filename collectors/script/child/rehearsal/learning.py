"""Whether a script trains: not each that computes gradients does, as those of its inputs may be
what it wants."""

from __future__ import annotations

from typing import Any

from gpuadvisor.collectors.script.child.rehearsal.equal_weights import numbers_of


class Learning:
    """Compares the weights of modules with those that they had at first."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._begun: dict[int, Any] = {}
        self.is_seen = False
        """Whether any weight has changed."""

    def found(self, module: Any) -> None:
        """Note the weights of a module before its first call."""
        self._begun[id(module)] = numbers_of(self._torch, module.parameters())

    def look(self, module: Any) -> None:
        """Look whether a module still has the weights of its first call."""
        begun = self._begun.get(id(module))
        if begun is not None and not self.is_seen:
            now = numbers_of(self._torch, module.parameters())
            self.is_seen = not self._torch.equal(begun, now)
