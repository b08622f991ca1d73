"""When a model's forward and backward passes ran, by the operators of autograd.

A forward pass lasts from the first operator that made a node for the backward pass to the last one,
and a backward pass from the first node that autograd evaluates to the last one. What a compiler
makes of a model lies within these: not the loader, hooks of a training framework, the optimizer,
logging. Losses and metrics with gradients do as well, so that this is the most that it can reach.

What it surely reaches ends, of each forward pass, where the host first reads a value from the
device: PyTorch's compiler breaks its graph there. It goes on behind the break in code of the
user's, but leaves a frame of PyTorch's own modules as it is, and no trace tells whose frame it was.
Of `nn.TransformerEncoder` with a mask, which asks `(mask == causal).all()`, it compiles 16
operators of a forward pass, none of them of a layer (torch 2.13).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpuadvisor.domain.profile import Profile
from gpuadvisor.rules.facts.backward import Backward, is_backward, makes_node
from gpuadvisor.rules.facts.intervals import (
    BoolArray,
    IntArray,
    Intervals,
    covered_ns,
    either,
    none,
    union,
    without,
)
from gpuadvisor.rules.facts.launches import Calls
from gpuadvisor.rules.facts.operators import Operators


@dataclass(frozen=True, eq=False)
class Passes:
    """When forward passes ran and the backward passes that followed them."""

    times: Intervals
    reached: Intervals
    """The part of them that a compiler surely reaches."""
    interrupted: int
    """Number of forward passes in which the host waited for a value."""
    count: int
    """Number of all passes, forward and backward."""


def passes(
    profile: Profile, ran: Operators, back: Backward, host: Calls, reads: IntArray
) -> Passes | None:
    """Return when forward passes ran and the backward passes that followed them; None where the
    trace tells of no backward pass whose forward pass it has, as when nothing is trained.

    `reads` are rows of the calls in which the host waited for a value.
    """
    found, reached, interrupted, count = none(), none(), 0, 0
    for process, thread in sorted(
        {*zip(back.process.tolist(), back.forward_thread.tolist(), strict=True)}
    ):
        spans = _Spans.of(*passes_of(profile, ran, back, process, thread))
        found = either(found, union(spans.begin_ns, spans.end_ns))
        count += len(spans.begin_ns)
        mine = reads[(host.process[reads] == process) & (host.thread[reads] == thread)]
        until_ns = spans.read_at(np.sort(host.begin_ns[mine]))
        interrupted += int((until_ns < spans.end_ns).sum())
        linked = (back.process == process) & (back.forward_thread == thread)
        reached = either(reached, _reached(spans, until_ns, back, linked))
    return Passes(found, reached, interrupted, count) if count else None


@dataclass(frozen=True, eq=False)
class _Spans:
    """Forward and backward passes of one thread, from the first to the last of what follows each
    other of one kind, in their order."""

    begin_ns: IntArray
    end_ns: IntArray
    is_backward: BoolArray

    @classmethod
    def of(cls, forward: Intervals, backward: Intervals) -> _Spans:
        begin = np.concatenate((forward.begin_ns, backward.begin_ns))
        end = np.concatenate((forward.end_ns, backward.end_ns))
        order = np.argsort(begin, kind="stable")
        kind = np.repeat((False, True), (len(forward), len(backward)))[order]
        first = np.flatnonzero(np.diff(kind, prepend=~kind[:1]))
        last = np.append(first[1:], len(kind)) - 1
        return cls(begin[order][first], end[order][last], kind[first])

    def read_at(self, read_ns: IntArray) -> IntArray:
        """Return the end of each pass, or when the host first read a value in a forward pass."""
        first = np.searchsorted(read_ns, self.begin_ns, "left")
        read = np.append(read_ns, np.iinfo(np.int64).max)[first]
        until: IntArray = np.where(self.is_backward, self.end_ns, np.minimum(read, self.end_ns))
        return until


def _reached(spans: _Spans, until_ns: IntArray, back: Backward, linked: BoolArray) -> Intervals:
    """Return the forward passes until so far, and the backward passes of that: all of one whose
    forward pass has no end before, else from its first to its last operator that is linked."""
    is_cut = until_ns < spans.end_ns
    forward = ~spans.is_backward
    reached = union(spans.begin_ns[forward], until_ns[forward])
    follows_cut = spans.is_backward & np.append(False, is_cut[:-1])
    whole = spans.is_backward & ~follows_cut
    reached = either(reached, union(spans.begin_ns[whole], spans.end_ns[whole]))
    sure = linked & (covered_ns(reached, back.forward_ns, back.forward_ns + 1) > 0)
    begin, end = back.begin_ns[sure], back.end_ns[sure]
    parts = []
    for row in np.flatnonzero(follows_cut).tolist():
        mine = (begin >= spans.begin_ns[row]) & (begin < spans.end_ns[row])
        if mine.any():
            parts.append((int(begin[mine].min()), int(end[mine].max())))
    edges = np.array(parts, np.int64).reshape(-1, 2)
    return either(reached, union(edges[:, 0], edges[:, 1]))


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
