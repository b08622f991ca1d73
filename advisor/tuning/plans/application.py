"""Start a script, unchanged, with a plan's settings applied."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from gpuadvisor.collectors.devices import cpu_device, inventory
from gpuadvisor.collectors.script.request import Command
from gpuadvisor.collectors.script.runner import replace_process
from gpuadvisor.collectors.script.specification import Specification
from gpuadvisor.domain.device import Environment
from gpuadvisor.domain.knobs import ARGUMENT_PREFIX, Settings
from gpuadvisor.domain.study import Plan, Verdict
from gpuadvisor.errors import UsageError
from gpuadvisor.tuners.base import Knob
from gpuadvisor.tuners.knobs import load_knobs
from gpuadvisor.tuning.arguments import applied, with_arguments
from gpuadvisor.tuning.plans.file import environment_differences, read_plan
from gpuadvisor.tuning.preparation import check_script


def start_with_plan(path: Path, command: Command, warn: Callable[[str], None]) -> int:
    """Become the script, with the plan's settings applied; returns only where that is impossible.

    `warn` gets a sentence for everything that keeps the plan's gain from being sure here.
    """
    check_script(command)
    knobs = load_knobs()
    plan = read_plan(path, knobs)
    check_settings(path, plan.settings, knobs)
    for sentence in _warnings(plan, command):
        warn(sentence)
    applications, environment = applied(plan.settings, knobs)
    sys.stdout.flush()
    sys.stderr.flush()
    replace_process(
        replace(command, args=with_arguments(command.args, plan.settings)),
        Specification(applications),
        environment,
    )
    return 1


def check_settings(path: Path, settings: Settings, knobs: Mapping[str, Knob]) -> None:
    """Raise UsageError if a setting cannot be applied: a plan may have been edited by hand."""
    for name, value in settings.items():
        if name.startswith(ARGUMENT_PREFIX):
            continue
        problem = knobs[name].problem(value)
        if problem is not None:
            raise UsageError(f"{path}: knobs.{name} = {json.dumps(value)}: {problem}")
        both = knobs[name].excludes & settings.keys()
        if both:
            raise UsageError(
                f"{path}: {name} and {', '.join(sorted(both))} cannot be set together: remove one"
            )


def _warnings(plan: Plan, command: Command) -> list[str]:
    """Return why a plan may not be worth here what it was worth where it was proven."""
    here = inventory()
    known = {key: str(value) for key, value in plan.environment.items()}
    environment = Environment(
        device=next(iter(here.gpus), None) or cpu_device(),
        python=platform.python_version(),
        torch=_torch_version(command.python) or known.get("torch"),
        cuda=known.get("cuda"),  # it changes with torch's version only
        cudnn=None,
        driver=here.driver or known.get("driver"),
        platform=platform.platform(),
        gpuadvisor="",
    )
    warnings = plan_warnings(plan, command, environment)
    if plan.verdict is Verdict.FASTER_UNVERIFIED:
        warnings.append(
            "the plan's gain is not verified: not enough of the script's life was rehearsed, so "
            "check its results yourself"
        )
    return warnings


def plan_warnings(plan: Plan, command: Command, environment: Environment) -> list[str]:
    """Return a sentence for each difference from where and for what a plan was proven."""
    warnings = environment_differences(plan, environment)
    if Path(plan.script).name != Path(command.script).name:
        warnings.append(f"the plan was proven for {plan.script}, not for {command.script}")
    return warnings


def _torch_version(python: str) -> str | None:
    """Return the version of an interpreter's torch without importing it, which takes seconds."""
    question = "from importlib.metadata import version; print(version('torch'))"
    try:
        answer = subprocess.run(
            [python, "-c", question], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() or None
