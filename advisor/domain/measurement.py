"""Measurement of one run: steady steps, windows, and what is compared between runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuadvisor.domain.knobs import AppliedKnob, ScriptFacts

Counts = Mapping[str, tuple[int, ...]]
"""How many there are of what has a name: in each of the steps that were looked at, or one number of
the whole run."""


@dataclass(frozen=True)
class StepWindow:
    """Consecutive steps between two synchronisations of the device."""

    steps: int
    seconds: float
    """Time that the counted steps took; steps with an evaluation inside are left out."""
    samples: float = 0.0
    """Samples in the counted steps; 0 where they are not known."""
    data_wait_s: float = 0.0
    """Part of `seconds` that the script waited for its loaders."""
    energy_j: float | None = None
    """Energy that the GPU used from synchronisation to synchronisation; None if not measured."""


@dataclass(frozen=True)
class OutputSample:
    """A few numbers of one captured output: evenly spaced elements of its first rows."""

    shape: tuple[int, ...]
    values: tuple[float, ...]


@dataclass(frozen=True)
class Trace:
    """What is compared to say whether two runs computed the same."""

    losses: tuple[float, ...] = ()
    """Every backward pass's loss in order, from the first step; up to a fixed number."""
    outputs: tuple[OutputSample, ...] = ()
    """First outputs of the root module, for inference."""
    last_loss: float | None = None
    """The loss of the last step: NaN or infinity here is `wrong`, however well it began."""


@dataclass(frozen=True)
class Measurement:
    """The steady steps of one run, with what was seen beside them."""

    marker: str
    """What counted a step: `explicit`, `optimizer`, `backward` or `forward`."""
    step_ms: tuple[float, ...]
    """Time of each counted step that was timed by itself, in milliseconds: of many short steps of a
    window some are, in stretches by chance, the others together."""
    windows: tuple[StepWindow, ...]
    warmup_steps: int
    """Steps before the first counted one: compiling, autotuning, filling queues."""
    samples_source: str | None
    """`dataloader`, `root_input` or `user`; None where samples a step are not known."""
    peak_memory_bytes: int
    """Most memory that torch's allocator had in use on the GPU; resident set on a CPU."""
    reserved_memory_bytes: int
    """Most memory that the allocator held; equal to the peak on a CPU."""
    startup_s: float
    """Time from the start of the process to the first step."""
    wall_s: float
    """Time from the start of the process to its end."""
    trace: Trace = field(default_factory=Trace)
    facts: ScriptFacts = field(default_factory=ScriptFacts)
    applied: tuple[AppliedKnob, ...] = ()
    compiles: int = 0
    """Graphs that Dynamo compiled before the first counted step."""
    counts: Mapping[str, Counts] = field(default_factory=dict)
    """What was counted, by its kind. Until the end of the measurement: `graph_breaks` of Dynamo by
    their reason, `recompilations` of frames by the frame, `generated_kernels` of Inductor. In each
    of some steps after it: what `gpuadvisor.rules.facts.counts` counts."""

    @property
    def steps(self) -> int:
        return sum(window.steps for window in self.windows)

    @property
    def seconds(self) -> float:
        return sum(window.seconds for window in self.windows)

    @property
    def mean_step_ms(self) -> float:
        """Mean time of a step. The mean, not the median: a loader with n workers delivers in
        bursts of n batches, and only the mean counts the wait for the next burst.
        """
        return 1e3 * self.seconds / self.steps

    def percentile_ms(self, percent: float) -> float:
        """Return a percentile of the step times by linear interpolation."""
        ordered = sorted(self.step_ms)
        position = (len(ordered) - 1) * percent / 100
        low = int(position)
        high = min(low + 1, len(ordered) - 1)
        return ordered[low] + (ordered[high] - ordered[low]) * (position - low)

    @property
    def samples_per_step(self) -> float | None:
        samples = sum(window.samples for window in self.windows)
        return samples / self.steps if samples else None

    @property
    def throughput(self) -> float:
        """Samples a second, or steps a second where samples are not known."""
        return (self.samples_per_step or 1.0) * 1e3 / self.mean_step_ms

    @property
    def throughput_unit(self) -> str:
        return "samples/s" if self.samples_per_step else "steps/s"

    @property
    def energy_j_per_step(self) -> float | None:
        energies = [(w.energy_j, w.steps) for w in self.windows if w.energy_j is not None]
        steps = sum(count for _, count in energies)
        return sum(energy for energy, _ in energies) / steps if steps else None

    @property
    def data_wait_share(self) -> float:
        return sum(w.data_wait_s for w in self.windows) / self.seconds if self.seconds else 0.0

    @property
    def starved_share(self) -> float:
        """Share of the time in which the script waited for its loaders and its device for the
        script: about what is saved where nothing is waited for. A GPU that goes on computing while
        the script waits loses nothing. All of the waiting where that was not measured, as on a CPU.
        """
        idle = self.facts.idle_while_waiting
        return self.data_wait_share * (1.0 if idle is None else idle)

    @property
    def window_step_ms(self) -> tuple[float, ...]:
        """Mean step time of each window that counted any step."""
        return tuple(1e3 * w.seconds / w.steps for w in self.windows if w.steps)

    @property
    def uncertainty(self) -> float:
        """Relative standard error of the mean step time, from the spread of the windows."""
        return self.noise / len(self.window_step_ms) ** 0.5 if self.windows else 0.0

    @property
    def noise(self) -> float:
        """Relative standard deviation of the windows' step times; 0 with fewer than two."""
        values = self.window_step_ms
        if len(values) < 2:
            return 0.0
        from statistics import fmean, stdev  # takes longer to import than most commands need

        return stdev(values) / fmean(values)
