"""The time that a page of the past shows, and where its cursor is."""

from __future__ import annotations

import math
from dataclasses import dataclass

MINUTE_S, HOUR_S, DAY_S = 60.0, 3600.0, 86400.0
SPANS_S = (MINUTE_S, 10 * MINUTE_S, HOUR_S, 6 * HOUR_S, DAY_S, 7 * DAY_S, 30 * DAY_S)
"""Lengths of a chart."""
STEP_BACK = 0.5
"""Share of its length by which one steps back and forward."""


def shortest(length_s: float) -> float:
    """Return the shortest length of a chart that has so many seconds in it."""
    return next((span_s for span_s in SPANS_S if span_s >= length_s), SPANS_S[-1])


@dataclass
class Window:
    """A span of time that ends now, or where somebody has put it; `now_s` is told each time."""

    span_s: float
    until_s: float | None = None
    """Unix time at which it ends; None: now."""
    cursor_s: float | None = None
    """Unix time of the cursor; None where there is none."""

    def move_to(self, time_s: float, now_s: float, *, in_the_middle: bool = False) -> None:
        """Move the cursor there, and the window as far as it takes to see it."""
        self.freeze(now_s)
        self.cursor_s = min(time_s, now_s)
        self._show_cursor(now_s, in_the_middle)

    def step(self, way: int, now_s: float) -> None:
        """Step back (-1) or forward (1), with the cursor."""
        self.freeze(now_s)
        assert self.until_s is not None
        by_s = way * STEP_BACK * self.span_s
        self.until_s += by_s
        if self.cursor_s is not None:
            self.cursor_s = min(self.cursor_s + by_s, now_s)
        if self.until_s >= now_s:
            self.until_s = None

    def zoom(self, by: int, now_s: float) -> None:
        """Make it shorter (-1) or longer (1), around the cursor if there is one."""
        nearest = min(
            range(len(SPANS_S)), key=lambda n: abs(math.log(SPANS_S[n] / max(self.span_s, 1.0)))
        )
        self.span_s = SPANS_S[min(max(nearest + by, 0), len(SPANS_S) - 1)]
        if self.cursor_s is not None:
            self._show_cursor(now_s, in_the_middle=True)

    def follow(self) -> None:
        """Show what is now, without a cursor."""
        self.until_s = self.cursor_s = None

    def freeze(self, now_s: float) -> None:
        """Have it end where it does now."""
        if self.until_s is None:
            self.until_s = now_s

    def _show_cursor(self, now_s: float, in_the_middle: bool) -> None:
        assert self.cursor_s is not None
        until_s = now_s if self.until_s is None else self.until_s
        if in_the_middle or not until_s - self.span_s <= self.cursor_s < until_s:
            self.until_s = min(self.cursor_s + self.span_s / 2, now_s)
