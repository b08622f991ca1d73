"""A study for machines. Every field is explained in docs/json.md."""

from __future__ import annotations

from typing import Any

from gpuadvisor.domain.device import Device, Environment
from gpuadvisor.domain.knobs import Contribution
from gpuadvisor.domain.measurement import Measurement
from gpuadvisor.domain.study import Equivalence, Expectation, Speedup, StudyResult, Trial
from gpuadvisor.reports import figures, strict_json
from gpuadvisor.reports.quantities import quantities

SCHEMA_VERSION = 1
"""Version of the JSON: grows when a field goes or changes its meaning, not when one is added."""

Json = dict[str, Any]


def study_json(result: StudyResult) -> Json:
    """Return the study as values that are strictly valid JSON: NaN and infinity become None."""
    document: Json = strict_json.strict(
        {
            "schema_version": SCHEMA_VERSION,
            "study": result.study,
            "script": result.script,
            "args": list(result.args),
            "started": result.started or None,
            "wall_s": result.wall_s,
            "interrupted": result.interrupted or None,
            "level": str(result.level),
            "objective": str(result.objective),
            "verdict": result.verdict,
            "speedup": _speedup(result.speedup),
            "device": _device(result.environment.device),
            "environment": _environment(result.environment),
            "baseline": _run(result.baseline),
            "best": None
            if result.best is None
            else {**_run(result.best), "knobs": dict(result.settings)},
            "contributions": [_contribution(each) for each in result.contributions],
            "equivalence": _equivalence(result.equivalence),
            "expectations": [_expectation(each) for each in result.expectations],
            "no_effect": dict(result.no_effect),
            "notes": list(result.notes),
            "plan": result.plan,
            "trials": [_trial(trial) for trial in result.trials],
        }
    )
    return document


def study_json_text(result: StudyResult) -> str:
    """Return the study as indented JSON, in ASCII, so that no terminal's encoding matters."""
    return strict_json.text(study_json(result))


def _device(device: Device) -> Json:
    return {
        "kind": device.kind,
        "name": device.name,
        "index": device.index,
        "uuid": device.uuid,
        "memory_bytes": device.memory_bytes,
        "compute_capability": figures.capability(device.compute_capability),
    }


def _environment(environment: Environment) -> Json:
    return {
        "python": environment.python,
        "torch": environment.torch,
        "cuda": environment.cuda,
        "cudnn": environment.cudnn,
        "driver": environment.driver,
        "platform": environment.platform,
        "cpu_cores": environment.device.cores,
        "sm_clock_mhz": environment.sm_clock_mhz,
        "sm_clock_max_mhz": environment.sm_clock_max_mhz,
        "power_limit_w": environment.power_limit_w,
        "git_commit": environment.git_commit,
        "git_dirty": environment.git_dirty,
        "gpuadvisor": environment.gpuadvisor,
    }


def _run(measurement: Measurement) -> Json:
    measured = quantities(measurement)
    return {
        "step_ms": {
            "p50": measured.p50_ms,
            "p95": measured.p95_ms,
            "mean": measured.mean_ms,
        },
        "throughput": measured.throughput,
        "throughput_unit": measured.unit,
        "samples_per_step": measured.samples_per_step,
        "peak_memory_bytes": measured.peak_memory_bytes,
        "energy_j_per_step": measured.energy_j_per_step,
        "steps": measurement.steps,
    }


def _speedup(speedup: Speedup | None) -> Json | None:
    if speedup is None:
        return None
    return {
        "ratio": speedup.ratio,
        "ci99_low": speedup.ci99_low,
        "ci99_high": speedup.ci99_high,
        "pairs": speedup.pairs,
    }


def _contribution(contribution: Contribution) -> Json:
    return {
        "knob": contribution.knob,
        "value": contribution.value,
        "ratio": contribution.ratio,
        "ci99_low": contribution.low,
        "ci99_high": contribution.high,
    }


def _equivalence(equivalence: Equivalence | None) -> Json:
    known = equivalence or Equivalence("not_checked", "", reason="there is nothing to compare")
    return {
        "status": known.status,
        "metric": known.metric or None,
        "value": known.value,
        "limit": known.limit,
        "reason": known.reason or None,
    }


def _expectation(expectation: Expectation) -> Json:
    low, high = expectation.low_pct, expectation.high_pct
    estimated = low is not None and high is not None
    return {
        "rule": expectation.rule,
        "severity": expectation.severity,
        "summary": expectation.summary,
        "predicted_pct": {"low": low, "high": high} if estimated else None,
        "measured_pct": expectation.measured_pct,
        "is_met": expectation.is_met,
        "knobs": list(expectation.knobs),
        "measured_with": dict(expectation.settings),
        "why_not_measured": expectation.why or None,
    }


def _trial(trial: Trial) -> Json:
    measured = quantities(trial.measurement)
    return {
        "number": trial.number,
        "phase": trial.phase,
        "knobs": dict(trial.settings),
        "state": str(trial.state),
        "reason": trial.reason or None,
        "step_ms": measured.mean_ms,
        "throughput": measured.throughput,
        "gain": trial.gain,
        "gpu": trial.gpu,
        "wall_s": trial.wall_s,
    }
