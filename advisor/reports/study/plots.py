"""Plots of a study: what each knob is worth, what every trial gained, how long steps took."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import isfinite, isnan

from gpuadvisor.domain.knobs import Contribution
from gpuadvisor.domain.measurement import Measurement
from gpuadvisor.domain.study import Trial, TrialState
from gpuadvisor.reports import figures, svg
from gpuadvisor.reports.markup import Markup, element
from gpuadvisor.reports.study.wording import ORIGINS, STATES

_WORTH_ROW, _WORTH_BAR, _WORTH_AXIS = 46, 12, 26
_WORTH_MARGIN = 2
FLOOR = 0.5
"""Slower than this is drawn at this gain, or the gains worth seeing would be squeezed."""
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 10, 14, 38
_RAIL = 34
"""Height of the strip below for trials that have no gain."""
_CUT_PERCENT = 99.0
"""Percentile of both runs at which the axis ends: single stalls beyond would squeeze the rest."""
_STEPS_ROW, _STEPS_BARS, _STEPS_AXIS = 108, 62, 30
_STEPS_MARGIN = 6


def plot_contributions(contributions: Sequence[Contribution], width: float) -> Markup:
    """Return a bar a knob from 1 (no effect) to its ratio, the most valuable first."""
    ordered = sorted(contributions, key=lambda each: (isnan(each.ratio), -each.ratio))
    height = _WORTH_ROW * len(ordered) + _WORTH_AXIS
    x = svg.Scale(*_worth_range(ordered), _WORTH_MARGIN, width - _WORTH_MARGIN)
    ticks = svg.tick_labels(x.low, x.high, 5 if x.end >= svg.NARROW * 1.5 else 3, unit="x", least=1)
    bottom = height - _WORTH_AXIS + 4
    parts = svg.columns(x, ticks, height - 6, (0, bottom), (20, 20))
    # Below the rows: the halo of a name keeps it readable where the line passes.
    parts.append(svg.line(x(1), 0, x(1), bottom, "baseline"))
    for place, each in enumerate(ordered):
        parts += _worth_row(each, _WORTH_ROW * place, x)
    described = "; ".join(f"{_knob(each)} {_worth(each)}" for each in ordered) + "."
    return svg.canvas("contributions", width, height, "What each knob is worth", described, *parts)


def _worth_range(contributions: Sequence[Contribution]) -> tuple[float, float]:
    ends = [
        end
        for each in contributions
        for end in (each.ratio, each.low, each.high)
        if end is not None and isfinite(end)
    ]
    low, high = min([1.0, *ends]), max([1.0, *ends])
    margin = max(0.01, 0.04 * (high - low))
    return (low - margin if low < 1 else 1.0), high + margin


def _worth_row(each: Contribution, top: float, x: svg.Scale) -> list[Markup]:
    """Return name and figure on one line, and the bar with its interval below."""
    worth = _worth(each)
    middle = top + 24 + _WORTH_BAR / 2
    start, end = sorted((x(1), x.clamp(each.ratio) if isfinite(each.ratio) else x(1)))
    name = svg.shorten(_knob(each), x.end - 7.5 * len(worth) - 24)
    class_ = "bar" if each.ratio >= 1 else "bar loss"
    title = f"{_knob(each)}: {worth}"
    parts = [
        svg.label(x.start + 8, top + 16, name, "halo name"),
        svg.label(x.end, top + 16, worth, "halo figure", "end"),
        svg.bar(start, top + 24, max(1.0, end - start), _WORTH_BAR, class_, title),
    ]
    if figures.is_figure(each.low) and figures.is_figure(each.high):
        low, high = x.clamp(each.low or 0), x.clamp(each.high or 0)
        parts.append(svg.line(low, middle, high, middle, "whisker"))
        parts += [svg.line(end, middle - 4, end, middle + 4, "whisker") for end in (low, high)]
    return parts


def _knob(each: Contribution) -> str:
    return figures.settings({each.knob: each.value})


def _worth(each: Contribution) -> str:
    value = figures.ratio(each.ratio, figures.ratio_decimals(each.low, each.high))
    if each.low is not None and each.high is not None:
        value += f" ({figures.interval(each.low, each.high)})"
    return value if each.origin.is_shown else f"{value}, {ORIGINS[each.origin]}"


def plot_trials(trials: Sequence[Trial], width: float, name: str = "trials") -> Markup:
    """Return gain by trial: a mark each, the best so far as steps, the baseline as a line.

    `name` tells several on one page apart.
    Trials without a gain stand on a rail below. A complete trial without one is left out.
    """
    height = 320 if width >= svg.WIDE else 280
    has_rail = any(map(_on_rail, trials))
    bottom = height - _BOTTOM - (_RAIL if has_rail else 0)
    gains = [gain for gain in map(_gain, trials) if gain is not None]
    y = svg.Scale(*_gain_range(gains), bottom, _TOP)
    # Half a place is left free at both ends, so that no mark is cut.
    x = svg.Scale(-0.7, max(len(trials), 2) - 0.3, _LEFT, width - _RIGHT)
    parts = svg.rows(y, svg.tick_labels(y.low, y.high, 5, unit="x", least=1), x.start, x.end)
    parts.append(svg.line(x.start, y(1), x.end, y(1), "baseline"))
    parts.append(svg.label(x.end, min(y(1) + 14, bottom), "baseline", "muted", "end"))
    # As many of the trials' own numbers as there is room for.
    every = max(1, -(-len(trials) * 28 // int(x.end - x.start)))
    numbers = [(place, str(trial.number)) for place, trial in enumerate(trials)][::every]
    parts += svg.columns(x, numbers, height - 20)
    parts.append(svg.label(x.end, height - 4, "trial", "muted", "end"))
    parts.append(_best_so_far(trials, x, y))
    rail = height - _BOTTOM - 8
    parts += [_mark(trial, x(place), y, rail) for place, trial in enumerate(trials)]
    if has_rail:
        parts.append(svg.label(x.start - 8, rail + 4, "no gain", "tick", "end"))
    best = figures.ratio(max(gains)) if gains else figures.NOT_MEASURED
    described = (
        f"{figures.count(len(trials), 'trial')} in the order in which they ran. Largest gain of a"
        f" single run: {best}. {sum(map(_on_rail, trials))} ended without a gain. All are in the"
        " table of trials."
    )
    return svg.canvas(name, width, height, "Gain of every trial", described, *parts)


def _gain(trial: Trial) -> float | None:
    return trial.gain if trial.gain is not None and isfinite(trial.gain) else None


def _on_rail(trial: Trial) -> bool:
    return _gain(trial) is None and trial.state is not TrialState.COMPLETE


def _gain_range(gains: Sequence[float]) -> tuple[float, float]:
    low = max(FLOOR, min([1.0, *gains]))
    high = max([1.0, *gains])
    margin = max(0.05, 0.08 * (high - low))
    return max(FLOOR, low - margin) if low > FLOOR else FLOOR, high + margin


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
    return svg.path(start + path, "best-so-far")


def _mark(trial: Trial, x: float, y: svg.Scale, rail: float) -> Markup:
    gain = _gain(trial)
    if gain is None and not _on_rail(trial):
        return Markup("")
    height = rail if gain is None else y.clamp(gain)
    kind = f"phase-{trial.phase}" if trial.settings else "plain"
    class_ = f"mark state-{trial.state} {kind}"
    if trial.state is TrialState.COMPLETE:
        return svg.point(x, height, 4.5, class_, _tooltip(trial))
    # A cross, so that a failure is seen without its colour too; the disc catches the pointer.
    target = svg.point(x, height, 8, "target")
    cross = element("path", d=f"M{x - 4:.1f} {height - 4:.1f}l8 8m0 -8l-8 8")
    title = element("title", _tooltip(trial))
    return element("g", title, target, cross, class_=class_ + " cross")


def _tooltip(trial: Trial) -> str:
    lines = [
        f"Trial {trial.number} ({trial.phase}): {STATES[trial.state]}",
        figures.settings(trial.settings),
        trial.reason,
    ]
    if _gain(trial) is not None:
        step = ""
        if trial.measurement is not None:
            mean_ms = figures.quantities(trial.measurement).mean_ms
            step = f", mean step {figures.milliseconds(mean_ms)}"
        lines.append(f"gain {figures.ratio(trial.gain)}{step}")
    return "\n".join(words for words in lines if words)


def plot_steps(runs: Sequence[tuple[str, Measurement]], width: float) -> Markup:
    """Return a histogram of step times a run, one below the other on one axis.

    `runs` are (name, measurement) with at least one step time each, all of them finite.
    """
    height = _STEPS_ROW * len(runs) + _STEPS_AXIS
    x = svg.Scale(*_steps_range([run for _, run in runs]), _STEPS_MARGIN, width - _STEPS_MARGIN)
    ticks = svg.tick_labels(x.low, x.high, 6 if x.end >= svg.NARROW * 1.5 else 4, last_unit=" ms")
    parts = svg.columns(x, ticks, height - 8, (8, height - _STEPS_AXIS + 4), (20, 24))
    described = []
    for place, (name, run) in enumerate(runs):
        parts += _histogram(name, run, _STEPS_ROW * place, x, 72 if width >= svg.WIDE else 40)
        median, slow = (figures.milliseconds(run.percentile_ms(percent)) for percent in (50, 95))
        described.append(f"{name}: median {median}, 95th percentile {slow}")
    words = "; ".join(described) + "."
    return svg.canvas("steps", width, height, "Distribution of step times", words, *parts)


def left_out(runs: Sequence[Measurement]) -> int:
    """Return how many steps are slower than the end of the axis."""
    _, high = _steps_range(runs)
    return sum(step > high for run in runs for step in run.step_ms)


def _steps_range(runs: Sequence[Measurement]) -> tuple[float, float]:
    low = min(min(run.step_ms) for run in runs)
    high = max(run.percentile_ms(_CUT_PERCENT) for run in runs)
    margin = 0.06 * (high - low) or 0.05 * high or 1.0
    return max(0.0, low - margin), high + margin


def _histogram(name: str, run: Measurement, top: float, x: svg.Scale, bins: int) -> list[Markup]:
    floor = top + _STEPS_ROW - 8
    median = x.clamp(run.percentile_ms(50))
    class_ = name.lower()
    # The label of the median stands beside its line, on the side where there is room.
    aside, anchor = (-6, "end") if median > (x.start + x.end) / 2 else (6, "start")
    words = f"median {figures.milliseconds(run.percentile_ms(50))}"
    top_of_bars = floor - _STEPS_BARS
    return [
        svg.label(x.start, top + 16, f"{name}, {figures.count(len(run.step_ms), 'step')}", "halo"),
        svg.path(_histogram_bars(run.step_ms, x, bins, floor), f"histogram {class_}"),
        svg.line(x.start, floor, x.end, floor, "axis"),
        svg.line(median, top_of_bars - 6, median, floor, f"median {class_}"),
        svg.label(median + aside, top_of_bars + 2, words, "halo figure", anchor),
    ]


def _histogram_bars(steps: Sequence[float], x: svg.Scale, bins: int, floor: float) -> str:
    """Return a path of bars; the fullest bin of the run has the full height."""
    counts = [0] * bins
    for step in steps:
        if x.low <= step <= x.high:
            counts[min(bins - 1, int(bins * (step - x.low) / (x.high - x.low)))] += 1
    wide = (x.end - x.start) / bins
    fullest = max([*counts, 1])
    return "".join(
        f"M{x.start + wide * place:.1f} {floor:.1f}v{-_STEPS_BARS * amount / fullest:.1f}"
        f"h{wide - 0.6:.1f}V{floor:.1f}z"
        for place, amount in enumerate(counts)
        if amount
    )
