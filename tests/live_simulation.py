"""A script that never runs, whose knobs are turned between blocks of steps: a clock and a noise.

The real `gpuadvisor.tuners.screening` runs on it, hundreds of times in seconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from gpuadvisor.domain.knobs import Settings
from gpuadvisor.domain.screening import Block, BlockTime, ScreeningResult
from gpuadvisor.tuners.loader.ceiling import CACHED
from gpuadvisor.tuners.screening.course import screen
from gpuadvisor.tuners.space import Space
from tests import simulation
from tests.simulation import Noise

Model = Callable[[Settings], "float | str"]
"""The step of settings in ms, or why the process ends under them."""
LEAST_STEPS = 4
SETTLING_STEPS = 3
"""Steps of a block that are not timed."""


@dataclass
class LiveScript:
    """Runs blocks in a time of its own."""

    model: Model
    noise: Noise = field(default_factory=simulation.quiet)
    compile_s: Callable[[Settings], float] = lambda settings: 0.0
    """Time of the first steps with settings that the process has not had yet."""
    start_s: float = 10.0
    """Time until a process is warm."""
    limit_s: float = math.inf
    """Time after which nothing is left."""
    now_s: float = 0.0
    blocks: list[Block] = field(default_factory=list)
    starts: int = 0
    _had: set[frozenset[tuple[str, object]]] | None = None

    def left_s(self) -> float:
        return self.limit_s - self.now_s

    def run(self, block: Block) -> BlockTime:
        self.blocks.append(block)
        if self._had is None:
            self._had, self.starts = set(), self.starts + 1
            self.now_s += self.start_s
        step_ms = self.model(block.settings)
        if isinstance(step_ms, str):
            self._had = None
            return BlockTime(math.nan, failed=step_ms)
        # What is compiled takes any batch.
        key = frozenset(each for each in block.settings.items() if each[0] != CACHED)
        cost_s = SETTLING_STEPS * step_ms / 1e3
        if key not in self._had:
            self._had.add(key)
            cost_s += self.compile_s(block.settings)
        steps = max(LEAST_STEPS, math.ceil(block.seconds / (step_ms / 1e3)))
        lasts_s = steps * step_ms / 1e3
        if isinstance(self.noise, simulation.Neighbour):
            self.noise.startup_s, self.noise.measure_s = cost_s, lasts_s
        factors = next(self.noise)
        idle = tuple(sorted(self.idle & block.settings.keys()))
        factor = sum(factors) / len(factors) / self.mean
        self.now_s += cost_s + factor * lasts_s
        return BlockTime(factor * step_ms, steps, cost_s, idle=idle)

    idle: frozenset[str] = frozenset()
    """Knobs that find nothing to change."""
    mean: float = 1.0
    """What the noise is around."""


def screened(
    script: LiveScript, space: Space, seed: str = "", **options: object
) -> ScreeningResult:
    """Run a screening to its end."""
    screening = screen(space, script.left_s, seed=seed, **options)
    blocks: Sequence[Block] = next(screening)
    while True:
        try:
            blocks = screening.send([script.run(block) for block in blocks])
        except StopIteration as end:
            return end.value
