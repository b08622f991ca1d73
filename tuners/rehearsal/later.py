"""What differs late in a life though its first losses agree: outputs, files, printed numbers.

Training amplifies rounding, so that late differences say little by themselves. How much it does is
seen in a life of the unchanged script whose weights were changed a little at the beginning. Where
that becomes another model, only what is computed on equal weights can be compared: the plan lives
once more, with the unchanged script's weights at the begin and end of each pass, and before each
evaluation within one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from gpuadvisor.domain.measurement import Trace
from gpuadvisor.domain.rehearsal import Call, Life
from gpuadvisor.tuners.equivalence import SPREAD_FACTOR, difference
from gpuadvisor.tuners.rehearsal.files import (
    SAMPLES_TURNED,
    Difference,
    Limits,
    contents_apart,
)
from gpuadvisor.tuners.rehearsal.lives import Findings
from gpuadvisor.tuners.rehearsal.outputs import outputs_apart
from gpuadvisor.tuners.rehearsal.prints import (
    Kind,
    Line,
    alike,
    moments_otherwise,
    otherwise,
    printed,
    told,
)
from gpuadvisor.tuners.rehearsal.rollouts import rollout_apart
from gpuadvisor.tuners.rehearsal.updates import (
    error,
    less_near,
    losses_apart,
    rates_apart,
    sizes_apart,
    updates_apart,
)

AMPLIFIED = 10.0
"""Times the limit by which outputs of a model that was trained for some steps may differ: each step
adds a rounding error of its own, and random errors of a hundred steps add up to ten."""
LEAST_DERIVED = 2.0**-9
"""Relative difference that rounding to bfloat16 makes: a script may do so with its outputs."""
WORDS_SHARE = 0.02
"""Part of the printed lines whose words may be others: near a threshold, rounding makes another
class of a sample."""
CHAOTIC = 1 / SPREAD_FACTOR
"""Relative difference of what a nudged life computes from which on nothing is too far from it. (Of
a ResNet-50 after 36 steps on noise, changes of weights between 1e-7 and 4e-3 of their size move the
outputs by 75 to 700,000 %; on equal weights bfloat16 moves those of a ResNet-18 by 0.2 %.)"""
LEAST_NUDGE, LARGEST_NUDGE = 2.0**-23, 2.0**-8
"""Smallest relative change of weights that float32 can hold, and the largest that is rounding: of
bfloat16, the coarsest numbers that a plan computes in. (Of a ResNet-50 at its start, bfloat16 moves
outputs by 19 % in training mode and 0.5 % in evaluation mode; such a change by 21 and 1.2 %.)"""


@dataclass
class LaterComparison:
    """Compares what comes late in the lives, where other random numbers are no reason for it."""

    found: Findings
    plan: Life
    limit: float
    """Relative difference of results that is allowed before training amplifies it."""
    apart: float
    """How far the first losses, or the outputs, are apart."""
    _remarks: list[str] = field(default_factory=list)
    losses_apart: tuple[float, float] = (math.inf, 0.0)
    """How far losses on equal weights are apart, and may be."""

    @property
    def remark(self) -> str:
        """What could only be compared on equal weights, once nothing was found to differ there."""
        return "; ".join(self._remarks)

    def difference(self) -> Difference | None:
        """Return the first difference that training does not account for; None if there is none."""
        return self._without_rollouts() or self._rollouts()

    def _without_rollouts(self) -> Difference | None:
        found = self._difference(())
        if found is None or found.is_wrong or not self.found.lives.first.losses:
            return found
        if self.found.model_redraws:
            return self._difference((self._reseeded,)) if self._reseeded is not None else found
        nudged = self._nudged
        if nudged is None:
            return found
        training = outputs_apart(self.found.lives.first.calls, nudged.calls)
        if training is not None and training[0] > CHAOTIC:
            cause = self._moved_by(training[0])
            return self._on_equal_weights(nudged, cause, found)
        return self._before_training(nudged, found) or self._after_rounding(nudged)

    def is_chaos(self) -> bool:
        """Say whether rounding alone makes other first losses, and on equal weights all agrees.

        Nothing else excuses them: neither a life that has no room, nor settings that have nothing
        to do with rounding.
        """
        lives, may_round = self.found.lives, len(self.found.loader_knobs) < len(self.found.settings)
        if not lives.first.losses or not may_round or self.found.is_redrawn:
            return False
        nudged = self._nudged
        chaos = outputs_apart(lives.first.calls, nudged.calls) if nudged is not None else None
        if nudged is None or chaos is None or chaos[0] <= CHAOTIC:
            return False
        cause = self._moved_by(chaos[0])
        otherwise = self._on_equal_weights(nudged, cause, Difference("", True))
        return (otherwise or self._rollouts()) is None

    def _moved_by(self, chaos: float) -> str:
        """Say how far outputs are moved in the nudged life."""
        return f"a change of weights by {self._amount:.1g} of their size moves them by {chaos:.0%}"

    def _after_rounding(self, nudged: Life) -> Difference | None:
        """Return what differs by more than training makes of rounding.

        How far words may part has no measure: of a text that a model samples, one token that
        rounding turns changes all that follow. Where nothing else differs, they have to be the same
        on equal weights.
        """
        found = self._difference((nudged,))
        if found is None or found.sentence != self._words():
            return found
        found = self._on_equal_weights(nudged, "a word may turn on rounding", found)
        if found is None:
            self._remarks[0] = "words of printed lines on equal weights alone"
        return found

    def _difference(self, nudged: tuple[Life, ...]) -> Difference | None:
        """Compare all, with these lives to show what training amplifies, or other draws move."""
        written = None
        if not self.found.cut and (self.found.is_one_by_one or not self.found.other_samples):
            written = contents_apart(self.found, self.plan, self._limits, nudged)
        if written is not None and written.is_wrong:
            return written
        later = self._outputs(nudged) or self._losses(nudged) or self._prints(nudged)
        later = later or self._words()
        return written if later is None else Difference(later, False)

    def _rollouts(self) -> Difference | None:
        """Return that rounding would carry a model too far that is given its own outputs."""
        lives = self.found.lives
        if self.found.moved:
            return None
        apart = rollout_apart(lives.first, lives.second, self.plan)
        allowed = self.limit * (AMPLIFIED if lives.first.losses else 1)
        return Difference(apart[1], False) if apart is not None and apart[0] > allowed else None

    @property
    def _limits(self) -> Limits:
        first = self.found.lives.first
        if first.losses:
            return Limits(AMPLIFIED * self.limit, math.inf)
        rows = sum(call.rows_in for call in first.calls)
        return Limits(self._derived, max(SAMPLES_TURNED / max(1, rows), SPREAD_FACTOR * self.apart))

    @property
    def _derived(self) -> float:
        """Relative difference allowed in what a script that does not train makes of its outputs."""
        return min(self.limit, max(LEAST_DERIVED, SPREAD_FACTOR * self.apart))

    @cached_property
    def _reseeded(self) -> Life | None:
        reseeded = self.found.lives.reseeded
        return reseeded() if reseeded is not None else None

    @cached_property
    def _nudged(self) -> Life | None:
        """The unchanged script's life with weights changed by as much as the plan's rounding does;
        None where it cannot be had."""
        lives = self.found.lives
        if lives.nudged is None:
            return None
        return lives.nudged(self._amount)

    @property
    def _amount(self) -> float:
        """How much larger or smaller weights become in the nudged life, relative to their size."""
        first = outputs_apart(self.found.lives.first.calls[:1], self.plan.calls[:1])
        amount = first[0] if first is not None else 0.0
        return min(max(amount, LEAST_NUDGE), LARGEST_NUDGE)

    def _before_training(self, nudged: Life, found: Difference) -> Difference | None:
        """Return why rounding is no reason for what was found, whatever training makes of it: what
        the models compute in evaluation mode before it is held against the plan."""
        first = self.found.lives.first
        sides = [each.evaluations + each.probes for each in (first, self.plan, nudged)]
        if not sides[0] or not len(sides[0]) == len(sides[1]) == len(sides[2]):
            return None
        for ours, theirs, moved in zip(*sides, strict=True):
            apart, rounded = outputs_apart([ours], [theirs]), outputs_apart([ours], [moved])
            if apart is None or rounded is None:
                return found
            if apart[0] > max(self.limit, SPREAD_FACTOR * rounded[0]):
                where = "in evaluation mode, before any training"
                return Difference(f"outputs differ by {apart[0]:.1%} {where}", False)
        return None

    def _on_equal_weights(self, nudged: Life, cause: str, found: Difference) -> Difference | None:
        """Return what differs between lives whose weights are the same again and again.

        `cause` is why they have to be, as a clause. What a model computes in evaluation, calls,
        losses and updates right after weights were made equal, files other than logs, and words
        that are printed must agree without an excuse. Other losses and printed numbers have the
        nudged life's.
        """
        early = self._before_training(nudged, found)
        if early is not None:
            return early
        lives, limit = self.found.lives, AMPLIFIED * self.limit
        equal = lives.on_equal_weights() if lives.on_equal_weights is not None else None
        if equal is None or not equal.equalled:
            lacks = f"{found.sentence}; {cause}, and on equal weights nothing could be compared"
            return Difference(lacks, False)
        evaluated, begun = (
            [[call for call in each.calls if is_of(call)] for each in (lives.second, equal, nudged)]
            for is_of in (_evaluates, _begins)
        )
        apart, begins = (outputs_apart(each[0], each[1]) for each in (evaluated, begun))
        usual = outputs_apart(begun[0][:1], begun[2][:1])
        where = "on equal weights"
        if evaluated[0] and (apart is None or apart[0] > limit):
            said = "are others" if apart is None else f"differ by {apart[0]:.1%}"
            return Difference(f"outputs {said} {where}", False)
        if begins is None or usual is None or begins[0] > _unless_chaotic(limit, usual[0]):
            return Difference(f"outputs of a first step differ {where}", False)
        rounded = losses_apart(lives.second.updates[:1], nudged.updates[:1])
        lost = losses_apart(lives.second.updates, equal.updates)
        self.losses_apart = lost, _unless_chaotic(self.limit, rounded)
        if lost > self.losses_apart[1]:
            return Difference(f"losses differ by {lost:.1%} {where}", False)
        less = None if self._updates_agree(equal, nudged) else self._less_near(equal)
        if less is not None:
            return Difference(less, False)
        again = replace(lives, first=lives.second, second=lives.first, plan=equal)
        other = LaterComparison(replace(self.found, lives=again), equal, self.limit, self.apart)
        logs = {name: file for name, file in (nudged.written or {}).items() if file.is_text}
        written = None
        if not self.found.cut:
            logged = replace(nudged, written=logs)
            written = contents_apart(other.found, equal, other._limits, (logged,))
        late = other._losses((nudged,)) or other._prints((nudged,)) or other._words()
        if written is not None or late:
            return Difference(f"{where}, {late or (written and written.sentence)}", False)
        most = max(each[0] for each in (apart, begins) if each is not None)
        said = f"outputs after training {where} alone, {most:.2g} apart, as {cause}"
        self._remarks.insert(0, said)
        return None

    def _less_near(self, equal: Life) -> str | None:
        """Say why steps that differ are not as good as the unchanged script's; None where they are
        no farther from those that it makes with more digits."""
        lives = self.found.lives
        apart = "a first step changes the weights in another way on equal weights"
        if lives.precise is None:
            return apart
        precise = lives.precise()
        if precise is None:
            return f"{apart}, and there was no life of the unchanged script in float32 beside them"
        ours, theirs, exact = (each.updates for each in (lives.second, equal, precise))
        lost = losses_apart(exact, ours)
        if lost > self.limit:
            return f"in float32 losses differ by {lost:.1%} on equal weights"
        said = less_near(ours, theirs, exact, AMPLIFIED * self.limit)
        if said is not None:
            return f"on equal weights {said}"
        off = [f"{error(side, exact):.1%}" for side in (theirs, ours)]
        self._remarks.append(
            f"gradients are {off[0]} off those of its kernels in float32, the unchanged script's"
            f" {off[1]}"
        )
        return None

    def _updates_agree(self, equal: Life, nudged: Life) -> bool:
        """Say whether steps on equal weights are the same, and one shows it at least.

        In the first pass it may be that rounding alone turns all gradients: that says nothing. How
        large they and the steps are it changes less, and least how large the first step is for its
        gradients: by more the learning rate or the scale of the loss is another.
        """
        ours, theirs, moved = self.found.lives.second.updates, equal.updates, nudged.updates
        if len(ours) != len(theirs) or not moved:
            return False
        limit = AMPLIFIED * self.limit
        apart = [(a.passes, updates_apart(a, b, limit)) for a, b in zip(ours, theirs, strict=True)]
        usual = updates_apart(ours[0], moved[0], limit)
        most = _unless_chaotic(limit, usual)
        early = max(most, SPREAD_FACTOR * usual)
        for far, pairs in ((sizes_apart, zip(ours, theirs, strict=True)),
                           (rates_apart, [(ours[0], theirs[0])])):  # fmt: skip
            allowed = max(limit, SPREAD_FACTOR * far(ours[0], moved[0]))
            if any(far(*pair) > allowed for pair in pairs):
                return False
        agree = all(value <= (most if passes else early) for passes, value in apart)
        return agree and min(value for _, value in apart) <= most

    def _outputs(self, nudged: Sequence[Life]) -> str | None:
        """Return that what a model computes in training differs, though its losses do not.

        Where its draws differ, only calls without gradients are compared: those of evaluation.
        """
        first, second = self.found.lives.first, self.found.lives.second
        if not first.losses or self.found.moved:
            return None
        ours, *others = (
            [call for call in life.calls if not (call.grad and self.found.model_redraws)]
            for life in (first, self.plan, second, *nudged)
        )
        found, *usual = (outputs_apart(ours, each) for each in others)
        if found is None or usual[0] is None or found[0] <= self._allowed(usual):
            return None
        return f"losses agree, but outputs differ by {found[0]:.0%}"

    def _losses(self, nudged: Sequence[Life]) -> str | None:
        """Return that later losses differ by more than training amplifies rounding."""
        lives = self.found.lives
        if self.found.moved:
            return None
        ours = Trace(lives.first.losses)
        found = difference(ours, Trace(self.plan.losses))
        usual = [difference(ours, Trace(each.losses)) for each in (lives.second, *nudged)]
        if found is None or usual[0] is None:
            return None
        allowed = self._allowed(usual)
        if self.found.model_redraws:  # draws are a reason, but not where they decide everything
            allowed = max(CHAOTIC, allowed if allowed <= SPREAD_FACTOR * CHAOTIC else 0.0)
        return None if found[0] <= allowed else f"{found[1]}: {found[0]:.0%}"

    def _allowed(self, usual: Sequence[tuple[float, str] | None]) -> float:
        most = max(each[0] for each in usual if each is not None)
        return max(AMPLIFIED * self.limit, SPREAD_FACTOR * most)

    def _prints(self, nudged: Sequence[Life]) -> str | None:
        """Say that the script prints other numbers: a metric, a count of what it wrote.

        Numbers that two unchanged lives print alike are compared; measured times are not alike.
        """
        if not self._are_printed_alike():
            return None
        lives = self.found.lives
        again, theirs = (printed(each.output) for each in (lives.second, lives.plan))
        others = [printed(each.output) for each in nudged]
        for kind, numbers in self._lines().items():
            planned = theirs.get(kind, [])
            if len(planned) != len(numbers):
                continue
            moved = [each[kind] for each in others if len(each.get(kind, ())) == len(numbers)]
            columns = told(numbers, again[kind], kind[1], self.found.is_resized)
            found = otherwise(numbers, again[kind], planned, moved, self._limits, columns)
            if found is not None:
                return found
        return moments_otherwise((lives.first, lives.second, lives.plan, *nudged))

    def _words(self) -> str | None:
        """Say that lines which two unchanged lives print alike are missing, or have other words."""
        if not self._are_printed_alike():
            return None
        trains = bool(self.found.lives.first.losses)
        theirs = printed(self.found.lives.plan.output)
        lost, example, lines = 0, "", 0
        for kind, numbers in self._lines().items():
            words, is_time = kind
            planned = theirs.get(kind, [])
            if is_time and len(planned) != len(numbers):
                continue
            lines += len(numbers)
            # Training may tell at another step that something became better.
            if len(planned) != len(numbers) and not (trains and planned):
                lost, example = lost + abs(len(planned) - len(numbers)), example or words
        if lost <= (0 if trains else WORDS_SHARE * lines):
            return None
        return f"{lost:,} of {lines:,} lines are not printed as they are, such as {example[:80]!r}"

    def _are_printed_alike(self) -> bool:
        """Say whether what is printed would be the same if the plan changed no results."""
        lives = self.found.lives
        if self.found.cut or lives.numerics is not None:
            return False
        return not self.found.moved or self.found.is_one_by_one

    def _lines(self) -> dict[Kind, list[Line]]:
        lives = self.found.lives
        return alike(*(printed(each.output) for each in (lives.first, lives.second)))


def _evaluates(call: Call) -> bool:
    return not call.grad


def _begins(call: Call) -> bool:
    """Say whether a call in training came before the first step on weights that were made equal."""
    return call.grad and not call.steps


def _unless_chaotic(limit: float, usual: float) -> float:
    """Return what may differ where rounding makes a usual difference; the limit if that is all."""
    return max(limit, SPREAD_FACTOR * usual) if usual <= CHAOTIC else limit
