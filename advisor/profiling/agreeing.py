"""What two pairs of profiles of the same versions both show of a slow-down.

Something else that uses the machine while one of the profiles is made looks like a slower function
there, and hardly so in both pairs.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace

from gpuadvisor.domain.explanation import Cause, CauseKind, Explanation


def agreed(one: Explanation, two: Explanation) -> Explanation:
    """Return what both explanations say, each cause with the smaller of its two differences.

    The slow-down that they are parts of is that of the pair in which it is smaller.
    """
    frame = min(one, two, key=lambda each: each.of_ms)
    causes = tuple(_both(one.causes, two.causes))
    left_out = len({*map(_key, one.causes), *map(_key, two.causes)}) - len(causes)
    notes = [note for each in (one, two) for note in each.note.split("; ") if note]
    if left_out:
        what = "one thing" if left_out == 1 else f"{left_out} things"
        notes.append(f"left out is {what} that only one of two profiles of each version shows")
    # Where functions are named, kernels are a part of them.
    whole = [each for each in causes if each.kind in (CauseKind.FUNCTION, CauseKind.CALL)] or causes
    known = {(each.rule, each.scope) for each in two.findings}
    return replace(
        frame,
        causes=causes,
        explained_ms=sum(each.more_ms for each in whole),
        findings=tuple(each for each in one.findings if (each.rule, each.scope) in known),
        steps=one.steps + two.steps,
        note="; ".join(dict.fromkeys(notes)),
    )


def _both(one: Sequence[Cause], two: Sequence[Cause]) -> Iterator[Cause]:
    """Yield what is in both and has changed in the same direction, in the order of the first."""
    others = {_key(each): each for each in two}
    for each in one:
        other = others.get(_key(each))
        if other is None or (each.more_ms > 0) != (other.more_ms > 0):
            continue
        least = min(each, other, key=lambda cause: abs(cause.more_ms))
        yield replace(least, inside=tuple(_both(each.inside, other.inside)))


def _key(cause: Cause) -> Hashable:
    return cause.kind, cause.name, cause.source
