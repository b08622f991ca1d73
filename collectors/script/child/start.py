"""The first thing that runs in each Python process of a script under gpuadvisor."""

from __future__ import annotations

import atexit
import functools
import os
import signal
import sys
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from gpuadvisor.collectors.script.child.channel import Channel, guarded, leave
from gpuadvisor.collectors.script.child.imports import after_import, is_library
from gpuadvisor.collectors.script.specification import HASH_SEED, VARIABLE, Specification

if TYPE_CHECKING:
    from gpuadvisor.collectors.script.child.imported import ImportNotes
    from gpuadvisor.collectors.script.child.template import Template

_PR_SET_PDEATHSIG = 1
"""`prctl` option, from <linux/prctl.h>."""
STEPS_WITHOUT_TORCH = (
    "its steps run without torch, whose profiler records them, as it does once the script has "
    "`import torch`"
)
LONGEST_FOLDER = 80
"""Bytes: a socket's path has room for 107, and multiprocessing's names in it take up to 18."""
WATCHING = ("clock", "counters", "markers", "script_facts", "session", "trace", "windows")
"""Modules of the harness that only watch. Others stand around calls of the script's, whose failures
are its own."""
OTHER_HASHES = "1"
"""Hash seed of the interpreters that a script starts, whose own is 0: those of all lives are alike,
and a text that has one place in a table by the script's `hash` has another by theirs."""
HEAD, TAIL = 600, 1200
"""Characters kept of an exception's message. Its end, too: there stands the cause of what a worker
raised."""


def start() -> None:
    """Read the specification and get ready; torch is hooked when the script imports it."""
    specification = Specification.from_json(os.environ[VARIABLE])
    template = None
    if specification.template:
        template = _wait_as_template(specification)
        specification = Specification.from_json(os.environ[VARIABLE])
    notes = None
    if specification.notes and os.getppid() == specification.parent:
        from gpuadvisor.collectors.script.child.imported import ImportNotes

        notes = ImportNotes(specification.notes)
    channel = Channel(specification.events) if specification.events else None
    with guarded(channel, "start"):
        if channel is not None:
            if os.getppid() == specification.parent:
                _die_with(specification.parent)
            _report_exceptions(channel)
    if channel is not None and specification.reads_between is not None:
        with guarded(channel, "watch what it reads"):
            from gpuadvisor.collectors.script.child.file_reads import watch_reads

            watch_reads(specification.reads_between, lambda path: channel.send("read", path=path))
    with guarded(channel, "keep to its cores"):
        if specification.cores:
            os.sched_setaffinity(0, specification.cores)
    if specification.seed is not None:
        _seed(specification.seed, channel)
    if specification.events is not None:
        folder = str(Path(specification.events).parent)
        after_import("multiprocessing.process", lambda: _house_sockets(folder, channel))
    if specification.shortening is not None:
        if specification.shortening.hashes_apart:
            os.environ[HASH_SEED] = OTHER_HASHES
        with guarded(channel, "end the script's loops early"):
            from gpuadvisor.collectors.script.child.shortening import loop_imports
            from gpuadvisor.collectors.script.child.shortening.progress import Progress

            loop_imports.install(specification.shortening, Progress(), channel)
    elif channel is not None:
        _await_steps(specification, channel)
    after_import("torch", lambda: _hook_torch(specification, channel, notes, template))


def _wait_as_template(specification: Specification) -> Template:
    """Return in each run that is forked from this process, which itself never runs the script."""
    try:
        from gpuadvisor.collectors.script.child.template import Template

        _die_with(specification.parent)
        if specification.cores:
            os.sched_setaffinity(0, specification.cores)  # before libraries count them
        # Processes that libraries start when they are imported are no templates.
        os.environ[VARIABLE] = Specification().to_json()
        template = Template(specification.template or {}, specification.parent)
        template.wait()
    except BaseException:
        leave(1)
    return template


def _die_with(parent: int) -> None:
    """Have the kernel end this process when gpuadvisor ends, however it ends.

    Not a thread that waits for the parent: a second thread makes `fork` warn since Python 3.12.
    """
    import ctypes

    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    except (OSError, AttributeError):  # not Linux
        return
    if os.getppid() != parent:  # it ended before the call
        leave(1)


def _seed(seed: int, channel: Channel | None) -> None:
    import random

    random.seed(seed)

    def seed_numpy() -> None:
        with guarded(channel, "seed numpy"):
            import numpy

            numpy.random.seed(seed % 2**32)

    after_import("numpy", seed_numpy)


def _house_sockets(folder: str, channel: Channel | None) -> None:
    """Have multiprocessing make its sockets in the run's folder, which is removed at its end.

    The folder that it would make for them is left behind by every worker that is killed.
    """
    with guarded(channel, "house multiprocessing's sockets"):
        if len(os.fsencode(folder)) <= LONGEST_FOLDER:
            process = sys.modules["multiprocessing.process"].current_process()
            process._config.setdefault("tempdir", folder)


def _await_steps(specification: Specification, channel: Channel) -> None:
    """Count the steps that a script marks itself, if it does so without torch.

    Profilers and searches that go on in one process need torch, and refuse.
    """
    from gpuadvisor import steps

    own = __name__.rpartition(".")[0]
    # What comes after the steps that are measured may as well not come.
    needy = [
        each.knob
        for each in specification.applications
        if each.applier.startswith(own) and not each.applier.endswith(":AFTERWARDS")
    ]

    def begin() -> None:
        steps.ignore(begin)
        if "torch" in sys.modules:
            return
        for knob in needy:
            channel.send("knob", knob=knob, state="refused", detail=STEPS_WITHOUT_TORCH)
        if needy:
            return
        with guarded(channel, "count the steps of a script without torch"):
            from gpuadvisor.collectors.script.child.session import SessionWithoutTorch

            session = SessionWithoutTorch(specification, channel)
            session.install()
            session.step()

    steps.listen(begin)


def _hook_torch(
    specification: Specification,
    channel: Channel | None,
    notes: ImportNotes | None,
    template: Template | None,
) -> None:
    if notes is not None:
        with guarded(channel, "note what it imports"):
            notes.note()
    with guarded(channel, "hook torch"):
        if specification.shortening is None:
            from gpuadvisor.collectors.script.child.session import Session
        else:
            from gpuadvisor.collectors.script.child.rehearsal.life import LifeSession as Session
        session = Session(specification, channel)
        session.install()
        if notes is not None:
            session.on_first_root = notes.note
    if template is not None:
        template.hooked()


def _report_exceptions(channel: Channel) -> None:
    """Report what reaches the top of this process, also where the script has a hook of its own."""
    original = sys.excepthook
    process = os.getpid()
    reported = False

    @functools.wraps(original)
    def hook(
        kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> None:
        nonlocal reported
        reported = True
        _report(channel, error, traceback)
        original(kind, error, traceback)

    def at_exit() -> None:
        # The interpreter sets `last_value` before it calls whatever hook there is.
        error = getattr(sys, "last_value", None)
        if os.getpid() == process and not reported and isinstance(error, BaseException):
            _report(channel, error, error.__traceback__)

    sys.excepthook = hook
    atexit.register(at_exit)


def _report(channel: Channel, error: BaseException, traceback: TracebackType | None) -> None:
    """Send an exception that ends the process, with where in the user's code it arose."""
    kind = type(error)
    name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
    try:
        message = str(error)
    except Exception:
        message = ""
    if len(message) > HEAD + TAIL:
        message = f"{message[:HEAD]}\n...\n{message[-TAIL:]}"
    (file, line), own = _place(traceback)
    if isinstance(error, SyntaxError) and error.filename and _is_the_users(error.filename):
        file, line = error.filename, error.lineno or 0
    channel.send("exception", type=name, message=message, file=file, line=line, own=own)


def _place(traceback: TracebackType | None) -> tuple[tuple[str, int], str]:
    """Return the innermost line of the user's own code, the last one outside of libraries; and the
    module and line of the harness that failed further in, as it watched, empty where none did."""
    place, own = ("", 0), ""
    while traceback is not None:
        frame = traceback.tb_frame
        file, module = frame.f_code.co_filename, str(frame.f_globals.get("__name__"))
        if _is_the_users(file):
            place, own = (file, traceback.tb_lineno), ""
        elif module.startswith(f"{__package__}."):
            watches = module.rpartition(".")[2] in WATCHING
            own = f"{module}, line {traceback.tb_lineno}" if watches else ""
        traceback = traceback.tb_next
    return place, own


def _is_the_users(file: str) -> bool:
    """Say whether a file can be shown as the place of an error: text that was run is in none."""
    return not file.startswith("<") and not is_library(file)
