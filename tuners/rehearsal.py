"""What two lives of an unchanged script and one under a plan prove, aspect by aspect.

The unchanged script's two lives are seeded alike. What they agree in, the plan's life must have
too; what they differ in, or draw at random, is compared by its distribution, or is not compared,
and then that is said.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from statistics import median

from gpuadvisor.domain.knobs import Effect, Settings
from gpuadvisor.domain.measurement import Trace
from gpuadvisor.domain.rehearsal import (
    Call,
    Epoch,
    Life,
    LoopKind,
    Moment,
    StateChange,
    StateKind,
)
from gpuadvisor.domain.study import (
    Aspect,
    Equivalence,
    Forecast,
    Problem,
    Rehearsal,
    TrialState,
)
from gpuadvisor.tuners.base import Knob
from gpuadvisor.tuners.equivalence import SPREAD_FACTOR, difference, is_broken
from gpuadvisor.tuners.repeated_generators import repeated

ENOUGH_SAMPLES = 2000
"""Samples of each side that stand for a pass over the data where a script has none."""
LEAST_P = 1e-3
"""Chance of calling two equal distributions different, for all tests of a rehearsal together."""
REPEATS_SHARE = 0.01
"""Part of random samples that may be exact repeats of others beyond those of the unchanged script:
sampling with replacement has some by chance."""
FILE_SHARE = 0.05
"""Part by which the size of a written file may differ: numbers in a text have more or fewer
digits."""
AMPLIFIED = 10.0
"""Times the limit by which outputs of a model that was trained for some steps may differ: each step
adds a rounding error of its own, and random errors of a hundred steps add up to ten."""
SLOWER = 1.0
"""Ratio of the unchanged script's later epochs to the plan's below which the plan loses time."""
LATER_LOSS = 0.8
"""Part of the first epoch's gain below which a later epoch's is another one, and not the noise of a
pass of a few batches."""

Key = tuple[int, int]
"""A loader and the number of a pass over it."""


@dataclass(frozen=True)
class Lives:
    """The lives that are compared."""

    first: Life
    """The unchanged script's."""
    second: Life
    """The unchanged script's again, with the same seed."""
    plan: Life
    """The script's under the settings."""
    step_ms: tuple[float, float] | None = None
    """Step times of the unchanged script and under the plan, as trials measured them."""
    numerics: Life | None = None
    """The script's under those of the settings that leave its data alone, where the plan reads
    other random samples: what both compute from the same input can be compared only there."""


def compare(
    lives: Lives, settings: Settings, knobs: Mapping[str, Knob], tolerance: float
) -> Rehearsal:
    """Return what the lives show of these settings, with results compared within a tolerance."""
    return _Comparison(lives, settings, knobs, tolerance).run()


def draws_samples_at_random(life: Life) -> bool:
    """Say whether a life's samples came from generators of random numbers as they were read."""
    reading = (c.moment is Moment.READING and c.kind is StateKind.GENERATOR for c in life.changes)
    return any(reading) or any(start.advanced for start in life.workers)


def enough_batches(life: Life, batches: int) -> int:
    """Return how many batches a pass needs for enough samples in a life that has no second pass.

    No more than `batches` where it has one, or was not cut short.
    """
    passes = [each for each in life.epochs if each.batches]
    single = bool(passes) and not any(each.number for each in passes)
    longest = max(passes, key=lambda each: each.rows, default=None)
    if not single or longest is None or longest.rows >= ENOUGH_SAMPLES:
        return batches
    if longest.whole_batches is not None and len(longest.batches) >= longest.whole_batches:
        return batches
    return max(batches, math.ceil(ENOUGH_SAMPLES * len(longest.batches) / max(1, longest.rows)))


def missing(rehearsal: Rehearsal | None) -> str | None:
    """Return what a rehearsal lacks for its settings to be called faster, or None.

    That takes the batches, a second epoch, the rows and the end, or enough samples where the
    script has no epochs; and results that agree, unless the settings change them on purpose.
    """
    if rehearsal is None:
        return "nothing was rehearsed"
    needed = [Aspect.ROWS, Aspect.END]
    if not rehearsal.changes_results:
        needed.append(Aspect.RESULTS)
    if rehearsal.samples < ENOUGH_SAMPLES or Aspect.BATCHES in rehearsal.not_covered:
        needed = [Aspect.BATCHES, Aspect.SECOND_EPOCH, *needed]
    for aspect in needed:
        if aspect not in rehearsal.covered:
            why = rehearsal.not_covered.get(aspect, "it was not seen")
            return f"{NAMES[aspect]} {'were' if aspect in _PLURAL else 'was'} not rehearsed: {why}"
    return None


NAMES = {
    Aspect.BATCHES: "the batches",
    Aspect.SECOND_EPOCH: "a second epoch",
    Aspect.DATASET_STATE: "the data set's state",
    Aspect.ROWS: "the rows in and out of the model",
    Aspect.RESULTS: "the results",
    Aspect.FILES: "the written files",
    Aspect.END: "the script's end",
}
"""What each aspect is called in a sentence."""
_PLURAL = (Aspect.BATCHES, Aspect.ROWS, Aspect.RESULTS, Aspect.FILES)


@dataclass
class _Comparison:
    """A comparison in progress."""

    lives: Lives
    settings: Settings
    knobs: Mapping[str, Knob]
    tolerance: float
    covered: list[Aspect] = field(default_factory=list)
    not_covered: dict[Aspect, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    samples: int = 0
    moved: bool = False
    """Whether the plan's life read other random samples, or the same ones in another order."""
    cut: str = ""
    """Why the unchanged script's lives did not come to their end; empty if they did."""

    def run(self) -> Rehearsal:
        equivalence = forecast = None
        if self._ends():
            self._data()
            self._state()
            self._rows()
            equivalence = self._results()
            self._files()
            forecast = self._forecast()
        if self.problems and equivalence is not None and equivalence.status == "equivalent":
            equivalence = Equivalence("not_checked", "", reason=self.problems[0].sentence)
        first = self.lives.first
        return Rehearsal(
            settings=dict(self.settings),
            covered=tuple(aspect for aspect in Aspect if aspect in self.covered),
            not_covered={a: why for a, why in self.not_covered.items() if a not in self.covered},
            problems=tuple(self.problems),
            epochs=max((each.number + 1 for each in _training(first)), default=0),
            samples=self.samples,
            equivalence=equivalence,
            changes_results=tuple(self._changing),
            forecast=forecast,
            wall_s=sum(each.wall_s for each in self._all()),
        )

    def _all(self) -> Iterator[Life]:
        lives = (self.lives.first, self.lives.second, self.lives.plan, self.lives.numerics)
        return (each for each in lives if each is not None)

    def _problem(self, aspect: Aspect, sentence: str, suspects: Iterable[str] = ()) -> None:
        """Note a difference, with the settings that reach so far: those of the data last."""
        reach = [n for n in self.settings if n in self.knobs and aspect in self.knobs[n].reaches]
        data = self._loader_knobs
        reach.sort(key=lambda name: name in data)
        if aspect is Aspect.RESULTS and not self.moved:
            reach = [name for name in reach if name not in data] or reach
        named = tuple(name for name in suspects if name in self.settings) or tuple(reach)
        if not any((p.aspect, p.suspects) == (aspect, named) for p in self.problems):
            self.problems.append(Problem(aspect, sentence, named))

    @property
    def _loader_knobs(self) -> list[str]:
        """The settings that change how data is read."""
        names = (n for n in self.settings if n in self.knobs)
        return [name for name in names if Aspect.BATCHES in self.knobs[name].reaches]

    @property
    def _changing(self) -> list[str]:
        """The settings that change results on purpose."""
        return [
            name
            for name in self.settings
            if name not in self.knobs
            or (self.knobs[name].effect is Effect.TRAINING and self.lives.first.losses)
        ]

    @property
    def _is_resized(self) -> bool:
        return any(self.knobs[n].progressive for n in self.settings if n in self.knobs)

    # -- the end ---------------------------------------------------------------------------

    def _ends(self) -> bool:
        """Compare the ends; say whether the lives are there to be compared in all else."""
        first, second, plan = self.lives.first, self.lives.second, self.lives.plan
        unchanged = next((life for life in (first, second) if not _complete(life)), None)
        if unchanged is not None and unchanged.state is not TrialState.HUNG:
            why = f"the unchanged script's shortened life {_ending(unchanged)}"
            self.not_covered.update(dict.fromkeys(Aspect, why))
            return False
        if plan.state not in (TrialState.COMPLETE, TrialState.HUNG) or (
            unchanged is None and not _complete(plan)
        ):
            self._problem(Aspect.END, f"under the plan the script's shortened life {_ending(plan)}")
            return False
        self._open_files()
        if unchanged is None:
            self.covered.append(Aspect.END)
        else:
            self.cut = f"the unchanged script's shortened life {_ending(unchanged)}"
            self.not_covered[Aspect.END] = self.cut
        return True

    def _open_files(self) -> None:
        """Look ahead: a whole pass may open more files than the process may have."""
        limit = self.lives.plan.most_open_files
        if limit is None:
            return
        for ours, theirs in zip(self.lives.first.epochs, self.lives.plan.epochs, strict=False):
            count = len(theirs.batches)
            whole = theirs.whole_batches or count
            if count > 1 and theirs.open_files - ours.open_files >= count - 1:
                needed = theirs.open_files * whole // (count - 1)
                if needed > limit:
                    self._problem(
                        Aspect.END,
                        f"each batch leaves {theirs.open_files / (count - 1):.1f} files open, and a"
                        f" whole pass {needed:,}, more than the {limit:,} that are allowed",
                        self._loader_knobs,
                    )

    # -- data ------------------------------------------------------------------------------

    def _data(self) -> None:
        first, second, plan = (_passes(life) for life in (self.lives.first, self.lives.second,
                                                          self.lives.plan))  # fmt: skip
        if not first:
            self._inputs()
            return
        for key, ours in first.items():
            aspect = Aspect.BATCHES if key[1] == 0 else Aspect.SECOND_EPOCH
            theirs, again = plan.get(key), second.get(key)
            if theirs is None and not self.cut and again is not None:
                self._problem(
                    aspect, f"pass {key[1] + 1} over the data is not made", self._loader_knobs
                )
            elif theirs is None or again is None:
                why = f"pass {key[1] + 1} over the data was not made in every life"
                self.not_covered.setdefault(aspect, why)
            elif ours.rows != theirs.rows and ours.rows == again.rows:
                self._problem(
                    aspect,
                    f"a pass over the data gives {theirs.rows:,} samples and not {ours.rows:,}",
                    self._loader_knobs,
                )
            else:
                self._pass(aspect, key, ours, again, theirs)
        self._same_order()
        self._repeats()
        if not any(number for _, number in first):
            whole = self._is_whole(self.lives.first)
            if whole:
                self.covered.append(Aspect.SECOND_EPOCH)  # the script has no other
            else:
                self.not_covered[Aspect.SECOND_EPOCH] = "the script's life had only one"

    def _pass(self, aspect: Aspect, key: Key, ours: Epoch, again: Epoch, theirs: Epoch) -> None:
        """Compare one pass over one loader, part by part."""
        parts = min(len(_parts(each)) for each in (ours, again, theirs))
        if not parts:
            self.not_covered.setdefault(aspect, "the batches hold nothing that can be compared")
            return
        compared = True
        for part in range(parts):
            if self._is_fixed(key[0], part):
                self._exact(aspect, key, part, ours, theirs)
            else:
                self.moved = True
                compared &= self._distribution(aspect, key, part, ours, again, theirs)
        if compared:
            self.covered.append(aspect)
            self.samples += theirs.rows

    def _is_fixed(self, loader: int, part: int) -> bool:
        """Say whether a part of each sample is the same whenever it is read."""
        first, second = _passes(self.lives.first), _passes(self.lives.second)
        mine = [key for key in first if key[0] == loader and key in second]
        streams = [_stream(first[key], part) for key in mine]
        if any(_stream(second[k], part) != s for k, s in zip(mine, streams, strict=True)):
            return False
        if not draws_samples_at_random(self.lives.first):
            return True
        # Random numbers were drawn, but perhaps for another part, or for the order only.
        return len(streams) > 1 and all(
            Counter(stream) == Counter(streams[0]) for stream in streams[1:]
        )

    def _exact(self, aspect: Aspect, key: Key, part: int, ours: Epoch, theirs: Epoch) -> None:
        a, b = _stream(ours, part), _stream(theirs, part)
        if a == b:
            return
        shuffles = self._shuffles(key[0], part)
        partial = ours.rows < max(
            each.rows for place, each in _passes(self.lives.first).items() if place[0] == key[0]
        )
        if shuffles and (partial or Counter(a) == Counter(b)):
            self.moved = True  # of a pass that ends early, other samples come first
            return
        if Counter(a) == Counter(b):
            self._problem(aspect, "the samples come in another order", self._loader_knobs)
            return
        if self._whole_batches_only(ours, part) and self._is_resized:
            self.not_covered.setdefault(aspect, "batches of another size cannot be told apart")
            return
        lost = sum((Counter(a) - Counter(b)).values())
        distinct, of = len(set(b)), len(set(a))
        what = f"{lost:,} of {len(a):,} samples differ"
        if distinct < of and set(b) <= set(a):
            what = f"a pass reads {distinct:,} of {of:,} samples, some of them more than once"
        self._problem(aspect, f"in pass {key[1] + 1} {what}", self._loader_knobs)

    def _whole_batches_only(self, epoch: Epoch, part: int) -> bool:
        return all(
            len(batch.parts[part]) == 1 for batch in epoch.batches if part < len(batch.parts)
        )

    def _shuffles(self, loader: int, part: int) -> bool:
        """Say whether the unchanged script reads in another order in each pass."""
        streams = _streams(self.lives.first, loader, part)
        return len(streams) > 1 and streams[0] != streams[1]

    def _same_order(self) -> None:
        """Look for an order that changes from pass to pass, and does not any more."""
        for loader in {loader for loader, _ in _passes(self.lives.first)}:
            if not self._is_fixed(loader, 0) or not self._shuffles(loader, 0):
                continue
            streams = _streams(self.lives.plan, loader, 0)
            if len(streams) > 1 and streams[0] == streams[1]:
                self._problem(
                    Aspect.SECOND_EPOCH,
                    "every pass has the samples in the same order",
                    self._loader_knobs,
                )

    def _distribution(
        self, aspect: Aspect, key: Key, part: int, ours: Epoch, again: Epoch, theirs: Epoch
    ) -> bool:
        """Compare random samples by how their means and deviations are distributed."""
        known = _moments(ours, part)
        if again.batches != ours.batches:
            known = [a + b for a, b in zip(known, _moments(again, part), strict=True)]
        found = _moments(theirs, part)
        if not all(known) or not all(found):
            self.not_covered.setdefault(
                aspect, "the samples are random and hold no numbers whose distribution shows"
            )
            return False
        tests = 2 * max(1, len(_passes(self.lives.first))) * max(1, len(_parts(ours)))
        for name, a, b in zip(("mean", "deviation"), known, found, strict=True):
            if _chance(a, b) < LEAST_P / tests:
                self._problem(
                    aspect,
                    f"the samples' {name} is distributed otherwise in pass {key[1] + 1}"
                    f" (median {median(b):.4g} and not {median(a):.4g})",
                    self._loader_knobs,
                )
        return True

    def _repeats(self) -> None:
        """Look for random samples that come again as they were, which they had not before."""
        first, plan = _passes(self.lives.first), _passes(self.lives.plan)
        for loader in {loader for loader, _ in first}:
            keys = [key for key in first if key[0] == loader and key in plan]
            for part in range(min((len(_parts(first[key])) for key in keys), default=0)):
                if self._is_fixed(loader, part):
                    continue
                ours = [one for key in keys for one in _stream(first[key], part)]
                theirs = [one for key in keys for one in _stream(plan[key], part)]
                more = (len(theirs) - len(set(theirs))) - (len(ours) - len(set(ours)))
                if more > max(1, REPEATS_SHARE * len(theirs)):
                    self._problem(
                        Aspect.SECOND_EPOCH,
                        f"{more:,} of {len(theirs):,} random samples are exact repeats of others",
                        self._loader_knobs,
                    )

    def _inputs(self) -> None:
        """Compare what the model is given, where the script makes its batches itself."""
        first, second, plan = (self.lives.first.calls, self.lives.second.calls,
                               self.lives.plan.calls)  # fmt: skip
        if not first:
            self.not_covered[Aspect.BATCHES] = "neither a DataLoader nor a call of a model was seen"
            return
        if self._is_resized:
            self.samples = min(sum(c.rows_in for c in calls) for calls in (first, plan))
        else:
            same = sum(c.rows_in for a, b, c in zip(first, second, plan, strict=False)
                       if a.input == b.input == c.input)  # fmt: skip
            self.samples = same
        if self._is_whole(self.lives.first) or self.samples >= ENOUGH_SAMPLES:
            self.covered += [Aspect.BATCHES, Aspect.SECOND_EPOCH]
            return
        why = (
            f"the script makes its batches itself, and {self.samples:,} samples could be compared,"
            f" not {ENOUGH_SAMPLES:,}"
        )
        self.not_covered[Aspect.BATCHES] = self.not_covered[Aspect.SECOND_EPOCH] = why

    def _is_whole(self, life: Life) -> bool:
        """Say whether a life was the script's whole run, with nothing of it left out."""
        cut = any(loop.shortened for loop in life.loops)
        short = any(
            each.whole_batches is None or len(each.batches) < each.whole_batches
            for each in life.epochs
        )
        return _complete(life) and not cut and not short

    # -- state -----------------------------------------------------------------------------

    def _state(self) -> None:
        """Judge what the data set keeps, where the settings change who reads it."""
        if not self._loader_knobs:
            return
        first, plan = self.lives.first, self.lives.plan
        if not first.epochs:
            return
        self.covered.append(Aspect.DATASET_STATE)
        if first.unseen:
            self.covered.remove(Aspect.DATASET_STATE)
            self.not_covered[Aspect.DATASET_STATE] = f"{first.unseen[0]} is too large to look at"
        in_workers = {each.loader for each in plan.epochs if each.workers}
        in_main = {each.loader for each in first.epochs if not each.workers}
        told = set()
        for change in first.changes:
            if change.loader not in in_workers or (change.path, change.moment) in told:
                continue
            told.add((change.path, change.moment))
            if change.moment is Moment.BETWEEN_EPOCHS:
                self._between_epochs(change)
            elif change.loader in in_main:
                self._in_process(change)
        for each in repeated(plan.workers):
            where = "in two workers" if each.is_between_workers else "in two epochs"
            self._problem(
                Aspect.DATASET_STATE,
                f"{each.path} draws the same random numbers {where}",
                self._loader_knobs,
            )

    def _between_epochs(self, change: StateChange) -> None:
        """Judge what the script changes between passes: workers that live on do not see it."""
        main_only = change.path.split(".")[0] in _MAIN_PROCESS_ONLY
        if main_only or "persistent_workers" not in self.settings or self._is_made_once(change):
            return
        self._problem(
            Aspect.DATASET_STATE,
            f"the script changes {change.path} between epochs, and workers that live on would not"
            " see it",
            ["persistent_workers"],
        )

    def _in_process(self, change: StateChange) -> None:
        """Judge what changes as samples are read, or is held open: workers have copies of it."""
        kind = f" ({change.detail})" if change.detail else ""
        suspects = [n for n in ("dataloader_workers",) if n in self.settings] or self._loader_knobs
        if change.moment is Moment.HELD:
            self._problem(
                Aspect.DATASET_STATE,
                f"{change.path}{kind} is open before the workers start, and they would share its"
                " position",
                suspects,
            )
        elif self._is_made_once(change):
            return  # opened or computed with the first sample, as each worker does for itself
        elif change.kind is StateKind.ITERATOR or change.kind is StateKind.VALUE:
            self._problem(
                Aspect.DATASET_STATE,
                f"{change.path}{kind} changes as samples are read, and each worker would change a"
                " copy of its own",
                suspects,
            )
        elif change.kind is StateKind.CONTAINER and not self._is_fixed(change.loader, 0):
            self._problem(
                Aspect.DATASET_STATE,
                f"{change.path}{kind} grows as random samples are read, and each worker would fill"
                " a copy of its own",
                suspects,
            )
        elif change.kind is StateKind.GENERATOR and not self.lives.plan.workers:
            self._problem(
                Aspect.DATASET_STATE,
                f"{change.path}{kind} draws random numbers as samples are read, and what its copies"
                " in workers draw could not be seen",
                suspects,
            )

    def _is_made_once(self, change: StateChange) -> bool:
        """Say whether a part changed in the first pass only, and samples do not depend on it."""
        passes = {number for loader, number in _passes(self.lives.first) if loader == change.loader}
        changed = {
            each.epoch
            for each in self.lives.first.changes
            if (each.loader, each.path, each.moment) == (change.loader, change.path, Moment.READING)
        }
        fixed = all(self._is_fixed(change.loader, part) for part in self._parts_of(change.loader))
        once = len(passes) > 1 and changed == {min(passes)} and fixed
        return once and change.kind not in (StateKind.ITERATOR, StateKind.GENERATOR)

    def _parts_of(self, loader: int) -> range:
        passes = [each for (place, _), each in _passes(self.lives.first).items() if place == loader]
        return range(min((len(_parts(each)) for each in passes), default=0))

    # -- rows and results ------------------------------------------------------------------

    def _rows(self) -> None:
        first, second, plan = (_rows_of(life) for life in (self.lives.first, self.lives.second,
                                                           self.lives.plan))  # fmt: skip
        if self.cut:
            self.not_covered[Aspect.ROWS] = self.cut
        elif not self.lives.first.calls:
            self.not_covered[Aspect.ROWS] = "the script calls no torch module with parameters"
        elif first != second:
            self.not_covered[Aspect.ROWS] = "two lives of the unchanged script differ in them"
        else:
            self.covered.append(Aspect.ROWS)
            for what, ours, theirs in zip(_ROWS, first, plan, strict=True):
                if ours != theirs:
                    self._problem(Aspect.ROWS, f"{theirs:,} rows {what} the model and not {ours:,}")
                    return

    def _results(self) -> Equivalence:
        """Compare losses and outputs."""
        if self._changing:
            reason = f"{', '.join(self._changing)} changes what the script computes"
            return self._unchecked(reason)
        first, second = self.lives.first, self.lives.second
        plan = self.lives.numerics or self.lives.plan
        if is_broken(Trace(first.losses), Trace(plan.losses)) or _breaks(first, plan):
            self._problem(Aspect.RESULTS, "NaN or infinity turns up in losses or outputs")
            return Equivalence("wrong", "NaN or infinity", None, self.tolerance)
        random = bool(first.probes) or (self.moved and self.lives.numerics is None)
        found = self._losses_or_outputs(first, plan, by_probe=random)
        if found is None:
            return self._unchecked("no loss and no output could be compared")
        value, metric = found
        known = self._losses_or_outputs(first, second, by_probe=random)
        spread = 0.0 if known is None else known[0]
        if not math.isfinite(value) or not math.isfinite(spread):
            return self._unchecked("the unchanged script computes NaN or infinity itself")
        limit = max(self.tolerance, SPREAD_FACTOR * spread)
        if value > limit:
            if random and not first.probes:  # other samples: nothing to compare one by one
                return self._sampled(metric)
            self._problem(Aspect.RESULTS, f"{metric}: {value:.2%}, above {limit:.2%}")
            return Equivalence("wrong", metric, value, limit)
        later = self._outputs_far_apart(first, second, plan, limit)
        if later is not None:
            return self._unchecked(later)
        self.covered.append(Aspect.RESULTS)
        return Equivalence("equivalent", metric, value, limit)

    def _outputs_far_apart(self, first: Life, second: Life, plan: Life, limit: float) -> str | None:
        """Return that what a trained model computes differs, though its losses do not.

        Training amplifies rounding, so outputs after it may differ by more than a loss.
        """
        if not first.losses or self.moved:
            return None
        sides = [[call for call in life.calls if not call.grad] for life in (first, second, plan)]
        found, usual = _outputs_apart(sides[0], sides[2]), _outputs_apart(sides[0], sides[1])
        if found is None or usual is None:
            return None
        if found[0] <= max(AMPLIFIED * limit, SPREAD_FACTOR * usual[0]):
            return None
        return f"losses agree, but outputs without gradients differ by {found[0]:.0%}"

    def _sampled(self, metric: str) -> Equivalence:
        """Judge settings that change nothing but which random samples are read."""
        numerics = [
            n for n in self.settings if n in self.knobs and self.knobs[n].effect is Effect.NUMERICS
        ]
        if numerics or not {Aspect.BATCHES, Aspect.SECOND_EPOCH} <= set(self.covered):
            return self._unchecked("the plan reads other random samples")
        self.covered.append(Aspect.RESULTS)
        return Equivalence(
            "equivalent", f"distribution of {self.samples:,} random samples; the model is the same"
        )

    def _unchecked(self, reason: str) -> Equivalence:
        self.not_covered[Aspect.RESULTS] = reason
        return Equivalence("not_checked", "", reason=reason)

    def _losses_or_outputs(
        self, ours: Life, theirs: Life, by_probe: bool
    ) -> tuple[float, str] | None:
        if by_probe and ours.probes and theirs.probes:
            apart = [_apart(a, b) for a, b in zip(ours.probes, theirs.probes, strict=False)]
            return max(apart), "largest relative difference of outputs in evaluation mode"
        found = difference(Trace(ours.losses), Trace(theirs.losses))
        if found is not None or ours.losses:
            return found
        return _outputs_apart(ours.calls, theirs.calls)

    # -- time ------------------------------------------------------------------------------

    def _forecast(self) -> Forecast | None:
        """Return what the settings mean for the whole run, where steps and passes were timed."""
        measured = self.lives.step_ms
        if measured is not None:
            base_s, plan_s = (ms / 1e3 for ms in measured)
        else:
            least = [_least_step_s(life) for life in (self.lives.first, self.lives.plan)]
            base_s, plan_s = least[0] or 1.0, least[1] or 1.0
        both = [_Times.of(life, base_s) for life in (self.lives.first, self.lives.second)]
        # A moment in which the machine was busy must not look like a cache that is lost.
        first = max(filter(None, both), key=lambda times: times.later_s, default=None)
        plan = _Times.of(self.lives.plan, plan_s)
        start_s = self.lives.plan.startup_s - self.lives.first.startup_s
        if first is None or plan is None:
            self._loop_times(base_s / plan_s if measured is not None else SLOWER)
            return self._forecast_of_steps(base_s, plan_s, start_s) if measured else None
        start_s += plan.warm_up_s - first.warm_up_s
        ratio = first.later_s / plan.later_s
        planned = [loop.planned for loop in self.lives.first.loops if loop.kind is LoopKind.EPOCHS]
        epochs = max((each for each in planned if each), default=None)
        count = epochs or 1
        claimed = base_s / plan_s if measured is not None else SLOWER
        if ratio < SLOWER and ratio < LATER_LOSS * claimed and (epochs or 2) > 1:
            self._problem(
                Aspect.SECOND_EPOCH,
                f"later epochs take {1 / ratio:.2f}x as long as the unchanged script's",
                self._loader_knobs,
            )
        saved_s = count * (first.later_s - plan.later_s) - start_s
        each_step_s = (first.later_s - plan.later_s) / first.batches
        return Forecast(
            saved_s=saved_s,
            whole_s=self.lives.first.startup_s + first.warm_up_s + count * first.later_s,
            epochs=epochs,
            later_ratio=ratio,
            extra_start_s=start_s,
            break_even_steps=_break_even(start_s, each_step_s),
        )

    def _loop_times(self, claimed: float) -> None:
        """Compare the later epochs of a script without loaders, by its own loops."""
        known = {loop.place: loop.seconds[1:] for loop in self.lives.first.loops}
        again = {loop.place: loop.seconds[1:] for loop in self.lives.second.loops}
        for loop in self.lives.plan.loops:
            ours, more, theirs = known.get(loop.place), again.get(loop.place), loop.seconds[1:]
            if not ours or not more or not theirs:
                continue
            ratio = max(median(ours), median(more)) / median(theirs)
            if ratio < SLOWER and ratio < LATER_LOSS * claimed:
                self._problem(
                    Aspect.SECOND_EPOCH,
                    f"later epochs of {loop.place} take {1 / ratio:.2f}x as long as the unchanged"
                    " script's",
                )

    def _forecast_of_steps(self, base_s: float, plan_s: float, start_s: float) -> Forecast | None:
        planned = [loop.planned for loop in self.lives.first.loops if loop.kind is LoopKind.STEPS]
        steps = max((each for each in planned if each), default=0)
        if not steps:
            return None
        return Forecast(
            saved_s=steps * (base_s - plan_s) - start_s,
            whole_s=self.lives.first.startup_s + steps * base_s,
            epochs=None,
            later_ratio=None,
            extra_start_s=start_s,
            break_even_steps=_break_even(start_s, base_s - plan_s),
        )

    # -- files -----------------------------------------------------------------------------

    def _files(self) -> None:
        first, second, plan = (_files_of(life) for life in (self.lives.first, self.lives.second,
                                                            self.lives.plan))  # fmt: skip
        if self.cut or first is None or second is None or plan is None:
            self.not_covered[Aspect.FILES] = self.cut or "what the lives wrote is not known"
            return
        self.covered.append(Aspect.FILES)
        for name, sizes in first.items():
            if len(second.get(name, ())) != len(sizes):
                continue
            found, size = plan.get(name, []), sum(sizes)
            if not found:
                self._problem(Aspect.FILES, f"{name} is not written")
            elif len(found) != len(sizes):
                self._problem(
                    Aspect.FILES, f"{len(found):,} files {name} are written and not {len(sizes):,}"
                )
            elif sum(second[name]) == size and abs(sum(found) - size) > FILE_SHARE * size:
                self._problem(Aspect.FILES, f"{name} has {sum(found):,} bytes and not {size:,}")


@dataclass(frozen=True)
class _Times:
    """Times of a side's passes over the data that it trains on, as if they were whole."""

    batches: int
    """Batches of a whole pass."""
    later_s: float
    """A later pass."""
    warm_up_s: float
    """What the first pass takes longer than its batches do in trials: compilation, workers."""

    @classmethod
    def of(cls, life: Life, step_s: float) -> _Times | None:
        """Return the times of a life whose steps take `step_s` in trials of its first pass.

        What a short pass takes longer than its steps is counted once a pass: its workers start, or
        something is compiled. Where it takes less, as where samples were kept in memory, all of
        the whole pass's batches do.
        """
        passes = [each for each in _training(life) if each.finished and each.batches]
        later = [each for each in passes if each.number > 0]
        if not passes or not later:
            return None
        whole = passes[0].whole_batches or len(passes[0].batches)
        times_s = []
        for each in later:
            count = len(each.batches)
            spent_s = each.start_s + each.seconds
            steady_s = (spent_s - each.made_s) / count
            if steady_s < step_s:
                times_s.append(each.made_s + whole * steady_s)
            else:
                times_s.append(whole * step_s + spent_s - count * step_s)
        first = passes[0]
        spent_s = first.start_s + first.seconds - len(first.batches) * step_s
        return cls(whole, median(times_s), max(0.0, spent_s))


def _least_step_s(life: Life) -> float | None:
    """Return the time of a batch in the quickest pass; None without a whole one."""
    times = [
        (each.start_s + each.seconds - each.made_s) / len(each.batches)
        for each in _training(life)
        if each.finished and each.batches
    ]
    return min(times, default=None)


def _break_even(start_s: float, saved_s: float) -> int | None:
    """Return after how many steps a longer start is earned back; None where it never is."""
    if start_s <= 0:
        return 0
    return math.ceil(start_s / saved_s) if saved_s > 0 else None


_MAIN_PROCESS_ONLY = ("sampler", "batch_sampler", "random", "numpy", "torch")
"""Where paths begin of what a worker does not read from: samplers give indices in the process of
the script, and the global generators are seeded anew in each worker."""
_ROWS = ("enter", "leave", "enter", "leave")


def _complete(life: Life) -> bool:
    return life.state is TrialState.COMPLETE


def _ending(life: Life) -> str:
    where = f" ({life.place})" if life.place else ""
    ended = "did not end" if life.state is TrialState.HUNG else "failed"
    return f"{ended}: {life.reason}{where}".rstrip(": ")


def _training(life: Life) -> list[Epoch]:
    trained = [each for each in life.epochs if each.steps]
    return trained or list(life.epochs)


def _passes(life: Life) -> dict[Key, Epoch]:
    """Return the passes of which something was read, but for one that a life's end cut off."""
    passes = {(each.loader, each.number): each for each in life.epochs if each.batches}
    if life.state is TrialState.HUNG:
        passes = {key: each for key, each in passes.items() if each.finished}
    return passes


def _parts(epoch: Epoch) -> range:
    return range(min((len(batch.parts) for batch in epoch.batches), default=0))


def _stream(epoch: Epoch, part: int) -> list[int]:
    """Return the fingerprints of a part of all samples of a pass, in order."""
    return [one for b in epoch.batches if part < len(b.parts) for one in b.parts[part]]


def _streams(life: Life, loader: int, part: int) -> list[list[int]]:
    return [_stream(each, part) for (place, _), each in _passes(life).items() if place == loader]


def _moments(epoch: Epoch, part: int) -> list[list[float]]:
    """Return the means and the deviations of a part of all samples of a pass."""
    flat = [m for batch in epoch.batches if part < len(batch.moments) for m in batch.moments[part]]
    return [flat[0::2], flat[1::2]]


def _chance(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Return the p-value of Kolmogorov's and Smirnov's test that two samples are of one kind."""
    from scipy.special import kolmogorov

    places = sorted({*ours, *theirs})
    a, b = Counter(ours), Counter(theirs)
    below_a = below_b = largest = 0.0
    for place in places:
        below_a += a[place] / len(ours)
        below_b += b[place] / len(theirs)
        largest = max(largest, abs(below_a - below_b))
    effective = math.sqrt(len(ours) * len(theirs) / (len(ours) + len(theirs)))
    return float(kolmogorov((effective + 0.12 + 0.11 / effective) * largest))


def _rows_of(life: Life) -> tuple[int, int, int, int]:
    """Return the rows into and out of the model with gradients, and those without."""
    sums = [0, 0, 0, 0]
    for call in life.calls:
        place = 0 if call.grad else 2
        sums[place] += call.rows_in
        sums[place + 1] += call.rows_out
    return sums[0], sums[1], sums[2], sums[3]


def _breaks(ours: Life, theirs: Life) -> bool:
    def finite(life: Life) -> bool:
        return all(math.isfinite(v) for call in life.calls for row in call.values for v in row)

    return finite(ours) and not finite(theirs)


def _apart(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Return the relative L2 difference; infinite where there are not as many numbers."""
    if len(ours) != len(theirs):
        return math.inf
    pairs = [(a, b) for a, b in zip(ours, theirs, strict=True) if math.isfinite(a)]
    if any(not math.isfinite(b) for _, b in pairs):
        return math.inf
    scale = math.sqrt(math.fsum(a * a for a, _ in pairs))
    apart = math.sqrt(math.fsum((a - b) ** 2 for a, b in pairs))
    return apart / scale if scale else (0.0 if apart == 0 else math.inf)


def _outputs_apart(ours: Sequence[Call], theirs: Sequence[Call]) -> tuple[float, str] | None:
    """Compare the rows of outputs in order, however they are divided into calls."""
    rows = [row for call in theirs for row in call.values]
    start, apart, count = 0, [], 0
    for call in ours:
        mine = rows[start : start + len(call.values)]
        start += len(call.values)
        if not call.values or len(mine) < len(call.values):
            continue
        count += len(mine)
        apart.append(_apart([v for r in call.values for v in r], [v for r in mine for v in r]))
    if not apart:
        return None
    return max(apart), f"largest relative difference in {count:,} rows of outputs"


def _files_of(life: Life) -> dict[str, list[int]] | None:
    """Return the sizes of what a life wrote beneath its folder, by names without numbers."""
    if life.written is None:
        return None
    files: dict[str, list[int]] = {}
    for name, size in life.written.items():
        path = PurePath(name)
        hidden = any(part.startswith(".") or part == "__pycache__" for part in path.parts)
        if not path.is_absolute() and not hidden:
            usual = re.sub(r"\d+", "#", name)
            files.setdefault(usual, []).append(size)
    return files
