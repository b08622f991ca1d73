"""Stores a study as it goes on, from its first measured run to its result."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Self

from gpuadvisor.collectors.environment import environment
from gpuadvisor.collectors.interpreter import TargetPython
from gpuadvisor.domain.device import Device, Environment
from gpuadvisor.domain.measurement import Measurement
from gpuadvisor.domain.study import Plan, Rehearsal, StudyResult, Trial, Verdict
from gpuadvisor.errors import UsageError
from gpuadvisor.storage.database import Store, StudyRecord, open_store
from gpuadvisor.tuners.equivalence import tolerance_of
from gpuadvisor.tuning.options import TuneOptions
from gpuadvisor.tuning.plans.premises import earlier_rehearsal, premises, without

if TYPE_CHECKING:
    import optuna


@dataclass(frozen=True)
class Recorded:
    """A study that is about to begin, and where it is kept."""

    store: Store
    environment: Environment
    recorder: StudyRecorder


@contextmanager
def recorded(
    options: TuneOptions, python: TargetPython, device: Device, verifies: str | None = None
) -> Iterator[Recorded]:
    """Yield what keeps a study on a device; UsageError where its name or --resume do not do.

    `verifies` is the path of a plan, if that is all it is about.
    """
    started = datetime.now(UTC).isoformat(timespec="seconds")
    with open_store() as store:
        here = environment(python, device, options.command.script)
        with StudyRecorder(store, options, here, started, verifies, python) as recorder:
            yield Recorded(store, here, recorder)


class StudyRecorder:
    """Keeps one study in the store.

    It is created with its first measured run: a script that cannot be measured leaves nothing
    behind. While it is open, no other process works on the study.
    """

    def __init__(
        self,
        store: Store,
        options: TuneOptions,
        environment: Environment,
        started: str,
        verifies: str | None = None,
        python: TargetPython | None = None,
    ) -> None:
        """Begin without a study.

        `verifies` is the path of a plan, if that is all it is about; `python` is the script's.
        """
        self._store = store
        self._options = options
        self._environment = environment
        self._verifies = verifies
        # As they are before anything runs: whoever edits the script meanwhile makes them differ.
        self._premises = premises(
            options.command,
            environment,
            tolerance_of(options.level, options.tolerance),
            options.seed,
            python.packages if python is not None else (),
            python.editable if python is not None else (),
        )
        self._lock = ExitStack()
        self._began = started
        self.started = started
        """Time at which the study began, in its first session: UTC, ISO 8601."""
        self.study: str | None = None
        """Name of the study, once it is stored."""
        self.known: list[Trial] = []
        """Trials of its earlier sessions."""
        if not options.resume and options.study in store.study_names():
            raise UsageError(
                f"--study: there is a study {options.study} already: choose another name, or "
                "continue it with --resume"
            )

    def __enter__(self) -> Self:
        """Go on with the study that is to be resumed, if any; UsageError where there is none."""
        if self._options.resume:
            record = self._earlier()
            self._check_environment(record)
            self._open(record.name)
            self.started = record.started
            self.known = self._store.trials(record.name)
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.close()

    def keep(self, trial: Trial) -> None:
        """Store a trial, and before the first measured one the study."""
        if self.study is None:
            if trial.measurement is None:
                return
            options, command = self._options, self._options.command
            name = self._store.create_study(
                options.study,
                command.script,
                command.args,
                self._environment,
                options.level,
                options.objective,
                self.started,
                self._folder,
                command.is_module,
                self._verifies,
            )
            self._open(name)
        self._store.add_trial(str(self.study), trial)

    def undecided(self, baseline: Measurement, trials: Iterable[Trial]) -> StudyResult:
        """Return the result of the study while nothing is shown but the unchanged script's run."""
        options, command = self._options, self._options.command
        return StudyResult(
            study=str(self.study),
            script=command.script,
            args=command.args,
            is_module=command.is_module,
            environment=self._environment,
            level=options.level,
            objective=options.objective,
            verdict=Verdict.INCONCLUSIVE,
            baseline=baseline,
            trials=tuple(trials),
            started=self.started,
            verifies=self._verifies,
        )

    def finish(self, result: StudyResult) -> None:
        """Store the result, its rehearsal with what that rests on."""
        rehearsal = result.rehearsal
        if rehearsal is not None and rehearsal.premises is None:
            written = (*result.left, result.plan) if result.plan else result.left
            known = without(self._premises, self._options.command, written)
            made = replace(known, study=result.study, made=self.started)
            result = replace(result, rehearsal=replace(rehearsal, premises=made))
        self._store.finish_study(result)

    def earlier_rehearsal(self, plan: Plan, path: str) -> tuple[Rehearsal | None, str]:
        """Return a plan's stored rehearsal that still holds here, and a clause that says so.

        None where there is none, with the reason; `path` is the plan's.
        """
        return earlier_rehearsal(self._store, plan, path, self._premises)

    def trials_of(self, study: str) -> list[Trial]:
        """Return the runs of a stored study; UsageError where there is none."""
        return self._store.trials(study)

    def optuna_study(self) -> optuna.Study:
        """Return a new record in Optuna's tables, over that of an earlier session.

        Its trials are recorded again: a space that has changed since would be refused.
        """
        import optuna

        storage = self._store.optuna_storage
        name = str(self.study)
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        if name in optuna.get_all_study_names(storage):
            optuna.delete_study(study_name=name, storage=storage)
        return optuna.create_study(
            storage=storage,
            study_name=name,
            direction="maximize",
            # Univariate: with the repair to untried neighbours, `multivariate` was worse on every
            # search space but the trivial one.
            sampler=optuna.samplers.TPESampler(seed=0, n_startup_trials=5),
        )

    def _open(self, name: str) -> None:
        self._lock.enter_context(self._store.lock_study(name))
        self.study = name
        seconds = self._options.budget.seconds
        if seconds is not None and self._began:
            until = datetime.fromisoformat(self._began) + timedelta(seconds=seconds)
            self._store.begin_session(name, until.isoformat(timespec="seconds"))

    @property
    def _folder(self) -> str:
        return str(Path(self._options.command.folder or ".").resolve())

    def _earlier(self) -> StudyRecord:
        options, command = self._options, self._options.command
        asked = (command.script, command.args, options.level, options.objective, self._folder)
        if options.study is None:
            found = self._store.load_unfinished(*asked)
            if found is None:
                raise UsageError(
                    "--resume: there is no unfinished study of this script in this folder with "
                    "these arguments, level and objective; start one without --resume"
                )
            return found
        record = self._store.study_record(options.study)
        if asked != (record.script, record.args, record.level, record.objective, record.folder):
            raise UsageError(
                f"--resume: study {record.name} is of `{' '.join([record.script, *record.args])}` "
                f"in {record.folder or 'another folder'} with --level {record.level} and "
                f"--objective {record.objective}: give the same, or another --study"
            )
        return record

    def _check_environment(self, record: StudyRecord) -> None:
        """Raise UsageError if figures of an earlier session and of this one cannot be compared."""
        for name, then, now in (
            ("on", record.environment.device.name, self._environment.device.name),
            ("with torch", record.environment.torch, self._environment.torch),
            ("with the driver", record.environment.driver, self._environment.driver),
        ):
            if then != now:
                raise UsageError(
                    f"--resume: study {record.name} was measured {name} {then}, and this is {now}: "
                    "start a new study without --resume"
                )
