"""How often `gpuadvisor verify` tells in six starts whether a gain is still there, and how truly.

    python benchmarks/verifying.py [--plans 100]

Plans are promised by the real proof and verified by it on another day, on simulated noise and
beside simulated neighbours. Nothing is measured here; 100 plans each take about a minute.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Sequence
from itertools import count
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import false_claims

from gpuadvisor.collectors.script.request import RunOutcome
from gpuadvisor.domain.measurement import Measurement
from gpuadvisor.domain.study import Objective, Trial, TrialState
from gpuadvisor.domain.verification import Outcome
from gpuadvisor.tuners.proof import Known, is_faster, prove, prove_point
from gpuadvisor.tuners.turn_order import orders
from gpuadvisor.tuning.trials.forking import difference
from gpuadvisor.tuning.verifying.judgement import of_gain
from tests import simulation

GAINS = ((1.5, 1.5), (1.5, 1.0), (1.5, 1.3), (1.1, 1.1), (1.1, 1.0))
"""What was promised, and what there is now."""
SPREADS = (0.005, 0.01, 0.02, 0.03)
SLOWER = 1.03
"""Factor by which the machine is slower when a plan is verified."""
PAIRS = 16


def verified(
    seed: str, then: float, now: simulation.Noise, promised: float, gain: float, pairs: int
) -> Outcome | None:
    """Verify one plan within so many pairs; `then` is the spread of runs when it was promised.

    Runs are forked after the first pair, as on a GPU, which is no matter to the simulated script:
    the second pair counts for nothing where noise looks as if it was.
    """
    noise = simulation.gaussian(random.Random(seed), then)
    model = simulation.multiplied({"knob": promised})
    study = simulation.SimulatedEvaluator(model, noise, seed=seed, baselines=3)
    plan = prove_point(study, false_claims.TUNED, Objective.THROUGHPUT, seed)
    if not is_faster(plan.speedup):
        return None
    known = Known([t for t in study.trials if not t.settings], plan.head, at_another_time=True)
    others = [[t.measurement for t in side if t.measurement] for side in (known.base, known.head)]
    model = simulation.multiplied({"knob": gain}, 100.0 * SLOWER)
    again = simulation.SimulatedEvaluator(model, now, seed=f"{seed} now")
    made = [again.trials[0]]
    plain: list[Measurement] = []

    def counts(pair: Sequence[Trial]) -> bool:
        plain.extend(t.measurement for t in pair if t.measurement and not t.settings)
        if len(plain) != 2:
            return True
        fresh, forked = (
            RunOutcome(TrialState.COMPLETE, "", run, "", 0.0, forked=True) for run in plain
        )
        return not difference([fresh] * 2, plain[:1], [forked], Objective.THROUGHPUT, others)

    found = prove(
        lambda side: made.pop() if made and not side else again.measure([side], "proof")[0],
        {},
        false_claims.TUNED,
        Objective.THROUGHPUT,
        lambda pair: len(again.trials) + len(pair) <= 2 * pairs,
        next(each for n in count() if next(orders(each := f"{seed} {n}"))),
        known,
        settled=lambda speedup: of_gain(plan.speedup, speedup)[0] is not Outcome.INCONCLUSIVE,
        counts=counts,
    )
    return of_gain(plan.speedup, found.speedup)[0]


def main() -> None:
    """Print what came of the plans."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plans", type=int, default=100)
    plans = parser.parse_args().plans
    for promised, gain in GAINS:
        for spread in SPREADS:
            found = Counter(
                str(
                    verified(
                        f"{n}",
                        spread,
                        simulation.gaussian(random.Random(-n), spread),
                        promised,
                        gain,
                        4,
                    )
                )
                for n in range(1, plans + 1)
            )
            print(f"{promised}x, now {gain}x, {spread:.1%} between runs, 4 pairs:", dict(found))
    for promised, gain in (*GAINS, (1.2, 1.0)):
        found = Counter()
        for period_s in false_claims.PERIODS_S:
            for n in range(plans):
                noise = false_claims.neighbour(random.Random(f"{period_s} {n}"), period_s)
                found[str(verified(f"{n}", 0.005, noise, promised, gain, PAIRS))] += 1
        print(f"{promised}x, now {gain}x, beside second jobs, {PAIRS} pairs:", dict(found))


if __name__ == "__main__":
    main()
