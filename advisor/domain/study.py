"""A tuning study: its trials, what was concluded, and the plan that keeps it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from gpuadvisor.domain.device import Environment
from gpuadvisor.domain.knobs import Contribution, Level, Settings, Value
from gpuadvisor.domain.loader_supply import LoaderSupply
from gpuadvisor.domain.measurement import Measurement
from gpuadvisor.domain.screening import Screened, ScreenedAs


class TrialState(str, Enum):
    """How one run of the script ended."""

    COMPLETE = "complete"
    PRUNED = "pruned"
    """Stopped early: clearly slower than what was found, or the budget had no room for more. Of the
    unchanged script also: left out, as it cost three times and more what two others did."""
    OUT_OF_MEMORY = "out_of_memory"
    CRASHED = "crashed"
    HUNG = "hung"
    """No step within the time limit."""
    WRONG = "wrong"
    """Results differ from the baseline's by more than the level allows, or are NaN or infinite."""
    NO_EFFECT = "no_effect"
    """A knob found nothing to change."""
    UNSUPPORTED = "unsupported"
    """A knob cannot work on this device or script."""

    def __str__(self) -> str:
        return self.value


class Objective(str, Enum):
    """What is to be improved."""

    THROUGHPUT = "throughput"
    """Samples (else steps) a second: higher is better."""
    LATENCY = "latency"
    """Median step time: lower is better."""
    MEMORY = "memory"
    """Peak memory: lower is better."""
    ENERGY = "energy"
    """Energy a sample (else a step): lower is better."""

    def __str__(self) -> str:
        return self.value

    def cost(self, measurement: Measurement) -> float | None:
        """Return what is to be made small, or None where it was not measured."""
        if self is Objective.THROUGHPUT:
            return 1 / measurement.throughput
        if self is Objective.LATENCY:
            return measurement.percentile_ms(50)
        if self is Objective.MEMORY:
            return float(measurement.peak_memory_bytes)
        energy = measurement.energy_j_per_step
        return None if energy is None else energy / (measurement.samples_per_step or 1.0)


class Verdict(str, Enum):
    """What a study showed of the best settings that it found."""

    FASTER = "faster"
    """A gain was proven, and a rehearsal found the same results, data and end."""
    FASTER_UNVERIFIED = "faster_unverified"
    """A gain was proven, but not enough of the script's life could be rehearsed."""
    NO_GAIN = "no_gain"
    """Shown: whatever gain there is lies below the smallest that is worth having."""
    INCONCLUSIVE = "inconclusive"
    """Neither a gain nor its absence was shown."""
    NOT_TRIED = "not_tried"
    """No setting was measured."""

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Equivalence:
    """Whether a run computed what the baseline computes."""

    status: str
    """`equivalent`, `wrong` or `not_checked`."""
    metric: str
    """What was compared, in words: `mean relative difference of 10 losses`."""
    value: float | None = None
    limit: float | None = None
    reason: str = ""
    """Why it was not checked, or what could be compared in part only."""


@dataclass(frozen=True)
class InTurns:
    """What a step took without and with some settings, in milliseconds, in blocks that followed one
    another: in one process, or in both of a pair."""

    base_ms: float
    head_ms: float

    @property
    def level_ms(self) -> float:
        """Step time of the process, whatever it was started with: what its start, its place in
        memory and its moment do to both sides."""
        return math.sqrt(self.base_ms * self.head_ms)


@dataclass(frozen=True)
class Trial:
    """One run of the script under given settings."""

    number: int
    settings: Settings
    phase: str
    """`baseline`, `search`, `ablation` or `proof`."""
    state: TrialState
    reason: str = ""
    """Why the state is what it is, in one sentence; empty for `complete`."""
    measurement: Measurement | None = None
    equivalence: Equivalence | None = None
    gain: float | None = None
    """Baseline's cost over this trial's on the same GPU; above 1 is better."""
    gpu: int = 0
    wall_s: float = 0.0
    disturbance: str = ""
    """What else used the machine during the run, with figures, as a clause without a full stop;
    empty where nothing was seen."""
    start_saved_s: float | None = None
    """Time by which it began sooner as its process was forked from one that had imported already:
    that of the unchanged script. None for a fresh process."""
    in_turns: InTurns | None = None
    """What both sides of a proof took in this process, after it was measured as it had started, or
    in both processes of its pair, which took turns; None where they were not turned there."""

    @property
    def is_forked(self) -> bool:
        """Whether its process was forked from one that had imported already."""
        return self.start_saved_s is not None


@dataclass(frozen=True)
class Forking:
    """What it was worth to fork trials from a process that has imported already."""

    runs: int
    """Runs that were forked; the one that was compared with fresh processes is among them."""
    saved_s: float
    """Time that their starts took less, without what that process and the comparison took: below 0
    where that was more."""
    why: str = ""
    """Why the others were not forked, as a clause; empty where nothing spoke against it."""


@dataclass(frozen=True)
class Speedup:
    """Ratio of the baseline's cost to the best's, from interleaved fresh processes."""

    ratio: float
    ci99_low: float
    ci99_high: float
    pairs: int
    """Pairs of runs (baseline and best) behind the interval."""
    in_turns: bool = False
    """Whether each run is relative to what both sides took in turns within its process."""


@dataclass(frozen=True)
class Plan:
    """Settings that were proven, as kept in a TOML file."""

    script: str
    args: tuple[str, ...]
    settings: Settings
    speedup: Speedup | None
    level: Level
    objective: Objective
    contributions: tuple[Contribution, ...] = ()
    equivalence: Equivalence | None = None
    environment: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    created: str = ""
    """UTC, ISO 8601."""
    is_module: bool = False
    """Whether `script` is a module, as after `python -m`."""
    study: str = ""
    """Name of the study that made the plan; empty where it is not known."""
    verdict: Verdict | None = None
    """What that study showed: `faster`, or `faster_unverified`. None where it is not known."""


@dataclass(frozen=True)
class Expectation:
    """What a finding promised before the search, and what its knobs then brought."""

    rule: str
    severity: str
    """`info`, `notice`, `warning` or `critical`."""
    summary: str
    low_pct: float | None
    """Least percentage of its time that the run would save; None where it was not estimated."""
    high_pct: float | None
    """Largest such percentage; None where it was not estimated."""
    knobs: tuple[str, ...] = ()
    """Knobs that would try the cure."""
    measured_pct: float | None = None
    """Percentage of the unchanged script's time that they save, from the ablation or the proof;
    below 0 they cost some. None where neither measured it."""
    measured_low_pct: float | None = None
    """Lower end of the 99 % interval of that."""
    measured_high_pct: float | None = None
    """Upper end of the 99 % interval of that."""
    settings: Settings = field(default_factory=dict)
    """Settings with which that was measured, or screened."""
    why: str = ""
    """Why nothing was measured; empty where something was."""
    screened_pct: tuple[float, float, float] | None = None
    """Percentage of the unchanged script's time that `settings` saved, and the ends of its 99 %
    interval, by blocks of steps in one running process, which is no proof; None where that was not
    compared, or something was proven."""
    screened_of_computing: bool = False
    """Whether those blocks had their batch already: `screened_pct` is what they saved of a whole
    step, and a script that waits for its loader may save less, down to nothing."""
    of_foretold_pct: float | None = None
    """Percentage that `settings` saved in their proof of the unchanged script's time in the runs
    that the estimate was made from; in the proof it may take another. None where that is not known.
    """
    cured_too: tuple[str, ...] = ()
    """Rules of the other findings that `settings` cure: what these save is of all of them."""
    together_pct: tuple[float, float] | None = None
    """Least and largest percentage of the run's time that curing those and this would save; None
    where there are no others, or one of them was not estimated."""

    @property
    def is_met(self) -> bool | None:
        """Whether the measured improvement lies in the estimated range, that of all the findings
        which the settings cure; None if one is missing."""
        own = self.low_pct, self.high_pct
        low, high = (self.together_pct or (None, None)) if self.cured_too else own
        if low is None or high is None or self.measured_pct is None:
            return None
        return low <= self.measured_pct <= high


class Aspect(str, Enum):
    """A part of a script's life that a rehearsal compares."""

    BATCHES = "batches"
    """What the script reads: each batch, or the distribution of its samples."""
    SECOND_EPOCH = "second_epoch"
    """What it reads in later passes over its data, and how long they take."""
    DATASET_STATE = "dataset_state"
    """Generators, counters, caches and open files of the data set, before and after reading."""
    ROWS = "rows"
    """How many rows went into and came out of the model."""
    RESULTS = "results"
    """Losses and outputs."""
    FILES = "files"
    """What was written: names and sizes."""
    END = "end"
    """The script's own end, with its exit status."""

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Problem:
    """A difference between the unchanged script's life and that under a plan."""

    aspect: Aspect
    sentence: str
    """What differs, with figures, as a sentence without a full stop."""
    suspects: tuple[str, ...] = ()
    """Knobs that can have caused it, the likeliest first; empty where all can."""
    is_timed: bool = False
    """Whether it is a time alone, which a busy moment of the machine can change."""


@dataclass(frozen=True)
class Dropped:
    """A setting that was left out of the best ones because a rehearsal found a problem with it."""

    knob: str
    value: Value
    problem: Problem


@dataclass(frozen=True)
class Forecast:
    """What a plan means for the script's whole run, from its shortened life."""

    saved_s: float
    """Seconds that the whole run saves; negative where it loses some. Of the known length, or of
    one epoch where the number of epochs is not known."""
    whole_s: float
    """Seconds that the unchanged script's whole run takes."""
    epochs: int | None
    """Epochs of the whole run; None where it has none or their number is not known."""
    later_ratio: float | None
    """Time of a later epoch of the unchanged script over that under the plan."""
    extra_start_s: float
    """Seconds that the plan takes longer until its first step: compilation, workers. Seen once,
    with what earlier runs had left in the compilers' caches."""
    break_even_steps: int | None
    """Steps after which the longer start is earned back; None where it never is."""
    steps: int | None = None
    """Steps of the whole run, where it has no passes over data; None where it has, or their number
    is not known."""


@dataclass(frozen=True)
class Premises:
    """What a rehearsal rests on. Where any of it is different, the rehearsal says nothing."""

    facts: Mapping[str, str]
    """What was run, how, and with which versions: `torch` to `2.7.1`, `arguments` to `--epochs 3`.
    What could not be read is missing."""
    code: Mapping[str, str]
    """Source files that the script may load: path from `root` to a digest of the content."""
    configuration: Mapping[str, str]
    """Small files that it may be configured by: path from `root` to a digest of the content."""
    packages: tuple[str, ...] = ()
    """Packages installed beside the script, with versions: `numpy-2.1.0`."""
    incomplete: str = ""
    """Why the files are not all known, as a clause without a full stop; empty where they are."""
    study: str = ""
    """Name of the study that made the rehearsal; empty until it is stored."""
    made: str = ""
    """Start of that study: UTC, ISO 8601."""


@dataclass(frozen=True)
class Rehearsal:
    """What two shortened lives, the unchanged script's and the plan's, showed."""

    settings: Settings
    covered: tuple[Aspect, ...] = ()
    """What was compared, and agreed unless a problem says otherwise."""
    not_covered: Mapping[Aspect, str] = field(default_factory=dict)
    """What was not compared, and why, as a clause without a full stop."""
    problems: tuple[Problem, ...] = ()
    epochs: int = 0
    """Passes over the training data that both lives had."""
    lived_epochs: tuple[int, ...] = ()
    """Which epochs of the script those were, from 1, where some were passed over; else empty."""
    samples: int = 0
    """Samples of each side that were compared."""
    equivalence: Equivalence | None = None
    """What the losses, outputs and batches say of the results."""
    changes_results: tuple[str, ...] = ()
    """Settings that change results on purpose, so that they are not compared: the script's own
    arguments, the batch size in training."""
    forecast: Forecast | None = None
    wall_s: float = 0.0
    """Time that all lives together took."""
    doubt: str = ""
    """Why the whole run may not be faster though its steps are, as a clause: later epochs, a start
    that is not earned back, or code that no sample reached."""
    doubt_is_timed: bool = False
    """Whether the doubt is of times alone, which a busy moment of the machine can change."""
    wants_time: bool = False
    """Whether lives were cut off, or read few samples, for want of budget."""
    premises: Premises | None = None
    """What it rests on; None until it is stored."""

    @property
    def agrees(self) -> bool:
        """Whether no difference was found; it says nothing of what was not covered."""
        return not self.problems


@dataclass(frozen=True)
class StudyResult:
    """All that a finished (or interrupted) study has to say."""

    study: str
    """Name of the study, unique in the store."""
    script: str
    args: tuple[str, ...]
    environment: Environment
    level: Level
    objective: Objective
    verdict: Verdict
    baseline: Measurement
    best: Measurement | None = None
    """Run of median cost under the best settings; None where nothing better was found."""
    settings: Settings = field(default_factory=dict)
    speedup: Speedup | None = None
    contributions: tuple[Contribution, ...] = ()
    equivalence: Equivalence | None = None
    rehearsal: Rehearsal | None = None
    """The rehearsal of `settings`; None where it came to none."""
    dropped: tuple[Dropped, ...] = ()
    """Settings that earlier rehearsals found a problem with, in the order in which they went."""
    untried: Mapping[str, str] = field(default_factory=dict)
    """Knobs and values (`dataloader_workers`, `compile=max-autotune`) that were not tried, though
    they might have worked, and why."""
    needed_s: float | None = None
    """Time that an inconclusive study would probably still take to be decided."""
    left: tuple[str, ...] = ()
    """Files that are new or changed since the study began, in the working directory and the
    script's folder; relative to the working directory where they are in it."""
    screened: tuple[Screened, ...] = ()
    """Values of knobs that were compared in one running process before the search; those found
    worthless there were not tried again. Empty where nothing was screened."""
    computing_ms: float | None = None
    """Mean step of the unchanged script, in milliseconds, on the batch that it had already, of
    which settings were compared then; None where they were compared of whole steps, or not at all.
    """
    supply: LoaderSupply | None = None
    """How fast the script's loader is by itself, which decided the numbers of workers that were
    tried; None where that was not timed."""
    trials: tuple[Trial, ...] = ()
    forking: Forking | None = None
    """Which trials were forked; None where that was not asked."""
    expectations: tuple[Expectation, ...] = ()
    """What the diagnosis of the unchanged script promised, the most expensive first."""
    no_effect: Mapping[str, str] = field(default_factory=dict)
    """Knobs that did nothing or could not work, and why."""
    notes: tuple[str, ...] = ()
    """Sentences the user should read: what was not measured, what to watch."""
    plan: str | None = None
    """Path of the plan; None where there is no gain."""
    interrupted: str = ""
    """Why it ended early; empty otherwise."""
    started: str = ""
    """UTC, ISO 8601."""
    wall_s: float = 0.0
    is_module: bool = False
    """Whether `script` is a module, as after `python -m`."""
    verifies: str | None = None
    """Path of the plan that was verified; None where settings were searched."""

    @property
    def spared(self) -> dict[str, Screened]:
        """Knobs that no run tried as the screening found them worthless, to their best value."""
        tried = {name for trial in self.trials for name in trial.settings}
        worthless = [each for each in self.screened if each.state is ScreenedAs.WORTHLESS]
        worthless.sort(key=lambda each: each.ratio.ratio if each.ratio else 0.0)
        return {
            each.knob: each
            for each in worthless
            if each.knob not in tried and each.knob not in self.untried
        }

    @property
    def was_in_proof(self) -> bool:
        """Whether the proof of `settings` was begun; it may have failed, or never ended."""
        proofs = (trial for trial in self.trials if trial.phase == "proof")
        return any(trial.settings == self.settings for trial in proofs)
