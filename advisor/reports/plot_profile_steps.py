"""Plot: how long each step took, and how much of it was waiting for data."""

from __future__ import annotations

from gpuadvisor.reports import figures, svg
from gpuadvisor.reports.markup import Markup, element
from gpuadvisor.rules.facts.steps import Step, Steps

_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 4, 10, 26
_HEIGHT = 190
_MOST_BARS = 120
"""Of more steps, each bar is the slowest one of its stretch."""


def plot_profile_steps(steps: Steps, width: float) -> Markup:
    """Return a bar for each step, in their order."""
    bars = _slowest(steps.steps, _MOST_BARS if width >= svg.WIDE else _MOST_BARS // 2)
    longest = max(step.duration_ns for _, step in bars) / 1e6 or 1.0
    y = svg.Scale(0, longest * 1.06, _HEIGHT - _BOTTOM, _TOP)
    x = svg.Scale(0, len(bars), _LEFT, width - _RIGHT)
    parts = []
    values = svg.ticks(0, y.high, 4)
    decimals = svg.tick_decimals(values)
    for value in values:
        parts.append(svg.line(_LEFT, y(value), width - _RIGHT, y(value), "grid"))
        parts.append(svg.label(_LEFT - 8, y(value) + 4, f"{value:,.{decimals}f}", "tick", "end"))
    parts.append(svg.label(0, _HEIGHT - 6, "ms", "tick"))
    wide = max((x(1) - x(0)) * 0.8, 1.0)
    every = max(1, -(-len(bars) * 44 // int(x.end - x.start)))
    for place, (number, step) in enumerate(bars):
        left = x(place + 0.5) - min(wide, 60) / 2
        parts += _bar(step, left, min(wide, 60), y)
        if place % every == 0:
            words = str(number + 1)
            parts.append(svg.label(x(place + 0.5), _HEIGHT - 6, words, "tick", "middle"))
    median = steps.median_ns / 1e6
    parts.append(svg.line(_LEFT, y(median), width - _RIGHT, y(median), "median"))
    described = (
        f"{figures.count(len(steps.steps), 'step')}, median {figures.milliseconds(median)},"
        f" longest {figures.milliseconds(longest)}."
    )
    return svg.canvas("profile-steps", width, _HEIGHT, "Time of each step", described, *parts)


def _bar(step: Step, left: float, wide: float, y: svg.Scale) -> list[Markup]:
    whole, waits = step.duration_ns / 1e6, min(step.data_wait_ns, step.duration_ns) / 1e6
    words = f"{step.name[:80]}: {figures.milliseconds(whole)}"
    if waits:
        words += f", of which waiting for data {figures.milliseconds(waits)}"
    parts = [
        element(
            "rect",
            element("title", words),
            x=left,
            y=y(whole),
            width=wide,
            height=max(y(0) - y(whole), 0.0),
            class_="part step",
        )
    ]
    if waits:
        parts.append(
            element(
                "rect",
                element("title", words),
                x=left,
                y=y(waits),
                width=wide,
                height=max(y(0) - y(waits), 0.0),
                class_="part waiting_for_data",
            )
        )
    return parts


def _slowest(steps: tuple[Step, ...], most: int) -> list[tuple[int, Step]]:
    numbered = list(enumerate(steps))
    if len(numbered) <= most:
        return numbered
    size = -(-len(numbered) // most)
    stretches = (numbered[start : start + size] for start in range(0, len(numbered), size))
    return [max(stretch, key=lambda each: each[1].duration_ns) for stretch in stretches]
