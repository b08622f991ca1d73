"""Whether workers may have copies of what a data set keeps."""

from __future__ import annotations

from dataclasses import dataclass

from gpuadvisor.domain.rehearsal import Moment, StateChange, StateKind
from gpuadvisor.domain.study import Aspect
from gpuadvisor.tuners.rehearsal.data import DataComparison
from gpuadvisor.tuners.rehearsal.lives import Findings, is_whole, parts_of, passes_of
from gpuadvisor.tuners.rehearsal.repeated_generators import repeated

_SAMPLERS = ("sampler", "batch_sampler")
_MAIN_PROCESS_ONLY = (*_SAMPLERS, "random", "numpy", "torch")
"""Where paths begin of what a worker does not read from: samplers give indices in the process of
the script, and the global generators are seeded anew in each worker."""


@dataclass
class StateComparison:
    """Judges what changes in a data set as it is read, between passes, and in workers."""

    found: Findings
    data: DataComparison

    def compare(self) -> None:
        """Judge what the data set keeps, where the settings change who reads it."""
        if not self.found.loader_knobs:
            return
        first, plan = self.found.lives.first, self.found.lives.plan
        if not first.epochs:
            return
        self.found.covered.append(Aspect.DATASET_STATE)
        if first.unseen:
            self.found.covered.remove(Aspect.DATASET_STATE)
            self.found.not_covered[Aspect.DATASET_STATE] = (
                f"{first.unseen[0]} is too large to look at"
            )
        in_workers = {each.loader for each in plan.epochs if each.workers}
        in_main = {each.loader for each in first.epochs if not each.workers}
        self._possible(in_main & in_workers)
        told = set()
        for change in first.changes:
            if change.loader not in in_workers or (change.path, change.moment) in told:
                continue
            told.add((change.path, change.moment))
            if change.moment is Moment.BETWEEN_EPOCHS:
                self._between_epochs(change)
            elif change.loader in in_main and change.path.split(".")[0] not in _SAMPLERS:
                self._in_process(change)
        for each in repeated(plan.workers):
            where = "in two workers" if each.is_between_workers else "in two epochs"
            self.found.problem(
                Aspect.DATASET_STATE,
                f"{each.path} draws the same random numbers {where}",
                self.found.loader_knobs,
            )

    def _possible(self, loaders: set[int]) -> None:
        """Say that reading would change for other samples what it changed for none of these."""
        lives = self.found.lives
        changes = [c for life in (lives.first, lives.second, lives.plan) for c in life.changes]
        seen = [f"{c.path}." for c in changes if c.moment is Moment.READING]
        for each in () if is_whole(lives.first) else lives.first.possible:
            inside = (f"{each.path}.", f"{each.path}[")
            if each.loader in loaders and not any(path.startswith(inside) for path in seen):
                why = f"{each.code} can change {each.path}, and did for no sample of the rehearsal"
                self.found.not_covered[Aspect.DATASET_STATE] = self.found.doubt = why
                self.found.covered = [a for a in self.found.covered if a != Aspect.DATASET_STATE]
                return

    def _between_epochs(self, change: StateChange) -> None:
        """Judge what the script changes between passes: workers that live on do not see it."""
        main_only = change.path.split(".")[0] in _MAIN_PROCESS_ONLY
        if (
            main_only
            or "persistent_workers" not in self.found.settings
            or self._is_made_once(change)
        ):
            return
        self.found.problem(
            Aspect.DATASET_STATE,
            f"the script changes {change.path} between epochs, and workers that live on would not"
            " see it",
            ["persistent_workers"],
        )

    def _in_process(self, change: StateChange) -> None:
        """Judge what changes as samples are read, or is held open: workers have copies of it."""
        kind = f" ({change.detail})" if change.detail else ""
        suspects = [
            n for n in ("dataloader_workers",) if n in self.found.settings
        ] or self.found.loader_knobs
        if change.moment is Moment.HELD:
            self.found.problem(
                Aspect.DATASET_STATE,
                f"{change.path}{kind} is open before the workers start, and they would share its"
                " position",
                suspects,
            )
        elif self._is_made_once(change):
            return  # opened or computed with the first sample, as each worker does for itself
        elif change.kind is StateKind.ITERATOR or change.kind is StateKind.VALUE:
            self.found.problem(
                Aspect.DATASET_STATE,
                f"{change.path}{kind} changes as samples are read, and each worker would change a"
                " copy of its own",
                suspects,
            )
        elif change.kind is StateKind.CONTAINER and not self.data.is_fixed(change.loader, 0):
            self.found.problem(
                Aspect.DATASET_STATE,
                f"{change.path}{kind} grows as random samples are read, and each worker would fill"
                " a copy of its own",
                suspects,
            )
        elif change.kind is StateKind.GENERATOR and not self.found.lives.plan.workers:
            self.found.problem(
                Aspect.DATASET_STATE,
                f"{change.path}{kind} draws random numbers as samples are read, and what its copies"
                " in workers draw could not be seen",
                suspects,
            )

    def _is_made_once(self, change: StateChange) -> bool:
        """Say whether a part changed in the first pass only, and samples do not depend on it."""
        passes = {
            number
            for loader, number in passes_of(self.found.lives.first)
            if loader == change.loader
        }
        changed = {
            each.epoch
            for each in self.found.lives.first.changes
            if (each.loader, each.path, each.moment) == (change.loader, change.path, Moment.READING)
        }
        fixed = all(
            self.data.is_fixed(change.loader, part) for part in self._parts_of(change.loader)
        )
        once = len(passes) > 1 and changed == {min(passes)} and fixed
        return once and change.kind not in (StateKind.ITERATOR, StateKind.GENERATOR)

    def _parts_of(self, loader: int) -> range:
        passes = [
            each
            for (place, _), each in passes_of(self.found.lives.first).items()
            if place == loader
        ]
        return range(min((len(parts_of(each)) for each in passes), default=0))
