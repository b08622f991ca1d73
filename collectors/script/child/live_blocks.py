"""Times blocks of a warm script's steps, with knobs turned in between as gpuadvisor orders.

It runs in the process of the script. Orders come as lines of JSON through a named pipe; while none
is there, the script stands still between two of its steps.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import IO, Any

from gpuadvisor.collectors.script.child.channel import leave
from gpuadvisor.collectors.script.child.counters import compilations
from gpuadvisor.domain.target import Target, Turn

NAME = "live_blocks"
"""Name that its reports go by."""
SETTLING_STEPS = 3
"""Steps without a compilation before the first timed one: caches are warm after one, CUDA graphs
are recorded on the second run after a compilation and replayed from the third."""
RESTLESS_STEPS = 32
"""Steps after which a block begins though each step compiles something."""
SETTLING, SPENT = "is_settling", "spent_s"
"""Attributes of a turn: says whether steps still feel what was turned; time that it took itself."""
BEGIN_BLOCK, END_STEP, FAILURE = "begin_block", "end_step", "failure"
"""Further ones: called when a block begins, or begins anew, and at the end of each step; says why
the block that ends is not what it was ordered to be."""
LEAST_STEPS = 4
"""Steps of a block at least, so that one that takes longer than the others is not all of it."""
MOST_WORDS = 300
"""Characters of a reason, at most."""
MOST_TRIES = 3
"""Times that a block begins anew because something else than steps went on in it, such as an
evaluation; of a script that evaluates all the time, steps are what they are."""


class LiveBlocks:
    """Takes the steps of a script (`gpuadvisor.domain.target.StepTaker`)."""

    compiles = True

    def __init__(self, target: Target, orders: str, turns: Mapping[str, Turn]) -> None:
        self._target = target
        self._path = Path(orders)
        self._turns = turns
        self._orders: IO[str] | None = None
        self._settings: dict[str, Any] = {}
        """Knobs that are on."""
        self._effective: set[tuple[str, Any]] = set()
        """Settings that changed something since the script began."""
        self._seconds = 0.0
        self._ordered_s = 0.0
        self._began_s: float | None = None
        """When the first timed step began; None while the script settles."""
        self._spent_before_s = 0.0
        self._compiled = 0
        self._quiet = self._steps = self._tries = 0

    def start_with(self, settings: dict[str, Any]) -> None:
        """Turn on, once, what the script has from its start, each in its order as it is applied."""
        for name, turn in self._turns.items():
            if name not in settings:
                continue
            value = settings.pop(name)
            try:
                turn(value)
            except Exception as error:  # as an `apply` that fails: the script runs without it
                self._target.named(name).refuse(f"{type(error).__name__}: {error}"[:300])
            else:
                self._settings[name] = value

    def notice(self, knob: str) -> None:
        """Hear that a knob changed something."""
        if knob in self._settings:
            self._effective.add((knob, self._settings[knob]))

    def begin(self) -> None:
        self._orders = self._path.open(encoding="utf-8")  # until the script's end
        self._tell(ready=sorted(self._turns))
        self._next()

    def step(self, interrupted: bool) -> bool:
        if self._orders is None:
            return True
        self._call(END_STEP)
        compiled = compilations()
        steady = compiled == self._compiled and not interrupted and not self._is_settling()
        self._compiled = compiled
        self._steps += 1
        if self._began_s is None:
            self._quiet = self._quiet + 1 if steady else 0
            if self._quiet >= SETTLING_STEPS or self._steps >= RESTLESS_STEPS:
                self._start()
            return False
        if not steady and self._tries < MOST_TRIES:
            self._settle()
            return False
        lasted_s = time.perf_counter() - self._began_s
        if self._steps < LEAST_STEPS or lasted_s < self._seconds:
            return False
        self._synchronize()
        lasted_s = time.perf_counter() - self._began_s - (self._spent_s() - self._spent_before_s)
        cost_s = self._began_s - self._ordered_s
        idle = [name for name, _ in self._settings.items() - self._effective]
        more = {"idle": sorted(idle)} if idle else {}
        if failed := next(filter(None, self._call(FAILURE)), ""):
            self._tell(failed=failed[:MOST_WORDS])
        else:
            step_ms = 1e3 * lasted_s / self._steps
            self._tell(step_ms=step_ms, steps=self._steps, cost_s=cost_s, **more)
        return not self._next()

    def abandon(self) -> None:
        """Begin anew: another kind of step turned up."""
        self._turn({})
        self._orders = None

    def end(self) -> None:
        self._orders = None

    # -- one block -------------------------------------------------------------------------

    def _next(self) -> bool:
        """Read orders until one can be followed; return whether there is one."""
        while self._orders is not None:
            line = self._orders.readline()
            if not line:  # gpuadvisor is gone
                leave(1)
            order = json.loads(line)
            if order.get("end"):
                self._orders = None
                break
            self._ordered_s, self._seconds = time.perf_counter(), order["seconds"]
            try:
                self._turn(order["settings"])
            except Exception as error:
                self._tell(failed=f"{type(error).__name__}: {error}"[:MOST_WORDS])
                continue
            self._tries = 0
            self._settle()
            return True
        return False

    def _turn(self, settings: Mapping[str, Any]) -> None:
        """Turn off what is not wanted, and then on what is; the order is that of the knobs."""
        if missing := settings.keys() - self._turns.keys():
            raise RuntimeError(f"{', '.join(sorted(missing))} cannot be turned in this script")
        for name in [name for name in self._turns if name in self._settings]:
            if settings.get(name) != self._settings[name]:
                del self._settings[name]
                self._turns[name](None)
        for name in [name for name in self._turns if name in settings]:
            if name not in self._settings:
                self._settings[name] = settings[name]
                try:
                    self._turns[name](settings[name])
                except BaseException:
                    del self._settings[name]
                    raise

    def _is_settling(self) -> bool:
        """Say whether what was turned before is still to be felt, of the turns that can tell."""
        return any(self._call(SETTLING))

    def _call(self, name: str) -> list[Any]:
        """Return what the turns say that have a method of this name."""
        return [getattr(turn, name)() for turn in self._turns.values() if hasattr(turn, name)]

    def _settle(self) -> None:
        self._call(BEGIN_BLOCK)
        self._tries += 1
        self._began_s = None
        self._quiet = self._steps = 0
        self._compiled = compilations()

    def _spent_s(self) -> float:
        """Return the time that turns took within steps for what is no part of them."""
        return sum(getattr(turn, SPENT, 0.0) for turn in self._turns.values())

    def _start(self) -> None:
        self._synchronize()
        self._spent_before_s = self._spent_s()
        self._steps = 0
        self._began_s = time.perf_counter()

    def _synchronize(self) -> None:
        import torch

        if torch.cuda.is_initialized():
            torch.cuda.synchronize()

    def _tell(self, **fields: Any) -> None:
        self._target.tell(json.dumps(fields))


class LiveKnobs:
    """Applier that the specification of a run names: it has the script's steps taken in blocks."""

    def apply(self, value: str, target: Target) -> None:
        """Apply the options, a JSON object of `orders`, the path of a file or named pipe, and
        `knobs`, a list of names and appliers.

        With `start`, settings that the script has from its start, blocks follow after it was
        measured as it has started.
        """
        options = json.loads(value)
        start: dict[str, Any] | None = options.get("start")
        turns: dict[str, Turn] = {}
        blocks = LiveBlocks(target, options["orders"], turns)
        for name, applier in options["knobs"]:
            module, _, attribute = applier.partition(":")
            named = target.named(name, partial(blocks.notice, name))
            knob = getattr(import_module(module), attribute)
            turn = knob.live(named)
            if turn is not None:
                turns[name] = turn
            elif start is not None and name in start:
                knob.apply(start[name], named)
        if start:
            # When there is something to turn, and nothing was computed.
            target.on_root(lambda module: blocks.start_with(start))
        target.take_steps(blocks, measured=start is not None)


LIVE = LiveKnobs()
