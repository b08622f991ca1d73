"""How often a study claims a gain where there is none, and how often it proves one that there is.

    python benchmarks/false_claims.py [--studies 2000]

The real proof, and the real search with its ablation and proof, run on simulated and on recorded
noise (`tests/data/aa_runs.json`). Nothing is measured here, so it takes a minute anywhere.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from gpuadvisor.domain.study import Objective
from gpuadvisor.tuners.proof import is_faster, prove_point
from tests import simulation

Make = Callable[[random.Random], simulation.Noise]

NOISES: dict[str, Make] = {
    "recorded runs": simulation.recorded,
    "gaussian, 0.5 % between runs": simulation.gaussian,
    "gaussian, 5 % between runs": lambda generator: simulation.gaussian(generator, 0.05),
    "drift, 5 % over 40 runs": simulation.drifting,
    "drift, 50 % over 40 runs": lambda generator: simulation.drifting(generator, 0.5),
    "bimodal, 30 % of runs 5 % slower": simulation.bimodal,
    "bimodal, half of runs 20 % slower": lambda g: simulation.bimodal(g, 0.5, 0.2),
    "throttling, 5 % for some runs": simulation.throttling,
    "heavy tails (t, 2 degrees)": simulation.heavy_tailed,
}
PLACEBOS = tuple(simulation.Switch(f"placebo_{n}", (True, 2)) for n in range(8))
TUNED = {"knob": True}


def proof_claims(make: Make, gain: float, studies: int, seed: int = 0) -> float:
    """Return the share of proofs that claim a gain when settings are faster by `gain`."""
    model = simulation.multiplied({"knob": 1 + gain})
    claims = 0
    for study in range(studies):
        evaluator = simulation.SimulatedEvaluator(model, make(random.Random(f"{seed} {study}")))
        claims += is_faster(prove_point(evaluator, TUNED, Objective.THROUGHPUT).speedup)
    return claims / studies


def search_claims(make: Make, studies: int, seed: int = 0) -> float:
    """Return the share of whole studies over knobs that do nothing which claim a gain."""
    model = simulation.multiplied({})
    claims = 0
    for study in range(studies):
        evaluator = simulation.SimulatedEvaluator(model, make(random.Random(f"{seed} {study}")))
        proof = simulation.tuned(evaluator, PLACEBOS).proof
        claims += proof is not None and is_faster(proof.speedup)
    return claims / studies


def main() -> None:
    """Print a table of rates."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--studies", type=int, default=2000)
    studies = parser.parse_args().studies
    print(f"Claims of a gain in {studies} studies each.\n")
    print("| noise | true gain 0 %: proof | 8 placebo knobs: study | true gain 3 % | 10 % |")
    print("|---|--:|--:|--:|--:|")
    for name, make in NOISES.items():
        rates = [
            proof_claims(make, 0.0, studies),
            search_claims(make, studies),
            proof_claims(make, 0.03, studies),
            proof_claims(make, 0.1, studies),
        ]
        print(f"| {name} | {' | '.join(f'{rate:.2%}' for rate in rates)} |", flush=True)


if __name__ == "__main__":
    main()
