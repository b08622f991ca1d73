"""Whether a recording shows something that comes again, or events that come once, or too little.

A program that is started, does a few things and ends has idle time, but none that a longer run
would have more of: it lies between work that never follows each other again. Rules about loops say
nothing of it. Where steps are marked, these tell.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpuadvisor.rules.facts.device_work import DeviceWork
from gpuadvisor.rules.facts.idle import AGAIN, HOST_PACE_NS, IdleTime
from gpuadvisor.rules.facts.starting import LOADING_NS, SLOW_CALL_NS
from gpuadvisor.rules.facts.window import FILLED, Window

MOST = 0.5
"""Share from which on something is most of it: all else together is less."""


FEW = 10
"""Kernels below which a recording has a few single ones: an operation of a library has up to some
four, a small program of an exercise some six. [own]"""


def too_short(window: Window, work: DeviceWork) -> str | None:
    """Return why nothing of the recording can be judged, in a sentence without a full stop that
    says what to record instead; None where it is long enough, or its work comes again and again.

    That is so where fewer kernels ran than a host launches at a steady pace, or fewer than a `FEW`
    of which none comes `AGAIN`, in less time than one first launch may take: what each of them
    lasts may be a first time's. So it is where a `FEW` kernels ran, none of them `AGAIN` times, and
    neither one of these nor a copy lasts as long as a first launch may.
    """
    kernels = work.kernels
    if _has_steps(window) or not window.busy or window.run_ns <= 0:
        return None
    launched = f"{kernels} kernel{'' if kernels == 1 else 's'}"
    tells = (
        "it tells what ran, but not whether that is slow or what the program does in a longer run;"
        " record one that does this work again and again, or on more data"
    )
    again = np.unique(work.name[:kernels], return_counts=True)[1].max(initial=0) >= AGAIN
    if window.run_ns < SLOW_CALL_NS:
        if (again or kernels >= FEW) and kernels * HOST_PACE_NS >= window.run_ns:
            return None
        return (
            f"All work in this recording ({launched}) lasts {window.run_ns / 1000:.3g} µs, less"
            f" than the first launch of a kernel may take: {tells}"
        )
    longest = int(work.duration_ns.max(initial=0))
    if window.run_ns >= LOADING_NS or not 0 < kernels < FEW or longest >= SLOW_CALL_NS:
        return None
    if again:
        return None
    return (
        f"This recording has {launched}, none of which comes {AGAIN} times, and no piece of the"
        f" GPU's work lasts longer than {longest / 1000:.3g} µs, less than the first launch of a"
        f" kernel may take: {tells}"
    )


def no_loop(window: Window, idle: Sequence[IdleTime]) -> str | None:
    """Return why a recording that is long enough shows no loop, in a sentence without a full stop;
    None where it may show one, or where the GPU is hardly idle."""
    if _has_steps(window) or not window.busy or window.busy_share >= FILLED:
        return None
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


def _has_steps(window: Window) -> bool:
    return window.steps is not None and len(window.steps.steps) > 1
