"""Diagnoses made by hand, for tests of how they are shown."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpuadvisor.domain.finding import (
    Category,
    Diagnosis,
    Figure,
    Finding,
    NotMeasured,
    Scope,
    ScopeKind,
    Span,
)
from gpuadvisor.domain.severity import Severity
from gpuadvisor.domain.telemetry import Gpu
from gpuadvisor.domain.telemetry_window import GpuWindow, TelemetryWindow
from gpuadvisor.reports.diagnosis.report import DiagnosisReport
from gpuadvisor.reports.profile.report import ProfileReport
from gpuadvisor.rules.rule import Loaded, Rule

PROFILE = "gpuadvisor profile SCRIPT"
COUNTERS = "gpuadvisor profile --ncu SCRIPT"
GEMM = "void cutlass::Kernel<at::native::Half, 3>(float*, int)"
INPUT = Finding(
    "input_bound",
    Category.INPUT_BOUND,
    Severity.CRITICAL,
    Scope(),
    "The GPU is idle for 61% of the run because the script waits for its next batch",
    (Figure("gpu_idle_waiting_for_data", 61.2, "%", 2.0), Figure("workers", 0)),
    Span(32.0, 61.2),
    1.84,
    "At most all of the waiting.",
    "Load batches in more worker processes.",
    ("dataloader_workers", "pin_memory", "prefetch_factor"),
    "train.py:42",
    parts=("idle/waiting_for_data",),
    uncalibrated_pct=Span(25.0, 70.0),
)
KERNEL = Finding(
    "uncoalesced_loads",
    Category.COALESCING,
    Severity.WARNING,
    Scope(ScopeKind.KERNEL, GEMM),
    "The kernel reads 32 bytes for each 4 that it uses",
    (Figure("bytes_read", 805_306_368, "bytes"), Figure("pattern", "strided")),
    Span(10.0, 14.0),
    0.48,
    "What is left at the DRAM roof.",
    "Let neighbouring threads read neighbouring places.",
)
SYMPTOM = replace(
    KERNEL,
    rule="launch_bound",
    severity=Severity.NOTICE,
    scope=Scope(),
    summary="The host launches late",
    hidden_by="input_bound",
)
REMARK = replace(
    INPUT,
    parts=(),
    rule="memory_room",
    severity=Severity.INFO,
    summary="Half of the GPU's memory is free",
    improvement_pct=None,
    saving_ms=None,
    source=None,
)
MISSING = (
    NotMeasured("tail_effect", "no hardware counters of kernels", COUNTERS),
    NotMeasured("divergence", "no hardware counters of kernels", COUNTERS),
    NotMeasured("memory_growth", "the profile has no memory", PROFILE),
)


def rule(name: str, category: Category = Category.COMPUTE, page: str = "") -> Loaded:
    """A rule of which only the name, the category and the page matter."""
    return Loaded(name, f"What {name} finds", Rule(category, ()), lambda _: (), lambda: page)


RULES = (
    rule("input_bound", Category.INPUT_BOUND, "# input_bound: the GPU waits\n\nA page.\n"),
    rule("uncoalesced_loads", Category.COALESCING),
    rule("tail_effect", Category.TAIL),
    rule("divergence", Category.DIVERGENCE),
    rule("memory_growth", Category.MEMORY_CAPACITY),
)
DIAGNOSIS = Diagnosis(
    (INPUT, KERNEL, REMARK, SYMPTOM), MISSING, (("broken", "ZeroDivisionError: of zero"),), 4.0,
    Span(37.0, 65.0),
)  # fmt: skip
NOTHING = Diagnosis((), MISSING, (), 4.0, None)


def diagnosis_report(
    profile: ProfileReport | None, diagnosis: Diagnosis = DIAGNOSIS, **more: Any
) -> DiagnosisReport:
    """What the rules above say of a profile that is stored as `train`."""
    usual = {"rules": RULES, "profile": profile, "stored": "train", "version": "0.1.0"}
    return DiagnosisReport("train", diagnosis, **{**usual, **more})


def of_telemetry(diagnosis: Diagnosis = NOTHING) -> DiagnosisReport:
    """Of a recording of one GPU."""
    window = TelemetryWindow(100.0, 292.0, (GpuWindow(Gpu("GPU-1", 0, "H100")),))
    return DiagnosisReport("run.gpr", diagnosis, RULES, telemetry=window)
