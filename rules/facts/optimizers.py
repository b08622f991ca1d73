"""What optimizers do in their steps, without the closures that they call.

PyTorch marks all of a call of `step()` (`Optimizer.step#Adam.step`). `optimizer.step(closure)` has
the forward and the backward pass in it then, as with Lightning, which always does so, and with
LBFGS, which calls the closure many times. These are not the optimizer's work.

Nothing marks the closure itself. But its backward pass is in the trace, on whatever thread autograd
runs it, with what it was made by; so is `zero_grad()`, as a range within that of the step. PyTorch
numbers the operators that run while gradients are recorded (`backward`), as they are in a closure;
its own optimizers update parameters with `no_grad`, so that their operators have no number. Of such
a step this is taken for the optimizer's own: from the first operator without a number, or call into
CUDA from outside of all operators, after a backward pass, to where the next forward pass or
`zero_grad()` begins, or to the end of the step. So it is with torch 2.13's Adam, SGD and LBFGS, and
with Lightning 2.6. What a closure does with `no_grad` after its backward pass, such as clipping
gradients, is not told from the optimizer's work; what an optimizer does before it calls the closure
is not counted, nor is Python before its first operator. In a trace without any backward pass, as
older PyTorch did not name it, nothing of a step that calls `zero_grad()` is known to be the
optimizer's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpuadvisor.domain.profile import NO_TEXT, UNKNOWN, Profile
from gpuadvisor.rules.facts.backward import Backward
from gpuadvisor.rules.facts.device_work import DeviceWork
from gpuadvisor.rules.facts.intervals import (
    LATEST_NS,
    IntArray,
    Intervals,
    by_key,
    covered_ns,
    either,
    ends,
    none,
    one,
    union,
    without,
)
from gpuadvisor.rules.facts.joins import call_tree, thread_keys
from gpuadvisor.rules.facts.launches import ENQUEUING, Calls, LaunchingCalls
from gpuadvisor.rules.facts.operators import Operators
from gpuadvisor.rules.facts.passes import passes_of
from gpuadvisor.rules.facts.steps import OPTIMIZER

ZERO_GRAD = "Optimizer.zero_grad#"
"""How PyTorch's own ranges around `zero_grad()` begin, followed by the class."""


@dataclass(frozen=True, eq=False)
class OptimizerSteps:
    """The steps of all optimizers as far as they are their own work, and what they launched."""

    names: tuple[str, ...]
    """Names of the optimizers as PyTorch marks them: `Optimizer.step#Adam.step`."""
    count: int
    """Steps of which something is known to be the optimizer's own."""
    times: Intervals
    """Times of the host in which an optimizer stepped, without closures."""
    closures: Intervals
    """The rest of the time that is marked as steps: closures, and what cannot be told from them."""
    rows: IntArray
    """Rows of the device's work: kernels that were launched in `times`."""


def optimizer_steps(
    profile: Profile,
    work: DeviceWork,
    host: Calls,
    launched: LaunchingCalls,
    ran: Operators,
    back: Backward,
    device: int | None,
) -> OptimizerSteps:
    """Return the steps of a profile's optimizers, and their kernels on a device."""
    steps = _marked(profile, OPTIMIZER)
    known = np.ones(len(steps.begin_ns), np.bool_)
    begins, stops = [steps.begin_ns[:0]], [steps.end_ns[:0]]
    for thread, rows in steps.threads():
        tells = _thread(profile, host, ran, back, *thread)
        for row in rows.tolist():
            own = tells.own(int(steps.begin_ns[row]), int(steps.end_ns[row]))
            known[row] = len(own) > 0
            begins.append(own.begin_ns)
            stops.append(own.end_ns)
    times = union(np.concatenate(begins), np.concatenate(stops))
    rows = np.flatnonzero(work.is_kernel & launched.known & (work.device == device))
    called = launched.begin_ns[rows]
    return OptimizerSteps(
        tuple(profile.header.texts[name] for name in np.unique(steps.name[known]).tolist()),
        int(known.sum()),
        times,
        without(union(steps.begin_ns, steps.end_ns), times),
        rows[covered_ns(times, called, called + 1) > 0],
    )


@dataclass(frozen=True, eq=False)
class _Marked:
    """Ranges of some name, none within another of them on its thread."""

    begin_ns: IntArray
    end_ns: IntArray
    process: IntArray
    thread: IntArray
    name: npt.NDArray[np.int32]

    def threads(self) -> Iterator[tuple[tuple[int, int], IntArray]]:
        """Yield process and thread with the rows that are of them."""
        key = thread_keys(self.process, self.thread, self.process[:0], self.thread[:0])[0]
        for _, rows in by_key(key):
            yield (int(self.process[rows[0]]), int(self.thread[rows[0]])), rows


def _marked(profile: Profile, prefix: str) -> _Marked:
    columns = profile.columns("ranges", ("begin_ns", "duration_ns", "process", "thread", "name"))
    texts = profile.header.texts
    used = np.unique(columns["name"]).tolist()
    named = [name for name in used if name != NO_TEXT and texts[name].startswith(prefix)]
    at = np.flatnonzero(np.isin(columns["name"], named))
    begin, end = ends(columns["begin_ns"][at], columns["duration_ns"][at])
    process, thread = columns["process"][at], columns["thread"][at]
    tree = call_tree(begin, end, thread_keys(process, thread, process[:0], thread[:0])[0])
    outer = np.sort(tree.row[tree.parent == UNKNOWN])
    name = columns["name"][at]
    return _Marked(begin[outer], end[outer], process[outer], thread[outer], name[outer])


@dataclass(frozen=True, eq=False)
class _Thread:
    """What tells closures in the steps of optimizers on one thread."""

    backward: Intervals
    """When its backward passes ran, on whatever thread."""
    clears: Intervals
    """When it was in `zero_grad()`."""
    forward: Intervals
    """When it was in operators that a backward pass follows."""
    plain_ns: IntArray
    """When its operators without a number began, and its calls into CUDA outside of all operators,
    in order."""
    any_ns: IntArray
    """When any of these and of its other operators began, in order."""

    def own(self, begin_ns: int, end_ns: int) -> Intervals:
        """Return when a step between two times was the optimizer's own work."""
        later = _held(self.backward, begin_ns, end_ns)
        clears = _held(self.clears, begin_ns, end_ns)
        if not len(later):
            may_be_hidden = len(clears) and not len(self.backward)
            return none() if may_be_hidden else one(begin_ns, end_ns)
        passes = either(clears, _held(self.forward, begin_ns, end_ns))
        # A backward pass ends with the last of its operators before which no other pass begins.
        begun = np.searchsorted(passes.begin_ns, later.end_ns, "left")
        last = np.flatnonzero(np.diff(begun, append=len(passes) + 1))
        low, next_one = later.end_ns[last], begun[last]
        high = np.append(passes.begin_ns, end_ns)[next_one]
        low[-1], high[-1] = max(int(low[-1]), int(passes.end_ns.max(initial=begin_ns))), end_ns
        return union(self._first(low, high), high)

    def _first(self, low_ns: IntArray, high_ns: IntArray) -> IntArray:
        """Return when the optimizer's work begins between two times; the latter where nothing is
        known of any."""
        plain, every = (
            np.append(times, LATEST_NS)[np.searchsorted(times, low_ns, "left")]
            for times in (self.plain_ns, self.any_ns)
        )
        first: IntArray = np.minimum(np.where(plain < high_ns, plain, every), high_ns)
        return first


def _held(times: Intervals, begin_ns: int, end_ns: int) -> Intervals:
    """Return those that lie between two times altogether."""
    first = np.searchsorted(times.begin_ns, begin_ns, "left")
    last = np.searchsorted(times.end_ns, end_ns, "right")
    return Intervals(times.begin_ns[first:last], times.end_ns[first:last])


def _thread(
    profile: Profile, host: Calls, ran: Operators, back: Backward, process: int, thread: int
) -> _Thread:
    columns = profile.columns("operators", ("process", "thread", "sequence"))
    mine = (columns["process"] == process) & (columns["thread"] == thread)
    forward, backward = passes_of(profile, ran, back, process, thread)
    clears = _marked(profile, ZERO_GRAD)
    cleared = (clears.process == process) & (clears.thread == thread)
    tree = ran.call_tree
    outer = np.zeros(len(ran), np.bool_)
    outer[tree.row[tree.parent == UNKNOWN]] = True
    outer &= mine & (covered_ns(backward, ran.begin_ns, ran.begin_ns + 1) == 0)
    called = (host.process == process) & (host.thread == thread) & (ran.of_call == UNKNOWN)
    calls_ns = host.begin_ns[called & host.of_kinds(ENQUEUING)]
    plain = outer & (columns["sequence"] < 0)
    return _Thread(
        backward,
        union(clears.begin_ns[cleared], clears.end_ns[cleared]),
        forward,
        np.sort(np.concatenate((ran.begin_ns[plain], calls_ns))),
        np.sort(np.concatenate((ran.begin_ns[outer], calls_ns))),
    )
