"""When a model's forward and backward passes ran, by the operators of autograd.

A forward pass lasts from the first operator that made a node for the backward pass to the last one,
and a backward pass from the first node that autograd evaluates to the last one. What a compiler
makes of a model lies within these: not the loader, hooks of a training framework, the optimizer,
logging. Losses and metrics with gradients do as well, so that this is the most that it can reach.
"""

from __future__ import annotations

import numpy as np

from gpuadvisor.domain.profile import Profile
from gpuadvisor.rules.facts.backward import Backward, is_backward, makes_node
from gpuadvisor.rules.facts.intervals import Intervals, either, none, union, without
from gpuadvisor.rules.facts.operators import Operators


def passes(profile: Profile, ran: Operators, back: Backward) -> Intervals | None:
    """Return when forward passes ran and the backward passes that followed them; None where the
    trace tells of no backward pass whose forward pass it has, as when nothing is trained."""
    found = none()
    for process, thread in sorted(
        {*zip(back.process.tolist(), back.forward_thread.tolist(), strict=True)}
    ):
        found = either(found, _spans(*passes_of(profile, ran, back, process, thread)))
    return found if len(found) else None


def _spans(forward: Intervals, backward: Intervals) -> Intervals:
    """Return from the first to the last of what follows each other of one kind."""
    begin = np.concatenate((forward.begin_ns, backward.begin_ns))
    end = np.concatenate((forward.end_ns, backward.end_ns))
    order = np.argsort(begin, kind="stable")
    kind = np.repeat((False, True), (len(forward), len(backward)))[order]
    first = np.flatnonzero(np.diff(kind, prepend=~kind[:1]))
    last = np.append(first[1:], len(kind)) - 1
    return union(begin[order][first], end[order][last])


def passes_of(
    profile: Profile, ran: Operators, back: Backward, process: int, thread: int
) -> tuple[Intervals, Intervals]:
    """Return when a thread was in operators that a backward pass follows, and when operators of its
    backward passes ran on whatever thread.

    These are what is linked to its forward passes, and, on the threads of autograd where no other
    thread's are, all others. Where the trace links none of the process, all of it are.
    """
    columns = profile.columns("operators", ("process", "thread"))
    of_thread = (columns["process"] == process) & (columns["thread"] == thread)
    forward = of_thread & makes_node(profile)
    every = np.flatnonzero(is_backward(profile) & (columns["process"] == process))
    linked = back.process == process
    mine = linked & (back.forward_thread == thread)
    if linked.any():
        on = columns["thread"][every]
        every = every[np.isin(on, back.thread[mine]) & ~np.isin(on, back.thread[linked & ~mine])]
    backward = union(
        np.concatenate((back.begin_ns[mine], ran.begin_ns[every])),
        np.concatenate((back.end_ns[mine], ran.end_ns[every])),
    )
    return without(union(ran.begin_ns[forward], ran.end_ns[forward]), backward), backward
