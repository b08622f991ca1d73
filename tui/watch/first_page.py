"""The first values, drawn with plain escape sequences while Textual is being loaded.

The driver's first answer takes 0.2 s, Textual's modules and its start another 0.3 s. So whoever
reads the source draws the page as it will be from the first frame that lists GPUs; Textual then
takes over screen and keyboard, and what was typed meanwhile. This module imports none of it.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import termios
import threading
import time
from contextlib import suppress
from types import FrameType
from typing import Any

from gpuadvisor.daemon.sources import Source
from gpuadvisor.domain.accumulators import STALE_AFTER_S
from gpuadvisor.domain.telemetry import Frame
from gpuadvisor.tui.watch import overview
from gpuadvisor.tui.watch.cells import Line, Style
from gpuadvisor.tui.watch.feed import Feed
from gpuadvisor.tui.watch.state import WatchState
from gpuadvisor.tui.watch.themes import LOOKS, Look

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that end the program, and put the terminal back before."""
ALTERNATE_SCREEN = "\x1b[?1049h"
"""Begins a screen of its own; the shell's comes back with `l` instead of `h`."""
_ENTER = ALTERNATE_SCREEN + "\x1b[?25l\x1b[?7l"  # without a cursor, and without wrapping lines
_LEAVE = "\x1b[?7h\x1b[?1049l\x1b[?25h"
_TAB = "[1 GPUs]"
"""The first page in the head, as the program shows it before it knows the others."""
_ATTRIBUTES = {"bold": "1", "dim": "2", "underline": "4"}
_COLOURS = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")


class FirstPage:
    """The page of one source until Textual is there; made and closed by the main thread."""

    def __init__(self, source: Source, theme: str, state: WatchState) -> None:
        """Take a source; the program takes all in anew, into a state of its own."""
        self.feed = Feed(source)
        self.is_drawn = False
        """Whether there is something to see, which is to stay until the program shows as much."""
        self._source, self._state = source, state
        self._look = LOOKS[theme]
        self._has_colours = "NO_COLOR" not in os.environ
        self._lock = threading.Lock()
        self._is_over = not _can_show(self._look)
        self._before: list[Any] | None = None
        """The terminal's settings as they were, where they are ours to put back."""
        self.ended_by: int | None = None
        """Number of the first signal that is to end the program."""
        for number in ENDING:  # else the terminal would stay as it is now
            signal.signal(number, self._note)

    def begin(self) -> None:
        """Begin to read, once it is sure that `close` is called however all ends."""
        self.feed.start(self._take)

    def _note(self, number: int, _: FrameType | None) -> None:
        """Note a signal, to be looked for when all is loaded: raised in an import, the end of the
        program may be taken for an error, or ignored. A second one does not wait."""
        if self.ended_by is not None:
            raise SystemExit(128 + number)
        self.ended_by = number

    def hand_over(self) -> list[Any] | None:
        """Draw nothing from now on; return the terminal's settings as they were, where this has
        changed them: whoever takes over puts them back."""
        with self._lock:
            self._is_over = True
            before, self._before = self._before, None
            return before

    def close(self) -> None:
        """Put the terminal back, unless somebody has taken over."""
        before = self.hand_over()
        if before is not None:
            with suppress(OSError, termios.error):  # the terminal has gone
                _write(_LEAVE)
                termios.tcsetattr(sys.stdin.fileno(), termios.TCSANOW, before)

    def _take(self, frame: Frame) -> None:
        """Draw the first frame of now that lists GPUs; called by the thread that reads them."""
        with self._lock:
            if self._is_over:
                return
            state = self._state
            state.update(frame)
            state.withheld = self._source.withheld
            is_of_now = state.is_past or frame.time_s >= time.time() - STALE_AFTER_S
            if state.gpus and is_of_now and not state.notice:
                self._is_over = True
                with suppress(OSError, termios.error):  # the program will find it gone
                    self._draw()

    def _draw(self) -> None:
        size = shutil.get_terminal_size()
        width, height = size.columns, size.lines - 2  # the head, and the keys that nobody hears yet
        state = self._state
        heading = state.heading(max(width - len(_TAB) - 2, 0)).rjust(width - len(_TAB))
        shown = overview.shown(state, width, height, state.gpus[0])
        lines: list[Line] = [[(_TAB, Style.TITLE), (heading, Style.PLAIN)], *shown.lines[:height]]
        cursor = None if shown.cursor is None else shown.cursor + 1
        rows = (self._row(line, width, number == cursor) for number, line in enumerate(lines))
        page = "".join(f"\x1b[{number};1H{row}" for number, row in enumerate(rows, 1))
        self._before = _hush()
        _write(f"{_ENTER}{self._begun('')}\x1b[2J{page}\x1b[0m")
        self.is_drawn = True

    def _row(self, line: Line, width: int, is_chosen: bool) -> str:
        row, left = "", width
        for text, style in line:
            begun = self._begun(self._look.styles[style])
            row += begun + ("\x1b[7m" if is_chosen else "") + text[:left]
            left -= len(text[:left])
        return row + self._begun("") + " " * left

    def _begun(self, words: str) -> str:
        """Return how a text of that look begins, in Rich's words for it."""
        codes = ["0"]
        if self._has_colours:
            codes += [_code(self._look.foreground, "38"), _code(self._look.background, "48")]
        for word in words.split():
            if word in _ATTRIBUTES:
                codes.append(_ATTRIBUTES[word])
            elif self._has_colours:
                codes.append(_code(word, "38"))
        return f"\x1b[{';'.join(codes)}m"


def _can_show(look: Look) -> bool:
    """Return whether the terminal shows the theme's colours as they are; Textual finds the nearest
    ones where it does not."""
    has_any = os.environ.get("COLORTERM", "") in ("truecolor", "24bit")
    return os.environ.get("TERM") != "dumb" and (has_any or not look.background.startswith("#"))


def _code(colour: str, kind: str) -> str:
    """Return a colour of a text (kind 38) or behind it (48) as ECMA-48 and ISO 8613-6 have it."""
    if colour.startswith("#"):
        return ";".join((kind, "2", *(str(part) for part in bytes.fromhex(colour[1:]))))
    place = _COLOURS.index(colour) if colour in _COLOURS else 9  # 9: the terminal's own
    return str(int(kind) // 10 * 10 + place)


def _hush() -> list[Any]:
    """Have keys wait unchanged until they are read, with no echo on the page, as Textual has it;
    return the settings as they were."""
    keyboard = sys.stdin.fileno()
    before = termios.tcgetattr(keyboard)
    settings = termios.tcgetattr(keyboard)
    settings[0] &= ~(termios.ICRNL | termios.IXON)
    settings[3] &= ~(termios.ECHO | termios.ICANON | termios.ISIG | termios.IEXTEN)
    termios.tcsetattr(keyboard, termios.TCSANOW, settings)
    return before


def _write(text: str) -> None:
    left = text.encode(sys.stderr.encoding, "replace")
    while left:
        left = left[os.write(sys.stderr.fileno(), left) :]
