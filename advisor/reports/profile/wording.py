"""The words of profile reports: the same on the page, in Markdown and on the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from gpuadvisor.domain.profile import ON_DEVICE, TOLD_BY, UNKNOWN, DeviceLimits, Direction, Memory
from gpuadvisor.reports import figures
from gpuadvisor.reports.profile.report import KernelRow, ProfileReport
from gpuadvisor.rules.facts.copies import CopyTime
from gpuadvisor.rules.facts.kernels import KernelTime
from gpuadvisor.rules.facts.steps import Steps, StepSource
from gpuadvisor.rules.facts.time_breakdown import TimeBreakdown, TimeCategory, added

PARTS = {
    TimeCategory.COMPUTING: "computing",
    TimeCategory.COMMUNICATING: "communicating only",
    TimeCategory.COPYING: "copying only",
    TimeCategory.FILLING: "setting memory only",
    TimeCategory.LAUNCHING: "idle: CPU is launching",
    TimeCategory.WAITING_FOR_DATA: "idle: waiting for data",
    TimeCategory.SYNCHRONIZING: "idle: after the CPU waited",
    TimeCategory.ALLOCATING: "idle: memory is allocated or freed",
    TimeCategory.OTHER_HOST: "idle: other work of the CPU",
    TimeCategory.STARTING: "idle: start-up",
    TimeCategory.PROFILER: "idle: the profiler itself",
    TimeCategory.MIGRATING: "idle: until managed memory migrates",
    TimeCategory.BETWEEN_KERNELS: "idle: from one kernel to the next",
    TimeCategory.FINISHED: "idle: nothing more to do",
    TimeCategory.NOT_RECORDED: "idle: CPU in no call into CUDA",
    TimeCategory.DEVICE: "unexplained: launched, but not begun",
    TimeCategory.UNKNOWN: "unexplained: no launch recorded",
}
EXPLAINED = {
    TimeCategory.COMPUTING: "At least one kernel that computes runs.",
    TimeCategory.COMMUNICATING: "A communication kernel runs, and nothing computes beside it.",
    TimeCategory.COPYING: "A copy runs, and no kernel.",
    TimeCategory.FILLING: "A memset runs, and neither a kernel nor a copy.",
    TimeCategory.LAUNCHING: "The CPU launches at its pace, and the device is done sooner.",
    TimeCategory.WAITING_FOR_DATA: "The launching thread waits for a batch of its DataLoader.",
    TimeCategory.SYNCHRONIZING: "The queue ran empty while the CPU waited for the device: the rest"
    " of that wait, and the CPU's launching until work came again.",
    TimeCategory.ALLOCATING: "The launching thread allocates or frees GPU or pinned memory.",
    TimeCategory.OTHER_HOST: "The CPU does something else between launches, such as Python code.",
    TimeCategory.STARTING: "What a run does once: kernels are loaded, compiled or captured.",
    TimeCategory.PROFILER: "The profiler writes down what it has seen, or asks for memory.",
    TimeCategory.MIGRATING: "Pages of managed memory move next, which the CPU or a kernel touched.",
    TimeCategory.BETWEEN_KERNELS: "What was launched begins as soon as the device can.",
    TimeCategory.FINISHED: "Its last work is done; the CPU or other GPUs go on.",
    TimeCategory.NOT_RECORDED: "The CPU called nothing of CUDA, and nothing else was recorded.",
    TimeCategory.DEVICE: "What was launched began late, and nothing in the profile tells why.",
    TimeCategory.UNKNOWN: "The call that launched what came next was not recorded, or nothing of"
    " the CPU yet.",
}
STEP_SOURCES = {
    StepSource.PROFILER: "the profiler’s own steps",  # noqa: RUF001
    StepSource.RANGES: "ranges that the program marked",
    StepSource.OPTIMIZER: "from one call of the optimizer to the next",
}
KINETO_ZERO = (
    "more than 48 KiB of shared memory: the trace’s own `est. achieved occupancy %` is 0 here,"  # noqa: RUF001
    " which is wrong"
)
FACTS = {
    "busy": "busy time",
    "idle": "why the device is idle",
    "queues": "launching",
    "rooflines": "roofline of operators",
    "counted_kernels": "hardware counters of kernels",
}
HOW = {
    "kernels": "`gpuadvisor profile script.py` on a machine with a GPU",
    "kernels.begin_ns": "`gpuadvisor profile script.py` for a timeline",
    "calls": "`gpuadvisor profile script.py` on a machine with a GPU",
    "operators": "`gpuadvisor profile script.py`",
    "operators.shapes": "`gpuadvisor profile script.py`, or `record_shapes=True`",
    "operators.types": "`gpuadvisor profile script.py`, or `record_shapes=True`",
    "operators.stack": "`with_stack=True` of the torch profiler",
    "operators.flops": "`with_flops=True` of the torch profiler, as far as traces hold them;"
    " those of matrix products follow from their shapes",
    "memory": "`gpuadvisor profile script.py`, or `profile_memory=True` of a newer PyTorch",
    "ranges": "`nsys profile --trace=cuda,nvtx`, and NVTX ranges in the program",
    "steps": "`gpuadvisor profile script.py`, or `step()` of the torch profiler in the loop",
    "metrics": "`gpuadvisor profile --ncu script.py`",
    "counted_kernels": "`gpuadvisor profile --ncu script.py`",
    "stalls": "`ncu --section SourceCounters -o report`, of a program compiled with `-lineinfo`",
    "counters": "`nsys profile --gpu-metrics-devices=all`",
    "synchronizations": "`_ExperimentalConfig(enable_cuda_sync_events=True)` of the torch profiler",
    "idle": "`gpuadvisor profile script.py`",
    "queues": "`gpuadvisor profile script.py`",
    "rooflines": "`gpuadvisor profile script.py`, which records shapes",
}
"""What to do to have it measured."""


def headline(report: ProfileReport) -> tuple[str, str]:
    """Return the one figure of the page and what it is: (`60.6 %`, `of the time the GPU ...`)."""
    if not report.facts.time_breakdowns:
        if report.facts.profile.rows("kernels"):
            return figures.count(len(report.facts.profile.columns("kernels", ("name",))["name"]),
                                 "kernel"), "counted one by one: there is no timeline"  # fmt: skip
        return "", "Nothing that ran on a GPU was recorded"
    total = added(report.facts.time_breakdowns)
    who = "the GPU was busy" if len(report.facts.time_breakdowns) == 1 else "the GPUs were busy"
    return figures.percent(total.busy_share), f"of the run {who}"


def verdict(report: ProfileReport) -> str:
    """Return the sentence below: what most of the idle time is for."""
    if not report.facts.time_breakdowns:
        if not report.facts.profile.rows("kernels"):
            return _of_steps(report.facts.steps)
        reason = report.facts.not_measured.get("busy") or report.facts.not_measured.get(
            "kernels.begin_ns", ""
        )
        return f"{reason[:1].upper()}{reason[1:]}." if reason else ""
    return idle_sentence(added(report.facts.time_breakdowns))


def _of_steps(steps: Steps | None) -> str:
    """Return `A step takes 87.6 ms in the median, and ...`; empty where no steps are known."""
    if steps is None or not steps.steps:
        return ""
    waiting = figures.percent(steps.data_wait_share)
    waits = f", and {waiting} of the steps' time is waiting for a DataLoader"
    return (
        f"A step takes {figures.nanoseconds(steps.median_ns)} in the median"
        f"{waits if steps.data_wait_share else ''}."
    )


def idle_sentence(account: TimeBreakdown) -> str:
    """Return why a device was idle, in a sentence."""
    part = account.largest_idle
    if part is None:
        return "It was never idle."
    idle = account.span_ns - account.busy_ns
    return (
        f"It was idle for {figures.percent(1 - account.busy_share)}"
        f" ({figures.nanoseconds(idle)}). The largest part of it is"
        f" {figures.percent(account.share(part))} of the time:"
        f" {PARTS[part].removeprefix('idle: ')}."
    )


def devices(report: ProfileReport) -> str:
    """Return the devices on which something ran, else those of the machine; `no GPU` where no work
    of one was recorded either, and nothing where it was, on one that is not described."""
    limits = report.facts.profile.header.devices
    used = set(report.facts.time_breakdowns) or {each.index for each in limits}
    names = [each.name for each in limits if each.index in used]
    if not names:
        return "" if any(map(report.facts.profile.rows, ON_DEVICE)) else "no GPU"
    return figures.counted(names)


def device_rows(device: DeviceLimits) -> Iterator[tuple[str, str]]:
    """Yield what is known of a device, labelled."""
    if device.compute_capability:
        yield "Compute capability", ".".join(map(str, device.compute_capability))
    if device.sm_count:
        yield "SMs", str(device.sm_count)
    if device.memory_bytes:
        yield "Memory", figures.memory(device.memory_bytes)


def copy_words(copy: CopyTime) -> str:
    """Return `host to device, pageable to device`."""
    if copy.direction is Direction.MEMSET:
        return "memset"
    direction = copy.direction.name.lower().replace("_", " ")
    ends = ("not known" if each is Memory.NOT_KNOWN else each.name.lower()
            for each in (copy.source, copy.destination))  # fmt: skip
    return f"{direction}, {' to '.join(ends)}"


def triple(sizes: tuple[int, int, int]) -> str:
    """Return `256 x 1 x 1` without ones at the end: `256`."""
    if min(sizes) < 0:
        return figures.NOT_MEASURED
    kept = list(sizes)
    while len(kept) > 1 and kept[-1] == 1:
        kept.pop()
    return " x ".join(f"{size:,}" for size in kept)


def whole(value: int) -> str:
    """Return a whole number, in words where it is not known."""
    return figures.NOT_MEASURED if value == UNKNOWN else f"{value:,}"


def launch(kernel: KernelTime) -> str:
    """Return how a kernel was launched: `grid 64, block 512, 32 registers, 400 B shared, ...`."""
    words = []
    if min(kernel.grid) >= 0:
        words.append(f"grid {triple(kernel.grid)}, block {triple(kernel.block)}")
    if kernel.registers >= 0:
        words.append(f"{kernel.registers:,} registers")
    if kernel.shared_bytes >= 0:
        words.append(f"{figures.memory(kernel.shared_bytes)} shared")
    if len(words) < 3:
        words.append("the rest of its launch not measured" if words else "launch not measured")
    return ", ".join([*words, f"GPU {kernel.device} stream {whole(kernel.stream)}"])


def limiters(row: KernelRow) -> str:
    """Return what limits the occupancy; empty where nothing does or it is not known."""
    if row.occupancy is None or row.occupancy >= 1:
        return ""
    return ", ".join(each.replace("_", " ") for each in row.limiters)


def not_measured(report: ProfileReport) -> Iterator[tuple[str, str, str]]:
    """Yield what is not known, why, and how to have it measured (or nothing)."""
    found = report.facts.not_measured
    for what, why in found.items():
        table = what.partition(".")[0]
        if TOLD_BY.get(what) in found:
            continue
        if what != table and table in found:
            continue  # the whole table is missing, which says it all
        words = FACTS.get(what, what.replace(".", ": ").replace("_", " "))
        yield words, why, HOW.get(what, HOW.get(table, ""))


def recorded(begin_unix_ns: int | None) -> str:
    """Return when a profile began; empty where that is not known or no time of a day."""
    if begin_unix_ns is None:
        return ""
    try:
        moment = datetime.fromtimestamp(begin_unix_ns / 1e9, UTC)
    except (OverflowError, ValueError, OSError):
        return ""
    return f"{moment:%Y-%m-%d %H:%M} UTC"


def left_out(total: int, rows: int, what: str) -> tuple[str, ...]:
    """Return how many rows are left out, in a sentence; nothing where none are."""
    if total <= rows:
        return ()
    return (f"{figures.count(total - rows, f'more {what}')} not shown; `--json` has all of them.",)
