"""How many threads share one operation on the CPU.

torch takes every physical core, which is best for large operations only: small ones spend more
on waking the threads than on the work, and DataLoader workers want cores too. Where workers that
are tried and these threads want more cores than there are, they are also tried with fewer threads.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpuadvisor.domain.device import Device
from gpuadvisor.domain.knobs import Effect, Level, ScriptFacts, Value
from gpuadvisor.domain.measurement import Measurement
from gpuadvisor.domain.target import Target, Turn
from gpuadvisor.tuners.knobs._live import FlagKnob
from gpuadvisor.tuners.knobs._script import no_root, not_on_gpu

CPUS = Path("/sys/devices/system/cpu")


class CpuThreads(FlagKnob):
    """Sets the number of threads in the script's main process."""

    name = "cpu_threads"
    title = "CPU threads an operation"
    concerns_loading = True  # its threads and the workers share the cores
    forkable = False  # libraries count threads when they are imported
    level = Level.CONSERVATIVE
    effect = Effect.NONE
    order = 10  # a step of small operations can become several times as fast
    plausible = range(1, 1025)
    lines = "torch.set_num_threads({value})"

    def choices(self, device: Device, facts: ScriptFacts) -> Sequence[Value]:
        physical = physical_cores(device.cores)
        # One thread waits for no other, which is what costs most where operations are small or
        # others use the cores, too.
        ideas = [1, physical // 2, physical, device.cores]
        own = threads_of(facts, device)
        return [idea for idea in dict.fromkeys(ideas) if idea > 0 and idea != own]

    def relieves(self, device: Device, run: Measurement) -> Value | None:
        """Return how many threads leave the workers of a run their cores.

        On two cores a small model with two workers took 25.8 ms a step with two threads, each of
        which waits for the other to get a core, 15.9 ms with one, and 21.5 ms without workers.
        """
        workers = run.facts.loaders[0].num_workers if run.facts.loaders else 0
        free = max(1, device.cores - workers)
        if run.facts.device != "cpu" or not workers or threads_of(run.facts, device) <= free:
            return None
        fitting = [value for value in self.choices(device, run.facts) if int(value) <= free]
        return max(fitting, key=int, default=None)

    def unavailable(self, device: Device, facts: ScriptFacts) -> str | None:
        if not not_on_gpu(device, facts):
            return "the script computes on the GPU"
        # A container's limit of CPU time leaves torch's threads what they are.
        if device.cores == 1 and threads_of(facts, device) == 1:
            return "this process may use one core only"
        # Beside a GPU only a module tells where a script computes.
        return no_root(device, facts) if device.is_gpu or not facts.optimizers else None

    def apply(self, value: Value, target: Target) -> None:
        import torch

        super().apply(value, target)
        set_own, process = torch.set_num_threads, os.getpid()

        def set_num_threads(number: int) -> None:
            # What a script sets later, as in each epoch, would undo it; workers set theirs.
            if os.getpid() != process or torch.get_num_threads() != value:
                set_own(number)
            elif number != value:
                target.effective()

        torch.set_num_threads = set_num_threads

        # A script may call its layers by another name than theirs, or functions only.
        def adopt(optimizer: Any) -> None:
            self._set(value, target)

        target.after_optimizer(adopt)

    def read(self) -> Any:
        import torch

        return torch.get_num_threads()

    def turn_on(self, value: Value, before: Any) -> None:
        if value != before:
            self.restore(value)

    def restore(self, before: Any) -> None:
        import torch

        torch.set_num_threads(int(before))

    def live(self, target: Target) -> Turn | None:
        # Once any number was set, MKL no longer takes fewer threads for small operations: from
        # the beginning, since nothing brings that back.
        self.restore(self.read())
        return super().live(target)


def threads_of(facts: ScriptFacts, device: Device) -> int:
    """Return how many threads torch takes for one operation of the script."""
    return facts.cpu_threads or physical_cores(device.cores)


def physical_cores(cores: int) -> int:
    """Return how many physical cores this process may use; `cores` where that is not known."""
    if not hasattr(os, "sched_getaffinity"):  # not Linux
        return cores
    siblings = set()
    for cpu in os.sched_getaffinity(0):
        path = CPUS / f"cpu{cpu}" / "topology" / "thread_siblings_list"
        try:
            siblings.add(path.read_text())
        except OSError:
            return cores
    return min(len(siblings), cores)


KNOB = CpuThreads()
