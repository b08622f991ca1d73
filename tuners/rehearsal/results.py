"""Whether the same comes out: rows, losses, outputs."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gpuadvisor.domain.measurement import Trace
from gpuadvisor.domain.rehearsal import Life
from gpuadvisor.domain.study import Aspect, Equivalence
from gpuadvisor.tuners.equivalence import SPREAD_FACTOR, difference, is_broken
from gpuadvisor.tuners.rehearsal.later import LaterComparison
from gpuadvisor.tuners.rehearsal.lives import Findings
from gpuadvisor.tuners.rehearsal.outputs import are_side_by_side, outputs_apart, probes_apart
from gpuadvisor.tuners.rehearsal.unmoved import Unmoved

LOSSES = 10
"""First losses that are held against the limit, as in trials: later ones have been amplified."""
_NO_SAME_SAMPLES = (
    "the plan reads other random samples, and nothing showed what it computes of equal ones"
)
_ROWS = ("enter", "leave", "enter", "leave")


@dataclass
class ResultComparison:
    """Compares rows in and out of the model, losses and outputs."""

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
        """Compare losses and outputs, and numbers that neither of them leads to."""
        result = self._results()
        if result.status != "equivalent" or self.found.problems:
            return result
        other = Unmoved(self.found).difference()
        if other is None:
            return result
        self.found.covered.remove(Aspect.RESULTS)
        return self._unchecked(other)

    def _results(self) -> Equivalence:
        """Compare losses and outputs, and what training makes of them."""
        if self.found.changing:
            names = ", ".join(self.found.changing)
            reason = f"{names} changes what the script computes"
            if self.found.is_resized and _is_asked_after_steps(self.found.lives.first):
                self.found.doubt = self.found.doubt or (
                    "the script asks its model about each batch after a step on it, and with"
                    f" {names} that is a model of other steps"
                )
            return self._unchecked(reason)
        first, second = self.found.lives.first, self.found.lives.second
        plan = self.found.lives.numerics or self.found.lives.plan
        if is_broken(Trace(first.losses), Trace(plan.losses)) or _breaks(first, plan):
            self.found.problem(Aspect.RESULTS, "NaN or infinity turns up in losses or outputs")
            return Equivalence("wrong", "NaN or infinity", None, self.found.tolerance)
        rounded_away = _rounded_away(first, plan)
        if rounded_away:
            self.found.problem(Aspect.RESULTS, rounded_away, self.found.rounding)
            return Equivalence("wrong", rounded_away, None, self.found.tolerance)
        unlike = _draws_elsewhere(first, second, plan) or _is_steeper(first, plan)
        if unlike:
            return self._unchecked(unlike)
        random = self.found.is_redrawn
        found = self._losses_or_outputs(first, plan, by_probe=random)
        if found is None:
            return self._incomparable(first, plan)
        value, metric = found
        known = self._losses_or_outputs(first, second, by_probe=random)
        spread = 0.0 if known is None else known[0]
        if not math.isfinite(value) or not math.isfinite(spread):
            return self._unchecked(
                "the unchanged script computes NaN, infinity or nothing but 0 itself"
            )
        limit = max(self.found.tolerance, SPREAD_FACTOR * spread)
        comparison = LaterComparison(self.found, plan, limit, value)
        if value > limit:
            # Of other samples there is nothing to compare one by one.
            if random and (not first.probes or self._probes_others(first, plan)):
                return self._sampled(metric)
            if not self._rows_are_known(first, plan):
                return self._unchecked(
                    "it cannot be told which rows of outputs belong together: the model is called"
                    " another number of times for each batch"
                )
            if not comparison.is_chaos():
                self.found.problem(Aspect.RESULTS, f"{metric}: {value:.2%}, above {limit:.2%}")
                return Equivalence("wrong", metric, value, limit)
            self.found.covered.append(Aspect.RESULTS)
            value, limit = comparison.losses_apart
            metric = "largest relative difference of losses on equal weights"
            return Equivalence("equivalent", metric, value, limit, comparison.remark)
        if self.found.model_redraws and not first.losses:
            return self._unchecked("the model draws other random numbers for its outputs")
        later = comparison.difference()
        if later is not None and later.is_wrong:
            self.found.problem(Aspect.RESULTS, later.sentence)
            return Equivalence("wrong", later.sentence, None, limit)
        if later is not None:
            return self._unchecked(later.sentence)
        if self.found.lacks_same_samples:
            return self._unchecked(_NO_SAME_SAMPLES)
        self.found.covered.append(Aspect.RESULTS)
        return Equivalence("equivalent", metric, value, limit, comparison.remark)

    def _sampled(self, metric: str) -> Equivalence:
        """Judge settings that change nothing but which random samples are read."""
        if self.found.lacks_same_samples:
            return self._unchecked(_NO_SAME_SAMPLES)
        if self.found.rounding or not {Aspect.BATCHES, Aspect.SECOND_EPOCH} <= set(
            self.found.covered
        ):
            return self._unchecked("the plan reads other random samples")
        self.found.covered.append(Aspect.RESULTS)
        return Equivalence(
            "equivalent",
            f"distribution of {self.found.samples:,} random samples; the model is the same",
        )

    def _probes_others(self, ours: Life, theirs: Life) -> bool:
        """Say whether outputs in evaluation mode are of other samples, and nothing but the reading
        of samples was changed."""
        only_reads = len(self.found.loader_knobs) == len(self.found.settings)
        pairs = zip(ours.probes, theirs.probes, strict=False)
        return only_reads and self.found.other_samples and any(a.input != b.input for a, b in pairs)

    def _unchecked(self, reason: str) -> Equivalence:
        self.found.not_covered[Aspect.RESULTS] = reason
        return Equivalence("not_checked", "", reason=reason)

    def _incomparable(self, first: Life, plan: Life) -> Equivalence:
        probed = self.found.is_redrawn and first.probes and plan.probes
        sides = (first.probes, plan.probes) if probed else (first.calls, plan.calls)
        put_out = all(any(call.values for call in calls) for calls in sides)
        if not put_out or (first.losses and not probed):
            return self._unchecked("no loss and no output could be compared")
        sentence = "the model's outputs have another shape"
        if self.found.is_resized or self.found.is_redrawn:
            return self._unchecked(f"{sentence}, and what they share is not known")
        self.found.problem(Aspect.RESULTS, sentence)
        return Equivalence("wrong", sentence, None, self.found.tolerance)

    def _rows_are_known(self, first: Life, plan: Life) -> bool:
        """Say whether outputs that differ are those of the same rows."""
        by_probe = self.found.is_redrawn and first.probes
        by_output = self.found.is_resized and not first.losses and not by_probe
        return not by_output or are_side_by_side(first.calls, plan.calls)

    def _losses_or_outputs(
        self, ours: Life, theirs: Life, by_probe: bool
    ) -> tuple[float, str] | None:
        if by_probe and ours.probes and theirs.probes:
            apart = probes_apart(ours, theirs)
            metric = "largest relative difference of outputs in evaluation mode"
            return None if apart is None else (apart, metric)
        found = difference(Trace(ours.losses[:LOSSES]), Trace(theirs.losses[:LOSSES]))
        if found is not None or ours.losses:
            return found
        return outputs_apart(ours.calls, theirs.calls)


def _rows_of(life: Life) -> tuple[int, int, int, int]:
    """Return the rows into and out of the model with gradients, and those without."""
    sums = [0, 0, 0, 0]
    for call in life.calls:
        place = 0 if call.grad else 2
        sums[place] += call.rows_in
        sums[place + 1] += call.rows_out
    return sums[0], sums[1], sums[2], sums[3]


def _is_asked_after_steps(life: Life) -> bool:
    """Say whether most batches are put into a model once more after it was trained on them, as for
    labels of a model that adapts to what it sees: results, and no progress of training."""
    trained, asked = set(), set()
    for call in life.calls:
        known = (call.root, call.batch, call.input)
        if call.grad:
            trained.add(known)
        elif known in trained:
            asked.add(known)
    return len(asked) > len(trained) / 2


def _rounded_away(ours: Life, theirs: Life) -> str:
    """Say what a model follows in small changes that the other life keeps in 16 bits; empty if
    nothing: in a long run it stands still there, though a short one shows no difference."""
    bits = {(each.root, each.path): each.bits for each in theirs.kept}
    for each in ours.kept:
        fewer = bits.get((each.root, each.path), each.bits)
        if each.follows and fewer <= 16 < each.bits:
            return (
                f"{each.path} changes by little in each call of the model, and is kept in {fewer}"
                f" bits and not {each.bits}: small changes of it are rounded away"
            )
    return ""


def _draws_elsewhere(ours: Life, again: Life, theirs: Life) -> str:
    """Say from which generator a model does not draw any more under the plan: what the script seeds
    there, as for the same masks in each evaluation, has no effect then; empty if from all."""
    lost = (set(ours.draws) & set(again.draws)) - set(theirs.draws)
    for path in sorted({each.path for each in lost}):
        return f"the model draws from {path}, and under the plan from another generator"
    return ""


def _is_steeper(ours: Life, theirs: Life) -> str:
    """Say which function of numbers with 16 bits may be far off in a long run; empty if none."""
    for name in theirs.steep:
        if name not in ours.steep:
            return (
                f"the loss takes {name} of numbers that have 16 bits under the plan, and is steep"
                " where those are far apart: late in training it may be infinite"
            )
    return ""


def _breaks(ours: Life, theirs: Life) -> bool:
    def finite(life: Life) -> bool:
        return all(math.isfinite(v) for call in life.calls for row in call.values for v in row)

    return finite(ours) and not finite(theirs)
