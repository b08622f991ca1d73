"""The ordered search: one parameter at a time on top of what already pays.

With the 10 to 40 trials that a script allows, an ordered list beats a clever sampler: measured
over five published search spaces, none was reliably within 5 % of the best in 50 trials.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from gpuadvisor.domain.knobs import Value
from gpuadvisor.domain.measurement import Measurement
from gpuadvisor.domain.study import Trial, TrialState
from gpuadvisor.tuners.space import Evaluator, Parameter, Point, Space
from gpuadvisor.tuners.statistics import spread_of, uncertainty

MIN_GAIN = 0.01
"""A trial must be better than the best so far by this share, and by its uncertainty, to be kept.
Asking for twice the uncertainty would turn away a true gain of 6 % after 20 steps of a script whose
loader is uneven. It need not be proof: ablation and the final comparison come later."""
PROGRESSIVE_GAIN = 0.05
"""Gain of a progressive value, such as a doubling of the batch, below which it is the last."""
RETRY_GROWTH = 1.1
"""Growth of the best since a parameter was tried from which that is tried once more: the bottleneck
may have moved to what it cures."""
LESS_WAITING = 0.5
"""Share of the waiting for data in which a parameter was tried in vain, below which its gain would
show."""
HARM = 0.03
"""Loss of a parameter, as a share, above which its costlier form is not tried."""


@dataclass
class Best:
    """The best point so far, on which the search stands."""

    settings: Point
    gain: float
    trial: Trial | None = None

    @property
    def measurement(self) -> Measurement | None:
        return self.trial.measurement if self.trial else None


def pays(trial: Trial, best: Best) -> bool:
    """Say whether a trial is better than the best so far by more than chance would have it."""
    needed = best.gain * (1 + max(MIN_GAIN, uncertainty(trial, best.trial)))
    return trial.state is TrialState.COMPLETE and (trial.gain or 0.0) >= needed


@dataclass
class _Item:
    """A value of a parameter that is to be tried."""

    parameter: Parameter
    place: int
    """Place of the value among the parameter's."""
    retry: bool = False
    beside: Trial | None = None
    """A trial on which it is to stand in place of the best so far."""

    @property
    def name(self) -> str:
        return self.parameter.name


@dataclass
class OrderedSearch:
    """The search in progress: a queue of values to try, and the best point found."""

    evaluator: Evaluator
    space: Space
    baseline: Measurement
    """Measurement of the empty point."""
    best: Best = field(default_factory=lambda: Best({}, 1.0))
    wanted: Collection[str] | None = None
    """Names of the parameters to try; None for all."""
    trials: list[Trial] = field(default_factory=list)
    pointless: dict[str, str] = field(default_factory=dict)
    """Parameters that had nothing to cure, and why."""
    left_out: list[str] = field(default_factory=list)
    """Parameters for which the budget had no room."""
    brought: dict[str, float] = field(default_factory=dict)
    """Parameter to the factor by which it improved the best when it was kept."""
    discouraged: dict[str, str] = field(default_factory=dict)
    """Parameters that were not tried because a cheaper form of them did harm, and which. They might
    have worked."""
    limited: dict[str, str] = field(default_factory=dict)
    """Parameters that could bring little on top of what they would have been tried on, and why."""
    tries_limited: bool = False
    """Whether to try these, too, after all others."""
    ended: dict[str, str] = field(default_factory=dict)
    """Why a progressive parameter went no further than the last value that was tried, in words."""
    on_best: Callable[[Best], None] = lambda best: None
    """Called with each new best."""

    def run(self) -> Best:
        """Try every parameter in order, then once more those that may pay now."""
        self._failures: Counter[str] = Counter()
        self._tried_at: dict[str, float] = {}
        self._harmful: dict[str, str] = {}
        self._slowing: set[str] = set()
        """Harmful parameters whose runs were complete, only slower: what refines such a parameter
        might have worked."""
        self._promising: dict[str, int] = {}
        self._covered: dict[str, float] = {}
        self._vain: set[str] = set()
        """What relieved settings that did not pay with it either."""
        self._leaves_limited = True
        wanted = self.space.by_name if self.wanted is None else self.wanted
        self._work(deque(_Item(p, 0) for p in self.space.parameters if p.name in wanted))
        self._work(deque(self._retries()))
        if self.tries_limited:
            self._work_limited()
        if not self.best.settings:  # there is time for what was spared, and nothing else to do
            self._harmful.clear()
            self._slowing.clear()
            self._work(deque(_Item(self.space[name], 0) for name in self.discouraged))
            self._work_limited()
        return self.best

    def _work_limited(self) -> None:
        """Try what could bring little; what there is no room for stays so."""
        self._leaves_limited = False
        self._work(deque(_Item(self.space[name], 0) for name in self.limited))

    def keep(self, earlier: OrderedSearch) -> None:
        """Take over what an earlier search found of parameters that this one has not."""
        others = [name for name in earlier.left_out if name not in (self.wanted or ())]
        self.left_out = [*others, *self.left_out]
        self.pointless = {**earlier.pointless, **self.pointless}
        self.discouraged = {**earlier.discouraged, **self.discouraged}
        others = [name for name in earlier.limited if name not in (self.wanted or ())]
        self.limited = {**{name: earlier.limited[name] for name in others}, **self.limited}
        self.ended = {**earlier.ended, **self.ended}

    def _work(self, queue: deque[_Item]) -> None:
        while queue:
            batch = self._next_batch(queue)
            if not batch:
                continue
            floor = self.best.gain
            trials = self.evaluator.measure([s for _, s in batch], "search", floor)
            self.trials.extend(trials)
            results = [(item, trial) for (item, _), trial in zip(batch, trials, strict=True)]
            self._judge(results, queue)

    def _next_batch(self, queue: deque[_Item]) -> list[tuple[_Item, dict[str, Value]]]:
        """Take items of different parameters, as many as can run side by side."""
        batch: list[tuple[_Item, dict[str, Value]]] = []
        later: list[_Item] = []
        while queue and len(batch) < self.evaluator.parallel:
            item = queue.popleft()
            if any(other.name == item.name for other, _ in batch):
                later.append(item)
                continue
            settings = self._settings(item)
            if settings is None or self._is_pointless(item) or self._has_run(settings):
                continue
            if self.evaluator.affordable([*(others for _, others in batch), settings]):
                batch.append((item, settings))
                self.limited.pop(item.name, None)
            elif item.name not in self.left_out and item.name not in self.limited:
                self.left_out.append(item.name)
        queue.extendleft(reversed(later))
        return batch

    def _has_run(self, settings: Mapping[str, Value]) -> bool:
        """Say whether this search ran a point: to run it again would tell no more than chance."""
        return any(trial.settings == settings for trial in self.trials)

    def _is_pointless(self, item: _Item) -> bool:
        """Say whether the best has nothing that the parameter could cure; it may have later."""
        measurement = item.beside.measurement if item.beside else self.best.measurement
        reason = item.parameter.pointless(measurement or self.baseline)
        if reason is None and self._leaves_limited and item.name not in self.best.settings:
            self.limited.pop(item.name, None)
            reason = item.parameter.limited(measurement or self.baseline)
            if reason is not None:
                self.limited[item.name] = reason
        cheaper = item.parameter.refines or ""
        if reason is None and cheaper in self._slowing:
            self.discouraged[item.name] = self._harmful[cheaper]
        reason = reason or self._harmful.get(cheaper)
        if reason is None:
            self.pointless.pop(item.name, None)
            return False
        self._postpone(item, reason)
        return True

    def _revived(self) -> list[_Item]:
        """Return what had nothing to cure and has now: the bottleneck has moved there."""
        items = [self._promising_item(n) for n in self.pointless if n in self._promising]
        return [item for item in items if not self._is_pointless(item) and self._settings(item)]

    def _promising_item(self, name: str, retry: bool = False) -> _Item:
        return _Item(self.space[name], self._promising[name], retry)

    def _settings(self, item: _Item) -> dict[str, Value] | None:
        """Return the point to try for an item, or None if it makes no sense now.

        Values that a restriction forbids on top of the best are passed over.
        """
        stands_on = item.beside.settings if item.beside else self.best.settings
        first, violation = item.place, None
        for place in range(first, len(item.parameter.values)):
            settings = self.space.combined(stands_on, item.name, item.parameter.values[place])
            reason = self.space.violation(settings)
            if reason is None:
                item.place = place
                break
            violation = violation or reason
        else:
            if violation is not None:
                self._postpone(item, violation)
            return None
        missing = self.space.missing(settings)
        if missing is not None:
            self._postpone(item, missing)
            return None
        return settings if settings != dict(self.best.settings) else None

    def _postpone(self, item: _Item, reason: str) -> None:
        """Leave out what can do nothing on top of the best so far; it may later."""
        if item.name not in self.best.settings:
            self.pointless.setdefault(item.name, reason)
            self._promising.setdefault(item.name, item.place)

    def _judge(self, results: list[tuple[_Item, Trial]], queue: deque[_Item]) -> None:
        """Keep the best of a batch; what else paid is tried again on top of it."""
        before = self.best
        results.sort(key=lambda result: _worth(result[1]), reverse=True)
        has_paid = pays(results[0][1], before)
        for item, trial in reversed(results[has_paid:]):
            if pays(trial, before):
                queue.appendleft(item)
            else:
                self._give_up(item, trial, queue, before.gain)
                if has_paid:
                    continue
                if relieved := self._relieved(trial):
                    # After its other value: alone that may be better, and each run less is one
                    # more for a proof.
                    queue.insert(bool(queue and queue[0].name == item.name), relieved)
                else:
                    queue.extendleft(self._uncovered(trial))
        if not has_paid:
            return
        item, trial = results[0]
        self.best = Best(trial.settings, trial.gain or 1.0, trial)
        grown = self.best.gain / before.gain - 1
        name = item.name
        self.pointless.pop(name, None)
        self._vain.discard(name)
        self.brought[name] = self.brought.get(name, 1.0) * (1 + grown)
        self.on_best(self.best)
        if not item.parameter.progressive or grown >= PROGRESSIVE_GAIN:
            queue.appendleft(_Item(item.parameter, item.place + 1))
        else:
            self.ended[name] = f"the value before it brought {grown:.1%}, too little to go on"
        # Whatever is tried before the new bottleneck is cured would be measured through it.
        possible = {i.name: i for i in [*self._revived(), *self._bared(), *self._again(item)]}
        queue.extendleft(reversed(possible.values()))

    def _relieved(self, trial: Trial) -> _Item | None:
        """Return what leaves a trial's settings the part of the machine that they want, if they
        lacked it and no other trial had it in vain."""
        point = self.space.relieved(trial)
        if point is None or (name := list(point)[-1]) in self._vain:
            return None
        self._vain.add(name)  # until it pays
        parameter = self.space[name]
        return _Item(parameter, parameter.values.index(point[name]), retry=True, beside=trial)

    def _again(self, item: _Item) -> list[_Item]:
        """Return the next value of what an item that paid has relieved, which had been tried
        without that."""
        if not item.retry or item.beside is None:
            return []
        name, value = list(item.beside.settings.items())[-1]
        parameter = self.space[name]
        return [_Item(parameter, parameter.values.index(value) + 1, retry=True)]

    def _uncovered(self, trial: Trial) -> list[_Item]:
        """Return a cure of the bottleneck behind which a trial's gain may be hidden."""
        measurement = trial.measurement
        if measurement is None or not self._is_covered(trial):
            return []
        cures = [self.space[name] for name in self.pointless if name in self._promising]
        return [
            _Item(cure, self._promising[cure.name], beside=trial)
            for cure in cures
            if cure.pointless(measurement) is None and not self._failures[cure.name]
        ][:1]

    def _is_covered(self, trial: Trial) -> bool:
        """Say whether a trial would be better than the best so far if it did not wait for data.

        A model that computes twice as fast is no faster where its loader was as slow as the model
        before; but now it waits, and with more workers its gain would show.
        """
        if trial.state is not TrialState.COMPLETE or trial.measurement is None:
            return False
        possible = (trial.gain or 0.0) / max(1 - trial.measurement.starved_share, 1e-3)
        return possible >= self.best.gain * RETRY_GROWTH

    def _bared(self) -> list[_Item]:
        """Return what waited for data when it was tried in vain, and would not any more."""
        measurement = self.best.measurement
        waits = measurement.starved_share if measurement else 1.0
        names = [n for n, share in self._covered.items() if waits < LESS_WAITING * share]
        for name in names:
            del self._covered[name]
        left = [name for name in names if name not in self.best.settings]
        return [self._promising_item(name, retry=True) for name in left]

    def _give_up(self, item: _Item, trial: Trial, queue: deque[_Item], floor: float) -> None:
        name, parameter = item.name, item.parameter
        self._failures[name] += 1
        self._note_harm(name, trial, floor)
        if trial.state is TrialState.COMPLETE and (item.retry or name not in self._tried_at):
            self._tried_at[name] = floor
            self._promising[name] = item.place
            if trial.measurement and self._is_covered(trial) and not item.retry:
                self._covered[name] = trial.measurement.starved_share
        useless = trial.state in (TrialState.NO_EFFECT, TrialState.UNSUPPORTED)
        if parameter.progressive:
            self.ended[name] = self._why_ended(trial, floor)
        stop = useless or parameter.progressive or item.retry
        if not stop and self._failures[name] < parameter.patience:
            queue.appendleft(_Item(parameter, item.place + 1, beside=item.beside))

    def _why_ended(self, trial: Trial, floor: float) -> str:
        """Return what a trial that was not kept says of its value: one of two single runs may be
        faster by as much as such runs differ.
        """
        if trial.state is not TrialState.COMPLETE:
            return f"the value before it came to no result: {str(trial.state).replace('_', ' ')}"
        runs = [each.measurement for each in self.evaluator.trials if not each.settings]
        spread = spread_of([run.mean_step_ms for run in runs if run is not None])
        if (trial.gain or 0.0) * (1 + math.sqrt(2) * spread) < floor * (1 + MIN_GAIN):
            return "the value before it did not pay"
        return (
            f"runs differ by {spread:.1%}, so one run did not show whether the value before it pays"
        )

    def _note_harm(self, name: str, trial: Trial, floor: float) -> None:
        """Remember what made things slower or could not run, for what refines it."""
        self._harmful.pop(name, None)
        self._slowing.discard(name)
        if trial.state in (TrialState.CRASHED, TrialState.UNSUPPORTED):
            self._harmful[name] = f"{name} did not work"
        elif trial.state is TrialState.COMPLETE and (trial.gain or 0.0) < (1 - HARM) * floor:
            slower = floor / (trial.gain or floor)
            self._harmful[name] = f"{name} made the script {slower:.2f}x slower"
            self._slowing.add(name)

    def _retries(self) -> list[_Item]:
        """Return what may pay on top of the final best though it did not before."""
        grown = [n for n, at in self._tried_at.items() if self.best.gain >= at * RETRY_GROWTH]
        names = [n for n in dict.fromkeys([*self.pointless, *grown]) if n not in self.best.settings]
        return [self._promising_item(name, retry=True) for name in names]


def _worth(trial: Trial) -> float:
    """Return the gain for ranking; a run that failed or computed something else has none."""
    return (trial.gain or 0.0) if trial.state is TrialState.COMPLETE else 0.0
