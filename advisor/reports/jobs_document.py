"""Jobs and what they waste: on the terminal, in Markdown, as a digest of one page, and as JSON."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from gpuadvisor.domain.jobs import UNTOLD, Advice, Amounts, Job, Ledger, Unclaimed
from gpuadvisor.printable import duration
from gpuadvisor.reports.document import (
    Block,
    Bullets,
    Column,
    Document,
    Paragraph,
    Section,
    Table,
)
from gpuadvisor.reports.render_markdown import markdown
from gpuadvisor.reports.render_text import print_sections
from gpuadvisor.rules.jobs.cause import load_causes

if TYPE_CHECKING:
    from rich.console import Console

    from gpuadvisor.domain.telemetry import Gpu

JOBS_VERSION = 1
ABSENT = "–"  # noqa: RUF001 - an en dash is what typography wants for `there is none`
MOST_SAID = 10
"""Jobs that are advised on before the table of all."""
MOST_ROWS = 40
"""Rows of the table, unless all are asked for."""
DIGEST_ROWS = 10
LEFT_OUT = (
    (90, ("Tensor", "DRAM", "CPU", "SM", "Memory", "kWh", "Util", "Lasted")),
    (120, ("Tensor", "DRAM", "CPU", "SM", "Memory")),
    (150, ("Tensor", "DRAM")),
)
"""Columns of the table that are left out on a terminal narrower than so many characters."""
WORDS = {
    Unclaimed.FREE: "free",
    Unclaimed.UNATTRIBUTED: "used by no process that was listed",
    Unclaimed.UNKNOWN: "used by it is not known whom",
    Unclaimed.OTHERS: "of others' jobs",
}
MIG = "MIG-"
"""Begin of the UUID of an instance (nvmlDeviceGetUUID)."""
Advised = Sequence[tuple[Job, Sequence["Gpu"], Sequence[Advice]]]
"""Jobs in the order in which they are shown, each with its GPUs and what is to be said of it."""
Groups = Sequence[tuple[str, int, Amounts, float]]
"""Name, number of jobs, what they took, and the GPU-hours that they waste at most."""


def sections(
    ledger: Ledger,
    jobs: Advised,
    unmeasured_s: float,
    *,
    all_rows: bool = False,
    width: int | None = None,
) -> list[Section]:
    """Return the summary, what is to be said, and the table of jobs, with the columns that fit a
    terminal's width in characters; all for None."""
    made = [Section("", [Paragraph(summary(ledger, unmeasured_s))])]
    said = [(job, advice) for job, _, advice in jobs if advice or job.profile][:MOST_SAID]
    if said:
        blocks: list[Block] = [Bullets([sentence(job, each) for job, each in said])]
        if methods := list(_methods(advice for _, advice in said)):
            blocks.append(Paragraph("How it is estimated: " + " ".join(methods), "note"))
        made.append(Section("What is wasted", blocks))
    if jobs:
        shown = jobs if all_rows else jobs[:MOST_ROWS]
        made.append(Section("Jobs", [_table(shown, len(jobs) - len(shown), width)]))
    return made


def print_jobs(console: Console, made: Sequence[Section]) -> None:
    """Print sections on the terminal."""
    print_sections(console, made)


def grouped_sections(ledger: Ledger, by: str, groups: Groups, unmeasured_s: float) -> list[Section]:
    """Return the summary, and a table of users, scripts or GPUs."""
    columns = (
        Column({"gpu": "GPU"}.get(by, by.capitalize()), lambda row: row[0]),
        Column("Jobs", lambda row: str(row[1])),
        *_amount_columns(lambda row: row[2]),
        Column("Wasted, h", lambda row: _hours(row[3])),
    )
    tables = [Section("", [Table(groups, columns, "wide")])] if groups else []
    return [Section("", [Paragraph(summary(ledger, unmeasured_s))]), *tables]


def digest(ledger: Ledger, jobs: Advised, groups: Groups, unmeasured_s: float, host: str) -> str:
    """Return one page of Markdown on what a machine's GPUs did, for a chat or a mail."""
    document = Document(
        (f"GPUs of {host}, {_day(ledger.since_s)} to {_day(ledger.until_s)}",),
        [
            *sections(ledger, jobs[:DIGEST_ROWS], unmeasured_s)[1:],
            *grouped_sections(ledger, "user", groups, unmeasured_s)[1:],
        ],
        summary=("", summary(ledger, unmeasured_s)),
    )
    return markdown(document)


def jobs_markdown(made: Sequence[Section]) -> str:
    """Return sections as GitHub-flavoured Markdown."""
    return markdown(Document(("gpuadvisor jobs",), made))


def summary(ledger: Ledger, unmeasured_s: float) -> str:
    """Return in some sentences where the GPUs' time went."""
    total = ledger.total
    if not total.seconds:
        return "Nothing was measured of the GPUs in this time."
    taken = sum(job.amounts.seconds for job in ledger.jobs)
    jobs = f"{_count(len(ledger.jobs))} took {_hours(taken / 3600)}"
    parts = [jobs if ledger.jobs else "no job took any"]
    for kind, words in WORDS.items():
        if kind in ledger.unclaimed and ledger.unclaimed[kind].seconds >= 0.001 * total.seconds:
            parts.append(f"{_hours(ledger.unclaimed[kind].seconds / 3600)} were {words}")
    said = f"Of {_hours(total.seconds / 3600)} measured GPU-hours, {', '.join(parts)}."
    if total.energy_s:
        known_h = f" in the {_hours(total.energy_s / 3600)} of which power was measured"
        is_whole = total.energy_s >= 0.999 * total.seconds
        said += f" All took {_kwh(total)} kWh{'' if is_whole else known_h}."
    if any(uuid.startswith(MIG) for job in ledger.jobs for uuid in job.gpus):
        said += " Each MIG instance counts as a GPU; the driver tells no power of one."
    if unmeasured_s > 0.001 * total.seconds:
        said += f" Of {_hours(unmeasured_s / 3600)} more nothing is known: nobody measured."
    return f"{said} {ledger.withheld}" if ledger.withheld else said


def sentence(job: Job, advice: Sequence[Advice]) -> str:
    """Return a job with all that is to be said of it, as one line."""
    clauses = [*map(said, advice), *profiled(job)]
    return f"{job.script}, {_hours(job.gpu_hours)} GPU-hours: {'; '.join(clauses)}."


def profiled(job: Job) -> list[str]:
    """Return what the profile of a job says first, as a clause; nothing where nobody tried to make
    one."""
    made = job.profile
    if made is None:
        return []
    if made.problem is not None:
        return [f"it could not be profiled: {made.problem.rstrip('.')}"]
    if made.name is None:
        return [f"a profile of it was begun {_moment(made.time_s)} and is not complete"]
    first, *others = made.findings
    more = f", and {len(others)} more" if others else ""
    return [f"its profile says: {first}{more}, `gpuadvisor diagnose {shlex.quote(made.name)}`"]


def said(each: Advice) -> str:
    """Return one advice as a clause; what could be gained is said to be an estimate."""
    gain = ""
    if each.gain_hours is not None:
        hedge = "up to" if each.is_bound else "about"
        gain = f": {hedge} {_hours(each.gain_hours)} GPU-hours to gain (estimate)"
    return f"{each.sentence}{gain}" + (f", {each.what_to_do}" if each.what_to_do else "")


def _methods(every: Iterator[Sequence[Advice]]) -> Iterator[str]:
    told = {each.cause: each.method for advice in every for each in advice if each.method}
    for cause, method in told.items():
        yield f"{cause.replace('_', ' ')}: {method[0].lower()}{method[1:]}"


def _table(jobs: Advised, left: int, width: int | None) -> Table:
    every = (
        Column("Job", lambda row: row[0].script),
        Column("User", lambda row: row[0].user or ABSENT, left=True),
        Column("GPUs", lambda row: _gpus(row[0], row[1]), left=True),
        Column("Began", lambda row: _moment(row[0].start_s), left=True),
        Column("Lasted", lambda row: _lasted(row[0])),
        *_amount_columns(lambda row: row[0].amounts),
        Column("Memory", lambda row: f"{row[0].memory_max_bytes / 2**30:.0f} GiB"),
        Column("Wasted, h", lambda row: _hours(row[0].lost_hours)),
        Column("Most of the time", lambda row: main_cause(row[0]), left=True),
    )
    narrow = (less for at, less in LEFT_OUT if width is not None and width < at)
    left_out = next(narrow, ())
    columns = [column for column in every if column.title not in left_out]
    notes = (f"{_count(left)} more: `gpuadvisor jobs --all` shows them.",) if left else ()
    return Table(jobs, columns, "wide", notes)


def _amount_columns(of: Callable[[Any], Amounts]) -> list[Column]:
    """Return the columns of what jobs took; `of` returns that of a row."""
    return [
        Column("GPU-h", of, lambda amounts: _hours(amounts.seconds / 3600)),
        Column("kWh", of, _kwh),
        Column("Util", of, lambda amounts: _percent(amounts.utilization)),
        Column("SM", of, lambda amounts: _percent(amounts.sm_active)),
        Column("Tensor", of, lambda amounts: _percent(amounts.tensor_active)),
        Column("DRAM", of, lambda amounts: _percent(amounts.dram_active)),
        Column("CPU", of, _cores),
    ]


def _kwh(amounts: Amounts) -> str:
    kwh = amounts.energy_j / 3.6e6
    return f"{kwh:.{1 if kwh >= 1 else 2}f}" if amounts.energy_s else ABSENT


def _cores(amounts: Amounts) -> str:
    """Return how many cores the job kept busy for each GPU, with its children."""
    known = [each for each in (amounts.cpu_cores, amounts.children_cpu_cores) if each is not None]
    return f"{sum(known):.1f}" if known else ABSENT


def main_cause(job: Job) -> str:
    """Return what held for most of a job's time, with its share; a dash where nothing is known."""
    causes = [(loss.seconds, name) for name, loss in job.causes.items() if loss.seconds > 0]
    if not causes:
        return ABSENT
    seconds, name = max(causes)
    cause = load_causes().get(name)
    label = cause.label if cause else ""
    words = "cannot tell" if name == UNTOLD else label or name.replace("_", " ")
    return f"{words} {100 * seconds / sum(each[0] for each in causes):.0f} %"


def _gpus(job: Job, gpus: Sequence[Gpu]) -> str:
    numbers = [str(gpu.index) for gpu in gpus]
    return ", ".join(numbers) if len(numbers) == len(job.gpus) else f"{len(job.gpus)} GPUs"


def _lasted(job: Job) -> str:
    return duration(job.end_s - job.start_s) + (" so far" if job.is_running else "")


def _moment(time_s: float) -> str:
    return f"{datetime.fromtimestamp(time_s):%d %b %H:%M}"


def _day(time_s: float) -> str:
    return f"{datetime.fromtimestamp(time_s):%d %b}"


def _percent(share: float | None) -> str:
    return ABSENT if share is None else f"{100 * share:.0f} %"


def _count(amount: int) -> str:
    return "1 job" if amount == 1 else f"{amount:,} jobs"


def _hours(hours: float) -> str:
    """Return hours with the digits that say something: `31`, `4.2`, `0.25`, `0`."""
    if hours >= 10:
        return f"{hours:,.0f}"
    return f"{hours:.1f}" if hours >= 1 else f"{hours:.2f}" if hours >= 0.005 else "0"


# -- for machines ----------------------------------------------------------------------------------


def jobs_json(ledger: Ledger, jobs: Advised, unmeasured_s: float) -> dict[str, Any]:
    """Return the jobs of a span; docs/jobs.md explains every field."""
    return {
        "schema_version": JOBS_VERSION,
        "since_s": ledger.since_s,
        "until_s": ledger.until_s,
        "total": _amounts(ledger.total),
        "unclaimed": {str(kind): _amounts(each) for kind, each in ledger.unclaimed.items()},
        "unmeasured_gpu_hours": unmeasured_s / 3600,
        "withheld": ledger.withheld,
        "jobs": [_job(job, gpus, advice) for job, gpus, advice in jobs],
    }


def _job(job: Job, gpus: Sequence[Gpu], advice: Sequence[Advice]) -> dict[str, Any]:
    return {
        "job": job.key,
        "script": job.script,
        "command": job.command,
        "user": job.user,
        "container": job.container,
        "gpus": list(job.gpus),
        "gpu_indices": [gpu.index for gpu in gpus],
        "pids": list(job.pids),
        "start_s": job.start_s,
        "end_s": job.end_s,
        "is_running": job.is_running,
        "by_gpuadvisor": job.by_gpuadvisor,
        "profile": job.profile
        and {
            "name": job.profile.name,
            "time_s": job.profile.time_s,
            "findings": list(job.profile.findings),
            "problem": job.profile.problem,
        },
        "memory_max_bytes": job.memory_max_bytes,
        **_amounts(job.amounts),
        "wasted_gpu_hours": job.lost_hours,
        "causes": {
            name: {
                "gpu_hours": loss.seconds / 3600,
                "wasted_gpu_hours": loss.lost_s / 3600,
                "held_hours": loss.held_s / 3600,
            }
            for name, loss in job.causes.items()
        },
        "advice": [
            {
                "cause": each.cause,
                "text": said(each),
                "gain_gpu_hours": each.gain_hours,
                "method": each.method or None,
            }
            for each in advice
        ],
    }


def _amounts(amounts: Amounts) -> dict[str, Any]:
    return {
        "gpu_hours": amounts.seconds / 3600,
        "held_hours": amounts.held_s / 3600,
        "shared_hours": amounts.shared_s / 3600,
        "energy_kwh": amounts.energy_j / 3.6e6 if amounts.energy_s else None,
        "memory_mean_bytes": amounts.memory_mean_bytes,
        "utilization_pct": _pct(amounts.utilization),
        "sm_active_pct": _pct(amounts.sm_active),
        "tensor_active_pct": _pct(amounts.tensor_active),
        "dram_active_pct": _pct(amounts.dram_active),
        "cpu_cores": amounts.cpu_cores,
        "children_cpu_cores": amounts.children_cpu_cores,
    }


def _pct(share: float | None) -> float | None:
    return None if share is None else 100 * share
