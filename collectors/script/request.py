"""What to run, within which limits, and what came of it."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuadvisor.collectors.script.specification import Specification
from gpuadvisor.collectors.script.templates import Template
from gpuadvisor.domain.device import Device
from gpuadvisor.domain.measurement import Measurement
from gpuadvisor.domain.rehearsal import WrittenFile
from gpuadvisor.domain.study import TrialState

if TYPE_CHECKING:
    from gpuadvisor.collectors.script.turns import Place  # psutil is for who runs something

Event = Mapping[str, Any]
"""One event from the script's process: `event`, `pid`, and what that kind of event carries."""


@dataclass(frozen=True)
class Command:
    """A script as its user would start it."""

    python: str
    script: str
    """Path of the script, or the name of a module to run with `-m`."""
    args: tuple[str, ...] = ()
    is_module: bool = False
    folder: str | None = None
    """Working directory; None for the current one."""
    wrapper: tuple[str, ...] = ()
    """A program and its options that come before the Python, such as a profiler's."""

    @property
    def stem(self) -> str:
        """What its plan and its profiles are called: `train` of `train.py` and `package.train`."""
        return self.script.rpartition(".")[2] if self.is_module else Path(self.script).stem

    def line(self) -> list[str]:
        start = ["-m", self.script] if self.is_module else [self.script]
        return [*self.wrapper, self.python, *start, *self.args]


@dataclass(frozen=True)
class Limits:
    """How long a run may take, in seconds."""

    startup_s: float = 600.0
    """Limit from the start to the first step."""
    idle_s: float = 300.0
    """Limit between two signs of life after that; the harness speaks at least once a window."""
    total_s: float = 1800.0
    room_s: float = math.inf
    """What the budget has left for the run. A limit that equals it says nothing of the script."""
    import_s: float = math.inf
    """Limit from the start until a process of the script has imported torch: without, there will
    be no step."""


@dataclass(frozen=True)
class RunRequest:
    """One run of a script."""

    command: Command
    specification: Specification
    device: Device
    limits: Limits = field(default_factory=Limits)
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables set in addition to gpuadvisor's own environment."""
    exit_s: float = 0.0
    """How long the processes may take to end when there is enough, before they are ended: a
    wrapper has its own results to write."""
    all_gpus: bool = False
    """The script sees the GPUs that it would see without gpuadvisor, and not only `device`."""
    scratch: bool = False
    """Run it in a private view of the file system: what it writes is gone afterwards, and it has
    no network. It is not run where that cannot be done."""
    shared: tuple[str, ...] = ()
    """Folders that a run in a private view has in common with us."""
    slower_than_ms: float | None = None
    """A mean step time at which the run is given up as pruned; None to let it end."""
    needed: frozenset[str] = frozenset()
    """Knobs of which one at least must have had an effect when the script is warm; without, there
    is nothing to measure, and the run ends."""
    template: Template | None = None
    """Fork the run from this process if it begins as that did, else start a fresh one."""
    ready: threading.Event | None = None
    """Set once nothing else is done any more beside the run: until then it waits after its first
    step. None where nothing is."""
    seat: Place | None = None
    """Where the run waits for another one that lives at the same time; None if it is alone."""
    on_event: Callable[[Event], None] | None = None
    """Told of every event as it comes, for progress; and of `waiting`, once, where the first step
    takes long: `seconds` since the start, `torch` if it was imported, and `limit_s`, the seconds
    since the start after which the run is given up."""
    on_output: Callable[[bytes], object] | None = None
    """Given all that the script prints, in a thread of its own."""
    cancelled: Callable[[], bool] | None = None
    """Asked a few times a second; True stops the run."""


@dataclass(frozen=True)
class RunOutcome:
    """How a run ended."""

    state: TrialState
    reason: str
    """One sentence; empty for `complete`."""
    measurement: Measurement | None
    output: str
    """The end of what the script printed."""
    wall_s: float
    place: str = ""
    """`train.py, line 12` where an exception left the script's own code; else empty."""
    own: str = ""
    """Module and line of gpuadvisor's own code in which the run failed, while it watched the
    script; empty where that is not so."""
    steps: int = 0
    """Steps seen, counted or not."""
    short: bool = False
    """The script ended by itself before it was measured for as long as wanted."""
    printed: str | None = None
    """The end of what it had printed when it was measured, and was ended for that; None where it
    was not."""
    torch_s: float | None = None
    """Time from the start until torch was there; None where it was not imported."""
    forked: bool = False
    """Whether its process was forked from a template, and not started anew."""
    disturbance: str = ""
    """What else used the machine meanwhile, as a clause; empty where nothing was seen."""
    limit: str = ""
    """How often a container's CPU limit held the run back while it was measured, as a clause; empty
    for hardly ever, or without a limit."""
    read: tuple[str, ...] = ()
    """Files that it opened for reading while it started, of those that were to be looked for."""
    written: Mapping[str, WrittenFile] | None = None
    """Files that it created, changed or deleted in its private view; None without one. Their names
    are relative to the working directory, or absolute where they are not in it."""
