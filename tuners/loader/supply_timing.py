"""Which number of workers to try first: a loader's supply against what the rest of a step takes.

A trial costs a fresh process and its start, whatever it measures; the loader alone shows within a
second how fast it is with so many workers. It has the machine to itself there, so what follows is
an order of trials: how fast a step is, only a trial tells.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpuadvisor.domain.knobs import LoaderFacts, Settings
from gpuadvisor.domain.loader_supply import LoaderSupply, Supplied
from gpuadvisor.domain.measurement import Measurement
from gpuadvisor.domain.screening import Block, BlockTime, Screening
from gpuadvisor.tuners.knobs._script import WORKERS
from gpuadvisor.tuners.search import MIN_GAIN
from gpuadvisor.tuners.statistics import mean_with_interval, spread_of

COUNTS = (1, 2, 4, 8, 16)
"""Numbers of workers that are timed, besides those that the knob would try. More than there are
cores, too: a loader that waits for storage gained 8x with 8 and 13x with 16 workers on two."""
APART = 1.5
"""Times by which a number of workers is larger than the one before: what lies between is as good as
one of them within what trials show, and each number costs starting so many processes."""
BLOCKS = 2
"""Blocks of each number: one alone does not show how much they differ. As many more are timed where
these differ by more than `RESTLESS`, once, unless each is faster than fewer workers by far."""
RESTLESS = 1.2
NARROW, NARROW_S = 1.1, 6.0
"""Upper end of the interval of the best number over its mean to which it is narrowed where the
loader may be what a step waits for, whatever it computes, and the seconds that this may take. It
is what "at most" is said of."""
BEYOND = 2.0
"""Times the rest of a step from which a loader is what half of a step waits for in any case."""
BLOCK_S = 0.5
"""Least time of a block, in seconds."""
LESS = 0.9
"""Share of the time between batches under which more workers have to bring it to be worth them."""
VAIN = 2
"""Numbers in a row that bring nothing, or fail, after which no larger one is timed."""
AMPLE = 0.5
"""Share of the rest of a step in which batches are supplied so that faster supply is no matter,
even where the script's own work takes half of the cores from the workers, or becomes twice as fast
by other knobs."""
ENOUGH = 0.8
"""Share of the rest of a step in which batches are supplied so that it is enough once half of the
time is spent: faster than the script takes them now."""
NEAR = 1.05
"""How much longer than the shortest promised step another may be and count as the same, also where
blocks hardly differ: then fewer workers are better."""
ERRORS = 2.58 / 1.64
"""Half of a 99 % interval over what one side may be by a chance of 5 %, in standard errors of a
normal distribution: few blocks, which may differ by more, cannot show what is nearly sure."""
MOST_TRIED = 2
"""Numbers of workers that are left to trials: the one that promises most, and the next best."""

MOST = 32
"""Most workers that are timed, unless the script has more."""

Steps = Generator[Sequence[Block], Sequence[BlockTime], None]


@dataclass(frozen=True)
class Promised:
    """The step that a number of workers promises, in milliseconds, with the ends of its 99 %
    interval by what blocks of the loader differed."""

    ms: float
    low_ms: float
    high_ms: float

    def is_behind(self, most: Promised) -> bool:
        """Say whether this step is longer than that of another number by more than `NEAR`, and by
        more than chance would have it once in 20 times: fewer workers are the choice where that is
        open, but not where they are probably much slower, and few blocks leave it unsure."""
        ends = math.log(self.ms / self.low_ms), math.log(most.high_ms / most.ms)
        return math.log(self.ms / most.ms) > max(math.log(NEAR), math.hypot(*ends) / ERRORS)


def time_supply(
    baseline: Measurement,
    choices: Sequence[int],
    others: Sequence[Settings],
    left_s: Callable[[], float],
    told: Callable[[Supplied], None] = lambda supplied: None,
    cores: int = 0,
    computing_ms: float | None = None,
) -> Screening[LoaderSupply]:
    """Return a screening of the loader that feeds most batches of a script.

    `baseline` is the unchanged script's, `choices` are numbers of workers that would be tried;
    `others` are settings that are timed on top of the best number. `left_s` returns the seconds
    that are left for it. `told` hears of each that was timed. `cores` is how many the script may
    use; 0 where that is not known. `computing_ms` is what a step's computing takes that the batches
    are to keep up with; None for the unchanged script's.
    """
    loader = baseline.facts.loaders[0]
    return _Timing(baseline, loader, choices, others, left_s, told, cores, computing_ms).run()


@dataclass
class _Timing:
    """The timing in progress."""

    baseline: Measurement
    loader: LoaderFacts
    choices: Sequence[int]
    others: Sequence[Settings]
    left_s: Callable[[], float]
    told: Callable[[Supplied], None] = lambda supplied: None
    cores: int = 0
    computing_ms: float | None = None
    _values: list[Supplied] = field(default_factory=list)
    _times: list[list[float]] = field(default_factory=list)
    """The blocks of each value, in milliseconds."""
    _longest_s: float = 0.0
    """Longest that a value took so far, without the script's start."""
    _loading_ms: float = 0.0
    """Time of a step that loading takes from its computing, where both need the same cores."""

    def __post_init__(self) -> None:
        self.batches = batches_a_step(self.baseline)
        self._whole_s = self.left_s()

    def run(self) -> Screening[LoaderSupply]:
        """Time the loader, and return what follows."""
        why = yield from self._count_up()
        yield from self._settle()
        yield from self._narrow()
        found = self._concluded(why)
        if self.loader.num_workers and not found.settings and self._has_time():
            yield from self._time_none()
            found = self._concluded(why)
        for other in self.others:
            if found.settings and self._has_time() and not self._supplies(AMPLE):
                yield from self._time({**found.settings, **other})
        return self._concluded(why)

    def _count_up(self) -> Generator[Sequence[Block], Sequence[BlockTime], str]:
        """Time more and more workers; return why not all, or an empty text."""
        best, vain = math.inf, 0
        for count in self._counts():
            if not self._has_time():
                return f"no time was left for {count}"
            yield from self._time({WORKERS: count})
            batch_ms = self._values[-1].batch_ms or math.inf
            if self._shares_cores and self.loader.num_workers and self._has_time():
                yield from self._time_none()  # what workers send may take longer than to load it
            vain = 0 if batch_ms < LESS * best else vain + 1
            best = min(best, batch_ms)
            is_late = self.left_s() < self._whole_s / 2
            if self._supplies(ENOUGH if is_late else AMPLE):
                return f"{count} supply batches faster than the script takes them"
            if vain == VAIN:
                return f"{count} were no faster than fewer"
        return ""

    def _time_none(self) -> Steps:
        """Time the loader without workers, once."""
        if {WORKERS: 0} not in [each.settings for each in self._values]:
            yield from self._time({WORKERS: 0})

    def _settle(self) -> Steps:
        """Time the first choice and the fastest number for longer while the first looks behind by
        as much as more workers may bring, and not surely: few blocks that differ would hide it."""
        began_s = self.left_s()
        while self._has_time() and began_s - self.left_s() < NARROW_S:
            found = self._concluded("")
            step_ms = {n: each.step_ms for n, each in enumerate(found.values) if each.step_ms}
            counts = [each.settings[WORKERS] for each in found.values]
            if not found.workers:
                return
            first, most = counts.index(found.workers[0]), min(step_ms, key=step_ms.__getitem__)
            if step_ms[first] < APART * step_ms[most]:
                return
            for place in (first, most):
                if not (yield from self._more(place)):
                    return

    def _narrow(self) -> Steps:
        """Time the best number until its interval is narrow, if it is about as fast as the rest of
        a step is or may become."""
        began_s = self.left_s()
        while self._has_time() and self._supplies(BEYOND) and not self._supplies(AMPLE):
            values = self._concluded("").values
            known = [n for n, each in enumerate(values) if each.batch_ms and _has_workers(each)]
            best = min(known, key=lambda n: values[n].batch_ms or 0.0, default=None)
            if best is None:
                return
            each = values[best]
            is_narrow = (each.high_ms or 0.0) <= NARROW * (each.batch_ms or 0.0)
            if is_narrow or began_s - self.left_s() >= NARROW_S:
                return
            if not (yield from self._more(best)):
                return

    def _more(self, place: int) -> Generator[Sequence[Block], Sequence[BlockTime], bool]:
        """Time further blocks of one value; return whether they could be timed."""
        each, before_s = self._values[place], self.left_s()
        times = yield [Block(each.settings, BLOCK_S)] * BLOCKS
        if any(one.failed for one in times):
            return False
        self._times[place] += [one.step_ms for one in times]
        self._values[place] = replace(
            each,
            batches=each.batches + sum(one.steps for one in times),
            seconds=each.seconds + before_s - self.left_s(),
        )
        return True

    def _counts(self) -> Iterator[int]:
        """Yield the numbers of workers to time: what the script has, then more and more.

        Fewer are no use to a script that waits, unless the machine has fewer cores; and where it
        has none, one is as fast as the script's own process was in the baseline.
        """
        own = self.loader.num_workers
        least = min(own, self.cores or own)
        if not own:
            alone_ms = self.baseline.mean_step_ms * self.baseline.data_wait_share
            least = 1 if alone_ms <= ENOUGH * self.rest_ms else 2
        last = 0.0
        for count in sorted({*COUNTS, *self.choices, own, min(2 * own, max(own, MOST))}):
            if count >= max(least, APART * last) and count:
                yield count
                last = count

    def _supplies(self, share: float) -> bool:
        """Say whether some workers supply a step's batches in this share of the rest of it."""
        known = [each.batch_ms for each in self._values if each.batch_ms and _has_workers(each)]
        return min(known, default=math.inf) * self.batches <= share * self.rest_ms

    @property
    def rest_ms(self) -> float:
        """Time of a step in which nothing waits for the loaders."""
        return self._unchanged_rest_ms if self.computing_ms is None else self.computing_ms

    @property
    def _unchanged_rest_ms(self) -> float:
        """That of the unchanged script: neither it nor its GPU waits."""
        return self.baseline.mean_step_ms * (1 - self.baseline.starved_share)

    def _has_time(self) -> bool:
        return self.left_s() > self._longest_s

    def _time(self, settings: Settings) -> Steps:
        before_s = self.left_s()
        times = yield [Block(settings, BLOCK_S)] * BLOCKS
        steps_ms = [each.step_ms for each in times]
        fewer_ms = min((each.batch_ms for each in self._values if each.batch_ms), default=0.0)
        is_clear = max(steps_ms) < LESS * fewer_ms  # all of it faster than anything before
        if max(steps_ms) > RESTLESS * min(steps_ms) and not is_clear:
            times = [*times, *(yield [Block(settings, BLOCK_S)] * BLOCKS)]
        seconds = before_s - self.left_s()
        started_s = 0.0 if self._values else self.baseline.startup_s
        self._longest_s = max(self._longest_s, seconds - started_s)
        good = [each for each in times if not each.failed]
        failed = next((each.failed for each in times if each.failed), "")
        self._times.append([each.step_ms for each in good if not failed])
        batches = sum(each.steps for each in good)
        self._values.append(
            Supplied(settings, batches=batches, seconds=seconds, failed=failed)
            if failed
            else self._supplied(settings, self._times[-1], batches, seconds)
        )
        self.told(self._values[-1])

    def _supplied(
        self, settings: Settings, times: Sequence[float], batches: int, seconds: float
    ) -> Supplied:
        spread = spread_of(*self._times)
        freedom = sum(max(0, len(each) - 1) for each in self._times)
        mean, low, high = mean_with_interval(times, spread, freedom)
        supply_ms = mean * self.batches
        step_ms = self._promised_ms(settings, supply_ms, self.rest_ms)
        return Supplied(settings, mean, low, high, batches, step_ms, seconds)

    def _concluded(self, why: str) -> LoaderSupply:
        self._loading_ms = self._loading(self._values)
        values = [
            each
            if each.failed
            else self._supplied(each.settings, times, each.batches, each.seconds)
            for each, times in zip(self._values, self._times, strict=True)
        ]
        rest_ms = self._unchanged_rest_ms
        step_ms = self.baseline.mean_step_ms
        found = LoaderSupply(step_ms, rest_ms, tuple(values), why=why, cores=self.cores)
        return self._with_workers(found, self.rest_ms)

    def again(self, supply: LoaderSupply, rest_ms: float) -> LoaderSupply:
        """Return what follows where the rest of a step takes so long."""
        self._loading_ms = self._loading(supply.values)
        values = tuple(
            replace(v, step_ms=self._promised_ms(v.settings, v.batch_ms * self.batches, rest_ms))
            if v.batch_ms is not None
            else v
            for v in supply.values
        )
        found = replace(supply, values=values, settings={}, best_rest_ms=rest_ms)
        return self._with_workers(found, rest_ms)

    def _with_workers(self, supply: LoaderSupply, rest_ms: float) -> LoaderSupply:
        """Return it with the numbers of workers that are worth a trial, and that to begin with.

        Beside the script's work all workers are slower than alone, so where those that it has were
        too slow alone, others have to be faster than these, and else than it is with its waiting.
        """
        own = self.loader.num_workers
        promised = {
            int(each.settings[WORKERS]): self._promised(each, rest_ms)
            for each in supply.values
            if list(each.settings) == [WORKERS] and each.step_ms is not None
        }
        others = {count: step for count, step in promised.items() if count != own}
        order = in_order(others, self.cores, spare=not self._shares_cores)
        found = replace(supply, workers=order[:MOST_TRIED])
        own_ms = promised[own].ms if own in promised else 0.0
        unchanged_ms = self.baseline.mean_step_ms - self._unchanged_rest_ms + rest_ms
        if order and order[0] and own_ms > NEAR * rest_ms:
            unchanged_ms = own_ms
        if order and promised[order[0]].ms * (1 + MIN_GAIN) < unchanged_ms:
            found = replace(found, settings={WORKERS: order[0]})
        return found

    def _promised(self, supplied: Supplied, rest_ms: float) -> Promised:
        ends = (supplied.batch_ms, supplied.low_ms, supplied.high_ms)
        steps = (
            self._promised_ms(supplied.settings, (end or 0.0) * self.batches, rest_ms)
            for end in ends
        )
        return Promised(*steps)

    def _promised_ms(self, settings: Settings, supply_ms: float, rest_ms: float) -> float:
        if not settings.get(WORKERS):
            return rest_ms + supply_ms
        return max(supply_ms, rest_ms + self._loading_ms)

    @property
    def _shares_cores(self) -> bool:
        """Whether a step computes on the cores that its workers need."""
        return self.cores > 0 and self.baseline.facts.device == "cpu"

    def _loading(self, values: Sequence[Supplied]) -> float:
        """Return for how long all cores load for a step, in milliseconds, if they compute, too; 0
        where a GPU does.

        No more cores load than there are, nor than workers, in the time between two batches: what
        is least of that over all numbers of workers is the most that loading can take of them.
        """
        if not self._shares_cores:
            return 0.0
        busy_ms = (
            each.batch_ms * min(int(each.settings[WORKERS]), self.cores) * self.batches
            for each in values
            if each.batch_ms and list(each.settings) == [WORKERS] and each.settings[WORKERS]
        )
        return min(busy_ms, default=0.0) / self.cores


def rechosen(supply: LoaderSupply, rest_ms: float, baseline: Measurement) -> LoaderSupply:
    """Return what a timing says where the rest of a step takes so long, as computing is faster.

    Nothing is timed again. It is compared with what the script's own workers allow there.
    """
    loader = baseline.facts.loaders[0]
    timing = _Timing(baseline, loader, (), (), float, cores=supply.cores)
    return timing.again(supply, rest_ms)


def batches_a_step(baseline: Measurement) -> float:
    """Return how many batches of its first loader a script reads in a step.

    That is more than one where gradients are accumulated.
    """
    samples, size = baseline.samples_per_step, baseline.facts.loaders[0].batch_size
    return max(1.0, samples / size) if samples and size else 1.0


def in_order(steps: Mapping[int, Promised], cores: int = 0, spare: bool = False) -> tuple[int, ...]:
    """Return numbers of workers in the order in which to try them, from the step each promises.

    The fewest come first of those that are not behind the one that promises most: each worker is a
    process with memory of its own, and more of them than cores make runs differ. So those beyond
    the script's `cores` have to be faster surely. Up to there what was timed decides, however
    unsure it is: too few workers cost all that others would bring, too many a little memory.

    Where cores are to `spare`, as a GPU computes, fewer workers have to keep up surely, if any do:
    batches come in order, so one worker that stalls holds up all, for longer than their queue
    lasts. On an H200 of 16 cores 4 workers kept up on average, but in one run of four one of them
    took 31 ms for a batch instead of 11 for a second: 5.0 ms a step, and 3.6 with 8 workers.
    """
    if not steps:
        return ()
    most = min(steps.values(), key=lambda step: step.ms)
    own = [step.ms for count, step in steps.items() if 0 < count <= cores]
    least_ms = min(own, default=math.inf)
    kept_up_ms = (1 + MIN_GAIN) * least_ms if spare and own else 0.0
    sure = {n for n, step in steps.items() if n <= cores and step.high_ms < kept_up_ms}

    def behind_ms(count: int) -> float:
        step, unsure = steps[count], bool(sure) and count not in sure
        behind = unsure or step.is_behind(most) or step.ms > NEAR * least_ms
        return step.ms if behind else 0.0

    return tuple(sorted(steps, key=lambda count: (behind_ms(count), count)))


def _has_workers(supplied: Supplied) -> bool:
    return bool(supplied.settings[WORKERS])
