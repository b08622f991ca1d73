"""What rules about the machine share: which GPUs a run used, whether they worked, their names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import wraps

from gpuadvisor.domain.finding import Scope, ScopeKind
from gpuadvisor.domain.telemetry import Gpu
from gpuadvisor.domain.telemetry_window import GpuWindow
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.rule import Check, RuleResult

FULL_USE_PCT = 90.0
"""Percent of the time in which a kernel runs, on average, that people take for a GPU in full use
(`nvidia-smi`), and from which on what is left to gain is within what utilization means. [own]"""
LEAST_SAMPLES = 3
"""Samples at work that a judgement needs: two may be the seconds in which work begins and ends."""


def called(gpu: Gpu) -> str:
    """Return how sentences call a GPU."""
    return f"MIG instance {gpu.uuid} of GPU {gpu.index}" if gpu.is_instance else f"GPU {gpu.index}"


def scope(gpu: Gpu) -> Scope:
    """Return the scope of what is about a GPU."""
    return Scope(ScopeKind.GPU, called(gpu))


def of_each_gpu(look: Callable[[GpuWindow, Evidence], Iterable[RuleResult]]) -> Check:
    """Return the `check` that looks at one GPU of the run after the other; these are the scopes."""

    @wraps(look)
    def check(evidence: Evidence) -> Iterator[RuleResult]:
        for window in gpus_of_run(evidence):
            for result in look(window, evidence):
                yield replace(result, scope=scope(window.gpu))

    return check


def gpus_of_run(evidence: Evidence) -> Iterator[GpuWindow]:
    """Yield the GPUs that the run used: all, where there is telemetry and no profile.

    A profile tells them by UUID, else by the process, else by name; where that leaves a choice
    between some that were at work, none is taken.
    """
    gpus = evidence.telemetry.gpus if evidence.telemetry is not None else ()
    if evidence.facts is None:
        yield from gpus
        return
    devices = evidence.facts.profile.header.devices
    uuids = {device.uuid for device in devices if device.uuid}
    if uuids:
        yield from (each for each in gpus if {each.gpu.uuid, each.gpu.parent_uuid} & uuids)
        return
    names = {device.name for device in devices}
    alike = [each for each in gpus if each.gpu.name in names]
    pids = run_pids(evidence)
    ours = [
        each
        for each in alike
        if any(one.pid in pids and not one.is_host_pid for one in each.processes or ())
    ]
    at_work = [each for each in alike if is_at_work(each)]
    if ours or len(alike) == 1:
        yield from ours or alike
    elif len(at_work) == 1:
        yield from at_work


def run_pids(evidence: Evidence) -> set[int]:
    """Return the processes that are known to be the run's; empty where none is."""
    pids = set() if evidence.facts is None else set(evidence.facts.profile.header.processes)
    told = evidence.environment.get("pid", "")
    return pids | ({int(told)} if told.isdecimal() else set())


def is_at_work(window: GpuWindow) -> bool:
    """Return whether enough samples found it at work to say something of that time."""
    seen = window.busy.get("gpu_utilization_pct")
    return seen is not None and seen.count >= LEAST_SAMPLES
