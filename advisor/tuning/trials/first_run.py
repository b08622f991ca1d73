"""The unchanged script's first run, begun while a study still gets everything else ready.

What a study or a verification needs before it can compare anything takes seconds on a cold disk:
what the script's interpreter has, the store, the rules. The script's own start takes longer, and
needs nothing of it.
So it starts at once, after what is quickly looked at and what may not be late: whether somebody
else measures on the device, what is in the folders in which the script may write. After its first
step its process waits until nothing else is done any more (`RunRequest.ready`): no step that counts
is disturbed, nor one that warms up after the first.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from gpuadvisor.collectors.energy import EnergyMeter
from gpuadvisor.collectors.interpreter import Inspection, TargetPython
from gpuadvisor.collectors.load import LoadMeter
from gpuadvisor.collectors.script.request import Event, Limits, RunOutcome, RunRequest
from gpuadvisor.collectors.script.run_folder import run_folder
from gpuadvisor.collectors.script.runner import run_script
from gpuadvisor.domain.device import Device
from gpuadvisor.errors import AdvisorError, Interrupted
from gpuadvisor.interruption import to_its_end
from gpuadvisor.storage.home import database
from gpuadvisor.storage.locks import Held, device_locked
from gpuadvisor.storage.sqlite_file import check_usable
from gpuadvisor.tuning.budgeting.budget import Budget
from gpuadvisor.tuning.budgeting.budget_limit import BudgetLimit, schedule_for
from gpuadvisor.tuning.options import TuneOptions, knobs_for
from gpuadvisor.tuning.preparation import (
    ask_python,
    check_objective,
    check_scratch,
    check_script,
    devices_for,
    gpu_contention,
    likely_device,
    lock_name,
    plan_path,
    target_python,
)
from gpuadvisor.tuning.trials.leftovers import look
from gpuadvisor.tuning.trials.trial_runner import BASELINE, Progress, Side, runner_for

NOTES = "imports.json"
"""Name of the file in which it notes what it imports."""
PYTHON = re.compile(r"python[\d.]*")
"""Names of interpreters that may be started with a script before they have said what they are:
anything else, such as a shell, could make something of a script of Python."""


class FirstRun:
    """The unchanged script's first run, which goes on in a thread of its own."""

    def __init__(self, request: RunRequest, warnings: tuple[str, ...], watches: bool) -> None:
        """Begin the run. With `watches` it looks at what it opens, as those do that are to name the
        files that were changed since."""
        self.device = request.device
        self.warnings = warnings
        """What was seen before it that may spoil its figures."""
        self.began = time.time()
        """When it began, in seconds since the epoch."""
        command, specification = request.command, request.specification
        self.before = None if request.scratch else look(command)
        """What was in the script's folders before it; None where a run leaves nothing behind."""
        self.notes = None if specification.notes is None else Path(specification.notes)
        """Where it notes what it imports; None where it does not."""
        self._lock = threading.Lock()
        self._events: list[Event] = []
        """What was heard of it before somebody asked."""
        self._told: Callable[[Event], None] = self._events.append
        self._ready, self._unwanted = threading.Event(), threading.Event()
        between = (self.began, self.began) if watches else None
        specification = replace(specification, reads_between=between)
        self._asked = request = replace(request, specification=specification)
        cancelled = request.cancelled or (lambda: False)
        request = replace(
            request,
            on_event=self._take,
            cancelled=lambda: self._unwanted.is_set() or cancelled(),
            ready=self._ready,
        )
        meters = EnergyMeter(self.device).read_j, LoadMeter(self.device)
        self._pool = ThreadPoolExecutor(1, "first-run")
        self._outcome = self._pool.submit(run_script, request, *meters)

    def outcome(self, asked: RunRequest) -> RunOutcome | None:
        """Wait for its end if it is the run that is asked for, else None; the second time, too.

        From now on nothing else may be done beside it.
        """
        if self._ready.is_set():
            return None
        if _essence(asked) != _essence(self._asked):
            self._ready.set()
            self.end()
            return None
        with self._lock:
            if asked.on_event is not None:
                for event in self._events:
                    asked.on_event(event)
                self._told = asked.on_event
        self._ready.set()
        return self._outcome.result()

    def end(self) -> None:
        """End it, if it has not ended; no process of it is left."""
        self._unwanted.set()
        with to_its_end():
            self._pool.shutdown()

    def _take(self, event: Event) -> None:
        with self._lock:
            self._told(event)


class Begun:
    """What of a study has begun: its question to the interpreter, and perhaps the first run."""

    def __init__(self, asked: Inspection) -> None:
        self.asked = asked
        self._held = ExitStack()
        self._first: FirstRun | None = None
        self._stores = False
        """Whether the store was used before."""
        self.told = False
        """Whether it was told that the first run has begun."""

    def begin(self, options: TuneOptions, cancelled: Callable[[], bool], kind: Kind) -> None:
        """Begin the first run on the device that the study will probably choose.

        It is not begun where something may forbid it that is not known yet: the study says so.
        """
        named = options.study is not None or options.resume  # the store has to know it, or must not
        if named or options.jobs > 1 or not PYTHON.fullmatch(Path(self.asked.path).name):
            return
        device = likely_device(self.asked)
        with ExitStack() as held:
            try:
                check_objective(options.objective, device)
                self._stores = check_usable(database())
                held.enter_context(device_locked(lock_name(device)))
            except (AdvisorError, Held):
                return
            notes = str(held.enter_context(run_folder()) / NOTES)
            warnings = tuple(filter(None, [gpu_contention(device)]))
            request = _request(options, self.asked, device, notes, cancelled, kind.measures_as)
            first = FirstRun(request, warnings, kind.watches)
            held.callback(first.end)
            self._first, self._held = first, held.pop_all()

    def tell(self, progress: Progress, stores: bool = False) -> None:
        """Show once that the first run has begun, if it has and the store is known to do: an error
        of the store's stands alone."""
        if self._first is not None and not self.told and (stores or self._stores):
            self.told = True
            progress.on_phase(*BASELINE)

    def python(self, options: TuneOptions, progress: Progress) -> TargetPython:
        """Wait for what the interpreter says of itself; the first run is told of before.

        UsageError if it cannot run a PyTorch script, StoreError if the store cannot be used,
        Interrupted when it is stopped meanwhile.
        """
        # With SQLAlchemy, while the script starts already.
        from gpuadvisor.storage.database import (
            open_store,
        )  # SQLAlchemy: the script starts meanwhile

        with open_store():  # where it cannot be used, there is no more to say than that
            self.tell(progress, stores=True)
        try:
            return target_python(options.command, self.asked)
        except Interrupted as interruption:
            raise Interrupted(f"{interruption} before the unchanged script was measured") from None

    def on(self, device: Device) -> FirstRun | None:
        """Return the first run if it is on this device; else none is left."""
        if self._first is not None and self._first.device != device:
            self._first = None
            self._held.close()
        return self._first

    def end(self) -> None:
        """End what has begun, and was not waited for."""
        self._held.close()
        self.asked.end()


@dataclass(frozen=True)
class Ready:
    """What a study runs on, once the interpreter has answered."""

    python: TargetPython
    devices: list[Device]
    first: FirstRun | None = None
    """The unchanged script's first run, if it has begun on the first device."""

    @property
    def ours(self) -> tuple[Device, ...]:
        """Devices that are locked already."""
        return () if self.first is None else (self.first.device,)


def ready(begun: Begun | None, options: TuneOptions, progress: Progress) -> Ready:
    """Return what a study runs on, and what of it has `begun` there, if something has.

    Errors as of `Begun.python`; UsageError where the device cannot show what is to be improved.
    """
    python = target_python(options.command) if begun is None else begun.python(options, progress)
    devices = devices_for(python, options.jobs)
    check_objective(options.objective, devices[0])
    first = begun.on(devices[0]) if begun is not None else None
    if begun is not None and begun.told and first is None:
        progress.on_message(f"it begins anew, on what its torch can use: {devices[0].name}")
    return Ready(python, devices, first)


@dataclass(frozen=True)
class Kind:
    """What the first run has to be like, to be the one that is asked for."""

    measures_as: BudgetLimit | None = None
    """Budget whose runs measure for as long; None for the study's own."""
    watches: bool = True
    """Whether it looks at what it opens, which costs something in each step."""


@contextmanager
def begun_as(options: TuneOptions, cancelled: Callable[[], bool], kind: Kind) -> Iterator[Begun]:
    """Begin with what takes longest, where all is checked that is known without the interpreter's
    answer. When the block ends, nothing of it is left."""
    # Before the run: what begins a session of its own beside a run is taken for a part of it.
    found = Begun(ask_python(options.command))
    try:
        found.begin(options, cancelled, kind)
        yield found
    finally:
        found.end()


@contextmanager
def begun(options: TuneOptions, cancelled: Callable[[], bool]) -> Iterator[Begun]:
    """Begin a study with what takes longest. When the block ends, nothing of it is left.

    UsageError as of `tuning.study.tune`, for all that is known without the interpreter's answer.
    """
    check_script(options.command)
    check_scratch(options.scratch)
    plan_path(options.command, options.plan)
    knobs_for(options)
    with begun_as(options, cancelled, Kind()) as found:
        yield found


def _request(
    options: TuneOptions,
    asked: Inspection,
    device: Device,
    notes: str,
    cancelled: Callable[[], bool],
    measures_as: BudgetLimit | None,
) -> RunRequest:
    """Return the request that a study will make first."""
    options = replace(options, command=replace(options.command, python=asked.path))
    knobs = knobs_for(options)
    budget = Budget(options.budget, knobs)
    schedule = schedule_for(measures_as or options.budget)
    runner = runner_for(options, knobs, budget, cancelled, schedule)
    runner.notes = notes
    return runner.request(Side(options.command, device), "baseline")


def _essence(request: RunRequest) -> RunRequest:
    """Return what makes one run of a script another one than another request's."""
    watches = request.specification.reads_between is not None  # which files matters in no other
    return replace(
        request,
        specification=replace(request.specification, reads_between=(0, 0) if watches else None),
        limits=Limits(),  # the budget leaves less room for it by now
        on_event=None,
        cancelled=None,
    )
