"""Which branch of the script may run late, or arrive at other numbers, under the settings."""

from __future__ import annotations

from collections.abc import Iterator

from gpuadvisor.domain.rehearsal import Branch, Life, Touch
from gpuadvisor.tuners.rehearsal.lives import Findings, is_whole
from gpuadvisor.tuners.rehearsal.state import READ_AHEAD

COMPILING = "compile"
"""How the names of settings begin that compile a model."""


def doubt_branches(found: Findings) -> None:
    """Say which branch may run late and change what the settings rely on, if one may.

    What the harness could not see in a life is doubted as well: silence says nothing then.
    """
    lives = found.lives
    every = [each for each in (lives.first, lives.second, lives.plan, lives.numerics) if each]
    unseen = [failure for life in every for failure in life.failures]
    found.doubt = found.doubt or next(iter(unseen), "") or next(_asked_ahead(found), "")
    if found.doubt or is_whole(lives.first):
        return
    unchanged, planned = _taken(lives.first, lives.second), _taken(lives.plan, lives.numerics)
    for branch in (branch for life in every for branch in life.branches):
        where = (branch.place, branch.what)
        name = _named(branch)
        if Touch.CLOCK in branch.touches:
            ends = "may end the loop when a time is over"
            found.doubt = f"{name} {ends}: faster steps are more steps then, and other results"
        elif Touch.WORKERS in branch.touches:
            if branch.taken and "dataloader_workers" in found.settings:
                asks = f"{name} is asked for by the script"
                found.doubt = f"{asks}: what it computes of that is other under the plan"
        elif Touch.THRESHOLD in branch.touches and found.has_fewer_digits:
            moves = f"{name} moves what the model compares with"
            found.doubt = f"{moves}: where no life came, fewer digits may decide otherwise"
        elif _ends_reading(found, branch):
            # Where both lives end after the same rows, that is chance: the data was shortened.
            found.doubt = f"{name} may end the reading after other rows where batches are larger"
        elif not (where in unchanged and where in planned) and _matters(found, branch):
            whom = "under the plan" if where in unchanged else "by the unchanged script"
            by = f" {whom}" if where in unchanged | planned else ""
            found.doubt = f"{name} was never lived{by}"
        if found.doubt:
            return


def _named(branch: Branch) -> str:
    return f"{branch.place}, `{branch.what}`,"


def _asked_ahead(found: Findings) -> Iterator[str]:
    """Yield where a sampler is asked during a pass how far it is: farther where workers read.

    It is a whole number, and what training makes of rounding is no reason for another one: that
    what a life writes agrees within the limits says nothing.
    """
    if any(name in found.settings for name in READ_AHEAD):
        for branch in found.lives.first.branches:
            if Touch.AHEAD in branch.touches and branch.taken and branch.in_pass:
                said = "asks the sampler during a pass how far it is"
                yield f"{_named(branch)} {said}: workers read ahead, so that it is farther"


def _taken(*lives: Life | None) -> set[tuple[str, str]]:
    """Return place and condition of each branch that one of these lives took."""
    reached = [branch for life in lives if life for branch in life.branches]
    return {(branch.place, branch.what) for branch in reached if branch.taken}


def _matters(found: Findings, branch: Branch) -> bool:
    """Say whether settings are among those that rely on what a branch touches."""
    knobs = [found.knobs[name] for name in found.settings if name in found.knobs]
    touches, settings = branch.touches, found.settings
    # Workers that end with each pass see what was changed before the next, and are gone then.
    again = {Touch.DATA, Touch.CHILDREN, *((Touch.PASS,) if branch.in_pass else ())}
    kept = not again.isdisjoint(touches) and "persistent_workers" in settings
    is_data = not {Touch.DATA, Touch.ORDER, Touch.CHILDREN}.isdisjoint(touches)
    if found.loader_knobs and (kept or (is_data and branch.in_pass)):
        return True
    if Touch.ERRORS in touches and "dataloader_workers" in settings:
        return any(not each.workers for each in found.lives.first.epochs)
    if Touch.ASSERTIONS in touches and any(name.startswith(COMPILING) for name in settings):
        return True
    if Touch.STATE in touches and "fused_optimizer" in settings:
        return True
    return Touch.MODEL in touches and any(knob.changes_model for knob in knobs)


def _ends_reading(found: Findings, branch: Branch) -> bool:
    """Say whether a branch may end an inference script's reading, under batches of another size."""
    # A training script stops early where it does not learn any more, with whatever batches.
    return Touch.ROWS in branch.touches and found.is_resized and not found.lives.first.losses
