"""Ask today's rules about the profiles of a recording, without a GPU.

    python benchmarks/defects/rediagnose.py results.jsonl again.jsonl HOME [HOME ...]

Each HOME is what `record.py --home` kept. The gains stay as they were measured; programs of which
no HOME has the profile are left out, as what was said of them was said by other rules.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

from fit import read
from record import thin

from gpuadvisor.profiling.diagnosing import diagnose_target
from gpuadvisor.reports.json_documents import diagnosis_json
from gpuadvisor.storage.profiles.library import open_profiles


def main() -> None:
    """Write the lines of these profiles again, with another diagnosis."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    for name in ("results", "again"):
        parser.add_argument(name, type=Path)
    parser.add_argument("homes", type=Path, nargs="+")
    chosen = parser.parse_args()
    rows = {row["diagnosis"]["profile"]: row for row in read([chosen.results])}
    count = 0
    with chosen.again.open("w") as file:
        for home in chosen.homes:
            os.environ["GPUADVISOR_HOME"] = str(home.absolute())
            for name in sorted({each.name for each in open_profiles().list()} & rows.keys()):
                row = rows[name]
                row["diagnosis"] = thin(diagnosis_json(diagnose_target(name, ())))
                file.write(json.dumps(row, separators=(",", ":")) + "\n")
                count += 1
    print(f"{count} of {len(rows)} were diagnosed again; of the others no profile is there")


if __name__ == "__main__":
    main()
