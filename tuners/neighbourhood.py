"""Optuna near the best: combinations that one parameter at a time cannot find."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, product
from typing import TYPE_CHECKING, Any

from gpuadvisor.domain.knobs import Value
from gpuadvisor.domain.measurement import Measurement
from gpuadvisor.domain.study import Trial, TrialState
from gpuadvisor.tuners.search import Best, pays
from gpuadvisor.tuners.space import Evaluator, Point, Space

if TYPE_CHECKING:
    import optuna

PATIENCE = 6
"""Trials in a row without a better one, after which the neighbourhood is exhausted."""
CHANGES = 2
"""Parameters in which a neighbour may differ from the best."""


class Neighbourhood:
    """Asks Optuna's TPE, and tries the nearest neighbour that was not tried before.

    The repair matters more than the sampler: TPE alone proposes points that were tried already
    or that cannot be set together, and stuck at +17 % where the repaired one came within 2 %.
    """

    def __init__(self, study: optuna.Study, space: Space, baseline: Measurement) -> None:
        from optuna.distributions import CategoricalDistribution

        self._study = study
        self._space = space
        self._baseline = baseline
        self._values: dict[str, tuple[Value | None, ...]] = {
            parameter.name: (None, *parameter.values) for parameter in space.parameters
        }
        """Each parameter's values; None leaves it at its default."""
        self._distributions: Any = {
            name: CategoricalDistribution(values) for name, values in self._values.items()
        }
        self._seen: set[frozenset[tuple[str, Value]]] = {frozenset()}
        self._reached: set[tuple[str, Value]] = set()
        self._hopeless: set[tuple[str, Value]] = set()
        """Values that alone made a trial fail, or far too slow to be measured to its end."""

    def record(self, trial: Trial) -> None:
        """Tell Optuna of a trial that something else proposed."""
        import optuna

        settings = dict(trial.settings)
        self._seen.add(frozenset(settings.items()))
        if not settings.keys() <= self._values.keys():
            return
        if any(value not in self._values[name] for name, value in settings.items()):
            return
        complete = trial.state is TrialState.COMPLETE and trial.gain is not None
        new = set(settings.items()) - self._reached
        if complete:
            self._reached |= new
        elif len(new) == 1:
            self._hopeless |= new
        states = optuna.trial.TrialState
        self._study.add_trial(
            optuna.trial.create_trial(
                state=states.COMPLETE if complete else states.FAIL,
                value=trial.gain if complete else None,
                params={name: settings.get(name) for name in self._values},
                distributions=self._distributions,
                user_attrs={"number": trial.number, "state": str(trial.state)},
            )
        )

    def search(
        self, evaluator: Evaluator, best: Best, on_best: Callable[[Best], None] = lambda best: None
    ) -> Best:
        """Try neighbours until the budget ends or nothing better turns up.

        `on_best` is called with each new best.
        """
        fruitless = 0
        while fruitless < PATIENCE and self._values:
            batch: list[dict[str, Value]] = []
            for settings in self._proposals(best, evaluator.parallel):
                if evaluator.affordable([*batch, settings]):
                    batch.append(settings)
            if not batch:
                break
            for trial in evaluator.measure(batch, "search", best.gain):
                self.record(trial)
                if pays(trial, best):
                    best, fruitless = Best(trial.settings, trial.gain or 1.0, trial), 0
                    on_best(best)
                else:
                    fruitless += 1
        return best

    def _proposals(self, best: Best, count: int) -> list[dict[str, Value]]:
        import optuna

        stands_on = best.measurement or self._baseline
        useful = [p.name for p in self._space.parameters if p.pointless(stands_on) is None]
        near = self._neighbours(best.settings, useful)
        new = {key: n for n in near if (key := frozenset(n.items())) not in self._seen}
        free = list(new.values())
        chosen: list[dict[str, Value]] = []
        while free and len(chosen) < count:
            asked = self._study.ask(self._distributions)
            wanted = asked.params  # a deep copy each time
            nearest = min(free, key=lambda n: sum(n.get(k) != wanted.get(k) for k in self._values))
            # The trial is told under what is really run, by `record`.
            self._study.tell(asked, state=optuna.trial.TrialState.FAIL)
            free.remove(nearest)
            chosen.append(nearest)
        return chosen

    def _neighbours(self, best: Point, useful: list[str]) -> Iterator[dict[str, Value]]:
        """Yield the points that differ in parameters which may still make a difference."""
        for count in range(1, CHANGES + 1):
            for names in combinations(useful, count):
                for values in product(*map(self._worthwhile, names)):
                    changed = {**best, **dict(zip(names, values, strict=True))}
                    settings = {n: v for n, v in changed.items() if v is not None}
                    if self._space.allows(settings):
                        yield settings

    def _worthwhile(self, name: str) -> Sequence[Value | None]:
        """Return the values to try: of a progressive parameter, only those reached.

        The next one may not fit into the memory, and the ordered search has stopped before it.
        """
        values = [value for value in self._values[name] if (name, value) not in self._hopeless]
        if not self._space[name].progressive:
            return values
        return [value for value in values if value is None or (name, value) in self._reached]
