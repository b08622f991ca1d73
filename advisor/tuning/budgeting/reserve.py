"""What a study keeps back of its budget, at each moment, for what is still to come."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from enum import Enum, auto

from gpuadvisor.domain.knobs import Settings
from gpuadvisor.tuners.base import Knob
from gpuadvisor.tuners.search import Best
from gpuadvisor.tuners.statistics import LOOKS
from gpuadvisor.tuning.budgeting.budget_limit import BudgetLimit
from gpuadvisor.tuning.budgeting.durations import Durations

REHEARSAL_SHARE = 1 / 3
"""Most of the whole budget that is kept back for a rehearsal: where it takes more, a search that
leaves room for it finds too little. It is made with what the search has left."""
PROOF_SHARE = 0.3
"""Most of the whole budget that is kept back for more of a proof than its first look."""
TURNED_SHARE = 0.4
"""Most of the whole budget that is kept back for the first look of a proof whose processes time
both sides in turns: three pairs of runs of 20 s, delayed by 5 s on average, with 10 s of blocks
take 210 s."""
ABLATION_SHARE = 0.1
"""Most of the whole budget that is kept back for the ablation."""

LUCKILY = 2.0
"""Times what a gain is, as a logarithm, that a proof may show half of the time, so that its time is
kept where nothing better was found. [own]"""


class Reserve(Enum):
    """What a search leaves of the budget while nothing looks better, in the order of searches."""

    USUAL = auto()
    """What a usual study takes after its search."""
    LEAST = auto()
    """A rehearsal and the first look of a proof."""
    PROOF = auto()
    """That look: what only this has room for comes before what nothing of it has."""
    NOTHING = auto()
    """Nothing: what it finds late is not proven. For what it finds before that, as much of the
    least as there still is."""


class Reserving(ABC):
    """A budget in time, as far as it keeps some of it back."""

    def __init__(self, limit: BudgetLimit, knobs: Mapping[str, Knob]) -> None:
        self._limit = limit
        self.durations = Durations(knobs)
        self._proof_pairs = LOOKS[0]
        self.reserve = Reserve.USUAL
        self.has_plan = False
        """Whether a gain is proven: what is tried on top of it leaves room for its own proof and
        rehearsal, or is not begun."""
        self.stands_on = Best({}, 1.0)
        """What looks best so far in the search; without settings where nothing looks better."""
        self.fallback = Best({}, 1.0)
        """What looked best in earlier rounds of the search, and is not proven to bring nothing."""
        self.has_found = False
        """Whether something looks better than what is proven: then more than the first look of its
        proof is kept back, as what is found besides is worth less than to show it."""

    @property
    @abstractmethod
    def phase(self) -> str:
        """What the study does now: what is affordable depends on what comes after it."""

    @property
    @abstractmethod
    def left_s(self) -> float | None:
        """Seconds left; None where the budget is in trials."""

    @abstractmethod
    def may_show(self, settings: Settings, gain: float) -> bool:
        """Say whether a proof may show what gained this in the time that is left."""

    def deciding_s(self, settings: Settings) -> float:
        """Return how long the first look of a proof takes, and a rehearsal where there was none."""
        return self.durations.first_look_s(settings) + self.durations.lives_s(settings)

    def _reserve_s(self, settings: Settings) -> float:
        """Return what ablation, rehearsal and proof will take if these settings turn out best."""
        if self.has_plan:
            if not settings or self.reserve is Reserve.NOTHING:
                return 0.0
            if self.phase in ("rehearsal", "proof"):
                return self.durations.lives_s(settings)
            if self.has_found:
                return self._proof_s(settings) + self.durations.lives_s(settings)
            return self.deciding_s(settings)
        if self.phase not in ("search", "ablation"):
            return 0.0
        budget_s = self._limit.seconds or 0.0
        rehearsal_s = self._rehearsal_reserve_s(settings)
        if self.phase == "search" and self.reserve is Reserve.NOTHING:
            return self._still_possible_s()
        if self.phase == "search" and self.reserve is Reserve.PROOF:
            return max(self.durations.first_look_s(settings), self._still_possible_s(1.0))
        if self.phase == "search" and self.reserve is Reserve.LEAST and not self.stands_on.settings:
            return self.durations.first_look_s(settings) + rehearsal_s
        reserve_s = self._proof_s(settings) + rehearsal_s
        if self.phase == "ablation":
            return reserve_s
        return reserve_s + min(ABLATION_SHARE * budget_s, self.durations.ablation_s(settings))

    def _still_possible_s(self, luckily: float = LUCKILY) -> float:
        """Return what the least proof of what looks best takes, and its rehearsal if that fits.

        0 where there is no time left for that proof, or it would hardly show anything: what can be
        shown by good luck only is worth more than what is found when nothing can be any more.
        """
        best = self.stands_on if self.stands_on.settings else self.fallback
        settings, gain, left_s = best.settings, best.gain, self.left_s or 0.0
        if not settings or not self.may_show(settings, gain**luckily):
            return 0.0
        if not self.may_show(settings, gain):
            return left_s  # each pair makes it likelier
        least_s = self.durations.first_look_s(settings)
        rehearsal_s = self._rehearsal_reserve_s(settings)
        both = least_s + rehearsal_s <= left_s
        return least_s + rehearsal_s if both else least_s

    def _rehearsal_reserve_s(self, settings: Settings) -> float:
        """Return what a rehearsal will take, with all lives that it may want, each of them as long
        as it may last, if that has room in its share; else with what has.

        Nothing is kept back where the lives of the unchanged script alone are beyond that: what
        lives longer would else be tried where there is no room for what lives less.
        """
        durations, share_s = self.durations, REHEARSAL_SHARE * (self._limit.seconds or 0.0)
        lives_s = (
            durations.lives_s(settings, is_rounded=is_rounded, longest=longest)
            for longest in (True, False)
            for is_rounded in (True, False)
        )
        least_s = durations.lives_s(settings, least=True)
        if (fits_s := next((s for s in (*lives_s, least_s) if s <= share_s), None)) is not None:
            return fits_s
        return share_s if durations.lives_s({}) <= share_s else 0.0

    def _proof_s(self, settings: Settings) -> float:
        """Return how long a usual proof takes, if that is no more than its share."""
        durations, budget_s = self.durations, self._limit.seconds or 0.0
        return max(
            durations.first_look_s(settings),
            min(PROOF_SHARE * budget_s, self._proof_pairs * durations.pair_s(settings)),
            min(TURNED_SHARE * budget_s, durations.turned_look_s(settings)),
        )
