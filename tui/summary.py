"""The end of `gpuadvisor tune` on a terminal: what was found, what it is worth, how to keep it."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from gpuadvisor.domain.knobs import Snippet
from gpuadvisor.domain.study import StudyResult
from gpuadvisor.printable import printable
from gpuadvisor.reports import wording
from gpuadvisor.reports.quantities import comparisons

_GOOD = "bold green"
_QUIET = "dim"


def print_summary(result: StudyResult, snippets: Sequence[Snippet], console: Console) -> None:
    """Print the study's result; `snippets` are the lines that make the settings permanent.

    Colours and widths are the console's: it is plain when piped, and obeys NO_COLOR.
    """
    _Summary(console).show(result, snippets)


class _Summary:
    """Writes to one console, in paragraphs with an empty line before each."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def show(self, result: StudyResult, snippets: Sequence[Snippet]) -> None:
        self._conclusion(result)
        self._comparison(result)
        if wording.is_proven(result):
            self._contributions(result)
        self._expectations(result)
        self._list("Notes", wording.notes(result))
        self._list("Did not help", _grouped(wording.not_helpful(result)))
        if wording.is_proven(result):
            self._how_to_keep(result, snippets)

    def _conclusion(self, result: StudyResult) -> None:
        self._console.print()
        if result.speedup is None or not wording.is_proven(result):
            self._line(f"{wording.headline(result)}: {wording.no_gain_reason(result)}.", "bold")
            self._line(wording.no_gain_advice(result))
            return
        self._line(f"{wording.headline(result)} ({wording.evidence(result.speedup)})", _GOOD)
        differ = result.equivalence is not None and result.equivalence.status == "wrong"
        sentence = wording.equivalence_sentence(result.equivalence)
        self._line(sentence, "bold red" if differ else "")

    def _comparison(self, result: StudyResult) -> None:
        table = _table("", "Baseline")
        if result.best is not None:
            table.add_column("Best", justify="right", style="bold")
            table.add_column("Change", justify="right")
        for row in comparisons(result):
            cells = [row.label, row.baseline, row.best, row.change]
            table.add_row(*map(self._text, cells[: len(table.columns)]))
        self._block(table)

    def _contributions(self, result: StudyResult) -> None:
        if not result.contributions:
            return
        header, rows = wording.contribution_table(result.contributions)
        table = _table(*header)
        for row in rows:
            table.add_row(*map(self._text, row))
        self._block(table)

    def _expectations(self, result: StudyResult) -> None:
        rows = wording.expectation_rows(result, brief=True)
        if not rows:
            return
        self._title(wording.EXPECTATIONS)
        table = _table(*wording.EXPECTATION_HEADER)
        for row in rows:
            table.add_row(*map(self._text, row))
        self._console.print(table)

    def _list(self, title: str, sentences: Sequence[str]) -> None:
        if not sentences:
            return
        self._title(title)
        for sentence in sentences:
            self._console.print(Padding(self._text(sentence), (0, 0, 0, 2)))

    def _how_to_keep(self, result: StudyResult, snippets: Sequence[Snippet]) -> None:
        command = wording.apply_command(result)
        if result.plan is not None and command is not None:
            self._title("Plan")
            self._verbatim(result.plan)
            self._title("Run with it, without a change in the script")
            self._verbatim(command)
        if snippets:
            self._title("Or keep it for good, in the script's own code")
        for each in snippets:
            self._verbatim(f"# {each.knob}: {each.where}", _QUIET)
            self._verbatim(each.code)

    def _title(self, title: str) -> None:
        self._console.print()
        self._line(title, "bold")

    def _block(self, table: Table) -> None:
        self._console.print()
        self._console.print(table)

    def _line(self, words: str, style: str = "") -> None:
        self._console.print(self._text(words, style))

    def _verbatim(self, words: str, style: str = "") -> None:
        """Print what may be copied: indented, but never wrapped."""
        for line in words.splitlines():
            self._console.print(self._text(f"  {line}", style), soft_wrap=True)

    def _text(self, words: str, style: str = "") -> Text:
        """Return the words without control characters, in what the console can encode.

        A reason may hold what a script printed, and a script can print anything.
        """
        encoding = self._console.encoding
        return Text(printable(words).encode(encoding, "replace").decode(encoding), style=style)


def _table(first: str, *figure_columns: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style=_QUIET, pad_edge=False)
    table.add_column(first, overflow="fold")
    for name in figure_columns:
        table.add_column(name, justify="right", overflow="fold")
    return table


def _grouped(reasons: dict[str, str]) -> tuple[str, ...]:
    """Return `reason: knob, knob`, one entry a reason, so that a long list stays short."""
    groups: dict[str, list[str]] = {}
    for knob, reason in reasons.items():
        groups.setdefault(reason.rstrip("."), []).append(knob)
    return tuple(f"{', '.join(knobs)}: {reason}" for reason, knobs in groups.items())
