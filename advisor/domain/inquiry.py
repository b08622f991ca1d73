"""Questions to a running script, for knobs whose values the script itself shows.

One half of such a knob works inside the script's process and answers orders, the other half sits in
gpuadvisor and gives them. Orders and answers are JSON objects.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from gpuadvisor.domain.knobs import Value
from gpuadvisor.domain.target import Target

Order = Mapping[str, Any]
Answer = Mapping[str, Any]
Launch = Callable[[], object]


class Clock(Protocol):
    """Times what runs on the script's device."""

    @abstractmethod
    def mark(self) -> Any:
        """Return a mark of the device's present place in its work, without waiting for it."""

    @abstractmethod
    def between_ms(self, begin: Any, end: Any) -> float:
        """Return the time between two marks that the device has passed, in milliseconds."""

    @abstractmethod
    def synchronize(self) -> None:
        """Wait until the device has done all that it was given."""

    @abstractmethod
    def against(
        self,
        default: Launch,
        launch: Launch,
        give_up_at: float | None,
        seed: int,
        prepare: Callable[[], object] | None = None,
    ) -> tuple[list[float], list[float], bool]:
        """Return the times of two launches in turns, in milliseconds, and whether the second was
        given up early: at more than `give_up_at` times the first one's.

        Before each launch the cache is cold, and `prepare` was called, which is not timed.
        """


class Inquiry(Protocol):
    """The knob's half inside the script's process: what it is asked, and tools for the answers."""

    target: Target

    def order(self) -> Order | None:
        """Wait for the next order, and return it; None where nothing more is wanted.

        Whoever waits keeps the script standing still.
        """

    def answer(self, **fields: Any) -> None:
        """Send an answer of at most 2,000 characters as JSON."""

    def give_up(self, **fields: Any) -> None:
        """Send an answer and end the process, whose GPU is beyond use. Does not return."""

    def clock(self) -> Clock:
        """Return the clock of the GPU if the script has one in use, else of the process."""

    def difference(
        self, found: Sequence[Any], expected: Sequence[Any], tolerance: float | None
    ) -> str | None:
        """Say how tensors differ by more than a tolerance, which is relative to an element and to
        the root mean square of all; None where they do not. NaN has to be where NaN is expected.
        """

    def rounding(self, dtype: Any, terms: int, multiplied: bool = False) -> float:
        """Return by how much two sums of so many terms may differ, in the sense of `difference`, if
        only their order and the last rounding to a torch dtype do; and, where parts of them were
        `multiplied` by tensor cores, TF32.
        """


class Ended(Exception):  # noqa: N818 - the script may well end by itself
    """The script's process ended, or hangs and was ended, before it answered. `str()` says how."""

    def __init__(self, how: str, by_itself: bool = False) -> None:
        super().__init__(how)
        self.by_itself = by_itself
        """Whether the script came to its own end, so that what was asked has not to do with it."""


class Witness(Protocol):
    """The knob's half in gpuadvisor: a running script that answers orders."""

    def begin(self) -> Answer:
        """Start the script, anew if it was, and return what it says as soon as it is warm.

        Ended where it has no steps, ScriptError where it cannot be run.
        """

    def ask(self, order: Order, limit_s: float) -> Answer:
        """Return the answer to an order. Ended where none came within so many seconds.

        Raises Interrupted where the study was cancelled.
        """

    def tell(self, order: Order) -> None:
        """Give an order that has no answer; Ended where nothing runs."""

    @property
    def left_s(self) -> float:
        """Time left for all questions, in seconds."""


@dataclass(frozen=True)
class Found:
    """What a running script showed of a knob."""

    value: Value | None = None
    """Value worth a proof; None where nothing pays."""
    why: str = ""
    """Why there is no value, as a clause; empty where there is one."""
    sentences: tuple[str, ...] = ()
    """What was found, what was left alone and why, for the user."""
