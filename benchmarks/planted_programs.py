"""What `diagnose` says of programs with one planted bottleneck, and what its cure really saves.

    python benchmarks/planted_programs.py [NAME ...] [--json FILE] [--traces FOLDER]

Each file of `benchmarks/planted` is a program with a bottleneck; `steps(cured=True)` is the same
without. Both are timed in one process, in turns, without a profiler; then `gpuadvisor diagnose`
runs the file as a user would. Printed are the first finding, whether its category is what was
planted, its estimate, and the measured saving. On a CPU it only shows that the programs run.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from planted_table import Row, answer, asked, compared, show

PROGRAMS = Path(__file__).parent / "planted"
WARM_UP_STEPS = 12
ROUNDS = 7
ROUND_S = 0.4
"""Of each variant in a round; as many steps as fit, two at least."""


def main() -> int:
    """Print a row for each program; exit with 1 where a first finding is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", help="programs; all by default")
    parser.add_argument("--json", type=Path, help="write all there is to know to this file")
    parser.add_argument("--traces", type=Path, help="keep the traces in this folder")
    chosen = parser.parse_args()
    names = chosen.names or sorted(path.stem for path in PROGRAMS.glob("*.py"))
    return show(names, partial(look_at, chosen.traces), chosen.json)


def look_at(traces: Path | None, name: str) -> Row:
    """Time a program and its cure, and diagnose it."""
    told = answer([sys.executable, __file__, "--measure", name])
    measured = json.loads(told.splitlines()[-1])
    return compared(name, **measured, diagnosis=diagnosed(name, traces))


def diagnosed(name: str, traces: Path | None) -> dict[str, Any]:
    """Return what `gpuadvisor diagnose` says of a program, or of its trace where that is kept."""
    program = PROGRAMS / f"{name}.py"
    if traces is None:
        return asked("diagnose", str(program))
    traces.mkdir(parents=True, exist_ok=True)
    trace = traces.absolute() / f"{name}.json.gz"
    asked("profile", str(program), "--output", str(trace))
    return asked("diagnose", str(trace))


def measure(name: str) -> dict[str, Any]:
    """Return the step times of a program with and without its bottleneck, in turns."""
    specification = importlib.util.spec_from_file_location(name, PROGRAMS / f"{name}.py")
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module  # workers of a DataLoader look for it
    specification.loader.exec_module(module)
    import torch

    wait = torch.cuda.synchronize if torch.cuda.is_available() else lambda: None
    variants = {"planted_ms": module.steps(False), "cured_ms": module.steps(True)}
    times: dict[str, list[float]] = {variant: [] for variant in variants}
    for each in variants.values():
        timed(each, WARM_UP_STEPS, wait)
    counts = {v: max(2, int(ROUND_S / timed(each, 2, wait))) for v, each in variants.items()}
    for _ in range(ROUNDS):
        for variant, each in variants.items():
            times[variant].append(1e3 * timed(each, counts[variant], wait))
    return {"want": sorted(module.WANT), **{v: median(found) for v, found in times.items()}}


def timed(steps: Iterator[None], count: int, wait: Any) -> float:
    """Return the seconds of a step."""
    wait()
    began = time.perf_counter()
    for _ in range(count):
        next(steps)
    wait()
    return (time.perf_counter() - began) / count


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        print(json.dumps(measure(sys.argv[2])))
    else:
        sys.exit(main())
