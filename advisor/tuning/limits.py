"""How long a run may take, and when it is hopeless."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpuadvisor.collectors.script.request import Limits
from gpuadvisor.domain.knobs import Settings
from gpuadvisor.domain.measurement import Measurement
from gpuadvisor.domain.study import Objective
from gpuadvisor.tuners.base import Knob

PRUNE_BELOW = 0.6
"""A trial is ended early when it would reach less than this share of the best so far."""
BASELINE_S = 1800.0
"""Most that the unchanged script may take after its first step, until it is measured."""
BASELINE_IDLE_S = 300.0
"""Longest silence of the unchanged script between two steps: an evaluation, a checkpoint."""
STARTUP_SLACK_S = 60.0


def limits_for(
    settings: Settings,
    knobs: Mapping[str, Knob],
    baseline: Measurement | None,
    timeout_s: float,
    room_s: float | None = None,
) -> Limits:
    """Return time limits: generous for the baseline, drawn from it for all other runs.

    `timeout_s` is what the user allows for the unchanged script's first step, `room_s` what the
    budget has left for this run, if that matters.
    """
    if baseline is None:
        return Limits(timeout_s, BASELINE_IDLE_S, timeout_s + BASELINE_S)
    slow_s = sum(knobs[name].extra_startup_s for name in settings)
    startup_s = min(timeout_s, STARTUP_SLACK_S + 3 * baseline.startup_s) + slow_s
    idle_s = max(120.0, 20 * baseline.mean_step_ms / 1e3) + slow_s
    total_s = startup_s + slow_s + STARTUP_SLACK_S + 5 * baseline.wall_s
    if room_s is None:
        return Limits(startup_s, idle_s, total_s)
    return Limits(min(startup_s, room_s), min(idle_s, room_s), min(total_s, room_s), room_s)


def slowest_ms(
    objective: Objective, references: Sequence[Measurement], slower_than: float | None
) -> float | None:
    """Return the step time at which a trial is hopeless; None where step times do not decide.

    The slowest of the references counts: where runs of the unchanged script differ much, a trial
    that began in a bad moment is not hopeless.
    """
    decides = objective in (Objective.THROUGHPUT, Objective.LATENCY)
    if slower_than is None or not references or not decides:
        return None
    slowest = max(reference.mean_step_ms for reference in references)
    return slowest / (slower_than * PRUNE_BELOW)
