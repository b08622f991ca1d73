"""What a user grants a study, time or trials of its search, and how long each run measures."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpuadvisor.collectors.script.specification import Schedule
from gpuadvisor.errors import UsageError

SECONDS = {"s": 1, "m": 60, "h": 3600}
LONGEST_S = 30 * 24 * 3600
"""Most that a budget may say: beyond a month it is a slip of the finger."""
MOST_TRIALS = 100_000
LONGEST_TEXT = 20

MEASURE_SHARE = 1 / 150
"""Part of a time budget that one run measures for, between the bounds below: longer budgets buy
quieter figures."""
SHORTEST_MEASURE_S, LONGEST_MEASURE_S = 1.5, 4.0


@dataclass(frozen=True)
class BudgetLimit:
    """How much a study may use: time, or trials of the search. The other is None."""

    seconds: float | None = None
    trials: int | None = None
    """Settings that the search may try; ablation and proof come on top."""

    @classmethod
    def parse(cls, text: str) -> BudgetLimit:
        """Read `90s`, `10m`, `1h`, `1h30m` or `30 trials`; UsageError for anything else."""
        cleaned = text.strip().lower() if len(text) <= LONGEST_TEXT else ""
        trials = re.fullmatch(r"(\d+)\s*(?:trials?)?", cleaned)
        if trials and 0 < int(trials[1]) <= MOST_TRIALS:
            return cls(trials=int(trials[1]))
        parts = re.findall(r"(\d+(?:\.\d+)?)\s*([smh])", cleaned)
        whole = "".join(number + unit for number, unit in parts)
        seconds = sum(float(number) * SECONDS[unit] for number, unit in parts)
        if whole == cleaned.replace(" ", "") and 0 < seconds <= LONGEST_S:
            return cls(seconds=seconds)
        raise UsageError(
            f"--budget {text[:LONGEST_TEXT]!r} is neither a time nor a number of trials: "
            "write 90s, 10m, 1h30m, or '30 trials'"
        )

    def __str__(self) -> str:
        if self.trials is not None:
            return f"{self.trials} trials"
        seconds = self.seconds or 0.0
        return f"{seconds / 60:.0f}m" if seconds % 60 == 0 else f"{seconds:g}s"


def schedule_for(budget: BudgetLimit) -> Schedule:
    """Return how long one run measures within a budget."""
    budget_s = budget.seconds
    measure_s = LONGEST_MEASURE_S if budget_s is None else budget_s * MEASURE_SHARE
    measure_s = min(LONGEST_MEASURE_S, max(SHORTEST_MEASURE_S, measure_s))
    return Schedule(
        measure_s=measure_s,
        warmup_s=measure_s / 4,
        window_s=measure_s / 8,
        max_measure_s=4 * measure_s,
    )
