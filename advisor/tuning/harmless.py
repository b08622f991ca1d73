"""What is left of settings once what a rehearsal found to do harm is taken out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from gpuadvisor.domain.knobs import Settings
from gpuadvisor.domain.study import Dropped, Rehearsal


@dataclass
class Rehearsed:
    """What is left of settings after their rehearsal."""

    settings: Settings
    rehearsal: Rehearsal | None
    """The last one, of `settings` where they are not empty."""
    dropped: tuple[Dropped, ...] = ()
    """What was taken out, and the problem that each was suspected of."""


def harmless_part(
    rehearse: Callable[[Settings], Rehearsal],
    settings: Settings,
    without: Callable[[Settings, str], Settings],
    affordable: Callable[[Settings, bool], bool] = lambda settings, is_sought: True,
) -> Rehearsed:
    """Rehearse settings and take out what does harm, until a rehearsal finds nothing any more.

    Where several knobs can have caused a problem, each is taken out alone, the likeliest
    first; where none of them alone did, all are. `without` takes a knob out of settings, with
    those that need it. A rest that could not be rehearsed for want of budget has no rehearsal:
    `affordable` says whether settings can be, and is told whether that has to show what did harm.
    """
    result, other = Rehearsed(settings, None), None
    while result.settings:
        if other is None or other.settings != result.settings:
            if not affordable(result.settings, False):
                return replace(result, rehearsal=None)
            other = rehearse(result.settings)
        found = other
        result.rehearsal = found
        if found.agrees:
            return result
        problem = found.problems[0]
        suspects = [n for n in problem.suspects if n in result.settings] or list(result.settings)
        kept = dict(result.settings)
        for name in suspects if len(suspects) > 1 else ():
            rest = without(result.settings, name)
            if not rest or not affordable(rest, True):
                continue
            other = rehearse(rest)
            if problem.aspect not in {each.aspect for each in other.problems}:
                kept = dict(rest)
                break
        else:
            for name in suspects:
                kept = dict(without(kept, name)) if name in kept else kept
        gone = [name for name in result.settings if name not in kept]
        result.dropped += tuple(Dropped(name, result.settings[name], problem) for name in gone)
        result.settings = kept
    return result
