"""Markdown for a job's summary, or for one comment that is updated at each run.

It begins with a hidden line by which that comment is found again. It is appended to the job's
summary by itself where GITHUB_STEP_SUMMARY is set.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpuadvisor.domain.gate import GateResult, GateRun
from gpuadvisor.reports import figures
from gpuadvisor.reports.document import Column, Document, Folded, Section, Table
from gpuadvisor.reports.gate.document import printed, sections
from gpuadvisor.reports.gate.outcome import Outcome
from gpuadvisor.reports.render_markdown import markdown

FILE = "gpuadvisor-gate.md"
MARKER = "<!-- gpuadvisor-gate -->"
MOST_LETTERS = 60_000
"""A comment of GitHub holds 65,536 characters; what is longer goes without its runs."""


def render(outcomes: Sequence[Outcome]) -> str:
    """Return the marker, and a section a benchmark."""
    for with_runs in (True, False):
        parts = [_benchmark(each, with_runs) for each in outcomes]
        text = "\n".join([MARKER, "", *parts])
        if len(text) <= MOST_LETTERS:
            break
    return text


def _benchmark(outcome: Outcome, with_runs: bool) -> str:
    if outcome.found is None:
        rest = list(printed(outcome.output))
    else:
        # The first says the verdict, which is the summary here.
        _, *rest = sections(outcome.found)
        rest += [_runs(outcome.found)] if with_runs and outcome.found.runs else []
    name = f"gpuadvisor gate {outcome.name}"
    return markdown(Document((name,), rest, (f"{outcome.ending.capitalize()}:", f"{outcome.why}.")))


def _runs(found: GateResult) -> Section:
    columns = [
        Column("Run", "trial.number", str),
        Column("Version", "side", left=True),
        Column("What for", "place", left=True),
        Column("Step time", lambda run: _figure(run, "mean_step_ms"), figures.milliseconds),
        Column("Peak memory", lambda run: _figure(run, "peak_memory_bytes"), figures.memory),
        Column("SM clock, MHz", "sm_clock_mhz", lambda clock: f"{clock:.0f}" if clock else "-"),
        Column("Remark", lambda run: run.trial.reason or run.trial.disturbance, left=True),
    ]
    return Section("", [Folded("All runs", [Table(found.runs, columns)])])


def _figure(run: GateRun, name: str) -> float | None:
    return getattr(run.trial.measurement, name, None)
