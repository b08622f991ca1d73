"""Turn knobs while a script runs: on between two of its steps, and off again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpuadvisor.domain.knobs import Value
from gpuadvisor.domain.target import Target, Turn
from gpuadvisor.tuners.base import Knob

TRACED: dict[str, Value] = {}
"""Knobs that are on and end up inside code compiled by then, by name. Dynamo does not see all of
them (the order of attention kernels), and takes some for a shape that varies (the layout)."""


class Switch:
    """A `Turn` of what turns a knob on and what undoes that, however much of it was done."""

    def __init__(
        self, on: Callable[[Value], None], off: Callable[[], None], traced: str = ""
    ) -> None:
        """Turn with `on` and `off`; `traced` names a knob that compiled code has within it."""
        self.value: Value | None = None
        """What it is turned to; None while it is off."""
        self._on, self._off, self._traced = on, off, traced

    def __call__(self, value: Value | None) -> None:
        if value == self.value:
            return
        if self.value is not None:
            self.value = None
            TRACED.pop(self._traced, None)
            self._off()
        if value is None:
            return
        try:
            self._on(value)
        except BaseException:
            self._off()
            raise
        self.value = value
        if self._traced:
            TRACED[self._traced] = value


class FlagKnob(Knob):
    """A knob of a setting of the whole process that torch asks for at each operation."""

    def read(self) -> Any:
        """Return the setting. RuntimeError, in words, where the script cannot have another."""
        raise NotImplementedError

    def turn_on(self, value: Value, before: Any) -> None:
        """Change the setting, which was `before`, unless it is already what the knob makes it."""
        raise NotImplementedError

    def restore(self, before: Any) -> None:
        """Make the setting again what `read` once returned."""
        raise NotImplementedError

    def apply(self, value: Value, target: Target) -> None:
        def prepare(module: Any) -> None:
            # Just before the first use, when the script has made its own settings.
            try:
                self._set(value, target)
            except RuntimeError as error:
                target.refuse(str(error))

        target.on_root(prepare)

    def live(self, target: Target) -> Turn | None:
        states: list[tuple[Any, Any]] = []

        def off() -> None:
            while states:
                before, after = states.pop()
                if before == after or self.read() != after:
                    continue  # it was so by itself, or the script has changed it meanwhile
                self.restore(before)
                if self.read() != before:
                    raise RuntimeError(f"torch could not turn {self.name} off as it was before")

        return Switch(lambda value: states.append(self._set(value, target)), off, self.name)

    def _set(self, value: Value, target: Target) -> tuple[Any, Any]:
        """Turn it on; return the setting before and after."""
        before = self.read()
        self.turn_on(value, before)
        after = self.read()
        if after != before:
            target.effective()
        return before, after
