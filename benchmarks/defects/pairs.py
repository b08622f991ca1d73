"""The pairs: each a program with one defect, and the same without it; and healthy programs.

A pair's name says all of it (`transformer-values_read-3`), and its order is fixed, so that what was
recorded when time was up is as balanced as it can be. Which part it belongs to was decided by a
hash of its seed before anything was measured, three in five for fitting: each defect has as large
a share of them, and no program is on both sides, as one family's is another one's at times.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from catalogue import ALL, DEFECTS
from recipes import Recipe

ROUNDS = 30
"""Seeds of each defect. What `h200.jsonl` has is fitted to, and no test any more."""
HEALTHY = "healthy"
HEALTHY_A_ROUND = 4
BLOCK, FITTED = 5, 3
"""Of so many seeds in a row, as many may be fitted to."""
FIT, HELD_OUT = "fit", "held_out"


@dataclass(frozen=True)
class Pair:
    """One of them."""

    family: str
    defect: str
    """A name of the catalogue, or `healthy`."""
    seed: int

    @property
    def name(self) -> str:
        return f"{self.family}-{self.defect}-{self.seed}"

    @property
    def accepts(self) -> tuple[str, ...]:
        """Rules any of which names the defect."""
        return () if self.defect == HEALTHY else DEFECTS[self.defect].accepts

    @property
    def part(self) -> str:
        """`fit`, or `held_out` where nothing may be fitted to it."""
        return part_of(self.seed)

    def recipe(self, cured: bool) -> Recipe:
        """Return how the program is written, with its defect or without."""
        draw = random.Random(self.name)
        trains = self.family != "inference"
        family = self.family if trains else ("transformer", "convolution")[self.seed % 2]
        base = Recipe(
            family, size=draw.randrange(3), depth=draw.randrange(3, 6), seed=self.seed,
            trains=trains, precision=draw.choice(("bf16", "bf16", "autocast")),
        )  # fmt: skip
        if self.defect == HEALTHY:
            return _with(base, {"size": 2, "precision": "bf16"})
        defect = DEFECTS[self.defect]
        both, bad, good = (_drawn(each, draw) for each in (defect.both, defect.bad, defect.cured))
        return _with(base, both | (good if cured else bad))


def part_of(seed: int) -> str:
    """Return the part that all pairs of a seed belong to."""
    first = seed - seed % BLOCK
    drawn = sorted(range(first, first + BLOCK), key=_hashed)
    return FIT if seed in drawn[:FITTED] else HELD_OUT


def _hashed(seed: int) -> bytes:
    return hashlib.sha256(f"held out or not: {seed}".encode()).digest()


def all_pairs() -> Iterator[Pair]:
    """Yield all of them, each round with each defect once, and a family with every other one."""
    for seed in range(ROUNDS):
        for place, (name, defect) in enumerate(DEFECTS.items()):
            if seed % defect.every == place % defect.every:
                # Each time it has gone through its families it begins one later.
                count = len(defect.families)
                family = defect.families[(seed // defect.every + place) % count]
                yield Pair(family, name, seed)
        first = HEALTHY_A_ROUND * seed
        for place in range(first, first + HEALTHY_A_ROUND):
            yield Pair(ALL[place % len(ALL)], HEALTHY, seed)


def pair_named(name: str) -> Pair:
    """Return the pair of this name; ValueError where there is none."""
    family, defect, seed = name.split("-")
    if defect != HEALTHY and family not in DEFECTS[defect].families:
        raise ValueError(f"no program of {family} has {defect}")
    return Pair(family, defect, int(seed))


def _drawn(choices: Mapping[str, tuple[Any, ...]], draw: random.Random) -> dict[str, Any]:
    return {name: draw.choice(each) for name, each in choices.items()}


def _with(recipe: Recipe, fields: Mapping[str, Any]) -> Recipe:
    return replace(recipe, **fields)
