"""Whether the same comes out: rows, losses, outputs, what is printed and written."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gpuadvisor.domain.measurement import Trace
from gpuadvisor.domain.printed import numbers_in, tells_time
from gpuadvisor.domain.rehearsal import Call, Life
from gpuadvisor.domain.study import Aspect, Equivalence
from gpuadvisor.tuners.equivalence import (
    SPREAD_FACTOR,
    difference,
    is_broken,
    relative_difference,
)
from gpuadvisor.tuners.rehearsal.files import ContentDifference, contents_apart
from gpuadvisor.tuners.rehearsal.lives import Findings

LOSSES = 10
"""First losses that are held against the limit, as in trials: later ones have been amplified."""
AMPLIFIED = 10.0
"""Times the limit by which outputs of a model that was trained for some steps may differ: each step
adds a rounding error of its own, and random errors of a hundred steps add up to ten."""
_ROWS = ("enter", "leave", "enter", "leave")


@dataclass
class ResultComparison:
    """Compares rows in and out of the model, losses, outputs, and what was printed and written."""

    found: Findings

    def rows(self) -> None:
        lives = self.found.lives
        first, second, plan = (_rows_of(each) for each in (lives.first, lives.second, lives.plan))
        if self.found.cut:
            self.found.not_covered[Aspect.ROWS] = self.found.cut
        elif not self.found.lives.first.calls:
            self.found.not_covered[Aspect.ROWS] = "the script calls no torch module with parameters"
        elif first != second:
            self.found.not_covered[Aspect.ROWS] = "two lives of the unchanged script differ in them"
        else:
            self.found.covered.append(Aspect.ROWS)
            for what, ours, theirs in zip(_ROWS, first, plan, strict=True):
                if ours != theirs:
                    self.found.problem(
                        Aspect.ROWS, f"{theirs:,} rows {what} the model and not {ours:,}"
                    )
                    return

    def results(self) -> Equivalence:
        """Compare losses and outputs."""
        if self.found.changing:
            reason = f"{', '.join(self.found.changing)} changes what the script computes"
            return self._unchecked(reason)
        first, second = self.found.lives.first, self.found.lives.second
        plan = self.found.lives.numerics or self.found.lives.plan
        if is_broken(Trace(first.losses), Trace(plan.losses)) or _breaks(first, plan):
            self.found.problem(Aspect.RESULTS, "NaN or infinity turns up in losses or outputs")
            return Equivalence("wrong", "NaN or infinity", None, self.found.tolerance)
        random = self.found.is_redrawn
        found = self._losses_or_outputs(first, plan, by_probe=random)
        if found is None:
            return self._unchecked("no loss and no output could be compared")
        value, metric = found
        known = self._losses_or_outputs(first, second, by_probe=random)
        spread = 0.0 if known is None else known[0]
        if not math.isfinite(value) or not math.isfinite(spread):
            return self._unchecked("the unchanged script computes NaN or infinity itself")
        limit = max(self.found.tolerance, SPREAD_FACTOR * spread)
        if value > limit:
            if random and not first.probes:  # other samples: nothing to compare one by one
                return self._sampled(metric)
            self.found.problem(Aspect.RESULTS, f"{metric}: {value:.2%}, above {limit:.2%}")
            return Equivalence("wrong", metric, value, limit)
        written = self._written_apart(plan, limit)
        if written is not None and written.is_wrong:
            self.found.problem(Aspect.RESULTS, written.sentence)
            return Equivalence("wrong", written.sentence, None, limit)
        later = self._outputs_far_apart(first, second, plan, limit)
        later = later or self._losses_drift(limit) or self._prints_otherwise(limit)
        later = later or (written.sentence if written is not None else None)
        if later is not None:
            return self._unchecked(later)
        self.found.covered.append(Aspect.RESULTS)
        return Equivalence("equivalent", metric, value, limit)

    def _written_apart(self, plan: Life, limit: float) -> ContentDifference | None:
        """Return what files hold otherwise, where random samples are no reason for it."""
        if self.found.is_redrawn or self.found.cut:
            return None
        return contents_apart(self.found, plan, limit, AMPLIFIED * limit)

    def _outputs_far_apart(self, first: Life, second: Life, plan: Life, limit: float) -> str | None:
        """Return that what a trained model computes differs, though its losses do not.

        Training amplifies rounding, so outputs after it may differ by more than a loss.
        """
        if not first.losses or self.found.moved:
            return None
        sides = [[call for call in life.calls if not call.grad] for life in (first, second, plan)]
        found, usual = _outputs_apart(sides[0], sides[2]), _outputs_apart(sides[0], sides[1])
        if found is None or usual is None:
            return None
        if found[0] <= max(AMPLIFIED * limit, SPREAD_FACTOR * usual[0]):
            return None
        return f"losses agree, but outputs without gradients differ by {found[0]:.0%}"

    def _losses_drift(self, limit: float) -> str | None:
        """Return that later losses differ by more than training amplifies rounding."""
        lives = self.found.lives
        if self.found.moved or lives.first.probes:
            return None
        ours = Trace(lives.first.losses)
        found = difference(ours, Trace((lives.numerics or lives.plan).losses))
        usual = difference(ours, Trace(lives.second.losses))
        if found is None or usual is None:
            return None
        if found[0] <= max(AMPLIFIED * limit, SPREAD_FACTOR * usual[0]):
            return None
        return f"{found[1]}: {found[0]:.0%}"

    def _prints_otherwise(self, limit: float) -> str | None:
        """Return that the script prints other numbers: a metric, a count of what it wrote.

        Numbers that two unchanged lives print alike are compared; times are not among them.
        """
        lives = self.found.lives
        if self.found.cut or self.found.moved or lives.numerics is not None:
            return None
        ours, again, theirs = (_numbers(each.output) for each in (lives.first, lives.second,
                                                                  lives.plan))  # fmt: skip
        if len(ours) != len(again):
            return None
        if len(ours) != len(theirs):
            return f"{len(theirs)} numbers are printed and not {len(ours)}"
        allowed = AMPLIFIED * limit if lives.first.losses else limit
        for a, b, c in zip(ours, again, theirs, strict=True):
            if a == b and abs(c - a) > allowed * max(abs(a), abs(c)):
                return f"{c:g} is printed and not {a:g}"
        return None

    def _sampled(self, metric: str) -> Equivalence:
        """Judge settings that change nothing but which random samples are read."""
        if self.found.rounds or not {Aspect.BATCHES, Aspect.SECOND_EPOCH} <= set(
            self.found.covered
        ):
            return self._unchecked("the plan reads other random samples")
        self.found.covered.append(Aspect.RESULTS)
        return Equivalence(
            "equivalent",
            f"distribution of {self.found.samples:,} random samples; the model is the same",
        )

    def _unchecked(self, reason: str) -> Equivalence:
        self.found.not_covered[Aspect.RESULTS] = reason
        return Equivalence("not_checked", "", reason=reason)

    def _losses_or_outputs(
        self, ours: Life, theirs: Life, by_probe: bool
    ) -> tuple[float, str] | None:
        if by_probe and ours.probes and theirs.probes:
            apart = [
                relative_difference(a, b) for a, b in zip(ours.probes, theirs.probes, strict=False)
            ]
            return max(apart), "largest relative difference of outputs in evaluation mode"
        found = difference(Trace(ours.losses[:LOSSES]), Trace(theirs.losses[:LOSSES]))
        if found is not None or ours.losses:
            return found
        return _outputs_apart(ours.calls, theirs.calls)


def _rows_of(life: Life) -> tuple[int, int, int, int]:
    """Return the rows into and out of the model with gradients, and those without."""
    sums = [0, 0, 0, 0]
    for call in life.calls:
        place = 0 if call.grad else 2
        sums[place] += call.rows_in
        sums[place + 1] += call.rows_out
    return sums[0], sums[1], sums[2], sums[3]


def _breaks(ours: Life, theirs: Life) -> bool:
    def finite(life: Life) -> bool:
        return all(math.isfinite(v) for call in life.calls for row in call.values for v in row)

    return finite(ours) and not finite(theirs)


def _outputs_apart(ours: Sequence[Call], theirs: Sequence[Call]) -> tuple[float, str] | None:
    """Compare the rows of outputs in order, however they are divided into calls."""
    rows = [row for call in theirs for row in call.values]
    start, apart, count = 0, [], 0
    for call in ours:
        mine = rows[start : start + len(call.values)]
        start += len(call.values)
        if not call.values or len(mine) < len(call.values):
            continue
        count += len(mine)
        apart.append(
            relative_difference([v for r in call.values for v in r], [v for r in mine for v in r])
        )
    if not apart:
        return None
    return max(apart), f"largest relative difference in {count:,} rows of outputs"


def _numbers(output: str) -> list[float]:
    """Return the numbers in the lines that a script printed, but for those with times in them."""
    lines = (line for line in output.splitlines() if not tells_time(line))
    found = (number for line in lines for number in numbers_in(line))
    return [number for number in found if math.isfinite(number)]
