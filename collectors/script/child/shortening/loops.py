"""Ends the script's own loops early, each as if it had come to its own end.

What a loop repeats shows in what happens within its iterations: several steps make them epochs,
one step each makes it a loop over steps, and none leaves it alone. What the script needs whole is
never ended early: a list of folds, the models of an ensemble, micro-batches of one step.

What a range counts is passed over rather than left out: the last epoch is lived, too.
"""

from __future__ import annotations

import builtins
import copy
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from contextlib import suppress
from operator import length_hint
from types import FrameType
from typing import Any

from gpuadvisor.collectors.script.child.shortening import branches
from gpuadvisor.collectors.script.child.shortening.branch_marking import Mark
from gpuadvisor.collectors.script.child.shortening.later_iterations import (
    MOST_ITERATIONS,
    choose,
    evaluated,
)
from gpuadvisor.collectors.script.child.shortening.loop_limits import planned
from gpuadvisor.collectors.script.child.shortening.loop_rewriting import LOOP, WHILE, Site
from gpuadvisor.collectors.script.child.shortening.progress import Progress
from gpuadvisor.collectors.script.specification import Shortening
from gpuadvisor.domain.rehearsal import Branch, Loop, LoopKind

IDLE_ENTRIES = 64
"""Times that a loop may be run through without a step before it is no longer watched: loops over
a sample's parts are, after a few batches. More than the phases before a script's first step."""
IDLE_BACKWARDS = 128
"""Backward passes without a step of the optimizers that exist, after which the update must be
hand-written. More than any usual gradient accumulation (nanoGPT: 40)."""
SAFE_PASSES = 4
"""Shortened passes over loaders, in batches, after which a loop over steps ends that has not
seen the end of `epochs` passes."""
MOST_MODELS = 32
"""Iterations planned up to which a loop that calls new models each time is one over the models of
an ensemble, and is needed whole; generations of a population are more."""
OPTIMIZER, BACKWARD, CALL = 3, 2, 1
"""What a step is, the better evidence first: in a loop that trains, calls are evaluations."""

_RANGES = (range, type(iter(range(0))), type(iter(range(2**70))))
_EMPTY: tuple[Iterable[Any], ...] = (
    [], (), {}, set(), "", b"", bytearray(), {}.values(), {}.items(), reversed([]), reversed({}),
)  # fmt: skip
_CONTAINER_ITERATORS = tuple(type(iter(empty)) for empty in _EMPTY)


def _never() -> bool:
    return False


def _always() -> bool:
    return True


is_traced: Callable[[], bool] = _never
"""Says whether Dynamo is reading the code that calls it; torch's own once torch is there."""
_loops: Loops | None = None


def loop(iterable: Any, number: int) -> Any:
    """Stand in a `for` statement around what it runs over."""
    if is_traced() or _loops is None:
        return iterable
    return _loops.over(iterable, number)


def more(number: int) -> Callable[[], bool]:
    """Return what a `while` statement asks before its own condition."""
    if is_traced() or _loops is None:
        return _always
    return _loops.entered(number, sys._getframe(1))


class Watched:
    """A loop of the script's text, over all the times that it is run through."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.idle = 0
        """Entries without a step so far."""
        self.kind: LoopKind | None = None
        self.trains = False
        """Whether its steps were more than calls."""
        self.planned: int | None = None
        self.done = 0
        self.shortened = False
        self.seconds: list[float] = []
        """Time of each iteration that was an epoch."""
        self.lived: tuple[int, ...] = ()
        """Places of the iterations that were lived, from 0, the first time that others were passed
        over; empty where none were."""


class Loops:
    """All rewritten loops of this process."""

    def __init__(self, shortening: Shortening, progress: Progress) -> None:
        self.shortening = shortening
        self.progress = progress
        self.learns = False
        """Whether a rewritten file's text calls what a script cannot train without."""
        self.passed_over = 0
        """Loops that passed over epochs."""
        self.branches = branches.begin(progress)
        self._watched: list[Watched] = []

    def add(self, sites: Sequence[Site], learns: bool, marks: Sequence[Mark] = ()) -> None:
        """Take over the loops of one more file, which are numbered from `count` on, and its marked
        branches."""
        self._watched.extend(map(Watched, sites))
        self.branches.add(marks)
        self.learns = self.learns or learns

    @property
    def count(self) -> int:
        """How many loops there are; the number of the next."""
        return len(self._watched)

    def report_branches(self) -> Iterator[Branch]:
        """Yield the branches that were reached in the course of steps."""
        return self.branches.report(lambda number: self._watched[number].kind is not None)

    def report(self) -> list[Loop]:
        """Return the loops with steps in them, in the order in which their files were loaded."""
        return [
            Loop(
                each.site.place,
                each.kind,
                None if each.done > (each.planned or each.done) else each.planned,  # a wrong guess
                each.done,
                each.shortened,
                tuple(each.seconds),
                each.lived,
                each.trains,
            )
            for each in self._watched
            if each.kind is not None
        ]

    def restart(self) -> None:
        """Forget what was counted, as a forked process does about its parent's loops."""
        for watched in self._watched:
            watched.kind, watched.done, watched.shortened, watched.lived = None, 0, False, ()
            watched.trains = False
        self.branches.restart()

    def over(self, iterable: Any, number: int) -> Any:
        """Return what a `for` statement runs over instead; the same where it is not watched."""
        watched = self._watched[number]
        if watched.idle >= IDLE_ENTRIES or not hasattr(type(iterable), "__iter__"):
            return iterable
        try:
            inner = innermost(iterable)
        except Exception:  # an object with ideas of its own
            return iterable
        is_range = isinstance(inner, _RANGES)
        needed = not is_range and isinstance(inner, (Sized, *_CONTAINER_ITERATORS))
        entry = Entry(self, watched, _length(inner) if is_range else None, needed)
        if is_range and isinstance(innermost(iterable, zipped=False), _RANGES):
            entry.counts = _numbers(inner)
            if type(iterable) is enumerate:
                first: Any = iterable.__reduce__()[1][1]
                entry.counts = range(first, first + len(entry.counts))
        return _Items(iter(iterable), entry)

    def entered(self, number: int, frame: FrameType) -> Callable[[], bool]:
        """Return what a `while` statement of a frame asks; always true where it is not watched."""
        watched = self._watched[number]
        if watched.idle >= IDLE_ENTRIES:
            return _always
        count = None
        with suppress(Exception):  # objects with ideas of their own
            count = planned(watched.site.limits, frame)
        return Entry(self, watched, count, needed=False).goes_on


def innermost(iterable: Any, zipped: bool = True) -> Any:
    """Look through progress bars and `enumerate`, and `zip` and `map` unless told otherwise.

    No item is taken.
    """
    while True:
        if isinstance(iterable, enumerate) or (zipped and isinstance(iterable, (zip, map))):
            # How they pickle tells what they run over.
            parts = iterable.__reduce__()[1]
            if isinstance(iterable, enumerate):
                iterable = parts[0]
                continue
            inner = [innermost(part) for part in parts if hasattr(type(part), "__next__")]
            needed = [part for part in inner if isinstance(part, _CONTAINER_ITERATORS)]
            counted = [part for part in inner if isinstance(part, _RANGES)]
            return (needed or counted or inner or [iterable])[0]
        bar = getattr(iterable, "__dict__", {}).get("iterable")
        if bar is None or not hasattr(type(bar), "__iter__"):
            return iterable
        iterable = bar


def _length(items: Any) -> int | None:
    try:
        return length_hint(items)
    except OverflowError:  # a range without an end
        return None


def _numbers(items: Any) -> Sequence[int]:
    """Return what a range or its iterator will give; nothing where that is too much."""
    if (_length(items) or MOST_ITERATIONS + 1) > MOST_ITERATIONS:
        return ()
    return items if isinstance(items, range) else list(copy.copy(items))


class _Items(Iterator[Any]):
    """Gives a loop its items, and none any more once it is to end. It keeps no item alive."""

    __slots__ = ("_entry", "_items")

    def __init__(self, items: Iterator[Any], entry: Entry) -> None:
        self._items = items
        self._entry = entry

    def __iter__(self) -> _Items:
        return self

    def __next__(self) -> Any:
        entry = self._entry
        if not entry.goes_on():
            raise StopIteration
        for _ in range(entry.items_before_next()):
            next(self._items)
        before = entry.progress.batches
        item = next(self._items)
        if entry.progress.batches != before:
            entry.is_fed = True
        return item

    def __length_hint__(self) -> int:
        return length_hint(self._items)


class _Mark:
    """How far the script was at a moment."""

    __slots__ = ("_ended", "_fed", "batches", "passes_begun", "roots")

    def __init__(self, progress: Progress) -> None:
        self.batches = progress.batches
        self.passes_begun = progress.passes_begun
        self.roots = progress.roots
        self._fed = progress.thread.fed_steps, progress.thread.fed_calls
        self._ended = progress.passes_trained, progress.passes_evaluated

    def fed(self, calls: bool) -> int:
        """Return the steps on new batches of loaders, or the calls."""
        return self._fed[calls]

    def ended(self, calls: bool) -> int:
        """Return the passes that ended and had steps, or calls."""
        return self._ended[calls]


class Entry:
    """One time that a loop is run through. Asked before each iteration whether it goes on."""

    def __init__(self, loops: Loops, watched: Watched, planned: int | None, needed: bool) -> None:
        self._loops = loops
        self._watched = watched
        self.progress = loops.progress
        self._planned = planned
        self._needed = needed
        """Whether what comes after the loop needs every item: folds, models, phases."""
        self.is_fed = False
        """Whether the items come from a loader, which is shortened itself."""
        self.counts: Sequence[int] = ()
        """All numbers that the loop counts; empty where items cannot be passed over."""
        self._later: list[int] | None = None
        """Places of the items that are lived after those passed over, once some are."""
        self._drawn = 0
        """Items drawn, those that were passed over included, once some were."""
        self._passed_over_before = loops.passed_over
        self._iterations = self._events = -1
        self._evidence = 0
        self._steps = self._epochs = 0
        self._steppers: set[int] = set()
        """Ids of the optimizers or roots that took the steps."""
        self._models = 0
        """Iterations of evaluation that called a root for the first time."""
        self._most_batches = 0
        """The most batches of loaders taken in one iteration."""
        self._entered = _Mark(self.progress)
        watched.idle += 1

    def goes_on(self) -> bool:
        """Say whether the next iteration begins; never raises."""
        try:
            self._iterations += 1
            if self._events == self.progress.thread.events:
                return True
            if self._iterations and self._judge() and self._later is None:
                later = self._later_iterations(sys._getframe(2)) if self.counts else []
                lived = self._iterations + len(later)
                self._watched.shortened |= lived != self._planned
                if not later:
                    return False
            self._begin()
        except Exception:  # a mistake here must not be the script's
            self.goes_on = _always  # type: ignore[method-assign]
        return True

    def items_before_next(self) -> int:
        """Return how many items are passed over before the one of the next iteration."""
        if not self._later:
            return 0
        place = self._later.pop(0)
        count = place - self._drawn
        self._drawn = place + 1
        return count

    def _later_iterations(self, frame: FrameType) -> list[int]:
        """Decide on the iterations that are lived after the first; `frame` is the loop's.

        None the second time that the loop is run through: its text is the same. None of a loop
        over steps with a loader's batches either, which the loader may not have.
        """
        watched, loops, begun = self._watched, self._loops, self._iterations
        is_driven = self.is_fed or _Mark(self.progress).fed(False) > self._entered.fed(False)
        if watched.lived or not (self._epochs or (self._evidence == OPTIMIZER and not is_driven)):
            return []
        most = loops.shortening.later
        if self._epochs and loops.passed_over > self._passed_over_before:
            most = min(most, 1)  # of folds, say, each of which has epochs
        site, counts = watched.site, self.counts
        conditions = evaluated(site.target, site.conditions, counts, frame)
        later = choose(len(counts), begun, most, conditions if site.target else iter(()))
        if later:
            loops.passed_over += self._epochs > 0
            watched.lived = (*range(begun), *later)
            self._later, self._drawn = list(later), begun
        return later

    def _begin(self) -> None:
        thread = self.progress.thread
        self._began_s = time.perf_counter()
        self._events = thread.events
        self._before = (
            dict(thread.steps), thread.backwards, dict(thread.calls), dict(thread.calls_with_grad)
        )  # fmt: skip
        self._nested_before = thread.stepping_iterations
        self._begun = _Mark(self.progress)

    def _judge(self) -> bool:
        """Take the iteration that ends into account, and say whether the loop ends with it."""
        progress, thread, watched = self.progress, self.progress.thread, self._watched
        steppers, steps, evidence = self._steps_of_iteration()
        if not steps or evidence < self._evidence:
            return False
        if evidence > self._evidence:
            self._evidence, self._steps, self._epochs, self._steppers = evidence, 0, 0, set()
            self._models = 0
        self._models += evidence == CALL and progress.roots > self._begun.roots
        nested = thread.stepping_iterations - self._nested_before
        thread.stepping_iterations += 1
        self._steppers.update(steppers)
        taken = progress.batches - self._begun.batches
        self._most_batches = max(self._most_batches, taken)
        watched.idle = 0
        watched.trains |= evidence > CALL
        watched.done = self._iterations
        watched.planned = self._planned if self._planned is not None else watched.planned
        if self._is_epoch(steps, nested, taken):
            self._epochs += 1
            watched.kind = LoopKind.EPOCHS
            watched.seconds.append(time.perf_counter() - self._began_s)
        else:
            self._steps += steps
            watched.kind = watched.kind or LoopKind.STEPS
        return self._is_enough()

    def _steps_of_iteration(self) -> tuple[set[int], int, int]:
        """Return who took steps in the iteration, how many the least of them took, and the evidence
        for it.

        The least, as a critic takes several steps for one of its generator.
        """
        progress, thread, loops = self.progress, self.progress.thread, self._loops
        steps, backwards, calls, calls_with_grad = self._before
        taken = _differences(steps, thread.steps)
        if taken:
            return set(taken), min(taken.values()), OPTIMIZER
        trains = progress.optimizers > 0
        by_hand = not progress.steps and progress.backwards >= IDLE_BACKWARDS
        if thread.backwards > backwards:
            counts = not trains or by_hand
            return set(), thread.backwards - backwards if counts else 0, BACKWARD
        called = _differences(calls, thread.calls)
        if not (trains or progress.backwards or loops.learns):  # inference that keeps gradients on
            called.update(_differences(calls_with_grad, thread.calls_with_grad))
        elif self._watched.site.says_step:  # the step is yet to come
            return set(), 0, CALL
        return set(called), min(called.values(), default=0), CALL

    def _is_epoch(self, steps: int, nested: int, taken: int) -> bool:
        """Say whether the iteration was one of several steps.

        A pass that began and ended in it says so. Without one, several steps do that an inner loop
        took, or so many that there must have been a loop; but not steps on a single batch.
        """
        progress = self.progress
        last = progress.last_evaluated if self._evidence == CALL else progress.last_trained
        if last > self._begun.passes_begun:
            return True
        if steps < 2 or taken == 1:
            return False
        return nested >= 2 or steps >= self._loops.shortening.batches

    def _is_enough(self) -> bool:
        shortening, progress = self._loops.shortening, self.progress
        if self._needed and (self._epochs or len(self._steppers) > 1):
            return False
        if self._epochs:
            if self._models > 1 and self._planned is not None and self._planned <= MOST_MODELS:
                return False
            return not self.is_fed and self._epochs >= shortening.epochs
        now = _Mark(progress)
        calls = self._evidence == CALL
        is_driven = now.fed(calls) > self._entered.fed(calls)
        if not (self.is_fed or is_driven):
            return self._steps >= shortening.steps
        ended = now.ended(calls) - self._entered.ended(calls)
        if ended >= shortening.epochs:
            return True
        if not (self.is_fed or ended or self._may_begin_anew()):
            newest = progress.open.get(progress.newest_pass)
            if newest is None:
                return self._steps >= shortening.steps
            left = (newest.short_batches or shortening.batches) - newest.batches
            return left < self._most_batches
        batches = now.batches - self._entered.batches
        return batches >= SAFE_PASSES * shortening.epochs * shortening.batches

    def _may_begin_anew(self) -> bool:
        """Say whether the body copes with the end of a pass: it would crash if it did not."""
        progress = self.progress
        if self._watched.site.restarts:
            return True
        newest = progress.open.get(progress.newest_pass)
        if newest is None or newest.whole_batches is None:
            return False
        if newest.short_batches == newest.whole_batches:  # it ends where it always does
            return True
        return self._planned is not None and self._planned > newest.whole_batches


def _differences(before: dict[int, int], now: dict[int, int]) -> dict[int, int]:
    return {key: count - before.get(key, 0) for key, count in now.items()
            if count != before.get(key, 0)}  # fmt: skip


def begin(shortening: Shortening, progress: Progress) -> Loops:
    """Provide what rewritten loops call, and return what knows them."""
    global _loops
    _loops = Loops(shortening, progress)
    setattr(builtins, LOOP, loop)
    setattr(builtins, WHILE, more)
    return _loops


def look_out_for_dynamo(torch: Any) -> None:
    """Ask what Dynamo answers while it traces, so that it goes past whatever is watched."""
    global is_traced
    is_traced = branches.is_traced = torch.compiler.is_dynamo_compiling


def current() -> Loops | None:
    """Return the loops of this process, if its life is shortened."""
    return _loops
