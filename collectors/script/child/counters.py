"""What happens beside the steps: batches, waiting for them, evaluations, compilations."""

from __future__ import annotations

import itertools
import math
import os
import random
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

KEEPS_UP, RUN_DRY = 0.75, 0.25
"""Shares of the batches in advance that are ready when the loader keeps up with the steps, and when
it does not. Between them the queue is still filling or emptying."""
MOST_LETTERS = 200
"""Letters of the first line of what Dynamo says of a graph break, which alone is its reason."""
Step = tuple[Any, float, float, float, int, int]
"""The end of a step: a mark in device time, and the samples of loaders, the samples of the first
root, the seconds of waiting for data, the interruptions and the steps up to there."""
ALONE = 26
"""Steps of a window that are timed one by one, where it has more: those of eight windows, the least
that a usual run has, are the 200 from which on a 95th percentile says something. A mark with its
event of the GPU costs 20 us on the host of an H100, half of all that the harness costs a step."""
LONG_WAIT_S = 1e-3
"""Wait for a batch from which on it is looked whether the device ran out of work meanwhile: the two
marks of that cost 40 us, 4 % of it."""
MOST_WAITS = 512
"""Waits of which that is looked at most: two CUDA events are kept for each until a run ends."""
IN_A_ROW = 8
"""Steps in a row that are timed one by one: they take one mark more than there are of them."""


def ready_batches(iterator: Any) -> int | None:
    """Return the batches that wait to be taken, or None where that cannot be seen.

    Reads what torch's multi-process iterator keeps (torch 2.4 to 2.13): the workers' queue, the
    pinned queue behind it, and batches that came out of turn.
    """
    try:
        queues = {id(q): q for q in (iterator._data_queue, iterator._worker_result_queue)}
        early = sum(len(task) == 2 for task in iterator._task_info.values())
        return early + sum(int(queue.qsize()) for queue in queues.values())
    except (AttributeError, NotImplementedError):  # another iterator; macOS has no qsize
        return None


def is_settled(ready: int | None, prefetched: int) -> bool:
    """Say whether step times show the loader as it is, and not batches loaded before."""
    return ready is not None and not RUN_DRY * prefetched < ready < KEEPS_UP * prefetched


def has_shrunk(before: int | None, now: int | None, prefetched: int) -> bool:
    """Say whether the steps between lived on batches loaded before."""
    if before is None or now is None:
        return False
    return before - now > max(2.0, RUN_DRY * prefetched)


def nothing() -> None:
    """Stands for a weak reference to nothing."""


class Counters:
    """Counted up by the hooks, read by the clock.

    What a hook touches at each step the step before has driven out of the processor's caches, and
    to fetch it again is most of what a hook costs. So what they need in a usual step is all here.
    """

    __slots__ = (
        "_iterator", "counted", "data_wait_s", "distance", "distances", "heartbeat_s",
        "interruptions", "loader_samples", "loader_samples_seen", "mark", "number", "open",
        "passes", "prefetched_batches", "root_samples", "rows", "unmarked", "usual_root",
        "waits", "watched", "window_ends_s", "workers",
    )  # fmt: skip

    def __init__(self) -> None:
        self.loader_samples = 0.0
        self.root_samples = 0.0
        self.data_wait_s = 0.0
        self.interruptions = 0
        """Calls of a root with gradients off, which in training is an evaluation, and whatever
        else tells that the time to the next step is not a step's."""
        self.prefetched_batches = 0
        """Batches that the loaders' workers may have ready in advance."""
        self.workers = 0
        self.heartbeat_s = math.inf
        """When the parent should hear again that the script is alive, by `time.perf_counter`."""
        self.counted: Callable[[], Any] = nothing
        """Gives the optimizer each of whose steps ends one in the open window, if there is one."""
        self.open: list[Step] = []
        """The open window; its first step is the last one of the window before."""
        self.mark: Callable[[], Any] = time.perf_counter
        """Takes the mark of a step that ends in the open window."""
        self.window_ends_s = math.inf
        self.number = 0
        """Steps up to the last mark."""
        self.distance = 1
        """Steps from the last mark to the next."""
        self.unmarked = 0
        """Steps to come that end without a mark."""
        self.distances: Iterator[int] = itertools.repeat(1)
        """Distances of the marks after the next."""
        self.usual_root: weakref.ref[Any] | None = None
        """The first root, if its calls with gradients on say nothing but how many samples go in."""
        self.rows = 0
        """Samples in the input of the first root when they were last looked at."""
        self.loader_samples_seen = 0.0
        """Samples of the loaders at the last call of the first root."""
        self.passes = 1
        """Backward passes up to the next that is of interest."""
        self.waits: list[tuple[Any, Any, float]] = []
        """Long waits for a batch: the marks before and after, and the seconds between on the
        host."""
        self.watched = 1
        """Further batches that are waited for between marks."""
        self._iterator: Callable[[], Any] = nothing

    def step(self, mark: Any) -> Step:
        """Return a step that ends now."""
        return (
            mark,
            self.loader_samples,
            self.root_samples,
            self.data_wait_s,
            self.interruptions,
            self.number,
        )

    def add_step(self) -> bool:
        """Add a step to the open window, and say whether that is long enough."""
        if self.unmarked:
            self.unmarked -= 1
            return False
        self.number += self.distance
        self.open.append(self.step(self.mark()))
        self.distance = distance = next(self.distances)
        self.unmarked = distance - 1
        return time.perf_counter() >= self.window_ends_s

    def mark_some(self, steps: float) -> None:
        """Mark the end of each step of windows that have so many, or of fewer where they have many.

        Then some steps in a row are timed one by one, and many together, in turns of random
        length: what recurs in a script's steps is seen as often as it happens.
        """
        together = int(steps * IN_A_ROW / ALONE) - IN_A_ROW
        self.distances = _in_turns(together) if together > 1 else itertools.repeat(1)

    def mark_next(self) -> None:
        """Let the next step end with a mark, as the time up to there is not like others."""
        self.distance -= self.unmarked
        self.unmarked = 0

    def interrupt(self) -> None:
        """Note that the time up to the end of the next step is not a step's."""
        self.interruptions += 1
        if self.unmarked:
            self.mark_next()

    def root_took(self, rows: int) -> None:
        """Count samples in the input of the first root."""
        self.rows = rows
        self.root_samples += rows
        self.loader_samples_seen = self.loader_samples

    def loaded_by(self, iterator: Any, workers: int, prefetched: int) -> None:
        """Remember the loader's iterator that gives batches now, without keeping it alive."""
        self._iterator = weakref.ref(iterator)
        self.workers = max(self.workers, workers)
        self.prefetched_batches = max(self.prefetched_batches, workers * prefetched)

    def begin_wait(self) -> Any:
        """Return the mark of a wait for a batch that begins, or None for none.

        Marks are for a device: the host's clock knows already how long it waited. Workers that
        start alike deliver several batches at once, so that the next late one may be far away. A
        thread that loads ahead has a current device of its own, on which it would begin to use it.
        """
        if not self.open or self.mark is time.perf_counter or len(self.waits) >= MOST_WAITS:
            return None
        if threading.current_thread() is not threading.main_thread():
            return None
        self.watched -= 1
        try:
            return self.mark()
        except RuntimeError:  # a CUDA graph is being captured, or the device is lost
            return None

    def waited(self, mark: Any, seconds: float) -> None:
        """Note a long wait, with the mark of its beginning if it has one."""
        self.watched = 2 * (self.workers + 1)
        if mark is None:
            return
        try:
            self.waits.append((mark, self.mark(), seconds))
        except RuntimeError:
            return

    def ready(self) -> int | None:
        """Return the batches ready in that loader; None where that cannot be seen."""
        iterator = self._iterator()
        return None if iterator is None else ready_batches(iterator)


def _in_turns(together: int) -> Iterator[int]:
    """Yield distances of marks: some steps one by one, and about so many together."""
    chance = random.Random(0)  # not the script's generator
    while True:
        yield from itertools.repeat(1, IN_A_ROW)
        yield chance.randint(together - together // 2, together + together // 2)


def compilations() -> int:
    """Return how many frames Dynamo has compiled, or begun to; 0 if it was never used."""
    module = sys.modules.get("torch._dynamo.utils")
    counters = getattr(module, "counters", None)
    if counters is None:
        return 0
    return sum(
        counters[group].get(key, 0)
        for group, key in (("frames", "total"), ("stats", "unique_graphs"))
        if group in counters
    )


def dynamo_counts() -> dict[str, dict[str, int]]:
    """Return Dynamo's graph breaks by reason, its recompilations by frame and the number of kernels
    that Inductor generated, so far.

    A frame that Dynamo gives up and leaves to Python counts as a graph break, too: a break within a
    loop costs the whole frame, and is not among those that Dynamo counts. Of recompilations, those
    among the last 64 compilations: torch keeps no more (torch 2.4 to 2.13).
    """
    module = sys.modules.get("torch._dynamo.utils")
    if module is None:
        return {}
    breaks: dict[str, int] = {}
    for reason, count in dict(module.counters.get("graph_break", {})).items():
        headline = str(reason).partition("\n")[0][:MOST_LETTERS]
        breaks[headline] = breaks.get(headline, 0) + int(count)
    frames = module.counters.get("frames", {})
    if (given_up := int(frames.get("total", 0)) - int(frames.get("ok", 0))) > 0:
        reasons = (
            str(each).partition("\n")[0] for each in module.counters.get("unimplemented", ())
        )
        why = next((each for each in reasons if each[:MOST_LETTERS] not in breaks), "")
        breaks[f"left to Python as a whole: {why}"[:MOST_LETTERS].rstrip(": ")] = given_up
    again: dict[str, int] = {}
    known = getattr(module, "get_compilation_metrics", list)
    for each in known():
        if getattr(each, "cache_size", None):  # the frame was compiled before
            file = str(each.co_filename).rpartition(os.sep)[2]
            frame = f"{each.co_name} ({file}, line {each.co_firstlineno})"
            again[frame] = again.get(frame, 0) + 1
    inductor = sys.modules.get("torch._inductor.metrics")
    generated = getattr(inductor, "generated_kernel_count", 0)
    kernels = {"kernels": int(generated)} if generated else {}
    return {"graph_breaks": breaks, "recompilations": again, "generated_kernels": kernels}
