"""What measured cures say of the ranges that rules give: how much wider they have to be.

A rule's range comes from physics and playing the run again. `calibration.json` beside this file
says, for rules whose cures were measured often enough, by how much the gains missed their ranges;
`benchmarks/defects` measures and fits it. No range becomes narrower: the pairs of a generator have
one cure each, and the range is a promise for every cure that the rule's advice names. Ranges of
profiles whose steps were timed without the profiler, too, are narrower, and have fits of their own.
A rule that is not in it keeps its range, and so do all while it is empty.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from gpuadvisor.domain.finding import Span
from gpuadvisor.rules.rule import RuleResult


@dataclass(frozen=True)
class Fit:
    """How much wider a rule's ranges are told than the rule gives them, so that nine in ten hold
    what measured cures gained (split conformal prediction, `benchmarks/defects/fit.py`)."""

    points: float
    """Percent of the run, on either side."""
    pairs: int
    """Measured cures that this was fitted to."""

    def span(self, given: Span) -> Span:
        """Return where the gain lies that a rule gives this range for, in percent of the run."""
        return Span(max(given.low - self.points, 0.0), min(given.high + self.points, 100.0))


def missed_by(given: Span, gain_pct: float) -> float:
    """Return how far a measured gain lies outside a rule's range, in percent of the run."""
    return max(given.low - gain_pct, gain_pct - given.high, 0.0)


@dataclass(frozen=True)
class Calibration:
    """The fits of rules by name, and what they rest on."""

    gpu: str
    date: str
    coverage: float
    """Share (0 to 1) of gains that the fitted ranges hold."""
    fits: Mapping[str, Fit]
    timed: Mapping[str, Fit] = field(default_factory=dict)
    """Fits, by rule, for profiles whose steps were also timed without the profiler."""

    def applied(
        self, rule: str, result: RuleResult, run_ns: float, *, timed: bool = False
    ) -> RuleResult:
        """Return what a rule says with the range that was fitted, and a sentence that says so;
        `timed` where steps were timed without the profiler as well.

        As it is where nothing was fitted to any rule, and where it is no matter of the run's time.
        """
        saving, fits = result.saving, self.timed if timed else self.fits
        if not fits or saving is None or saving.of_ns is not None or run_ns <= 0:
            return result
        fit = fits.get(rule)
        if fit is None or not result.as_measured:
            why = "Not calibrated: too few cures of this were measured."
            return replace(result, method=f"{result.method} {why}".strip())
        found = fit.span(Span(*(100 * each / run_ns for each in (saving.low_ns, saving.high_ns))))
        basis = (
            f"Of {fit.pairs} cures of generated programs, measured on {self.gpu} ({self.date}),"
            f" at least {self.coverage:.0%} saved what lies in this range"
            + (
                f", which is wider by {fit.points:.1f} points on either side for it."
                if fit.points
                else "."
            )
        )
        low_ns, high_ns = (each / 100 * run_ns for each in (found.low, found.high))
        return replace(
            result,
            saving=replace(saving, low_ns=low_ns, high_ns=high_ns),
            method=f"{basis} Before that: {result.method}" if result.method else basis,
        )


UNFITTED = Calibration("", "", 0.0, {})
"""Leaves all ranges as the rules give them."""


TABLE = Path(__file__).with_name("calibration.json")


@cache
def calibration() -> Calibration:
    """Return what `calibration.json` beside this file says."""
    return read(TABLE.read_text("utf-8"))


def read(text: str) -> Calibration:
    """Return what a table of fits says."""
    told = json.loads(text)
    fits, timed = (
        {
            name: Fit(float(each["points"]), int(each["pairs"]))
            for name, each in told.get(table, {}).items()
        }
        for table in ("rules", "timed")
    )
    return Calibration(told["gpu"], told["date"], float(told["coverage"]), fits, timed)
