"""How long settings take to their first step where nothing was compiled before."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

from gpuadvisor.collectors.script.request import Event
from gpuadvisor.collectors.script.runner import run_script
from gpuadvisor.domain.knobs import Settings
from gpuadvisor.domain.study import Trial
from gpuadvisor.errors import Interrupted
from gpuadvisor.tuners.base import COMPILING_S
from gpuadvisor.tuning.budgeting.budget import Budget
from gpuadvisor.tuning.trials.trial_runner import Side, TrialRunner

CACHES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
"""Variables that name the folders in which torch's compilers find again what they have compiled
(torch 2.4 to 2.13)."""
SLOWER = 1.5
"""Times its expected time that the start may take without exceeding a budget."""


def compiles(runner: TrialRunner, settings: Settings) -> bool:
    """Say whether settings compile the script's model."""
    known = (runner.knobs[name] for name in settings if name in runner.knobs)
    return any(knob.first_start_s >= COMPILING_S for knob in known)


def cold_start(runner: TrialRunner, side: Side, budget: Budget, trials: Sequence[Trial]) -> str:
    """Start a side once with empty caches, and return what its first step took, in words.

    Beside it stands what it took in `trials`, most of which find in the caches what others before
    them compiled. Empty where nothing is compiled. Raises Interrupted if it was cancelled.
    """
    settings = side.settings
    if not compiles(runner, settings):
        return ""
    known = [runner.knobs[name] for name in settings if name in runner.knobs]
    expected_s = budget.durations.run_s({}) + sum(knob.first_start_s for knob in known)
    if budget.left_s is not None and budget.left_s < SLOWER * expected_s:
        return (
            "the first start with empty compilers' caches, as on another machine, takes longer "
            "than those here; the budget had no room to measure it"
        )
    cold_s = _first_step_s(runner, side)
    fresh = [each for each in trials if each.measurement and not each.is_forked]
    warm_s, plain_s = (
        median([t.measurement.startup_s for t in fresh if t.measurement and t.settings == each])
        for each in (settings, {})
    )
    if cold_s is None:
        return "with empty compilers' caches the script came to no step"
    return (
        f"the first step comes after {cold_s:.0f} s where nothing was compiled before, as on "
        f"another machine (one start with empty caches); after {warm_s:.0f} s with what earlier "
        f"runs compiled, and {plain_s:.0f} s without the settings (medians)"
    )


def _first_step_s(runner: TrialRunner, side: Side) -> float | None:
    """Return the time to a side's first step with empty caches; None where it came to none."""
    seen: list[float] = []

    def note(event: Event) -> None:
        if event["event"] == "step" and not seen:
            seen.append(time.monotonic())

    # What compiles in processes of its own may still write there when it is ended.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        caches = {name: str(Path(folder, name.lower())) for name in CACHES}
        side = replace(side, environment={**side.environment, **caches})
        request = replace(
            runner.request(side, "start"),
            template=None,
            on_event=note,
            cancelled=lambda: bool(seen) or runner.cancelled(),
        )
        began_s = time.monotonic()
        run_script(request)
    if runner.cancelled():
        raise Interrupted("interrupted")
    return seen[0] - began_s if seen else None
