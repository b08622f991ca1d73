"""What the parent tells the process of the script: one JSON text in one environment variable."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from gpuadvisor.domain.knobs import Application

VARIABLE = "GPUADVISOR_SPECIFICATION"
"""The environment variable that carries it, inherited by every process the script starts."""
HASH_SEED = "PYTHONHASHSEED"
"""The environment variable that says how an interpreter hashes texts; without it by chance."""


@dataclass(frozen=True)
class Schedule:
    """When a run is warm, how long it is measured, and when it may end."""

    warmup_steps: int = 4
    """The least steps before the first counted one."""
    warmup_s: float = 1.0
    """The least time from the first step to the first counted one."""
    quiet_steps: int = 3
    """Steps without a compilation before the first counted one: CUDA graphs are recorded on the
    second run after a compilation and replayed from the third."""
    queue_limit: int = 64
    """The most steps that are skipped because the loaders had prefetched batches."""
    measure_s: float = 4.0
    min_steps: int = 20
    window_s: float = 0.5
    drift: float = 0.05
    """When the halves of the measurement differ by more, windows of the first half that are unlike
    those after are dropped and as many are measured again, at most twice."""
    max_measure_s: float = 60.0
    count_doubtful: bool = False
    """Whether forward passes in a script that may yet begin to train are steps."""


@dataclass(frozen=True)
class Shortening:
    """How a script's life is shortened, and where the process writes what it saw of it."""

    record: str
    """Folder for one file of JSON lines a process."""
    batches: int = 16
    """Batches of a pass over a loader after which it ends."""
    steps: int = 64
    """Steps of a loop without a loader after which it ends."""
    epochs: int = 2
    """Iterations of a loop over epochs that it begins with."""
    later: int = 0
    """Most iterations of a loop over a range that are lived after those: its last, and turning
    points that the script's text speaks of."""
    fewer_samples: bool = False
    """Whether data sets that allow it are made smaller as their loaders are built, and not only
    passes over them shorter."""
    ends_after: int = 0
    """Steps of optimizers after which the life is ended by force, as the script has no end of its
    own; 0 for none."""
    nudge: float = 0.0
    """Relative size of random changes that are made to the weights before the first call: what
    rounding of that size becomes in the script's life."""
    redraws_data: bool = False
    """Whether the specification's `reseed` is for numpy and `random` as well."""
    evaluate: bool = True
    """Whether a model's first call is computed once more in evaluation mode."""
    weights: str = ""
    """Folder for the weights at each begin and end of a pass, after some of the first steps, and
    before an evaluation within a pass; empty where none are kept."""
    takes_weights: bool = False
    """Whether those that another life kept there take the place of its own."""
    hashes_apart: bool = False
    """Whether interpreters that the script starts hash texts otherwise than its own process, as
    they do without `$PYTHONHASHSEED`."""


@dataclass(frozen=True)
class Specification:
    """How to run and observe one script."""

    applications: tuple[Application, ...] = ()
    events: str | None = None
    """Path of the pipe for events; None to apply settings and observe nothing."""
    parent: int = 0
    """Process id of gpuadvisor: when it is gone, the script's process ends too."""
    reseed: int | None = None
    """Seed for torch, numpy and `random`, just before the first root is called: a script that seeds
    itself still draws other random numbers from there on. In a shortened life, for torch alone
    unless that `redraws_data`: the data stay as they are."""
    seed: int | None = None
    """Seed for `random`, numpy and torch; None to leave them alone."""
    cores: tuple[int, ...] = ()
    """CPU cores to keep to; empty for all."""
    visible_gpus: str | None = None
    """`CUDA_VISIBLE_DEVICES` that the script was started with; None where it was left alone."""
    samples_per_step: float | None = None
    """Given by the user; else it is read from the loader's batches or the root's input."""
    schedule: Schedule = field(default_factory=Schedule)
    turns: str | None = None
    """Path of the named pipe through which the process gets its turns where another run is measured
    at the same time, each in blocks of `schedule.window_s`; None where it is alone."""
    line: str | None = None
    """Path of the named pipe through which the process is told to be measured, where another run
    starts at the same time: until then it waits with its steps; None where it is alone."""
    begins_early: bool = False
    """Whether gpuadvisor is still busy getting ready: after its first step the process waits until
    it is not."""
    stay: bool = False
    """Let the script go on to its own end when there is enough."""
    leaves: bool = False
    """Leave when there is enough, as a wrapper waits for the process's end; else wait to be ended
    together with all that the script has started."""
    reads_between: tuple[float, float] | None = None
    """Report the files that the script opens for reading before its first counted step, if they
    are in its working directory and were last changed between these times, in seconds since the
    epoch; None to look at no file."""
    shortening: Shortening | None = None
    """Shorten the script's life and write down what it does; None to measure its steps."""
    notes: str | None = None
    """Path for the names of the modules that the script imports before its model is first called;
    None to note none."""
    template: Mapping[str, str | int] | None = None
    """Wait as a template of runs: `imports` is the path of such names, `orders` and `answers` are
    descriptors to read and write. None for a run."""

    def to_json(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Specification:
        data = json.loads(text)
        data["applications"] = tuple(Application(**item) for item in data["applications"])
        data["cores"] = tuple(data["cores"])
        data["schedule"] = Schedule(**data["schedule"])
        if data["shortening"] is not None:
            data["shortening"] = Shortening(**data["shortening"])
        if data["reads_between"] is not None:
            data["reads_between"] = tuple(data["reads_between"])
        return cls(**data)
