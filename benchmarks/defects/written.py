"""Record programs that somebody wrote who knows neither the generator nor the rules.

    python benchmarks/defects/written.py FOLDER results.jsonl [--device cpu] [--part 0/4]

FOLDER has plain scripts, and `answers.jsonl`, which is written before any of them is diagnosed. A
line of it: `{"name": "loader", "program": "loader.py", "arguments": [], "accepts": ["input_bound"],
"cure": [["DataLoader(data)", "DataLoader(data, num_workers=4)"]]}`. The cured form has the second
text of each pair where the program has the first; a healthy program has no `cure`. Both forms are
timed in turns, in fresh processes, by the steps that `gpuadvisor tune` counts; the diagnosis is
that of `record.py`, and `fit.py` counts what was right.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pairs import HEALTHY, HELD_OUT
from record import arguments, go
from timing import FailedError, Gain
from turns import Gpu

from gpuadvisor.collectors.devices import cpu_device, list_gpus
from gpuadvisor.collectors.script.request import Command, RunRequest
from gpuadvisor.collectors.script.runner import run_script
from gpuadvisor.collectors.script.specification import Schedule, Specification
from gpuadvisor.domain.device import Device

TURNS = 3
"""Fresh processes of each script: as many as four GPUs have time for in nine minutes, of 24."""
SCHEDULE = Schedule(warmup_s=0.5, measure_s=1.5)


def cured(program: str, cure: Iterable[tuple[str, str]]) -> str:
    """Return the program with each pair's second text where its first stood, which it has once."""
    for old, new in cure:
        if program.count(old) != 1:
            raise ValueError(f"stands {program.count(old)} times in the program, not once: {old}")
        program = program.replace(old, new)
    return program


class Written:
    """A script and its cured form."""

    def __init__(self, folder: Path, answer: dict[str, Any], device: Device) -> None:
        self.name: str = answer["name"]
        self._folder, self._answer, self._device = folder, answer, device

    def described(self) -> dict[str, Any]:
        healthy = "cure" not in self._answer
        return {
            "family": "written", "defect": HEALTHY if healthy else self.name, "seed": 0,
            "part": HELD_OUT, "accepts": list(self._answer.get("accepts", ())),
        }  # fmt: skip

    def words(self) -> list[str]:
        return self._words(self._folder / self._answer["program"])

    def gain(self, gpu: Gpu) -> tuple[Gain | None, dict[str, Any], dict[str, Any]]:
        where = {"gpu": "" if self._device.kind == "cpu" else self._device.name}
        if "cure" not in self._answer:
            return None, where, {}
        program = self._folder / self._answer["program"]
        times: tuple[list[float], list[float]] = ([], [])
        with tempfile.TemporaryDirectory(prefix="cured-") as folder:
            form = Path(folder, program.name)
            form.write_text(cured(program.read_text("utf-8"), self._answer["cure"]), "utf-8")
            for _ in range(TURNS):
                for script, found in zip((program, form), times, strict=True):
                    found.append(self._step_ms(script))
        return Gain.of(*times), where, {}

    def _words(self, script: Path) -> list[str]:
        return [str(script.absolute()), *self._answer.get("arguments", ())]

    def _step_ms(self, path: Path) -> float:
        script, *words = self._words(path)
        command = Command(sys.executable, script, tuple(words))
        outcome = run_script(RunRequest(command, Specification(schedule=SCHEDULE), self._device))
        if outcome.measurement is None:
            raise FailedError(f"{script} could not be timed: {outcome.reason}")
        return outcome.measurement.mean_step_ms


def main() -> int:
    """Record those that have no line yet."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    arguments(parser)
    chosen = parser.parse_args()
    chosen.lanes = 1  # these scripts wait for no turn
    device = cpu_device() if chosen.device == "cpu" else list_gpus()[0]
    lines = (chosen.folder / "answers.jsonl").read_text("utf-8").splitlines()
    return go(chosen, [Written(chosen.folder, json.loads(line), device) for line in lines])


if __name__ == "__main__":
    sys.exit(main())
