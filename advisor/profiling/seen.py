"""What the harness saw of a script while it was profiled: the steps are those of the profile."""

from __future__ import annotations

import time

from gpuadvisor.collectors.script.events import Recorder
from gpuadvisor.collectors.script.request import Event
from gpuadvisor.domain.measurement import Measurement
from gpuadvisor.rules.facts.summary import Facts


class Seen:
    """Takes the harness's events of a run in which a profiler counted the steps."""

    def __init__(self) -> None:
        self._recorder = Recorder(lambda: None)
        self._began_s = time.monotonic()

    def take(self, event: Event) -> None:
        """Take one event."""
        self._recorder.take(event, time.monotonic() - self._began_s)

    def measurement(self, facts: Facts) -> Measurement | None:
        """Return what was seen, with the steps of the profile; None where there are none."""
        owner, steps = self._recorder.owner, facts.steps
        if owner is None or steps is None or not steps.steps:
            return None
        durations = [step.duration_ns / 1e9 for step in steps.steps]
        of_process = {"pid": owner}
        self.take({"event": "steps", "values": [1e3 * each for each in durations], **of_process})
        self.take(
            {
                "event": "window",
                "steps": len(durations),
                "seconds": sum(durations),
                "data_wait_s": sum(step.data_wait_ns for step in steps.steps) / 1e9,
                "loader_samples": 0,
                "root_samples": 0,
                **of_process,
            }
        )
        return self._recorder.measurement(None, time.monotonic() - self._began_s)
