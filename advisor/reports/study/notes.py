"""What a study's result needs said beside it, in sentences."""

from __future__ import annotations

from collections.abc import Sequence

from gpuadvisor.domain.study import StudyResult
from gpuadvisor.reports import figures
from gpuadvisor.reports.study import wording
from gpuadvisor.tuners.memory_growth import memory_growth

_MOST_FILES = 10
"""Files that are named; of more, their number is said."""


def notes(result: StudyResult) -> tuple[str, ...]:
    """Return the study's notes and those that its figures call for.

    What stands among the predictions is not said again.
    """
    own = [f"The study ended early: {result.interrupted}"] if result.interrupted else []
    own += filter(None, [_more_memory(result)])
    if result.best is not None and figures.steps_differ(
        figures.quantities(result.baseline), figures.quantities(result.best)
    ):
        own.append(
            "A step of the best settings holds another number of samples than one of the baseline:"
            " compare times and energies per sample, not per step."
        )
    if result.forking is not None and result.forking.runs > 1 and not result.forking.why:
        of_proofs = sum(t.phase == "proof" and t.is_forked for t in result.trials)
        own.append(
            f"{result.forking.runs} of {len(result.trials)} runs, {of_proofs or 'none'} of the"
            " proof's, were forked from a process that had imported already: a comparison had"
            " shown no difference."
            f" That {'saved' if result.forking.saved_s >= 0 else 'cost'}"
            f" {abs(result.forking.saved_s):.0f} s."
        )
    if result.left:
        own.append(f"Runs left files in the script's folder: {_files(result.left)}.")
    predicted = tuple(each.summary for each in result.expectations)
    return (*own, *(note for note in result.notes if not note.startswith(predicted)))


def _more_memory(result: StudyResult) -> str:
    """Return how much more memory a gain takes, and which settings take it; empty where the proof
    does not show that it does."""
    found = memory_growth(result.trials, result.settings) if wording.is_gain(result) else None
    if found is None:
        return ""
    of = "of the GPU" if result.baseline.facts.device == "cuda" else "in the script's process"
    more, *both = (
        figures.memory(each)
        for each in (found.head_bytes - found.base_bytes, found.head_bytes, found.base_bytes)
    )
    steps = f"{found.head_steps:,.0f} steps", f"{found.base_steps:,.0f}"
    said = (
        f"Runs with the settings took {more} more memory {of} at the peak ({both[0]} in {steps[0]}"
        f" instead of {both[1]} in {steps[1]})"
    )
    if result.settings.keys() == found.knobs.keys() and len(found.knobs) == 1:
        return f"{said}, for {figures.settings(result.settings)}."
    each = ", ".join(
        f"{figures.settings({knob: result.settings[knob]})} {figures.memory(more_bytes)}"
        for knob, more_bytes in found.knobs.items()
    )
    unknown = "which of the settings takes it was not measured"
    return (
        f"{said}; {f'runs with one setting more took so much more: {each}' if each else unknown}."
    )


def _files(names: Sequence[str]) -> str:
    shown = ", ".join(f"`{name}`" for name in names[:_MOST_FILES])
    more = len(names) - _MOST_FILES
    return f"{shown} and {more:,} more" if more > 0 else shown
