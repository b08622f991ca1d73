"""Lives are compared aspect by aspect; what lacks for a claim is said.

The unchanged script's two lives are seeded alike. What they agree in, the plan's life must have
too; what they differ in, or draw at random, is compared by its distribution, or is not compared,
and then that is said.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from statistics import mean

from gpuadvisor.domain.knobs import ARGUMENT_PREFIX, Settings
from gpuadvisor.domain.rehearsal import Batch, Life, LoopKind
from gpuadvisor.domain.study import Aspect, Equivalence, Rehearsal, Trial, TrialState
from gpuadvisor.tuners.base import Knob
from gpuadvisor.tuners.equivalence import PARTING
from gpuadvisor.tuners.rehearsal.branches import doubt_branches
from gpuadvisor.tuners.rehearsal.data import ENOUGH_SAMPLES, DataComparison
from gpuadvisor.tuners.rehearsal.files import compare_files
from gpuadvisor.tuners.rehearsal.lives import (
    Findings,
    Lives,
    ending,
    is_complete,
    parts_of,
    training_passes,
)
from gpuadvisor.tuners.rehearsal.results import ResultComparison
from gpuadvisor.tuners.rehearsal.state import StateComparison
from gpuadvisor.tuners.rehearsal.times import TimeComparison

NAMES = {
    Aspect.BATCHES: "the batches",
    Aspect.SECOND_EPOCH: "a second epoch",
    Aspect.DATASET_STATE: "the data set's state",
    Aspect.ROWS: "the rows in and out of the model",
    Aspect.RESULTS: "the results",
    Aspect.FILES: "the written files",
    Aspect.END: "the script's end",
}
"""What each aspect is called in a sentence."""
_PLURAL = (Aspect.BATCHES, Aspect.ROWS, Aspect.RESULTS, Aspect.FILES)


def compare(
    lives: Lives, settings: Settings, knobs: Mapping[str, Knob], tolerance: float
) -> Rehearsal:
    """Return what the lives show of these settings, with results compared within a tolerance."""
    found = Findings(without_losses(lives), settings, knobs, tolerance)
    if found.is_resized:
        found.lives = without_padding(found.lives)
    equivalence = forecast = None
    if _ends(found):
        data, results = DataComparison(found), ResultComparison(found)
        data.compare()
        StateComparison(found, data).compare()
        results.rows()
        equivalence = results.results()
        compare_files(found)
        forecast = TimeComparison(found).forecast()
        doubt_branches(found)
    if found.problems and equivalence is not None and equivalence.status == "equivalent":
        equivalence = Equivalence("not_checked", "", reason=found.problems[0].sentence)
    every = (*lives.unchanged, lives.plan, lives.numerics)
    passes = training_passes(lives.first)
    lived = [loop.lived for loop in lives.first.loops if loop.kind is LoopKind.EPOCHS]
    return Rehearsal(
        settings=dict(settings),
        covered=tuple(aspect for aspect in Aspect if aspect in found.covered),
        not_covered={a: why for a, why in found.not_covered.items() if a not in found.covered},
        problems=tuple(found.problems),
        epochs=max((each.number + 1 for each in passes), default=0),
        lived_epochs=tuple(place + 1 for place in max(lived, key=len, default=())),
        samples=found.samples,
        equivalence=equivalence,
        changes_results=tuple(found.changing),
        forecast=forecast,
        doubt=found.doubt,
        doubt_is_timed=found.doubt_is_timed,
        wall_s=sum(life.wall_s for life in every if life is not None),
        wants_time=any(life.state is TrialState.HUNG for life in every if life is not None),
    )


def as_trials_showed(rehearsal: Rehearsal, trials: Iterable[Trial]) -> Rehearsal:
    """Return a rehearsal without its results where losses of trials under its settings part, as
    chaos may make them, and it did not compare any on equal weights."""
    found = rehearsal.equivalence
    is_whole = found is not None and found.status == "equivalent" and not found.reason
    parted = (t.equivalence is not None and t.equivalence.reason == PARTING for t in trials)
    if not is_whole or not any(parted):
        return rehearsal
    return replace(
        rehearsal,
        covered=tuple(each for each in rehearsal.covered if each is not Aspect.RESULTS),
        not_covered={**rehearsal.not_covered, Aspect.RESULTS: PARTING},
        equivalence=Equivalence("not_checked", "", reason=PARTING),
    )


def missing(rehearsal: Rehearsal | None) -> str | None:
    """Return what a rehearsal lacks for its settings to be called faster, or None.

    That takes the rows, the end and results that agree, unless the settings change them on purpose;
    beside these the batches and a second epoch, or enough samples of a script that has no epochs or
    makes its batches itself.
    """
    if rehearsal is None:
        return "nothing was rehearsed"
    needed = [Aspect.ROWS, Aspect.END]
    if not rehearsal.changes_results:
        needed.append(Aspect.RESULTS)
    has_enough = rehearsal.samples >= ENOUGH_SAMPLES and rehearsal.epochs < 2
    if not has_enough or Aspect.BATCHES in rehearsal.not_covered:
        needed = [Aspect.BATCHES, Aspect.SECOND_EPOCH, *needed]
    for aspect in needed:
        if aspect not in rehearsal.covered:
            why = rehearsal.not_covered.get(aspect, "it was not seen")
            return f"{NAMES[aspect]} {'were' if aspect in _PLURAL else 'was'} not rehearsed: {why}"
    return rehearsal.doubt or None


def _ends(found: Findings) -> bool:
    """Compare the ends; say whether the lives are there to be compared in all else."""
    first, second, plan = found.lives.first, found.lives.second, found.lives.plan
    unchanged = next((life for life in (first, second) if not is_complete(life)), None)
    if unchanged is not None and unchanged.state is not TrialState.HUNG:
        why = f"the unchanged script's shortened life {ending(unchanged)}"
        found.not_covered.update(dict.fromkeys(Aspect, why))
        return False
    if plan.state not in (TrialState.COMPLETE, TrialState.HUNG) or (
        unchanged is None and not is_complete(plan)
    ):
        found.problem(Aspect.END, f"under the plan the script's shortened life {ending(plan)}")
        return False
    if _is_idle(found):
        found.not_covered.update(
            dict.fromkeys(Aspect, "the settings changed nothing in this script")
        )
        return False
    look_ahead(found)
    if unchanged is None:
        found.covered.append(Aspect.END)
    else:
        found.cut = f"the unchanged script's shortened life {ending(unchanged)}"
        found.not_covered[Aspect.END] = found.cut
    return True


def _is_idle(found: Findings) -> bool:
    """Say whether each setting found nothing to change, so that agreement says nothing of it."""
    if not found.settings or any(name.startswith(ARGUMENT_PREFIX) for name in found.settings):
        return False
    return not any(each.state == "effective" for each in found.lives.plan.applied)


# -- what a whole pass needs -----------------------------------------------------------------------


def look_ahead(found: Findings) -> None:
    """Compare the files and the memory that whole passes will need with what there is."""
    _open_files(found)
    _copied_memory(found)


def _open_files(found: Findings) -> None:
    """A whole pass may open more files than the process may have."""
    limit = found.lives.plan.most_open_files
    if limit is None:
        return
    for ours, theirs in zip(found.lives.first.epochs, found.lives.plan.epochs, strict=False):
        count = len(theirs.batches)
        whole = theirs.whole_batches or count
        if count > 1 and theirs.open_files - ours.open_files >= count - 1:
            needed = theirs.open_files * whole // (count - 1)
            if needed > limit:
                each = f"each batch leaves {theirs.open_files / (count - 1):.1f} files open"
                more = f"a whole pass {needed:,}, more than the {limit:,} that are allowed"
                found.data_problem(Aspect.END, f"{each}, and {more}")


def _copied_memory(found: Findings) -> None:
    """Workers may copy more of the script's memory than there is.

    A data set that is a large list of Python objects is shared with forked workers at first, and
    page by page copied by each of them as it is read (github.com/pytorch/pytorch/issues/13246).
    """
    plan = found.lives.plan
    if plan.available_bytes is None:
        return
    needed, each = _copied_by(plan)
    if needed > plan.available_bytes >= _copied_by(found.lives.first)[0]:
        found.data_problem(
            Aspect.END,
            f"the workers copy {each / 2**20:,.1f} MiB of the script's memory a batch, as looking"
            f" at an object writes to it, and {needed / 2**30:,.1f} GiB in a whole pass:"
            f" {plan.available_bytes / 2**30:,.1f} GiB are free",
        )


def _copied_by(life: Life) -> tuple[float, float]:
    """Return how many bytes workers will have copied after a whole pass at most, and in a batch.

    That is what they copied a batch after the first, but no more than all that each shares.
    """
    most = (0.0, 0.0)
    for loader, number in {(each.loader, each.epoch) for each in life.workers}:
        workers = [w for w in life.workers if (w.loader, w.epoch) == (loader, number)]
        copied = [w.copied_bytes for w in workers if w.copied_bytes is not None]
        batches = max((e.whole_batches or 0 for e in life.epochs if e.loader == loader), default=0)
        if copied:
            shared = sum(w.shared_bytes or 0 for w in workers)
            most = max(most, (min(mean(copied) * batches, shared), mean(copied)))
    return most


# -- losses ----------------------------------------------------------------------------------------


def without_losses(lives: Lives) -> Lives:
    """Return lives without losses where the unchanged script computes gradients and does not train:
    then they are results as any other."""
    if lives.first.trains:
        return lives
    first, second, plan = (
        replace(each, losses=()) for each in (lives.first, lives.second, lives.plan)
    )
    numerics = lives.numerics and replace(lives.numerics, losses=())
    return replace(lives, first=first, second=second, plan=plan, numerics=numerics)


# -- padding ---------------------------------------------------------------------------------------

MOST_TRIED = 8
"""Numbers that are tried as padding: the most frequent last ones of samples. Where every text has
the same last token, and few of a batch are padded, padding comes second."""

Place = tuple[int, int]
"""A loader, and a part of its batches."""
Sample = tuple[int, int, int | None]
"""A sample's fingerprint, that without what repeats at its ends, and the bits of what does."""


def without_padding(lives: Lives) -> Lives:
    """Return lives in which samples have the fingerprint of what remains of them without padding.

    A number counts as padding of a part of the batches if more samples of the plan's life are those
    of the unchanged script when it is left out at their ends: those differ in nothing else.
    """
    first, plan = _samples(lives.first), _samples(lives.plan)
    ends = {place: _padding(first[place], plan[place]) for place in first.keys() & plan.keys()}
    known = {place: end for place, end in ends.items() if end is not None}
    if not known:
        return lives
    each = (_stripped(life, known) for life in (lives.first, lives.second, lives.plan))
    first_life, second_life, plan_life = each
    return replace(lives, first=first_life, second=second_life, plan=plan_life)


def _samples(life: Life) -> dict[Place, list[Sample]]:
    found: dict[Place, list[Sample]] = {}
    for epoch in life.epochs:
        for part in parts_of(epoch):
            for batch in epoch.batches:
                found.setdefault((epoch.loader, part), []).extend(_of(batch, part))
    return found


def _of(batch: Batch, part: int) -> list[Sample]:
    whole = batch.parts[part]
    unpadded = batch.unpadded[part] if part < len(batch.unpadded) else ()
    if not unpadded:
        return [(sample, sample, None) for sample in whole]
    return [(sample, *rest) for sample, rest in zip(whole, unpadded, strict=True)]


def _padding(ours: list[Sample], theirs: list[Sample]) -> int | None:
    """Return the number that pads samples; None where none makes more of them equal."""
    best, most = None, _common(ours, theirs, None)
    if most == len(theirs):
        return None
    ends = Counter(end for _, _, end in (*ours, *theirs) if end is not None)
    for end, _ in ends.most_common(MOST_TRIED):
        found = _common(ours, theirs, end)
        if found > most:
            best, most = end, found
    return best


def _common(ours: list[Sample], theirs: list[Sample], end: int | None) -> int:
    """Return how many samples are those of the other life, without this number at their ends."""
    mine, others = (Counter(_without(each, end) for each in side) for side in (ours, theirs))
    return (mine & others).total()


def _without(sample: Sample, end: int | None) -> int:
    whole, unpadded, repeated = sample
    return unpadded if end is not None and repeated == end else whole


def _stripped(life: Life, ends: dict[Place, int]) -> Life:
    epochs = []
    for epoch in life.epochs:
        known = {part: ends.get((epoch.loader, part)) for part in parts_of(epoch)}
        batches = tuple(
            replace(batch, parts=_parts_without(batch, known)) for batch in epoch.batches
        )
        epochs.append(replace(epoch, batches=batches))
    return replace(life, epochs=tuple(epochs))


def _parts_without(batch: Batch, ends: dict[int, int | None]) -> tuple[tuple[int, ...], ...]:
    return tuple(
        tuple(_without(sample, ends.get(part)) for sample in _of(batch, part))
        for part in range(len(batch.parts))
    )
