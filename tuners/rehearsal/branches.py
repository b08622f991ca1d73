"""What a life shows of branches that the whole run may take, and that settings cannot bear."""

from __future__ import annotations

from gpuadvisor.domain.rehearsal import Branch, Touch
from gpuadvisor.tuners.rehearsal.lives import Findings, is_whole


def doubt_branches(found: Findings) -> None:
    """Say which branch may run late and change what the settings rely on, if one may.

    What the harness could not see in a life is doubted as well: silence says nothing then.
    """
    lives = found.lives
    every = [each for each in (lives.first, lives.second, lives.plan, lives.numerics) if each]
    unseen = [failure for life in every for failure in life.failures]
    found.doubt = found.doubt or next(iter(unseen), "")
    if found.doubt or is_whole(lives.first):
        return
    reached = [branch for life in every for branch in life.branches]
    taken = {(branch.place, branch.what) for branch in reached if branch.taken}
    for branch in reached:
        if (branch.place, branch.what) not in taken and _matters(found, branch):
            found.doubt = f"{branch.place}, `{branch.what}`, was never lived"
            return


def _matters(found: Findings, branch: Branch) -> bool:
    """Say whether settings are among those that rely on what a branch touches."""
    knobs = [found.knobs[name] for name in found.settings if name in found.knobs]
    # Workers that end with each pass see what was changed before the next.
    kept = Touch.DATA in branch.touches and "persistent_workers" in found.settings
    is_data = Touch.DATA in branch.touches or Touch.ORDER in branch.touches
    if found.loader_knobs and (kept or (is_data and branch.in_pass)):
        return True
    if Touch.MODEL in branch.touches and any(knob.changes_model for knob in knobs):
        return True
    # A training script stops early where it does not learn any more, with whatever batches.
    return Touch.ROWS in branch.touches and found.is_resized and not found.lives.first.losses
