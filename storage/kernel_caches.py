"""Brute-forced and searched spaces of kernels in files: Kernel Tuner's cache and the T4 format.

A cache is written as Kernel Tuner writes it, a line a point and the end left open until it is
finished, so that whoever is killed loses no evaluation, and either program reads the other's. What
Kernel Tuner has no field for stands beside its own: `problem` (sizes by name), `default_times`,
`reason`, `resources` and others.
T4: https://github.com/odgaard/TuningSchema.
"""

from __future__ import annotations

import gzip
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpuadvisor.domain.kernel_records import Evaluation, Record, Sizes
from gpuadvisor.domain.knobs import Value
from gpuadvisor.domain.study import TrialState
from gpuadvisor.errors import StoreError, UsageError

_FAILED = {
    TrialState.UNSUPPORTED: "CompilationFailedConfig",
    TrialState.CRASHED: "RuntimeFailedConfig",
    TrialState.HUNG: "RuntimeFailedConfig",
    TrialState.OUT_OF_MEMORY: "RuntimeFailedConfig",
    TrialState.WRONG: "InvalidConfig",
}
"""What Kernel Tuner writes in place of a time (`kernel_tuner.util.ErrorConfig`)."""
_STATES = {
    "CompilationFailedConfig": TrialState.UNSUPPORTED,
    "RuntimeFailedConfig": TrialState.CRASHED,
    "InvalidConfig": TrialState.UNSUPPORTED,
}
_INVALIDITY = {
    TrialState.COMPLETE: "correct", TrialState.PRUNED: "correct", TrialState.WRONG: "correctness",
    TrialState.UNSUPPORTED: "compile", TrialState.HUNG: "timeout",
}  # fmt: skip
"""T4's words for states; the others are `runtime`."""
_T4_STATES = {
    "correct": TrialState.COMPLETE, "correctness": TrialState.WRONG, "timeout": TrialState.HUNG,
    "compile": TrialState.UNSUPPORTED, "constraints": TrialState.UNSUPPORTED,
}  # fmt: skip
_MS = {"ns": 1e-6, "nanoseconds": 1e-6, "us": 1e-3, "microseconds": 1e-3, "s": 1e3, "seconds": 1e3}
"""Milliseconds by the unit of a T4 measurement; any other word, and none, means milliseconds."""
NO_TIME = 1e19
"""Times from which old files of Kernel Tuner mean a failure: it wrote 1e20."""


def read(path: Path) -> Record:
    """Return what a cache or T4 file holds, also compressed; UsageError, in words, for others."""
    document = _document(path)
    try:
        if "cache" in document:
            return _cache(document)
        if "results" in document:
            return _t4(document, path)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise UsageError(
            f"{path} is damaged ({type(error).__name__}: {error}): it must be a cache file of "
            "Kernel Tuner or a T4 file"
        ) from error
    raise UsageError(f"{path} is neither a cache file of Kernel Tuner nor a T4 file")


class Cache:
    """A cache file that grows by a line with each evaluation."""

    def __init__(self, path: Path, record: Record) -> None:
        """Begin a file, or go on with one of the same space; `earlier` is what it holds."""
        self.path = path
        self.record = record
        self.earlier: tuple[Evaluation, ...] = ()
        if path.is_file():
            before = read(path)
            if _space(before) != _space(record):
                raise UsageError(
                    f"{path} holds another space than {record.kernel} has now: move it away, or "
                    "tune without --resume"
                )
            self.earlier = before.evaluations
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._write(_head(record) + "".join(map(_line, self.earlier)))
        except OSError as error:
            raise StoreError(f"{path} cannot be written: {error.strerror}") from error

    def add(self, evaluation: Evaluation) -> None:
        """Append a point."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(_line(evaluation))

    def finish(self) -> None:
        """Close the file's braces, as Kernel Tuner does."""
        text = self.path.read_text("utf-8").rstrip(",")
        self._write(f"{text}\n}}\n}}")

    def _write(self, text: str) -> None:
        """Replace the file as a whole: who is killed meanwhile has the one before."""
        draft = self.path.with_name(f"{self.path.name}.{os.getpid()}.new")
        draft.write_text(text, "utf-8")
        draft.replace(self.path)


def write_t4(record: Record, folder: Path) -> Path:
    """Write a record as T4 into a folder, and return the file's path; StoreError, in words, where
    that cannot be written.
    """
    sizes = record.problem.items() if isinstance(record.problem, Mapping) else ()
    words = [record.kernel, *(f"{name}{value}" for name, value in sizes), record.device]
    name = "-".join("".join(c if c.isalnum() else "_" for c in word) for word in words if word)
    path = folder / f"{name[:200]}_T4.json"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(t4(record)), "utf-8")
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror}") from error
    return path


def t4(record: Record) -> dict[str, Any]:
    """Return the T4 document of a record."""
    return {
        "schema_version": "1.0.0",
        "metadata": {"timeunit": "milliseconds", "kernel": record.kernel, "device": record.device},
        "results": [_t4_result(each) for each in record.evaluations],
    }


def _document(path: Path) -> dict[str, Any]:
    try:
        data = path.read_bytes()
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
    except (OSError, EOFError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"{path} cannot be read: {reason}") from None
    text = data.decode("utf-8", "replace").rstrip()
    # It is left open while a tuner writes it; a full disk, or a copy meanwhile, cuts its last line.
    for whole in (
        text,
        f"{text.rstrip(',')}}}}}",
        f"{text.rpartition(chr(10))[0].rstrip(',')}}}}}",
    ):
        try:
            document = json.loads(whole)
        except ValueError:
            continue
        if isinstance(document, dict):
            return document
        raise UsageError(f"{path} is neither a cache file of Kernel Tuner nor a T4 file")
    raise UsageError(f"{path} is no JSON: it must be a cache file of Kernel Tuner or a T4 file")


def _cache(document: Mapping[str, Any]) -> Record:
    names = document["tune_params_keys"]
    objective = document.get("objective") or "time"
    objective = objective[0] if isinstance(objective, list) else objective
    rows = [_evaluation(names, entry, objective) for entry in document["cache"].values()]
    size = document.get("problem", document.get("problem_size", ()))
    return Record(
        str(document.get("kernel_name", "")),
        str(document.get("device_name", "")),
        size if isinstance(size, dict) else tuple(size) if isinstance(size, list) else (size,),
        {name: tuple(document["tune_params"][name]) for name in names},
        tuple(rows),
    )


def _evaluation(names: Sequence[str], entry: Mapping[str, Any], objective: str) -> Evaluation:
    point = {name: entry[name] for name in names}
    error = entry.get("__error__")
    time = error if error is not None else entry.get(objective)
    if isinstance(time, int | float):  # of an objective as GFLOP/s, where more is better
        time = entry["time"]
    times = tuple(each for each in entry.get("times") or () if isinstance(each, int | float))
    costs = [float(entry.get(f"{name}_time") or 0.0) for name in ("compile", "verification")]
    if isinstance(time, int | float) and _is_time(time):
        return Evaluation(
            point,
            TrialState(entry.get("state", TrialState.COMPLETE)),
            entry.get("reason", ""),
            times_ms=times,
            default_ms=tuple(entry.get("default_times", ())),
            recorded_ms=float(time),
            compile_ms=costs[0],
            check_ms=costs[1],
            timing_ms=float(entry.get("benchmark_time") or 0.0),
            resources=entry.get("resources", {}),
            energy_mj=entry.get("energy_mj"),
            default_energy_mj=entry.get("default_energy_mj"),
            clock_mhz=entry.get("clock_mhz"),
            slowed_by=tuple(entry.get("slowed_by", ())),
        )
    state = entry.get("state") or _STATES.get(str(time), TrialState.CRASHED)
    return Evaluation(point, TrialState(state), entry.get("reason", str(time)), compile_ms=costs[0])


def _is_time(value: float) -> bool:
    """Tell a time from what tuners write where they measured none."""
    return math.isfinite(value) and 0 < value < NO_TIME


def _head(record: Record) -> str:
    fields = {
        "device_name": record.device,
        "kernel_name": record.kernel,
        "problem_size": _numbers(record.problem),
        "problem": record.problem,
        "tune_params_keys": list(record.parameters),
        "tune_params": {name: list(values) for name, values in record.parameters.items()},
        "objective": "time",
    }
    return json.dumps(fields)[:-1] + ',\n"cache": {'


def _line(evaluation: Evaluation) -> str:
    return f"\n{_entry(evaluation)},"


def _entry(evaluation: Evaluation) -> str:
    time = evaluation.time_ms
    failed = _FAILED.get(evaluation.state, "RuntimeFailedConfig") if time is None else None
    fields = {
        **evaluation.point,
        "time": failed or time,
        **({"__error__": failed} if failed else {}),
        "times": evaluation.times_ms,
        "compile_time": evaluation.compile_ms,
        "verification_time": evaluation.check_ms,
        "benchmark_time": evaluation.timing_ms,
        "strategy_time": 0,
        "framework_time": 0,
        "default_times": evaluation.default_ms,
        "state": str(evaluation.state),
        "reason": evaluation.reason,
        "resources": dict(evaluation.resources),
        "energy_mj": evaluation.energy_mj,
        "default_energy_mj": evaluation.default_energy_mj,
        "clock_mhz": evaluation.clock_mhz,
        "slowed_by": evaluation.slowed_by,
    }
    key = ",".join(str(value) for value in evaluation.point.values())
    return f"{json.dumps(key)}: {json.dumps(fields)}"


def _numbers(problem: Sizes | Sequence[int]) -> list[int | float]:
    """Return a problem's sizes as Kernel Tuner takes them: at least one number."""
    values = problem.values() if isinstance(problem, Mapping) else problem
    return [each for each in values if isinstance(each, int | float)] or [1]


def _space(record: Record) -> tuple[Any, ...]:
    return record.kernel, record.device, _numbers(record.problem), dict(record.parameters)


def _t4(document: Mapping[str, Any], path: Path) -> Record:
    found = []
    for result in document["results"]:
        objective = (result.get("objectives") or ["time"])[0]
        measured = [m for m in result["measurements"] if m["name"] == objective]
        unit_ms = _MS.get(str(measured[0].get("unit")).lower(), 1.0) if measured else 1.0
        times = result.get("times") or {}
        state = _T4_STATES.get(result["invalidity"], TrialState.CRASHED)
        time_ms = unit_ms * float(measured[0]["value"]) if measured else 0.0
        if state is TrialState.COMPLETE and measured and not _is_time(time_ms):
            state = TrialState.CRASHED
        is_correct = state is TrialState.COMPLETE and bool(measured)
        found.append(
            Evaluation(
                result["configuration"],
                state,
                "" if is_correct else str(result["invalidity"]),
                times_ms=tuple(unit_ms * each for each in times.get("runtimes") or ())
                if is_correct
                else (),
                recorded_ms=time_ms if is_correct else None,
                compile_ms=float(times.get("compilation") or times.get("compilation_time") or 0),
            )
        )
    if not found:
        raise UsageError(f"{path} holds no result")
    metadata = document.get("metadata") or {}
    parameters = {n: _values(e.point[n] for e in found) for n in found[0].point}
    return Record(
        str(metadata.get("kernel", path.name.split(".")[0])),
        str(metadata.get("device", "")),
        {},
        parameters,
        tuple(found),
    )


def _values(values: Iterable[Value]) -> tuple[Value, ...]:
    seen = dict.fromkeys(values)
    return tuple(sorted(seen) if not any(isinstance(v, str) for v in seen) else seen)


def _t4_result(evaluation: Evaluation) -> dict[str, Any]:
    time = evaluation.time_ms
    return {
        "configuration": dict(evaluation.point),
        "times": {
            "compilation": evaluation.compile_ms,
            "benchmark": evaluation.timing_ms,
            "framework": 0.0,
            "search_algorithm": 0.0,
            "validation": evaluation.check_ms,
            "runtimes": list(evaluation.times_ms),
        },
        "invalidity": _INVALIDITY.get(evaluation.state, "runtime"),
        "correctness": int(evaluation.state in (TrialState.COMPLETE, TrialState.PRUNED)),
        "measurements": [] if time is None else [{"name": "time", "value": time, "unit": "ms"}],
        "objectives": ["time"],
    }
