"""The page of tuning studies: those that run, with what they have come to, and their results."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from gpuadvisor.domain.knobs import shown_settings
from gpuadvisor.tui.watch.cells import Style
from gpuadvisor.tui.watch.listed import Entry, Listed

if TYPE_CHECKING:
    from rich.console import Console

    from gpuadvisor.storage.database import StudyRecord
    from gpuadvisor.tuning.selection import Underway

TRIALS = 12
"""Runs of a study that goes on that are listed, the newest ones."""


class Studies(Listed):
    """All studies of this user, the newest first."""

    KEY = "4"
    NAME = "studies"
    ABOUT = "What `gpuadvisor tune` tries, and what it found."
    TITLES = ("Study", "Started", "Script", "Device", "State", "Speed-up")
    EMPTY = "No study is stored yet: `gpuadvisor tune script.py` makes one, and it shows here."

    def entries(self) -> Sequence[Entry]:
        from gpuadvisor.storage.home import database
        from gpuadvisor.tuning.selection import StudyFilter, stored_studies, underway

        if not database().exists():
            return []
        return [
            _entry(each, None if each.ended else underway(each.name))
            for each in stored_studies(StudyFilter())
        ]

    def tell(self, key: str, console: Console) -> None:
        from gpuadvisor.reports.study.document import print_summary
        from gpuadvisor.storage.database import open_store
        from gpuadvisor.tuners.knobs import load_knobs
        from gpuadvisor.tuning.arguments import permanent_snippets
        from gpuadvisor.tuning.selection import underway

        with open_store() as store:
            record = store.study_record(key)
            result = store.load_study(key) if record.verdict is not None else None
        if result is None:
            _tell_underway(record, underway(key), console)
        else:
            print_summary(result, permanent_snippets(result.settings, load_knobs()), console)

    def html(self, key: str) -> tuple[str, str]:
        from gpuadvisor.printable import file_name
        from gpuadvisor.reports.study.document import study_html
        from gpuadvisor.storage.database import open_store
        from gpuadvisor.tuners.knobs import load_knobs
        from gpuadvisor.tuning.arguments import permanent_snippets

        with open_store() as store:
            result = store.load_study(key)
        page = study_html(result, permanent_snippets(result.settings, load_knobs()))
        return file_name(key, "study"), page


def _entry(record: StudyRecord, now: Underway | None) -> Entry:
    from gpuadvisor.reports import figures
    from gpuadvisor.reports.study.several import verdict_of_record

    state, gain = verdict_of_record(record), ""
    style = Style.GOOD if record.verdict and "faster" in record.verdict.value else Style.PLAIN
    if record.speedup is not None:
        gain = figures.ratio(record.speedup.ratio)
    if now is not None:
        state, style = _state(record, now)
        if now.best is not None:
            gain = f"{figures.ratio(now.best.gain)} so far"
    script = " ".join([*(["-m"] if record.is_module else []), record.script, *record.args])
    cells = (
        (record.name, Style.PLAIN),
        (_local(record.started), Style.QUIET),
        (script, Style.PLAIN),
        (record.environment.device.name, Style.PLAIN),
        (state, style),
        (gain, Style.PLAIN),
    )
    stamp = (record.ended, record.until, None if now is None else (now.worker, len(now.trials)))
    return Entry(record.name, cells, stamp)


def _state(record: StudyRecord, now: Underway) -> tuple[str, Style]:
    if now.worker is None:
        return "ended without a result", Style.WARNING
    return f"runs{_time_left(record)}", Style.WARNING


def _time_left(record: StudyRecord) -> str:
    """Return a clause of the time that is left, empty where there is no limit."""
    from gpuadvisor.printable import duration

    if record.until is None:
        return ""
    left_s = (datetime.fromisoformat(record.until) - datetime.now(UTC)).total_seconds()
    return f", {duration(left_s)} left" if left_s > 0 else ", its time is over"


def _local(utc: str) -> str:
    """Return a moment in the time of this machine: `11-23 14:02`."""
    try:
        return datetime.fromisoformat(utc).astimezone().strftime("%m-%d %H:%M")
    except ValueError:
        return utc


def _tell_underway(record: StudyRecord, now: Underway, console: Console) -> None:
    """Print what a study without a result has come to."""
    import shlex

    from gpuadvisor.reports import figures

    words = [*(["-m"] if record.is_module else []), record.script, *record.args]
    state = "no result" if now.worker is None else f"process {now.worker} works on it"
    console.print(f"{record.name}: {state}", style="bold", markup=False)
    console.print(f"{shlex.join(words)} in {record.folder}", markup=False)
    console.print()
    best = now.best
    if best is not None:
        settings = shown_settings(best.settings)
        said = f"Best so far: {figures.ratio(best.gain)} with {settings}; measured, not proven yet."
        console.print(said, markup=False)
    else:
        console.print("No run of other settings was measured yet.")
    if now.worker is None:
        again = "gpuadvisor verify" if record.verifies else "gpuadvisor tune --resume"
        console.print(f"Its process has ended. Go on in that folder with `{again}`.", markup=False)
    console.print()
    hidden = len(now.trials) - TRIALS
    if hidden > 0:
        console.print(f"{hidden} earlier runs", style="dim")
    for trial in now.trials[-TRIALS:]:
        settings = shown_settings(trial.settings)
        gain = figures.ratio(trial.gain) if trial.gain is not None else str(trial.state)
        line = f"{trial.number:>4}  {trial.phase:9} {gain:>14}  {settings or 'unchanged'}"
        console.print(line, markup=False, soft_wrap=True, no_wrap=True, overflow="ellipsis")


PAGE = Studies
