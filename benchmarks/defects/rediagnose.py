"""Ask today's rules about the profiles of a recording, without a GPU.

    python benchmarks/defects/rediagnose.py results.jsonl again.jsonl HOME [HOME ...]
        [--timed | --untimed]

Each HOME is what `record.py --home` kept. The gains stay as they were measured; programs of which
no HOME has the profile are left out, as what was said of them was said by other rules.

Profiles of an older gpuadvisor do not tell what a step took without the profiler. With `--timed`
they are told what it took when it was timed in turns with its cure; those that were not timed are
left out. With `--untimed` those that tell it forget it, as traces that others recorded do not.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from catalogue import DEFECTS
from fit import Row, read
from record import thin

from gpuadvisor.domain.profile import Header
from gpuadvisor.domain.unprofiled import (
    UNPROFILED_STEADINESS,
    UNPROFILED_STEP,
    UnprofiledSteps,
    with_unprofiled_steps,
)
from gpuadvisor.profiling.diagnosing import diagnose_profile
from gpuadvisor.profiling.resolving import stored_profile
from gpuadvisor.reports.json_documents import diagnosis_json
from gpuadvisor.storage.profiles.library import open_profiles
from gpuadvisor.storage.profiles.stored import StoredProfile

LEFT_OUT = ("account", "not_measured")
"""What is long, follows from the profile, and nothing is fitted to."""


def main() -> None:
    """Write the lines of these profiles again, with another diagnosis."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    for name in ("results", "again"):
        parser.add_argument(name, type=Path)
    parser.add_argument("homes", type=Path, nargs="+")
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--timed", action="store_true", help="with the steps timed in turns")
    either.add_argument("--untimed", action="store_true", help="without what steps took then")
    chosen = parser.parse_args()
    rows = read([chosen.results])
    count = 0
    with chosen.again.open("w") as file:
        for row, profile in profiles_of(rows, chosen.homes):
            if chosen.timed and not row["gain_pct"]:
                continue
            if chosen.untimed:
                profile.header = without_unprofiled_steps(profile.header)
            if chosen.timed:
                steps = UnprofiledSteps(1e6 * step_ms(row))
                profile.header = with_unprofiled_steps(profile.header, steps)
            row["diagnosis"] = diagnosed(profile)
            if row["defect"] in DEFECTS:  # a rule may be younger than the recording
                row["accepts"] = list(DEFECTS[row["defect"]].accepts)
            file.write(json.dumps(row, separators=(",", ":")) + "\n")
            count += 1
    print(f"{count} of {len(rows)} were diagnosed again; of the others no profile is there")


def profiles_of(rows: Sequence[Row], homes: Sequence[Path]) -> Iterator[tuple[Row, StoredProfile]]:
    """Yield the rows of which a home has the profile, with it, home by home in the order of
    names."""
    named = {row["diagnosis"]["profile"]: row for row in rows}
    for home in homes:
        os.environ["GPUADVISOR_HOME"] = str(home.absolute())
        for each in sorted(open_profiles().list(), key=lambda each: each.name):
            if each.name in named:
                yield named[each.name], open_profiles().get(each.id)


def diagnosed(profile: StoredProfile) -> dict[str, Any]:
    """Return what the rules say of a profile."""
    said = thin(diagnosis_json(diagnose_profile(stored_profile(profile))))
    return {name: value for name, value in said.items() if name not in LEFT_OUT}


def without_unprofiled_steps(header: Header) -> Header:
    """Return a header that does not tell what steps took without the profiler."""
    kept = header.facts.keys() - {UNPROFILED_STEP, UNPROFILED_STEADINESS}
    return replace(header, facts={name: header.facts[name] for name in kept})


def step_ms(row: dict[str, Any]) -> float:
    """Return what a step of the program with its defect took in turns; that of a small batch was
    told of as many samples as a whole one has."""
    divisor = row["recipe"]["planted"].get("batch_divisor", 1)
    return float(row["gain_pct"]["planted_ms"]) / divisor


if __name__ == "__main__":
    main()
