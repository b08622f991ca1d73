"""What is told of a study's phases while it measures."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from gpuadvisor.collectors.script.request import Command
from gpuadvisor.domain.device import Device
from gpuadvisor.tuning.measuring import Measuring
from gpuadvisor.tuning.options import TuneOptions
from gpuadvisor.tuning.trials.trial_runner import Silent


class Listening(Silent):
    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []

    def on_phase(self, name: str, detail: str = "") -> None:
        self.told.append((name, detail))


def test_a_phase_that_goes_on_in_the_same_words_is_told_once():
    told = Listening()
    nowhere = cast(Any, SimpleNamespace(keep=lambda trial: None))
    device = Device("cpu", 0, "cpu")
    study = Measuring(
        TuneOptions(Command("python", "train.py")), [device], {}, nowhere, told, lambda: False
    )
    phases = [("search", "once more"), ("search", "once more"), ("proof", ""), ("search", "other")]
    for phase in [*phases, phases[0]]:
        study._enter(*phase)
    assert told.told == [phases[0], phases[2], phases[3], phases[0]]
