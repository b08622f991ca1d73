"""Why a run ended, as a state and one sentence that its user understands."""

from __future__ import annotations

import re
import signal
from enum import Enum, auto
from pathlib import Path

from gpuadvisor.collectors.script.events import Recorder
from gpuadvisor.collectors.script.request import RunOutcome, RunRequest
from gpuadvisor.domain.study import TrialState


class Ending(Enum):
    """What made the runner stop watching."""

    FINISHED = auto()
    EXITED = auto()
    NO_STEP = auto()
    STUCK = auto()
    OUT_OF_TIME = auto()
    TOO_SLOW = auto()
    CANCELLED = auto()


def conclude(
    request: RunRequest,
    recorder: Recorder,
    ending: Ending,
    status: int | None,
    output: str,
    wall_s: float,
    stuck: list[int],
) -> RunOutcome:
    """Turn what is known of a finished run into its outcome."""
    measurement = recorder.measurement(request.specification.samples_per_step, wall_s)
    place = _place(request, recorder)
    if ending is Ending.FINISHED and measurement is not None:
        short = bool(recorder.finished and recorder.finished["short"])
        failed = _failure(recorder, status, output) if recorder.exception else None
        if failed is None:
            return RunOutcome(
                TrialState.COMPLETE, "", measurement, output, wall_s, "", recorder.steps, short
            )
    state, reason = _explain(request, recorder, ending, status, output)
    if stuck:
        reason += f"; processes {', '.join(map(str, stuck))} could not be ended"
    return RunOutcome(state, reason, None, output, wall_s, place, recorder.steps)


def _explain(
    request: RunRequest, recorder: Recorder, ending: Ending, status: int | None, output: str
) -> tuple[TrialState, str]:
    limits = request.limits
    match ending:
        case Ending.NO_STEP:
            return TrialState.HUNG, f"no step within {limits.startup_s:.0f} s"
        case Ending.STUCK:
            return TrialState.HUNG, f"no sign of life for {limits.idle_s:.0f} s"
        case Ending.OUT_OF_TIME:
            return TrialState.HUNG, f"not measured within {limits.total_s:.0f} s"
        case Ending.TOO_SLOW:
            return TrialState.PRUNED, "clearly slower than what was found before"
        case Ending.CANCELLED:
            return TrialState.PRUNED, "stopped because the study ended"
        case _:
            return _failure(recorder, status, output) or _too_few(recorder)


def _failure(recorder: Recorder, status: int | None, output: str) -> tuple[TrialState, str] | None:
    """Return the state and reason of a run that ended badly; None for a good end."""
    exception = recorder.exception
    if exception is not None and exception["type"] != "KeyboardInterrupt":
        first = exception["message"].strip().splitlines()[:1]
        text = f"{exception['type']}: {first[0] if first else ''}".rstrip(": ")
        if _is_out_of_memory(exception["type"] + exception["message"]):
            return TrialState.OUT_OF_MEMORY, text
        return TrialState.CRASHED, text
    if status is not None and status < 0 and recorder.finished is None:
        return TrialState.CRASHED, _signal_text(-status)
    if status:
        if _is_out_of_memory(output[-4000:]):
            return TrialState.OUT_OF_MEMORY, "the GPU ran out of memory"
        return TrialState.CRASHED, f"ended with exit status {status}"
    return None


def _signal_text(number: int) -> str:
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    hint = {
        signal.SIGSEGV: " (a segmentation fault in native code)",
        signal.SIGKILL: " (often the system ran out of memory)",
        signal.SIGBUS: " (often /dev/shm is full)",
    }
    return f"killed by {name}{hint.get(signal.Signals(number), '') if name[0] == 'S' else ''}"


def _is_out_of_memory(text: str) -> bool:
    return bool(re.search(r"OutOfMemoryError|CUDA out of memory|CUBLAS_STATUS_ALLOC_FAILED", text))


def _too_few(recorder: Recorder) -> tuple[TrialState, str]:
    if recorder.owner is None:
        return (
            TrialState.UNSUPPORTED,
            "ended without a step: no optimizer step, backward pass or module call was seen",
        )
    return TrialState.UNSUPPORTED, f"ended after {recorder.steps} steps, too few to measure"


def _place(request: RunRequest, recorder: Recorder) -> str:
    exception = recorder.exception
    if exception is None or not exception["file"]:
        return ""
    file = Path(exception["file"])
    name = request.command.script if file.name == Path(request.command.script).name else str(file)
    return f"{name}, line {exception['line']}"
