"""What the script has done so far, counted by the hooks: what its loops are judged by."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any


class ThreadCounts(threading.local):
    """Steps and calls of one thread: a thread that prepares batches takes none."""

    def __init__(self) -> None:
        self.steps: dict[int, int] = {}
        """Steps of each optimizer, by its id."""
        self.fed_steps = 0
        """Steps after a new batch of a loader whose pass had not ended."""
        self.fed_calls = 0
        """Calls without gradients after one."""
        self.events = 0
        """Whatever is counted here, so that a loop sees at once where there was nothing."""
        self.backwards = 0
        self.calls: dict[int, int] = {}
        """Calls of each root module with gradients off, by its id."""
        self.calls_with_grad: dict[int, int] = {}
        self.stepping_iterations = 0
        """Iterations of watched loops with a step or call in them."""


@dataclass(slots=True)
class Pass:
    """A pass over a loader that has begun and not ended."""

    whole_batches: int | None
    """Batches of the pass if it were not shortened; None where that is not known."""
    short_batches: int | None
    """Batches after which it ends, shortened; None where that is not known."""
    batches: int = 0
    trained: bool = False
    """Whether there was a step after one of them."""
    evaluated: bool = False
    """Whether there was a call of a root with gradients off after one of them."""


class Progress:
    """Counted up by the hooks. Passes over loaders are the process's, the rest is each thread's."""

    def __init__(self) -> None:
        self.thread = ThreadCounts()
        self.roots = 0
        """Root modules that were called for the first time."""
        self.optimizers = 0
        """Optimizers that were built."""
        self.steps = 0
        """Optimizer steps of all threads."""
        self.backwards = 0
        """Backward passes of all threads."""
        self.batches = 0
        """Batches that loaders gave."""
        self.passes_begun = 0
        self.passes_trained = 0
        """Passes that ended and with whose batches the script took steps."""
        self.passes_evaluated = 0
        """Passes that ended and whose batches went through a root with gradients off."""
        self.last_trained = 0
        """Number of the newest pass that ended and had steps."""
        self.last_evaluated = 0
        self.open: dict[int, Pass] = {}
        """Passes that have not ended, by number."""
        self.newest_pass = 0
        """Number of the pass that gave the newest batch."""
        self._batches_at_step = self._batches_at_call = 0

    def optimizer_built(self) -> None:
        """Note that there is one more optimizer."""
        self.optimizers += 1

    def stepped(self, optimizer: Any) -> None:
        """Note a step of an optimizer, or one that a GradScaler left out."""
        self.steps += 1
        steps = self.thread.steps
        steps[id(optimizer)] = steps.get(id(optimizer), 0) + 1
        self._took_step()

    def backward_done(self) -> None:
        """Note a backward pass that the script asked for."""
        self.backwards += 1
        self.thread.backwards += 1
        if self.optimizers:
            self.thread.events += 1
        else:
            self._took_step()

    def called(self, module: Any, grad: bool) -> None:
        """Note a call of a root module; `grad` says whether gradients were on."""
        thread = self.thread
        thread.events += 1
        calls = thread.calls_with_grad if grad else thread.calls
        calls[id(module)] = calls.get(id(module), 0) + 1
        newest = self.open.get(self.newest_pass)
        if not grad and newest is not None and self.batches > self._batches_at_call:
            newest.evaluated = True
            thread.fed_calls += 1
            self._batches_at_call = self.batches

    def pass_began(self, whole: int | None = None, short: int | None = None) -> int:
        """Note that a loader begins a pass of so many batches: whole, and as it is shortened.

        Returns the number of the pass, for what follows of it.
        """
        self.passes_begun += 1
        self.open[self.passes_begun] = Pass(whole, short)
        return self.passes_begun

    def batch_given(self, number: int) -> None:
        """Note that a pass gives the script a batch."""
        self.batches += 1
        self.newest_pass = number
        if number in self.open:
            self.open[number].batches += 1

    def pass_ended(self, number: int) -> None:
        """Note that the script has read a pass to its end, shortened or not."""
        ended = self.open.pop(number, None)
        if ended is None:
            return
        if ended.trained:
            self.passes_trained += 1
            self.last_trained = max(self.last_trained, number)
        if ended.evaluated:
            self.passes_evaluated += 1
            self.last_evaluated = max(self.last_evaluated, number)

    def pass_left(self, number: int) -> None:
        """Note that the script reads no more of a pass, which has not ended."""
        self.open.pop(number, None)

    def _took_step(self) -> None:
        self.thread.events += 1
        newest = self.open.get(self.newest_pass)
        if newest is not None and self.batches > self._batches_at_step:
            newest.trained = True
            self.thread.fed_steps += 1
            self._batches_at_step = self.batches
