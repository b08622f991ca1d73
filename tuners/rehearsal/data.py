"""Whether a plan's life read what the unchanged script reads, exactly or in distribution."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from gpuadvisor.domain.rehearsal import Epoch, Life
from gpuadvisor.domain.study import Aspect
from gpuadvisor.tuners.rehearsal.lives import (
    Findings,
    Key,
    draws_samples_at_random,
    is_whole,
    moments_of,
    parts_of,
    passes_of,
    stream,
    streams,
)

ENOUGH_SAMPLES = 2000
"""Samples of each side that stand for a pass over the data where a script has none."""
LEAST_P = 1e-3
"""Chance of calling two equal distributions different, for all tests of a rehearsal together."""
REPEATS_SHARE = 0.01
"""Part of random samples that may be exact repeats of others beyond those of the unchanged script:
sampling with replacement has some by chance."""
DEVIATIONS = 3.0
"""Standard deviations by which the number of repeats may be larger in one life than in another: a
random flip leaves two outcomes of each sample, so that every second epoch repeats it by chance."""


def enough_batches(life: Life, batches: int, room_s: float, most_s: float) -> tuple[int, bool]:
    """Return how many batches a pass needs for enough samples in a life that trains in no second
    pass, and whether `most_s` has room for passes of so many; else the number is of those that it
    has.

    All of the pass where `room_s` has room for them. No more than `batches` where it trains in a
    second pass, or was not cut short.
    """
    passes = [each for each in life.epochs if each.batches]
    longest = max(passes, key=lambda each: each.rows, default=None)
    if longest is None or (life.losses and any(each.number for each in passes)):
        return batches, True
    count, whole = len(longest.batches), longest.whole_batches
    if whole is not None and count >= whole:
        return batches, True
    wanted = math.ceil(ENOUGH_SAMPLES * count / max(1, longest.rows))
    batches_per_s = count / max(1e-3, sum(each.start_s + each.seconds for each in passes))
    whole_fits = min(whole or 0, int(room_s * batches_per_s))
    fitting = int(most_s * batches_per_s)
    return max(batches, min(wanted, fitting), whole_fits), max(fitting, whole_fits) >= wanted


@dataclass
class DataComparison:
    """Compares batches, pass by pass and part by part."""

    found: Findings

    def compare(self) -> None:
        lives = self.found.lives
        first, second, plan = (passes_of(each) for each in (lives.first, lives.second, lives.plan))
        if not first:
            self._inputs()
            return
        for key, ours in first.items():
            aspect = Aspect.BATCHES if key[1] == 0 else Aspect.SECOND_EPOCH
            theirs, again = plan.get(key), second.get(key)
            if theirs is None and not self.found.cut and again is not None:
                self.found.data_problem(aspect, f"pass {key[1] + 1} over the data is not made")
            elif theirs is None or again is None:
                self.found.lacks(
                    aspect, f"pass {key[1] + 1} over the data was not made in every life"
                )
            elif ours.rows != theirs.rows and ours.rows == again.rows:
                why = f"a pass over the data gives {theirs.rows:,} samples and not {ours.rows:,}"
                self.found.data_problem(aspect, why)
            else:
                self._pass(aspect, key, ours, again, theirs)
        self._same_order()
        self._repeats()
        if not any(number for _, number in first):
            if is_whole(lives.first):
                self.found.covered.append(Aspect.SECOND_EPOCH)  # the script has no other
            else:
                self.found.not_covered[Aspect.SECOND_EPOCH] = "the script's life had only one"

    def _pass(self, aspect: Aspect, key: Key, ours: Epoch, again: Epoch, theirs: Epoch) -> None:
        """Compare one pass over one loader, part by part."""
        parts = min(len(parts_of(each)) for each in (ours, again, theirs))
        if not parts:
            self.found.lacks(aspect, "the batches hold nothing that can be compared")
            return
        compared = True
        for part in range(parts):
            if self.is_fixed(key[0], part):
                self._exact(aspect, key, part, ours, theirs)
            else:
                # Drawn at random, but the same draws where the same process makes them.
                self.found.moved |= stream(ours, part) != stream(theirs, part)
                compared &= self._distribution(aspect, key, part, ours, again, theirs)
        if compared:
            self.found.covered.append(aspect)
            self.found.samples += theirs.rows

    def is_fixed(self, loader: int, part: int) -> bool:
        """Say whether a part of each sample is the same whenever it is read."""
        first, second = passes_of(self.found.lives.first), passes_of(self.found.lives.second)
        mine = [key for key in first if key[0] == loader and key in second]
        seen = [stream(first[key], part) for key in mine]
        if any(stream(second[k], part) != each for k, each in zip(mine, seen, strict=True)):
            return False
        if not draws_samples_at_random(self.found.lives.first):
            return True
        # Random numbers were drawn, but perhaps for another part, or for the order only.
        return len(seen) > 1 and all(Counter(each) == Counter(seen[0]) for each in seen[1:])

    def _exact(self, aspect: Aspect, key: Key, part: int, ours: Epoch, theirs: Epoch) -> None:
        a, b = stream(ours, part), stream(theirs, part)
        if a == b:
            return
        shuffles = self._shuffles(key[0], part)
        passes = passes_of(self.found.lives.first).items()
        partial = ours.rows < max(each.rows for place, each in passes if place[0] == key[0])
        if shuffles and (partial or Counter(a) == Counter(b)):
            self.found.moved = True  # of a pass that ends early, other samples come first
            return
        if Counter(a) == Counter(b):
            self.found.data_problem(aspect, "the samples come in another order")
            return
        batches = [each for each in ours.batches if part < len(each.parts)]
        if self.found.is_resized and all(len(each.parts[part]) == 1 for each in batches):
            self.found.lacks(aspect, "batches of another size cannot be told apart")
            return
        lost = sum((Counter(a) - Counter(b)).values())
        distinct, of = len(set(b)), len(set(a))
        what = f"{lost:,} of {len(a):,} samples differ"
        if distinct < of and set(b) <= set(a):
            what = f"a pass reads {distinct:,} of {of:,} samples, some of them more than once"
        self.found.data_problem(aspect, f"in pass {key[1] + 1} {what}")

    def _shuffles(self, loader: int, part: int) -> bool:
        """Say whether the unchanged script reads in another order in each pass."""
        orders = streams(self.found.lives.first, loader, part)
        return len(orders) > 1 and orders[0] != orders[1]

    def _same_order(self) -> None:
        """Look for an order that changes from pass to pass, and does not any more."""
        for loader in {loader for loader, _ in passes_of(self.found.lives.first)}:
            if not self.is_fixed(loader, 0) or not self._shuffles(loader, 0):
                continue
            orders = streams(self.found.lives.plan, loader, 0)
            if len(orders) > 1 and orders[0] == orders[1]:
                why = "every pass has the samples in the same order"
                self.found.data_problem(Aspect.SECOND_EPOCH, why)

    def _distribution(
        self, aspect: Aspect, key: Key, part: int, ours: Epoch, again: Epoch, theirs: Epoch
    ) -> bool:
        """Compare random samples by how their means and deviations are distributed."""
        known = moments_of(ours, part)
        if again.batches != ours.batches:
            known = [a + b for a, b in zip(known, moments_of(again, part), strict=True)]
        found = moments_of(theirs, part)
        if not all(known) or not all(found):
            why = "the samples are random and hold no numbers whose distribution shows"
            self.found.lacks(aspect, why)
            return False
        tests = 2 * max(1, len(passes_of(self.found.lives.first))) * max(1, len(parts_of(ours)))
        for name, a, b in zip(("mean", "deviation"), known, found, strict=True):
            if _chance(a, b) < LEAST_P / tests:
                medians = f"median {median(b):.4g} and not {median(a):.4g}"
                why = f"the samples' {name} is distributed otherwise in pass {key[1] + 1}"
                self.found.data_problem(aspect, f"{why} ({medians})")
        return True

    def _repeats(self) -> None:
        """Look for random samples that come again as they were, which they had not before."""
        first, plan = passes_of(self.found.lives.first), passes_of(self.found.lives.plan)
        for loader in {loader for loader, _ in first}:
            keys = [key for key in first if key[0] == loader and key in plan]
            for part in range(min((len(parts_of(first[key])) for key in keys), default=0)):
                if self.is_fixed(loader, part):
                    continue
                ours = [one for key in keys for one in stream(first[key], part)]
                theirs = [one for key in keys for one in stream(plan[key], part)]
                usual = len(ours) - len(set(ours))
                more = len(theirs) - len(set(theirs)) - usual
                by_chance = DEVIATIONS * math.sqrt(2 * usual)
                if more > max(1, REPEATS_SHARE * len(theirs)) + by_chance:
                    why = f"{more:,} of {len(theirs):,} random samples are exact repeats of others"
                    self.found.data_problem(Aspect.SECOND_EPOCH, why)

    def _inputs(self) -> None:
        """Compare what the model is given, where the script makes its batches itself."""
        first, second, plan = (self.found.lives.first.calls, self.found.lives.second.calls,
                               self.found.lives.plan.calls)  # fmt: skip
        if not first:
            self.found.lacks(Aspect.BATCHES, "neither a DataLoader nor a call of a model was seen")
            return
        if self.found.is_resized:
            self.found.samples = min(sum(c.rows_in for c in calls) for calls in (first, plan))
        else:
            same = sum(c.rows_in for a, b, c in zip(first, second, plan, strict=False)
                       if a.input == b.input == c.input)  # fmt: skip
            self.found.samples = same
        if is_whole(self.found.lives.first) or self.found.samples >= ENOUGH_SAMPLES:
            self.found.covered += [Aspect.BATCHES, Aspect.SECOND_EPOCH]
            return
        why = (
            f"the script makes its batches itself, and {self.found.samples:,} samples could be"
            f" compared, not {ENOUGH_SAMPLES:,}"
        )
        self.found.not_covered[Aspect.BATCHES] = self.found.not_covered[Aspect.SECOND_EPOCH] = why


def _chance(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Return the p-value of Kolmogorov's and Smirnov's test that two samples are of one kind."""
    from scipy.special import kolmogorov

    places = sorted({*ours, *theirs})
    a, b = Counter(ours), Counter(theirs)
    below_a = below_b = largest = 0.0
    for place in places:
        below_a += a[place] / len(ours)
        below_b += b[place] / len(theirs)
        largest = max(largest, abs(below_a - below_b))
    effective = math.sqrt(len(ours) * len(theirs) / (len(ours) + len(theirs)))
    return float(kolmogorov((effective + 0.12 + 0.11 / effective) * largest))
