"""What a profile says of memory: its peak, its curve, and what holds it."""

from __future__ import annotations

from collections.abc import Iterator

from gpuadvisor.reports import figures
from gpuadvisor.reports.document import Block, Column, Folded, Paragraph, Plot, Section, Table
from gpuadvisor.reports.profile import plots as profile_plots
from gpuadvisor.reports.profile.report import ProfileReport
from gpuadvisor.rules.facts.memory import MemoryUse
from gpuadvisor.rules.facts.memory_holders import Held, HeldMemory

_MOST_CURVES = 8
_LONGEST_NAME = 120
"""Characters of a name: names in a trace may be endless."""
_LEAST_SHARE = 0.001
"""Share of the peak from which on what holds it is shown; `--json` has all. [own]"""
_SIZE = Column("Size", "bytes", figures.memory)
HELD = {
    Held.OLDER: "allocated before what is looked at (parameters and what else was there)",
    Held.KEPT: "kept by the forward pass for the backward pass (activations)",
    Held.GRADIENTS: "left by the backward pass (gradients)",
    Held.OPTIMIZER_STATE: "left by the optimizer (its state)",
    Held.TEMPORARY: "released within the same backward pass or optimizer's step",
    Held.OTHER: "all else (inputs, outputs, what the forward pass releases itself)",
}
"""What memory at the peak is held for, as far as times of allocation and release tell."""


def memory_sections(report: ProfileReport) -> Iterator[Section]:
    """Yield the peak of each device's memory, with its curve where one is known."""
    uses = sorted(report.facts.memory, key=lambda use: -use.peak_allocated_bytes)
    known = [use for use in uses if use.curve]
    # The curve of what the CPU allocates is seldom a problem, and in `--json`.
    drawn = [use for use in known if use.device >= 0] or known
    held = {each.device: each for each in report.facts.held_memory}
    blocks = [
        block
        for use in uses
        for block in _memory_of(use, held.get(use.device), use in drawn[:_MOST_CURVES])
    ]
    if blocks:
        yield Section.led("Memory", "What the framework's allocator had given out.", *blocks)


def _memory_of(use: MemoryUse, held: HeldMemory | None, is_drawn: bool) -> Iterator[Block]:
    who = "the CPU" if use.device < 0 else f"GPU {use.device}"
    yield Paragraph(
        f"Peak on {who}: {figures.memory(use.peak_allocated_bytes)}, reserved"
        f" {figures.memory(use.peak_reserved_bytes)}; {figures.memory(use.older_bytes)} of the peak"
        " is older than the recording.",
        "note",
    )
    if not is_drawn:
        return
    yield Plot(lambda width: profile_plots.plot_memory(use, width))
    if held is not None:
        yield from _held_by(held)
    if use.alive_at_peak:
        columns = (
            Column("Allocated in", "operator", lambda name: name[:_LONGEST_NAME] or "not known"),
            _SIZE,
            Column("At", "time_ns", figures.nanoseconds),
        )
        table = Table(use.alive_at_peak, columns)
        yield Folded("The largest allocations that lived at the peak", [table])


def _held_by(held: HeldMemory) -> Iterator[Block]:
    """Yield what holds a device's memory at its peak."""
    rows = [
        (HELD[Held(each.name)] if of == "For" else each.name, of, each)
        for of, found in (
            ("For", held.categories), ("Line", held.lines), ("Module", held.modules),
            ("Operator", held.operators),
        )
        for each in found
        if each.bytes >= _LEAST_SHARE * held.bytes
    ]  # fmt: skip
    if not rows:
        return
    columns = (
        Column("By", lambda row: row[1]),
        Column("What", lambda row: row[0][:_LONGEST_NAME], left=True),
        Column("Share", lambda row: figures.percent(row[2].bytes / held.bytes)),
        Column("Size", lambda row: figures.memory(row[2].bytes)),
        Column("Allocations", lambda row: figures.whole(row[2].count or None)),
    )
    yield Folded("What holds the memory at its peak", [Table(rows, columns, "words")])
