"""Samples of two lives whose batches are padded to other lengths."""

from __future__ import annotations

import pytest

from gpuadvisor.domain.knobs import AppliedKnob
from gpuadvisor.domain.rehearsal import Batch, Call, Epoch, Life
from gpuadvisor.domain.study import TrialState
from gpuadvisor.tuners.knobs import load_knobs
from gpuadvisor.tuners.rehearsal.comparison import compare
from gpuadvisor.tuners.rehearsal.lives import Lives

KNOBS = load_knobs()
TEXTS = [(5, 3, 8, 2), (5, 3, 2), (7, 2), (4, 9, 9, 2), (6, 2), (1, 1, 2), (3, 2), (8, 2)]


def unpadded(text):
    """Return a text without the last token and its repetitions, and that token."""
    kept = list(text)
    while kept and kept[-1] == text[-1]:
        kept.pop()
    return hash(tuple(kept)), text[-1]


def read(texts, size, pad=0, looks=True):
    """One pass over texts in batches of this size, each padded to its longest."""
    batches = []
    for at in range(0, len(texts), size):
        batch = texts[at : at + size]
        longest = max(map(len, batch))
        padded = [text + (pad,) * (longest - len(text)) for text in batch]
        ends = tuple(map(unpadded, padded)) if looks else ()
        batches.append(Batch((tuple(map(hash, padded)),), ((),), (ends,)))
    known = Epoch(0, 0, tuple(batches), len(texts), len(batches), 0, 0, 1, 0, True)
    calls = (Call(0, len(texts), len(texts), False, tuple((1.0,) for _ in texts)),)
    done = (AppliedKnob("batch_size", "effective"),)
    return Life(TrialState.COMPLETE, epochs=(known,), calls=calls, written={}, applied=done)


def rehearsed(first, plan, settings=None):
    return compare(Lives(first, first, plan), settings or {"batch_size": 2}, KNOBS, 0.01)


@pytest.mark.parametrize("pad", [0, 2, -100])
@pytest.mark.parametrize("size", [1, 2])
def test_padding_makes_no_other_sample(size, pad):
    """Also where most texts end in the same token, or that is the one that pads."""
    found = rehearsed(read(TEXTS, size, pad), read(TEXTS, 4, pad))
    assert found.agrees, found.problems
    assert found.samples == len(TEXTS)


OTHER = {
    "a token": [*TEXTS[:5], (1, 4, 2), *TEXTS[6:]],
    "cut to a length": [text[:3] for text in TEXTS],
    "the order": [*TEXTS[4:], *TEXTS[:4]],
    "the last token": [*TEXTS[:1], (5, 3, 4), *TEXTS[2:]],
}


@pytest.mark.parametrize("name", OTHER)
def test_what_differs_in_more_is_another_sample(name):
    assert rehearsed(read(TEXTS, 2), read(OTHER[name], 4)).problems


def test_two_numbers_do_not_both_pad():
    first, plan = read(TEXTS[:4], 2, 0), read(TEXTS[:4], 4, 0)
    mixed = read(TEXTS[4:], 2, 0), read(TEXTS[4:], 4, 9)
    both = [
        Life(**{**vars(a), "epochs": (Epoch(**{**vars(a.epochs[0]), "rows": 8,
             "batches": a.epochs[0].batches + b.epochs[0].batches}),)})
        for a, b in zip((first, plan), mixed, strict=True)
    ]  # fmt: skip
    assert rehearsed(*both).problems


def test_other_settings_must_give_the_same_batches():
    found = rehearsed(read(TEXTS, 2), read(TEXTS, 4), {"dataloader_workers": 2})
    assert found.problems
    assert rehearsed(read(TEXTS, 2, looks=False), read(TEXTS, 4, looks=False)).problems
