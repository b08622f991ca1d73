"""What timelines promise, and what the cure was measured to save: the first finding of each run.

    python benchmarks/estimates_runs.py [TRACE.json.gz=SAVED_PERCENT ...]

The cases are the tests' real traces of programs before their cure (`tests/data/profiles`), with
step times before and after it that were measured without a profiler, and simulated programs of
which the truth is known exactly (`tests/rules/test_planted_programs.py`). More can be named.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1]))

from gpuadvisor.domain.finding import Diagnosis
from gpuadvisor.profiling.reading import read_profile
from gpuadvisor.rules.engine import diagnose
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.facts.summary import Facts
from tests.rules import test_planted_programs as planted
from tests.rules.test_workloads import PROFILES, SAVED


@dataclass(frozen=True)
class Case:
    """A program before its cure."""

    name: str
    diagnosis: Diagnosis
    saved_pct: float
    """Of its time, by the cure."""


def main() -> None:
    """Print a row for each case, and how many held."""
    named = dict(each.rsplit("=", 1) for each in sys.argv[1:])
    report("Real programs", list(real({Path(path): float(pct) for path, pct in named.items()})))
    report("Simulated programs", list(simulated()))


def real(more: dict[Path, float]) -> Iterator[Case]:
    """Yield the recorded programs."""
    recorded = {PROFILES / f"{name}.json.gz": saved for name, saved in SAVED.items()}
    for path, saved in {**recorded, **more}.items():
        evidence = Evidence(facts=Facts(read_profile(path)))
        yield Case(path.name.partition(".")[0], diagnose(evidence), saved)


def simulated() -> Iterator[Case]:
    """Yield the simulated ones, each at several slow-downs by the profiler."""
    for step in planted.PLANTED:
        for slower in planted.PACES:
            name = f"{step.__name__}, profiler {slower:g}x"
            yield Case(name, planted.found(step, slower), planted.saved_pct(step))


def report(title: str, cases: list[Case]) -> None:
    """Print a table."""
    print(f"{title}\n{'case':32}{'first finding':22}{'estimate':>16}{'measured':>10}  ")
    held, widths = 0, []
    for case in cases:
        first = next(iter(case.diagnosis.findings), None)
        span = first.improvement_pct if first is not None else None
        if first is None or span is None:
            print(f"{case.name:32}{'nothing':22}{'':16}{case.saved_pct:8.1f} %  outside")
            continue
        inside = span.low <= case.saved_pct <= span.high
        held += inside
        widths.append(span.width)
        estimate = f"{span.low:.1f} to {span.high:.1f} %"
        where = "inside" if inside else "outside"
        print(f"{case.name:32}{first.rule:22}{estimate:>16}{case.saved_pct:8.1f} %  {where}")
    print(f"{held} of {len(cases)} inside, median width {median(widths):.1f} points\n")


if __name__ == "__main__":
    main()
