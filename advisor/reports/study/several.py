"""The list of all studies, and several of them side by side, rendered in three ways."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from gpuadvisor.domain.knobs import Contribution
from gpuadvisor.domain.study import Speedup, StudyResult, Verdict
from gpuadvisor.reports import figures
from gpuadvisor.reports.document import (
    Block,
    Bullets,
    Code,
    Column,
    Content,
    Document,
    Paragraph,
    Section,
    Table,
)
from gpuadvisor.reports.render_html import html
from gpuadvisor.reports.render_markdown import markdown
from gpuadvisor.reports.render_text import print_sections, table_lines
from gpuadvisor.reports.study.comparison import (
    STEP_TIMES,
    ComparedStudy,
    Difference,
    StudiesComparison,
    verdict_of_speedups,
)
from gpuadvisor.reports.study.wording import INCOMPARABLE, ORIGINS, says_nothing, verdict

if TYPE_CHECKING:
    from rich.console import Console

    from gpuadvisor.storage.database import StudyRecord

ABSENT = "–"  # noqa: RUF001 - an en dash is what typography wants for `there is none`
VERDICTS = {
    Verdict.FASTER: "faster",
    Verdict.FASTER_UNVERIFIED: "faster, not verified",
    Verdict.NO_GAIN: "no gain",
    Verdict.INCONCLUSIVE: "inconclusive",
    Verdict.NOT_TRIED: "not tried",
}
"""Verdicts in the words of tables."""
_GAP = _INDENT = 2
"""Spaces between two columns of the list, and before the first."""


# -- the list ------------------------------------------------------------------------------------


def print_studies(records: Sequence[StudyRecord], console: Console) -> None:
    """Print the list: a line a study where it is piped, folded into the width of a terminal."""
    if console.is_terminal:
        print_sections(console, [Section("", [_list(records)])])
        return
    # As wide as they need to be, so that each line has the same columns.
    plain = _list(records)
    widths = [max(len(str(cell)) for cell in cells) for cells in zip(*plain.cells(), strict=True)]
    widths[0] += _INDENT
    columns = [
        Column(c.title, c.value, c.show, left=True, width=max(w, len(c.title)) + _GAP)
        for c, w in zip(plain.columns, widths, strict=True)
    ]
    for line in table_lines(Table(records, columns)):
        console.print(line, soft_wrap=True, markup=False)


def studies_markdown(records: Sequence[StudyRecord]) -> str:
    """Return the list as GitHub-flavoured Markdown."""
    return markdown(_list_document(records))


def studies_html(records: Sequence[StudyRecord]) -> str:
    """Return the list as a page."""
    return html(_list_document(records))


def _list_document(records: Sequence[StudyRecord]) -> Document:
    counted = figures.count(len(records), "study", "studies")
    return Document(
        name=("gpuadvisor studies",),
        sections=(Section("", [_list(records)]),),
        summary=(f"{counted}, the newest first.", ""),
        kind=("gpuadvisor", "studies"),
        title="Studies",
        headline=("", counted),
    )


def _list(records: Sequence[StudyRecord]) -> Table:
    columns = (
        Column("Study", "name"),
        Column("When (UTC)", "started", _when, left=True),
        Column("Script", _script, left=True),
        Column("Device", "environment.device.name", left=True),
        Column("Verdict", verdict_of_record, left=True),
        Column("Speed-up", "speedup", _speedup, left=True),
        Column("Took", "wall_s", _took, left=True),
        Column("Plan", _plan, left=True),
    )
    return Table(records, columns, "wide")


def _when(started: str) -> str:
    return f"{started[:10]} {started[11:16]}" if len(started) >= 16 else started or ABSENT


def _script(record: StudyRecord) -> Content:
    if record.is_module:
        return f"-m {record.script} in {_short(record.folder)}"
    return _short(str(PurePath(record.folder) / record.script))


def _short(path: str) -> str:
    """Return a path with the home folder as `~`, as a shell takes it."""
    try:
        inside = PurePath(path).relative_to(Path.home())
    except (RuntimeError, ValueError):  # there is no home, or it is elsewhere
        return path
    return str(PurePath("~") / inside)


def verdict_of_record(record: StudyRecord) -> str:
    """Return how a study ended, in the words of a table."""
    if record.verdict is None:
        return "no result yet"
    return VERDICTS[record.verdict] + (" (ended early)" if record.interrupted else "")


def _speedup(speedup: Speedup | None) -> str:
    if speedup is None:
        return ABSENT
    if says_nothing(speedup):
        return INCOMPARABLE
    decimals = figures.ratio_decimals(speedup.ci99_low, speedup.ci99_high)
    ends = figures.interval(speedup.ci99_low, speedup.ci99_high)
    return f"{figures.ratio(speedup.ratio, decimals)} ({ends})"


def _took(seconds: float | None) -> str:
    return ABSENT if seconds is None else figures.duration(seconds)


def _plan(record: StudyRecord) -> Content:
    if record.verifies is not None:
        return f"verifies {_short(record.verifies)}"
    return ABSENT if record.plan is None else Code(_short(record.plan))


# -- side by side --------------------------------------------------------------------------------


def print_comparison(comparison: StudiesComparison, console: Console) -> None:
    """Print the studies side by side, and first what cannot be compared."""
    print_sections(console, _sections(comparison))


def comparison_markdown(comparison: StudiesComparison) -> str:
    """Return the studies side by side as GitHub-flavoured Markdown."""
    return markdown(_comparison_document(comparison))


def comparison_html(comparison: StudiesComparison) -> str:
    """Return the studies side by side as a page."""
    return html(_comparison_document(comparison))


def _comparison_document(comparison: StudiesComparison) -> Document:
    names = tuple(each.name for each in comparison.studies)
    said = verdict_of_speedups(comparison) or ""
    return Document(
        name=names,
        sections=tuple(_sections(comparison)),
        kind=("gpuadvisor", "studies"),
        title=" and ".join(names),
        headline=("", said or f"{len(names)} studies"),
    )


def _sections(comparison: StudiesComparison) -> Iterator[Section]:
    if comparison.obstacles:
        lines = [f"{each.figures}: {each.why}" for each in comparison.obstacles]
        yield Section("Cannot be compared", [Bullets(lines)])
    if said := verdict_of_speedups(comparison):
        yield Section("", [Paragraph(said, "strong")])
    yield Section("Studies", [_figures(comparison)])
    yield Section("Settings that differ", list(_settings(comparison)))
    yield Section("Environment that differs", [_environment(comparison)])
    if any(each.result.contributions for each in comparison.studies):
        yield Section("What each knob is worth", [_contributions(comparison)])
    if comparison.remarks:
        yield Section("Notes", [Bullets(comparison.remarks)])


def _side_by_side(
    comparison: StudiesComparison, title: str, rows: Sequence[tuple[Content, Sequence[Content]]]
) -> Table:
    """Return a table with a column for each study; a row is its name, and what each study has."""

    def cell(place: int) -> Callable[[tuple[Content, Sequence[Content]]], Content]:
        return lambda row: row[1][place]

    columns = [Column(title, lambda row: row[0])]
    columns += [
        Column(each.name, cell(place), left=True) for place, each in enumerate(comparison.studies)
    ]
    return Table(rows, columns, "wide")


def _figures(comparison: StudiesComparison) -> Table:
    quantities: list[tuple[str, Callable[[ComparedStudy], str]]] = [
        ("When (UTC)", lambda each: _when(each.result.started)),
        ("Script", lambda each: _short(each.script)),
        ("Arguments", lambda each: " ".join(each.result.args) or ABSENT),
        ("Device", lambda each: each.result.environment.device.name),
        ("Level, objective", lambda each: f"{each.result.level}, {each.result.objective}"),
        ("Verdict", lambda each: VERDICTS[verdict(each.result)]),
        ("Speed-up", lambda each: _speedup(each.result.speedup)),
        ("Baseline: median step", lambda each: _median(each.result, best=False)),
        ("Baseline: throughput", lambda each: _throughput(each.result)),
        ("Baseline: peak memory", lambda each: _memory(each.result)),
        ("Best: median step", lambda each: _median(each.result, best=True)),
    ]
    rows: list[tuple[Content, Sequence[Content]]] = [
        (name, [show(each) for each in comparison.studies]) for name, show in quantities
    ]
    if comparison.is_comparable(STEP_TIMES):
        rows.append(("Baseline: time, relative to the first", _relative(comparison)))
    return _side_by_side(comparison, "", rows)


def _relative(comparison: StudiesComparison) -> list[str]:
    """Return how each baseline's median step compares with the first study's."""
    times = [figures.quantities(each.result.baseline).p50_ms for each in comparison.studies]
    return [figures.change(times[0], each) or ABSENT for each in times]


def _median(result: StudyResult, best: bool) -> str:
    measured = result.best if best else result.baseline
    if measured is None:
        return ABSENT
    return figures.milliseconds(figures.quantities(measured).p50_ms)


def _throughput(result: StudyResult) -> str:
    measured = figures.quantities(result.baseline)
    return figures.throughput(measured.throughput, measured.unit)


def _memory(result: StudyResult) -> str:
    return figures.memory(figures.quantities(result.baseline).peak_memory_bytes)


def _settings(comparison: StudiesComparison) -> Iterator[Block]:
    if comparison.settings:
        rows = [(Code(each.name), _shown(each)) for each in comparison.settings]
        yield _side_by_side(comparison, "Knob", rows)
    else:
        yield Paragraph("None: all of them set the same.")
    if comparison.same_settings:
        yield Paragraph(f"The same in all: {figures.settings(comparison.same_settings)}.", "note")


def _shown(difference: Difference) -> list[Content]:
    return [ABSENT if v is None else figures.knob_value(v) for v in difference.values]


def _environment(comparison: StudiesComparison) -> Block:
    if not comparison.environment:
        return Paragraph("Nothing that is known of it.")
    rows = [(each.title, _known(each)) for each in comparison.environment]
    return _side_by_side(comparison, "", rows)


def _known(difference: Difference) -> list[Content]:
    def show(value: Any) -> str:
        if value is None:
            return "not known"
        if isinstance(value, bool):
            return "yes" if value else "no"
        return figures.memory(value) if difference.name == "memory_bytes" else str(value)

    return [show(value) for value in difference.values]


def _contributions(comparison: StudiesComparison) -> Table:
    known = [
        {each.knob: each for each in study.result.contributions} for study in comparison.studies
    ]
    knobs = list(dict.fromkeys(name for of_study in known for name in of_study))
    rows: list[tuple[Content, Sequence[Content]]] = [
        (Code(name), [_worth(of_study.get(name)) for of_study in known]) for name in knobs
    ]
    return _side_by_side(comparison, "Knob", rows)


def _worth(contribution: Contribution | None) -> str:
    if contribution is None:
        return ABSENT
    low, high = contribution.low, contribution.high
    worth = figures.ratio(contribution.ratio, figures.ratio_decimals(low, high))
    setting = figures.settings({contribution.knob: contribution.value})
    interval = f" ({figures.interval(low, high)})" if low is not None else ""
    if not contribution.origin.is_shown:
        interval += f", {ORIGINS[contribution.origin]}"
    shown = "" if setting == contribution.knob else f", {setting.partition('=')[2]}"
    return f"{worth}{interval}{shown}"
