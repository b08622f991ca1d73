"""Nights of simulated jobs: frames as a sampler would send them, and what they come to."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from gpuadvisor.domain.telemetry import HOST, Frame, GpuProcess, Sample
from tests.telemetry import GIB, START_S, h100

BEGIN_S = START_S // 3600 * 3600
"""A whole hour."""


@dataclass(frozen=True)
class Simulated:
    """A job: from when to when, in seconds after BEGIN_S, its processes are on which GPUs."""

    number: int
    begin_s: float
    end_s: float
    gpus: tuple[int, ...]
    utilization_pct: int = 90
    is_alone: bool = True
    """Whether no other job is on its GPUs: then all of their time is its own."""
    user: str = "ann"

    @property
    def command(self) -> str:
        return f"python train_{self.number}.py --lr 1e-3"

    def processes(self) -> list[GpuProcess]:
        """One a GPU, started by a launcher that holds no GPU; of a single one by a shell."""
        parent, first = 100_000 + self.number, 10 * self.number + 2
        return [
            GpuProcess(
                h100(gpu).uuid,
                first + rank,
                "compute",
                8 * GIB,
                "python",
                self.user,
                self.command,
                parent_pid=parent,
                started_s=BEGIN_S + self.begin_s + 0.2 * rank,
                sm_utilization_pct=float(self.utilization_pct),
                cpu_pct=100.0,
                children_cpu_pct=0.0,
            )
            for rank, gpu in enumerate(self.gpus)
        ]


@dataclass
class Totals:
    """What the frames come to, counted without the program."""

    gpu_s: float = 0.0
    energy_j: float = 0.0
    by_job: dict[int, float] = field(default_factory=dict)
    """GPU time of jobs that were alone, by number."""
    present_s: dict[int, float] = field(default_factory=dict)
    """Measured time of every job, by number."""


@dataclass
class Night:
    """Jobs on some GPUs for some time, and times at which nothing was measured."""

    jobs: Sequence[Simulated]
    gpus: int
    length_s: float
    gaps: Sequence[tuple[float, float]] = ()
    period_s: float = 1.0
    totals: Totals = field(default_factory=Totals)

    def frames(self) -> Iterator[Frame]:
        """Yield frames, a list of processes every five seconds."""
        self.totals = Totals()
        last_s = listed_s = None
        at_s = 0.37  # polls do not fall on whole seconds
        while at_s < self.length_s:
            if any(begin <= at_s < end for begin, end in self.gaps):
                at_s += self.period_s
                continue
            running = [each for each in self.jobs if each.begin_s <= at_s < each.end_s]
            samples = {h100(i).uuid: self._sample(i, running) for i in range(self.gpus)}
            if last_s is not None and at_s - last_s <= 5:
                self._count(at_s - last_s, running, samples)
            processes = None
            if listed_s is None or at_s - listed_s >= 5:
                listed_s = at_s
                processes = tuple(p for each in running for p in each.processes())
            yield Frame(
                BEGIN_S + at_s,
                {**samples, HOST: Sample({"cpu_pct": 20.0, "io_stall_pct": 0.0})},
                gpus=tuple(map(h100, range(self.gpus))) if last_s is None else None,
                processes=processes,
            )
            last_s = at_s
            at_s += self.period_s

    def _sample(self, gpu: int, running: Sequence[Simulated]) -> Sample:
        here = [each for each in running if gpu in each.gpus]
        used = min(sum(each.utilization_pct for each in here), 100)
        return Sample(
            {
                "gpu_utilization_pct": used,
                "power_w": 70.0 + 6.0 * used,
                "sm_active_pct": 0.8 * used,
                "sm_clock_mhz": 1980,
                "sm_clock_max_mhz": 1980,
                "throttle_reasons": 0,
                "memory_used_bytes": 8 * GIB * len(here),
            }
        )

    def _count(self, seconds: float, running: Sequence[Simulated], samples) -> None:
        for sample in samples.values():
            self.totals.gpu_s += seconds
            self.totals.energy_j += seconds * sample.values["power_w"]
        for each in running:
            present_s = self.totals.present_s
            present_s[each.number] = present_s.get(each.number, 0.0) + seconds
            if each.is_alone:
                more = seconds * len(each.gpus)
                known = self.totals.by_job
                known[each.number] = known.get(each.number, 0.0) + more


def night(seed: int, jobs: int, gpus: int, length_s: float) -> Night:
    """Short and long jobs, several on one GPU, one on several, some killed at once."""
    chance = random.Random(seed)
    free_s = [0.0] * gpus
    made: list[Simulated] = []
    while len(made) < jobs:
        number = len(made) + 1
        choices = [20.0, 60.0, 300.0, 0.02 * length_s, 0.1 * length_s]
        (lasts_s,) = chance.choices(choices, weights=[4, 4, 3, 2, 1])
        gpu = min(range(gpus), key=lambda i: free_s[i])
        begin_s = free_s[gpu] + chance.uniform(0, 40)
        if begin_s + 10 > length_s:
            break
        used = chance.choice([0, 30, 60, 98])
        end_s = min(begin_s + lasts_s, length_s - chance.uniform(0, 8))
        how = chance.random()
        if how < 0.15 and gpus > 1:  # one on several
            wide = tuple(sorted({gpu, *chance.sample(range(gpus), 2)}))
            begin_s = max(free_s[each] for each in wide) + 6
            if begin_s + 10 > length_s:
                free_s[gpu] = length_s
                continue
            end_s = min(begin_s + lasts_s, length_s)
            made.append(Simulated(number, begin_s, end_s, wide, used))
            for each in wide:
                free_s[each] = end_s + 6
        elif how < 0.3:  # two on one
            made.append(Simulated(number, begin_s, end_s, (gpu,), 40, False, "bob"))
            made.append(Simulated(number + 1, begin_s + 3, end_s, (gpu,), 20, False))
            free_s[gpu] = end_s + 6
        else:
            made.append(Simulated(number, begin_s, end_s, (gpu,), used))
            free_s[gpu] = end_s + 6
    return Night(made[:jobs], gpus, length_s)
