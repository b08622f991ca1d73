"""Whether workers may have copies of what a data set keeps, and draw numbers of their own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gpuadvisor.domain.rehearsal import (
    ATTRIBUTES,
    CHILDREN,
    COUNTED,
    LEFT,
    OF_ITS_TIME,
    OF_ITS_WORKER,
    ONE_FILE,
    RAISES,
    REPORTED,
    UNSENT,
    Moment,
    Reseeding,
    StateChange,
    StateKind,
    WorkerStart,
)
from gpuadvisor.domain.study import Aspect
from gpuadvisor.tuners.rehearsal.data import DataComparison
from gpuadvisor.tuners.rehearsal.lives import Findings, is_whole, parts_of, passes_of

READ_AHEAD = ("dataloader_workers", "prefetch_factor")
"""Settings that say how many batches are read before the script has used the one before."""
_SAMPLERS = ("sampler", "batch_sampler")
_MAIN_PROCESS_ONLY = (*_SAMPLERS, "random", "numpy", "torch")
"""Where paths begin of what a worker does not read from: samplers give indices in the process of
the script, and the global generators are seeded anew in each worker."""


SEEDED = "seeded "
"""How the state of a generator begins that was seeded while its first samples were read: what it
was like after them is compared, and between workers only."""


@dataclass(frozen=True)
class Repetition:
    """One generator that began twice in the same state, and was drawn from both times."""

    loader: int
    path: str
    """Attribute path of the generator: `dataset.rng`, `numpy.random`."""
    first: tuple[int, int]
    """Epoch and worker that had the state first."""
    second: tuple[int, int]
    """Epoch and worker that had it again."""

    @property
    def is_between_workers(self) -> bool:
        """Whether two workers of one epoch gave the same numbers, not two epochs."""
        return self.first[0] == self.second[0]


def repeated(starts: Iterable[WorkerStart], reseeded: Iterable[Reseeding] = ()) -> list[Repetition]:
    """Return which generators repeat themselves: once each between workers and between epochs.

    Each worker is given once a pass. What nobody drew from is no repetition, nor what each sample
    of the unchanged script begins anew.
    """
    alike = {(each.loader, each.path, f"{SEEDED}{each.digest}") for each in reseeded}
    first_seen: dict[tuple[int, str, str], tuple[int, int]] = {}
    found: dict[tuple[int, str, bool], Repetition] = {}
    for start in sorted(starts, key=lambda each: (each.loader, each.epoch, each.worker)):
        loader, epoch, worker = start.loader, start.epoch, start.worker
        for path in sorted(start.advanced):
            digest = start.generators.get(path, "")
            if (loader, path, digest) in alike:
                continue
            if digest.startswith(SEEDED):  # by a sample's number, perhaps: meant to be the same
                digest += f" in epoch {epoch}"
            first = first_seen.setdefault((loader, path, digest), (epoch, worker))
            if first != (epoch, worker):
                repetition = Repetition(loader, path, first, (epoch, worker))
                found.setdefault((loader, path, repetition.is_between_workers), repetition)
    return list(found.values())


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
        if first.unseen:
            why = f"{first.unseen[0]} is too large to look at"
            self.found.not_covered[Aspect.DATASET_STATE] = why
        else:
            self.found.covered.append(Aspect.DATASET_STATE)
        in_workers = {each.loader for each in plan.epochs if each.workers}
        in_main = {each.loader for each in first.epochs if not each.workers}
        self._possible(in_main & in_workers, {e.loader for e in plan.epochs if e.workers > 1})
        self._counted(in_workers - in_main)
        told = set()
        for change in first.changes:
            if change.loader not in in_workers or (change.path, change.moment) in told:
                continue
            told.add((change.path, change.moment))
            if change.moment is Moment.BETWEEN_EPOCHS:
                self._between_epochs(change)
            elif change.moment is Moment.BETWEEN_BATCHES:
                self._between_batches(change)
            elif change.loader in in_main and change.path.split(".")[0] not in _SAMPLERS:
                self._in_process(change)
        for seeded in first.reseeded:
            if seeded.drawn and seeded.loader in in_main & in_workers:
                why = (
                    f"reading any sample seeds {seeded.path} alike, and the script draws from it"
                    " between batches: what it draws is other numbers where workers read"
                )
                self._problem(why, "dataloader_workers")
        for each in repeated(plan.workers, first.reseeded):
            where = "in two workers" if each.is_between_workers else "in two epochs"
            self._problem(f"{each.path} draws the same random numbers {where}")

    def _problem(self, sentence: str, suspect: str = "") -> None:
        """Note a difference that one setting causes, or all those of the data can have caused."""
        named = [suspect] if suspect in self.found.settings else self.found.loader_knobs
        self.found.problem(Aspect.DATASET_STATE, sentence, named)

    def _possible(self, loaders: set[int], of_several: set[int]) -> None:
        """Say that reading would change for other samples what it changed for none of these.

        `of_several` are the loaders that more than one worker reads for.
        """
        lives = self.found.lives
        changes = [c for life in (lives.first, lives.second, lives.plan) for c in life.changes]
        seen = [f"{c.path}." for c in changes if c.moment is Moment.READING]
        for each in lives.first.possible:
            inside = (f"{each.path}.", f"{each.path}[")
            if each.path.startswith((COUNTED, LEFT)):
                continue
            # Which of two workers comes first is chance, also where all samples were read.
            shares = each.path == ONE_FILE and each.loader in of_several
            if not shares and (is_whole(lives.first) or each.path == ONE_FILE):
                continue
            if each.loader in loaders and not any(path.startswith(inside) for path in seen):
                why = f"{each.code} can change {each.path}, and did for no sample of the rehearsal"
                if each.path == OF_ITS_WORKER:
                    why = f"{each.code} asks for its worker: samples not rehearsed may depend on it"
                if each.path == OF_ITS_TIME:
                    why = f"{each.code} asks the clock: a sample that takes longer may be another"
                if each.path == ONE_FILE:
                    why = f"{each.code} writes one file for all samples, which workers would share"
                if each.path == UNSENT:
                    why = f"{each.code} gives for some samples what no worker can send"
                if each.path == CHILDREN:
                    why = f"{each.code} starts processes for some samples, which no worker may"
                if each.path == REPORTED:
                    logs = f"{each.code} logs some samples to what the script keeps"
                    why = f"{logs}: of that each worker has a copy of its own"
                if each.path == ATTRIBUTES:
                    gives = f"{each.code} gives the tensor of some samples an attribute"
                    why = f"{gives}, without which it arrives from a worker"
                if each.path.startswith(RAISES):
                    what = f"{each.code} {each.path.replace(RAISES, 'can raise ')}"
                    why = f"{what}, and did for no sample of the rehearsal: workers raise another"
                self.found.not_covered[Aspect.DATASET_STATE] = self.found.doubt = why
                self.found.covered = [a for a in self.found.covered if a != Aspect.DATASET_STATE]
                return

    def _counted(self, loaders: set[int]) -> None:
        """Say that samples would depend on what workers counted, or kept, in earlier passes."""
        first = self.found.lives.first
        if "persistent_workers" not in self.found.settings or is_whole(first):
            return
        for each in first.possible:
            if each.loader in loaders and each.path.startswith((COUNTED, LEFT)):
                path = each.path.replace(COUNTED, "").replace(LEFT, "")
                why = (
                    f"{each.code} makes another sample by its count in {path}, which workers that"
                    " live on go on with"
                )
                if each.path.startswith(LEFT):
                    takes = f"{each.code} takes samples out of {path}"
                    why = f"{takes}, and workers that live on go on with what is left there"
                self.found.not_covered[Aspect.DATASET_STATE] = self.found.doubt = why
                self.found.covered = [a for a in self.found.covered if a != Aspect.DATASET_STATE]
                return

    def _between_epochs(self, change: StateChange) -> None:
        """Judge what the script changes between passes: workers that live on do not see it."""
        suspect, is_main_s = "persistent_workers", change.path.split(".")[0] in _MAIN_PROCESS_ONLY
        if suspect in self.found.settings and not is_main_s and not self._is_made_once(change):
            why = "between epochs, and workers that live on would not see it"
            self._problem(f"the script changes {change.path} {why}", suspect)

    def _between_batches(self, change: StateChange) -> None:
        """Doubt samples that depend on what the script learns: workers read some before that."""
        if not any(name in self.found.settings for name in READ_AHEAD):
            return
        why = (
            f"the script changes {change.path} between batches, and workers read ahead: samples"
            " that depend on it are others"
        )
        self.found.not_covered[Aspect.DATASET_STATE] = self.found.doubt = self.found.doubt or why
        self.found.covered = [a for a in self.found.covered if a != Aspect.DATASET_STATE]

    def _in_process(self, change: StateChange) -> None:
        """Judge what changes as samples are read, or is held open: workers have copies of it."""
        kind = f" ({change.detail})" if change.detail else ""
        if change.moment is Moment.HELD:
            why = "is open before the workers start, and they would share its position"
        elif self._is_made_once(change):
            return  # opened or computed with the first sample, as each worker does for itself
        elif change.kind in (StateKind.ITERATOR, StateKind.VALUE):
            why = "changes as samples are read, and each worker would change a copy of its own"
        elif change.kind is StateKind.CONTAINER and not self.data.is_fixed(change.loader, 0):
            why = "grows as random samples are read, and each worker would fill a copy of its own"
        elif change.kind is StateKind.GENERATOR and not self.found.lives.plan.workers:
            why = (
                "draws random numbers as samples are read, and what its copies in workers draw"
                " could not be seen"
            )
        else:
            return
        self._problem(f"{change.path}{kind} {why}", "dataloader_workers")

    def _is_made_once(self, change: StateChange) -> bool:
        """Say whether a part changed in the first pass only, and samples do not depend on it."""
        first, loader = self.found.lives.first, change.loader
        changed = {
            each.epoch
            for each in first.changes
            if (each.loader, each.path, each.moment) == (loader, change.path, Moment.READING)
        }
        read = [each for (place, _), each in passes_of(first).items() if place == loader]
        numbers = [each.number for each in read]
        parts = range(min((len(parts_of(each)) for each in read), default=0))
        fixed = all(self.data.is_fixed(loader, part) for part in parts)
        once = len(numbers) > 1 and changed == {min(numbers)} and fixed
        return once and change.kind not in (StateKind.ITERATOR, StateKind.GENERATOR)
