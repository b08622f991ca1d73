"""How studies of five minutes end where a run of the script takes a quarter of a minute.

    python benchmarks/five_minutes.py [--seconds 300] [--seeds 8] [--first 0] [--jobs 1] [--only X]

Whole studies of the real `tune` on simulated machines: six have the numbers of public scripts that
were tuned for five minutes on H200s, the others are drawn by chance, with starts of 10 to 20 s.
Each row tells how studies end, how much of what the best settings bring they are proven to have,
when the first gain was proven, and how long they took. Nothing is measured here: time passes on
the machines' own clocks, and a study takes about half a second.
"""

from __future__ import annotations

import math
import statistics
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

sys.path.insert(0, str(Path(__file__).parents[1]))

from simulated_studies import arguments, studied

from gpuadvisor.collectors.script.child.live_blocks import LEAST_STEPS, SETTLING_STEPS
from gpuadvisor.domain.finding import Diagnosis
from gpuadvisor.domain.knobs import LoaderFacts
from gpuadvisor.domain.screening import BlockTime
from gpuadvisor.domain.study import Verdict
from gpuadvisor.tuners.proof import is_faster
from tests.study_simulation import CACHED, FACTS, SLOW, STEPS_S, Machine
from tests.unit.tuning.test_study import finding

LIVES = (1.05, 1.1, 1.1, 1.15, 1.2, 1.3)
"""Times a fresh run that a life takes beside its steps: nine rehearsals of four public scripts on
H200s and CPUs took 1.03 to 1.25."""
TARGET_S = 180.0
"""Time within which a gain is to be proven first."""


class Public(Machine):
    """A script whose lives take as long as those of public scripts: a start, and their steps."""

    lived = 1.12
    within = 0.02
    cores = 16
    level = 1.0
    """Times what blocks take of a quiet process that those of the one that runs take."""

    def factor(self) -> float:
        self.level = super().factor()
        return self.level

    def run_in_turns(self, request: Any, live: Any, start: Any, blocks: Any, *meters: Any) -> Any:
        """Run what times both sides in turns after it was measured."""
        outcome, told = self.run(request, *meters, start), []
        for block in blocks:
            noise = self._random.lognormvariate(0, self.within)
            ms = self.level * noise * self.step_ms(block.settings)[0]
            steps = max(LEAST_STEPS, math.ceil(1e3 * block.seconds / ms))
            self.now_s += (SETTLING_STEPS + steps) * ms / 1e3
            told.append(BlockTime(ms, steps))
        return outcome, told

    def life(self, request: Any, shortening: Any) -> Any:
        names = {each.knob for each in request.specification.applications}
        epochs = shortening.epochs + shortening.later
        steps_s = epochs * shortening.batches * self.step_ms({})[0] / 1e3
        warm_s = self.warm_s if SLOW & names else 0.0
        self.life_s = self.lived * (self.start_s + STEPS_S) + steps_s + warm_s
        return super().life(request, shortening)


class MinGPT(Public):
    """minGPT's `chargpt.py`: 2,660 kernels a step, most of whose time goes into launching them."""

    start_s, imports_s, compiles_s, warm_s = 9.8, 8.7, 28.0, 9.0
    between, computed_ms, loaded_ms = 0.12, 21.0, 2.0
    brings: ClassVar = {"compile_cudagraphs": 2.95, "compile": 1.3, "fused_optimizer": 1.03}
    facts = replace(FACTS, has_convolution=False)
    diagnosis = Diagnosis(
        (finding("launch_bound", 43, 74, ("compile_cudagraphs", "compile", "fused_optimizer")),),
        busy_ms=9.0,
    )


class NanoGPT(Public):
    """nanoGPT's `train.py` in bfloat16, which only compiling makes faster."""

    start_s, imports_s, compiles_s, warm_s = 9.5, 6.0, 30.0, 8.0
    between, computed_ms, loaded_ms = 0.015, 34.3, 0.0
    brings: ClassVar = {"compile": 1.26, "compile_cudagraphs": 1.24}
    facts = replace(FACTS, has_convolution=False, loaders=(), autocasts_itself=True)
    diagnosis = Diagnosis((finding("type_conversions", 5, 11, ("compile",)),), busy_ms=33.0)


class Inference(Public):
    """timm's `inference.py` over pictures, with two workers."""

    start_s, workers = 11.0, 2
    between, uneven, computed_ms = 0.17, 0.15, 8.0
    brings: ClassVar = {"channels_last": 1.2, "bf16_autocast": 1.3}
    facts = replace(
        FACTS, training=False, optimizers=(), loaders=(LoaderFacts(256, 2, True, False, 2),)
    )

    def supply_ms(self, workers: int) -> float:
        return {1: 170.0, 2: 86.0, 4: 50.0, 8: 24.0}.get(workers, 14.0)


class Pets(Public):
    """accelerate's `complete_cv_example.py`, whose four workers read pictures."""

    start_s, imports_s = 10.0, 3.3
    between, uneven, computed_ms = 0.12, 0.15, 24.0
    brings: ClassVar = {"channels_last": 1.05}
    facts = replace(FACTS, autocasts_itself=True)

    def supply_ms(self, workers: int) -> float:
        return {1: 290.0, 2: 145.0, 4: 74.0, 8: 40.0}.get(workers, 28.0)


class Detection(Public):
    """SSD300 of a tutorial (sgrvinod): four uneven workers, runs that differ by 29 %."""

    start_s, compiles_s, warm_s = 14.5, 37.0, 3.0
    between, uneven, computed_ms = 0.13, 0.15, 48.0
    brings: ClassVar = {"compile": 0.95, "tf32": 1.05, "fused_optimizer": 0.97}

    def supply_ms(self, workers: int) -> float:
        return {1: 330.0, 2: 165.0, 4: 86.0, 8: 60.0}.get(workers, 58.0)


class Autoencoder(Public):
    """Lightning's autoencoder example, which nothing makes faster that is tried."""

    start_s, compiles_s, warm_s, workers = 13.5, 5.0, 2.0, 0
    between, uneven, computed_ms = 0.1, 0.15, 3.6
    brings: ClassVar = {"fused_optimizer": 1.1, "compile": 0.87, "compile_cudagraphs": 1.03}
    facts = replace(FACTS, has_convolution=False, loaders=(LoaderFacts(256, 0, False, False, 2),))

    def supply_ms(self, workers: int) -> float:
        return 2.3 if workers < 1 else 3.4

    def step_ms(self, settings: Any) -> tuple[float, float]:
        computed, _ = super().step_ms({**settings, CACHED: True})
        waits = 0.0 if CACHED in settings else 2.3
        return computed + waits, waits


class Drawn(Public):
    """A machine by chance: what brings something, how far runs differ, how long they start."""

    def __init__(self, seed: str) -> None:
        super().__init__(seed)
        choose = self._random.choice
        self.start_s = choose((10.0, 12.0, 15.0, 20.0)) - 2.0
        self.imports_s = choose((0.0, 0.6, 0.8)) * self.start_s
        self.between = choose((0.01, 0.03, 0.06, 0.12))
        self.lived = choose(LIVES)
        self.compiles_s, self.warm_s = choose(((15.0, 4.0), (30.0, 8.0), (45.0, 12.0)))
        self.computed_ms = choose((10.0, 30.0, 100.0))
        self.brings = self._drawn(choose)

    def _drawn(self, choose: Any) -> dict[str, float]:
        return {
            "channels_last": choose((0.9, 1.0, 1.15, 1.3)),
            "bf16_autocast": choose((0.95, 1.0, 1.2, 1.5)),
            "fused_optimizer": choose((1.0, 1.05, 1.15)),
            "compile": choose((0.9, 1.1, 1.25, 1.5)),
            "compile_cudagraphs": choose((0.9, 1.1, 1.5, 2.5)),
        }


class Computing(Drawn):
    """A machine by chance, without a loader."""

    loaded_ms = 0.0
    facts = replace(FACTS, loaders=())


class Loading(Drawn):
    """A machine by chance, whose loader is slower than its computing, or about as fast."""

    def __init__(self, seed: str) -> None:
        super().__init__(seed)
        choose = self._random.choice
        self.loaded_ms = 4 * self.computed_ms * choose((0.8, 1.3, 2.0, 4.0))
        self.uneven = choose((0.05, 0.15))


class Nothing(Loading):
    """The same, where nothing brings anything: what is claimed of it is false."""

    def _drawn(self, choose: Any) -> dict[str, float]:
        self.between = choose((0.03, 0.06, 0.12, 0.2))
        return {}

    def supply_ms(self, workers: int) -> float:
        return super().supply_ms(self.workers)


MACHINES = (MinGPT, NanoGPT, Inference, Pets, Detection, Autoencoder, Computing, Loading, Nothing)
MANY = (Computing, Loading, Nothing)
"""Kinds that are another machine with each seed, of which four times as many are drawn."""


def best_gain(machine: Machine) -> float:
    """Return what the best of all settings brings that the machine has.

    Of what compiles it is one.
    """
    compiled = max((machine.brings.get(name, 1.0) for name in SLOW), default=1.0)
    names = [n for n, brought in machine.brings.items() if brought > 1 and n not in SLOW]
    slow = [n for n in SLOW if 1 < machine.brings.get(n, 1.0) == compiled][:1]
    workers = [0, 1, 2, 4, 8, 15] if machine.facts.loaders else [machine.workers]
    some = dict.fromkeys([*names, *slow], True)
    return max(machine.gain({**some, "dataloader_workers": n}) for n in workers)


def study(kind: type[Public], seconds: float, seed: int) -> dict[str, Any]:
    """Run a study, and return how it ended."""
    machine = kind(f"{kind.__name__} {seed}")
    result = studied(machine, seconds)
    is_proven = is_faster(result.speedup)
    true = machine.gain(result.settings) if is_proven else 1.0
    speedup = result.speedup
    return {
        "verdict": result.verdict,
        "share": true / best_gain(machine),
        "proven_s": machine.proven_s if is_proven else None,
        "ended_s": machine.now_s,
        "false": bool(is_proven and speedup is not None and not speedup.ci99_low <= true),
    }


def row(kind: type[Public], seconds: float, seeds: int, first: int) -> str:
    """Return a row of the table: how studies of one machine end."""
    count = seeds * (4 if kind in MANY else 1)
    found = [study(kind, seconds, seed) for seed in range(first, first + count)]
    verdicts = Counter(each["verdict"] for each in found)
    proven = sorted(each["proven_s"] for each in found if each["proven_s"])
    late = sum(each > TARGET_S for each in proven)
    when = f"{statistics.median(proven):.0f} s, {late} late" if proven else ""
    shares = [each["share"] for each in found]
    ends = [each["ended_s"] for each in found]
    return (
        f"| {kind.__name__} | {count} | {verdicts[Verdict.FASTER]} | "
        f"{verdicts[Verdict.FASTER_UNVERIFIED]} | {statistics.fmean(shares):.1%} | {when} | "
        f"{statistics.median(ends):.0f} s, {max(ends):.0f} s at most | "
        f"{sum(each['false'] for each in found)} |"
    )


def main() -> None:
    """Print the table."""
    chosen = arguments(__doc__, seconds=300.0)
    print("| script | studies | faster | unverified | of the best | first proven | end | false |")
    print("| --- | --: | --: | --: | --: | --- | --- | --: |", flush=True)
    kinds = [each for each in MACHINES if chosen.only in ("", each.__name__)]
    asked = partial(row, seconds=chosen.seconds, seeds=chosen.seeds, first=chosen.first)
    with ProcessPoolExecutor(chosen.jobs) as pool:
        for line in pool.map(asked, kinds):
            print(line, flush=True)


if __name__ == "__main__":
    main()
