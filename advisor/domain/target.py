"""What a knob can do inside the process that runs the user's script.

The harness implements this; knobs only know the protocol, so neither imports the other.
Everything here is called inside the target process, where nothing but the standard library
and torch may be imported.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from typing import Any, Protocol

from gpuadvisor.domain.knobs import Value

Call = Callable[..., Any]
Turn = Callable[[Value | None], None]
"""Turns a knob between two steps of a running script: to a value, or off with None.

Once it is off, parameters, buffers, the optimizers' state, gradients, flags of torch and random
numbers are bit for bit what they were; only caches may differ. Turning it to the value that it has
does nothing. RuntimeError, in words, where the script cannot have it."""


class StepTaker(Protocol):
    """Takes the steps of a warm script, in the thread that makes them; they are not timed."""

    compiles: bool
    """Whether it has a script compiled on the way; else a compilation makes it begin anew."""

    def begin(self) -> None:
        """A step has just ended, and the script is warm."""

    def step(self, interrupted: bool) -> bool:
        """A step has ended, with something else before it, such as an evaluation, if interrupted.

        Return whether that was the last that is wanted.
        """
        ...

    def abandon(self) -> None:
        """What was taken since `begin` was not steady: throw it away. `begin` may come again."""

    def end(self) -> None:
        """The script ends by itself, before all steps were taken."""


class Target(Protocol):
    """The script's process, seen by one knob, just after torch was imported.

    No method of it, and no `apply`, may initialise CUDA: forked workers could not use it then.
    """

    def on_root(self, prepare: Callable[[Any], None]) -> None:
        """Call `prepare(module)` once for each root module, before its first forward.

        A root is a module that the script itself calls (not through another module) and that
        has parameters. `DataParallel` and `DistributedDataParallel` are unwrapped. Preparations
        run in the order in which knobs were applied. Calls by then have parameters on their
        device, so `next(module.parameters()).device` may be asked.
        """

    def around_root(
        self, around: Callable[[Any, Call, tuple[Any, ...], dict[str, Any]], Any]
    ) -> None:
        """Run every call of a root as `around(module, call, args, kwargs)`.

        `around` must return what `call(*args, **kwargs)` returned, changed or not. It stands
        outside the compiled code, so Dynamo never traces it.
        """

    def on_loader(self, adjust: Callable[[dict[str, Any]], None]) -> None:
        """Let `adjust` change the keyword arguments of every DataLoader about to be built.

        All arguments are there by name (`dataset`, `batch_size`, `num_workers`, ...), defaults
        too. When the changed arguments are refused by the constructor, the script's own are
        used and the knob is reported as refused.
        """

    def on_optimizer(self, adjust: Callable[[type, dict[str, Any]], None]) -> None:
        """Let `adjust(cls, kwargs)` change the keyword arguments of every torch optimizer built.

        `kwargs` has all arguments by name, defaults too, `params` as a list. Refusals by the
        constructor fall back to the script's own arguments, as for loaders.
        """

    def after_optimizer(self, adopt: Callable[[Any], None]) -> None:
        """Call `adopt(optimizer)` after each optimizer's construction."""

    def around_backward(self, around: Callable[[Any, Call], None]) -> None:
        """Run each `tensor.backward(...)` as `around(tensor, call)`.

        `call(tensor)` runs the original backward with the script's own arguments on the tensor
        it is given.
        """

    def after_import(self, module: str, call: Callable[[], None]) -> None:
        """Call `call()` as soon as a module was imported: at once if it is, never if it never is.

        For what stands on a library that the script may import later than torch, or not at all.
        """

    def batches_ready(self) -> int | None:
        """Return how many batches of the script's DataLoader wait to be taken; None where that
        cannot be seen, as without workers."""
        ...

    def take_steps(self, taker: StepTaker, measured: bool = False) -> None:
        """Have the steps after warming up taken by `taker`; they are not timed then.

        Where the run is to be `measured`, those after that.
        """

    def named(self, knob: str, noticed: Callable[[], None] = lambda: None) -> Target:
        """Return the same target as another knob sees it, for what turns several.

        `noticed` is called each time that the knob says that it changed something.
        """
        ...

    def tell(self, detail: str) -> None:
        """Tell gpuadvisor something that is between the two, at most 2,000 characters."""

    def effective(self, detail: str = "") -> None:
        """Say that the knob changed something. A knob that never says so had no effect."""

    def refuse(self, reason: str) -> None:
        """Say that the knob cannot work on this script, in words for the user."""


def context_of_workers() -> str | None:
    """Return how workers are to be started that a script's loader did not have, as DataLoader's
    `multiprocessing_context`; None for as the process does.

    Python 3.14 imports the script anew in each worker where the script has not chosen, which ends
    one without `if __name__ == "__main__":`. Forked as before they need no such line, can have any
    data set, and start in milliseconds.
    """
    methods = multiprocessing.get_all_start_methods()  # the first is the default
    chosen = multiprocessing.get_start_method(allow_none=True) or methods[0]
    return "fork" if chosen == methods[0] != "fork" and "fork" in methods else None
