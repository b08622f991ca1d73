"""The jobs that used the GPUs, those that waste most first, and what is to be said of each."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from gpuadvisor.domain.jobs import UNTOLD
from gpuadvisor.printable import duration, printable
from gpuadvisor.tui.watch.asking import told
from gpuadvisor.tui.watch.cells import Line, Style
from gpuadvisor.tui.watch.dialogs import Reading
from gpuadvisor.tui.watch.lines import Lines
from gpuadvisor.tui.watch.page import Page
from gpuadvisor.tui.watch.watched import Watched

if TYPE_CHECKING:
    from gpuadvisor.accounting.gathering import AdvisedJob, JobsReport

SPANS = {"24h": "24 hours", "7d": "7 days", "30d": "30 days"}
"""Times that one can choose, as `gpuadvisor jobs --since` takes them, and in words."""
AGAIN_S = 60.0
"""Seconds after which jobs are read again: the daemon adds to them each minute."""
COLUMNS = (("job", 28), ("user", 12), ("GPUs", 12), ("GPU-h", 8), ("wasted", 8))
"""Titles and widths; what held for most of the time takes the rest of the line."""


class Jobs(Page):
    """A line a job."""

    KEY = "6"
    NAME = "jobs"
    ABOUT = "Who used the GPUs for what, and how much of it was wasted: `gpuadvisor jobs`."
    DEFAULT_CSS = """
    #jobs { height: 1fr; }
    #jobs-summary, #jobs-titles, #jobs-advice { height: auto; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("w", "span", "longer", tooltip="the last day, week or month"),
        Binding("enter", "details", "what and why", key_display="Enter"),
        Binding("up,shift+tab", "move(-1)", show=False),
        Binding("down,tab", "move(1)", "choose", key_display="arrows", show=False),
        Binding("pageup,left_square_bracket", "page(-1)", show=False),
        Binding("pagedown,right_square_bracket", "page(1)", show=False),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._span = "7d"
        self._report: JobsReport | None = None
        self._problem = ""
        self._place = 0
        self._asked_s: float | None = None
        """The source's time at which jobs were read last."""
        self._is_reading = False

    @classmethod
    def unavailable(cls, watched: Watched) -> str | None:
        """Return why there are no jobs; None where a daemon's store can be read."""
        if watched.store is not None:
            return None
        if watched.remote is not None:
            name = watched.remote.host.name
            return (
                f"{name} does not tell other machines who used it for what: `gpuadvisor jobs` on"
                f" {name} does, and its digest (`digest` in [jobs] of its configuration) is sent"
                " wherever you like."
            )
        return (
            "Jobs are kept by the daemon: `gpuadvisor daemon start` begins to, and then they are"
            " here and in `gpuadvisor jobs`."
        )

    def compose_page(self) -> ComposeResult:
        yield Lines("jobs-summary")
        yield Lines("jobs-titles")
        yield Lines("jobs")
        yield Lines("jobs-advice")

    def draw(self) -> None:
        now_s = self.watched.state.now_s
        if not self._is_reading and (
            self._asked_s is None or not 0 <= now_s - self._asked_s < AGAIN_S
        ):
            self._asked_s, self._is_reading = now_s, True
            self._read(self._span)
        width = self.query_one("#jobs", Lines).size.width
        self.query_one("#jobs-summary", Lines).show(self._summary(width))
        titles = "".join(_cell(title, size) for title, size in COLUMNS) + "most of the time"
        found = self._jobs
        self.query_one("#jobs-titles", Lines).show([[(titles, Style.QUIET)]] if found else [])
        self._place = min(self._place, max(len(found) - 1, 0))
        rows = [_row(each) for each in found]
        self.query_one("#jobs", Lines).show(rows, self._place if rows else None)
        self.query_one("#jobs-advice", Lines).show(self._advice(width))

    @work(thread=True, exit_on_error=False)
    def _read(self, span: str) -> None:
        """Read the jobs of a span, which takes up to some seconds."""
        from gpuadvisor.accounting.gathering import gather

        report, problem = None, ""
        try:
            report = gather(span, folder=self.watched.store)
        except Exception as error:
            problem = str(told(error))
        self.app.call_from_thread(self._show, span, report, problem)

    def _show(self, span: str, report: JobsReport | None, problem: str) -> None:
        self._is_reading = False
        if span != self._span:  # another was asked for meanwhile
            self._asked_s = None
        else:
            self._report, self._problem = report, problem
        self.redraw()

    # -- what is shown -----------------------------------------------------------------------------

    @property
    def _jobs(self) -> Sequence[AdvisedJob]:
        return () if self._report is None else self._report.jobs

    def _summary(self, width: int) -> list[Line]:
        from gpuadvisor.reports.jobs_document import summary

        if self._problem:
            return _wrapped(self._problem, width, Style.WARNING)
        if self._report is None:
            return [[(f"reading the jobs of the last {SPANS[self._span]} ...", Style.QUIET)]]
        said = summary(self._report.ledger, self._report.unmeasured_s)
        return _wrapped(
            f"The last {SPANS[self._span]} (w: another time). {said}", width, Style.PLAIN
        )

    def _advice(self, width: int) -> list[Line]:
        """Return what is to be said of the chosen job."""
        from gpuadvisor.reports.jobs_document import sentence

        if not self._jobs:
            return []
        chosen = self._jobs[self._place]
        if not chosen.advice and chosen.job.profile is None:
            return _wrapped(
                "Nothing is said of this one: it was measured for less than ten minutes, or little"
                " of its time was lost.",
                width,
                Style.QUIET,
            )
        return _wrapped(sentence(chosen.job, chosen.advice), width, Style.WARNING)

    # -- keys --------------------------------------------------------------------------------------

    def action_move(self, down: int) -> None:
        """Choose another job."""
        self._place = min(max(self._place + down, 0), max(len(self._jobs) - 1, 0))
        self.draw()

    def action_page(self, down: int) -> None:
        """Choose a job that many screens away."""
        self.action_move(down * max(self.query_one("#jobs").size.height - 1, 1))

    def on_lines_chosen(self, message: Lines.Chosen) -> None:
        if message.lines.id == "jobs":
            self.action_move(message.number - self._place)

    def action_span(self) -> None:
        """Read the next longer time, and after the longest the shortest."""
        spans = list(SPANS)
        self._span = spans[(spans.index(self._span) + 1) % len(spans)]
        self._report, self._asked_s = None, None
        self.draw()

    def action_details(self) -> None:
        """Show all that is known of the chosen job."""
        if self._jobs:
            chosen = self._jobs[self._place]
            self.app.push_screen(
                Reading(printable(chosen.job.script), lambda width: _details(chosen, width))
            )


def _row(each: AdvisedJob) -> Line:
    from gpuadvisor.reports.jobs_document import main_cause

    job = each.job
    gpus = ",".join(str(gpu.index) for gpu in each.gpus)
    words = (job.script, job.user or "?", gpus, f"{job.gpu_hours:.2f}", f"{job.lost_hours:.2f}")
    cells = (_cell(word, size) for word, (_, size) in zip(words, COLUMNS, strict=True))
    style = Style.WARNING if each.advice else Style.PLAIN
    return [("".join(cells) + main_cause(job), style)]


def _cell(words: str, size: int) -> str:
    words = printable(words)
    return f"{words if len(words) < size else words[: size - 2] + '…':<{size}}"


def _details(each: AdvisedJob, width: int) -> Sequence[Line]:
    """Return a job's command, what it took, its causes, and how hours to gain were estimated."""
    from gpuadvisor.reports.jobs_document import profiled, said

    job, whole = each.job, sum(loss.seconds for loss in each.job.causes.values()) or 1.0
    lines = _wrapped(job.command or "Its command line is not known.", width, Style.TITLE)
    ran = f"{'runs' if job.is_running else 'ran'} for {duration(job.end_s - job.start_s)}"
    lines += _wrapped(f"{ran}, {job.gpu_hours:.2f} GPU-hours, PID {job.pids[0]}", width)
    for name, loss in job.causes.items():
        percent = f"{100 * loss.seconds / whole:.0f} %"
        words = "cannot tell" if name == UNTOLD else name.replace("_", " ")
        lines += [[(f"{percent:>6}  {words}", Style.PLAIN)]]
    for advice in each.advice:
        lines += [[("", Style.PLAIN)], *_wrapped(said(advice), width, Style.WARNING)]
        lines += _wrapped(advice.method, width, Style.QUIET)
    findings = job.profile.findings if job.profile else ()
    for words in (*profiled(job), *findings[1:]):
        lines += [[("", Style.PLAIN)], *_wrapped(words, width, Style.WARNING)]
    return lines


def _wrapped(words: str, width: int, style: Style = Style.PLAIN) -> list[Line]:
    return [[(line, style)] for line in textwrap.wrap(printable(words), max(width, 20))]


PAGE = Jobs
