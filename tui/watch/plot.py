"""A timeline drawn with characters: the mean as a line, least to greatest as its shade.

Own, as a chart here needs a cursor, a line that breaks at a gap, and a mean that is told from its
range without colour: textual-plotext, made for Textual, has no cursor.
A cell of braille has 2 x 4 dots; where the terminal has none, a cell is one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from gpuadvisor.domain.clock_reasons import SLOWING, holds
from gpuadvisor.domain.timeline import Column, Timeline
from gpuadvisor.tui.watch.cells import Line, Style

TICKS_S = (
    *(1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200),
    *(days * 86400 for days in (1, 2, 5, 7, 14)),
)
"""Times between two labels below a chart, in seconds."""
TICK_ROOM = 4
"""Blank characters between two labels at least."""
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""The bits of a braille character by row and column (Unicode 16, 22.6)."""
BRAILLE = 0x2800
ROUND = (1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)
"""What a scale ends with, times a power of ten."""


@dataclass(frozen=True)
class Glyphs:
    """What a terminal can show."""

    across: int
    """Dots of a cell."""
    down: int
    line: str = ""
    shade: str = ""
    """The characters of a cell that is one dot."""
    known: str = "─"
    partly: str = "╌"
    """What stands on the axis for a time that is known, and for one that is partly."""
    cursor: str = "│"
    held: str = "█"
    pointer: str = "▲"
    """What stands on the axis where the cursor is."""


DOTTED = Glyphs(2, 4)
PLAIN = Glyphs(1, 1, "#", ":", "-", ".", "|", "#", "^")
"""For the Linux console and terminals without Unicode."""


def joined(cells: Iterable[tuple[str, Style]]) -> Line:
    """Return cells as a line, those beside each other that look alike as one text."""
    line: list[tuple[str, Style]] = []
    for character, style in cells:
        if line and line[-1][1] is style:
            line[-1] = (line[-1][0] + character, style)
        else:
            line.append((character, style))
    return line


def nice_top(value: float) -> float:
    """Return a round number that is not less."""
    if value <= 0 or not math.isfinite(value):
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(each * power for each in ROUND if each * power >= value * (1 - 1e-9))


def place_of(timeline: Timeline, time_s: float) -> int | None:
    """Return the column of a Unix time; None where it is in none."""
    place = math.floor((time_s - timeline.begin_s) / timeline.step_s)
    return place if 0 <= place < len(timeline.columns) else None


def cell_of(timeline: Timeline, place: int, width: int) -> int:
    """Return the character in which the middle of a column is drawn."""
    return min(int((place + 0.5) * width / max(len(timeline.columns), 1)), width - 1)


def graph(
    timeline: Timeline,
    width: int,
    height: int,
    bottom: float,
    top: float,
    *,
    cursor: int | None = None,
    glyphs: Glyphs = DOTTED,
) -> list[Line]:
    """Return the lines of a chart from `bottom` to `top`; `cursor` is the place of a column."""
    canvas = _Canvas(width, height, glyphs)
    across, before = width * glyphs.across, None
    count = max(len(timeline.columns), 1)
    for place, column in enumerate(timeline.columns):
        first = place * across // count
        last = max((place + 1) * across // count, first + 1)
        is_whole = column is not None and not column.missing_s
        if column is not None and height > 0:
            joins = before if is_whole else None
            canvas.add(range(first, min(last, across)), column, joins, bottom, top)
        before = column if is_whole else None
    at = None if cursor is None else cell_of(timeline, cursor, width)
    return [canvas.line(row, at) for row in range(height)]


class _Canvas:
    """The dots of cells, and which cells have some of the line."""

    def __init__(self, width: int, height: int, glyphs: Glyphs) -> None:
        self._width, self._height, self._glyphs = width, height, glyphs
        self._bits = [[0] * width for _ in range(height)]
        self._has_line = [[False] * width for _ in range(height)]

    def add(
        self, dots: range, column: Column, before: Column | None, bottom: float, top: float
    ) -> None:
        """Draw a column at these dots across, joined to the mean of the one before, if any."""
        low, high, mean = (self._row(value, bottom, top) for value in column[:3])
        for x in dots:
            for y in range(high, low + 1):
                # Every other dot, so that the line is seen without colour; the ends always.
                if (x + y) % 2 == 0 or y in (low, high) or self._glyphs.down == 1:
                    self._set(x, y)
            self._set(x, mean, is_line=True)
        if before is not None and len(dots):
            last = self._row(before.mean, bottom, top)
            for y in range(min(last, mean), max(last, mean) + 1):
                self._set(dots[0], y, is_line=True)

    def line(self, row: int, cursor: int | None) -> Line:
        """Return a line of cells."""
        return joined(self._cell(row, x, x == cursor) for x in range(self._width))

    def _set(self, x: int, y: int, *, is_line: bool = False) -> None:
        cell, dx = divmod(x, self._glyphs.across)
        row, dy = divmod(y, self._glyphs.down)
        self._bits[row][cell] |= _DOTS[dy][dx]
        if is_line:
            self._has_line[row][cell] = True

    def _cell(self, row: int, x: int, is_cursor: bool) -> tuple[str, Style]:
        bits, has_line, glyphs = self._bits[row][x], self._has_line[row][x], self._glyphs
        if not bits:
            return (glyphs.cursor, Style.TITLE) if is_cursor else (" ", Style.PLAIN)
        mark = chr(BRAILLE + bits)
        if glyphs.down == 1:
            mark = glyphs.line if has_line else glyphs.shade
        return mark, Style.TITLE if is_cursor else Style.ACCENT if has_line else Style.QUIET

    def _row(self, value: float, bottom: float, top: float) -> int:
        rows = self._height * self._glyphs.down
        share = (value - bottom) / (top - bottom) if top > bottom else 0.0
        return rows - 1 - min(max(round(share * (rows - 1)), 0), rows - 1)


def lanes(
    timeline: Timeline,
    width: int,
    *,
    cursor: int | None = None,
    glyphs: Glyphs = DOTTED,
) -> list[tuple[str, Line]]:
    """Return a line for each reason for which clocks were held down, with its name; `-` where it
    was read and did not hold."""
    columns = timeline.columns
    flags = [None if column is None else int(column.high) for column in columns]
    at = None if cursor is None else cell_of(timeline, cursor, width)
    made = []
    for reason in sorted(SLOWING.values(), key=lambda each: each.rank):
        if not any(each is not None and holds(each, reason.name) for each in flags):
            continue
        cells: list[tuple[str, Style]] = []
        for x in range(width):
            known = [each for p in _places(timeline, x, width) if (each := flags[p]) is not None]
            held = any(holds(each, reason.name) for each in known)
            mark = (glyphs.held if held else "-") if known else " "
            style = Style.TITLE if x == at else Style.ACCENT if held else Style.QUIET
            cells.append((mark, style))
        made.append((reason.label, joined(cells)))
    return made


def _places(timeline: Timeline, x: int, width: int) -> range:
    """Return the columns that a character shows."""
    count = len(timeline.columns)
    first = x * count // width
    return range(first, max((x + 1) * count // width, first + 1))


def axis(timeline: Timeline, width: int, cursor: int | None = None, glyphs: Glyphs = DOTTED) -> str:
    """Return the line under a chart: whole where all is known, broken where something is missing,
    blank where nothing is known."""
    line = ""
    for x in range(width):
        part = [timeline.columns[place] for place in _places(timeline, x, width)]
        known = [column for column in part if column is not None]
        whole = len(known) == len(part) and not any(column.missing_s for column in known)
        line += glyphs.known if whole else glyphs.partly if known else " "
    if cursor is not None:
        at = cell_of(timeline, cursor, width)
        line = line[:at] + glyphs.pointer + line[at + 1 :]
    return line


def ticks(timeline: Timeline, width: int) -> str:
    """Return the times under a chart, in local time, each beginning where it is."""
    span_s = timeline.end_s - timeline.begin_s
    room = _words(timeline.begin_s, span_s)
    wanted = (len(room) + TICK_ROOM) * span_s / max(width, 1)
    step_s = next((each for each in TICKS_S if each >= wanted), TICKS_S[-1])
    line = ""
    offset_s = _utc_offset_s(timeline.begin_s)
    at = math.ceil((timeline.begin_s + offset_s) / step_s) * step_s - offset_s
    while at < timeline.end_s:
        x = int((at - timeline.begin_s) / span_s * width)
        words = _words(at, span_s)
        if x >= len(line) + (1 if line else 0) and x + len(words) <= width:
            line += " " * (x - len(line)) + words
        at += step_s
    return line


def _utc_offset_s(time_s: float) -> float:
    offset = datetime.fromtimestamp(time_s).astimezone().utcoffset()
    return offset.total_seconds() if offset else 0.0


def _words(time_s: float, span_s: float) -> str:
    moment = datetime.fromtimestamp(time_s)
    if span_s <= 1200:
        return moment.strftime("%H:%M:%S")
    if span_s <= 2 * 86400:
        return moment.strftime("%H:%M")
    return moment.strftime("%d %b")


def marks(
    spans: Sequence[tuple[float, float | None, int]],
    timeline: Timeline,
    width: int,
    letters: Mapping[int, str],
) -> list[tuple[str, int]]:
    """Return a character for each cell, and how bad what it stands for is.

    `spans` are begin, end (None: it lasts) and how bad it is, of events; `letters` tell that.
    """
    made: list[tuple[str, int]] = [(" ", -1)] * width
    length_s = timeline.end_s - timeline.begin_s
    for begin_s, end_s, rank in sorted(spans, key=lambda each: each[2]):
        first = math.floor((begin_s - timeline.begin_s) / length_s * width)
        until_s = timeline.end_s if end_s is None else end_s
        last = math.floor((until_s - timeline.begin_s) / length_s * width)
        for x in range(max(first, 0), min(last, width - 1) + 1):
            if x == first:
                made[x] = (letters[rank], rank)
            elif made[x][0] == " ":
                made[x] = ("-", rank)
    return made
