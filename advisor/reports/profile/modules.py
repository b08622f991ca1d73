"""The tree of a run's `nn.Module`s with their time, GPU time and idle time, for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpuadvisor.reports import figures
from gpuadvisor.reports.diagnosis.report import DiagnosisReport
from gpuadvisor.rules.facts.modules import ModuleTime

LEAST_SHARE = 0.01
"""Share of the time of all modules below which one is left out. [own]"""
NONE = (
    "No module was recorded: of a script, `gpuadvisor diagnose SCRIPT --tree` records them; a trace"
    " has them where it was recorded with with_stack=True."
)


def module_tree(report: DiagnosisReport) -> Iterator[str]:
    """Yield the lines of the tree; of a script that was profiled those of its step with stacks."""
    facts = report.stacked
    if facts is None and report.profile is not None:
        facts = report.profile.facts
    times = () if facts is None else facts.module_times
    if facts is None or not times:
        yield NONE
        return
    whole = sum(each.host_ns for each in times if not each.depth)
    shown = [each for each in times if each.host_ns >= LEAST_SHARE * whole]
    yield f"Modules, with what they call; {_in_none(times)}:"
    yield _row("time", "GPU", "backward", "GPU idle", "calls", "module")
    for each in shown:
        yield _row(*_cells(each, bool(facts.profile.rows("kernels"))))
    if rest := len(times) - len(shown):
        less = f"{figures.count(rest, 'module')} with less than {LEAST_SHARE:.0%} of the time"
        yield f"Left out: {less}."
    if report.stacked is not None:
        yield "As one step with stacks has it, in which the CPU is slower than without."


def _in_none(times: Sequence[ModuleTime]) -> str:
    """Return what belongs to no module, as far as the recording tells."""
    if any(each.backward_ns for each in times):
        return "what adds up gradients, and the optimizer, is in none"
    return "the backward pass and the optimizer are in none"


def _cells(each: ModuleTime, with_gpu: bool) -> tuple[str, ...]:
    times = [figures.nanoseconds(each.host_ns)]
    for time_ns in (each.device_ns, each.backward_ns, each.idle_ns):
        times.append(figures.nanoseconds(time_ns) if with_gpu else "-")
    return *times, f"{each.calls:,}", "  " * each.depth + each.name


def _row(time: str, gpu: str, backward: str, idle: str, calls: str, module: str) -> str:
    return f"{time:>10} {gpu:>10} {backward:>10} {idle:>10} {calls:>8}  {module}"
