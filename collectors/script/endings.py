"""Why a run ended, as a state and one sentence that its user understands."""

from __future__ import annotations

import re
import signal
from enum import Enum, auto
from pathlib import Path

from gpuadvisor.collectors.script.child.torch_profiler import NAME as PROFILER
from gpuadvisor.collectors.script.events import RunRecorder
from gpuadvisor.collectors.script.request import Event, Limits, RunOutcome, RunRequest
from gpuadvisor.domain.study import TrialState

OUT_OF_MEMORY = re.compile(r"OutOfMemoryError|CUDA out of memory|CUBLAS_STATUS_ALLOC_FAILED")
ASSERTION = re.compile(r"(\S+): block: \[[^]]*\], thread: \[[^]]*\] Assertion `([^`]*)` failed")
"""How CUDA tells which assertion of which kernel did not hold: in the output, once a thread; the
exception does not have it."""
TAIL = 4000
"""Characters at the end of the output in which the cause of a crash is looked for."""
REASON = 300
"""Characters of a message or a line that are quoted."""
MARK_STEPS = (
    "if it has steps of another kind, mark them: `import gpuadvisor` and call "
    "`gpuadvisor.step()` at the end of each"
)
WITHOUT_TORCH = (
    "the steps of a script without torch are those that it marks: `import gpuadvisor` and call "
    "`gpuadvisor.step()` at the end of each"
)
SIGNALS = {
    signal.SIGSEGV: " (a segmentation fault in native code)",
    signal.SIGKILL: " (often the system ran out of memory)",
    signal.SIGBUS: " (often /dev/shm is full)",
}


class Ending(Enum):
    """What made the runner stop watching."""

    FINISHED = auto()
    EXITED = auto()
    NO_STEP = auto()
    NO_TORCH = auto()
    STUCK = auto()
    OUT_OF_TIME = auto()
    TOO_SLOW = auto()
    CANCELLED = auto()
    IDLE_KNOBS = auto()


def conclude(
    request: RunRequest,
    recorder: RunRecorder,
    ending: Ending,
    status: int | None,
    output: str,
    wall_s: float,
    stuck: list[int],
) -> RunOutcome:
    """Turn what is known of a finished run into its outcome."""
    if ending in (Ending.FINISHED, Ending.EXITED):
        measurement = recorder.measurement(request.specification.samples_per_step, wall_s)
        short = bool(recorder.finished and recorder.finished["short"])
        # What is measured to the end is killed then, so its status says nothing.
        failed = _failure(recorder, status if ending is Ending.EXITED else None, output)
        if measurement is not None and (failed is None or not short):
            return RunOutcome(
                TrialState.COMPLETE,
                "",
                measurement,
                output,
                wall_s,
                steps=recorder.steps,
                short=short,
            )
    if ending is Ending.EXITED and request.specification.shortening is not None:
        state, reason = _failure(recorder, status, output) or (TrialState.COMPLETE, "")
    else:
        state, reason = _explain(request, recorder, ending, status, output)
    if stuck:
        reason += f"; processes {', '.join(map(str, stuck))} could not be ended"
    exception = recorder.exception(bool(status))
    return RunOutcome(
        state,
        reason,
        None,
        output,
        wall_s,
        _place(request, exception),
        exception.get("own", "") if exception is not None else "",
        recorder.steps,
    )


def _explain(
    request: RunRequest, recorder: RunRecorder, ending: Ending, status: int | None, output: str
) -> tuple[TrialState, str]:
    limits = request.limits
    match ending:
        case Ending.NO_STEP:
            state, reason = _late("no step within", limits.startup_s, limits)
            # With knobs, time may have been too short for what is known to have steps.
            is_plain = not request.specification.applications
            says_why = state is TrialState.HUNG or is_plain
            return state, f"{reason}: {_unseen(request, recorder)}" if says_why else reason
        case Ending.NO_TORCH:
            state, reason = _late("it did not import torch within", limits.import_s, limits)
            return state, f"{reason}{_without_torch(request)}"
        case Ending.STUCK:
            return _late("no sign of life for", limits.idle_s, limits)
        case Ending.OUT_OF_TIME:
            state, reason = _late("not measured within", limits.total_s, limits)
            is_plain = not request.specification.applications
            return state, f"{reason}{_steps_by_then(recorder, limits.total_s) if is_plain else ''}"
        case Ending.TOO_SLOW:
            return TrialState.PRUNED, "clearly slower than what was found before"
        case Ending.IDLE_KNOBS:
            return _idle(request, recorder)
        case Ending.CANCELLED:
            return TrialState.PRUNED, "stopped because the study ended"
        case _:
            return _failure(recorder, status, output) or _too_few(request, recorder)


def _steps_by_then(recorder: RunRecorder, limit_s: float) -> str:
    """Return what is known of the steps of a run that took too long, as the end of a sentence."""
    if recorder.owner is None:
        return ": no step was seen"
    if recorder.steps > 1:
        return f": {recorder.steps} steps were seen"
    first_s = recorder.first_step_s
    return (
        f": its first step was seen after {first_s:.0f} s, and no second one in the"
        f" {max(limit_s - first_s, 0):.0f} s that followed"
    )


def _late(what: str, limit_s: float, limits: Limits) -> tuple[TrialState, str]:
    """Return why a run that takes too long was ended: it hangs, or the budget has no room."""
    reason = f"{what} {limit_s:.0f} s"
    if limit_s < limits.room_s:
        return TrialState.HUNG, reason
    return TrialState.PRUNED, f"{reason}, which is all that the budget has room for"


def _idle(request: RunRequest, recorder: RunRecorder) -> tuple[TrialState, str]:
    """Return why the knobs that were to be tried did nothing."""
    names = ", ".join(sorted(request.needed))
    refused = [a for a in recorder.applied.values() if a.knob in request.needed and a.detail]
    if refused:
        return TrialState.UNSUPPORTED, f"{refused[0].knob}: {refused[0].detail}"
    return TrialState.NO_EFFECT, f"{names} found nothing to change in this script"


def _failure(
    recorder: RunRecorder, status: int | None, output: str
) -> tuple[TrialState, str] | None:
    """Return the state and reason of a run that ended badly; None for a good end."""
    exception = recorder.exception(bool(status))
    if exception is not None and exception["type"] != "KeyboardInterrupt":
        said = _headline(exception["message"])
        if exception["file"]:  # a SyntaxError says its place itself
            at = f" ({Path(exception['file']).name}, line {exception['line']})"
            said = said.removesuffix(at)
        text = f"{exception['type']}: {said}".rstrip(": ")
        if OUT_OF_MEMORY.search(exception["type"] + exception["message"]):
            return TrialState.OUT_OF_MEMORY, text
        found = ASSERTION.search(output) if "device-side assert" in text else None
        if found is not None:
            text += f": in {found[1]}, `{found[2]}` did not hold"
        if text.startswith("EOFError: EOF when reading a line"):
            text += (
                ": the script reads from the standard input, which is empty here; give it what it "
                "asks for by its arguments"
            )
        if own := exception.get("own", ""):
            text = f"gpuadvisor failed as it watched the script, in {own}: {text}"
        return TrialState.CRASHED, text
    if not status:
        return None
    if OUT_OF_MEMORY.search(output[-TAIL:]):
        return TrialState.OUT_OF_MEMORY, "the GPU ran out of memory"
    if status < 0:
        return TrialState.CRASHED, _signal_text(-status)
    lines = output[-TAIL:].strip().splitlines()
    last = f": {lines[-1].strip()[:REASON]}" if lines else ""
    return TrialState.CRASHED, f"ended with exit status {status}{last}"


def _headline(message: str) -> str:
    """Return the line of an exception's message that says what happened.

    Where it quotes the traceback of a worker, that is the last line.
    """
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    if not lines:
        return ""
    quotes = any("Traceback (most recent call last)" in line for line in lines)
    return lines[-1 if quotes else 0][:REASON]


def _signal_text(number: int) -> str:
    try:
        known = signal.Signals(number)
    except ValueError:
        return f"killed by signal {number}"
    return f"killed by {known.name}{SIGNALS.get(known, '')}"


def _too_few(request: RunRequest, recorder: RunRecorder) -> tuple[TrialState, str]:
    if recorder.owner is None:
        return TrialState.UNSUPPORTED, f"ended without a step: {_unseen(request, recorder)}"
    count = f"{recorder.steps} step{'s' * (recorder.steps != 1)}"
    return TrialState.UNSUPPORTED, f"ended after {count}, too few to measure"


def _unseen(request: RunRequest, recorder: RunRecorder) -> str:
    """Say why no step was seen, and what the user can do about it."""
    if recorder.failures:
        return recorder.failures[0]
    if recorder.torch is None:
        return f"it did not import torch{_without_torch(request)}"
    return f"no optimizer step, backward pass or module call was seen; {MARK_STEPS}"


def _without_torch(request: RunRequest) -> str:
    """Return what the user can do about a script without torch, after a clause that says so.

    What needs torch itself, as its profiler does, is asked for before steps count.
    """
    asked = request.specification.applications
    needy = [a for a in asked if a.knob == PROFILER and not a.applier.endswith(":AFTERWARDS")]
    return ", whose profiler records the steps" if needy else f"; {WITHOUT_TORCH}"


def _place(request: RunRequest, exception: Event | None) -> str:
    if exception is None or not exception["file"]:
        return ""
    file = Path(exception["file"])
    name = request.command.script if file.name == Path(request.command.script).name else str(file)
    return f"{name}, line {exception['line']}"
