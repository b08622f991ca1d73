"""Record programs that somebody wrote who knows neither the generator nor the rules.

    python benchmarks/defects/written.py FOLDER results.jsonl [--device cpu] [--part 0/4]

FOLDER has plain scripts, and `answers.jsonl`, which is written before any of them is diagnosed. A
line of it: `{"name": "loader", "program": "loader.py", "cured": "loader_cured.py", "arguments": [],
"accepts": ["input_bound"]}`. A healthy program has no `cured`. Both scripts are timed in turns, in
fresh processes, by the steps that `gpuadvisor tune` counts; the diagnosis is that of `record.py`,
and `fit.py` counts what was right.
"""

from __future__ import annotations

import argparse
import json
import sys
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


class Written:
    """A script and its cured form."""

    def __init__(self, folder: Path, answer: dict[str, Any], device: Device) -> None:
        self.name: str = answer["name"]
        self._folder, self._answer, self._device = folder, answer, device

    def described(self) -> dict[str, Any]:
        healthy = "cured" not in self._answer
        return {
            "family": "written", "defect": HEALTHY if healthy else self.name, "seed": 0,
            "part": HELD_OUT, "accepts": list(self._answer.get("accepts", ())),
        }  # fmt: skip

    def words(self) -> list[str]:
        return self._words("program")

    def gain(self, gpu: Gpu) -> tuple[Gain | None, dict[str, Any], dict[str, Any]]:
        where = {"gpu": "" if self._device.kind == "cpu" else self._device.name}
        if "cured" not in self._answer:
            return None, where, {}
        times: tuple[list[float], list[float]] = ([], [])
        for _ in range(TURNS):
            for form, found in zip(("program", "cured"), times, strict=True):
                found.append(self._step_ms(form))
        return Gain.of(*times), where, {}

    def _words(self, form: str) -> list[str]:
        script = str((self._folder / self._answer[form]).absolute())
        return [script, *self._answer.get("arguments", ())]

    def _step_ms(self, form: str) -> float:
        script, *words = self._words(form)
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
