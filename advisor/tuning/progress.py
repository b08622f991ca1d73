"""What a study tells whoever watches it."""

from __future__ import annotations

from typing import Protocol

from gpuadvisor.collectors.script.request import Event
from gpuadvisor.domain.knobs import Settings
from gpuadvisor.domain.study import Trial


class Progress(Protocol):
    """Told of everything as it happens. Called from several threads when trials run in parallel."""

    def say(self, sentence: str) -> None:
        """A sentence for the user."""

    def phase(self, name: str, detail: str = "") -> None:
        """A new phase begins: `baseline`, `search`, `ablation`, `proof`."""

    def started(self, number: int, settings: Settings, phase: str) -> None:
        """A run begins."""

    def event(self, number: int, event: Event) -> None:
        """Something happened inside a run."""

    def ended(self, trial: Trial) -> None:
        """A run ended."""

    def better(self, settings: Settings, gain: float) -> None:
        """The search stands on these settings from now on."""

    def time_left(self, seconds: float | None) -> None:
        """How long the study may still take; None where the budget is in trials."""


class Silent:
    """For library users and tests."""

    def say(self, sentence: str) -> None: ...

    def phase(self, name: str, detail: str = "") -> None: ...

    def started(self, number: int, settings: Settings, phase: str) -> None: ...

    def event(self, number: int, event: Event) -> None: ...

    def ended(self, trial: Trial) -> None: ...

    def better(self, settings: Settings, gain: float) -> None: ...

    def time_left(self, seconds: float | None) -> None: ...
