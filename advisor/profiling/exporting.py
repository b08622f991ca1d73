"""A profile as a Chrome trace, with its findings as annotations: written for Perfetto."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from gpuadvisor.domain.finding import Category, Finding, ScopeKind
from gpuadvisor.domain.profile import ON_DEVICE, UNKNOWN, DeviceLimits, Header, Profile, Range
from gpuadvisor.errors import UsageError
from gpuadvisor.profiling.chrome_rows import WRITERS, Places, event, members, microseconds, quoted
from gpuadvisor.rules.facts.device_work import Work
from gpuadvisor.rules.facts.idle import IdleGap, idle_gaps
from gpuadvisor.rules.facts.idle_causes import Cause
from gpuadvisor.rules.facts.intervals import Intervals, ends, one, union, without
from gpuadvisor.rules.facts.steps import OPTIMIZER
from gpuadvisor.rules.facts.summary import Facts
from gpuadvisor.whole_files import draft_of

BATCH_ROWS = 1 << 15
"""Rows that are text at the same time: about 10 MB."""
GZIP_LEVEL = 3
"""Twice as fast as 6, for files that are a tenth larger."""
OFFSET = 10_000_000
"""Added to a device's number where a process of the host has it: Linux numbers none above
4,194,304."""
ANNOTATIONS = "gpuadvisor: why the GPU is idle"
FINDINGS = "gpuadvisor: what to fix first"
SHORTEST_GAP_NS = 5_000
"""Shortest idle time that is annotated: shorter ones are how fast a device takes up its work, and
together 0 to 11 % of the idle time in traces of V100, A100, H100 and MI300X."""
MOST_MARKS = 1000
"""Annotations of a finding, the longest ones: a kernel may have run a million times."""
MOST_TRACKS = 20
_LONGEST = 80
"""Characters of a track's name."""
CAUSES = {
    Category.INPUT_BOUND: Cause.WAITING_FOR_DATA,
    Category.LAUNCH_BOUND: Cause.LAUNCHING,
    Category.SYNC: Cause.SYNCHRONIZING,
}
"""Category of findings to what a device waits for in the gaps that they are about."""
_WORK = {Category.COPY: Work.MEMORY, Category.COMMUNICATION: Work.COMMUNICATION}
_HOST_TABLES = ("calls", "operators", "ranges")


def export(facts: Facts, path: Path, findings: Sequence[Finding] = ()) -> int:
    """Write `path` (`.json`, or `.json.gz` compressed) and return how many events it has.

    Findings get a track each, over the times that they are about.

    UsageError where the profile has no timeline or the file cannot be written; nothing is left
    behind then.
    """
    if not facts.has_timeline:
        raise UsageError(
            "The profile has no timeline to show: Nsight Compute runs kernels one by one. "
            "`gpuadvisor report` shows what it measured."
        )
    with _writing(path) as file:
        file.write(_head(facts.profile.header))
        count = 0
        for line in _events(facts, findings):
            file.write(",\n" if count else "\n")
            file.write(line)
            count += 1
        file.write("\n]}\n")
        return count


@contextmanager
def _writing(path: Path) -> Iterator[TextIO]:
    """Give a text file that takes the place of `path` once it is complete."""
    try:
        with (
            draft_of(path) as draft,
            gzip.open(draft, "wt", GZIP_LEVEL, encoding="ascii")
            if path.name.endswith(".gz")
            else draft.open("w", encoding="ascii") as file,
        ):
            yield file
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(f"cannot write {path}: {reason}; choose another file with -o") from error


def _head(header: Header) -> str:
    """Return the begin of the document, up to the array of events."""
    members: dict[str, Any] = {
        "schemaVersion": 1,
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": header.begin_unix_ns or 0,
        "exportedBy": "gpuadvisor",
        "recordedBy": quoted(header.tool or header.source)[1:-1],
        "deviceProperties": [_properties(device) for device in header.devices],
    }
    if header.rank is not None:
        members["distributedInfo"] = {"rank": header.rank, "world_size": header.world_size or 0}
    return json.dumps(members)[:-1] + ', "traceEvents": ['


def _properties(device: DeviceLimits) -> dict[str, Any]:
    major, minor = device.compute_capability or (None, None)
    properties = {
        "id": device.index,
        "name": quoted(device.name)[1:-1],
        "totalGlobalMem": device.memory_bytes,
        "computeMajor": major,
        "computeMinor": minor,
        "numSms": device.sm_count,
        "regsPerMultiprocessor": device.registers_per_multiprocessor,
        "sharedMemPerMultiprocessor": device.shared_bytes_per_multiprocessor,
        "sharedMemPerBlockOptin": device.shared_bytes_per_block,
        "maxThreadsPerMultiprocessor": device.threads_per_multiprocessor,
    }
    return {name: value for name, value in properties.items() if value is not None}


def _events(facts: Facts, findings: Sequence[Finding]) -> Iterator[str]:
    profile = facts.profile
    places = _places(profile)
    yield from _names(facts, places)
    for table, write in WRITERS.items():
        for start in range(0, profile.rows(table), BATCH_ROWS):
            part = slice(start, start + BATCH_ROWS)
            rows = {name: column[part].tolist() for name, column in profile.columns(table).items()}
            yield from write(rows, places)
    yield from _arrows(facts, places)
    yield from _annotations(facts)
    yield from _findings(facts, findings)


def _places(profile: Profile) -> Places:
    texts = list(profile.header.texts)
    devices = {int(device) for table in ON_DEVICE
               for device in np.unique(profile.columns(table, ("device",))["device"])}  # fmt: skip
    links = profile.columns("links")
    places = Places(
        texts,
        OFFSET if devices & _host_processes(profile) else 0,
        dict(zip(links["correlation"].tolist(), links["external_id"].tolist(), strict=True)),
    )
    places.collectives = _collectives(profile, places)
    return places


def _host_processes(profile: Profile) -> set[int]:
    found: set[int] = set()
    for table in _HOST_TABLES:
        process = profile.columns(table, ("process",))["process"]
        if table == "ranges":
            process = process[profile.columns(table, ("kind",))["kind"] != Range.DEVICE]
        found |= set(np.unique(process).tolist())
    return found


def _collectives(profile: Profile, places: Places) -> dict[tuple[int, int], str]:
    columns = {name: column.tolist() for name, column in profile.columns("collectives").items()}
    args = members(
        {
            "Collective name": map(places.text, columns["name"]),
            "dtype": map(places.text, columns["type"]),
            "In msg nelems": columns["in_elements"],
            "Out msg nelems": columns["out_elements"],
            "Group size": columns["group_size"],
            "Process Group Name": map(places.text, columns["group"]),
            "Seq": columns["sequence"],
        }
    )
    keys = zip(columns["correlation"], columns["begin_ns"], strict=True)
    return dict(zip(keys, args, strict=True))


def _names(facts: Facts, places: Places) -> Iterator[str]:
    """Yield names of processes and streams; those of the device first."""
    header = facts.profile.header
    for number, name in header.processes.items():
        yield _metadata("process_name", number, {"name": name})
    limits = {each.index: each.name for each in header.devices}
    for device, rows in facts.work.by_device():
        process = places.device(device)
        name = f"GPU {device} {limits.get(device, '')}".strip()
        yield _metadata("process_name", process, {"name": name})
        yield _metadata("process_labels", process, {"labels": f"GPU {device}"})
        yield _metadata("process_sort_index", process, {"sort_index": OFFSET + device})
        for stream in np.unique(facts.work.stream[rows]).tolist():
            yield _metadata("thread_name", process, {"name": f"stream {stream}"}, stream)


def _metadata(kind: str, process: int, args: Mapping[str, Any], thread: int = 0) -> str:
    plain = {
        name: value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
        for name, value in args.items()
    }
    return json.dumps(
        {"ph": "M", "name": kind, "pid": process, "tid": thread, "ts": 0, "args": plain}
    )


def _arrows(facts: Facts, places: Places) -> Iterator[str]:
    """Yield the arrows from calls to what they launched."""
    launched, host, work = facts.launched, facts.host, facts.work
    known = np.flatnonzero(launched.known)
    start = '{"ph":"s","cat":"ac2g","name":"ac2g","id":%d,"pid":%d,"tid":%d,"ts":%s}'
    end = '{"ph":"f","bp":"e","cat":"ac2g","name":"ac2g","id":%d,"pid":%d,"tid":%d,"ts":%s}'
    for first in range(0, len(known), BATCH_ROWS):
        rows = known[first : first + BATCH_ROWS]
        call = launched.call[rows]
        columns = (rows, host.begin_ns[call], host.process[call], host.thread[call],
                   work.begin_ns[rows], work.device[rows], work.stream[rows])  # fmt: skip
        for row in zip(*(column.tolist() for column in columns), strict=True):
            key, called, process, thread, begun, device, stream = row
            yield start % (key, process, thread, microseconds(called))
            yield end % (key, places.device(device), stream, microseconds(begun))


def _annotations(facts: Facts) -> Iterator[str]:
    """Yield the devices' idle times with their causes, on a track of their own above all."""
    process = 2 * OFFSET
    parts = facts.work, facts.launched, facts.threads, facts.window.begin_ns, SHORTEST_GAP_NS
    for number, (device, shorter, gaps) in enumerate(idle_gaps(*parts)):
        if not number:
            yield from _own_process(process, ANNOTATIONS, UNKNOWN)
        name = f"GPU {device}"
        if shorter:
            name += f" ({shorter:,} gaps below {SHORTEST_GAP_NS // 1000} us left out)"
        yield _metadata("thread_name", process, {"name": name}, device)
        for gap in gaps:
            yield _annotation((process, device), gap)


def _findings(facts: Facts, findings: Sequence[Finding]) -> Iterator[str]:
    """Yield what the rules found, a track each, above all."""
    if not findings:
        return
    process = 2 * OFFSET + 1
    yield from _own_process(process, FINDINGS, 2 * UNKNOWN)
    shown = list(enumerate(findings[:MOST_TRACKS], 1))
    for number, finding in shown:
        name = f"{number}. {finding.rule}"[:_LONGEST]
        yield _metadata("thread_name", process, {"name": name}, number)
    for number, finding in shown:
        times, name, args = about(facts, finding), quoted(finding.rule), _args(finding)
        lasted = times.end_ns - times.begin_ns
        longest = np.sort(np.argsort(-lasted, kind="stable")[:MOST_MARKS])
        for begin, duration in zip(
            times.begin_ns[longest].tolist(), lasted[longest].tolist(), strict=True
        ):
            yield event("gpuadvisor", name, (process, number), begin, duration, args)


def _own_process(process: int, name: str, order: int) -> Iterator[str]:
    """Yield the name of a process that nobody recorded, and its place among the others."""
    yield _metadata("process_name", process, {"name": name})
    yield _metadata("process_sort_index", process, {"sort_index": order})


def _annotation(place: tuple[int, int], gap: IdleGap) -> str:
    words = str(gap.cause).replace("_", " ")
    values = {
        "cause": words,
        "share of the cause": f"{gap.cause_ns / gap.duration_ns:.0%}" if gap.duration_ns else "",
        "after": gap.before,
        "before": gap.after,
        "launched by": gap.launched_by or "not recorded",
    }
    args = ",".join(f"{quoted(name)}:{quoted(value)}" for name, value in values.items())
    name = quoted(f"idle: {words}")
    return event("gpuadvisor", name, place, gap.begin_ns, gap.duration_ns, args)


def about(facts: Facts, finding: Finding) -> Intervals:
    """Return the times that a finding is about, the whole run where they are not known."""
    times = _times(facts, finding)
    if times is not None and len(times):
        return times
    return one(facts.window.begin_ns, facts.window.end_ns)


def _times(facts: Facts, finding: Finding) -> Intervals | None:
    scope, category = finding.scope, finding.category
    texts = facts.profile.header.texts
    if scope.kind is ScopeKind.KERNEL:
        named = [number for number, text in enumerate(texts) if text == scope.name]
        return facts.work.intervals(np.isin(facts.work.name, named))
    if scope.kind is ScopeKind.OPERATOR:
        times = _of_operator(facts, [n for n, text in enumerate(texts) if text == scope.name])
        if scope.name.startswith(OPTIMIZER):
            times = without(times, facts.optimizer_steps.closures)
        return times
    if category in CAUSES:
        gaps = [gap for each in facts.idle for gap in each.longest if gap.cause is CAUSES[category]]
        begin = np.array([gap.begin_ns for gap in gaps], np.int64)
        return union(begin, begin + np.array([gap.duration_ns for gap in gaps], np.int64))
    if category in _WORK:
        return facts.work.intervals(facts.work.kind == _WORK[category])
    return None


def _of_operator(facts: Facts, named: list[int]) -> Intervals:
    """Return when operators, or what PyTorch marks as a range such as an optimizer's step, ran."""
    begins, ended = [], []
    for table in ("operators", "ranges"):
        columns = facts.profile.columns(table, ("begin_ns", "duration_ns", "name"))
        rows = np.isin(columns["name"], named)
        begin, end = ends(columns["begin_ns"][rows], columns["duration_ns"][rows])
        begins.append(begin)
        ended.append(end)
    return union(np.concatenate(begins), np.concatenate(ended))


def _args(finding: Finding) -> str:
    worth = finding.improvement_pct
    values = {
        "what": finding.summary,
        "severity": str(finding.severity),
        "about": str(finding.scope),
        "worth": f"{worth.low:.0f} to {worth.high:.0f} % of the run" if worth else "",
        "what to do": finding.advice,
        "source": finding.source or "",
    }
    return ",".join(f"{quoted(name)}:{quoted(value)}" for name, value in values.items() if value)
