"""What a diagnosis says of a run, before it is put into words, Markdown, JSON or SARIF."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from gpuadvisor.domain.finding import Diagnosis, Finding, NotMeasured
from gpuadvisor.domain.severity import Severity
from gpuadvisor.domain.telemetry_window import TelemetryWindow
from gpuadvisor.reports.profile.report import ProfileReport
from gpuadvisor.rules.facts.summary import Facts
from gpuadvisor.rules.requirements import (
    NOT_ON_THIS_GPU,
    WITH_COUNTERS,
    WITH_DAEMON,
    WITH_PROFILE,
    WITH_STEPS,
)
from gpuadvisor.rules.rule import Loaded

ONLY_PYTORCH = "only of programs of PyTorch"
"""Stands for how to measure what a program that is none of PyTorch does not have."""
_WITH_TIMELINE = (
    "nsys profile --trace=cuda,nvtx -o timeline PROGRAM (then gpuadvisor diagnose"
    " timeline.nsys-rep)"
)
WAYS_OF_PROGRAM = {
    WITH_PROFILE: _WITH_TIMELINE,
    WITH_STEPS: f"an NVTX range around each step, and {_WITH_TIMELINE}",
    WITH_COUNTERS: "ncu --set full -o counted PROGRAM (then gpuadvisor diagnose counted.ncu-rep)",
}
"""How to measure something of a program that need be no Python script, in place of gpuadvisor's
command for a script."""
_OF_GPUS = re.compile(r"aten::_?(cudnn|miopen)_(?!is_acceptable)\w+")
"""Names of PyTorch's operators that only a GPU runs. That cuDNN accepts something is asked on a CPU
as well."""
_OF_HIP = re.compile(r"hip(Ext)?(Module)?(Launch|Graph|Memcpy|Memset|Stream|Device)\w*")
"""Names of calls of HIP, in which programs on AMD's GPUs call them."""
OF_NVIDIA = (WITH_COUNTERS, WITH_DAEMON)
"""Ways that lead over NVIDIA's tools and driver: its counters, and NVML."""
MOST_AT_TOP = 3
"""Findings at the top: who reads more than three does none of them."""


@dataclass(frozen=True)
class DiagnosisReport:
    """A run and what the rules say of it."""

    name: str
    """Name of the profile, the script or the recording."""
    diagnosis: Diagnosis
    rules: Sequence[Loaded] = ()
    """The rules that were asked, whether they could look or not."""
    profile: ProfileReport | None = None
    stacked: Facts | None = None
    """Facts of one more step, which was recorded with stacks; None where none was."""
    telemetry: TelemetryWindow | None = None
    """A recording of telemetry; only where there is no profile."""
    stored: str | None = None
    """The name under which the profile is stored."""
    file: str | None = None
    script: tuple[str, ...] = ()
    """The words with which the script is started, after `python`; empty where it is not known."""
    notes: tuple[str, ...] = field(default=())
    version: str = ""
    """Version of gpuadvisor."""
    cut: int = 0
    """Number of findings that matter and that `--limit` left out."""

    @property
    def source(self) -> str:
        """Who recorded it: `kineto`, `nsys`, `ncu` or `telemetry`."""
        return "telemetry" if self.profile is None else self.profile.facts.profile.header.source

    @cached_property
    def worth_fixing(self) -> tuple[Finding, ...]:
        """Findings that matter and are no symptom of another one."""
        return tuple(each for each in self.diagnosis.shown if matters(each))

    @cached_property
    def remarks(self) -> tuple[Finding, ...]:
        """Findings that are good to know, and nothing to fix."""
        return tuple(each for each in self.diagnosis.shown if not matters(each))

    @cached_property
    def hidden(self) -> Mapping[str, tuple[Finding, ...]]:
        """Symptoms by the rule that found their cause."""
        found: dict[str, list[Finding]] = {}
        for each in self.diagnosis.findings:
            if each.hidden_by is not None:
                found.setdefault(each.hidden_by, []).append(each)
        return {rule: tuple(each) for rule, each in found.items()}

    @cached_property
    def is_of_program(self) -> bool:
        """Whether nothing says that a Python script was recorded, but NVIDIA's tools recorded
        something without a name of PyTorch's: a program in C++, Fortran, R, ... it may be."""
        if self.profile is None or self.script or self.source not in ("nsys", "ncu"):
            return False
        return not self.profile.facts.has_pytorchs_names

    @property
    def script_words(self) -> str:
        """The script as one names it to gpuadvisor, `SCRIPT` where it is not known."""
        if not self.script:
            return "SCRIPT"
        own, dashes, rest = script_parts(self.script)
        return shlex.join([*own, *dashes, *rest])

    @cached_property
    def not_measured(self) -> tuple[NotMeasured, ...]:
        """What could not be looked at, each with the command that measures it for this program."""
        needs = {rule.name: rule.rule.needs for rule in self.rules if self.is_of_program}
        found = []
        for each in self.diagnosis.not_measured:
            never = any(need.of_pytorch for need in needs.get(each.rule, ()))
            found.append(replace(each, how=ONLY_PYTORCH if never else self._way(each.how)))
        return tuple(found)

    def _way(self, how: str) -> str:
        if self.is_of_program:
            return WAYS_OF_PROGRAM.get(how, how)
        profile = self.profile
        if how in OF_NVIDIA and profile is not None and is_of_amd(profile.facts):
            return NOT_ON_THIS_GPU
        command = how.replace("SCRIPT", self.script_words)
        if profile is None or profile.facts.time_breakdowns or self.source != "kineto":
            return command
        if operator_of_gpus(profile.facts):
            return command
        # Where nothing ran on a GPU the same command would tell as little again.
        is_own = command.startswith("gpuadvisor ")
        return f"on a machine with a GPU, {command}" if is_own else command

    @cached_property
    def ways_to_measure(self) -> Mapping[str, tuple[NotMeasured, ...]]:
        """How to measure something to what could be known then; what tells most first."""
        found: dict[str, list[NotMeasured]] = {}
        for each in self.not_measured:
            found.setdefault(each.how, []).append(each)
        ordered = sorted(found.items(), key=lambda each: (-len(each[1]), each[0]))
        return {how: tuple(each) for how, each in ordered}

    @cached_property
    def able(self) -> tuple[Loaded, ...]:
        """The rules that could look."""
        silent = {each.rule for each in self.diagnosis.not_measured}
        silent |= {rule for rule, _ in self.diagnosis.failed}
        return tuple(rule for rule in self.rules if rule.name not in silent)

    @property
    def looked_at(self) -> tuple[str, ...]:
        """Categories of the rules that could look, in words."""
        words = sorted(str(rule.rule.category).replace("_", " ") for rule in self.able)
        return tuple(dict.fromkeys(words))

    def limited(self, most: int) -> DiagnosisReport:
        """Return the same with only so many findings."""
        kept = replace(self.diagnosis, findings=self.diagnosis.findings[:most])
        shorter = replace(self, diagnosis=kept)
        return replace(shorter, cut=len(self.worth_fixing) - len(shorter.worth_fixing))


def of_profile(profile: ProfileReport) -> DiagnosisReport | None:
    """Return what was diagnosed of a profile, for its own report; None where nothing was."""
    if profile.diagnosis is None:
        return None
    return DiagnosisReport(profile.name, profile.diagnosis, profile.rules, profile)


def matters(finding: Finding) -> bool:
    """Return whether a finding is something to fix, rather than to know."""
    return finding.severity.rank >= Severity.NOTICE.rank


def script_parts(script: Sequence[str]) -> tuple[list[str], list[str], list[str]]:
    """Return the script's name, `--` where it has arguments of its own, and these."""
    own = 2 if script[0] == "-m" else 1
    rest = list(script[own:])
    return list(script[:own]), ["--"] if rest else [], rest


def operator_of_gpus(facts: Facts) -> str:
    """Return an operator that ran and that only a GPU runs; empty where there is none."""
    named = np.unique(facts.profile.columns("operators", ("name",))["name"]).tolist()
    texts = facts.profile.header.texts
    return next((texts[name] for name in named if _OF_GPUS.fullmatch(texts[name])), "")


def is_of_amd(facts: Facts) -> bool:
    """Say whether the program used a GPU of AMD's: it called HIP."""
    return any(_OF_HIP.fullmatch(text) for text in facts.profile.header.texts)
