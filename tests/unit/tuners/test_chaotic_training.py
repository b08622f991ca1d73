"""Training that makes of any rounding weights of its own: trials leave it to a rehearsal.

The model's outputs are sines of many times the product of its weights and a sample: a change of
weights grows with each step. What does something else than the script has to be called wrong all
the same, in a trial or in the rehearsal.
"""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from gpuadvisor.domain.knobs import AppliedKnob, Level
from gpuadvisor.domain.measurement import Trace
from gpuadvisor.domain.rehearsal import Batch, Call, Epoch, Life, Update
from gpuadvisor.domain.study import Aspect, Equivalence, Rehearsal, Trial, TrialState
from gpuadvisor.tuners.equivalence import PARTING, TOLERANCES, Comparison
from gpuadvisor.tuners.knobs import load_knobs
from gpuadvisor.tuners.rehearsal.comparison import as_trials_showed, compare, missing
from gpuadvisor.tuners.rehearsal.lives import Lives

KNOBS, SETTINGS = load_knobs(), {"bf16_autocast": True}
TOLERANCE = TOLERANCES[Level.BALANCED]
STEEP, RATE = 14.0, 0.03
ROUNDING = 2.0**-13
BATCHES, SIZE, WIDTH = 16, 8, 24


class Training:
    """One life of the script; what it does otherwise is said by its arguments."""

    def __init__(self, seed, *, rate=1.0, scale=1.0, rounding=0.0, nudge=0.0, batch="", takes=None):
        self.rate, self.scale, self.rounding, self.takes = rate * RATE, scale, rounding, takes
        self.batch = batch
        self.kept = []
        self._rounded = random.Random(f"rounding {seed}")
        numbers, noise = random.Random(seed), random.Random(f"nudge {seed}")
        self.weights = [numbers.gauss(0, 1) * (1 + nudge * noise.gauss(0, 1)) for _ in range(WIDTH)]
        self.data = [
            ([numbers.gauss(0, 1) for _ in range(WIDTH)], numbers.uniform(0, 6))
            for _ in range(BATCHES * SIZE)
        ]
        self.calls, self.updates, self.epochs, self.losses = [], [], [], []
        self.steps = self.since = 0
        self.live()

    def angles(self, rows):
        for place in rows:
            sample, phase = self.data[place]
            product = sum(w * x for w, x in zip(self.weights, sample, strict=True))
            rounded = 1 + self.rounding * self._rounded.gauss(0, 1)
            yield sample, STEEP * product * rounded + phase

    def call(self, rows, grad):
        angles = list(self.angles(rows))
        values = tuple((math.sin(angle),) for _, angle in angles)
        made = Call(hash(tuple(rows)), len(rows), len(rows), grad, values, steps=self.since)
        return angles, made

    def equal(self):
        self.since = 0
        if self.takes is not None:
            self.weights = list(self.takes[len(self.kept)])
        self.kept.append(list(self.weights))

    def step(self, rows, number):
        angles, made = self.call(rows, True)
        self.calls.append(made)
        loss = sum(3 + math.sin(angle) for _, angle in angles) / len(rows)
        slopes = [
            self.scale * sum(STEEP * math.cos(angle) * sample[n] for sample, angle in angles)
            / len(rows) for n in range(WIDTH)
        ]  # fmt: skip
        change = [-self.rate * slope for slope in slopes]
        if not self.since:
            self.updates.append(Update(tuple(slopes), tuple(change), (loss,), number))
        self.losses.append(loss)
        self.weights = [w + c for w, c in zip(self.weights, change, strict=True)]
        self.steps, self.since = self.steps + 1, self.since + 1
        if self.steps in (1, 4):
            self.equal()

    def rows(self, number):
        rows = list(range(number * SIZE, (number + 1) * SIZE))
        if self.batch == "half":
            return rows[: SIZE // 2]
        return rows[: SIZE // 2] * 2 if self.batch == "doubled" else rows

    def live(self):
        self.evaluations = (self.call(self.rows(0), True)[1],)
        for epoch in range(2):
            order = [self.rows(n) for n in range(BATCHES)]
            for number, rows in enumerate(order):
                # A graph that is replayed on the input with which it was recorded.
                is_stale = self.batch == "stale" and number
                self.step(self.rows(0) if is_stale else rows, 2 * epoch)
            batches = tuple(Batch((tuple(rows),), ((),)) for rows in order)
            self.epochs.append(
                Epoch(0, epoch, batches, sum(map(len, order)), BATCHES, 0.0, 0.0, 1.0, BATCHES,
                      True, 0)
            )  # fmt: skip
            self.equal()
            self.calls.append(self.call(range(SIZE), False)[1])

    @property
    def life(self):
        return Life(
            TrialState.COMPLETE, wall_s=10.0, startup_s=2.0, epochs=tuple(self.epochs),
            calls=tuple(self.calls), losses=tuple(self.losses), updates=tuple(self.updates),
            evaluations=self.evaluations, written={}, equalled=len(self.kept) if self.takes else 0,
            applied=(AppliedKnob("bf16_autocast", "effective"),),
        )  # fmt: skip


def tried(seed, may_round=True, **changes):
    """Return what a trial says of a training that does these things otherwise."""
    comparison = Comparison(Level.BALANCED)
    unchanged, other = Training(seed), Training(seed, **changes)
    comparison.calibrate([Trace(tuple(unchanged.losses[:10]))] * 2)
    return comparison.check(Trace(tuple(other.losses[:10])), may_round=may_round)


def rehearsed(seed, **changes):
    first, plan = Training(seed), Training(seed, **changes)
    lives = Lives(
        first.life, first.life, plan.life,
        nudged=lambda amount: Training(seed, nudge=amount).life,
        on_equal_weights=lambda: Training(seed, takes=first.kept, **changes).life,
    )  # fmt: skip
    return compare(lives, SETTINGS, KNOBS, TOLERANCE)


SEEDS = range(4)
OTHERWISE = {
    "learns twice as fast": {"rate": 2.0},
    "learns half as fast": {"rate": 0.5},
    "learns a fifth faster": {"rate": 1.2},
    "gradients of a scaled loss": {"scale": 4.0},
    "gradients of half a loss": {"scale": 0.5},
    "gradients turned round": {"scale": -1.0},
    "each sample twice": {"batch": "doubled"},
    "half a batch": {"batch": "half"},
    "the first batch again and again": {"batch": "stale"},
}


def test_rounding_alone_is_left_to_a_rehearsal_which_finds_nothing():
    found = [tried(seed, rounding=ROUNDING) for seed in SEEDS]
    assert {each.status for each in found} == {"not_checked"}
    assert {each.reason for each in found} == {PARTING}
    assert min(each.value for each in found) > TOLERANCE
    for seed in SEEDS:
        result = rehearsed(seed, rounding=ROUNDING)
        assert missing(result) is None
        assert result.equivalence.status == "equivalent"
        assert "on equal weights" in result.equivalence.reason


def test_settings_that_do_not_round_have_no_such_excuse():
    assert {tried(s, False, rounding=ROUNDING).status for s in SEEDS} == {"wrong"}


@pytest.mark.parametrize("case", OTHERWISE)
def test_what_does_something_else_is_wrong_in_the_trial_or_the_rehearsal(case):
    for seed in SEEDS:
        changes = {"rounding": ROUNDING, **OTHERWISE[case]}
        trial, result = tried(seed, **changes), rehearsed(seed, **changes)
        assert trial.status != "equivalent"
        assert trial.status == "wrong" or not result.agrees
        assert result.equivalence.status != "equivalent"


PARTED = Equivalence("not_checked", "10 losses", 0.1, reason=PARTING)
CLOSE = Equivalence("equivalent", "10 losses", 0.001, 0.01)
AS_A_WHOLE = Rehearsal(
    SETTINGS, (Aspect.ROWS, Aspect.RESULTS, Aspect.END), samples=4000, equivalence=CLOSE
)


@pytest.mark.parametrize(
    ("trials", "rehearsal", "lacks"),
    [
        ([CLOSE, CLOSE], AS_A_WHOLE, None),
        ([CLOSE, PARTED], AS_A_WHOLE, PARTING),
        ([PARTED], replace(AS_A_WHOLE, equivalence=replace(CLOSE, reason="equal weights")), None),
        ([None], AS_A_WHOLE, None),
    ],
)
def test_what_parts_in_trials_takes_a_rehearsal_on_equal_weights(trials, rehearsal, lacks):
    runs = [Trial(n, SETTINGS, "proof", TrialState.COMPLETE, equivalence=e)
            for n, e in enumerate(trials)]  # fmt: skip
    found = as_trials_showed(rehearsal, runs)
    assert (lacks or "") in (missing(found) or "")
    assert (missing(found) is None) == (lacks is None)
    assert (found.equivalence.status == "equivalent") == (lacks is None)
