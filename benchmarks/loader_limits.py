"""What studies of scripts find whose loader keeps up with no faster computing, and what they claim.

    python benchmarks/loader_limits.py [--seeds 8] [--claims 200] [--first 0] [--jobs 1] [--only X]

Whole studies of the real `tune` on simulated machines. The first two and the last two have the
numbers of studies that ran on H200s and an H100 of 16 cores; the others are not bound by their
loader, or deceive: the loader is slower when it is timed alone than in a run, or the computing is
slower beside it. Each row tells how studies end, and which part they find of what the best settings
bring that there are.
With `--claims`, machines are drawn by chance, and each "at most" is compared with what is true.
Nothing is measured here: time passes on the machines' own clocks.
"""

from __future__ import annotations

import itertools
import random
import re
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

from gpuadvisor.domain.knobs import LoaderFacts
from tests.study_simulation import CACHED, FACTS, Machine


class ImageNet(Machine):
    """ResNet-50 of pytorch/examples with fp32 on made-up pictures, on an H200 of 16 cores.

    Of a step's computing, which is timed with `CACHED`, a part goes on while the script waits for
    its next batch.
    """

    cores = 16
    start_s, life_s, compiles_s, warm_s = 12.0, 28.0, 35.0, 12.0
    between, within, uneven = 0.03, 0.005, 0.1
    computed_ms = 121.8
    brings: ClassVar = {"channels_last": 1.397, "bf16_autocast": 1.443, "compile": 1.368}
    supplies: ClassVar = {1: 820.0, 2: 410.0, 4: 205.0, 8: 114.3, 15: 68.7}
    waited_beside = 0.4
    """Part of the computing beside which the script waits: 0.2 and 0.4 on two hosts."""
    tells_idle = True
    """Whether runs tell for which part of the waiting the GPU is idle."""
    beside = 1.0
    """Times what the computing takes alone that it takes beside busy workers."""

    def supply_ms(self, workers: int) -> float:
        return self.supplies[max(1, workers)]

    def step_ms(self, settings: Any) -> tuple[float, float]:
        if CACHED in settings:
            return super().step_ms(settings)
        alone, computed = self.computed_ms, self.computed_ms * self.beside
        self.computed_ms = computed
        try:
            step, waited = super().step_ms(settings)
        finally:
            self.computed_ms = alone
        hidden = self.waited_beside * (step - waited) if waited > 0.01 * step else 0.0
        whole = waited + hidden
        self.idle_while_waiting = waited / whole if whole and self.tells_idle else None
        return step, whole


class Inference(ImageNet):
    """ResNet-50 of timm over a folder of pictures, on the same machine; a life takes 73 s."""

    start_s, life_s, compiles_s, warm_s = 12.0, 60.0, 25.0, 8.0
    between, uneven = 0.05, 0.06
    computed_ms, workers, waited_beside = 9.55, 2, 0.0
    brings: ClassVar = {"channels_last": 1.2, "bf16_autocast": 1.3, "compile": 1.3}
    supplies: ClassVar = {1: 206.0, 2: 103.3, 4: 51.3, 8: 26.1, 15: 13.85}
    facts = replace(
        FACTS, training=False, optimizers=(), loaders=(LoaderFacts(256, 2, True, False, 2),)
    )


class Fed(ImageNet):
    """The first one with a loader that supplies three times as fast."""

    supplies: ClassVar = {n: ms / 3 for n, ms in ImageNet.supplies.items()}


class NoLoader(ImageNet):
    """The first one with all its data on the GPU."""

    loaded_ms = 0.0
    facts = replace(FACTS, loaders=())


class TimedSlower(ImageNet):
    """The first one, whose loader takes 1.5 times as long for a batch when it is timed alone."""

    timed_slower = 1.5
    supplies: ClassVar = {n: ms / 1.5 for n, ms in ImageNet.supplies.items()}


class Crowded(ImageNet):
    """The first one, whose computing takes 1.4 times as long beside busy workers."""

    beside = 1.4


class Restless(ImageNet):
    """The first one as it was on an H100 of another host: what a few batches of the loader take
    differs by a third, and so do runs by a tenth."""

    uneven, between = 0.3, 0.1
    computed_ms, waited_beside = 142.0, 0.5
    brings: ClassVar = {"channels_last": 1.34, "bf16_autocast": 1.51, "compile": 1.05}
    supplies: ClassVar = {1: 670.0, 2: 335.0, 4: 168.0, 8: 106.0, 15: 64.4}


class Stalls(Machine):
    """The variational autoencoder of pytorch/examples on an H200 of 16 cores: four workers supply a
    bit faster than a step computes, but one of them stalls now and then, and batches come in
    order."""

    cores = 16
    start_s, life_s, compiles_s, warm_s, workers = 12.0, 14.0, 4.0, 1.0, 1
    between, within, uneven = 0.06, 0.02, 0.13
    computed_ms = 3.3
    brings: ClassVar = {"compile_cudagraphs": 1.22, "fused_optimizer": 1.15, "compile": 0.89}
    facts = replace(FACTS, has_convolution=False, loaders=(LoaderFacts(256, 1, True, False, 2),))
    supplies: ClassVar = {1: 8.1, 2: 5.2, 4: 2.6, 8: 1.86, 15: 1.54}
    stalled_ms, stalls = 31.0, 0.023
    """What a batch takes a worker that stalls, and the part of windows in which it does: 9 % of
    windows of 4 workers, as 5 of 46 were."""
    _windows = 8
    _stalled: float | None = None
    """Part of the windows of the run that is under way; None to tell what runs take on average."""

    def supply_ms(self, workers: int) -> float:
        return self.supplies[max(1, workers)]

    def step_ms(self, settings: Any) -> tuple[float, float]:
        computed = self.computed_ms
        for name in settings:
            computed /= self.brings.get(name, 1.0)
        if CACHED in settings:
            return computed, 0.0
        workers = max(1, settings.get("dataloader_workers", self.workers))
        usual = max(computed, self.supply_ms(workers))
        stalled = self._stalled
        if stalled is None:
            stalled = self._stall_share(workers)
        step = usual + stalled * (max(usual, self.stalled_ms / workers) - usual)
        return step, step - computed

    def run(self, request: Any, *others: Any) -> Any:
        settings = {each.knob: each.value for each in request.specification.applications}
        share = self._stall_share(max(1, settings.get("dataloader_workers", self.workers)))
        drawn = (self._random.random() < share for _ in range(self._windows))
        self._stalled = sum(drawn) / self._windows
        try:
            return super().run(request, *others)
        finally:
            self._stalled = None

    def _stall_share(self, workers: int) -> float:
        return 1 - (1 - self.stalls) ** workers


MACHINES = (ImageNet, Inference, Fed, NoLoader, TimedSlower, Crowded, Restless, Stalls)
BUDGETS_S = (510.0, 600.0, 900.0)
CLAIM = re.compile(r"([\d.]+)x at most")


def best_gain(machine: Machine) -> float:
    """Return what the best of all settings brings that the machine has."""
    names = [each for each in machine.brings if machine.brings[each] > 1]
    workers = [*getattr(machine, "supplies", {})] if machine.facts.loaders else [0]
    return max(
        machine.gain({**dict.fromkeys(some, True), **({"dataloader_workers": n} if n else {})})
        for n in workers
        for size in range(len(names) + 1)
        for some in itertools.combinations(names, size)
    )


def row(kind: type[Machine], seconds: float, seeds: int, first: int) -> str:
    """Return a row of the table: how studies of one machine end within one budget."""
    verdicts: Counter[str] = Counter()
    shares, ends, compiled, proven = [], [], 0, []
    for seed in range(first, first + seeds):
        machine = kind(f"{kind.__name__} {seed}")
        result = studied(machine, seconds)
        verdicts[str(result.verdict)] += 1
        shares.append(machine.gain(result.settings) / best_gain(machine))
        ends.append(machine.now_s)
        compiled += "compile" in result.settings
        proven.append(machine.began_s.get("rehearsal", machine.now_s))
    told = ", ".join(f"{count} {name}" for name, count in verdicts.most_common())
    return (
        f"| {kind.__name__} | {seconds:.0f} s | {told} | {min(shares):.0%} to {max(shares):.0%}, "
        f"median {statistics.median(shares):.0%}, mean {statistics.fmean(shares):.1%} | "
        f"{compiled} | {statistics.median(proven):.0f} s | {max(ends):.0f} s |"
    )


def drawn(generator: random.Random) -> ImageNet:
    """Return a machine by chance: how far its loader keeps up, and how the timing deceives."""
    machine = ImageNet(str(generator.random()))
    scale = generator.choice((0.6, 0.8, 0.9, 1.0, 1.1, 1.3))
    machine.timed_slower = generator.choice((0.8, 0.9, 1.0, 1.0, 1.0, 1.1, 1.2, 1.5))
    machine.supplies = {n: scale * ms for n, ms in ImageNet.supplies.items()}  # type: ignore[misc]
    machine.beside = generator.choice((1.0, 1.0, 1.1, 1.25, 1.5))
    machine.uneven = generator.choice((0.02, 0.05, 0.1, 0.2))
    machine.between = generator.choice((0.005, 0.03, 0.08))
    return machine


def claims(part: tuple[int, int]) -> Counter[tuple[str, str]]:
    """Run so many studies on machines by chance; count what they claim, and what of it is false.

    What is claimed is false where any further knob of the computing would make the settings of the
    run that it is said of faster by more than that.
    """
    count: Counter[tuple[str, str]] = Counter()
    first, last = part
    for number in range(first, last):
        generator = random.Random(number)
        machine = drawn(generator)
        kind = "as fast alone" if machine.timed_slower == 1 else (
            "slower alone" if machine.timed_slower > 1 else "faster alone"
        )  # fmt: skip
        result = studied(machine, generator.choice(BUDGETS_S))
        count[kind, "studies"] += 1
        count[kind, f"verdict {result.verdict}"] += 1
        share = machine.gain(result.settings) / best_gain(machine)
        count[kind, "percent of the best, all together"] += round(100 * share)
        left = {n: float(m[1]) for n, why in result.untried.items() if (m := CLAIM.search(why))}
        if not left:
            continue
        standing = result.settings
        more = {name: True for name in machine.brings if name in left}
        true = machine.gain({**standing, **more}) / machine.gain(standing)
        count[kind, "claims"] += 1
        count[kind, "false"] += true > min(left.values()) + 0.005
        count[kind, "false by 5 %"] += true > 1.05 * min(left.values())
    return count


def main() -> None:
    """Print the tables."""
    chosen = arguments(__doc__, claims=0)
    with ProcessPoolExecutor(chosen.jobs) as pool:
        if chosen.claims:
            size = -(-chosen.claims // chosen.jobs)
            last = chosen.first + chosen.claims
            parts = [(n, min(n + size, last)) for n in range(chosen.first, last, size)]
            count = sum(pool.map(claims, parts), Counter())
            for kind, what in sorted(count):
                print(f"{kind}, {what}: {count[kind, what]}")
            return
        print("| script | budget | verdict | share of the best | compiled | rehearsal | longest |")
        print("| --- | --- | --- | --- | --- | --- | --- |")
        asked = [(kind, seconds) for kind in MACHINES for seconds in BUDGETS_S]
        asked = [each for each in asked if chosen.only in ("", each[0].__name__)]
        kinds, budgets = zip(*asked, strict=True)
        for line in pool.map(partial(row, seeds=chosen.seeds, first=chosen.first), kinds, budgets):
            print(line)


if __name__ == "__main__":
    main()
