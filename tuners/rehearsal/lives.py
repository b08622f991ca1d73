"""The lives that are compared, what is asked of them, and what is found."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from gpuadvisor.domain.knobs import ARGUMENT_PREFIX, Effect, Settings
from gpuadvisor.domain.rehearsal import Call, Epoch, Life, Moment, StateKind
from gpuadvisor.domain.study import Aspect, Problem, TrialState
from gpuadvisor.tuners.base import Knob
from gpuadvisor.tuners.equivalence import SPREAD_FACTOR
from gpuadvisor.tuners.rehearsal.outputs import outputs_apart, probes_apart

FEWER_DIGITS = frozenset({"bf16_autocast", "fp16_autocast", "tf32"})
"""Settings under which matrix products have fewer digits."""
Key = tuple[int, int]
"""A loader and the number of a pass over it."""


@dataclass(frozen=True)
class Lives:
    """The lives that are compared."""

    first: Life
    """The unchanged script's."""
    second: Life
    """The unchanged script's again, with the same seed."""
    plan: Life
    """The script's under the settings."""
    step_ms: tuple[float, float] | None = None
    """Step times of the unchanged script and under the plan, as trials measured them."""
    numerics: Life | None = None
    """The script's under those of the settings that leave its data alone, where the plan reads
    other random samples: what both compute from the same input can be compared only there."""
    nudged: Callable[[float], Life | None] | None = None
    """Gives the unchanged script's life with weights that were changed at random by a relative
    amount before the first call, or None where that has no room: what rounding of that size
    becomes in the course of training. It is asked for only where the plan's life differs late."""
    reseeded: Callable[[], Life | None] | None = None
    """Gives the unchanged script's life with other random numbers from the models' first call on,
    or None where that has no room: how far the draws of a model alone move what is written."""
    other: Callable[[float, bool], Life | None] | None = None
    """Gives the unchanged script's life as another model's: with weights that were changed by so
    much of their size, and other random numbers of all kinds if so asked. None where it has no
    room. What is the same in it does not come from what a model computes."""
    on_equal_weights: Callable[[], Life | None] | None = None
    """Gives the plan's life with the weights of the second life at the begin and end of each pass,
    or None where that has no room: what it computes on them, whatever training makes of them."""
    precise: Callable[[], Life | None] | None = None
    """Gives the unchanged script's life on these weights, with what the settings round otherwise
    computed in more digits, or None where that has no room or could not be applied; itself None
    for settings that have no such value."""
    third: Life | None = None
    """The unchanged script's once more, after the plan's: to see what others that use the machine
    at times make of passes that last milliseconds."""

    @property
    def unchanged(self) -> tuple[Life, ...]:
        """The unchanged script's lives whose times can be compared."""
        return tuple(filter(None, (self.first, self.second, self.third)))


def draws_samples_at_random(life: Life) -> bool:
    """Say whether a life's samples came from generators of random numbers as they were read."""
    reading = (c.moment is Moment.READING and c.kind is StateKind.GENERATOR for c in life.changes)
    return any(reading) or any(start.advanced for start in life.workers)


def draws_alike(ours: Life, theirs: Life, tolerance: float) -> bool:
    """Say whether models draw the same random numbers in both lives.

    As many were drawn up to each call, and what a model computes before training agrees as well as
    it does in evaluation mode. Of a script that does not train all outputs show that, even if
    something else draws more numbers.
    """
    rounding = probes_apart(ours, theirs) or 0.0
    limit = max(tolerance, SPREAD_FACTOR * rounding)
    if not ours.losses:
        apart = outputs_apart(ours.calls, theirs.calls)
        return apart is not None and apart[0] <= limit
    # Training amplifies rounding from its first step on.
    learning = [[call for call in life.calls if call.grad][:1] for life in (ours, theirs)]
    apart = outputs_apart(*learning)
    alike = apart is not None and apart[0] <= limit
    return alike and _as_many_drawn(ours.calls, theirs.calls)


def _as_many_drawn(ours: Sequence[Call], theirs: Sequence[Call]) -> bool:
    """Say whether the generators' states after calls are the same."""
    return all(a.random == b.random for a, b in zip(ours, theirs, strict=False))


@dataclass
class Findings:
    """What a comparison of lives has found so far; each aspect adds to it."""

    lives: Lives
    settings: Settings
    knobs: Mapping[str, Knob]
    tolerance: float
    covered: list[Aspect] = field(default_factory=list)
    not_covered: dict[Aspect, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    samples: int = 0
    moved: bool = False
    """Whether the plan's life read other random samples, or the same ones in another order."""
    doubt: str = ""
    """Why the whole run may not be faster under the plan, or not the same, though this life is."""
    doubt_is_timed: bool = False
    """Whether the doubt is of times alone."""
    cut: str = ""
    """Why the unchanged script's lives did not come to their end; empty if they did."""

    def problem(
        self,
        aspect: Aspect,
        sentence: str,
        suspects: Iterable[str] = (),
        *,
        is_timed: bool = False,
    ) -> None:
        """Note a difference, with the settings that reach so far: those of the data last."""
        reach = [n for n in self.settings if n in self.knobs and aspect in self.knobs[n].reaches]
        data = self.loader_knobs
        reach.sort(key=lambda name: name in data)
        if aspect is Aspect.RESULTS and not self.moved:
            reach = [name for name in reach if name not in data] or reach
        named = tuple(name for name in suspects if name in self.settings) or tuple(reach)
        if not any((p.aspect, p.suspects) == (aspect, named) for p in self.problems):
            self.problems.append(Problem(aspect, sentence, named, is_timed))

    def data_problem(self, aspect: Aspect, sentence: str) -> None:
        """Note a difference that only settings of how data is read can have caused."""
        self.problem(aspect, sentence, self.loader_knobs)

    def lacks(self, aspect: Aspect, why: str) -> None:
        """Note why an aspect could not be compared, unless a reason is known."""
        self.not_covered.setdefault(aspect, why)

    @property
    def loader_knobs(self) -> list[str]:
        """The settings that change how data is read."""
        names = (n for n in self.settings if n in self.knobs)
        return [name for name in names if Aspect.BATCHES in self.knobs[name].reaches]

    @property
    def changing(self) -> list[str]:
        """The settings that change results on purpose."""
        return [
            name
            for name in self.settings
            if name.startswith(ARGUMENT_PREFIX)
            or (self.knobs[name].effect is Effect.TRAINING and self.lives.first.losses)
        ]

    @property
    def is_redrawn(self) -> bool:
        """Whether other random numbers are a reason for other results: those of samples, or of a
        model with dropout."""
        return self.other_samples or self.model_redraws

    @property
    def other_samples(self) -> bool:
        """Whether results are known only of a life that read other samples, or another order."""
        return self.moved and self.lives.numerics is None

    @property
    def lacks_same_samples(self) -> bool:
        """Whether settings compute otherwise, too, and no life read the unchanged script's random
        samples under these alone: it had no room, or did not come to its end."""
        computes = 0 < len(self.loader_knobs) < len(self.settings)
        return computes and self.other_samples and draws_samples_at_random(self.lives.first)

    @cached_property
    def model_redraws(self) -> bool:
        """Whether the model draws random numbers, as dropout does, and others under the plan."""
        first, plan = self.lives.first, self.lives.numerics or self.lives.plan
        return bool(first.probes) and not draws_alike(first, plan, self.tolerance)

    @property
    def is_one_by_one(self) -> bool:
        """Whether results are compared output by output, so that random numbers explain nothing:
        those of a script that does not train, and whose model draws as it does."""
        return not self.lives.first.losses and not self.model_redraws

    @property
    def rounding(self) -> list[str]:
        """The settings that compute at another precision, or by another algorithm."""
        names = (n for n in self.settings if n in self.knobs)
        return [name for name in names if self.knobs[name].effect is Effect.NUMERICS]

    @property
    def has_fewer_digits(self) -> bool:
        """Whether the settings compute matrix products with fewer digits."""
        return not FEWER_DIGITS.isdisjoint(self.settings)

    @property
    def is_resized(self) -> bool:
        return any(self.knobs[n].progressive for n in self.settings if n in self.knobs)


def is_complete(life: Life) -> bool:
    """Say whether a life came to its own end, with exit status 0."""
    return life.state is TrialState.COMPLETE


def ending(life: Life) -> str:
    """Return how a life ended otherwise, as a predicate: `failed: KeyError (train.py, line 3)`."""
    where = f" ({life.place})" if life.place else ""
    if life.state is TrialState.HUNG:
        made = f", in which it made {steps:,} steps" if (steps := steps_of(life)) else ""
        return f"did not end within {life.wall_s:.0f} s{made}"
    return f"failed: {life.reason}{where}".rstrip(": ")


def steps_of(life: Life) -> int:
    """Return how many steps a life took as it read its data; of one without passes, its losses."""
    return sum(each.steps for each in life.epochs) or len(life.losses)


def training_passes(life: Life) -> list[Epoch]:
    """Return the passes in which the optimizer stepped; all where it never did."""
    trained = [each for each in life.epochs if each.steps]
    return trained or list(life.epochs)


def passes_of(life: Life) -> dict[Key, Epoch]:
    """Return the passes of which something was read, but for one that a life's end cut off."""
    passes = {(each.loader, each.number): each for each in life.epochs if each.batches}
    if life.state is TrialState.HUNG:
        passes = {key: each for key, each in passes.items() if each.finished}
    return passes


def parts_of(epoch: Epoch) -> range:
    """Return the places of the parts that all batches of a pass have."""
    return range(min((len(batch.parts) for batch in epoch.batches), default=0))


def stream(epoch: Epoch, part: int) -> list[int]:
    """Return the fingerprints of a part of all samples of a pass, in order."""
    return [one for b in epoch.batches if part < len(b.parts) for one in b.parts[part]]


def streams(life: Life, loader: int, part: int) -> list[list[int]]:
    """Return the fingerprints of a part in each of a loader's passes, in order."""
    return [stream(each, part) for (place, _), each in passes_of(life).items() if place == loader]


def moments_of(epoch: Epoch, part: int) -> list[list[float]]:
    """Return the means and the deviations of a part of all samples of a pass."""
    flat = [m for batch in epoch.batches if part < len(batch.moments) for m in batch.moments[part]]
    return [flat[0::2], flat[1::2]]


def is_whole(life: Life) -> bool:
    """Say whether a life was the script's whole run, with nothing of it left out."""
    cut = any(loop.shortened for loop in life.loops)
    short = any(
        each.whole_batches is None or len(each.batches) < each.whole_batches for each in life.epochs
    )
    return is_complete(life) and not cut and not short
