"""gpuadvisor: find out why a GPU job is slow, prove what makes it faster, and keep it fast.

Public names resolve lazily (PEP 562), because importing any submodule runs this file:
an eager import here would put its cost behind `gpuadvisor --help`.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpuadvisor.accounting.gathering import jobs
    from gpuadvisor.best_points import best
    from gpuadvisor.collectors.kernels.child.launching import kernel_launch
    from gpuadvisor.daemon.history import events, telemetry
    from gpuadvisor.domain.kernels import Kernel, array, output
    from gpuadvisor.errors import AdvisorError
    from gpuadvisor.monitoring.block import monitor
    from gpuadvisor.profiling.on_demand import profile_on_demand
    from gpuadvisor.profiling.reading import open_profile
    from gpuadvisor.rules.facts.occupancy import Occupancy, occupancy
    from gpuadvisor.section_times import SectionTimes, profile_section, reset_sections, sections
    from gpuadvisor.steps import step
    from gpuadvisor.tuning.kernels.suggesting import suggest_block
    from gpuadvisor.version import __version__

__all__ = [
    "AdvisorError",
    "Kernel",
    "Occupancy",
    "SectionTimes",
    "__version__",
    "array",
    "best",
    "events",
    "jobs",
    "kernel_launch",
    "monitor",
    "occupancy",
    "open_profile",
    "output",
    "profile_on_demand",
    "profile_section",
    "reset_sections",
    "sections",
    "step",
    "suggest_block",
    "telemetry",
]

TARGET_MODULES = ("best_points", "errors", "section_times", "steps")

_HOMES = {
    "__version__": "gpuadvisor.version",
    "AdvisorError": "gpuadvisor.errors",
    "Kernel": "gpuadvisor.domain.kernels",
    "Occupancy": "gpuadvisor.rules.facts.occupancy",
    "SectionTimes": "gpuadvisor.section_times",
    "array": "gpuadvisor.domain.kernels",
    "best": "gpuadvisor.best_points",
    "events": "gpuadvisor.daemon.history",
    "jobs": "gpuadvisor.accounting.gathering",
    "kernel_launch": "gpuadvisor.collectors.kernels.child.launching",
    "monitor": "gpuadvisor.monitoring.block",
    "occupancy": "gpuadvisor.rules.facts.occupancy",
    "open_profile": "gpuadvisor.profiling.reading",
    "output": "gpuadvisor.domain.kernels",
    "profile_on_demand": "gpuadvisor.profiling.on_demand",
    "profile_section": "gpuadvisor.section_times",
    "reset_sections": "gpuadvisor.section_times",
    "sections": "gpuadvisor.section_times",
    "step": "gpuadvisor.steps",
    "suggest_block": "gpuadvisor.tuning.kernels.suggesting",
    "telemetry": "gpuadvisor.daemon.history",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        import sys

        # With the module, Python says which name was meant.
        problem = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(problem, name=name, obj=sys.modules[__name__])
    from importlib import import_module

    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    """Return the public names, whether they were used before or not."""
    return __all__
