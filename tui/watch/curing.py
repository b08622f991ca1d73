"""From seeing to curing: profile a process from its page, or start a tuning study of its script."""

from __future__ import annotations

import textwrap
import threading
from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from textual.binding import Binding

from gpuadvisor.domain.telemetry import Gpu, GpuProcess
from gpuadvisor.errors import AdvisorError, Interrupted
from gpuadvisor.printable import printable
from gpuadvisor.tui.watch import acting
from gpuadvisor.tui.watch.asking import told
from gpuadvisor.tui.watch.cells import Line, Style
from gpuadvisor.tui.watch.page import Page
from gpuadvisor.tui.watch.process_list import NOT_LISTED_BYTES
from gpuadvisor.tui.watch.state import WatchState

if TYPE_CHECKING:
    from gpuadvisor.profiling.profiler import ProfileResult
    from gpuadvisor.tuning.live.of_process import Proposal, Started

ENDING_S = 0.2
"""How long the page that ends waits for a profile to be given up: it looks 20 times a second."""
STUDIES, PROFILES = "4", "5"
"""The keys of the pages that show what comes of it."""
MOST_VARIABLES, MOST_LINES = 6, 4
"""Variables of the environment that the question names, each on a line, and the most lines of its
other entries: all of it fits on a terminal of 80x24."""
WIDTH = 76
"""Characters of a line of the question."""
HEAD = 13
"""Characters of the label that a line of the question begins with."""

CURES = (
    Binding("p", "profile", "profile", tooltip="record its next steps, and what is wrong"),
    Binding("u", "tune", "tune", tooltip="start a tuning study of its script"),
)
"""The keys, for the page to put where it wants them among its own."""


class Curing(Page):
    """A page on which something can be done about the process that was chosen: add `CURES`."""

    def __init__(self) -> None:
        super().__init__()
        self._given_up = threading.Event()
        self._profiled: dict[int, threading.Thread] = {}
        """What records a profile now, by the process's number."""

    @abstractmethod
    def to_cure(self) -> GpuProcess | str:
        """Return the chosen process, or in a sentence why there is none."""

    def on_unmount(self) -> None:
        """Give up what is being recorded, so that nothing of it is left behind."""
        self._given_up.set()
        for each in self._profiled.values():
            each.join(ENDING_S)

    def _acceptable(self, what: str) -> GpuProcess | None:
        """Return the chosen process if something may be done with it; else say why not."""
        process = self.to_cure()
        problem: str | None
        if (why := self.watched.hands_off) is not None:
            problem = f"{what}: {why}"
        elif isinstance(process, str):
            problem = process
        else:
            problem = acting.why_not(process)
            if problem is None:
                return process
        self._say(problem)
        return None

    def _say(self, problem: str) -> None:
        self._watch.say(f"{problem[:1].upper()}{problem[1:].rstrip('.')}.")

    def _in_thread(self, name: str, work: Callable[[], Callable[[], object]]) -> threading.Thread:
        """Do it in a thread, and what it returns on the page; the program ends without it."""

        def run() -> None:
            try:
                then = work()
            except Interrupted:
                return
            except Exception as error:
                text = str(told(error))
                then = lambda: self._say(text)  # noqa: E731
            with suppress(Exception):  # the program has ended
                self.app.call_from_thread(then)

        thread = threading.Thread(target=run, name=name, daemon=True)
        thread.start()
        return thread

    # -- profiling ---------------------------------------------------------------------------------

    def action_profile(self) -> None:
        """Ask, and record the next steps of the chosen process, if it listens."""
        process = self._acceptable("nothing is profiled")
        if process is None:
            return
        from gpuadvisor.profiling.attaching import listening
        from gpuadvisor.profiling.profiler import ATTACHED_S
        from gpuadvisor.profiling.recording import DEFAULT_STEPS
        from gpuadvisor.tui.watch.dialogs import Question

        if self._is_profiled(process.pid):
            self._say(f"process {process.pid} is being profiled: page 5 shows it when it is done")
            return
        try:
            listening(process.pid)
        except AdvisorError as error:
            self._say(str(error))
            return
        cost = (
            f"Its next {DEFAULT_STEPS} steps are recorded by torch's profiler, which slows these"
            f" steps down; {ATTACHED_S:g} s where it makes none. It is not ended, and what it"
            " computes stays the same."
        )
        lines = [*_entry("process", f"{process.pid} of {process.user or '?'}"),
                 *_entry("command", process.command or process.name or "?"),
                 *_entry("costs", cost)]  # fmt: skip

        def answered(is_wanted: bool | None) -> None:
            if not is_wanted:
                self._say("nothing was profiled")
                return
            self._say(f"profiling {process.pid}: its findings open when it is done")
            where = self.app.current_mode
            thread = self._in_thread("profile", lambda: self._profile(process, where))
            self._profiled[process.pid] = thread

        self.app.push_screen(Question("Profile this process?", lines), answered)

    def _is_profiled(self, pid: int) -> bool:
        return pid in self._profiled and self._profiled[pid].is_alive()

    def _profile(self, process: GpuProcess, where: str) -> Callable[[], None]:
        """Record and store a profile, as `gpuadvisor profile --attach` does; called in a thread."""
        import io

        from rich.console import Console

        from gpuadvisor.profiling.profiler import ProfileOptions, profile
        from gpuadvisor.profiling.progress import Stages

        problem = acting.why_not(process)  # it may have ended while the question stood
        if problem is not None:
            raise AdvisorError(problem)
        found: list[ProfileResult] = []
        notes: list[str] = []
        with Stages(Console(file=io.StringIO())) as stages:
            profile(
                ProfileOptions(program=None, pid=process.pid),
                stages,
                found.append,
                notes.append,
                self._given_up.is_set,
            )
        name = found[0].imported.profile.record.name

        def show() -> None:
            self.watched.made = PROFILES, name
            if self.app.current_mode == where:
                self._watch.action_open(PROFILES)
            said = "; ".join([f"profile {name} of process {process.pid} is stored: page 5", *notes])
            self._say(said)

        return show

    # -- tuning ------------------------------------------------------------------------------------

    def action_tune(self) -> None:
        """Ask, and start a tuning study of what the chosen process runs."""
        process = self._acceptable("no study is started")
        if process is not None:
            self._in_thread("tune", lambda: self._propose(process))

    def _propose(self, process: GpuProcess) -> Callable[[], None]:
        """Look at the process; called in a thread, as a folder may be a network's."""
        from gpuadvisor.collectors.script.scratch import unavailable
        from gpuadvisor.tuning.live.of_process import proposal

        wanted = proposal(process.pid)
        why_no_scratch = unavailable()
        return lambda: self._ask(process, wanted, why_no_scratch)

    def _ask(self, process: GpuProcess, wanted: Proposal, why_no_scratch: str | None) -> None:
        from gpuadvisor.tui.watch.dialogs import Question, Reading

        state, scratch = self.watched.state, why_no_scratch is None
        gpu, whys = free_gpu(state, process)
        if gpu is None:
            said = [(line, Style.PLAIN) for line in _refusal(whys, wanted, scratch=scratch)]
            lines: list[Line] = [[each] for each in said]
            self.app.push_screen(Reading("no study was started", lambda width: lines))
            return
        there = wanted.on(gpu.uuid)
        what = _asked(process, there, why_no_scratch)
        what += _entry("GPU", f"{state.labels[gpu.uuid]}, {gpu.name}, which is free")

        def answered(is_wanted: bool | None) -> None:
            if not is_wanted:
                self._say("no study was started")
                return
            again, whys_now = free_gpu(state, process)  # the question may have stood for long
            if again != gpu:
                taken = whys_now.get(gpu.uuid, "it has gone")
                self._say(f"no study was started: {taken}")
                return
            self._in_thread("tune", lambda: self._start(process, there, scratch=scratch))

        title = "Start a tuning study of this script? It takes about ten minutes."
        self.app.push_screen(Question(title, what), answered)

    def _start(self, process: GpuProcess, wanted: Proposal, *, scratch: bool) -> Callable[[], None]:
        from gpuadvisor.tuning.live.of_process import start

        problem = acting.why_not(process)
        if problem is not None:
            raise AdvisorError(f"no study was started: {problem}")
        started = start(wanted, scratch=scratch)

        def show() -> None:
            self._watch.action_open(STUDIES)
            self._say(
                f"study begun as process {started.process.pid}; it shows here in some seconds, goes"
                f" on without this page, and writes to {started.log}"
            )
            self._in_thread("study", lambda: self._await(started))

        return show

    def _await(self, started: Started) -> Callable[[], None]:
        """Say that the study could not begin, or failed; called in a thread."""
        problem = started.ended()
        if problem is None:
            return lambda: self._say(
                f"the study of process {started.process.pid} has ended: page 4"
            )
        return lambda: self._say(f"the study ended: {problem.rstrip('.')} ({started.log})")


def free_gpu(state: WatchState, process: GpuProcess) -> tuple[Gpu | None, dict[str, str]]:
    """Return a GPU of the model that a process uses on which nobody is, and why the others cannot
    be used, by their UUIDs: in use and by whom, or not known to be free."""
    everyone = state.latest.processes or ()
    own = {each.gpu for each in everyone if each.pid == process.pid}
    labels = state.labels
    if len(own) > 1:
        where = ", ".join(sorted(labels.get(each, "?") for each in own))
        return None, {process.gpu: f"It works on GPUs {where}, and a study here takes one."}
    model = next((gpu.name for gpu in state.gpus if gpu.uuid == process.gpu), None)
    whys: dict[str, str] = {}
    free: Gpu | None = None
    for gpu in state.gpus:
        if gpu.name == model:
            why = _why_taken(state, gpu, everyone)
            if why is not None:
                whys[gpu.uuid] = f"GPU {labels[gpu.uuid]} {why}"
            elif free is None:
                free = gpu
    return free, whys


def _why_taken(state: WatchState, gpu: Gpu, everyone: Sequence[GpuProcess]) -> str | None:
    """Return why a GPU cannot be used, None where it is free."""
    users = [each for each in everyone if each.gpu == gpu.uuid and each.kind != "graphics"]
    if users:
        names = [f"{each.name or 'process'} ({each.pid}) of {each.user or '?'}" for each in users]
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        return f"is in use by {', '.join(names[:3])}{more}"
    used = state.latest.value(gpu.uuid, "memory_used_bytes")
    if used is None or state.latest.processes is None or not state.latest.lists(gpu.uuid):
        return "may be in use: the driver does not say by whom"
    if used >= NOT_LISTED_BYTES:
        return "is in use by processes that are not listed here, as another container's"
    return None


def _refusal(whys: dict[str, str], wanted: Proposal, *, scratch: bool) -> list[str]:
    found = ["No GPU of its model is free for a study, which others would disturb:", ""]
    for why in whys.values():
        found += textwrap.wrap(printable(why), WIDTH, initial_indent="  ", subsequent_indent="    ")
    found += ["", "When one is, this starts it; CUDA_VISIBLE_DEVICES chooses among several:", ""]
    return [*found, f"  cd {wanted.command.folder}", f"  {wanted.line(scratch=scratch)}"]


def _asked(process: GpuProcess, wanted: Proposal, why_no_scratch: str | None) -> list[str]:
    """Return what a study would do, line by line."""
    lines = [*_entry("command", wanted.line(scratch=why_no_scratch is None)),
             *_entry("folder", wanted.command.folder or ".", most=2),
             *_entry("interpreter", wanted.command.python, most=2)]  # fmt: skip
    variables = [f"{name}={text}" for name, text in wanted.mattering().items()]
    hidden = len(wanted.environment) - min(len(variables), MOST_VARIABLES)
    for place, text in enumerate(variables[:MOST_VARIABLES]):
        lines += _entry("" if place else "environment", text, most=1)
    lines += _entry("", f"and {hidden} more variables of the process (e shows them)")
    if wanted.dropped:
        lines += _entry("left out", f"Python's own options {' '.join(wanted.dropped)}", most=1)
    if why_no_scratch is None:
        writes = "what its runs write is thrown away, and they have no network (--scratch)"
    else:
        writes = (
            f"WHERE PROCESS {process.pid} WRITES, from its start and several times: checkpoints and"
            " logs of the same name are lost"
        )
    return [*lines, *_entry("writes", writes)]


def _entry(head: str, text: str, most: int = MOST_LINES) -> list[str]:
    lines = textwrap.wrap(
        printable(text), WIDTH, initial_indent=f"{head:<{HEAD}}", subsequent_indent=" " * HEAD,
        break_on_hyphens=False,
    )  # fmt: skip
    if len(lines) > most:
        lines[most - 1 :] = [f"{lines[most - 1][: WIDTH - 2]} …"]
    return lines
