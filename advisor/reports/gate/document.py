"""What a gate found, in words and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import TYPE_CHECKING, Any

from gpuadvisor.domain.gate import (
    Difference,
    GateResult,
    GateRun,
    GateSide,
    GateVerdict,
    MetricRole,
)
from gpuadvisor.printable import printable
from gpuadvisor.reports import figures
from gpuadvisor.reports.document import Bullets, Column, Listing, Paragraph, Section, Table
from gpuadvisor.reports.gate.explanation import explanation_json, explanation_sections
from gpuadvisor.reports.gate.quantities import middle, number
from gpuadvisor.reports.render_text import print_sections
from gpuadvisor.reports.strict_json import strict

if TYPE_CHECKING:
    from rich.console import Console

STYLES = {
    GateVerdict.PASS: "good",
    GateVerdict.FAIL: "bad",
    GateVerdict.INCONCLUSIVE: "strong",
}
"""How paragraphs that say a verdict look."""
VERSION = 2
"""Version of the JSON."""
SHOWN_LINES = 15
"""Lines of a broken version's output that are shown."""
SHOWN_LETTERS = 300
"""Letters of such a line that are shown: a progress bar may be megabytes of one."""
LABEL = 30
"""Letters of a version's name above which a table of 80 columns would be broken by it."""
TENTHS_BELOW = 10.0
"""Changes, in percent, of which tenths are shown."""
FEW_STEPS = 10
"""Steps, from the first to the last that was counted, that are named as such: counted are five of
each run, which are the same ones where nothing is timed."""
LOSSES = "losses"
"""Metric of which a figure is how far a run's losses are from those of the base's first run."""
OF_BLOCKS = ("step_time", "mean_step_time")
"""Metrics that are compared block by block where both versions took turns."""
BLOCKS = "blocks in which both versions ran right after each other"
PAIRS = "both runs of each pair"
WIDEST = 100.0
"""Ratio of an interval's ends from which it is not shown. Counted with `decision.compare` and two
known runs, 300 times each: where runs of one version differ by 10 % (standard deviation), 4 in 10
intervals of two pairs are wider, with ends of up to 100 digits, and none of four pairs is."""


def print_gate(found: GateResult, console: Console) -> None:
    """Print what a gate found."""
    print_sections(console, sections(found))


def why(found: GateResult) -> str:
    """Return in one sentence, without a full stop, what the verdict rests on."""
    if found.reason:
        return found.reason
    roles = {MetricRole.DECIDES} | (
        {MetricRole.GUARDS} if found.verdict is GateVerdict.FAIL else set()
    )
    decisive = [e for e in found.differences if e.verdict is found.verdict and e.role in roles]
    words = "; ".join(map(sentence, decisive)) or "a metric that was asked for is not known"
    worse = [
        sentence(each)
        for each in found.differences
        if each.role is MetricRole.REPORTED and each.verdict is GateVerdict.FAIL
    ]
    aside = f". No part of the verdict: {'; '.join(worse)}" if worse else ""
    return f"compared with {found.base.name}, {words}{aside}"


def gate_json(found: GateResult) -> dict[str, Any]:
    """Return all that a gate measured, every run of it, as values that are valid JSON."""
    here = found.environment
    document: dict[str, Any] = strict({
        "schema_version": VERSION,
        "verdict": str(found.verdict),
        "reason": why(found),
        "broken": found.broken,
        "base": _side(found.base),
        "head": _side(found.head),
        "metrics": [_difference(each) for each in found.differences],
        "unmeasured": [{"metric": name, "reason": why} for name, why in found.unmeasured],
        "explanation": explanation_json(found.explanation),
        "pairs": found.pairs,
        "runs": [_run(run) for run in found.runs],
        "notes": list(found.notes),
        "environment": here and {
            "device": here.device.name,
            "uuid": here.device.uuid,
            "driver": here.driver,
            "cuda": here.cuda,
            "torch": here.torch,
            "python": here.python,
            "platform": here.platform,
            "gpuadvisor": here.gpuadvisor,
        },
        "output": found.output or None,
        "wall_s": found.wall_s,
    })  # fmt: skip
    return document


def sections(found: GateResult) -> Iterator[Section]:
    """Yield what a gate found: the verdict, the metrics, why it is slower, and remarks."""
    headline = f"{str(found.verdict).capitalize()}: {why(found)}."
    yield Section("", [Paragraph(headline, STYLES[found.verdict])])
    if found.differences:
        names = [_name(side) for side in (found.base, found.head)]
        if is_long := max(map(len, names)) > LABEL:
            said, names = names, ["Base", "Head"]
        columns = [
            Column("", lambda row: row.title),
            Column(names[0], lambda row: middle(row, "base")),
            Column(names[1], lambda row: middle(row, "head")),
            Column("Change", _change),
            Column("Verdict", _verdict),
        ]
        yield Section("", [Table(found.differences, columns)])
        if is_long:
            yield Section("", [Paragraph(f"Base is {said[0]}, and head is {said[1]}.", "muted")])
    if found.runs:
        yield Section("", [Paragraph(_effort(found), "muted")])
    yield from explanation_sections(found.explanation)
    yield from printed(found.output)
    if notes := [*found.notes, *_remarks(found)]:
        yield Section("Notes", [Bullets([f"{note[0].upper()}{note[1:]}." for note in notes])])


def printed(output: str) -> Iterator[Section]:
    """Yield the end of what a version printed, if it printed anything."""
    if lines := output.strip().splitlines()[-SHOWN_LINES:]:
        last = "\n".join(printable(line.expandtabs())[:SHOWN_LETTERS] for line in lines)
        yield Section("The end of what it printed", [Listing(last, "text")])


def sentence(found: Difference) -> str:
    """Return what is known of one metric, as a clause that begins with its name."""
    name, interval = found.title.lower(), _interval(found)
    if found.metric == LOSSES:
        return (
            f"losses of head and base differ by {middle(found, 'head')}"
            f"{_new(found) or ' of their size'}, those of runs of the base alone by "
            f"{middle(found, 'base')}"
        )
    if not found.unit:
        head, base = middle(found, "head"), middle(found, "base")
        both = f"{head}, as in the base" if head == base else f"{head} instead of {base}"
        return f"{name}: {both}{_new(found)}{_where(found)}"
    if found.verdict is GateVerdict.FAIL:
        return (
            f"{name} is {_signed(found.ratio)}{interval}, more than the "
            f"{_share(found.tolerance)} that is tolerated{_new(found)}{_where(found)}"
        )
    if found.verdict is GateVerdict.PASS:
        return f"{name} is {_signed(found.ratio)}, and not worse by {_limit(found)}{_where(found)}"
    return (
        f"{name} is {_signed(found.ratio)}{interval}: neither a regression of more than "
        f"{_share(found.tolerance)} nor that it is below {_share(found.limit)} is shown"
    )


def _new(found: Difference) -> str:
    return f" ({found.detail})" if found.detail else ""


def _where(found: Difference) -> str:
    """Return in which steps of the script something was counted; empty where that is no matter."""
    if found.in_steps is None:
        return ""
    first, last = found.in_steps
    if last - first < FEW_STEPS:
        return f" in steps {first:,} to {last:,}"
    return f" in a few steps of each run, all before step {last + 1:,}"


def _remarks(found: GateResult) -> Iterator[str]:
    """Yield what a reader should know of how the figures came about."""
    blocks = any(run.blocks_ms for run in found.runs)
    for each in found.differences:
        if (apart := _medians_apart(each)) is not None:
            yield (
                f"the change of {each.title.lower()}, {_signed(each.ratio)}, is that of "
                f"{BLOCKS if blocks and each.metric in OF_BLOCKS else PAIRS}; the medians of all "
                f"runs, which the table has beside it, differ by {_signed(apart)}"
            )
        if each.in_turns:
            yield (
                f"{each.title.lower()} was compared as both sides took turns within each process; "
                f"by what processes took as they had started it is {_signed(each.unadjusted)}"
            )
        if each.clock_share:
            yield (
                f"{each.title.lower()} was compared as at one SM clock, which moved from run to "
                f"run; as measured it is {_signed(each.unadjusted)}"
            )
    if last := max((each.in_steps[1] for each in found.differences if each.in_steps), default=0):
        yield f"what a step does after step {last:,} of the script was not counted"
    if found.unmeasured:
        of_reason: dict[str, list[str]] = {}
        for name, why in found.unmeasured:
            of_reason.setdefault(why, []).append(name.replace("_", " "))
        each_why = (f"{', '.join(names)} ({why})" for why, names in of_reason.items())
        yield f"not measured: {'; '.join(each_why)}"
    disturbed = [run.trial.disturbance for run in found.runs if run.trial.disturbance]
    if disturbed and (found.pairs or found.broken):  # counts are the same beside anything
        yield f"something else used the machine beside {len(disturbed)} runs: {disturbed[-1]}"
    broken = [run for run in found.runs if run.side == found.broken]
    if broken and found.base.commit is not None and all(run.problem for run in broken):
        yield (
            "a version has the files that git has of it, and your work tree those that git does "
            "not ignore, too: what else the script reads can be given with --link"
        )


def _medians_apart(found: Difference) -> float | None:
    """Return the ratio of both medians that the table shows, where it is another than the change.

    None where it is the same, or another remark says what the change is of.
    """
    if not (found.unit and found.base and found.head and median(found.base)):
        return None
    medians = median(found.head) / median(found.base)
    apart = abs(medians - found.ratio) > found.tolerance * found.ratio
    return medians if apart and not (found.in_turns or found.clock_share) else None


def _effort(found: GateResult) -> str:
    starts = figures.count(len(found.runs), "run")
    pairs = f"{figures.count(found.pairs, 'pair')} of runs in random order"
    parts = [pairs, f"{starts} in all"] if found.pairs else [starts]
    parts.append(figures.duration(found.wall_s))
    if found.environment is not None:
        parts.append(found.environment.device.name)
    return ", ".join(parts) + "."


def _change(found: Difference) -> str:
    if not found.unit:
        more = median(found.head) - median(found.base) if found.head and found.base else 0.0
        return f"{number(more, '+') if more else 'none'}{_new(found)}"
    return f"{_signed(found.ratio)}{_interval(found)}"


def _verdict(found: Difference) -> str:
    return str(found.role if found.role is MetricRole.REPORTED else found.verdict)


def _interval(found: Difference) -> str:
    """Return the interval of a change in brackets; empty where it is exact."""
    if found.exact:
        return ""
    if found.high > WIDEST * found.low:
        return " (too few runs for an interval)"
    return f" ({_signed(found.low)} to {_signed(found.high)})"


def _signed(ratio: float) -> str:
    """Return a ratio as a change in percent: `+2.1%`, or `+98%` where tenths say nothing."""
    change = 100 * (ratio - 1)
    return f"{change:+.1f}%" if abs(change) < TENTHS_BELOW else f"{change:+.0f}%"


def _limit(found: Difference) -> str:
    """Return what was ruled out: of memory in bytes, as a small script's few MiB do not count."""
    if found.unit == "bytes" and found.base:
        return figures.memory(found.limit * median(found.base))
    return _share(found.limit)


def _share(value: float) -> str:
    return f"{100 * value:.3g}%"


def _name(side: GateSide) -> str:
    return f"{side.name} ({side.commit[:8]})" if side.commit else side.name


def _side(side: GateSide) -> dict[str, Any]:
    return {
        "name": side.name,
        "commit": side.commit,
        "command": list(side.command),
        "folder": side.folder,
        "variables": [f"{name}={value}" for name, value in side.variables.items()],
        "plan": side.plan,
    }


def _difference(each: Difference) -> dict[str, Any]:
    return {
        "metric": each.metric,
        "title": each.title,
        "role": str(each.role),
        "verdict": str(each.verdict),
        "unit": each.unit or None,
        "base": median(each.base) if each.base else None,
        "head": median(each.head) if each.head else None,
        "ratio": each.ratio,
        "low": each.low,
        "high": each.high,
        "ratio_as_measured": each.unadjusted,
        "clock_share": each.clock_share,
        "in_turns": each.in_turns,
        "tolerance": each.tolerance,
        "limit": each.limit,
        "exact": each.exact,
        "in_steps": list(each.in_steps) if each.in_steps else None,
        "detail": each.detail or None,
    }


def _run(run: GateRun) -> dict[str, Any]:
    trial, measured = run.trial, run.trial.measurement
    return {
        "side": run.side,
        "place": run.place,
        "state": str(trial.state),
        "reason": trial.reason or None,
        "steps": measured and measured.steps,
        "mean_step_ms": measured and measured.mean_step_ms,
        "step_ms": list(measured.step_ms) if measured else None,
        "window_step_ms": list(measured.window_step_ms) if measured else None,
        "blocks_ms": list(run.blocks_ms) or None,
        "in_turns": trial.in_turns
        and {
            "base_ms": trial.in_turns.base_ms,
            "head_ms": trial.in_turns.head_ms,
        },
        "samples_per_step": measured and measured.samples_per_step,
        "data_wait_share": measured and measured.data_wait_share,
        "peak_memory_bytes": measured and measured.peak_memory_bytes,
        "startup_s": measured and measured.startup_s,
        "counts": [
            {"kind": kind, "name": name, "counts": list(each)}
            for kind, names in (measured.counts if measured else {}).items()
            for name, each in names.items()
        ],
        "counted_steps": list(run.counted_steps) if run.counted_steps else None,
        "sm_clock_mhz": run.sm_clock_mhz,
        "disturbance": trial.disturbance or None,
        "wall_s": trial.wall_s,
    }
