"""Several studies side by side: what differs between them, and what that leaves to compare."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from gpuadvisor.domain.device import Environment
from gpuadvisor.domain.study import StudyResult
from gpuadvisor.reports import figures
from gpuadvisor.reports.study.wording import DIFFER, says_nothing

_FIELDS = {
    "device": "device",
    "gpu_uuid": "GPU's UUID",
    "memory_bytes": "memory",
    "compute_capability": "compute capability",
    "cpu_cores": "CPU cores",
    "python": "Python",
    "torch": "PyTorch",
    "cuda": "CUDA of PyTorch",
    "cudnn": "cuDNN",
    "driver": "driver",
    "platform": "platform",
    "sm_clock_max_mhz": "highest SM clock, MHz",
    "power_limit_w": "power limit, W",
    "git_commit": "commit",
    "git_dirty": "uncommitted changes",
    "gpuadvisor": "gpuadvisor",
}
"""Fields of an environment that are compared, as people call them. The clock at the start is not
among them: it differs from minute to minute."""
STEP_TIMES, SPEED_UPS = "step times", "speed-ups"


@dataclass(frozen=True)
class ComparedStudy:
    """One of the studies, and where its script ran."""

    result: StudyResult
    folder: str = ""
    """Absolute path; empty where it is not known."""

    @property
    def name(self) -> str:
        return self.result.study

    @property
    def script(self) -> str:
        """Path of the script, or the name of the module."""
        if self.result.is_module or not self.folder:
            return self.result.script
        return str(PurePath(self.folder) / self.result.script)


@dataclass(frozen=True)
class Difference:
    """A thing that is not the same in all studies."""

    name: str
    """A knob, or a field of an environment."""
    values: tuple[Any, ...]
    """What each study has, in their order; None where it has nothing or it is not known."""

    @property
    def title(self) -> str:
        """The name as people call it."""
        return _FIELDS.get(self.name, self.name)


@dataclass(frozen=True)
class Obstacle:
    """A reason for which figures of two studies say nothing of each other."""

    figures: str
    """What cannot be compared: `step times` or `speed-ups`."""
    why: str
    """The reason as a clause, with the studies' names."""


@dataclass(frozen=True)
class StudiesComparison:
    """Two studies or more, each compared with the first."""

    studies: tuple[ComparedStudy, ...]
    settings: tuple[Difference, ...]
    """Knobs that are set to different values, or not in all of them."""
    same_settings: Mapping[str, Any]
    """Knobs that all of them set to the same value."""
    environment: tuple[Difference, ...]
    obstacles: tuple[Obstacle, ...]
    remarks: tuple[str, ...]
    """What to keep in mind where figures are compared all the same."""

    def is_comparable(self, what: str) -> bool:
        """Say whether `step times` or `speed-ups` of all of them can be compared."""
        return not any(each.figures == what for each in self.obstacles)


def compare_studies(studies: Sequence[ComparedStudy]) -> StudiesComparison:
    """Compare two studies or more with the first of them."""
    every = [each.result.settings for each in studies]
    knobs = list(dict.fromkeys(name for settings in every for name in settings))
    columns = {name: tuple(settings.get(name) for settings in every) for name in knobs}
    return StudiesComparison(
        studies=tuple(studies),
        settings=_differences(columns),
        same_settings={n: values[0] for n, values in columns.items() if not _differ(values)},
        environment=_environment([each.result.environment for each in studies]),
        obstacles=tuple(o for other in studies[1:] for o in _obstacles(studies[0], other)),
        remarks=tuple(r for other in studies[1:] for r in _remarks(studies[0], other)),
    )


def _differ(values: Iterable[Any]) -> bool:
    """Say whether values are not all the same; 1 and True are not."""
    return len({(type(value), value) for value in values}) > 1


def _differences(columns: Mapping[str, tuple[Any, ...]]) -> tuple[Difference, ...]:
    return tuple(Difference(name, each) for name, each in columns.items() if _differ(each))


def _environment(every: Sequence[Environment]) -> tuple[Difference, ...]:
    known = [_known_fields(each) for each in every]
    return _differences({name: tuple(each[name] for each in known) for name in _FIELDS})


def _known_fields(environment: Environment) -> dict[str, Any]:
    device = environment.device
    return vars(environment) | {
        "device": device.name,
        "gpu_uuid": device.uuid,
        "memory_bytes": device.memory_bytes,
        "compute_capability": figures.capability(device.compute_capability),
        "cpu_cores": device.cores,
    }


def _obstacles(first: ComparedStudy, other: ComparedStudy) -> Iterable[Obstacle]:
    """Yield why step times or speed-ups of two studies cannot be compared."""
    one, two = first.result, other.result
    names = f"{first.name} and {other.name}"
    devices = [each.environment.device for each in (one, two)]
    if _script(one) != _script(two):
        why = f"{names} are of different scripts, {one.script} and {two.script}"
        yield Obstacle(STEP_TIMES, why)
        yield Obstacle(SPEED_UPS, why)
    elif one.args != two.args:
        yield Obstacle(STEP_TIMES, f"{names} gave the script different arguments")
    if devices[0].name != devices[1].name:
        why = f"{names} ran on different devices, {devices[0].name} and {devices[1].name}"
        yield Obstacle(STEP_TIMES, why)
    if one.objective is not two.objective:
        yield Obstacle(
            SPEED_UPS, f"{names} had different objectives, {one.objective} and {two.objective}"
        )
    if figures.steps_differ(figures.quantities(one.baseline), figures.quantities(two.baseline)):
        yield Obstacle(STEP_TIMES, f"a step of {names} holds another number of samples")
    for each in (first, other):
        if each.result.speedup is None:
            yield Obstacle(SPEED_UPS, f"{each.name} has no proof, which alone measures one")
        elif says_nothing(each.result.speedup):
            yield Obstacle(SPEED_UPS, f"runs of {each.name} {DIFFER} to show one")


def _script(result: StudyResult) -> str:
    """Return what tells scripts apart, wherever their folders are now."""
    return f"-m {result.script}" if result.is_module else PurePath(result.script).name


def _remarks(first: ComparedStudy, other: ComparedStudy) -> Iterable[str]:
    one, two = first.result, other.result
    names = f"{first.name} and {other.name}"
    if _script(one) == _script(two) and first.script != other.script:
        yield f"{names} ran scripts of one name in different places, which may not be the same."
    if one.environment.device.name != two.environment.device.name:
        yield f"{names} ran on different devices: a speed-up on one promises none on the other."
    commits = {each.environment.git_commit for each in (one, two)}
    if len(commits) > 1 or one.environment.git_dirty or two.environment.git_dirty:
        yield f"The script's code may have changed between {names}."
    if one.level is not two.level:
        yield f"{names} had different levels, {one.level} and {two.level}."
    for each in (first, other):
        if each.result.interrupted:
            yield f"{each.name} ended early."


def verdict_of_speedups(comparison: StudiesComparison) -> str | None:
    """Return in a sentence whether speed-ups of two studies differ; None where that is open.

    Each has a 99 % interval: where these do not touch, the difference is no chance.
    """
    if len(comparison.studies) != 2 or not comparison.is_comparable(SPEED_UPS):
        return None
    one, two = (each.result.speedup for each in comparison.studies)
    assert one is not None and two is not None  # else they could not be compared
    apart = one.ci99_low > two.ci99_high or two.ci99_low > one.ci99_high
    if not apart:
        return "The intervals of the speed-ups overlap: no difference is shown."
    better = comparison.studies[0 if one.ratio > two.ratio else 1].name
    return f"The speed-ups differ beyond their intervals: that of {better} is larger."
