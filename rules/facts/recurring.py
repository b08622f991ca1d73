"""Whether a recording shows something that comes again, or events that come once.

A program that is started, does a few things and ends has idle time, but none that a longer run
would have more of: it lies between work that never follows each other again. Rules about loops say
nothing of it. Where steps are marked, these tell.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpuadvisor.rules.facts.idle import HOST_PACE_NS, IdleTime
from gpuadvisor.rules.facts.starting import SLOW_CALL_NS
from gpuadvisor.rules.facts.window import FILLED, Window

MOST = 0.5
"""Share from which on something is most of it: all else together is less."""


def no_loop(window: Window, idle: Sequence[IdleTime], kernels: int) -> str | None:
    """Return why the recording shows no loop, in a sentence without a full stop; None where it may
    show one, or where the GPU is hardly idle.

    Fewer kernels than a host launches at a steady pace, in less time than one first launch may
    take, are none either, even where they come again.
    """
    steps = window.steps.steps if window.steps is not None else ()
    if len(steps) > 1 or not window.busy or window.busy_share >= FILLED:
        return None
    if kernels * HOST_PACE_NS < window.run_ns < SLOW_CALL_NS:
        return (
            f"All work in this recording lasts {window.run_ns / 1000:.0f} µs, less than the first"
            " launch of a kernel may take: what the program does in a longer run is not in it"
        )
    # A long gap among others of its kind is most of a run that is mostly idle; where the GPU is
    # mostly busy, its work is what comes again.
    is_idle = window.busy_share < MOST
    once = sum(each.seldom_ns if is_idle else each.once_ns for each in idle)
    every = sum(each.idle_ns for each in idle)
    if once <= MOST * every:
        return None
    kinds = "between kinds of work that follow one another"
    if is_idle:
        kinds = "in gaps of a kind and length that come"
    return (
        f"This recording shows single events: {100 * once / every:.0f} % of the time in which the"
        f" GPU was idle lies {kinds} only once or twice; what the program does again and again in a"
        " longer run is not in it"
    )
