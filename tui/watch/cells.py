"""A reading as a few characters: its value by its unit, or a placeholder that says why it has none.

No placeholder looks like a number, so that unknown is never taken for zero. A colour adds to the
words and never stands for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import Enum

from gpuadvisor.domain.accumulators import Reading
from gpuadvisor.domain.clock_reasons import slowing
from gpuadvisor.domain.metrics import Metric
from gpuadvisor.domain.severity import Severity
from gpuadvisor.domain.telemetry import Gpu, Number, State


class Style(Enum):
    """What a text is; `themes` says how that looks."""

    PLAIN = "plain"
    TITLE = "title"
    QUIET = "quiet"
    GOOD = "good"
    WARNING = "warning"
    ERROR = "error"
    ACCENT = "accent"
    """A picture over time, or what one may look for first."""
    IDLE = "idle"
    LIGHT = "light"
    MODERATE = "moderate"
    HEAVY = "heavy"


Span = tuple[str, Style]
Line = Sequence[Span]
"""A line of a page: texts that follow one another."""

LOADS = ((75.0, Style.HEAVY), (25.0, Style.MODERATE), (1.0, Style.LIGHT))
"""Percent from which on a load is called so: three steps to tell apart at a glance. [own]"""


def load_style(pct: Number) -> Style:
    """Return how a load in percent looks."""
    return next((style for least, style in LOADS if pct >= least), Style.IDLE)


_EIGHTHS = " ▏▎▍▌▋▊▉"


def bar(pct: Number, width: int) -> str:
    """Return a bar of that many characters, of which a load fills its share; what is not nothing
    shows at least an eighth of a character."""
    pct = min(max(pct, 0), 100)  # a recording or another machine may say anything
    eighths = max(round(pct / 100 * width * 8), 1 if pct > 0 else 0)
    filled = "█" * (eighths // 8) + (_EIGHTHS[eighths % 8] if eighths % 8 else "")
    return filled.ljust(width)


SEVERITY_STYLES = {
    Severity.INFO: Style.PLAIN,
    Severity.WARNING: Style.WARNING,
    Severity.ERROR: Style.ERROR,
}
"""How an event looks; the other severities are those of findings."""


def style_of(reading: Reading | None) -> Style:
    """Return how the placeholder of a reading looks."""
    if reading is None or reading.state in (State.NOT_SUPPORTED, State.NO_PERMISSION):
        return Style.QUIET
    if reading.state is State.LOST:
        return Style.ERROR
    return Style.WARNING if reading.state is State.STALE else Style.PLAIN


UNREAD = "…"
"""Stands for what was not read yet."""
PLACEHOLDERS: dict[State, tuple[str, ...]] = {
    State.NOT_SUPPORTED: ("n/a",),
    State.NO_PERMISSION: ("no perm", "perm"),
    State.LOST: ("lost",),
}
"""What stands for a state, the clearest first and then what fits a narrow column."""
CUT = "…"

_STEPS_S = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"))


def age(seconds: float) -> str:
    """Return a time in its largest unit: `3 s`, `5 min`, `2 h`."""
    for unit_s, unit in _STEPS_S:
        if seconds >= unit_s:
            return f"{seconds / unit_s:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def placeholders(reading: Reading | None, now_s: float) -> tuple[str, ...]:
    """Return what stands for a reading without a value, the clearest first."""
    if reading is None:
        return (UNREAD,)
    if reading.state is State.STALE:
        return (f"stale {age(now_s - reading.since_s)}", "stale", "old")
    return PLACEHOLDERS[reading.state]


def fit(texts: Sequence[str], width: int) -> str:
    """Return the first text that fits, else the last one, cut."""
    for text in texts:
        if len(text) <= width:
            return text
    last = texts[-1]
    return last[: max(width - 1, 0)] + CUT if width > 0 else ""


def short(metric: Metric, value: Number) -> str:
    """Return a value without its unit, for a column whose title says it; sizes are in GiB."""
    if metric.unit == "bytes":
        return f"{value / 2**30:.1f}"
    if metric.unit == "bytes/s":
        return rate(value)
    return f"{value:.0f}"


def full(metric: Metric, value: Number) -> str:
    """Return a value with its unit."""
    if metric.name == "throttle_reasons":
        return ", ".join(reasons(int(value))) or "none"
    if metric.unit == "bytes":
        return f"{value / 2**30:.2f} GiB"
    if metric.unit == "bytes/s":
        digits = rate(value).rstrip("kMG")
        return f"{digits} {rate(value).removeprefix(digits)}B/s"
    number = f"{value:.0f}" if metric.whole else f"{value:.1f}"
    return f"{number} {metric.unit}".rstrip()


def rate(bytes_per_s: Number) -> str:
    """Return a rate in three digits and a decimal prefix: `950M`, `41.2G`; what is small is 0."""
    for factor, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if bytes_per_s >= factor:
            number = bytes_per_s / factor
            return f"{number:.1f}{prefix}" if number < 99.95 else f"{number:.0f}{prefix}"
    return f"{bytes_per_s:.0f}"


def size(count: Number) -> str:
    """Return a number of bytes with a binary unit: `47.8 GiB`, `300 MiB`."""
    for factor, unit in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if count >= factor:
            number = count / factor
            return (
                f"{number:.1f} {unit}"
                if unit == "GiB" and number < 999.5
                else f"{number:.0f} {unit}"
            )
    return f"{count:.0f} B"


def reasons(mask: int) -> list[str]:
    """Return what holds the clocks down, the worst first; what costs nothing is left out."""
    return [reason.label for reason in sorted(slowing(mask), key=lambda each: each.rank)]


def name(gpu: Gpu) -> str:
    """Return what tells a GPU's model apart: `H100 80GB HBM3`, `MIG 1g.10gb`."""
    plain = gpu.name.removeprefix("NVIDIA ").removeprefix("GeForce ")
    if gpu.is_instance and " MIG " in gpu.name:
        return "MIG " + gpu.name.rpartition(" MIG ")[2]
    return plain


def labels(gpus: Sequence[Gpu]) -> dict[str, str]:
    """Return the number that stands for each GPU, by UUID; instances are `0/1`, `0/2`, ..."""
    numbers: dict[str, str] = {}
    instances: dict[str | None, int] = {}
    for gpu in gpus:
        numbers[gpu.uuid] = str(gpu.index)
        if gpu.is_instance:
            instances[gpu.parent_uuid] = instances.get(gpu.parent_uuid, 0) + 1
            numbers[gpu.uuid] += f"/{instances[gpu.parent_uuid]}"
    return numbers


MOST_NAMED = 6
"""Numbers of GPUs, or runs of them, that are named one by one. [own]"""
LEAST_RUN = 3
"""Numbers that follow each other from which on they are told as `5 to 7`. [own]"""


def several(names: Sequence[str]) -> str:
    """Return numbers of GPUs, in their order, as `0, 2 and 5 to 63`; of many the rest is counted.

    Empty for none.
    """
    runs: list[list[str]] = []
    for name in names:
        last = runs[-1][-1] if runs else ""
        if name.isdecimal() and last.isdecimal() and int(name) == int(last) + 1:
            runs[-1].append(name)
        else:
            runs.append([name])
    parts: list[tuple[str, int]] = []
    for run in runs:
        is_long = len(run) >= LEAST_RUN
        parts += [(f"{run[0]} to {run[-1]}", len(run))] if is_long else [(n, 1) for n in run]
    if len(parts) > MOST_NAMED:
        kept = parts[: MOST_NAMED - 1]
        parts = [*kept, (f"{len(names) - sum(count for _, count in kept)} more", 0)]
    *texts, last = [text for text, _ in parts] or [""]
    return f"{', '.join(texts)} and {last}" if texts else last


def hour_and_minute(time_s: float) -> str:
    """Return a Unix time as the local hour and minute."""
    return datetime.fromtimestamp(time_s).strftime("%H:%M")


def time_of_day(time_s: float) -> str:
    """Return a Unix time as the local time of day."""
    return datetime.fromtimestamp(time_s).strftime("%H:%M:%S")


_ACRONYMS = {
    "gpu": "GPU",
    "sm": "SM",
    "pcie": "PCIe",
    "nvlink": "NVLink",
    "ecc": "ECC",
    "rx": "in",
    "tx": "out",
    "fp64": "FP64",
    "fp32": "FP32",
    "fp16": "FP16",
    "dram": "DRAM",
    "cpu": "CPU",
    "io": "I/O",
}
_UNITS = ("_bytes_per_s", "_bytes", "_pct", "_mhz", "_w", "_j", "_c", "_s")


def words(metric: Metric) -> str:
    """Return a metric's name in words; its unit stands beside the value."""
    name = metric.name
    for unit in _UNITS:
        if name.endswith(unit):
            name = name.removesuffix(unit)
            break
    text = " ".join(_ACRONYMS.get(word, word) for word in name.split("_"))
    return text[0].upper() + text[1:]
