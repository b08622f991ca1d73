"""How far the head's first losses, or outputs, are from the base's; both have the same seed."""

from __future__ import annotations

from statistics import median

from gpuadvisor.domain.gate import Difference, GateVerdict, MetricRole
from gpuadvisor.domain.knobs import Level
from gpuadvisor.tuners.equivalence import SPREAD_FACTOR, TOLERANCES, difference, is_broken
from gpuadvisor.tuners.gate.metric import Evidence, Metric, ratio_of


class Losses(Metric):
    """No regression unless it is asked for: other results may be what a change is for.

    Allowed is rounding, more of it under autocast, and at least three times how far runs of the
    base are apart.
    """

    name = "losses"
    title = "Difference of losses"
    role = MetricRole.REPORTED

    def lacks(self, evidence: Evidence) -> str:
        runs = evidence.all
        comparable = all(difference(runs[0].trace, run.trace) is not None for run in runs)
        return "" if comparable else "no loss and no output can be compared"

    def compare(self, evidence: Evidence, share: float) -> Difference:
        first, *others = [run.trace for run in evidence.base]
        heads = [run.trace for run in evidence.head]
        base, head = (
            [(difference(first, trace) or (0.0, ""))[0] for trace in side]
            for side in (others, heads)
        )
        autocast = any(run.facts.autocasts_itself for run in evidence.all)
        rounding = TOLERANCES[Level.AGGRESSIVE if autocast else Level.CONSERVATIVE]
        limit = max(rounding, SPREAD_FACTOR * max(base))
        broken = all(is_broken(first, trace) for trace in heads)
        verdict, detail = GateVerdict.INCONCLUSIVE, ""
        if broken or min(head) > limit:
            verdict = GateVerdict.FAIL
            detail = "NaN or infinity" if broken else f"more than {limit:.2g} of their size"
        elif median(head) <= limit:
            verdict = GateVerdict.PASS
        ratio = ratio_of(median(head), median(base))
        return Difference(
            self.name,
            verdict,
            ratio,
            ratio_of(min(head), max(base)),
            ratio_of(max(head), min(base)),
            ratio,
            limit,
            limit,
            title=self.title,
            base=tuple(base),
            head=tuple(head),
            role=self.role,
            detail=detail,
        )


METRICS = (Losses(),)
