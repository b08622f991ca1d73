"""What `diagnose` says of programs with one planted bottleneck, and what its cure really saves.

    python benchmarks/planted_programs.py [NAME ...] [--json FILE] [--traces FOLDER]

Each file of `benchmarks/planted` is a program with a bottleneck; `steps(cured=True)` is the same
without. Both are timed in turns, in a process each, without a profiler; then `gpuadvisor diagnose`
runs the file as a user would. Printed are the first finding, whether its category is what was
planted, its estimate, and the measured saving. On a CPU it only shows that the programs run.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from planted_table import Row, asked, compared, show

PROGRAMS = Path(__file__).parent / "planted"
WARM_UP_STEPS = 12
ROUNDS = 7
ROUND_S = 0.4
"""Of each variant in a round; as many steps as fit, two at least."""
UNTIMED_S = 0.1
"""Before that, because loaders filled their queues while the other variant ran."""


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
    return compared(name, **measured(name), diagnosis=diagnosed(name, traces))


def diagnosed(name: str, traces: Path | None) -> dict[str, Any]:
    """Return what `gpuadvisor diagnose` says of a program, or of its trace where that is kept."""
    program = PROGRAMS / f"{name}.py"
    if traces is None:
        return asked("diagnose", str(program))
    traces.mkdir(parents=True, exist_ok=True)
    trace = traces.absolute() / f"{name}.json.gz"
    asked("profile", str(program), "--output", str(trace))
    return asked("diagnose", str(trace))


def measured(name: str) -> dict[str, Any]:
    """Return the step times of a program with and without its bottleneck, in turns."""
    with ExitStack() as stack:
        variants = {
            variant: stack.enter_context(Variant(name, cured))
            for variant, cured in (("planted_ms", False), ("cured_ms", True))
        }
        times: dict[str, list[float]] = {variant: [] for variant in variants}
        for _ in range(ROUNDS):
            for variant, each in variants.items():
                times[variant].append(each.step_ms(ROUND_S))
        want = variants["cured_ms"].want
    return {"want": want, **{variant: median(found) for variant, found in times.items()}}


class Variant:
    """A process of its own, so that the two share no memory of the GPU, that takes steps when it is
    told to."""

    def __init__(self, name: str, cured: bool) -> None:
        self._name = f"{name}, {'cured' if cured else 'planted'}"
        command = [sys.executable, __file__, "--variant", name, *(["--cured"] if cured else [])]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> Variant:
        self.want: list[str] = self._told()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def step_ms(self, seconds: float) -> float:
        """Return the time of a step over so many seconds."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{seconds}\n")
        self._process.stdin.flush()
        return float(self._told())

    def _told(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._name} ended with {self._process.wait()}")
        return json.loads(line)


def serve(name: str, cured: bool) -> None:
    """Take steps whenever a line says for how long, and answer how long one took."""
    specification = importlib.util.spec_from_file_location(name, PROGRAMS / f"{name}.py")
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module  # workers of a DataLoader look for it
    specification.loader.exec_module(module)
    import torch

    wait = torch.cuda.synchronize if torch.cuda.is_available() else lambda: None
    steps = module.steps(cured)
    timed(steps, WARM_UP_STEPS, wait)
    step_s = timed(steps, 2, wait)
    print(json.dumps(sorted(module.WANT)), flush=True)
    for line in sys.stdin:
        timed(steps, max(2, int(UNTIMED_S / step_s)), wait)
        print(json.dumps(1e3 * timed(steps, max(2, int(float(line) / step_s)), wait)), flush=True)


def timed(steps: Iterator[None], count: int, wait: Any) -> float:
    """Return the seconds of a step."""
    wait()
    began = time.perf_counter()
    for _ in range(count):
        next(steps)
    wait()
    return (time.perf_counter() - began) / count


if __name__ == "__main__":
    if sys.argv[1:2] == ["--variant"]:
        serve(sys.argv[2], sys.argv[3:] == ["--cured"])
    else:
        sys.exit(main())
