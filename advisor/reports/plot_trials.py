"""Plot: what every trial gained, in the order in which they ran."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import isfinite

from gpuadvisor.domain.study import Trial, TrialState
from gpuadvisor.reports import figures, svg
from gpuadvisor.reports.markup import Markup, element
from gpuadvisor.reports.quantities import quantities
from gpuadvisor.reports.wording import STATES

FLOOR = 0.5
"""Slower than this is drawn at this gain, or the gains worth seeing would be squeezed."""
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 10, 14, 38
_RAIL = 34
"""Height of the strip below for trials that have no gain."""


def plot_trials(trials: Sequence[Trial], width: float) -> Markup:
    """Return gain by trial: a mark each, the best so far as steps, the baseline as a line.

    Trials without a gain stand on a rail below. A complete trial without one is left out.
    """
    height = 320 if width >= svg.WIDE else 280
    bottom = height - _BOTTOM - (_RAIL if any(map(_on_rail, trials)) else 0)
    gains = [gain for gain in map(_gain, trials) if gain is not None]
    low, high = _range(gains)
    y = svg.Scale(low, high, bottom, _TOP)
    # Half a place is left free at both ends, so that no mark is cut.
    x = svg.Scale(-0.7, max(len(trials), 2) - 0.3, _LEFT, width - _RIGHT)
    return svg.canvas(
        "trials",
        width,
        height,
        "Gain of every trial",
        _description(trials, gains),
        *_grid(y, width, bottom),
        *_numbers(trials, x, height - 20),
        svg.label(width - _RIGHT, height - 4, "trial", "muted", "end"),
        _best_so_far(trials, x, y),
        *(_mark(trial, x(place), y, height - _BOTTOM - 8) for place, trial in enumerate(trials)),
        *_rail_label(trials, height),
    )


def _gain(trial: Trial) -> float | None:
    return trial.gain if trial.gain is not None and isfinite(trial.gain) else None


def _on_rail(trial: Trial) -> bool:
    return _gain(trial) is None and trial.state is not TrialState.COMPLETE


def _range(gains: Sequence[float]) -> tuple[float, float]:
    low = max(FLOOR, min([1.0, *gains]))
    high = max([1.0, *gains])
    margin = max(0.05, 0.08 * (high - low))
    return max(FLOOR, low - margin) if low > FLOOR else FLOOR, high + margin


def _grid(y: svg.Scale, width: float, bottom: float) -> list[Markup]:
    values = svg.ticks(y.low, y.high, 5)
    decimals = max(1, svg.tick_decimals(values))
    parts = []
    for value in values:
        parts.append(svg.line(_LEFT, y(value), width - _RIGHT, y(value), "grid"))
        parts.append(svg.label(_LEFT - 8, y(value) + 4, f"{value:.{decimals}f}x", "tick", "end"))
    parts.append(svg.line(_LEFT, y(1), width - _RIGHT, y(1), "baseline"))
    parts.append(svg.label(width - _RIGHT, min(y(1) + 14, bottom), "baseline", "muted", "end"))
    return parts


def _numbers(trials: Sequence[Trial], x: svg.Scale, height: float) -> list[Markup]:
    """Return the trials' own numbers below, as many as there is room for."""
    every = max(1, -(-len(trials) * 28 // int(x.end - x.start)))
    return [
        svg.label(x(place), height, str(trial.number), "tick", "middle")
        for place, trial in enumerate(trials)
        if place % every == 0
    ]


def _best_so_far(trials: Sequence[Trial], x: svg.Scale, y: svg.Scale) -> Markup:
    """Return the best gain by then as steps; the repeats of ablation and proof do not raise it."""
    best, points = 1.0, []
    for place, trial in enumerate(trials):
        gain = _gain(trial)
        if trial.phase == "search" and trial.state is TrialState.COMPLETE and gain is not None:
            best = max(best, gain)
        points.append((x(place), y(best)))
    path = "".join(f"H{right[0]:.1f}V{right[1]:.1f}" for _, right in pairwise(points))
    start = f"M{points[0][0]:.1f} {points[0][1]:.1f}" if points else "M0 0"
    return element("path", d=start + path, class_="best-so-far")


def _mark(trial: Trial, x: float, y: svg.Scale, rail: float) -> Markup:
    gain = _gain(trial)
    if gain is None and not _on_rail(trial):
        return Markup("")
    height = rail if gain is None else y.clamp(gain)
    title = element("title", _tooltip(trial))
    kind = f"phase-{trial.phase}" if trial.settings else "plain"
    class_ = f"mark state-{trial.state} {kind}"
    if trial.state is TrialState.COMPLETE:
        return element("circle", title, cx=x, cy=height, r=4.5, class_=class_)
    # A cross, so that a failure is seen without its colour too; the disc catches the pointer.
    target = element("circle", cx=x, cy=height, r=8, class_="target")
    cross = f"M{x - 4:.1f} {height - 4:.1f}l8 8m0 -8l-8 8"
    return element("g", title, target, element("path", d=cross), class_=class_ + " cross")


def _tooltip(trial: Trial) -> str:
    lines = [
        f"Trial {trial.number} ({trial.phase}): {STATES[trial.state]}",
        figures.settings(trial.settings),
        trial.reason,
    ]
    if _gain(trial) is not None:
        step = figures.milliseconds(quantities(trial.measurement).mean_ms)
        lines.append(f"gain {figures.ratio(trial.gain)}, mean step {step}")
    return "\n".join(words for words in lines if words)


def _rail_label(trials: Sequence[Trial], height: float) -> list[Markup]:
    if not any(map(_on_rail, trials)):
        return []
    return [svg.label(_LEFT - 8, height - _BOTTOM - 4, "no gain", "tick", "end")]


def _description(trials: Sequence[Trial], gains: Sequence[float]) -> str:
    best = figures.ratio(max(gains)) if gains else figures.NOT_MEASURED
    failed = sum(map(_on_rail, trials))
    return (
        f"{figures.count(len(trials), 'trial')} in the order in which they ran. Largest gain of a"
        f" single run: {best}. {failed} ended without a gain. All are in the table of trials."
    )
