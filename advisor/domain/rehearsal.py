"""A script's shortened life from its start to its end: what the harness saw of it.

A life has a few batches an epoch, two epochs or more, the last of them where it can be reached, and
the script's own evaluation, checkpoints and end. The unchanged script and the plan both live one,
where nothing that they write remains.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from gpuadvisor.domain.knobs import AppliedKnob
from gpuadvisor.domain.study import TrialState


class StateKind(str, Enum):
    """A sort of state that a data set can have."""

    GENERATOR = "generator"
    """A generator of random numbers."""
    VALUE = "value"
    """A number, a text, an array: a counter or a level."""
    CONTAINER = "container"
    """A list, dictionary or set that grew or shrank: a cache, a queue."""
    HANDLE = "handle"
    """An open file or database, whose offset processes share after a fork."""
    ITERATOR = "iterator"
    """A generator function's or another iterator, which can be read once."""

    def __str__(self) -> str:
        return self.value


class Moment(str, Enum):
    """When a data set's state changed, or was seen."""

    READING = "reading"
    """While samples were read in the process that changes it."""
    BETWEEN_EPOCHS = "between_epochs"
    """After the end of one pass and before the first batch of the next."""
    HELD = "held"
    """It is there before the first batch is read."""
    BETWEEN_BATCHES = "between_batches"
    """After one batch of a pass was read and before the next is: by the script, as it steps."""

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class StateChange:
    """A part of a data set that changed, or that workers must not share."""

    loader: int
    """Place of the loader among those that gave batches."""
    epoch: int
    """Pass over the loader, from 0."""
    path: str
    """Attribute path: `dataset.rng`, `collate_fn.alpha`, `global LEVEL`."""
    kind: StateKind
    moment: Moment
    detail: str = ""
    """Type of the object, as its user knows it: `numpy.random.Generator`."""


OF_ITS_WORKER = "its worker"
"""Path of a `PossibleChange` that says that samples may depend on the worker that reads them."""
OF_ITS_TIME = "its time"
"""Path of a `PossibleChange` that says that samples may depend on how long reading them takes."""
COUNTED = "count in "
"""How the path of a `PossibleChange` begins where reading counts in an attribute, and another count
makes another sample."""
LEFT = "left in "
"""How the path of a `PossibleChange` begins where a stream leaves samples in an attribute that it
does not empty, and takes them out in its next pass."""
UNSENT = "what cannot be sent"
"""Path of a `PossibleChange` that says that some samples hold what cannot be pickled."""
ONE_FILE = "one file"
"""Path of a `PossibleChange` that says that samples are written to a file of one name, which
several workers would share."""
CHILDREN = "processes of its own"
"""Path of a `PossibleChange` that says that some samples start processes, which no worker may."""
REPORTED = "what is logged"
"""Path of a `PossibleChange` that says that some samples are logged to what the script keeps in its
own process."""
ATTRIBUTES = "attributes of tensors"
"""Path of a `PossibleChange` that says that some samples are tensors with attributes of the
script's own, without which they arrive from a worker."""
RAISES = "raises "
"""How the path of a `PossibleChange` begins that says which error reading raises for some samples,
where workers give the script another one in its place."""


@dataclass(frozen=True)
class PossibleChange:
    """A part of a data set that its code changes for some samples only, as its source says."""

    loader: int
    """Place of the loader among those that gave batches."""
    path: str
    """Attribute path: `dataset.bad`."""
    code: str
    """The function that changes it: `Scans.__getitem__`."""


@dataclass(frozen=True)
class WorkerStart:
    """Generators of random numbers in a DataLoader worker before it read its first sample."""

    loader: int
    epoch: int
    worker: int
    generators: Mapping[str, str] = field(default_factory=dict)
    """Attribute path (`dataset.rng`, `numpy.random`) to a digest of the state."""
    advanced: tuple[str, ...] = ()
    """Attribute paths of the generators that the first samples drew from."""
    shared_bytes: int | None = None
    """Memory that it still had in common with the script after its first batch; None where that
    is not known."""
    copied_bytes: float | None = None
    """How much of that a batch after the first one copied, in the mean: reading an object writes
    its count of references. None where the worker read one batch only."""


@dataclass(frozen=True)
class Reseeding:
    """One of the process's own generators that reading leaves in one state, whatever is read."""

    loader: int
    path: str
    """`random`, `numpy.random` or `torch`."""
    digest: str
    """Digest of that state."""
    drawn: bool
    """Whether the script draws from it, too, before it reads the next batch."""


@dataclass(frozen=True)
class Batch:
    """One batch as the script got it."""

    parts: tuple[tuple[int, ...], ...]
    """For each part (images, labels, ...) a 64-bit fingerprint of each sample's content, in order;
    one of the whole where a part cannot be divided into samples."""
    moments: tuple[tuple[float, ...], ...] = ()
    """For each part the mean and standard deviation of each sample's values, in turn: mean,
    deviation, mean, ... Empty for a part without floating-point numbers."""
    unpadded: tuple[tuple[tuple[int, int], ...], ...] = ()
    """For each part, for each sample: its fingerprint without what repeats at its ends, as padding
    does, and the bits of the number that repeats. Empty for a part without repetition."""


@dataclass(frozen=True)
class Epoch:
    """One pass over one loader."""

    loader: int
    number: int
    """Pass over this loader, from 0."""
    batches: tuple[Batch, ...]
    rows: int
    """Samples that the script got."""
    whole_batches: int | None
    """Batches of the pass if it were not shortened; None where that is not known."""
    made_s: float
    """Time to make the iterator, which starts the workers."""
    start_s: float
    """From the request for an iterator to the first batch; the making is part of it."""
    seconds: float
    """From the first batch to the end of the pass, without what the harness itself took."""
    steps: int
    """Optimizer steps in it."""
    finished: bool
    """Whether the script read it to its (shortened) end."""
    workers: int = 0
    open_files: int = 0
    """Open files of the process that were added from the first batch to the last."""


@dataclass(frozen=True)
class Call:
    """One call of a root module."""

    input: int
    """A 64-bit fingerprint of its tensors."""
    rows_in: int
    rows_out: int
    grad: bool
    """Whether gradients were on."""
    values: tuple[tuple[float, ...], ...] = ()
    """A few numbers of each row of its outputs, in order."""
    random: int = 0
    """A digest of torch's random number generators after the call."""
    root: int = 0
    """Place of the module among the roots, in the order of their first calls."""
    batch: int = 0
    """Batches that loaders had given before."""
    shapes: tuple[tuple[int | None, ...], ...] = ()
    """Shape of a row of each output; None stands for a length that an input has, too."""
    lengths: tuple[int, ...] = ()
    """The lengths for which None stands, in order."""
    starts: tuple[tuple[float, ...], ...] = ()
    """For each row of outputs with such lengths, numbers at places that do not depend on them, from
    the start on: of a longer output there are more, of which the first are at the same places."""
    steps: int = 0
    """Steps that optimizers took since a pass over a loader began or ended, since the first or
    fourth step, or since a model was switched to evaluation: since weights were last to be those of
    another life."""


@dataclass(frozen=True)
class Update:
    """A step of an optimizer: a few numbers of each of its parameters."""

    gradients: tuple[float, ...]
    """0 where a parameter has none; as many as of `change`, unless a gradient is sparse."""
    change: tuple[float, ...]
    """What the step added to the weights."""
    losses: tuple[float, ...] = ()
    """Losses that were computed on the weights before the step."""
    passes: int = 0
    """Begins and ends of passes before it that followed on steps."""
    counts: tuple[int, ...] = ()
    """How many numbers of `change` are of which parameter."""


@dataclass(frozen=True)
class KeptTensor:
    """A floating-point tensor that a model made in its calls and keeps for later ones."""

    root: int
    """Place of the model among the roots."""
    path: str
    """Attribute path: `encoder.center`."""
    bits: int
    """Bits of each of its numbers."""
    follows: bool
    """Whether it changes by little from call to call, as a sum or a moving average does."""


@dataclass(frozen=True)
class Draw:
    """A generator that modules share, from which the first call of a model drew."""

    root: int
    """Place of the model among the roots."""
    path: str
    """`torch`, `random` or `numpy.random`."""


class LoopKind(str, Enum):
    """What a loop of the script repeats."""

    EPOCHS = "epochs"
    """Passes over the data, or phases, each with several steps."""
    STEPS = "steps"
    """Single steps or calls of the model."""

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Loop:
    """A loop of the script's own that was ended early, or could have been."""

    place: str
    """`train.py, line 40`."""
    kind: LoopKind
    planned: int | None
    """Iterations that the script meant to make; None where it does not say."""
    done: int
    shortened: bool
    seconds: tuple[float, ...] = ()
    """Time of each iteration with several steps, in order."""
    lived: tuple[int, ...] = ()
    """Places of its iterations, from 0, that were lived where it passed over some; else empty."""
    trains: bool = True
    """Whether optimizers took its steps, or backward passes: else they were calls of the model."""


class Touch(str, Enum):
    """What a branch of the script can change that a setting relies on."""

    DATA = "data"
    """What a DataLoader was given, of which workers have a copy."""
    ORDER = "order"
    """A sampler: it stays in the script's process, where workers let it run ahead."""
    MODEL = "model"
    """Weights and layers of a model, or parameters of an optimizer."""
    ROWS = "rows"
    """How many rows are read: it leaves a loop with steps."""
    CLOCK = "clock"
    """How many steps there are in a given time: it leaves their loop when that is over."""
    PASS = "pass"
    """The pass that is going on: another one over the same loader begins within it."""
    WORKERS = "workers"
    """What the script computes of how many workers a loader has; `taken` where it asks."""
    THRESHOLD = "threshold"
    """A number that a model's code compares with, and the script moves."""
    AHEAD = "ahead"
    """How far a sampler is, which is asked ahead where workers read; `taken` where it is asked."""
    CHILDREN = "children"
    """All processes that the script started: the workers of its loaders are among them."""
    STATE = "state"
    """What an optimizer keeps of a parameter, in whose place the script puts something new."""
    ERRORS = "errors"
    """An error that samples are read with: a worker passes on its text alone."""
    ASSERTIONS = "assertions"
    """An error by which a model's code asserts something: once compiled, it raises another."""

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Branch:
    """A branch in the script's own code that was reached again and again as it took steps."""

    place: str
    """`train.py, line 40`."""
    what: str
    """Text of its condition: `bad >= 3`."""
    touches: tuple[Touch, ...]
    taken: bool
    in_pass: bool
    """Whether it was reached during a pass over a loader, and not only between passes."""


@dataclass(frozen=True)
class Numbers:
    """Numbers that stand together in a file: an array, a column, the values of one key."""

    count: int
    """How many there are."""
    values: Sequence[float] = field(repr=False)
    """All of them, or evenly spread ones where they are many."""
    may_be_times: bool = False
    """Whether what they stand beside speaks of time, which a plan is to change."""
    are_texts: bool = False
    """Whether each stands for a text, by its CRC-32: it is the same or another, never near."""


@dataclass(frozen=True)
class WrittenFile:
    """A file that a script wrote in its private view."""

    size: int
    """Size in bytes; -1 where it was there before and was deleted."""
    digest: str = ""
    """Digest of the whole content; empty where it was not read, as it was too large."""
    numbers: Mapping[str, Numbers] | None = None
    """The content by names: of arrays, keys, columns. None where its format is not known."""
    is_text: bool = False
    """Whether people can read it, so that each of its numbers has a meaning of its own."""


@dataclass(frozen=True)
class Life:
    """What the harness saw of one shortened life."""

    state: TrialState
    """`complete` where the script reached its own end with exit status 0."""
    reason: str = ""
    place: str = ""
    """`train.py, line 12` where an exception left the script's own code; else empty."""
    output: str = ""
    """End of what the script printed."""
    wall_s: float = 0.0
    startup_s: float = 0.0
    """From the start to the first step."""
    disturbance: str = ""
    """What else used the machine meanwhile, as a clause; empty where nothing was seen."""
    epochs: tuple[Epoch, ...] = ()
    """Passes in the order in which they began."""
    changes: tuple[StateChange, ...] = ()
    possible: tuple[PossibleChange, ...] = ()
    workers: tuple[WorkerStart, ...] = ()
    reseeded: tuple[Reseeding, ...] = ()
    unseen: tuple[str, ...] = ()
    """Attribute paths of data sets that were too large or too many to look at."""
    calls: tuple[Call, ...] = ()
    probes: tuple[Call, ...] = ()
    """Outputs of each root's first call in training mode, computed once more without gradients in
    evaluation mode: dropout is off, so lives with other random numbers can be compared by them.
    Empty where the model draws none."""
    evaluations: tuple[Call, ...] = ()
    """Outputs of each root's first call in evaluation mode, of models that draw no random numbers:
    what they compute before training amplifies any rounding. Empty where that was not wanted."""
    updates: tuple[Update, ...] = ()
    """The first step of an optimizer in each pass, and the second and the fifth of all."""
    equalled: int = 0
    """How often weights that another life had kept took the place of its own."""
    kept: tuple[KeptTensor, ...] = ()
    """What models made in their calls and keep, at the end of the life."""
    draws: tuple[Draw, ...] = ()
    losses: tuple[float, ...] = ()
    trains: bool = True
    """Whether weights of a model changed, or an optimizer took steps for several batches; true
    where it is not known. Else what gradients were computed of are no losses: those of inputs, and
    inputs that they change, are results."""
    steep: tuple[str, ...] = ()
    """Functions that losses take of numbers with 16 bits and that are steep where those are far
    apart: `Log` of a difference, `Acos`."""
    loops: tuple[Loop, ...] = ()
    branches: tuple[Branch, ...] = ()
    """Branches that can change what settings rely on."""
    failures: tuple[str, ...] = ()
    """What the harness could not do or see in it: `gpuadvisor could not look at a batch: ...`."""
    applied: tuple[AppliedKnob, ...] = ()
    written: Mapping[str, WrittenFile] | None = None
    """Files that it created, changed or deleted; None where that is not known. Their names are
    relative to the working directory, or absolute where they are not in it."""
    most_open_files: int | None = None
    """Most files that the process may have open; None where that is not known."""
    available_bytes: int | None = None
    """Memory that was left on the machine, or to the process's control group, at the end."""
