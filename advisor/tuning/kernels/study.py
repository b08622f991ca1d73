"""A kernel file's study: each kernel and problem searched, the best re-measured and proven."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gpuadvisor.collectors.kernels.runner import Answer
from gpuadvisor.domain.clock_reasons import SLOWING
from gpuadvisor.domain.kernel_records import Evaluation, KernelResult, Record
from gpuadvisor.domain.kernels import DefaultFailsError
from gpuadvisor.domain.knobs import Value
from gpuadvisor.domain.profile import DeviceLimits
from gpuadvisor.domain.study import Trial, TrialState, Verdict
from gpuadvisor.errors import AdvisorError, UsageError
from gpuadvisor.storage import kernel_caches, kernel_studies
from gpuadvisor.tuners.kernels.point_search import PointSearch
from gpuadvisor.tuners.kernels.points import Points
from gpuadvisor.tuners.space import Parameter, Point
from gpuadvisor.tuning.kernels import seeding
from gpuadvisor.tuning.kernels.evaluator import PointEvaluator, trial_of
from gpuadvisor.tuning.kernels.fleet import Fleet
from gpuadvisor.tuning.kernels.options import EFFORTS, KernelOptions, Progress, Work
from gpuadvisor.tuning.kernels.proof import Proof, finalists, prove

RECORDS, OF_EACH = 3, 2
"""Records of other sizes and GPUs from which points are taken to begin with, the most alike first,
and points taken of each: what is best for another size costs a few evaluations if it is of no use
here."""
OTHER_GPU = 4.0
"""How unlike another GPU is, in doublings of all sizes together. [own]"""
UNSTEADY = 0.03
"""Spread of clocks from which it is said: times follow the clock, and gains of single evaluations
are ratios within a few milliseconds."""

SOURCES = frozenset([".cu", ".cuh", ".cpp", ".hip", ".cl", ".ptx", ".cubin"])
"""Endings of files that hold a kernel and declare nothing that could be tuned."""


@dataclass(frozen=True)
class Tuned:
    """What came of a kernel file: of each kernel and problem a result, or why it has none."""

    results: tuple[KernelResult, ...]
    failures: tuple[DefaultFailsError, ...] = ()

    def check(self) -> None:
        """Raise what failed, one error for all; AdvisorError where nothing could be evaluated."""
        if self.failures:
            raise DefaultFailsError("\n".join(map(str, self.failures)))
        if self.results and not any(result.evaluations for result in self.results):
            raise AdvisorError("no point was evaluated: give a larger --budget")


def tune_kernels(
    options: KernelOptions,
    progress: Progress,
    cancelled: Callable[[], bool] = lambda: False,
) -> Tuned:
    """Tune each kernel of the file for each of its problems, on a GPU of this machine.

    UsageError where the file cannot be tuned at all; what fails at single points is a result. A
    kernel whose default fails has nothing to be compared with, and takes no other with it.
    """
    if not options.file.is_file():
        if options.file.is_dir():
            raise UsageError(f"{options.file} is a folder: name the file in it with the kernels")
        raise UsageError(f"there is no file {options.file}")
    if options.file.suffix in SOURCES:
        raise UsageError(
            f"{options.file} is the kernel itself: name a Python file that declares it, with what "
            "can be tuned: Kernel(...), as docs/kernels.md shows"
        )
    results, failures = [], []
    with Fleet(options) as fleet:
        described = fleet.describe()
        _check_names(options.only, [each["name"] for each in described])
        for number, kernel in enumerate(described):
            for place in range(len(kernel["problems"])):
                if (not options.only or kernel["name"] in options.only) and not cancelled():
                    tuning = _Tuning(options, fleet, progress, cancelled, kernel, number, place)
                    try:
                        result = tuning.run()
                    except DefaultFailsError as error:
                        failures.append(DefaultFailsError(f"kernel {tuning.name}: {error}"))
                        continue
                    kernel_studies.keep(result)
                    results.append(result)
    return Tuned(tuple(results), tuple(failures))


class _Tuning:
    """One kernel for one problem."""

    def __init__(
        self,
        options: KernelOptions,
        fleet: Fleet,
        progress: Progress,
        cancelled: Callable[[], bool],
        kernel: Mapping[str, Any],
        number: int,
        place: int,
    ) -> None:
        self._options = options
        self._file = options.known_as or options.file
        self._fleet = fleet
        self._progress = progress
        self._cancelled = cancelled
        self._kernel = kernel
        self._number = number
        self._place = place
        problem = kernel["problems"][place]
        self._sizes: dict[str, Value] = problem["sizes"]
        self._unlaunchable: int = problem["unlaunchable"]
        self._default: dict[str, Value] = kernel["default"]
        self._parameters = {n: tuple(values) for n, values in kernel["parameters"].items()}
        parameters = [
            Parameter(name, values, self._default[name])
            for name, values in self._parameters.items()
        ]
        self._points = Points(parameters, problem["points"])

    @property
    def name(self) -> str:
        """The kernel's name and the problem's sizes."""
        sizes = [f"{name}={size}" for name, size in self._sizes.items()]
        return ", ".join([self._kernel["name"], *sizes])

    def run(self) -> KernelResult:
        """Search, prove, and return what came of it."""
        began_s = time.monotonic()
        self._started = datetime.now(UTC).isoformat(timespec="seconds")
        self._progress.begin(self._kernel["name"], self._sizes, len(self._points))
        restarts = self._fleet.restarts
        opened = self._fleet.open(self._number, self._place, self._options.seed)
        cache = self._cache(opened["device"])
        similar: dict[int, str] = {}
        if self._options.record is None:
            similar = similar_best(cache.record, self._points, cache.path)

        seeded, diagnosed = self._diagnosed(opened["device"])
        first = [*similar, *(row for row in seeded if row not in similar)]

        def keep(evaluation: Evaluation) -> None:
            cache.add(evaluation)
            self._progress.evaluated(evaluation)

        pipeline = self._fleet.pipeline(self._number, self._place, opened, self._cancelled)
        with pipeline:
            evaluator = PointEvaluator(
                pipeline, self._options.limit, self._cancelled, keep, spent=len(cache.earlier)
            )
            searching_s = time.monotonic()
            ended = self._search(evaluator, opened, cache.earlier, first)
            choosing_s = time.monotonic() - searching_s - evaluator.waiting_s
        if not self._cancelled():
            pipeline.join()
        evaluations = (*cache.earlier, *evaluator.evaluations)
        proof = self._prove(evaluations)
        for wrong in _found_wrong(evaluations, proof):
            cache.add(wrong)  # of two entries of a point the last one holds
            evaluations = tuple(
                wrong if each.point == wrong.point else each for each in evaluations
            )
        cache.finish()
        began_with = [(self._points.point(row), origin) for row, origin in similar.items()]
        said = [
            *remarks(self._options, evaluations, self._unlaunchable, began_with, ended),
            *([diagnosed] if diagnosed else []),
        ]
        return self._result(
            opened,
            evaluations,
            proof,
            record=str(cache.path),
            wall_s=time.monotonic() - began_s,
            search_s=choosing_s,
            restarts=self._fleet.restarts - restarts,
            interrupted="interrupted" if self._cancelled() else "",
            remarks=(*proof.remarks, *said),
        )

    def _diagnosed(self, device: str) -> tuple[list[int], str]:
        """Return rows that relieve what a profile of the kernel finds, and that in a sentence; none
        and an empty one where there is no profile.
        """
        diagnosis = self._options.diagnosis(self._kernel["name"], device)
        start = self._points.find(self._default)
        if diagnosis is None or start is None:
            return [], ""
        launches = self._fleet.lanes[0].process.launches(self._number, self._place)
        threads = launches[start][1]
        rules = diagnosis.rules if threads in diagnosis.threads else ()
        rows = seeding.seeds(self._points, start, launches, rules)
        return rows, seeding.said(diagnosis, threads, len(rows))

    def _search(
        self,
        evaluator: PointEvaluator,
        opened: Answer,
        earlier: Sequence[Evaluation],
        first: Sequence[int],
    ) -> str:
        """Search, and return why it ended early; empty where it did not."""
        known = [
            (row, trial_of(each, -number))
            for number, each in enumerate(earlier, 1)
            if (row := self._points.find(each.point)) is not None
        ]
        start = self._points.find(self._default)
        search = PointSearch(
            evaluator,
            self._points,
            self._options.seed,
            self._options.strategy,
            patience=EFFORTS[self._options.effort].patience,
            enough=self._enough(evaluator, opened),
        )
        search.run([*([] if start is None else [start]), *first], known)
        return search.ended

    def _enough(self, evaluator: PointEvaluator, opened: Answer) -> Callable[[Trial], bool]:
        """Return what says whether a point reaches what was asked for; UsageError where nothing
        says how much that is.
        """
        goal = self._options.stop_at
        if goal is None:
            return lambda trial: False
        kernel = self._kernel
        work = Work(kernel["name"], opened["bytes"], opened["flops"], kernel["dtype"])
        device = DeviceLimits(0, opened["device"], compute_capability=_capability(opened))
        limit_ms = goal.limit_ms(work, device)

        def reached(trial: Trial) -> bool:
            if trial.number < 0:  # of an earlier study
                return False
            time_ms = evaluator.evaluations[trial.number].time_ms
            return time_ms is not None and time_ms <= limit_ms

        return reached

    def _prove(self, evaluations: Sequence[Evaluation]) -> Proof:
        """Return what became of the best points, unless the user has stopped."""
        points = [] if self._cancelled() else finalists(evaluations, self._default)
        if not points:
            return Proof()
        self._progress.proving(len(points))
        try:
            return prove(self._fleet.lanes[0], points, self._options.objective)
        except UsageError as error:  # a point that crashes now; what was evaluated stays
            return Proof(remarks=(str(error),))

    def _result(
        self, opened: Answer, evaluations: tuple[Evaluation, ...], proof: Proof, **rest: Any
    ) -> KernelResult:
        return KernelResult(
            self._kernel["name"],
            self._sizes,
            opened["device"],
            len(self._points),
            self._default,
            proof.verdict,
            best=proof.point if proof.verdict is Verdict.FASTER else None,
            speedup=proof.speedup,
            default_ms=proof.default_ms,
            best_ms=proof.best_ms,
            evaluations=evaluations,
            useful_bytes=opened["bytes"],
            useful_flops=opened["flops"],
            has_reference=self._kernel["has_reference"],
            repeats=opened["repeats"],
            file=str(self._file.absolute()),
            objective=self._options.objective,
            started=self._started,
            language=self._kernel["language"],
            dtype=self._kernel["dtype"],
            parameters=self._parameters,
            size_restrictions=_tuple_or_none(self._kernel["size_restrictions"]),
            compute_capability=_capability(opened),
            uuid=opened["uuid"] or "",
            **rest,
        )

    def _cache(self, device: str) -> kernel_caches.Cache:
        name = self._kernel["name"]
        record = Record(name, device, self._sizes, self._parameters)
        path = self._options.record
        if path is None:
            path = kernel_studies.cache_path(self._file, name, self._sizes, device)
            if not self._options.resume:
                path.unlink(missing_ok=True)
        return kernel_caches.Cache(path, record)


def _found_wrong(evaluations: Sequence[Evaluation], proof: Proof) -> list[Evaluation]:
    """Return evaluations of points that only their proof showed to be wrong, as failures."""
    return [
        Evaluation(
            each.point,
            TrialState.WRONG,
            f"on other inputs than in its first check: {reason}",
            compile_ms=each.compile_ms,
            check_ms=each.check_ms,
            resources=each.resources,
        )
        for point, reason in proof.wrong
        for each in evaluations
        if dict(each.point) == dict(point)
    ]


def _capability(opened: Answer) -> tuple[int, int]:
    return int(opened["capability"][:-1]), int(opened["capability"][-1])


def _tuple_or_none(texts: Sequence[str] | None) -> tuple[str, ...] | None:
    return None if texts is None else tuple(texts)


def _check_names(wanted: frozenset[str], there: Sequence[str]) -> None:
    for name in sorted(wanted - set(there)):
        raise UsageError(f"--kernel {name}: the file has no such kernel; it has {', '.join(there)}")


def similar_best(record: Record, points: Points, path: Path) -> dict[int, str]:
    """Return rows of points that were best in records beside `path` of the same kernel and
    parameters, the most promising first, with what each was best for: sizes and a GPU, in words.
    None where there are no such records.
    """
    found = []
    for other in sorted(path.parent.glob("*.json")):
        if other == path:
            continue
        try:
            known = kernel_caches.read(other)
        except UsageError:  # somebody else's, or damaged: nothing is lost
            continue
        if known.kernel == record.kernel and known.parameters.keys() == record.parameters.keys():
            found.append((_unlikeness(record, known), str(other), known))
    rows: dict[int, str] = {}
    for _, _, known in sorted(found, key=lambda each: each[:2])[:RECORDS]:
        for row in _best(known, points):
            rows.setdefault(row, _origin(known, record))
    return rows


def _origin(known: Record, here: Record) -> str:
    sizes = ", ".join(f"{name}={size}" for name, size in _sizes(known.problem).items())
    there = "" if known.device == here.device else f"on {known.device}"
    return " ".join(filter(None, (sizes, there))) or "another file"


def _best(record: Record, points: Points) -> list[int]:
    complete = [e for e in record.evaluations if e.state is TrialState.COMPLETE and e.gain]
    complete.sort(key=lambda each: -(each.gain or 0.0))
    rows = (points.find(each.point) for each in complete)
    return [row for row in rows if row is not None][:OF_EACH]


def _unlikeness(one: Record, other: Record) -> float:
    sizes, others = _sizes(one.problem), _sizes(other.problem)
    if sizes.keys() != others.keys():
        return math.inf
    away = 0.0
    for name, size in sizes.items():
        if isinstance(size, int | float) and size > 0 and _is_positive(others[name]):
            away += abs(math.log2(size / float(others[name])))
        else:
            away += size != others[name]
    return away + OTHER_GPU * (one.device != other.device)


def _sizes(problem: Mapping[str, Value] | Sequence[int]) -> Mapping[str, Value]:
    if isinstance(problem, Mapping):
        return problem
    return {str(place): size for place, size in enumerate(problem)}


def _is_positive(value: Value) -> bool:
    return isinstance(value, int | float) and value > 0


def remarks(
    options: KernelOptions,
    evaluations: Sequence[Evaluation],
    unlaunchable: int,
    began_with: Sequence[tuple[Point, str]],
    ended: str,
) -> Iterator[str]:
    """Yield sentences: what was left out, what the search began with (points, and what each was
    best for) and how that did, why it ended, and the state of caches and clocks.
    """
    if unlaunchable:
        points = "1 point was" if unlaunchable == 1 else f"{unlaunchable:,} points were"
        yield f"{points} left out: no GPU launches such a block"
    if began_with:
        several = len(began_with) > 1
        began = f"{len(began_with)} points that were" if several else "1 point that was"
        yield f"it began with {began} best for another size or GPU"
        yield from _carried(evaluations, began_with)
    if ended:
        yield f"the search ended before its budget: {ended}"
    if len(options.gpus) > 1:
        yield f"{len(options.gpus)} GPUs measured side by side, each with the default on the same"
    if options.l2 == "cold":
        yield "each launch was timed with a cold L2 cache (--l2 warm leaves it as it is)"
    else:
        yield "launches were timed with the L2 cache as the one before left it"
    yield from _clocks(evaluations)


def _carried(
    evaluations: Sequence[Evaluation], best_for: Sequence[tuple[Point, str]]
) -> Iterator[str]:
    """Yield how the best point of each other size or GPU does here beside the best that was found:
    what a program loses where it takes that for want of a study of this size.
    """
    gains = {
        tuple(sorted(each.point.items())): each.gain
        for each in evaluations
        if each.state is TrialState.COMPLETE and each.gain
    }
    best = max(gains.values(), default=None)
    told: set[str] = set()
    for point, origin in best_for:
        gain = gains.get(tuple(sorted(point.items())))
        if best and gain and origin not in told:
            told.add(origin)
            yield f"what was best for {origin} takes {best / gain:.2f} times the best one's time"


def _clocks(evaluations: Sequence[Evaluation]) -> Iterator[str]:
    clocks = [each.clock_mhz for each in evaluations if each.clock_mhz]
    if not clocks:
        yield "clocks were not read: nothing is known of throttling"
        return
    low, high = min(clocks), max(clocks)
    steady = high - low <= UNSTEADY * high
    said = f"{high:,} MHz" if low == high else f"{low:,} to {high:,} MHz"
    yield f"SM clock {said} in {len(clocks):,} readings{'' if steady else ': it was not steady'}"
    held = Counter(name for each in evaluations for name in each.slowed_by)
    for name, count in held.most_common():
        cause = SLOWING[name].cause if name in SLOWING else name
        yield f"the clock was held down by {cause} in {count:,} of {len(clocks):,} readings"
