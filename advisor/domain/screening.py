"""Blocks of steps of one running script, between which knobs are turned: asked for, and told.

What follows from them decides what fresh processes begin with. It is never a gain by itself.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias, TypeVar

from gpuadvisor.domain.knobs import Contribution, Settings, Value

Concluded = TypeVar("Concluded")


@dataclass(frozen=True)
class Block:
    """Steps in a row under the same settings, timed after a few that are not."""

    settings: Settings = field(default_factory=dict)
    """Knobs that are turned on for it; all others are off."""
    seconds: float = 1.0
    """Least time that is timed. It has four steps at least."""
    most_s: float = math.inf
    """Time from its order after which it is given up, and with it the process."""


@dataclass(frozen=True)
class BlockTime:
    """How long the steps of a block took."""

    step_ms: float
    """Mean time of a step, in milliseconds; NaN where it failed."""
    steps: int = 0
    """Steps that were timed."""
    cost_s: float = 0.0
    """Time from the order to the first timed step: turning, compiling, settling."""
    failed: str = ""
    """Why there is no time, as a sentence; empty if there is one."""
    idle: tuple[str, ...] = ()
    """Knobs that were on for it and have found nothing to change."""


Screening: TypeAlias = Generator[Sequence[Block], Sequence[BlockTime], Concluded]
"""Yields blocks to run in this order, is sent what they took, and returns what follows from it."""


@dataclass(frozen=True)
class Ratio:
    """Time of a step without something over that with it, within one process; above 1 is better."""

    ratio: float
    low: float
    high: float
    """Ends of the 99 % interval."""
    pairs: int
    """Pairs of blocks behind it."""


class ScreenedAs(str, Enum):
    """What a screening found out about a value of a knob."""

    KEPT = "kept"
    """It is part of the best settings."""
    GAINS = "gains"
    """It brought something, and there was no time to compare it beside the best settings."""
    WORTHLESS = "worthless"
    """Shown: what it brings lies below the smallest gain worth having; if that was not beside the
    best settings, so would the same time saved there."""
    UNRESOLVED = "unresolved"
    """Neither was shown."""
    FAILED = "failed"
    """The script did not run with it, or ended."""
    NO_EFFECT = "no_effect"
    """It found nothing to change in the script."""

    def __str__(self) -> str:
        return self.value


class Later(str, Enum):
    """What fresh processes said of what a screening had found out about a value."""

    CONFIRMED = "confirmed"
    """Its whole interval agrees: a gain, or less than the smallest gain worth having."""
    REFUTED = "refuted"
    """Its whole interval contradicts."""

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Screened:
    """What blocks of steps say of one value of a knob."""

    knob: str
    value: Value
    state: ScreenedAs
    ratio: Ratio | None = None
    """What it brought when it was last compared; None where it was not."""
    beside: Settings = field(default_factory=dict)
    """Settings that the script had besides, with and without it."""
    seconds: float = 0.0
    """Time that all comparisons of it took."""
    why: str = ""
    """Why it failed or was not resolved, as a clause; empty else."""
    later: Later | None = None
    """What the study's proof or ablation said of it; None where they showed neither."""
    of_computing: bool = False
    """Whether its ratio is of the computing alone, as the script had its batch already: a step that
    waits for its loader gains less."""


@dataclass(frozen=True)
class ScreeningResult:
    """What a screening leaves to the processes that come after it."""

    values: tuple[Screened, ...] = ()
    """Each value of each knob, in the order in which the screening had them."""
    settings: Settings = field(default_factory=dict)
    """The best combination; empty where nothing paid."""
    ratio: Ratio | None = None
    """What the best combination brings over the unchanged script, or over its computing alone; None
    where that was not timed."""
    contributions: tuple[Contribution, ...] = ()
    """What each of its knobs brings beside the others, where that was timed."""
    step_ms: float | None = None
    """Mean step of the unchanged script, in milliseconds, or of its computing alone; None where it
    could not be timed."""
    seconds: float = 0.0
    """Time that all blocks took."""
    why: str = ""
    """Why the screening ended early, as a clause; empty where it did not."""
    loaders: Ratio | None = None
    """What all knobs of the loaders can bring at most: time of a step over that of one with the
    batch that is there already. None where that was not timed."""
    of_computing: bool = False
    """Whether all was timed on the batch that is there already: a value's worth is its worth for
    the computing alone."""
    put_off: bool = False
    """Whether what takes long to compile was put off, as the best deserved its proof before."""
    is_limited: bool = False
    """Whether the rest was left for last, as the loader is the limit of a step that computes so."""

    @property
    def kept(self) -> dict[str, Ratio]:
        """What each knob of the best settings brought when it was added."""
        kept = [each for each in self.values if each.state is ScreenedAs.KEPT]
        return {each.knob: each.ratio for each in kept if each.ratio}

    @property
    def brought(self) -> dict[str, float]:
        """What each knob of the best settings brings beside the others, or brought when it was
        added."""
        added = {name: ratio.ratio for name, ratio in self.kept.items()}
        return added | {each.knob: each.ratio for each in self.contributions}

    def of(self, state: ScreenedAs) -> dict[str, list[Value]]:
        """Return the values of each knob that were found to be so."""
        found: dict[str, list[Value]] = {}
        for each in self.values:
            if each.state is state:
                found.setdefault(each.knob, []).append(each.value)
        return found
