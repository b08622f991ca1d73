"""What became of a plan: whether its gain is still there, and results are still the same."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from gpuadvisor.domain.study import Speedup, StudyResult


class Outcome(str, Enum):
    """What a verification showed of a plan."""

    HOLDS = "holds"
    """The gain is still what the plan promised, and no difference of results was found."""
    GAIN_GONE = "gain_gone"
    """The gain was shown to be less than what the plan promised."""
    RESULTS_DIFFER = "results_differ"
    """Losses, outputs or data differ by more than the plan's level allows."""
    FAILS = "fails"
    """The script runs, but not under the plan, or not to its end."""
    INCONCLUSIVE = "inconclusive"
    """None of these was shown."""

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Verification:
    """What the verification of a plan found."""

    outcome: Outcome
    reason: str
    """What the outcome rests on, as a clause without a full stop."""
    plan: str
    """Absolute path of the plan."""
    promised: Speedup | None
    """The gain in the plan; None where the plan has none."""
    least_ratio: float | None
    """Least ratio that keeps the promise; None where the plan promises none."""
    result: StudyResult
    """All that was measured, as it is stored."""
    rehearsed_by: str | None = None
    """Name of the earlier study whose rehearsal still holds, so that there was no other; None
    where there was one now, or none at all."""
