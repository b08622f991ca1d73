"""The GPU's memory has errors."""

from __future__ import annotations

from collections.abc import Iterator

from gpuadvisor.domain.finding import Category, Figure, Severity
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.gpus import called, gpus_of_run, scope
from gpuadvisor.rules.requirements import sampled
from gpuadvisor.rules.rule import Rule, RuleResult

UNCORRECTED = "ecc_uncorrected_volatile"
CORRECTED = "ecc_corrected_volatile"
STORM_ERRORS = 100
"""Corrected ones of the time looked at: a healthy GPU corrects a few a week, and NVIDIA gives no
number. [own]"""

RULE = Rule(Category.HEALTH, needs=(sampled(UNCORRECTED),))


def check(evidence: Evidence) -> Iterator[RuleResult]:
    """Find errors that were counted within the time; those of before say nothing of this run."""
    for window in gpus_of_run(evidence):
        lost, mended = (window.series.get(name) for name in (UNCORRECTED, CORRECTED))
        if lost is not None and lost.grown >= 1:
            yield RuleResult(
                f"The memory of {called(window.gpu)} had {_errors(lost.grown)} that could not be"
                " corrected: results may be wrong",
                (Figure(UNCORRECTED, int(lost.grown), "", 1),),
                "Stop what runs on it, throw its results away, and reset it with"
                f" `sudo nvidia-smi --gpu-reset -i {window.gpu.index}`; have it replaced if they"
                " come again.",
                scope=scope(window.gpu),
                severity=Severity.CRITICAL,
            )
        elif mended is not None and mended.grown >= STORM_ERRORS:
            yield RuleResult(
                f"The memory of {called(window.gpu)} had {_errors(mended.grown)} that were"
                " corrected: it may be failing",
                (Figure(CORRECTED, int(mended.grown), "", STORM_ERRORS),),
                "Watch it, and reset it when it can be spared, so that failing rows are replaced.",
                scope=scope(window.gpu),
                severity=Severity.WARNING,
            )


def _errors(count: float) -> str:
    return "an error" if count == 1 else f"{count:.0f} errors"
