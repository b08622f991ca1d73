"""Why a version is slower than another: both are profiled, and the profiles compared.

It explains what a gate has found, and decides nothing: what goes wrong is said, and no more.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import numpy as np

from gpuadvisor.collectors.load import LoadMeter
from gpuadvisor.collectors.script.run_folder import run_folder
from gpuadvisor.domain.explanation import Cause, CauseKind, Explanation
from gpuadvisor.domain.finding import Diagnosis, Finding
from gpuadvisor.domain.gate import GateResult
from gpuadvisor.domain.severity import Severity
from gpuadvisor.errors import AdvisorError, Interrupted
from gpuadvisor.profiling.evidence import evidence_of
from gpuadvisor.profiling.project_files import project_files
from gpuadvisor.profiling.reading import read_profile
from gpuadvisor.profiling.recording import RecordOptions, record
from gpuadvisor.profiling.resolving import ResolvedProfile
from gpuadvisor.rules import engine
from gpuadvisor.rules.facts.comparison import Amount, Verdict, compare
from gpuadvisor.rules.facts.functions import (
    Function,
    FunctionPart,
    FunctionTimes,
    function_times,
)
from gpuadvisor.rules.facts.summary import Facts
from gpuadvisor.tuners.knobs import load_knobs
from gpuadvisor.tuning.arguments import applied, with_arguments
from gpuadvisor.tuning.gate.options import GateOptions
from gpuadvisor.tuning.gate.runs import GateProgress
from gpuadvisor.tuning.trials.trial_runner import Side

RECORDED_MS = 1000.0
"""Time of the steps that are recorded, as they take without a profiler. A script of nothing but
Python makes up to a million calls in it, of 0.3 kB each in the trace. [own]"""
FEWEST, MOST = 3, 10
"""Steps that are recorded: two do not show how much steps differ. [own]"""
LEAST_SHARE = 0.05
"""Part of the slow-down from which on something is named as a cause. [own]"""
CLEAR = 2.0
"""Standard errors by which what is named has to differ, of the mean step or of the steps' ranks: a
single stall in one of the steps is one standard error of the mean, however long it was, and hides
any smaller difference of means. Counted 4000 times with ten steps of 1 ms, in the head 4 ms, and
stalls of 10 to 60 ms in a tenth of them: both pairs show it in 6 % by means alone, and in 51 % by
either; of equal steps in 0.05 %. [own]"""
MOST_CAUSES, MOST_INSIDE = 8, 3
INSIDE_SHARE = 0.2
"""Part of a function's difference from which on something that it calls is named; if it runs more
or less often, which is no chance, `LEAST_SHARE` is enough. [own]"""
GPU_EXPLAINS = 0.5
"""Part of the gate's slow-down from which on kernels and copies are taken for its cause, and what
the CPU does meanwhile for waiting. [own]"""
SAME_SIZE = 1.05
"""Ratio of two steps' samples up to which they are of one size: the last batch may be smaller."""
LATER, LEAST_WAIT_S = 5.0, 30.0
"""Longest wait for the first step of a version that is profiled: of the longest of the gate's runs,
so many times, and no less. A profiler is loaded before it, and slows the way to it. [own]"""
NS_PER_MS = 1e6
OUTSIDE = "what is no function of the project"
BESIDE_A_PROFILE = "while a version was profiled"


@dataclass(frozen=True)
class Profiled:
    """One version's profile, and what follows from it."""

    facts: Facts
    functions: FunctionTimes
    diagnosis: Diagnosis
    place: Callable[[str], str | None]
    """Returns the path in the project of a file as the profile names it; None for any other."""
    disturbance: str = ""
    """What else used the machine meanwhile; empty where nothing was seen."""


def explain(
    progress: GateProgress,
    cancelled: Callable[[], bool],
    base: Side,
    head: Side,
    options: GateOptions,
    found: GateResult,
) -> Explanation:
    """Profile both sides of a gate that failed, and return why the head is slower.

    The order is base, head, head, base, and only what both pairs show is named; the second pair is
    left out where kernels and copies explain it (`is_plain`). Nothing that is recorded remains.
    Whatever keeps it from being explained is said in `note`, also that it was cancelled: the
    verdict stands without.
    """
    bare = Explanation(slower_ms=slower_ms(found))
    why = "it was not profiled: "
    samples = _samples(found)
    if samples and max(samples) > SAME_SIZE * min(samples):
        sizes = " and ".join(f"{each:.3g}" for each in samples)
        return replace(bare, note=f"{why}steps of both versions are of {sizes} samples")
    progress.on_message("it failed: both versions are profiled, to say why")
    try:
        with run_folder() as folder:

            def pair(*sides: Side) -> Explanation:
                made = [_profiled(side, options, found, folder, cancelled) for side in sides]
                before, after = made if sides[0] is base else reversed(made)
                return explanation_of(before, after, slower_ms(found))

            one = pair(base, head)
            return one if is_plain(one) else agreed(one, pair(head, base))
    except Interrupted:
        return replace(bare, note=f"{why}interrupted")
    except AdvisorError as error:
        return replace(bare, note=f"{why}{str(error).rstrip('.')}")
    except Exception as error:  # the gate's verdict stands without
        return replace(bare, note=f"{why}{type(error).__name__}: {error}: report this bug")


def is_plain(found: Explanation) -> bool:
    """Say whether one profile of each version is enough: a second one would hardly say otherwise.

    That is where kernels and copies explain the slow-down and nothing was noted: another program
    makes functions of the CPU slower for a moment, and of what a GPU does it would be told.
    """
    on_gpu = all(each.kind in (CauseKind.KERNEL, CauseKind.COPY) for each in found.causes)
    return on_gpu and not found.note and 0 < GPU_EXPLAINS * found.of_ms <= found.explained_ms


def slower_ms(found: GateResult) -> float | None:
    """Return by how much a step got slower in a gate; None where step time was not compared."""
    times = [each for each in found.differences if each.metric == "step_time"]
    if not times or not times[0].base or not times[0].head:
        return None
    return median(times[0].head) - median(times[0].base)


def _samples(found: GateResult) -> list[float]:
    """Return how many samples a usual step of each side has; empty where one is not known."""
    of_side: dict[str, list[float]] = defaultdict(list)
    for run in found.runs:
        if run.trial.measurement is not None and run.trial.measurement.samples_per_step:
            of_side[run.side].append(run.trial.measurement.samples_per_step)
    return [median(each) for each in of_side.values()] if len(of_side) == 2 else []


def _profiled(
    side: Side,
    options: GateOptions,
    found: GateResult,
    folder: Path,
    cancelled: Callable[[], bool],
) -> Profiled:
    """Record some steps of a side and return what they show; the trace is removed."""
    seen = [m for run in found.runs if (m := run.trial.measurement) is not None]
    longest_ms = max((each.mean_step_ms for each in seen), default=RECORDED_MS)
    steps = min(MOST, max(FEWEST, int(RECORDED_MS / longest_ms)))
    starts_s = [each.startup_s for each in seen] or [options.timeout_s]
    applications, environment = applied(side.settings, load_knobs())
    command = replace(side.command, args=with_arguments(side.command.args, side.settings))
    asked = RecordOptions(
        command,
        steps,
        stacks=True,
        timeout_s=min(options.timeout_s, max(LEAST_WAIT_S, LATER * max(starts_s))),
        cancelled=cancelled,
        device=side.device,
        cores=side.cores,
        environment={**environment, **side.environment},
        applications=applications,
        seed=options.seed,
        load=LoadMeter(side.device),
    )
    recorded = record(asked, folder)
    profile = read_profile(recorded.file)
    recorded.file.unlink()
    if cancelled():
        raise Interrupted("interrupted")
    evidence = evidence_of(ResolvedProfile(command.script, "", profile))
    place = _project_files(side, whole=options.folders is None)
    times_of = function_times(profile, place)
    return Profiled(
        evidence.known_facts, times_of, engine.diagnose(evidence), place, recorded.disturbance
    )


def _project_files(side: Side, whole: bool) -> Callable[[str], str | None]:
    """Return `project_files` of a side: of the whole repository, or of the side's folder."""
    command = side.command
    given = {**os.environ, **side.environment}.get("PYTHONPATH", "").split(os.pathsep)
    script = None if command.is_module else command.script
    return project_files(command.folder, script, [each for each in given if each], whole)


def explanation_of(base: Profiled, head: Profiled, slower_ms: float | None) -> Explanation:
    """Return what two profiles show of a slow-down, which took `slower_ms` a step in the gate."""
    of_gate = max(slower_ms or 0.0, 0.0)
    base_ms, head_ms = _step_ms(base), _step_ms(head)
    of_profiles = of_gate
    if base_ms is not None and head_ms is not None:
        of_profiles = max(of_gate, head_ms - base_ms)
    of_ms = of_gate or of_profiles
    causes = _named(_device_causes(base, head), of_ms)
    explained_ms = sum(each.more_ms for each in causes)
    if not causes or explained_ms < GPU_EXPLAINS * of_ms:
        of_ms = of_profiles
        functions = _named(_function_causes(base, head), of_ms)
        explained_ms = sum(each.more_ms for each in functions)
        causes = [*_named(causes, of_ms), *functions]
    return Explanation(
        slower_ms,
        base_ms,
        head_ms,
        tuple(causes),
        explained_ms,
        of_ms,
        tuple(_new_findings(base, head)),
        min(len(each.functions.step_ns) for each in (base, head)),
        "; ".join(_limits(base, head, of_ms)),
    )


def _step_ms(profiled: Profiled) -> float | None:
    step_ns = profiled.functions.step_ns
    return float(step_ns.mean()) / NS_PER_MS if len(step_ns) else None


def _limits(base: Profiled, head: Profiled, of_ms: float) -> Iterator[str]:
    """Yield what keeps profiles from explaining a slow-down."""
    for side, each in (("base", base), ("head", head)):
        if not len(each.functions.step_ns):
            yield f"the {side}'s profile has no steps"
    if disturbance := head.disturbance or base.disturbance:
        yield (
            f"{BESIDE_A_PROFILE}, {disturbance}: what takes longer without running more often may "
            "be that"
        )
    if of_ms <= 0:
        yield "steps do not take longer in the profiles"


def _named(causes: Iterable[Cause], of_ms: float) -> list[Cause]:
    """Return the causes that are a good part of a slow-down, the largest first."""
    if of_ms <= 0:
        return []
    large = [each for each in causes if abs(each.more_ms) >= LEAST_SHARE * of_ms]
    largest = sorted(large, key=lambda each: -abs(each.more_ms))[:MOST_CAUSES]
    return sorted(largest, key=lambda each: -each.more_ms)


def _device_causes(base: Profiled, head: Profiled) -> Iterator[Cause]:
    """Yield how kernels and copies differ; none without steps."""
    found = compare(base.facts, head.facts, ("base", "head"))
    if not found.per_step:
        return
    for kind, changes in ((CauseKind.KERNEL, found.kernels), (CauseKind.COPY, found.copies)):
        for change in changes:
            if change.verdict is Verdict.SAME:
                continue
            old, new = (each or Amount(0.0, 0.0) for each in (change.before, change.after))
            yield Cause(
                kind,
                change.name,
                old.time_ns / NS_PER_MS,
                new.time_ns / NS_PER_MS,
                old.count or 0.0,
                new.count or 0.0,
                _launched_at(head if change.after else base, kind, change.name),
            )


def _launched_at(profiled: Profiled, kind: CauseKind, name: str) -> str | None:
    """Return the line that launched most of the time of a kernel, as `Cause.source`."""
    facts = profiled.facts
    texts = list(facts.profile.header.texts)
    if kind is not CauseKind.KERNEL or name not in texts:
        return None
    rows = np.flatnonzero(facts.work.is_kernel & (facts.work.name == texts.index(name)))
    return _placed(facts.places.of_work(rows)[0], profiled.place)


def _placed(source: str | None, place: Callable[[str], str | None]) -> str | None:
    """Return `file:line` with the file's path in the project, where it is in it."""
    file, _, line = (source or "").rpartition(":")
    return f"{place(file) or file}:{line}" if source else None


Parts = Mapping[str, FunctionPart]


def _function_causes(base: Profiled, head: Profiled) -> Iterator[Cause]:
    """Yield how the project's functions differ by more than steps of one version do.

    What runs while none of them does is yielded by what it is.
    """
    sizes = len(base.functions.step_ns), len(head.functions.step_ns)
    if not all(sizes):
        return
    for function, old, new in _matched(base.functions.parts, head.functions.parts):
        names = dict.fromkeys((*old, *new))
        parts = {
            name: (old.get(name, _nothing(sizes[0])), new.get(name, _nothing(sizes[1])))
            for name in names
        }
        calls = [_cause(CauseKind.CALL, name, *each) for name, each in parts.items()
                 if _is_clear(*each)]  # fmt: skip
        if not function.file:
            yield from (replace(each, name=each.name or OUTSIDE) for each in calls)
            continue
        whole = _together(old.values(), sizes[0]), _together(new.values(), sizes[1])
        if _is_clear(*whole):
            source = f"{function.file}:{function.line}" if function.line else function.file
            made = _cause(CauseKind.FUNCTION, function.name, *whole)
            counts = [part.count for part in parts.get("", whole)]
            inside = [e for e in calls if e.more_ms / made.more_ms >= _least_inside(e)]
            inside.sort(key=lambda each: -abs(each.more_ms))
            yield replace(
                made,
                base_count=counts[0],
                head_count=counts[1],
                source=source,
                inside=tuple(inside[:MOST_INSIDE]),
            )


def _least_inside(call: Cause) -> float:
    return INSIDE_SHARE if call.base_count == call.head_count else LEAST_SHARE


def _cause(kind: CauseKind, name: str, before: FunctionPart, after: FunctionPart) -> Cause:
    base_ms, head_ms = (float(each.step_ns.mean()) / NS_PER_MS for each in (before, after))
    return Cause(kind, name, base_ms, head_ms, before.count, after.count)


def _matched(
    before: Mapping[Function, Parts], after: Mapping[Function, Parts]
) -> Iterator[tuple[Function, Parts, Parts]]:
    """Yield each function, as the head has it, and its parts before and after.

    Lines move from version to version: of several functions of one name in a file, the first one
    before is the first one after, and so on. Where one version has more of them, all are one.
    """
    sides: list[dict[tuple[str, str], list[Function]]] = []
    for each in (before, after):
        named: dict[tuple[str, str], list[Function]] = defaultdict(list)
        for function in sorted(each):
            named[function.file, function.name].append(function)
        sides.append(named)
    for key in dict.fromkeys((*sides[0], *sides[1])):
        old, new = (side.get(key, []) for side in sides)
        if len(old) == len(new):
            for one, two in zip(old, new, strict=True):
                yield two, before[one], after[two]
        elif old and new:
            merged = _merged(before[each] for each in old), _merged(after[each] for each in new)
            yield Function(*key), *merged
        else:
            yield from ((each, before[each], {}) for each in old)
            yield from ((each, {}, after[each]) for each in new)


def _merged(all_parts: Iterable[Parts]) -> Parts:
    found: dict[str, list[FunctionPart]] = defaultdict(list)
    for parts in all_parts:
        for name, part in parts.items():
            found[name].append(part)
    return {name: _together(each, len(each[0].step_ns)) for name, each in found.items()}


def _together(parts: Iterable[FunctionPart], size: int) -> FunctionPart:
    listed = list(parts)
    step_ns = np.sum([each.step_ns for each in listed] or [np.zeros(size)], axis=0)
    return FunctionPart(step_ns, sum(each.count for each in listed))


def _nothing(size: int) -> FunctionPart:
    return FunctionPart(np.zeros(size), 0.0)


def _is_clear(before: FunctionPart, after: FunctionPart) -> bool:
    """Say whether two mean steps differ by more than steps of a version do among each other.

    They do, too, where steps of the one are longer than those of the other, whatever a few stalls
    among them took: by their ranks, as Mann and Whitney's U tells, and the means agree with that.
    """
    old, new = before.step_ns, after.step_ns
    if len(old) < 2 or len(new) < 2:
        return True
    more = float(new.mean() - old.mean())
    error = sum(float(each.var(ddof=1)) / len(each) for each in (old, new)) ** 0.5
    if abs(more) > CLEAR * error:
        return True
    longer = float(np.sign(new[:, None] - old[None, :]).sum()) / 2
    error_of_ranks = (len(old) * len(new) * (len(old) + len(new) + 1) / 12) ** 0.5
    return abs(longer) > CLEAR * error_of_ranks and longer * more > 0


def _new_findings(base: Profiled, head: Profiled) -> Iterator[Finding]:
    """Yield what rules say of the head, and neither openly nor hidden of the base."""
    known = {(each.rule, each.scope) for each in base.diagnosis.findings}
    for each in head.diagnosis.shown:
        if (each.rule, each.scope) not in known and each.severity.rank > Severity.INFO.rank:
            yield replace(each, source=_placed(each.source, head.place))


def agreed(one: Explanation, two: Explanation) -> Explanation:
    """Return what both explanations say, each cause with the smaller of its two differences.

    Something else that uses the machine while one of the profiles is made looks like a slower
    function there, and hardly so in both pairs. The slow-down that they are parts of is that of the
    pair in which it is smaller.
    """
    frame = min(one, two, key=lambda each: each.of_ms)
    causes = tuple(_both(one.causes, two.causes))
    left_out = len({*map(_key, one.causes), *map(_key, two.causes)}) - len(causes)
    notes = [note for each in (one, two) for note in each.note.split("; ") if note]
    beside = next((note for note in notes if note.startswith(BESIDE_A_PROFILE)), "")
    notes = [n for n in notes if n == beside or not n.startswith(BESIDE_A_PROFILE)]
    if left_out:
        what = "one thing" if left_out == 1 else f"{left_out} things"
        most = max((*one.causes, *two.causes), key=lambda each: abs(each.more_ms))
        largest = "" if causes else f" ({_called(most)}, {most.more_ms:+.3g} ms)"
        notes.append(
            f"left out is {what} that only one of two profiles of each version shows{largest}"
        )
    # Where functions are named, kernels are a part of them.
    whole = [each for each in causes if each.kind in (CauseKind.FUNCTION, CauseKind.CALL)] or causes
    known = {(each.rule, each.scope) for each in two.findings}
    return replace(
        frame,
        causes=causes,
        explained_ms=sum(each.more_ms for each in whole),
        findings=tuple(each for each in one.findings if (each.rule, each.scope) in known),
        steps=one.steps + two.steps,
        note="; ".join(dict.fromkeys(notes)),
    )


def _both(one: Sequence[Cause], two: Sequence[Cause]) -> Iterator[Cause]:
    """Yield what is in both and has changed in the same direction, in the order of the first."""
    others = {_key(each): each for each in two}
    for each in one:
        other = others.get(_key(each))
        if other is None or (each.more_ms > 0) != (other.more_ms > 0):
            continue
        least = min(each, other, key=lambda cause: abs(cause.more_ms))
        yield replace(least, inside=tuple(_both(each.inside, other.inside)))


def _called(cause: Cause) -> str:
    is_function = cause.kind is CauseKind.FUNCTION
    return f"{cause.source} in {cause.name}" if is_function else cause.name


def _key(cause: Cause) -> Hashable:
    return cause.kind, cause.name, cause.source
