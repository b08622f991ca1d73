"""The terminal as Textual has it, but for two things: it waits for a key without looking ten times
a second, so that an idle page does nothing, and a page that ends need not wait for the next look;
and it takes over the first page, which is drawn before."""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
from codecs import IncrementalDecoder, getincrementaldecoder
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

from textual._xterm_parser import XTermParser
from textual.drivers.linux_driver import LinuxDriver
from textual.message import Message

from gpuadvisor.tui.watch.first_page import ALTERNATE_SCREEN

if TYPE_CHECKING:
    from gpuadvisor.tui.watch.app import Watch

BLOCK = 4096
"""Bytes of keys that are read at once."""
PENDING_S = 0.1
"""Time after which the parser is asked for a key that was awaiting more, such as Esc alone."""
ASKED_FOR_S = 1.0
"""How long it is asked after the last key: nothing is pending longer."""


def is_there() -> bool:
    """Say whether keys come from a terminal that has not gone."""
    try:
        termios.tcgetattr(sys.__stdin__.fileno() if sys.__stdin__ else -1)
    except (termios.error, OSError, ValueError):
        return False
    return True


class Terminal(LinuxDriver):
    """Textual's driver, whose thread for keys sleeps until there is one."""

    def start_application_mode(self) -> None:
        """Take over the screen, with what the first page drew, and the keyboard."""
        first = cast("Watch", self._app).first
        self._before = first.hand_over() if first else None
        super().start_application_mode()  # type: ignore[no-untyped-call]
        if self._before is not None:
            self.attrs_before = self._before

    def write(self, data: str) -> None:
        """Write to the screen, but for its begin where the first page has begun it."""
        if data != ALTERNATE_SCREEN or self._before is None:
            super().write(data)

    def disable_input(self) -> None:
        """End the thread at once."""
        if self._key_thread is not None:
            os.write(self._bell[1], b"!")
        super().disable_input()

    def run_input_thread(self) -> None:
        """Read keys until the input is disabled."""
        decoder = getincrementaldecoder("utf-8")("replace")
        parser = XTermParser(self._debug)
        quiet_s = ASKED_FOR_S
        while not self.exit_event.is_set():
            wait_s = PENDING_S if quiet_s < ASKED_FOR_S else None
            ready, _, _ = select.select([self.fileno, self._bell[0]], [], [], wait_s)
            quiet_s = 0.0 if ready else quiet_s + PENDING_S
            if self._bell[0] in ready:
                os.read(self._bell[0], BLOCK)
            typed = self._read() if self.fileno in ready else None
            if typed == b"":
                # Only the shell whose terminal it was sends SIGHUP; and no thread may wait for keys
                # of a terminal that has gone: it is always ready, with nothing.
                self._app.call_later(self._app.exit, return_code=128 + signal.SIGHUP)
                return
            for message in (*self._typed(parser, decoder, typed or b""), *parser.tick()):
                self.process_message(message)

    def _read(self) -> bytes:
        """Return what was typed; nothing where the terminal has gone."""
        try:
            return os.read(self.fileno, BLOCK)
        except OSError:
            return b""

    def _typed(
        self, parser: XTermParser, decoder: IncrementalDecoder, typed: bytes
    ) -> Iterator[Message]:
        """Yield what was typed, if anything was."""
        if text := decoder.decode(typed):  # part of a letter is none, and the parser's end
            yield from parser.feed(text)

    @property
    def _bell(self) -> tuple[int, int]:
        """A pipe that wakes the thread."""
        if self._pipe is None:
            self._pipe = os.pipe()
        return self._pipe

    _pipe: tuple[int, int] | None = None
    _before: list[Any] | None = None
    """The terminal's settings as they were, where the first page has changed them."""
