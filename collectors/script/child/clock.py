"""The step clock: what a step is, when the script is warm, and the steps that count."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from typing import Any

from gpuadvisor.collectors.script.child.channel import Channel
from gpuadvisor.collectors.script.child.counters import (
    Counters,
    Step,
    compilations,
    has_shrunk,
    is_settled,
    nothing,
)
from gpuadvisor.collectors.script.child.turns import Turns
from gpuadvisor.collectors.script.child.windows import HostTimer, Timer, Windows
from gpuadvisor.collectors.script.specification import Schedule
from gpuadvisor.domain.target import StepTaker

MARKERS = ("forward", "backward", "optimizer", "explicit")
"""Markers that can count a step, the better the later. A better one that turns up takes over."""
HISTORY_STEPS = 4096
"""Host times kept for scripts that end before they are warm."""
SKIPPED_SHORT = 2
"""Steps left out at the start of such a script: the first allocates, the second finds shapes."""
RECENT_STEPS = 8
"""Steps before the first window whose mean time decides how many of its steps are marked."""
MIN_SHORT = 3
"""Steps below which such a script says nothing."""
MAX_RESTARTS = 5
"""Returns to warm-up because of a compilation; a script that compiles for ever, as one with ever
new shapes does, is measured as it is after that."""
RESTLESS_STEPS = 64
"""Steps after which, and `max_measure_s` after the first, such a script counts as warm."""
HEARTBEAT_S = 5.0
"""Silence after which a script that warms up says that it is alive."""
READY_POLL_S = 0.01
"""How often a process that waits for gpuadvisor looks whether it is ready."""
MAX_DRAINS = 3
"""Measurements thrown away because the loader's prefetched batches became fewer meanwhile."""


class StepHandover:
    """Hands the steps of a warm script in one process to whoever wants them, such as a profiler.

    A process forked meanwhile has no part in it.
    """

    def __init__(self, taker: StepTaker, is_owner: Callable[[], bool]) -> None:
        self._taker = taker
        self._is_owner = is_owner
        self._process: int | None = None

    def begin(self) -> bool:
        """Begin, unless another process's steps are the script's; return whether it did."""
        if not self._is_owner():
            return False
        self._process = os.getpid()
        self._taker.begin()
        return True

    @property
    def compiles(self) -> bool:
        """Whether a compilation is no reason to begin anew."""
        return self._taker.compiles

    def step(self, interrupted: bool) -> bool:
        """Return whether all steps were taken that are wanted."""
        return self._is_mine() and self._taker.step(interrupted)

    def abandon(self) -> None:
        if self._is_mine():
            self._process = None
            self._taker.abandon()

    def end(self) -> None:
        if self._is_mine():
            self._process = None
            self._taker.end()

    def _is_mine(self) -> bool:
        return self._process == os.getpid()


class StepClock:
    """Gets a tick a step and decides: warming up, measuring, or done."""

    def __init__(
        self,
        schedule: Schedule,
        channel: Channel,
        counters: Counters,
        timer: Callable[[], Timer],
        finish: Callable[[], None],
        handover: StepHandover | None = None,
        later: StepHandover | None = None,
        turns: Turns | None = None,
        line: Turns | None = None,
        begins_early: bool = False,
    ) -> None:
        """`handover` gets the steps of the warm script, `later` those after what is measured.

        With `turns`, what is measured are blocks of steps between which the script waits; with
        `line`, it waits once, before it warms up for as long as the schedule says. One that
        `begins_early` waits after its first step until gpuadvisor is ready.
        """
        self._schedule = schedule
        self._channel = channel
        self._counters = counters
        self._make_timer = timer
        self._finish = finish
        self._handover = handover
        self._later = later
        self._turns = turns
        self._line = line
        self._awaits_ready = begins_early
        self.stopped = False
        self.on_warm: Callable[[], None] = lambda: None
        """Called before the first counted step."""
        self.on_measured: Callable[[], None] = lambda: None
        """Called after the last one, where somebody else has the steps that follow."""
        self._measuring = False
        self.restart()

    def restart(self) -> None:
        """Forget everything, as a forked process does about its parent's steps."""
        self.marker = ""
        self._restarts = 0
        self._reset()

    def _reset(self) -> None:
        self._uncounted = 0
        """Steps that went into no window."""
        self.windows: Windows | None = None
        self._idle_while_waiting: float | None = None
        self._measured: dict[str, Any] = {}
        """What is told of the steps that were measured, where somebody else has those after."""
        if self._later is not None:
            self._handover = None
        self._leave_windows()
        self._history: list[Step] = []
        self._first_s = 0.0
        self._counters.heartbeat_s = math.inf
        self._warm_from = 0
        """The step from which warming up counts: the last one with a compilation in it."""
        self._compiled = compilations()
        self._interruptions = self._counters.interruptions
        self._interrupted = 0
        """Steps with an interruption in them, but for those of the open window."""
        self._block_step_s = math.inf
        """Step time of the last block, where the script takes turns."""
        self._said_warm = False
        self._ready: int | None = None
        """Batches that the loader had ready when counting began."""
        self._drains = 0

    def stop(self) -> None:
        """Count no more: gpuadvisor measures another process."""
        self.stopped = True
        self._counters.heartbeat_s = math.inf
        self._counters.counted = nothing

    @property
    def steps(self) -> int:
        return self._uncounted + (self.windows.seen_steps if self.windows is not None else 0)

    @property
    def fills_windows(self) -> bool:
        """Whether each step goes into the open window."""
        return self._measuring and self.windows is not None and not self.stopped

    def _leave_windows(self) -> None:
        self._measuring = False
        self._counters.counted = nothing

    def tick(self, marker: str, doubtful: bool = False) -> None:
        """Count a step, unless a better marker than this one is known.

        Doubtful steps, which may be no more than an evaluation before training, are counted only
        if the script ends with them.
        """
        if (marker != self.marker and not self._is_better(marker)) or self.stopped:
            return
        if self._measuring and self.windows is not None:
            if self._counters.add_step():
                self.end_window()
            return
        self._uncounted += 1
        if self._measuring:
            self._count_taken()
        else:
            self._warm_up(doubtful)

    def _is_better(self, marker: str) -> bool:
        """Say whether this marker counts from now on; then all begins anew."""
        if self.marker and MARKERS.index(marker) < MARKERS.index(self.marker):
            return False
        self.marker = marker
        if self._measuring and self._handover is not None:
            self._handover.abandon()
        self._reset()
        return True

    def _warm_up(self, doubtful: bool) -> None:
        if self.steps == 1:
            self._channel.send("step", marker=self.marker)
            self._await_ready()
        now = time.perf_counter()
        if self.steps == 1:
            self._first_s = now
            self._counters.heartbeat_s = now + HEARTBEAT_S
        self._counters.number += 1
        if len(self._history) < HISTORY_STEPS:
            self._history.append(self._counters.step(now))
        if self._counters.interruptions != self._interruptions:
            self._interruptions = self._counters.interruptions
            self._interrupted += 1
        compiled = compilations()
        if compiled != self._compiled:
            self._compiled, self._warm_from = compiled, self.steps
            self._say("compiled", now)
        else:
            self.alive(now)
        doubtful = doubtful and not self._schedule.count_doubtful
        if not doubtful and self._is_warm(now):
            self._begin()

    def _await_ready(self) -> None:
        """Wait while gpuadvisor is busy with anything but to listen: it would disturb the steps.

        Where it is gone, saying that this process is alive ends it.
        """
        if not self._awaits_ready:
            return
        heartbeat_s = time.perf_counter() + HEARTBEAT_S
        while not self._channel.is_ready():
            time.sleep(READY_POLL_S)
            if time.perf_counter() >= heartbeat_s:
                heartbeat_s += HEARTBEAT_S
                self._channel.send("alive", steps=self.steps)
        self._awaits_ready = False

    def alive(self, now: float) -> None:
        """Say that a script is alive which makes no steps now: an evaluation may take long."""
        if now >= self._counters.heartbeat_s:
            self._say("alive", now)

    def _say(self, event: str, now: float) -> None:
        self._counters.heartbeat_s = now + HEARTBEAT_S
        self._channel.send(event, steps=self.steps)

    def _is_warm(self, now: float) -> bool:
        schedule, spent_s = self._schedule, now - self._first_s
        quiet = self.steps - self._warm_from
        enough = (quiet >= schedule.quiet_steps and self._is_past_prefetched(quiet)) or (
            self.steps >= RESTLESS_STEPS and spent_s >= schedule.max_measure_s
        )
        if not enough or self.steps < schedule.warmup_steps:
            return False
        if self._line is not None and not self._line.mine:
            self._wait_at(self._line)
            return False  # the first step after that settles
        return spent_s >= schedule.warmup_s

    def _wait_at(self, line: Turns) -> None:
        """Wait with an idle device until this process may be measured; it warms up after that."""
        self._make_timer().synchronize()
        went = line.join(self._counters.workers)
        self._first_s = time.perf_counter()
        if went is None:
            self.stop()
        elif not went:
            self._finish()

    def _is_past_prefetched(self, quiet: int) -> bool:
        """Say whether steps no longer live on batches that were loaded while nothing ran."""
        prefetched = self._counters.prefetched_batches
        return quiet >= min(prefetched, self._schedule.queue_limit) or is_settled(
            self._counters.ready(), prefetched
        )

    def _begin(self) -> None:
        if self._handover is not None:  # somebody else has the steps from here on
            if not self._handover.begin():
                self.stop()
                return
        else:
            timer = self._make_timer()
            timer.synchronize()
            if self.windows is None:
                window_s = self._schedule.window_s
                self.windows = Windows(timer, self._channel, self._counters, window_s)
            if self._turns is not None and not self._turns.mine:
                self._join(self._turns)
                return
            self.windows.start(self._recent_step_s())
            self._ready = self._counters.ready()
        self._measuring = True
        self._say_warm()

    def _say_warm(self) -> None:
        if self._turns is not None and self._said_warm:
            return  # it is so before each block
        self._said_warm = True
        self.on_warm()
        self._channel.send("warm", steps=self.steps, compiles=self._compiled)

    def _join(self, turns: Turns) -> None:
        """Wait for the first turn; the first step after that settles."""
        self._say_warm()
        went = turns.join()
        if went is None:
            self.stop()
        elif not went:
            self._finish()

    def _end_block(self, windows: Windows, turns: Turns) -> None:
        """Hand the turn on once the device has passed the block, and begin another one after."""
        self._leave_windows()
        steps, seconds = windows.end_block()
        self._block_step_s = seconds / steps if steps else math.inf
        if not turns.hand_on(steps, seconds):
            self._end_measurement(windows)
            return
        self._history.clear()  # it would go on after a gap
        if 2 * self._block_step_s > self._schedule.window_s:
            self._begin()  # what is cold after the wait makes no matter in so long a step

    def _recent_step_s(self) -> float:
        """Return the time of the last steps; infinity where that is not known."""
        if self._turns is not None and math.isfinite(self._block_step_s):
            return self._block_step_s
        recent = self._history[-RECENT_STEPS:]
        if len(recent) < RECENT_STEPS or self._history[-1][-1] != self._counters.number:
            return math.inf
        return float(recent[-1][0] - recent[0][0]) / (RECENT_STEPS - 1) or math.inf

    def _count_taken(self) -> None:
        handover = self._handover
        assert handover is not None  # else there are windows
        now = time.perf_counter()
        compiled = compilations()
        may_begin_anew = not handover.compiles and self._restarts < MAX_RESTARTS
        if compiled != self._compiled and may_begin_anew:
            handover.abandon()
            self._warm_up_again(compiled, now)
            return
        self._compiled = compiled
        interrupted = self._counters.interruptions != self._interruptions
        self._interruptions = self._counters.interruptions
        self.alive(now)
        if handover.step(interrupted):
            self._finish()

    def _warm_up_again(self, compiled: int, now: float) -> None:
        """Something was compiled: what was counted was not steady."""
        self._restarts += 1
        self._warm_from = self.steps
        self._history.clear()  # it would go on after a gap
        self._leave_windows()
        self._compiled = compiled
        self._say("compiled", now)

    def end_window(self) -> None:
        """The open window is long enough."""
        windows = self.windows
        assert windows is not None  # it is open
        self._note_interruptions(windows)
        compiled = compilations()
        if compiled != self._compiled and self._restarts < MAX_RESTARTS:
            windows.discard()
            self._warm_up_again(compiled, time.perf_counter())
            return
        self._compiled = compiled
        windows.close()
        if self._turns is not None:
            self._end_block(windows, self._turns)
            return
        if not windows.enough(self._schedule, 2 * self._counters.workers):
            return
        ready = self._counters.ready()
        shrunk = has_shrunk(self._ready, ready, self._counters.prefetched_batches)
        if shrunk and self._drains < MAX_DRAINS:
            # The loader did not keep up: the true step time is yet to come.
            self._drains += 1
            self._ready = ready
            windows.drop_all()
        else:
            self._end_measurement(windows)

    def _end_measurement(self, windows: Windows) -> None:
        if self._later is None:
            self._finish()
        else:
            self._hand_over(windows, self._later)

    def _hand_over(self, windows: Windows, later: StepHandover) -> None:
        """Let somebody else have the steps from here on."""
        windows.flush(wait=True)
        self._idle_while_waiting = windows.idle_while_waiting()
        self.on_measured()
        if not later.begin():
            self._finish()
            return
        self._measured = self._told()
        self._uncounted, self.windows = self.steps, None
        self._handover, self._counters.counted = later, nothing

    def _note_interruptions(self, windows: Windows) -> None:
        """Count those of the open window, before it ends."""
        self._interrupted += windows.interrupted_steps
        self._interruptions = self._counters.interruptions
        windows.habitual = 2 * self._interrupted > self.steps

    def end(self) -> bool:
        """The script ended by itself. Return whether there are steps to report."""
        if self._handover is not None:
            self._handover.end()
            return bool(self._measured)
        windows, steps = self.windows, self._history
        if windows is not None:
            self._note_interruptions(windows)
            if self._measuring:  # of many short steps the last ones may be without a mark
                self._uncounted += self._counters.distance - 1 - self._counters.unmarked
            if windows.steps + windows.open_steps >= MIN_SHORT:
                windows.close()
                return True
            steps = steps + windows.unfinished()
        if len(steps) - SKIPPED_SHORT <= MIN_SHORT:
            return False
        self._uncounted = self.steps
        self.windows = Windows(HostTimer(), self._channel, self._counters, math.inf)
        self.windows.habitual = 2 * self._interrupted > self.steps
        self.windows.adopt(steps[SKIPPED_SHORT:])
        return True

    def idle_while_waiting(self) -> float | None:
        """Return what `Windows` says of the device while the script waited for batches; the device
        has passed the last window."""
        windows = self.windows
        return self._idle_while_waiting if windows is None else windows.idle_while_waiting()

    def report(self) -> dict[str, Any]:
        """Return what the parent needs to know about the steps."""
        return self._measured or self._told()

    def _told(self) -> dict[str, Any]:
        return {"marker": self.marker, "steps": self.steps, "compiles": self._compiled}
