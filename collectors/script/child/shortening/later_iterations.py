"""Which iterations of a loop that ends early are lived beside the first: its last, turning points.

`if epoch == epochs - 10: dataset.close_mosaic()` says what happens when. Conditions on the loop's
variable that have no effects of their own are computed for all of its epochs, where the loop is:
each is to be true once in a later pass over the data, and once false, if it ever is. The same holds
for steps whose batches the script makes itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from types import FrameType

MOST_ITERATIONS = 100_000
"""Iterations that are passed over at most, drawn one by one as a progress bar must see them. A loop
over more, some of them `range(10**9)`, is left by other means than its end."""
_VALUE = "__gpuadvisor_value__"


def choose(
    planned: int,
    begun: int,
    most: int,
    conditions: Iterator[Sequence[bool]],
) -> list[int]:
    """Return the places of the iterations that are lived after the first `begun`, at most `most`.

    `conditions` says what each condition is in each of the `planned` iterations.
    """
    last = planned - 1
    if last < begun or most < 1 or planned > MOST_ITERATIONS:
        return []
    wanted = []
    for outcomes in conditions:
        for outcome in (True, False):
            # What is done before the first pass is not seen by workers that live on from there.
            places = {place for place in range(1, planned) if outcomes[place] is outcome}
            if places and last not in places and min(places) >= begun:
                wanted.append(places)
    chosen = {last}
    while wanted and len(chosen) < most:
        candidates = sorted(set().union(*wanted))
        best = max(candidates, key=lambda place: sum(place in each for each in wanted))
        chosen.add(best)
        wanted = [each for each in wanted if best not in each]
    return sorted(chosen)


def evaluated(
    target: str, conditions: Sequence[str], values: Sequence[int], frame: FrameType
) -> Iterator[list[bool]]:
    """Yield what each condition on the target is for each of its values, where that is known.

    The frame is the loop's: names of the function that a condition stands in mean the same there,
    or nothing, and then the condition is left out.
    """
    pattern = re.compile(rf"(?<![\w.]){re.escape(target)}(?!\w)")
    names = dict(frame.f_locals)
    for condition in conditions:
        text, count = pattern.subn(_VALUE, condition)
        if not count:
            continue
        outcomes = []
        try:
            code = compile(text, "<condition>", "eval")
            for value in values:
                names[_VALUE] = value
                outcomes.append(bool(eval(code, frame.f_globals, names)))
        except Exception:  # another function's names, or an array
            continue
        yield outcomes
