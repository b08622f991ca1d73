"""Records a few steps with torch's own profiler, as a Kineto trace in a file.

It runs in the process of the script: as what takes the steps under `gpuadvisor profile`, and by
itself in a script that is profiled on demand.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import partial, wraps
from itertools import compress, pairwise
from pathlib import Path
from typing import Any

from gpuadvisor.collectors.script.child.windows import Timer, timer_for
from gpuadvisor.domain.target import Target
from gpuadvisor.domain.unprofiled import Steadiness, UnprofiledSteps

NAME = "profile"
"""Name that its reports go by."""
SETTLING_STEPS = 1
"""Steps with the profiler switched on that are not recorded, at least: the first pays for its
start."""
LONGEST_S = 30.0
"""Time after which a recording ends with the steps that it has, if it has one: steps of minutes
would fill memory with events."""
FEWEST_PLAIN = 3
"""Fewest steps that are timed without the profiler, where any are."""
REST = "gpuadvisor: after the last step"
"""Name of a range that began as a step and was none."""
THEIRS = (
    "the script uses torch.profiler itself, and a process can have one profiler at a time: switch "
    "it off in the script, or give the trace that it writes to `gpuadvisor import`"
)
CHUNK_BYTES = 1 << 20


class TraceRecording:
    """One recording: from `start` on, `step` marks the end of each step until it says True.

    Without a number of steps, it records from `start` to `save`. All of it belongs to one thread,
    as torch's profiler does.
    """

    def __init__(
        self,
        torch: Any,
        file: Path,
        steps: int | None,
        stacks: bool = False,
        shapes: bool = True,
        memory: bool = True,
        drain_s: float = 0.0,
    ) -> None:
        """Record calls with their Python `stacks`, operators with `shapes` and FLOPs, allocations
        of `memory`: each of them costs time, most of all when the trace is written.

        While the profiler is switched on, workers of a DataLoader load batches ahead. Steps that
        live on these are not recorded, for `drain_s` at most.
        """
        self._torch = torch
        self._file = file
        self._wanted = steps
        self._details = {
            "record_shapes": shapes,
            "profile_memory": memory,
            "with_stack": stacks,
            "with_flops": shapes,
        }
        self._drain_s = drain_s
        self._seen = 0
        self._settled: int | None = None
        """Steps that were seen when it began to record."""
        self._began_s = 0.0
        self._ready_before: int | None = None
        self._profiler: Any = None
        self._why_short = "the script ended"
        self.with_gpu = False
        """Whether the GPU's work is recorded, too."""
        self.unprofiled: UnprofiledSteps | None = None
        """The steps before it, which the trace tells of as well; None where none were timed."""
        self.batches_ready: Callable[[], int | None] = lambda: None
        """Tells how many batches wait to be taken; None where that cannot be seen."""
        self.saved = False

    @property
    def wanted(self) -> int:
        """Steps that are to be recorded; 0 where that is not told."""
        return self._wanted or 0

    @property
    def steps(self) -> int:
        """Whole steps that were recorded."""
        return 0 if self._settled is None else min(self._seen - self._settled, self.wanted)

    def start(self) -> None:
        """Switch the profiler on; RuntimeError where torch cannot."""
        profiler = self._torch.profiler
        activities = [profiler.ProfilerActivity.CPU]
        gpu = profiler.ProfilerActivity.CUDA
        # Not `is_available`: a script that computes on the CPU would get a CUDA context of ours.
        if self._torch.cuda.is_initialized() and gpu in profiler.supported_activities():
            activities.append(gpu)
            self.with_gpu = True
        self._ready_before = self.batches_ready()
        self._profiler = profiler.profile(
            activities=activities,
            schedule=None if self._wanted is None else self._action,
            **self._details,
        )
        with warnings.catch_warnings():
            # torch 2.11 says of every profiler that it clears events: the script's user has none.
            warnings.simplefilter("ignore", UserWarning)
            self._profiler.start()
        self._began_s = time.perf_counter()

    def step(self) -> bool:
        """Mark the end of a step. Return whether the recording is complete; it is saved then."""
        self._seen += 1
        begins = self._settled is None and self._is_settled()
        if begins:
            self._settled = self._seen
            if self.with_gpu and self._wanted is not None:
                _finish(self._torch.cuda)
        self._profiler.step()
        if begins and self.unprofiled is not None:
            # Not before: a trace begins without what was told of the one before it.
            for name, told in self.unprofiled.facts().items():
                self._profiler.add_metadata_json(name, json.dumps(told))
        late = time.perf_counter() - self._began_s > LONGEST_S
        if self._settled is None or (self.steps < self.wanted and not (late and self.steps)):
            return False
        self._why_short = f"they took longer than {LONGEST_S:.0f} s"
        self.save()
        return True

    def _action(self, _: int) -> Any:
        """Return what torch's profiler does with the step that begins."""
        does = self._torch.profiler.ProfilerAction
        if self._settled is None:
            return does.WARMUP
        left = self.wanted - self.steps
        return does.RECORD if left > 1 else does.RECORD_AND_SAVE if left else does.NONE

    def _is_settled(self) -> bool:
        """Say whether steps no longer live on what was loaded while the profiler began."""
        if self._seen < SETTLING_STEPS:
            return False
        ready = self.batches_ready()
        if ready is None or self._ready_before is None or ready <= max(self._ready_before, 1):
            return True
        return time.perf_counter() - self._began_s > self._drain_s

    def save(self) -> None:
        """Stop, and write what there is, if it is anything."""
        whole = self.steps == self.wanted
        profiler, self._profiler = self._profiler, None
        profiler.stop()
        if self._wanted is not None and not self.steps:
            return
        draft = self._file.with_suffix(".draft")
        profiler.export_chrome_trace(str(draft))
        if not whole:
            _rename_rest(draft, f"ProfilerStep#{self._seen}")
        draft.rename(self._file)
        self.saved = True

    def discard(self) -> None:
        """Stop, and forget what there is."""
        profiler, self._profiler = self._profiler, None
        self._seen = 0
        if profiler is not None:
            profiler.stop()

    def report(self) -> dict[str, Any]:
        """Return what the reader of the trace should know beside it."""
        return {"steps": self.steps, "with_gpu": self.with_gpu, "why": self._why_short}


def _finish(cuda: Any) -> None:
    """Let the GPU catch up, so that what it does in the recording was launched in it: of the rest
    neither the operator nor the step is known."""
    if not cuda.is_current_stream_capturing():
        cuda.synchronize()


class PlainSteps:
    """Times steps before a profiler is switched on, and waits for the device only at their end.

    A profiler makes the host slower and hardly the device: what the same steps take without it
    tells by how much.
    """

    def __init__(self, timer: Timer, least_s: float) -> None:
        """Begin at the end of a step; so many seconds of steps are enough."""
        self._timer = timer
        self._until_s = time.perf_counter() + least_s
        self._marks = [timer.mark()]
        self._clean: list[bool] = []
        """Which steps nothing interrupted."""

    def step(self, interrupted: bool) -> bool:
        """Take the end of a step; return whether that was the last that is wanted."""
        self._marks.append(self._timer.mark())
        self._clean.append(not interrupted)
        return len(self._clean) >= FEWEST_PLAIN and time.perf_counter() >= self._until_s

    def told(self, recorded: int) -> UnprofiledSteps:
        """Return what they took, without what interrupts few of them, such as an evaluation; so
        many are recorded after them."""
        self._timer.synchronize()
        steps_ns = [1e9 * self._timer.between_s(*marks) for marks in pairwise(self._marks)]
        if 2 * sum(self._clean) > len(steps_ns):
            steps_ns = list(compress(steps_ns, self._clean))
        mean_ns = sum(steps_ns) / len(steps_ns)
        return UnprofiledSteps(mean_ns, Steadiness.of(steps_ns, recorded))


class ProfiledSteps:
    """Takes the steps of a script (`gpuadvisor.domain.target.StepTaker`)."""

    def __init__(
        self,
        target: Target,
        record: Callable[[Any], TraceRecording],
        measured: bool,
        record_after: Callable[[Any], TraceRecording] | None = None,
        unprofiled_s: float = 0.0,
    ) -> None:
        """Take them once the run was `measured`, else as soon as the script is warm.

        Before that, steps of `unprofiled_s` are timed, none where it is 0. `record_after` makes a
        second recording, of the steps after; it is no failure where that cannot be.
        """
        self.compiles = measured  # what was measured must not be so again
        self._target = target
        self._record = record
        self._record_after = record_after
        self._unprofiled_s = unprofiled_s
        self._plain: PlainSteps | None = None
        self._recording: TraceRecording | None = None
        self._after: TraceRecording | None = None
        self._refused = False
        self._watching = False

    def begin(self) -> None:
        import torch

        if is_profiling(torch):
            self._refuse(THEIRS)
        elif self._unprofiled_s:
            self._plain = PlainSteps(timer_for(torch), self._unprofiled_s)
        else:
            self._start(None)

    def _start(self, plain: PlainSteps | None) -> None:
        import torch

        if is_profiling(torch):  # the script began one while its steps were timed
            self._refuse(THEIRS)
            return
        recording = self._record(torch)
        if plain is not None:
            recording.unprofiled = plain.told(recording.wanted)
        recording.batches_ready = self._target.batches_ready
        try:
            recording.start()
        except Exception as error:
            self._refuse(f"torch's profiler did not start: {_text(error)}")
            return
        self._recording = recording
        if not self._watching:  # not before: our own profiler is none of theirs
            self._watching = True
            watch_profilers(torch, self._theirs_begins)

    def step(self, interrupted: bool) -> bool:
        if self._after is not None:
            return self._step_after(self._after)
        if self._plain is not None:
            if self._plain.step(interrupted):
                plain, self._plain = self._plain, None
                self._start(plain)
            return False
        recording = self._recording
        if recording is None:  # it was refused: what was measured is there all the same
            return self.compiles
        try:
            complete = recording.step()
        except Exception as error:
            self._recording = None
            with suppress(Exception):
                recording.discard()
            self._refuse(f"torch's profiler failed: {_text(error)}")
            return self.compiles
        if not complete:
            return False
        self._recording = None
        self._tell(recording)
        return not self._begin_after()

    def abandon(self) -> None:
        self._plain = None
        recording, self._recording = self._recording, None
        if recording is not None:
            recording.discard()
        self._discard_after()

    def end(self) -> None:
        self._discard_after()
        recording, self._recording = self._recording, None
        if recording is not None:
            recording.save()
            if recording.saved:
                self._tell(recording)

    def _begin_after(self) -> bool:
        """Begin the second recording, and say whether there is one."""
        if self._record_after is None or self._refused:
            return False
        import torch

        recording = self._record_after(torch)
        try:
            recording.start()
        except Exception:  # the first one is there
            return False
        self._after = recording
        return True

    def _step_after(self, recording: TraceRecording) -> bool:
        try:
            complete = recording.step()
        except Exception:  # the first one is there
            self._discard_after()
            return True
        if complete:
            self._after = None
        return complete

    def _discard_after(self) -> None:
        recording, self._after = self._after, None
        if recording is not None:
            with suppress(Exception):
                recording.discard()

    def _theirs_begins(self) -> None:
        if self._after is not None:
            self._discard_after()
        elif self._recording is not None:
            self.abandon()
            self._refuse(THEIRS)

    def _tell(self, recording: TraceRecording) -> None:
        if not self._refused:
            self._target.effective(json.dumps(recording.report()))

    def _refuse(self, reason: str) -> None:
        self._refused = True
        self._target.refuse(reason)


class TorchProfiler:
    """Applier that the specification of a run names: it takes the steps of the script."""

    def __init__(self, measured: bool = False) -> None:
        """Take those after the run was `measured`, else those after warming up."""
        self._measured = measured

    def apply(self, value: str, target: Target) -> None:
        """Apply the options, a JSON object of the arguments of `TraceRecording`, as `after` those
        of a second recording, and `unprofiled_s` as `ProfiledSteps` has it."""
        options = json.loads(value)
        after, unprofiled_s = options.pop("after", None), options.pop("unprofiled_s", 0.0)
        record_after = None if after is None else _recorder(after)
        steps = ProfiledSteps(
            target, _recorder(options), self._measured, record_after, unprofiled_s
        )
        target.take_steps(steps, self._measured)


def _recorder(options: dict[str, Any]) -> Callable[[Any], TraceRecording]:
    return partial(TraceRecording, **{**options, "file": Path(options["file"])})


PROFILER = TorchProfiler()
AFTERWARDS = TorchProfiler(measured=True)


def is_profiling(torch: Any) -> bool:
    """Say whether a profiler runs in this thread."""
    enabled = getattr(torch.autograd, "_profiler_enabled", None)  # private: it may go
    return bool(enabled is not None and enabled())


def watch_profilers(torch: Any, begins: Callable[[], None]) -> None:
    """Call `begins` before anybody makes a profiler of torch from now on.

    With ours running, theirs would raise an error in the middle of the script.
    """
    cls = torch.autograd.profiler.profile
    original = cls.__init__

    @wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        begins()
        original(self, *args, **kwargs)

    cls.__init__ = init


def _rename_rest(file: Path, name: str) -> None:
    """Rename the range that the profiler began for a step which never ended.

    Kineto writes a line an attribute or less, so no name is cut in two between lines.
    """
    before, after = json.dumps(name).encode(), json.dumps(REST).encode()
    draft = file.with_suffix(".renamed")
    with file.open("rb") as source, draft.open("wb") as target:
        while lines := source.readlines(CHUNK_BYTES):
            target.writelines(line.replace(before, after) for line in lines)
    draft.replace(file)


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:300]}"
