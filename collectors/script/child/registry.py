"""What the knobs asked for: the harness's side of `gpuadvisor.domain.target.Target`."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from gpuadvisor.collectors.script.child.imports import after_import
from gpuadvisor.domain.knobs import Application
from gpuadvisor.domain.target import Call, StepTaker

Around = Callable[[Any, Call, "tuple[Any, ...]", "dict[str, Any]"], Any]
Report = Callable[[str, str, str], None]
"""Takes a knob's name, its state and a detail."""


class Registry:
    """The callbacks of all knobs, in the order in which the knobs were applied."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.at_work = False
        """Whether a knob's code runs now, so that its doings are not taken for the script's."""
        self.root_preparers: list[tuple[KnobTarget, Callable[[Any], None]]] = []
        self.root_arounds: list[Around] = []
        self.loader_adjusters: list[tuple[KnobTarget, Callable[[dict[str, Any]], None]]] = []
        self.optimizer_adjusters: list[
            tuple[KnobTarget, Callable[[type, dict[str, Any]], None]]
        ] = []
        self.optimizer_adopters: list[tuple[KnobTarget, Callable[[Any], None]]] = []
        self.backward_arounds: list[Callable[[Any, Call], None]] = []
        self.import_watchers: list[Callable[[], None]] = []
        """What was called, or will be, after imports: it may stand on what was imported."""
        self.batches_ready: Callable[[], int | None] = lambda: None
        """Tells how many batches wait to be taken; None where that cannot be seen."""
        self.step_taker: StepTaker | None = None
        self.later_taker: StepTaker | None = None
        """Takes the steps after those that were measured."""

    def apply(self, applications: tuple[Application, ...]) -> None:
        """Apply each setting; one that fails is reported, and the script runs without it."""
        for application in applications:
            target = KnobTarget(application.knob, self)
            module, _, attribute = application.applier.partition(":")
            with target:
                getattr(import_module(module), attribute).apply(application.value, target)


class KnobTarget:
    """The target as one knob sees it. As a context, it reports failures of the knob's code."""

    def __init__(
        self, knob: str, registry: Registry, noticed: Callable[[], None] = lambda: None
    ) -> None:
        self._knob = knob
        self._registry = registry
        self._noticed = noticed
        self._state = ""

    def on_root(self, prepare: Callable[[Any], None]) -> None:
        self._registry.root_preparers.append((self, prepare))

    def around_root(self, around: Around) -> None:
        self._registry.root_arounds.append(around)

    def on_loader(self, adjust: Callable[[dict[str, Any]], None]) -> None:
        self._registry.loader_adjusters.append((self, adjust))

    def on_optimizer(self, adjust: Callable[[type, dict[str, Any]], None]) -> None:
        self._registry.optimizer_adjusters.append((self, adjust))

    def after_optimizer(self, adopt: Callable[[Any], None]) -> None:
        self._registry.optimizer_adopters.append((self, adopt))

    def around_backward(self, around: Callable[[Any, Call], None]) -> None:
        self._registry.backward_arounds.append(around)

    def after_import(self, module: str, call: Callable[[], None]) -> None:
        def imported() -> None:
            with self:
                call()

        self._registry.import_watchers.append(call)
        after_import(module, imported)

    def batches_ready(self) -> int | None:
        return self._registry.batches_ready()

    def take_steps(self, taker: StepTaker, measured: bool = False) -> None:
        if measured:
            self._registry.later_taker = taker
        else:
            self._registry.step_taker = taker

    def named(self, knob: str, noticed: Callable[[], None] = lambda: None) -> KnobTarget:
        return KnobTarget(knob, self._registry, noticed)

    def tell(self, detail: str) -> None:
        self._registry.report(self._knob, "told", detail)

    def effective(self, detail: str = "") -> None:
        self._noticed()
        if not self._state:
            self._state = "effective"
            self._registry.report(self._knob, self._state, detail)

    def refuse(self, reason: str) -> None:
        if self._state != "refused":
            self._state = "refused"
            self._registry.report(self._knob, self._state, reason)

    def __enter__(self) -> KnobTarget:
        self._registry.at_work = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, *_: Any
    ) -> bool:
        self._registry.at_work = False
        if isinstance(error, Exception):
            self.refuse(f"{type(error).__name__}: {str(error)[:300]}")
            return True
        return False
