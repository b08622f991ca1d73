"""What rules about the machine share: which GPUs, how they are called, what clocks cost."""

from __future__ import annotations

from collections.abc import Iterator

from gpuadvisor.domain.finding import Scope, ScopeKind
from gpuadvisor.domain.telemetry import Gpu
from gpuadvisor.domain.telemetry_window import GpuWindow
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.rule import Estimate

LEAST_SAMPLES = 3
"""With the GPU at work: two may be the second in which work begins, and that in which it ends."""
MEMORY_BOUND_PCT = 60
"""Of the memory's peak, from which on that, and not the clock of the SMs, is taken to be the
limit: as Nsight Compute's roofline rules have it."""
PIPES = ("tensor_active_pct", "fp64_active_pct", "fp32_active_pct", "fp16_active_pct")
COMMUNICATION_KERNELS = "nccl"
METHOD = (
    "At most the share by which the clock was below its maximum, of the time in which kernels"
    " computed; what waits for memory gains nothing, cycles in which an arithmetic pipe was seen"
    " active gain all of it"
)


def called(gpu: Gpu) -> str:
    """Return how summaries call a GPU."""
    return f"MIG instance {gpu.uuid} of GPU {gpu.index}" if gpu.is_instance else f"GPU {gpu.index}"


def scope(gpu: Gpu) -> Scope:
    """Return the scope of what is about a GPU."""
    return Scope(ScopeKind.GPU, called(gpu))


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
    ours = [each for each in alike if _pids(each) & run_pids(evidence)]
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


def _pids(window: GpuWindow) -> set[int]:
    return {process.pid for process in window.processes or () if not process.is_host_pid}


def is_at_work(window: GpuWindow) -> bool:
    """Return whether enough samples found it at work to say something of that time."""
    seen = window.busy.get("gpu_utilization_pct")
    return seen is not None and seen.count >= LEAST_SAMPLES


def clocks_mhz(window: GpuWindow) -> tuple[float, float] | None:
    """Return the SM clock at work, as a mean, and its maximum; None where one is not known."""
    clock, highest = window.busy.get("sm_clock_mhz"), window.series.get("sm_clock_max_mhz")
    if clock is None or highest is None or highest.last <= 0:
        return None
    return clock.mean, highest.last


def clock_loss(window: GpuWindow) -> float | None:
    """Return by what share of the maximum the clock was below it at work; None if not known."""
    clocks = clocks_mhz(window)
    return None if clocks is None else max(1.0 - clocks[0] / clocks[1], 0.0)


def saving_of_clock(evidence: Evidence, window: GpuWindow, loss: float) -> Estimate:
    """Return what the highest clock would save: of the run, or of the time that it was at work."""
    active = max((window.busy[pipe].mean for pipe in PIPES if pipe in window.busy), default=0.0)
    memory = window.busy.get("dram_active_pct")
    is_memory_bound = memory is not None and memory.mean >= MEMORY_BOUND_PCT
    high = loss * (1 - memory.mean / 100) if memory is not None and is_memory_bound else loss
    low = min(loss * active / 100, high)
    facts = evidence.facts
    if facts is None or not evidence.has_timeline or not facts.busy:
        seconds = evidence.telemetry.seconds if evidence.telemetry is not None else 0.0
        at_work_ns = 1e9 * seconds * window.busy_share
        return Estimate(low * at_work_ns, high * at_work_ns, {}, at_work_ns)
    busiest = max(facts.busy, key=lambda each: each.compute_ns)
    parts: dict[str, float] = {}
    for kernel in facts.kernels:
        if kernel.device == busiest.device and COMMUNICATION_KERNELS not in kernel.name.lower():
            part = f"kernel/{kernel.name}"
            parts[part] = parts.get(part, 0.0) + kernel.time_ns
    return Estimate(low * busiest.compute_ns, high * busiest.compute_ns, parts)


def reason(name: str) -> str:
    """Return what the share of a clocks-event reason is called in a window."""
    return f"throttle_reasons/{name}"
