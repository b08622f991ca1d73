"""A study: what was found, what it is worth, how to keep it, and everything that was measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import isfinite, isnan, nan
from operator import itemgetter
from typing import TYPE_CHECKING

from gpuadvisor.domain.device import Environment
from gpuadvisor.domain.knobs import Contribution, Origin, Snippet
from gpuadvisor.domain.measurement import Measurement
from gpuadvisor.domain.study import StudyResult, Trial, TrialState, Verdict
from gpuadvisor.reports import figures
from gpuadvisor.reports.document import (
    Block,
    Bullets,
    Cell,
    Code,
    Column,
    Document,
    Listing,
    Paragraph,
    Plot,
    Section,
    Table,
    Terms,
)
from gpuadvisor.reports.render_html import html
from gpuadvisor.reports.render_markdown import markdown
from gpuadvisor.reports.render_text import print_sections
from gpuadvisor.reports.study import plots as study_plots
from gpuadvisor.reports.study import wording
from gpuadvisor.reports.study.notes import notes
from gpuadvisor.reports.study.rehearsal import rehearsed
from gpuadvisor.reports.study.screening import screened_section, supply_section

if TYPE_CHECKING:
    from rich.console import Console

_PERCENTILES = (5, 25, 50, 75, 95, 99)
EXPECTATIONS = "Predicted and measured"
_UNKNOWN = "not known"


def study_html(result: StudyResult, snippets: Sequence[Snippet] = ()) -> str:
    """Return the whole page; `snippets` are the lines that make the settings permanent."""
    # Step times that are NaN or infinite cannot be drawn or ranked.
    best = None if result.best is None else _finite(result.best)
    drawable = replace(result, baseline=_finite(result.baseline), best=best)
    return html(study_document(drawable, snippets))


def study_markdown(result: StudyResult, snippets: Sequence[Snippet] = ()) -> str:
    """Return the study as GitHub-flavoured Markdown; `snippets` make the settings permanent."""
    return markdown(study_document(result, snippets))


def print_summary(result: StudyResult, snippets: Sequence[Snippet], console: Console) -> None:
    """Print the end of `gpuadvisor tune`; `snippets` make the settings permanent."""
    print_sections(console, _summary(result, snippets))


def study_document(result: StudyResult, snippets: Sequence[Snippet] = ()) -> Document:
    """Return all that is known of a study."""
    is_gain = wording.is_gain(result)
    value, _, words = wording.headline(result).partition(" ")
    said = [wording.equivalence_sentence(result.equivalence, result.rehearsal)] if is_gain else []
    said.append(wording.advice(result))
    version, started = result.environment.gpuadvisor, result.started
    # In UTC, ISO 8601.
    date = f"{started[:10]} {started[11:16]} UTC" if len(started) >= 16 else started
    return Document(
        name=(wording.command(result),),
        summary=(wording.verdict_sentence(result), " ".join(filter(None, said))),
        kind=("gpuadvisor", f"study {result.study}"),
        title=f"{wording.headline(result)}: {result.script}",
        facts=(
            result.environment.device.name,
            f"level {result.level}",
            f"objective {result.objective}",
            date,
            f"{figures.count(len(result.trials), 'trial')} in {figures.duration(result.wall_s)}",
        ),
        headline=(value, words) if is_gain else ("", wording.headline(result)),
        conclusion=tuple(_conclusion(result)),
        sections=tuple(_sections(result, snippets)),
        footer=(
            "A gain is the ratio of the baseline's cost to the best's, from processes that ran in"
            " turns. Every figure was measured; what was not is called"
            f" {figures.NOT_MEASURED}.",
            f"gpuadvisor {version}",
        ),
    )


def _finite(measurement: Measurement) -> Measurement:
    return replace(measurement, step_ms=tuple(filter(isfinite, measurement.step_ms)))


def _conclusion(result: StudyResult) -> Iterator[Paragraph]:
    if wording.is_gain(result) and result.speedup is not None:
        proof = wording.evidence(result.speedup)
        of = "" if result.speedup.in_turns else wording.processes(result)
        yield Paragraph(f"{proof[0].upper()}{proof[1:]}{of}.")
        yield Paragraph(wording.equivalence_sentence(result.equivalence, result.rehearsal))
    else:
        reason = wording.reason(result)
        yield Paragraph(f"{reason[0].upper()}{reason[1:]}.")
    if advice := wording.advice(result):
        yield Paragraph(advice, "muted")


def _sections(result: StudyResult, snippets: Sequence[Snippet]) -> Iterator[Section]:
    title = "What was measured" if result.best is None else "Baseline and best"
    yield Section(title, [_comparison(result)])
    yield from _rehearsal(result)
    yield from _expectations(result)
    yield from _notes(result)
    yield from _contributions(result)
    yield from _how_to_keep(result, snippets)
    yield from _gains(result)
    yield from _step_times(result)
    if reasons := wording.not_helpful(result):
        terms = Terms([(Code(knob), reason) for knob, reason in reasons.items()])
        yield Section("What did not help", [terms], is_folded=True)
    if missing := wording.not_tried(result):
        terms = Terms([(Code(names), why) for names, why in missing.items()])
        yield Section("What was not tried", [terms], is_folded=True)
    if result.screened:
        yield screened_section(result.screened)
    if result.supply:
        yield supply_section(result.supply)
    if result.trials:
        yield Section("All trials", [_trials(result.trials)], is_folded=True)
    yield Section("Environment", [Terms(_environment(result.environment))], is_folded=True)


def _comparison(result: StudyResult) -> Table:
    columns = [Column("", "label"), Column("Baseline", "baseline")]
    if result.best is not None:
        columns += [Column("Best", "best", strong=True), Column("Change", "change")]
    return Table(figures.comparisons(result), columns)


def _rehearsal(result: StudyResult) -> Iterator[Section]:
    """Yield what a rehearsal covered and found, and what the settings mean for the whole run."""
    if sentences := rehearsed(result):
        yield Section("Rehearsal", [Bullets(sentences)])


def _expectations(result: StudyResult, brief: bool = False) -> Iterator[Section]:
    """Yield what the diagnosis predicted beside what was measured."""
    if rows := wording.expectation_rows(result, brief):
        titles = ("Finding", "Predicted", "Measured")
        columns = [
            Column(title, itemgetter(place), left=True) for place, title in enumerate(titles)
        ]
        lead = "What the diagnosis predicted of the run's time, and what its knobs brought."
        table = Table(rows, columns, "words")
        yield Section(EXPECTATIONS, [table]) if brief else Section.led(EXPECTATIONS, lead, table)


def _notes(result: StudyResult) -> Iterator[Section]:
    if sentences := notes(result):
        yield Section("Notes", [Bullets(sentences)])


def _contributions(result: StudyResult) -> Iterator[Section]:
    kept = result.contributions
    if kept and wording.is_gain(result):
        lead = "How much worse the best settings get when this knob alone is taken out."
        if not all(each.origin.is_shown for each in kept):
            lead += " Of single knobs, nothing is proven but what processes of their own show."
        plot = Plot(
            lambda width: study_plots.plot_contributions(kept, width),
            lead=f"The thin line is the {wording.CONFIDENCE}, where it was measured.",
            table=_contribution_table(kept),
        )
        yield Section.led("What each knob is worth", lead, plot)


def _contribution_table(contributions: Sequence[Contribution]) -> Table:
    """Return what each knob is worth, the most valuable first; intervals where one is known."""
    columns = [
        Column("Knob", lambda each: Code(figures.settings({each.knob: each.value}))),
        Column("Worth", lambda each: figures.ratio(
            each.ratio if each.origin is not Origin.LOADER else nan,
            figures.ratio_decimals(each.low, each.high))),
        Column(wording.CONFIDENCE, lambda each: figures.interval(each.low, each.high)),
    ]  # fmt: skip
    if all(each.low is None for each in contributions):
        columns.pop()
    if not all(each.origin.is_shown for each in contributions):
        columns.append(Column("Known from", lambda each: wording.ORIGINS[each.origin], left=True))
    ordered = sorted(contributions, key=lambda each: (isnan(each.ratio), -each.ratio))
    return Table(ordered, columns)


def _how_to_keep(result: StudyResult, snippets: Sequence[Snippet]) -> Iterator[Section]:
    command = wording.apply_command(result)
    if not _is_kept(result) or not (command or snippets):
        return
    blocks: list[Block] = []
    if command:
        blocks += [Paragraph("Without a change in the script:"), Listing(command)]
    if snippets:
        blocks.append(Paragraph("Or for good, in the script's own code:"))
    yield Section("How to keep it", [*blocks, *map(_listing, snippets)])


def _is_kept(result: StudyResult) -> bool:
    """Say whether the settings are worth keeping: the gain is there, and rehearsed or wanted."""
    wanted = wording.is_gain(result) and result.plan is not None
    return wording.verdict(result) is Verdict.FASTER or wanted


def _listing(snippet: Snippet) -> Listing:
    return Listing(snippet.code, snippet.language, (snippet.knob, snippet.where))


def _gains(result: StudyResult) -> Iterator[Section]:
    """Yield what every trial gained."""
    if not result.trials:
        return
    lead = (
        "In the order in which they ran; the line is the best found so far."
        " Point at a mark for its knobs, or see the table of all trials."
    )
    if any(trial.gain is not None and trial.gain < study_plots.FLOOR for trial in result.trials):
        lead += f" What is slower than {study_plots.FLOOR}x is drawn there."
    plot = Plot(
        lambda width: study_plots.plot_trials(result.trials, width), _legend(result), lead=lead
    )
    yield Section("Gain by trial", [plot])


def _legend(result: StudyResult) -> list[tuple[str, str]]:
    """Return the states that occurred with their marks, and what sets other marks apart."""
    seen = [state for state in TrialState if any(t.state is state for t in result.trials)]
    items = [(_mark(state), wording.STATES[state]) for state in seen]
    if any(trial.phase == "proof" for trial in result.trials):
        items.append(("dot disc proof", "proof of the best"))
    if any(not trial.settings for trial in result.trials):
        items.append(("dot disc plain", "the script as it is"))
    return items


def _mark(state: TrialState) -> str:
    """Return the state's mark as in the plot: a disc if the run is complete, else a cross."""
    shape = "disc" if state is TrialState.COMPLETE else "cross"
    return f"dot {shape} state-{state}"


def _step_times(result: StudyResult) -> Iterator[Section]:
    """Yield how step times are distributed, of the baseline and of the best."""
    runs = [
        (name, run)
        for name, run in (("Baseline", result.baseline), ("Best", result.best))
        if run is not None and run.step_ms
    ]
    if not runs:
        return
    lead = "How often a step took how long."
    if beyond := study_plots.left_out([run for _, run in runs]):
        lead += f" {figures.count(beyond, 'slower step')} beyond the axis: not drawn, but counted."
    columns = [Column("Percentile", lambda p: f"{p}th (median)" if p == 50 else f"{p}th")]
    columns += [Column(name, run.percentile_ms, figures.milliseconds) for name, run in runs]
    table = Table(_PERCENTILES, columns)
    plot = Plot(lambda width: study_plots.plot_steps(runs, width), lead=lead, table=table)
    yield Section("Step times", [plot], is_folded=True)


def _trials(trials: Sequence[Trial]) -> Table:
    columns = (
        Column("#", "number", str),
        Column("Phase", "phase", left=True),
        Column("Knobs", "settings", lambda values: Code(figures.settings(values)) if values
               else figures.settings(values), left=True),
        Column("State", _state, left=True),
        Column("Gain", "gain", figures.ratio),
        Column("Mean step", lambda trial: figures.quantities(trial.measurement).mean_ms,
               figures.milliseconds),
    )  # fmt: skip
    return Table(trials, columns, "trials")


def _state(trial: Trial) -> Cell:
    disturbed = f"disturbed: {trial.disturbance}" if trial.disturbance else ""
    below = tuple(filter(None, (trial.reason, disturbed)))
    return Cell(wording.STATES[trial.state], below, mark=_mark(trial.state))


def _environment(environment: Environment) -> list[tuple[str, str]]:
    """Return what must be equal for figures to be comparable; on a CPU without what a GPU has."""
    device = environment.device
    rows = [("Device", device.name)]
    commit = "not in a repository, or " + _UNKNOWN
    if environment.git_commit is not None:
        dirty = {True: ", with uncommitted changes", False: ", clean", None: ""}
        commit = environment.git_commit[:12] + dirty[environment.git_dirty]
    if device.is_gpu:
        power = environment.power_limit_w
        now, most = environment.sm_clock_mhz, environment.sm_clock_max_mhz
        clocks = _UNKNOWN if now is None else f"{now:,} MHz"
        if now is not None and most is not None:
            clocks = f"{now:,} of {most:,} MHz"
        rows += [
            ("GPU", f"number {device.index}, {device.uuid or 'UUID ' + _UNKNOWN}"),
            ("GPU memory", figures.memory(device.memory_bytes)),
            ("Compute capability", figures.capability(device.compute_capability) or _UNKNOWN),
            ("SM clock at start", clocks),
            ("Power limit", _UNKNOWN if power is None else f"{figures.number(power)} W"),
            ("Driver", environment.driver or _UNKNOWN),
            ("CUDA of PyTorch", environment.cuda or _UNKNOWN),
            ("cuDNN", environment.cudnn or _UNKNOWN),
        ]
    else:
        rows.append(("Memory", figures.memory(device.memory_bytes)))
    return [
        *rows,
        ("CPU cores", str(device.cores)),
        ("PyTorch", environment.torch or _UNKNOWN),
        ("Python", environment.python),
        ("Platform", environment.platform),
        ("Commit", commit),
        ("gpuadvisor", environment.gpuadvisor),
    ]


# -- on the terminal -----------------------------------------------------------------------------


def _summary(result: StudyResult, snippets: Sequence[Snippet]) -> Iterator[Section]:
    """Yield what a terminal shows: the conclusion first, and how to keep it last."""
    yield Section("", tuple(_short_conclusion(result)))
    yield Section("", [_comparison(result)])
    if wording.is_gain(result) and result.contributions:
        yield Section("", [_contribution_table(result.contributions)])
    yield from _rehearsal(result)
    yield from _expectations(result, brief=True)
    yield from _notes(result)
    if reasons := wording.grouped(wording.not_helpful(result)):
        yield Section("Did not help", [_reasons(reasons)])
    if missing := wording.not_tried(result):
        yield Section("Not tried", [_reasons(missing)])
    command = wording.apply_command(result)
    if _is_kept(result) and result.plan is not None and command is not None:
        yield Section("Plan", [Listing(result.plan)])
        yield Section("Run with it, without a change in the script", [Listing(command)])
    if _is_kept(result) and snippets:
        title = "Or keep it for good, in the script's own code"
        yield Section(title, [_listing(each) for each in snippets])


def _short_conclusion(result: StudyResult) -> Iterator[Paragraph]:
    if wording.is_gain(result) and result.speedup is not None:
        sure = wording.verdict(result) is Verdict.FASTER
        claim = f"{wording.headline(result)} ({wording.evidence(result.speedup)})"
        yield Paragraph(claim, "good" if sure else "strong")
        differ = result.equivalence is not None and result.equivalence.status == "wrong"
        results = wording.equivalence_sentence(result.equivalence, result.rehearsal)
        yield Paragraph(results, "bad" if differ else "")
    else:
        claim = f"{wording.headline(result)}: {wording.reason(result)}."
        yield Paragraph(claim, "strong")
    if advice := wording.advice(result):
        yield Paragraph(advice)


def _reasons(reasons: Mapping[str, str]) -> Bullets:
    return Bullets([f"{names}: {why}" for names, why in reasons.items()])
