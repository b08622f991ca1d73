"""Steps of an optimizer that two lives make on equal weights: how far they are apart, and which of
them is nearer to the step that more digits make."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from gpuadvisor.domain.rehearsal import Update
from gpuadvisor.tuners.equivalence import SPREAD_FACTOR, relative_difference

NEAREST = 0.5
"""Relative error from which on gradients are nearer to none than to what they should be."""


def updates_apart(ours: Update, theirs: Update, alike: float) -> float:
    """Return how far two steps are apart: their gradients, and what was made of those of them that
    agree to this relative difference, each by itself.

    A step of Adam is first as large for a small gradient as for a large one. Rounding turns the
    sign of the smallest, and with it the step of such a weight: of a transformer in bfloat16 with
    gradients 0.25 % apart 6 in 424 (makemore), which made the steps 17 % apart; the others were
    0.001 % apart. Where the gradients of any parameter differ by more, as if it is not trained any
    more, all are compared.
    """
    sides = ours.gradients, theirs.gradients, ours.change, theirs.change
    gradients, change = relative_difference(*sides[:2]), relative_difference(*sides[2:])
    if ours.counts != theirs.counts or set(map(len, sides)) != {sum(ours.counts)}:
        return max(gradients, change)
    end = 0
    for count in ours.counts:
        begin, end = end, end + count
        if relative_difference(*(side[begin:end] for side in sides[:2])) > alike:
            return max(gradients, change)
    agreeing = [step for step in zip(*sides, strict=True)
                if abs(step[0] - step[1]) <= alike * abs(step[0])]  # fmt: skip
    return max(gradients, relative_difference(*([step[at] for step in agreeing] for at in (2, 3))))


def sizes_apart(ours: Update, theirs: Update) -> float:
    """Return the larger of the relative differences of two steps' gradients and changes in size."""
    pairs = (ours.gradients, theirs.gradients), (ours.change, theirs.change)
    return max(relative_difference([math.hypot(*a)], [math.hypot(*b)]) for a, b in pairs)


def rates_apart(ours: Update, theirs: Update) -> float:
    """Return the relative difference of how large two steps are for the size of their gradients."""
    steps = ours.change, theirs.change
    slopes = math.hypot(*theirs.gradients), math.hypot(*ours.gradients)
    rates = [math.hypot(*step) * slope for step, slope in zip(steps, slopes, strict=True)]
    return relative_difference(rates[:1], rates[1:])


def losses_apart(ours: Sequence[Update], theirs: Sequence[Update]) -> float:
    """Return the largest relative difference of the losses before the first steps of two lives.

    Infinite where one has no such step, or other losses.
    """
    pairs = zip(ours, theirs, strict=False)
    return max((relative_difference(a.losses, b.losses) for a, b in pairs), default=math.inf)


def less_near(
    ours: Sequence[Update], theirs: Sequence[Update], exact: Sequence[Update], limit: float
) -> str | None:
    """Say why steps are not as near to those made with more digits as the unchanged script's are.

    None where they are, in each step: the root mean square of the parameters' errors, the change of
    the weights and its size may be as far off as the script's own, or as the limit, which is that
    of relative differences. One parameter may be off by some more than its own, as it is known by a
    few numbers, but not as if it is trained no more.
    """
    if not ours or not len(ours) == len(theirs) == len(exact):
        return "as many steps could not be held against those in float32"
    for one, other, true in zip(ours, theirs, exact, strict=True):
        if not one.counts == other.counts == true.counts or not one.counts:
            return "its gradients could not be held against those in float32"
        own, new = (list(_errors(each, true)) for each in (one, other))
        # Such a reference would be of another function, or says nothing of this step.
        if relative_difference(true.gradients, one.gradients) > NEAREST:
            return "what float32 makes of the gradients is far from the script's own"
        for name, far in _FAR.items():
            off, known = far(true, other), far(true, one)
            if not (math.isfinite(off) and off <= max(limit, known)):
                return f"{name} {_off(off, known)}"
        for off, known in zip(new, own, strict=True):
            if not off <= max(limit, known, min(NEAREST, SPREAD_FACTOR * known)):
                return f"a parameter's gradients are {_off(off, known)}"
        if any(map(_is_lost, _parts(other), _parts(true))):
            return "a parameter has no gradients, and has some in float32"
    return None


def _off(off: float, known: float) -> str:
    return f"{off:.1%} off float32's, the unchanged script's {known:.1%}"


def _is_lost(gradients: Sequence[float], true: Sequence[float]) -> bool:
    """Say whether nothing is left of a parameter's gradients: the script's own may be so far off
    that none would be nearer."""
    return any(true) and not any(gradients)


def error(steps: Sequence[Update], exact: Sequence[Update]) -> float:
    """Return the largest root mean square of parameters' relative errors in a step."""
    return max(_root_mean_square(*pair) for pair in zip(exact, steps, strict=True))


def _parts(step: Update) -> Iterator[Sequence[float]]:
    """Yield the gradients of each parameter."""
    end = 0
    for count in step.counts:
        begin, end = end, end + count
        yield step.gradients[begin:end]


def _errors(step: Update, exact: Update) -> Iterator[float]:
    """Yield the relative error of each parameter's gradients."""
    return map(relative_difference, _parts(exact), _parts(step))


def _root_mean_square(exact: Update, step: Update) -> float:
    errors = list(_errors(step, exact))
    return math.sqrt(math.fsum(each * each for each in errors) / max(1, len(errors)))


def _change(exact: Update, step: Update) -> float:
    return relative_difference(exact.change, step.change)


_FAR = {
    "gradients are": _root_mean_square,
    "steps are": _change,
    "gradients or steps are in size": sizes_apart,
    "steps are for the size of their gradients": rates_apart,
}
"""What may be no farther off than it is in the unchanged script's steps."""
