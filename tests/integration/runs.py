"""Runs scripts under the harness as `tune` does, with limits and schedules for small ones."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import gettempdir

from gpuadvisor.collectors.script.inquiry import ScriptWitness, patient
from gpuadvisor.collectors.script.request import Command, Limits, RunOutcome, RunRequest
from gpuadvisor.collectors.script.runner import run_script, start_common_template
from gpuadvisor.collectors.script.specification import Schedule, Specification
from gpuadvisor.collectors.script.templates import Template
from gpuadvisor.domain.device import Device
from gpuadvisor.domain.inquiry import Found
from gpuadvisor.tuners.knobs import load_knobs
from tests.integration import program

SCRIPTS = Path(__file__).parents[1] / "scripts"
CPU = Device("cpu", 0, "cpu")
COMPILED = str(Path(gettempdir()) / "gpuadvisor-tests" / "inductor")
"""Where scripts keep what they compile: TorchDynamo would choose a place when it is imported."""

TO_THE_END = Schedule(warmup_s=0.1, window_s=0.1, measure_s=60.0)
"""Lets a script run until it ends by itself, so that its steps can be counted."""
QUICK = Schedule(warmup_s=0.05, window_s=0.02, measure_s=0.1, min_steps=8)
PATIENT = Limits(startup_s=120, idle_s=60, total_s=180)


def request(
    command: Command,
    schedule: Schedule = TO_THE_END,
    limits: Limits = PATIENT,
    **environment: str,
) -> RunRequest:
    # What differs between two runs keeps the second from being forked as the first one was.
    always = {
        "OMP_NUM_THREADS": "1",
        "PYTEST_CURRENT_TEST": "",
        "TORCHINDUCTOR_CACHE_DIR": COMPILED,
        "PYTHONPATH": program.QUICK,
    }
    environment = {**always, **environment}
    return RunRequest(command, Specification(seed=1, schedule=schedule), CPU, limits, environment)


def triton_kernels_of(wanted: RunRequest, seconds: float) -> Found:
    """What the knob `triton_kernels` finds in a script that runs, asked for so long at most."""
    knob = load_knobs()["triton_kernels"]
    place = f"{type(knob).__module__}:KNOB"
    wanted = replace(wanted, limits=patient(wanted.limits, seconds))
    with ScriptWitness(wanted, place, seconds) as witness:
        return knob.find(witness)


@contextmanager
def torch_imported(*parts: str, **environment: str) -> Iterator[Template | None]:
    """A process that has imported torch, of which runs of any script are forked as `tune` does.

    `parts` are packages in torch that are imported with it, for scripts that would import them;
    runs have to have the same `environment`.

    `tests/unit/collectors/script/test_templates.py` shows that a fork is what a fresh process is,
    and each that imports torch anew takes two seconds of a core. None without torch or Linux.
    """
    torch = importlib.util.find_spec("torch")
    if torch is None or sys.platform != "linux":
        yield None
        return
    home = Path(torch.origin).parent
    phase = {
        "modules": [
            ("torch", torch.origin),
            *((f"torch.{p}", str(home / p / "__init__.py")) for p in parts),
        ],
        "path": sys.path,
        "main": "few.py",
        "changed": {},
    }
    wanted = request(Command(sys.executable, "few.py", folder=str(SCRIPTS)), **environment)
    with closing(start_common_template([wanted], [phase])) as template:
        yield template


def run_line(
    line: str, schedule: Schedule = TO_THE_END, template: Template | None = None
) -> RunOutcome:
    """Run `script.py args` or `-m module args` in the folder of the scripts."""
    words = line.split()
    is_module = words[0] == "-m"
    script, *args = words[1:] if is_module else words
    command = Command(sys.executable, script, tuple(args), is_module, str(SCRIPTS))
    return run_script(replace(request(command, schedule), template=template))


@dataclass(frozen=True)
class Own:
    """What a script of `tests/scripts` says of its own steps."""

    steps: int
    step_ms: float


def own_clock(outcome: RunOutcome) -> Own:
    lines = [line for line in outcome.output.splitlines() if line.startswith('{"steps"')]
    assert lines, outcome.reason + outcome.output
    return Own(**json.loads(lines[-1]))
