"""What a plan remembers of the environment in which it was proven, and what differs elsewhere."""

from __future__ import annotations

from collections.abc import Callable

from gpuadvisor.domain.device import Environment
from gpuadvisor.domain.study import Plan

Fingerprint = dict[str, str | int | float | bool]


def environment_fingerprint(environment: Environment) -> Fingerprint:
    """Return the `[environment]` of a plan; what could not be read is left out."""
    device = environment.device
    capability = device.compute_capability
    known = {
        "device": device.name,
        "compute_capability": None if capability is None else f"{capability[0]}.{capability[1]}",
        "memory_bytes": device.memory_bytes,
        "cpu_cores": device.cores,
        "python": environment.python,
        "torch": environment.torch,
        "cuda": environment.cuda,
        "cudnn": environment.cudnn,
        "driver": environment.driver,
        "platform": environment.platform,
        "power_limit_w": environment.power_limit_w,
        "git_commit": environment.git_commit,
        "git_dirty": environment.git_dirty,
        "gpuadvisor": environment.gpuadvisor,
    }
    return {key: value for key, value in known.items() if value is not None}


def environment_differences(plan: Plan, environment: Environment) -> list[str]:
    """Return a sentence for each difference that may change the plan's gain; empty if none.

    What the plan does not say is not compared. Patch levels are not: they seldom change speed.
    """
    proven = {key: str(value) for key, value in plan.environment.items()}
    here = environment_fingerprint(environment)
    sentences = []
    device = environment.device.name
    if proven.get("device", device) != device:
        sentences.append(
            f"the plan was proven on {proven['device']}, this is {device}:"
            " its gain is not known here"
        )
    for key, name, part in _VERSIONS:
        if key not in proven:
            continue
        then, now = part(proven[key]), part(str(here.get(key, "")))
        if not now:
            sentences.append(f"the plan was proven with {name} {then}, the one here is not known")
        elif then != now:
            sentences.append(
                f"the plan was proven with {name} {then}, this is {now}: its gain may differ here"
            )
    return sentences


def _minor(version: str) -> str:
    """Return `2.7` of `2.7.1+cu126`."""
    return ".".join(version.split("+")[0].split(".")[:2])


def _major(version: str) -> str:
    """Return `570` of `570.86.15`."""
    return version.split(".")[0]


_VERSIONS: tuple[tuple[str, str, Callable[[str], str]], ...] = (
    ("torch", "torch", _minor),
    ("cuda", "CUDA", _minor),
    ("driver", "driver", _major),
)
