"""Samples are the same whatever their batch is padded to."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from gpuadvisor.domain.rehearsal import Batch, Life
from gpuadvisor.tuners.rehearsal.lives import Lives, parts_of

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
