"""Run a script in one process whose knobs are turned between blocks of steps."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from gpuadvisor.collectors.load import LoadMeter
from gpuadvisor.collectors.script.child.live_blocks import LEAST_STEPS, NAME, SETTLING_STEPS
from gpuadvisor.collectors.script.events import told_by
from gpuadvisor.collectors.script.request import Event, RunOutcome, RunRequest
from gpuadvisor.collectors.script.run_folder import run_folder
from gpuadvisor.collectors.script.runner import run_script
from gpuadvisor.domain.knobs import Application, LoaderFacts, Settings
from gpuadvisor.domain.screening import Block, BlockTime, Screening
from gpuadvisor.domain.study import TrialState
from gpuadvisor.errors import Interrupted, ScriptError

Concluded = TypeVar("Concluded")
APPLIER = "gpuadvisor.collectors.script.child.live_blocks:LIVE"
SUPPLY = "gpuadvisor.collectors.script.child.loader_timing:SUPPLY"
END = {"end": True}
"""Order after which the script is not needed any more."""
AHEAD = 2
"""Orders that the script has at least while it runs, so that it does not stand still in between."""


def run_live(
    request: RunRequest, live: Mapping[str, str], screening: Screening[Concluded]
) -> Concluded:
    """Run the blocks that a screening asks for, and return what it concludes.

    `live` are the knobs that are turned: names, and where to find them as `module:attribute`, in
    the order in which they are turned on. They are turned in a script as it runs: where it ends
    before the screening does, it is started again. A block in which it fails, or that takes longer
    than it may, is told to have failed. No process is left when this returns or raises.

    Raises ScriptError where the script has no steps, or too few for a block; Interrupted where the
    request is cancelled.
    """
    with run_folder() as folder:
        applier = Application(NAME, APPLIER, json.dumps({"knobs": list(live.items())}))
        return _Live(request, applier, screening, folder).conclude()


def run_in_turns(
    request: RunRequest,
    live: Mapping[str, str],
    start: Settings,
    blocks: Sequence[Block],
    read_energy_j: Callable[[], float | None] = lambda: None,
    load: LoadMeter | None = None,
) -> tuple[RunOutcome, Sequence[BlockTime] | None]:
    """Run the script as `run_script` does, with blocks after what is measured.

    `live` are the knobs that are turned, as for `run_live`, and `start` those settings of them
    that the script has from its start. Where it ends before the last block did, there are fewer,
    and None where it came to none. Once there are some, an outcome without a measurement may be
    the doing of a block.
    """
    told: list[BlockTime] = []
    begun = False

    def hear(event: Event) -> None:
        nonlocal begun
        if (detail := told_by(NAME, event)) is not None:
            begun = True
            if "ready" in detail:
                told.clear()
            else:
                told.append(_block_time(detail))
        if request.on_event is not None:
            request.on_event(event)

    with run_folder() as folder:
        orders = folder / "orders"
        lines = [*({"settings": dict(b.settings), "seconds": b.seconds} for b in blocks), END]
        orders.write_text("".join(f"{json.dumps(line)}\n" for line in lines), "utf-8")
        options = {"knobs": list(live.items()), "start": dict(start), "orders": str(orders)}
        own = request.specification
        applications = (*own.applications, Application(NAME, APPLIER, json.dumps(options)))
        turned = replace(
            request,
            specification=replace(own, applications=applications),
            shared=(*request.shared, str(folder)),
            on_event=hear,
        )
        outcome = run_script(turned, read_energy_j, load)
    return outcome, told if begun else None


def run_supply(
    request: RunRequest, loader: LoaderFacts, screening: Screening[Concluded]
) -> Concluded:
    """Run blocks as `run_live` does, of nothing but one of the script's loaders.

    A block's steps are the loader's batches. The script stands still where it would read the
    first of them, and is started again where a block changed what they are made of.

    Raises ScriptError where the script does not come to read from that loader, Interrupted where
    the request is cancelled.
    """
    options = {"place": loader.place, "batch_size": loader.batch_size}
    with run_folder() as folder:
        applier = Application(NAME, SUPPLY, json.dumps(options))
        return _Live(request, applier, screening, folder).conclude()


def _block_time(told: Mapping[str, Any]) -> BlockTime:
    return BlockTime(
        told.get("step_ms", math.nan),
        told.get("steps", 0),
        told.get("cost_s", 0.0),
        told.get("failed", ""),
        tuple(told.get("idle", ())),
    )


class _Live(Generic[Concluded]):
    """One screening, over the processes that it takes."""

    def __init__(
        self,
        request: RunRequest,
        applier: Application,
        screening: Screening[Concluded],
        folder: Path,
    ) -> None:
        self._path = folder / "orders"
        self._request = request
        self._applier = applier
        """What follows the orders in the script's process, with its options but for their path."""
        self._screening = screening
        self._asked: list[Block] = []
        self._told: list[BlockTime] = []
        """What is known of the first of those that were asked for."""
        self._sent = 0
        """How many of them the present process was ordered to run."""
        self._orders: int | None = None
        self._is_ready = False
        self._blocks = 0
        """Blocks that the present process told of."""
        self._heard_s = 0.0
        """When the script began with the block that it runs now, or was ordered to."""
        self._is_late = False
        """Whether the present process was ended because a block took too long."""
        self._concluded: list[Concluded] = []

    def conclude(self) -> Concluded:
        self._ask(next(self._screening))
        while not self._concluded:
            outcome = self._run()
            if not self._concluded:
                self._died(outcome)
        return self._concluded[0]

    def _run(self) -> RunOutcome:
        """Start the script once, and return how it ended."""
        self._path.unlink(missing_ok=True)  # an order that nobody read may be in it
        os.mkfifo(self._path, 0o600)
        # Read and write, so that the pipe has a reader before the script opens it.
        self._orders = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        self._sent, self._is_ready, self._blocks = len(self._told), False, 0
        self._is_late = False
        own = self._request.specification
        options = {**json.loads(str(self._applier.value)), "orders": str(self._path)}
        applier = replace(self._applier, value=json.dumps(options))
        specification = replace(own, applications=(*own.applications, applier))
        request = replace(
            self._request,
            specification=specification,
            shared=(*self._request.shared, str(self._path.parent)),
            on_event=self._hear,
            cancelled=self._is_to_end,
        )
        try:
            outcome = run_script(request)
        finally:
            os.close(self._orders)
            self._orders = None
        if self._is_cancelled():
            self._screening.close()
            raise Interrupted("interrupted")
        return outcome

    def _is_cancelled(self) -> bool:
        return self._request.cancelled is not None and self._request.cancelled()

    def _is_to_end(self) -> bool:
        """Say whether to end the script's process now."""
        runs = self._asked[len(self._told) : self._sent]
        if runs and time.monotonic() - self._heard_s > runs[0].most_s:
            self._is_late = True
        return self._is_late or self._is_cancelled()

    def _hear(self, event: Event) -> None:
        if (told := told_by(NAME, event)) is not None:
            self._take(told)
        if self._request.on_event is not None:
            self._request.on_event(event)

    def _take(self, told: Mapping[str, Any]) -> None:
        if self._is_late:  # what it still says came too late
            return
        self._heard_s = time.monotonic()
        if "ready" in told:
            self._is_ready = True
        else:
            self._blocks += 1
            self._answer(_block_time(told))
        self._order()

    def _answer(self, took: BlockTime) -> None:
        """Take what is known of one more block, and ask what else is wanted after the last."""
        self._told.append(took)
        if len(self._told) < len(self._asked):
            return
        try:
            self._ask(self._screening.send(self._told))
        except StopIteration as end:
            self._concluded.append(end.value)

    def _ask(self, blocks: Sequence[Block]) -> None:
        self._asked, self._told, self._sent = list(blocks), [], 0

    def _order(self) -> None:
        """Send what the script is to do next, and a little more."""
        if self._concluded:
            self._write(END)
            return
        while self._sent < min(len(self._asked), len(self._told) + AHEAD):
            block = self._asked[self._sent]
            self._write({"settings": dict(block.settings), "seconds": block.seconds})
            self._sent += 1

    def _write(self, order: Mapping[str, Any]) -> None:
        if self._orders is not None:
            os.write(self._orders, (json.dumps(order) + "\n").encode())

    def _died(self, outcome: RunOutcome) -> None:
        """Go on after a process that ended before the screening did."""
        if not self._is_ready:
            raise ScriptError(outcome.reason or "the script ended before it was warm")
        if self._is_late:
            most_s = self._asked[len(self._told)].most_s
            reason = f"its steps took more than {most_s:.0f} s"
            self._answer(BlockTime(math.nan, cost_s=most_s, failed=reason))
            return
        has_failed = outcome.state is not TrialState.UNSUPPORTED  # that is its own end, too early
        if not (has_failed or self._blocks):
            least = SETTLING_STEPS + LEAST_STEPS
            raise ScriptError(f"the script ends before {least} steps follow each other")
        if has_failed:  # else the block is run again, by the next process
            self._answer(BlockTime(math.nan, failed=outcome.reason or "its process ended"))
