"""Plot: how the step times of baseline and best are distributed."""

from __future__ import annotations

from collections.abc import Sequence

from gpuadvisor.domain.measurement import Measurement
from gpuadvisor.reports import figures, svg
from gpuadvisor.reports.markup import Markup, element

_CUT_PERCENT = 99.0
"""Beyond this percentile of both, single stalls would squeeze everything else into one bin."""
_ROW, _BARS, _AXIS = 108, 62, 30
_MARGIN = 6


def plot_steps(runs: Sequence[tuple[str, Measurement]], width: float) -> Markup:
    """Return a histogram of step times a run, one below the other on one axis.

    `runs` are (name, measurement) with at least one step time each, all of them finite.
    """
    height = _ROW * len(runs) + _AXIS
    x = svg.Scale(*_range([run for _, run in runs]), _MARGIN, width - _MARGIN)
    bins = 72 if width >= svg.WIDE else 40
    rows = [
        part
        for place, (name, run) in enumerate(runs)
        for part in _row(name, run, _ROW * place, x, bins)
    ]
    return svg.canvas(
        "steps",
        width,
        height,
        "Distribution of step times",
        "; ".join(f"{name}: {_summary(run)}" for name, run in runs) + ".",
        *_axis(x, height),
        *rows,
    )


def left_out(runs: Sequence[Measurement]) -> int:
    """Return how many steps are slower than the end of the axis."""
    _, high = _range(runs)
    return sum(step > high for run in runs for step in run.step_ms)


def _range(runs: Sequence[Measurement]) -> tuple[float, float]:
    low = min(min(run.step_ms) for run in runs)
    high = max(run.percentile_ms(_CUT_PERCENT) for run in runs)
    margin = 0.06 * (high - low) or 0.05 * high or 1.0
    return max(0.0, low - margin), high + margin


def _axis(x: svg.Scale, height: float) -> list[Markup]:
    values = svg.ticks(x.low, x.high, 6 if x.end >= svg.NARROW * 1.5 else 4)
    decimals = svg.tick_decimals(values)
    parts = []
    for place, value in enumerate(values):
        unit = " ms" if place == len(values) - 1 else ""
        parts.append(svg.line(x(value), 8, x(value), height - _AXIS + 4, "grid"))
        anchor = "start" if x(value) < 20 else "end" if x(value) > x.end - 24 else "middle"
        words = f"{value:,.{decimals}f}{unit}"
        parts.append(svg.label(x(value), height - 8, words, "tick", anchor))
    return parts


def _row(name: str, run: Measurement, top: float, x: svg.Scale, bins: int) -> list[Markup]:
    floor = top + _ROW - 8
    median = x.clamp(run.percentile_ms(50))
    class_ = name.lower()
    # The label of the median stands beside its line, on the side where there is room.
    left = median > (x.start + x.end) / 2
    words = f"median {figures.milliseconds(run.percentile_ms(50))}"
    return [
        svg.label(x.start, top + 16, f"{name}, {figures.count(len(run.step_ms), 'step')}", "halo"),
        element("path", d=_bars(run.step_ms, x, bins, floor), class_=f"histogram {class_}"),
        svg.line(x.start, floor, x.end, floor, "axis"),
        svg.line(median, floor - _BARS - 6, median, floor, f"median {class_}"),
        svg.label(
            median + (-6 if left else 6),
            floor - _BARS + 2,
            words,
            "halo figure",
            "end" if left else "start",
        ),
    ]


def _bars(steps: Sequence[float], x: svg.Scale, bins: int, floor: float) -> str:
    """Return a path of bars; the fullest bin of the run has the full height."""
    counts = [0] * bins
    for step in steps:
        if x.low <= step <= x.high:
            counts[min(bins - 1, int(bins * (step - x.low) / (x.high - x.low)))] += 1
    wide = (x.end - x.start) / bins
    fullest = max([*counts, 1])
    return "".join(
        f"M{x.start + wide * place:.1f} {floor:.1f}v{-_BARS * amount / fullest:.1f}"
        f"h{wide - 0.6:.1f}V{floor:.1f}z"
        for place, amount in enumerate(counts)
        if amount
    )


def _summary(run: Measurement) -> str:
    ends = (figures.milliseconds(run.percentile_ms(percent)) for percent in (50, 95))
    return "median {}, 95th percentile {}".format(*ends)
