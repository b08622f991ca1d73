"""Reads the harness's events and puts a measurement together from them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gpuadvisor.collectors.load import LoadMeter
from gpuadvisor.collectors.script.child.clock import MARKERS
from gpuadvisor.collectors.script.request import Event
from gpuadvisor.domain.knobs import AppliedKnob, LoaderFacts, ScriptFacts
from gpuadvisor.domain.measurement import Measurement, OutputSample, StepWindow, Trace


def parse(line: bytes) -> Event | None:
    """Return the event in a line, or None if a process was killed while writing it."""
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and "event" in event else None


def told_by(knob: str, event: Event) -> Any:
    """Return what a knob tells in an event, None for any other event."""
    is_told = event["event"] == "knob" and event["knob"] == knob and event["state"] == "told"
    return json.loads(event["detail"]) if is_told else None


@dataclass
class RunRecorder:
    """Follows one process: the first that reports a step, or one with a better kind of steps.

    A script may have processes that only evaluate, or play, beside the one that trains.
    """

    read_energy_j: Callable[[], float | None]
    """Reads the GPU's energy counter, in joules."""
    load: LoadMeter | None = None
    """Sees what else uses the machine while the steps are measured."""
    main: int | None = None
    """Process id of the script itself."""
    owner: int | None = None
    """Process id of the one that is followed."""
    warm: bool = False
    """Whether the first counted step has begun."""
    steps: int = 0
    first_step_s: float = 0.0
    finished: Event | None = None
    """The `done` or `ended` event."""
    released: bool = False
    """Whether the script goes on by itself: there is no more to wait for but its end."""
    torch: str | None = None
    """The version that was imported; None if no process has imported it."""
    torch_s: float | None = None
    """Time of that since the start of the run."""
    failures: list[str] = field(default_factory=list)
    """What the harness could not do."""
    exceptions: list[Event] = field(default_factory=list)
    read: list[str] = field(default_factory=list)
    """Files of an earlier run that its processes opened for reading."""
    windows: list[StepWindow] = field(default_factory=list)
    _marker: str = ""
    _now_s: float = 0.0
    _applied: dict[int, dict[str, AppliedKnob]] = field(default_factory=dict)
    _warmup_steps: int = 0
    _step_ms: list[list[float]] = field(default_factory=list)
    _pending_ms: list[float] = field(default_factory=list)
    _samples: list[tuple[float, float]] = field(default_factory=list)
    _losses: list[float] = field(default_factory=list)
    _outputs: list[tuple[tuple[int, ...], list[float]]] = field(default_factory=list)
    _counted: dict[str, dict[str, tuple[int, ...]]] = field(default_factory=dict)
    _facts: Event = field(default_factory=dict)
    _energy_j: float | None = None

    def take(self, event: Event, now_s: float) -> None:
        """Take one event; `now_s` is the time since the start of the run."""
        kind, process = event["event"], event.get("pid", 0)
        self._now_s = now_s
        if kind == "exception":
            self.exceptions.append(event)
        elif kind == "harness_failed":
            self.failures.append(event["detail"])
        elif kind == "read":
            self.read.append(event["path"])
        elif kind == "torch":
            self.torch = event["version"]
            if process == self.main:
                self.torch_s = now_s
        elif kind == "knob" and event["state"] != "told":
            knob = AppliedKnob(event["knob"], event["state"], event["detail"])
            self._applied.setdefault(process, {})[knob.knob] = knob
        elif kind == "step" and (
            self.owner is None or MARKERS.index(event["marker"]) > MARKERS.index(self._marker)
        ):
            self.owner = process
        if process == self.owner:
            self._take_own(event)

    @property
    def applied(self) -> dict[str, AppliedKnob]:
        """What each knob did; what it did in the followed process, if it did anything there."""
        applied: dict[str, AppliedKnob] = {}
        own = self._applied.get(self.owner or 0, {})
        for knobs in (*self._applied.values(), own):
            applied.update(knobs)
        return applied

    def exception(self, failed: bool) -> Event | None:
        """Return the exception that ended the run, or None.

        One in another process than the followed and the first one may have been expected by the
        script: it counts only if the script has `failed`.
        """
        own = [event for event in self.exceptions if event["pid"] in (self.main, self.owner)]
        return next(iter(own or (self.exceptions if failed else [])), None)

    def _take_own(self, event: Event) -> None:
        """Take one event of the process that is followed."""
        match event["event"]:
            case "step":  # found a marker, or a better one: what the other has counted is void
                self._marker = event["marker"]
                self.first_step_s = self._now_s
                self.warm = False
                self.steps = 1
                self.windows.clear()
                self._step_ms.clear()
                self._samples.clear()
            case "alive" | "compiled":
                self.steps = event["steps"]
            case "warm":
                self.warm = True
                if self.load is not None:
                    self.load.begin()
                self._energy_j = self.read_energy_j()
                self.steps = event["steps"]
                if not self.windows:
                    self._warmup_steps = event["steps"]
            case "steps":
                self._pending_ms.extend(event["values"])
            case "window":
                self._take_window(event)
            case "dropped":
                del self.windows[: event["windows"]]
                del self._samples[: event["windows"]]
                del self._step_ms[: event["windows"]]
            case "losses":
                self._losses.extend(event["values"])
            case "output":
                self._outputs.append((tuple(event["shape"]), []))
            case "output_values":
                self._outputs[-1][1].extend(event["values"])
            case "counted":
                self._counted.setdefault(event["kind"], {})[event["name"]] = (event["count"],)
            case "facts":
                self._facts = event
            case "done" | "ended":
                self.finished = event
                self.steps = event["steps"]
            case "released":
                self.released = True
                self.steps = event["steps"]

    def _take_window(self, event: Event) -> None:
        self.steps += event["steps"]
        energy = self.read_energy_j()
        used = None if energy is None or self._energy_j is None else energy - self._energy_j
        self._energy_j = energy
        self.windows.append(
            StepWindow(event["steps"], event["seconds"], 0.0, event["data_wait_s"], used)
        )
        self._samples.append((event["loader_samples"], event["root_samples"]))
        self._step_ms.append(self._pending_ms)
        self._pending_ms = []

    def measurement(self, samples_per_step: float | None, wall_s: float) -> Measurement | None:
        """Return what was measured, or None if no step was counted."""
        if self.finished is None or not self.windows:
            return None
        windows, source = self._with_samples(samples_per_step)
        outputs = tuple(OutputSample(shape, tuple(values)) for shape, values in self._outputs)
        seconds = sum(window.seconds for window in windows)
        wait = sum(window.data_wait_s for window in windows)
        return Measurement(
            marker=self.finished["marker"],
            step_ms=tuple(time for times in self._step_ms for time in times),
            windows=windows,
            warmup_steps=self._warmup_steps,
            samples_source=source,
            peak_memory_bytes=self.finished["peak_memory_bytes"],
            reserved_memory_bytes=self.finished["reserved_memory_bytes"],
            startup_s=self.first_step_s,
            wall_s=wall_s,
            trace=Trace(tuple(self._losses), outputs, self.finished["last_loss"]),
            facts=self._script_facts(wait / seconds if seconds else None),
            applied=tuple(self.applied.values()),
            compiles=self.finished["compiles"],
            counts=self._counted,
        )

    def _with_samples(self, given: float | None) -> tuple[tuple[StepWindow, ...], str | None]:
        """Return the windows with samples from the best source there is, and its name."""
        if given is not None:
            counts, source = [given * w.steps for w in self.windows], "user"
        elif all(loader > 0 for loader, _ in self._samples):
            counts, source = [loader for loader, _ in self._samples], "dataloader"
        elif all(root > 0 for _, root in self._samples):
            counts, source = [root for _, root in self._samples], "root_input"
        else:
            return tuple(self.windows), None
        return tuple(
            StepWindow(w.steps, w.seconds, count, w.data_wait_s, w.energy_j)
            for w, count in zip(self.windows, counts, strict=True)
        ), source

    def _script_facts(self, data_wait_share: float | None) -> ScriptFacts:
        fields: dict[str, Any] = {
            key: value for key, value in self._facts.items() if key not in ("event", "pid")
        }
        unseen = tuple(dict.fromkeys(self.failures))
        if not fields:
            return ScriptFacts(data_wait_share=data_wait_share, unseen=unseen)
        fields["loaders"] = tuple(LoaderFacts(**loader) for loader in fields["loaders"])
        for name in ("optimizers", "roots"):
            fields[name] = tuple(fields[name])
        return ScriptFacts(**fields, data_wait_share=data_wait_share, unseen=unseen)
