"""Which blocks, warps and stages one launch of a Triton kernel is fastest with.

The launch is open in the running script, which stands still in it and measures what it is asked.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpuadvisor.domain.inquiry import Answer, Ended, Witness
from gpuadvisor.domain.kernel_records import Evaluation
from gpuadvisor.domain.knobs import Value
from gpuadvisor.domain.study import Trial, TrialState
from gpuadvisor.tuners.kernels.point_search import PROGRESS, PointSearch
from gpuadvisor.tuners.kernels.points import Points
from gpuadvisor.tuners.knobs._triton.precise import IMPRECISE
from gpuadvisor.tuners.space import Parameter, Point, Space

WORTH = 0.03
"""Gain of a launch below which it keeps what it has: timings of one configuration differ by 0.2 to
0.8 % (published spaces), and the choice of the best of many adds as much again."""
FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Times the script's own value that a power of two is tried at."""
LARGEST = 1 << 17
MOST_GRID = 20_000
"""Configurations beyond which only half and twice of each value are tried."""
OPTIONS: Mapping[str, tuple[int, ...]] = {
    "num_warps": (1, 2, 4, 8, 16),
    "num_stages": (1, 2, 3, 4, 5),
}
LEAST_SHARE = 0.02
"""Share of a step below which a launch is left alone: half of it would be hard to show."""
MOST_POINTS, PATIENCE = 60, 20
"""Configurations of a launch that are tried, and how many in a row that make a step no faster,
where no other launch waits for its search."""
FINALISTS = 3
"""The best that are checked, judged and timed once more, on the arguments of another launch."""
AHEAD = 4
"""Configurations that are compiled side by side while a search goes on: each is proposed before it
is known what came of the others, as where kernel files are tuned (`gpuadvisor tune-kernel`)."""
POINT_S = 150.0
"""Longest wait for a configuration, most of it the compiler's, which may have three to do: this one
for the script's types and for float32, and the script's own for float32."""


@dataclass(frozen=True)
class Shares:
    """What a launch and all else take of a step, as parts of the unchanged script's step."""

    own: float
    """The launch as the script has it."""
    rest: float
    """Everything else as it is by now: other launches with what was found for them."""
    waiting: float
    """Part of a step that launches take which are still to be searched; `rest` holds it, too."""

    def now(self, gain: float) -> tuple[float, float]:
        """Return the share of the launch in a step, and in what is still to be searched, where it
        is so many times as fast."""
        own = self.own / gain
        return own / (own + self.rest), own / (own + self.waiting)


class LaunchPoints:
    """The configurations of one launch, measured one after the other in the running script, which
    compiles some of them at once where its Triton can.

    It is the search's evaluator, too (`gpuadvisor.tuners.space.QueuedEvaluator`). Results that may
    differ by rounding alone are judged where the search begins, and of the best when it is over.
    """

    def __init__(
        self,
        script: Witness,
        opened: Answer,
        end_s: float,
        shares: Shares,
    ) -> None:
        """`opened` is what the script said of the launch, which has these `shares` of a step; the
        search ends at `end_s`, a time of `time.monotonic`."""
        self._shares = shares
        self._judged_s = 0.0
        """Longest time that a configuration took which was judged, as the best are in the end."""
        self._best, self._in_vain = 1.0, 0
        """Gain of the best so far, and configurations since the last that made a step faster."""
        self._script = script
        self._opened = opened
        self._end_s = end_s
        self._at_once: int = opened["at_once"]
        self.capacity = min(AHEAD, self._at_once)
        self._waiting: list[Point] = []
        """Configurations that were started, the first of which is the next to be measured."""
        self._compiled = 0
        """How many of these are compiled."""
        self._evaluations: list[Evaluation] = []
        self._trials: list[Trial] = []
        self.held: list[str] = list(opened["held"])
        """Parameters that keep the script's value, as with others it computes something else."""

    @property
    def tried(self) -> int:
        """The number of configurations that were measured."""
        return len(self._evaluations)

    @property
    def wrong(self) -> int:
        """The number of those that compute something else than the script's own, or less
        precisely."""
        return sum(each.state is TrialState.WRONG for each in self._evaluations)

    @property
    def imprecise(self) -> int:
        """The number of those that compute the same less precisely."""
        return sum(map(is_imprecise, self._evaluations))

    def best(self) -> list[Mapping[str, Value]]:
        """Return configurations that are faster, the fastest first.

        Those whose results may differ by rounding alone have not been judged.
        """
        start: dict[str, Value] = dict(self._opened["parameters"])
        values = self._that_compute_the_same(start)
        points = Points.of(_space(start, values))
        known = _known(points, start, self._trials)
        near = [row for point in _near(start, values) if (row := points.find(point)) is not None]
        self._in_vain = 0
        PointSearch(self, points, strategy="model").run(near, known)
        complete = (e for e in self._evaluations if e.state is TrialState.COMPLETE)
        faster = [each for each in complete if (each.gain or 0.0) > 1 + WORTH]
        faster.sort(key=lambda each: -(each.gain or 0.0))
        return [each.point for each in faster]

    def _that_compute_the_same(self, start: Mapping[str, Value]) -> dict[str, tuple[Value, ...]]:
        """Return the values of what may be set: half or twice of it computes the same.

        A block that is as long as a row, or the size of a head, is part of what is computed. Beyond
        a value that is refused, as a block that is shorter than a row, none is tried.
        """
        self._compile(_near(start, start))
        found: dict[str, tuple[Value, ...]] = {}
        for name, value in start.items():
            tried = [point for point in _near(start, [name]) if self.affordable(1)]
            judge = name not in OPTIONS  # these decide in which order is summed, not what
            trials = [self._trial(point, None, judge) for point in tried]  # however slow
            wrong = [int(t.settings[name]) for t in trials if t.state is TrialState.WRONG]
            if trials and len(wrong) == len(trials):
                if not all(map(is_imprecise, self._evaluations[-len(trials) :])):
                    self.held.append(name)
            elif name in OPTIONS or any(trial.gain is not None for trial in trials):
                least = max((each for each in wrong if each < int(value)), default=0)
                most = min((each for each in wrong if each > int(value)), default=math.inf)
                listed = values_of(name, value)
                found[name] = tuple(each for each in listed if least < int(each) < most)
        return found

    def affordable(self, points: int) -> bool:
        is_many = len(self._trials) + points > MOST_POINTS
        is_late = time.monotonic() + FINALISTS * self._judged_s > self._end_s
        return not (is_many or is_late) and self._is_worth_more()

    def _is_worth_more(self) -> bool:
        """Say whether to try more: not where the launch takes so little of a step by now that it
        would be left alone, nor after many in vain, fewer where others wait for their search."""
        of_step, of_searched = self._shares.now(self._best)
        return of_step >= LEAST_SHARE and self._in_vain < PATIENCE * of_searched

    def start(self, point: Point) -> None:
        self._waiting.append(point)

    def finished(self) -> Trial:
        if not self._compiled:
            self._compile(self._waiting)
            self._compiled = len(self._waiting)
        self._compiled -= 1
        best = max((trial.gain or 0.0 for trial in self._trials), default=0.0)
        return self._trial(self._waiting.pop(0), 1 / best if best else None)

    def _compile(self, points: Sequence[Point]) -> None:
        """Have configurations compiled, as many at once as the script can."""
        every = [{**self._opened["fixed"], **point} for point in points]
        while self._at_once > 1 and every:
            order = {"do": "compile", "points": every[: self._at_once]}
            checked(self._script.ask(order, POINT_S))
            del every[: self._at_once]

    def _trial(self, point: Point, give_up_at: float | None, judge: bool = False) -> Trial:
        began_s = time.monotonic()
        found = measured(self._script, self._opened["fixed"], point, give_up_at, judge)
        if judge:
            self._judged_s = max(self._judged_s, time.monotonic() - began_s)
        self._evaluations.append(found)
        trial = Trial(
            len(self._trials), found.point, "search", found.state, found.reason, gain=found.gain
        )
        self._trials.append(trial)
        self._in_vain += 1
        if trial.state is TrialState.COMPLETE and (gain := trial.gain or 0.0) > self._best:
            saved = self._shares.now(self._best)[0] * (1 - self._best / gain)
            if 1 / (1 - saved) > 1 + PROGRESS:
                self._best, self._in_vain = gain, 0
        return trial


def measured(
    script: Witness,
    fixed: Mapping[str, int],
    point: Point,
    give_up_at: float | None = None,
    judge: bool = True,
) -> Evaluation:
    """Return what a script says of a configuration of the launch that is open in it.

    Without `judge`, results that may differ by rounding alone are not judged.
    """
    order = {"do": "measure", "point": {**fixed, **point}, "give_up_at": give_up_at, "judge": judge}
    answer = checked(script.ask(order, POINT_S))
    return Evaluation(
        dict(point),
        TrialState(answer["state"]),
        answer.get("reason", ""),
        times_ms=tuple(answer.get("times_ms", ())),
        default_ms=tuple(answer.get("default_ms", ())),
    )


def is_imprecise(found: Evaluation) -> bool:
    """Say whether a configuration was refused as it computes the same less precisely."""
    return found.state is TrialState.WRONG and found.reason.startswith(IMPRECISE)


def checked(answer: Answer) -> Answer:
    """Return an answer; Ended where it was the last, as the GPU takes no more work."""
    if "lost" in answer:
        raise Ended(str(answer["lost"]))
    return answer


def values_of(name: str, value: Value) -> tuple[Value, ...]:
    """Return what is tried of a parameter, in order, the script's own value among it."""
    own, listed = int(value), OPTIONS.get(name)
    if listed:
        return tuple(sorted({*listed, own}))
    least = min(own, 16)  # what tensor cores and whole sectors ask for
    found = {int(own * factor) for factor in FACTORS}
    return tuple(sorted(each for each in found if least <= each <= max(LARGEST, own)))


def _space(start: Mapping[str, Value], values: Mapping[str, tuple[Value, ...]]) -> Space:
    """Return all configurations; of many parameters, only near values of each."""
    every = {name: values.get(name, (value,)) for name, value in start.items()}
    if math.prod(map(len, every.values())) > MOST_GRID:
        for name, value in start.items():
            place = every[name].index(value)
            every[name] = every[name][max(0, place - 1) : place + 2]
    return Space(tuple(Parameter(name, every[name], start[name]) for name in start))


def _near(start: Mapping[str, Value], names: Iterable[str]) -> list[dict[str, Value]]:
    """Return configurations that differ in one parameter, by one place."""
    found = []
    for name in names:
        values = values_of(name, start[name])
        place = values.index(start[name])
        for other in (place + 1, place - 1):
            if 0 <= other < len(values):
                found.append({**start, name: values[other]})
    return found


def _known(
    points: Points, start: Mapping[str, Value], trials: Sequence[Trial]
) -> list[tuple[int, Trial]]:
    """Return what is known of points already: the script's own is what gains are relative to."""
    own = Trial(-1, start, "search", TrialState.COMPLETE, gain=1.0)
    rows = ((points.find(trial.settings), trial) for trial in (own, *trials))
    return [(row, trial) for row, trial in rows if row is not None]
