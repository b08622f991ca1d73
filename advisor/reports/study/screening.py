"""What a study learnt without a fresh process: values screened in a running one, the loader alone.

No gain rests on either. They decide what is tried.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpuadvisor.domain.loader_supply import LoaderSupply
from gpuadvisor.domain.screening import Ratio, Screened, ScreenedAs
from gpuadvisor.reports import figures
from gpuadvisor.reports.document import Code, Column, Paragraph, Section, Table
from gpuadvisor.reports.study.wording import CONFIDENCE
from gpuadvisor.tuners.screening.knowledge import TOO_LITTLE


def screened_section(screened: Sequence[Screened]) -> Section:
    """Return what each value brought when it was last compared, and beside what."""
    lead = (
        "Values that were turned on and off between blocks of steps. They decided what was"
        " tried in processes of their own; no gain rests on them."
    )
    if any(each.of_computing for each in screened):
        lead += (
            " The script had its batch already: what is worth something for the computing is"
            " worth less to a step that waits for its loader."
        )
    columns = (
        Column("Knob", lambda each: Code(figures.settings({each.knob: each.value})), left=True),
        Column("Worth", lambda each: _ratio(each.ratio)),
        Column("Of", _part, left=True),
        Column(CONFIDENCE, lambda each: _interval(each.ratio)),
        Column("Beside", lambda each: figures.settings(each.beside) if each.beside else "nothing",
               left=True),
        Column("Outcome", _outcome, left=True),
    )  # fmt: skip
    table = Table(screened, columns)
    return Section("Screened in one running process", [Paragraph(lead), table], is_folded=True)


def _part(screened: Screened) -> str:
    """Return what part of a step the worth of a screened value is of."""
    if screened.ratio is None:
        return figures.NOT_MEASURED
    return "the computing" if screened.of_computing else "the step"


def _outcome(screened: Screened) -> str:
    """Return what a screening found out about a value, and what became of it."""
    told = _found_out(screened)
    return f"{told}; {screened.later}" if screened.later else told


def _found_out(screened: Screened) -> str:
    match screened.state:
        case ScreenedAs.KEPT:
            return "in the first trial"
        case ScreenedAs.GAINS:
            return "pays, but there was no time to combine it"
        case ScreenedAs.WORTHLESS:
            return TOO_LITTLE.partition(" in ")[0]
        case ScreenedAs.FAILED:
            return f"failed: {screened.why.rstrip('.')}"
        case ScreenedAs.NO_EFFECT:
            return screened.why
    return f"not decided: {screened.why}"


def _ratio(found: Ratio | None) -> str:
    known = (found.low, found.high) if found else (None, None)
    return figures.ratio(found.ratio if found else None, figures.ratio_decimals(*known))


def _interval(found: Ratio | None) -> str:
    return figures.interval(found.low, found.high) if found else figures.NOT_MEASURED


def supply_section(supply: LoaderSupply) -> Section:
    """Return what the loader supplied alone, and the step that this allows at best."""
    lead = (
        "The script's loader was read without a training beside it, and each batch thrown away."
        f" Without waiting, a step takes {figures.milliseconds(supply.rest_ms)} of"
        f" {figures.milliseconds(supply.step_ms)}. This decided which numbers of workers were tried"
        " in processes of their own; no gain rests on it."
    )
    if supply.best_rest_ms is not None:
        lead += (
            f" It takes {figures.milliseconds(supply.best_rest_ms)} with what was screened best for"
            " its computing, for which the workers were chosen."
        )
    if supply.why:
        lead += f" More workers were not timed: {supply.why}."
    columns = (
        Column("Loader", lambda each: Code(figures.settings(each.settings)), left=True),
        Column("A batch every", lambda each: figures.milliseconds(each.batch_ms)),
        Column(CONFIDENCE, lambda each: figures.interval(each.low_ms, each.high_ms)
               if each.batch_ms else each.failed),
        Column("Step at best", lambda each: figures.milliseconds(each.step_ms)),
    )  # fmt: skip
    table = Table(supply.values, columns)
    return Section("The loader alone", [Paragraph(lead), table], is_folded=True)
