"""For how long a gate's runs are measured: as long as their windows and the tolerance ask for."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import fmean

from gpuadvisor.collectors.script.specification import Schedule
from gpuadvisor.domain.gate import GateRun
from gpuadvisor.domain.measurement import Measurement
from gpuadvisor.tuners.gate.comparing import COUNTED, SHORT
from gpuadvisor.tuners.gate.metrics import are_counts, chosen
from gpuadvisor.tuners.gate.metrics.times import LEAST_STEPS, WAITS
from gpuadvisor.tuning.gate.options import MEASURE_S, GateOptions

FIRST = Schedule(warmup_s=0.0, measure_s=0.2, min_steps=2, window_s=0.125)
"""The first run of a version only shows whether it works. It is not compared: it finds caches of
files, byte code and compiled kernels empty. A run has four windows at least, half a second here."""
COUNTS = Schedule(warmup_s=0.0, queue_limit=0, window_s=0.0, max_measure_s=0.0)
"""A run that is counted and not timed: its steps are the same ones in every run, however fast the
machine is. Three follow the first four, or the last compilation; those after them are counted."""
SHORT_S = 2.0
"""Time for which a run is measured of a script whose windows hardly differ: four windows."""
BRIEF = Schedule(warmup_s=0.5, measure_s=1.0, window_s=0.125)
"""A run of a script whose windows differ so little that a second is enough, and 20 steps. On an
H200 half a second that began 0.2 s after the first step was 0.5 % slower than later ones, on both
sides alike, and its ratio less than 0.1 % off (`benchmarks/gates_cuda.jsonl`)."""
OBVIOUS_RUN = replace(BRIEF, min_steps=8)
"""A run that only shows a difference of a factor: a step of 125 ms, 2.5 times one of 50, has eight
windows of its own within a second."""
BASE_FIRST = replace(BRIEF, warmup_s=Schedule().warmup_s)
"""The base's first run, where those after it may be brief: how its windows differ decides that, and
what a step of it costs is what forked runs are compared with."""
STEADY = 0.1
"""Relative standard error of the mean of so short a run, from how its windows differ, as a part of
the tolerance, below which longer ones tell little more: runs differ by 0.2 to 0.8 % on a quiet GPU,
and that makes 0.14 % of a pair's ratio, a tenth of by how much pairs may differ where three of them
pass an unchanged version (1.4 %)."""
MIN_WINDOWS = 6
"""Windows below which how they differ is not known: of eight, two may be too long to end."""
AGAIN = "again"
"""Place of a run that shows whether a version still works, after the other one failed."""
BEFORE = ("first", AGAIN, COUNTED)
"""Places of runs that are not compared by their times."""


class Lengths:
    """Decides it before each run, and learns from each."""

    def __init__(self, options: GateOptions, saves: bool) -> None:
        """With `saves`, runs are measured for less time where that is found to be no matter."""
        self._options, self._saves = options, saves
        self._is_steady = self._is_brief = False
        self.only_counts = are_counts(chosen(options.metrics, options.only))
        """Whether runs are counted and not timed."""

    @property
    def same_steps(self) -> bool:
        """Whether runs are counted in the same steps of the script."""
        return self.only_counts and self._options.measure_s == MEASURE_S

    def schedule(self, side: str, place: str, in_turns: bool = False) -> Schedule:
        """Return how a run of a side is to be measured, by what it is for."""
        measure_s = self._options.measure_s
        if self.only_counts:
            return COUNTS if self.same_steps else replace(_usual(measure_s), warmup_s=0.0)
        if place in BEFORE:
            decides = self._saves and (side, place) == ("base", "first")
            return BASE_FIRST if decides else FIRST
        if not in_turns and (place.endswith(SHORT) or self._is_brief):
            brief = BRIEF if not place.endswith(SHORT) else OBVIOUS_RUN
            return replace(brief, measure_s=min(measure_s, brief.measure_s))
        if place.endswith(SHORT) or self._is_steady:
            measure_s = min(measure_s, SHORT_S)
        return _usual(measure_s)

    def learn(self, run: GateRun) -> None:
        """Measure further runs for as long as this one's windows, and those before it, ask for.

        One whose windows differ more ends brief runs: something else has come.
        """
        measurement = run.trial.measurement
        if not self._saves or measurement is None or run.place.endswith(SHORT):
            return
        if run.place == "first" and run.side == "base":
            self._is_brief = self._is_enough(measurement, BRIEF.measure_s)
        elif run.place not in BEFORE:
            self._is_brief = self._is_brief and self._is_enough(measurement, BRIEF.measure_s)
            if run.place == "known":
                self._is_steady |= self._is_enough(measurement, SHORT_S)

    def _is_enough(self, measurement: Measurement, measure_s: float) -> bool:
        """Say whether runs that are measured for so long tell as much as longer ones."""
        options, windows = self._options, measurement.windows
        says_more = options.metrics or options.only
        if options.measure_s != MEASURE_S or says_more or len(windows) < MIN_WINDOWS:
            return False
        rate = len(measurement.step_ms) / measurement.seconds
        loses_p95 = rate * MEASURE_S >= LEAST_STEPS > rate * measure_s
        if loses_p95 or measurement.data_wait_share > WAITS:
            return False
        error = measurement.noise * math.sqrt(fmean(w.seconds for w in windows) / measure_s)
        return error < STEADY * options.tolerance


def _usual(measure_s: float) -> Schedule:
    usual = Schedule(measure_s=measure_s)
    return replace(usual, max_measure_s=max(usual.max_measure_s, measure_s))
