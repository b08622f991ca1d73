"""Rehearses settings: the unchanged script and the plan live a shortened life in a private view."""

from __future__ import annotations

import math
import time
import weakref
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from gpuadvisor.collectors.load import LoadMeter
from gpuadvisor.collectors.script.child.rehearsal.memory import available_bytes
from gpuadvisor.collectors.script.request import Limits, RunRequest
from gpuadvisor.collectors.script.run_folder import run_folder
from gpuadvisor.collectors.script.runner import run_life
from gpuadvisor.collectors.script.scratch import unavailable
from gpuadvisor.collectors.script.specification import Shortening, Specification
from gpuadvisor.domain.knobs import Settings
from gpuadvisor.domain.rehearsal import Life
from gpuadvisor.domain.study import Aspect, Rehearsal, TrialState
from gpuadvisor.errors import Interrupted
from gpuadvisor.tuners.base import Knob
from gpuadvisor.tuners.rehearsal.comparison import compare
from gpuadvisor.tuners.rehearsal.data import ENOUGH_SAMPLES, enough_batches
from gpuadvisor.tuners.rehearsal.lives import (
    Lives,
    draws_samples_at_random,
    ending,
    steps_of,
    training_passes,
)
from gpuadvisor.tuning.arguments import applied, in_more_digits, with_arguments
from gpuadvisor.tuning.budgeting.budget import USUAL_REHEARSAL_S
from gpuadvisor.tuning.trials.trial_runner import Progress, Side, Silent
from gpuadvisor.tuning.untimed_lives import Untimed

LIVES = 3
"""Lives of a rehearsal: two of the unchanged script, one under the plan."""
SLACK = 2.0
"""Times the unchanged script's life that one under a plan may take, beside what its knobs say that
they need to start."""
PASS_SHARE = 0.8
"""Part of a life's time, without the start and the end, that its passes may take: another life of
the same script may be slower."""
EVALUATION_S = 15.0
"""Longest that a call in evaluation mode may take, which only a comparison wants: cuDNN tries its
algorithms in less, Inductor compiles for longer."""
BATCHES, EPOCHS = 16, 2
LATER = 4
"""Most epochs that a life has after the first two: the last, and three turning points of schedules,
such as when layers thaw, augmentation ends, or a checkpoint is due."""
EPOCH_STEPS = 2.0
"""Times its steps that an epoch of a life may take: as long again for evaluation and workers."""
EPOCHS_SHARE = 0.75
"""Part of the time for a life that its epochs may be expected to take, beside start and end."""
ROOM = 2.5
"""Times what a life takes of the memory that is to be free for two: they read the same files."""
LEAST_TAKEN = 2 << 30
"""Bytes that a life on a GPU takes at least: torch with CUDA alone takes 2 GiB and more."""
GOES_ON = 4
"""Times the passes over its data that a shortened life has, or its steps where it has none, from
which on a life goes on without an end: folds and models of an ensemble have passes of their own."""
WHOLE = 1 << 40
"""Batches and epochs of a life that is not shortened."""


@dataclass
class Rehearser:
    """Rehearses settings of one script. What the unchanged script does is seen once."""

    side: Side
    """The unchanged script: how it is started, and where."""
    knobs: Mapping[str, Knob]
    tolerance: float
    """Relative difference of results that is allowed."""
    seed: int = 0
    allowed_s: float = USUAL_REHEARSAL_S
    """Most that the lives of one rehearsal may take together. One that would end later is ended
    then, and held against no settings; one that would hardly end before is not begun."""
    samples_per_step: float | None = None
    """As trials saw it; None where it is not known."""
    step_ms: float | None = None
    """Step time of the unchanged script, as trials measured it."""
    cancelled: Callable[[], bool] = lambda: False
    progress: Progress = field(default_factory=Silent)
    needed_s: float = field(default=0.0, init=False)
    """What whole lives take, where the script bears no shortened ones and those have no room."""
    _is_cut: bool = field(default=False, repr=False)
    """Whether lives read fewer samples than wanted, as there is no time for more."""
    _spent_s: float = field(default=0.0, repr=False)
    """What the lives of the rehearsal that goes on have taken."""
    _began_s: float = field(default=0.0, repr=False)
    """When that began."""
    _clearing_s: float = field(default=0.0, repr=False)
    """Most that it took to read what a life left and to clear it away."""
    _lacks_room: bool = field(default=False, repr=False)
    """Whether a life was wanted in it that the allowed time has no room for."""
    _redrawn: Life | None = field(default=None, repr=False)
    _others: dict[tuple[float, bool], Life | None] = field(default_factory=dict, repr=False)
    _known: dict[frozenset[tuple[str, object]], Rehearsal] = field(default_factory=dict, repr=False)

    def rehearse(self, settings: Settings, step_ms: float | None = None) -> Rehearsal:
        """Return what lives of the unchanged script and under the settings show.

        `step_ms` is the step time under the settings, for the forecast of the whole run. Raises
        Interrupted if it was cancelled.
        """
        problem = unavailable()
        if problem is not None:
            return Rehearsal(dict(settings), not_covered=dict.fromkeys(Aspect, problem))
        key = frozenset(settings.items())
        if key not in self._known:
            self._spent_s, self._lacks_room = 0.0, False
            self._began_s = time.monotonic()
            found = self._rehearse(settings, step_ms)
            # More time would not bring a script to an end that it has not.
            is_cut_off = found.wants_time and not self._shortening.ends_after
            wants_time = is_cut_off or self._is_cut or self._lacks_room
            self._known[key] = replace(found, wants_time=wants_time)
        return self._known[key]

    def _rehearse(self, settings: Settings, step_ms: float | None) -> Rehearsal:
        first = self._first
        is_hung, has_no_end = first.state is TrialState.HUNG, self._shortening.ends_after > 0
        if self.needed_s or (
            is_hung and not has_no_end and not any(each.number for each in first.epochs)
        ):
            why = f"the unchanged script's shortened life {ending(first)}"
            if self.needed_s:
                why += f", and its whole one takes about {self.needed_s / LIVES:.0f} s"
            nothing = dict.fromkeys(Aspect, why)
            return Rehearsal(dict(settings), not_covered=nothing, wants_time=True)
        second = self._second
        fair_s = max(self.allowed_s / LIVES, SLACK * first.wall_s) + sum(
            self.knobs[name].extra_startup_s for name in settings if name in self.knobs
        )
        shortening = replace(self._shortening, evaluate=not self._compiles_long(settings))
        limit_s = self._room_s(fair_s, first)
        plan = self._live(settings, shortening, limit_s) if limit_s and second else None
        is_whole = first.state is TrialState.COMPLETE
        if second is None or plan is None or (is_whole and self._is_cut_off(plan, fair_s)):
            self._lacks_room = True
            lived = [each for each in (first, second, plan) if each is not None]
            why = f"there was time for {sum(life.wall_s for life in lived):.0f} s of lives only"
            return Rehearsal(
                dict(settings),
                not_covered=dict.fromkeys(Aspect, why),
                wall_s=self._spent_s,
            )
        numerics = None
        if draws_samples_at_random(first):
            numerics = self._without_data(settings, fair_s, plan)
        times = (self.step_ms, step_ms) if self.step_ms and step_ms else None
        known = self._without_data_knobs(settings) if numerics is not None else settings
        precise = in_more_digits(known, self.knobs)
        untimed = Untimed(
            self._nudged,
            lambda given_up: self._on_equal_weights(
                known, shortening, self._room_s(fair_s, plan), given_up
            ),
            lambda: self._precise(precise, fair_s, plan),
            self._has_room_for_two(first),
        )
        lives = Lives(
            first,
            second,
            plan,
            times,
            numerics,
            untimed.nudged,
            self._reseeded,
            self._other,
            untimed.on_equal_weights,
            untimed.precise if precise else None,
        )
        try:
            found = compare(lives, settings, self.knobs, self.tolerance)
        finally:
            untimed.close()
        if _is_of_times(found) and (limit_s := self._room_s(fair_s, plan)):
            # Passes of a few batches last milliseconds, and a start was seen once: a busy moment
            # looks like a slow plan, and two in a row do where others work for a while.
            other = self._live(settings, shortening, limit_s)
            if is_whole and self._is_cut_off(other, fair_s):
                self._lacks_room = True
                return found
            lives = replace(lives, plan=other)
            again = compare(lives, settings, self.knobs, self.tolerance)
            if again.problems and _is_of_times(again):
                lives = replace(lives, third=self._one_more(self._shortening))
                again = compare(lives, settings, self.knobs, self.tolerance)
            return replace(again, wall_s=again.wall_s + plan.wall_s)
        return found

    def _is_cut_off(self, life: Life, fair_s: float) -> bool:
        """Say whether a life under settings ended with the time allowed, before `fair_s` were over:
        the seconds after which it would be slower than the unchanged script's by far."""
        return life.state is TrialState.HUNG and life.wall_s < fair_s

    @cached_property
    def _first(self) -> Life:
        """A life of the unchanged script, shortened unless it cannot bear that."""
        limit_s = self.allowed_s / LIVES
        first = self._live({}, self._shortening, limit_s)
        if (ends_after := _steps_without_end(first, self._shortening)) > 0:
            self._shortening = replace(self._shortening, ends_after=ends_after)
            return first
        if first.state is not TrialState.COMPLETE and _passed_over(first):
            self._shortening = replace(self._shortening, later=0)
            first = self._live({}, self._shortening, self._left_s(limit_s))
        if first.state not in (TrialState.COMPLETE, TrialState.HUNG) and _read_less(first):
            fewer = replace(self._shortening, fewer_samples=True)
            other = self._live({}, fewer, self._left_s(limit_s))
            if other.state is TrialState.COMPLETE:
                self._shortening, first = fewer, other
        if first.state is TrialState.HUNG:
            return first
        if first.state is not TrialState.COMPLETE:
            left_s, whole_s = self._left_s(limit_s), _whole_s(first)
            if whole_s > left_s:
                self.needed_s = LIVES * whole_s
                return first
            self._shortening = Shortening("", batches=WHOLE, steps=WHOLE, epochs=WHOLE)
            return self._live({}, self._shortening, left_s)
        apart_s = first.wall_s - sum(each.seconds for each in first.epochs)
        most_s = max(0.0, PASS_SHARE * (limit_s - apart_s))
        more, fits = enough_batches(first, self._shortening.batches, limit_s / 2, most_s)
        self._is_cut = not fits
        if more > self._shortening.batches:
            self._shortening = replace(self._shortening, batches=more)
            first = self._live({}, self._shortening, self._left_s(limit_s))
        return first

    @cached_property
    def _second(self) -> Life | None:
        """Another life of the unchanged script, to see what two of them agree in. It keeps its
        weights. None where it has no room."""
        limit_s = self._room_s(self.allowed_s / LIVES, self._first)
        shortening = replace(self._shortening, weights=self._weights)
        return self._live({}, shortening, limit_s) if limit_s else None

    def _left_s(self, limit_s: float) -> float:
        """Return how long a life may take that would be given so many seconds."""
        spent_s = max(self._spent_s, time.monotonic() - self._began_s)
        return max(0.0, min(limit_s, self.allowed_s - spent_s - self._clearing_s))

    def _room_s(self, limit_s: float, like: Life) -> float:
        """Return how long one more life may take; 0 where there is no room for it.

        It is expected to take as long as another one, that it is `like`, or to the step at which
        it is ended by force.
        """
        likely_s = like.wall_s
        if self._shortening.ends_after and like is self._first:
            steps_s = like.wall_s - like.startup_s
            likely_s = like.startup_s + steps_s * self._shortening.ends_after / steps_of(like)
        if (left_s := self._left_s(self.allowed_s)) >= likely_s:
            return min(limit_s, left_s)
        self._lacks_room = True
        return 0.0

    @cached_property
    def _weights(self) -> str:
        """A folder that is gone with this object."""
        stack = ExitStack()
        weakref.finalize(self, stack.close)
        return str(stack.enter_context(run_folder()))

    def _on_equal_weights(
        self,
        settings: Settings,
        shortening: Shortening,
        limit_s: float,
        given_up: Callable[[], bool] = lambda: False,
        name: str = "",
    ) -> Life | None:
        """Let the plan live with weights that the second life kept.

        None where it has no time or did not come to its end, or where no weights were kept.
        """
        if not limit_s or not any(Path(self._weights).iterdir()):
            return None
        taking = replace(shortening, weights=self._weights, takes_weights=True)
        life = self._live(settings, taking, limit_s, given_up=given_up, name=name)
        return life if life.state is TrialState.COMPLETE else None

    def _precise(self, precise: Settings, fair_s: float, like: Life) -> Life | None:
        """Let the unchanged script live with these weights and with values of more digits.

        None where that has no room, or not all of them could be applied.
        """
        limit_s = self._room_s(fair_s, like)
        name = f"unchanged script, {', '.join(precise)} in float32"
        life = self._on_equal_weights(precise, self._shortening, limit_s, name=name)
        states = {each.state for each in life.applied} if life is not None else set()
        return life if states == {"effective"} else None

    def _has_room_for_two(self, first: Life) -> bool:
        """Say whether two lives on a GPU can go on side by side in the machine's memory.

        On a CPU they would only slow each other down. Whether the GPU's memory has room shows.
        """
        left, free = first.available_bytes, available_bytes()
        if not self.side.device.is_gpu or left is None or free is None:
            return False
        return free > ROOM * max(free - left, LEAST_TAKEN)

    def _nudged(self, amount: float) -> Life | None:
        """Let the unchanged script live with weights that were changed by a relative amount.

        None where it has no room or did not come to its end.
        """
        return self._one_more(replace(self._shortening, nudge=amount))

    def _one_more(self, shortening: Shortening, reseed: int | None = None) -> Life | None:
        """Let the unchanged script live once more, where there is room and it comes to its end."""
        limit_s = self._room_s(self.allowed_s / LIVES, self._first)
        life = self._live({}, shortening, limit_s, reseed) if limit_s else None
        return life if life is not None and life.state is TrialState.COMPLETE else None

    def _reseeded(self) -> Life | None:
        """Return a life of the unchanged script whose models draw other random numbers.

        None where it has no room or did not come to its end.
        """
        self._redrawn = self._redrawn or self._one_more(self._shortening, self.seed + 1)
        return self._redrawn

    def _other(self, amount: float, redraws_data: bool) -> Life | None:
        """Let the unchanged script live as another model, and with other data if so asked.

        None where it has no room or did not come to its end.
        """
        key = (amount, redraws_data)
        if self._others.get(key) is None:
            shortening = replace(self._shortening, nudge=amount, redraws_data=redraws_data)
            self._others[key] = self._one_more(shortening, self.seed + 1 if redraws_data else None)
        return self._others[key]

    def _compiles_long(self, settings: Settings) -> bool:
        """Say whether another mode of the model would take long to be compiled for."""
        known = (self.knobs[name] for name in settings if name in self.knobs)
        return any(knob.first_start_s > EVALUATION_S for knob in known)

    @cached_property
    def _shortening(self) -> Shortening:
        """How lives are shortened: steps without epochs go on until enough samples are seen, and
        as many later epochs are lived as there is room for.
        """
        steps = BATCHES
        if self.samples_per_step:
            steps = max(steps, math.ceil(ENOUGH_SAMPLES / self.samples_per_step))
        later = LATER
        if self.step_ms:
            epoch_s = EPOCH_STEPS * BATCHES * self.step_ms / 1e3
            fitting = int(EPOCHS_SHARE * self.allowed_s / LIVES / epoch_s)
            later = max(0, min(LATER, fitting - EPOCHS))
        return Shortening("", batches=BATCHES, steps=steps, epochs=EPOCHS, later=later)

    def _without_data(self, settings: Settings, fair_s: float, plan: Life) -> Life | None:
        """Live under the settings that leave the data alone, where the others do not.

        None where there are no such settings, or the life has no room.
        """
        rest = self._without_data_knobs(settings)
        has_rest = 0 < len(rest) < len(settings)
        limit_s = self._room_s(fair_s, plan) if has_rest else 0.0
        life = self._live(rest, self._shortening, limit_s) if limit_s else None
        if life is None or not self._is_cut_off(life, fair_s):
            return life
        self._lacks_room = True
        return None

    def _without_data_knobs(self, settings: Settings) -> Settings:
        reach = {n for n in settings if n in self.knobs and Aspect.BATCHES in self.knobs[n].reaches}
        return {name: value for name, value in settings.items() if name not in reach}

    def _live(
        self,
        settings: Settings,
        shortening: Shortening,
        limit_s: float,
        reseed: int | None = None,
        given_up: Callable[[], bool] = lambda: False,
        name: str = "",
    ) -> Life:
        applications, environment = applied(settings, self.knobs)
        side = self.side
        specification = Specification(
            applications=applications,
            seed=self.seed,
            reseed=reseed,
            cores=side.cores,
            samples_per_step=self.samples_per_step,
        )
        request = RunRequest(
            replace(side.command, args=with_arguments(side.command.args, settings)),
            specification,
            side.device,
            Limits(limit_s, limit_s, limit_s),
            {**environment, **side.environment},
            cancelled=lambda: self.cancelled() or given_up(),
            scratch=True,
        )
        name = name or (f"with {', '.join(settings)}" if settings else "unchanged script")
        if shortening.fewer_samples:
            name += ", with fewer samples"
        if shortening.nudge:
            name += f", weights changed by {shortening.nudge:.2g} of their size"
        if shortening.takes_weights:
            name += ", weights of the unchanged script"
        if reseed is not None:
            name += ", other random numbers"
        self.progress.on_life_start(name)
        meter = LoadMeter(side.device)
        meter.begin()
        began_s = time.monotonic()
        life = run_life(request, shortening)
        meter.end()
        life = replace(life, disturbance=meter.disturbance())
        more_s = time.monotonic() - began_s - life.wall_s
        self._clearing_s = max(self._clearing_s, more_s)
        self._spent_s += life.wall_s + max(0.0, more_s)
        if self.cancelled():
            raise Interrupted("interrupted")
        is_whole = life.state is TrialState.COMPLETE
        problem = "" if is_whole else "not needed" if given_up() else ending(life)
        self.progress.on_life_end(name, life.wall_s, problem)
        return life


def _is_of_times(found: Rehearsal) -> bool:
    """Say whether only times speak against the settings."""
    if found.problems:
        return all(problem.is_timed for problem in found.problems)
    return found.doubt_is_timed


def _steps_without_end(life: Life, shortening: Shortening) -> int:
    """Return after how many steps further lives are to end, where one went on and on; else 0.

    That is as many passes as its epochs have, or enough steps where it has no passes.
    """
    if life.state is not TrialState.HUNG:
        return 0
    passes = [each for each in training_passes(life) if each.steps and each.finished]
    usual = shortening.epochs + LATER
    if life.epochs:
        return sum(each.steps for each in passes[:usual]) if len(passes) >= GOES_ON * usual else 0
    return shortening.steps if len(life.losses) >= GOES_ON * shortening.steps else 0


def _whole_s(life: Life) -> float:
    """Return how long a whole life takes at least, as its loaders and their batches in a shortened
    one tell."""
    loaders = {
        each.loader: (each.whole_batches or 0) * each.seconds / len(each.batches)
        for each in life.epochs
        if each.batches
    }
    return life.startup_s + sum(loaders.values())


def _read_less(life: Life) -> bool:
    """Say whether a life came to the end of a pass that had been shortened."""
    return any(each.finished and len(each.batches) < (each.whole_batches or 0)
               for each in life.epochs)  # fmt: skip


def _passed_over(life: Life) -> bool:
    """Say whether a life that did not come to its end may have passed over epochs before."""
    if life.state is TrialState.HUNG:  # of its loops nothing is known
        return not life.epochs or any(each.number >= EPOCHS for each in life.epochs)
    return any(loop.lived for loop in life.loops)
