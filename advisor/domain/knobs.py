"""What can be turned in a script from outside, and what the script itself already does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum

Value = bool | int | float | str
Settings = Mapping[str, Value]
"""Mapping of knob name to value. A knob that is absent is left as the script has it."""

ARGUMENT_PREFIX = "arg:"
"""Prefix of the name of a knob that stands for one of the script's own arguments."""


LONGEST_SHOWN = 60
"""Characters of a value that are shown where there is one line for it."""


def shown_value(value: Value) -> str:
    """Return a value on one line; text of many lines, or of a long one, by how many there are."""
    if isinstance(value, str) and ("\n" in value or len(value) > LONGEST_SHOWN):
        lines = len(value.splitlines())
        return f"{lines} lines" if lines > 1 else "1 line"
    return str(value)


def shown_settings(settings: Settings) -> str:
    """Return settings in words: `compile=True, dataloader_workers=4`."""
    return ", ".join(f"{name}={shown_value(value)}" for name, value in settings.items())


class Level(IntEnum):
    """How far results may move. Each level includes those below it."""

    CONSERVATIVE = 1
    BALANCED = 2
    AGGRESSIVE = 3

    @classmethod
    def parse(cls, text: str) -> Level:
        """Return the level of that name; KeyError if there is none."""
        return cls[text.upper()]

    def __str__(self) -> str:
        return self.name.lower()


class Effect(str, Enum):
    """What a knob may do to the script's results."""

    NONE = "none"
    """Bit-identical but for the order of floating-point sums."""
    NUMERICS = "numerics"
    """Computes the same at another precision or by another algorithm."""
    RANDOM_STREAM = "random_stream"
    """Draws other random numbers of the same distribution: augmentation runs in other workers."""
    TRAINING = "training"
    """Training dynamics change; losses cannot be compared step by step."""

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class LoaderFacts:
    """One `DataLoader` of the script, as the script built it."""

    batch_size: int | None
    """Samples of a batch; None with an own batch sampler, or with no batching."""
    num_workers: int
    pin_memory: bool
    persistent_workers: bool
    prefetch_factor: int | None
    iterable: bool = False
    """True for an `IterableDataset`, whose samples may double when workers are added."""
    place: int = 0
    """Number of its data set among those that the script reads from, in the order of the first
    reading."""


@dataclass(frozen=True)
class ScriptFacts:
    """What the baseline run saw the script do. It decides which knobs make sense."""

    training: bool = True
    """Whether a backward pass was seen; false for inference."""
    device: str = "cpu"
    """Where the first root module's parameters live: `"cuda"` or `"cpu"`."""
    loaders: tuple[LoaderFacts, ...] = ()
    """The loaders that were iterated in the measured steps; the first feeds the most batches."""
    optimizers: tuple[str, ...] = ()
    """Class names of the optimizers, in the order of construction."""
    roots: tuple[str, ...] = ()
    """Class names of the modules that the script calls itself."""
    has_convolution: bool = False
    has_attention: bool = False
    """`scaled_dot_product_attention` or `nn.MultiheadAttention` is used."""
    compiles_itself: bool = False
    """The script calls `torch.compile` or `Module.compile`."""
    autocasts_itself: bool = False
    """The script enters `torch.autocast` itself."""
    scales_itself: bool = False
    """The script uses a `GradScaler`."""
    triton_kernels: tuple[str, ...] = ()
    """Names of Triton kernels that the script or its libraries launched, but for torch's, and for
    launches in code that torch compiled."""
    varying_shapes: bool = False
    """The root's input shapes change between steps."""
    draws_random: bool = False
    """The first root's forward pass draws random numbers (dropout, sampling). Another precision or
    a compiler draws others, so losses then differ as between two seeds."""
    cpu_threads: int | None = None
    """Threads that torch takes for one operation on the CPU, as the script or its environment set
    them; None if not known."""
    own_gpus: str | None = None
    """`CUDA_VISIBLE_DEVICES` as the script set it before its model was called, so that it may
    compute on another GPU than the one it was given; None where it did not."""
    data_wait_share: float | None = None
    """Share of the measured time spent in the loaders' `__next__`, 0 to 1."""
    idle_while_waiting: float | None = None
    """Share of the long waits for batches in which the GPU had nothing left to do, 0 to 1, by CUDA
    events on the stream that is current then; None where it was not measured."""
    unseen: tuple[str, ...] = ()
    """What of the script could not be seen, as sentences: a torch that works in another way, for
    example. Fields above may be wrong for it."""


@dataclass(frozen=True)
class Application:
    """A knob's setting as the target process gets it: what to import there, and the value."""

    knob: str
    applier: str
    """`module:attribute` of an object with `apply(value, target)`."""
    value: Value


@dataclass(frozen=True)
class AppliedKnob:
    """What a knob reports from inside the target process."""

    knob: str
    state: str
    """`effective`, `no_effect` or `refused`."""
    detail: str = ""


class Origin(str, Enum):
    """Where it is known from what a knob brings."""

    PROOF = "proof"
    """The proof, as it is the only knob."""
    FRESH = "fresh_runs"
    """Fresh processes with and without it, beside the other knobs that were kept."""
    LIVE = "one_process"
    """Blocks of steps of one running process, with and without it, beside the other knobs that were
    kept. That is no proof."""
    LOADER = "loader_alone"
    """The script's own loader by itself supplies batches more slowly than a run with the knob took
    them. How much the knob brings was not measured."""
    SEARCH = "search"
    """Not measured beside all that was kept: it is what single runs of the search showed, or not
    even that."""

    @property
    def is_shown(self) -> bool:
        """Whether fresh processes with and without the knob showed it."""
        return self in (Origin.PROOF, Origin.FRESH)

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Contribution:
    """What one kept knob is worth, from taking it out of the best setting alone."""

    knob: str
    value: Value
    ratio: float
    """Time without the knob over time with it; above 1, the knob helps. NaN where nothing shows it.
    """
    low: float | None = None
    high: float | None = None
    """The 99 % interval of `ratio`, where enough runs were made."""
    origin: Origin = Origin.FRESH


@dataclass(frozen=True)
class Snippet:
    """Lines that make a setting permanent in the user's own code."""

    knob: str
    where: str
    """Place where the lines belong, in words: `at the top of the script`."""
    code: str = field(default="")
    language: str = "python"
    """Language of the lines: `python` or `shell`."""
