"""Questions that take their time, answered in a thread: the newest one counts.

Not Textual's workers: their threads are awaited at the end, and a store may be locked for long.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

from gpuadvisor.errors import AdvisorError
from gpuadvisor.printable import brief

Q = TypeVar("Q")
A = TypeVar("A")


def told(error: Exception) -> AdvisorError:
    """Return what is said of an error in a thread, whose traceback would go over the page."""
    if isinstance(error, AdvisorError):
        return error
    return AdvisorError(f"This failed: report it as a bug ({brief(error)}).")


class Asker(Generic[Q, A]):
    """Asks one question at a time; of those that come meanwhile, the last is asked next."""

    def __init__(self, answer: Callable[[Q], A], tell: Callable[[], object]) -> None:
        """`answer` runs in a thread of its own; `tell` is called there once it is done."""
        self.question: Q | None = None
        """The question to which there is an answer, or an error."""
        self.answer: A | None = None
        self.error: AdvisorError | None = None
        self._answer, self._tell = answer, tell
        self._lock = threading.Lock()
        self._next: Q | None = None
        self._asked: Q | None = None

    @property
    def is_busy(self) -> bool:
        return self._asked is not None

    def ask(self, question: Q) -> None:
        """Ask, unless that is what was answered or is being asked."""
        with self._lock:
            if self._asked is not None:
                self._next = None if question == self._asked else question
                return
            if question == self.question:
                return
            self._asked = question
        threading.Thread(target=self._run, name="past", daemon=True).start()

    def forget(self) -> None:
        """Ask anew next time."""
        self.question = None

    def _run(self) -> None:
        while (question := self._asked) is not None:
            answer, error = None, None
            try:
                answer = self._answer(question)
            except Exception as found:
                error = told(found)
            with self._lock:
                self.question, self.answer, self.error = question, answer, error
                self._asked, self._next = self._next, None
            with suppress(Exception):  # the page has gone
                self._tell()
