"""How often what a screening had found was refuted by the proof or the ablation of its study.

    python benchmarks/screening_refuted.py [HOME ...]

Reads the studies that are stored in these folders, each a $GPUADVISOR_HOME (its own, where none is
named), and prints a row for each with a screening, and their sum. Runs nothing.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from gpuadvisor.domain.screening import Later, ScreenedAs
from gpuadvisor.domain.study import StudyResult
from gpuadvisor.errors import AdvisorError
from gpuadvisor.storage.database import open_store
from gpuadvisor.storage.home import DATABASE

CLAIMS = {ScreenedAs.KEPT: "gain", ScreenedAs.GAINS: "gain", ScreenedAs.WORTHLESS: "worthless"}
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


def row(name: str, count: Counter[tuple[str, Later | None]]) -> str:
    """Return a row of the table."""
    states = (Later.CONFIRMED, Later.REFUTED, None)
    figures = (str(count[claim, each]) for claim in ("gain", "worthless") for each in states)
    return f"| {name} | {' | '.join(figures)} |"


def main() -> None:
    """Print the table and the share that was refuted."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("homes", nargs="*", type=Path, metavar="HOME")
    studies = [each for home in parser.parse_args().homes or [None] for each in stored(home)]
    print(f"{HEAD}\n|---|--:|--:|--:|--:|--:|--:|")
    for study in studies:
        print(row(study.study, counted([study])))
    count = counted(studies)
    print(row("all", count))
    for claim in ("gain", "worthless"):
        share = share_refuted(count, claim)
        told = "none was tested" if share is None else f"{share:.1%} of those tested"
        print(f"refuted, {claim}: {told}")


if __name__ == "__main__":
    main()
