"""Numbers as people read them: the same digits and units on the terminal, in Markdown and in HTML.

Every function takes None, NaN or infinity for a figure that is not there, and says so in words. A
run that was cut short may lack any of its quantities; each is None then, never zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import floor, isclose, isfinite, log10

from gpuadvisor.domain.knobs import Settings, Value, shown_value
from gpuadvisor.domain.measurement import Measurement
from gpuadvisor.domain.study import Objective, StudyResult

NOT_MEASURED = "not measured"

_DIGITS = 3
"""Significant digits: run-to-run noise is seldom below 0.1 %, so a fourth would be invented."""
_PLAIN_FROM = 1e-4
"""Below this a number is written with an exponent."""
_BYTES = ("B", "KiB", "MiB", "GiB", "TiB")


ALL = 0.995
"""Share from which on a part is as good as all."""


def is_figure(value: float | None) -> bool:
    """Say whether there is a finite number to show."""
    return value is not None and isfinite(value)


def number(value: float | None, digits: int = _DIGITS) -> str:
    """Return `3,262`, `78.7` or `0.0123`: that many significant digits, integers in full."""
    if value is None or not isfinite(value):
        return NOT_MEASURED
    if value == 0:
        return "0"
    if abs(value) < _PLAIN_FROM:
        return f"{value:.{digits - 1}e}"
    magnitude = floor(log10(abs(value)))
    # 99.96 has two digits before the point, but three once it is rounded to 100.
    if abs(round(value, digits - 1 - magnitude)) >= 10 ** (magnitude + 1):
        magnitude += 1
    return f"{value:,.{max(0, digits - 1 - magnitude)}f}"


def whole(value: int | None) -> str:
    """Return `1,204`."""
    return NOT_MEASURED if value is None else f"{value:,}"


def short(value: float | None) -> str:
    """Return `0.0021` or `0.01`: two significant digits, without zeros at the end."""
    return f"{value:.2g}" if value is not None and isfinite(value) else NOT_MEASURED


def ratio(value: float | None, decimals: int = 2) -> str:
    """Return `1.42x`, or `12.3x` from ten on."""
    if value is None or not isfinite(value):
        return NOT_MEASURED
    return f"{number(value)}x" if abs(value) >= 10 else f"{value:.{decimals}f}x"


def ratio_decimals(low: float | None, high: float | None) -> int:
    """Return how many decimals a ratio needs for the ends of its interval to be told apart."""
    if low is None or high is None or not isfinite(high - low):
        return 2
    return 2 if high - low >= 0.015 else 3


def interval(low: float | None, high: float | None) -> str:
    """Return `1.39-1.45`: the ends of a ratio's interval."""
    if low is None or high is None or not (isfinite(low) and isfinite(high)):
        return NOT_MEASURED
    decimals = ratio_decimals(low, high)
    return f"{_end(low, decimals)}-{_end(high, decimals)}"


def _end(value: float, decimals: int) -> str:
    """Return an end of a ratio's interval: no small one is 0, and a large one is whole."""
    if 0 < value < 0.005:
        return f"{value:.1g}"
    return number(value) if value >= 100 else f"{value:.{decimals}f}"


def milliseconds(value: float | None) -> str:
    """Return a time in ms as `78.7 ms`, in microseconds below 1 ms and in seconds from 10 s."""
    return _in_thousands(value, ("µs", "ms", "s"), 10_000)


def nanoseconds(value: float | None) -> str:
    """Return a time in ns in the units of `milliseconds`."""
    return milliseconds(None if value is None else value / 1e6)


def throughput(value: float | None, unit: str) -> str:
    """Return `3,262 samples/s`."""
    return f"{number(value)} {unit}" if is_figure(value) else NOT_MEASURED


def rate(value: float | None, unit: str) -> str:
    """Return a rate as `3.01 TB/s`, in powers of 1,000."""
    if value is None or not isfinite(value):
        return NOT_MEASURED
    for scale, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= scale:
            return f"{number(value / scale)} {prefix}{unit}"
    return f"{number(value)} {unit}"


def memory(value: float | None) -> str:
    """Return bytes as `12.3 GiB`."""
    if value is None or not isfinite(value):
        return NOT_MEASURED
    power = 0
    # From 1000 on, not 1024: "0.98 GiB" has as many digits as "1,004 MiB", and reads better.
    while abs(value) >= 1000 and power < len(_BYTES) - 1:
        value, power = value / 1024, power + 1
    return f"{number(value)} {_BYTES[power]}"


def energy(value: float | None) -> str:
    """Return joules as `14.2 J`, `830 mJ` or `1.2 kJ`."""
    return _in_thousands(value, ("mJ", "J", "kJ"), 1000)


def _in_thousands(value: float | None, units: tuple[str, str, str], most: float) -> str:
    """Return a number of the middle unit: from `most` on in the larger one, below 1 in the smaller
    one."""
    if value is None or not isfinite(value):
        return NOT_MEASURED
    small, unit, large = units
    if abs(value) >= most:
        return f"{number(value / 1e3)} {large}"
    return f"{number(value * 1e3)} {small}" if 0 < abs(value) < 1 else f"{number(value)} {unit}"


def percent(share: float | None) -> str:
    """Return a share (0 to 1) as `29.6 %`."""
    if share is None or not isfinite(share):
        return NOT_MEASURED
    return f"{number(share * 100)} %"


def of_it(share: float) -> str:
    """Return ` (83.1 % of it)`; nothing where it is as good as all."""
    return "" if share >= ALL else f" ({percent(share)} of it)"


def percent_range(low_pct: float | None, high_pct: float | None) -> str:
    """Return `20 to 34 %`, of two percentages; `34 %` where they are the same when rounded."""
    if low_pct is None or high_pct is None or not isfinite(low_pct + high_pct):
        return "not estimated"
    low, high = f"{low_pct:.0f}", f"{high_pct:.0f}"
    return f"{high} %" if low == high else f"{low} to {high} %"


def change(before: float | None, after: float | None) -> str:
    """Return how far `after` is from `before`: `-29.6 %`; empty where either is missing."""
    if before is None or after is None or not (isfinite(before) and isfinite(after)) or before == 0:
        return ""
    moved = 100 * (after / before - 1)
    return "no change" if abs(moved) < 0.05 else f"{moved:+,.{0 if abs(moved) >= 100 else 1}f} %"


def duration(seconds: float | None) -> str:
    """Return `42 s`, `3 min 12 s` or `1 h 05 min`."""
    if seconds is None or not isfinite(seconds):
        return NOT_MEASURED
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def knob_value(value: Value) -> str:
    """Return a knob's value in words: `on`, `off`, `8`, `max-autotune`."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else shown_value(value)


def settings(values: Settings) -> str:
    """Return knobs on one line, a switch that is on without a value: `tf32, num_workers=8`."""
    if not values:
        return "as the script is"
    return ", ".join(
        name if value is True else f"{name}={knob_value(value)}" for name, value in values.items()
    )


def capability(version: tuple[int, int] | None) -> str | None:
    """Return a compute capability as `9.0`; None where it is not known."""
    return None if version is None else ".".join(map(str, version))


def count(amount: int, singular: str, plural: str = "") -> str:
    """Return `1 trial` or `1,204 trials`."""
    return f"{amount:,} {singular if amount == 1 else plural or singular + 's'}"


def counted(names: Sequence[str]) -> str:
    """Return each different name once, with how often it occurs: `2 x H100, A100`."""
    return ", ".join(
        f"{names.count(name)} x {name}" if names.count(name) > 1 else name
        for name in dict.fromkeys(names)
    )


# -- the quantities of a run -----------------------------------------------------------------------


@dataclass(frozen=True)
class Quantities:
    """What was measured of one run. None stands for `not measured`."""

    mean_ms: float | None = None
    p50_ms: float | None = None
    p95_ms: float | None = None
    throughput: float | None = None
    unit: str = "steps/s"
    samples_per_step: float | None = None
    peak_memory_bytes: int | None = None
    energy_j_per_step: float | None = None

    def per_sample(self, value: float | None) -> float | None:
        """Return a step's value divided by its samples; None where either is not known."""
        return value / self.samples_per_step if value and self.samples_per_step else None


def quantities(measurement: Measurement | None) -> Quantities:
    """Return the figures of a run; all are None where there was no run."""
    if measurement is None:
        return Quantities()
    timed = measurement.steps > 0 and _positive(measurement.seconds) is not None
    p50, p95 = map(measurement.percentile_ms, (50, 95)) if measurement.step_ms else (None, None)
    return Quantities(
        mean_ms=measurement.mean_step_ms if timed else None,
        p50_ms=_positive(p50),
        p95_ms=_positive(p95),
        throughput=measurement.throughput if timed else None,
        unit=measurement.throughput_unit if timed else "steps/s",
        samples_per_step=measurement.samples_per_step if timed else None,
        # No process computes in zero bytes: this is a reading that failed.
        peak_memory_bytes=measurement.peak_memory_bytes or None,
        energy_j_per_step=_positive(measurement.energy_j_per_step),
    )


@dataclass(frozen=True)
class ComparedQuantity:
    """One row of the table `baseline against best`, ready to print."""

    label: str
    baseline: str
    best: str
    change: str
    """`-29.6 %`; empty where one of the two was not measured, and `not proven` where runs do not
    show that they differ."""


def comparisons(result: StudyResult) -> tuple[ComparedQuantity, ...]:
    """Return the rows of the table; without a best run its cells and changes are empty."""
    before, after = quantities(result.baseline), quantities(result.best)
    moved = change(before.throughput, after.throughput) if before.unit == after.unit else ""
    is_open = _is_open(result)
    moved = NOT_PROVEN if is_open and moved else moved
    rows = [
        _row("Step time, mean", before.mean_ms, after.mean_ms, milliseconds, is_open),
        _row("Step time, median", before.p50_ms, after.p50_ms, milliseconds, is_open),
        _row("Step time, p95", before.p95_ms, after.p95_ms, milliseconds, is_open),
        ComparedQuantity(
            "Throughput",
            throughput(before.throughput, before.unit),
            throughput(after.throughput, after.unit),
            moved,
        ),
        _row("Peak memory", before.peak_memory_bytes, after.peak_memory_bytes, memory),
        _row("Energy per step", before.energy_j_per_step, after.energy_j_per_step, energy),
    ]
    if result.best is None:
        return tuple(ComparedQuantity(row.label, row.baseline, "", "") for row in rows)
    if steps_differ(before, after):
        time = before.per_sample(before.mean_ms), after.per_sample(after.mean_ms)
        joules = [each.per_sample(each.energy_j_per_step) for each in (before, after)]
        rows[:0] = [
            _row("Samples per step", before.samples_per_step, after.samples_per_step, number),
            _row("Time per sample, mean", *time, milliseconds, is_open),
            _row("Energy per sample", joules[0], joules[1], energy),
        ]
    return tuple(rows)


def steps_differ(before: Quantities, after: Quantities) -> bool:
    """Say whether a step of the two runs holds another number of samples.

    Step times and energies of the two cannot be compared then; those of a sample can.
    """
    if before.samples_per_step is None or after.samples_per_step is None:
        return False
    return not _as_many(before.samples_per_step, after.samples_per_step)


def steps_vary(measurement: Measurement) -> bool:
    """Say whether steps of one run hold different numbers of samples, as episodes do.

    Its time of a step says nothing beside that of another run then; that of a sample does.
    """
    mean = measurement.samples_per_step
    held = [window.samples / window.steps for window in measurement.windows if window.steps]
    return mean is not None and not all(_as_many(mean, each) for each in held)


def _as_many(before: float, after: float) -> bool:
    # The last batch of an epoch may be short in one run and beyond its end in the other.
    return isclose(before, after, rel_tol=0.1)


NOT_PROVEN = "not proven"


def _is_open(result: StudyResult) -> bool:
    """Say whether it was not shown that the times of baseline and best differ at all: two runs do
    by more than that, and a share of it would be taken for what is gained."""
    if result.objective is not Objective.THROUGHPUT:
        return False
    found = result.speedup
    return found is None or found.ci99_low <= 1.0 <= found.ci99_high


def _row(
    label: str,
    before: float | None,
    after: float | None,
    show: Callable[[float | None], str],
    is_open: bool = False,
) -> ComparedQuantity:
    moved = change(before, after)
    return ComparedQuantity(
        label, show(before), show(after), NOT_PROVEN if is_open and moved else moved
    )


def _positive(value: float | None) -> float | None:
    return value if value is not None and isfinite(value) and value > 0 else None
