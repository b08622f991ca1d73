"""What was at a moment: values, processes and events, for a page, for a pipe and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from gpuadvisor.domain.accumulators import Reading
from gpuadvisor.domain.metrics import BY_NAME, GPU_METRICS, HOST_METRICS, Metric
from gpuadvisor.domain.moment import Moment
from gpuadvisor.domain.telemetry import HOST, GpuProcess
from gpuadvisor.printable import duration, printable
from gpuadvisor.tui.watch import cells
from gpuadvisor.tui.watch.cells import Line, Style
from gpuadvisor.tui.watch.charting import (
    IsSeen,
    event_lines,
    event_text,
    moment_text,
    newest,
    of_device,
)
from gpuadvisor.tui.watch.plain import GPU_FIELDS, VERSION, event_json, value_json
from gpuadvisor.tui.watch.table import text_of

SHOWN = {
    "gpu_utilization_pct": "util",
    "sm_active_pct": "SM",
    "tensor_active_pct": "tensor",
    "dram_active_pct": "DRAM",
    "memory_used_bytes": "memory",
    "power_w": "power",
    "temperature_c": "temperature",
    "sm_clock_mhz": "clock",
    "throttle_reasons": "held down by",
    "cpu_pct": "CPU",
    "load_1m": "load",
    "host_memory_used_bytes": "RAM",
    "iowait_pct": "waits for disks",
}
"""The values of a moment, with their words, in the order of what is told first."""
ROWS = {60.0: "the minute's", 3600.0: "the hour's"}


def lines(
    moment: Moment,
    device: str,
    names: Mapping[str, str],
    width: int,
    height: int,
    now_s: float,
    is_seen: IsSeen,
) -> list[Line]:
    """Return what was at a moment on one device, in at most so many lines."""
    made = [_title(moment, width, now_s)]
    if moment.problem:
        made += _wrapped(moment.problem, width, Style.WARNING)
    made += _values(moment, device, width)
    room = max(height - len(made) - 2, 1)
    made += event_lines(of_device(moment.events, device), names, width, min(room, 4), is_seen)
    made += _processes(moment, device, names, width, max(height - len(made), 1))
    return made[:height]


def printed(moment: Moment, width: int, now_s: float, *, is_current: bool) -> Iterator[str]:
    """Yield what was at a moment on all GPUs and the machine, for a pipe or a file.

    Where what tells it is not `is_current`, as the store of a daemon that has ended, nobody knows
    of an event without an end whether it lasts.
    """
    labels = cells.labels(moment.gpus)
    names = {HOST: "host", **{uuid: f"GPU {number}" for uuid, number in labels.items()}}
    yield text_of(_title(moment, width, now_s))
    if moment.problem:
        yield moment.problem
    if not moment.is_known:
        yield "Nothing was measured then."
    for device in (*(gpu.uuid for gpu in moment.gpus), HOST):
        if parts := _parts(moment, device):
            yield f"{names[device]:<6} {'   '.join(parts)}"
    for event in newest(moment.events):
        yield event_text(event, names, lambda _: is_current)
    for each in sorted(moment.processes or (), key=lambda p: (labels.get(p.gpu, ""), p.pid)):
        yield f"{names.get(each.gpu, each.gpu):<6} {_process(each)}"
    if moment.processes == () and not moment.unlisted:
        yield "No process was on a GPU."
    if moment.untold and moment.is_known:
        yield moment.untold


def document(moment: Moment) -> dict[str, Any]:
    """Return what was at a moment as an object for programs; docs/watch.md describes it."""
    return {
        "version": VERSION,
        "time_s": moment.time_s,
        "row_s": moment.row_s,
        "measured_s": moment.measured_s,
        "problem": moment.problem,
        "gpus": [
            {name: getattr(gpu, name) for name in GPU_FIELDS}
            | {"metrics": _metrics_json(moment, gpu.uuid, GPU_METRICS)}
            for gpu in moment.gpus
        ],
        "host": _metrics_json(moment, HOST, HOST_METRICS),
        "processes": None
        if moment.processes is None
        else [asdict(process) for process in moment.processes],
        "processes_withheld": moment.untold,
        "events": [event_json(event) for event in moment.events],
    }


def _metrics_json(moment: Moment, device: str, metrics: Sequence[Metric]) -> dict[str, Any]:
    readings, ranges = moment.readings.get(device, {}), moment.ranges.get(device, {})
    made = {metric.name: value_json(readings.get(metric.name)) for metric in metrics}
    for name, (low, high) in ranges.items():
        made[name] |= {"min": low, "max": high}
    return made


def _title(moment: Moment, width: int, now_s: float) -> Line:
    ago = duration(max(now_s - moment.time_s, 0))
    what = f", means of {ROWS[moment.row_s]} readings{_share(moment)}" if moment.row_s else ""
    text = f"At {moment_text(moment.time_s)}, {ago} ago{what}"
    return [(cells.fit([text, f"{moment_text(moment.time_s)}{what}"], width), Style.TITLE)]


WHOLE = 0.95
"""Share of a row that was measured from which on it is told as whole: a poll may be late. [own]"""


def _share(moment: Moment) -> str:
    """Return how much of the row was measured, where that is not all."""
    measured_s = moment.measured_s
    if measured_s is None or measured_s >= WHOLE * moment.row_s:
        return ""
    return f", of which there are {duration(measured_s)}"


def _values(moment: Moment, device: str, width: int) -> list[Line]:
    if not moment.is_known:
        return _wrapped("Nothing was measured then.", width, Style.WARNING)
    parts = [part for each in dict.fromkeys((device, HOST)) for part in _parts(moment, each)]
    return _wrapped("   ".join(part.replace(" ", "\0") for part in parts), width, Style.PLAIN)


def _parts(moment: Moment, device: str) -> list[str]:
    """Return the values of a device, each with its words."""
    readings, ranges = moment.readings.get(device, {}), moment.ranges.get(device, {})
    parts = []
    for name, words in SHOWN.items():
        reading = readings.get(name)
        if reading is not None and (text := _value(name, reading, moment.time_s)):
            low, high = ranges.get(name, (0, 0))
            if low != high and BY_NAME[name].unit != "bytes":
                text += f" ({low:.0f} to {high:.0f})"
            parts.append(f"{words} {text}")
    return parts


def _value(name: str, reading: Reading, time_s: float) -> str:
    if not reading.is_ok:
        return cells.placeholders(reading, time_s)[0]
    assert reading.value is not None
    if name == "throttle_reasons" and not cells.reasons(int(reading.value)):
        return ""
    return cells.full(BY_NAME[name], reading.value)


def _processes(
    moment: Moment, device: str, names: Mapping[str, str], width: int, most: int
) -> list[Line]:
    why = moment.untold
    made: list[Line] = []
    found = [p for p in moment.processes or () if device in (HOST, p.gpu)]
    if moment.processes is not None and device not in moment.unlisted:
        where = names.get(device, "it")
        words = f"{len(found)} processes on {where}" if found else f"No process on {where}"
        made.append([(words.replace("1 processes", "1 process"), Style.TITLE)])
    elif why and moment.is_known:
        return _wrapped(why, width, Style.QUIET)
    found.sort(key=lambda each: -(each.memory_bytes or 0))
    for each in found[: max(most - 1, 0)]:
        made.append([(cells.fit([_process(each)], width), Style.PLAIN)])
    if why and made:
        made += _wrapped(why, width, Style.QUIET)
    return made


def _process(each: GpuProcess) -> str:
    memory = "?" if each.memory_bytes is None else f"{each.memory_bytes / 2**30:.1f} GiB"
    share = "" if each.sm_utilization_pct is None else f"SM {each.sm_utilization_pct:.0f} %"
    words = each.command or each.name or "a process of another container, or of before"
    return f"{each.pid:>8} {each.user or '?':<10} {memory:>9} {share:<8} {printable(words)}"


def _wrapped(text: str, width: int, style: Style) -> list[Line]:
    import textwrap

    return [
        [(line.replace("\0", " "), style)]
        for line in textwrap.wrap(text, max(width, 10), break_on_hyphens=False)
    ]
