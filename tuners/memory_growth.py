"""How much more memory settings take than the unchanged script, and which of them takes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from gpuadvisor.domain.knobs import Settings
from gpuadvisor.domain.study import Trial, TrialState
from gpuadvisor.tuners.statistics import mean_with_interval, spread_of


@dataclass(frozen=True)
class MemoryGrowth:
    """Peaks of memory in the runs of a proof: that of the GPU, or of the script's process on a CPU.

    They are means, in bytes. Runs last as long, so that the faster ones make more steps: of a
    script that keeps something of each step, that alone takes more memory.
    """

    base_bytes: float
    """Mean peak of the unchanged script's runs, in bytes."""
    head_bytes: float
    """Mean peak of the runs with the settings, in bytes."""
    base_steps: float
    """Mean steps of the unchanged script's runs, those before it was warm included."""
    head_steps: float
    """Mean steps of the runs with the settings, those before they were warm included."""
    knobs: Mapping[str, float]
    """Bytes that each knob's runs took more than such without it, the most first: of those whose
    runs surely did. Empty where none was measured with and without it."""


def memory_growth(trials: Sequence[Trial], settings: Settings) -> MemoryGrowth | None:
    """Return how much more memory the proof of some settings took; None where it was not surely
    more than the unchanged script's by as much as peaks of such runs differ, or not measured.
    """
    # The resident set of a forked process lacks what of libraries nobody has used since.
    runs = [
        each
        for each in trials
        if each.state is TrialState.COMPLETE
        and each.measurement is not None
        and (not each.is_forked or each.measurement.facts.device == "cuda")
        and each.measurement.peak_memory_bytes > 0
    ]
    base, head = (
        _peaks([each for each in runs if each.phase == "proof"], side) for side in ({}, settings)
    )
    if len(base) < 2 or len(head) < 2:
        return None
    spread, freedom = spread_of(base, head), len(base) + len(head) - 2

    def is_more(first: Sequence[float], second: Sequence[float]) -> bool:
        high = mean_with_interval(first, spread, freedom)[2]
        return high < mean_with_interval(second, spread, freedom)[1]

    if not is_more(base, head):
        return None
    found = {}
    for knob in settings:
        without, beside = _nearest(runs, settings, knob)
        if without and is_more(without, beside):
            found[knob] = fmean(beside) - fmean(without)
    most_first = dict(sorted(found.items(), key=lambda each: -each[1]))
    base_steps, head_steps = (
        fmean(
            each.measurement.warmup_steps + each.measurement.steps
            for each in runs
            if each.phase == "proof" and each.settings == side and each.measurement is not None
        )
        for side in ({}, settings)
    )
    return MemoryGrowth(fmean(base), fmean(head), base_steps, head_steps, most_first)


def _nearest(
    runs: Sequence[Trial], settings: Settings, knob: str
) -> tuple[list[float], list[float]]:
    """Return the peaks of runs without and with a knob beside the most of the other settings, of
    which both were measured; empty lists where there are none."""
    beside = [run.settings for run in runs if run.settings.get(knob) == settings[knob]]
    for each in sorted(beside, key=len, reverse=True):
        if each.items() <= settings.items():
            rest = {name: value for name, value in each.items() if name != knob}
            if without := _peaks(runs, rest):
                return without, _peaks(runs, each)
    return [], []


def _peaks(runs: Sequence[Trial], settings: Settings) -> list[float]:
    return [
        float(run.measurement.peak_memory_bytes)
        for run in runs
        if run.measurement is not None and run.settings == settings
    ]
