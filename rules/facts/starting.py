"""When the host did what a run does once: start CUDA, load kernels, compile, capture a graph.

Known from what was recorded, never from patterns in time:

- `loading`: a single call that launches, fills or sets something takes `SLOW_CALL_NS` or longer, or
  one that allocates or frees `LOADING_NS` before the process's first work of a device: later ones
  wait for it, or for memory that an allocator gives back, which is a fault and no start
  (what counts is the part in which the device is idle, so that it cannot be waiting for room in a
  queue), an operator takes `LOADING_NS` or longer before it launches, but for calls that only
  ask, and those of its name do not in most steps, or the profiler itself recorded that kernels were
  loaded,
- `capturing`: from one launch that ran nothing to the next, in a profile with calls that make a
  graph of them,
- `compiling`: ranges or Python functions of Dynamo's, Inductor's and Triton's compilers,
- `trying`: from one kernel to the next with which XLA, as it compiles, looks whether an algorithm
  that it tries wrote beside its output.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gpuadvisor.domain.profile import UNKNOWN, CallKind, Profile, Range
from gpuadvisor.rules.facts.intervals import (
    BoolArray,
    IntArray,
    Intervals,
    by_key,
    covered_ns,
    either,
    ends,
    none,
    numbered,
    union,
)
from gpuadvisor.rules.facts.launches import ALLOCATING, ENQUEUING, Calls, LaunchingCalls
from gpuadvisor.rules.facts.operators import Operators

SLOW_CALL_NS = 1_000_000
"""On an idle device no steady launch takes as long: the slowest in traces of six kinds of GPU took
0.1 ms, first launches of kernels whose module has to be loaded 1.5 to 332 ms."""
LOADING_NS = 50_000_000
"""Time of an operator without a call that does something, before it launches, from which on it
looks for an algorithm, compiles or loads: those of eager PyTorch follow each other within 0.2 ms;
first ones took 119 to 332 ms in a trace of an AMD GPU, and 87 ms on an A10G. [own]"""
LONGER = 3.0
"""Factor on the median of the others from which on a first one is a start (gpuprof's threshold)."""
FEWEST_STEPS = 3
"""Steps of which one can tell what is done in most of them: of two, both may be first ones."""
TRIAL_NS = 1_000_000_000
"""Longest time from one tried algorithm to the next: a slow convolution of which a trial runs, and
what is compiled between two, take up to 0.1 s on a GTX 1650. [own]"""
_TRIES = re.compile(r"\bredzone_checker\b")
"""Checks that an algorithm that is tried wrote nothing beside its result."""
_SLOW = np.array((CallKind.LAUNCH, CallKind.MEMSET, CallKind.OTHER, CallKind.EVENT), np.int8)
_MAKES_GRAPHS = re.compile(r"(cuda|hip|cu)(StreamBeginCapture|StreamEndCapture|GraphInstantiate)")
_LOADS = re.compile(r"Module|Library|Function Loading|Lazy", re.I)
"""Overhead of the profiler that is none: `Lazy Function Loading`, `Runtime Triggered Module
Loading` are CUDA's own."""
_COMPILES = re.compile(
    r"convert_frame\.py\(\d+\): (_compile|compile_inner)\b"
    r"|triton/compiler/compiler\.py\(\d+\): compile"
    r"|^_compile\.compile_inner|^compile_fx\b|torch/utils/cpp_extension\.py\(\d+\): load"
)
"""Python functions (`file.py(line): name`) and ranges of compilers that run only when something is
compiled: a compiled function that runs is in none of them."""


def is_trial(kernel: str) -> bool:
    """Say whether a kernel is there only because a library tries algorithms."""
    return _TRIES.search(kernel) is not None


@dataclass(frozen=True, eq=False)
class Starting:
    """What a run does once, by process."""

    once: Mapping[int, Intervals]
    """When each process did something of it."""
    profiler: Intervals
    """When the profiler itself was at work."""
    kinds: tuple[str, ...]
    """What of it there is: `loading`, `capturing`, `compiling`, `trying`."""

    def all_within(self, begin_ns: int, end_ns: int) -> int:
        """Return for how long between two times some process did something of it."""
        found = none()
        for times in self.once.values():
            found = either(found, times)
        return int(covered_ns(found, np.array([begin_ns]), np.array([end_ns]))[0])


def starting(
    profile: Profile,
    host: Calls,
    launched: LaunchingCalls,
    launching: Operators,
    steps_ns: IntArray,
) -> Starting:
    """Return when the host did what a run does once; `steps_ns` is when each step begins, in their
    order."""
    texts = profile.header.texts
    columns = profile.columns("ranges", ("begin_ns", "duration_ns", "process", "name", "kind"))
    begin, end = ends(columns["begin_ns"], columns["duration_ns"])
    kind, name = columns["kind"], columns["name"]
    overhead = np.flatnonzero(kind == Range.OVERHEAD)
    loads = overhead[_named(name[overhead], texts, _LOADS)]
    profiler = np.setdiff1d(overhead, loads)
    marked = np.flatnonzero(np.isin(kind, (Range.USER, Range.PYTHON)))
    compiled = marked[_named(name[marked], texts, _COMPILES)]
    took = host.end_ns - host.begin_ns
    slow = np.flatnonzero(
        (
            np.isin(host.kind, _SLOW)
            & (took >= SLOW_CALL_NS)
            & ~_named(host.name, texts, _MAKES_GRAPHS)
        )
        | (host.of_kinds(ALLOCATING) & (took >= LOADING_NS) & _before_work(host, launched))
    )
    captured = _captured(host, launched, texts)
    tried = _tried(profile, host, launched)
    late, since = _late(host, launching, steps_ns)
    once: dict[int, Intervals] = {}
    everywhere = union(begin[loads], end[loads])
    for process in np.unique(host.process).tolist():
        mine = slow[host.process[slow] == process]
        found = either(everywhere, union(host.begin_ns[mine], host.end_ns[mine]))
        mine = host.process[late] == process
        found = either(found, union(since[mine], host.begin_ns[late[mine]]))
        mine = compiled[columns["process"][compiled] == process]
        found = either(found, union(begin[mine], end[mine]))
        found = either(found, tried.get(process, none()))
        once[process] = either(found, captured.get(process, none()))
    kinds = (("loading", len(slow) + len(loads) + len(late)), ("capturing", len(captured)),
             ("compiling", len(compiled)), ("trying", len(tried)))  # fmt: skip
    return Starting(
        {process: times for process, times in once.items() if len(times)},
        union(begin[profiler], end[profiler]),
        tuple(word for word, found in kinds if found),
    )


def _before_work(host: Calls, launched: LaunchingCalls) -> BoolArray:
    """Return which calls come before the first of their process that launched what ran."""
    found = np.ones(len(host), np.bool_)
    launching = launched.call[launched.call != UNKNOWN]
    for process in np.unique(host.process[launching]).tolist():
        first = host.begin_ns[launching[host.process[launching] == process]].min()
        found[host.process == process] &= host.begin_ns[host.process == process] < first
    return found


def long_before(host: Calls, launching: Operators) -> tuple[IntArray, IntArray]:
    """Return calls before which their operator took `LOADING_NS` or longer without another one that
    does something, and since when: a library asks for attributes while it looks for an algorithm
    and loads it, others compute on the CPU."""
    order = np.lexsort((host.begin_ns, host.thread_key))
    order = order[host.kind[order] != CallKind.OTHER]
    before = np.full(len(host), np.iinfo(np.int64).min)
    same = host.thread_key[order[1:]] == host.thread_key[order[:-1]]
    before[order[1:]] = np.where(same, host.end_ns[order[:-1]], before[order[1:]])
    rows = order[(launching.of_call != UNKNOWN)[order] & host.of_kinds(ENQUEUING)[order]]
    since = np.maximum(launching.begin_ns[launching.of_call[rows]], before[rows])
    late = host.begin_ns[rows] - since >= LOADING_NS
    return rows[late], since[late]


def _late(host: Calls, launching: Operators, steps_ns: IntArray) -> tuple[IntArray, IntArray]:
    """Return such calls that are a start. What operators of one name do in most steps is none: they
    compute on the CPU, or look for an algorithm again and again."""
    rows, since = long_before(host, launching)
    seldom = ~_in_most_steps(launching.name[launching.of_call[rows]], since, steps_ns)
    return rows[seldom], since[seldom]


def _in_most_steps(
    names: npt.NDArray[np.int32], begin_ns: IntArray, steps_ns: IntArray
) -> BoolArray:
    """Return which events have a name of which some begin in most of the steps."""
    if len(steps_ns) < FEWEST_STEPS:
        return np.zeros(len(names), np.bool_)
    step = np.searchsorted(steps_ns, begin_ns, "right") - 1
    used, place = np.unique(names, return_inverse=True)
    inside = step >= 0
    pairs = np.unique(np.stack((place[inside], step[inside])), axis=1)
    often: BoolArray = 2 * np.bincount(pairs[0], minlength=len(used)) > len(steps_ns)
    return often[place]


def _named(names: npt.NDArray[Any], texts: Sequence[str], pattern: re.Pattern[str]) -> BoolArray:
    """Return which rows have a name with such a pattern in it."""
    used, place = numbered(names)
    found: BoolArray = np.array([bool(pattern.search(texts[each])) for each in used], np.bool_)
    return found[place] if len(used) else np.zeros(len(names), np.bool_)


def _tried(profile: Profile, host: Calls, launched: LaunchingCalls) -> Mapping[int, Intervals]:
    """Return when each process tried algorithms."""
    name = profile.columns("kernels", ("name",))["name"]
    calls = launched.call[: len(name)]
    rows = calls[_named(name, profile.header.texts, _TRIES) & (calls != UNKNOWN)]
    found = {}
    for process, at in by_key(host.process[rows]):
        mine = rows[at][np.argsort(host.begin_ns[rows[at]], kind="stable")]
        begin, end = host.begin_ns[mine[:-1]], host.end_ns[mine[1:]]
        near = end - begin <= TRIAL_NS
        found[process] = union(begin[near], end[near])
    return found


def _captured(
    host: Calls, launched: LaunchingCalls, texts: Sequence[str]
) -> Mapping[int, Intervals]:
    """Return when each process launched what did not run but became a graph."""
    makes = np.flatnonzero(_named(host.name, texts, _MAKES_GRAPHS))
    if not len(makes):
        return {}
    ran = np.zeros(len(host), np.bool_)
    ran[launched.call[launched.call != UNKNOWN]] = True
    into_graph = (host.kind == CallKind.LAUNCH) & ~ran
    into_graph[makes] = True
    rows = np.flatnonzero((host.kind == CallKind.LAUNCH) | into_graph)
    found = {}
    for process, at in by_key(host.process[rows]):
        mine = rows[at][np.argsort(host.begin_ns[rows[at]], kind="stable")]
        # Nothing else is launched while a graph is captured.
        both = into_graph[mine[:-1]] & into_graph[mine[1:]]
        found[process] = union(
            np.concatenate((host.begin_ns[mine[:-1][both]], host.begin_ns[makes])),
            np.concatenate((host.end_ns[mine[1:][both]], host.end_ns[makes])),
        )
    return found
