"""What whole gates of a script with steps of 50 ms cost, in starts of the script and seconds.

    python benchmarks/gate_cost.py [--gates 5] [--slower 0 3 150] [--fresh]
        [--no-turns] [--import-s 0]

To be run on a quiet machine: what others do there makes runs longer and, as they then differ, more.
Each gate compares two folders, whose script takes so many percent longer in the second one. A step
waits for 50 ms, on the GPU where there is one. With `--fresh` no run is forked. With `--import-s`
the script imports a library besides torch that takes so long, as those of large projects do. Last
comes a table of where a gate's time goes, in seconds of a whole gate.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from gpuadvisor.collectors.script.request import Command
from gpuadvisor.domain.gate import GateResult, GateRun
from gpuadvisor.tuning.gate.comparison import gate
from gpuadvisor.tuning.gate.options import GateOptions

STEP_S = 0.05
SCRIPT = """
import time
import numpy
import torch
import large_library

STEP_S = {step_s}
on_gpu = torch.cuda.is_available()
device = "cuda" if on_gpu else "cpu"
torch.set_num_threads(1)
model = torch.nn.Linear(64, 64).to(device)
optimizer = torch.optim.AdamW(model.parameters())
batch = torch.rand(64, 64, device=device)
for _ in range(100_000):
    model(batch).square().mean().backward()
    torch.cuda._sleep(int(STEP_S * 1.8e9)) if on_gpu else time.sleep(STEP_S)  # at 1.8 GHz
    optimizer.step()
    optimizer.zero_grad()
"""


LIBRARY = """
import time
time.sleep({import_s})
"""


@dataclass
class Timed:
    """Shows nothing of a gate, and notes what passed between and in its runs."""

    parts: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Seconds by part."""

    def __post_init__(self) -> None:
        self._since_s = time.monotonic()
        self._before = "before the first run"

    def on_message(self, sentence: str) -> None:
        """Show it nowhere."""

    def on_run_start(self, side: str, place: str) -> None:
        """Note what passed since the run before it."""
        kind = "pair" if place.startswith("pair") else place
        now_s = time.monotonic()
        self.parts[self._before.format(kind)] += now_s - self._since_s
        self._since_s, self._before = now_s, f"between {kind} and {{}} runs"

    def on_run_end(self, run: GateRun) -> None:
        """Note what the run took."""
        place, trial = run.place.partition(" ")[0], run.trial
        self._since_s = time.monotonic()
        if trial.measurement is None:
            self.parts[f"{place}: failed"] += trial.wall_s
            return
        start_s, measured_s = trial.measurement.startup_s, trial.measurement.seconds
        how = "forked" if trial.is_forked else "fresh"
        self.parts[f"{place}, {how}: until the first step"] += start_s
        self.parts[f"{place}: measured"] += measured_s
        self.parts[f"{place}: warming up, counting, ending"] += trial.wall_s - start_s - measured_s

    def end(self) -> None:
        """Note what passed since the last run."""
        self.parts["after the last run"] += time.monotonic() - self._since_s


def compared(
    folder: Path, slower: float, asked: argparse.Namespace
) -> tuple[GateResult, dict[str, float]]:
    """Return the result of one gate whose head is slower by so much, as a ratio, and its parts."""
    for name, step_s in (("base", STEP_S), ("head", STEP_S * (1 + slower))):
        (folder / name).mkdir(exist_ok=True)
        (folder / name / "train.py").write_text(SCRIPT.format(step_s=step_s))
    options = GateOptions(
        Command(sys.executable, "train.py", folder=str(folder)),
        folders=(folder / "base", folder / "head"),
        metrics=("startup",) if asked.fresh else (),
        in_turns=not asked.no_turns,
    )
    timed = Timed()
    result = gate(options, timed)
    timed.end()
    return result, timed.parts


def tell(slower: float, results: Sequence[GateResult]) -> None:
    """Print what gates of one kind took."""
    verdicts = Counter(str(result.verdict) for result in results)
    starts, seconds = ([*map(of, results)] for of in (lambda r: len(r.runs), lambda r: r.wall_s))
    runs = [run for result in results for run in result.runs]
    print(f"\n{100 * slower:g} % slower: {dict(verdicts)}")
    for what, values in (("starts", starts), ("seconds", seconds)):
        print(
            f"  {what:10} {median(values):6.1f} in the median ({min(values):g} to {max(values):g})"
        )
    for what, forked in (("fresh", False), ("forked", True)):
        kind = [run.trial for run in runs if run.trial.is_forked is forked]
        begun = [trial.measurement.startup_s for trial in kind if trial.measurement]
        if begun:
            whole = median(trial.wall_s for trial in kind)
            print(
                f"  {len(kind) / len(results):4.1f} {what:6} a gate: {median(begun):.1f} s to the "
                f"first step, {whole:.1f} s in all"
            )
    for note in dict.fromkeys(note for result in results for note in result.notes):
        print(f"  {note}")


def main() -> None:
    """Run the gates, and print what each kind of them took."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--gates", type=int, default=5)
    parser.add_argument("--slower", type=float, nargs="+", default=[0.0, 3.0, 150.0])
    parser.add_argument("--fresh", action="store_true")
    help_ = "run pairs one after the other, as on a quiet GPU"
    parser.add_argument("--no-turns", action="store_true", help=help_)
    parser.add_argument("--import-s", type=float, default=0.0, help="time of a library's import")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as above:
        packages = Path(above, "site-packages")  # by which a library is known
        packages.mkdir()
        text = LIBRARY.format(import_s=options.import_s)
        (packages / "large_library.py").write_text(text, "utf-8")
        others = os.environ.get("PYTHONPATH", "")
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(packages), others)))
        for percent in options.slower:
            made = [compared(Path(folder), percent / 100, options) for _ in range(options.gates)]
            tell(percent / 100, [result for result, _ in made])
            for part in dict.fromkeys(part for _, parts in made for part in parts):
                print(f"    {median(parts[part] for _, parts in made):6.1f} s  {part}")


if __name__ == "__main__":
    main()
