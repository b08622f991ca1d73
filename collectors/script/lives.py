"""Reads what the processes of a rehearsed script wrote down, as one `Life`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from gpuadvisor.collectors.script.child.rehearsal.record import record_file
from gpuadvisor.collectors.script.events import RunRecorder
from gpuadvisor.collectors.script.request import RunOutcome
from gpuadvisor.domain.rehearsal import (
    Batch,
    Branch,
    Call,
    Epoch,
    Life,
    Loop,
    LoopKind,
    Moment,
    PossibleChange,
    StateChange,
    StateKind,
    Touch,
    Update,
    WorkerStart,
)
from gpuadvisor.domain.study import TrialState

Record = Mapping[str, Any]


def read_life(folder: Path, outcome: RunOutcome, recorder: RunRecorder) -> Life:
    """Return the life of the process whose steps count, with what its workers wrote down."""
    owner = recorder.owner or recorder.main or 0
    own = list(_records(record_file(str(folder), owner)))
    failures = [] if outcome.state is TrialState.COMPLETE else recorder.failures
    others = [r for path in sorted(folder.glob("*.jsonl")) for r in _records(path)]
    return Life(
        state=outcome.state,
        reason="; ".join(filter(None, (outcome.reason, *failures))),
        place=outcome.place,
        output=outcome.output,
        wall_s=outcome.wall_s,
        startup_s=recorder.first_step_s,
        epochs=tuple(_epoch(r) for r in own if r["kind"] == "epoch"),
        changes=tuple(_change(r) for r in own if r["kind"] == "change"),
        workers=_workers(others),
        calls=tuple(_call(r) for r in own if r["kind"] == "call"),
        probes=tuple(_call(r) for r in own if r["kind"] == "probe"),
        evaluations=tuple(_call(r) for r in own if r["kind"] == "evaluation"),
        updates=tuple(
            Update(tuple(r["gradients"]), tuple(r["change"]), tuple(r["losses"]), r["passes"])
            for r in own
            if r["kind"] == "update"
        ),
        equalled=sum(r["kind"] == "equalled" for r in own),
        losses=tuple(value for r in own if r["kind"] == "losses" for value in r["values"]),
        loops=tuple(_loop(r) for r in own if r["kind"] == "loop"),
        branches=tuple(_branch(r) for r in own if r["kind"] == "branch"),
        failures=tuple(dict.fromkeys(recorder.failures)),
        applied=tuple(recorder.applied.values()),
        written=outcome.written,
        most_open_files=next((r["most_open_files"] for r in own if r["kind"] == "end"), None),
        available_bytes=next((r["available_bytes"] for r in own if r["kind"] == "end"), None),
        possible=tuple(
            PossibleChange(r["loader"], r["path"], r["code"])
            for r in own
            if r["kind"] == "possible"
        ),
        unseen=tuple(r["path"] for r in own if r["kind"] == "unseen"),
    )


def _records(path: Path) -> Iterator[Record]:
    """Yield the records of one process; the last may have been cut by its end."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError:  # it wrote none
        return
    for line in lines:
        try:
            yield json.loads(line)
        except ValueError:
            return


def _epoch(record: Record) -> Epoch:
    return Epoch(
        loader=record["loader"],
        number=record["number"],
        batches=tuple(
            Batch(
                tuple(map(tuple, each["parts"])),
                tuple(map(tuple, each["moments"])),
                tuple(tuple((row, end) for row, end in part) for part in each["unpadded"]),
            )
            for each in record["batches"]
        ),
        rows=record["rows"],
        whole_batches=record["whole_batches"],
        made_s=record["made_s"],
        start_s=record["start_s"],
        seconds=record["seconds"],
        steps=record["steps"],
        finished=record["finished"],
        workers=record["workers"],
        open_files=record["open_files"],
    )


def _change(record: Record) -> StateChange:
    return StateChange(
        record["loader"],
        record["epoch"],
        record["path"],
        StateKind(record["state"]),
        Moment(record["moment"]),
        record["detail"],
    )


def _workers(records: Iterable[Record]) -> tuple[WorkerStart, ...]:
    """Return what each worker began each pass with; its last word on a pass is the whole."""
    starts = {}
    for record in records:
        if record["kind"] == "worker":
            starts[record["loader"], record["epoch"], record["worker"]] = WorkerStart(
                record["loader"],
                record["epoch"],
                record["worker"],
                record["generators"],
                tuple(record["advanced"]),
                record["shared_bytes"],
                record["copied_bytes"],
            )
    return tuple(starts.values())


def _call(record: Record) -> Call:
    return Call(
        input=record["input"],
        rows_in=record["rows_in"],
        rows_out=record["rows_out"],
        grad=record["grad"],
        values=tuple(map(tuple, record["values"])),
        root=record["root"],
        batch=record["batch"],
        shapes=tuple(map(tuple, record["shapes"])),
        lengths=tuple(record["lengths"]),
        starts=tuple(map(tuple, record["starts"])),
        random=record["random"],
        steps=record["steps"],
    )


def _loop(record: Record) -> Loop:
    return Loop(
        record["place"],
        LoopKind(record["loop"]),
        record["planned"],
        record["done"],
        record["shortened"],
        tuple(record["seconds"]),
        tuple(record["lived"]),
    )


def _branch(record: Record) -> Branch:
    return Branch(
        record["place"],
        record["what"],
        tuple(map(Touch, record["touches"])),
        record["taken"],
        record["in_pass"],
    )
