"""Reading that seeds the process's own generators alike, and what the script draws from them."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest

from gpuadvisor.collectors.script.child.rehearsal.dataset_state import state_of
from gpuadvisor.collectors.script.child.rehearsal.reseeding import ReseedingWatch


def nothing():
    """Neither seed nor draw."""


def seeded():
    random.seed(7)
    random.random()


def noted(read, step, workers=0):
    """What is found after two batches, with a step between them: path to whether it draws."""
    random.seed(0)
    watch, loader = ReseedingWatch(), SimpleNamespace(num_workers=workers)
    watch.begin(0, state_of({}), loader)
    for batch in range(2):
        read()
        watch.look(0, state_of({}))
        found = list(watch.found(0))
        if batch == 0:
            assert not found
            step()
            watch.look(0, state_of({}))
    return {each.path: each.drawn for each in found}


@pytest.mark.parametrize(
    ("read", "step", "found"),
    [
        (seeded, random.random, {"random": True}),
        (seeded, nothing, {"random": False}),
        (random.random, random.random, {}),
        (nothing, random.random, {}),
        (nothing, nothing, {}),
    ],
)
def test_what_reading_seeds_alike(read, step, found):
    assert noted(read, step) == found


def test_what_workers_read_seeds_nothing_here():
    assert noted(seeded, random.random, workers=2) == {}
