"""What a plan means for the time of the whole run: later epochs, the start, the break-even."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from gpuadvisor.domain.rehearsal import Life, LoopKind
from gpuadvisor.domain.study import Aspect, Forecast
from gpuadvisor.tuners.rehearsal.lives import Findings, training_passes

SLOWER = 1.0
"""Ratio of the unchanged script's later epochs to the plan's below which the plan loses time."""
LATER_LOSS = 0.8
"""Part of the first epoch's gain below which a later epoch's is another one, and not the noise of a
pass of a few batches."""


@dataclass
class TimeComparison:
    """Compares times of passes and loops, and forecasts the whole run."""

    found: Findings

    def forecast(self) -> Forecast | None:
        """Return what the settings mean for the whole run, where steps and passes were timed."""
        lives, measured = self.found.lives, self.found.lives.step_ms
        if measured is not None:
            base_s, plan_s = (ms / 1e3 for ms in measured)
        else:
            base_s, plan_s = (_least_step_s(life) or 1.0 for life in (lives.first, lives.plan))
        every = [_Times.of(life, base_s) for life in lives.unchanged]
        # A moment in which the machine was busy must not look like a cache that is lost: the plan
        # must be slower than the slowest life by more than that is than the quickest one.
        known = [times for times in every if times is not None]
        first = max(known, key=lambda times: times.later_s, default=None)
        unsure = _spread([times.later_s for times in known])
        plan = _Times.of(lives.plan, plan_s)
        start_s = lives.plan.startup_s - lives.first.startup_s
        if first is None or plan is None:
            self._loop_times(base_s / plan_s if measured is not None else SLOWER)
            return self._forecast_of_steps(base_s, plan_s, start_s) if measured else None
        start_s += plan.warm_up_s - first.warm_up_s
        ratio = first.later_s / plan.later_s
        epochs = self._most_planned(LoopKind.EPOCHS)
        count = epochs or 1
        claimed = base_s / plan_s if measured is not None else SLOWER
        if (epochs or 2) > 1:
            self._judge("later epochs", ratio, claimed, unsure)
            self._judge_last(claimed)
        saved_s = count * (first.later_s - plan.later_s) - start_s
        each_step_s = (first.later_s - plan.later_s) / first.batches
        forecast = Forecast(
            saved_s=saved_s,
            whole_s=lives.first.startup_s + first.warm_up_s + count * first.later_s,
            epochs=epochs,
            later_ratio=ratio,
            extra_start_s=start_s,
            break_even_steps=_break_even(start_s, each_step_s),
        )
        if epochs is not None and measured is not None:
            known_s = [times.later_s for times in known]
            self._judge_whole(forecast, count * (max(known_s) - min(known_s)))
        return forecast

    def _loop_times(self, claimed: float) -> None:
        """Compare the later epochs of a script without loaders, by its own loops."""
        known = [
            {loop.place: loop.seconds[1:] for loop in life.loops}
            for life in self.found.lives.unchanged
        ]
        for loop in self.found.lives.plan.loops:
            ours, theirs = [each.get(loop.place) for each in known], loop.seconds[1:]
            if not all(ours) or not theirs:
                continue
            usual = [median(each) for each in ours if each]
            ratio = max(usual) / median(theirs)
            self._judge(f"later epochs of {loop.place}", ratio, claimed, _spread(usual))

    def _judge(self, what: str, ratio: float, claimed: float, unsure: float) -> None:
        """Say that later epochs are slower, or that it cannot be told, as where others used the
        machine under the plan.

        `ratio` is the slowest unchanged life's time over the plan's, `claimed` what trials say it
        is in the first epoch, and `unsure` how much longer that life's epochs took than another's.
        """
        if ratio >= SLOWER or ratio >= LATER_LOSS * claimed:
            return
        slower = f"{what} take {1 / ratio:.2f}x as long as the unchanged script's"
        if disturbed := self.found.lives.plan.disturbance:
            self._doubt(f"it cannot be told whether {slower}: {disturbed} meanwhile")
        elif ratio * unsure < SLOWER:
            self.found.problem(Aspect.SECOND_EPOCH, slower, self.found.loader_knobs, is_timed=True)
        else:
            self._doubt(
                f"it cannot be told whether {slower}: lives of that differ by {unsure - 1:.0%}"
            )

    def _judge_last(self, claimed: float) -> None:
        """Doubt a gain that the second epoch still has and the last one that was lived has lost.

        Something was turned on between, such as an evaluation in each step. What workers take to
        start is in both.
        """
        *ours, planned = map(_later_passes_s, (*self.found.lives.unchanged, self.found.lives.plan))
        if not planned[1:] or any(len(times_s) != len(planned) for times_s in ours):
            return
        last_s = [times_s[-1] for times_s in ours]
        ratio = max(last_s) / planned[-1]
        had_gained = planned[0] <= max(times_s[0] for times_s in ours)
        if had_gained and ratio < LATER_LOSS * claimed and ratio * _spread(last_s) < SLOWER:
            slower = f"{1 / ratio:.2f}x as long as the unchanged script's"
            self._doubt(f"the last epoch of the rehearsal takes {slower}, and others may as well")

    def _judge_whole(self, forecast: Forecast, unsure_s: float = 0.0) -> None:
        """Say that the whole run loses time, where that is more than its lives differ by."""
        starts_s = [life.startup_s for life in self.found.lives.unchanged]
        unsure_s += max(starts_s) - min(starts_s)
        if forecast.saved_s + unsure_s >= 0:
            return
        after = forecast.break_even_steps
        self._doubt(
            f"the whole run takes {-forecast.saved_s:.3g} s longer, as its start does by"
            f" {forecast.extra_start_s:.3g} s"
            + (f", which {after:,} steps earn back" if after else "")
        )

    def _most_planned(self, kind: LoopKind) -> int | None:
        """Return how often the longest loop of a kind is to run; None where none says so.

        Where a loop trains, those that only call the model are its evaluations. One that was ended
        early and does not say how long it is may be the longest.
        """
        every = self.found.lives.first.loops
        is_trained = any(loop.trains for loop in every)
        loops = [loop for loop in every if loop.kind is kind and loop.trains is is_trained]
        if any(loop.shortened and not loop.planned for loop in loops):
            return None
        return max((loop.planned for loop in loops if loop.planned), default=None)

    def _planned_steps(self) -> int | None:
        """Return how many steps the whole run of a script without passes has; None where its loops
        do not say. Where some are epochs, the others are run through in each of these."""
        steps, epochs = self._most_planned(LoopKind.STEPS), 1
        if any(
            each.kind is LoopKind.EPOCHS and each.trains for each in self.found.lives.first.loops
        ):
            epochs = self._most_planned(LoopKind.EPOCHS) or 0
        return steps * epochs if steps and epochs else None

    def _doubt(self, why: str) -> None:
        if not self.found.doubt:
            self.found.doubt, self.found.doubt_is_timed = why, True

    def _forecast_of_steps(self, base_s: float, plan_s: float, start_s: float) -> Forecast | None:
        steps = self._planned_steps()
        if steps is None:
            return None
        forecast = Forecast(
            saved_s=steps * (base_s - plan_s) - start_s,
            whole_s=self.found.lives.first.startup_s + steps * base_s,
            epochs=None,
            steps=steps,
            later_ratio=None,
            extra_start_s=start_s,
            break_even_steps=_break_even(start_s, base_s - plan_s),
        )
        self._judge_whole(forecast)
        return forecast


def _spread(times_s: Sequence[float]) -> float:
    """Return the longest time over the shortest; 1 without any."""
    return max(times_s, default=1.0) / max(1e-9, min(times_s, default=1.0))


@dataclass(frozen=True)
class _Times:
    """Times of a side's passes over the data that it trains on, as if they were whole."""

    batches: int
    """Batches of a whole pass."""
    later_s: float
    """A later pass."""
    warm_up_s: float
    """What the first pass takes longer than its batches do in trials: compilation, workers."""

    @classmethod
    def of(cls, life: Life, step_s: float) -> _Times | None:
        """Return the times of a life whose steps take `step_s` in trials of its first pass.

        What a short pass takes longer than its steps is counted once a pass: its workers start, or
        something is compiled. Where it takes less, as where samples were kept in memory, all of
        the whole pass's batches do.
        """
        passes = [each for each in training_passes(life) if each.finished and each.batches]
        later = [each for each in passes if each.number > 0]
        if not passes or not later:
            return None
        whole = passes[0].whole_batches or len(passes[0].batches)
        times_s = []
        for each in later:
            count = len(each.batches)
            spent_s = each.start_s + each.seconds
            steady_s = (spent_s - each.made_s) / count
            if steady_s < step_s:
                times_s.append(each.made_s + whole * steady_s)
            else:
                times_s.append(whole * step_s + spent_s - count * step_s)
        first = passes[0]
        spent_s = first.start_s + first.seconds - len(first.batches) * step_s
        return cls(whole, median(times_s), max(0.0, spent_s))


def _later_passes_s(life: Life) -> list[float]:
    """Return how long each pass but the first took, over what was trained on last."""
    passes = [each for each in training_passes(life) if each.finished and each.batches]
    return [
        each.start_s + each.seconds
        for each in passes
        if each.number > 0 and each.loader == passes[-1].loader
    ]


def _least_step_s(life: Life) -> float | None:
    """Return the time of a batch in the quickest pass; None without a whole one."""
    times = [
        (each.start_s + each.seconds - each.made_s) / len(each.batches)
        for each in training_passes(life)
        if each.finished and each.batches
    ]
    return min(times, default=None)


def _break_even(start_s: float, saved_s: float) -> int | None:
    """Return after how many steps a longer start is earned back; None where it never is."""
    if start_s <= 0:
        return 0
    return math.ceil(start_s / saved_s) if saved_s > 0 else None
