"""Reads what the processes of a rehearsed script wrote down, as one `Life`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from gpuadvisor.collectors.script.child.rehearsal.record import record_file
from gpuadvisor.collectors.script.events import RunRecorder
from gpuadvisor.collectors.script.request import RunOutcome
from gpuadvisor.domain.rehearsal import (
    Branch,
    Call,
    Draw,
    Epoch,
    KeptTensor,
    Life,
    Loop,
    PossibleChange,
    Reseeding,
    StateChange,
    Update,
    WorkerStart,
)
from gpuadvisor.domain.study import TrialState

Record = Mapping[str, Any]
T = TypeVar("T")


def read_life(folder: Path, outcome: RunOutcome, recorder: RunRecorder) -> Life:
    """Return the life of the process whose steps count, with what its workers wrote down."""
    owner = recorder.owner or recorder.main or 0
    own = list(_records(record_file(str(folder), owner)))
    others = [r for path in sorted(folder.glob("*.jsonl")) for r in _records(path)]
    told = (record["detail"] for record in _named("harness_failed", others))
    failures = [] if outcome.state is TrialState.COMPLETE else recorder.failures
    end = next(_named("end", own), {})
    is_cut = outcome.state is TrialState.COMPLETE and any(_named("cut", own))
    return Life(
        state=TrialState.HUNG if is_cut else outcome.state,
        reason="; ".join(filter(None, (outcome.reason, *failures))),
        place=outcome.place,
        output=outcome.output,
        wall_s=outcome.wall_s,
        startup_s=recorder.first_step_s,
        epochs=_all("epoch", Epoch, own),
        changes=_all("change", StateChange, own),
        workers=_workers(others),
        reseeded=_all("reseeded", Reseeding, own),
        calls=_all("call", Call, own),
        probes=_all("probe", Call, own),
        evaluations=_all("evaluation", Call, own),
        updates=_all("update", Update, own),
        equalled=len(list(_named("equalled", own))),
        kept=_all("kept", KeptTensor, own),
        draws=_all("draw", Draw, own),
        trains=end.get("trains", True),
        steep=tuple(end.get("steep", ())),
        losses=tuple(value for r in _named("losses", own) for value in r["values"]),
        loops=_all("loop", Loop, own),
        branches=_all("branch", Branch, own),
        failures=tuple(dict.fromkeys([*recorder.failures, *told])),
        applied=tuple(recorder.applied.values()),
        written=outcome.written,
        most_open_files=end.get("most_open_files"),
        available_bytes=end.get("available_bytes"),
        possible=_all("possible", PossibleChange, own),
        unseen=tuple(r["path"] for r in _named("unseen", own)),
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


def _named(name: str, records: Iterable[Record]) -> Iterator[Record]:
    return (record for record in records if record["record"] == name)


def _all(name: str, kind: type[T], records: Iterable[Record]) -> tuple[T, ...]:
    """Return the objects whose fields the records of a name hold."""
    return tuple(msgspec.convert(record, kind) for record in _named(name, records))


def _workers(records: Iterable[Record]) -> tuple[WorkerStart, ...]:
    """Return what each worker began each pass with; its last word on a pass is the whole."""
    starts = _all("worker", WorkerStart, records)
    return tuple({(each.loader, each.epoch, each.worker): each for each in starts}.values())
