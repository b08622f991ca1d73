"""The first commit that made a script worse, found with the gate of two versions."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from gpuadvisor.collectors.worktrees import Repository, Version
from gpuadvisor.domain.gate import Bisected, Commit, GateResult, GateVerdict, Step
from gpuadvisor.errors import InconclusiveError, UsageError
from gpuadvisor.tuning.gate.comparison import gate
from gpuadvisor.tuning.gate.options import GateOptions
from gpuadvisor.tuning.gate.runs import GateProgress

TOLERATED, RULED_OUT = 1 / 3, 2 / 3
"""Parts of a regression that are none, and that a good commit is shown to be below: as far from
nothing as from all of it, so that a commit that has none and one that has all of it are told apart
equally well."""


def bisect(
    good: str,
    bad: str,
    options: GateOptions,
    progress: GateProgress,
    cancelled: Callable[[], bool] = lambda: False,
) -> Bisected:
    """Find the first commit after `good`, up to `bad`, that made a script worse.

    Raises UsageError where there are no such commits, InconclusiveError where `bad` is not shown to
    be worse, and otherwise as `gate`. No work tree and no process is left in any case.
    """
    repository = Repository.around(Path(options.command.folder or "."))
    first, last = repository.version(good), repository.version(bad)
    commits = repository.between(first, last)
    progress.on_message(
        f"{len(commits)} commits: one gate shows whether {bad} is worse, and "
        f"{steps(len(commits))} more find where, or a few more if some cannot tell"
    )
    options = replace(options, base=good, head=last.commit)
    proof = gate(options, progress, cancelled)
    if proof.verdict is not GateVerdict.FAIL:
        shown = "is not worse" if proof.verdict is GateVerdict.PASS else "is not shown to be worse"
        why = f": {proof.reason}" if proof.reason else ""
        raise InconclusiveError(
            f"{bad} {shown} than {good}, so there is nothing to look for between them{why}"
        )
    made = [Step(_commit(commits[-1]), proof.verdict, proof)]
    options = _told_apart(options, proof)

    def judge(place: int) -> GateVerdict:
        commit = commits[place]
        progress.on_message(f"gate {len(made) + 1}, {commit.name}:")
        step = _step(replace(options, head=commit.commit), commit, proof, progress, cancelled)
        made.append(step)
        word = {GateVerdict.FAIL: "bad", GateVerdict.PASS: "good"}.get(step.verdict, "cannot tell")
        progress.on_message(f"{word}{f': {step.reason}' if step.reason else ''}")
        return step.verdict

    places = first_bad(len(commits), judge)
    found = tuple(_commit(commits[place]) for place in places)
    return Bisected(_commit(first), _commit(last), found, tuple(made))


def _told_apart(options: GateOptions, proof: GateResult) -> GateOptions:
    """Return options by which a commit that has the regression is told from one that has not."""
    failed = [each for each in proof.differences if each.verdict is GateVerdict.FAIL]
    ratios = [each.ratio for each in failed if not each.exact and math.isfinite(each.ratio)]
    if not ratios or len(ratios) < len(failed):
        return options
    size = min(ratios) - 1
    return replace(options, tolerance=size * TOLERATED, limit=size * RULED_OUT)


def _step(
    options: GateOptions,
    commit: Version,
    proof: GateResult,
    progress: GateProgress,
    cancelled: Callable[[], bool],
) -> Step:
    try:
        found = gate(options, progress, cancelled)
    except UsageError as error:  # the script is not there yet, or not any more
        return Step(_commit(commit), GateVerdict.INCONCLUSIVE, None, str(error))
    verdict = found.verdict
    if proof.broken == "head":  # looked for is the commit that broke it
        verdict = GateVerdict.FAIL if found.broken == "head" else GateVerdict.PASS
    elif found.broken is not None:
        verdict = GateVerdict.INCONCLUSIVE
    return Step(_commit(commit), verdict, found, found.reason)


def _commit(version: Version) -> Commit:
    return Commit(version.commit, version.name)


def first_bad(count: int, judge: Callable[[int], GateVerdict]) -> range:
    """Return the places among which the first bad change is: one, or those between that none tells.

    The last of `count` changes is bad, as was shown before. `judge` compares the state after a
    change with the good one before all of them; where that is inconclusive, a neighbour is tried.
    """
    good, bad, untold = -1, count - 1, set[int]()
    while True:
        middle = (good + bad) / 2
        left = [place for place in range(good + 1, bad) if place not in untold]
        if not left:
            return range(good + 1, bad + 1)
        place = min(left, key=lambda each: abs(each - middle))
        verdict = judge(place)
        if verdict is GateVerdict.FAIL:
            bad = place
        elif verdict is GateVerdict.PASS:
            good = place
        else:
            untold.add(place)


def steps(count: int) -> int:
    """Return how many comparisons that takes at most if each tells."""
    return math.ceil(math.log2(count)) if count > 1 else 0
