"""Record a few steady steps of a script that nobody edits, with torch's own profiler."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gpuadvisor.collectors.devices import cpu_device
from gpuadvisor.collectors.load import LoadMeter
from gpuadvisor.collectors.script.child.torch_profiler import NAME, SETTLING_STEPS
from gpuadvisor.collectors.script.request import Command, Event, Limits, RunOutcome, RunRequest
from gpuadvisor.collectors.script.runner import run_script
from gpuadvisor.collectors.script.specification import Schedule, Specification
from gpuadvisor.domain.device import Device
from gpuadvisor.domain.knobs import Application
from gpuadvisor.domain.study import TrialState
from gpuadvisor.errors import Interrupted, ScriptError
from gpuadvisor.profiling.progress import Stages
from gpuadvisor.tuning.preparation import target_python

APPLIER = "gpuadvisor.collectors.script.child.torch_profiler:PROFILER"
TRACE = "trace.json"
"""Name of the trace in the folder of the run."""
STACKS = "stacks.json"
"""Name of the trace of the step that is recorded with stacks."""
TIMEOUT_S = 600.0
"""Longest wait for a script's first step, unless the user says otherwise."""
DEFAULT_STEPS = 5
"""Enough to see which step is unlike the others, and few enough to keep a trace small."""
UNPROFILED_S = 1.0
"""Time of the steps that are timed before the profiler is switched on: as much as a script warms up
at least. What the host takes without the profiler follows from it."""
DRAIN_S = 10.0
"""Longest time for which steps that live on batches that were loaded while the profiler began are
run and not recorded. Two batches a worker are ahead, unless the script says otherwise: 32 steps of
0.3 s with 16 workers."""
FEWEST_STEPS = 2
"""Steps that a script must make: recording begins at the end of one."""
ENDED = (TrialState.COMPLETE, TrialState.UNSUPPORTED)
"""States of a script that ended by itself, without an error."""


@dataclass(frozen=True)
class RecordOptions:
    """The script to record, how many of its steps, and under which conditions."""

    command: Command
    steps: int = DEFAULT_STEPS
    stacks: bool = False
    keep_running: bool = False
    timeout_s: float = TIMEOUT_S
    """Longest wait for the first step."""
    on_event: Callable[[Event], None] | None = None
    on_output: Callable[[bytes], object] | None = None
    cancelled: Callable[[], bool] = lambda: False
    device: Device | None = None
    """The only GPU that the script sees; all of them where it is None."""
    cores: tuple[int, ...] = ()
    """CPU cores that the script keeps to; empty for all."""
    scratch: bool = False
    """Whether the script runs in a private view of the file system."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables set in addition to gpuadvisor's own environment."""
    applications: tuple[Application, ...] = ()
    """Knobs that are applied in the script's process, as in a plan."""
    seed: int | None = None
    """For `random`, numpy and torch; None to leave them alone."""
    load: LoadMeter | None = None
    """Sees what else uses the machine meanwhile; None where that is no matter."""
    lines: bool = False
    """Whether one more step is recorded with stacks, by itself, which tells where something comes
    from and slows down none of the others."""


@dataclass(frozen=True)
class Recorded:
    """A trace that was recorded, and what is known of it beside."""

    file: Path
    steps: int
    """Whole steps in it."""
    warmup_steps: int
    """Steps before the profiler was switched on."""
    with_gpu: bool
    """Whether the GPU's work was recorded, where the script has any."""
    notes: tuple[str, ...] = ()
    """Sentences that the user should read."""
    failed: bool = False
    """Whether the script failed by itself."""
    disturbance: str = ""
    """What else used the machine meanwhile, as a clause; empty where nobody looked or saw any."""
    stacks: Path | None = None
    """The trace of one more step, with stacks; None where none was asked for, or none came."""


@dataclass
class HarnessReport:
    """What a script's process reported of the profiler in it."""

    knob: str
    """The profiler's name among the knobs."""
    on_event: Callable[[Event], None] | None
    """Takes each event too."""
    warm_after: int = 0
    """Steps before the profiler was switched on."""
    report: dict[str, Any] = field(default_factory=dict)
    refusal: str = ""
    stopped: bool = False
    """Whether the script was ended because there was enough."""

    def take(self, event: Event) -> None:
        """Take an event of the process."""
        kind = event["event"]
        if kind == "done" and not event["short"]:
            self.stopped = True
        elif kind == "warm":
            self.warm_after = event["steps"]
        elif kind == "knob" and event["knob"] == self.knob:
            if event["state"] == "effective":
                self.report = json.loads(event["detail"])
            else:
                self.refusal = event["detail"]
        if self.on_event is not None:
            self.on_event(event)


def record(
    options: RecordOptions, folder: Path, ready: Callable[[Recorded], None] = lambda _: None
) -> Recorded:
    """Run the script until enough of its steps are recorded, and return the trace in `folder`.

    `ready` gets it as soon as it is there; with `keep_running` the script goes on meanwhile, and
    this returns when it has ended. ScriptError where nothing could be recorded; Interrupted.
    """
    events, outcome = _run(options, folder, Schedule(), ready, settles=True)
    ended = outcome.state in ENDED and outcome.steps >= FEWEST_STEPS
    if ended and not events.report and not events.refusal:
        # It ended by itself before it was warm, so it takes little time to run it again.
        events, outcome = _run(options, folder, _earlier(options, outcome.steps), ready)
    recorded = _recorded(options, folder, events)
    if recorded is None:
        raise _failure(options, events, outcome)
    recorded = replace(recorded, disturbance=outcome.disturbance)
    if (stacks := folder / STACKS).is_file():
        recorded = replace(recorded, stacks=stacks)
    bad = (TrialState.CRASHED, TrialState.OUT_OF_MEMORY, TrialState.HUNG)
    if events.stopped or outcome.state not in bad:
        return recorded
    place = f" ({outcome.place})" if outcome.place else ""
    note = f"the script failed after that: {outcome.reason}{place}"
    return replace(recorded, notes=(*recorded.notes, note), failed=True)


def record_steps(
    options: RecordOptions,
    folder: Path,
    stages: Stages,
    on_recorded: Callable[[Recorded], None] = lambda _: None,
) -> Recorded:
    """Record some steps of a script while its stages are shown, and return the trace in `folder`.

    `on_recorded` takes it when it is there, which is before the end of a script that is kept
    running. UsageError where the interpreter cannot run the script; ScriptError; Interrupted.
    """
    options = replace(options, on_event=stages.event)
    try:
        recorded = record(options, folder, on_recorded if options.keep_running else lambda _: None)
    except ScriptError:
        if not stages.saw_torch:
            target_python(options.command)  # it says better why, if the interpreter is the reason
        raise
    if not options.keep_running:
        on_recorded(recorded)
    return recorded


def _run(
    options: RecordOptions,
    folder: Path,
    schedule: Schedule,
    ready: Callable[[Recorded], None],
    settles: bool = False,
) -> tuple[HarnessReport, RunOutcome]:
    events = HarnessReport(NAME, options.on_event)

    def take(event: Event) -> None:
        before = events.report
        events.take(event)
        if events.report is not before and (recorded := _recorded(options, folder, events)):
            ready(recorded)

    value: dict[str, object]
    value = {"file": str(folder / TRACE), "steps": options.steps, "stacks": options.stacks}
    value["unprofiled_s"] = UNPROFILED_S if settles else 0.0
    value["drain_s"] = DRAIN_S if settles else 0.0
    if options.lines:
        value["after"] = {"file": str(folder / STACKS), "steps": 1, "stacks": True}
    request = RunRequest(
        options.command,
        Specification(
            (*options.applications, Application(NAME, APPLIER, json.dumps(value))),
            seed=options.seed,
            cores=options.cores,
            schedule=schedule,
            stay=options.keep_running,
        ),
        options.device or cpu_device(),
        Limits(startup_s=options.timeout_s),
        options.environment,
        all_gpus=options.device is None,
        scratch=options.scratch,
        shared=(str(folder),),
        on_event=take,
        on_output=options.on_output,
        cancelled=lambda: bool(events.refusal) or options.cancelled(),
    )
    outcome = run_script(request, load=options.load)
    if options.cancelled() and not events.report:
        raise Interrupted("interrupted: nothing was recorded")
    return events, outcome


def _earlier(options: RecordOptions, steps: int) -> Schedule:
    """Return when to begin in a script that makes so few steps."""
    spare = steps - options.steps - SETTLING_STEPS - 1
    return Schedule(
        warmup_steps=max(1, min(Schedule().warmup_steps, spare)),
        warmup_s=0.0,
        quiet_steps=0,
        queue_limit=0,
        count_doubtful=True,
    )


def _recorded(options: RecordOptions, folder: Path, events: HarnessReport) -> Recorded | None:
    trace = folder / TRACE
    if not events.report or not trace.is_file():
        return None
    steps, notes = int(events.report["steps"]), []
    if steps < options.steps:
        notes.append(f"{steps} of {options.steps} steps were recorded: {events.report['why']}")
    with_gpu = bool(events.report["with_gpu"])
    return Recorded(trace, steps, events.warm_after, with_gpu, tuple(notes))


def _failure(options: RecordOptions, events: HarnessReport, outcome: RunOutcome) -> ScriptError:
    """Return why nothing was recorded, in a sentence."""
    reason = outcome.reason
    if outcome.state in ENDED and outcome.steps:
        steps = f"{outcome.steps} step{'s' * (outcome.steps != 1)}"
        reason = f"it ended after {steps}, too few to profile one whole step: let it make more"
    return script_error(options.command, events, outcome, reason)


def script_error(
    command: Command, events: HarnessReport, outcome: RunOutcome, reason: str
) -> ScriptError:
    """Return why a script cannot be profiled: what the profiler says of it, else this reason."""
    place = f" ({outcome.place})" if outcome.place else ""
    why = events.refusal or f"{reason}{place}"
    return ScriptError(f"{command.script} cannot be profiled: {why}", outcome.output)
