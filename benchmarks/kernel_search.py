"""Searches on brute-forced spaces of kernels: ours, a random one, and Kernel Tuner's, in one run.

    pip install kernel_tuner
    OPENBLAS_NUM_THREADS=1 python benchmarks/kernel_search.py --seeds 21 --budget 200 SPACE...

With `--ahead 4` the model also searches with five points on their way at once, as where four
processes compile ahead: it then proposes before it knows what came of the ones before. `--rows`
adds a line of JSON for each row of the table to a file.

A space is a cache file of Kernel Tuner, such as those of AutoTuningAssociation/benchmark_hub. What
counts as an evaluation is the first visit to a point that meets the restrictions, whether it then
fails or not; what a strategy proposes beside that costs it nothing. Kernel Tuner simulates from the
same file, with the points of the file as its restriction: left to itself it would take the points
that failed for restricted ones, and never propose them.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from gpuadvisor.domain.kernel_records import WITHIN, Record
from gpuadvisor.storage.kernel_caches import read
from gpuadvisor.tuners.kernels.search_score import KnownSpace, median_or_none
from gpuadvisor.tuning.kernels.replaying import replay

OURS = ("model", "optuna", "random")
THEIRS = (
    "adaptive_tabu_greywolf", "hybrid_vndx", "genetic_algorithm", "pso", "diff_evo",
    "simulated_annealing", "firefly_algorithm", "dual_annealing", "bayes_opt", "mls", "greedy_ils",
)  # fmt: skip


class KernelTuner:
    """A recorded space as Kernel Tuner simulates it."""

    def __init__(self, record: Record) -> None:
        """Write the space as a cache without repeats, which loads faster."""
        from kernel_tuner.runners.simulation import SimulationRunner

        self.record = record
        self.times = {
            tuple(each.point.values()): each.time_ms or math.inf for each in record.evaluations
        }
        self._file = tempfile.NamedTemporaryFile("w", suffix=".json")  # noqa: SIM115 - while it lives
        names = list(record.parameters)
        self.document: dict[str, Any] = {
            "device_name": record.device,
            "kernel_name": record.kernel,
            "problem_size": [1, 1],
            "tune_params_keys": names,
            "tune_params": {name: list(values) for name, values in record.parameters.items()},
            "objective": "time",
            "cache": {
                ",".join(map(str, point)): {
                    **dict(zip(names, point, strict=True)),
                    "time": time_ms if math.isfinite(time_ms) else "RuntimeFailedConfig",
                    **{f"{what}_time": 1.0 for what in ("compile", "verification", "benchmark")},
                    "strategy_time": 0,
                    "framework_time": 0,
                    "timestamp": "2024-01-01 00:00:00+00:00",
                }
                for point, time_ms in self.times.items()
            },
        }
        json.dump(self.document, self._file)
        self._file.flush()
        self.visited: dict[tuple[Any, ...], float] = {}
        run = SimulationRunner.run

        def noted(runner: Any, parameter_space: Any, tuning_options: Any) -> Any:
            points = [tuple(each) for each in parameter_space]
            for point in points:
                if point in self.times:
                    self.visited.setdefault(point, self.times[point])
            return run(runner, points, tuning_options)

        SimulationRunner.run = noted

    def search(self, strategy: str, seed: int, budget: int) -> tuple[float, ...]:
        """Return the costs of the points that a strategy visits, in order."""
        from kernel_tuner.interface import tune_kernel
        from kernel_tuner.util import FunctionConstraint

        random.seed(seed)
        np.random.seed(seed)
        self.visited.clear()
        tune_kernel(
            self.record.kernel,
            "",
            (1, 1),
            [],
            self.document["tune_params"],
            restrictions=[FunctionConstraint(lambda *point: point in self.times)],
            cache=self._file.name,
            simulation_mode=True,
            quiet=True,
            strategy=strategy,
            strategy_options={"max_fevals": min(budget, len(self.times))},
        )
        return tuple(self.visited.values())[:budget]


def show(
    strategy: str,
    space: KnownSpace,
    searches: list[tuple[float, ...]],
    cpu_s: float,
    rows: Path | None,
    name: str,
) -> float:
    """Print a row of the table, and return the score."""
    counts = [[space.evaluations_within(each, share) for each in searches] for share in WITHIN]
    cells = []
    for each in counts:
        middle = median_or_none(each)
        near = sum(count is not None for count in each) / len(each)
        cells.append(f"{'-' if middle is None else f'{middle:.0f}'} ({near:.0%})")
    score = space.score(searches)
    overhead = 1e3 * cpu_s / max(1, sum(map(len, searches)))
    print(f"| {strategy} | {score:+.2f} | {' | '.join(cells)} | {overhead:.1f} |", flush=True)
    if rows is not None:
        row = {"space": name, "strategy": strategy, "score": score, "seeds": len(searches),
               "to_5_2_1_pct": counts, "overhead_ms": overhead}  # fmt: skip
        with rows.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
    return score


def main() -> None:
    """Print a table a space, and the mean scores."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("spaces", nargs="+", type=Path)
    parser.add_argument("--seeds", type=int, default=21)
    parser.add_argument("--budget", type=int, default=200)
    parser.add_argument("--ahead", type=int, default=0, help="points proposed ahead")
    parser.add_argument("--rows", type=Path, help="file for rows as JSON")
    parser.add_argument("--ours", default=",".join(OURS), help="strategies of gpuadvisor")
    parser.add_argument("--theirs", default=",".join(THEIRS), help="strategies of Kernel Tuner")
    args = parser.parse_args()
    scores: dict[str, list[float]] = {}
    for path in args.spaces:
        record = read(path)
        ours = [each for each in args.ours.split(",") if each]
        found = replay(record, ours, range(args.seeds), args.budget)
        replayed = list(found.replayed)
        if args.ahead:
            (late,) = replay(
                record, OURS[:1], range(args.seeds), args.budget, capacity=1 + args.ahead
            ).replayed
            replayed.append(replace(late, strategy=f"model, {args.ahead} ahead"))
        space = KnownSpace([each.time_ms or math.inf for each in record.evaluations])
        first, end = space.compared
        print(f"\n{path.name}: {space.points:,} points; random, exactly: {found.random}; the score "
              f"compares evaluations {first:,} to {end - 1:,}\n")  # fmt: skip
        print("| strategy | score | within 5 % | within 2 % | within 1 % | CPU ms a point |")
        print("| --- | --- | --- | --- | --- | --- |")
        for one in replayed:
            cpu_s = one.overhead_ms / 1e3 * sum(map(len, one.searches))
            score = show(one.strategy, space, list(one.searches), cpu_s, args.rows, path.name)
            scores.setdefault(one.strategy, []).append(score)
        tuner = KernelTuner(record) if args.theirs else None
        for strategy in args.theirs.split(","):
            if tuner is None:
                break
            began_s = time.process_time()
            try:
                searches = [tuner.search(strategy, n, args.budget) for n in range(args.seeds)]
            except Exception as error:  # a strategy that fails is a row, not the end
                print(f"| {strategy} | failed: {type(error).__name__}: {error} |", file=sys.stderr)
                continue
            score = show(
                strategy, space, searches, time.process_time() - began_s, args.rows, path.name
            )
            scores.setdefault(strategy, []).append(score)
    print("\nmean scores:")
    for strategy, each in sorted(scores.items(), key=lambda item: -sum(item[1])):
        print(f"  {strategy:<24} {sum(each) / len(each):+.2f} over {len(each)} spaces")


if __name__ == "__main__":
    main()
