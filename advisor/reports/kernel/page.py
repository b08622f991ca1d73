"""A tuned kernel as a page or Markdown: its best points, their worth, and how to use them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from gpuadvisor.domain.kernel_records import Evaluation, KernelResult
from gpuadvisor.domain.kernel_rules import shown
from gpuadvisor.domain.study import Objective, Trial, TrialState
from gpuadvisor.errors import UsageError
from gpuadvisor.reports import figures, svg
from gpuadvisor.reports.document import (
    Block,
    Bullets,
    Code,
    Column,
    Document,
    Folded,
    Listing,
    Paragraph,
    Plot,
    Section,
    Table,
    Terms,
)
from gpuadvisor.reports.kernel.document import failures
from gpuadvisor.reports.kernel.exports import configuration, header, verdict
from gpuadvisor.reports.kernel.outcome import KernelOutcome, roofline_sentence
from gpuadvisor.reports.markup import Markup
from gpuadvisor.reports.render_html import html
from gpuadvisor.reports.render_markdown import markdown
from gpuadvisor.reports.render_text import print_sections, table_lines
from gpuadvisor.reports.study import plots as study_plots
from gpuadvisor.tuners.kernels.parameter_importance import Importance, unexplained

if TYPE_CHECKING:
    from rich.console import Console

FASTEST = 20
"""Points in the table of the fastest."""
_INDENT = 2
"""Spaces before a table of text."""
_ROW, _BAR, _AXIS, _MARGIN = 46, 12, 26, 2


def kernel_html(outcomes: Sequence[KernelOutcome]) -> str:
    """Return the page of one kernel's results, the newest first."""
    return html(kernel_document(outcomes))


def kernel_markdown(outcomes: Sequence[KernelOutcome]) -> str:
    """Return the same as GitHub-flavoured Markdown."""
    return markdown(kernel_document(outcomes))


def print_list(results: Sequence[KernelResult], console: Console) -> None:
    """Print a line for each result, folded into the width of a terminal."""
    columns = [
        Column("Kernel", "kernel"),
        Column("Problem", lambda each: shown(each.problem) or "-", left=True),
        Column("GPU", "device", left=True),
        Column("When (UTC)", lambda each: f"{each.started[:10]} {each.started[11:16]}", left=True),
        Column("Verdict", verdict, left=True),
        Column("File", "file", left=True),
    ]
    if console.is_terminal:
        print_sections(console, [Section("", [Table(results, columns, "wide")])])
        return
    cells = [[str(cell) for cell in row] for row in Table(results, columns).cells()]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    widths[0] += _INDENT
    fitted = [
        replace(column, left=True, width=max(width, len(column.title)) + 2)
        for column, width in zip(columns, widths, strict=True)
    ]
    for line in table_lines(Table(results, fitted)):
        console.print(line.rstrip(), soft_wrap=True, markup=False)


def kernel_document(outcomes: Sequence[KernelOutcome]) -> Document:
    """Return all that is known of one kernel, the newest result first."""
    results = [each.result for each in outcomes]
    newest = results[0]
    value, words = _headline(results)
    sections = [Section("Best points", [_best(outcomes)]), *_use(results)]
    for number, each in enumerate(outcomes):
        sections += _of_problem(each, number, len(outcomes) > 1)
    return Document(
        name=(newest.kernel,),
        summary=(f"{value} {words}".strip() + ".", ""),
        kind=("gpuadvisor", f"kernel {newest.kernel}"),
        title=f"{newest.kernel}: {value} {words}".strip(),
        facts=[
            figures.counted([each.device for each in results]),
            newest.file,
            f"{newest.started[:10]} {newest.started[11:16]} UTC",
            f"{figures.count(sum(len(each.evaluations) for each in results), 'evaluation')} in "
            f"{figures.duration(sum(each.wall_s for each in results))}",
        ],
        headline=(value, words),
        sections=tuple(sections),
        footer=(
            "A speed-up is the ratio of the default's time to the best point's, from blocks of"
            " launches in turns in a fresh process; times are of launches with a cold L2 cache.",
        ),
    )


def _headline(results: Sequence[KernelResult]) -> tuple[str, str]:
    ratios = [each.speedup.ratio for each in results if each.best is not None and each.speedup]
    if not ratios:
        return "", "nothing was shown to be faster than the default"
    low, high = figures.ratio(min(ratios)), figures.ratio(max(ratios))
    of = "" if len(ratios) == len(results) else f" for {len(ratios)} of {len(results)}"
    objectives = {each.objective for each in results if each.best is not None}
    better = {
        frozenset({Objective.LATENCY}): "faster than",
        frozenset({Objective.ENERGY}): "less energy than",
    }.get(frozenset(objectives), "better than")
    return (high if low == high else f"{low} to {high}"), f"{better} the default{of}"


def _best(outcomes: Sequence[KernelOutcome]) -> Table:
    columns = (
        Column("Problem", lambda each: shown(each.result.problem) or "-"),
        Column("GPU", "result.device", left=True),
        Column("Default", "result.default_ms", figures.milliseconds),
        Column("Best", lambda each: figures.milliseconds(each.result.best_ms)
               if each.result.best is not None else "-"),
        Column("Verdict", lambda each: verdict(each.result), left=True),
        Column("Point", lambda each: Code(shown(each.result.best or each.result.default)),
               left=True),
    )  # fmt: skip
    return Table(outcomes, columns, "wide")


# -- how to use it ---------------------------------------------------------------------------------


def _use(results: Sequence[KernelResult]) -> Iterator[Section]:
    newest = results[0]
    sizes = "".join(f", {name}={value!r}" for name, value in newest.problem.items())
    ask = f"import gpuadvisor\n\npoint = gpuadvisor.best({newest.kernel!r}{sizes})\n"
    blocks: list[Block] = [
        Paragraph("In a Python program, for these sizes or near ones, on this GPU or another:"),
        Listing(ask, "python"),
    ]
    if newest.language == "triton":
        configs = dict.fromkeys(configuration(each.best or each.default) for each in results)
        blocks += [
            Paragraph("As configurations of Triton:"),
            Listing("".join(f"{each}\n" for each in configs), "python"),
        ]
    elif newest.language in ("cuda_cpp", "cupy"):
        try:
            text = header(results)
        except UsageError as error:
            blocks.append(Paragraph(f"No header can be made: {error}.", "note"))
        else:
            blocks.append(Folded("As a header for CUDA C++", [Listing(text, "c")]))
    blocks.append(Listing(f"gpuadvisor kernels {newest.kernel} -o {newest.kernel}.json", "shell"))
    yield Section("How to use them", blocks)


# -- one problem on one GPU ------------------------------------------------------------------------


def _of_problem(found: KernelOutcome, number: int, is_one_of_several: bool) -> Iterator[Section]:
    result = found.result
    where = " on ".join(filter(None, (shown(result.problem), result.device)))
    title = f": {where}" if is_one_of_several else ""
    facts = [
        ("Verdict", verdict(result)),
        ("Default", Code(shown(result.default))),
        ("Best", Code(shown(result.best)) if result.best is not None else ""),
        ("Roofline", roofline_sentence(found)),
        ("Evaluated", f"{len(result.evaluations):,} of {result.points:,} points"),
        ("Every evaluation", Code(result.record)),
    ]
    blocks: list[Block] = [Terms(facts)]
    if remarks := list(_remarks(result)):
        blocks.append(Bullets(remarks))
    yield Section(f"What was measured{title}", blocks)
    yield from _parameters(found, number, title)
    yield from _search(result, number, title)
    if timed := _fastest(result.evaluations):
        columns = (
            Column("Point", lambda each: Code(shown(each.point))),
            Column("Time", "time_ms", figures.milliseconds),
            Column("Gain", "gain", figures.ratio),
            Column("Registers", lambda each: str(each.resources.get("registers", "-"))),
        )
        yield Section(f"Fastest points{title}", [Table(timed, columns)], is_folded=True)


def _remarks(result: KernelResult) -> Iterator[str]:
    yield from failures(result)
    if not result.has_reference:
        yield "Results were compared with the default's: the kernel has no reference."
    if not result.repeats:
        yield "The default does not give the same bits twice."
    yield from result.remarks
    if result.interrupted:
        yield f"The search ended early: {result.interrupted}."


def _parameters(found: KernelOutcome, number: int, title: str) -> Iterator[Section]:
    told = [each for each in found.importances if each.share is not None]
    if not told:
        return
    rest = unexplained(told) or 0.0
    columns = (
        Column("Parameter", lambda each: Code(each.parameter)),
        Column("Share", lambda each: f"{each.share:.0%}"),
        Column("Fastest with each value, over the fastest of all", lambda each: ", ".join(
            f"{value.value}: {figures.ratio(value.cost)}" for value in each.values), left=True),
    )  # fmt: skip
    lead = (
        "The share of the differences in time that each explains by itself: its values are given"
        " factors by which they multiply the time, fitted to all points that were timed. What"
        f" parameters do only together, and noise, is the rest: {rest:.0%}."
    )
    if len(found.result.evaluations) < found.result.points:
        lead += " They describe the points that the search chose, which are mostly fast ones."
    plot = Plot(
        lambda width: plot_importance(told, width, f"importance-{number}"),
        table=Table(told, columns, "words"),
    )
    yield Section.led(f"Which parameters matter{title}", lead, plot)


def plot_importance(importances: Sequence[Importance], width: float, name: str) -> Markup:
    """Return a bar a parameter, from nothing to all of the variance."""
    height = _ROW * len(importances) + _AXIS
    x = svg.Scale(0, 1, _MARGIN, width - _MARGIN)
    ticks = [(share, f"{share:.0%}") for share in (0, 0.25, 0.5, 0.75, 1)]
    bottom = height - _AXIS + 4
    parts = svg.columns(x, ticks, height - 6, (0, bottom), (20, 20))
    for place, each in enumerate(importances):
        top, share = _ROW * place, each.share or 0.0
        words = f"{share:.0%}"
        called = svg.shorten(each.parameter, x.end - 7.5 * len(words) - 24)
        parts += [
            svg.label(x.start + 8, top + 16, called, "halo name"),
            svg.label(x.end, top + 16, words, "halo figure", "end"),
            svg.bar(x.start, top + 24, max(1.0, x(share) - x.start), _BAR, "bar",
                    f"{each.parameter}: {words}"),
        ]  # fmt: skip
    said = "; ".join(f"{each.parameter} {each.share or 0:.0%}" for each in importances) + "."
    title = "How much of the differences in time each parameter explains alone"
    return svg.canvas(name, width, height, title, said, *parts)


def _search(result: KernelResult, number: int, title: str) -> Iterator[Section]:
    trials = [
        Trial(number, each.point, "search", each.state, each.reason, gain=each.gain)
        for number, each in enumerate(result.evaluations)
    ]
    if not trials:
        return
    lead = (
        "The default's time over each point's, in the order in which they were evaluated, in single"
        " measurements; the line is the best so far."
    )
    if any(trial.gain is not None and trial.gain < study_plots.FLOOR for trial in trials):
        lead += f" What is slower than {study_plots.FLOOR}x is drawn there."
    plot = Plot(lambda width: study_plots.plot_trials(trials, width, f"search-{number}"), lead=lead)
    yield Section(f"Search{title}", [plot])


def _fastest(evaluations: Sequence[Evaluation]) -> list[Evaluation]:
    timed = [each for each in evaluations if each.state is TrialState.COMPLETE and each.gain]
    return sorted(timed, key=lambda each: -(each.gain or 0.0))[:FASTEST]
