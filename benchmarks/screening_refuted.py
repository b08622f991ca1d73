"""How often what a screening had found was refuted by the proof or the ablation of its study.

    python benchmarks/screening_refuted.py [HOME ...] [--simulated SECONDS]

Reads the studies that are stored in these folders, each a $GPUADVISOR_HOME (its own, where none is
named), and prints a row for each with a screening, and their sum. Runs nothing. Or runs whole
studies of the real `tune` for so long on simulated machines, whose knobs are worth 0.9x to 1.4x.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from gpuadvisor.domain.screening import Later, ScreenedAs
from gpuadvisor.domain.study import StudyResult
from gpuadvisor.errors import AdvisorError
from gpuadvisor.storage.database import open_store
from gpuadvisor.storage.home import DATABASE
from tests.study_simulation import Machine, studies

CLAIMS = {ScreenedAs.KEPT: "gain", ScreenedAs.GAINS: "gain", ScreenedAs.WORTHLESS: "worthless"}
KNOBS = ("channels_last", "bf16_autocast", "tf32", "fused_optimizer", "cudnn_benchmark", "compile")
WORTHS = (0.9, 0.97, 1.0, 1.0, 1.0, 1.02, 1.1, 1.4)
HEAD = "| study | gains: confirmed | refuted | neither | worthless: confirmed | refuted | neither |"


def counted(studies: Iterable[StudyResult]) -> Counter[tuple[str, Later | None]]:
    """Return how often each claim was confirmed, refuted, or neither."""
    return Counter(
        (CLAIMS[each.state], each.later)
        for study in studies
        for each in study.screened
        if each.state in CLAIMS
    )


def share_refuted(count: Counter[tuple[str, Later | None]], claim: str = "gain") -> float | None:
    """Return the refuted part of the claims that were put to the test; None where none was."""
    refuted = count[claim, Later.REFUTED]
    tested = refuted + count[claim, Later.CONFIRMED]
    return refuted / tested if tested else None


def stored(home: Path | None) -> Iterator[StudyResult]:
    """Yield the finished studies of a folder that had a screening, the oldest first."""
    with open_store(home / DATABASE if home else None) as store:
        for name in reversed(store.study_names()):
            try:
                study = store.load_study(name)
            except AdvisorError:  # it runs, or its process was killed
                continue
            if study.screened:
                yield study


class Drawn(Machine):
    """A machine that computes, whose knobs are worth something by chance, as are its noises."""

    loaded_ms = 0.0
    computed_ms = 40.0

    def __init__(self, generator: random.Random) -> None:
        super().__init__(generator.random())
        self.start_s = generator.choice((3.0, 8.0, 16.0))
        self.life_s = 2.0 * self.start_s
        self.between, self.within = (generator.choice((0.005, 0.02, 0.05)) for _ in range(2))
        self.brings = {name: generator.choice(WORTHS) for name in KNOBS}


def simulated(seconds: float) -> Iterator[StudyResult]:
    """Yield studies on simulated machines for so long."""
    until, number = time.time() + seconds, 0
    with tempfile.TemporaryDirectory() as folder, studies(Path(folder)) as tuned:
        while time.time() < until:
            number += 1
            generator = random.Random(number)
            machine, budget_s = Drawn(generator), generator.choice((300.0, 600.0, 1200.0))
            yield tuned(machine, budget_s, seed=number, study=f"simulated-{number}")[0]


def row(name: str, count: Counter[tuple[str, Later | None]]) -> str:
    """Return a row of the table."""
    states = (Later.CONFIRMED, Later.REFUTED, None)
    figures = (str(count[claim, each]) for claim in ("gain", "worthless") for each in states)
    return f"| {name} | {' | '.join(figures)} |"


def main() -> None:
    """Print the table and the share that was refuted."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("homes", nargs="*", type=Path, metavar="HOME")
    parser.add_argument("--simulated", type=float, metavar="SECONDS")
    chosen = parser.parse_args()
    if chosen.simulated:
        found = [each for each in simulated(chosen.simulated) if each.screened]
    else:
        found = [each for home in chosen.homes or [None] for each in stored(home)]
    print(f"{HEAD}\n|---|--:|--:|--:|--:|--:|--:|")
    for study in found:
        print(row(study.study, counted([study])))
    count = counted(found)
    print(row("all", count))
    for claim in ("gain", "worthless"):
        share = share_refuted(count, claim)
        told = "none was tested" if share is None else f"{share:.1%} of those tested"
        print(f"refuted, {claim}: {told}")


if __name__ == "__main__":
    main()
