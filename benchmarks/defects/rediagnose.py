"""Ask today's rules about the profiles of a recording, without a GPU.

    python benchmarks/defects/rediagnose.py results.jsonl HOME again.jsonl

HOME is what `record.py --home` kept. The gains stay as they were measured.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from fit import read
from record import thin


def main() -> None:
    """Write each line again, with another diagnosis."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    for name in ("results", "home", "again"):
        parser.add_argument(name, type=Path)
    chosen = parser.parse_args()
    environment = {**os.environ, "GPUADVISOR_HOME": str(chosen.home.absolute())}
    with chosen.again.open("w") as file:
        for row in read([chosen.results]):
            profile = row["diagnosis"]["profile"]
            line = [sys.executable, "-m", "gpuadvisor", "diagnose", profile, "--json"]
            told = subprocess.run(
                line, stdout=subprocess.PIPE, text=True, check=True, env=environment
            )
            row["diagnosis"] = thin(json.loads(told.stdout))
            file.write(json.dumps(row, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
