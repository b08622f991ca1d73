"""Optuna's TPE over a kernel's points: a proposal is moved to one that can be evaluated."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gpuadvisor.tuners.kernels.points import Points

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution


class TpeSearch:
    """Asks a tree-structured Parzen estimator (Bergstra et al., 2011), and takes the nearest point.

    TPE proposes the place of each parameter's value and knows no restrictions: what it proposes is
    mostly no point of a space of kernels, or one that is known. So the open point is taken that
    differs from it in the fewest parameters, and of those by the fewest places; TPE is told of that
    one. It looks at each parameter by itself: when it looks at all together (`multivariate`), it is
    behind a random search on a published space (pnpoly RTX 3090).
    """

    def __init__(self, points: Points, seed: int) -> None:
        import optuna
        from optuna.distributions import IntDistribution

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._points = points
        self._open = np.ones(len(points), bool)
        self._study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
        self._distributions: dict[str, BaseDistribution] = {
            each.name: IntDistribution(0, len(each.values) - 1) for each in points.parameters
        }
        self._worst = 0.0

    def propose(self) -> int | None:
        from optuna.trial import TrialState

        rows = np.flatnonzero(self._open)
        if not len(rows):
            return None
        asked = self._study.ask(self._distributions)
        self._study.tell(asked, state=TrialState.FAIL)  # `tell` says what came of the nearest
        wanted = [asked.params[each.name] for each in self._points.parameters]
        away = np.abs(self._points.rows[rows] - wanted)
        row = int(rows[np.lexsort((away.sum(1), (away > 0).sum(1)))[0]])
        self._open[row] = False
        return row

    def tell(self, row: int, cost: float | None) -> None:
        """Take in the logarithm of a point's cost; what failed is as bad as the worst so far."""
        from optuna.trial import create_trial

        self._open[row] = False
        self._worst = max(self._worst, cost or 0.0)
        places = map(int, self._points.rows[row])
        self._study.add_trial(
            create_trial(
                value=self._worst if cost is None else cost,
                params=dict(zip(self._distributions, places, strict=True)),
                distributions=self._distributions,
            )
        )
