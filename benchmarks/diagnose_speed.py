"""How long diagnosing a profile takes, without what Python takes to start and to import.

    python benchmarks/diagnose_speed.py TRACE.json.gz [--runs 5] [--rules]

Measured are: reading the trace, the first diagnosis, which computes the facts and the account of
the run, and all rules again on facts that are there. Times are the process's own on all CPUs, so
that what else a machine does matters little.

Targets, on the 216 k events of `hta_v100_df_index_resolver`: less than 2 s for reading and the
first diagnosis together, less than 100 ms for the rules.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import TypeVar

from gpuadvisor.profiling.reading import read_profile
from gpuadvisor.rules.engine import diagnose
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.facts.fitness import judged
from gpuadvisor.rules.registry import load_rules

Made = TypeVar("Made")


def main() -> None:
    """Measure, and print medians."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("trace", type=Path)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--rules", action="store_true", help="also print the time of each rule")
    chosen = parser.parse_args()
    rules = load_rules()
    reading, first, again = [], [], []
    for _ in range(chosen.runs):
        seconds, profile = timed(lambda: read_profile(chosen.trace))
        reading.append(seconds)
        judging, facts = timed(lambda: judged(profile))  # noqa: B023 - called at once
        evidence = Evidence(facts=facts)
        diagnosing = timed(lambda: (diagnose(evidence, rules), facts.account))[0]  # noqa: B023
        first.append(judging + diagnosing)
        again.append(timed(lambda: diagnose(evidence, rules))[0])  # noqa: B023 - called at once
    total = median(a + b for a, b in zip(reading, first, strict=True))
    print(f"{chosen.trace.name}, {len(rules)} rules, median of {chosen.runs}")
    print(f"  reading                      {median(reading):8.3f} s")
    print(f"  first diagnosis, with facts  {median(first):8.3f} s")
    print(f"  both                         {total:8.3f} s")
    print(f"  all rules, facts are there   {1e3 * median(again):8.1f} ms")
    if chosen.rules:
        took = {each.name: timed(lambda: diagnose(evidence, [each]))[0] for each in rules}  # noqa: B023
        for name, seconds in sorted(took.items(), key=lambda each: -each[1])[:12]:
            print(f"    {name:32}{1e3 * seconds:8.1f} ms")


def timed(work: Callable[[], Made]) -> tuple[float, Made]:
    """Return how long something took, in seconds, and what it returned."""
    began = time.process_time()
    made = work()
    return time.process_time() - began, made


if __name__ == "__main__":
    main()
