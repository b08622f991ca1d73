"""What launching for free would save of the run, and what of that is within a compiler's reach."""

from __future__ import annotations

from gpuadvisor.rules.estimates import saved_at
from gpuadvisor.rules.facts.host_waits import Host
from gpuadvisor.rules.facts.intervals import Intervals, both, covered_ns
from gpuadvisor.rules.facts.summary import Facts
from gpuadvisor.rules.facts.what_if import Scenario
from gpuadvisor.rules.paces import MARGIN, paces_tried
from gpuadvisor.rules.rule import MOST

GRAPH_GAP_NS = 1_000
"""Time between two kernels of a CUDA graph: 1.0 to 1.5 us on A100 and H100 ("Constant Time Launch
for Straight-Line CUDA Graphs", developer.nvidia.com)."""
COVERED = 0.9
"""Share of the launches that a compiler or a CUDA graph takes over: the optimizer's bookkeeping,
losses and metrics stay. [own]"""
COMPILED_CALL = 8
"""Launches whose time of the host a call of compiled code takes, in a forward or a backward pass:
guards, and the wrappers of autograd. Inductor's form of 1 to 8 linear layers with their activations
took 0.17 ms for a forward and a backward pass, and more with each layer, where a launch of the
layers themselves took 10 us (torch 2.13, on a CPU); CUDA graphs copy their inputs besides."""


def saved_by_launching(facts: Facts) -> tuple[float, float]:
    """Return the least and the most that launching for free would save, besides what goes with the
    waits for the GPU, also of calls that free memory: a host that waits cannot launch ahead,
    however fast it is. What lies between launches goes as well, as it is Python of the same
    program, but for what prepares batches (`input_bound`)."""
    launching = Scenario({Host.WORKING: 0.0, Host.AWAY: _preparing_share(facts)})
    waits = Scenario({Host.SYNCHRONIZING: 0.0, Host.ALLOCATING: 0.0})
    both = Scenario({**launching.host, **waits.host})
    shares = []
    for pace in paces_tried(facts):
        besides = saved_at(facts, both, pace) - saved_at(facts, waits, pace)
        shares.append(max(min(besides, saved_at(facts, launching, pace)), 0.0))
    return min(shares), min(MARGIN * max(shares), 1.0)


def _preparing_share(facts: Facts) -> float:
    """Return which share of the host's time away from launching goes into batches (0 to 1)."""
    found, line = facts.host_idle, facts.timeline
    steps = facts.step_count
    if line is None or facts.loader_waits or not found.comes_again(steps):
        return 0.0
    return min(found.preparing_ns / max(line.away.total_ns, 1), 1.0)


def saved_by_compiling(facts: Facts, times: Intervals) -> float | None:
    """Return the least share of the run that goes with some times of the host where a compiler
    surely reaches them, or a graph that captures the model; None where the trace tells no passes.

    A call of what it makes costs `COMPILED_CALL` launches of those that it replaces.
    """
    found, player = facts.passes, facts.faster_kernels
    if found is None or player is None:
        return None
    within = both(times, found.reached)
    saved = min(player.saved_without(within, pace) for pace in paces_tried(facts))
    called = facts.launched.begin_ns[facts.kernel_uses.rows]
    launches = int((covered_ns(found.reached, called, called + 1) > 0).sum())
    stays = COMPILED_CALL * found.count / max(launches, 1)
    return saved * max(1 - stays, 0.0)


def breaks_off(facts: Facts, times: Intervals) -> bool:
    """Tell whether a compiler may leave most of what the host does at some times in forward and
    backward passes, as the host reads a value from the device in a forward pass before."""
    found = facts.passes
    if found is None or not found.interrupted:
        return False
    return both(times, found.reached).total_ns < MOST * both(times, found.times).total_ns
